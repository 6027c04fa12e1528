# labels: plain long
"""plan as people use it: the table, its JSON, sweeps, shapes, exit codes, and that train does what it says."""
import json
import os
import re
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
PHASES = ('start', 'train', 'evaluate', 'checkpoint', 'predict')
RECIPE = ('--model', 'sage', '--hidden', 32, '--fanout', '4,3', '--batch', 200)


def plimsoll(*words, code=0, cwd=None):
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500, cwd=cwd)
    assert done.returncode == code, done.stderr + done.stdout
    return done


def plan(*words, code=0):
    return json.loads(plimsoll('plan', *words, '--json', code=code).stdout)


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('plan') / 'graph'
    plimsoll('generate', 'free', path, '--nodes', 20000, '--edges', 160000, '--features', 24, '--classes', 5)
    return path


def test_sums_and_peak(graph):
    found = plan(graph, *RECIPE, '--memory', '500M')
    assert found['fits'] and found['line_bytes'] == 500 << 20 and found['line_source'] == '--memory'
    assert set(found['phases']) == set(PHASES)
    for phase in PHASES:
        assert found['phases'][phase] == sum(one['phases'][phase] for one in found['accounts'])
    assert all(one['bytes'] >= max(one['phases'].values()) for one in found['accounts'])
    assert found['phases'][found['peak_phase']] == max(found['phases'].values()) == found['total_bytes']
    assert found['minimum_bytes'] <= found['total_bytes'] <= found['line_bytes']


def test_the_table_is_the_object(graph):
    """Every account, in MiB, in every phase; nothing wider than a terminal."""
    found = plan(graph, *RECIPE, '--memory', '500M')
    printed = plimsoll('plan', graph, *RECIPE, '--memory', '500M').stdout.splitlines()
    assert max(map(len, printed[1:])) <= 100  # the first begins with the dataset's path
    head = next(i for i, line in enumerate(printed) if line.startswith('MiB'))
    assert printed[head].split() == ['MiB', *PHASES]
    assert max(len(line) for line in printed[head:head + len(found['accounts']) + 2]) <= 80
    for account, line in zip(found['accounts'], printed[head + 1:]):
        assert line.startswith(account['name'])
        for phase, text in zip(PHASES, line[24:].split()):
            size = account['phases'][phase] / (1 << 20)
            # the process itself differs by some pages from run to run
            assert size == 0 if text == '-' else size < 0.05 if text == '<0.1' else abs(size - float(text)) < 1.1
    assert any(line.startswith('total') for line in printed)
    assert any(line.startswith('line') and '500 MiB, from --memory' in line for line in printed)


def test_scratch_is_proposed_where_it_saves_reads():
    words = 'papers100M', *RECIPE, '--fanout', '3,2', '--memory', '2G'
    found, packed = plan(*words), plan(*words, '--scratch', '.')
    assert found['with_scratch'] == {'scratch_bytes': packed['scratch_bytes'], 'epoch_reads': packed['expect']['epoch_reads']}
    assert packed['expect']['epoch_reads'] < found['expect']['epoch_reads'] and found['scratch_bytes'] == 0
    assert 'with_scratch' not in packed and 'with_scratch' not in plan(*words, '--memory', '60G')
    assert max(map(len, plimsoll('plan', *words).stdout.splitlines())) <= 100


