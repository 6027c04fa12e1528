# labels: plain unprivileged
"""`plimsoll slurm --check`: each contradiction is found, and healthy scripts cause no alarm."""
import json
import os
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
HEAD = '#!/bin/bash\n#SBATCH --mem=32G\n#SBATCH --time=4:00:00\n#SBATCH --cpus-per-task=8\n'
RUN = 'srun python train.py --batch_size 512\n'
LOADERS = '''
import argparse
from torch_geometric.loader import NeighborLoader
parser = argparse.ArgumentParser()
parser.add_argument('--batch_size', type=int, default=1024, help='not a ) nor a "quote"')
parser.add_argument("--num_workers", type=int, default=4)
args = parser.parse_args()
train_loader = NeighborLoader(data, input_nodes=split['train'], num_neighbors=[15, 10], shuffle=True,
                              batch_size=args.batch_size, num_workers=args.num_workers, persistent_workers=True)
val_loader = NeighborLoader(data, num_neighbors=[-1, -1], batch_size=4096, num_workers=4, persistent_workers=True)
'''


def check(path, script, python=LOADERS, sinfo=None):
    """The object of --check; `sinfo` is what a stand-in for it prints."""
    (path / 'job.sbatch').write_bytes(script if isinstance(script, bytes) else script.encode())
    if python is not None:
        (path / 'train.py').write_bytes(python if isinstance(python, bytes) else python.encode())
    environment = dict(os.environ)
    if sinfo is not None:
        (path / 'bin').mkdir(exist_ok=True)
        (path / 'bin' / 'sinfo').write_text(f'#!/bin/sh\nprintf "{sinfo}"\n')
        (path / 'bin' / 'sinfo').chmod(0o755)
        environment['PATH'] = f'{path}/bin:{environment["PATH"]}'
    words = [PLIMSOLL, 'slurm', '--check', path / 'job.sbatch']
    text = subprocess.run(words, env=environment, capture_output=True, check=False, timeout=1500)
    done = subprocess.run([*words, '--json'], env=environment, capture_output=True, text=True, check=False, timeout=1500)
    printed = json.loads(done.stdout)
    assert done.returncode == text.returncode == (1 if printed['findings'] else 0), done.stderr
    assert text.stdout.count(b' [') >= len(printed['findings']) and not set(text.stdout) & (set(range(32)) - {10})
    return printed


def kinds(printed):
    return sorted({finding['kind'] for finding in printed['findings']})


CONTRADICTIONS = [
    (HEAD.replace('#SBATCH --mem=32G\n', '') + RUN, LOADERS, ['no_mem']),
    (HEAD.replace('#SBATCH --time=4:00:00\n', '') + RUN, LOADERS, ['no_time']),
    (HEAD + 'cd /data\n#SBATCH --mem=64G\n' + RUN, LOADERS, ['late_request']),
    (HEAD + '#SBATCH --mem=64G\n' + RUN, LOADERS, ['overridden']),
    (HEAD + 'BATCH_SIZE=1024\n' + RUN, LOADERS, ['overridden']),
    (HEAD + 'export batch_size=1024\n' + RUN, LOADERS, ['overridden']),
    (HEAD + 'srun python train.py --lr 0.1 --batch_size 512 --lr=0.01\n', LOADERS, ['overridden']),
    (HEAD + RUN, LOADERS.replace('num_workers=4, p', 'num_workers=2, p'), ['loaders_differ']),
    (HEAD + RUN, LOADERS + 'losses.append(loss)\ntotal += loss\nouts.append(out)\n', ['loss_list', 'loss_sum', 'output_list']),
    (HEAD + RUN, LOADERS + 'def test():\n    model.eval()\n    return model(x)\n', ['evaluation_gradients']),
    (HEAD + RUN, LOADERS + 'def predict(batch):\n    return model(batch)\n', []),  # a part of a step, too
    (HEAD + 'srun python train.py --num-workers 6\n', LOADERS, ['loaders_differ']),
    (HEAD + RUN, LOADERS + 'other = NeighborLoader(data, num_neighbors=[5], num_workers=4, pin_memory=True)\n'
     'last = NeighborLoader(data, num_neighbors=[5], num_workers=4, pin_memory=False)\n', ['loaders_differ']),
    (HEAD.replace('=8', '=2') + RUN, LOADERS, ['workers_exceed_cpus']),
    (HEAD.replace('32G', '260M') + RUN, LOADERS, ['workers_exceed_mem']),
    (HEAD.replace('32G', '200') + RUN, LOADERS, ['workers_exceed_mem']),
    (HEAD + RUN, LOADERS + "dataset = PygNodePropPredDataset('ogbn-papers100M')\n", ['peak_exceeds_mem']),
    (HEAD + 'srun python train.py --dataset ogbn-papers100M\n', LOADERS, ['peak_exceeds_mem']),
    (HEAD + '#SBATCH --signal=USR1@60\n' + RUN, LOADERS, ['signal_ignored']),
    (HEAD + '#SBATCH --signal=USR1@60\npython train.py\n', LOADERS + 'signal.signal(signal.SIGUSR1, save)\n', ['signal_ignored']),  # to nobody
    (HEAD + '#SBATCH --signal=B:USR1@60\n' + RUN, LOADERS, ['signal_ignored']),  # bash dies
    (HEAD + "#SBATCH --signal=B:USR1@60\ntrap 'kill $!' USR1\n" + RUN, LOADERS, ['signal_late']),
    (HEAD + RUN, LOADERS.replace('num_workers=4, persistent', 'persistent'), ['idle_setting']),
]


