"""Lists of integers that a script gives, as the library reads them."""
from __future__ import annotations

import array
import ctypes
import os
import sys
import zlib
from collections.abc import Sequence
from typing import Any

from .dataset import DATA_OFFSET, Dataset
from .errors import DataError, UsageError

__all__ = ['IntegerList', 'address_of']


def address_of(array: Any) -> int:
    """Where an array or a tensor lies; 0 for anything else."""
    if hasattr(array, 'data_ptr'):
        return int(array.data_ptr())
    return int(array.ctypes.data) if hasattr(array, 'ctypes') else 0


class IntegerList:
    """A list of 64-bit integers, such as ids or times: its memory, address and length."""

    def __init__(self, owner: Any, address: int, count: int, by_id: bool = False) -> None:
        self.owner, self.address, self.count = owner, address, count
        self.by_id = by_id  # input_id is the node itself

    @classmethod
    def of(cls, nodes: Any, num_nodes: int, name: str = 'input_nodes') -> IntegerList:
        """From a tensor or array of indices, a mask, or a sequence of integers; None lists all nodes."""
        by_id = nodes is None
        torch, numpy = sys.modules.get('torch'), sys.modules.get('numpy')
        library = torch if torch is not None else numpy  # a loader has imported one of them
        if nodes is None and library is not None:
            nodes = library.arange(num_nodes)
        if torch is not None and isinstance(nodes, torch.Tensor):
            if nodes.dtype == torch.bool:
                nodes, by_id = _mask(nodes.view(-1), num_nodes).nonzero().view(-1), True
            elif nodes.is_floating_point():
                raise TypeError(f'{name} is a tensor of {nodes.dtype}; it must be of integers or a mask')
            nodes = nodes.detach().reshape(-1).to(device='cpu', dtype=torch.int64).contiguous()
            return cls(nodes, nodes.data_ptr(), nodes.numel(), by_id)
        if numpy is not None and isinstance(nodes, numpy.ndarray):
            if nodes.dtype == bool:
                nodes, by_id = numpy.flatnonzero(_mask(nodes.reshape(-1), num_nodes)), True
            elif not numpy.issubdtype(nodes.dtype, numpy.integer):
                raise TypeError(f'{name} is an array of {nodes.dtype}; it must be of integers or a mask')
            nodes = numpy.ascontiguousarray(nodes.reshape(-1), dtype=numpy.int64)
            return cls(nodes, nodes.ctypes.data, nodes.size, by_id)
        if isinstance(nodes, tuple) and nodes and isinstance(nodes[0], str):
            raise UsageError('input_nodes=(type, nodes) is for heterogeneous graphs, which Plimsoll does not have: give the nodes alone')
        if not isinstance(nodes, Sequence) or (len(nodes) > 0 and isinstance(nodes[0], bool)):
            raise TypeError(f'{name} is {type(nodes).__name__}; use "train", "valid", "test", a tensor of nodes, a mask, or None')
        listed = array.array('q', nodes)
        return cls(listed, listed.buffer_info()[0], len(listed), by_id)

    @classmethod
    def of_split(cls, dataset: Dataset, split: str, count: int) -> IntegerList:
        """The nodes of a split, read from its file, and again from the first on, until they are `count`."""
        listed, own = array.array('q', [0]) * count, dataset.num_split(split)
        path = os.path.join(dataset.path, f'{split}.npy')
        with open(path, 'rb') as file, memoryview(listed)[:own].cast('B') as view:
            file.seek(DATA_OFFSET)
            if file.readinto(view) < len(view):
                raise DataError(f'{path} is shorter than when the dataset was opened')
        return cls._filled(listed, own)

    def repeated(self, count: int) -> IntegerList:
        """The list, repeated from its first entry on until it has `count` entries."""
        if self.count == count:
            return self
        listed = array.array('q', [0]) * count
        ctypes.memmove(listed.buffer_info()[0], self.address, 8 * self.count)
        return self._filled(listed, self.count)

    @classmethod
    def _filled(cls, listed: array.array[int], own: int) -> IntegerList:
        """A list of which the first entries, `own` of them, are repeated in the rest."""
        for i in range(own, len(listed)):
            listed[i] = listed[i - own]
        return cls(listed, listed.buffer_info()[0], len(listed))

    def check(self, num_nodes: int, name: str = 'input_nodes') -> None:
        """Refuses a list with a node that the dataset does not have."""
        whole = self.owner
        smallest, largest = (int(whole.min()), int(whole.max())) if hasattr(whole, 'min') else (min(whole), max(whole))
        if smallest < 0 or largest >= num_nodes:
            raise UsageError(f'{name} names node {smallest if smallest < 0 else largest}; the dataset has nodes 0 to {num_nodes - 1}')

    def checksum(self) -> int:
        return zlib.crc32((ctypes.c_char * (8 * self.count)).from_address(self.address)) if self.count else 0


def _mask(mask: Any, num_nodes: int) -> Any:
    if mask.shape[0] != num_nodes:
        raise UsageError(f'the mask has {mask.shape[0]} entries, and the dataset {num_nodes} nodes')
    return mask
