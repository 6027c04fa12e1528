"""The recipes of examples/recipes.tsv that draw neighbours work as written, on small graphs of the same layout."""
import csv
import json
import pathlib
import shlex
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

EPOCHS = 5


def recipes():
    with open(im.SOURCE / 'examples' / 'recipes.tsv', encoding='utf-8') as file:
        return [row for row in csv.DictReader((line for line in file if not line.startswith('#')), delimiter='\t') if row['small']]


def events_of(*words):
    done = im.run(*words, '--quiet', '--json')
    assert done.returncode == 0, (words, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


class Generated:
    """A generated dataset, as the sources of tests/support/importing.py take graphs."""

    def __init__(self, path, words):
        events_of('generate', *shlex.split(words)[:1], path, *shlex.split(words)[1:])
        got = im.arrays(path)
        degrees = np.diff(got['indptr'])
        self.num_nodes = len(degrees)
        self.edges = np.stack([got['indices'].astype(np.int64), np.repeat(np.arange(self.num_nodes), degrees)])
        self.features = got['features'].astype(np.float32)
        self.labels = got['labels']
        self.split = {part: got[part] for part in ('train', 'valid', 'test')}

    float_labels = im.Graph.float_labels


def write_arrays(root, nodes=1000):
    """Targets of several columns: where a node's neighbours lie."""
    draw = np.random.default_rng(3)
    x = draw.standard_normal((nodes, 16)).astype(np.float32)
    neighbours = draw.integers(0, nodes, (nodes, 4))
    edges = np.stack([neighbours.ravel(), np.repeat(np.arange(nodes), 4)])
    y = (x + x[neighbours].mean(1)) @ draw.standard_normal((16, 8)).astype(np.float32)
    return im.write_npy(root, edge_index=edges, x=x, y=y)


@pytest.fixture(scope='module')
def datasets(tmp_path_factory):
    """Imports the small data of a recipe once."""
    made = {}

    def dataset(row):
        key = row['small'], row['import']
        if key not in made:
            root = tmp_path_factory.mktemp(row['set'])
            if row['small'] == 'arrays':
                source = write_arrays(root / 'source')
            else:
                write = im.write_ogb if row['set'] == 'papers100M' else im.write_ogb_csv
                source = write(root / 'source', Generated(root / 'generated', row['small']))
            events_of('import', source, root / 'data', *shlex.split(row['import']))
            made[key] = root / 'data'
        return made[key]

    return dataset


def test_papers100m_has_its_batches():
    batches = {row['train'].split()[row['train'].split().index('--batch') + 1] for row in recipes() if row['set'] == 'papers100M'}
    assert batches == {'64', '128', '256'}


@pytest.mark.parametrize('row', recipes(), ids=lambda row: f'{row["set"]}-{row["model"]}')
def test_a_recipe(tmp_path, datasets, row):
    words = shlex.split(row['train'])
    if row['small'] != 'arrays':
        words[words.index('--epochs') + 1] = EPOCHS
    events = events_of('train', datasets(row), '--run', tmp_path / 'run', *words)
    losses = [json.loads(line)['loss'] for line in (tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines()]
    assert losses[-1] < losses[0]
    assert events[0]['without_effect'] == []
    assert all(-1 <= events[-1][split] <= 1 for split in ('train', 'valid', 'test'))
    if '--metric' in words:
        assert events[0]['metric'] == 'cosine' and events[-1]['test'] > 0.9
