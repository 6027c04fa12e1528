# labels: together
"""LinkNeighborLoader beside PyTorch Geometric's own: every field, its dtype, shape and order; negatives by distribution; the same bits always.

PyG's LinkLoader takes its batches from its own edge_sample, with a sampler in plain Python that draws all neighbours, and the negatives
that ours drew.
"""
import itertools
import math

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pytest.importorskip('torch_geometric')

from test_same_as_pyg import EDGES, NODES, WholeNeighbourhoods, compare, make_data  # noqa: E402
from torch_geometric.data import Data  # noqa: E402
from torch_geometric.loader import LinkLoader  # noqa: E402
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput, SamplerOutput  # noqa: E402
from torch_geometric.sampler.neighbor_sampler import edge_sample  # noqa: E402


class WholeLinks(WholeNeighbourhoods):
    def sample_from_edges(self, index, neg_sampling=None):
        def sample(seeds, times):
            return self.sample_from_nodes(NodeSamplerInput(None, seeds))

        return edge_sample(index, sample, NODES, False, None, neg_sampling)


class Given(NegativeSampling):
    """Hands out negatives that were drawn elsewhere."""

    def sample(self, num_samples, endpoint, num_nodes=None):
        found = self.given[endpoint]
        assert len(found) == num_samples
        return found


def pairs_of(data, count, draw):
    """Edges of the data, of which some occur twice."""
    return data.edge_index[:, torch.randint(EDGES, (count,), generator=draw)]


def negatives_of(batch, mode, disjoint=False):
    """Negatives in the order of PyG's draw."""
    if mode == 'triplet' and disjoint and batch.dst_neg_index.dim() == 2:
        return {'dst': batch.n_id[batch.dst_neg_index.t()].reshape(-1)}
    if mode == 'binary':
        count = len(batch.input_id)
        source, target = batch.n_id[batch.edge_label_index[:, count:]]
        return {'src': source, 'dst': target}
    return {'dst': batch.n_id[batch.dst_neg_index].reshape(-1)}


SAMPLINGS = [(None, 1), ('binary', 1), ('binary', 2), ('binary', 0.3), ('triplet', 1), ('triplet', 3)]
LABELS = {
    'none': None,
    'from 0': torch.arange(37) % 3,
    'from 1': torch.arange(37) % 3 + 1,
    'float': (torch.arange(37) % 2).float(),
    'rows': torch.arange(74.0).view(37, 2),
}


@pytest.mark.parametrize('sampling', SAMPLINGS, ids=str)
def test_as_pyg(tmp_path, sampling):
    mode, amount = sampling
    data = make_data(torch.float32, 'classes', masks=True)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data')
    pairs = pairs_of(data, 37, torch.Generator().manual_seed(2))
    for labels, size, drop_last in itertools.product(LABELS, (1, 8, 100), (False, True)):
        label = LABELS[labels]
        if mode == 'triplet' and label is not None:
            with pytest.raises(ValueError, match='edge_label'):
                plimsoll.LinkNeighborLoader(dataset, [-1], pairs, label, neg_sampling=mode)
            continue
        theirs_negatives = Given(mode, amount) if mode else None
        options = {'edge_label_index': pairs, 'edge_label': label, 'batch_size': size, 'drop_last': drop_last}
        ours = plimsoll.LinkNeighborLoader(
            dataset, [-1, -1], neg_sampling={'mode': mode, 'amount': amount} if mode else None, y='all', copy=True, **options
        )
        theirs = LinkLoader(data, WholeLinks(data, 2), neg_sampling=theirs_negatives, **options)
        assert len(ours) == len(theirs)
        for number, one in enumerate(ours):
            if mode:
                theirs_negatives.given = negatives_of(one, mode)
            other = theirs(range(number * size, min(37, (number + 1) * size)))
            compare(one, other)


class Trees(WholeLinks):
    """A tree of each seed: all neighbours that are not later than its time, as PyG's disjoint batches have them."""

    def __init__(self, data, hops, time_attr):
        super().__init__(data, hops)
        edge_time = data.time[data.edge_index[0]] if time_attr == 'time' else data.edge_time
        self.edge_time = None if time_attr is None else edge_time.tolist()
        self.node_time = data.time if time_attr == 'time' else None

    def sample_from_edges(self, index, neg_sampling=None):
        return edge_sample(index, self.trees, NODES, True, self.node_time if neg_sampling is not None else None, neg_sampling)

    def trees(self, seeds, times):
        nodes = [(tree, node) for tree, node in enumerate(seeds.tolist())]
        places = {one: place for place, one in enumerate(nodes)}
        rows, columns, edges, frontier, sampled_nodes, sampled_edges = [], [], [], nodes, [len(nodes)], []
        for _ in range(self.hops):
            found, before = [], len(rows)
            for tree, target in frontier:
                for source, number in self.edges.get(target, []):
                    if times is not None and self.edge_time[number] > times[tree]:
                        continue
                    if (tree, source) not in places:
                        places[tree, source] = len(places)
                        found.append((tree, source))
                    rows.append(places[tree, source])
                    columns.append(places[tree, target])
                    edges.append(number)
            nodes, frontier = nodes + found, found
            sampled_nodes.append(len(found))
            sampled_edges.append(len(rows) - before)
        return SamplerOutput(
            node=torch.tensor([node for _, node in nodes]),
            row=torch.tensor(rows, dtype=torch.int64),
            col=torch.tensor(columns, dtype=torch.int64),
            edge=torch.tensor(edges, dtype=torch.int64),
            batch=torch.tensor([tree for tree, _ in nodes]),
            num_sampled_nodes=sampled_nodes,
            num_sampled_edges=sampled_edges,
        )


