"""Proves that links are learnt as well as by the same script with PyTorch Geometric's loader, on real graphs.

    tools/prove accuracy-links [--sets cora,citeseer,ogbn_arxiv] [--seeds 10] [--epochs 20] [--jobs 1] [--data DIR] [--pyg PYTHON]
                                [--sides loader,train,pyg,leaking] [--json FILE]

RandomLinkSplit of each set, once, or citations by year (bench/accuracy_links.py); GraphSAGE of two layers and 64 channels, dot products, BCE with a drawn pair for each, fan-out 10,10,
batches of 512 pairs, target edges left out (bench/accuracy_links.py). Means of the AUC of the test pairs, computed by one function from the
rows of all nodes over all training edges, by `plimsoll.LinkNeighborLoader` and by `plimsoll train --task link` must be within two standard
errors of the difference of PyG's, or better. PyG's own script without the target edges left out is recorded beside. --pyg names a Python whose PyG has a sampler of its own.
"""
import concurrent.futures
import functools
import json
import math
import pathlib
import sys
import tempfile

import prooflib

PEER = prooflib.SOURCE / 'bench' / 'accuracy_links.py'
SIDES = ('loader', 'train', 'pyg', 'leaking')


def run(*words):
    return prooflib.last_json(prooflib.run(*words))


def score(place, options, side):
    """The AUC of a side with each seed, in percent."""
    seeds = range(options.seeds)
    if side != 'train':
        python = sys.executable if side == 'loader' else options.pyg
        found = run(python, PEER, 'train', place, side, '--seeds', ','.join(map(str, seeds)), '--epochs', options.epochs)
        return [100 * value for value in found['scores']]
    rows = [place / f'rows-{seed}.npy' for seed in seeds]
    for seed in seeds:
        made = place / f'run-{seed}'
        run(prooflib.plimsoll(), 'train', place / 'graph', '--task', 'link', '--pairs', place / 'pairs.npy', '--model', 'sage', '--hidden', 64,
            '--fanout', '10,10', '--batch', 512, '--lr', 0.01, '--epochs', options.epochs, '--seed', seed, '--threads', 1, '--run', made, '--quiet', '--json')
        run(prooflib.plimsoll(), 'predict', made, '--kind', 'embeddings', '--out', rows[seed], '--threads', 1, '--quiet', '--json')
    return [100 * value for value in run(sys.executable, PEER, 'score', place, *rows)['scores']]


def main():
    parser = prooflib.parser(__doc__, 'accuracy-links.json')
    parser.add_argument('--sets', type=lambda text: text.split(','), default=['cora', 'citeseer'])
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--epochs', type=int, default=20)
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--pyg', default=sys.executable)
    parser.add_argument('--sides', type=lambda text: text.split(','), default=SIDES)
    parser.add_argument('--data', type=pathlib.Path, default=prooflib.test_data())
    options = parser.parse_args()
    if not options.data.is_dir():
        prooflib.skip(f'real data is not at {options.data}: set PLIMSOLL_TEST_DATA or --data')
    prooflib.python_package('torch', 'torch_geometric')
    summary = prooflib.load_proof('accuracy').summary
    claims, rows = {}, []
    for name in options.sets:
        with tempfile.TemporaryDirectory(prefix='prove-accuracy-links-') as temporary, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            place = pathlib.Path(temporary)
            run(sys.executable, PEER, 'split', options.data / name, place)
            values = pool.map(functools.partial(score, place, options), options.sides)
            found = {side: summary(scores) for side, scores in zip(options.sides, values)}
        rows.append({'set': name, 'revision': prooflib.revision(), **found})
        for side in [side for side in ('loader', 'train') if side in found]:
            margin = 2 * math.hypot(found[side]['standard_error'], found['pyg']['standard_error'])
            behind = found['pyg']['mean'] - found[side]['mean']
            claims[f'{name}, {side}: AUC {found[side]["mean"]:.2f} beside PyG\'s {found["pyg"]["mean"]:.2f} '
                   f'(behind by {behind:.2f}, at most {margin:.2f})'] = behind <= margin
        print(name, json.dumps({side: [round(value['mean'], 2), round(value['standard_error'], 2)] for side, value in found.items()}), flush=True)
    return 0 if prooflib.record(options.json, claims, seeds=options.seeds, epochs=options.epochs, results=rows) else 1
