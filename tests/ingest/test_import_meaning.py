"""What arrays are taken for: masks and ids, classes and values; and what looks wrong is refused, or reported."""
import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

NODES = 60
CHOSEN = np.random.default_rng(5).permutation(NODES)[:23]


def mask(dtype):
    made = np.zeros(NODES, dtype)
    made[CHOSEN] = 1
    return made


def source(place, **named):
    graph = im.Graph(2, NODES, 300)
    return im.write_npy(place, edge_index=graph.edges, **{'x': graph.features, 'y': np.abs(graph.labels), **named})


@pytest.mark.parametrize('dtype', ['bool', 'uint8', 'int8', 'int32', 'int64', 'uint64'])
@pytest.mark.parametrize('name', ['train_mask', 'train'])
def test_masks_of_any_type(tmp_path, dtype, name):
    """By their name; and where the name does not say it, by what they hold, which a warning says."""
    done = im.run('import', source(tmp_path / 'source', **{name: mask(dtype)}), tmp_path / 'a')
    assert done.returncode == 0, done.stderr
    assert np.array_equal(im.arrays(tmp_path / 'a')['train'], np.sort(CHOSEN))
    assert 'mask' in done.stderr
    assert ('warning: ' in done.stderr) == (name == 'train' and dtype != 'bool')
    assert im.run('inspect', '--verify', tmp_path / 'a').returncode == 0


def test_masks_in_an_archive_and_in_texts(tmp_path):
    graph = im.Graph(2, NODES, 300)
    place = im.write_ogb(tmp_path / 'ogb', graph)
    for part in ('train', 'valid', 'test'):
        (place / 'split' / 'time' / f'{part}.csv.gz').unlink()
    im.gzipped(place / 'split' / 'time' / 'train.csv.gz', im.lines(mask('int64')))
    got = im.imported(place, tmp_path / 'texts')
    assert np.array_equal(got['train'], np.sort(CHOSEN))


@pytest.mark.parametrize('dtype', ['bool', 'uint8'])
def test_masks_of_graphbolt(tmp_path, dtype):
    """Labels beside a mask are those of all nodes."""
    graph = im.Graph(2, NODES, 300)
    place = im.write_graphbolt(tmp_path / 'bolt', graph)
    labels = np.arange(NODES) % 4
    im.write_npy(place, train_ids=mask(dtype), train_labels=labels)
    for part in ('valid', 'test'):
        im.write_npy(place, **{f'{part}_ids': np.zeros(0, np.int64), f'{part}_labels': np.zeros(0, np.int64)})
    got = im.imported(place, tmp_path / 'a')
    assert np.array_equal(got['train'], np.sort(CHOSEN))
    assert np.array_equal(got['labels'], np.where(mask(bool), labels, -1))


@pytest.mark.parametrize('ids', [[0, 1, 5], [1, 0, 7, 3], [0, 1], [1], [0], []])
def test_ids_that_begin_with_0_and_1(tmp_path, ids):
    got = im.imported(source(tmp_path / 'source', train=np.array(ids, np.int64)), tmp_path / 'a')
    assert np.array_equal(got['train'], ids)


@pytest.mark.parametrize('named', [
    {'train_mask': CHOSEN},  # ids under a mask's name
    {'train_mask': mask('int64')[:-1]},  # too short
    {'train': np.array([0, 1, 1, 0])},  # neither
    {'train': np.array([7, 3, 9, 3])}, {'train': np.array([5, 5])}, {'train_idx': np.arange(NODES).repeat(2)[1:60]},
], ids=['ids', 'short', 'neither', 'twice', 'pair', 'long'])
def test_lists_that_are_none(tmp_path, named):
    im.refused(4, source(tmp_path / 'source', **named), tmp_path / 'a', says=[list(named)[0]])


def test_an_id_twice_in_a_large_list(tmp_path):
    """By ranges of ids, in little memory; the places of both are named."""
    nodes = 3_000_000
    ids = np.random.default_rng(1).permutation(nodes)
    graph = im.write_npy(tmp_path / 'source', edge_index=np.array([[0], [1]]), y=np.zeros(nodes, np.int64), train=ids)
    im.imported(graph, tmp_path / 'good', '--memory', '58M')
    ids[2_900_000] = ids[17]
    np.save(graph / 'train.npy', ids)
    im.refused(4, graph, tmp_path / 'bad', '--memory', '58M', says=['17 and 2900000', str(ids[17])])