class GivenInTime(Given):
    """PyG draws as many for each pair, checks their times, and keeps the first of them."""

    def sample(self, num_samples, endpoint, num_nodes=None):
        found = self.given[endpoint]
        return torch.cat([found, found.new_full((num_samples - len(found),), self.early)])


@pytest.mark.parametrize('time_attr', [None, 'edge_time', 'time'])
@pytest.mark.parametrize('sampling', SAMPLINGS, ids=str)
def test_trees_as_pyg(tmp_path, sampling, time_attr):
    mode, amount = sampling
    data = make_data(torch.float32, 'classes', masks=True)
    draw = torch.Generator().manual_seed(6)
    data.time, data.edge_time = torch.randint(20, (NODES,), generator=draw), torch.randint(20, (EDGES,), generator=draw)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data')
    pairs = pairs_of(data, 37, draw)
    times = torch.randint(2, 25, (37,), generator=draw) if time_attr else None
    for strategy, size, labels in itertools.product(('uniform', 'last') if time_attr else ('uniform',), (8, 100), (None, torch.arange(37) % 3)):
        if mode == 'triplet' and labels is not None:
            continue
        theirs_negatives = GivenInTime(mode, amount) if mode else None
        options = {'edge_label_index': pairs, 'edge_label': labels, 'edge_label_time': times, 'batch_size': size}
        ours = plimsoll.LinkNeighborLoader(
            plimsoll.open(dataset.path),
            [-1, -1],
            neg_sampling={'mode': mode, 'amount': amount} if mode else None,
            time_attr=time_attr,
            temporal_strategy=strategy,
            disjoint=True,
            y='all',
            copy=True,
            **options,
        )
        theirs = LinkLoader(data, Trees(data, 2, time_attr), neg_sampling=theirs_negatives, **options)
        for number, one in enumerate(ours):
            if mode:
                theirs_negatives.given, theirs_negatives.early = negatives_of(one, mode, True), int(data.time.argmin())
            other = theirs(range(number * size, min(37, (number + 1) * size)))
            if strategy == 'uniform':
                compare(one, other)
                continue
            trees = [sorted(zip(each.batch[each.edge_index[1]].tolist(), *each.n_id[each.edge_index].tolist(), strict=True)) for each in (one, other)]
            assert trees[0] == trees[1] and torch.equal(one.n_id[: one.num_sampled_nodes[0]], other.n_id[: one.num_sampled_nodes[0]])


@pytest.mark.parametrize('strategy', ['uniform', 'last'])
@pytest.mark.parametrize('mode', ['binary', 'triplet'])
@pytest.mark.parametrize('time_attr', ['edge_time', 'time'])
def test_nothing_is_late(tmp_path, time_attr, mode, strategy):
    data = make_data(torch.float32, None, masks=False)
    draw = torch.Generator().manual_seed(6)
    data.time, data.edge_time = torch.randint(20, (NODES,), generator=draw), torch.randint(20, (EDGES,), generator=draw)
    data.time[data.time == 0] = 1
    data.time[11] = 0
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(NODES))
    pairs, times = pairs_of(data, 500, draw), torch.randint(25, (500,), generator=draw)
    real = set(map(tuple, data.edge_index.t().tolist()))
    options = {'edge_label_time': times, 'time_attr': time_attr, 'temporal_strategy': strategy, 'batch_size': 32, 'shuffle': True, 'seed': 2}
    found = []
    for threads in 1, 4:
        loader = plimsoll.LinkNeighborLoader(
            plimsoll.open(dataset.path), [3, 2], pairs, neg_sampling={'mode': mode, 'amount': 2}, exclude='self', copy=True, threads=threads, **options
        )
        found.append([facts(batch) for batch in loader])
        for batch in loader:
            late = (batch.seed_time if mode == 'triplet' else batch.edge_label_time)[: len(batch.input_id)]
            assert torch.equal(late, times[batch.input_id])
            count = len(late)
            edges = batch.edge_time if time_attr == 'edge_time' else batch.time[batch.edge_index[0]]
            # Negative j and its trees are of pair j mod count.
            seeds = 4 * count if mode == 'triplet' else 6 * count
            place = torch.arange(seeds)
            assert torch.equal(batch.batch[:seeds], place % count)
            assert (edges <= late[batch.batch[batch.edge_index[1]]]).all()
            if time_attr == 'time':
                negatives = place[2 * count :] if mode == 'triplet' else place[place % (3 * count) >= count]
                assert (batch.time[negatives] <= late[negatives % count]).all()
            targets = set(map(tuple, pairs[:, batch.input_id].t().tolist()))
            left = set(map(tuple, batch.n_id[batch.edge_index].t().tolist()))
            assert left <= real and not left & targets
    assert found[0] == found[1]
    loader = plimsoll.LinkNeighborLoader(
        plimsoll.open(dataset.path), [3], pairs, neg_sampling={'mode': mode}, time_attr='time', edge_label_time=times - 1, copy=True
    )
    with pytest.raises(plimsoll.UsageError, match='later than the time of its pair'):
        list(loader)


