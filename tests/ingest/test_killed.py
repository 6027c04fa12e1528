"""Killed at 12 random moments, a dataset is whole or absent; tools/prove killed says what is checked."""
import pathlib
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'


def test_a_dozen_kills(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'killed', '12', '--dir', tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
