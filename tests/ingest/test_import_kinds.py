# labels: asan
"""Each kind of source becomes what NumPy makes of it by brute force."""
import gzip
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402


def check_all(got, graph, options=None, labels=None):
    graph.check(got, options)
    assert np.array_equal(got['features'], graph.features) and got['features'].dtype == np.float32
    assert np.array_equal(got['labels'], graph.labels if labels is None else labels)
    assert got['labels'].dtype == np.int8
    for part, ids in graph.split.items():
        assert np.array_equal(got[part], ids) and got[part].dtype == np.int64


@pytest.mark.parametrize('options', im.OPTIONS, ids=str)
def test_ogb_directory(tmp_path, options):
    graph = im.Graph(1)
    source = im.write_ogb(tmp_path / 'ogb', graph)
    check_all(im.imported(source, tmp_path / 'out', *im.flags(options)), graph, options)


@pytest.mark.parametrize('seed', range(6))
def test_ogb_zip_members_in_any_order(tmp_path, seed):
    graph = im.Graph(seed)
    draw = np.random.default_rng(seed)
    keys = ['edge_index', 'node_feat', 'node_year', 'num_nodes_list', 'num_edges_list']
    source = im.write_ogb(tmp_path / 'ogb', graph, order=draw.permutation(keys))
    names = sorted(str(p.relative_to(source)) for p in source.rglob('*') if p.is_file())
    archive = im.zip_tree(source, tmp_path / 'made-bin.zip', order=draw.permutation(names))
    check_all(im.imported(archive, tmp_path / 'out'), graph)


def test_ogb_parent_directory_and_extracted_arrays(tmp_path):
    graph = im.Graph(2)
    im.write_ogb(tmp_path / 'all' / 'made', graph)
    check_all(im.imported(tmp_path / 'all', tmp_path / 'out'), graph)
    root = tmp_path / 'extracted'
    im.write_npy(root / 'raw', **im.ogb_arrays(graph), node_label=graph.float_labels())
    (root / 'split' / 'time').mkdir(parents=True)
    for part, ids in graph.split.items():
        (root / 'split' / 'time' / f'{part}.csv').write_text(im.lines(ids))
    check_all(im.imported(root, tmp_path / 'out2'), graph)


def test_a_file_beside_ogb_splits_is_none(tmp_path):
    graph = im.Graph(2)
    source = im.write_ogb(tmp_path / 'ogb', graph)
    (source / 'split' / 'README').write_text('splits by time\n')
    check_all(im.imported(source, tmp_path / 'out'), graph)


@pytest.mark.parametrize('packed', [False, True])
@pytest.mark.parametrize('above', ['my_split', 'a.npy', 'split'])
def test_ogb_under_names_that_mean_something_in_it(tmp_path, above, packed):
    graph = im.Graph(2)
    source = im.write_ogb_csv(tmp_path / above / 'csv', graph)
    if packed:
        source = im.zip_tree(source, tmp_path / 'csv.zip', prefix=f'{above}/csv/')
    check_all(im.imported(source, tmp_path / 'out'), graph)


def test_split_inside_an_archive_of_arrays(tmp_path):
    graph = im.Graph(2)
    source = im.write_ogb(tmp_path / 'ogb', graph)
    (source / 'raw' / 'data.npz').write_bytes(im.npz(**im.ogb_arrays(graph), **{'split/train': np.arange(3)}))
    check_all(im.imported(source, tmp_path / 'out'), graph)


@pytest.mark.parametrize('packed', [False, True])
def test_ogb_csv(tmp_path, packed):
    graph = im.Graph(3)
    source = im.write_ogb_csv(tmp_path / 'csv', graph)
    if packed:
        source = im.zip_tree(source, tmp_path / 'csv.zip', prefix='csv/')
    check_all(im.imported(source, tmp_path / 'out'), graph)


@pytest.mark.parametrize('packed', [False, True])
@pytest.mark.parametrize('float_labels', [False, True])
def test_ogb_csv_of_many_graphs(tmp_path, packed, float_labels):
    graphs = im.Graphs(4, float_labels=float_labels)
    source = im.write_ogb_graphs(tmp_path / 'csv', graphs)
    if packed:
        source = im.zip_tree(source, tmp_path / 'csv.zip', prefix='csv/')
    got = im.imported(source, tmp_path / 'out')
    graphs.check(got)
    assert np.array_equal(got['graph_indptr'], graphs.node_ptr)
    assert np.array_equal(got['features'], graphs.categories.astype(np.float32))
    assert np.array_equal(got['labels'].ravel(), graphs.labels)
    assert got['labels'].dtype == (np.float32 if float_labels else np.int8)
    assert np.array_equal(got['train'], graphs.split['train'])


@pytest.mark.parametrize('layout', ['rows', 'columns', 'rows_fortran', 'columns_fortran', 'uint32', 'int16'])
def test_npy_layouts_of_edges(tmp_path, layout):
    graph = im.Graph(5)
    edges = {'rows': graph.edges, 'columns': np.ascontiguousarray(graph.edges.T),
             'rows_fortran': np.asfortranarray(graph.edges), 'columns_fortran': graph.edges.T,
             'uint32': graph.edges.astype(np.uint32), 'int16': graph.edges.T.astype(np.int16, order='C')}[layout]
    source = im.write_npy(tmp_path / 'npy', edge_index=edges, node_feat=graph.features, node_label=graph.labels,
                          train=graph.split['train'], val_idx=graph.split['valid'])
    mask = np.zeros(graph.num_nodes, bool)
    mask[graph.split['test']] = True
    np.save(source / 'test_mask.npy', mask)
    graph.split['test'] = np.sort(graph.split['test'])
    check_all(im.imported(source, tmp_path / 'out'), graph)


@pytest.mark.parametrize('known', [False, True])
def test_npy_without_anything_else(tmp_path, known):
    graph = im.Graph(6)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges)
    if not known:
        graph.num_nodes = int(graph.edges.max()) + 1
    got = im.imported(source, tmp_path / 'out', *(['--nodes', graph.num_nodes] if known else []))
    graph.check(got)
    assert set(got) == {'indptr', 'indices'}


def test_npy_in_directories_of_igb(tmp_path):
    graph = im.Graph(7)
    im.write_npy(tmp_path / 'tiny' / 'processed' / 'paper', node_feat=graph.features, node_label_19=graph.labels,
                 node_label_2K=graph.labels + 5)
    im.write_npy(tmp_path / 'tiny' / 'processed' / 'paper__cites__paper', edge_index=graph.edges.T.copy())
    got = im.imported(tmp_path / 'tiny', tmp_path / 'out')
    graph.check(got)
    assert np.array_equal(got['labels'], graph.labels)
    im.write_npy(tmp_path / 'tiny' / 'processed' / 'author__writes__paper', edge_index=graph.edges.T.copy())
    im.refused(1, tmp_path / 'tiny', tmp_path / 'out2', says=['edge_index.npy', 'several types'])


def test_csc_of_our_own_names(tmp_path):
    graph = im.Graph(8)
    indptr, indices = im.csc(graph.edges, graph.num_nodes)
    source = im.write_npy(tmp_path / 'csc', indptr=indptr, indices=indices, features=graph.features.astype(np.float16),
                          labels=graph.labels, train=graph.split['train'])
    got = im.imported(source, tmp_path / 'out')
    graph.check(got)
    assert np.array_equal(got['features'], graph.features.astype(np.float16)) and got['features'].dtype == np.float16
    again = im.imported(tmp_path / 'out', tmp_path / 'again')
    assert all(np.array_equal(got[name], again[name]) for name in got)


@pytest.mark.parametrize('edges', ['csv', 'npy'])
@pytest.mark.parametrize('seeds', ['seeds', 'seed_nodes'])
def test_graphbolt(tmp_path, edges, seeds):
    graph = im.Graph(9)
    source = im.write_graphbolt(tmp_path / 'gb', graph, edges, seeds)
    check_all(im.imported(source, tmp_path / 'out'), graph, labels=np.abs(graph.labels))


@pytest.mark.parametrize('features', ['f32', 'f16'])
@pytest.mark.parametrize('float_labels', [False, True])
def test_ragged_graphs(tmp_path, features, float_labels):
    graphs = im.Graphs(10, float_labels=float_labels)
    source = im.write_ragged(tmp_path / 'ragged', graphs)
    got = im.imported(source, tmp_path / 'out', '--features', features)
    graphs.check(got)
    assert np.array_equal(got['graph_indptr'], graphs.node_ptr)
    assert np.array_equal(got['features'], graphs.one_hot())
    assert got['features'].dtype == (np.float32 if features == 'f32' else np.float16)
    assert np.array_equal(got['labels'].ravel(), graphs.labels)
    assert np.array_equal(got['valid'], graphs.split['valid'])
    got = im.imported(source, tmp_path / 'divided', '--normalise-features')
    assert np.allclose(got['features'], divided(graphs.one_hot()))


