"""Exact inference with PyTorch models: one layer after the other over all nodes, with the rows between layers in files.

    features.npy ──layer 0──► rows 0 ──layer 1──► rows 1 … ──► result          rows i: (num_nodes, width i) float32, on disk

A pass takes the nodes in their order, in chunks of bounded size. The in-edges of a chunk are one piece of indices.npy, which is read from
its beginning to its end. The rows of the in-neighbours are gathered from the mapped file of the layer before. Nothing is drawn.
"""
from __future__ import annotations

import bisect
import contextlib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch

from . import _core
from .dataset import Dataset, checked
from .errors import DiskSpaceError, MemoryLineError, UsageError
from .limits import size_of
from .mapped import Mapped

__all__ = ['inference']

_logger = logging.getLogger('plimsoll')

# layer(x, edge_index, size): the new rows of the first `size` nodes.
_Layer = Callable[[Any, Any, int], Any]

_CHUNK_BYTES = 512 << 20  # beyond that a chunk gains nothing
_IDS_BYTES = 64  # a node or an edge: its ids, and those of sorting it
_ROW_COPIES = 6  # rows that a layer makes for an edge: the gathered row, messages, and their intermediate results

# A graph of 8 nodes, of which the first 4 have all of their in-edges; and edges into the others.
_PROBE_EDGES = ((4, 5, 6, 0, 7, 1, 4, 2, 5), (0, 0, 0, 1, 1, 2, 2, 3, 3))
_PROBE_OTHERS = ((0, 1, 2, 3, 3), (4, 5, 6, 7, 7))


def inference(
    model: Any,
    dataset: Dataset,
    *,
    memory: str | int | None = None,
    out: str | os.PathLike[str] | None = None,
    scratch: str | os.PathLike[str] | None = None,
    device: Any = None,
) -> Any:
    """The model's output for every node, with all neighbours and out of core: a float32 tensor, one row a node.

    model:    a torch_geometric BasicGNN (GraphSAGE, GCN, GAT, GIN, PNA, …), or a list of layers. A layer is called with the rows and the
              edge_index of some nodes and all of their in-neighbours, and returns rows: a module of torch_geometric.nn, or any function
              such as `lambda x, edge_index: conv(x, edge_index).relu()`.
    memory:   the line of the whole process, such as "4G"; default: that of the dataset's loaders, or the job's limit.
    out:      a .npy file for the result. By default its file is deleted when the tensor is.
    scratch:  a directory for the rows between layers; default: where `out` or the dataset is.
    device:   where the layers compute; default: where the model is.

    The result is the file, mapped: only what is read of it takes memory. The model computes in eval mode and without gradients, and is
    left in the mode it was in. Loaders of the dataset give their memory back until their next batch.

        out = plimsoll.inference(model, plimsoll.open('cora'), memory='1G')
        accuracy = (out[test].argmax(-1) == y[test]).float().mean()
    """
    checked(dataset)
    if dataset.num_features == 0:
        raise UsageError(f'{dataset.path} has no features to compute with')
    layers, roots = _layers_of(model)
    modules = [module for root in roots for module in root.modules()]
    _refuse_edge_attributes(modules)
    place = _Place(roots, device)
    with torch.no_grad(), _evaluating(roots), _Weights(modules) as weights:
        widths = [dataset.num_features]
        for number, layer in enumerate(layers):
            widths.append(_probe(layer, number, widths[-1], weights, place))
        line = _line(dataset, memory)
        return _run(dataset, layers, widths, weights, place, line, out, scratch)


def _layers_of(model: Any) -> tuple[list[_Layer], list[Any]]:
    """The layers, and the modules that they are made of as far as these can be seen."""
    try:
        from torch_geometric.nn.models.basic_gnn import BasicGNN
    except ImportError:
        BasicGNN = ()
    if isinstance(model, BasicGNN):
        return [_basic_layer(model, number) for number in range(model.num_layers)], [model]
    if not isinstance(model, (list, tuple, torch.nn.ModuleList)) or len(model) == 0 or not all(callable(layer) for layer in model):
        raise TypeError(
            f"model is {type(model).__name__}; it must be a BasicGNN of torch_geometric, or a list of its layers, each a callable of x and "
            'edge_index, such as [lambda x, edge_index: model.conv1(x, edge_index).relu(), model.conv2]'
        )
    return [_called(layer) for layer in model], [layer for layer in model if isinstance(layer, torch.nn.Module)]


