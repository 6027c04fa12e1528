"""What all loaders of a dataset share: one loader of the library under one memory line."""
from __future__ import annotations

import contextlib
import logging
import math
import os
import threading
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from . import _core
from .dataset import COLUMN_OF, Dataset, log
from .errors import BatchesHeldError, MemoryLineError, UsageError
from .gpu import Pinning
from .guard import Shortage, StepGuard

if TYPE_CHECKING:
    from .loader import StreamLoader

__all__ = ['Shared']

_logger = logging.getLogger('plimsoll')


class Shared:
    """The state that all loaders of a dataset share: the job with the memory line, and one loader of the library.

    The library's loader is made when the first of them is iterated, with a stream for each of them.
    """

    def __init__(self, dataset: Dataset, settings: dict[str, Any]) -> None:
        self.dataset = dataset
        self.settings = settings
        self.loaders: weakref.WeakSet[StreamLoader] = weakref.WeakSet()
        self.core: _core.Loader | None = None
        self.job: _core.Job | None = None
        self.guard: StepGuard | None = None
        self.line = 0  # below that of the settings, so that the script's steps fit; 0: that of the settings
        self.seed = 0
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.pinning: Pinning | None = None

    def __del__(self) -> None:
        if self.pinning is not None:
            self.pinning.drop()

    @staticmethod
    def of(dataset: Dataset, settings: dict[str, Any]) -> Shared:
        """The shared state of a dataset; makes it for its first loader."""
        shared: Shared | None = dataset._shared() if dataset._shared is not None else None
        if shared is None:
            shared = Shared(dataset, settings)
            dataset._shared = weakref.ref(shared)
            return shared
        shared.check_process()
        for name, value in settings.items():
            if value is None:  # this loader takes the others' value
                continue
            if shared.settings[name] is None and shared.core is None:
                shared.settings[name] = value
            elif shared.settings[name] != value:
                raise UsageError(
                    f'{name}={value!r}, but another loader of this dataset has {name}={shared.settings[name]!r}: all loaders of a '
                    f'dataset share one memory line, one cache and one kind of batch; give all of them the same {name}, or '
                    'plimsoll.open() the dataset once more'
                )
        return shared

    def check_process(self) -> None:
        """Refuses to work in a forked child: a lock may be held there for ever, by a thread that exists in the parent only."""
        if self.process != os.getpid():
            raise UsageError(
                'this loader was made in the process that forked this one: open the dataset again here (batches need no worker '
                'processes: threads of the library make them)'
            )

    def check_fits(self, loader: StreamLoader) -> None:
        """Refuses a loader that does not fit under the line together with those before it.

        This plan is not kept: _create() plans again, for the loaders that exist and the memory that is left when the first is iterated.
        """
        with self.lock:
            if self.core is not None:
                return  # its stream is planned when it is added
            if len(self.loaders) == 1:
                self.seed = loader._seed  # of the loader that is probably iterated first
            found = _core.limits(threads=self.settings['threads'] or 0)
            line = min(self.settings['memory'] or found['line_bytes'], found['line_bytes'])
            job = _core.job(line=found['line_bytes'], threads=found['threads'] + 1, log=log)
            try:
                self.fits(job, line, loader)
            except MemoryLineError as error:
                self.loaders.discard(loader)
                raise self.refusal(loader, error) from None

    def list_bytes(self) -> int:
        """Bytes of the longest list of seeds that is made for the library, which plans its copy alone."""
        return max((loader._list_bytes() for loader in list(self.loaders)), default=0)

    def fits(self, job: _core.Job, line: int, first: StreamLoader) -> None:
        """Raises MemoryLineError, with the minimum line, if the loaders do not fit under a line."""
        with self._beside_lists():
            _core.fits(job=job, memory=max(1, line - self.list_bytes()), **self._recipe(first))

    @contextlib.contextmanager
    def _beside_lists(self) -> Iterator[None]:
        """For a plan without the memory of lists: adds it to what a refusal says is needed."""
        try:
            yield
        except MemoryLineError as error:
            if error.needed_bytes is not None:
                error.needed_bytes += self.list_bytes()
            raise

    def refusal(self, loader: StreamLoader, error: MemoryLineError) -> MemoryLineError:
        """The library's refusal in a script's own terms."""
        if error.needed_bytes is None:
            return error
        held = _core.size_text(_core.sample()['rss_bytes'])
        needed, limit, more = self.remedy(error.needed_bytes)
        refused = MemoryLineError(
            f'{loader._terms()} needs at least {needed} without the memory of your own steps; the process holds {held} now, '
            f'and {limit}: {more}, and what a step of your model takes, free what the script no longer needs, or use {loader._smaller()}'
        )
        refused.needed_bytes, refused.available_bytes = error.needed_bytes, error.available_bytes
        return refused

    def remedy(self, needed_bytes: int) -> tuple[str, str, str]:
        """Three parts of a message: the bytes needed, the limit that is too low, and what to ask for."""
        found, given = _core.limits(), self.settings['memory']
        needed = f'{math.ceil(needed_bytes / 2**20)}M'
        if given is not None and given < found['line_bytes']:
            return needed, f'memory={_core.size_text(given)!r}', f'give memory={needed!r} or more'
        return needed, f'the limit is {_limit_text(found)}', f'ask for a limit of {needed} or more (Slurm: --mem={needed})'

    def connect(self, loader: StreamLoader) -> _core.Stream:
        """A stream of the library for a loader."""
        with self.lock:
            if self.core is None:
                self._create(loader)
            assert self.core is not None
            listed = loader._list()
            self._unpin()
            try:
                return self.core.stream(loader._settings(self.seed, listed))  # which copies the list
            except MemoryLineError as error:
                self._blame_held(error, 'del batch before the next loader is iterated, or make all loaders before the first is iterated')
                raise self.refusal(loader, error) from None

    def _blame_held(self, error: Exception, remedy: str) -> None:
        """Raises an error that names the batches that are held, if there are any."""
        if self.core is not None and self.core.held > 0:
            raise BatchesHeldError(f'{error}. In use: {self.core.held_names}: {remedy}') from None

    def start(self, loader: StreamLoader, epoch: int, step: int) -> _core.Stream:
        """Moves a loader's stream to a step of an epoch. The library may enlarge its slots for it."""
        with self.lock:
            stream = loader._connect()
            self._unpin()
            try:
                stream.start(epoch, step)
            except UsageError as error:
                self._blame_held(error, 'del batch, keep batch.clone() instead, or make the loader with copy=True')
                raise
            except MemoryLineError as error:
                raise self.refusal(loader, error) from None
            if self.pinning is None and loader._is_cuda():
                self.pinning = Pinning(loader._tools.torch.cuda)
            self.pin()
            return stream

    def let_go(self) -> None:
        """Destroys the library's loader. At its next batch, each loader here makes it again, and continues where it was."""
        self.check_process()
        with self.lock:
            self._unpin()
            for loader in list(self.loaders):
                loader._stream = loader._serving = None
            self.core = self.job = None

    def shrink(self, first: StreamLoader, short: Shortage) -> bool:
        """Makes the library's loader again, so much smaller that a step of the script fits; False if it cannot be so small."""
        with self.lock:
            if self.core is None:
                return True  # another thread has destroyed the loader
            kept = self.core.memory()[1] if self.core.held else 0  # until the script takes the next batch
            self.let_go()
            sample = _core.sample()
            left = short.headroom.free - sample['anonymous_bytes'] + min(0, kept - short.step)
            before, self.line = self.line, sample['rss_bytes'] + short.headroom.reserve + max(left, 0)
            try:
                self._create(first)
            except MemoryLineError:
                self.line = before
                return False
            _logger.info('the loader was made again with less memory, since a step takes %s', _core.size_text(short.step))
            return True

    def pin(self) -> None:
        """Pins the slots at their present address, if every loader has a GPU as its device and so knows when each slot was read."""
        if self.pinning is None or self.core is None:
            return
        if all(loader._is_cuda() for loader in list(self.loaders)):
            self.pinning.take(*self.core.memory())
        else:
            self.pinning.drop()

    def _unpin(self) -> None:
        if self.pinning is not None:
            self.pinning.drop()

    def _create(self, first: StreamLoader) -> None:
        found = _core.limits(memory=self.settings['memory'] or 0, threads=self.settings['threads'] or 0)
        self.seed = first._seed
        # One thread more: the caller waits for batches, so that Ctrl-C ends its waiting, and builds none.
        job = _core.job(line=found['line_bytes'], threads=found['threads'] + 1, log=log)
        try:
            with self._beside_lists():
                line = (self.line or found['line_bytes']) - self.list_bytes()
                self.core = _core.loader(job=job, memory=max(1, line), **self._recipe(first))
        except MemoryLineError as error:
            raise self.refusal(first, error) from None
        self.job, self.guard = job, self.guard or StepGuard()
        for loader in list(self.loaders):
            if loader is not first:
                loader._stream = self.connect(loader)

    def _recipe(self, first: StreamLoader) -> _core._Recipe:
        """The arguments that the library's loader is planned by."""
        return {
            'dataset': self.dataset._core,
            'row_bits': self.settings['row_bits'],
            'replace': self.settings['replace'],
            'draw_by': COLUMN_OF.get(self.settings['weight_attr'] or self.settings['time_attr'], ''),
            'disjoint': self.settings['disjoint'],
            'latest': self.settings['temporal_strategy'] == 'last',
            'seed': self.seed,
            'streams': [loader._settings(self.seed) for loader in list(self.loaders)],
            'batch_size': first.batch_size,
            'fanout': first._fanout,
            # A loop holds a batch while it asks for the next one, and its own batch while an inner loop evaluates.
            'slots': min(3, 1 + sum(not loader.copy for loader in list(self.loaders))),
        }


def _limit_text(found: dict[str, Any]) -> str:
    """The job's limit and its name: '700 MiB (cgroup v1 /job_7 memory.limit_in_bytes)'."""
    return f'{_core.size_text(found["line_bytes"])} ({found["line_source"]})'
