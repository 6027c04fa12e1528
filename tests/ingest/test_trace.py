# labels: plain unprivileged
"""The order of write, fsync and rename, as the kernel saw it (strace), of an import and of a generation.

Every file of the dataset is synced after its last write; then the directory that holds them; then it is renamed; then the
directory that holds the name is synced. And a kill at each of these calls leaves the target absent or complete.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import prooflib  # noqa: E402

WRITES = {'write', 'writev', 'pwrite64', 'pwritev', 'pwritev2', 'ftruncate', 'fallocate'}
SYNCS = {'fsync', 'fdatasync'}
RENAMES = {'rename', 'renameat', 'renameat2'}
LINE = re.compile(r'^(\d+) +(?:<\.\.\. )?(\w+)(?:\(| resumed>)(.*)$')


def strace_works():
    try:
        return subprocess.run(['strace', '-o', '/dev/null', 'true'], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not strace_works(), reason='strace is not here, or ptrace is forbidden')


@pytest.fixture(name='source')
def small_source(tmp_path):
    """A graph as plain .npy files."""
    folder = tmp_path / 'source'
    folder.mkdir()
    draw = numpy.random.default_rng(3)
    numpy.save(folder / 'edge_index.npy', draw.integers(0, 500, (2, 4000)))
    numpy.save(folder / 'node_feat.npy', draw.standard_normal((500, 16), dtype=numpy.float32))
    numpy.save(folder / 'node_label.npy', draw.integers(0, 4, 500))
    return folder


def commands(source, target):
    return {'import': [prooflib.plimsoll(), 'import', str(source), str(target), '--quiet'],
            'generate': [prooflib.plimsoll(), 'generate', 'free', str(target), '--nodes', '500', '--edges', '4000',
                         '--features', '16', '--classes', '4', '--quiet']}


def events(trace):
    """(call, arguments, line where it began, line where it ended) of every call that succeeded."""
    begun, found = {}, []
    for number, line in enumerate(trace.read_text().splitlines()):
        match = LINE.match(line)
        if not match:
            continue
        thread, call, rest = match.groups()
        if rest.endswith('<unfinished ...>'):
            begun[thread] = (rest[:-len('<unfinished ...>')], number)
            continue
        began = number
        if 'resumed>' in line:
            head, began = begun.pop(thread, ('', number))
            rest = head + rest
        arguments, _, result = rest.rpartition(' = ')
        if not result.startswith('-1'):
            found.append((call, arguments, began, number))
    return found


def file_of(arguments):
    """The path that -y shows behind the first descriptor."""
    match = re.match(r'\d+<([^>]*)>', arguments)
    return match.group(1) if match else None


def renamed(arguments):
    names = re.findall(r'"([^"]*)"', arguments)
    folder = re.match(r'(?:AT_FDCWD|\d+)<([^>]*)>', arguments)
    return [os.path.join(folder.group(1) if folder else '', name) for name in names]


@pytest.mark.parametrize('verb', ['import', 'generate'])
@pytest.mark.parametrize('engine', ['threads', 'uring'])
def test_order_of_sync_and_rename(tmp_path, source, verb, engine):
    parent = tmp_path / 'out'
    parent.mkdir()
    target = parent / 'dataset'
    trace = tmp_path / 'trace'
    done = subprocess.run(['strace', '-f', '-y', '-s', '4096', '-o', trace, '-e', 'trace=' + ','.join(WRITES | SYNCS | RENAMES),
                           *commands(source, target)[verb], '--io', engine], capture_output=True, text=True, check=False)
    if engine == 'uring' and 'io_uring' in done.stderr:
        pytest.skip('the kernel refuses io_uring: ' + done.stderr.strip())
    assert done.returncode == 0, done.stderr
    seen = events(trace)

    [(staging, rename_began, rename_ended)] = [(renamed(arguments)[0], began, ended) for call, arguments, began, ended in seen
                                               if call in RENAMES and renamed(arguments)[1] == str(target)]
    assert os.path.dirname(staging) == str(parent), 'staged on the target\'s own file system'

    final = {}  # name while written -> name in the dataset, for files that get their name by a rename of their own
    for call, arguments, _, _ in seen:
        if call in RENAMES and renamed(arguments)[1] != str(target):
            old, new = renamed(arguments)
            final[old] = new
    written, synced = {}, {}
    for call, arguments, began, ended in seen:
        path = final.get(file_of(arguments), file_of(arguments))
        if path and call in WRITES:
            written[path] = max(ended, written.get(path, 0))
        elif path and call in SYNCS:
            synced.setdefault(path, []).append((began, ended))

    staging_sync = max((began, ended) for began, ended in synced[staging] if ended < rename_began)
    for file in target.iterdir():
        path = os.path.join(staging, file.name)
        last = max((began, ended) for began, ended in synced[path])
        assert last[0] > written.get(path, -1), f'{file.name} is written to after its last sync'
        assert last[1] < staging_sync[0], f'{file.name} is synced after the directory that holds it'
        if engine == 'threads':
            assert path in written, f'no write to {file.name} was seen'
    assert any(began > rename_ended for began, _ in synced[str(parent)]), 'the new name is not synced'


@pytest.mark.parametrize('verb', ['import', 'generate'])
def test_killed_at_every_sync_and_rename(tmp_path, source, verb):
    parent = tmp_path / 'out'
    parent.mkdir()
    target = parent / 'dataset'
    command = commands(source, target)[verb]
    assert subprocess.run(command, check=False).returncode == 0
    whole = prooflib.digest(target)
    # At the least: a sync of every file, of their directory and of its parent; and the one rename.
    for calls, least in (SYNCS, len(os.listdir(target)) + 2), (RENAMES, 1):
        for number in range(1, 200):
            shutil.rmtree(target, ignore_errors=True)
            inject = f'inject={",".join(sorted(calls))}:signal=KILL:when={number}'
            killed = subprocess.run(['strace', '-f', '-o', '/dev/null', '-e', inject, *command], check=False, capture_output=True)
            if target.exists():
                assert prooflib.digest(target) == whole
            shutil.rmtree(target, ignore_errors=True)
            if killed.returncode == 0:
                break
            assert killed.returncode == -9, killed.stderr
        assert least < number < 199
        assert subprocess.run(command, check=False).returncode == 0
        assert prooflib.digest(target) == whole
        assert os.listdir(parent) == ['dataset'], 'something stray is left'
