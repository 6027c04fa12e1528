"""Regression onto embeddings: cosine as the metric, and hits@k against a table, by NumPy."""
import json
import os
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
WIDTH, TABLE, NODES = 12, 300, 900


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def events(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(name='trained', scope='module')
def make_trained(tmp_path_factory):
    """A dataset whose labels are rows of a table, and a run on it."""
    place = tmp_path_factory.mktemp('embeddings')
    rng = np.random.default_rng(4)
    table = rng.normal(size=(TABLE, WIDTH)).astype(np.float32)
    chosen = rng.integers(TABLE, size=NODES)
    (place / 'source').mkdir()
    features = np.concatenate([table[chosen] + rng.normal(size=(NODES, WIDTH)), rng.normal(size=(NODES, 4))], axis=1)
    np.save(place / 'source' / 'node_feat.npy', features.astype(np.float32))
    np.save(place / 'source' / 'labels.npy', table[chosen])
    np.save(place / 'source' / 'edge_index.npy', rng.integers(NODES, size=(2, 4 * NODES)))
    for name, nodes in (('train', range(500)), ('valid', range(500, 700)), ('test', range(700, NODES))):
        np.save(place / 'source' / f'{name}.npy', np.array(nodes))
    np.save(place / 'table.npy', table)
    call('import', place / 'source', place / 'data', '--quiet')
    printed = events(call('train', place / 'data', '--run', place / 'run', '--model', 'sage', '--hidden', 32, '--fanout', '5,5', '--epochs', 30,
                       '--metric', 'cosine', '--json', '--quiet'))
    return place, table, chosen, printed


def outputs(place):
    call('predict', place / 'run', '--split', 'test', '--out', place / 'out.npy', '--quiet')
    return np.load(place / 'out.npy').astype(np.float64)


def test_cosine_is_the_metric_and_more_is_better(trained):
    place, table, chosen, printed = trained
    lines = [line for line in printed if line['event'] == 'epoch']
    assert printed[-1]['valid'] == max(line['valid'] for line in lines) > lines[0]['valid']
    wanted = json.loads(call('evaluate', place / 'run', '--exact', '--split', 'test', '--json', '--quiet').stdout.splitlines()[-1])
    assert wanted['metric'] == 'cosine'
    ours, labels = outputs(place), table[chosen[700:]].astype(np.float64)
    cosines = (ours * labels).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(labels, axis=1)
    assert wanted['test']['score'] == pytest.approx(cosines.mean(), abs=1e-5)


@pytest.mark.parametrize('k', [1, 10])
@pytest.mark.parametrize('dtype', ['f2', 'f4', 'f8'])
def test_hits(trained, tmp_path, k, dtype):
    place, table, chosen, _ = trained
    np.save(tmp_path / 'table.npy', table.astype(dtype))
    for words in (('--exact',), ('--exact', '--memory', '80M'), ('--exact', '--threads', 1)):
        done = call('evaluate', place / 'run', '--split', 'test', '--hits', k, '--table', tmp_path / 'table.npy', '--json', '--quiet', *words)
        printed = json.loads(done.stdout.splitlines()[-1])
        assert printed['metric'] == f'hits@{k}'
        ours = outputs(place)
        unit = table / np.linalg.norm(table, axis=1, keepdims=True)
        products = ours @ unit.T.astype(np.float64)
        own = products[np.arange(len(ours)), chosen[700:]]
        hits = ((products > own[:, None] + 1e-9).sum(1) < k).mean()
        assert printed['test']['score'] == pytest.approx(hits, abs=0.006)  # a node a rounding apart
    sampled = json.loads(call('evaluate', place / 'run', '--hits', k, '--table', tmp_path / 'table.npy', '--json', '--quiet').stdout.splitlines()[-1])
    assert 0 < sampled['valid']['score'] <= 1


def test_what_is_no_table_is_refused(trained, tmp_path):
    place, table, *_ = trained
    np.save(tmp_path / 'narrow.npy', table[:, 1:])
    np.save(tmp_path / 'flat.npy', table[0])
    np.save(tmp_path / 'ids.npy', np.zeros((3, WIDTH), np.int64))
    for name in ('narrow', 'flat', 'ids'):
        call('evaluate', place / 'run', '--hits', 1, '--table', tmp_path / f'{name}.npy', code=2)
    call('evaluate', place / 'run', '--hits', 1, code=2)
    call('evaluate', place / 'run', '--table', place / 'table.npy', code=2)
    (tmp_path / 'short.npy').write_bytes((place / 'table.npy').read_bytes()[:-40])
    call('evaluate', place / 'run', '--hits', 1, '--table', tmp_path / 'short.npy', code=4)
    call('generate', 'free', tmp_path / 'classes', '--nodes', 200, '--edges', 800, '--features', 4, '--classes', 3, '--quiet')
    call('train', tmp_path / 'classes', '--run', tmp_path / 'run', '--epochs', 1, '--metric', 'cosine', code=2)
