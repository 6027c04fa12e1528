#!/usr/bin/env python3
"""Batches from plimsoll.NeighborLoader or, with --pairs, LinkNeighborLoader, from PyTorch Geometric's NodeLoader with our sampler and stores, or from PyTorch Geometric alone;
by themselves or into a PyG model. For tools/prove python and links.

    bench/python_feed.py plimsoll|sampler|pyg DATASET --workload A|B|L [--pairs FILE.npy [--first N]] --what load|train|profile|leak
                         [--draw uniform|weighted|temporal] [--memory SIZE] [--seconds 5] [--repeats 3]

DATASET is a directory that `plimsoll generate` or `import` made. PyG gets its best case: the CSC in memory, handed to its sampler, float32
rows and columns of edges in memory, no worker processes. --draw: by `edge_weight`, or nothing later than the seed, by the times of nodes. Of --pairs ([pairs, 2];
--first N: so many of them for PyG, in memory) each has a drawn negative pair. The last line is one JSON object: batches/s of each window, sizes of batches, peak of
resident memory. `profile` also says which share of a batch's time is spent outside of the library; `leak` reads --batches batches from three
loaders and lists the resident memory every thousandth.
"""
import argparse
import gc
import json
import os
import resource
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN, GraphSAGE

WORKLOADS = {
    'A': {'batch': 128, 'fanout': [3, 2], 'model': GCN, 'hidden': 16},
    'B': {'batch': 1024, 'fanout': [15, 10, 5], 'model': GraphSAGE, 'hidden': 256},
    'L': {'batch': 512, 'fanout': [10, 5], 'model': GraphSAGE, 'hidden': 64},
}
CHUNK = 1 << 20
DRAWS = {'uniform': {}, 'weighted': {'weight_attr': 'edge_weight'}, 'temporal': {'time_attr': 'time'}}
COLUMNS = {'edge_attr': ('edge_features', torch.float32), 'edge_weight': ('edge_weight', torch.float32), 'edge_time': ('edge_time', torch.int64)}


def widened(path, name, kind):
    """An array in memory as `kind`; the file is mapped anew for each piece, so that it does not count as resident."""
    def mapped():
        return np.load(f'{path}/{name}.npy', mmap_mode='r')
    out = torch.empty(mapped().shape, dtype=kind)
    for first in range(0, len(out), CHUNK):
        out[first:first + CHUNK] = torch.from_numpy(np.array(mapped()[first:first + CHUNK]))
    return out


def sort_lists(indptr, row, time, columns):
    """Sorts each list by the times of its nodes, as PyG's temporal sampler needs it, and the columns with them; some lists at a time."""
    ends = indptr.numpy()
    span = int(time.max()) - int(time.min()) + 1
    first = 0
    while first < len(ends) - 1:
        last = max(int(np.searchsorted(ends, ends[first] + CHUNK, 'right')) - 1, first + 1)
        piece = slice(int(ends[first]), int(ends[last]))
        lists = np.repeat(np.arange(last - first), np.diff(ends[first:last + 1]))
        order = torch.from_numpy(np.argsort(lists * span + (time[row[piece]] - time.min()).numpy()))
        for column in (row, *columns):
            column[piece] = column[piece][order]
        first = last


