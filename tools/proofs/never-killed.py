"""Proves that a run stays below its line, or says first that it does not fit: random configurations in real cgroups.

    tools/prove never-killed [N] [--variant NAME | --ranks] [--seed S] [--minimums K] [--untimed] [--datasets A,B,..] [--dir DIR] [--json FILE]

Each of N (default 300) configurations draws a line, log-uniform from 96 MiB to 4 GiB, a dataset (up to 4,096 features, up to 10,000 classes,
hubs, many small graphs; for lines of 512 MiB and more one that is larger than the line, too), a recipe (model, up to eight layers, fan-outs,
batch, precision, norm …) and the ways in which it is run (threads, more than there are cores among them, engine, microbatches, recomputation, row
cache). `plimsoll plan` says whether it fits and its minimum. It is then trained for two epochs with evaluation and checkpoints, as its
user's first: odd configurations in a group whose limit is the line, even ones with --memory LINE in a group of 1.25 times the line, so that
going past the line can be seen. Each third predicts afterwards. Then it is trained under twice its minimum, to compare times (not with --untimed:
a busy machine). Over all:

  no process is killed; train ends with 0 where the line is at least the minimum, else with 3, and cuts batches as plan said;
  the group's peak, without reclaimable page cache, is at most what the plan says;
  no training takes more than four times as long as under twice its minimum, unless the plan expects that;
  with 1 GiB and more at least 96 % of the line is in use where caches missed something and could use more;
  equal recipes have equal losses and weights, bit for bit, where batches are cut alike.

Recorded, not bounded: how far the plan is above the peak and, for K (default N / 30) runs, how far the minimum is above the lowest limit
under which the run ends.

--variant runs 24 on what is different elsewhere: sse41 and avx2 (oneDNN's kernels for such a CPU), small-pages (huge pages refused by
prctl), onednn3 (the build of tools/test-onednn3).

--ranks trains 100 configurations by Open MPI's mpirun as 1 to 4 ranks that share one group, under a line of 64 to 512 MiB each: odd ones divide the
group's limit, even ones are told --memory in a group of 1.25 times their sum. mpirun itself is in the group, too, as in a batch job, though nobody plans
it. None may be killed; where a rank does not fit, all end with 3, and with the line that the message names the training ends with 0; the group's peak is at most what
rank 0 plans, times the ranks; losses and weights are those of one process under one rank's line, bit for bit where batches are cut alike. Then 2 and 4 ranks
train for 300 epochs: the group's peak is that after the third, within 1 MiB.

Datasets (5 GB; without the large one, 700 MB) and one line of JSON a configuration are kept in DIR
(default: a temporary directory): the same command goes on where it was interrupted. Needs root, exits 77 without; an hour, a variant 5 minutes.
--ranks: 15 minutes.
Results: bench/results/never-killed[-VARIANT | -ranks].json.
"""
import collections
import ctypes
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
import time

import proofdata
import prooflib

MIB = prooflib.MIB
PAGE = 4096
LOWEST, HIGHEST = 96 * MIB, 4096 * MIB
ABOVE = 1.25
SLOWER, START_SECONDS = 4, 2  # starting a process under a limit takes its time whatever it then does
IN_USE, IN_USE_FROM, ALL_CACHED = 0.96, 1024 * MIB, 0.99
LARGE_FROM = 512 * MIB
PREDICTED = 3
# What the process measurably holds differs a little between plan and train: neither is wrong so close to the minimum.
CLOSE = 2 * MIB
# Relative: how far losses may be apart where batches were cut. A part that is left out or weighed wrongly is off by more. Rounding alone is
# 1e-9 at a learning rate of 0.00001, but at 0.01 Adam magnifies it to 1e-3 within two epochs on rows of 4,096 values.
LEARNING_RATE = 0.0001
CUT_DIGITS = {'f32': 1e-4, 'bf16': 2e-2}
RANKS, RANK_LOWEST, RANK_HIGHEST, FLAT_RANKS, FLAT_EPOCHS, FLAT_FROM = 4, 64 * MIB, 512 * MIB, (2, 4), 300, 3
LAST_WEIGHTS = 1 << 20
FLAT_RECIPE = ['--model', 'sage', '--hidden', 32, '--fanout', '5,3', '--batch', 256, '--dropout', '0.5', '--checkpoint-every', 2, '--threads', 1, '--shares', 4]
MPIRUN = ['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-n']
VARIANTS = {'sse41': {'DNNL_MAX_CPU_ISA': 'SSE41', 'ONEDNN_MAX_CPU_ISA': 'SSE41'}, 'avx2': {'DNNL_MAX_CPU_ISA': 'AVX2', 'ONEDNN_MAX_CPU_ISA': 'AVX2'},
            'small-pages': {}, 'onednn3': {}}
