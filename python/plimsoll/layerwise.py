"""Exact inference with PyTorch models: one layer after the other over all nodes, with the rows between layers in files.

    features.npy ──layer 0──► rows 0 ──layer 1──► rows 1 … ──► result          rows i: (num_nodes, width i) float32, on disk

A pass takes the nodes in their order, in chunks of bounded size. The in-edges of a chunk are one piece of indices.npy, which is read from
its beginning to its end. The rows of the in-neighbours are gathered from the file of the layer before. Nothing is drawn.

A model is divided into layers where its own code is known (known_layers): everything else is refused, or its user states the layers. As a
second line, each layer computes some nodes among two different sets of others first: their rows must be the same.
"""
from __future__ import annotations

import bisect
import contextlib
import errno
import functools
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple

import torch

from . import _core, command
from .dataset import Dataset, checked
from .errors import DiskSpaceError, MemoryLineError, UsageError
from .known_layers import is_known, pyg, why_changed, why_not
from .limits import size_of
from .mapped import Mapped, Stored

__all__ = ['inference']

_logger = logging.getLogger('plimsoll')

_MARGIN_MIB = 16  # that a process grows by between two calls
_lock = threading.RLock()  # for one inference at a time: they would share the line, and _Calls patches classes


def _forget_lock() -> None:
    """Replaces the lock in a forked child, where a thread that holds it does not exist."""
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_lock)

# layer(x, edge_index, size): the new rows of the first `size` nodes.
_Layer = Callable[[Any, Any, int], Any]

_CHUNK_BYTES = 512 << 20  # beyond that a chunk gains nothing
_IDS_BYTES = 64  # a node or an edge: its ids, and those of sorting it
_ROW_COPIES = 6  # rows that a layer makes for an edge: the gathered row, messages, and their intermediate results
_FIRST_PART = 16  # the first chunk of a layer is a 16th: it shows what the layer takes
_ONCE_BYTES = 8 << 20  # that a first chunk takes for other reasons, such as a library's own buffers

# A graph of 8 nodes, of which the first 4 have all of their in-edges; and edges into the others, one of which has the largest degree.
_PROBE_EDGES = ((4, 5, 6, 0, 7, 1, 4, 2, 5), (0, 0, 0, 1, 1, 2, 2, 3, 3))
_PROBE_OTHERS = ((0, 1, 2, 3, 3, 0, 1, 2, 3, 4, 5, 6), (4, 5, 6, 7, 7, 8, 8, 8, 8, 8, 8, 8))
_PROBE_SCALES = (1, 0.1, 1, 10, 1, 3, 0.3, 1, 1)
_PROBES = 3
_PROBE_LIMIT = 1e-3  # of the largest value of a row

