"""Files that are not ours stay as they are: whatever lies in a run's directory, or where an output is to go."""
import os
import pathlib
import shutil
import stat
import subprocess

import numpy as np
import pytest

PLIMSOLL = os.environ['PLIMSOLL']
SMALL = ('--model', 'sage', '--hidden', '8', '--fanout', '3,2', '--batch', '200', '--quiet')
NAMES = ('run.json', 'metrics.jsonl', 'timeline.jsonl', 'last.safetensors', 'best.safetensors', '.lock')


def plimsoll(*words):
    return subprocess.run([PLIMSOLL, *map(str, words)], check=False, capture_output=True, text=True, timeout=1500)


def snapshot(folder):
    """Every name below a folder with its kind, mode, link target, bytes and time of change."""
    seen = {}
    for path in sorted(pathlib.Path(folder).rglob('*')):
        about = path.lstat()
        content = os.readlink(path) if path.is_symlink() else path.read_bytes() if stat.S_ISREG(about.st_mode) else None
        times = None if stat.S_ISDIR(about.st_mode) else about.st_mtime_ns
        seen[str(path.relative_to(folder))] = (stat.S_IFMT(about.st_mode), stat.S_IMODE(about.st_mode), content, times)
    return seen


@pytest.fixture(name='graph', scope='module')
def make_graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('foreign') / 'graph'
    assert plimsoll('generate', 'free', path, '--nodes', 800, '--edges', 5000, '--features', 8, '--classes', 3).returncode == 0
    return path


@pytest.fixture(name='trained', scope='module')
def make_run(graph):
    path = graph.parent / 'run'
    assert plimsoll('train', graph, *SMALL, '--epochs', 1, '--run', path).returncode == 0
    return path


@pytest.fixture(name='world')
def make_world(tmp_path):
    """A directory with something precious in it."""
    (tmp_path / 'outside').mkdir()
    (tmp_path / 'outside' / 'precious').write_text('{"mine": 1}\n')
    return tmp_path


def plant(path, kind, outside):
    """Puts something of a kind at a path."""
    path.unlink(missing_ok=True)
    if kind == 'file':
        path.write_text('somebody else\'s\n')
    elif kind == 'empty':
        path.write_text('')
    elif kind == 'link':
        path.symlink_to(outside / 'precious')
    elif kind == 'dangling':
        path.symlink_to(outside / 'nothing')
    elif kind == 'hard link':
        os.link(outside / 'precious', path)
    elif kind == 'directory':
        path.mkdir()
    elif kind == 'pipe':
        os.mkfifo(path)


KINDS = ('file', 'empty', 'link', 'dangling', 'hard link', 'directory', 'pipe')


@pytest.mark.parametrize('name', NAMES)
def test_a_new_run_takes_nobodys_place(graph, world, name):
    """Exit 2, and nothing of the directory changed; an empty .lock alone may be one of ours."""
    for kind in KINDS:
        run = world / 'run'
        run.mkdir()
        (run / 'notes.txt').write_text('mine')
        plant(run / name, kind, world / 'outside')
        before = snapshot(world)
        done = plimsoll('train', graph, *SMALL, '--epochs', 1, '--run', run)
        if (name, kind) != ('.lock', 'empty'):
            assert done.returncode == 2, (kind, done.stderr)
            assert snapshot(world) == before, kind
        shutil.rmtree(run)
        assert (world / 'outside' / 'precious').read_text() == '{"mine": 1}\n'


def test_what_cannot_begin_leaves_what_was_there(graph, world):
    """Refused for its memory after the files were looked at, or for a run.json that cannot be written."""
    run = world / 'run'
    run.mkdir()
    (run / 'notes.txt').write_text('mine')
    (run / '.run.json.partial').mkdir()  # nothing of ours can be written under that name
    before = snapshot(world)
    assert plimsoll('train', graph, *SMALL, '--run', run).returncode == 2
    assert snapshot(world) == before


