# labels: plain long
"""Steps of a script's own beside the loader: refused before the kernel kills, in a real control group."""
import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')

from plimsoll.guard import Headroom, StepGuard  # noqa: E402

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


class Core:
    """A loader of the library whose figures a test sets."""

    def __init__(self, bound):
        self.room = Headroom(bound, 100 * MIB, 0, 50 * MIB, 30 * MIB, bound, 'memory.max')

    def headroom(self):
        return tuple(self.room)


class Peak:
    def __init__(self):
        self.bytes = self.faults = 0

    def take(self):
        return self.bytes, self.faults


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
        return peak, 0

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
        peak.bytes = 190 * MIB
    peak.bytes = 210 * MIB
    guard._next_look = 0
    assert guard.check(loader, core) is None, 'many steps did without it'


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


def test_reading_code_again_and_again_is_refused(monkeypatch):
    guard, core, peak = make(190 * MIB)
    loader, now = Loader(), [0.0]
    monkeypatch.setattr('plimsoll.guard.time.monotonic', lambda: now[0])
    for _ in range(4):
        assert guard.check(loader, core) is None
        now[0] += 0.5
        peak.bytes = 150 * MIB
    now[0] += 6
    peak.faults += (50 * MIB) // 4096
    short = guard.check(loader, core)
    assert short is not None and short.slowdown > 10
    assert guard.check(Loader(), core) is None, 'another loader has had no slow step'
    guard, core, peak = make(500 * MIB)
    for _ in range(4):
        assert guard.check(loader, core) is None
        now[0] += 0.5
    now[0] += 60
    assert guard.check(loader, core) is None, 'slow, but not for that reason'
    peak.faults += (50 * MIB) // 4096
    now[0] += 60
    assert guard.check(loader, core) is None, 'a file was read, and memory is not short'
