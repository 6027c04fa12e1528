"""A rehearsal: the script's own step on batches of growing size, before the training begins.

    seeds    b/64   2b/64   4b/64   …   b: the largest batch of the next epoch
    peak      ●       ●       ●     …   ?  run only where the line through the sizes before it predicts that it fits

What a step takes is modelled as a + b · nodes + c · edges. Afterwards everything that the package knows of is as it was: weights, buffers,
optimisers, gradients, random states, and the position of the loaders. See docs/design/python.md.
"""
from __future__ import annotations

import copy
import gc
import itertools
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
    from .loader import _StreamLoader

__all__ = ['Estimate', 'Rehearsal']

_SMALLEST = 64  # the first batch is a 64th of a whole one
_EVALUATED = 8  # … in evaluation an 8th
_COUNT_SECONDS = 10.0  # that counting the batches of the next epochs may take, …
_COUNT_CACHES = 256 << 20  # … with so many bytes of caches
_CACHES = 32 << 20  # beside which steps are measured
_SAMPLE = 30  # batches from which the largest of an epoch is estimated
_SHORT_SECONDS = 0.1  # a shorter step on the largest batch is run …
_REPEATS = 2  # … so many times
_CLOSER = 2  # sizes that are tried between one that fits and one that does not
_SLACK = 1.05  # times what a step takes must fit with a batch size that is named
_SPARE = 4  # times the seeds of a step, where slots are made smaller for it
_FITTED = 4  # the largest sizes, through which the line goes
_SEARCH_SECONDS = 2.0  # as _COUNT_SECONDS, of each batch size that is looked at, …
_SEARCHES = 8  # of them


class Estimate(NamedTuple):
    """What a training takes beside its loaders, in bytes."""

    fits: bool
    needed_bytes: int  # the memory limit under which it fits, with the smallest loaders
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


class _Largest(NamedTuple):
    """Of an epoch's batches."""

    size: Size
    step: int  # the largest that was counted


def _all(given: Any) -> list[Any]:
    return list(given) if isinstance(given, (list, tuple)) else [] if given is None else [given]


def _keep(value: Any, torch: Any) -> Callable[[], Any]:
    """A copy; calling it returns the value as it was. Tensors stay the same objects."""
    if isinstance(value, torch.Tensor):
        saved = value.detach().clone()

        def restore() -> Any:
            with torch.no_grad():
                value.copy_(saved)
            return value

        return restore
    if isinstance(value, dict):
        items = {key: _keep(item, torch) for key, item in value.items()}
        return lambda: {key: item() for key, item in items.items()}
    if isinstance(value, list):
        listed = [_keep(item, torch) for item in value]
        return lambda: [item() for item in listed]
    other = copy.deepcopy(value)
    return lambda: other


class _State:
    """Weights, buffers, gradients, optimisers and random states, to be restored."""

    def __init__(self, models: list[Any], optimizers: list[Any], torch: Any) -> None:
        self.torch, self.models, self.optimizers = torch, models, optimizers
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
        return sum(one.numel() * one.element_size() for one in kept if isinstance(one, self.torch.Tensor) and one.device.type == 'cpu')

    def save(self) -> None:
        torch = self.torch
        self.kept = [(tensor, _keep(tensor, torch), tensor.grad, _keep(tensor.grad, torch)) for tensor in self.tensors]
        self.places = [(module, module.training, dict(module._parameters), dict(module._buffers)) for module in self.modules]
        self.optimized = [
            (
                optimizer,
                [(parameter, _keep(state, torch)) for parameter, state in optimizer.state.items()],
                [_keep({name: value for name, value in group.items() if name != 'params'}, torch) for group in optimizer.param_groups],
            )
            for optimizer in self.optimizers
        ]
        numpy = sys.modules.get('numpy')
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
        for tensor, values, gradient, gradient_values in self.kept:
            values()
            tensor.grad = gradient
            gradient_values()
        for optimizer, states, groups in self.optimized:
            optimizer.state.clear()
            optimizer.state.update({parameter: state() for parameter, state in states})
            for group, values in zip(optimizer.param_groups, groups, strict=True):
                given = group['params']
                group.clear()
                group.update(params=given, **values())
        for restore, state in self.random:
            restore(state)
        self.kept, self.places, self.optimized = [], [], []


