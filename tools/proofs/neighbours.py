"""Proves that memory which others take from a run in the middle of it costs time, not the run and not the result.

    tools/prove neighbours [N] [--seed S] [--only NUMBER] [--dataset DIR] [--dir DIR] [--json FILE]

Each of N (default 40) cases draws a line, log-uniform from 128 MiB to 2 GiB, a recipe, and what is left to the run, from the minimum
with whole batches (its plan's, with the reserve) upwards. It trains in a real cgroup whose limit is the line, with caches that fill it. After a quarter of its epochs

  held     a process of the same group takes the rest of the line, private or (a third) shared memory, at up to 100 MiB/s, and holds it;
  again    it gives it back after a while and takes it again, and so on;
  lowered  there is no such process, but the group's limit is lowered as fast, by at most 40 %;

and after ten seconds with all of it taken (again: two rounds) the memory is there again. Checks: neither the run nor the neighbour is killed, and losses,
scores and weights are those of the same run without limit or neighbour, to the bit. Steps/s before, during and, from ten seconds on, after are recorded; in the
median, training is then at least 70 % as fast as before. The dataset is papers100M's shape at 0.05 unless one is named, made in DIR (default: a
temporary directory), 1.8 GB; results are kept there, and the same command goes on where it was interrupted. Takes an hour. Needs root; exits 77 without.
Results: bench/results/neighbours.json.
"""
import json
import math
import mmap
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import prooflib

MIB = prooflib.MIB
PAGE = 4096
LOWEST, HIGHEST = 128 * MIB, 2048 * MIB
FASTEST, LONGEST = 100 * MIB, 20  # bytes/s that are taken at most; seconds that this takes at most
LOWERED_TO = 0.6
HOLD, ROUNDS, HOLD_AGAIN, REST = 10, 2, 2, 2
BACK_SECONDS, BACK = 10, 0.7  # more room must last for some seconds before caches grow; then they are read
TRAIN_SECONDS = 60
TICK = 0.02
NEIGHBOUR_ITSELF = 12 * MIB  # what Python takes
RECIPES = [['--model', 'gcn', '--hidden', 16, '--batch', 128, '--fanout', '3,2'], ['--model', 'sage', '--hidden', 64, '--batch', 256, '--fanout', '10,5'],
           ['--model', 'gat', '--hidden', 32, '--heads', 2, '--batch', 200, '--fanout', '5,5'],
           ['--model', 'sage', '--hidden', 128, '--batch', 512, '--fanout', '5,5,2', '--norm', 'layer']]


def take(group, size, rate, times, hold, shared):
    """The neighbour: takes `size` bytes step by step, says so, holds them, gives them back; `times` times. Shared memory counts as page cache."""
    pathlib.Path(group, 'cgroup.procs').write_text('0')
    for _ in range(times):
        with mmap.mmap(-1, size, flags=mmap.MAP_ANONYMOUS | (mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)) as memory:
            began = time.monotonic()
            for place in range(0, size, PAGE):
                memory[place] = 1
                if place % (256 * PAGE) == 0:
                    time.sleep(max(began + place / rate - time.monotonic(), 0))
            print('taken', flush=True)
            time.sleep(hold)
        time.sleep(REST)


