# labels: plain long
"""The memory monitor: its figures, its line, the suggestions before a real kill and after real errors, retries."""
import contextlib
import doctest
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import time
import types

import pytest

plimsoll = pytest.importorskip('plimsoll')
from plimsoll import advice, command, monitor  # noqa: E402

MIB = 1 << 20
NUMBER = r'\d+\.\dMB'
GROUPS = pathlib.Path('/sys/fs/cgroup')

# A loader with PyG's attributes, in a script without torch.
LOADER = '''
import os
import sys
import types

import plimsoll


class NeighborLoader:
    def __init__(self, data, num_neighbors, batch_size, num_workers=0, persistent_workers=False, prefetch_factor=None):
        self.data, self.num_neighbors, self.batch_size, self.num_workers = data, num_neighbors, batch_size, num_workers
        self.persistent_workers, self.prefetch_factor, self.pin_memory = persistent_workers, prefetch_factor, False


data = types.SimpleNamespace(num_nodes=200000, num_edges=4000000, num_features=100, edge_index=0, x=None)
train_loader = NeighborLoader(data, [15, 10], 1024, num_workers=4, persistent_workers=True)
valid_loader = NeighborLoader(data, [15, 10], 1024, num_workers=4, persistent_workers=True)
'''


def run_script(text, group=None, code=0, before=None):
    """Runs a script, in a control group if one is given, and returns its output."""
    def enter():
        if group is not None:
            (group / 'cgroup.procs').write_text(str(os.getpid()))
        if before is not None:
            before()
    done = subprocess.run([sys.executable, '-c', text], check=False, capture_output=True, text=True, timeout=1500, preexec_fn=enter)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@contextlib.contextmanager
def limited(size):
    """A real memory group with this limit."""
    v1 = (GROUPS / 'memory' / 'memory.limit_in_bytes').exists()
    group = GROUPS / ('memory' if v1 else '') / f'plimsoll-monitor-{os.getpid()}'
    try:
        if not v1:
            (GROUPS / 'cgroup.subtree_control').write_text('+memory')
        group.mkdir()
        (group / ('memory.limit_in_bytes' if v1 else 'memory.max')).write_text(str(size))
    except OSError as error:
        pytest.skip(f'no memory cgroup can be made: {error} (root is needed)')
    try:
        yield group
    finally:
        for _ in range(6000):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.01)


def kills(group):
    text = (group / ('memory.oom_control' if 'memory/' in str(group) else 'memory.events')).read_text()
    return int(re.search(r'^oom_kill (\d+)', text, re.M)[1])


def status(field):
    return int(re.search(rf'^{field}:\s+(\d+) kB', pathlib.Path('/proc/self/status').read_text(), re.M)[1]) / 1024


def suggestions(text):
    """The numbered suggestions of a report: (MB saved, words)."""
    found = re.findall(r'^  (\d+)\. saves (\d+\.\d)MB: (.*)$', text, re.M)
    assert [int(number) for number, _, _ in found] == list(range(1, len(found) + 1))
    saved = [float(size) for _, size, _ in found]
    assert saved == sorted(saved, reverse=True)
    return [(size, words) for size, (_, _, words) in zip(saved, found)]


class Lines(list):
    """Collects what a monitor logs."""

    @property
    def text(self):
        return '\n'.join(self)


@pytest.fixture
def lines():
    return Lines()


def test_figures_are_the_kernels(lines):
    watched = plimsoll.MemoryMonitor(log=lines.append)
    before = watched.summary()
    assert before['current_cpu_mb'] == pytest.approx(status('VmRSS'), abs=4)
    block = bytearray(os.urandom(1 << 16)) * 1024
    grown = watched.summary()
    assert grown['current_cpu_mb'] - before['current_cpu_mb'] == pytest.approx(64, abs=4)
    assert grown['peak_cpu_mb'] == pytest.approx(status('VmHWM'), abs=4) and grown['peak_cpu_mb'] >= grown['current_cpu_mb'] - 1
    assert grown['limit_mb'] == pytest.approx(grown['job_mb'] + grown['left_mb'])
    del block
    after = watched.summary()
    assert after['current_cpu_mb'] < grown['current_cpu_mb'] - 56 and after['peak_cpu_mb'] >= grown['peak_cpu_mb'] - 1
    sources = [source for source, _ in plimsoll._core.limits()['memory']]
    assert before['limit_source'] in sources
    assert watched.cleanup_memory() >= 0


