"""Proves what the Python package claims, beside PyTorch Geometric.

    tools/prove python accuracy   [--seeds 5] [--epochs N]     each example of examples/python with PyG's loader and with ours
    tools/prove python speed      [--rounds 3] [--seconds 5]   the loader beside PyG's NeighborLoader on 10 million nodes
    tools/prove python edges      [--rounds 3] [--seconds 5]   the same with columns of edges, also drawn by weight and by time, on 6.7 million nodes
    tools/prove python full       --dataset DIR                papers100M's shape at full size in a cgroup of 4 GiB, both
    tools/prove python leak       [--batches 100000]           resident memory stays flat
    tools/prove python neighbours [N] [--limits 2G,4G,8G]      N (default 40) random scripts that take memory by torch beside the loader
    tools/prove python inference  [N] [--seed 0]               N (default 300) random models, by plimsoll.inference and on the whole graph
    tools/prove python guard      [N] [--before BUILD]         N (default 60) random training scripts in real cgroups
    tools/prove python rehearse   [N]                          the same scripts with a rehearsal before their first step

Options of all: [--pyg PYTHON] [--dataset DIR] [--scale S] [--dir DIR] [--json FILE]

accuracy: for each seed the test accuracy that the two scripts print; the means must be within two standard errors of their difference.
speed: workload A (batch 128, fan-out 3,2; GCN, hidden 16) and B (batch 1,024, fan-out 15,10,5; GraphSAGE, hidden 256), by turns in processes
of their own, medians over all windows: batches/s without a model must be at least 3 times PyG's on A and 2.5 times on B; those of PyG's NodeLoader with our sampler, it/s with the model,
peaks and Python's share of a batch's time are recorded. Without pyg-lib, PyG's recorded figures stand in its place.
edges: as speed, without a model, on graphs whose edges have 8 features, which batches carry as edge_attr: the same bounds. PyG has
all of PyTorch's threads or one, which suits a busy machine; the better counts. With weights or times besides,
and draws by them, both are recorded. Needs pyg-lib.
full: ours reads and trains within the limit; how PyG ends is recorded.
leak: the largest resident memory of the last tenth is within 1 MiB of that of the second tenth, and no object of Python is left over.
neighbours: torch imported before the package or after it, a line given or the job's limit, one to three loaders, memory taken in one tensor, in many, by
NumPy or by a model in training, once or twice. Nobody is killed; resident memory is back below the line within a second of the growth and
stays there; within 25 seconds of its end, no more than a tenth of the caches is missing from the resident memory of before.
inference: bench/python_models.py draws them. Each is refused, or equals its own code on the whole graph within 1e-5 of the largest output; none
that has nothing to be refused is; none is changed.
guard: PyG's GCN, GraphSAGE, GAT and GIN, hidden 16 to 1,024, batch 64 to 4,096, Adam or SGD, evaluation in between, in limits from half to twice of what
the script holds without one. Where its first step survives, it is not killed later, and no step takes more than ten seconds longer because code is
read again and again. First steps that were killed are counted. --before is the build directory of another revision: what is refused here does not run to its end there, or thrashes there.

rehearse: none is killed: each runs to its end, with the weights of one without a rehearsal or a limit, or is refused before its first step. The script
then runs in 1.1 times of what the refusal names, and not in 1/1.1 of it, in 9 of 10, where it tries without a rehearsal, which would refuse it, and with
blocks mapped one by one, as after a rehearsal; with the batch_size that it names it runs in the same limit. A rehearsal takes at most 5 s or 30 steps. Refusals by the loader itself, before a step can be rehearsed, are counted.

--pyg (default: $PLIMSOLL_PYG_PYTHON, else this Python) is a Python with torch, torch_geometric and pyg-lib (or torch-sparse). The package under test is the one beside the
binary under test ($PLIMSOLL, else the release build). Datasets and results so far are kept in --dir (default: a temporary directory): the same command goes on
where it was interrupted. Disk: speed 3.3 GB, edges 4.5 GB (one dataset after the other), neighbours 9.2 GB. full and neighbours need root and exit 77 without.
Results: bench/results/python-WHAT.json.
"""
import collections
import itertools
import json
import math
import os
import pathlib
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import prooflib

