# labels: plain unprivileged
"""`plimsoll watch` and `plimsoll mark`: the command is not disturbed, and the record tells what happened to it."""
import contextlib
import fcntl
import json
import os
import pathlib
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20
GROUPS = pathlib.Path('/sys/fs/cgroup/memory')
# A holder of memory: touches so many MiB, says so, and waits for a line on its input.
HOLD = 'b = bytearray({} << 20); print("ready", flush=True); input()'


def python(text):
    return [sys.executable, '-S', '-c', text]


def watch(out, *words, options=(), **more):
    return subprocess.run([PLIMSOLL, 'watch', '--out', str(out), *options, '--', *words],
                          capture_output=True, text=True, check=False, timeout=1500, **more)


def start(out, *words, options=(), **more):
    return subprocess.Popen([PLIMSOLL, 'watch', '--out', str(out), *options, '--', *words], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def lines(out, kind=None):
    """The record's lines; a last one without its end does not count."""
    text = (pathlib.Path(out) / 'timeline.jsonl').read_text(encoding='ascii')
    whole = [json.loads(line) for line in text.split('\n')[:-1]]
    return [line for line in whole if kind in (None, line['kind'])]


def until(condition, seconds=1500):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def listed(out):
    """All records of each process, by pid."""
    found = {}
    for tick in lines(out, 'tick'):
        for process in tick.get('processes', []):
            found.setdefault(process['pid'], []).append(process)
    return found


@pytest.mark.parametrize('script, code, name', [('exit 0', 0, None), ('exit 7', 7, None), ('kill -SEGV $$', 139, 'SEGV'),
                                                ('kill -KILL $$', 137, 'KILL'), ('exit 137', 137, None)])
def test_exit_code_is_the_commands(tmp_path, script, code, name):
    done = watch(tmp_path / 'run', 'sh', '-c', f'echo out; echo err >&2; {script}', options=['--quiet', '--json'])
    assert done.returncode == code
    first, last = done.stdout.splitlines()
    assert first == 'out' and 'err' in done.stderr
    printed = json.loads(last)
    [end] = lines(tmp_path / 'run', 'end')
    assert printed['exit_code'] == end['exit_code'] == code
    assert printed.get('signal') == end.get('signal') == name
    assert end['left_running'] == 0 and end['ticks'] >= 1
    assert all(group.get('kills', 0) == 0 for group in end['groups'])
    assert not (tmp_path / 'run' / 'marks').exists()


def test_begin_describes_the_command(tmp_path):
    environment = {**os.environ, 'SLURM_JOB_ID': '77', 'SLURM_MEM_PER_NODE': '1024'}
    watch(tmp_path / 'run', 'sh', '-c', 'exit 0', 'a "word"\n\x1b\xff', 'ü\N{GRINNING FACE}', env=environment, cwd=tmp_path)
    [begin] = lines(tmp_path / 'run', 'begin')
    assert begin['command'][:3] == ['sh', '-c', 'exit 0']
    assert begin['command'][3].startswith('a "word"??') and begin['command'][4] == 'ü\N{GRINNING FACE}'
    assert begin['directory'] == str(tmp_path) and begin['format'] == 1
    assert begin['environment'] == {'SLURM_JOB_ID': '77', 'SLURM_MEM_PER_NODE': '1024'}
    assert begin['host_bytes'] > 0 and begin['limits'][-1]['bytes'] == begin['host_bytes']
    assert abs(begin['time_s'] - time.time()) < 3600


def test_command_is_as_without_a_watch(tmp_path):
    """Signal dispositions and mask, limits, descriptors and input are its own."""
    script = 'grep -E "Sig(Blk|Ign)" /proc/self/status; ulimit -n; ls /proc/self/fd; cat'
    plain = subprocess.run(['sh', '-c', script], input='text', capture_output=True, text=True, check=True)
    done = watch(tmp_path / 'run', 'sh', '-c', script, input='text')
    assert done.stdout == plain.stdout


@pytest.mark.parametrize('words, code', [(['no-such-command'], 127), (['/etc'], 126)])
def test_command_that_cannot_run(tmp_path, words, code):
    done = watch(tmp_path / 'run', *words)
    assert done.returncode == code and words[0] in done.stderr
    assert lines(tmp_path / 'run', 'end')[0]['exit_code'] == code


@pytest.mark.parametrize('options', [['--interval', '1ms'], ['--interval', 'x'], ['--warn', '2'], ['--warn', '0.5,'], ['--signal-at', '0.9'],
                                     ['--signal-at', '0.9:NOPE'], ['word']])
def test_wrong_use(tmp_path, options):
    done = subprocess.run([PLIMSOLL, 'watch', *options, '--', 'true'], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and not list(tmp_path.iterdir())


def test_command_without_dashes_is_refused(tmp_path):
    done = subprocess.run([PLIMSOLL, 'watch', 'true'], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2 and ' -- ' in done.stderr


@pytest.mark.parametrize('name', ['TERM', 'USR1', 'HUP'])
def test_signals_are_forwarded(tmp_path, name):
    script = f'trap "echo got; exit 5" {name}; echo ready; while :; do sleep 0.05; done'
    child = start(tmp_path / 'run', 'sh', '-c', script)
    assert child.stdout.readline() == 'ready\n'
    child.send_signal(getattr(signal, 'SIG' + name))
    printed, _ = child.communicate(timeout=1500)
    assert child.returncode == 5 and printed == 'got\n'
    [event] = lines(tmp_path / 'run', 'signal')
    assert event['signal'] == name and event['sent'] and event['from'] == 'user' and event['sender_pid'] == os.getpid()


def test_a_second_run_continues_the_timeline(tmp_path):
    for code in 3, 4:
        assert watch(tmp_path / 'run', 'sh', '-c', f'exit {code}').returncode == code
    assert [end['exit_code'] for end in lines(tmp_path / 'run', 'end')] == [3, 4]


def test_a_busy_or_foreign_directory_is_refused(tmp_path):
    child = start(tmp_path / 'run', 'cat')
    until(lambda: (tmp_path / 'run' / 'timeline.jsonl').exists() and lines(tmp_path / 'run', 'tick'))
    assert watch(tmp_path / 'run', 'true').returncode == 2
    child.communicate('', timeout=1500)
    for name in 'run.json', 'dataset.json':
        (tmp_path / name).mkdir()
        (tmp_path / name / name).write_text('{}')
        assert watch(tmp_path / name, 'true').returncode == 2
    (tmp_path / 'link').mkdir()
    (tmp_path / 'link' / 'timeline.jsonl').symlink_to(tmp_path / 'target')
    assert watch(tmp_path / 'link', 'true').returncode != 0 and not (tmp_path / 'target').exists()


def test_marks(tmp_path):
    script = f'''echo "epoch 1" >> "$PLIMSOLL_WATCH"; "{PLIMSOLL}" mark epoch 2
                 printf 'bad \\033]0;x\\007 \\377\\n' >> "$PLIMSOLL_WATCH"
                 head -c 100000 /dev/zero | tr '\\0' x >> "$PLIMSOLL_WATCH"; echo >> "$PLIMSOLL_WATCH"
                 printf 'no newline' >> "$PLIMSOLL_WATCH"'''
    done = watch(tmp_path / 'run', 'sh', '-c', script)
    assert done.returncode == 0, done.stderr
    texts = [line['text'] for line in lines(tmp_path / 'run', 'mark')]
    assert texts[:3] == ['epoch 1', 'epoch 2', 'bad ?]0;x? ?'] and texts[-1] == 'no newline'
    assert all(len(text) <= 200 for text in texts)


def test_who_reads_a_dataset_is_recorded(tmp_path):
    """By the command; it is no phase, so that those of the script stay as they are."""
    data = tmp_path / 'data'
    subprocess.run([PLIMSOLL, 'generate', 'free', data, '--nodes', '100', '--edges', '300', '--features', '4', '--classes', '2', '--quiet'], check=True)
    done = watch(tmp_path / 'run', 'sh', '-c', f'"{PLIMSOLL}" mark one; "{PLIMSOLL}" bench load {data} --batches 1 --quiet; "{PLIMSOLL}" mark two')
    assert done.returncode == 0, done.stderr
    assert [line['what'] for line in lines(tmp_path / 'run', 'uses')] == ['dataset']
    assert [line['text'] for line in lines(tmp_path / 'run', 'mark')] == ['one', 'two']


def test_mark_outside_of_a_watch(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != 'PLIMSOLL_WATCH'}
    done = subprocess.run([PLIMSOLL, 'mark', 'x'], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0 and 'PLIMSOLL_WATCH' in done.stderr
    environment['PLIMSOLL_WATCH'] = str(tmp_path / 'gone')
    assert subprocess.run([PLIMSOLL, 'mark', 'x'], capture_output=True, check=False, env=environment).returncode == 1
    assert not (tmp_path / 'gone').exists()
    assert subprocess.run([PLIMSOLL, 'mark'], capture_output=True, check=False, env=environment).returncode == 2


def test_tree_with_forks_and_orphans(tmp_path):
    """A child, and an orphan whose parent has ended: both are listed, and what they hold is counted."""
    script = f'''"{sys.executable}" -S -c 'b = bytearray(40 << 20); import time; time.sleep(600)' & echo $!
                 ("{sys.executable}" -S -c 'import os; print(os.getpid(), flush=True); b = bytearray(60 << 20); import time; time.sleep(600)' &)
                 read line; kill $!; wait; exit 0'''
    child = start(tmp_path / 'run', 'sh', '-c', script)
    pids = [int(child.stdout.readline()) for _ in range(2)]

    def seen():
        found = listed(tmp_path / 'run')
        return all(any(entry.get('rss_bytes', 0) >= size * MIB for entry in found.get(pid, [])) for pid, size in zip(sorted(pids), (40, 40)))
    until(seen)
    until(lambda: any(tick['held_bytes'] >= 95 * MIB and tick['num_processes'] == 3 for tick in lines(tmp_path / 'run', 'tick')))
    child.stdin.write('\n')
    child.stdin.close()
    assert child.wait(timeout=1500) == 0
    [end] = lines(tmp_path / 'run', 'end')
    assert end['left_running'] == 1 and end['num_processes_max'] >= 3
    orphan = next(pid for pid in pids if not any(entry.get('ended') for entry in listed(tmp_path / 'run')[pid]))
    os.kill(orphan, signal.SIGKILL)


def test_pages_shared_among_forks_count_once(tmp_path):
    script = 'import os, time\nb = bytearray(100 << 20)\nfor _ in range(3):\n    if os.fork() == 0:\n        time.sleep(600)\ninput()\nos.killpg(0, 9)'
    child = start(tmp_path / 'run', *python(script), start_new_session=True)
    until(lambda: any(tick['rss_bytes'] > 400 * MIB and tick['held_bytes'] < 200 * MIB
                      for tick in (lines(tmp_path / 'run', 'tick') if (tmp_path / 'run' / 'timeline.jsonl').exists() else [])))
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate(timeout=1500)


def test_record_survives_the_watcher(tmp_path):
    """Killed in a way that cannot be prevented: the lines are there, the command lives on and is not disturbed."""
    child = start(tmp_path / 'run', *python(HOLD.format(50) + '; print("done", flush=True)'))
    assert child.stdout.readline() == 'ready\n'
    until(lambda: any(tick['rss_bytes'] > 50 * MIB for tick in lines(tmp_path / 'run', 'tick')))
    child.kill()
    child.wait(timeout=1500)
    assert not lines(tmp_path / 'run', 'end') and lines(tmp_path / 'run', 'tick')[-1]['rss_bytes'] > 50 * MIB
    child.stdin.write('\n')
    child.stdin.close()
    assert child.stdout.readline() == 'done\n'
    done = watch(tmp_path / 'run', 'true')
    assert done.returncode == 0 and 'verdict' not in done.stderr
    assert len(lines(tmp_path / 'run', 'begin')) == 2


def test_a_failure_has_a_verdict_and_keeps_its_code(tmp_path):
    done = watch(tmp_path / 'run', 'sh', '-c', 'exit 3')
    assert done.returncode == 3 and 'exit_code' in done.stderr and '-- COMMAND' not in done.stderr
    assert f'plimsoll doctor {tmp_path}/run LOG' in done.stderr
    assert watch(tmp_path / 'quiet', 'sh', '-c', 'exit 3', options=['--quiet']).stderr == ''


def test_a_spike_between_ticks_is_in_the_end(tmp_path):
    done = watch(tmp_path / 'run', *python('b = bytearray(150 << 20); del b; import time; time.sleep(0.2)'), options=['--interval', '10s'])
    assert done.returncode == 0
    [end] = lines(tmp_path / 'run', 'end')
    assert end['peak_bytes'] >= 150 * MIB and end['max_rss_bytes'] >= 150 * MIB
    assert max(tick['rss_bytes'] for tick in lines(tmp_path / 'run', 'tick')) < 150 * MIB


def test_warnings_and_signal_at_fractions(tmp_path):
    script = 'import signal, sys, time\nsignal.signal(signal.SIGUSR1, lambda *_: sys.exit(9))\nb = bytearray(98 << 20)\nwhile True:\n    time.sleep(0.1)'
    done = watch(tmp_path / 'run', *python(script), options=['--memory', '100M', '--warn', '0.5,0.9', '--signal-at', '0.95:USR1'])
    assert done.returncode == 9
    assert [line['fraction'] for line in lines(tmp_path / 'run', 'warning')] == [0.5, 0.9]
    [event] = lines(tmp_path / 'run', 'signal')
    assert event['signal'] == 'USR1' and event['from'] == 'watch' and event['sent']
    near = [tick for tick in lines(tmp_path / 'run', 'tick') if tick['line_bytes'] == 100 * MIB]
    assert near and lines(tmp_path / 'run', 'begin')[0]['limits'][near[0]['line']]['source'] == '--memory'
    assert done.stderr.count('warning: ') == 3


def test_gpus(tmp_path):
    tool = tmp_path / 'nvidia-smi'
    tool.write_text('#!/bin/sh\necho "0, 512, 81920"\necho "1, [N/A], 81920"\necho "2, 1, 2"\nexec sleep 600\n')
    tool.chmod(0o755)
    environment = {**os.environ, 'PATH': f'{tmp_path}:{os.environ["PATH"]}'}
    child = start(tmp_path / 'run', 'cat', env=environment)
    until(lambda: (tmp_path / 'run' / 'timeline.jsonl').exists() and len(lines(tmp_path / 'run', 'gpu')) == 2)
    assert lines(tmp_path / 'run', 'tick')[-1]['num_processes'] == 1
    child.communicate('', timeout=1500)
    first, second = lines(tmp_path / 'run', 'gpu')
    assert (first['gpu'], first['used_bytes'], first['total_bytes']) == (0, 512 * MIB, 81920 * MIB) and second['gpu'] == 2


def test_full_disk_does_not_disturb_the_command(tmp_path):
    """The timeline is cut by ulimit -f: the command and its exit code are as ever."""
    script = f'ulimit -f 4; exec "{PLIMSOLL}" watch --interval 10ms --out "{tmp_path}/run" -- sh -c "for i in 1 2 3 4 5 6 7 8; do sleep 0.1; done; exit 3"'
    done = subprocess.run(['bash', '-c', script], capture_output=True, text=True, check=False, timeout=1500)
    assert done.returncode == 3 and done.stderr.count('warning: ') == 1
    text = (tmp_path / 'run' / 'timeline.jsonl').read_text()
    assert json.loads(text.splitlines()[0])['kind'] == 'begin'


@contextlib.contextmanager
def group(limit):
    """A memory group with a limit, and one below it for the command."""
    if os.geteuid() != 0 or not (GROUPS / 'memory.limit_in_bytes').exists():
        pytest.skip('needs root and a writable cgroup v1 memory controller')
    path = GROUPS / f'plimsoll-watch-{os.getpid()}'
    (path / 'step').mkdir(parents=True)
    (path / 'memory.limit_in_bytes').write_text(str(limit))
    try:
        yield path
    finally:
        for place in path / 'step', path:
            until(lambda: not (place / 'cgroup.procs').read_text(), 30)  # noqa: B023
            place.rmdir()


def enter(path):
    def move():
        (path / 'cgroup.procs').write_text(str(os.getpid()))
    return move


LEAK = 'b = []\nwhile True:\n    b.append(bytearray(1 << 20))\n    import time; time.sleep(0.002)'


@pytest.mark.parametrize('inner', ['', 'step'])
def test_kill_by_a_limit_is_in_the_end(tmp_path, inner):
    with group(96 * MIB) as path:
        done = watch(tmp_path / 'run', *python(LEAK), options=['--interval', '20ms'], preexec_fn=enter(path / inner))
    assert done.returncode == 137 and 'for memory' in done.stderr
    verdict = json.loads(subprocess.run([PLIMSOLL, 'doctor', tmp_path / 'run', '--json'], capture_output=True, check=True, timeout=1500).stdout)
    assert verdict['cause'] in done.stderr and verdict['summary'] in done.stderr and verdict['advice'][0]['change'] in done.stderr
    [end] = lines(tmp_path / 'run', 'end')
    assert end['signal'] == 'KILL'
    own, *parents = end['groups']
    limited = next(entry for entry in end['groups'] if entry['path'].endswith(path.name))
    assert own['kills'] == 1 and limited['limit_hits'] > 0 and limited['limit_bytes'] == 96 * MIB
    assert (limited is own) == (inner == '') and (inner == '' or parents[0] is limited)
    assert end['peak_line_bytes'] == 96 * MIB and end['peak_used_bytes'] > 60 * MIB
    assert lines(tmp_path / 'run', 'warning')
    grown = [tick['rss_bytes'] for tick in lines(tmp_path / 'run', 'tick')]
    assert max(grown) > 50 * MIB


def test_page_cache_is_not_use(tmp_path):
    (tmp_path / 'large').write_bytes(bytes(48 * MIB))
    with group(32 * MIB) as path:
        done = watch(tmp_path / 'run', 'cat', str(tmp_path / 'large'), options=['--interval', '10ms'], preexec_fn=enter(path))
    assert done.returncode == 0
    [end] = lines(tmp_path / 'run', 'end')
    assert end['groups'][0]['kills'] == 0 and end['peak_used_bytes'] < 16 * MIB and not lines(tmp_path / 'run', 'warning')


def test_live_line_on_a_terminal(tmp_path):
    """Below the region in which the command's output scrolls, which is given back at the end."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack('4H', 24, 100, 0, 0))
    child = subprocess.Popen([PLIMSOLL, 'watch', '--out', str(tmp_path / 'run'), '--', 'sh', '-c', 'echo hello; read line'],
                             stdin=subprocess.PIPE, stdout=follower, stderr=follower, env={**os.environ, 'TERM': 'xterm'})
    os.close(follower)
    shown = b''
    while b'of ' not in shown:
        assert select.select([leader], [], [], 120)[0]
        shown += os.read(leader, 4096)
    child.communicate(b'\n', timeout=1500)
    with contextlib.suppress(OSError):
        while select.select([leader], [], [], 1)[0]:
            shown += os.read(leader, 4096)
    os.close(leader)
    assert b'hello' in shown and b'1 process' in shown
    assert b'\x1b[1;' in shown and shown.index(b'\x1b[r') > shown.index(b'1 process')


def test_memory_of_others_is_not_the_commands(tmp_path):
    """Where nothing but the host limits the command, the doctor tells of the command's own memory."""
    done = watch(tmp_path / 'run', *python('b = bytearray(50 << 20)'), options=['--json'])
    printed = json.loads(done.stdout)
    if not printed['line_source'].startswith('host '):
        pytest.skip(f'another limit is nearer here: {printed["line_source"]}')
    found = subprocess.run([PLIMSOLL, 'doctor', str(tmp_path / 'run'), '--json'], capture_output=True, check=True, timeout=1500)
    growth = json.loads(found.stdout)['growth']
    assert (growth['peak_bytes'], growth['limit_of']) == (printed['peak_bytes'], 'host')
