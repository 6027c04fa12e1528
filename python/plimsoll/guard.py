"""The step guard: a loader raises MemoryLineError before the kernel kills the process for memory.

A training step takes memory between two batches and frees most of it again:

    batch ──► step: activations, gradients ──► next batch asked for
      held            peak                        held

The guard measures how much memory a step takes, and compares that with what the process may still hold when the next batch is asked for.
Two things are not counted as needed: the loader's caches, which the kernel drops at once, and memory that the C library's heap has freed
but keeps. While memory is short, and in each loader's first two steps, the guard gives that memory back to the kernel before it measures.
Freed blocks in a heap also leave gaps that no later block fits, and steps then take more and more. So where a step twice as large might
not fit, the guard has the C library map each large block by itself.
"""
from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from . import _core

__all__ = ['Headroom', 'Shortage', 'StepGuard']

_SHARE_OF_TIME = 0.01  # that reading the kernel's figures may take, …
_SHARE_WHEN_SHORT = 0.2  # … and where the next step may not fit
_SLOWER = 10  # times: a step that takes so much longer because it waits for code to be read
_THRASHING_SECONDS = 1.0  # shorter waits are ignored
_FEW = 4  # steps: so many tell little of how much more a later one takes


class Headroom(NamedTuple):
    """The library's plim_headroom_t: what the process may hold, in bytes."""

    bound: int
    held: int
    cached: int
    files: int
    reserve: int
    limit: int
    source: str

    @property
    def free(self) -> int:
        """What may be held without the reserve, which code and the kernel need."""
        return self.bound - self.reserve


class Shortage(NamedTuple):
    """The next step would not fit."""

    step: int  # bytes that it takes
    headroom: Headroom
    waited: float = 0  # seconds in which the last step waited for code to be read, where that is why …
    computed: float = 0  # … and those in which it computed

    @property
    def needed(self) -> int:
        """Bytes that the process would need in its next step."""
        return self.headroom.held + self.step + self.headroom.reserve


class _Steps:
    """Measurements of the steps that use the batches of one loader."""

    def __init__(self) -> None:
        self.measured = 0
        self.expected = 0  # bytes that the largest takes, by a rehearsal; 0: without one
        self.growth = 0  # bytes that the largest took
        self.rise = 0  # bytes by which the last one was larger than all before

    def add(self, growth: int) -> None:
        """One more step. The first is replaced by the second, which is measured better."""
        largest = max(self.expected, self.growth if self.measured > 1 else 0)
        self.rise = max(0, growth - largest)
        self.growth = max(growth, largest)
        self.measured += 1


