# labels: plain long
"""Steps of a script's own beside the loader: refused before the kernel kills, in a real control group."""
import ctypes
import fcntl
import json
import mmap
import os
import pathlib
import struct
import subprocess
import sys
import textwrap
import threading
import time

import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')

from plimsoll.guard import Headroom, StepGuard, code_bytes  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
LIMITED = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', '.')) / 'tools' / 'limited'
MIB = 1 << 20


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    where = tmp_path_factory.mktemp('data') / 'graph'
    subprocess.run(
        [PLIMSOLL, 'generate', 'free', where, '--quiet', '--nodes', '60000', '--edges', '600000', '--features', '128', '--classes', '5'],
        check=True,
        timeout=1500,
    )
    return str(where)


SCRIPT = '''
    import json, sys, plimsoll, torch
    ds = plimsoll.open(sys.argv[1])
    loader = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=32, memory=sys.argv[3] or None)
    done, kept = 0, []
    def step(size, count):
        blocks = [torch.ones(size // count // 4) for _ in range(count)]
        return sum(float(block[0]) for block in blocks)
    try:
        for _ in range(2):
            for batch in loader:
                {step}
                done += 1
                if done == 40:
                    raise StopIteration
    except plimsoll.MemoryLineError as error:
        loader.state_dict()
        print(json.dumps([done, error.needed_bytes, error.available_bytes, str(error)]))
        sys.exit(3)
    except StopIteration:
        pass
    print(json.dumps([done, 0, 0, '']))
'''


def run(path, limit, step, memory=''):
    """Runs the loop with that step in a group of so many bytes: exit code, and what it printed."""
    words = [sys.executable, '-c', textwrap.dedent(SCRIPT).replace('{step}', step), path, str(limit), memory]
    if limit:
        words = [LIMITED, str(limit), '--json', '/dev/null', '--warm', '--', *words]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=1500)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    return done.returncode, json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr


def test_a_growing_step_is_refused_before_the_kernel_kills(path):
    code, found = run(path, 700 * MIB, 'step((150 + 12 * done) * 2**20, 3)')
    assert code == 3, found
    done, needed, available, text = found
    assert done > 3 and needed > available
    assert 'batch_size=32' in text and 'num_neighbors=[4, 3]' in text and '--' not in text


def test_what_the_script_keeps_is_counted(path):
    code, found = run(path, 700 * MIB, 'step(100 * 2**20, 2); kept.append(torch.ones(3 * 2**20))')
    assert code == 3 and found[1] > found[2], found


@pytest.mark.nightly
def test_what_the_heap_keeps_is_no_need(path):
    """Blocks below the C library's threshold stay in its heap after they are freed; a small one on top of them keeps it there."""
    code, found = run(path, 700 * MIB, 'step(130 * 2**20, 520); kept.append(torch.ones(2**10))')
    assert code == 0 and found[0] == 40, found


@pytest.mark.nightly
def test_a_line_below_the_limit_is_kept(path):
    code, found = run(path, 0, 'step(400 * 2**20, 3)', memory='600M')
    assert code == 3 and found[0] >= 1 and found[2] <= 600 * MIB, found


@pytest.mark.nightly
@pytest.mark.parametrize('nodes', ['None', 'torch.ones(8000000, dtype=torch.bool)'])
def test_lists_of_many_nodes_are_planned(tmp_path, nodes):
    """The package lists those of a mask for the library, which copies them: at the minimum, there is memory for both."""
    words = ['--nodes', '8000000', '--edges', '8000000', '--features', '4', '--classes', '5']
    subprocess.run([PLIMSOLL, 'generate', 'free', tmp_path / 'graph', '--quiet', *words], check=True, timeout=1500)
    script = '''
        import sys, plimsoll, torch
        ds = plimsoll.open(sys.argv[1])
        nodes = eval(sys.argv[2])
        held = plimsoll._core.sample()['rss_bytes']
        try:
            plimsoll.NeighborLoader(ds, [2], nodes, batch_size=64, memory=held + (64 << 20))
        except plimsoll.MemoryLineError as error:
            line = error.needed_bytes
        loader = plimsoll.NeighborLoader(ds, [2], nodes, batch_size=64, memory=line)
        next(iter(loader))
        print((plimsoll._core.sample()['rss_peak_bytes'] - line) >> 20)
    '''
    words = [sys.executable, '-c', textwrap.dedent(script), tmp_path / 'graph', nodes]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 0, 'MiB over the line'


class Core:
    """A loader of the library whose figures a test sets."""

    def __init__(self, bound):
        self.room = Headroom(bound, 100 * MIB, 0, 50 * MIB, 30 * MIB, bound, 'memory.max')

    def headroom(self):
        return tuple(self.room)


class Peak:
    def __init__(self):
        self.bytes = 0
        self.seconds = (0.0, 0.0)  # that the step waited for code, and computed

    def take(self):
        seconds, self.seconds = self.seconds, (0.0, 0.0)
        return self.bytes, *seconds


