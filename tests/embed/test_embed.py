"""The library inside somebody else's process: embed.c in a C program, and in Python with torch."""
import json
import os
import subprocess
import sys

import pytest

PROBES = os.environ['PLIMSOLL_PROBES']

# The scene on one thread with the interpreter's lock released, its log lines in Python, while another thread computes.
SCENE = '''
import ctypes, sys, threading
{before}
scene = ctypes.CDLL({library!r})
lines = []
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
def take(user, level, message):
    if not lines:
        at_first_line()
    lines.append(message)
def at_first_line():
    {during}
log = LOG(take)
status = scene.embed_run({directory!r}.encode(), log)
assert lines
{used}
sys.exit(status)
'''
USE_TORCH = 'import torch\nassert float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()) == 64 ** 3'


def run_scene(tmp_path, before='', during='pass', used='', env=None):
    text = SCENE.format(before=before, during=during, used=used, library=os.path.join(PROBES, 'libembed.so'), directory=str(tmp_path))
    done = subprocess.run([sys.executable, '-c', text], stderr=subprocess.PIPE, text=True, timeout=1500, env=os.environ | (env or {}))
    assert done.returncode == 0, done.stderr


def test_in_a_c_program():
    done = subprocess.run([os.path.join(PROBES, 'embed_main')], stderr=subprocess.PIPE, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr


def test_in_python(tmp_path):
    run_scene(tmp_path)


def test_in_python_with_torch_before(tmp_path):
    pytest.importorskip('torch')
    run_scene(tmp_path, before=USE_TORCH, used=USE_TORCH)


def test_in_python_with_torch_after(tmp_path):
    pytest.importorskip('torch')
    run_scene(tmp_path, used=USE_TORCH)


def test_in_python_with_torch_meanwhile(tmp_path):
    """Loaded in a callback of the library, while a job lives. It gets no threads of its own: they would be taken for the library's."""
    pytest.importorskip('torch')
    during = 'import torch; torch.set_num_threads(1); assert float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()) == 64 ** 3'
    run_scene(tmp_path, during=during, used=USE_TORCH, env={'OMP_NUM_THREADS': '1', 'OPENBLAS_NUM_THREADS': '1'})


def test_in_a_host_that_writes_a_decimal_comma(tmp_path):
    made = subprocess.run(['localedef', '-i', 'de_DE', '-f', 'UTF-8', tmp_path / 'de_DE.UTF-8'], capture_output=True, check=False)
    if made.returncode != 0:
        pytest.skip('there is no localedef, or no German locale (tools/bootstrap installs them)')
    speaks = 'import locale\nlocale.setlocale(locale.LC_ALL, "de_DE.UTF-8")'
    still = 'assert locale.localeconv()["decimal_point"] == ","'
    run_scene(tmp_path, before=speaks, used=still, env={'LOCPATH': str(tmp_path)})
    lines = (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()
    assert lines and all(json.loads(line)['loss'] > 0 for line in lines)
    with open(tmp_path / 'run' / 'last.safetensors', 'rb') as file:
        notes = json.loads(file.read(int.from_bytes(file.read(8), 'little')))['__metadata__']
    assert all(float.fromhex(text) is not None for text in notes.values() if text.startswith('0x'))
