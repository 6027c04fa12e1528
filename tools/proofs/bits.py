"""Proves that a training's bits follow from its recipe alone.

    tools/prove bits [--recipes N] [--rounds N] [--seed S] [--jobs N] [--dir DIR] [--record]

N random recipes (500) on real and generated datasets, from 1 to 5,000 features wide: models, widths, fan-outs, batches, norms,
precisions, optimisers, microbatches, accumulation. Each is trained twice, in ways that may not show: 1 to 8 threads, a line from the least that the plan
asks for to none, either I/O engine, rows kept in memory or not, with statistics in the user's cache or without, another process that
burns a processor, and threads held up at random where they take work (the program plimsoll_delays of a build with tests).
metrics.jsonl, the tensors of last.safetensors and best.safetensors and the position must be equal, byte for byte. Lines under which
batches are cut into parts change the order of additions, as documented: where the two were cut otherwise, the one that was cut less
is repeated with --microbatch.

N times (1,000) a run is ended by SIGKILL at a random moment and resumed, by every other round with another number of threads, some
more than once: it must end as the undisturbed run of its recipe.

Every draw follows from the seed, which is printed. What differs is left in DIR. With --record the result goes to
bench/results/bits.json. Needs build/dev (or $PLIMSOLL_DELAYS); with two jobs on two processors about 25 minutes.
"""
import collections
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import prooflib

NOTES = ('epoch', 'step', 'updates', 'loss_sum', 'loss_seeds', 'epoch_loss', 'best_epoch', 'best_valid', 'best_test', 'waited', 'ended')
REAL = {'cora': ['--symmetrise', '--normalise-features'], 'citeseer': ['--symmetrise'], 'coauthor_cs': ['--symmetrise'],
        'minesweeper': ['--symmetrise'], 'amazon_photo': []}
WIDTHS = (1, 2, 7, 16, 33, 64, 100, 129, 500, 1000, 2049, 5000)
STEPS = 24  # of a recipe, about
SCORED_MOST = 3000  # nodes: larger splits would take most of the time
REFUSED = 3


def delays():
    """The program whose threads are held up."""
    path = os.environ.get('PLIMSOLL_DELAYS') or prooflib.SOURCE / 'build' / 'dev' / 'tests' / 'plimsoll_delays'
    if not os.access(path, os.X_OK):
        sys.exit(f'{path} is missing: cmake --preset dev && cmake --build --preset dev --target plimsoll_delays')
    return str(path)


def make(directory, *words):
    prooflib.must(*words, '--quiet')
    return json.loads((directory / 'dataset.json').read_text())


def make_datasets(folder, few):
    """Names and what dataset.json says of each."""
    datasets = {}
    for width in (16, 1000) if few else WIDTHS:
        name = f'free-{width}'
        datasets[name] = make(folder / name, 'generate', 'free', folder / name, '--nodes', 600, '--edges', 5000, '--features', width,
                              '--classes', 3 + width % 9, '--seed', width)
    datasets['papers'] = make(folder / 'papers', 'generate', 'papers100M', folder / 'papers', '--scale', 0.0003)
    for name, words in list(REAL.items())[:1 if few else None]:
        source = prooflib.test_data() / name
        if source.exists():
            datasets[name] = make(folder / name, 'import', source, folder / name, *words)
        else:
            print(f'no real data here (PLIMSOLL_TEST_DATA): {name} is left out', file=sys.stderr)
    graphs = prooflib.test_data() / 'graphs' / 'MUTAG'
    if graphs.exists() and not few:
        datasets['MUTAG'] = make(folder / 'MUTAG', 'import', graphs, folder / 'MUTAG')
    return datasets