PR_SET_THP_DISABLE = 41


def take_variant(name):
    """Changes what this process hands on to those it starts."""
    os.environ.update(VARIANTS[name])
    if name == 'small-pages' and ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        prooflib.skip('the kernel does not let a process refuse huge pages')
    if name == 'onednn3':
        build = prooflib.SOURCE / 'build' / 'onednn3'
        if not (build / 'build.ninja').exists():
            subprocess.run([prooflib.SOURCE / 'tools' / 'test-onednn3'], check=True)
        subprocess.run(['cmake', '--build', build, '--target', 'plimsoll_cli'], check=True, stdout=subprocess.DEVNULL)
        os.environ['PLIMSOLL'] = str(build / 'plimsoll')


def draw_fanout(rng, info, layers):
    """Fan-outs whose neighbourhoods a run of some seconds can draw."""
    degree = info['num_edges'] / info['num_nodes']
    seeds = 3 * info['num_train'] + 2 * (info['num_valid'] + info['num_test'])
    most = max(1e6, 4 * seeds) * max(1, layers - 2)
    for _ in range(1000):
        fanout = [rng.choice([1, 2, 3, 5, 10, 15, -1 if hop == 0 else 4]) for hop in range(layers)]
        drawn = math.prod(1 + (min(width, degree) if width > 0 else degree) for width in fanout)
        if seeds * drawn < most:
            return fanout
    return [1] * layers


def draw_recipe(rng, info):
    """What decides the result: words of `plimsoll train`."""
    model = rng.choice(['gcn', 'sage', 'sage', 'gat', 'gin', 'mlp'])
    layers = rng.choice([1, 2, 2, 3, 3, 8])
    hidden = rng.choice([16, 32, 64, 100, 128, 256])
    words = ['--model', model, '--layers', layers, '--hidden', hidden, '--lr', LEARNING_RATE, '--seed', rng.randrange(3)]
    if model != 'mlp' and info['num_graphs'] == 0:
        # An equals sign, since a fan-out may begin with a dash.
        words += ['--fanout=' + ','.join(map(str, draw_fanout(rng, info, layers)))]
    least_batch = max(info['num_train'] / 60, 8)
    batch = int(math.exp(rng.uniform(math.log(least_batch), math.log(max(2048, least_batch)))))
    words += ['--batch', batch, '--precision', rng.choice(['f32', 'f32', 'bf16'])]
    words += ['--heads', rng.choice([1, 2, 4])] if model == 'gat' else []
    words += ['--aggr', 'max'] if model == 'sage' and rng.random() < 0.2 else []
    words += ['--dropout', '0.5'] if rng.random() < 0.3 else []
    words += ['--norm', rng.choice(['layer', 'batch'])] if rng.random() < 0.3 else []
    words += ['--residual'] if rng.random() < 0.2 else []
    words += ['--optimizer', rng.choice(['adamw', 'sgd']), '--clip', '1'] if rng.random() < 0.2 else []
    words += ['--eval-train'] if rng.random() < 0.2 else []
    return words


def draw_shared_recipe(rng, info):
    """A recipe whose batches are cut into 1 to 8 shares, the last word; batch norm needs whole batches. Ranks share the processors: no minutes of products."""
    while True:
        words, shares = draw_recipe(rng, info), rng.randint(1, 8)
        inputs = words[words.index('--hidden') + 1] * (words[words.index('--heads') + 1] if '--heads' in words else 1)
        if info['num_classes'] * (info['num_classes'] if 'gin' in words else inputs) <= LAST_WEIGHTS:
            return [*('layer' if word == 'batch' and shares > 1 else word for word in words), '--shares', shares]


