# labels: together
"""plimsoll.inference computes what the model's own code computes on the whole graph, or refuses the model by name; and it leaves no files."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import types
import weakref

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

from torch_geometric import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.nn.models.basic_gnn import BasicGNN  # noqa: E402

from plimsoll import layerwise, mapped  # noqa: E402
from plimsoll.dataset import DATA_OFFSET  # noqa: E402
from plimsoll.mapped import Stored  # noqa: E402

SOURCE = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', '.')).resolve()
PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
WIDTH = 8


@pytest.fixture(scope='module', name='graph')
def make_graph(tmp_path_factory):
    """A dataset, its features and its edges in the order of its file: with self-loops, edges twice, and nodes without in-edges."""
    torch.manual_seed(0)
    edge_index = torch.cat([torch.stack([torch.randint(0, 300, (1500,)), torch.randint(60, 300, (1500,))]), torch.tensor([[70, 70, 80], [70, 70, 90]])], 1)
    data = Data(x=torch.randn(300, WIDTH), edge_index=edge_index, y=torch.zeros(300, dtype=torch.long))
    ds = plimsoll.from_pyg(data, tmp_path_factory.mktemp('data') / 'graph', quiet=True)
    target = torch.repeat_interleave(torch.arange(300), torch.from_numpy(ds.array('indptr').copy()).diff())
    return ds, data.x, torch.stack([torch.from_numpy(ds.array('indices').copy()).long(), target])


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(layerwise, '_CHUNK_BYTES', 1 << 14)


def check(model, graph, layers=None):
    """Inference of the layers, else of the model, equals the model's own code."""
    ds, x, edge_index = graph
    found = plimsoll.inference(model if layers is None else layers, ds)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(found, model(x, edge_index), rtol=1e-5, atol=1e-5)


def refuse(model, graph, text):
    with pytest.raises(plimsoll.UsageError, match=text):
        plimsoll.inference(model, graph[0])


def test_norms_of_the_whole_graph_are_refused_however_the_weights_are(graph):
    for seed in range(20):
        torch.manual_seed(seed)
        refuse(nn.GraphSAGE(WIDTH, 16, 2, out_channels=4, norm='layer_norm'), graph, 'norms.0, LayerNorm')
    norms = nn.GraphNorm(8), nn.PairNorm(), nn.InstanceNorm(8), nn.MeanSubtractionNorm(), nn.GraphSizeNorm(), nn.BatchNorm(8, track_running_stats=False)
    for norm in norms:
        refuse(nn.GraphSAGE(WIDTH, 8, 2, norm=norm), graph, 'norms.0')
        refuse([nn.Sequential('x, edge_index', [(nn.SAGEConv(WIDTH, 8), 'x, edge_index -> x'), norm])], graph, 'statistics')
    refuse(nn.GIN(WIDTH, 8, 2, act=torch.nn.Softmax(dim=0)), graph, 'act')
    for seed in range(20):  # the second line by itself: it does not know this norm
        torch.manual_seed(seed)
        conv = nn.SAGEConv(WIDTH, 16)
        refuse([lambda x, edge_index, conv=conv: torch.nn.functional.layer_norm(conv(x, edge_index), x.shape[:1] + (16,)).relu()], graph, 'layer 0')


class Residual(BasicGNN):
    supports_edge_weight = supports_edge_attr = False

    def init_conv(self, in_channels, out_channels, **_):
        return nn.GCNConv(in_channels, out_channels)

    def forward(self, x, edge_index, edge_weight=None):
        for conv in self.convs:
            x = x + self.dropout(conv(x, edge_index, edge_weight).relu())
        return x


def test_a_forward_of_its_own_is_refused_and_stated_layers_compute_it(graph):
    model = Residual(WIDTH, WIDTH, 2, dropout=0.5)
    refuse(model, graph, 'Residual .*forward .*lambda')
    first, second = model.convs
    check(model, graph, [lambda x, edge_index: x + first(x, edge_index).relu(), lambda x, edge_index: x + second(x, edge_index=edge_index).relu()])
    assert model.training is False and first.normalize is True

    class OnlyConvs(nn.GraphSAGE):
        def init_conv(self, in_channels, out_channels, **_):
            return nn.FeaStConv(in_channels, out_channels, add_self_loops=False)  # fails on a graph without edges

    check(OnlyConvs(WIDTH, 8, 2, jk='cat'), graph)


