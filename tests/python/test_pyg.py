# labels: together
"""plimsoll.pyg and plimsoll.inference: PyTorch Geometric's own loaders over a dataset on disk, and its models on all nodes."""
import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import warnings

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

from torch_geometric import nn  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import LinkNeighborLoader, NodeLoader  # noqa: E402
from torch_geometric.loader import NeighborLoader as PygLoader  # noqa: E402
from torch_geometric.sampler import NodeSamplerInput  # noqa: E402

from plimsoll import layerwise  # noqa: E402
from plimsoll import mapped as mapped_module  # noqa: E402
from plimsoll.mapped import Mapped  # noqa: E402
from plimsoll.pyg import NeighborSampler, stores  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
SAME = 'n_id', 'edge_index', 'x', 'input_id'


def generate(path, *options):
    subprocess.run([PLIMSOLL, 'generate', 'free', str(path), '--quiet', *map(str, options)], check=True, timeout=1500)
    return str(path)


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    return generate(tmp_path_factory.mktemp('data') / 'small', '--nodes', 3000, '--edges', 30000, '--features', 20, '--classes', 5, '--seed', 3)


@pytest.fixture
def ds(path):
    return plimsoll.open(path)


@pytest.fixture(scope='module')
def whole(path):
    """The dataset as one Data, edges in the order of the CSC, and self-loops among them."""
    arrays = {name: torch.from_numpy(np.load(f'{path}/{name}.npy')) for name in ('indptr', 'indices', 'features', 'labels', 'train')}
    target = torch.repeat_interleave(torch.arange(len(arrays['indptr']) - 1), arrays['indptr'].diff())
    edge_index = torch.stack([arrays['indices'].long(), target])
    return Data(x=arrays['features'].float(), edge_index=edge_index, y=arrays['labels'].long(), train=arrays['train'])


def pairs(ds, seeds, epochs=1, fanout=(4, 3), **options):
    """Batches of PyG's NodeLoader and NeighborLoader over our stores, and our loader's, epoch by epoch."""
    ours = plimsoll.NeighborLoader(ds, fanout, input_nodes=seeds, seed=7, copy=True, **options)
    theirs = [
        NodeLoader(stores(ds), node_sampler=NeighborSampler(ds, fanout, seed=7), input_nodes=seeds, **options),
        PygLoader(stores(ds), fanout, neighbor_sampler=NeighborSampler(ds, fanout, seed=7), input_nodes=seeds, **options),
    ]
    for _ in range(epochs):
        yield from zip(ours, *theirs, strict=True)


