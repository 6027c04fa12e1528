"""A loader on bad days: the kernel, the disk and the user interfere, and it gives the same batches or says why not; it never hangs.

Short reads, and bad days of io_uring's own completions, are in test_faults.c: strace can fail a call, but not shorten it.
"""
import ctypes
import errno
import json
import os
import pathlib
import pwd
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import numpy
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
HEADER = 4096
TIMEOUT = 1500  # of what takes a fraction of a second: longer is a hang, however busy the machine is
COLD = ['--row-cache', 'none', '--list-cache', 'none']
# Leaks cannot be looked for under ptrace, should this be a build that does.
STRACE = ['strace', '-f', '-qq', '-E', 'ASAN_OPTIONS=detect_leaks=0', '-o']


def strace_works():
    try:
        return subprocess.run(['strace', '-D', '-o', '/dev/null', 'true'], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


needs_strace = pytest.mark.skipif(not strace_works(), reason='strace is not here, or ptrace is forbidden')


def load(data, *words):
    """Few seeds a batch and few batches a window, so that reading goes on to the end."""
    return [PLIMSOLL, 'bench', 'load', str(data), '--batch', '32', '--fanout', '4,3', '--window', '4', '--hash',
            '--topology', 'disk', '--features', 'disk', *map(str, words)]


def run(command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, timeout=TIMEOUT, **options)


def hashes(done):
    assert done.returncode == 0, done.stderr
    return [epoch['hash'] for epoch in json.loads(done.stdout)['epochs']]


def failed(done, code, *parts):
    """The one JSON object says why, with the file's name and the like."""
    assert done.returncode == code, (done.returncode, done.stdout, done.stderr)
    error = json.loads(done.stdout)
    assert error['exit_code'] == code
    for part in parts:
        assert part in error['error'], error


@pytest.fixture(scope='module', name='data')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('faults') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'papers100M', path, '--scale', '0.0002', '--quiet'], check=True)
    return path


@pytest.fixture(scope='module', name='wanted')
def right_hashes(data):
    return hashes(run(load(data, '--json', *COLD)))


@pytest.fixture(name='copy')
def copy_of_data(data, tmp_path):
    return shutil.copytree(data, tmp_path / 'graph')


def test_threads_slots_and_windows(data, wanted):
    for words in (['--threads', 8], ['--threads', 1], ['--slots', 1], ['--threads', 8, '--slots', 1, *COLD],
                  ['--threads', 1, '--slots', 1, '--window', 1, *COLD]):
        assert hashes(run(load(data, '--json', *words))) == wanted, words


# What the kernel answers to pread64, in strace's words. It counts the calls of each thread by itself.

def injected(data, trace, fault, *words, only=()):
    """A run with that fault in the reads of some files, or of all, and how often it was injected."""
    paths = [word for file in only for word in ('-P', data / file)]
    done = run([*STRACE, trace, *paths, '-e', 'trace=pread64', '-e', 'inject=pread64:' + fault,
                *load(data, '--json', '--io', 'threads', *words)])
    return done, trace.read_text().count('(INJECTED)')


@needs_strace
@pytest.mark.parametrize('words', [COLD, []], ids=['uncached', 'cached'])
def test_interrupted_reads_are_repeated(data, wanted, tmp_path, words):
    files = [path.name for path in data.glob('*.npy')]
    done, times = injected(data, tmp_path / 'trace', 'error=EINTR:when=1+2', *words, only=files)
    assert times > 100 and hashes(done) == wanted


@needs_strace
@pytest.mark.parametrize('file, number', [('train.npy', 1), ('indptr.npy', 1), ('indices.npy', 2), ('features.npy', 3)])
@pytest.mark.parametrize('fault, code, printed', [('error=EIO', 1, 'Input/output error'), ('retval=0', 4, 'truncated')])
def test_a_read_that_fails_is_reported(data, tmp_path, file, number, fault, code, printed):
    """The first of the main thread is that of a header; a second is one of a thread that reads for windows."""
    done, times = injected(data, tmp_path / 'trace', f'{fault}:when={number}', *COLD, only=[file])
    assert times > 0
    failed(done, code, str(data / file), ' at offset ', printed)