def _called(layer: Callable[[Any, Any], Any]) -> _Layer:
    def run(x: Any, edge_index: Any, size: int) -> Any:
        rows = layer(x, edge_index)
        return rows[:size] if isinstance(rows, torch.Tensor) and rows.dim() > 0 else rows

    return run


def _basic_layer(model: Any, number: int) -> _Layer:
    """A layer of a BasicGNN. With jumping knowledge of all layers a row has the rows of the layers before in front of its own."""
    is_last = number == model.num_layers - 1
    joins = hasattr(model, 'jk')

    def run(x: Any, edge_index: Any, size: int) -> Any:
        before = x[:size]
        if joins and number > 0:
            x = x[:, -model.hidden_channels :]
        x = model.convs[number](x, edge_index)[:size]
        if not is_last or model.jk_mode is not None:
            if model.act is not None and model.act_first:
                x = model.act(x)
            x = model.norms[number](x)
            if model.act is not None and not model.act_first:
                x = model.act(x)
        if joins and number > 0:
            x = torch.cat([before, x], dim=1)
        if joins and is_last:
            x = model.jk(list(x.split(model.hidden_channels, dim=1)))
        return model.lin(x) if is_last and hasattr(model, 'lin') else x

    return run


def _refuse_edge_attributes(modules: list[Any]) -> None:
    for module in modules:
        if getattr(module, 'edge_dim', None) is not None:
            raise UsageError(
                f'{type(module).__name__} takes edge attributes (edge_dim={module.edge_dim}), and a dataset has none: compute layer by '
                'layer yourself, with plimsoll.NeighborLoader(dataset, num_neighbors=[-1]) and the attributes of batch.e_id'
            )


@contextlib.contextmanager
def _evaluating(roots: list[Any]) -> Iterator[None]:
    """Eval mode inside, and outside each module's own."""
    before = [(module, module.training) for root in roots for module in root.modules()]
    for root in roots:
        root.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


class _Place:
    """Where the layers compute, and in which type."""

    def __init__(self, roots: list[Any], device: Any) -> None:
        parameters = [parameter for root in roots for parameter in root.parameters() if parameter.is_floating_point()]
        self.dtype = parameters[0].dtype if parameters else torch.float32
        if self.dtype == torch.float64:
            raise UsageError('the model computes in float64, and the rows between layers are float32: use model.float()')
        default = parameters[0].device if parameters else torch.device('cpu')
        self.device = default if device is None else torch.device(device)
        if self.device.type != default.type and parameters:
            raise UsageError(f'device={device!r}, but the model is on {default}: use model.to({device!r})')


class _Weights:
    """GCNConv's edge weights. It would take them from the degrees in the chunk, where in-neighbours lack their own in-edges.

    A GCNConv takes the graph it has cached instead of the one it is given: it gets the chunk there, weighted by the degrees in the whole
    graph. Outside, its cache is as it was.
    """

    def __init__(self, modules: list[Any]) -> None:
        try:
            from torch_geometric.nn import GCNConv
        except ImportError:
            GCNConv = ()
        self.convs = [module for module in modules if isinstance(module, GCNConv) and module.normalize]
        self.kinds = {bool(conv.add_self_loops) for conv in self.convs}

    def __enter__(self) -> _Weights:
        self._before = [conv._cached_edge_index for conv in self.convs]
        return self

    def __exit__(self, *error: object) -> None:
        for conv, before in zip(self.convs, self._before, strict=True):
            conv._cached_edge_index = before

    def set(self, edge_index: Any, size: int, roots: dict[bool, Any]) -> None:
        """For the next chunk, with degree^-1/2 of its nodes, counted with and without self-loops."""
        graphs = {}
        for loops in self.kinds:
            source, target = edge_index
            if loops:
                other, own = source != target, torch.arange(size, device=source.device)
                source, target = torch.cat([source[other], own]), torch.cat([target[other], own])
            graphs[loops] = torch.stack([source, target]), roots[loops][source] * roots[loops][target]
        for conv in self.convs:
            conv._cached_edge_index = graphs[bool(conv.add_self_loops)]


