# labels: together
"""Disjoint batches, as PyG's disjoint=True asks for: each seed's tree by brute force from the files, refusals, and the state."""
import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
pyg = pytest.importorskip('torch_geometric')


def graph(path, nodes=200, seed=1, **arguments):
    """A multigraph with duplicates, self-loops, a hub and empty lists."""
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, nodes, 900), rng.integers(0, nodes // 2, 900)
    hub = np.stack([rng.integers(0, nodes, 300), np.full(300, 7)])
    loops = np.tile(np.arange(0, nodes, 9), (2, 1))
    edges = np.concatenate([np.stack([source, target]), hub, loops, np.stack([source, target])[:, :100]], axis=1)
    data = pyg.data.Data(x=torch.arange(nodes).float().view(-1, 1), edge_index=torch.tensor(edges), y=torch.arange(nodes) % 3)
    return data, plimsoll.from_pyg(data, path, quiet=True, train=np.arange(nodes), edge_ids=True, **arguments)


def tree(data, seed, hops):
    """The nodes that a seed reaches, and the numbers of all edges into those that it reaches before the last hop."""
    source, target = data.edge_index.numpy()
    met, edges, frontier = {seed}, [], {seed}
    for _ in range(hops):
        into = np.flatnonzero(np.isin(target, list(frontier)))
        edges.extend(into)
        frontier = set(source[into].tolist()) - met
        met |= frontier
    return met, sorted(edges)


def check(batch, data, hops):
    """Every seed's tree is complete and shares nothing."""
    edge_tree = batch.batch[batch.edge_index[0]]
    assert torch.equal(edge_tree, batch.batch[batch.edge_index[1]])
    assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
    assert torch.equal(batch.x[:, 0].long(), batch.n_id)
    for i in range(batch.batch_size):
        nodes, edges = tree(data, int(batch.n_id[i]), hops)
        assert sorted(batch.n_id[batch.batch == i].tolist()) == sorted(nodes)
        assert sorted(batch.e_id[edge_tree == i].tolist()) == edges
        assert (data.edge_index[:, batch.e_id] == batch.n_id[batch.edge_index]).all()


@pytest.mark.parametrize('threads', [1, 8])
def test_trees_are_complete(tmp_path, threads):
    data, ds = graph(tmp_path / 'made')
    seeds = torch.tensor([7, 0, 7, 150, 9, 7, 63, 199])  # a hub, repeated; an empty list; a node with a loop
    loader = plimsoll.NeighborLoader(ds, [-1, -1], batch_size=5, input_nodes=seeds, disjoint=True, threads=threads)
    batches = list(loader)
    assert torch.equal(torch.cat([batch.n_id[: batch.batch_size] for batch in batches]), seeds)
    for batch in batches:
        check(batch, data, 2)
        assert sum(batch.num_sampled_nodes) == batch.num_nodes and sum(batch.num_sampled_edges) == batch.num_edges


@pytest.mark.parametrize('replace', [False, True])
def test_trees_draw_independently(tmp_path, replace):
    """Of the same seed 2,000 times, each tree draws anew, and each entry of the list equally often."""
    data, ds = graph(tmp_path / 'made')
    loader = plimsoll.NeighborLoader(
        ds, [4], batch_size=500, input_nodes=torch.full((2000,), 7), disjoint=True, replace=replace, seed=3, copy=True
    )
    degree = int((data.edge_index[1] == 7).sum())
    counts = np.zeros(len(data.edge_index[0]))
    for _ in range(25):
        for batch in loader:
            assert batch.edge_index.shape[1] == 4 * 500
            np.add.at(counts, batch.e_id.numpy(), 1)
    drawn = counts[(data.edge_index[1] == 7).numpy()]
    expected = 200_000 / degree
    assert drawn.sum() == 200_000
    assert abs(((drawn - expected) ** 2 / expected).sum() - degree) < 6 * np.sqrt(2 * degree)


def test_a_tree_does_not_depend_on_the_batch(tmp_path):
    """The same place in the epoch, in batches of other sizes and with another number of threads."""
    _, ds = graph(tmp_path / 'made')

    def trees(batch_size, threads):
        loader = plimsoll.NeighborLoader(
            plimsoll.open(ds.path), [3, 2], batch_size=batch_size, input_nodes='train', shuffle=True, disjoint=True, seed=5, threads=threads
        )
        return [batch.n_id[batch.batch == i].tolist() for batch in loader for i in range(batch.batch_size)]

    assert trees(64, 1) == trees(10, 4)


def test_all_loaders_agree_and_continue(tmp_path):
    _, ds = graph(tmp_path / 'made')
    arguments = {'num_neighbors': [2, 2], 'batch_size': 16, 'input_nodes': 'train', 'shuffle': True}
    loader = plimsoll.NeighborLoader(ds, disjoint=True, seed=5, **arguments)
    with pytest.raises(plimsoll.UsageError, match='disjoint'):
        plimsoll.NeighborLoader(ds, **arguments)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest = [batch.n_id.tolist() for batch in batches]
    again = plimsoll.NeighborLoader(plimsoll.open(ds.path), disjoint=True, **arguments)
    again.load_state_dict(state)
    assert [batch.n_id.tolist() for batch in again] == rest
    with pytest.raises(plimsoll.UsageError, match='disjoint'):
        plimsoll.NeighborLoader(plimsoll.open(ds.path), **arguments).load_state_dict(state)


def test_equals_pyg(tmp_path):
    """PyG's own batches where all neighbours are taken; it samples disjointly with pyg-lib only."""
    if not pyg.typing.WITH_PYG_LIB:
        pytest.skip('PyG samples disjointly with pyg-lib only, which is not installed')
    data, ds = graph(tmp_path / 'made')
    seeds = torch.tensor([7, 0, 150, 9, 63, 199])
    arguments = {'num_neighbors': [-1, -1], 'batch_size': 4, 'input_nodes': seeds, 'disjoint': True}
    for ours, theirs in zip(plimsoll.NeighborLoader(ds, **arguments), pyg.loader.NeighborLoader(data, **arguments), strict=True):
        for name in ('batch', 'n_id'):
            assert torch.equal(ours[name], theirs[name])
        assert ours.num_sampled_nodes == theirs.num_sampled_nodes and ours.num_sampled_edges == theirs.num_sampled_edges
