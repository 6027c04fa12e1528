"""Proves that `plimsoll generate papers100M` stays under its line: inside a real cgroup of that very size.

    tools/prove generate [--scale 1] [--memory 2G] [--dir DIR] [--json FILE] [--keep]

Generates in a cgroup of --memory (tools/limited: cold page cache, the kernel's own counters), verifies the dataset
outside it, and checks: not killed, the group's peak within the line, cache + dirty at most 64 MiB, the exact counts of
the shape, at most 6 minutes at scale 1, every checksum and invariant right. At scale 1 that takes two to eight minutes, 36 GB of
dataset and as much again as the edges need meanwhile (17 GB). The result goes to
bench/results/generate-papers100M.json at scale 1, else to --json. Needs root; exits 77 without.
"""
import pathlib
import shutil
import sys

import prooflib

NODES, EDGES, FEATURES = 111_059_956, 1_615_685_872, 128
SECONDS_MOST = 360


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--scale', type=float, default=1)
    parser.add_argument('--memory', default='2G')
    parser.add_argument('--dir', type=pathlib.Path, default=prooflib.SOURCE / 'build' / 'proof')
    parser.add_argument('--keep', action='store_true', help='leave the dataset in --dir')
    options = parser.parse_args()
    options.dir.mkdir(parents=True, exist_ok=True)
    target = options.dir / f'papers100M-{options.scale:g}'
    shutil.rmtree(target, ignore_errors=True)
    prooflib.require_room(options.dir, options.scale * (NODES * FEATURES * 2 + NODES * 16 + EDGES * 12))

    run = prooflib.limited(options.memory, prooflib.plimsoll(), 'generate', 'papers100M', target,
                           '--scale', options.scale, '--memory', options.memory, '--json')
    sys.stderr.write(run['stderr'])
    printed = prooflib.last_json(run.pop('stdout'))
    run.pop('stderr')
    claims = {}
    prooflib.claim_bounded(claims, 'generate', run, options.memory)
    if options.scale == 1:
        claims[f'{run["seconds"]:.0f} s, at most {SECONDS_MOST}'] = run['seconds'] <= SECONDS_MOST
    verify = prooflib.call('inspect', target, '--verify', '--json')
    sys.stderr.write(verify.stderr)
    info = prooflib.last_json(verify.stdout)
    claims['inspect --verify finds nothing'] = verify.returncode == 0
    wanted = (round(NODES * options.scale), round(EDGES * options.scale))
    claims[f'{wanted[0]:,} nodes and {wanted[1]:,} edges'] = (info.get('num_nodes'), info.get('num_edges')) == wanted
    if not options.keep:
        shutil.rmtree(target, ignore_errors=True)
    path = prooflib.result_path(options, 'generate-papers100M', options.scale == 1)
    holds = prooflib.record(path, claims, command=f'generate papers100M --scale {options.scale:g} --memory {options.memory}',
                            run=run, said=printed)
    return 0 if holds else 1
