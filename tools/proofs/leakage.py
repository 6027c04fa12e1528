"""Proves that with exclude='reverse' no batch of links holds an edge of one of its own pairs.

    tools/prove leakage [BATCHES] [--pairs 8] [--json FILE]

Generates a graph of papers100M's shape with 1,110 nodes, whose edges are the pairs, and draws BATCHES (1,000,000) batches of --pairs pairs, as many negatives
and their neighbourhoods, in common and disjoint. A target edge leads from the source of any pair of the batch to its target, or back. A tenth as many
batches are drawn without exclude: most of them must hold target edges, or the count would show nothing. Runs bench_leakage of the release build
(cmake --build --preset release --target bench_leakage), else the development build. Result of 1,000,000: bench/results/leakage.json.
"""
import pathlib
import tempfile

import prooflib


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('batches', type=int, nargs='?', default=1_000_000)
    parser.add_argument('--pairs', type=int, default=8)
    options = parser.parse_args()
    claims, results = {}, {}
    with tempfile.TemporaryDirectory(prefix='prove-leakage-') as folder:
        dataset = pathlib.Path(folder) / 'dataset'
        prooflib.must('generate', 'papers100M', dataset, '--scale', '0.00001')
        for kind in ('common', 'disjoint'):
            found = results[kind] = prooflib.bench('bench_leakage', dataset, options.batches, options.pairs, *([kind] if kind == 'disjoint' else []))
            left, kept = found['excluded'], found['kept']
            claims[f'{kind}: {left["target_edges"]:,} target edges in {left["batches"]:,} batches with {left["edges"]:,} edges'] = (
                left['target_edges'] == 0 and left['batches'] == options.batches)
            claims[f'{kind}: without exclude {kept["target_edges"]:,} in {kept["batches"]:,}'] = kept['target_edges'] >= kept['batches']
    path = prooflib.result_path(options, 'leakage', options.batches == 1_000_000)
    return 0 if prooflib.record(path, claims, pairs=options.pairs, results=results) else 1
