"""Proves that a hundred million pairs over ten million nodes are learnt in 4 GiB, faster than PyTorch Geometric loads what it can hold.

    tools/prove links [--dir DIR] [--scale 0.09] [--pairs 100000000] [--memory 4G] [--seconds 60] [--pyg PYTHON] [--first N]
                      [--pyg-memory SIZE] [--json FILE]

In DIR, unless they are there from the run before: papers100M's shape with 10 million nodes, 145 million edges and 128 features (f16), and a .npy file
of pairs, 100 million of its edges in a random order of blocks. Then in a real cgroup of --memory: `plimsoll train --task link` over the file, stopped
by SIGTERM after --seconds (exit code 75), and plimsoll.LinkNeighborLoader in Python (batches of 512 pairs, a drawn pair each, fan-out 10,5, shuffled):
neither is killed, and the training stays below its plan. With --pyg, a Python with PyTorch Geometric and its sampler, the same loader there, graph and
float32 rows in memory, over the first N pairs (all unless given) in a cgroup of --pyg-memory (no limit): pairs/s beside ours, at least five times, and
its peak. The loaders run by themselves, three times in turn; rates are medians. Takes 4 GB of disk, root, and a quiet machine for its rates.
"""
import pathlib
import re
import shutil
import statistics
import sys

import numpy as np

import prooflib

FEED = prooflib.SOURCE / 'bench' / 'python_feed.py'
BATCH = 512
BLOCK = 1 << 16
STOPPED = 75
MORE = 5
ROUNDS = 3


def write_pairs(dataset, path, count):
    """Edges of the dataset in blocks by ascending target, the blocks in a random order: shuffling is the loader's affair."""
    sources, indptr = (np.load(dataset / f'{name}.npy', mmap_mode='r') for name in ('indices', 'indptr'))
    out = np.lib.format.open_memmap(path.with_suffix('.partial'), 'w+', np.int32, (count, 2))
    first = np.random.default_rng(0).permutation(-(-count // BLOCK)) * BLOCK
    at = 0
    for start in first:
        end = min(start + BLOCK, count)
        out[at:at + end - start, 0] = sources[start:end]
        out[at:at + end - start, 1] = np.searchsorted(indptr, np.arange(start, end), side='right') - 1
        at += end - start
    out.flush()
    path.with_suffix('.partial').rename(path)


def feed_in_turn(sides):
    """What each side measured, the rates of all rounds together, and its report: of a failure, else of the largest peak."""
    found = {}
    for _ in range(ROUNDS):
        for name, (limit, words) in sides.items():
            report = prooflib.limited(limit, *words)
            fed = prooflib.last_json(report.pop('stdout'))
            if name in found:
                before, worst = found[name]
                fed = {**before, **fed, 'rates': before.get('rates', []) + fed.get('rates', [])}
                report = max(worst, report, key=lambda one: (one['exit'] != 0, one['max_needed']))
            found[name] = fed, report
    return found


def main():
    parser = prooflib.parser(__doc__, 'links.json')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--scale', type=float, default=0.09)
    parser.add_argument('--pairs', type=int, default=100_000_000)
    parser.add_argument('--memory', default='4G')
    parser.add_argument('--seconds', type=int, default=60)
    parser.add_argument('--pyg')
    parser.add_argument('--first', type=int)
    parser.add_argument('--pyg-memory', default='max')
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    dataset, pairs, run = options.dir / f'links-{options.scale}', options.dir / f'pairs-{options.scale}-{options.pairs}.npy', options.dir / 'links-run'
    if not dataset.exists():
        prooflib.require_room(options.dir, 8 << 30)
        prooflib.must('generate', 'papers100M', dataset, '--scale', options.scale, '--quiet')
    if not pairs.exists():
        write_pairs(dataset, pairs, options.pairs)
    shutil.rmtree(run, ignore_errors=True)
    claims, reports = {}, {}

    def alive(name, report, code):
        stderr = report.pop('stderr')
        if report['exit'] != code:
            sys.stderr.write(stderr[-2000:])
        reports[name] = report
        claims[f'{name}: not killed in {options.memory}, peak without clean cache {report["max_needed"] / prooflib.MIB:.0f} MiB'] = \
            report['exit'] == code and report['oom_kill'] == 0
        return stderr

    words = ['train', dataset, '--task', 'link', '--pairs', pairs, '--model', 'sage', '--hidden', 64, '--fanout', '10,5', '--batch', BATCH, '--epochs', 1,
             '--run', run, '--memory', options.memory, '--json']
    report = prooflib.limited(options.memory, 'timeout', '--signal', 'TERM', '--preserve-status', options.seconds, prooflib.plimsoll(), *words)
    plan = prooflib.last_json(report.pop('stdout').partition('\n')[0])
    stderr = alive('train', report, STOPPED)
    steps = int(found[1]) if (found := re.search(r'step (\d+) of', stderr)) else 0
    trained = round(steps * BATCH / report['seconds'])
    claims[f'train: plan {plan["total_bytes"] / prooflib.MIB:.0f} MiB above that'] = plan['total_bytes'] >= report['max_needed']
    claims[f'train: {steps} steps in {report["seconds"]:.0f} s with the start, {trained} pairs/s'] = steps > 0
    feed = ['--workload', 'L', '--pairs', pairs, '--seconds', options.seconds / ROUNDS, '--repeats', 1]
    package = pathlib.Path(prooflib.plimsoll()).parent / 'python'
    sides = {'loader': (options.memory, ['env', f'PYTHONPATH={package}', sys.executable, FEED, 'plimsoll', dataset, *feed, '--memory', options.memory])}
    if options.pyg:
        sides['pyg'] = options.pyg_memory, [options.pyg, FEED, 'pyg', dataset, *feed, *(['--first', options.first] if options.first else [])]
    found = feed_in_turn(sides)
    alive('loader', found['loader'][1], 0)
    rates = {name: round(statistics.median(fed.get('rates') or [0]) * BATCH) for name, (fed, _) in found.items()}  # 0: it was killed
    if options.pyg:
        report = reports['pyg'] = found['pyg'][1]
        sys.stderr.write(report.pop('stderr')[-2000:])
        claims[f'loader: {rates["loader"]} pairs/s beside PyG\'s {rates["pyg"]} ({rates["loader"] / max(rates["pyg"], 1):.2f} times, at least {MORE}), in '
               f'{reports["loader"]["max_needed"] / prooflib.MIB:.0f} MiB beside {report["max_needed"] / prooflib.MIB:.0f}'] = rates['loader'] >= MORE * rates['pyg']
    return 0 if prooflib.record(options.json, claims, pairs=options.pairs, first=options.first, pairs_per_second={'train': trained, **rates}, ours=found['loader'][0],
                                pyg=found.get('pyg', [None])[0], runs=reports) else 1
