"""Every text that a killed or failed job may leave behind gets its cause; the same words without a death get none."""
import json
import os
import pathlib
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
TEXTS = pathlib.Path(__file__).with_name('texts.tsv')
THREADS = pathlib.Path(__file__).with_name('threads.txt')


def rows():
    for line in TEXTS.read_text().splitlines():
        if not line.startswith('#'):
            yield line.split('\t', 2)


def doctor(text, *words):
    data = text if isinstance(text, bytes) else text.encode()
    done = subprocess.run([PLIMSOLL, 'doctor', '-', '--json', *words], input=data, capture_output=True, check=False, timeout=1500)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize('cause, fields, text', list(rows()), ids=lambda value: value[:60])
def test_a_text_has_its_cause(cause, fields, text):
    found = doctor('Epoch 1 loss 0.5\n' + text + '\n')
    assert found['cause'] == cause, found['summary']
    flat = {**found, **found['figures']}
    for field in filter(None, fields.split(';')):
        name, value = field.split('=')
        assert str(flat[name]) == value, name
    if cause != 'none':
        assert [one['line'] for one in found['evidence']][0] == 2
        assert found['advice'] or cause in ('cancelled', 'terminated', 'python_error')
    else:
        assert not found['advice'] and found['outcome'] != 'died'


def threads():
    for log in THREADS.read_text().split('\n== ')[1:]:
        head, text = log.split('\n', 1)
        cause, thread = head.split()
        yield thread.removeprefix('https://'), cause, text


@pytest.mark.parametrize('thread, cause, text', list(threads()), ids=lambda value: value[:60])
def test_a_log_of_a_public_thread_has_its_cause(thread, cause, text):  # pylint: disable=unused-argument
    found, told = doctor(text), cause.split('/')[-1]
    assert (found['cause'], found['outcome']) == (told, 'unknown' if told == 'none' else 'died'), found['summary']
