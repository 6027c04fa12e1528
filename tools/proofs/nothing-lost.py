"""Proves that neither SIGKILL, nor a full disk, nor a ulimit loses what was done, or changes a bit of what comes after.

    tools/prove nothing-lost [--kills N] [--disks N] [--rlimits N] [--seed S] [--dir DIR] [--record]

300 processes are ended by SIGKILL at random moments: training (as tools/prove resume does it), exact prediction, exact evaluation, and the
writing of caches: statistics, packed rows, staged copies. 20 times the disk of a run or of predictions is too small from the start
(from nothing free to just too little) or is filled, and kept full, by somebody else from a random moment on (as root: a small ext4 of its own). 20 times a
process lives under a random ulimit -v, -d, -f, -s, -n or -u. Each ends with a documented exit code; an output is absent, the one before,
or complete; where it was refused nothing is left; and the same command afterwards, or --resume, gives the bytes of one that nobody
disturbed: checkpoints, metrics.jsonl, predictions, scores, the stream of batches, copies. About three minutes; with --record the result goes to
bench/results/nothing-lost.json.
"""
import concurrent.futures
import copy
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import subprocess
import tempfile
import time

import prooflib

resume = prooflib.load_proof('resume')
die = resume.die

NO_ROOM, DISK_FULL = 3, 6
NOBODY = 54321  # ulimit -u does not bind root
MIB = prooflib.MIB


class Work:
    """A command that is killed and run again: `state` is what it leaves, None when nothing; `result_of` what is the same each time it ends."""

    def __init__(self, name, words, folder, state=lambda: None, result_of=lambda text: None):
        self.name, self.folder, self.state = name, folder, state
        self._result, self.words = result_of, [prooflib.plimsoll(), *map(str, words), '--quiet', '--json']
        began = time.monotonic()
        self.whole = self.end()
        self.seconds = time.monotonic() - began
        self.clear()

    def start(self, **options):
        return subprocess.Popen(self.words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=prooflib.with_cache(self.folder / 'cache'),
                                **options)

    def end(self):
        """Runs it undisturbed: what it says and leaves."""
        child = self.start()
        out, printed = child.communicate()
        if child.returncode != 0:
            die(f'{self.name} ends with {child.returncode}: {printed.strip()}')
        return self._result(prooflib.last_json(out)), self.state()

    def clear(self):
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def check_left(self, why):
        if self.state() not in (None, self.whole[1]):
            die(f'{self.name}, {why}: what is left is neither nothing nor all of it')

    def check_again(self, why):
        if self.end() != self.whole:
            die(f'{self.name}, {why}: run again it does not give what the undisturbed one gave')
        if stray := [path.name for path in self.folder.rglob('*.partial*')]:
            die(f'{self.name}, {why}: left behind: {" ".join(stray)}')


def digest_of(path):
    return lambda: prooflib.file_digest(path) if path.exists() else None


def make_works(data, run, folder):
    """Everything but training: what they leave goes to a folder of each."""
    def place(name):
        (folder / name).mkdir()
        return folder / name

    def copies(scratch):
        found = [path for path in scratch.glob('*') if path.is_dir() and path.name != 'cache' and path.name[0] != '.']
        return [prooflib.digest(path) for path in found] or None

    def batches(end):
        return [epoch['hash'] for epoch in end['epochs']]
    predict, evaluate, statistics, rows, stage = map(place, ('predict', 'evaluate', 'statistics', 'rows', 'stage'))
    load = ['bench', 'load', data, '--hash', '--fanout', '5,3', '--batch', '128', '--memory', '128M', '--threads', 2, '--topology', 'disk', '--features', 'disk']
    return [
        Work('predict', ['predict', run, '--split', 'all', '--out', predict / 'out.npy', '--memory', '128M'], predict, digest_of(predict / 'out.npy')),
        Work('evaluate', ['evaluate', run, '--exact', '--split', 'all', '--memory', '128M'], evaluate, lambda: prooflib.file_digest(*(run / name for name in resume.FILES)),
             lambda end: {name: end.get(name) for name in ('train', 'valid', 'test')}),
        Work('statistics cache', ['plan', data, '--fanout', '5,3', '--batch', '128', '--measure', '--memory', '128M'], statistics,
             result_of=lambda end: (end['total_bytes'], {name: value for name, value in end['expect'].items() if not name.endswith('seconds')})),
        Work('packed rows', [*load, '--scratch', rows], rows, result_of=batches),
        Work('staged copy', [*load, '--scratch', stage, '--stage'], stage, lambda: copies(stage), batches),
    ]


