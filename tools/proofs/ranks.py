"""Proves that any number of ranks computes what one process computes.

    tools/prove ranks bits  [--runs 60]   three models on papers100M/100 and arxiv, --shares 8, over 1, 2, 3, 4 and 8 ranks, each MPI, three lines
    tools/prove ranks chain               one run, stopped and resumed with 4, 1, 3 and 8 ranks
    tools/prove ranks kills [N] [--seconds T]
                                          N (default 200) times a random rank is killed at a random moment, and the run resumed by a random number
    tools/prove ranks many                8, 16, 32 and 64 ranks on these processors, on papers100M/64
    tools/prove ranks speed [--rounds 5]  two ranks of one thread beside one rank of two, workloads A and B on 10 million nodes
    tools/prove ranks network [--rounds 5] [--seconds T]
                                          the same with a network of 10 and 1 Gbit/s between the two
    tools/prove ranks exact [--runs 60] [--rounds 5]
                                          evaluate and predict, exact and sampled, over 1, 2 and 3 ranks, each MPI, three lines; then an exact evaluation by two
                                          ranks of one thread beside one rank of one, on 10 million nodes
    tools/prove ranks full --dataset DIR  workload A on papers100M's shape at full size, two ranks in cgroups of 2 GiB of their own

Options of all: [--mpi openmpi,mpich] [--dir DIR] [--json FILE] [--seed S]

metrics.jsonl must be equal byte for byte, and so must be the tensors of last.safetensors and best.safetensors, to those of one process
without MPI. bits covers each pair of dataset, model, ranks, MPI and line at least once. kills aims at start, staging, step, evaluation and checkpoint by
turns, and says from the files and the output of that moment where it hit; after a kill no rank is alive after 15 seconds, and nothing of ours is left in /dev/shm. A launcher that
does not notice the end of its ranks is counted, and ended. Then some ranks are stopped (SIGSTOP) instead, with PLIMSOLL_RANKS_TIMEOUT=3: the message names the rank and the stage.
speed takes runs by turns and compares medians of it/s: B at least 0.92 and A at least 0.8 of one rank. network starts the two ranks in two network
namespaces, which a veth pair joins whose ends tc's tbf limits; Open MPI finds two hosts and has only TCP between them. B at least 0.87 of one rank at 10 Gbit/s
and 0.7 at 1; A as measured. It needs root. full joins its ranks by the same network of 10 Gbit/s, so that each is alone on its host, and runs beside them one rank
in 2 GiB and one in 4 GiB, each rank with two threads: none may be killed, and all end with the same weights. kills and
network keep what they have found in --dir, begin no run after T seconds (exit code 75), and continue with the same command. exact compares scores as they
are in JSON and predictions byte for byte; it takes turns by the wall clock of the whole command: at least 1.5 times the speed. --rounds 0 leaves the turns out.
Needs apt's openmpi-bin and mpich, or those of --mpi, and the plugins beside the binary under test ($PLIMSOLL, else the release build); exits 77
where they are missing. Datasets are kept in --dir (default: a temporary directory). Results: bench/results/ranks-WHAT.json.
"""
import collections
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import proofdata
import prooflib

LAUNCHERS = {'openmpi': ['mpirun.openmpi', '--allow-run-as-root', '--oversubscribe', '--bind-to', 'none', '-n'], 'mpich': ['mpirun.mpich', '-n']}
DATASETS = {'papers': ['generate', 'papers100M', '--scale', 0.01], 'arxiv': ['import', 'ogbn_arxiv', '--symmetrise'],
            'papers64': ['generate', 'papers100M', '--scale', 1 / 64], 'papers10': ['generate', 'papers100M', '--scale', 0.09]}
MODELS = {'gcn': ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128],
          'sage': ['--model', 'sage', '--hidden', 32, '--fanout', '5,5', '--batch', 512, '--norm', 'layer', '--dropout', 0.3],
          'gat': ['--model', 'gat', '--hidden', 16, '--heads', 2, '--fanout', '4,3', '--batch', 256, '--gradient_accumulation_steps', 2]}
