# labels: plain long
"""The examples of all pages are run as they stand, each once, and the Chinese pages show the same ones."""
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
sys.path.insert(0, str(SOURCE / 'tests' / 'support'))
from fork import run_in_a_fork  # noqa: E402

PLIMSOLL = os.environ['PLIMSOLL']
# In this order: later pages use the datasets and runs of earlier ones.
PAGES = ['README.md', 'docs/getting-started.md', 'docs/importing-data.md', 'docs/planning.md', 'docs/training.md', 'docs/memory-line.md',
         'docs/from-pyg.md', 'docs/links.md', 'docs/python.md', 'docs/clusters.md', 'docs/why-jobs-die.md', 'docs/c.md']
PAIRS = [(page, page.replace('.md', '.zh-CN.md')) for page in PAGES if (SOURCE / page.replace('.md', '.zh-CN.md')).exists()]
# What README.md's doctor reads: a PyG job's own output, and Slurm's last line.
LOG = """\
Data(num_nodes=2449029, x=[2449029, 100], edge_index=[2, 123718280], y=[2449029, 1])
Namespace(model='sage', hidden_channels=256, num_layers=2, num_neighbors=[15, 10], batch_size=1024, num_workers=4, persistent_workers=True)
Epoch: 001, Loss: 1.2210, Val: 0.8734
Traceback (most recent call last):
  File "train.py", line 61, in <module>
    for batch in val_loader:
RuntimeError: DataLoader worker (pid 24773) is killed by signal: Killed.\x20
slurmstepd: error: Detected 1 oom_kill event in StepId=4711.batch. Some of the step tasks have been OOM Killed.
"""


def blocks(page, language):
    text = (SOURCE / page).read_text()
    return re.findall(r'^```%s\n(.*?)^```' % language, text, re.M | re.S)


def commands_of(block):
    """The plimsoll commands of a shell example, comments and Slurm's srun taken off."""
    lines = [re.sub(r'^srun( --\S+)* ', '', line.split('#')[0].strip()) for line in block.splitlines()]
    return [line for line in lines if line.startswith('plimsoll ')]


def make_inputs(directory):
    """What the examples speak of: an unpacked OGB download, plain arrays, an edge list, a log."""
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


def changed_script(diff):
    """The script that a diff leads to."""
    return ''.join(line[1:] + '\n' for line in diff.splitlines() if not line.startswith('-'))


def test_every_example_runs(tmp_path):
    make_inputs(tmp_path)
    environment = dict(os.environ, PATH='%s:%s' % (os.path.dirname(PLIMSOLL), os.environ['PATH']))
    skipped, ran = [], set()
    for language, block in (found for page in PAGES
                            for found in re.findall(r'^```(sh|python|diff)\n(.*?)^```', (SOURCE / page).read_text(), re.M | re.S)):
        if language != 'sh':
            script = changed_script(block) if language == 'diff' else block
            if 'torch' in script and not all(map(importlib.util.find_spec, ('torch', 'torch_geometric', 'safetensors'))):
                skipped += re.findall(r"makedirs\('(\w+)'", script)
                continue  # tests/ingest/test_import_kinds.py and tests/nn/test_model_pyg.py report it
            if 'import plimsoll' in script and importlib.util.find_spec('plimsoll') is None:
                skipped += re.findall(r"Builder\('(\w+)'", script)
                continue  # tests/python reports it
            done = run_in_a_fork(script, directory=tmp_path, environment=environment)
            assert done.returncode == 0, (script, done.stderr)
            continue
        for command in commands_of(block):
            if command in ran or (len(command.split()) > 2 and command.split()[2] in skipped):
                continue
            ran.add(command)
            done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (command, done.stderr)
    assert len(ran) >= 20
    # A dataset that exists is never replaced.
    for command in (command for command in ran if command.split()[1] == 'import'):
        target = tmp_path / command.split()[3]
        before = files(target)
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and files(target) == before, (command, done.stderr)


def mebibytes(text):
    return float({'-': '0'}.get(text, text).lstrip('<'))


def test_the_plan_shown_is_the_one_made():
    """Its rows, phases and sizes; what the process takes differs a little from machine to machine."""
    command, *shown = next(block for block in blocks('docs/planning.md', 'text') if 'papers100M' in block).splitlines()
    made = subprocess.run([PLIMSOLL, *command.split()[2:]], capture_output=True, text=True, check=True).stdout.splitlines()
    for line in shown:
        name = re.match(r'[^\s=]+( [^\s=]+)*', line)  # an item, an account, an option of a batch script
        if name is not None and line != '[…]':
            assert any(other.startswith(name.group()[:20]) for other in made), line
    rows = {line[:24].strip(): line[24:].split() for line in made if re.match(r'.{24} +[-\d<]', line)}
    for line in shown:
        name, sizes = line[:24].strip(), line[24:].split()
        if name in rows and name != 'process':
            for here, there in list(zip(sizes, rows[name]))[1:]:  # how a start is spent depends on the engine
                assert abs(mebibytes(here) - mebibytes(there)) < 0.1 * mebibytes(there) + 5, line


@pytest.mark.parametrize('page', ['README.md', 'docs/why-jobs-die.md'])
def test_the_answer_shown_is_the_doctors(page, tmp_path):
    """By its items and its cause."""
    (tmp_path / 'slurm-4711.out').write_text(LOG)
    command, *shown = next(block for block in blocks(page, 'text') if block.startswith('$ plimsoll doctor')).splitlines()
    made = subprocess.run([PLIMSOLL, *command.split()[2:]], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.splitlines()
    items = [re.findall(r'^[a-z]+(?: [a-z]+)*(?=  )', '\n'.join(lines), re.M) for lines in (shown, made)]
    assert set(items[0]) <= set(items[1])
    assert [line for line in shown if line.startswith('cause ')] == [line for line in made if line.startswith('cause ')]


def without_comments(block):
    return [line for line in (re.sub(r'#.*', '', line).rstrip() for line in block.splitlines()) if line]


@pytest.mark.parametrize('first, second', PAIRS, ids=[first for first, _ in PAIRS])
def test_both_languages_show_the_same_examples(first, second):
    for language in 'sh', 'python', 'diff':
        assert [without_comments(block) for block in blocks(first, language)] == [without_comments(block) for block in blocks(second, language)]
