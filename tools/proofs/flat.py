"""Proves that memory is flat: the group's peak after 1,000 epochs is that after the third.

    tools/prove flat [--epochs 1000] [--dir DIR] [--json FILE]

Trains GraphSAGE on a small generated graph (papers100M's shape at 0.0005, made in DIR, by default a temporary directory) with evaluation
after every epoch and a checkpoint every other step, in real cgroups: under the least line that the plan accepts, and with room for
everything. The kernel's own counter of the group's peak is read when the third epoch is reported and when the run has ended; they may
differ by 1 MiB. Takes about two minutes, needs root, exits 77 without. Results: bench/results/flat.json.
"""
import json
import math
import pathlib
import sys
import tempfile
import time

import prooflib

MIB = prooflib.MIB
PAGE = 4096
RECIPE = ['--model', 'sage', '--hidden', 32, '--fanout', '5,3', '--batch', 256, '--dropout', '0.5', '--norm', 'batch',
          '--checkpoint-every', 2]
SETTLED = 3


def train(program, dataset, run, limit, epochs):
    """The peak after each power of ten, after the third epoch and at the end."""
    began = time.monotonic()
    child = prooflib.Limited(limit, *program, 'train', dataset, *RECIPE, '--epochs', epochs, '--run', run, '--json', '--quiet')
    peaks, plan = {}, {}
    for event in map(json.loads, child.output):
        if event['event'] == 'plan':
            plan = {name: event[name] for name in ('total_bytes', 'topology', 'features', 'part_seeds')}
        elif event['event'] == 'epoch' and event['epoch'] in (1, SETTLED, 10, 30, 100, 300):
            peaks[event['epoch']] = child.peak()
    report = child.end()
    peaks[epochs] = report['peak']
    return {'limit': report['limit'], 'plan': plan, 'peaks': peaks, 'seconds': round(time.monotonic() - began, 1), 'cgroup': report}


def main():
    parser = prooflib.parser(__doc__, 'flat.json')
    parser.add_argument('--epochs', type=int, default=1000)
    parser.add_argument('--dir', type=pathlib.Path)
    options = parser.parse_args()
    claims, runs = {}, {}
    with tempfile.TemporaryDirectory(prefix='prove-flat-', dir=options.dir) as folder:
        folder = pathlib.Path(folder)
        dataset = folder / 'papers'
        prooflib.must('generate', 'papers100M', dataset, '--scale', '0.0005', '--quiet')
        program = prooflib.own_program(folder)
        least = prooflib.last_json(prooflib.call('plan', dataset, *RECIPE, '--measure', '--json').stdout)['minimum_bytes']
        for name, limit in (('least', math.ceil(least / PAGE + 1) * PAGE), ('plenty', 1024 * MIB)):
            result = train(program, dataset, folder / name, limit, options.epochs)
            runs[name] = result
            print(json.dumps(result), file=sys.stderr)
            early, late = result['peaks'].get(SETTLED, 0), result['peaks'][options.epochs]
            alive = result['cgroup']['exit'] == 0 and result['cgroup']['oom_kill'] == 0
            claims[f'{name} ({limit / MIB:.0f} MiB): ends with 0, not killed (exit {result["cgroup"]["exit"]})'] = alive
            claims[f'{name}: the peak was {early / MIB:.2f} MiB after epoch {SETTLED} and {late / MIB:.2f} MiB after epoch '
                   f'{options.epochs}, at most 1 MiB apart'] = alive and late - early <= MIB
    return 0 if prooflib.record(options.json, claims, recipe=[str(word) for word in RECIPE], epochs=options.epochs, runs=runs) else 1