def test_the_line(lines):
    watched = plimsoll.MemoryMonitor(log_interval=100, warn_at=None, log=lines.append)
    for step in range(301):
        watched.log_memory_usage(step)
    assert len(lines) == 4
    for step, line in zip((0, 100, 200, 300), lines):
        assert re.fullmatch(rf'Step {step}: CPU: {NUMBER}, Limit: {NUMBER}, Left: {NUMBER}', line)
    lines.clear()
    assert list(watched.watch('abc')) == ['a', 'b', 'c'] and len(lines) == 1


@pytest.fixture
def gpu(monkeypatch):
    """A torch with one GPU."""
    used, reserved = int(4096.2 * MIB), int(5120.3 * MIB)
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, is_available=lambda: True, current_device=lambda: 0, device_count=lambda: 1, emptied=0,
        memory_allocated=lambda *_: used, max_memory_allocated=lambda *_: used + MIB, memory_reserved=lambda *_: reserved,
        mem_get_info=lambda *_: (2 << 30, 8 << 30), get_device_name=lambda *_: 'Fake 8000',
        get_device_properties=lambda *_: types.SimpleNamespace(total_memory=8 << 30))
    cuda.waited = 0
    cuda.synchronize = lambda: setattr(cuda, 'waited', cuda.waited + 1)
    cuda.empty_cache = lambda: setattr(cuda, 'emptied', cuda.emptied + 1)
    monkeypatch.setitem(sys.modules, 'torch', types.SimpleNamespace(cuda=cuda))
    return cuda


def test_the_line_with_a_gpu(gpu, lines, capsys):
    watched = plimsoll.MemoryMonitor(warn_at=None, log=lines.append)
    watched.log_memory_usage(1000)
    assert re.match(rf'Step 1000: CPU: {NUMBER}, GPU: 4096\.2MB, GPU Cached: 1024\.1MB, Limit: {NUMBER}, Left: {NUMBER}$', lines[0])
    found = watched.summary()
    assert (found['current_gpu_mb'], found['peak_gpu_mb']) == pytest.approx((4096.2, 4097.2), abs=0.01)
    watched.cleanup_memory()
    assert gpu.emptied == 1
    plimsoll.print_gpu_memory()
    assert re.match(rf'GPU 0 \(Fake 8000\): 4096\.2MB, peak {NUMBER}, cached 1024\.1MB, free 2048\.0MB of 8192\.0MB$',
                    capsys.readouterr().out)


def test_memory_is_handed_back_every_so_many_steps(gpu, lines):
    watched = plimsoll.MemoryMonitor(warn_at=None, log=lines.append, cleanup_interval=10)
    for step in range(31):
        watched.log_memory_usage(step)
    assert gpu.emptied == 3
    gpu.memory_reserved = lambda *_: int((5120 - 512 * (gpu.emptied > 3)) * MIB)
    assert plimsoll.clear_all_memory(lines.append)[1] == pytest.approx(512, abs=1)
    assert gpu.emptied == gpu.waited == 4 and re.fullmatch(rf'freed {NUMBER} of the process, 512\.0MB of the GPU', lines[-1])


def test_without_a_gpu_and_without_torch():
    done = run_script("import sys, plimsoll\nplimsoll.MemoryMonitor().log_memory_usage(0)\nplimsoll.print_gpu_memory()\n"
                      "assert not {'torch', 'numpy', 'lightning'} & set(sys.modules)")
    assert 'no GPU' in done.stdout and done.stdout.startswith('Step 0: CPU: ')


