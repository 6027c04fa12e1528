# labels: plain unprivileged
"""plimsoll limit and what all verbs share: help, wrong use, --json, sizes."""
import json
import os
import re
import resource
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
JOB_VARIABLES = ('SLURM', 'OMPI_', 'MPI_', 'MV2_', 'PALS_', 'PBS_', 'LSB_')


def run(*arguments, preexec_fn=None, stdout=subprocess.PIPE, **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(JOB_VARIABLES)}
    environment.update(variables)
    return subprocess.run([PLIMSOLL, *arguments], stdout=stdout, stderr=subprocess.PIPE, text=True,
                          env=environment, preexec_fn=preexec_fn, timeout=1500, check=False)


def limits(*arguments, **settings):
    done = run('limit', '--json', *arguments, **settings)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count('\n') == 1
    return json.loads(done.stdout)


@pytest.mark.parametrize('arguments', [['--help'], ['-h'], ['help'], ['limit', '--help'],
                                       ['limit', '-h'], ['help', 'limit']])
def test_help_goes_to_standard_output(arguments):
    done = run(*arguments)
    assert done.returncode == 0
    assert done.stdout.startswith('usage: plimsoll')
    assert done.stderr == ''


def test_version():
    done = run('--version')
    assert done.returncode == 0
    assert done.stdout.startswith('plimsoll 0.')


@pytest.mark.parametrize('arguments, named', [
    ([], 'usage'),
    (['fly'], 'fly'),
    (['help', 'fly'], 'fly'),
    (['limit', 'now'], 'now'),
    (['limit', '--fly'], '--fly'),
    (['limit', '-z'], '-z'),
    (['limit', '--memory'], '--memory'),
    (['limit', '--memory', 'much'], 'much'),
    (['limit', '--memory', '0'], '--memory'),
    (['limit', '--memory', '4'], '4G'),  # in which unit?
    (['limit', '--memory', '999999'], '999999M'),
    (['limit', '--memory', '-4G'], '-4G'),
    (['limit', '--memory', 'nan'], 'nan'),
    (['limit', '--memory', '4GG'], '4GG'),
    (['limit', '--threads', '0'], '--threads'),
    (['limit', '--threads', '2x'], '2x'),
    (['limit', '--io', 'magic'], 'magic'),
    (['limit', '--json=yes'], '--json'),
])
def test_wrong_use_is_reported_and_ends_with_2(arguments, named):
    done = run(*arguments)
    assert done.returncode == 2
    assert done.stdout == ''
    assert named in done.stderr


@pytest.mark.parametrize('text, size', [
    ('4096B', 4096), ('1000000', 1000000), ('64K', 64 << 10), ('64k', 64 << 10), ('300M', 300 << 20),
    ('300MiB', 300 << 20), ('300Mi', 300 << 20), ('300MB', 300 << 20), ('1.5G', 3 << 29)])
def test_sizes_as_people_write_them(text, size):
    found = limits('--memory', text)
    assert (found['line_bytes'], found['line_source']) == (size, '--memory')
    assert limits('--memory=' + text)['line_bytes'] == size


def test_json_names_every_limit():
    found = limits('--memory', '1M', '--threads', '1')
    assert found['line_bytes'] == min(entry['bytes'] for entry in found['limits'])
    assert found['threads'] == min(entry['threads'] for entry in found['thread_limits']) == 1
    assert {entry['source'] for entry in found['limits']} >= {'--memory'}
    assert found['local_ranks'] == 1
    assert isinstance(found['login_node'], bool)


def test_the_same_in_words():
    found = limits('--memory', '1M')
    done = run('limit', '--memory', '1M')
    lines = done.stdout.splitlines()
    assert '->      1 MiB  --memory' in lines
    for entry in found['limits'] + found['thread_limits']:
        assert any(line.endswith('  ' + entry['source']) for line in lines)
    assert 'The line is 1 MiB.' in done.stdout


def test_slurm_and_ranks():
    job = {'SLURM_JOB_ID': '7', 'SLURMD_NODENAME': 'n1', 'SLURM_STEP_ID': '0',
           'SLURM_MEM_PER_NODE': '64', 'SLURM_STEP_TASKS_PER_NODE': '4(x2)', 'SLURM_CPUS_PER_TASK': '1'}
    found = limits(**job)
    assert found['line_bytes'] == 16 << 20
    assert found['line_source'] == 'SLURM_MEM_PER_NODE, a part of 4'
    assert found['local_ranks'] == 4
    assert found['threads'] == 1
    assert not found['login_node']
    printed = run('limit', **job).stdout
    assert 'ask Slurm for more with --mem' in printed
    assert '4 ranks share this node' in printed


def test_a_shell_of_salloc_looks_like_a_login_node():
    found = limits(SLURM_JOB_ID='7')
    assert found['login_node']
    assert 'srun' in found['login_why']
    assert 'login node' in run('limit', SLURM_JOB_ID='7').stdout


def sanitized():
    with open(PLIMSOLL, 'rb') as binary:
        return re.search(rb'__[at]san_init', binary.read()) is not None


@pytest.mark.skipif(sanitized(), reason='a sanitizer needs terabytes of address space')
def test_ulimit():
    def lower():
        resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    found = limits(preexec_fn=lower)
    entry = [e for e in found['limits'] if e['source'].startswith('RLIMIT_AS')]
    assert len(entry) == 1
    assert 800 << 20 < entry[0]['bytes'] < 1 << 30


def test_affinity():
    one = {min(os.sched_getaffinity(0))}
    assert limits(preexec_fn=lambda: os.sched_setaffinity(0, one))['threads'] == 1


def test_a_full_disk_is_not_success():
    for words in (('limit',), ('plan', 'arxiv'), ('plan', 'arxiv', '--json')):
        with open('/dev/full', 'w', encoding='ascii') as full:
            done = run(*words, stdout=full)
        assert done.returncode == 6
        assert 'standard output: No space left on device' in done.stderr
