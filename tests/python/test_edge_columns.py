# labels: together
"""What edges carry, in batches: PyG's names, dtypes, shapes and values, of every loader, against a look-up in the source's own arrays."""
import pathlib
import sys

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
data_module = pytest.importorskip('torch_geometric.data')

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

NAMES = {'edge_attr': 'features', 'edge_weight': 'weight', 'edge_type': 'type', 'edge_time': 'time'}


def data_of(g):
    columns = {name: torch.tensor(values) for name, values in g.arrays().items()}
    return data_module.Data(x=torch.tensor(g.features), y=torch.tensor(g.labels), edge_index=torch.tensor(g.edges),
                            time=torch.tensor(g.node_time), **columns)


def made(path, g, **options):
    split = {name: ids for name, ids in g.split.items()}
    return plimsoll.from_pyg(data_of(g), path, quiet=True, edge_ids=True, **split, **options)


def check(batch, data, dtypes=None):
    """Each edge is the source's edge of its number, with what that one carries."""
    e_id, n_id = batch.e_id, batch.n_id
    assert torch.equal(data.edge_index[:, e_id], n_id[batch.edge_index])
    for name in NAMES:
        if name not in data:
            assert name not in batch
            continue
        expected = data[name][e_id]
        dtype = (dtypes or {}).get(name, expected.dtype)
        assert batch[name].dtype == dtype and batch[name].shape == expected.shape, name
        assert torch.equal(batch[name], expected.to(dtype)), name
    assert torch.equal(batch.time, data.time[n_id]) and batch.time.dtype == torch.long
    assert torch.equal(batch.x, data.x[n_id])


@pytest.mark.parametrize('threads', [1, 8])
@pytest.mark.parametrize('width', [0, 1, 4])
@pytest.mark.parametrize('fanout', [[3], [4, 2], [-1, -1], [5, 5, 5]], ids=str)
def test_batches_carry_columns(tmp_path, threads, width, fanout):
    g = im.Columns(1, nodes=300, edges=3000, width=width, hub=True)
    data = data_of(g)
    loader = plimsoll.NeighborLoader(made(tmp_path / 'made', g), fanout, batch_size=16, input_nodes='train', shuffle=True, threads=threads)
    for _ in range(2):
        count = 0
        for batch in loader:
            check(batch, data)
            count += batch.batch_size
        assert count == len(g.split['train'])


@pytest.mark.parametrize('dtype, stored', [(np.float64, torch.float32), (np.float16, torch.float32), (np.int64, torch.long),
                                           (np.int32, torch.long), (np.uint8, torch.long)])
def test_features_of_every_type(tmp_path, dtype, stored):
    g = im.Columns(2, dtype=dtype)
    ds = made(tmp_path / 'made', g)
    for batch in plimsoll.NeighborLoader(ds, [3, 3], batch_size=8, input_nodes='train'):
        check(batch, data_of(g), {'edge_attr': stored})
    assert ds.num_edge_features == 3 and ds.num_edge_types == 5


TYPES = ['cites', 'is written by', 'Größe, in "metres"', '5', 'x' * 255]


@pytest.mark.parametrize('many', [False, True])
def test_names_of_types(tmp_path, many):
    g = im.Columns(2)
    given = [data_of(g)] * 3 if many else data_of(g)
    if many:
        for graph in given:
            graph.y, graph.time = torch.tensor([1]), None
    ds = plimsoll.from_pyg(given, tmp_path / 'made', quiet=True, edge_type_names=[*TYPES, 'not used'])
    assert ds.edge_type_names == [*TYPES, 'not used'] and ds.num_edge_types == 6
    for where, names in ('few', TYPES[:4]), ('long', [*TYPES[:4], 'x' * 256]):
        with pytest.raises(plimsoll.DataError, match='edge_type_names'):
            plimsoll.from_pyg(given, tmp_path / where, quiet=True, edge_type_names=names)
    for names in ['a\nb'], [' '], [3]:
        with pytest.raises(plimsoll.UsageError, match='edge_type_names'):
            plimsoll.Builder(tmp_path / 'other', edge_type_names=names)
    assert plimsoll.from_pyg(given, tmp_path / 'none', quiet=True).edge_type_names == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ['made', 'none']