WORKLOADS = {'A': ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128],
             'B': ['--model', 'sage', '--hidden', 256, '--fanout', '15,10,5', '--batch', 1024]}
RANKS, SHARES, LINES = (1, 2, 3, 4, 8), 8, ('none', '1G', '400M')
LEAST = {'A': 0.8, 'B': 0.92, 'exact': 1.5}
INFERENCES = {'exact scores': ['evaluate', '--exact', '--split', 'all'], 'sampled scores': ['evaluate', '--split', 'all'],
              'all nodes': ['predict', '--split', 'all'], 'exact classes': ['predict', '--kind', 'classes'], 'sampled': ['predict', '--sampled', '--split', 'valid']}
RATES = {'10gbit': {'A': 0, 'B': 0.87}, '1gbit': {'A': 0, 'B': 0.7}}
END_SECONDS, CHAIN_EPOCHS = 15, 60
STOPPED = 75
KILL_WORDS = ['--eval-train', '--eval-fanout', '15,10', '--checkpoint-every', 20]
STAGES = {'start': 0.4, 'staging': 0.3, 'step': 0.4, 'evaluation': 0.3, 'checkpoint': 0}  # aimed at; seconds that a kill may come after its beginning
SILENT, SILENT_SECONDS = 10, 3


def dataset(directory, name):
    verb, source, *words = DATASETS[name]
    if verb == 'import':
        source = prooflib.test_data() / source
    proofdata.make(directory, name, verb, source, directory / name, *words)
    return directory / name


def words_of(mpi, ranks, *words, before=()):
    launcher = mpi.launcher if isinstance(mpi, Network) else LAUNCHERS.get(mpi, [])
    return [str(word) for word in [*([*launcher, ranks] if mpi else []), *before, prooflib.plimsoll(), *words]]


def train(mpi, ranks, data, run, *words, **options):
    return subprocess.Popen(words_of(mpi, ranks, 'train', data, *words, '--run', run, '--resume'), text=True, start_new_session=True,
                            **{'stdout': subprocess.PIPE, 'stderr': subprocess.PIPE, **options})


def finish(child):
    out, printed = child.communicate()
    return child.returncode, out, printed


def bits(run):
    tensors = [prooflib.read_safetensors(run / f'{name}.safetensors')['digest'] for name in ('last', 'best') if (run / f'{name}.safetensors').exists()]
    return [prooflib.file_digest(run / 'metrics.jsonl'), *tensors]


def ranks_of(run):
    """Process ids of the ranks that train a run; MPICH gives each a session of its own."""
    ids = subprocess.run(['pgrep', '-f', f'plimsoll train .*--run {run} '], capture_output=True, text=True, check=False).stdout.split()
    return [int(pid) for pid in ids if is_plimsoll(pid)]


def is_plimsoll(pid):
    try:
        return pathlib.Path(f'/proc/{pid}/comm').read_text() == 'plimsoll\n'
    except OSError:
        return False


def rank_of(pid):
    """The number that a rank has from its launcher."""
    variables = dict(entry.split('=', 1) for entry in pathlib.Path(f'/proc/{pid}/environ').read_text().split('\0') if '=' in entry)
    return int(variables.get('OMPI_COMM_WORLD_RANK') or variables['PMI_RANK'])


