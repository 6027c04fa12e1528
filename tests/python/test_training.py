"""plan, train, import_ and generate from Python: the command's own answers, files and errors; Ctrl-C; progress; documented examples."""
import doctest
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import types

import numpy as np
import pytest
from safetensors.numpy import load_file

plimsoll = pytest.importorskip('plimsoll')

from plimsoll import building, command, errors, training  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402

OPTIONS = {'model': 'sage', 'hidden': 16, 'fanout': [5, 3], 'batch_size': 64, 'dropout': 0.5, 'weight_decay': 5e-4, 'memory': '300M'}
WORDS = ['--model', 'sage', '--hidden', 16, '--fanout', '5,3', '--batch-size', 64, '--dropout', 0.5, '--weight-decay', 5e-4,
         '--memory', '300M']


@pytest.fixture(scope='module')
def dataset(tmp_path_factory):
    path = tmp_path_factory.mktemp('training') / 'small'
    return plimsoll.generate('arxiv', path, scale=0.005, quiet=True)


def answer(*arguments):
    done = im.run(*arguments, '--json')
    return done.returncode, json.loads(done.stdout.splitlines()[-1])


def test_generate_and_import_are_the_commands(tmp_path, dataset):
    assert im.run('generate', 'arxiv', tmp_path / 'theirs', '--scale', 0.005).returncode == 0
    assert im.digests(dataset.path) == im.digests(tmp_path / 'theirs')
    g = im.Graph()
    source = im.write_npy(tmp_path / 'source', edge_index=g.edges, x=g.features, y=g.labels)
    ours = plimsoll.import_(source, tmp_path / 'ours', symmetrise=True, split=[0.5, 0.25, 0.25], seed=3, quiet=True)
    assert im.run('import', source, tmp_path / 'same', '--symmetrise', '--split', '0.5,0.25,0.25', '--seed', 3).returncode == 0
    assert im.digests(ours.path) == im.digests(tmp_path / 'same')
    assert ours.num_nodes == g.num_nodes and abs(ours.num_train - (g.labels >= 0).sum() / 2) < 1


def test_plan_has_the_commands_numbers(dataset):
    plan = plimsoll.plan(dataset, **OPTIONS)
    code, theirs = answer('plan', dataset.path, *WORDS)
    assert code == 0 and plan.fits is True and plan.error is None
    assert plan.json | {'expect': 0} == theirs | {'expect': 0}
    for name in ('total_bytes', 'minimum_bytes', 'line_bytes', 'peak_phase', 'phases', 'accounts', 'advice'):
        assert getattr(plan, name) == theirs[name]
    assert plan.expect['epoch_steps'] == theirs['expect']['epoch_steps']
    assert plan.ask_bytes == theirs['ask']['memory_bytes']
    assert all(account['name'] in str(plan) for account in theirs['accounts']) and len(repr(plan)) < 300


def test_plan_that_does_not_fit_is_an_answer(dataset):
    plan = plimsoll.plan(dataset, **{**OPTIONS, 'memory': '20M'})
    code, theirs = answer('plan', dataset.path, *WORDS[:-1], '20M')
    assert code == 3 and plan.fits is False
    assert plan.error == errors.of_command(theirs['error']) and '--' not in plan.error and '--memory' in theirs['error']
    assert plan.minimum_bytes == theirs['minimum_bytes'] > 20 << 20


def test_plan_of_a_sweep_and_for_pyg(dataset):
    sweep = plimsoll.plan(dataset, **OPTIONS, sweep={'batch': [32, 64], 'fanout': [[5, 3], [10, 5]]})
    _, theirs = answer('plan', dataset.path, *WORDS, '--sweep', 'batch=32,64', 'fanout=5,3:10,5')
    assert [plan.choice for plan in sweep] == [row['choice'] for row in theirs['rows']] and len(sweep) == 4
    assert [plan.total_bytes for plan in sweep] == [row['total_bytes'] for row in theirs['rows']]
    assert '<table>' in sweep._repr_html_() and '10,5' in str(sweep)
    pyg = plimsoll.plan('arxiv', **OPTIONS, for_='pyg', workers=2)
    _, theirs = answer('plan', 'arxiv', *WORDS, '--for', 'pyg', '--workers', 2)
    assert (pyg.total_bytes, pyg.ask_bytes, pyg.fits) == (theirs['total_bytes'], theirs['ask_bytes'], theirs['fits'])


