"""train --temporal: PyTorch Geometric's layers over what is not later than each seed; the same bits however they are computed."""
import json
import pathlib
import signal
import subprocess
import sys

import numpy as np
import pytest

import plimsoll

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from command import PLIMSOLL, call, last  # noqa: E402
from edge_models import FEATURES, TYPES, tensors, torch  # noqa: E402

gnn = pytest.importorskip('torch_geometric.nn', reason='torch_geometric is not installed (tools/bootstrap installs it)')
safe = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')

WIDTH, HIDDEN, CLASSES, NODES = 7, 12, 4, 90
MODELS = {
    'sage': ([], lambda ins, out: gnn.SAGEConv(ins, out), None),
    'gin': ([], lambda ins, out: gnn.GINConv(gnn.MLP([ins, out, out], act='relu', norm=None)), None),
    'gine': ([], lambda ins, out: gnn.GINEConv(gnn.MLP([ins, out, out], act='relu', norm=None), edge_dim=FEATURES), 'edge_attr'),
    'gatv2': (['--edge-features'], lambda ins, out: gnn.GATv2Conv(ins, out, edge_dim=FEATURES), 'edge_attr'),
    'rgcn': (['--num-bases', 2], lambda ins, out: gnn.RGCNConv(ins, out, TYPES, 2), 'edge_type'),
}


class Timed:
    """A multigraph with a hub and loops. No two of its edges, or of its nodes, are of the same time, so the last ones are certain."""

    def __init__(self, by):
        draw = np.random.default_rng(3)
        self.by = by
        self.edges = np.stack([draw.integers(0, NODES, 420), draw.integers(0, NODES, 420)])
        self.edges[1, :90] = 5
        if by == 'nodes':  # a neighbour that is there twice is of one time
            self.edges = np.unique(self.edges, axis=1)
        count = self.edges.shape[1]
        self.columns = {'edge_attr': draw.standard_normal((count, FEATURES)).astype(np.float32), 'edge_type': draw.integers(TYPES, size=count)}
        self.node_time = draw.permutation(NODES) * 5 - 200
        self.edge_time = draw.permutation(count) - 200 if by == 'edges' else self.node_time[self.edges[0]]
        self.x = draw.standard_normal((NODES, WIDTH)).astype(np.float32)
        self.y = draw.integers(0, CLASSES, NODES)
        self.y[:CLASSES] = np.arange(CLASSES)
        order = draw.permutation(NODES)
        self.splits = {'train': order[:45], 'valid': order[45:68], 'test': order[68:]}

    def write(self, path):
        with plimsoll.Builder(path, quiet=True) as builder:
            times = {'time': self.edge_time} if self.by == 'edges' else {}
            builder.add_edges(self.edges, features=self.columns['edge_attr'], type=self.columns['edge_type'], **times)
            builder.add_times(self.node_time)
            builder.add_rows(self.x)
            builder.add_labels(self.y)
            builder.split(**self.splits)
        return path

    def known(self, seed, most):
        """The edges that are not later than a seed: all of them, or the last ones of each list."""
        kept = np.flatnonzero(self.edge_time <= self.node_time[seed])
        if most < 0:
            return kept
        kept = kept[np.lexsort((-self.edge_time[kept], self.edges[1, kept]))]
        lists = self.edges[1, kept]
        return kept[np.arange(len(kept)) - np.searchsorted(lists, lists) < most]


class Layers(torch.nn.Module):
    """Each seed's output is that of a graph of its own: the first layer takes the draws of the last hop."""

    def __init__(self, kind):
        super().__init__()
        self.column = MODELS[kind][2]
        self.convs = torch.nn.ModuleList([MODELS[kind][1](WIDTH, HIDDEN), MODELS[kind][1](HIDDEN, CLASSES)])

    def forward(self, data, seeds, fanout):
        outputs = []
        for seed in seeds:
            x = torch.from_numpy(data.x)
            for conv, most in zip(self.convs, fanout[::-1]):
                edges = data.known(seed, most)
                column = [torch.from_numpy(data.columns[self.column][edges])] if self.column else []
                x = conv(x, torch.from_numpy(data.edges[:, edges]), *column)
                x = x.relu() if conv is self.convs[0] else x
            outputs.append(x[seed])
        return torch.stack(outputs)


def assert_close(ours, theirs):
    assert ours.shape == tuple(theirs.shape)
    assert np.abs(ours - theirs.detach().numpy()).max() <= 1e-4 * max(1, theirs.abs().max().item())


def loss_of(outputs, data, seeds):
    return torch.nn.functional.cross_entropy(outputs, torch.from_numpy(data.y[seeds]))


@pytest.mark.parametrize('kind, by, how, fanout', [
    *((kind, 'edges', *how) for kind in MODELS for how in [('uniform', (-1, -1)), ('last', (3, 2))]),
    ('sage', 'nodes', 'last', (2, 3)), ('gatv2', 'nodes', 'uniform', (-1, -1))])
