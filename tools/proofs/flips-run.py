"""Proves that a flipped bit in a run, or in a copy that plimsoll made of a dataset, is found or changes nothing.

    tools/prove flips-run [N] [--seed S]

Makes a small dataset, trains two epochs on it, packs rows in a scratch directory and stages a copy. N times (500) flips one bit: of ten
flips five in the run directory (which is then resumed for an epoch and evaluated), two in the packed rows, two in the staged copy (whose
batches are drawn once more) and one in the user's cache. Half of the flips fall anywhere in all bytes, half in a file drawn first.
Each must be refused (exit code 4, or 2 where the directory is then no run), or the end must be the undisturbed one's, byte for byte: weights,
optimiser, position, metrics and the evaluation; or the hash of all batches. Some minutes; the result of 500 goes to bench/results/flips-run.json.
The seed is printed.
"""
import collections
import os
import pathlib
import random
import shutil
import sys
import tempfile

import prooflib

SMALL = ('--model', 'sage', '--hidden', '8', '--fanout', '3,2', '--batch', '200', '--quiet')
RESULT = ('last.safetensors', 'best.safetensors', 'metrics.jsonl')
TURNS = ('run', 'packed', 'run', 'staged', 'run', 'packed', 'run', 'staged', 'run', 'cache')


class World:
    """What is flipped, and what its end is without a flip."""

    def __init__(self, folder):
        self.folder, self.env = folder, {**os.environ, 'XDG_CACHE_HOME': str(folder / 'cache')}
        self.packed, self.staged = folder / 'packed', folder / 'staged'
        self.packed.mkdir()
        self.staged.mkdir()
        prooflib.must('generate', 'free', folder / 'graph', '--nodes', 3000, '--edges', 20000, '--features', 24, '--classes', 5, '--quiet', env=self.env)
        prooflib.must('train', folder / 'graph', *SMALL, '--epochs', 2, '--run', folder / 'run', env=self.env)
        self.turns = {'run': self.resume, 'packed': self.load_packed, 'staged': self.load_staged, 'cache': self.resume}
        self.origins = {'run': folder / 'run', 'packed': self.packed, 'staged': self.staged, 'cache': folder / 'cache'}
        self.load_packed(self.packed)
        self.load_staged(self.staged)
        self.ends = {}
        for kind in self.turns:
            code, self.ends[kind] = self.play(kind, None, None)
            if code != 0 or self.ends[kind] is None:
                sys.exit(f'{kind} fails without a flip: exit {code}')

    def call(self, *words):
        return prooflib.call(*words, env=self.env)

    def resume(self, run):
        """A copy of the run trained for an epoch more; what then stands in it and what an evaluation says. Exit codes of both."""
        done = self.call('train', '--resume', run, '--epochs', '+1', '--quiet')
        if done.returncode != 0:
            return done.returncode, None
        scores = self.call('evaluate', run, '--quiet')
        if scores.returncode != 0:
            return scores.returncode, None
        return 0, (scores.stdout, *((run / name).read_bytes() for name in RESULT))

    def load(self, *words):
        done = self.call('bench', 'load', self.folder / 'graph', '--epochs', 1, '--batch', 200, '--fanout', '3,2', '--hash', '--json', *words)
        hashes = [epoch['hash'] for epoch in prooflib.last_json(done.stdout).get('epochs', [])]
        return done.returncode, hashes or None

    def load_packed(self, scratch):
        return self.load('--features', 'disk', '--topology', 'disk', '--row-cache', '64K', '--scratch', scratch)

    def load_staged(self, scratch):
        return self.load('--features', 'disk', '--topology', 'disk', '--stage', '--scratch', scratch)

    def play(self, kind, draw, weighted):
        """With a bit flipped (without `draw`: none): exit code, and the end. What was flipped is put back."""
        origin, copy = self.origins[kind], self.folder / 'copy'
        shutil.copytree(origin, copy)
        self.place = None
        if draw:
            files = sorted(path for path in copy.rglob('*') if path.is_file() and path.stat().st_size)
            path, bit = prooflib.draw_place(draw, files, weighted)
            path.chmod(0o600)
            prooflib.flip(path, bit)
            self.place = f'bit {bit} of {path.relative_to(copy)}'
        if kind == 'cache':  # another run under the flipped cache
            run = self.folder / 'other'
            shutil.copytree(self.origins['run'], run)
            self.env['XDG_CACHE_HOME'] = str(copy)
            code, end = self.resume(run)
            self.env['XDG_CACHE_HOME'] = str(origin)
            shutil.rmtree(run)
        else:
            code, end = self.turns[kind](copy)
        shutil.rmtree(copy)
        return code, end


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('flips', type=int, nargs='?', default=500)
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    print(f'seed {options.seed}')
    counts, missed = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix='prove-flips-run-') as folder:
        world = World(pathlib.Path(folder))
        for number in range(options.flips):
            kind = TURNS[number % len(TURNS)]
            code, end = world.play(kind, draw, number // len(TURNS) % 2 == 0)
            if code == 0 and end == world.ends[kind]:
                counts[f'{kind}: without effect'] += 1
            elif code == 4 or (code == 2 and kind == 'run'):
                counts[f'{kind}: found, exit {code}'] += 1
            else:
                missed += 1
                print(f'BROKEN: {kind}: {world.place}: exit {code}, {"another end" if code == 0 else "not a refusal"}')
    claim = f'{options.flips - missed} of {options.flips} flips found, or without any effect on the result'
    path = prooflib.result_path(options, 'flips-run', options.flips == 500)
    return 0 if prooflib.record(path, {claim: missed == 0}, seed=options.seed, counts=dict(sorted(counts.items()))) else 1