_STATE = (
    'If yours takes no more than a node and its in-neighbours, state the layers: each is a module or a function of x and edge_index for '
    'one hop, and is called as it is, such as [lambda x, edge_index: model.convs[0](x, edge_index).relu(), model.convs[1]]'
)


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

    model:    a torch_geometric BasicGNN (GraphSAGE, GCN, GAT, GIN, PNA, …) with the class's own code, or a list of layers. A layer is
              called with the rows and the edge_index of some nodes and all of their in-neighbours, and returns a row for each row: a
              module, or any function such as `lambda x, edge_index: conv(x, edge_index).relu()`. It sees the rows of the layer before;
              rows that a later layer needs too, such as those of a residual, it returns as columns beside its own.
    memory:   the line of the whole process, such as "4G"; default: that of the dataset's loaders, or the job's limit.
    out:      a .npy file for the result. By default its file is deleted when the tensor is.
    scratch:  a directory for the rows between layers; default: where `out` or the dataset is.
    device:   where the layers compute; default: where the model is.

    The result is the file, mapped: only what is read of it takes memory. A file `out` must not be made shorter while the tensor is in use.
    The model computes in eval mode and without gradients, and is left in the mode it was in. What chunks of nodes would change is refused,
    such as norms over all nodes. Loaders of the dataset give their memory back until their next batch.

        out = plimsoll.inference(model, plimsoll.open('cora'), memory='1G')
        accuracy = (out[test].argmax(-1) == y[test]).float().mean()
    """
    checked(dataset)
    if dataset.num_features == 0:
        raise UsageError(f'{dataset.path} has no features to compute with')
    if getattr(model, 'supports_edge_weight', False) and any(name == 'edge_weight.npy' for name, *_ in dataset.files()):
        command.warn('inference computes without edge_weight, which the dataset has: a model that was trained with it gives other results')
    with _lock:
        layers, roots = _layers_of(model)
        place = _Place(roots, device)
        with torch.no_grad(), _Calls() as calls:
            widths = [dataset.num_features]
            for number, layer in enumerate(layers):
                widths.append(_probe(layer, number, widths[-1], calls, place))
            line = _line(dataset, memory)
            return _run(dataset, layers, widths, calls, place, line, out, scratch)


def _layers_of(model: Any) -> tuple[list[_Layer], list[Any]]:
    """The layers, and the modules that they are made of as far as these can be seen."""
    if _is_basic(model):
        _refuse_unknown(model)
        return [_basic_layer(model, number) for number in range(model.num_layers)], [model]
    if not isinstance(model, (list, tuple, torch.nn.ModuleList)) or len(model) == 0 or not all(callable(layer) for layer in model):
        inside = next((name for name in ('_orig_mod', 'module') if _is_basic(getattr(model, name, None))), None)
        raise TypeError(
            f"model is {type(model).__name__}; it must be a BasicGNN of torch_geometric, or a list of its layers, each a callable of x and "
            'edge_index, such as [lambda x, edge_index: model.conv1(x, edge_index).relu(), model.conv2]'
            + (f': give model.{inside}' if inside else '')
        )
    return [_called(layer) for layer in model], [layer for layer in model if isinstance(layer, torch.nn.Module)]


def _is_basic(model: Any) -> bool:
    basic = pyg('torch_geometric.nn.models.basic_gnn')
    return basic is not None and isinstance(model, basic.BasicGNN)


def _refuse_unknown(model: Any) -> None:
    """Refuses a model of which it is not known that it computes what _basic_layer does, in chunks."""
    kind = type(model).__name__
    forward = pyg('torch_geometric.nn.models.basic_gnn').BasicGNN.forward
    why = why_changed(model) if type(model).forward is forward else 'its forward is of its own'
    if torch.nn.modules.module._global_forward_hooks or torch.nn.modules.module._global_forward_pre_hooks:
        why = 'there are hooks of all modules'
    elif not len(model.convs) == len(model.norms) == model.num_layers:
        why = f'it has {len(model.convs)} convolutions and {len(model.norms)} norms for {model.num_layers} layers'
    elif hasattr(model, 'jk') and model.jk_mode is None:
        why = 'it has a jk of its own'
    if why is not None:
        raise UsageError(f'{kind} cannot be divided into layers: {why}. {_STATE}')
    for part in ('convs', 'norms', 'act', 'dropout', 'jk', 'lin'):
        root = getattr(model, part, None)
        for path, module in root.named_modules(prefix=part) if isinstance(root, torch.nn.Module) else ():
            why = why_not(module)
            if why is not None:
                raise UsageError(f'{path}, {type(module).__name__}, cannot be computed in chunks of nodes: {why}')
            why = why_changed(module) or (None if is_known(module) else 'its type is not known')
            if why is not None:
                raise UsageError(f'{path}, {type(module).__name__}, is not known to compute in chunks of nodes: {why}. {_STATE}')


def _called(layer: Callable[[Any, Any], Any]) -> _Layer:
    def run(x: Any, edge_index: Any, size: int) -> Any:
        rows = layer(x, edge_index)
        if isinstance(rows, torch.Tensor) and rows.dim() > 0 and len(rows) != len(x):
            raise UsageError(f'a layer returned {_described(rows)} for {len(x)} nodes: it must return one row for each')
        return rows[:size] if isinstance(rows, torch.Tensor) and rows.dim() > 0 else rows

    return run


def _basic_layer(model: Any, number: int) -> _Layer:
    """A layer of BasicGNN.forward. With jumping knowledge of all layers a row has the rows of the layers before in front of its own."""
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
            x = model.dropout(x)
        if joins and number > 0:
            x = torch.cat([before, x], dim=1)
        if joins and is_last:
            x = model.jk(list(x.split(model.hidden_channels, dim=1)))
        return model.lin(x) if is_last and hasattr(model, 'lin') else x

    return run


class _Calls:
    """While it is entered, this thread's calls of modules, also those inside functions, compute in eval mode, and GCNConvs weight edges by
    degrees in the whole graph: in a chunk, in-neighbours lack their own in-edges. Other threads compute as before.
    """

    def __init__(self) -> None:
        self.kinds: set[bool] = set()  # of the GCNConvs called: with self-loops, without
        self._seen: set[Any] = set()
        self._training: set[Any] = set()
        self._thread = threading.get_ident()
        self._forward: Any = None  # GCNConv's own
        self._edge_index: Any = None
        self._weighted: Any = None

    def __enter__(self) -> _Calls:
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(self._before_call)
        if pyg() is not None:
            self._forward = pyg().GCNConv.forward
            pyg().GCNConv.forward = lambda *args, **named: self._gcn(*args, **named)
        return self

    def __exit__(self, *error: object) -> None:
        self._hook.remove()
        if self._forward is not None:
            pyg().GCNConv.forward = self._forward
        for module in self._training:
            module.training = True

    def set_graph(self, edge_index: Any, size: int, roots: Callable[[bool], Any]) -> None:
        """The next chunk. roots(loops): degree^-1/2 of its nodes, counted with self-loops or without."""
        self._edge_index = edge_index
        self._weighted = functools.cache(lambda loops: _weighted(edge_index, size, roots(loops), loops))

    def drop_graph(self) -> None:
        """Lets go of the chunk, whose memory must not count as that of the next."""
        self._edge_index = self._weighted = None

    def _before_call(self, module: Any, args: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread or module in self._seen:
            return
        why = why_not(module)
        if why is not None:
            raise UsageError(f'{type(module).__name__} cannot be computed in chunks of nodes: {why}')
        for part in module.modules():
            if part.training:
                self._training.add(part)
                part.training = False
        self._seen.add(module)

    def _gcn(self, conv: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
        if threading.get_ident() != self._thread or not conv.normalize:
            return self._forward(conv, x, edge_index, edge_weight)
        if edge_weight is not None or edge_index is not self._edge_index:
            raise UsageError('a GCNConv weights edges by degrees in the dataset: call it with the edge_index of its layer alone')
        loops = bool(conv.add_self_loops)
        self.kinds.add(loops)
        conv.normalize = False  # it then takes the weights that it is given
        try:
            return self._forward(conv, x, *self._weighted(loops))
        finally:
            conv.normalize = True


def _weighted(edge_index: Any, size: int, roots: Any, loops: bool) -> tuple[Any, Any]:
    """The edges that a GCNConv sums over, and their weights: with self-loops each node has one, whatever the graph has."""
    source, target = edge_index
    if loops:
        other, own = source != target, torch.arange(size, device=source.device)
        source, target = torch.cat([source[other], own]), torch.cat([target[other], own])
    return torch.stack([source, target]), roots[source] * roots[target]


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


def _probe(layer: _Layer, number: int, width: int, calls: _Calls, place: _Place) -> int:
    """The width of a layer's rows. Refuses a layer that chunks would change: its rows must depend on a node and its in-neighbours alone."""
    edges = torch.tensor(_PROBE_EDGES, device=place.device)
    more = torch.cat([edges, torch.tensor(_PROBE_OTHERS, device=place.device)], dim=1)
    limit = max(_PROBE_LIMIT, 8 * torch.finfo(place.dtype).eps)
    for seed in range(_PROBES):
        drawn = (torch.randn if seed % 2 else torch.rand)((9, width), generator=torch.Generator().manual_seed(seed))
        near = drawn * torch.tensor(_PROBE_SCALES).view(-1, 1)
        far = near.clone()
        far[[2, 3, 8]] = 1000 * (1 + drawn[[2, 3, 8]])  # in-neighbours of neither node 0 nor node 1
        rows = []
        # These two, with other nodes, other rows, other edges and other seeds beside them.
        for x, edge_index, size in ((near[:8], edges, 4), (far, more, 2)):
            x = x.to(place.device, place.dtype)
            calls.set_graph(edge_index, size, lambda loops: x.new_full((9,), 0.5))  # noqa: B023
            found = layer(x.clone(), edge_index, size)
            if not isinstance(found, torch.Tensor) or found.dim() != 2 or found.shape[0] != size or not found.is_floating_point():
                raise UsageError(f'layer {number} returns {_described(found)}; it must return a tensor with one row for each node')
            rows.append(found[:2].float())
        largest = rows[0].abs().nan_to_num(0, 0, 0).amax(dim=1, keepdim=True)
        same = (rows[0] == rows[1]) | ((rows[0] - rows[1]).abs() <= limit * largest) | (rows[0].isnan() & rows[1].isnan())
        if not bool(same.all()):
            raise UsageError(
                f'layer {number}: the row of a node depends on more than the node and its in-neighbours, or on chance, so it cannot be '
                'computed for some nodes at a time. Normalise a node by itself (LayerNorm(mode="node")) or by running statistics '
                '(BatchNorm); give functional.dropout training=False; make each hop a layer; weight edges by degrees with GCNConv'
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
    calls: _Calls,
    place: _Place,
    line: int,
    out: str | os.PathLike[str] | None,
    scratch: str | os.PathLike[str] | None,
) -> Any:
    """All passes. Their files have no names, so that nothing is left of them but the result, however they end."""
    beside = os.path.dirname(os.path.abspath(dataset.path if out is None else out))
    where = beside if scratch is None else os.fspath(scratch)
    memory = _Memory(line)
    memory.check(1 + dataset.max_degree, _edge_bytes(max(widths)))
    _check_disk(dataset, widths, where)
    graph = _Graph(dataset, memory, where)
    rows = Stored.of(dataset, 'features', large=_file_bytes(dataset, widths[0]) > memory.free)
    with _unnamed(where) if out is None else _result(os.path.abspath(out)) as last:
        for loops in calls.kinds:
            graph.roots(loops)
        for number, (layer, width) in enumerate(zip(layers, widths[1:], strict=True)):
            _logger.info('inference: layer %d of %d, %d values a node', number + 1, len(layers), width)
            file = last if number == len(layers) - 1 else _unnamed(where)
            compute = functools.partial(_compute, layer, width, rows, graph, calls, place)
            computed = map(compute, graph.chunks(max(widths[number], width)))
            shape = dataset.num_nodes, width
            offset = _save(file, shape, computed)
            rows = Stored(file, torch.float32, shape, offset, large=_file_bytes(dataset, width) > memory.free)
        return Mapped(os.dup(last.fileno()), torch.float32, shape, offset, writable=True).tensor


