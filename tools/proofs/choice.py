"""Proves that the row cache keeps the right rows: an epoch reads less than with two other rules of admission.

    tools/prove choice DATASET [--kind plain] [--fanout 3,2] [--room 2560] [--json FILE]

Draws an epoch of DATASET (papers100M's shape at full size: a minute) as one window, and counts rows, pages, joined reads and bytes with --room MiB
of rows kept by each rule: no rows, those with most in-edges, those touched most often in a presampled epoch, those with the highest access
probability (the loader's rule), and exactly those that the epoch needs, which is the fewest possible. Runs bench_choice of the release build (cmake --build --preset release --target
bench_choice). Result: bench/results/choice-KIND.json.
"""
import pathlib

import prooflib


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--kind', default='plain')
    parser.add_argument('--fanout', default='3,2')
    parser.add_argument('--room', default='2560', help='MiB')
    options = parser.parse_args()
    found = prooflib.bench('bench_choice', options.dataset, options.fanout, options.room)
    ours = found['inclusion']
    claims = {f'inclusion probability leaves {ours["rows"]:,} of {found["needed"]:,} rows to read, {rule} {found[rule]["rows"]:,}':
              ours['rows'] < found[rule]['rows'] for rule in ('presampled', 'degree')}
    return 0 if prooflib.record(prooflib.result_path(options, f'choice-{options.kind}', True), claims, fanout=options.fanout, room_mib=int(options.room), rules=found) else 1
