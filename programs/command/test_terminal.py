"""Progress in a real terminal (tmux) of several widths, resized while the command runs, and in a file."""
import json
import os
import re
import shutil
import subprocess
import time

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
PHASES = r'(?:Training|Train eval|Val eval|Test eval)'
BAR = re.compile(PHASES + r': +\d+%')
FULL = re.compile(PHASES + r': +\d+%\|#* *\| \d+/\d+ \[\d\d:\d\d<(\d\d:\d\d|\?), (\d+\.\d\d|\?)it/s(, loss=[\d.e-]+)?\]')
SHORT = re.compile(PHASES + r': +\d+% \d+/\d+ \[(\d\d:\d\d<(\d\d:\d\d|\?), )?(\d+\.\d\d|\?)it/s(, loss=[\d.e-]+)?\]')


@pytest.fixture(scope='module')
def graph(tmp_path_factory):
    path = tmp_path_factory.mktemp('terminal') / 'graph'
    subprocess.run([PLIMSOLL, 'generate', 'free', path, '--nodes', '150000', '--edges', '1200000', '--features', '16', '--classes', '5',
                    '--quiet'], check=True)
    return path


class Terminal:
    """A tmux server of its own, whose window runs one command."""

    def __init__(self, directory, columns, command):
        self.socket = directory / 'socket'
        self.tmux('-f', '/dev/null', 'new-session', '-d', '-x', columns, '-y', 40, 'sleep 600')
        self.tmux('set', '-g', 'remain-on-exit', 'on')
        self.tmux('set', '-g', 'status', 'off')
        self.tmux('resize-window', '-x', columns, '-y', 40)
        self.tmux('respawn-window', '-k', 'exec ' + ' '.join(map(str, command)))

    def tmux(self, *words):
        # The shell of a user like nobody, which tmux would take, is nologin.
        return subprocess.run(['tmux', '-S', self.socket, *map(str, words)], env=os.environ | {'SHELL': '/bin/sh'}, check=True,
                              capture_output=True, text=True, timeout=1500).stdout

    def lines(self, *joined):
        """What the window shows and what has scrolled away; -J joins wrapped lines."""
        return [line.rstrip() for line in self.tmux('capture-pane', '-p', '-S', '-', *joined).splitlines() if line.strip()]

    def resize(self, columns):
        self.tmux('resize-window', '-x', columns)
        time.sleep(0.4)  # a few drawings

    def wait_until(self, holds):
        """Waits for lines of which that is true."""
        for _ in range(3000):
            if holds(self.lines('-J')):
                return
            time.sleep(0.1)
        raise AssertionError('\n'.join(self.lines('-J')))

    def wait_for(self, pattern):
        self.wait_until(lambda lines: any(re.search(pattern, line) for line in lines))

    def end(self):
        self.tmux('kill-server')


@pytest.fixture(name='train')
def training(graph, tmp_path):
    """Trains in a window of so many columns, for long."""
    if shutil.which('tmux') is None:
        pytest.skip('tmux is not installed (tools/bootstrap installs it)')
    terminals = []

    def start(columns):
        terminals.append(Terminal(tmp_path, columns, [PLIMSOLL, 'train', graph, '--hidden', 128, '--fanout', '10,10', '--batch', 16, '--epochs',
                                                      500, '--run', tmp_path / 'run']))
        terminals[0].wait_for(r'^Training: +\d')
        return terminals[0]

    yield start
    for terminal in terminals:
        terminal.end()


def unfinished(lines):
    return [line for line in lines if BAR.match(line) and not re.match(PHASES + ': 100%', line)]


@pytest.mark.parametrize('columns', [60, *(pytest.param(columns, marks=pytest.mark.nightly) for columns in (80, 200))])
def test_a_bar_is_no_wider_than_the_terminal(train, columns):
    terminal = train(columns)
    terminal.wait_for(r'^Epoch 002')
    seen = set()
    for number in range(3000):
        if number >= 10 and len(seen) > 3:  # it moves
            break
        lines = terminal.lines()
        bars = [line for line in lines if BAR.match(line)]
        assert bars and max(map(len, bars)) < columns
        assert all(FULL.fullmatch(line) or (columns == 60 and SHORT.fullmatch(line)) for line in bars), bars
        assert len(unfinished(lines)) <= 1
        seen.update(unfinished(lines))
        time.sleep(0.1)
    assert len(seen) > 3
    finished = [line for line in terminal.lines() if re.match('Training: 100%', line)]
    assert len(finished) >= 2  # of each epoch


