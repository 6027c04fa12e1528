"""Makes datasets from arrays that come in chunks, without holding them.

A `Builder` appends each chunk to an `.npy` file in a hidden directory beside the dataset, and imports the files at the end under the
memory line. Python's memory stays that of one chunk. The disk holds the files (as many bytes as the arrays given; 8 or 16 bytes an edge)
and the dataset at once. The files are removed in any case.
"""
from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import itertools
import logging
import math
import os
import re
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from . import command, errors
from .errors import UsageError

if TYPE_CHECKING:
    from .dataset import Dataset

Array = Any  #: a NumPy array, a torch tensor, or anything with the buffer protocol
Path = str | os.PathLike[str]

_HEADER_BYTES = 128
_PIECE_BYTES = 8 << 20  # written at a time
_PARQUET_ROWS = 1 << 14
_SPLITS = ('train', 'valid', 'test')
_CALLED = {'edge_index': 'edges', 'edge_index_local': 'edges', 'node_feat': 'x', 'graph_label': 'y'}  # files, as messages call them
_ARGUMENTS = {'edge_index_local': 'edge_index', 'node_feat': 'x', 'graph_label': 'y', 'train_idx': 'train', 'valid_idx': 'valid',
              'test_idx': 'test', 'node_time': 'time'}  # and as the importer's messages do
_COLUMNS = ('edge_attr', 'edge_weight', 'edge_type', 'edge_time')  # of edges: PyG's names, and those of the files
_log = logging.getLogger('plimsoll')


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError('plimsoll.Builder needs NumPy: pip install numpy') from None
    return numpy


def _array(value: Array, what: str, kinds: str = 'biuf') -> Any:
    """The value as a NumPy array of numbers, without a copy where its memory can be shared."""
    numpy = _numpy()
    if hasattr(value, 'detach'):  # torch's
        if 'bfloat16' in str(value.dtype):
            raise UsageError(f'{what} is bfloat16, which .npy files do not have; give {what}.half() or {what}.float()')
        if str(value.layout) != 'torch.strided':
            raise UsageError(f'{what} is sparse; give {what}.to_dense(), in chunks of rows')
        value = value.detach().cpu().numpy()
    array = numpy.asarray(value)
    if array.dtype.kind not in kinds or array.dtype.itemsize > 8:
        wanted = {'iu': 'integers', 'biu': 'ids as integers or a mask of booleans'}.get(kinds, 'numbers of at most 64 bits')
        raise UsageError(f'{what} has the dtype {array.dtype}; give {wanted}')
    return array


