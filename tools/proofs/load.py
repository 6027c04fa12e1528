"""Proves how fast batches come from a graph larger than memory, inside real cgroups, and what that costs in memory.

    tools/prove load DATASET [--kind plain|spread] [--scratch DIR] [--only NAME] [--json FILE]

DATASET is papers100M's shape at full size (`plimsoll generate papers100M DATASET`; kind spread: with `--spread 1`, the
hardest for caches). Each case runs `plimsoll bench load` in a cgroup whose limit is its line, from a cold page cache: workload A
(batch 128, fan-out 3,2) in 4 and 2 GiB, B (batch 1,024, fan-out 15,10,5) in 8 GiB, spread A in 4 GiB. Checks the rate from the second
epoch on, that nobody was killed, that the group's peak is at most the plan and at least 90 % of it, and that A's first
epoch has the same hash under every line. Takes about ten minutes; needs root. Results: bench/results/load-papers100M-KIND.json.
"""
import pathlib
import statistics
import sys

import prooflib

A = ['--batch', '128', '--fanout', '3,2']
B = ['--batch', '1024', '--fanout', '15,10,5']
CASES = {
    'plain': [('A-4G', '4G', A, 3, [], 600), ('A-2G', '2G', A, 3, [], 300), ('A-1G', '1G', A, 2, [], None),
              ('B-8G', '8G', B, 2, ['--batches', '256'], None)],
    'spread': [('A-4G', '4G', A, 3, [], 450), ('A-2G', '2G', A, 3, [], None)],
}


def run(options, limit, words):
    scratch = ['--scratch', options.scratch] if options.scratch else []
    report = prooflib.limited(limit, prooflib.plimsoll(), 'bench', 'load', options.dataset, '--memory', limit, '--rows', 'f16', '--json', *words,
                              *scratch)
    sys.stderr.write(report.pop('stderr'))
    return report, prooflib.last_json(report.pop('stdout'))


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--kind', choices=CASES, default='plain')
    parser.add_argument('--scratch', type=pathlib.Path)
    parser.add_argument('--only', help='one case by its name')
    options = parser.parse_args()
    claims, facts, hashes = {}, {}, {}
    for name, limit, recipe, epochs, more, least in CASES[options.kind]:
        if options.only not in (None, name):
            continue
        report, printed = run(options, limit, [*recipe, '--epochs', epochs, *more])
        alive = report['exit'] == 0 and report['oom_kill'] == 0
        claims[f'{name}: ends with 0, not killed (exit {report["exit"]}, oom_kill {report["oom_kill"]})'] = alive
        facts[name] = {'cgroup': report, 'bench': printed}
        if not alive:
            continue
        rate = statistics.median(epoch['batches_per_second'] for epoch in printed['epochs'][1:])
        share = report['peak'] / printed['plan']['total_bytes']
        claims[f'{name}: {rate:,.1f} batches/s from the second epoch on' + (f', at least {least}' if least else '')] = rate >= (least or 0)
        claims[f'{name}: peak {report["peak"] / prooflib.MIB:,.0f} MiB is {100 * share:.1f} % of the plan, 90 to 100'] = 0.9 <= share <= 1
        if recipe is A:
            _, hashed = run(options, limit, [*recipe, '--epochs', 1, '--batches', 2000, '--hash'])
            hashes[name] = hashed['epochs'][0]['hash']
    if len(hashes) > 1:
        claims[f'one hash for 2,000 batches of A under {", ".join(hashes)}'] = len(set(hashes.values())) == 1
    path = prooflib.result_path(options, f'load-papers100M-{options.kind}', options.only is None)
    return 0 if prooflib.record(path, claims, kind=options.kind, hashes=hashes, cases=facts) else 1
