# labels: asan
"""Numbers, paths and texts of files that lie: refused where they are read, whatever command reads them."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import xxhash

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / 'tests' / 'support'))
import importing as im

BAD_DATA = 4
WORDS = ('--hidden', '8', '--fanout', '3,2', '--batch', '16', '--epochs', '1')


@pytest.fixture(name='dataset')
def made_dataset(tmp_path):
    graph = im.Graph(1)
    split = {f'{part}_idx': ids for part, ids in graph.split.items()}
    source = im.write_npy(tmp_path / 'source', edge_index=graph.edges, node_feat=graph.features, node_label=graph.labels, **split)
    im.imported(source, tmp_path / 'dataset')
    return tmp_path / 'dataset'


def rewrite(dataset, change):
    """dataset.json after change(manifest), its fingerprint and seal made to agree."""
    path = dataset / 'dataset.json'
    manifest = json.loads(path.read_text())
    del manifest['self']
    change(manifest, {file['name']: file for file in manifest['files']})
    whole = xxhash.xxh3_64()
    for file in manifest['files']:
        whole.update(file['name'].encode() + b'\0' + file['dtype'].encode() + b'\0')
        for number in [len(file['shape']), *file['shape'], file['bytes'], *(int(text, 16) for text in file['checksums'])]:
            whole.update(number.to_bytes(8, 'little'))
    manifest['fingerprint'] = f'{whole.intdigest():016x}'
    head = json.dumps(manifest)[:-1] + ', "self": "'
    path.write_text(f'{head}{xxhash.xxh3_64_hexdigest(head.encode())}"\n}}\n')


def widen(dataset, file, shape, item):
    """Another shape: the header, a file that is as long (sparse), checksums as many as there must be."""
    size = 4096 + int(np.prod(shape, dtype=object)) * item
    file.update(shape=shape, bytes=size, checksums=['0' * 16] * ((size - 1) // (64 << 20) + 1))
    text = f"{{'descr': '{file['dtype']}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    with open(dataset / file['name'], 'r+b') as out:
        out.write(b'\x93NUMPY\x01\x00' + (4086).to_bytes(2, 'little') + text.encode().ljust(4085) + b'\n')
        out.truncate(size)


def verbs(dataset, tmp_path):
    return [('plan', dataset, *WORDS), ('train', dataset, *WORDS, '--run', tmp_path / 'run')]


@pytest.mark.parametrize('classes', [2**20 + 1, 2**31, 2**32, 2**32 + 1, 2**40, 2**63 - 1])
def test_class_counts_without_sense(dataset, tmp_path, classes):
    """2^32 classes once divided by zero inside oneDNN."""
    rewrite(dataset, lambda manifest, files: manifest.update(num_classes=classes))
    for words in verbs(dataset, tmp_path):
        done = im.run(*words)
        assert done.returncode in (1, BAD_DATA), (words, done.returncode, done.stderr)
        assert 'classes' in done.stderr
    assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize('width', [2**20 + 1, 2**24 + 1, 2**32, 2**33])
def test_rows_without_sense(dataset, tmp_path, width):
    def change(manifest, files):
        manifest['num_features'] = width
        widen(dataset, files['features.npy'], [manifest['num_nodes'], width], 4)
    rewrite(dataset, change)
    for words in verbs(dataset, tmp_path):
        done = im.run(*words)
        assert done.returncode in (1, BAD_DATA), (words, done.returncode, done.stderr)


@pytest.mark.parametrize('hidden, classes', [(2**20, 4), (8, 2**20), (2**20, 2**20)])
def test_widths_that_are_allowed_and_do_not_fit(dataset, tmp_path, hidden, classes):
    rewrite(dataset, lambda manifest, files: manifest.update(num_classes=classes))
    done = im.run('plan', dataset, *WORDS, '--hidden', hidden, '--memory', '100M')
    assert done.returncode in (0, 3), done.stderr


@pytest.mark.parametrize('length', [4087, 8192, 16384, 65535])
def test_npy_headers_longer_than_ours(dataset, length):
    """Of an array only the first 4,096 bytes are in memory when its header is read."""
    path = dataset / 'indptr.npy'
    data = bytearray(path.read_bytes())
    data[8:10] = length.to_bytes(2, 'little')
    path.write_bytes(data)

    def change(manifest, files):
        files['indptr.npy']['checksums'] = [xxhash.xxh3_64_hexdigest(bytes(data))]
    rewrite(dataset, change)
    done = im.run('inspect', dataset)
    assert done.returncode == BAD_DATA and 'indptr.npy' in done.stderr, (done.returncode, done.stderr)


@pytest.fixture(name='run')
def made_run(dataset, tmp_path):
    done = im.run('train', dataset, *WORDS, '--run', tmp_path / 'run')
    assert done.returncode == 0, done.stderr
    return tmp_path / 'run'


def change_settings(run, **settings):
    about = json.loads((run / 'run.json').read_text())
    about['settings'].update(settings)
    (run / 'run.json').write_text(json.dumps(about))


@pytest.mark.parametrize('key', ['hidden', 'batch_size', 'epochs', 'eval_every', 'patience', 'microbatch', 'checkpoint_steps', 'memory_steps',
                                 'schedule_epochs', 'layers', 'heads'])
@pytest.mark.parametrize('value', [2**31, 2**63 - 1])
def test_settings_without_sense(dataset, run, key, value):
    change_settings(run, **{key: value})
    for words in [('train', '--resume', run, '--epochs', '+1'), ('evaluate', run)]:
        done = im.run(*words)
        assert done.returncode == BAD_DATA, (words, done.returncode, done.stderr)
        assert key in done.stderr


def test_timeline_of_terabytes(dataset, run):
    """Only its end is looked at: a resume does not read for hours."""
    path = run / 'timeline.jsonl'
    with open(path, 'ab') as file:
        file.truncate(1 << 42)
    done = im.run('train', '--resume', run, '--epochs', '2')
    assert done.returncode == BAD_DATA, done.stderr
    assert 'timeline.jsonl' in done.stderr
    assert path.stat().st_size == 1 << 42
    path.unlink()
    assert im.run('train', '--resume', run, '--epochs', '2').returncode == 0


def test_timeline_cut_in_a_line_is_continued(dataset, run):
    path = run / 'timeline.jsonl'
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"half": ' + b'x' * 30000)
    assert im.run('train', '--resume', run, '--epochs', '2').returncode == 0
    assert path.read_bytes().startswith(whole) and b'half' not in path.read_bytes()


@pytest.mark.parametrize('kind', ['absolute', 'dots', 'link'])
@pytest.mark.parametrize('array', ['feat.npy', 'edges.npy', 'train_ids.npy', 'train_labels.npy'])
def test_graphbolt_paths_stay_inside(tmp_path, kind, array):
    graph = im.Graph(9)
    source = im.write_graphbolt(tmp_path / 'gb', graph, 'npy')
    (tmp_path / 'outside.npy').write_bytes((source / array).read_bytes())
    path = {'absolute': str(tmp_path / 'outside.npy'), 'dots': '../outside.npy', 'link': array}[kind]
    if kind == 'link':
        (source / array).unlink()
        (source / array).symlink_to(tmp_path / 'outside.npy')
    yaml = source / 'metadata.yaml'
    yaml.write_text(yaml.read_text().replace(f'path: {array}', f'path: {path}'))
    im.refused(BAD_DATA, source, tmp_path / 'made', says=['outside'])


def test_graphbolt_paths_inside_may_take_detours(tmp_path):
    source = im.write_graphbolt(tmp_path / 'gb', im.Graph(9), 'npy')
    yaml = source / 'metadata.yaml'
    (source / 'link.npy').symlink_to(source / 'train_ids.npy')
    yaml.write_text(yaml.read_text().replace('path: feat.npy', f'path: {source / "feat.npy"}').replace('path: edges.npy', 'path: ../gb/edges.npy')
                    .replace('path: train_ids.npy', 'path: link.npy'))
    im.imported(source, tmp_path / 'out')


HOSTILE = '\x1b[2J\x9b31m\r\x07\x7f\n'


def printed(done):
    return set(done.stdout.decode() + done.stderr.decode()) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))


def call(*words):
    return subprocess.run([im.PLIMSOLL, *map(str, words)], capture_output=True, timeout=1500, check=False)


def test_control_characters_do_not_reach_the_terminal(dataset, run, tmp_path):
    """From dataset.json, run.json, a lock, a checkpoint's header, metadata.yaml, names of files."""
    rewrite(dataset, lambda manifest, files: manifest['provenance'].update(source=HOSTILE, options=HOSTILE, version=HOSTILE))
    for words in [(dataset,), (dataset, '--json')]:
        done = call('inspect', *words)
        assert done.returncode == 0 and not printed(done), printed(done)
    about = json.loads((run / 'run.json').read_text())
    about['machine']['cpu'] = about['versions']['onednn'] = HOSTILE
    (run / 'run.json').write_text(json.dumps(about))
    assert not printed(call('train', '--resume', run, dataset, '--epochs', '2'))
    about['dataset']['path'] = '/nowhere/' + HOSTILE
    (run / 'run.json').write_text(json.dumps(about))
    for words in [(), ('--json',)]:
        done = call('evaluate', run, *words)
        assert done.returncode == BAD_DATA and not printed(done), printed(done)
    source = im.write_graphbolt(tmp_path / 'gb', im.Graph(9), 'npy')
    yaml = source / 'metadata.yaml'
    yaml.write_text(yaml.read_text().replace('path: feat.npy', f'path: {json.dumps(HOSTILE)}'))
    done = call('import', source, tmp_path / 'out')
    assert done.returncode != 0 and not printed(done)
    header = json.dumps({HOSTILE: {'dtype': HOSTILE, 'shape': [], 'data_offsets': [0, 0]}}).encode()
    weights = tmp_path / 'weights.safetensors'
    weights.write_bytes(len(header).to_bytes(8, 'little') + header)
    done = call('evaluate', run, dataset, '--weights', weights)
    assert done.returncode != 0 and not printed(done)
    assert not printed(call('inspect', tmp_path / HOSTILE))
    assert not printed(call(HOSTILE))
    assert not printed(call('train', dataset, '--model', HOSTILE))


