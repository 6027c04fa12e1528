"""The exceptions of the package. Each carries the library's message in the package's words, and its name for the error as `status`."""
from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .guard import Shortage

__all__ = [
    'BatchesHeldError',
    'DataError',
    'DiskSpaceError',
    'DivergedError',
    'Error',
    'MemoryLineError',
    'OutOfMemoryError',
    'StoppedError',
    'StorageError',
    'UnsupportedError',
    'UsageError',
    'in_words',
    'make',
    'of_command',
    'of_status',
]


class Error(RuntimeError):
    """Any error of the library."""

    status = 'error'
    needed_bytes: int | None = None  # memory or disk space that would be enough, where the error knows it
    available_bytes: int | None = None  # and what there is
    limit: str | None = None  # the limit that is too low: 'line', 'disk', 'memory.max' …
    file: str | None = None  # the path that the error is about


class MemoryLineError(Error, MemoryError):
    """The memory line would be exceeded: nothing was started, or the next batch is refused. `needed_bytes` would be enough."""

    status = 'budget'
    batch_size: int | None = None  # the largest that fits, by a rehearsal; 0: none
    _shortage: Shortage | None = None  # by which a loader is made smaller; None once the error reaches the script


class OutOfMemoryError(Error, MemoryError):
    """The system has no memory, although the line allows it."""

    status = 'no memory'


class DiskSpaceError(Error, OSError):
    """There is too little disk space, or a quota was reached."""

    status = 'disk space'


class StorageError(Error, OSError):
    """The operating system refused to open, read or write."""

    status = 'i/o'


class DataError(Error, ValueError):
    """A file is damaged or inconsistent."""

    status = 'data'


class UsageError(Error, ValueError):
    """The request is invalid; the message says what is possible."""

    status = 'usage'


class BatchesHeldError(UsageError):
    """Every slot of a loader holds a batch that is still in use, so there is no memory for the next one."""

    status = 'held'


class UnsupportedError(Error):
    """A valid request that this machine or this version cannot serve."""

    status = 'unsupported'


class StoppedError(Error):
    """The work was stopped."""

    status = 'stopped'


class DivergedError(Error, ArithmeticError):
    """A loss, a weight or a prediction is not finite."""

    status = 'diverged'


_CLASSES: dict[str, type[Error]] = {
    'disk full': DiskSpaceError,
    **{
        kind.status: kind
        for kind in (
            MemoryLineError,
            OutOfMemoryError,
            DiskSpaceError,
            StorageError,
            DataError,
            UsageError,
            BatchesHeldError,
            UnsupportedError,
            StoppedError,
            DivergedError,
        )
    },
}


#: what to do with a HeteroData, as messages say it
ONE_TYPE = (
    "Plimsoll has no types of nodes or edges yet: use torch_geometric's own loader; or, where types do not matter to the model, "
    'plimsoll.from_pyg(data.to_homogeneous(add_node_type=False, add_edge_type=False), path)'
)


#: settings of the library's structs that are other arguments here
_ARGUMENTS = {'fanout': 'num_neighbors', 'row_type': 'x_dtype'}


def in_words(message: str) -> str:
    """The library's message, which names settings in backquotes, with the arguments that set them.

    >>> in_words('reduce `batch_size` or `fanout`')
    'reduce `batch_size` or `num_neighbors`'
    """
    return re.sub(r'`(\w+)`', lambda found: f'`{_ARGUMENTS.get(found[1], found[1])}`', message)


def of_command(message: str) -> str:
    """The command's message, with the arguments that stand for its options here; commands in backquotes stay.

    >>> of_command('use --weight-decay 0, or see `plimsoll train --help`')
    'use weight_decay 0, or see `plimsoll train --help`'
    """

    def argument(found: re.Match[str]) -> str:
        name = (found[1] or '').replace('-', '_')
        return found[0] if not name else f'{name}_' if keyword.iskeyword(name) else name

    return re.sub(r'`[^`]*`|(?<![\w-])--([a-z][a-z-]*)', argument, message)


def of_status(status: str) -> type[Error]:
    """The class for the library's name of an error, such as 'budget'."""
    return _CLASSES.get(status, Error)


def make(status: str, message: str, needed: int = -1, available: int = -1, limit: str = '', file: str = '') -> Error:
    """The exception for the library's name of an error, with its message and figures; -1 and '': unknown."""
    error = of_status(status)(in_words(message))
    error.status = status
    error.needed_bytes = needed if needed >= 0 else None
    error.available_bytes = available if available >= 0 else None
    error.limit = limit or None
    error.file = file or None
    return error