def test_half_precision(tmp_path):
    g = im.Columns(3)
    ds = made(tmp_path / 'made', g)
    for batch in plimsoll.NeighborLoader(ds, [3, 3], batch_size=8, input_nodes='train', x_dtype='float16'):
        expected = torch.tensor(g.columns['features'])[batch.e_id]
        assert batch.edge_attr.dtype == torch.float16 and torch.equal(batch.edge_attr, expected.half())
        assert batch.edge_weight.dtype == torch.float32


def test_one_column_alone(tmp_path):
    g = im.Columns(4)
    data = data_of(g)
    for name in NAMES:
        part = data_module.Data(x=data.x, edge_index=data.edge_index, **{name: data[name]})
        ds = plimsoll.from_pyg(part, tmp_path / name, quiet=True, train=np.arange(30))
        batch = next(iter(plimsoll.NeighborLoader(ds, [3], batch_size=8, input_nodes='train')))
        assert [key for key in batch.keys() if key in NAMES] == [name] and 'e_id' not in batch and 'time' not in batch
        order = torch.from_numpy(np.lexsort((np.arange(400), g.edges[0], g.edges[1])))
        assert torch.equal(batch[name], data[name][order][batch.edge_position])


def test_from_disk_under_the_least_line(tmp_path):
    """The columns are larger than what the line leaves."""
    draw = np.random.default_rng(0)
    g = im.Columns(5, nodes=20_000, edges=400_000, width=40)
    g.features = draw.standard_normal((20_000, 2)).astype(np.float32)
    ds, data = made(tmp_path / 'made', g), data_of(g)
    with pytest.raises(plimsoll.MemoryLineError) as refused:
        plimsoll.NeighborLoader(ds, [5, 5], batch_size=32, input_nodes='train', memory='20M')
    line = refused.value.needed_bytes + (30 << 20)
    loader = plimsoll.NeighborLoader(plimsoll.open(ds.path), [5, 5], batch_size=32, input_nodes='train', memory=line, threads=2)
    accounts = {account['name']: account['bytes'] for account in loader.memory_plan['accounts']}
    assert accounts.get('edge columns', 0) < 400_000 * 160, accounts
    for number, batch in enumerate(loader):
        check(batch, data)
        if number == 20:
            break


@pytest.mark.parametrize('line', [None, 'least'])
@pytest.mark.parametrize('threads', [1, 8])
def test_integers_of_nodes(tmp_path, line, threads):
    """From memory, and from disk by windows and caches."""
    draw = np.random.default_rng(0)
    g = im.Columns(8, nodes=20_000, edges=60_000, dtype=np.int64, hub=True)
    g.features = draw.integers(-2**62, 2**62, (20_000, 200 if line else 3))
    ds, data = made(tmp_path / 'made', g), data_of(g)
    if line:
        with pytest.raises(plimsoll.MemoryLineError) as refused:
            plimsoll.NeighborLoader(ds, [5, 5], batch_size=32, input_nodes='train', memory='20M')
        line = refused.value.needed_bytes + (8 << 20)
    assert ds.feature_type == 'int64' and ds.num_features == g.features.shape[1]
    loader = plimsoll.NeighborLoader(plimsoll.open(ds.path), [5, 5], batch_size=32, input_nodes='train', memory=line, threads=threads)
    if line:
        accounts = {account['name']: account['bytes'] for account in loader.memory_plan['accounts']}
        assert accounts.get('row cache', 0) < g.features.nbytes
    for number, batch in enumerate(loader):
        check(batch, data)
        assert batch.x.dtype == torch.long
        if number == 20:
            break


def test_integers_of_nodes_in_stores_and_graphs(tmp_path):
    from plimsoll.pyg import stores

    g = im.Columns(9)
    g.features = np.random.default_rng(1).integers(0, 119, (len(g.features), 9)).astype(np.int32)
    store = stores(made(tmp_path / 'one', g))[0]
    some = torch.tensor([5, 39, 0, 5])
    for index, expected in (some, g.features[some]), (None, g.features):
        rows = store.get_tensor(group_name=None, attr_name='x', index=index)
        assert rows.dtype == torch.long and np.array_equal(rows, expected)
    graphs = graphs_of(30)
    for number, graph in enumerate(graphs):
        graph.x = torch.arange(4 * graph.num_nodes).view(-1, 4) * (number + 1)
    ds = plimsoll.from_pyg(graphs, tmp_path / 'many', quiet=True, train=np.arange(30))
    count = 0
    for batch in plimsoll.GraphLoader(ds, batch_size=7):
        for graph in batch.to_data_list():
            assert graph.x.dtype == torch.long and torch.equal(graph.x, graphs[count].x)
            assert torch.equal(graph.edge_attr, graphs[count].edge_attr)
            count += 1
    assert count == 30