@pytest.mark.parametrize('name', NAMES)
def test_a_hostile_run_is_not_resumed(trained, world, name):
    """Links, pipes and directories in place of a run's files: refused, without waiting, and nothing outside is touched."""
    for kind in ('link', 'dangling', 'hard link', 'directory', 'pipe'):
        if kind == 'hard link' and name not in ('metrics.jsonl', 'timeline.jsonl', '.lock'):
            continue  # these are replaced by a rename, which leaves the other name alone
        run = world / 'run'
        shutil.copytree(trained, run)
        plant(run / name, kind, world / 'outside')
        outside, link = snapshot(world / 'outside'), snapshot(run)[name]
        done = plimsoll('train', '--resume', run, '--epochs', '+1', '--quiet')
        assert done.returncode in (1, 2, 4), (kind, done.stderr)
        assert snapshot(world / 'outside') == outside, kind
        assert snapshot(run)[name] == link, kind
        shutil.rmtree(run)


def test_a_hard_linked_checkpoint_is_replaced_not_changed(trained, world):
    run = world / 'run'
    shutil.copytree(trained, run)
    os.link(run / 'last.safetensors', world / 'outside' / 'backup')
    before = (world / 'outside' / 'backup').read_bytes()
    assert plimsoll('train', '--resume', run, '--epochs', '+1', '--quiet').returncode == 0
    assert (world / 'outside' / 'backup').read_bytes() == before
    assert (run / 'last.safetensors').read_bytes() != before


def test_a_resume_removes_its_own_leftovers_only(trained, world):
    run = world / 'run'
    shutil.copytree(trained, run)
    ours = ('.last.safetensors.partial', '.last.safetensors.partial-123', '.best.safetensors.partial-7', '.run.json.partial')
    theirs = ('.last.safetensors.partial-old', '.last.safetensors.partial.bak', '.run.json.partials', '.last.safetensors.partial-')
    for name in ours + theirs:
        (run / name).write_text('x')
    (run / '.best.safetensors.partial-8').symlink_to(world / 'outside' / 'precious')
    (run / '.best.safetensors.partial-9').mkdir()
    assert plimsoll('train', '--resume', run, '--epochs', '+1', '--quiet').returncode == 0
    left = {path.name for path in run.iterdir() if 'partial' in path.name}
    assert left == {*theirs, '.best.safetensors.partial-8', '.best.safetensors.partial-9'}


def test_predictions_replace_no_runs_or_datasets_file(graph, trained, world):
    """Also of another run and another dataset, under any name in a dataset, and through links."""
    run, other = world / 'run', world / 'data'
    shutil.copytree(trained, run)
    shutil.copytree(graph, other)
    (world / 'text.txt').write_text('mine')
    (world / 'weights.npy').symlink_to(run / 'best.safetensors')
    (world / 'alias').symlink_to(other)
    outs = [run / name for name in NAMES] + [run / '.last.safetensors.partial-3']
    outs += [other / 'features.npy', other / 'dataset.json', other / 'new.npy', world / 'alias' / 'labels.npy']
    outs += [world / 'text.txt', world / 'weights.npy', world / 'alias', world / 'outside' / 'precious']
    before = snapshot(world)
    for out in outs:
        done = plimsoll('predict', run, '--split', 'test', '--out', out, '--quiet')
        assert done.returncode in (1, 2) and snapshot(world) == before, (out, done.stderr)
        assert done.returncode == 2 or out.is_dir(), done.stderr


def test_predictions_replace_predictions(trained, world):
    run = world / 'run'
    shutil.copytree(trained, run)
    for out in (world / 'out.npy', run / 'predictions.npy'):
        for kind, shape in (('logits', 2), ('classes', 1)):
            done = plimsoll('predict', run, '--split', 'test', '--kind', kind, '--out', out, '--quiet')
            assert done.returncode == 0 and np.load(out).ndim == shape, done.stderr


def test_an_import_empties_no_other_directory(world):
    """The name under which it would work is taken by something that no import has left."""
    mine = world / '.out.partial'
    mine.mkdir()
    (mine / 'thesis.tex').write_text('\\section{}')
    before = snapshot(world)
    done = plimsoll('generate', 'free', world / 'out', '--nodes', 10, '--edges', 20, '--features', 2, '--classes', 2)
    assert done.returncode == 2 and 'thesis.tex' in done.stderr
    assert snapshot(world) == before
