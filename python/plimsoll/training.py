"""Plans, trains, imports and generates by the `plimsoll` command.

The options are the command's own, with underscores for dashes: `plimsoll train DIR --weight-decay 5e-4 --fanout 10,5` is
`plimsoll.train(DIR, weight_decay=5e-4, fanout=[10, 5])`. The man pages plimsoll-plan(1), plimsoll-train(1), plimsoll-import(1) and
plimsoll-generate(1) list them; a name that the command does not have is refused with the nearest one.
"""
from __future__ import annotations

import html
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

from . import command, errors
from .command import Answer, path_of, size_text

if TYPE_CHECKING:
    from .dataset import Dataset

_EXIT_DOES_NOT_FIT = 3
_SPLITS = ('train', 'valid', 'test')
_TYPES = {'F32': '<f4', 'F16': '<f2', 'I64': '<i8'}
_SHOWN_LINES = 12  # epochs in a notebook


def _table(head: Iterable[object], rows: Iterable[Iterable[object]], caption: str) -> str:
    def cells(row: Iterable[object], tag: str) -> str:
        return ''.join(f'<{tag}>{html.escape(str(cell))}</{tag}>' for cell in row)

    body = ''.join(f'<tr>{cells(row, "td")}</tr>' for row in rows)
    return f'<table><caption>{html.escape(caption)}</caption><thead><tr>{cells(head, "th")}</tr></thead><tbody>{body}</tbody></table>'


