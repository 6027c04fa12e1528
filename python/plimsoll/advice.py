"""Changes to a training script that lower its memory, and what each of them saves.

The loaders and the model are found among the variables of the running script. Sizes come from the estimate for PyTorch Geometric
(``plimsoll plan --for pyg``) for a graph of the same shape; memory of worker processes that load no graph is measured.
"""
from __future__ import annotations

import functools
import gc
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from . import command

MIB = 1 << 20

_LOADERS = frozenset({'DataLoader', 'NeighborLoader', 'GraphLoader'})
_CONVOLUTIONS = {'SAGEConv': 'sage', 'GCNConv': 'gcn', 'GATConv': 'gat', 'GATv2Conv': 'gat', 'GINConv': 'gin'}
_LIBRARIES = frozenset({'torch', 'torch_geometric', 'lightning', 'pytorch_lightning', 'plimsoll', 'importlib', 'threading', 'runpy'})
_STEP_FILES = ('torch/nn/modules/module.py', 'torch/_tensor.py', 'torch/utils/data/dataloader.py', 'torch/optim/optimizer.py')
# Accounts of the estimate that plimsoll's loader replaces by its own memory.
_LOADING = frozenset({'x', 'y and splits', 'edge_index', 'colptr and row', 'sorted edges', 'sort of the edges', 'workers',
                      'heap held by forks', 'batches ahead', 'pinned batches'})


@dataclass(frozen=True)
class Graph:
    """The shape of the graph that a loader draws from."""

    num_nodes: int
    num_edges: int
    num_features: int
    num_outputs: int = 0  # unknown
    sorted: bool = False  # by column, so that no loader sorts it
    mapped: bool = False  # features are pages of a file


@dataclass(frozen=True)
class Loader:
    """The arguments of one loader."""

    name: str
    ours: bool
    batch_size: int
    num_neighbors: tuple[int, ...] = ()
    num_workers: int = 0
    prefetch_factor: int = 2
    persistent_workers: bool = False
    pin_memory: bool = False
    sampler: int = 0  # loaders with the same number share a sampler
    graph: Graph | None = None

    def __str__(self) -> str:
        words = [f'batch_size={self.batch_size}']
        if self.num_neighbors:
            words.append(f'num_neighbors={list(self.num_neighbors)}')
        if self.num_workers > 0:
            words += [f'num_workers={self.num_workers}', f'prefetch_factor={self.prefetch_factor}',
                      f'persistent_workers={self.persistent_workers}']
        if self.pin_memory:
            words.append('pin_memory=True')
        return f'{self.name}({", ".join(words)})'


@dataclass(frozen=True)
class Model:
    """The layers of a model, as far as its memory depends on them."""

    name: str
    kind: str
    hidden: int
    num_outputs: int = 0
    num_layers: int = 0
    heads: int = 1
    norm: str = 'none'
    dropout: float = 0.0
    on_gpu: bool = False

    def __str__(self) -> str:
        heads = f', {self.heads} heads' if self.heads > 1 else ''
        return f'{self.name}: {self.kind}, {self.num_layers} layers, hidden {self.hidden}{heads}'


@dataclass(frozen=True)
class Script:
    """What was found of a running script."""

    loaders: tuple[Loader, ...] = ()
    model: Model | None = None
    training: bool = False  # steps have begun
    sorting: bool = False  # a loader is being made

    @property
    def loader(self) -> Loader | None:
        """The loader in use: of those that draw from a graph, the innermost."""
        return next((one for one in self.loaders if one.graph and one.num_neighbors), self.loaders[0] if self.loaders else None)


@dataclass(frozen=True)
class Suggestion:
    """One change, what it saves, and the peak that is expected with it."""

    change: str
    saves_mb: float | None  # None: not estimated
    peak_mb: float | None = None
    fits: bool | None = None
    same_result: bool = True

    def __str__(self) -> str:
        notes = []
        if self.peak_mb is not None:
            fits = '' if self.fits is None else ', fits' if self.fits else ', does not fit yet'
            notes.append(f'then {self.peak_mb:.1f}MB{fits}')
        if not self.same_result:
            notes.append('trains something else')
        saves = 'not estimated' if self.saves_mb is None else f'saves {self.saves_mb:.1f}MB'
        return f'{saves}: {self.change}' + (f' ({"; ".join(notes)})' if notes else '')


