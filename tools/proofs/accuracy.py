"""Proves that what is trained here is as good as what PyTorch Geometric trains, on the real data sets.

    tools/prove accuracy [--sets cora,citeseer] [--models gcn,sage] [--seeds 10] [--jobs 2] [--data DIR] [--dir DIR] [--record]

For each recipe of examples/recipes.tsv for real data (none in the column `small`): so many seeds by `plimsoll train` in f32 and in bf16,
scored by exact evaluation of the weights at the best validation (the last ones where there is no validation split), and as many by a
BasicGNN model of PyG on the same imported dataset (bench/accuracy_pyg.py). A mean must be within two standard errors of the difference of
PyG's, or better; Cora's and Citeseer's by GCN inside the published interval, or above; ogbn_arxiv's best above what an MLP reaches; bf16
within 0.5 points or two standard errors of f32, seed by seed. What was computed is kept in --dir by recipe, program and dataset, so that
it can be repeated or continued.
Result with --record: bench/results/accuracy.json, where recipes that were not asked for this time stay as they were recorded.
"""
import concurrent.futures
import csv
import hashlib
import json
import math
import os
import pathlib
import shlex
import statistics
import sys
import tempfile
import threading

import prooflib

PUBLISHED = {('cora', 'gcn'): (81.3, 0.9), ('citeseer', 'gcn'): (71.0, 0.7)}
ARXIV_MLP = 74.6
ERRORS = ('rmse', 'mae')
REGRESSION = (*ERRORS, 'r2')
PEER = prooflib.SOURCE / 'bench' / 'accuracy_pyg.py'


def recipes(sets, models):
    with open(prooflib.SOURCE / 'examples' / 'recipes.tsv', encoding='utf-8') as file:
        rows = [row for row in csv.DictReader((line for line in file if not line.startswith('#')), delimiter='\t') if not row['small']]
    known = {row['set'] for row in rows}, {row['model'] for row in rows}
    for asked, names in zip((sets, models), known):
        if asked and not set(asked) <= names:
            sys.exit(f'no recipe for {", ".join(set(asked) - names)}: there are {", ".join(sorted(names))}')
    return [row for row in rows if (not sets or row['set'] in sets) and (not models or row['model'] in models)]


