"""train, evaluate and predict as people use them: options, lines, files, exit codes, signals."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
EPOCH = re.compile(r'^Epoch (\d{3,}) \| Loss: \d+\.\d{4}( \| Train: \d\.\d{4})?'
                   r'( \| Val: \d\.\d{4} \| Test: \d\.\d{4} \(sampled\))? \| Time: \d+(\.\d\d)?s$')


def plimsoll(*words, code=0, cwd=None):
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500, cwd=cwd)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def objects(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('train') / 'graph'
    plimsoll('generate', 'free', path, '--nodes', 3000, '--edges', 24000, '--features', 24, '--classes', 5)
    return path


SMALL = ('--model', 'sage', '--hidden', '16', '--fanout', '4,3', '--batch', '100', '--quiet')


def metrics(run):
    return [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]


@pytest.fixture(scope='module')
def run(graph):
    path = graph.parent / 'runs' / 'deep' / 'a'  # parents are made
    plimsoll('train', graph, *SMALL, '--epochs', 4, '--run', path)
    return path


def test_onednn_is_only_loaded_by_what_needs_it(graph, tmp_path):
    """With a broken library in its place, everything works but training, which says what is missing and where it comes from."""
    broken = tmp_path / 'lib'
    broken.mkdir()
    for version in (2, 3):
        (broken / f'libdnnl.so.{version}').write_bytes(b'not a library')
    env = {**os.environ, 'LD_LIBRARY_PATH': str(broken)}
    subprocess.run([PLIMSOLL, 'inspect', graph], check=True, capture_output=True, env=env)
    subprocess.run([PLIMSOLL, 'bench', 'load', graph, '--epochs', '1'], check=True, capture_output=True, env=env)
    done = subprocess.run([PLIMSOLL, 'train', graph, *SMALL, '--run', tmp_path / 'a'], check=False, capture_output=True, text=True, env=env)
    assert done.returncode != 0
    assert re.search(r'libdnnl\.so\.[23] cannot be loaded: .*package libdnnl', done.stderr), done.stderr


def test_a_line_an_epoch(graph, tmp_path):
    printed = plimsoll('train', graph, *SMALL, '--epochs', 3, '--run', tmp_path / 'a').stdout.splitlines()
    assert len(printed) == 4
    assert all(EPOCH.match(line) for line in printed[:3]), printed
    assert [EPOCH.match(line).group(1) for line in printed[:3]] == ['001', '002', '003']
    assert re.match(r'^Best epoch 00\d \| Train: \d\.\d{4} \| Val: \d\.\d{4} \| Test: \d\.\d{4} \(sampled\)$', printed[3])
    lines = metrics(tmp_path / 'a')
    assert [line['epoch'] for line in lines] == [1, 2, 3]
    assert lines[2]['loss'] < lines[0]['loss']
    assert all(set(line) == {'epoch', 'loss', 'labelled', 'valid', 'test', 'valid_loss', 'rate', 'best'} for line in lines)
    assert {'run.json', 'metrics.jsonl', 'timeline.jsonl', 'last.safetensors', 'best.safetensors'} \
        <= set(os.listdir(tmp_path / 'a'))


def test_evaluations_are_as_rare_as_asked(graph, tmp_path):
    plimsoll('train', graph, *SMALL, '--epochs', 5, '--eval-every', 2, '--run', tmp_path / 'a')
    assert [line['epoch'] for line in metrics(tmp_path / 'a') if 'valid' in line] == [2, 4]
    printed = plimsoll('train', graph, *SMALL, '--epochs', 2, '--eval-every', 0, '--run', tmp_path / 'b').stdout
    assert not any(word in printed for word in ('Train:', 'Val', 'Test', 'Best'))
    assert not (tmp_path / 'b' / 'best.safetensors').exists()
    scored = plimsoll('train', '--resume', tmp_path / 'b', '--epochs', 3, '--json', '--quiet')
    assert not {'train', 'valid', 'test'} & set(objects(scored)[-1])
    plimsoll('train', graph, *SMALL, '--epochs', 1, '--eval-train', '--run', tmp_path / 'c')
    assert 'train' in metrics(tmp_path / 'c')[0]


def test_other_spellings(graph, tmp_path):
    ours = ('--hidden', 16, '--layers', 2, '--fanout', '4,3', '--batch', 100, '--weight-decay', 5e-4, '--eval-every', 2,
            '--gradient-accumulation-steps', 3)
    theirs = ('--hidden_channels', 16, '--num_layers', 2, '--num_neighbors', 4, 3, '--batch_size', 100,
              '--weight_decay', 5e-4, '--eval_steps', 2, '--gradient_accumulation_steps', 3)
    plimsoll('train', graph, *ours, '--epochs', 2, '--run', tmp_path / 'ours', '--quiet')
    plimsoll('train', *theirs, graph, '--epochs', 2, '--run', tmp_path / 'theirs', '--quiet', '--log_interval', 10)
    assert (tmp_path / 'ours' / 'metrics.jsonl').read_bytes() == (tmp_path / 'theirs' / 'metrics.jsonl').read_bytes()


def test_log_steps_are_epochs(graph, tmp_path):
    for spelling in ('--log_steps', '--log-steps'):
        place = tmp_path / spelling
        printed = plimsoll('train', graph, *SMALL, '--epochs', 5, spelling, 2, '--run', place).stdout.splitlines()
        assert [EPOCH.match(line).group(1) for line in printed[:-1]] == ['002', '004', '005'] and printed[-1].startswith('Best epoch')
        assert [line['epoch'] for line in metrics(place) if 'valid' in line] == [2, 4]
        assert len(metrics(place)) == 5
    for words in (('--eval-every', 1, '--log-steps', 2), ('--log-steps', 2, '--eval-every', 1)):
        place = tmp_path / '-'.join(map(str, words))
        printed = plimsoll('train', graph, *SMALL, '--epochs', 3, *words, '--run', place).stdout.splitlines()
        assert [EPOCH.match(line).group(1) for line in printed[:-1]] == ['002', '003']
        assert all('valid' in line for line in metrics(place))
    done = plimsoll('train', graph, *SMALL, '--epochs', 2, '--log_interval', 5, '--run', tmp_path / 'memory', '--json')
    assert [line['step'] % 5 for line in objects(done) if line['event'] == 'memory'] == [0] * (2 * steps_of(graph) // 5)


def steps_of(graph):
    return -(-len(np.load(graph / 'train.npy')) // 100)


def test_updates_of_several_batches(graph, tmp_path):
    """Stopped between two updates, it goes on from the first: the same bits, of batch norm's statistics too."""
    words = (*SMALL, '--norm', 'batch', '--gradient_accumulation_steps', 4, '--checkpoint-every', 2, '--epochs', 3)
    plimsoll('train', graph, *words, '--run', tmp_path / 'whole')
    assert json.loads((tmp_path / 'whole' / 'run.json').read_text())['settings']['accumulation'] == 4
    done = plimsoll('train', graph, *words, '--run', tmp_path / 'said', '--json')
    assert objects(done)[0]['epoch_updates'] == -(-steps_of(graph) // 4)
    words = [word if word != 3 else 400 for word in words]
    stopped = subprocess.Popen([PLIMSOLL, 'train', graph, *map(str, words), '--run', tmp_path / 'a'], stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    while not (tmp_path / 'a' / 'metrics.jsonl').exists() or not metrics(tmp_path / 'a'):
        time.sleep(0.01)
    stopped.send_signal(signal.SIGTERM)
    assert stopped.wait(1500) == 75
    done = len(metrics(tmp_path / 'a'))
    plimsoll('train', '--resume', tmp_path / 'a', '--epochs', done + 2, '--quiet')
    plimsoll('train', graph, *[word if word != 400 else done + 2 for word in words], '--run', tmp_path / 'b')
    assert (floats(tmp_path / 'a' / 'last.safetensors') == floats(tmp_path / 'b' / 'last.safetensors')).all()
    assert (tmp_path / 'a' / 'metrics.jsonl').read_bytes() == (tmp_path / 'b' / 'metrics.jsonl').read_bytes()


@pytest.fixture(name='sparse', scope='module')
def half_labelled(tmp_path_factory):
    """Splits of 100 nodes each: every other training node has a label, no validation node does."""
    source = tmp_path_factory.mktemp('sparse') / 'source'
    source.mkdir()
    draw = np.random.default_rng(3)
    labels = draw.integers(0, 4, 300)
    labels[:100:2] = -1
    labels[100:200] = -1
    for name, array in (('node_feat', draw.standard_normal((300, 5)).astype(np.float32)), ('labels', labels),
                        ('edge_index', draw.integers(0, 300, (2, 900))), ('train', np.arange(100)), ('valid', np.arange(100, 200)),
                        ('test', np.arange(200, 300))):
        np.save(source / f'{name}.npy', array)
    plimsoll('import', source, source.parent / 'data', '--quiet')
    np.save(source / 'train.npy', np.arange(100, 200))
    plimsoll('import', source, source.parent / 'none', '--quiet')
    return source.parent


def test_splits_without_labels(sparse, tmp_path):
    words = ('--fanout', '3,3', '--batch', 10, '--epochs', 2, '--hidden', 8)
    done = plimsoll('train', sparse / 'data', *words, '--run', tmp_path / 'a', '--json')
    assert [line['labelled'] for line in objects(done) if line['event'] == 'epoch'] == [50, 50]
    assert all('valid' not in line and 'test' in line for line in metrics(tmp_path / 'a'))
    assert '50 of 100' in done.stderr
    assert objects(done)[-1].get('best_epoch') is None
    done = objects(plimsoll('evaluate', tmp_path / 'a', '--json', '--quiet'))[-1]
    assert done['valid'] == {'score': None, 'loss': None} and done['test']['score'] is not None
    for exact in ((), ('--exact',)):
        plimsoll('evaluate', tmp_path / 'a', '--split', 'valid', *exact, code=2)
    plimsoll('train', sparse / 'data', *words, '--patience', 3, '--run', tmp_path / 'b', code=2)
    plimsoll('train', sparse / 'none', *words, '--run', tmp_path / 'b', code=2)
    assert not (tmp_path / 'b').exists()


def test_idle_options_of_evaluate_and_predict(graph, run, tmp_path):
    plimsoll('train', graph, '--model', 'mlp', '--layers', 1, '--epochs', 1, '--run', tmp_path / 'mlp', '--quiet')
    out = ('--out', tmp_path / 'out.npy')
    for words, idle in ((('evaluate', tmp_path / 'mlp', '--exact'), ['--exact']),
                        (('predict', tmp_path / 'mlp', *out, '--sampled', '--scratch', tmp_path), ['--sampled', '--scratch']),
                        (('evaluate', run, '--scratch', tmp_path), ['--scratch']), (('evaluate', run, '--exact'), []),
                        (('predict', run, *out, '--scratch', tmp_path), [])):
        printed = plimsoll(*words, '--quiet').stderr
        assert [word for word in ('--exact', '--sampled', '--scratch') if word in printed] == idle


def test_words_from_elsewhere(graph, tmp_path):
    """Models and splits by the names that papers and PyG have."""
    for name in ('SAGE', 'GraphSAGE', 'sage'):
        plimsoll('train', graph, *SMALL[2:], '--model', name, '--epochs', 1, '--run', tmp_path / name)
    assert len({(tmp_path / name / 'metrics.jsonl').read_bytes() for name in os.listdir(tmp_path)}) == 1
    scores = [plimsoll('evaluate', tmp_path / 'sage', '--split', name, '--quiet').stdout for name in ('valid', 'val')]
    assert scores[0] == scores[1]


def test_the_plan_comes_first(graph, tmp_path):
    """A few lines of it; what is scored; and which options change nothing."""
    words = [word for word in SMALL if word != '--quiet']
    printed = plimsoll('train', graph, *words, '--epochs', 1, '--run', tmp_path / 'a', '--memory', '300M',
                    '--momentum', 0.5, '--gamma', 0.5, '--pool', 'max', '--aggr', 'max').stderr
    assert re.search(r'^plan: peak .* of 300 MiB .* needs a line of at least ', printed, re.M)
    assert all(word in printed for word in ('graph', 'features', 'cross_entropy', 'accuracy'))
    idle = re.search(r'^warning: (.*--momentum.*)$', printed, re.M).group(1)
    assert '--momentum' in idle and '--gamma' in idle and '--pool' in idle and '--aggr' not in idle
    idle = objects(plimsoll('train', graph, '--model', 'mlp', '--layers', 1, '--hidden', 8, '--dropout', 0.5, '--norm', 'layer',
                            '--residual', '--heads', 1, '--epochs', 1, '--run', tmp_path / 'c', '--json'))[0]['without_effect']
    assert {text.split()[0] for text in idle} == {'--hidden', '--dropout', '--norm', '--residual', '--heads'}
    idle = objects(plimsoll('train', graph, *words, '--epochs', 1, '--eval-every', 0, '--eval-fanout', 8, '--eval-splits', 'valid',
                            '--run', tmp_path / 'd', '--json'))[0]['without_effect']
    assert {text.split()[0] for text in idle} == {'--eval-fanout', '--eval-splits'}
    plain = plimsoll('train', graph, *words, '--epochs', 1, '--run', tmp_path / 'b').stderr
    assert 'warning: options' not in plain and 'for each of' not in plain
    one = ('--fanout', 3, '--layers', 3)
    for printed in (plimsoll('train', graph, *one, '--epochs', 1, '--run', tmp_path / 'e').stderr, plimsoll('plan', graph, *one).stdout):
        assert 'fan-out 3 for each of 3 layers' in printed


def test_a_line_too_low_to_open_the_dataset_names_the_plan(graph, tmp_path):
    refused = plimsoll('train', graph, *SMALL, '--memory', '20M', '--run', tmp_path / 'run', code=3).stderr
    assert f'plimsoll plan {graph}' in refused
    assert f'plimsoll plan {graph}' not in plimsoll('train', graph, *SMALL, '--memory', '50M', '--run', tmp_path / 'run', code=3).stderr
    assert not (tmp_path / 'run').exists()


def test_weights_to_begin_with_are_looked_for_before_the_plan_is_printed(graph, tmp_path):
    words = [word for word in SMALL if word != '--quiet']
    done = plimsoll('train', graph, *words, '--epochs', 1, '--init', tmp_path / 'none', '--run', tmp_path / 'new' / 'run', code=2)
    assert str(tmp_path / 'none') in done.stderr and 'plan: ' not in done.stderr and not list(tmp_path.iterdir())


def test_a_run_without_a_name_gets_one(graph, tmp_path):
    for number in (1, 2):
        done = plimsoll('train', graph, *SMALL, '--epochs', 1, '--json', cwd=tmp_path)
        assert objects(done)[-1]['run'] == objects(done)[0]['run'] == f'runs/graph-sage-{number}'
        assert (tmp_path / 'runs' / f'graph-sage-{number}' / 'run.json').exists()
    quiet = plimsoll('train', graph, *SMALL, '--epochs', 1, '--quiet', cwd=tmp_path).stdout
    assert quiet.startswith('Run: runs/graph-sage-3\nEpoch 001')


def test_a_dataset_that_moved(graph, tmp_path):
    here, there, run = tmp_path / 'here', tmp_path / 'there', tmp_path / 'run'
    shutil.copytree(graph, here)
    plimsoll('train', here, *SMALL, '--epochs', 1, '--run', run, '--quiet')
    here.rename(there)
    out = ('--out', tmp_path / 'x.npy')
    for words in (('train', '--resume', run), ('evaluate', run), ('predict', run)):
        printed = plimsoll(*words, *(out if words[0] == 'predict' else ()), code=4).stderr
        assert f'no longer at {here}' in printed and f"plimsoll {' '.join(map(str, words))} DIR" in printed
        plimsoll(*words, there, *(out if words[0] == 'predict' else ('--epochs', '+1') if words[0] == 'train' else ()))


def test_predict_keeps_to_its_plan(graph, run, tmp_path):
    planned = json.loads(plimsoll('plan', graph, '--model', 'sage', '--hidden', 16, '--memory', '200M', '--json').stdout)['phases']['predict']
    done = plimsoll('predict', run, '--split', 'all', '--memory', '200M', '--out', tmp_path / 'x.npy', '--json')
    assert sum(account['reserved_bytes'] for account in objects(done)[-1]['accounts']) < planned + (4 << 20)


def test_runs_that_begin_together_get_names_of_their_own(graph, tmp_path):
    command = [PLIMSOLL, 'train', graph, *SMALL, '--epochs', '1', '--json']
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)
               for _ in range(4)]
    for process in started:
        _, printed = process.communicate(timeout=1500)
        assert process.returncode == 0, printed
    assert sorted(os.listdir(tmp_path / 'runs')) == [f'graph-sage-{number}' for number in (1, 2, 3, 4)]


