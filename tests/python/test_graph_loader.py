# labels: together
"""plimsoll.GraphLoader: batches of whole graphs, against the dataset's own arrays."""
import os
import subprocess
import sys

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from importing import real_data  # noqa: E402

from plimsoll import GraphLoader  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'MUTAG'
    subprocess.run([PLIMSOLL, 'import', str(real_data() / 'graphs' / 'MUTAG'), str(path), '--quiet'], check=True, timeout=1500)
    return str(path)


@pytest.fixture
def ds(path):
    return plimsoll.open(path)


def edges_of(ds, graph):
    """The edges of one graph, by its nodes' places in it."""
    first, last = ds.array('graph_indptr')[graph : graph + 2]
    indptr = ds.array('indptr')[first : last + 1]
    source = ds.array('indices')[indptr[0] : indptr[-1]] - first
    return np.stack([source, np.repeat(np.arange(last - first), np.diff(indptr))])


def test_batches(ds):
    loader = GraphLoader(ds, 'train', batch_size=16, shuffle=True)
    train, pointers = ds.array('train'), ds.array('graph_indptr')
    features = ds.array('features') if ds.num_features else None
    seen = 0
    sizes = {}
    for graph in train:
        sizes.setdefault((pointers[graph + 1] - pointers[graph], edges_of(ds, graph).tobytes()), []).append(graph)
    for batch in loader:
        assert batch.num_graphs == batch.ptr.numel() - 1 <= 16 and batch.num_nodes == batch.ptr[-1]
        assert torch.equal(batch.batch, torch.repeat_interleave(torch.arange(batch.num_graphs), batch.ptr.diff()))
        source, target = batch.edge_index
        assert torch.equal(batch.batch[source], batch.batch[target])
        for place in range(batch.num_graphs):
            first, last = batch.ptr[place : place + 2].tolist()
            inside = (target >= first) & (target < last)
            edges = (batch.edge_index[:, inside] - first).numpy()
            graphs = sizes[(last - first, edges.astype(edges_of(ds, 0).dtype).tobytes())]
            rows = [graph for graph in graphs if features is None
                    or np.array_equal(features[pointers[graph] : pointers[graph + 1]].astype(np.float32), batch.x[first:last].numpy())]
            assert rows and int(batch.y[place]) in {int(ds.array('labels')[graph]) for graph in rows}
        seen += batch.num_graphs
    assert seen == ds.num_train and len(loader) == -(-ds.num_train // 16)


def test_order_and_state(ds):
    loader = GraphLoader(ds, torch.tensor([5, 1, 3]), batch_size=2)
    labels = torch.cat([batch.y.clone() for batch in loader])
    assert labels.tolist() == [int(ds.array('labels')[graph]) for graph in (5, 1, 3)]
    assert len(GraphLoader(ds, batch_size=10)) == -(-ds.num_graphs // 10)
    shuffled = GraphLoader(ds, 'train', batch_size=8, shuffle=True, copy=True)
    batches = iter(shuffled)
    next(batches)
    other = GraphLoader(ds, 'train', batch_size=8, shuffle=True, copy=True)
    other.load_state_dict(shuffled.state_dict())
    for here, there in zip(batches, other, strict=True):
        assert torch.equal(here.edge_index, there.edge_index) and torch.equal(here.y, there.y)


def test_parts_of_a_batch_are_joined(ds):
    loader = GraphLoader(ds, torch.arange(6), batch_size=6)
    whole = next(iter(loader))
    parts = []
    for first, last in (0, 2), (2, 3), (3, 6):
        part = GraphLoader(ds, torch.arange(first, last), batch_size=6)
        iter(part)
        parts.append(part._tools.arrays(part._stream.next(), True))
    joined = loader._make(loader._join(parts))
    assert set(joined.keys()) == set(whole.keys())
    for name in whole.keys():
        assert torch.equal(joined[name], whole[name]), name


def test_a_part_may_have_graphs_without_nodes(tmp_path):
    none, path = torch.empty(2, 0), torch.tensor([[0], [1]])
    with plimsoll.Builder(tmp_path / 'ds', quiet=True) as builder:
        for nodes, edges in (0, none), (2, path), (1, none):
            builder.add_graph(edges, torch.rand(nodes, 2), torch.tensor([0]))
        builder.split(train=torch.arange(3))
        ds = builder.finish()
    loader = GraphLoader(ds, batch_size=3)
    parts = [next(iter(GraphLoader(ds, torch.tensor([graph]), batch_size=3, copy=True))) for graph in range(3)]
    arrays = [{'graph_indptr': part.ptr, 'edge_index': part.edge_index, 'nodes': torch.zeros(part.num_nodes)} for part in parts]
    joined = loader._join(arrays)
    assert joined['graph_indptr'].tolist() == next(iter(loader)).ptr.tolist() == [0, 0, 2, 3]
    assert joined['edge_index'].tolist() == [[0], [1]]


def test_a_batch_in_parts_is_joined_where_it_fits(tmp_path):
    """It came together in memory that nobody had planned."""
    with plimsoll.Builder(tmp_path / 'ds', quiet=True) as builder:
        for _ in range(120):
            builder.add_graph(torch.arange(2000).view(2, 1000), torch.rand(2000, 128), torch.tensor([0]))
        ds = builder.finish()
    for size, fits in (120, False), (8, True):
        line = plimsoll._core.sample()['rss_bytes'] + (150 << 20)
        loader = GraphLoader(plimsoll.open(ds.path), batch_size=size, memory=line)
        if fits:
            assert sum(batch.num_graphs for batch in loader) == 120
            continue
        with pytest.raises(plimsoll.MemoryLineError, match='batch_size') as refused:
            next(iter(loader))
        assert refused.value.needed_bytes > refused.value.available_bytes and refused.value._shortage is None


def test_refusals(ds):
    with pytest.raises(plimsoll.UsageError, match='GraphLoader'):
        plimsoll.NeighborLoader(ds, [2])
    with pytest.raises(plimsoll.UsageError):
        GraphLoader(ds, follow_batch=['x'])


def test_a_gin_learns(ds):
    from torch_geometric.nn import GIN, global_add_pool

    torch.manual_seed(0)
    train = GraphLoader(ds, 'train', batch_size=32, shuffle=True)
    model = GIN(max(ds.num_features, 1), 16, num_layers=3)
    head = torch.nn.Linear(16, ds.num_classes)
    optimiser = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.01)
    losses = []
    for _ in range(10):
        total = 0.0
        for batch in train:
            optimiser.zero_grad()
            x = batch.x if ds.num_features else torch.ones(batch.num_nodes, 1)
            out = head(global_add_pool(model(x, batch.edge_index), batch.batch))
            loss = torch.nn.functional.cross_entropy(out, batch.y)
            loss.backward()
            optimiser.step()
            total += float(loss.detach()) * batch.num_graphs
        losses.append(total / ds.num_train)
    assert losses[-1] < 0.85 * losses[0]