def _unnamed(where: str) -> BinaryIO:
    """A file without a name, which ends with this process at the latest."""
    try:
        return tempfile.TemporaryFile(dir=where, prefix='plimsoll-inference-')
    except OSError as error:
        raise _no_place(where, error) from None


@contextlib.contextmanager
def _result(path: str) -> Iterator[BinaryIO]:
    """A file that gets its name when all is written. Before, it has none, or another one where the file system has no unnamed files."""
    folder, name = os.path.split(path)
    partial = os.path.join(folder, f'.{name}.partial-{os.getpid()}')
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, 'it is a directory')
        _remove(partial)
        try:
            with _without_name(folder) as tried:  # now, since computing may take hours
                _give_name(tried, partial)
            _remove(partial)
            file, is_named = _without_name(folder), False
        except OSError:
            file, is_named = open(partial, 'x+b'), True  # a new file: a link that others made there is not followed
    except OSError as error:
        raise UsageError(f'{path}: {error.strerror}; give another file as out=') from None
    try:
        with file:
            yield file
            os.fsync(file.fileno())
            if not is_named:
                _give_name(file, partial)
        os.replace(partial, path)
    finally:
        _remove(partial)


def _without_name(folder: str) -> BinaryIO:
    return open(os.open(folder, os.O_TMPFILE | os.O_RDWR, 0o666), 'w+b')


