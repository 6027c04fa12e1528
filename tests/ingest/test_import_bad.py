# labels: asan
"""Bad input ends with exit code 4, names the file and the place, and leaves nothing behind."""
import gzip
import io
import os
import pathlib
import subprocess
import sys
import zipfile

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402


def refused(tmp_path, source, *says, options=(), code=4):
    return im.refused(code, source, tmp_path / 'out', *options, says=says)


@pytest.mark.parametrize('at', [0, 137, 399])
@pytest.mark.parametrize('value', [60, -1, 2**40, 2**63 - 1, -2**63])
@pytest.mark.parametrize('row', [0, 1])
@pytest.mark.parametrize('kind', ['directory', 'zip', 'npy', 'pairs'])
def test_ids_out_of_range(tmp_path, kind, row, value, at):
    graph = im.Graph(1)
    graph.edges[row, at] = value
    if kind == 'npy':
        source = im.write_npy(tmp_path / 'bad', edge_index=graph.edges, x=graph.features)
    elif kind == 'pairs':
        source = im.write_npy(tmp_path / 'bad', edge_index=graph.edges.T.copy(), x=graph.features)
    else:
        source = im.write_ogb(tmp_path / 'bad', graph)
    if kind == 'zip':
        source = im.zip_tree(source, tmp_path / 'bad.zip')
    refused(tmp_path, source, 'edge_index.npy', f'edge {at}:', str(value))


def test_earliest_bad_id_is_named(tmp_path):
    graph = im.Graph(2, nodes=1000, edges=500_000)
    graph.edges[:, 300_000:] = 5000
    graph.edges[1, 123_456] = 1000
    source = im.write_npy(tmp_path / 'bad', edge_index=graph.edges, x=graph.features)
    for threads in (1, 8):
        refused(tmp_path, source, 'edge 123456:', '1000', options=['--threads', threads])


@pytest.mark.parametrize('text, says', [
    ('0,1\n1,x\n', ['line 2', 'column 2']),
    ('0,1\n1\n', ['line 2']),
    ('0,1\n1,2,3\n', ['line 2']),
    ('0,1\n1,2.5\n', ['line 2']),
    ('0,1\n-1,2\n', ['line 2', '-1']),
    ('0,1\n99999999999999999999,2\n', ['line 2']),
    ('0\n1\n', ['line 1', 'two']),
    ('\x00\x01\x02', []),
    ('', ['--nodes']),
])
def test_texts(tmp_path, text, says):
    path = tmp_path / 'edges.txt'
    path.write_text(text)
    refused(tmp_path, path, 'edges.txt', *says)


def test_text_with_an_id_past_the_nodes_given(tmp_path):
    path = tmp_path / 'edges.txt'
    path.write_text('# edges\n0 1\n1 2\n2 7\n')
    refused(tmp_path, path, 'edges.txt: line 4', '7', '--nodes', options=['--nodes', '5'])


@pytest.mark.parametrize('bad, says, options', [('-3 1', '-3', []), ('1 9', '9', ['--nodes', '5'])])
def test_lines_are_counted_through_comments(tmp_path, bad, says, options):
    path = tmp_path / 'edges.txt'
    path.write_text('# edges\nfrom to\n0 1\n\n% more\n1 2\n# last\n' + bad + '\n')
    refused(tmp_path, path, 'edges.txt: line 8: ', says, options=options)


def test_lines_of_features_and_labels_are_counted_through_comments(tmp_path):
    source = im.write_ogb_csv(tmp_path / 'bad', im.Graph(18))
    for bad in ('nan', '1e39'):
        rows = ['0.5,1'] * 60
        rows[30] = f'# thirty rows\n\n0.5,{bad}'
        im.gzipped(source / 'raw' / 'node-feat.csv.gz', im.lines(rows))
        refused(tmp_path, source, 'node-feat.csv.gz: line 33, column 2: ')
    rows = ['1'] * 60
    rows[30] = '# thirty rows\n\n-7'
    im.gzipped(source / 'raw' / 'node-label.csv.gz', im.lines(rows))
    refused(tmp_path, source, 'node-label.csv.gz: line 33: -7')


@pytest.mark.parametrize('first', ['1 x2', 'x1 2', '-a b'])
def test_a_typing_error_in_the_first_line_is_no_heading(tmp_path, first):
    path = tmp_path / 'edges.txt'
    path.write_text(first + '\n0 1\n')
    refused(tmp_path, path, 'edges.txt: line 1', '--relabel')


