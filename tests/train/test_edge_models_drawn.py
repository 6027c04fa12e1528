# labels: together
"""Models that read columns of edges, on one graph: PyTorch Geometric's gradients and outputs; the same bits however they are computed."""
import json
import pathlib
import sys

import numpy as np
import pytest

import plimsoll

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from command import call, last  # noqa: E402
from edge_models import BONDS, CASES, FEATURES, TYPES, conv, tensors, torch  # noqa: E402

safe = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')

WIDTH, HIDDEN, CLASSES = 7, 12, 4


class Layers(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.convs = torch.nn.ModuleList([conv(kind, WIDTH, HIDDEN), conv(kind, HIDDEN, CLASSES, last=True)])

    def forward(self, x, *edges):
        return self.convs[1](self.convs[0](x, *edges).relu(), *edges)


class Nodes:
    """A multigraph with a hub, edges that are there twice, and nodes with up to three loops, whose edges carry all columns."""

    def __init__(self, kind, nodes=90, edges=260, width=WIDTH):
        draw = np.random.default_rng(1)
        some = draw.integers(0, nodes, (2, edges))
        some[1, :edges // 4] = 5
        loops = draw.choice(nodes, nodes // 2, replace=False)
        loops = np.repeat(loops, draw.integers(1, 4, len(loops)))
        self.edges = np.concatenate([some, some[:, draw.integers(0, edges, edges // 3)], np.stack([loops, loops])], 1)
        count = self.edges.shape[1]
        self.columns = {'edge_type': draw.integers(TYPES, size=count), 'edge_weight': draw.random(count).astype(np.float32),
                        'edge_attr': draw.normal(size=(count, FEATURES)).astype(np.float32)}
        if kind == 'bonds':
            self.columns['edge_attr'] = draw.integers(BONDS, size=(count, len(BONDS)))
        self.x = draw.standard_normal((nodes, width)).astype(np.float32)
        self.y = draw.integers(0, CLASSES, nodes)
        self.y[:CLASSES] = np.arange(CLASSES)
        order = draw.permutation(nodes)
        self.splits = {'train': order[:nodes // 2], 'valid': order[nodes // 2:3 * nodes // 4], 'test': order[3 * nodes // 4:]}

    def write(self, path):
        with plimsoll.Builder(path, quiet=True) as builder:
            columns = {name.removeprefix('edge_').replace('attr', 'features'): values for name, values in self.columns.items()}
            builder.add_edges(self.edges, **columns)
            builder.add_rows(self.x)
            builder.add_labels(self.y)
            builder.split(**self.splits)
        return path

    def arguments(self, kind):
        column = CASES[kind][1]
        return [torch.tensor(self.x), torch.tensor(self.edges)] + ([torch.tensor(self.columns[column])] if column else [])


def assert_close(ours, theirs):
    assert ours.shape == tuple(theirs.shape)
    assert np.abs(ours - theirs.detach().numpy()).max() <= 1e-4 * max(1, theirs.abs().max().item())


def assert_stepped(ours, model, data, arguments):
    """Our weights are the model's less their gradients; the model takes them."""
    train = data.splits['train']
    torch.nn.functional.cross_entropy(model(*arguments)[train], torch.from_numpy(data.y[train])).backward()
    with torch.no_grad():
        for key, value in model.named_parameters():
            assert_close(ours[key].numpy(), value - value.grad)
            value -= value.grad


def predicted(place, *options):
    call('predict', place / 'run', '--out', place / 'out.npy', *options, '--quiet')
    return np.load(place / 'out.npy')


@pytest.mark.parametrize('kind', CASES)
def test_as_pyg(kind, tmp_path):
    """A step of plain gradient descent at rate 1 takes PyG's gradients away from PyG's weights; then outputs are the same."""
    data = Nodes(kind)
    data.write(tmp_path / 'data')
    torch.manual_seed(1)
    model = Layers(kind)
    safe.save_file(model.state_dict(), tmp_path / 'init.safetensors')
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', *CASES[kind][0], '--fanout=-1,-1', '--batch', 90, '--hidden', HIDDEN, '--layers', 2,
         '--optimizer', 'sgd', '--lr', 1, '--epochs', 1, '--eval-exact', 1, '--init', tmp_path / 'init.safetensors', '--quiet')
    arguments = data.arguments(kind)
    assert_stepped(safe.load_file(tmp_path / 'run' / 'last.safetensors'), model, data, arguments)
    theirs = model(*arguments).detach()
    assert_close(predicted(tmp_path, '--split', 'all'), theirs)
    assert_close(predicted(tmp_path, '--split', 'test'), theirs[data.splits['test']])
    assert_close(predicted(tmp_path, '--split', 'test', '--sampled'), theirs[data.splits['test']])
    valid = data.splits['valid']
    loss = torch.nn.functional.cross_entropy(theirs[valid], torch.from_numpy(data.y[valid])).item()
    metrics = [json.loads(line) for line in (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()]
    assert metrics[-1]['valid_loss'] == pytest.approx(loss, abs=1e-4)
    assert last('evaluate', tmp_path / 'run', '--exact', '--split', 'valid')['valid']['loss'] == pytest.approx(loss, abs=1e-4)


@pytest.mark.parametrize('kind', CASES)
def test_exactly_as_pyg_on_long_lists(kind, tmp_path):
    """A list that is longer than what is read at once; the same bits with little memory."""
    data = Nodes(kind, nodes=3000, edges=600000)
    data.columns['edge_weight'][data.edges[0] == data.edges[1]] = 0.5  # of several loops of a node, PyG takes any one's
    data.write(tmp_path / 'data')
    torch.manual_seed(4)
    model = Layers(kind)
    safe.save_file(model.state_dict(), tmp_path / 'init.safetensors')
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', *CASES[kind][0], '--fanout=-1,-1', '--batch', 1500, '--hidden', HIDDEN,
         '--layers', 2, '--lr', 0, '--epochs', 1, '--eval-every', 0, '--init', tmp_path / 'init.safetensors', '--quiet')
    theirs = model(*data.arguments(kind))
    assert theirs.std(0).max() > 1e-3
    ours = predicted(tmp_path, '--split', 'all')
    assert_close(ours, theirs)
    for options in ['--threads', 1], ['--memory', '64M', '--io', 'threads']:
        assert np.array_equal(predicted(tmp_path, '--split', 'all', *options), ours)


@pytest.mark.parametrize('kind, name, value', [('rgcn', 'edge_type', TYPES), ('bonds', 'edge_features', -1)])
def test_an_exact_pass_finds_damage(kind, name, value, tmp_path):
    Nodes(kind).write(tmp_path / 'data')
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', *CASES[kind][0], '--fanout', '3,3', '--epochs', 1, '--quiet')
    np.load(tmp_path / 'data' / f'{name}.npy', mmap_mode='r+')[50] = value
    done = call('predict', tmp_path / 'run', '--out', tmp_path / 'out.npy', '--quiet', code=4)
    assert 'row 50' in done.stderr and name in done.stderr


@pytest.fixture(name='drawn', scope='module', params=list(CASES))
def make_drawn(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    data = Nodes(request.param, nodes=3000, edges=600000, width=700)
    data.splits = {name: nodes[:250] for name, nodes in data.splits.items()}
    data.write(place / 'data')
    words = ['train', place / 'data', *CASES[request.param][0], '--fanout', '7,4', '--batch', 8, '--microbatch', 1, '--hidden', HIDDEN, '--epochs', 2, '--seed', 2]
    last(*words, '--run', place / 'run', '--threads', 2)
    return place, words


def test_bits_depend_on_the_recipe_alone(drawn, tmp_path):
    """Threads, a line that leaves features of edges on disk, and a run that continues."""
    place, words = drawn
    for name, options in {'one': ['--threads', 1], 'line': ['--memory', '84M'], 'disk': ['--memory', '84M', '--threads', 1, '--io', 'threads']}.items():
        done = last(*words, '--run', tmp_path / name, *options)
        assert tensors(tmp_path / name) == tensors(place / 'run'), name
        assert name == 'one' or done['peak_bytes'] <= 84 << 20
    last(*words, '--run', tmp_path / 'longer', '--epochs', 1)
    last('train', '--resume', tmp_path / 'longer', '--epochs', 2)
    assert tensors(tmp_path / 'longer') == tensors(place / 'run')
