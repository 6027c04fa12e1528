# labels: together
"""Models that read columns of edges, on graphs: their runs learn from them, weights are PyTorch Geometric's there and back."""
import pathlib
import sys

import numpy as np
import pytest

import plimsoll

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402
from command import call, last  # noqa: E402
from edge_models import BONDS, CASES, FEATURES, TYPES, Net, tensors, torch  # noqa: E402

safe = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')

GRAPHS, HIDDEN = 300, 16
SPLITS = {'train': range(200), 'valid': range(200, 250), 'test': range(250, GRAPHS)}


def make_graphs(kind):
    """Nodes say nothing of the target: edges alone do."""
    rng = np.random.default_rng(3)
    for _ in range(GRAPHS):
        nodes = int(rng.integers(3, 9))
        edges = rng.integers(nodes, size=(2, 2 * nodes))
        edges[1] += (edges[0] == edges[1]) & (rng.random(2 * nodes) < 0.5)
        edges %= nodes
        columns = {'edge_type': rng.integers(TYPES, size=2 * nodes), 'edge_weight': rng.random(2 * nodes).astype(np.float32),
                   'edge_attr': rng.normal(size=(2 * nodes, FEATURES)).astype(np.float32)}
        if kind == 'bonds':
            columns['edge_attr'] = rng.integers(BONDS, size=(2 * nodes, len(BONDS)))
        signal = {'gcn': columns['edge_weight'], 'rgcn': columns['edge_type'] == 0}.get(kind, columns['edge_attr'][:, 0])
        yield edges, np.ones((nodes, 4), np.float32), np.array([[signal.mean(), 2 * signal.mean() - 1]], np.float32), columns


@pytest.fixture(name='trained', scope='module', params=list(CASES))
def make_trained(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    graphs = list(make_graphs(request.param))
    with plimsoll.Builder(place / 'data', quiet=True) as builder:
        for edges, x, y, columns in graphs:
            builder.add_graph(edges, x, y, **columns)
        builder.split(**{name: np.array(ids) for name, ids in SPLITS.items()})
        builder.finish()
    options, column = CASES[request.param]
    words = ('train', place / 'data', '--layers', 2, '--hidden', HIDDEN, '--epochs', 25, '--batch', 50, '--seed', 2, '--metric', 'r2')
    result = last(*words, *options, '--run', place / 'run')
    return request.param, place, graphs, column, words, result


def test_weights_are_pygs(trained):
    kind, place, graphs, column, _, _ = trained
    weights = safe.load_file(place / 'run' / 'best.safetensors')
    model = Net(4, HIDDEN, 2, 2, jk='last', kind=kind)
    state = model.state_dict()
    assert {name: value.shape for name, value in weights.items()} == {name: value.shape for name, value in state.items()}
    model.load_state_dict(weights, strict=True)
    call('predict', place / 'run', '--split', 'test', '--out', place / 'out.npy', '--quiet')
    with torch.no_grad():
        outputs = [predict(model, graphs[i], column) for i in SPLITS['test']]
    assert np.load(place / 'out.npy') == pytest.approx(np.concatenate(outputs), abs=1e-4)


def predict(model, graph, column):
    edges, x, _, columns = graph
    x = torch.tensor(x)
    arguments = [torch.tensor(edges)] + ([torch.tensor(columns[column])] if column else [])
    for conv in model.convs:
        x = model.act(conv(x, *arguments))
    return model.lin(x.mean(0, keepdim=True)).numpy()


def test_pygs_weights_are_ours(trained, tmp_path):
    """A file of PyG's weights, trained from without a learning rate."""
    kind, _, _, _, words, _ = trained
    torch.manual_seed(5)
    model = Net(4, HIDDEN, 2, 2, jk='last', kind=kind)
    safe.save_file(model.state_dict(), tmp_path / 'theirs.safetensors')
    last(*words, *CASES[kind][0], '--init', tmp_path / 'theirs.safetensors', '--lr', 0, '--run', tmp_path / 'run')
    ours = safe.load_file(tmp_path / 'run' / 'last.safetensors')
    assert all(torch.equal(ours[name], value) for name, value in model.state_dict().items())


def test_edges_are_learnt_from(trained):
    """A GIN sees equal nodes; so does attention, whose weights are of no use among them."""
    kind, place, _, _, words, result = trained
    if kind not in ('gine', 'bonds', 'rgcn'):
        return
    plain = last(*words, '--model', 'gin', '--run', place / 'gin')
    assert plain['test'] < 0.2 and result['test'] > 0.4


def test_bits_do_not_depend_on_threads_or_cuts(trained, tmp_path):
    kind, place, _, _, words, result = trained
    run = tmp_path / 'run'
    assert last(*words, *CASES[kind][0], '--run', run, '--threads', 3)['test'] == result['test']
    assert tensors(run) == tensors(place / 'run')
    cut = last(*words, *CASES[kind][0], '--run', tmp_path / 'cut', '--microbatch', 7)
    assert cut['test'] == pytest.approx(result['test'], abs=0.02)


def test_a_run_keeps_its_columns(trained):
    kind, place, _, _, words, _ = trained
    if kind == 'rgcn':
        call(*words, '--model', 'rgcn', '--num-bases', 3, '--resume', '--run', place / 'run', code=2)


def test_what_the_dataset_lacks_is_named(tmp_path):
    with plimsoll.Builder(tmp_path / 'graphs', quiet=True) as builder:
        for _ in range(9):
            builder.add_graph(np.array([[0, 1], [1, 0]]), np.ones((2, 3), np.float32), 0.5)
        builder.split(train=np.arange(5), valid=np.arange(5, 7), test=np.arange(7, 9))
        builder.finish()
    for words, what in ((['gine'], 'features'), (['rgcn'], 'types'), (['gcn', '--edge-weight'], 'weights'), (['gat', '--edge-features'], 'features')):
        done = call('train', tmp_path / 'graphs', '--model', *words, '--run', tmp_path / 'run', code=2)
        assert f'no {what} of edges' in done.stderr
    for words in (['sage', '--edge-weight'], ['gcn', '--num-bases', 3], ['gin', '--edge-features'], ['gin', '--edge-categories', '3,4']):
        call('train', tmp_path / 'graphs', '--model', *words, '--run', tmp_path / 'run', code=2)


def test_molecules_have_bonds(tmp_path):
    source = im.real_data() / 'graphs' / 'ogbg_molesol'
    call('import', source, tmp_path / 'data', '--symmetrise', '--quiet')
    bonds = np.load(source / 'edge_feat_int.npy')
    stored = np.load(tmp_path / 'data' / 'edge_features.npy')
    assert sorted(map(tuple, stored.tolist())) == sorted([*map(tuple, bonds.tolist())] * 2)
    words = 'train', tmp_path / 'data', '--model', 'gine', '--edge-categories', '5,6,2', '--layers', 3, '--hidden', 32, '--batch', 32, '--lr', 0.003
    assert last(*words, '--epochs', 20, '--run', tmp_path / 'run')['valid'] < 2  # RMSE; the values' own deviation is 2.1