@pytest.mark.parametrize('kind', ['gz', 'zst'])
@pytest.mark.parametrize('keep', [0.3, 0.9, 0.999])
def test_truncated_compressed_text(tmp_path, kind, keep):
    draw = np.random.default_rng(3)
    text = im.table(draw.integers(0, 100, (20_000, 2))).encode()
    path = tmp_path / f'edges.{kind}'
    if kind == 'gz':
        path.write_bytes(gzip.compress(text))
    else:
        path.write_bytes(subprocess.run(['zstd', '-q', '-c'], input=text, capture_output=True, check=True).stdout)
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * keep)])
    refused(tmp_path, path, path.name)


@pytest.mark.parametrize('member', ['raw/data.npz', 'raw/node-label.npz', 'split/time/train.csv.gz'])
@pytest.mark.parametrize('keep', [0.2, 0.6, 0.95])
def test_truncated_members(tmp_path, member, keep):
    source = im.write_ogb(tmp_path / 'bad', im.Graph(4, edges=4000))
    path = source / member
    path.write_bytes(path.read_bytes()[:int(path.stat().st_size * keep)])
    refused(tmp_path, source, path.name)
    archive = im.zip_tree(source, tmp_path / 'bad.zip')
    refused(tmp_path, archive, path.name)


@pytest.mark.parametrize('keep', np.linspace(0.05, 0.95, 10))
def test_truncated_archive(tmp_path, keep):
    source = im.write_ogb(tmp_path / 'whole', im.Graph(5, edges=4000))
    archive = im.zip_tree(source, tmp_path / 'bad.zip')
    archive.write_bytes(archive.read_bytes()[:int(archive.stat().st_size * keep)])
    refused(tmp_path, archive, 'bad.zip')


