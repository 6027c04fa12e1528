"""For code that is built on PyTorch Geometric's own loaders: a feature store, a graph store and a sampler.

    from plimsoll.pyg import NeighborSampler, stores
    from torch_geometric.loader import NodeLoader

    ds = plimsoll.open('papers100M')
    sampler = NeighborSampler(ds, num_neighbors=[15, 10], memory='4G')
    loader = NodeLoader(stores(ds), node_sampler=sampler, input_nodes=torch.tensor(ds.array('train')), batch_size=1024, shuffle=True)

It draws the batches that plimsoll.NeighborLoader draws for the same seeds. That one is faster: it knows the order of the seeds and builds
batches ahead, while PyG's loaders ask for one batch at a time and copy it.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch_geometric import data as pyg_data
from torch_geometric.data import EdgeAttr, TensorAttr
from torch_geometric.sampler import BaseSampler, SamplerOutput

from .dataset import COLUMNS, Dataset, checked
from .errors import UsageError
from .loader import SeedLoader
from .mapped import Mapped

__all__ = ['FeatureStore', 'GraphStore', 'NeighborSampler', 'stores']

_ARRAYS = {'x': 'features', 'y': 'labels', 'time': 'node_time'}
_EDGES = {name: file for file, name in COLUMNS.items() if file.startswith('edge_') and name != 'e_id'}
_READ_ONLY = 'a dataset is read and never changed: plimsoll.Builder and plimsoll.from_pyg write a new one'


def _check(data: Any) -> Dataset:
    dataset = checked(data)
    if dataset.num_graphs:
        raise UsageError(f'{dataset.path} holds {dataset.num_graphs} graphs: use plimsoll.GraphLoader')
    return dataset


class FeatureStore(pyg_data.FeatureStore):  # type: ignore[misc]
    """The features `x`, the labels `y` and the times `time` of a dataset's nodes, on disk, and what its edges carry: `edge_attr`,
    `edge_weight`, `edge_type` and `edge_time`.

    For the nodes that plimsoll.pyg.NeighborSampler has drawn, `x` is there already, as are the columns of the edges that it has drawn
    with them (PyG asks for all attributes by nodes); any other rows are read from the mapped file, those of edges by their place in it.
    """

    def __init__(self, dataset: Dataset, x_dtype: Any = torch.float32) -> None:
        super().__init__()
        self._dataset = _check(dataset)
        self._x_dtype = getattr(torch, x_dtype) if isinstance(x_dtype, str) else x_dtype
        files = {name for name, _, _, _ in dataset.files()}
        self._files = {name: file for name, file in {**_ARRAYS, **_EDGES}.items() if f'{file}.npy' in files}
        self._names = list(self._files)
        self._mapped: dict[str, Mapped] = {}

    def get_all_tensor_attrs(self) -> list[Any]:
        return [TensorAttr(None, name) for name in self._names]

    def _get_tensor(self, attr: Any) -> Any:
        name, index = attr.attr_name, attr.index
        if attr.group_name is not None or name not in self._names:
            return None
        if index is None or isinstance(index, slice):
            return self._whole(name)[index if index is not None else slice(None)]
        drawn = getattr(index, '_plimsoll', {}).get(name)
        if drawn is None:
            if name not in self._mapped:
                self._mapped[name] = Mapped.of(self._dataset, self._files[name])
            count, what = (self._dataset.num_edges, 'edges') if name in _EDGES else (self._dataset.num_nodes, 'nodes')
            drawn = self._mapped[name].gather(self._rows(torch.as_tensor(index).reshape(-1), count, what))
        if name in ('x', 'edge_attr') and drawn.is_floating_point():
            return drawn.to(self._x_dtype)
        return drawn if drawn.is_floating_point() or name == 'edge_attr' else drawn.long()

    @staticmethod
    def _rows(index: Any, count: int, what: str) -> Any:
        """The ids of an index or a mask."""
        if index.dtype == torch.bool:
            if len(index) != count:
                raise UsageError(f'the mask has {len(index)} entries, and the dataset {count} {what}')
            return index.nonzero().view(-1)
        if index.is_floating_point() or index.is_complex():
            raise UsageError(f'the index is of {index.dtype}; it must be of integers or a mask')
        return index.long()

    def _whole(self, name: str) -> Any:
        """The mapped file: nothing is read before it is used. Classes that the file has in a smaller type are a copy."""
        whole = Mapped.of(self._dataset, self._files[name], writable=True).tensor
        if name == 'x' and whole.is_floating_point() and whole.dtype != self._x_dtype:
            raise UsageError(
                f'all of x as {self._x_dtype} would be a copy in memory of features stored as {whole.dtype}: ask for rows by their '
                f'index, or use stores(dataset, x_dtype={whole.dtype})'
            )
        return whole if whole.is_floating_point() or name != 'y' else whole.long()

    def _get_tensor_size(self, attr: Any) -> tuple[int, ...] | None:
        if attr.group_name is not None or attr.attr_name not in self._names:
            return None
        if attr.index is not None:
            return tuple(self._get_tensor(attr).shape)
        return next(shape for name, _, shape, _ in self._dataset.files() if name == f'{self._files[attr.attr_name]}.npy')

    def _put_tensor(self, tensor: Any, attr: Any) -> bool:
        raise UsageError(_READ_ONLY)

    def _remove_tensor(self, attr: Any) -> bool:
        raise UsageError(_READ_ONLY)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_mapped': {}}

    def __repr__(self) -> str:
        return f'FeatureStore({self._dataset!r})'


class GraphStore(pyg_data.GraphStore):  # type: ignore[misc]
    """The graph of a dataset. Its edges stay on disk: plimsoll.pyg.NeighborSampler draws from them there."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._dataset = _check(dataset)

    def get_all_edge_attrs(self) -> list[Any]:
        nodes = self._dataset.num_nodes
        return [EdgeAttr(edge_type=None, layout='csc', is_sorted=True, size=(nodes, nodes))]

    def _get_edge_index(self, edge_attr: Any) -> Any:
        raise UsageError(
            "the edges stay on disk: give PyG's loader a sampler that draws there, plimsoll.pyg.NeighborSampler(dataset, …), as "
            'node_sampler of NodeLoader or neighbor_sampler of NeighborLoader'
        )

    def _put_edge_index(self, edge_index: Any, edge_attr: Any) -> bool:
        raise UsageError(_READ_ONLY)

    def _remove_edge_index(self, edge_attr: Any) -> bool:
        raise UsageError(_READ_ONLY)

    def __repr__(self) -> str:
        return f'GraphStore({self._dataset!r})'


