"""A rehearsal: the script's own step on batches of growing size, before the training begins.

    seeds    b/64   b/32   b/16   …   b: the largest batch of the next epoch
    peak      ●      ●      ●     …   ?  run only where the sizes before it predict that it fits

A step takes a + b · nodes + c · edges: blocks that are mapped one by one leave no gaps, so the peaks lie on that line within a percent.
Afterwards everything that the package knows of is as it was: weights, buffers, optimisers, gradients, random states, and the loaders'
positions. See docs/design/python.md.
"""
from __future__ import annotations

import copy
import gc
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from . import _core
from .errors import MemoryLineError, UnsupportedError, UsageError
from .guard import Headroom

if TYPE_CHECKING:
    from .loader import StreamLoader

__all__ = ['Estimate', 'Rehearsal']

_SMALLEST = 64  # the first batch is a 64th of a whole one
_CACHES = 32 << 20  # of the loader beside which steps are measured
_COUNT_CACHES = 256 << 20  # … and beside which batches are counted
_COUNT_SECONDS = 10.0  # that counting the batches of the next epochs may take
_SAMPLE = 30  # batches from which the largest of an epoch is estimated
_SHORT_SECONDS = 0.1  # a step on the largest batch that is shorter is run twice: its peak may lie between two samples
_FITTED = 4  # the largest sizes, through which the line goes
_SEARCHES = 8  # batch sizes that are looked at for one that fits, …
_SEARCH_SECONDS = 2.0  # each for so long
_SLACK = 1.05  # times what a step takes must fit with that batch size
_BENT = 1.1  # a step that takes so many times what was predicted bends the line upwards, …
_BENT_MOST = 2.0  # … at most so that twice the size takes four times as much


class Estimate(NamedTuple):
    """What a training takes beside its loaders, in bytes."""

    fits: bool
    needed_bytes: int  # the memory limit under which it fits, with the smallest loaders; at least, where no step could be run
    available_bytes: int  # the limit that there is
    batch_size: int  # the largest that fits; 0: none
    step_bytes: int  # the most that a step takes and frees again
    kept_bytes: int  # what it keeps: gradients, the optimiser's state, libraries
    evaluate_bytes: int  # the most that a step of evaluation takes
    nodes: int  # of the largest batch
    edges: int
    steps: int  # that were run
    seconds: float


class Size(NamedTuple):
    """Of a batch."""

    nodes: int
    edges: int

    def times(self, factor: float) -> Size:
        return Size(math.ceil(self.nodes * factor), math.ceil(self.edges * factor))


class _Largest(NamedTuple):
    """Of an epoch's batches."""

    size: Size
    step: int  # the largest that was counted


def _all(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]


class _State:
    """Saves and restores weights, buffers, gradients, optimisers and random states. Parameters and gradients stay the same objects."""

    def __init__(self, models: list[Any], optimizers: list[Any], torch: Any) -> None:
        self.torch, self.optimizers = torch, optimizers
        self.modules = list(dict.fromkeys(module for model in models for module in model.modules()))
        held = [tensor for module in self.modules for tensor in (*module._parameters.values(), *module._buffers.values())]
        held += [tensor for optimizer in optimizers for group in optimizer.param_groups for tensor in group['params']]
        self.tensors = list({id(tensor): tensor for tensor in held if tensor is not None}.values())
        if any(torch.nn.parameter.is_lazy(tensor) for tensor in self.tensors):
            raise UsageError('the model has lazy layers, whose weights the first batch makes: run it on one batch before the rehearsal')

    @property
    def bytes(self) -> int:
        """Bytes that save() takes."""
        states = [value for optimizer in self.optimizers for state in optimizer.state.values() for value in state.values()]
        kept = [*self.tensors, *(tensor.grad for tensor in self.tensors), *states]
        return sum(one.nbytes for one in kept if isinstance(one, self.torch.Tensor) and one.device.type == 'cpu')

    def save(self) -> None:
        torch, numpy = self.torch, sys.modules.get('numpy')
        held = [*self.tensors, *(tensor.grad for tensor in self.tensors if tensor.grad is not None)]
        self.values = [(tensor, tensor.detach().clone()) for tensor in held]
        self.gradients = [tensor.grad for tensor in self.tensors]
        self.places = [(module, module.training, dict(module._parameters), dict(module._buffers)) for module in self.modules]
        given = {id(tensor): tensor for tensor in self.tensors}  # which a copy of a state refers to, and does not copy
        self.states = [copy.deepcopy((dict(one.state), one.param_groups), dict(given)) for one in self.optimizers]
        self.random: list[tuple[Callable[[Any], Any], Any]] = [(random.setstate, random.getstate())]
        self.random.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            self.random.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
        if numpy is not None:
            self.random.append((numpy.random.set_state, numpy.random.get_state()))

    def restore(self) -> None:
        for module, training, parameters, buffers in self.places:
            module.training = training
            module._parameters.update(parameters)
            module._buffers.update(buffers)
        with self.torch.no_grad():
            for tensor, values in self.values:
                tensor.copy_(values)
        for tensor, gradient in zip(self.tensors, self.gradients, strict=True):
            tensor.grad = gradient
        for optimizer, (states, groups) in zip(self.optimizers, self.states, strict=True):
            optimizer.state.clear()
            optimizer.state.update(states)
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                group.clear()
                group.update(values)
        for restore, state in self.random:
            restore(state)
        self.values, self.gradients, self.places, self.states = [], [], [], []