class _Spool:
    """An .npy file that grows by rows of one dtype and width. Its header is written at the end."""

    def __init__(self, path: str, what: str):
        self.path = path
        self.what = what
        self.rows = 0
        self.bytes = _HEADER_BYTES
        self.dtype: Any = None
        self.width: tuple[int, ...] = ()
        self._file = open(path, 'xb', buffering=1 << 18)
        self._file.write(b'\0' * _HEADER_BYTES)

    def check(self, array: Any) -> None:
        """Refuses an array that differs from those before it."""
        dtype, width = array.dtype.newbyteorder('<'), array.shape[1:]
        if self.dtype is None:
            self.dtype, self.width = dtype, width
        elif dtype != self.dtype or width != self.width:
            raise UsageError(f'{self.what}: this chunk has the dtype {dtype} and rows of the shape {list(width)}, the first one '
                             f'{self.dtype} and {list(self.width)}; all must be alike')

    def append(self, array: Any) -> None:
        numpy = _numpy()
        row_bytes = self.dtype.itemsize * math.prod(self.width)
        step = max(1, _PIECE_BYTES // max(1, row_bytes))
        for at in range(0, len(array), step):
            piece = numpy.ascontiguousarray(array[at:at + step], dtype=self.dtype)
            if piece.size:
                self._file.write(piece.data)
        self.rows += len(array)
        self.bytes += len(array) * row_bytes

    def finish(self, shape: tuple[int, ...], fortran: bool = False) -> None:
        """Writes the header."""
        header = f"{{'descr': '{self.dtype.str}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
        self._file.seek(0)
        self._file.write(b'\x93NUMPY\x01\x00' + (_HEADER_BYTES - 10).to_bytes(2, 'little') + header.ljust(_HEADER_BYTES - 11) + b'\n')
        self._file.close()

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is not wanted any more
            self._file.close()


def _chunks(lock: int) -> str:
    """The directory of the chunks in an open one, whatever others do to the latter's name."""
    return f'/proc/self/fd/{lock}/chunks'


def _remove(directory: str, lock: int, process: int) -> None:
    if os.getpid() == process:  # a forked child has a copy of the builder, but not the files
        shutil.rmtree(_chunks(lock), ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(directory)
        os.close(lock)


def _remove_stale(pattern: str) -> None:
    """Removes what killed builders of the same dataset left: directories of this user that nobody has locked."""
    for directory in glob.glob(pattern):
        with contextlib.suppress(OSError):
            lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            if os.fstat(lock).st_uid != os.geteuid():
                os.close(lock)
                continue
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(lock)
                continue
            _remove(directory, lock, os.getpid())


def _make_directory(where: str, name: str) -> tuple[str, int]:
    """A new directory of this user alone, which holds an empty one for the chunks; its path, and its descriptor, locked."""
    outer = tempfile.mkdtemp(prefix=f'.{name}.builder-', dir=where)
    lock = os.open(outer, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    os.mkdir('chunks', 0o700, dir_fd=lock)
    if os.stat('chunks', dir_fd=lock).st_uid != os.fstat(lock).st_uid:
        os.rmdir('chunks', dir_fd=lock)
        os.close(lock)
        raise UsageError(f'{outer} was exchanged by another user; give tmp= a directory that only you can write to')
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return outer, lock


class Builder:
    """Builds the dataset directory `path` from chunks.

    Either one graph, by `add_edges`, `add_rows` and `add_labels` in any order and in chunks of any size, or many small graphs, by
    `add_graph`; then `split` and `finish`. As a context manager it finishes at the end of the block, and after an exception it leaves
    nothing behind. `memory` is the line of the import, `tmp` another directory for the temporary files, `edge_type_names` are the names of
    the types 0, 1, 2, ... of edges, and `options` are those of plimsoll-import(1), such as `symmetrise=True`, `nodes=1000`,
    `features='f16'`, `split=[0.6, 0.2, 0.2]`, `quiet=True`.

    Labels of a floating-point dtype are values, for regression, and integers are classes, as PyTorch's losses take them;
    `targets='classes'` or `targets='values'` says otherwise. Rows of an integer dtype stay integers, and batches have them as int64,
    unless `features='f32'` (or `'f16'`) says to convert them.

    >>> with plimsoll.Builder('web', memory='300M', quiet=True) as builder:
    ...     for chunk in range(4):
    ...         builder.add_edges(numpy.random.randint(0, 1000, (2, 5000)))
    ...         builder.add_rows(numpy.random.rand(250, 16).astype('float32'))
    ...         builder.add_labels(numpy.random.randint(0, 5, 250))
    ...     builder.split(train=range(600), valid=range(600, 800), test=range(800, 1000))
    >>> plimsoll.open('web').num_edges
    20000
    """

    def __init__(self, path: Path, *, memory: str | int | None = None, tmp: Path | None = None,
                 edge_type_names: Iterable[str] | None = None, **options: object):
        _numpy()
        self._type_names = _checked_names(edge_type_names)
        self.path = os.path.abspath(os.fspath(path))
        self._options = {**options, 'memory': memory, 'tmp': None if tmp is None else os.path.abspath(os.fspath(tmp))}
        command.check('import', self._options)
        parent, name = os.path.split(self.path)
        if os.path.lexists(self.path):
            raise UsageError(f'{self.path} exists already; give the path of a new dataset')
        where = os.path.abspath(os.fspath(tmp)) if tmp is not None else parent
        for directory in (parent, where):
            if not os.path.isdir(directory):
                raise UsageError(f'there is no directory {directory}')
        _remove_stale(os.path.join(glob.escape(where), f'.{glob.escape(name)}.builder-*'))
        self._place, lock = _make_directory(where, name)
        self._cleanup = weakref.finalize(self, _remove, self._place, lock, os.getpid())
        self._directory = _chunks(lock)  # messages and the dataset's provenance name it, so its last name has no random part
        self._spools: dict[str, _Spool] = {}
        self._kind = ''  # 'edges', 'graphs' once it is known
        self._columns: frozenset[str] | None = None  # of the edges, once some were added
        self._finished = False

    def __enter__(self) -> Builder:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.close()
        elif not self._finished:
            self.finish()

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk that the chunks take until the end of `finish`."""
        return sum(spool.bytes for spool in self._spools.values())

    def _take(self, chunks: Mapping[str, Any]) -> None:
        """Appends a chunk to each file: to all of them, or to none if one is refused."""
        if self._finished:
            raise UsageError('the builder is finished or closed; make another one')
        for name, array in chunks.items():
            if name not in self._spools:
                with self._disk_errors():
                    self._spools[name] = _Spool(os.path.join(self._directory, f'{name}.npy'), _CALLED.get(name, name))
            self._spools[name].check(array)
        with self._disk_errors():
            for name, array in chunks.items():
                self._spools[name].append(array)

    @contextlib.contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            size = command.size_text(self.spooled_bytes)
            self.close()
            if isinstance(error, errors.Error) or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise
            raise errors.DiskSpaceError(f'{self._place}: {error.strerror} after {size} of chunks, which are removed; '
                                        'give tmp= a directory with more space') from None

    def _one_kind(self, kind: str) -> None:
        if self._kind not in ('', kind):
            raise UsageError('a dataset is one graph, by add_edges, add_rows and add_labels, or many, by add_graph; not both')
        self._kind = kind

    def add_edges(self, src: Array, dst: Array | None = None, *, features: Array | None = None, weight: Array | None = None,
                  type: Array | None = None, time: Array | None = None) -> None:
        """Adds edges: the ids of their sources and targets, or an array of the shape (2, E) with both, as PyG's `edge_index`.

        They may carry `features` (E, F) or (E,), which stay integers if they are, a `weight` (E,), a `type` (E,) of 0, 1, 2, ... and a
        `time` (E,) of integers; then all chunks do.
        """
        src = _array(src, 'edge_index' if dst is None else 'src', 'iu')
        if dst is None:
            if src.ndim != 2 or src.shape[0] != 2:
                turned = '; give its transpose' if src.ndim == 2 and src.shape[1] == 2 else ''
                raise UsageError(f'edges have the shape (2, E), or are two arrays; this one has the shape {src.shape}{turned}')
            src, dst = src
        else:
            dst = _array(dst, 'dst', 'iu')
        if src.ndim != 1 or src.shape != dst.shape:
            raise UsageError(f'sources have the shape {src.shape}, targets {dst.shape}; both must be lists of one length')
        self._one_kind('edges')
        columns = self._edge_columns(len(src), features, weight, type, time)
        for pairs in self._pairs('edge_index', src, dst):
            self._take({'edge_index': pairs, **columns})
            columns = {}

    def _edge_columns(self, edges: int, *given: Array | None) -> dict[str, Any]:
        """The columns of some edges, checked, in the order of `_COLUMNS`."""
        if edges == 0:
            return {}
        kinds = ('biuf', 'biuf', 'iu', 'iu')
        columns = {name: _array(value, name, kind) for name, value, kind in zip(_COLUMNS, given, kinds, strict=True) if value is not None}
        for name, column in columns.items():
            if name != 'edge_attr' and column.ndim == 2 and column.shape[1] == 1:
                columns[name] = column = column[:, 0]
            if column.ndim not in ((1, 2) if name == 'edge_attr' else (1,)) or len(column) != edges or 0 in column.shape:
                wanted = '(E,) or (E, F)' if name == 'edge_attr' else '(E,)'
                raise UsageError(f'{name} has the shape {column.shape} for {edges} edges; it must be {wanted}')
        if self._columns is not None and self._columns != columns.keys():
            missing = ', '.join(sorted(self._columns ^ columns.keys()))
            raise UsageError(f'{missing}: some edges have it and others do not; give it for all of them, or for none')
        self._columns = frozenset(columns)
        return columns

    def _pairs(self, name: str, src: Any, dst: Any) -> Iterator[Any]:
        """Edges as rows of source and target, a piece at a time, in the type of the first ones."""
        numpy = _numpy()
        spool = self._spools.get(name)
        small = all(ids.dtype.itemsize < 4 or ids.dtype == numpy.int32 for ids in (src, dst))
        dtype = spool.dtype if spool is not None else numpy.dtype('<i4' if small else '<i8')
        for ids in (src, dst) if dtype.itemsize == 4 and not small and len(src) else ():
            for end in (int(ids.min()), int(ids.max())):
                if not numpy.iinfo(dtype).min <= end <= numpy.iinfo(dtype).max:
                    raise UsageError(f'the id {end} does not fit {dtype}, the type of the first edges; give int64 from the first chunk on')
        step = _PIECE_BYTES // 16
        for at in range(0, max(1, len(src)), step):
            yield numpy.stack([ids[at:at + step].astype(dtype, copy=False) for ids in (src, dst)], axis=1)

    def add_rows(self, x: Array) -> None:
        """Adds the features of the next nodes, of the shape (n, F); the first row is node 0's."""
        x = _array(x, 'x')
        if x.ndim != 2 or x.shape[1] == 0:
            raise UsageError(f'rows have the shape (n, F); this chunk has the shape {x.shape}')
        self._one_kind('edges')
        self._take({'x': x})

    def add_times(self, time: Array) -> None:
        """Adds the times of the next nodes, integers of the shape (n,)."""
        time = _array(time, 'time', 'iu')
        if time.ndim != 1:
            raise UsageError(f'times have the shape (n,); this chunk has the shape {time.shape}')
        self._take({'node_time': time})

    def add_labels(self, y: Array) -> None:
        """Adds the labels of the next nodes: integers are classes (n,), with -1 for none; floats are values (n,) or (n, T), with NaN."""
        y = _array(y, 'y')
        if y.ndim not in (1, 2):
            raise UsageError(f'labels have the shape (n,) or (n, T); this chunk has the shape {y.shape}')
        self._one_kind('edges')
        self._take({'y': y})

    def add_graph(self, edge_index: Array, x: Array | None = None, y: Array | None = None, num_nodes: int | None = None, *,
                  edge_attr: Array | None = None, edge_weight: Array | None = None, edge_type: Array | None = None,
                  edge_time: Array | None = None) -> None:
        """Adds a whole graph with ids from 0: edges (2, E), rows (n, F), and its label: an integer is a class, floats are values.

        Edges may carry the columns of `add_edges`; then those of all graphs do.
        """
        numpy = _numpy()
        edges = _array(edge_index, 'edge_index', 'iuf' if _empty(edge_index) else 'iu')
        if edges.size == 0:
            edges = numpy.zeros((2, 0), numpy.int64)
        if edges.ndim != 2 or edges.shape[0] != 2:
            raise UsageError(f'edge_index has the shape (2, E), not {edges.shape}')
        rows = None if x is None else _array(x, 'x')
        if rows is not None and (rows.ndim != 2 or rows.shape[1] == 0):
            raise UsageError(f'x has the shape (n, F), not {rows.shape}')
        if rows is None and num_nodes is None:
            raise UsageError('a graph without x needs num_nodes')
        nodes = len(rows) if rows is not None else int(num_nodes or 0)
        if num_nodes is not None and num_nodes != nodes:
            raise UsageError(f'num_nodes is {num_nodes}, but x has {nodes} rows')
        if edges.size and not 0 <= int(edges.min()) <= int(edges.max()) < nodes:
            raise UsageError(f'edge_index has the ids {int(edges.min())} to {int(edges.max())}, but the graph has {nodes} nodes, from 0')
        self._one_kind('graphs')
        number = self._spools['node_ptr'].rows if 'node_ptr' in self._spools else 0
        for name, file, given in (('x', 'node_feat', x), ('y', 'graph_label', y)):
            if number > 0 and (given is None) == (file in self._spools):
                raise UsageError(f'graph {number} has {"no " if given is None else ""}{name}, unlike those before it')
        columns = self._edge_columns(edges.shape[1], edge_attr, edge_weight, edge_type, edge_time)
        chunks: dict[str, Any] = {'node_ptr': numpy.array([nodes]), 'edge_ptr': numpy.array([edges.shape[1]]), **columns}
        if rows is not None:
            chunks['node_feat'] = rows
        if y is not None:
            label = _array(y, 'y')
            chunks['graph_label'] = label if label.shape == (1, 1) else label.reshape(-1) if label.size == 1 else label.reshape(1, -1)
        for pairs in self._pairs('edge_index_local', edges[0], edges[1]):
            self._take({'edge_index_local': pairs, **chunks})
            chunks = {}

    def split(self, *, train: Array | None = None, valid: Array | None = None, test: Array | None = None) -> None:
        """Sets the splits: ids of nodes (or graphs), each once, or masks of booleans. Further calls add ids, or go on with a mask."""
        for name, given in zip(_SPLITS, (train, valid, test), strict=True):
            if given is None:
                continue
            ids = _array(given if len(given) else _numpy().zeros(0, 'int64'), name, 'biu')
            if ids.ndim != 1:
                raise UsageError(f'{name} has the shape {ids.shape}; give one split: ids or a mask, of one dimension')
            if ids.dtype.kind == 'u' and ids.dtype.itemsize == 1:
                raise UsageError(f'{name} is uint8: give a mask as booleans, ids as int64')
            self._take({f'{name}_idx': ids})

    def _check_counts(self) -> None:
        rows = {name: spool.rows for name, spool in self._spools.items()}
        if not rows:
            raise UsageError('nothing was added')
        nodes = {what: rows[name] for name, what in (('x', 'rows'), ('y', 'labels'), ('node_time', 'times')) if name in rows}
        if len(set(nodes.values())) > 1 and 'node_ptr' not in rows:
            raise UsageError(f'{", ".join(f"{count} {what}" for what, count in nodes.items())} were added; each node has one')
        count = rows.get('node_ptr', rows.get('x', rows.get('y')))
        for name in _SPLITS:
            spool = self._spools.get(f'{name}_idx')
            if spool is not None and spool.dtype.kind == 'b' and count not in (None, spool.rows):
                raise UsageError(f'the mask {name} has {spool.rows} entries for {count} {"graphs" if self._kind == "graphs" else "nodes"}')

    def _write_type_names(self) -> None:
        if self._type_names:
            with open(os.path.join(self._directory, 'edge_type_names.csv'), 'w', encoding='utf-8') as file:
                for number, name in enumerate(self._type_names):
                    quoted = name.replace('"', '""')
                    file.write(f'{number},"{quoted}"\n')

    def _write_headers(self) -> None:
        if self._kind != 'graphs' and 'edge_index' not in self._spools:
            self._take({'edge_index': _numpy().zeros((0, 2), 'int64')})
        for name, spool in self._spools.items():
            if name.startswith('edge_index'):  # pairs: the array of the shape (2, E) by columns
                spool.finish((2, spool.rows), fortran=True)
            else:
                spool.finish((spool.rows, *spool.width))
        for name in ('node_ptr', 'edge_ptr'):
            if name in self._spools:
                _counts_to_offsets(self._spools[name].path)

    def finish(self) -> Dataset:
        """Imports what was added, removes the chunks, and opens the dataset."""
        from .training import make

        if self._finished:
            raise UsageError('the builder is finished or closed already')
        try:
            self._check_counts()
            _log.info('%s: %s of chunks in %s', self.path, command.size_text(self.spooled_bytes), self._place)
            with self._disk_errors():
                self._write_headers()
                self._write_type_names()
            labels = self._spools.get('y', self._spools.get('graph_label'))
            if labels is not None and labels.dtype.kind == 'f' and not self._options.get('targets'):
                self._options['targets'] = 'values'
                if _class_like(labels.path):
                    command.warn("y is a regression, as it is of floats, though it has only whole numbers: give targets='classes' "
                                 "for classes, or targets='values'")
            where, name = os.path.split(self._directory)
            return make('import', name, self.path, self._options, cwd=where, rename=_of_arguments)
        finally:
            self.close()

    def close(self) -> None:
        """Removes the chunks. Without `finish` there is no dataset."""
        self._finished = True
        for spool in self._spools.values():
            spool.close()
        self._cleanup()


def _of_arguments(message: str) -> str:
    """The importer's message, with arguments in place of the files of chunks."""
    return re.sub(r'chunks/(\w+)\.npy', lambda found: _ARGUMENTS.get(found[1], found[1]), message)


def _checked_names(names: Iterable[str] | None) -> list[str]:
    """Names that a line of a text can hold."""
    found = list(names or [])
    for name in found:
        if not isinstance(name, str) or not name.strip() or not name.isprintable():
            raise UsageError(f'edge_type_names has {name!r}; names are strings of printable letters')
    return found


def _empty(value: Array) -> bool:
    """Whether it has no elements; such an edge_index is often of floats, as torch.tensor([]) is."""
    shape = getattr(value, 'shape', None)
    return 0 in shape if shape is not None else len(value) == 0


def _counts_to_offsets(path: str) -> None:
    """Replaces a file of counts by one of offsets, a piece at a time."""
    numpy = _numpy()
    counts = numpy.load(path, mmap_mode='r')
    offsets = _Spool(path + '.offsets', 'offsets')
    offsets.check(counts)
    offsets.append(numpy.zeros(1, numpy.int64))
    last, step = 0, _PIECE_BYTES // 8
    for at in range(0, len(counts), step):
        piece = numpy.cumsum(counts[at:at + step]) + last
        last = int(piece[-1])
        offsets.append(piece)
    offsets.finish((offsets.rows,))
    os.replace(offsets.path, path)


def _class_like(path: str) -> bool:
    """Whether a file of floats is one column of whole numbers from 0 on; NaN, no label, may be among them."""
    numpy = _numpy()
    values = numpy.load(path, mmap_mode='r')
    if not len(values) or values.size != len(values):
        return False
    step = _PIECE_BYTES // 8
    for at in range(0, len(values), step):
        piece = values[at:at + step]
        if not (numpy.isnan(piece) | ((piece >= 0) & (piece == numpy.floor(piece)))).all():
            return False
    return True


_TAKEN = ('edge_index', 'x', 'y', 'num_nodes', 'batch', 'ptr', 'time', 'node_time', *_COLUMNS)
_MASKS = {
    'train': ('train_mask', 'train_idx'),
    'valid': ('val_mask', 'valid_mask', 'val_idx', 'valid_idx'),
    'test': ('test_mask', 'test_idx'),
}


def _parts(data: object) -> dict[str, Any]:
    """The attributes of a PyG Data object, or of a dict, that are set."""
    if hasattr(data, 'node_types'):
        raise UsageError(f'data is a HeteroData. {errors.ONE_TYPE}')
    found = data if isinstance(data, Mapping) else data.to_dict() if hasattr(data, 'to_dict') else None
    if found is None:
        raise UsageError(f'a graph is a PyG Data object or a dict with edge_index, x and y, not {type(data).__name__}')
    parts = {str(name): value for name, value in found.items() if value is not None}
    if 'edge_index' not in parts:
        matrix = next((key for key in ('adj_t', 'adj') if key in parts), None)
        remedy = f'; make it of {matrix}: torch_geometric.utils.to_edge_index' if matrix else ''
        raise UsageError(f'the graph has no edge_index{remedy}')
    return parts


def _times(parts: Mapping[str, Any], nodes: int | None) -> tuple[Any, Any]:
    """The times of the edges and of the nodes; `time` is of the nodes if it has as many entries, as PyG takes it."""
    of_edges, of_nodes, time = parts.get('edge_time'), parts.get('node_time'), parts.get('time')
    if time is None:
        return of_edges, of_nodes
    if nodes is None or len(time) == nodes:
        return of_edges, time if of_nodes is None else of_nodes
    if len(time) != parts['edge_index'].shape[1]:
        raise UsageError(f'time has {len(time)} entries for {nodes} nodes and {parts["edge_index"].shape[1]} edges')
    return time if of_edges is None else of_edges, of_nodes


def _left_out(names: Iterable[str]) -> None:
    if names:
        command.warn('not imported: ' + ', '.join(sorted(names)))


def _is_graph(data: object) -> bool:
    return isinstance(data, Mapping) or callable(getattr(type(data), 'to_dict', None))


def _split_of(parts: Mapping[str, Any], name: str) -> Any:
    key = next((key for key in _MASKS[name] if key in parts), None)
    if key is None:
        return None
    if getattr(parts[key], 'ndim', 1) != 1:
        raise UsageError(f'data.{key} has the shape {tuple(parts[key].shape)}, a column for each of several splits; choose one: '
                         f'data.{key} = data.{key}[:, 0]')
    return parts[key]


def from_pyg(data: Any, path: Path, *, train: Array | None = None, valid: Array | None = None, test: Array | None = None,
             memory: str | int | None = None, **options: Any) -> Dataset:
    """Makes a dataset of a PyG `Data` object, or of an iterable of them (many small graphs), and opens it.

    `x`, `y`, `edge_index`, `edge_attr`, `edge_weight`, `edge_type`, `edge_time`, `time` (of nodes or edges) and the masks `train_mask`,
    `val_mask`, `test_mask` are taken; `train`, `valid` and `test` give other splits, as ids or masks of nodes or graphs. Other attributes
    are left out with a warning. `edge_ids=True` keeps the number of each edge, so that batches have `e_id`.
    Floating-point `y` are values, for regression, and integers are classes; `targets='classes'` or `targets='values'` says otherwise, and
    spares the warning about floats that are all whole numbers or NaN.
    Integer `x` and `edge_attr` stay integers unless `features='f32'` says to convert them. An iterator is read once, and holds one graph
    at a time. `options` are those of `Builder`.

    >>> plimsoll.from_pyg(data, 'mine', quiet=True).num_nodes == data.num_nodes
    True
    """
    splits = {'train': train, 'valid': valid, 'test': test}
    if _is_graph(data):
        return _one_from_pyg(_parts(data), path, splits, {**options, 'memory': memory})
    try:
        graphs = iter(data)
    except TypeError:
        raise UsageError(f'data is a PyG Data object or an iterable of them, not {type(data).__name__}') from None
    first = list(itertools.islice(graphs, 2))
    if len(first) == 1:  # such as Planetoid: a list of one graph, with labels of nodes
        return _one_from_pyg(_parts(first[0]), path, splits, {**options, 'memory': memory})
    return _many_from_pyg(itertools.chain(first, graphs), path, splits, {**options, 'memory': memory})


def _one_from_pyg(parts: dict[str, Any], path: Path, splits: dict[str, Any], options: dict[str, Any]) -> Dataset:
    x, y = parts.get('x'), parts.get('y')
    nodes = parts.get('num_nodes')
    used = {*_TAKEN, *(key for keys in _MASKS.values() for key in keys)}
    known = len(x) if x is not None else nodes
    if y is not None and known is not None and len(y) != known:
        raise UsageError(f'y has {len(y)} entries, but the graph has {known} nodes; for labels of graphs give a list of graphs')
    _left_out(set(parts) - used)
    if x is None and nodes is not None and 'nodes' not in options:
        options['nodes'] = int(nodes)
    with Builder(path, **options) as builder:
        of_edges, of_nodes = _times(parts, known)
        builder.add_edges(parts['edge_index'], features=parts.get('edge_attr'), weight=parts.get('edge_weight'),
                          type=parts.get('edge_type'), time=of_edges)
        if of_nodes is not None:
            builder.add_times(of_nodes)
        if x is not None:
            builder.add_rows(x.reshape(-1, 1) if x.ndim == 1 else x)
        if y is not None:
            builder.add_labels(y)
        for name in _SPLITS:
            builder.split(**{name: splits[name] if splits[name] is not None else _split_of(parts, name)})
        made = builder.finish()
    if tuple(getattr(y, 'shape', ()))[1:] == (1,) and made.num_classes > 0:
        _log.warning('y has the shape [N, 1]; batch.y of classes has the shape [batch_size], without squeeze(1)')
    if getattr(x, 'ndim', 2) == 1:
        _log.warning('x has the shape [N]; batch.x has the shape [n, 1]: use batch.x.squeeze(1)')
    for name in _COLUMNS[1:]:
        if getattr(parts.get(name), 'ndim', 1) == 2:
            _log.warning('%s has the shape [E, 1]; batch.%s has the shape [e]: use batch.%s.unsqueeze(1)', name, name, name)
    return made


def _many_from_pyg(graphs: Iterable[Any], path: Path, splits: dict[str, Any], options: dict[str, Any]) -> Dataset:
    left_out: set[str] = set()
    with Builder(path, **options) as builder:
        for number, data in enumerate(graphs):
            try:
                parts = _parts(data)
                shape = tuple(getattr(parts.get('y'), 'shape', ()))
                if shape and shape[0] != 1:
                    raise UsageError(f'y has the shape {shape}; the label of a graph has the shape (1,) or (1, T). For labels of nodes '
                                     'make one graph of all: torch_geometric.data.Batch.from_data_list')
                _add_graph(builder, parts, parts.get('x'), parts.get('y'), None if 'x' in parts else _num_nodes(data, parts))
            except UsageError as error:
                raise UsageError(f'graph {number}: {error}') from None
            left_out |= set(parts) - set(_TAKEN)
        _left_out(left_out)
        builder.split(**splits)
        return builder.finish()


def _add_graph(builder: Builder, parts: Mapping[str, Any], x: Any, y: Any, nodes: int | None, edge_attr: str = 'edge_attr') -> None:
    of_edges, of_nodes = _times(parts, len(x) if x is not None else nodes)
    builder.add_graph(parts['edge_index'], x, y, nodes, edge_attr=parts.get(edge_attr), edge_weight=parts.get('edge_weight'),
                      edge_type=parts.get('edge_type'), edge_time=of_edges)
    if of_nodes is not None:
        builder.add_times(of_nodes)


def _num_nodes(data: object, parts: Mapping[str, Any]) -> int | None:
    nodes = parts.get('num_nodes', getattr(data, 'num_nodes', None))
    return None if nodes is None else int(nodes)


def from_pt_files(files: Path | Iterable[Path], path: Path, *, edge_index: str = 'edge_index', x: str | None = 'x',
                  y: str | list[str] | None = 'y', edge_attr: str = 'edge_attr', train: Array | None = None, valid: Array | None = None,
                  test: Array | None = None, memory: str | int | None = None, **options: Any) -> Dataset:
    """Makes a dataset of `.pt` files, one a graph, and opens it.

    Each file holds a dict of tensors, or (from torch 2.5 on) a PyG `Data` object; `edge_index`, `x`, `y` and `edge_attr` name its keys
    (the last one may be missing), and a list of keys in `y` makes several targets; `edge_weight`, `edge_type` and `edge_time` are taken
    too. `files` are read in the order given; those of a directory in the order of their names, with numbers in them counted
    (`graph_2.pt` before `graph_10.pt`). Files are mapped, one at a time, and only tensors are loaded (`weights_only=True`).

    >>> plimsoll.from_pt_files('graphs', 'mine', y=['homo', 'lumo'], train=range(8), quiet=True).num_targets
    2
    """
    torch = _torch()
    paths = _listed(files, '.pt')
    targets = [y] if isinstance(y, str) else list(y or [])
    taken = {*_TAKEN, edge_index, edge_attr, *targets, *([x] if x else [])}
    left_out: set[str] = set()
    with _data_allowed(torch), Builder(path, memory=memory, **options) as builder:
        for name in paths:
            graph = _load(torch, name)
            try:
                parts = _parts(_renamed(graph, edge_index))
                missing = [key for key in ([x] if x else []) + targets if key not in parts]
                if missing:
                    raise UsageError(f'there is no {" and no ".join(missing)}; the keys are {", ".join(parts)}')
                label = [_array(parts[key], key) for key in targets]
                joined = label[0] if len(label) == 1 else _numpy().concatenate([part.reshape(-1) for part in label]) if label else None
                _add_graph(builder, parts, parts[x] if x else None, joined, None if x else _num_nodes(graph, parts), edge_attr)
            except UsageError as error:
                raise UsageError(f'{name}: {error}') from None
            left_out |= set(parts) - taken
        _left_out(left_out)
        builder.split(train=train, valid=valid, test=test)
        return builder.finish()


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ImportError('from_pt_files() needs torch: pip install torch') from None
    return torch


def _data_allowed(torch: Any) -> contextlib.AbstractContextManager[Any]:
    """Lets torch load PyG's Data objects with weights_only: they hold nothing but tensors and names."""
    try:
        from torch_geometric.data.data import Data, DataEdgeAttr, DataTensorAttr
        from torch_geometric.data.storage import GlobalStorage

        classes = [Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]
        return torch.serialization.safe_globals(classes)  # type: ignore[no-any-return]
    except (ImportError, AttributeError):  # without PyG, or with a torch before 2.5: dicts alone
        return contextlib.nullcontext()


def _load(torch: Any, path: str) -> Any:
    """The tensors of a .pt file, mapped."""
    try:
        return torch.load(path, mmap=True, weights_only=True, map_location='cpu')
    except OSError:
        raise
    except Exception as error:  # pickle's and torch's, of many types, some of many lines
        found = re.search(r'Unsupported (?:\w+: GLOBAL|class) (\S+)', str(error))  # the latter before torch 2.4
        why = f'it holds a {found[1]}' if found else str(error).split('\n')[0]
        raise UsageError(f'{path} is not a file of tensors ({why}); save the graph as torch.save(data.to_dict(), file)') from None


def _renamed(data: Any, edge_index: str) -> Any:
    """A loaded graph as a dict with its edges under their usual name."""
    if edge_index == 'edge_index' or not _is_graph(data):
        return data
    parts = dict(data if isinstance(data, Mapping) else data.to_dict())
    if edge_index not in parts:
        raise UsageError(f'there is no {edge_index}; the keys are {", ".join(map(str, parts))}')
    parts['edge_index'] = parts.pop(edge_index)
    return parts


def _listed(files: Path | Iterable[Path], ending: str) -> list[str]:
    """The paths of files: of a directory those with that ending, by name."""
    if not isinstance(files, (str, os.PathLike)):
        found = [os.fspath(file) for file in files]
    elif os.path.isdir(files):
        names = [name for name in os.listdir(files) if name.endswith(ending) and not name.startswith('.')]
        names.sort(key=lambda name: [(int(part), '') if part.isdecimal() else (-1, part) for part in re.split(r'(\d+)', name)])
        found = [os.path.join(os.fspath(files), name) for name in names]
    else:
        found = [os.fspath(files)]
    if not found:
        raise UsageError(f'there are no {ending} files in {files}')
    return found


def from_parquet(edges: Path | Iterable[Path], path: Path, *, source: str = 'source', target: str = 'target',
                 nodes: Path | Iterable[Path] | None = None, node_id: str | None = None, features: str | list[str] | None = None,
                 labels: str | list[str] | None = None, edge_features: str | list[str] | None = None, edge_weight: str | None = None,
                 edge_type: str | None = None, edge_time: str | None = None, train: Array | None = None, valid: Array | None = None,
                 test: Array | None = None, feature_type: str | None = None, num_nodes: int | None = None, memory: str | int | None = None,
                 **options: Any) -> Dataset:
    """Makes a dataset of Parquet files, which are read in pieces, and opens it.

    `edges` has the columns `source` and `target` with ids from 0. `nodes` has a row for each node in the order of the ids; the column
    `node_id`, if named, must be 0, 1, 2, ... `features` are columns of numbers, or of lists of one length; the default is every column
    that has no other meaning; columns of integers are refused unless `feature_type` says what they are: `'f32'`, `'f16'`, or `'i64'` for
    categories. `labels` are one or several columns, classes if it is one of integers, else values; a null is unlabelled. `train`, `valid`
    and `test` are ids, masks, or names of columns of booleans in `nodes`. `edge_features`, `edge_weight`, `edge_type` and `edge_time` name
    columns of `edges`, which may be integers. Without the table of nodes, `num_nodes` counts nodes that have no edges too. Both tables may
    be a file, a directory or a list of files. Needs pyarrow.

    >>> plimsoll.from_parquet('edges.parquet', 'mine', nodes='nodes.parquet', labels='label', train='train', quiet=True).num_features
    3
    """
    try:
        import pyarrow.parquet
    except ImportError:
        raise ImportError('from_parquet() needs pyarrow: pip install pyarrow') from None
    splits = {'train': train, 'valid': valid, 'test': test}
    columns = {name: value for name, value in splits.items() if isinstance(value, str)}
    label_names = [labels] if isinstance(labels, str) else list(labels or [])
    others = [*([node_id] if node_id else []), *label_names, *columns.values()]
    if nodes is None and (others or features):
        raise UsageError('labels, features, node_id and names of columns need nodes=, the table of the nodes')
    with Builder(path, memory=memory, nodes=num_nodes, features=feature_type, **options) as builder:
        parts = [edge_features] if isinstance(edge_features, str) else list(edge_features or [])
        carried = {'weight': edge_weight, 'type': edge_type, 'time': edge_time}
        wanted = [source, target, *parts, *(name for name in carried.values() if name)]
        for batch in _batches(pyarrow.parquet, _listed(edges, '.parquet'), wanted):
            columns = {key: _column(batch, name) for key, name in carried.items() if name}
            if parts:
                columns['features'] = _numpy().concatenate([_rows(_column(batch, name)) for name in parts], axis=1)
            builder.add_edges(_column(batch, source), _column(batch, target), **columns)
        if nodes is not None:
            files = _listed(nodes, '.parquet')
            names = [features] if isinstance(features, str) else features
            if names is None:
                names = [name for name in pyarrow.parquet.read_schema(files[0]).names if name not in others]
            if feature_type is None:
                _refuse_integers(pyarrow.parquet.read_schema(files[0]), names)
            _add_nodes(builder, _batches(pyarrow.parquet, files, [*names, *others]), names, label_names, node_id, columns)
        builder.split(**{name: value for name, value in splits.items() if name not in columns})
        return builder.finish()


def _refuse_integers(schema: Any, features: list[str]) -> None:
    """Refuses feature columns of integers, or of lists of them: they may be ids or categories."""
    import pyarrow

    types = {name: schema.field(name).type for name in features if name in schema.names}
    whole = [name for name, kind in types.items() if pyarrow.types.is_integer(getattr(kind, 'value_type', kind))]
    if whole:
        raise UsageError(f"integers in the column{'s' if len(whole) > 1 else ''} {', '.join(whole)} may be ids or categories; give "
                         "feature_type='f32' to take them as numbers, feature_type='i64' as categories, or name other columns in features=")


def _add_nodes(builder: Builder, batches: Iterable[Any], features: list[str], labels: list[str], node_id: str | None,
               splits: Mapping[str, str]) -> None:
    numpy = _numpy()
    first = 0
    for batch in batches:
        if node_id is not None:
            ids = _column(batch, node_id)
            if not numpy.array_equal(ids, numpy.arange(first, first + len(ids))):
                raise UsageError(f'the column {node_id} is not 0, 1, 2, ... from row {first} on; sort the nodes by their ids')
        if features:
            builder.add_rows(numpy.concatenate([_rows(_column(batch, name)) for name in features], axis=1))
        if labels:
            y = numpy.concatenate([_rows(_column(batch, name, unlabelled=True)) for name in labels], axis=1)
            builder.add_labels(y[:, 0] if y.shape[1] == 1 else y)
        for split, name in splits.items():
            mask = _column(batch, name)
            if mask.dtype.kind != 'b':
                raise UsageError(f'the column {name} is {mask.dtype}; a split is a column of booleans')
            builder.split(**{split: mask})
        first += batch.num_rows


def _batches(parquet: Any, files: list[str], columns: list[str]) -> Iterator[Any]:
    for file in files:
        with parquet.ParquetFile(file) as table:
            missing = [name for name in columns if name not in table.schema_arrow.names]
            if missing:
                raise UsageError(f'{file} has no column {" or ".join(missing)}; its columns are {", ".join(table.schema_arrow.names)}')
            yield from table.iter_batches(batch_size=_PARQUET_ROWS, columns=list(dict.fromkeys(columns)))


def _rows(column: Any) -> Any:
    return column if column.ndim == 2 else column.reshape(-1, 1)


def _column(batch: Any, name: str, unlabelled: bool = False) -> Any:
    """A column as an array (n,), or (n, k) for lists. With `unlabelled`, a null is -1 or NaN; else it is refused."""
    import pyarrow.compute

    column = batch.column(name)
    lists = isinstance(column.type, (pyarrow.ListType, pyarrow.LargeListType, pyarrow.FixedSizeListType))
    if column.null_count and unlabelled and not lists:
        column = column.fill_null(-1 if pyarrow.types.is_integer(column.type) else float('nan'))
    values = column.flatten() if lists else column
    if column.null_count or values.null_count:
        raise UsageError(f'the column {name} has nulls')
    array = _array(values.to_numpy(zero_copy_only=False), f'the column {name}')
    if not lists:
        return array
    lengths = pyarrow.compute.list_value_length(column).to_numpy()
    if len(lengths) and (lengths != lengths[0]).any():
        raise UsageError(f'the column {name} has lists of {lengths.min()} to {lengths.max()} numbers; all must have one length')
    return array.reshape(len(column), -1)