# io_uring as container profiles leave it.

CALLS = {'io_uring_setup': 425, 'io_uring_enter': 426}


class Instruction(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint16), ('if_true', ctypes.c_uint8), ('if_false', ctypes.c_uint8), ('value', ctypes.c_uint32)]


class Program(ctypes.Structure):
    _fields_ = [('length', ctypes.c_uint16), ('instructions', ctypes.POINTER(Instruction))]


def refusing(call, error):
    """Installs a filter that answers `call` with `error`; for the child, before it becomes plimsoll."""
    load_word, jump_if_equal, answer = 0x20, 0x15, 0x06
    allow, fail = 0x7fff0000, 0x00050000
    rules = (Instruction * 4)(Instruction(load_word, 0, 0, 0), Instruction(jump_if_equal, 0, 1, CALLS[call]),
                              Instruction(answer, 0, 0, fail | error), Instruction(answer, 0, 0, allow))
    program = Program(4, rules)
    libc = ctypes.CDLL(None, use_errno=True)
    no_new_privileges, set_filter, filter_mode = 38, 22, 2

    def install():
        if libc.prctl(no_new_privileges, 1, 0, 0, 0) or libc.prctl(set_filter, filter_mode, ctypes.byref(program), 0, 0):
            os._exit(99)
    return install


def run_refusing(call, error, command):
    done = run(command, preexec_fn=refusing(call, error))
    if done.returncode == 99:
        pytest.skip('the kernel takes no seccomp filter')
    return done


@pytest.fixture(scope='module', name='uring')
def has_uring(data):
    done = run(load(data, '--json', '--io', 'uring', '--epochs', 1))
    if done.returncode == 1 and 'io_uring' in done.stderr:
        pytest.skip('the kernel refuses io_uring as it is: ' + done.stderr.splitlines()[-1])


@pytest.mark.parametrize('error', [errno.EPERM, errno.ENOSYS, errno.ENOMEM])
def test_a_ring_that_cannot_be_made(data, wanted, error):
    done = run_refusing('io_uring_setup', error, load(data, '--json', *COLD))
    assert hashes(done) == wanted
    assert 'io_uring is unavailable' in done.stderr
    done = run_refusing('io_uring_setup', error, load(data, '--json', '--io', 'uring', *COLD))
    failed(done, 1, 'io_uring', os.strerror(error))


@pytest.mark.parametrize('engine', ['auto', 'uring'])
def test_a_ring_that_may_not_be_entered(data, wanted, uring, engine):
    done = run_refusing('io_uring_enter', errno.EPERM, load(data, '--json', '--io', engine, *COLD))
    assert hashes(done) == wanted


@needs_strace
@pytest.mark.parametrize('fault', ['EINTR:when=1+2', 'EAGAIN:when=2+3', 'EBUSY:when=3+2', 'EPERM:when=7+', 'EIO:when=12'])
def test_entering_a_ring_fails_on_the_way(data, wanted, uring, tmp_path, fault):
    trace = tmp_path / 'trace'
    done = run([*STRACE, trace, '-e', 'trace=io_uring_enter', '-e', 'inject=io_uring_enter:error=' + fault,
                *load(data, '--json', '--io', 'uring', *COLD)])
    assert '(INJECTED)' in trace.read_text()
    assert hashes(done) == wanted


# Limits of the process.

@needs_strace
@pytest.mark.parametrize('engine, allowed', [('uring', 3), ('uring', 5), ('threads', 60)])
def test_threads_that_cannot_be_had(data, wanted, engine, allowed, request):
    """What ulimit -u does, which a privileged user is not subject to."""
    if engine == 'uring':
        request.getfixturevalue('uring')
    done = run([*STRACE, '/dev/null', '-e', 'trace=clone,clone3', '-e', f'inject=clone,clone3:error=EAGAIN:when={allowed + 1}+',
                *load(data, '--json', '--threads', 4, '--io', engine)])
    if done.returncode == 0:
        assert hashes(done) == wanted
    else:
        failed(done, 1, 'ulimit -u')