@dataclass(frozen=True)
class Advice:
    """Suggestions, the largest saving first, and the figures that they start from."""

    suggestions: tuple[Suggestion, ...] = ()
    now_mb: float | None = None  # by the estimate, in the phase that the script is in
    phase: str = ''
    peak_mb: float | None = None  # in the phase that takes most
    peak_phase: str = ''
    ask_mb: float | None = None
    why_none: str = ''


def _is(value: object, names: Iterable[str]) -> bool:
    return any(base.__name__ in names for base in type(value).__mro__)


def _get(value: object, name: str, default: Any = None) -> Any:
    """An attribute of an object that may be half made or raise anything."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def _count(value: object, default: int = 0) -> int:
    return value if isinstance(value, int) and value >= 0 else default


def _locals(frame: FrameType) -> list[tuple[str, Any]]:
    """The local variables of a frame, which may be running in another thread.

    Before Python 3.13 the frame keeps the dictionary made for this, and with it what the variables held: it is emptied again.
    """
    seen = frame.f_locals
    found = list(seen.items())
    if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(seen) <= 3:
        seen.clear()
    return found


def _visible(frame: FrameType) -> Iterator[tuple[str, Any]]:
    """Variables of a frame, the members of small containers, and the attributes of `self`."""
    for name, value in _locals(frame):
        yield name, value
        if name == 'self':
            yield from ((f'self.{key}', one) for key, one in list(_get(value, '__dict__', {}).items()))
        elif isinstance(value, (list, tuple)) and len(value) <= 16:
            yield from ((f'{name}[{index}]', one) for index, one in enumerate(value))
        elif isinstance(value, dict) and len(value) <= 16:
            yield from ((f'{name}[{key!r}]', one) for key, one in list(value.items()))


def _mapped(tensor: object) -> bool:
    """Whether a tensor's memory is a mapped file."""
    try:
        address = int(tensor.data_ptr())  # type: ignore[attr-defined]
        with open('/proc/self/maps', encoding='utf-8', errors='replace') as maps:
            for line in maps:
                fields = line.split(maxsplit=5)
                first, last = (int(text, 16) for text in fields[0].split('-'))
                if first <= address < last:
                    return fields[4] != '0' and not fields[5].startswith(('/dev/', '/memfd:', '/SYSV'))
    except Exception:
        pass
    return False


def _graph(data: object) -> Graph | None:
    """The shape of a PyG `Data` or of a plimsoll dataset; None for anything else, such as HeteroData."""
    nodes, edges, features = (_get(data, name) for name in ('num_nodes', 'num_edges', 'num_features'))
    if not all(isinstance(value, int) for value in (nodes, edges, features)) or nodes < 1:
        return None
    outputs = _count(_get(data, 'num_classes')) or _count(_get(data, 'num_targets'))
    return Graph(nodes, min(edges, nodes * (nodes - 1)), features, outputs,
                 sorted=_get(data, 'edge_index') is None, mapped=_mapped(_get(data, 'x')))


def _fanout(value: object) -> tuple[int, ...]:
    """`num_neighbors` as numbers; empty for a dictionary by edge type."""
    values = _get(value, 'values', value)
    return tuple(int(one) for one in values) if isinstance(values, (list, tuple)) else ()


def _loader(name: str, arguments: Mapping[str, Any] | object, ours: bool = False) -> Loader:
    """Reads the arguments of a loader, or of one that is being made, from its attributes or from a mapping."""
    get = functools.partial(arguments.get) if isinstance(arguments, Mapping) else functools.partial(_get, arguments)
    sampler = get('node_sampler') or get('neighbor_sampler')
    fanout = get('num_neighbors')
    return Loader(name, ours, batch_size=_count(get('batch_size'), 1),
                  num_neighbors=_fanout(fanout if fanout is not None else _get(sampler, 'num_neighbors')),
                  num_workers=0 if ours else _count(get('num_workers')), prefetch_factor=_count(get('prefetch_factor'), 2) or 2,
                  persistent_workers=bool(get('persistent_workers')), pin_memory=bool(get('pin_memory')),
                  sampler=id(sampler if sampler is not None else arguments), graph=_graph(get('data')))


def _width(layer: Any) -> int:
    """Output channels of a convolution; GIN's are those of its inner network."""
    width = _count(_get(layer, 'out_channels'))
    if width == 0:
        inner = [_count(_get(one, 'out_features')) or _count(_get(one, 'out_channels')) for one in layer.modules()]
        width = next((one for one in reversed(inner) if one), 0)
    return width


