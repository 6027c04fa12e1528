"""Compares `plimsoll plan --for pyg` with what PyTorch Geometric takes.

    tools/prove pyg-plan [--dir DIR] [--python PYTHON] [--calibrate] [--only NAME,…] [--record]

Each configuration is trained and evaluated for a few steps by bench/pyg_peak.py, in a real memory cgroup whose limit it does not
reach; what is compared is the group's peak as the kernel kept it, workers, shared memory and page tables included. The files that it
reads, and those of its libraries, are mapped by this tool, so that the page cache is not in it, even where others drop that
meanwhile; where files are counted nevertheless, it is measured again. The estimate must be within 15 % of the peak. --calibrate
runs the other configurations, those from which the constants in programs/pyg/pyg_estimate.c were taken, and proves nothing.

PYTHON (default: $PLIMSOLL_PYG_PYTHON, else this one) needs torch, torch_geometric and pyg-lib. Needs root, 10 GB of disk below DIR
and 9 GB of memory; real ogbn-arxiv from $PLIMSOLL_TEST_DATA or ../shared/data, else a generated one. --record writes
bench/results/pyg-plan.json.
"""
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import prooflib

BOUND = 0.15
LIMIT = 12 << 30
TRIES = 4

DATASETS = {
    'arxiv': ['arxiv'],
    'papers-0.01': ['papers100M', '--scale', '0.01'],
    'papers-0.025': ['papers100M', '--scale', '0.025'],
    'products-0.2': ['products', '--scale', '0.2'],
    'products-0.5': ['products', '--scale', '0.5'],
    'wide': ['free', '--nodes', '2M', '--edges', '12M', '--features', '256', '--classes', '20'],
}
CALIBRATION = [
    ('arxiv', '--model sage --hidden 64 --fanout 10,5 --batch 1024'),
    ('arxiv', '--model sage --hidden 32 --fanout 10,5 --batch 256 --workers 2'),
    ('papers-0.01', '--model sage --hidden 256 --fanout 15,10,5 --batch 1024'),
    ('products-0.2', '--model gcn --hidden 64 --fanout 10,5 --batch 2048 --workers 2 --persistent-workers'),
]
PROOF = [
    ('arxiv', '--model gcn --hidden 256 --fanout 15,10,5 --batch 512'),
    ('papers-0.025', '--model gcn --hidden 16 --fanout 3,2 --batch 128 --workers 2'),
    ('papers-0.025', '--model sage --hidden 256 --fanout 15,10,5 --batch 1024 --graph csc --mapped-features --loaders 1'),
    ('products-0.5', '--model gat --heads 4 --hidden 64 --fanout 10,5 --batch 1024'),
    ('wide', '--model sage --hidden 128 --fanout 10,10 --batch 4096 --workers 2 --persistent-workers'),
]


def make_dataset(name, directory):
    real = prooflib.test_data() / 'ogbn_arxiv'
    dataset = directory / name
    if not dataset.exists():
        words = ['import', real, dataset] if name == 'arxiv' and real.exists() else ['generate', DATASETS[name][0], dataset, *DATASETS[name][1:]]
        prooflib.must(*words, '--memory', '2G', '--quiet')
    return dataset


def held(*directories):
    """The files below, in the page cache and not the measured group's for as long as these maps live."""
    maps = []
    for path in (path for directory in directories for path in pathlib.Path(directory).rglob('*')):
        if path.is_file() and path.stat().st_size and re.search(r'\.(npy|pyc|so)\b', path.name):
            with open(path, 'rb') as file:
                maps.append(mmap.mmap(file.fileno(), 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE, prot=mmap.PROT_READ))
    return maps


