"""Datasets: directories of plain .npy files and a dataset.json, which are read and never changed."""
from __future__ import annotations

import contextlib
import functools
import html
import logging
import os
import stat
from typing import TYPE_CHECKING, Any

from . import _core
from .errors import ONE_TYPE, UsageError, in_words

if TYPE_CHECKING:
    import numpy

__all__ = ['Dataset', 'open']

_logger = logging.getLogger('plimsoll')
DATA_OFFSET = 4096  # where the values begin in every file of a dataset
_SPLITS = {'train': 'train', 'valid': 'valid', 'val': 'valid', 'validation': 'valid', 'test': 'test'}


#: columns of a dataset by the names that PyG's users give them
COLUMNS = {
    'edge_features': 'edge_attr',
    'edge_weight': 'edge_weight',
    'edge_type': 'edge_type',
    'edge_time': 'edge_time',
    'edge_id': 'e_id',
    'node_time': 'time',
}
#: and their names in it
COLUMN_OF = {attribute: column for column, attribute in COLUMNS.items()}

# Attributes of a Data object, and what to use.
_INSTEAD = {
    'x': "batches of plimsoll.NeighborLoader have x; ds.array('features') maps the file",
    'y': "use ds.array('labels'), or y of a batch",
    'edge_index': "batches of plimsoll.NeighborLoader have edge_index; ds.array('indptr') and 'indices' have all in-edges",
    'edge_attr': 'batches of plimsoll.NeighborLoader have edge_attr',
    'train_mask': "use ds.array('train'), or plimsoll.NeighborLoader(ds, [15, 10], 'train')",
    'val_mask': "use ds.array('valid'), or plimsoll.NeighborLoader(ds, [15, 10], 'valid')",
    'test_mask': "use ds.array('test'), or plimsoll.NeighborLoader(ds, [15, 10], 'test')",
}


def log(level: int, text: str) -> None:
    """Hands a line of the library to the logger 'plimsoll'."""
    _logger.log(logging.WARNING if level > 0 else logging.INFO, '%s', in_words(text))


def split_name(name: str) -> str:
    """The dataset's name of a split: 'val' and 'validation' are 'valid'."""
    if name not in _SPLITS:
        raise ValueError(f'there is no split {name!r}; use "train", "valid", "test", a tensor of nodes, a mask, or None for all nodes')
    return _SPLITS[name]


@functools.cache
def _tell_watch() -> None:
    """Tells the `plimsoll watch` around this process, if there is one, that the data is read from a dataset: advice for data in memory
    does not apply. Others may have put a link in the place of its file."""
    path = os.environ.get('PLIMSOLL_WATCH')
    if not path:
        return
    with contextlib.suppress(OSError):
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
                os.write(file, b'plimsoll: dataset\n')
        finally:
            os.close(file)


class Dataset:
    """A dataset on disk. Opening it reads only its description; `plimsoll.open` makes it."""

    path: str
    num_nodes: int
    num_edges: int
    num_features: int
    num_classes: int
    num_targets: int
    num_graphs: int
    num_labels: int
    num_train: int
    num_valid: int
    num_test: int
    max_degree: int
    num_edge_features: int
    num_edge_types: int
    bytes: int
    format: int
    index_type: str
    feature_type: str
    label_kind: str
    multi_label: bool
    feature_error: float
    fingerprint: str
    source: str
    options: str
    version: str

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        _tell_watch()
        self._core = _core.dataset(_core.job(line=0, threads=1, log=log), self.path)
        self._shared: Any = None  # a weak reference to what its loaders share
        for name, value in self._core.info().items():
            setattr(self, name, value)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Refuses a missing attribute; for those of a Data object, says what to use."""
            instead = f': {_INSTEAD[name]}' if name in _INSTEAD else ''
            raise AttributeError(f'a dataset on disk has no attribute {name!r}{instead}', name=name, obj=self)

    def files(self) -> list[tuple[str, str, tuple[int, ...], int]]:
        """Name, NumPy type, shape and bytes of each file."""
        return self._core.files()

    def array(self, name: str) -> numpy.ndarray[Any, Any]:
        """One array of the dataset, such as 'indptr', 'labels' or 'train', mapped and not read. Needs NumPy.

        It has the type of the file: labels that are classes may be int8, int16 or int32; batches have them as int64.
        """
        import numpy

        array: numpy.ndarray[Any, Any] = numpy.load(os.path.join(self.path, f'{name}.npy'), mmap_mode='r')
        return array

    @property
    def edge_type_names(self) -> list[str]:
        """The names of the types of edges, 0, 1, 2, ...; empty without names. Needs NumPy.

        >>> ds.edge_type_names[batch.edge_type[0]]
        'cites'
        """
        if not any(name == 'edge_type_text.npy' for name, *_ in self.files()):
            return []
        text, offsets = self.array('edge_type_text').tobytes(), self.array('edge_type_offsets').tolist()
        return [text[begin:end].decode(errors='replace') for begin, end in zip(offsets, offsets[1:], strict=False)]

    def num_split(self, split: str) -> int:
        """The number of nodes (graphs, in a dataset of many graphs) of a split."""
        return int(getattr(self, 'num_' + split_name(split)))

    def __reduce__(self) -> tuple[type[Dataset], tuple[str]]:
        return (Dataset, (self.path,))

    def __repr__(self) -> str:
        graphs = f'num_graphs={self.num_graphs}, ' if self.num_graphs else ''
        labels = f'num_targets={self.num_targets}' if self.label_kind == 'values' else f'num_classes={self.num_classes}'
        counts = f'num_nodes={self.num_nodes}, num_edges={self.num_edges}, num_features={self.num_features}'
        return f'Dataset({self.path!r}, {graphs}{counts}, {labels})'

    def _repr_html_(self) -> str:
        counted = 'graphs', 'nodes', 'edges', 'features', 'classes', 'targets', 'train', 'valid', 'test'
        shown = ['path', *('num_' + name for name in counted)]
        rows = [(name, getattr(self, name)) for name in shown if getattr(self, name)]
        cells = ''.join(f'<tr><th>{name}</th><td>{html.escape(str(value))}</td></tr>' for name, value in rows)
        return f'<table>{cells}</table>'


def open(path: str | os.PathLike[str]) -> Dataset:
    """Opens a dataset directory, as `plimsoll import`, `plimsoll generate`, `plimsoll.Builder` and `plimsoll.from_pyg` write it.

    >>> plimsoll.open('cora').num_nodes
    2708
    """
    if os.path.isfile(path):
        raise UsageError(
            f"{os.fspath(path)!r} is a file, not the directory of a dataset: plimsoll.from_pyg(data, 'DIR') writes a Data object that "
            "torch.load reads as one, plimsoll.import_(path, 'DIR') other files; then plimsoll.open('DIR')"
        )
    return Dataset(path)


def checked(dataset: Any) -> Dataset:
    """The argument, which must be a dataset."""
    if hasattr(dataset, 'node_types'):
        raise UsageError(f'data is a HeteroData. {ONE_TYPE}')
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f'data is {type(dataset).__name__}; it must be a dataset on disk: plimsoll.open(path). '
            'plimsoll.from_pyg(data, path) writes a Data object as one'
        )
    return dataset