def test_the_limit_of_a_real_group():
    """The group's limit, and everything in the group counts: children too, pages of files not."""
    script = textwrap.dedent('''
        import json, subprocess, sys, plimsoll
        watched = plimsoll.MemoryMonitor()
        before = watched.summary()
        code = "block = bytearray(96 << 20); block[::4096] = b'1' * len(block[::4096]); print(flush=True); input()"
        child = subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        child.stdout.readline()
        print(json.dumps([before, watched.summary()]))
        child.communicate(b'\\n')
    ''')
    with limited(512 * MIB) as group:
        before, after = json.loads(run_script(script, group).stdout)
    assert before['limit_mb'] == after['limit_mb'] == 512
    assert group.name in before['limit_source']
    assert 96 <= after['job_mb'] - before['job_mb'] < 140 and after['left_mb'] == pytest.approx(512 - after['job_mb'])
    assert after['current_cpu_mb'] - before['current_cpu_mb'] < 16


def estimate(**changes):
    options = {'nodes': 200000, 'edges': 4000000, 'features': 100, 'classes': 64, 'model': 'sage', 'hidden': 64, 'fanout': '15,10',
               'batch': 1024, 'loaders': 2, 'workers': 4, 'persistent_workers': True, 'for': 'pyg', 'memory': '1T', **changes}
    return command.run('plan', 'free', options=options)[-1]


def check_suggestions(found, training):
    """Each suggestion saves what the command's own estimate says."""
    size = (lambda answer: answer['phases']['train']) if training else (lambda answer: answer['total_bytes'])
    now = size(estimate())
    words = dict((words, saved) for saved, words in found)
    for part, changes in (('num_workers=0', {'workers': 0}), ('mmap_mode', {'mapped_features': True}),
                          ('num_neighbors=[7, 5]', {'fanout': '7,5'}), ('persistent_workers=False', {'persistent_workers': False})):
        saved = (now - size(estimate(**changes))) / MIB
        printed = [value for key, value in words.items() if part in key and 'plimsoll.NeighborLoader' not in key]
        assert (printed == [pytest.approx(saved, abs=0.1)]) if saved >= 1 else not printed, (part, found)
    sorted_edges = (2 * 4000000 + 200001) * 8 / MIB
    assert [value for key, value in words.items() if 'neighbor_sampler=' in key] == [pytest.approx(sorted_edges, abs=0.1)]
    assert any('plimsoll.NeighborLoader' in key for key in words)


def test_suggestions_before_the_kernel_kills():
    """The kernel gives no chance to speak: what there is to report was reported before."""
    script = LOADER + textwrap.dedent('''
        watched = plimsoll.MemoryMonitor(log_interval=1, warn_at=0.7)
        kept = []
        for step in range(1000):
            kept.append(bytes([step % 255 + 1]) * (4 << 20))
            watched.log_memory_usage(step)
    ''')
    with limited(256 * MIB) as group:
        done = run_script(script, group, code=-signal.SIGKILL)
        assert kills(group) > 0
    assert done.stdout.count('% of the memory limit is in use') == 1
    assert re.search(rf'job: {NUMBER} of 256\.0MB, {NUMBER} left; limit: cgroup v\d \S*{group.name}', done.stdout)
    assert 'train_loader(batch_size=1024, num_neighbors=[15, 10], num_workers=4' in done.stdout
    check_suggestions(suggestions(done.stdout), training=True)
    lefts = [float(left) for left in re.findall(r'^Step \d+: .*Left: (\d+\.\d)MB$', done.stdout, re.M)]
    assert len(lefts) > 10 and lefts[-1] < lefts[0] / 3


