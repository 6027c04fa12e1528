"""Proves what `plimsoll plan` expects of a run, bytes that an epoch reads, and what `plan --try` measures, seconds of the whole run.

    tools/prove expected [N] [--seed S] [--dir DIR] [--datasets A,B,..] [--longest S] [--json FILE]
    tools/prove expected --full DATASET [--json FILE]

Each of N (default 30) configurations draws a dataset, a model (a quarter of them GAT), widths, layers, fan-outs, batch, precision, norm and dropout, and a
line: none, or a tight one between the minimum and what the run would take. It is planned with --measure and tried with --try, and then trained for a few
epochs. Bytes must be within 1.5 times in 9 of 10 configurations and within 2 times in all; seconds within 1.25 times in 9 of 10 and within 1.5 in all.
Below 8 MiB and 2 s a figure counts as that; a configuration whose trial says more than a minute (--longest S: S seconds) is drawn again.

--full does the same with papers100M's shape at full size: A (GCN, hidden 16, batch 128, fan-out 3,2), B (GraphSAGE, 3 layers, hidden 256, batch 1,024,
fan-out 15,10,5) and C (GraphSAGE, 3 layers, hidden 256, batch 1,000, fan-out 10,10,10), each in 8, 4 and 2 GiB; B and C for one epoch, whose bytes are
then not compared. What has been measured is recorded after each.
Results: bench/results/expected.json, expected-full.json.
"""
import fcntl
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

import proofdata
import prooflib

SHARE = 0.9
FLOORS = {'epoch_read_bytes': 8 * prooflib.MIB, 'run_s': 2}
BOUNDS = {'epoch_read_bytes': (1.5, 2), 'run_s': (1.25, 1.5)}  # in 9 of 10, and in all
EPOCHS = 4  # the first is cold, the last may be evaluated
DATASETS = {'papers': ['papers100M', '--scale', '0.02'], 'spread': ['papers100M', '--scale', '0.01', '--spread', '1'],
            'arxiv': ['arxiv', '--scale', '0.5'], 'products': ['products', '--scale', '0.1'], 'reddit': ['reddit', '--scale', '0.05']}
A = ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128]
B = ['--model', 'sage', '--hidden', 256, '--fanout', '15,10,5', '--batch', 1024]
C = ['--model', 'sage', '--hidden', 256, '--fanout', '10,10,10', '--batch', 1000]
FULL = [(name, words, epochs, memory) for memory in ('8G', '4G', '2G') for name, words, epochs in (('A', A, EPOCHS), ('B', B, 1), ('C', C, 1))]


def draw_recipe(draw, index):
    """Options of a training."""
    kind = 'gat' if index % 4 == 0 else draw.choice(['gcn', 'sage', 'sage', 'gin', 'mlp'])
    layers = draw.choice([1, 2, 2, 3])
    words = ['--model', kind, '--hidden', draw.choice([16, 32, 64, 128, 256]), '--batch', draw.choice([128, 256, 512, 1024, 2048]),
             '--dropout', draw.choice([0, 0, 0.5]), '--norm', draw.choice(['none', 'none', 'layer', 'batch']),
             '--precision', draw.choice(['f32', 'f32', 'bf16'])]
    if kind == 'mlp':
        words += ['--layers', layers]
    else:
        words += ['--fanout', ','.join(str(draw.choice([2, 3, 5, 10, 15])) for _ in range(layers))]
    if kind == 'gat':
        words += ['--heads', draw.choice([1, 2, 4])]
    return [*words, '--eval-every', draw.choice([0, 1, EPOCHS])]


def plan(directory, words, environment):
    done = prooflib.call('plan', directory, *words, '--json', env=environment)
    return prooflib.last_json(done.stdout) if done.returncode == 0 else None


def small_pipe():
    """A pipe that holds one message: the writer is never more than one ahead, however late the reader is."""
    ends = os.pipe2(os.O_DIRECT | os.O_CLOEXEC)
    fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 4096)
    return ends


def bytes_read(pid):
    text = pathlib.Path(f'/proc/{pid}/io').read_text()
    return int(next(line.split()[1] for line in text.splitlines() if line.startswith('read_bytes')))


def train(directory, words, environment):
    """Bytes of an epoch, and seconds of the whole run; None if it fails."""
    with tempfile.TemporaryDirectory(dir=pathlib.Path(directory).resolve().parent) as scratch:
        began = time.monotonic()
        reader, writer = small_pipe()
        process = subprocess.Popen([prooflib.plimsoll(), 'train', directory, *map(str, words), '--run', scratch + '/run', '--json'],
                                   stdout=writer, stderr=subprocess.DEVNULL, env=environment)
        os.close(writer)
        read = [bytes_read(process.pid) for line in os.fdopen(reader, encoding='utf-8') if json.loads(line).get('event') == 'epoch']
        code = process.wait()
        whole = time.monotonic() - began
    if code != 0:
        return None
    between = [b - a for a, b in zip(read, read[1:-1])]
    return {'run_s': whole, 'epoch_read_bytes': statistics.median(between)} if between else {'run_s': whole}


