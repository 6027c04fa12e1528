"""Loaders: batches of drawn neighbourhoods, or of whole graphs, as PyTorch Geometric's loaders yield them.

All loaders of a dataset share one loader of the library, with one memory line, one cache and one set of slots. A batch is
a slot: its tensors are that memory, not a copy of it, and the slot is free again when the last of them is gone.
"""
from __future__ import annotations

import difflib
import inspect
import logging
import math
import operator
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

from . import _core, command
from .batches import PlainBatch, Tools
from .dataset import COLUMN_OF, COLUMNS, Dataset, checked, split_name
from .errors import BatchesHeldError, MemoryLineError, UsageError
from .gpu import Transfer
from .guard import Headroom, Shortage
from .integers import IntegerList, address_of
from .limits import size_of
from .shared_loader import Shared

if TYPE_CHECKING:
    from typing_extensions import Unpack  # no dependency: mypy brings it

    from .rehearsal import Estimate

__all__ = ['GraphLoader', 'NeighborLoader', 'PlainBatch']

_logger = logging.getLogger('plimsoll')
_SPLIT_NUMBERS = {'train': 0, 'valid': 1, 'test': 2}

# Arguments of torch's DataLoader that speed up loading there, and their defaults.
_NOT_NEEDED = {
    'num_workers': 0,
    'persistent_workers': False,
    'prefetch_factor': None,
    'pin_memory': False,
    'pin_memory_device': '',
    'worker_init_fn': None,
    'multiprocessing_context': None,
    'timeout': 0,
    'in_order': True,
}
_DROPPED = {'dataset': None, 'collate_fn': None}  # by PyG's loaders too
_DATALOADER = {'sampler': None, 'batch_sampler': None, **_NOT_NEEDED, **_DROPPED}


class DataLoaderArguments(TypedDict, total=False):
    """The same for type checkers and editors."""

    sampler: None
    batch_sampler: None
    num_workers: int
    persistent_workers: bool
    prefetch_factor: int | None
    pin_memory: bool
    pin_memory_device: str
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: Any
    timeout: float
    in_order: bool
    dataset: Any
    collate_fn: Any


_Constructor = TypeVar('_Constructor', bound=Callable[..., None])


def takes_dataloader(init: _Constructor) -> _Constructor:
    """Names the arguments of torch's DataLoader in the signature of a constructor that takes them as `**dataloader`."""
    signature = inspect.signature(init)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    named = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default) for name, default in _DATALOADER.items()]
    init.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    del init.__annotations__['dataloader']  # which Python cannot evaluate
    return init