def test_a_call_of_its_own_is_refused(graph):
    class Doubling(nn.GraphSAGE):
        def __call__(self, *args):
            return 2 * super().__call__(*args)

    refuse(Doubling(WIDTH, 8, 2), graph, '__call__')


def hooked(register):
    model = nn.GraphSAGE(WIDTH, 8, 2)
    return model, register(model)


@pytest.mark.parametrize('register', [
    lambda model: model.register_forward_hook(lambda module, args, out: 2 * out),
    lambda model: model.register_forward_pre_hook(lambda module, args: (args[0] + 1, *args[1:])),
    lambda model: model.convs[1].register_forward_hook(lambda module, args, out: out - out.mean(0)),
    lambda model: model.convs[1].lin_l.register_forward_hook(lambda module, args, out: 2 * out),
    lambda model: model.convs[0].register_propagate_forward_hook(lambda module, args, out: 2 * out),
    lambda model: model.convs[0].register_message_forward_hook(lambda module, args, out: 2 * out),
    lambda model: torch.nn.modules.module.register_module_forward_hook(lambda module, args, out: out + 1 if module is model else None),
    lambda model: torch.nn.utils.parametrizations.weight_norm(model.convs[0].lin_l),
])
def test_hooks_are_refused(graph, register):
    model, handle = hooked(register)
    try:
        refuse(model, graph, 'hooks|not known')
    finally:
        getattr(handle, 'remove', lambda: None)()


def test_hooks_of_stated_layers_run(graph):
    model, _ = hooked(lambda model: model.convs[0].register_forward_hook(lambda module, args, out: 2 * out))
    torch.nn.utils.parametrizations.weight_norm(model.convs[1].lin_l)
    check(model, graph, [lambda x, edge_index: model.convs[0](x, edge_index).relu(), model.convs[1]])


class Doubled(nn.SAGEConv):
    def message(self, x_j):
        return 2 * x_j


def test_replaced_code_is_refused(graph, monkeypatch):
    def changed(change):
        model = nn.GraphSAGE(WIDTH, 8, 2)
        change(model, model.convs[1])
        return model

    def patch(module, name):
        before = getattr(module, name)
        setattr(module, name, lambda *args, **named: 2 * before(*args, **named))

    refuse(changed(lambda model, conv: patch(model, 'forward')), graph, 'forward')
    refuse(changed(lambda model, conv: patch(conv, 'forward')), graph, 'convs.1, SAGEConv, .*forward')
    refuse(changed(lambda model, conv: patch(conv, 'message')), graph, 'convs.1, SAGEConv, .*message')
    refuse(changed(lambda model, conv: model.convs.__setitem__(0, Doubled(WIDTH, 8))), graph, 'convs.0, Doubled')
    refuse(changed(lambda model, conv: model.convs.append(nn.SAGEConv(8, 8))), graph, '3 convolutions')
    refuse(nn.GraphSAGE(WIDTH, 8, 2, act=lambda x: x - x.mean(0)), graph, 'its act')
    refuse(changed(lambda model, conv: model.convs.__setitem__(0, nn.GINConv(lambda x: x - x.mean(0)))), graph, 'convs.0, GINConv, .*nn')
    check(changed(lambda model, conv: setattr(model, 'dropout', torch.nn.Tanh())), graph)
    monkeypatch.setattr(nn.SAGEConv, 'forward', lambda conv, x, edge_index: x - x.mean(0))
    refuse(nn.GraphSAGE(WIDTH, 8, 2), graph, 'convs.0, SAGEConv, .*forward')


