"""Training of links: beside PyTorch on the same batches, the same bits always, embeddings that tell links, refusals by name."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from command import MPIS, PLIMSOLL, call as run, call_ranks  # noqa: E402

NODES, EDGES, BATCH, SEED, HIDDEN = 300, 1500, 70, 5, 8


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    """A graph of two groups with neither labels nor splits, and a file of its edges. Half of the links are in both directions."""
    place = tmp_path_factory.mktemp('data')
    draw = np.random.default_rng(3)
    source = draw.integers(0, NODES, EDGES)
    target = np.where(draw.random(EDGES) < 0.9, draw.integers(0, NODES // 2, EDGES) * 2 + source % 2, draw.integers(0, NODES, EDGES))
    edges = np.unique(np.stack([np.append(source, target[::2]), np.append(target, source[::2])]), axis=1)
    os.mkdir(place / 'source')
    features = draw.standard_normal((NODES, 12)).astype(np.float32)
    np.save(place / 'source' / 'edge_index.npy', edges)
    np.save(place / 'source' / 'x.npy', features)
    np.save(place / 'pairs.npy', draw.permutation(edges.T).astype(np.int32))
    run('import', place / 'source', place / 'graph', '--features', 'f32', '--quiet')
    return place


def words(data, *more):
    return ['train', data / 'graph', '--task', 'link', '--pairs', data / 'pairs.npy', '--model', 'sage', '--hidden', HIDDEN, '--batch', BATCH,
            '--seed', SEED, '--json', *more]


def files(path):
    """Metrics, and all tensors: the header of a checkpoint names the number of threads."""
    whole = (path / 'last.safetensors').read_bytes()
    return (path / 'metrics.jsonl').read_bytes(), whole[8 + struct.unpack('<Q', whole[:8])[0]:]


def losses(path):
    return [json.loads(line)['loss'] for line in (path / 'metrics.jsonl').read_text().splitlines()]


TYPES = 4


@pytest.fixture(name='typed', scope='module')
def make_typed(data, tmp_path_factory):
    """The same graph with types of edges, its edges in the order of the dataset, and their types."""
    place = tmp_path_factory.mktemp('typed')
    shutil.copytree(data / 'source', place / 'source')
    edges = np.load(place / 'source' / 'edge_index.npy')
    np.save(place / 'source' / 'edge_type.npy', (edges[0] * 7 + edges[1]) % TYPES)
    run('import', place / 'source', place / 'graph', '--features', 'f32', '--quiet')
    sources, indptr = np.load(place / 'graph' / 'indices.npy'), np.load(place / 'graph' / 'indptr.npy')
    targets = np.repeat(np.arange(NODES), np.diff(indptr))
    np.save(place / 'untyped.npy', np.stack([sources, targets]).astype(np.int64))
    np.save(place / 'pairs.npy', np.stack([sources, targets, np.load(place / 'graph' / 'edge_type.npy')], axis=1).astype(np.uint32))
    return place


@pytest.mark.parametrize(('model', 'exclude', 'decoder'), [
    ('sage', 'none', 'dot'), ('sage', 'self', 'dot'), ('sage', 'reverse', 'dot'), ('gat', 'reverse', 'dot'), ('gin', 'reverse', 'dot'),
    ('mlp', 'none', 'dot'), ('sage', 'reverse', 'mlp'), ('mlp', 'none', 'mlp'), ('sage', 'reverse', 'distmult'),
    ('mlp', 'none', 'distmult of types')])
def test_beside_pytorch(data, typed, tmp_path, model, exclude, decoder):
    """Losses and weights of two epochs of plain SGD over whole neighbourhoods: each step's gradient is PyTorch's."""
    plimsoll = pytest.importorskip('plimsoll')
    torch = pytest.importorskip('torch')
    gnn = pytest.importorskip('torch_geometric.nn')
    weights = pytest.importorskip('safetensors.torch')
    kinds = {'sage': gnn.GraphSAGE, 'gat': gnn.GAT, 'gin': gnn.GIN, 'mlp': None}
    hops = ['--layers', 2] if model == 'mlp' else ['--fanout=-1,-1']
    pairs = (typed / 'untyped.npy') if 'types' in decoder else data / 'pairs.npy'
    data = typed if 'types' in decoder else data
    given = words(data, '--negatives', '1.5', '--exclude', exclude, '--model', model, *hops, '--optimizer', 'sgd', '--lr', '0.1',
                  '--decoder', decoder.split()[0])
    run(*given, '--epochs', 1, '--lr', 0, '--run', tmp_path / 'first')
    run(*given, '--epochs', 2, '--run', tmp_path / 'run', '--init', tmp_path / 'first' / 'last.safetensors')
    own = gnn.MLP([12, HIDDEN, HIDDEN], norm=None) if model == 'mlp' else kinds[model](12, HIDDEN, 2, HIDDEN)
    if decoder == 'mlp':
        own.decoder = gnn.MLP([HIDDEN, HIDDEN, 1], norm=None)
    if 'distmult' in decoder:  # the names of PyG's DistMult
        own.decoder = torch.nn.ModuleDict({'rel_emb': torch.nn.Embedding(TYPES if 'types' in decoder else 1, HIDDEN)})
        types = torch.from_numpy(np.load(typed / 'pairs.npy')[:, 2].astype(np.int64) if 'types' in decoder else np.zeros(2 * EDGES, np.int64))
    own.load_state_dict(weights.load_file(tmp_path / 'first' / 'last.safetensors'))
    optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
    loader = plimsoll.LinkNeighborLoader(plimsoll.open(data / 'graph'), [-1, -1], str(pairs), batch_size=BATCH, seed=SEED,
                                         neg_sampling={'mode': 'binary', 'amount': 1.5}, shuffle=True, memory='1G',
                                         exclude=None if exclude == 'none' else exclude)
    for epoch in range(2):
        total = count = 0
        for batch in loader:
            h = own(batch.x) if model == 'mlp' else own(batch.x, batch.edge_index)
            source, target = batch.edge_label_index
            score = own.decoder(h[source] * h[target]).squeeze(-1) if decoder == 'mlp' else (h[source] * h[target]).sum(dim=-1)
            if 'distmult' in decoder:
                of = types[batch.input_id]
                score = (h[source] * own.decoder['rel_emb'](of[torch.arange(len(source)) % len(of)]) * h[target]).sum(dim=-1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(score, batch.edge_label.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(score)
            count += len(score)
        assert losses(tmp_path / 'run')[epoch] == pytest.approx(total / count, rel=1e-5)
    trained = weights.load_file(tmp_path / 'run' / 'last.safetensors')
    for name, value in own.state_dict().items():
        first = weights.load_file(tmp_path / 'first' / 'last.safetensors')[name]
        assert (trained[name] - value).norm() <= 1e-4 * (value - first).norm() + 1e-6, name


def test_the_same_bits(data, tmp_path):
    """Threads, lines and the form of the file change nothing, nor does a stop."""
    more = ['--epochs', 6, '--fanout', '4,3', '--dropout', '0.2']
    run(*words(data, *more, '--threads', 2, '--run', tmp_path / 'whole'))
    whole = files(tmp_path / 'whole')
    run(*words(data, *more, '--threads', 1, '--memory', '72M', '--run', tmp_path / 'tight'))
    assert files(tmp_path / 'tight') == whole
    np.save(tmp_path / 'columns.npy', np.load(data / 'pairs.npy').T.astype(np.int64))
    other = words(data, *more, '--run', tmp_path / 'columns', '--row-cache', 'none')
    other[other.index(data / 'pairs.npy')] = tmp_path / 'columns.npy'
    run(*other)
    assert losses(tmp_path / 'columns') == losses(tmp_path / 'whole')
    killed = [PLIMSOLL, *map(str, words(data, *more, '--checkpoint-every', 1, '--run', tmp_path / 'run'))]
    for kill in range(3):
        process = subprocess.Popen(killed, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0, pipesize=4096)
        while process.poll() is None and not (tmp_path / 'run' / 'last.safetensors').exists():
            pass
        process.kill()
        process.communicate()
        killed = [PLIMSOLL, 'train', '--resume', str(tmp_path / 'run'), '--checkpoint-every', '1', '--json']
    run(*killed[1:])
    assert files(tmp_path / 'run') == whole


@pytest.mark.parametrize(('place', 'decoder'), [('data', 'dot'), ('typed', 'distmult')])
@pytest.mark.parametrize('mpi', MPIS)
def test_the_bits_of_one_rank(request, tmp_path, mpi, place, decoder):
    """Ranks compute shares of each batch's pairs; the last batch of an epoch has fewer, and shares without any."""
    data = request.getfixturevalue(place)
    more = ['--decoder', decoder, '--epochs', 3, '--fanout', '4,3', '--dropout', '0.2', '--negatives', '1.5', '--threads', 1]
    run(*words(data, *more, '--shares', 5, '--run', tmp_path / 'one'))
    whole = files(tmp_path / 'one')
    run(*words(data, *more, '--shares', 5, '--memory', '80M', '--row-cache', 'none', '--run', tmp_path / 'tight'))
    assert files(tmp_path / 'tight') == whole
    for ranks in (2, 3, 5):
        call_ranks(mpi, ranks, *words(data, *more, '--shares', 5, '--run', tmp_path / f'{ranks}'))
        assert files(tmp_path / f'{ranks}') == whole


