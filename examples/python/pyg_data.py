"""A dataset directory as PyTorch Geometric's own scripts have it: whole in memory. OGB's and PyG's dataset classes do this for theirs."""
import itertools
import os

import numpy as np
import torch
from torch_geometric.data import Data


def load(path):
    """The graph as a Data, and the nodes of each split, as `dataset[0]` and `dataset.get_idx_split()` of OGB."""
    arrays, split = _read(path)
    data = _graph(arrays, 0, len(arrays['indptr']) - 1)
    data.y = arrays['labels'].long()
    data.num_classes = int(data.y.max()) + 1
    return data, split


def load_graphs(path):
    """A list of graphs, the graphs of each split, and the number of classes (0: labels are values)."""
    arrays, split = _read(path)
    first = arrays['graph_indptr'].tolist()
    graphs = [_graph(arrays, *ends) for ends in itertools.pairwise(first)]
    values = arrays['labels'].is_floating_point()
    for data, label in zip(graphs, arrays['labels'], strict=True):
        data.y = label.view(1, -1) if values else label.long().view(1)
    return graphs, split, 0 if values else int(arrays['labels'].max()) + 1


def _read(path):
    names = [name.removesuffix('.npy') for name in os.listdir(path) if name.endswith('.npy')]
    arrays = {name: torch.from_numpy(np.load(f'{path}/{name}.npy')) for name in names}
    return arrays, {name: arrays[name] for name in ('train', 'valid', 'test') if name in arrays}


def _graph(arrays, first, last):
    indptr = arrays['indptr'][first:last + 1]
    source = arrays['indices'][indptr[0]:indptr[-1]].long() - first
    target = torch.repeat_interleave(torch.arange(last - first), indptr.diff())
    attr = arrays['edge_features'][indptr[0]:indptr[-1]] if 'edge_features' in arrays else None
    return Data(x=arrays['features'][first:last].float(), edge_index=torch.stack([source, target]), edge_attr=attr, num_nodes=last - first)