class Disturbance(threading.Thread):
    """What happens to a group from start() on; `taken` and `ended` are the moments when all of it was first taken and it was over."""

    def __init__(self, case, group):
        super().__init__(daemon=True)
        self.case, self.group, self.taken, self.ended, self.times, self.code, self.process = case, group, None, None, 0, None, None

    def run(self):
        if self.case['kind'] == 'lowered':
            self.lower()
        else:
            again = self.case['kind'] == 'again'
            words = [self.group.group, self.case['taken'], self.case['rate'], ROUNDS if again else 1, HOLD_AGAIN if again else HOLD,
                     int(self.case['shared'])]
            self.process = subprocess.Popen([sys.executable, prooflib.SOURCE / 'tools' / 'prove', 'neighbours', '--take', *map(str, words)], stdout=subprocess.PIPE, text=True)
            for _ in self.process.stdout:
                self.taken = self.taken or time.monotonic()
                self.times += 1
            self.code = self.process.wait()
        self.ended = time.monotonic()

    def lower(self):
        began, gone = time.monotonic(), 0
        try:
            while gone < self.case['taken']:
                gone = min(int((time.monotonic() - began) * self.case['rate']), self.case['taken'])
                self.group.set_limit((self.case['line'] - gone) // PAGE * PAGE)
                time.sleep(TICK)
            self.taken, self.times, self.code = time.monotonic(), 1, 0
            time.sleep(HOLD)
            self.group.set_limit(self.case['line'])
        except OSError as error:  # the kernel found nothing more to reclaim, or the run has ended
            self.code = str(error.strerror)
            if self.group.group.exists():
                self.group.set_limit(self.case['line'])

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            self.code = 0
        self.join()


def plan_of(words, line):
    return prooflib.last_json(prooflib.call('plan', *words, '--measure', '--memory', line, '--json', '--quiet').stdout)


def whole_minimum(words, low, high):
    """The lowest line, to 2 MiB, under which batches are whole as under `high`: a run does not change how it cuts them."""
    while high - low > 2 * MIB:
        middle = (low + high) // 2
        if plan_of(words, middle).get('part_seeds') == 0:
            high = middle
        else:
            low = middle
    return high


def draw_case(number, seed, dataset):
    """One that can be: the run fits under its line with whole batches, and something can be taken from it."""
    rng = random.Random(f'{seed} {number}')
    while True:
        line = int(math.exp(rng.uniform(math.log(LOWEST), math.log(HIGHEST)))) // PAGE * PAGE
        recipe, threads = rng.choice(RECIPES), rng.choice([1, 2, 2, 4])
        words = [dataset, *recipe, '--threads', threads]
        plan = plan_of(words, line)
        minimum = plan.get('minimum_bytes', math.inf)
        if all(account['name'] != 'reserve' for account in plan.get('accounts', [])):
            minimum += min(max(0.03 * line, (32 + threads) * MIB), 2048 * MIB)
        if plan.get('part_seeds') == 0:
            minimum = whole_minimum(words, int(minimum), line)
        kind = rng.choice(['held'] * 4 + ['again'] * 4 + ['lowered'])
        least = max(minimum, LOWERED_TO * line if kind == 'lowered' else 0)
        left = int(rng.uniform(least, 0.9 * line))
        taken = line - left - (0 if kind == 'lowered' else NEIGHBOUR_ITSELF)
        if plan.get('part_seeds') == 0 and left >= least and taken >= 8 * MIB:
            slowest = min(taken / LONGEST, FASTEST / 2)
            return {'number': number, 'line': line, 'recipe': [str(word) for word in recipe], 'threads': threads, 'minimum': int(minimum), 'kind': kind,
                    'left': left, 'taken': taken // PAGE * PAGE, 'rate': int(math.exp(rng.uniform(math.log(slowest), math.log(FASTEST)))),
                    'shared': rng.random() < 0.3}


def outcome(events, run):
    last = run / 'last.safetensors'
    return {'losses': [event['loss'] for event in events if event.get('event') == 'epoch'],
            'weights': prooflib.read_safetensors(last)['digest'] if last.exists() else None,
            'metrics': prooflib.file_digest(run / 'metrics.jsonl') if last.exists() else None}


def train_words(case, dataset, epochs, run):
    return ['train', dataset, *case['recipe'], '--threads', case['threads'], '--epochs', epochs, '--eval-every', epochs, '--run', run, '--json']


def count_epochs(case, dataset, run):
    """As many as take about TRAIN_SECONDS under this line."""
    report = prooflib.limited(case['line'], prooflib.plimsoll(), *train_words(case, dataset, 3, run), '--quiet', warm=True)
    seconds = [event['seconds'] for event in prooflib.events(report['stdout']) if event['event'] == 'epoch']
    if not seconds:
        sys.exit(f'case {case["number"]}, before anything is taken: exit {report["exit"]}: {report["stderr"]}')
    return min(max(math.ceil(TRAIN_SECONDS / seconds[-1]), 12), 2000)


def disturbed(case, dataset, epochs, run):
    """The run with its neighbour: what the kernel counted, how fast it was, what came of it."""
    group = prooflib.Limited(case['line'], prooflib.plimsoll(), *train_words(case, dataset, epochs, run), warm=True)
    disturbance, events, spans = Disturbance(case, group), [], []
    for event in map(json.loads, group.output):
        events.append(event)
        if event.get('event') == 'epoch':
            spans.append((time.monotonic() - event['seconds'], time.monotonic()))
            if len(spans) == epochs // 4:
                disturbance.start()
    if disturbance.is_alive() or disturbance.ended:
        disturbance.stop()
    report = group.end()
    steps = events[0]['expect']['epoch_steps'] if events else 0
    began, taken, ended = spans[epochs // 4 - 1][1] if len(spans) >= epochs // 4 else math.inf, disturbance.taken or math.inf, disturbance.ended or math.inf
    parts = {'before': [span for span in spans[1:] if span[1] <= began], 'during': [span for span in spans if span[0] >= began and span[0] < ended],
             'after': [span for span in spans if span[0] >= ended + BACK_SECONDS]}
    speed = {name: round(statistics.median(steps / (span[1] - span[0]) for span in part), 1) if part else None for name, part in parts.items()}
    printed = report.pop('stderr')
    return {'cgroup': report, 'total': events[0].get('total_bytes') if events else None, 'epochs': epochs, 'speed': speed, 'times': disturbance.times,
            'taken_after_seconds': round(taken - began, 2) if taken < math.inf else None, 'neighbour': disturbance.code,
            'said': printed.splitlines()[-20:] if report['exit'] else [], **outcome(events, run)}


def try_case(case, dataset, folder):
    """A case and what is wrong with it."""
    run, calm = folder / 'run', folder / 'calm'
    for path in run, calm:
        shutil.rmtree(path, ignore_errors=True)
    epochs = count_epochs(case, dataset, run)
    shutil.rmtree(run, ignore_errors=True)
    done = prooflib.call(*train_words(case, dataset, epochs, calm), '--quiet')
    expected = outcome(prooflib.events(done.stdout), calm)
    result = {**case, **disturbed(case, dataset, epochs, run)}
    report = result['cgroup']
    result['alive'] = report['exit'] == 0 and report['oom_kill'] == 0 and result['neighbour'] in (0, None)
    result['same'] = all(result.pop(name) == expected[name] for name in ('losses', 'weights', 'metrics')) and bool(expected['weights'])
    for path in run, calm:
        shutil.rmtree(path, ignore_errors=True)
    return result


def summarise(results):
    killed = [result['number'] for result in results if not result['alive']]
    differ = [result['number'] for result in results if result['alive'] and not result['same']]
    never = [result['number'] for result in results if result['times'] == 0]
    back = [result['speed']['after'] / result['speed']['before'] for result in results if result['speed']['after'] and result['speed']['before']]
    middle = statistics.median(back) if back else 0
    return {f'{len(results)} cases: no run and no neighbour was killed (not so: {killed})': not killed,
            f'losses, scores and weights are those of the undisturbed run (not so: {differ})': not differ,
            f'in each case the memory was taken (not so: {never})': not never,
            f'{BACK_SECONDS} s after the memory is there again training is {middle:.0%} as fast as before, in the median (at least {BACK:.0%})': middle >= BACK}


def main():
    if sys.argv[1:2] == ['--take']:
        return take(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6]), sys.argv[7] == '1')
    parser = prooflib.parser(__doc__)
    parser.add_argument('cases', type=int, nargs='?', default=40)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--only', type=int, metavar='NUMBER', help='one case, not recorded')
    parser.add_argument('--dataset', type=pathlib.Path)
    parser.add_argument('--dir', type=pathlib.Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix='prove-neighbours-') as temporary:
        folder = (options.dir or pathlib.Path(temporary)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        dataset = options.dataset or folder / 'papers'
        if not dataset.exists():
            prooflib.must('generate', 'papers100M', dataset, '--scale', '0.05', '--quiet')

        def case(number):
            return try_case(draw_case(number, options.seed, dataset), dataset, folder)
        if options.only is not None:
            results = [case(options.only)]
            print(json.dumps(results[0]), file=sys.stderr)
        else:
            log = prooflib.Log(folder / 'neighbours.jsonl', seed=options.seed, dataset=dataset.name, build=prooflib.build_digest())
            results = [log.get(str(number), lambda: case(number)) for number in range(options.cases)]
    path = prooflib.result_path(options, 'neighbours', options.only is None)
    return 0 if prooflib.record(path, summarise(results), seed=options.seed, cases=results) else 1
