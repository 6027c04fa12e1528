# labels: plain long
"""Training by the ranks that mpirun starts, for each MPI that is installed: one run, one output, the bits of one rank, one end."""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import time

import pytest

PLIMSOLL = pathlib.Path(os.environ['PLIMSOLL'])
ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
MPIS = {'openmpi': ['mpirun.openmpi', '--oversubscribe'], 'mpich': ['mpirun.mpich']}
SETTINGS = ['--model', 'sage', '--hidden', 16, '--fanout', '4,3', '--batch', 100, '--shares', 5, '--dropout', 0.2, '--threads', 1]


def run(command, *words, code=0):
    done = subprocess.run([*command, PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=300, env={**os.environ, **ROOT})
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('ranks') / 'graph'
    run([], 'generate', 'free', path, '--nodes', 3000, '--edges', 24000, '--features', 24, '--classes', 5)
    return path


@pytest.fixture(scope='module')
def alone(graph):
    run([], 'train', graph, *SETTINGS, '--epochs', 4, '--run', graph.parent / 'alone')
    return graph.parent / 'alone'


@pytest.fixture(scope='module')
def odd(graph):
    """Its batches divide no split."""
    run([], 'train', graph, *[107 if word == 100 else word for word in SETTINGS], '--epochs', 1, '--run', graph.parent / 'odd')
    return graph.parent / 'odd'


@pytest.fixture(name='mpi', params=sorted(MPIS))
def installed_mpi(request):
    command = MPIS[request.param]
    if shutil.which(command[0]) is None or not (PLIMSOLL.parent / f'plimsoll-{request.param}.so').exists():
        pytest.skip(f'{command[0]} or its plugin is not here')
    return lambda ranks: [*command, '-n', str(ranks)]


def same(one, other):
    def tensors(path):
        data = (path / 'last.safetensors').read_bytes()
        return data[8 + struct.unpack('<Q', data[:8])[0]:]

    assert (one / 'metrics.jsonl').read_text() == (other / 'metrics.jsonl').read_text()
    assert tensors(one) == tensors(other)


@pytest.mark.parametrize('ranks', [2, 3])
def test_the_bits_of_one_rank(mpi, graph, alone, tmp_path, ranks):
    done = run(mpi(ranks), 'train', graph, *SETTINGS, '--epochs', 4, '--run', tmp_path / 'a')
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith('Epoch')] == ['001', '002', '003', '004']
    assert done.stderr.count('plan: peak') == 1 and done.stderr.count('in 5 shares') == 1
    same(alone, tmp_path / 'a')


