"""Disk space is reported first and refused first: exit code 3, nothing started, nothing left behind."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / 'support'))
import importing as im  # noqa: E402


@contextlib.contextmanager
def small_disk(path, size):
    if os.geteuid() != 0:
        pytest.skip('a small file system can be mounted by root only')
    path.mkdir()
    mounted = subprocess.run(['mount', '-t', 'tmpfs', '-o', f'size={size}', 'none', path], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f'mounting is not allowed here: {mounted.stderr.strip()}')
    try:
        yield path
    finally:
        subprocess.run(['umount', path], check=True)


def test_said_first(tmp_path):
    source = im.write_ogb(tmp_path / 'ogb', im.Graph(1))
    done = im.run('import', source, tmp_path / 'out')
    assert done.returncode == 0
    printed = done.stderr.splitlines()
    assert any('recognised as OGB' in line for line in printed)
    assert any(line.startswith('disk: ') and str(tmp_path) in line and 'free' in line for line in printed)


@pytest.mark.parametrize('kind', ['directory', 'zip', 'npy'])
def test_target_too_small(tmp_path, kind):
    graph = im.Graph(2, nodes=30_000, edges=1000, features=64)
    if kind == 'npy':
        source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges, x=graph.features)
    else:
        source = im.write_ogb(tmp_path / 'ogb', graph)
    if kind == 'zip':
        source = im.zip_tree(source, tmp_path / 'made.zip')
    with small_disk(tmp_path / 'small', '4m') as disk:
        im.refused(3, source, disk / 'out', says=['of disk', 'free', '--tmp'])
        assert list(disk.iterdir()) == []
    with small_disk(tmp_path / 'large', '64m') as disk:
        done = im.run('import', source, disk / 'out')
        assert done.returncode == 0
        assert 'count as memory' in done.stderr


def test_a_target_in_memory_must_fit_under_the_line(tmp_path):
    graph = im.Graph(2, nodes=100_000, edges=1000, features=128)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges, x=graph.features)
    with small_disk(tmp_path / 'memory', '256m') as disk:
        im.refused(3, source, disk / 'out', '--memory', '64M', says=['tmpfs', 'memory line', '--tmp'])
        assert list(disk.iterdir()) == []
        im.imported(source, disk / 'out', '--memory', '128M')


@pytest.mark.parametrize('kind', ['features', 'categories'])
def test_rows_of_many_graphs_are_counted(tmp_path, kind):
    graphs, rows = im.Graphs(4, count=3000), 400
    source = im.write_ragged(tmp_path / 'ragged', graphs)
    (source / 'node_feat_int.npy').unlink()
    nodes = len(graphs.categories)
    if kind == 'features':
        np.save(source / 'node_feat.npy', np.zeros((nodes, rows), np.float32))
    else:
        np.save(source / 'node_feat_int.npy', np.zeros((nodes, rows // 2), np.int64))
    with small_disk(tmp_path / 'small', '8m') as disk:
        im.refused(3, source, disk / 'out', *(['--features', 'i64'] if kind == 'categories' else []), says=['of disk', 'free', '--tmp'])
        assert list(disk.iterdir()) == []


def test_csv_is_refused_at_its_counts(tmp_path):
    graph = im.Graph(5, nodes=2_000_000, edges=1000, features=1)
    source = tmp_path / 'csv'
    (source / 'raw').mkdir(parents=True)
    (source / 'raw' / 'num-node-list.csv').write_text(f'{graph.num_nodes}\n')
    (source / 'raw' / 'num-edge-list.csv').write_text('1\n')
    (source / 'raw' / 'edge.csv').write_text('0,1\n')
    with small_disk(tmp_path / 'small', '4m') as disk:
        im.refused(3, source, disk / 'out', says=['of disk', 'free', '--tmp'])
        assert list(disk.iterdir()) == []


def test_the_size_of_a_text_refuses_nothing(tmp_path):
    path = tmp_path / 'edges.txt'
    path.write_text('# a comment of some length\n' * 1_000_000 + '0 1\n1 2\n')
    with small_disk(tmp_path / 'small', '4m') as disk:
        done = im.run('import', path, disk / 'out')
        assert done.returncode == 0, done.stderr
        assert 'about' in done.stderr and 'probably' in done.stderr


def test_temporary_directory_too_small(tmp_path):
    graph = im.Graph(3, nodes=20_000, edges=2_000_000)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges)
    options = ['--nodes', graph.num_nodes, '--memory', '84M']
    with small_disk(tmp_path / 'small', '4m') as disk:
        im.refused(3, source, tmp_path / 'out', *options, '--tmp', disk, says=[str(disk), 'free'])
        assert list(disk.iterdir()) == []
    with small_disk(tmp_path / 'large', '64m') as disk:
        graph.check(im.imported(source, tmp_path / 'out', *options, '--tmp', disk))
        assert list(disk.iterdir()) == []


def test_sparse_ids_are_too_large_for_any_disk(tmp_path):
    path = tmp_path / 'edges.txt'
    path.write_text('0 1\n2 1000000000000\n')
    done = im.run('import', path, tmp_path / 'out')
    assert done.returncode == 4 and '--relabel' in done.stderr
    done = im.run('import', path, tmp_path / 'out', '--nodes', 10**12 + 1)
    assert done.returncode == 3, done.stderr
    assert not (tmp_path / 'out').exists()
    assert np.array_equal(im.imported(path, tmp_path / 'out', '--relabel')['ids'], [0, 1, 2, 10**12])


@pytest.mark.parametrize(('nodes', 'options', 'words'), [(2**41, [], 'too many'), (5 * 10**9, ['--edge-ids'], 'columns of edges')])
def test_a_size_that_no_memory_builds_is_no_matter_of_the_disk(tmp_path, nodes, options, words):
    path = tmp_path / 'edges.txt'
    path.write_text('0 1\n1 2\n')
    im.refused(4, path, tmp_path / 'out', '--nodes', nodes, *options, says=[words])


def test_every_line_above_the_minimum_is_enough(tmp_path):
    """A build that spills takes all that is left, to the page: nothing else may need memory after that."""
    graph = im.Graph(7, nodes=50_000, edges=600_000, features=1)
    source = im.write_npy(tmp_path / 'npy', edge_index=graph.edges)

    def fits(kib):
        done = im.run('import', source, tmp_path / f'out{kib}', '--memory', f'{kib}K', '--threads', '2', '--quiet')
        shutil.rmtree(tmp_path / f'out{kib}', ignore_errors=True)
        assert done.returncode in (0, 3), done.stderr
        return done.returncode == 0
    least = next(mib for mib in range(40, 200) if fits(mib << 10)) << 10
    assert all(fits(least + 1024 + 68 * i) for i in range(40))
