# labels: nightly
"""Weights trained here are PyTorch Geometric's too: a checkpoint loads into its models as it is, and says the same of Cora."""
import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
pytest.importorskip('torch_geometric', reason='torch_geometric is not installed (tools/bootstrap installs it)')
pytest.importorskip('safetensors', reason='safetensors is not installed (tools/bootstrap installs it)')
from safetensors.torch import load_file  # noqa: E402
from torch_geometric.nn import GAT, GCN, GIN, MLP, GraphSAGE  # noqa: E402

HIDDEN = 32
# The class, what it is told beside the widths, and the options of `plimsoll train` that say the same. Our layer norm is of a
# node's values: PyG's is of the whole graph's unless it is told so.
LAYER_NORM = {'norm': 'layer_norm', 'norm_kwargs': {'mode': 'node'}}
CASES = {
    'gcn': (GCN, {}, ['--model', 'gcn']),
    'sage': (GraphSAGE, {}, ['--model', 'sage']),
    'sage-max-layer-norm': (GraphSAGE, {'aggr': 'max', **LAYER_NORM}, ['--model', 'sage', '--aggr', 'max', '--norm', 'layer']),
    'sage-sum': (GraphSAGE, {'aggr': 'sum'}, ['--model', 'sage', '--aggr', 'sum']),
    'gat': (GAT, {'heads': 4, 'act': 'elu'}, ['--model', 'gat', '--heads', '4', '--act', 'elu']),
    'gin-batch-norm': (GIN, {'norm': 'batch_norm'}, ['--model', 'gin', '--norm', 'batch']),
}


def plimsoll(*words):
    done = im.run(*words, '--quiet', '--json')
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(name='cora', scope='module')
def import_cora(tmp_path_factory):
    target = tmp_path_factory.mktemp('data') / 'cora'
    plimsoll('import', im.real_data() / 'cora', target, '--symmetrise', '--normalise-features')
    return target


def edge_index(arrays):
    degrees = np.diff(arrays['indptr'])
    return torch.from_numpy(np.stack([arrays['indices'].astype(np.int64), np.repeat(np.arange(len(degrees)), degrees)]))


def loaded(weights, make, options, features, outputs):
    """PyG's model with our weights: every name and shape must be the one it has itself."""
    model = make(features, HIDDEN, 2, outputs, **options)
    model.load_state_dict(load_file(weights), strict=True)
    return model.eval()


def assert_same(ours, theirs):
    assert ours.shape == theirs.shape and ours.dtype == np.float32
    assert np.abs(ours - theirs).max() <= 1e-4 * max(1, np.abs(theirs).max())


def predicted(run, place, split, *options):
    plimsoll('predict', run, '--split', split, '--out', place, *options)
    return np.load(place)


@pytest.mark.parametrize('name', CASES)
def test_cora(cora, tmp_path, name):
    make, options, words = CASES[name]
    run = tmp_path / 'run'
    plimsoll('train', cora, '--run', run, '--layers', 2, '--hidden', HIDDEN, '--fanout=-1,-1', '--batch', 1024,
             '--dropout', 0.5, '--epochs', 20, '--seed', 3, *words)
    arrays = im.arrays(cora)
    features = torch.from_numpy(arrays['features'].astype(np.float32))
    model = loaded(run / 'best.safetensors', make, options, features.shape[1], int(arrays['labels'].max()) + 1)
    with torch.no_grad():
        theirs = model(features, edge_index(arrays)).numpy()
    assert_same(predicted(run, tmp_path / 'all.npy', 'all'), theirs)
    assert_same(predicted(run, tmp_path / 'test.npy', 'test'), theirs[arrays['test']])
    assert_same(predicted(run, tmp_path / 'sampled.npy', 'test', '--sampled'), theirs[arrays['test']])
    score = plimsoll('evaluate', run, '--exact', '--split', 'test')['test']['score']
    right = (theirs.argmax(1) == arrays['labels'])[arrays['test']].mean()
    assert abs(score - right) <= 0.002  # two nodes whose two best are a rounding apart


def test_mlp(cora, tmp_path):
    run = tmp_path / 'run'
    plimsoll('train', cora, '--run', run, '--model', 'mlp', '--layers', 2, '--hidden', HIDDEN, '--norm', 'batch', '--epochs', 5)
    arrays = im.arrays(cora)
    features = torch.from_numpy(arrays['features'].astype(np.float32))
    model = MLP(in_channels=features.shape[1], hidden_channels=HIDDEN, out_channels=int(arrays['labels'].max()) + 1, num_layers=2)
    model.load_state_dict(load_file(run / 'best.safetensors'), strict=True)
    with torch.no_grad():
        theirs = model.eval()(features).numpy()
    assert_same(predicted(run, tmp_path / 'test.npy', 'test'), theirs[arrays['test']])
