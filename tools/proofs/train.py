"""Proves how fast training is with everything in memory, beside PyTorch Geometric and DGL's GraphBolt in the same run.

    tools/prove train --peers DIR --raw DIR --data DIR --venv DIR [--pyg PYTHON] [--rounds 3] [--json FILE]

--peers holds pyg_train.py and graphbolt_train.py, --raw the graph as make_graph.py there writes it (10 million nodes),
--data the same graph after `plimsoll import`, --venv a Python environment with GraphBolt (tools/check-graphbolt makes
one), --pyg a Python that has torch_geometric and pyg-lib (without it PyG's recorded figures stand). Each round runs the
peers and `plimsoll train`, one after the other, on workload A (GCN, hidden 16, batch 128, fan-out 3,2) and B (GraphSAGE, three layers,
hidden 256, batch 1,024, fan-out 15,10,5), in f32 and bf16; medians over the rounds are compared. Says where each step's time goes.
Takes about fifteen minutes; needs 10 GB of memory.
"""
import json
import pathlib
import statistics
import sys
import tempfile

import prooflib

WORKLOADS = {
    'A': {'recipe': ['--model', 'gcn', '--hidden', 16, '--batch', 128, '--fanout', '3,2'], 'epochs': 60, 'lines': 0, 'batches': 400, 'warmup': 50,
          'recorded': {'pyg': 255, 'dgl': 205}, 'least': [('f32', 'pyg', 15)]},
    'B': {'recipe': ['--model', 'sage', '--hidden', 256, '--batch', 1024, '--fanout', '15,10,5'], 'epochs': 1, 'lines': 20, 'batches': 12, 'warmup': 2,
          'recorded': {'pyg': 0.59, 'dgl': 2.14}, 'least': [('f32', 'dgl', 1.6), ('bf16', 'dgl', 2.5)]},
}


def peer(options, python, script, load, *more):
    """A peer's it/s: its last line is one JSON object."""
    words = [python, options.peers / script, '--data', options.raw, *load['recipe'], '--batches', load['batches'],
             '--warmup', load['warmup'], '--repeats', 1, *more]
    return prooflib.last_json(prooflib.run(*words))['train_it_per_s']['median']


def ours(options, load, precision):
    """The median line of the run's timeline, its first left out."""
    with tempfile.TemporaryDirectory() as directory:
        run = pathlib.Path(directory) / 'run'
        prooflib.must('train', options.data, *load['recipe'], '--epochs', load['epochs'], '--eval-every', 0, '--lr', 0.003,
                      '--precision', precision, '--memory-every', load['lines'], '--run', run, '--quiet')
        lines = prooflib.timeline(run)
        middle = sorted(lines[1:], key=lambda line: line['steps_per_s'])[len(lines) // 2 - 1]
        parts = {name[:-2]: middle[name] for name in middle if name.endswith('_s') and not name.endswith('per_s')}
        return {'rate': middle['steps_per_s'], 'dense_gflop_per_s': middle['dense_gflop_per_s'],
                'share': {name: round(seconds / middle['seconds'], 3) for name, seconds in parts.items()}}


def main():
    parser = prooflib.parser(__doc__, 'train-peers.json')
    for name in ('peers', 'raw', 'data', 'venv'):
        parser.add_argument(f'--{name}', type=pathlib.Path, required=True)
    parser.add_argument('--pyg', type=pathlib.Path, help='a Python with torch_geometric and pyg-lib')
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--only', choices=WORKLOADS)
    options = parser.parse_args()
    claims, facts = {}, {}
    for name, load in WORKLOADS.items():
        if options.only not in (None, name):
            continue
        rounds = []
        for _ in range(options.rounds):
            one = {'dgl': peer(options, options.venv / 'bin' / 'python', 'graphbolt_train.py', load)}
            one['f32'] = ours(options, load, 'f32')
            if options.pyg:
                one['pyg'] = peer(options, options.pyg, 'pyg_train.py', load)
            one['bf16'] = ours(options, load, 'bf16')
            rounds.append(one)
            print(name, json.dumps(one), file=sys.stderr)
        theirs = {engine: statistics.median(one[engine] for one in rounds) if engine in rounds[0] else load['recorded'][engine]
                  for engine in ('pyg', 'dgl')}
        mine = {precision: statistics.median(one[precision]['rate'] for one in rounds) for precision in ('f32', 'bf16')}
        facts[name] = {'rounds': rounds, 'plimsoll': mine, 'peers': theirs, 'peers_recorded': load['recorded'],
                       'pyg_in_this_run': bool(options.pyg)}
        for precision, engine, factor in load['least']:
            times = mine[precision] / max(theirs[engine], load['recorded'][engine])
            claims[f'{name} {precision}: {mine[precision]:,.2f} it/s, {times:.1f}x {engine} ({theirs[engine]:,.2f} now, '
                   f'{load["recorded"][engine]} recorded; the larger counts), at least {factor}x'] = times >= factor
    return 0 if prooflib.record(options.json, claims, workloads=facts) else 1