def kill(pid, number=signal.SIGKILL):
    """Whether it was there to be killed."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


class Launch:
    """Ranks that train a run below `directory` from a copy in scratch; what they print goes into files."""

    def __init__(self, directory, mpi, ranks, data, *words, **environment):
        self.run, self.scratch, self.began = directory / 'run', directory / 'scratch', time.time()
        self.scratch.mkdir(exist_ok=True)
        self.out, self.printed = directory / 'out', directory / 'said'
        with open(self.out, 'w') as out, open(self.printed, 'w') as printed:
            self.child = train(mpi, ranks, data, self.run, *words, '--stage', '--scratch', self.scratch, '--json', stdout=out, stderr=printed,
                               env={**os.environ, **environment})

    def stage(self):
        """Where in its work it is."""
        try:
            if any(file.stat().st_mtime >= self.began for file in self.scratch.glob('.*.partial/*')):
                return 'staging'
        except FileNotFoundError:  # renamed meanwhile
            return 'staging'
        if any(self.run.glob('.last.safetensors.partial*')):
            return 'checkpoint'
        printed = self.printed.read_text(errors='replace')
        if '"event":"epoch"' in self.out.read_text():
            return 'later'
        return 'evaluation' if 'Training: ' in printed else 'step' if 'reading features: ' in printed else 'start'

    def reached(self, stage):
        if stage == 'start':
            return ranks_of(self.run)
        if stage == 'checkpoint':  # of some milliseconds
            return any(self.run.glob('.last.safetensors.partial*'))
        return self.stage() in (stage, 'later')

    def reach(self, stage, later):
        """Waits for a stage and `later` seconds more; where the ranks then are, None if they have ended."""
        while self.child.poll() is None and not self.reached(stage):
            time.sleep(0.0005)
        time.sleep(later)
        return None if self.child.poll() is not None else stage if stage == 'checkpoint' else self.stage()

    def end(self):
        """Waits for the ranks, then for the launcher: seconds until the last rank was gone, and whether the launcher ended by itself."""
        began = time.monotonic()
        while ranks_of(self.run) and time.monotonic() < began + 4 * END_SECONDS:
            time.sleep(0.05)
        took = time.monotonic() - began
        try:
            self.child.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self.child.pid, signal.SIGKILL)
            self.child.wait()
            return took, False
        return took, True


MEASURE = """
import socket, sys, time
server = len(sys.argv) < 2
if server:
    listener = socket.create_server(('', 7777))
    print(flush=True)
    peer = listener.accept()[0]
else:
    peer = socket.create_connection((sys.argv[1], 7777))
peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
began = time.perf_counter()
for _ in range(1000):
    if server:
        peer.recv(64)
    peer.send(bytes(64))
    if not server:
        peer.recv(64)
trip = (time.perf_counter() - began) / 1000
began, left = time.perf_counter(), 256 << 20
while server and left > 0:
    left -= len(peer.recv(1 << 20))
while not server and left > 0:
    left -= peer.send(bytes(min(left, 1 << 20)))
if server:
    print(trip * 1e6, (256 << 23) / (time.perf_counter() - began) / 1e9)
