"""The figures of docs/what-fits.md, in both languages, are those of `plimsoll plan`."""
import json
import os
import pathlib
import re
import subprocess

import pytest

PLIMSOLL, SOURCE = os.environ['PLIMSOLL'], pathlib.Path(os.environ['PLIMSOLL_SOURCE'])
GIB = 1 << 30
MODELS = {'A': ['--model', 'gcn', '--hidden', '16', '--fanout', '3,2', '--batch', '128'],
          'B': ['--model', 'sage', '--hidden', '256', '--fanout', '15,10,5', '--batch', '1024']}
GAT = ['--model', 'gat', '--heads', '4', '--hidden', '256', '--fanout', '15,10,5', '--batch', '1024']
FOR_PYG = ['--for', 'pyg', '--memory', '1T']
SORTED, MAPPED = ['--graph', 'csc'], ['--graph', 'csc', '--mapped-features']


def plan(shape, *words):
    done = subprocess.run([PLIMSOLL, 'plan', shape, *words, '--json'], capture_output=True, text=True, check=True, timeout=1500)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope='module', params=['what-fits.md', 'what-fits.zh-CN.md'])
def tables(request):
    """The cells of each table's rows, by their first cell."""
    rows = re.findall(r'^\| (.*) \|$', (SOURCE / 'docs' / request.param).read_text(), re.M)
    return {cells[0]: cells[1:] for cells in (row.split(' | ') for row in rows)}


def test_main_memory(tables):
    for graph, shape in ('ogbn-arxiv', 'arxiv'), ('ogbn-products', 'products'), ('papers100M', 'papers100M'):
        for name, words in MODELS.items():
            if f'{graph}, {name}' not in tables:
                continue
            answers = [plan(shape, *words, *FOR_PYG, *ways) for ways in ([], SORTED, MAPPED)]
            sizes = [one['total_bytes'] for one in answers] + [answers[0]['plimsoll_minimum_bytes']]
            for cell, size in zip(tables[f'{graph}, {name}'], sizes, strict=True):
                assert float(cell) == pytest.approx(size / GIB, rel=0.02, abs=0.006), (graph, name, cell)


def test_what_a_node_holds(tables):
    """The ways that the second table names fit the memory in its row."""
    needs = {name: [float(cell) * 1.1 for cell in tables[f'papers100M, {name}']] for name in MODELS}
    assert needs['A'][2] < 16 < needs['B'][2] < 64 and needs['A'][1] > 64 and needs['B'][1] < 128 and 128 < needs['A'][0] < 256


def test_the_gpus_memory(tables):
    for size in 8, 12, 16, 24, 44, 80:
        found = [plan('papers100M', *words, *FOR_PYG, '--gpu-memory', f'{size}G')['gpu']['largest_batch'] for words in (MODELS['B'], GAT)]
        cells = [int(cell.replace(',', '')) for cell in tables[f'{size} GB'][-4:]]
        assert cells == [batch for one in found for batch in (one['f32'], one['bf16'])]