def pyg_loader(path, load, draw, pairs, first):
    from torch_geometric.data import Data
    from torch_geometric.loader import LinkNeighborLoader, NeighborLoader
    from torch_geometric.sampler import NeighborSampler

    indptr, train, labels = (torch.from_numpy(np.load(f'{path}/{name}.npy')) for name in ('indptr', 'train', 'labels'))
    data = Data(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=len(indptr) - 1, y=labels.long())
    sampler = NeighborSampler(data, num_neighbors=load['fanout'], is_sorted=True)
    sampler.colptr, sampler.row = indptr, widened(path, 'indices', torch.int64)
    columns = {name: widened(path, file, kind) for name, (file, kind) in COLUMNS.items() if os.path.exists(f'{path}/{file}.npy')}
    times = {}
    if draw == 'weighted':
        sampler.edge_weight = columns['edge_weight']
    elif draw == 'temporal':
        time = sampler.node_time = data.time = torch.from_numpy(np.load(f'{path}/node_time.npy'))
        sort_lists(indptr, sampler.row, time, columns.values())
        times = {'time_attr': 'time', 'input_time': time[train]}
    if columns:  # PyG counts edges by edge_index: one edge, repeated in no memory
        data.edge_index = torch.zeros(2, 1, dtype=torch.int64).expand(2, len(sampler.row))
        data.update(columns)
    data.x = widened(path, 'features', torch.float32)
    if pairs:
        mapped = np.load(pairs, mmap_mode='r')[:first]
        index = torch.empty((2, len(mapped)), dtype=torch.int64)
        for at in range(0, len(mapped), CHUNK):
            index[:, at:at + CHUNK] = torch.from_numpy(np.array(mapped[at:at + CHUNK]).T)
        return LinkNeighborLoader(data, load['fanout'], edge_label_index=index, neg_sampling='binary', neighbor_sampler=sampler,
                                  batch_size=load['batch'], shuffle=True)
    return NeighborLoader(data, load['fanout'], train, neighbor_sampler=sampler, batch_size=load['batch'], shuffle=True, **times)


def plimsoll_loader(path, load, draw, memory, pairs):
    import plimsoll

    if pairs:
        return plimsoll.LinkNeighborLoader(plimsoll.open(path), load['fanout'], pairs, neg_sampling='binary', batch_size=load['batch'], shuffle=True,
                                           memory=memory)
    return plimsoll.NeighborLoader(plimsoll.open(path), load['fanout'], 'train', batch_size=load['batch'], shuffle=True, memory=memory, **DRAWS[draw])


def sampler_loader(path, load, memory):
    import plimsoll
    from plimsoll.pyg import NeighborSampler, stores
    from torch_geometric.loader import NodeLoader

    ds = plimsoll.open(path)
    sampler = NeighborSampler(ds, load['fanout'], memory=memory)
    return ds, NodeLoader(stores(ds), sampler, torch.tensor(ds.array('train')), batch_size=load['batch'], shuffle=True)


def engine(name):
    if name != 'pyg':
        import plimsoll

        return f'plimsoll {plimsoll.__version__}'
    for sampler in 'pyg_lib', 'torch_sparse':
        try:
            return f'{sampler} {__import__(sampler).__version__}'
        except ImportError:
            pass
    return 'none'


def endless(loader):
    while True:
        yield from loader


class Trainer:
    """One step of a PyG model: the same code for either loader."""

    def __init__(self, load, num_features, num_classes):
        self.model = load['model'](num_features, load['hidden'], num_layers=len(load['fanout']), out_channels=num_classes)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=0.003)

    def step(self, batch):
        hops = {f'num_sampled_{kind}_per_hop': batch.get(f'num_sampled_{kind}') for kind in ('nodes', 'edges')}  # torch-sparse counts none
        out = self.model(batch.x, batch.edge_index, **hops)[:batch.batch_size]
        loss = F.cross_entropy(out, batch.y[:batch.batch_size])
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        loss.item()


class TimedStream:
    """A stream of the library, and the seconds spent inside its next()."""

    def __init__(self, stream):
        self.stream, self.seconds = stream, 0.0

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def next(self):
        began = time.perf_counter()
        batch = self.stream.next()
        self.seconds += time.perf_counter() - began
        return batch


def windows(batches, warmup, repeats, seconds, step=None):
    """Batches/s of each window, and the mean number of nodes and edges of its batches."""
    rates, nodes, edges, total = [], 0, 0, 0
    for _ in range(warmup):
        batch = next(batches)
        if step:
            step(batch)
    for _ in range(repeats):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            batch = next(batches)
            if step:
                step(batch)
            count += 1
            nodes, edges = nodes + batch.n_id.numel(), edges + batch.edge_index.shape[1]
        rates.append(round(count / (time.perf_counter() - began), 3))
        total += count
    return {'rates': rates, 'nodes_per_batch': round(nodes / total), 'edges_per_batch': round(edges / total)}


