# labels: asan
"""Some cases of tools/prove attack: 100 with sanitizers, fewer without."""
import os
import pathlib
import subprocess
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
PLIMSOLL = pathlib.Path(os.environ.get('PLIMSOLL', SOURCE / 'build' / 'dev' / 'plimsoll'))


def test_forged_files_and_options():
    cases = 100 if b'__asan_init' in PLIMSOLL.read_bytes() else 30
    done = subprocess.run([sys.executable, SOURCE / 'tools' / 'prove', 'attack', str(cases), '--binary', PLIMSOLL, '--patience', '1500'],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
