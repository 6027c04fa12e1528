"""Data as people have it: each kind is imported, trains a model that beats chance, and predicts with its ids."""
import csv
import gzip
import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

CLASSES = 3


class Theirs:
    """A small graph whose classes both neighbours and features show."""

    def __init__(self, nodes=120):
        draw = np.random.default_rng(1)
        self.nodes = nodes
        self.y = draw.integers(0, CLASSES, nodes)
        self.x = (np.eye(CLASSES)[self.y] * 2 + draw.standard_normal((nodes, CLASSES)) * 0.5).astype(np.float32)
        source = draw.integers(0, nodes, 6 * nodes)
        same = np.array([draw.choice(np.flatnonzero(self.y == self.y[node])) for node in source])
        self.edges = np.stack([source, same])
        order = draw.permutation(nodes)
        self.split = dict(train=order[:72], val=order[72:96], test=order[96:])

    def mask(self, part):
        mask = np.zeros(self.nodes, bool)
        mask[self.split[part]] = True
        return mask

    def names(self):
        return [f'node {i * 7919 % self.nodes}x' for i in range(self.nodes)]

    def check(self, got, split=True):
        indptr, indices = im.csc(self.edges, self.nodes)
        assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)
        np.testing.assert_allclose(got['features'], self.x, rtol=1e-6)
        assert np.array_equal(got['labels'], self.y)
        for ours, theirs in zip(('train', 'valid', 'test'), ('train', 'val', 'test')) if split else ():
            assert set(got[ours]) == set(self.split[theirs])


def pandas_csv(path, columns, rows, index=True, heading=True):
    """As pandas' to_csv writes a table."""
    with open(path, 'w', newline='') as file:
        out = csv.writer(file, lineterminator='\n')
        if heading:
            out.writerow(([''] if index else []) + list(columns))
        for i, row in enumerate(rows):
            out.writerow(([i] if index else []) + list(row))


def trains(dataset, tmp_path):
    """Two epochs: the loss falls and the test score beats chance. Returns the run."""
    run = tmp_path / 'run'
    done = im.run('train', dataset, '--model', 'sage', '--hidden', 16, '--fanout', '5,5', '--batch', 16, '--lr', 0.03,
                  '--epochs', 2, '--run', run, '--quiet', '--memory', '300M')
    assert done.returncode == 0, done.stderr
    losses = [json.loads(line)['loss'] for line in (run / 'metrics.jsonl').read_text().splitlines()
              if 'loss' in json.loads(line)]
    assert losses[-1] < losses[0]
    done = im.run('evaluate', run, '--split', 'test', '--exact', '--json', '--quiet', '--memory', '300M')
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[0])['test']['score'] > 1.5 / CLASSES
    return run


def write_edges_and_arrays(root, g):
    """An edge list with a heading, x.npy, y.npy and masks."""
    (root / 'edges.csv').write_text('source,target\n' + im.table(g.edges.T))
    np.save(root / 'x.npy', g.x)
    np.save(root / 'y.npy', g.y)
    for part in g.split:
        np.save(root / f'{part}_mask.npy', g.mask(part))


def write_csv(root, g):
    """Three csv files without headings; lists of ids."""
    (root / 'edges.csv').write_text(im.table(g.edges.T))
    (root / 'features.csv').write_text(im.table(g.x))
    (root / 'labels.csv').write_text(im.lines(g.y))
    for part, ids in g.split.items():
        (root / f'{part}.csv').write_text(im.lines(ids))


def write_csv_with_ids(root, g):
    """Headings, a column of ids, compressed features, masks of words."""
    (root / 'edges.tsv').write_text('src\tdst\tweight\n' + im.lines(f'{a}\t{b}\t0.5' for a, b in g.edges.T))
    text = 'node_id,f0,f1,f2\n' + im.table([i, *row] for i, row in enumerate(g.x))
    (root / 'features.csv.gz').write_bytes(gzip.compress(text.encode()))
    (root / 'labels.csv').write_text('node_id,label\n' + im.table(enumerate(g.y)))
    for part in g.split:
        (root / f'{part}_mask.txt').write_text(im.lines(g.mask(part)))


