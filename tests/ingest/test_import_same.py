# labels: nightly
"""The same bytes whatever the memory, the threads and the engine; and refused first where it cannot do."""
import pathlib
import re
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402


def make(kind, path):
    graph = im.Graph(1, nodes=20_000, edges=200_000, features=8)
    if kind == 'ogb zip':
        return im.zip_tree(im.write_ogb(path / 'ogb', graph), path / 'made.zip'), ['--symmetrise', '--features', 'f16']
    if kind == 'npy':
        return im.write_npy(path / 'npy', edge_index=graph.edges, x=np.asfortranarray(graph.features),
                            y=graph.float_labels()), ['--self-loops', 'add']
    if kind == 'graphbolt':
        return im.write_graphbolt(path / 'gb', graph), ['--remove-duplicates']
    if kind == 'ragged':
        return im.write_ragged(path / 'ragged', im.Graphs(2, count=3000)), []
    text = path / 'edges.tsv'
    np.savetxt(text, graph.edges.T * 1001, fmt='%d', delimiter='\t')
    return text, ['--relabel']


@pytest.mark.parametrize('kind', ['ogb zip', 'npy', 'graphbolt', 'ragged', 'text'])
def test_memory_threads_and_engines(tmp_path, kind):
    source, options = make(kind, tmp_path)
    im.imported(source, tmp_path / 'first', *options)
    first = im.digests(tmp_path / 'first')
    least = im.minimum_memory(tmp_path, source, *options)
    several = int(least[:-1]) * 3 // 2
    ways = [('--memory', least), ('--memory', f'{several}M'), ('--memory', '256M'), ('--threads', 1), ('--threads', 2),
            ('--threads', 8), ('--io', 'threads'), ('--io', 'threads', '--memory', least, '--threads', 1), ('--io', 'uring'),
            ('--io', 'uring', '--threads', 1)]
    for number, way in enumerate(ways):
        target = tmp_path / f'way-{number}'
        done = im.run('import', source, target, '--quiet', *options, *way)
        # With little memlock the rings of the run before, which the kernel takes back late, may leave no room for this one's.
        if 'uring' in way and 'io_uring' in done.stderr:
            print('SKIPPED io_uring: ' + done.stderr.strip())
            continue
        assert done.returncode == 0, done.stderr
        assert im.digests(target) == first, way


def test_too_little_memory_says_how_much_would_do(tmp_path):
    source, options = make('ogb zip', tmp_path)
    least = int(im.minimum_memory(tmp_path, source, *options)[:-1])
    for memory in (least - 1, least - 8):
        printed = im.refused(3, source, tmp_path / 'out', *options, '--memory', f'{memory}M', says=['at least', '--memory'])
        enough = re.search(r'--memory to (\d+M)', printed).group(1)
        im.imported(source, tmp_path / 'enough', *options, '--memory', enough)
        for path in (tmp_path / 'enough').iterdir():
            path.unlink()
        (tmp_path / 'enough').rmdir()
