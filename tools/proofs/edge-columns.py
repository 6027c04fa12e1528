"""Proves that features of edges are imported, read and trained on at full size in little memory.

    tools/prove edge-columns [--scale 1] [--memory 4G] [--dir DIR] [--only import|train] [--json FILE]

import: a directory with edge_index.npy (int64) and edge_attr.npy (8 x f16) of a quarter of papers100M's edges is imported in a real cgroup of half of
--memory; of a million random entries the features are those of the source's edge.
train: papers100M's shape with 16 features a node and 8 an edge (f16), workload A's recipe (batch 128, fan-out 3,2) with GAT, 16 hidden units in 4 heads,
in a real cgroup of --memory, with --edge-features and without, by turns: nothing is killed, the peak is within the plan; steps a second of the second
epoch; and the bytes that columns add to the reads of both epochs, which is printed.
Takes an hour, 48 GB of disk, and root; exits 77 without. Datasets are removed. Results: bench/results/edge-columns.json.
"""
import pathlib
import shutil
import sys

import numpy as np
import prooflib

NODES, EDGES, FEATURES = 111_059_956, 1_615_685_872, 8
CHUNK = 1 << 24
A = ['--model', 'gat', '--heads', 4, '--hidden', 16, '--batch', 128, '--fanout', '3,2']


def columns_of(first, count, nodes):
    """Edges and their features, by their number in the source alone."""
    draw = np.random.default_rng(first)
    ends = np.stack([draw.integers(0, nodes, count), (nodes * draw.random(count) ** 3).astype(np.int64)])
    return ends, draw.standard_normal((count, FEATURES), dtype=np.float32).astype(np.float16)


def write_source(folder, nodes, edges):
    folder.mkdir(parents=True)
    ends = np.lib.format.open_memmap(folder / 'edge_index.npy', 'w+', np.int64, (2, edges))
    features = np.lib.format.open_memmap(folder / 'edge_attr.npy', 'w+', np.float16, (edges, FEATURES))
    for first in range(0, edges, CHUNK):
        last = min(first + CHUNK, edges)
        ends[:, first:last], features[first:last] = columns_of(first, last - first, nodes)
    del ends, features
    np.save(folder / 'node_feat.npy', np.zeros((nodes, 2), np.float16))
    np.save(folder / 'labels.npy', np.arange(nodes, dtype=np.int64) % 7)


def prove_import(options, claims):
    nodes, edges = int(NODES * options.scale / 4), int(EDGES * options.scale / 4)
    source, target = options.dir / 'source', options.dir / 'imported'
    prooflib.require_room(options.dir, edges * 90)
    for old in source, target:
        shutil.rmtree(old, ignore_errors=True)
    write_source(source, nodes, edges)
    limit = options.memory // 2
    report, _ = prooflib.command_within(limit, 'import', source, target, '--edge-ids', '--split', '0.1,0.1,0.1')
    prooflib.claim_alive(claims, f'import of {edges:,} edges with features', report)
    if report['exit'] == 0:
        numbers, kept = (np.load(target / f'{name}.npy', mmap_mode='r') for name in ('edge_id', 'edge_features'))
        given = np.load(source / 'edge_attr.npy', mmap_mode='r')
        places = np.sort(np.random.default_rng(0).integers(0, edges, 1_000_000))
        claims['the features of a million entries are their edges\''] = bool((kept[places] == given[numbers[places]]).all())
    for old in source, target:
        shutil.rmtree(old, ignore_errors=True)
    return report


def train(options, dataset, claims, words):
    run = options.dir / 'run'
    shutil.rmtree(run, ignore_errors=True)
    report, events = prooflib.command_within(options.memory, 'train', dataset, *A, *words, '--epochs', 2, '--eval-every', 0, '--run', run)
    plan = next((event for event in events if event['event'] == 'plan'), {'total_bytes': 0})
    prooflib.claim_alive(claims, ' '.join(['train', *words]), report, plan['total_bytes'])
    epochs = [event for event in events if event['event'] == 'epoch']
    rate = plan['expect']['epoch_steps'] / epochs[-1]['seconds'] if len(epochs) == 2 else 0
    return {'steps_per_s': rate, 'read_bytes': report['bytes_read'], 'losses': [epoch['loss'] for epoch in epochs], 'plan': plan, 'report': report}


def prove_training(options, claims):
    dataset = options.dir / 'edges'
    if not dataset.exists():
        prooflib.require_room(options.dir, options.scale * 48e9)
        report, _ = prooflib.command_within(options.memory, 'generate', 'papers100M', dataset, '--scale', options.scale, '--features', 16,
                                            '--edge-columns', f'features:{FEATURES}')
        prooflib.claim_alive(claims, 'generate', report)
    found = {name: train(options, dataset, claims, words) for name, words in (('with', ['--edge-features']), ('without', []))}
    rates = {name: one['steps_per_s'] for name, one in found.items()}
    claims[f'{rates["with"]:.0f} steps/s with columns, {rates["without"]:.0f} without'] = min(rates.values()) > 0
    more = found['with']['read_bytes'] - found['without']['read_bytes']
    print(f'columns add {more / 2e9:.2f} GB of reads in two epochs', file=sys.stderr)
    shutil.rmtree(dataset)
    return found


def main():
    parser = prooflib.parser(__doc__, 'edge-columns.json')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--scale', type=float, default=1)
    parser.add_argument('--memory', type=prooflib.parse_size, default=4 << 30)
    parser.add_argument('--only', choices=['import', 'train'])
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    claims, found = {}, {}
    for name, prove in ('train', prove_training), ('import', prove_import):
        if options.only in (None, name):
            found[name] = prove(options, claims)
    return 0 if prooflib.record(options.json, claims, scale=options.scale, **found) else 1