def test_the_watcher_speaks_between_steps():
    """As when a loader is made: there are no steps yet. However slow the machine is, it has the time from 128 to 176 MiB to speak."""
    script = LOADER + textwrap.dedent('''
        import time
        with plimsoll.MemoryMonitor(warn_at=0.5) as watched:
            kept = []
            while True:
                if watched._warned or watched.summary()['left_mb'] > 80:
                    kept.append(b'x' * (1 << 20))
                time.sleep(0.005)
    ''')
    with limited(256 * MIB) as group:
        done = run_script(script, group, code=-signal.SIGKILL)
        assert kills(group) > 0
    check_suggestions(suggestions(done.stdout), training=False)


def test_memory_error_under_a_ulimit():
    script = LOADER + textwrap.dedent('''
        @plimsoll.memory_efficient_training_wrapper
        def train(loader, epochs):
            kept = []
            while True:
                kept.append(b'x' * (8 << 20))

        train(train_loader, epochs=1)
    ''')

    def ulimit():
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (400 * MIB, 400 * MIB))
    done = run_script(script, code=1, before=ulimit)
    _, found, report = done.stdout.partition('plimsoll: out of memory')  # the watching thread may have reported before
    assert found and 'limit: RLIMIT_AS' in report
    check_suggestions(suggestions(report), training=False)
    assert done.stderr.rstrip().endswith('MemoryError')


TORCH_2_13 = (
    'CUDA out of memory. Tried to allocate 138.00 MiB. GPU 0 has a total capacity of 15.90 GiB of which 8.44 MiB is free. Process 1246069 '
    'has 577.00 MiB memory in use. Including non-PyTorch memory, this process has 15.32 GiB memory in use. Of the allocated memory 14.12 '
    'GiB is allocated by PyTorch, and 410.41 MiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try '
    'setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management  '
    '(https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)')
RUNS_OUT = [
    MemoryError(), RuntimeError(TORCH_2_13), OSError(12, 'Cannot allocate memory'),
    RuntimeError('CUDA out of memory. Tried to allocate 2.26 GiB (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB '
                 'free; 1.24 GiB reserved in total by PyTorch)'),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate "
                 '56862697472 bytes. Error code 12 (Cannot allocate memory)'),
    RuntimeError('DataLoader worker (pid 24773) is killed by signal: Killed. '),
    RuntimeError('unable to allocate shared memory(shm) for file </torch_25005_3323136303_0>: No space left on device (28)'),
    RuntimeError('CUDA error: out of memory'), type('TrainingError', (Exception,), {})('❌ Memory Error: CUDA out of memory'), RuntimeError('CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate(handle)'),
    plimsoll.MemoryLineError('the line'),
]
OTHERS = [ValueError('out of memory'), RuntimeError('DataLoader worker (pid 24936) exited unexpectedly with exit code 3.'), KeyError(),
          RuntimeError('DataLoader worker (pid 24864) is killed by signal: Segmentation fault. '), OSError(28, 'No space left on device')]


@pytest.mark.parametrize('tried, free, allowed, variable, is_set, first', [
    ('4.15', '3.84', '', 'PYTORCH_ALLOC_CONF', False, 'PYTORCH_ALLOC_CONF=expandable_segments:True'),
    ('4.15', '3.84', '', 'PYTORCH_CUDA_ALLOC_CONF', False, 'PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True'),
    ('4.15', '3.84', '', 'PYTORCH_CUDA_ALLOC_CONF', True, None),  # on already
    ('7.41', '3.84', '', 'PYTORCH_ALLOC_CONF', False, None),
    ('4.15', '3.84', '19.00 GiB allowed; ', 'PYTORCH_ALLOC_CONF', False, None)])