def write_pandas(root, g):
    """DataFrame.to_csv with its index, and columns that have no names."""
    pandas_csv(root / 'edges.csv', ['source', 'target'], g.edges.T)
    pandas_csv(root / 'features.csv', [0, 1, 2], g.x)
    pandas_csv(root / 'labels.csv', ['0'], g.y[:, None])
    for part, ids in g.split.items():
        pandas_csv(root / f'{part}_idx.csv', ['id'], ids[:, None])


def write_pandas_without_index(root, g):
    pandas_csv(root / 'edges.csv', ['a', 'b'], g.edges.T, index=False)
    pandas_csv(root / 'features.csv', [0, 1, 2], g.x, index=False)
    pandas_csv(root / 'labels.csv', ['label'], g.y[:, None], index=False)
    for part, ids in g.split.items():
        pandas_csv(root / f'{part}.csv', ['id'], ids[:, None], index=False)


def write_savetxt(root, g):
    """numpy.savetxt writes integers as 1.000000000000000000e+00."""
    np.savetxt(root / 'edges.txt', g.edges.T)
    np.savetxt(root / 'x.txt', g.x)
    np.savetxt(root / 'y.txt', g.y)
    for part, ids in g.split.items():
        np.savetxt(root / f'{part}.txt', ids)


def write_numbered(root, g):
    """No headings, but the node's number before its features and its label."""
    (root / 'edge_list.txt').write_text(im.lines(f'{a} {b}' for a, b in g.edges.T))
    (root / 'features.txt').write_text(im.lines(' '.join(map(str, [i, *row])) for i, row in enumerate(g.x)))
    (root / 'labels.txt').write_text(im.lines(f'{i} {y}' for i, y in enumerate(g.y)))
    for part in g.split:
        (root / f'{part}_mask.csv').write_text('mask\n' + im.lines(g.mask(part).astype(int)))


@pytest.mark.parametrize('write', [write_edges_and_arrays, write_csv, write_csv_with_ids, write_pandas,
                                   write_pandas_without_index, write_savetxt, write_numbered], ids=lambda write: write.__name__[6:])
def test_a_directory(tmp_path, write):
    g = Theirs()
    (tmp_path / 'theirs').mkdir()
    write(tmp_path / 'theirs', g)
    g.check(im.imported(tmp_path / 'theirs', tmp_path / 'ours'))
    trains(tmp_path / 'ours', tmp_path)


@pytest.mark.parametrize('keys', [('edge_index', 'x', 'y', '{}_mask'), ('edges', 'features', 'labels', '{}_idx')])
@pytest.mark.parametrize('save', [np.savez, np.savez_compressed])
def test_an_npz(tmp_path, keys, save):
    g = Theirs()
    parts = {keys[3].format(part): g.mask(part) if 'mask' in keys[3] else ids for part, ids in g.split.items()}
    save(tmp_path / 'theirs.npz', **{keys[0]: g.edges, keys[1]: g.x, keys[2]: g.y}, **parts)
    g.check(im.imported(tmp_path / 'theirs.npz', tmp_path / 'ours'))
    trains(tmp_path / 'ours', tmp_path)


@pytest.mark.parametrize('axis', [0, 1])
@pytest.mark.parametrize('first', ['edges', 'masks'])
def test_an_npz_with_masks_of_several_splits(tmp_path, axis, first):
    """As the heterophilous graphs have them (roman_empire.npz), and PyG's WebKB."""
    g = Theirs()
    arrays = dict(node_features=g.x, node_labels=g.y, edges=g.edges.T)
    others = [~g.mask('train')] * 9
    masks = {f'{part}_masks': np.stack([g.mask(part), *others], axis) for part in g.split}
    np.savez_compressed(tmp_path / 'theirs.npz', **({**arrays, **masks} if first == 'edges' else {**masks, **arrays}))
    g.check(im.imported(tmp_path / 'theirs.npz', tmp_path / 'ours'))
    trains(tmp_path / 'ours', tmp_path)


def test_a_zip_of_such_a_directory(tmp_path):
    g = Theirs()
    (tmp_path / 'theirs').mkdir()
    write_csv(tmp_path / 'theirs', g)
    im.zip_tree(tmp_path / 'theirs', tmp_path / 'theirs.zip', prefix='theirs/')
    g.check(im.imported(tmp_path / 'theirs.zip', tmp_path / 'ours'))
    trains(tmp_path / 'ours', tmp_path)


