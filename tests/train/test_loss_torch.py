# labels: together
"""Losses, gradients and updates against PyTorch with the very same batches: seeds without a label, values known in part,
batches without any label, gradients accumulated over batches."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
gnn = pytest.importorskip('torch_geometric.nn', reason='torch_geometric is not installed (tools/bootstrap installs it)')
load_file = pytest.importorskip('safetensors.torch', reason='safetensors is not installed').load_file

PROBE = os.path.join(os.environ.get('PLIMSOLL_PROBES', ''), 'probe_batches')
pytestmark = pytest.mark.skipif(not os.path.exists(PROBE), reason='no probe_batches: run by ctest, or set PLIMSOLL_PROBES')
HIDDEN, SEED = 8, 5


class Task:
    """A dataset, and PyTorch's model of it: outputs of some of its seeds."""

    def __init__(self, place, kind):
        draw = np.random.default_rng(11)
        self.kind, self.path = kind, place / kind
        self.graphs = kind == 'graphs'
        graph = im.Graphs(1, 120, least=1) if self.graphs else im.Graph(1, 240, 1200, 7, 4)
        if self.graphs:
            graph.labels = np.where(draw.random(120) < 0.5, -1, graph.labels)
            source = im.write_ragged(place / 'source', graph)
        else:
            labels = np.where(draw.random(240) < 0.5, -1, np.abs(graph.labels))
            if kind == 'values':
                labels = draw.integers(0, 2, (240, 3)).astype(np.float32)
                labels[draw.random((240, 3)) < 0.6] = np.nan
            graph.labels = labels
            source = im.write_npy(place / 'source', edge_index=graph.edges, x=graph.features, y=labels, **graph.split)
        im.imported(source, self.path, '--features', 'f32')
        arrays = im.arrays(self.path)
        self.rows = torch.from_numpy(arrays['features'].astype(np.float32))
        self.labels = torch.from_numpy(arrays['labels'])
        self.labels = self.labels if self.labels.is_floating_point() else self.labels.long()
        self.outputs = 3 if kind == 'values' else int(self.labels.max()) + 1
        self.train = arrays['train']
        degrees = np.diff(arrays['indptr'])
        self.edges = torch.from_numpy(np.stack([arrays['indices'].astype(np.int64), np.repeat(np.arange(len(degrees)), degrees)]))
        if self.graphs:
            self.indptr = arrays['graph_indptr']
            self.graph_of = torch.from_numpy(np.repeat(np.arange(120), np.diff(self.indptr)))
        self.words = ['--model', 'mlp' if self.graphs else 'sage', '--layers', 2] + \
            ([] if self.graphs else ['--fanout=-1,-1']) + (['--loss', 'bce'] if kind == 'values' else [])

    def model(self, weights):
        width = self.rows.shape[1]
        if self.graphs:
            model = gnn.MLP([width, HIDDEN, HIDDEN], plain_last=False, norm=None)
            model.lin = torch.nn.Linear(HIDDEN, self.outputs)
        else:
            model = gnn.GraphSAGE(width, HIDDEN, 2, self.outputs)
        model.load_state_dict(load_file(weights), strict=True)
        return model

    def loss(self, model, seeds):
        """The sum over what has a label, and how much that is."""
        if self.graphs:
            outputs = model.lin(gnn.global_mean_pool(model(self.rows), self.graph_of, 120))[seeds]
        else:
            outputs = model(self.rows, self.edges)[seeds]
        labels = self.labels[seeds]
        if self.kind == 'values':
            known = ~labels.isnan()
            return torch.nn.functional.binary_cross_entropy_with_logits(outputs[known], labels[known], reduction='sum'), int(known.sum())
        known = labels >= 0
        return torch.nn.functional.cross_entropy(outputs[known], labels[known], reduction='sum'), int(known.sum())

    def batches(self, size, epochs):
        printed = subprocess.run([PROBE, str(self.path), str(size), str(SEED), str(epochs)], check=True, capture_output=True, text=True)
        found = [[] for _ in range(epochs)]
        for line in printed.stdout.splitlines():
            epoch, _, *ids = map(int, line.split())
            ids = np.array(ids)
            found[epoch].append(np.searchsorted(self.indptr, ids, 'right') - 1 if self.graphs else ids)
        assert all(sorted(np.concatenate(epoch)) == sorted(self.train) for epoch in found)
        return found