def test_memory_in_pieces_is_joined_first(lines, monkeypatch, tried, free, allowed, variable, is_set, first):
    """By the figures of the message, as `plimsoll doctor` has it."""
    for name in ('PYTORCH_ALLOC_CONF', 'PYTORCH_CUDA_ALLOC_CONF'):
        monkeypatch.delenv(name, raising=False)
    if is_set:
        monkeypatch.setenv(variable, 'expandable_segments:True')
    text = (f'CUDA out of memory. Tried to allocate {tried} GiB. GPU 0 has a total capacity of 23.65 GiB of which {free} GiB is free. Process 9 has '
            f'19.80 GiB memory in use. {allowed}Of the allocated memory 15.85 GiB is allocated by PyTorch, and 3.56 GiB is reserved by PyTorch but '
            f'unallocated. If reserved but unallocated memory is large try setting {variable}=expandable_segments:True to avoid fragmentation.')
    found = plimsoll.MemoryMonitor(log=lines.append).advise(RuntimeError(text)).suggestions
    if first:
        assert found[0].change.startswith(first) and found[0].saves_mb == pytest.approx(3.56 * 1024, abs=0.1)
    else:
        assert not any('expandable' in one.change for one in found)


def test_which_errors_mean_out_of_memory():
    assert [error for error in RUNS_OUT if not monitor.is_out_of_memory(error)] == []
    assert [error for error in OTHERS if monitor.is_out_of_memory(error)] == []
    assert not monitor.is_out_of_memory(None)
    last = RuntimeError('DataLoader worker (pid(s) 24864) exited unexpectedly')
    last.__context__ = RUNS_OUT[5]
    assert monitor.is_out_of_memory(last)


class NeighborLoader:
    """A loader with PyG's attributes."""

    def __init__(self, num_workers=0, num_neighbors=(15, 10), batch_size=1024, **graph):
        shape = {'num_nodes': 200000, 'num_edges': 4000000, 'num_features': 100, 'edge_index': 0, 'x': None}
        self.data = types.SimpleNamespace(**{**shape, **graph})
        self.num_neighbors, self.batch_size, self.num_workers = list(num_neighbors), batch_size, num_workers
        self.persistent_workers = self.pin_memory = False
        self.prefetch_factor = None


def test_torchs_out_of_memory_error(lines):
    torch = pytest.importorskip('torch')
    kind = torch.OutOfMemoryError if hasattr(torch, 'OutOfMemoryError') else torch.cuda.OutOfMemoryError  # before torch 2.5
    raised = kind(TORCH_2_13)

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def train(loader):
        raise raised

    with pytest.raises(kind) as caught:
        train(NeighborLoader())
    assert caught.value is raised
    found = suggestions(lines.text)
    assert (found[0][0], found[0][1][:23]) == (410.4, 'PYTORCH_CUDA_ALLOC_CONF')
    shape = {'loaders': 1, 'workers': 0, 'persistent_workers': False, 'gpu_memory': '16G'}
    now = estimate(**shape)['gpu']['total_bytes']
    saved = (now - estimate(**shape, fanout='7,5')['gpu']['total_bytes']) / MIB
    assert [size for size, words in found if words.startswith('num_neighbors=[7, 5]')] == [pytest.approx(saved, abs=0.1)]
    assert any(words.startswith('batch_size=512') for _, words in found) and any('bfloat16' in words for _, words in found)
    assert not any('num_workers' in words or 'mmap' in words for _, words in found)  # these save no GPU memory
    assert lines.text.count('plimsoll: out of memory') == 1


@pytest.mark.parametrize('loader', ['None', 'torch.utils.data.DataLoader(list(range(64)), batch_size=16, num_workers=2)'])
@pytest.mark.parametrize('text', ['CUDA out of memory', 'CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which 1.12 GiB is free.'])
def test_advice_never_comes_up_empty(loader, text):
    pytest.importorskip('torch')
    printed = run_script(f'import plimsoll, torch\nloader = {loader}\nplimsoll.MemoryMonitor(warn_at=None).report(torch.OutOfMemoryError({text!r}))\n').stdout
    changes = [line for line in printed.split('plimsoll: ')[-1].splitlines() if 'not estimated: ' in line]
    order = ['batch_size', 'micro-batches', 'autocast', 'checkpoint', 'loss.item()', 'num_workers', 'expandable_segments']
    figures = 'Tried' in text  # with figures, these say that it was not in pieces
    assert [next(word for word in order if word in change) for change in changes] == order[:7 - figures]
    assert not figures or ('2048.0MB' in printed and '1146.9MB' in printed)
    assert loader == 'None' or 'batch_size=8 instead of 16' in changes[0]