def test_split_is_drawn(tmp_path):
    g = Theirs()
    source = im.write_npy(tmp_path / 'theirs', edge_index=g.edges, x=g.x, y=np.where(np.arange(120) < 20, -1, g.y))
    got = im.imported(source, tmp_path / 'ours', '--split', '0.6,0.2,0.2')
    parts = [got['train'], got['valid'], got['test']]
    assert [len(part) for part in parts] == [60, 20, 20]
    assert sorted(np.concatenate(parts)) == list(range(20, 120))
    about = json.loads((tmp_path / 'ours' / 'dataset.json').read_text())
    assert about['provenance']['options'] == '--split 0.6,0.2,0.2 --seed 0'
    trains(tmp_path / 'ours', tmp_path)
    again = im.imported(source, tmp_path / 'again', '--split', '0.6,0.2,0.2', '--threads', 1)
    other = im.imported(source, tmp_path / 'other', '--split', '0.6,0.2,0.2', '--seed', 7)
    half = im.imported(source, tmp_path / 'half', '--split', '0.5,0,0.1')
    assert np.array_equal(again['train'], got['train']) and not np.array_equal(other['train'], got['train'])
    assert len(half['train']) == 50 and len(half['test']) == 10 and 'valid' not in half


def test_split_of_values_and_uniform(tmp_path):
    y = np.full((4000, 2), np.nan, np.float32)
    y[::2, 1] = 1
    source = im.write_npy(tmp_path / 'theirs', edge_index=np.zeros((2, 1), int), y=y)
    got = im.imported(source, tmp_path / 'ours', '--split', '0.5,0.25,0.25')
    assert set(np.concatenate([got[part] for part in ('train', 'valid', 'test')])) == set(range(0, 4000, 2))
    assert abs((got['train'] < 2000).sum() - 500) < 80  # 3.6 standard deviations


@pytest.mark.parametrize('words, says', [
    ('0.6,0.2', 'three shares'), ('0.6,0.2,0.2,', 'three shares'), ('0.6,0.3,0.2', 'sum of at most 1'),
    ('60,20,20', 'sum of at most 1'), ('0,0.5,0.5', 'training'), ('-1,1,1', 'sum'), ('nan,0,0', 'sum')])
def test_wrong_splits(tmp_path, words, says):
    source = im.write_npy(tmp_path / 'theirs', edge_index=np.zeros((2, 1), int), y=np.zeros(9, int))
    im.refused(2, source, tmp_path / 'ours', '--split', words, says=[says])


def test_split_without_labels_or_beside_theirs(tmp_path):
    source = im.write_npy(tmp_path / 'theirs', edge_index=np.zeros((2, 1), int))
    im.refused(2, source, tmp_path / 'ours', '--split', '0.6,0.2,0.2', says=['labels.csv'])
    im.write_npy(source, y=np.zeros(9, int), train=np.arange(3))
    im.refused(2, source, tmp_path / 'ours', '--split', '0.6,0.2,0.2', says=['train.npy', 'omit --split'])


def write_named(root, g, names, table):
    """Edges, labels and splits by names, in any order; `table` has a row for each node."""
    draw = np.random.default_rng(3)
    root.mkdir()
    quoted = [f'"{name}"' if ',' in name else name for name in names]
    (root / 'edges.csv').write_text('source,target\n' + im.table((quoted[a], quoted[b]) for a, b in g.edges.T))
    rows = [(quoted[i], g.y[i]) for i in draw.permutation(g.nodes)]
    if table == 'features':
        (root / 'features.csv').write_text('id,a,b,c\n' + im.table((quoted[i], *row) for i, row in enumerate(g.x)))
    else:
        np.save(root / 'x.npy', g.x)
    if table == 'nodes':
        (root / 'nodes.txt').write_text(im.lines(quoted))
    if table == 'labels':
        rows = [(quoted[i], g.y[i]) for i in range(g.nodes)]
    (root / 'labels.csv').write_text('id,label\n' + im.table(rows))
    for part, ids in g.split.items():
        (root / f'{part}.csv').write_text(im.lines(quoted[i] for i in ids))


def stored_names(got):
    text, offsets = got['id_text'].tobytes().decode(), got['id_offsets']
    return [text[a:b] for a, b in zip(offsets, offsets[1:])]


