"""Which modules of torch and torch_geometric compute the row of a node from that node and its in-neighbours alone.

A module is known by its exact type and its settings: a subclass, a hook or a replaced method may compute anything.
"""
from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch

__all__ = ['is_known', 'pyg', 'why_changed', 'why_not']


def _statistics(norm: Any) -> str | None:
    running = norm.track_running_stats and norm.running_mean is not None
    return None if running else 'it has no running statistics, and takes those of all nodes: train with track_running_stats=True'


_EDGES = (
    'it takes edge attributes or types, and a dataset has none: compute layer by layer yourself, with '
    'plimsoll.NeighborLoader(dataset, num_neighbors=[-1]) and attributes in the order of indices.npy, at batch.edge_position'
)
_HOPS = 'it takes several hops, or weights edges by degrees that a chunk of nodes does not have: use GCNConv, one layer for each hop'
_NODES = (
    'it takes the statistics of all nodes: train with a norm of each node (LayerNorm(mode="node")) or of running statistics (BatchNorm), '
    'or compute model(x, edge_index) with the whole graph in memory'
)
_PADDED = 'it pads to the largest degree, that of the whole graph: use another aggregation, such as "mean"'
_FIRST = 'it fails where the first node of a chunk has no in-edges: use another aggregation, such as "mean"'

# Where, names, and why not: None, the reason, or a function of the module that returns either.
_TABLE: tuple[tuple[str, str, str | Callable[[Any], str | None] | None], ...] = (
    ('torch.nn', 'Identity Sequential ModuleList Linear GRUCell LSTM Dropout AlphaDropout GroupNorm LayerNorm RMSNorm', None),
    ('torch.nn', 'CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU ReLU ReLU6 RReLU SELU', None),
    ('torch.nn', 'Sigmoid SiLU Softplus Softshrink Softsign Tanh Tanhshrink Threshold', None),
    ('torch.nn', 'BatchNorm1d', _statistics),
    ('torch_geometric.nn', 'Linear MLP JumpingKnowledge BatchNorm DiffGroupNorm MessageNorm', None),
    ('torch_geometric.nn', 'LayerNorm', lambda norm: None if norm.mode == 'node' else _NODES),
    ('torch_geometric.nn', 'InstanceNorm', _statistics),
    ('torch_geometric.nn', 'GraphNorm GraphSizeNorm MeanSubtractionNorm PairNorm', _NODES),
    ('torch_geometric.nn.aggr', 'SumAggregation MeanAggregation MaxAggregation MinAggregation MulAggregation VarAggregation', None),
    ('torch_geometric.nn.aggr', 'StdAggregation SoftmaxAggregation PowerMeanAggregation DegreeScalerAggregation', None),
    ('torch_geometric.nn.aggr', 'MultiAggregation VariancePreservingAggregation', None),
    ('torch_geometric.nn.aggr.fused', 'FusedAggregation', None),
    ('torch_geometric.nn.aggr', 'LCMAggregation LSTMAggregation GRUAggregation SortAggregation', _PADDED),
    ('torch_geometric.nn.aggr', 'MedianAggregation QuantileAggregation', _FIRST),
    ('torch_geometric.nn', 'AGNNConv EdgeConv FeaStConv GATConv GATv2Conv GCNConv GENConv GeneralConv GINConv GraphConv LEConv', None),
    ('torch_geometric.nn', 'MFConv PNAConv ResGatedGraphConv SAGEConv SimpleConv SuperGATConv TransformerConv WLConvContinuous', None),
    ('torch_geometric.nn', 'CGConv', lambda conv: _EDGES if conv.dim else None),
    ('torch_geometric.nn', 'ClusterGCNConv', lambda conv: None if conv.add_self_loops else 'use add_self_loops=True'),
    ('torch_geometric.nn', 'FiLMConv', lambda conv: None if conv.num_relations == 1 else _EDGES),
    ('torch_geometric.nn', 'GatedGraphConv', lambda conv: None if conv.num_layers == 1 else _HOPS),
    ('torch_geometric.nn', 'APPNP ARMAConv ChebConv DNAConv EGConv FAConv GCN2Conv LGConv MixHopConv SGConv SSGConv TAGConv', _HOPS),
    ('torch_geometric.nn.conv.gen_conv', 'MLP', None),
)

# Functions that compute each value by itself.
_FUNCTIONS = 'celu elu gelu hardswish leaky_relu logsigmoid mish relu relu6 selu sigmoid silu softplus softsign swish tanh'


def pyg(name: str = 'torch_geometric.nn') -> Any:
    """A module of torch_geometric; None where that was not imported, so that nothing can be of its types."""
    return importlib.import_module(name) if 'torch_geometric' in sys.modules else None


@functools.cache
def _table(with_pyg: bool) -> dict[type, Any]:
    found = {}
    for where, names, why in _TABLE:
        place = importlib.import_module(where) if with_pyg or where == 'torch.nn' else None
        found.update({getattr(place, name): why for name in names.split() if hasattr(place, name)})  # some versions lack some
    return found


@functools.cache
def _functions() -> list[Any]:
    places = torch, torch.nn.functional, torch.Tensor, pyg('torch_geometric.nn.resolver')
    return [getattr(place, name) for place in places for name in _FUNCTIONS.split() if hasattr(place, name)]


def why_not(module: Any) -> str | None:
    """Why the rows of a module cannot be computed for some nodes at a time, where its type and settings show that."""
    if any(torch.nn.parameter.is_lazy(parameter) for parameter in module.parameters(recurse=False)):
        return 'its parameters have no values yet: load its weights, or call the model once'
    if pyg() and isinstance(module, pyg().MessagePassing):
        if any(getattr(module, name, None) is not None for name in ('edge_dim', 'in_edge_channels', 'lin_edge')):
            return _EDGES
        if module.flow != 'source_to_target':
            return f'flow={module.flow!r} takes out-neighbours: make a dataset of the reversed edges, and set flow="source_to_target"'
        if getattr(module, '_cached_edge_index', None) is not None:
            return 'it computes with a graph that it has cached: set its _cached_edge_index to None'
        if getattr(module, 'cached', False) and not isinstance(module, pyg().GCNConv):
            return 'it would cache a chunk of the graph: use cached=False'
    why = _table(pyg() is not None).get(type(module))
    return why(module) if callable(why) else why


def why_changed(module: Any) -> str | None:
    """Why a module may compute something else than its type does."""
    for name, value in vars(module).items():
        if name.endswith(('forward_hooks', 'forward_pre_hooks')) and value:
            return 'it has hooks'
        if callable(value) and name != 'dense_combine' and not any(value is function for function in _functions()):
            return f'its {name} is a function of its own'
    for name in '__call__', 'forward':
        if getattr(type(module), name).__module__.partition('.')[0] not in ('torch', 'torch_geometric'):
            return f'its {name} is of its own'
    return None


def is_known(module: Any) -> bool:
    """Whether the table has the module's type."""
    return type(module) in _table(pyg() is not None)
