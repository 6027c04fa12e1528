# labels: asan
"""Columns of edges, and times of nodes, become what NumPy makes of them by brute force, from each kind of source."""
import json
import pathlib
import re
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

MERGES = [
    {}, {'symmetrise': True}, {'remove_duplicates': True}, {'self_loops': 'remove'}, {'duplicates': 'sum'},
    {'duplicates': 'largest', 'symmetrise': True}, {'duplicates': 'sum', 'symmetrise': True, 'self_loops': 'remove'},
]


def write_directory(root, graph, node_time=True):
    im.write_npy(root, edge_index=graph.edges, x=graph.features, y=graph.labels, **graph.arrays(),
                 **{'node_time': graph.node_time} if node_time else {})
    return root


@pytest.mark.parametrize('options', MERGES, ids=str)
def test_directory_with_every_option(tmp_path, options):
    graph = im.Columns(1)
    got = im.imported(write_directory(tmp_path / 'in', graph), tmp_path / 'out', '--edge-ids', *im.flags(options))
    graph.check_columns(got, options, without=())
    assert np.array_equal(got['node_time'], graph.node_time)
    about = json.loads((tmp_path / 'out' / 'dataset.json').read_text())
    assert about['num_edge_types'] == 5 and about['format'] == 6 and about['readable_by'] == 4
    assert im.run('inspect', tmp_path / 'out', '--verify').returncode == 0


def test_every_phase_ends_at_its_total(tmp_path):
    done = im.run('import', write_directory(tmp_path / 'in', im.Columns(1)), tmp_path / 'out')
    bars = dict(re.findall(r'^([a-z ]+): +(\d+)%', done.stderr, re.M))
    assert 'sorting edges' in bars and set(bars.values()) == {'100'}, bars


@pytest.mark.parametrize('dtype, stored', [(np.float16, np.float16), (np.float64, np.float32), (np.int64, np.int64), (np.uint8, np.int64),
                                           (np.int32, np.int64)])
@pytest.mark.parametrize('width', [0, 1, 4])
def test_features_of_every_type_and_width(tmp_path, dtype, stored, width):
    graph = im.Columns(2, dtype=dtype, width=width)
    for options in ({}, {'duplicates': 'sum'}):
        out = tmp_path / f'out{len(options)}'
        got = im.imported(write_directory(tmp_path / f'in{len(options)}', graph), out, *im.flags(options))
        graph.check_columns(got, options, stored=stored)


@pytest.mark.parametrize('seed', range(6))
def test_npz_members_in_any_order(tmp_path, seed):
    graph = im.Columns(seed, hub=seed % 2 == 1)
    named = {'edge_index': graph.edges, 'x': graph.features, 'y': graph.labels, **graph.arrays(), 'node_time': graph.node_time}
    order = np.random.default_rng(seed).permutation(list(named))
    (tmp_path / 'in.npz').write_bytes(im.npz(**{name: named[name] for name in order}))
    got = im.imported(tmp_path / 'in.npz', tmp_path / 'out')
    graph.check_columns(got)
    assert np.array_equal(got['node_time'], graph.node_time)
    assert np.array_equal(got['features'], graph.features)


@pytest.mark.parametrize('layout', ['csc', 'pairs', 'fortran'])
def test_edges_in_every_layout(tmp_path, layout):
    graph = im.Columns(3)
    if layout == 'csc':
        order = np.argsort(graph.edges[1], kind='stable')
        graph.edges = graph.edges[:, order]
        graph.columns = {name: values[order] for name, values in graph.columns.items()}
        indptr = np.concatenate([[0], np.cumsum(np.bincount(graph.edges[1], minlength=graph.num_nodes))])
        im.write_npy(tmp_path / 'in', indptr=indptr, indices=graph.edges[0], **graph.arrays())
    else:
        edges = np.ascontiguousarray(graph.edges.T) if layout == 'pairs' else np.asfortranarray(graph.edges)
        im.write_npy(tmp_path / 'in', edge_index=edges, x=graph.features, **graph.arrays())
    graph.check_columns(im.imported(tmp_path / 'in', tmp_path / 'out'))


