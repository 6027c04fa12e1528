"""examples/step.c, a loop of one's own over the public functions, ends with the weights of `plimsoll train`."""
import os
import pathlib
import re
import struct
import subprocess

PLIMSOLL = os.environ['PLIMSOLL']
PROBES = pathlib.Path(os.environ['PLIMSOLL_PROBES'])
SOURCE = pathlib.Path(os.environ['PLIMSOLL_SOURCE'])


def tensors(path):
    whole = path.read_bytes()
    return whole[8 + struct.unpack('<Q', whole[:8])[0]:]


def test_example_ends_with_the_same_bits(tmp_path):
    data = tmp_path / 'data'
    subprocess.run([PLIMSOLL, 'generate', 'arxiv', data, '--scale', '0.02', '--quiet'], check=True)
    command = re.search(r'plimsoll train DATASET (.*?)\*/', (SOURCE / 'examples' / 'step.c').read_text(), re.DOTALL)
    words = re.sub(r'[\\*]', ' ', command[1]).split()
    subprocess.run([PLIMSOLL, 'train', data, *words, '--run', tmp_path / 'run', '--quiet'], check=True)
    done = subprocess.run([PROBES / 'example_step', data, tmp_path / 'own.safetensors'], check=True, capture_output=True, text=True)
    assert len(done.stdout.splitlines()) == int(words[words.index('--epochs') + 1])
    assert tensors(tmp_path / 'own.safetensors') == tensors(tmp_path / 'run' / 'last.safetensors')
