"""Watches the memory of a training, and says what to change when it runs out.

Usable without the rest of the package, in any script, with or without torch:

>>> import plimsoll
>>> monitor = plimsoll.MemoryMonitor(log_interval=100)
>>> for step in range(200):
...     monitor.log_memory_usage(step)      # doctest: +ELLIPSIS
Step 0: CPU: ...MB, Limit: ...MB, Left: ...MB
Step 100: CPU: ...MB, Limit: ...MB, Left: ...MB

All figures are MiB (1024 x 1024 bytes).
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import errno
import functools
import gc
import inspect
import os
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import FrameType, ModuleType, TracebackType
from typing import Any, ParamSpec, TypedDict, TypeVar, overload

from . import _core, advice

MIB = 1 << 20
GIB = 1 << 30
WATCH_SECONDS = 0.05
PREPARE_SECONDS = 5.0
MICROBATCH_NAMES = ('microbatch', 'micro_batch', 'microbatch_size', 'micro_batch_size')

P = ParamSpec('P')
R = TypeVar('R')
T = TypeVar('T')


class MemorySummary(TypedDict):
    """The figures of `MemoryMonitor.summary`."""

    current_cpu_mb: float  # resident memory of this process
    peak_cpu_mb: float  # its maximum since the process began, by the kernel
    current_gpu_mb: float  # tensors on the current GPU; 0.0 without one
    peak_gpu_mb: float
    gpu_cached_mb: float  # reserved by torch's allocator and not in use
    gpu_total_mb: float
    job_mb: float  # what counts against the limit: worker processes, shared memory and kernel memory too
    limit_mb: float  # the limit that is nearest
    limit_source: str
    left_mb: float  # distance to it


def _fields(path: str) -> dict[str, int]:
    """A file of the kernel with lines "name: 12 kB" or "name 12", as bytes or numbers; empty if it cannot be read."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError), open(path, encoding='ascii', errors='replace') as file:
        for line in file:
            words = line.split()
            if len(words) >= 2 and words[1].isdigit():
                found[words[0].rstrip(':')] = int(words[1]) << (10 if words[-1] == 'kB' else 0)
    return found


def _number(path: str) -> int:
    with open(path, encoding='ascii') as file:
        return int(file.read())


def _children(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f'/proc/{pid}/task'):
            with open(f'/proc/{pid}/task/{task}/children', encoding='ascii') as file:
                found += [int(word) for word in file.read().split()]
    return found + [below for child in found for below in _children(child)]


def _workers() -> tuple[int, int]:
    """The number of descendants, and their memory; a shared page counts in equal parts."""
    sizes = [_fields(f'/proc/{pid}/smaps_rollup').get('Pss', 0) for pid in _children(os.getpid())]
    return len(sizes), sum(sizes)


@functools.lru_cache(maxsize=16)
def _group_of(source: str) -> tuple[int, str] | None:
    """Version and directory of the control group that a limit's source names."""
    match = re.match(r'cgroup v([12]) (/.*) memory\.', source)
    if match is None or ', a part of ' in source:
        return None
    version, path = int(match[1]), match[2]
    with open('/proc/self/mountinfo', encoding='utf-8', errors='replace') as mounts:
        for line in mounts:
            fields, _, kind = line.partition(' - ')
            type_, *_, options = kind.split()
            if type_ != ('cgroup' if version == 1 else 'cgroup2') or (version == 1 and 'memory' not in options.split(',')):
                continue
            directory = os.path.join(re.sub(r'\\([0-7]{3})', lambda octal: chr(int(octal[1], 8)), fields.split()[4]), path.lstrip('/'))
            if os.path.exists(os.path.join(directory, 'memory.stat')):
                return version, directory
    return None


def _group_used(version: int, directory: str) -> int:
    """Memory of a group that the kernel cannot take back by dropping pages of files."""
    statistics = _fields(f'{directory}/memory.stat')
    if version == 1:
        return _number(f'{directory}/memory.usage_in_bytes') - statistics['total_active_file'] - statistics['total_inactive_file']
    return _number(f'{directory}/memory.current') - statistics['active_file'] - statistics['inactive_file']


