# labels: together
"""Datasets from arrays in Python: those of importing their files, for any chunks, in flat memory; nothing is left after an error."""
import gc
import os
import pathlib
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402


def imported(source, target, **options):
    return plimsoll.import_(source, target, quiet=True, **options)


def real_cora():
    raw = np.load(im.real_data() / 'cora' / 'raw' / 'data.npz')
    labels = np.load(im.real_data() / 'cora' / 'raw' / 'node-label.npz')['node_label']
    split = {part: np.loadtxt(im.real_data() / 'cora' / 'split' / 'planetoid' / f'{part}.csv.gz', dtype=np.int64)
             for part in ('train', 'valid', 'test')}
    return raw['edge_index'], raw['node_feat'], labels, split


def mask(ids, count):
    chosen = np.zeros(count, bool)
    chosen[ids] = True
    return chosen


def build(path, g, sizes, kind=np.asarray, **options):
    """One graph in chunks of these sizes, over and over; edges, rows and labels take turns."""
    with plimsoll.Builder(path, quiet=True, **options) as builder:
        at = {'edges': 0, 'rows': 0, 'labels': 0}
        while at['edges'] < g.edges.shape[1] or at['rows'] < g.num_nodes:
            for size in sizes:
                if at['edges'] < g.edges.shape[1]:
                    builder.add_edges(kind(g.edges[:, at['edges']:at['edges'] + size]))
                if at['rows'] < g.num_nodes:
                    builder.add_rows(kind(g.features[at['rows']:at['rows'] + size]))
                if at['labels'] < g.num_nodes:
                    builder.add_labels(kind(g.labels[at['labels']:at['labels'] + 2 * size]))
                at['edges'] += size
                at['rows'] += size
                at['labels'] += 2 * size
        builder.split(**{name: kind(ids) for name, ids in g.split.items()})
    return plimsoll.open(path)


def test_chunks_do_not_change_the_result(tmp_path):
    g = im.Graph(nodes=500, edges=5000)
    source = im.write_npy(tmp_path / 'source', edge_index=g.edges, x=g.features, y=g.labels,
                          **{f'{name}_idx': ids for name, ids in g.split.items()})
    expected = imported(source, tmp_path / 'expected', symmetrise=True)
    first = None
    for number, sizes in enumerate(([100000], [1], [7, 100], [64])):
        made = build(tmp_path / f'made{number}', g, sizes, symmetrise=True)
        assert made.fingerprint == expected.fingerprint
        first = first or im.digests(made.path)
        assert im.digests(made.path) == first
    g.check(im.arrays(made.path), {'symmetrise': True})
    assert {path.name for path in tmp_path.iterdir()} == {'source', 'expected', 'made0', 'made1', 'made2', 'made3'}


def test_any_kind_of_array(tmp_path):
    g = im.Graph()
    expected = build(tmp_path / 'expected', g, [50]).fingerprint
    kinds = (np.asfortranarray, lambda a: np.ascontiguousarray(a).data, lambda a: a.astype(a.dtype.newbyteorder('>')),
             lambda a: a.tolist() if a.dtype.kind == 'i' else a)
    for number, kind in enumerate(kinds):
        assert build(tmp_path / f'made{number}', g, [13], kind).fingerprint == expected
    torch = pytest.importorskip('torch')
    assert build(tmp_path / 'torch', g, [13], torch.tensor).fingerprint == expected


@pytest.mark.parametrize('sizes', [[100000], [1], [7, 100]], ids=str)
@pytest.mark.parametrize('options', [{}, {'symmetrise': True, 'duplicates': 'sum'}, {'duplicates': 'largest'}], ids=str)
def test_columns_of_edges_in_chunks(tmp_path, sizes, options):
    g = im.Columns(3, hub=True, dtype=np.int64 if options else np.float32)
    with plimsoll.Builder(tmp_path / 'made', quiet=True, edge_ids=True, nodes=g.num_nodes, **options) as builder:
        at = 0
        while at < g.edges.shape[1]:
            for size in sizes:
                piece = slice(at, at + size)
                builder.add_edges(g.edges[:, piece], **{name: values[piece] for name, values in g.columns.items()})
                at += size
        for time in np.array_split(g.node_time, 3):
            builder.add_times(time)
    got = im.arrays(tmp_path / 'made')
    g.check_columns(got, options, without=())
    assert np.array_equal(got['node_time'], g.node_time)


