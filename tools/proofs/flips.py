"""Proves that `inspect --verify` finds every flipped bit, anywhere in a dataset.

    tools/prove flips [N] [--seed S] [--source SOURCE]

Imports SOURCE (Cora of the test data without it) and N times (1,000) flips one bit of one file: half of the flips anywhere in all
bytes, half in a file drawn first, so that headers and small files get their share. Each must end `inspect --verify` with
exit code 4 and a message that names the file; the bit is then flipped back, and at the end the dataset verifies again. About
half a minute; the result of 1,000 goes to bench/results/flips.json. The seed is printed.
"""
import pathlib
import random
import tempfile

import prooflib


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('flips', type=int, nargs='?', default=1000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--source', type=pathlib.Path)
    options = parser.parse_args()
    source = options.source or prooflib.test_data() / 'cora'
    if not source.exists():
        prooflib.skip(f'{source} is not here: set PLIMSOLL_TEST_DATA, or give --source')
    draw = random.Random(options.seed)
    print(f'seed {options.seed}')
    with tempfile.TemporaryDirectory(prefix='prove-flips-') as folder:
        target = pathlib.Path(folder) / 'dataset'
        prooflib.must('import', source, target, '--features', 'f16')
        files = sorted(path for path in target.rglob('*') if path.is_file())
        for path in files:
            path.chmod(0o644)
        missed = 0
        for number in range(options.flips):
            path, bit = prooflib.draw_place(draw, files, number % 2 == 0)
            prooflib.flip(path, bit)
            verify = prooflib.call('inspect', target, '--verify')
            prooflib.flip(path, bit)
            if verify.returncode != 4 or path.name not in verify.stderr:
                missed += 1
                print(f'BROKEN: bit {bit} of {path.name}: exit {verify.returncode}: {verify.stderr.strip()}')
        clean = prooflib.call('inspect', target, '--verify').returncode == 0
    claim = (f'{options.flips - missed} of {options.flips} flips found in {len(files)} files; '
             f'restored, the dataset is {"clean" if clean else "NOT clean"}')
    path = prooflib.result_path(options, 'flips', options.flips == 1000)
    return 0 if prooflib.record(path, {claim: clean and missed == 0}, seed=options.seed) else 1
