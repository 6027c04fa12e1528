# labels: plain unprivileged
"""What another user put into a directory that all may write to is not used, and leads to no file of the victim; tools/prove foreign races."""
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='only root can be two users')
TOOLS = pathlib.Path(__file__).resolve().parents[2] / 'tools'
VICTIMS = (0, 12002)


def load_proof():
    sys.path.insert(0, str(TOOLS))
    import prooflib
    return prooflib.load_proof('foreign')


@pytest.fixture(name='proof', scope='module')
def make_proof():
    return load_proof()


@pytest.fixture(name='world', scope='module')
def make_world(proof):
    with tempfile.TemporaryDirectory(prefix='foreign-') as folder:
        yield proof.World(pathlib.Path(folder))


@pytest.fixture(name='shared')
def make_shared(world):
    shared, private = world.folder / 'shared', world.folder / 'private'
    shared.mkdir()
    shared.chmod(0o777)
    private.mkdir()
    private.chmod(0o777)
    yield shared
    shutil.rmtree(shared)
    shutil.rmtree(private)


def plant(proof, path, forged=None):
    """The attacker's directory, open to all, or a copy of what was forged."""
    if forged is None:
        path.mkdir()
    elif forged.is_dir():
        shutil.copytree(forged, path)
    else:
        shutil.copy(forged, path)
    proof.give(path, proof.ATTACKER)
    if path.is_dir():
        path.chmod(0o777)


def play(proof, world, kind, victim, shared):
    """Exit codes; results must be the undisturbed ones, and files of the victim as before."""
    codes = []
    for done, same in world.play(kind, victim, shared):
        assert done.returncode in (0, 1, 2, 4), done.stderr
        assert same or done.returncode != 0, done.stdout
        codes.append(done.returncode)
    assert proof.snapshot(world.folder / f'home-{victim}') == world.homes[victim]
    assert not world.published(shared, victim)
    return codes


WAYS = [(kind, what) for kind in ('stage', 'import', 'run', 'cache', 'packed', 'slurm') for what in ('empty', 'forged', 'link')]


@pytest.mark.parametrize('kind, what, victim', [(*way, VICTIMS[number % 2]) for number, way in enumerate(WAYS)])
def test_planted(proof, world, shared, kind, what, victim):
    """Under each name that can be foreseen."""
    home = world.folder / f'home-{victim}'
    names, forged = world.names(kind, victim)
    for name in names:
        if '/' in name and not (shared / name).parent.is_dir():
            continue
        if what == 'link':
            (shared / name).symlink_to(home / ('run' if kind == 'run' else 'notes' if kind == 'packed' else 'dataset'))
            os.chown(shared / name, proof.ATTACKER, proof.ATTACKER, follow_symlinks=False)
        else:
            plant(proof, shared / name, world.forged / forged[0] if what == 'forged' else None)
        codes = play(proof, world, kind, victim, shared)
        refused = kind in ('stage', 'import', 'run')  # the others do without
        assert all(code != 0 for code in codes) if refused else all(code == 0 for code in codes), (name, codes)
        for path in shared.iterdir():
            path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)


@pytest.mark.parametrize('victim', VICTIMS)
def test_a_run_with_a_foreign_checkpoint(proof, world, shared, victim):
    """The directory is the victim's, but its umask lets others write to it."""
    assert world.run(victim, *world.train(shared / 'run')).returncode == 0
    for name in ('last.safetensors', 'metrics.jsonl', 'run.json', '.lock'):
        path = shared / 'run' / name
        path.rename(shared / 'kept')
        shutil.copy(world.forged / 'run' / name, path)
        os.chown(path, proof.ATTACKER, proof.ATTACKER)
        done = world.run(victim, 'train', '--resume', shared / 'run', '--epochs', '+1')
        assert done.returncode in (1, 2, 4) and path.name in done.stderr, (name, done.stderr)
        (shared / 'kept').rename(path)
    assert world.run(victim, 'train', '--resume', shared / 'run', '--epochs', '+1', '--json').returncode == 0


@pytest.mark.parametrize('victim', VICTIMS)
def test_sources_may_be_anybodys(proof, world, shared, victim):
    """One copy serves everybody: datasets to train on, runs to evaluate. A run continues with its owner, or as a copy."""
    shutil.copytree(world.source, shared / 'dataset')
    shutil.copytree(world.folder / f'home-{victim}' / 'run', shared / 'run')
    proof.give(shared / 'dataset', proof.ATTACKER)
    proof.give(shared / 'run', proof.ATTACKER)
    assert world.run(victim, 'train', shared / 'dataset', *proof.SMALL, '--epochs', 1, '--run', world.folder / 'private' / 'run').returncode == 0
    assert world.run(victim, 'evaluate', shared / 'run', world.source).returncode == 0
    done = world.run(victim, 'train', '--resume', shared / 'run', '--epochs', '+1')
    assert done.returncode == 2 and 'cp -r' in done.stderr


@pytest.mark.parametrize('victim', VICTIMS)
def test_a_watch_and_its_marks(proof, world, shared, victim):
    notes = world.folder / f'home-{victim}' / 'notes'
    plant(proof, shared / 'watch')
    assert world.run(victim, 'watch', '--out', shared / 'watch', '--', 'true').returncode == 2
    (shared / 'marks').symlink_to(notes)
    done = world.run(victim, 'mark', 'epoch 1', env={'PLIMSOLL_WATCH': str(shared / 'marks')})
    assert done.returncode != 0 and notes.read_text() == 'precious\n'
    plant(proof, shared / 'theirs')
    (shared / 'theirs' / 'timeline.jsonl').symlink_to(notes)
    assert world.run(victim, 'watch', '--out', shared / 'theirs', '--', 'true').returncode == 2 and notes.read_text() == 'precious\n'


@pytest.mark.parametrize('victim', VICTIMS)
def test_outputs(proof, world, shared, victim):
    """Predictions and reports: what waits under their temporary name stays, and is not published."""
    home = world.folder / f'home-{victim}'
    for verb, name in (('predict', 'out.npy'), ('report', 'out.html')):
        (shared / f'.{name}.partial').symlink_to(home / 'notes')
        done = world.run(victim, verb, home / 'run', '--out', shared / name)
        assert done.returncode == 2 or (done.returncode == 0 and not (shared / name).is_symlink()), done.stderr
        assert (home / 'notes').read_text() == 'precious\n'