def test_columns_from_pyg(tmp_path):
    torch = pytest.importorskip('torch')
    data_module = pytest.importorskip('torch_geometric.data')
    for number, width in enumerate((0, 1, 3)):
        g = im.Columns(4, width=width)
        columns = {name: torch.tensor(values) for name, values in g.arrays().items()}
        data = data_module.Data(x=torch.tensor(g.features), edge_index=torch.tensor(g.edges), **columns)
        plimsoll.from_pyg(data, tmp_path / f'made{number}', quiet=True, edge_ids=True)
        g.check_columns(im.arrays(tmp_path / f'made{number}'), without=())
    del data.edge_time
    data.time = torch.tensor(g.columns['time'])
    made = plimsoll.from_pyg(data, tmp_path / 'edges', quiet=True)
    assert np.array_equal(np.sort(made.array('edge_time')), np.sort(g.columns['time']))
    data.time = torch.tensor(g.node_time)
    assert np.array_equal(plimsoll.from_pyg(data, tmp_path / 'nodes', quiet=True).array('node_time'), g.node_time)
    data.time = torch.arange(3)
    refused_early(tmp_path, lambda path: plimsoll.from_pyg(data, path, quiet=True), 'time has 3 entries')


def test_columns_of_many_graphs(tmp_path):
    """From PyG's Data and from files; some graphs have no edges, whose columns torch makes of any dtype."""
    torch = pytest.importorskip('torch')
    data_module = pytest.importorskip('torch_geometric.data')
    draw = np.random.default_rng(0)
    graphs, edges, first = [], [], 0
    for number in range(20):
        nodes, count = int(draw.integers(1, 9)), 0 if number in (0, 7) else int(draw.integers(1, 30))
        local = draw.integers(0, nodes, (2, count))
        bonds = draw.integers(0, 4, (count, 3)) if count else np.zeros(0, np.float32)
        graphs.append(data_module.Data(x=torch.rand(nodes, 2), edge_index=torch.tensor(local), edge_attr=torch.tensor(bonds),
                                       edge_weight=torch.rand(count), y=torch.tensor([number % 2])))
        edges.append(local + first)
        first += nodes
    g = im.Columns(0, nodes=first, edges=sum(part.shape[1] for part in edges))
    g.edges = np.concatenate(edges, axis=1)
    g.columns = {'features': np.concatenate([data.edge_attr.numpy() for data in graphs if data.num_edges]),
                 'weight': np.concatenate([data.edge_weight.numpy() for data in graphs])}
    plimsoll.from_pyg(graphs, tmp_path / 'made', quiet=True)
    g.check_columns(im.arrays(tmp_path / 'made'))
    (tmp_path / 'files').mkdir()
    for number, data in enumerate(graphs):
        torch.save({**data.to_dict(), 'edge_attr': None, 'bond': data.edge_attr}, tmp_path / 'files' / f'{number}.pt')
    plimsoll.from_pt_files(tmp_path / 'files', tmp_path / 'pt', edge_attr='bond', quiet=True)
    g.check_columns(im.arrays(tmp_path / 'pt'))
    graphs[3].edge_weight = None
    refused_early(tmp_path, lambda path: plimsoll.from_pyg(graphs, path, quiet=True), 'graph 3: edge_weight: some')


def test_columns_from_parquet(tmp_path):
    pyarrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')
    g = im.Columns(5, edges=40_000, nodes=900, dtype=np.int64, width=2)
    columns = {'source': g.edges[0], 'target': g.edges[1], 'kind': g.columns['type'], 'year': g.columns['time'], 'w': g.columns['weight'],
               'a': g.columns['features'][:, 0], 'b': g.columns['features'][:, 1]}
    parquet.write_table(pyarrow.table(columns), tmp_path / 'edges.parquet', row_group_size=3000)
    plimsoll.from_parquet(tmp_path / 'edges.parquet', tmp_path / 'made', num_nodes=g.num_nodes, edge_features=['a', 'b'], edge_weight='w',
                          edge_type='kind', edge_time='year', quiet=True)
    g.check_columns(im.arrays(tmp_path / 'made'))


@pytest.mark.parametrize('count', [0, 1, 2, 3])
@pytest.mark.parametrize('dtype', [np.int32, np.int64, np.uint64, np.uint8])
def test_few_edges_keep_their_direction(tmp_path, count, dtype):
    """Two edges make a square array, which must not be read turned round."""
    src, dst = np.array([0, 1, 2], dtype)[:count], np.array([3, 3, 0], dtype)[:count]
    with plimsoll.Builder(tmp_path / 'made', quiet=True, nodes=4) as builder:
        builder.add_edges(src, dst)
    g = im.arrays(tmp_path / 'made')
    indptr, indices = im.csc(np.stack([src, dst]).astype(np.int64), 4)
    assert np.array_equal(g['indptr'], indptr) and np.array_equal(g['indices'], indices)


