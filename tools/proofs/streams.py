"""Proves that streams share a loader: three take no more memory than one, and an epoch with validations takes little more than both apart.

    tools/prove streams DATASET [--memory 256M,2G] [--rounds 5] [--json FILE]

DATASET is one of papers100M's shape (a twentieth of its size is enough). Runs bench_streams of the release build
(cmake --build --preset release --target bench_streams) under each line with one stream and with three in turn, and compares medians.
"""
import pathlib
import statistics

import prooflib


def main():
    parser = prooflib.parser(__doc__, 'streams.json')
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--memory', default='256M,2G')
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_args()
    claims, results = {}, []
    for memory in options.memory.split(','):
        one, three = ([prooflib.bench('bench_streams', options.dataset, memory, streams, options.rounds) for _ in range(3)] for streams in (1, 3))
        peaks = [statistics.median(found['peak_bytes'] for found in kind) for kind in (one, three)]
        rounds = [found for kind in three for found in kind['rounds']]
        cost = statistics.median(found['both']['seconds'] / (found['epoch']['seconds'] + found['validations']['seconds']) for found in rounds)
        claims[f'{memory}: three streams peak at {peaks[1] / peaks[0]:.3f} of one, at most 1.02'] = peaks[1] <= 1.02 * peaks[0]
        claims[f'{memory}: an epoch with five validations takes {cost:.2f} of both alone, at most 1.3'] = cost <= 1.3
        results.append({'memory': memory, 'peaks': peaks, 'cost': cost, 'rounds': rounds})
    return 0 if prooflib.record(options.json, claims, results=results) else 1