@pytest.fixture(name='task', scope='module', params=['classes', 'values', 'graphs'])
def make_task(request, tmp_path_factory):
    task = Task(tmp_path_factory.mktemp('loss'), request.param)
    train(task, task.path.parent / 'start', '--epochs', 1, '--lr', 0, '--optimizer', 'sgd')  # weights as they begin
    return task


def train(task, run, *words):
    done = im.run('train', task.path, '--run', run, '--hidden', HIDDEN, '--seed', SEED, '--eval-every', 0, '--quiet', '--json',
                  *task.words, *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in (run / 'metrics.jsonl').read_text().splitlines()]


def torch_train(task, model, optimiser, batches, accumulation):
    """What PyTorch does: the losses of the epochs."""
    losses = []
    for epoch in batches:
        total = labels = 0
        for first in range(0, len(epoch), accumulation):
            group = epoch[first:first + accumulation]
            any_label = False
            optimiser.zero_grad()
            for seeds in group:
                loss, count = task.loss(model, seeds)
                if count == 0:
                    continue
                (loss / count / len(group)).backward()
                any_label = True
                total, labels = total + float(loss.detach()), labels + count
            if any_label:
                optimiser.step()
        losses.append(total / labels)
    return losses


@pytest.mark.parametrize('optimiser, accumulation, how',
                         [('sgd', 1, 'whole'), ('sgd', 7, 'whole'), ('adam', 1, 'parts'), ('adam', 7, 'parts')])
def test_same_batches(task, tmp_path, optimiser, accumulation, how):
    size, epochs, rate = 3, 2, {'sgd': 0.5, 'adam': 0.01}[optimiser]
    batches = task.batches(size, epochs)
    labels = task.labels.nan_to_num(-1).reshape(len(task.labels), -1)
    assert any((labels[seeds] < 0).all() for seeds in batches[0])
    assert len(batches[0]) % 7 != 0  # the last group is smaller
    words = ['--batch', size, '--epochs', epochs, '--optimizer', optimiser, '--lr', rate] + \
        (['--gradient_accumulation_steps', accumulation] if accumulation > 1 else []) + (['--microbatch', 2] if how == 'parts' else [])
    lines = train(task, tmp_path / 'run', *words)
    model = task.model(task.path.parent / 'start' / 'last.safetensors')
    theirs = {'sgd': torch.optim.SGD, 'adam': torch.optim.Adam}[optimiser](model.parameters(), lr=rate)
    losses = torch_train(task, model, theirs, batches, accumulation)
    assert np.allclose([line['loss'] for line in lines], losses, rtol=2e-5)
    seeds = task.labels[task.train]
    assert {line['labelled'] for line in lines} == \
        {int(((~seeds.isnan()).any(1) if task.kind == 'values' else seeds >= 0).sum())}
    ours = load_file(tmp_path / 'run' / 'last.safetensors')
    for name, value in model.state_dict().items():
        assert torch.allclose(ours[name], value, rtol=1e-4, atol=2e-5), name


def test_bits_of_a_stopped_group(task, tmp_path):
    """Checkpoints are of updates only: a run resumed from any of them ends as the whole one does."""
    words = ['--batch', 3, '--gradient_accumulation_steps', 4, '--norm', 'batch']
    train(task, tmp_path / 'whole', *words, '--epochs', 3)
    train(task, tmp_path / 'parts', *words, '--epochs', 2, '--checkpoint-every', 3)
    done = im.run('train', '--resume', tmp_path / 'parts', '--epochs', 3, '--quiet')
    assert done.returncode == 0, done.stderr
    whole, parts = (load_file(tmp_path / name / 'last.safetensors') for name in ('whole', 'parts'))
    assert all(torch.equal(whole[name], parts[name]) for name in whole)
    done = im.run('train', '--resume', tmp_path / 'parts', '--epochs', 4, '--gradient_accumulation_steps', 2, '--quiet')
    assert done.returncode == 2 and 'accumulation' in done.stderr
