# labels: plain unprivileged
"""Ranks over the MPI plugin, for each MPI that is installed: same bits, and an end together, whatever one of them does."""
import os
import pathlib
import re
import shutil
import subprocess

import pytest

PLIMSOLL = pathlib.Path(os.environ['PLIMSOLL'])
PROBE = pathlib.Path(os.environ['PLIMSOLL_PROBES']) / 'probe_ranks'
ROOT = {'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
MPIS = {'openmpi': ('mpirun.openmpi', ['--oversubscribe']), 'mpich': ('mpirun.mpich', [])}


@pytest.fixture(name='mpi', params=sorted(MPIS))
def installed_mpi(request):
    launcher, options = MPIS[request.param]
    plugin = PLIMSOLL.parent / f'plimsoll-{request.param}.so'
    if shutil.which(launcher) is None or not plugin.exists():
        pytest.skip(f'{launcher} or its plugin is not here')
    return lambda ranks, *words, **more: subprocess.run(
        [launcher, *options, '-n', str(ranks), *map(str, words)], capture_output=True, text=True, check=False, timeout=300,
        env={**os.environ, **ROOT, **more}), plugin


@pytest.mark.parametrize('ranks', [2, 3])
def test_same_bits(mpi, ranks):
    run, plugin = mpi
    done = run(ranks, PROBE, plugin, 30)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(ranks)]


def test_an_error_of_one_is_the_error_of_all(mpi):
    run, plugin = mpi
    done = run(3, PROBE, plugin, 30, 'fails')
    assert done.returncode == 3, done.stderr
    assert sorted(re.findall(r'^rank (\d): rank 1: it does not fit', done.stderr, re.M)) == ['0', '1', '2']


def test_a_silent_rank_is_named(mpi):
    run, plugin = mpi
    done = run(3, PROBE, plugin, 5, 'silent')
    assert done.returncode != 0
    assert re.search(r'evaluation: rank [02] waited 5 s for rank 1', done.stderr), done.stderr


def test_a_rank_that_falls_silent_in_a_broadcast_is_named(mpi):
    run, plugin = mpi
    done = run(4, PROBE, plugin, 5, 'broadcast')
    assert done.returncode != 0
    assert set(re.findall(r'staging: rank [023] waited 5 s for (.*) \(', done.stderr)) == {'rank 1'}, done.stderr


def test_no_rank_survives_another(mpi):
    run, plugin = mpi
    done = run(3, PROBE, plugin, 30, 'exits')
    assert done.returncode != 0
    left = subprocess.run(['pgrep', '-f', f'probe_ranks {plugin}'], capture_output=True, text=True, check=False)
    assert left.stdout == ''


def test_version_lists_the_plugin(mpi):
    plugin = mpi[1]
    done = subprocess.run([PLIMSOLL, '--version'], capture_output=True, text=True, check=True)
    assert re.search(rf'^plugin {re.escape(plugin.name)}: .*MPI', done.stdout, re.M), done.stdout


def test_the_plain_command_is_not_linked_with_mpi():
    for file in (PLIMSOLL, PLIMSOLL.parent / 'libplimsoll.so'):
        assert 'mpi' not in subprocess.run(['ldd', file], capture_output=True, text=True, check=True).stdout.replace(str(PLIMSOLL.parent), '')
