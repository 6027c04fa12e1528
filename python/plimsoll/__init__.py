"""Plimsoll: graph neural networks of any size under a memory line.

    import plimsoll

    ds = plimsoll.open('papers100M')
    loader = plimsoll.NeighborLoader(ds, num_neighbors=[15, 10], batch_size=1024, input_nodes='train', shuffle=True, memory='4G')
    for batch in loader:
        out = model(batch.x, batch.edge_index)[:batch.batch_size]

Importing the package imports neither torch nor NumPy: what needs them imports them when it is used.
"""
from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if 't' in sys.abiflags:
    raise ImportError('plimsoll does not run in free-threaded builds of Python: use the build whose name has no "t" behind the version')

from . import _core
from .dataset import Dataset, open
from .errors import (
    BatchesHeldError,
    DataError,
    DiskSpaceError,
    DivergedError,
    Error,
    MemoryLineError,
    OutOfMemoryError,
    StoppedError,
    StorageError,
    UnsupportedError,
    UsageError,
)

if TYPE_CHECKING:
    from .building import Builder, from_parquet, from_pt_files, from_pyg
    from .layerwise import inference
    from .limits import Limits, limit
    from .links import LinkNeighborLoader
    from .loader import GraphLoader, NeighborLoader
    from .monitor import MemoryMonitor, clear_all_memory, memory_efficient_training_wrapper, print_gpu_memory
    from .ogb_links import from_ogb_links
    from .training import generate, import_, plan, train

__version__: str = _core.version()

# Public names that are imported when they are first used, and the module of each.
_LAZY = {
    'Builder': 'building',
    'from_ogb_links': 'ogb_links',
    'from_parquet': 'building',
    'from_pt_files': 'building',
    'from_pyg': 'building',
    'inference': 'layerwise',
    'Limits': 'limits',
    'limit': 'limits',
    'LinkNeighborLoader': 'links',
    'GraphLoader': 'loader',
    'NeighborLoader': 'loader',
    'MemoryMonitor': 'monitor',
    'clear_all_memory': 'monitor',
    'memory_efficient_training_wrapper': 'monitor',
    'print_gpu_memory': 'monitor',
    'generate': 'training',
    'import_': 'training',
    'plan': 'training',
    'train': 'training',
}

__all__ = [
    'BatchesHeldError',
    'Builder',
    'DataError',
    'Dataset',
    'DiskSpaceError',
    'DivergedError',
    'Error',
    'GraphLoader',
    'Limits',
    'LinkNeighborLoader',
    'MemoryLineError',
    'MemoryMonitor',
    'NeighborLoader',
    'OutOfMemoryError',
    'StoppedError',
    'StorageError',
    'UnsupportedError',
    'UsageError',
    'clear_all_memory',
    'from_ogb_links',
    'from_parquet',
    'from_pt_files',
    'from_pyg',
    'generate',
    'import_',
    'inference',
    'limit',
    'memory_efficient_training_wrapper',
    'open',
    'plan',
    'print_gpu_memory',
    'train',
]


# Loaders of torch_geometric that are not here, and what to use.
_ABSENT = {
    'LinkLoader': 'use plimsoll.LinkNeighborLoader, or torch_geometric.loader.LinkLoader on a Data in memory',
    'HGTLoader': 'types of nodes are not drawn by yet: use torch_geometric.loader.HGTLoader on a HeteroData in memory',
    'ClusterLoader': 'graphs are not cut into clusters: use plimsoll.NeighborLoader, or torch_geometric.loader on a Data in memory',
    'ClusterData': 'graphs are not cut into clusters: use plimsoll.NeighborLoader, or torch_geometric.loader on a Data in memory',
    'NodeLoader': "use plimsoll.NeighborLoader, or torch_geometric.loader.NodeLoader with plimsoll.pyg's sampler and stores",
    'DataLoader': 'use plimsoll.GraphLoader for datasets of many graphs, plimsoll.NeighborLoader for one graph',
    **{
        f'GraphSAINT{kind}Sampler': 'subgraphs are not drawn so: use plimsoll.NeighborLoader, or torch_geometric.loader on a Data in memory'
        for kind in ('', 'Node', 'Edge', 'RandomWalk')
    },
}


def _absent(name: str) -> object:
    """Stands for a loader that is not here: calling it says what to use."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise UnsupportedError(f'plimsoll has no {name}: {_ABSENT[name]}')

    return refuse


def __getattr__(name: str) -> object:
    if name in _ABSENT:
        return _absent(name)
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    value = getattr(importlib.import_module(f'.{module}', __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_LAZY))