def test_ranks_divide_the_cores_that_they_share(mpi, graph, tmp_path):
    """Open MPI binds ranks to cores of their own, MPICH does not; --threads is each rank's, and is reported when it is cut."""
    cores = len(os.sched_getaffinity(0))
    words = ['train', graph, *(word for word in SETTINGS if word not in ('--threads', 1)), '--epochs', 1, '--run']
    printed = run(mpi(2), *words, tmp_path / 'a').stderr
    threads, source = re.search(r'; (\d+) threads? from (.*)', printed).groups()
    if 'a part of 2' in source:
        assert int(threads) == max(1, cores // 2)
    else:
        assert 'openmpi' in mpi(2)[0]
    assert ('1 thread from' in printed) == (threads == '1') and '1 threads' not in printed
    printed = run([], *words, tmp_path / 'b', '--threads', cores + 5).stderr
    assert f'--threads {cores + 5} is above another limit: {cores} thread' in printed


def test_mpi_memory_is_measured_and_planned(mpi, graph, tmp_path):
    """In plan under mpirun, and in train: beside the nominal process, and not in a plan of one rank."""
    words = [graph, *(word for word in SETTINGS if word not in ('--shares', 5))]
    made = json.loads(run(mpi(3), 'plan', *words, '--json').stdout)
    assert made['ranks']['count'] == 3 and made['ranks']['mpi_measured'] and 2 << 20 < made['ranks']['mpi_bytes'] < 1 << 30
    done = run(mpi(3), 'train', *words, '--epochs', 1, '--run', tmp_path / 'a', '--json')
    trained = next(event for line in done.stdout.splitlines() if (event := json.loads(line)).get('event') == 'plan')

    def process(plan):
        return next(account['bytes'] for account in plan['accounts'] if account['name'] == 'process')

    assert process(made) == pytest.approx(process(trained), abs=1 << 20)
    assert process(made) > process(json.loads(run([], 'plan', *words, '--json').stdout))


def test_a_minimum_with_measured_memory_is_accepted(mpi, graph, tmp_path):
    """MPI's memory differs from start to start by pages, and a plan counts it in steps: another step names another minimum."""
    words = [graph, '--model', 'sage', '--hidden', 64, '--fanout', '10,10', '--batch', 1024, '--shares', 2, '--threads', 1]
    memory = 9
    for _ in range(4):
        done = subprocess.run([*mpi(2), PLIMSOLL, 'plan', *map(str, words), '--memory', f'{memory}M', '--json'], check=False,
                              capture_output=True, text=True, timeout=300, env={**os.environ, **ROOT})
        found = json.loads(done.stdout)
        if found['fits']:
            break
        memory = int(re.search(r'--memory (?:to )?(\d+)M', found['error']).group(1))
    assert found['fits'] and found['ranks']['mpi_measured'] and memory > 9
    run(mpi(2), 'train', *words, '--memory', f'{memory + 9}M', '--epochs', 1, '--run', tmp_path / 'a')


def test_bars_are_those_of_all_ranks(mpi, graph, tmp_path):
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip('two ranks of one thread need two cores')
    words = [graph, *SETTINGS[:-2]]
    one, both = (run(command, 'train', *words, '--threads', 1, '--epochs', 1, '--run', tmp_path / name).stderr
                 for command, name in (([], 'one'), (mpi(2), 'both')))
    bars = [dict(re.findall(r'^(\w+ eval): +100%.* (\d+/\d+) ', text, re.M)) for text in (one, both)]
    assert bars[0] == bars[1] and len(bars[0]) == 3


def test_shares_are_as_many_as_ranks(mpi, graph, tmp_path):
    words = [word for word in SETTINGS if word not in ('--shares', 5)]
    run(mpi(3), 'train', graph, *words, '--epochs', 1, '--run', tmp_path / 'a', '--quiet')
    assert json.loads((tmp_path / 'a' / 'run.json').read_text())['settings']['shares'] == 3
    run(mpi(2), 'train', '--resume', tmp_path / 'a', '--epochs', 2, '--quiet')
    timeline = [json.loads(line) for line in (tmp_path / 'a' / 'timeline.jsonl').read_text().splitlines()]
    assert [line['ranks'] for line in timeline if line.get('kind') == 'plan'] == [3, 2]
    run([], 'report', tmp_path / 'a', '--out', tmp_path / 'a.html')
    assert re.search(r'>ranks of each start</th><td[^>]*>3, 2</td>', (tmp_path / 'a.html').read_text())
    done = run(mpi(4), 'train', '--resume', tmp_path / 'a', '--epochs', 3, '--quiet', code=2)
    assert done.stderr.count('4 ranks, but batches have 3 shares') == 1
    printed = run(mpi(2), 'train', graph, *words, '--norm', 'batch', '--run', tmp_path / 'b', '--quiet', code=2).stderr
    assert printed.count('batch norm') == 1 and not (tmp_path / 'b').exists()


@pytest.mark.parametrize('silent', [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_a_silent_rank_is_named(mpi, graph, tmp_path, silent):
    place = tmp_path / 'a'
    command = [*mpi(3), PLIMSOLL, 'train', graph, *SETTINGS, '--epochs', 100000, '--run', place, '--quiet', '--eval-every', 0]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True,
                          env={**os.environ, **ROOT, 'PLIMSOLL_RANKS_TIMEOUT': '10'}) as process:
        while not (place / 'metrics.jsonl').exists() or (place / 'metrics.jsonl').read_text().count('\n') < 3:
            assert process.poll() is None
            time.sleep(0.02)
        pattern = ['pgrep', '-f', f'^{PLIMSOLL} train {graph} .*{place}']
        found = {}
        for pid in subprocess.run(pattern, capture_output=True, text=True, check=True).stdout.split():
            variables = pathlib.Path(f'/proc/{pid}/environ').read_text().split('\0')
            found[next(int(word.split('=')[1]) for word in variables if word.startswith(('OMPI_COMM_WORLD_RANK=', 'PMI_RANK=')))] = int(pid)
        os.kill(found[silent], signal.SIGSTOP)
        printed = process.communicate(timeout=300)[1]
    assert process.returncode != 0
    assert f'waited 10 s for rank {silent}' in printed
    assert subprocess.run(pattern, capture_output=True, check=False).returncode == 1


def test_all_ranks_compute_with_the_lowest_instruction_set(graph, tmp_path):
    if shutil.which('mpirun.openmpi') is None or not (PLIMSOLL.parent / 'plimsoll-openmpi.so').exists():
        pytest.skip('mpirun.openmpi or its plugin is not here')
    words = ['train', graph, *SETTINGS, '--epochs', 2, '--run']
    older = ['-x', 'ONEDNN_MAX_CPU_ISA=SSE41', PLIMSOLL]
    run([*MPIS['openmpi'], '-n', '1', *map(str, [*older, *words, tmp_path / 'a']), ':', '-n', '1'], *words, tmp_path / 'a')
    run(['env', 'ONEDNN_MAX_CPU_ISA=SSE41'], *words, tmp_path / 'b')
    same(tmp_path / 'a', tmp_path / 'b')
    # The run keeps it: resumed with more, it says how the bits are kept.
    assert json.loads((tmp_path / 'a' / 'run.json').read_text())['machine']['vectors'] == 'sse4_1'
    printed = run([], 'train', '--resume', tmp_path / 'a', '--epochs', 3).stderr
    assert 'set ONEDNN_MAX_CPU_ISA=SSE41' in printed


def test_ranks_that_are_alone_say_why(graph, tmp_path):
    for variables, named in (({'SLURM_STEP_NUM_TASKS': '2', 'SLURM_PROCID': '0'}, '--mpi=pmix'),
                             ({'PMI_SIZE': '2', 'PMI_RANK': '0', 'PLIMSOLL_MPI': '/nowhere.so'}, '/nowhere.so'),
                             ({'PMI_SIZE': '2', 'PMI_RANK': '0', 'PLIMSOLL_MPI': str(PLIMSOLL.parent / 'libplimsoll.so')}, 'no plugin')):
        done = subprocess.run([PLIMSOLL, 'train', graph, '--run', tmp_path / 'a'], check=False, capture_output=True, text=True,
                              env={**os.environ, **variables})
        assert done.returncode == 2 and named in done.stderr, done.stderr
        assert not (tmp_path / 'a').exists()


def test_a_signal_to_one_rank_stops_all(mpi, graph, alone, tmp_path):
    place = tmp_path / 'a'
    command = [*mpi(2), PLIMSOLL, 'train', graph, *SETTINGS, '--epochs', 4000, '--run', place, '--quiet', '--eval-every', 0]
    with subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ROOT}) as process:
        while not (place / 'metrics.jsonl').exists() or (place / 'metrics.jsonl').read_text().count('\n') < 3:
            assert process.poll() is None
            time.sleep(0.02)
        found = subprocess.run(['pgrep', '-f', f'^{PLIMSOLL} train {graph} .*{place}'], capture_output=True, text=True, check=True).stdout.split()
        assert len(found) == 2
        os.kill(int(found[1]), signal.SIGTERM)
        _, printed = process.communicate(timeout=300)
    assert process.returncode == 75, printed
    assert printed.count('Continue with') == 1
    done = (place / 'metrics.jsonl').read_text().count('\n') + 2
    run([], 'train', '--resume', place, '--epochs', done, '--quiet')
    run(mpi(3), 'train', graph, *SETTINGS, '--epochs', done, '--run', tmp_path / 'b', '--quiet', '--eval-every', 0)
    same(place, tmp_path / 'b')


