"""Scores of pairs and of runs over links: those of OGB's evaluators, the same bits always, refusals with figures."""
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
from command import MPIS, PLIMSOLL, call as run, call_ranks  # noqa: E402

NODES, PAIRS = 300, 400
HITS = (1, 3, 10, 20, 50, 100)


@pytest.fixture(name='data', scope='module')
def make_data(tmp_path_factory):
    """A run over links, pairs to score, and negatives: a third of the pairs are among them, for ties."""
    place = tmp_path_factory.mktemp('data')
    draw = np.random.default_rng(3)
    os.mkdir(place / 'source')
    np.save(place / 'source' / 'edge_index.npy', draw.integers(0, NODES, (2, 1500)))
    np.save(place / 'source' / 'x.npy', draw.standard_normal((NODES, 12)).astype(np.float32))
    run('import', place / 'source', place / 'graph', '--features', 'f32', '--quiet')
    pairs = draw.integers(0, NODES, (PAIRS, 2))
    np.save(place / 'pairs.npy', pairs)
    np.save(place / 'shared.npy', np.concatenate([pairs[::3], draw.integers(0, NODES, (900, 2))]).astype(np.int32))
    targets = draw.integers(0, NODES, (PAIRS, 37))
    targets[::3, 5] = pairs[::3, 1]
    np.save(place / 'targets.npy', targets.astype(np.uint32))
    run('train', place / 'graph', '--task', 'link', '--pairs', place / 'pairs.npy', '--model', 'sage', '--hidden', 8, '--fanout', '4,3', '--epochs', 2,
        '--run', place / 'run', '--quiet')
    return place


def evaluate(data, *more):
    return json.loads(run('evaluate', data / 'run', '--json', *more).stdout)


def scores_of(data, tmp_path, pairs):
    np.save(tmp_path / 'asked.npy', pairs)
    run('predict', data / 'run', '--pairs', tmp_path / 'asked.npy', '--out', tmp_path / 'scores.npy', '--quiet')
    return np.load(tmp_path / 'scores.npy')


def ogb_hits(positive, negative, k):
    """ogb.linkproppred.Evaluator._eval_hits."""
    if len(negative) < k:
        return 1.0
    return (positive > np.sort(negative)[::-1][k - 1]).sum() / len(positive)


def ogb_mrr(positive, negative):
    """ogb.linkproppred.Evaluator._eval_mrr, whose lists are averaged."""
    optimistic = (negative > positive[:, None]).sum(axis=1)
    pessimistic = (negative >= positive[:, None]).sum(axis=1)
    ranking = 0.5 * (optimistic + pessimistic) + 1
    return (1 / ranking).mean(), {k: (ranking <= k).mean() for k in HITS}


def auc(positive, negative):
    """sklearn.metrics.roc_auc_score: ties count half."""
    return ((positive[:, None] > negative).sum() + 0.5 * (positive[:, None] == negative).sum()) / (len(positive) * len(negative))


def test_scores_of_pairs(data, tmp_path):
    pairs = np.load(data / 'pairs.npy')
    run('predict', data / 'run', '--kind', 'embeddings', '--out', tmp_path / 'rows.npy')
    rows = np.load(tmp_path / 'rows.npy')
    scores = scores_of(data, tmp_path, pairs)
    assert scores.dtype == np.float32 and scores.shape == (PAIRS,)
    np.testing.assert_allclose(scores, (rows[pairs[:, 0]] * rows[pairs[:, 1]]).sum(axis=1), rtol=1e-5, atol=1e-6)
    assert (scores_of(data, tmp_path, np.asfortranarray(pairs.T.astype(np.uint32))) == scores).all()
    for _ in range(2):
        run('predict', data / 'run', '--kind', 'scores', '--pairs', data / 'pairs.npy', '--out', tmp_path / 'scores.csv')
    lines = (tmp_path / 'scores.csv').read_text().splitlines()
    assert lines[0] == 'id,score' and lines[1].startswith('0,') and len(lines) == PAIRS + 1
    assert (np.float32([line.split(',')[1] for line in lines[1:]]) == scores).all()