def test_torchs_own_allocator_on_the_host(lines):
    torch = pytest.importorskip('torch')

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def train(loader):
        return torch.empty(1 << 50)

    with pytest.raises(RuntimeError, match='DefaultCPUAllocator'):
        train(NeighborLoader(num_workers=2))
    assert any(words.startswith('num_workers=0') for _, words in suggestions(lines.text))


def test_other_errors_pass_by(lines):
    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def train(microbatch=4):
        raise KeyError(microbatch)

    with pytest.raises(KeyError):
        train()
    assert not lines


def test_a_smaller_microbatch_is_tried_and_reported(lines):
    tried = []

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def train(batch_size, *, micro_batch_size=64):
        """Trains."""
        tried.append((batch_size, micro_batch_size))
        if micro_batch_size > 16:
            raise MemoryError
        return 'trained'

    assert train.__doc__ == 'Trains.'
    assert train(256) == 'trained'
    assert tried == [(256, 64), (256, 32), (256, 16)]
    assert [line for line in lines if 'trying again' in line and 'micro_batch_size=32' in line]
    assert [line for line in lines if 'trying again' in line and 'micro_batch_size=16' in line]


def test_the_batch_size_is_never_changed(lines):
    tried = []

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def train(batch_size):
        tried.append(batch_size)
        raise MemoryError

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append), retry=False)
    def once(microbatch):
        tried.append(microbatch)
        raise MemoryError

    for function in (train, once):
        with pytest.raises(MemoryError):
            function(8)
    assert tried == [8, 8]

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def never(microbatch):
        tried.append(microbatch)
        raise MemoryError

    with pytest.raises(MemoryError):
        never(8)
    assert tried[2:] == [8, 4, 2, 1]


@pytest.mark.parametrize('updates', [False, True])
def test_a_changed_model_is_not_trained_again(lines, updates):
    """A second start would train something else. Gradients that the failed call left are no longer there."""
    torch = pytest.importorskip('torch')
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.Adam(model.parameters())
    gradients = []

    @plimsoll.memory_efficient_training_wrapper(monitor=plimsoll.MemoryMonitor(log=lines.append))
    def step(model, microbatch):
        for _ in range(8 // microbatch):
            model(torch.ones(microbatch, 3)).sum().backward()
            if updates:
                optimizer.step()
            if microbatch > 4:
                raise MemoryError
        gradients.append(model.weight.grad.clone())

    if updates:
        with pytest.raises(MemoryError):
            step(model, 8)
        assert not gradients and 'not tried again' in lines.text and 'weight' in lines.text
    else:
        step(model, 8)
        assert torch.equal(gradients[0], torch.full((1, 3), 8.0))


def test_the_callback_of_lightning(lines, monkeypatch):
    class Callback:
        pass

    monkeypatch.delitem(sys.modules, 'lightning.pytorch', raising=False)
    monkeypatch.delitem(sys.modules, 'pytorch_lightning', raising=False)
    watched = plimsoll.MemoryMonitor(log_interval=2, log=lines.append)
    with pytest.raises(ImportError, match=r'lightning\.pytorch'):
        watched.lightning_callback()
    monkeypatch.setitem(sys.modules, 'pytorch_lightning', types.SimpleNamespace(Callback=Callback))
    callback = watched.lightning_callback()
    assert isinstance(callback, Callback)
    trainer = types.SimpleNamespace(global_step=0)
    callback.on_fit_start(trainer, None)
    for trainer.global_step in (1, 2, 3, 4):
        callback.on_train_batch_end(trainer, None, None, None, trainer.global_step)
    assert [line.split(':')[0] for line in lines] == ['Step 2', 'Step 4']
    callback.on_exception(trainer, None, MemoryError())
    assert 'plimsoll: out of memory' in lines.text and watched._thread is None


@pytest.mark.nightly
def test_a_lightning_trainer(lines):
    torch = pytest.importorskip('torch')
    lightning = pytest.importorskip('lightning.pytorch')

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            if index == 3:
                raise MemoryError
            return self.layer(batch).sum()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    callback = plimsoll.MemoryMonitor(log_interval=1, log=lines.append).lightning_callback()
    trainer = lightning.Trainer(max_epochs=1, accelerator='cpu', callbacks=[callback], logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    with pytest.raises(MemoryError):
        trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 2)))
    assert [line.split(':')[0] for line in lines[:3]] == ['Step 1', 'Step 2', 'Step 3']
    assert lines.text.count('plimsoll: out of memory') == 1


