"""Where batches do not fit they are cut as planned: that is reported, kept with the run, and gone on with bit for bit."""
import json
import os
import re
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
CUT = re.compile(r'batches of 1024 come in parts of ([0-9]+) seeds?')


def train(*words):
    done = subprocess.run([PLIMSOLL, 'train', *map(str, words), '--threads', '2'], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def losses(run):
    return [json.loads(line)['loss'] for line in (run / 'metrics.jsonl').read_text().splitlines()]


def state(run):
    """Metrics and tensors; notes say on what they were computed."""
    last = (run / 'last.safetensors').read_bytes()
    return (run / 'metrics.jsonl').read_bytes(), last[8 + int.from_bytes(last[:8], 'little'):]


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'free', path, '--nodes', '30000', '--edges', '300000', '--features', '64', '--classes', '5',
                    '--memory', '256M', '--quiet'], check=True)
    return path


def new(data, run, epochs, memory):
    return train(data, '--run', run, '--fanout', '15,10', '--batch', '1024', '--hidden', '64', '--epochs', epochs, '--memory', memory)


@pytest.fixture(name='tight', scope='module')
def find_tight(data, tmp_path_factory):
    """A line under which batches are cut, to more than single seeds."""
    run = tmp_path_factory.mktemp('tight')
    for line in range(20, 120, 4):
        command = [PLIMSOLL, 'train', data, '--run', run / str(line), '--fanout', '15,10', '--batch', '1024', '--hidden', '64', '--epochs',
                   '1', '--eval-every', '0', '--threads', '2', '--memory', f'{line}M']
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 3 or CUT.search(done.stderr), done.stderr
        if done.returncode == 0 and int(CUT.search(done.stderr)[1]) > 7:
            return f'{line + 2}M'
    pytest.skip('no line is tight here')
    return None


def test_a_cut_run_goes_on_bit_for_bit(data, tight, tmp_path):
    printed = new(data, tmp_path / 'cut', 3, tight)
    assert int(CUT.search(printed)[1]) < 1024 and 'once more' not in printed
    assert not CUT.search(new(data, tmp_path / 'whole', 3, '1G'))
    for one, other in zip(losses(tmp_path / 'cut'), losses(tmp_path / 'whole')):
        assert one == pytest.approx(other, rel=1e-5)
    # A process takes a little more or less at each start, so under a line at an edge it may be cut otherwise.
    for path in (tmp_path / 'wider', tmp_path / 'wider-2', tmp_path / 'wider-3'):
        if CUT.search(new(data, path, 1, tight))[1] == CUT.search(printed)[1]:
            path.rename(tmp_path / 'wider')
            break
    printed = train('--resume', tmp_path / 'wider', '--epochs', 3, '--memory', '1G')
    assert 'may differ' not in printed
    assert state(tmp_path / 'wider') == state(tmp_path / 'cut')


def test_what_cannot_be_kept_is_reported(data, tight, tmp_path):
    assert 'may differ' not in new(data, tmp_path / 'run', 1, '1G')
    printed = train('--resume', tmp_path / 'run', '--epochs', 2, '--memory', tight)
    assert CUT.search(printed) and re.search(r'was computed 1024 seeds at a time, now it is [0-9]+: the last bits', printed)
    printed = train('--resume', tmp_path / 'run', '--epochs', 3, '--memory', '1G', '--microbatch', 7)
    assert 'seeds at a time, now it is 7' in printed
