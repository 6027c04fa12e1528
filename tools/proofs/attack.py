"""Feeds forged and damaged files to every command: nothing crashes, hangs, or touches what it was not given.

    tools/prove attack [N] [--seed S] [--first I] [--jobs J] [--keep DIR] [--binary PLIMSOLL]

Makes small datasets (nodes, graphs), runs, caches, archives and sources of every kind, and N times (2,000) copies one of them, changes
one to three places in it that mean something (numbers of dataset.json, run.json and of checkpoints' headers and notes, .npy headers
and values, zip, gzip and zstd structures, YAML, texts, cached and packed files; files that are cut, swapped, sparse and terabytes
long, or links, pipes and directories; option values), with checksums and seals made to agree in most cases, and runs the commands that
would read it. A case fails on: a signal; a report of a sanitizer; no end within --patience seconds (60); an exit code other than 0,
1, 2, 3, 4, 5, 6 and 75; a control character in what is printed; a file changed, made or removed outside of what the command may write.

The binary is build/asan/plimsoll where it is there (else as of other proofs): build it first, with ASan and UBSan. Case I of seed S is
always the same; `--first I 1` repeats it, `--keep DIR` leaves it there. The result of 2,000 goes to bench/results/attack.json. Ten
minutes on two cores.
"""
import collections
import concurrent.futures
import gzip
import io
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
import zlib

import prooflib

try:
    import numpy as np
    import xxhash
    sys.path.insert(0, str(prooflib.SOURCE / 'tests' / 'support'))
    import importing as sources
except ImportError as error:
    prooflib.skip(f'it needs a Python module that is not here: {error}')

warnings.filterwarnings('ignore', 'Duplicate name')
# LeakSanitizer of gcc 12 sometimes guesses wrongly where oneDNN's thread-local storage begins, and reads there.
LEAKS = 'intercept_tls_get_addr=0'
DOCUMENTED = {0, 1, 2, 3, 4, 5, 6, 75}
REPORTS = re.compile(r'ERROR: \w+Sanitizer|runtime error:|SUMMARY: \w+Sanitizer')
# Of what is printed: everything below a blank but newlines, DEL, and C1.
CONTROL = re.compile('[\x00-\x09\x0b-\x1f\x7f\x80-\x9f]')
EXTREMES = [0, -1, 1, 2, 3, 127, 255, 256, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53, 2**62, 2**63 - 1, 2**63,
            2**64 - 1, 2**64, -2**31, -2**63, 10**30]
REALS = [0.0, -0.0, 1e308, -1e308, 5e-324, 1e-300, 0.5, 1.0, 1e18, 1.5]
TEXTS = ['', 'x', '\x1b[2J\x1b]0;owned\x07', '\u009b31m', 'a\nb', '\r', '../../outside/victim', '/', '.', '..', 'é' * 40, 'x' * 300, 'y' * 70000,
         '%s%n%d', 'nan', 'inf', '-1', '1e999', '9' * 400, '\ufeff', '~', '-', '--help', 'NaN', '0x10', ' 1', '1 ', '\u202e']


# --- one case: its directory, its draws, what was changed

class Case:
    """`root` holds target/ (what may be written), outside/ (what may not), home/, tmp/ and cwd/."""

    def __init__(self, root, base, seed, index):
        self.root, self.base, self.index = root, base, index
        self.draw = random.Random(f'{seed}/{index}')
        self.changes, self.commands, self.writable = [], [], []
        self.environment = {}
        for name in ('target', 'outside', 'home', 'tmp', 'cwd', 'cache'):
            (root / name).mkdir(parents=True)
        for name in ('victim', 'victim.npy', 'metrics.jsonl'):
            (root / 'outside' / name).write_bytes(b'{"mine": 1}\n' * 3 + name.encode())
        (root / 'outside' / 'directory').mkdir()
        (root / 'outside' / 'directory' / 'file').write_text('kept\n')

    def copy(self, name, to=None):
        """A copy of a thing of the base, in target/."""
        path = self.root / 'target' / (to or name)
        source = self.base / name
        if source.is_dir():
            shutil.copytree(source, path, symlinks=True)
        else:
            shutil.copy2(source, path)
        return path

    def note(self, text):
        self.changes.append(text)

    def run(self, *words, writes=()):
        """A command to run, and the paths that it may write."""
        self.commands.append([str(word) for word in words])
        self.writable += [pathlib.Path(path) for path in writes]

    def one(self, *choices):
        return self.draw.choice(choices)

    def extreme(self):
        return self.draw.choice(EXTREMES)


def number_near(case, value):
    """Another number: an extreme, or a neighbour of the one that was there."""
    if case.draw.random() < 0.3:
        return value + case.one(-1, 1, 2, -2)
    return case.extreme()


# --- JSON

class Raw:
    """A text that stands in JSON as it is."""

    def __init__(self, text):
        self.text = text


def dump(value):
    """JSON as a stranger would write it: raw pieces and doubled keys allowed."""
    if isinstance(value, Raw):
        return value.text
    if isinstance(value, dict):
        pairs = [(key, item) for key, item in value.items() if not isinstance(key, tuple)]
        pairs += [(key[0], item) for key, item in value.items() if isinstance(key, tuple)]
        return '{' + ', '.join(f'{json.dumps(key)}: {dump(item)}' for key, item in pairs) + '}'
    if isinstance(value, list):
        return '[' + ', '.join(map(dump, value)) + ']'
    return json.dumps(value)