class _Line:
    """Through what steps took: a + b · nodes + c · edges, none of them negative."""

    def __init__(self, torch: Any, first: int) -> None:
        self.torch = torch
        self.first = first  # what is taken before the first step is known
        self.points: list[tuple[Size, int]] = []

    def add(self, size: Size, taken: int) -> None:
        if self.points and self.points[-1][0] == size:
            before = self.points.pop()[1]
            taken = max(taken, before) if self.points else taken  # the first step of all also warms up
        self.points.append((size, max(taken, 0)))
        # A peak that was missed: by a line that is nowhere negative, a smaller size takes at least its share of a larger one.
        for place, (small, known) in enumerate(self.points):
            share = min(small.nodes / size.nodes, small.edges / max(size.edges, 1))
            self.points[place] = small, max(known, int(share * taken))
        self.fit = self._fit() if len(self.points) > 2 else (0.0, 0.0, 0.0, 0.0)

    def _fit(self) -> tuple[float, float, float, float]:
        """The coefficients with the least squares, and the largest residual."""
        torch = self.torch
        points = self.points[-_FITTED:]
        scale = [1.0, float(max(size.nodes for size, _ in points)), float(max(size.edges for size, _ in points) or 1)]
        rows = torch.tensor([(1.0, size.nodes / scale[1], size.edges / scale[2]) for size, _ in points], dtype=torch.float64)
        taken = torch.tensor([float(taken) for _, taken in points], dtype=torch.float64)
        best: tuple[float, Any, Any] | None = None
        for count in (1, 2, 3):
            for columns in itertools.combinations(range(3), count):
                found = torch.linalg.lstsq(rows[:, columns], taken.unsqueeze(1)).solution.squeeze(1)
                residuals = (rows[:, columns] @ found - taken).abs()
                off = float(residuals.square().sum())
                if bool((found >= 0).all()) and (best is None or off < best[0] * 0.99):
                    best = off, dict(zip(columns, found.tolist(), strict=True)), residuals
        assert best is not None
        a, b, c = (best[1].get(column, 0.0) / scale[column] for column in range(3))
        return a, b, c, float(best[2].max())

    def at(self, size: Size) -> int:
        """What a step on a batch of that size takes at most."""
        if not self.points:
            return self.first
        last, taken = self.points[-1]
        times = max(size.nodes / last.nodes, size.edges / max(last.edges, 1))
        if len(self.points) < 3:
            return math.ceil(taken * times)
        a, b, c, off = self.fit
        return math.ceil(a + b * size.nodes + c * size.edges + off * max(times, 1.0))


