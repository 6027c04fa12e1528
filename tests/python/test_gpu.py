# labels: together
"""Batches on a GPU, without one: a stream that runs its work late, and says when it has."""
import contextlib
import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')

from plimsoll.gpu import Pinning, Transfer  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'small'
    arguments = ['--nodes', '2000', '--edges', '20000', '--features', '8', '--classes', '3', '--seed', '1']
    subprocess.run([PLIMSOLL, 'generate', 'free', str(path), '--quiet', *arguments], check=True, timeout=1500)
    return str(path)


class Stream:
    """Work in order; it runs only when somebody waits for it, or when there is a lot of it."""

    def __init__(self, device=None):
        self.work, self.waited = [], []

    def add(self, task):
        self.work.append(task)
        if len(self.work) > 7:
            self.run(len(self.work) - 3)

    def run(self, count):
        for _ in range(count):
            self.work.pop(0)()

    def wait_event(self, event):
        self.waited.append(event)


class Event:
    def __init__(self):
        self.passed, self.stream = False, None

    def record(self, stream):
        self.stream = stream
        stream.add(self.set)

    def set(self):
        self.passed = True

    def query(self):
        return self.passed

    def synchronize(self):
        while not self.passed:
            self.stream.run(1)


class Cuda:
    """The part of torch.cuda that is used."""

    Event = Event
    Stream = Stream

    def __init__(self):
        self.current = Stream()
        self.registered = {}

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        yield
        self.current = before

    def current_stream(self, device):
        return self.current

    def cudart(self):
        return self

    def cudaHostRegister(self, address, size, flags):
        self.registered[address] = size
        return 0

    def cudaHostUnregister(self, address):
        del self.registered[address]


class Late:
    """A batch whose copy to the device happens when the stream comes to it."""

    def __init__(self, cuda, data):
        self.cuda, self.data = cuda, data

    def to(self, device, non_blocking):
        assert non_blocking
        found = {}
        places = {name: (self.data[name].data_ptr(), self.data[name].numpy().dtype, self.data[name].shape) for name in ('n_id', 'x')}

        def read():
            """As a GPU does: from an address, whoever owns it by then."""
            for name, (address, dtype, shape) in places.items():
                count = int(np.prod(shape)) * dtype.itemsize
                memory = (ctypes.c_char * count).from_address(address)
                found[name] = torch.from_numpy(np.frombuffer(memory, dtype).reshape(shape).copy())

        self.cuda.current.add(read)
        return Moved(found)


class Moved:
    def __init__(self, found):
        self.found, self.used_on = found, []

    def __iter__(self):
        return iter([('x', self)])

    def record_stream(self, stream):
        self.used_on.append(stream)


OPTIONS = {'num_neighbors': [5, 3], 'input_nodes': 'train', 'batch_size': 10, 'shuffle': True, 'seed': 1}


def sent_late(loader, transfer, cuda):
    """The loader's batches by way of a stream that copies late."""
    batches = iter(loader).with_room(lambda: transfer.release(wait=True))
    return transfer.ahead((step, Late(cuda, batch)) for step, batch in enumerate(batches))


def test_a_slot_is_not_reused_before_its_copy_was_made(path):
    ds = plimsoll.open(path)
    expected = [batch.n_id.clone() for batch in plimsoll.NeighborLoader(ds, **OPTIONS)]
    features = torch.from_numpy(ds.array('features').astype('float32'))
    cuda = Cuda()
    transfer = Transfer('cuda', cuda)
    loader = plimsoll.NeighborLoader(ds, **OPTIONS)
    count = 0
    for step, moved in sent_late(loader, transfer, cuda):
        event = cuda.current.waited[-1]
        assert moved.used_on == [cuda.current] and event.stream is transfer.stream
        assert step == count and loader._position[1] >= step + 1
        event.synchronize()
        assert torch.equal(moved.found['n_id'], expected[step])
        assert torch.equal(moved.found['x'], features[expected[step]])
        count += 1
    assert count == len(expected)


@pytest.mark.parametrize('batches', [3, 10**6])
def test_the_end_of_a_loop_waits_for_its_copies(path, batches):
    loader = plimsoll.NeighborLoader(plimsoll.open(path), **OPTIONS)
    expected = [batch.n_id.clone() for batch in plimsoll.NeighborLoader(plimsoll.open(path), **OPTIONS)]
    cuda = Cuda()
    transfer = Transfer('cuda', cuda)
    kept = []
    for step, moved in sent_late(loader, transfer, cuda):
        kept.append(moved)
        if len(kept) == batches:
            break
    assert not transfer.reading and not transfer.stream.work
    assert loader._shared.core.held == 0
    assert all(torch.equal(moved.found['n_id'], nodes) for moved, nodes in zip(kept, expected))


def test_pinned_memory_is_unregistered_before_it_moves(path):
    ds = plimsoll.open(path)
    cuda = Cuda()
    loader = plimsoll.NeighborLoader(ds, [2], 'train', batch_size=10, device='cuda')
    shared = loader._shared
    shared.pinning = Pinning(cuda)
    iter(loader)
    assert cuda.registered == dict([shared.core.memory()])
    larger = plimsoll.NeighborLoader(ds, [-1, -1], 'valid', batch_size=300, device='cuda')
    iter(larger)
    assert cuda.registered == dict([shared.core.memory()])
    del loader, larger, shared
    assert cuda.registered == {}


def test_slots_are_pinned_only_while_every_loader_knows_when_they_were_read(path):
    """The user may copy batches of a loader without a device by .to('cuda', non_blocking=True), and let go of them at once."""
    ds = plimsoll.open(path)
    cuda = Cuda()
    train = plimsoll.NeighborLoader(ds, [2], 'train', batch_size=10, device='cuda')
    train._shared.pinning = Pinning(cuda)
    iter(train)
    assert cuda.registered
    valid = plimsoll.NeighborLoader(ds, [2], 'valid', batch_size=10)
    for batch in valid:
        assert not cuda.registered
    iter(train)
    assert not cuda.registered
    del valid, batch
    iter(train)
    assert cuda.registered


def test_the_device_may_be_the_cpu(path):
    ds = plimsoll.open(path)
    loader = plimsoll.NeighborLoader(ds, [2], 'train', batch_size=10, device='cpu')
    assert sum(batch.batch_size for batch in loader) == ds.num_train


def test_gpu_check_without_a_gpu():
    if torch.cuda.is_available():
        pytest.skip('this machine has a GPU')
    done = subprocess.run([sys.executable, '-m', 'plimsoll.gpu_check'], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 2 and 'no GPU' in done.stdout
