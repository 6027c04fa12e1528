"""Proves that graphs of a billion nodes are made, planned, trained on, evaluated and resumed in little memory.

    tools/prove billion [--dir DIR] [--nodes 1000000000] [--memory 4G] [--json FILE]

Makes papers100M's structure with NODES nodes, four times as many edges and 8 features (f16) in DIR, unless it is there from the run before, in a real
cgroup of 4 GiB; trains workload A (GCN, hidden 16, batch 128, fan-out 3,2) for an epoch over 5.07 million nodes in --memory, once undisturbed and once
killed by SIGKILL in the middle and resumed: the same weights; evaluates the training and validation splits exactly in it, too. No command may be killed
or pass its plan. And by `plan` A's minimum, with papers100M's own labelled nodes, grows by at most 0.3 bytes a node from 0.11 to 1.0 billion nodes.
Takes an hour, 42 GB of disk and 14 more while the graph is made, and root; exits 77 without. Results: bench/results/billion.json.
"""
import pathlib
import shutil
import signal
import subprocess
import time

import prooflib

A = ['--model', 'gcn', '--hidden', 16, '--batch', 128, '--fanout', '3,2']
SHAPE = ['--features', 8]
LABELLED = 4.2  # times papers100M's
GROWTH_MOST = 0.3


def minimum(nodes):
    done = prooflib.call('plan', 'papers100M', '--nodes', nodes, '--edges', 4 * nodes, *SHAPE, *A, '--memory', '4G', '--json')
    return prooflib.last_json(done.stdout)['minimum_bytes']


def kill(run, *words):
    """Starts a training and kills it a moment after its first checkpoint."""
    child = subprocess.Popen([prooflib.plimsoll(), *map(str, words), '--run', run, '--quiet'], stdout=subprocess.DEVNULL)
    while not (run / 'last.safetensors').exists() and child.poll() is None:
        time.sleep(0.5)
    time.sleep(2)
    child.kill()
    return child.wait() == -signal.SIGKILL


def main():
    parser = prooflib.parser(__doc__, 'billion.json')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--nodes', type=int, default=1_000_000_000)
    parser.add_argument('--memory', default='4G')
    options = parser.parse_args()
    line = options.memory
    options.dir.mkdir(parents=True, exist_ok=True)
    dataset, scratch = options.dir / f'papers-{options.nodes}', options.dir / 'scratch'
    claims, reports = {}, {}

    def command(name, limit, *words):
        reports[name], events = prooflib.command_within(limit, *words)
        prooflib.claim_alive(claims, name, reports[name])
        return events

    few, many = options.nodes // 9, options.nodes
    least = {nodes: minimum(nodes) for nodes in (few, options.nodes // 3, many)}
    growth = (least[many] - least[few]) / (many - few)
    claims[f'minimum of A {least[few] / prooflib.MIB:.0f} MiB with {few:,} nodes and {least[many] / prooflib.MIB:.0f} with {many:,}: {growth:.2f} bytes a '
           f'node, at most {GROWTH_MOST}'] = growth <= GROWTH_MOST
    if not dataset.exists():
        prooflib.require_room(options.dir, options.nodes * 56)
        command('generate', '4G', 'generate', 'papers100M', dataset, '--scale', LABELLED * options.nodes / 1e9, '--nodes', options.nodes,
                '--edges', 4 * options.nodes, *SHAPE)
    scratch.mkdir(exist_ok=True)
    training = ['train', dataset, *A, '--epochs', 1, '--eval-every', 0, '--scratch', scratch]
    runs = {name: options.dir / name for name in ('whole', 'resumed')}
    for run in runs.values():
        shutil.rmtree(run, ignore_errors=True)
    events = command('an epoch', line, *training, '--run', runs['whole'])
    epoch = next((event for event in events if event['event'] == 'epoch'), {})
    plan = next((event for event in events if event['event'] == 'plan'), {})
    steps = plan['expect']['epoch_steps']
    claims[f'{epoch["labelled"]:,} nodes in {epoch["seconds"]:.0f} s, {steps / epoch["seconds"]:.0f} steps a second'] = epoch['labelled'] >= options.nodes // 200
    claims['killed in the middle of its epoch'] = kill(runs['resumed'], *training, '--memory', line, '--checkpoint-every', steps // 5)
    command('the rest of it', line, 'train', '--resume', runs['resumed'], '--scratch', scratch)
    weights = {name: prooflib.read_safetensors(run / 'last.safetensors')['digest'] for name, run in runs.items()}
    claims['the same weights'] = weights['whole'] == weights['resumed']
    events = command('exact evaluation', line, 'evaluate', runs['whole'], '--exact', '--split', 'all')
    holds = prooflib.record(options.json, claims, nodes=options.nodes, minimum_bytes=least, plan=plan, epoch=epoch, evaluation=events[-1:], runs=reports)
    return 0 if holds else 1