def test_convolutions_that_chunks_would_change(graph):
    for conv in nn.SGConv(WIDTH, 8), nn.TAGConv(WIDTH, 8), nn.ChebConv(WIDTH, 8, K=2), nn.EGConv(WIDTH, 8), nn.LGConv(), nn.GatedGraphConv(8, 2), \
            nn.SAGEConv(WIDTH, 8, aggr='lstm'), nn.SAGEConv(WIDTH, 8, aggr='median'), nn.SAGEConv(WIDTH, 8, flow='target_to_source'), \
            nn.GATConv(WIDTH, 8, edge_dim=2), nn.GENConv(WIDTH, 8, edge_dim=2), nn.SAGEConv(-1, 8):
        refuse([conv], graph, 'cannot be computed')
    refuse([nn.DirGNNConv(nn.GCNConv(WIDTH, 8))], graph, 'edge_index')
    refuse([nn.DirGNNConv(nn.SAGEConv(WIDTH, 8))], graph, 'layer 0')
    gcn = nn.GCNConv(WIDTH, 8)
    refuse([lambda x, edge_index: gcn(x, edge_index, edge_weight=torch.ones(edge_index.shape[1]))], graph, 'edge_index')
    refuse([lambda x, edge_index: gcn(x, edge_index[:, ::2])], graph, 'edge_index')
    refuse([lambda x, edge_index: torch.zeros(300, 4)], graph, 'one row for each')
    assert gcn.normalize and 'layerwise' not in nn.GCNConv.forward.__module__


def test_a_cached_graph_is_refused_and_can_be_dropped(graph):
    ds, x, _ = graph
    model = nn.GCN(WIDTH, 8, 2, cached=True)
    model(x, torch.randint(0, 300, (2, 99)))  # another graph, whose weights the model would go on to use
    refuse(model, graph, '_cached_edge_index')
    for conv in model.convs:
        conv._cached_edge_index = None
    check(model, graph)


def test_wrapped_models_are_named(graph):
    with pytest.raises(TypeError, match='give model.module'):
        plimsoll.inference(torch.optim.swa_utils.AveragedModel(nn.GraphSAGE(WIDTH, 8, 2)), graph[0])


def test_models_in_functions_are_left_as_they_were(graph):
    """They compute in eval mode, and neither their statistics nor their modes change."""
    ds, x, edge_index = graph
    conv, norm = nn.GCNConv(WIDTH, 8), torch.nn.BatchNorm1d(8)
    norm.running_mean.normal_()
    before = norm.running_mean.clone()
    found = plimsoll.inference([lambda x, edge_index: torch.nn.Dropout(0.3)(norm(conv(x, edge_index)))], ds)
    assert norm.training and conv.training and torch.equal(norm.running_mean, before)
    with torch.no_grad():
        torch.testing.assert_close(found, norm.eval()(conv(x, edge_index)), rtol=1e-5, atol=1e-5)


def test_other_threads_keep_their_degrees_and_modes(graph):
    """A GCN that trains on another graph meanwhile, and a second inference."""
    ds, x, edge_index = graph
    model = nn.GCN(WIDTH, 8, 2)
    other = nn.GCN(WIDTH, 8, 2, norm='batch_norm')
    with torch.no_grad():
        expected, modes, started = model.eval()(x, edge_index), set(), threading.Event()

    def beside():
        while not started.is_set():
            other(x, edge_index)
            modes.add(other.norms[0].training)

    found = []
    threads = [threading.Thread(target=beside), *(threading.Thread(target=lambda: found.append(plimsoll.inference(model, ds))) for _ in range(2))]
    for thread in threads:
        thread.start()
    for thread in threads[1:]:
        thread.join()
    started.set()
    threads[0].join()
    assert modes == {True}
    for one in found:
        torch.testing.assert_close(one, expected, rtol=1e-5, atol=1e-5)


def run(script, *words):
    head = '''
        import os, sys, torch, plimsoll
        from plimsoll import layerwise
        layerwise._CHUNK_BYTES = 1 << 14
        calls = []
        def layer(x, edge_index):
            calls.append(len(x))
            if len(calls) == 20:
                happen()
            return x
    '''
    text = textwrap.dedent(head) + textwrap.dedent(script)
    return subprocess.run([sys.executable, '-c', text, *map(str, words)], capture_output=True, text=True, timeout=600)