@pytest.mark.parametrize('count', [1033, 60, 1])
def test_shared_negatives(data, tmp_path, count):
    shared = np.load(data / 'shared.npy')[:count]
    positive, negative = scores_of(data, tmp_path, np.load(data / 'pairs.npy')), scores_of(data, tmp_path, shared)
    np.save(tmp_path / 'negatives.npy', shared.T)
    for file in (tmp_path / 'asked.npy', tmp_path / 'negatives.npy'):
        found = evaluate(data, '--pairs', data / 'pairs.npy', '--negatives', file)
        assert (found['pairs'], found['negatives'], found['exact']) == (PAIRS, len(shared), True)
        assert found['auc'] == pytest.approx(auc(positive, negative), abs=1e-12)
        for k in HITS:
            assert found[f'hits@{k}'] == pytest.approx(ogb_hits(positive, negative, k), abs=1e-12), k
        assert 'mrr' not in found


def test_targets_of_each_pair(data, tmp_path):
    pairs, targets = np.load(data / 'pairs.npy'), np.load(data / 'targets.npy').astype(np.int64)
    positive = scores_of(data, tmp_path, pairs)
    negative = scores_of(data, tmp_path, np.stack([np.repeat(pairs[:, 0], 37), targets.reshape(-1)]))
    mrr, hits = ogb_mrr(positive, negative.reshape(PAIRS, 37))
    found = evaluate(data, '--pairs', data / 'pairs.npy', '--negatives', data / 'targets.npy')
    assert found['negatives'] == 37 and found['mrr'] == pytest.approx(mrr, abs=1e-12) and 'auc' not in found
    for k in HITS:
        assert found[f'hits@{k}'] == pytest.approx(hits[k], abs=1e-12)
    text = run('evaluate', data / 'run', '--pairs', data / 'pairs.npy', '--negatives', data / 'targets.npy').stdout
    assert f'mrr {mrr:.4f}, hits@1 ' in text


def test_drawn_targets(data):
    first = evaluate(data, '--pairs', data / 'pairs.npy', '--negatives', 50, '--threads', 2)
    again = evaluate(data, '--pairs', data / 'pairs.npy', '--negatives', 50, '--threads', 1, '--memory', '60M')
    assert 0 < first['mrr'] < 1 and first['negatives'] == 50
    for key in ('mrr', *(f'hits@{k}' for k in HITS)):
        assert first[key] == again[key]
    assert evaluate(data, '--pairs', data / 'pairs.npy', '--negatives', 1)['hits@3'] == 1


def test_rows_on_disk(tmp_path):
    """Rows of 57 MB under a line of 90 MiB: the same bits."""
    run('generate', 'papers100M', tmp_path / 'graph', '--scale', '0.002', '--quiet')
    nodes = json.loads(run('inspect', tmp_path / 'graph', '--json').stdout)['num_nodes']
    draw = np.random.default_rng(1)
    np.save(tmp_path / 'pairs.npy', draw.integers(0, nodes, (3000, 2)))
    np.save(tmp_path / 'shared.npy', draw.integers(0, nodes, (5000, 2)))
    run('train', tmp_path / 'graph', '--task', 'link', '--pairs', tmp_path / 'pairs.npy', '--model', 'sage', '--hidden', 64, '--fanout', '3,2',
        '--epochs', 1, '--run', tmp_path / 'run', '--quiet')
    for negatives in (tmp_path / 'shared.npy', 7):
        found = [json.loads(run('evaluate', tmp_path / 'run', '--json', '--pairs', tmp_path / 'pairs.npy', '--negatives', negatives, '--memory',
                                line).stdout) for line in ('2G', '90M')]
        high, low = [next(account['reserved_bytes'] for account in one['accounts'] if account['name'] == 'node rows') for one in found]
        assert high > nodes * 256 > 4 * low
        names = ('mrr' if negatives == 7 else 'auc', *(f'hits@{k}' for k in HITS))
        assert [found[0][name] for name in names] == [found[1][name] for name in names]