def test_memory_lines(graph, tmp_path):
    printed = plimsoll('train', graph, *SMALL, '--epochs', 2, '--memory-every', 5, '--run', tmp_path / 'a', '--memory', '1G').stdout
    lines = [line for line in printed.splitlines() if line.startswith('Step')]
    assert len(lines) >= 2
    assert all(re.match(r'^Step \d+: CPU: \d+\.\dMB of \d+\.\dMB$', line) for line in lines)
    assert [int(line.split()[1][:-1]) for line in lines] == list(range(5, 5 * len(lines) + 1, 5))


def test_json_is_an_object_a_line(graph, tmp_path):
    found = objects(plimsoll('train', graph, *SMALL, '--epochs', 2, '--run', tmp_path / 'a', '--json', '--memory-every', 10))
    assert [one['event'] for one in found if one['event'] != 'memory'] == ['plan', 'epoch', 'epoch', 'end']
    assert found[0]['total_bytes'] == max(found[0]['phases'].values())
    end = found[-1]
    assert end['epochs'] == 2 and end['best_epoch'] in (1, 2) and 0 < end['test'] <= 1
    assert end['rss_peak_bytes'] > 0


def test_a_staged_run_names_its_dataset(graph, tmp_path):
    """The copy in scratch may go: the run continues without it, or with another copy."""
    scratch, run = tmp_path / 'scratch', tmp_path / 'run'
    words = ['--stage', '--scratch', scratch]
    printed = plimsoll('train', graph, *SMALL, '--epochs', 1, '--run', run, *words, code=2).stderr
    assert f'mkdir -p {scratch}' in printed and not run.exists()
    plimsoll('train', graph, *SMALL, '--run', run, '--stage', '--scratch', graph, code=2)
    scratch.mkdir()
    plimsoll('train', graph, *SMALL, '--epochs', 1, '--run', run, '--quiet', *words)
    assert pathlib.Path(json.loads((run / 'run.json').read_text())['dataset']['path']) == graph.resolve()
    shutil.rmtree(scratch)
    plimsoll('train', '--resume', run, '--epochs', 2, '--quiet')
    assert not scratch.exists()
    scratch.mkdir()
    plimsoll('train', '--resume', run, '--epochs', 3, '--quiet', *words)
    assert len(list(scratch.iterdir())) == 1
    plimsoll('evaluate', run, '--quiet')


