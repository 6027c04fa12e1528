"""Proves that papers100M's shape, full size, is trained under whatever line there is: A in 8, 4, 2 and 1 GiB, C in 8 GiB.

    tools/prove papers-lines DATASET [--epochs 3] [--only "A-2G,A-4G packs"] [--dir DIR] [--json FILE]

DATASET is papers100M's shape at full size (`plimsoll generate papers100M DATASET`). Each workload is trained in a cgroup whose limit
is the line, from a cold page cache: A (GCN, hidden 16, batch 128, fan-out 3,2) for --epochs epochs, with a scratch directory in DIR (default: beside
DATASET) whose working set the first run makes, and once with both splits evaluated after every epoch; C
(GraphSAGE, 3 layers, hidden 256, batch 1,000, fan-out 10,10,10) for one whole epoch. Checks: nobody killed, the group's peak at most
what training is planned to take, the same losses under every line; A at least 250 steps/s in 2 GiB and 150 in 1 GiB, from the second epoch on, an epoch
with its evaluations at most 1.6 times one without; C at most 400 seconds an epoch. Recorded as well: what a start takes.
About fifteen minutes and 46 GB of disk; needs root. --only: some of the runs, which are not recorded.
"""
import json
import pathlib
import shutil
import statistics
import sys
import tempfile

import prooflib

A = ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128]
C = ['--model', 'sage', '--hidden', 256, '--fanout', '10,10,10', '--batch', 1000, '--epochs', 1, '--eval-every', 0]
RUNS = {'A-4G packs': None, 'A-8G': None, 'A-4G': None, 'A-4G evaluated': None, 'A-2G': 250, 'A-1G': 150, 'C-8G': None}
LONGEST_C, EVALUATED_MOST = 400, 1.6


def train(options, name, scratch):
    """One run: what the kernel saw of it, its plan, its epochs and where its time went. An epoch's seconds have its evaluations'."""
    workload, limit = name[0], name[2:4]
    words = [*A, '--epochs', options.epochs, '--eval-every', int('evaluated' in name), '--scratch', scratch] if workload == 'A' else C
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        run = pathlib.Path(directory) / 'run'
        report = prooflib.limited(limit, prooflib.plimsoll(), 'train', options.dataset, *words, '--run', run, '--json')
        events = prooflib.events(report.pop('stdout'))
        errors = report.pop('stderr')
        if report['exit'] != 0:
            sys.stderr.write(errors[-2000:])
            return {**report, 'workload': workload, 'line': limit, 'name': name}
        timeline = prooflib.timeline(run)
    plan, end = events[0], events[-1]
    epochs = [line for line in timeline if line['step'] == 0]
    return {'workload': workload, 'line': limit, 'name': name, **report, 'plan': plan, 'phases': end['phases'], 'epochs': epochs,
            'losses': [event['loss'] for event in events if event['event'] == 'epoch'],
            'start_s': round(report['seconds'] - sum(line['seconds'] for line in timeline), 2),
            'epoch_s': statistics.median(line['seconds'] for line in epochs[1:] or epochs),
            'steps_per_s': statistics.median(line['steps_per_s'] for line in epochs[1:] or epochs)}


def main():
    parser = prooflib.parser(__doc__, 'papers-lines.json')
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--epochs', type=int, default=3)
    parser.add_argument('--only', type=lambda text: text.split(','))
    parser.add_argument('--dir', type=pathlib.Path)
    options = parser.parse_args()
    claims, runs, scratch = {}, [], (options.dir or options.dataset.resolve().parent) / 'papers-lines-scratch'
    shutil.rmtree(scratch, ignore_errors=True)  # of a run that was ended
    scratch.mkdir()
    for name, least in RUNS.items():
        if options.only and name not in options.only:
            continue
        run = train(options, name, scratch)
        runs.append(run)
        claims[f'{name}: ends with 0, not killed (exit {run["exit"]}, oom_kill {run["oom_kill"]})'] = run['exit'] == 0 and run['oom_kill'] == 0
        if run['exit'] != 0:
            continue
        plan = max(size for phase, size in run['plan']['phases'].items() if phase != 'predict')
        claims[f'{name}: peak of {run["peak"] / 2**20:,.0f} MiB, {run["peak"] / plan:.1%} of the plan'] = run['peak'] <= plan
        bound = f', at least {least}' if least else ''
        claims[f'{name}: {run["steps_per_s"]:,.1f} steps/s{bound}'] = run['steps_per_s'] >= (least or 0)
        if run['workload'] == 'C':
            seconds = run['plan']['expect']['epoch_steps'] / run['steps_per_s']
            claims[f'{name}: {seconds:,.0f} s an epoch, at most {LONGEST_C}'] = seconds <= LONGEST_C
        print(json.dumps({key: run[key] for key in ('name', 'peak', 'start_s', 'epoch_s', 'steps_per_s', 'losses', 'seconds')}), file=sys.stderr, flush=True)
    shutil.rmtree(scratch)
    seconds = {run['name']: run['epoch_s'] for run in runs if run['exit'] == 0}
    if {'A-4G', 'A-4G evaluated'} <= seconds.keys():
        times = seconds['A-4G evaluated'] / seconds['A-4G']
        claims[f'A-4G: an epoch with its evaluations takes {times:.2f} times one without, at most {EVALUATED_MOST}'] = times <= EVALUATED_MOST
    losses = {tuple(run.get('losses', [])) for run in runs if run['workload'] == 'A'}
    claims['A: the same losses under every line, bit for bit'] = len(losses) <= 1
    return 0 if prooflib.record(None if options.only else options.json, claims, runs=runs) else 1