def test_refusals(data, tmp_path):
    pairs, place = np.load(data / 'pairs.npy'), tmp_path / 'wrong.npy'

    def refused(values, named, code, *more):
        np.save(place, values)
        words = more or ('--pairs', place, '--negatives', data / 'shared.npy')
        assert named in run('evaluate', data / 'run', *words, code=code).stderr

    negatives = ('--pairs', data / 'pairs.npy', '--negatives', place)
    for node in (NODES, -1):
        wrong = pairs.copy()
        wrong[7, 1] = node
        refused(wrong, f'there are {NODES} nodes', 4)
        refused(wrong, f'there are {NODES} nodes', 4, *negatives)
        wrong = np.load(data / 'targets.npy').astype(np.int64)
        wrong[11, 36] = node
        refused(wrong, f'negative 36 of pair 11 is {node}, but there are {NODES} nodes', 4, *negatives)
    refused(pairs.astype(np.float32), 'int32, uint32 or int64', 2)
    refused(pairs.astype(np.float64), 'int32, uint32 or int64', 2, *negatives)
    refused(np.zeros((PAIRS, 5), np.float32), 'int32, uint32 or int64', 2, *negatives)
    refused(np.zeros((PAIRS - 1, 5), np.int64), f'({PAIRS}, n) for {PAIRS} pairs', 2, *negatives)
    refused(np.zeros(PAIRS, np.int64), f'({PAIRS}, n)', 2, *negatives)
    refused(np.zeros((PAIRS, 3, 2), np.int64), f'({PAIRS}, n)', 2, *negatives)
    refused(np.zeros((0, 2), np.int64), 'no pairs', 2)
    refused(np.zeros((PAIRS, 0), np.int64), 'empty', 2, *negatives)
    refused(np.zeros((PAIRS, 3), np.int64), 'wrong.npy', 2)
    for values in (pairs, np.load(data / 'targets.npy')):
        np.save(place, values)
        whole = place.read_bytes()
        for size in (len(whole) - 1, 200, 30, 0):
            place.write_bytes(whole[:size])
            run('evaluate', data / 'run', *negatives, code=4)
    assert 'negatives' in run('evaluate', data / 'run', '--pairs', data / 'pairs.npy', code=2).stderr
    assert 'pairs' in run('evaluate', data / 'run', code=2).stderr
    assert 'pairs' in run('evaluate', data / 'run', '--negatives', 5, code=2).stderr
    assert '--split' in run('evaluate', data / 'run', *negatives[:3], 5, '--split', 'test', code=2).stderr
    run('evaluate', data / 'run', *negatives[:3], 0, code=2)
    run('evaluate', data / 'run', *negatives[:3], tmp_path / 'none.npy', code=1)
    out = ('--out', tmp_path / 'out.npy')
    assert 'pairs' in run('predict', data / 'run', *out, '--kind', 'scores', code=2).stderr
    for more in (['--kind', 'embeddings'], ['--split', 'all'], ['--sampled']):
        assert '--pairs' in run('predict', data / 'run', *out, '--pairs', data / 'pairs.npy', *more, code=2).stderr
    assert not (tmp_path / 'out.npy').exists()


def train(data, path, *more, code=0):
    words = ('train', data / 'graph', '--task', 'link', '--pairs', data / 'pairs.npy', '--hidden', 8, '--batch', 70, '--epochs', 5, '--run', path,
             '--valid-pairs', data / 'pairs.npy', *(more if '--model' in more else ('--model', 'sage', '--fanout', '4,3', *more)))
    return run(*words, code=code)


def metrics(path):
    return [json.loads(line) for line in (path / 'metrics.jsonl').read_text().splitlines()]


@pytest.mark.parametrize(('name', 'model'), [('shared.npy', 'sage'), ('targets.npy', 'sage'), ('9', 'gcn'), ('9', 'mlp')])
def test_evaluated_between_epochs(data, tmp_path, name, model):
    """The scores of evaluate; the weights of the best epoch; the same bits for another line and number of threads."""
    negatives = data / name if '.' in name else name
    more = ('--valid-negatives', negatives, '--model', model, *(('--layers', 2) if model == 'mlp' else ('--fanout', '4,3')))
    train(data, tmp_path / 'run', *more, '--threads', 2)
    scores = [line['valid'] for line in metrics(tmp_path / 'run')]
    assert len(scores) == 5 and len(set(scores)) > 1 and 'valid_loss' not in metrics(tmp_path / 'run')[0]
    assert [line['epoch'] for line in metrics(tmp_path / 'run') if line['best']][-1] == scores.index(max(scores)) + 1
    key = 'auc' if name == 'shared.npy' else 'mrr'
    for more_words, score in (((), max(scores)), (('--weights', tmp_path / 'run' / 'last.safetensors'), scores[-1])):
        found = json.loads(run('evaluate', tmp_path / 'run', '--json', '--pairs', data / 'pairs.npy', '--negatives', negatives, *more_words).stdout)
        assert found[key] == score
    low = '80M' if model == 'sage' else '300M'
    train(data, tmp_path / 'low', *more, '--threads', 1, '--memory', low)
    assert metrics(tmp_path / 'low') == metrics(tmp_path / 'run')


