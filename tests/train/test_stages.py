"""Stages and requeues: --init begins with weights, --run RUN --resume is the one command of a batch script."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

PLIMSOLL = os.environ['PLIMSOLL']
RECIPE = ('--hidden', 16, '--fanout', '4,3', '--batch', 64, '--threads', 2)


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def events(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def metrics(run):
    return [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]


def files(run):
    return {name: (run / name).read_bytes() for name in ('metrics.jsonl', 'last.safetensors')}


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'graph'
    call('generate', 'free', path, '--nodes', 3000, '--edges', 30000, '--features', 24, '--classes', 5, '--quiet')
    return path


def test_a_stage_begins_where_the_last_one_ended(data, tmp_path):
    call('train', data, '--run', tmp_path / 'first', *RECIPE, '--epochs', 8, '--quiet')
    trained = metrics(tmp_path / 'first')
    # A rate of 0 keeps the weights: the scores are those of the file.
    call('train', data, '--run', tmp_path / 'kept', *RECIPE, '--init', tmp_path / 'first' / 'last.safetensors', '--lr', 0, '--epochs', 1, '--quiet')
    assert metrics(tmp_path / 'kept')[0]['valid'] == trained[-1]['valid']
    call('train', data, '--run', tmp_path / 'second', *RECIPE, '--init', tmp_path / 'first' / 'best.safetensors', '--lr', 0.001,
         '--dropout', 0.2, '--optimizer', 'sgd', '--epochs', 1, '--quiet')
    assert metrics(tmp_path / 'second')[0]['loss'] < trained[0]['loss']
    about = json.loads((tmp_path / 'second' / 'run.json').read_text())
    assert about['init'] == str(tmp_path / 'first' / 'best.safetensors')


def test_a_stage_continues_without_its_file(data, tmp_path):
    first = tmp_path / 'first' / 'last.safetensors'
    call('train', data, '--run', tmp_path / 'first', *RECIPE, '--epochs', 2, '--quiet')
    words = ('train', data, *RECIPE, '--init', first, '--quiet', '--epochs')
    call(*words, 4, '--run', tmp_path / 'straight')
    call(*words, 2, '--run', tmp_path / 'run')
    call('train', '--resume', tmp_path / 'run', '--epochs', 3, '--init', tmp_path / 'straight' / 'last.safetensors', code=2)
    shutil.copy(first, tmp_path / 'kept')
    first.unlink()
    call('train', '--resume', tmp_path / 'run', '--epochs', 4, '--quiet')
    assert files(tmp_path / 'run') == files(tmp_path / 'straight')
    (tmp_path / 'run' / 'last.safetensors').unlink()  # as if killed before it was first saved
    call('train', '--resume', tmp_path / 'run', '--quiet', code=2)
    shutil.copy(tmp_path / 'kept', first)
    call('train', '--resume', tmp_path / 'run', '--quiet')
    assert files(tmp_path / 'run') == files(tmp_path / 'straight')


def test_weights_of_another_shape_are_refused(data, tmp_path):
    call('train', data, '--run', tmp_path / 'first', *RECIPE, '--epochs', 1, '--quiet')
    first = tmp_path / 'first' / 'last.safetensors'
    printed = call('train', data, '--run', tmp_path / 'run', *RECIPE, '--hidden', 32, '--init', first, '--quiet', code=4)
    assert 'convs.0' in printed.stderr
    call('train', data, '--run', tmp_path / 'run', *RECIPE, '--model', 'sage', '--init', first, '--quiet', code=4)
    call('train', data, '--run', tmp_path / 'run', *RECIPE, '--init', tmp_path / 'missing', '--quiet', code=2)
    assert not (tmp_path / 'run').exists()


def test_tensors_that_the_model_lacks_are_named(data, tmp_path):
    call('train', data, '--run', tmp_path / 'first', *RECIPE, '--norm', 'layer', '--epochs', 1, '--quiet')
    weights = tmp_path / 'first' / 'last.safetensors'
    printed = call('train', data, '--run', tmp_path / 'second', *RECIPE, '--init', weights, '--epochs', 1, '--quiet').stderr
    assert 'norms.0' in printed and 'optimizer' not in printed
    assert 'norms.0' not in call('evaluate', tmp_path / 'first', '--weights', weights, '--quiet').stderr


@pytest.mark.parametrize('by_hand', [False, True])
def test_a_state_dict_of_pyg(data, tmp_path, by_hand):
    torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
    geometric = pytest.importorskip('torch_geometric', reason='torch_geometric is not installed (tools/bootstrap installs it)')
    safetensors = pytest.importorskip('safetensors.torch', reason='safetensors is not installed (tools/bootstrap installs it)')
    torch.manual_seed(1)
    arrays = im.arrays(data)
    model = geometric.nn.GraphSAGE(24, 16, 2, 5).eval()
    state = dict(model.state_dict())
    if by_hand:
        state = {name.replace('convs.0', 'conv1').replace('convs.1', 'conv2'): value for name, value in state.items()}
    safetensors.save_file(state, tmp_path / 'pyg.safetensors')
    call('train', data, '--run', tmp_path / 'run', *RECIPE, '--model', 'sage', '--init', tmp_path / 'pyg.safetensors', '--lr', 0,
         '--epochs', 1, '--eval-fanout=-1,-1', '--quiet')
    degrees = np.diff(arrays['indptr'])
    edges = np.stack([arrays['indices'].astype(np.int64), np.repeat(np.arange(len(degrees)), degrees)])
    with torch.no_grad():
        theirs = model(torch.from_numpy(arrays['features'].astype(np.float32)), torch.from_numpy(edges)).numpy().argmax(1)
    right = (theirs == arrays['labels'])[arrays['valid']].mean()
    assert abs(metrics(tmp_path / 'run')[0]['valid'] - right) <= 0.005


def script(data, run, *words):
    return ('train', data, *RECIPE, '--epochs', 6, '--run', run, '--resume', *words)


def test_one_command_begins_continues_and_is_done(data, tmp_path):
    call('train', data, *RECIPE, '--epochs', 6, '--run', tmp_path / 'straight', '--checkpoint-every', 2, '--quiet')
    run = tmp_path / 'deep' / 'run'
    first = subprocess.Popen([PLIMSOLL, *map(str, script(data, run, '--checkpoint-every', 2))], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    first.stdout.readline()
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=1500)
    assert first.returncode in (75, 0)  # 0: it was faster than the signal
    last = call(*script(data, run, '--checkpoint-every', 2), '--json').stdout.splitlines()[-1]
    assert files(run) == files(tmp_path / 'straight')
    before = {path.name: path.stat().st_mtime_ns for path in run.iterdir()}
    time.sleep(0.01)
    again = call(*script(data, run), '--json')
    assert {path.name: path.stat().st_mtime_ns for path in run.iterdir()} == before
    assert 'nothing to do' in again.stderr
    end, wanted = events(again)[-1], json.loads(last)
    assert all(end[key] == wanted[key] for key in ('epochs', 'best_epoch', 'train', 'valid', 'test', 'sampled', 'early'))
    assert 'Best epoch' in call(*script(data, run)).stdout
    call('train', data, *RECIPE, '--epochs', 8, '--run', run, '--resume', '--quiet')  # a larger total trains on
    assert [line['epoch'] for line in metrics(run)] == list(range(1, 9))


def test_the_one_command_after_a_kill_without_a_checkpoint(data, tmp_path):
    call('train', data, *RECIPE, '--epochs', 6, '--run', tmp_path / 'straight', '--quiet')
    call(*script(data, tmp_path / 'run'), '--quiet')
    (tmp_path / 'run' / 'last.safetensors').unlink()
    call(*script(data, tmp_path / 'run'), '--quiet')
    assert files(tmp_path / 'run') == files(tmp_path / 'straight')


def test_one_number_of_neighbours_for_all_layers(data, tmp_path):
    words = ('train', data, '--hidden', 8, '--num_layers', 3, '--fan_out', 4, '--batch', 64, '--epochs', 2, '--run', tmp_path / 'run', '--resume')
    call(*words, '--quiet')
    before = files(tmp_path / 'run')
    call(*words, '--quiet')
    assert files(tmp_path / 'run') == before
    assert json.loads((tmp_path / 'run' / 'run.json').read_text())['settings']['fanout'] == [4, 4, 4]


def test_a_finished_run_is_not_taken_for_another(data, tmp_path):
    call(*script(data, tmp_path / 'run'), '--quiet')
    for words in (('--lr', 0.5), ('--hidden', 32), ('--fanout', '5,5')):
        call(*script(data, tmp_path / 'run', *words), code=2)
    call('generate', 'free', tmp_path / 'other', '--nodes', 2000, '--edges', 9000, '--features', 24, '--classes', 5, '--quiet')
    call(*script(tmp_path / 'other', tmp_path / 'run'), code=2)
    call(*script(data, tmp_path / 'run', '--epochs', 3), '--quiet')  # it has more already


def test_the_one_command_ends_with_patience_once(data, tmp_path):
    words = ('train', data, *RECIPE, '--lr', 0, '--epochs', 50, '--patience', 2, '--run', tmp_path / 'run', '--resume', '--json')
    assert events(call(*words))[-1]['early']
    again = call(*words)
    assert 'nothing to do' in again.stderr and events(again)[-1]['early']
    assert len(metrics(tmp_path / 'run')) == 3


def test_what_is_meant_must_be_clear(data, tmp_path):
    call('train', data, *RECIPE, '--resume', code=2)
    call(*script(data, tmp_path / 'run'), '--epochs', '+2', code=2)
    assert not (tmp_path / 'run').exists()
    call(*script(data, tmp_path / 'run'), '--quiet')
    printed = call(*script(data, tmp_path / 'run'), '--epochs', 8, '--lr', 0.5, code=2)
    assert '--lr' in printed.stdout + printed.stderr
