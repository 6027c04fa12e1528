"""Batches on a GPU: copied on a stream of their own, one batch ahead of the model.

Slots are pinned memory only while all loaders of their dataset have `device=`: then the copy runs beside the model, and this module keeps
the slot until the event behind its copy has passed. Otherwise slots are pageable: CUDA has read such memory when
`.to('cuda', non_blocking=True)` returns, so a slot may be reused at once.

Nothing here has run on a GPU yet: the tests use a stream of their own making. `python -m plimsoll.gpu_check` checks it on yours.
"""
from __future__ import annotations

import collections
from collections.abc import Iterator
from typing import Any

__all__ = ['Pinning', 'Transfer']


class Pinning:
    """Memory that CUDA may read by itself, registered while it exists."""

    def __init__(self, cuda: Any) -> None:
        self.cudart = cuda.cudart()
        self.taken: tuple[int, int] | None = None  # address and size

    def take(self, address: int, size: int) -> None:
        """Registers the memory; leaves it pageable when CUDA refuses, which is only slower."""
        if (address, size) == self.taken:
            return
        self.drop()
        if size > 0 and int(self.cudart.cudaHostRegister(address, size, 0)) == 0:
            self.taken = address, size

    def drop(self) -> None:
        """Unregisters it: before the memory moves or ends."""
        if self.taken is not None:
            self.cudart.cudaHostUnregister(self.taken[0])
            self.taken = None


class Transfer:
    """Copies batches to a device on a side stream."""

    def __init__(self, device: Any, cuda: Any) -> None:
        self.device, self.cuda = device, cuda
        self.stream = cuda.Stream(device=device)
        self.reading: collections.deque[tuple[Any, Any]] = collections.deque()  # event, batch whose slot is being read

    def send(self, batch: Any) -> tuple[Any, Any]:
        """Starts the copy of a batch; returns the copy and the event behind it."""
        with self.cuda.stream(self.stream):
            moved = batch.to(self.device, non_blocking=True)
            event = self.cuda.Event()
            event.record(self.stream)
        self.reading.append((event, batch))
        return moved, event

    def receive(self, moved: Any, event: Any) -> Any:
        """The copy, for the current stream: its work waits for the copy, and the memory waits for its work."""
        current = self.cuda.current_stream(self.device)
        current.wait_event(event)
        for _, value in moved:
            if hasattr(value, 'record_stream'):
                value.record_stream(current)
        return moved

    def release(self, wait: bool = False) -> None:
        """Lets go of the slots that were read; with `wait`, of at least one."""
        if wait and self.reading:
            self.reading[0][0].synchronize()
        while self.reading and self.reading[0][0].query():
            self.reading.popleft()

    def ahead(self, batches: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """(mark, copy) for each (mark, batch), one batch ahead of the caller. Its end, also an early one, waits for all copies."""
        before: tuple[Any, Any, Any] | None = None
        try:
            for mark, batch in batches:
                sent = (mark, *self.send(batch))
                del batch
                self.release()
                if before is not None:
                    yield before[0], self.receive(before[1], before[2])
                before = sent
            if before is not None:
                yield before[0], self.receive(before[1], before[2])
        finally:
            while self.reading:
                self.release(wait=True)
