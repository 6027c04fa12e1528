"""Batches of a NeighborLoader, compared with the files of their dataset as NumPy maps them."""
import mmap
import pathlib

import numpy as np


def arrays_of(dataset):
    arrays = {path.stem: np.load(path, mmap_mode='r') for path in pathlib.Path(dataset).glob('*.npy')}
    for array in arrays.values():
        array._mmap.madvise(mmap.MADV_RANDOM)  # otherwise each entry reads megabytes ahead
    return arrays


def check_batch(batch, arrays, fanouts):
    """Every row, label and drawn edge is the files', and each node draws as many distinct entries of its list as it must."""
    nodes, edges, places = batch.n_id.numpy(), batch.edge_index.numpy(), batch.edge_position.numpy()
    assert np.unique(nodes).size == nodes.size
    assert np.array_equal(batch.x.numpy(), arrays['features'][nodes].astype(np.float32))
    assert np.array_equal(batch.y.numpy(), arrays['labels'][nodes[:batch.batch_size]])
    begins, ends = arrays['indptr'][nodes], arrays['indptr'][nodes + 1]
    assert np.array_equal(nodes[edges[0]], arrays['indices'][places])
    assert (begins[edges[1]] <= places).all() and (places < ends[edges[1]]).all()
    first, done = 0, 0
    for count, asked, fanout in zip(batch.num_sampled_edges, batch.num_sampled_nodes, fanouts):
        assert np.unique(places[done:done + count]).size == count
        degrees = (ends - begins)[first:first + asked]
        drawn = np.bincount(edges[1][done:done + count] - first, minlength=asked)
        assert np.array_equal(drawn, degrees if fanout < 0 else np.minimum(degrees, fanout))
        first, done = first + asked, done + count
    assert done == places.size
