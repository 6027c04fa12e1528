"""What must work wherever the wheel is installed; tools/wheel runs it in each environment, with the directory of a dataset.

Prints what it found as one line of JSON. Not a test_ file: it tests the installed package, not the build tree's.
"""
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

began = time.monotonic()
import plimsoll  # noqa: E402

import_seconds = time.monotonic() - began


def command(*words, code=0, **environment):
    """Runs the installed command; its standard output."""
    done = subprocess.run([pathlib.Path(sys.prefix) / 'bin' / 'plimsoll', *map(str, words)], capture_output=True, text=True, check=False,
                          env={**os.environ, **environment})
    assert done.returncode == code, (words, done.returncode, done.stderr)
    return done.stdout


def try_mpi_plugin(folder):
    """Compiles the MPI plugin out of what the package holds; whether there is an mpicc to do so."""
    source = pathlib.Path(plimsoll.__file__).parent / 'mpi' / 'mpi_plugin.c'
    assert source.exists() and (source.parent / 'plimsoll' / 'peers.h').exists()
    if not shutil.which('mpicc'):
        return False
    plugin = f'{folder}/plimsoll-mpi.so'
    subprocess.run(['mpicc', '-shared', '-fPIC', '-O2', '-I', source.parent, '-o', plugin, source], check=True)
    printed = command('--version', PLIMSOLL_MPI=plugin)  # names the MPI, or the file and why it cannot be loaded
    assert 'plugin of PLIMSOLL_MPI: ' in printed and plugin not in printed, printed
    return True


def mapped(word):
    """Files of this process whose names contain a word."""
    lines = pathlib.Path('/proc/self/maps').read_text().splitlines()
    return sorted({pathlib.Path(line.split(maxsplit=5)[5]).name for line in lines if line.count('/') and word in line.rsplit('/', 1)[1]})


def main():
    dataset = sys.argv[1]
    facts = {'python': platform.python_version(), 'import_ms': round(import_seconds * 1000, 1), 'torch': None}
    assert 'torch' not in sys.modules and 'numpy' not in sys.modules
    assert pathlib.Path(plimsoll.__file__).is_relative_to(sys.prefix)
    assert plimsoll.__version__ == importlib.metadata.version('plimsoll-gnn')
    assert plimsoll.__version__ in command('--version')
    command('train', '--no-such-option', code=2)
    assert plimsoll.limit().line_bytes > 0
    opened = plimsoll.open(dataset)
    assert opened.num_nodes > 0 and opened.num_edges > 0
    with tempfile.TemporaryDirectory() as folder:
        runs = []
        for precision in 'f32', 'bf16':
            run = plimsoll.train(dataset, model='sage', hidden=16, fanout=[5, 3], epochs=5, precision=precision, run=f'{folder}/{precision}',
                                 quiet=True)
            losses = [row['loss'] for row in run.metrics]
            assert losses[-1] < losses[0] and pathlib.Path(run.weights_path()).exists()
            runs.append(run)
            facts[f'trained_{precision}'] = {'epochs': len(losses), 'loss': losses[-1], **run.scores}
        facts['mpi_plugin'] = try_mpi_plugin(folder)
        assert not mapped('libgomp') and not mapped('libiomp') and not mapped('libdnnl')
        assert not importlib.util.find_spec('numpy') or all(run.weights() for run in runs)
    if importlib.util.find_spec('torch_geometric'):
        import numpy
        import torch
        import torch_geometric
        facts |= {'torch': torch.__version__, 'torch_geometric': torch_geometric.__version__, 'numpy': numpy.__version__}
        before = mapped('omp')
        loader = plimsoll.NeighborLoader(opened, num_neighbors=[5, 3], batch_size=64, input_nodes='train', shuffle=True)
        nodes = 0
        for batch in loader:
            assert batch.x.shape[0] == batch.n_id.shape[0] and int(batch.edge_index.max()) < batch.n_id.shape[0]
            nodes += batch.batch_size
        assert nodes == opened.num_train
        assert mapped('omp') == before
    elif importlib.util.find_spec('numpy'):
        import numpy
        facts['numpy'] = numpy.__version__
        loader = plimsoll.NeighborLoader(opened, num_neighbors=[5, 3], batch_size=64, input_nodes='train')
        assert sum(len(batch.input_id) for batch in loader) == opened.num_train
    else:
        try:
            next(iter(plimsoll.NeighborLoader(opened, num_neighbors=[5, 3], batch_size=64, input_nodes='train')))
        except ImportError as error:
            assert 'torch' in str(error)
        else:
            raise AssertionError('a loader without torch')
    print(json.dumps(facts))


main()
