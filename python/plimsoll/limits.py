"""The limits on this process's memory and threads."""
from __future__ import annotations

from dataclasses import dataclass

from . import _core
from .errors import UsageError

__all__ = ['Limits', 'limit', 'size_of']

WITHOUT_UNIT = 1_000_000  # smaller numbers need a unit, as on the command line


def size_of(size: str | int | None) -> int:
    """The bytes of a size such as '4G', '300M' or a number; 0 for None.

    >>> size_of('1.5K')
    1536
    """
    if size is None:
        return 0
    if isinstance(size, str):
        found = _core.size_parse(size)
    elif isinstance(size, bool) or size < 1:
        raise ValueError(f'memory is {size!r}; it must be a number of bytes, or a size such as "4G"')
    else:
        found = int(size)
    if 0 < found < WITHOUT_UNIT and not str(size).strip()[-1:].isalpha():
        raise UsageError(f'memory: in which unit is {size}? Write "{size}G", "{size}M", "{size}K" or "{size}B"')
    return found


@dataclass(frozen=True)
class Limits:
    """What limits this process. `line_bytes` and `threads` are the smallest of `memory` and `all_threads`."""

    line_bytes: int
    line_source: str
    threads: int
    threads_source: str
    memory: list[tuple[str, int]]
    all_threads: list[tuple[str, int]]
    local_ranks: int
    login_node: bool
    login_why: str

    def __str__(self) -> str:
        rows = [(source, _core.size_text(value), value == self.line_bytes) for source, value in self.memory]
        rows += [(source, f'{value} threads', value == self.threads) for source, value in self.all_threads]
        return '\n'.join(f'{">" if chosen else " "} {value:>12}  {source}' for source, value, chosen in rows)


def limit(memory: str | int | None = None, threads: int | None = None) -> Limits:
    """Finds every limit on this process: control groups, Slurm, ulimits, the machine, and those that are given.

    >>> plimsoll.limit(memory='1M').line_bytes
    1048576
    """
    return Limits(**_core.limits(memory=size_of(memory), threads=threads or 0))
