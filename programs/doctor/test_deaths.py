"""Real deaths: each program dies as named, and the doctor tells why from what it left behind.

A death in a cgroup leaves a shell's line and the group's counters, as a batch script would print them; the kernel's log is not read, since
users cannot. Root and a memory cgroup are needed for these.
"""
import importlib.util
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import textwrap

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20
V1 = pathlib.Path('/sys/fs/cgroup/memory')
V2 = pathlib.Path('/sys/fs/cgroup')


def doctor(*texts):
    done = subprocess.run([PLIMSOLL, 'doctor', '-', '--json'], input='\n'.join(texts).encode(), capture_output=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def python(code, **options):
    """Standard error of a Python program, and its exit code as a shell has it."""
    done = subprocess.run([sys.executable, '-c', textwrap.dedent(code)], capture_output=True, check=False, timeout=1500, text=True, **options)
    return done.stdout + done.stderr, done.returncode if done.returncode >= 0 else 128 - done.returncode


class Group:
    """A memory cgroup of its own, v1 or v2; skips where there is none."""

    def __init__(self, name, limit, parent=None):
        if os.geteuid() != 0:
            pytest.skip('needs root')
        self.v1 = (V1 / 'memory.limit_in_bytes').exists()
        try:
            if not self.v1:
                ((parent.path if parent else V2) / 'cgroup.subtree_control').write_text('+memory')
            self.path = (parent.path if parent else V1 if self.v1 else V2) / f'plimsoll-doctor-{name}-{os.getpid()}'
            self.path.mkdir()
            if limit:
                (self.path / ('memory.limit_in_bytes' if self.v1 else 'memory.max')).write_text(str(limit))
                swap = self.path / ('memory.memsw.limit_in_bytes' if self.v1 else 'memory.swap.max')
                if swap.exists():
                    swap.write_text(str(limit) if self.v1 else '0')
        except OSError as reason:
            pytest.skip(f'no memory cgroup here: {reason}')

    def shell(self, *commands):
        """What a batch script prints that runs these commands inside the group."""
        script = f'echo $$ > {self.path}/cgroup.procs\n' + '\n'.join(commands)
        done = subprocess.run(['bash', '-c', 'bash /dev/stdin; true'], input=script, capture_output=True, text=True, check=False, timeout=1500)
        return done.stdout + done.stderr

    def read(self, name):
        return (self.path / name).read_text()

    def counters(self):
        """As a script would print them: cat memory.oom_control, memory.events, memory.stat."""
        return self.read('memory.oom_control' if self.v1 else 'memory.events') + self.read('memory.stat') + \
            'memory: usage 0kB, limit %dkB, failcnt %d\n' % (int(self.read('memory.limit_in_bytes' if self.v1 else 'memory.max').replace('max', '0')) >> 10,
                                                            int(self.read('memory.failcnt')) if self.v1 else 0)

    def end(self):
        subprocess.run(['sh', '-c', f'for i in 1 2 3 4 5 6 7 8 9; do xargs -r kill -9 < {self.path}/cgroup.procs; rmdir {self.path} && exit; sleep 0.1; done'],
                       check=False, capture_output=True)


@pytest.fixture(name='group')
def fixture_group():
    made = Group('job', 96 * MIB)
    yield made
    made.end()


def quoted(code):
    return f"{sys.executable} -c '{textwrap.dedent(code)}'"


def test_out_of_memory_at_the_start(group):
    log = group.shell(quoted('data = bytearray(400 << 20)\nprint(len(data))'))
    found = doctor(log, group.counters())
    assert (found['cause'], found['outcome'], found['figures']['limit_bytes']) == ('oom_cgroup', 'died', 96 * MIB)
    assert found['next_mem_bytes'] > 96 * MIB


def test_out_of_memory_by_forked_workers(group):
    log = group.shell(quoted('''
        import os, time
        children = []
        for i in range(6):
            pid = os.fork()
            if pid == 0:
                data = bytearray(30 << 20)
                time.sleep(600)
                os._exit(0)
            children.append(pid)
        first, status = os.wait()
        for pid in children:
            if pid != first:
                os.kill(pid, 15)
        print("worker exited with code", 128 + os.WTERMSIG(status))
    '''))
    found = doctor(log, group.counters())
    assert 'exited with code 137' in log and found['cause'] == 'oom_cgroup'


def watched(group, tmp_path, code, pattern=None, interval='50ms'):
    """The verdict on a run that was watched, and died, inside the group. A pattern needs a machine that does not stand still for
    seconds: it has three tries."""
    for number in range(3 if pattern else 1):
        found = watched_once(group, tmp_path / str(number), code, interval)
        if not pattern or found['growth']['pattern'] == pattern:
            break
    return found


def watched_once(group, tmp_path, code, interval):
    tmp_path.mkdir()
    program = tmp_path / 'program.py'
    program.write_text('import os, time\n\n\ndef mark(text):\n    with open(os.environ["PLIMSOLL_WATCH"], "a") as out:\n'
                       '        out.write(text + "\\n")\n\n\n' + textwrap.dedent(code))
    group.shell(f'{PLIMSOLL} watch --quiet --interval {interval} --out {tmp_path}/run -- {sys.executable} {program}')
    done = subprocess.run([PLIMSOLL, 'doctor', tmp_path / 'run', '--json'], capture_output=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_watched_leak(group, tmp_path):
    found = watched(group, tmp_path, '''
        time.sleep(1)
        kept = []
        while True:
            kept.append(bytearray(1 << 20))
            time.sleep(0.05)
    ''', pattern='leak')
    assert (found['cause'], found['confidence'], found['growth']['pattern']) == ('oom_cgroup', 'proven', 'leak')
    assert found['figures']['limit_bytes'] == 96 * MIB and 'next_mem' not in found


def test_a_watched_growth_of_epochs(group, tmp_path):
    found = watched(group, tmp_path, '''
        kept = []
        for epoch in range(100):
            mark(f"epoch {epoch}")
            kept.append(bytearray(12 << 20))
            time.sleep(0.4)
    ''', pattern='growth_per_epoch')
    assert (found['cause'], found['growth']['pattern']) == ('oom_cgroup', 'growth_per_epoch')
    assert found['growth']['phase'].startswith('epoch ')


@pytest.mark.parametrize('interval', ['50ms', '500ms'])  # 500ms: it is over between two ticks
def test_a_watched_spike(group, tmp_path, interval):
    found = watched(group, tmp_path, '''
        kept = bytearray(20 << 20)
        mark("train")
        time.sleep(4)
        mark("validation loader")
        kept = [kept, bytearray(300 << 20)]
    ''', 'spike', interval)
    assert (found['cause'], found['growth']['pattern'], found['growth']['phase']) == ('oom_cgroup', 'spike', 'validation loader')


def test_a_spike_that_was_survived(group, tmp_path):
    found = watched(group, tmp_path, '''
        kept = bytearray(10 << 20)
        time.sleep(1)
        spike = bytearray(24 << 20)
        del spike
        time.sleep(1)
    ''')
    assert (found['cause'], found['outcome'], found['advice']) == ('none', 'finished', [])


def test_memory_that_forks_share_is_no_death(group, tmp_path):
    """Three processes that share 20 MiB, which count once."""
    found = watched(group, tmp_path, '''
        kept = bytearray(20 << 20)
        children = []
        for _ in range(2):
            pid = os.fork()
            if pid == 0:
                time.sleep(2)
                os._exit(sum(kept[::4096]) != 0)
            children.append(pid)
        raise SystemExit(sum(os.waitpid(pid, 0)[1] for pid in children))
    ''')
    assert (found['cause'], found['outcome']) == ('none', 'finished')
    assert 20 * MIB < found['growth']['peak_bytes'] < 60 * MIB


def test_a_watched_program_that_chose_137(group, tmp_path):
    found = watched(group, tmp_path, 'raise SystemExit(137)')
    assert found['cause'] == 'exit_code' and 'chose' in found['summary']


def test_tmpfs_fills_the_group(group, tmp_path):
    mount = tmp_path / 'tmpfs'
    mount.mkdir()
    if subprocess.run(['mount', '-t', 'tmpfs', 'none', mount], check=False, capture_output=True).returncode != 0:
        pytest.skip('tmpfs cannot be mounted here')
    try:
        log = group.shell(f'dd if=/dev/zero of={mount}/file bs=1M count=300 2>/dev/null')
        found = doctor('train.sh: line 2: 5 Killed                  dd', log, group.counters())
    finally:
        subprocess.run(['umount', mount], check=False)
    assert found['cause'] == 'oom_tmpfs' and '/dev/shm' in found['advice'][0]['change']


def test_page_cache_is_harmless(group, tmp_path):
    file = tmp_path / 'file'
    file.write_bytes(bytes(200 * MIB))
    log = group.shell(f'sync {file}; cat {file} | wc -c')
    found = doctor(log, group.counters())
    assert (found['cause'], found['advice']) == ('none', [])


def test_a_parents_limit(tmp_path):
    parent = Group('parent', 96 * MIB)
    child = Group('step', 0, parent)
    try:
        log = child.shell(quoted('data = bytearray(400 << 20)\nprint(len(data))'))
        kernel = f'oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/{parent.path.name},' \
                 f'task_memcg=/{parent.path.name}/{child.path.name},task=python3,pid=1,uid=0'
        found = doctor(log, kernel)
        assert found['cause'] == 'oom_parent'
        assert doctor(log)['cause'] == 'killed'
        seen = watched(child, tmp_path, '''
            kept = []
            while True:
                kept.append(bytearray(1 << 20))
                time.sleep(0.02)
        ''')
        assert (seen['cause'], seen['figures']['limit_bytes']) == ('oom_parent', 96 * MIB)
    finally:
        child.end()
        parent.end()


def test_segmentation_fault():
    log, code = python('import ctypes; ctypes.string_at(0)')
    assert code == 128 + signal.SIGSEGV
    script = subprocess.run(['bash', '-c', f"bash -c '{sys.executable} -c \"import ctypes; ctypes.string_at(0)\"; true'"], capture_output=True, text=True, check=False)
    assert doctor(log, script.stderr)['cause'] == 'segfault'
    assert doctor(python('import ctypes, faulthandler; faulthandler.enable(); ctypes.string_at(0)')[0])['cause'] == 'segfault'


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def test_memory_error():
    log, _ = python('data = bytearray(1 << 40)', preexec_fn=limited(resource.RLIMIT_AS, 512 * MIB))
    assert doctor('Epoch 1 loss 0.5', log)['cause'] == 'alloc_refused'


def test_bad_alloc(tmp_path):
    compiler = subprocess.run(['c++', '--version'], capture_output=True, check=False).returncode if os.path.exists('/usr/bin/c++') else 1
    if compiler != 0:
        pytest.skip('there is no C++ compiler')
    (tmp_path / 'grow.cc').write_text('#include <vector>\nint main() { std::vector<char> data; for (;;) data.resize(2 * data.size() + 1); }\n')
    subprocess.run(['c++', '-O0', tmp_path / 'grow.cc', '-o', tmp_path / 'grow'], check=True)
    done = subprocess.run(['bash', '-c', f'ulimit -v 300000; {tmp_path}/grow; true'], capture_output=True, text=True, check=False)
    found = doctor(done.stderr)
    assert found['cause'] == 'alloc_refused' and any('Aborted' in one['text'] for one in found['consequences'])


def test_a_full_disk():
    if not os.path.exists('/dev/full'):
        pytest.skip('there is no /dev/full')
    log, _ = python("f = open('/dev/full', 'w')\nf.write('x' * 100000)\nf.flush()")
    assert doctor(log)['cause'] == 'disk_full'


def test_a_pool_whose_worker_is_killed():
    log, _ = python('''
        import concurrent.futures, os, signal
        def die(_):
            os.kill(os.getpid(), signal.SIGKILL)
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            list(pool.map(die, [1]))
    ''')
    assert doctor(log)['cause'] == 'worker_exit'


def test_sigterm_by_a_user_is_no_memory():
    done = subprocess.run(['bash'], input='sh -c "kill -TERM \\$\\$"\necho exit code $?', capture_output=True, text=True, check=False, timeout=1500)
    found = doctor(done.stdout + done.stderr)
    assert found['cause'] == 'terminated' and 'next_mem' not in found


def test_exit_code_137_chosen_by_the_program(group):
    log = group.shell(quoted('raise SystemExit(137)'), 'echo exit code $?')
    found = doctor(log, group.counters())
    assert found['cause'] == 'exit_code' and found['confidence'] == 'possible' and 'next_mem' not in found


TORCH = '''
    import os, signal, sys, torch
    from torch.utils.data import DataLoader, Dataset

    class Dies(Dataset):
        def __init__(self, how):
            self.how = how

        def __len__(self):
            return 4

        def __getitem__(self, index):
            if self.how == 'segfault':
                os.kill(os.getpid(), signal.SIGSEGV)
            if self.how == 'kill':
                os.kill(os.getpid(), signal.SIGKILL)
            if self.how == 'exit':
                os._exit(3)
            if self.how == 'shm':
                return torch.zeros(16 << 20)
            return torch.zeros(1)

    def attempt(name, function):
        import traceback
        print('@@@', name, flush=True)
        try:
            function()
        except Exception:
            print(traceback.format_exc(), flush=True)

    for how in ('kill', 'segfault', 'exit'):
        attempt(how, lambda: list(DataLoader(Dies(how), num_workers=1)))
    if sys.argv[1:] == ['small']:
        attempt('shm', lambda: list(DataLoader(Dies('shm'), num_workers=1)))

    def rank_dies(rank):
        import time
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    attempt('rank', lambda: torch.multiprocessing.start_processes(rank_dies, nprocs=2, start_method='fork'))
    attempt('save', lambda: torch.save(torch.zeros(1 << 16), '/dev/full'))
    attempt('tensor', lambda: torch.empty(1 << 50))
'''


@pytest.mark.skipif(importlib.util.find_spec('torch') is None, reason='torch is not installed')
def test_torch():
    """One process, since torch takes seconds to import; each of its errors is given to the doctor by itself."""
    small = ['unshare', '-m', 'sh', '-c', 'mount -t tmpfs -o size=16m none /dev/shm && exec "$@"', 'sh']  # a small /dev/shm of its own
    possible = os.geteuid() == 0 and subprocess.run([*small, 'true'], check=False, capture_output=True).returncode == 0
    done = subprocess.run([*(small if possible else []), sys.executable, '-c', textwrap.dedent(TORCH), *(['small'] if possible else [])],
                          capture_output=True, text=True, check=False, timeout=1500)
    texts = dict(part.split('\n', 1) for part in done.stdout.split('@@@ ')[1:])
    causes = {name: doctor('Epoch 1 loss 0.5', text)['cause'] for name, text in texts.items()}
    assert causes.pop('exit') == 'worker_exit'
    assert causes.pop('shm', None) == ('shm_full' if possible else None)
    assert causes.pop('rank') == 'killed'
    assert causes == {'kill': 'killed', 'segfault': 'segfault', 'save': 'disk_full', 'tensor': 'alloc_refused'}


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec('torch') is None, reason='torch is not installed')
def test_torchrun_with_one_rank_killed(tmp_path):
    (tmp_path / 'train.py').write_text('import os, time\nprint("Epoch 1 loss 0.5", flush=True)\n'
                                       'if os.environ["RANK"] == "1":\n    time.sleep(1)\n    os.kill(os.getpid(), 9)\ntime.sleep(600)\n')
    words = [sys.executable, '-m', 'torch.distributed.run', '--nproc-per-node=2', '--nnodes=1', '--master-addr=127.0.0.1', '--master-port=0', 'train.py']
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=1500)
    if 'Root Cause' not in done.stderr:
        pytest.skip(f'torchrun does not run here: {done.stderr[-200:]}')
    found = doctor(done.stdout + done.stderr)
    assert (found['cause'], found['signal']) == ('killed', 9)
    assert any('ChildFailedError' in one['text'] or 'SIGTERM' in one['text'] for one in found['consequences'])