@pytest.mark.parametrize('mpi', MPIS)
@pytest.mark.parametrize(('negatives', 'decoder'), [('shared.npy', 'mlp'), (9, 'distmult')])
def test_by_ranks(data, tmp_path, mpi, negatives, decoder):
    """Ranks divide the exact pass, and between epochs and afterwards give one process's scores."""
    negatives = data / negatives if negatives != 9 else negatives
    words = ('train', data / 'graph', '--task', 'link', '--pairs', data / 'pairs.npy', '--model', 'gcn', '--hidden', 8, '--fanout', '4,3', '--batch', 70,
             '--shares', 5, '--epochs', 2, '--decoder', decoder, '--valid-pairs', data / 'pairs.npy', '--valid-negatives', negatives, '--threads', 1)
    run(*words, '--run', tmp_path / 'one')
    asked = ('evaluate', tmp_path / 'one', '--pairs', data / 'pairs.npy', '--negatives', negatives, '--json', '--threads', 1)

    def figures(done):
        return {name: value for name, value in json.loads(done.stdout).items() if name in ('pairs', 'negatives', 'mrr', 'auc') or 'hits' in name}
    wanted = figures(run(*asked))
    assert len(wanted) > 3
    predict = ('predict', tmp_path / 'one', '--pairs', data / 'pairs.npy', '--threads', 1, '--out')
    run(*predict, tmp_path / 'one.npy')
    for ranks in (2, 3):
        call_ranks(mpi, ranks, *words, '--run', tmp_path / f'{ranks}')
        assert metrics(tmp_path / f'{ranks}') == metrics(tmp_path / 'one')
        assert figures(call_ranks(mpi, ranks, *asked)) == wanted
        call_ranks(mpi, ranks, *predict, tmp_path / f'{ranks}.npy')
        assert (tmp_path / f'{ranks}.npy').read_bytes() == (tmp_path / 'one.npy').read_bytes()