def test_as_torch(kind, by, how, fanout, tmp_path):
    """A step of plain gradient descent at rate 1 takes PyTorch's gradients away; then scores and predictions are PyTorch's."""
    data = Timed(by)
    data.write(tmp_path / 'data')
    torch.manual_seed(1)
    model = Layers(kind)
    safe.save_file(model.state_dict(), tmp_path / 'init.safetensors')
    run, train = tmp_path / 'run', data.splits['train']
    call('train', tmp_path / 'data', '--run', run, '--model', kind, *MODELS[kind][0], '--temporal', how, f'--fanout={fanout[0]},{fanout[1]}', '--batch', 90,
         '--hidden', HIDDEN, '--layers', 2, '--optimizer', 'sgd', '--lr', 1, '--epochs', 1, '--init', tmp_path / 'init.safetensors', '--quiet')
    loss = loss_of(model(data, train, fanout), data, train)
    loss.backward()
    metrics = json.loads((run / 'metrics.jsonl').read_text().splitlines()[-1])
    assert metrics['loss'] == pytest.approx(loss.item(), abs=1e-4)
    stepped = safe.load_file(run / 'last.safetensors')
    with torch.no_grad():
        for key, value in model.named_parameters():
            assert_close(stepped[key].numpy(), value - value.grad)
            value -= value.grad
        valid, test = (loss_of(model(data, data.splits[name], fanout), data, data.splits[name]).item() for name in ('valid', 'test'))
    assert metrics['valid_loss'] == pytest.approx(valid, abs=1e-3)
    assert last('evaluate', run, '--split', 'test')['test']['loss'] == pytest.approx(test, abs=1e-3)
    assert last('predict', run, '--out', tmp_path / 'out.npy')['exact'] is False
    assert_close(np.load(tmp_path / 'out.npy'), model(data, data.splits['test'], fanout))


FREE = ('--nodes', 1000, '--edges', 20_000, '--features', 2000, '--classes', 5)


@pytest.fixture(name='graph', scope='module')
def make_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('times') / 'graph'
    call('generate', 'free', path, *FREE, '--edge-columns', 'features:6,time', '--quiet')
    return path


@pytest.fixture(name='whole', scope='module', params=['uniform', 'last'])
def make_whole(request, graph):
    words = ['train', graph, '--model', 'gine', '--temporal', request.param, '--fanout', '3,2', '--batch', 50, '--microbatch', 1, '--hidden', HIDDEN,
             '--epochs', 2, '--dropout', 0.2, '--seed', 2]
    run = graph.parent / request.param
    last(*words, '--run', run, '--threads', 2)
    return run, words


def same(one, other):
    return tensors(one) == tensors(other) and (one / 'metrics.jsonl').read_bytes() == (other / 'metrics.jsonl').read_bytes()


def test_bits_depend_on_the_recipe_alone(whole, tmp_path):
    """Threads, and the minimum that a plan names, under which rows are on disk and which the run keeps to."""
    run, words = whole
    for name, options in {'one': ['--threads', 1], 'two': ['--threads', 2, '--io', 'threads']}.items():
        planned = json.loads(call('plan', *words[1:], *options, '--memory', '4M', '--json', code=3).stdout)
        line = -(-planned['minimum_bytes'] >> 20)
        assert planned['features'] == 'disk'
        done = last(*words, '--run', tmp_path / name, *options, '--memory', f'{line}M')
        assert done['peak_bytes'] <= line << 20 and same(tmp_path / name, run)


def test_a_stop_in_an_epoch_changes_nothing(whole, tmp_path):
    """run.json keeps how neighbours are drawn."""
    run, words = whole
    begun = subprocess.Popen([PLIMSOLL, *map(str, words), '--run', str(tmp_path / 'run'), '--checkpoint-every', '1', '--json'],
                             stdout=subprocess.PIPE, bufsize=0, pipesize=4096)
    while not (tmp_path / 'run' / 'last.safetensors').exists():
        assert begun.stdout.readline()
    begun.send_signal(signal.SIGTERM)
    begun.communicate(timeout=1500)
    assert begun.returncode == 75
    settings = json.loads((tmp_path / 'run' / 'run.json').read_text())['settings']
    assert settings['temporal'] == words[words.index('--temporal') + 1]
    call('train', '--resume', tmp_path / 'run', '--temporal', 'none', '--quiet', code=2)
    last('train', '--resume', tmp_path / 'run')
    assert same(tmp_path / 'run', run)


def test_a_plan_counts_a_tree_for_each_seed(graph):
    words = ('plan', graph, '--model', 'sage', '--fanout', '8,6', '--batch', 200, '--json')
    shared, trees = (json.loads(call(*words, *more).stdout) for more in ([], ['--temporal', 'last']))
    assert trees['total_bytes'] > shared['total_bytes']
    call(*words, '--temporal', 'last', '--for', 'pyg', code=2)


@pytest.mark.parametrize('task', ['labels', 'link'])
def test_the_option_is_proposed_where_it_is_possible(graph, task, tmp_path):
    done = call('train', graph, '--task', task, '--model', 'sage', '--fanout', 2, '--hidden', 4, '--epochs', 1, '--run', tmp_path / 'run')
    assert ('--temporal' in done.stderr) == (task == 'labels')


def test_what_times_cannot_decide_is_refused(graph, whole, tmp_path):
    run, words = whole[0], ['--temporal', 'last', '--run', tmp_path / 'run']
    for more, named in {'--model gcn': 'sage', '--model mlp': '--temporal', '--model sage --eval-exact 1': '--eval-fanout -1',
                        '--model sage --task link': '--temporal'}.items():
        assert named in call('train', graph, *words, *more.split(), code=2).stderr and not (tmp_path / 'run').exists()
    assert '--exact' in call('evaluate', run, '--exact', code=2).stderr
    call('predict', run, '--split', 'all', '--out', tmp_path / 'out.npy', code=2)
    assert not (tmp_path / 'out.npy').exists()
    with plimsoll.Builder(tmp_path / 'data', quiet=True) as builder:
        builder.add_edges(np.array([[0, 1, 2], [1, 2, 3]]), time=np.arange(3))
        builder.add_rows(np.ones((4, 2), np.float32))
        builder.add_labels(np.array([0, 1, 0, 1]))
        builder.split(train=np.arange(4))
    assert 'node_time' in call('train', tmp_path / 'data', '--model', 'sage', *words, code=2).stderr