def make(bound):
    guard, core, peak = StepGuard(), Core(bound), Peak()
    guard._peak = peak
    return guard, core, peak


class Loader:
    """Whose batches are asked for."""


class Process:
    """What a process holds by a core and a peak of a test, with freed memory that its heap keeps until it is trimmed."""

    def __init__(self, monkeypatch, bound, held):
        self.guard, self.core, self.peak = make(bound)
        self.held, self.kept, self.maps = held, 0, False
        self.core.headroom = lambda: tuple(self.core.room._replace(held=self.held + self.kept))
        self.peak.take = self.take
        monkeypatch.setattr('plimsoll.guard._core.trim', self.trim)
        monkeypatch.setattr('plimsoll.guard._core.map_large_blocks', self.map)

    def take(self):
        peak, self.peak.bytes = self.peak.bytes, self.held + self.kept
        return peak, 0.0, 0.0

    def trim(self):
        self.kept = 0

    def map(self, on):
        self.maps = on

    def step(self, size, kept):
        """A step whose blocks need `size` bytes; a heap keeps some of them for later, and its gaps are as large."""
        self.peak.bytes = max(self.peak.bytes, self.held + self.kept + size)
        self.kept = 0 if self.maps else kept


def test_each_loader_has_its_own_steps():
    guard, core, peak = make(500 * MIB)
    train, valid = Loader(), Loader()
    for _ in range(3):
        assert guard.check(train, core) is None
        peak.bytes = 400 * MIB  # a training step takes 300 MiB
    assert guard.check(valid, core) is None
    peak.bytes = 150 * MIB
    assert guard.check(valid, core) is None
    core.room = core.room._replace(held=200 * MIB)
    guard._next_look = 0
    assert guard.check(valid, core) is None, 'a step of evaluation still fits'
    guard._next_look = 0
    short = guard.check(train, core)
    assert short is not None and short.needed >= 530 * MIB and short.step >= 300 * MIB


def test_after_few_steps_the_whole_reserve_is_left():
    guard, core, peak = make(230 * MIB)
    loader = Loader()
    assert guard.check(loader, core) is None
    peak.bytes = 210 * MIB  # leaves less than the reserve of 30 MiB
    assert guard.check(loader, core) is not None
    guard, core, peak = make(230 * MIB)
    for _ in range(6):
        assert guard.check(loader, core) is None
        peak.bytes = 198 * MIB
    peak.bytes = 204 * MIB
    guard._next_look = 0
    assert guard.check(loader, core) is None, 'many steps did without it'


@pytest.mark.parametrize('begin', range(60, 72))
def test_growing_steps_leave_twice_what_they_grow_by(begin):
    """However the steps fall before the bound: as many bytes as the reserve, of which steps that do not grow may use half."""
    guard, core, peak = make(230 * MIB)
    loader, size = Loader(), begin * MIB
    while guard.check(loader, core) is None:
        peak.bytes = core.room.held + size
        assert peak.bytes <= core.room.bound - 12 * MIB
        size += 12 * MIB
        guard._next_look = 0
    assert peak.bytes > core.room.free - 12 * MIB


def test_what_the_heap_keeps_is_not_the_next_steps(monkeypatch):
    """An evaluation after a training step, whose blocks the heap keeps: it is measured without them."""
    process = Process(monkeypatch, bound=500 * MIB, held=250 * MIB)
    train, valid = Loader(), Loader()
    process.map = lambda on: None  # as another allocator
    monkeypatch.setattr('plimsoll.guard._core.map_large_blocks', process.map)
    for _ in range(3):
        assert process.guard.check(train, process.core) is None
        process.step(200 * MIB, kept=190 * MIB)
    for _ in range(3):
        assert process.guard.check(valid, process.core) is None
        process.step(20 * MIB, kept=10 * MIB)
    process.held += 100 * MIB
    process.guard._next_look = 0
    assert process.guard.check(valid, process.core) is None, 'a step of evaluation takes 20 MiB, not 200'


def test_where_twice_the_step_would_not_fit_blocks_are_mapped(monkeypatch):
    process, loader = Process(monkeypatch, bound=900 * MIB, held=300 * MIB), Loader()
    for _ in range(2):
        assert process.guard.check(loader, process.core) is None and not process.maps
        process.step(200 * MIB, kept=0)
    process.step(300 * MIB, kept=0)
    process.guard._next_look = 0
    assert process.guard.check(loader, process.core) is None and process.maps


def test_what_steps_keep_is_looked_at_in_time():
    """The kernel takes the caches meanwhile, so the peak does not rise; and the time for the next look has not come."""
    guard, core, peak = make(500 * MIB)
    loader, done = Loader(), 0
    core.room = core.room._replace(held=200 * MIB, cached=180 * MIB)
    while guard.check(loader, core) is None:
        core.room = core.room._replace(held=core.room.held + 12 * MIB, cached=max(0, core.room.cached - 12 * MIB))
        peak.bytes, done, guard._next_look = core.room.held + core.room.cached + 100 * MIB, done + 1, float('inf')
        assert core.room.held + 100 * MIB <= 470 * MIB, 'more than the reserve is left'
    assert done > 8


