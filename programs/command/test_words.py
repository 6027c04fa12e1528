"""The words of PyG's, OGB's and DGL's examples: each means what the man page says; a mistyped word names the nearest one."""
import json
import os
import re
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']


def plimsoll(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500)
    assert done.returncode == code, done.stderr + done.stdout
    return done


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('words') / 'graph'
    plimsoll('generate', 'free', path, '--nodes', 300, '--edges', 2400, '--features', 8, '--classes', 2)
    return path


def settings(graph, run, *words):
    plimsoll('train', graph, '--epochs', 1, '--hidden', 4, *words, '--run', run, '--quiet')
    return json.loads((run / 'run.json').read_text())['settings']


# The words, and the settings of run.json that they give.
MEANINGS = [
    (['--num_epochs', 2], {'epochs': 2}),
    (['--n-epochs', 2], {'epochs': 2}),
    (['--hidden_channels', 6], {'hidden': 6}),
    (['--hidden_dim', 6], {'hidden': 6}),
    (['--num-hidden', 6], {'hidden': 6}),
    (['--n-hidden', 6], {'hidden': 6}),
    (['--num_layers', 3], {'layers': 3, 'fanout': [10, 10, 10]}),
    (['--n-layers', 1], {'layers': 1, 'fanout': [10]}),
    (['--model', 'gat', '--num_heads', 2], {'model': 'gat', 'heads': 2}),
    (['--batch_size', 7], {'batch_size': 7}),
    (['--learning_rate', 0.5], {'rate': 0.5}),
    (['--weight_decay', 0.25], {'weight_decay': 0.25}),
    (['--wd', 0.25], {'weight_decay': 0.25}),
    (['--eval_steps', 3], {'eval_every': 3}),
    (['--log_steps', 3], {'eval_every': 3}),
    (['--log_interval', 3], {'memory_steps': 3}),
    (['--gradient_accumulation_steps', 4], {'accumulation': 4}),
    (['--gradient_checkpointing'], {'recompute': True}),
    (['--use_layer_norm'], {'norm': 'layer'}),
    (['--use_batch_norm'], {'norm': 'batch'}),
    (['--use_amp'], {'precision': 'bf16'}),
    (['--use_fp16'], {'precision': 'bf16'}),
    (['--use_amp', 'True'], {'precision': 'bf16'}),
    (['--use_amp', 'False'], {'precision': 'f32'}),
    (['--use_sage'], {'model': 'sage'}),
    (['--use_gat'], {'model': 'gat'}),
    (['--fanout', '3,2'], {'fanout': [3, 2], 'layers': 2}),
    (['--fanout', '3, 2'], {'fanout': [3, 2]}),
    (['--fanout', '3 2'], {'fanout': [3, 2]}),
    (['--fanout', '[3,2]'], {'fanout': [3, 2]}),
    (['--fanout=[3, 2]'], {'fanout': [3, 2]}),
    (['--num_neighbors', 3, 2], {'fanout': [3, 2]}),
    (['--num_neighbors', '[3,', '2]'], {'fanout': [3, 2]}),
    (['--num_neighbors', '3,', '2'], {'fanout': [3, 2]}),
    (['--num_neighbors', '(3, -1)'], {'fanout': [3, -1]}),
    (['--num_neighbors', -1, -1], {'fanout': [-1, -1]}),
    (['--fan_out', 5, '--num_layers', 3], {'fanout': [5, 5, 5], 'layers': 3}),
    (['--num_layers', 3, '--fan-out', '5,10,15'], {'fanout': [5, 10, 15], 'layers': 3}),
    (['--model', 'GCNConv'], {'model': 'gcn'}),
    (['--model', 'SAGEConv'], {'model': 'sage'}),
    (['--model', 'GraphSAGE'], {'model': 'sage'}),
    (['--model', 'GATConv'], {'model': 'gat'}),
    (['--model', 'GINConv'], {'model': 'gin'}),
    (['--norm', 'batch_norm'], {'norm': 'batch'}),
    (['--norm', 'BatchNorm'], {'norm': 'batch'}),
    (['--norm', 'layer_norm'], {'norm': 'layer'}),
    (['--norm', 'LayerNorm'], {'norm': 'layer'}),
    (['--model', 'sage', '--aggr', 'sum'], {'aggregation': 'sum'}),
    (['--model', 'sage', '--aggr', 'add'], {'aggregation': 'sum'}),
    (['--pool', 'sum'], {'pool': 'add'}),
    (['--loss', 'ce'], {'loss': 'cross_entropy'}),
    (['--loss', 'nll'], {'loss': 'cross_entropy'}),
    (['--metric', 'acc'], {'metric': 'accuracy'}),
    (['--metric', 'rocauc'], {'metric': 'roc_auc'}),
    (['--metric', 'auc'], {'metric': 'roc_auc'}),
    (['--precision', 'bfloat16'], {'precision': 'bf16'}),
    (['--precision', 'fp32'], {'precision': 'f32'}),
]


