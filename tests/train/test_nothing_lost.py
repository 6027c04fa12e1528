"""Some kills, full disks and ulimits; tools/prove nothing-lost says what is checked, and does it 300, 20 and 20 times."""
import os
import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'


@pytest.mark.skipif(os.geteuid() != 0, reason='small disks and ulimit -u for somebody else need root')
def test_some_of_each(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'nothing-lost', '--kills', '10', '--disks', '3', '--rlimits', '6', '--dir', tmp_path],
                          capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr
