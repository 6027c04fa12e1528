#!/usr/bin/env python3
"""Link prediction in Python, for tools/prove accuracy-links: splits a set, or trains one side with some seeds.

    bench/accuracy_links.py split DATA/SET PLACE
    bench/accuracy_links.py train PLACE SIDE --seeds 0,1,2 [--epochs 20]
    bench/accuracy_links.py score PLACE ROWS.npy

split: RandomLinkSplit; PLACE/graph is the dataset of the training edges, PLACE/pairs.npy the pairs to learn, PLACE/test.npy those to tell.
train: SIDE is `loader` (plimsoll.LinkNeighborLoader), `pyg` (PyG's LinkLoader with the same draws made by torch, as its own sampler is an
extension of its own; a batch's target edges leave it in the script, as exclude='reverse' has it) or `leaking` (the same script without
that). score: rows of any side. Prints a line of JSON with the AUC of the test pairs for each seed.
"""
import argparse
import json
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import to_undirected

HIDDEN, BATCH, RATE, FANOUT = 64, 512, 0.01, [10, 10]


def split(source, place):
    import plimsoll

    arrays = np.load(source / 'raw' / 'data.npz')
    edges = torch.from_numpy(arrays['edge_index'])
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    data = Data(x=torch.from_numpy(arrays['node_feat']), edge_index=edges)
    torch.manual_seed(0)
    train, _, test = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)(data)
    plimsoll.from_pyg(Data(x=train.x, edge_index=train.edge_index), place / 'graph', quiet=True)
    np.save(place / 'pairs.npy', train.edge_label_index.numpy())
    np.save(place / 'test.npy', test.edge_label_index.numpy())
    np.save(place / 'test_label.npy', test.edge_label.numpy())


def score(place, rows):
    """The AUC of the test pairs by dot products: the share of pairs of a link and none that are in order, half of equal ones."""
    source, target = np.load(place / 'test.npy')
    label = np.load(place / 'test_label.npy') > 0
    scores = np.einsum('ij,ij->i', rows[source].astype(np.float64), rows[target].astype(np.float64))
    none = np.sort(scores[~label])
    below, most = (np.searchsorted(none, scores[label], side) for side in ('left', 'right'))
    return float((below + most).mean() / 2 / len(none))


class Drawn(BaseSampler):
    """Up to so many in-neighbours of each node once, at the hop after it was met, uniformly and without replacement."""

    def __init__(self, edge_index, num_nodes):
        order = (edge_index[1] * num_nodes + edge_index[0]).argsort()
        self.sources, self.num_nodes = edge_index[0][order], num_nodes
        self.starts = torch.searchsorted(edge_index[1][order], torch.arange(num_nodes + 1))
        self.edges = order

    def sample_from_nodes(self, index, **kwargs):
        raise NotImplementedError

    def sample_from_edges(self, index, neg_sampling=None):
        return edge_sample(index, self.draw, self.num_nodes, False, None, neg_sampling)

    def draw(self, seeds, times):
        places = torch.full((self.num_nodes,), -1)
        nodes = frontier = seeds
        places[seeds] = torch.arange(len(seeds))
        rows, columns, edges, sampled = [], [], [], [len(seeds)]
        for count in FANOUT:
            starts, degrees = self.starts[frontier], self.starts[frontier + 1] - self.starts[frontier]
            owner = torch.repeat_interleave(torch.arange(len(frontier)), degrees)
            first = degrees.cumsum(0) - degrees
            found = (owner + torch.rand(len(owner), dtype=torch.float64)).argsort()  # each list in an order of its own
            kept = torch.arange(len(owner)) - first[owner] < count
            found, owner = (starts[owner] + found - first[owner])[kept], owner[kept]
            sources = self.sources[found]
            fresh = sources[places[sources] < 0].unique()
            places[fresh] = torch.arange(len(nodes), len(nodes) + len(fresh))
            rows.append(places[sources])
            columns.append(places[frontier][owner])
            edges.append(self.edges[found])
            nodes, frontier = torch.cat([nodes, fresh]), fresh
            sampled.append(len(fresh))
        return SamplerOutput(node=nodes, row=torch.cat(rows), col=torch.cat(columns), edge=torch.cat(edges), num_sampled_nodes=sampled,
                             num_sampled_edges=[len(part) for part in rows])


def without_targets(batch):
    """The batch without the edges between its own pairs, in either direction."""
    source, target = batch.edge_label_index[:, batch.edge_label > 0]
    wide = batch.num_nodes
    ends = batch.edge_index[0] * wide + batch.edge_index[1]
    batch.edge_index = batch.edge_index[:, ~torch.isin(ends, torch.cat([source * wide + target, target * wide + source]))]
    return batch


def graph_of(place):
    indptr, indices = (torch.from_numpy(np.load(place / 'graph' / f'{name}.npy')).long() for name in ('indptr', 'indices'))
    edge_index = torch.stack([indices, torch.repeat_interleave(torch.arange(len(indptr) - 1), indptr.diff())])
    return Data(x=torch.from_numpy(np.load(place / 'graph' / 'features.npy')).float(), edge_index=edge_index)


def loader_of(place, side, data, seed):
    pairs = torch.from_numpy(np.load(place / 'pairs.npy'))
    options = {'edge_label_index': pairs, 'neg_sampling': 'binary', 'batch_size': BATCH, 'shuffle': True}
    if side == 'loader':
        import plimsoll

        return plimsoll.LinkNeighborLoader(plimsoll.open(place / 'graph'), FANOUT, exclude='reverse', memory='2G', threads=1, seed=seed, **options)
    return LinkLoader(data, Drawn(data.edge_index, data.num_nodes), transform=without_targets if side == 'pyg' else None, **options)


def train(place, side, seed, epochs):
    data = graph_of(place)
    torch.manual_seed(seed)
    loader = loader_of(place, side, data, seed)
    model = GraphSAGE(data.num_features, HIDDEN, num_layers=2, out_channels=HIDDEN)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            h = model(batch.x, batch.edge_index)
            source, target = batch.edge_label_index
            F.binary_cross_entropy_with_logits((h[source] * h[target]).sum(dim=-1), batch.edge_label).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return score(place, model(data.x, data.edge_index).numpy())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['split', 'train', 'score'])
    parser.add_argument('first', type=pathlib.Path)
    parser.add_argument('second')
    parser.add_argument('--seeds', type=lambda text: [int(seed) for seed in text.split(',')], default=[0])
    parser.add_argument('--epochs', type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    if options.what == 'split':
        split(options.first, pathlib.Path(options.second))
        scores = []
    elif options.what == 'score':
        scores = [score(options.first, np.load(options.second))]
    else:
        scores = [train(options.first, options.second, seed, options.epochs) for seed in options.seeds]
    print(json.dumps({'scores': scores, 'seconds': time.perf_counter() - began}))


if __name__ == '__main__':
    main()
