# labels: nightly
"""More than 2^31 nodes, in files that are holes but for their end: batches against the files by NumPy, and a training."""
import ctypes
import ctypes.util
import json
import os
import pathlib
import re
import struct
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import brute_force  # noqa: E402

plimsoll = pytest.importorskip('plimsoll')
pytest.importorskip('torch')

PLIMSOLL = os.environ.get('PLIMSOLL', 'plimsoll')
CHUNK, HEADER = 64 << 20, 4096
NODES, LAST = 2_200_000_000, 200_000  # entries, rows and labels are 0 but for those of the last nodes
FANOUTS = [4, -1]

XXHASH = ctypes.CDLL(ctypes.util.find_library('xxhash') or 'libxxhash.so.0')
XXHASH.XXH3_64bits.restype = ctypes.c_uint64
XXHASH.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data):
    return XXHASH.XXH3_64bits(data, len(data))


def sparse(folder, name, shape, ends):
    """Writes an array that ends with `ends`, otherwise zeros; returns its entry in dataset.json and its part of the fingerprint."""
    size = HEADER + int(np.prod(shape)) * ends.dtype.itemsize
    text = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (ends.dtype.str, shape)
    head = b'\x93NUMPY\x01\x00' + struct.pack('<H', HEADER - 10) + text.encode().ljust(HEADER - 10 - 1) + b'\n'
    zeros = xxh3(bytes(CHUNK))
    with open(folder / name, 'wb+') as file:
        file.truncate(size)
        file.write(head)
        file.seek(size - ends.nbytes)
        file.write(ends.tobytes())
        sums = [zeros] * -(-size // CHUNK)
        for i in {0, *range((size - ends.nbytes) // CHUNK, len(sums))}:
            file.seek(i * CHUNK)
            sums[i] = xxh3(file.read(CHUNK))
    identity = name.encode() + b'\0' + ends.dtype.str.encode() + b'\0'
    identity += struct.pack('<%dq' % (len(shape) + 2), len(shape), *shape, size) + struct.pack('<%dQ' % len(sums), *sums)
    return {'name': name, 'dtype': ends.dtype.str, 'shape': list(shape), 'bytes': size, 'checksums': ['%016x' % value for value in sums]}, identity


def write(folder, degrees, indices, features, labels, splits):
    folder.mkdir()
    arrays = {'features': ((NODES, 1), features), 'indices': (indices.shape, indices), 'indptr': ((NODES + 1,), np.cumsum(degrees)),
              'labels': ((NODES,), labels), **{name: (ids.shape, ids) for name, ids in splits.items()}}
    files = [sparse(folder, name + '.npy', *array) for name, array in sorted(arrays.items())]
    buckets = np.bincount(np.frexp(degrees.astype(float))[1])
    buckets[0] += NODES - LAST
    printed = {
        'plimsoll': 'dataset', 'format': 5, 'readable_by': 5, 'num_nodes': NODES, 'num_edges': indices.size, 'num_features': 1, 'num_graphs': 0,
        'num_labels': NODES, 'num_classes': int(labels.max()) + 1, 'num_targets': 0, **{'num_' + name: ids.size for name, ids in splits.items()},
        'max_degree': int(degrees.max()), 'index_type': 'uint32', 'feature_type': 'float16', 'label_kind': 'classes', 'feature_error': 0,
        'degrees_log2': buckets.tolist(), 'fingerprint': '%016x' % xxh3(b''.join(identity for _, identity in files)),
        'provenance': {'source': 'NumPy', 'options': '', 'version': '0'}, 'files': [file for file, _ in files],
    }
    text = (json.dumps(printed)[:-1] + ',\n  "self": "').encode()
    (folder / 'dataset.json').write_bytes(text + b'%016x"\n}\n' % xxh3(text))
    return folder


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    available = int(re.search(r'MemAvailable: +(\d+)', pathlib.Path('/proc/meminfo').read_text())[1])
    if available < 7 << 20:
        pytest.skip(f'needs 7 GiB of memory, here are {available >> 10} MiB')
    rng = np.random.default_rng(1)
    degrees = rng.integers(0, 12, LAST)
    near, far = NODES - 1 - rng.integers(0, LAST, degrees.sum()), rng.integers(0, NODES, degrees.sum())
    owner = np.repeat(np.arange(LAST), degrees)
    indices = np.where(rng.random(owner.size) < 0.8, near, far)
    indices = indices[np.lexsort((indices, owner))].astype(np.uint32)
    features = rng.standard_normal(LAST).astype(np.float16)
    ids = NODES - LAST + rng.permutation(LAST)
    labels = (features > 0).astype(np.int8)  # so that there is something to learn
    splits = {'train': ids[:20_000], 'valid': ids[20_000:22_000], 'test': ids[22_000:24_000]}
    return write(tmp_path_factory.mktemp('many') / 'nodes', degrees, indices, features, labels, splits)


def test_batches_are_the_files(made):
    arrays, seen = brute_force.arrays_of(made), []
    loader = plimsoll.NeighborLoader(plimsoll.open(made), FANOUTS, batch_size=5_000, input_nodes='train', shuffle=True, memory='6G', seed=1)
    for batch in loader:
        brute_force.check_batch(batch, arrays, FANOUTS)
        seen.append(batch.n_id[:batch.batch_size].numpy())
    assert np.array_equal(np.sort(np.concatenate(seen)), np.sort(arrays['train']))


def test_trains(made, tmp_path):
    words = ['--memory', '6G', '--epochs', '2', '--batch', '500', '--model', 'sage', '--dropout', '0.1', '--hidden', '8']
    done = subprocess.run([PLIMSOLL, 'train', str(made), '--run', str(tmp_path / 'run'), *words], capture_output=True, text=True, timeout=3000)
    assert done.returncode == 0, done.stdout + done.stderr
    epochs = [json.loads(line) for line in (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()]
    assert epochs[-1]['loss'] < epochs[0]['loss'] < 0.7, epochs