@pytest.mark.parametrize('table', ['features', 'labels', 'nodes'])
def test_names_as_ids(tmp_path, table):
    g = Theirs()
    write_named(tmp_path / 'theirs', g, g.names(), table)
    got = im.imported(tmp_path / 'theirs', tmp_path / 'ours', '--relabel')
    g.check(got)
    assert stored_names(got) == g.names()
    run = trains(tmp_path / 'ours', tmp_path)
    out = tmp_path / 'out.csv'
    assert im.run('predict', run, '--out', out, '--kind', 'classes', '--quiet').returncode == 0
    rows = list(csv.DictReader(out.open()))
    assert [row['id'] for row in rows] == [g.names()[i] for i in np.load(tmp_path / 'ours' / 'test.npy')]
    assert im.run('predict', run, '--out', tmp_path / 'out.npy', '--quiet').returncode == 0
    beside = list(csv.DictReader((tmp_path / 'out.ids.csv').open()))
    assert [row['id'] for row in beside] == [row['id'] for row in rows]
    done = im.run('inspect', tmp_path / 'ours', '--verify', '--quiet')
    assert done.returncode == 0, done.stderr


def test_integers_as_names(tmp_path):
    g = Theirs()
    names = [str(10**12 - 37 * i) for i in range(g.nodes)]
    write_named(tmp_path / 'theirs', g, names, 'features')
    got = im.imported(tmp_path / 'theirs', tmp_path / 'ours', '--relabel')
    g.check(got)
    assert got['ids'].dtype == np.int64 and list(map(str, got['ids'])) == names and 'id_text' not in got
    run = trains(tmp_path / 'ours', tmp_path)
    assert im.run('predict', run, '--split', 'all', '--out', tmp_path / 'out.npy', '--quiet').returncode == 0
    assert np.array_equal(np.load(tmp_path / 'out.ids.npy'), got['ids'])


@pytest.mark.parametrize('heading', ['', 'source target\n', '# a comment\nfrom to\n'])
def test_a_text_of_names(tmp_path, heading):
    (tmp_path / 'edges.txt').write_text(heading + 'bob alice\nalice carol\nbob carol\n')
    got = im.imported(tmp_path / 'edges.txt', tmp_path / 'ours', '--relabel')
    assert stored_names(got) == ['bob', 'alice', 'carol']
    assert got['indptr'].tolist() == [0, 0, 1, 3] and got['indices'].tolist() == [0, 0, 1]


def test_quotes_in_names(tmp_path):
    """Two quotes between quotes are one; a quote in a name without quotes around it is a letter."""
    (tmp_path / 'edges.csv').write_text('"a ""b""",5"disk\n"5""disk",c\n')
    got = im.imported(tmp_path / 'edges.csv', tmp_path / 'ours', '--relabel')
    assert stored_names(got) == ['a "b"', '5"disk', 'c']


def test_more_names_than_the_table_holds(tmp_path):
    """Two passes at the least memory, and the same bytes."""
    draw = np.random.default_rng(5)
    ends = draw.integers(0, 2 * 10**5, (2, 3 * 10**5))
    (tmp_path / 'edges.csv').write_text(im.lines(f'n{a},n{b}' for a, b in ends.T))
    whole = im.imported(tmp_path / 'edges.csv', tmp_path / 'whole', '--relabel')
    first = list(dict.fromkeys(f'n{a}' for a in ends.T.ravel()))
    assert stored_names(whole) == first
    least = im.minimum_memory(tmp_path, tmp_path / 'edges.csv', '--relabel')
    im.imported(tmp_path / 'edges.csv', tmp_path / 'least', '--relabel', '--memory', least)
    assert im.digests(tmp_path / 'least') == im.digests(tmp_path / 'whole')


