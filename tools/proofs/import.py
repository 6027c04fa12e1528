"""Proves that importing papers100M's archive costs little more than unzipping it, and stays under its line.

    tools/prove import [--scale 0.25] [--memory 1G] [--dir DIR] [--archive FILE] [--json FILE]

Makes the archive (tools/make-ogb-archive) unless one is given, imports it with --features f16 inside a real cgroup of
--memory, verifies the result, and measures beside it, on the same disk and without any limit, what a person
would do by hand: unzip the archive, unzip the npz files inside it (only then are there arrays), copy the resulting dataset
once (cp, sync). Every step starts from a cold page cache; unzip is not charged for syncing what it wrote. Checked: not killed, peak
within the line, cache + dirty at most 64 MiB, verify clean, at most 1.2 times the yardstick; the ratio without the inner
unzip is recorded too. At scale 0.25: about 20 minutes, 55 GB of disk at most (what is no longer needed is removed at
once). The result goes to bench/results/import-papers100M-quarter.json at that scale, else to --json. Needs root; exits
77 without.
"""
import pathlib
import shutil
import subprocess
import sys

import prooflib

ARCHIVE, INNER = 64e9, 83e9  # bytes at scale 1: the archive and its data.npz, and the arrays inside
RATIO_MOST = 1.2


def unzip_by_hand(archive, work):
    """Seconds of unzipping the archive, and of unzipping the npz files that came out."""
    out = work / 'unzipped'
    shutil.rmtree(out, ignore_errors=True)
    outer = prooflib.timed('unzip', '-q', archive, '-d', out)
    inner = 0
    for npz in sorted(out.rglob('*.npz')):
        inner += prooflib.timed('unzip', '-q', npz, '-d', npz.with_suffix(''))
    shutil.rmtree(out)
    return outer, round(inner, 2)


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--scale', type=float, default=0.25)
    parser.add_argument('--memory', default='1G')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--archive', type=pathlib.Path, help='an archive of that scale made before; it is kept')
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    archive = options.archive or options.dir / 'papers100M-bin.zip'
    prooflib.require_room(options.dir, options.scale * (ARCHIVE + INNER + (0 if options.archive else ARCHIVE)))
    if options.archive is None:
        subprocess.run([prooflib.SOURCE / 'tools' / 'make-ogb-archive', '--scale', str(options.scale), archive], check=True)

    target, copy = options.dir / 'imported', options.dir / 'copied'
    for old in target, copy:
        shutil.rmtree(old, ignore_errors=True)
    run = prooflib.limited(options.memory, prooflib.plimsoll(), 'import', archive, target, '--features', 'f16',
                           '--memory', options.memory, '--json')
    sys.stderr.write(run['stderr'])
    printed = prooflib.last_json(run.pop('stdout'))
    run.pop('stderr')
    claims, yardstick = {}, {}
    prooflib.claim_bounded(claims, 'import', run, options.memory)
    if run['exit'] == 0:
        verify = prooflib.call('inspect', target, '--verify')
        sys.stderr.write(verify.stderr)
        claims['inspect --verify finds nothing'] = verify.returncode == 0
        yardstick['copy'] = prooflib.timed('sh', '-c', 'cp -r "$1" "$2" && sync -f "$2"', 'sh', target, copy)
        for old in target, copy:
            shutil.rmtree(old)
        yardstick['unzip_outer'], yardstick['unzip_inner'] = unzip_by_hand(archive, options.dir)
        both = sum(yardstick.values())
        outer_only = both - yardstick['unzip_inner']
        yardstick['ratio'] = round(run['seconds'] / both, 3)
        yardstick['ratio_outer_only'] = round(run['seconds'] / outer_only, 3)
        claims[f'{run["seconds"]:.0f} s is {yardstick["ratio"]:.2f} of unzip, unzip the npz, copy ({both:.0f} s); at most {RATIO_MOST}'
               f' (of unzip and copy alone, {outer_only:.0f} s: {yardstick["ratio_outer_only"]:.2f})'] = yardstick['ratio'] <= RATIO_MOST
    size = archive.stat().st_size
    if options.archive is None:
        archive.unlink()
    path = prooflib.result_path(options, 'import-papers100M-quarter', options.scale == 0.25)
    holds = prooflib.record(path, claims, command=f'import papers100M-bin.zip --features f16 --memory {options.memory}',
                            scale=options.scale, archive_bytes=size, run=run, yardstick_seconds=yardstick, said=printed)
    return 0 if holds else 1