MIB = prooflib.MIB
GIB = 1 << 30
FEED = prooflib.SOURCE / 'bench' / 'python_feed.py'
MODELS = prooflib.SOURCE / 'bench' / 'python_models.py'
STEPS = prooflib.SOURCE / 'bench' / 'python_steps.py'
BESIDE = prooflib.SOURCE / 'bench' / 'python_beside.py'
EXAMPLES = prooflib.SOURCE / 'examples' / 'python'

DATASETS = {
    'papers_sage': ['generate', 'papers100M', None, '--scale', 0.01],
    'arxiv_sage': ['import', 'ogbn_arxiv', None, '--symmetrise'],
    'proteins_gin': ['import', 'graphs/PROTEINS', None, '--symmetrise'],
    'molesol_gine': ['import', 'graphs/ogbg_molesol', None, '--symmetrise'],
}
FACTORS = {'A': 3, 'B': 2.5}
DRAWS = {'uniform': 'features:8', 'weighted': 'features:8,weight', 'temporal': 'features:8,time'}
SIDES = {'plimsoll': ('plimsoll', sys.executable), 'pyg': ('pyg', None), 'pyg, one thread': ('pyg', None, '--threads', 1)}
RECORDED = {'A': {'load': 1230, 'train': 255}, 'B': {'load': 6.7, 'train': 0.59}}  # with pyg-lib 0.9.0 on 2 cores, and a graph as large
FULL_LIMIT, FULL_SECONDS = 4 * GIB, 900
FLAT = MIB
BACK_SECONDS, COME_BACK = 1.0, 0.9
TICK = 0.02


def log_of(options, name, **head):
    """Results of this build so far."""
    package = sorted((pathlib.Path(prooflib.plimsoll()).parent / 'python' / 'plimsoll').glob('*.*'))
    return prooflib.Log(options.dir / f'{name}.jsonl', build=prooflib.build_digest(*package), **head)


def make_dataset(options, name, *words):
    """--dataset, or one that is made unless it is there."""
    path = options.dataset or options.dir / name
    if not path.exists():
        prooflib.must(*(path if word is None else word for word in words), '--quiet')
    return path


def make_papers(options, scale):
    scale = options.scale or scale
    return make_dataset(options, f'papers-{scale}', 'generate', 'papers100M', None, '--scale', scale)


def sampler_of(python):
    """The sampler that PyG has there, or None."""
    for name in 'pyg_lib', 'torch_sparse':
        if subprocess.run([python, '-c', f'import torch_geometric, {name}'], capture_output=True, check=False).returncode == 0:
            return name
    return None


def mean_of(values):
    return {'mean': round(statistics.mean(values), 5), 'deviation': round(statistics.stdev(values), 5) if len(values) > 1 else 0.0, 'values': values}


