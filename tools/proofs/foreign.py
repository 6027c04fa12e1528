"""Proves that what another user puts into a shared directory is neither used nor harmful, root being no exception.

    tools/prove foreign [N] [--seed S]

N times (100) a victim stages a dataset (by --stage, or by the script that `plimsoll slurm --stage` prints), imports one, trains and resumes a run, uses a
cache of statistics or packs rows, in a directory that all may write to, with the sticky bit or without. Meanwhile another user plants and exchanges
what can be found there: empty directories, forged datasets, runs, caches and rows that carry the victim's fingerprints, and links to
the victim's own files. The victim is root in half of the races. Each command must be refused, or end with the undisturbed result, byte for byte of
losses, fingerprints and batches; a dataset that the victim published must hold its own bytes alone; and no file of the victim
may change. Needs root for the two users. The result of 100 goes to bench/results/foreign.json. The seed is printed.
"""
import collections
import contextlib
import json
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import stat
import struct
import subprocess
import sys
import tempfile
import time

import prooflib

try:
    import xxhash
except ImportError:
    prooflib.skip('the Python module xxhash is not installed')

ATTACKER, USER = 12001, 12002
SMALL = ('--model', 'sage', '--hidden', '8', '--fanout', '3,2', '--batch', '200')
LOAD = ('--epochs', '1', '--batch', '200', '--fanout', '3,2', '--hash', '--features', 'disk', '--topology', 'disk', '--json')
KINDS = ('stage', 'import', 'run', 'cache', 'packed', 'slurm', 'import', 'run')
REFUSALS = (1, 2, 4, 6)  # not those of signals, of a bug or of memory
JOB = '7'


