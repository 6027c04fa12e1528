"""Proves that papers100M's shape, full size, is trained under whatever line there is: A in 8, 4, 2 and 1 GiB, C in 8 GiB.

    tools/prove papers-lines DATASET [--epochs 3] [--only A-2G,C-8G] [--json FILE]

DATASET is papers100M's shape at full size (`plimsoll generate papers100M DATASET`). Each workload is trained in a cgroup whose limit
is the line, from a cold page cache: A (GCN, hidden 16, batch 128, fan-out 3,2) for --epochs epochs, evaluated after the last; C
(GraphSAGE, 3 layers, hidden 256, batch 1,000, fan-out 10,10,10) for one whole epoch. Checks: nobody killed, the group's peak at most
what training is planned to take, the same losses under every line; A at least 250 steps/s in 2 GiB and 150 in 1 GiB, from the second epoch on; C at most 400
seconds an epoch. About ten minutes and 40 GB of disk; needs root. --only: some of the runs, which are not recorded.
"""
import json
import pathlib
import statistics
import sys
import tempfile

import prooflib

A = ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128]
C = ['--model', 'sage', '--hidden', 256, '--fanout', '10,10,10', '--batch', 1000, '--epochs', 1, '--eval-every', 0]
RUNS = [('A', '8G', None), ('A', '4G', None), ('A', '2G', 250), ('A', '1G', 150), ('C', '8G', None)]
LONGEST_C = 400


def train(dataset, workload, limit, epochs):
    """One run: what the kernel saw of it, its plan, its epochs and where its time went."""
    words = C if workload == 'C' else [*A, '--epochs', epochs, '--eval-every', epochs]
    with tempfile.TemporaryDirectory(dir=dataset.resolve().parent) as directory:
        run = pathlib.Path(directory) / 'run'
        report = prooflib.limited(limit, prooflib.plimsoll(), 'train', dataset, *words, '--run', run, '--json')
        events = [json.loads(line) for line in report.pop('stdout').splitlines() if line.startswith('{')]
        errors = report.pop('stderr')
        if report['exit'] != 0:
            sys.stderr.write(errors[-2000:])
            return {**report, 'workload': workload, 'line': limit}
        timeline = prooflib.timeline(run)
    plan, end = events[0], events[-1]
    epochs = [line for line in timeline if line['step'] == 0]
    return {'workload': workload, 'line': limit, **report, 'plan': plan, 'phases': end['phases'], 'epochs': epochs,
            'losses': [event['loss'] for event in events if event['event'] == 'epoch'],
            'steps_per_s': statistics.median(line['steps_per_s'] for line in epochs[1:] or epochs)}


def main():
    parser = prooflib.parser(__doc__, 'papers-lines.json')
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--only', type=lambda text: text.split(','))
    options = parser.parse_args()
    claims, runs = {}, []
    for workload, limit, least in RUNS:
        name = f'{workload}-{limit}'
        if options.only and name not in options.only:
            continue
        run = train(options.dataset, workload, limit, options.epochs)
        runs.append(run)
        claims[f'{name}: ends with 0, not killed (exit {run["exit"]}, oom_kill {run["oom_kill"]})'] = run['exit'] == 0 and run['oom_kill'] == 0
        if run['exit'] != 0:
            continue
        plan = max(size for phase, size in run['plan']['phases'].items() if phase != 'predict')
        claims[f'{name}: peak of {run["peak"] / 2**20:,.0f} MiB, {run["peak"] / plan:.1%} of the plan'] = run['peak'] <= plan
        bound = f', at least {least}' if least else ''
        claims[f'{name}: {run["steps_per_s"]:,.1f} steps/s{bound}'] = run['steps_per_s'] >= (least or 0)
        if workload == 'C':
            seconds = run['plan']['expect']['epoch_steps'] / run['steps_per_s']
            claims[f'{name}: {seconds:,.0f} s an epoch, at most {LONGEST_C}'] = seconds <= LONGEST_C
        print(json.dumps({key: run[key] for key in ('workload', 'line', 'peak', 'steps_per_s', 'losses', 'seconds')}), file=sys.stderr, flush=True)
    losses = {tuple(run.get('losses', [])) for run in runs if run['workload'] == 'A'}
    claims['A: the same losses under every line, bit for bit'] = len(losses) <= 1
    return 0 if prooflib.record(None if options.only else options.json, claims, runs=runs) else 1
