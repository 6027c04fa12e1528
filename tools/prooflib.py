"""Shared by the proofs and other tools: the binary under test, runs under a limit, the machine, results.

Sizes are bytes, times seconds. Nothing here writes a path of this machine into a result.
"""
import argparse
import datetime
import filecmp
import functools
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parent.parent
PROOFS = SOURCE / 'tools' / 'proofs'
RESULTS = SOURCE / 'bench' / 'results'
SKIPPED = 77
MIB = 1 << 20


def load_proof(name):
    """The module tools/proofs/NAME.py."""
    spec = importlib.util.spec_from_file_location(name.replace('-', '_'), PROOFS / f'{name}.py')
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    spec.loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def parser(doc, result=None):
    """Options of a proof: `result` is the file in bench/results/ that it writes without --json."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument('--json', type=pathlib.Path, default=RESULTS / result if result else None, metavar='FILE', help='where the result goes')
    return made


def result_path(options, name, whole):
    """Where a result goes: to --json, else to bench/results/NAME.json if the proof was run as a whole, else nowhere."""
    return options.json or (RESULTS / f'{name}.json' if whole else None)


def plimsoll():
    """The binary under test: $PLIMSOLL, else the release build's, else the development build's."""
    named = os.environ.get('PLIMSOLL')
    for path in [named] if named else [SOURCE / 'build' / kind / 'plimsoll' for kind in ('release', 'dev')]:
        if os.access(path, os.X_OK):
            return str(path)
    sys.exit('no plimsoll to test: build it (cmake --preset release && cmake --build --preset release) or set PLIMSOLL')


def skip(reason):
    print(f'SKIPPED: {reason}', file=sys.stderr)
    sys.exit(SKIPPED)


def call(*words, **options):
    """Runs plimsoll, output captured as text."""
    return subprocess.run([plimsoll(), *map(str, words)], capture_output=True, text=True, check=False, **options)


def run(*words, **options):
    """What a command prints that must succeed; the proof ends where it does not."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f'{" ".join(map(str, words))}: exit code {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}')
    return done.stdout


def must(*words, **options):
    """run() for plimsoll."""
    return run(plimsoll(), *words, **options)


def bench(name, *words):
    """The JSON object that the program bench/NAME.c beside the binary under test prints."""
    program = pathlib.Path(plimsoll()).parent / name
    if not program.exists():
        sys.exit(f'{program} is missing: cmake --build --preset release --target {name}')
    return json.loads(run(program, *words))


def end_after(child, seconds, number=signal.SIGKILL):
    """Sends a process a signal after so many seconds (None: never), unless it has ended; what it then says on standard error."""
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(number)
    return child.communicate()[1]


@functools.cache
def own_program(directory, mpi=None):
    """Words that run copies of the binary under test and its libraries (and of an MPI with its plugin). The kernel charges a page of a file to the
    group that read it first: with copies that is the group under test. The C library is not copied, since every process has it. Where
    there is no ldd, as in the guest of tools/prove guest-v2, the binary runs itself."""
    if not shutil.which('ldd'):
        return [plimsoll()]
    directory = pathlib.Path(directory) / 'lib'
    directory.mkdir(parents=True, exist_ok=True)
    onednn = [line.split()[-1] for line in subprocess.run(['ldconfig', '-p'], capture_output=True, text=True, check=False).stdout.splitlines()
              if re.match(r'\s*libdnnl\.so\.\d+ ', line)]
    onednn = list(map(str, (pathlib.Path(plimsoll()).parent / 'environment' / 'lib').glob('libdnnl.so.?'))) or onednn  # tools/test-onednn3's
    plugins = [pathlib.Path(plimsoll()).parent / f'plimsoll-{mpi}.so'] if mpi else []
    known = subprocess.run(['ldd', plimsoll(), *onednn, *plugins], capture_output=True, text=True, check=True).stdout
    for path in [plimsoll(), *onednn, *plugins, *re.findall(r'=> (/\S+)', known)]:
        copy = directory / os.path.basename(path)
        if not re.match(r'(libc|ld-linux.*)\.so', copy.name) and not (copy.exists() and filecmp.cmp(path, copy)):
            shutil.copy2(path, copy)
    return ['env', f'LD_LIBRARY_PATH={directory}', directory / os.path.basename(plimsoll())]


