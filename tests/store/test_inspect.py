"""`plimsoll inspect` on datasets that NumPy wrote from docs/format.md's words alone, so both are held to each other."""
import ctypes
import ctypes.util
import json
import os
import pathlib
import re
import shutil
import stat
import struct
import subprocess
import sys

import numpy as np
import pytest

PLIMSOLL = os.environ.get('PLIMSOLL', 'plimsoll')
SOURCE = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', pathlib.Path(__file__).resolve().parents[2]))
CHUNK = 64 << 20

XXHASH = ctypes.CDLL(ctypes.util.find_library('xxhash') or 'libxxhash.so.0')
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data):
    return XXHASH.XXH3_64bits(data, len(data))


def npy(array):
    """The file's bytes: NumPy's header, padded so that the data begins at 4,096."""
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (array.dtype.str, array.shape)
    head = b'\x93NUMPY\x01\x00' + struct.pack('<H', 4096 - 10)
    return head + text.encode().ljust(4096 - 10 - 1) + b'\n' + array.tobytes()


def degrees_log2(degrees):
    return np.bincount(np.frexp(degrees.astype(float))[1]).tolist()


def write(folder, arrays, num_classes=0, num_graphs=0, **changes):
    """A dataset directory as docs/format.md says. `changes` replaces keys of dataset.json."""
    folder.mkdir()
    files, identity = [], b''
    for name, array in sorted((name + '.npy', array) for name, array in arrays.items()):
        data = npy(array)
        (folder / name).write_bytes(data)
        sums = [xxh3(data[i:i + CHUNK]) for i in range(0, len(data), CHUNK)]
        files.append({'name': name, 'dtype': array.dtype.str, 'shape': list(array.shape), 'bytes': len(data),
                      'checksums': ['%016x' % value for value in sums]})
        identity += name.encode() + b'\0' + array.dtype.str.encode() + b'\0'
        identity += struct.pack('<%dq' % (array.ndim + 2), array.ndim, *array.shape, len(data))
        identity += struct.pack('<%dQ' % len(sums), *sums)
    degrees = np.diff(arrays['indptr'])
    labels = arrays.get('labels')
    kind = 'none' if labels is None else 'classes' if labels.dtype.kind in 'iu' else 'values'
    features = arrays.get('features')
    printed = {
        'plimsoll': 'dataset', 'format': 1, 'readable_by': 1,
        'num_nodes': degrees.size, 'num_edges': arrays['indices'].size,
        'num_features': 0 if features is None else features.shape[1], 'num_graphs': num_graphs,
        'num_labels': 0 if labels is None else len(labels), 'num_classes': num_classes,
        'num_targets': labels.shape[1] if kind == 'values' else 0,
        **{'num_' + split: arrays[split].size if split in arrays else 0 for split in ('train', 'valid', 'test')},
        'max_degree': int(degrees.max()), 'index_type': str(arrays['indices'].dtype),
        'feature_type': 'none' if features is None else str(features.dtype), 'label_kind': kind, 'feature_error': 0,
        'degrees_log2': degrees_log2(degrees),
        'fingerprint': '%016x' % xxh3(identity),
        'provenance': {'source': 'NumPy \x1b[31m', 'options': '', 'version': '0'}, 'files': files, **changes,
    }
    text = (json.dumps(printed)[:-1] + ',\n  "self": "').encode()
    (folder / 'dataset.json').write_bytes(text + b'%016x"\n}\n' % xxh3(text))
    return folder


def graph(rng, nodes, classes=5, columns=6, dtype=np.float16, most=20, labels=np.int64):
    degrees = rng.integers(0, most + 1, nodes)
    degrees[rng.integers(nodes)] = 3 * most
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    lists = [np.sort(rng.integers(0, nodes, degree)) for degree in degrees]
    return {'indptr': indptr, 'indices': np.concatenate(lists).astype(np.int32),
            'features': rng.standard_normal((nodes, columns)).astype(dtype),
            'labels': rng.integers(-1, classes, nodes).astype(labels), 'train': np.arange(0, nodes, 2), 'valid': np.arange(3),
            'test': rng.permutation(nodes)[:9]}


