# labels: plain long
"""The examples: each runs, learns, and differs from its plain PyTorch Geometric script by some lines."""
import difflib
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

pytest.importorskip('plimsoll')
pytest.importorskip('torch_geometric')
torch = pytest.importorskip('torch')

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from fork import run_in_a_fork  # noqa: E402
from importing import SOURCE, real_data  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
EXAMPLES = pathlib.Path(SOURCE) / 'examples' / 'python'
# Lines that are not in the other script, and a score that guessing does not reach.
CHANGED = {'papers_sage': 9, 'arxiv_sage': 7, 'proteins_gin': 9, 'molesol_gine': 8}
LEAST = {'papers_sage': 0.03, 'arxiv_sage': 0.4, 'proteins_gin': 0.55, 'molesol_gine': 0.1}
EPOCHS = {'papers_sage': 3, 'arxiv_sage': 1, 'proteins_gin': 5, 'molesol_gine': 15}


@pytest.fixture(scope='module')
def datasets(tmp_path_factory):
    """Makes a dataset when it is first asked for."""
    directory = tmp_path_factory.mktemp('data')

    def make(name):
        words = {
            'papers_sage': ['generate', 'papers100M', directory / name, '--scale', '0.0005'],
            'arxiv_sage': ['import', real_data() / 'ogbn_arxiv', directory / name, '--symmetrise'],
            'proteins_gin': ['import', real_data() / 'graphs' / 'PROTEINS', directory / name, '--symmetrise'],
            'molesol_gine': ['import', real_data() / 'graphs' / 'ogbg_molesol', directory / name, '--symmetrise'],
            'molecules': ['import', real_data() / 'graphs' / 'ogbg_molesol', directory / name, '--features', 'f32', '--symmetrise'],
        }[name]
        if not (directory / name).exists():
            subprocess.run([PLIMSOLL, *map(str, words), '--quiet'], check=True, timeout=1500)
        return directory / name

    return make


def run(script, dataset, *words):
    torch.set_num_threads(1)  # threads that wait for each other take most of the time of small models
    done = run_in_a_fork(EXAMPLES / script, dataset, *words, directory=dataset.parent)
    assert done.returncode == 0, done.stderr
    return done.stdout


def score(script, dataset, epochs):
    return float(re.search(r'^Test: (\S+)$', run(script, dataset, '--epochs', epochs), re.MULTILINE).group(1))


@pytest.mark.parametrize('name', ['papers_sage', *(pytest.param(name, marks=pytest.mark.nightly) for name in CHANGED if name != 'papers_sage')])
def test_the_example_learns(datasets, name):
    assert score(f'{name}.py', datasets(name), EPOCHS[name]) > LEAST[name]


@pytest.mark.nightly
@pytest.mark.parametrize('name', CHANGED)
def test_the_plain_script_learns(datasets, name):
    if name not in ('proteins_gin', 'molesol_gine') and not any(importlib.util.find_spec(sampler) for sampler in ('pyg_lib', 'torch_sparse')):
        pytest.skip("PyTorch Geometric's NeighborLoader needs pyg-lib or torch-sparse, which are not on PyPI for every torch")
    assert score(f'{name}_pyg.py', datasets(name), EPOCHS[name]) > LEAST[name]


def code(script):
    """The lines without the first docstring."""
    return (EXAMPLES / script).read_text().split('"""', 2)[2].splitlines()


@pytest.mark.parametrize('name', CHANGED)
def test_the_difference_is_small(name):
    plain, ours = code(f'{name}_pyg.py'), code(f'{name}.py')
    added = [line for line in difflib.ndiff(plain, ours) if line.startswith('+ ')]
    assert 0 < len(added) <= CHANGED[name], added
    assert len(ours) <= len(plain)


PAIR = {'papers': ['--num_neighbors', '3 2', '--batch_size', '128', '--hidden_dim', '16', '--memory', '2G'],
        'molecules': ['--micro_batch', '32', '--hidden_dim', '16']}


def epochs_of(name, dataset, *words):
    """The epoch lines of a script to start from, without their times."""
    out = run(f'{name}.py', dataset, *PAIR[name], '--log_steps', 1000, *words)
    return re.findall(r'^(Epoch \d{3} \| Loss: \d+\.\d{4} \| Val: \d+\.\d{4} \| Test: \d+\.\d{4}) \| Time: \d+s$', out, re.MULTILINE)


@pytest.mark.parametrize('name', ['papers', pytest.param('molecules', marks=pytest.mark.nightly)])
def test_a_script_to_start_from_continues_where_it_ended(datasets, name):
    dataset = datasets({'papers': 'papers_sage'}.get(name, name))
    whole = epochs_of(name, dataset, '--epochs', 3, '--checkpoint', f'{name}-whole.pt')
    begun = epochs_of(name, dataset, '--epochs', 2, '--checkpoint', f'{name}-part.pt', '--resume')
    assert len(whole) == 3 and begun == whole[:2]
    assert epochs_of(name, dataset, '--epochs', 3, '--checkpoint', f'{name}-part.pt', '--resume') == whole[2:]


@pytest.mark.nightly
def test_parts_of_a_batch_make_the_same_updates(datasets):
    def losses(*words):
        return [float(line.split('Loss: ')[1].split()[0]) for line in epochs_of('molecules', datasets('molecules'), '--epochs', 2, '--checkpoint', 'parts.pt', *words)]
    whole = losses('--micro_batch', 128)
    assert losses('--micro_batch', 32, '--checkpoint_activations') == pytest.approx(whole, rel=1e-3)
    assert losses('--amp') == pytest.approx(whole, rel=0.05)
