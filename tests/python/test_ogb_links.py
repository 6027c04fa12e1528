# labels: together
"""Archives in OGB's layout for link prediction: the graph, and every array of the split."""
import gzip
import os
import shutil

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
ogb_links = pytest.importorskip('plimsoll.ogb_links')

NODES = 60


def write(path, array, digits='%d'):
    os.makedirs(path.parent, exist_ok=True)
    with gzip.open(path, 'wt') as file:
        np.savetxt(file, np.asarray(array).reshape(len(array), -1), fmt=digits, delimiter=',')


def save(directory, splits):
    os.makedirs(directory, exist_ok=True)
    for name, parts in splits.items():
        torch.save(parts, directory / f'{name}.pt')


def archive(place, kind):
    """As ogbl-collab (pairs without a direction, with weights and years) or ogbl-citation2 (candidates for each target)."""
    draw = np.random.default_rng(4)
    root = place / 'archive'
    edges = np.unique(np.sort(draw.integers(0, NODES, (220, 2)), axis=1), axis=0)
    edges = draw.permutation(edges[edges[:, 0] != edges[:, 1]])
    if kind == 'collab':
        edges[7] = edges[3]  # which has an edge for each year
    parts = {'train': edges[:120], 'valid': edges[120:140], 'test': edges[140:]}
    write(root / 'raw' / 'edge.csv.gz', parts['train'])
    write(root / 'raw' / 'node-feat.csv.gz', draw.standard_normal((NODES, 3)), '%.6f')
    write(root / 'raw' / 'num-node-list.csv.gz', [NODES])
    write(root / 'raw' / 'num-edge-list.csv.gz', [120])
    splits = {}
    for name, pairs in parts.items():
        if kind == 'collab':
            splits[name] = {'edge': pairs, 'weight': draw.random(len(pairs)).astype(np.float32), 'year': draw.integers(1990, 2020, len(pairs))}
            if name != 'train':
                splits[name]['edge_neg'] = draw.integers(0, NODES, (33, 2))
        else:
            splits[name] = {'source_node': pairs[:, 0], 'target_node': pairs[:, 1]}
            if name != 'train':
                splits[name]['target_node_neg'] = draw.integers(0, NODES, (len(pairs), 7))
    if kind == 'collab':
        write(root / 'raw' / 'edge_weight.csv.gz', splits['train']['weight'], '%.7f')
        write(root / 'raw' / 'edge_year.csv.gz', splits['train']['year'])
    save(root / 'split' / 'time', splits)
    return root, splits


@pytest.mark.parametrize('form', ['directory', 'zip'])
@pytest.mark.parametrize('kind', ['collab', 'citation'])
def test_every_array(tmp_path, kind, form):
    root, splits = archive(tmp_path, kind)
    source = root
    if form == 'zip':
        source = shutil.make_archive(str(tmp_path / 'zipped'), 'zip', tmp_path, 'archive')
    dataset = plimsoll.from_ogb_links(source, tmp_path / 'made', quiet=True)
    train = splits['train'].get('edge')
    train = np.stack([splits['train']['source_node'], splits['train']['target_node']], axis=1) if train is None else train
    both = kind == 'collab'
    assert (dataset.num_nodes, dataset.num_features, dataset.num_edges) == (NODES, 3, 119 * 2 if both else len(train))
    sources, indptr = np.load(f'{dataset.path}/indices.npy'), np.load(f'{dataset.path}/indptr.npy')
    edges = {*zip(sources.tolist(), np.repeat(np.arange(NODES), np.diff(indptr)).tolist())}
    wanted = {*map(tuple, train.tolist())}
    assert edges == (wanted | {(target, source) for source, target in wanted} if both else wanted)
    expected = {}
    for name, parts in splits.items():
        expected[name] = parts['edge'] if both else np.stack([parts['source_node'], parts['target_node']], axis=1)
        expected |= {f'{name}_{key}': parts[key] for key in ('weight', 'year') if key in parts}
        if name != 'train':
            expected[f'{name}_neg'] = parts['edge_neg' if both else 'target_node_neg']
    assert {file.stem for file in (tmp_path / 'made' / 'pairs').iterdir()} == set(expected)
    for name, array in expected.items():
        found = np.load(tmp_path / 'made' / 'pairs' / f'{name}.npy')
        assert found.dtype == array.dtype and np.array_equal(found, array), name
    if both:
        assert (tmp_path / 'made' / 'edge_weight.npy').exists() and (tmp_path / 'made' / 'edge_time.npy').exists()
    loader = plimsoll.LinkNeighborLoader(dataset, [-1], f'{dataset.path}/pairs/train.npy', neg_sampling='binary', batch_size=50, memory='1G')
    assert sum(len(batch.input_id) for batch in loader) == len(train)


