"""Some random runs in real cgroups: planned, trained, used to predict; tools/never-killed tries a thousand."""
import os
import pathlib
import subprocess
import sys

import pytest

TOOL = pathlib.Path(os.environ['PLIMSOLL_SOURCE']) / 'tools' / 'never-killed'


def test_some_random_runs(tmp_path):
    done = subprocess.run([sys.executable, TOOL, '60', '--leasts', '0', '--dir', tmp_path, '--json', tmp_path / 'result.json'],
                          capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout + done.stderr
