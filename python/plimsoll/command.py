"""Runs the `plimsoll` command as a child process and reads the JSON that it prints.

Planning, training, importing and generating are the command's work: in a process of its own it neither waits for Python's interpreter
lock nor shares its memory, and the files are those that the command line makes, bit for bit.
"""
from __future__ import annotations

import contextlib
import errno
import json
import os
import pathlib
import pty
import re
import selectors
import signal
import struct
import subprocess
import sys
import termios
import tty
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from fcntl import ioctl
from typing import Any

from . import errors

Answer = dict[str, Any]

_COLUMNS = 100  # of the bar in a notebook
_KEPT_LINES = 20  # of standard error, for a child that dies without a message


def find() -> str:
    """The path of the command: `$PLIMSOLL`, the package's own, or that of the build tree which the package is in."""
    package = pathlib.Path(__file__).parent
    named = os.environ.get('PLIMSOLL')
    candidates = [pathlib.Path(named)] if named else [package / 'bin' / 'plimsoll', package.parent.parent / 'plimsoll']
    for path in candidates:
        if path.is_file() and os.access(path, os.X_OK):
            return os.path.abspath(path)
    where = ' or '.join(str(path) for path in candidates)
    raise errors.Error(f'there is no plimsoll command at {where}; install the package again: pip install --force-reinstall plimsoll-gnn')


def main() -> None:
    """The console script: becomes the command."""
    os.environ.pop('PLIMSOLL', None)  # it may name this script
    path = find()
    os.execv(path, [path, *sys.argv[1:]])


def _text(value: object) -> str:
    if hasattr(value, 'tolist'):  # of NumPy or torch
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return ','.join(_text(part) for part in value)
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _sweep(keys: object) -> list[str]:
    """`{'batch': [512, 1024], 'fanout': [[3, 2], [10, 5]]}` as the words of `--sweep`."""
    if not isinstance(keys, Mapping) or not keys:
        raise errors.UsageError("sweep is a dict of lists, such as {'batch': [512, 1024], 'fanout': [[3, 2], [10, 5]]}")
    values = {name: list(value) if isinstance(value, (list, tuple, range)) else [value] for name, value in keys.items()}
    return [f'{name.replace("_", "-")}=' + ':'.join(_text(part) for part in parts) for name, parts in values.items()]


def words(options: Mapping[str, object]) -> list[str]:
    """Options as words of the command line. `None` and `False` are left out.

    >>> words({'batch_size': 128, 'fanout': [3, 2], 'recompute': True, 'for_': 'pyg', 'run': None})
    ['--batch-size=128', '--fanout=3,2', '--for=pyg', '--recompute']
    """
    valued, flags = [], []
    for name, value in options.items():
        option = '--' + name.strip('_').replace('_', '-')
        if value is None or value is False:
            continue
        if option == '--sweep':
            flags += [option, *_sweep(value)]
        elif value is True:
            flags.append(option)
        else:
            valued.append(f'{option}={_text(value)}')
    return valued + flags


def path_of(dataset: object) -> str:
    """The path of a `plimsoll.Dataset`, or a path as it is."""
    path = getattr(dataset, 'path', dataset)
    if not isinstance(path, (str, os.PathLike)):
        raise errors.UsageError(f'a dataset is a path or a plimsoll.Dataset, not {type(dataset).__name__}')
    return os.fspath(path)


def notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    module = sys.modules.get('IPython')
    return module is not None and hasattr(module.get_ipython(), 'kernel')


def _own_stderr() -> bool:
    """Whether Python's standard error is the process's, so that a child may write there itself."""
    try:
        return sys.stderr.fileno() == 2
    except (AttributeError, OSError, ValueError):
        return False


def warn(text: str) -> None:
    """Warns at the line of the user's code that called the package."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and str(frame.f_globals.get('__name__')).startswith('plimsoll.'):
        frame, level = frame.f_back, level + 1
    warnings.warn(text, stacklevel=level)


class _Reader:
    """Cuts what arrives at a file descriptor into lines, and into bars, which end with a carriage return."""

    def __init__(self, fd: int, on_line: Callable[[str], None], on_bar: Callable[[str], None] | None = None):
        self.fd = fd
        self.on_line = on_line
        self.on_bar = on_bar
        self._rest = b''

    def read(self) -> bool:
        """Reads what is there. False at the end."""
        try:
            piece = os.read(self.fd, 1 << 16)
        except OSError as error:
            if error.errno != errno.EIO:  # the end of a pseudo-terminal
                raise
            piece = b''
        *whole, self._rest = re.split(rb'(?<=[\r\n])', self._rest + piece)
        if not piece and self._rest:
            whole.append(self._rest + b'\n')
            self._rest = b''
        for part in whole:
            text = part[:-1].decode(errors='replace').replace('\x1b[J', '')
            if part.endswith(b'\n'):
                self.on_line(text)
            elif self.on_bar is not None and text:
                self.on_bar(text)
        return bool(piece)


def _parse(line: str) -> Answer:
    """A JSON object of the command; an error in it is put in the package's words."""
    answer: Answer = json.loads(line)
    if 'error' in answer:
        answer['error'] = errors.of_command(str(answer['error']))
    return answer


def _error(verb: str, code: int, answer: Answer | None, lines: list[str]) -> errors.Error:
    hints = [line[len('plimsoll: '):] for line in lines if line.startswith('plimsoll: ')]
    if answer is not None:
        error = errors.of_status(str(answer.get('status')))('; '.join([str(answer['error']), *hints]))
    elif code < 0:
        remedy = '; the kernel does that when the job has no memory left' if code == -signal.SIGKILL else ''
        error = errors.Error(f'plimsoll {verb} was ended by {signal.Signals(-code).name}{remedy}')
    else:
        error = errors.Error('\n'.join([f'plimsoll {verb} ended with exit code {code}', *lines]))
    vars(error).update(exit_code=code, answer=answer or {})
    return error