def test_train_gives_the_commands_weights(tmp_path, dataset, capfd):
    run = plimsoll.train(dataset, **OPTIONS, epochs=3, run=tmp_path / 'ours')
    shown = capfd.readouterr()
    done = im.run('train', dataset.path, *WORDS, '--epochs', 3, '--run', tmp_path / 'theirs', '--json', '--quiet')
    assert done.returncode == 0
    end = json.loads(done.stdout.splitlines()[-1])
    assert run.path == str(tmp_path / 'ours')
    weights, kept = run.weights(), load_file(run.weights_path())
    assert weights.keys() == kept.keys() and all((weights[name].numpy() == kept[name]).all() for name in kept)
    assert run.weights('last').keys() == kept.keys(), 'without the moments of the optimiser'
    assert pathlib.Path(run.weights_path()).read_bytes() == (tmp_path / 'theirs' / 'best.safetensors').read_bytes()
    assert pathlib.Path(run.path, 'metrics.jsonl').read_bytes() == (tmp_path / 'theirs' / 'metrics.jsonl').read_bytes()
    assert [row['epoch'] for row in run.metrics] == [1, 2, 3] and run.best in run.metrics
    assert run.best['epoch'] == end['best_epoch'] and run.scores == {split: end[split] for split in ('train', 'valid', 'test')}
    assert run.path in repr(run) and len(repr(run)) < 300
    assert run.plan.total_bytes > 0 and [event['event'] for event in run.events].count('epoch') == 3
    assert shown.out.count('Epoch 00') == 3 and 'training: sage' in shown.err
    more = plimsoll.train(resume=run.path, epochs=4, quiet=True)
    assert len(more.metrics) == 4 and capfd.readouterr() == ('', '')
    again = plimsoll.train(dataset, run=run.path, resume=True, quiet=True)
    assert again.scores == more.scores and again.plan is None
    with pytest.raises(plimsoll.UsageError):
        run.weights('worst')


def test_errors_are_the_commands(tmp_path, dataset):
    with pytest.raises(plimsoll.UsageError, match='did you mean fanout') as caught:
        plimsoll.train(dataset, fanot=[3, 2], quiet=True)
    assert caught.value.exit_code == 2
    with pytest.raises(plimsoll.MemoryLineError) as caught:
        plimsoll.train(dataset, memory='20M', quiet=True)
    assert caught.value.exit_code == 3 and 'memory' in str(caught.value) and '--' not in str(caught.value)
    with pytest.raises(plimsoll.UsageError):
        plimsoll.plan(tmp_path / 'nothing')
    with pytest.raises(plimsoll.UsageError):
        plimsoll.train(dataset, hidden=True, quiet=True)
    source = im.write_npy(tmp_path / 'bad', edge_index=np.array([[0, 1], [1, -7]]), x=np.zeros((3, 2), np.float32))
    with pytest.raises(plimsoll.DataError) as caught:
        plimsoll.import_(source, tmp_path / 'made', quiet=True)
    assert caught.value.exit_code == 4 and '-7' in str(caught.value) and not (tmp_path / 'made').exists()
    with pytest.raises(plimsoll.DivergedError):
        plimsoll.train(dataset, **OPTIONS, lr=1e30, epochs=5, run=tmp_path / 'diverged', quiet=True)
    with pytest.raises(plimsoll.UsageError):
        plimsoll.plan(17)


def test_a_missing_and_a_killed_command(monkeypatch, tmp_path):
    monkeypatch.setenv('PLIMSOLL', str(tmp_path / 'none'))
    with pytest.raises(plimsoll.Error, match='none'):
        command.run('limit')
    (tmp_path / 'dies').write_text('#!/bin/sh\nkill -9 $$\n')
    (tmp_path / 'talks').write_text('#!/bin/sh\necho hello\nexec sleep 100\n')
    for name, says in (('dies', 'SIGKILL'), ('talks', 'hello')):
        (tmp_path / name).chmod(0o755)
        monkeypatch.setenv('PLIMSOLL', str(tmp_path / name))
        with pytest.raises(plimsoll.Error, match=says):
            command.run('limit')


