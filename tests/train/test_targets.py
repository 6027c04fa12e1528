"""Regression onto several targets, of graphs and of nodes: MAE, RMSE and R2 of each, by NumPy."""
import json
import os
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
GRAPHS, TARGETS = 400, 3
SPLITS = {'train': range(250), 'valid': range(250, 320), 'test': range(320, GRAPHS)}


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def errors(outputs, labels):
    """Of known values; R2 of a column, or the mean over columns."""
    away = np.where(np.isnan(labels), np.nan, outputs - labels)
    spread = np.nansum((labels - np.nanmean(labels, axis=0)) ** 2, axis=0)
    r2 = np.where(spread > 0, 1 - np.nansum(away ** 2, axis=0) / np.where(spread > 0, spread, 1), np.nan)
    return {'mae': np.nanmean(abs(away)), 'rmse': np.sqrt(np.nanmean(away ** 2)), 'r2': np.nanmean(r2)}


@pytest.fixture(name='made', scope='module', params=['graphs', 'nodes'])
def make_data(request, tmp_path_factory):
    """Targets on other scales, some of them unknown, and one whose values are far from 0."""
    import plimsoll
    place = tmp_path_factory.mktemp(request.param)
    rng = np.random.default_rng(7)
    sums = rng.normal(size=(GRAPHS, 4)).astype(np.float32)
    labels = np.stack([sums[:, 0], 30 * sums[:, 1] + 1000, 0.1 * (sums[:, 2] - sums[:, 3])], axis=1).astype(np.float32)
    labels[rng.random(labels.shape) < 0.1] = np.nan
    with plimsoll.Builder(place / 'data', quiet=True) as builder:
        if request.param == 'graphs':
            for graph in range(GRAPHS):
                size = int(rng.integers(2, 9))
                edges = np.stack([np.arange(size), (np.arange(size) + 1) % size])
                builder.add_graph(edges, np.repeat(sums[graph:graph + 1], size, 0), labels[graph:graph + 1])
        else:
            builder.add_edges(rng.integers(GRAPHS, size=(2, GRAPHS)))
            builder.add_rows(sums)
            builder.add_labels(labels)
        builder.split(**{name: np.array(ids) for name, ids in SPLITS.items()})
        builder.finish()
    words = ['--model', 'mlp'] if request.param == 'nodes' else ['--model', 'gin', '--batch', 50]
    printed = call('train', place / 'data', '--run', place / 'run', *words, '--hidden', 32, '--epochs', 20, '--shares', 4, '--seed', 1,
                   '--metric', 'r2', '--json', '--quiet').stdout
    return place, labels, [json.loads(line) for line in printed.splitlines()]


def test_errors_are_numpys(made):
    place, labels, _ = made
    got = json.loads(call('evaluate', place / 'run', '--split', 'all', '--json', '--quiet').stdout.splitlines()[-1])
    assert got['metric'] == 'r2'
    for split, ids in SPLITS.items():
        call('predict', place / 'run', '--split', split, '--out', place / 'out.npy', '--quiet')
        outputs, values = np.load(place / 'out.npy').astype(np.float64), labels[list(ids)].astype(np.float64)
        assert outputs.shape == (len(ids), TARGETS)
        wanted = errors(outputs, values)
        assert {name: got[split][name] for name in wanted} == pytest.approx(wanted, rel=1e-5)
        assert got[split]['score'] == got[split]['r2']
        for target in range(TARGETS):
            column = slice(target, target + 1)
            assert got[split]['targets'][target] == pytest.approx(errors(outputs[:, column], values[:, column]), rel=1e-5)


def test_a_higher_r2_is_better(made):
    _, _, events = made
    lines = [line for line in events if line['event'] == 'epoch']
    assert events[-1]['valid'] == max(line['valid'] for line in lines)


def test_targets_are_printed(made):
    place, _, _ = made
    lines = call('evaluate', place / 'run', '--split', 'test', '--quiet').stdout.splitlines()
    assert lines[0].startswith('test: r2 ') and lines[1].strip().startswith('mae ')
    assert [line.strip()[:9] for line in lines[2:]] == [f'target {i}:' for i in range(TARGETS)]


def test_classes_have_no_errors(tmp_path):
    call('generate', 'free', tmp_path / 'data', '--nodes', 300, '--edges', 900, '--features', 8, '--classes', 3, '--quiet')
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', '--fanout', '3,2', '--epochs', 1, '--quiet')
    got = json.loads(call('evaluate', tmp_path / 'run', '--json', '--quiet').stdout.splitlines()[-1])
    assert set(got['test']) == {'score', 'loss'}
    done = call('train', tmp_path / 'data', '--run', tmp_path / 'other', '--fanout', '3,2', '--metric', 'r2', code=2)
    assert 'accuracy' in done.stderr