def test_stages(graph, tmp_path):
    plimsoll('train', graph, *SMALL, '--epochs', 4, '--run', tmp_path / 'straight')
    plimsoll('train', graph, *SMALL, '--epochs', 1, '--run', tmp_path / 'stages')
    plimsoll('train', '--resume', tmp_path / 'stages', '--epochs', 3, '--quiet')
    plimsoll('train', '--resume', tmp_path / 'stages', '--epochs', '+1', '--quiet')
    assert (tmp_path / 'straight' / 'metrics.jsonl').read_bytes() == (tmp_path / 'stages' / 'metrics.jsonl').read_bytes()
    before = (tmp_path / 'stages' / 'last.safetensors').read_bytes()
    plimsoll('train', '--resume', tmp_path / 'stages', '--epochs', 4)
    assert (tmp_path / 'stages' / 'last.safetensors').read_bytes() == before
    done = plimsoll('train', '--resume', tmp_path / 'stages', '--epochs', 3, code=2)
    assert '+3' in done.stderr
    assert all(number in (repr(float(number)), str(int(float(number))))  # the shortest that is read as the same
               for number in re.findall(r'[-\d.e]+', (tmp_path / 'stages' / 'metrics.jsonl').read_text()) if '.' in number)


def test_too_many_epochs_can_be_taken_back(graph, tmp_path):
    plimsoll('train', graph, *SMALL, '--epochs', 3, '--run', tmp_path / 'straight')
    plimsoll('train', graph, *SMALL, '--epochs', 2, '--run', tmp_path / 'a')
    about = json.loads((tmp_path / 'a' / 'run.json').read_text())
    assert about['settings']['epochs'] == 2
    about['settings']['epochs'] = 2000
    del about['self']
    (tmp_path / 'a' / 'run.json').write_text(json.dumps(about))
    refused = plimsoll('train', '--resume', tmp_path / 'a', '--epochs', 1, code=2).stderr
    assert all(words in refused for words in ('2 of 2000 epochs', 'alone continues to 2000', '--epochs 3 ends at 3'))
    plimsoll('train', '--resume', tmp_path / 'a', '--epochs', 3, '--quiet')
    assert (tmp_path / 'a' / 'metrics.jsonl').read_bytes() == (tmp_path / 'straight' / 'metrics.jsonl').read_bytes()