def places(value, path=()):
    """Every (container, key) below a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield value, key, path + (key,)
        yield from places(item, path + (key,))


def another_value(case, value):
    kind = case.draw.random()
    if isinstance(value, bool) or value is None:
        return case.one(True, False, None, 1, 'true', [])
    if isinstance(value, (int, float)) and kind < 0.75:
        return number_near(case, int(value)) if isinstance(value, int) else case.draw.choice(REALS)
    if isinstance(value, str) and kind < 0.6:
        return case.draw.choice(TEXTS)
    if isinstance(value, list) and kind < 0.6:
        return case.one([], value + value, value[:-1], value * 50, [value], list(reversed(value)))
    return case.one(None, True, [], {}, 'text', 0, -1, case.extreme(), case.draw.choice(REALS), Raw('NaN'), Raw('1e400'), Raw('-0'),
                    Raw('[' * 3000 + ']' * 3000), Raw('"\\u0000"'), Raw('"\\ud800"'), Raw('"\x7f\xc2\x9b"'))


def change_json(case, root, only=None):
    """Changes one place of a JSON value in place."""
    every = [place for place in places(root) if only is None or only(place[2])]
    if not every:
        return
    holder, key, path = case.draw.choice(every)
    how = case.draw.random()
    where = '/'.join(map(str, path))
    if how < 0.08:
        del holder[key]
        case.note(f'{where} removed')
    elif how < 0.12 and isinstance(holder, dict):
        holder[(key,)] = another_value(case, holder[key])
        case.note(f'{where} twice')
    else:
        holder[key] = another_value(case, holder[key])
        case.note(f'{where} = {dump(holder[key])[:60]}')


# --- dataset.json and the arrays below it

def hash_of(data):
    return xxhash.xxh3_64_intdigest(data)


def fingerprint(manifest):
    whole = xxhash.xxh3_64()
    for file in manifest['files']:
        whole.update(file['name'].encode() + b'\0' + file['dtype'].encode() + b'\0')
        for number in [len(file['shape']), *file['shape'], file['bytes'], *(int(text, 16) for text in file['checksums'])]:
            whole.update((number % 2**64).to_bytes(8, 'little'))
    return f'{whole.intdigest():016x}'


def write_sealed(path, value, sealed=True):
    """JSON that ends with its own checksum, as dataset.json and run.json do."""
    if isinstance(value, dict):
        value.pop('self', None)
    text = dump(value)
    if not sealed or not text.endswith('}'):
        path.write_bytes(text.encode('utf-8', 'surrogatepass'))
        return
    head = (text[:-1] + ', "self": "').encode('utf-8', 'surrogatepass')
    path.write_bytes(head + f'{hash_of(head):016x}"\n}}\n'.encode())


def write_manifest(folder, manifest, settle=True):
    """Writes dataset.json with the fingerprint and the seal that belong to it."""
    if settle:
        try:
            manifest['fingerprint'] = fingerprint(manifest)
        except (KeyError, TypeError, ValueError, AttributeError):
            pass
    write_sealed(folder / 'dataset.json', manifest)


def read_manifest(folder):
    manifest = json.loads((folder / 'dataset.json').read_text())
    del manifest['self']
    return manifest


def settle_files(folder, manifest):
    """Sizes and checksums of the files as they are now, as far as they can be read."""
    for file in manifest['files']:
        path = folder / file['name']
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
            data = path.read_bytes()
            file['bytes'] = len(data)
            file['checksums'] = [f'{hash_of(data[at:at + (64 << 20)]):016x}' for at in range(0, len(data), 64 << 20)]


def forge_manifest(case, folder):
    manifest = read_manifest(folder)
    interesting = case.one(None, lambda path: path[0] != 'files', lambda path: str(path[0]).startswith('num_') or path[0] == 'max_degree')
    for _ in range(case.draw.randint(1, 2)):
        change_json(case, manifest, interesting)
    write_manifest(folder, manifest, case.draw.random() < 0.9)


def forge_consistent(case, folder):
    """A dataset that agrees with itself and is impossible: a width, a length or a class count that is huge, with sparse files of
    that size."""
    manifest = read_manifest(folder)
    what = case.one('classes', 'features', 'targets', 'edges', 'nodes', 'split')
    number = case.one(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**33, 2**20, 2**24, 2**24 + 1, 2**40, 2**53, 100000)
    case.note(f'{what} = {number}, consistently')
    files = {file['name']: file for file in manifest['files']}
    if what == 'classes':
        manifest['num_classes'] = number
    elif what == 'features':
        manifest['num_features'] = number
        resize(folder, files['features.npy'], [manifest['num_nodes'], number], '<f2')
        manifest['feature_type'] = 'float16'
    elif what == 'targets':
        manifest.update(num_targets=number, num_classes=0, label_kind='values')
        resize(folder, files['labels.npy'], [manifest['num_labels'], number], '<f4')
    elif what == 'split':
        manifest['num_train'] = number
        resize(folder, files['train.npy'], [number], '<i8')
    elif what == 'edges':
        manifest['num_edges'] = number
        resize(folder, files['indices.npy'], [number], '<i4')
    else:
        manifest.update(num_nodes=number, degrees_log2=[number], max_degree=0)
        if not manifest['num_graphs']:
            manifest['num_labels'] = number
            if 'labels.npy' in files:
                resize(folder, files['labels.npy'], [number], '<i8')
        resize(folder, files['indptr.npy'], [number + 1], '<i8')
        resize(folder, files['features.npy'], [number, manifest['num_features']], files['features.npy']['dtype'])
    write_manifest(folder, manifest)


def resize(folder, file, shape, dtype):
    """Another shape in the header, a file that is as long (sparse), and checksums as many as there must be."""
    size = 4096 + int(np.prod([int(n) for n in shape], dtype=object)) * int(dtype[-1])
    file.update(shape=shape, dtype=dtype, bytes=size)
    path = folder / file['name']
    head = npy_header(shape, dtype)
    pieces = (size - 1) // (64 << 20) + 1
    file['checksums'] = ['0' * 16] * min(pieces, 200000)
    with open(path, 'r+b') as out:
        out.write(head)
        try:
            out.truncate(min(size, 1 << 42))
        except OSError:
            pass


def npy_header(shape, dtype, size=4096):
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''}), }}"
    return b'\x93NUMPY\x01\x00' + (size - 10).to_bytes(2, 'little') + text.encode().ljust(size - 11) + b'\n'


def change_values(case, path, header=4096):
    """Puts extreme values into an array's data."""
    data = bytearray(path.read_bytes())
    if len(data) <= header:
        return
    found = re.search(rb"'descr': '[<|](\w)(\d)'", data[:header])
    kind, size = (found[1].decode(), int(found[2])) if found else ('i', 8)
    for _ in range(case.draw.choice([1, 1, 2, 8])):
        at = header + case.draw.randrange((len(data) - header) // size) * size
        if kind == 'f':
            raw = np.array(case.one(np.nan, np.inf, -np.inf, 1e30, 6e4, -0.0), f'<f{size}').tobytes()
        else:
            raw = (case.extreme() % 2**(8 * size)).to_bytes(size, 'little')
        data[at:at + size] = raw
        case.note(f'{path.name}[{(at - header) // size}] = {raw.hex()}')
    path.write_bytes(data)


def forge_arrays(case, folder):
    manifest = read_manifest(folder)
    names = [file['name'] for file in manifest['files']]
    for _ in range(case.draw.randint(1, 2)):
        path = folder / case.draw.choice(names)
        case.one(change_values, change_values, change_npy_header, flip_bits, cut_or_extend)(case, path)
    if case.draw.random() < 0.85:
        settle_files(folder, manifest)
        write_manifest(folder, manifest)
        case.note('checksums made to agree')


# --- any file

def flip_bits(case, path):
    data = bytearray(path.read_bytes())
    for _ in range(case.draw.choice([1, 1, 3, 20])):
        if data:
            bit = case.draw.randrange(8 * min(len(data), case.one(64, 4096, len(data))))
            data[bit // 8] ^= 1 << bit % 8
            case.note(f'{path.name}: bit {bit}')
    path.write_bytes(data)


def cut_or_extend(case, path):
    size = path.stat().st_size
    length = case.one(0, 1, size // 2, max(size - 1, 0), size + 1, size + 4096, max(size - case.draw.randint(1, 64), 0))
    case.note(f'{path.name}: {size} bytes made {length}')
    with open(path, 'r+b') as file:
        file.truncate(length)


def splice(case, path):
    """A piece of the file copied over another."""
    data = bytearray(path.read_bytes())
    if len(data) < 8:
        return
    size = case.draw.randint(1, min(64, len(data) // 2))
    source, to = (case.draw.randrange(len(data) - size + 1) for _ in range(2))
    case.note(f'{path.name}: {size} bytes from {source} to {to}')
    data[to:to + size] = data[source:source + size]
    path.write_bytes(data)


def replace_file(case, path):
    """Something else under the name."""
    outside = case.root / 'outside'
    how = case.one('missing', 'directory', 'fifo', 'link', 'dangling', 'loop', 'sparse', 'sparse', 'empty', 'other', 'device', 'unreadable')
    case.note(f'{path.name}: {how}')
    other = [file for file in path.parent.iterdir() if file.is_file() and file != path and file.stat().st_size < 1 << 24]
    if how == 'other' and other:
        data = case.draw.choice(sorted(other)).read_bytes()
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif how not in ('sparse', 'unreadable') and (path.exists() or path.is_symlink()):
        path.unlink()
    if how == 'directory':
        path.mkdir()
    elif how == 'fifo':
        os.mkfifo(path)
    elif how == 'link':
        path.symlink_to(case.one(outside / 'victim', outside / 'victim.npy', outside / 'directory', '../../outside/metrics.jsonl'))
    elif how == 'dangling':
        path.symlink_to(outside / 'made')
    elif how == 'loop':
        path.symlink_to(path.name)
    elif how == 'device':
        path.symlink_to(case.one('/dev/zero', '/dev/null', '/dev/full'))
    elif how == 'sparse':
        with open(path, 'ab') as file:
            file.truncate(case.one(1 << 32, 1 << 40, 1 << 42))
    elif how == 'empty':
        path.write_bytes(b'')
    elif how == 'unreadable':
        path.chmod(0)
    elif how == 'other' and other:
        path.write_bytes(data)


def is_plain(path):
    """A file that can be read here: no pipe, no link to a device, not terabytes long."""
    return path.is_file() and not path.is_symlink() and path.stat().st_size <= 1 << 24


def damage(case, path):
    if not is_plain(path):
        return replace_file(case, path)
    return case.one(flip_bits, cut_or_extend, splice, replace_file)(case, path)


# --- .npy

def change_npy_header(case, path):
    data = bytearray(path.read_bytes())
    if len(data) < 12 or data[:6] != b'\x93NUMPY':
        return flip_bits(case, path)
    length = struct.unpack_from('<H', data, 8)[0]
    text = data[10:10 + length].decode('latin-1')
    how = case.one('dimension', 'dimension', 'dtype', 'order', 'length', 'text', 'dims')
    if how == 'dimension':
        numbers = list(re.finditer(r'\d+', text[text.index('(') if '(' in text else 0:]))
        if numbers:
            chosen = case.draw.choice(numbers)
            begin = text.index('(') + chosen.start()
            text = text[:begin] + str(number_near(case, int(chosen[0]))) + text[begin + len(chosen[0]):]
    elif how == 'dtype':
        text = re.sub(r"'descr': '[^']*'", lambda _: "'descr': " + case.one("'<i4'", "'>f4'", "'|O'", "'<f8'", "'<U9'", "[('a','<i4')]",
                                                                            "'|u1'", "'<c8'", "'\x1b[31m'", "'|b1'"), text)
    elif how == 'order':
        text = text.replace('False', case.one('True', 'None', '0', 'True or 1'))
    elif how == 'dims':
        text = re.sub(r'\([^)]*\)', '(' + '1, ' * case.one(0, 3, 5, 33, 2000) + ')', text)
    elif how == 'text':
        at = case.draw.randrange(len(text))
        text = text[:at] + case.one("'", '{', '}', '\0', ',', '(', '9' * 30, '#') + text[at + 1:]
    case.note(f'{path.name}: header {how}: {text.strip()[:90]}')
    body = data[10 + length:]
    coded = text.rstrip(' \n').encode('latin-1')
    coded = (coded.ljust(length - 1) if len(coded) < length else coded) + b'\n'
    told = case.one(0, 1, 65535, length + 64, length - 1) if how == 'length' else len(coded)
    path.write_bytes(data[:8] + struct.pack('<H', max(0, min(told, 65535))) + coded + body)


def change_npy(case, path):
    data = path.read_bytes()
    header = 10 + struct.unpack_from('<H', data, 8)[0] if len(data) > 10 and data[:6] == b'\x93NUMPY' else 0
    case.one(change_npy_header, change_npy_header, lambda c, p: change_values(c, p, header), damage)(case, path)


# --- safetensors

def change_safetensors(case, path):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], 'little')
    header, body = json.loads(data[8:8 + length]), data[8 + length:]
    how = case.one('notes', 'notes', 'notes', 'header', 'header', 'length', 'values', 'damage', 'settings')
    if how == 'damage':
        return damage(case, path)
    if how == 'length':
        told = case.one(0, 1, 7, len(data), len(data) - 8, 2**31, 2**32, 2**63 - 1, 2**63, 2**64 - 1, length + 1, length - 1)
        case.note(f'{path.name}: header length {told}')
        return path.write_bytes(told.to_bytes(8, 'little') + data[8:])
    if how == 'notes':
        notes = header['__metadata__']
        key = case.draw.choice(sorted(notes))
        notes[key] = case.one(str(case.extreme()), str(case.extreme()), str(case.draw.choice(REALS)), case.draw.choice(TEXTS), 'nan', '-inf',
                              '0x1p-1074', case.extreme(), None)
        case.note(f'{path.name}: note {key} = {str(notes[key])[:60]}')
    elif how == 'settings':
        try:
            settings = json.loads(header['__metadata__']['settings'])
            change_json(case, settings)
            header['__metadata__']['settings'] = dump(settings)
        except (KeyError, ValueError, TypeError):
            pass
    elif how == 'header':
        change_json(case, header)
    else:
        body = bytearray(body)
        for _ in range(case.draw.randint(1, 3)):
            at = case.draw.randrange(max(len(body) // 4, 1)) * 4
            body[at:at + 4] = np.array(case.one(np.nan, np.inf, 3e38, -1e20, 0), '<f4').tobytes()
        case.note(f'{path.name}: values')
    write_safetensors(path, header, bytes(body), case.draw.random() < 0.8)
    return None


def write_safetensors(path, header, body, sealed=True):
    """With the checksums that a checkpoint carries of itself, of its header and of each tensor; or as another program would write it."""
    notes = header.get('__metadata__')
    front = '{"__metadata__": {"checksum":"'
    if sealed and isinstance(notes, dict):
        tensors = [item for key, item in header.items() if key != '__metadata__']
        digits = ''.join(tensor_digits(tensor, body) for tensor in sorted(tensors, key=tensor_begin))
        rest = dump({key: item for key, item in notes.items() if key not in ('checksum', 'checksums')})[1:]
        others = dump({key: item for key, item in header.items() if key != '__metadata__'})[1:]
        text = f'{front}{"0" * 16}","checksums":"{digits}"' + (', ' if rest != '}' else '') + rest + (', ' if others != '}' else '') + others
    else:
        sealed, text = False, dump(header)
    text = text.encode('utf-8', 'surrogatepass')
    text += b' ' * (-len(text) % 8)
    whole = len(text).to_bytes(8, 'little') + text
    if sealed:
        at = 8 + len(front)
        whole = whole[:at] + f'{hash_of(whole):016x}'.encode() + whole[at + 16:]
    path.write_bytes(whole + body)


def tensor_begin(tensor):
    try:
        return int(tensor['data_offsets'][0])
    except (TypeError, KeyError, IndexError, ValueError):
        return 0


def tensor_digits(tensor, body):
    try:
        begin, end = tensor['data_offsets']
        return f'{hash_of(body[begin:end]):016x}'
    except (TypeError, KeyError, ValueError):
        return '0' * 16


# --- zip, gzip, zstd

def rewrite_zip(case, path):
    """The same members with other names, methods, sizes, or listed otherwise."""
    data = bytearray(path.read_bytes())
    locals_at = [match.start() for match in re.finditer(b'PK\x03\x04', data)]
    central_at = [match.start() for match in re.finditer(b'PK\x01\x02', data)]
    ends_at = [match.start() for match in re.finditer(b'PK\x05\x06|PK\x06\x06|PK\x06\x07', data)]
    how = case.one('local', 'central', 'both', 'end', 'names', 'members', 'damage', 'damage', 'nested')
    fields = {'local': [(4, 2), (6, 2), (8, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)],
              'central': [(4, 2), (8, 2), (10, 2), (16, 4), (20, 4), (24, 4), (28, 2), (30, 2), (32, 2), (34, 2), (42, 4)]}
    if how in ('local', 'central') and locals_at and central_at:
        at = case.draw.choice(locals_at if how == 'local' else central_at)
        offset, size = case.draw.choice(fields[how])
        value = case.extreme() % 2**(8 * size)
        case.note(f'{path.name}: {how} header at {at}, field {offset} = {value}')
        data[at + offset:at + offset + size] = value.to_bytes(size, 'little')
    elif how == 'both' and locals_at and central_at:
        number = case.draw.randrange(min(len(locals_at), len(central_at)))
        local, central = case.draw.choice(list(zip([6, 8, 14, 18, 22], [8, 10, 16, 20, 24])))
        size = 2 if local < 14 else 4
        value = case.extreme() % 2**(8 * size)
        case.note(f'{path.name}: member {number}, field {local} = {value} in both headers')
        for at in (locals_at[number] + local, central_at[number] + central):
            data[at:at + size] = value.to_bytes(size, 'little')
    elif how == 'end' and ends_at:
        at = case.draw.choice(ends_at)
        offset = case.draw.randrange(4, 22)
        case.note(f'{path.name}: end record at {at}, byte {offset}')
        data[at + offset] = case.draw.randrange(256)
    elif how in ('names', 'members', 'nested'):
        return repack(case, path, how)
    else:
        return damage(case, path)
    path.write_bytes(data)
    return None


def repack(case, path, how):
    out = io.BytesIO()
    with zipfile.ZipFile(path) as archive, zipfile.ZipFile(out, 'w') as made:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
        chosen = case.draw.randrange(len(members))
        if how == 'names':
            new = case.one('../../outside/made', '/tmp/made', 'a' * 60000, '', members[0][0], members[0][0] + '/', '\x1b[31m.npy', 'x\0y.npy',
                           members[chosen][0].upper())
            case.note(f'{path.name}: {members[chosen][0]} called {new[:40]!r}')
            members[chosen] = (new, members[chosen][1])
        elif how == 'members':
            change = case.one('twice', 'missing', 'shuffled', 'empty', 'bytes')
            case.note(f'{path.name}: {members[chosen][0]} {change}')
            if change == 'twice':
                members.insert(case.draw.randrange(len(members)), members[chosen])
            elif change == 'missing':
                del members[chosen]
            elif change == 'shuffled':
                case.draw.shuffle(members)
            elif change == 'empty':
                members[chosen] = (members[chosen][0], b'')
            else:
                inner = case.root / 'tmp' / 'member.npy'
                inner.write_bytes(members[chosen][1])
                (change_npy if members[chosen][1][:6] == b'\x93NUMPY' else flip_bits)(case, inner)
                members[chosen] = (members[chosen][0], inner.read_bytes() if inner.is_file() and inner.stat().st_size < 1 << 24 else b'')
                shutil.rmtree(inner) if inner.is_dir() and not inner.is_symlink() else inner.unlink(missing_ok=True)
        else:
            whole = path.read_bytes()
            case.note(f'{path.name}: itself among its members')
            members.insert(0, ('inner.zip', whole))
        method = case.one(zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED, zipfile.ZIP_BZIP2)
        for name, data in members:
            info = zipfile.ZipInfo(name or 'x')
            info.filename = name
            info.compress_type = method
            made.writestr(info, data)
    path.write_bytes(out.getvalue())


def zstd_frame(data):
    """A zstd frame of stored blocks."""
    out = b'\x28\xb5\x2f\xfd\xa0' + struct.pack('<I', len(data))
    pieces = [data[at:at + 65536] for at in range(0, len(data), 65536)] or [b'']
    for number, piece in enumerate(pieces):
        out += (len(piece) << 3 | (number + 1 == len(pieces))).to_bytes(3, 'little') + piece
    return out


def change_packed(case, path):
    """gzip and zstd: their heads and tails, several frames, trailing bytes; else any damage."""
    data = bytearray(path.read_bytes())
    how = case.one('head', 'tail', 'twice', 'trailing', 'damage', 'content')
    if how == 'content':
        try:
            text = gzip.decompress(data) if data[:2] == b'\x1f\x8b' else bytes(data[12:])
        except (OSError, EOFError, zlib.error):
            return flip_bits(case, path)
        changed = change_text_bytes(case, text, path.name)
        data = gzip.compress(changed, 1, mtime=0) if data[:2] == b'\x1f\x8b' else zstd_frame(changed)
    elif how == 'head':
        data[case.draw.randrange(min(12, len(data)))] = case.draw.randrange(256)
    elif how == 'tail':
        data[-case.draw.randint(1, min(8, len(data)))] ^= 1 << case.draw.randrange(8)
    elif how == 'twice':
        data = data + data
    elif how == 'trailing':
        data += case.one(b'\0' * 100, b'garbage', data[:5])
    else:
        return damage(case, path)
    case.note(f'{path.name}: {how}')
    path.write_bytes(data)
    return None


# --- texts

def change_text_bytes(case, data, name):
    rows = data.split(b'\n')
    at = case.draw.randrange(len(rows))
    how = case.one('number', 'number', 'number', 'long', 'binary', 'columns', 'repeat', 'drop')
    if how == 'number':
        fields = re.split(rb'([,\t ]+)', rows[at])
        fields[case.draw.randrange(0, len(fields), 2)] = case.one(str(case.extreme()), str(case.draw.choice(REALS)), 'nan', '', 'x', '-inf',
                                                                  '1e400', '1e-400', '+5', '0x7', '1_000', '９').encode()
        rows[at] = b''.join(fields)
    elif how == 'long':
        rows[at] = case.one(b'1' * 100000, b'1,' * 50000, b' ' * 100000, b'#' * 5000)
    elif how == 'binary':
        rows[at] = bytes(case.draw.randrange(256) for _ in range(20))
    elif how == 'columns':
        rows[at] = rows[at] + case.one(b',1', b',', b' 5 6', b'\t')
    elif how == 'repeat':
        rows[at:at] = [rows[at]] * 100
    else:
        del rows[at]
    case.note(f'{name}: line {at + 1}: {how}: {rows[at][:40] if at < len(rows) else b""!r}')
    return b'\n'.join(rows)


def change_text(case, path):
    if case.draw.random() < 0.2:
        return damage(case, path)
    return path.write_bytes(change_text_bytes(case, path.read_bytes(), path.name))


def change_yaml(case, path):
    rows = path.read_text().split('\n')
    how = case.one('value', 'value', 'value', 'path', 'path', 'text', 'alias', 'deep')
    valued = [number for number, row in enumerate(rows) if re.search(r': \S', row)]
    if how == 'path':
        valued = [number for number in valued if 'path:' in rows[number]]
    if how in ('value', 'path') and valued:
        at = case.draw.choice(valued)
        key = rows[at].split(': ')[0]
        outside = case.root / 'outside'
        new = case.one(str(outside / 'victim.npy'), '../../outside/victim.npy', '/etc/hostname', '/dev/zero', 'link.npy', '.',
                       'feat.npy', '../' * 500) if how == 'path' else case.one(str(case.extreme()), json.dumps(case.draw.choice(TEXTS)), '[]', '{}')
        if how == 'path':
            (path.parent / 'link.npy').symlink_to(outside / 'victim.npy')
        rows[at] = f'{key}: {new}'
        case.note(f'{path.name}: {rows[at].strip()[:80]}')
    elif how == 'alias':
        rows = ['a: &a [x, x]', *(f'{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]' for i in range(20)), *rows]
        case.note('aliases')
    elif how == 'deep':
        rows.append('x: ' + '[' * case.one(20, 5000) + ']')
        case.note('deep')
    else:
        at = case.draw.randrange(len(rows))
        rows[at] = case.one('\t- x', '%', '"', ': :', '- ' * 100, '\x1b[2J', '&a', '*b', '!!python/object', '? x', '---')
        case.note(f'{path.name}: line {at + 1} = {rows[at][:30]!r}')
    return path.write_text('\n'.join(rows))


# --- the commands

COMMON = ['--memory', '300M', '--threads', '2']


def train_words(case, folder, run):
    return ['train', folder, '--run', run, '--model', case.one('gcn', 'sage', 'gat', 'gin', 'mlp'), '--hidden', '8', '--epochs', '1', *COMMON]


def use_dataset(case, folder):
    """Something that reads the dataset, as a first run or with a run of its original."""
    target = case.root / 'target'
    how = case.one('verify', 'inspect', 'train', 'train', 'train', 'plan', 'bench', 'stage', 'evaluate', 'exact', 'predict', 'resume')
    graphs = (case.base / 'graphs').exists() and folder.name == 'graphs'
    if how == 'verify':
        case.run('inspect', folder, '--verify', *COMMON)
    elif how == 'inspect':
        case.run('inspect', folder, *case.one([], ['--json']), *COMMON)
    elif how == 'train':
        words = train_words(case, folder, target / 'new')
        if not graphs and words[5] != 'mlp':
            words += ['--fanout', case.one('3,2', '-1', '5')]
        case.run(*words, '--batch', case.one('8', '64'), *case.one([], ['--memory', '60M'], ['--row-cache', 'none']), writes=[target / 'new'])
    elif how == 'plan':
        case.run('plan', folder, '--hidden', '8', *case.one([], ['--measure'], ['--json'], ['--for', 'pyg']), *COMMON)
    elif how in ('bench', 'stage'):
        scratch = target / 'scratch'
        scratch.mkdir()
        words = ['bench', case.one('load', 'sample'), folder, '--batch', '8', '--epochs', '1', '--batches', '4', *COMMON]
        words += [] if graphs else ['--fanout', '3,2']
        if how == 'stage':
            words += ['--scratch', scratch, '--stage']
        elif not graphs:
            words += case.one([], ['--topology', 'disk', '--features', 'disk'], ['--features', 'disk', '--scratch', scratch])
        case.run(*words, writes=[scratch])
    else:
        use_run(case, case.copy('run-graphs' if graphs else 'run', 'run'), folder, how)


def use_run(case, run, folder, how=None):
    target = case.root / 'target'
    how = how if how in ('evaluate', 'exact', 'predict', 'resume') else case.one('evaluate', 'exact', 'predict', 'resume', 'resume', 'resume')
    if how == 'resume':
        case.run('train', '--resume', run, folder, '--epochs', case.one('3', '+1'), *COMMON, writes=[run])
    elif how == 'predict':
        case.run('predict', run, folder, '--out', target / 'out.npy', '--split', case.one('test', 'all'),
                 '--kind', case.one('logits', 'classes', 'embeddings'), *COMMON, writes=[target / 'out.npy', target / 'out.ids.npy'])
    else:
        case.run('evaluate', run, folder, *(['--exact'] if how == 'exact' else []), *COMMON)


def import_words(case, source, *more):
    case.run('import', source, case.root / 'target' / 'made', *more, '--memory', '200M', '--threads', '2',
             writes=[case.root / 'target' / 'made'])
    if case.draw.random() < 0.3:
        case.run('inspect', case.root / 'target' / 'made', '--verify', *COMMON)


# --- the scenarios

def attack_dataset(case):
    folder = case.copy(case.one('nodes', 'nodes', 'graphs'))
    case.one(forge_manifest, forge_manifest, forge_consistent, forge_arrays, forge_arrays,
             lambda c, f: damage(c, c.draw.choice(sorted(f.iterdir()))))(case, folder)
    use_dataset(case, folder)


def attack_run(case):
    graphs = case.draw.random() < 0.3
    run, folder = case.copy('run-graphs' if graphs else 'run', 'run'), case.copy('graphs' if graphs else 'nodes')
    files = sorted(path for path in run.iterdir())
    for _ in range(case.draw.choice([1, 1, 2])):
        what = case.one('json', 'json', 'last', 'last', 'best', 'lines', 'any')
        if what == 'json' and is_plain(run / 'run.json'):
            try:
                about = json.loads((run / 'run.json').read_text())
                change_json(case, about, case.one(None, lambda path: path[0] == 'settings' and len(path) > 1))
                write_sealed(run / 'run.json', about, case.draw.random() < 0.8)
            except (ValueError, OSError, RecursionError, AttributeError):
                damage(case, run / 'run.json')
        elif what in ('last', 'best') and is_plain(run / f'{what}.safetensors'):
            try:
                change_safetensors(case, run / f'{what}.safetensors')
            except (ValueError, OSError, RecursionError, AttributeError, KeyError, TypeError):
                damage(case, run / f'{what}.safetensors')
        elif what == 'lines':
            damage(case, run / case.one('metrics.jsonl', 'timeline.jsonl', '.lock'))
        else:
            damage(case, case.draw.choice(files))
    use_run(case, run, folder)


def attack_cache(case):
    """Forged files in the user's cache, their seals made to agree."""
    graphs = case.draw.random() < 0.4
    folder = case.copy('graphs' if graphs else 'nodes')
    shutil.rmtree(case.root / 'cache')
    shutil.copytree(case.base / 'cache', case.root / 'cache')
    files = sorted(path for path in (case.root / 'cache').rglob('*') if path.is_file())
    for path in files:
        if case.draw.random() < 0.3:
            replace_file(case, path)
            continue
        text = path.read_text().split('\n', 1)[1]
        numbers = list(re.finditer(r'\d+', text))
        for _ in range(case.draw.randint(1, 2)):
            found = case.draw.choice(numbers)
            text = text[:found.start()] + str(number_near(case, int(found[0]))) + text[found.end():]
            numbers = list(re.finditer(r'\d+', text))
        case.note(f'{path.name}: {text!r}'[:200])
        path.write_text(f'{hash_of(text.encode()):016x}\n{text}')
    case.environment['XDG_CACHE_HOME'] = str(case.root / 'cache')
    words = ['--hidden', '8', '--batch', '8'] + ([] if graphs else ['--fanout', '3,2'])
    if case.draw.random() < 0.5:
        case.run('plan', folder, *words, '--memory', case.one('60M', '300M'), '--threads', '2')
    else:
        case.run('train', folder, *words, '--run', case.root / 'target' / 'new', '--epochs', '1', '--memory', case.one('60M', '300M'),
                 '--threads', '2', writes=[case.root / 'target' / 'new'])


def attack_scratch(case):
    """Packed rows and a staged copy that are not what they were."""
    folder, scratch = case.copy('nodes'), case.copy('scratch')
    packed = sorted(scratch.glob('working-set-*.plim'))
    staged = [path for path in scratch.iterdir() if path.is_dir()]
    if packed and (not staged or case.draw.random() < 0.6):
        path = packed[0]
        data = bytearray(path.read_bytes())
        if case.draw.random() < 0.6:
            at = 32 + 8 * case.draw.randrange(20)
            data[at:at + 8] = (case.extreme() % 2**64).to_bytes(8, 'little')
            data[456:464] = hash_of(bytes(data[:456])).to_bytes(8, 'little')
            case.note(f'{path.name}: field at {at}')
            path.write_bytes(data)
        else:
            damage(case, path)
        case.run('bench', 'load', folder, *PACKED, '--scratch', scratch, *COMMON, writes=[scratch])
    elif staged:
        case.one(forge_manifest, forge_arrays, lambda c, f: damage(c, c.draw.choice(sorted(f.iterdir()))))(case, staged[0])
        case.run('bench', 'load', folder, '--batch', '8', '--fanout', '3,2', '--epochs', '1', '--scratch', scratch, '--stage', *COMMON,
                 writes=[scratch])


PACKED = ['--batch', '8', '--fanout', '3,2', '--epochs', '1', '--features', 'disk', '--row-cache', '64K']


def attack_npy(case):
    source = case.copy(case.one('npy', 'npy', 'ragged'), 'source')
    for _ in range(case.draw.choice([1, 1, 2])):
        path = case.draw.choice(sorted(source.glob('*.npy')))
        (change_npy if is_plain(path) else damage)(case, path)
    import_words(case, source, *case.one([], ['--symmetrise'], ['--features', 'f16'], ['--normalise-features'], ['--nodes', '60']))


def attack_zip(case):
    name = case.one('ogb.zip', 'ogb.zip', 'ogb', 'graphs.zip')
    source = case.copy(name)
    path = source if source.is_file() else case.draw.choice(sorted(source.rglob('*.npz')))
    for _ in range(case.draw.choice([1, 1, 2])):
        try:
            (rewrite_zip if is_plain(path) else damage)(case, path)
        except (zipfile.BadZipFile, OSError, RuntimeError, ValueError, zlib.error, EOFError, struct.error, NotImplementedError):
            damage(case, path)
    import_words(case, source, *case.one([], ['--symmetrise']))


def attack_packed(case):
    source = case.copy(case.one('ogb-csv', 'ogb-graphs', 'edges.csv.gz', 'edges.csv.zst'))
    path = source if source.is_file() else case.draw.choice(sorted(source.rglob('*.gz')))
    change_packed(case, path)
    import_words(case, source, *case.one([], ['--relabel']) if source.is_file() else [])


def attack_text(case):
    source = case.copy(case.one('edges.csv', 'edges.tsv'))
    change_text(case, source)
    import_words(case, source, *case.one([], ['--relabel'], ['--nodes', str(case.one(60, 1, 2**40, 2**62))], ['--symmetrise', '--self-loops', 'add']))


def attack_graphbolt(case):
    source = case.copy('graphbolt')
    if case.draw.random() < 0.7:
        change_yaml(case, source / 'metadata.yaml')
    else:
        path = case.draw.choice(sorted(source.glob('*.npy')))
        change_npy(case, path)
    import_words(case, source)


OPTIONS = {
    'train': {'--layers': 'n', '--hidden': 'n', '--heads': 'n', '--dropout': 'r', '--batch': 'n', '--fanout': 'f', '--seed': 'n', '--epochs': 'e',
              '--lr': 'r', '--momentum': 'r', '--weight-decay': 'r', '--clip': 'r', '--gamma': 'r', '--step-size': 'n', '--eval-every': 'n',
              '--patience': 'n', '--microbatch': 'n', '--checkpoint-every': 'n', '--checkpoint-minutes': 'r', '--memory-every': 'n',
              '--row-cache': 's', '--memory': 's', '--threads': 't', '--model': 'w', '--norm': 'w', '--schedule': 'w', '--loss': 'w',
              '--metric': 'w', '--gradient_accumulation_steps': 'n', '--precision': 'w', '--io': 'w'},
    'plan': {'--hidden': 'n', '--layers': 'n', '--heads': 'n', '--batch': 'n', '--fanout': 'f', '--microbatch': 'n', '--memory': 's',
             '--row-cache': 's', '--sweep': 'w', '--workers': 'n', '--prefetch': 'n', '--loaders': 'n', '--gpu-memory': 's', '--threads': 't'},
    'shape': {'--nodes': 'n', '--edges': 'n', '--features': 'n', '--classes': 'n', '--scale': 'r', '--spread': 'r', '--hidden': 'n',
              '--batch': 'n', '--fanout': 'f', '--memory': 's'},
    'bench': {'--batch': 'n', '--fanout': 'f', '--epoch': 'n', '--step': 'n', '--batches': 'e', '--slots': 'n', '--window': 'n', '--list-cache': 's',
              '--row-cache': 's', '--seed': 'n', '--memory': 's', '--threads': 't'},
}


def option_value(case, kind):
    if kind == 'e':  # none that is a wish for hours of work
        return str(case.one(0, -1, '', '+1', 1, 2, '9' * 40, 2**63, 'x'))
    if kind == 'n':
        return str(case.one(case.extreme(), case.draw.randint(1, 9), '+1', '1.5G', '', '1e9', '-0', '9' * 40))
    if kind == 'r':
        return str(case.one(case.draw.choice(REALS), 'nan', 'inf', '-1', '1e-45', '0.999999999999999999', ''))
    if kind == 'f':
        return ','.join(str(case.one(case.extreme(), 3, -1, 0, '')) for _ in range(case.one(1, 2, 2, 8, 9, 40)))
    if kind == 's':
        return str(case.one('none', '0', '1', '1K', '30M', '12M', '16E', '1e30G', '-1', '', '18446744073709551616', '9223372036854775807', '4096P'))
    if kind == 't':
        return str(case.one(0, 1, 3, 64, 1024, 1025, -1, 2**31, ''))
    return str(case.one('gcn', 'gat', 'cosine', 'step', 'batch', 'bf16', 'bce', 'mae', 'roc-auc', 'memory=1M,2M', 'batch=1,2', 'hidden=',
                        'uring', 'threads', *TEXTS[:12]))


def attack_options(case):
    verb = case.one('train', 'train', 'plan', 'shape', 'bench', 'predict')
    target = case.root / 'target'
    graphs = case.draw.random() < 0.2 and verb != 'shape'
    folder = case.copy('graphs' if graphs else 'nodes') if verb != 'shape' else None
    if verb == 'predict':
        run = case.copy('run')
        case.run('predict', run, folder, '--out', target / 'out.npy', '--weights', case.one(run / 'last.safetensors', folder / 'features.npy',
                 run / 'run.json', '/dev/zero', target, ''), '--split', case.one('all', 'test', 'x'), *COMMON, writes=[target / 'out.npy', target / 'out.ids.npy'])
        return
    chosen = case.draw.sample(sorted(OPTIONS[verb]), case.draw.randint(1, 3))
    words = [word for name in chosen for word in (name, option_value(case, OPTIONS[verb][name]))]
    case.note(' '.join(words)[:200])
    if verb == 'train':
        base = ['train', folder, '--run', target / 'new', '--hidden', '8', '--epochs', '1', '--batch', '16', *COMMON]
        case.run(*base, *words, writes=[target / 'new'])
    elif verb == 'plan':
        case.run('plan', folder, '--hidden', '8', *COMMON, *words, *case.one([], ['--for', 'pyg']))
    elif verb == 'shape':
        shape = case.one('papers100M', 'free', 'arxiv')
        counts = ['--nodes', '1000', '--edges', '5000', '--features', '8', '--classes', '4'] if shape == 'free' else []
        case.run('plan', shape, *counts, *COMMON, *words)
    else:
        case.run('bench', case.one('load', 'sample'), folder, '--epochs', '1', '--batches', '4', *COMMON, *words)


SCENARIOS = [(attack_dataset, 30), (attack_run, 30), (attack_cache, 5), (attack_scratch, 6), (attack_npy, 10), (attack_zip, 10),
             (attack_packed, 7), (attack_text, 5), (attack_graphbolt, 6), (attack_options, 14)]


# --- what they start from

def make_base(base, binary):
    """The things that are copied and changed; made by the binary under test, as users make them."""
    graph, graphs = sources.Graph(3, nodes=60, edges=300, features=6), sources.Graphs(4, count=30)
    splits = {f'{part}_idx': ids for part, ids in graph.split.items()}
    sources.write_npy(base / 'npy', edge_index=graph.edges, node_feat=graph.features, node_label=graph.labels, **splits)
    sources.write_ragged(base / 'ragged', graphs)
    sources.write_ogb(base / 'ogb', graph)
    sources.write_ogb_csv(base / 'ogb-csv', graph)
    sources.write_ogb_graphs(base / 'ogb-graphs', graphs)
    sources.zip_tree(base / 'ogb', base / 'ogb.zip')
    sources.zip_tree(base / 'ogb-graphs', base / 'graphs.zip')
    sources.write_graphbolt(base / 'graphbolt', graph, 'npy')
    text = sources.table(graph.edges.T)
    (base / 'edges.csv').write_text(text)
    (base / 'edges.tsv').write_text(text.replace(',', '\t'))
    (base / 'edges.csv.gz').write_bytes(gzip.compress(text.encode(), mtime=0))
    (base / 'edges.csv.zst').write_bytes(zstd_frame(text.encode()))
    (base / 'scratch').mkdir()
    for words in [('import', base / 'npy', base / 'nodes'), ('import', base / 'ragged', base / 'graphs'),
                  ('train', base / 'nodes', '--run', base / 'run', '--hidden', '8', '--fanout', '3,2', '--batch', '8', '--epochs', '2', *COMMON),
                  ('train', base / 'graphs', '--run', base / 'run-graphs', '--hidden', '8', '--layers', '2', '--model', 'gin', '--batch', '8',
                   '--epochs', '2', *COMMON),
                  ('plan', base / 'nodes', '--measure', '--hidden', '8', '--fanout', '3,2', '--batch', '8', *COMMON),
                  ('bench', 'load', base / 'nodes', *PACKED, '--scratch', base / 'scratch', *COMMON),
                  ('bench', 'load', base / 'nodes', '--batch', '8', '--fanout', '3,2', '--epochs', '1', '--scratch', base / 'scratch', '--stage',
                   *COMMON)]:
        done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, 'XDG_CACHE_HOME': str(base / 'cache'), 'ASAN_OPTIONS': LEAKS})
        if done.returncode != 0:
            sys.exit(f'what is to be attacked cannot be made: {words}: exit code {done.returncode}\n{done.stderr}')
    for path in base.rglob('*'):
        if path.is_file():
            path.chmod(0o644)


# --- running and judging

def survey(root, writable):
    """Every file below `root` but those that may be written: what it is and holds."""
    found = {}
    for path in sorted(root.rglob('*')):
        about = path.lstat()
        if any(path == allowed or allowed in path.parents for allowed in writable):
            continue
        kind = stat.S_IFMT(about.st_mode)
        content = os.readlink(path) if stat.S_ISLNK(kind) else (about.st_size, about.st_mtime_ns) if stat.S_ISREG(kind) else None
        found[str(path.relative_to(root))] = (kind, content)
    return found


def limit_child():
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setsid()


def execute(binary, words, case, patience):
    environment = {**os.environ, 'HOME': str(case.root / 'home'), 'TMPDIR': str(case.root / 'tmp'),
                   'XDG_CACHE_HOME': str(case.root / 'cache'), 'ASAN_OPTIONS': f'exitcode=99:allocator_may_return_null=1:{LEAKS}',
                   'UBSAN_OPTIONS': 'exitcode=99:print_stacktrace=1', **case.environment}
    child = subprocess.Popen([binary, *words], cwd=case.root / 'cwd', env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, preexec_fn=limit_child)
    try:
        out, err = child.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        out, err = child.communicate()
        return None, out, err
    return child.returncode, out, err


def judge(code, out, err):
    """What is wrong with how a command ended, or None."""
    printed = err.decode('utf-8', 'replace')
    if code is None:
        return 'hang'
    if REPORTS.search(printed):
        return 'sanitizer'
    if code < 0 or code == 99:
        return f'signal {-code}'
    if code not in DOCUMENTED:
        return f'exit code {code}'
    if code != 0 and not printed.strip():
        return f'exit code {code} without a word'
    for stream in (printed, out.decode('utf-8', 'replace')):
        found = CONTROL.search(stream)
        if found:
            return f'control character {found[0]!r} printed'
    return None


def attack(arguments):
    """One case in a directory of its own; (index, scenario, exit codes, what failed)."""
    index, seed, base, work, binary, patience, keep = arguments
    root = pathlib.Path(work) / f'case-{index}'
    case = Case(root, pathlib.Path(base), seed, index)
    scenario = case.draw.choices([one for one, _ in SCENARIOS], [weight for _, weight in SCENARIOS])[0]
    codes, wrong, text, words = [], None, '', []
    try:
        scenario(case)
    except Exception as error:  # the others go on
        wrong = f'the attack itself: {error!r}'
        case.commands.clear()
    for words in case.commands:
        allowed = [*case.writable, case.root / 'cache']
        before = survey(case.root, allowed)
        code, out, err = execute(binary, words, case, patience)
        codes.append(code)
        text = err.decode('utf-8', 'replace')
        wrong = judge(code, out, err)
        after = survey(case.root, allowed)
        if wrong is None and before != after:
            wrong = 'touched: ' + ', '.join(sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name)))[:300]
        if wrong:
            break
    if not keep:
        remove(root)
    words = ' '.join(words)
    return index, scenario.__name__, codes, wrong and {'case': index, 'what': wrong, 'scenario': scenario.__name__,
                                                      'changes': case.changes, 'command': words, 'said': text[-2500:]}


def remove(root):
    for path in root.rglob('*'):
        if not path.is_symlink() and path.is_dir():
            path.chmod(0o700)
    shutil.rmtree(root, ignore_errors=True)


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('cases', type=int, nargs='?', default=2000)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--first', type=int, default=0, help='the first case')
    parser.add_argument('--jobs', type=int, default=2, help='at a time')
    parser.add_argument('--patience', type=float, default=60, help='seconds until a command is a hang')
    parser.add_argument('--keep', type=pathlib.Path, help='work here, and leave the cases')
    parser.add_argument('--binary', help='of plimsoll')
    options = parser.parse_args()
    sanitized = prooflib.SOURCE / 'build' / 'asan' / 'plimsoll'
    binary = options.binary or os.environ.get('PLIMSOLL') or (str(sanitized) if sanitized.exists() else prooflib.plimsoll())
    binary = str(pathlib.Path(binary).resolve())
    is_sanitized = b'__asan_init' in pathlib.Path(binary).read_bytes()
    print(f'seed {options.seed}, cases {options.first} to {options.first + options.cases - 1}, '
          f'{"with" if is_sanitized else "WITHOUT"} sanitizers', flush=True)
    failures, codes, scenarios = [], collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory(prefix='plimsoll-attack-') as folder:
        work = options.keep or pathlib.Path(folder)
        base = pathlib.Path(folder) / 'base'
        base.mkdir()
        make_base(base, binary)
        began = time.monotonic()
        tasks = [(index, options.seed, str(base), str(work), binary, options.patience, options.keep is not None)
                 for index in range(options.first, options.first + options.cases)]
        with concurrent.futures.ProcessPoolExecutor(options.jobs, multiprocessing.get_context('fork')) as pool:
            for index, scenario, ended, failure in pool.map(attack, tasks, chunksize=4):
                scenarios[scenario.removeprefix('attack_')] += 1
                codes.update(str(code) for code in ended)
                if failure:
                    failures.append(failure)
                    print(f'FAILED: case {index} ({scenario}): {failure["what"]}\n  changed: {"; ".join(failure["changes"])}\n'
                          f'  command: plimsoll {failure["command"]}\n  said: {failure["said"]}\n'
                          f'  again: tools/prove attack --seed {options.seed} --first {index} 1 --keep DIR', flush=True)
        seconds = time.monotonic() - began
    kinds = collections.Counter(re.sub(r'[:\d].*', '', failure['what']).strip() for failure in failures)
    claims = {f'{options.cases} cases: no crash, no report of a sanitizer, no hang, no control character printed, nothing outside touched, '
              'no exit code that is not documented': not failures}
    whole = options.cases == 2000 and options.first == 0 and is_sanitized
    if whole:
        claims[f'they took {seconds:.0f} s, at most 600'] = seconds <= 600
    holds = prooflib.record(prooflib.result_path(options, 'attack', whole), claims, seed=options.seed, seconds=round(seconds, 1), jobs=options.jobs, failures=dict(kinds),
                            exit_codes=dict(sorted(codes.items())), scenarios=dict(sorted(scenarios.items())))
    print(f'{seconds:.0f} s; exit codes {dict(sorted(codes.items()))}; {len(failures)} failed')
    return 0 if holds else 1