def _used(source: str, status: dict[str, int]) -> int:
    """What counts against a limit, by the limit's source."""
    group = _group_of(source)
    if group is not None:
        with contextlib.suppress(OSError, KeyError, ValueError):
            return _group_used(*group)
    if source.startswith('RLIMIT_AS'):
        return status['VmRSS']
    if source.startswith('RLIMIT_DATA'):
        return status['RssAnon']
    return status['VmRSS'] + _workers()[1]


@functools.lru_cache(maxsize=1)
def _limits_at(second: float) -> list[tuple[str, int]]:
    return list(_core.limits()['memory'])


def _nearest(second: float | None = None) -> tuple[str, int, int]:
    """Source, bytes and distance of the limit that is nearest. Calls with the same `second` ask for the limits once."""
    status = _fields('/proc/self/status')
    found: list[tuple[int, int, str]] = []
    for source, size in _core.limits()['memory'] if second is None else _limits_at(second):
        if source.startswith('host '):  # this one says what is left
            found.append((size, size + status['VmRSS'], source))
        else:
            found.append((max(size - _used(source, status), 0), size, source))
    left, size, source = min(found)
    return source, size, left


def _cuda() -> Any:
    """`torch.cuda` when the script has imported torch and there is a GPU; else None. Creates no context on the GPU."""
    torch = sys.modules.get('torch')
    cuda = getattr(torch, 'cuda', None)
    with contextlib.suppress(Exception):
        if cuda is not None and (cuda.is_initialized() or cuda.is_available()):
            return cuda
    return None


def _gpu() -> tuple[int, int, int, int]:
    """Bytes on the current GPU: of tensors, their peak, reserved besides, and in all."""
    cuda = _cuda()
    if cuda is None:
        return 0, 0, 0, 0
    allocated = cuda.memory_allocated()
    total = cuda.get_device_properties(cuda.current_device()).total_memory if cuda.is_initialized() else 0
    return allocated, cuda.max_memory_allocated(), cuda.memory_reserved() - allocated, total


_OUT_OF_MEMORY = re.compile(
    r"out of memory|DefaultCPUAllocator: (?:can't allocate|not enough) memory|CUBLAS_STATUS_ALLOC_FAILED|std::bad_alloc"
    r'|Cannot allocate memory|Unable to allocate|unable to allocate shared memory|</torch_\S*>: No space left on device'
    r'|DataLoader worker \(pid.* is killed by signal: (?:Killed|Bus error)', re.I)
_ON_GPU = re.compile(r'(?:CUDA|HIP|XPU)\b.*out of memory|CUBLAS_STATUS_ALLOC_FAILED')
_UNITS = {'bytes': 1, 'KiB': 1 << 10, 'MiB': 1 << 20, 'GiB': 1 << 30}


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception, or one that it was raised from, says that memory ran out: of the host, a GPU, or /dev/shm.

    >>> is_out_of_memory(RuntimeError('CUDA out of memory. Tried to allocate 2.26 GiB'))
    True
    """
    for _ in range(8):
        if error is None:
            return False
        if isinstance(error, MemoryError) or type(error).__name__ == 'OutOfMemoryError' or getattr(error, 'errno', None) == errno.ENOMEM:
            return True
        text = str(error)
        if _ON_GPU.search(text) or (isinstance(error, (RuntimeError, OSError)) and _OUT_OF_MEMORY.search(text)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _said_bytes(pattern: str, text: str) -> int:
    """A size in torch's message, such as "138.00 MiB"; 0 without."""
    match = re.search(pattern.replace('SIZE', r'([\d.]+) (bytes|KiB|MiB|GiB)'), text)
    return int(float(match[1]) * _UNITS[match[2]]) if match else 0


def _pieces(text: str) -> int:
    """What torch held unused, in pieces, where in one piece the allocation would have fitted; else 0.

    Before it raises, torch releases all cached blocks that are not split, so what stays reserved lies in pieces. `plimsoll doctor` has the
    same rule.

    >>> round(_pieces('Tried to allocate 4.15 GiB. GPU 0 has a total capacity of 23.65 GiB of which 3.84 GiB is free. Of the allocated '
    ...               'memory 15.85 GiB is allocated by PyTorch, and 3.56 GiB is reserved by PyTorch but unallocated.') / 2**30, 2)
    3.56
    """
    tried = _said_bytes(r'Tried to allocate SIZE', text)
    allocated = _said_bytes(r'memory SIZE is allocated by PyTorch', text) or _said_bytes(r'; SIZE already allocated', text)
    reserved = _said_bytes(r'; SIZE reserved in total by PyTorch', text)
    idle = _said_bytes(r'SIZE is reserved by PyTorch but unallocated', text) or max(reserved - allocated, 0)
    free = _said_bytes(r'of which SIZE is free', text) or _said_bytes(r'; SIZE free', text)
    allowed = _said_bytes(r'SIZE allowed; ', text)
    if allowed:
        free = min(free, max(allowed - allocated - idle, 0))
    return idle if tried > 0 and free + idle >= tried else 0