def test_what_patience_ended_goes_on_with_more(graph, tmp_path):
    words = (*SMALL, '--lr', 0, '--epochs', 6)  # nothing ever gets better
    plimsoll('train', graph, *words, '--run', tmp_path / 'straight')
    plimsoll('train', graph, *words, '--patience', 2, '--run', tmp_path / 'a')
    assert len(metrics(tmp_path / 'a')) == 3
    before = (tmp_path / 'a' / 'run.json').read_bytes()
    assert 'patience ended the run at epoch 3' in plimsoll('train', '--resume', tmp_path / 'a', '--epochs', '+2', code=2).stderr
    assert 'not less' in plimsoll('train', '--resume', tmp_path / 'a', '--patience', 1, code=2).stderr
    assert (tmp_path / 'a' / 'run.json').read_bytes() == before
    assert 'Best epoch 001' in plimsoll('train', '--resume', tmp_path / 'a', '--quiet').stdout
    plimsoll('train', '--resume', tmp_path / 'a', '--patience', 4, '--quiet')
    assert len(metrics(tmp_path / 'a')) == 5
    plimsoll('train', '--resume', tmp_path / 'a', '--patience', 0, '--quiet')
    assert (tmp_path / 'a' / 'metrics.jsonl').read_bytes() == (tmp_path / 'straight' / 'metrics.jsonl').read_bytes()


