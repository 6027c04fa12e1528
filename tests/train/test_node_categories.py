# labels: together
"""Models over integer features of nodes: embeddings as OGB's AtomEncoder has them, against PyTorch Geometric on the same weights."""
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402
from command import call, last  # noqa: E402
from edge_models import CASES, conv, gnn, tensors, torch  # noqa: E402
from test_edge_models_drawn import Nodes, assert_close, assert_stepped, predicted  # noqa: E402

safe = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')

ATOMS, HIDDEN, CLASSES = [9, 3, 40], 12, 4
PLAIN = {'mlp': torch.nn.Linear, 'sage': gnn.SAGEConv, 'gin': lambda ins, out: gnn.GINConv(gnn.MLP([ins, out, out], act='relu', norm=None))}
KINDS = [*PLAIN, *CASES]


def options_of(kind):
    return [*(CASES[kind][0] if kind in CASES else ['--model', kind]), '--node-categories', ','.join(map(str, ATOMS))]


class Atoms(torch.nn.Module):
    """OGB's AtomEncoder."""

    def __init__(self):
        super().__init__()
        self.atom_embedding_list = torch.nn.ModuleList(torch.nn.Embedding(count, HIDDEN) for count in ATOMS)

    def forward(self, x):
        return sum(table(x[:, i]) for i, table in enumerate(self.atom_embedding_list))


class Layers(torch.nn.Module):
    def __init__(self, kind, layers=2):
        super().__init__()
        self.atom_encoder = Atoms()
        outs = [HIDDEN] * (layers - 1) + [CLASSES]
        made = [PLAIN[kind](HIDDEN, out) if kind in PLAIN else conv(kind, HIDDEN, out, last=i + 1 == layers) for i, out in enumerate(outs)]
        if kind == 'mlp':
            self.lins = torch.nn.ModuleList(made)
        else:
            self.convs = torch.nn.ModuleList(made)

    def forward(self, x, *edges):
        x = self.atom_encoder(x)
        layers = list(self.lins if hasattr(self, 'lins') else self.convs)
        for i, layer in enumerate(layers):
            x = layer(x) if hasattr(self, 'lins') else layer(x, *edges)
            x = x.relu() if i + 1 < len(layers) else x
        return x


def made(kind, path, **sizes):
    data = Nodes(kind, **sizes)
    data.x = np.random.default_rng(5).integers(ATOMS, size=(len(data.x), len(ATOMS)))
    data.write(path)
    x, edges = torch.tensor(data.x), torch.tensor(data.edges)
    column = CASES[kind][1] if kind in CASES else None
    return data, [x, edges] + ([torch.tensor(data.columns[column])] if column else [])


@pytest.mark.parametrize('layers', [1, 2])
@pytest.mark.parametrize('kind', KINDS)
def test_as_pyg(kind, layers, tmp_path):
    """A step of plain gradient descent at rate 1 takes PyG's gradients away from PyG's weights; then outputs are the same."""
    data, arguments = made(kind, tmp_path / 'data')
    torch.manual_seed(1)
    model = Layers(kind, layers)
    safe.save_file(model.state_dict(), tmp_path / 'init.safetensors')
    drawn = [] if kind == 'mlp' else ['--fanout=' + ','.join(['-1'] * layers)]
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', *options_of(kind), *drawn, '--batch', 90, '--hidden', HIDDEN, '--layers', layers,
         '--optimizer', 'sgd', '--lr', 1, '--epochs', 1, '--init', tmp_path / 'init.safetensors', '--quiet')
    ours = safe.load_file(tmp_path / 'run' / 'last.safetensors')
    assert {name: value.shape for name, value in ours.items()} == {name: value.shape for name, value in model.state_dict().items()}
    assert_stepped(ours, model, data, arguments)
    theirs = model(*arguments).detach()
    assert_close(predicted(tmp_path, '--split', 'all'), theirs)
    assert_close(predicted(tmp_path, '--split', 'test', '--sampled'), theirs[data.splits['test']])
    for more in [], ['--sampled']:
        rows = predicted(tmp_path, '--split', 'test', '--kind', 'embeddings', *more)
        assert rows.shape == (len(data.splits['test']), HIDDEN)
        if layers == 1:
            assert_close(rows, model.atom_encoder(arguments[0]).detach()[data.splits['test']])


