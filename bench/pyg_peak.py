#!/usr/bin/env python3
"""What a training in PyTorch Geometric takes, phase by phase, for tools/prove pyg-plan.

    bench/pyg_peak.py prepare DATASET ARRAYS
    bench/pyg_peak.py run ARRAYS --model sage --hidden 256 --fanout 15,10,5 --batch 1024 --workers 2 …

`prepare` writes, outside of what is measured, the arrays that a user's script would load, from a directory that `plimsoll import` or
`plimsoll generate` made: edge_index (int64, 2 x edges), or the same by columns as colptr and row, x (float32), y and the splits.
`run` is such a script: it loads them, makes a NeighborLoader for each split, trains a few steps and evaluates, and ends as an epoch
ends. Its last line is JSON: sizes of batches, and the greatest resident memory of its own process in each phase. What the whole
job took, workers and shared memory included, is for the one who runs it in a group of its own to see (tools/limited).
Needs torch, torch_geometric and pyg-lib.
"""
import argparse
import json
import pathlib
import re

import numpy as np


def prepare(dataset, arrays):
    arrays.mkdir(parents=True, exist_ok=True)
    indptr = np.load(dataset / 'indptr.npy')
    row = np.load(dataset / 'indices.npy').astype(np.int64)
    np.save(arrays / 'colptr.npy', indptr.astype(np.int64))
    np.save(arrays / 'row.npy', row)
    column = np.repeat(np.arange(len(indptr) - 1, dtype=np.int64), np.diff(indptr))
    np.save(arrays / 'edge_index.npy', np.stack([row, column]))
    features = np.load(dataset / 'features.npy', mmap_mode='r')
    out = np.lib.format.open_memmap(arrays / 'x.npy', 'w+', np.float32, features.shape)
    for first in range(0, len(features), 1 << 16):
        out[first:first + (1 << 16)] = features[first:first + (1 << 16)]
    out.flush()
    np.save(arrays / 'y.npy', np.load(dataset / 'labels.npy').astype(np.int64))
    for split in ('train', 'valid', 'test'):
        path = dataset / f'{split}.npy'
        np.save(arrays / f'{split}.npy', np.load(path).astype(np.int64) if path.exists() else np.zeros(0, np.int64))


class Meter:
    """The greatest resident memory since the phase before, of this process alone; pages of files apart."""

    def __init__(self):
        self.phases = {}
        self.reset()

    @staticmethod
    def status():
        text = pathlib.Path('/proc/self/status').read_text()
        return {name: int(kib) << 10 for name, kib in re.findall(r'^(Vm\w+|Rss\w+):\s+(\d+) kB', text, re.M)}

    @staticmethod
    def reset():
        pathlib.Path('/proc/self/clear_refs').write_text('5')

    def end(self, phase):
        now = self.status()
        seen = {'peak': now['VmHWM'], 'anonymous': now['RssAnon'], 'file': now['RssFile'], 'shared': now['RssShmem']}
        before = self.phases.get(phase, seen)
        self.phases[phase] = {name: max(value, before[name]) for name, value in seen.items()}
        self.reset()


def load_data(options):
    import torch
    from torch_geometric.data import Data
    arrays = options.arrays
    tensor = lambda name, **how: torch.from_numpy(np.load(arrays / f'{name}.npy', **how))
    x = tensor('x', mmap_mode='c') if options.mapped_features else tensor('x')
    data = Data(x=x, y=tensor('y'), num_nodes=len(x))
    topology = None
    if options.graph == 'edge_index':
        data.edge_index = tensor('edge_index')
    else:
        topology = tensor('colptr'), tensor('row')
        data.edge_index = torch.empty(2, 0, dtype=torch.int64)
    return data, topology, {split: tensor(split) for split in ('train', 'valid', 'test')}