@pytest.mark.parametrize('whole', [False, True])
def test_ogb_csv_and_binary(tmp_path, whole):
    graph = im.Columns(4, dtype=np.int64 if whole else np.float32, width=2)
    source = im.write_ogb_csv(tmp_path / 'csv', graph)
    feat = graph.columns['features']
    im.gzipped(source / 'raw' / 'edge-feat.csv.gz', im.table(feat.tolist()))
    im.gzipped(source / 'raw' / 'edge_reltype.csv.gz', im.lines(graph.columns['type']))
    im.gzipped(source / 'raw' / 'edge_year.csv.gz', im.lines(graph.columns['time']))
    im.gzipped(source / 'raw' / 'edge_weight.csv.gz', im.lines([repr(float(w)) for w in graph.columns['weight']]))
    im.gzipped(source / 'raw' / 'node_year.csv.gz', im.lines(graph.node_time))
    got = im.imported(source, tmp_path / 'out')
    graph.check_columns(got)
    assert np.array_equal(got['node_time'], graph.node_time)
    archive = im.zip_tree(source, tmp_path / 'csv.zip', prefix='csv/')
    graph.check_columns(im.imported(archive, tmp_path / 'out2'))
    binary = tmp_path / 'bin'
    im.write_ogb(binary, graph)
    arrays = {'edge_index': graph.edges, 'edge_feat': feat, 'edge_reltype': graph.columns['type'][:, None],
              'edge_year': graph.columns['time'][:, None], 'edge_weight': graph.columns['weight'], 'node_year': graph.node_time[:, None],
              'num_nodes_list': np.array([graph.num_nodes]), 'num_edges_list': np.array([graph.edges.shape[1]])}
    (binary / 'raw' / 'data.npz').write_bytes(im.npz(**arrays))
    graph.check_columns(im.imported(binary, tmp_path / 'out3'))


NAMED = ['cites', 'is written by', 'Größe', 'x', '"quoted, twice"']


@pytest.mark.parametrize('kind', ['lines', 'pairs', 'ogb', 'ogb zip'])
def test_names_of_types(tmp_path, kind):
    """A name a line, or type,name: OGB's mapping too. Shown by inspect, and read by their offsets."""
    graph, names = im.Columns(9), [*NAMED, 'not used']
    pairs = 'reltype,rel id\n' + ''.join(f'{i},{name}\n' for i, name in enumerate(names))
    if kind.startswith('ogb'):
        source = im.write_ogb(tmp_path / 'in', graph)
        arrays = {'edge_index': graph.edges, 'edge_reltype': graph.columns['type'][:, None], 'num_nodes_list': np.array([graph.num_nodes]),
                  'num_edges_list': np.array([graph.edges.shape[1]])}
        source = tmp_path / 'in'
        (source / 'raw' / 'data.npz').write_bytes(im.npz(**arrays))
        (source / 'mapping').mkdir()
        im.gzipped(source / 'mapping' / 'reltype2relid.csv.gz', pairs)
        if kind == 'ogb zip':
            source = im.zip_tree(source, tmp_path / 'in.zip', prefix='in/')
    else:
        source = write_directory(tmp_path / 'in', graph)
        names = [name.replace(' ', '_') if kind == 'lines' else name for name in names]
        (source / 'edge_type_names.csv').write_text('\n'.join(names) if kind == 'lines' else pairs)
    got = im.imported(source, tmp_path / 'out')
    stored = [bytes(got['edge_type_text'][a:b]).decode() for a, b in zip(got['edge_type_offsets'], got['edge_type_offsets'][1:])]
    assert stored == [name.strip('"') for name in names]
    done = im.run('inspect', tmp_path / 'out', '--verify', '--json')
    shown = json.loads(done.stdout)
    assert shown['num_edge_types'] == 6 and shown['edge_type_names'] == stored
    assert 'cites' in im.run('inspect', tmp_path / 'out').stdout