def accuracy(options):
    log, claims, facts = log_of(options, 'accuracy', epochs=options.epochs), {}, {}
    sampler = sampler_of(options.pyg)
    left_out = [name for name, words in DATASETS.items() if not words[1].startswith('graphs/') and not sampler]
    for name, words in DATASETS.items():
        if words[0] == 'import' and not prooflib.test_data().exists():
            prooflib.skip(f'the real data is not at {prooflib.test_data()}: set PLIMSOLL_TEST_DATA')
        source = prooflib.test_data() / words[1] if words[0] == 'import' else words[1]
        dataset = make_dataset(options, name, words[0], source, *words[2:])

        def scores(script, python):
            more = ['--epochs', options.epochs] if options.epochs else []

            def score(seed):
                printed = prooflib.run(python, EXAMPLES / script, dataset, '--seed', seed, *more)
                return float(re.search(r'^Test: (\S+)$', printed, re.MULTILINE).group(1))
            return mean_of([log.get(f'{script} {seed}', lambda: score(seed)) for seed in range(options.seeds)])
        facts[name] = {'plimsoll': scores(f'{name}.py', sys.executable)}
        if name in left_out:
            continue
        facts[name]['pyg'] = scores(f'{name}_pyg.py', options.pyg)
        ours, theirs = facts[name]['plimsoll'], facts[name]['pyg']
        noise = 2 * math.sqrt((ours['deviation']**2 + theirs['deviation']**2) / options.seeds)
        claims[f'{name}: {ours["mean"]:.4f} ± {ours["deviation"]:.4f} with our loader, {theirs["mean"]:.4f} ± {theirs["deviation"]:.4f} with PyG\'s, '
               f'{options.seeds} seeds: within two standard errors ({noise:.4f})'] = abs(ours['mean'] - theirs['mean']) <= noise
    held = prooflib.record(options.json, claims, sampler=sampler, seeds=options.seeds, not_compared=left_out, examples=facts)
    if left_out and held:
        prooflib.skip(f'{", ".join(left_out)} not compared: {options.pyg} has neither pyg-lib nor torch-sparse (name one that has by --pyg)')
    return held


def feed(loader, python, dataset, workload, what, options, *more):
    words = [python, FEED, loader, dataset, '--workload', workload, '--what', what, '--seconds', options.seconds, *more]
    return prooflib.last_json(prooflib.run(*words))


def speed(options):
    dataset, sampler = make_papers(options, 0.09), sampler_of(options.pyg)
    log, claims, facts = log_of(options, 'speed', dataset=dataset.name, seconds=options.seconds, sampler=sampler), {}, {}
    sides = {'plimsoll': sys.executable, 'sampler': sys.executable, **({'pyg': options.pyg} if sampler else {})}
    for workload, factor in FACTORS.items():
        found = facts[workload] = {}
        for side in sides:
            found[side] = {'load': [], 'train': []}
        found['profile'] = []
        for number in range(options.rounds):
            for what in 'load', 'train':
                for side, python in sides.items():
                    found[side][what].append(log.get(f'{workload} {number} {side} {what}',
                                                     lambda: feed(side, python, dataset, workload, what, options)))
            found['profile'].append(log.get(f'{workload} {number} profile',
                                            lambda: feed('plimsoll', sys.executable, dataset, workload, 'profile', options)))
        middle = {side: {what: statistics.median(rate for one in found[side][what] for rate in one['rates']) for what in ('load', 'train')} for side in sides}
        theirs = middle['pyg'] if sampler == 'pyg_lib' else RECORDED[workload]
        where = 'PyG\'s with pyg-lib' if sampler == 'pyg_lib' else 'PyG\'s, recorded with pyg-lib'
        share = statistics.median(one['python_share'] for one in found['profile'])
        found['summary'] = {'batches_per_second': middle['plimsoll']['load'], 'sampler_batches_per_second': middle['sampler']['load'], 'pyg_batches_per_second': theirs['load'],
                            'pyg_recorded_batches_per_second': RECORDED[workload]['load'], 'pyg_source': 'measured' if sampler == 'pyg_lib' else 'recorded', 'pyg_measured': middle.get('pyg'),
                            'times': round(middle['plimsoll']['load'] / theirs['load'], 2), 'it_per_second': middle['plimsoll']['train'],
                            'pyg_it_per_second': theirs['train'], 'times_training': round(middle['plimsoll']['train'] / theirs['train'], 2),
                            'python_share': share,
                            'peak_bytes': {side: {what: max(one['peak_bytes'] for one in found[side][what]) for what in ('load', 'train')} for side in sides}}
        claims[f'{workload}: {middle["plimsoll"]["load"]:,.1f} batches/s, {middle["plimsoll"]["load"] / theirs["load"]:.2f} times {where} ({theirs["load"]:,.1f}), '
               f'at least {factor}'] = middle['plimsoll']['load'] >= factor * theirs['load']
        print(workload, json.dumps(found['summary']))
    return prooflib.record(options.json, claims, dataset=dataset.name, sampler=sampler, rounds=options.rounds, workloads=facts)