def test_what_is_no_such_archive(tmp_path):
    root, splits = archive(tmp_path, 'collab')

    def refused(says, source=root, **options):
        with pytest.raises(plimsoll.UsageError, match=says):
            plimsoll.from_ogb_links(source, tmp_path / 'made', quiet=True, **options)
        assert {entry.name for entry in tmp_path.iterdir()} <= {'archive', 'empty'}

    os.mkdir(tmp_path / 'empty')
    refused('train.pt', tmp_path / 'empty')
    refused('split/other', split='other')
    save(root / 'split' / 'random', splits)
    refused('random, time.*split=')
    shutil.rmtree(root / 'split' / 'random')
    for wrong, says in [({'head': np.arange(3)}, 'knowledge'), ({'edge': np.arange(3)}, 'shape'), ({'edge': np.zeros((3, 2))}, 'float64'),
                        ({'edge': splits['test']['edge'], 'weight': np.ones(2)}, 'weight'), ([1], 'dict'), ({'edge': os.system}, 'arrays'), ({'edge': np.array(3)}, 'shape'), ({'source_node': np.arange(3), 'target_node': np.arange(4)}, 'target_node'),
                        ({'edge': splits['test']['edge'], 'edge_neg': np.array(3)}, 'neg is'),
                        ({'source_node': np.arange(3), 'target_node': np.arange(3), 'target_node_neg': np.array(3)}, 'neg is')]:
        save(root / 'split' / 'time', {'test': wrong})
        refused(says)


@pytest.mark.parametrize('stops', ['import', 'rename'])
def test_all_or_nothing(tmp_path, monkeypatch, stops):
    """What is stopped leaves nothing; what is there stays."""
    root, _ = archive(tmp_path, 'citation')

    def stop(*paths, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*((ogb_links, 'import_') if stops == 'import' else (os, 'rename')), stop)
        with pytest.raises(KeyboardInterrupt):
            plimsoll.from_ogb_links(root, tmp_path / 'made', quiet=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ['archive']
    plimsoll.from_ogb_links(root, tmp_path / 'made', quiet=True)
    mode = os.stat(tmp_path / 'made').st_mode
    assert os.stat(tmp_path / 'made' / 'pairs').st_mode == mode
    with pytest.raises(plimsoll.UsageError, match='already exists'):
        plimsoll.from_ogb_links(root, tmp_path / 'made', quiet=True)
    assert (tmp_path / 'made' / 'pairs' / 'test_neg.npy').exists()


def test_where_a_zip_is_unpacked(tmp_path, monkeypatch):
    archive(tmp_path, 'citation')
    source = shutil.make_archive(str(tmp_path / 'zipped'), 'zip', tmp_path, 'archive')
    places, given = [], ogb_links._find

    def find(root, split):
        places.append(os.path.dirname(root))
        return given(root, split)

    monkeypatch.setattr(ogb_links, '_find', find)
    os.mkdir(tmp_path / 'large')
    plimsoll.from_ogb_links(source, tmp_path / 'beside', quiet=True)
    plimsoll.from_ogb_links(source, tmp_path / 'apart', quiet=True, tmp=tmp_path / 'large')
    assert places == [str(tmp_path), str(tmp_path / 'large')]
    assert {entry.name for entry in tmp_path.iterdir()} == {'archive', 'zipped.zip', 'beside', 'apart', 'large'}
    assert not [*(tmp_path / 'large').iterdir()]


def test_other_torches(tmp_path, monkeypatch):
    root, _ = archive(tmp_path, 'citation')
    monkeypatch.setattr(torch, '__version__', '2.5.1+cpu')
    with pytest.raises(ImportError, match='2.6'):
        plimsoll.from_ogb_links(root, tmp_path / 'made', quiet=True)
    monkeypatch.setattr(torch, '__version__', '2.10.0a0+git1')

    def load(*arguments, **options):
        raise EOFError

    monkeypatch.setattr(torch, 'load', load)
    with pytest.raises(plimsoll.UsageError, match='EOFError'):
        plimsoll.from_ogb_links(root, tmp_path / 'made', quiet=True)
