"""Models that read columns of edges, on graphs: their runs learn from them, weights are PyTorch Geometric's there and back."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import plimsoll

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
gnn = pytest.importorskip('torch_geometric.nn', reason='torch_geometric is not installed (tools/bootstrap installs it)')
safe = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')

PLIMSOLL = os.environ['PLIMSOLL']
GRAPHS, HIDDEN, FEATURES, TYPES, BONDS = 300, 16, 5, 3, [4, 2]
SPLITS = {'train': range(200), 'valid': range(200, 250), 'test': range(250, GRAPHS)}


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def last(*words):
    return json.loads(call(*words, '--json', '--quiet').stdout.splitlines()[-1])


def tensors(run):
    data = (run / 'last.safetensors').read_bytes()
    return data[8 + int.from_bytes(data[:8], 'little'):]


class Embeddings(torch.nn.Module):
    """OGB's BondEncoder."""

    def __init__(self, counts, width):
        super().__init__()
        self.bond_embedding_list = torch.nn.ModuleList(torch.nn.Embedding(count, width) for count in counts)

    def forward(self, x):
        return sum(table(x[:, i]) for i, table in enumerate(self.bond_embedding_list))


class Bonds(gnn.GINEConv):
    def __init__(self, mlp, width):
        super().__init__(mlp)
        self.bond_encoder = Embeddings(BONDS, width)

    def forward(self, x, edges, attr):
        return super().forward(x, edges, self.bond_encoder(attr))


class Net(gnn.models.basic_gnn.BasicGNN):
    """PyG's layers as its own models have them, with one product after the pooling."""
    supports_edge_weight = supports_edge_attr = True

    def init_conv(self, in_channels, out_channels, kind='gine'):
        mlp = gnn.MLP([in_channels, out_channels, out_channels], act='relu', norm=None)
        return {'gine': lambda: gnn.GINEConv(mlp, edge_dim=FEATURES), 'bonds': lambda: Bonds(mlp, in_channels),
                'gat': lambda: gnn.GATConv(in_channels, out_channels // 2, heads=2, edge_dim=FEATURES),
                'gatv2': lambda: gnn.GATv2Conv(in_channels, out_channels // 2, heads=2, edge_dim=FEATURES),
                'gatv2-plain': lambda: gnn.GATv2Conv(in_channels, out_channels),
                'gcn': lambda: gnn.GCNConv(in_channels, out_channels),
                'rgcn': lambda: gnn.RGCNConv(in_channels, out_channels, TYPES, 2)}[kind]()


# Of each model: its options, and the column that its layers take.
CASES = {
    'gine': (['--model', 'gine'], 'edge_attr'),
    'bonds': (['--model', 'gine', '--edge-categories', ','.join(map(str, BONDS))], 'edge_attr'),
    'gat': (['--model', 'gat', '--heads', 2, '--edge-features'], 'edge_attr'),
    'gatv2': (['--model', 'gatv2', '--heads', 2, '--edge-features'], 'edge_attr'),
    'gatv2-plain': (['--model', 'gatv2'], None),
    'gcn': (['--model', 'gcn', '--edge-weight'], 'edge_weight'),
    'rgcn': (['--model', 'rgcn', '--num-bases', 2], 'edge_type'),
}


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
    call('generate', 'free', tmp_path / 'one', '--nodes', 300, '--edges', 900, '--features', 8, '--classes', 3, '--quiet')
    done = call('train', tmp_path / 'one', '--model', 'gine', '--run', tmp_path / 'run', code=1)
    assert 'many graphs' in done.stderr
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
