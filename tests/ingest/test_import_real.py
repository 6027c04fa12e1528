# labels: nightly
"""All of the real data imports, and its counts are those of its README."""
import json
import pathlib
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

#            nodes, edges, features, classes, (train, valid, test)
NODES = {
    'cora': (2708, 10556, 1433, 7, (140, 500, 1000)),
    'citeseer': (3327, 9104, 3703, 6, (120, 500, 1000)),
    'amazon_photo': (7650, 143663, 745, 8, None),
    'amazon_cs': (13752, 287209, 767, 10, None),
    'coauthor_cs': (18333, 163788, 6805, 15, None),
    'ogbn_arxiv': (169343, 1166243, 40, 40, (90941, 29799, 48603)),
    'tolokers': (11758, 519000, 10, 2, None),
    'minesweeper': (10000, 39402, 7, 2, None),
}
GRAPHS = {'ogbg_molesol': 1128, 'ogbg_molfreesolv': 642, 'MUTAG': 188, 'PROTEINS': 1113, 'ENZYMES': 600}


def described(source, target, *options):
    done = im.run('import', source, target, '--json', '--quiet', *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize('name', NODES)
def test_node_classification(tmp_path, name):
    source = im.real_data() / name
    nodes, edges, features, classes, split = NODES[name]
    printed = described(source, tmp_path / 'out')
    assert (printed['num_nodes'], printed['num_edges'], printed['num_features'], printed['num_classes']) == \
        (nodes, edges, features, classes)
    if split:
        assert (printed['num_train'], printed['num_valid'], printed['num_test']) == split
    got = im.arrays(tmp_path / 'out')
    with np.load(source / 'raw' / 'data.npz') as data:
        indptr, indices = im.csc(data['edge_index'], nodes)
        assert np.array_equal(got['features'], data['node_feat'])
    assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)
    with np.load(source / 'raw' / 'node-label.npz') as data:
        labels = data['node_label'].ravel()
    assert np.array_equal(got['labels'], np.where(np.isnan(labels), -1, labels))
    verified = im.run('inspect', tmp_path / 'out', '--verify')
    assert verified.returncode == 0, verified.stderr


@pytest.mark.parametrize('name', GRAPHS)
def test_many_graphs(tmp_path, name):
    source = im.real_data() / 'graphs' / name
    printed = described(source, tmp_path / 'out')
    raw = im.arrays(source)
    assert printed['num_graphs'] == GRAPHS[name] == len(raw['graph_label'])
    assert printed['num_nodes'] == raw['node_ptr'][-1]
    assert printed['num_edges'] == raw['edge_ptr'][-1]
    got = im.arrays(tmp_path / 'out')
    assert np.array_equal(got['graph_indptr'], raw['node_ptr'])
    assert np.array_equal(got['labels'].ravel(), raw['graph_label'].ravel())
    first = np.repeat(raw['node_ptr'][:-1], np.diff(raw['edge_ptr']))
    indptr, indices = im.csc(raw['edge_index_local'] + first, printed['num_nodes'])
    assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)
    categories = raw.get('node_feat_int', raw.get('node_tag'))
    assert got['features'].sum() == categories.size
    assert np.array_equal(got['train'], raw.get('train_idx', raw.get('train_idx_fold1')))
    assert im.run('inspect', tmp_path / 'out', '--verify').returncode == 0


@pytest.mark.parametrize('name', ['tolokers', 'minesweeper', 'amazon_photo'])
def test_symmetrised(tmp_path, name):
    source = im.real_data() / name
    got = im.imported(source, tmp_path / 'out', '--symmetrise', '--features', 'f16')
    with np.load(source / 'raw' / 'data.npz') as data:
        indptr, indices = im.csc(data['edge_index'], NODES[name][0], symmetrise=True)
        assert np.array_equal(got['features'], data['node_feat'].astype(np.float16))
    assert np.array_equal(got['indptr'], indptr) and np.array_equal(got['indices'], indices)


def test_torch_opens_the_arrays(tmp_path):
    torch = pytest.importorskip('torch', reason='torch is not installed')
    got = im.imported(im.real_data() / 'cora', tmp_path / 'out')
    for name, array in got.items():
        tensor = torch.from_numpy(np.load(tmp_path / 'out' / f'{name}.npy', mmap_mode='c'))
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.numpy(), array)
    features = torch.from_numpy(np.load(tmp_path / 'out' / 'features.npy', mmap_mode='c'))
    indptr = torch.from_numpy(np.load(tmp_path / 'out' / 'indptr.npy', mmap_mode='c'))
    indices = torch.from_numpy(np.load(tmp_path / 'out' / 'indices.npy', mmap_mode='c'))
    adjacency = torch.sparse_csr_tensor(indptr, indices.long(), torch.ones(len(indices)), (2708, 2708))
    means = adjacency @ features / indptr.diff()[:, None]
    assert torch.allclose(means[0], features[indices[indptr[0]:indptr[1]].long()].mean(0))