def test_shares_are_whole_batches(data, tmp_path):
    """Without edges left out, the losses of an epoch in shares are those of whole batches but for rounding."""
    more = ['--epochs', 1, '--fanout=-1,-1', '--exclude', 'none', '--lr', 0]
    for shares in (1, 2, 7):
        run(*words(data, *more, '--shares', shares, '--run', tmp_path / f'{shares}'))
    assert losses(tmp_path / '2') == pytest.approx(losses(tmp_path / '1'), rel=1e-6)
    assert losses(tmp_path / '7') == pytest.approx(losses(tmp_path / '1'), rel=1e-6)


def test_all_edges(data, tmp_path):
    """Without --pairs a run learns the edges of the dataset: the same bits as with a file of them, after a stop too."""
    sources, indptr = np.load(data / 'graph' / 'indices.npy'), np.load(data / 'graph' / 'indptr.npy')
    np.save(tmp_path / 'edges.npy', np.stack([sources, np.repeat(np.arange(NODES), np.diff(indptr))]).astype(np.int64))
    given = words(data, '--epochs', 3, '--fanout', '4,3', '--run', tmp_path / 'file')
    place = given.index('--pairs')
    given[place + 1] = tmp_path / 'edges.npy'
    run(*given)
    whole = files(tmp_path / 'file')
    del given[place : place + 2]
    given[-1] = tmp_path / 'edges'
    run(*given, '--epochs', 1, '--threads', 1, '--memory', '72M')
    run('train', '--resume', tmp_path / 'edges', '--epochs', 3)
    assert files(tmp_path / 'edges')[0] == whole[0] and losses(tmp_path / 'edges') == losses(tmp_path / 'file')
    given[-1] = tmp_path / 'again'
    run(*given)
    assert files(tmp_path / 'again') == whole
    assert 'pairs_checksum' in run('train', '--resume', tmp_path / 'edges', '--epochs', 4, '--pairs', tmp_path / 'edges.npy', code=2).stderr
    assert run('plan', *given[1:-2])