def draw_recipe(rng, datasets):
    """A dataset's name and words that decide the result; few steps."""
    name = rng.choice(list(datasets))
    info = datasets[name]
    train, wide = info['num_train'], info['num_features'] > 500
    scored = info['num_valid'] + info['num_test']
    model = rng.choice(['gcn', 'sage', 'sage', 'gat', 'gin', 'mlp'])
    layers = rng.choice([1, 2, 2, 3])
    hidden = rng.choice([1, 5, 16, 31, 32, 64, 100] + ([] if wide else [128, 257]))
    heads = rng.choice([h for h in (1, 2, 4) if hidden % h == 0]) if model == 'gat' else 1
    words = ['--model', model, '--layers', layers, '--hidden', hidden, '--heads', heads, '--seed', rng.randrange(1000)]
    graphs = info['num_graphs'] > 0
    if model != 'mlp' and not graphs:
        words += ['--fanout=' + ','.join(str(rng.choice([1, 2, 3, 5, 10, -1])) for _ in range(layers))]
    batch = rng.choice([7, 16, 32, 50, 128, 500])
    batch = max(batch, train // 12)
    epochs = max(1, min(10, STEPS // (train // batch + 1)))
    words += ['--batch', batch, '--epochs', epochs, '--precision', rng.choice(['f32', 'f32', 'bf16'])]
    norm = rng.choice(['none', 'none', 'layer', 'batch'])
    words += ['--norm', norm, '--act', rng.choice(['relu', 'relu', 'elu', 'none']), '--dropout', rng.choice([0, 0, 0.3, 0.5])]
    words += ['--aggr', rng.choice(['mean', 'max'])] if model == 'sage' else []
    words += ['--pool', rng.choice(['mean', 'add', 'max'])] if graphs else []
    words += rng.choice([[], [], ['--residual']])
    words += rng.choice([[], [], ['--optimizer', 'adamw', '--weight-decay', '0.01'], ['--optimizer', 'sgd', '--momentum', '0.9']])
    words += rng.choice([[], [], ['--clip', '0.5'], ['--schedule', 'cosine']]) + ['--lr', rng.choice(['0.01', '0.001'])]
    words += rng.choice([[], ['--eval-every', '2'], ['--eval-train']]) if scored < SCORED_MOST else ['--eval-every', '0']
    if norm != 'batch' and rng.random() < 0.3:
        words += ['--microbatch', rng.randrange(1, min(batch, train) + 1)]
    words += rng.choice([[], [], ['--gradient-accumulation-steps', '2'], ['--gradient-accumulation-steps', '3']])
    return name, list(map(str, words))


def draw_threads(rng, held_up, other=None):
    """A number of them other than `other`: no more than there are processors, which for plimsoll_delays are eight."""
    return rng.choice([t for t in range(1, 9 if held_up else 1 + max(2, len(os.sched_getaffinity(0)))) if t != other])


def draw_way(rng, other=None):
    """How a run is made, which may not show; threads other than `other`'s."""
    held_up = rng.random() < 0.5
    return {'threads': draw_threads(rng, held_up, other['threads'] if other else None), 'delays': held_up, 'line': rng.choice([None, None, 'some', 'some', 'minimum']), 'factor': rng.uniform(1, 1.6),
            'io': rng.choice(['auto', 'threads']),  # auto: io_uring, unless the kernel refuses it (64 KiB of memlock)
            'busy': rng.random() < 0.3,
            'cold': rng.random() < 0.3, 'recompute': rng.random() < 0.2, 'row_cache': rng.choice([None, None, 'none', '64K'])}


@contextlib.contextmanager
def busy(wanted):
    """Another process that burns a processor meanwhile."""
    child = subprocess.Popen([sys.executable, '-c', 'while True: pass']) if wanted else None
    try:
        yield
    finally:
        if child:
            child.kill()
            child.wait()


class Prover:
    """Datasets, programs and a folder to work in."""

    def __init__(self, folder, datasets):
        self.folder, self.datasets = folder, datasets
        (folder / 'cache').mkdir(exist_ok=True)

    def data(self, name):
        return str(self.folder / name)

    def environment(self, run, way):
        cache = self.folder / 'cache'
        if way['cold']:
            cache = run.with_suffix('.cache')
            cache.mkdir(exist_ok=True)
        return {**os.environ, 'XDG_CACHE_HOME': str(cache)}

    def program(self, way):
        return delays() if way['delays'] else prooflib.plimsoll()

    def line(self, recipe, way):
        """Words for the memory line."""
        if way['line'] is None:
            return []
        words = ['plan', self.data(recipe[0]), *recipe[1], '--threads', way['threads'], '--json']
        plan = prooflib.last_json(prooflib.call(*words, env={**os.environ, 'XDG_CACHE_HOME': str(self.folder / 'cache')}).stdout)
        if 'minimum_bytes' not in plan:
            return []
        minimum = plan['minimum_bytes'] + 2 * prooflib.MIB
        return ['--memory', str(int(minimum * (way['factor'] if way['line'] == 'minimum' else 2 * way['factor'])))]

    def words(self, way):
        """Words that may not decide the result, but for the line."""
        return ['--threads', str(way['threads']), '--io', way['io'], '--quiet', *(['--recompute'] if way['recompute'] else []),
                *(['--row-cache', way['row_cache']] if way['row_cache'] else [])]

    def train(self, recipe, way, run):
        """Trains; the command and what came of it, with 'cut' (seeds at a time) and 'bits'."""
        line = self.line(recipe, way)
        while True:
            command = [self.program(way), 'train', self.data(recipe[0]), '--run', str(run), *recipe[1], *self.words(way), *line]
            with busy(way['busy']):
                done = subprocess.run(command, capture_output=True, text=True, check=False, env=self.environment(run, way))
            if done.returncode != REFUSED or not line:
                break
            line = []  # the least line is to the MiB that the process takes
        if done.returncode != 0:
            return {'command': command, 'code': done.returncode, 'said': done.stderr.strip()}
        return {'command': command, 'code': 0, **bits_of(run)}


def bits_of(run):
    """What a run's files say, without what they say of the machine."""
    last = prooflib.read_safetensors(run / 'last.safetensors')
    notes = {name: last['metadata'].get(name) for name in NOTES}
    best = run / 'best.safetensors'
    return {'cut': int(last['metadata'].get('part_seeds', 0)),
            'bits': [last['digest'], json.dumps(last['tensors'], sort_keys=True), json.dumps(notes),
                     prooflib.read_safetensors(best)['digest'] if best.exists() else None, prooflib.file_digest(run / 'metrics.jsonl')]}


def seeds_at_once(recipe, cut):
    """As another run was cut; on top of what the recipe says."""
    return (recipe[0], [*recipe[1], '--microbatch', str(cut)]) if cut > 0 else recipe


def try_recipe(prover, seed, number):
    """One recipe in two ways; what came of it."""
    rng = random.Random(f'{seed}-recipe-{number}')
    recipe = draw_recipe(rng, prover.datasets)
    ways = [draw_way(rng)]
    ways.append(draw_way(rng, ways[0]))
    runs = [prover.folder / f'recipe-{number}-{which}' for which in 'ab']
    ends = [prover.train(recipe, way, run) for way, run in zip(ways, runs)]
    again = False
    if all(end['code'] == 0 for end in ends) and ends[0]['cut'] != ends[1]['cut']:
        less = max((0, 1), key=lambda i: ends[i]['cut'] or 1 << 40)  # 0: whole
        shutil.rmtree(runs[less])
        ends[less] = prover.train(seeds_at_once(recipe, ends[1 - less]['cut']), {**ways[less], 'line': None}, runs[less])
        again = True
    result = {'number': number, 'dataset': recipe[0], 'words': ' '.join(recipe[1]), 'again': again, 'model': recipe[1][1],
              'precision': recipe[1][recipe[1].index('--precision') + 1], 'threads': [way['threads'] for way in ways],
              'delays': any(way['delays'] for way in ways), 'cut': ends[0].get('cut', 0) > 0}
    failed = [end for end in ends if end['code'] != 0]
    if failed:
        result['wrong'] = f'{" ".join(failed[0]["command"])} ends with {failed[0]["code"]}: {failed[0]["said"]}'
    elif ends[0]['bits'] != ends[1]['bits']:
        result['wrong'] = 'differ: ' + ' | '.join(' '.join(end['command']) for end in ends)
    else:
        for run in runs:
            shutil.rmtree(run)
            shutil.rmtree(run.with_suffix('.cache'), ignore_errors=True)
    return result


class Victim:
    """A recipe whose runs are killed, and how it ends undisturbed."""

    def __init__(self, prover, seed, number):
        rng = random.Random(f'{seed}-victim-{number}')
        self.recipe = draw_recipe(rng, prover.datasets)
        if number == 0 and 'cora' in prover.datasets:
            self.recipe = ('cora', '--model sage --hidden 64 --fanout 10,5 --batch 32 --epochs 8 --seed 9'.split())
        self.way = {**draw_way(rng), 'line': None, 'delays': False, 'busy': False, 'threads': 2}
        run = prover.folder / f'victim-{number}'
        began = time.monotonic()
        self.end = prover.train(self.recipe, self.way, run)
        self.seconds = time.monotonic() - began
        if self.end['code'] != 0:
            sys.exit(f'the undisturbed run fails: {" ".join(self.end["command"])}\n{self.end["said"]}')
        shutil.rmtree(run)


def live(prover, victim, way, run, steps, moment):
    """Begins the run or goes on with it, up to so many seconds; whether it was killed, or what went wrong."""
    words = ['--resume', str(run)] if (run / 'run.json').exists() else [prover.data(victim.recipe[0]), '--run', str(run), *victim.recipe[1]]
    command = [prover.program(way), 'train', *words, *prover.words(way), '--checkpoint-every', str(steps), '--checkpoint-minutes', '0']
    with busy(way['busy']):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                 env=prover.environment(run, {**way, 'cold': False}))
        printed = prooflib.end_after(child, moment)
    if child.returncode not in (0, -signal.SIGKILL):
        return f'{" ".join(command)} ends with {child.returncode}: {printed.strip()}'
    return child.returncode == -signal.SIGKILL


def try_round(prover, victims, seed, number):
    """One run, killed and resumed."""
    rng = random.Random(f'{seed}-round-{number}')
    victim = victims[number % len(victims)]
    run = prover.folder / f'round-{number}'
    steps, kills, lives, others = rng.randrange(1, 6), 0, 0, 0
    way = {**victim.way, 'delays': rng.random() < 0.5, 'busy': rng.random() < 0.2}
    least = 1 + (rng.random() < 0.3)
    while True:
        moment = rng.uniform(0.02, victim.seconds) if lives < 3 * least and kills < least else None
        killed = live(prover, victim, way, run, steps, moment)
        lives += 1
        if isinstance(killed, str):
            return {'number': number, 'kills': kills, 'others': others, 'wrong': killed}
        if not killed:
            if kills >= least or lives >= 3 * least:
                break
            shutil.rmtree(run)  # over before it was killed
            continue
        kills += 1
        if number % 2 == 0:
            way = {**way, 'delays': rng.random() < 0.7}
            way['threads'] = draw_threads(rng, way['delays'], way['threads'])
            others += 1
    result = {'number': number, 'kills': kills, 'others': others}
    if bits_of(run)['bits'] != victim.end['bits']:
        result['wrong'] = f'{run.name}, killed {kills} times: not as {" ".join(victim.end["command"])}'
    else:
        shutil.rmtree(run)
    return result


def gather(jobs, work, count):
    """work(0 … count-1) on so many threads; the results, progress on standard error."""
    results = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(work, number) for number in range(count)]):
            results.append(done.result())
            if 'wrong' in results[-1]:
                print(f'BROKEN: {results[-1]["wrong"]}', flush=True)
            if len(results) % 50 == 0:
                print(f'{len(results)} of {count}', file=sys.stderr, flush=True)
    return results


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--recipes', type=int, default=500)
    parser.add_argument('--rounds', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--jobs', type=int, default=2)
    parser.add_argument('--dir', type=pathlib.Path, help='where to work; default: a temporary directory')
    parser.add_argument('--record', action='store_true')
    options = parser.parse_args()
    delays()
    print(f'seed {options.seed}')
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = options.dir or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix='prove-bits-')))
        folder = folder.resolve()
        prover = Prover(folder, make_datasets(folder, options.recipes + options.rounds < 100))
        recipes = gather(options.jobs, lambda number: try_recipe(prover, options.seed, number), options.recipes)
        victims = [Victim(prover, options.seed, number) for number in range(min(24, options.rounds // 4 + 1) if options.rounds else 0)]
        rounds = gather(options.jobs, lambda number: try_round(prover, victims, options.seed, number), options.rounds)
    kills, others = sum(item['kills'] for item in rounds), sum(item['others'] > 0 for item in rounds)
    wrong = [[item for item in part if 'wrong' in item] for part in (recipes, rounds)]
    claims = {f'{len(recipes)} recipes, each in two ways: {len(wrong[0])} differ or fail': not wrong[0],
              f'{len(rounds)} rounds with {kills} kills, {others} resumed with another number of threads: {len(wrong[1])} differ or fail':
              not wrong[1]}
    counts = {key: dict(collections.Counter(str(item[key]) for item in recipes)) for key in ('dataset', 'model', 'precision', 'delays', 'cut')}
    return 0 if prooflib.record(prooflib.result_path(options, 'bits', options.record), claims, seed=options.seed,
                                seconds=round(time.monotonic() - began), kills=kills, other_threads=others, recipes=counts,
                                recut=sum(item['again'] for item in recipes), wrong=wrong[0] + wrong[1]) else 1