def _columns(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    return '\n'.join('  '.join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows)


@dataclass(frozen=True, repr=False)
class Plan:
    """The memory and the time of a training that has not begun. Sizes are in bytes; `json` is the command's whole answer."""

    dataset: str
    fits: bool | None  #: under the line; None without a line
    total_bytes: int  #: the peak; of the minimum plan if the training does not fit
    line_bytes: int | None
    minimum_bytes: int  #: the lowest line that Plimsoll needs for this training
    peak_phase: str
    phases: dict[str, int]
    accounts: list[Answer]
    expect: Answer  #: sizes of batches, steps, reads and seconds of an epoch and of the run
    ask_bytes: int  #: what to ask the scheduler for
    advice: list[Answer]  #: changes of the settings that make it fit, or keep batches whole
    choice: dict[str, str]  #: the values of a sweep that this plan is for
    error: str | None  #: why it does not fit
    json: Answer

    @classmethod
    def from_json(cls, answer: Answer, dataset: str = '') -> Plan:
        return cls(dataset=answer.get('dataset', dataset), fits=answer.get('fits'), total_bytes=answer['total_bytes'],
                   line_bytes=answer.get('line_bytes'), minimum_bytes=int(answer.get('minimum_bytes') or answer['plimsoll_minimum_bytes']),
                   peak_phase=answer['peak_phase'], phases=answer['phases'], accounts=answer['accounts'], expect=answer.get('expect', {}),
                   ask_bytes=answer.get('ask_bytes', answer.get('ask', {}).get('memory_bytes', answer['total_bytes'])),
                   advice=answer.get('advice', []), choice=answer.get('choice', {}), error=answer.get('error'), json=answer)

    @property
    def _summary(self) -> str:
        of = '' if self.line_bytes is None else f' of {size_text(self.line_bytes)}'
        fits = {True: 'fits', False: 'does not fit', None: 'no line'}[self.fits]
        where = ' in PyTorch Geometric' if self.json.get('for') == 'pyg' else ''
        least = ' for Plimsoll' if where else ''
        return f'{self.dataset}{where}: {fits}; peak {size_text(self.total_bytes)}{of} ({self.peak_phase}); ' \
               f'minimum {_minimum(self.minimum_bytes)}{least}'

    def _rows(self) -> list[list[str]]:
        rows = [[str(account['name']), *(_mib(account['phases'].get(phase, 0)) for phase in self.phases)] for account in self.accounts]
        return [*rows, ['total', *(_mib(size) for size in self.phases.values())]]

    def __repr__(self) -> str:
        return f'Plan({self._summary})'

    def __str__(self) -> str:
        lines = [self._summary, *([self.error] if self.error else []), *(f'  {advice["change"]}: {size_text(advice["total_bytes"])}'
                                                                         for advice in self.advice)]
        if 'epoch_steps' in self.expect:
            lines.append(f'epoch: {self.expect["epoch_steps"]} steps')
        return '\n'.join([*lines, _columns([['MiB', *self.phases], *self._rows()])])

    def _repr_html_(self) -> str:
        return _table(['MiB', *self.phases], self._rows(), self._summary)


def _minimum(size: int) -> str:
    """A minimum as the command names it: in whole MiB, rounded up."""
    return f'{-(-size // (1 << 20))} MiB'


def _mib(size: int) -> str:
    return '-' if size == 0 else f'{size / (1 << 20):.1f}'


@dataclass(frozen=True, repr=False)
class Sweep:
    """A plan for each combination of values; iterates over them."""

    plans: list[Plan]
    json: Answer

    def __iter__(self) -> Iterator[Plan]:
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __getitem__(self, index: int) -> Plan:
        return self.plans[index]

    def _rows(self) -> list[list[str]]:
        fits = {True: 'yes', False: 'no', None: ''}
        return [[*plan.choice.values(), size_text(plan.total_bytes), _minimum(plan.minimum_bytes), fits[plan.fits]] for plan in self.plans]

    def _head(self) -> list[str]:
        return [*(self.plans[0].choice if self.plans else []), 'peak', 'minimum', 'fits']

    def __repr__(self) -> str:
        return f'Sweep(of {len(self)} plans; {sum(plan.fits is True for plan in self)} fit)'

    def __str__(self) -> str:
        return _columns([self._head(), *self._rows()])

    def _repr_html_(self) -> str:
        return _table(self._head(), self._rows(), str(self.json.get('dataset', '')))

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each plan."""
        return _pandas().DataFrame([{**plan.choice, 'total_bytes': plan.total_bytes, 'minimum_bytes': plan.minimum_bytes, 'fits': plan.fits}
                                    for plan in self.plans])


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ImportError('to_pandas() needs pandas: pip install pandas') from None
    return pandas


class Metrics(list[dict[str, Any]]):
    """A dict for each epoch: epoch, loss, labelled, rate, best, and the scores that were evaluated."""

    def to_pandas(self) -> Any:
        """A pandas DataFrame with a row for each epoch."""
        frame = _pandas().DataFrame(list(self))
        return frame.set_index('epoch') if len(self) else frame


def _read_weights(path: str) -> dict[str, Any]:
    """The parameters in a safetensors file of a run; the optimiser's moments are left out."""
    import numpy

    with open(path, 'rb') as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        data = file.read()
    found = {}
    for name, tensor in header.items():
        if name == '__metadata__' or name.startswith('optimizer.'):
            continue
        begin, end = tensor['data_offsets']
        found[name] = numpy.frombuffer(data[begin:end], _TYPES[tensor['dtype']]).reshape(tensor['shape']).copy()
    try:
        import torch
    except ImportError:
        return found
    return {name: torch.from_numpy(values) for name, values in found.items()}


@dataclass(frozen=True, repr=False)
class Run:
    """A finished training."""

    path: str  #: the run directory
    metrics: Metrics
    best: dict[str, Any] | None  #: the metrics of the best epoch; None if none was validated
    scores: dict[str, float]  #: of each split, with the weights of the best epoch, or else the last ones
    plan: Plan | None
    json: Answer  #: the command's last answer, with times and memory
    events: list[Answer]

    def weights(self, which: str = 'best') -> dict[str, Any]:
        """The `best` or the `last` weights by name, as a PyG model's load_state_dict() takes them: torch's tensors, else NumPy's arrays."""
        return _read_weights(self.weights_path(which))

    def weights_path(self, which: str = 'best') -> str:
        """The path of the safetensors file with the `best` or the `last` weights."""
        if which not in ('best', 'last'):
            raise errors.UsageError(f"there are 'best' and 'last' weights, not {which!r}")
        path = os.path.join(self.path, f'{which}.safetensors')
        if not os.path.exists(path):
            raise errors.UsageError(f"{path} does not exist: no epoch was validated; use weights('last')")
        return path

    @property
    def _summary(self) -> str:
        of = f'best epoch {self.best["epoch"]}' if self.best else 'last weights'
        scores = ', '.join(f'{split} {_number(score)}' for split, score in self.scores.items())
        return f'{self.path}: {self.json.get("epochs", len(self.metrics))} epochs; {of}{": " if scores else ""}{scores}' \
               f'{" (sampled)" if scores and self.json.get("sampled") else ""}'

    def __repr__(self) -> str:
        return f'Run({self._summary})'

    def __str__(self) -> str:
        return self._summary

    def _repr_html_(self) -> str:
        names = [name for name in ('epoch', 'loss', *_SPLITS, 'valid_loss', 'best') if any(name in row for row in self.metrics)]
        rows = [[_number(row.get(name)) for name in names] for row in self.metrics[-50:]]
        return _table(names, rows, self._summary)


def _number(value: object) -> str:
    if isinstance(value, float):
        return f'{value:.4f}'
    return '' if value is None or value is False else 'yes' if value is True else str(value)


def _epoch_line(event: Answer) -> str:
    """As the command prints an epoch."""
    parts = [f'Epoch {event["epoch"]:03d}', f'Loss: {_number(event["loss"]) or "nan"}']
    titles = {'train': 'Train', 'valid': 'Val', 'test': 'Test'}
    scores = [f'{title}: {event[name]:.4f}' for name, title in titles.items() if isinstance(event.get(name), float)]
    if scores and event.get('sampled'):
        scores[-1] += ' (sampled)'
    return ' | '.join([*parts, *scores, f'Time: {event["seconds"]:.{2 if event["seconds"] < 10 else 0}f}s'])


def _memory_line(event: Answer) -> str:
    line = f' of {event["line_bytes"] / (1 << 20):.1f}MB' if 'line_bytes' in event else ''
    return f'Step {event["step"]}: CPU: {event["rss_bytes"] / (1 << 20):.1f}MB{line}'


class _Display:
    """Shows lines and a bar: in a notebook in one place that is updated, else lines on standard output, where the command's bar may be."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._handle: Any = None
        self.on_bar = self._bar if command.notebook() else None

    def line(self, text: str) -> None:
        if self.on_bar is not None:
            self._lines = [*self._lines[1 - _SHOWN_LINES:], text]
            self._update(self._lines)
        else:
            print(('\r\033[J' if sys.stdout.isatty() else '') + text, flush=True)

    def _bar(self, text: str) -> None:
        self._update([*self._lines, text])

    def end(self) -> None:
        if self._handle is not None:
            self._update(self._lines)

    def _update(self, lines: list[str]) -> None:
        display: Any = importlib.import_module('IPython.display').display
        shown = {'text/plain': '\n'.join(lines)}
        if self._handle is None:
            self._handle = display(shown, raw=True, display_id=True)
        else:
            self._handle.update(shown, raw=True)


class _TensorBoard:
    """Writes the events of a training to TensorBoard's files."""

    def __init__(self, directory: str | os.PathLike[str]):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise ImportError(f'tensorboard= needs torch and tensorboard ({error}): pip install torch tensorboard') from None
        self._writer: Any = SummaryWriter(os.fspath(directory))

    def write(self, event: Answer) -> None:
        if event.get('event') == 'epoch':
            for name in ('loss', *_SPLITS, 'valid_loss', 'seconds'):
                if isinstance(event.get(name), float):
                    self._writer.add_scalar(name, event[name], event['epoch'])
        elif event.get('event') == 'memory':
            self._writer.add_scalar('rss_bytes', event['rss_bytes'], event['step'])

    def close(self) -> None:
        self._writer.close()


@overload
def plan(dataset: Dataset | str | os.PathLike[str], *, sweep: None = None, **options: object) -> Plan: ...


@overload
def plan(dataset: Dataset | str | os.PathLike[str], *, sweep: Mapping[str, object], **options: object) -> Sweep: ...


def plan(dataset: Dataset | str | os.PathLike[str], *, sweep: Mapping[str, object] | None = None, **options: object) -> Plan | Sweep:
    """Plans the memory and the time of a training; starts nothing.

    `dataset` is a dataset, its path, or the name of a shape such as `'papers100M'`. The options are those of `train` and of
    plimsoll-plan(1). A training that does not fit is an answer, not an error: `fits` is False, and `advice` lists what would make it fit.
    `for_='pyg'` estimates the same training in PyTorch Geometric; `sweep={'batch': [512, 1024]}` plans every combination.

    >>> answer = plimsoll.plan('arxiv', model='sage', hidden=64, fanout=[10, 5], memory='1G')
    >>> answer.fits, answer.minimum_bytes < 1 << 30
    (True, True)
    """
    answer = command.run('plan', path_of(dataset), options={**options, 'sweep': sweep}, may_fail=[_EXIT_DOES_NOT_FIT])[-1]
    if 'rows' in answer:
        return Sweep([Plan.from_json(row, answer.get('dataset', '')) for row in answer['rows'] if 'total_bytes' in row], answer)
    if 'total_bytes' not in answer:  # not even the smallest plan could be made
        raise errors.of_status(str(answer.get('status')))(str(answer.get('error')))
    return Plan.from_json(answer, path_of(dataset))


def _read_metrics(path: str) -> Metrics:
    with open(os.path.join(path, 'metrics.jsonl'), encoding='utf-8') as lines:
        return Metrics(json.loads(line) for line in lines)


def train(dataset: Dataset | str | os.PathLike[str] | None = None, *, quiet: bool = False,
          tensorboard: str | os.PathLike[str] | None = None, **options: object) -> Run:
    """Trains a model under the memory line, in a process of its own, with the same bits as `plimsoll train`.

    `options` are those of plimsoll-train(1). `train(resume='runs/a')` continues a run; `run='runs/a', resume=True` begins or continues it.
    `tensorboard` names a directory for TensorBoard's files. Ctrl-C stops the training; the run is saved and can be resumed.

    >>> run = plimsoll.train(cora, model='gcn', fanout=[10, 5], epochs=5, dropout=0.5, quiet=True)
    >>> run.scores['test'] > 0.5, len(run.metrics)
    (True, 5)
    """
    board = _TensorBoard(tensorboard) if tensorboard is not None else None
    display = None if quiet else _Display()
    events: list[Answer] = []

    def on_event(event: Answer) -> None:
        events.append(event)
        if board is not None:
            board.write(event)
        if display is not None and event.get('event') in ('epoch', 'memory'):
            display.line(_epoch_line(event) if event['event'] == 'epoch' else _memory_line(event))

    try:
        command.run('train', *([] if dataset is None else [path_of(dataset)]), options=options, on_event=on_event,
                    on_bar=display.on_bar if display else None, show=not quiet)
    except (KeyboardInterrupt, errors.StoppedError, errors.DiskSpaceError) as error:
        path = next((str(event['run']) for event in events if 'run' in event), None)
        if path is None or not os.path.exists(os.path.join(path, 'run.json')):
            raise
        how = f'continue with plimsoll.train(resume={path!r})'
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(f'the run is saved in {path}; {how}') from None
        error.args = (f'{error}; {how}',)
        raise
    finally:
        if board is not None:
            board.close()
        if display is not None:
            display.end()
    return _finished(events)


def _finished(events: list[Answer]) -> Run:
    end = events[-1]
    path = os.path.abspath(str(end['run']))
    metrics = _read_metrics(path)
    planned = next((Plan.from_json(event) for event in events if event.get('event') == 'plan'), None)
    best = next((row for row in metrics if row['epoch'] == end.get('best_epoch')), None)
    scores = {split: end[split] for split in _SPLITS if isinstance(end.get(split), float)}
    return Run(path, metrics, best, scores, planned, end, events)


def make(verb: str, source: str, out: str | os.PathLike[str], options: Mapping[str, object], cwd: str | None = None,
         rename: Callable[[str], str] = str) -> Dataset:
    """Runs a verb that makes a dataset, shows its progress unless `quiet` is among the options, and opens the dataset."""
    from .dataset import open as open_dataset

    quiet = bool(options.get('quiet'))
    display = None if quiet else _Display()
    try:
        command.run(verb, source, out, options=options, show=not quiet, on_bar=display.on_bar if display else None, cwd=cwd,
                    rename=rename)
    finally:
        if display is not None:
            display.end()
    return open_dataset(os.fspath(out))


def import_(source: str | os.PathLike[str], out: str | os.PathLike[str], **options: object) -> Dataset:
    """Makes the dataset directory `out` from graph data in common formats, under the memory line, and opens it.

    `source` is an archive or directory of OGB, a directory of `.npy` or text files, an `.npz`, GraphBolt's, or an edge list; `options` are
    those of plimsoll-import(1), such as `symmetrise=True`, `features='f16'`, `split=[0.6, 0.2, 0.2]` and `quiet=True`.

    >>> plimsoll.import_(files, 'mine', split=[0.6, 0.2, 0.2], quiet=True).num_train
    60
    """
    return make('import', os.fspath(source), out, options)


def generate(shape: str, out: str | os.PathLike[str], **options: object) -> Dataset:
    """Makes the dataset directory `out` of a named shape, at any scale, and opens it.

    `options` are those of plimsoll-generate(1), such as `scale=0.01`, `seed=1` and `quiet=True`.

    >>> plimsoll.generate('arxiv', 'small', scale=0.01, quiet=True).num_nodes
    1693
    """
    return make('generate', shape, out, options)
