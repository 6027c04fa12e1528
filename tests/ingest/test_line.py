"""A hundredth of papers100M, generated inside a real cgroup of 256 MiB; tools/prove generate says what is checked."""
import json
import pathlib
import subprocess
import sys

import pytest

TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'


def test_a_hundredth_inside_256_mib(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'generate', '--scale', '0.01', '--memory', '256M', '--dir', tmp_path],
                          capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_magnifying_glass_sees_the_killer(tmp_path):
    report = tmp_path / 'report.json'
    done = subprocess.run([sys.executable, TOOLS / 'limited', '64M', '--json', report, '--warm', '--',
                           sys.executable, '-c', 'bytearray(128 << 20)'], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip())
    printed = json.loads(report.read_text())
    assert done.returncode == printed['exit'] == 137
    assert printed['oom_kill'] == 1
    assert printed['peak'] <= printed['limit'] == 64 << 20


def test_a_killed_proof_leaves_nothing_in_the_way(tmp_path):
    """The number of a process comes again, and its group with it."""
    report = tmp_path / 'report.json'
    leave = 'for root in /sys/fs/cgroup/memory /sys/fs/cgroup; do mkdir $root/plimsoll-limited-$$ 2>/dev/null && break; done; ' \
            '[ -d $root/plimsoll-limited-$$ ] || exit 99; ' \
            f'exec {sys.executable} {TOOLS / "limited"} 64M --json {report} --warm -- true'
    probe = subprocess.run([sys.executable, TOOLS / 'limited', '64M', '--json', report, '--warm', '--', 'true'], capture_output=True,
                           text=True, check=False)
    if probe.returncode == 77:
        pytest.skip(probe.stderr.strip())
    assert subprocess.run(['sh', '-c', leave], check=False).returncode == 0