def floats(path):
    data = path.read_bytes()
    return np.frombuffer(data[8 + int.from_bytes(data[:8], 'little'):], np.float32)


def test_a_diverged_run_leaves_its_last_good_weights(graph, tmp_path):
    words = (*SMALL, '--schedule', 'step', '--step-size', 1, '--gamma', 1e30)
    plimsoll('train', graph, *words, '--epochs', 1, '--run', tmp_path / 'good')
    done = plimsoll('train', graph, *words, '--epochs', 9, '--run', tmp_path / 'a', '--json', code=5)
    assert objects(done)[-1]['status'] == 'diverged' and objects(done)[-1]['exit_code'] == 5 and '--lr' in done.stderr
    for name in ('last.safetensors', 'best.safetensors'):
        assert (floats(tmp_path / 'a' / name) == floats(tmp_path / 'good' / name)).all()
    assert (tmp_path / 'a' / 'metrics.jsonl').read_bytes() == (tmp_path / 'good' / 'metrics.jsonl').read_bytes()
    plimsoll('train', graph, *SMALL, '--lr', 1e30, '--checkpoint-every', 1, '--run', tmp_path / 'b', code=5)
    assert np.isfinite(floats(tmp_path / 'b' / 'last.safetensors')).all()
    assert not (tmp_path / 'b' / 'best.safetensors').exists()


