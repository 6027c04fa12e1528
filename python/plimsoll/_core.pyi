from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, TypedDict, final

from typing_extensions import NotRequired, Unpack

# Addresses of arrays are integers, 0 for none; the arrays stay the caller's.

class _Links(TypedDict):
    sources: int  # (pairs) int64
    targets: int
    pairs: int
    path: str | None  # of a file of pairs, in place of the two arrays
    all_edges: bool  # of the dataset are the pairs
    rank: int
    num_ranks: int
    negatives: int  # plim_negatives_t
    amount: float
    source_sums: int  # (num_nodes) float64, running sums of weights
    target_sums: int
    no_edges: bool
    exclude: int  # plim_exclude_t

class _Seeds(TypedDict):
    """A split, or a list of nodes, or links; a plan needs only their number."""

    source: str  # as messages name them
    split: NotRequired[int]  # plim_split_t
    nodes: NotRequired[int]  # (count) int64
    count: NotRequired[int]
    links: NotRequired[_Links]
    times: int  # (count, or pairs) int64

class _Settings(_Seeds):
    """Of a stream."""

    fanout: Sequence[int]
    batch_size: int
    shuffle: bool
    share: int
    num_shares: int
    seed: int | None  # None: the loader's
    no_labels: bool

class _Recipe(TypedDict):
    """Of a loader and its streams."""

    dataset: Dataset
    row_bits: int  # of a value of x: 32, 16, or 0 for none
    replace: bool
    seed: int
    streams: Sequence[_Settings]
    batch_size: int
    fanout: Sequence[int]
    slots: int  # at least
    draw_by: str  # the column that decides draws; '': none
    disjoint: bool
    latest: bool

@final
class Job:
    @property
    def line(self) -> int: ...
    @property
    def reserved(self) -> int: ...
    @property
    def peak(self) -> int: ...
    def accounts(self) -> dict[str, int]: ...

@final
class Dataset:
    def info(self) -> dict[str, Any]: ...
    def files(self) -> list[tuple[str, str, tuple[int, ...], int]]: ...

@final
class Array:
    @property
    def address(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> object: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...

@final
class Batch:
    @property
    def last_part(self) -> bool: ...
    @property
    def epoch(self) -> int: ...
    @property
    def step(self) -> int: ...
    @property
    def num_seeds(self) -> int: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def num_pairs(self) -> int: ...
    def arrays(self, convert: Callable[[Any], Any] | None, copies: bool, /) -> dict[str, Any]: ...
    def sampled(self) -> tuple[list[int], list[int]]: ...

@final
class Stream:
    @property
    def seeds(self) -> int: ...
    @property
    def steps(self) -> int: ...
    def start(self, epoch: int, step: int, /) -> None: ...
    def reseed(self, address: int, count: int, /) -> None: ...
    def next(self) -> Batch | None: ...

@final
class Loader:
    @property
    def plan(self) -> dict[str, Any]: ...
    @property
    def held(self) -> int: ...
    @property
    def held_names(self) -> str: ...
    def stream(self, settings: _Settings, /) -> Stream: ...
    def memory(self) -> tuple[int, int]: ...
    def headroom(self) -> tuple[int, int, int, int, int, int, str]: ...
    def stats(self) -> dict[str, Any]: ...

@final
class Peak:
    @property
    def bytes(self) -> int: ...
    def take(self) -> tuple[int, float, float]: ...

def version() -> str: ...
def job(line: int, threads: int, log: Callable[[int, str], None] | None = None) -> Job: ...
def dataset(job: Job, path: str | PathLike[str]) -> Dataset: ...
def loader(*, job: Job, memory: int, **recipe: Unpack[_Recipe]) -> Loader: ...
def fits(*, job: Job, memory: int, **recipe: Unpack[_Recipe]) -> None: ...
def peak() -> Peak: ...
def trim() -> None: ...
def map_large_blocks(on: bool, /) -> None: ...
def limits(memory: int = 0, threads: int = 0) -> dict[str, Any]: ...
def size_parse(text: str, /) -> int: ...
def size_text(bytes: int, /) -> str: ...
def sample() -> dict[str, int]: ...
