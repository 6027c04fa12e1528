"""Proves that graphs of more than 2^31 nodes are made, read and trained on in little memory.

    tools/prove many-nodes [--dir DIR] [--nodes 2200000000] [--memory 4G] [--json FILE]

Makes papers100M's structure with NODES nodes, as many edges, 1 feature (f16) and 100 classes (a byte) in DIR, unless it is there from the run before;
trains workload A (GCN, hidden 16, fan-out 3,2) for 1,000 steps in batches of a thousandth of the training nodes; both in real cgroups of --memory.
Then compares 200 batches of 128 of the Python loader with the files: every row, label and drawn edge, and
the number of draws of each node. Takes half an hour, 33 GB of disk and 12 more while the graph is made, root, and a Python with torch and the
package beside the binary under test; exits 77 without. Results: bench/results/many-nodes.json.
"""
import json
import pathlib
import shutil
import sys
import time

import prooflib

STEPS, BATCHES = 1000, 200
FANOUTS = [3, 2]


def check_batches(dataset):
    """The seconds that loading and comparing took; an AssertionError where a batch is not the files'."""
    sys.path[:0] = [str(pathlib.Path(prooflib.plimsoll()).parent / 'python'), str(prooflib.SOURCE / 'tests' / 'support')]
    import brute_force
    import plimsoll
    import torch
    began, arrays, seen = time.monotonic(), brute_force.arrays_of(dataset), 0
    seeds = torch.tensor(arrays['train'][:BATCHES * 128])
    loader = plimsoll.NeighborLoader(plimsoll.open(dataset), FANOUTS, batch_size=128, input_nodes=seeds, shuffle=True, memory='8G', seed=1)
    for batch in loader:
        brute_force.check_batch(batch, arrays, FANOUTS)
        seen += batch.num_nodes
    return seen, time.monotonic() - began


def main():
    parser = prooflib.parser(__doc__, 'many-nodes.json')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--nodes', type=int, default=2_200_000_000)
    parser.add_argument('--memory', default='4G')
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    dataset, run = options.dir / f'nodes-{options.nodes}', options.dir / 'run'
    claims, reports = {}, {}

    def command(name, *words):
        reports[name], events = prooflib.command_within(options.memory, *words)
        prooflib.claim_alive(claims, name, reports[name])
        return events

    if not dataset.exists():
        prooflib.require_room(options.dir, options.nodes * 21)
        command('generate', 'generate', 'papers100M', dataset, '--nodes', options.nodes, '--edges', options.nodes, '--features', 1, '--classes', 100)
    facts = json.loads((dataset / 'dataset.json').read_text())
    claims[f'{facts["num_nodes"]:,} nodes and {facts["num_edges"]:,} edges, ids of {facts["index_type"]}'] = facts['num_nodes'] == options.nodes
    shutil.rmtree(run, ignore_errors=True)
    events = command('1,000 steps', 'train', dataset, '--model', 'gcn', '--hidden', 16, '--fanout', ','.join(map(str, FANOUTS)), '--batch',
                     -(-facts['num_train'] // STEPS), '--epochs', 1, '--eval-every', 0, '--run', run)
    epoch = next((event for event in events if event['event'] == 'epoch'), None)
    claims['an epoch with a finite loss'] = epoch is not None
    try:
        nodes, seconds = check_batches(dataset)
        claims[f'{BATCHES} batches of {nodes:,} nodes are the files, {seconds:.0f} s'] = True
    except AssertionError as error:
        claims[f'{BATCHES} batches are the files: {error}'] = False
    return 0 if prooflib.record(options.json, claims, epoch=epoch, plan=events[:1], runs=reports) else 1