def test_a_kill_leaves_no_files(graph, tmp_path):
    (tmp_path / 'out').mkdir()
    (tmp_path / 'scratch').mkdir()
    (tmp_path / 'out' / 'rows.npy').write_bytes(b'of before')
    done = run('''
        def happen():
            os.kill(os.getpid(), 9)
        plimsoll.inference([lambda x, edge_index: 2 * x, layer], plimsoll.open(sys.argv[1]), out=sys.argv[2], scratch=sys.argv[3])
    ''', graph[0].path, tmp_path / 'out' / 'rows.npy', tmp_path / 'scratch')
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert os.listdir(tmp_path / 'out') == ['rows.npy'] and (tmp_path / 'out' / 'rows.npy').read_bytes() == b'of before'
    assert os.listdir(tmp_path / 'scratch') == []


def test_a_file_that_becomes_shorter_is_an_error(graph, tmp_path):
    """It was the end of the process."""
    wide = Data(x=graph[1].repeat(1, 200), edge_index=graph[2], y=torch.zeros(300, dtype=torch.long))
    paths = [plimsoll.from_pyg(wide, tmp_path / name, quiet=True).path for name in ('features', 'indices', 'indptr')]
    done = run('''
        for path in sys.argv[1:]:
            name = os.path.basename(path)
            def happen():
                os.truncate(f'{path}/{name}.npy', 4096)
            calls.clear()
            try:
                plimsoll.inference([layer, layer], plimsoll.open(path))
            except plimsoll.DataError as error:
                assert f'{name}.npy has 4096 bytes' in str(error), error
                print(name)
    ''', *paths)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ['features', 'indices', 'indptr']