def _expandable() -> bool:
    """Whether torch's expandable segments are asked for already."""
    return any('expandable_segments:True' in os.environ.get(name, '') for name in ('PYTORCH_ALLOC_CONF', 'PYTORCH_CUDA_ALLOC_CONF'))


def _frames_of(error: BaseException | None, frame: FrameType | None) -> list[FrameType]:
    """Frames of an exception's traceback and then of a running stack, innermost first."""
    found: list[FrameType] = []
    trace = error.__traceback__ if error is not None else None
    while trace is not None:
        found.insert(0, trace.tb_frame)
        trace = trace.tb_next
    while frame is not None:
        if frame not in found:
            found.append(frame)
        frame = frame.f_back
    return found


def _print(text: str) -> None:
    print(text, flush=True)


def _cleanup() -> tuple[int, int]:
    """Collects garbage and hands back what is unused: the bytes freed of the process, and of the GPU."""
    before, on_gpu = _fields('/proc/self/status')['VmRSS'], sum(_gpu()[::2])
    gc.collect()
    cuda = _cuda()
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()  # kernels that run still hold what they compute with
        cuda.empty_cache()
    with contextlib.suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)
    return max(before - _fields('/proc/self/status')['VmRSS'], 0), max(on_gpu - sum(_gpu()[::2]), 0)


def clear_all_memory(log: Callable[[str], None] = _print) -> tuple[float, float]:
    """Collects garbage, waits for the GPU, and hands unused memory back; logs and returns the MiB freed of the process and of the GPU.

    Tensors that the script still holds stay: `del` them first.

    >>> clear_all_memory()                      # doctest: +ELLIPSIS
    freed ...MB of the process...
    (...)
    """
    process, gpu = (size / MIB for size in _cleanup())
    log(f'freed {process:.1f}MB of the process' + (f', {gpu:.1f}MB of the GPU' if _cuda() is not None else ''))
    return process, gpu