def import_log(source, target, *options):
    """Imports and returns what it printed."""
    done = im.run('import', source, target, *options)
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_what_is_not_imported_is_reported(tmp_path):
    graph = im.Graph(16)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges, node_feats=graph.features, edge_emb=graph.edges)
    text = import_log(source, tmp_path / 'a', '--quiet')
    assert 'not imported (2)' in text and 'node_feats.npy' in text and 'edge_emb.npy' in text
    source = im.write_ogb(tmp_path / 'ogb', graph)
    np.save(source / 'raw' / 'edge_emb.npy', graph.edges)
    for name, made in (('b', source), ('c', im.zip_tree(source, tmp_path / 'ogb.zip'))):
        text = import_log(made, tmp_path / name, '--quiet')
        assert 'not imported (1)' in text and 'edge_emb.npy' in text
    (tmp_path / 'edges.txt').write_text('from to color\n0 1 0.5\n1 2 0.5\n')
    text = import_log(tmp_path / 'edges.txt', tmp_path / 'd')
    assert 'columns after the second are ignored' in text and "'from to color'" in text
    source = im.write_ragged(tmp_path / 'ragged', im.Graphs(10))
    (source / 'train_idx.npy').rename(source / 'train_idx_fold1.npy')
    text = import_log(source, tmp_path / 'e')
    assert 'node_feat_int.npy: 2 columns of categories, stored one-hot as 5' in text
    assert 'fold 1' in text and 'not imported' not in text


def test_npz_of_arrays_named_as_files_are(tmp_path):
    graph = im.Graph(17)
    for keys in (('x', 'y'), ('features', 'labels')):
        named = {'edge_index': graph.edges, keys[0]: graph.features, keys[1]: graph.labels}
        (tmp_path / 'graph.npz').write_bytes(im.npz(**named))
        got = im.imported(tmp_path / 'graph.npz', tmp_path / f'out-{keys[0]}')
        graph.check(got)
        assert np.array_equal(got['features'], graph.features) and np.array_equal(got['labels'], graph.labels)


@pytest.mark.parametrize('kind', ['directory', 'npz', 'zip'])
def test_arrays_have_the_same_names_in_every_source(tmp_path, kind):
    graph = im.Graph(18)
    arrays = {'edgelist': graph.edges, 'feature': graph.features, 'targets': graph.labels, 'idx_train': graph.split['train'],
              'val_idx': graph.split['valid'], 'idx_test': graph.split['test']}
    source = im.write_npy(tmp_path / 'npy', **arrays)
    if kind == 'npz':
        (tmp_path / 'graph.npz').write_bytes(im.npz(**arrays))
        source = tmp_path / 'graph.npz'
    if kind == 'zip':
        source = im.zip_tree(source, tmp_path / 'graph.zip', prefix='')
    check_all(im.imported(source, tmp_path / 'out'), graph)


TEXTS = {
    'csv': lambda e: im.table(e.T),
    'tsv': lambda e: im.lines(e.T, '{0[0]}\t{0[1]}'),
    'spaces': lambda e: im.lines(e.T, ' {0[0]}   {0[1]} '),
    'headed': lambda e: 'source,target\n' + im.table(e.T),
    'commented': lambda e: '# a graph\n% of edges\n\n' + im.lines(e.T, '{0[0]} {0[1]} 0.5'),
    'crlf': lambda e: im.table(e.T).replace('\n', '\r\n'),
}


@pytest.mark.parametrize('form', TEXTS)
@pytest.mark.parametrize('packed', ['', 'gz', 'zst'])
def test_texts_of_edges(tmp_path, form, packed):
    graph = im.Graph(11)
    graph.num_nodes = int(graph.edges.max()) + 1
    path = tmp_path / 'edges.txt'
    path.write_text(TEXTS[form](graph.edges))
    if packed == 'gz':
        path.with_suffix('.gz').write_bytes(gzip.compress(path.read_bytes()))
        path = path.with_suffix('.gz')
    if packed == 'zst':
        subprocess.run(['zstd', '-q', path, '-o', path.with_suffix('.zst')], check=True)
        path = path.with_suffix('.zst')
    graph.check(im.imported(path, tmp_path / 'out'))