def test_another_directory_for_the_chunks(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkdir('scratch')
    with plimsoll.Builder('made', tmp='scratch', quiet=True, nodes=4) as builder:
        builder.add_edges([[0], [1]])
        assert os.listdir('scratch') and os.listdir('.') == ['scratch']
    assert os.listdir('scratch') == [] and plimsoll.open('made').num_nodes == 4


def test_int64_after_int32(tmp_path):
    with plimsoll.Builder(tmp_path / 'made', quiet=True, nodes=10) as builder:
        builder.add_edges(np.array([0], np.int32), np.array([1], np.int32))
        builder.add_edges(np.array([2]), np.array([3]))
        for wrong in (1 << 32, -(1 << 32)):
            with pytest.raises(plimsoll.UsageError, match=str(wrong)):
                builder.add_edges(np.array([wrong]), np.array([3]))
    assert plimsoll.open(tmp_path / 'made').num_edges == 2


def test_messages_name_arguments(tmp_path):
    """And not the files of chunks, in errors as in warnings."""
    def build(path, labels):
        with plimsoll.Builder(path, quiet=True) as builder:
            builder.add_edges([[0], [1]])
            builder.add_labels(labels)

    with pytest.warns(UserWarning, match='^y: labels are read as'):
        build(tmp_path / 'made', np.array([1990, 2020]))
    with pytest.raises(plimsoll.DataError, match='^y: row 0'):
        build(tmp_path / 'refused', np.array([-100, 1]))


def test_from_pyg_is_importing_the_files(tmp_path):
    torch = pytest.importorskip('torch')
    data_module = pytest.importorskip('torch_geometric.data')
    edges, x, y, split = real_cora()
    names = {'train_mask': 'train', 'val_mask': 'valid', 'test_mask': 'test'}
    masks = {name: torch.tensor(mask(split[part], len(x))) for name, part in names.items()}
    data = data_module.Data(x=torch.tensor(x), edge_index=torch.tensor(edges), y=torch.tensor(y).reshape(-1).long(), **masks)
    expected = imported(im.real_data() / 'cora', tmp_path / 'expected')
    assert plimsoll.from_pyg(data, tmp_path / 'made', quiet=True).fingerprint == expected.fingerprint
    assert plimsoll.from_pyg([data], tmp_path / 'list', memory='100M', quiet=True).fingerprint == expected.fingerprint
    other = plimsoll.from_pyg(data, tmp_path / 'other', train=[5, 6], quiet=True)
    assert np.array_equal(other.array('train'), [5, 6]) and other.num_valid == 500
    data.pos = torch.rand(len(x), 3)
    with pytest.warns(UserWarning, match='pos') as caught:
        plimsoll.from_pyg(data, tmp_path / 'warned', quiet=True)
    assert caught[0].filename == __file__
    data.train_mask = torch.stack([data.train_mask, data.train_mask], 1)
    refused_early(tmp_path, lambda path: plimsoll.from_pyg(data, path), 'several splits')
    refused_early(tmp_path, lambda path: plimsoll.from_pyg(data_module.HeteroData(), path), 'HeteroData')


def refused_early(tmp_path, make, says):
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(plimsoll.UsageError, match=says):
        make(tmp_path / 'refused')
    assert sorted(os.listdir(tmp_path)) == before


def mutag():
    root = im.real_data() / 'graphs' / 'MUTAG'
    a = {path.stem: np.load(path) for path in root.glob('*.npy')}
    x = np.eye(a['node_tag'].max() + 1, dtype=np.float32)[a['node_tag'].reshape(-1)]
    graphs = [(a['edge_index_local'][:, e0:e1], x[n0:n1], a['graph_label'][i])
              for i, (n0, n1, e0, e1) in enumerate(np.stack([a['node_ptr'][:-1], a['node_ptr'][1:], a['edge_ptr'][:-1], a['edge_ptr'][1:]], 1))]
    return root, graphs, {'train': a['train_idx_fold1'], 'test': a['test_idx_fold1']}


def test_small_graphs_are_importing_the_files(tmp_path):
    root, graphs, split = mutag()
    expected = imported(root, tmp_path / 'expected')
    with plimsoll.Builder(tmp_path / 'made', quiet=True) as builder:
        for edge_index, x, y in graphs:
            builder.add_graph(edge_index, x, y)
        builder.split(**split)
    assert plimsoll.open(tmp_path / 'made').fingerprint == expected.fingerprint


def test_small_graphs_from_pyg_and_pt_files(tmp_path):
    torch = pytest.importorskip('torch')
    data_module = pytest.importorskip('torch_geometric.data')
    root, graphs, split = mutag()
    graphs = [data_module.Data(edge_index=torch.tensor(edges), x=torch.tensor(x), y=torch.tensor([int(y)])) for edges, x, y in graphs]
    expected = imported(root, tmp_path / 'expected').fingerprint
    assert plimsoll.from_pyg(iter(graphs), tmp_path / 'pyg', **split, quiet=True).fingerprint == expected
    several = [data_module.Data(edge_index=data.edge_index, x=data.x, y=torch.zeros(len(data.x), dtype=torch.long)) for data in graphs[:2]]
    refused_early(tmp_path, lambda path: plimsoll.from_pyg(several, path, quiet=True), 'graph 0: .*labels of nodes')
    together = plimsoll.from_pyg(data_module.Batch.from_data_list(several), tmp_path / 'batch', quiet=True)
    assert together.num_labels == sum(len(data.y) for data in several)
    (tmp_path / 'files').mkdir()
    loads_data = hasattr(torch.serialization, 'safe_globals')
    if not loads_data:
        torch.save(graphs[0], tmp_path / 'data.pt')
        refused_early(tmp_path, lambda path: plimsoll.from_pt_files([tmp_path / 'data.pt'], path, quiet=True), r'\(it holds a torch_geometric\.')
    for i, data in enumerate(graphs):
        named = {'edges': data.edge_index, 'atoms': data.x, 'label': data.y}
        torch.save(data if i % 2 and loads_data else data.to_dict(), tmp_path / 'files' / f'{i}.pt')
        graphs[i] = named
    made = plimsoll.from_pt_files(tmp_path / 'files', tmp_path / 'pt', **split, quiet=True)
    assert made.fingerprint == expected
    for i, named in enumerate(graphs):
        torch.save(named, tmp_path / 'files' / f'{i}.pt')
    made = plimsoll.from_pt_files(tmp_path / 'files', tmp_path / 'keys', edge_index='edges', x='atoms', y='label', **split, quiet=True)
    assert made.fingerprint == expected
    values = plimsoll.from_pt_files([tmp_path / 'files' / '3.pt', tmp_path / 'files' / '1.pt'], tmp_path / 'two', edge_index='edges',
                                    x='atoms', y=['label', 'label'], quiet=True)
    assert np.array_equal(values.array('labels'), [[float(graphs[i]['label'])] * 2 for i in (3, 1)])
    (tmp_path / 'bad.pt').write_bytes(b'nothing')
    for files, says in ((tmp_path / 'files', '0.pt: .*no edge_index'), ([tmp_path / 'bad.pt'], 'bad.pt')):
        refused_early(tmp_path, lambda path, files=files: plimsoll.from_pt_files(files, path, x='atoms', y='label', quiet=True), says)


def test_graphs_of_all_shapes(tmp_path):
    """Without edges, without nodes, without x; values instead of classes."""
    with plimsoll.Builder(tmp_path / 'made', quiet=True) as builder:
        builder.add_graph(np.zeros((2, 0)), np.ones((1, 2), np.float32), 0.5)
        builder.add_graph(np.zeros((2, 0), np.int64), np.zeros((0, 2), np.float32), 1.5)
        builder.add_graph([[0, 1], [1, 2]], np.ones((3, 2), np.float32), np.array([2.5]))
        for wrong, says in (((np.array([[0], [3]]), np.ones((3, 2), np.float32), 1.0), '0 to 3'),
                            ((np.zeros((2, 0)), None, 1.0, 3), 'no x'),
                            ((np.zeros((2, 0)), np.ones((1, 3), np.float32), 1.0), 'shape'),
                            ((np.zeros((2, 0)), np.ones((1, 2), np.float32)), 'no y'),
                            ((np.zeros((2, 0)), np.ones((1, 2), np.float32), 1), 'dtype'),
                            ((np.zeros((2, 0)), np.ones(2, np.float32), 1.0), 'x has')):
            with pytest.raises(plimsoll.UsageError, match=says):
                builder.add_graph(*wrong)
        builder.split(train=mask([0, 2], 3))
    made = plimsoll.open(tmp_path / 'made')
    assert np.array_equal(made.array('graph_indptr'), [0, 1, 1, 4]) and np.array_equal(made.array('labels'), [0.5, 1.5, 2.5])
    assert (made.num_graphs, made.num_edges, made.num_train) == (3, 2, 2)


def pyg_data(y, **more):
    torch = pytest.importorskip('torch')
    geometric = pytest.importorskip('torch_geometric')
    draw = torch.Generator().manual_seed(1)
    nodes = len(y)
    return geometric.data.Data(x=torch.randn(nodes, 4, generator=draw), edge_index=torch.randint(0, nodes, (2, 200), generator=draw),
                               y=torch.as_tensor(y), train_mask=torch.arange(nodes) < nodes // 2,
                               val_mask=torch.arange(nodes) >= nodes // 2, **more)


AGES = np.random.default_rng(3).integers(18, 30, 40)


@pytest.mark.parametrize('shape', [(-1,), (-1, 1)], ids=str)
def test_the_dtype_decides_between_classes_and_values(tmp_path, shape):
    """As PyTorch's losses take them, unless targets= says otherwise; values keep their shape."""
    floats = AGES.astype(np.float32).reshape(shape)
    values = plimsoll.from_pyg(pyg_data(floats), tmp_path / 'values', quiet=True)
    assert values.label_kind == 'values' and np.array_equal(values.array('labels'), floats)
    classes = plimsoll.from_pyg(pyg_data(AGES.reshape(shape)), tmp_path / 'classes', quiet=True)
    assert classes.label_kind == 'classes' and np.array_equal(classes.array('labels'), AGES)
    floats[3] = np.nan
    told = plimsoll.from_pyg(pyg_data(floats), tmp_path / 'told', targets='classes', quiet=True)
    assert told.label_kind == 'classes' and np.array_equal(told.array('labels'), np.where(np.arange(40) == 3, -1, AGES))
    told = plimsoll.from_pyg(pyg_data(AGES.reshape(shape)), tmp_path / 'other', targets='values', quiet=True)
    assert told.label_kind == 'values' and np.array_equal(told.array('labels'), AGES.reshape(shape))
    with plimsoll.Builder(tmp_path / 'built', quiet=True) as builder:
        builder.add_edges([[0, 1], [1, 0]])
        builder.add_labels(floats[:20])
        builder.add_labels(floats[20:])
    assert np.array_equal(plimsoll.open(tmp_path / 'built').array('labels'), floats, equal_nan=True)


@pytest.mark.parametrize('labels, told, warns', [
    ([0, 2, np.nan, 1], {}, True), ([[0], [2], [np.nan], [1]], {}, True), ([0, 2, 3, 1], {}, True), ([[0], [2], [3], [1]], {}, True),
    ([0, 2.5, 3, 1], {}, False), ([0, 2.5, np.nan, 1], {}, False), ([0, 2, 3, 1], {'targets': 'values'}, False),
    ([-1, 2, np.nan, 1], {}, False), ([[0, 1], [np.nan, 1], [1, 1], [1, 0]], {}, False), ([0, 2, np.nan, 1], {'targets': 'values'}, False),
    ([0, 2, np.nan, 1], {'targets': 'classes'}, False)], ids=str)
def test_a_regression_that_may_be_meant_as_classes_warns(tmp_path, labels, told, warns):
    data = {'edge_index': [[0, 1], [1, 2]], 'x': np.ones((4, 2), np.float32), 'y': np.array(labels, np.float32)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        plimsoll.from_pyg(data, tmp_path / 'made', quiet=True, **told)
    assert ["targets='classes'" in str(warning.message) for warning in caught] == [True] * warns
    assert all(warning.filename == __file__ for warning in caught)


@pytest.mark.parametrize('shape', [(40,), (40, 1)], ids=str)
def test_floats_train_a_regression(tmp_path, shape):
    """And batches have the labels in the shape that the user gave."""
    made = plimsoll.from_pyg(pyg_data(AGES.astype(np.float32).reshape(shape)), tmp_path / 'made', quiet=True)
    for batch in plimsoll.NeighborLoader(made, [2, 2], batch_size=8, input_nodes='train'):
        seeds = batch.batch_size
        assert batch.y[:seeds].shape == (seeds, *shape[1:])
        assert np.array_equal(batch.y[:seeds], made.array('labels')[np.asarray(batch.n_id[:seeds])])
    run = plimsoll.train(made, model='gcn', fanout=[2, 2], hidden=4, epochs=2, loss='mse', run=tmp_path / 'run', quiet=True)
    assert all(np.isfinite(line['loss']) for line in run.metrics)


@pytest.mark.parametrize('y, dtype, shape', [(3.0, np.float32, (6,)), ([3.0], np.float32, (6,)), ([[3.0]], np.float32, (6, 1)),
                                             (3, np.int8, (6,)), ([[3]], np.int8, (6,)), ([[3.0, 4.0]], np.float32, (6, 2))], ids=str)
def test_labels_of_graphs(tmp_path, y, dtype, shape):
    """From PyG and from .pt files, in the shape that PyG gives a batch of them."""
    torch = pytest.importorskip('torch')
    geometric = pytest.importorskip('torch_geometric')
    graphs = [geometric.data.Data(x=torch.ones(2, 3), edge_index=torch.tensor([[0], [1]]), y=torch.tensor(y)) for _ in range(6)]
    (tmp_path / 'files').mkdir()
    for number, graph in enumerate(graphs):
        torch.save(graph.to_dict(), tmp_path / 'files' / f'{number}.pt')
    made = [plimsoll.from_pyg(graphs, tmp_path / 'pyg', quiet=True), plimsoll.from_pt_files(tmp_path / 'files', tmp_path / 'pt', quiet=True)]
    if dtype == np.float32:
        assert tuple(geometric.data.Batch.from_data_list(graphs).y.shape) == shape
    for dataset in made:
        labels = dataset.array('labels')
        assert labels.dtype == dtype and labels.shape == shape and labels.flat[0] == 3
    told = plimsoll.from_pt_files(tmp_path / 'files', tmp_path / 'told', targets='values', quiet=True)
    assert told.label_kind == 'values'


@pytest.mark.parametrize('dtype', ['int64', 'int16', 'uint8'])
def test_integer_features_are_converted_on_request(tmp_path, dtype):
    torch = pytest.importorskip('torch')
    data = pyg_data(AGES)
    data.x = torch.randint(0, 9, (40, 4), generator=torch.Generator().manual_seed(2)).to(getattr(torch, dtype))
    for path, given in ('one', data), ('many', [pyg_graph(data), pyg_graph(data)]):
        for name, stored, options in ('kept', np.int64, {}), ('numbers', np.float32, {'features': 'f32'}), ('told', np.int64, {'features': 'i64'}):
            made = plimsoll.from_pyg(given, tmp_path / f'{path} {name}', quiet=True, **options)
            rows = made.array('features')
            assert rows.dtype == stored and np.array_equal(rows[:40], data.x) and made.feature_type == np.dtype(stored).name


def pyg_graph(data):
    return {'x': data.x, 'edge_index': data.edge_index, 'y': 1}


def wrong_counts(builder):
    builder.add_edges([[0, 1], [1, 2]])
    builder.add_rows(np.ones((3, 2), np.float32))
    builder.add_labels([0, 1])


def wrong_mask(builder):
    wrong_counts(builder)
    builder.add_labels([1])
    builder.split(train=[True, False])


def wrong_id(builder):
    builder.add_edges([[0, 1], [1, 77]])
    builder.add_rows(np.ones((3, 2), np.float32))


def not_finite(builder):
    builder.add_edges([[0, 1], [1, 2]])
    builder.add_rows(np.full((3, 2), np.nan, np.float32))


def wrong_train(builder):
    builder.add_edges([[0, 1], [1, 2]])
    builder.add_rows(np.ones((3, 2), np.float32))
    builder.split(train=[0, 7])


def both_kinds(builder):
    builder.add_edges([[0, 1], [1, 2]])
    builder.add_graph([[0], [0]], np.ones((1, 2)), 1)


def own_error(builder):
    wrong_counts(builder)
    raise ZeroDivisionError


@pytest.mark.parametrize('add, error, says', [
    (wrong_counts, plimsoll.UsageError, '3 rows, 2 labels'),
    (wrong_mask, plimsoll.UsageError, 'train has 2 entries'),
    (wrong_id, plimsoll.DataError, '77'),
    (not_finite, plimsoll.DataError, '^x: row 0'),
    (wrong_train, plimsoll.DataError, '^train: entry 1 is 7, but x says'),
    (both_kinds, plimsoll.UsageError, 'not both'),
    (lambda builder: None, plimsoll.UsageError, 'nothing'),
    (lambda builder: builder.add_edges(np.zeros((3, 2), int)), plimsoll.UsageError, 'transpose'),
    (lambda builder: builder.add_edges(np.zeros((2, 3))), plimsoll.UsageError, 'float64'),
    (lambda builder: builder.add_edges([[0], [1]], features=[1.0, 2.0]), plimsoll.UsageError, r'edge_attr has the shape \(2,\) for 1 edges'),
    (lambda builder: builder.add_edges([[0], [1]], weight=[[1.0, 2.0]]), plimsoll.UsageError, 'edge_weight has the shape'),
    (lambda builder: builder.add_edges([[0], [1]], type=[1.0]), plimsoll.UsageError, 'edge_type .* integers'),
    (lambda builder: builder.add_edges([[0], [1]], type=[-1]), plimsoll.DataError, '-1 is not a type'),
    (lambda builder: (builder.add_edges([[0], [1]]), builder.add_edges([[0], [1]], weight=[1.0])), plimsoll.UsageError, 'edge_weight: some'),
    (lambda builder: (builder.add_times([1, 2]), builder.add_rows(np.zeros((3, 1)))), plimsoll.UsageError, '3 rows, 2 times'),
    (lambda builder: builder.add_edges([0, 1], [2]), plimsoll.UsageError, 'one length'),
    (lambda builder: builder.add_rows(np.zeros(3)), plimsoll.UsageError, r'\(n, F\)'),
    (lambda builder: builder.add_rows(np.array([['a', 'b']])), plimsoll.UsageError, 'dtype'),
    (lambda builder: (builder.add_rows(np.zeros((1, 2))), builder.add_rows(np.zeros((1, 2), np.float32))), plimsoll.UsageError, 'alike'),
    (lambda builder: builder.split(train=np.array([0, 1], np.uint8)), plimsoll.UsageError, 'uint8'),
    (lambda builder: builder.split(train=np.zeros((5, 2), bool)), plimsoll.UsageError, 'one split'),
    (own_error, ZeroDivisionError, None),
])
def test_errors_leave_nothing_behind(tmp_path, add, error, says):
    with pytest.raises(error, match=says), plimsoll.Builder(tmp_path / 'made', quiet=True) as builder:
        add(builder)
    assert os.listdir(tmp_path) == []


def test_refused_before_any_chunk(tmp_path):
    (tmp_path / 'there').mkdir()
    for arguments, says in (({'path': tmp_path / 'there'}, 'exists'), ({'path': tmp_path / 'no' / 'made'}, 'no directory'),
                            ({'path': tmp_path / 'made', 'symetrise': True}, 'symmetrise'),
                            ({'path': tmp_path / 'made', 'memory': 17}, 'unit'),
                            ({'path': tmp_path / 'made', 'features': 'f64'}, 'f16')):
        with pytest.raises(plimsoll.UsageError, match=says):
            plimsoll.Builder(**arguments)
    assert os.listdir(tmp_path) == ['there']


def test_finish_close_and_forgotten_builders(tmp_path):
    builder = plimsoll.Builder(tmp_path / 'made', nodes=3, quiet=True)
    builder.add_edges([[0], [1]])
    assert 128 < builder.spooled_bytes < 1000
    assert builder.finish().num_edges == 1
    with pytest.raises(plimsoll.UsageError, match='finished'):
        builder.finish()
    with pytest.raises(plimsoll.UsageError, match='finished'):
        builder.add_edges([[0], [1]])
    for end in (lambda one: one.close(), lambda one: None):
        builder = plimsoll.Builder(tmp_path / 'other', quiet=True)
        builder.add_edges([[0], [1]])
        if os.fork() == 0:
            del builder  # a child has a copy, and must not remove the parent's files
            gc.collect()
            os._exit(0)
        os.wait()
        assert len(os.listdir(tmp_path)) == 2
        end(builder)
        del builder
        gc.collect()
        assert os.listdir(tmp_path) == ['made']


def run_script(text, *arguments):
    command = [sys.executable, '-c', textwrap.dedent(text), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1500)


@pytest.mark.skipif(os.geteuid() != 0, reason='only root gives directories away')
def test_another_users_chunks_are_not_removed(tmp_path):
    theirs, link = tmp_path / '.web.builder-theirs', tmp_path / '.web.builder-link'
    (theirs / 'chunks').mkdir(parents=True)
    (theirs / 'chunks' / 'x.npy').write_text('theirs')
    os.chown(theirs, 12001, 12001)
    (tmp_path / 'mine' / 'chunks').mkdir(parents=True)
    link.symlink_to(tmp_path / 'mine')
    with plimsoll.Builder(tmp_path / 'web', quiet=True) as builder:
        builder.add_edges(np.array([[0, 1], [1, 0]]))
    assert (theirs / 'chunks' / 'x.npy').exists() and (tmp_path / 'mine' / 'chunks').exists()


def test_a_killed_builder_is_cleaned_up_by_the_next(tmp_path):
    killed = run_script('''
        import os, sys, plimsoll
        builder = plimsoll.Builder(sys.argv[1])
        builder.add_edges([[0], [1]])
        os.kill(os.getpid(), 9)
    ''', tmp_path / 'made')
    assert killed.returncode == -9 and len(os.listdir(tmp_path)) == 1
    living = plimsoll.Builder(tmp_path / 'made')
    assert len(os.listdir(tmp_path)) == 1
    other = plimsoll.Builder(tmp_path / 'made')
    assert len(os.listdir(tmp_path)) == 2  # what is in use stays
    living.close()
    other.close()
    assert os.listdir(tmp_path) == []


def test_a_full_disk(tmp_path):
    """The limit on the size of files stands for it: the same error, without filling a disk."""
    full = run_script('''
        import resource, sys, numpy, plimsoll
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        builder = plimsoll.Builder(sys.argv[1])
        try:
            for _ in range(100):
                builder.add_rows(numpy.ones((1000, 16), numpy.float32))
        except plimsoll.DiskSpaceError as error:
            print('full:', error)
    ''', tmp_path / 'made')
    assert full.stdout.startswith('full:') and 'tmp=' in full.stdout, full.stderr
    assert os.listdir(tmp_path) == []


def test_memory_stays_flat(tmp_path):
    """50 chunks of 2 MiB, and one mapped array of 100 MiB as a single chunk."""
    array = np.lib.format.open_memmap(tmp_path / 'big.npy', mode='w+', dtype=np.float32, shape=(1 << 18, 100))
    array.flush()
    done = run_script('''
        import re, sys, numpy, plimsoll
        def resident():
            status = open('/proc/self/status').read()
            return int(re.search(r'RssAnon:\\s+(\\d+)', status)[1])
        builder = plimsoll.Builder(sys.argv[1])
        sizes = []
        for chunk in range(50):
            builder.add_edges(numpy.random.randint(0, 1000, (2, 1 << 16)))
            builder.add_rows(numpy.random.rand(1 << 13, 32).astype(numpy.float32))
            sizes.append(resident())
        many = plimsoll.Builder(sys.argv[1])
        many.add_rows(numpy.load(sys.argv[2], mmap_mode='r'))
        sizes.append(resident())
        print(builder.spooled_bytes, many.spooled_bytes, *sizes)
    ''', tmp_path / 'made', tmp_path / 'big.npy')
    assert done.returncode == 0, done.stderr
    spooled, mapped, *sizes = map(int, done.stdout.split())
    assert spooled > 100 << 20 and mapped > 100 << 20
    assert max(sizes[5:]) - sizes[4] < 16 << 10, sizes  # KiB


def test_from_parquet(tmp_path):
    pyarrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')
    g = im.Graph(nodes=5000, edges=100000)
    expected = build(tmp_path / 'expected', g, [1000])
    half = 40000
    (tmp_path / 'edges').mkdir()
    for name, part in (('part-2', g.edges[:, :half]), ('part-10', g.edges[:, half:])):
        parquet.write_table(pyarrow.table({'source': part[0], 'weight': part[0] * 0.5, 'target': part[1]}),
                            tmp_path / 'edges' / f'{name}.parquet', row_group_size=7000)
    labels = pyarrow.array([None if label < 0 else int(label) for label in g.labels])
    rows = pyarrow.FixedSizeListArray.from_arrays(g.features.reshape(-1), g.features.shape[1])
    columns = {f'f{i}': column for i, column in enumerate(np.ascontiguousarray(g.features.T))}
    nodes = {'node_id': np.arange(g.num_nodes), 'label': labels, **{name: mask(ids, g.num_nodes) for name, ids in g.split.items()}}
    splits = {name: name for name in g.split}
    for number, features in enumerate(({'x': rows}, {'x': rows.cast(pyarrow.list_(pyarrow.float32()))}, columns)):
        parquet.write_table(pyarrow.table({**nodes, **features}), tmp_path / 'nodes.parquet', row_group_size=1100)
        made = plimsoll.from_parquet(tmp_path / 'edges', tmp_path / f'made{number}', nodes=tmp_path / 'nodes.parquet', node_id='node_id',
                                     labels='label', **splits, quiet=True)
        assert {name: im.arrays(made.path)[name].tolist() for name in ('indptr', 'indices', 'features', 'labels')} == \
               {name: im.arrays(expected.path)[name].tolist() for name in ('indptr', 'indices', 'features', 'labels')}
        assert np.array_equal(made.array('train'), np.sort(g.split['train']))
    edges_only = plimsoll.from_parquet(tmp_path / 'edges', tmp_path / 'bare', num_nodes=6000, train=[1, 2], quiet=True)
    assert edges_only.num_nodes == 6000
    assert (edges_only.num_edges, edges_only.num_features, edges_only.num_train) == (100000, 0, 2)
    parquet.write_table(pyarrow.table({'rank': np.arange(6000), 'age': np.arange(6000) * 1.0, 'x': np.ones(6000)}), tmp_path / 'ages.parquet')
    ages = {'nodes': tmp_path / 'ages.parquet', 'labels': 'age'}
    refused_early(tmp_path, lambda path: plimsoll.from_parquet(tmp_path / 'edges', path, quiet=True, **ages), "rank.*feature_type='f32'")
    made = plimsoll.from_parquet(tmp_path / 'edges', tmp_path / 'ages', feature_type='f32', quiet=True, **ages)
    assert made.num_features == 2 and made.label_kind == 'values' and np.array_equal(made.array('labels'), np.arange(6000))
    parquet.write_table(pyarrow.table({'id': [0, 2, 1], 'x': [0.5, None, 1.0], 'name': ['a', 'b', 'c']}), tmp_path / 'bad.parquet')
    for options, says in (({'source': 'from'}, 'from.*source'), ({'nodes': tmp_path / 'bad.parquet', 'features': 'x'}, 'nulls'),
                          ({'nodes': tmp_path / 'bad.parquet', 'features': 'name'}, 'name'), ({'labels': 'y'}, 'nodes='),
                          ({'nodes': tmp_path / 'bad.parquet', 'features': [], 'node_id': 'id'}, '0, 1, 2')):
        refused_early(tmp_path, lambda path, options=options: plimsoll.from_parquet(tmp_path / 'edges', path, quiet=True, **options), says)
