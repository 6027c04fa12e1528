"""Checkpoints are safetensors as others read and write them: NumPy, PyTorch."""
import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

safetensors = pytest.importorskip('safetensors', reason='safetensors is not installed (tools/bootstrap installs it)')
pytest.importorskip('safetensors.numpy')
PROBE = pathlib.Path(os.environ['PLIMSOLL_PROBES']) / 'probe_checkpoint'
SHAPES = {'convs.0.lin.weight': (3, 4), 'convs.0.bias': (4,), 'norms.0.module.running_mean': (4,)}


def expected(number, moment):
    """What the probe's model holds in tensor `number`; moment 0 are the values themselves."""
    count = np.prod(list(SHAPES.values())[number])
    whole = np.float32(number * 100 + moment * 20) + np.arange(count, dtype=np.float32)
    return (np.float32(1) + whole / np.float32(7)).reshape(list(SHAPES.values())[number])


@pytest.fixture(name='run')
def make_run(tmp_path):
    subprocess.run([PROBE, 'save', tmp_path], check=True)
    return tmp_path / 'run'


def test_numpy_reads_all(run):
    tensors = safetensors.numpy.load_file(run / 'last.safetensors')
    names = set(SHAPES)
    for moment, kind in enumerate(['exp_avg', 'exp_avg_sq'], 1):
        for number, name in enumerate(list(SHAPES)[:2]):
            names.add(f'optimizer.{kind}.{name}')
            np.testing.assert_array_equal(tensors[f'optimizer.{kind}.{name}'], expected(number, moment))
    for number, name in enumerate(SHAPES):
        np.testing.assert_array_equal(tensors[name], expected(number, 0))
    assert set(tensors) == names
    assert set(safetensors.numpy.load_file(run / 'best.safetensors')) == set(SHAPES)


def test_what_it_says_about_itself(run):
    with safetensors.safe_open(run / 'last.safetensors', 'np') as file:
        notes = file.metadata()
    settings = json.loads((run / 'run.json').read_text())
    assert notes['format'] == 'pt'
    assert (notes['epoch'], notes['step']) == ('2', '5')
    assert float.fromhex(notes['loss_sum']) == 0.1
    assert json.loads(notes['settings']) == settings['settings']
    assert notes['fingerprint'] == settings['dataset']['fingerprint'] == '0123456789abcdef'
    assert notes['onednn'] == settings['versions']['onednn']
    assert settings['settings']['fanout'] == [10, 10]
    with safetensors.safe_open(run / 'best.safetensors', 'np') as file:
        assert file.metadata()['valid'] == '0.75'


def test_torch_reads_and_writes(run, tmp_path):
    pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
    from safetensors.torch import load_file, save_file
    tensors = load_file(run / 'best.safetensors')
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == SHAPES
    save_file({name: -tensor for name, tensor in tensors.items()}, tmp_path / 'torch.safetensors')
    printed = subprocess.run([PROBE, 'load', tmp_path, tmp_path / 'torch.safetensors'], check=True, capture_output=True, text=True)
    for number, line in enumerate(printed.stdout.splitlines()):
        values = [float.fromhex(word) for word in line.split()[1:]]
        np.testing.assert_array_equal(values, -expected(number, 0).ravel())


def test_a_cut_file_is_refused(run, tmp_path):
    data = (run / 'best.safetensors').read_bytes()
    (tmp_path / 'cut').write_bytes(data[:-1])
    done = subprocess.run([PROBE, 'load', tmp_path, tmp_path / 'cut'], check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert 'truncated' in done.stderr
