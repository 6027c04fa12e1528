"""Batches of pairs of nodes, for link prediction, as PyTorch Geometric's LinkNeighborLoader yields them."""
from __future__ import annotations

import ast
import math
import mmap
import os
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .dataset import Dataset
from .errors import DataError, UsageError
from .integers import IntegerList, address_of
from .loader import NeighborLoader, _refuse, takes_dataloader

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from . import _core
    from .loader import DataLoaderArguments

__all__ = ['LinkNeighborLoader']

_MODES = {None: 0, 'binary': 1, 'triplet': 2}
_EXCLUDED = {None: 0, 'self': 1, 'reverse': 2}
_HEADER_MOST = 16384  # bytes of a .npy header, as in the library
_END_BYTES = 1 << 20
_BLOCK_VALUES = 1 << 20


class _Negatives:
    """How negatives are drawn, from all that PyG takes as neg_sampling: a NegativeSampling, its arguments, or a mode."""

    def __init__(self, mode: Any, amount: float = 1, src_weight: Any = None, dst_weight: Any = None) -> None:
        self.mode = getattr(mode, 'value', mode)
        self.amount, self.src_weight, self.dst_weight = amount, src_weight, dst_weight
        if self.mode not in _MODES:
            raise ValueError(f'neg_sampling is {mode!r}; use "binary" or "triplet"')
        if not 0 < amount < math.inf:
            raise ValueError(f'neg_sampling draws {amount} negatives for a pair; it must be more than 0')
        if self.mode == 'triplet' and amount != math.ceil(amount):
            raise ValueError(f'neg_sampling draws {amount} negatives for a triplet; it must be a whole number')
        if self.mode == 'triplet' and src_weight is not None:
            raise UsageError('neg_sampling="triplet" draws no sources: leave out src_weight')

    @classmethod
    def of(cls, given: Any, ratio: float | None) -> _Negatives:
        if ratio:
            return cls('binary', ratio)
        if isinstance(given, dict):
            return cls(**given)
        if isinstance(given, (tuple, list)):
            return cls(*given)
        if hasattr(given, 'amount'):
            return cls(given.mode, given.amount, given.src_weight, given.dst_weight)
        return cls(given)


def _running_sums(weights: Any, num_nodes: int, name: str) -> Any:
    """The running sums of weights of all nodes, as float64."""
    if weights is None:
        return None
    shape = tuple(getattr(weights, 'shape', (len(weights),)))
    if shape != (num_nodes,):
        raise UsageError(f'{name} has {" x ".join(map(str, shape))} entries, and the dataset {num_nodes} nodes')
    torch = sys.modules.get('torch')
    if torch is not None:
        return torch.as_tensor(weights).detach().to(device='cpu', dtype=torch.float64).cumsum(0)
    import numpy

    return numpy.cumsum(weights, dtype=numpy.float64)


class _PairsFile:
    """A .npy file of pairs. Only its header is read here; the library reads the pairs."""

    def __init__(self, path: Any) -> None:
        self.path = os.path.abspath(os.fsdecode(path))
        with open(self.path, 'rb') as file:
            start = file.read(12)
            wide = start[6:7] in (b'\x02', b'\x03')
            if start[:6] != b'\x93NUMPY':
                raise UsageError(f'edge_label_index={self.path!r} is not a .npy file: write the pairs with numpy.save')
            file.seek(12 if wide else 10)
            text = file.read(min(int.from_bytes(start[8 : 12 if wide else 10], 'little'), _HEADER_MOST))
        try:
            shape = tuple(ast.literal_eval(text.decode('latin-1').strip())['shape'])
            if not all(type(size) is int and 0 <= size < 2**61 for size in shape):
                raise ValueError(shape)
        except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
            raise DataError(f'{self.path}: its header is damaged') from None
        if len(shape) != 2 or 2 not in shape:
            raise UsageError(f'{self.path} has the shape {list(shape)}; pairs have the shape [2, pairs] or [pairs, 2]')
        self.count = shape[1] if shape[0] == 2 else shape[0]

    def checksum(self) -> list[int]:
        return _file_checksum(self.path)


class _Edges:
    """All edges of a dataset as pairs, none of which is in memory. Rank r of R has the edges r, r + R, …; where the division has a
    remainder, the last ranks take one of the first edges once more.
    """

    path = None

    def __init__(self, total: int, rank: int, ranks: int) -> None:
        self.total, self.rank, self.ranks = total, rank, ranks
        self.count = math.ceil(total / ranks)

    def of(self, ids: Any) -> Any:
        """The edges that are pairs `ids` of this rank."""
        return ids if self.ranks == 1 else (ids * self.ranks + self.rank) % self.total

    def column(self, values: Any) -> Any:
        """This rank's part of a column of all edges."""
        import numpy

        whole = numpy.asarray(values)
        own = numpy.empty(self.count, whole.dtype)
        part = whole[self.rank :: self.ranks]
        own[: len(part)] = part
        own[len(part) :] = whole[self.of(self.count - 1)]  # the edge that is there once more, if any
        return own


