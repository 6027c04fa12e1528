"""Runs the command under test."""
import json
import os
import subprocess

PLIMSOLL = os.environ['PLIMSOLL']


def call(*words, code=0):
    done = subprocess.run([PLIMSOLL, *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def last(*words):
    return json.loads(call(*words, '--json', '--quiet').stdout.splitlines()[-1])