@pytest.mark.parametrize('number', range(len(CONTRADICTIONS)))
def test_each_contradiction_is_found_alone(tmp_path, number):
    script, python, expected = CONTRADICTIONS[number]
    assert kinds(check(tmp_path, script, python)) == expected


def test_loaders_are_reported_with_the_workers_of_each(tmp_path):
    python = LOADERS.replace('num_workers=4, p', 'num_workers=2, p') + "dataset = PygNodePropPredDataset('ogbn-papers100M')\n"
    [text] = [one['text'] for one in check(tmp_path, HEAD + RUN, python)['findings'] if one['kind'] == 'peak_exceeds_mem']
    assert '2 loaders of 4, 2 workers' in text


@pytest.mark.parametrize('hops, kinds_expected', [(8, ['peak_exceeds_mem']), (9, [])])
def test_longer_fanouts_than_can_be_estimated_are_named(tmp_path, hops, kinds_expected):
    python = LOADERS.replace('[15, 10]', str([2] * hops)) + "dataset = PygNodePropPredDataset('ogbn-papers100M')\n"
    printed = check(tmp_path, HEAD + RUN, python)
    assert kinds(printed) == kinds_expected and any('num_neighbors' in text for text in printed['not_read']) == (hops > 8)


HEALTHY = [
    (HEAD + RUN, LOADERS),
    (HEAD + 'BATCH=512\nsrun python train.py --batch_size $BATCH\n', LOADERS),
    (HEAD + 'BATCH_SIZE=512\npython3 -u train.py --batch_size "${BATCH_SIZE}" 2>&1 | tee log\n', LOADERS),
    (HEAD + 'BATCH_SIZE=512\nsrun python train.py --batch_size 512\n', LOADERS),  # the same
    (HEAD.replace('--mem=32G', '--mem-per-cpu=4G') + RUN, LOADERS),
    (HEAD.replace('--mem=32G', '--mem=0') + RUN, LOADERS),
    (HEAD + '#SBATCH --signal=SIGUSR1@90\nsrun python train.py\n', LOADERS + 'import lightning as L\n'),
    (HEAD + "#SBATCH --signal=B:USR1@90\ntrap 'kill -USR1 $pid' USR1\npython train.py &\npid=$!\nwait $pid\n", LOADERS),
    (HEAD + '#SBATCH --signal=TERM@90\n' + RUN, LOADERS),
    (HEAD.replace('--cpus-per-task=8', '--ntasks=16') + RUN, LOADERS),
    (HEAD.replace('--cpus-per-task=8', '--ntasks=1 --gpus=1 --cpus-per-gpu=8') + RUN, LOADERS),
    (HEAD + RUN, LOADERS.replace('num_workers=args.num_workers', 'num_workers=cores // 2')),
    (HEAD + RUN, 'class MyLoader(Base):\n    def Loader(num_workers=99): pass\n"""NeighborLoader(num_workers=99)"""\n# XLoader(num_workers=98)\n'),
    (HEAD + RUN, LOADERS + "dataset = PygNodePropPredDataset(name='ogbn-arxiv')\n"),
    (HEAD + "#SBATCH --signal=B:USR1@90\ntrap 'kill -USR1 $pid' USR1\npython train.py 2>&1 | tee log &\npid=$!\nwait $pid\n", LOADERS),
    (HEAD + 'python train.py --skip a --skip b\n', LOADERS + "parser.add_argument('--skip', action='append')\n"),
    (HEAD + 'python train.py --keep_workers\n', LOADERS.replace('persistent_workers=True)\nval', 'persistent_workers=args.keep_workers)\nval') +
     "parser.add_argument('--keep_workers', action='store_true')\n"),
    (HEAD.replace('32G', '260M') + 'python train.py\n', 'loader = FileSystemLoader(path)\n'),
    (HEAD + 'for LR in 0.1 0.01; do python train.py --lr $LR; done\n', LOADERS),
    ('#!/bin/bash\n#SBATCH -t 60 -c 8\n#SBATCH --mem 32G  # enough\n' + RUN, LOADERS),
    (HEAD + 'module load cuda && source env/bin/activate\nsrun python -m package.train --batch_size 3\n', None),
]


