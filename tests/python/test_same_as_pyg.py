# labels: together
"""Every attribute of a batch beside that of PyTorch Geometric's own loader: same values, dtype and shape, or absent, or refused by name.

PyG's NodeLoader makes its batches from the same data with a sampler in plain Python that draws all neighbours.
"""
import itertools

import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

from torch_geometric.data import Batch, Data  # noqa: E402
from torch_geometric.loader import DataLoader, NodeLoader  # noqa: E402
from torch_geometric.sampler import BaseSampler, SamplerOutput  # noqa: E402

NODES, EDGES = 60, 300
# What docs/from-pyg.md and `from_pyg` name: theirs that ours do not have, and ours that theirs do not have.
ABSENT, ADDED = {'e_id', 'train_mask', 'val_mask', 'test_mask'}, {'edge_position'}


class WholeNeighbourhoods(BaseSampler):
    """All in-neighbours of each node at each hop, in the order of the data."""

    def __init__(self, data, hops):
        self.hops, self.edges = hops, {}
        for number, (source, target) in enumerate(data.edge_index.t().tolist()):
            self.edges.setdefault(target, []).append((source, number))

    def sample_from_nodes(self, index, **kwargs):
        nodes, places = index.node.tolist(), {}
        for node in nodes:
            places.setdefault(node, len(places))
        rows, columns, edges, frontier = [], [], [], nodes
        sampled_nodes, sampled_edges = [len(nodes)], []
        for _ in range(self.hops):
            found, before = [], len(rows)
            for target in frontier:
                for source, number in self.edges.get(target, []):
                    if source not in places:
                        places[source] = len(places)
                        found.append(source)
                    rows.append(places[source])
                    columns.append(places[target])
                    edges.append(number)
            nodes, frontier = nodes + found, found
            sampled_nodes.append(len(found))
            sampled_edges.append(len(rows) - before)
        return SamplerOutput(
            node=torch.tensor(nodes),
            row=torch.tensor(rows, dtype=torch.int64),
            col=torch.tensor(columns, dtype=torch.int64),
            edge=torch.tensor(edges, dtype=torch.int64),
            num_sampled_nodes=sampled_nodes,
            num_sampled_edges=sampled_edges,
            metadata=(index.input_id, index.time),
        )

    def sample_from_edges(self, index, neg_sampling=None):
        raise NotImplementedError


def make_data(x, y, masks):
    """Edges sorted by target, then source, as a dataset keeps them; loops and duplicates among them."""
    draw = torch.Generator().manual_seed(0)
    edge_index = torch.randint(NODES, (2, EDGES), generator=draw)
    edge_index[:, :5] = torch.tensor([[3, 3, 7, 8, 8], [3, 3, 7, 9, 9]])
    data = Data(edge_index=edge_index[:, (edge_index[1] * NODES + edge_index[0]).argsort()])
    if x is None:
        data.num_nodes = NODES
    else:
        data.x = torch.rand(NODES, 5, generator=draw).to(x)
    if y == 'classes':
        data.y = torch.randint(4, (NODES,), generator=draw)
    elif y is not None:
        data.y = torch.rand(*y, generator=draw)
    if masks:
        part = torch.arange(NODES) % 3
        data.train_mask, data.val_mask, data.test_mask = part == 0, part == 1, part == 2
    return data


def same(ours, theirs, name):
    if isinstance(theirs, torch.Tensor):
        return ours.dtype == theirs.dtype and ours.shape == theirs.shape and torch.equal(ours, theirs)
    return type(ours) is type(theirs) and ours == theirs


def compare(ours, theirs, seeds_only=()):
    """All that one has, or differs by what is documented."""
    left, right = ours.to_dict(), theirs.to_dict()
    assert right.keys() - left.keys() <= ABSENT and left.keys() - right.keys() <= ADDED
    for name in left.keys() & right.keys():
        expected = right[name]
        if name in seeds_only:  # y of the seeds alone, unless y='all'
            expected = expected[: theirs.batch_size]
        assert same(left[name], expected, name), name
    assert ours.num_nodes == theirs.num_nodes and ours.num_edges == theirs.num_edges and ours.validate()