class StreamLoader:
    """Seeds, epochs and positions: what loaders of nodes, of pairs and of graphs have in common."""

    data: Dataset
    batch_size: int
    shuffle: bool | None
    drop_last: bool
    transform: Callable[[Any], Any] | None
    copy: bool
    device: Any
    memory: str | int | None
    threads: int | None
    x_dtype: Any
    _fanout: tuple[int, ...]
    _times: IntegerList | None = None  # of the seeds
    _padded_times: IntegerList | None = None  # the same, as many as seeds are listed for the ranks
    _copies: bool  # input_nodes are not integers of 64 bits in a row
    _bare = False  # without labels, and the seeds can be replaced: for plimsoll.pyg's sampler
    _input = 'nodes', 'input_nodes'  # what is loaded, and the argument that lists it

    def _terms(self) -> str:
        """The arguments that decide how large a batch is, as messages name them."""
        raise NotImplementedError

    def _smaller(self) -> str:
        """Advice for messages: arguments that make batches smaller."""
        raise NotImplementedError

    def _keep(self, given: dict[str, Any]) -> None:
        """Keeps a constructor's locals() under their names: Lightning makes a loader again from the attributes that have the names of
        its arguments. Refuses and warns of those of torch's DataLoader.
        """
        dataloader = given['dataloader']
        unknown = dataloader.keys() - _DATALOADER.keys()
        if unknown:
            near = difflib.get_close_matches(min(unknown), inspect.signature(type(self)).parameters, n=1)
            raise TypeError(f'{type(self).__name__} has no argument {min(unknown)!r}' + ''.join(f'; did you mean {name}?' for name in near))
        taken = {**given, **_DATALOADER, **dataloader}
        self.__dict__.update((name, value) for name, value in taken.items() if name not in ('self', '__class__', 'dataloader', *_DROPPED))
        what, argument = self._input
        _refuse(
            sampler=(taken['sampler'], None, f'give the {what} as {argument}, with shuffle'),
            batch_sampler=(taken['batch_sampler'], None, f'give the {what} as {argument}, with shuffle and batch_size'),
        )
        names = [name for name, default in {**_NOT_NEEDED, 'filter_per_worker': None}.items() if taken[name] != default]
        if names:
            command.warn(
                f'{", ".join(names)}: not needed and without effect; threads of this process load the batches, and no worker processes run'
            )

    def _shared_settings(self, dataset: Any, replace: bool, **draws: Any) -> dict[str, Any]:
        """Settings of the library's loader, on which all loaders of a dataset must agree."""
        return {
            'memory': size_of(self.memory) or None,
            'threads': self.threads,
            'row_bits': _row_bits(dataset, self.x_dtype),
            'replace': bool(replace),
            **{'weight_attr': '', 'disjoint': False, 'time_attr': '', 'temporal_strategy': 'uniform', **draws},
        }

    def _begin(self, data: Any, input_nodes: Any, settings: dict[str, Any], seed: int | None, generator: Any) -> None:
        """Checks what all loaders take, and joins the dataset's loaders."""
        dataset = checked(data)
        if not isinstance(self.batch_size, int):
            raise TypeError(f'batch_size is {self.batch_size!r}, a {type(self.batch_size).__name__}; give a whole number')
        if self.batch_size < 1:
            raise ValueError(f'batch_size is {self.batch_size!r}; it must be at least 1')
        self._total = dataset.num_graphs or dataset.num_nodes
        self._tools = Tools()
        self._take_input(dataset, input_nodes)
        if seed is not None and not (isinstance(seed, int) and 0 <= seed < 2**64):
            raise ValueError(f'seed is {seed!r}; it must be an integer from 0 to 2**64 - 1')
        self._given_seed = seed
        self._drawn_seed = self._draw_seed(generator) if seed is None else seed
        self._stream: _core.Stream | None = None
        self._serving: object = None  # the token of the iteration that the stream serves
        self._lock = threading.Lock()
        self._epoch = 0
        self._position: tuple[int, int] | None = None  # of the batch after the last one
        self._resumes = False
        self._shared = Shared.of(dataset, settings)
        self._shared.loaders.add(self)
        self._shared.check_fits(self)

    def _take_input(self, dataset: Dataset, input_nodes: Any) -> None:
        """Checks the seeds and counts them."""
        self._split = split_name(input_nodes) if isinstance(input_nodes, str) else None
        self._input_nodes = input_nodes
        self._copies = True
        if self._split is not None:
            self._count, self._by_id = dataset.num_split(self._split), False
        elif input_nodes is None:
            self._count, self._by_id = self._total, True
        else:
            nodes = IntegerList.of(input_nodes, self._total)
            self._count, self._by_id = nodes.count, nodes.by_id
            self._copies = nodes.address != address_of(input_nodes)
            if self._count > 0:
                nodes.check(self._total)
        if self._count == 0:
            raise UsageError(
                'input_nodes names no node'
                if self._split is None
                else f'split {self._split!r} of {dataset.path} is empty: name another, or give a tensor of nodes or graphs'
            )
        if self._times is not None and self._times.count != self._count:
            raise UsageError(f'input_time has {self._times.count} entries, and input_nodes {self._count}: give the time of each seed')

    def _draw_seed(self, generator: Any) -> int:
        torch = self._tools.torch
        if torch is None:
            return int.from_bytes(os.urandom(7), 'little')
        return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())

    @property
    def _seed(self) -> int:
        """Ranks that share a split must draw the same order, whatever their generators: as DistributedSampler, from 0."""
        return 0 if self._given_seed is None and self._world()[1] > 1 else self._drawn_seed

    def _world(self) -> tuple[int, int]:
        """This process's rank and the number of ranks among which the split is divided; a tensor is taken as given."""
        torch = self._tools.torch
        if torch is None or self._split is None or not torch.distributed.is_available() or not torch.distributed.is_initialized():
            return 0, 1
        return torch.distributed.get_rank(), torch.distributed.get_world_size()

    def _settings(self, seed: int, listed: IntegerList | None = None) -> _core._Settings:
        """The stream's settings for the library, of which `seed` is the loader's. A plan needs no list, only its length."""
        rank, ranks = self._world()
        return {
            **self._seeds(listed.address if listed is not None else 0),
            'fanout': self._fanout,
            'batch_size': self.batch_size * ranks,
            'shuffle': bool(self.shuffle),
            'share': rank,
            'num_shares': ranks,
            'seed': self._seed if self._seed != seed else None,
            'no_labels': self._bare,
        }

    def _seeds(self, address: int) -> _core._Seeds:
        """The seeds as the library reads them."""
        split, count = self._split, self._padded_count()
        if split is not None and self._reads_seeds():
            return {'source': repr(split), 'split': _SPLIT_NUMBERS[split], 'times': 0}
        if self._times is not None and (self._padded_times is None or self._padded_times.count != count):
            self._padded_times = self._times.repeated(count)
        return {
            'source': repr(split) if split is not None else f'{self._count} {self._input[0]}',
            'nodes': address,
            'count': count,
            'times': self._padded_times.address if self._padded_times is not None else 0,
        }

    def _padded_count(self) -> int:
        """The number of seeds with those that are there twice, so that each rank has as many."""
        ranks = self._world()[1]
        return math.ceil(self._count / ranks) * ranks

    def _list(self) -> IntegerList | None:
        """The list that _seeds() is given the address of; None where _reads_seeds()."""
        if self._reads_seeds():
            return None
        return self._nodes() if self._split is None else IntegerList.of_split(self.data, self._split, self._padded_count())

    def _reads_seeds(self) -> bool:
        """Whether the library reads the seeds of a split itself, or numbers all nodes."""
        if self._split is None:
            return self._input_nodes is None
        return self._padded_count() == self._count and self._times is None

    def _list_bytes(self) -> int:
        """Bytes that _list() takes until the library has copied the list; none where it is the script's own."""
        return 0 if self._reads_seeds() or not self._copies else 8 * self._padded_count()

    def _connect(self) -> _core.Stream:
        self._shared.check_process()
        if self._stream is None:
            rank, ranks = self._world()
            if ranks > 1:
                _logger.info('rank %d of %d: split %r is divided among the ranks, %d batches each', rank, ranks, self._split, len(self))
            elif self._split is None and self._tools.torch is not None and self._ranks() > 1:
                _logger.info('input_nodes is a list of nodes: this rank loads all %d of them', self._count)
            self._stream = self._shared.connect(self)
        return self._stream

    def _ranks(self) -> int:
        distributed = self._tools.torch.distributed
        return int(distributed.get_world_size()) if distributed.is_available() and distributed.is_initialized() else 1

    def __len__(self) -> int:
        seeds = math.ceil(self._count / self._world()[1])
        return seeds // self.batch_size if self.drop_last else math.ceil(seeds / self.batch_size)

    def _next(self) -> tuple[int, int]:
        """The epoch and the step where the next iteration begins."""
        epoch, step = (self._epoch, 0)
        if self._resumes and self._position is not None:
            epoch, step = self._position
        return (epoch + 1, 0) if step >= len(self) > 0 else (epoch, step)

    def __iter__(self) -> Iterator[Any]:
        self._shared.check_process()
        epoch, step = self._next()
        batches = _Epoch(self, epoch, step)  # which fails where a batch of the epoch does not fit
        self._epoch = epoch + 1
        self._resumes = False
        return batches if self.device is None else self._on_device(batches)

    def _on_device(self, batches: _Epoch) -> Iterator[Any]:
        """The batches on the loader's device; on a GPU, each is copied while the model computes the one before."""
        if not self._is_cuda():
            for batch in batches:
                yield batch.to(self.device)
            return
        transfer = Transfer(self.device, self._tools.torch.cuda)
        marked = ((self._position, batch) for batch in batches.with_room(lambda: transfer.release(wait=True)))
        for position, moved in transfer.ahead(marked):
            self._position = position  # a batch that was copied ahead was not yielded
            yield moved

    def _is_cuda(self) -> bool:
        torch = self._tools.torch
        return torch is not None and self.device is not None and bool(torch.device(self.device).type == 'cuda')

    def _check_step(self) -> None:
        """Makes the loader smaller if the script's next step would not fit, or else refuses the next batch."""
        shared = self._shared
        guard, core = shared.guard, shared.core
        short = guard.check(self, core) if guard is not None and core is not None else None
        if short is not None:
            self._make_smaller(short)

    def _make_smaller(self, short: Shortage) -> None:
        """Makes the library's loader smaller, or raises MemoryLineError."""
        shared = self._shared
        if not short.waited and shared.shrink(self, short):
            return
        if shared.guard is not None:
            shared.guard.forget(self)
        needed, available, step = (_core.size_text(value) for value in (short.needed, short.headroom.bound, short.step))
        if short.waited:
            why = (
                f'the last step waited {short.waited:.1f} s for code and libraries and computed for {short.computed:.1f} s: memory is so '
                f'short that the kernel drops them and reads them again and again. This process would need {needed}'
            )
        else:
            why = f'the next step would not fit: one takes up to {step}, so this process would need {needed}'
        error = MemoryLineError(
            f'{why}; it may hold {available} ({short.headroom.source}: {_core.size_text(short.headroom.limit)}), and the loader cannot be '
            f'smaller. {self._terms()}: use {self._smaller()} or a smaller model, or give the job more memory. '
            'The batches so far were complete: save the model and loader.state_dict() to continue from here'
        )
        error.needed_bytes, error.available_bytes = short.needed, short.headroom.bound
        raise error

    def estimate(
        self, step: Callable[[Any], Any], model: Any, optimizer: Any = None, evaluate: Callable[[Any], Any] | None = None
    ) -> Estimate:
        """What a training needs, as rehearse() finds it; raises nothing where it does not fit."""
        from .rehearsal import Rehearsal

        return Rehearsal(self, model, optimizer).run(step, evaluate)

    def rehearse(
        self, step: Callable[[Any], Any], model: Any, optimizer: Any = None, evaluate: Callable[[Any], Any] | None = None
    ) -> Estimate:
        """Runs step(batch) on batches of growing size, before the training; raises MemoryLineError where the largest does not fit.

        step:      the script's own: forward, backward, optimizer.step().
        model:     the module whose weights and buffers it changes, or a list of them.
        optimizer: the optimiser, or a list of them.
        evaluate:  the script's own for the batches of the dataset's other loaders.

        Weights, buffers, gradients, the optimiser's state, the random states of torch, NumPy and Python, and the loaders' positions are as
        before afterwards. What else a step changes is not undone: a scheduler, a GradScaler, a counter or a file of the script's own.
        """
        found = self.estimate(step, model, optimizer, evaluate)
        if not found.fits:
            raise self._refusal(found)
        return found

    def _refusal(self, found: Estimate) -> MemoryLineError:
        needed, limit, more = self._shared.remedy(found.needed_bytes)
        takes = max(found.step_bytes, found.evaluate_bytes)
        smaller = f'use batch_size={found.batch_size} in all loaders, ' if found.batch_size else 'use '
        step = f'a step takes {_core.size_text(takes)}, and gradients and the optimiser keep {_core.size_text(found.kept_bytes)}'
        error = MemoryLineError(
            f'{self._terms()} needs {"" if found.steps else "at least "}{needed}: the largest batch has {found.nodes:,} nodes and '
            f'{found.edges:,} edges, {step if found.steps else "and no step could be measured"}; {limit}: '
            f'{smaller}{self._smaller()} or a smaller model, or {more}'
        )
        error.needed_bytes, error.available_bytes, error.batch_size = found.needed_bytes, found.available_bytes, found.batch_size
        return error

    def _receive(self, stream: _core.Stream) -> Any:
        """The next batch of the stream as the loader yields it; None after the last."""
        raise NotImplementedError

    def _input_id(self, arrays: dict[str, Any], size: int) -> Any:
        """Positions of the seeds in input_nodes; of a mask, or of all nodes, the nodes themselves."""
        if self._by_id:
            return arrays['nodes'][:size]
        padded = self._padded_count() != self._count  # with the split's own first nodes
        return arrays['input_ids'] % self._count if padded else arrays['input_ids']

    def _nodes(self) -> IntegerList:
        return IntegerList.of(self._input_nodes, self._total)

    def _description(self) -> dict[str, Any]:
        """What must be equal for two loaders to yield the same batches."""
        nodes = self._split if self._split is not None else 'all' if self._input_nodes is None else self._nodes().checksum()
        return {
            'fingerprint': self.data.fingerprint,
            'num_neighbors': list(self._fanout),
            'batch_size': self.batch_size,
            'shuffle': bool(self.shuffle),
            'drop_last': bool(self.drop_last),
            'replace': bool(self._shared.settings['replace']),
            'input_nodes': nodes,
            'ranks': self._world()[1],
            'weight_attr': self._shared.settings['weight_attr'] or None,
            'disjoint': self._shared.settings['disjoint'] or None,
            'time_attr': self._shared.settings['time_attr'] or None,
            'temporal_strategy': 'last' if self._shared.settings['temporal_strategy'] == 'last' else None,
            'input_time': self._times.checksum() if self._times is not None else None,
        }

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its arguments and position: the copy continues after the batch that was yielded last."""
        names = [name for name in inspect.signature(type(self).__init__).parameters if name in self.__dict__ and name != 'generator']
        place = {name: self.__dict__[name] for name in ('_given_seed', '_drawn_seed', '_epoch', '_position')}
        place['_resumes'] = self._position is not None
        return _made_again, (type(self), {name: self.__dict__[name] for name in names}, place)

    def state_dict(self) -> dict[str, Any]:
        """The position: a loader made with the same arguments continues behind the batch that was yielded last."""
        epoch, step = self._position if self._position is not None else (self._epoch, 0)
        return {'version': 1, 'seed': self._seed, 'epoch': epoch, 'step': step, **self._description()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues at a position of state_dict(): the next iteration yields the batches that were left of that epoch."""
        if state.get('version') != 1:
            raise UsageError(f'a state of version {state.get("version")!r}; this version of plimsoll reads version 1')
        for name, value in self._description().items():
            if state.get(name) != value:
                raise UsageError(f'the state was saved by a loader with {name}={state.get(name)!r}, and this one has {name}={value!r}')
        seed, epoch, step = (_number(state, name, most) for name, most in (('seed', 2**64 - 1), ('epoch', 2**31), ('step', len(self))))
        self._shared.check_process()
        if seed != self._seed:
            self._given_seed = self._drawn_seed = seed
            self._stream = None
        self._serving = None
        self._position = (epoch, step)
        self._epoch = epoch
        self._resumes = True

    @property
    def memory_plan(self) -> dict[str, Any]:
        """The plan of the shared loader: its accounts and choices, in bytes."""
        self._connect()
        assert self._shared.core is not None
        return self._shared.core.plan

    def stats(self) -> dict[str, Any]:
        """Counts since the shared loader was made: batches, rows read and cached, seconds of waiting."""
        self._connect()
        assert self._shared.core is not None
        return self._shared.core.stats()