@pytest.mark.parametrize('words, meaning', MEANINGS, ids=lambda value: ' '.join(map(str, value)) if isinstance(value, list) else '')
def test_a_spelling_means(graph, tmp_path, words, meaning):
    found = settings(graph, tmp_path / 'run', *words)
    assert {key: found[key] for key in meaning} == meaning


def test_sum_is_not_mean(graph, tmp_path):
    words = ('--model', 'sage', '--seed', 1)
    settings(graph, tmp_path / 'mean', *words, '--aggr', 'mean')
    settings(graph, tmp_path / 'sum', *words, '--aggr', 'sum')
    assert (tmp_path / 'mean' / 'metrics.jsonl').read_bytes() != (tmp_path / 'sum' / 'metrics.jsonl').read_bytes()


LOADER = ('--num_workers', 4, '--persistent_workers', '--prefetch_factor', 2, '--pin_memory', 'True', '--device', 'cpu')


def remarks(done, pattern):
    return [line for line in done.stderr.splitlines() if re.search(pattern, line)]


def test_the_loader_of_pytorch_changes_nothing(graph, tmp_path):
    """One remark for all of these options; the run is the one without them."""
    plain = settings(graph, tmp_path / 'plain')
    assert settings(graph, tmp_path / 'with', *LOADER) == plain
    assert (tmp_path / 'plain' / 'metrics.jsonl').read_bytes() == (tmp_path / 'with' / 'metrics.jsonl').read_bytes()
    assert len(remarks(plimsoll('train', graph, '--epochs', 1, *LOADER, '--run', tmp_path / 'a'), '--num_workers')) == 1
    assert len(remarks(plimsoll('plan', graph, *LOADER), '--num_workers')) == 1
    assert not remarks(plimsoll('plan', graph), '--num_workers')
    assert not remarks(plimsoll('train', graph, '--epochs', 1, *LOADER, '--run', tmp_path / 'b', '--quiet'), '--num_workers')
    one, two = (json.loads(plimsoll('plan', graph, '--for', 'pyg', word, 3, '--json').stdout)['accounts']
                for word in ('--workers', '--num_workers'))
    assert one == two  # there it is the script's own


def test_mixed_precision_is_remarked_once(graph, tmp_path):
    done = plimsoll('train', graph, '--epochs', 1, '--use_amp', '--run', tmp_path / 'a')
    assert len(remarks(done, '--precision bf16')) == 1


def test_the_order_of_dgl_is_a_warning(graph):
    assert len(remarks(plimsoll('plan', graph, '--fan-out', '15,10', '--quiet'), 'DGL')) == 1
    for words in (('--fan-out', '10,10'), ('--num_neighbors', '15,10')):
        assert not remarks(plimsoll('plan', graph, *words), 'DGL')


@pytest.mark.parametrize('words', [('--device', 'cuda'), ('--device', 'cuda:0'), ('--device', 0), ('--gpu', 0)])
def test_gpus_come_elsewhere(graph, words):
    printed = plimsoll('train', graph, *words, code=2).stderr
    assert '--device cpu' in printed
    assert "plimsoll.NeighborLoader(…, device='cuda')" in printed and 'tools/wheel' in printed and 'released' not in printed  # what to do today
    plimsoll('plan', graph, *words, code=2)


