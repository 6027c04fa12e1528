"""The verb generate: exact counts, the same bytes whatever it runs with, the shapes it promises, refusals."""
import json
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
SOURCE = pathlib.Path(__file__).resolve().parents[2]


def generate(target, *words, check=True):
    done = subprocess.run([PLIMSOLL, 'generate', *map(str, words), '--quiet', '--json'], check=False, text=True,
                          capture_output=True, timeout=1500)
    assert not check or done.returncode == 0, done.stderr
    assert (done.returncode == 0) == target.exists()
    assert not list(target.parent.glob('.*')), 'something stray was left'
    return done


def shape(target, *words):
    generate(target, words[0], target, *words[1:])
    return {path.stem: np.load(path, mmap_mode='r') for path in target.glob('*.npy')}


def fingerprint(target):
    return json.loads((target / 'dataset.json').read_text())['fingerprint']


def sources_differ(arrays):
    """No list has a source twice, or its own node."""
    destination = np.repeat(np.arange(arrays['indptr'].size - 1), np.diff(arrays['indptr']))
    same_list = destination[1:] == destination[:-1]
    return np.all(np.diff(arrays['indices'].astype(np.int64))[same_list] > 0) and not np.any(destination == arrays['indices'])


@pytest.fixture(scope='module')
def papers(tmp_path_factory):
    target = tmp_path_factory.mktemp('papers') / 'set'
    return target, shape(target, 'papers100M', '--scale', 0.005)


def test_counts_are_exact(papers):
    _, arrays = papers
    nodes = round(111_059_956 * 0.005)
    assert arrays['indptr'].size == nodes + 1 and arrays['indices'].size == round(1_615_685_872 * 0.005)
    assert arrays['features'].shape == (nodes, 128) and arrays['features'].dtype == np.float16
    assert [arrays[name].size for name in ('train', 'valid', 'test')] == \
        [round(n * 0.005) for n in (1_207_179, 125_265, 214_338)]
    labelled = np.sort(np.concatenate([arrays[name] for name in ('train', 'valid', 'test')]))
    assert np.array_equal(labelled, np.flatnonzero(arrays['labels'] >= 0))
    assert set(np.unique(arrays['labels'][labelled])) == set(range(172))
    assert sources_differ(arrays)


def test_counts_of_ones_own(tmp_path):
    """A shape's structure with other counts: its splits stay."""
    arrays = shape(tmp_path / 'papers', 'papers100M', '--scale', 0.005, '--nodes', '300K', '--edges', '1M', '--features', 3, '--classes', 5)
    assert arrays['indptr'].size == 300_001 and arrays['indices'].size == 1_000_000 and arrays['features'].shape == (300_000, 3)
    assert arrays['train'].size == round(1_207_179 * 0.005) and arrays['labels'].max() == 4
    assert sources_differ(arrays)
    assert shape(tmp_path / 'products', 'products', '--scale', 0.001, '--edges', 3000)['indices'].size == 6000