def test_the_result_replaces_a_file_at_its_end(graph, tmp_path, monkeypatch):
    out = tmp_path / 'rows.npy'
    out.write_bytes(b'of before')
    (tmp_path / f'.rows.npy.partial-{os.getpid()}').write_bytes(b'of a process with the same number that was killed')
    conv = nn.SAGEConv(WIDTH, 3)
    expected = plimsoll.inference([conv], graph[0])
    for unnamed in True, False:
        if not unnamed:  # a file system without unnamed files, and a link in the way
            victim = tmp_path.parent / 'victim'
            victim.write_bytes(b'of somebody else')
            (tmp_path / f'.rows.npy.partial-{os.getpid()}').symlink_to(victim)
            monkeypatch.setattr(os, 'O_TMPFILE', os.O_DIRECTORY | os.O_WRONLY)
        found = plimsoll.inference([conv], graph[0], out=out)
        assert torch.equal(found, expected) and np.array_equal(np.load(out), expected.numpy()) and os.listdir(tmp_path) == ['rows.npy']
        assert out.stat().st_mode & 0o777 == 0o666 & ~umask()
    assert victim.read_bytes() == b'of somebody else'
    for wrong in tmp_path, tmp_path / 'missing' / 'rows.npy':
        with pytest.raises(plimsoll.UsageError, match='out='):
            plimsoll.inference([conv], graph[0], out=wrong, scratch=tmp_path)
    assert os.listdir(tmp_path) == ['rows.npy']


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_entries_of_four_bytes_have_no_sign(tmp_path):
    """As indices.npy has them from 2^31 nodes on."""
    nodes = np.array([0, 2**31 - 1, 2**31, 2**32 - 2], np.uint32)
    (tmp_path / 'indices.npy').write_bytes(bytes(DATA_OFFSET) + nodes.tobytes())
    dataset = types.SimpleNamespace(path=str(tmp_path), files=lambda: [('indices.npy', '<u4', (4,), 0)])
    assert Stored.of(dataset, 'indices').read(1, 4).long().tolist() == [2**31 - 1, 2**31, 2**32 - 2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(mapped._TYPES, '<u4', None)
        with pytest.raises(plimsoll.UnsupportedError, match='torch 2.3'):
            Stored.of(dataset, 'indices')


@pytest.mark.parametrize('staged, near', [(1 << 20, 1 << 14), (1 << 12, 64), (1, 0)])
@pytest.mark.parametrize('large', [True, False])
def test_rows_that_are_read(tmp_path, monkeypatch, staged, near, large):
    values = torch.arange(15000, dtype=torch.float32).view(5000, 3)
    values.numpy().tofile(tmp_path / 'rows')
    monkeypatch.setattr(mapped, '_STAGED_BYTES', staged)
    monkeypatch.setattr(mapped, '_NEAR_BYTES', near)
    file = Stored(tmp_path / 'rows', torch.float32, (5000, 3), large=large)
    assert torch.equal(file.read(7, 9), values[7:9]) and file.read(5, 5).shape == (0, 3)
    for others in torch.randperm(5000)[:700].sort().values, torch.tensor([0, 1, 2, 4999]), torch.tensor([], dtype=torch.int64):
        assert torch.equal(file.joined(100, 2100, others), torch.cat([values[100:2100], values[others]]))
    for others in [-1, 5], [3, 5000]:
        with pytest.raises(plimsoll.DataError):
            file.joined(0, 1, torch.tensor(others))
    os.truncate(tmp_path / 'rows', 30000)
    with pytest.raises(plimsoll.DataError, match='30000'):
        file.joined(0, 5000, torch.tensor([], dtype=torch.int64))
    with pytest.raises(plimsoll.DataError, match='30000'):
        Stored(tmp_path / 'rows', torch.float32, (5000, 3))


def test_a_layer_that_takes_more_than_its_width_stays_under_the_line(tmp_path):
    """Messages of many heads are wider than the rows: chunks become as small as the first ones have shown."""
    words = ['--nodes', '20000', '--edges', '300000', '--features', '64', '--classes', '4', '--seed', '1']
    subprocess.run([PLIMSOLL, 'generate', 'free', tmp_path / 'graph', '--quiet', *words], check=True, timeout=1500)
    script = '''
        import sys, torch, plimsoll
        from plimsoll import _core
        torch.set_num_threads(1)
        def heads(x, edge_index):
            messages = x.repeat(1, 16)[edge_index[0]].view(-1, 16, 64)
            return torch.zeros_like(x).index_add(0, edge_index[1], (2 * messages).mean(1))
        line = _core.sample()['rss_bytes'] + (300 << 20)
        plimsoll.inference([heads], plimsoll.open(sys.argv[1]), memory=line)
        print((_core.sample()['rss_peak_bytes'] - line) >> 20)
    '''
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(script), tmp_path / 'graph'], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 0, 'MiB over the line'


class Process:
    """Stands for _core and its peak: what the process holds, and the most that it held since the last take()."""

    def __init__(self):
        self.held = self.most = 100 << 20

    def hold(self, count):
        self.held += count
        self.most = max(self.most, self.held)

    def take(self):
        most, self.most = self.most, self.held
        return most, 0.0, 0.0

    def sample(self):
        return {'anonymous_bytes': self.held, 'rss_bytes': self.held}

    def trim(self):
        pass

    def peak(self):
        return self

    size_text = staticmethod(str)


def ranges(monkeypatch, degrees, item_bytes, take):
    """The chunks' items, and what an item is found to take, where a chunk takes take(items) bytes and frees all of them."""
    process = Process()
    monkeypatch.setattr(layerwise, '_core', process)
    monkeypatch.setattr(layerwise, '_CHUNK_BYTES', 512 << 20)
    graph = object.__new__(layerwise._Graph)
    graph.num_nodes, graph.memory = len(degrees), layerwise._Memory(process.held + (4 << 30))
    begin = np.concatenate([[0], np.cumsum(degrees)])
    monkeypatch.setattr(graph, '_begin', lambda node: int(begin[node]))
    costs = layerwise._Pass(graph.memory, item_bytes, layerwise._FIRST_PART)
    found = []
    for first, stop in graph._ranges(costs):
        items = stop - first + int(begin[stop] - begin[first])
        process.hold(take(items))
        process.hold(-take(items))
        found.append((items, costs.item_bytes))
    return found, costs