def _give_name(file: BinaryIO, path: str) -> None:
    os.link(f'/proc/self/fd/{file.fileno()}', path, src_dir_fd=file.fileno(), follow_symlinks=True)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _no_place(where: str, error: OSError) -> UsageError:
    return UsageError(f'{where}: {error.strerror}; give a directory for the rows between layers as scratch=')


def _file_bytes(dataset: Dataset, width: int) -> int:
    return 4 * width * dataset.num_nodes


def _edge_bytes(width: int) -> int:
    """What a layer takes for an edge, or for a node."""
    return _IDS_BYTES + 4 * _ROW_COPIES * width


class _Memory:
    """What the line leaves to this process."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.free = line - _core.sample()['rss_bytes']
        self.budget = min(_CHUNK_BYTES, self.free // 2)  # for a chunk
        self.peak = _core.peak()

    def check(self, items: int, item_bytes: int) -> None:
        """The in-edges of a node cannot be divided: refuses a node with so many items, itself and its in-edges, that does not fit."""
        needed, text = items * item_bytes, _core.size_text
        if needed > self.free:
            raise MemoryLineError(
                f'the line is {text(self.line)}, and this process leaves {text(max(0, self.free))} of it; the node with {items - 1} '
                f'in-edges takes about {text(needed)}: use memory="{-(-(self.line - self.free + needed) // 2**20) + _MARGIN_MIB}M" or more'
            )


class _Pass:
    """What an item, a node or an edge, takes in a pass over all nodes: as estimated, or more where a chunk has shown it.

    The estimate is by the width of rows. It says little of a layer such as attention with many heads, whose messages are wider than its
    rows: so the first two chunks are small ones.
    """

    def __init__(self, memory: _Memory, item_bytes: int, part: int = 1) -> None:
        self.memory = memory
        self.item_bytes = item_bytes
        self._part = part  # the next chunk is such a part of a whole one
        self._begin_chunk()

    def items(self) -> int:
        """The most items of the next chunk."""
        return self.memory.budget // (self.item_bytes * self._part)

    def measure(self, items: int) -> None:
        """After a chunk of so many items, of which nothing is held any more. One that is small, since a node with many in-edges follows,
        says nothing: whatever else the process took meanwhile would count as many times an item's memory.
        """
        if 2 * items >= self.items():
            taken = self.memory.peak.take()[0] - self._before - _ONCE_BYTES
            self.item_bytes, self._part = max(self.item_bytes, -(-taken // items)), max(1, self._part // 4)
        self._begin_chunk()

    def _begin_chunk(self) -> None:
        _core.trim()
        self._before = _core.sample()['anonymous_bytes']
        self.memory.peak.take()


def _check_disk(dataset: Dataset, widths: list[int], where: str) -> None:
    """A pass has the rows of the layer before and its own on the disk."""
    needed = max(_file_bytes(dataset, one + other) for one, other in zip([0, *widths[1:]], widths[1:], strict=False))
    try:
        free = shutil.disk_usage(where).free
    except OSError as error:
        raise _no_place(where, error) from None
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

    def __init__(self, dataset: Dataset, memory: _Memory, where: str) -> None:
        self.num_nodes = dataset.num_nodes
        self.memory = memory
        self.where = where
        self.indptr = Stored.of(dataset, 'indptr')
        self.indices = Stored.of(dataset, 'indices')
        self._roots: dict[bool, Stored] = {}

    def chunks(self, width: int) -> Iterator[_Chunk]:
        """For a layer that computes with rows of that width."""
        for first, stop in self._ranges(_Pass(self.memory, _edge_bytes(width), _FIRST_PART)):
            yield self._chunk(first, stop)

    def _chunk(self, first: int, stop: int) -> _Chunk:
        size = stop - first
        source, target = self._edges(first, stop)
        inside = (source >= first) & (source < stop)
        others, places = source[~inside].unique(return_inverse=True)
        source = source - first
        source[~inside] = places + size
        if len(source) == 0:  # some layers fail without edges: one more node, with an edge to itself
            others, source, target = torch.tensor([first]), torch.tensor([size]), torch.tensor([size])
        return _Chunk(first, stop, others, torch.stack([source, target]))

    def roots(self, loops: bool) -> Stored:
        """degree^-1/2 of every node: of all in-edges, or of those from other nodes and one self-loop."""
        if loops not in self._roots:
            file, shape = _unnamed(self.where), (self.num_nodes,)
            parts = (self._chunk_roots(first, stop, loops) for first, stop in self._ranges(_Pass(self.memory, _IDS_BYTES)))
            self._roots[loops] = Stored(file, torch.float32, shape, _save(file, shape, parts))
        return self._roots[loops]

    def _chunk_roots(self, first: int, stop: int, loops: bool) -> Any:
        source, target = self._edges(first, stop)
        if loops:
            target = target[source != target + first]
        degree = torch.bincount(target, minlength=stop - first) + loops
        return degree.float().pow(-0.5).masked_fill_(degree == 0, 0.0)

    def _ranges(self, costs: _Pass) -> Iterator[tuple[int, int]]:
        """Nodes first to stop, so many that they and their in-edges stay within the budget. When the next are asked for, nothing of those
        before may be held: what is measured would include it.
        """
        first = before = 0
        while first < self.num_nodes:
            most = before + costs.items()
            ahead = range(first + 1, self.num_nodes + 1)
            stop = first + max(1, bisect.bisect_right(ahead, most, key=lambda node: node + self._begin(node)))
            after = stop + self._begin(stop)
            if after > most:
                self.memory.check(after - before, costs.item_bytes)
            yield first, stop
            costs.measure(after - before)
            first, before = stop, after

    def _begin(self, node: int) -> int:
        """Where the in-edges of a node begin."""
        return int(self.indptr.read(node, node + 1))

    def _edges(self, first: int, stop: int) -> tuple[Any, Any]:
        """Sources, and targets counted from first."""
        indptr = self.indptr.read(first, stop + 1)
        source = self.indices.read(int(indptr[0]), int(indptr[-1])).long()
        target = torch.repeat_interleave(torch.arange(stop - first), indptr.diff(), output_size=len(source))
        return source, target


def _compute(layer: _Layer, width: int, rows: Stored, graph: _Graph, calls: _Calls, place: _Place, chunk: _Chunk) -> Any:
    """The new rows of a chunk's nodes."""

    def joined(file: Stored) -> Any:
        return file.joined(chunk.first, chunk.stop, chunk.others).to(place.device, place.dtype)

    size = chunk.stop - chunk.first
    edge_index = chunk.edge_index.to(place.device)
    calls.set_graph(edge_index, size, lambda loops: joined(graph.roots(loops)))
    found = layer(joined(rows), edge_index, size)
    calls.drop_graph()
    if tuple(found.shape) != (size, width):
        raise UsageError(f'a layer returned {_described(found)} for {size} nodes, and rows of {width} values before')
    return found.float().cpu()


def _save(file: BinaryIO, shape: tuple[int, ...], parts: Iterator[Any]) -> int:
    """Writes float32 rows that come in parts as a .npy file. Returns where the values begin."""
    from numpy.lib import format

    format.write_array_header_1_0(file, {'descr': '<f4', 'fortran_order': False, 'shape': shape})
    offset = file.tell()
    for part in parts:
        try:
            file.write(part.contiguous().numpy())
            file.flush()
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskSpaceError(f'rows of a layer: {error.strerror}; give another directory as scratch= or out=') from None
            raise
        del part  # its memory must not count as that of the next
    return offset