def make_loaders(options, data, topology, splits):
    """One for each split, over as many seeds as make the steps asked for: they end as at the end of an epoch."""
    import torch
    from torch_geometric.loader import NeighborLoader
    from torch_geometric.sampler import NeighborSampler
    sampler = None
    if topology is not None:
        sampler = NeighborSampler(data, num_neighbors=options.fanout, is_sorted=True)
        sampler.colptr, sampler.row = topology
    loaders = []
    for split in ('train', 'valid', 'test')[:options.loaders]:
        seeds = splits[split] if len(splits[split]) else splits['train']
        seeds = seeds[torch.randperm(len(seeds))[:options.batch * options.steps]]
        loaders.append(NeighborLoader(data, num_neighbors=options.fanout, neighbor_sampler=sampler, input_nodes=seeds,
                                      batch_size=options.batch, shuffle=split == 'train', num_workers=options.workers,
                                      persistent_workers=options.persistent_workers and options.workers > 0))
    return loaders


def make_model(options, features, classes):
    from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE
    kind = {'gcn': GCN, 'sage': GraphSAGE, 'gat': GAT, 'gin': GIN}[options.model]
    more = {'heads': options.heads} if options.model == 'gat' else {}
    return kind(features, options.hidden, num_layers=len(options.fanout), out_channels=classes, dropout=options.dropout, **more)


def train(options, model, optimiser, loader):
    import torch
    import torch.nn.functional as F
    sizes = []
    model.train()
    for batch in loader:
        optimiser.zero_grad()
        with torch.autocast('cpu', torch.bfloat16, enabled=options.precision == 'bf16'):
            out = model(batch.x, batch.edge_index)[:batch.batch_size]
            loss = F.cross_entropy(out, batch.y[:batch.batch_size])
        loss.backward()
        optimiser.step()
        sizes.append((batch.num_nodes, batch.edge_index.size(1)))
    return sizes


def evaluate(model, loaders):
    import torch
    model.eval()
    right = 0
    with torch.no_grad():
        for loader in loaders:
            for batch in loader:
                out = model(batch.x, batch.edge_index)[:batch.batch_size]
                right += int((out.argmax(-1) == batch.y[:batch.batch_size]).sum())
    return right


def run(options):
    meter = Meter()
    import torch
    import torch_geometric.loader
    import torch_geometric.nn  # noqa: F401 its memory counts
    torch.set_num_threads(options.threads)
    meter.end('start')
    data, topology, splits = load_data(options)
    meter.end('load')
    loaders = make_loaders(options, data, topology, splits)
    meter.end('sort')
    model = make_model(options, data.x.size(1), int(data.y.max()) + 1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.003)
    sizes = []
    for _ in range(options.epochs):
        sizes += train(options, model, optimiser, loaders[0])
        meter.end('train')
        evaluate(model, loaders[1:] or loaders)
        meter.end('evaluate')
    nodes, edges = np.mean(sizes, axis=0)
    print(json.dumps({'batch_nodes': int(nodes), 'batch_edges': int(edges), 'steps': len(sizes), 'phases': meter.phases}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest='verb', required=True)
    preparing = verbs.add_parser('prepare')
    preparing.add_argument('dataset', type=pathlib.Path)
    preparing.add_argument('arrays', type=pathlib.Path)
    running = verbs.add_parser('run')
    running.add_argument('arrays', type=pathlib.Path)
    running.add_argument('--graph', choices=['edge_index', 'csc'], default='edge_index')
    running.add_argument('--mapped-features', action='store_true')
    running.add_argument('--loaders', type=int, default=3)
    running.add_argument('--workers', type=int, default=0)
    running.add_argument('--persistent-workers', action='store_true')
    running.add_argument('--model', choices=['gcn', 'sage', 'gat', 'gin'], default='sage')
    running.add_argument('--hidden', type=int, default=256)
    running.add_argument('--heads', type=int, default=1)
    running.add_argument('--dropout', type=float, default=0.0)
    running.add_argument('--precision', choices=['f32', 'bf16'], default='f32')
    running.add_argument('--fanout', type=lambda text: [int(part) for part in text.split(',')], default=[15, 10, 5])
    running.add_argument('--batch', type=int, default=1024)
    running.add_argument('--steps', type=int, default=3)
    running.add_argument('--epochs', type=int, default=2)
    running.add_argument('--threads', type=int, default=2)
    options = parser.parse_args()
    if options.verb == 'prepare':
        prepare(options.dataset, options.arrays)
    else:
        run(options)


if __name__ == '__main__':
    main()