"""


class Network:
    """Two network namespaces, each a host of its own to Open MPI, and a link between them. mpirun is in the first; instead of ssh it runs a script that
    enters the second."""

    HOSTS = '10.77.0.1', '10.77.0.2'

    def __init__(self, directory):
        self.names = [f'plimsoll-{os.getpid()}-{i}' for i in (1, 2)]
        agent = directory / 'agent'
        agent.write_text(f'#!/bin/sh\nshift\nexec nsenter --net=/run/netns/{self.names[1]} unshare --uts sh -c "hostname {self.names[1]}; $*"\n')
        agent.chmod(0o755)
        enter = ['nsenter', f'--net=/run/netns/{self.names[0]}', 'unshare', '--uts', 'sh', '-c', f'hostname {self.names[0]}; exec "$@"', 'sh']
        self.launcher = [*enter, 'mpirun.openmpi', '--allow-run-as-root', '--bind-to', 'none', '--host', ','.join(self.HOSTS), '--mca', 'plm_rsh_agent', agent.resolve(),
                         '--mca', 'pml', 'ob1', '--mca', 'btl', 'tcp,self', '--mca', 'btl_tcp_if_include', '10.77.0.0/24', '--mca', 'oob_tcp_if_include', '10.77.0.0/24', '-n']

    def __enter__(self):
        for name in self.names:
            self.call('ip', 'netns', 'add', name)
        self.call('ip', 'link', 'add', 'plimsoll', 'netns', self.names[0], 'type', 'veth', 'peer', 'name', 'plimsoll', 'netns', self.names[1])
        for name, host in zip(self.names, self.HOSTS):
            self.call('ip', '-n', name, 'address', 'add', f'{host}/24', 'dev', 'plimsoll')
            self.call('ip', '-n', name, 'link', 'set', 'plimsoll', 'gso_max_size', '16384', 'up')  # tbf lets a burst of two such packets pass
            self.call('ip', '-n', name, 'link', 'set', 'lo', 'up')
        return self

    def __exit__(self, *_):
        for name in self.names:
            self.call('ip', 'netns', 'delete', name)

    def call(self, *words):
        subprocess.run(words, check=True)

    def set_rate(self, rate):
        """Limits both directions; what the link then does, measured by sockets."""
        for name in self.names:
            self.call('tc', '-n', name, 'qdisc', 'replace', 'dev', 'plimsoll', 'root', 'tbf', 'rate', rate, 'burst', '32kb', 'latency', '20ms')
        inside = [['ip', 'netns', 'exec', name, sys.executable, '-c', MEASURE] for name in self.names]
        with subprocess.Popen(inside[0], stdout=subprocess.PIPE, text=True) as server:
            server.stdout.readline()
            self.call(*inside[1], self.HOSTS[0])
            trip, gbit = map(float, server.communicate()[0].split())
        return {'round_trip_us': round(trip, 1), 'gbit_per_s': round(gbit, 2)}


def pairwise(factors, draw):
    """Cases that have each pair of values of any two factors at least once: each next one is the best of some that were drawn."""
    pairs = {(i, a, j, b) for i, j in itertools.combinations(range(len(factors)), 2) for a in factors[i] for b in factors[j]}
    while pairs:
        drawn = [[draw.choice(values) for values in factors] for _ in range(50)]
        i, a, j, b = min(pairs)
        for case in drawn:
            case[i], case[j] = a, b
        best = max(drawn, key=lambda case: len(covered(case) & pairs))
        pairs -= covered(best)
        yield best


def covered(case):
    return {(i, case[i], j, case[j]) for i, j in itertools.combinations(range(len(case)), 2)}


class Proof:
    def __init__(self, options, directory):
        self.options, self.directory, self.draw = options, directory, random.Random(options.seed)
        self.references, self.results, self.began = {}, [], time.monotonic()

    def recipe(self, model, line='none', epochs=3):
        return [*MODELS[model], '--epochs', epochs, '--shares', SHARES, *([] if line == 'none' else ['--memory', line])]

    def restore(self, **empty):
        """What the same command has found already of this build."""
        head, path = {'build': prooflib.build_digest(), 'seed': self.options.seed}, self.directory / f'{self.options.what}.json'
        found = json.loads(path.read_text()) if path.exists() else {}
        return found if all(found.get(name) == value for name, value in head.items()) else {**head, **empty}

    def keep(self, found):
        """Keeps it for the next command, which is due when the time is over."""
        (self.directory / f'{self.options.what}.json').write_text(json.dumps(found))
        if time.monotonic() - self.began > self.options.seconds:
            print('the time is over: the same command continues', file=sys.stderr)
            sys.exit(STOPPED)

    def reference(self, name, model, epochs=3, words=()):
        if (name, model, epochs) not in self.references:
            run = self.directory / 'reference'
            shutil.rmtree(run, ignore_errors=True)
            code, _, printed = finish(train(None, 1, dataset(self.directory, name), run, *self.recipe(model, epochs=epochs), *words))
            if code != 0:
                sys.exit(f'one process failed: {printed}')
            self.references[name, model, epochs] = bits(run)
        return self.references[name, model, epochs]

    def add(self, result):
        self.results.append(result)
        print(result, file=sys.stderr, flush=True)

    def bits(self):
        factors = [('papers', 'arxiv'), tuple(MODELS), RANKS, tuple(self.options.mpi), LINES]
        for name, model, ranks, mpi, line in itertools.islice(pairwise(factors, self.draw), self.options.runs):
            run = self.directory / 'run'
            shutil.rmtree(run, ignore_errors=True)
            code, _, printed = finish(train(mpi, ranks, dataset(self.directory, name), run, *self.recipe(model, line)))
            same = code == 0 and bits(run) == self.reference(name, model)
            self.add({'dataset': name, 'model': model, 'ranks': ranks, 'mpi': mpi, 'line': line, 'exit_code': code, 'same_bits': same,
                      **({} if code == 0 else {'said': printed[-600:]})})
        return {f'{len(self.results)} runs end with the bits of one process': all(result['same_bits'] for result in self.results)}

    def chain(self):
        data, model = dataset(self.directory, 'papers'), 'sage'
        expected, run = self.reference('papers', model, CHAIN_EPOCHS), self.directory / 'run'
        shutil.rmtree(run, ignore_errors=True)
        for ranks in (4, 1, 3, 8):
            mpi = self.draw.choice(self.options.mpi) if ranks > 1 else None
            child = train(mpi, ranks, data, run, *self.recipe(model, epochs=CHAIN_EPOCHS))
            if ranks != 8:
                metrics = run / 'metrics.jsonl'
                begun = metrics.stat().st_size if metrics.exists() else 0
                while child.poll() is None and not (metrics.exists() and metrics.stat().st_size > begun):
                    time.sleep(0.05)
                time.sleep(self.draw.uniform(0, 1))
                for pid in ranks_of(run)[:1]:
                    os.kill(pid, signal.SIGTERM)
            code, _, printed = finish(child)
            self.add({'ranks': ranks, 'mpi': mpi, 'exit_code': code, 'epochs': len(metrics.read_text().splitlines()),
                      **({} if code in (0, STOPPED) else {'said': printed[-600:]})})
        ends = [result['exit_code'] for result in self.results]
        return {'SIGTERM to one rank in mid-run ends all with 75': all(code == STOPPED for code in ends[:-1]),
                'a chain of 4, 1, 3 and 8 ranks ends with the bits of one process': ends[-1] == 0 and bits(run) == expected}

    def launch(self, draw, **environment):
        mpi, ranks = draw.choice(self.options.mpi), draw.choice((2, 3, 4, 8))
        launch = Launch(self.directory, mpi, ranks, dataset(self.directory, 'papers'), *self.recipe('gcn'), *KILL_WORDS, **environment)
        return launch, {'mpi': mpi, 'ranks': ranks}

    def kills(self):
        expected, run, scratch = self.reference('papers', 'gcn', words=KILL_WORDS), self.directory / 'run', self.directory / 'scratch'
        found = self.restore(launches=0, kills=[], ends=[], silent=[], shared=os.listdir('/dev/shm'))
        if not found['launches']:
            shutil.rmtree(run, ignore_errors=True)
        while len(found['kills']) < self.options.count:
            draw = random.Random(f'{self.options.seed} {found["launches"]}')
            aim = draw.choice(list(STAGES))
            if aim == 'staging':
                shutil.rmtree(scratch, ignore_errors=True)
            launch, facts = self.launch(draw)
            found['launches'] += 1
            stage = launch.reach(aim, draw.uniform(0, STAGES[aim]))
            if stage:
                if kill(draw.choice(ranks_of(run) or [launch.child.pid])):
                    took, ended = launch.end()
                    found['kills'].append({**facts, 'aim': aim, 'stage': stage, 'seconds': round(took, 2), 'launcher_ended': ended})
                    self.keep(found)
                    continue
            code = launch.child.wait()
            same = code == 0 and bits(run) == expected
            found['ends'].append({'kills': len(found['kills']), **facts, 'exit_code': code, 'same_bits': same, **({} if same else {'said': launch.printed.read_text()[-600:]})})
            shutil.rmtree(run, ignore_errors=True)
            self.keep(found)
        while len(found['silent']) < SILENT:
            draw = random.Random(f'{self.options.seed} silent {len(found["silent"])}')
            aim = list(STAGES)[1 + len(found['silent']) % (len(STAGES) - 1)]
            shutil.rmtree(run, ignore_errors=True)
            shutil.rmtree(scratch, ignore_errors=True)
            launch, facts = self.launch(draw, PLIMSOLL_RANKS_TIMEOUT=str(SILENT_SECONDS))
            if not launch.reach(aim, 0) or not ranks_of(run):
                launch.end()
                continue
            pid = draw.choice(ranks_of(run))
            rank = rank_of(pid)
            kill(pid, signal.SIGSTOP)
            took, ended = launch.end()
            printed = re.search(rf'(\w+): rank \d+ waited \d+ s for rank {rank} ', launch.printed.read_text())
            found['silent'].append({**facts, 'aim': aim, 'rank': rank, 'seconds': round(took, 2), 'launcher_ended': ended, 'said': printed and printed[0].strip(),
                                    'exit_code': launch.child.returncode})
            self.keep(found)
        self.results = found['silent']
        left = len([name for name in set(os.listdir('/dev/shm')) - set(found['shared']) if 'plimsoll' in name])
        hit = collections.Counter(kill['stage'] for kill in found['kills'])
        stayed = collections.Counter(kill['mpi'] for kill in found['kills'] if not kill['launcher_ended'])
        slowest = max(kill['seconds'] for kill in found['kills'])
        return {f'{len(found["kills"])} kills in {found["launches"]} launches, {len(found["ends"])} runs to their end, all with the bits of one process':
                bool(found['ends']) and all(end['same_bits'] for end in found['ends']),
                f'kills hit {", ".join(f"{stage} {count}" for stage, count in hit.most_common())}: every stage': set(STAGES) <= set(hit),
                f'no rank alive after {END_SECONDS} seconds; the slowest end took {slowest:.1f} s': slowest <= END_SECONDS, 'nothing of ours left in /dev/shm': left == 0,
                f'{len(found["silent"])} silent ranks: the message names rank and stage, and no rank is alive {END_SECONDS} seconds later':
                all(silent['said'] and silent['seconds'] <= SILENT_SECONDS + END_SECONDS for silent in found['silent']),
                f'not bounded: launchers that stayed when their ranks were gone: {dict(stayed) or "none"}': True}

    def many(self):
        data, expected = dataset(self.directory, 'papers64'), None
        words = ['--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 1024, '--epochs', 2, '--shares', 64, '--threads', 1]
        for ranks in (1, 8, 16, 32, 64):
            run = self.directory / 'run'
            shutil.rmtree(run, ignore_errors=True)
            began = time.monotonic()
            code, _, printed = finish(train(self.options.mpi[0] if ranks > 1 else None, ranks, data, run, *words))
            found = bits(run) if code == 0 else None
            expected = expected or found
            self.add({'ranks': ranks, 'exit_code': code, 'seconds': round(time.monotonic() - began, 1), 'same_bits': found == expected,
                      **({} if code == 0 else {'said': printed[-600:]})})
        return {'8, 16, 32 and 64 ranks end with the bits of one': all(result['same_bits'] for result in self.results)}

    def epochs_per_second(self, mpi, ranks, workload):
        """Of ranks that have two threads together, without the first epoch."""
        data, run = dataset(self.directory, 'papers10'), self.directory / 'run'
        shutil.rmtree(run, ignore_errors=True)
        child = train(mpi if ranks > 1 else None, ranks, data, run, *WORKLOADS[workload], '--epochs', 4 if workload == 'A' else 2, '--eval-every', 0, '--shares', 2,
                      '--threads', 3 - ranks, '--json')
        code, out, printed = finish(child)
        if code != 0:
            sys.exit(f'{ranks} ranks failed: {printed}')
        events = prooflib.events(out)
        return round(1 / statistics.median([event['seconds'] for event in events if event.get('event') == 'epoch'][1:]), 4)

    def compare(self, rates, least, workload, **facts):
        """Adds the result of turns; a sentence and whether it holds."""
        ratio = statistics.median(rates[2]) / statistics.median(rates[1])
        self.add({'workload': workload, **facts, 'epochs_per_s': {str(ranks): rates[ranks] for ranks in rates}, 'ratio': round(ratio, 3)})
        where, bound = f' at {facts["rate"]}' if 'rate' in facts else '', f'at least {least}' if least else 'not bounded'
        return f'{workload}{where}: two ranks of one thread have {ratio:.2f} times the speed of one of two, {bound}', ratio >= least

    def speed(self):
        claims = []
        for workload in WORKLOADS:
            turns = [(1 + turn % 2, self.epochs_per_second(self.options.mpi[0], 1 + turn % 2, workload)) for turn in range(2 * self.options.rounds)]
            claims.append(self.compare({ranks: [rate for one, rate in turns if one == ranks] for ranks in (1, 2)}, LEAST[workload], workload))
        return dict(claims)

    def limited(self, mpi, ranks, memory):
        """it/s of an epoch, and what the kernel saw of each rank in its own control group."""
        run, seen = self.directory / 'run', self.directory / 'seen'
        shutil.rmtree(run, ignore_errors=True)
        shutil.rmtree(seen, ignore_errors=True)
        seen.mkdir()
        each = ['sh', '-c', f'exec {prooflib.SOURCE}/tools/limited {memory} --json {seen.resolve()}/$$ -- "$@"', 'sh']
        child = subprocess.run(words_of(mpi, ranks, 'train', self.options.dataset, *WORKLOADS['A'], '--epochs', 4, '--eval-every', 0, '--shares', 2, '--run', run, '--json', before=each),
                               capture_output=True, text=True, check=False)
        events = prooflib.events(child.stdout)
        epochs = [event for event in events if event.get('event') == 'epoch']
        groups = [prooflib.last_json(path.read_text()) for path in seen.iterdir()]
        self.add({'ranks': ranks, 'memory': memory, 'code': child.returncode, 'epoch_seconds': [epoch['seconds'] for epoch in epochs],
                  'groups': [{name: group[name] for name in ('peak', 'oom_kill', 'failcnt', 'bytes_read', 'exit')} for group in groups],
                  'said': child.stderr[-500:] if child.returncode else ''})
        return child.returncode == 0 and bits(run)

    def full(self):
        if os.geteuid() != 0 or not shutil.which('tc'):
            prooflib.skip('network namespaces and control groups need root and iproute2')
        with Network(self.directory) as network:
            network.set_rate('10gbit')
            ends = {(ranks, memory): self.limited(network if ranks > 1 else None, ranks, memory) for ranks, memory in ((2, '2G'), (1, '2G'), (1, '4G'))}
        claims = {f'{ranks} rank(s), {memory} each: run to the end': bool(end) for (ranks, memory), end in ends.items()}
        killed = sum(group.get('oom_kill', 0) for result in self.results for group in result['groups'])
        return {**claims, 'none is killed': killed == 0, 'all have the same losses and weights': len({str(end) for end in ends.values()}) == 1}

    def network(self):
        if os.geteuid() != 0 or not shutil.which('tc'):
            prooflib.skip('network namespaces need root and iproute2')
        found = self.restore(links={})
        links = found['links']
        with Network(self.directory) as network:
            for rate, workload in itertools.product(RATES, WORKLOADS):
                links[rate] = links.get(rate) or network.set_rate(rate)
                turns = found.setdefault(f'{workload} {rate}', [])
                while len(turns) < 2 * self.options.rounds:
                    turns.append(self.epochs_per_second(network, 1 + len(turns) % 2, workload))
                    self.keep(found)
        return dict(self.compare({1: found[f'{workload} {rate}'][::2], 2: found[f'{workload} {rate}'][1::2]}, RATES[rate][workload], workload, rate=rate, link=links[rate])
                    for rate, workload in itertools.product(RATES, WORKLOADS))

    def trained(self, name, model):
        """A run of one epoch by one process."""
        run = self.directory / f'{name}-{model}'
        if not (run / 'best.safetensors').exists():
            shutil.rmtree(run, ignore_errors=True)
            code, _, printed = finish(train(None, 1, dataset(self.directory, name), run, *self.recipe(model, epochs=1)))
            if code != 0:
                sys.exit(f'one process failed: {printed}')
        return run

    def infer(self, run, what, mpi, ranks, line):
        """Exit code, what came of it, and the words."""
        verb, *words = INFERENCES[what]
        out = self.directory / 'out.npy'
        for path in self.directory.glob('out*.npy'):
            path.unlink()
        done = subprocess.run(words_of(mpi, ranks, verb, run, *words, '--threads', 1, '--json', *(['--out', out] if verb == 'predict' else []),
                                       *([] if line == 'none' else ['--memory', line])), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return done.returncode, None, done.stderr
        scores = prooflib.last_json(done.stdout)
        return 0, prooflib.file_digest(out) if verb == 'predict' else [scores[split] for split in ('train', 'valid', 'test')], done.stderr

    def exact(self):
        factors = [('papers', 'arxiv'), tuple(MODELS), (1, 2, 3), tuple(self.options.mpi), LINES, tuple(INFERENCES)]
        for name, model, ranks, mpi, line, what in itertools.islice(pairwise(factors, self.draw), self.options.runs):
            run = self.trained(name, model)
            if (name, model, what) not in self.references:
                self.references[name, model, what] = self.infer(run, what, None, 1, 'none')[1]
            code, found, printed = self.infer(run, what, mpi if ranks > 1 else None, ranks, line)
            same = code == 0 and found == self.references[name, model, what]
            self.add({'dataset': name, 'model': model, 'what': what, 'ranks': ranks, 'mpi': mpi, 'line': line, 'exit_code': code, 'same_bits': same,
                      **({} if code == 0 else {'said': printed[-600:]})})
        claims = {f'{len(self.results)} evaluations and predictions have the bits of one process': all(result['same_bits'] for result in self.results)}
        return {**claims, **self.exact_speed()} if self.options.rounds else claims

    def exact_speed(self):
        run, claims = self.trained('papers10', 'gcn'), {}
        words = ['evaluate', run, '--exact', '--split', 'all', '--threads', 1, '--json']
        for mpi in self.options.mpi:
            took, own, scores = {1: [], 2: []}, {1: [], 2: []}, set()
            for turn in range(2 * self.options.rounds):
                ranks = 1 + turn % 2
                began = time.monotonic()
                done = subprocess.run(words_of(mpi if ranks > 1 else None, ranks, *words), capture_output=True, text=True, check=True)
                took[ranks].append(round(time.monotonic() - began, 2))
                found = prooflib.last_json(done.stdout)
                own[ranks].append(round(found['seconds'], 2))
                scores.add(str([found[split] for split in ('train', 'valid', 'test')]))
            ratio = statistics.median(took[1]) / statistics.median(took[2])
            self.add({'mpi': mpi, 'seconds': took, 'seconds_of_the_job': own, 'ratio': round(ratio, 3), 'same_scores': len(scores) == 1})
            claims[f'{mpi}: an exact evaluation by two ranks of one thread has {ratio:.2f} times the speed of one, at least {LEAST["exact"]}'] = ratio >= LEAST['exact']
            claims[f'{mpi}: its scores are those of one'] = len(scores) == 1
        return claims


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('what', choices=('bits', 'chain', 'exact', 'kills', 'many', 'speed', 'network', 'full'))
    parser.add_argument('count', type=int, nargs='?', default=200)
    parser.add_argument('--runs', type=int, default=60)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=float('inf'))
    parser.add_argument('--mpi', type=lambda text: text.split(','), default=list(LAUNCHERS))
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--dir', type=pathlib.Path)
    parser.add_argument('--dataset', type=pathlib.Path)
    options = parser.parse_args()
    for mpi in options.mpi:
        if not shutil.which(LAUNCHERS[mpi][0]):
            prooflib.skip(f'there is no {LAUNCHERS[mpi][0]}: install {mpi}, or name others with --mpi')
    with tempfile.TemporaryDirectory() as temporary:
        directory = options.dir or pathlib.Path(temporary)
        directory.mkdir(exist_ok=True)
        proof = Proof(options, directory)
        claims = getattr(proof, options.what)()
    return 0 if prooflib.record(prooflib.result_path(options, f'ranks-{options.what}', True), claims, runs=proof.results) else 1
