"""Proves that gathering rows from disk makes nearly as many reads a second as fio, with both engines.

    tools/prove gather DATASET [--rounds 5] [--json FILE]

DATASET must be far larger than what one call takes (papers100M's shape at full size: 20,000 rows a call of 111 million, so that few reads
join). Each round runs bench_gather of the release build (cmake --build --preset release --target bench_gather) with io_uring and with threads, and
fio (random direct reads of features.npy of the same size, io_uring, depth 128, one job); medians of reads/s are compared. About half a minute a
round. Needs fio.
"""
import json
import pathlib
import shutil
import statistics
import sys

import prooflib

SECONDS, CALLS, ROWS, SECTOR = 8, 40, 20000, 512


def fio(path, size):
    words = ['fio', '--name=rows', f'--filename={path}', '--readonly', '--rw=randread', f'--bs={size}', '--direct=1', '--ioengine=io_uring',
             '--iodepth=128', '--time_based', f'--runtime={SECONDS}', '--output-format=json']
    printed = prooflib.run(*words)
    return json.loads(printed[printed.index('{'):])['jobs'][0]['read']['iops']


def gather(dataset, engine):
    found = prooflib.bench('bench_gather', dataset, engine, ROWS, CALLS)
    return found['transfers'] / found['seconds'], found['bytes_read'] / found['transfers']


def main():
    parser = prooflib.parser(__doc__, 'gather.json')
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--rounds', type=int, default=5)
    options = parser.parse_args()
    if not shutil.which('fio'):
        prooflib.skip('fio is not installed')
    rounds = []
    for _ in range(options.rounds):
        one = {}
        for engine in ('threads', 'uring'):
            one[engine], one['bytes'] = gather(options.dataset, engine)
        one['fio'] = fio(options.dataset / 'features.npy', round(one['bytes'] / SECTOR) * SECTOR)
        rounds.append({name: round(value) for name, value in one.items()})
        print(json.dumps(rounds[-1]), file=sys.stderr)
    rate = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    to_fio, to_uring = rate['uring'] / rate['fio'], rate['threads'] / rate['uring']
    claims = {f'io_uring: {rate["uring"]:,.0f} reads/s, {100 * to_fio:.0f} % of fio ({rate["fio"]:,.0f}), at least 85': to_fio >= 0.85,
              f'threads: {rate["threads"]:,.0f} reads/s, {100 * to_uring:.0f} % of io_uring, at least 75': to_uring >= 0.75}
    return 0 if prooflib.record(options.json, claims, medians=rate, rounds=rounds) else 1
