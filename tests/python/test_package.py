# labels: plain unprivileged
"""The package without torch: importing it, opening datasets, limits, errors, and processes it must not run in."""
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

plimsoll = pytest.importorskip('plimsoll')

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'small'
    arguments = ['--nodes', '500', '--edges', '4000', '--features', '8', '--classes', '3', '--seed', '1']
    subprocess.run([PLIMSOLL, 'generate', 'free', str(path), '--quiet', *arguments], check=True, timeout=1500)
    return path


def python(text, *arguments):
    """Runs a script in a new interpreter."""
    return subprocess.run([sys.executable, '-c', text, *map(str, arguments)], capture_output=True, text=True, timeout=1500)


def test_importing_needs_neither_torch_nor_numpy(path):
    done = python(
        '''
import sys
for name in 'torch', 'numpy', 'torch_geometric':
    sys.modules[name] = None   # importing it raises ImportError
import plimsoll
ds = plimsoll.open(sys.argv[1])
print(ds.num_nodes, plimsoll.limit(memory='1G').line_bytes <= 1 << 30)
''',
        path,
    )
    assert done.stdout.split() == ['500', 'True'], done.stderr


def test_a_watch_is_told_of_datasets(path, tmp_path):
    """Once a process, and not through a link."""
    marks, link = tmp_path / 'marks', tmp_path / 'link'
    marks.write_text('')
    link.symlink_to(marks)
    for place, text in ((link, ''), (tmp_path / 'gone', ''), (marks, 'plimsoll: dataset\n')):
        done = python(f'import os\nos.environ["PLIMSOLL_WATCH"] = {str(place)!r}\nimport plimsoll, sys\nplimsoll.open(sys.argv[1]), plimsoll.open(sys.argv[1])', path)
        assert done.returncode == 0 and marks.read_text() == text, done.stderr
    assert not (tmp_path / 'gone').exists()


def test_names():
    assert plimsoll.__version__ == subprocess.run([PLIMSOLL, '--version'], capture_output=True, text=True).stdout.split()[1]
    for name in plimsoll.__all__:
        assert name in dir(plimsoll)
    with pytest.raises(AttributeError):
        plimsoll.no_such_name


def test_open(path):
    ds = plimsoll.open(path)
    assert (ds.num_nodes, ds.num_edges, ds.num_features, ds.num_classes) == (500, 4000, 8, 3)
    assert ds.label_kind == 'classes' and ds.index_type == 'int32' and ds.num_graphs == 0 and not ds.multi_label
    assert ds.num_train == len(np.load(path / 'train.npy')) == ds.num_split('train')
    assert ds.num_valid == ds.num_split('val') == ds.num_split('validation')
    assert ds.bytes == sum(file.stat().st_size for file in pathlib.Path(path).glob('*.npy'))
    assert {name for name, *_ in ds.files()} == {file.name for file in pathlib.Path(path).glob('*.npy')}
    assert (ds.array('indptr') == np.load(path / 'indptr.npy')).all()
    assert ds.max_degree == np.diff(ds.array('indptr')).max()
    assert pickle.loads(pickle.dumps(ds)).fingerprint == ds.fingerprint
    assert 'num_nodes=500' in repr(ds) and '<td>500</td>' in ds._repr_html_()
    with pytest.raises(ValueError):
        ds.num_split('all')


def test_errors_have_the_class_of_their_status(path, tmp_path):
    with pytest.raises(plimsoll.UsageError) as caught:
        plimsoll.open(tmp_path / 'missing')
    assert isinstance(caught.value, (plimsoll.Error, ValueError)) and caught.value.status == 'usage' and 'missing' in str(caught.value)
    for file in path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / 'dataset.json').write_text((tmp_path / 'dataset.json').read_text().replace('"num_nodes": 500', '"num_nodes": 501'))
    with pytest.raises(plimsoll.DataError):
        plimsoll.open(tmp_path)


