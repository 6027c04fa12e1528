# labels: plain long
"""plimsoll.NeighborLoader: what its batches hold, and how it behaves beside everything else in a script."""
import gc
import hashlib
import inspect
import os
import pickle
import random
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import types
import typing
import warnings

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from importing import real_data  # noqa: E402

from plimsoll import NeighborLoader, _core  # noqa: E402
from plimsoll.dataset import DATA_OFFSET  # noqa: E402
from plimsoll.integers import IntegerList  # noqa: E402
from plimsoll.loader import _DATALOADER, DataLoaderArguments  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')


def generate(path, *options):
    subprocess.run([PLIMSOLL, 'generate', 'free', str(path), '--quiet', *map(str, options)], check=True, timeout=1500)
    return str(path)


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    return generate(tmp_path_factory.mktemp('data') / 'small', '--nodes', 4000, '--edges', 40000, '--features', 24, '--classes', 5, '--seed', 3)


@pytest.fixture
def ds(path):
    return plimsoll.open(path)


class Arrays:
    """The dataset's own arrays."""

    def __init__(self, path):
        for name in 'indptr', 'indices', 'features', 'labels', 'train', 'valid', 'test':
            setattr(self, name, torch.from_numpy(np.load(f'{path}/{name}.npy')))
        self.indices, self.labels = self.indices.long(), self.labels.long()  # as batches have them


@pytest.fixture(scope='module')
def arrays(path):
    return Arrays(path)


def digest(batches):
    whole = hashlib.sha256()
    for batch in batches:
        for name in 'x', 'y', 'edge_index', 'n_id', 'edge_position', 'input_id':
            whole.update(batch[name].numpy().tobytes())
    return whole.hexdigest()


def check_batch(batch, arrays, fanout, rows=torch.float32):
    """Every attribute against the dataset's own arrays, and the order that models rely on."""
    size, n_id, e_id = batch.batch_size, batch.n_id, batch.edge_position
    source, target = batch.edge_index
    assert n_id.dtype == e_id.dtype == batch.edge_index.dtype == batch.input_id.dtype == torch.int64
    assert len(n_id.unique()) == len(n_id) == batch.num_nodes == sum(batch.num_sampled_nodes)
    assert batch.edge_index.shape == (2, sum(batch.num_sampled_edges)) and len(e_id) == len(source)
    assert batch.num_sampled_nodes[0] == size and len(batch.num_sampled_nodes) == len(fanout) + 1
    assert len(batch.num_sampled_edges) == len(fanout)
    # Edges are edges of the graph, each drawn once.
    assert (arrays.indices[e_id] == n_id[source]).all()
    assert (arrays.indptr[n_id[target]] <= e_id).all() and (e_id < arrays.indptr[n_id[target] + 1]).all()
    assert len(e_id.unique()) == len(e_id)
    # Rows and labels.
    assert batch.x.dtype == rows and torch.equal(batch.x, arrays.features[n_id].to(rows))
    assert torch.equal(batch.y[:size], arrays.labels[n_id[:size]])
    # A node draws once, at the hop after it was met; targets ascend; new nodes stand in the order in which they were met.
    assert (target.diff() >= 0).all()
    first_edge, first_target, met = 0, 0, size
    for hop, count in enumerate(fanout):
        edges = slice(first_edge, first_edge + batch.num_sampled_edges[hop])
        degrees = arrays.indptr[n_id[first_target:met] + 1] - arrays.indptr[n_id[first_target:met]]
        wanted = degrees if count < 0 else degrees.clamp(max=count)
        assert torch.equal(torch.bincount(target[edges], minlength=met)[first_target:], wanted)
        now = met + batch.num_sampled_nodes[hop + 1]
        new = source[edges][source[edges] >= met]
        assert (new < now).all() and torch.equal(torch.unique(new), torch.arange(met, now))
        places = {}
        for place in new.tolist():
            places.setdefault(place, len(places))
        assert list(places) == list(range(met, now))
        first_edge, first_target, met = edges.stop, met, now