def _probe(layer: _Layer, number: int, width: int, weights: _Weights, place: _Place) -> int:
    """The width of a layer's rows. Refuses a layer that chunks would change: its rows must depend on a node and its in-neighbours alone."""
    x = torch.rand((9, width), generator=torch.Generator().manual_seed(number)).to(place.device, place.dtype)
    edges = torch.tensor(_PROBE_EDGES, device=place.device)
    more = torch.cat([edges, torch.tensor(_PROBE_OTHERS, device=place.device)], dim=1)
    roots = {loops: torch.full((9,), 0.5, device=place.device, dtype=place.dtype) for loops in weights.kinds}
    rows = []
    # Two of the nodes, with other nodes, other edges and other seeds beside them.
    for nodes, edge_index, size in ((8, edges, 4), (9, more, 2)):
        weights.set(edge_index, size, roots)
        found = layer(x[:nodes], edge_index, size)
        if not isinstance(found, torch.Tensor) or found.dim() != 2 or found.shape[0] != size or not found.is_floating_point():
            raise UsageError(f'layer {number} returns {_described(found)}; it must return a tensor with one row of values for each node')
        rows.append(found[:2].float())
    if (rows[0] - rows[1]).abs().max() > 0.01 * rows[0].abs().max():
        raise UsageError(
            f'layer {number}: the row of a node depends on more than the node and its in-neighbours, or on chance, so it cannot be '
            'computed for some nodes at a time. Normalise a node by itself (LayerNorm(mode="node")) or by running statistics (BatchNorm); '
            'give a GCNConv itself, not a function around it; put a model that a function uses into eval mode; make each hop a layer'
        )
    return int(rows[0].shape[1])


def _described(value: Any) -> str:
    return f'a tensor of shape {tuple(value.shape)} and {value.dtype}' if isinstance(value, torch.Tensor) else type(value).__name__


def _line(dataset: Dataset, memory: str | int | None) -> int:
    """The memory line. The dataset's loaders give back what they hold of it."""
    given = size_of(memory)
    shared = dataset._shared() if dataset._shared is not None else None
    if shared is not None:
        given = given or shared.settings['memory'] or 0
        shared.let_go()
    return int(_core.limits(memory=given)['line_bytes'])