def test_paths_need_not_be_utf8(path, tmp_path):
    """Errors and log lines name the file."""
    odd = os.path.join(os.fsencode(tmp_path), b'\xff\xfe')
    with pytest.raises(plimsoll.UsageError, match=r'xff'):
        plimsoll.open(os.fsdecode(odd))
    os.symlink(path, odd)
    assert plimsoll.open(os.fsdecode(odd)).num_nodes == 500


def test_every_status_has_its_class():
    names = {'no memory': MemoryError, 'budget': MemoryError, 'disk space': OSError, 'i/o': OSError, 'disk full': OSError, 'data': ValueError}
    for name, kind in names.items():
        error = plimsoll.errors.make(name, 'why')
        assert isinstance(error, kind) and isinstance(error, plimsoll.Error) and type(error) is not plimsoll.Error
        assert (error.status, str(error)) == (name, 'why')


def test_limits():
    found = plimsoll.limit(memory='300M', threads=1)
    assert found.line_bytes <= 300 << 20 and found.threads == 1
    assert found.line_bytes == min(value for _, value in found.memory)
    assert '300 MiB' in str(found)
    with pytest.raises(plimsoll.UsageError):
        plimsoll.limit(memory='many')
    with pytest.raises(ValueError):
        plimsoll.limit(memory=0)
    with pytest.raises(ValueError):
        plimsoll.limit(memory=0.5)


@pytest.mark.parametrize('memory', ['4', 4, '999999'])
def test_small_numbers_need_a_unit(path, memory):
    with pytest.raises(plimsoll.UsageError, match='unit'):
        plimsoll.limit(memory=memory)
    assert plimsoll.limit(memory='1000000B').line_bytes == plimsoll.limit(memory=1000000).line_bytes == 1000000


@pytest.mark.parametrize('name', ['x', 'y', 'edge_index', 'train_mask', 'val_mask'])
def test_attributes_of_a_data_object_name_what_to_use(path, name):
    ds = plimsoll.open(path)
    assert not hasattr(ds, name) and not hasattr(ds, 'node_types')
    with pytest.raises(AttributeError, match='NeighborLoader|array') as caught:
        getattr(ds, name)
    assert caught.value.name == name
    assert pickle.loads(pickle.dumps(ds)).num_nodes == ds.num_nodes


def test_a_file_is_no_dataset(tmp_path):
    (tmp_path / 'papers100M.pt').touch()
    with pytest.raises(plimsoll.UsageError, match='from_pyg'):
        plimsoll.open(tmp_path / 'papers100M.pt')


def test_ranks_of_a_node_share_its_limits():
    text = 'import plimsoll; print(plimsoll.limit().local_ranks, plimsoll.limit().line_bytes)'
    lines = []
    for ranks in '1', '4':
        done = subprocess.run([sys.executable, '-c', text], env={**os.environ, 'LOCAL_WORLD_SIZE': ranks}, capture_output=True, text=True)
        lines.append([int(word) for word in done.stdout.split()])
    assert lines[0][0] == 1 and lines[1][0] == 4
    assert lines[1][1] < lines[0][1] / 3


def test_sample():
    from plimsoll import _core

    sample = _core.sample()
    assert 10 << 20 < sample['rss_bytes'] <= sample['rss_peak_bytes']
    held = bytearray(os.urandom(32 << 20))
    assert _core.sample()['rss_bytes'] - sample['rss_bytes'] > 30 << 20
    del held


def test_free_threaded_builds_are_refused():
    done = python("import sys; sys.abiflags = 't'; import plimsoll")
    assert done.returncode != 0 and 'ImportError' in done.stderr and 'free-threaded' in done.stderr


def test_sub_interpreters_are_refused():
    done = python(
        '''
try:
    import _xxsubinterpreters as interpreters
except ImportError:
    import _interpreters as interpreters
try:
    interpreters.run_string(interpreters.create(), "import plimsoll")
except Exception as error:
    print('refused:', error)
'''
    )
    assert 'refused' in done.stdout and 'sub-interpreters' in done.stdout, (done.stdout, done.stderr)