class _Line:
    """Through what steps took: a + b · nodes + c · edges, none of them negative.

    A step that takes more, such as attention among all nodes of a batch, shows when a batch of twice the size is run: beyond the largest
    size that was run, the line rises by the same factor once more for each doubling.
    """

    def __init__(self, torch: Any, first: int) -> None:
        self.torch = torch
        self.first = first  # what is taken before the first step is known
        self.points: dict[Size, int] = {}  # in ascending order
        self.bend = 1.0  # what the largest took, as a multiple of what the line through those before it says

    def add(self, size: Size, taken: int) -> None:
        over = taken / max(self._straight(size), 1) if self.points else 1.0
        self.bend = min(over, _BENT_MOST) if over > _BENT else 1.0
        self.points[size] = max(taken, self.points.get(size, 0))

    def at(self, size: Size) -> int:
        """What a step on a batch of that size takes at most."""
        if not self.points:
            return self.first
        doublings = math.log2(max(1.0, self._times(size)))
        return math.ceil(self._straight(size) * math.pow(self.bend, doublings))

    def _times(self, size: Size) -> float:
        """A size, as a multiple of the largest that was run."""
        last = next(reversed(self.points))
        return max(size.nodes / last.nodes, size.edges / max(last.edges, 1))

    def _straight(self, size: Size) -> float:
        """What the line says: through the origin as long as there are few points."""
        times = self._times(size)
        if len(self.points) < 3:
            return float(next(reversed(self.points.values())) * times)
        torch = self.torch
        known = torch.tensor([(1, *size, taken) for size, taken in list(self.points.items())[-_FITTED:]], dtype=torch.float64)
        scale, values = known[:, :3].amax(0).clamp(min=1), known[:, 3]
        rows, columns = known[:, :3] / scale, [0, 1, 2]
        while True:  # least squares, without the columns that would be negative
            found = torch.linalg.lstsq(rows[:, columns], values.unsqueeze(1)).solution.squeeze(1)
            if len(columns) == 1 or bool((found >= 0).all()):
                break
            del columns[int(found.argmin())]
        off = float((rows[:, columns] @ found - values).abs().max())
        return float((torch.tensor((1, *size)) / scale)[columns] @ found) + off * max(times, 1.0)