def test_scratch_that_cannot_hold_a_file_is_not_planned(tmp_path):
    """A directory that is not there, or is in memory: the plan is that without scratch, and says why. A trial with scratch is of no other run."""
    def planned(*words):
        done = subprocess.run([PLIMSOLL, 'plan', 'graph', *map(str, RECIPE), '--threads', '2', '--memory', '150M', *map(str, words), '--json'], check=True,
                              capture_output=True, text=True, timeout=1500, cwd=tmp_path, env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path / 'cache')))
        return json.loads(done.stdout), done.stderr

    plimsoll('generate', 'papers100M', tmp_path / 'graph', '--scale', 0.01, '--quiet')
    usual = planned()[0]
    for scratch in ('/nonexistent', '/dev/shm'):
        found, said = planned('--scratch', scratch)
        assert found['scratch_bytes'] == 0 and scratch in said
        assert found['expect']['epoch_reads'] == usual['expect']['epoch_reads'] > 0
    if planned('--scratch', '.')[0]['scratch_bytes'] == 0:
        pytest.skip('the temporary directory is in memory')
    assert planned('--scratch', '.', '--try', 0.3)[0]['trial'] is not None
    assert planned('--scratch', '.')[0]['trial'] is not None and planned()[0]['trial'] is None


def test_memory_does_not_grow_with_the_pairs_of_an_epoch():
    """All edges of papers100M, 1.6 G pairs: windows list the seeds of a part of them."""
    words = 'papers100M', '--task', 'link', '--model', 'sage', '--fanout', '10,5', '--batch', 64, '--memory', '4G'
    found = plan(*words)
    assert found['fits'] and found['minimum_bytes'] < 1 << 30
    assert found['window_steps'] < found['expect']['epoch_steps']


def test_train_does_what_plan_says(graph, tmp_path):
    planned = plan(graph, *RECIPE, '--memory', '300M')
    trained = json.loads(plimsoll('train', graph, *RECIPE, '--memory', '300M', '--epochs', 1, '--json',
                                  '--run', tmp_path / 'a').stdout.splitlines()[0])
    assert [one['name'] for one in planned['accounts']] == [one['name'] for one in trained['accounts']]
    assert abs(planned['total_bytes'] - trained['total_bytes']) <= 2 << 20
    assert abs(planned['minimum_bytes'] - trained['minimum_bytes']) <= 2 << 20
    assert planned['expect']['epoch_steps'] == trained['expect']['epoch_steps']


def test_plan_reads_nothing_unless_asked(graph, tmp_path):
    """What train measured, or --measure did, is used from then on; and then both plan the same."""
    words = (graph, '--model', 'sage', '--hidden', 32, '--fanout', '10,10,10', '--batch', 1000, '--memory', '80M', '--json')

    def cached(verb, *more):
        done = subprocess.run([PLIMSOLL, verb, *map(str, words), *map(str, more)], check=True, capture_output=True, text=True,
                              timeout=1500, env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path)))
        return json.loads(done.stdout.splitlines()[0]), done.stderr

    guess, printed = cached('plan')
    assert guess['guessed'] and 'reading' not in printed
    assert not (tmp_path / 'plimsoll').exists()
    measured, _ = cached('plan', '--measure')
    again, printed = cached('plan')
    trained, _ = cached('train', '--epochs', 1, '--run', tmp_path / 'run')
    assert not measured['guessed'] and 'reading' not in printed
    for other in (again, trained):
        assert abs(measured['total_bytes'] - other['total_bytes']) <= 2 << 20
        assert measured['part_seeds'] == other['part_seeds'] and measured['recompute'] == other['recompute']


def test_every_option_of_train_is_read(graph, tmp_path):
    words = (*RECIPE, '--lr', 0.1, '--epochs', 7, '--run', tmp_path / 'none', '--eval_steps', 3, '--log_steps', 5,
             '--optimizer', 'sgd', '--checkpoint-every', 100, '--patience', 3)
    assert plan(graph, *words)['fits']
    assert not (tmp_path / 'none').exists()
    plimsoll('plan', graph, '--no-such', code=2)
    plimsoll('plan', code=2)
    plimsoll('plan', graph, graph, code=2)