def test_real_loaders_and_models_are_read():
    torch = pytest.importorskip('torch')
    pytest.importorskip('torch_geometric')
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader as Theirs
    from torch_geometric.nn import GAT, GIN, GraphSAGE
    data = Data(x=torch.zeros(50, 6), edge_index=torch.randint(0, 50, (2, 300)), y=torch.arange(50) % 4)
    train_loader = Theirs(data, num_neighbors=[5, -1], batch_size=16, num_workers=2, persistent_workers=True, prefetch_factor=3)
    test_loader = Theirs(data, num_neighbors=[5, -1], batch_size=16, neighbor_sampler=train_loader.node_sampler)  # noqa: F841
    model = GraphSAGE(6, 32, num_layers=2, out_channels=4, dropout=0.5, norm='batch_norm')

    def train(loader):
        return advice.find(monitor._frames_of(None, sys._getframe()))

    found = train(train_loader)
    first = found.loader
    assert (first.name, first.batch_size, first.num_neighbors, first.num_workers) == ('train_loader', 16, (5, -1), 2)
    assert first.persistent_workers and first.prefetch_factor == 3 and not first.pin_memory and not first.ours
    assert first.graph == advice.Graph(50, 300, 6, 0, sorted=False, mapped=False)
    assert len(found.loaders) == 2 and len({one.sampler for one in found.loaders}) == 1
    assert found.model == advice.Model('model', 'sage', 32, 4, 2, 1, 'batch', 0.5, False)
    del model
    gat, gin = GAT(6, 32, num_layers=3, out_channels=4, heads=4), GIN(6, 16, num_layers=2, out_channels=4)
    assert advice._model('gat', gat) == advice.Model('gat', 'gat', 32, 4, 3, 4)
    assert advice._model('gin', gin) == advice.Model('gin', 'gin', 16, 4, 2)
    assert advice._model('none', torch.nn.Linear(2, 2)) is None


def test_our_own_loader_is_read(tmp_path):
    """Its graph and features are not in memory: only what the model computes can be made smaller."""
    pytest.importorskip('plimsoll.loader')
    pytest.importorskip('torch')
    dataset = plimsoll.generate('arxiv', tmp_path / 'graph', scale=0.01)
    loader = plimsoll.NeighborLoader(dataset, num_neighbors=[8, 6], batch_size=256, input_nodes='train', memory='1G')  # noqa: F841
    found = advice.find(monitor._frames_of(None, sys._getframe()))
    first = found.loader
    assert first.ours and (first.name, first.batch_size, first.num_neighbors, first.num_workers) == ('loader', 256, (8, 6), 0)
    assert (first.graph.num_nodes, first.graph.num_outputs) == (dataset.num_nodes, dataset.num_classes)
    suggested = advice.suggest(found, limit=1 << 30)
    assert {one.change.split('=')[0] for one in suggested.suggestions} == {'batch_size', 'num_neighbors'} and suggested.ask_mb is None