def test_wrong_names(tmp_path):
    g = Theirs()
    root = tmp_path / 'theirs'
    write_named(root, g, g.names(), 'features')
    good = (root / 'edges.csv').read_text()
    (root / 'edges.csv').write_text(good + 'node 0x,nobody\n')
    im.refused(4, root, tmp_path / 'ours', '--relabel', says=['edges.csv: line 722', 'features.csv'])
    (root / 'edges.csv').write_text(good)
    features = (root / 'features.csv').read_text()
    (root / 'features.csv').write_text(features + features.splitlines()[1] + '\n')
    im.refused(4, root, tmp_path / 'ours', '--relabel', says=['features.csv', 'same id'])
    (root / 'features.csv').write_text(features.replace('node 0x', 'x' * 300))
    im.refused(4, root, tmp_path / 'ours', '--relabel', says=['features.csv: line', '255'])
    (root / 'features.csv').write_text(features)
    im.refused(4, root, tmp_path / 'ours', says=['features.csv: line 2', '--relabel'])
    labels = (root / 'labels.csv').read_text()
    (root / 'labels.csv').write_text(labels + labels.splitlines()[1] + '\n')
    im.refused(4, root, tmp_path / 'ours', '--relabel', says=['labels.csv: line 122'])
    (root / 'features.csv').unlink()
    (root / 'labels.csv').unlink()
    im.refused(2, root, tmp_path / 'ours', '--relabel', says=['nodes.csv', 'features.csv', 'labels.csv'])


def test_ids_of_rows_must_count_without_relabel(tmp_path):
    g = Theirs()
    (tmp_path / 'theirs').mkdir()
    write_csv(tmp_path / 'theirs', g)
    (tmp_path / 'theirs' / 'labels.csv').write_text('id,label\n' + im.table((i + 1, y) for i, y in enumerate(g.y)))
    im.refused(4, tmp_path / 'theirs', tmp_path / 'ours', says=['labels.csv: line 2', '--relabel'])


def test_what_is_not_recognised(tmp_path):
    root = tmp_path / 'theirs'
    root.mkdir()
    im.refused(4, root, tmp_path / 'ours', says=['nothing', 'edge_index.npy', 'edges.csv', 'features.csv', 'train_mask.npy'])
    np.save(root / 'adjacency.npy', np.zeros(3))
    (root / 'sub').mkdir()
    im.refused(4, root, tmp_path / 'ours', says=['adjacency.npy, sub/', 'edge_index.npy'])
    np.savez(tmp_path / 'some.npz', a=np.zeros(3), b=np.zeros(3))
    im.refused(4, tmp_path / 'some.npz', tmp_path / 'ours', says=['a.npy, b.npy', 'edge_index'])


WORDS = ['red', 'a green, "light" one', 'Blue', '3D']  # of Theirs' classes, and another
SORTED = ['3D', 'Blue', 'a green, "light" one', 'red']


def quoted(word):
    return '"' + word.replace('"', '""') + '"'


def write_word_column(root, g):
    """A column of words, quoted where they must be."""
    (root / 'labels.csv').write_text('label\n' + im.lines(quoted(WORDS[y]) if y == 1 else WORDS[y] for y in g.y))


def write_word_rows(root, g):
    """No heading; the node's number before the word."""
    (root / 'labels.csv').write_text(im.lines(f'{i},{quoted(WORDS[y])}' for i, y in enumerate(g.y)))


def write_word_pandas(root, g):
    pandas_csv(root / 'labels.csv', ['class'], [[WORDS[y]] for y in g.y])


def class_words(got):
    text, offsets = got['class_text'].tobytes().decode(), got['class_offsets']
    return [text[a:b] for a, b in zip(offsets, offsets[1:])]


def check_words(g, got, words):
    """The classes are the words in their order."""
    assert class_words(got) == words
    assert [words[label] for label in got['labels']] == [WORDS[y] for y in g.y]


@pytest.mark.parametrize('write', [write_word_column, write_word_rows, write_word_pandas], ids=lambda write: write.__name__[6:])
def test_labels_as_words(tmp_path, write):
    g = Theirs()
    root = im.write_npy(tmp_path / 'theirs', edge_index=g.edges, x=g.x, **{f'{part}_mask': g.mask(part) for part in g.split})
    write(root, g)
    check_words(g, im.imported(root, tmp_path / 'ours'), SORTED[1:])
    run = trains(tmp_path / 'ours', tmp_path)
    rows = list(csv.DictReader(predicted(run, tmp_path / 'out.csv', '--kind', 'classes').open()))
    classes = np.load(predicted(run, tmp_path / 'out.npy', '--kind', 'classes'))
    assert [row['predicted_class'] for row in rows] == [SORTED[1:][label] for label in classes]
    assert im.run('inspect', tmp_path / 'ours', '--verify', '--quiet').returncode == 0