@pytest.mark.parametrize('text, says', [('a\nb\n', 'type 4'), ('0,a\n2,b\n', 'type 1'), ('a\n' * 4 + 'b' * 256, '255 bytes')])
def test_bad_names_of_types(tmp_path, text, says):
    source = write_directory(tmp_path / 'in', im.Columns(9))
    (source / 'edge_type_names.csv').write_text(text)
    done = im.run('import', source, tmp_path / 'out')
    assert done.returncode == 4 and says in done.stderr and 'edge_type_names' in done.stderr
    (source / 'edge_type.npy').unlink()
    assert im.run('import', source, tmp_path / 'out').returncode == 4 and not (tmp_path / 'out').exists()


@pytest.mark.parametrize('edges', ['csv', 'npy'])
@pytest.mark.parametrize('names', [('feat', 'weight', 'type', 'timestamp'), ('edge_attr', 'edge_weight', 'reltype', 'year')])
def test_graphbolt(tmp_path, edges, names):
    """Data of edges by their names; what has no meaning here is named."""
    graph = im.Columns(8)
    source = im.write_graphbolt(tmp_path / 'gb', graph, edges)
    named = dict(zip(names, (graph.columns[name] for name in ('features', 'weight', 'type', 'time'))))
    im.write_npy(source, node_time=graph.node_time, **{f'edge_{name}': values for name, values in named.items()})
    listed = [('node', 'time', 'node_time'), *(('edge', name, f'edge_{name}') for name in named), ('edge', 'colour', 'edge_nothing')]
    text = [f'  - domain: {domain}\n    type: null\n    name: {name}\n    format: numpy\n    path: {file}.npy\n' for domain, name, file in listed]
    about = source / 'metadata.yaml'
    about.write_text(about.read_text().replace('feature_data:\n', 'feature_data:\n' + ''.join(text)))
    got = im.imported(source, tmp_path / 'out', '--edge-ids')
    graph.check_columns(got, without=())
    assert np.array_equal(got['node_time'], graph.node_time) and np.array_equal(got['features'], graph.features)
    done = im.run('import', source, tmp_path / 'again')
    assert 'colour' in done.stderr and not any(f'feature {name} is not' in done.stderr for name in named)


def test_many_graphs(tmp_path):
    draw = np.random.default_rng(5)
    graph = im.Columns(5, nodes=90, edges=300)
    cut = np.sort(draw.integers(0, 91, 12))
    node_ptr = np.concatenate([[0], cut, [90]])
    inside = [(a, b) for a, b in zip(node_ptr, node_ptr[1:]) if b > a]
    edges, counts = [], []
    for first, end in zip(node_ptr, node_ptr[1:]):
        count = int(draw.integers(0, 30)) if end > first else 0
        edges.append(draw.integers(0, max(1, end - first), (2, count)))
        counts.append(count)
    assert inside
    edge_ptr = np.concatenate([[0], np.cumsum(counts)])
    local = np.concatenate(edges, axis=1)
    graph.edges = local + np.repeat(node_ptr[:-1], counts)
    graph.columns = {name: values[: local.shape[1]] for name, values in graph.columns.items()}
    graph.columns['type'][:1] = 4
    im.write_npy(tmp_path / 'in', node_ptr=node_ptr, edge_ptr=edge_ptr, edge_index_local=local, node_feat=graph.features, **graph.arrays())
    graph.check_columns(im.imported(tmp_path / 'in', tmp_path / 'out', '--edge-ids'), without=())


def test_memory_and_threads_change_no_byte(tmp_path):
    """Through many runs on disk, and in one."""
    graph = im.Columns(6, nodes=3000, edges=700_000, width=4, hub=True)
    graph.edges = np.random.default_rng(1).integers(0, 3000, (2, 700_000))
    graph.edges[1, :300_000] = 11
    source = write_directory(tmp_path / 'in', graph)
    first = None
    for i, options in enumerate([['--memory', '4G', '--threads', '1'], ['--memory', '90M', '--threads', '1'],
                                 ['--memory', '110M', '--threads', '8']]):
        for merge in ([], ['--duplicates', 'sum']):
            out = tmp_path / f'out{i}{len(merge)}'
            im.imported(source, out, *options, *merge)
        found = im.digests(tmp_path / f'out{i}0'), im.digests(tmp_path / f'out{i}2')
        first = first or found
        assert found == first
    order = np.lexsort((np.arange(700_000), graph.edges[0], graph.edges[1]))
    got = im.arrays(tmp_path / 'out10')
    assert np.array_equal(got['edge_features'], graph.columns['features'][order])
    assert np.array_equal(got['edge_time'], graph.columns['time'][order])