def draw_ways(rng, recipe):
    """What must not change it, but for its last bits: words."""
    words = ['--threads', rng.choice([1, 2, 2, 3, 4, 8, 16]), '--io', rng.choice(['auto', 'uring', 'threads'])]
    words += ['--row-cache', 'none'] if rng.random() < 0.15 else []
    words += ['--recompute'] if rng.random() < 0.15 else []
    words += ['--checkpoint-every', rng.choice([1, 7])] if rng.random() < 0.2 else []
    if 'batch' not in recipe and rng.random() < 0.1:
        words += ['--microbatch', max(recipe[recipe.index('--batch') + 1] // rng.choice([2, 3, 8]), 1)]
    return words


def draw_line(rng, lowest, highest):
    """Whole pages, since the kernel rounds; no more than half of a small machine."""
    highest = min(highest, prooflib.machine()['memory_bytes'] // 2)
    return int(math.exp(rng.uniform(math.log(lowest), math.log(highest)))) // PAGE * PAGE


def minimum_of(plan):
    return plan.get('minimum_bytes')


def peak_of(report):
    """The group's peak without reclaimable page cache, which the kernel's own peak includes."""
    return min(report['peak'], report['max_needed'])


class Trial:
    """One configuration: what was asked, what came of it, and what is wrong with it."""

    def __init__(self, number, seed, directory, datasets, recipes, timed):
        self.rng = random.Random(f'{seed} {number}')
        self.line = draw_line(self.rng, LOWEST, HIGHEST)
        large = 'large' in datasets and self.line >= LARGE_FROM and self.rng.random() < 0.3
        recipe = self.rng.choice([recipe for recipe in recipes if (recipe[0] == 'large') == large])
        self.directory, (self.dataset, self.recipe), self.info = directory, recipe, datasets[recipe[0]]
        self.ways = draw_ways(self.rng, self.recipe)
        self.words = [directory / self.dataset, *self.recipe, *self.ways]
        self.run, self.timed = directory / f'run-{os.getpid()}', timed
        self.result = {'number': number, 'line': self.line, 'above': number % 2 == 0, 'dataset': self.dataset,
                       'recipe': [str(word) for word in self.recipe], 'ways': [str(word) for word in self.ways], 'wrong': None}

    def fail(self, text):
        self.result['wrong'] = self.result['wrong'] or text

    def step(self, name, limit, *words):
        prooflib.drop_files(self.directory / 'lib')
        report = prooflib.limited(limit, *prooflib.own_program(self.directory), *words, '--json', '--quiet', warm=True)
        self.result[name] = {key: report[key] for key in ('exit', 'seconds', 'peak', 'max_needed', 'failcnt', 'oom_kill', 'max_cache', 'max_anon')}
        return report

    def under(self, line, name, *words):
        """Under a line: in a group of that limit, or told so in a larger one."""
        if self.result['above']:
            return self.step(name, int(line * ABOVE) // PAGE * PAGE, *words, '--memory', line)
        return self.step(name, line, *words)

    def train(self, line, name):
        shutil.rmtree(self.run, ignore_errors=True)
        return self.under(line, name, 'train', *self.words, '--epochs', 1 if self.dataset == 'large' else 2, '--run', self.run)

    def plan(self, *memory):
        report = self.step('planning', 'max', 'plan', *self.words, '--measure', *memory)
        plan = prooflib.last_json(report['stdout'])
        if minimum_of(plan) is None:
            self.fail(f'there is no plan: exit {report["exit"]}: {report["stderr"]}')
        return plan

    def check_exit(self, name, report, line, minimum):
        """True when it ran; anything but a run or a refusal that is due is wrong."""
        if report['oom_kill'] or report['exit'] not in (0, 3):
            self.fail(f'{name}: exit {report["exit"]}, {report["oom_kill"]} killed: {report["stderr"]}')
        elif report['exit'] == 3 and line >= minimum + CLOSE:
            self.fail(f'{name}: refused with {line - minimum} bytes more than the minimum: {report["stderr"]}')
        elif report['exit'] == 0 and line < minimum - CLOSE:
            self.fail(f'{name}: ran with {minimum - line} bytes less than the minimum')
        return report['exit'] == 0 and not self.result['wrong']

    def check_training(self, report, asked):
        events = prooflib.events(report['stdout'])
        plan = events[0]
        if plan['part_seeds'] != asked['part_seeds']:
            self.fail(f'train cuts batches to {plan["part_seeds"]} where plan said {asked["part_seeds"]}')
        weights = prooflib.read_safetensors(self.run / 'last.safetensors')
        phases = plan.get('phases') or {}
        total = max((size for name, size in phases.items() if name != 'predict'), default=plan['total_bytes'])
        peak = peak_of(report)
        self.result.update(total=total, predict_total=phases.get('predict', plan['total_bytes']), peak=peak,
                           topology=plan['topology'], features=plan['features'], cut=int(weights['metadata'].get('part_seeds') or 0),
                           losses=[event['loss'] for event in events if event['event'] == 'epoch'], weights=weights['digest'],
                           expected=plan['expect']['epoch_read_bytes'])
        if plan['total_bytes'] > self.line:
            self.fail(f'a plan of {plan["total_bytes"]} under a line of {self.line}')
        if peak > total:
            self.fail(f'training\'s peak of {peak} is above the plan of {total}')

    def check_prediction(self):
        report = self.under(self.line, 'predict', 'predict', self.run, '--out', self.run / 'out.npy', *self.ways[:4])
        total, peak = self.result['predict_total'], peak_of(report)
        if report['oom_kill'] or (report['exit'] != 0 and not (report['exit'] == 3 and total > self.line)):
            self.fail(f'predict: exit {report["exit"]}, {report["oom_kill"]} killed: {report["stderr"]}')
        elif peak > total:
            self.fail(f'prediction\'s peak of {peak} is above the plan of {total}')

    def check_time(self, minimum):
        """Beside the same under twice its minimum, as many times as long as the plan expects it to read more; the least of three, where others may have been in the way."""
        line = math.ceil(2 * minimum / PAGE) * PAGE
        taken, reference = self.result['train']['seconds'], math.inf
        for _ in range(3):
            report = self.train(line, 'reference')
            if report['exit'] != 0:
                self.fail(f'twice the minimum: exit {report["exit"]}, {report["oom_kill"]} killed: {report["stderr"]}')
                return
            plan = json.loads(report['stdout'].splitlines()[0])
            expected = max(1, self.result['expected'] / max(plan['expect']['epoch_read_bytes'], 64 << 20))  # less is no part of an epoch's time
            reference = min(reference, report['seconds'])
            if taken <= SLOWER * expected * reference + START_SECONDS:
                break
            taken = min(taken, self.train(self.line, 'again')['seconds'])
        self.result.update(slower=round(taken / reference, 2), slower_expected=round(expected, 2))
        if taken > SLOWER * expected * reference + START_SECONDS:
            self.fail(f'{taken} s where it takes {reference} s under twice the minimum; the plan expects {expected:.1f} times the bytes')

    def is_all_cached(self):
        """Whether the caches held all that was read: they are no larger than what can be drawn, and for an MLP than the training rows."""
        if 'mlp' in self.words:
            return True
        last = json.loads((self.run / 'timeline.jsonl').read_text().splitlines()[-1])
        return all(last[f'{kind}_cached'] >= ALL_CACHED * last[kind] for kind in ('lists', 'rows'))

    def check_use(self):
        """Whether as much as can be of the line is in use, if more would be and the caches may take it."""
        plenty = self.plan()
        if '--row-cache' in self.ways or plenty.get('total_bytes', 0) < 1.1 * self.line or self.is_all_cached():
            return
        self.result['in_use'] = round(self.result['peak'] / self.line, 4)
        if self.result['in_use'] < IN_USE:
            self.fail(f'{self.result["in_use"]:.1%} of the line is in use')

    def try_it(self):
        began = time.monotonic()
        plan = self.plan('--memory', self.line)
        if not self.result['wrong']:
            minimum = self.result['minimum'] = minimum_of(plan)
            report = self.train(self.line, 'train')
            if self.check_exit('train', report, self.line, minimum):
                self.check_training(report, plan)
                if self.result['number'] % PREDICTED == 0:
                    self.check_prediction()
                if self.line >= IN_USE_FROM:
                    self.check_use()
                if self.timed:
                    self.check_time(minimum)
        shutil.rmtree(self.run, ignore_errors=True)
        self.result['seconds'] = round(time.monotonic() - began, 2)
        return self.result


class RankTrial:
    """One configuration of several ranks in one group."""

    def __init__(self, number, seed, directory, recipes):
        rng = random.Random(f'{seed} {number}')
        self.directory, (self.dataset, self.recipe) = directory, rng.choice(recipes)
        self.line, self.above, self.run = draw_line(rng, RANK_LOWEST, RANK_HIGHEST), number % 2 == 0, directory / f'run-{os.getpid()}'
        self.ranks = rng.randint(1, min(RANKS, self.recipe[-1]))
        self.ways = ['--threads', rng.choice([1, 1, 2, 4]), *draw_ways(rng, self.recipe)[2:]]
        self.result = {'number': number, 'ranks': self.ranks, 'line': self.line, 'above': self.above, 'dataset': self.dataset,
                       'recipe': [str(word) for word in self.recipe], 'ways': [str(word) for word in self.ways], 'wrong': None}

    def fail(self, text):
        self.result['wrong'] = self.result['wrong'] or text

    def train(self, limit, launcher, *words):
        shutil.rmtree(self.run, ignore_errors=True)
        prooflib.drop_files(self.directory / 'lib')
        report = prooflib.limited(limit, *launcher, *prooflib.own_program(self.directory, 'openmpi'), 'train', self.directory / self.dataset, *self.recipe,
                                  *self.ways, '--epochs', 2, '--run', self.run, '--json', '--quiet', *words, warm=True)
        if report['oom_kill'] or report['exit'] not in (0, 3):
            self.fail(f'exit {report["exit"]}, {report["oom_kill"]} killed: {report["stderr"]}')
        return report

    def train_ranks(self, name):
        """In a group of the lines' sum, or told of a line in a larger one."""
        limit = int(self.line * self.ranks * (ABOVE if self.above else 1)) // PAGE * PAGE
        report = self.train(limit, [*MPIRUN, self.ranks], *(['--memory', self.line] if self.above else []))
        self.result[name] = {key: report[key] for key in ('exit', 'seconds', 'peak', 'max_needed', 'failcnt', 'oom_kill', 'max_cache', 'max_anon')}
        return report

    def bits(self):
        weights = prooflib.read_safetensors(self.run / 'last.safetensors')
        return {'cut': int(weights['metadata'].get('part_seeds') or 0), 'weights': weights['digest'], 'metrics': prooflib.file_digest(self.run / 'metrics.jsonl')}

    def check_training(self, report):
        events = prooflib.events(report['stdout'])
        phases = events[0].get('phases') or {}
        total = self.ranks * max((size for name, size in phases.items() if name != 'predict'), default=events[0]['total_bytes'])
        self.result.update(self.bits(), total=total, peak=peak_of(report), losses=[event['loss'] for event in events if event['event'] == 'epoch'])
        if self.result['peak'] > total:
            self.fail(f'the peak of {self.result["peak"]} is above the plans of {total}')

    def check_alone(self):
        """One process under the line of a rank; it holds more sums of shares, so it may need a larger one."""
        if all(self.train('max', [], '--memory', times * self.line)['exit'] != 0 for times in (1, 4)):
            self.fail('one process does not fit into four times the line of a rank')
            return
        alone = self.bits()
        self.result['as_alone'] = alone['cut'] == self.result['cut']
        if self.result['as_alone'] and alone != self.bits_found():
            self.fail(f'the bits are not those of one process: {alone}')

    def bits_found(self):
        return {name: self.result[name] for name in ('cut', 'weights', 'metrics')}

    def try_it(self):
        began = time.monotonic()
        report = self.train_ranks('train')
        if report['exit'] == 3:
            named = re.search(r'--memory (?:to )?(\d+)([KMG])', report['stderr'])
            self.line = self.result['minimum'] = (int(named[1]) << {'K': 10, 'M': 20, 'G': 30}[named[2]]) if named else self.line
            report = self.train_ranks('again')
            if report['exit'] == 3:
                self.fail(f'refused with the line that it named: {report["stderr"]}')
        if not self.result['wrong']:
            self.check_training(report)
            self.check_alone()
        shutil.rmtree(self.run, ignore_errors=True)
        self.result['seconds'] = round(time.monotonic() - began, 2)
        return self.result


def try_flat(ranks, directory):
    """The group's peak after the third epoch and at the end of many."""
    run = directory / f'run-{os.getpid()}'
    shutil.rmtree(run, ignore_errors=True)
    child = prooflib.Limited(1024 * MIB, *MPIRUN, ranks, *prooflib.own_program(directory, 'openmpi'), 'train', directory / 'papers', *FLAT_RECIPE,
                             '--epochs', FLAT_EPOCHS, '--run', run, '--json', '--quiet')
    early = [child.peak() for event in map(json.loads, child.output) if event.get('epoch') == FLAT_FROM]
    report = child.end()
    shutil.rmtree(run, ignore_errors=True)
    return {'number': ranks, 'exit': report['exit'], 'seconds': report['seconds'], 'peak_early': min(early, default=0), 'peak_late': report['peak']}


def lowest_limit(minimum, words, run):
    """By bisection, to a hundredth: the lowest limit of a group under which a run that was told `minimum` still ends. The group is out of
    its sight."""
    hide = 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"'
    command = ['unshare', '-m', 'sh', '-c', hide, 'sh', 'timeout', 60, *prooflib.own_program(run.parent), 'train', *words, '--epochs', 2,
               '--run', run, '--memory', minimum, '--quiet', '--json']

    def runs(limit):
        shutil.rmtree(run, ignore_errors=True)
        return prooflib.limited(limit // PAGE * PAGE, *command, warm=True)['exit'] == 0
    low, high = 0, minimum
    if not runs(high):
        return None
    while high - low > 0.01 * high and high > 16 * MIB:
        middle = (low + high) // 2
        low, high = (low, middle) if runs(middle) else (middle, high)
    shutil.rmtree(run, ignore_errors=True)
    return high


def try_minimum(result, directory):
    """A configuration's minimum beside the lowest limit that does."""
    words = [directory / result['dataset'], *result['recipe'], *result['ways']]
    lowest = lowest_limit(result['minimum'] // PAGE * PAGE, words, directory / f'run-{os.getpid()}')
    return {'number': result['number'], 'minimum': result['minimum'], 'lowest': lowest,
            'above': round(result['minimum'] / lowest - 1, 4) if lowest else None}


def spread_of(values):
    """Mean, median, 95th percentile and the extremes."""
    if not values:
        return None
    ordered = sorted(values)
    return {'count': len(values), 'least': round(ordered[0], 4), 'median': round(statistics.median(values), 4), 'mean': round(statistics.mean(values), 4),
            'p95': round(ordered[min(int(0.95 * len(values)), len(values) - 1)], 4), 'most': round(ordered[-1], 4)}


def compare_results(ran):
    """Recipes of which two runs differ: in bits where as many seeds were computed at a time, by more than CUT_DIGITS elsewhere."""
    bits, digits, farthest = [], [], 0
    recipes = collections.defaultdict(list)
    for result in ran:
        recipes[(result['dataset'], *result['recipe'])].append(result)
    for recipe, results in recipes.items():
        by_cut = collections.defaultdict(set)
        for result in results:
            by_cut[result['cut']].add((tuple(result['losses']), result['weights']))
        if any(len(values) > 1 for values in by_cut.values()):
            bits.append([result['number'] for result in results])
        whole = next((result['losses'] for result in results if result['cut'] == 0), results[0]['losses'])
        far = max(abs(a - b) / abs(a) for result in results for a, b in zip(whole, result['losses']))
        farthest = max(farthest, far)
        if far > CUT_DIGITS[recipe[recipe.index('--precision') + 1]]:
            digits.append([result['number'] for result in results])
    return {'recipes': len(recipes), 'bits_differ': bits, 'digits_differ': digits, 'farthest_loss': farthest}


def go_on(path, head):
    """What an interrupted run of the same build has found already, by kind and number."""
    found = {'trial': {}, 'minimum': {}, 'flat': {}}
    for line in path.read_text().splitlines() if path.exists() else []:
        record = json.loads(line)
        if all(record.get(name) == value for name, value in head.items()):
            found[record['kind']][record['result']['number']] = record['result']
    return found


class Progress:
    """A line of JSON for each result, and one on the terminal."""

    def __init__(self, path, head, total):
        self.path, self.head, self.total, self.began, self.done = path, head, total, time.monotonic(), 0

    def add(self, kind, result):
        self.done += 1
        with open(self.path, 'a') as file:
            file.write(json.dumps({**self.head, 'kind': kind, 'result': result}) + '\n')
        if result.get('wrong'):
            print(f'configuration {result["number"]}: {result["line"] // MIB} MiB {result["dataset"]} {" ".join(result["recipe"] + result["ways"])}: '
                  f'{result["wrong"]}', file=sys.stderr)
        if sys.stderr.isatty() or self.done % 50 == 0:
            left = (time.monotonic() - self.began) / self.done * (self.total - self.done)
            print(f'{self.done} of {self.total}, {left / 60:.0f} minutes to go', end='\r' if sys.stderr.isatty() else '\n', file=sys.stderr)


def summarise(results, minimums):
    """Claims, and the figures they stand on."""
    ran = [result for result in results if 'total' in result]
    wrong = [result for result in results if result['wrong']]
    killed = sum(step.get('oom_kill', 0) for result in results for step in result.values() if isinstance(step, dict))
    same = compare_results(ran)
    used = [result['in_use'] for result in ran if 'in_use' in result]
    slower = [result['slower'] for result in ran if 'slower' in result]
    claims = {f'{len(results)} configurations, {len(ran)} ran and the others were refused first; none was killed ({killed})': bool(ran) and killed == 0,
              f'peaks, exit codes, cuts and times are as planned, {len(wrong)} are not': not wrong,
              f'equal recipes have equal losses and weights where batches were cut alike ({len(same["bits_differ"])} of {same["recipes"]} have '
              f'not), and losses within {CUT_DIGITS["f32"]:g} (bf16: {CUT_DIGITS["bf16"]:g}) elsewhere ({len(same["digits_differ"])} have not)':
              not same['bits_differ'] and not same['digits_differ']}
    facts = {'runs': len(results), 'ran': len(ran), 'refused': sum(result.get('train', {}).get('exit') == 3 for result in results), 'killed': killed,
             'seconds_median': statistics.median(result['seconds'] for result in ran) if ran else None,
             'plan_above_peak': spread_of([result['total'] / result['peak'] - 1 for result in ran]),
             'minimum_mib': spread_of([result['minimum'] / MIB for result in ran]),
             'minimum_above_lowest_limit': spread_of([one['above'] for one in minimums if one['above'] is not None]),
             'slower_than_at_twice_the_minimum': spread_of(slower), 'in_use_where_more_would_be': spread_of(used),
             'results_compared': same, 'minimums': minimums, 'wrong': wrong}
    return claims, facts


def summarise_ranks(results, flats):
    ran = [result for result in results if 'total' in result]
    wrong = [result for result in results if result['wrong']]
    killed = sum(step.get('oom_kill', 0) for result in results for step in result.values() if isinstance(step, dict))
    refused = sum(result['train']['exit'] == 3 for result in results)
    alone = sum(result.get('as_alone', False) for result in ran)
    same = compare_results(ran)
    claims = {f'{len(results)} configurations of 1 to {RANKS} ranks in one group, {refused} refused at first; none was killed ({killed})': bool(ran) and killed == 0,
              f'peaks are at most the ranks\' plans, refused ones run with the line that was named, and {alone} that one process cuts alike have its bits; '
              f'{len(wrong)} are not so': not wrong,
              f'equal recipes have equal losses and weights where batches were cut alike ({len(same["bits_differ"])} of {same["recipes"]} have not)':
              not same['bits_differ']}
    for flat in flats:
        claims[f'{flat["number"]} ranks: the peak was {flat["peak_early"] / MIB:.2f} MiB after epoch {FLAT_FROM} and {flat["peak_late"] / MIB:.2f} MiB after epoch '
               f'{FLAT_EPOCHS}, at most 1 MiB apart'] = flat['exit'] == 0 and 0 < flat['peak_early'] and flat['peak_late'] - flat['peak_early'] <= MIB
    facts = {'runs': len(results), 'ran': len(ran), 'refused': refused, 'killed': killed,
             'seconds_median': statistics.median(result['seconds'] for result in ran) if ran else None,
             'plan_above_peak': spread_of([result['total'] / result['peak'] - 1 for result in ran]),
             'by_ranks': dict(sorted(collections.Counter(result['ranks'] for result in ran).items())), 'as_alone': alone, 'results_compared': same, 'flat': flats,
             'wrong': wrong}
    return claims, facts


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('runs', type=int, nargs='?')
    parser.add_argument('--variant', choices=VARIANTS)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--minimums', type=int, help='for how many the lowest limit is searched; default: a 30th of the runs')
    parser.add_argument('--untimed', action='store_true')
    parser.add_argument('--datasets', type=lambda text: text.split(','), help='names of some of tools/proofdata.py; default: all')
    parser.add_argument('--dir', type=pathlib.Path)
    parser.add_argument('--ranks', action='store_true')
    options = parser.parse_args()
    if options.ranks and not shutil.which(MPIRUN[0]):
        prooflib.skip(f'there is no {MPIRUN[0]}: install openmpi-bin')
    if options.variant:
        take_variant(options.variant)
    kind = options.variant or ('ranks' if options.ranks else None)
    options.runs = options.runs or (24 if options.variant else 100 if options.ranks else 300)
    options.json = prooflib.result_path(options, f'never-killed{"-" + kind if kind else ""}', True)
    num_minimums = options.runs // 30 if options.minimums is None else options.minimums
    with tempfile.TemporaryDirectory() as temporary:
        directory = (options.dir or pathlib.Path(temporary)).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        datasets = proofdata.make_all(directory, options.datasets, large=kind is None)
        head = {'build': prooflib.build_digest(), 'seed': options.seed, 'variant': kind, 'datasets': options.datasets}
        found = go_on(directory / 'never-killed.jsonl', head)
        num_after = len(FLAT_RANKS) if options.ranks else num_minimums
        progress = Progress(directory / 'never-killed.jsonl', head, options.runs + num_after - sum(map(len, found.values())))
        rng = random.Random(options.seed)
        names = sorted(datasets) * max(options.runs // 4 // len(datasets), 1)
        recipes = [(name, (draw_shared_recipe if options.ranks else draw_recipe)(rng, datasets[name])) for name in names]
        for number in range(options.runs):
            if number not in found['trial']:
                trial = RankTrial(number, options.seed, directory, recipes) if options.ranks else \
                    Trial(number, options.seed, directory, datasets, recipes, not options.untimed)
                found['trial'][number] = trial.try_it()
                progress.add('trial', found['trial'][number])
        results = [found['trial'][number] for number in range(options.runs)]
        if options.ranks:
            for ranks in set(FLAT_RANKS) - set(found['flat']):
                found['flat'][ranks] = try_flat(ranks, directory)
                progress.add('flat', found['flat'][ranks])
            claims, facts = summarise_ranks(results, list(found['flat'].values()))
        else:
            for result in [result for result in results if 'total' in result and result['dataset'] != 'large'][:num_minimums]:
                if result['number'] not in found['minimum']:
                    found['minimum'][result['number']] = try_minimum(result, directory)
                    progress.add('minimum', found['minimum'][result['number']])
            claims, facts = summarise(results, list(found['minimum'].values()))
    print(json.dumps({name: facts[name] for name in ('runs', 'ran', 'refused', 'killed', 'seconds_median', 'plan_above_peak')}))
    return 0 if prooflib.record(options.json, claims, seed=options.seed, variant=kind, **facts) else 1