def test_chunks_that_a_hub_cuts_short_are_not_measured(monkeypatch):
    """The few nodes between two hubs were charged with all that the process took meanwhile: the next hub was then refused."""
    item_bytes = layerwise._edge_bytes(16)
    hub = (512 << 20) * 12 // 10 // item_bytes
    degrees = [10] * 20 + [hub] + [10] * 3 + [hub] + [10] * 20
    found, costs = ranges(monkeypatch, degrees, item_bytes, lambda items: (50 << 20) + items * item_bytes // 2)
    assert [items for items, _ in found if items > hub] == [hub + 1] * 2 and len(found) == 5
    assert costs.item_bytes == item_bytes


def test_chunks_become_as_small_as_the_first_show(monkeypatch):
    found, costs = ranges(monkeypatch, [9] * 500000, 400, lambda items: items * 1200)
    assert 800 < found[1][1] <= found[-1][1] == costs.item_bytes <= 1200
    assert all(items * 1200 <= 560 << 20 for items, _ in found)
    assert found[0][0] <= (32 << 20) // 400 and found[3][0] * 1200 > 400 << 20
    with pytest.raises(plimsoll.MemoryLineError, match='5000000 in-edges'):
        ranges(monkeypatch, [9] * 500000 + [5000000], 400, lambda items: items * 1200)


@pytest.mark.parametrize('kind', [nn.GCNConv, nn.SAGEConv])
def test_a_chunk_is_gone_before_it_is_measured(graph, monkeypatch, kind):
    alive, measured, edges, measure = [], [], layerwise._Graph._edges, layerwise._Pass.measure

    def watched(*args):
        found = edges(*args)
        alive.extend(map(weakref.ref, found))
        return found

    def layer(x, edge_index):
        out = conv(x, edge_index)
        if len(x) > 9:  # no probe
            alive.extend(map(weakref.ref, (x, edge_index, out)))
        return out

    def checked(self, items):
        assert not [one().shape for one in alive if one() is not None]
        measured.append(items)
        measure(self, items)

    conv = kind(WIDTH, 3)
    monkeypatch.setattr(layerwise._Graph, '_edges', watched)
    monkeypatch.setattr(layerwise._Pass, 'measure', checked)
    plimsoll.inference([layer], graph[0])
    assert len(measured) > 1 and len(alive) >= 5


def test_two_hubs_near_each_other(tmp_path, monkeypatch):
    """Each is larger than a chunk, which a few nodes between them are far from."""
    degree = 400_000
    monkeypatch.setattr(layerwise, '_CHUNK_BYTES', 140 << 20)
    source = torch.arange(2 * degree) % 1000
    target = torch.arange(2 * degree) // degree * 4 + 500
    extra = torch.tensor([[1, 2, 3], [501, 502, 503]])
    x = torch.randint(0, 2, (1000, 16)).float()  # whose sums are exact in any order
    data = Data(x=x, edge_index=torch.cat([torch.stack([source, target]), extra], 1), y=torch.zeros(1000, dtype=torch.long))
    ds = plimsoll.from_pyg(data, tmp_path / 'graph', quiet=True)
    conv = nn.SimpleConv(aggr='mean')
    line = plimsoll._core.sample()['rss_bytes'] + (600 << 20)
    found = plimsoll.inference([conv], ds, memory=line)
    torch.testing.assert_close(found, conv(x, data.edge_index))


def test_random_models(tmp_path):
    """Some of those that tools/prove python inference draws: each equals its own code on the whole graph, or is refused."""
    words = [sys.executable, '-W', 'ignore', SOURCE / 'bench' / 'python_models.py', tmp_path, '30']
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    tried = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one for one in tried if one['outcome'] == 'wrong' or one['plain'] and one['outcome'] != 'equal'] == []
    assert all(one['unchanged'] for one in tried) and sum(one['outcome'] == 'refused' for one in tried) >= 10
