"""Imports OGB's datasets for link prediction: the graph, and the pairs of its split as .npy files."""
from __future__ import annotations

import glob
import os
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

from .dataset import open as open_dataset
from .errors import UsageError
from .training import import_

if TYPE_CHECKING:
    from .dataset import Dataset

Path = str | os.PathLike[str]

_SPLITS = ('train', 'valid', 'test')
_COLUMNS = ('weight', 'year')
_KEYS = ('edge', 'edge_neg', 'source_node', 'target_node', 'target_node_neg', *_COLUMNS)


def from_ogb_links(source: Path, path: Path, *, split: str | None = None, symmetrise: bool | None = None, **options: object) -> Dataset:
    """Makes a dataset of OGB's archive for link prediction, such as ogbl-collab or ogbl-citation2, and opens it.

    `source` is the zip or its directory. The graph is that of the archive, which has the training edges alone; where pairs have no
    direction (`edge` in the split), `symmetrise` is True, and equal edges, as of several years, become one: `duplicates='sum'` adds their
    weights. `split` names the split where there are several. In the dataset, `pairs/` gets
    the pairs of each split as [pairs, 2]: `train.npy`, `valid.npy`, `test.npy`; the negatives `valid_neg.npy` and `test_neg.npy`, which are
    [negatives, 2], or [pairs, candidates] where each pair has candidates for its target of its own; and, where they are given,
    `train_weight.npy`, `train_year.npy` and so on. `options` are those of `import_`. Needs torch, which holds a split's file while it is
    converted.

    >>> dataset = plimsoll.from_ogb_links('collab.zip', 'collab', quiet=True)
    """
    path = os.path.abspath(path)
    beside = os.path.dirname(path)
    if os.path.lexists(path):
        raise UsageError(f'{path} already exists; remove it or choose another target')
    unpacked = cast(Path, options.get('tmp') or beside)
    with _directory(os.fspath(source), unpacked) as root, tempfile.TemporaryDirectory(prefix='.dataset-', dir=beside) as own:
        pairs, made = os.path.join(own, 'pairs'), os.path.join(own, 'made')
        os.mkdir(pairs)
        directed = _convert(_find(root, split), pairs)
        import_(source, made, symmetrise=not directed if symmetrise is None else symmetrise, **options)
        os.rename(pairs, os.path.join(made, 'pairs'))
        os.rename(made, path)  # whole, or not at all
    return open_dataset(path)


@contextmanager
def _directory(source: str, beside: Path) -> Iterator[str]:
    """The archive's directory; of a zip one with its split alone, made in `beside`."""
    if os.path.isdir(source):
        yield source
        return
    with tempfile.TemporaryDirectory(prefix='.split-', dir=beside) as root, zipfile.ZipFile(source) as archive:
        for name in archive.namelist():
            if name.endswith('.pt') and 'split' in name.split('/')[:-1]:
                archive.extract(name, root)
        yield root


def _find(root: str, split: str | None) -> str:
    """The directory of the split."""
    pattern = os.path.join(glob.escape(root), '**', 'split', glob.escape(split or '') or '*', 'train.pt')
    found = sorted(os.path.dirname(file) for file in glob.glob(pattern, recursive=True))
    if len(found) != 1:
        names = ', '.join(os.path.basename(name) for name in found)
        raise UsageError(
            f'{root} has several splits: {names}; choose one with split=' if found
            else f'{root} is no archive of OGB for links: it has no split/{split or "<name>"}/train.pt; for other data use plimsoll.import_'
        )
    return found[0]


def _load(path: str) -> Mapping[str, Any]:
    """A split's arrays. OGB's files hold NumPy arrays, so torch is allowed what makes those, and nothing else."""
    try:
        import torch
    except ImportError:
        raise ImportError('from_ogb_links() needs torch: pip install torch') from None
    import numpy

    rebuild = numpy.empty(0).__reduce__()[0]
    classes = [type(numpy.dtype(kind)) for kind in ('int64', 'int32', 'float64', 'float32')]
    named = [(rebuild, f'numpy.{core}.multiarray._reconstruct') for core in ('core', '_core')]
    if tuple(int(part) for part in torch.__version__.split('.')[:2]) < (2, 6):  # which names an object as a file does
        raise ImportError('from_ogb_links() needs torch 2.6 or newer: older ones load no NumPy arrays without running code')
    with torch.serialization.safe_globals([*named, numpy.ndarray, numpy.dtype, *classes]):
        try:
            parts = torch.load(path, weights_only=True, map_location='cpu')
        except OSError:
            raise
        except Exception as error:  # pickle's and torch's, of many types
            raise UsageError(f'{path} is not a file of arrays: {(str(error) or type(error).__name__).splitlines()[0]}') from None
    if not isinstance(parts, dict):
        raise UsageError(f'{path} holds a {type(parts).__name__}, not a dict of arrays')
    return {name: numpy.asarray(value) for name, value in parts.items() if name in _KEYS}


def _pairs(path: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays to write, by the end of their names."""
    import numpy

    if 'edge' not in parts and not {'source_node', 'target_node'} <= parts.keys():
        raise UsageError(f'{path} has neither edge nor source_node and target_node; triples of knowledge graphs are not pairs')
    if 'edge' in parts:
        pairs = parts['edge']
    else:
        ends = [parts['source_node'], parts['target_node']]
        if ends[0].ndim != 1 or ends[0].shape != ends[1].shape:
            raise UsageError(f'{path}: source_node has the shape {list(ends[0].shape)}, and target_node {list(ends[1].shape)}')
        pairs = numpy.stack(ends, axis=1)
    made: dict[str, Any] = {'': pairs}
    count = pairs.shape[0] if pairs.ndim > 0 else 0
    shapes: dict[str, tuple[int | None, ...]] = {'': (count, 2)}  # None: any size
    if 'edge_neg' in parts:
        made['_neg'], shapes['_neg'] = parts['edge_neg'], (None, 2)
    elif 'target_node_neg' in parts:
        made['_neg'], shapes['_neg'] = parts['target_node_neg'], (count, None)
    for name in _COLUMNS:
        if name in parts:
            made[f'_{name}'], shapes[f'_{name}'] = parts[name], (count,)
    for end, array in made.items():
        fits = array.ndim == len(shapes[end]) and all(size in (None, has) for size, has in zip(shapes[end], array.shape, strict=True))
        if not fits or (end in ('', '_neg') and array.dtype.kind not in 'iu'):
            name = end[1:] or 'edge'
            raise UsageError(f'{path}: {name} is {array.dtype} of shape {list(array.shape)}, beside {count} pairs of integers')
    return made


def _convert(split: str, out: str) -> bool:
    """Writes the arrays of all files; returns whether pairs have a direction."""
    import numpy

    directed = False
    for name in _SPLITS:
        file = os.path.join(split, f'{name}.pt')
        parts = _load(file)
        for end, array in _pairs(file, parts).items():
            nodes = end in ('', '_neg')
            numpy.save(os.path.join(out, f'{name}{end}.npy'), numpy.ascontiguousarray(array, dtype=numpy.int64 if nodes else None))
        directed = directed or 'edge' not in parts
    return directed
