"""A dataset and a run that version 0.1 made (`made-by-0.1`: an import of CSV, two epochs of a GCN) open with this version."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

MADE = pathlib.Path(__file__).parent / 'made-by-0.1'


def plimsoll(*words):
    done = subprocess.run([os.environ['PLIMSOLL'], *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(name='made')
def copied(tmp_path):
    """Copies, since a run continues in its directory."""
    shutil.copytree(MADE, tmp_path / 'made', copy_function=shutil.copyfile)
    return tmp_path / 'made'


def metrics(run):
    return [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]


def test_every_byte_of_the_dataset_verifies(made):
    about = json.loads(plimsoll('inspect', made / 'data', '--verify', '--json'))
    assert about['num_nodes'] == 60 and about['fingerprint'] == 'fc3569239bcdc4f5'


def test_the_run_scores_as_it_did(made):
    best = next(row for row in metrics(made / 'run') if row['best'])
    scores = json.loads(plimsoll('evaluate', made / 'run', made / 'data', '--json').splitlines()[-1])
    assert scores['valid']['loss'] == pytest.approx(best['valid_loss'], rel=1e-5)
    assert scores['valid']['score'] == pytest.approx(best['valid'])


def test_the_run_continues_and_predicts(made):
    before = metrics(made / 'run')
    plimsoll('train', made / 'data', '--run', made / 'run', '--resume', '--epochs', 4, '--quiet')
    after = metrics(made / 'run')
    assert after[:2] == before and [row['epoch'] for row in after] == [1, 2, 3, 4]
    plimsoll('predict', made / 'run', made / 'data', '--out', made / 'out.npy', '--quiet')
    assert (made / 'out.npy').stat().st_size > 60
    plimsoll('report', made / 'run', '--quiet')
