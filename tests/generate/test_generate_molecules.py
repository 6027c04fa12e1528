"""The shape molecules: valid, the same for a seed, as described, and with a signal in its bonds."""
import json
import os
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def arrays(path):
    return {file.stem: np.load(file) for file in path.glob('*.npy')}


@pytest.fixture(name='path', scope='module')
def make_path(tmp_path_factory):
    path = tmp_path_factory.mktemp('molecules') / 'data'
    call('generate', 'molecules', path, '--scale', 0.02, '--quiet')
    return path


def test_it_is_as_described(path):
    call('inspect', path, '--verify')
    got = arrays(path)
    atoms = np.diff(got['graph_indptr'])
    assert len(atoms) == 2000 and atoms.min() == 8 and atoms.max() == 24
    targets = np.repeat(np.arange(len(got['indptr']) - 1), np.diff(got['indptr']))
    graph = np.repeat(np.arange(2000), atoms)
    assert np.array_equal(graph[got['indices']], graph[targets]) and (got['indices'] != targets).all()
    there = {(s, t): tuple(f) for s, t, f in zip(got['indices'].tolist(), targets.tolist(), got['edge_features'].tolist(), strict=True)}
    assert len(there) == len(targets) and all(there[t, s] == f for (s, t), f in there.items())
    for name, counts in ('features', [8, 3]), ('edge_features', [4, 2]):
        assert got[name].dtype == np.int64 and got[name].min() == 0 and (got[name].max(0) + 1).tolist() == counts
    splits = [got[name] for name in ('train', 'valid', 'test')]
    assert np.array_equal(np.sort(np.concatenate(splits)), np.arange(2000)) and 1500 < len(splits[0]) < 1700
    rings = got['edge_features'][:, 1].sum() / 2
    chain = (len(targets) / 2 - rings)
    assert chain == atoms.sum() - 2000 and rings > 0
    assert abs(got['labels'].mean()) < 0.1 and 0.5 < got['labels'].std() < 1.5


def test_the_seed_decides(path, tmp_path):
    call('generate', 'molecules', tmp_path / 'same', '--scale', 0.02, '--threads', 1, '--memory', '64M', '--quiet')
    call('generate', 'molecules', tmp_path / 'other', '--scale', 0.02, '--seed', 1, '--quiet')
    print_of = [json.loads((place / 'dataset.json').read_text())['fingerprint'] for place in (path, tmp_path / 'same', tmp_path / 'other')]
    assert print_of[0] == print_of[1] != print_of[2]
    assert 'there already' in call('generate', 'molecules', path, '--scale', 0.02).stderr
    smaller = arrays(path)
    call('generate', 'molecules', tmp_path / 'small', '--scale', 0.01, '--quiet')
    assert np.array_equal(arrays(tmp_path / 'small')['labels'], smaller['labels'][:1000])


def test_bonds_tell_what_atoms_do_not(path, tmp_path):
    words = ['train', path, '--node-categories', '8,3', '--layers', 3, '--hidden', 32, '--batch', 64, '--lr', 0.003, '--epochs', 25, '--metric', 'r2',
             '--json', '--quiet']
    found = {}
    for model, more in ('gin', []), ('gine', ['--edge-categories', '4,2']):
        last = call(*words, '--model', model, *more, '--run', tmp_path / model).stdout.splitlines()[-1]
        found[model] = json.loads(last)['test']
    assert found['gin'] < 0.35 and found['gine'] > 0.7, found


@pytest.mark.parametrize('words', [['--nodes', 5], ['--edge-columns', 'weight'], ['--scale', 900], ['--dtype', 'f16']], ids=str)
def test_refusals(tmp_path, words):
    call('generate', 'molecules', tmp_path / 'data', *words, code=2)
    assert not (tmp_path / 'data').exists()
    call('plan', 'molecules', code=2)