@pytest.mark.parametrize('fast', [0, 4])
def test_waiting_for_code_is_refused(fast, monkeypatch):
    """Also from the first step on: then no fast step is known."""
    monkeypatch.setattr('plimsoll.guard.code_bytes', lambda: 50 * MIB)
    guard, core, peak = make(190 * MIB)
    loader = Loader()
    for _ in range(fast):
        guard._next_look = 0
        assert guard.check(loader, core) is None
        peak.bytes, peak.seconds = 150 * MIB, (0.1, 0.5)
    guard._next_look = 0
    assert guard.check(loader, core) is None
    peak.bytes, peak.seconds = 150 * MIB, (6.0, 0.5)
    guard._next_look = 0
    short = guard.check(loader, core)
    assert short is not None and (short.waited, short.computed) == (6.0, 0.5)
    assert short.needed == (100 + 50 + 50) * MIB > short.headroom.bound
    assert guard.check(Loader(), core) is None, 'another loader has had no slow step'


@pytest.mark.parametrize('bound, seconds', [(190, (6.0, 3.0)), (190, (0.9, 0.0)), (500, (60.0, 1.0))])
def test_other_waits_are_let_pass(bound, seconds, monkeypatch):
    """A step that computes for long, a short wait, and a script that maps files of its own while memory is left."""
    monkeypatch.setattr('plimsoll.guard.code_bytes', lambda: 50 * MIB)
    guard, core, peak = make(bound * MIB)
    loader = Loader()
    for _ in range(4):
        guard._next_look = 0
        assert guard.check(loader, core) is None
        peak.bytes, peak.seconds = 150 * MIB, seconds


def test_code_in_memory_is_counted():
    libraries = [line.split()[-1] for line in open('/proc/self/maps') if 'libtorch_cpu' in line]
    code = code_bytes()
    assert libraries and MIB < code <= plimsoll._core.sample()['rss_bytes']
    with open(libraries[0], 'rb') as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        sum(mapped[:: mmap.PAGESIZE])
        assert code_bytes() >= len(mapped)


class Faults:
    """A page whose first use waits until it is released (userfaultfd)."""

    CALL, USER_MODE_ONLY = 323, 1
    API, REGISTER, ZERO = 0xC018AA3F, 0xC020AA00, 0xC020AA04

    def __init__(self):
        self.file = ctypes.CDLL(None).syscall(self.CALL, self.USER_MODE_ONLY | os.O_CLOEXEC)
        if self.file < 0:
            pytest.skip('no userfaultfd here')
        self.page = mmap.mmap(-1, mmap.PAGESIZE)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self.page))
        self.call(self.API, 0xAA, 0, 0)
        self.call(self.REGISTER, self.address, mmap.PAGESIZE, 1, 0)

    def call(self, request, *numbers):
        fcntl.ioctl(self.file, request, bytearray(struct.pack(f'{len(numbers)}Q', *numbers)))

    def use(self):
        ctypes.memset(self.address, 1, 1)

    def release(self):
        self.call(self.ZERO, self.address, mmap.PAGESIZE, 0, 0)


def test_a_peak_between_two_samples_is_seen():
    """Memory that is there for less time than lies between two samples of a quiet process. Where the kernel drops files from memory
    meanwhile, resident memory has no new peak, and there is nothing to see."""
    script = '''
        import json, mmap, resource, time, plimsoll
        def take(size):
            return mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        def highest():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        kept = take(256 << 20)  # more than importing took
        peak, found, step = plimsoll._core.peak(), [], 4 << 20
        for i in range(8):
            time.sleep(0.3)
            before, size, top = peak.take()[0], (16 << 20) + i * step, highest()
            take(size).close()
            if highest() - top > step * 3 // 4:
                found.append((peak.take()[0] - before) / size)
        print(json.dumps(found))
    '''
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(script)], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if not found:
        pytest.skip('resident memory had no new peak')
    assert all(one > 0.5 for one in found), found


def test_time_that_a_thread_waits_for_pages_is_measured():
    faults, peak, found = Faults(), plimsoll._core.peak(), []

    def work():
        for step in (lambda: time.sleep(0.5), faults.use):
            peak.take()
            time.sleep(0.2)  # until the thread is watched
            step()
            found.append(peak.take())

    thread = threading.Thread(target=work)
    thread.start()
    while len(found) < 1:
        time.sleep(0.01)
    time.sleep(1)
    faults.release()
    thread.join()
    (_, asleep, _), (_, waited, computed) = found
    assert asleep == 0 and waited > 0.2 and computed < waited
    assert peak.take()[1:] == (0, 0), 'nothing is known of another thread'
