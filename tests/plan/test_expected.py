"""A run reads about the bytes that its plan expects; tools/prove expected tries 30, with narrow bounds."""
import json
import os
import resource
import subprocess

PLIMSOLL = os.environ['PLIMSOLL']


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


def test_the_minimum_hardly_grows_with_nodes_that_are_not_reached():
    words = ['--model', 'gcn', '--hidden', '16', '--fanout', '3,2', '--batch', '128', '--memory', '1500M', '--json']
    plans = [json.loads(subprocess.run([PLIMSOLL, 'plan', 'papers100M', '--scale', str(scale), *words], check=True, capture_output=True).stdout)
             for scale in (3, 10)]
    labels, offsets = ([sum(account['phases']['train'] for account in plan['accounts'] if account['name'] == name) for plan in plans]
                       for name in ('seeds and labels', 'offsets'))
    growth = plans[1]['minimum_bytes'] - plans[0]['minimum_bytes']
    assert growth - 3 * (labels[1] - labels[0]) < 0.3 * 7 * 111_059_956  # reading seeds takes more for a moment
    assert offsets[0] > 0 and offsets[1] == 0  # where they fit they are in memory
