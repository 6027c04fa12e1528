"""Proves that ranks exchange as fast as bare MPI: the sum of gradients in its fixed order, and large all-to-alls.

    tools/prove exchange [--ranks 2,4] [--times 3] [--json FILE]

Runs bench/exchange.c of the release build (cmake --build --preset release --target exchange_openmpi exchange_mpich) for each MPI that is installed: in one run
and in turn, the sum of 20 KB and 1.14 MB beside MPI_Allreduce, and the interface's all-to-all of 1 to 256 MB a rank beside MPI_Alltoallv. The median ratio of several
runs counts. MPICH is measured where each rank has a processor: its own waits spin, so that ranks which share one take turns of milliseconds. The machine must be
idle; some minutes.
"""
import json
import os
import shutil
import statistics

import prooflib

LAUNCHERS = {'openmpi': ['mpirun.openmpi', '--oversubscribe'], 'mpich': ['mpirun.mpich']}
SUM_MOST = 1.3
ALL_TO_ALL_MOST = 1 / 0.9


def measure(mpi, ranks):
    build = prooflib.SOURCE / 'build' / 'release'
    environment = {**os.environ, 'OMPI_ALLOW_RUN_AS_ROOT': '1', 'OMPI_ALLOW_RUN_AS_ROOT_CONFIRM': '1'}
    return prooflib.events(prooflib.run(*LAUNCHERS[mpi], '-n', ranks, build / f'exchange_{mpi}', build / f'plimsoll-{mpi}.so', env=environment))


def main():
    parser = prooflib.parser(__doc__, 'exchange.json')
    parser.add_argument('--ranks', default='2,4')
    parser.add_argument('--times', type=int, default=3)
    options = parser.parse_args()
    claims, results = {}, []
    for ranks in map(int, options.ranks.split(',')):
        for mpi in LAUNCHERS:
            if shutil.which(LAUNCHERS[mpi][0]) is None or (mpi == 'mpich' and ranks > os.cpu_count()):
                continue
            for turns in zip(*(measure(mpi, ranks) for _ in range(options.times))):
                result = {'mpi': mpi, **turns[0], **{key: round(statistics.median(turn[key] for turn in turns), 3)
                                                     for key in ('bare_us', 'ours_us', 'ratio')}}
                results.append(result)
                print(json.dumps(result), flush=True)
                most = SUM_MOST if result['what'] == 'sum' else ALL_TO_ALL_MOST
                claims[f'{mpi}, {ranks} ranks, {result["what"]} of {result["bytes"]} bytes: {result["ratio"]:.2f} of bare MPI\'s time, at most {most:.2f}'] = \
                    result['ratio'] <= most
    return 0 if prooflib.record(options.json, claims, results=results) else 1