def test_what_does_not_fit(graph):
    """The minimum is named, and is enough; below it the table is that of the minimum line."""
    for memory in ('8M', '9M'):
        refused = plan(graph, *RECIPE, '--memory', memory, code=3)
        assert not refused['fits'] and refused['exit_code'] == 3
        given = int(re.search(r'raise --memory to (\d+)M', refused['error']).group(1))
        assert refused['total_bytes'] <= given << 20
        assert refused['accounts'] and refused['phases']
        assert plan(graph, *RECIPE, '--memory', f'{given}M')['fits']
        assert given == -(-refused['minimum_bytes'] >> 20)
        assert not plan(graph, *RECIPE, '--memory', f'{given - 5}M', code=3)['fits']
    done = plimsoll('plan', graph, *RECIPE, '--memory', '9M', code=3)
    assert '9 MiB, from --memory' in done.stdout and '--memory' in done.stderr
    # every text names the same figure
    sweep = plimsoll('plan', graph, *RECIPE, '--sweep', 'memory=1G').stdout
    for printed in (done.stdout, done.stderr, plimsoll('plan', graph, *RECIPE, '--memory', '1G').stdout, sweep):
        assert f'{given} MiB' in printed
    trained = plimsoll('train', graph, *RECIPE, '--memory', f'{given}M', '--epochs', 1, '--run', graph.parent / 'smallest').stderr
    assert f'needs a line of at least {given} MiB' in trained


WIDE = ('arxiv', '--model', 'gcn', '--hidden', 256, '--fanout', '10,10', '--batch', 1024, '--threads', 2)


def lines_named(text):
    return [int(number) for number in re.findall(r'--memory (?:to )?(\d+)M', text)]