@pytest.mark.parametrize('words, nearest', [
    (['trian'], 'train'),
    (['eval'], 'evaluate'),
    (['help', 'impotr'], 'import'),
    (['train', 'd', '--hiden', 3], '--hidden'),
    (['train', 'd', '--hidden_size', 3], '--hidden'),
    (['train', 'd', '--fanuot=3,2'], '--fanout'),
    (['train', 'd', '--num', 3], '--num-'),
    (['plan', 'd', '--gpu-mem0ry', '4G'], '--gpu-memory'),
    (['inspect', 'd', '--verfy'], '--verify'),
    (['train', 'd', '--model', 'gcnn'], 'gcn'),
    (['train', 'd', '--loss', 'cross'], 'cross_entropy'),
    (['train', 'd', '--metric', 'acuracy'], 'accuracy'),
    (['import', 'a', 'b', '--self-loops', 'ad'], 'add'),
    (['generate', 'papers10M', 'd'], 'papers100M'),
    (['generate', 'ogbn-arxv', 'd'], 'arxiv'),
    (['plan', 'ogbn_product'], 'products'),
    (['bench', 'laod', 'd'], 'load'),
    (['plan', 'arxiv', '--sweep', 'bacth=64,128'], 'batch'),
    (['plan', 'arxiv', '--sweep', 'batch_size=64,128'], 'batch'),
    (['plan', 'arxiv', '--for', 'pyg', '--sweep', 'gpu_memroy=4G,8G'], 'gpu-memory'),
])
def test_the_nearest_word_is_named(words, nearest):
    printed = plimsoll(*words, code=2).stderr
    assert re.search(r'did you mean ' + re.escape(nearest), printed), printed


@pytest.mark.parametrize('words', [['fly'], ['train', 'd', '--zzz'], ['train', 'd', '--model', 'transformer'], ['train', 'd', '-' * 99],
                                   ['train', 'd', '--' + 'x' * 99], ['plan', 'arxiv', '--sweep', 'lr=1,2'],
                                   ['plan', 'arxiv', '--sweep', 'batch']])
def test_far_words_name_none(words):
    assert 'did you mean' not in plimsoll(*words, code=2).stderr


@pytest.mark.parametrize('name', ['ogbn-arxiv', 'ogbn_arxiv', 'Arxiv', 'arxiv'])
def test_shapes_by_their_names_in_ogb(tmp_path, name):
    plimsoll('generate', name, tmp_path / 'd', '--scale', 0.002, '--quiet')
    assert json.loads(plimsoll('plan', name, '--json').stdout)['shape'] == 'arxiv'


@pytest.mark.parametrize('words', [['3,,2'], ['3;2'], ['[3,2'], ['3,2]'], ['[3,2)'], ['[]'], [''], ['3,x'], ['[3,2] 4'],
                                   [','.join('2' * 20)], ['2 ' * 200]])
def test_what_is_no_fanout(graph, words):
    assert '--fanout' in plimsoll('plan', graph, '--fanout', *words, code=2).stderr


@pytest.mark.parametrize('option', ['--memory', '--row-cache'])
def test_a_size_needs_its_unit(graph, option):
    assert '64M' in plimsoll('plan', graph, option, 64, code=2).stderr
    for text in ('256M', '256MB', '256Mi', '256MiB', '256 MiB', '0.25G', 256 << 20):
        plimsoll('plan', graph, option, text)


def test_what_is_wrong_is_named(graph, tmp_path):
    """The word that is too much, the bound that was crossed, and a directory within the dataset that does not exist yet."""
    assert "'a' and 'b'" in plimsoll('train', 'a', 'b', code=2).stderr
    assert "and '5x'" in plimsoll('plan', graph, '--try', '5x', code=2).stderr
    assert 'from 1 on' in plimsoll('train', graph, '--epochs', 0, code=2).stderr
    assert 'to 2147483647' in plimsoll('train', graph, '--epochs', 3000000000, code=2).stderr
    for scratch in (graph, graph / 'new'):
        refused = plimsoll('train', graph, '--scratch', scratch, '--run', tmp_path / 'run', code=2).stderr
        assert 'is in the dataset directory' in refused and not (graph / 'new').exists()
    assert 'does not exist' in plimsoll('report', tmp_path / 'none', code=2).stderr