def test_time_is_told_by_its_length(tmp_path):
    graph = im.Columns(7)
    im.write_npy(tmp_path / 'in', edge_index=graph.edges, x=graph.features, time=graph.columns['time'])
    assert np.array_equal(np.sort(im.imported(tmp_path / 'in', tmp_path / 'out')['edge_time']), np.sort(graph.columns['time']))
    im.write_npy(tmp_path / 'in2', edge_index=graph.edges, x=graph.features, time=graph.node_time)
    assert np.array_equal(im.imported(tmp_path / 'in2', tmp_path / 'out2')['node_time'], graph.node_time)
    im.write_npy(tmp_path / 'in3', edge_index=graph.edges, x=graph.features, time=graph.node_time[:7])
    im.refused(4, tmp_path / 'in3', tmp_path / 'out3', says=['time.npy', '7'])
    nodes = len(graph.node_time)
    im.write_npy(tmp_path / 'in4', edge_index=graph.edges[:, :nodes], x=graph.features, time=graph.node_time)
    im.refused(4, tmp_path / 'in4', tmp_path / 'out4', says=['time.npy', 'node_time'])


@pytest.mark.parametrize('change, says', [
    (lambda a: a.update(edge_attr=a['edge_attr'][:-1]), ['399', '400']),
    (lambda a: a.update(edge_type=a['edge_type'] - 1), ['edge_type', '-1']),
    (lambda a: a.update(edge_type=a['edge_type'].astype(np.float32)), ['edge_type', 'types are integers']),
    (lambda a: a.update(edge_time=a['edge_time'] / 2), ['edge_time', 'times are integers']),
    (lambda a: a.update(edge_weight=np.where(np.arange(400) == 17, np.nan, 1)), ['edge_weight', 'row 17', 'NaN']),
    (lambda a: a.update(edge_weight=np.where(np.arange(400) == 17, 1e300, 1)), ['edge_weight', 'row 17', 'f32']),
    (lambda a: a.update(edge_weight=np.ones((400, 2))), ['edge_weight', '2 dimensions']),
    (lambda a: a.update(edge_attr=np.ones((400, 2, 2))), ['edge_attr', '3 dimensions']),
    (lambda a: a.update(edge_attr=np.ones((400, 0))), ['edge_attr']),
    (lambda a: a.update(edge_attr=np.asfortranarray(np.ones((400, 3)))), ['edge_attr', 'Fortran']),
    (lambda a: a.update(edge_feat=a['edge_attr']), ['edge_attr', 'edge_feat', 'keep one']),
    (lambda a: a.update(node_time=np.arange(59)), ['node_time', '59', '60']),
])
def test_wrong_columns_are_refused(tmp_path, change, says):
    graph = im.Columns(8)
    arrays = {'edge_index': graph.edges, 'x': graph.features, **graph.arrays()}
    change(arrays)
    im.write_npy(tmp_path / 'in', **arrays)
    im.refused(4, tmp_path / 'in', tmp_path / 'out', says=says)


def test_sums_that_overflow_are_refused(tmp_path):
    edges = np.zeros((2, 2), np.int64)
    for name, values in {'half': np.full((2, 1), 40000, np.float16), 'whole': np.full((2, 1), 2**62)}.items():
        im.write_npy(tmp_path / name, edge_index=edges, x=np.ones((1, 1), np.float32), edge_attr=values)
        im.refused(4, tmp_path / name, tmp_path / 'out', '--duplicates', 'sum', says=['too large'])


def test_added_self_loops_have_no_columns(tmp_path):
    graph = im.Columns(9)
    write_directory(tmp_path / 'in', graph)
    im.refused(2, tmp_path / 'in', tmp_path / 'out', '--self-loops', 'add', says=['self-loops'])