def test_words_of_named_nodes(tmp_path):
    """In any order; nodes without a row, and empty, nan and -1, are unlabelled."""
    g = Theirs()
    names = g.names()
    write_named(tmp_path / 'theirs', g, names, 'features')
    labels = {names[i]: '' if i == 0 else 'nan' if i == 1 else '-1' if i == 2 else quoted(WORDS[y]) for i, y in enumerate(g.y) if i != 3}
    (tmp_path / 'theirs' / 'labels.csv').write_text('node,label\n' + im.table(sorted(labels.items())))
    got = im.imported(tmp_path / 'theirs', tmp_path / 'ours', '--relabel')
    assert got['labels'].tolist() == [-1] * 4 + [class_words(got).index(WORDS[y]) for y in g.y[4:]]


def test_wrong_words(tmp_path):
    root = im.write_npy(tmp_path / 'theirs', edge_index=np.array([[0, 1], [1, 2]]), x=np.zeros((3, 2)))
    for text, says in (('0\nred\n1\n', ['line 2', 'red', '0, 1, 2']), ('red\nblue\nred\nred\n', ['heading', 'red']),
                       ('label\nred\nblue\n', ['2 nodes', '3']), ('label\na b\nc d\ne f\n', ['line 2', 'quotes'])):
        (root / 'labels.csv').write_text(text)
        im.refused(4, root, tmp_path / 'ours', says=['labels.csv', *says])
    (root / 'labels.csv').unlink()
    im.write_npy(root, y=np.array(['red', 'blue', 'red']))
    im.refused(4, root, tmp_path / 'ours', says=['y.npy', 'labels.csv', 'numpy.unique'])


@pytest.mark.parametrize('heading', ['id,f0,f1,f2,label\n', ''])
@pytest.mark.parametrize('relabel', [False, True])
def test_one_table_of_nodes(tmp_path, heading, relabel):
    """nodes.csv: id, features, label; without a heading the label is a word."""
    g = Theirs()
    names = g.names() if relabel else list(range(g.nodes))
    root = tmp_path / 'theirs'
    root.mkdir()
    (root / 'edges.csv').write_text('source,target\n' + im.table((names[a], names[b]) for a, b in g.edges.T))
    labels = [y if heading else quoted(WORDS[y]) for y in g.y]
    (root / 'nodes.csv').write_text(heading + im.table([name, *row, label] for name, row, label in zip(names, g.x, labels)))
    for part, ids in g.split.items():
        (root / f'{part}.csv').write_text(im.lines(names[i] for i in ids))
    got = im.imported(root, tmp_path / 'ours', *(['--relabel'] if relabel else []))
    if not heading:
        check_words(g, got, SORTED[1:])
        got['labels'] = g.y
    g.check(got)
    assert not relabel or stored_names(got) == g.names()
    trains(tmp_path / 'ours', tmp_path)


def test_tables_of_nodes_that_are_none(tmp_path):
    g = Theirs(9)
    root = im.write_npy(tmp_path / 'theirs', edge_index=g.edges)
    (root / 'nodes.csv').write_text('id,f0,label\n' + im.table([i + 1, 0.5, y] for i, y in enumerate(g.y)))
    im.refused(4, root, tmp_path / 'ours', says=['nodes.csv: line 2', '--relabel'])
    (root / 'nodes.csv').write_text('id,f0,height\n' + im.table([i, 0.5, y] for i, y in enumerate(g.y)))
    done = im.run('import', root, tmp_path / 'ours')
    assert done.returncode == 0 and 'nodes.csv' in done.stderr and 'label' in done.stderr
    assert 'features' not in im.arrays(tmp_path / 'ours')
    im.write_npy(root, x=g.x)
    (root / 'nodes.csv').write_text('id,label\n' + im.table(enumerate(g.y)))
    assert np.array_equal(im.imported(root, tmp_path / 'both')['labels'], g.y)
    (root / 'nodes.csv').write_text('id,f0,label\n' + im.table([i, 0.5, y] for i, y in enumerate(g.y)))
    im.refused(4, root, tmp_path / 'new', says=['nodes.csv', 'x.npy'])