def edges(options):
    sampler, scale = sampler_of(options.pyg), options.scale or 0.06
    if sampler != 'pyg_lib':
        prooflib.skip(f'{options.pyg} has no pyg-lib: name a Python that has by --pyg')
    log, claims, facts = log_of(options, 'edges', scale=scale, seconds=options.seconds), {}, {}
    for draw, columns in DRAWS.items():
        def measure(side, workload):
            dataset = make_dataset(options, f'papers-{scale}-{draw}', 'generate', 'papers100M', None, '--scale', scale, '--edge-columns', columns)
            loader, python, *threads = SIDES[side]
            return feed(loader, python or options.pyg, dataset, workload, 'load', options, '--draw', draw, *threads)
        facts[draw] = {'columns': columns}
        for workload, factor in FACTORS.items():
            found = {side: [] for side in SIDES}
            for number, side in itertools.product(range(options.rounds), SIDES):
                found[side].append(log.get(f'{draw} {workload} {number} {side}', lambda: measure(side, workload)))
            rates = {side: statistics.median(rate for one in found[side] for rate in one['rates']) for side in SIDES}
            ours, theirs = rates.pop('plimsoll'), max(rates.values())
            facts[draw][workload] = {'batches_per_second': ours, 'pyg_batches_per_second': theirs, 'times': round(ours / theirs, 2),
                                     'peak_bytes': {side: max(one['peak_bytes'] for one in found[side]) for side in found}, **found}
            print(draw, workload, f'{ours:,.1f} batches/s, PyG {theirs:,.1f}')
            if draw == 'uniform':
                claims[f'{workload} with edge_attr: {ours:,.1f} batches/s, {ours / theirs:.2f} times PyG\'s with pyg-lib ({theirs:,.1f}), '
                       f'at least {factor}'] = ours >= factor * theirs
        shutil.rmtree(options.dir / f'papers-{scale}-{draw}', ignore_errors=True)
    return prooflib.record(options.json, claims, sampler=sampler, scale=scale, rounds=options.rounds, draws=facts)


def full(options):
    if not options.dataset:
        sys.exit('full needs --dataset: papers100M\'s shape at full size (plimsoll generate papers100M DIR, 37 GB)')
    facts = {}
    for side, python in (('plimsoll', sys.executable), ('pyg', options.pyg)):
        for what in 'load', 'train':
            words = ['timeout', '--kill-after=5', FULL_SECONDS, python, FEED, side, options.dataset, '--workload', 'A', '--what', what, '--seconds', options.seconds]
            seen = prooflib.limited(FULL_LIMIT, *words)
            stdout, stderr = seen.pop('stdout'), seen.pop('stderr')
            facts[f'{side} {what}'] = {**seen, **prooflib.last_json(stdout), 'said': stderr.splitlines()[-3:] if seen['exit'] else []}
            print(side, what, json.dumps(facts[f'{side} {what}']), file=sys.stderr)
    claims = {}
    for what in 'load', 'train':
        one = facts[f'plimsoll {what}']
        claims[f'{what} at full size in {FULL_LIMIT // GIB} GiB: exit {one["exit"]}, {one["oom_kill"]} killed, peak {one["peak"] / GIB:.2f} GiB, '
               f'{statistics.median(one.get("rates", [0])):,.1f} batches/s; PyG: exit {facts[f"pyg {what}"]["exit"]}, '
               f'{facts[f"pyg {what}"]["oom_kill"]} killed'] = one['exit'] == 0 and one['oom_kill'] == 0 and one['peak'] <= FULL_LIMIT
    return prooflib.record(options.json, claims, limit=FULL_LIMIT, runs=facts)