def profile(loader, warmup, seconds):
    """The share of the time that is spent outside of the library's next(): tensors, Data, the interpreter."""
    next(iter(loader))
    timed = loader._stream = TimedStream(loader._stream)
    batches = endless(loader)
    for _ in range(warmup):
        next(batches)
    timed.seconds, count, began = 0.0, 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        next(batches)
        count += 1
    whole = time.perf_counter() - began
    return {'rate': round(count / whole, 3), 'python_share': round(1 - timed.seconds / whole, 4),
            'python_microseconds': round((whole - timed.seconds) / count * 1e6, 2),
            'library_microseconds': round(timed.seconds / count * 1e6, 2)}


def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def leak(path, load, memory, batches):
    """Three loaders in turn, as scripts have them, with a state and a batch that is kept for a while."""
    import plimsoll

    ds = plimsoll.open(path)
    loaders = [plimsoll.NeighborLoader(ds, load['fanout'], split, batch_size=load['batch'], shuffle=True, memory=memory)
               for split in ('train', 'valid', 'test')]
    resident_bytes, objects, count, kept = [], [], 0, None
    while count < batches:
        for loader in loaders:
            for batch in loader:
                count += 1
                if count % 10 == 0:
                    kept = batch
                if count % 1000 == 0:
                    json.dumps(loader.state_dict())
                    resident_bytes.append(resident())
                    gc.collect()
                    objects.append(len(gc.get_objects()))
                if count == batches:
                    break
            if count == batches:
                break
    del batch, kept
    return {'batches': count, 'resident_bytes': resident_bytes, 'objects': objects, 'held': loaders[0]._shared.core.held}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('loader', choices=['plimsoll', 'sampler', 'pyg'])
    parser.add_argument('dataset')
    parser.add_argument('--workload', choices=WORKLOADS, default='A')
    parser.add_argument('--what', choices=['load', 'train', 'profile', 'leak'], default='load')
    parser.add_argument('--draw', choices=DRAWS, default='uniform')
    parser.add_argument('--memory')
    parser.add_argument('--threads', type=int, help="PyTorch's")
    parser.add_argument('--pairs')
    parser.add_argument('--first', type=int)
    parser.add_argument('--seconds', type=float, default=5)
    parser.add_argument('--repeats', type=int, default=3)
    parser.add_argument('--batches', type=int, default=100_000)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.threads:
        torch.set_num_threads(options.threads)
    load = WORKLOADS[options.workload]
    if options.what == 'leak':
        found = leak(options.dataset, load, options.memory, options.batches)
    else:
        began = time.perf_counter()
        if options.loader == 'pyg':
            loader = pyg_loader(options.dataset, load, options.draw, options.pairs, options.first)
            num_features, num_classes = loader.data.num_features, int(loader.data.y.max()) + 1
        elif options.loader == 'sampler':
            ds, loader = sampler_loader(options.dataset, load, options.memory)
            num_features, num_classes = ds.num_features, ds.num_classes
        else:
            loader = plimsoll_loader(options.dataset, load, options.draw, options.memory, options.pairs)
            num_features, num_classes = loader.data.num_features, loader.data.num_classes
        batches = endless(loader)
        next(batches)
        start_seconds = round(time.perf_counter() - began, 2)
        if options.what == 'profile':
            found = profile(loader, len(loader), options.seconds * options.repeats)
        elif options.what == 'train':
            found = windows(batches, 5, options.repeats, options.seconds, Trainer(load, num_features, num_classes).step)
        else:  # an epoch first, so that our caches are full; PyG has none, and pairs have long epochs
            warmup = min(len(loader), 20) if options.loader == 'pyg' or options.pairs else len(loader)
            found = windows(batches, warmup, options.repeats, options.seconds)
        found['start_seconds'] = start_seconds
    print(json.dumps({'engine': engine(options.loader), 'torch': torch.__version__, **found,
                      'peak_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10}))


if __name__ == '__main__':
    main()