def test_negatives_are_uniform_or_weighted(tmp_path):
    nodes, rounds = 40, 60
    data = Data(x=torch.zeros(nodes, 1), edge_index=torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)]))
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(nodes))
    weight = torch.arange(nodes).float()
    uniform = np.full(nodes, 1 / nodes)
    weighted = (weight / weight.sum()).numpy()
    for mode, options in itertools.product(('binary', 'triplet'), ({}, {'dst_weight': weight}, {'src_weight': weight})):
        if mode == 'triplet' and 'src_weight' in options:
            with pytest.raises(plimsoll.UsageError, match='src_weight'):
                plimsoll.LinkNeighborLoader(dataset, [1], data.edge_index, neg_sampling={'mode': mode, **options})
            continue
        loader = plimsoll.LinkNeighborLoader(
            dataset, [1], data.edge_index, neg_sampling={'mode': mode, 'amount': 20, **options}, batch_size=16, shuffle=True, seed=5, copy=True
        )
        found = {'src': [], 'dst': []}
        for batch in itertools.chain.from_iterable(loader for _ in range(rounds)):
            for end, ids in negatives_of(batch, mode).items():
                found[end].append(ids)
        for end, drawn in found.items():
            if not drawn:
                continue
            counts = np.bincount(torch.cat(drawn).numpy(), minlength=nodes)
            expected = (weighted if f'{end}_weight' in options else uniform) * counts.sum()
            assert counts.sum() == rounds * nodes * 20 and counts[expected == 0].sum() == 0
            some = expected > 0
            square = ((counts - expected)[some] ** 2 / expected[some]).sum()
            freedom = some.sum() - 1
            assert abs(square - freedom) < 5 * math.sqrt(2 * freedom), (mode, end, options, square)


@pytest.mark.parametrize('mode', ['binary', 'triplet'])
def test_early_negatives(tmp_path, mode):
    """Of 20 early nodes of 4,000 each is drawn as often; a pair with one early node, or whose early nodes are all edges, has negatives."""
    nodes, early = 4000, 20
    edges = torch.tensor([[0, 2, 2], [1, 0, 1]])
    data = Data(x=torch.zeros(nodes, 1), edge_index=edges, time=torch.arange(nodes))
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(nodes))
    pairs, times = torch.randint(nodes, (2, 200)), torch.full((200,), early - 1)
    options = {'neg_sampling': {'mode': mode, 'amount': 20}, 'time_attr': 'time', 'batch_size': 64, 'seed': 4, 'copy': True}
    found = {'src': [], 'dst': []}
    for batch in plimsoll.LinkNeighborLoader(dataset, [1], pairs, edge_label_time=times, **options):
        negatives = negatives_of(batch, mode, True)
        for end, ids in negatives.items():
            found[end].append(ids)
    for drawn in filter(None, found.values()):
        counts = np.bincount(torch.cat(drawn).numpy(), minlength=early)
        expected = counts.sum() / early
        assert len(counts) == early and counts.sum() == 200 * 20
        # The earliest is also what 1,000 late draws end with: a share of 0.995 ** 1000.
        assert ((counts - expected) ** 2 / expected).sum() - (early - 1) < 5 * math.sqrt(2 * (early - 1)) + 30
    for until in 0, 1, 2:
        loader = plimsoll.LinkNeighborLoader(dataset, [1], edges, edge_label_time=torch.full((3,), until), neg_exclude='edges', **options)
        drawn = [negatives_of(batch, mode, True) for batch in loader]
        assert len(drawn) == 1 and all((ids <= until).all() for ids in drawn[0].values())