def _number(state: dict[str, Any], name: str, most: int) -> int:
    """A number of a loader's state."""
    number = state.get(name)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= most:
        raise UsageError(f'the state has {name}={number!r}; it must be an integer from 0 to {most}')
    return number


def _made_again(kind: type[StreamLoader], arguments: dict[str, Any], place: dict[str, Any]) -> StreamLoader:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')  # the first constructor has given them
        loader = kind(**arguments)
    loader.__dict__.update(place)
    return loader


class _Epoch:
    """An iterator over one epoch. Several of one loader may be in use: each moves the stream to its own position."""

    def __init__(self, loader: StreamLoader, epoch: int, step: int) -> None:
        self._loader = loader
        self._token = object()
        self._epoch, self._step = epoch, step
        self._steps = len(loader)
        if step < self._steps:
            with loader._lock:
                self._start()
        loader._position = (epoch, step)

    def _start(self) -> _core.Stream:
        loader = self._loader
        if loader._serving is self._token and loader._stream is not None:
            return loader._stream
        loader._serving = None  # until start() succeeds: it may be refused or interrupted
        stream = loader._shared.start(loader, self._epoch, self._step)
        loader._serving = self._token
        return stream

    def _receive(self) -> Any:
        try:
            return self._loader._receive(self._start())
        except BatchesHeldError:
            raise
        except BaseException:
            self._loader._serving = None  # the stream must be started again
            raise

    def with_room(self, make_room: Callable[[], None]) -> Iterator[Any]:
        """Yields the batches. Where all slots are held, calls make_room and tries once more."""
        while True:
            try:
                batch = next(self, None)
            except BatchesHeldError:
                make_room()
                batch = next(self, None)
            if batch is None:
                return
            yield batch
            del batch

    def __iter__(self) -> _Epoch:
        return self

    def __len__(self) -> int:
        return self._steps - self._step

    def __next__(self) -> Any:
        loader = self._loader
        loader._shared.check_process()
        if self._step >= self._steps:
            raise StopIteration
        with loader._lock:
            self._start()
            loader._check_step()
            for is_last in (False, True):
                try:
                    batch = self._receive()
                    break
                except MemoryLineError as error:
                    short, error._shortage = error._shortage, None
                    if is_last or short is None:
                        raise
                loader._make_smaller(short)  # the error is gone, and with it the parts
            if batch is None:
                raise StopIteration
            self._step += 1
            loader._position = (self._epoch, self._step)
        if loader._shared.pinning is not None:
            loader._shared.pin()  # the library may have made its slots larger
        return batch if loader.transform is None else loader.transform(batch)