def stores(dataset: Dataset, x_dtype: Any = torch.float32) -> tuple[FeatureStore, GraphStore]:
    """What PyG's loaders take as `data`: what the dataset's nodes and edges carry, and its graph."""
    return FeatureStore(dataset, x_dtype), GraphStore(dataset)


class NeighborSampler(BaseSampler):  # type: ignore[misc]
    """Draws neighbourhoods for torch_geometric's NodeLoader(node_sampler=…), LinkLoader(link_sampler=…), NeighborLoader and
    LinkNeighborLoader(neighbor_sampler=…). PyG itself draws the negatives of links.

    Arguments mean what they mean in plimsoll.NeighborLoader, and all loaders and samplers of a dataset share one memory line. The draws
    of a node depend on (seed, epoch, hop, node). `epoch` counts up when a seed comes for the second time.
    """

    def __init__(
        self,
        data: Dataset,
        num_neighbors: Sequence[int],
        replace: bool = False,
        *,
        memory: str | int | None = None,
        threads: int | None = None,
        x_dtype: Any = 'float32',
        seed: int | None = None,
    ) -> None:
        self.data = _check(data)
        self.num_neighbors = num_neighbors
        self.replace = replace
        self.memory = memory
        self.threads = threads
        self.x_dtype = x_dtype
        self.seed = int(torch.empty((), dtype=torch.int64).random_().item()) if seed is None else seed
        self.epoch = 0
        self._seen = torch.zeros(0, dtype=torch.bool)  # by input_id, in this epoch
        self._loader: SeedLoader | None = None

    def sample_from_nodes(self, index: Any, **kwargs: Any) -> Any:
        self._begin(index, index.node)
        out = self._draw(index.node)
        out.metadata = (index.input_id, index.time)
        return out

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        from torch_geometric.sampler.neighbor_sampler import edge_sample

        self._begin(index, index.row)
        return edge_sample(index, lambda seeds, times: self._draw(seeds), self.data.num_nodes, False, None, neg_sampling)

    def _begin(self, index: Any, entries: Any) -> None:
        if torch.utils.data.get_worker_info() is not None:
            raise UsageError('num_workers must be 0: threads of the library draw, in this process and under one memory line')
        if index.time is not None or index.input_type is not None:
            raise UsageError("times and types of nodes are not drawn by: use torch_geometric's own stores and sampler")
        self._count_epoch(entries if index.input_id is None else index.input_id)

    def _draw(self, seeds: Any) -> Any:
        batch = self._loader_for(seeds).draw(seeds, self.epoch)
        node = batch.n_id
        node._plimsoll = {name: batch[name] for name in ('x', *_EDGES) if name in batch}  # for FeatureStore: this very tensor is its index
        row, col = batch.edge_index
        return SamplerOutput(
            node=node,
            row=row,
            col=col,
            edge=batch.e_id if 'e_id' in batch else None,  # its place in the source's edge_index, if the dataset keeps it
            num_sampled_nodes=batch.num_sampled_nodes,
            num_sampled_edges=batch.num_sampled_edges,
        )

    def _loader_for(self, seeds: Any) -> SeedLoader:
        """The loader that draws; a new one for more seeds than ever before, or for settings that were changed."""
        kept, numbers = self._loader, list(self.num_neighbors)
        if kept is None or len(seeds) > kept.batch_size or list(kept._fanout) != numbers:
            self._loader = None  # so that its stream is gone before the next is planned
            self._loader = kept = SeedLoader(
                self.data,
                numbers,
                input_nodes=seeds,
                replace=self.replace,
                batch_size=max(1, len(seeds)),
                memory=self.memory,
                threads=self.threads,
                x_dtype=self.x_dtype,
                copy=True,  # so that no slot is held when a later batch is larger than those before
                seed=self.seed,
            )
        return kept

    def _count_epoch(self, ids: Any) -> None:
        if len(ids) == 0:
            return
        missing = int(ids.max()) + 1 - len(self._seen)
        if missing > 0:
            self._seen = torch.cat([self._seen, torch.zeros(missing, dtype=torch.bool)])
        if self._seen[ids].any():
            self.epoch += 1
            self._seen.zero_()
        self._seen[ids] = True

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, '_loader': None}

    def __repr__(self) -> str:
        return f'NeighborSampler({self.data!r}, num_neighbors={list(self.num_neighbors)})'