def graphs():
    """Multigraphs by name: their nodes and edges."""
    draw = torch.Generator().manual_seed(8)
    every = torch.cartesian_prod(torch.arange(30), torch.arange(30)).t()
    complete = every[:, every[0] != every[1]]
    star = torch.stack([torch.zeros(99, dtype=torch.long), torch.arange(1, 100)])
    hub = torch.cat([torch.stack([torch.arange(6000) % 5000, torch.full((6000,), 7)]), torch.randint(6000, (2, 9000), generator=draw)], 1)
    return {
        'sparse': (200, torch.randint(200, (2, 900), generator=draw)),
        'dense': (30, torch.randint(30, (2, 900), generator=draw)),
        'long list': (6000, hub),
        'but one': (30, complete[:, (complete[0] != 4) | (complete[1] != 9)]),
        'star': (100, star),
        'complete': (30, complete),
    }


def triples_of(batch):
    """The negatives of a batch as pairs of nodes."""
    if 'dst_neg_index' in batch:
        source = batch.n_id[batch.src_index]
        return torch.stack([source.repeat_interleave(batch.dst_neg_index.view(len(source), -1).shape[1]), batch.n_id[batch.dst_neg_index].reshape(-1)])
    return batch.n_id[batch.edge_label_index[:, len(batch.input_id) :]]


@pytest.mark.parametrize('mode', ['binary', 'triplet'])
@pytest.mark.parametrize('name', graphs())
def test_negatives_are_no_edges(tmp_path, name, mode):
    nodes, edges = graphs()[name]
    data = Data(x=torch.rand(nodes, 4), edge_index=edges)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(nodes))
    real = set(edges[0].mul(nodes).add(edges[1]).tolist())
    options = {'batch_size': 32, 'seed': 1, 'copy': True, 'neg_exclude': 'edges'}
    weight = (torch.arange(nodes) % 3 > 0).float()
    for weights in {}, {'dst_weight': weight}:
        pairs = edges[:, :300] if name != 'but one' else torch.tensor([[4, 4], [8, 0]])
        loader = plimsoll.LinkNeighborLoader(dataset, [2], pairs, neg_sampling={'mode': mode, 'amount': 3, **weights}, **options)
        if name == 'complete' or (mode == 'triplet' and name == 'star') or (name == 'but one' and weights):
            with pytest.raises(plimsoll.UsageError, match='has edges to all nodes'):
                list(loader)
            continue
        found = torch.cat([triples_of(batch) for batch in loader], 1)
        assert found.shape[1] == 3 * pairs.shape[1]
        assert not real & set(found[0].mul(nodes).add(found[1]).tolist()) and (found[0] != found[1]).all()
        assert not weights or (weight[found[1]] > 0).all()
        if name == 'but one':
            assert (found == torch.tensor([[4], [9]])).all()


def test_other_negatives_are_as_likely(tmp_path):
    """Of negatives that are no edges, each pair is drawn as often."""
    nodes, edges = graphs()['dense']
    dataset = plimsoll.from_pyg(Data(x=torch.rand(nodes, 4), edge_index=edges), tmp_path / 'data', quiet=True, train=np.arange(nodes))
    options = {'neg_sampling': {'mode': 'binary', 'amount': 50}, 'neg_exclude': 'edges', 'batch_size': 300, 'seed': 4, 'copy': True}
    found = torch.cat([triples_of(batch) for batch in plimsoll.LinkNeighborLoader(dataset, [1], edges, **options)], 1)
    left = torch.ones(nodes, nodes, dtype=torch.bool).fill_diagonal_(False)
    left[edges[0], edges[1]] = False
    counts = torch.zeros(nodes, nodes).index_put_((found[0], found[1]), torch.ones(found.shape[1]), accumulate=True)
    expected = found.shape[1] / left.sum()
    square, freedom = float(((counts[left] - expected) ** 2 / expected).sum()), int(left.sum()) - 1
    assert counts[~left].sum() == 0 and abs(square - freedom) < 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize('exclude', ['self', 'reverse'])