def leak(options):
    dataset = make_papers(options, 0.001)
    found = prooflib.last_json(prooflib.run(sys.executable, FEED, 'plimsoll', dataset, '--what', 'leak', '--batches', options.batches, '--memory', '1G'))
    resident, objects = found.pop('resident_bytes'), found.pop('objects')
    tenth = max(len(resident) // 10, 1)
    grown = max(resident[-tenth:]) - max(resident[tenth:2 * tenth])
    objects = objects[-1] - objects[tenth]
    return prooflib.record(options.json, {
        f'{found["batches"]:,} batches: resident memory grew by {grown / MIB:.2f} MiB after the first tenth, at most {FLAT / MIB:.0f}': grown <= FLAT,
        f'{objects} more objects of Python at the end, none': objects <= 0,
        f'{found["held"]} slots are held at the end, none': found['held'] == 0}, grown_bytes=grown, **found)


def draw_case(number, options):
    rng = random.Random(f'{options.seed} {number}')
    limit = options.limits[number % len(options.limits)]
    line = int(limit * rng.uniform(0.7, 0.95)) if rng.random() < 0.5 else None
    fanout, batch = rng.choice([([3, 2], 128), ([10, 5], 256), ([15, 10], 512)])
    return {'number': number, 'limit': limit, 'line': line, 'torch_first': rng.random() < 0.5, 'before': int(rng.choice([0, 0.05, 0.1]) * limit),
            'loaders': rng.choice([1, 2, 3]), 'fanout': fanout, 'batch': batch, 'kind': rng.choice(['burst', 'steps', 'numpy', 'model']),
            'share': rng.uniform(0.2, 0.9), 'rate': int(math.exp(rng.uniform(math.log(50 * MIB), math.log(500 * MIB)))), 'hold': rng.uniform(3, 6),
            'times': rng.choice([1, 2])}


class Watch(threading.Thread):
    """The resident memory of a process, on the clock that its marks are on."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.samples = pathlib.Path(f'/proc/{pid}/statm'), []
        self.start()

    def run(self):
        page = os.sysconf('SC_PAGE_SIZE')
        while True:
            try:
                self.samples.append((time.monotonic(), int(self.path.read_text().split()[1]) * page))
            except (OSError, IndexError):
                return
            time.sleep(TICK)

    def seconds_above(self, line, begin, end):
        """How long after `begin` the memory was last above the line."""
        return max((moment - begin for moment, size in self.samples if begin <= moment <= end and size > line), default=0.0)


def try_case(case, dataset):
    group = prooflib.Limited(case['limit'], sys.executable, BESIDE, dataset, json.dumps(case), warm=True)
    marks, watch = [], None
    for text in group.output:
        marks.append(json.loads(text))
        watch = watch or Watch(marks[0]['pid'])
    report = group.end()
    printed = report.pop('stderr')
    result = {**case, 'cgroup': report, 'marks': [{**mark, 'time': round(mark['time'] - marks[0]['time'], 3)} for mark in marks],
              'alive': report['exit'] == 0 and report['oom_kill'] == 0, 'said': printed.splitlines()[-5:] if report['exit'] else []}
    result['done'] = bool(marks) and marks[-1]['mark'] == 'end'
    if result['done']:
        line = marks[0]['line']
        grown, freed, back = ([mark for mark in marks if mark['mark'] == name] for name in ('grown', 'freed', 'back'))
        result['above_seconds'] = [round(watch.seconds_above(line, begin['time'], end['time']), 3) for begin, end in zip(grown, freed)]
        result['peak_over_line'] = max(size for _, size in watch.samples) - line
        caches = max(next(mark['caches'] for mark in marks if mark['mark'] == 'before'), MIB)
        result['come_back'] = [round(1 - mark['missing'] / caches, 4) for mark in back]
    return result


def neighbours(options):
    dataset = make_papers(options, 0.25)
    log = log_of(options, 'neighbours', dataset=dataset.name, seed=options.seed, limits=options.limits)
    results = [log.get(str(number), lambda: try_case(draw_case(number, options), dataset)) for number in range(options.cases or 40)]
    killed = [one['number'] for one in results if not one['alive']]
    done = [one for one in results if one['done']]
    late = [one['number'] for one in done if max(one['above_seconds']) > BACK_SECONDS]
    gone = [one['number'] for one in done if min(one['come_back']) < COME_BACK]
    longest = max((max(one['above_seconds']) for one in done), default=math.inf)
    return prooflib.record(options.json, {
        f'{len(results)} scripts: none was killed (not so: {killed})': not killed,
        f'resident memory is back below the line within {BACK_SECONDS} s of torch\'s growth, after {longest:.2f} s at most (not so: {late})': not late and bool(done),
        f'at least {COME_BACK:.0%} of the caches come back (not so: {gone})': not gone and bool(done)},
        seed=options.seed, dataset=dataset.name, cases=results)


def inference(options):
    tried = [json.loads(line) for line in prooflib.run(sys.executable, '-W', 'ignore', MODELS, options.dir, options.cases or 300, options.seed).splitlines()]
    outcomes = collections.Counter(one['outcome'] for one in tried)
    equal = [one for one in tried if one['outcome'] == 'equal']
    convs = sorted({conv for one in equal for conv in one.get('convs', [])})
    refused = collections.Counter(one.get('changed') or one['kind'] for one in tried if one['outcome'] == 'refused')
    wrong = [one for one in tried if one['outcome'] == 'wrong']
    missed = [one for one in tried if one['plain'] and one['outcome'] == 'refused']
    changed = [one['number'] for one in tried if not one['unchanged']]
    worst = max(one['off'] for one in equal)
    return prooflib.record(options.json, {
        f'{len(tried)} models: {outcomes["equal"]} equal, off by {worst:.1e} of the largest output at most, {outcomes["refused"]} refused, {len(wrong)} wrong': not wrong,
        f'no model is refused that has nothing to be refused ({len(missed)} are)': not missed,
        f'no model is changed (not so: {changed})': not changed,
        f'{len(convs)} kinds of convolutions and models are computed, at least 20 by 300 models': len(convs) >= 20 or len(tried) < 300},
        seed=options.seed, outcomes=outcomes, refused=refused, computed=', '.join(convs), norms=', '.join(sorted({one['norm'] for one in equal if one.get('norm')})), wrong=wrong, missed=missed)


def draw_steps(number, seed):
    rng = random.Random(f'{seed} steps {number}')
    return {'number': number, 'model': rng.choice(['GCN', 'GraphSAGE', 'GAT', 'GIN']), 'hidden': 8 * round(math.exp(rng.uniform(math.log(2), math.log(128)))),
            'batch': 2 ** rng.randint(6, 12), 'fanout': rng.choice([[3, 2], [10, 5], [15, 10], [5, 5, 5]]), 'optimizer': rng.choice(['Adam', 'SGD']),
            'steps': 12, 'evaluate': 4, 'share': math.exp(rng.uniform(math.log(0.5), math.log(2)))}


def run_steps(dataset, case, limit, package=None, warm=False, variables=None):
    """How a script ended under a limit, and its longest step or wait after the first step with the share of it that code was read again."""
    environment = {**({'PYTHONPATH': str(package)} if package else {}), **(variables or {})}
    group = prooflib.Limited(limit, sys.executable, STEPS, dataset, json.dumps(case), warm=warm, environment=environment)
    told = [json.loads(line) for line in group.output]
    report = group.end()
    steps = [one for one in told if 'seconds' in one]
    first = next((number for number, one in enumerate(steps) if one['what'] == 'step'), None)
    later = steps[first + 1:] if first is not None else []
    usual = statistics.median([one['seconds'] for one in later] or [0])
    slow = max((one for one in later if one['faults'] > 1000), key=lambda one: one['seconds'], default={'seconds': 0})
    return {'exit': report['exit'], 'killed': report['oom_kill'] > 0, 'first_step': first is not None, 'steps': len([one for one in steps if one['what'] == 'step']),
            'thrashing_seconds': round(max(0, slow['seconds'] - usual), 2), 'usual_seconds': usual,
            **{name: value for one in told[-1:] for name, value in one.items() if name.endswith('_bytes') or name in ('batch_size', 'weights')},
            **{'rehearsed': one['rehearsed'] for one in told if 'rehearsed' in one},
            'said': report['stderr'].splitlines()[-3:] if report['exit'] not in (0, 3) else []}


def step_cases(options, dataset):
    """Random scripts, each with its limit and what it does in 12 GiB: the peak, of which the limit is
    a share, and the weights at the end. Scripts that do not run there are left out. guard and
    rehearse share these runs, of any build: a build that computed other weights would fail.
    """
    log = prooflib.Log(options.dir / 'alone.jsonl', dataset=dataset.name, seed=options.seed)
    numbers, found = itertools.count(), 0
    while found < (options.cases or 60):
        case = draw_steps(next(numbers), options.seed)
        measured = {**case, 'measure': True}
        alone = log.get(str(case['number']), lambda: run_steps(dataset, measured, 12 * GIB, warm=True))
        if alone['exit'] == 0:
            found += 1
            yield {**case, 'limit': int(alone['peak_bytes'] * case['share'])}, alone


def guard(options):
    dataset = make_papers(options, 0.02)
    log, results = log_of(options, 'guard', dataset=dataset.name, seed=options.seed), []
    for case, alone in step_cases(options, dataset):
        number, limit = case['number'], case['limit']
        result = {**case, **log.get(f'{number} limited', lambda: run_steps(dataset, case, limit)), 'peak_bytes': alone['peak_bytes']}
        if options.before and result['exit'] == 3:
            result['before'] = log.get(f'{number} before', lambda: run_steps(dataset, case, limit, options.before / 'python'))
        results.append(result)
    killed = [one['number'] for one in results if one['killed'] and one['first_step']]
    first = [one['number'] for one in results if one['killed'] and not one['first_step']]
    thrashing = [one['number'] for one in results if one['first_step'] and one['thrashing_seconds'] > 10]
    ran, refused = ([one for one in results if one['exit'] == code] for code in (0, 3))
    odd = [one['number'] for one in results if one['exit'] not in (0, 3) and not one['killed']]
    ran_before = [one for one in refused if one.get('before', {}).get('exit') == 0]
    worse = [one['number'] for one in ran_before if one['before']['thrashing_seconds'] <= 10]
    claims = {f'{len(results)} scripts, {len(ran)} ran to their end, {len(refused)} were refused, {len(first)} killed in their first step; none later (not so: {killed})': not killed,
              f'none reads its code again for more than ten seconds (not so: {thrashing})': not thrashing,
              f'none ends in any other way (not so: {odd})': not odd}
    if options.before:
        claims[f'none of those refused runs to its end at the revision before (not so: {worse}), but {len(ran_before) - len(worse)} that thrashed there for more than ten seconds'] = not worse
    return prooflib.record(options.json, claims, seed=options.seed, dataset=dataset.name, first_steps_killed=first, cases=results)


def rehearse(options):
    dataset = make_papers(options, 0.02)
    log = log_of(options, 'rehearse', dataset=dataset.name, seed=options.seed)
    results = [rehearse_case(case, alone, dataset, log) for case, alone in step_cases(options, dataset)]
    refused = [one for one in results if one['exit'] == 3 and one['batch_size'] is not None]
    ran = [one for one in results if one['exit'] == 0]
    early = [one['number'] for one in results if one['exit'] == 3 and one['batch_size'] is None and not one['first_step']]
    killed = [one['number'] for one in results if one['killed']]
    late = [one['number'] for one in results if one['exit'] == 3 and one['first_step']]
    odd = [one['number'] for one in results if one['exit'] not in (0, 3) and not one['killed']]
    changed = [one['number'] for one in ran if one['weights'] != one['weights_alone']]
    near = [one for one in refused if runs(one['above']) and not runs(one['below'])]
    off = [one['number'] for one in refused if one not in near]
    useless = [one['number'] for one in refused if one['suggested']['exit'] != 0]
    slow = [one['number'] for one in ran if one['rehearsed']['seconds'] > 5 and one['rehearsed']['steps'] > 30]
    return prooflib.record(options.json, {
        f'{len(results)} scripts, {len(ran)} ran to their end, {len(refused)} were refused before their first step, {len(early)} by the loader itself; none was killed '
        f'(not so: {killed})': not killed,
        f'none is refused after its first step (not so: {late})': not late,
        f'none ends in any other way (not so: {odd})': not odd,
        f'of those that ran, all have the weights of one without a rehearsal (not so: {changed})': not changed,
        f'the named need is within 10 % of the least that works in {len(near)} of {len(refused)}, at least 9 of 10 (not so: {off})': len(near) >= 0.9 * len(refused),
        f'the named batch size runs in all (not so: {useless})': not useless,
        f'a rehearsal takes at most 5 s or 30 steps (not so: {slow})': not slow},
        seed=options.seed, dataset=dataset.name, refused_by_the_loader=early, cases=results)


def runs(result):
    return result['exit'] == 0 and result['thrashing_seconds'] <= 10


def rehearse_case(case, alone, dataset, log):
    """What a script does with a rehearsal, and what shows whether the rehearsal was right."""
    number, limit, rehearsed = case['number'], case['limit'], {**case, 'rehearse': True}
    result = {**case, **log.get(f'{number} rehearsed', lambda: run_steps(dataset, rehearsed, limit)), 'weights_alone': alone['weights']}
    if result['exit'] == 3 and result['batch_size'] is not None:
        needed, batch = result['needed_bytes'], result['batch_size']
        result['above'] = log.get(f'{number} rehearsed above', lambda: run_steps(dataset, rehearsed, int(needed * 1.1)))
        result['below'] = log.get(f'{number} mapped below', lambda: run_steps(dataset, case, int(needed / 1.1), variables={'MALLOC_MMAP_THRESHOLD_': '131072'}))
        result['suggested'] = log.get(f'{number} suggested', lambda: run_steps(dataset, {**rehearsed, 'batch': batch}, limit)) if batch else {'exit': None}
    return result


def main():
    parser = prooflib.parser(__doc__)
    proofs = {proof.__name__: proof for proof in (accuracy, speed, edges, full, leak, neighbours, inference, guard, rehearse)}
    parser.add_argument('what', choices=proofs)
    parser.add_argument('cases', type=int, nargs='?')
    parser.add_argument('--pyg', default=os.environ.get('PLIMSOLL_PYG_PYTHON', sys.executable))
    parser.add_argument('--dataset', type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument('--scale', type=float)
    parser.add_argument('--seeds', type=int, default=5)
    parser.add_argument('--epochs', type=int)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--seconds', type=float, default=5)
    parser.add_argument('--batches', type=int, default=100_000)
    parser.add_argument('--limits', type=lambda text: [prooflib.parse_size(size) for size in text.split(',')], default=[2 * GIB, 4 * GIB, 8 * GIB])
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--before', type=lambda path: pathlib.Path(path).resolve())
    parser.add_argument('--dir', type=pathlib.Path)
    options = parser.parse_args()
    options.json = prooflib.result_path(options, f'python-{options.what}', True)
    if options.what == 'accuracy' and options.dataset:
        sys.exit('accuracy makes its datasets in --dir')
    prooflib.python_package('torch', 'torch_geometric')
    with tempfile.TemporaryDirectory(prefix='prove-python-') as temporary:
        options.dir = (options.dir or pathlib.Path(temporary)).resolve()
        options.dir.mkdir(parents=True, exist_ok=True)
        return 0 if proofs[options.what](options) else 1