def drop_files(directory):
    """Drops the pages of files that no process maps, so that the next group that reads them is charged for them."""
    for path in pathlib.Path(directory).glob('*'):  # the guest has none
        with open(path, 'rb') as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def with_cache(directory):
    """An environment that keeps statistics in `directory`. With an empty one a run measures them under its limit, as a user's first run does."""
    return {**os.environ, 'XDG_CACHE_HOME': directory}


def limited(limit, *words, warm=False):
    """Runs a command through tools/limited, with an empty cache of statistics; its report, with 'stdout' and 'stderr'."""
    with tempfile.NamedTemporaryFile('r', suffix='.json') as report, tempfile.TemporaryDirectory() as cache:
        options = ['--json', report.name, *(['--warm'] if warm else []), '--']
        done = subprocess.run([SOURCE / 'tools' / 'limited', str(limit), *options, *map(str, words)],
                              capture_output=True, text=True, check=False, env=with_cache(cache))
        if done.returncode == SKIPPED and not os.path.getsize(report.name):
            skip(done.stderr.strip())
        return {**json.loads(report.read()), 'stdout': done.stdout, 'stderr': done.stderr}


def command_within(limit, *words):
    """Runs plimsoll in a cgroup of `limit`, which is its line too: the report, and the objects that it printed."""
    print('running', *words, file=sys.stderr)
    report = limited(limit, plimsoll(), *words, '--memory', limit, '--json', '--quiet')
    sys.stderr.write(report.pop('stderr'))
    return report, events(report.pop('stdout'))


def claim_alive(claims, name, report, most=None):
    """Adds the claim that a command ended well, its peak at most `most` bytes, by default its limit."""
    most = report['limit'] if most is None else most
    claims[f'{name}: ends with 0, not killed, peak {report["peak"] / MIB:.0f} MiB within {most / MIB:.0f}, {report["seconds"]:.0f} s'] = (
        report['exit'] == 0 and report['oom_kill'] == 0 and report['peak'] <= most)


def claim_bounded(claims, verb, report, memory):
    """Adds the claims that a verb ended well within its line, and that it left the page cache to others."""
    claims[f'{verb} ends with 0, not killed (exit {report["exit"]}, oom_kill {report["oom_kill"]})'] = report['exit'] == 0 and report['oom_kill'] == 0
    claims[f'peak {report["peak"] / MIB:.0f} MiB within the line of {memory}'] = report['peak'] <= report['limit']
    claims[f'cache + dirty {report["max_cache_and_dirty"] / MIB:.1f} MiB, at most 64'] = report['max_cache_and_dirty'] <= 64 * MIB


class Limited:
    """A command under tools/limited whose group can be read and changed while it runs; `output` is its standard output."""

    def __init__(self, limit, *words, warm=False, environment=None):
        self._report, self._errors = tempfile.NamedTemporaryFile('r', suffix='.json'), tempfile.TemporaryFile('w+')
        self._cache = tempfile.TemporaryDirectory()
        options = ['--json', self._report.name, *(['--warm'] if warm else []), '--']
        self._child = subprocess.Popen([SOURCE / 'tools' / 'limited', str(limit), *options, *map(str, words)],
                                       stdout=subprocess.PIPE, stderr=self._errors, text=True, env={**with_cache(self._cache.name), **(environment or {})})
        self.output = self._child.stdout
        root = pathlib.Path('/sys/fs/cgroup')
        self._v1 = (root / 'memory' / 'memory.limit_in_bytes').exists()
        self.group = (root / 'memory' if self._v1 else root) / f'plimsoll-limited-{self._child.pid}'

    def peak(self):
        return int((self.group / ('memory.max_usage_in_bytes' if self._v1 else 'memory.peak')).read_text())

    def set_limit(self, limit):
        (self.group / ('memory.limit_in_bytes' if self._v1 else 'memory.max')).write_text(str(limit))

    def end(self):
        """Waits; the report as of limited(), with 'stderr'."""
        code = self._child.wait()
        self._errors.seek(0)
        printed, report = self._errors.read(), self._report.read()
        if code == SKIPPED and not report:
            skip(printed.strip())
        return {**json.loads(report), 'stderr': printed}


def events(text):
    """The JSON objects of a verb's --json output."""
    return [json.loads(line) for line in text.splitlines() if line.startswith('{')]


def last_json(text):
    """The last JSON object of a verb's --json output, or an empty one."""
    return (events(text) or [{}])[-1]