def test_target_edges_are_left_out(tmp_path, exclude):
    draw = torch.Generator().manual_seed(3)
    edges = torch.randint(50, (2, 600), generator=draw)
    data = Data(x=torch.rand(50, 3, generator=draw), edge_index=torch.cat([edges, edges.flip(0)], 1), edge_weight=torch.rand(1200, generator=draw))
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(50))
    pairs = data.edge_index[:, ::7]
    options = {'edge_label_index': pairs, 'neg_sampling': 'binary', 'batch_size': 16, 'seed': 2, 'copy': True}
    every = plimsoll.LinkNeighborLoader(dataset, [-1, 5], **options)
    left = plimsoll.LinkNeighborLoader(dataset, [-1, 5], exclude=exclude, **options)
    for whole, batch in zip(every, left, strict=True):
        wanted = {tuple(pair) for pair in pairs[:, whole.input_id].t().tolist()}
        if exclude == 'reverse':
            wanted |= {(target, source) for source, target in wanted}
        keep = torch.tensor([tuple(edge) not in wanted for edge in whole.n_id[whole.edge_index].t().tolist()])
        assert not keep.all() and torch.equal(batch.n_id, whole.n_id) and torch.equal(batch.x, whole.x)
        assert torch.equal(batch.edge_index, whole.edge_index[:, keep])
        assert torch.equal(batch.edge_weight, whole.edge_weight[keep]) and torch.equal(batch.edge_position, whole.edge_position[keep])
        assert batch.num_sampled_nodes == whole.num_sampled_nodes and sum(batch.num_sampled_edges) == keep.sum()
        assert torch.equal(batch.edge_label_index, whole.edge_label_index)


def facts(batch):
    """All that is in a batch, as bytes."""
    return {name: value.numpy().tobytes() if isinstance(value, torch.Tensor) else value for name, value in batch.to_dict().items()}