@pytest.mark.parametrize('how', ['exact', 'sampled'])
def test_evaluate_and_predict(mpi, odd, tmp_path, how):
    """One output, with the scores and the bytes of one rank; nothing stays beside the run."""
    before = sorted(path.name for path in odd.iterdir())
    words = ['evaluate', odd, '--split', 'all', '--threads', 1, '--json', *(['--exact'] if how == 'exact' else [])]
    expected, *found = (json.loads(run(command, *words).stdout) for command in ([], mpi(2), mpi(3)))
    assert all(one[split] == expected[split] for split in ('train', 'valid', 'test') for one in found)
    for name, command in (('one', []), ('two', mpi(2))):
        done = run(command, 'predict', odd, '--out', tmp_path / f'{name}.npy', '--threads', 1, *(['--sampled'] if how == 'sampled' else []))
        assert done.stdout.count('logits of test') == 1 and done.stderr.count('memory line') == 1
    assert (tmp_path / 'one.npy').read_bytes() == (tmp_path / 'two.npy').read_bytes()
    printed = run(mpi(2), 'predict', odd, '--out', tmp_path / 'three.txt', '--threads', 1, code=2).stderr
    assert printed.count('three.txt') == 1
    printed = run(mpi(2), 'predict', odd, '--out', tmp_path / 'missing' / 'four.npy', '--threads', 1, code=1).stderr
    assert printed.count('rank 0: ') <= 1
    assert sorted(path.name for path in odd.iterdir()) == before


