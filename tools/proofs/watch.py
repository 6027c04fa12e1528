"""Proves that a watch costs little and survives what it records.

    tools/prove watch [N] [--gigabytes G] [--seconds S] [--json FILE]
    tools/prove watch [N] --together [--json FILE]

Overhead: 32 processes hold G GB together (10 without it), at rest, and touching fresh memory all the time; a watch looks at them every 100 ms and every 10 ms for S
seconds. Its processor time and memory are its own count, from the record's end; a busy machine delays some ticks, so their number is recorded too. A loop that computes is timed with and without a watch in turns.
Survival: N commands (100) are killed by the kernel in a real control group of 128 MiB: by a leak, one large allocation, forked workers, or a file in /dev/shm, which
makes small processes the victims. The watcher must end with the command's exit code, every line must be whole, the kill must be in the end, and ticks must reach
up to the death. Needs root and a writable cgroup v1 memory controller. Ten minutes; the result goes to bench/results/watch.json.
--together: control groups of version 2 with memory.oom.group, where the kernel kills all processes at once, instead; as root, whose watcher is exempt and must record the end, and as a user, whose watcher
is killed too: its record must reach up to the death, and the doctor must name that. For tools/prove guest-v2 --watch.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import prooflib

GROUPS = pathlib.Path('/sys/fs/cgroup/memory')
V2 = pathlib.Path('/sys/fs/cgroup')
LIMIT = 128 * prooflib.MIB
PROCESSES = 32
PYTHON = [sys.executable, '-S', '-c']
HOLD = '''
import mmap, os, sys, time
each, moving, seconds = int(sys.argv[1]), sys.argv[2] == 'moving', float(sys.argv[3])
for _ in range({} - 1):
    if os.fork() == 0:
        break
held = mmap.mmap(-1, each, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
held[::4096] = bytes(len(range(0, each, 4096)))
end = time.monotonic() + seconds
while time.monotonic() < end:
    if moving:
        more = mmap.mmap(-1, 8 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        more[::4096] = bytes(2048)
    time.sleep(0.2)
'''.format(PROCESSES)
COMPUTE = 'sum(i * i for i in range(6_000_000))'
DEATHS = {
    'leak': [*PYTHON, 'import time\nb = []\nwhile True:\n    b.append(bytearray(1 << 20)); time.sleep(0.01)'],
    'spike': [*PYTHON, 'import time; time.sleep(0.5); b = bytearray(400 << 20)'],
    'workers': [*PYTHON, 'import os, time\nfor _ in range(3):\n    os.fork()\nb = []\nwhile True:\n    b.append(bytearray(1 << 20)); time.sleep(0.05)'],
    'tmpfs': ['sh', '-c', 'while :; do head -c 2000000 /dev/zero; sleep 0.02; done >> "$FILL"'],
}


def lines(run):
    """The record; a line that is not whole ends the proof."""
    text = (run / 'timeline.jsonl').read_text(encoding='ascii')
    assert text.endswith('\n')
    return [json.loads(line) for line in text.splitlines()]


def overhead(options, work, kind, interval):
    run = work / f'{kind}-{interval}'
    each = int(options.gigabytes * 1e9 / PROCESSES) // 4096 * 4096
    subprocess.run([prooflib.plimsoll(), 'watch', '--quiet', '--interval', interval, '--out', run, '--', *PYTHON, HOLD, str(each), kind,
                    str(options.seconds)], check=True)
    record = lines(run)
    ticks, end = [line for line in record if line['kind'] == 'tick'], record[-1]
    return {'kind': kind, 'interval': interval, 'processes': max(tick['num_processes'] for tick in ticks), 'seconds': end['at_s'],
            'rss_bytes': max(tick['rss_bytes'] for tick in ticks), 'ticks': end['ticks'], 'ticks_written': len(ticks),
            'record_bytes': (run / 'timeline.jsonl').stat().st_size, 'watcher_peak_bytes': end['watcher_peak_bytes'],
            'watcher_cpu_percent': round(100 * end['watcher_cpu_s'] / end['at_s'], 3)}


def slowdown(work, times=7):
    """The median processor time of a computing command without and with a watch."""
    spent = {'plain': [], 'watched': []}
    for i in range(times):
        for name, words in ('plain', []), ('watched', [prooflib.plimsoll(), 'watch', '--quiet', '--out', work / f'loop-{i}', '--']):
            before = os.times()
            began = time.monotonic()
            subprocess.run([*words, *PYTHON, COMPUTE], check=True)
            after = os.times()
            spent[name].append((after.children_user + after.children_system - before.children_user - before.children_system, time.monotonic() - began))
    return {f'{name}_{what}_s': round(statistics.median(entry[i] for entry in spent[name]), 4) for name in spent for i, what in enumerate(('cpu', 'wall'))}


def die(work, number):
    kind = list(DEATHS)[number % len(DEATHS)]
    group, run, fill = GROUPS / f'plimsoll-prove-watch-{os.getpid()}', work / f'death-{number}', pathlib.Path(f'/dev/shm/plimsoll-prove-watch-{os.getpid()}')
    group.mkdir()
    (group / 'memory.limit_in_bytes').write_text(str(LIMIT))
    try:
        done = subprocess.run([prooflib.plimsoll(), 'watch', '--quiet', '--out', run, '--', *DEATHS[kind]], check=False, capture_output=True, text=True,
                              preexec_fn=lambda: (group / 'cgroup.procs').write_text(str(os.getpid())), env={**os.environ, 'FILL': str(fill)}, timeout=300)
        for pid in (group / 'cgroup.procs').read_text().split():
            os.kill(int(pid), 9)
    finally:
        fill.unlink(missing_ok=True)
        for _ in range(500):
            try:
                group.rmdir()
                break
            except OSError:
                time.sleep(0.02)
    record = lines(run)
    ticks = [line for line in record if line['kind'] == 'tick']
    end = record[-1] if record[-1]['kind'] == 'end' else {}
    before = [tick for tick in ticks if tick['at_s'] < end.get('at_s', 0)]
    return {'kind': kind, 'exit_code': done.returncode, 'ended': bool(end) and end['exit_code'] == done.returncode,
            'kills': end['groups'][0]['kills'] if end else 0, 'seconds_between_last_tick_and_end': round(end.get('at_s', 1e9) - before[-1]['at_s'], 3),
            'share_seen': round(max(tick['used_bytes'] / tick['line_bytes'] for tick in ticks), 3), 'group_peak_bytes': end.get('group_peak_bytes', 0)}


def die_together(work, number):
    """The kernel kills the whole group, as memory.oom.group says."""
    group, run, user = V2 / f'plimsoll-prove-watch-{os.getpid()}', work / f'together-{number}', 65534 if number % 2 else 0
    group.mkdir()
    (group / 'memory.max').write_text(str(LIMIT))
    (group / 'memory.oom.group').write_text('1')

    def enter():
        (group / 'cgroup.procs').write_text(str(os.getpid()))
        os.setgid(user)
        os.setuid(user)
    words = [prooflib.plimsoll(), 'watch', '--quiet', '--out', run, '--', *DEATHS[['leak', 'workers'][number // 2 % 2]]]
    code = subprocess.run(words, check=False, capture_output=True, preexec_fn=enter, timeout=600).returncode
    died = time.time()
    killed = int(dict(line.split() for line in (group / 'memory.events').read_text().splitlines())['oom_group_kill'])
    while (group / 'cgroup.procs').read_text():
        time.sleep(0.05)
    group.rmdir()
    record = lines(run)
    ticks = [line for line in record if line['kind'] == 'tick']
    verdict = json.loads(prooflib.call('doctor', run, '--json').stdout)
    return {'user': user, 'exit_code': code, 'group_kills': killed, 'ended': record[-1]['kind'] == 'end', 'ticks': len(ticks),
            'seconds_between_last_tick_and_death': round(died - record[0]['time_s'] - ticks[-1]['at_s'], 2),
            'share_seen': round(max(tick['used_bytes'] / tick['line_bytes'] for tick in ticks), 3), 'cause': verdict['cause'], 'confidence': verdict['confidence']}


def together(options):
    """The emulated guest is slow: ticks may be seconds apart there."""
    (V2 / 'cgroup.subtree_control').write_text('+memory')
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        work.chmod(0o777)
        deaths = [die_together(work, number) for number in range(options.count)]
    claims = {
        f'in {len(deaths)} of {len(deaths)} deaths the kernel killed the whole group, and every line of the record is whole': all(d['group_kills'] > 0 for d in deaths),
        'the watcher of root lives and records the end': all(d['ended'] and d['confidence'] == 'proven' for d in deaths if d['user'] == 0),
        'the watcher of a user is killed too': all(d['exit_code'] == -9 and not d['ended'] for d in deaths if d['user']),
        'the doctor names the control group\'s limit in each': all(d['cause'] == 'oom_cgroup' for d in deaths),
        'the last tick is at most 5 s older than the death': all(d['seconds_between_last_tick_and_death'] <= 5 for d in deaths)}
    return 0 if prooflib.record(options.json, claims, deaths=deaths) else 1


def main():
    parser = prooflib.parser(__doc__, 'watch.json')
    parser.add_argument('count', type=int, nargs='?', default=100)
    parser.add_argument('--gigabytes', type=float, default=10)
    parser.add_argument('--seconds', type=float, default=30)
    parser.add_argument('--together', action='store_true', help='groups that are killed as a whole')
    options = parser.parse_args()
    if options.together:
        if os.geteuid() != 0 or not (V2 / 'cgroup.controllers').exists() or 'memory' not in (V2 / 'cgroup.controllers').read_text().split():
            prooflib.skip('needs root and the memory controller of cgroup v2')
        return together(options)
    if os.geteuid() != 0 or not (GROUPS / 'memory.limit_in_bytes').exists():
        prooflib.skip('needs root and a writable cgroup v1 memory controller')
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        costs = [overhead(options, work, kind, interval) for kind in ('still', 'moving') for interval in ('100ms', '10ms')]
        for cost in costs:
            print(cost)
        loop = slowdown(work)
        print(loop)
        deaths = [die(work, number) for number in range(options.count)]
    kinds = {kind: [death for death in deaths if death['kind'] == kind] for kind in DEATHS}
    claims = {
        f'at 100 ms with {PROCESSES} processes the watcher uses less than 1 % of a core': all(cost['watcher_cpu_percent'] < 1 for cost in costs if cost['interval'] == '100ms'),
        'the watcher stays below 8 MiB': all(cost['watcher_peak_bytes'] < 8 * prooflib.MIB for cost in costs),
        f'after {len(deaths)} of {len(deaths)} kills in its control group the watcher lives and records the end': all(death['ended'] and death['kills'] > 0 for death in deaths),
        'every line is whole, and the last tick is at most 1.5 s older than the end': all(death['seconds_between_last_tick_and_end'] <= 1.5 for death in deaths),
    }
    summary = {kind: {'deaths': len(some), 'exit_codes': sorted({death['exit_code'] for death in some}), 'kills': [min(d['kills'] for d in some), max(d['kills'] for d in some)],
                      'share_of_limit_seen': [min(d['share_seen'] for d in some), max(d['share_seen'] for d in some)],
                      'seconds_between_last_tick_and_end': [min(d['seconds_between_last_tick_and_end'] for d in some), max(d['seconds_between_last_tick_and_end'] for d in some)]}
               for kind, some in kinds.items() if some}
    return 0 if prooflib.record(options.json, claims, overhead=costs, loop=loop, deaths=summary) else 1
