"""Proves training at papers100M's full size in 4 GiB: not killed, fast, and to an accuracy that means something.

    tools/prove papers DATASET [--limit 4G] [--epochs 6] [--json FILE]

DATASET is papers100M's shape at full size (`plimsoll generate papers100M DATASET`). Workload A (GCN, hidden 16, batch 128, fan-out 3,2)
is trained in a cgroup whose limit is the line, from a cold page cache, with evaluation after each epoch; then all three splits are
evaluated exactly in a cgroup of the same size. Checks: nobody killed, at least 500 steps/s from the second epoch on,
validation accuracy above 0.50 both by drawn neighbourhoods and exactly, exact evaluation within
10 minutes. Takes about three minutes; needs root.
"""
import json
import pathlib
import statistics
import sys
import tempfile
import time

import prooflib


def main():
    parser = prooflib.parser(__doc__, 'train-papers100M.json')
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--limit', default='4G')
    parser.add_argument('--epochs', type=int, default=6)
    options = parser.parse_args()
    claims = {}
    with tempfile.TemporaryDirectory(dir=options.dataset.resolve().parent) as directory:
        run = pathlib.Path(directory) / 'run'
        train = prooflib.limited(options.limit, prooflib.plimsoll(), 'train', options.dataset, '--model', 'gcn', '--hidden', 16, '--fanout', '3,2',
                                 '--batch', 128, '--epochs', options.epochs, '--schedule', 'cosine', '--memory', options.limit, '--run', run)
        sys.stderr.write(train.pop('stderr')[-4000:])
        sys.stdout.write(train.pop('stdout'))
        claims[f'training: ends with 0, not killed (exit {train["exit"]}, oom_kill {train["oom_kill"]})'] = \
            train['exit'] == 0 and train['oom_kill'] == 0
        if train['exit'] != 0:
            prooflib.record(None, claims)
            return 1
        lines = prooflib.timeline(run)
        metrics = [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]
        epochs = [line for line in lines if line['step'] == 0]
        rate = statistics.median(line['steps_per_s'] for line in epochs[1:])
        began = time.monotonic()
        exact = prooflib.limited(options.limit, prooflib.plimsoll(), 'evaluate', run, '--exact', '--split', 'all', '--memory', options.limit,
                                 '--json')
        seconds = time.monotonic() - began
        sys.stderr.write(exact.pop('stderr')[-4000:])
        printed = prooflib.last_json(exact.pop('stdout'))
        sampled, valid = metrics[-1]['valid'], printed['valid']['score']
    claims[f'{rate:,.0f} steps/s from the second epoch on, at least 500 (aim 1,234)'] = rate >= 500
    claims[f'validation accuracy {sampled:.4f} by drawn neighbourhoods, {valid:.4f} exactly, both above 0.50; test {printed["test"]["score"]:.4f}'] = \
        min(sampled, valid) > 0.5
    claims[f'exact evaluation of all three splits: {seconds:,.0f} s, at most 600 (exit {exact["exit"]}, oom_kill {exact["oom_kill"]})'] = \
        exact['exit'] == 0 and exact['oom_kill'] == 0 and seconds <= 600
    return 0 if prooflib.record(options.json, claims, train=train, steps_per_s=rate, metrics=metrics, exact={**exact, 'seconds': seconds, **printed},
                                limit=options.limit) else 1