@pytest.mark.parametrize('memory', ['0', '1G'])
@pytest.mark.parametrize('spread', [3, 10**6, 2**61 // 60])
def test_relabel(tmp_path, spread, memory):
    draw = np.random.default_rng(spread % 1000)
    edges = draw.integers(0, 60, (2, 5000)) * spread + 7
    path = tmp_path / 'edges.csv'
    path.write_text(im.table(edges.T))
    got = im.imported(path, tmp_path / 'out', '--relabel', '--memory', im.minimum_memory(tmp_path, path, '--relabel') if
                      memory == '0' else memory)
    names, ranks = np.unique(edges, return_inverse=True)
    assert np.array_equal(got['ids'], names)
    indptr, indices = im.csc(ranks.reshape(2, -1), len(names))
    assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)


def test_relabel_with_more_names_than_memory_holds(tmp_path):
    draw = np.random.default_rng(12)
    edges = draw.integers(0, 2**40, (2, 300_000))
    path = tmp_path / 'edges.csv'
    np.savetxt(path, edges.T, fmt='%d', delimiter=',')
    least = im.minimum_memory(tmp_path, path, '--relabel')
    got = im.imported(path, tmp_path / 'out', '--relabel', '--memory', least)
    names, ranks = np.unique(edges, return_inverse=True)
    assert np.array_equal(got['ids'], names)
    indptr, indices = im.csc(ranks.reshape(2, -1), len(names))
    assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)


@pytest.mark.parametrize('dtype', ['f2', 'f4', 'f8', 'i1', 'u1', 'i4', 'i8', '?'])
@pytest.mark.parametrize('order', 'CF')
@pytest.mark.parametrize('to', [None, 'f16', 'f32', 'i64'])
def test_types_of_features(tmp_path, dtype, order, to):
    draw = np.random.default_rng(13)
    features = (draw.standard_normal((40, 7)) * 3).astype(dtype, order=order)
    source = im.write_npy(tmp_path / 'npy', edge_index=np.zeros((2, 1), int), x=features)
    about = tmp_path / 'out' / 'dataset.json'
    if features.dtype.kind == 'f' and to == 'i64':
        im.refused(4, source, tmp_path / 'out', '--features', to, says=['x.npy', 'row 0, column 0', 'not an integer'])
        features = np.save(source / 'x.npy', np.rint(features)) or np.rint(features)
    got = im.imported(source, tmp_path / 'out', *(['--features', to] if to else []))['features']
    if to == 'i64' or features.dtype.kind in 'iu' and to is None:  # perhaps categories
        assert got.dtype == np.int64 and np.array_equal(got, features.astype(np.int64))
        assert json.loads(about.read_text())['readable_by'] == 6
        return
    expected = {'f16': np.float16, 'f32': np.float32, None: np.float16 if dtype == 'f2' else np.float32}[to]
    assert got.dtype == expected and json.loads(about.read_text())['readable_by'] < 6
    by_f32 = features.astype(np.float32)
    assert np.array_equal(got, by_f32.astype(expected))
    import_log = json.loads(about.read_text())['feature_error']
    exact = features.astype(np.float64)
    with np.errstate(all='ignore'):
        error = np.abs(exact - got.astype(np.float64)) / np.abs(exact)
    assert import_log == pytest.approx(np.nanmax(error, initial=0), rel=1e-6)


BIG = np.array([[2**62, -1, 0], [2**31, 5, 2**53 + 1]] * 200)