def ratios(expected, measured):
    """Each measured figure as a multiple of what was expected."""
    return {name: max(measured[name], floor) / max(expected[name], floor) for name, floor in FLOORS.items() if name in measured}


def try_one(directory, words, memory, longest=None):
    """Plans, tries and trains; what was expected and what was measured. None for a run of more than `longest` seconds."""
    with tempfile.TemporaryDirectory() as cache:
        environment = prooflib.with_cache(cache)
        words = [*words, '--memory', memory] if memory else words
        found = plan(directory, [*words, '--measure', '--try'], environment)
        if found is None or (longest is not None and found['trial']['run_s'] > longest):
            return None
        expected = {'epoch_read_bytes': found['expect']['epoch_read_bytes'], 'run_s': found['trial']['run_s']}
        prooflib.drop_caches()  # as the trial read: what the plan expects to read is of a disk, not of the page cache
        measured = train(directory, words, environment)
    if measured is None:
        return None
    if '--eval-every' in words and words[words.index('--eval-every') + 1] == 1:
        measured.pop('epoch_read_bytes', None)  # an evaluation's are among them
    return {'expected': expected, 'measured': measured, 'ratios': ratios(expected, measured), 'topology': found['topology'],
            'features': found['features'], 'part_seeds': found['part_seeds'], 'recompute': found['recompute']}


def tight_line(draw, directory, words):
    """Between the minimum and what the run would take without a limit, nearer to the minimum; None if there is nothing between."""
    with tempfile.TemporaryDirectory() as cache:
        found = plan(directory, [*words, '--measure', '--memory', '64G'], prooflib.with_cache(cache))
    if found is None:
        return None
    low, high = found['minimum_bytes'] + 4 * prooflib.MIB, found['total_bytes']
    return int(low * (high / low) ** (draw.random() ** 2)) if high > low else None


def draw_all(options, directory):
    """The random configurations, each tried."""
    draw, results = random.Random(options.seed), []
    names = options.datasets or list(DATASETS)
    for name in names:
        proofdata.make(directory, name, 'generate', DATASETS[name][0], directory / name, *DATASETS[name][1:])
    while len(results) < options.count:
        index = len(results)
        name = draw.choice(names)
        words = draw_recipe(draw, index)
        memory = tight_line(draw, directory / name, words) if index % 2 else None
        result = try_one(directory / name, [*words, '--epochs', EPOCHS], memory, longest=options.longest)
        if result is None:
            continue
        results.append({'dataset': name, 'options': ' '.join(map(str, words)), 'line_bytes': memory, **result})
        print(json.dumps({key: results[-1][key] for key in ('dataset', 'options', 'line_bytes', 'expected', 'measured', 'ratios')}),
              file=sys.stderr, flush=True)
    return results


def claims_of(results):
    claims = {}
    for name, (near, far) in BOUNDS.items():
        off = [max(r, 1 / r) for r in (result['ratios'].get(name) for result in results) if r]
        if off:
            share = sum(one <= near for one in off) / len(off)
            claims[f'{name}: {share:.0%} of {len(off)} within {near:g} times, at least 90 %'] = share >= SHARE
            claims[f'{name}: the worst is {max(off):.2f} times off, at most {far:g}'] = max(off) <= far
    return claims


def record(path, results, complete):
    spread = {name: statistics.geometric_mean([one['ratios'][name] for one in results if name in one['ratios']] or [1]) for name in FLOORS}
    return prooflib.record(path, claims_of(results), complete=complete, runs=results, mean_ratio={name: round(value, 3) for name, value in spread.items()})


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('count', type=int, nargs='?', default=30)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--dir', type=pathlib.Path)
    parser.add_argument('--datasets', type=lambda text: text.split(','))
    parser.add_argument('--longest', type=float, default=60)
    parser.add_argument('--full', type=pathlib.Path)
    options = parser.parse_args()
    results = []
    path = prooflib.result_path(options, 'expected-full' if options.full else 'expected', True)
    if options.full:
        for workload, words, epochs, memory in FULL:
            prooflib.drop_caches()
            result = try_one(options.full, [*words, '--eval-every', epochs, '--epochs', epochs], memory)
            results.append({'workload': workload, 'line': memory, 'epochs': epochs, **(result or {'ratios': {}})})
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
            record(path, results, complete=len(results) == len(FULL))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            directory = options.dir or pathlib.Path(temporary)
            directory.mkdir(exist_ok=True)
            results = draw_all(options, directory)
    return 0 if record(path, results, complete=True) else 1