@pytest.mark.parametrize('form', ['csr', 'csc', 'coo'])
def test_a_scipy_matrix(tmp_path, form):
    """In a directory, and alone: edges from rows to columns."""
    sparse = pytest.importorskip('scipy.sparse')
    g = Theirs()
    matrix = sparse.coo_matrix((np.ones(g.edges.shape[1]), g.edges), (g.nodes, g.nodes))
    matrix.sum_duplicates()
    g.edges = np.stack([matrix.row, matrix.col])
    parts = {f'{part}_mask': g.mask(part) for part in g.split}
    root = im.write_npy(tmp_path / 'theirs', x=g.x, y=g.y, **parts)
    sparse.save_npz(root / 'adj.npz', matrix.asformat(form), compressed=form != 'coo')
    g.check(im.imported(root, tmp_path / 'ours'))
    alone = im.imported(root / 'adj.npz', tmp_path / 'alone')
    assert np.array_equal(alone['indices'], im.arrays(tmp_path / 'ours')['indices'])
    if form == 'csr':
        trains(tmp_path / 'ours', tmp_path)
        np.savez(tmp_path / 'all.npz', x=g.x, y=g.y, **parts, **{key: value for key, value in np.load(root / 'adj.npz').items()})
        g.check(im.imported(tmp_path / 'all.npz', tmp_path / 'all'))


def test_scipy_matrices_that_are_none(tmp_path):
    sparse = pytest.importorskip('scipy.sparse')
    square = sparse.random(20, 20, 0.2, 'csr', random_state=1)
    for matrix, says in ((square.todia(), ['dia', 'tocsr']), (square.tobsr((4, 4)), ['bsr', 'tocsr']), (square[:, :7], ['20 x 7'])):
        sparse.save_npz(tmp_path / 'theirs.npz', matrix)
        im.refused(4, tmp_path / 'theirs.npz', tmp_path / 'ours', says=says)
    members = dict(np.load(tmp_path / 'theirs.npz'))
    np.savez(tmp_path / 'theirs.npz', **{**members, 'shape': np.array([20, 20]), 'indptr': members['indptr'][:-1]})
    im.refused(4, tmp_path / 'theirs.npz', tmp_path / 'ours', says=['19 nodes'])
    del members['indices']
    np.savez(tmp_path / 'theirs.npz', **{**members, 'shape': np.array([20, 20])})
    im.refused(4, tmp_path / 'theirs.npz', tmp_path / 'ours', says=['indices'])


def test_what_train_needs_is_named(tmp_path):
    source = im.write_npy(tmp_path / 'theirs', edge_index=np.array([[0, 1], [1, 2]]))
    done = im.run('import', source, tmp_path / 'ours')
    assert done.returncode == 0 and all(name in done.stderr for name in ('x.npy', 'y.npy', '--split'))
    im.write_npy(source, x=np.zeros((3, 2)), y=np.array([0, 1, 0]))
    im.imported(source, tmp_path / 'more')
    done = im.run('train', tmp_path / 'more', '--run', tmp_path / 'run')
    assert done.returncode == 2 and '--split 0.6,0.2,0.2' in done.stderr


def test_runs_and_datasets_in_each_others_place(tmp_path):
    g = Theirs()
    (tmp_path / 'theirs').mkdir()
    write_edges_and_arrays(tmp_path / 'theirs', g)
    data = tmp_path / 'ours'
    im.imported(tmp_path / 'theirs', data)
    run = trains(data, tmp_path)
    out = ('--out', tmp_path / 'out.npy')
    for words in (('train', run, '--run', tmp_path / 'new'), ('plan', run), ('inspect', run), ('bench', 'load', run),
                  ('evaluate', run, run), ('predict', run, run, *out)):
        done = im.run(*words)
        assert done.returncode == 2 and 'training run' in done.stderr, (words, done.stderr)
    for words in (('evaluate', data), ('predict', data, *out), ('train', '--resume', data), ('evaluate', data, run)):
        done = im.run(*words)
        assert done.returncode == 2 and 'is a dataset' in done.stderr, (words, done.stderr)
    im.refused(4, run, tmp_path / 'new', says=['training run'])
    done = im.run('train', tmp_path / 'theirs' / 'edges.csv', '--run', tmp_path / 'new')
    assert done.returncode == 2 and 'plimsoll import' in done.stderr
    assert not (tmp_path / 'new').exists() and not (tmp_path / 'out.npy').exists()


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp('trained')
    g = Theirs()
    (root / 'theirs').mkdir()
    write_edges_and_arrays(root / 'theirs', g)
    im.imported(root / 'theirs', root / 'ours')
    return root / 'ours', trains(root / 'ours', root)