def test_evaluations_survive_kills(data, tmp_path):
    more = ('--valid-negatives', data / 'shared.npy', '--checkpoint-every', 1)
    train(data, tmp_path / 'whole', *more)
    words = ('train', data / 'graph', '--task', 'link', '--pairs', data / 'pairs.npy', '--model', 'sage', '--hidden', 8, '--fanout', '4,3', '--batch',
             70, '--epochs', 5, '--run', tmp_path / 'run', '--valid-pairs', data / 'pairs.npy', *more)
    for lines in (1, 2, 4):
        with subprocess.Popen([PLIMSOLL, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while process.poll() is None and not ((tmp_path / 'run' / 'metrics.jsonl').exists() and len(metrics(tmp_path / 'run')) >= lines):
                pass
            process.kill()
        words = ('train', '--resume', tmp_path / 'run', '--checkpoint-every', 1)
    run(*words)
    assert metrics(tmp_path / 'run') == metrics(tmp_path / 'whole')


def test_a_run_knows_its_valid_pairs(data, tmp_path):
    shared = np.load(data / 'shared.npy')
    np.save(tmp_path / 'own.npy', shared)
    train(data, tmp_path / 'run', '--valid-negatives', tmp_path / 'own.npy', '--epochs', 1)
    os.rename(tmp_path / 'own.npy', tmp_path / 'moved.npy')
    assert 'own.npy' in run('train', '--resume', tmp_path / 'run', '--epochs', 2, code=1).stderr
    run('train', '--resume', tmp_path / 'run', '--epochs', 2, '--valid-negatives', tmp_path / 'moved.npy')
    run('train', '--resume', tmp_path / 'run', '--epochs', 3)
    np.save(tmp_path / 'moved.npy', shared[::-1])
    assert 'valid_checksum' in run('train', '--resume', tmp_path / 'run', '--epochs', 4, code=2).stderr
    assert len(metrics(tmp_path / 'run')) == 3


def test_evaluations_are_planned_or_refused(data, tmp_path):
    more = ('--valid-negatives', data / 'shared.npy')
    words = ('plan', data / 'graph', '--task', 'link', '--pairs', data / 'pairs.npy', '--model', 'sage', '--hidden', 8, '--fanout', '4,3', '--batch', 70,
             '--valid-pairs', data / 'pairs.npy', *more, '--json')
    minimum = json.loads(run(*words).stdout)['minimum_bytes'] + (1 << 20) - 1 >> 20
    train(data, tmp_path / 'run', *more, '--epochs', 1, '--memory', f'{minimum}M')
    train(data, tmp_path / 'lower', *more, '--epochs', 1, '--memory', f'{minimum - 1}M', code=3)
    train(data, tmp_path / 'patient', *more, '--patience', 1, '--epochs', 50, '--lr', 0)
    assert len(metrics(tmp_path / 'patient')) == 2
    train(data, tmp_path / 'second', *more, '--eval-every', 2, '--metric', 'roc-auc')
    assert [line['epoch'] for line in metrics(tmp_path / 'second') if 'valid' in line] == [2, 4]
    for wrong, named in [((), '--valid-negatives'), (('--valid-negatives', 0), '--valid-negatives'), ((*more, '--eval-every', 0), '--valid-pairs'),
                         ((*more, '--metric', 'mrr'), '--metric'), ((*more, '--eval-splits', 'all'), '--eval-splits'),
                         (('--valid-negatives', data / 'graph' / 'features.npy'), 'int32')]:
        assert named in train(data, tmp_path / 'wrong', *wrong, code=2).stderr
    assert not (tmp_path / 'wrong').exists()
    labels = run('train', data / 'graph', '--valid-pairs', data / 'pairs.npy', '--valid-negatives', 5, code=2).stderr
    assert '--task' in labels or '--valid-pairs' in labels


def test_a_decoder_that_learns(data, tmp_path):
    """Its scores are PyTorch's, between epochs and afterwards, for any line and number of threads."""
    torch = pytest.importorskip('torch')
    weights = pytest.importorskip('safetensors.torch')
    more = ('--valid-negatives', data / 'shared.npy', '--decoder', 'mlp')
    train(data, tmp_path / 'run', *more, '--threads', 2)
    train(data, tmp_path / 'low', *more, '--threads', 1, '--memory', '80M')
    assert metrics(tmp_path / 'low') == metrics(tmp_path / 'run')
    run('predict', tmp_path / 'run', '--kind', 'embeddings', '--out', tmp_path / 'rows.npy')
    run('predict', tmp_path / 'run', '--pairs', data / 'pairs.npy', '--out', tmp_path / 'scores.npy')
    rows, pairs = torch.from_numpy(np.load(tmp_path / 'rows.npy')), np.load(data / 'pairs.npy')
    of = weights.load_file(tmp_path / 'run' / 'best.safetensors')
    hidden = torch.relu((rows[pairs[:, 0]] * rows[pairs[:, 1]]) @ of['decoder.lins.0.weight'].T + of['decoder.lins.0.bias'])
    wanted = (hidden @ of['decoder.lins.1.weight'].T + of['decoder.lins.1.bias']).squeeze(1)
    np.testing.assert_allclose(np.load(tmp_path / 'scores.npy'), wanted, rtol=1e-4, atol=1e-6)
    found = json.loads(run('evaluate', tmp_path / 'run', '--json', '--pairs', data / 'pairs.npy', '--negatives', data / 'shared.npy').stdout)
    assert found['auc'] == max(line['valid'] for line in metrics(tmp_path / 'run'))
    assert '--decoder' in run('train', data / 'graph', '--decoder', 'mlp', code=2).stderr


def test_distmult(data, tmp_path):
    """Scores of runs with types of pairs and without are NumPy's, and so are what they give against typed and own negatives."""
    weights = pytest.importorskip('safetensors.numpy')
    types, draw = 3, np.random.default_rng(9)
    shutil.copytree(data / 'source', tmp_path / 'source')
    np.save(tmp_path / 'source' / 'edge_type.npy', draw.integers(0, types, 1500))
    run('import', tmp_path / 'source', tmp_path / 'typed', '--features', 'f32', '--quiet')
    pairs, shared = np.load(data / 'pairs.npy'), np.load(data / 'shared.npy')
    named = {}
    for name, count in (('graph', 0), ('typed', types)):
        named[name] = [tmp_path / f'{name}-pairs.npy', tmp_path / f'{name}-shared.npy']
        for path, values in zip(named[name], (pairs, shared)):
            np.save(path, values if count == 0 else np.column_stack([values, draw.integers(0, types, len(values))]).astype(np.int32))
    for name, (asked, negatives) in named.items():
        path, graph = tmp_path / f'run-{name}', (data if name == 'graph' else tmp_path) / name
        words = ('train', graph, '--task', 'link', '--pairs', asked, '--model', 'sage', '--hidden', 8, '--fanout', '4,3', '--batch', 70, '--epochs', 3,
                 '--decoder', 'distmult', '--valid-pairs', asked, '--valid-negatives', negatives, '--lr', 0.05)
        run(*words, '--run', path)
        run(*words, '--run', tmp_path / f'low-{name}', '--threads', 1, '--memory', '80M')
        assert metrics(tmp_path / f'low-{name}') == metrics(path)
        run('predict', path, '--kind', 'embeddings', '--out', tmp_path / 'rows.npy')
        rows = np.load(tmp_path / 'rows.npy').astype(np.float64)
        vectors = weights.load_file(path / 'best.safetensors')['decoder.rel_emb.weight']
        assert vectors.shape == (types if name == 'typed' else 1, 8)

        def wanted(values):
            of = values[:, 2] if values.shape[1] == 3 else np.zeros(len(values), np.int64)
            return (rows[values[:, 0]] * vectors[of] * rows[values[:, 1]]).sum(axis=1)
        run('predict', path, '--pairs', asked, '--out', tmp_path / 'scores.npy')
        positive, negative = wanted(np.load(asked)), wanted(np.load(negatives))
        np.testing.assert_allclose(np.load(tmp_path / 'scores.npy'), positive, rtol=1e-4, atol=1e-6)
        found = json.loads(run('evaluate', path, '--json', '--pairs', asked, '--negatives', negatives).stdout)
        assert found['auc'] == max(line['valid'] for line in metrics(path))
        assert found['auc'] == pytest.approx(auc(positive, negative), abs=0.002)
        own = np.repeat(np.load(asked), 37, axis=0)
        own[:, 1] = np.load(data / 'targets.npy').reshape(-1)
        found = json.loads(run('evaluate', path, '--json', '--pairs', asked, '--negatives', data / 'targets.npy').stdout)
        assert found['mrr'] == pytest.approx(ogb_mrr(positive, wanted(own).reshape(PAIRS, 37))[0], abs=0.01)
    run('evaluate', tmp_path / 'run-typed', '--pairs', data / 'pairs.npy', '--negatives', 5, code=2)
    asked, path = named['typed'][0], tmp_path / 'either.npy'
    words = ('evaluate', tmp_path / 'run-typed', '--pairs', asked, '--negatives', path)
    np.save(path, np.load(asked))
    assert 'either.npy' in run(*words, code=2).stderr, 'three targets of each pair, or as many typed pairs'
    np.save(path, np.load(asked).T)
    assert 'auc' in json.loads(run(*words, '--json').stdout)
    few = tmp_path / 'few.npy'
    np.save(few, np.load(asked)[:3].T)
    np.save(path, np.load(asked)[3:6])
    words = ('evaluate', tmp_path / 'run-typed', '--pairs', few, '--negatives', path)
    assert 'either.npy' in run(*words, code=2).stderr, 'the same of three pairs'
    np.save(path, np.load(asked)[3:7])
    assert 'auc' in json.loads(run(*words, '--json').stdout)
    run('predict', tmp_path / 'run-graph', '--pairs', named['typed'][0], '--out', tmp_path / 'out.npy', code=2)