def test_stores_hand_out_columns(tmp_path):
    from plimsoll.pyg import NeighborSampler, stores
    from torch_geometric.loader import NodeLoader

    g = im.Columns(6, nodes=200, edges=2000)
    ds, data = made(tmp_path / 'made', g), data_of(g)
    sampler = NeighborSampler(ds, [4, 3], seed=7)
    loader = NodeLoader(stores(ds), node_sampler=sampler, input_nodes=torch.tensor(g.split['train']), batch_size=16)
    for batch in loader:
        check(batch, data)
    store = stores(ds)[0]
    order = np.lexsort((np.arange(2000), g.edges[0], g.edges[1]))
    some = torch.tensor([5, 1999, 0, 5])
    for name, part in NAMES.items():
        expected = torch.tensor(g.columns[part][order])[some]
        assert torch.equal(store.get_tensor(group_name=None, attr_name=name, index=some), expected)


def graphs_of(count, bonds=True, x=True):
    draw = np.random.default_rng(1)
    graphs = []
    for number in range(count):
        nodes = int(draw.integers(1, 12))
        edges = 0 if number % 9 == 2 else int(draw.integers(1, 40))
        edge_index = torch.tensor(draw.integers(0, nodes, (2, edges)))
        order = np.lexsort((edge_index[0], edge_index[1]))  # as a dataset has them
        data = data_module.Data(edge_index=edge_index[:, order], y=torch.tensor([number % 3]))
        if x:
            data.x = torch.tensor(draw.standard_normal((nodes, 3)).astype(np.float32))
        else:
            data.num_nodes = nodes
        if bonds:
            data.edge_attr = torch.tensor(draw.integers(0, 5, (edges, 2)))
            data.edge_weight = torch.tensor(draw.random(edges).astype(np.float32))
        graphs.append(data)
    return graphs


@pytest.mark.parametrize('bonds', [True, False])
@pytest.mark.parametrize('x', [True, False])
def test_graphs_are_pygs_batches_and_come_apart(tmp_path, bonds, x):
    graphs = graphs_of(50, bonds, x)
    ds = plimsoll.from_pyg(graphs, tmp_path / 'made', quiet=True)
    first = 0
    for batch in plimsoll.GraphLoader(ds, batch_size=8):
        part = graphs[first:first + 8]
        expected = data_module.Batch.from_data_list(part)
        assert sorted(batch.keys()) == sorted(expected.keys())
        for name in expected.keys():
            same = torch.equal(batch[name], expected[name]) if torch.is_tensor(expected[name]) else batch[name] == expected[name]
            assert same, name
            assert not torch.is_tensor(expected[name]) or batch[name].dtype == expected[name].dtype, name
        apart = batch.to_data_list()
        assert len(apart) == len(part) == batch.num_graphs
        for got, want in zip(apart, part, strict=True):
            assert sorted(got.keys()) == sorted(want.keys()) and got.num_nodes == want.num_nodes
            for name in want.keys():
                assert torch.equal(torch.as_tensor(got[name]), torch.as_tensor(want[name])), name
        assert torch.equal(batch[0].edge_index, part[0].edge_index)
        first += 8
    assert first >= 50


def test_shuffled_graphs_carry_their_bonds(tmp_path):
    graphs = graphs_of(60)
    ds = plimsoll.from_pyg(graphs, tmp_path / 'made', quiet=True, train=np.arange(60))
    seen = []
    for batch in plimsoll.GraphLoader(ds, 'train', batch_size=7, shuffle=True, seed=3):
        for data in batch.to_data_list():
            match = [i for i, graph in enumerate(graphs) if graph.x.shape == data.x.shape and torch.equal(graph.x, data.x)]
            assert len(match) == 1
            assert torch.equal(graphs[match[0]].edge_attr, data.edge_attr) and torch.equal(graphs[match[0]].edge_weight, data.edge_weight)
            seen += match
    assert sorted(seen) == list(range(60))


def test_inference_says_that_weights_are_not_used(tmp_path):
    from torch_geometric.nn.models import GCN

    g = im.Columns(8)
    ds = made(tmp_path / 'made', g)
    with pytest.warns(UserWarning, match='without edge_weight'):
        plimsoll.inference(GCN(5, 8, 1, 4), ds)
