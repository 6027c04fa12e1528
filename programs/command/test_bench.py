"""plimsoll bench: the plan first, the same batches whatever the options, figures that add up, exit codes."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20
RECIPE = ['--batch', '64', '--fanout', '3,2']
EPOCH_FIELDS = {'epoch', 'batches', 'parts', 'seconds', 'batches_per_second', 'edges', 'edges_per_second', 'nodes',
                'rows_per_second', 'lists', 'lists_cached', 'list_transfers', 'list_bytes', 'rows', 'rows_cached', 'rows_lost',
                'row_transfers', 'row_bytes', 'windows', 'window_steps', 'wait_seconds', 'starved_seconds'}


def run(*words):
    return subprocess.run([PLIMSOLL, 'bench', *map(str, words)], capture_output=True, text=True, check=False, timeout=1500)


def bench(*words):
    done = run(*words, '--json', '--quiet')
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == 1
    return json.loads(done.stdout)


@pytest.fixture(scope='module', name='data')
def make_data(tmp_path_factory):
    path = tmp_path_factory.mktemp('bench') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'papers100M', path, '--scale', '0.002', '--quiet'], check=True)
    return path


def hashes(data, *words, recipe=None):
    report = bench('load', data, *(recipe or RECIPE), '--hash', *words)
    return [epoch['hash'] for epoch in report['epochs']]


def test_the_plan_adds_up(data):
    report = bench('load', data, *RECIPE, '--epochs', 0)
    plan = report['plan']
    assert report['what'] == 'load' and report['epochs'] == []
    assert sum(account['bytes'] for account in plan['accounts']) <= plan['total_bytes'] <= plan['line_bytes']
    assert plan['minimum_bytes'] <= plan['line_bytes']
    assert {'process', 'offsets', 'slots'} <= {account['name'] for account in plan['accounts']}
    assert plan['topology'] == plan['features'] == 'memory'
    assert plan['slots'] >= 1 and plan['slot_nodes'] >= 64


def test_fields_of_load(data):
    report = bench('load', data, *RECIPE, '--features', 'disk', '--topology', 'disk', '--row-cache', 'none', '--list-cache', 'none')
    assert [epoch['epoch'] for epoch in report['epochs']] == [0, 1]
    for epoch in report['epochs']:
        assert set(epoch) == EPOCH_FIELDS
        assert epoch['batches'] == -(-2414 // 64) and epoch['windows'] >= 1
        assert epoch['edges'] > 0 and epoch['nodes'] >= 2414 and epoch['list_bytes'] + epoch['row_bytes'] > 0
        assert epoch['batches_per_second'] == pytest.approx(epoch['batches'] / epoch['seconds'])
    assert report['create_seconds'] > 0
    assert report['peak_bytes'] <= report['plan']['total_bytes'] and report['reserved_peak_bytes'] <= report['line_bytes']


def test_sample_draws_the_same_without_rows(data):
    sample, load = bench('sample', data, *RECIPE), bench('load', data, *RECIPE)
    assert 'rows' not in {account['name'] for account in sample['plan']['accounts']}
    for one, other in zip(sample['epochs'], load['epochs']):
        assert (one['batches'], one['edges']) == (other['batches'], other['edges'])


def test_one_hash_for_one_recipe(data):
    wanted = hashes(data)
    minimum = bench('load', data, *RECIPE, '--epochs', 0)['plan']['minimum_bytes'] // MIB + 2
    assert len(set(wanted)) == 2
    for words in (['--threads', 1], ['--threads', 5], ['--io', 'threads', '--features', 'disk'], ['--memory', f'{minimum}M'],
                  ['--memory', f'{minimum + 20}M'], ['--topology', 'disk'], ['--features', 'disk'],
                  ['--topology', 'disk', '--features', 'disk', '--window', 1],
                  ['--topology', 'disk', '--features', 'disk', '--window', 7, '--row-cache', '100K', '--list-cache', 'none'],
                  ['--topology', 'disk', '--features', 'disk', '--row-cache', 'none', '--list-cache', '20K'],
                  ['--slots', 1], ['--slots', 2, '--ids', 64]):
        assert hashes(data, *words) == wanted, words
    assert hashes(data, '--seed', 1) != wanted
    assert hashes(data, '--epoch', 1, '--epochs', 1) == wanted[1:]
    assert hashes(data, recipe=['--batch_size', '64', '--num_neighbors', '3,2']) == wanted


def test_any_step_continues_the_stream(data):
    """The same batches whether the epoch is read on or entered there: equal counts and, for the last one, an equal hash."""
    last = -(-2414 // 64) - 1
    direct = bench('load', data, *RECIPE, '--epoch', 3, '--step', last, '--epochs', 1, '--hash')
    again = bench('load', data, *RECIPE, '--epoch', 3, '--step', last, '--epochs', 1, '--hash', '--features', 'disk', '--topology', 'disk')
    assert direct['epochs'][0]['batches'] == 1
    assert direct['epochs'][0]['hash'] == again['epochs'][0]['hash']


def test_splits_and_forms(data):
    assert hashes(data, '--split', 'valid', '--epochs', 1) == hashes(data, '--split', 'valid', '--epochs', 1, '--features', 'disk')
    pyg = hashes(data, '--form', 'pyg')
    assert pyg == hashes(data, '--form', 'pyg', '--topology', 'disk') and pyg != hashes(data)


def test_too_little_memory_is_refused_with_what_would_do(data):
    done = run('load', data, *RECIPE, '--memory', '40M', '--json')
    assert done.returncode == 3
    error = json.loads(done.stdout)
    assert error['exit_code'] == 3 and '--memory' in error['error'], error
    enough = re.search(r'--memory to (\d+M)', error['error'])[1]
    assert run('load', data, *RECIPE, '--memory', enough, '--epochs', 1).returncode == 0
    assert run('load', data, *RECIPE, '--features', 'memory', '--memory', '40M').returncode == 3


@pytest.mark.parametrize('words', [
    [], ['load'], ['train', 'graph'], ['load', 'graph', '--fanout', '3,'], ['load', 'graph', '--fanout', ''],
    ['load', 'graph', '--fanout', '1,1,1,1,1,1,1,1,1'], ['load', 'graph', '--batch', '0'], ['load', 'graph', '--form', 'dgl'],
    ['load', 'graph', '--split', 'all'], ['load', 'graph', '--rows', 'f64'], ['load', 'graph', '--ids', '16'],
    ['load', 'graph', '--topology', 'tape'], ['load', 'graph', '--row-cache', 'some'], ['load', 'graph', '--slots', '65'],
    ['load', 'graph', '--seed', '-1'], ['load', 'graph', '--epochs', '-1']])
def test_wrong_use(words):
    assert run(*words).returncode == 2


def test_recipes_that_the_dataset_cannot_serve(data):
    assert run('load', data, '--fanout', '3,-2').returncode == 2
    assert run('load', data, '--fanout', '5000').returncode == 2
    done = run('load', data, '--fanout', '3,0')
    assert done.returncode == 2 and '--fanout' in done.stderr and 'hop 2' in done.stderr
    done = run('load', data / 'missing', '--json')
    assert done.returncode == 2 and json.loads(done.stdout)['exit_code'] == 2


def test_words_for_people(data):
    done = run('load', data, *RECIPE, '--hash')
    assert done.returncode == 0
    assert 'total' in done.stdout and 'minimum' in done.stdout
    assert done.stdout.count('batches/s') == 2 and 'hash' in done.stdout
    quiet = run('load', data, *RECIPE, '--quiet')
    assert quiet.stderr == '' and quiet.stdout.count('batches/s') == 2 and 'total' in quiet.stdout
    assert ' cached' not in run('load', data, *RECIPE, '--features', 'disk', '--row-cache', 'none').stdout


def test_words_without_rows(tmp_path):
    path = tmp_path / 'bare'
    subprocess.run([PLIMSOLL, 'generate', 'free', path, '--nodes', '500', '--edges', '2000', '--features', '0', '--classes', '3',
                    '--quiet'], check=True)
    done = run('load', path, *RECIPE)
    assert done.returncode == 0 and 'topology in memory' in done.stdout and 'rows' not in done.stdout, done.stdout


def test_an_empty_split_is_named(tmp_path):
    arrays = tmp_path / 'arrays'
    arrays.mkdir()
    np.save(arrays / 'edge_index.npy', np.arange(40).reshape(2, 20))
    np.save(arrays / 'node_label.npy', np.arange(40) % 3)
    for name, ids in (('train', range(20)), ('test', range(20, 40))):
        np.save(arrays / f'{name}.npy', np.array(ids))
    subprocess.run([PLIMSOLL, 'import', arrays, tmp_path / 'both', '--quiet'], check=True)
    (arrays / 'train.npy').unlink()
    subprocess.run([PLIMSOLL, 'import', arrays, tmp_path / 'one', '--quiet'], check=True)
    done = run('load', tmp_path / 'both', *RECIPE, '--split', 'valid')
    assert done.returncode == 2 and '--split train or test' in done.stderr
    assert run('load', tmp_path / 'both', *RECIPE, '--split', 'test').returncode == 0
    done = run('load', tmp_path / 'one', *RECIPE, '--split', 'test')
    assert done.returncode == 2 and 'no training split' in done.stderr


def test_staged_on_scratch(data, tmp_path):
    words = ['--features', 'disk', '--topology', 'disk', '--scratch', tmp_path, '--stage']
    plain = hashes(data)
    assert hashes(data, *words) == plain
    copies = [path for path in tmp_path.iterdir() if (path / 'dataset.json').exists()]
    assert len(copies) == 1
    made = (copies[0] / 'features.npy').stat().st_mtime_ns
    assert hashes(data, *words) == plain
    assert (copies[0] / 'features.npy').stat().st_mtime_ns == made
    alone = run('load', data, *RECIPE, '--stage')
    assert alone.returncode == 2 and '--scratch' in alone.stderr


def test_the_dataset_is_no_scratch(data, tmp_path):
    before = sorted(path.name for path in data.iterdir())
    link = tmp_path / 'link'
    link.symlink_to(data)
    for scratch in (data, f'{data}/', link, data / 'below', data / '..' / data.name / 'not' / 'there'):
        done = run('load', data, *RECIPE, '--scratch', scratch, '--stage')
        assert done.returncode == 2 and 'never written to; name another directory' in done.stderr, done.stderr
    assert sorted(path.name for path in data.iterdir()) == before
    (data.parent / 'graph2').mkdir()
    assert run('load', data, *RECIPE, '--scratch', data.parent / 'graph2', '--epochs', 0).returncode == 0


# Lines at which not all that is wanted fits, so that the choice of what is kept decides.

TIGHT = ['--batch', '8', '--fanout', '15,10', '--features', 'disk', '--topology', 'disk']
KEPT = re.compile(r'expected to hold .*?([0-9.]+) % of the rows')


def minimum_line(data):
    return bench('load', data, *TIGHT, '--epochs', 0)['plan']['minimum_bytes'] // MIB


@pytest.mark.nightly
def test_what_is_reported_as_kept_is_kept(data):
    """From the minimum upwards, the rows that the loader says it keeps are found in memory, and more of them with every step."""
    minimum, before = minimum_line(data), 0
    for line in range(minimum + 2, minimum + 42, 4):
        done = run('load', data, *TIGHT, '--memory', f'{line}M', '--epochs', 1, '--batches', 100, '--json')
        assert done.returncode == 0, done.stderr
        epoch, kept = json.loads(done.stdout)['epochs'][0], KEPT.search(done.stderr)
        found = epoch['rows_cached'] / epoch['rows']
        assert found >= (float(kept[1]) / 100 if kept else 0) - 0.05, (line, found, done.stderr)
        assert found >= before - 0.03, (line, before, found)
        before = found
    assert before > 0.9


def test_one_working_set_serves_all_lines(data, tmp_path):
    """Batches are the same with and without it, whatever the size of the cache and the line; the first call makes it."""
    wanted = bench('load', data, *TIGHT, '--row-cache', '1M', '--epochs', 1, '--batches', 10, '--hash')['epochs'][0]['hash']
    made = set()
    for more in [*[['--row-cache', '1M']] * 3, ['--row-cache', '2M'], ['--threads', 1], ['--batch', 32], ['--row-cache', '1M']]:
        done = run('load', data, *TIGHT, *more, '--scratch', tmp_path, '--epochs', 1, '--batches', 10, '--hash', '--json')
        assert done.returncode == 0, done.stderr
        (packed,) = tmp_path.iterdir()
        assert packed.name.startswith('working-set-') and 'packing the rows again' not in done.stderr
        report = json.loads(done.stdout)
        weighed = any(phase['phase'].startswith('weighing') for phase in report['phases'])
        assert weighed == (not made), 'only what makes the file weighs'
        assert 0 < packed.stat().st_size <= report['plan']['scratch_bytes']
        assert report['epochs'][0]['hash'] == wanted or '--batch' in more
        made.add(packed.stat().st_mtime_ns)
    assert len(made) == 1


def test_space_for_packed_rows_is_planned(data, tmp_path):
    report = bench('load', data, *TIGHT, '--scratch', tmp_path, '--row-cache', '1M', '--epochs', 1, '--batches', 10)
    (packed,) = tmp_path.iterdir()
    assert packed.stat().st_size <= report['plan']['scratch_bytes']
    assert bench('load', data, *TIGHT, '--row-cache', '1M', '--epochs', 0)['plan']['scratch_bytes'] == 0


def strace_works():
    try:
        return subprocess.run(['strace', '-o', '/dev/null', 'true'], check=False, stderr=subprocess.DEVNULL).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.nightly
@pytest.mark.skipif(not strace_works(), reason='strace is not here, or ptrace is forbidden')
@pytest.mark.skipif(not os.access('/dev/shm', os.W_OK), reason='no /dev/shm to write to')
def test_what_does_not_fit_does_not_go_to_memory_again(tmp_path):
    """Choosing among many nodes takes a file under a tight line; a TMPDIR in tmpfs would be memory that nobody planned."""
    data, trace = tmp_path / 'graph', tmp_path / 'trace'
    subprocess.run([PLIMSOLL, 'generate', 'free', data, '--nodes', '2M', '--edges', '2M', '--features', '4', '--classes', '2', '--quiet'],
                   check=True)
    nameless = []
    for more in range(2, 12, 2):  # where the choice needs a file depends on what the process and the engine take
        words = ['load', str(data), *TIGHT, '--memory', f'{minimum_line(data) + more}M', '--epochs', '1', '--batches', '10', '--json']
        subprocess.run(['strace', '-f', '-qq', '-E', 'ASAN_OPTIONS=detect_leaks=0', '-e', 'trace=openat', '-o', trace, PLIMSOLL, 'bench', *words],
                       check=True, capture_output=True, timeout=1500, env={**os.environ, 'TMPDIR': '/dev/shm'})
        nameless += re.findall(r'openat\(AT_FDCWD, "([^"]+)", [^)]*O_TMPFILE', trace.read_text())
    assert nameless and not [path for path in nameless if pathlib.Path(path).is_relative_to('/dev/shm')], nameless


@pytest.mark.parametrize('where', ['memory', 'disk'])
def test_a_signal_ends_it_in_order(data, where):
    for seconds in (0.5, 2, 10, 60):  # until it comes to an end of an epoch, however busy the machine is
        process = subprocess.Popen([PLIMSOLL, 'bench', 'load', data, *RECIPE, '--epochs', '1000000', '--features', where, '--json'],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        process.send_signal(signal.SIGINT)
        last_line, _ = process.communicate(timeout=1500)
        report = json.loads(last_line)
        assert process.returncode == report['exit_code'] == 75 and report['status'] == 'stopped'
        if report['epochs']:
            break
    assert report['plan']['total_bytes'] > 0 and report['epochs'][0]['batches'] == -(-2414 // 64)
