"""A dataset whose bytes are no longer those of its checksums is not trained on, as far as it is read as a whole."""
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
from prooflib import flip  # noqa: E402

PLIMSOLL = os.environ['PLIMSOLL']
SMALL = ('--model', 'sage', '--hidden', '8', '--fanout', '3,2', '--batch', '200', '--epochs', '1', '--quiet')


def plimsoll(*words):
    return subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500)


@pytest.fixture(name='graph', scope='module')
def make_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('damage') / 'graph'
    assert plimsoll('generate', 'free', path, '--nodes', 5000, '--edges', 40000, '--features', 16, '--classes', 4).returncode == 0
    for file in path.iterdir():
        file.chmod(0o644)
    return path


@pytest.mark.parametrize('name', ['indptr', 'indices', 'features', 'labels', 'train', 'valid', 'test'])
def test_what_lies_in_memory_is_checked(graph, tmp_path, name):
    """The lowest bit of an entry in the middle, and a blank of the header: values that any check of ranges takes."""
    path = graph / f'{name}.npy'
    for bit in (8 * 4000, 8 * (4096 + (path.stat().st_size - 4096) // 16 * 8)):
        flip(path, bit)
        done = plimsoll('train', graph, *SMALL, '--run', tmp_path / 'run')
        flip(path, bit)
        assert done.returncode == 4 and path.name in done.stderr, (bit, done.stderr)
        assert not (tmp_path / 'run').exists()
    assert plimsoll('train', graph, *SMALL, '--run', tmp_path / 'run').returncode == 0


def test_verify_checks_all(graph, tmp_path):
    """Also where graph and features stay on disk."""
    for name in ('indices', 'features'):
        path = graph / f'{name}.npy'
        bit = 8 * (4096 + (path.stat().st_size - 4096) // 16 * 8)
        flip(path, bit)
        done = plimsoll('train', graph, *SMALL, '--verify', '--run', tmp_path / 'run')
        flip(path, bit)
        assert done.returncode == 4 and path.name in done.stderr, done.stderr
        assert not (tmp_path / 'run').exists()
    assert plimsoll('train', graph, *SMALL, '--verify', '--run', tmp_path / 'run').returncode == 0


@pytest.mark.parametrize('words', [('evaluate', '--exact'), ('predict', '--out', 'out.npy')])
def test_verify_is_for_exact_passes_too(graph, tmp_path, words):
    assert plimsoll('train', graph, *SMALL, '--run', tmp_path / 'run').returncode == 0
    words = [tmp_path / word if word == 'out.npy' else word for word in words]
    path = graph / 'features.npy'
    bit = 8 * (4096 + (path.stat().st_size - 4096) // 16 * 8)
    flip(path, bit)
    done = plimsoll(*words, tmp_path / 'run', '--verify')
    flip(path, bit)
    assert done.returncode == 4 and path.name in done.stderr, done.stderr
    assert not (tmp_path / 'out.npy').exists()
    assert plimsoll(*words, tmp_path / 'run', '--verify').returncode == 0


def test_a_damaged_checkpoint_leaves_the_best_weights(graph, tmp_path):
    run, outputs = tmp_path / 'run', (tmp_path / 'a.npy', tmp_path / 'b.npy')
    assert plimsoll('train', graph, *SMALL, '--run', run).returncode == 0
    assert plimsoll('predict', run, '--out', outputs[0]).returncode == 0
    for bit in (1, 8 * 10, 8 * 100):
        flip(run / 'last.safetensors', bit)
        outputs[1].unlink(missing_ok=True)
        assert plimsoll('predict', run, '--out', outputs[1]).returncode == 0
        assert outputs[0].read_bytes() == outputs[1].read_bytes()
        done = plimsoll('train', '--resume', run, '--epochs', 2)
        assert done.returncode == 4 and 'last.safetensors' in done.stderr, done.stderr
        flip(run / 'last.safetensors', bit)
    assert plimsoll('train', '--resume', run, '--epochs', 2).returncode == 0


def test_a_staged_copy_is_verified_when_it_is_used_again(graph, tmp_path):
    bench = ('bench', 'load', graph, '--epochs', '1', '--stage', '--scratch', tmp_path, '--quiet')
    assert plimsoll(*bench).returncode == 0
    copy, = tmp_path.glob('plimsoll-*')
    path = copy / 'features.npy'
    flip(path, 8 * 5000)
    done = plimsoll(*bench)
    assert done.returncode == 4 and 'features.npy' in done.stderr, done.stderr
    shutil.rmtree(copy)
    assert plimsoll(*bench).returncode == 0


def test_weights_of_others_and_of_older_versions_are_taken(graph, tmp_path):
    """A file saved again by another program, its notes kept: taken, with a warning; without any note: taken."""
    run, safetensors = tmp_path / 'run', pytest.importorskip('safetensors.numpy')
    assert plimsoll('train', graph, *SMALL, '--run', run).returncode == 0
    tensors = safetensors.load_file(run / 'best.safetensors')
    want = plimsoll('evaluate', run, '--quiet').stdout
    for notes, warns in (({'plimsoll': '0.1.0', 'checksum': '0' * 16, 'checksums': '0' * 16}, True), (None, False)):
        safetensors.save_file(tensors, tmp_path / 'other.safetensors', metadata=notes)
        done = plimsoll('evaluate', run, '--weights', tmp_path / 'other.safetensors', '--quiet')
        assert done.returncode == 0 and done.stdout == want
        assert ('no checksums' in done.stderr) == warns, done.stderr
