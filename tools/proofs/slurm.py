"""Proves on a real Slurm that a job of `plimsoll slurm train` continues, and that the doctor knows Slurm's deaths.

    tools/prove slurm [--ranks | --accounting | --scripts] [--python PYTHON] [--json FILE] [--keep]

Starts munge and a Slurm of two nodes on this machine, all of it in a temporary directory, and ends both again.
Training: a script that `plimsoll slurm train` printed is submitted; Slurm signals it before its time limit, and once more in the middle of an epoch; it queues itself again each
time. A second one is preempted by a job of a better partition, and Slurm requeues it. Both must end with the weights of an undisturbed run, byte for byte. A third is
cancelled: it must save its run and stay cancelled.
Scripts (alone with --scripts): `plimsoll slurm` with all that it asks of Slurm around any program, on nodes with one GPU each by a gres of count 1; with the memory of a rehearsal,
of a watched run and of `plan --for pyg`; for a shape before its data is there; and the batch files beside examples/python/papers.py and molecules.py, one of them requeued.
Deaths: jobs die of --mem, of --time, by scancel and by preemption, and `plimsoll doctor JOBID` must name the cause; a job that just ends well must cause no alarm.
--ranks: scripts of `plimsoll slurm train --ranks 2` instead, over both nodes, by srun --mpi=pmix (Open MPI) and --mpi=pmi2 (MPICH). One is signalled in the middle of
an epoch, queues itself again and ends; another is not queued again, and submitted once more for one node alone. All must end with the weights of one process with as many shares.
--accounting: the deaths alone and --qos, but with slurmdbd and MariaDB, so that sacct answers; and a job array, of which the doctor examines each task. Five minutes.
--scripts: the scripts of any program alone. Needs root, a writable cgroup v1 memory controller, and Debian's slurm-wlm and munge; --ranks also openmpi-bin and mpich, --accounting slurmdbd and mariadb-server. Half an hour,
--scripts alone two minutes; results: bench/results/slurm.json, slurm-ranks.json, slurm-accounting.json, slurm-scripts.json. Scripts also need a PYTHON with torch and
torch_geometric, and the real data of ogbg_molesol.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import prooflib
from slurmlib import ACCOUNTING, GROUPS, PROGRAMS, Cluster

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
    number = cluster.submit(printed(cluster, 'slurm', '--memory', '100M', '--time', 5, '--qos', 'normal', '--', 'true'))
    cluster.wait_end(number)
    claims = {
        'a script of plimsoll slurm has the quality of service that was asked for': cluster.job(number)['QOS'] == 'normal',
        'sacct answers for the job that ran out of memory': any('OUT_OF_MEMORY|0:125' in row for row in facts['oom_slurm']['sacct']),
        'the doctor names the cause of each death by sacct\'s answer, and none in a job that ended well':
            all(printed['cause'] == name for name, printed in facts.items() if name != 'requeued') and facts['none']['outcome'] == 'finished',
        'each task of an array has its own verdict: ended well, out of memory, an error in Python':
            tasks['of_one_array'] and [one['cause'] for one in tasks['array']] == ['none', 'oom_slurm', 'python_error'] and tasks['task_alone'] == 'oom_slurm'}
    return claims, {**facts, **tasks}


PROGRAM = """import json, os, sys
names = ('CUDA_VISIBLE_DEVICES', 'PYTORCH_CUDA_ALLOC_CONF', 'WORD')
kept = os.urandom(int(sys.argv[1]) << 20)
print(json.dumps([sys.argv[2:], {name: os.environ.get(name) for name in names}]), flush=True)
"""
PYG = """import argparse, sys, torch
sys.path.insert(0, 'python')
from pyg_data import load_graphs
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool
graphs, split, _ = load_graphs('molesol')
model = GIN(graphs[0].num_features, 64, num_layers=3, out_channels=1)
optimizer = torch.optim.Adam(model.parameters())
for batch in DataLoader([graphs[i] for i in split['train']], batch_size=128):
    optimizer.zero_grad()
    out = global_mean_pool(model(batch.x.float(), batch.edge_index), batch.batch).view(-1)
    torch.nn.functional.mse_loss(out, batch.y.view(-1)).backward()
    optimizer.step()