def _model(name: str, module: Any) -> Model | None:
    """Reads the layers of a model; None without a convolution that the estimate knows."""
    try:
        parts = list(module.modules())
        on_gpu = any(one.device.type != 'cpu' for one in module.parameters())
    except Exception:
        return None
    layers = [one for one in parts if type(one).__name__ in _CONVOLUTIONS]
    if not layers or not _width(layers[0]):
        return None
    kind = _CONVOLUTIONS[type(layers[0]).__name__]
    heads = max(_count(_get(layers[0], 'heads'), 1), 1)
    names = [type(one).__name__ for one in parts]
    norm = 'batch' if any('BatchNorm' in one for one in names) else 'layer' if any('LayerNorm' in one for one in names) else 'none'
    dropout = next((float(_get(one, 'p', 0.0)) for one in parts if type(one).__name__ == 'Dropout'), 0.0)
    hidden = _width(layers[0]) * (heads if _get(layers[0], 'concat', True) else 1)
    return Model(name, kind, hidden, num_outputs=_width(layers[-1]), num_layers=len(layers), heads=heads, norm=norm,
                 dropout=dropout if 0 < dropout < 1 else 0.0, on_gpu=on_gpu)


def _being_made(frame: FrameType) -> tuple[int, Loader] | None:
    """A NeighborLoader whose constructor is still sorting edges, and its id."""
    if frame.f_code.co_name != '__init__':
        return None
    found = dict(_locals(frame))
    if not _is(found.get('self'), _LOADERS) or not {'data', 'num_neighbors', 'kwargs'} <= found.keys():
        return None
    return id(found['self']), _loader(type(found['self']).__name__, {**found['kwargs'], **found})


def _alive() -> list[object]:
    """All loaders that exist, also those that no variable of a frame shows. Takes some 50 ms."""
    kinds: dict[type, bool] = {}
    found = []
    for value in gc.get_objects():
        kind = type(value)
        if kind not in kinds:
            kinds[kind] = any(base.__name__ in _LOADERS for base in kind.__mro__)
        if kinds[kind]:
            found.append(value)
    return found


def find(frames: Iterable[FrameType]) -> Script:
    """Finds loaders and the model in `frames`, which come innermost first."""
    loaders: dict[int, tuple[str, object]] = {}
    models: dict[int, tuple[str, object]] = {}
    made: dict[int, Loader] = {}
    seen: set[int] = set()
    training = False
    for frame in frames:
        training |= frame.f_code.co_filename.endswith(_STEP_FILES)
        unfinished = _being_made(frame)
        if unfinished is not None:
            made[unfinished[0]] = unfinished[1]
        if frame.f_globals.get('__name__', '').split('.')[0] in _LIBRARIES:
            continue
        variables = list(_visible(frame))
        if id(frame.f_globals) not in seen:
            seen.add(id(frame.f_globals))
            variables += list(frame.f_globals.items())
        for name, value in variables:
            # The name in an outer frame says more than that of a parameter; the order stays that of the first.
            if _is(value, _LOADERS):
                loaders[id(value)] = (name, value)
            elif _is(value, ('Module',)):
                models[id(value)] = (name, value)
    for value in _alive():
        loaders.setdefault(id(value), (type(value).__name__, value))
    read = [_loader(name, value, ours=type(value).__module__.startswith('plimsoll'))
            for key, (name, value) in loaders.items() if key not in made]
    known = [one for one in (_model(name, value) for name, value in models.values()) if one is not None]
    return Script((*made.values(), *read), max(known, key=lambda one: one.num_layers, default=None), training, bool(made))