def _refuse(**given: tuple[Any, Any, str]) -> None:
    """Refuses arguments that are not supported: each is (value, the only value that is, what to use instead)."""
    for name, (value, default, instead) in given.items():
        if value is not default and value != default:
            raise UsageError(f'{name}={value!r} is not supported: {instead}')


def _check_column(argument: str, name: Any, known: tuple[str, ...], data: Any) -> None:
    """Refuses weight_attr or time_attr if the dataset has no such column."""
    if name is None:
        return
    if name not in known:
        raise UsageError(f'{argument}={name!r}: a dataset names it {" or ".join(map(repr, known))}, whatever its source calls it')
    column = COLUMN_OF[name]
    if isinstance(data, Dataset) and not os.path.exists(os.path.join(data.path, f'{column}.npy')):
        raise UsageError(f'{argument}={name!r}, but {data.path} has no {column}.npy: make the dataset again with that column')


def _row_bits(dataset: Any, x_dtype: Any) -> int:
    """Bits of a value of x; 0 without features."""
    if not isinstance(dataset, Dataset) or dataset.num_features == 0:
        return 0
    name = str(x_dtype).rpartition('.')[2]
    if name not in ('float32', 'float16', 'half', 'float'):
        raise UsageError(f'x_dtype={x_dtype!r}: use "float32" or "float16"')
    return 16 if name in ('float16', 'half') else 32


