"""Arrays on disk as tensors: mapped, or read.

Gathering rows from a mapped file is faster if the file is cached; pages are released after use, so that they do not count as memory of
this process. But if a mapped file becomes shorter, SIGBUS ends the process; a read fails with an error.
"""
from __future__ import annotations

import math
import mmap
import os
import warnings
from typing import Any, BinaryIO

import torch

from .dataset import DATA_OFFSET, Dataset
from .errors import DataError, StorageError, UnsupportedError

__all__ = ['Mapped', 'Stored']

_TYPES: dict[str, Any] = {
    '|i1': torch.int8, '|u1': torch.uint8, '<i2': torch.int16, '<i4': torch.int32, '<i8': torch.int64,
    '<u4': getattr(torch, 'uint32', None), '<f2': torch.float16, '<f4': torch.float32,
}
# A read of one byte maps up to 64 KiB around it: so many bytes of a file, or so many rows, are read before their pages are let go.
_HELD_BYTES = 32 << 20
_HELD_ROWS = _HELD_BYTES >> 16
_STAGED_BYTES = 4 << 20  # read before rows are copied out
_NEAR_BYTES = 16 << 10  # rows that lie closer are read as one: copying this much takes as long as one more read


def _of(dataset: Dataset, name: str) -> tuple[str, Any, tuple[int, ...], int]:
    """File, type, shape and offset of an array, such as 'features'."""
    dtype, shape = next((dtype, shape) for file, dtype, shape, _ in dataset.files() if file == f'{name}.npy')
    path = os.path.join(dataset.path, f'{name}.npy')
    if _TYPES[dtype] is None:
        raise UnsupportedError(f'{path} is uint32, which torch {torch.__version__} does not have: install torch 2.3 or later')
    return path, _TYPES[dtype], shape, DATA_OFFSET