class _Child:
    """A running command: its answers so far and the last lines of its standard error."""

    def __init__(self, verb: str, arguments: Iterable[str], options: Mapping[str, object], on_event: Callable[[Answer], None] | None,
                 on_bar: Callable[[str], None] | None, show: bool, cwd: str | None, rename: Callable[[str], str]):
        self.verb = verb
        self.answers: list[Answer] = []
        self.lines: list[str] = []
        self._on_event = on_event
        self._show = show
        self._rename = rename
        self._stopping = False
        command = [find(), verb, '--json', *([] if show else ['--quiet']), *words(options), '--', *arguments]
        environment = dict(os.environ)
        master = slave = None
        if show and on_bar is not None:  # on a terminal the command draws bars
            master, slave = pty.openpty()
            tty.setraw(slave)
            ioctl(slave, termios.TIOCSWINSZ, struct.pack('HHHH', 24, _COLUMNS, 0, 0))
            environment['TERM'] = 'xterm'
        inherits = show and slave is None and _own_stderr()
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, env=environment, cwd=cwd,
                                            stderr=None if inherits else slave if slave is not None else subprocess.PIPE)
        except BaseException:
            if master is not None:
                os.close(master)
            raise
        finally:
            if slave is not None:
                os.close(slave)
        assert self.process.stdout is not None
        self._master = master
        self._readers = [_Reader(self.process.stdout.fileno(), self._take_answer)]
        if master is not None:
            self._readers.append(_Reader(master, self._take_line, on_bar))
        elif self.process.stderr is not None:
            self._readers.append(_Reader(self.process.stderr.fileno(), self._take_line))

    def _take_answer(self, line: str) -> None:
        try:
            answer = _parse(self._rename(line))
        except ValueError:
            if self._stopping:
                return
            raise errors.Error(f'plimsoll {self.verb} printed this instead of JSON: {line[:200]}') from None
        self.answers.append(answer)
        if self._on_event is not None and not self._stopping and 'error' not in answer:
            self._on_event(answer)

    def _take_line(self, line: str) -> None:
        if line.startswith((f'plimsoll {self.verb}: ', "Try 'plimsoll ")):
            return  # the error is raised
        line = self._rename(line)
        self.lines = [*self.lines[1 - _KEPT_LINES:], line]
        if self._stopping:
            return
        if line.startswith('warning: '):
            warn(errors.of_command(line[len('warning: '):]))
        elif self._show and self._master is None:
            print(line, file=sys.stderr, flush=True)

    def read_all(self) -> None:
        """Reads until the command has closed its output."""
        with selectors.DefaultSelector() as selector:
            for reader in self._readers:
                selector.register(reader.fd, selectors.EVENT_READ, reader)
            while selector.get_map():
                for key, _ in selector.select():
                    if not key.data.read():
                        selector.unregister(key.fd)
                        self._readers.remove(key.data)
        self.process.wait()

    def stop(self) -> None:
        """Asks the command to stop, as Ctrl-C does, and waits until it has saved its work. Ctrl-C a second time ends it at once."""
        self._stopping = True
        while True:
            self.process.send_signal(signal.SIGINT)
            try:
                self.read_all()
                return
            except KeyboardInterrupt:
                continue

    def close(self) -> None:
        if self._master is not None:
            os.close(self._master)
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@contextlib.contextmanager
def _running(child: _Child) -> Iterator[None]:
    try:
        yield
    except BaseException:
        child.stop()
        raise
    finally:
        child.close()


def run(verb: str, *arguments: str | os.PathLike[str], options: Mapping[str, object] | None = None,
        on_event: Callable[[Answer], None] | None = None, on_bar: Callable[[str], None] | None = None, show: bool = False,
        may_fail: Iterable[int] = (), cwd: str | None = None, rename: Callable[[str], str] = str) -> list[Answer]:
    """Runs `plimsoll VERB` and returns the JSON objects that it printed.

    `on_event` is called with each of them as it comes. With `show`, the command's remarks and its progress go to standard error, or its
    bars to `on_bar`; without, only its warnings are shown, as Python's. A failure raises the `plimsoll.Error` of its status, with the
    command's message, `exit_code` and `answer` (the JSON object); an exit code in `may_fail` is an answer instead. Paths are relative to
    `cwd`, the working directory if it is None. `rename` puts the names of files in messages into the caller's terms.

    >>> run('limit')[-1]['line_bytes'] > 0
    True
    """
    child = _Child(verb, [os.fspath(argument) for argument in arguments], options or {}, on_event, on_bar, show, cwd, rename)
    with _running(child):
        child.read_all()
    code = child.process.returncode
    answer = child.answers[-1] if child.answers and 'error' in child.answers[-1] else None
    if code != 0 and not (answer is not None and code in may_fail):
        raise _error(verb, code, answer, child.lines)
    return child.answers


def check(verb: str, options: Mapping[str, object]) -> None:
    """Refuses the options that the command would refuse, before any work is done for it."""
    done = subprocess.run([find(), verb, '--json', *words(options), '--help'], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = done.stdout.splitlines()
        answer = _parse(lines[-1]) if lines and lines[-1].startswith('{') else None
        raise _error(verb, done.returncode, answer, done.stderr.splitlines())


def size_text(size: int) -> str:
    """A number of bytes as the command writes it, such as `1.50 GiB`."""
    from . import _core

    return _core.size_text(size)