def measure(python, arrays, words):
    for _ in range(TRIES):
        seen = prooflib.limited(LIMIT, python, prooflib.SOURCE / 'bench' / 'pyg_peak.py', 'run', arrays, *words, warm=True)
        if seen['exit']:
            sys.exit(f'PyG failed: {seen["stderr"][-2000:]}')
        if seen['max_file'] < 0.05 * seen['peak']:
            break
        print(f'  {seen["max_file"] >> 20} MiB of files were counted too: once more', file=sys.stderr)
    return seen, prooflib.last_json(seen['stdout'])


def compare(python, dataset, arrays, text):
    words = text.split()
    plan = prooflib.last_json(prooflib.must('plan', dataset, '--for', 'pyg', *words, '--json', '--quiet'))
    seen, inside = measure(python, arrays, words)
    error = plan['total_bytes'] / seen['peak'] - 1
    print(f'{dataset.name:13} {text}\n  estimated {plan["total_bytes"] >> 20} MiB in {plan["peak_phase"]}, measured {seen["peak"] >> 20} MiB: '
          f'{100 * error:+.1f} %; batch {plan["batch_nodes"]} nodes, {plan["batch_edges"]} edges, measured {inside["batch_nodes"]}, '
          f'{inside["batch_edges"]}', flush=True)
    return {'dataset': dataset.name, 'options': text, 'estimated_bytes': plan['total_bytes'], 'measured_bytes': seen['peak'],
            'error': round(error, 4), 'peak_phase': plan['peak_phase'], 'estimated_phases': plan['phases'],
            'measured_file_bytes': seen['max_file'], 'measured_own_process': inside['phases'],
            'batch': {'estimated': [plan['batch_nodes'], plan['batch_edges']], 'measured': [inside['batch_nodes'], inside['batch_edges']]}}


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--dir', type=pathlib.Path, help='where datasets are made, and kept; default: a temporary directory')
    parser.add_argument('--python', default=os.environ.get('PLIMSOLL_PYG_PYTHON', sys.executable))
    parser.add_argument('--calibrate', action='store_true')
    parser.add_argument('--only', help='datasets by name')
    parser.add_argument('--record', action='store_true')
    options = parser.parse_args()
    probe = subprocess.run([options.python, '-c', 'import os, torch, torch_geometric, pyg_lib; print(torch.__version__, torch_geometric.__version__, '
                            'pyg_lib.__version__, os.path.dirname(os.__file__), os.path.dirname(torch.__path__[0]))'],
                           capture_output=True, text=True, check=False)
    if probe.returncode:
        prooflib.skip(f'{options.python} has no torch, torch_geometric and pyg-lib: name one that has by --python')
    torch, geometric, library, *packages = probe.stdout.split()
    libraries = held(*packages)
    with tempfile.TemporaryDirectory(dir=options.dir) as scratch:
        directory = options.dir or pathlib.Path(scratch)
        chosen = CALIBRATION if options.calibrate else PROOF
        chosen = [one for one in chosen if not options.only or one[0] in options.only.split(',')]
        runs = []
        for name in dict.fromkeys(name for name, _ in chosen):
            prooflib.require_room(directory, 6 << 30)
            dataset, arrays = make_dataset(name, directory), pathlib.Path(scratch) / 'arrays'
            subprocess.run([options.python, prooflib.SOURCE / 'bench' / 'pyg_peak.py', 'prepare', dataset, arrays], check=True)
            files = held(arrays)
            runs += [compare(options.python, dataset, arrays, text) for other, text in chosen if other == name]
            del files
            shutil.rmtree(arrays)
    del libraries
    if options.calibrate:
        return 0
    worst = max(abs(run['error']) for run in runs)
    claims = {f'the estimate for PyG is within {100 * BOUND:.0f} % of its measured peak on {len(runs)} configurations (worst: {100 * worst:.1f} %)':
              worst <= BOUND}
    path = prooflib.result_path(options, 'pyg-plan', options.record)
    return 0 if prooflib.record(path, claims, versions={'torch': torch, 'torch_geometric': geometric, 'pyg_lib': library}, runs=runs) else 1
