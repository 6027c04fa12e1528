"""Several texts together: cause told from consequence, no false alarms, Slurm's answers, hostile bytes, directories, timelines."""
import json
import os
import pathlib
import resource
import stat
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20


def run(*words, **options):
    done = subprocess.run([PLIMSOLL, 'doctor', *map(str, words)], capture_output=True, check=False, timeout=1500, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def doctor(text, *words):
    return json.loads(run('-', '--json', *words, input=text if isinstance(text, bytes) else text.encode()))


def examine(*words, **options):
    return json.loads(run(*words, '--json', **options))


KERNEL = '''[ 3134.1] python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
[ 3134.2] memory: usage 262144kB, limit 262144kB, failcnt 81
[ 3134.3] Memory cgroup stats for /job:
[ 3134.3] cache 0
[ 3134.3] rss 267776000
[ 3134.3] shmem {shmem}
[ 3134.4] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/job,task_memcg=/job,task={name},pid=25353,uid=0
[ 3134.4] Memory cgroup out of memory: Killed process 25353 ({name}) total-vm:275416kB, anon-rss:{anon}kB, file-rss:6612kB, shmem-rss:0kB, UID:0
'''
WORKER = '''Epoch 1 loss 0.5
Traceback (most recent call last):
  File "loader.py", line 1, in rebuild_storage_fd
ConnectionResetError: [Errno 104] Connection reset by peer

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 9, in <module>
RuntimeError: DataLoader worker (pid(s) 24864) exited unexpectedly
'''


def test_a_kernel_log_has_limit_and_victim():
    found = doctor(KERNEL.format(shmem=0, name='python3', anon=261376))
    assert (found['cause'], found['confidence'], found['outcome']) == ('oom_cgroup', 'proven', 'died')
    assert found['figures']['limit_bytes'] == 256 * MIB and found['figures']['victim_bytes'] == 261376 << 10
    assert found['next_mem_bytes'] > 256 * MIB


def test_small_victims_and_much_shared_memory_are_tmpfs():
    found = doctor(KERNEL.format(shmem=266256384, name='bash', anon=256))
    assert found['cause'] == 'oom_tmpfs' and '/dev/shm' in found['advice'][0]['change']


def test_a_workers_death_is_the_kernels():
    found = doctor(WORKER + KERNEL.format(shmem=0, name='python3', anon=261376))
    assert found['cause'] == 'oom_cgroup'
    assert any('DataLoader' in one['text'] for one in found['consequences'])


def test_a_workers_death_without_a_reason():
    found = doctor(WORKER)
    assert found['cause'] == 'worker_exit' and found['unknown'] is not None
    killed = doctor(WORKER.replace('(pid(s) 24864) exited unexpectedly', '(pid 24864) is killed by signal: Killed. '))
    assert killed['cause'] == 'killed' and any('who sent' in one for one in killed['unknown'])


TORCHRUN = '''Epoch 1 loss 0.5
W1116 06:04:06.160000 25499 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 25551 closing signal SIGTERM
E1116 06:04:06.162000 25499 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: {code}) local_rank: 1 (pid: 25552) of binary: python
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
train.py FAILED
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 25551)  (SIGTERM)
  traceback : Signal 15 (SIGTERM) received by PID 25551
Root Cause (first observed failure):
[0]:
  exitcode  : {code} (pid: 25552)  ({name})
'''


def test_torchruns_first_rank_is_the_cause():
    found = doctor(TORCHRUN.format(code=-9, name='SIGKILL'))
    assert found['cause'] == 'killed' and found['figures']['pid'] == 25552
    assert doctor(TORCHRUN.format(code=-11, name='SIGSEGV'))['cause'] == 'segfault'
    failed = doctor('[rank1]: Traceback (most recent call last):\n[rank1]:   File "train.py", line 3, in f\n'
                    '[rank1]: ValueError: bad shape\n' + TORCHRUN.format(code=1, name=''))
    assert failed['cause'] == 'python_error' and 'bad shape' in failed['summary']


def test_the_time_limit_explains_137():
    found = doctor('slurmstepd: error: *** JOB 1 ON n1 CANCELLED AT 2025-01-10T15:27:25 DUE TO TIME LIMIT ***\nExit Code 137\nKilled\n')
    assert found['cause'] == 'time_limit' and 'next_mem' not in found


SACCT = '{job}|{state}|{code}|0:0|4G||00:01:02|01:00:00|\n{job}.batch|{state}|{code}||4G|{rss}K|00:01:02||1\n{job}.extern|COMPLETED|0:0||4G|1000K|00:01:02||1\n'


@pytest.mark.parametrize('state, code, rss, cause, outcome', [
    ('OUT_OF_MEMORY', '0:125', 3000000, 'oom_slurm', 'died'),
    ('FAILED', '0:9', 4190000, 'oom_slurm', 'died'),  # killed, and memory was nearly full: likely
    ('FAILED', '0:9', 100000, 'killed', 'died'),
    ('FAILED', '9:0', 100000, 'exit_code', 'died'),
    ('TIMEOUT', '0:0', 100000, 'time_limit', 'died'),
    ('CANCELLED by 1000', '0:15', 100000, 'cancelled', 'died'),
    ('COMPLETED', '0:0', 4190000, 'none', 'finished'),
])
def test_sacct(state, code, rss, cause, outcome):
    found = doctor(SACCT.format(job=77, state=state, code=code, rss=rss))
    assert (found['cause'], found['outcome'], found['job_id']) == (cause, outcome, '77')
    assert found['figures']['requested_bytes'] == 4 << 30 and found['figures']['max_rss_bytes'] == rss << 10


def test_sacct_with_headings():
    found = doctor('State|JobID|ReqMem|ExitCode|MaxRSS\nOUT_OF_MEMORY|5|2G|0:125|\nOUT_OF_MEMORY|5.batch||0:125|2000000K\n')
    assert found['cause'] == 'oom_slurm' and found['figures']['limit_bytes'] == 2 << 30
    table = ('       JobID    JobName  Partition    Account  AllocCPUS      State ExitCode \n------------ ---------- ---------- ---------- '
             '---------- ---------- -------- \n5                train      debug       root          1 OUT_OF_ME+    0:125 \n'
             '5.batch          batch                  root          1 OUT_OF_ME+    0:125 \n')
    assert doctor(table)['cause'] == 'oom_slurm'


def test_scontrols_exit_code_is_the_jobs():
    """Not that of the script's steps, which is on the next line."""
    found = doctor('JobId=5 JobName=train\n   JobState=FAILED Reason=NonZeroExitCode Dependency=(null)\n'
                   '   Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0\n   DerivedExitCode=0:0\n')
    assert (found['job_id'], found['state'], found['exit_code'], found['cause']) == ('5', 'FAILED', 3, 'exit_code')


def test_a_step_whose_work_was_done():
    text = SACCT.format(job=77, state='OUT_OF_MEMORY', code='0:125', rss=4190000) + '77.0|COMPLETED|0:0||4G|100K|00:01:02||1\n'
    assert doctor(text)['outcome'] == 'survived'
    log = 'slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n'
    assert doctor(log + '77|COMPLETED|0:0|0:0|4G||00:01:02|01:00:00|\n')['outcome'] == 'survived'


PROGRESS = ''.join(f'Epoch {i} | loss 0.{i} | 3.2 it/s\n' for i in range(2, 8))


@pytest.mark.parametrize('text', [
    'RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; '
    '1.24 GiB reserved in total by PyTorch)\n' + PROGRESS,  # caught, with a smaller batch afterwards
    'train.sh: line 2: 8156 Killed                  ./helper\n' + PROGRESS,
])
def test_what_was_survived_is_no_death(text):
    assert doctor(text)['outcome'] == 'survived'


@pytest.mark.parametrize('text', [
    PROGRESS, '', '\n\n\n', 'low 0\nhigh 0\nmax 171\noom 0\noom_kill 0\n' + PROGRESS,
    'memory: usage 262144kB, limit 262144kB, failcnt 171\noom_kill 0\n',
    'slurmstepd: error: Exceeded step memory limit at some point.\n' + PROGRESS,
    'WARNING: set --batch-size lower if you get CUDA out of memory\n' + PROGRESS,
    'kill -9 is what exit code 137 usually means\n' + PROGRESS])
def test_no_false_alarm(text):
    found = doctor(text)
    assert found['cause'] == 'none' and found['outcome'] in ('unknown', 'finished') and not found['advice']


def test_137_alone_proves_nothing():
    found = doctor('Exit Code 137\n')
    assert (found['cause'], found['confidence']) == ('exit_code', 'possible') and 'next_mem' not in found
    assert any('memory was the reason' in one for one in found['unknown'])


RECIPE = '''Namespace(batch_size=1024, num_neighbors=[15, 10], hidden_channels=256, num_workers=8, persistent_workers=True, model='GraphSAGE')
Data(x=[2449029, 100], edge_index=[2, 123718280], y=[2449029, 1])
'''


def test_advice_is_estimated_from_the_recipe():
    found = doctor(RECIPE + '#SBATCH --mem=8G\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n')
    assert found['recipe']['num_edges'] == 123718280 and found['recipe']['num_neighbors'] == [15, 10]
    saved = [one['saves_bytes'] for one in found['advice']]
    assert len(saved) >= 4 and saved == sorted(saved, reverse=True)
    assert found['next_mem_basis'] == 'estimate' and found['next_mem_bytes'] > 8 << 30
    assert '--fanout 15,10' in found['command'] and '--batch 1024' in found['command']


@pytest.mark.parametrize('log', ['Exit Code 137\n', 'exits with return code = 247\n', 'train.sh: line 2: 8156 Killed                  python3 train.py\n', '7|FAILED|9:0|0:0||||\n'])
def test_a_kill_without_a_reason_is_compared_with_the_estimate(log):
    """Nobody says that it was memory, but the graph and the settings say how much memory that training takes."""
    found = doctor(RECIPE + log)
    saved = [one['saves_bytes'] for one in found['advice'] if 'saves_bytes' in one]
    assert found['cause'] in ('exit_code', 'killed') and len(saved) >= 4 and saved == sorted(saved, reverse=True)
    assert found['next_mem_basis'] == 'estimate' and found['next_mem_bytes'] > 8 << 30 and '--fanout 15,10' in found['command']
    assert any('estimated peak' in one for one in found['unknown'])
    assert not any('batch_size=' in one for one in found['unknown']) and any('NeighborLoaders' in one for one in found['unknown'])
    enough = doctor(RECIPE + '#SBATCH --mem=512G\n' + log)
    assert 'next_mem' not in enough and not any('saves_bytes' in one for one in enough['advice'])
    assert any('below the limit of 512 GiB' in one for one in enough['unknown'])


def test_a_kill_close_to_the_limit_has_advice_with_its_next_request():
    """The peak fits, but the memory to ask for with its margin does not: memory is possible, so changes are estimated too."""
    found = doctor(RECIPE + '#SBATCH --mem=12G\nExit Code 137\n')
    peaks = [one['peak_bytes'] + one['saves_bytes'] for one in found['advice'] if 'saves_bytes' in one]
    assert len(peaks) >= 4 and all(peak < 12 << 30 for peak in peaks)
    assert found['next_mem_basis'] == 'estimate' and found['next_mem_bytes'] > 12 << 30
    assert any('possible' in one for one in found['unknown']) and not any('likely' in one for one in found['unknown'])


def test_a_fanout_of_more_hops_than_can_be_estimated_is_not_cut():
    found = doctor(RECIPE.replace('[15, 10]', str([2] * 9)) + 'Exit Code 137\n')
    assert 'num_neighbors' not in found['recipe'] and 'next_mem' not in found and 'command' not in found
    assert not any('saves_bytes' in one for one in found['advice'])


@pytest.mark.parametrize('text, missing', [
    ('', 'print(data)'), ('Namespace(batch_size=64)\n', 'print(data)'), ('Data(edge_index=[2, 61859140])\n', 'number of nodes')])
def test_a_kill_without_a_reason_names_what_an_estimate_lacks(text, missing):
    found = doctor(text + 'Exit Code 137\n')
    assert 'next_mem' not in found and any(missing in one for one in found['unknown'])
    assumed = doctor('Data(x=[2449029, 100], edge_index=[2, 61859140])\nExit Code 137\n')
    assert any('batch_size=1024, num_neighbors=[10, 10], hidden_channels=256, num_workers=0' in one for one in assumed['unknown'])


@pytest.mark.parametrize('line, limit', [('--mem=4000', 4000 * MIB), ('--mem 8G', 8 << 30), ('-c 8 --mem=512M # enough', 512 * MIB), ('--mem=2tb', 2 << 40),
                                         ('--mem=0', None), ('--mem-per-cpu=4G', None)])
def test_memory_is_requested_as_slurm_reads_it(line, limit):
    """A number without a unit is MiB; a line that is commented out requests nothing."""
    killed = 'slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n'
    assert doctor(f'##SBATCH --mem=77G\n#SBATCH {line}\n{killed}')['figures'].get('limit_bytes') == limit


@pytest.mark.parametrize('lines, model', [
    (['self.conv1 = GCNConv(100, 256)', 'self.conv2 = GCNConv(256, 47)'], 'gcn'), (['conv = gnn.SAGEConv(in_channels, 256)'], 'sage'),
    (['a = GCNConv(100, 256)', 'b = GATConv(256, 47)'], None), (['a = MyGCNConv(100, 256)', 'from torch_geometric.nn import GATConv'], None),
    (['a = GCNConv(100, 256)', "model = 'gat'"], 'gat')], ids=str)
def test_a_model_is_known_by_its_layers(lines, model, tmp_path):
    (tmp_path / 'train.py').write_text('\n'.join([*lines, 'NeighborLoader(data, num_neighbors=[15, 10], batch_size=1024)']))
    (tmp_path / 'log').write_text('slurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n')
    found = doctor('', tmp_path / 'log', '--script', tmp_path / 'train.py')
    assert found['recipe'].get('model') == model
    assert f"--model {model or 'sage'} " in found['command']
    assert any('sage was assumed' in one for one in found['unknown']) == (model is None)


@pytest.mark.parametrize('text', [
    'Data(num_nodes=169343, edge_index=[2, 1166243], x=[169343, 128], node_year=[169343, 1], y=[169343, 1])',  # ogb 1.3
    'Data(edge_index=[2, 1166243], x=[169343, 128])', 'Data(y=[169343, 1], x=[169343, 128], edge_index=[2, 1166243])',
    'INFO graph: Data(num_nodes=169343, x=[169343, 128], adj_t=[169343, 169343, nnz=1166243])',
    'Data(edge_index=[2, 1166243], x=[169343, 128])\nData(edge_index=[2, 99], x=[40, 128], input_id=[8], batch_size=8)',
    "Graph(num_nodes=169343, num_edges=1166243,\n      ndata_schemes={'year': Scheme(shape=(1,), dtype=torch.int64), "
    "'feat': Scheme(shape=(128,), dtype=torch.float32)}\n      edata_schemes={})"])
def test_a_printed_graph_with_its_fields_in_any_order(text):
    found = doctor(text + '\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n')
    assert [found['recipe'][key] for key in ('num_nodes', 'num_edges', 'num_features')] == [169343, 1166243, 128]
    assert 'saves_bytes' in found['advice'][0]


def test_a_killed_command_line_shows_the_recipe():
    found = doctor('run.sh: line 3: 77 Killed                  python3 train.py --dataset ogbn-arxiv --batch-size 512 --fan-out 10,5 --num_workers=2\n')
    assert {key: found['recipe'][key] for key in ('batch_size', 'num_workers', 'num_neighbors', 'shape')} == \
        {'batch_size': 512, 'num_workers': 2, 'num_neighbors': [10, 5], 'shape': 'arxiv'}
    assert doctor("{'batch_size': 512, 'num_neighbors': [10, 5]}\nKilled\n")['recipe'] == {'batch_size': 512, 'num_neighbors': [10, 5]}


@pytest.mark.parametrize('text, trains', [
    ('DataLoader(dataset, batch_size=4, num_workers=2)\nNamespace(batch_size=4, epochs=3, hidden=64)', False),
    ('{"batch_size": 4, "model": "resnet50"}', False), ('--batch_size 4 --fanout 10,5', True), ('--batch_size 4 --model GAT', True),
    ('--batch_size 4 --model engine_v2', False), ('--batch_size 4 --model USAGE', False), ('--batch_size 4 --model rgcn', True),
    ('--batch_size 4 --model graphsage', True), ('--batch_size 4 --model res_gcn', True), ('--batch_size 4 --model ResGCN', True),
    ('  File "torch_geometric/loader/node_loader.py", line 1\nNamespace(batch_size=4)', True),
    ('x = self.conv(x, edge_index)\nNamespace(batch_size=4)', True)])
def test_only_a_gnn_is_trained_with_plimsoll_instead(text, trains):
    found = doctor(text + '\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.batch. Some of the step tasks have been OOM Killed.\n')
    assert found['cause'] == 'oom_slurm' and ('command' in found) == trains


def tick(at, used, limit=256 * MIB, **more):
    return json.dumps({'kind': 'tick', 'at_s': at, 'line': 0, 'used_bytes': int(used), 'line_bytes': limit, 'group_kills': 0,
                       'group_limit_hits': 0, 'num_processes': 1, **more}, separators=(',', ':'))


def timeline(ticks, code=137, signal='KILL', kills=1, hits=9, parent=None, host=0):
    groups = [{'path': '/a/b', 'kills': kills, 'limit_hits': hits, 'limit_bytes': 256 * MIB}]
    if parent is not None:
        groups.append({'path': '/a', 'kills': 0, 'limit_hits': parent, 'limit_bytes': 512 * MIB})
    end = {'kind': 'end', 'at_s': 100.0, 'exit_code': code, 'groups': groups, 'host_kills': host}
    if signal:
        end['signal'] = signal
    begin = {'kind': 'begin', 'format': 1, 'command': ['python3', 'train.py', '--batch_size', '64'], 'environment': {'SLURM_JOB_ID': '9'}}
    return '\n'.join([json.dumps(begin, separators=(',', ':')), *ticks, json.dumps(end, separators=(',', ':'))]) + '\n'


def mark(at, text):
    return json.dumps({'kind': 'mark', 'at_s': at, 'text': text}, separators=(',', ':'))


def test_a_timelines_leak():
    found = doctor(timeline([tick(i, 50 * MIB + max(0, i - 10) * 4 * MIB) for i in range(60)]))
    assert (found['cause'], found['growth']['pattern'], found['job_id']) == ('oom_cgroup', 'leak', '9')
    assert 3 * MIB < found['growth']['bytes_per_s'] < 5 * MIB
    assert 'next_mem' not in found and found['recipe']['batch_size'] == 64
    well = doctor(timeline([tick(i, 50 * MIB + max(0, i - 10) * 3 * MIB) for i in range(60)], code=0, signal=None, kills=0, hits=0))
    assert (well['outcome'], well['growth']['pattern'], len(well['advice'])) == ('finished', 'leak', 1)


def test_a_watched_signal_is_named():
    """SIGUSR1, which Slurm sends before the time limit, ends a program without a handler."""
    found = doctor(timeline([tick(i, 50 * MIB) for i in range(9)], code=138, signal='USR1', kills=0, hits=0))
    assert (found['cause'], found['signal'], found['exit_code']) == ('exit_code', 10, 138) and 'signal 10 (USR1)' in found['summary']


def test_a_timelines_growth_per_epoch():
    lines = [line for i in range(8) for line in (mark(10 * i, f'epoch {i}'), tick(10 * i + 5, (60 + 24 * i) * MIB), tick(10 * i + 9, (58 + 24 * i) * MIB))]
    found = doctor(timeline(lines))
    assert found['growth']['pattern'] == 'growth_per_epoch' and found['growth']['phase'] == 'epoch 7'
    well = doctor(timeline(lines, code=0, signal=None, kills=0, hits=0))
    assert (well['outcome'], well['growth']['pattern'], well['advice']) == ('finished', 'growth_per_epoch', found['advice'][:1])
    assert abs(found['growth']['bytes_per_phase'] - 24 * MIB) < 2 * MIB


def test_a_timelines_spike():
    found = doctor(timeline([tick(i, 90 * MIB) for i in range(40)] + [mark(40, 'validation'), tick(40.2, 120 * MIB), tick(40.4, 250 * MIB)]))
    assert (found['growth']['pattern'], found['growth']['phase']) == ('spike', 'validation')


def dead(at):
    return tick(at, 0, num_processes=0, group_kills=1)


def test_a_spike_between_two_ticks():
    """No tick has seen it, however far apart they are; the counter of kills has."""
    for seconds in (1, 30):
        flat = [tick(0, MIB), *(tick(seconds * i, 90 * MIB) for i in range(1, 40))]
        found = doctor(timeline([mark(0, 'train'), *flat, mark(40 * seconds, 'validation'), dead(40 * seconds)]))
        assert (found['cause'], found['growth']['pattern'], found['growth']['phase']) == ('oom_cgroup', 'spike', 'validation')
        assert found['growth']['peak_bytes'] == found['growth']['limit_bytes'] and found['growth']['peak_at_s'] == 40 * seconds
        survivor = [mark(40 * seconds, 'validation'), tick(40 * seconds, 95 * MIB, group_kills=1), mark(41 * seconds, 'end'), tick(41 * seconds, 60 * MIB, group_kills=1)]
        found = doctor(timeline([mark(0, 'train'), *flat, *survivor]))
        assert (found['growth']['pattern'], found['growth']['phase']) == ('spike', 'validation')
        later = [mark(40 * seconds, 'validation'), tick(40 * seconds, 95 * MIB, group_kills=1), mark(41 * seconds, 'export'), tick(41 * seconds, 96 * MIB, group_kills=1)]
        found = doctor(timeline([mark(0, 'train'), *flat, *later]))
        assert (found['growth']['peak_at_s'], found['growth']['phase']) == (40 * seconds, 'validation')


def test_ticks_that_do_not_differ_are_not_written():
    begin = json.dumps({'kind': 'begin', 'format': 1, 'interval_s': 0.05, 'command': ['python3', 'train.py']}, separators=(',', ':'))
    ticks = [tick(0, MIB), *(tick(i + 0.05, 20 * MIB) for i in range(4)), tick(4.05, 160 * MIB), dead(4.1)]
    assert doctor('\n'.join([begin, *timeline(ticks).split('\n')[1:]]))['growth']['pattern'] == 'spike'


def test_an_interval_that_is_not_told_is_not_assumed():
    lines = timeline([*(tick(i, 90 * MIB) for i in range(7)), tick(7, 160 * MIB), tick(8, 250 * MIB)]).split('\n')
    assert doctor('\n'.join(lines[1:]))['growth'] == doctor('\n'.join(lines))['growth']


def test_a_spike_after_a_day():
    def pattern(rise):
        return doctor(timeline([tick(0, MIB), *(tick(i, 90 * MIB) for i in range(1, 86400)), *rise]))['growth']['pattern']

    assert pattern([dead(86400)]) == 'spike'
    assert pattern([*(tick(86400 + i, (90 + 1.3 * i) * MIB) for i in range(120)), dead(86520)]) == 'spike'


def test_stairs_and_slow_leaks_are_no_spikes():
    for ticks in ([tick(i, (50 + 50 * (i // 100)) * MIB) for i in range(400)], [tick(i, (30 + 30 * (i // 100)) * MIB) for i in range(600)],
                  [tick(i, (100 + 0.09 * i + i % 7) * MIB) for i in range(1000)]):
        found = doctor(timeline([mark(0, 'load'), mark(0, 'train'), *ticks, dead(len(ticks))]))
        assert found['growth']['pattern'] == 'leak' and 'next_mem' not in found


def test_a_slow_rise_within_a_short_last_phase_is_a_spike():
    load = [mark(0, 'load'), *(tick(i, 0.4 * i * MIB) for i in range(300))]
    train = [mark(300, 'train'), *(tick(300 + i, 120 * MIB) for i in range(100))]
    valid = [mark(400, 'validation'), *(tick(400 + i, (120 + 3 * i) * MIB) for i in range(45)), dead(445)]
    found = doctor(timeline([*load, *train, *valid]))
    assert (found['growth']['pattern'], found['growth']['phase']) == ('spike', 'validation') and 'next_mem' in found
    leak = [mark(400, 'train on'), *(tick(400 + i, (120 + 0.15 * i) * MIB) for i in range(900)), dead(1300)]
    assert doctor(timeline([*load, *train, *leak]))['growth']['pattern'] == 'leak'


@pytest.mark.parametrize('names', [['train'], ['train', 'valid'], ['epoch {} train', 'epoch {} valid'], ['epoch {}: train', 'epoch {}: validate']])
def test_growth_per_epoch_by_any_names(names):
    lines = []
    for epoch in range(8):
        for part, name in enumerate(names):
            at = 10 * (len(names) * epoch + part)
            lines += [mark(at, name.format(epoch)), tick(at + 2, (60 + 20 * epoch + 40 * part) * MIB), tick(at + 8, (60 + 20 * epoch) * MIB)]
    found = doctor(timeline([*lines, dead(10 * 8 * len(names))]))
    assert found['growth']['pattern'] == 'growth_per_epoch' and abs(found['growth']['bytes_per_phase'] - 20 * MIB) < 2 * MIB
    assert 'next_mem' not in found


def test_a_spike_between_two_ticks_is_not_that_of_idle_workers():
    processes = [{'pid': 10 + i, 'parent': 9, 'name': 'python3', 'anonymous_bytes': held * MIB} for i, held in enumerate((86, 1, 1))]
    found = doctor(timeline([*(tick(i, 90 * MIB, num_processes=3, processes=processes) for i in range(100)), dead(100)]))
    assert found['growth']['pattern'] == 'spike'


def test_a_parents_limit_is_not_what_the_job_used():
    found = doctor(timeline([*(tick(i, 50 * MIB) for i in range(100)), dead(100)], hits=0, parent=5))
    assert (found['cause'], found['growth']['peak_bytes']) == ('oom_parent', 50 * MIB)


def test_a_timelines_workers():
    processes = [{'pid': 10 + i, 'parent': 9, 'name': 'python3', 'anonymous_bytes': 55 * MIB} for i in range(4)]
    found = doctor(timeline([tick(1, 60 * MIB), tick(2, 240 * MIB, num_processes=5, processes=processes)]))
    assert found['growth']['pattern'] == 'workers' and 'num_workers' in found['advice'][0]['change']


def test_a_process_that_dies_in_the_last_tick_still_counts_as_the_largest():
    def processes(main):
        return [{'pid': 10, 'parent': 9, 'name': 'python3', 'anonymous_bytes': main}] + \
            [{'pid': 11 + i, 'parent': 10, 'name': 'python3', 'anonymous_bytes': 15 * MIB} for i in range(4)]

    found = doctor(timeline([tick(1, 60 * MIB), tick(2, 235 * MIB, num_processes=5, processes=processes(180 * MIB)),
                             tick(2.1, 240 * MIB, num_processes=5, processes=processes(0))]))
    assert found['growth']['pattern'] != 'workers' and 'features on disk' in found['advice'][0]['change']


def test_a_timelines_parent_and_host():
    ticks = [tick(i, 10 * MIB * i) for i in range(20)]
    assert doctor(timeline(ticks, hits=0, parent=5))['cause'] == 'oom_parent'
    assert doctor(timeline(ticks, hits=0, parent=0, host=1))['cause'] == 'oom_host'


def test_healthy_timelines():
    ticks = [tick(i, 50 * MIB) for i in range(20)]
    full = [tick(i, 50 * MIB, group_cache_bytes=200 * MIB, group_limit_hits=i * 10) for i in range(20)]
    cache = doctor(timeline(full, code=0, signal=None, kills=0, hits=170))
    assert (cache['cause'], cache['outcome'], cache['growth']['pattern']) == ('none', 'finished', 'page_cache')
    spike = doctor(timeline([*ticks, tick(21, 250 * MIB), tick(22, 50 * MIB)], code=0, signal=None, kills=0, hits=0))
    assert (spike['cause'], spike['outcome']) == ('none', 'finished')
    chosen = doctor(timeline(ticks, code=137, signal=None, kills=0, hits=0))
    assert chosen['cause'] == 'exit_code' and 'chose' in chosen['summary'] and 'next_mem' not in chosen
    for code, name in (143, 'TERM'), (129, 'HUP'):
        user = doctor(timeline(ticks, code=code, signal=name, kills=0, hits=0))
        assert user['cause'] == 'terminated' and 'next_mem' not in user
    stranger = doctor(timeline(ticks, code=137, signal='KILL', kills=0, hits=0))
    assert stranger['cause'] == 'killed' and 'not the kernel' in stranger['summary']


def host_timeline(held, used, **end):
    """A watch of a command without a limit of its own: its line is the memory of the host, 64 GiB, which others use too."""
    ticks = [tick(i, used, 64 << 30, line=1, held_bytes=held) for i in range(20)]
    begin, rest = timeline(ticks, **end).split('\n', 1)
    about = {**json.loads(begin), 'limits': [{'source': 'cgroup v2 / memory.max'}, {'source': 'host MemTotal (/proc/meminfo)', 'bytes': 64 << 30}]}
    *lines, last = rest.splitlines()
    last = {**json.loads(last), 'groups': [{'path': '/', 'kills': end.get('kills', 0), 'limit_hits': 0}], 'peak_used_bytes': used,
            'peak_line_bytes': 64 << 30, 'peak_line_source': 'host MemTotal (/proc/meminfo)', 'peak_bytes': held + MIB}
    return '\n'.join(json.dumps(one, separators=(',', ':')) if isinstance(one, dict) else one for one in [about, *lines, last]) + '\n'


def test_what_others_hold_on_the_host_is_not_the_jobs():
    found = doctor(host_timeline(200 * MIB, 40 << 30, code=0, signal=None, kills=0))
    assert (found['outcome'], found['growth']['peak_bytes'], found['growth']['limit_of']) == ('finished', 201 * MIB, 'host')
    assert found['growth']['others_bytes'] == (40 << 30) - 200 * MIB and 'limit_bytes' not in found['figures']
    assert found['next_mem_bytes'] == 256 * MIB and found['next_mem_basis'] == 'measured'
    killed = doctor(host_timeline(3 << 30, 63 << 30, kills=1, host=1))
    assert (killed['cause'], killed['growth']['peak_bytes']) == ('oom_host', (3 << 30) + MIB)
    assert 3 << 30 < killed['next_mem_bytes'] < 8 << 30


def test_a_record_whose_watcher_was_killed_too():
    """memory.oom.group: the record ends just before the kill, without an end."""
    def cut(*used):
        return timeline([tick(i, share * 256 * MIB) for i, share in enumerate(used)]).rsplit('\n', 2)[0] + '\n'
    found = doctor(cut(0.2, 0.4, 0.7, 0.97))
    assert (found['cause'], found['confidence'], found['outcome']) == ('oom_cgroup', 'likely', 'died') and found['unknown']
    assert doctor(cut(0.2, 0.3, 0.3))['outcome'] == 'unknown'


def test_a_run_that_ended_well_says_what_it_needs():
    found = doctor(timeline([tick(i, 150 * MIB) for i in range(20)], code=0, signal=None, kills=0, hits=0))
    assert (found['outcome'], found['next_mem_bytes'], found['next_mem_basis']) == ('finished', 256 * MIB, 'measured')
    done = doctor(SACCT.format(job=77, state='COMPLETED', code='0:0', rss=1 << 20))
    assert done['next_mem_bytes'] == 1280 * MIB and done['unknown']


def test_a_training_of_plimsoll(tmp_path):
    lines = [json.dumps({'epoch': i, 'loss': 1.5, 'labelled': 9}, separators=(',', ':')) for i in range(1, 5)]
    (tmp_path / 'run.json').write_text(json.dumps({'settings': {'batch_size': 512, 'epochs': 4}}, indent=2))
    (tmp_path / 'metrics.jsonl').write_text('\n'.join(lines[:3]) + '\n')
    (tmp_path / 'timeline.jsonl').write_text('{"kind":"plan","total_bytes":1}\n')
    half = examine(tmp_path)
    assert (half['outcome'], half['epochs_done'], half['command']) == ('unknown', 3, f'plimsoll train --resume {tmp_path}')
    (tmp_path / 'metrics.jsonl').write_text('\n'.join(lines) + '\n')
    assert examine(tmp_path)['outcome'] == 'finished'


def test_a_watched_exit_code_asks_for_the_log(tmp_path):
    (tmp_path / 'run').mkdir()
    (tmp_path / 'run' / 'timeline.jsonl').write_text(timeline([tick(i, 50 * MIB) for i in range(20)], code=1, signal=None, kills=0, hits=0))
    found = examine(tmp_path / 'run')
    assert found['cause'] == 'exit_code' and f'plimsoll doctor {tmp_path}/run LOG' in found['unknown'][0]
    (tmp_path / 'log').write_text(WORKER.replace('(pid(s) 24864) exited unexpectedly', '(pid 24864) is killed by signal: Killed. '))
    assert examine(tmp_path / 'run', tmp_path / 'log')['cause'] == 'killed'
    (tmp_path / 'log').write_text('nothing that explains it\n')
    assert 'LOG' not in examine(tmp_path / 'run', tmp_path / 'log')['unknown'][0]


def test_nothing_to_examine(tmp_path):
    shown = {doctor(b'')['summary'], examine(tmp_path)['summary'], doctor(b'hello')['summary']}
    assert len(shown) == 3 and sum('nothing to examine' in one for one in shown) == 2


def test_hostile_bytes_reach_neither_terminal_nor_json():
    text = b'\x1b[31m\x1b]0;owned\x07Killed\x1b[0m\n\x9b31mValueError\xff\x00\nTraceback (most recent call last):\n  x\nValueError: \xc2\x9b2J<script>\x7f\n'
    shown = run('-', input=text)
    assert all(byte >= 0x20 or byte == 0x0a for byte in shown) and b'\x7f' not in shown and b'\xc2\x9b' not in shown
    found = doctor(text)
    assert found['cause'] == 'killed'  # behind a colour
    json.dumps(found).encode()


def test_lines_of_any_length_in_little_memory(tmp_path):
    """A line of 60 MB with a text in its middle, read under an address space that could not hold it."""
    log = tmp_path / 'long.log'
    with log.open('wb') as out:
        for i in range(60):
            out.write(b'x' * 1000000)
            if i == 30:
                out.write(b' torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 138.00 MiB ')
        out.write(b'\nEpoch 1\n')
    bound = lambda: resource.setrlimit(resource.RLIMIT_AS, (160 * MIB, 160 * MIB))  # noqa: E731
    found = examine(log) if 'asan' in PLIMSOLL or 'tsan' in PLIMSOLL else examine(log, preexec_fn=bound)
    assert found['cause'] == 'cuda_oom' and found['evidence'][0]['line'] == 1
    assert len(found['evidence'][0]['text']) < 300


def test_a_progress_bar_before_the_end():
    found = doctor(' 12%|█▏        | 120/1000 [00:10<01:20, 11.3it/s]\r 13%|█▎        | 130/1000 [00:11<01:20, 11.3it/s]Killed\rKilled\r\n')
    assert found['cause'] == 'killed' and found['evidence'][0]['line'] == 1


def test_a_directory_of_an_array(tmp_path):
    (tmp_path / 'slurm-5_1.out').write_text(PROGRESS)
    (tmp_path / 'slurm-5_2.out').write_text('slurmstepd: error: *** JOB 5 ON n1 CANCELLED AT 2025-01-10T15:27:25 DUE TO TIME LIMIT ***\n')
    (tmp_path / 'slurm-5_10.out').write_text('MemoryError\n')
    (tmp_path / 'weights.pt').write_bytes(b'Killed\n')
    found = [json.loads(line) for line in run(tmp_path, '--json').splitlines()]
    assert [(one['task'], one['cause']) for one in found] == [('5_1', 'none'), ('5_2', 'time_limit'), ('5_10', 'alloc_refused')]


def test_a_directory_of_one_job(tmp_path):
    (tmp_path / 'train.out').write_text(WORKER)
    (tmp_path / 'dmesg.txt').write_text(KERNEL.format(shmem=0, name='python3', anon=261376))
    found = examine(tmp_path)
    assert found['cause'] == 'oom_cgroup' and len(found['sources']) == 2


def test_a_job_is_asked_of_slurm(tmp_path):
    sacct = tmp_path / 'sacct'
    sacct.write_text('#!/bin/sh\nfor word; do last=$word; done\ncat <<END\n' + SACCT.format(job='$last', state='OUT_OF_MEMORY', code='0:125', rss=1000) + 'END\n')
    sacct.chmod(sacct.stat().st_mode | stat.S_IXUSR)
    (tmp_path / 'slurm-4711.out').write_text(RECIPE + 'Killed\n')
    environment = dict(os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}')
    found = examine('4711', cwd=tmp_path, env=environment)
    assert (found['cause'], found['job_id']) == ('oom_slurm', '4711') and found['recipe']['batch_size'] == 1024


def stand_in(path, name, text):
    """A program that answers for each job by the file answers/NAME-JOB."""
    (path / name).write_text(f'#!/bin/sh\nfor word; do last=$word; done\ncat {path}/answers/{name}-$last 2>/dev/null || {text}\n')
    (path / name).chmod(0o755)


@pytest.mark.parametrize('accounting', [True, False])
def test_an_array_is_asked_of_slurm_task_by_task(tmp_path, accounting):
    """By sacct; and by scontrol, where there is no accounting."""
    (tmp_path / 'answers').mkdir()
    for name in ('sacct', 'scontrol'):
        stand_in(tmp_path, name, 'exit 1')
    states = {1: ('COMPLETED', '0:0'), 2: ('OUT_OF_MEMORY', '0:125'), 10: ('TIMEOUT', '0:0')}
    whole = ''
    for task, (state, code) in states.items():
        name = f'55_{task}'
        if accounting:
            (tmp_path / 'answers' / f'sacct-{name}').write_text(SACCT.format(job=name, state=state, code=code, rss=1000))
            whole += SACCT.format(job=name, state=state, code=code, rss=1000)
        record = f'JobId={90 + task} ArrayJobId=55 ArrayTaskId={task} JobName=a\n   JobState={state} Reason=None Dependency=(null)\n   ExitCode={code}\n\n'
        (tmp_path / 'answers' / f'scontrol-{name}').write_text(record)
        with (tmp_path / 'answers' / 'scontrol-55').open('a') as file:
            file.write(record)
    if accounting:
        (tmp_path / 'answers' / 'sacct-55').write_text(whole + '55_[11-20]|PENDING|0:0|0:0|4G||00:00:00|01:00:00|\n')
    task = (tmp_path / 'answers' / 'scontrol-55_10').read_text()
    (tmp_path / 'answers' / 'scontrol-100').write_text(task)  # by the task's own JobId
    (tmp_path / 'answers' / 'sacct-100').write_text(SACCT.format(job='55_10', state='TIMEOUT', code='0:0', rss=1000) if accounting else '')
    (tmp_path / 'slurm-55_2.out').write_text(RECIPE)
    environment = dict(os.environ, PATH=f'{tmp_path}:{os.environ["PATH"]}')
    found = [json.loads(line) for line in run('55', '--json', cwd=tmp_path, env=environment).splitlines()]
    assert [(one['task'], one['cause']) for one in found] == [('55_1', 'none'), ('55_2', 'oom_slurm'), ('55_10', 'time_limit')]
    assert found[1]['recipe']['batch_size'] == 1024 and not found[0]['recipe']
    one = examine('55_2', cwd=tmp_path, env=environment)
    assert (one['cause'], one['recipe']['batch_size']) == ('oom_slurm', 1024) and 'task' not in one
    own = examine('100', cwd=tmp_path, env=environment)
    assert own['cause'] == 'time_limit' and 'task' not in own


def test_an_array_without_sacct_is_an_error(tmp_path):
    (tmp_path / 'scontrol').write_text('#!/bin/sh\necho "JobId=94 ArrayJobId=55 ArrayTaskId=4 JobName=a"\n')
    (tmp_path / 'scontrol').chmod(0o755)
    done = subprocess.run([PLIMSOLL, 'doctor', '55'], capture_output=True, check=False, timeout=1500, cwd=tmp_path,
                          env=dict(os.environ, PATH=str(tmp_path)))
    assert done.returncode == 2 and b'sacct' in done.stderr


def test_wrong_use(tmp_path):
    empty = dict(os.environ, PATH=str(tmp_path))
    for word, environment in (('4711', empty), (tmp_path / 'missing.log', os.environ)):
        done = subprocess.run([PLIMSOLL, 'doctor', str(word)], capture_output=True, check=False, timeout=1500, cwd=tmp_path, env=environment)
        assert done.returncode == 2 and str(pathlib.Path(word).name).encode() in done.stderr


FRAGMENTED = ('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.15 GiB. GPU 0 has a total capacity of 23.65 GiB of which 3.84 GiB is free. Including '
          'non-PyTorch memory, this process has 19.80 GiB memory in use. Of the allocated memory 15.85 GiB is allocated by PyTorch, and 3.56 GiB is reserved by '
          'PyTorch but unallocated. If reserved but unallocated memory is large try setting VARIABLE=expandable_segments:True to avoid fragmentation.\n')


@pytest.mark.parametrize('before, variable, first', [
    ('', 'PYTORCH_CUDA_ALLOC_CONF', 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'),
    ('', 'PYTORCH_ALLOC_CONF', 'PYTORCH_ALLOC_CONF=expandable_segments:True'),
    ('# export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n', 'PYTORCH_ALLOC_CONF', 'PYTORCH_ALLOC_CONF=expandable_segments:True'),
    ('+ export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n', 'PYTORCH_CUDA_ALLOC_CONF', None),
    ("os.environ['PYTORCH_ALLOC_CONF'] = 'garbage_collection_threshold:0.8,expandable_segments:True'\n", 'PYTORCH_ALLOC_CONF', None),
    ('[W CUDAAllocatorConfig.h:28] Warning: expandable_segments not supported on this platform (function operator())\n', 'PYTORCH_CUDA_ALLOC_CONF',
     'PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128')])
def test_fragmented_memory_is_joined_first(before, variable, first):
    """What torch holds unused when it raises is fragmented: with what is free it would have been enough. A setting that is on is not advised again."""
    found = doctor(before + FRAGMENTED.replace('VARIABLE', variable))
    assert found['cause'] == 'cuda_oom' and found['figures']['fragmented']
    advice = [one['change'] for one in found['advice']]
    assert advice[0].startswith(first) if first else not any('segments' in one or 'max_split' in one for one in advice), advice


def test_a_memory_fraction_is_raised_before_anything_else():
    text = ('torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 11.00 GiB is free. '
            'Process 12 has 12.00 GiB memory in use. 12.00 GiB allowed; Of the allocated memory 11.00 GiB is allocated by PyTorch, and 300.00 MiB is reserved by '
            'PyTorch but unallocated.\n')
    found = doctor(text)
    assert not found['figures']['fragmented'] and 'memory_fraction' in found['advice'][0]['change'], found['advice']


@pytest.mark.parametrize('how', ['record', 'script'])
def test_our_loader_is_not_advised_to_who_has_it(tmp_path, how):
    """A script that reads a dataset of plimsoll: neither that loader, nor a training by PyG's estimate; its memory= is what can be lowered."""
    log = 'Data(x=[2449029, 100], edge_index=[2, 61859140])\nNamespace(batch_size=1024, num_workers=4, hidden_channels=256)\n'
    (tmp_path / 'train.py').write_text('import plimsoll\nds = plimsoll.open("products")\nloader = plimsoll.NeighborLoader(ds, num_neighbors=[15, 10])\n')
    uses = json.dumps({'kind': 'uses', 'at_s': 1.0, 'what': 'dataset'}, separators=(',', ':')) + '\n'
    record = timeline([tick(at, 200 * MIB) for at in range(99)])
    for used in (False, True):
        (tmp_path / 'timeline.jsonl').write_text(record + (uses if used and how == 'record' else ''))
        (tmp_path / 'log').write_text(log)
        found = examine(tmp_path / 'timeline.jsonl', tmp_path / 'log', *([tmp_path / 'train.py'] if used and how == 'script' else []))
        text = json.dumps(found)
        assert ('plimsoll.NeighborLoader' in text or 'plimsoll train' in text) != used, found['advice']
        assert any('memory=' in one['change'] for one in found['advice']) == used



WRAPPED = '''Epoch 5 loss 0.5
RuntimeError: CUDA out of memory.
Tried to allocate 4.15 GiB. GPU 0 has a total capacity of 44.40 GiB
of which 3.84 GiB is free. Including non-PyTorch memory, this process
has 40.50 GiB memory in use. Of the allocated memory 36.00 GiB is allocated by PyTorch, and 3.56 GiB
is reserved by PyTorch but unallocated.
'''


def test_figures_of_a_gpu_message_stand_on_several_lines():
    found = doctor(WRAPPED)
    figures = found['figures']
    assert found['cause'] == 'cuda_oom' and found['evidence'][0]['line'] == 2
    assert round(figures['tried_bytes'] / (1 << 30), 3) == 4.15 and round(figures['gpu_free_bytes'] / (1 << 30), 3) == 3.84
    assert round(figures['gpu_unallocated_bytes'] / (1 << 30), 3) == 3.56 and figures['fragmented']
    # Behind another long text, the lines belong to no message.
    assert 'gpu_free_bytes' not in doctor('RuntimeError: CUDA out of memory.\n' + 'x' * 3000 + '\n' + WRAPPED.split('\n', 2)[2])['figures']


def test_an_index_out_of_range_on_the_gpu_is_not_memory():
    text = ('../aten/src/ATen/native/cuda/Indexing.cu:1146: indexSelectLargeIndex: block: [1,0,0], thread: [9,0,0] Assertion `srcIndex < '
            'srcSelectDimSize` failed.\nRuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n')
    assert doctor(text)['cause'] == 'cuda_assert'


def test_a_timeout_of_the_others_follows_from_a_ranks_death():
    timeout = ('[rank1]:[E626 06:24:44.9 ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=808) '
               'ran for 600020 milliseconds before timing out.\n')
    found = doctor(timeout + WRAPPED.replace('RuntimeError', '[rank0]: torch.OutOfMemoryError'))
    assert found['cause'] == 'cuda_oom' and any('Watchdog' in one['text'] for one in found['consequences'])


def steps(grow, gpu=''):
    return ''.join(f'Step {step}: CPU: {200 + grow * step:.1f}MB{gpu}, Limit: 1024.0MB, Left: {800 - grow * step:.1f}MB\n' for step in range(0, 800, 100))


def test_our_monitors_lines_tell_limit_and_growth():
    found = doctor(steps(1) + 'train.sh: line 2: 4711 Killed                  python3 train.py\n')
    assert found['figures']['limit_bytes'] == 1024 * MIB and found['cause'] == 'oom_kernel'
    assert found['growth']['pattern'] == 'leak' and found['growth']['bytes_per_step'] == MIB
    assert doctor(steps(0) + 'Killed\n')['cause'] == 'killed'
    # A GPU's figures between them change nothing.
    assert doctor(steps(1, ', GPU: 900.0MB, GPU Cached: 1000.0MB'))['growth']['bytes_per_step'] == MIB


def watched(gpu_bytes, marks):
    yield {'kind': 'begin', 'format': 1, 'at_s': 0, 'interval_s': 1, 'command': ['python', 'train.py'], 'limits': []}
    for number, used in enumerate(gpu_bytes):
        if marks:
            yield {'kind': 'mark', 'at_s': 5 * number, 'text': f'epoch {number + 1}'}
        yield {'kind': 'tick', 'at_s': 5 * number + 1, 'used_bytes': 100 * MIB, 'line_bytes': 1024 * MIB, 'num_processes': 1}
        for gpu in 0, 1:
            yield {'kind': 'gpu', 'at_s': 5 * number + 2, 'gpu': gpu, 'used_bytes': used if gpu else 10 * MIB, 'total_bytes': 24 << 30}


@pytest.mark.parametrize('marks, field, rise', [(True, 'gpu_bytes_per_phase', 1 << 30), (False, 'gpu_bytes_per_s', (1 << 30) // 5)])
def test_a_watched_gpu_that_fills_up_from_epoch_to_epoch(marks, field, rise):
    def record(sizes):
        return ''.join(json.dumps(line, separators=(',', ':')) + '\n' for line in watched(sizes, marks))
    growing = doctor(record([(2 + epoch) << 30 for epoch in range(20)]) + WRAPPED)
    assert growing['cause'] == 'cuda_oom' and abs(growing['growth'][field] / rise - 1) < 0.1
    assert growing['growth']['gpu_peak_bytes'] == 21 << 30
    flat = doctor(record([3 << 30] + [5 << 30] * 19) + WRAPPED)
    assert field not in flat['growth']


SCRIPT = '''import torch
"""loss.append(loss)
losses.append(loss)"""
def train():
    for batch in loader:
        loss = model(batch)
        loss += aux_loss        # trained below
        loss.backward()
        losses.append(loss)
        total += loss * batch.num_nodes
        total = total + loss
        total += loss.item() + float(loss)
        history.append(loss.detach())
@torch.no_grad()
def test(loader):
    for batch in loader:
        outs.append(out)
        total += loss
def evaluate(loader):
    model.eval()
    for batch in loader:
        preds.append(model(batch).argmax(-1))
def validate(loader):
    with torch.no_grad():
        preds.append(out)
loader = DataLoader(data, batch_size=4,
                    num_workers=8, pin_memory=True)
small = DataLoader(data, num_workers=1, pin_memory=True)
outs.append(out)
'''


def test_habits_of_the_script_stand_with_their_lines(tmp_path):
    script = tmp_path / 'train.py'
    script.write_text(SCRIPT)
    (tmp_path / 'log').write_text(WRAPPED)
    found = examine(tmp_path / 'log', script)
    assert {(one['kind'], one['line']) for one in found['script']} == {
        ('loss_list', 9), ('loss_sum', 10), ('loss_sum', 11), ('evaluation_gradients', 22), ('pinned_workers', 27), ('output_list', 29)}
    assert f'{script}:9' in found['advice'][1]['change'] and 'expandable_segments' in found['advice'][0]['change']
    named = tmp_path / 'train'  # with --script a name is any
    named.write_text(SCRIPT)
    assert [one['line'] for one in examine(tmp_path / 'log', '--script', named)['script']] == [one['line'] for one in found['script']]
    done = subprocess.run([PLIMSOLL, 'doctor', tmp_path / 'log', '--script', tmp_path / 'none'], capture_output=True, check=False, timeout=1500)
    assert done.returncode == 2
    script.write_bytes(b'x = """\xff\n' * 1000 + b'def test(' * 5000)
    assert examine(script)['script'] == []
