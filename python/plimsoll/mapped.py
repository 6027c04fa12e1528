"""Arrays on disk as tensors. Pages that were read can be let go, so that a file does not count as memory of this process."""
from __future__ import annotations

import math
import mmap
import os
import warnings
from typing import Any

import torch

from .dataset import Dataset

__all__ = ['DATA_OFFSET', 'Mapped']

DATA_OFFSET = 4096  # where the values begin in every file of a dataset
_TYPES = {'<i4': torch.int32, '<i8': torch.int64, '<f2': torch.float16, '<f4': torch.float32}
# A read of one byte maps up to 64 KiB around it: so many bytes of a file, or so many rows, are read before their pages are let go.
_HELD_BYTES = 32 << 20
_HELD_ROWS = _HELD_BYTES >> 16
_PAGE_BITS = 12
_NEAR = 4  # pages: reads that lie closer are one


class Mapped:
    """A file as a tensor.

    writable: writes stay in this process; only then may the tensor be given to users. It must not be released.
    large:    the file is larger than memory. Rows are then read by themselves, and many at once, instead of with their surroundings.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        dtype: Any,
        shape: tuple[int, ...],
        offset: int = 0,
        writable: bool = False,
        large: bool = False,
    ) -> None:
        with open(path, 'rb') as file:
            self._pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY if writable else mmap.ACCESS_READ)
        count = math.prod(shape)
        with warnings.catch_warnings():
            warnings.filterwarnings('ignore', message='The given buffer is not writable')
            values = torch.frombuffer(self._pages, dtype=dtype, count=count, offset=offset) if count else torch.empty(0, dtype=dtype)
        self.tensor = values.view(shape)
        self._offset = offset
        self._row_bytes = self.tensor.element_size() * math.prod(shape[1:])
        self._small = len(self._pages) <= _HELD_BYTES
        self._large = large
        if large:
            self._pages.madvise(mmap.MADV_RANDOM)

    @classmethod
    def of(cls, dataset: Dataset, name: str, writable: bool = False, large: bool = False) -> Mapped:
        """An array of a dataset, such as 'features'."""
        dtype, shape = next((dtype, shape) for file, dtype, shape, _ in dataset.files() if file == f'{name}.npy')
        return cls(os.path.join(dataset.path, f'{name}.npy'), _TYPES[dtype], shape, DATA_OFFSET, writable, large)

    def joined(self, first: int, stop: int, others: Any) -> Any:
        """A copy of the rows from first to stop, and of the other rows after them."""
        out = torch.empty((stop - first + len(others), *self.tensor.shape[1:]), dtype=self.tensor.dtype)
        if self._large:
            begin, end = (self._offset + row * self._row_bytes for row in (first, stop))
            self._prefetch(begin >> _PAGE_BITS, (end - 1) >> _PAGE_BITS)
        out[: stop - first] = self.tensor[first:stop]
        if not self._small:
            self.release()
        self.gather(others, out[stop - first :])
        return out

    def gather(self, rows: Any, out: Any = None) -> Any:
        """A copy of some rows; `rows` ascend where the file is large. Lets go of what was read, except of small files."""
        if out is None:
            out = torch.empty((len(rows), *self.tensor.shape[1:]), dtype=self.tensor.dtype)
        if self._small:
            return torch.index_select(self.tensor, 0, rows, out=out)
        blocks = len(self._pages) // _HELD_BYTES + 1
        if not self._large and blocks * _HELD_ROWS < len(rows):
            return self._gather_by_blocks(rows, blocks, out)
        for first in range(0, len(rows), _HELD_ROWS):
            piece = rows[first : first + _HELD_ROWS]
            if self._large:
                self._prefetch_rows(piece)
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

    def _prefetch_rows(self, rows: Any) -> None:
        first = (rows * self._row_bytes + self._offset) >> _PAGE_BITS
        last = (rows * self._row_bytes + (self._offset + self._row_bytes - 1)) >> _PAGE_BITS
        apart = (first[1:] - last[:-1] > _NEAR).nonzero().view(-1)
        begins = [0, *(apart + 1).tolist()]
        ends = [*apart.tolist(), len(rows) - 1]
        for begin, end in zip(first[begins].tolist(), last[ends].tolist(), strict=True):
            self._prefetch(begin, end)

    def _prefetch(self, first_page: int, last_page: int) -> None:
        if last_page >= first_page:
            self._pages.madvise(mmap.MADV_WILLNEED, first_page << _PAGE_BITS, (last_page - first_page + 1) << _PAGE_BITS)
