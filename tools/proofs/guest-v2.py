"""Runs tools/prove never-killed on cgroup v2 and another CPU: in an emulated guest with Debian's kernel.

    tools/prove guest-v2 [RUNS] [--watch] [--dir DIR] [--hours 1] [--json FILE]

Builds a disk (an ext4 file system of this machine's Python with NumPy, busybox, the binary under test with its libraries, tools/ and some
of tools/prove never-killed's datasets, made here first) and boots it in QEMU: no KVM, 2 processors, 2 GiB, control groups of version 2 alone.
TCG emulates AVX2 and no AVX-512. The guest runs `tools/prove never-killed RUNS --minimums 0 --untimed` (default 24), with huge
pages wherever the kernel can give them (`always`), and leaves its result on a second disk.
Needs apt's qemu-system-x86, busybox-static and e2fsprogs, and downloads linux-image-cloud-amd64; exits 77 where one is missing. 1 GB in
DIR (default: a temporary directory), which serves the next time too. Results: bench/results/guest-v2.json.
--watch: the guest runs `tools/prove watch RUNS --together` instead: deaths by memory.oom.group (default 8). Results: bench/results/watch-v2.json.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import numpy

import proofdata
import prooflib

KERNEL = 'linux-image-cloud-amd64'
MODULES = ['virtio', 'virtio_ring', 'virtio_pci_legacy_dev', 'virtio_pci_modern_dev', 'virtio_pci', 'virtio_blk']
RESULT_BYTES = 16 * prooflib.MIB
NEEDED = ('qemu-system-x86_64', 'busybox', 'mkfs.ext4', 'apt-get', 'dpkg-deb', 'ldd')
FIRST_INIT = '''#!/bin/busybox sh
# Twice: which of virtio and virtio_ring needs the other differs between kernels.
for module in {modules} {modules}; do /bin/busybox insmod /$module.ko 2> /dev/null; done
/bin/busybox mount -t devtmpfs none /dev
/bin/busybox mount -t ext4 /dev/vda /root
exec /bin/busybox switch_root /root /init
'''
INIT = '''#!/bin/sh
export PATH={python}:/bin:/usr/bin HOME=/root PYTHONPATH={numpy} PYTHONDONTWRITEBYTECODE=1 PLIMSOLL=/plimsoll/build/release/plimsoll
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
mount -t cgroup2 none /sys/fs/cgroup
mount -o remount,rw /
echo always > /sys/kernel/mm/transparent_hugepage/enabled
cd /plimsoll
python3 {proof} --json /tmp/result.json
echo "the proof ended with $?"
cat /tmp/result.json > /dev/vdb
sync
poweroff -f
'''


def put(root, path):
    """A file at its own path below root, links followed."""
    target = root / str(path).lstrip('/')
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


def put_libraries(root, paths):
    """What the dynamic linker would load for these files."""
    for path in paths:
        printed = subprocess.run(['ldd', str(path)], capture_output=True, text=True, check=False).stdout
        for library in re.findall(r'(/\S+) \(0x', printed):
            put(root, library)


def put_python(root):
    """The interpreter, its library without tests, and NumPy."""
    executable = pathlib.Path(sys.executable).resolve()
    library, wheel = pathlib.Path(os.__file__).resolve().parent, pathlib.Path(numpy.__file__).resolve().parent
    unwanted = shutil.ignore_patterns('__pycache__', 'test', 'tests', 'site-packages', 'dist-packages', 'idlelib', 'tkinter', 'ensurepip',
                                      'config-*', '*.a', '*.pyi')
    for directory in (library, wheel, wheel.parent / 'numpy.libs'):
        if directory.exists():
            shutil.copytree(directory, root / str(directory).lstrip('/'), ignore=unwanted, symlinks=True)
    put(root, executable)
    if executable.name != 'python3':
        (root / str(executable.parent / 'python3').lstrip('/')).symlink_to(executable.name)
    put_libraries(root, [executable, *library.rglob('*.so'), *wheel.rglob('*.so')])
    return executable.parent, wheel.parent


def put_plimsoll(root):
    """The binary with its own library beside it, what both load, oneDNN (which is loaded by name), and tools/."""
    binary = pathlib.Path(prooflib.plimsoll())
    place = root / 'plimsoll' / 'build' / 'release'
    place.mkdir(parents=True)
    for path in [binary, *binary.parent.glob('libplimsoll.so*')]:
        shutil.copy2(path, place, follow_symlinks=False)
    shutil.copytree(prooflib.SOURCE / 'tools', root / 'plimsoll' / 'tools')
    cache = (binary.parent / 'CMakeCache.txt').read_text()
    onednn = pathlib.Path(re.search(r'^onednn_file:\w+=(.*)$', cache, re.MULTILINE).group(1)).resolve()
    named = onednn.with_name(re.search(r'SONAME\s+(\S+)', prooflib.run('objdump', '-p', onednn)).group(1))
    put(root, named)
    put_libraries(root, [*binary.parent.glob('libplimsoll.so*'), binary, onednn])


def make_disk(directory, proof):
    """The guest's root file system."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        root = pathlib.Path(folder)
        for name in ('bin', 'usr/bin', 'proc', 'sys', 'dev', 'tmp', 'root'):
            (root / name).mkdir(parents=True)
        shutil.copy2(shutil.which('busybox'), root / 'bin' / 'busybox')
        for applet in set(prooflib.run('busybox', '--list').split()) - {'busybox'}:
            (root / 'bin' / applet).symlink_to('busybox')
        (root / 'usr' / 'bin' / 'env').symlink_to('/bin/busybox')
        python, packages = put_python(root)
        put_plimsoll(root)
        for name in [name for name in proofdata.TINY if name in proof]:
            shutil.copytree(directory / 'data' / name, root / 'data' / name)
        (root / 'init').write_text(INIT.format(python=python, numpy=packages, proof=proof))
        (root / 'init').chmod(0o755)
        disk = directory / 'root.img'
        disk.unlink(missing_ok=True)
        prooflib.run('mkfs.ext4', '-q', '-d', root, disk, '1G')
    with open(directory / 'result.img', 'wb') as file:
        file.truncate(RESULT_BYTES)