def _run(
    dataset: Dataset,
    layers: list[_Layer],
    widths: list[int],
    weights: _Weights,
    place: _Place,
    line: int,
    out: str | os.PathLike[str] | None,
    scratch: str | os.PathLike[str] | None,
) -> Any:
    """All passes. Nothing is left of them but the result."""
    beside = os.path.dirname(os.path.abspath(dataset.path if out is None else out))
    where = beside if scratch is None else os.fspath(scratch)
    free = line - _core.sample()['rss_bytes']
    _check_memory(dataset, widths, line, free)
    graph = _Graph(dataset, min(_CHUNK_BYTES, free // 2))
    rows = Mapped.of(dataset, 'features', large=_file_bytes(dataset, widths[0]) > free)
    with _folder(where) as folder, _folder(where if out is None else beside) as last_folder:
        _check_disk(dataset, widths, where)
        roots = {loops: graph.roots(os.path.join(folder, f'roots-{loops:d}.npy'), loops) for loops in weights.kinds}
        before = ''
        for number, (layer, width) in enumerate(zip(layers, widths[1:], strict=True)):
            _logger.info('inference: layer %d of %d, %d values a node', number + 1, len(layers), width)
            is_last = number == len(layers) - 1
            path = os.path.join(last_folder if is_last else folder, f'rows-{number}.npy')
            chunks = graph.chunks(max(widths[number], width))
            computed = (_compute(layer, width, chunk, rows, roots, weights, place) for chunk in chunks)
            shape = dataset.num_nodes, width
            offset = _save(path, shape, computed)
            rows = Mapped(path, torch.float32, shape, offset, writable=is_last, large=_file_bytes(dataset, width) > free)
            if before:
                os.unlink(before)
            before = path
        if out is not None:
            os.replace(path, out)
        return rows.tensor


def _folder(where: str) -> tempfile.TemporaryDirectory[str]:
    try:
        return tempfile.TemporaryDirectory(prefix='plimsoll-inference-', dir=where, ignore_cleanup_errors=True)
    except OSError as error:
        raise UsageError(f'{where}: {error.strerror}; give a directory for the rows between layers as scratch=') from None


def _file_bytes(dataset: Dataset, width: int) -> int:
    return 4 * width * dataset.num_nodes


def _edge_bytes(width: int) -> int:
    """What a layer takes for an edge, or for a node."""
    return _IDS_BYTES + 4 * _ROW_COPIES * width


def _check_memory(dataset: Dataset, widths: list[int], line: int, free: int) -> None:
    """The in-edges of a node cannot be divided: those of the node with the most must fit."""
    needed = (1 + dataset.max_degree) * _edge_bytes(max(widths))
    if needed > free:
        text = _core.size_text
        raise MemoryLineError(
            f'the line is {text(line)}, of which this process leaves {text(max(0, free))}; the node with {dataset.max_degree} in-edges '
            f'takes about {text(needed)}: use memory={line - free + needed} or more'
        )


def _check_disk(dataset: Dataset, widths: list[int], where: str) -> None:
    """A pass has the rows of the layer before and its own on the disk."""
    needed = max(_file_bytes(dataset, one + other) for one, other in zip([0, *widths[1:]], widths[1:], strict=False))
    free = shutil.disk_usage(where).free
    if needed > free:
        text = _core.size_text
        raise DiskSpaceError(f'rows of layers take {text(needed)}, and {where} has {text(free)}: give another directory as scratch=')


class _Chunk(NamedTuple):
    """Nodes first to stop, in which edges end, and the other nodes in which they begin; edge_index counts them in this order."""

    first: int
    stop: int
    others: Any
    edge_index: Any


class _Graph:
    """The graph on disk, in chunks of nodes with all of their in-edges."""

    def __init__(self, dataset: Dataset, budget: int) -> None:
        self.num_nodes = dataset.num_nodes
        self.budget = budget
        self.indptr = Mapped.of(dataset, 'indptr')
        self.indices = Mapped.of(dataset, 'indices')

    def chunks(self, width: int) -> Iterator[_Chunk]:
        """For layers that compute with rows of that width."""
        for first, stop in self._ranges(_edge_bytes(width)):
            size = stop - first
            source, target = self._edges(first, stop)
            inside = (source >= first) & (source < stop)
            others, places = source[~inside].unique(return_inverse=True)
            source = source - first
            source[~inside] = places + size
            yield _Chunk(first, stop, others, torch.stack([source, target]))

    def roots(self, path: str, loops: bool) -> Mapped:
        """degree^-1/2 of every node: of all in-edges, or of those from other nodes and one self-loop."""

        def parts() -> Iterator[Any]:
            for first, stop in self._ranges(_IDS_BYTES):
                source, target = self._edges(first, stop)
                if loops:
                    target = target[source != target + first]
                degree = torch.bincount(target, minlength=stop - first) + loops
                yield degree.float().pow(-0.5).masked_fill_(degree == 0, 0.0)

        shape = (self.num_nodes,)
        return Mapped(path, torch.float32, shape, _save(path, shape, parts()))

    def _ranges(self, item_bytes: int) -> Iterator[tuple[int, int]]:
        """Nodes first to stop, so many that they and their in-edges stay within the budget."""
        items = self.budget // item_bytes
        first = 0
        while first < self.num_nodes:
            most = first + int(self.indptr.tensor[first]) + items
            ahead = range(first + 1, self.num_nodes + 1)
            stop = first + max(1, bisect.bisect_right(ahead, most, key=lambda node: node + int(self.indptr.tensor[node])))
            yield first, stop
            first = stop

    def _edges(self, first: int, stop: int) -> tuple[Any, Any]:
        """Sources, and targets counted from first."""
        indptr = self.indptr.tensor[first : stop + 1]
        source = self.indices.tensor[int(indptr[0]) : int(indptr[-1])].long()
        target = torch.repeat_interleave(torch.arange(stop - first), indptr.diff(), output_size=len(source))
        self.indices.release()
        self.indptr.release()
        return source, target


def _compute(
    layer: _Layer, width: int, chunk: _Chunk, rows: Mapped, roots: dict[bool, Mapped], weights: _Weights, place: _Place
) -> Any:
    """The new rows of a chunk's nodes."""
    size = chunk.stop - chunk.first
    x = rows.joined(chunk.first, chunk.stop, chunk.others).to(place.device, place.dtype)
    edge_index = chunk.edge_index.to(place.device)
    near = {loops: found.joined(chunk.first, chunk.stop, chunk.others).to(place.device, place.dtype) for loops, found in roots.items()}
    weights.set(edge_index, size, near)
    found = layer(x, edge_index, size)
    if tuple(found.shape) != (size, width):
        raise UsageError(f'a layer returned {_described(found)} for {size} nodes, and rows of {width} values before')
    return found.float().cpu()


def _save(path: str, shape: tuple[int, ...], parts: Iterator[Any]) -> int:
    """Writes float32 rows that come in parts to a .npy file. Returns where the values begin."""
    from numpy.lib import format

    with open(path, 'wb') as file:
        format.write_array_header_1_0(file, {'descr': '<f4', 'fortran_order': False, 'shape': shape})
        offset = file.tell()
        for part in parts:
            file.write(part.contiguous().numpy())
    return offset
