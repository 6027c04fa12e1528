"""The batch script of `plimsoll slurm`: its requests, its quoting, and what it does at each signal, with a stand-in for scontrol."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20


def plimsoll(*words, code=0, cwd=None):
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, errors='surrogateescape', cwd=cwd, timeout=1500)
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('slurm') / 'graph'
    plimsoll('generate', 'free', path, '--nodes', 3000, '--edges', 60000, '--features', 16, '--classes', 4)
    return path


def request(script, name):
    """The value of an #SBATCH line; '' for one without a value; it occurs once."""
    values = re.findall(rf'^#SBATCH --{name}(?:=(.*))?$', script, re.M)
    assert len(values) == 1, (name, script)
    return values[0]


def check(script):
    """bash, shellcheck (SC2016: words in single quotes do not expand, as they should) and --check have nothing to say; every request stands before
    the first command."""
    data = script.encode('utf-8', 'surrogateescape')
    done = subprocess.run(['bash', '-n'], input=data, capture_output=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    if shutil.which('shellcheck') is not None:
        done = subprocess.run(['shellcheck', '-e', 'SC2016', '-'], input=data, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout.decode(errors='replace')
    with tempfile.NamedTemporaryFile(suffix='.sbatch') as file:
        file.write(data)
        file.flush()
        assert json.loads(plimsoll('slurm', '--check', file.name, '--json').stdout)['findings'] == []
    head = script.split('\n\n')[0].splitlines()
    assert head[0] == '#!/bin/bash' and all(line.startswith('#') for line in head)
    assert sum(line.startswith('#SBATCH') for line in head) == script.count('\n#SBATCH')


def seconds(text):
    days, _, rest = text.rpartition('-')
    hours, minutes, left = map(int, rest.split(':'))
    return ((int(days or 0) * 24 + hours) * 60 + minutes) * 60 + left


def test_the_plan_is_what_is_asked_for(graph):
    """--mem is the plan's peak and the stated margin; --time twice what a trial took, and the minutes of signal and start."""
    words = ['--epochs', 3, '--batch', 64, '--fanout', '3,2']
    plimsoll('slurm', 'train', graph, *words, '--hidden', 17, code=2)  # no trial is kept
    plan = json.loads(plimsoll('plan', graph, *words, '--try', 0.2, '--json').stdout)
    script = plimsoll('slurm', 'train', graph, *words).stdout
    check(script)
    peak = plan['total_bytes']
    assert abs(int(request(script, 'mem').rstrip('M')) - (peak * 1.05 / MIB + 32)) <= 0.02 * peak / MIB + 2
    assert '5 %' in script and 'margin' in script  # stated
    # what the plan says to write is what the script has
    printed = plimsoll('plan', graph, *words).stdout
    assert abs(int(request(printed, 'mem').rstrip('M')) - int(request(script, 'mem').rstrip('M'))) <= 2
    assert seconds(request(script, 'time')) >= 2 * plan['trial']['run_s'] + 240
    assert request(printed, 'time') == request(script, 'time') and plan['ask']['seconds'] == seconds(request(script, 'time'))
    assert request(script, 'cpus-per-task') == str(plan['ask']['cpus'])
    assert request(script, 'signal') == 'B:USR1@120'
    assert request(script, 'open-mode') == 'append'
    assert request(script, 'requeue') == ''
    assert '--resume' in script and '"-$SLURM_JOB_ID"' in script  # one command begins and continues


def test_memory_of_this_machine_is_named():
    """Caches of papers100M's shape take all of it; nodes may have other memory."""
    words = [PLIMSOLL, 'slurm', '--time', '1:00:00']
    recipe = ['train', 'papers100M', '--batch', '128', '--fanout', '3,2', '--hidden', '16']
    for given in [], ['--memory', '2G']:
        done = subprocess.run(['bash', '-c', 'ulimit -v 3000000; exec "$@"', 'bash', *words, *given, *recipe],
                              capture_output=True, text=True, check=True, timeout=1500)
        assert ('--memory' in done.stderr) == (not given) and '5 %' not in done.stdout


def test_memory_and_threads_stand_once(graph):
    """Wherever they are given, they are Slurm's, and no option of the command: the two cannot disagree."""
    for words in (['--memory', '300M', '--threads', 4, 'train', graph], ['train', graph, '--memory=300M', '--threads', 4],
                  ['--threads=9', 'train', '--threads', 4, '--memory', '300M', graph]):
        script = plimsoll('slurm', '--time', 60, *words).stdout
        check(script)
        assert request(script, 'mem') == '300M' and request(script, 'cpus-per-task') == '4'
        command = re.search(r'^attend "\$plimsoll".*$', script, re.M).group()
        assert '--memory' not in command and '--threads' not in command


def test_many_nodes(graph):
    """One rank a node, started by srun; the shares stand in the command, so that fewer nodes can continue; one rank stages for all."""
    script = plimsoll('slurm', '--time', 60, 'train', graph, '--epochs', 3, '--ranks', 4).stdout
    check(script)
    assert request(script, 'nodes') == '4' and request(script, 'ntasks-per-node') == '1'
    assert re.search(r'^attend srun --mpi="\$mpi" "\$plimsoll" train --shares 4 ', script, re.M) and '--ranks' not in script
    staged = plimsoll('slurm', '--time', 60, '--ranks', 2, '--stage', '$TMPDIR', 'train', graph, '--epochs', 3, '--shares', 8).stdout
    check(staged)
    assert '--stage --scratch "$stage"' in staged and 'cp -r' not in staged and staged.count('--shares') == 1
    for words in (['--scratch', '$TMPDIR/a b'], ['--scratch=$TMPDIR/a b']):  # train's own words, expanded on the node as well
        own = plimsoll('slurm', '--time', 60, 'train', graph, '--epochs', 3, '--stage', *words, '--ranks', 2).stdout
        check(own)
        assert re.search(r""" --stage --scratch[ =]"\$\{TMPDIR:\?\}"'/a b' --resume$""", own, re.M)
    assert "--scratch '$(id)'" in plimsoll('slurm', '--time', 60, 'train', graph, '--stage', '--scratch', '$(id)').stdout
    plimsoll('slurm', '--stage', '/a', 'train', graph, '--stage', '--scratch', '/b', code=2)
    plimsoll('slurm', '--time', 60, 'train', graph, '--stage', code=2)
    plimsoll('slurm', '--ranks', 2, '--memory', '1G', '--time', 10, 'import', 'a', 'b', code=2)
    plimsoll('slurm', '--time', 60, 'train', graph, '--ranks', 4, '--shares', 2, code=2)


def test_json_has_the_same(graph):
    text = plimsoll('slurm', '--time', 60, 'train', graph, '--run', 'r').stdout
    printed = json.loads(plimsoll('slurm', '--time', 60, '--json', 'train', graph, '--run', 'r').stdout)
    assert printed['script'] == text and printed['verb'] == 'train'
    assert printed['memory_bytes'] == int(request(text, 'mem').rstrip('M')) * MIB
    assert printed['seconds'] == seconds(request(text, 'time')) and printed['cpus'] == int(request(text, 'cpus-per-task'))


@pytest.mark.parametrize('text, minutes', [('90', 90), ('90:30', 91), ('1:30:00', 90), ('1-2', 1560), ('1-2:30', 1590), ('2-00:00:01', 2881)])
def test_times_are_those_of_slurm(graph, text, minutes):
    assert seconds(request(plimsoll('slurm', '--time', text, 'train', graph).stdout, 'time')) == 60 * minutes


@pytest.mark.parametrize('words', [
    ['--time', '0', 'train', 'DIR'], ['--time', 'soon', 'train', 'DIR'], ['--time', '1:2:3:4', 'train', 'DIR'], ['--time', '1-', 'train', 'DIR'],
    ['--time', '99999999', 'train', 'DIR'], ['--time', '3', 'train', 'DIR'],  # no time before the signal
    [], ['plan', 'DIR'], ['trian', 'DIR'], ['train'], ['train', 'DIR', 'DIR'], ['train', 'DIR', '--hiden', '4'],
    ['train', '--resume', 'RUN'], ['train', 'DIR', '--run', 'R', '--resume', '--epochs', '+3'],
    ['train', 'DIR', '--memory'], ['train', 'DIR', '--threads', 'many'],
    ['import', 'A', 'B'], ['--time', '60', 'import', 'A', 'B'], ['--memory', '1G', 'import', 'A', 'B'],
    ['--memory', '1G', '--time', '60', '--stage', '/tmp', 'import', 'A', 'B'],
])
def test_wrong_use_prints_no_script(graph, words):
    done = plimsoll('slurm', *[graph if word == 'DIR' else word for word in words], code=2)
    assert done.stdout == '' and done.stderr.startswith('plimsoll ')


def test_a_training_that_does_not_fit_has_no_script(graph):
    done = plimsoll('slurm', '--memory', '40M', 'train', graph, code=3)
    assert done.stdout == '' and 'MiB' in done.stderr


@pytest.mark.parametrize('words', [['import', 'a b.zip', 'out', '--features', 'f16'], ['predict', 'run', '--out', 'p.npy'],
                                   ['watch', '--', 'python', 'train.py', '--memory', '3']])
def test_other_verbs_take_what_is_given(words):
    """They cannot continue, so nothing queues them again but Slurm itself."""
    script = plimsoll('slurm', '--memory', '2G', '--time', '2:00:00', '--threads', 3, *words).stdout
    check(script)
    assert request(script, 'mem') == '2048M' and request(script, 'cpus-per-task') == '3'
    assert 'scontrol' not in script and '--signal' not in script
    assert script.splitlines()[-1].startswith(f'exec "$plimsoll" {words[0]} ')
    if words[0] == 'watch':
        assert script.endswith(' --memory 3\n')  # behind --, another program's


ODD = ['a b', "it's", '"', '$HOME', '`id`', '$(id)', '#', 'a\nb', 'a\\b', '*', '!', '\x1b[31m', '\x7f', 'ü字', '\udcff\udcfe', "\n#SBATCH --mem=1M\n", '~', '{a,b}',
       "'\n'", ';rm x', '&', '-n', '\u0085']


def test_hostile_words_arrive_as_they_are(tmp_path):
    """Each reaches the command as one word, byte for byte, and none reaches the terminal raw or becomes a request."""
    script = plimsoll('slurm', '--memory', '1G', '--time', '10', 'watch', '--', 'printf', '%s\\0', *ODD, cwd=tmp_path).stdout
    check(script)
    assert not re.search(r'[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]', script)
    shown = script.replace('exec "$plimsoll" watch --', 'exec')
    done = subprocess.run(['bash', '-c', shown.encode('utf-8', 'surrogateescape')], capture_output=True, check=True)
    assert done.stdout.split(b'\0')[:-1] == [word.encode('utf-8', 'surrogateescape') for word in ODD]


@pytest.mark.parametrize('name', ["it's a\nplace; rm -rf x", '$(id)', '\x1b]0;x\x07'])
def test_it_runs_where_it_was_printed(tmp_path, name):
    place = tmp_path / name
    place.mkdir()
    script = plimsoll('slurm', '--memory', '1G', '--time', '10', 'watch', '--', 'pwd', '-P', cwd=place).stdout
    check(script)
    done = subprocess.run(['bash', '-c', script.replace('exec "$plimsoll" watch --', 'exec')], capture_output=True, text=True, check=True, cwd='/')
    assert done.stdout == f'{place}\n'


class Cluster:
    """A directory with a stand-in for scontrol that writes down its words, and the environment of a job."""

    def __init__(self, path, script):
        self.path = path
        (path / 'bin').mkdir()
        (path / 'bin' / 'scontrol').write_text(f'#!/bin/sh\necho "$@" >> "{path}/asked"\n')
        (path / 'bin' / 'scontrol').chmod(0o755)
        (path / 'job.sh').write_text(script)
        self.restarts = 0

    def start(self, **more):
        environment = dict(os.environ, PATH=f'{self.path}/bin:{os.environ["PATH"]}', SLURM_JOB_ID='7', SLURM_CPUS_PER_TASK='2', **more)
        if self.restarts > 0:
            environment['SLURM_RESTART_COUNT'] = str(self.restarts)
        self.restarts += 1
        return subprocess.Popen(['bash', self.path / 'job.sh'], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def asked(self):
        file = self.path / 'asked'
        return file.read_text().splitlines() if file.exists() else []


def wait_for(file, text, process):
    deadline = time.monotonic() + 1200
    while not (file.exists() and text in file.read_text()):
        assert time.monotonic() < deadline and process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


# Long enough to be met in the middle, on any machine.
LONG = ['--epochs', 150, '--batch', 32, '--fanout', '5,5', '--eval-every', 100, '--seed', 5]


@pytest.fixture(scope='module')
def weights(graph, tmp_path_factory):
    run = tmp_path_factory.mktemp('undisturbed') / 'run'
    plimsoll('train', graph, *LONG, '--run', run, '--quiet')
    return (run / 'last.safetensors').read_bytes()


def test_usr1_saves_requeues_and_continues(graph, weights, tmp_path):
    """Twice in the middle of the training; the last start ends it, with the weights of an undisturbed run."""
    run = tmp_path / "the user's run"
    cluster = Cluster(tmp_path, plimsoll('slurm', '--time', 60, 'train', graph, *LONG, '--run', run).stdout)
    for epoch in (10, 40):
        job = cluster.start()
        wait_for(run / 'metrics.jsonl', f'"epoch":{epoch},', job)
        job.send_signal(signal.SIGUSR1)
        printed = job.communicate(timeout=1200)[0]
        assert job.returncode == 75, printed
    assert cluster.asked() == ['requeue 7'] * 2
    job = cluster.start()
    printed = job.communicate(timeout=1200)[0]
    assert job.returncode == 0, printed
    assert cluster.asked() == ['requeue 7'] * 2
    assert (run / 'last.safetensors').read_bytes() == weights
    job = cluster.start()  # queued once more: nothing is left to do
    assert job.communicate(timeout=1200) and job.returncode == 0


def test_term_saves_and_leaves_the_job_to_slurm(graph, tmp_path):
    """A job that was cancelled must not come back."""
    cluster = Cluster(tmp_path, plimsoll('slurm', '--time', 60, 'train', graph, *LONG, cwd=tmp_path).stdout)
    job = cluster.start()
    run = tmp_path / 'runs' / 'graph-gcn-7'
    wait_for(run / 'metrics.jsonl', '"epoch":5,', job)
    job.terminate()
    assert 'saved' in job.communicate(timeout=1200)[0]
    assert job.returncode == 75 and cluster.asked() == []
    assert (run / 'last.safetensors').exists()


def test_it_stops_queueing_itself(graph, tmp_path):
    cluster = Cluster(tmp_path, plimsoll('slurm', '--time', 60, 'train', graph, *LONG, cwd=tmp_path).stdout)
    cluster.restarts = 100
    job = cluster.start()
    wait_for(tmp_path / 'runs' / 'graph-gcn-7' / 'metrics.jsonl', '"epoch":5,', job)
    job.send_signal(signal.SIGUSR1)
    job.communicate(timeout=1200)
    assert job.returncode == 75 and cluster.asked() == []


def test_other_ends_are_passed_on(graph, tmp_path):
    script = plimsoll('slurm', '--time', 60, 'train', graph, '--epochs', 1, '--run', tmp_path / 'run').stdout
    cluster = Cluster(tmp_path, script.replace('--resume', '--no-such-option'))
    job = cluster.start()
    job.communicate(timeout=1200)
    assert job.returncode == 2 and cluster.asked() == []


def test_the_dataset_is_staged(graph, tmp_path):
    """To a new directory of the job, which goes at the end; where that cannot be, the dataset is read in its place."""
    disk = tmp_path / "node's disk"
    (disk / 'sub dir' / 'plimsoll-7').mkdir(parents=True)  # somebody's, under a name that can be guessed
    words = ['train', graph, '--epochs', 1, '--quiet', '--run', tmp_path / 'run']
    script = plimsoll('slurm', '--time', 60, '--stage', '$NODE_DISK/sub dir', *words).stdout
    check(script)
    seen = tmp_path / 'seen'
    wrapper = tmp_path / 'wrapper'
    wrapper.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {seen}\nstat -c %a "${{2#--stage=}}" >> {seen}\n{PLIMSOLL} "$@"\n')
    wrapper.chmod(0o755)
    cluster = Cluster(tmp_path, re.sub('^plimsoll=.*', f'plimsoll={wrapper}', script, flags=re.M))
    job = cluster.start(NODE_DISK=str(disk))
    assert 'read where it is' not in job.communicate(timeout=1200)[0] and job.returncode == 0
    words = seen.read_text().splitlines()
    assert re.fullmatch(rf'--stage={re.escape(str(disk))}/sub dir/plimsoll-7-\w+', words[1]) and words[-1] == '700'
    assert json.loads((tmp_path / 'run' / 'run.json').read_text())['dataset']['path'] == str(graph)
    assert [path.name for path in (disk / 'sub dir').iterdir()] == ['plimsoll-7']
    (tmp_path / 'file').write_text('')
    job = cluster.start(NODE_DISK=str(tmp_path / 'file'))
    assert 'read where it is' in job.communicate(timeout=1200)[0] and job.returncode == 0
    words = ['train', graph, '--epochs', 1, '--quiet', '--run', tmp_path / 'run']
    literal = plimsoll('slurm', '--time', 60, '--stage', '/tmp/$(id) x', *words).stdout
    check(literal)
    assert "stage='/tmp/$(id) x'" in literal


def test_any_program_with_what_it_asks_of_slurm(tmp_path):
    given = {'gres': 'gpu:1', 'partition': 'gpu', 'account': 'physics', 'qos': 'high', 'output': 'out/%j/%x.log', 'mail': 'a@b.example'}
    words = [word for name, value in given.items() for word in (f'--{name}', value)]
    done = plimsoll('slurm', '--memory', '8G', '--time', '2:00:00', *words, '--setup', 'export WORD=$HOME', '--setup', 'true', '--',
                    'python', 'train.py', '--name', "it's", cwd=tmp_path)
    script = done.stdout
    assert 'out/%j/%x.log' in done.stderr  # a directory that nobody can make before the job has its number
    for name, value in given.items():
        assert request(script, 'mail-user' if name == 'mail' else name) == value
    assert request(script, 'mem') == '8192M' and (tmp_path / 'out').is_dir() is False
    assert script.index('export WORD=$HOME\ntrue\n') < script.index('expandable_segments:True') < script.index('watch --out')
    assert 'gres' not in plimsoll('slurm', '--memory', '8G', '--time', '2:00:00', '--', 'true', cwd=tmp_path).stdout
    assert (tmp_path / 'logs').is_dir()  # of --output by default, which Slurm does not make
    plimsoll('slurm', '--memory', '8G', '--time', '5', '--output', 'a/b/c/%j.out', '--', 'true', cwd=tmp_path)
    assert (tmp_path / 'a' / 'b' / 'c').is_dir()
    plimsoll('slurm', '--memory', '8G', '--time', '5', '--output', '/proc/none/%j.out', '--', 'true', cwd=tmp_path)  # it may be another machine's
    plimsoll('slurm', '--time', '5', '--output', 'refused/%j.out', '--', 'true', code=2, cwd=tmp_path)
    assert not (tmp_path / 'refused').exists()
    for wrong in ['--partition', 'a b'], ['--gres', 'x\n#SBATCH --mem=1'], ['--setup', 'a\nb'], ['--qos', '']:
        plimsoll('slurm', '--memory', '8G', '--time', '5', *wrong, '--', 'true', code=2, cwd=tmp_path)


def test_the_program_runs_under_watch_with_its_words(tmp_path):
    script = plimsoll('slurm', '--memory', '1G', '--time', '5', '--setup', 'export WORD=set', '--', 'bash', '-c', 'echo "$WORD|$1|$2" > seen', 'x', 'a b', "it's",
                      cwd=tmp_path).stdout
    done = subprocess.run(['bash', '-s'], input=script, text=True, capture_output=True, env={**os.environ, 'SLURM_JOB_ID': '7'}, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / 'seen').read_text() == "set|a b|it's\n" and (tmp_path / 'watch-7' / 'timeline.jsonl').exists()
    like = plimsoll('slurm', '--like', tmp_path / 'watch-7', '--time', '5', '--', 'true', cwd=tmp_path).stdout
    asked = json.loads(plimsoll('doctor', tmp_path / 'watch-7', '--json').stdout)['next_mem_bytes']
    assert request(like, 'mem') == f'{asked // MIB}M' and '--mem and --time: as given' not in like
    (tmp_path / 'empty').write_text('')
    plimsoll('slurm', '--like', tmp_path / 'empty', '--time', '5', '--', 'true', code=2, cwd=tmp_path)


def test_a_shape_before_there_is_data(tmp_path):
    script = plimsoll('slurm', '--time', '1:00:00', '--memory', '4G', 'train', 'papers100M', '--model', 'sage', cwd=tmp_path).stdout
    planned = json.loads(plimsoll('slurm', '--time', '1:00:00', '--memory', '4G', '--json', 'train', 'papers100M', cwd=tmp_path).stdout)
    assert request(script, 'mem') == '4096M' and planned['memory_bytes'] == 4096 * MIB
    plimsoll('slurm', '--time', '1:00:00', 'train', 'nothing', code=2, cwd=tmp_path)