@pytest.mark.parametrize('value', [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize('dtype', ['float16', 'float32', 'float64'])
@pytest.mark.parametrize('to', ['f16', 'f32'])
def test_features_are_finite(tmp_path, value, dtype, to):
    for at in (3, NODES * 5 - 1):  # in a vector, and behind the last whole one
        features = np.ones((NODES, 5), dtype)
        features.flat[at] = value
        im.refused(4, source(tmp_path / f'source{at}', x=features), tmp_path / 'a', '--features', to,
                   says=[f'row {at // 5}, column {at % 5}', 'NaN' if np.isnan(value) else 'infinity'])


def test_features_too_large_for_f16(tmp_path):
    features = np.ones((NODES, 5), np.float32)
    features[7, 2] = 65520
    im.refused(4, source(tmp_path / 'source', x=features), tmp_path / 'a', '--features', 'f16', says=['f32'])


def test_an_id_of_billions_in_two_lines(tmp_path):
    text = tmp_path / 'edges.txt'
    text.write_text('0 1\n1 4000000000\n')
    im.refused(4, text, tmp_path / 'a', says=['4000000000', '--relabel', '--nodes 4000000001'])
    assert len(im.imported(text, tmp_path / 'a', '--relabel')['indptr']) == 4
    text.write_text('0 1\n1 2000000\n')
    assert len(im.imported(text, tmp_path / 'b', '--nodes', '2000001')['indptr']) == 2000002
    text.write_text('0 1\n1 50000\n')
    assert len(im.imported(text, tmp_path / 'c')['indptr']) == 50002


def test_more_classes_than_labelled_nodes(tmp_path):
    labels = np.full(NODES, -1)
    labels[:10] = np.arange(10) * 1000
    done = im.run('import', source(tmp_path / 'source', y=labels), tmp_path / 'a', '--quiet')
    assert done.returncode == 0 and 'warning: ' in done.stderr and '9001' in done.stderr
    assert 'warning: ' in im.run('inspect', tmp_path / 'a').stderr
    labels[:10] = np.arange(10)
    done = im.run('import', source(tmp_path / 'source', y=labels), tmp_path / 'b', '--quiet')
    assert done.returncode == 0 and done.stderr == ''


@pytest.mark.parametrize('dtype', ['int64', 'float32'])
def test_multi_label(tmp_path, dtype):
    """0 and 1 in several columns are trained with bce and scored by ROC-AUC, unless an option says otherwise."""
    draw = np.random.default_rng(1)
    labels = draw.integers(0, 2, (NODES, 3)).astype(dtype)
    if dtype == 'float32':
        labels[draw.random((NODES, 3)) < 0.2] = np.nan
    splits = {'train': np.arange(40), 'valid': np.arange(40, 50), 'test': np.arange(50, 60)}
    done = im.run('import', source(tmp_path / 'source', y=labels, **splits), tmp_path / 'a')
    assert done.returncode == 0 and 'multi-label' in done.stderr
    assert json.loads(im.run('inspect', tmp_path / 'a', '--json').stdout)['multi_label']
    words = ('--epochs', 1, '--hidden', 4, '--fanout', '2,2', '--json', '--quiet')

    def settled(path, *more):
        done = im.run('train', path, *words, '--run', tmp_path / f'run{len(list(tmp_path.iterdir()))}', *more)
        assert done.returncode == 0, done.stderr
        return tuple(json.loads(done.stdout.splitlines()[0])[key] for key in ('loss', 'metric'))

    assert settled(tmp_path / 'a') == ('bce', 'roc_auc')
    assert settled(tmp_path / 'a', '--loss', 'mse') == ('mse', 'rmse')
    labels[3, 1] = 2
    im.imported(source(tmp_path / 'source', y=labels, **splits), tmp_path / 'b')
    assert settled(tmp_path / 'b') == ('mse', 'rmse')
    labels[3, 1] = -1
    done = im.run('import', source(tmp_path / 'source', y=labels, **splits), tmp_path / 'c')
    assert done.returncode == 0 and 'NaN' in done.stderr and settled(tmp_path / 'c') == ('mse', 'rmse')
    im.imported(source(tmp_path / 'source', y=(labels[:, :1] > 0).astype('float32') + 0.5, **splits), tmp_path / 'd')
    assert settled(tmp_path / 'd') == ('mse', 'rmse')


def ages(shape=(NODES, 1), dtype=np.float32):
    """Whole numbers, as ages are; floats have gaps."""
    values = np.random.default_rng(3).integers(18, 90, NODES).astype(dtype)
    if np.dtype(dtype).kind == 'f':
        values[[4, 9]] = np.nan
    return values.reshape(shape)


def regression(place, kind, labels):
    """The same graph in every kind of source."""
    graph = im.Graph(2, NODES, 300)
    splits = {'train': np.arange(40), 'valid': np.arange(40, 50), 'test': np.arange(50, NODES)}
    graph.split = splits
    if kind == 'npy':
        return source(place, y=labels, **splits)
    if kind == 'npz':
        place.mkdir()
        np.savez(place / 'all.npz', edge_index=graph.edges, x=graph.features, y=labels, **splits)
        return place / 'all.npz'
    if kind == 'ogb':
        im.write_ogb(place, graph)
        (place / 'raw' / 'node-label.npz').write_bytes(im.npz(node_label=labels))
        return place
    if kind == 'ogb csv':
        im.write_ogb_csv(place, graph)
        im.gzipped(place / 'raw' / 'node-label.csv.gz', im.lines(labels.reshape(-1).tolist()))
        return place
    if kind == 'graphbolt':
        im.write_graphbolt(place, graph)
        return im.write_npy(place, **{f'{part}_labels': labels[ids] for part, ids in splits.items()})
    im.write_npy(place, x=graph.features, **splits)
    (place / 'edges.csv').write_text(im.table(graph.edges.T))
    (place / 'labels.csv').write_text(im.lines(labels.reshape(-1).tolist()))
    return place


TEXTS = ('ogb csv', 'csv')


@pytest.mark.parametrize('kind', ['npy', 'npz', 'ogb', 'ogb csv', 'graphbolt', 'csv'])
@pytest.mark.parametrize('shape', [(NODES,), (NODES, 1)], ids=str)
@pytest.mark.parametrize('dtype', ['float32', 'float64', 'int64'])
def test_whole_numbers_are_classes_or_values(tmp_path, kind, shape, dtype):
    labels = ages(shape, dtype)
    place = regression(tmp_path / 'source', kind, labels)
    done = im.run('import', place, tmp_path / 'classes')
    assert done.returncode == 0, done.stderr
    integers = dtype == 'int64' and kind in ('npy', 'npz', 'ogb')
    assert ('--targets values' in done.stderr) == (not integers or 'warning: ' in done.stderr)
    got = im.arrays(tmp_path / 'classes')['labels']
    assert got.dtype.kind == 'i' and np.array_equal(got, np.where(np.isnan(labels), -1, labels).astype(int).reshape(-1))

    got = im.imported(place, tmp_path / 'values', '--targets', 'values')['labels']
    assert got.dtype == np.float32 and got.shape == ((NODES, 1) if kind in TEXTS else shape)
    assert np.array_equal(got.reshape(-1), labels.reshape(-1), equal_nan=True)
    about = json.loads((tmp_path / 'values' / 'dataset.json').read_text())
    assert about['label_kind'] == 'values' and about['num_targets'] == 1
    assert about['readable_by'] == got.ndim % 2 + 1  # older readers know two dimensions
    assert im.run('inspect', '--verify', tmp_path / 'values').returncode == 0


@pytest.mark.parametrize('shape', [(NODES,), (NODES, 1)], ids=str)
def test_ages_train_a_regression(tmp_path, shape):
    place = regression(tmp_path / 'source', 'npy', ages(shape))
    words = ('--model', 'gcn', '--epochs', 2, '--hidden', 4, '--fanout', '2,2', '--loss', 'mse', '--json', '--quiet')
    im.imported(place, tmp_path / 'classes')
    done = im.run('train', tmp_path / 'classes', '--run', tmp_path / 'none', *words)
    assert done.returncode == 2 and '--targets values' in done.stderr
    im.imported(place, tmp_path / 'values', '--targets', 'values')
    done = im.run('train', tmp_path / 'values', '--run', tmp_path / 'run', *words)
    assert done.returncode == 0, done.stderr
    assert im.run('predict', tmp_path / 'run', '--split', 'all', '--out', tmp_path / 'out.npy', '--quiet').returncode == 0
    assert np.load(tmp_path / 'out.npy').shape == (NODES, 1)


def test_splits_are_drawn_among_known_values(tmp_path):
    place = source(tmp_path / 'source', y=ages((NODES,)))
    got = im.imported(place, tmp_path / 'a', '--targets', 'values', '--split', '0.5,0.25,0.25')
    drawn = np.concatenate([got[part] for part in ('train', 'valid', 'test')])
    assert np.array_equal(np.sort(drawn), np.flatnonzero(~np.isnan(ages((NODES,)))))


@pytest.mark.parametrize('labels, option, says', [
    (ages() + np.float32(0.5), 'classes', ['row 0', 'not a class', '--targets values']),
    (np.ones((NODES, 2), np.float32), 'classes', ['2 columns', '--targets classes']),
], ids=['not whole', 'two columns'])
def test_labels_that_are_not_as_told(tmp_path, labels, option, says):
    im.refused(4, source(tmp_path / 'source', y=labels), tmp_path / 'a', '--targets', option, says=says)


def test_words_are_no_values(tmp_path):
    place = source(tmp_path / 'source')
    (place / 'y.npy').unlink()
    (place / 'labels.csv').write_text(im.lines(['label'] + ['red', 'green'] * (NODES // 2)))
    im.imported(place, tmp_path / 'good')
    im.refused(4, place, tmp_path / 'a', '--targets', 'values', says=['words', '--targets values'])


@pytest.mark.parametrize('dtype', ['float32', 'int64'])
def test_labels_of_graphs(tmp_path, dtype):
    """As the type says, or as the option does."""
    graphs = im.Graphs(seed=4)
    graphs.labels = graphs.labels.astype(dtype)
    place = im.write_ragged(tmp_path / 'source', graphs)
    for option, classes in ([], dtype == 'int64'), (['--targets', 'classes'], True), (['--targets', 'values'], False):
        got = im.imported(place, tmp_path / f'a{len(option)}{classes}', *option)['labels']
        assert got.dtype == (np.int8 if classes else np.float32) and got.shape == graphs.labels.shape
        assert np.array_equal(got, graphs.labels)