def test_batches_of_a_split(ds, arrays):
    loader = NeighborLoader(ds, num_neighbors=[4, 3], batch_size=100, input_nodes='train', shuffle=True)
    seeds = []
    for step, batch in enumerate(loader):
        check_batch(batch, arrays, [4, 3])
        assert torch.equal(arrays.train[batch.input_id], batch.n_id[: batch.batch_size])
        assert batch.y.shape == (batch.batch_size,) and batch.batch_size <= 100
        seeds.append(batch.n_id[: batch.batch_size].clone())
    assert len(seeds) == len(loader) == -(-ds.num_train // 100)
    order = torch.cat(seeds)
    assert torch.equal(order.sort().values, arrays.train.sort().values) and not torch.equal(order, arrays.train)
    again = torch.cat([batch.n_id[: batch.batch_size].clone() for batch in loader])
    assert not torch.equal(order, again), 'a new epoch has a new order'


def test_a_batch_is_pygs_data(ds):
    from torch_geometric.data import Data

    batch = next(iter(NeighborLoader(ds, num_neighbors=[2, 2], batch_size=8, input_nodes='valid')))
    assert isinstance(batch, Data)
    names = {'x', 'y', 'edge_index', 'n_id', 'edge_position', 'input_id', 'batch_size', 'num_sampled_nodes', 'num_sampled_edges'}
    assert set(batch.keys()) == names
    assert batch.validate() and batch.num_edges == sum(batch.num_sampled_edges)
    moved = batch.to('cpu').clone()
    assert torch.equal(moved.x, batch.x)


def test_whole_neighbourhoods(ds, arrays):
    batch = next(iter(NeighborLoader(ds, num_neighbors=[-1, -1], batch_size=5, input_nodes='test')))
    check_batch(batch, arrays, [-1, -1])


def test_nodes_that_repeat(tmp_path):
    """A seed that occurs twice is two nodes of the batch, so a batch may have more nodes than the graph."""
    path = generate(tmp_path / 'tiny', '--nodes', 100, '--edges', 1000, '--features', 4, '--classes', 2, '--seed', 3)
    for seeds in (torch.arange(100).repeat(3), torch.zeros(50, dtype=torch.int64), torch.arange(99, -1, -1)):
        loader = NeighborLoader(plimsoll.open(path), [-1, -1], seeds, batch_size=len(seeds), memory='1G')
        for _ in range(2):
            (batch,) = loader
            others = batch.n_id[len(seeds) :]
            assert torch.equal(batch.n_id[: len(seeds)], seeds) and len(torch.cat([seeds, others]).unique()) == len(seeds.unique()) + len(others)
        assert loader.memory_plan['slot_nodes'] <= max(len(batch.n_id) * 17 // 16, 100), 'a list without repetitions has the slots of a split'


@pytest.mark.parametrize('kind', ['tensor', 'int32', 'array', 'list', 'mask', 'array mask', 'none'])
def test_input_nodes(ds, arrays, kind):
    chosen = torch.tensor([3999, 0, 17, 5, 2048])
    mask = torch.zeros(ds.num_nodes, dtype=torch.bool)
    mask[chosen] = True
    nodes = {
        'tensor': chosen,
        'int32': chosen.int(),
        'array': chosen.numpy(),
        'list': chosen.tolist(),
        'mask': mask,
        'array mask': mask.numpy(),
        'none': None,
    }[kind]
    loader = NeighborLoader(ds, [3], nodes, batch_size=2)
    batch = next(iter(loader))
    check_batch(batch, arrays, [3])
    seeds = batch.n_id[:2]
    if kind == 'none':
        assert len(loader) == ds.num_nodes // 2 and seeds.tolist() == [0, 1] and batch.input_id.tolist() == [0, 1]
    elif 'mask' in kind:
        assert len(loader) == 3 and seeds.tolist() == [0, 5] and batch.input_id.tolist() == [0, 5]
    else:
        assert len(loader) == 3 and seeds.tolist() == [3999, 0] and batch.input_id.tolist() == [0, 1]
    shuffled = torch.cat([batch.input_id for batch in NeighborLoader(ds, [3], chosen, batch_size=2, shuffle=True, copy=True)])
    assert shuffled.sort().values.tolist() == [0, 1, 2, 3, 4]


def test_input_id_is_the_position_in_the_list(ds, arrays):
    nodes = torch.randperm(ds.num_nodes)[:333]
    for shuffle in False, True:
        for batch in NeighborLoader(ds, [2], nodes, batch_size=50, shuffle=shuffle):
            assert torch.equal(nodes[batch.input_id], batch.n_id[: batch.batch_size])


def test_options(ds, arrays):
    loader = NeighborLoader(ds, [3], 'train', batch_size=64, x_dtype=torch.float16, y='all', transform=lambda data: (data, 'seen'))
    batch, seen = next(iter(loader))
    assert seen == 'seen' and batch.x.dtype == torch.float16
    assert torch.equal(batch.x, arrays.features[batch.n_id].half())
    assert torch.equal(batch.y, arrays.labels[batch.n_id])
    del batch, loader
    loader = NeighborLoader(ds, [3], 'train', batch_size=64, drop_last=True)
    assert len(loader) == ds.num_train // 64
    assert [batch.batch_size for batch in loader] == [64] * len(loader)


def test_with_replacement(ds, arrays):
    for batch in NeighborLoader(ds, [6], 'valid', batch_size=50, replace=True):
        source, target = batch.edge_index
        assert (arrays.indices[batch.edge_position] == batch.n_id[source]).all()
        degrees = arrays.indptr[batch.n_id[:50] + 1] - arrays.indptr[batch.n_id[:50]]
        drawn = torch.bincount(target, minlength=batch.batch_size)
        assert ((drawn == 6) == (degrees[: batch.batch_size] > 0)).all()


def test_trim_to_layer(ds):
    from torch_geometric.nn import GraphSAGE

    model = GraphSAGE(24, 8, num_layers=2, out_channels=5).eval()
    batch = next(iter(NeighborLoader(ds, [4, 3], 'test', batch_size=32)))
    with torch.no_grad():
        whole = model(batch.x, batch.edge_index)
        trimmed = model(
            batch.x,
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
    assert torch.allclose(whole[:32], trimmed[:32], atol=1e-5)


@pytest.mark.nightly
def test_a_pyg_model_learns_cora(tmp_path):
    from torch_geometric.nn import GraphSAGE

    source = real_data() / 'cora'
    subprocess.run([PLIMSOLL, 'import', str(source), str(tmp_path / 'cora'), '--quiet', '--normalise-features'], check=True, timeout=1500)
    ds = plimsoll.open(tmp_path / 'cora')
    torch.manual_seed(1)
    train = NeighborLoader(ds, [10, 10], 'train', batch_size=32, shuffle=True)
    test = NeighborLoader(ds, [-1, -1], 'test', batch_size=500)
    model = GraphSAGE(ds.num_features, 32, num_layers=2, out_channels=ds.num_classes, dropout=0.5)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(30):
        model.train()
        for batch in train:
            optimiser.zero_grad()
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimiser.step()
    model.eval()
    right = 0
    with torch.no_grad():
        for batch in test:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            right += int((out.argmax(1) == batch.y).sum())
    assert right / ds.num_test > 0.72


def test_tensors_are_the_loaders_memory(ds):
    loader = NeighborLoader(ds, [3, 2], 'train', batch_size=50)
    batch = next(iter(loader))
    first, size = loader._shared.core.memory()
    for name in 'x', 'y', 'edge_index', 'n_id', 'edge_position':
        tensor = batch[name]
        assert first <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= first + size, name
    copied = next(iter(NeighborLoader(ds, [3, 2], 'train', batch_size=50, copy=True)))
    assert not first <= copied.x.data_ptr() < first + size


def test_dlpack_of_both_forms(ds):
    loader = NeighborLoader(ds, [3], 'train', batch_size=50)
    iter(loader)
    batch = loader._stream.next()
    found = batch.arrays(None, False)
    rows = found['rows']
    assert rows.__dlpack_device__() == (1, 0)
    assert 'dltensor"' in repr(rows.__dlpack__()) and 'dltensor_versioned"' in repr(rows.__dlpack__(max_version=(1, 0)))
    tensor, array = torch.from_dlpack(rows), np.from_dlpack(rows)
    assert tensor.data_ptr() == array.ctypes.data == rows.address and tensor.shape == array.shape == rows.shape
    with pytest.raises(BufferError):
        rows.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError):
        rows.__dlpack__(copy=True)
    del found, rows, batch
    assert loader._shared.core.held == 1
    del tensor
    assert loader._shared.core.held == 1
    del array
    assert loader._shared.core.held == 0


def test_a_batch_that_is_kept_stays_valid(ds, arrays):
    loader = NeighborLoader(ds, [4, 3], 'train', batch_size=20, shuffle=True)
    kept = next(iter(loader))
    before = digest([kept])
    for batch in loader:
        pass
    del loader, batch
    gc.collect()
    assert digest([kept]) == before
    check_batch(kept, arrays, [4, 3])


def test_when_all_slots_are_held_the_next_batch_raises(ds, arrays):
    loader = NeighborLoader(ds, [4, 3], 'train', batch_size=10, shuffle=True, seed=5)
    kept, batches = [], iter(loader)
    with pytest.raises(plimsoll.BatchesHeldError) as caught:
        for batch in batches:
            kept.append(batch)
    del batch
    printed = str(caught.value)
    assert len(kept) >= 3 and f' {len(kept)} slots' in printed and 'copy=True' in printed
    assert [int(step) for step in re.findall(r"step (\d+) of epoch 0 of 'train'", printed)] == list(range(len(kept)))[::-1]
    for batch in kept:
        check_batch(batch, arrays, [4, 3])
    before = loader._shared.job.reserved
    count = len(kept)
    with pytest.raises(plimsoll.BatchesHeldError):
        next(batches)
    assert loader._shared.job.reserved == before
    other = NeighborLoader(plimsoll.open(ds.path), [4, 3], 'train', batch_size=10, shuffle=True, seed=5)
    expected = [batch.n_id.clone() for batch in other]
    del kept[0], caught
    gc.collect()
    del batch
    assert torch.equal(next(batches).n_id, expected[count]), 'it continues where it was'


def test_batches_of_another_loader_are_named_with_it(ds):
    train, listed = NeighborLoader(ds, [4, 3], 'train', batch_size=10), NeighborLoader(ds, [4, 3], torch.arange(333), batch_size=10)
    kept, batches = [next(iter(listed))], iter(train)
    with pytest.raises(plimsoll.BatchesHeldError) as caught:
        for batch in batches:
            kept.append(batch)
    names = re.findall(r'step (\d+) of epoch 0 of ([^,)]+)', str(caught.value))
    assert names == [*((str(step), "'train'") for step in reversed(range(len(kept) - 1))), ('0', '333 nodes')]


def test_copies_can_be_kept(ds):
    loader = NeighborLoader(ds, [4, 3], 'train', batch_size=10, copy=True, seed=1)
    kept = list(loader)
    assert len(kept) == len(loader) > 20
    assert digest(kept) == digest(NeighborLoader(ds, [4, 3], 'train', batch_size=10, seed=1))


def test_the_generator_seeds_the_batches(ds):
    def batches(**options):
        return digest(NeighborLoader(ds, [3, 2], 'train', batch_size=100, shuffle=True, **options))

    torch.manual_seed(7)
    first = batches()
    assert batches() != first
    torch.manual_seed(7)
    assert batches() == first
    assert batches(generator=torch.Generator().manual_seed(2)) == batches(generator=torch.Generator().manual_seed(2)) != first
    assert batches(seed=3) == batches(seed=3) != first


def test_loaders_of_a_dataset_share_memory_and_do_not_disturb_each_other(path):
    def settings(name):
        return {'num_neighbors': [4, 3], 'batch_size': 40, 'input_nodes': name, 'shuffle': name == 'train', 'seed': 1, 'memory': '1G'}

    alone, reserved = {}, 0
    for name in 'train', 'valid', 'test':
        loader = NeighborLoader(plimsoll.open(path), **settings(name))
        alone[name] = [digest([batch]) for batch in loader]
        reserved = max(reserved, loader._shared.job.peak)
        del loader
    ds = plimsoll.open(path)
    loaders = {name: NeighborLoader(ds, **settings(name)) for name in alone}
    assert len({id(loader._shared) for loader in loaders.values()}) == 1
    iterators = {name: iter(loader) for name, loader in loaders.items()}
    found = {name: [] for name in alone}
    while iterators:
        for name in list(iterators):
            for _ in range(3):
                batch = next(iterators[name], None)
                if batch is None:
                    del iterators[name]
                    break
                found[name].append(digest([batch]))
                del batch
    assert found == alone
    assert loaders['train']._shared.job.peak <= 1.02 * reserved


def test_two_iterations_of_a_loader_at_once(ds):
    loader = NeighborLoader(ds, [3], 'train', batch_size=100, shuffle=True, seed=2, copy=True)
    first, second = iter(loader), iter(loader)
    found = [(next(first), next(second)) for _ in range(3)]
    epochs = [list(NeighborLoader(ds, [3], 'train', batch_size=100, shuffle=True, seed=2, copy=True))]
    assert digest(batch for batch, _ in found) == digest(epochs[0][:3])
    assert digest(batch for _, batch in found) != digest(epochs[0][:3])
    assert digest([*[batch for batch, _ in found], *first]) == digest(epochs[0])


def test_an_iteration_continues_when_another_could_not_begin(ds, monkeypatch):
    expected = digest(NeighborLoader(ds, [3], 'train', batch_size=100, shuffle=True, seed=2, copy=True))
    loader = NeighborLoader(ds, [3], 'train', batch_size=100, shuffle=True, seed=2, copy=True)
    batches = iter(loader)
    found = [next(batches), next(batches)]
    start = loader._shared.start

    def interrupted(*place):
        start(*place)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(loader._shared, 'start', interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    assert digest([*found, *batches]) == expected


def test_a_loader_made_later_joins_the_others(ds, arrays):
    train = NeighborLoader(ds, [2], 'train', batch_size=10)
    for batch in train:
        break
    # Larger than planned for: the loader is remade, unless batches are held.
    large = NeighborLoader(ds, [-1, -1], None, batch_size=400)
    try:
        check_batch(next(iter(large)), arrays, [-1, -1])
    except plimsoll.BatchesHeldError:
        del batch
        check_batch(next(iter(large)), arrays, [-1, -1])
    assert sum(1 for _ in train) == len(train)


def test_settings_that_loaders_share_must_agree(ds):
    loader = NeighborLoader(ds, [3], 'train', batch_size=10, memory='1G')
    with pytest.raises(plimsoll.UsageError, match='memory'):
        NeighborLoader(ds, [3], 'train', batch_size=10, memory='2G')
    with pytest.raises(plimsoll.UsageError, match='replace'):
        NeighborLoader(ds, [3], 'train', batch_size=10, replace=True)
    NeighborLoader(ds, [3], 'train', batch_size=10)
    assert loader._shared.settings['memory'] == 1 << 30
    del loader
    NeighborLoader(ds, [3], 'train', batch_size=10, memory='2G')


def test_the_line_is_kept_and_refused_before_the_first_batch(ds):
    loader = NeighborLoader(ds, [3, 2], 'train', batch_size=10, memory='1G')
    next(iter(loader))
    assert loader._shared.job.line == 1 << 30
    assert loader.memory_plan['total_bytes'] <= 1 << 30
    with pytest.raises(plimsoll.MemoryLineError) as caught:
        iter(NeighborLoader(plimsoll.open(ds.path), [3, 2], 'train', batch_size=10, memory='20M'))
    assert isinstance(caught.value, MemoryError) and caught.value.status == 'budget'


def test_batches_are_counted_where_the_largest_possible_one_does_not_fit(tmp_path, caplog):
    path = generate(tmp_path / 'wide', '--nodes', 30000, '--edges', 200000, '--features', 512, '--classes', 3, '--seed', 3)

    def make(memory):
        gc.collect()
        nodes = torch.arange(0, 30000, 59)
        return NeighborLoader(plimsoll.open(path), [8, 8, 8], nodes, batch_size=64, shuffle=True, memory=memory, threads=2, seed=1)

    def digests(batches):
        return [digest([batch]) for batch in batches]

    loader = make('4G')
    epochs = [digests(loader), digests(loader)]
    plan = loader.memory_plan
    assert not plan['counted'] and plan['slots'] == 4
    del loader
    with pytest.raises(plimsoll.MemoryLineError, match='batch_size=64.*memory=') as refused:
        make('100M')
    named = refused.value.needed_bytes
    with pytest.raises(plimsoll.MemoryLineError) as refused:  # one minimum, whatever was asked for
        make(named - (64 << 20))
    assert abs(refused.value.needed_bytes - named) <= 8 << 20
    loader = make(named)
    with caplog.at_level('INFO', 'plimsoll'):
        assert loader.memory_plan['counted']
    assert sum('drawn once to count' in record.message for record in caplog.records) == 1
    assert digests(loader) == epochs[0]
    batches = iter(loader)
    begun = [digest([next(batches)]) for _ in range(3)]
    assert begun == epochs[1][:3]
    state = loader.state_dict()
    del loader, batches
    loader = make(named)
    loader.load_state_dict(state)
    assert digests(loader) == epochs[1][3:]


RESUME = '''
import hashlib, json, sys, torch, plimsoll
path, state = sys.argv[1:]
loader = plimsoll.NeighborLoader(plimsoll.open(path), [4, 3], 'train', batch_size=50, shuffle=True)
loader.load_state_dict(torch.load(state))
whole = hashlib.sha256()
count = 0
for epoch in range(2):
    for batch in loader:
        count += 1
        for name in 'x', 'y', 'edge_index', 'n_id', 'edge_position', 'input_id':
            whole.update(batch[name].numpy().tobytes())
print(count, whole.hexdigest())
'''


def test_the_state_continues_in_a_new_process(ds, path, tmp_path):
    loader = NeighborLoader(ds, [4, 3], 'train', batch_size=50, shuffle=True)
    for batch in loader:
        pass
    batches = iter(loader)
    for _ in range(5):
        batch = next(batches)
    torch.save(loader.state_dict(), tmp_path / 'state.pt')
    del batch
    rest = [batch.clone() for batch in batches] + [batch.clone() for batch in loader]
    done = subprocess.run([sys.executable, '-c', RESUME, path, str(tmp_path / 'state.pt')], capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(len(rest)), digest(rest)]


def test_a_loader_can_be_given_to_a_spawned_process(ds):
    loader = NeighborLoader(ds, [4, 3], 'train', batch_size=50, shuffle=True, copy=True, generator=torch.Generator().manual_seed(3))
    other = NeighborLoader(ds, [4, 3], np.arange(100), batch_size=50, copy=True)
    untouched, beside = pickle.loads(pickle.dumps((loader, other)))
    assert untouched.data is beside.data is not ds and untouched._shared is beside._shared
    batches = iter(loader)
    begun = [next(batches) for _ in range(3)]
    halfway = pickle.loads(pickle.dumps(loader))
    rest = list(batches)
    assert digest(untouched) == digest([*begun, *rest])
    assert digest(halfway) == digest(rest)
    assert digest(beside) == digest(other)


def test_the_state_at_the_end_of_an_epoch(ds):
    def loader(**options):
        return NeighborLoader(ds, [3], 'train', **{'batch_size': 200, 'shuffle': True, 'copy': True, 'seed': 4, **options})

    first = loader()
    assert first.state_dict()['step'] == 0
    epochs = [list(first), list(first)]
    again = loader()
    list(again)
    state = again.state_dict()
    other = loader(seed=9)
    other.load_state_dict(state)
    assert digest(other) == digest(epochs[1])
    begun = loader(seed=9)
    begun.load_state_dict(first.state_dict() | {'epoch': 0, 'step': 0})
    assert digest(begun) == digest(epochs[0])
    for wrong in {'batch_size': 100}, {'shuffle': False}:
        with pytest.raises(plimsoll.UsageError):
            loader(**wrong).load_state_dict(state)
    with pytest.raises(plimsoll.UsageError):
        NeighborLoader(ds, [3], arrays_of(ds), batch_size=200, shuffle=True).load_state_dict(state)


def arrays_of(ds):
    return torch.from_numpy(np.array(ds.array('train')))


REFUSED = [
    {'input_time': torch.tensor([1])},
    {'time_attr': 'time'},
    {'weight_attr': 'weight'},
    {'subgraph_type': 'induced'},
    {'subgraph_type': 'bidirectional'},
    {'directed': False},
    {'temporal_strategy': 'last'},
    {'neighbor_sampler': object()},
    {'transform_sampler_output': lambda output: output},
    {'sampler': [1, 2]},
    {'batch_sampler': [[1]]},
    {'y': 'none'},
    {'x_dtype': 'int8'},
    {'num_neighbors': {('a', 'to', 'b'): [2]}},
    {'input_nodes': ('paper', torch.tensor([1]))},
    {'input_nodes': torch.zeros(7, dtype=torch.bool)},
    {'input_nodes': torch.tensor([], dtype=torch.int64)},
    {'input_nodes': 'everything'},
    {'batch_size': 0},
]


@pytest.mark.parametrize('wrong', REFUSED, ids=lambda wrong: next(iter(wrong)))
def test_what_would_change_the_meaning_is_refused(ds, wrong):
    with pytest.raises(ValueError):
        NeighborLoader(ds, **{'num_neighbors': [2], 'input_nodes': 'train', **wrong})
    assert ds._shared is None or ds._shared() is None


def test_other_data_is_refused_with_the_way_in(ds):
    from torch_geometric.data import Data

    with pytest.raises(TypeError, match='from_pyg'):
        NeighborLoader(Data(x=torch.ones(2, 2)), [2])
    for wrong in torch.ones(3), object():
        with pytest.raises(TypeError):
            NeighborLoader(ds, [2], wrong)
    for nodes in [-1], [ds.num_nodes]:
        with pytest.raises(plimsoll.UsageError):
            iter(NeighborLoader(ds, [2], torch.tensor(nodes)))
    with pytest.raises(ValueError):
        iter(NeighborLoader(ds, [2] * 9, 'train'))
    with pytest.raises(plimsoll.UsageError, match='one graph'):
        plimsoll.GraphLoader(ds)


def test_arguments_of_workers_are_taken_with_one_warning(ds):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter('always')
        NeighborLoader(ds, [2], 'train', num_workers=4, persistent_workers=True, prefetch_factor=2, pin_memory=True, is_sorted=True)
    assert len(caught) == 1 and caught[0].filename == __file__
    assert all(name in str(caught[0].message) for name in ('num_workers', 'persistent_workers', 'prefetch_factor', 'pin_memory'))


def test_arguments_are_kept_under_their_names(ds):
    from torch_geometric.loader import NeighborLoader as Theirs

    loader = NeighborLoader(ds, [3, 2], 'train', batch_size=32, shuffle=True, dataset='dropped', collate_fn='dropped')
    assert DataLoaderArguments.__annotations__.keys() == _DATALOADER.keys()
    assert 'batch_size' in typing.get_type_hints(NeighborLoader.__init__)
    ours = set(inspect.signature(NeighborLoader.__init__).parameters)
    theirs = set(inspect.signature(Theirs.__init__).parameters) | set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters)
    assert theirs - {'kwargs'} <= ours
    for name in ours - {'self', 'dataset', 'collate_fn'}:
        assert hasattr(loader, name), name
    assert loader.data is ds and loader.num_neighbors == [3, 2] and loader.batch_size == 32 and loader.input_nodes == 'train'


def test_what_is_not_there_is_named(ds, tmp_path):
    from torch_geometric.data import HeteroData

    data = HeteroData()
    data['a'].x, data['b'].x = torch.rand(4, 3), torch.rand(5, 3)
    data['a', 'to', 'b'].edge_index = torch.tensor([[0, 1, 2], [3, 4, 0]])
    for call in lambda: NeighborLoader(data, [2]), lambda: plimsoll.from_pyg(data, tmp_path / 'hetero'):
        with pytest.raises(plimsoll.UsageError) as refused:
            call()
    advice = re.search(r'plimsoll\.from_pyg\(.*\)', str(refused.value)).group()
    assert eval(advice, {'plimsoll': plimsoll, 'data': data, 'path': tmp_path / 'made'}).num_nodes == 9, 'what is advised works'
    for name in 'LinkLoader', 'ClusterLoader', 'HGTLoader', 'GraphSAINTRandomWalkSampler':
        with pytest.raises(plimsoll.UnsupportedError, match=name):
            getattr(plimsoll, name)(ds, num_neighbors=[2])
    with pytest.raises(AttributeError):
        plimsoll.NoSuchLoader  # noqa: B018


def test_odd_arguments(ds):
    for options in {'num_neighbors': []}, {'num_neighbors': [2.5]}, {'seed': 2**64}, {'seed': -1}, {'seed': 1.5}:
        with pytest.raises((ValueError, TypeError)):
            NeighborLoader(ds, **{'num_neighbors': [2], 'input_nodes': 'train', **options})
    loader = NeighborLoader(ds, [2], 'train', batch_size=10, seed=2**64 - 1)
    assert sum(batch.batch_size for batch in loader) == ds.num_train
    state = loader.state_dict()
    for wrong in {'step': -1}, {'epoch': -1}, {'step': 1.5}, {'epoch': '0'}, {'step': True}, {'step': len(loader) + 1}, {'seed': 2**64}, {'seed': None}:
        with pytest.raises(plimsoll.UsageError, match=next(iter(wrong))):
            loader.load_state_dict({**state, **wrong})
    stream = loader._connect()
    stream.start(0, 0)
    array = stream.next().arrays(None, False)['nodes']
    for wrong in {'dl_device': 5}, {'dl_device': (2, 0)}, {'copy': 1}, {'copy': True}, {'max_version': 1}:
        with pytest.raises((TypeError, BufferError)):
            array.__dlpack__(**wrong)
    assert array.__dlpack__(dl_device=(1, 0), copy=False, max_version=(1, 0)) is not None


def test_a_leftover_batch_stops_no_other_loader(path):
    """The variable of a loop that is over still holds its last batch when a larger loader is made and iterated."""
    ds = plimsoll.open(path)
    for batch in NeighborLoader(ds, [2], 'train', batch_size=8, memory='2G', seed=1):
        pass
    kept = batch.x.clone()
    larger = NeighborLoader(ds, [9, 9, 9], 'valid', batch_size=200, seed=1)
    assert sum(1 for _ in larger) == len(larger)
    assert torch.equal(batch.x, kept)


def test_lists_that_the_package_makes_are_planned(ds):
    all_nodes, mask = torch.arange(4000), torch.ones(4000, dtype=torch.bool)
    lists = {}
    for name, nodes in {'none': None, 'split': 'train', 'own': all_nodes, 'mask': mask, 'int': all_nodes.int(), 'list': all_nodes.tolist()}.items():
        loader = NeighborLoader(plimsoll.open(ds.path), [2], nodes, batch_size=1000)
        lists[name] = loader._list_bytes()
        found = torch.cat([batch.n_id[: batch.batch_size] for batch in loader])
        assert name == 'split' or torch.equal(found, all_nodes)
    assert lists == {'none': 0, 'split': 0, 'own': 0, 'mask': 32000, 'int': 32000, 'list': 32000}


def test_the_list_of_a_rank_takes_what_is_planned(tmp_path):
    """It was there three times while its last entries were added."""
    seeds = np.arange(1 << 18)
    (tmp_path / 'train.npy').write_bytes(bytes(DATA_OFFSET) + seeds.tobytes())
    dataset = types.SimpleNamespace(path=str(tmp_path), num_split=lambda split: len(seeds))
    times = IntegerList.of(torch.from_numpy(seeds), 0)
    for make in lambda count: IntegerList.of_split(dataset, 'train', count), times.repeated:
        make(len(seeds) + 5)
        tracemalloc.start()
        try:
            listed = make(len(seeds) + 5)
            assert tracemalloc.get_traced_memory()[1] < 8.5 * len(seeds)
        finally:
            tracemalloc.stop()
        assert listed.count == len(seeds) + 5 and list(listed.owner) == [*range(len(seeds)), *range(5)]
    assert list(IntegerList.of([7, 8, 9], 10).repeated(8).owner) == [7, 8, 9, 7, 8, 9, 7, 8]
    os.truncate(tmp_path / 'train.npy', 5000)
    with pytest.raises(plimsoll.DataError, match='shorter'):
        IntegerList.of_split(dataset, 'train', len(seeds))


def test_ranks_share_a_split(path, caplog):
    pytest.importorskip('torch.testing._internal.distributed.fake_pg')
    from torch.testing._internal.distributed.fake_pg import FakeStore

    train = np.load(f'{path}/train.npy')
    ranks = next(number for number in (3, 7, 4) if len(train) % number)
    seeds, steps = [], []
    for rank in range(ranks):
        torch.distributed.init_process_group('fake', rank=rank, world_size=ranks, store=FakeStore())
        try:
            torch.manual_seed(rank)
            ds = plimsoll.open(path)
            loader = NeighborLoader(ds, [2], 'train', batch_size=50, shuffle=True)
            with caplog.at_level('INFO', 'plimsoll'):
                found = [[batch.batch_size, *batch.n_id[: batch.batch_size].tolist()] for batch in loader]
            assert len(found) == len(loader)
            assert any(f'rank {rank} of {ranks}' in line for line in caplog.messages)
            steps.append([count for count, *_ in found])
            seeds += [node for _, *nodes in found for node in nodes]
            loaders = {name: NeighborLoader(ds, [2], name, batch_size=50, shuffle=True) for name in ('train', 'valid', 'test')}
            for name, one in loaders.items():
                for batch in one:
                    split = np.load(f'{path}/{name}.npy')[batch.input_id]  # in range, for every loader of the dataset
                    assert (split == batch.n_id[: batch.batch_size].numpy()).all()
            given = NeighborLoader(ds, [2], torch.arange(30), batch_size=10)
            assert len(given) == 3 and sum(batch.batch_size for batch in given) == 30, 'a tensor is taken as given'
        finally:
            torch.distributed.destroy_process_group()
    assert all(step == steps[0] for step in steps), 'as many batches, of the same sizes, on every rank'
    assert len(seeds) == -(-len(train) // ranks) * ranks and set(seeds) == set(train.tolist())


def test_threads_of_python_may_share_loaders(ds):
    loaders = [NeighborLoader(ds, [3, 2], name, batch_size=20, seed=1) for name in ('train', 'valid', 'test')]
    expected = [digest(loader) for loader in loaders]
    found = [None] * 3

    def run(index):
        found[index] = digest(NeighborLoader(ds, [3, 2], ('train', 'valid', 'test')[index], batch_size=20, seed=1))

    threads = [threading.Thread(target=run, args=(index,)) for index in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == expected


def run_script(text, *arguments, **options):
    return subprocess.Popen(
        [sys.executable, '-c', textwrap.dedent(text), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def test_ctrl_c_ends_a_loop(path):
    script = '''
        import sys
        sys.modules['torch_geometric'] = None  # importing it takes longer than the test
        import plimsoll
        loader = plimsoll.NeighborLoader(plimsoll.open(sys.argv[1]), [4, 3], 'train', batch_size=20, shuffle=True)
        said = False
        try:
            while True:
                for batch in loader:
                    if not said:
                        print(len(loader), flush=True)
                        said = True
        except KeyboardInterrupt:
            print(sum(1 for batch in loader), flush=True)
    '''
    # Python leaves a signal alone that it inherits ignored, as from a shell's background.
    process = run_script(script, path, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    expected = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    found, errors = process.communicate(timeout=1500)
    assert process.returncode == 0 and found == expected, errors


@pytest.mark.nightly
def test_ctrl_c_at_any_time_leaves_a_loader_that_works(path):
    """Interrupts while a loader is planned, begins, or waits, some of them after half a millisecond."""
    options = {'num_neighbors': [4, 3], 'input_nodes': 'train', 'batch_size': 20, 'shuffle': True, 'seed': 3}
    expected = digest(NeighborLoader(plimsoll.open(path), **options))
    chance = random.Random(1)

    def interrupt(number, frame):
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        loader = None
        for number in range(40):
            if number % 4 == 0:
                loader = NeighborLoader(plimsoll.open(path), **options)
            start = loader.state_dict() | {'epoch': 0, 'step': 0}
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005 * 400 ** chance.random())
                while signal.getitimer(signal.ITIMER_REAL)[0] > 0:  # Python drops what is raised in a destructor
                    for _ in loader:
                        pass
                time.sleep(0.1)  # for a signal that has just come
            except KeyboardInterrupt:
                pass
            loader.load_state_dict(start)
            assert digest(loader) == expected, number
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_forked_child_gets_an_error(path):
    script = '''
        import os, sys
        sys.modules['torch_geometric'] = None  # importing it takes longer than the test
        import plimsoll
        ds = plimsoll.open(sys.argv[1])
        loader = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=20)
        batches = iter(loader)
        batch = next(batches)
        child = os.fork()
        if child == 0:
            try:
                next(batches)
            except plimsoll.UsageError as error:
                again = plimsoll.NeighborLoader(plimsoll.open(sys.argv[1]), [4, 3], 'train', batch_size=20)
                os._exit(0 if 'fork' in str(error) and sum(1 for _ in again) == len(again) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert sum(1 for _ in batches) == len(loader) - 1
    '''
    process = run_script(script, path)
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 0, errors


def test_a_forked_child_never_waits_for_a_lock(path):
    """Another thread of the parent may hold any lock when the child is forked."""
    script = '''
        import os, signal, sys, threading, plimsoll
        ds = plimsoll.open(sys.argv[1])
        loader = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=2, seed=1)
        mine = plimsoll.NeighborLoader(ds, [4, 3], 'valid', batch_size=2, seed=1)
        batches, state, ending = iter(mine), mine.state_dict(), threading.Event()
        def iterate():
            while not ending.is_set():
                for batch in loader:
                    pass
        thread = threading.Thread(target=iterate)
        thread.start()
        calls = [
            lambda: next(batches), lambda: iter(mine), lambda: iter(loader), lambda: mine.memory_plan, lambda: loader.stats(),
            lambda: mine.load_state_dict({**state, 'seed': 5}), lambda: plimsoll.NeighborLoader(ds, [2], 'test'),
            lambda: plimsoll.inference([lambda x, edge_index: x], ds),
        ]
        failed = []
        for number in range(20):
            child = os.fork()
            if child == 0:
                signal.alarm(60)
                for call in calls[number % len(calls):]:
                    try:
                        call()
                    except plimsoll.UsageError:
                        continue
                    os._exit(1)
                os._exit(0)
            failed.append(os.waitpid(child, 0)[1])
        ending.set()
        thread.join()
        assert not any(failed), failed
    '''
    process = run_script(script, path)
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 0, errors


def test_batches_without_torch_are_numpys(path):
    script = '''
        import sys
        for name in 'torch', 'torch_geometric':
            sys.modules[name] = None
        import numpy as np, plimsoll
        loader = plimsoll.NeighborLoader(plimsoll.open(sys.argv[1]), [4, 3], 'train', batch_size=20, shuffle=True)
        indices, train = (np.load(f'{sys.argv[1]}/{name}.npy') for name in ('indices', 'train'))
        features = np.load(f'{sys.argv[1]}/features.npy')
        for batch in loader:
            assert isinstance(batch.x, np.ndarray) and (batch.x == features[batch.n_id]).all()
            assert (indices[batch.edge_position] == batch.n_id[batch.edge_index[0]]).all()
            assert (train[batch.input_id] == batch.n_id[:batch.batch_size]).all()
        kept = batch.clone()
        assert (kept.x == batch.x).all() and not np.shares_memory(kept.x, batch.x)
        assert sum(batch.batch_size for batch in plimsoll.NeighborLoader(plimsoll.open(sys.argv[1]), [2], batch_size=500)) == len(features)
        print(repr(batch)[:10])
    '''
    process = run_script(script, path)
    found, errors = process.communicate(timeout=1500)
    assert process.returncode == 0 and found.startswith('PlainBatch'), errors


def test_batches_without_torch_geometric_are_plain(path):
    script = '''
        import sys
        sys.modules['torch_geometric'] = None
        import torch, plimsoll
        batch = next(iter(plimsoll.NeighborLoader(plimsoll.open(sys.argv[1]), [4, 3], 'train', batch_size=20)))
        assert isinstance(batch, plimsoll.loader.PlainBatch) and torch.equal(batch.to('cpu').clone().x, batch.x)
    '''
    process = run_script(script, path)
    _, errors = process.communicate(timeout=1500)
    assert process.returncode == 0, errors


@pytest.mark.nightly
def test_nothing_leaks(ds):
    loader = NeighborLoader(ds, [2], 'train', batch_size=1, memory='2G')

    def run(count):
        done = 0
        while done < count:
            for batch in loader:
                done += 1
        return _core.sample()['rss_bytes']

    objects = []
    run(2000)
    gc.collect()
    objects.append(len(gc.get_objects()))  # a list of megabytes: before memory is measured
    before = run(1000)
    after = run(10000)
    gc.collect()
    objects.append(len(gc.get_objects()))
    assert after - before < 2 << 20
    assert abs(objects[1] - objects[0]) < 200


def test_loaders_end(path):
    def use():
        loaders = [NeighborLoader(plimsoll.open(path), [3], 'train', batch_size=100, memory='1G') for _ in range(2)]
        for loader in loaders:
            for batch in loader:
                pass

    def threads():
        return len(os.listdir('/proc/self/task'))

    use()
    gc.collect()
    before = threads(), len(os.listdir('/proc/self/fd'))
    for _ in range(5):
        use()
    gc.collect()
    assert (threads(), len(os.listdir('/proc/self/fd'))) == before


@pytest.mark.parametrize('arguments', [('15,10', 'train'), (['15', '10'], 'train'), ('train', [15, 10]), ([1.5], 'train'), (15, 'train')])
def test_num_neighbors_must_be_whole_numbers(path, arguments):
    with pytest.raises(TypeError, match='num_neighbors'):
        plimsoll.NeighborLoader(plimsoll.open(path), *arguments)


@pytest.mark.parametrize('wrong, message', [('batchsize', "no argument 'batchsize'; did you mean batch_size\\?$"),
                                            ('num_worker', r'did you mean num_workers\?$'), ('zzz', "no argument 'zzz'$")])
def test_an_unknown_argument_is_refused_with_the_one_nearest_to_it(path, wrong, message):
    with pytest.raises(TypeError, match=message):
        plimsoll.NeighborLoader(plimsoll.open(path), [3, 2], 'train', **{wrong: 3})


def test_a_batch_size_in_words_is_named_with_its_type(path):
    with pytest.raises(TypeError, match='str'):
        plimsoll.NeighborLoader(plimsoll.open(path), [3, 2], 'train', batch_size='64')


@pytest.mark.parametrize('memory', ['4', 4])
def test_a_line_needs_a_unit(path, memory):
    with pytest.raises(plimsoll.UsageError, match='unit'):
        plimsoll.NeighborLoader(plimsoll.open(path), [3, 2], 'train', memory=memory)
