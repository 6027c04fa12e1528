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


def test_misspelt_arguments_are_found(tmp_path):
    """Also of those that are torch's DataLoader's."""
    pytest.importorskip('mypy')
    config = tmp_path / 'mypy.ini'
    config.write_text(f'[mypy]\nmypy_path = {SOURCE}/python\nfollow_imports = skip\n[mypy-plimsoll.*]\nfollow_imports = normal\n')
    loaders = 'NeighborLoader(ds, [2], {0})', 'LinkNeighborLoader(ds, [2], {0})', 'GraphLoader(ds, {0})'
    calls = [f'plimsoll.{loader.format(given)}' for given in ('num_workers=2, pin_memory=True', 'num_wokers=2') for loader in loaders]
    script = '\n'.join(['import plimsoll', 'ds = plimsoll.open("graph")', *calls])
    words = [sys.executable, '-m', 'mypy', '--cache-dir', os.devnull, '--config-file', config, '-c', script]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, timeout=1500)
    wrong = [line for line in done.stdout.splitlines() if line.startswith('<string>') and 'error:' in line]
    assert len(wrong) == 3 and all('num_wokers' in line for line in wrong), done.stdout + done.stderr


def test_the_stubs_describe_the_extension():
    pytest.importorskip('plimsoll')
    clean('mypy.stubtest', 'plimsoll._core', '--mypy-config-file', 'pyproject.toml', '--concise')