class Mapped:
    """A file as a tensor, from a path or a descriptor, which is closed.

    writable: writes stay in this process; only then may the tensor be given to users. It must not be released.
    """

    def __init__(
        self, path: str | os.PathLike[str] | int, dtype: Any, shape: tuple[int, ...], offset: int = 0, writable: bool = False
    ) -> None:
        with open(path, 'rb') as file:
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if writable else mmap.ACCESS_READ)
        count = math.prod(shape)
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', message='The given buffer is not writable')
            values = torch.frombuffer(self._pages, dtype=dtype, count=count, offset=offset) if count else torch.empty(0, dtype=dtype)
        self.tensor = values.view(shape)
        self._row_bytes = self.tensor.element_size() * math.prod(shape[1:])
        self._small = len(self._pages) <= _HELD_BYTES

    @classmethod
    def of(cls, dataset: Dataset, name: str, writable: bool = False) -> Mapped:
        return cls(*_of(dataset, name), writable)

    def gather(self, rows: Any) -> Any:
        """A copy of some rows. Lets go of what was read, except of small files."""
        out = torch.empty((len(rows), *self.tensor.shape[1:]), dtype=self.tensor.dtype)
        if self._small:
            return torch.index_select(self.tensor, 0, rows, out=out)
        blocks = len(self._pages) // _HELD_BYTES + 1
        if blocks * _HELD_ROWS < len(rows):
            return self._gather_by_blocks(rows, blocks, out)
        for first in range(0, len(rows), _HELD_ROWS):
            piece = rows[first : first + _HELD_ROWS]
            torch.index_select(self.tensor, 0, piece, out=out[first : first + len(piece)])
            self.release()
        return out

    def _gather_by_blocks(self, rows: Any, blocks: int, out: Any) -> Any:
        """Many rows in the order of the file, which is let go of block by block."""
        ascending, order = torch.sort(rows)
        block_rows = max(1, _HELD_BYTES // self._row_bytes)
        bounds = torch.searchsorted(ascending, torch.arange(1, blocks + 1) * block_rows).tolist()
        first = 0
        for stop in [*bounds, len(rows)]:
            if stop > first:
                out[order[first:stop]] = torch.index_select(self.tensor, 0, ascending[first:stop])
                self.release()
            first = stop
        return out

    def release(self) -> None:
        """Lets go of the pages that were read. The kernel keeps them cached as long as nobody needs the memory."""
        self._pages.madvise(mmap.MADV_DONTNEED)


class Stored:
    """A file that is read.

    large: it is larger than memory, so the reads of several MiB are requested together before the first is waited for.
    """

    def __init__(
        self, file: str | os.PathLike[str] | BinaryIO, dtype: Any, shape: tuple[int, ...], offset: int = 0, large: bool = False
    ) -> None:
        self._file = open(file, 'rb', buffering=0) if isinstance(file, (str, os.PathLike)) else file
        self._dtype = dtype
        self._shape = shape
        self._offset = offset
        self._row_bytes = torch.empty((), dtype=dtype).element_size() * math.prod(shape[1:])
        self._large = large
        count = os.fstat(self._file.fileno()).st_size
        if count < offset + self._row_bytes * shape[0]:
            raise self._shorter(count)
        if large:
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_RANDOM)

    @classmethod
    def of(cls, dataset: Dataset, name: str, large: bool = False) -> Stored:
        return cls(*_of(dataset, name), large)

    def read(self, first: int, stop: int) -> Any:
        """A copy of the rows from first to stop."""
        buffer = bytearray((stop - first) * self._row_bytes)
        self._fill(memoryview(buffer), self._offset + first * self._row_bytes)
        return self._over(buffer, stop - first)

    def joined(self, first: int, stop: int, others: Any) -> Any:
        """A copy of the rows from first to stop, and of the other rows, which ascend, after them."""
        size = stop - first
        buffer = bytearray((size + len(others)) * self._row_bytes)
        self._fill(memoryview(buffer)[: size * self._row_bytes], self._offset + first * self._row_bytes)
        out = self._over(buffer, size + len(others))
        if len(others) > 0:
            self._gather(others, out[size:])
        return out

    def _gather(self, rows: Any, out: Any) -> None:
        """Reads ascending rows, in runs of rows that lie near each other."""
        if int(rows[0]) < 0 or int(rows[-1]) >= self._shape[0]:
            raise DataError(f'{self._file.name} has {self._shape[0]} rows, and an edge begins in node {int(rows[0])} or {int(rows[-1])}')
        most = max(1, _STAGED_BYTES // self._row_bytes)
        apart = (rows.diff() * self._row_bytes > _NEAR_BYTES) | ((rows // most).diff() > 0)
        begin = torch.cat([torch.zeros(1, dtype=torch.int64), apart.nonzero().view(-1) + 1])  # of a run, in `rows`
        end = torch.cat([begin[1:], torch.tensor([len(rows)])])
        first = rows[begin]
        total = (rows[end - 1] - first + 1).cumsum(0)  # rows of a run and of those before it
        buffer = bytearray(min(int(total[-1]), most) * self._row_bytes)
        staged = self._over(buffer, len(buffer) // self._row_bytes)
        run = before = 0
        while run < len(begin):
            stop = int(torch.searchsorted(total, before + most, right=True))
            starts = torch.cat([torch.zeros(1, dtype=torch.int64), total[run : stop - 1] - before])  # of runs, in `staged`
            self._read_runs(first[run:stop], starts, total[run:stop] - before, buffer)
            here = slice(int(begin[run]), int(end[stop - 1]))
            places = rows[here] + torch.repeat_interleave(starts - first[run:stop], end[run:stop] - begin[run:stop])
            torch.index_select(staged, 0, places, out=out[here])
            run, before = stop, int(total[stop - 1])

    def _read_runs(self, first: Any, starts: Any, stops: Any, buffer: bytearray) -> None:
        """Rows of the file from `first` on into rows `starts` to `stops` of a buffer."""
        view = memoryview(buffer)
        places = (first * self._row_bytes + self._offset).tolist()
        runs = list(zip(places, (starts * self._row_bytes).tolist(), (stops * self._row_bytes).tolist(), strict=True))
        if self._large:
            for place, begin, end in runs:
                os.posix_fadvise(self._file.fileno(), place, end - begin, os.POSIX_FADV_WILLNEED)
        for place, begin, end in runs:
            self._fill(view[begin:end], place)

    def _fill(self, view: memoryview, place: int) -> None:
        """Reads bytes of the file."""
        while len(view) > 0:
            try:
                count = os.preadv(self._file.fileno(), [view], place)
            except OSError as error:
                raise StorageError(f'{self._file.name}: {error.strerror}') from error
            if count == 0:
                raise self._shorter(os.fstat(self._file.fileno()).st_size)
            view, place = view[count:], place + count

    def _shorter(self, count: int) -> DataError:
        needed = self._offset + self._row_bytes * self._shape[0]
        return DataError(f'{self._file.name} has {count} bytes and must have {needed}: it was changed since the dataset was opened')

    def _over(self, buffer: bytearray, rows: int) -> Any:
        values = torch.frombuffer(buffer, dtype=self._dtype) if buffer else torch.empty(0, dtype=self._dtype)
        return values.view(rows, *self._shape[1:])