@pytest.mark.parametrize('limit', [8, 14, 18, 24])
def test_few_open_files(data, wanted, limit):
    """Each ring is one."""
    done = run(load(data, '--json', '--threads', 4), preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
    if done.returncode == 0:
        assert hashes(done) == wanted
    else:
        failed(done, 1, 'Too many open files', 'ulimit -n')


# Files that are not what they were.

@pytest.mark.parametrize('file', ['features.npy', 'indices.npy', 'indptr.npy', 'labels.npy', 'train.npy'])
def test_truncated_before_the_start(copy, file):
    size = os.path.getsize(copy / file)
    for left in size - 1, size // 2, HEADER, 0:
        os.truncate(copy / file, left)
        failed(run(load(copy, '--json')), 4, str(copy / file))


class Endless:
    """A run of many epochs that is at work: its first epoch was printed."""

    def __init__(self, data, *words, before=()):
        command = [*before, *load(data, '--epochs', 100000, *words)]
        self.process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.startswith('epoch '):
                return
        raise AssertionError(self.process.communicate(timeout=TIMEOUT))

    def end(self):
        """Exit code and what it wrote to stderr."""
        try:
            _, printed = self.process.communicate(timeout=TIMEOUT)
        finally:
            self.process.kill()
        return self.process.returncode, printed


@pytest.mark.parametrize('engine', ['uring', 'threads'])
@pytest.mark.parametrize('file', ['features.npy', 'indices.npy'])
def test_truncated_while_it_runs(copy, file, engine, request):
    if engine == 'uring':
        request.getfixturevalue('uring')
    endless = Endless(copy, '--io', engine, *COLD)
    os.truncate(copy / file, os.path.getsize(copy / file) // 3)
    code, printed = endless.end()
    assert code == 4 and str(copy / file) in printed and 'truncated' in printed, printed


def edited(path, edit):
    array = numpy.load(path, mmap_mode='r+')
    edit(array)
    array.flush()


@pytest.mark.parametrize('value', [22212, 2**31 - 1, -1, -2**31])
@pytest.mark.parametrize('words', [COLD, [], ['--topology', 'memory']], ids=['uncached', 'cached', 'memory'])
def test_an_id_that_is_none(copy, words, value):
    """In the list of a node that is drawn from: the first of the training split that has one."""
    indptr = numpy.load(copy / 'indptr.npy')
    node = next(node for node in numpy.load(copy / 'train.npy') if indptr[node + 1] > indptr[node])

    def spoil(indices):
        assert value < 0 or value >= len(indptr) - 1
        indices[indptr[node]:indptr[node + 1]] = value
    edited(copy / 'indices.npy', spoil)
    failed(run(load(copy, '--json', *words)), 4, str(copy / 'indices.npy'), str(value))


@pytest.mark.parametrize('value', ['less than the one before', -1, 2**40, -2**63])
def test_offsets_that_do_not_ascend(copy, value):
    def spoil(indptr):
        place = len(indptr) // 2
        indptr[place] = indptr[place - 1] - 1 if isinstance(value, str) else value
    edited(copy / 'indptr.npy', spoil)
    for words in [], ['--topology', 'memory']:
        failed(run(load(copy, '--json', *words)), 4, str(copy / 'indptr.npy'))


@pytest.mark.parametrize('value', [-1, 22212, 2**40])
def test_a_seed_that_is_none(copy, value):
    def spoil(seeds):
        seeds[len(seeds) // 2] = value
    edited(copy / 'train.npy', spoil)
    failed(run(load(copy, '--json')), 4, str(copy / 'train.npy'))


# Signals.

@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('words', [COLD, [], ['--topology', 'memory', '--features', 'memory']], ids=['uncached', 'cached', 'memory'])
def test_stopped_while_loading(data, number, words):
    endless = Endless(data, *words)
    endless.process.send_signal(number)
    code, printed = endless.end()
    assert code == 75 and 'stopped' in printed, printed


@needs_strace
def test_stopped_while_the_disk_is_slow(data, tmp_path):
    """A quarter of a second a read: after the signal fewer are begun than a window needs."""
    trace = tmp_path / 'trace'
    (epoch,) = json.loads(run(load(data, '--json', '--epochs', 1, *COLD)).stdout)['epochs']
    process = subprocess.Popen([*STRACE, trace, '-D', '-P', data / 'features.npy', '-e', 'trace=pread64',
                                '-e', 'inject=pread64:delay_enter=250000', *load(data, '--io', 'threads', *COLD)],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not trace.exists() or 'pread64(' not in trace.read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, printed = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 75, printed
    after = trace.read_text().partition('--- SIGINT')[2]
    assert after and after.count('pread64(') < epoch['row_transfers'] / epoch['windows'], after


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize('words', [[], ['--stage']], ids=['packed', 'staged'])
def test_stopped_while_it_is_made(data, wanted, tmp_path, number, words):
    """At several instants between the first word and the first epoch; what is in scratch then is whole, or not there."""
    for wait in 0, 5, 10, 20, 40, 80:
        process = subprocess.Popen(load(data, '--json', '--epochs', 100000, '--scratch', tmp_path, *words),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert 'memory line' in process.stderr.readline()
        time.sleep(wait / 1000)
        process.send_signal(number)
        out, printed = process.communicate(timeout=TIMEOUT)
        assert process.returncode == json.loads(out)['exit_code'] == 75, printed
        left = os.listdir(tmp_path)
        assert not [name for name in left if name.startswith('.')], left
        if left:
            done = run(load(data, '--json', '--scratch', tmp_path, *words))
            assert hashes(done) == wanted and 'again' not in done.stderr, done.stderr
            subprocess.run(['rm', '-r', *(tmp_path / name for name in os.listdir(tmp_path))], check=True)


# Places that cannot be written.

@pytest.fixture(name='powerless')
def as_nobody(data):
    """A place that others can reach, with the dataset in it, nothing writable; and options for a process without privileges."""
    place = pathlib.Path(tempfile.mkdtemp())
    options = {} if os.geteuid() != 0 else {'user': 'nobody', 'group': pwd.getpwnam('nobody').pw_gid, 'extra_groups': []}
    try:
        shutil.copytree(data, place / 'graph')
        (place / 'scratch').mkdir()
        for path in place, *place.rglob('*'):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            run([PLIMSOLL, '--version'], **options)
        except PermissionError:
            pytest.skip(f'{PLIMSOLL} cannot be run without privileges')
        yield place, options
    finally:
        for path in place, place / 'graph':
            path.chmod(0o755)
        shutil.rmtree(place)


def test_nothing_can_be_written(powerless, wanted):
    place, options = powerless
    graph, scratch = place / 'graph', place / 'scratch'
    before = sorted((path, path.stat().st_mtime_ns) for path in place.rglob('*'))
    assert hashes(run(load(graph, '--json'), **options)) == wanted
    done = run(load(graph, '--json', '--scratch', scratch), **options)
    assert hashes(done) == wanted
    assert str(scratch) in done.stderr and 'Permission denied' in done.stderr
    failed(run(load(graph, '--json', '--scratch', scratch, '--stage'), **options), 1, str(scratch), 'Permission denied')
    assert sorted((path, path.stat().st_mtime_ns) for path in place.rglob('*')) == before


def test_scratch_that_is_none(data, wanted, tmp_path):
    file = tmp_path / 'file'
    file.write_text('')
    for scratch in tmp_path / 'nowhere', file:
        done = run(load(data, '--json', '--scratch', scratch))
        assert hashes(done) == wanted and str(scratch) in done.stderr, done.stderr
        done = run(load(data, '--json', '--scratch', scratch, '--stage'))
        assert done.returncode in (1, 2) and str(scratch) in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ['file']


def test_scratch_that_is_full(data, wanted, tmp_path):
    """Every write fails once files have some size, as on a disk that others filled meanwhile."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    done = run(load(data, '--json', '--scratch', tmp_path), preexec_fn=limit)
    assert hashes(done) == wanted and 'going on without packed rows' in done.stderr, done.stderr
    failed(run(load(data, '--json', '--scratch', tmp_path, '--stage'), preexec_fn=limit), 3, str(tmp_path), 'ulimit -f')
    assert os.listdir(tmp_path) == []
