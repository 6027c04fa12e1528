"""Proves on a real Slurm that a job of `plimsoll slurm train` continues, and that the doctor knows Slurm's deaths.

    tools/prove slurm [--ranks | --accounting] [--json FILE] [--keep]

Starts munge and a Slurm of two nodes on this machine, all of it in a temporary directory, and ends both again.
Training: a script that `plimsoll slurm train` printed is submitted; Slurm signals it before its time limit, and once more in the middle of an epoch; it queues itself again each
time. A second one is preempted by a job of a better partition, and Slurm requeues it. Both must end with the weights of an undisturbed run, byte for byte. A third is
cancelled: it must save its run and stay cancelled.
Deaths: jobs die of --mem, of --time, by scancel and by preemption, and `plimsoll doctor JOBID` must name the cause; a job that just ends well must cause no alarm.
--ranks: scripts of `plimsoll slurm train --ranks 2` instead, over both nodes, by srun --mpi=pmix (Open MPI) and --mpi=pmi2 (MPICH). One is signalled in the middle of
an epoch, queues itself again and ends; another is not queued again, and submitted once more for one node alone. All must end with the weights of one process with as many shares.
--accounting: the deaths alone, but with slurmdbd and MariaDB, so that sacct answers; and a job array, of which the doctor examines each task. Five minutes.
Needs root, a writable cgroup v1 memory controller, and Debian's slurm-wlm and munge; --ranks also openmpi-bin and mpich, --accounting slurmdbd and mariadb-server. A quarter of an hour;
results: bench/results/slurm.json, slurm-ranks.json, slurm-accounting.json.
"""
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time

import prooflib

GROUPS = pathlib.Path('/sys/fs/cgroup/memory')
PROGRAMS = ['munged', 'slurmctld', 'slurmd', 'sbatch', 'scontrol', 'scancel', 'sinfo']
ACCOUNTING = ['slurmdbd', 'sacct', 'sacctmgr', 'mariadbd', 'mariadb', 'mariadb-install-db']
ENDED = ('COMPLETED', 'FAILED', 'TIMEOUT', 'CANCELLED', 'OUT_OF_MEMORY', 'NODE_FAIL', 'PREEMPTED')
CONFIGURATION = '''
ClusterName=proof
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
AuthInfo=socket={work}/munge.socket,cred_expire=15
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
InactiveLimit=0
KillWait=30
StateSaveLocation={work}/state
SlurmctldPidFile={work}/slurmctld.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdSpoolDir={work}/spool-%n
SlurmdPidFile={work}/slurmd-%n.pid
SlurmdLogFile={work}/slurmd-%n.log
TmpFS={work}/tmp-%n
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=2 RealMemory=4000 State=UNKNOWN
PartitionName=low Nodes=ALL Default=YES State=UP PriorityTier=1
PartitionName=high Nodes=ALL State=UP PriorityTier=10
'''
ACCOUNTING_CONFIGURATION = '''
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=localhost
AccountingStoragePort=17003
AccountingStoragePass={work}/munge.socket
JobAcctGatherFrequency=1
'''
DATABASE_CONFIGURATION = '''
AuthType=auth/munge
AuthInfo=socket={work}/munge.socket
DbdHost=localhost
DbdPort=17003
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=17004
StorageUser=slurm
StoragePass=slurm
LogFile={work}/slurmdbd.log
PidFile={work}/slurmdbd.pid
'''
DATABASE = "CREATE DATABASE slurm_acct_db; CREATE USER slurm@127.0.0.1 IDENTIFIED BY 'slurm'; GRANT ALL ON slurm_acct_db.* TO slurm@127.0.0.1;"
GROUP_CONFIGURATION = '''
CgroupPlugin=cgroup/v1
CgroupAutomount=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
ConstrainCores=no
'''