def timeline(run):
    """The intervals in the timeline of a training; its plans are left out."""
    lines = [json.loads(line) for line in (pathlib.Path(run) / 'timeline.jsonl').read_text().splitlines()]
    return [line for line in lines if 'kind' not in line]


def digest(directory):
    """Name, size and content of every file below a directory, as one hash."""
    whole = hashlib.blake2b()
    for path in sorted(pathlib.Path(directory).rglob('*')):
        whole.update(str(path.relative_to(directory)).encode() + b'\0')
        if path.is_file():
            with open(path, 'rb') as file:
                whole.update(hashlib.file_digest(file, 'blake2b').digest())
    return whole.hexdigest()


def file_digest(*paths):
    """The content of some files as one hash."""
    whole = hashlib.blake2b(digest_size=16)
    for path in paths:
        whole.update(pathlib.Path(path).read_bytes())
    return whole.hexdigest()


def build_digest(*more):
    """A hash of what is tested: results of another build do not count."""
    binary = pathlib.Path(plimsoll())
    return file_digest(binary, *sorted(binary.parent.glob('libplimsoll.so.*.*.*')), *more)


class Log:
    """Results so far, a line of JSON each, by a key; those of another `head` do not count, so the same command goes on where it was interrupted."""

    def __init__(self, path, **head):
        self.path, self.head = path, head
        self.read()

    def read(self):
        known = [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []
        self.found = {one['key']: one['result'] for one in known if one['head'] == self.head}

    def get(self, key, compute):
        if key not in self.found:
            self.read()  # another proof may have computed it
        if key not in self.found:
            self.found[key] = compute()
            with open(self.path, 'a') as file:
                file.write(json.dumps({'head': self.head, 'key': key, 'result': self.found[key]}) + '\n')
            print(key, json.dumps(self.found[key])[:400], file=sys.stderr)
        return self.found[key]


def read_safetensors(path):
    """A checkpoint: its metadata, its tensors' descriptions and their content as one hash."""
    whole = pathlib.Path(path).read_bytes()
    size = int.from_bytes(whole[:8], 'little')
    tensors = json.loads(whole[8:8 + size])
    return {'metadata': tensors.pop('__metadata__', {}), 'tensors': tensors, 'digest': hashlib.blake2b(whole[8 + size:], digest_size=16).hexdigest()}


def flip(path, bit):
    """Flips one bit of a file."""
    with open(path, 'r+b') as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def draw_place(draw, files, weighted):
    """A file and a bit of it: any of all bytes alike, or any of all files."""
    sizes = [path.stat().st_size for path in files]
    path = draw.choices(files, sizes)[0] if weighted else draw.choice(files)
    return path, draw.randrange(path.stat().st_size * 8)


def parse_size(text):
    """Bytes of a size such as 256M, 1.5GiB or 4096; None for max."""
    if text == 'max':
        return None
    digits = text.upper().removesuffix('B').removesuffix('I')
    shift = {'K': 10, 'M': 20, 'G': 30, 'T': 40}.get(digits[-1:], 0)
    return int(float(digits[:-1] if shift else digits) * (1 << shift))


def test_data():
    """Where the real data lies, if it does."""
    return pathlib.Path(os.environ.get('PLIMSOLL_TEST_DATA') or SOURCE.parent / 'shared' / 'data')


def python_package(*modules):
    """Lets the Pythons that are started import the package beside the binary under test; skips where that or another module is missing."""
    package = pathlib.Path(plimsoll()).parent / 'python'
    os.environ['PYTHONPATH'] = os.pathsep.join([str(package), *filter(None, [os.environ.get('PYTHONPATH')])])
    names = ', '.join(['plimsoll', *modules])
    if subprocess.run([sys.executable, '-c', f'import {names}'], check=False).returncode != 0:
        skip(f'{sys.executable} cannot import {names} (plimsoll from {package})')


def drop_caches():
    os.sync()
    try:
        pathlib.Path('/proc/sys/vm/drop_caches').write_text('3')
    except PermissionError:
        print('not root: the page cache stays warm', file=sys.stderr)


def timed(*words):
    """Runs a command from a cold page cache and returns its seconds; it must succeed."""
    drop_caches()
    began = time.monotonic()
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    return round(time.monotonic() - began, 2)


def require_room(directory, needed):
    """Exits when the disk below `directory` has less than `needed` bytes free."""
    free = shutil.disk_usage(directory).free
    if free < needed:
        sys.exit(f'this needs {needed / 1e9:.1f} GB of disk, {free / 1e9:.1f} GB are free: choose another --dir')


class Disk:
    """A small file system in a file, mounted (root only); `refused` says why it is not. fill() takes its space as another process would."""

    def __init__(self, folder, size, *make):
        make = make or ('mkfs.ext4', '-q', '-m', '0')
        image, self.path, self.refused = folder / 'image', folder / 'disk', ''
        self.path.mkdir()
        with open(image, 'wb') as file:
            file.truncate(size)
        for words in [*make, image], ['mount', '-o', 'loop', image, self.path]:
            if not shutil.which(words[0]):
                self.refused = f'{words[0]} is not here'
                return
            done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                self.refused = f'{words[0]}: {done.stderr.strip()}'
                return
        self.before = set(os.listdir(self.path))

    def fill(self, leave=0):
        """Takes the free space except for `leave` bytes."""
        with open(self.path / 'other', 'ab') as file:
            step = 64 * MIB
            while step >= 4096:
                try:
                    if leave and shutil.disk_usage(self.path).free - leave < step:
                        raise OSError
                    os.posix_fallocate(file.fileno(), file.tell(), step)
                    file.seek(0, os.SEEK_END)
                except OSError:
                    step //= 2

    def empty(self):
        """Gives back what `fill` took."""
        (self.path / 'other').unlink()

    def stray(self):
        return set(os.listdir(self.path)) - self.before

    def close(self):
        subprocess.run(['umount', self.path], check=False)


def machine():
    cpu = re.search(r'model name\s*: (.*)', pathlib.Path('/proc/cpuinfo').read_text())
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return {'cpu': cpu.group(1) if cpu else platform.machine(), 'cores': len(os.sched_getaffinity(0)),
            'memory_bytes': memory, 'kernel': platform.release()}


def revision():
    """The commit under test, with a plus sign when the tree has changes that are not in it."""
    if not shutil.which('git'):
        return 'unknown'

    def git(*words):
        return subprocess.run(['git', '-C', SOURCE, *words], capture_output=True, text=True, check=False).stdout.strip()
    return (git('rev-parse', '--short=12', 'HEAD') or 'unknown') + ('+' if git('status', '--porcelain', '-uno') else '')


def without_paths(value):
    """The same value with absolute paths cut down to their last name."""
    if isinstance(value, dict):
        return {name: without_paths(item) for name, item in value.items()}
    if isinstance(value, list):
        return [without_paths(item) for item in value]
    return os.path.basename(value) if isinstance(value, str) and value.startswith('/') else value


# Figures of plans, timelines and control groups that no claim and no page uses.
DETAILS = {'plan', 'phases', 'accounts', 'timeline', 'marks', 'values', 'max_cache', 'max_file', 'max_dirty', 'max_anon', 'max_kernel', 'max_cache_and_dirty',
           'cpu_user', 'cpu_system', 'bytes_read', 'bytes_written', 'failcnt'}


def compact(value):
    """The value without DETAILS, with floats of five digits and texts of at most 300 characters."""
    if isinstance(value, dict):
        return {name: compact(item) for name, item in value.items() if name not in DETAILS}
    if isinstance(value, (list, tuple)):
        return [compact(item) for item in value]
    if isinstance(value, str):
        return value[:300]
    return float(f'{value:.5g}') if isinstance(value, float) else value


def to_lines(value, margin=''):
    """JSON with a line for each case (an object in a list), and for whatever else is short."""
    text = json.dumps(value)
    if not isinstance(value, (dict, list)) or margin and len(margin + text) <= 160:
        return text
    inner = margin + ' '
    if isinstance(value, dict):
        lines = [f'{json.dumps(name)}: {to_lines(item, inner)}' for name, item in value.items()]
    else:
        lines = [json.dumps(item) if isinstance(item, dict) else to_lines(item, inner) for item in value]
    begin, end = '{}' if isinstance(value, dict) else '[]'
    return f'{begin}\n{inner}' + f',\n{inner}'.join(lines) + f'\n{margin}{end}'


def record(path, claims, **facts):
    """Writes a result and says whether every claim holds; claims maps a sentence to True or False."""
    result = {'date': datetime.date.today().isoformat(), 'revision': revision(), 'machine': machine(),
              **compact(without_paths(facts)), 'claims': claims}
    if path:
        path = pathlib.Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_lines(result) + '\n')
    for sentence, holds in claims.items():
        print(('holds:  ' if holds else 'BROKEN: ') + sentence)
    return all(claims.values())
