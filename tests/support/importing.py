"""What the tests of `plimsoll import` share: sources of every kind, and the answer by brute force."""
import gzip
import hashlib
import io
import os
import pathlib
import subprocess
import zipfile

import numpy as np
import pytest

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
SOURCE = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', '.'))


def real_data():
    """The directory of real data sets, or a loud skip."""
    path = pathlib.Path(os.environ.get('PLIMSOLL_TEST_DATA', SOURCE.parent / 'shared' / 'data'))
    if not path.is_dir():
        pytest.skip(f'real data is not at {path}: set PLIMSOLL_TEST_DATA')
    return path


def run(*arguments):
    return subprocess.run([PLIMSOLL, *map(str, arguments)], capture_output=True, text=True, timeout=1500)


def imported(source, target, *options):
    """Imports and returns the arrays by name."""
    done = run('import', source, target, '--quiet', *options)
    assert done.returncode == 0, done.stderr
    return arrays(target)


def arrays(target):
    return {path.stem: np.load(path) for path in pathlib.Path(target).glob('*.npy')}


def digests(target):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(pathlib.Path(target).iterdir())}


def refused(code, source, target, *options, says=()):
    """Fails with `code`, says each of `says`, and leaves nothing behind."""
    target = pathlib.Path(target)
    done = run('import', source, target, '--quiet', *options)
    assert done.returncode == code, (done.returncode, done.stderr)
    for text in says:
        assert str(text) in done.stderr, (text, done.stderr)
    assert not target.exists()
    assert [path.name for path in target.parent.iterdir() if target.name in path.name] == []
    return done.stderr


def csc(edges, num_nodes, symmetrise=False, remove_duplicates=False, self_loops='keep'):
    """The in-neighbours of every node, ascending: (indptr, indices)."""
    source, destination = edges
    if symmetrise:
        source, destination = np.concatenate([source, destination]), np.concatenate([destination, source])
    if self_loops != 'keep':
        others = source != destination
        source, destination = source[others], destination[others]
    if self_loops == 'add':
        every = np.arange(num_nodes)
        source, destination = np.concatenate([source, every]), np.concatenate([destination, every])
    order = np.lexsort((source, destination))
    source, destination = source[order], destination[order]
    if (symmetrise or remove_duplicates) and len(source):
        first = np.ones(len(source), bool)
        first[1:] = (source[1:] != source[:-1]) | (destination[1:] != destination[:-1])
        source, destination = source[first], destination[first]
    indptr = np.zeros(num_nodes + 1, np.int64)
    np.cumsum(np.bincount(destination, minlength=num_nodes), out=indptr[1:])
    return indptr, source.astype(np.int32)


OPTIONS = [
    {}, {'symmetrise': True}, {'remove_duplicates': True}, {'self_loops': 'add'}, {'self_loops': 'remove'},
    {'symmetrise': True, 'self_loops': 'add'}, {'remove_duplicates': True, 'self_loops': 'remove'},
]


def flags(options):
    words = []
    for name, value in options.items():
        words += ['--' + name.replace('_', '-')] + ([value] if value is not True else [])
    return words