def test_tails_are_heavy_and_ids_are_not_sorted(papers):
    _, arrays = papers
    into = np.diff(arrays['indptr'])
    out = np.bincount(arrays['indices'], minlength=into.size)
    for degree in (into, out):
        degree = degree.astype(np.float64)
        assert np.median(degree) < 0.6 * degree.mean()
        assert degree.max() > 500 * degree.mean()
        top = np.sort(degree)[::-1]
        assert 0.1 < top[:degree.size // 100].sum() / degree.sum() < 0.6
        assert abs(np.corrcoef(np.arange(degree.size), np.log1p(degree))[0, 1]) < 0.02


@pytest.mark.parametrize('words', [('papers100M', '--scale', 0.0005), ('products', '--scale', 0.001),
                                   ('free', '--nodes', 3000, '--edges', 90_000, '--features', 33, '--classes', 7)])
def test_same_bytes_whatever_it_runs_with(tmp_path, words):
    found = set()
    for i, how in enumerate([(), ('--threads', 1, '--io', 'threads'), ('--threads', 8, '--memory', '100M'),
                             ('--threads', 2, '--memory', '76M', '--io', 'threads'), ('--tmp', tmp_path)]):
        generate(tmp_path / f'set{i}', words[0], tmp_path / f'set{i}', *words[1:], *how)
        found.add(fingerprint(tmp_path / f'set{i}'))
    assert len(found) == 1
    generate(tmp_path / 'other', words[0], tmp_path / 'other', *words[1:], '--seed', 1)
    assert fingerprint(tmp_path / 'other') not in found


@pytest.mark.parametrize('name, scale, counts', [
    ('products', 0.002, (4_898, 2 * 123_718)), ('arxiv', 0.01, (1_693, 11_662)), ('reddit', 0.01, (2_330, 2 * 573_079))])
def test_other_shapes(tmp_path, name, scale, counts):
    arrays = shape(tmp_path / 'set', name, '--scale', scale)
    nodes, edges = counts
    assert (arrays['indptr'].size - 1, arrays['indices'].size) == (nodes, edges)
    assert sum(arrays[split].size for split in ('train', 'valid', 'test')) == nodes
    assert arrays['labels'].min() >= 0 and sources_differ(arrays)
    if name != 'arxiv':  # undirected: each edge stands there both ways
        destination = np.repeat(np.arange(nodes), np.diff(arrays['indptr']))
        there = arrays['indices'].astype(np.int64) * nodes + destination
        assert np.array_equal(np.sort(there), destination * nodes + arrays['indices'])


def test_both_types_hold_the_same_numbers(tmp_path):
    words = ('arxiv', '--scale', 0.005, '--dtype')
    half, single = (shape(tmp_path / kind, *words, kind)['features'] for kind in ('f16', 'f32'))
    assert half.dtype == np.float16 and single.dtype == np.float32
    assert np.array_equal(half.astype(np.float32), single)


@pytest.mark.parametrize('nodes, edges, features, classes', [(1, 0, 0, 1), (1, 0, 3, 5), (2, 2, 1, 1), (2, 1, 17, 3),
                                                             (30, 870, 2, 40), (50, 60, 3, 9), (500, 0, 4, 2)])
def test_tiny_free_shapes(tmp_path, nodes, edges, features, classes):
    arrays = shape(tmp_path / 'set', 'free', '--nodes', nodes, '--edges', edges, '--features', features,
                   '--classes', classes)
    assert (arrays['indptr'].size - 1, arrays['indices'].size) == (nodes, edges)
    assert ('features' in arrays) == (features > 0) and sources_differ(arrays)
    verified = subprocess.run([PLIMSOLL, 'inspect', tmp_path / 'set', '--verify', '--quiet'], check=False,
                              capture_output=True, timeout=1500)
    assert verified.returncode == 0, verified.stderr


@pytest.mark.parametrize('words, code, printed', [
    (('free', '--nodes', 10, '--edges', 91, '--features', 1, '--classes', 1), 2, '91 edges'),
    (('free', '--nodes', 5, '--features', 1, '--classes', 1), 2, '--edges'),
    (('free', '--edges', 91, '--features', 1, '--classes', 1), 2, '--nodes'),
    (('free', '--nodes', 10, '--edges', 5, '--features', 1, '--classes', 1, '--scale', 2), 2, '--scale'),
    (('reddit', '--scale', 0.001), 2, '--scale'), (('papers100M', '--scale', 1e-12), 2, '0 nodes'),
    (('papers100M', '--scale', 0), 2, '--scale'), (('papers100M', '--scale', 'nan'), 2, '--scale'),
    (('arxiv', '--spread', 1.5), 2, '--spread'), (('arxiv', '--nodes', 5), 2, 'edges'),
    (('papers200M',), 2, 'papers100M'), (('arxiv', '--dtype', 'f64'), 2, '--dtype'),
    (('arxiv', '--seed', -1), 2, '--seed'), (('arxiv', '--memory', '6M'), 3, '--memory'),
    (('papers100M', '--scale', 1000), 3, 'free')])
def test_refusals(tmp_path, words, code, printed):
    target = tmp_path / 'set'
    done = generate(target, words[0], target, *words[1:], check=False)
    assert done.returncode == code and printed in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_least_memory_that_is_said_is_enough(tmp_path):
    target = tmp_path / 'set'
    words = ('arxiv', target, '--scale', 0.1, '--memory')
    refused = generate(target, *words, '7M', check=False)
    least = re.search(r'--memory to (\d+M)', refused.stderr)[1]
    assert refused.returncode == 3
    generate(target, *words, least)


def figures(target, *words):
    found = target.parent / 'figures.json'
    done = subprocess.run([sys.executable, SOURCE / 'tools' / 'prove', 'access', target, '--json', found, *words], check=False, capture_output=True, timeout=1500)
    return done.returncode, json.loads(found.read_text())


def test_access_and_accuracy_are_as_promised(tmp_path):
    generate(tmp_path / 'set', 'papers100M', tmp_path / 'set', '--scale', 0.01)
    code, found = figures(tmp_path / 'set')
    assert code == 0, found['claims']


@pytest.mark.nightly
def test_spread_makes_it_gradually_harder(tmp_path):
    caught = []
    for spread in (0, 0.15, 0.3, 1):
        target = tmp_path / f'set{spread}'
        generate(target, 'papers100M', target, '--scale', 0.002, '--spread', spread)
        caught.append(figures(target, '--no-accuracy')[1]['caught_presampled'])
    assert caught == sorted(caught, reverse=True)
    assert caught[-1] < 0.5


def test_what_is_there_already(tmp_path):
    """The same options: nothing to do. Others, or a dataset of another user: refused. Its files stay as they are."""
    words = ['generate', 'free', tmp_path / 'data', '--nodes', 100, '--edges', 300, '--features', 4, '--classes', 2, '--quiet']

    def run(*more):
        return subprocess.run([PLIMSOLL, *map(str, words), *more], capture_output=True, text=True, check=False, timeout=1500).returncode

    assert run() == 0
    times = {path.name: path.stat().st_mtime_ns for path in (tmp_path / 'data').iterdir()}
    assert run() == 0
    assert [run(*more) for more in (('--seed', '1'), ('--dtype', 'f16'), ('--nodes', '101'))] == [2, 2, 2]
    assert {path.name: path.stat().st_mtime_ns for path in (tmp_path / 'data').iterdir()} == times
    if os.geteuid() == 0:
        os.chown(tmp_path / 'data', 12001, 12001)
        assert run() == 2