def test_a_diverged_run_stays_without_a_saved_step(graph, run, tmp_path):
    """What it did is told by its files; it can be resumed, and is not begun again in its place."""
    for name, more in (('drawn', ()), ('given', ('--init', run / 'best.safetensors'))):
        words = ('train', graph, *SMALL, '--lr', 1e30, *more, '--run', tmp_path / name)
        assert 'no checkpoint' in plimsoll(*words, code=5).stderr
        assert json.loads((tmp_path / name / 'timeline.jsonl').read_text().splitlines()[0])['kind'] == 'plan'
        assert '--resume' in plimsoll(*words, code=2).stderr
        done = plimsoll('train', '--resume', tmp_path / name, code=5)
        assert 'first weights' in done.stderr and (tmp_path / name / 'run.json').exists()


def test_weights_that_are_not_finite_predict_nothing(graph, run, tmp_path):
    arrays = pytest.importorskip('safetensors.numpy', reason='safetensors is not installed')
    for name, value in (('nan', np.nan), ('infinite', -np.inf), ('huge', 3e38)):
        weights = arrays.load_file(run / 'best.safetensors')
        weights['convs.0.lin_l.bias'][-1] = value
        if name == 'huge':  # weights that are numbers, outputs that are none
            weights['convs.1.lin_l.weight'][:] = 3
        arrays.save_file(weights, tmp_path / f'{name}.safetensors')
        for verb in (('predict', run, '--out', tmp_path / 'out.npy'), ('predict', run, '--out', tmp_path / 'out.npy', '--sampled'),
                     ('evaluate', run), ('evaluate', run, '--exact')):
            plimsoll(*verb, '--weights', tmp_path / f'{name}.safetensors', '--quiet', code=5)
            assert not (tmp_path / 'out.npy').exists()


@pytest.mark.parametrize('layers', [1, 2])
def test_scores_that_are_no_numbers(tmp_path, layers):
    """Outputs overflow on the validation split alone: they are infinite with one layer, and no numbers with two."""
    source = tmp_path / 'source'
    source.mkdir()
    x = np.linspace(-1, 1, 60, dtype=np.float32)
    features = x.copy()
    features[40:] = 3.3e38
    np.save(source / 'node_feat.npy', features[:, None])
    np.save(source / 'labels.npy', (5 * x)[:, None])
    np.save(source / 'edge_index.npy', np.stack([np.arange(59), np.arange(1, 60)]))
    for name, nodes in (('train', range(40)), ('valid', range(40, 50)), ('test', range(50, 60))):
        np.save(source / f'{name}.npy', np.array(nodes))
    plimsoll('import', source, tmp_path / 'values', '--quiet')
    done = plimsoll('train', tmp_path / 'values', '--model', 'mlp', '--layers', layers, '--hidden', 16, '--lr', 0.3,
                    '--epochs', 200, '--patience', 9, '--run', tmp_path / 'a', '--json')
    lines = metrics(tmp_path / 'a')
    assert [line['valid'] for line in lines[-3:]] == [None] * 3
    assert len(lines) < 200 and objects(done)[-1]['early']
    assert not any(line['best'] for line in lines if line['valid'] is None)


def test_a_best_that_cannot_be_replaced_is_refused_first(graph, tmp_path):
    words = (*SMALL, '--epochs', 1)
    best = tmp_path / 'a' / 'best.safetensors'
    plimsoll('train', graph, *words, '--run', tmp_path / 'straight')
    straight = plimsoll('train', '--resume', tmp_path / 'straight', '--epochs', 4, '--quiet')
    plimsoll('train', graph, *words, '--run', tmp_path / 'a')
    best.unlink()
    best.mkdir()
    before = (tmp_path / 'a' / 'last.safetensors').read_bytes()
    plimsoll('train', '--resume', tmp_path / 'a', '--epochs', 4, '--quiet', code=4)
    assert (tmp_path / 'a' / 'last.safetensors').read_bytes() == before
    best.rmdir()
    again = plimsoll('train', '--resume', tmp_path / 'a', '--epochs', 4, '--quiet')
    for name in ('last.safetensors', 'best.safetensors', 'metrics.jsonl'):
        assert (tmp_path / 'a' / name).read_bytes() == (tmp_path / 'straight' / name).read_bytes(), name
    assert again.stdout.splitlines()[-1] == straight.stdout.splitlines()[-1]
    best.unlink()  # the scores of a finished run are saved
    assert plimsoll('train', '--resume', tmp_path / 'a', '--quiet').stdout.splitlines()[-1] == straight.stdout.splitlines()[-1]


