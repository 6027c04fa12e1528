"""Proves how fast batches come from memory, beside DGL's GraphBolt in the same run.

    tools/prove peers --peers DIR --raw DIR --data DIR --venv DIR [--rounds 3] [--json FILE]

--peers holds graphbolt_loader.py, --raw the graph as its make_graph.py writes it (10 million nodes), --data the same graph
after `plimsoll import`, --venv a Python environment with GraphBolt (tools/check-graphbolt makes one). Each round
runs, one after the other, GraphBolt and plimsoll on workload A (batch 128, fan-out 3,2) and B (batch 1,024, fan-out
15,10,5), sampling alone and with float32 rows; medians over the rounds are compared. Where pyg-lib was faster than
GraphBolt, its recorded figure (it is not on PyPI) stands beside. Takes about ten minutes; needs 10 GB of memory.
"""
import json
import pathlib
import statistics
import sys

import prooflib

WORKLOADS = {
    'A': {'batch': 128, 'fanout': '3,2', 'batches': 400, 'warmup': 50, 'epochs': 6, 'per_epoch': 850,
          'pyg': {'sample': 1193, 'features': 1230}, 'factor': {'sample': 20, 'features': 8}},
    'B': {'batch': 1024, 'fanout': '15,10,5', 'batches': 30, 'warmup': 5, 'epochs': 3, 'per_epoch': 100,
          'pyg': {'sample': 12.7, 'features': 6.7}, 'factor': {'sample': 4, 'features': 6}},
}


def peer(options, load):
    """GraphBolt's batches/s and edges/s: its last line is one JSON object."""
    words = [options.venv / 'bin' / 'python', options.peers / 'graphbolt_loader.py', '--data', options.raw,
             '--batch', load['batch'], '--fanout', load['fanout'], '--batches', load['batches'], '--warmup', load['warmup']]
    printed = prooflib.last_json(prooflib.run(*words))
    return {'sample': printed['sample_batches_per_s']['median'], 'features': printed['features_batches_per_s']['median'],
            'edges': printed['sampled_edges_per_s'], 'edges_per_batch': printed['edges_per_batch']}


def ours(options, load, what, *more):
    """Our median over the epochs but the first."""
    printed = prooflib.must('bench', what, options.data, '--batch', load['batch'], '--fanout', load['fanout'], '--epochs', load['epochs'],
                            '--topology', 'memory', '--features', 'memory', '--json', '--quiet', *more)
    epochs = prooflib.last_json(printed)['epochs'][1:]
    return {'rate': statistics.median(epoch['batches_per_second'] for epoch in epochs),
            'edges': statistics.median(epoch['edges_per_second'] for epoch in epochs)}


def main():
    parser = prooflib.parser(__doc__, 'load-peers.json')
    for name in ('peers', 'raw', 'data', 'venv'):
        parser.add_argument(f'--{name}', type=pathlib.Path, required=True)
    parser.add_argument('--rounds', type=int, default=3)
    options = parser.parse_args()
    claims, facts = {}, {}
    for name, load in WORKLOADS.items():
        rounds = []
        for _ in range(options.rounds):
            theirs = peer(options, load)
            mine = {'sample': ours(options, load, 'sample'), 'features': ours(options, load, 'load', '--rows', 'f32'),
                    'features_f16': ours(options, load, 'load', '--rows', 'f16'),
                    'sample_pyg_form': ours(options, load, 'sample', '--form', 'pyg')}
            rounds.append({'graphbolt': theirs, 'plimsoll': mine})
            print(name, json.dumps(rounds[-1]), file=sys.stderr)
        facts[name] = {'rounds': rounds}
        for what in ('sample', 'features'):
            graphbolt = statistics.median(one['graphbolt'][what] for one in rounds)
            rate = statistics.median(one['plimsoll'][what]['rate'] for one in rounds)
            best = max(graphbolt, load['pyg'][what])
            facts[name][what] = {'plimsoll': rate, 'graphbolt': graphbolt, 'pyg_lib_recorded': load['pyg'][what],
                                 'times_graphbolt': round(rate / graphbolt, 2), 'times_best': round(rate / best, 2)}
            claims[f'{name} {what}: {rate:,.0f} batches/s, {rate / best:.1f}x the better of GraphBolt ({graphbolt:,.1f}) and pyg-lib '
                   f'(recorded {load["pyg"][what]:,}), at least {load["factor"][what]}x'] = rate >= load['factor'][what] * best
    return 0 if prooflib.record(options.json, claims, workloads=facts) else 1
