"""Scores that show learning: their own fan-out, exact ones, chosen splits, the same draws after every epoch, all splits at the end."""
import json
import os
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
RECIPE = ('--hidden', 16, '--fanout', '3,2', '--batch', 64, '--dropout', 0.3, '--seed', 5, '--threads', 2)


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def train(data, run, *words):
    """The events of a training."""
    printed = call('train', data, '--run', run, *RECIPE, *words, '--json', '--quiet').stdout
    return [json.loads(line) for line in printed.splitlines()]


def epochs(events):
    return [event for event in events if event['event'] == 'epoch']


def metrics(run):
    return [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]


def tensors(run, name='last.safetensors'):
    data = (run / name).read_bytes()
    return data[8 + int.from_bytes(data[:8], 'little'):]


def exact(run, weights):
    """Score and loss of the validation split, by `evaluate --exact`."""
    printed = call('evaluate', run, '--exact', '--split', 'valid', '--weights', run / weights, '--json', '--quiet').stdout
    return json.loads(printed.splitlines()[-1])['valid']


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'graph'
    call('generate', 'free', path, '--nodes', 3000, '--edges', 40000, '--features', 32, '--classes', 5, '--quiet')
    return path


def test_draws_are_the_same_after_every_epoch(data, tmp_path):
    """Without a learning rate the weights stay, and so do scores."""
    lines = epochs(train(data, tmp_path / 'run', '--lr', 0, '--epochs', 4, '--eval-train'))
    assert len({(line['train'], line['valid'], line['test'], line['valid_loss']) for line in lines}) == 1
    assert all(line['sampled'] and 0 <= line['evaluation_seconds'] <= line['seconds'] for line in lines)


@pytest.mark.parametrize('words', [('--eval-every', 2), ('--eval-exact', 2)])
def test_every_evaluation_has_its_time(data, tmp_path, words):
    evaluated = [line for line in epochs(train(data, tmp_path / 'run', '--epochs', 5, *words)) if 'valid' in line]
    lines = [json.loads(line) for line in (tmp_path / 'run' / 'timeline.jsonl').read_text().splitlines()]
    timed = [line for line in lines if line.get('evaluation_s', 0) > 0]
    assert [(line['epoch'], line['step']) for line in timed] == [(line['epoch'] + 1, 0) for line in evaluated] == [(3, 0), (5, 0)]
    for line, event in zip(timed, evaluated):
        assert line['evaluation_s'] == pytest.approx(event['evaluation_seconds'], abs=2e-4)
        assert line['evaluation_s'] <= line['seconds'] + 1e-3


@pytest.mark.parametrize('model', ['gcn', 'sage', 'gat'])
def test_all_neighbours_are_exact_scores(data, tmp_path, model):
    plain = train(data, tmp_path / 'plain', '--model', model, '--epochs', 4)
    for name, words in (('fanout', ('--eval-fanout=-1,-1',)), ('exact', ('--eval-exact', 2))):
        run = tmp_path / name
        lines = epochs(train(data, run, '--model', model, '--epochs', 4, *words))
        assert [line['loss'] for line in lines] == [line['loss'] for line in epochs(plain)]
        assert tensors(run) == tensors(tmp_path / 'plain')
        assert not any(line['sampled'] for line in lines)
        wanted = exact(run, 'last.safetensors')
        assert abs(lines[-1]['valid'] - wanted['score']) <= 0.005  # a node or two a rounding apart
        assert lines[-1]['valid_loss'] == pytest.approx(wanted['loss'], rel=1e-4)
        assert metrics(run)[-1]['valid_loss'] == lines[-1]['valid_loss']
    assert [line['epoch'] for line in lines if 'valid' in line] == [2, 4]


def test_a_fanout_of_evaluation_draws_more(data, tmp_path):
    few = epochs(train(data, tmp_path / 'few', '--epochs', 2))
    more = epochs(train(data, tmp_path / 'more', '--epochs', 2, '--eval-fanout', '8,8'))
    assert tensors(tmp_path / 'few') == tensors(tmp_path / 'more')
    wanted = exact(tmp_path / 'more', 'last.safetensors')['loss']
    assert abs(more[-1]['valid_loss'] - wanted) < abs(few[-1]['valid_loss'] - wanted)
    assert more[-1]['sampled']


def test_one_number_is_for_every_layer(data, tmp_path):
    train(data, tmp_path / 'run', '--epochs', 1, '--eval-fanout', 8)
    assert json.loads((tmp_path / 'run' / 'run.json').read_text())['settings']['eval_fanout'] == [8, 8]
    printed = call('train', data, '--run', tmp_path / 'wrong', *RECIPE, '--eval-fanout', 'many', code=2)
    assert '--eval-fanout' in printed.stderr


def test_scores_do_not_depend_on_the_line(data, tmp_path):
    seen = set()
    for name, words in (('wide', ()), ('narrow', ('--memory', '80M', '--threads', 1))):
        train(data, tmp_path / name, '--epochs', 2, '--eval-fanout', '15,10', *words)
        seen.add((tmp_path / name / 'metrics.jsonl').read_bytes())
    assert len(seen) == 1


