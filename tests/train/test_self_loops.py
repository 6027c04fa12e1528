# labels: together
"""Self-loops in the data mean what they mean in PyTorch Geometric, in training, evaluation and prediction; older runs keep their meaning."""
import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
pytest.importorskip('torch_geometric', reason='torch_geometric is not installed (tools/bootstrap installs it)')
pytest.importorskip('safetensors', reason='safetensors is not installed (tools/bootstrap installs it)')
xxhash = pytest.importorskip('xxhash', reason='xxhash is not installed (tools/bootstrap installs it)')
from safetensors import safe_open  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE, global_mean_pool  # noqa: E402

NODES, FEATURES, HIDDEN, CLASSES = 90, 7, 12, 4
MODELS = {
    'gcn': (GCN, {}, ['--model', 'gcn']),
    'gat': (GAT, {'heads': 2}, ['--model', 'gat', '--heads', 2]),
    'sage': (GraphSAGE, {}, ['--model', 'sage']),
    'gin': (GIN, {}, ['--model', 'gin']),
}
WHOLE = ['--fanout=-1,-1', '--batch', NODES, '--hidden', HIDDEN, '--layers', 2]


def plimsoll(*words):
    done = im.run(*words, '--quiet', '--json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def multigraph(draw, nodes, edges):
    """Random edges; a third of them is there twice or more often, and half of the nodes have up to three loops."""
    some = draw.integers(0, nodes, (2, edges))
    loops = draw.choice(nodes, nodes // 2, replace=False)
    loops = np.repeat(loops, draw.integers(1, 4, len(loops)))
    return np.concatenate([some, some[:, draw.integers(0, edges, edges // 3)], np.stack([loops, loops])], 1)


class Nodes:
    def __init__(self, root, seed=0):
        draw = np.random.default_rng(seed)
        self.edges = multigraph(draw, NODES, 260)
        self.x = draw.standard_normal((NODES, FEATURES)).astype(np.float32)
        self.y = draw.integers(0, CLASSES, NODES)
        self.y[:CLASSES] = np.arange(CLASSES)
        order = draw.permutation(NODES)
        self.train, self.valid, self.test = order[:40], order[40:60], order[60:]
        self.source = im.write_npy(root / 'source', edge_index=self.edges, x=self.x, y=self.y, train=self.train, valid=self.valid,
                                   test=self.test)

    def imported(self, target, *options):
        plimsoll('import', self.source, target, *options)
        return target


def tensors(path):
    """The weights alone: files of runs that differ in a setting have other headers."""
    return load_file(path)


def assert_close(ours, theirs):
    theirs = theirs.detach().numpy() if hasattr(theirs, 'detach') else theirs
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-4 * max(1, np.abs(theirs).max())


def predicted(run, place, *options):
    plimsoll('predict', run, '--out', place, *options)
    return np.load(place)


@pytest.mark.parametrize('name', MODELS)
def test_as_pyg(tmp_path, name):
    """A step of plain gradient descent at rate 1 takes PyG's gradients away from PyG's weights; then outputs are the same."""
    make, options, words = MODELS[name]
    data = Nodes(tmp_path)
    dataset = data.imported(tmp_path / 'data')
    assert json.loads((dataset / 'dataset.json').read_text())['max_self_loops'] == np.bincount(data.edges[0][data.edges[0] == data.edges[1]]).max()
    torch.manual_seed(1)
    model = make(FEATURES, HIDDEN, 2, CLASSES, **options)
    save_file(model.state_dict(), tmp_path / 'init.safetensors')
    plimsoll('train', dataset, '--run', tmp_path / 'run', *words, *WHOLE, '--optimizer', 'sgd', '--lr', 1, '--epochs', 1, '--eval-exact', 1,
             '--init', tmp_path / 'init.safetensors')
    x, edges = torch.from_numpy(data.x), torch.from_numpy(data.edges)
    loss = torch.nn.functional.cross_entropy(model(x, edges)[data.train], torch.from_numpy(data.y[data.train]))
    loss.backward()
    ours = tensors(tmp_path / 'run' / 'last.safetensors')
    with torch.no_grad():
        for key, value in model.named_parameters():
            assert_close(ours[key].numpy(), value - value.grad)
            value -= value.grad
    theirs = model.eval()(x, edges).detach()
    assert_close(predicted(tmp_path / 'run', tmp_path / 'all.npy', '--split', 'all'), theirs)
    assert_close(predicted(tmp_path / 'run', tmp_path / 'exact.npy', '--split', 'test'), theirs[data.test])
    assert_close(predicted(tmp_path / 'run', tmp_path / 'drawn.npy', '--split', 'test', '--sampled'), theirs[data.test])
    loss = torch.nn.functional.cross_entropy(theirs[data.valid], torch.from_numpy(data.y[data.valid])).item()
    metrics = [json.loads(line) for line in (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()]
    exact = plimsoll('evaluate', tmp_path / 'run', '--exact', '--split', 'valid')['valid']['loss']
    sampled = plimsoll('evaluate', tmp_path / 'run', '--split', 'valid')['valid']['loss']
    assert abs(exact - loss) <= 1e-4 and abs(sampled - loss) <= 1e-4
    assert abs(metrics[-1]['valid_loss'] - loss) <= 1e-4


@pytest.mark.parametrize('options', [[], ['--microbatch', 7], ['--shares', 3], ['--precision', 'bf16', '--batch', 16]], ids=str)
def test_gcn_computes_as_without_loops(tmp_path, options):
    """However a batch is cut, a GCN on data with loops has the bits of one on the same data without them."""
    data = Nodes(tmp_path)
    for name, loops in ('kept', 'keep'), ('removed', 'remove'):
        dataset = data.imported(tmp_path / name, '--self-loops', loops)
        plimsoll('train', dataset, '--run', tmp_path / f'run-{name}', '--model', 'gcn', *WHOLE, '--epochs', 3, *options)
        predicted(tmp_path / f'run-{name}', tmp_path / f'{name}.npy', '--split', 'all')
    assert (tmp_path / 'run-kept' / 'metrics.jsonl').read_bytes() == (tmp_path / 'run-removed' / 'metrics.jsonl').read_bytes()
    assert (tmp_path / 'kept.npy').read_bytes() == (tmp_path / 'removed.npy').read_bytes()


def test_many_graphs(tmp_path):
    draw = np.random.default_rng(5)
    graphs = im.Graphs(seed=5, count=40, least=2)
    local = [multigraph(draw, int(n), 3) for n in graphs.nodes]
    graphs.local = np.concatenate(local, 1)
    graphs.edge_ptr = np.concatenate([[0], np.cumsum([part.shape[1] for part in local])])
    plimsoll('import', im.write_ragged(tmp_path / 'source', graphs), tmp_path / 'data')
    run = tmp_path / 'run'
    plimsoll('train', tmp_path / 'data', '--run', run, '--model', 'gcn', '--layers', 2, '--hidden', HIDDEN, '--epochs', 3, '--batch', 8,
             '--pool', 'mean')
    model = GCN(graphs.one_hot().shape[1], HIDDEN, 2, 3, jk='last')
    model.load_state_dict(load_file(run / 'best.safetensors'), strict=True)
    edges = np.concatenate([part + first for part, first in zip(local, graphs.node_ptr)], 1)
    graph = torch.from_numpy(np.repeat(np.arange(len(graphs.nodes)), graphs.nodes))
    theirs = global_mean_pool(model.eval()(torch.from_numpy(graphs.one_hot()), torch.from_numpy(edges)), graph)
    assert_close(predicted(run, tmp_path / 'test.npy', '--split', 'test'), theirs[graphs.split['test']])


def sealed(path, contents):
    head = json.dumps(contents, indent=2)[:-2] + ',\n  "self": "'
    path.write_text(f'{head}{xxhash.xxh3_64_hexdigest(head.encode())}"\n}}\n')


def make_old_run(run):
    """As a version wrote it that counted loops twice: neither run.json nor the checkpoints have the setting."""
    about = json.loads((run / 'run.json').read_text())
    del about['self'], about['settings']['loops_twice']
    sealed(run / 'run.json', about)
    for path in run.glob('*.safetensors'):
        with safe_open(path, 'np') as file:
            notes = {key: value for key, value in file.metadata().items() if key not in ('checksum', 'checksums')}
        settings = json.loads(notes['settings'])
        del settings['loops_twice']
        notes['settings'] = json.dumps(settings)
        save_file(load_file(path), path, {key: value for key, value in notes.items() if 'xxh' not in key})


def make_old_dataset(dataset):
    """Without the count of loops."""
    about = json.loads((dataset / 'dataset.json').read_text())
    del about['self'], about['max_self_loops']
    sealed(dataset / 'dataset.json', {**about, 'format': 1, 'readable_by': 1})


def old_meaning(model, x, edges):
    """Every loop of the data, and the node itself."""
    own = torch.arange(NODES).repeat(2, 1)
    for conv in model.convs:
        conv.add_self_loops = False
    return model.eval()(x, torch.cat([edges, own], 1))


def test_an_old_run_keeps_its_meaning(tmp_path):
    data = Nodes(tmp_path)
    dataset = data.imported(tmp_path / 'data')
    run = tmp_path / 'run'
    train = ['train', dataset, '--model', 'gcn', *WHOLE, '--optimizer', 'sgd', '--lr', 1]
    torch.manual_seed(1)
    model = GCN(FEATURES, HIDDEN, 2, CLASSES)
    save_file(model.state_dict(), tmp_path / 'init.safetensors')
    plimsoll(*train, '--run', run, '--epochs', 1, '--init', tmp_path / 'init.safetensors')
    make_old_run(run)
    x, edges = torch.from_numpy(data.x), torch.from_numpy(data.edges)
    model.load_state_dict(load_file(run / 'last.safetensors'))
    theirs = old_meaning(model, x, edges)
    place = ['--weights', run / 'last.safetensors']
    assert_close(predicted(run, tmp_path / 'all.npy', '--split', 'all', *place), theirs)
    assert_close(predicted(run, tmp_path / 'drawn.npy', '--split', 'test', '--sampled', *place), theirs[data.test])
    loss = torch.nn.functional.cross_entropy(theirs[data.train], torch.from_numpy(data.y[data.train]))
    exact = plimsoll('evaluate', run, '--exact', '--split', 'train', *place)['train']['loss']
    assert abs(exact - loss.item()) <= 1e-4
    loss.backward()
    plimsoll('train', '--resume', run, '--epochs', '+1')
    assert json.loads((run / 'run.json').read_text())['settings']['loops_twice'] is True
    ours = tensors(run / 'last.safetensors')
    for key, value in model.named_parameters():
        assert_close(ours[key].numpy(), value - value.grad)
    plimsoll('train', '--resume', run, '--epochs', '+1')  # run.json has been written by this version


@pytest.mark.parametrize('model', ['gcn', 'sage'])
def test_an_old_run_without_loops_continues_with_its_bits(tmp_path, model):
    data = Nodes(tmp_path)
    dataset = data.imported(tmp_path / 'data', '--self-loops', 'remove')
    train = ['train', dataset, '--model', model, *WHOLE, '--epochs']
    plimsoll(*train, 4, '--run', tmp_path / 'whole')
    plimsoll(*train, 2, '--run', tmp_path / 'old')
    make_old_run(tmp_path / 'old')
    make_old_dataset(dataset)
    plimsoll('train', '--resume', tmp_path / 'old', '--epochs', '+2')
    assert (tmp_path / 'old' / 'metrics.jsonl').read_bytes() == (tmp_path / 'whole' / 'metrics.jsonl').read_bytes()


def test_an_old_dataset_computes_the_same(tmp_path, monkeypatch):
    """dataset.json without the count: the loops are counted at the first training, and the count is kept in the user's cache."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    data = Nodes(tmp_path)
    for name in 'new', 'old':
        dataset = data.imported(tmp_path / name)
        if name == 'old':
            make_old_dataset(dataset)
        plimsoll('train', dataset, '--run', tmp_path / f'run-{name}', '--model', 'gcn', *WHOLE, '--epochs', 2)
        predicted(tmp_path / f'run-{name}', tmp_path / f'{name}.npy', '--split', 'all')
    assert (tmp_path / 'run-new' / 'metrics.jsonl').read_bytes() == (tmp_path / 'run-old' / 'metrics.jsonl').read_bytes()
    assert (tmp_path / 'new.npy').read_bytes() == (tmp_path / 'old.npy').read_bytes()
    assert len(list((tmp_path / 'cache' / 'plimsoll').glob('loops-*'))) == 1


def test_a_wrong_count_is_found(tmp_path):
    dataset = Nodes(tmp_path).imported(tmp_path / 'data')
    about = json.loads((dataset / 'dataset.json').read_text())
    del about['self']
    sealed(dataset / 'dataset.json', {**about, 'max_self_loops': 0})
    assert im.run('inspect', dataset, '--verify', '--quiet').returncode == 4
    sealed(dataset / 'dataset.json', {**about, 'max_self_loops': 1})
    done = im.run('train', dataset, '--run', tmp_path / 'run', '--model', 'gcn', *WHOLE, '--quiet')
    assert done.returncode == 4 and 'self-loops' in done.stderr