class Results:
    """What was computed so far, by a key of all that decides it."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()
        self.known = json.loads(path.read_text()) if path.exists() else {}

    def get(self, key, seeds, compute):
        """A value for each seed; compute(missing seeds) gives those that are not known."""
        names = [hashlib.blake2b(json.dumps([*key, seed]).encode(), digest_size=12).hexdigest() for seed in seeds]
        missing = [(name, seed) for name, seed in zip(names, seeds) if name not in self.known]
        values = compute([seed for _, seed in missing]) if missing else []
        with self.lock:
            self.known.update({name: value for (name, _), value in zip(missing, values)})
            fresh = self.path.with_suffix('.new')
            fresh.write_text(json.dumps(self.known, indent=0))
            fresh.replace(self.path)
        return [self.known[name] for name in names]


def say(text):
    print(text, file=sys.stderr, flush=True)


def run_json(words):
    return prooflib.last_json(prooflib.run(*words))


def import_set(data, name, options, target):
    """The dataset directory, made unless it is there, and its fingerprint."""
    source = data / name if (data / name).is_dir() else data / 'graphs' / name
    place = target / f'{name}{options.replace(" --", "-").replace("--", "-")}'
    if not place.is_dir():
        run_json([prooflib.plimsoll(), 'import', source, place, '--quiet', *shlex.split(options)])
    return place, json.loads((place / 'dataset.json').read_text())


def ours(place, recipe, precision, seeds):
    """Test scores and seconds, one process a seed."""
    return [ours_once(place, recipe, precision, seed) for seed in seeds]


def ours_once(place, recipe, precision, seed):
    with tempfile.TemporaryDirectory(dir=place.parent, prefix='run-') as scratch:
        run = pathlib.Path(scratch) / 'run'
        words = [prooflib.plimsoll(), 'train', place, '--run', run, '--quiet', '--json', '--threads', 1, '--seed', seed,
                 '--precision', precision, *shlex.split(recipe['train'])]
        result = run_json(words)
        exact = run_json([prooflib.plimsoll(), 'evaluate', run, '--exact', '--split', 'test', '--quiet', '--json', '--threads', 1])
        errors = {name: exact['test'][name] for name in REGRESSION if name in exact['test']}
        return {'score': exact['test']['score'], 'seconds': result['seconds'], **errors}


def theirs(place, recipe, seeds):
    """The same by PyG, in one process."""
    found = run_json([sys.executable, PEER, place, '--seeds', ','.join(map(str, seeds)), *shlex.split(recipe['train'])])
    return [{'score': score, 'seconds': found['seconds'] / len(seeds), **errors}
            for score, errors in zip(found['scores'], found['errors'])]


def metric_of(recipe, info):
    words = shlex.split(recipe['train'])
    if '--metric' in words:
        return words[words.index('--metric') + 1]
    return 'accuracy' if info['num_classes'] > 0 else 'rmse'


def summary(values):
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return {'mean': statistics.fmean(values), 'standard_error': error, 'values': values}


def judge(name, model, metric, found, claims):
    """Adds what is claimed of one recipe; `found` maps f32, bf16 and pyg to summaries."""
    mine, peer, half = found['f32'], found['pyg'], found['bf16']
    sign = -1 if metric in ERRORS else 1
    margin = 2 * math.hypot(mine['standard_error'], peer['standard_error'])
    behind = sign * (peer['mean'] - mine['mean'])
    where = f'{name} {model}'
    claims[f'{where}: {mine["mean"]:.2f} beside PyG\'s {peer["mean"]:.2f} (behind by {behind:.2f}, at most {margin:.2f})'] = \
        behind <= margin
    losses = [sign * (a - b) for a, b in zip(mine['values'], half['values'])]
    lost = summary(losses)
    allowed = max(0.005 * mine['mean'] if metric in ERRORS else 0.5, 2 * lost['standard_error'])
    claims[f'{where}: bf16 loses {lost["mean"]:.2f} against f32 (at most {allowed:.2f})'] = lost['mean'] <= allowed
    if (name, model) in PUBLISHED:
        mean, width = PUBLISHED[name, model]
        claims[f'{where}: {mine["mean"]:.2f} is inside the published {mean} ± {width}, or above'] = mine['mean'] >= mean - width


def table(rows):
    print(f'{"set":18}{"model":6}{"metric":10}{"ours f32":>16}{"ours bf16":>16}{"PyG":>16}  {"published":>12}')
    for row in rows:
        cells = ''.join(f'{row[side]["mean"]:9.2f} ± {row[side]["standard_error"]:4.2f}' for side in ('f32', 'bf16', 'pyg'))
        mean, width = PUBLISHED.get((row['set'], row['model']), (None, None))
        print(f'{row["set"]:18}{row["model"]:6}{row["metric"]:10}{cells}  {f"{mean} ± {width}" if mean else "":>12}')


def measure(options, wanted, results):
    """Rows of (set, model, metric, summaries), in the table's order."""
    target = options.dir.resolve()
    version, peer = prooflib.build_digest(), prooflib.file_digest(PEER)
    plan, rows = [], []
    for recipe in wanted:
        place, info = import_set(options.data, recipe['set'], recipe['import'], target)
        key = [info['fingerprint'], recipe['train']]
        plan += [([version, precision, *key], ours, (place, recipe, precision)) for precision in ('f32', 'bf16')]
        plan.append(([peer, *key], theirs, (place, recipe)))
        rows.append((recipe, metric_of(recipe, info)))

    def work(task):
        key, compute, arguments = task
        return results.get(key, range(options.seeds), lambda seeds: compute(*arguments, seeds))

    found = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        done = pool.map(work, plan)
        for recipe, metric in rows:
            scale = 1 if metric in ERRORS else 100
            sides = {side: {**summary([scale * value['score'] for value in values]),
                            'seconds': round(sum(value['seconds'] for value in values), 1),
                            **{name: summary([value[name] for value in values]) for name in REGRESSION if name in values[0]}}
                     for side, values in zip(('f32', 'bf16', 'pyg'), done)}
            found.append((recipe['set'], recipe['model'], metric, sides))
            say(f'{len(found)} of {len(rows)}: {recipe["set"]} {recipe["model"]}: ' +
                ', '.join(f'{side} {value["mean"]:.2f} ({value["seconds"]} s)' for side, value in sides.items()))
    return found


def recorded(path, but):
    """Rows of an earlier record, without those of the recipes `but`."""
    earlier = json.loads(path.read_text()) if path.exists() else {'results': []}
    return [{'revision': earlier['revision'], **row} for row in earlier['results'] if (row['set'], row['model']) not in but]


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--sets', type=lambda text: text.split(','))
    parser.add_argument('--models', type=lambda text: text.split(','))
    parser.add_argument('--seeds', type=int, default=10)
    parser.add_argument('--jobs', type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument('--data', type=pathlib.Path, default=prooflib.test_data())
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'accuracy', help='datasets and what was computed')
    parser.add_argument('--record', action='store_true')
    options = parser.parse_args()
    if not options.data.is_dir():
        prooflib.skip(f'real data is not at {options.data}: set PLIMSOLL_TEST_DATA or --data')
    options.dir.mkdir(parents=True, exist_ok=True)
    found = measure(options, recipes(options.sets, options.models), Results(options.dir / 'results.json'))
    rows = [{'set': name, 'model': model, 'metric': metric, 'revision': prooflib.revision(), **sides} for name, model, metric, sides in found]
    path = prooflib.result_path(options, 'accuracy', options.record)
    if path:
        rows += recorded(path, {(row['set'], row['model']) for row in rows})
        order = [(recipe['set'], recipe['model']) for recipe in recipes(None, None)]
        rows.sort(key=lambda row: order.index((row['set'], row['model'])))
    claims = {}
    for row in rows:
        judge(row['set'], row['model'], row['metric'], row, claims)
    arxiv = [row['f32']['mean'] for row in rows if row['set'] == 'ogbn_arxiv']
    if arxiv:
        claims[f'ogbn_arxiv: the best, {max(arxiv):.2f}, is above an MLP\'s {ARXIV_MLP}'] = max(arxiv) > ARXIV_MLP
    table(rows)
    return 0 if prooflib.record(path, claims, seeds=options.seeds, results=rows) else 1