def test_warnings_are_pythons(dataset):
    least = plimsoll.plan(dataset, **OPTIONS).minimum_bytes
    with pytest.warns(UserWarning, match='parts') as caught:
        plan = plimsoll.plan(dataset, **{**OPTIONS, 'memory': least})
    assert plan.json['part_seeds'] > 0
    assert caught[0].filename == __file__


def test_html_is_escaped(tmp_path):
    source = im.write_npy(tmp_path / 'source', edge_index=np.array([[0, 1], [1, 0]]), x=np.eye(2, dtype=np.float32), y=np.array([0, 1]),
                          train=np.array([0]))
    made = plimsoll.import_(source, tmp_path / '<b>', quiet=True)
    plan = plimsoll.plan(made, fanout=[2], memory='300M')
    run = plimsoll.train(made, fanout=[2], epochs=1, memory='300M', run=tmp_path / '<i>', quiet=True)
    for text, mark in ((plan._repr_html_(), '<b>'), (run._repr_html_(), '<i>')):
        assert mark not in text and mark.replace('<', '&lt;').replace('>', '&gt;') in text
    assert run.best is None and os.path.exists(run.weights_path('last'))


INTERRUPTED = '''
    import sys, plimsoll
    try:
        plimsoll.train(sys.argv[1], model='sage', fanout=[5, 3], batch_size=32, epochs=100000, run=sys.argv[2], memory='300M')
    except KeyboardInterrupt as stopped:
        print('stopped:', stopped)
'''


def test_ctrl_c_saves_the_run(tmp_path, dataset):
    """Only Python gets the signal, as from a notebook."""
    run = tmp_path / 'run'
    with subprocess.Popen([sys.executable, '-c', textwrap.dedent(INTERRUPTED), dataset.path, str(run)], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, start_new_session=True,
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as process:
        assert process.stdout.readline().startswith('Epoch 001')
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(timeout=1500) == 0
    assert f'resume={str(run)!r}' in rest
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the command is gone too
    epochs = len((run / 'metrics.jsonl').read_text().splitlines())
    assert epochs >= 1
    assert len(plimsoll.train(resume=run, epochs=epochs + 1, quiet=True).metrics) == epochs + 1


def test_an_error_in_a_callback_stops_the_command(tmp_path, dataset):
    def fail(event):
        if event['event'] == 'epoch':
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        command.run('train', dataset.path, options={**OPTIONS, 'epochs': 100000, 'run': tmp_path / 'run'}, on_event=fail)
    done = len((tmp_path / 'run' / 'metrics.jsonl').read_text().splitlines())
    assert len(plimsoll.train(resume=tmp_path / 'run', epochs=done + 1, quiet=True).metrics) == done + 1


class Handle:
    def __init__(self, shown):
        self.shown = [shown['text/plain']]

    def update(self, shown, raw):
        assert raw
        self.shown.append(shown['text/plain'])


def test_progress_in_a_notebook(monkeypatch, dataset, tmp_path, capfd):
    handles = []

    def display(shown, raw, display_id):
        handles.append(Handle(shown))
        return handles[-1]

    monkeypatch.setitem(sys.modules, 'IPython', types.SimpleNamespace(get_ipython=lambda: types.SimpleNamespace(kernel=1)))
    monkeypatch.setitem(sys.modules, 'IPython.display', types.SimpleNamespace(display=display))
    plimsoll.train(dataset, **OPTIONS, epochs=3, run=tmp_path / 'run')
    assert len(handles) == 1 and handles[0].shown[-1].count('Epoch 00') == 3
    assert capfd.readouterr() == ('', '')


def test_bars_and_lines_are_told_apart():
    read, write = os.pipe()
    lines, bars = [], []
    reader = command._Reader(read, lines.append, bars.append)
    for piece in (b'one\n\r\x1b[JTrain', b'ing: 5%\r\r\x1b[JTraining: 9%\n', b'last'):
        os.write(write, piece)
        assert reader.read()
    os.close(write)
    assert not reader.read()
    os.close(read)
    assert lines == ['one', 'Training: 9%', 'last'] and bars == ['Training: 5%']


def test_tensorboard(monkeypatch, tmp_path, dataset):
    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, 'torch.utils.tensorboard', None)
        with pytest.raises(ImportError, match='pip install'):
            plimsoll.train(dataset, tensorboard='board', epochs=1, quiet=True)
    assert list(tmp_path.iterdir()) == []
    written = []

    class Writer:
        def __init__(self, directory):
            self.directory = directory

        def add_scalar(self, name, value, step):
            written.append((self.directory, name, step))

        def close(self):
            written.append('closed')

    for name in ('torch', 'torch.utils'):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, 'torch.utils.tensorboard', types.SimpleNamespace(SummaryWriter=Writer))
    plimsoll.train(dataset, **OPTIONS, epochs=2, memory_every=1, tensorboard=tmp_path / 'board', quiet=True)
    assert (str(tmp_path / 'board'), 'loss', 2) in written and (str(tmp_path / 'board'), 'valid', 1) in written
    assert any(name == 'rss_bytes' for _, name, _ in written[:-1]) and written[-1] == 'closed'


