"""What batches are made of: torch_geometric's Data, or plain objects; torch's tensors, or NumPy's arrays."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import _core

__all__ = ['PlainBatch', 'Tools']


class PlainBatch:
    """A batch where torch_geometric is not installed: the same attributes, without its methods."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def to(self, device: Any, non_blocking: bool = False) -> PlainBatch:
        """The batch with its tensors on a device."""
        return self._with(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def clone(self) -> PlainBatch:
        """A copy in memory of its own."""
        return self._with(lambda tensor: tensor.clone() if hasattr(tensor, 'clone') else tensor.copy())

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(list(self.__dict__.items()))

    def _with(self, change: Callable[[Any], Any]) -> PlainBatch:
        return PlainBatch(**{key: change(value) if hasattr(value, 'shape') else value for key, value in self.__dict__.items()})

    def __repr__(self) -> str:
        parts = (f'{key}={list(value.shape) if hasattr(value, "shape") else value!r}' for key, value in self.__dict__.items())
        return f'PlainBatch({", ".join(parts)})'


def _at_once(data: Any) -> Callable[..., Any]:
    """A constructor of torch_geometric's Data that fills its storage with all attributes at once.

    Its own sets them one by one, which takes half of the time that a small batch costs in Python.
    """
    if '_mapping' not in vars(data().stores[0]):
        return data  # type: ignore[no-any-return]

    def make(**fields: Any) -> Any:
        made = data()
        made.stores[0]._mapping.update(fields)
        return made

    return make


class Tools:
    """The array library that batches come in: torch where it is installed, else NumPy."""

    def __init__(self) -> None:
        self.torch: Any = None
        self.library: Any = None
        self.data: Any = PlainBatch
        self.graphs: Any = PlainBatch
        try:
            import torch
        except ImportError:
            self._take_numpy()
            return
        from torch.utils.dlpack import from_dlpack

        self.torch = self.library = torch
        self.convert: Callable[[Any], Any] = from_dlpack
        self.capsules = True
        try:
            from torch_geometric.data import Batch, Data
        except ImportError:
            return
        self.data, self.graphs = _at_once(Data), Batch

    def _take_numpy(self) -> None:
        try:
            import numpy
        except ImportError:
            raise ImportError('a loader needs torch (pip install torch torch_geometric), or at least numpy, for its batches') from None
        self.library = numpy
        self.convert = numpy.from_dlpack
        self.capsules = False

    def arrays(self, batch: _core.Batch, copy: bool) -> dict[str, Any]:
        """The batch's arrays by the library's names."""
        if self.capsules:
            return batch.arrays(self.convert, copy)
        found = {name: self.convert(value) for name, value in batch.arrays(None, False).items()}
        return {name: value.copy() for name, value in found.items()} if copy else found