def make_first(directory, kernel):
    """The initial file system: busybox and the modules that the disk needs."""
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        root = pathlib.Path(folder)
        for name in ('bin', 'dev', 'root'):
            (root / name).mkdir()
        shutil.copy2(shutil.which('busybox'), root / 'bin' / 'busybox')
        for module in MODULES:
            shutil.copy2(next((kernel / 'lib' / 'modules').rglob(f'{module}.ko')), root)
        (root / 'init').write_text(FIRST_INIT.format(modules=' '.join(MODULES)))
        (root / 'init').chmod(0o755)
        names = ''.join(f'{path.relative_to(root)}\n' for path in sorted(root.rglob('*')))
        with open(directory / 'initrd', 'wb') as file:
            subprocess.run(['busybox', 'cpio', '-o', '-H', 'newc'], input=names.encode(), cwd=root, stdout=file, check=True)


def get_kernel(directory):
    """Debian's newest kernel for clouds, unpacked; nothing of it is installed here."""
    kernel = directory / 'kernel'
    if not kernel.exists():
        package = re.search(r'Depends: (\S+)', prooflib.run('apt-cache', 'depends', KERNEL)).group(1)
        prooflib.run('apt-get', 'download', '-qq', package, cwd=directory)
        prooflib.run('dpkg-deb', '-x', next(directory.glob(f'{package}_*.deb')), kernel)
    return kernel


def left_behind(directory):
    """What a guest that took too long had found until then."""
    text = prooflib.run('debugfs', '-R', 'cat /data/never-killed.jsonl', directory / 'root.img')
    results = [json.loads(line)['result'] for line in text.splitlines()]
    killed = sum(result.get(step, {}).get('oom_kill', 0) for result in results for step in ('train', 'predict'))
    wrong = [result['wrong'] for result in results if result['wrong']]
    return {'claims': {f'all configurations were tried in time ({len(results)} were)': False,
                       f'none of {len(results)} was killed ({killed})': bool(results) and killed == 0,
                       f'none went wrong otherwise ({len(wrong)})': not wrong}, 'results': results}


def boot(directory, kernel, hours):
    """Until the guest is switched off; its console goes to standard error."""
    image = next((kernel / 'boot').glob('vmlinuz-*'))
    disks = [word for name in ('root.img', 'result.img')
             for word in ('-drive', f'file={directory / name},format=raw,if=virtio,cache=unsafe')]
    words = ['qemu-system-x86_64', '-accel', 'tcg,thread=multi', '-cpu', 'max', '-smp', '2', '-m', '2G', '-nographic', '-no-reboot',
             '-nic', 'none', '-kernel', str(image), '-initrd', str(directory / 'initrd'), *disks,
             '-append', 'console=ttyS0 quiet panic=-1 cgroup_no_v1=all']
    try:
        subprocess.run(words, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=True, timeout=3600 * hours)
    except subprocess.TimeoutExpired:
        return left_behind(directory)
    return json.loads((directory / 'result.img').read_bytes().rstrip(b'\0') or b'{}')


def main():
    parser = prooflib.parser(__doc__)
    parser.add_argument('runs', type=int, nargs='?')
    parser.add_argument('--watch', action='store_true', help='prove watches instead')
    parser.add_argument('--dir', type=pathlib.Path)
    parser.add_argument('--hours', type=float, default=1, help='how long the guest may take')
    options = parser.parse_args()
    missing = [name for name in NEEDED if not shutil.which(name)]
    if missing:
        prooflib.skip(f'there is no {", ".join(missing)}')
    with tempfile.TemporaryDirectory(prefix='guest-v2-') as temporary:
        directory = (options.dir or pathlib.Path(temporary)).resolve()
        (directory / 'data').mkdir(parents=True, exist_ok=True)
        proof = f'tools/prove watch {options.runs or 8} --together'
        if not options.watch:
            proof = f'tools/prove never-killed {options.runs or 24} --minimums 0 --untimed --datasets {",".join(proofdata.TINY)} --dir /data'
            proofdata.make_all(directory / 'data', list(proofdata.TINY))
        kernel = get_kernel(directory)
        make_first(directory, kernel)
        make_disk(directory, proof)
        result = boot(directory, kernel, options.hours)
    claims = result.pop('claims', {'the guest left a result': False})
    guest = {'emulator': prooflib.run('qemu-system-x86_64', '--version').splitlines()[0], 'machine': result.pop('machine', None),
             'cgroup': 'v2 alone'}
    for name in ('date', 'revision'):
        result.pop(name, None)
    path = prooflib.result_path(options, 'watch-v2' if options.watch else 'guest-v2', True)
    return 0 if prooflib.record(path, claims, guest=guest, **result) else 1
