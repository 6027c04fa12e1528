"""Proves that a training run ends as the same bits however often it was killed.

    tools/prove resume [KILLS] [--stops N] [--seed S] [--recipe TEXT] [--dir DIR] [--record]

Trains small models on a small generated graph with a checkpoint every third step. SIGKILL ends the process at KILLS (200) random
moments, from before its first file to after its last step; each time `plimsoll train --resume` continues. SIGTERM ends it N times (0)
more; it must then save and end with 75. A run that is complete is compared with an undisturbed one: last.safetensors (weights, moments,
position), best.safetensors and metrics.jsonl, byte for byte. Then the next run begins. --recipe takes only the recipes whose name
contains the text. With --record the result goes to bench/results/resume.json. The seed, which is printed, fixes the moments; where in
the program they fall depends on the machine.
"""
import hashlib
import json
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy

import prooflib

SCALE = 0.001  # of papers100M: 111,060 nodes, 1,207 of them to train on
FILES = ('last.safetensors', 'best.safetensors', 'metrics.jsonl')
BESIDE = ('run.json', 'timeline.jsonl', '.lock')  # what may be there besides
STOPPED = 75
COMMON = ['--batch', '128', '--checkpoint-every', '3', '--checkpoint-minutes', '0', '--memory', '256M', '--threads', '2', '--quiet']
PAIRS = 'pairs.npy'  # of any nodes, beside the data
RECIPES = {  # between them: every kind of state that a checkpoint holds
    'sage, batch norm, Adam, cosine': ['--model', 'sage', '--fanout', '5,3', '--hidden', '32', '--norm', 'batch', '--dropout', '0.5',
                                       '--schedule', 'cosine'],
    'gcn, SGD with momentum, bf16, exact evaluation': ['--model', 'gcn', '--fanout', '3,2', '--hidden', '16', '--optimizer', 'sgd', '--momentum',
                                                       '0.9', '--precision', 'bf16', '--eval-exact', '2'],
    'links, DistMult, pairs scored between epochs': ['--task', 'link', '--pairs', PAIRS, '--decoder', 'distmult', '--model', 'sage', '--fanout', '4,2',
                                                     '--hidden', '16', '--dropout', '0.2', '--valid-pairs', PAIRS, '--valid-negatives', '5',
                                                     '--eval-every', '2'],
}


def die(text):
    print(f'BROKEN: {text}')
    sys.exit(1)


class Trial:
    """One recipe: how it ends undisturbed, and the run that is being disturbed."""

    def __init__(self, name, options, data, work, lives):
        self.name, self.data, self.lives = name, data, lives
        self.options = [*(data.parent / word if word == PAIRS else word for word in options), *COMMON, '--epochs', str(2 * lives)]
        self.run = work / 'run'
        began = time.monotonic()
        prooflib.run(*self.command())
        self.seconds = time.monotonic() - began
        self.whole = self.digests()
        shutil.rmtree(self.run)

    def command(self):
        """Begins the run, or goes on with it."""
        words = ['--resume', self.run] if (self.run / 'run.json').exists() else [self.data, '--run', self.run, *self.options]
        if words[0] == '--resume':
            words += ['--memory', '256M', '--threads', '2', '--quiet']
        return [prooflib.plimsoll(), 'train', *map(str, words)]

    def digests(self):
        return {name: hashlib.blake2b((self.run / name).read_bytes()).hexdigest() for name in FILES}

    def live(self, number, moment):
        """A life that this signal ends, unless it is over before; its exit code."""
        child = subprocess.Popen(self.command(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        printed = prooflib.end_after(child, moment, number)
        # A signal may also come before the program could say that it wants to catch it.
        if child.returncode not in (0, -number, STOPPED if number == signal.SIGTERM else 0):
            die(f'{self.name}: a life ends with {child.returncode}: {printed.strip()}')
        return child.returncode

    def finish(self):
        """Compares the run that is over, and clears it away."""
        for name, digest in self.digests().items():
            if digest != self.whole[name]:
                die(f'{self.name}: {name} is not that of the undisturbed run')
        strays = sorted(path.name for path in self.run.iterdir() if path.name not in FILES + BESIDE)
        if strays:
            die(f'{self.name}: left behind: {" ".join(strays)}')
        shutil.rmtree(self.run)


def disturb(trials, draw, kills, stops):
    """Lives until so many were killed and stopped; how many of each, and how many runs were compared."""
    counts = {'kills': 0, 'stops': 0, 'lives': 0, 'runs': 0}
    turn = 0
    while counts['kills'] < kills or counts['stops'] < stops:
        trial = trials[turn % len(trials)]
        stop = counts['stops'] < stops and (counts['kills'] >= kills or draw.random() < stops / (kills + stops))
        number = signal.SIGTERM if stop else signal.SIGKILL
        # A run sees about as many of them as it shall have lives; many come while it starts.
        new, began = not trial.run.exists(), time.monotonic()
        code = trial.live(number, draw.uniform(0, 2 * trial.seconds / trial.lives))
        counts['lives'] += 1
        counts['kills'] += code == -signal.SIGKILL
        counts['stops'] += code == STOPPED
        if code == 0:
            if new:  # in a single life: the undisturbed run was in others' way
                trial.seconds = time.monotonic() - began
            trial.finish()
            counts['runs'] += 1
            turn += 1
    for trial in trials:
        if trial.run.exists():
            trial.live(signal.SIGKILL, None)
            counts['lives'] += 1
            trial.finish()
            counts['runs'] += 1
    return counts


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('kills', type=int, nargs='?', default=200)
    parser.add_argument('--stops', type=int, default=0)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--recipe', default='')
    parser.add_argument('--dir', type=pathlib.Path, help='where to work; default: a temporary directory')
    parser.add_argument('--record', action='store_true')
    options = parser.parse_args()
    print(f'seed {options.seed}')
    with tempfile.TemporaryDirectory(prefix='prove-resume-', dir=options.dir) as folder:
        folder = pathlib.Path(folder)
        prooflib.must('generate', 'papers100M', folder / 'data', '--scale', SCALE, '--memory', '256M', '--quiet')
        nodes = json.loads((folder / 'data' / 'dataset.json').read_text())['num_nodes']
        numpy.save(folder / PAIRS, numpy.random.default_rng(options.seed).integers(0, nodes, (1300, 2)))
        trials = []
        recipes = {name: words for name, words in RECIPES.items() if options.recipe in name}
        lives = min(20, max(3, options.kills // 10))
        for number, (name, words) in enumerate(recipes.items()):
            (folder / str(number)).mkdir()
            trials.append(Trial(name, words, folder / 'data', folder / str(number), lives))
        counts = disturb(trials, random.Random(options.seed), options.kills, options.stops)
        seconds = {trial.name: round(trial.seconds, 2) for trial in trials}
    claim = (f'{counts["runs"]} runs of {len(recipes)} recipes, killed {counts["kills"]} times and stopped {counts["stops"]} times, '
             'ended with the checkpoints and metrics of undisturbed ones, byte for byte')
    path = prooflib.result_path(options, 'resume', options.record)
    return 0 if prooflib.record(path, {claim: True}, seed=options.seed, **counts, undisturbed_seconds=seconds) else 1
