"""A Slurm of two nodes on this machine, with a GPU each by a gres of count 1: munge, slurmctld, two slurmd, and slurmdbd with MariaDB if asked for."""
import os
import pathlib
import re
import socket
import subprocess
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
GresTypes=gpu
MailProg={work}/mail
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
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs=4 RealMemory=8000 Gres=gpu:1 State=UNKNOWN
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


GRES_CONFIGURATION = 'NodeName=n[1-2] Name=gpu File=/dev/null\n'
MAIL = '#!/bin/sh\necho "$@" >> {work}/mails\n'


class Cluster:
    def __init__(self, work, accounting, python):
        self.work = work
        self.accounting = accounting
        self.daemons = []
        build = os.path.dirname(prooflib.plimsoll())
        path = os.pathsep.join([os.path.dirname(python), build, os.environ['PATH']])
        # Threads of torch that wait for each other take most of the time of small models.
        self.environment = dict(os.environ, SLURM_CONF=f'{work}/slurm.conf', PATH=path, PYTHONPATH=f'{build}/python', OMP_NUM_THREADS='1')
        for name in ('state', 'spool-n1', 'spool-n2', 'tmp-n1', 'tmp-n2'):
            (work / name).mkdir()
        (work / 'munge.key').write_bytes(os.urandom(1024))
        (work / 'munge.key').chmod(0o400)
        (work / 'slurm.conf').write_text((CONFIGURATION + accounting * ACCOUNTING_CONFIGURATION).format(host=socket.gethostname(), work=work))
        (work / 'cgroup.conf').write_text(GROUP_CONFIGURATION)
        (work / 'gres.conf').write_text(GRES_CONFIGURATION)
        (work / 'mail').write_text(MAIL.format(work=work))
        (work / 'mail').chmod(0o755)

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
        path = pathlib.Path(self.job(number).get('StdOut', 'none'))
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