@pytest.mark.parametrize('number', range(len(HEALTHY)))
def test_healthy_scripts_cause_no_alarm(tmp_path, number):
    script, python = HEALTHY[number]
    assert check(tmp_path, script, python)['findings'] == []


def test_our_own_script_is_healthy(tmp_path):
    subprocess.run([PLIMSOLL, 'generate', 'free', tmp_path / 'graph', '--nodes', '300', '--edges', '2400', '--features', '8', '--classes', '2'],
                   check=True, capture_output=True)
    done = subprocess.run([PLIMSOLL, 'slurm', '--time', '60', 'train', tmp_path / 'graph'], check=True, capture_output=True, text=True)
    assert check(tmp_path, done.stdout, None)['findings'] == []


@pytest.mark.parametrize('words, sinfo, expected', [
    ('', 'debug*|1:00:00|64000|8\\n', ['exceeds_partition']),
    ('', 'debug*|infinite|16000|8\\n', ['exceeds_partition']),
    ('', 'debug*|infinite|64000+|4\\n', ['exceeds_partition']),
    ('', 'debug*|infinite|64000|8\\nshort|10:00|1000|1\\n', []),
    ('#SBATCH -p short\n', 'debug*|infinite|64000|8\\nshort|10:00|64000|8\\n', ['exceeds_partition']),
    ('#SBATCH --partition=gpu\n', 'debug*|infinite|64000|8\\n', ['no_partition']),
    ('#SBATCH --partition=long\n', 'long|7-00:00:00|1000|8\\nlong|7-00:00:00|64000+|64\\n', []),
])
def test_the_partition_is_asked(tmp_path, words, sinfo, expected):
    assert kinds(check(tmp_path, HEAD + words + RUN, LOADERS, sinfo)) == expected


def test_what_is_not_read_is_named(tmp_path):
    printed = check(tmp_path, HEAD + RUN + 'python other.py\n', LOADERS + 'a = NeighborLoader(data, num_workers=f(x), **more)\n', 'x*|infinite|0|0\\n')
    assert any('**' in text for text in printed['not_read']) and any('f(x)' in text for text in printed['not_read'])
    assert any('1 more command' in text for text in printed['not_read'])
    assert [loader['settings'].get('batch_size') for loader in printed['loaders']] == ['512', '4096', None]  # the command's before the default
    missing = check(tmp_path, HEAD + 'srun python elsewhere.py\n', None)
    assert missing['python'] is None and any('elsewhere.py' in text for text in missing['not_read'])


@pytest.mark.parametrize('content', [b'', b'\0' * 5000, b'#SBATCH --mem=\x1b[31m\xff\n' + b'A' * 100000, b'python train.py --a \x1b]0;x\x07\n', b"'" + b'\n' * 99999,
                                     b'#SBATCH --mem=9999999999999999999G\n#SBATCH --time=99999999999-1\npython train.py\n'])
def test_hostile_files_are_survived(tmp_path, content):
    """No control character reaches the terminal (check() looks), and the answer is JSON."""
    check(tmp_path, content, b'XLoader(num_workers=' + content)
    check(tmp_path, HEAD + RUN, content * 3)


def test_wrong_use():
    for words in (['--check'], ['--check', '/nonexistent/job'], ['--check', '/', 'train']):
        assert subprocess.run([PLIMSOLL, 'slurm', *words], capture_output=True, check=False).returncode == 2