LABELS = [None, 'classes', (NODES,), (NODES, 1), (NODES, 3)]


@pytest.mark.parametrize('y', LABELS, ids=str)
@pytest.mark.parametrize('x', [None, torch.float32], ids=str)
def test_nodes(tmp_path, x, y):
    data = make_data(x, y, masks=y is not None)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data')
    sampler = WholeNeighbourhoods(data, 2)
    wanted = [torch.tensor([5, 2, 50, 3, 3 + 6, 8]), torch.arange(NODES) % 4 == 1, None]
    for nodes, size, all_labels in itertools.product(wanted, (1, 4, 100), (False, True)):
        theirs = NodeLoader(data, sampler, input_nodes=nodes, batch_size=size)
        ours = plimsoll.NeighborLoader(dataset, [-1, -1], nodes, batch_size=size, y='all' if all_labels else 'seeds', copy=True)
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            compare(one, other, () if all_labels else ('y',))


@pytest.mark.parametrize('y', LABELS[1:], ids=str)
def test_splits_by_name_are_masks(tmp_path, y):
    data = make_data(torch.float32, y, masks=True)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data')
    for name, mask in ('train', data.train_mask), ('valid', data.val_mask), ('test', data.test_mask):
        theirs = NodeLoader(data, WholeNeighbourhoods(data, 1), input_nodes=mask.nonzero().view(-1), batch_size=7)
        ours = plimsoll.NeighborLoader(dataset, [-1], name, batch_size=7, copy=True)
        for one, other in zip(ours, theirs, strict=True):
            compare(one, other, ('y',))


@pytest.mark.parametrize('kind', ['classes', 'one value', 'values'])
def test_many_graphs(tmp_path, kind):
    draw = torch.Generator().manual_seed(1)
    graphs = []
    for number in range(12):
        nodes = 2 + number % 5
        edge_index = torch.randint(nodes, (2, 3 * nodes), generator=draw)
        edge_index = edge_index[:, (edge_index[1] * nodes + edge_index[0]).argsort()]
        y = {'classes': torch.tensor([number % 3]), 'one value': torch.rand(1, generator=draw), 'values': torch.rand(1, 4, generator=draw)}[kind]
        graphs.append(Data(x=torch.rand(nodes, 3, generator=draw), edge_index=edge_index, y=y))
    dataset = plimsoll.from_pyg(graphs, tmp_path / 'graphs')
    ours = plimsoll.GraphLoader(dataset, batch_size=5)
    for one, other in zip(ours, DataLoader(graphs, batch_size=5), strict=True):
        assert isinstance(one, Batch)
        compare(one, other)
        assert one.num_graphs == other.num_graphs


@pytest.mark.parametrize('name, values, shape', [
    ('x', torch.rand(NODES), 1), ('x', torch.arange(NODES), 1), ('edge_weight', torch.rand(EDGES, 1), 0), ('edge_type', torch.ones(EDGES, 1).long(), 0)])
def test_another_shape_is_said(tmp_path, caplog, name, values, shape):
    """batch.x of embeddings has a column that PyG's has not, and weights have none."""
    data = make_data(torch.float32, None, masks=False)
    data[name] = values
    batch = next(iter(plimsoll.NeighborLoader(plimsoll.from_pyg(data, tmp_path / 'data'), [2], batch_size=8)))
    assert batch[name].shape[1:] == (1,) * shape
    assert [f'batch.{name} has the shape' in line for line in caplog.messages] == [True]


@pytest.mark.parametrize('x', [torch.int64, torch.uint8], ids=str)
def test_integer_features_stay(tmp_path, x):
    data = make_data(x, 'classes', masks=True)
    batch = next(iter(plimsoll.NeighborLoader(plimsoll.from_pyg(data, tmp_path / 'data'), [2], batch_size=8, input_nodes='train')))
    assert batch.x.dtype == torch.int64 and torch.equal(batch.x, data.x[batch.n_id].long())
    assert plimsoll.from_pyg(data, tmp_path / 'floats', features='f32').feature_type == 'float32'
