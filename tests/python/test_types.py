"""mypy and ruff on the package, and its stubs against the extension that they describe."""
import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', '.')).resolve()


def clean(*words):
    module = words[0].partition('.')[0]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f'{module} is not installed')
    done = subprocess.run([sys.executable, '-m', *map(str, words)], cwd=SOURCE, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ruff():
    clean('ruff', 'check', '--no-cache', '--quiet', '.')


def test_mypy():
    clean('mypy', '--cache-dir', os.devnull)


def test_the_stubs_describe_the_extension():
    pytest.importorskip('plimsoll')
    clean('mypy.stubtest', 'plimsoll._core', '--mypy-config-file', 'pyproject.toml', '--concise')