class Rehearsal:
    """One rehearsal of a loader, its model and its optimiser."""

    def __init__(self, loader: _StreamLoader, model: Any, optimizer: Any) -> None:
        torch = loader._tools.torch
        if torch is None:
            raise UnsupportedError('a rehearsal needs torch')
        if loader._ranks() > 1:
            raise UnsupportedError('a rehearsal is of one process: run it in a script of its own, without torch.distributed')
        self.loader, self.shared = loader, loader._shared
        self.state = _State(_all(model), _all(optimizer), torch)
        self.whole = {one: one.batch_size for one in list(self.shared.loaders)}
        self.peak = _core.peak()
        self.lines: dict[_StreamLoader, _Line] = {}
        self.line = self.shared.line
        self.own = 0  # bytes of the library's loader without its caches
        self.steps = 0
        self.began = time.monotonic()

    def run(self, step: Callable[[Any], Any], evaluate: Callable[[Any], Any] | None) -> Estimate:
        """Runs the steps, restores everything, and makes the loaders as large as the steps allow."""
        works = [(self.loader, step)]
        if evaluate is not None:
            works += [(one, evaluate) for one in self.whole if one is not self.loader]
        with self.shared.lock:
            self.largest = self._count([one for one, _ in works], _COUNT_SECONDS)
            first = 4 * sum(tensor.nbytes for tensor in self.state.tensors)  # gradients, two moments, and the results of the smallest batch
            self.lines = {one: _Line(self.state.torch, first) for one, _ in works}
            try:
                self._begin()
                plan = self.loader.memory_plan
                bound = _Largest(Size(plan['slot_nodes'], plan['slot_edges']), 0)
                self.largest = {one: self.largest.get(one, bound) for one, _ in works}
                kept = self._rehearse(works)
            finally:
                self._size(None)
            return self._estimate(kept)

    def _begin(self) -> None:
        """Makes the library's loader, with slots for whole batches if they fit."""
        for share in (1, _EVALUATED, _SMALLEST, 0):
            self._size(max(1, share and self.whole[self.loader] // share))
            try:
                return self._create()
            except MemoryLineError:
                if share == 0:
                    raise

    def _rehearse(self, works: list[tuple[_StreamLoader, Callable[[Any], Any]]]) -> int:
        """Runs the steps. Returns the bytes that a training keeps."""
        gc.collect()
        if not self._fits(self.state.bytes):
            return self.state.bytes  # no step is run
        before = self._room().held
        self.state.save()
        copies = self._room().held - before
        try:
            for loader, function in works:
                self._grow(loader, function)
            held = self._held() - copies
        finally:
            self.state.restore()
        return max(0, held - self._held())

    def _grow(self, loader: _StreamLoader, function: Callable[[Any], Any]) -> None:
        """Runs a function on batches of growing size, as long as the next is predicted to fit."""
        line, whole, largest = self.lines[loader], self.whole[loader], self.largest[loader]
        seeds = max(1, whole // (_SMALLEST if loader is self.loader else _EVALUATED))
        last, closer, expected = 0, _CLOSER, Size(0, 0)
        while last < whole:
            if self._make_room(seeds, line.at(expected)):
                for _ in range(1 if line.points or loader is not self.loader else 2):
                    line.add(*self._step(loader, function, seeds, largest.step if seeds == whole else 0))
                last, seeds = seeds, min(2 * seeds, whole)
            elif line.points and closer > 0 and last + 1 < seeds:
                closer, seeds = closer - 1, (last + seeds) // 2  # tells better how much too large the next is
            else:
                return
            scaled = (min(value * seeds // last, most) for value, most in zip(line.points[-1][0], largest.size, strict=True))
            expected = Size(*scaled) if seeds < whole else largest.size
        if self._make_room(whole, line.at(largest.size)):
            line.add(*self._step(loader, function, whole, largest.step))

    def _step(self, loader: _StreamLoader, function: Callable[[Any], Any], seeds: int, step: int) -> tuple[Size, int]:
        """Runs a function on a batch of so many seeds. Returns the batch's size and the bytes that the step took."""
        kept, loader.batch_size, loader._stream = loader.batch_size, seeds, None
        try:
            held = self._held()
            stream = self.shared.start(loader, loader._next()[0], step)
            before, known = self._room(), _core.sample()
            self.own += before.held - held  # slots may have been made larger
            self.peak.take()
            batch = loader._receive(stream)
            size = _size_of(batch)
            if loader.transform is not None:
                batch = loader.transform(batch)
            if loader.device is not None:
                batch = batch.to(loader.device)
            began = time.monotonic()
            for _ in range(_REPEATS if seeds == self.whole[loader] else 1):  # a short step's peak may lie between two samples
                function(batch)
                self.steps += 1
                if time.monotonic() - began > _SHORT_SECONDS:
                    break
            del batch
        finally:
            loader.batch_size, loader._stream, loader._serving = kept, None, None
        peak, files = self.peak.take()[0], min(self.now.files, self._room().files)
        highest = _core.sample()['rss_peak_bytes']
        if highest > known['rss_peak_bytes']:  # what was sampled may miss the peak; this does not
            peak = max(peak, highest - files)
        return size, peak - self.now.cached - before.held

    def _room(self) -> Headroom:
        """What the process may hold, with nothing in the C library's heap that could be given back."""
        assert self.shared.core is not None
        _core.trim()
        self.now = Headroom(*self.shared.core.headroom())
        return self.now

    def _held(self) -> int:
        """Bytes that the process holds without caches."""
        _core.trim()
        return self._room().held if self.shared.core is not None else _core.sample()['anonymous_bytes']

    def _create(self, need: int = 0, small: bool = True) -> None:
        """Makes the library's loader so that it leaves so many bytes, and measures it. A small one has almost no caches: then each step of
        growing size is the peak of the process so far, which the kernel knows exactly.
        """
        shared = self.shared
        shared.let_go()
        before, lines = self._held(), [self.line or self._line()]
        if need:
            lines.append(_core.sample()['rss_bytes'] + self.now.reserve + max(0, self.now.free - before - need))
        if small:
            lines.append(self._minimum()[1] + _CACHES)
        shared.line = min(lines)
        self.loader._connect()
        self.own = self._room().held - before

    def _fits(self, need: int) -> bool:
        """Whether so many bytes more fit, with a smaller loader if they must."""
        if self.shared.core is not None:
            now = self._room()
            if now.held + 2 * need > now.free:
                _core.map_large_blocks()  # as the step guard would
            if now.held + need <= now.free:
                return True
        alone = self._held() - (self.own if self.shared.core is not None else 0)
        if alone + self._minimum()[0] + need > self.now.free:
            return False
        return self._remake(need, small=True)

    def _remake(self, need: int, small: bool) -> bool:
        """Whether so many bytes fit beside a loader that is made to leave them."""
        try:
            self._create(need, small)
        except MemoryLineError:
            self.shared.line = self.line
            return False
        return self.now.held + need <= self.now.free

    def _make_room(self, seeds: int, need: int) -> bool:
        """The same; where it does not fit beside slots for whole batches, with slots for smaller ones."""
        large = all(loader.batch_size >= min(whole, seeds) for loader, whole in self.whole.items())
        if large and self._fits(need):
            return True
        for most in (_SPARE * seeds, seeds):
            self._size(most)
            if self._fits(need):
                return True
        return False

    def _size(self, seeds: int | None) -> None:
        """Gives all loaders batches of at most so many seeds."""
        for loader, whole in self.whole.items():
            if loader.batch_size != min(whole, seeds or whole):
                self.shared.let_go()
                loader.batch_size = min(whole, seeds or whole)

    def _count(self, loaders: list[_StreamLoader], seconds: float) -> dict[_StreamLoader, _Largest]:
        """The largest batch of each loader's next epoch: its batches are drawn without rows."""
        shared, found = self.shared, {}
        bits, line = shared.settings['row_bits'], shared.line
        shared.let_go()
        shared.settings['row_bits'] = 0
        try:
            shared.line = min(self._minimum()[1] + _COUNT_CACHES, self._line())
            for loader in loaders:
                largest = self._count_epoch(loader, time.monotonic() + seconds / len(loaders))
                if largest is not None:
                    found[loader] = largest
        except MemoryLineError:
            pass  # then slots for whole batches do not fit either
        finally:
            shared.let_go()
            shared.settings['row_bits'], shared.line = bits, line
        return found

    def _count_epoch(self, loader: _StreamLoader, until: float) -> _Largest | None:
        """Where time is too short for all batches, the largest is estimated from those of a shuffled epoch; None without one."""
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

    def _line(self) -> int:
        """The job's memory line."""
        return int(_core.limits(memory=self.shared.settings['memory'] or 0)['line_bytes'])

    def _minimum(self) -> tuple[int, int]:
        """Bytes of the smallest loader, and the line that it needs."""
        job = _core.job(line=self._line(), threads=_core.limits(threads=self.shared.settings['threads'] or 0)['threads'] + 1)
        try:
            _core.fits(job=job, memory=1, **self.shared._recipe(self.loader))
        except MemoryLineError as error:
            line = error.needed_bytes or 0
            return line - job.accounts()['process'] - _reserve(line), line
        return 0, 0

    def _estimate(self, kept: int) -> Estimate:
        """The figures, for loaders with batches of their own size again; makes them as large as the steps allow."""
        growth = {loader: line.at(self.largest[loader].size) for loader, line in self.lines.items()}
        need = kept + max(growth.values())
        fits = all(line.points for line in self.lines.values()) and self._fits(need)
        if fits:
            fits = self._remake(need, small=False)
        alone, batch_size = self.now.held - self.own, self.loader.batch_size
        if not fits:
            self.shared.let_go()
            alone = self._held()
        least = _limit(alone + self._minimum()[0] + need) + self.now.limit - self.now.bound
        if not fits:
            batch_size = self._search(alone, kept, dict(growth))
        for loader, taken in growth.items():
            if fits and self.shared.guard is not None:
                self.shared.guard.expect(loader, taken)
        others = [taken for loader, taken in growth.items() if loader is not self.loader]
        return Estimate(
            fits, least, self.now.limit, batch_size, growth[self.loader], kept, max(others, default=0),
            *self.largest[self.loader].size, self.steps, time.monotonic() - self.began,
        )

    def _search(self, alone: int, kept: int, growth: dict[_StreamLoader, int]) -> int:
        """The largest batch size that fits, of this loader and as the most of the others."""
        whole, share = self.loader.batch_size, 1.0
        try:
            for _ in range(_SEARCHES):
                left = self.now.free - alone - kept - self._minimum()[0]
                taken = _SLACK * max(growth.values())
                if left >= taken:
                    return int(self.loader.batch_size)
                share *= min(max(left / taken, 0.25), 0.95)
                self._size(max(1, int(whole * share)))
                counted = self._count(list(self.lines), _SEARCH_SECONDS)
                for loader, line in self.lines.items():
                    of = counted[loader].size if loader in counted else Size(*(int(value * share) for value in self.largest[loader].size))
                    growth[loader] = line.at(of)
            return 0
        finally:
            self._size(None)


def _reserve(line: int) -> int:
    """What the library keeps free under a line."""
    return int(_core.job(line=line, threads=_core.limits()['threads'] + 1).accounts()['reserve'])


def _limit(held: int) -> int:
    """The lowest limit under which so many bytes may be held beside the reserve."""
    return held + _reserve(held + _reserve(held))


def _size_of(batch: Any) -> Size:
    return Size(len(batch.x) if hasattr(batch, 'x') and batch.x is not None else batch.num_nodes, batch.edge_index.shape[1])


def rehearse_trainer(trainer: Any, module: Any) -> Estimate:
    """Rehearses the steps of a Lightning module with automatic optimisation, on its Trainer's loaders. What the steps log is dropped."""
    from .loader import _StreamLoader

    loader = trainer.train_dataloader
    if not isinstance(loader, _StreamLoader) or not module.automatic_optimization:
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
