"""Flipped bits in a run directory, packed rows, a staged copy and the cache: found, or without effect; tools/prove flips-run does 500."""
import pathlib
import subprocess
import sys

TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'


def test_twenty_flips():
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'flips-run', '20'], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