def kill_train(trial, draw, kills):
    return resume.disturb([trial], draw, kills, 0)['kills'] if kills else 0


def kill_work(work, draw, kills):
    """Kills it, and each third time runs it again to its end, over what the kills have left."""
    count = 0
    while count < kills:
        moment = draw.uniform(0, work.seconds)
        began = time.monotonic()
        child = work.start()
        printed = prooflib.end_after(child, moment)
        if child.returncode not in (0, -signal.SIGKILL):
            die(f'{work.name} ends with {child.returncode}: {printed.strip()}')
        count += child.returncode != 0
        if child.returncode == 0:  # sooner than when it was measured
            work.seconds = time.monotonic() - began
        why = f'killed after {moment * 1e3:.0f} ms'
        work.check_left(why)
        if draw.random() < 1 / 3:
            work.check_again(why)
            if draw.random() < 1 / 2:
                work.clear()
    work.check_again('in the end')
    return count


def saved_epoch(run):
    return int(prooflib.read_safetensors(run / 'last.safetensors')['metadata']['epoch']) if (run / 'last.safetensors').exists() else -1


def disturb_train(trial, what, allowed, disturb=lambda child: None, **options):
    """Lives once under a disturbance and then without it to the end; the exit code of the first."""
    before = sorted(path.name for path in trial.run.parent.iterdir())
    child = subprocess.Popen([*trial.command(), '--json'], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
    disturb(child)
    out, printed = child.communicate()
    if child.returncode not in allowed:
        die(f'train, {what}: exit code {child.returncode}: {printed.strip()[-400:]}')
    told = [json.loads(line) for line in out.splitlines() if '"event":"epoch"' in line]
    if child.returncode not in (0, DISK_FULL):
        if told or sorted(path.name for path in trial.run.parent.iterdir()) not in (before, sorted({*before, 'other'})):
            die(f'train, {what}: refused with {child.returncode}, but it had begun or left something')
    elif told and saved_epoch(trial.run) < told[-1]['epoch']:
        die(f'train, {what}: epoch {told[-1]["epoch"]} was reached and only {saved_epoch(trial.run)} are saved')
    return child.returncode


def end_train(trial, what):
    done = subprocess.run(trial.command(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        die(f'train, {what}: afterwards it ends with {done.returncode}: {done.stderr.strip()}')
    trial.finish()


def fill_disks(trial, predict, folder, draw, count):
    """Disks that are too small, and disks that fill up; how often each exit code came."""
    codes = {}
    if count == 0:
        return codes
    disk = prooflib.Disk(folder, 32 * MIB)
    if disk.refused:
        prooflib.skip(f'no small disk: {disk.refused}')
    try:
        trial.run = disk.path / 'run'
        for number in range(count):
            # From nothing to more than enough for a run, which takes 1 MiB; predictions of all nodes never fit.
            leave = draw.choice([0, 4096, int(draw.uniform(0, 1.5 * MIB)), int(draw.uniform(MIB, 4 * MIB))])
            moment = draw.uniform(0, trial.seconds)
            if number % 4 == 3:
                disk.fill(leave)
                out = disk.path / 'out.npy'
                done = subprocess.run([str(out) if str(word).endswith('out.npy') else word for word in predict.words], capture_output=True, text=True,
                                      check=False)
                code = done.returncode
                if code not in (0, NO_ROOM, DISK_FULL) or digest_of(out)() != (predict.whole[1] if code == 0 else None):
                    die(f'predict with {leave} bytes free: exit code {code}, or what is left is not whole: {done.stderr.strip()[-400:]}')
                out.unlink(missing_ok=True)
                disk.empty()
            elif number % 2 == 0:
                what = f'with {leave} bytes free'
                disk.fill(leave)
                code = disturb_train(trial, what, (0, NO_ROOM, DISK_FULL))
                disk.empty()
                end_train(trial, what)
            else:
                what = f'on a disk that is full after {moment:.2f} s'

                def later(child, moment=moment):
                    time.sleep(moment)
                    disk.fill()
                    while child.poll() is None:  # and takes what becomes free
                        disk.fill()
                        time.sleep(0.002)
                code = disturb_train(trial, what, (0, NO_ROOM, DISK_FULL), later)
                disk.empty()
                end_train(trial, what)
            codes[code] = codes.get(code, 0) + 1
    finally:
        disk.close()
    return codes


RLIMITS = {  # by ulimit's letter: the resource, and a value
    'v': (resource.RLIMIT_AS, lambda draw: draw.randrange(20, 400) * MIB), 'd': (resource.RLIMIT_DATA, lambda draw: draw.randrange(4, 200) * MIB),
    'f': (resource.RLIMIT_FSIZE, lambda draw: int(1024 * 2 ** draw.uniform(0, 12))), 's': (resource.RLIMIT_STACK, lambda draw: draw.randrange(64, 1024) << 10),
    'n': (resource.RLIMIT_NOFILE, lambda draw: draw.randrange(8, 70)), 'u': (resource.RLIMIT_NPROC, lambda draw: draw.randrange(1, 12)),
}


def lower_limits(trial, draw, count):
    codes = {}
    for number in range(count):
        letter = list(RLIMITS)[number % len(RLIMITS)]
        which, value = RLIMITS[letter][0], RLIMITS[letter][1](draw)

        def lower(letter=letter, which=which, value=value):
            if letter == 'u':
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            resource.setrlimit(which, (value, value))
        what = f'under ulimit -{letter} {value}'
        code = disturb_train(trial, what, (0, 1, NO_ROOM, DISK_FULL), preexec_fn=lower)
        codes[f'-{letter} {code}'] = codes.get(f'-{letter} {code}', 0) + 1
        for path in trial.run.parent.rglob('*'):  # the user's, who alone may continue them
            os.chown(path, 0, 0)
        end_train(trial, what)
    return codes


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--kills', type=int, default=300)
    parser.add_argument('--disks', type=int, default=20)
    parser.add_argument('--rlimits', type=int, default=20)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--dir', type=pathlib.Path, help='where to work; default: a temporary directory')
    parser.add_argument('--record', action='store_true')
    options = parser.parse_args()
    print(f'seed {options.seed}')
    if os.geteuid() != 0:
        prooflib.skip('small disks and ulimit -u for somebody else need root')
    with tempfile.TemporaryDirectory(prefix='prove-nothing-lost-', dir=options.dir) as folder:
        folder = pathlib.Path(folder)
        prooflib.must('generate', 'papers100M', folder / 'data', '--scale', resume.SCALE, '--memory', '256M', '--quiet')
        prooflib.must('train', folder / 'data', '--model', 'sage', '--fanout', '5,3', '--epochs', 1, '--run', folder / 'run', '--quiet')
        for path in folder / 'train', folder / 'disks', folder / 'limits':
            path.mkdir()
        for path in folder, folder / 'limits':
            path.chmod(0o777)
        name, words = next(iter(resume.RECIPES.items()))
        trial = resume.Trial(name, words, folder / 'data', folder / 'train', 6)
        disk_trial, limit_trial = copy.copy(trial), copy.copy(trial)
        limit_trial.run = folder / 'limits' / 'run'
        works = make_works(folder / 'data', folder / 'run', folder)
        each = options.kills // 10
        with concurrent.futures.ThreadPoolExecutor() as pool:  # side by side, each in a folder of its own
            tasks = [pool.submit(task, *words[:-1], random.Random(f'{options.seed} {number}'), words[-1]) for number, (task, *words) in enumerate([
                (kill_train, trial, options.kills - len(works) * each), *((kill_work, work, each) for work in works),
                (fill_disks, disk_trial, works[0], folder / 'disks', options.disks), (lower_limits, limit_trial, options.rlimits)])]
            kills, (disks, limits) = [task.result() for task in tasks[:-2]], [task.result() for task in tasks[-2:]]
        counts = dict(zip(['train', *(work.name for work in works)], kills))
    claims = {f'{sum(counts.values())} processes killed ({", ".join(f"{name} {count}" for name, count in counts.items())}): outputs absent or complete, '
              'and the same bytes afterwards': sum(counts.values()) >= options.kills,
              f'{options.disks} full disks ({", ".join(f"exit code {code}: {count}" for code, count in sorted(disks.items()))}): nothing lost, '
              'and the same bytes afterwards': sum(disks.values()) == options.disks,
              f'{options.rlimits} ulimits ({", ".join(f"{what}: {count}" for what, count in sorted(limits.items()))}; by letter and exit code): nothing lost, '
              'and the same bytes afterwards': sum(limits.values()) == options.rlimits}
    path = prooflib.result_path(options, 'nothing-lost', options.record)
    return 0 if prooflib.record(path, claims, seed=options.seed, kills=counts, disks={str(code): count for code, count in disks.items()},
                                rlimits=limits) else 1
