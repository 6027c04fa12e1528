# labels: plain long
"""Some random runs in real cgroups: planned, trained, used to predict; tools/prove never-killed tries hundreds, and times them."""
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROVE = pathlib.Path(os.environ['PLIMSOLL_SOURCE']) / 'tools' / 'prove'


@pytest.fixture(name='directory', scope='module')
def place_for_datasets(tmp_path_factory):
    """All runs share what is made there once."""
    return tmp_path_factory.mktemp('never-killed')


def try_some(directory, count, datasets, *options):
    done = subprocess.run([sys.executable, PROVE, 'never-killed', str(count), '--minimums', '0', '--untimed', '--datasets', datasets, '--dir', directory,
                           '--json', directory / 'result.json', *options], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    print(done.stdout + done.stderr)
    assert done.returncode == 0
    assert json.loads((directory / 'result.json').read_text())['ran'] > 0


def test_some_random_runs(directory):
    try_some(directory, 3, 'papers,arxiv,species,broad,hubs,graphs')


@pytest.mark.nightly
def test_many_random_runs(directory):
    try_some(directory, 20, 'papers,arxiv,species,broad,hubs,graphs', '--seed', '1')


@pytest.mark.nightly
def test_a_few_without_avx512(directory):
    """oneDNN then has other kernels, which take their memory at other times."""
    try_some(directory, 2, 'arxiv,species', '--variant', 'avx2')


@pytest.mark.nightly
def test_a_few_without_huge_pages(directory):
    try_some(directory, 2, 'arxiv,hubs', '--variant', 'small-pages')
