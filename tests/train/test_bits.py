"""A run's bits follow from its recipe: whatever the threads, the line, and how large slots are. tools/prove bits says what else is tried."""
import os
import pathlib
import subprocess
import sys

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
DELAYS = os.environ['PLIMSOLL_DELAYS']
TOOLS = pathlib.Path(os.environ['PLIMSOLL_SOURCE']) / 'tools'
REAL = pathlib.Path(os.environ.get('PLIMSOLL_TEST_DATA') or pathlib.Path(os.environ['PLIMSOLL_SOURCE']).parent / 'shared' / 'data')


def run(program, *words):
    done = subprocess.run([program, *map(str, words), '--quiet'], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def state(path):
    """Metrics and tensors; notes say on what they were computed."""
    last = (path / 'last.safetensors').read_bytes()
    return (path / 'metrics.jsonl').read_bytes(), last[8 + int.from_bytes(last[:8], 'little'):]


def check_ways(data, recipe, directory):
    """The recipe by 1 to 8 threads, under wide and narrow lines."""
    ways = {'one': (PLIMSOLL, '--threads', 1), 'two': (PLIMSOLL, '--threads', 2), 'eight': (DELAYS, '--threads', 8),
            'line': (PLIMSOLL, '--threads', 2, '--memory', '176M'), 'disk': (PLIMSOLL, '--threads', 1, '--memory', '112M', '--io', 'threads')}
    for name, (program, *words) in ways.items():
        run(program, 'train', data, '--run', directory / name, *recipe, *words)
    assert len({state(directory / name) for name in ways}) == 1, directory


@pytest.mark.parametrize('model', ['sage', 'gcn'])
def test_few_seeds_of_wide_rows(model, tmp_path):
    """Batches of so few seeds differ in size, and slots for the largest that can be are not always cheap."""
    run(PLIMSOLL, 'generate', 'free', tmp_path / 'data', '--nodes', 2000, '--edges', 12000, '--features', 1400, '--classes', 4)
    check_ways(tmp_path / 'data', ['--model', model, '--hidden', 16, '--fanout', '10,5', '--batch', 16, '--epochs', 1, '--eval-every', 0],
               tmp_path)


def test_cora(tmp_path):
    if not (REAL / 'cora').exists():
        pytest.skip(f'no cora in {REAL} (PLIMSOLL_TEST_DATA)')
    run(PLIMSOLL, 'import', REAL / 'cora', tmp_path / 'data', '--symmetrise', '--normalise-features')
    check_ways(tmp_path / 'data', ['--model', 'sage', '--hidden', 64, '--fanout', '10,5', '--batch', 32, '--epochs', 5, '--seed', 9,
                                   '--eval-every', 0], tmp_path)


def test_some_recipes_and_kills(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'bits', '--recipes', '8', '--rounds', '8', '--dir', tmp_path], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
