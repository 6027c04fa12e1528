"""The README's examples are run as they stand, and the Chinese README shows the same ones."""
import gzip
import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

SOURCE = pathlib.Path(os.environ['PLIMSOLL_SOURCE'])
PLIMSOLL = os.environ['PLIMSOLL']
LANGUAGES = ['README.md', 'README.zh-CN.md']


def blocks(readme, language):
    text = (SOURCE / readme).read_text()
    return re.findall(r'^```%s\n(.*?)^```' % language, text, re.M | re.S)


def commands_of(block):
    """The plimsoll commands of a shell example, comments and Slurm's srun taken off."""
    lines = [re.sub(r'^srun( --\S+)* ', '', line.split('#')[0].strip()) for line in block.splitlines()]
    return [line for line in lines if line.startswith('plimsoll ')]


def commands(readme):
    return [command for block in blocks(readme, 'sh') for command in commands_of(block)]


def make_inputs(directory):
    """What the examples speak of: an unpacked OGB download, plain arrays, an edge list."""
    rng = np.random.default_rng(0)
    nodes, edges = 50, 200
    edge_index = rng.integers(0, nodes, (2, edges))
    features = rng.standard_normal((nodes, 8), np.float32)
    label = rng.integers(0, 4, (nodes, 1)).astype(np.float32)
    raw = directory / 'dataset' / 'ogbn_papers100M' / 'raw'
    split = directory / 'dataset' / 'ogbn_papers100M' / 'split' / 'time'
    raw.mkdir(parents=True)
    split.mkdir(parents=True)
    np.savez_compressed(raw / 'data.npz', edge_index=edge_index, node_feat=features,
                        num_nodes_list=np.array([nodes]), num_edges_list=np.array([edges]))
    np.savez_compressed(raw / 'node-label.npz', node_label=label)
    for name, ids in (('train', range(20)), ('valid', range(20, 30)), ('test', range(30, 50))):
        with gzip.open(split / (name + '.csv.gz'), 'wt') as out:
            out.writelines('%d\n' % i for i in ids)
    arrays = directory / 'my_arrays'
    arrays.mkdir()
    np.save(arrays / 'edge_index.npy', edge_index)
    np.save(arrays / 'node_feat.npy', features)
    np.save(arrays / 'node_label.npy', label[:, 0].astype(np.int64))
    table = directory / 'my_csv'
    table.mkdir()
    for name, rows in (('edges', edge_index.T), ('features', features), ('labels', label.astype(np.int64))):
        np.savetxt(table / (name + '.csv'), rows, '%g', ',')
    np.savez(directory / 'adj.npz', row=edge_index[0], col=edge_index[1], format=np.array(b'coo'), shape=np.array([nodes, nodes]),
             data=np.ones(edges))  # as scipy.sparse.save_npz writes it
    with gzip.open(directory / 'edges.tsv.gz', 'wt') as out:
        out.writelines('%d\t%d\n' % (a * 1000003, b * 1000003) for a, b in edge_index.T)


def files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def test_examples_run_twice(tmp_path):
    """In the same directory; an import alone refuses a dataset that is there, and leaves it as it is."""
    make_inputs(tmp_path)
    readme = LANGUAGES[0]
    environment = dict(os.environ, PATH='%s:%s' % (os.path.dirname(PLIMSOLL), os.environ['PATH']))
    assert len(commands(readme)) >= 6
    for _ in range(2):
        run_examples(readme, tmp_path, environment)


def run_examples(readme, tmp_path, environment):
    skipped = []
    for language, block in re.findall(r'^```(sh|python)\n(.*?)^```', (SOURCE / readme).read_text(), re.M | re.S):
        if language == 'python':
            if 'torch' in block and not all(map(importlib.util.find_spec, ('torch', 'torch_geometric', 'safetensors'))):
                skipped += re.findall(r"makedirs\('(\w+)'", block)
                continue  # tests/ingest/test_import_kinds.py and tests/nn/test_model_pyg.py say so aloud
            if 'import plimsoll' in block and importlib.util.find_spec('plimsoll') is None:
                continue  # tests/python says so aloud
            done = subprocess.run([sys.executable, '-c', block], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            continue
        for command in commands_of(block):
            if command.split()[2] in skipped:
                continue
            target = tmp_path / command.split()[3] if command.split()[1] == 'import' else None
            before = files(target) if target is not None and target.exists() else None
            done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            if before is None:
                assert done.returncode == 0, (command, done.stderr)
            else:
                assert done.returncode == 2 and 'exists' in done.stderr and files(target) == before, (command, done.stderr)


def mebibytes(text):
    return float({'-': '0'}.get(text, text).lstrip('<'))


@pytest.mark.parametrize('readme', LANGUAGES)
def test_the_plan_shown_is_the_one_made(readme):
    """Its rows, phases and sizes; what the process takes differs a little from machine to machine."""
    shown = next(block for block in blocks(readme, 'text') if 'papers100M' in block).splitlines()
    command = next(line for line in (SOURCE / readme).read_text().splitlines() if line.startswith('$ plimsoll plan papers100M'))
    said = subprocess.run([PLIMSOLL, *command.split('#')[0].split()[2:]], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in shown:
        name = re.match(r'[^\s=]+( [^\s=]+)*', line)  # an item, an account, an option of a batch script
        if name is not None and line != '[…]':
            assert any(other.startswith(name.group()[:20]) for other in said), line
    rows = {line[:24].strip(): line[24:].split() for line in said if re.match(r'.{24} +[-\d<]', line)}
    for line in shown:
        name, sizes = line[:24].strip(), line[24:].split()
        if name in rows and name != 'process':
            for here, there in list(zip(sizes, rows[name]))[1:]:  # how a start is spent depends on the engine
                assert abs(mebibytes(here) - mebibytes(there)) < 0.1 * mebibytes(there) + 5, line


def without_comments(block):
    return [line for line in (re.sub(r'#.*', '', line).rstrip() for line in block.splitlines()) if line]


def test_both_languages_show_the_same_examples():
    for language in 'sh', 'python':
        first, second = ([without_comments(block) for block in blocks(readme, language)] for readme in LANGUAGES)
        assert first == second
    first, second = (re.findall(r'^\$? ?plimsoll [^#\n]*', (SOURCE / readme).read_text(), re.M) for readme in LANGUAGES)
    assert [c.strip() for c in first] == [c.strip() for c in second]
