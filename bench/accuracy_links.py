#!/usr/bin/env python3
"""Link prediction in Python, for tools/prove accuracy-links: splits a set, or trains one side with some seeds.

    bench/accuracy_links.py split DATA/SET PLACE
    bench/accuracy_links.py train PLACE SIDE --seeds 0,1,2 [--epochs 20]
    bench/accuracy_links.py score PLACE ROWS.npy...

split: RandomLinkSplit; or, where papers have years, two references of each of the last year's papers, drawn from those that have three,
are told and 20,000 of all other citations are learnt, as ogbl-citation2 splits them. PLACE/graph is the dataset of the training edges, PLACE/pairs.npy the pairs to learn, PLACE/test.npy those to tell.
train: SIDE is `loader` (plimsoll.LinkNeighborLoader), `pyg` (PyG's LinkNeighborLoader where its sampler, an extension of its own, is
installed, else its LinkLoader with the same draws made by torch; a batch's target edges leave it in the script, as exclude='reverse' has it) or `leaking` (the same script without
that). score: rows of any side. Prints a line of JSON with the AUC of the test pairs for each seed.
"""
import argparse
import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
import torch_geometric.typing
from torch_geometric.loader import LinkLoader, LinkNeighborLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import BaseSampler, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample
from torch_geometric.transforms import RandomLinkSplit
from torch_geometric.utils import to_undirected

HIDDEN, BATCH, RATE, FANOUT = 64, 512, 0.01, [10, 10]
LEARNT = 20_000  # citations of papers with years


def split(source, place):
    import plimsoll

    arrays = np.load(source / 'raw' / 'data.npz')
    edges = torch.from_numpy(arrays['edge_index'])
    if 'node_year' in arrays:
        split_by_year(arrays, place)
        return
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    data = Data(x=torch.from_numpy(arrays['node_feat']), edge_index=edges)
    torch.manual_seed(0)
    train, _, test = RandomLinkSplit(num_val=0.05, num_test=0.1, is_undirected=True, add_negative_train_samples=False)(data)
    plimsoll.from_pyg(Data(x=train.x, edge_index=train.edge_index), place / 'graph', quiet=True)
    np.save(place / 'pairs.npy', train.edge_label_index.numpy())
    np.save(place / 'test.npy', test.edge_label_index.numpy())
    np.save(place / 'test_label.npy', test.edge_label.numpy())


def split_by_year(arrays, place):
    import plimsoll

    draw = np.random.default_rng(0)
    edges, year = arrays['edge_index'], arrays['node_year'][:, 0]  # from the citing paper
    edges = edges[:, draw.permutation(edges.shape[1])]
    edges = edges[:, np.argsort(edges[0], kind='stable')]
    count = np.bincount(edges[0], minlength=len(year))
    nth = np.arange(edges.shape[1]) - (np.cumsum(count) - count)[edges[0]]
    told = (year == year.max())[edges[0]] & (count >= 3)[edges[0]] & (nth < 2)
    kept, told = edges[:, ~told], edges[:, told]
    kept = kept[:, kept[0] != kept[1]]
    both = to_undirected(torch.from_numpy(kept))
    plimsoll.from_pyg(Data(x=torch.from_numpy(arrays['node_feat']), edge_index=both), place / 'graph', quiet=True)
    np.save(place / 'pairs.npy', kept[:, draw.choice(kept.shape[1], LEARNT, replace=False)])
    np.save(place / 'test.npy', np.concatenate([told, np.stack([told[0], draw.integers(0, len(year), told.shape[1])])], axis=1))
    np.save(place / 'test_label.npy', np.repeat([1, 0], told.shape[1]))


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
    options['transform'] = without_targets if side == 'pyg' else None
    if torch_geometric.typing.WITH_PYG_LIB or torch_geometric.typing.WITH_TORCH_SPARSE:
        return LinkNeighborLoader(data, FANOUT, **options)
    return LinkLoader(data, Drawn(data.edge_index, data.num_nodes), **options)


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
    parser.add_argument('second', nargs='+')
    parser.add_argument('--seeds', type=lambda text: [int(seed) for seed in text.split(',')], default=[0])
    parser.add_argument('--epochs', type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    if options.what == 'split':
        split(options.first, pathlib.Path(options.second[0]))
        scores = []
    elif options.what == 'score':
        scores = [score(options.first, np.load(rows)) for rows in options.second]
    else:
        scores = []
        for seed in options.seeds:
            scores.append(train(options.first, options.second[0], seed, options.epochs))
            print(options.second[0], seed, scores[-1], file=sys.stderr, flush=True)
    print(json.dumps({'scores': scores, 'seconds': time.perf_counter() - began}))


if __name__ == '__main__':
    main()