def predicted(run, out, *words):
    done = im.run('predict', run, '--out', out, '--quiet', *words)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize('how', [[], ['--sampled']])
def test_predictions_with_ids(tmp_path, trained, how):
    data, run = trained
    test = np.load(data / 'test.npy')
    logits = np.load(predicted(run, tmp_path / 'a.npy', *how))
    assert np.array_equal(np.load(tmp_path / 'a.ids.npy'), test)
    chances = np.load(predicted(run, tmp_path / 'b.npy', '--kind', 'probabilities', *how))
    wanted = np.exp(logits - logits.max(1, keepdims=True))
    np.testing.assert_allclose(chances, wanted / wanted.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)
    for kind, array in (('logits', logits), ('probabilities', chances)):
        table = np.genfromtxt(predicted(run, tmp_path / f'{kind}.csv', '--kind', kind, *how), delimiter=',', skip_header=1)
        assert np.array_equal(table[:, 0], test) and np.array_equal(table[:, 1:].astype(np.float32), array)
    rows = list(csv.DictReader(predicted(run, tmp_path / 'c.csv', '--kind', 'classes', *how).open()))
    assert [int(row['predicted_class']) for row in rows] == list(logits.argmax(1)) and [int(row['id']) for row in rows] == list(test)
    predicted(run, tmp_path / 'c.csv', '--kind', 'logits', *how)  # replaces it


def test_predictions_of_all_nodes(tmp_path, trained):
    data, run = trained
    everything = np.load(predicted(run, tmp_path / 'a.npy', '--split', 'all'))
    assert len(everything) == 120 and not (tmp_path / 'a.ids.npy').exists()
    rows = list(csv.DictReader(predicted(run, tmp_path / 'a.csv', '--split', 'all').open()))
    assert [int(row['id']) for row in rows] == list(range(120)) and list(rows[0]) == ['id', 'output_0', 'output_1', 'output_2']


def test_endings_of_predictions(tmp_path, trained):
    _, run = trained
    (tmp_path / 'mine.csv').write_text('name,mark\n')
    (tmp_path / 'labels.csv').write_text('id,class\n7,1\n')  # as import takes it
    (tmp_path / 'b.ids.npy').write_text('mine')
    for name in ('out', 'out.txt', 'out.npz', 'mine.csv', 'labels.csv', 'b.npy'):
        done = im.run('predict', run, '--out', tmp_path / name)
        assert done.returncode == 2, (name, done.stderr)
    assert sorted(path.name for path in tmp_path.iterdir()) == ['b.ids.npy', 'labels.csv', 'mine.csv']


def test_ids_of_other_predictions_do_not_stay(tmp_path, trained):
    _, run = trained
    predicted(run, tmp_path / 'a.npy')
    assert im.run('predict', run, '--out', tmp_path / 'a.npy', '--split', 'all').returncode == 2
    (tmp_path / 'a.ids.npy').unlink()
    predicted(run, tmp_path / 'a.npy', '--split', 'all')


def test_probabilities_of_labels(tmp_path):
    g = Theirs()
    both = np.stack([g.y == 0, g.y == 1], 1).astype(np.float32)
    source = im.write_npy(tmp_path / 'theirs', edge_index=g.edges, x=g.x, y=both)
    im.imported(source, tmp_path / 'ours', '--split', '0.6,0.2,0.2')
    im.write_npy(source, y=g.x[:, :1])
    im.imported(source, tmp_path / 'values', '--split', '0.6,0.2,0.2')
    for name in ('ours', 'values'):
        done = im.run('train', tmp_path / name, '--hidden', 8, '--epochs', 1, '--run', tmp_path / f'run-{name}', '--quiet')
        assert done.returncode == 0, done.stderr
    logits = np.load(predicted(tmp_path / 'run-ours', tmp_path / 'a.npy'))
    chances = np.load(predicted(tmp_path / 'run-ours', tmp_path / 'b.npy', '--kind', 'probabilities'))
    np.testing.assert_allclose(chances, 1 / (1 + np.exp(-logits)), rtol=1e-5)
    done = im.run('predict', tmp_path / 'run-values', '--out', tmp_path / 'c.npy', '--kind', 'probabilities')
    assert done.returncode == 2 and 'logits' in done.stderr