@pytest.mark.parametrize('kind', ['npy', 'npz', 'ogb', 'fortran', 'csv'])
def test_integer_features_of_every_kind(tmp_path, kind):
    """Exactly, beyond what floats hold; texts as far as doubles do."""
    graph, values = im.Graph(19, nodes=400), BIG if kind != 'csv' else BIG % 2**50
    if kind == 'npz':
        source = tmp_path / 'graph.npz'
        source.write_bytes(im.npz(edge_index=graph.edges, x=values, y=graph.labels))
    elif kind == 'ogb':
        graph.features = values
        source = im.write_ogb(tmp_path / 'ogb', graph)
    else:
        source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges, x=np.asfortranarray(values) if kind == 'fortran' else values)
        if kind == 'csv':
            (source / 'x.npy').unlink()
            (source / 'features.csv').write_text(im.table(values))
    options = ['--features', 'i64'] if kind == 'csv' else []
    got = im.imported(source, tmp_path / 'out', *options)['features']
    assert got.dtype == np.int64 and np.array_equal(got, values)
    im.refused(4, source, tmp_path / 'other', '--normalise-features', *options, says=['--features f32'])


@pytest.mark.parametrize('layout', ['ragged', 'csv'])
def test_categories_of_graphs_stay_on_request(tmp_path, layout):
    graphs = im.Graphs(5)
    source = (im.write_ragged if layout == 'ragged' else im.write_ogb_graphs)(tmp_path / 'in', graphs)
    got = im.imported(source, tmp_path / 'out', '--features', 'i64')
    assert got['features'].dtype == np.int64 and np.array_equal(got['features'], graphs.categories)


GRAPHS = {
    'one node': (1, 0), 'one node with loops': (1, 5), 'no edges': (10, 0), 'two nodes': (2, 30),
    'sparse': (5000, 100), 'dense': (20, 5000), 'isolated': (1000, 1000),
}


@pytest.mark.parametrize('shape', GRAPHS)
@pytest.mark.parametrize('options', im.OPTIONS, ids=str)
def test_shapes_of_graphs(tmp_path, shape, options):
    nodes, edges = GRAPHS[shape]
    graph = im.Graph(14, nodes=nodes, edges=edges)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges, x=graph.features)
    graph.check(im.imported(source, tmp_path / 'out', *im.flags(options)), options)


@pytest.mark.parametrize('options', [{}, {'symmetrise': True}], ids=str)
def test_degree_of_a_million(tmp_path, options):
    draw = np.random.default_rng(15)
    edges = np.stack([draw.integers(0, 500_000, 1_000_000), np.full(1_000_000, 7)])
    graph = im.Graph(15, nodes=500_000, edges=0)
    graph.edges = edges
    source = im.write_npy(tmp_path / 'npy', edge_index=edges)
    graph.check(im.imported(source, tmp_path / 'out', '--nodes', 500_000, '--memory', '100M', *im.flags(options)), options)


def divided(rows):
    return rows / np.maximum(rows.sum(axis=1, keepdims=True, dtype=np.float64), 1)


@pytest.mark.parametrize('kind', ['ogb', 'csv', 'f64', 'fortran', 'f16'])
@pytest.mark.parametrize('spelling', ['--normalise-features', '--normalize-features'])
def test_rows_divided_by_their_sums(tmp_path, kind, spelling):
    graph = im.Graph(5)
    rows = np.abs(graph.features)
    rows[3] = 0  # stays 0
    rows[4] /= rows[4].sum() * 4  # sums to less than 1: stays as it is
    graph.features = rows
    if kind == 'ogb':
        source = im.write_ogb(tmp_path / 'ogb', graph)
    elif kind == 'csv':
        source = im.write_ogb_csv(tmp_path / 'csv', graph)
    else:
        types = {'f64': np.float64, 'fortran': np.float32, 'f16': np.float32}
        features = rows.astype(types[kind])
        im.write_npy(tmp_path / 'npy', edge_index=np.array(graph.edges),
                     features=np.asfortranarray(features) if kind == 'fortran' else features)
        source = tmp_path / 'npy'
    options = ['--features', 'f16'] if kind == 'f16' else []
    got = im.imported(source, tmp_path / 'out', spelling, *options)
    assert np.allclose(got['features'], divided(rows), rtol=1e-3 if kind == 'f16' else 1e-6, atol=1e-7)
    assert '--normalise-features' in (tmp_path / 'out' / 'dataset.json').read_text()


def test_negative_rows_are_not_divided(tmp_path):
    graph = im.Graph(5)
    graph.features = np.abs(graph.features)
    graph.features[7, 2] = -0.5
    source = im.write_ogb(tmp_path / 'ogb', graph)
    im.refused(4, source, tmp_path / 'out', '--normalise-features',
               says=['row 7, column 2', '-0.5 is negative', '--normalise-features'])