class MemoryMonitor:
    """Logs the memory of a training beside the job's own limit, and warns before the limit is reached.

    Args:
        log_interval: steps between two lines of `log_memory_usage`.
        warn_at: part of the limit from which on suggestions are printed, once; None: never. The kernel ends a process that
            crosses its limit without a word, so they must come before.
        log: takes each line; `print` by default.
        cleanup_interval: steps between two calls of `cleanup_memory`; None: never. It costs time and helps where torch holds memory
            that others need; a script's own tensors stay.

    As a context manager it also looks at the limit twenty times a second between steps, while loaders are made too, and it prints
    the summary and suggestions when an exception says that memory ran out:

    >>> with MemoryMonitor(log_interval=100) as monitor:
    ...     for batch in monitor.watch(range(3)):
    ...         pass                            # doctest: +ELLIPSIS
    Step 0: CPU: ...MB, Limit: ...MB, Left: ...MB
    """

    def __init__(self, log_interval: int = 100, *, warn_at: float | None = 0.9, log: Callable[[str], None] = _print,
                 cleanup_interval: int | None = None) -> None:
        if log_interval < 1:
            raise ValueError(f'log_interval is {log_interval}; it must be at least 1')
        if warn_at is not None and not 0 < warn_at <= 1:
            raise ValueError(f'warn_at is {warn_at}; it is a part of the limit, between 0 and 1')
        if cleanup_interval is not None and cleanup_interval < 1:
            raise ValueError(f'cleanup_interval is {cleanup_interval}; it must be at least 1, or None')
        self.log_interval = log_interval
        self.cleanup_interval = cleanup_interval
        self.warn_at = warn_at
        self._log = log
        self._stepped = False
        self._warned = False
        self._looked = 0.0
        self._prepared = -PREPARE_SECONDS
        self._measured_at = -PREPARE_SECONDS
        self._workers = (0, 0)
        self._depth = 0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._spare: bytearray | None = bytearray(4 * MIB)  # address space for the report of a process that has none left

    def summary(self) -> MemorySummary:
        """The figures of this moment, in MiB.

        >>> MemoryMonitor().summary()['current_cpu_mb'] > 1
        True
        """
        status = _fields('/proc/self/status')
        source, limit, left = _nearest()
        allocated, peak, cached, total = _gpu()
        return {'current_cpu_mb': status['VmRSS'] / MIB, 'peak_cpu_mb': status['VmHWM'] / MIB, 'current_gpu_mb': allocated / MIB,
                'peak_gpu_mb': peak / MIB, 'gpu_cached_mb': cached / MIB, 'gpu_total_mb': total / MIB, 'job_mb': (limit - left) / MIB,
                'limit_mb': limit / MIB, 'limit_source': source, 'left_mb': left / MIB}

    def log_memory_usage(self, step: int) -> None:
        """Logs a line every `log_interval` steps, and warns when the limit is near. Call it at each step."""
        self._stepped = True
        if self.cleanup_interval and step > 0 and step % self.cleanup_interval == 0:
            self.cleanup_memory()
        if step % self.log_interval == 0:
            found = self.summary()
            gpu = ''
            if _cuda() is not None:
                gpu = f', GPU: {found["current_gpu_mb"]:.1f}MB, GPU Cached: {found["gpu_cached_mb"]:.1f}MB'
            self._log(f'Step {step}: CPU: {found["current_cpu_mb"]:.1f}MB{gpu}, Limit: {found["limit_mb"]:.1f}MB, '
                      f'Left: {found["left_mb"]:.1f}MB')
        elif time.monotonic() - self._looked < WATCH_SECONDS:
            return
        self._look(sys._getframe(1), wait=True)

    def watch(self, items: Iterable[T]) -> Iterator[T]:
        """Yields `items`, such as a loader's batches, and logs after each one: the callback for plain loops."""
        for step, item in enumerate(items):
            yield item
            self.log_memory_usage(step)

    def cleanup_memory(self) -> float:
        """Collects garbage and hands unused memory back to the system and to the GPU; returns the MiB that this freed."""
        return _cleanup()[0] / MIB

    def advise(self, error: BaseException | None = None) -> advice.Advice:
        """Suggestions for the running script: the caller, and the frames of `error`."""
        return self._advise(self._find(error, sys._getframe(1)), error)

    def _find(self, error: BaseException | None, frame: FrameType | None) -> advice.Script:
        found = advice.find(_frames_of(error, frame))
        return dataclasses.replace(found, training=found.training or self._stepped)

    def _advise(self, script: advice.Script, error: BaseException | None) -> advice.Advice:
        text = str(error)
        on_gpu = error is not None and _ON_GPU.search(text) is not None
        limit = _nearest()[1]
        gpu_memory = 0
        if on_gpu or (script.model is not None and script.model.on_gpu):
            gpu_memory = _said_bytes(r'total capaci?ty of SIZE', text) or _said_bytes(r'; SIZE total capacity', text) or _gpu()[3]
        if on_gpu:
            limit = gpu_memory
        try:
            # What a GPU needs does not depend on its size.
            found = advice.suggest(script, limit, gpu_memory or (GIB if on_gpu else 0), on_gpu)
        except Exception as reason:
            found = advice.Advice(why_none=f'the estimate failed: {reason}')
        suggestions = sorted((*found.suggestions, *self._measured(script)), key=lambda one: -(one.saves_mb or 0))
        pieces = _pieces(text) if on_gpu else 0
        if pieces and not _expandable():
            variable = 'PYTORCH_ALLOC_CONF' if 'try setting PYTORCH_ALLOC_CONF' in text else 'PYTORCH_CUDA_ALLOC_CONF'
            change = f'{variable}=expandable_segments:True in the environment: torch held that in pieces, and in one it would have fitted'
            suggestions.insert(0, advice.Suggestion(change, pieces / MIB))
        if found.why_none:
            # What was measured, or is in pieces, stands first.
            figures = _said_bytes(r'Tried to allocate SIZE', text) > 0
            suggestions += advice.general(script, on_gpu or gpu_memory > 0, _expandable() or figures)
        return dataclasses.replace(found, suggestions=tuple(suggestions))

    def _measure_workers(self) -> None:
        """Measures worker processes now and then: an exception that leaves the loop over a loader ends them before anybody can ask."""
        self._workers = max(self._workers, _workers(), key=lambda found: found[1])
        self._measured_at = time.monotonic()

    def _measured(self, script: advice.Script) -> list[advice.Suggestion]:
        """Suggestions whose saving is measured: workers of loaders without an estimate."""
        found: list[advice.Suggestion] = []
        loader = script.loader
        if loader is not None and loader.num_workers > 0 and not (loader.graph and loader.num_neighbors):
            self._measure_workers()
            count, size = self._workers
            if size >= MIB:
                found.append(advice.Suggestion(f'num_workers=0 in {loader.name}: its {count} worker processes held that', size / MIB))
        return found

    def report(self, error: BaseException | None = None, frame: FrameType | None = None) -> None:
        """Prints the summary and the suggestions, the largest saving first (before it only what would have been enough)."""
        self._spare = None
        found = self.summary()
        if error is not None:
            reason = str(error).splitlines()[0] if str(error) else ''
            head = f'out of memory: {type(error).__name__}' + (f': {reason}' if reason else '')
        else:
            head = f'{100 * found["job_mb"] / max(found["limit_mb"], 1):.0f} % of the memory limit is in use'
        lines = [f'plimsoll: {head}',
                 f'  CPU: {found["current_cpu_mb"]:.1f}MB (peak {found["peak_cpu_mb"]:.1f}MB); job: {found["job_mb"]:.1f}MB of '
                 f'{found["limit_mb"]:.1f}MB, {found["left_mb"]:.1f}MB left; limit: {found["limit_source"]}']
        tried, free = (_said_bytes(pattern, str(error)) for pattern in (r'Tried to allocate SIZE', r'of which SIZE is free'))
        if tried:
            lines.append(f'  GPU: {tried / MIB:.1f}MB could not be allocated' + (f', {free / MIB:.1f}MB were free' if free else ''))
        if _cuda() is not None:
            lines.append(f'  GPU: {found["current_gpu_mb"]:.1f}MB (peak {found["peak_gpu_mb"]:.1f}MB), cached '
                         f'{found["gpu_cached_mb"]:.1f}MB, of {found["gpu_total_mb"]:.1f}MB')
        self._log('\n'.join(lines))
        script = self._find(error, frame or sys._getframe(1))
        self._log('\n'.join(self._advice_lines(script, self._advise(script, error), found['job_mb'])))

    @staticmethod
    def _advice_lines(script: advice.Script, found: advice.Advice, job_mb: float) -> list[str]:
        lines = [f'  {one}' for one in script.loaders]
        loader = script.loader
        if loader is not None and loader.graph is not None:
            graph = loader.graph
            lines.append(f'  graph: {graph.num_nodes} nodes, {graph.num_edges} edges, {graph.num_features} features')
        if script.model is not None:
            lines.append(f'  {script.model}')
        elif found.now_mb is not None:
            lines.append('  no model was recognised; estimated as GraphSAGE with 64 hidden channels')
        if found.now_mb is not None:
            assumed = ', an assumption: its constants were not measured' if found.phase == 'GPU' else ''
            later = ''
            if found.phase not in ('GPU', found.peak_phase):
                later = f'; the peak is {found.peak_mb:.1f}MB (phase {found.peak_phase})'
            lines.append(f'  estimate for PyTorch Geometric: {found.now_mb:.1f}MB (phase {found.phase}{assumed}){later}')
            if found.phase != 'GPU' and job_mb > 1.25 * found.now_mb + 256:
                lines.append(f'  the script holds {job_mb - found.now_mb:.1f}MB more than that: look for tensors that it keeps '
                             '(losses or outputs in lists, copies of the data)')
        if found.why_none:
            lines.append(f'  no estimate: {found.why_none}; what usually helps most stands first')
        lines += [f'  {number}. {one}' for number, one in enumerate(found.suggestions, 1)]
        if found.ask_mb is not None:
            lines.append(f'  or ask the scheduler for --mem={found.ask_mb / 1024:.0f}G')
        return lines

    def _look(self, frame: FrameType | None, wait: bool = False) -> None:
        """Warns once, when the limit is near. Asks for the estimates at half of that, so that they are there in time.

        With `wait` a warning that another thread is printing is awaited, since the next step may be the last.
        """
        self._looked = time.monotonic()
        if self.warn_at is None or self._warned:
            return
        _, limit, left = _nearest(self._looked // 1)
        used = (limit - left) / limit if limit > 0 else 0.0
        if used < self.warn_at / 2 or not self._lock.acquire(blocking=wait):
            return
        try:
            if self._warned:
                return
            if used >= self.warn_at:
                try:
                    self.report(frame=frame)
                finally:
                    self._warned = True
            elif self._looked > self._prepared + PREPARE_SECONDS:
                self._advise(self._find(None, frame), None)
                self._prepared = time.monotonic()
        finally:
            self._lock.release()

    def _watch_thread(self, watched: int) -> None:
        while not self._end.wait(WATCH_SECONDS):
            with contextlib.suppress(Exception):
                if time.monotonic() > self._measured_at + PREPARE_SECONDS:
                    self._measure_workers()
                self._look(sys._current_frames().get(watched))

    def __enter__(self) -> MemoryMonitor:
        self._depth += 1
        if self._depth == 1 and self.warn_at is not None:
            self._end.clear()
            self._thread = threading.Thread(target=self._watch_thread, args=(threading.get_ident(),), name='plimsoll-monitor', daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._depth -= 1
        if self._depth == 0 and self._thread is not None:
            self._end.set()
            self._thread.join()
            self._thread = None
        self._report_once(error, sys._getframe(1))

    def _report_once(self, error: BaseException | None, frame: FrameType | None) -> None:
        """Reports an exception that means out of memory, unless another monitor has reported it."""
        if error is None or not is_out_of_memory(error) or getattr(error, 'plimsoll_reported', False):
            return
        with contextlib.suppress(Exception):  # whatever fails now, the error that the user must see is `error`
            error.plimsoll_reported = True  # type: ignore[attr-defined]
            self.report(error, frame)

    def lightning_callback(self, rehearse: bool = False) -> Any:
        """A Lightning `Callback` for this monitor; `lightning.pytorch` or `pytorch_lightning` must be imported.

        With `rehearse` the Trainer's plimsoll loader rehearses the module's steps first: loader.rehearse.

        ``Trainer(callbacks=[plimsoll.MemoryMonitor(log_interval=100).lightning_callback()])``
        """
        loaded = [sys.modules[name] for name in ('lightning.pytorch', 'pytorch_lightning') if name in sys.modules]
        if not loaded:
            raise ImportError('neither lightning.pytorch nor pytorch_lightning is imported; import the one of your Trainer first')

        def on_fit_start(_: Any, trainer: Any, module: Any) -> None:
            self.__enter__()

        def on_train_start(_: Any, trainer: Any, module: Any) -> None:
            if rehearse:
                from .rehearsal import rehearse_trainer

                rehearse_trainer(trainer, module)

        def on_fit_end(_: Any, trainer: Any, module: Any) -> None:
            self.__exit__(None, None, None)

        def on_train_batch_end(_: Any, trainer: Any, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            self.log_memory_usage(trainer.global_step)

        def on_exception(_: Any, trainer: Any, module: Any, exception: BaseException) -> None:
            if self._depth > 0:
                self.__exit__(type(exception), exception, exception.__traceback__)
            else:
                self._report_once(exception, sys._getframe(1))

        hooks = {one.__name__: one for one in (on_fit_start, on_train_start, on_fit_end, on_train_batch_end, on_exception)}
        bases = tuple(dict.fromkeys(module.Callback for module in loaded))
        return type('MemoryMonitorCallback', bases, hooks)()


def print_gpu_memory() -> None:
    """Prints, for each GPU that torch sees, what tensors hold, their peak, what is cached, and what is free."""
    cuda = _cuda()
    if cuda is None:
        print('no GPU: ' + ('torch sees none' if 'torch' in sys.modules else 'torch is not imported'))
        return
    for index in range(cuda.device_count()):
        free, total = cuda.mem_get_info(index)
        allocated = cuda.memory_allocated(index)
        print(f'GPU {index} ({cuda.get_device_name(index)}): {allocated / MIB:.1f}MB, peak {cuda.max_memory_allocated(index) / MIB:.1f}MB, '
              f'cached {(cuda.memory_reserved(index) - allocated) / MIB:.1f}MB, free {free / MIB:.1f}MB of {total / MIB:.1f}MB')


class _Weights:
    """Notices whether a call changed weights or gradients that existed before it. Keeps no tensor alive."""

    def __init__(self, function: Callable[..., Any], arguments: Iterable[object]) -> None:
        code, names = getattr(function, '__code__', None), getattr(function, '__globals__', {})
        values = list(arguments) + [names[name] for name in getattr(code, 'co_names', ()) if name in names]
        for cell in getattr(function, '__closure__', None) or ():
            with contextlib.suppress(ValueError):  # an empty cell
                values.append(cell.cell_contents)
        for value in [one for one in values if not isinstance(one, (ModuleType, type))]:
            values += list(getattr(value, '__dict__', {}).values())
        torch = sys.modules.get('torch')
        modules = [value for value in values if torch is not None and isinstance(value, torch.nn.Module)]
        pairs = [pair for module in modules for pair in (*module.named_parameters(), *module.named_buffers())]
        tensors = {id(tensor): (name, tensor) for name, tensor in pairs}
        self._before = [(name, weakref.ref(tensor), tensor._version, *self._gradient(tensor))
                        for name, tensor in tensors.values() if not tensor.is_inference()]

    @staticmethod
    def _gradient(tensor: Any) -> tuple[Any, int]:
        gradient = tensor.grad if tensor.is_leaf else None
        return (None, 0) if gradient is None else (weakref.ref(gradient), gradient._version)

    def changed(self) -> str | None:
        """The name of a weight, or of a gradient that existed before, that the call changed."""
        for name, kept, version, gradient, gradient_version in self._before:
            tensor = kept()
            if tensor is None:
                continue
            if tensor._version != version:
                return str(name)
            now = tensor.grad if gradient is not None else None
            if now is not None and now is gradient() and now._version != gradient_version:
                return f'{name}.grad'
        return None

    def drop_gradients(self) -> None:
        """Drops gradients that the failed call left where there were none before."""
        for _, kept, _, gradient, _ in self._before:
            tensor = kept()
            if tensor is not None and tensor.is_leaf and gradient is None:
                tensor.grad = None


@overload
def memory_efficient_training_wrapper(function: Callable[P, R]) -> Callable[P, R]: ...


@overload
def memory_efficient_training_wrapper(*, monitor: MemoryMonitor | None = ...,
                                      retry: bool = ...) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def memory_efficient_training_wrapper(function: Callable[..., Any] | None = None, *, monitor: MemoryMonitor | None = None,
                                      retry: bool = True) -> Any:
    """Decorates a training function: when memory runs out, prints the summary and suggestions, and raises the error again.

    Suggestions also come before the kernel would kill the process: the function runs inside of a `MemoryMonitor`.

    A function with a parameter named ``microbatch``, ``micro_batch``, ``microbatch_size`` or ``micro_batch_size`` is called again
    with half of it, as often as it takes, and each retry is printed; ``retry=False`` switches this off. ``batch_size`` is never
    changed, since that would change the training. The call starts from its beginning, so it is repeated only if the failed one has
    changed no weights of a model that existed before (one step, or a training that makes its model itself); else the message
    names the weight.

    >>> @memory_efficient_training_wrapper
    ... def train(micro_batch_size):
    ...     return micro_batch_size
    >>> train(64)
    64
    """
    if function is None:
        return functools.partial(memory_efficient_training_wrapper, monitor=monitor, retry=retry)
    signature = inspect.signature(function)
    parameter = next((name for name in MICROBATCH_NAMES if name in signature.parameters), None)

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        watch = monitor or MemoryMonitor()
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        while True:
            weights = _Weights(function, bound.arguments.values())
            try:
                with watch:
                    return function(*bound.args, **bound.kwargs)
            except Exception as error:
                if parameter is None or not retry or not is_out_of_memory(error):
                    raise
                size = bound.arguments[parameter]
                if not isinstance(size, int) or size < 2:
                    watch._log(f'plimsoll: not tried again: {parameter}={size} cannot be halved')
                    raise
                changed = weights.changed()
                if changed is not None:
                    watch._log(f'plimsoll: not tried again with {parameter}={size // 2}: the call had already changed {changed}, so a '
                               'second start would train something else. Start again from a checkpoint')
                    raise
            # The error and its frames are gone here, and with them the tensors that they held.
            weights.drop_gradients()
            watch.cleanup_memory()
            watch._log(f'plimsoll: trying again from the beginning of {run.__name__}() with {parameter}={size // 2} instead of {size}')
            bound.arguments[parameter] = size // 2

    return run
