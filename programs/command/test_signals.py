# labels: plain unprivileged
"""A signal ends the work in order: exit code 75, nothing half-made."""
import json
import os
import signal
import subprocess
import time

import pytest

PLIMSOLL = os.environ['PLIMSOLL']


def start(directory, *options):
    """A generate that would take some seconds, once it is at work."""
    process = subprocess.Popen([PLIMSOLL, 'generate', 'products', directory / 'graph', '--scale', '0.5',
                                '--memory', '256M', '--threads', '1', '--json', *options],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not os.listdir(directory):
        time.sleep(0.005)
    assert process.poll() is None, process.stderr.read()
    return process


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work_in_order(tmp_path, number):
    process = start(tmp_path)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=1500)
    assert process.returncode == 75
    assert json.loads(printed)['status'] == 'stopped'
    assert json.loads(printed)['exit_code'] == 75
    assert os.listdir(tmp_path) == []