def test_workers_of_other_loaders_are_measured():
    """There is no estimate for a plain DataLoader; what its workers hold can be measured. The watching thread does not hinder forks."""
    pytest.importorskip('torch')
    script = textwrap.dedent('''
        import time
        import torch
        import plimsoll
        from plimsoll import monitor

        monitor.PREPARE_SECONDS = 0.1

        class Rows(torch.utils.data.Dataset):
            kept = None

            def __len__(self):
                return 64

            def __getitem__(self, index):
                self.kept = self.kept or b'x' * (50 << 20)
                return torch.zeros(4)

        watched = plimsoll.MemoryMonitor()

        @plimsoll.memory_efficient_training_wrapper(monitor=watched)
        def train(loader):
            for step, batch in enumerate(loader):
                while step == 4:
                    time.sleep(0.05)
                    if watched._workers[1] > 100 << 20:
                        raise MemoryError

        loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2)
        train(loader)
    ''')
    done = run_script(script, code=1)
    assert 'loader(batch_size=4, num_workers=2' in done.stdout
    [(saved, words)] = suggestions(done.stdout)
    assert words.startswith('num_workers=0 in loader: its 2 worker processes') and 100 < saved < 1000


def test_mapped_features_are_seen(tmp_path):
    torch = pytest.importorskip('torch')
    numpy = pytest.importorskip('numpy')
    numpy.save(tmp_path / 'x.npy', numpy.zeros((1000, 8), numpy.float32))
    assert advice._mapped(torch.from_numpy(numpy.load(tmp_path / 'x.npy', mmap_mode='c')))
    assert not advice._mapped(torch.zeros(1000, 8))


def test_nothing_of_the_script_is_kept_alive():
    """Looking at another thread's variables must not hold its batches."""
    import threading
    import weakref

    class Batch:
        pass

    ready, go, done = threading.Event(), threading.Event(), []

    def loop():
        batch = Batch()
        kept = weakref.ref(batch)
        ready.set()
        go.wait()
        del batch
        done.append(kept() is None)

    thread = threading.Thread(target=loop)
    thread.start()
    ready.wait()
    advice.find(monitor._frames_of(None, sys._current_frames()[thread.ident]))
    go.set()
    thread.join()
    assert done == [True]


@pytest.mark.nightly
def test_pygs_loaders_killed_while_they_sort():
    """A real script, killed where such scripts are killed: each loader sorts the edges for itself."""
    pytest.importorskip('torch_geometric')
    script = textwrap.dedent('''
        import os
        import pathlib
        import time

        import torch
        from torch_geometric.data import Data
        from torch_geometric.loader import NeighborLoader
        import plimsoll

        watched = plimsoll.MemoryMonitor(warn_at=0.6)

        @plimsoll.memory_efficient_training_wrapper(monitor=watched)
        def main():
            torch.set_num_threads(1)
            data = Data(x=torch.ones(100000, 64), edge_index=torch.randint(0, 100000, (2, 1000000)))
            loaders = []
            while True:
                if watched._warned or watched.summary()['left_mb'] > 80:  # it has the time from 154 to 176 MiB to speak
                    loaders.append(NeighborLoader(data, num_neighbors=[10, 5], batch_size=512))
                time.sleep(0.05)

        # What torch takes when it is imported differs from version to version, and stays with the group before.
        pathlib.Path('GROUP', 'cgroup.procs').write_text(str(os.getpid()))
        main()
    ''')
    with limited(256 * MIB) as group:
        done = run_script(script.replace('GROUP', str(group)), code=-signal.SIGKILL)
        assert kills(group) > 0
    assert 'graph: 100000 nodes, 1000000 edges, 64 features' in done.stdout
    found = suggestions(done.stdout)
    assert any('neighbor_sampler=' in words for _, words in found) and any('plimsoll.NeighborLoader' in words for _, words in found)


def test_wrong_settings():
    for arguments in ({'log_interval': 0}, {'warn_at': 0.0}, {'warn_at': 2}):
        with pytest.raises(ValueError, match=next(iter(arguments))):
            plimsoll.MemoryMonitor(**arguments)


def test_examples_in_the_documentation():
    assert doctest.testmod(monitor).failed == 0