def test_begun_anew_it_ends_with_the_same_bytes(graph, tmp_path):
    words = (*SMALL, '--epochs', 2, '--eval-every', 0)
    plimsoll('train', graph, *words, '--run', tmp_path / 'a')
    last = tmp_path / 'a' / 'last.safetensors'
    whole = last.read_bytes()
    last.unlink()  # as if killed before it was first saved
    plimsoll('train', '--resume', tmp_path / 'a', '--quiet')
    assert last.read_bytes() == whole


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_signal_saves_the_run(graph, tmp_path, number):
    words = ('--model', 'sage', '--hidden', '64', '--fanout', '10,10', '--batch', '100', '--quiet', '--epochs')
    process = subprocess.Popen([PLIMSOLL, 'train', graph, *words, '100000', '--run', tmp_path / 'a'], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline().startswith('Epoch 001')
    process.send_signal(number)
    time.sleep(0.001)
    process.send_signal(number)  # as timeout(1) and launchers do: to the process, then to its group
    _, printed = process.communicate(timeout=1500)
    assert process.returncode == 75, printed
    assert 'saved' in printed
    epochs = len(metrics(tmp_path / 'a')) + 2
    plimsoll('train', graph, *words, epochs, '--run', tmp_path / 'b')
    plimsoll('train', '--resume', tmp_path / 'a', '--epochs', epochs, '--quiet')
    assert (tmp_path / 'a' / 'metrics.jsonl').read_text() == (tmp_path / 'b' / 'metrics.jsonl').read_text()


def test_shares_decide_the_bits(graph, tmp_path):
    words = (*(word for word in SMALL if word != '--quiet'), '--shares', 7, '--dropout', 0.3)
    printed = plimsoll('train', graph, *words, '--epochs', 3, '--run', tmp_path / 'a')
    assert 'batch 100 in 7 shares' in printed.stderr and 'at a time' not in printed.stderr
    assert json.loads((tmp_path / 'a' / 'run.json').read_text())['settings']['shares'] == 7
    found = objects(plimsoll('train', graph, *words, '--epochs', 1, '--run', tmp_path / 'b', '--threads', 1, '--memory', '256M', '--json'))
    assert found[0]['shares'] == 7 and found[0]['part_seeds'] == 15
    printed = plimsoll('train', '--resume', tmp_path / 'b', '--epochs', 3, '--shares', 6, code=2).stderr
    assert '--shares is 7 in the run' in printed
    plimsoll('train', '--resume', tmp_path / 'b', '--epochs', 3)
    assert (tmp_path / 'a' / 'metrics.jsonl').read_text() == (tmp_path / 'b' / 'metrics.jsonl').read_text()


def test_wrong_use(graph, run, tmp_path):
    for words, printed in [
            ((), 'a dataset directory is needed'),
            ((graph, '--model', 'gnn'), '--model is mlp, gcn, '),
            ((graph, '--fanout', '3,x'), '--fanout'),
            ((graph, '--layers', 3, '--fanout', '3,2'), '--fanout has 2 entries'),
            ((graph, '--norm', 'batch', '--microbatch', 5), 'batch norm'),
            ((graph, '--norm', 'batch', '--shares', 2), 'batch norm'),
            ((graph, '--shares', 65537), '--shares'),
            ((graph, '--model', 'gat', '--hidden', 10, '--heads', 3), 'heads'),
            ((graph, '--model', 'gcn', '--heads', 3), '--heads is for'),
            ((graph, '--dropout', '1'), '--dropout'),
            ((graph, '--loss', 'mse'), 'classes'),
            ((graph, '--epochs', '+3'), '--resume'),
            ((graph, '--run', run), 'holds a run already'),
            ((graph, '--run', graph), 'is a dataset'),
            ((tmp_path / 'none',), 'plimsoll import'),
            ((graph, '--run', tmp_path / 'x', '--resume', run), 'one of them'),
            (('--resume', run, '--hidden', 32), 'hidden'),
            (('--resume', run, '--lr', 0.1), '--lr is 0.01 in the run but 0.1 now'),
            (('--resume', tmp_path / 'nothing'), 'nothing'),
    ]:
        code = 1 if words and words[-1] == tmp_path / 'nothing' else 2
        done = subprocess.run([PLIMSOLL, 'train', *map(str, words)], check=False, capture_output=True, text=True,
                              timeout=1500, cwd=tmp_path)
        assert done.returncode in (code, 2), done.stderr
        assert printed in done.stderr, (words, done.stderr)


def test_data_to_import_is_no_dataset(tmp_path):
    """A file and a directory name the import; a manifest that is damaged does not."""
    (tmp_path / 'csv').mkdir()
    (tmp_path / 'csv' / 'edges.csv').write_text('0,1\n')
    for source in (tmp_path / 'csv', tmp_path / 'csv' / 'edges.csv'):
        assert f'plimsoll import {source} DIR' in plimsoll('train', source, code=2).stderr
    (tmp_path / 'csv' / 'dataset.json').write_text('{}')
    assert 'plimsoll import' not in plimsoll('train', tmp_path / 'csv', code=4).stderr


def test_what_does_not_fit_is_refused_first(graph, tmp_path):
    done = plimsoll('train', graph, *SMALL, '--run', tmp_path / 'a', '--memory', '8M', '--json', code=3)
    assert objects(done)[-1]['status'] == 'budget'
    assert not (tmp_path / 'a').exists()


def test_another_dataset_is_refused(graph, run, tmp_path):
    other = tmp_path / 'other'
    plimsoll('generate', 'free', other, '--nodes', 500, '--edges', 2000, '--features', 24, '--classes', 5)
    assert 'another dataset' in plimsoll('train', '--resume', run, other, '--epochs', '+1', code=2).stderr
    assert 'another dataset' in plimsoll('evaluate', run, other, code=2).stderr


def test_evaluate(graph, run):
    best = next(line for line in reversed(metrics(run)) if line['best'])
    found = objects(plimsoll('evaluate', run, '--json', '--quiet'))[0]
    assert found['metric'] == 'accuracy' and not found['exact']
    assert found['valid']['score'] == best['valid'] and found['test']['score'] == best['test']
    printed = plimsoll('evaluate', run, '--split', 'all', '--quiet').stdout.splitlines()
    assert [line.split(':')[0] for line in printed] == ['train', 'valid', 'test']
    assert re.match(r'^test: accuracy 0\.\d{4}, loss \d+\.\d{4}$', printed[2])


@pytest.mark.parametrize('how', [[], ['--sampled']])
def test_predict(graph, run, tmp_path, how):
    def predicted(split, kind):
        out = tmp_path / f'{split}-{kind}.npy'
        plimsoll('predict', run, '--split', split, '--kind', kind, '--out', out, '--quiet', *how)
        return np.load(out)
    labels = np.load(graph / 'labels.npy')
    score = objects(plimsoll('evaluate', run, '--split', 'all', '--json', '--quiet', *(['--exact'] if not how else [])))[0]
    for split in ('train', 'valid', 'test'):
        nodes = np.load(graph / f'{split}.npy')
        logits, classes, embeddings = (predicted(split, kind) for kind in ('logits', 'classes', 'embeddings'))
        assert logits.shape == (len(nodes), 5) and logits.dtype == np.float32
        assert classes.dtype == np.int64 and (classes == logits.argmax(1)).all()
        assert embeddings.shape == (len(nodes), 16) and embeddings.dtype == np.float32
        assert np.isclose((classes == labels[nodes]).mean(), score[split]['score'])
    if not how:
        assert (predicted('all', 'logits')[np.load(graph / 'test.npy')] == predicted('test', 'logits')).all()
    assert sorted(path.suffix for path in tmp_path.iterdir()) == ['.npy'] * len(list(tmp_path.iterdir()))


def test_predict_all_by_an_mlp(graph, tmp_path):
    plimsoll('train', graph, '--model', 'mlp', '--hidden', 16, '--epochs', 2, '--run', tmp_path / 'a', '--quiet')
    for split in ('all', 'test'):
        plimsoll('predict', tmp_path / 'a', '--split', split, '--out', tmp_path / f'{split}.npy', '--quiet')
    everything = np.load(tmp_path / 'all.npy')
    assert everything.shape == (3000, 5)
    np.testing.assert_allclose(everything[np.load(graph / 'test.npy')], np.load(tmp_path / 'test.npy'), rtol=1e-4, atol=1e-5)


def test_predict_refuses(run, tmp_path):
    assert '--out' in plimsoll('predict', run, code=2).stderr
    assert 'one split' in plimsoll('predict', run, '--split', 'all', '--sampled', '--out', tmp_path / 'x.npy', code=2).stderr
    plimsoll('predict', run, '--out', tmp_path / 'no' / 'x.npy', code=1)
    assert not list(pathlib.Path(tmp_path).iterdir())


def test_predict_replaces_only_ordinary_files(run, tmp_path):
    os.mkfifo(tmp_path / 'pipe')
    os.symlink('nowhere', tmp_path / 'link')
    for name in ('pipe', 'link'):
        done = plimsoll('predict', run, '--out', tmp_path / name, code=2)
        assert 'no ordinary file' in done.stderr and not (tmp_path / name).is_file()


def test_says_what_the_model_leaves_out(tmp_path):
    draw, folder = np.random.default_rng(1), tmp_path / 'in'
    folder.mkdir()
    arrays = {'edge_index': draw.integers(0, 60, (2, 400)), 'x': draw.random((60, 4), np.float32), 'y': draw.integers(0, 2, 60), 'train': np.arange(30)}
    for left_out in '', 'edge_weight':
        for name, array in arrays.items():
            np.save(folder / f'{name}.npy', array)
        plimsoll('import', folder, tmp_path / f'graph{left_out}', '--quiet')
        done = plimsoll('train', tmp_path / f'graph{left_out}', *SMALL, '--epochs', 1, '--run', tmp_path / f'run{left_out}')
        assert ('edge_weight' in done.stderr) == bool(left_out)
        arrays['edge_weight'] = draw.random(400, np.float32)
