# labels: plain unprivileged
"""plimsoll cache: what runs keep in a scratch directory is listed and removed, and nothing else."""
import fcntl
import json
import os
import pathlib
import subprocess

PLIMSOLL = pathlib.Path(os.environ['PLIMSOLL'])


def run(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_working_sets_are_listed_and_removed(tmp_path):
    data, scratch = tmp_path / 'graph', tmp_path / 'scratch'
    scratch.mkdir()
    run('generate', 'arxiv', data, '--scale', '0.02', '--quiet')
    for fanout in '3,2', '4':
        run('bench', 'load', data, '--batch', 64, '--fanout', fanout, '--epochs', 1, '--features', 'disk', '--scratch', scratch, '--quiet')
    (scratch / 'working-set-mine.plim').write_text('not one')
    (scratch / 'notes').write_text('nor this')
    sets = sorted(path for path in scratch.iterdir() if path.name.startswith('working-set-') and 'mine' not in path.name)
    report = json.loads(run('cache', scratch, '--json').stdout)
    assert sorted(file['name'] for file in report['files']) == [path.name for path in sets] and len(sets) == 2
    assert report['bytes'] == sum(path.stat().st_size for path in sets) > 0 and not report['removed']
    fingerprint = json.loads(run('inspect', data, '--json').stdout)['fingerprint']
    assert {file['fingerprint'] for file in report['files']} == {fingerprint}
    assert all(path.name in run('cache', scratch).stdout for path in sets)
    assert json.loads(run('cache', scratch, '--remove', '--json').stdout)['removed']
    assert sorted(path.name for path in scratch.iterdir()) == ['notes', 'working-set-mine.plim']
    assert json.loads(run('cache', scratch, '--json').stdout)['files'] == []
    lock = scratch / (sets[0].name + '.lock')
    with open(lock, 'w') as packing:
        fcntl.flock(packing, fcntl.LOCK_EX)
        assert json.loads(run('cache', scratch, '--remove', '--json').stdout)['files'] == [] and lock.exists()
    assert json.loads(run('cache', scratch, '--remove', '--json').stdout)['files'][0]['name'] == lock.name and not lock.exists()
    assert 'nowhere' in run('cache', tmp_path / 'nowhere', code=1).stderr
    run('cache', code=2)