def test_splits_between_epochs_and_all_at_the_end(data, tmp_path):
    events = train(data, tmp_path / 'run', '--epochs', 3, '--eval-splits', 'valid')
    assert all('valid' in line and 'test' not in line and 'train' not in line for line in metrics(tmp_path / 'run'))
    end = events[-1]
    assert all(0 < end[split] <= 1 for split in ('train', 'valid', 'test'))
    assert end['valid'] == max(line['valid'] for line in epochs(events))
    usual = train(data, tmp_path / 'usual', '--epochs', 3)[-1]
    assert [usual[split] for split in ('train', 'valid', 'test')] == [end[split] for split in ('train', 'valid', 'test')]


def test_an_exact_pass_scores_every_split(data, tmp_path):
    """The best weights have their scores when they are saved: the end needs no other pass."""
    run = tmp_path / 'run'
    end = train(data, run, '--epochs', 2, '--eval-exact', 1, '--eval-splits', 'valid')[-1]
    saved = (run / 'best.safetensors').read_bytes()
    notes = json.loads(saved[8:8 + int.from_bytes(saved[:8], 'little')])['__metadata__']
    assert {split: float(notes[split]) for split in ('train', 'valid', 'test')} == {split: end[split] for split in ('train', 'valid', 'test')}
    assert all('valid' in line and 'test' not in line and 'train' not in line for line in metrics(run))


def test_without_a_best_epoch_the_last_weights_are_scored(data, tmp_path):
    train(data, tmp_path / 'run', '--epochs', 3, '--eval-splits', 'test')
    assert not (tmp_path / 'run' / 'best.safetensors').exists()
    rare = call('train', data, '--run', tmp_path / 'rare', *RECIPE, '--epochs', 3, '--eval-every', 50).stdout
    last = rare.splitlines()[-1]
    assert last.startswith('Last epoch 003') and all(word in last for word in ('Train', 'Val', 'Test', '(sampled)'))


@pytest.mark.parametrize('words', [(), ('--eval-exact', 2), ('--eval-fanout', '8,8', '--eval-splits', 'all')])
def test_a_longer_run_ends_like_one_that_was_long(data, tmp_path, words):
    straight = train(data, tmp_path / 'straight', '--epochs', 6, *words)[-1]
    train(data, tmp_path / 'run', '--epochs', 3, *words)
    call('train', '--resume', tmp_path / 'run', '--epochs', '+3', '--quiet')
    for name in ('metrics.jsonl', 'last.safetensors'):
        assert (tmp_path / 'run' / name).read_bytes() == (tmp_path / 'straight' / name).read_bytes(), name
    again = json.loads(call('train', '--resume', tmp_path / 'run', '--json', '--quiet').stdout.splitlines()[-1])
    assert all(again[split] == straight[split] for split in ('train', 'valid', 'test'))


def test_what_decides_scores_is_kept(data, tmp_path):
    train(data, tmp_path / 'run', '--epochs', 1, '--eval-fanout', '8,8', '--eval-splits', 'valid')
    settings = json.loads((tmp_path / 'run' / 'run.json').read_text())['settings']
    assert settings['eval_fanout'] == [8, 8] and settings['eval_splits'] == 'valid' and settings['eval_exact'] is False
    for words in (('--eval-fanout', '9,9'), ('--eval-splits', 'all')):
        printed = call('train', '--resume', tmp_path / 'run', '--epochs', '+1', *words, code=2)
        assert words[0] in printed.stdout + printed.stderr


@pytest.mark.parametrize('words', [('--eval-fanout', '4,4,4'), ('--eval-fanout', '0,3'), ('--fanout', '3,0'), ('--eval-splits', 'validation'),
                                   ('--eval-splits', ''), ('--eval-exact', 2, '--eval-every', 1), ('--eval-every', 1, '--eval-exact', 2),
                                   ('--eval-exact', 2, '--eval-fanout', '4,4'),
                                   ('--eval-splits', 'test', '--patience', 2), ('--model', 'mlp', '--layers', 2, '--eval-exact', 1)])
def test_what_cannot_be_is_refused(data, tmp_path, words):
    recipe = [word for word in RECIPE if word not in ('--fanout', '3,2')] if '--model' in words else RECIPE
    call('train', data, '--run', tmp_path / 'run', *recipe, '--epochs', 1, *words, code=2)
    assert not (tmp_path / 'run').exists()


def test_an_exact_evaluation_that_does_not_fit_is_refused_first(data, tmp_path):
    call('train', data, '--run', tmp_path / 'run', *RECIPE, '--eval-exact', 1, '--memory', '60M', code=3)
    assert not (tmp_path / 'run').exists()


def test_scores_of_empty_splits_name_the_way_out(tmp_path):
    """By default those of the splits that are not empty."""
    source = tmp_path / 'source'
    source.mkdir()
    draw = np.random.default_rng(1)
    np.save(source / 'edge_index.npy', draw.integers(0, 60, (2, 300)))
    np.save(source / 'x.npy', draw.random((60, 4), dtype=np.float32))
    np.save(source / 'y.npy', draw.integers(0, 2, 60))
    np.save(source / 'train.npy', np.arange(30))
    call('import', source, tmp_path / 'data', '--quiet')
    call('train', tmp_path / 'data', '--run', tmp_path / 'run', '--fanout', '2,2', '--hidden', 4, '--epochs', 1, '--quiet')
    for words in ('evaluate',), ('evaluate', '--split', 'test'), ('predict', '--out', tmp_path / 'out.npy'):
        assert '--split train' in call(words[0], tmp_path / 'run', *words[1:], '--quiet', code=2).stderr
    assert 'train: accuracy' in call('evaluate', tmp_path / 'run', '--split', 'all', '--quiet').stdout
