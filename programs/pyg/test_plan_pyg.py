"""plan --for pyg as people use it: the table and its JSON, why a job dies, what fits a GPU."""
import json
import os
import re
import subprocess

import numpy
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
PHASES = ('start', 'load', 'sort', 'train', 'evaluate')
RECIPE = ('--model', 'sage', '--hidden', 32, '--fanout', '4,3', '--batch', 200, '--for', 'pyg')
NODES, EDGES, FEATURES = 20000, 160000, 24
GIB = 1 << 30


def plimsoll(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def plan(*words):
    return json.loads(plimsoll('plan', *words, '--json').stdout)


def account(found, name):
    return next((one for one in found['accounts'] if one['name'] == name), None)


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('plan') / 'graph'
    plimsoll('generate', 'free', path, '--nodes', NODES, '--edges', EDGES, '--features', FEATURES, '--classes', 5)
    return path


def test_sums_peak_and_what_to_ask_for(graph):
    found = plan(graph, *RECIPE)
    for phase in PHASES:
        assert found['phases'][phase] == sum(one['phases'][phase] for one in found['accounts'] if not one['reclaimable'])
    assert found['total_bytes'] == max(found['phases'].values()) == found['phases'][found['peak_phase']]
    assert found['ask_bytes'] % GIB == 0 and found['ask_bytes'] >= 1.1 * found['total_bytes']
    assert account(found, 'x')['bytes'] == 4 * NODES * FEATURES
    assert account(found, 'edge_index')['bytes'] == 16 * EDGES
    assert account(found, 'sort of the edges')['phases']['sort'] == 32 * EDGES
    assert found['csc_mapped_bytes'] < found['csc_bytes'] < found['total_bytes']
    assert 0 < found['plimsoll_minimum_bytes'] < found['total_bytes']


@pytest.mark.parametrize('model, columns, edge_bytes', [('gine', 'features:6', 24), ('rgcn', 'types:4', 8), ('gcn', 'weight', 4)])
def test_columns_of_edges_count(model, columns, edge_bytes):
    shape = ('free', '--nodes', NODES, '--edges', EDGES, '--features', FEATURES, '--classes', 5, '--edge-columns', columns)
    words = (*shape, '--model', model, '--hidden', 32, '--fanout', '4,3', '--batch', 200, '--for', 'pyg')
    reads, plain = ({'gine': (), 'rgcn': (), 'gcn': ('--edge-weight',)}[model], {'gine': 'gin', 'rgcn': 'sage', 'gcn': 'gcn'}[model])
    found, bare = plan(*words, *reads), plan(*words, '--model', plain)
    assert account(found, 'columns of edges')['bytes'] == edge_bytes * EDGES and account(bare, 'columns of edges') is None
    batches = account(found, 'batch')['bytes'] - account(bare, 'batch')['bytes']
    assert batches == pytest.approx(edge_bytes * found['batch_edges'], abs=2)
    assert found['total_bytes'] > bare['total_bytes'] + edge_bytes * EDGES * (0.9 if plain == model else 0.99)


def test_where_it_would_be_killed(graph):
    whole = plan(graph, *RECIPE)
    for phase, before in (('load', 'start'), ('sort', 'load')):
        line = (whole['phases'][before] + whole['phases'][phase]) // 2
        found = plan(graph, *RECIPE, '--memory', line)
        assert not found['fits'] and found['killed_phase'] == phase and found['line_bytes'] == line
        printed = plimsoll('plan', graph, *RECIPE, '--memory', line).stdout
        assert 'it would be killed while ' + ('the dataset is read' if phase == 'load' else 'edge_index is sorted') in printed
    found = plan(graph, *RECIPE, '--memory', '4G')
    assert found['fits'] and 'killed_phase' not in found


def test_the_table_is_readable(graph):
    printed = plimsoll('plan', graph, *RECIPE, '--workers', 2, '--gpu-memory', '8G').stdout.splitlines()
    assert max(map(len, printed)) <= 100
    assert printed[1].split() == list(PHASES)
    assert any(re.fullmatch(r'ask the scheduler for: --mem=\d+G', line) for line in printed)
    assert any(line.startswith('plimsoll: minimum ') for line in printed)


def test_how_the_script_is_written(graph):
    plain = plan(graph, *RECIPE)
    assert account(plan(graph, *RECIPE, '--graph', 'csc'), 'sorted edges') is None
    assert account(plan(graph, *RECIPE, '--mapped-features'), 'x')['reclaimable']
    one = plan(graph, *RECIPE, '--loaders', 1)
    assert 3 * account(one, 'sorted edges')['phases']['train'] == account(plain, 'sorted edges')['phases']['train']
    workers = plan(graph, *RECIPE, '--workers', 2, '--prefetch', 3)
    assert abs(account(workers, 'batches ahead')['bytes'] - 6 * account(workers, 'batch')['bytes']) < 8
    assert plan(graph, *RECIPE, '--workers', 2, '--persistent-workers')['total_bytes'] > workers['total_bytes'] - (1 << 20)


def test_gpu(graph):
    wide = ('--model', 'gat', '--heads', 4, '--hidden', 4096, '--fanout', '10,10', '--batch', 2048, '--for', 'pyg')
    roomy = plan(graph, *wide, '--gpu-memory', '80G')['gpu']
    tight = plan(graph, *wide, '--gpu-memory', '2G')['gpu']
    assert roomy['fits'] and roomy['microbatch'] == 2048
    assert not tight['fits'] and 0 < tight['microbatch'] < 2048 and tight['largest_batch']['f32'] < 2048
    assert tight['largest_batch']['bf16'] > tight['largest_batch']['f32']


def test_loaders_made_late(graph):
    """The job trains, then dies making the validation loader."""
    early, late = plan(graph, *RECIPE), plan(graph, *RECIPE, '--late-loaders')
    assert late['phases']['sort'] < early['phases']['sort'] and late['phases']['train'] < early['phases']['train']
    assert late['peak_phase'] == 'evaluate'
    line = (late['phases']['train'] + late['phases']['evaluate']) // 2
    found = plan(graph, *RECIPE, '--late-loaders', '--memory', line)
    assert found['killed_phase'] == 'evaluate'
    assert 'late loader' in plimsoll('plan', graph, *RECIPE, '--late-loaders', '--memory', line).stdout


def test_sweep(graph):
    words = ('--memory', '4G', '--sweep', 'workers=0,4', 'loaders=1,3', 'late-loaders=no,yes', 'gpu-memory=1G,8G')
    rows = plan(graph, *RECIPE, *words)['rows']
    assert len(rows) == 16 and rows[0]['choice'] == {'workers': '0', 'loaders': '1', 'late-loaders': 'no', 'gpu-memory': '1G'}
    assert rows[15]['total_bytes'] == plan(graph, *RECIPE, '--memory', '4G', '--workers', 4, '--late-loaders', '--gpu-memory', '8G')['total_bytes']
    assert rows[8]['total_bytes'] > rows[0]['total_bytes'] and all(row['fits'] for row in rows)
    printed = plimsoll('plan', graph, *RECIPE, *words).stdout.splitlines()
    assert max(map(len, printed[1:])) <= 100 and len(printed) == 19
    for key in ('workers=x', 'loaders=4', 'late-loaders=maybe', 'gpu-memory=much'):
        plimsoll('plan', graph, *RECIPE, '--sweep', key, code=2)
    plimsoll('plan', graph, '--sweep', 'workers=0,4', code=2)  # without --for pyg


@pytest.fixture(scope='module')
def graphs(tmp_path_factory):
    """1,000 graphs of 20 nodes and 40 edges with a value each."""
    source = tmp_path_factory.mktemp('graphs')
    arrays = {'node_ptr': numpy.arange(0, 20001, 20), 'edge_ptr': numpy.arange(0, 40001, 40),
              'edge_index_local': numpy.arange(80000).reshape(2, -1) % 20,
              'node_feat': numpy.ones((20000, 9), numpy.float32),
              'graph_label': numpy.linspace(0, 1, 1000, dtype=numpy.float32)}
    for name, array in arrays.items():
        numpy.save(source / f'{name}.npy', array)
    plimsoll('import', source, source / 'out', '--split', '0.8,0.1,0.1', '--quiet')
    return source / 'out'


def test_many_graphs(graphs):
    """Batches of graphs, on the CPU and on a GPU; nothing is sorted."""
    words = ('--model', 'gin', '--hidden', 256, '--layers', 3, '--batch', 100, '--for', 'pyg')
    found = plan(graphs, *words)
    assert (found['batch_graphs'], found['batch_nodes'], found['batch_edges']) == (100, 2000, 4000)
    assert account(found, 'sorted edges') is None and found['csc_bytes'] == found['total_bytes']
    assert account(found, 'objects of graphs')['phases']['train'] >= 1000 * 1000
    tight = plan(graphs, *words, '--gpu-memory', '515M')['gpu']
    assert 0 < tight['microbatch'] < 100 and tight['largest_batch']['f32'] < 100
    printed = plimsoll('plan', graphs, *words, '--gpu-memory', '515M').stdout
    assert 'batches of 100 graphs, 2000 nodes' in printed and ' graphs at a time' in printed
    for option in ('--late-loaders', '--graph=csc'):
        plimsoll('plan', graphs, *words, option, code=2)


def test_nonsense(graph):
    for words in (('--loaders', 4), ('--workers', -1), ('--gpu-memory', 'much'), ('--graph', 'coo')):
        assert words[0] in plimsoll('plan', graph, *RECIPE, *words, code=2).stderr
    plimsoll('plan', graph, '--loaders', 2, code=2)