"""
WANTED = {'gres': 'gpu:1', 'partition': 'high', 'account': 'physics', 'qos': 'normal', 'mail': 'ada@example'}
PAPERS = ['python', 'python/papers.py', 'papers', '--num_neighbors', '3 2', '--epochs', 1,
          '--batch_size', 2048, '--hidden_dim', 8192]


def printed(cluster, *words):
    """What plimsoll prints where the jobs are submitted."""
    done = prooflib.call(*words, cwd=cluster.work)
    assert done.returncode == 0, done.stderr
    return done.stdout


def request(script, name):
    return re.search(rf'^#SBATCH --{name}=(.*)$', script, re.MULTILINE).group(1)


def finish(cluster, number):
    """The end of a job whose script was printed: its state, and what its output says."""
    job, output = cluster.wait_end(number), cluster.output(number)
    return {'state': job['JobState'], **({} if job['JobState'] == 'COMPLETED' else {'output': output[-800:]})}


def asked(cluster):
    """Any program, with everything that can be asked of Slurm."""
    (cluster.work / 'program.py').write_text(PROGRAM)
    words = [word for name, value in WANTED.items() for word in (f'--{name}', value)]
    script = printed(cluster, 'slurm', '--memory', '400M', '--time', 5, *words, '--output', 'here/%x_%j.out',
                     '--setup', 'export WORD=set', '--', 'python', 'program.py', 150, 'a b', "it's")
    number = cluster.submit(script)
    fact = finish(cluster, number)
    job = cluster.job(number)
    fact.update(gres=job['TresPerNode'], partition=job['Partition'], account=job['Account'],
                mails=(cluster.work / 'mails').read_text().count('ada@example'))
    seen = re.search(r'^\[\[.*$', cluster.output(number), re.MULTILINE)
    fact['seen'] = json.loads(seen.group()) if seen else None
    return fact, cluster.work / f'watch-{number}'


def one_gpu_a_node(cluster):
    """Three jobs want a GPU each, by --gres and by --gpus; two nodes have one each."""
    numbers = [cluster.submit(printed(cluster, 'slurm', '--memory', '100M', '--time', 5, '--threads', 1, option,
                                      value, '--', 'sleep', 20))
               for option, value in (('--gres', 'gpu:1'), ('--gpus', 1), ('--gres', 'gpu:1'))]
    cluster.wait_state(numbers[1], 'RUNNING')
    time.sleep(3)
    jobs = [cluster.job(number) for number in numbers]
    return {'states': [job['JobState'] for job in jobs], 'reason': jobs[2].get('Reason'),
            'nodes': sorted(job['NodeList'] for job in jobs[:2]),
            'ends': [cluster.wait_end(number)['JobState'] for number in numbers]}


def with_memory(cluster, option, value, *program):
    """Runs a program with the memory that it is said to need."""
    script = printed(cluster, 'slurm', option, value, '--time', 10, '--threads', 2, '--', *program)
    return {'mem': request(script, 'mem'), **finish(cluster, cluster.submit(script))}


def rehearsed(cluster):
    """A rehearsal refuses a step before it starts; with the memory that it names the job runs."""
    script = printed(cluster, 'slurm', '--memory', '450M', '--time', 10, '--threads', 2, '--', *PAPERS)
    number = cluster.submit(script)
    refused, output = cluster.wait_end(number), cluster.output(number)
    fact = with_memory(cluster, '--like', cluster.job(number)['StdOut'], *PAPERS)
    return {'refused': refused['JobState'], 'named': re.findall(r'Slurm: --mem=(\w+)', output),
            'steps': output.count('Epoch 001'), **fact}


def before_data(cluster):
    """A script for a shape whose data is generated while the job waits."""
    script = printed(cluster, 'slurm', '--time', 10, '--threads', 2, 'train', 'arxiv', '--model', 'sage',
                     '--fanout', '5,5', '--epochs', 1, '--run', 'shaped')
    number = cluster.submit(script, '--hold')
    printed(cluster, 'generate', 'arxiv', 'arxiv', '--quiet')
    cluster.ask('scontrol', 'release', number)
    return {'mem': request(script, 'mem'), **finish(cluster, number),
            'epochs': len((cluster.work / 'shaped' / 'metrics.jsonl').read_text().splitlines())}


EPOCHS = 4
MOLECULES = prooflib.test_data() / 'graphs' / 'ogbg_molesol'


def epoch_lines(text):
    return re.findall(r'^(Epoch \d+ .*) \| Time: \d+s$', text, re.MULTILINE)


def examples(cluster):
    """The batch files beside the examples, with fewer epochs; papers.sbatch once more, requeued behind its second."""
    facts, place = {}, cluster.work / 'python'
    for name in ('papers', 'molecules', 'papers_requeued'):
        (place / f'{name}.pt').unlink(missing_ok=True)
        for left in place.glob('papers.pt*'):
            left.unlink()
        text = (place / f'{name.split("_")[0]}.sbatch').read_text()
        text = re.sub(r'--epochs \d+', f'--epochs {EPOCHS}', text)
        number = cluster.submit(text, f'--chdir={place}')
        if name == 'papers_requeued':
            cluster.wait('the second epoch', lambda n=number: len(epoch_lines(cluster.output(n))) >= 2)
            cluster.ask('scontrol', 'requeue', number)
            cluster.wait_restart(number, 1)
            cluster.ask('scontrol', 'update', f'JobId={number}', 'StartTime=now')
        facts[name] = finish(cluster, number)
        facts[name]['epochs'] = epoch_lines(cluster.output(number))
    whole, twice = facts['papers']['epochs'], facts['papers_requeued']['epochs']
    facts['papers_requeued']['same'] = whole == list(dict.fromkeys(twice))
    return {name: {**fact, 'epochs': len(fact['epochs'])} for name, fact in facts.items()}


def scripts(cluster):
    """The scripts of `plimsoll slurm` and of the examples, submitted: claims and facts."""
    shutil.copytree(prooflib.SOURCE / 'examples' / 'python', cluster.work / 'python')
    (cluster.work / 'pyg.py').write_text(PYG)
    printed(cluster, 'generate', 'papers100M', 'papers', '--scale', 0.0005, '--quiet')
    printed(cluster, 'import', MOLECULES, 'molesol', '--features', 'f32', '--symmetrise', '--quiet')
    for name in ('papers', 'molesol'):
        (cluster.work / 'python' / name).symlink_to(cluster.work / name)
    facts = {}
    facts['asked'], record = asked(cluster)
    facts['gpus'] = one_gpu_a_node(cluster)
    facts['like'] = with_memory(cluster, '--like', record, 'python', 'program.py', 150)
    facts['rehearsed'] = rehearsed(cluster)
    estimate = json.loads(printed(cluster, 'plan', 'molesol', '--model', 'gin', '--layers', 3, '--batch', 128,
                                  '--for', 'pyg', '--json'))
    facts['for_pyg'] = with_memory(cluster, '--memory', estimate['ask_bytes'], 'python', 'pyg.py')
    facts['before_data'] = before_data(cluster)
    facts.update(examples(cluster))
    for name, fact in facts.items():
        print(name, json.dumps(fact), flush=True)
    seen = [['a b', "it's"], {'CUDA_VISIBLE_DEVICES': '0', 'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True',
                              'WORD': 'set'}]
    wanted = [facts['asked'][name] for name in ('gres', 'partition', 'account')]

    def completed(name):
        return facts[name]['state'] == 'COMPLETED'
    return {
        'any program gets the GPU, partition, account, mail, output, setup and words that were asked for':
            completed('asked') and wanted == ['gres:gpu:1', 'high', 'physics'] and facts['asked']['seen'] == seen
            and facts['asked']['mails'] == 1,
        'with a gres of count 1 a node, two of three jobs run, on a node each, and the third waits for it':
            facts['gpus']['states'] == ['RUNNING', 'RUNNING', 'PENDING'] and facts['gpus']['nodes'] == ['n1', 'n2']
            and facts['gpus']['ends'] == ['COMPLETED'] * 3,
        'with the memory of a watched run it runs again': completed('like'),
        'what a rehearsal refuses before the first epoch runs with the memory that it names':
            facts['rehearsed']['refused'] == 'FAILED' and facts['rehearsed']['steps'] == 0 and completed('rehearsed'),
        'a script of PyG runs in what plan --for pyg says to ask for': completed('for_pyg'),
        'a script for a shape runs once its data is there': completed('before_data') and facts['before_data']['epochs'] == 1,
        'the examples\' own batch files run to their last epoch': completed('papers') and completed('molecules')
            and facts['papers']['epochs'] == facts['molecules']['epochs'] == EPOCHS,
        'papers.sbatch, requeued, continues behind the last whole epoch and prints the same epochs':
            completed('papers_requeued') and facts['papers_requeued']['same'],
    }, facts


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--ranks', action='store_true', help='prove trainings on two nodes together')
    parser.add_argument('--accounting', action='store_true', help='prove the doctor on answers of sacct')
    parser.add_argument('--scripts', action='store_true', help='prove the scripts of any program alone')
    parser.add_argument('--python', default=sys.executable, help='of the jobs: with torch and torch_geometric')
    parser.add_argument('--keep', action='store_true', help='keep the directory with configuration and logs')
    options = parser.parse_args()
    missing = [name for name in PROGRAMS + (ACCOUNTING if options.accounting else []) if shutil.which(name) is None]
    if os.geteuid() != 0 or missing or not (GROUPS / 'memory.limit_in_bytes').exists():
        prooflib.skip('needs root, a writable cgroup v1 memory controller, slurm-wlm and munge' + (f'; missing: {" ".join(missing)}' if missing else ''))
    if not options.ranks and not options.accounting:
        imported = subprocess.run([options.python, '-c', 'import torch_geometric'], capture_output=True, check=False)
        if imported.returncode != 0 or not MOLECULES.exists():
            prooflib.skip('the scripts of any program need a --python with torch and torch_geometric, and the data of ogbg_molesol')
    work = pathlib.Path(tempfile.mkdtemp(prefix='prove-slurm-'))
    work.chmod(0o755)
    cluster = Cluster(work, options.accounting, options.python)
    try:
        cluster.start()
        version = cluster.ask('sinfo', '--version').strip()
        if options.accounting:
            claims, facts = account(cluster)
            return 0 if prooflib.record(prooflib.result_path(options, 'slurm-accounting', True), claims, slurm=version, **facts) else 1
        if options.scripts:
            claims, facts = scripts(cluster)
            return 0 if prooflib.record(prooflib.result_path(options, 'slurm-scripts', True), claims, slurm=version, **facts) else 1
        if options.ranks:
            make_graph(cluster)
            facts = ranks(cluster)
            claims = {f'{name.replace("_", ", ")}: the job ends with the weights of one process': fact['state'] == 'COMPLETED' and fact['weights_equal']
                      for name, fact in facts.items()}
            claims['one of each MPI was stopped on two nodes and continued on one'] = all(
                facts[f'{mpi}_fewer']['stopped'] and facts[f'{mpi}_fewer']['nodes'] == '1' for mpi in ('pmix', 'pmi2'))
            path = prooflib.result_path(options, 'slurm-ranks', True)
            return 0 if prooflib.record(path, claims, slurm=version, **facts) else 1
        epochs, seconds, weights = prepare(cluster)
        print('undisturbed:', epochs, 'epochs,', round(seconds), 's', flush=True)
        facts = {}
        for name, prove in ('deaths', lambda: deaths(cluster)), ('cancelled', lambda: cancelled(cluster, epochs)), ('preempted', lambda: preempted(cluster, epochs, weights)), \
                ('signalled', lambda: signalled(cluster, epochs, weights)):
            facts[name] = prove()
            print(name, json.dumps(facts[name]), flush=True)
        submitted, facts['scripts'] = scripts(cluster)
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
        **submitted,
    }
    path = prooflib.result_path(options, 'slurm', True)
    return 0 if prooflib.record(path, claims, slurm=version, epochs=epochs, undisturbed_seconds=round(seconds, 1), **facts) else 1