@pytest.mark.parametrize('kind', ['sage', 'gat', 'bonds', 'mlp'])
def test_bits_depend_on_the_recipe_alone(kind, tmp_path):
    made(kind, tmp_path / 'data', nodes=3000, edges=60000)
    words = ['train', tmp_path / 'data', *options_of(kind), '--batch', 64, '--hidden', HIDDEN, '--epochs', 2, '--seed', 2, '--microbatch', 8]
    words += ['--layers', 2] if kind == 'mlp' else ['--fanout', '5,3']
    last(*words, '--run', tmp_path / 'run')
    for name, options in {'one': ['--threads', 1], 'disk': ['--memory', '84M', '--threads', 1, '--io', 'threads']}.items():
        last(*words, '--run', tmp_path / name, *options)
        assert tensors(tmp_path / name) == tensors(tmp_path / 'run'), name
    last(*words, '--run', tmp_path / 'longer', '--epochs', 1)
    last('train', '--resume', tmp_path / 'longer', '--epochs', 2)
    assert tensors(tmp_path / 'longer') == tensors(tmp_path / 'run')
    ours = predicted(tmp_path, '--split', 'all')
    for options in ['--threads', 1], ['--memory', '64M', '--io', 'threads']:
        assert np.array_equal(predicted(tmp_path, '--split', 'all', *options), ours)


@pytest.mark.parametrize('kind', ['mlp', 'sage', 'gat'])
def test_a_category_out_of_range_is_an_error(kind, tmp_path):
    made(kind, tmp_path / 'data')
    drawn = [] if kind == 'mlp' else ['--fanout', '3,3']
    words = ['train', tmp_path / 'data', *options_of(kind), '--layers', 2, *drawn, '--epochs', 1, '--quiet', '--run']
    call(*words, tmp_path / 'run')
    np.load(tmp_path / 'data' / 'features.npy', mmap_mode='r+')[:, 1] = 3
    done = call('predict', tmp_path / 'run', '--split', 'all', '--out', tmp_path / 'out.npy', '--quiet', code=4)
    assert 'features.npy' in done.stderr and 'category' in done.stderr and not (tmp_path / 'out.npy').exists()
    made('sage', tmp_path / 'more')
    few = [word.replace('9,3,', '9,2,') if isinstance(word, str) else word for word in [*words, tmp_path / 'other']]
    few[1] = tmp_path / 'more'
    assert 'column 1 has the category 2 of 2' in call(*few, code=4).stderr


def test_counts_and_columns_belong_together(tmp_path):
    data, _ = made('sage', tmp_path / 'data')
    words = ['train', tmp_path / 'data', '--fanout', '3,3', '--run', tmp_path / 'run']
    done = call(*words, code=2)
    assert 'integers in 3 columns' in done.stderr and '--node-categories' in done.stderr
    for counts in '9,3', '9,3,40,2', '9,0,40', 'many':
        call(*words, '--node-categories', counts, code=2)
    data.x = data.x.astype(np.float32)
    data.write(tmp_path / 'floats')
    assert '--node-categories' in call('train', tmp_path / 'floats', '--node-categories', '9,3,40', '--run', tmp_path / 'run', code=2).stderr
    last(*words, '--node-categories', '9,3,40', '--epochs', 1)
    assert '--node-categories' in call(*words, '--node-categories', '9,3,41', '--resume', code=2).stderr


def test_molecules_of_atoms_and_bonds(tmp_path):
    """Names and shapes of the weights are OGB's; outputs are those of PyG's layers."""
    source = im.real_data() / 'graphs' / 'ogbg_molesol'
    call('import', source, tmp_path / 'data', '--symmetrise', '--features', 'i64', '--quiet')
    atoms = np.load(source / 'node_feat_int.npy')
    assert np.array_equal(np.load(tmp_path / 'data' / 'features.npy'), atoms)
    words = ['train', tmp_path / 'data', '--model', 'gine', '--layers', 3, '--hidden', 32, '--batch', 32, '--lr', 0.003]
    words += ['--node-categories', ','.join(map(str, atoms.max(0) + 1)), '--edge-categories', '5,6,2']
    assert last(*words, '--epochs', 20, '--run', tmp_path / 'run')['valid'] < 1.6  # RMSE; 2 with bonds and one-hot atoms, the deviation is 2.1
