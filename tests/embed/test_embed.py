"""The library inside somebody else's process: embed.c in a C program, and in Python with torch."""
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
{after}
lines = []
LOG = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
log = LOG(lambda user, level, message: lines.append(message))
status = scene.embed_run({directory!r}.encode(), log)
assert lines
{used}
sys.exit(status)
'''
USE_TORCH = 'import torch\nassert float((torch.ones(64, 64) @ torch.ones(64, 64)).sum()) == 64 ** 3'


def run_scene(tmp_path, before='', after='', used=''):
    text = SCENE.format(before=before, after=after, used=used, library=os.path.join(PROBES, 'libembed.so'), directory=str(tmp_path))
    done = subprocess.run([sys.executable, '-c', text], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_in_a_c_program():
    done = subprocess.run([os.path.join(PROBES, 'embed_main')], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_in_python(tmp_path):
    run_scene(tmp_path)


def test_in_python_with_torch_before(tmp_path):
    pytest.importorskip('torch')
    run_scene(tmp_path, before=USE_TORCH, used=USE_TORCH)


def test_in_python_with_torch_after(tmp_path):
    pytest.importorskip('torch')
    run_scene(tmp_path, used=USE_TORCH)
