"""Columns of generated edges: the same bytes whatever it runs with, and models that read them pass those that do not."""
import json
import os
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
CLASSES, NOISE = 5, 0.27  # of the labels, another class: as many a model without columns cannot know
FREE = ('--nodes', 3000, '--edges', 30_000, '--features', 8, '--classes', CLASSES)
ALL = f'features:6,weight,types:{CLASSES},time'


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words), '--quiet'], check=False, text=True, capture_output=True, timeout=1500)
    assert done.returncode == code, done.stderr
    return done


def generate(target, *words):
    call('generate', 'free', target, *FREE, *words)
    return {path.stem: np.load(path) for path in target.glob('*.npy')}


@pytest.fixture(name='plain', scope='module')
def make_plain(tmp_path_factory):
    """Columns without times: what is told of labels may be known."""
    target = tmp_path_factory.mktemp('plain') / 'set'
    return target, generate(target, '--edge-columns', f'features:6,weight,types:{CLASSES}')


def test_columns_are_beside_the_same_graph(tmp_path, plain):
    bare, columns = generate(tmp_path / 'bare'), generate(tmp_path / 'all', '--edge-columns', ALL, '--dtype', 'f16')
    named = {name: (array.dtype, array.shape) for name, array in columns.items() if name not in bare}
    edges = len(bare['indices'])
    assert named == {'edge_features': (np.float16, (edges, 6)), 'edge_weight': (np.float32, (edges,)), 'edge_type': (np.int32, (edges,)),
                     'edge_time': (np.int64, (edges,)), 'node_time': (np.int64, (3000,))}
    assert all(np.array_equal(array, arrays[name]) for arrays in (columns, plain[1]) for name, array in bare.items())
    assert set(np.unique(columns['edge_type'])) == set(range(CLASSES)) and columns['edge_weight'].min() > 0
    call('inspect', tmp_path / 'all', '--verify')


def test_same_bytes_whatever_it_runs_with(tmp_path):
    found = set()
    for i, how in enumerate([(), ('--threads', 1, '--io', 'threads'), ('--threads', 8, '--memory', '100M'), ('--threads', 2, '--memory', '76M')]):
        generate(tmp_path / f'set{i}', '--edge-columns', ALL, *how)
        found.add(json.loads((tmp_path / f'set{i}' / 'dataset.json').read_text())['fingerprint'])
    assert len(found) == 1
    again = call('generate', 'free', tmp_path / 'set0', *FREE, '--edge-columns', ALL)
    assert again.returncode == 0
    call('generate', 'free', tmp_path / 'set0', *FREE, code=2)


@pytest.mark.parametrize('text', ['', 'weights', 'features', 'features:0', 'types:-1', 'time,time', 'weight,', 'types:2,types:2', 'features:99999999'])
def test_refusals(tmp_path, text):
    assert 'features:F' in call('generate', 'free', tmp_path / 'set', *FREE, '--edge-columns', text, code=2).stderr
    assert not list(tmp_path.iterdir())


def accuracy(place, run, *words):
    recipe = ('--layers', 2, '--hidden', 32, '--fanout', '8,8', '--batch', 300, '--epochs', 12, '--lr', 0.01, '--seed', 1)
    return json.loads(call('train', place, *recipe, *words, '--run', run, '--json').stdout.splitlines()[-1])['test']


@pytest.mark.parametrize('reads, blind', [(('gine',), 'gin'), (('rgcn',), 'gcn')])
def test_models_that_read_columns_are_better(tmp_path, plain, reads, blind):
    """The noise of labels limits a model that does not read them."""
    without, with_columns = accuracy(plain[0], tmp_path / 'blind', '--model', blind), accuracy(plain[0], tmp_path / 'reads', '--model', *reads)
    print(f'{blind}: {without:.3f}, {reads[0]}: {with_columns:.3f}')
    assert without < 1 - NOISE + 0.06 and with_columns > without + 0.1


def test_weights_tell_neighbours_of_the_class(plain):
    """A mean of the neighbours' rows by weight is nearer to that of the class."""
    _, arrays = plain
    destination = np.repeat(np.arange(3000), np.diff(arrays['indptr']))
    same = arrays['labels'][destination] == arrays['labels'][arrays['indices']]
    assert arrays['edge_weight'][same].mean() > 1.1 * arrays['edge_weight'][~same].mean()


def test_training_by_time_knows_no_more_than_it_may(tmp_path):
    """Late edges carry the labels' noise: a model that draws them passes what can be known at the time of a seed."""
    generate(tmp_path / 'set', '--edge-columns', ALL)
    found = {how: accuracy(tmp_path / 'set', tmp_path / how, '--model', 'gine', '--temporal', how) for how in ('none', 'uniform', 'last')}
    assert found['none'] > 1 - NOISE + 0.08 and 0.4 < min(found.values()) and max(found['uniform'], found['last']) < 1 - NOISE + 0.03


def test_late_edges_tell_what_nobody_knows_yet(tmp_path):
    """Who counts the types of all edges knows the labels too well; who counts those of draws by time does not."""
    plimsoll = pytest.importorskip('plimsoll')
    torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
    arrays = generate(tmp_path / 'set', '--edge-columns', ALL)
    found = []
    for draws in ({}, {'time_attr': 'edge_time', 'input_time': torch.from_numpy(arrays['node_time'])}):
        counts = np.zeros((3000, CLASSES))
        loader = plimsoll.NeighborLoader(plimsoll.Dataset(tmp_path / 'set'), [-1], batch_size=500, input_nodes=torch.arange(3000), **draws)
        for batch in loader:
            np.add.at(counts, (batch.n_id[batch.edge_index[1]].numpy(), batch.edge_type.numpy()), 1)
            if draws:
                assert (batch.edge_time <= torch.from_numpy(arrays['node_time'])[batch.n_id[batch.edge_index[1]]]).all()
        any_edge = counts.sum(1) > 2
        found.append((counts.argmax(1) == arrays['labels'])[any_edge].mean())
    print(f'all edges: {found[0]:.3f}, by time: {found[1]:.3f}')
    assert found[0] > 1 - NOISE + 0.05 and found[1] < 1 - NOISE + 0.02