def test_the_name_of_a_control_group_is_printable():
    root = pathlib.Path('/sys/fs/cgroup/memory')
    if os.geteuid() != 0 or not (root / 'memory.limit_in_bytes').exists():
        pytest.skip('needs root and memory cgroups of version 1')
    group = root / f'plimsoll-{os.getpid()}-\x1b[31m'
    try:
        group.mkdir()
    except OSError as reason:
        pytest.skip(f'no memory cgroup here: {reason}')
    try:
        (group / 'memory.limit_in_bytes').write_text(str(512 << 20))
        enter = ['sh', '-c', 'echo $$ > "$0/cgroup.procs" && exec "$@"', group, im.PLIMSOLL]
        for words in (['limit'], ['limit', '--json'], ['plan', 'arxiv']):
            done = subprocess.run([*enter, *words], capture_output=True, timeout=1500, check=False)
            assert group.name[:-5].encode() in done.stdout and not printed(done), done.stdout
    finally:
        group.rmdir()


def test_names_in_other_scripts_are_printed_as_they_are(dataset):
    place = dataset.rename(dataset.with_name('数据-é'))
    done = call('inspect', place)
    assert '数据-é' in done.stdout.decode()
    assert json.loads(call('inspect', place, '--json').stdout)['path'] == os.fspath(place)