def test_nothing_is_left_behind_when_the_terminal_is_resized(train):
    terminal = train(200)
    for columns in (60, 200, 80, 61, 150, 40, 200):
        terminal.resize(columns)
        terminal.wait_until(lambda lines: len(unfinished(lines)) <= 1)
    terminal.resize(200)
    pane = int(terminal.tmux('list-panes', '-F', '#{pane_pid}'))
    os.kill(pane, 15)
    terminal.wait_for('Continue with')
    lines = terminal.lines('-J')
    begun = next(i for i, line in enumerate(lines) if BAR.match(line))
    for line in lines[begun:]:
        assert re.match(PHASES + r': |Epoch \d|plimsoll train: |Pane is dead', line), '\n'.join(lines)
    assert len(unfinished(lines)) <= 1  # the one that was stopped


def test_a_file_has_a_line_a_phase(graph, tmp_path):
    done = subprocess.run([PLIMSOLL, 'train', graph, '--hidden', '8', '--batch', '500', '--epochs', '4', '--run', tmp_path / 'run'],
                          check=True, capture_output=True, text=True)
    bars = [line for line in done.stderr.splitlines() if BAR.match(line)]
    assert all(FULL.fullmatch(line) for line in bars), bars
    names = [line.split(':')[0] for line in bars]
    assert len(set(names)) == len(names) and {'Training', 'Val eval'} <= set(names)
    assert '\r' not in done.stderr and '\033' not in done.stderr


def test_bars_of_finished_phases_are_whole(graph, tmp_path):
    """Of all verbs, in a file: the last line of a phase says that it is done."""
    def printed(*words):
        return subprocess.run([PLIMSOLL, *map(str, words)], check=True, capture_output=True, text=True, timeout=1500).stderr

    other = tmp_path / 'other'  # whose edges are no multiple of anything that is reported
    texts = [printed('generate', 'free', other, '--nodes', 90000, '--edges', 900007, '--features', 16, '--classes', 5),
             printed('bench', 'load', other, '--features', 'disk', '--topology', 'disk', '--batch', 500, '--batches', 5, '--threads', 2),
             printed('train', graph, '--hidden', 8, '--batch', 500, '--epochs', 1, '--run', tmp_path / 'run'),
             printed('evaluate', tmp_path / 'run', '--exact', '--split', 'test'),
             printed('inspect', graph, '--verify')]
    bars = [re.match(r'(.+): +(\d+)%', line) for text in texts for line in text.splitlines()]
    bars = {bar.group(1): bar.group(2) for bar in bars if bar}
    assert {'drawing edges', 'weighing lists and rows', 'filling the row cache', 'Training', 'Test eval'} <= set(bars)
    assert set(bars.values()) == {'100'}, bars


def test_training_says_first_what_it_trains_and_last_where_time_went(graph, tmp_path):
    done = subprocess.run([PLIMSOLL, 'train', graph, '--model', 'sage', '--hidden', '8', '--fanout', '5,4', '--batch', '500', '--epochs', '2',
                           '--run', tmp_path / 'run'], check=True, capture_output=True, text=True)
    lines = done.stderr.splitlines()
    first = next(line for line in lines if not line.startswith(('memory line', 'warning')))
    assert all(word in first for word in ('sage', '2 layers', 'hidden 8', 'fan-out 5,4', 'batch 500', str(graph)))
    head = next(i for i, line in enumerate(lines) if line.startswith('where time went'))
    table = lines[head + 1:]
    assert max(map(len, lines[head:])) <= 80
    shares = [int(re.search(r'(\d+) %', line).group(1)) for line in table if '%' in line[:40]]
    assert any(line.startswith('Training') for line in table)
    assert 95 <= sum(shares) <= 105
    assert any(re.search(r'process +[\d.]+ MiB', line) for line in table)
    # Accounts have their peaks at different times: what they held together stands below them. The reserve, which nothing uses, is no part of it.
    end = [json.loads(line) for line in subprocess.run(
        [PLIMSOLL, 'train', graph, '--model', 'sage', '--hidden', '8', '--fanout', '5,4', '--batch', '500', '--epochs', '2', '--json', '--run',
         tmp_path / 'json'], check=True, capture_output=True, text=True).stdout.splitlines()][-1]
    reserve = next(account['reserved_bytes'] for account in end['accounts'] if account['name'] == 'reserve')
    together = re.fullmatch(r' +together, at most +([\d.]+) MiB', table[-2])
    assert together and abs(float(together.group(1)) - (end['reserved_peak_bytes'] - reserve) / (1 << 20)) < 0.2 * float(together.group(1))
    kept = re.fullmatch(r' +reserve, kept free(?: \((\d+) % of the line\))? +([\d.]+ [MG]iB)', table[-1])
    assert kept and [line for line in table if 'reserve' in line] == table[-1:]
    number, unit = kept.group(2).split()
    assert float(number) * {'MiB': 1 << 20, 'GiB': 1 << 30}[unit] == pytest.approx(reserve, rel=0.01)
    if 'line_bytes' in end:
        assert int(kept.group(1)) == pytest.approx(100 * reserve / end['line_bytes'], abs=0.51)
    assert end['reserved_peak_bytes'] <= sum(account['reserved_bytes'] for account in end['accounts'])