@pytest.mark.parametrize('name', ['edge_features', 'edge_weight', 'edge_type', 'edge_time', 'edge_id', 'node_time'])
def test_a_flipped_byte_is_found(tmp_path, name):
    graph = im.Columns(10)
    im.imported(write_directory(tmp_path / 'in', graph), tmp_path / 'out', '--edge-ids')
    path = tmp_path / 'out' / f'{name}.npy'
    data = bytearray(path.read_bytes())
    data[-3] ^= 4
    path.write_bytes(data)
    done = im.run('inspect', tmp_path / 'out', '--verify')
    assert done.returncode == 4 and f'{name}.npy' in done.stderr


def test_empty_graph_with_columns(tmp_path):
    im.write_npy(tmp_path / 'in', edge_index=np.zeros((2, 0), np.int64), x=np.ones((3, 1), np.float32), edge_attr=np.zeros((0, 2), np.float32),
                 edge_type=np.zeros(0, np.int64))
    got = im.imported(tmp_path / 'in', tmp_path / 'out', '--edge-ids')
    assert got['edge_features'].shape == (0, 2) and got['edge_id'].shape == (0,) and got['edge_type'].shape == (0,)
    assert im.run('inspect', tmp_path / 'out', '--verify').returncode == 0


@pytest.mark.parametrize('packed', [False, True])
@pytest.mark.parametrize('relabel', [False, True])
@pytest.mark.parametrize('order', [['weight', 'type', 'time', 'feat_a', 'feat_b'], ['Feat', 'note', 'TIME', 'edge_weight', 'reltype']], ids=str)
def test_columns_by_the_heading_of_a_text(tmp_path, packed, relabel, order):
    graph = im.Columns(11, dtype=np.int64, width=2 if 'feat_b' in order else 0)
    feat = graph.columns['features'].reshape(len(graph.columns['time']), -1)
    values = {'weight': [repr(float(w)) for w in graph.columns['weight']], 'type': graph.columns['type'], 'time': graph.columns['time'],
              'feat_a': feat[:, 0], 'feat_b': feat[:, -1], 'note': ['words here'] * len(feat)}
    keys = {'Feat': 'feat_a', 'TIME': 'time', 'edge_weight': 'weight', 'reltype': 'type'}
    ends = graph.edges.astype(str) if not relabel else np.char.add('node ', graph.edges.astype(str))
    rows = zip(*ends, *(values[keys.get(name, name)] for name in order))
    text = ','.join(['source', 'target', *order]) + '\n' + im.table(rows)
    path = tmp_path / 'in' / ('edges.csv.gz' if packed else 'edges.csv')
    path.parent.mkdir()
    if packed:
        im.gzipped(path, text)
    else:
        path.write_text(text)
    if relabel:
        (tmp_path / 'in' / 'nodes.csv').write_text('id\n' + im.lines([f'node {i}' for i in range(graph.num_nodes)]))
    else:
        np.save(tmp_path / 'in' / 'x.npy', graph.features)
    done = im.run('import', tmp_path / 'in', tmp_path / 'out', *(['--relabel'] if relabel else []))
    assert done.returncode == 0, done.stderr
    graph.check_columns(im.arrays(tmp_path / 'out'))
    if not relabel:
        assert ('without a known name are ignored' in done.stderr) == ('note' in order)
        graph.check_columns(im.imported(path, tmp_path / 'alone', '--nodes', graph.num_nodes))


@pytest.mark.parametrize('text, says', [
    ('source,target,weight,weight\n0,1,2,3\n', ['column 4 is another edge_weight']),
    ('source,target,feat,weight,feat2\n0,1,2,3,4\n', ['column 5 is another edge_features', 'side']),
    ('source,target,type\n0,1,2.5\n', ['types are integers']),
    (f'source,target,time\n0,1,{2**53 + 1}\n', ['times are integers']),  # a double would be another number
    ('source,target,weight\n0,1,heavy\n', ['line 2', 'heavy']),
    ('source,target,weight\n0,1,\n', ['NaN']),
])
def test_wrong_headings_are_refused(tmp_path, text, says):
    (tmp_path / 'edges.csv').write_text(text)
    im.refused(4, tmp_path / 'edges.csv', tmp_path / 'out', says=says)
