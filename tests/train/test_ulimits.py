# labels: plain unprivileged
"""ulimit -v, -d, -n, -u, -s, -f at any value: a run is refused before its first step, with the remedy, or goes to its end."""
import os
import pathlib
import resource
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tools'))
import prooflib  # noqa: E402

MIB = 1 << 20
WISH = ['--model', 'sage', '--hidden', '16', '--fanout', '3,2', '--batch', '64', '--epochs', '1', '--checkpoint-every', '2', '--threads', '2',
        '--quiet']


@pytest.fixture(name='graph', scope='module')
def graph_of_60_mib(tmp_path_factory):
    path = tmp_path_factory.mktemp('graph') / 'graph'
    made = prooflib.call('generate', 'papers100M', path, '--scale', '0.002', '--quiet')
    assert made.returncode == 0, made.stderr
    return path


def train_under(graph, run, which, value, *more):
    return prooflib.call('train', graph, *WISH, *more, '--run', run, preexec_fn=lambda: resource.setrlimit(which, (value, value)))


def check(done, run, remedy):
    """True when it went to its end; else it was refused and nothing is left."""
    if done.returncode == 0:
        assert (run / 'last.safetensors').exists() and '"epoch":1,' in (run / 'metrics.jsonl').read_text()
        return True
    assert done.returncode in (1, 3) and remedy in done.stderr, done.stderr
    assert not run.exists()
    return False


@pytest.mark.parametrize('which, name, values', [(resource.RLIMIT_AS, 'ulimit -v', (60, 170, 220, 250, 290)),
                                                 (resource.RLIMIT_DATA, 'ulimit -d', (20, 75, 100, 125, 160))])
def test_what_is_mapped_counts(graph, tmp_path, which, name, values):
    """The graph does not fit under these, so that the plan takes all that it may."""
    ended = [check(train_under(graph, tmp_path / str(value), which, value * MIB), tmp_path / str(value), name) for value in values]
    assert not ended[0] and ended[-1], f'{name}: {ended}'  # between them it depends on what threads map at that moment


def test_few_open_files(graph, tmp_path):
    ended = [check(train_under(graph, tmp_path / str(n), resource.RLIMIT_NOFILE, n, '--memory', '128M'), tmp_path / str(n), 'ulimit -n')
             for n in (8, 30, *range(42, 56))]
    assert not ended[0] and ended[-1], ended  # between them it depends on what the threads hold open at that moment


@pytest.mark.parametrize('kib', [64, 128, 300])
def test_small_stacks(graph, tmp_path, kib):
    assert not check(train_under(graph, tmp_path / 'run', resource.RLIMIT_STACK, kib << 10), tmp_path / 'run', 'ulimit -s')


def test_file_size(graph, tmp_path):
    """ulimit -f is known beforehand; where it is not, the write fails and nobody is killed."""
    def limit(size):
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    run = tmp_path / 'run'
    assert not check(train_under(graph, run, resource.RLIMIT_FSIZE, 100000), run, 'ulimit -f')
    shape = ['generate', 'free', tmp_path / 'g', '--nodes', 2000, '--edges', 10000, '--classes', 2, '--features']
    done = prooflib.call(*shape, 1250, preexec_fn=limit(MIB))
    assert done.returncode == 3 and 'ulimit -f' in done.stderr, done.stderr
    done = prooflib.call(*shape, 2, preexec_fn=limit(15000))
    assert done.returncode == 3 and 'ulimit -f' in done.stderr, done.stderr
    assert check(train_under(graph, run, resource.RLIMIT_FSIZE, MIB), run, '')
    done = prooflib.call('predict', run, '--out', tmp_path / 'out.npy', '--quiet', preexec_fn=limit(10000))
    assert done.returncode == 3 and 'ulimit -f' in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ['run']


def test_crooked_file_size(tmp_path):
    """A limit that is no multiple of a page: direct I/O calls that an invalid argument, the user is told of the limit."""
    text = tmp_path / 'edges.csv'
    text.write_text(''.join(f'{i},{(i * 7 + 1) % 5000}\n' for i in range(5000)))
    done = prooflib.call('import', text, tmp_path / 'g', '--quiet',
                         preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (17001, 17001)))
    assert done.returncode == 6 and 'ulimit -f' in done.stderr, done.stderr
    assert os.listdir(tmp_path) == ['edges.csv']
