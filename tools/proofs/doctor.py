"""Proves that the doctor's first suggestion helps: a script of PyTorch Geometric is killed, told what to change, and runs.

    tools/prove doctor [--peers DIR] [--python PYTHON] [--json FILE]
    tools/prove doctor --lines [--json FILE]

Trains with pyg_train.py of DIR (../shared/peers without it) on a hundredth of papers100M's shape: with all features in memory, and with the features left on disk, to
learn what either takes. Then once more with all in memory, under `plimsoll watch` in a real control group whose limit is half-way between, where the kernel kills it. `plimsoll doctor` must
name that as the cause and features on disk as the first change; with that change alone the script must run to its end under the same limit.
PYTHON needs torch, torch_geometric and one of its samplers. Needs root; exits 77 where something is missing. Three minutes; result: bench/results/doctor.json.
--lines: streams logs of 1 GB to the doctor instead: one line, one line of hostile bytes, and ordinary lines, each with one message in the middle. It must find that, in less than
32 MiB and two minutes of a processor. Result: bench/results/doctor-lines.json.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import prooflib

RECIPE = ['--batch', 128, '--fanout', '3,2', '--model', 'gcn', '--hidden', 16, '--classes', 172, '--batches', 40, '--warmup', 4, '--repeats', 1]


GB = 10 ** 9
MESSAGE = b' torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 138.00 MiB '


def lines():
    """Seconds and memory of the doctor for 1 GB of each kind of text."""
    texts = {'one_line': b'loss 0.1234 ' * 4096, 'hostile_line': (b'\x1b[31m\xff\xfe<b>{"kind":"tick",\0%s%n|' * 1024).replace(b'\n', b' '),
             'many_lines': b'Epoch 001 | Loss: 2.0484 | Val: 0.6818 | 28.1 it/s\n' * 1024}
    facts = {}
    for name, text in texts.items():
        pieces = GB // len(text) + 1
        began = time.monotonic()
        doctor = subprocess.Popen([prooflib.plimsoll(), 'doctor', '--json'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for i in range(pieces):
            doctor.stdin.write(text + (MESSAGE if i == pieces // 2 and name != 'many_lines' else b''))
        if name == 'many_lines':
            doctor.stdin.write(MESSAGE.strip() + b'\n')  # a message with epochs behind it was survived
        doctor.stdin.close()
        found = json.load(doctor.stdout)
        _, status, usage = os.wait4(doctor.pid, 0)
        facts[name] = {'bytes': pieces * len(text), 'exit': status, 'seconds': round(time.monotonic() - began, 1),
                       'processor_seconds': round(usage.ru_utime + usage.ru_stime, 1), 'peak': usage.ru_maxrss << 10,
                       'cause': found['cause'], 'line': found['evidence'][0]['line'] if found['evidence'] else 0}
        print(name, json.dumps(facts[name]), flush=True)
    return facts


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('--peers', type=pathlib.Path, default=prooflib.SOURCE.parent / 'shared' / 'peers')
    parser.add_argument('--python', default=sys.executable)
    parser.add_argument('--lines', action='store_true', help='stream logs of 1 GB instead')
    options = parser.parse_args()
    if options.lines:
        facts = lines()
        claims = {'the message in 1 GB is found': all(fact['exit'] == 0 and fact['cause'] == 'cuda_oom' for fact in facts.values()),
                  'in less than 32 MiB': all(fact['peak'] < 32 * prooflib.MIB for fact in facts.values()),
                  'and two minutes of a processor': all(fact['processor_seconds'] < 120 for fact in facts.values())}
        return 0 if prooflib.record(prooflib.result_path(options, 'doctor-lines', True), claims, **facts) else 1
    script = options.peers / 'pyg_train.py'
    found = subprocess.run([options.python, '-c', 'import torch_geometric.typing as t; assert t.WITH_PYG_LIB or t.WITH_TORCH_SPARSE'], capture_output=True, check=False)
    if os.geteuid() != 0 or found.returncode != 0 or not script.exists():
        prooflib.skip('needs root, the peers\' scripts, and a Python with torch_geometric and a sampler of it')
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        prooflib.must('generate', 'papers100M', work / 'papers', '--scale', 0.01, '--quiet')

        def run(limit, name, *more):
            words = [options.python, script, '--data', work / 'papers', *RECIPE, *more]
            return prooflib.limited(limit, prooflib.plimsoll(), 'watch', '--out', work / name, '--', *words, warm=True)

        peaks = {kind: run('max', kind, '--features', kind)['max_anon'] for kind in ('memory', 'mmap')}
        limit = sum(peaks.values()) // 2 + 64 * prooflib.MIB  # beside anonymous memory: mapped code, the watcher, page tables
        killed = run(limit, 'killed', '--features', 'memory')
        verdict = json.loads(prooflib.call('doctor', work / 'killed', '--json').stdout)
        changed = run(limit, 'changed', '--features', 'mmap')
    claims = {
        f'under {limit >> 20} MiB the kernel kills the script': killed['exit'] == 137 and killed['oom_kill'] > 0,
        'the doctor names the control group\'s limit as the cause': (verdict['cause'], verdict['confidence']) == ('oom_cgroup', 'proven'),
        'its first suggestion is to keep features on disk': 'features on disk' in verdict['advice'][0]['change'],
        'with that the script runs to its end under the same limit': changed['exit'] == 0 and changed['oom_kill'] == 0,
    }
    figures = {name: {key: report[key] for key in ('exit', 'seconds', 'peak', 'max_anon', 'oom_kill')} for name, report in (('killed', killed), ('changed', changed))}
    path = prooflib.result_path(options, 'doctor', True)
    return 0 if prooflib.record(path, claims, anonymous=peaks, limit=limit, **figures, advice=[one['change'] for one in verdict['advice']]) else 1
