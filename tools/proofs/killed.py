"""Proves that a dataset is whole or absent, whenever its making was killed.

    tools/prove killed [N] [--seed S] [--dir DIR]

N times (100 without it) an import or a generation is ended by SIGKILL: two in three at a moment drawn from its whole duration,
one in three a moment after the last file (dataset.json) appears, where the syncs and the rename are. After each kill the
target is absent, or verifies and equals an undisturbed run's byte for byte; the same command run again then succeeds with those
bytes, and leaves nothing but the target: nothing beside it, nothing in --tmp. Every other run has a --tmp of its own. About a
second a kill; the result of 100 goes to bench/results/killed.json. The seed, which is printed, fixes the moments; where in the
program they fall depends on the machine.
"""
import os
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import prooflib

ARCHIVE_SCALE = 0.0002
MEMORY = '64M'
END_SECONDS = 0.005  # what remains, roughly, once dataset.json is there


def undisturbed(command, work):
    """Digest of the dataset and the seconds it takes, the median of three runs."""
    seconds = []
    for _ in range(3):
        shutil.rmtree(work / 'target', ignore_errors=True)
        began = time.monotonic()
        prooflib.run(*command)
        seconds.append(time.monotonic() - began)
    whole = prooflib.digest(work / 'target')
    shutil.rmtree(work / 'target')
    return whole, sorted(seconds)[1]


def appeared(work):
    """True once the directory being written, or the finished one, has its dataset.json."""
    return any('dataset.json' in name for folder in work.iterdir() if folder.is_dir() for name in names(folder))


def names(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def kill_once(command, work, moment, at_the_end):
    """Runs the command and kills it; returns whether it was still running."""
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if at_the_end:
        while child.poll() is None and not appeared(work):
            pass
    time.sleep(moment)
    child.kill()
    return child.wait() == -9


def after_kill(work, whole):
    """'absent' or 'complete'; anything else is what is wrong."""
    target = work / 'target'
    if not target.exists():
        return 'absent'
    verify = prooflib.call('inspect', target, '--verify')
    if verify.returncode != 0:
        return f'half-written: {verify.stderr.strip()}'
    if prooflib.digest(target) != whole:
        return 'whole but different'
    return 'complete'


def after_next_run(command, work, whole):
    """None when the next run succeeds, equals the undisturbed one and leaves nothing else."""
    shutil.rmtree(work / 'target', ignore_errors=True)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f'the next run fails with {done.returncode}: {done.stderr.strip()}'
    stray = [str(path.relative_to(work)) for path in [*work.iterdir(), *(work / 'tmp').iterdir()]
             if path not in (work / 'target', work / 'tmp')]
    if stray:
        return f'left behind: {" ".join(stray)}'
    return None if prooflib.digest(work / 'target') == whole else 'the next run differs from the undisturbed one'


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('kills', type=int, nargs='?', default=100)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--dir', type=pathlib.Path, help='where to work; default: a temporary directory')
    options = parser.parse_args()
    draw = random.Random(options.seed)
    print(f'seed {options.seed}')
    with tempfile.TemporaryDirectory(prefix='prove-killed-', dir=options.dir) as folder:
        archive, work = pathlib.Path(folder) / 'papers100M-bin.zip', pathlib.Path(folder) / 'work'
        (work / 'tmp').mkdir(parents=True)
        subprocess.run([prooflib.SOURCE / 'tools' / 'make-ogb-archive', '--scale', str(ARCHIVE_SCALE), archive], check=True,
                       stderr=subprocess.DEVNULL)
        makers = [['import', str(archive), str(work / 'target'), '--features', 'f16'],
                  ['generate', 'papers100M', str(work / 'target'), '--scale', str(ARCHIVE_SCALE)]]
        commands = [[prooflib.plimsoll(), *words, '--memory', MEMORY, '--quiet', *tmp] for words in makers
                    for tmp in ([], ['--tmp', str(work / 'tmp')])]
        known = [undisturbed(command, work) for command in commands]
        counts = {'absent': 0, 'complete': 0}
        number = 0
        while sum(counts.values()) < options.kills and number < 20 * options.kills:
            number += 1
            which = number % len(commands)
            whole, seconds = known[which]
            at_the_end = number % 3 == 2
            moment = draw.uniform(0, END_SECONDS if at_the_end else seconds)
            running = kill_once(commands[which], work, moment, at_the_end)
            state = after_kill(work, whole)
            wrong = None if state in counts else state
            wrong = wrong or after_next_run(commands[which], work, whole)
            if wrong:
                print(f'BROKEN: kill {number} of {makers[which // 2][0]}, {moment * 1e3:.1f} ms after '
                      f'{"dataset.json appeared" if at_the_end else "the start"}: {wrong}')
                return 1
            counts[state] += running  # a kill that came after the end is none
            if not running and not at_the_end:  # it was measured while others were in its way
                known[which] = whole, moment
            shutil.rmtree(work / 'target')
    kills = sum(counts.values())
    claim = (f'{kills} kills, {options.kills} wanted: {counts["absent"]} left no dataset, {counts["complete"]} a complete one; '
             f'{number - kills} more came after the end')
    path = prooflib.result_path(options, 'killed', options.kills == 100)
    return 0 if prooflib.record(path, {claim: kills == options.kills}, seed=options.seed) else 1
