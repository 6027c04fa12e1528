"""Some random runs take about the time and read about the bytes that their plans expect; tools/prove-expected tries 30, with narrow bounds."""
import json
import os
import pathlib
import resource
import subprocess
import sys

PLIMSOLL = os.environ['PLIMSOLL']
TOOL = pathlib.Path(os.environ['PLIMSOLL_SOURCE']) / 'tools' / 'prove-expected'


def test_a_few_random_runs(tmp_path):
    done = subprocess.run([sys.executable, TOOL, '2', '--loose', '--longest', '5', '--datasets', 'arxiv', '--dir', tmp_path,
                           '--json', tmp_path / 'result.json'], capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr)
    assert done.returncode == 0
    runs = json.loads((tmp_path / 'result.json').read_text())['runs']
    assert len(runs) == 2 and all(run['rates'] == 'measured' for run in runs)


def read_bytes(*words):
    """What a command reads from the disk."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock
    subprocess.run([PLIMSOLL, *words], check=True, capture_output=True)
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_inblock - before) * 512


def test_rare_nodes_are_expected_to_be_read(tmp_path):
    """A cache holds the frequent nodes; the many others are drawn too, each seldom."""
    graph, words = tmp_path / 'graph', ['--model', 'sage', '--hidden', '16', '--batch', '256', '--fanout', '5,5', '--memory', '110M']
    subprocess.run([PLIMSOLL, 'generate', 'papers100M', graph, '--scale', '0.002', '--spread', '1', '--quiet'], check=True)
    done = subprocess.run([PLIMSOLL, 'plan', graph, *words, '--measure', '--json'], check=True, capture_output=True, text=True)
    expected = json.loads(done.stdout.splitlines()[0])['expect']['epoch_read_bytes']
    one, five = (read_bytes('train', graph, *words, '--eval-every', '0', '--epochs', str(epochs), '--run', tmp_path / f'run{epochs}')
                 for epochs in (1, 5))
    assert expected > (five - one) / 4 / 4