def _file_checksum(path: Any) -> list[int]:
    """A file's size, and a checksum of its first and last MiB: reading all of it may take as long as an epoch."""
    with open(path, 'rb') as file:
        size = os.fstat(file.fileno()).st_size
        check = zlib.crc32(file.read(_END_BYTES))
        file.seek(max(0, size - _END_BYTES))
        return [size, zlib.crc32(file.read(_END_BYTES), check)]


def _blocks(labels: Any) -> Iterator[Any]:
    """Yields labels in blocks of rows. After a block, the pages of a mapped file are dropped from memory."""
    step = max(1, _BLOCK_VALUES // max(1, math.prod(labels.shape[1:])))
    mapped = getattr(labels, '_mmap', None) if getattr(labels, 'mode', 'c') != 'c' else None
    for first in range(0, len(labels), step):
        yield labels[first : first + step]
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def _labels_of(path: Any) -> Any:
    """Labels of pairs in a .npy file, mapped."""
    import numpy

    return numpy.load(path, mmap_mode='r')


class LinkNeighborLoader(NeighborLoader):
    """PyTorch Geometric's LinkNeighborLoader over a dataset on disk, under a memory line.

    Arguments have PyG's names and meaning; those of its own are NeighborLoader's. y="all" gives the labels of all nodes of a batch,
    which has none otherwise.

    edge_label_index: the pairs, a tensor of shape [2, pairs]: sources, targets; or the path of a .npy file of integers, [2, pairs] or
                      [pairs, 2], of any size, whose pairs are read as batches need them. None: all edges of the dataset, in its own
                      order, in which edge_label and edge_label_time are then, too; input_id is the edge_position. Of R
                      ranks of torch.distributed, rank r has edges r, r + R, … in every epoch, also shuffled.
    edge_label_time:  their times, with time_attr: the trees of a pair and of its negatives, disjoint then, hold nothing later. With
                      time_attr="time" no negative is later than its pair either; after 1,000 draws it is the earliest node.
                      A .npy file of them is read whole.
    edge_label:       their labels, or a .npy file of them. With "binary" negatives, whose label is 0, they rise by 1 if one of them is 0.
    neg_sampling:     "binary", "triplet", or a dict or NegativeSampling with mode, amount, src_weight, dst_weight.
    exclude:          "self" removes from edge_index the edges between a batch's own pairs, so that a model cannot read the answer
                      there; "reverse" also those from target to source.
    neg_exclude:      "edges": no negative is an edge of the dataset, or a node with itself. Each is looked up in the list of its target.
                      With time_attr="time" one may be, where 100 draws of nodes that are not late find no other.

    Batches have the fields of NeighborLoader's, but for batch_size and y, and edge_label_index, edge_label and input_id; or, with
    "triplet", src_index, dst_pos_index, dst_neg_index and input_id. The first nodes of a batch are the distinct nodes of its pairs and
    negatives, ascending; with disjoint=True those of all pairs and negatives, in their order. Negatives depend on the seed, the epoch and
    the place of their pair in it alone; ranks of torch.distributed, which give pairs of their own, draw other ones.

        loader = plimsoll.LinkNeighborLoader(dataset, [10, 10], edge_label_index=pairs, neg_sampling='binary', batch_size=512, shuffle=True)
        for batch in loader:
            h = model(batch.x, batch.edge_index)
            source, target = batch.edge_label_index
            loss = F.binary_cross_entropy_with_logits((h[source] * h[target]).sum(-1), batch.edge_label)
    """

    _bare = True
    _input = 'pairs', 'edge_label_index'

    @takes_dataloader
    def __init__(
        self,
        data: Dataset,
        num_neighbors: Sequence[int],
        edge_label_index: Any = None,
        edge_label: Any = None,
        edge_label_time: Any = None,
        replace: bool = False,
        subgraph_type: str = 'directional',
        disjoint: bool = False,
        temporal_strategy: str = 'uniform',
        neg_sampling: Any = None,
        neg_sampling_ratio: float | None = None,
        time_attr: str | None = None,
        weight_attr: str | None = None,
        transform: Callable[[Any], Any] | None = None,
        transform_sampler_output: None = None,
        is_sorted: bool = False,
        filter_per_worker: bool | None = None,
        neighbor_sampler: None = None,
        directed: bool = True,
        *,
        batch_size: int = 1,
        shuffle: bool | None = None,
        drop_last: bool = False,
        generator: Any = None,
        memory: str | int | None = None,
        threads: int | None = None,
        x_dtype: Any = 'float32',
        y: str | None = None,
        exclude: str | None = None,
        neg_exclude: str | None = None,
        copy: bool = False,
        device: Any = None,
        seed: int | None = None,
        **dataloader: Unpack[DataLoaderArguments],
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ('self', '__class__', 'dataloader')}
        own = ('edge_label_index', 'edge_label', 'edge_label_time', 'neg_sampling', 'neg_sampling_ratio', 'y', 'exclude', 'neg_exclude')
        _refuse(y=(y if y != 'all' else None, None, 'use "all", or None for no labels of nodes'))
        if exclude not in _EXCLUDED:
            raise ValueError(f'exclude is {exclude!r}; use "self", "reverse" or None')
        if neg_exclude not in (None, 'edges'):
            raise ValueError(f'neg_exclude is {neg_exclude!r}; use "edges" or None')
        self.exclude, self.neg_exclude = exclude, neg_exclude
        self.edge_label_index = edge_label_index
        self.edge_label = edge_label
        self._negatives = _Negatives.of(neg_sampling, neg_sampling_ratio)
        if self._negatives.mode == 'triplet' and edge_label is not None:
            raise ValueError('neg_sampling="triplet" takes no edge_label: src_index, dst_pos_index and dst_neg_index say which is which')
        if (edge_label_time is None) != (time_attr is None):
            raise UsageError('edge_label_time, the time of each pair, and time_attr, "time" (of nodes) or "edge_time", go together')
        times = _labels_of(edge_label_time) if isinstance(edge_label_time, (str, os.PathLike)) else edge_label_time
        if times is not None:
            times = IntegerList.of(times, 0, 'edge_label_time').owner
        super().__init__(**{name: value for name, value in given.items() if name not in own}, y='all', input_time=times, **dataloader)
        self.__dict__.update((name, given[name]) for name in own)

    def _take_input(self, dataset: Dataset, input_nodes: Any) -> None:
        given = self.edge_label_index
        if isinstance(given, tuple) and given and isinstance(given[0], (str, tuple)):
            raise UsageError('edge_label_index=(type, pairs) is for heterogeneous graphs, which Plimsoll does not have: give pairs alone')
        self._file: Any = _PairsFile(given) if isinstance(given, (str, os.PathLike)) else None
        if given is None:
            self._file = _Edges(dataset.num_edges, *self._place())
        shape = (2, self._file.count) if self._file is not None else tuple(getattr(given, 'shape', ()))
        if len(shape) != 2 or shape[0] != 2:
            raise UsageError(f'edge_label_index must be a tensor of shape [2, pairs]; it is {list(shape) or type(given).__name__}')
        self._split, self._by_id, self._count = None, False, shape[1]
        if self._count == 0:
            raise UsageError('edge_label_index has no pairs')
        listed = self._file.total if given is None else self._count
        if self._times is not None and self._times.count != listed:
            raise UsageError(f'edge_label_time has {self._times.count} entries, and edge_label_index {listed} pairs')
        if self._times is not None and given is None and self._file.ranks > 1:
            self._times = IntegerList.of(self._file.column(self._times.owner), 0)
        self._input_nodes = given
        if self._file is None:
            nodes = self._nodes()
            nodes.check(self._total, 'edge_label_index')
            self._copies = nodes.address != address_of(given)
        negatives = self._negatives
        self._sums = [
            _running_sums(weights, self._total, name)
            for weights, name in ((negatives.src_weight, 'src_weight'), (negatives.dst_weight, 'dst_weight'))
        ]
        self._raised = 0
        self._labels_given = _labels_of(self.edge_label) if isinstance(self.edge_label, (str, os.PathLike)) else self.edge_label
        if self._labels_given is None:
            return
        if len(self._labels_given) != listed:
            raise UsageError(f'edge_label has {len(self._labels_given)} entries, and edge_label_index {listed} pairs')
        if negatives.mode == 'binary' and min(block.min() for block in _blocks(self._labels_given)) == 0:
            self._raised = 1

    def _seeds(self, address: int) -> _core._Seeds:
        negatives, (rank, ranks) = self._negatives, self._place()
        source_sums, target_sums = map(address_of, self._sums)
        return {
            'source': f'{self._count} links',
            'times': self._times.address if self._times is not None else 0,
            'links': {
                'sources': address,
                'targets': address + 8 * self._count if address else 0,
                'pairs': self._count,
                'path': self._file.path if self._file is not None else None,
                'all_edges': self.edge_label_index is None,
                'rank': rank,
                'num_ranks': ranks,
                'negatives': _MODES[negatives.mode],
                'amount': float(negatives.amount),
                'source_sums': source_sums,
                'target_sums': target_sums,
                'no_edges': self.neg_exclude == 'edges',
                'exclude': _EXCLUDED[self.exclude],
            },
        }

    def _place(self) -> tuple[int, int]:
        """This rank and the number of ranks, which give pairs of their own."""
        ranks = self._ranks() if self._tools.torch is not None else 1
        return (self._tools.torch.distributed.get_rank() if ranks > 1 else 0), ranks

    def _list(self) -> IntegerList | None:
        return super()._list() if self._file is None else None

    def _list_bytes(self) -> int:
        return 2 * super()._list_bytes() if self._file is None else 0

    def _nodes(self) -> Any:
        if self._file is not None:
            return self._file
        nodes = super()._nodes()
        if nodes.by_id or nodes.count != 2 * self._count:  # a mask, or a tensor that was changed
            raise UsageError(f'edge_label_index must be {self._count} pairs of integers')
        return nodes

    def _description(self) -> dict[str, Any]:
        description = super()._description()
        description['edge_label_index'] = description.pop('input_nodes')
        description['edge_label_time'] = description.pop('input_time')
        description['neg_sampling'] = [self._negatives.mode, float(self._negatives.amount)]
        description['edge_label'] = self._labels_checksum()
        description['exclude'] = self.exclude
        description['neg_exclude'] = self.neg_exclude
        description['ranks'] = list(self._place())
        sums = [each.numpy() if hasattr(each, 'numpy') else each for each in self._sums]
        description['weights'] = [None if each is None else zlib.crc32(each) for each in sums]
        return description

    def _labels_checksum(self) -> Any:
        labels = self.edge_label
        if labels is None:
            return None
        if isinstance(labels, (str, os.PathLike)):
            return _file_checksum(labels)
        import numpy

        if hasattr(labels, 'detach'):
            labels = labels.detach().cpu().contiguous().view(self._tools.torch.uint8)  # NumPy does not have all types
        check = 0
        for block in _blocks(labels):
            check = zlib.crc32(numpy.ascontiguousarray(block), check)
        return check

    def _add_seeds(self, fields: dict[str, Any], arrays: dict[str, Any], batch: _core.Batch) -> None:
        index, pairs = arrays['pair_index'], batch.num_pairs
        ids = arrays['pair_ids']
        fields['input_id'] = ids = self._file.of(ids) if self.edge_label_index is None else ids
        if self.y == 'all' and self.data.label_kind != 'none':
            fields['y'] = self._labels(arrays['nodes'])
        disjoint = 'batch' in fields
        if disjoint:
            fields['batch'] = fields['batch'] % pairs  # as PyG numbers the trees
        times = fields.pop('seed_time', None)
        if self._negatives.mode == 'triplet':
            negatives = index[2 * pairs :].reshape(-1, pairs).T if disjoint else index[2 * pairs :].reshape(pairs, -1)
            if times is not None:
                fields['seed_time'] = times[:pairs]
            fields.update(
                src_index=index[:pairs],
                dst_pos_index=index[pairs : 2 * pairs],
                dst_neg_index=negatives[:, 0] if negatives.shape[1] == 1 else negatives,
            )
        else:
            fields['edge_label_index'] = index
            if times is not None:
                fields['edge_label_time'] = times[: index.shape[1]]
            if self.edge_label is not None or self._negatives.mode is not None:
                fields['edge_label'] = self._edge_labels(ids, index.shape[1])

    def _edge_labels(self, ids: Any, count: int) -> Any:
        """The labels of pairs, and 0 for the negatives behind them."""
        library = self._tools.library
        labels = self._labels_given
        if labels is not None:
            labels = labels[ids]
            if library is self._tools.torch:
                labels = library.as_tensor(labels)
            labels = labels + self._raised if self._raised else labels
        if self._negatives.mode is None:
            return labels
        if labels is None:
            labels = library.ones(len(ids), dtype=library.float32)
        zeros = library.zeros((count - len(ids), *labels.shape[1:]), dtype=labels.dtype)
        return library.concatenate([labels, zeros])

    def __repr__(self) -> str:
        return f'LinkNeighborLoader({self.data!r}, num_neighbors={list(self._fanout)}, batch_size={self.batch_size}, batches={len(self)})'