class Rehearsal:
    """One rehearsal of a loader, its model and its optimiser."""

    def __init__(self, loader: StreamLoader, model: Any, optimizer: Any) -> None:
        torch = loader._tools.torch
        if torch is None:
            raise UnsupportedError('a rehearsal needs torch')
        if loader._ranks() > 1:
            raise UnsupportedError('a rehearsal is of one process: run it in a script of its own, without torch.distributed')
        self.loader, self.shared = loader, loader._shared
        self.state = _State(_all(model), _all(optimizer), torch)
        self.whole = {one: one.batch_size for one in list(self.shared.loaders)}
        self.peak = _core.peak()
        self.line = self.shared.line
        limit = self._limit()
        self.now = Headroom(limit, 0, 0, 0, _reserve(limit), limit, '')  # until there is a loader that measures it
        self.slots = 0  # seeds of the batches that the loader's slots hold
        self.tight = False  # slots for whole batches leave too little for the step
        self.steps = 0
        self.began = time.monotonic()

    def run(self, step: Callable[[Any], Any], evaluate: Callable[[Any], Any] | None) -> Estimate:
        """Runs the steps, restores everything, and makes the loaders as large as the steps allow."""
        works = {self.loader: step}
        if evaluate is not None:
            works |= {one: evaluate for one in self.whole if one is not self.loader}
        first = 4 * sum(tensor.nbytes for tensor in self.state.tensors)  # gradients, two moments, and the results of the smallest batch
        self.lines = {one: _Line(self.state.torch, first) for one in works}
        with self.shared.lock:
            _core.map_large_blocks(True)
            try:
                self.largest = self._count(_COUNT_SECONDS)
                return self._estimate(self._rehearse(works))
            except BaseException:
                self._let_go()
                raise
            finally:
                self._size(None)
                _core.map_large_blocks(False)  # the guard maps them again where memory is short

    def _rehearse(self, works: dict[StreamLoader, Callable[[Any], Any]]) -> int:
        """Runs the steps. Returns the bytes that a training keeps."""
        gc.collect()
        whole = self.whole[self.loader]
        fits = self._make_room(max(1, whole // _SMALLEST), self.state.bytes)
        plan = self.shared.core.plan if self.shared.core is not None else {'slot_nodes': 1, 'slot_edges': 0}
        bound = Size(plan['slot_nodes'], plan['slot_edges']).times(whole / self.loader.batch_size)
        self.largest = {one: self.largest.get(one, _Largest(bound, 0)) for one in works}
        if not fits:
            return self.state.bytes
        before = self._held()
        self.state.save()
        copies = self._held() - before
        try:
            for loader, function in works.items():
                self._grow(loader, function)
            held = self._held() - copies
        finally:
            self.state.restore()
        return max(0, held - self._held())

    def _grow(self, loader: StreamLoader, function: Callable[[Any], Any]) -> None:
        """Runs a function on batches of growing size, as long as the next is predicted to fit."""
        line, whole, largest = self.lines[loader], self.whole[loader], self.largest[loader]
        last, seeds, expected, self.tight = 0, max(1, whole // _SMALLEST), Size(0, 0), False
        while last < whole and self._make_room(seeds, line.at(expected)):
            try:
                if last == 0:
                    self._step(loader, function, seeds, 0)  # which also warms up
                line.add(*self._step(loader, function, seeds, largest.step if seeds == whole else 0))
            except MemoryLineError:
                return
            last, seeds = seeds, min(2 * seeds, whole)
            expected = next(reversed(line.points)).times(seeds / last) if seeds < whole else largest.size

    def _step(self, loader: StreamLoader, function: Callable[[Any], Any], seeds: int, step: int) -> tuple[Size, int]:
        """Runs a function on a batch of `seeds` seeds. Returns the batch's size and the bytes that the step took."""
        kept, loader.batch_size, loader._stream = loader.batch_size, seeds, None
        try:
            stream = self.shared.start(loader, loader._next()[0], step)
            held, files, known = self._held(), self.now.files, _core.sample()
            self.peak.take()
            batch = loader._receive(stream)
            size = _size_of(batch)
            if loader.transform is not None:
                batch = loader.transform(batch)
            if loader.device is not None:
                batch = batch.to(loader.device)
            for _ in range(2 if seeds == self.whole[loader] else 1):
                began = time.monotonic()
                function(batch)
                self.steps += 1
                if time.monotonic() - began > _SHORT_SECONDS:
                    break
            del batch
        finally:
            loader.batch_size, loader._stream, loader._serving = kept, None, None
        peak, highest = self.peak.take()[0], _core.sample()['rss_peak_bytes']
        self._held()
        if highest > known['rss_peak_bytes']:  # the kernel's own figure, where this was the process's peak; samples may miss it
            peak = max(peak, highest - min(files, self.now.files))
        return size, max(0, peak - self.now.cached - held)

    def _held(self) -> int:
        """Bytes that the process holds without caches, after free memory of the C library's heap went back to the kernel."""
        _core.trim()
        if self.shared.core is None:
            return int(_core.sample()['anonymous_bytes'])
        self.now = Headroom(*self.shared.core.headroom())
        return self.now.held

    def _make_room(self, seeds: int, need: int) -> bool:
        """Makes a loader with slots for whole batches, or else for `seeds` seeds, and returns whether `need` bytes fit beside it."""
        if seeds <= self.slots and self._held() + need <= self.now.free:
            return True
        if not self.tight and self._make(max(self.whole.values()), need):
            return True
        self.tight = True
        return self._make(seeds, need)

    def _make(self, seeds: int, need: int) -> bool:
        """Makes a loader with slots for `seeds` seeds and returns whether `need` bytes fit beside it.

        It has almost no caches: so each larger step is a new peak of the process, which the kernel knows exactly.
        """
        self._size(seeds)
        try:
            self._create(self._minimum()[1] + _CACHES, need)
        except MemoryLineError:
            self.slots = 0
            return False
        self.slots = seeds
        return self._held() + need <= self.now.free

    def _create(self, line: int, need: int) -> None:
        """Makes the library's loader under a line, and small enough to leave `need` bytes."""
        self._let_go()
        left = max(0, self.now.free - self._held() - need)
        self.shared.line = min(self.line or self._limit(), line, _core.sample()['rss_bytes'] + self.now.reserve + left)
        self.loader._connect()
        self._held()

    def _let_go(self) -> None:
        self.shared.let_go()
        self.shared.line = self.line

    def _size(self, seeds: int | None) -> None:
        """Limits the batches of all loaders to `seeds` seeds; None restores their own size."""
        for loader, whole in self.whole.items():
            if loader.batch_size != min(whole, seeds or whole):
                self.shared.let_go()
                loader.batch_size = min(whole, seeds or whole)

    def _count(self, seconds: float) -> dict[StreamLoader, _Largest]:
        """The largest batch of each loader's next epoch: its batches are drawn without rows."""
        shared, found = self.shared, {}
        bits, shared.settings['row_bits'] = shared.settings['row_bits'], 0
        self._let_go()
        try:
            shared.line = min(self._minimum()[1] + _COUNT_CACHES, self._limit())
            for loader in self.lines:
                largest = self._count_epoch(loader, time.monotonic() + seconds / len(self.lines))
                if largest is not None:
                    found[loader] = largest
        except MemoryLineError:
            pass  # then slots for whole batches do not fit either
        finally:
            shared.settings['row_bits'] = bits
            self._let_go()
        return found

    def _count_epoch(self, loader: StreamLoader, until: float) -> _Largest | None:
        """The largest batch of an epoch; estimated from the first ones where time is too short for all. None where the epoch is not
        shuffled, so that the first ones tell nothing of the others.
        """
        stream, steps = self.shared.start(loader, loader._next()[0], 0), len(loader)
        sizes: list[Size] = []
        nodes = edges = 0
        while len(sizes) < steps and time.monotonic() < until:
            batch: Any = stream.next()
            nodes, edges = nodes + batch.num_nodes, edges + sum(batch.sampled()[1])
            if batch.last_part:
                sizes.append(Size(nodes, edges))
                nodes = edges = 0
            del batch
        if len(sizes) < (min(_SAMPLE, steps) if loader.shuffle else steps):
            return None
        most = Size(*(max(values) for values in zip(*sizes, strict=True)))
        step = max(range(len(sizes)), key=lambda step: sum(sizes[step]))
        if len(sizes) == steps:
            return _Largest(most, step)
        beyond = math.sqrt(2 * math.log(steps)) + 1  # deviations, of as many draws of a normal distribution, and one more
        tails = (statistics.mean(values) + beyond * statistics.stdev(values) for values in zip(*sizes, strict=True))
        return _Largest(Size(*(max(known, math.ceil(tail)) for known, tail in zip(most, tails, strict=True))), step)

    def _limit(self) -> int:
        """The job's memory line."""
        return int(_core.limits(memory=self.shared.settings['memory'] or 0)['line_bytes'])

    def _minimum(self) -> tuple[int, int]:
        """Bytes of the smallest loader, and the line that it needs."""
        job = _core.job(line=self._limit(), threads=_core.limits(threads=self.shared.settings['threads'] or 0)['threads'] + 1)
        try:
            self.shared.fits(job, 1, self.loader)
        except MemoryLineError as error:
            line = error.needed_bytes or 0
            return line - job.accounts()['process'] - _reserve(line), line
        return 0, 0

    def _estimate(self, kept: int) -> Estimate:
        """The figures. Makes the loaders as large as the steps allow, with batches of their own size again."""
        taken = {loader: line.at(self.largest[loader].size) for loader, line in self.lines.items()}
        need = kept + max(taken.values())
        self._size(None)
        self._let_go()
        alone = self._held()
        held = alone + self._minimum()[0] + need
        needed = held + _reserve(held + _reserve(held)) + self.now.limit - self.now.bound
        fits = all(line.points for line in self.lines.values()) and held <= self.now.free
        try:
            if fits:
                self._create(self._limit(), need)
        except MemoryLineError:
            fits, needed = False, max(needed, self.now.limit)
        batch_size = self.loader.batch_size if fits else self._search(alone + kept)
        if fits and self.shared.guard is not None:
            for loader in taken:
                self.shared.guard.expect(loader, taken[loader])
        others = (value for loader, value in taken.items() if loader is not self.loader)
        return Estimate(
            fits, needed, self.now.limit, batch_size, taken[self.loader], kept, max(others, default=0),
            *self.largest[self.loader].size, self.steps, time.monotonic() - self.began,
        )

    def _search(self, held: int) -> int:
        """The largest batch size that fits beside `held` bytes, if the other loaders have no larger one; 0: none."""
        whole, share = self.whole[self.loader], 1.0
        sizes = {loader: largest.size for loader, largest in self.largest.items()}
        for _ in range(_SEARCHES if all(line.points for line in self.lines.values()) else 0):
            left = self.now.free - held - self._minimum()[0]
            taken = _SLACK * max(line.at(sizes[loader]) for loader, line in self.lines.items())
            if left >= taken:
                return self.loader.batch_size
            share *= min(max(left / taken, 0.25), 0.95)
            self._size(max(1, int(whole * share)))
            counted = self._count(_SEARCH_SECONDS)
            sizes = {one: counted[one].size if one in counted else largest.size.times(share) for one, largest in self.largest.items()}
        return 0


def _reserve(line: int) -> int:
    """What the library keeps free under a line."""
    return int(_core.job(line=line, threads=_core.limits()['threads'] + 1).accounts()['reserve'])


def _size_of(batch: Any) -> Size:
    return Size(len(batch.x) if hasattr(batch, 'x') and batch.x is not None else batch.num_nodes, batch.edge_index.shape[1])


def rehearse_trainer(trainer: Any, module: Any) -> Estimate:
    """Rehearses the steps of a Lightning module with automatic optimisation, on its Trainer's loaders. What the steps log is dropped."""
    from .loader import StreamLoader

    loader = trainer.train_dataloader
    if not isinstance(loader, StreamLoader) or not module.automatic_optimization:
        raise UnsupportedError('a rehearsal in Lightning needs one plimsoll loader to train on, and automatic optimisation')

    def call(function: Callable[..., Any], context: Callable[[], Any], batch: Any) -> Any:
        with context():
            found = function(batch, 0)
        return found.get('loss') if isinstance(found, dict) else found

    def step(batch: Any) -> None:
        for optimizer in trainer.optimizers:
            optimizer.zero_grad()
        loss = call(module.training_step, precision.train_step_context, batch)
        if loss is not None:
            loss.backward()
            for optimizer in trainer.optimizers:
                optimizer.step()

    def evaluate(batch: Any) -> None:
        module.eval()
        with loader._tools.torch.no_grad():
            call(module.validation_step, precision.val_step_context, batch)

    precision = trainer.precision_plugin
    module.log = module.log_dict = lambda *_, **__: None
    try:
        return loader.rehearse(step, module, trainer.optimizers, evaluate if trainer.val_dataloaders is not None else None)
    finally:
        del module.log, module.log_dict