@functools.lru_cache(maxsize=128)
def _estimate(options: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    return command.run('plan', 'free', options=dict(options))[-1]


def estimate(options: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of ``plimsoll plan free --for pyg --json``, without regard to the memory here; asked once for the same options."""
    return _estimate(tuple(sorted({**options, 'for': 'pyg', 'memory': '1T'}.items())))


def _options(script: Script, loader: Loader, graph: Graph, gpu_memory: int) -> dict[str, Any]:
    model = script.model or Model('', 'sage', 64, 64)
    samplers = {one.sampler for one in script.loaders if one.graph and one.num_neighbors}
    options: dict[str, Any] = {
        'nodes': graph.num_nodes, 'edges': graph.num_edges, 'features': graph.num_features,
        'classes': max(graph.num_outputs or model.num_outputs, 1), 'model': model.kind, 'hidden': model.hidden, 'norm': model.norm,
        'dropout': model.dropout, 'fanout': ','.join(map(str, loader.num_neighbors)), 'batch': loader.batch_size,
        'graph': 'csc' if graph.sorted or loader.ours else 'edge_index', 'mapped_features': graph.mapped or loader.ours,
        'loaders': 1 if loader.ours else min(max(len(samplers), 1), 3), 'workers': min(loader.num_workers, 1024),
        'prefetch': loader.prefetch_factor, 'persistent_workers': loader.persistent_workers, 'pin_memory': loader.pin_memory}
    if script.sorting and script.training:
        options['late_loaders'] = True
    if model.kind == 'gat':
        options['heads'] = model.heads
    if gpu_memory > 0:
        options['gpu_memory'] = gpu_memory
    return options


@dataclass(frozen=True)
class _Estimates:
    """Compares the estimate of a changed script with that of the script as it is."""

    answer: Mapping[str, Any]
    limit: int
    phase: str  # that counts for what is saved; '': the one with the peak
    ours: bool
    on_gpu: bool
    found: list[Suggestion] = field(default_factory=list)

    def need(self, answer: Mapping[str, Any], phase: str, ours: bool = False) -> float:
        """Bytes in a phase, or at the peak; with `ours`, under plimsoll's loader instead of PyG's."""
        if self.on_gpu:
            return float(answer['gpu']['total_bytes'])
        ours = ours or self.ours
        phases = dict.fromkeys(answer['phases'], 0.0)
        for account in answer['accounts']:
            if not account['reclaimable'] and not (ours and account['name'] in _LOADING):
                for name, size in account['phases'].items():
                    phases[name] += size
        return (phases[phase] if phase else max(phases.values())) + (answer['plimsoll_minimum_bytes'] if ours else 0)

    def fits(self, answer: Mapping[str, Any]) -> bool:
        return self.need(answer, '') <= self.limit

    def add(self, change: str, changed: Mapping[str, Any], same_result: bool = True, ours: bool = False) -> None:
        saved = self.need(self.answer, self.phase) - self.need(changed, self.phase, ours)
        peak = self.need(changed, '', ours)
        if saved >= MIB:
            self.found.append(Suggestion(change, saved / MIB, peak / MIB, peak <= self.limit if self.limit > 0 else None, same_result))


def _changes(loader: Loader, options: Mapping[str, Any]) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """Changes to the script: the words for it, whether the training stays the same, and the options that differ."""
    if options['graph'] == 'edge_index':
        yield ('edges sorted by target beforehand and saved as colptr and row, one sampler for all loaders (is_sorted=True)', True,
               {'graph': 'csc'})
    if not options['mapped_features']:
        yield "features mapped from a file: torch.from_numpy(numpy.load('x.npy', mmap_mode='c'))", True, {'mapped_features': True}
    if loader.num_workers > 0:
        yield f'num_workers=0 instead of {loader.num_workers}', True, {'workers': 0}
    if loader.num_workers > 1:
        yield f'num_workers=1 instead of {loader.num_workers}', True, {'workers': 1}
    if loader.num_workers > 0 and loader.persistent_workers:
        yield 'persistent_workers=False', True, {'persistent_workers': False}
    if loader.num_workers > 0 and loader.prefetch_factor > 1:
        yield f'prefetch_factor=1 instead of {loader.prefetch_factor}', True, {'prefetch': 1}
    if loader.num_workers > 0 and loader.pin_memory and 'gpu_memory' in options:
        yield 'pin_memory=False', True, {'pin_memory': False}
    half = tuple(one if one == 1 else max(one // 2, 1) if one > 0 else 10 for one in loader.num_neighbors)
    if half != loader.num_neighbors:
        yield (f'num_neighbors={list(half)} instead of {list(loader.num_neighbors)}', False, {'fanout': ','.join(map(str, half))})
    if 'gpu_memory' in options:
        yield "torch.autocast('cuda', torch.bfloat16) around the forward pass", False, {'precision': 'bf16'}


def _add_smaller_batch(options: Mapping[str, Any], estimates: _Estimates) -> None:
    """The largest part of a batch, by halves down to a sixteenth, that fits; else the half."""
    sizes = [(parts, options['batch'] // parts) for parts in (2, 4, 8, 16) if options['batch'] >= parts]
    if not sizes:
        return
    fitting = (size for size in sizes if estimates.fits(estimate({**options, 'batch': size[1]})))
    parts, batch = next(fitting, sizes[0]) if estimates.limit > 0 else sizes[0]
    estimates.add(f'batch_size={batch} with optimizer.step() every {parts} batches and loss / {parts}: the same gradient up to rounding, '
                  'without BatchNorm', estimate({**options, 'batch': batch}))


def _add_one_sampler(options: Mapping[str, Any], estimates: _Estimates) -> None:
    """One sampler for all loaders: the edges are sorted once, and everything else stays."""
    alone = {one['name']: one for one in estimate({**options, 'loaders': 1})['accounts']}
    accounts = [alone[one['name']] if one['name'] in ('sorted edges', 'sort of the edges') else one for one in estimates.answer['accounts']]
    estimates.add(f'one sampler for all {options["loaders"]} loaders, so that edges are sorted once: NeighborLoader(…, '
                  'neighbor_sampler=train_loader.node_sampler)', {**estimates.answer, 'accounts': accounts})


def _ours(loader: Loader) -> str:
    return (f'plimsoll.NeighborLoader(plimsoll.open(…), num_neighbors={list(loader.num_neighbors)}, batch_size={loader.batch_size}, …): '
            'graph and features stay on disk, no workers')


def general(script: Script, on_gpu: bool = False, expandable: bool = False) -> tuple[Suggestion, ...]:
    """Changes that usually help, where no estimate is possible, in the order of their usual effect.

    Args:
        script: what `find` found.
        on_gpu: the GPU's memory ran out, or the model computes there.
        expandable: torch's expandable segments are on already, or would not help.
    """
    loader = script.loader
    batch = loader.batch_size if loader is not None and loader.batch_size > 1 else 0
    half = f'batch_size={batch // 2} instead of {batch}' if batch else 'half the batch_size'
    changes = [(f'{half}, optimizer.step() every 2 batches and loss / 2: the same gradient up to rounding, without BatchNorm', True),
               ('micro-batches: each batch in parts, backward() for each part, one optimizer.step()', True)]
    if on_gpu:
        changes.append(("torch.autocast('cuda', torch.bfloat16) around the forward pass and the loss", False))
    changes += [('torch.utils.checkpoint.checkpoint(layer, *inputs, use_reentrant=False): activations are computed again', True),
                ('total += loss.item() and losses.append(loss.item()): a loss that is kept as a tensor keeps its activations', True)]
    if loader is None or loader.num_workers > 0:
        workers = f' instead of {loader.num_workers}' if loader is not None else ', or fewer workers'
        changes.append((f'num_workers=0{workers}: each worker holds batches and private copies of pages', True))
    if on_gpu and not expandable:
        changes.append(('PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True in the environment', True))
    return tuple(Suggestion(change, None, same_result=same_result) for change, same_result in changes)


def suggest(script: Script, limit: int = 0, gpu_memory: int = 0, on_gpu: bool = False) -> Advice:
    """Estimates what each change to the script would save.

    Args:
        script: what `find` found.
        limit: bytes of memory that the job may hold (of the GPU, with `on_gpu`); 0 if unknown.
        gpu_memory: bytes of the GPU that computes; 0 without.
        on_gpu: the GPU's memory ran out, not the host's.
    """
    loader = script.loader
    if loader is None:
        return Advice(why_none='no loader was found among the variables of the script')
    if loader.graph is None or not loader.num_neighbors:
        return Advice(why_none=f'{loader.name} draws no neighbours from one graph, so there is no estimate for it')
    options = _options(script, loader, loader.graph, gpu_memory)
    answer = estimate(options)
    phase = ('evaluate' if script.training else 'sort') if script.sorting else 'train' if script.training else ''
    estimates = _Estimates(answer, limit, phase, loader.ours, on_gpu)
    for change, same_result, differs in _changes(loader, options):
        estimates.add(change, estimate({**options, **differs}), same_result)
    _add_smaller_batch(options, estimates)
    if options['loaders'] > 1 and options['graph'] == 'edge_index':
        _add_one_sampler(options, estimates)
    if not loader.ours and 'plimsoll_minimum_bytes' in answer and not on_gpu:
        estimates.add(_ours(loader), answer, ours=True)
    found = tuple(sorted(estimates.found, key=lambda one: -(one.saves_mb or 0)))
    return Advice(found, estimates.need(answer, phase) / MIB, 'GPU' if on_gpu else phase or answer['peak_phase'],
                  estimates.need(answer, '') / MIB, answer['peak_phase'], None if loader.ours else answer['ask_bytes'] / MIB)