@pytest.mark.parametrize('option, value', [('--lr', 0.5), *(pytest.param(*words, marks=pytest.mark.nightly) for words in (('--run', 'other'), ('dataset', None)))])
def test_other_words_of_one_rank(mpi, graph, tmp_path, option, value):
    """All end with exit code 2 and one error that names rank and option, before anything is written."""
    if option == 'dataset':
        run([], 'generate', 'free', tmp_path / 'small', '--nodes', 300, '--edges', 2400, '--features', 24, '--classes', 5)
    before = sorted(tmp_path.iterdir())
    words = ['train', graph, *SETTINGS, '--epochs', 2, '--run', tmp_path / 'a']
    others = ['train', tmp_path / 'small', *words[2:]] if option == 'dataset' else [*words, option, value]
    printed = run([*map(str, [*mpi(2), PLIMSOLL, *words, ':', '-n', 1])], *others, code=2).stderr
    assert len(re.findall(rf'rank 2\b.*{option.strip("-")}', printed)) == 1, printed
    assert sorted(tmp_path.iterdir()) == before


def test_other_words_of_an_evaluation(mpi, odd, alone):
    words = ['evaluate', odd, '--exact', '--json']
    for option, others in (('--split', [*words, '--split', 'test']), ('--exact', [word for word in words if word != '--exact']), ('run', ['evaluate', alone, *words[2:]])):
        printed = run([*map(str, [*mpi(1), PLIMSOLL, *words, ':', '-n', 1])], *others, code=2).stderr
        assert len(re.findall(rf'rank 1\b.*{option}', printed)) == 1, printed


def as_rank(rank, *words, code=0):
    """The command as a launcher of two ranks starts it."""
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=300,
                          env={**os.environ, 'OMPI_COMM_WORLD_SIZE': '2', 'OMPI_COMM_WORLD_RANK': str(rank)})
    assert done.returncode == code, done.stderr
    return done


def test_what_is_not_divided(tmp_path):
    """The first rank does it and says so, the others end at once."""
    assert not as_rank(1, 'generate', 'arxiv', tmp_path / 'graph', '--scale', 0.01).stderr
    assert not (tmp_path / 'graph').exists()
    assert 'warning' in as_rank(0, 'generate', 'arxiv', tmp_path / 'graph', '--scale', 0.01).stderr
    assert (tmp_path / 'graph').exists()


def test_wrong_words_are_reported_once(graph):
    assert as_rank(0, 'train', graph, '--hiden', 16, code=2).stderr
    assert not as_rank(1, 'train', graph, '--hiden', 16, code=2).stderr


def test_exact_evaluation_with_unequal_lines(mpi, tmp_path):
    """More nodes than the buffers of the smaller rank have bits."""
    run([], 'generate', 'free', tmp_path / 'large', '--nodes', 700000, '--edges', 700000, '--features', 4, '--classes', 3)
    run([], 'train', tmp_path / 'large', '--model', 'gcn', '--hidden', 4, '--fanout', '1', '--batch', 10000, '--epochs', 1, '--eval-every', 0, '--run', tmp_path / 'run')
    words = ['evaluate', tmp_path / 'run', '--exact', '--split', 'test', '--json']
    alone = json.loads(run([], *words).stdout.splitlines()[-1])
    both = json.loads(run(mpi(1), *words, ':', '-n', 1, PLIMSOLL, *words, '--memory', '80M').stdout.splitlines()[-1])
    assert both['test'] == alone['test']