class Graph:
    """A random graph with everything that a source can hold."""

    def __init__(self, seed=0, nodes=60, edges=400, features=5, classes=4):
        draw = np.random.default_rng(seed)
        self.num_nodes = nodes
        top = max(1, nodes * 9 // 10)  # the last nodes stay isolated
        self.edges = draw.integers(0, top, (2, edges))
        if edges >= 8:
            self.edges[:, : edges // 8] = self.edges[:, edges // 8: edges // 8 * 2]  # duplicates
            self.edges[1, -(edges // 10):] = self.edges[0, -(edges // 10):]  # self-loops
        self.features = draw.standard_normal((nodes, features)).astype(np.float32)
        self.labels = draw.integers(0, classes, nodes)
        self.labels[draw.random(nodes) < 0.3] = -1
        self.labels[:1] = classes - 1
        order = draw.permutation(nodes)
        self.split = dict(zip(('train', 'valid', 'test'), np.split(order, [nodes // 2, nodes * 3 // 4])))

    def float_labels(self):
        return np.where(self.labels < 0, np.nan, self.labels).astype(np.float32)[:, None]

    def check(self, got, options=None):
        indptr, indices = csc(self.edges, self.num_nodes, **(options or {}))
        assert np.array_equal(got['indptr'], indptr)
        assert np.array_equal(got['indices'], indices)
        assert got['indptr'].dtype == np.int64 and got['indices'].dtype == np.int32


COLUMN_NAMES = {'features': 'edge_attr', 'weight': 'edge_weight', 'type': 'edge_type', 'time': 'edge_time'}


class Columns(Graph):
    """A random multigraph whose edges carry everything."""

    def __init__(self, seed=0, nodes=60, edges=400, width=3, dtype=np.float32, hub=False):
        super().__init__(seed, nodes, edges)
        draw = np.random.default_rng(seed + 1000)
        if hub:
            self.edges[1, : edges // 2] = 7
        shape = (edges, width) if width else (edges,)
        whole = np.dtype(dtype).kind in 'iu'
        self.columns = {
            'features': draw.integers(-5, 50, shape).astype(dtype) if whole else draw.standard_normal(shape).astype(np.float32).astype(dtype),
            'weight': draw.random(edges).astype(np.float32),
            'type': draw.integers(0, 5, edges),
            'time': draw.integers(-1000, 1000, edges),
        }
        self.columns['type'][:1] = 4
        self.node_time = draw.integers(0, 10**12, nodes)

    def arrays(self):
        return {COLUMN_NAMES[name]: values for name, values in self.columns.items()}

    def expected(self, symmetrise=False, remove_duplicates=False, self_loops='keep', duplicates='first'):
        """indptr, indices and the columns in their order, edge by edge."""
        numbers = np.arange(self.edges.shape[1])
        listed = [(d, s, 2 * i) for s, d, i in zip(*self.edges, numbers)]
        if symmetrise:
            listed += [(s, d, 2 * i + 1) for s, d, i in zip(*self.edges, numbers) if s != d]
        if self_loops == 'remove':
            listed = [edge for edge in listed if edge[0] != edge[1]]
        listed.sort()
        groups = []
        for d, s, i in listed:
            single = not (symmetrise or remove_duplicates or duplicates != 'first')
            if not single and groups and groups[-1][:2] == (d, s):
                groups[-1][2].append(i // 2)
            else:
                groups.append((d, s, [i // 2]))
        indptr = np.zeros(self.num_nodes + 1, np.int64)
        for d, _, _ in groups:
            indptr[d + 1:] += 1
        found = {'indices': np.array([s for _, s, _ in groups], np.int32)}
        for name, values in {**self.columns, 'id': numbers}.items():
            rows = []
            for _, _, group in groups:
                chosen = values[group]
                if duplicates == 'sum' and name in ('features', 'weight'):
                    wide = chosen.astype(np.float64 if chosen.dtype.kind == 'f' else np.int64)
                    total = wide[0]
                    for value in wide[1:]:
                        total = total + value
                    rows.append(np.asarray(total))
                elif duplicates == 'largest' and name in ('features', 'weight', 'time'):
                    rows.append(chosen.max(axis=0))
                else:
                    rows.append(chosen[0])
            found['edge_' + name] = np.array(rows).reshape(len(rows), *values.shape[1:])
        return indptr, found

    def check_columns(self, got, options=None, without=('id',), stored=None):
        indptr, expected = self.expected(**(options or {}))
        assert np.array_equal(got['indptr'], indptr)
        for name, values in expected.items():
            if name.removeprefix('edge_') in without:
                assert name not in got
                continue
            own = self.columns.get(name.removeprefix('edge_'), values).dtype
            kind = {'edge_features': stored, 'edge_type': np.int32}.get(name) or own
            assert np.array_equal(got[name], values.astype(kind)), name
            assert got[name].dtype == kind and got[name].shape == values.shape, name


def gzipped(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def lines(values, form='{}'):
    return ''.join(form.format(value) + '\n' for value in values)


def table(rows):
    return ''.join(','.join(str(value) for value in row) + '\n' for row in rows)


def npz(**named):
    """The bytes of a compressed npz, members in the order given."""
    out = io.BytesIO()
    np.savez_compressed(out, **named)
    return out.getvalue()


def ogb_arrays(graph, order=('edge_index', 'node_feat', 'node_year', 'num_nodes_list', 'num_edges_list')):
    named = {
        'edge_index': graph.edges.astype(np.int64),
        'node_feat': graph.features,
        'node_year': np.full((graph.num_nodes, 1), 2013),
        'num_nodes_list': np.array([graph.num_nodes]),
        'num_edges_list': np.array([graph.edges.shape[1]]),
    }
    return {name: named[name] for name in order}


def write_splits(root, split, name='time'):
    for part, ids in split.items():
        gzipped(root / 'split' / name / f'{part}.csv.gz', lines(ids))


def write_ogb(root, graph, **kwargs):
    """OGB's binary layout, unpacked."""
    (root / 'raw').mkdir(parents=True)
    (root / 'raw' / 'data.npz').write_bytes(npz(**ogb_arrays(graph, **kwargs)))
    (root / 'raw' / 'node-label.npz').write_bytes(npz(node_label=graph.float_labels()))
    write_splits(root, graph.split)
    return root


def zip_tree(root, path, order=None, prefix='made-bin/'):
    """A deflated zip of a directory; `order` gives the members' order."""
    names = order if order is not None else sorted(str(p.relative_to(root)) for p in root.rglob('*') if p.is_file())
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.write(root / name, prefix + name)
    return path


def write_ogb_csv(root, graph):
    gzipped(root / 'raw' / 'edge.csv.gz', table(graph.edges.T))
    gzipped(root / 'raw' / 'node-feat.csv.gz', table(graph.features.tolist()))
    gzipped(root / 'raw' / 'node-label.csv.gz', lines('nan' if v < 0 else v for v in graph.labels))
    gzipped(root / 'raw' / 'num-node-list.csv.gz', f'{graph.num_nodes}\n')
    gzipped(root / 'raw' / 'num-edge-list.csv.gz', f'{graph.edges.shape[1]}\n')
    write_splits(root, graph.split)
    return root


def write_npy(root, **named):
    root.mkdir(parents=True, exist_ok=True)
    for name, array in named.items():
        np.save(root / f'{name}.npy', array)
    return root


def write_graphbolt(root, graph, edges='csv', seeds='seeds'):
    write_npy(root, feat=graph.features, edges=graph.edges)
    (root / 'edges.csv').write_text(table(graph.edges.T))
    text = ['dataset_name: made', 'graph:', '  nodes:', f'    - num: {graph.num_nodes}', '  edges:',
            f'    - format: {"csv" if edges == "csv" else "numpy"}', f'      path: edges.{edges}',
            'feature_data:', '  - domain: node', '    type: null', '    name: feat', '    format: numpy',
            '    in_memory: false', '    path: feat.npy', 'tasks:', '  - name: node_classification',
            '    num_classes: 4']
    for part, name in zip(('train', 'valid', 'test'), ('train_set', 'validation_set', 'test_set')):
        ids = graph.split[part]
        write_npy(root, **{f'{part}_ids': ids, f'{part}_labels': np.abs(graph.labels[ids])})
        text += [f'    {name}:', '      - data:',
                 f'          - name: {seeds}', '            format: numpy', f'            path: {part}_ids.npy',
                 '          - name: labels', '            format: numpy', f'            path: {part}_labels.npy']
    (root / 'metadata.yaml').write_text('\n'.join(text) + '\n')
    return root


class Graphs:
    """Many random graphs, some without edges or nodes."""

    def __init__(self, seed=0, count=30, float_labels=False, least=0):
        draw = np.random.default_rng(seed)
        self.nodes = draw.integers(least, 9, count)
        self.nodes[0] = 5
        self.num_edges = np.where(self.nodes > 0, draw.integers(0, 12, count), 0)
        self.local = [draw.integers(0, n, (2, e)) for n, e in zip(self.nodes, self.num_edges)]
        self.node_ptr = np.concatenate([[0], np.cumsum(self.nodes)])
        self.edge_ptr = np.concatenate([[0], np.cumsum(self.num_edges)])
        self.num_nodes = int(self.node_ptr[-1])
        self.edges = np.concatenate([e + first for e, first in zip(self.local, self.node_ptr)], axis=1)
        self.local = np.concatenate(self.local, axis=1)
        self.labels = draw.random(count).astype(np.float32) if float_labels else draw.integers(0, 3, count)
        self.categories = np.stack([draw.integers(0, 3, self.num_nodes), draw.integers(0, 2, self.num_nodes)], 1)
        self.split = dict(zip(('train', 'valid', 'test'), np.split(draw.permutation(count), [count // 2, count // 4 * 3])))

    def one_hot(self):
        parts = [np.eye(column.max() + 1, dtype=np.float32)[column] for column in self.categories.T]
        return np.concatenate(parts, axis=1)

    check = Graph.check


def write_ragged(root, graphs):
    write_npy(root, node_ptr=graphs.node_ptr, edge_ptr=graphs.edge_ptr, edge_index_local=graphs.local,
              graph_label=graphs.labels, node_feat_int=graphs.categories)
    return write_npy(root, **{f'{part}_idx': ids for part, ids in graphs.split.items()})


def write_ogb_graphs(root, graphs):
    """OGB's csv layout of many graphs."""
    gzipped(root / 'raw' / 'edge.csv.gz', table(graphs.local.T))
    gzipped(root / 'raw' / 'node-feat.csv.gz', table(graphs.categories))
    gzipped(root / 'raw' / 'graph-label.csv.gz', lines(graphs.labels.tolist()))
    gzipped(root / 'raw' / 'num-node-list.csv.gz', lines(graphs.nodes))
    gzipped(root / 'raw' / 'num-edge-list.csv.gz', lines(graphs.num_edges))
    write_splits(root, graphs.split, 'scaffold')
    return root


def minimum_memory(tmp_path, source, *options):
    """The least --memory in whole MiB with which an import succeeds, found by trying."""
    low, high = 1, 1024
    while low < high:
        middle = (low + high) // 2
        target = tmp_path / f'tried-{middle}'
        done = run('import', source, target, '--quiet', '--memory', f'{middle}M', *options)
        assert done.returncode in (0, 3), done.stderr
        if done.returncode == 0:
            high = middle
            for path in target.iterdir():
                path.unlink()
            target.rmdir()
        else:
            assert not target.exists()
            low = middle + 1
    # A sanitizer's own memory differs from run to run.
    sanitized = b'__asan_init' in pathlib.Path(PLIMSOLL).read_bytes()
    return f'{low + 4 * sanitized}M'