@pytest.mark.parametrize('words', [(), pytest.param(('--ranks', 2), marks=pytest.mark.nightly), ('--ranks', 3, '--shares', 8)])
def test_named_lines_are_accepted(words):
    """The minimum, with MPI's memory too; the line that a refusal names; the line for whole batches."""
    refused = plan(*WIDE, *words, '--memory', '9M', code=3)
    minimum, = lines_named(refused['error'])
    assert plan(*WIDE, *words, '--memory', f'{minimum}M')['fits']
    large = plan(*WIDE, *words, '--memory', '2G')
    assert minimum == -(-large['minimum_bytes'] >> 20) == -(-refused['minimum_bytes'] >> 20)
    cut = 0
    for memory in range(minimum, minimum + 120, 30):
        done = subprocess.run([PLIMSOLL, 'plan', *map(str, WIDE), *map(str, words), '--memory', f'{memory}M', '--json'], check=False,
                              capture_output=True, text=True, timeout=1500)
        found = json.loads(done.stdout)
        assert done.returncode == (0 if found['fits'] else 3)
        whole = lines_named(done.stderr)[:1]  # of the warning that batches come in parts
        if not found['fits']:
            assert plan(*WIDE, *words, '--memory', f'{lines_named(found["error"])[0]}M')['fits']
        elif whole:
            cut += 1
            shares = found['ranks']['shares'] if words else 1
            assert plan(*WIDE, *words, '--memory', f'{whole[0]}M')['part_seeds'] in ((0,) if shares == 1 else (1024 // shares,))
    assert cut > 0 or '--shares' in words


def test_a_refusal_counts_with_measured_sizes(graph):
    words = (graph, '--model', 'sage', '--hidden', 128, '--fanout', '15,10', '--batch', 2048, '--threads', 8, '--ranks', 3, '--shares', 8)
    found = plan(*words, '--memory', '2G', '--measure')
    refused = plan(*words, '--memory', '9M', code=3)
    assert lines_named(refused['error']) == [-(-found['minimum_bytes'] >> 20)]


def test_memory_that_is_not_here(graph):
    """A job that will run elsewhere can be planned here."""
    done = plimsoll('plan', graph, *RECIPE, '--memory', '900T', '--json')
    assert json.loads(done.stdout)['line_bytes'] == 900 << 40
    assert '--memory' in done.stderr


def test_sweep(graph):
    found = plan(graph, *RECIPE, '--memory', '400M', '--sweep', 'batch=100,200', 'fanout=3,2:4,3:5,5')
    rows = found['rows']
    assert [(row['choice']['batch'], row['choice']['fanout']) for row in rows] == \
        [(batch, fanout) for batch in ('100', '200') for fanout in ('3,2', '4,3', '5,5')]
    assert found['fits'] and all(row['fits'] for row in rows)
    assert abs(rows[4]['total_bytes'] - plan(graph, *RECIPE, '--memory', '400M')['total_bytes']) <= 2 << 20
    printed = plimsoll('plan', graph, *RECIPE, '--sweep', 'hidden=16,4096', 'memory=64M,1G', 'precision=f32,bf16').stdout
    lines = [line.split() for line in printed.splitlines()]
    head = next(i for i, line in enumerate(lines) if line[:3] == ['hidden', 'memory', 'precision'])
    assert len(lines) == head + 9
    assert [line[:3] for line in lines[head + 1:]] == \
        [[hidden, memory, kind] for hidden in ('16', '4096') for memory in ('64M', '1G') for kind in ('f32', 'bf16')]
    assert 'no' in lines[head + 5] and 'yes' in lines[head + 7]
    words = (graph, *RECIPE, '--sweep', 'memory=66M,1G')
    for line, row in zip(plimsoll('plan', *words).stdout.splitlines()[-2:], plan(*words)['rows']):
        assert row['fits'] and ('on disk' in line) == ('disk' in (row['features'], row['topology']))
    assert max(map(len, printed.splitlines())) <= 100


def test_sweeps_that_are_none(graph):
    for words in (('batch',), ('batch=',), ('lr=1,2',), ('batch=x',), ('memory=2Q',), ('batch=100', 'run=3')):
        plimsoll('plan', graph, '--sweep', *words, code=2)
    assert plimsoll('plan', graph, '--sweep', 'batch=64,x', code=2).stdout == ''
    plimsoll('plan', graph, *RECIPE, '--sweep', 'memory=8M,9M', code=3)
    # a choice that makes no sense is a row of its own
    rows = plan(graph, *RECIPE, '--model', 'gat', '--sweep', 'heads=4,5')['rows']
    assert rows[0]['fits'] and 'error' in rows[1]


def test_what_is_neither_dataset_nor_shape(graph, tmp_path):
    assert 'papers100M, products, arxiv' in plimsoll('plan', tmp_path / 'nothing', code=2).stderr
    assert 'are for shapes' in plimsoll('plan', graph, '--scale', 2, code=2).stderr
    assert 'needs --nodes' in plimsoll('plan', 'free', '--nodes', 10, code=2).stderr


def test_less_memory_reads_more():
    words = ('papers100M', '--model', 'gcn', '--hidden', 16, '--fanout', '3,2', '--batch', 128, '--threads', 2)
    found = [plan(*words, '--memory', memory) for memory in ('8G', '4G', '2G', '1G')]
    read = [one['expect']['epoch_read_bytes'] for one in found]
    assert read[0] <= read[1] < min(read[2:])
    for one in found:
        assert 700 < one['expect']['batch_nodes'] < 3000  # 1,424 are drawn
        assert 700 < one['expect']['batch_edges'] < 3000  # 1,385
        assert one['trial'] is None and not any('second' in name for name in one['expect'])


def test_columns_of_edges_on_disk_are_read():
    """At least a sector for each part of a batch; what memory holds is read once."""
    words = ('papers100M', '--edge-columns', 'features:8', '--hidden', 16, '--fanout', '3,2', '--batch', 128, '--threads', 2)
    read, bare = (plan(*words, '--model', model, '--memory', '1G')['expect'] for model in ('gine', 'gin'))
    edges = read['epoch_steps'] * read['batch_edges']
    more = read['epoch_read_bytes'] - bare['epoch_read_bytes']
    assert edges * 16 < more < edges * 4096 and read['epoch_reads'] > bare['epoch_reads'] + edges / 100
    assert read['batch_bytes'] == bare['batch_bytes'] + 16 * read['batch_edges']
    small = ('arxiv', *words[1:], '--memory', '4G', '--model')
    held, bare = (plan(*small, model)['expect'] for model in ('gine', 'gin'))
    assert held['epoch_read_bytes'] == bare['epoch_read_bytes'] == 0
    assert held['run_read_bytes'] >= bare['run_read_bytes'] + 1_166_243 * 8 * 4


def test_what_to_ask_the_scheduler_for(graph):
    """The lines of a batch script are the object's; a run planned with this memory is the same. Without a trial no time is asked for."""
    words = (graph, *RECIPE, '--epochs', 7, '--threads', 2)
    found = plan(*words, '--memory', '500M')
    ask, expect = found['ask'], found['expect']
    assert ask['memory_bytes'] == pytest.approx(min(1.05 * found['total_bytes'] + (32 << 20), 500 << 20), abs=2 << 20)
    assert ask['cpus'] == 2 and ask['seconds'] is None
    assert expect['disk_bytes'] > 0 and expect['predict_disk_bytes'] > 0
    printed = plimsoll('plan', *words, '--memory', '500M').stdout
    assert abs(int(re.search(r'^#SBATCH --mem=(\d+)M$', printed, re.M).group(1)) - (ask['memory_bytes'] >> 20)) <= 2
    assert '#SBATCH --time' not in printed
    assert '#SBATCH --cpus-per-task=2\n' in printed
    again = plan(*words, '--memory', ask['memory_bytes'])
    assert again['fits'] and again['features'] == found['features'] and again['part_seeds'] == found['part_seeds']
    # the summary stands above the table
    assert printed.index('\nminimum ') < printed.index('\nMiB ') < printed.index('#SBATCH')


def test_exact_evaluations_read_and_take_disk():
    words = ('papers100M', '--model', 'sage', '--hidden', 256, '--fanout', '10,10', '--memory', '8G', '--epochs', 10)
    exact, last = (plan(*words, '--eval-exact', 5, '--eval-splits', splits)['expect'] for splits in ('valid', 'test'))
    # the first layer's output does not fit in memory
    assert exact['disk_bytes'] > plan(*words)['expect']['disk_bytes'] + 110e6 * 256 * 4
    # a pass scores all splits; without best weights the last are scored by a pass of their own
    passes = last['run_read_bytes'] - exact['run_read_bytes']
    assert passes > 110e6 * 256 * 4 and exact['run_read_bytes'] > 10 * exact['epoch_read_bytes'] + 2 * passes


@pytest.mark.parametrize('words, share', [
    (('--model', 'sage', '--hidden', 4096, '--fanout', '10,10', '--batch', 2000), 0.25),
    (('--model', 'gat', '--hidden', 2048, '--heads', 4, '--fanout', '15,10,5', '--batch', 4000), 0.11),
    (('--model', 'sage', '--hidden', 1024, '--norm', 'batch', '--fanout', '10,10,10', '--batch', 4000), 0.09),
    (('--model', 'gcn', '--hidden', 256, '--fanout', '10,10', '--batch', 4000), 0.6)])
def test_advice_taken_fits(graph, words, share):
    """Every change named fits as it stands, in no more than it says; where batches came in parts they no longer do."""
    memory = int(share * plan(graph, *words, '--memory', '100G')['total_bytes'])
    done = subprocess.run([PLIMSOLL, 'plan', str(graph), *map(str, words), '--memory', str(memory), '--json'], check=False,
                          capture_output=True, text=True, timeout=1500)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found['fits'] else 3)
    assert found['advice'] and (not found['fits'] or found['part_seeds'] > 0)
    for one in found['advice']:
        assert one['total_bytes'] > 0 and one['saved_bytes'] > 0
        given = -(-one['total_bytes'] // (1 << 20)) + 1
        for line in (memory, f'{given}M'):
            changed = plan(graph, *words, *one['change'].split(), '--memory', line)
            assert changed['fits'] and (changed['part_seeds'] == 0 or not found['fits'])
        if not found['fits']:
            assert one['change'] in found['error']


def test_nothing_would_fit(graph):
    plimsoll('plan', graph, *RECIPE, '--memory', '9M', code=3)


def test_many_ranks(graph):
    """What a step exchanges, which part of a batch a rank computes, and MPI's memory."""
    one = plan(graph, *RECIPE)
    found = plan(graph, *RECIPE, '--ranks', 4)
    ranks = found['ranks']
    assert ranks['count'] == ranks['shares'] == 4 and ranks['rank_shares'] == 1 and 'ranks' not in one
    assert ranks['exchange_bytes'] == 2 * one['gradient_bytes'] * 3 / 4
    more = plan(graph, *RECIPE, '--ranks', 3, '--shares', 8)['ranks']
    assert more['shares'] == 8 and more['rank_shares'] == 3
    plimsoll('plan', graph, *RECIPE, '--ranks', 4, '--shares', 2, code=2)
    printed = plimsoll('plan', graph, *RECIPE, '--ranks', 4).stdout.splitlines()
    assert max(map(len, printed[1:])) <= 100 and any(line.startswith('exchange') for line in printed)
    assert ranks['mpi_bytes'] >= 32 << 20 and not ranks['mpi_measured']
    process = [next(account['bytes'] for account in made['accounts'] if account['name'] == 'process') for made in (one, found)]
    assert process[1] == process[0] + ranks['mpi_bytes']
    swept = json.loads(plimsoll('plan', graph, *RECIPE, '--sweep', 'ranks=1,2,4', '--json').stdout)['rows']
    assert [row['ranks']['shares'] for row in swept] == [1, 2, 4]
    assert swept[2]['ranks'] == ranks


def test_a_trial_is_kept_and_writes_no_run(graph, tmp_path):
    """Its seconds add up; the next plan of the same training shows them, with its own epochs; another training has none."""
    def tried(*words, code=0):
        done = subprocess.run([PLIMSOLL, 'plan', str(graph), *map(str, RECIPE), '--threads', '2', *map(str, words)], check=False, capture_output=True,
                              text=True, timeout=1500, cwd=tmp_path, env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path / 'cache')))
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if '--json' in words else done.stdout

    words = ('--epochs', 3, '--memory', '100M')
    assert tried(*words, '--json')['trial'] is None
    made = tried(*words, '--try', 0.3, '--json')
    first = made['trial']
    assert 2 * first['run_s'] + 240 <= made['ask']['seconds'] <= 2 * first['run_s'] + 300
    assert os.listdir(tmp_path) == ['cache']
    assert all(first[name] > 0 for name in ('steps_per_s', 'start_s', 'epoch_s', 'evaluation_s', 'run_s'))
    assert first['run_s'] >= first['start_s'] + 3 * (first['epoch_s'] + first['evaluation_s'])
    again = tried(*words[2:], '--epochs', 30, '--lr', 0.1, '--json')['trial']
    assert again['date'] == first['date']
    assert again['run_s'] - first['run_s'] == pytest.approx(27 * (first['epoch_s'] + first['evaluation_s']), rel=1e-3)
    assert 'it/s' in next(line for line in tried(*words).splitlines() if line.startswith('trial'))
    for other in (('--hidden', 64), ('--memory', '66M'), ('--threads', 1)):
        assert tried(*words, *other, '--json')['trial'] is None
    for wrong in (('--ranks', 2), ('--sweep', 'batch=8,9'), ('--try=x',), ('--try', 1, '--memory', '900T')):
        tried('--try', 0.1, *wrong, code=2)
    tried('--try', 0.1, '--eval-exact', 1, code=2)
