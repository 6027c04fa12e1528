"""Runs the command under test."""
import json
import os
import shutil
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']


MPIS = ['mpirun.openmpi', 'mpirun.mpich']


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def call_ranks(mpi, ranks, *words):
    """The command as so many ranks of one of MPIS, which is skipped where it is not installed."""
    if shutil.which(mpi) is None or not os.path.exists(f'{os.path.dirname(PLIMSOLL)}/plimsoll-{mpi.partition(".")[2]}.so'):
        pytest.skip(f'{mpi} or its plugin is not here')
    started = [mpi, *(['--oversubscribe'] if 'openmpi' in mpi else []), '-n', ranks, PLIMSOLL, *words]
    done = subprocess.run(list(map(str, started)), capture_output=True, text=True, check=False, timeout=300,
                          env={**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'})
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def last(*words):
    return json.loads(call(*words, '--json', '--quiet').stdout.splitlines()[-1])
