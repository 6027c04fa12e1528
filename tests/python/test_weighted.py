# labels: together
"""Neighbours in proportion to weights, as PyG's weight_attr asks for: exact inclusion probabilities, refusals, and the state."""
import itertools

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
data_module = pytest.importorskip('torch_geometric.data')


def made(path, weights, targets=2000, **columns):
    """As many nodes with the same weighted neighbours; weights[i] is of the edge from node i."""
    source = np.tile(np.arange(len(weights)), targets)
    target = np.repeat(np.arange(targets) + len(weights), len(weights))
    nodes = len(weights) + targets
    data = data_module.Data(
        x=torch.zeros(nodes, 1), edge_index=torch.tensor(np.stack([source, target])), edge_weight=torch.tensor(weights * targets), **columns
    )
    return plimsoll.from_pyg(data, path, quiet=True, train=np.arange(len(weights), nodes))


def inclusion(weights, count):
    """The probability of each entry to be among those drawn one after the other, each in proportion to the weights that are left."""
    found = np.zeros(len(weights))
    for order in itertools.permutations(range(len(weights)), count):
        probability, left = 1.0, sum(weights)
        for entry in order:
            probability *= weights[entry] / left if left > 0 else 0
            left -= weights[entry]
        found[list(order)] += probability
    return found


@pytest.mark.parametrize('weights', [[1.0] * 6, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [0.0, 10.0, 1.0, 1.0, 0.5, 0.25]], ids=str)
@pytest.mark.parametrize('count', [1, 3])
def test_inclusion_is_exact(tmp_path, weights, count):
    loader = plimsoll.NeighborLoader(made(tmp_path / 'made', weights), [count], batch_size=500, input_nodes='train', weight_attr='edge_weight', seed=3)
    counts, trials = np.zeros(len(weights)), 0
    for _ in range(50):
        for batch in loader:
            counts += np.bincount(batch.n_id[batch.edge_index[0]].numpy(), minlength=len(weights))[: len(weights)]
            trials += batch.batch_size
            assert batch.edge_index.shape[1] == count * batch.batch_size
            assert torch.equal(batch.edge_weight, torch.tensor(weights)[batch.n_id[batch.edge_index[0]]])
    expected = inclusion(weights, count)
    assert trials == 100_000
    deviation = np.sqrt(trials * expected * (1 - expected)) + 1e-9
    assert (np.abs(counts - trials * expected) < 5 * deviation).all(), (counts / trials, expected)


def test_with_replacement_and_all(tmp_path):
    ds = made(tmp_path / 'made', [0.0, 1.0, 3.0])
    loader = plimsoll.NeighborLoader(ds, [5], batch_size=2000, input_nodes='train', weight_attr='edge_weight', replace=True, seed=1)
    drawn = np.concatenate([batch.n_id[batch.edge_index[0]].numpy() for _ in range(5) for batch in loader])
    share = np.bincount(drawn, minlength=3) / len(drawn)
    assert len(drawn) == 50_000 and share[0] == 0 and abs(share[2] - 0.75) < 0.01
    whole = plimsoll.NeighborLoader(plimsoll.open(ds.path), [-1], batch_size=2000, input_nodes='train', weight_attr='edge_weight')
    assert next(iter(whole)).edge_index.shape[1] == 6000


def test_refused(tmp_path):
    ds = made(tmp_path / 'made', [1.0, 2.0])
    loader = plimsoll.NeighborLoader(ds, [1], input_nodes='train', weight_attr='edge_weight')
    with pytest.raises(plimsoll.UsageError, match='weight_attr'):
        plimsoll.NeighborLoader(ds, [1], input_nodes='train')
    with pytest.raises(plimsoll.UsageError, match="names it 'edge_weight'"):
        plimsoll.NeighborLoader(plimsoll.open(ds.path), [1], input_nodes='train', weight_attr='w')
    state = loader.state_dict()
    with pytest.raises(plimsoll.UsageError, match='weight_attr'):
        plimsoll.NeighborLoader(plimsoll.open(ds.path), [1], input_nodes='train').load_state_dict(state)
    bare = data_module.Data(x=torch.zeros(3, 1), edge_index=torch.tensor([[0, 1], [2, 2]]))
    ds = plimsoll.from_pyg(bare, tmp_path / 'bare', quiet=True, train=np.arange(3))
    with pytest.raises(plimsoll.UsageError, match='edge_weight.npy'):
        plimsoll.NeighborLoader(ds, [1], input_nodes='train', weight_attr='edge_weight')
    ds = made(tmp_path / 'negative', [1.0, -2.0])
    with pytest.raises(plimsoll.DataError, match='edge_weight.npy: entry .* is -2'):
        next(iter(plimsoll.NeighborLoader(ds, [1], input_nodes='train', weight_attr='edge_weight')))


def test_continues_with_the_same_batches(tmp_path):
    ds = made(tmp_path / 'made', [1.0, 2.0, 3.0], targets=64)
    arguments = {'num_neighbors': [1], 'batch_size': 8, 'input_nodes': 'train', 'weight_attr': 'edge_weight', 'shuffle': True}
    loader = plimsoll.NeighborLoader(ds, seed=5, **arguments)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state = loader.state_dict()
    rest = [batch.n_id.tolist() for batch in batches]
    again = plimsoll.NeighborLoader(plimsoll.open(ds.path), **arguments)
    again.load_state_dict(state)
    assert [batch.n_id.tolist() for batch in again] == rest
