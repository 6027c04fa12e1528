"""Small datasets of several shapes for proofs about training. Made once, in some seconds; 700 MB without the large one.

Few of the nodes are to train on or to be scored, so that an epoch takes a moment even where batches are cut into single seeds.
"""
import json
import shutil
import sys

import numpy as np

import prooflib

SHAPES = {  # papers100M's has few labels; the others are small enough for their many labels
    'papers': ['papers100M', '--scale', '0.003'],
    'spread': ['papers100M', '--scale', '0.005', '--spread', '1'],
    'arxiv': ['arxiv', '--scale', '0.03'],
    'reddit': ['reddit', '--scale', '0.015'],
}
LARGE = {'large': ['papers100M', '--scale', '0.12']}  # 4.4 GB: larger than any line of tools/prove never-killed
TINY = {  # for a machine that is emulated, floating point and all
    'tiny-papers': ['papers100M', '--scale', '0.00003'],
    'tiny-arxiv': ['arxiv', '--scale', '0.002'],
    'tiny-free': ['free', '--nodes', '1000', '--edges', '10000', '--features', '16', '--classes', '5'],
}


def save(directory, **arrays):
    directory.mkdir(parents=True)
    for name, array in arrays.items():
        np.save(directory / f'{name}.npy', array)


def splits(draw, count, train):
    order = draw.permutation(count)[:2 * train]
    return dict(zip(('train_idx', 'valid_idx', 'test_idx'), np.split(order, [train, train + train // 3])))


def write_graph(directory, nodes, edges, features, classes, seed, hubs=1):
    """One graph whose edges come from few nodes, by a power law; with hubs > 1 they lead to few, too, whose lists are then long."""
    draw = np.random.default_rng(seed)
    ends = np.stack([(nodes * draw.random(edges) ** 3).astype(np.int64), (nodes * draw.random(edges) ** hubs).astype(np.int64)])
    labels = draw.integers(0, classes, nodes)
    rows = draw.random((nodes, features), dtype=np.float32)
    rows[:, 0] += labels % 47  # a feature of many thousands would make losses diverge
    save(directory, edge_index=ends, node_feat=rows, node_label=labels, **splits(draw, nodes, 2000))


def write_small_graphs(directory, count):
    """Many small graphs with a target each: rings with chords, 10 to 40 nodes."""
    draw = np.random.default_rng(7)
    nodes = draw.integers(10, 41, count)
    node_ptr = np.concatenate([[0], np.cumsum(nodes)])
    local = np.arange(node_ptr[-1]) - np.repeat(node_ptr[:-1], nodes)
    wide = np.repeat(nodes, nodes)
    ring, chords = np.stack([local, (local + 1) % wide]), np.stack([local, (local * 7 + 3) % wide])
    save(directory, node_ptr=node_ptr, edge_ptr=2 * node_ptr, edge_index_local=np.stack([ring, chords], axis=2).reshape(2, -1),
         graph_label=draw.random(count).astype(np.float32), node_feat=draw.random((node_ptr[-1], 24), dtype=np.float32),
         **splits(draw, count, count // 10))


def make(directory, name, *words):
    """A dataset by a verb, unless it is there."""
    if not (directory / name).exists():
        prooflib.must(*words, '--quiet')


def make_imported(directory, name, write):
    """A dataset imported from arrays that `write` writes."""
    source = directory / f'{name}.source'
    if not (directory / name).exists():
        shutil.rmtree(source, ignore_errors=True)
        write(source)
        make(directory, name, 'import', source, directory / name)
        shutil.rmtree(source)


IMPORTED = {
    'dense': lambda path: write_graph(path, 40_000, 2_400_000, 100, 47, 1),
    'wide': lambda path: write_graph(path, 25_000, 300_000, 700, 12, 2),
    'classes': lambda path: write_graph(path, 6_000, 60_000, 32, 1_000, 3),
    'species': lambda path: write_graph(path, 6_000, 60_000, 32, 10_000, 4),
    'broad': lambda path: write_graph(path, 8_000, 80_000, 4_096, 12, 5),
    'hubs': lambda path: write_graph(path, 50_000, 1_000_000, 64, 20, 6, hubs=12),
    'graphs': lambda path: write_small_graphs(path, 20_000),
}


def make_all(directory, names=None, large=False):
    """Of those named (default: all but the tiny ones), what is not there yet is made; names and what dataset.json says of each."""
    generated = {**SHAPES, **LARGE, **TINY}
    names = names or [*SHAPES, *IMPORTED, *(LARGE if large else []), 'cora']
    for name in names:
        if name in generated:
            make(directory, name, 'generate', generated[name][0], directory / name, *generated[name][1:])
        elif name in IMPORTED:
            make_imported(directory, name, IMPORTED[name])
        elif (prooflib.test_data() / name).exists():
            make(directory, name, 'import', prooflib.test_data() / name, directory / name, '--symmetrise')
        elif not (directory / name).exists():
            print(f'no real data here (PLIMSOLL_TEST_DATA): {name} is left out', file=sys.stderr)
    return {name: json.loads((directory / name / 'dataset.json').read_text()) for name in names if (directory / name).exists()}