def test_pandas(dataset, tmp_path):
    pytest.importorskip('pandas')
    frame = plimsoll.train(dataset, **OPTIONS, epochs=2, run=tmp_path / 'run', quiet=True).metrics.to_pandas()
    assert list(frame.index) == [1, 2] and frame['loss'].notna().all()
    assert len(plimsoll.plan(dataset, **OPTIONS, sweep={'batch': [32, 64]}).to_pandas()) == 2


def files(directory):
    g = im.Graph(nodes=100, classes=2)
    return {'files': im.write_npy(directory / 'files', edge_index=g.edges, x=g.features, y=np.abs(g.labels))}


def cora(directory):
    return {'cora': plimsoll.import_(im.real_data() / 'cora', directory / 'cora', quiet=True)}


def data(directory):
    torch = pytest.importorskip('torch')
    module = pytest.importorskip('torch_geometric.data')
    return {'data': module.Data(x=torch.rand(50, 4), edge_index=torch.randint(0, 50, (2, 100)), y=torch.randint(0, 3, (50,)))}


def pt_files(directory):
    torch = pytest.importorskip('torch')
    (directory / 'graphs').mkdir()
    for i in range(12):
        graph = {'edge_index': torch.randint(0, 3, (2, 4)), 'x': torch.rand(3, 2), 'homo': torch.rand(1), 'lumo': torch.rand(1)}
        torch.save(graph, directory / 'graphs' / f'graph_{i}.pt')
    return {}


def parquet_files(directory):
    pyarrow = pytest.importorskip('pyarrow')
    parquet = pytest.importorskip('pyarrow.parquet')
    ids = np.arange(20)
    parquet.write_table(pyarrow.table({'source': ids, 'target': ids[::-1]}), directory / 'edges.parquet')
    parquet.write_table(pyarrow.table({'a': ids * 0.5, 'b': ids * 0.25, 'c': ids * 1.0, 'label': ids % 2, 'train': ids < 10}),
                        directory / 'nodes.parquet')
    return {}


INPUTS = {'import_': files, 'train': cora, 'from_pyg': data, 'from_pt_files': pt_files, 'from_parquet': parquet_files}
EXAMPLES = [example for module in (command, errors, training, building) for example in doctest.DocTestFinder().find(module) if example.examples]


@pytest.mark.parametrize('example', EXAMPLES, ids=lambda example: example.name.removeprefix('plimsoll.'))
def test_documented_example(example, tmp_path, monkeypatch):
    example.globs.update(INPUTS.get(example.name.split('.')[-1], lambda directory: {})(tmp_path), numpy=np, plimsoll=plimsoll)
    monkeypatch.chdir(tmp_path)
    assert doctest.DocTestRunner().run(example).failed == 0