def test_types_of_pairs(typed, tmp_path):
    """Of a file by rows or columns, and of the dataset's own edges: the same bits, of any line, threads and shares, after a stop too."""
    more = ['--epochs', 3, '--fanout', '4,3', '--decoder', 'distmult', '--negatives', '1.5']
    run(*words(typed, *more, '--run', tmp_path / 'rows', '--threads', 2))
    whole = files(tmp_path / 'rows')
    np.save(tmp_path / 'columns.npy', np.load(typed / 'pairs.npy').T.astype(np.int64))
    given = words(typed, *more, '--threads', 1, '--memory', '72M', '--run', tmp_path / 'columns')
    place = given.index('--pairs')
    given[place + 1] = tmp_path / 'columns.npy'
    run(*given)
    assert files(tmp_path / 'columns')[0] == whole[0] and losses(tmp_path / 'columns') == losses(tmp_path / 'rows')
    del given[place : place + 2]
    given[-1] = tmp_path / 'edges'
    run(*given, '--epochs', 1)
    run('train', '--resume', tmp_path / 'edges', '--epochs', 3)
    assert losses(tmp_path / 'edges') == losses(tmp_path / 'rows')
    for shares in (1, 7):
        run(*words(typed, *more, '--negatives', 2, '--exclude', 'none', '--lr', 0, '--fanout=-1,-1', '--shares', shares, '--run', tmp_path / f'{shares}'))
    assert losses(tmp_path / '7') == pytest.approx(losses(tmp_path / '1'), rel=1e-6)
    found = json.loads(run('plan', *given[1:-2]).stdout)
    assert run('plan', *given[1:-2], '--memory', f'{-(-found["minimum_bytes"] >> 20) - 1}M', code=3)


def test_wrong_types_are_refused(typed, data, tmp_path):
    def refused(pairs, dataset=typed, code=2):
        given = words(dataset, '--decoder', 'distmult', '--run', tmp_path / 'run', '--epochs', 1)
        given[given.index('--pairs') + 1] = pairs
        done = run(*given, code=code)
        assert not (tmp_path / 'run').exists()
        return done.stderr
    assert 'types' in refused(typed / 'untyped.npy')
    assert '(2, pairs)' in refused(typed / 'pairs.npy', data)
    for wrong in (TYPES, -1):
        pairs = np.load(typed / 'pairs.npy').astype(np.int64)
        pairs[9, 2] = wrong
        np.save(tmp_path / 'wrong.npy', pairs)
        assert f'pair 9 is of type {wrong}' in refused(tmp_path / 'wrong.npy', code=4)