def _hops(num_neighbors: Any) -> tuple[int, ...]:
    """The neighbours of each hop, which must be whole numbers."""
    advice = 'give a list of whole numbers, the neighbours of each hop, such as [15, 10]'
    if isinstance(num_neighbors, str) or not hasattr(num_neighbors, '__iter__'):
        raise TypeError(f'num_neighbors is {num_neighbors!r}, a {type(num_neighbors).__name__}; {advice}')
    hops = list(num_neighbors)
    wrong = next((hop for hop in hops if not hasattr(hop, '__index__')), None)
    if wrong is not None:
        raise TypeError(f'num_neighbors has {wrong!r}, a {type(wrong).__name__}; {advice}')
    return tuple(operator.index(hop) for hop in hops)


class NeighborLoader(StreamLoader):
    """PyTorch Geometric's NeighborLoader over a dataset on disk, under a memory line.

    Arguments have PyG's names and meaning, and are kept under their names. Of its own it has:

    memory:   the line of the whole process, such as "4G"; default: the job's limit. All loaders of a dataset share it.
    threads:  threads that build batches; default: the processors that this process may use.
    x_dtype:  "float32", or "float16" to save half of the memory; integers are int64 in any case.
    y:        "seeds": labels of the seeds, `batch.y[:batch.batch_size]`; "all": of all nodes of the batch.
    device:   where batches go, such as "cuda": each is copied there while the model computes the one before.
    copy:     copies each batch, so that any number of them can be kept.
    seed:     of order and draws; default: drawn from `generator`, or from torch's own.

    weight_attr="edge_weight" draws neighbours in proportion to the weights of their edges, as PyG does; all loaders of a dataset
    draw in the same way. disjoint=True gives each seed a tree of its own, and batch.batch says which seed's a node is in.
    time_attr="time" draws neighbours that are not later than input_time of their seed, which defaults to the seed's own time;
    "edge_time" draws edges that are not later than it. temporal_strategy="last" takes the latest of them.

    Batches are torch_geometric `Data` with x, y, edge_index, n_id, input_id, batch_size, num_sampled_nodes and
    num_sampled_edges; and, as far as the dataset has them, edge_attr, edge_weight, edge_type, edge_time and time (of nodes), each
    in the order of edge_index. edge_position is each edge's place in the dataset's indices.npy; PyG's e_id, the edge's number in the
    source, is there if the dataset was made with edge_ids=True. Their tensors are memory of the loader: a batch that is kept stays valid,
    and holds a slot. When all slots are held, BatchesHeldError says so.

        loader = plimsoll.NeighborLoader(plimsoll.open('cora'), num_neighbors=[3, 2], batch_size=128, input_nodes='train', shuffle=True)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[:batch.batch_size]
            loss = F.cross_entropy(out, batch.y[:batch.batch_size])
    """

    y: str
    _all_labels: Any = None

    @takes_dataloader
    def __init__(
        self,
        data: Dataset,
        num_neighbors: Sequence[int],
        input_nodes: Any = None,
        input_time: Any = None,
        replace: bool = False,
        subgraph_type: str = 'directional',
        disjoint: bool = False,
        temporal_strategy: str = 'uniform',
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: None = None,
        directed: bool = True,
        *,
        batch_size: int = 1,
        shuffle: bool | None = None,
        drop_last: bool = False,
        generator: Any = None,
        memory: str | int | None = None,
        threads: int | None = None,
        x_dtype: Any = 'float32',
        y: str = 'seeds',
        copy: bool = False,
        device: Any = None,
        seed: int | None = None,
        **dataloader: Unpack[DataLoaderArguments],
    ) -> None:
        self._keep(locals())
        kind = str(getattr(subgraph_type, 'value', subgraph_type))
        _refuse(
            directed=(directed, True, 'use torch_geometric.loader.NeighborLoader for induced subgraphs'),
            subgraph_type=(kind, 'directional', 'only "directional" is; make batches bidirectional in a transform'),
            transform_sampler_output=(transform_sampler_output, None, 'use transform, which gets the whole batch'),
            neighbor_sampler=(neighbor_sampler, None, 'the library draws by itself'),
            y=(y if y != 'all' else 'seeds', 'seeds', 'use "seeds" or "all"'),
        )
        if isinstance(num_neighbors, dict):
            raise UsageError('num_neighbors by edge type is for heterogeneous graphs, which Plimsoll does not have: give a list of numbers')
        self._fanout = _hops(num_neighbors)
        if not self._fanout:
            raise UsageError('num_neighbors is empty: give a number of neighbours for each hop, such as [15, 10]; -1 takes all of them')
        if isinstance(data, Dataset) and data.num_graphs:
            raise UsageError(f'{data.path} holds {data.num_graphs} graphs: use plimsoll.GraphLoader')
        _check_column('weight_attr', weight_attr, ('edge_weight',), data)
        _check_column('time_attr', time_attr, ('time', 'edge_time'), data)
        if time_attr is None and (input_time is not None or temporal_strategy != 'uniform'):
            raise UsageError('input_time and temporal_strategy are for draws by time: give time_attr, "time" (of nodes) or "edge_time"')
        if time_attr is not None and weight_attr is not None:
            raise UsageError('weight_attr and time_attr exclude each other, as in PyG')
        if temporal_strategy not in ('uniform', 'last'):
            raise UsageError(f'temporal_strategy={temporal_strategy!r}: use "uniform" or "last"')
        if time_attr == 'edge_time' and input_time is None:
            raise UsageError('time_attr="edge_time" needs input_time, the time of each seed')
        settings = self._shared_settings(
            data,
            replace,
            weight_attr=weight_attr or '',
            disjoint=bool(disjoint) or time_attr is not None,
            time_attr=time_attr or '',
            temporal_strategy=temporal_strategy,
        )
        if input_time is not None:
            self._times = IntegerList.of(input_time, 0, 'input_time')
        self._begin(data, input_nodes, settings, seed, generator)

    def _receive(self, stream: _core.Stream) -> Any:
        batch = stream.next()
        if batch is None:
            return None
        arrays = self._tools.arrays(batch, self.copy)
        nodes, edges = batch.sampled()
        fields: dict[str, Any] = {'edge_index': arrays['edge_index'], 'n_id': arrays['nodes'], 'edge_position': arrays['edge_ids']}
        fields.update((COLUMNS[name], value) for name, value in arrays.items() if name in COLUMNS)
        if 'trees' in arrays:
            fields['batch'] = arrays['trees']
        if self._times is not None:
            fields['seed_time'] = arrays['seed_times']
        if 'rows' in arrays:
            fields['x'] = arrays['rows']
        else:
            fields['num_nodes'] = batch.num_nodes
        fields.update(num_sampled_nodes=nodes, num_sampled_edges=edges)
        self._add_seeds(fields, arrays, batch)
        return self._tools.data(**fields)

    def _add_seeds(self, fields: dict[str, Any], arrays: dict[str, Any], batch: _core.Batch) -> None:
        """Adds the fields of the seeds."""
        if 'labels' in arrays:
            fields['y'] = arrays['labels'] if self.y == 'seeds' else self._labels(arrays['nodes'])
        fields.update(input_id=self._input_id(arrays, batch.num_seeds), batch_size=batch.num_seeds)

    def _labels(self, n_id: Any) -> Any:
        """The labels of all nodes of a batch, from the mapped file."""
        if self._tools.torch is None:
            y = self.data.array('labels')[n_id]
            return y.astype('int64') if self.data.label_kind == 'classes' else y
        if self._all_labels is None:
            from .mapped import Mapped

            self._all_labels = Mapped.of(self.data, 'labels')
        y = self._all_labels.gather(n_id)
        return y.long() if self.data.label_kind == 'classes' else y

    def _terms(self) -> str:
        return f'batch_size={self.batch_size} with num_neighbors={list(self._fanout)}'

    def _smaller(self) -> str:
        return 'a smaller batch_size, fewer num_neighbors'

    def __repr__(self) -> str:
        return f'NeighborLoader({self.data!r}, num_neighbors={list(self._fanout)}, batch_size={self.batch_size}, batches={len(self)})'


