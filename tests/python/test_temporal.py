# labels: together
"""Draws by time, as PyG's time_attr, input_time and temporal_strategy ask for: by brute force from the source's arrays."""
import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pyg = pytest.importorskip('torch_geometric')

NODES = 150


def graph(path, seed=1):
    """A multigraph with duplicates, self-loops, a hub and empty lists; many of its times are equal."""
    rng = np.random.default_rng(seed)
    edges = np.concatenate(
        [
            np.stack([rng.integers(0, NODES, 700), rng.integers(0, NODES // 2, 700)]),
            np.stack([rng.integers(0, NODES, 300), np.full(300, 7)]),
            np.tile(np.arange(0, NODES, 9), (2, 1)),
        ],
        axis=1,
    )
    edges = torch.tensor(np.concatenate([edges, edges[:, :80]], axis=1))
    data = pyg.data.Data(
        x=torch.zeros(NODES, 1),
        edge_index=edges,
        edge_time=torch.tensor(rng.integers(-5, 20, edges.shape[1])),
        time=torch.tensor(rng.integers(-5, 20, NODES)),
    )
    return data, plimsoll.from_pyg(data, path, quiet=True, train=np.arange(NODES), edge_ids=True)


def times_of(data, time_attr):
    """The time that decides about each edge."""
    return (data.edge_time if time_attr == 'edge_time' else data.time[data.edge_index[0]]).numpy()


def eligible(data, time_attr, node, until):
    """The numbers of the edges into a node that are not late."""
    into = np.flatnonzero(data.edge_index[1].numpy() == node)
    return into[times_of(data, time_attr)[into] <= until]


def tree(data, time_attr, seed, until, hops):
    """The nodes that a seed reaches in time, and the numbers of all edges there."""
    met, edges, frontier = {seed}, [], {seed}
    for _ in range(hops):
        into = [edge for node in frontier for edge in eligible(data, time_attr, node, until)]
        edges.extend(into)
        frontier = set(data.edge_index[0][torch.tensor(into, dtype=torch.long)].tolist()) - met
        met |= frontier
    return sorted(met), sorted(edges)


def untils(data, seeds, input_time):
    return (data.time[seeds] if input_time is None else input_time).tolist()


@pytest.mark.parametrize('strategy', ['uniform', 'last'])
@pytest.mark.parametrize(('time_attr', 'given'), [('time', False), ('time', True), ('edge_time', True)])
@pytest.mark.parametrize('threads', [1, 8])
def test_all_that_are_not_late(tmp_path, time_attr, given, strategy, threads):
    data, ds = graph(tmp_path / 'made')
    seeds = torch.tensor([7, 0, 7, 140, 9, 7, 63, 149, 1])
    input_time = torch.tensor([5, 19, -5, 30, 0, -6, 2, 11, -1]) if given else None
    loader = plimsoll.NeighborLoader(
        ds,
        [-1, -1],
        batch_size=4,
        input_nodes=seeds,
        time_attr=time_attr,
        input_time=input_time,
        temporal_strategy=strategy,
        threads=threads,
    )
    first = 0
    for batch in loader:
        here = slice(first, first + batch.batch_size)
        first += batch.batch_size
        assert torch.equal(batch.n_id[: batch.batch_size], seeds[here])
        if given:
            assert torch.equal(batch.seed_time, input_time[here])
        else:
            assert 'seed_time' not in batch
        edge_tree = batch.batch[batch.edge_index[1]]
        for i, until in enumerate(untils(data, seeds[here], input_time[here] if given else None)):
            nodes, edges = tree(data, time_attr, int(batch.n_id[i]), until, 2)
            assert sorted(batch.n_id[batch.batch == i].tolist()) == nodes
            assert sorted(batch.e_id[edge_tree == i].tolist()) == edges
    assert first == len(seeds)


@pytest.mark.parametrize('time_attr', ['time', 'edge_time'])
@pytest.mark.parametrize('replace', [False, True])
def test_last_takes_the_latest(tmp_path, time_attr, replace):
    """As many as the fan-out of those that are not late; of equal times the last of the list, as in PyG's stable sorting."""
    data, ds = graph(tmp_path / 'made')
    count, seeds = 3, torch.arange(NODES).repeat(4)
    input_time = torch.arange(len(seeds)) % 27 - 6
    loader = plimsoll.NeighborLoader(
        ds,
        [count],
        batch_size=100,
        input_nodes=seeds,
        time_attr=time_attr,
        input_time=input_time,
        temporal_strategy='last',
        replace=replace,
    )
    decides, position = times_of(data, time_attr), {}
    for target in range(NODES):  # the order of a list in the dataset
        listed = sorted(np.flatnonzero(data.edge_index[1].numpy() == target), key=lambda edge: (int(data.edge_index[0][edge]), edge))
        position.update((edge, place) for place, edge in enumerate(listed))
    for batch in loader:
        for i in range(batch.batch_size):
            drawn = batch.e_id[batch.edge_index[1] == i].tolist()
            those = sorted(eligible(data, time_attr, int(batch.n_id[i]), int(batch.seed_time[i])), key=lambda edge: (decides[edge], position[edge]))
            if replace:
                assert len(drawn) == (count if those else 0) and set(drawn) <= set(those[-count:])
            else:
                assert sorted(drawn) == sorted(those[-count:])
                assert [decides[edge] for edge in drawn] == sorted(decides[edge] for edge in drawn)


@pytest.mark.parametrize('time_attr', ['time', 'edge_time'])
@pytest.mark.parametrize('replace', [False, True])
def test_uniform_is_uniform(tmp_path, time_attr, replace):
    """10^6 draws from the hub: each edge that is not late equally often, and no other."""
    data, ds = graph(tmp_path / 'made')
    trees, count, until = 5000, 4, 6
    loader = plimsoll.NeighborLoader(
        ds,
        [count],
        batch_size=1000,
        input_nodes=torch.full((trees,), 7),
        time_attr=time_attr,
        input_time=torch.full((trees,), until),
        replace=replace,
        seed=3,
    )
    counts = np.zeros(data.num_edges)
    for _ in range(50):
        for batch in loader:
            np.add.at(counts, batch.e_id.numpy(), 1)
    those = eligible(data, time_attr, 7, until)
    expected = trees * 50 * count / len(those)
    assert counts.sum() == counts[those].sum() == 1_000_000
    variance = 1 if replace else 1 - (count - 1) / (len(those) - 1)  # of draws without replacement
    statistic = ((counts[those] - expected) ** 2 / expected).sum() / variance
    assert abs(statistic - len(those)) < 5 * np.sqrt(2 * len(those))


@pytest.mark.parametrize('strategy', ['uniform', 'last'])
def test_never_late(tmp_path, strategy):
    """Two hops with fan-outs, shuffled, from memory and disk, with 1 and 8 threads: in time, and the same batches."""
    data, ds = graph(tmp_path / 'made')
    found = []
    for threads in (1, 8):
        loader = plimsoll.NeighborLoader(
            plimsoll.open(ds.path),
            [4, 3],
            batch_size=16,
            input_nodes='train',
            shuffle=True,
            time_attr='edge_time',
            input_time=torch.arange(NODES) % 25 - 5,
            temporal_strategy=strategy,
            threads=threads,
            seed=2,
        )
        batches = [batch.clone() for _ in range(3) for batch in loader]
        for batch in batches:
            assert torch.equal(batch.seed_time, batch.input_id % 25 - 5)
            assert (batch.edge_time <= batch.seed_time[batch.batch[batch.edge_index[1]]]).all()
        found.append([batch.e_id.tolist() for batch in batches])
    assert found[0] == found[1] and found[0][0] != found[0][10]


def test_ranks_share_seeds_and_times(tmp_path):
    fake = pytest.importorskip('torch.testing._internal.distributed.fake_pg')
    _, ds = graph(tmp_path / 'made')
    input_time = torch.arange(NODES) % 25 - 5
    found = {}
    for rank in range(4):  # which do not divide 150 nodes
        torch.distributed.init_process_group('fake', rank=rank, world_size=4, store=fake.FakeStore())
        try:
            loader = plimsoll.NeighborLoader(
                plimsoll.open(ds.path), [3], batch_size=10, input_nodes='train', time_attr='edge_time', input_time=input_time, shuffle=True
            )
            state = loader.state_dict()
            for batch in loader:
                assert torch.equal(batch.seed_time, input_time[batch.input_id])
                assert (batch.edge_time <= batch.seed_time[batch.batch[batch.edge_index[1]]]).all()
                found.update((node, rank) for node in batch.n_id[: batch.batch_size].tolist())
            assert loader.state_dict()['input_time'] == state['input_time']
        finally:
            torch.distributed.destroy_process_group()
    assert len(found) == NODES and set(found.values()) == {0, 1, 2, 3}


def test_refused(tmp_path):
    data, ds = graph(tmp_path / 'made')
    times = torch.zeros(NODES, dtype=torch.long)
    for wrong, named in (
        ({'input_time': times}, 'time_attr'),
        ({'temporal_strategy': 'last'}, 'time_attr'),
        ({'time_attr': 'time', 'temporal_strategy': 'first'}, 'temporal_strategy'),
        ({'time_attr': 'edge_time'}, 'input_time'),
        ({'time_attr': 'edge_time', 'input_time': times[:5]}, 'input_time has 5'),
        ({'time_attr': 'when'}, "'time' or 'edge_time'"),
        ({'time_attr': 'time', 'weight_attr': 'edge_weight'}, 'weight_attr'),
    ):
        with pytest.raises(plimsoll.UsageError, match=named):
            plimsoll.NeighborLoader(plimsoll.open(ds.path), [2], input_nodes='train', **wrong)
    with pytest.raises(TypeError, match='input_time'):
        plimsoll.NeighborLoader(ds, [2], input_nodes='train', time_attr='time', input_time=times.float())
    bare = plimsoll.from_pyg(pyg.data.Data(x=torch.zeros(3, 1), edge_index=data.edge_index[:, :1] * 0), tmp_path / 'bare', quiet=True)
    with pytest.raises(plimsoll.UsageError, match='node_time.npy'):
        plimsoll.NeighborLoader(bare, [2], time_attr='time')


def test_state(tmp_path):
    _, ds = graph(tmp_path / 'made')
    arguments = {'num_neighbors': [2], 'batch_size': 16, 'input_nodes': 'train', 'time_attr': 'edge_time'}
    loader = plimsoll.NeighborLoader(ds, input_time=torch.arange(NODES), shuffle=True, seed=4, **arguments)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    rest = [batch.n_id.tolist() for batch in batches]
    again = plimsoll.NeighborLoader(plimsoll.open(ds.path), input_time=torch.arange(NODES), shuffle=True, **arguments)
    again.load_state_dict(state)
    assert [batch.n_id.tolist() for batch in again] == rest
    with pytest.raises(plimsoll.UsageError, match='input_time'):
        plimsoll.NeighborLoader(plimsoll.open(ds.path), input_time=torch.zeros(NODES).long(), shuffle=True, **arguments).load_state_dict(state)
