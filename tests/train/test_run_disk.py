"""A disk that is too small is refused before the first step; one that fills in mid-run costs nothing."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import prooflib  # noqa: E402

MIB = 1 << 20
# A checkpoint of 3 MiB: 2,500 features, 100 channels.
WISH = ['--model', 'sage', '--hidden', '100', '--fanout', '5,5', '--batch', '64', '--seed', '4', '--epochs', '6', '--memory', '512M']


@pytest.fixture(name='graph', scope='module')
def small_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('graph') / 'graph'
    made = prooflib.call('generate', 'free', path, '--nodes', 2000, '--edges', 10000, '--features', 1250, '--classes', 5, '--quiet')
    assert made.returncode == 0, made.stderr
    return path


@pytest.fixture(name='wanted', scope='module')
def undisturbed(graph, tmp_path_factory):
    run = tmp_path_factory.mktemp('undisturbed') / 'run'
    done = prooflib.call('train', graph, *WISH, '--run', run, '--quiet')
    assert done.returncode == 0, done.stderr
    return (run / 'metrics.jsonl').read_bytes().splitlines()


@pytest.fixture(name='disk')
def small_disk(tmp_path, request):
    if os.geteuid() != 0:
        pytest.skip('mounting a small file system needs root')
    disk = prooflib.Disk(tmp_path, getattr(request, 'param', 64) * MIB)
    if disk.refused:
        pytest.skip(disk.refused)
    yield disk
    disk.close()


def test_too_small_from_the_start(disk, graph):
    """Whatever is free, it is refused before the first step with nothing left, or goes to the end."""
    codes = {}
    for kib in (0, 16, 1000, 4500, 6000, 9000, 20000):
        disk.fill(leave=kib << 10)
        before = sorted(os.listdir(disk.path))
        done = prooflib.call('train', graph, *WISH, '--run', disk.path / 'run', '--json')
        codes[kib] = done.returncode
        assert done.returncode in (0, 3), done.stderr
        if done.returncode == 3:
            assert prooflib.last_json(done.stdout)['status'] == 'disk space', done.stdout
            assert '"event":"step"' not in done.stdout
            assert sorted(os.listdir(disk.path)) == before
        else:
            shutil.rmtree(disk.path / 'run')
        disk.empty()
    assert codes[0] == codes[6000] == 3 and codes[20000] == 0, codes


def test_too_small_without_fallocate(tmp_path, graph):
    """ext2 reserves nothing, like NFS: what all checkpoints take together is compared with what is free."""
    if os.geteuid() != 0:
        pytest.skip('mounting a small file system needs root')
    disk = prooflib.Disk(tmp_path, 64 * MIB, 'mkfs.ext2', '-q', '-m', '0')
    if disk.refused:
        pytest.skip(disk.refused)
    try:
        for mib, code in ((5, 3), (20, 0)):
            free = shutil.disk_usage(disk.path).free
            (disk.path / 'other').write_bytes(bytes(free - mib * MIB))
            before = sorted(os.listdir(disk.path))
            done = prooflib.call('train', graph, *WISH, '--run', disk.path / 'run', '--json')
            assert done.returncode == code, done.stderr
            assert code == 0 or sorted(os.listdir(disk.path)) == before
            disk.empty()
    finally:
        disk.close()


def test_the_plan_says_what_a_run_needs(disk, graph):
    plan = prooflib.last_json(prooflib.call('plan', graph, *WISH, '--json').stdout)
    needed = plan['expect']['disk_bytes']
    disk.fill(leave=needed + MIB)
    done = prooflib.call('train', graph, *WISH, '--run', disk.path / 'run', '--quiet')
    assert done.returncode == 0, done.stderr
    used = sum(path.stat().st_size for path in (disk.path / 'run').iterdir())
    assert used < needed < 20 * used


def test_a_finished_run_needs_no_room(disk, graph):
    run = disk.path / 'run'
    assert prooflib.call('train', graph, *WISH, '--epochs', 1, '--run', run, '--quiet').returncode == 0
    disk.fill()
    assert prooflib.call('train', '--resume', run, '--quiet').returncode == 0
    assert prooflib.call('train', '--resume', run, '--epochs', '+1', '--quiet').returncode == 3


@pytest.mark.parametrize('steps', [3, 1000000])
def test_filled_in_mid_run(disk, graph, wanted, steps):
    """Somebody takes all that is free: with the room it has reserved the run saves itself, and says how to go on."""
    run = disk.path / 'run'
    child = subprocess.Popen([prooflib.plimsoll(), 'train', graph, *WISH, '--run', run, '--epochs', '5000', '--checkpoint-every', str(steps),
                              '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    epoch, last = 0, {}
    for line in child.stdout:
        last = json.loads(line)
        epoch = last['epoch'] if last.get('event') == 'epoch' else epoch
        if epoch == 2 and not (disk.path / 'other').exists():
            disk.fill()
    assert child.wait(timeout=1500) == 6, child.stderr.read()
    assert last['status'] == 'disk full' and f'plimsoll train --resume {run}' in last['remedy'], last
    saved = prooflib.read_safetensors(run / 'last.safetensors')['metadata']
    assert int(saved['epoch']) >= epoch  # nothing that was told is lost
    disk.empty()
    done = prooflib.call('train', '--resume', run, '--epochs', int(saved['epoch']) + 1, '--quiet')
    assert done.returncode == 0, done.stderr
    lines = (run / 'metrics.jsonl').read_bytes().splitlines()
    assert len(lines) == int(saved['epoch']) + 1 and lines[:6] == wanted[:len(lines)]


def test_no_timeline_where_there_is_no_room(disk, graph):
    """The timeline is not worth a run: the disk is full but for what the checkpoints have reserved."""
    run = disk.path / 'run'
    child = subprocess.Popen([prooflib.plimsoll(), 'train', graph, *WISH, '--run', run, '--epochs', '3', '--memory-every', '1',
                              '--checkpoint-minutes', '0'], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while child.poll() is None and not (run / 'timeline.jsonl').exists():
        time.sleep(0.001)
    while child.poll() is None and (run / 'timeline.jsonl').stat().st_size == 0:
        time.sleep(0.001)
    disk.fill()
    _, printed = child.communicate(timeout=1500)
    assert child.returncode in (0, 6), printed


def test_predictions_do_not_fit(disk, graph, tmp_path):
    run = tmp_path / 'run'
    assert prooflib.call('train', graph, *WISH, '--run', run, '--quiet').returncode == 0
    disk.fill(leave=8192)
    before = sorted(os.listdir(disk.path))
    done = prooflib.call('predict', run, '--out', disk.path / 'out.npy', '--quiet')
    assert done.returncode == 3, done.stderr
    assert sorted(os.listdir(disk.path)) == before


def test_a_full_standard_output(graph):
    with open('/dev/full', 'w') as full:
        done = subprocess.run([prooflib.plimsoll(), 'inspect', graph], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 6, done.stderr