@pytest.mark.parametrize('seed', range(20))
def test_flipped_byte_in_the_archive_is_found_or_harmless(tmp_path, seed):
    graph = im.Graph(6, edges=4000)
    source = im.write_ogb(tmp_path / 'whole', graph)
    archive = im.zip_tree(source, tmp_path / 'bad.zip')
    data = bytearray(archive.read_bytes())
    draw = np.random.default_rng(seed)
    data[draw.integers(0, len(data) * 9 // 10)] ^= 1 << draw.integers(0, 8)
    archive.write_bytes(data)
    done = im.run('import', archive, tmp_path / 'out', '--quiet')
    if done.returncode == 0:  # a byte that no array depends on, such as a time or a member's name
        graph.check(im.arrays(tmp_path / 'out'))
    else:
        assert done.returncode == 4 and 'bad.zip' in done.stderr
        assert not (tmp_path / 'out').exists()


def npy_bytes(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.mark.parametrize('name, change, says', [
    ('edge_index', lambda a: a[:, :-1], ['399', '400']),
    ('edge_index', lambda a: a.ravel(), ['[2, E]']),
    ('edge_index', lambda a: np.stack([a[0], a[1], a[1]]), ['[2, E]']),
    ('edge_index', lambda a: a.astype(np.float64), ['integers']),
    ('node_feat', lambda a: a[:-1], ['59', '60']),
    ('node_feat', lambda a: a[None], ['dimensions']),
    ('node_feat', lambda a: np.where(np.arange(a.size).reshape(a.shape) == 33, np.nan, a),
     ['row 6, column 3', 'NaN']),
    ('num_nodes_list', lambda a: a - 1, ['59', '60']),
    ('num_nodes_list', lambda a: a - 61, []),
    ('num_edges_list', lambda a: a + 1, ['401', '400']),
])
def test_arrays_that_do_not_fit(tmp_path, name, change, says):
    graph = im.Graph(7)
    named = im.ogb_arrays(graph)
    named[name] = change(named[name])
    source = im.write_ogb(tmp_path / 'bad', graph)
    (source / 'raw' / 'data.npz').write_bytes(im.npz(**named))
    refused(tmp_path, source, f'{name}.npy', *says)


@pytest.mark.parametrize('packed', [False, True])
@pytest.mark.parametrize('name, text, says', [
    ('num-edge-list', '399\n', ['edge.csv.gz', '399']), ('num-edge-list', '401\n', ['edge.csv.gz', '400', '401']),
    ('num-edge-list', '200\n200\n', ['num-edge-list']), ('num-edge-list', '', ['num-edge-list', 'empty']),
    ('num-node-list', '-60\n', ['num-node-list']), ('num-node-list', '50\n', ['50']),
    ('num-node-list', '30\n30\n', ['num-node-list']), ('node-feat', '1,2\n3\n', ['node-feat.csv.gz', 'line 2']),
    ('node-feat', '1,2\n3,nan\n', ['node-feat.csv.gz', 'line 2, column 2', 'NaN']),
    ('node-feat', '1,2\n3,4\n', ['node-feat.csv.gz', '2 rows', '60']), ('node-label', '1\n2\n', ['node-label.csv.gz', '2']),
    ('node-label', '1\nx\n', ['node-label.csv.gz', 'line 2']), ('edge', '0,1\n2\n', ['edge.csv.gz', 'line 2']),
])
def test_csv_layout(tmp_path, name, text, says, packed):
    source = im.write_ogb_csv(tmp_path / 'bad', im.Graph(16))
    im.gzipped(source / 'raw' / f'{name}.csv.gz', text)
    if packed:
        source = im.zip_tree(source, tmp_path / 'bad.zip', prefix='bad/')
    refused(tmp_path, source, *says)


def test_overflow_to_f16(tmp_path):
    graph = im.Graph(8)
    graph.features[17, 2] = -65520
    source = im.write_ogb(tmp_path / 'bad', graph)
    refused(tmp_path, source, 'node_feat.npy', 'row 17, column 2', '-65520', '--features f32',
            options=['--features', 'f16'])
    graph.features[17, 2] = 65519
    (source / 'raw' / 'data.npz').write_bytes(im.npz(**im.ogb_arrays(graph)))
    assert im.imported(source, tmp_path / 'out', '--features', 'f16')['features'][17, 2] == 65504


@pytest.mark.parametrize('labels, says', [
    (np.full((60, 1), -2.0), ['row 0', '-2']),
    (np.full((59, 1), 1.0), ['59', '60']),
    (np.full((60, 1), 1e15), ['row 0']),
])
def test_labels(tmp_path, labels, says):
    source = im.write_ogb(tmp_path / 'bad', im.Graph(9))
    (source / 'raw' / 'node-label.npz').write_bytes(im.npz(node_label=labels))
    refused(tmp_path, source, 'node_label.npy', *says)


@pytest.mark.parametrize('text, says', [
    ('3\n60\n', ['60']), ('3\n-1\n', ['-1']), ('3\nseven\n', ['line 2']), ('3,4\n', ['line 1']),
])
def test_splits(tmp_path, text, says):
    source = im.write_ogb(tmp_path / 'bad', im.Graph(10))
    im.gzipped(source / 'split' / 'time' / 'valid.csv.gz', text)
    refused(tmp_path, source, 'valid.csv.gz', *says)


@pytest.mark.parametrize('what', ['magic', 'dtype', 'object', 'shape', 'header', 'short', 'long', 'empty'])
def test_npy_headers(tmp_path, what):
    graph = im.Graph(11)
    good = npy_bytes(graph.edges)
    bad = {
        'magic': b'\x93NUMPX' + good[6:],
        'dtype': good.replace(b"'<i8'", b"'>i8'"),
        'object': good.replace(b"'<i8'", b"'|O' "),
        'shape': good.replace(b'(2, 400)', b'(2, 4e9)'),
        'header': good[:8] + b'\xff\xff' + good[10:],
        'short': good[:-8],
        'long': good + b'\0' * 8,
        'empty': b'',
    }[what]
    source = im.write_npy(tmp_path / 'bad', x=graph.features)
    (source / 'edge_index.npy').write_bytes(bad)
    refused(tmp_path, source, 'edge_index.npy')


@pytest.mark.parametrize('indptr, says', [
    ([0, 2, 1, 4], ['element 2']), ([1, 2, 3, 4], ['element 0']), ([0, 1, 2, 3], ['4 indices']), ([0, 1, 2, 9], ['element 3']),
])
def test_csc_offsets(tmp_path, indptr, says):
    source = im.write_npy(tmp_path / 'bad', indptr=np.array(indptr), indices=np.array([0, 1, 2, 0]))
    refused(tmp_path, source, 'indptr.npy', *says)


@pytest.mark.parametrize('name, change, says', [
    ('node_ptr', lambda a: a[::-1].copy(), ['begin with 0']),
    ('edge_ptr', lambda a: a[:-1], ['graphs']),
    ('edge_ptr', lambda a: np.concatenate([a[:3], [0], a[4:]]), ['element 3']),
    ('edge_index_local', lambda a: a + 1, ['is not in graph']),
    ('graph_label', lambda a: a[:-1], ['29', '30']),
    ('node_feat_int', lambda a: a - 1, ['category']),
    ('node_feat_int', lambda a: a[:-1], ['nodes']),
    ('train_idx', lambda a: a + 30, ['30']),
])
def test_ragged(tmp_path, name, change, says):
    source = im.write_ragged(tmp_path / 'bad', im.Graphs(12))
    np.save(source / f'{name}.npy', change(np.load(source / f'{name}.npy')))
    refused(tmp_path, source, f'{name}.npy', *says)


@pytest.mark.parametrize('change, code, says', [
    (lambda t: t.replace('    - num: 60', '    - num: sixty'), 4, ['line 4']),
    (lambda t: t.replace('    - num: 60', '    - num: 50'), 4, ['edges.csv: line ', '50 nodes']),
    (lambda t: t.replace('graph:', 'graph: ['), 4, ['line']),
    (lambda t: t.replace('path: edges.csv', 'path: nowhere.csv'), 1, ['nowhere.csv']),
    (lambda t: t.replace('path: edges.csv', 'oath: edges.csv'), 4, ['names no edges']),
    (lambda t: t.replace('  edges:', '    - num: 3\n  edges:'), 1, ['several types']),
    (lambda t: t.replace('    format: numpy\n    in_memory', '    format: torch\n    in_memory'), 1, ['torch']),
    (lambda t: 'graph_topology:\n  type: FusedCSCSamplingGraph\n  path: x.pt\n' + t, 1, ['preprocessed']),
    (lambda t: 'a: &a [x]\nb: *a\n' + t, 1, ['aliases']),
    (lambda t: 'a: ' + '[' * 40 + ']' * 40 + '\n' + t, 4, ['deeply']),
    (lambda t: t + '#' * 300_000, 4, ['larger']),
])
def test_graphbolt(tmp_path, change, code, says):
    source = im.write_graphbolt(tmp_path / 'bad', im.Graph(13))
    path = source / 'metadata.yaml'
    path.write_text(change(path.read_text()))
    refused(tmp_path, source, *says, code=code)


def test_graphbolt_labels_of_another_length(tmp_path):
    source = im.write_graphbolt(tmp_path / 'bad', im.Graph(14))
    np.save(source / 'test_labels.npy', np.zeros(3, int))
    refused(tmp_path, source, 'test_labels.npy', 'test_ids.npy')


def test_graphs_with_one_of_their_counts(tmp_path):
    source = im.write_ogb_graphs(tmp_path / 'bad', im.Graphs(16))
    edge_counts = source / 'raw' / 'num-edge-list.csv.gz'
    edge_counts.rename(tmp_path / 'kept')
    refused(tmp_path, source, 'num-node-list', 'how many edges each graph has')
    (source / 'raw' / 'num-node-list.csv.gz').unlink()
    (tmp_path / 'kept').rename(edge_counts)
    refused(tmp_path, source, 'num-edge-list', 'how many nodes each graph has')


@pytest.mark.parametrize('value', [-2**63, 2**63 - 1, 2**54])
@pytest.mark.parametrize('columns', [1, 3])
def test_integers_too_large_for_labels(tmp_path, value, columns):
    graph = im.Graph(17)
    labels = np.repeat(graph.labels[:, None], columns, axis=1)
    labels[23, -1] = value
    source = im.write_npy(tmp_path / 'bad', edge_index=graph.edges, node_label=labels)
    refused(tmp_path, source, 'node_label.npy', 'row 23', 'for unlabelled')


def test_text_label_too_large_for_a_class(tmp_path):
    source = im.write_ogb_csv(tmp_path / 'bad', im.Graph(18))
    im.gzipped(source / 'raw' / 'node-label.csv.gz', im.lines([1] * 20 + [-2**63] + [0] * 39))
    refused(tmp_path, source, 'node-label.csv.gz', 'line 21', 'write -1 for unlabelled')


def test_places_beside_the_dataset(tmp_path):
    first = im.write_ogb(tmp_path / 'all' / 'first', im.Graph(19))
    refused(tmp_path, first / 'raw', 'directory above')
    im.write_ogb(tmp_path / 'all' / 'second', im.Graph(19))
    refused(tmp_path, tmp_path / 'all', 'several datasets', 'first', 'second')
    (tmp_path / 'data.pt').write_bytes((first / 'raw' / 'data.npz').read_bytes())
    refused(tmp_path, tmp_path / 'data.pt', 'PyTorch', 'plimsoll.from_pyg(', 'plimsoll.from_pt_files(')


def test_pipe_as_source(tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    refused(tmp_path, tmp_path / 'pipe', 'neither a file nor a directory')


def test_wrong_use(tmp_path):
    (tmp_path / 'out').mkdir()
    source = im.write_ogb(tmp_path / 'ogb', im.Graph(15))
    assert im.run('import', source, tmp_path / 'out').returncode == 2
    assert im.run('import', tmp_path / 'nowhere', tmp_path / 'new').returncode == 1
    assert im.run('import', source).returncode == 2
    assert im.run('import', source, tmp_path / 'new', '--relabel').returncode == 2
    assert im.run('import', source, tmp_path / 'new', '--features', 'f8').returncode == 2
    (tmp_path / 'empty').mkdir()
    assert im.run('import', tmp_path / 'empty', tmp_path / 'new').returncode == 4
    assert not (tmp_path / 'new').exists()


def test_zip_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / 'other.zip', 'w') as archive:
        archive.writestr('readme.txt', 'hello')
    refused(tmp_path, tmp_path / 'other.zip', 'no edges')