def test_pygs_loaders_yield_the_same_batches(ds, whole):
    steps, seen = 0, []
    for own, *others in pairs(ds, whole.train, epochs=2, batch_size=100):
        for batch in others:
            assert isinstance(batch, Data) and batch.validate()
            for name in SAME:
                assert torch.equal(own[name], batch[name]) and own[name].dtype == batch[name].dtype, name
            assert batch.batch_size == own.batch_size and batch.num_nodes == own.num_nodes
            assert batch.num_sampled_nodes == own.num_sampled_nodes and batch.num_sampled_edges == own.num_sampled_edges
            assert torch.equal(batch.y, whole.y[batch.n_id]), 'labels of all nodes, as of any node attribute in PyG'
        seen.append(own.edge_position)
        steps += 1
    assert steps == 2 * -(-len(whole.train) // 100)
    assert not torch.equal(seen[0], seen[steps // 2]), 'another epoch has other neighbours'


def test_masks(ds):
    mask = torch.zeros(ds.num_nodes, dtype=torch.bool)
    mask[[5, 7, 2000]] = True
    own, other, _ = next(pairs(ds, mask, batch_size=3))
    assert torch.equal(other.input_id, torch.tensor([5, 7, 2000])) and all(torch.equal(own[name], other[name]) for name in SAME)


def test_shuffled_seeds_draw_what_our_loader_draws_for_them(ds, whole):
    loader = NodeLoader(
        stores(ds), node_sampler=NeighborSampler(ds, [4, 3], seed=7), input_nodes=whole.train, batch_size=64, shuffle=True, drop_last=True
    )
    order = []
    for batch in loader:
        seeds = batch.n_id[: batch.batch_size]
        own = next(iter(plimsoll.NeighborLoader(ds, [4, 3], input_nodes=seeds, batch_size=64, seed=7, copy=True)))
        assert all(torch.equal(own[name], batch[name]) for name in ('n_id', 'edge_index', 'x'))
        assert torch.equal(whole.train[batch.input_id], seeds)
        order.append(seeds)
    assert len(torch.cat(order).unique()) == len(order) * 64


def test_a_batch_has_the_seeds_asked_for_whatever_other_threads_do(ds):
    """inference, and other loaders when memory is short, have the library's loader made again at any time."""
    sampler, ending = NeighborSampler(ds, [3], seed=1), threading.Event()

    def give_back():
        while not ending.wait(0.001):
            shared = ds._shared() if ds._shared is not None else None
            if shared is not None:
                shared.let_go()

    thread = threading.Thread(target=give_back)
    thread.start()
    try:
        for number in range(20):
            seeds = torch.arange(10 * number, 10 * number + 8)
            drawn = sampler.sample_from_nodes(NodeSamplerInput(input_id=None, node=seeds))
            assert torch.equal(drawn.node[:8], seeds)
    finally:
        ending.set()
        thread.join()


def test_a_model_trains_with_pygs_loader_and_all_slots_stay_free(ds, whole):
    torch.manual_seed(0)
    model = nn.GraphSAGE(ds.num_features, 16, num_layers=2, out_channels=ds.num_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    sampler = NeighborSampler(ds, [4, 3])
    kept = []
    for size in 64, 256:  # a later loader with larger batches, while all earlier ones are kept
        for batch in NodeLoader(stores(ds), node_sampler=sampler, input_nodes=whole.train, batch_size=size, shuffle=True):
            out = model(batch.x, batch.edge_index, num_sampled_nodes_per_hop=batch.num_sampled_nodes,
                        num_sampled_edges_per_hop=batch.num_sampled_edges)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            kept.append(batch)
    assert all(torch.equal(batch.x, whole.x[batch.n_id]) for batch in kept)
    assert sampler.epoch == 1


def test_what_the_stores_hold(ds, whole):
    features, graph = stores(ds)
    rows = torch.tensor([2999, 0, 17, 17])
    assert torch.equal(features.get_tensor(None, 'x', rows), whole.x[rows])
    assert torch.equal(features.get_tensor(None, 'y', rows), whole.y[rows])
    assert torch.equal(features.get_tensor(None, 'y', None), whole.y)
    assert torch.equal(features.get_tensor(None, 'x', slice(5, 9)), whole.x[5:9])
    mask = torch.zeros(3000, dtype=torch.bool)
    mask[rows] = True
    assert torch.equal(features.get_tensor(None, 'x', mask), whole.x[mask]), 'as in PyG'
    for index in mask[:5], torch.tensor([1.5]), [0.5, 2.0], torch.tensor([1j]):
        with pytest.raises(plimsoll.UsageError):
            features.get_tensor(None, 'y', index)
    half = stores(ds, 'float16')[0]
    assert torch.equal(half.get_tensor(None, 'x', rows), whole.x[rows].half())
    assert features.get_tensor_size(None, 'x') == (3000, 20) and features.get_tensor_size(None, 'x', rows) == (4, 20)
    assert features.get_tensor(None, 'z', None) is None
    assert graph.get_all_edge_attrs()[0].size == (3000, 3000)
    with pytest.raises(plimsoll.UsageError, match='float32'):
        half.get_tensor(None, 'x', None)
    with pytest.raises(plimsoll.UsageError, match='Builder'):
        features.put_tensor(rows, None, 'x', None)
    again = pickle.loads(pickle.dumps((features, graph, NeighborSampler(ds, [2], seed=5))))
    assert torch.equal(again[0].get_tensor(None, 'y', rows), whole.y[rows]) and again[2].seed == 5


@pytest.mark.parametrize('mode', [None, 'binary', 'triplet'])
def test_links(ds, whole, mode):
    """PyG's loader of links has the batches of ours; with negatives, those of the nodes that PyG drew."""
    pairs = whole.edge_index[:, 5:600:3]
    sampler = NeighborSampler(ds, [4, 3], seed=7)
    theirs = LinkNeighborLoader(
        stores(ds), [4, 3], edge_label_index=(None, pairs), neg_sampling=mode, batch_size=32, neighbor_sampler=sampler
    )
    ours = plimsoll.LinkNeighborLoader(plimsoll.open(ds.path), [4, 3], pairs, batch_size=32, seed=7)
    for one, other in zip(theirs, ours, strict=True):
        assert torch.equal(one.input_id, other.input_id) and torch.equal(one.x, whole.x[one.n_id])
        if mode is None:
            assert torch.equal(one.n_id, other.n_id) and torch.equal(one.edge_index, other.edge_index)
            assert torch.equal(one.edge_label_index, other.edge_label_index)
        elif mode == 'binary':
            assert torch.equal(one.n_id[one.edge_label_index[:, : len(one.input_id)]], pairs[:, one.input_id])
            assert one.edge_label.sum() == len(one.input_id) and len(one.edge_label) == 2 * len(one.input_id)
        else:
            assert torch.equal(one.n_id[torch.stack([one.src_index, one.dst_pos_index])], pairs[:, one.input_id])
            assert one.dst_neg_index.shape == one.src_index.shape


def test_what_stores_and_sampler_refuse(ds, whole):
    with pytest.raises(plimsoll.UsageError, match='num_workers'):
        next(iter(NodeLoader(stores(ds), node_sampler=NeighborSampler(ds, [2]), input_nodes=whole.train, num_workers=1)))
    with pytest.raises(plimsoll.UsageError, match='times'):
        NodeLoader(stores(ds), node_sampler=NeighborSampler(ds, [2]), input_nodes=whole.train, input_time=whole.train)([0])
    with pytest.raises(plimsoll.UsageError, match='sampler'), warnings.catch_warnings():
        warnings.simplefilter('ignore')  # pyg-lib is missing
        PygLoader(stores(ds), [2], input_nodes=whole.train)
    with pytest.raises(TypeError, match='plimsoll.open'):
        stores(whole)


# Small chunks, so that there are many.
@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(layerwise, '_CHUNK_BYTES', 1 << 20)


def models(width, classes):
    torch.manual_seed(1)
    yield 'sage', nn.GraphSAGE(width, 16, num_layers=3, out_channels=classes, dropout=0.5)
    yield 'max', nn.GraphSAGE(width, 16, num_layers=2, out_channels=classes, aggr='max', norm='batch_norm', act='elu', act_first=True)
    yield 'gat', nn.GAT(width, 16, num_layers=2, out_channels=classes, heads=4, v2=True)
    yield 'gin', nn.GIN(width, 16, num_layers=2, out_channels=classes, norm='layer_norm', norm_kwargs={'mode': 'node'})
    yield 'jk last', nn.GraphSAGE(width, 16, num_layers=2, out_channels=classes, jk='last')
    degrees = torch.tensor([1, 5, 9, 3])
    pna = {'aggregators': ['mean', 'max'], 'scalers': ['identity', 'amplification'], 'deg': degrees}
    yield 'pna', nn.PNA(width, 16, num_layers=2, out_channels=classes, **pna)


# What PyG's own inference cannot do, or does only nearly: the whole graph is the judge.
def more_models(width, classes):
    torch.manual_seed(2)
    yield 'gcn', nn.GCN(width, 16, num_layers=3, out_channels=classes)
    yield 'gcn without self-loops', nn.GCN(width, 16, num_layers=2, out_channels=classes, add_self_loops=False, improved=True)
    for jk in 'cat', 'max', 'lstm':
        yield f'jk {jk}', nn.GraphSAGE(width, 16, num_layers=3, out_channels=classes, jk=jk)
    yield 'no classes', nn.GraphSAGE(width, 16, num_layers=1)


@pytest.mark.parametrize('name, model', list(models(20, 5)))
def test_inference_is_pygs(ds, whole, name, model, small_chunks):
    model.train()
    found = plimsoll.inference(model, ds)
    assert model.training and all(module.training for module in model.modules()), 'the mode is restored'
    assert found.dtype == torch.float32 and not found.requires_grad
    model.eval()
    data = Data(x=whole.x, edge_index=whole.edge_index)
    theirs = model.inference(PygLoader(data, [-1], neighbor_sampler=NeighborSampler(ds, [-1]), batch_size=500))
    torch.testing.assert_close(found, theirs, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        torch.testing.assert_close(found, model(whole.x, whole.edge_index), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('name, model', list(more_models(20, 5)))
def test_inference_is_the_whole_graphs(ds, whole, name, model, small_chunks):
    found = plimsoll.inference(model, ds)
    model.eval()
    with torch.no_grad():
        torch.testing.assert_close(found, model(whole.x, whole.edge_index), rtol=1e-4, atol=1e-5)


def test_self_loops_of_the_graph_count_once_in_gcn(tmp_path, small_chunks):
    edges = torch.tensor([[0, 1, 1, 1, 2, 3, 3, 4, 5], [1, 1, 1, 2, 3, 3, 0, 5, 4]])
    data = Data(x=torch.rand(7, 3), edge_index=edges, y=torch.zeros(7, dtype=torch.long))
    ds = plimsoll.from_pyg(data, tmp_path / 'loops')
    for loops in True, False:
        model = nn.GCN(3, 4, num_layers=2, out_channels=2, add_self_loops=loops, cached=True).eval()
        found = plimsoll.inference(model, ds)
        assert all(conv._cached_edge_index is None for conv in model.convs)
        with torch.no_grad():
            torch.testing.assert_close(found, model(data.x, edges), rtol=1e-4, atol=1e-5)


def test_layers_as_callables(ds, whole, small_chunks):
    torch.manual_seed(3)
    first, second, third = nn.SAGEConv(20, 16), nn.GCNConv(16, 16), nn.GATConv(16, 5)
    layers = [lambda x, edge_index: first(x, edge_index).relu(), second, third]
    found = plimsoll.inference(layers, ds)
    with torch.no_grad():
        expected = third(second(first(whole.x, whole.edge_index).relu(), whole.edge_index), whole.edge_index)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert second.training
    assert torch.equal(plimsoll.inference(torch.nn.ModuleList([copy.deepcopy(first)]), ds), plimsoll.inference([first], ds))


def test_what_chunks_would_change_is_refused(ds, path):
    class TwoHops(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.SAGEConv(20, 20)

        def forward(self, x, edge_index):
            return self.conv(self.conv(x, edge_index), edge_index)

    sage = nn.SAGEConv(20, 5)
    wrong = [
        [TwoHops()],
        [lambda x, edge_index: torch.nn.functional.dropout(sage(x, edge_index), 0.5)],
        [lambda x, edge_index: sage(x, edge_index).softmax(0)],
        nn.GraphSAGE(20, 16, num_layers=2, out_channels=5, norm='graph_norm'),
        nn.GraphSAGE(20, 16, num_layers=2, out_channels=5, norm='layer_norm'),
        nn.GraphSAGE(20, 16, num_layers=2, out_channels=5, flow='target_to_source'),
        nn.GraphSAGE(20, 16, num_layers=2, out_channels=5).double(),
        nn.GAT(20, 16, num_layers=2, out_channels=5, edge_dim=3),
        [lambda x, edge_index: None],
        [lambda x, edge_index: x.sum(0)],
    ]
    before = os.listdir(os.path.dirname(path))
    for model in wrong:
        with pytest.raises(plimsoll.UsageError):
            plimsoll.inference(model, ds)
    for model in nn.GraphSAGE(20, 16, num_layers=2).forward, [], 'sage', torch.nn.Linear(20, 5):
        with pytest.raises(TypeError, match='list of its layers'):
            plimsoll.inference(model, ds)
    with pytest.raises(TypeError, match='plimsoll.open'):
        plimsoll.inference([sage], path)
    assert os.listdir(os.path.dirname(path)) == before and sage.training


def test_where_the_result_goes(ds, tmp_path):
    model = nn.GraphSAGE(20, 16, num_layers=2, out_channels=5)
    (tmp_path / 'scratch').mkdir()
    result = plimsoll.inference(model, ds, out=tmp_path / 'out.npy', scratch=tmp_path / 'scratch')
    saved = np.load(tmp_path / 'out.npy')
    assert saved.shape == (3000, 5) and saved.dtype == np.float32 and np.array_equal(saved, result.numpy())
    result.zero_()  # a user's tensor can be written to; the file is not changed
    assert np.array_equal(saved, np.load(tmp_path / 'out.npy'))
    assert sorted(os.listdir(tmp_path)) == ['out.npy', 'scratch'] and os.listdir(tmp_path / 'scratch') == []
    with pytest.raises(plimsoll.UsageError, match='scratch='):
        plimsoll.inference(model, ds, scratch=tmp_path / 'nowhere')

    def fails(x, edge_index):
        if len(x) > 9:
            raise RuntimeError('a layer of the user')
        return x

    with pytest.raises(RuntimeError, match='of the user'):
        plimsoll.inference([fails], ds, out=tmp_path / 'other.npy')
    assert sorted(os.listdir(tmp_path)) == ['out.npy', 'scratch']


def test_too_little_memory_or_disk_is_said_before_the_first_pass(ds, tmp_path, monkeypatch):
    model = nn.GraphSAGE(20, 16, num_layers=2, out_channels=5)
    with pytest.raises(plimsoll.MemoryLineError, match='memory='):
        plimsoll.inference(model, ds, memory='64M', scratch=tmp_path)
    usage = os.statvfs(tmp_path).f_frsize
    monkeypatch.setattr(layerwise.shutil, 'disk_usage', lambda where: type('usage', (), {'free': usage}))
    with pytest.raises(plimsoll.DiskSpaceError, match='scratch='):
        plimsoll.inference(model, ds, scratch=tmp_path)
    assert os.listdir(tmp_path) == []


def test_loaders_give_their_memory_back_and_continue(ds, path):
    def batches(other):
        return plimsoll.NeighborLoader(other, [4, 3], batch_size=100, input_nodes='train', shuffle=True, seed=1, memory='1G', copy=True)

    expected = [batch.n_id for batch in batches(plimsoll.open(path))]
    loader, found = batches(ds), []
    valid = plimsoll.NeighborLoader(ds, [4, 3], batch_size=100, input_nodes='valid', copy=True)
    for step, batch in enumerate(loader):
        found.append(batch.n_id)
        if step % 5 == 2:
            next(iter(valid))
            plimsoll.inference([nn.SAGEConv(20, 4)], ds)
            assert loader._shared.core is None
    assert len(found) == len(expected) and all(map(torch.equal, found, expected))


def test_memory_stays_within_the_line(tmp_path):
    """The features are 24 MiB, and the rows between the layers 98 MiB."""
    path = generate(tmp_path / 'large', '--nodes', 100000, '--edges', 200000, '--features', 64, '--classes', 5)
    script = '''
        import resource, sys, torch, plimsoll
        from torch_geometric.nn import SAGEConv

        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10

        layers = [SAGEConv(64, 256), SAGEConv(256, 4)]
        plimsoll.inference(layers, plimsoll.open(sys.argv[1]))
        line = peak() + (128 << 20)
        ds = plimsoll.open(sys.argv[2])
        found = plimsoll.inference(layers, ds, memory=line)
        assert found.shape == (100000, 4)
        print(line - peak())
    '''
    small = generate(tmp_path / 'small', '--nodes', 100, '--edges', 400, '--features', 64, '--classes', 5)
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(script), small, path], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.nightly
def test_many_rows_of_a_large_file(tmp_path, monkeypatch):
    """In any order, some of them twice, by blocks of the file."""
    values = torch.randn(5000, 3)
    values.numpy().tofile(tmp_path / 'rows')
    monkeypatch.setattr(mapped_module, '_HELD_BYTES', 8192)
    monkeypatch.setattr(mapped_module, '_HELD_ROWS', 4)
    for shape in (5000, 3), (15000,):
        file = Mapped(tmp_path / 'rows', torch.float32, shape)
        rows = torch.randint(0, shape[0], (700,))
        rows[:2] = torch.tensor([shape[0] - 1, 0])
        assert torch.equal(file.gather(rows), values.view(shape)[rows])
        assert torch.equal(file.gather(rows[:10]), values.view(shape)[rows[:10]])
        for count in 10, 700:
            with pytest.raises(IndexError):
                file.gather(rows[:count] - 1)