def test_a_run_knows_its_pairs(data, tmp_path):
    pairs = np.load(data / 'pairs.npy')
    np.save(tmp_path / 'own.npy', pairs)
    given = words(data, '--epochs', 1, '--run', tmp_path / 'run')
    given[given.index(data / 'pairs.npy')] = tmp_path / 'own.npy'
    run(*given)
    os.rename(tmp_path / 'own.npy', tmp_path / 'moved.npy')
    assert 'own.npy' in run('train', '--resume', tmp_path / 'run', '--epochs', 2, code=1).stderr
    run('train', '--resume', tmp_path / 'run', '--epochs', 2, '--pairs', tmp_path / 'moved.npy')
    run('train', '--resume', tmp_path / 'run', '--epochs', 3)
    pairs[0] = pairs[0, ::-1]
    np.save(tmp_path / 'moved.npy', pairs)
    assert 'pairs_checksum' in run('train', '--resume', tmp_path / 'run', '--epochs', 4, code=2).stderr
    np.save(tmp_path / 'moved.npy', pairs[1:])
    assert 'num_pairs' in run('train', '--resume', tmp_path / 'run', '--epochs', 4, code=2).stderr


def test_embeddings_tell_links(data, tmp_path):
    run(*words(data, '--epochs', 60, '--hidden', 32, '--fanout=-1,-1', '--run', tmp_path / 'run'))
    assert losses(tmp_path / 'run')[-1] < 0.9 * losses(tmp_path / 'run')[0]
    run('predict', tmp_path / 'run', '--kind', 'embeddings', '--out', tmp_path / 'rows.npy')
    rows = np.load(tmp_path / 'rows.npy')
    assert rows.shape == (NODES, 32) and rows.dtype == np.float32
    source, target = np.load(data / 'pairs.npy').T
    draw = np.random.default_rng(1)
    scores = (rows[source] * rows[target]).sum(axis=1)
    others = (rows[draw.integers(0, NODES, 2000)] * rows[draw.integers(0, NODES, 2000)]).sum(axis=1)
    assert (scores[:, None] > others).mean() > 0.65


def test_what_is_not_for_links_is_refused(data, tmp_path):
    for more, named in [(['--shares', 3], '--batch 72'), (['--microbatch', 10], '--microbatch'), (['--eval-every', 1], '--eval-every'),
                        (['--eval-exact', 1], '--eval-every'), (['--patience', 2], '--patience'), (['--loss', 'mse'], '--loss'),
                        (['--metric', 'mae'], '--metric'), (['--negatives', 0], 'negatives'), (['--negatives=-1e30'], 'negatives')]:
        done = run(*words(data, '--run', tmp_path / 'run', *more), code=2)
        assert named in done.stderr, (more, done.stderr)
        assert not (tmp_path / 'run').exists()
    assert '--task' in run('train', data / 'graph', '--pairs', data / 'pairs.npy', code=2).stderr
    run(*words(data, '--epochs', 1, '--run', tmp_path / 'run'))
    assert '--pairs' in run('evaluate', tmp_path / 'run', code=2).stderr
    for more in (['--kind', 'logits'], ['--kind', 'probabilities', '--split', 'all'], ['--kind', 'embeddings', '--split', 'test']):
        assert 'embeddings' in run('predict', tmp_path / 'run', '--out', tmp_path / 'rows.npy', *more, code=2).stderr
    pairs = np.load(data / 'pairs.npy')
    pairs[7, 1] = NODES
    np.save(tmp_path / 'wrong.npy', pairs)
    wrong = words(data, '--run', tmp_path / 'other')
    wrong[wrong.index(data / 'pairs.npy')] = tmp_path / 'wrong.npy'
    assert f'there are {NODES} nodes' in run(*wrong, code=4).stderr
    assert not (tmp_path / 'other').exists()
    os.mkdir(tmp_path / 'other')
    (tmp_path / 'other' / 'note').touch()
    for more in ([], ['--init', tmp_path / 'run' / 'last.safetensors']):
        run(*wrong, *more, code=4)
        assert os.listdir(tmp_path / 'other') == ['note']


def test_a_plan_counts_it(data):
    found = json.loads(run('plan', *words(data)[1:], '--fanout', '4,3', '--memory', '1G').stdout)
    pairs = len(np.load(data / 'pairs.npy'))
    assert found['expect']['epoch_steps'] == -(-pairs // BATCH)
    low = f'{-(-found["minimum_bytes"] >> 20) - 1}M'
    assert run('plan', *words(data)[1:], '--memory', low, code=3)