def forge_rows(path):
    """Other rows and lists in a working set, with right checksums of their pages, of the table of these and of the header."""
    data = bytearray(path.read_bytes())
    (start, rows), (_, lists), (checks, length) = (struct.unpack_from('<qq', data, 80 + 24 * section) for section in range(3))
    for page in range(start // 4096, (start + rows + lists) // 4096):
        data[page * 4096:page * 4096 + 16] = bytes(16)
        check = xxhash.xxh3_64_intdigest(bytes(data[page * 4096:(page + 1) * 4096]), seed=page) % 2**32
        struct.pack_into('<I', data, checks + 4 * page, check)
    struct.pack_into('<Q', data, 80 + 48 + 16, xxhash.xxh3_64_intdigest(bytes(data[checks:checks + length])))
    struct.pack_into('<Q', data, 464, xxhash.xxh3_64_intdigest(bytes(data[:464])))
    path.write_bytes(data)


def attack(order):
    """As another user, until it is killed or three times: puts something at one of the names, or takes away what lies there."""
    os.setgroups([])
    os.setgid(ATTACKER)
    os.setuid(ATTACKER)
    draw, shared = random.Random(order['seed']), order['shared']
    for turn in range(10 ** 9 if order['pause'] is not None else 3):
        name = draw.choice(order['names'] + os.listdir(shared))
        path, forged = os.path.join(shared, name), draw.choice(order['forged'])
        with contextlib.suppress(OSError):
            match draw.randrange(6):
                case 0:
                    os.rename(path, os.path.join(shared, f'.away-{turn}'))
                case 1:
                    os.symlink(draw.choice(order['precious']), path)
                case 2:
                    os.mkdir(path)
                    os.chmod(path, 0o777)
                case 3 if os.path.isdir(forged):
                    copy = os.path.join(shared, f'.copy-{turn}')
                    shutil.copytree(forged, copy)
                    os.chmod(copy, 0o777)
                    os.rename(copy, path)
                case 3:
                    shutil.copy(forged, path)
                case 4:  # into what is there, if it lets us
                    shutil.copy(forged, os.path.join(path, draw.choice(order['names'])))
                case 5:
                    os.unlink(path)
        time.sleep(order['pause'] or 0)


def forge(dataset):
    """Changes the features of a dataset, which keeps its dataset.json and so its fingerprint."""
    path = dataset / 'features.npy'
    data = bytearray(path.read_bytes())
    begin = 10 + int.from_bytes(data[8:10], 'little')
    data[begin:] = bytes(len(data) - begin)
    path.write_bytes(data)


def snapshot(folder):
    """Every name below a folder, with kind, owner, mode, time and bytes."""
    seen = {}
    for path in sorted(pathlib.Path(folder).rglob('*')):
        about = path.lstat()
        content = path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        seen[str(path)] = about.st_mode, about.st_uid, about.st_mtime_ns, content
    return seen


def give(path, owner):
    for name in [path, *pathlib.Path(path).rglob('*')]:
        os.chown(name, owner, owner, follow_symlinks=False)


class World:
    """What the victims have, what the attacker forges, and what the undisturbed results are."""

    def __init__(self, folder):
        self.folder = folder
        folder.chmod(0o755)
        self.program = list(map(str, prooflib.own_program(folder)))
        self.source, self.raw, self.forged = folder / 'source', folder / 'raw', folder / 'forged'
        shape = ('free', self.source, '--nodes', 3000, '--edges', 20000, '--features', 24, '--classes', 5, '--quiet')
        self.must(0, 'generate', *shape)
        self.raw.mkdir()
        (self.raw / 'edges.csv').write_text('\n'.join(f'{i},{(i * 7 + 1) % 500}' for i in range(500)) + '\n')
        (self.raw / 'labels.csv').write_text('\n'.join(str(i % 3) for i in range(500)) + '\n')
        self.forged.mkdir()
        shutil.copytree(self.source, self.forged / 'dataset')
        forge(self.forged / 'dataset')
        self.homes = {}
        for victim in (0, USER):
            home = folder / f'home-{victim}'
            home.mkdir()
            shutil.copytree(self.source, home / 'dataset')
            (home / 'notes').write_text('precious\n')
            give(home, victim)
            self.must(victim, *self.train(home / 'run'))
            home.chmod(0o755)
            self.homes[victim] = snapshot(home)
        self.make_results()
        self.make_forged()

    def run(self, victim, *words, env=()):
        environment = {'PATH': os.environ['PATH'], 'XDG_CACHE_HOME': '/dev/null', **dict(env)}
        return subprocess.run([*self.program, *map(str, words)], capture_output=True, text=True, check=False, cwd='/', timeout=300,
                              env=environment, user=victim, group=victim, extra_groups=[], umask=0o022)

    def must(self, victim, *words, env=()):
        done = self.run(victim, *words, env=env)
        if done.returncode != 0:
            sys.exit(f'{words[0]} fails without an attack: {done.stderr}')
        return done

    def train(self, run, *more):
        return ('train', self.source, *SMALL, '--epochs', 1, '--json', '--run', run, *more)

    def make_results(self):
        own = self.folder / 'own'
        own.mkdir()
        cache = {'XDG_CACHE_HOME': str(own)}
        self.hash = self.hashes(self.must(0, 'bench', 'load', self.source, *LOAD))
        self.must(0, 'import', self.raw, own / 'data', '--quiet', '--split', '0.6,0.2,0.2')
        self.digests = {prooflib.digest(own / 'data'), prooflib.digest(self.source)}
        self.losses = [self.losses_of(self.must(0, *self.train(own / 'run'))),
                       self.losses_of(self.must(0, 'train', '--resume', own / 'run', '--epochs', '+1', '--json'))]
        without = self.plan(self.must(0, *self.planned()))
        self.must(0, *self.train(own / 'other'), env=cache)
        self.plans = {without, self.plan(self.must(0, *self.planned(), env=cache))}
        (self.cached,) = [path.name for path in (own / 'plimsoll').glob('probe-*')]

    def make_forged(self):
        """What the attacker makes of the forged dataset, by the program itself: a run, packed rows, a cache."""
        scratch, cache = self.forged / 'scratch', self.forged / 'cache'
        scratch.mkdir()
        self.must(0, *self.train(self.forged / 'other', '--seed', 5))
        self.must(0, *self.train(self.forged / 'run', '--init', self.forged / 'other' / 'last.safetensors'))
        self.must(0, 'bench', 'load', self.source, *LOAD, '--row-cache', '64K', '--scratch', scratch)
        (packed,) = scratch.iterdir()
        forge_rows(packed)
        self.packed = re.sub(r'-0\.plim$', '', packed.name)
        packed.rename(self.forged / 'rows')
        narrow = [word if word != '3,2' else '2,1' for word in map(str, self.train(self.forged / 'narrow'))]
        self.must(0, *narrow, env={'XDG_CACHE_HOME': str(cache)})
        (other,) = (cache / 'plimsoll').glob('probe-*')
        other.rename(cache / 'plimsoll' / self.cached)
        if self.plan(self.must(0, *self.planned(), env={'XDG_CACHE_HOME': str(cache)})) in self.plans:
            sys.exit('the forged cache would change nothing')
        give(self.forged, ATTACKER)

    @staticmethod
    def hashes(done):
        return [epoch['hash'] for epoch in prooflib.last_json(done.stdout).get('epochs', [])]

    @staticmethod
    def losses_of(done):
        return [event['loss'] for event in prooflib.events(done.stdout) if event.get('event') == 'epoch']

    def planned(self):
        return 'plan', self.source, *SMALL, '--json'

    @staticmethod
    def plan(done):
        return prooflib.last_json(done.stdout).get('phases', {}).get('train')

    def names(self, kind, victim):
        """Names that the attacker can foresee, and what fits there."""
        fingerprint = json.loads((self.source / 'dataset.json').read_text())['fingerprint']
        copy = f'plimsoll-{fingerprint}-{victim}'
        rows = f'{self.packed}-{victim}.plim'
        return {
            'stage': ([copy, f'.{copy}.partial'], ['dataset']),
            'slurm': ([f'plimsoll-{JOB}', copy], ['dataset']),
            'import': (['data', '.data.partial'], ['dataset']),
            'run': (['run', 'run/.lock', 'run/last.safetensors'], ['run', 'run/last.safetensors']),
            'cache': (['cache', 'cache/plimsoll', f'cache/plimsoll/{self.cached}'], ['cache', f'cache/plimsoll/{self.cached}']),
            'packed': ([rows, f'.{rows}.partial'], ['rows']),
        }[kind]

    def order(self, kind, victim, shared, draw):
        names, forged = self.names(kind, victim)
        home = self.folder / f'home-{victim}'
        return {'seed': draw.random(), 'shared': str(shared), 'names': names, 'forged': [str(self.forged / name) for name in forged],
                'precious': [str(home / name) for name in ('dataset', 'run', 'notes')], 'pause': draw.choice([None, 0, 0.01, 0.1])}

    def play(self, kind, victim, shared):
        """The victim's commands: of each, what ended, and whether its result is the undisturbed one."""
        if kind == 'stage':
            done = self.run(victim, 'bench', 'load', self.source, *LOAD, '--stage', '--scratch', shared)
            yield done, self.hashes(done) == self.hash
        elif kind == 'packed':
            for _ in range(2):
                done = self.run(victim, 'bench', 'load', self.source, *LOAD, '--row-cache', '64K', '--scratch', shared)
                yield done, self.hashes(done) == self.hash
        elif kind == 'import':
            yield self.run(victim, 'import', self.raw, shared / 'data', '--quiet', '--split', '0.6,0.2,0.2'), True
        elif kind == 'run':
            done = self.run(victim, *self.train(shared / 'run', '--resume'))
            began = self.losses_of(done) == self.losses[0]
            yield done, began
            if done.returncode == 0 and began:
                done = self.run(victim, 'train', '--resume', shared / 'run', '--epochs', '+1', '--json')
                yield done, self.losses_of(done) == self.losses[1]
        elif kind == 'cache':
            env = {'XDG_CACHE_HOME': str(shared / 'cache')}
            run = self.folder / 'private' / 'run'
            done = self.run(victim, *self.train(run), env=env)
            shutil.rmtree(run)
            yield done, self.losses_of(done) == self.losses[0]
            done = self.run(victim, *self.planned(), env=env)
            yield done, self.plan(done) in self.plans
        else:
            script = self.must(0, 'slurm', '--time', 60, '--stage', shared, *self.train(self.folder / 'private' / 'run')).stdout
            done = subprocess.run([*self.program[:-1], 'bash', '-c', script], capture_output=True, text=True, check=False, cwd='/', timeout=300, user=victim,
                                  group=victim, extra_groups=[], umask=0o022, env={'PATH': os.environ['PATH'], 'SLURM_JOB_ID': JOB})
            shutil.rmtree(self.folder / 'private' / 'run', ignore_errors=True)
            yield done, self.losses_of(done) == self.losses[0]

    def published(self, shared, victim):
        """Directories of the victim with a whole dataset in them that is not as the victim wrote it."""
        return [path.parent.name for path in shared.rglob('dataset.json')
                if path.parent.lstat().st_uid == victim and not path.parent.name.endswith('.partial') and not path.parent.name.startswith('.away-')
                and prooflib.digest(path.parent) not in self.digests]

    def race(self, kind, victim, draw):
        """What went wrong, and how the victim's commands ended."""
        shared, private, home = self.folder / 'shared', self.folder / 'private', self.folder / f'home-{victim}'
        shared.mkdir()
        shared.chmod(draw.choice([0o1777, 0o777]))
        private.mkdir()
        os.chown(private, victim, victim)
        order, wrong, ends = self.order(kind, victim, shared, draw), [], []
        attacker = multiprocessing.get_context('fork').Process(target=attack, args=(order,))
        attacker.start()
        if order['pause'] is None:
            attacker.join()
        else:
            time.sleep(draw.choice([0, 0.1, 0.2]))
        for done, same in self.play(kind, victim, shared):
            ends.append('undisturbed' if done.returncode == 0 else 'refused')
            if done.returncode == 0 and not same:
                wrong.append('another result')
            if done.returncode not in (0, *REFUSALS):
                wrong.append(f'exit code {done.returncode}: {done.stderr[-300:]}')
        attacker.kill()
        attacker.join()
        if (now := snapshot(home)) != self.homes[victim]:
            wrong.append("the victim's files changed")
            self.homes[victim] = now
        wrong += [f'{name} holds foreign bytes' for name in self.published(shared, victim)]
        shutil.rmtree(shared)
        shutil.rmtree(private)
        return wrong, ends


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('races', type=int, nargs='?', default=100)
    parser.add_argument('--seed', type=int, default=1)
    options = parser.parse_args()
    if os.geteuid() != 0:
        prooflib.skip('only root can be two users')
    draw = random.Random(options.seed)
    print(f'seed {options.seed}')
    counts, broken = collections.Counter(), 0
    with tempfile.TemporaryDirectory(prefix='prove-foreign-') as folder:
        world = World(pathlib.Path(folder))
        for number in range(options.races):
            kind, victim = KINDS[number // 2 % len(KINDS)], (0, USER)[number % 2]
            wrong, ends = world.race(kind, victim, draw)
            broken += bool(wrong)
            for text in wrong:
                print(f'BROKEN: race {number}, {kind}, {"root" if victim == 0 else "a user"}: {text}')
            for end in ends:
                counts[f'{kind}: {end}'] += 1
    claim = f'{options.races - broken} of {options.races} races: no foreign byte used, nothing of the victim changed'
    path = prooflib.result_path(options, 'foreign', options.races == 100)
    links = pathlib.Path('/proc/sys/fs/protected_symlinks').read_text().strip() == '1'
    facts = {'seed': options.seed, 'kernel_protects_links': links, 'commands': dict(sorted(counts.items()))}
    return 0 if prooflib.record(path, {claim: broken == 0}, **facts) else 1