def made(path, nodes=3000, edges=20000):
    draw = torch.Generator().manual_seed(4)
    data = Data(x=torch.rand(nodes, 64, generator=draw), edge_index=torch.randint(nodes, (2, edges), generator=draw))
    plimsoll.from_pyg(data, path, quiet=True, train=np.arange(nodes // 2))
    return data.edge_index[:, torch.randperm(edges, generator=draw)[:1000]]


def linked(path, pairs, **options):
    return plimsoll.LinkNeighborLoader(
        plimsoll.open(path), [5, 4], pairs, neg_sampling={'mode': 'binary', 'amount': 1.5}, batch_size=64, shuffle=True, seed=9, **options
    )


def test_same_bits(tmp_path):
    pairs = made(tmp_path / 'made')
    whole = linked(tmp_path / 'made', pairs, copy=True)
    epochs = [[facts(batch) for batch in whole] for _ in range(2)]
    assert len(epochs[0]) == len(whole) == 16 and epochs[0] != epochs[1]
    ids = np.concatenate([np.frombuffer(batch['input_id'], np.int64) for batch in epochs[0]])
    assert sorted(ids) == list(range(1000)) and (ids != np.arange(1000)).any()
    held = plimsoll._core.sample()['rss_bytes']
    less = linked(tmp_path / 'made', pairs, memory=held + 300 * 2**20, threads=1)
    assert [[facts(batch) for batch in less] for _ in range(2)] == epochs
    # Interrupted anywhere, a loader made again continues.
    before = linked(tmp_path / 'made', pairs)
    for number, batch in enumerate(before):
        assert facts(batch) == epochs[0][number]
        if number == 6:
            state = before.state_dict()
            break
    again = linked(tmp_path / 'made', pairs)
    again.load_state_dict(state)
    assert [facts(batch) for batch in again] == epochs[0][7:]
    assert [facts(batch) for batch in again] == epochs[1]
    other = linked(tmp_path / 'made', pairs.flip(0))
    with pytest.raises(plimsoll.UsageError, match='edge_label_index'):
        other.load_state_dict(state)
    np.save(tmp_path / 'labels.npy', np.arange(1000))
    for labels in torch.arange(1000), tmp_path / 'labels.npy', torch.ones(1000, 2, dtype=torch.bfloat16).t().contiguous().t():
        labelled = linked(tmp_path / 'made', pairs, edge_label=labels)
        with pytest.raises(plimsoll.UsageError, match='edge_label='):
            labelled.load_state_dict(state)
        labelled.load_state_dict(labelled.state_dict())


def test_beside_other_loaders(tmp_path):
    """Links and nodes of a dataset share a loader, whichever is made first, and yield what they yield alone."""
    pairs = made(tmp_path / 'made')
    alone = [facts(batch) for batch in linked(tmp_path / 'made', pairs)]
    nodes = [facts(batch) for batch in plimsoll.NeighborLoader(plimsoll.open(tmp_path / 'made'), [5, 4], 'train', batch_size=64, seed=9)]
    for late in (False, True):
        ds = plimsoll.open(tmp_path / 'made')
        loader = plimsoll.NeighborLoader(ds, [5, 4], 'train', batch_size=64, seed=9, copy=True)
        if late:
            assert [facts(batch) for batch in loader] == nodes
        links = plimsoll.LinkNeighborLoader(
            ds, [5, 4], pairs, neg_sampling={'mode': 'binary', 'amount': 1.5}, batch_size=64, shuffle=True, seed=9, copy=True
        )
        assert [facts(batch) for batch in links] == alone
        if not late:
            assert [facts(batch) for batch in loader] == nodes
            assert [facts(batch)['n_id'] for batch in loader] != []


@pytest.mark.parametrize('dtype', ['int64', 'int32', 'uint32'])
def test_pairs_in_a_file(tmp_path, dtype):
    pairs = made(tmp_path / 'made')
    labels = torch.arange(1000) % 4
    np.save(tmp_path / 'labels.npy', labels.numpy())
    wide, long, fortran = (tmp_path / f'{name}.npy' for name in ('wide', 'long', 'fortran'))
    np.save(wide, pairs.numpy().astype(dtype))
    np.save(long, pairs.t().contiguous().numpy().astype(dtype))
    np.save(fortran, np.asfortranarray(pairs.numpy().astype(dtype)))
    expected = [[facts(batch) for batch in loader] for loader in [linked(tmp_path / 'made', pairs, edge_label=labels)] for _ in range(2)]
    for file in wide, long, fortran:
        loader = linked(tmp_path / 'made', file, edge_label=tmp_path / 'labels.npy')
        assert [[facts(batch) for batch in loader] for _ in range(2)] == expected
    ordered = {'neg_sampling': 'triplet', 'batch_size': 300, 'seed': 1}
    first, second = (plimsoll.LinkNeighborLoader(plimsoll.open(tmp_path / 'made'), [3], source, **ordered) for source in (pairs, str(long)))
    assert [facts(batch) for batch in first] == [facts(batch) for batch in second]
    assert second.state_dict()['edge_label_index'] != first.state_dict()['edge_label_index']
    np.save(tmp_path / 'far.npy', pairs.numpy() + 3000)
    with pytest.raises(plimsoll.DataError, match='there are 3000 nodes'):
        next(iter(linked(tmp_path / 'made', tmp_path / 'far.npy')))
    with open(wide, 'r+b') as file:
        file.truncate(4000)
    (tmp_path / 'none.npy').write_bytes(b'pairs')
    np.save(tmp_path / 'odd.npy', np.zeros((3, 4), np.int64))
    np.save(tmp_path / 'floats.npy', pairs.numpy().astype(np.float64))
    refused = ('wide', plimsoll.DataError), ('none', plimsoll.UsageError), ('odd', plimsoll.UsageError), ('floats', plimsoll.UsageError)
    for name, error in refused:
        with pytest.raises(error, match=name):
            next(iter(linked(tmp_path / 'made', tmp_path / f'{name}.npy')))


def test_ranks_draw_other_negatives(tmp_path):
    """Each rank has pairs of its own; with the same seed, the ranks' negatives are as those of one list that they share by turns."""
    fake = pytest.importorskip('torch.testing._internal.distributed.fake_pg')
    pairs = made(tmp_path / 'made')
    options = {'neg_sampling': 'binary', 'batch_size': 50, 'seed': 3, 'copy': True}
    alone = plimsoll.LinkNeighborLoader(plimsoll.open(tmp_path / 'made'), [2], pairs, **options)
    whole = torch.cat([torch.stack(list(negatives_of(batch, 'binary').values())) for batch in alone], 1)
    states = [alone.state_dict()]
    for rank in range(2):
        torch.distributed.init_process_group('fake', rank=rank, world_size=2, store=fake.FakeStore())
        try:
            loader = plimsoll.LinkNeighborLoader(plimsoll.open(tmp_path / 'made'), [2], pairs[:, rank::2], **options)
            found = torch.cat([torch.stack(list(negatives_of(batch, 'binary').values())) for batch in loader], 1)
            states.append(loader.state_dict())
        finally:
            torch.distributed.destroy_process_group()
        assert torch.equal(found, whole[:, rank::2])
    assert [state['ranks'] for state in states] == [[0, 1], [0, 2], [1, 2]]


@pytest.mark.parametrize(('total', 'ranks'), [(9, 3), (10, 3), (11, 3), (2, 5), (1, 4), (7, 1)])
def test_columns_of_ranks(total, ranks):
    times = np.random.default_rng(1).integers(0, 100, total)
    for rank in range(ranks):
        edges = plimsoll.links._Edges(total, rank, ranks)
        own = edges.of(np.arange(edges.count))
        for column in times, torch.from_numpy(times):
            assert np.array_equal(edges.column(column), times[own])


@pytest.mark.parametrize('shuffle', [False, True])
def test_ranks_divide_all_edges(tmp_path, shuffle):
    """Each rank has every third edge, and all as many: the batches are those of a tensor of these."""
    fake = pytest.importorskip('torch.testing._internal.distributed.fake_pg')
    made(tmp_path / 'made')
    indptr, indices = (torch.from_numpy(plimsoll.open(tmp_path / 'made').array(name).astype(np.int64)) for name in ('indptr', 'indices'))
    edges = torch.stack([indices, torch.repeat_interleave(indptr.diff())])
    count, seen = edges.shape[1], []
    labels, options = torch.arange(count) % 7 + 1, {'neg_sampling': 'binary', 'batch_size': 900, 'seed': 3, 'shuffle': shuffle, 'copy': True}
    assert count % 3 != 0
    for rank in range(3):
        own = (torch.arange(-(-count // 3)) * 3 + rank) % count
        torch.distributed.init_process_group('fake', rank=rank, world_size=3, store=fake.FakeStore())
        try:
            divided = plimsoll.LinkNeighborLoader(plimsoll.open(tmp_path / 'made'), [3, 2], edge_label=labels, **options)
            held = plimsoll.LinkNeighborLoader(plimsoll.open(tmp_path / 'made'), [3, 2], edges[:, own], labels[own], **options)
            assert len(divided) == len(held)
            for one, expected in zip(divided, held, strict=True):
                assert torch.equal(one.input_id, own[expected.input_id])
                one.input_id = expected.input_id
                assert facts(one) == facts(expected)
                seen.append(own[expected.input_id])
        finally:
            torch.distributed.destroy_process_group()
    assert len(torch.cat(seen)) == -(-count // 3) * 3 and torch.equal(torch.cat(seen).unique(), torch.arange(count))


def test_ranks_divide_times(tmp_path):
    fake = pytest.importorskip('torch.testing._internal.distributed.fake_pg')
    data = make_data(torch.float32, None, masks=False)
    data.time = torch.zeros(NODES, dtype=torch.int64)
    dataset = plimsoll.from_pyg(data, tmp_path / 'data', quiet=True, train=np.arange(NODES))
    times, seen = torch.arange(dataset.num_edges) + 5, []
    np.save(tmp_path / 'times.npy', times.numpy())
    ranks = 3 if dataset.num_edges % 3 != 0 else 7
    for rank in range(ranks):
        torch.distributed.init_process_group('fake', rank=rank, world_size=ranks, store=fake.FakeStore())
        try:
            for given in times, tmp_path / 'times.npy':
                options = {'edge_label_time': given, 'time_attr': 'time', 'batch_size': 900, 'shuffle': True, 'copy': True}
                for batch in plimsoll.LinkNeighborLoader(plimsoll.open(dataset.path), [1], **options):
                    assert torch.equal(batch.edge_label_time, times[batch.input_id])
                    seen.append(batch.input_id)
        finally:
            torch.distributed.destroy_process_group()
    assert torch.equal(torch.cat(seen).unique(), torch.arange(dataset.num_edges))


def test_mapped_labels_leave_no_pages(tmp_path):
    pairs = made(tmp_path / 'made')
    labels = np.ones((1000, 8192))
    np.save(tmp_path / 'labels.npy', labels)
    sums = []
    for lowest in (1, 0):
        mapped = np.load(tmp_path / 'labels.npy', mmap_mode='r+')
        mapped[-1, -1] = labels[-1, -1] = lowest
        for given in mapped, tmp_path / 'labels.npy':
            before = plimsoll._core.sample()['rss_bytes']
            loader = linked(tmp_path / 'made', pairs, edge_label=given)
            sums.append(loader.state_dict()['edge_label'])
            assert plimsoll._core.sample()['rss_bytes'] - before < 40 << 20, 'the file has 66 MB'
            assert loader._raised == 1 - lowest
        assert sums[-2] == linked(tmp_path / 'made', pairs, edge_label=labels).state_dict()['edge_label'] != sums[-1]


@pytest.mark.parametrize('shuffle', [False, True])
def test_all_edges(tmp_path, shuffle):
    """Without pairs: all edges, as PyG has it, in the order of the dataset; the same batches as of a tensor of them."""
    made(tmp_path / 'made')
    ds = plimsoll.open(tmp_path / 'made')
    indptr, indices = (torch.from_numpy(ds.array(name).astype(np.int64)) for name in ('indptr', 'indices'))
    edges = torch.stack([indices, torch.repeat_interleave(indptr[1:] - indptr[:-1])])
    times = torch.arange(edges.shape[1])
    options = {'neg_sampling': {'mode': 'binary', 'amount': 0.5}, 'batch_size': 900, 'shuffle': shuffle, 'seed': 3, 'exclude': 'self', 'copy': True}
    for other in {}, {'edge_label': times, 'neg_exclude': 'edges'}:
        held = plimsoll.LinkNeighborLoader(plimsoll.open(ds.path), [3, 2], edges, **options, **other)
        whole = plimsoll.LinkNeighborLoader(plimsoll.open(ds.path), [3, 2], **options, **other)
        for _ in range(2):
            for one, expected in zip(whole, held, strict=True):
                assert facts(one) == facts(expected)
                assert torch.equal(one.n_id[one.edge_label_index[:, : len(one.input_id)]], edges[:, one.input_id])
        state = whole.state_dict()
        whole.load_state_dict(state)
        with pytest.raises(plimsoll.UsageError, match='edge_label_index'):
            held.load_state_dict(state)


def header_of(shape):
    text = f"{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + '\n'
    return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode()


def test_damaged_files(tmp_path):
    pairs = made(tmp_path / 'made')
    file = tmp_path / 'pairs.npy'
    damaged = header_of("(2, 'many')"), header_of((2, -5)), header_of((2, 10**30)), header_of((2, 1.5)), header_of('(' * 5000 + ')' * 5000)
    for content in *damaged, b'\x93NUMPY\x02\x00\xff\xff\xff\xff' + bytes(100), b'\x93NUMPY':
        file.write_bytes(content)
        with pytest.raises(plimsoll.DataError, match='damaged'):
            linked(tmp_path / 'made', file)
    # A file that became longer is another one, whatever it has at its ends.
    np.save(file, np.zeros((2, 300000), np.int64))
    loader = linked(tmp_path / 'made', file)
    state = loader.state_dict()
    loader.load_state_dict(state)
    with open(file, 'ab') as grown:
        grown.write(bytes(16))
    with pytest.raises(plimsoll.UsageError, match='edge_label_index'):
        loader.load_state_dict(state)
    mask = torch.zeros(2, 1500, dtype=torch.bool)  # as long as there are nodes
    with pytest.raises(plimsoll.UsageError, match='integers'):
        linked(tmp_path / 'made', mask)
    changed = pairs.clone()
    loader = linked(tmp_path / 'made', changed)
    changed.resize_(2, 10)
    with pytest.raises(plimsoll.UsageError, match='1000 pairs'):
        next(iter(loader))


def test_rehearsed(tmp_path):
    pairs = made(tmp_path / 'made')
    loader = linked(tmp_path / 'made', pairs)
    model = torch.nn.Linear(64, 8)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch):
        h = model(batch.x)
        source, target = batch.edge_label_index
        torch.nn.functional.binary_cross_entropy_with_logits((h[source] * h[target]).sum(-1), batch.edge_label).backward()
        optimizer.step()

    before = model.weight.clone()
    found = loader.rehearse(step, model, optimizer)
    assert found.fits and torch.equal(model.weight, before)
    assert [facts(batch) for batch in loader] == [facts(batch) for batch in linked(tmp_path / 'made', pairs)]
    assert {'seeds and labels'} <= {account['name'] for account in loader.memory_plan['accounts']}


def test_refused(tmp_path):
    pairs = made(tmp_path / 'made')
    ds = plimsoll.open(tmp_path / 'made')
    refused = [
        ({'edge_label_index': pairs.t()}, plimsoll.UsageError, r'\[2, pairs\]'),
        ({'edge_label_index': pairs[:, :0]}, plimsoll.UsageError, 'no pairs'),
        ({'edge_label_index': pairs.float()}, TypeError, 'integers'),
        ({'edge_label_index': pairs + 5000}, plimsoll.UsageError, 'names node'),
        ({'edge_label_index': (('a', 'to', 'b'), pairs)}, plimsoll.UsageError, 'heterogeneous'),
        ({'edge_label': torch.zeros(3)}, plimsoll.UsageError, 'edge_label has 3 entries'),
        ({'neg_sampling': 'some'}, ValueError, 'binary'),
        ({'neg_sampling': {'mode': 'binary', 'amount': 0}}, ValueError, 'more than 0'),
        ({'neg_sampling': {'mode': 'triplet', 'amount': 1.5}}, ValueError, 'whole number'),
        ({'neg_sampling': {'mode': 'binary', 'dst_weight': torch.ones(3)}}, plimsoll.UsageError, 'dst_weight has 3 entries'),
        ({'neg_sampling': {'mode': 'binary', 'dst_weight': torch.ones(3000, 2)}}, plimsoll.UsageError, 'dst_weight has 3000 x 2 entries'),
        ({'neg_sampling': {'mode': 'binary', 'dst_weight': -torch.ones(3000)}}, plimsoll.UsageError, 'negative'),
        ({'neg_sampling': {'mode': 'binary', 'dst_weight': torch.zeros(3000)}}, plimsoll.UsageError, 'all 0'),
        ({'exclude': 'all'}, ValueError, 'exclude'),
        ({'neg_exclude': 'all'}, ValueError, 'neg_exclude'),
        ({'edge_label_time': torch.zeros(1000)}, plimsoll.UsageError, 'edge_label_time'),
        ({'time_attr': 'time'}, plimsoll.UsageError, 'edge_label_time'),
        ({'temporal_strategy': 'last'}, plimsoll.UsageError, 'temporal_strategy'),
    ]
    for options, error, match in refused:
        with pytest.raises(error, match=match):
            next(iter(plimsoll.LinkNeighborLoader(ds, [2], **{'edge_label_index': pairs, **options})))