class SeedLoader(NeighborLoader):
    """Draws the batch of any seeds, as many as the first ones or fewer, without labels: for plimsoll.pyg's sampler."""

    _bare = True

    def draw(self, seeds: Any, epoch: int) -> Any:
        """The batch of seeds in an epoch."""
        nodes = IntegerList.of(seeds, self._total)
        shared = self._shared
        shared.check_process()
        with self._lock:
            self._connect()
            self._check_step()
            with shared.lock:  # a loader that is made again in between would have the first seeds
                self._connect().reseed(nodes.address, nodes.count)
                stream = shared.start(self, epoch, 0)
            return self._receive(stream)


class GraphLoader(StreamLoader):
    """Batches of whole graphs, from a dataset of many graphs: PyTorch Geometric's DataLoader for graph-level tasks.

    input_graphs: "train", "valid", "test", a tensor of graphs, a mask, or None: all graphs. The other arguments are those
    of NeighborLoader.
    Batches are torch_geometric `Batch` with x, edge_index, y (a row for each graph), batch and ptr, and the columns of edges that the
    dataset has, such as edge_attr; to_data_list() and batch[i] give the graphs one by one.

        loader = plimsoll.GraphLoader(plimsoll.open('PROTEINS'), input_graphs='train', batch_size=32, shuffle=True)
        for batch in loader:
            out = model(batch.x, batch.edge_index, batch.batch)
    """

    _input = 'graphs', 'input_graphs'

    @takes_dataloader
    def __init__(
        self,
        data: Dataset,
        input_graphs: Any = None,
        batch_size: int = 1,
        shuffle: bool | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        generator: Any = None,
        memory: str | int | None = None,
        threads: int | None = None,
        x_dtype: Any = 'float32',
        copy: bool = False,
        device: Any = None,
        seed: int | None = None,
        follow_batch: None = None,
        exclude_keys: None = None,
        filter_per_worker: bool | None = None,
        **dataloader: Unpack[DataLoaderArguments],
    ) -> None:
        self._keep(locals())
        _refuse(
            follow_batch=(follow_batch or None, None, 'batches have `batch` and `ptr` only'),
            exclude_keys=(exclude_keys or None, None, 'drop attributes in a transform'),
        )
        if isinstance(data, Dataset) and not data.num_graphs:
            raise UsageError(f'{data.path} holds one graph: use plimsoll.NeighborLoader')
        self._fanout = ()
        settings = self._shared_settings(data, False)
        self._begin(data, input_graphs, settings, seed, generator)

    def _receive(self, stream: _core.Stream) -> Any:
        batch = stream.next()
        if batch is None:
            return None
        if batch.last_part:
            return self._make(self._tools.arrays(batch, self.copy))
        # A slot is too small for the batch: its parts are copied one after the other.
        parts, last, copied = [], False, 0
        while not last:
            self._check_part(copied)
            assert batch is not None
            parts.append(self._tools.arrays(batch, True))
            last = batch.last_part
            copied += sum(array.nbytes for array in parts[-1].values())
            batch = None  # so that its slot is free for the next part
            batch = None if last else stream.next()
        return self._make(self._join(parts))

    def _check_part(self, copied: int) -> None:
        """Stops where the batch's next part, a slot at most, or its parts once more, joined, would not fit."""
        core = self._shared.core
        assert core is not None
        part = core.memory()[1] // core.plan['slots']
        for trims in (False, True):
            if trims:
                _core.trim()
            now = Headroom(*core.headroom())
            if now.held + 2 * part + copied <= now.bound - now.reserve // 2:
                return
        whole = max(copied + part, core.plan['expect']['batch_bytes'])
        short = Shortage(2 * whole, now._replace(held=now.held - copied))
        needed, available, step = (_core.size_text(value) for value in (short.needed, now.bound, short.step))
        error = MemoryLineError(
            f'{self._terms()}: a batch comes in parts, and joining them takes {step}, so this process would need {needed}; it may hold '
            f'{available}: use {self._smaller()}, or give the job more memory'
        )
        error.needed_bytes, error.available_bytes, error._shortage = short.needed, now.bound, short
        raise error

    def _join(self, parts: list[dict[str, Any]]) -> dict[str, Any]:
        """One batch from the parts of it, which are let go of."""
        joined: dict[str, Any] = {name: [] for name in parts[0]}
        nodes = 0
        while parts:
            part = parts.pop(0)
            begin = 1 if joined['graph_indptr'] else 0  # a part begins where the one before ends
            part['graph_indptr'] = part['graph_indptr'][begin:] + nodes
            part['edge_index'] = part['edge_index'] + nodes
            for name, value in part.items():
                joined[name].append(value)
            nodes += len(part['nodes'])
        del part, value
        for name in joined:  # one after the other, so that no two are there twice
            joined[name] = self._tools.library.concatenate(joined[name], -1 if name == 'edge_index' else 0)
        return joined

    def _make(self, arrays: dict[str, Any]) -> Any:
        ptr = arrays['graph_indptr']
        torch = self._tools.torch
        if torch is not None:
            graphs = torch.repeat_interleave(ptr[1:] - ptr[:-1], output_size=len(arrays['nodes']))
        else:
            graphs = self._tools.library.repeat(self._tools.library.arange(len(ptr) - 1), ptr[1:] - ptr[:-1])
        fields: dict[str, Any] = {'edge_index': arrays['edge_index'], 'batch': graphs, 'ptr': ptr}
        fields.update((COLUMNS[name], value) for name, value in arrays.items() if name in COLUMNS)
        if 'rows' in arrays:
            fields['x'] = arrays['rows']
        else:
            fields['num_nodes'] = len(arrays['nodes'])
        if 'labels' in arrays:
            fields['y'] = arrays['labels']
        made = self._tools.graphs(**fields)
        if torch is not None and self._tools.graphs is not PlainBatch:
            self._mark_graphs(made, fields, torch)
        return made

    @staticmethod
    def _mark_graphs(made: Any, fields: dict[str, Any], torch: Any) -> None:
        """Adds what Batch.to_data_list() needs: where each graph's part of each attribute begins. These tensors hold no slot."""
        nodes = fields['ptr'].clone()
        edges = torch.searchsorted(fields['edge_index'][1].contiguous(), nodes)  # targets ascend
        graphs = len(nodes) - 1
        ends = {'x': nodes, 'time': nodes, 'y': torch.arange(graphs + 1), 'edge_index': edges}
        names = [name for name in fields if name not in ('batch', 'ptr', 'num_nodes')]
        made._slice_dict = {name: ends.get(name, edges) for name in names}
        made._inc_dict = {name: nodes[:-1] if name == 'edge_index' else torch.zeros(graphs, dtype=torch.long) for name in names}
        made._num_graphs = graphs
        if 'num_nodes' in fields:
            made._num_nodes = (nodes[1:] - nodes[:-1]).tolist()

    def _terms(self) -> str:
        return f'batch_size={self.batch_size}'

    def _smaller(self) -> str:
        return 'a smaller batch_size'

    def __repr__(self) -> str:
        return f'GraphLoader({self.data!r}, batch_size={self.batch_size}, batches={len(self)})'
