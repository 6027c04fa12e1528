"""Killed at any instant and resumed, a run ends with the bits of one that was left alone."""
import os
import random
import signal
import subprocess
import time

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
KILLS = int(os.environ.get('PLIMSOLL_TEST_KILLS', '20'))  # tools/prove resume does it 200 times
WISH = ('--model', 'sage', '--hidden', '32', '--fanout', '8,6', '--batch', '50', '--dropout', '0.5', '--epochs', '6',
        '--schedule', 'cosine', '--checkpoint-every', '7', '--quiet')


def tensors(path):
    """The tensors' bytes of a safetensors file: its notes name this machine and this try."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], 'little'):]


def result(run):
    return (run / 'metrics.jsonl').read_bytes(), tensors(run / 'last.safetensors'), tensors(run / 'best.safetensors')


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('killed') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'free', path, '--nodes', '3000', '--edges', '30000', '--features', '32',
                    '--classes', '5', '--quiet'], check=True)
    return path


def go_on(graph, run):
    words = ('--resume', run, '--quiet') if (run / 'run.json').exists() else (graph, *WISH, '--run', run)
    return subprocess.Popen([PLIMSOLL, 'train', *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_killed_at_random_moments(graph, tmp_path):
    began = time.monotonic()
    whole = go_on(graph, tmp_path / 'whole')
    assert whole.wait(timeout=1500) == 0, whole.stderr.read()
    took = time.monotonic() - began
    wanted = result(tmp_path / 'whole')
    moments = random.Random(5)
    kills, runs = 0, 0
    while kills < KILLS:
        run = tmp_path / f'run-{runs}'
        new, began = not run.exists(), time.monotonic()
        process = go_on(graph, run)
        try:
            process.wait(timeout=moments.uniform(0, took))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=1500)
            kills += 1
            continue
        assert process.returncode == 0, process.stderr.read()
        assert result(run) == wanted
        assert sorted(os.listdir(run)) == sorted(os.listdir(tmp_path / 'whole'))
        runs += 1
        took = time.monotonic() - began if new else took  # the first one may have been in others' way
    process = go_on(graph, tmp_path / f'run-{runs}')
    assert process.wait(timeout=1500) == 0, process.stderr.read()
    assert result(tmp_path / f'run-{runs}') == wanted
    assert runs >= KILLS // 50  # it does get on
