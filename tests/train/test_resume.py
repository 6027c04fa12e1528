"""A run that was killed, stopped or made longer ends as one that was not; tools/prove resume says what is checked."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'
FILES = ('last.safetensors', 'best.safetensors', 'metrics.jsonl')


def train(*words):
    return [PLIMSOLL, 'train', *map(str, words), '--memory', '256M', '--threads', '2', '--json']


def new(data, run, epochs, *words):
    return train(data, '--run', run, '--model', 'sage', '--fanout', '5,3', '--hidden', '32', '--batch', '64', '--dropout', '0.5',
                 '--epochs', epochs, '--checkpoint-minutes', '0', *words)


def finish(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def files(run):
    return {name: (run / name).read_bytes() for name in FILES}


def start(command, run):
    """The command, once it has trained for some steps. It gets no further than the few lines that nobody has read yet."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=4096)
    while not (run / 'last.safetensors').exists():
        assert process.stdout.readline(), process.stderr.read()
    return process


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'papers100M', path, '--scale', '0.001', '--memory', '256M', '--quiet'], check=True)
    return path


@pytest.fixture(name='whole', scope='module')
def make_whole(data, tmp_path_factory):
    """The files of a run of 25 epochs that nobody disturbed."""
    run = tmp_path_factory.mktemp('whole') / 'run'
    finish(new(data, run, 25))
    return files(run)


def test_ten_kills_and_three_stops(tmp_path):
    done = subprocess.run([sys.executable, TOOLS / 'prove', 'resume', '10', '--stops', '3', '--dir', tmp_path], capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_and_ends_with_75(data, whole, tmp_path, number):
    process = start(new(data, tmp_path / 'run', 25, '--checkpoint-every', 5), tmp_path / 'run')
    process.send_signal(number)
    printed, _ = process.communicate(timeout=1500)
    assert process.returncode == 75
    assert json.loads(printed.splitlines()[-1])['status'] == 'stopped'
    assert len((tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()) < 25
    finish(train('--resume', tmp_path / 'run', '--checkpoint-every', 0))
    assert files(tmp_path / 'run') == whole


def test_a_longer_run_is_one_that_was_long_from_the_start(data, whole, tmp_path):
    finish(new(data, tmp_path / 'run', 7))
    finish(train('--resume', tmp_path / 'run', '--epochs', '+18'))
    assert files(tmp_path / 'run') == whole


def test_a_second_job_is_kept_out(data, tmp_path):
    process = start(new(data, tmp_path / 'run', 1000, '--checkpoint-every', 5), tmp_path / 'run')
    second = subprocess.run(train('--resume', tmp_path / 'run'), capture_output=True, text=True, check=False)
    process.kill()
    process.communicate()
    assert second.returncode == 2
    assert f'another process is training this run: process {process.pid} on' in second.stdout + second.stderr


def test_what_decides_the_result_is_refused(data, tmp_path):
    finish(new(data, tmp_path / 'run', 2))
    before = files(tmp_path / 'run')
    other = subprocess.run(train('--resume', tmp_path / 'run', '--epochs', '+1', '--lr', '0.5'), capture_output=True, text=True,
                           check=False)
    assert other.returncode == 2
    assert '--lr is 0.01 in the run but 0.5 now' in other.stdout + other.stderr
    assert files(tmp_path / 'run') == before


def test_a_resume_keeps_the_options_of_the_start(data, tmp_path):
    """--memory, --threads, --io, --row-cache and --scratch; given again they change, for the next time too; --memory max is no limit."""
    run, scratch = tmp_path / 'run', tmp_path / 'scratch'
    scratch.mkdir()

    def end(*words):
        done = finish([PLIMSOLL, 'train', *map(str, words), '--epochs', '+1' if '--resume' in words else '1', '--json'])
        printed = json.loads(done.stdout.splitlines()[-1])
        return printed['line_bytes'] >> 20, done.stderr

    assert end(data, '--run', run, '--fanout', '5,3', '--hidden', '8', '--memory', '90M', '--threads', '1', '--io', 'threads', '--row-cache', '1M',
               '--scratch', scratch)[0] == 90
    line, printed = end('--resume', run)
    assert line == 90 and '1 thread from --threads' in printed
    for words in '--memory 90', '--threads 1', '--io threads', '--row-cache 1', f'--scratch {scratch}':
        assert words in printed, printed
    assert end('--resume', run, '--memory', '120M', '--threads', '2')[0] == 120
    line, printed = end('--resume', run)
    assert line == 120 and '2 threads' in printed
    assert end('--resume', run, '--memory', 'max')[0] > 120
    scratch.rename(tmp_path / 'moved')  # on another node
    line, printed = end('--resume', run)
    assert line > 120 and 'scratch' in printed
    assert end(data, '--run', tmp_path / 'other', '--memory', 'max')[0] > 120  # the default, by its name


def test_a_smaller_limit_decides(data, tmp_path):
    """A run of 900M that continues under a ulimit of less."""
    run = tmp_path / 'run'
    finish([PLIMSOLL, 'train', data, '--run', run, '--fanout', '5,3', '--hidden', '8', '--memory', '900M', '--epochs', '1', '--quiet'])
    done = subprocess.run(['bash', '-c', f'ulimit -v 800000; {PLIMSOLL} train --resume {run} --epochs +1 --json'], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])['line_bytes'] < 800 << 20