def run(*words, code=0):
    done = subprocess.run([PLIMSOLL, 'inspect', *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def inspect(*words):
    return json.loads(run(*words, '--json').stdout)


@pytest.mark.parametrize('split, ids, places', [('test', [7, 3, 9, 3], 'entries 1 and 3 are both 3'),
                                                ('train', [5, 5], 'entries 0 and 1 are both 5'),
                                                ('valid', [0, 1, 1, 0, 1], 'entries 1 and 2 are both 1')])  # a mask read as ids
def test_verify_finds_an_id_twice(tmp_path, split, ids, places):
    arrays = graph(np.random.default_rng(3), 50)
    arrays[split] = np.array(ids, np.int64)
    path = write(tmp_path / 'set', arrays, num_classes=5)
    assert places in run(path, '--verify', code=4).stderr
    arrays[split] = np.random.default_rng(1).permutation(50)
    run(write(tmp_path / 'other', arrays, num_classes=5), '--verify')


@pytest.mark.parametrize('kind, count', [('id', 50), ('class', 5)])
def test_names_are_verified(tmp_path, kind, count):
    arrays = graph(np.random.default_rng(3), 50)
    names = [b'name %d' % i for i in range(count)]
    text, offsets = f'{kind}_text', f'{kind}_offsets'
    arrays[text] = np.frombuffer(b''.join(names), np.uint8)
    arrays[offsets] = np.cumsum([0, *map(len, names)])
    run(write(tmp_path / 'good', arrays, num_classes=5), '--verify')
    wrong = arrays[offsets].copy()
    wrong[2] = wrong[3] + 1
    cases = [(offsets, wrong, True), (offsets, arrays[offsets] + 1, True), (offsets, arrays[offsets][:-1], False),
             (offsets, None, False), (text, None, False), (text, arrays[text].astype(np.int16), False)]
    for i, (name, array, verify) in enumerate(cases):
        changed = {**arrays, name: array} if array is not None else {key: arrays[key] for key in arrays if key != name}
        done = run(write(tmp_path / str(i), changed, num_classes=5), *(['--verify'] if verify else []), code=4)
        assert name in done.stderr


def test_too_little_memory_names_what_would_do(tmp_path):
    path = write(tmp_path / 'set', graph(np.random.default_rng(3), 50), num_classes=5)
    words = [PLIMSOLL, 'inspect', str(path), '--threads', '1', '--memory']
    memory = '1M'
    for _ in range(5):  # opening the dataset may be refused, then inspecting it; and the process itself differs by some pages
        done = subprocess.run([*words, memory], capture_output=True, text=True, check=False)
        if done.returncode == 3:
            memory = re.search(r'--memory to (\d+M)', done.stderr)[1]
    assert done.returncode == 0 and memory != '1M', done.stderr


@pytest.mark.parametrize('words', [(), ('--verify',), ('--verify', '--threads', 1), ('--verify', '--io', 'threads'),
                                   ('--verify', '--memory', '84M')])
@pytest.mark.parametrize('dtype', [np.float16, np.float32, np.int64])
def test_figures_are_numpys(tmp_path, words, dtype):
    arrays = graph(np.random.default_rng(7), 3001, dtype=dtype, labels=np.int16 if dtype is np.float16 else np.int64)
    whole = dtype is np.int64
    if whole:
        arrays['features'] = np.random.default_rng(8).integers(-1000, 119, arrays['features'].shape)
    else:
        arrays['features'][5, 2] = np.nan
        arrays['features'][8, 1:3] = np.inf, -np.inf
    found = inspect(write(tmp_path / 'set', arrays, num_classes=5), *words)
    assert found['feature_type'] == np.dtype(dtype).name
    degrees = np.sort(np.diff(arrays['indptr']))
    assert found['num_nodes'] == 3001 and found['num_edges'] == arrays['indices'].size
    assert found['verified'] == ('--verify' in words)
    degree = found['in_degree']
    for name, share in [('median', .5), ('p90', .9), ('p99', .99), ('p999', .999)]:
        assert degree[name] == degrees[int(np.ceil(share * 3001)) - 1]
    assert [degree['min'], degree['max'], degree['num_zero']] == [degrees[0], degrees[-1], (degrees == 0).sum()]
    assert degree['mean'] == pytest.approx(degrees.mean())
    values = arrays['features'].astype(float)
    values = values[np.isfinite(values)]
    stats = found['features']
    assert stats['num_values'] == 3001 * 6 and stats['num_nan'] == (not whole) and stats['num_infinite'] == (0 if whole else 2)
    assert [stats['min'], stats['max']] == [values.min(), values.max()]
    assert [stats['mean'], stats['deviation']] == pytest.approx([values.mean(), values.std()])
    counts = np.bincount(arrays['labels'][arrays['labels'] >= 0])
    assert found['num_unlabelled'] == (arrays['labels'] == -1).sum()
    assert [top['count'] for top in found['top_classes']] == sorted(counts.tolist(), reverse=True)
    assert all(counts[top['class']] == top['count'] for top in found['top_classes'])
    if '--verify' in words:
        nodes = np.repeat(np.arange(3001), np.diff(arrays['indptr']))
        same = (np.diff(arrays['indices']) == 0) & (np.diff(nodes) == 0)
        assert found['num_self_loops'] == (arrays['indices'] == nodes).sum()
        assert found['num_duplicates'] == same.sum()


def test_report_for_people(tmp_path):
    done = run(write(tmp_path / 'set', graph(np.random.default_rng(1), 4321), num_classes=5), '--verify')
    for words in ['4,321', 'in-degree', '6 x float16', '5 classes', 'train 2,161', 'indices.npy', 'verified']:
        assert words in done.stdout
    assert '\x1b' not in done.stdout


def test_many_graphs_and_values(tmp_path):
    rng = np.random.default_rng(2)
    arrays = graph(rng, 100)
    arrays['graph_indptr'] = np.array([0, 40, 40, 100])
    arrays['labels'] = np.array([[1, 2], [np.nan, 4], [5, 6]], np.float32)
    arrays['ids'] = rng.integers(0, 1 << 60, 100)
    arrays |= {'train': np.array([0, 2]), 'valid': np.array([1]), 'test': np.array([], np.int64)}
    found = inspect(write(tmp_path / 'set', arrays, num_graphs=3), '--verify')
    assert found['label_kind'] == 'values' and found['num_targets'] == 2 and found['num_graphs'] == 3
    assert found['targets']['num_nan'] == 1 and found['targets']['mean'] == pytest.approx(3.6)


def test_smallest(tmp_path):
    arrays = {'indptr': np.array([0, 0]), 'indices': np.array([], np.int32)}
    found = inspect(write(tmp_path / 'set', arrays), '--verify')
    assert found['num_edges'] == 0 and found['in_degree']['max'] == 0 and found['label_kind'] == 'none'


def test_lists_across_chunks(tmp_path):
    """Files of several checksums: what lies on their borders is judged as elsewhere, whatever the threads."""
    nodes, length = 4_600_000, 20_000_001  # the list of one node is longer than a chunk
    degrees = np.full(nodes, 3)
    degrees[2_000_000] = length
    indptr = np.concatenate([[0], np.cumsum(degrees)])
    indices = np.tile(np.array([5, 5, 9], np.int32), indptr[-1] // 3)
    start = indptr[2_000_000]
    indices[start:start + length] = np.arange(length) // 5
    folder = write(tmp_path / 'set', {'indptr': indptr, 'indices': indices})
    for threads in (1, 3):
        report = inspect(folder, '--verify', '--threads', threads)
        assert report['num_duplicates'] == (nodes - 1) + 16_000_000
        assert report['num_self_loops'] == 2 + 1 + 5
        assert report['in_degree']['max'] == length and report['in_degree']['median'] == 3
    for border in (CHUNK, 2 * CHUNK):
        place = (border - 4096) // 4
        kept = indices[place]
        indices[place] = indices[place - 1] - 1
        folder = write(tmp_path / str(border), {'indptr': indptr, 'indices': indices})
        assert 'ascend' in run(folder, '--verify', code=4).stderr
        shutil.rmtree(folder)
        indices[place] = kept


def spoil(name, place, value):
    def change(arrays):
        arrays[name][place] = value
    return change


@pytest.mark.parametrize('change, words', [
    (spoil('indices', 17, 3000), 'indices.npy: entry 17 is 3000'),
    (spoil('indices', 17, -1), 'indices.npy: entry 17 is -1'),
    (spoil('labels', 4, 5), 'labels.npy: label 4 is 5'),
    (spoil('labels', 4, -2), 'labels.npy: label 4 is -2'),
    (spoil('train', 1, 3000), 'train.npy: entry 1 is 3000'),
    (spoil('test', 1, -1), 'test.npy: entry 1 is -1'),
])
def test_right_checksums_of_wrong_data(tmp_path, change, words):
    """What the rules forbid is found although every checksum agrees."""
    arrays = graph(np.random.default_rng(3), 3000)
    change(arrays)
    done = run(write(tmp_path / 'set', arrays, num_classes=5), '--verify', code=4)
    assert words in done.stderr


def test_offsets_must_ascend(tmp_path):
    arrays = graph(np.random.default_rng(3), 300)
    degrees = np.diff(arrays['indptr'])
    arrays['indptr'][100] = arrays['indptr'][101] + 1
    folder = write(tmp_path / 'set', arrays, num_classes=5, degrees_log2=degrees_log2(degrees),
                   max_degree=int(degrees.max()))
    assert 'offset 101' in run(folder, '--verify', code=4).stderr
    assert 'offset 101' in run(folder, code=4).stderr


def test_damage_names_file_and_place(tmp_path):
    folder = write(tmp_path / 'set', graph(np.random.default_rng(4), 3000), num_classes=5)
    data = bytearray((folder / 'features.npy').read_bytes())
    data[9000] ^= 4
    (folder / 'features.npy').write_bytes(data)
    run(folder)
    done = run(folder, '--verify', '--json', code=4)
    assert 'features.npy' in done.stderr and 'bytes 0 to 40095' in done.stderr
    assert json.loads(done.stdout)['exit_code'] == 4


def test_read_only_directory(tmp_path):
    """Anybody may read a shared dataset; nothing is written into it."""
    folder = write(tmp_path / 'set', graph(np.random.default_rng(5), 300), num_classes=5)
    for path in [*folder.iterdir(), folder]:
        path.chmod(path.stat().st_mode & ~(stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH))
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    drop = ['setpriv', '--reuid', '65534', '--regid', '65534', '--clear-groups'] if os.geteuid() == 0 else []
    if drop:
        for path in [tmp_path, *tmp_path.parents][:3]:
            path.chmod(0o755)
    done = subprocess.run([*drop, PLIMSOLL, 'inspect', str(folder), '--verify'], capture_output=True, text=True,
                          check=False)
    folder.chmod(0o755)
    if drop and 'failed to execute' in done.stderr:
        pytest.skip('another user cannot run ' + PLIMSOLL)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before


def test_wrong_use(tmp_path):
    assert 'one dataset' in run(code=2).stderr
    assert 'not a dataset' in run(tmp_path, code=2).stderr
    (tmp_path / 'dataset.json').write_text('{}')
    run(tmp_path, code=4)
    assert 'inspect DIR' in run('--help').stdout


def test_documented_snippet_runs(tmp_path):
    arrays = graph(np.random.default_rng(6), 50)
    folder = write(tmp_path / 'set', arrays, num_classes=5)
    text = (SOURCE / 'docs' / 'format.md').read_text()
    [snippet] = re.findall(r'```python\n(.*?)```', text, re.S)
    done = subprocess.run([sys.executable, '-c', snippet, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(value) for value in arrays['indices'][:arrays['indptr'][1]]]


@pytest.mark.parametrize('dtype', [np.int8, np.uint8, np.int16, np.int32, np.int64])
def test_classes_in_any_integer_type(tmp_path, dtype):
    arrays = graph(np.random.default_rng(3), 300)
    arrays['labels'] = (np.arange(300) % 5).astype(dtype)
    found = inspect(write(tmp_path / 'set', arrays, num_classes=5), '--verify')
    assert found['label_kind'] == 'classes' and found['num_unlabelled'] == 0
    assert {one['class']: one['count'] for one in found['top_classes']} == dict.fromkeys(range(5), 60)
    shown = run(tmp_path / 'set').stdout
    assert f'5 classes ({np.dtype(dtype)})' in shown
    arrays['labels'][7] = 5
    assert 'label 7 is 5' in run(write(tmp_path / 'bad', arrays, num_classes=5), '--verify', code=4).stderr