class StepGuard:
    """Guards the steps that a script computes with the batches of a dataset's loaders."""

    def __init__(self) -> None:
        self._peak = _core.peak()
        self._lock = threading.Lock()
        self._steps: weakref.WeakKeyDictionary[Any, _Steps] = weakref.WeakKeyDictionary()
        self._owner: Callable[[], Any] = lambda: None  # the loader whose batch was delivered last
        self._before: Headroom | None = None  # at the last look
        self._next_look = time.monotonic()
        self._alarm = 0  # a peak above this is looked at, too
        self._batches = 0  # asked for since the last look, …
        self._most: float = 0  # … at most
        self._margin: float = float('inf')  # bytes that the tightest step left without being slow for it
        self._measured = 0  # steps of all loaders
        self._maps = False  # the C library maps large blocks by themselves
        self._code = 0  # the most bytes of programs and libraries that were in memory

    def check(self, owner: Any, core: _core.Loader) -> Shortage | None:
        """Called before each batch of a loader: None, or why the step that uses it would not fit."""
        with self._lock:
            self._batches += 1
            steps = self._steps.get(owner)
            soon = time.monotonic() >= self._next_look or self._batches >= self._most
            if steps is not None and steps.measured > 1 and not soon and self._peak.bytes <= self._alarm:
                return None
            return self._look(owner, core)

    def expect(self, owner: Any, growth: int) -> None:
        """Takes a rehearsal's figure for the steps of a loader."""
        with self._lock:
            self._steps[owner] = _Steps()
            self._steps[owner].expected = self._steps[owner].growth = growth
            self._before = None  # the rehearsal is no step, …
            self._maps = False  # … and has ended with blocks that are not mapped
            self._peak.take()

    def forget(self, owner: Any) -> None:
        """Drops a loader's measurements, so that a script that catches the error can go on."""
        with self._lock:
            self._steps.pop(owner, None)

    def _look(self, owner: Any, core: _core.Loader) -> Shortage | None:
        began = time.monotonic()
        now = Headroom(*core.headroom())
        peak, *seconds = self._peak.take()
        steps = self._steps.setdefault(owner, _Steps())
        short = max(now.held + steps.growth, peak - now.cached) > now.free
        if short or steps.measured < 2:
            _core.trim()
            now = Headroom(*core.headroom())
            self._peak.take()  # so that the next step's peak is not what the heap kept of this one
        if self._before is None or seconds[0] > _THRASHING_SECONDS:
            self._code = max(self._code, code_bytes())
        thrashing = self._measure(now, peak, *seconds)
        if not self._maps and now.held + 2 * steps.growth > now.free:
            _core.map_large_blocks(True)
            self._maps = True
        self._next_look = began + (time.monotonic() - began) / (_SHARE_WHEN_SHORT if short else _SHARE_OF_TIME)
        # Steps may keep memory: the next look comes before they have taken half of what is left.
        kept = (now.held - self._before.held) / self._batches if self._before is not None else 0
        self._most = (now.free - now.held - steps.growth) / (2 * kept) if kept > 0 else float('inf')
        usual = now.held + now.cached + steps.growth
        self._alarm = usual + (now.free + now.cached - usual) // 4
        self._owner, self._before, self._batches = weakref.ref(owner), now, 0
        reserve: float = now.reserve
        if self._measured >= _FEW:  # then what steps left is enough, unless they grow
            reserve = min(reserve, max(self._margin, 2 * steps.rise))
        if thrashing:
            return Shortage(steps.growth, now._replace(reserve=max(now.reserve, self._code)), *seconds)
        if now.held + steps.growth > now.bound - reserve:
            return Shortage(steps.growth, now)
        return None

    def _measure(self, now: Headroom, peak: int, waited: float, computed: float) -> bool:
        """Adds the step since the last look. Returns whether, for lack of memory, it waited for code far longer than it computed."""
        before, owner = self._before, self._owner()
        if owner is None or before is None:
            return False
        steps = self._steps.setdefault(owner, _Steps())
        if self._batches == 1:
            # What the first step allocates and keeps (gradients, moments) is there already for the next one.
            held = max(before.held, now.held) if steps.measured == 0 else before.held
            steps.add(max(0, peak - now.cached - held))
            self._measured += 1
        short = now.held + steps.growth + self._code > now.bound
        slow = short and waited > self._batches * _THRASHING_SECONDS
        if not slow:
            self._margin = min(self._margin, max(now.bound - (peak - now.cached), now.reserve // 2))
        return slow and waited + computed > _SLOWER * computed


def code_bytes() -> int:
    """Bytes of programs and libraries in memory: of all files from which code is mapped."""
    files: dict[str, int] = {}
    code: set[str] = set()
    path = ''
    with open('/proc/self/smaps', encoding='utf-8', errors='replace') as mappings:
        for line in mappings:
            words = line.split(maxsplit=5)
            if not words[0].endswith(':'):
                path = words[5] if len(words) > 5 and words[4] != '0' else ''
                if 'x' in words[1]:
                    code.add(path)
            elif path and words[0] == 'Rss:':
                files[path] = files.get(path, 0) + (int(words[1]) << 10)
            elif path and words[0] == 'Anonymous:':
                files[path] -= int(words[1]) << 10
    return sum(size for path, size in files.items() if path in code)