class Cluster:
    def __init__(self, work, accounting):
        self.work = work
        self.accounting = accounting
        self.daemons = []
        self.environment = dict(os.environ, SLURM_CONF=f'{work}/slurm.conf')
        for name in ('state', 'spool-n1', 'spool-n2', 'tmp-n1', 'tmp-n2'):
            (work / name).mkdir()
        (work / 'munge.key').write_bytes(os.urandom(1024))
        (work / 'munge.key').chmod(0o400)
        (work / 'slurm.conf').write_text((CONFIGURATION + accounting * ACCOUNTING_CONFIGURATION).format(host=socket.gethostname(), work=work))
        (work / 'cgroup.conf').write_text(GROUP_CONFIGURATION)

    def start(self):
        self.daemon('munged', '--foreground', '--force', *(f'--{name}-file={self.work}/munge.{name}' for name in ('key', 'pid', 'log', 'seed')),
                    f'--socket={self.work}/munge.socket')
        self.wait('munge', lambda: (self.work / 'munge.socket').exists())
        if self.accounting:
            self.start_accounting()
        self.daemon('slurmctld', '-D')
        for node in ('n1', 'n2'):
            self.daemon('slurmd', '-D', '-N', node)
        self.wait('two idle nodes', lambda: self.ask('sinfo', '-h', '-o', '%D %t', '-p', 'low').split() == ['2', 'idle'])

    def start_accounting(self):
        base, door = ['--no-defaults', f'--datadir={self.work}/database', '--user=root'], self.work / 'database.socket'
        subprocess.run(['mariadb-install-db', *base, '--auth-root-authentication-method=normal'], check=True, capture_output=True)
        self.daemon('mariadbd', *base, f'--socket={door}', '--port=17004', '--bind-address=127.0.0.1', '--skip-name-resolve')
        self.wait('the database', door.exists)
        subprocess.run(['mariadb', '--no-defaults', '-S', door, '-e', DATABASE], check=True)
        (self.work / 'slurmdbd.conf').write_text(DATABASE_CONFIGURATION.format(work=self.work))
        (self.work / 'slurmdbd.conf').chmod(0o600)
        self.daemon('slurmdbd', '-D')
        self.wait('slurmdbd', lambda: 'proof' in self.ask('sacctmgr', '-i', '-n', 'add', 'cluster', 'proof') + self.ask('sacctmgr', '-n', 'list', 'cluster'))

    def daemon(self, *words):
        log = open(self.work / f'{words[0]}-{len(self.daemons)}.out', 'wb')  # its own
        self.daemons.append(subprocess.Popen(words, env=self.environment, stdout=log, stderr=log))

    def end(self):
        for job in self.ask('squeue', '-h', '-o', '%A').split():
            self.ask('scancel', job)
        deadline = time.monotonic() + 60
        while self.ask('squeue', '-h', '-o', '%A').split() and time.monotonic() < deadline:
            time.sleep(0.5)
        for daemon in reversed(self.daemons):
            daemon.terminate()
            daemon.wait()
        for controller in pathlib.Path('/sys/fs/cgroup').iterdir():
            for group in sorted(controller.glob('slurm_n[12]/**/'), key=lambda path: -len(path.parts)):
                try:
                    group.rmdir()
                except OSError:
                    pass  # a controller that Slurm did not use, or a mount of another one

    def ask(self, *words):
        return subprocess.run(list(map(str, words)), env=self.environment, capture_output=True, text=True, check=False, cwd=self.work).stdout

    def wait(self, what, holds, seconds=900):
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f'waited {seconds} s for {what}')
            time.sleep(0.2)

    def submit(self, script, *words):
        """The number of a new job."""
        done = subprocess.run(['sbatch', '--parsable', *map(str, words)], input=script, env=self.environment, cwd=self.work,
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip().split(';')[0]

    def job(self, number):
        """The fields of a job as scontrol shows them."""
        return dict(re.findall(r'(\w+)=(\S*)', self.ask('scontrol', 'show', 'job', number)))

    def output(self, number):
        path = self.work / f'slurm-{number}.out'
        return path.read_text(errors='replace') if path.exists() else ''

    def wait_restart(self, number, restarts):
        def happened():
            job = self.job(number)
            if job['JobState'] in ENDED and int(job['Restarts']) < restarts:
                raise RuntimeError(f'job {number} ended before restart {restarts}')
            return int(job['Restarts']) >= restarts
        self.wait(f'restart {restarts} of job {number}', happened)

    def wait_state(self, number, *states):
        self.wait(f'job {number}: {states}', lambda: self.job(number).get('JobState') in states)

    def wait_end(self, number):
        self.wait_state(number, *ENDED)
        return self.job(number)


TRAINING = ['--model', 'sage', '--hidden', 128, '--batch', 64, '--fanout', '15,10', '--seed', 3, '--eval-every', 0]
SECONDS = 75  # of an undisturbed run, about


def print_script(work, run, epochs, *words):
    if '--time' not in words:
        words = ('--time', 60, *words)
    done = prooflib.call('slurm', '--threads', 2, *words, 'train', 'graph', *TRAINING, '--epochs', epochs, '--run', run, cwd=work)
    assert done.returncode == 0, done.stderr
    return done.stdout


def train(cluster, run, epochs):
    """The seconds of an undisturbed job."""
    number = cluster.submit(print_script(cluster.work, run, epochs))
    cluster.wait_state(number, 'RUNNING')
    began = time.monotonic()
    job = cluster.wait_end(number)
    assert job['JobState'] == 'COMPLETED' and job['Restarts'] == '0', cluster.output(number)
    return time.monotonic() - began


def prepare(cluster):
    """A dataset; the number of epochs, the seconds and the weights of an undisturbed run on it."""
    make_graph(cluster)
    epochs = max(10, min(1000, round(SECONDS / (train(cluster, 'trial', 4) / 4))))
    seconds = train(cluster, 'undisturbed', epochs)
    return epochs, seconds, (cluster.work / 'undisturbed' / 'last.safetensors').read_bytes()


def make_graph(cluster):
    done = prooflib.call('generate', 'free', cluster.work / 'graph', '--nodes', 60000, '--edges', 1200000, '--features', 64, '--classes', 8, '--quiet')
    assert done.returncode == 0, done.stderr


def wait_in_epoch(cluster, run, number, share=0.5):
    """Waits for the end of the next epoch, and for part of the one after it."""
    metrics = cluster.work / run / 'metrics.jsonl'

    def epochs():
        return metrics.read_text().count('\n') if metrics.exists() else 0
    before = epochs()
    cluster.wait('an epoch', lambda: epochs() > before)
    began, first = time.monotonic(), epochs()
    cluster.wait('the next epoch', lambda: epochs() > first or cluster.job(number)['JobState'] != 'RUNNING')
    time.sleep(share * (time.monotonic() - began))


def stops(text):
    """Where the saved runs of an output stopped: (epoch, step, steps of the epoch)."""
    return [tuple(map(int, found)) for found in re.findall(r'stopped (?:at|in) epoch (\d+),? (?:at )?step (\d+) of (\d+)', text)]


def signalled(cluster, epochs, weights):
    """Slurm's signal before the time limit, then one in the middle of an epoch."""
    number = cluster.submit(print_script(cluster.work, 'signalled', epochs), '--time=3', '--signal=B:USR1@170')  # it comes within half a minute
    cluster.wait_restart(number, 1)
    by_slurm = stops(cluster.output(number))
    cluster.ask('scontrol', 'update', f'JobId={number}', 'TimeLimit=60')
    cluster.wait_state(number, 'RUNNING')
    wait_in_epoch(cluster, 'signalled', number)
    cluster.ask('scancel', '--signal=USR1', '--batch', number)
    cluster.wait_restart(number, 2)
    job = cluster.wait_end(number)
    same = (cluster.work / 'signalled' / 'last.safetensors').read_bytes() == weights
    return {'state': job['JobState'], 'restarts': int(job['Restarts']), 'stopped_by_slurm': by_slurm, 'stops': stops(cluster.output(number)), 'weights_equal': same}


def preempted(cluster, epochs, weights):
    """A job of a better partition takes the node from it; Slurm requeues it."""
    number = cluster.submit(print_script(cluster.work, 'preempted', epochs))
    cluster.wait_state(number, 'RUNNING')
    wait_in_epoch(cluster, 'preempted', number)
    better = cluster.submit('#!/bin/sh\nsleep 5\n', '-p', 'high', '-N2', '--exclusive', '--mem=0')
    cluster.wait_restart(number, 1)
    cluster.wait_end(better)
    job = cluster.wait_end(number)
    same = (cluster.work / 'preempted' / 'last.safetensors').read_bytes() == weights
    return {'state': job['JobState'], 'restarts': int(job['Restarts']), 'stops': stops(cluster.output(number)), 'weights_equal': same}


def cancelled(cluster, epochs):
    number = cluster.submit(print_script(cluster.work, 'cancelled', epochs))
    cluster.wait_state(number, 'RUNNING')
    wait_in_epoch(cluster, 'cancelled', number)
    cluster.ask('scancel', number)
    cluster.wait_end(number)
    time.sleep(30)  # would it come back?
    job = cluster.job(number)
    return {'state': job['JobState'], 'restarts': int(job['Restarts']), 'stops': stops(cluster.output(number)),
            'saved': (cluster.work / 'cancelled' / 'last.safetensors').exists()}


def ranks(cluster):
    """Two ranks on two nodes, with each MPI."""
    epochs, facts = 12, {}
    done = prooflib.call('train', 'graph', *TRAINING, '--epochs', epochs, '--shares', 2, '--run', 'alone', cwd=cluster.work)
    assert done.returncode == 0, done.stderr
    weights = prooflib.read_safetensors(cluster.work / 'alone' / 'last.safetensors')['digest']

    def start(mpi, run, *words):
        script = print_script(cluster.work, run, epochs, '--ranks', 2).replace('mpi=pmix', f'mpi={mpi}')
        return script, cluster.submit(script, *words)

    def end(run, number, **more):
        job = cluster.wait_end(number)
        last = cluster.work / run / 'last.safetensors'
        return {'state': job['JobState'], 'nodes': job['NumNodes'], 'restarts': int(job['Restarts']), 'stops': stops(cluster.output(number)),
                'weights_equal': last.exists() and prooflib.read_safetensors(last)['digest'] == weights,
                **({} if job['JobState'] == 'COMPLETED' else {'said': cluster.output(number)[-800:]}), **more}

    def stop(run, number):
        cluster.wait_state(number, 'RUNNING')
        wait_in_epoch(cluster, run, number)
        cluster.ask('scancel', '--signal=USR1', '--batch', number)

    for mpi in ('pmix', 'pmi2'):
        _, number = start(mpi, f'{mpi}-requeued')
        stop(f'{mpi}-requeued', number)
        cluster.wait_restart(number, 1)
        facts[f'{mpi}_requeued'] = end(f'{mpi}-requeued', number)
        script, number = start(mpi, f'{mpi}-fewer', '--no-requeue')
        stop(f'{mpi}-fewer', number)
        first = end(f'{mpi}-fewer', number)
        facts[f'{mpi}_fewer'] = end(f'{mpi}-fewer', cluster.submit(script, '--nodes=1'), stopped=first['stops'])
        print(mpi, json.dumps({name: fact for name, fact in facts.items() if name.startswith(mpi)}), flush=True)
    return facts


LEAK = """exec python3 -S -c '
b = []
while True:
    b.append(bytearray(1 << 20))'
"""


def doctor(cluster, *words):
    """What `plimsoll doctor` says, asked where the job was submitted."""
    done = subprocess.run([prooflib.plimsoll(), 'doctor', '--json', *words], env=cluster.environment, cwd=cluster.work, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    return {'outcome': printed['outcome'], 'cause': printed['cause'], 'confidence': printed['confidence'], 'summary': printed['summary']}


def deaths(cluster, with_rows=False):
    """The verdict on each death, and the state that Slurm shows; and sacct's rows."""
    def submit(script, *words):
        return cluster.submit('#!/bin/bash\n' + script, '--cpus-per-task=1', '--mem=100M', *words)
    jobs = {'oom_slurm': submit(LEAK), 'time_limit': submit('sleep 600\n', '--time=1'), 'cancelled': submit('echo epoch 1; sleep 600\n'),
            'none': submit('echo epoch 1; sleep 1; echo done\n')}
    cluster.wait('a line', lambda: 'epoch 1' in cluster.output(jobs['cancelled']))
    cluster.ask('scancel', jobs['cancelled'])
    for number in jobs.values():
        cluster.wait_end(number)
    for name, requeue in ('preempted', '--no-requeue'), ('requeued', '--requeue'):
        jobs[name] = submit('echo epoch 1; sleep 20\n', requeue, '--open-mode=append')
        cluster.wait('a line', lambda number=jobs[name]: 'epoch 1' in cluster.output(number))
        better = cluster.submit('#!/bin/sh\nsleep 1\n', '-p', 'high', '-N2', '--exclusive', '--mem=0')
        cluster.wait_end(better)
        if name == 'preempted':
            cluster.wait_end(jobs[name])
    facts = {name: {'state': cluster.job(number)['JobState'], **doctor(cluster, number), **({'sacct': sacct(cluster, number)} if with_rows else {})}
             for name, number in jobs.items() if name != 'requeued'}
    number = jobs['requeued']  # Slurm starts it again: the verdict is on what its log has
    facts['requeued'] = {'state': cluster.job(number)['JobState'], **doctor(cluster, f'slurm-{number}.out')}
    return facts


def array(cluster):
    """What the doctor says of each task of an array, of which one leaks and one fails."""
    script = '#!/bin/bash\ncase $SLURM_ARRAY_TASK_ID in 1) echo epoch 1; exit 0 ;; 2) ' + LEAK + ' ;; *) python3 -S -c "raise ValueError(3)" ;; esac\n'
    number = cluster.submit(script, '--array=1-3', '--cpus-per-task=1', '--mem=100M')
    cluster.wait('the array', lambda: not cluster.ask('squeue', '-h', '-j', number).split())
    time.sleep(2)  # slurmdbd's last rows
    done = subprocess.run([prooflib.plimsoll(), 'doctor', '--json', number], env=cluster.environment, cwd=cluster.work, capture_output=True, text=True, check=False)
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    alone = doctor(cluster, f'{number}_2')
    return {'array': [{key: one.get(key) for key in ('task', 'outcome', 'cause', 'confidence')} for one in printed], 'task_alone': alone['cause'],
            'of_one_array': all(one.get('task') == f'{number}_{i + 1}' for i, one in enumerate(printed)), 'sacct': sacct(cluster, number)}


def sacct(cluster, number):
    return cluster.ask('sacct', '-P', '-n', '-o', 'JobID,State,ExitCode,DerivedExitCode,ReqMem,MaxRSS,Elapsed,Timelimit,NTasks', '-j', number).splitlines()


def account(cluster):
    """Deaths as sacct tells them."""
    facts = deaths(cluster, with_rows=True)
    tasks = array(cluster)
    claims = {
        'sacct answers for the job that ran out of memory': any('OUT_OF_MEMORY|0:125' in row for row in facts['oom_slurm']['sacct']),
        'the doctor names the cause of each death by sacct\'s answer, and none in a job that ended well':
            all(printed['cause'] == name for name, printed in facts.items() if name != 'requeued') and facts['none']['outcome'] == 'finished',
        'each task of an array has its own verdict: ended well, out of memory, an error in Python':
            tasks['of_one_array'] and [one['cause'] for one in tasks['array']] == ['none', 'oom_slurm', 'python_error'] and tasks['task_alone'] == 'oom_slurm'}
    return claims, {**facts, **tasks}


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--ranks', action='store_true', help='prove trainings on two nodes together')
    parser.add_argument('--accounting', action='store_true', help='prove the doctor on answers of sacct')
    parser.add_argument('--keep', action='store_true', help='keep the directory with configuration and logs')
    options = parser.parse_args()
    missing = [name for name in PROGRAMS + (ACCOUNTING if options.accounting else []) if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not (GROUPS / 'memory.limit_in_bytes').exists():
        prooflib.skip('needs root, a writable cgroup v1 memory controller, slurm-wlm and munge' + (f'; missing: {" ".join(missing)}' if missing else ''))
    work = pathlib.Path(tempfile.mkdtemp(prefix='prove-slurm-'))
    work.chmod(0o755)
    cluster = Cluster(work, options.accounting)
    try:
        cluster.start()
        version = cluster.ask('sinfo', '--version').strip()
        if options.accounting:
            claims, facts = account(cluster)
            return 0 if prooflib.record(options.json or prooflib.RESULTS / 'slurm-accounting.json', claims, slurm=version, **facts) else 1
        if options.ranks:
            make_graph(cluster)
            facts = ranks(cluster)
            claims = {f'{name.replace("_", ", ")}: the job ends with the weights of one process': fact['state'] == 'COMPLETED' and fact['weights_equal']
                      for name, fact in facts.items()}
            claims['one of each MPI was stopped on two nodes and continued on one'] = all(
                facts[f'{mpi}_fewer']['stopped'] and facts[f'{mpi}_fewer']['nodes'] == '1' for mpi in ('pmix', 'pmi2'))
            path = options.json or prooflib.RESULTS / 'slurm-ranks.json'
            return 0 if prooflib.record(path, claims, slurm=version, **facts) else 1
        epochs, seconds, weights = prepare(cluster)
        print('undisturbed:', epochs, 'epochs,', round(seconds), 's', flush=True)
        facts = {}
        for name, prove in ('deaths', lambda: deaths(cluster)), ('cancelled', lambda: cancelled(cluster, epochs)), ('preempted', lambda: preempted(cluster, epochs, weights)), \
                ('signalled', lambda: signalled(cluster, epochs, weights)):
            facts[name] = prove()
            print(name, json.dumps(facts[name]), flush=True)
    finally:
        cluster.end()
        if not options.keep:
            shutil.rmtree(work)

    def in_epoch(fact):
        return any(0 < step < steps for _, step, steps in fact['stops'])
    claims = {
        'Slurm signals the job before its time limit; it saves, queues itself again and continues; signalled in mid-epoch, too; the weights equal an undisturbed run\'s':
            facts['signalled']['state'] == 'COMPLETED' and facts['signalled']['restarts'] >= 2 and bool(facts['signalled']['stopped_by_slurm'])
            and in_epoch(facts['signalled']) and facts['signalled']['weights_equal'],
        'preempted in mid-epoch, requeued by Slurm, it ends with the weights of an undisturbed run':
            facts['preempted']['state'] == 'COMPLETED' and facts['preempted']['restarts'] >= 1 and in_epoch(facts['preempted']) and facts['preempted']['weights_equal'],
        'cancelled, it saves its run and does not come back':
            facts['cancelled']['state'] == 'CANCELLED' and facts['cancelled']['restarts'] == 0 and facts['cancelled']['saved'],
        'the doctor names the cause of each death: out of memory, time-out, scancel, preemption with and without a requeue; and none in a job that ended well':
            all(printed['cause'] == name for name, printed in facts['deaths'].items() if name != 'requeued')
            and facts['deaths']['requeued']['cause'] in ('preempted', 'requeued') and facts['deaths']['none']['outcome'] == 'finished',
    }
    path = options.json or prooflib.RESULTS / 'slurm.json'
    return 0 if prooflib.record(path, claims, slurm=version, epochs=epochs, undisturbed_seconds=round(seconds, 1), **facts) else 1
