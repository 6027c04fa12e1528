"""Disk full and quota exceeded, on a small file system of its own: a clear error, and nothing half-written."""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import prooflib  # noqa: E402

MIB = 1 << 20
COMMON = ['--nodes', '80000', '--classes', '4', '--memory', '100M', '--quiet']
# Large enough to be stopped on the way: 40 MiB of rows; 80 MiB of edges, which memory does not hold.
ROWS = ['--edges', '2000000', '--features', '256', *COMMON]
EDGES = ['--edges', '10000000', '--features', '8', *COMMON]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='mounting a small file system needs root')


def run(*words):
    return subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)


@pytest.fixture(name='disk')
def small_disk(tmp_path):
    disk = prooflib.Disk(tmp_path, 600 * MIB)
    if disk.refused:
        pytest.skip(disk.refused)
    yield disk
    disk.close()


def fill_midway(disk, target, *words):
    """Generates, and fills the disk once 4 MiB are written; exit code and words. Again where it was faster than this process."""
    for _ in range(20):
        free = shutil.disk_usage(disk.path).free
        child = subprocess.Popen([prooflib.plimsoll(), 'generate', 'free', target, *words], stderr=subprocess.PIPE, text=True)
        while child.poll() is None and shutil.disk_usage(disk.path).free > free - 4 * MIB:
            time.sleep(0.001)
        child.send_signal(signal.SIGSTOP)
        disk.fill()
        child.send_signal(signal.SIGCONT)
        _, printed = child.communicate(timeout=1500)
        if child.returncode != 0:
            break
        disk.empty()
        shutil.rmtree(target)
    return child.returncode, printed


@pytest.mark.parametrize('engine', ['threads', 'uring'])
def test_filled_by_another_writer(disk, engine):
    code, printed = fill_midway(disk, disk.path / 'dataset', *ROWS, '--io', engine)
    assert code == 6, printed
    assert 'No space left on device' in printed and str(disk.path) in printed
    assert disk.stray() == {'other'}, 'something half-written is left'


def test_tmp_filled_by_another_writer(disk, tmp_path):
    tmp, target = disk.path / 'tmp', tmp_path / 'dataset'
    tmp.mkdir()
    code, printed = fill_midway(disk, target, *EDGES, '--tmp', tmp)
    assert code == 6, printed
    assert 'No space left on device' in printed
    assert os.listdir(tmp) == [] and not target.exists()
    assert not [name for name in os.listdir(tmp_path) if name.startswith('.')], 'the staging directory is left'


def test_too_little_room_is_refused_first(disk):
    disk.fill(leave=20 * MIB)
    before = shutil.disk_usage(disk.path).free
    done = run(prooflib.plimsoll(), 'generate', 'free', disk.path / 'dataset', *ROWS)
    assert done.returncode == 3, done.stderr
    assert str(disk.path) in done.stderr
    assert disk.stray() == {'other'} and shutil.disk_usage(disk.path).free == before


def test_quota_exceeded(tmp_path):
    """Btrfs counts what a subvolume holds, and many kernels lack what quotas on ext4 need; the error is the same EDQUOT."""
    disk = prooflib.Disk(tmp_path, 1024 * MIB, 'mkfs.btrfs', '-q')
    if disk.refused:
        pytest.skip(disk.refused)
    try:
        for words in ('quota', 'enable', disk.path), ('qgroup', 'limit', '30M', '0/5', disk.path):
            done = run('btrfs', *words)
            if done.returncode != 0:
                pytest.skip('no quota groups here: ' + done.stderr.strip())
        done = run(prooflib.plimsoll(), 'generate', 'free', disk.path / 'dataset', *ROWS)
        assert done.returncode == 6, done.stderr
        assert 'quota' in done.stderr.lower()
        assert not disk.stray(), 'something half-written is left'
    finally:
        disk.close()
