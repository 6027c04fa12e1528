"""Builds a release twice, and installs what it consists of on bare Debian systems.

    tools/prove release [--dir WORK] [--releases ONE TWO]

Makes archive, wheel and SBOM twice (`tools/release`, with the wheel's libraries compiled anew), or takes two directories where they were made. Then,
in roots of debootstrap: builds the Debian packages of bookworm and trixie from the archive, twice and in different directories, runs lintian,
installs them over an older version, runs debian/tests (README's first commands, a C program, two ranks of each MPI, Python), and purges them; installs
the wheel on bookworm, trixie and sid without compilers, and beside torch in an environment of this machine; runs the wheel's command with
bullseye's glibc 2.31. Checks the SBOM with spdx-tools and the workflows with zizmor. Needs root, debootstrap, apt and PyPI, 8 GB in WORK (a
temporary directory), and what tools/wheel needs. Two hours on two cores; a quarter of that with --releases. The result goes to
bench/results/release.json.
"""
import json
import os
import pathlib
import re
import shutil
import tempfile
import time
import zipfile

import prooflib

TESTS = 'command', 'library', 'mpi', 'python'
FOR_TESTS = ['gcc', 'libc6-dev', 'pkg-config', 'openmpi-bin', 'mpich', 'python3-numpy']
TORCH = ['torch==2.13.0', 'torch_geometric', 'numpy']


class Roots:
    """Root directories of Debian's suites; packages are downloaded once."""

    def __init__(self, work):
        self.work, self.cache = work, work / 'debs'
        self.cache.mkdir(exist_ok=True)
        known = prooflib.run('apt-get', 'indextargets', '--format', '$(REPO_URI) $(RELEASE)', 'Created-By: Packages').splitlines()
        self.mirror = next(line.split()[0] for line in known if re.fullmatch(r'\S+ [a-z]+', line))

    def make(self, suite):
        root = self.work / suite
        if not root.exists():
            prooflib.run('debootstrap', '--variant=minbase', f'--cache-dir={self.cache}', suite, root, self.mirror)
            (root / 'etc' / 'dpkg' / 'dpkg.cfg.d' / 'unsafe').write_text('force-unsafe-io\n')
            # A mirror may be a snapshot: signed, and past the date until which it says it is the newest.
            (root / 'etc' / 'apt' / 'apt.conf.d' / 'snapshot').write_text('Acquire::Check-Valid-Until "false";\n')
            for name in ('resolv.conf', 'hosts'):
                shutil.copy(f'/etc/{name}', root / 'etc' / name)
        return root

    def copy(self, root):
        prooflib.run('cp', '-a', root, f'{root}-copy')
        return pathlib.Path(f'{root}-copy')

    def inside(self, root, *words, **environment):
        script = 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount --bind "$1" "$0/var/cache/apt/archives"; root=$0; shift; exec chroot "$root" "$@"'
        variables = {'PATH': '/usr/sbin:/usr/bin:/sbin:/bin', 'HOME': '/root', 'LC_ALL': 'C.UTF-8', 'DEBIAN_FRONTEND': 'noninteractive', **environment}
        return prooflib.run('unshare', '--mount', '--pid', '--fork', 'sh', '-ec', script, root, self.cache, 'env', '-i',
                            *(f'{name}={value}' for name, value in variables.items()), *words)

    def install(self, root, *packages):
        self.inside(root, 'apt-get', 'install', '-y', '-qq', '--no-install-recommends', *packages)


def digests(directory):
    return {path.name: prooflib.file_digest(path) for path in sorted(directory.iterdir()) if path.name != 'SHA256SUMS'}


def build_packages(roots, base, archive):
    """The directory of the packages, whether two builds are the same bytes, and what lintian found."""
    root = roots.copy(base)
    try:
        for name in ('one', 'elsewhere/two'):
            tree = root / name
            tree.mkdir(parents=True)
            shutil.copy(archive, tree)
            prooflib.run('tar', '-C', tree, '-xf', archive)
        source = f'/one/{archive.name.removesuffix(".tar.xz")}'
        roots.inside(root, 'apt-get', 'update')
        roots.install(root, 'dpkg-dev', 'lintian')
        roots.inside(root, 'apt-get', 'build-dep', '-y', '-qq', '--no-install-recommends', source)
        for name in ('one', 'elsewhere/two'):
            tree = f'/{name}/{archive.name.removesuffix(".tar.xz")}'
            roots.inside(root, f'{tree}/tools/release', f'/{name}/out', '--only', 'packages', '--archive', f'/{name}/{archive.name}', TMPDIR=f'/{name}')
        same = digests(root / 'one' / 'out') == digests(root / 'elsewhere' / 'two' / 'out')
        found = roots.inside(root, 'sh', '-c', 'lintian --allow-root /one/out/*.deb || true')
        out = roots.work / f'packages-{base.name}'
        shutil.copytree(root / 'one' / 'out', out)
        return out, same, [line for line in found.splitlines() if re.match('[EW]:', line)]
    finally:
        shutil.rmtree(root)


def older(package, folder):
    """The same package as an older version: without the suffix of the distribution it was built on, so that what others need of it holds."""
    tree = folder / package.stem
    prooflib.run('dpkg-deb', '-R', package, tree)
    control = tree / 'DEBIAN' / 'control'
    version = re.search(r'^Version: (\S+)', control.read_text(), re.M).group(1)
    control.write_text(control.read_text().replace(version, version.split('+')[0]))
    prooflib.run('dpkg-deb', '-b', tree, folder / f'{tree.name}_old.deb')
    shutil.rmtree(tree)


def try_packages(roots, base, packages, tests):
    """Installs, upgrades, tests and purges; the names that passed, and the files that stay."""
    root = roots.copy(base)
    try:
        (root / 'packages').mkdir()
        (root / 'old').mkdir()
        for package in packages.glob('*.deb'):
            shutil.copy(package, root / 'packages')
            older(package, root / 'old')
        shutil.copytree(tests, root / 'source')
        roots.inside(root, 'apt-get', 'update')
        roots.install(root, *(f'/old/{path.name}' for path in (root / 'old').iterdir()), *FOR_TESTS)
        began = roots.inside(root, 'dpkg-query', '-W', '-f', '${Version}', 'plimsoll')
        roots.install(root, *(f'/packages/{path.name}' for path in (root / 'packages').iterdir()))
        upgraded = roots.inside(root, 'dpkg-query', '-W', '-f', '${Version}', 'plimsoll')
        seconds = {}
        for test in TESTS:
            (root / 'try' / test).mkdir(parents=True)
            start = time.monotonic()
            roots.inside(root, 'sh', '-c', f'cd /source && exec debian/tests/{test}', AUTOPKGTEST_TMP=f'/try/{test}')
            seconds[test] = round(time.monotonic() - start, 1)
        names = prooflib.run('sh', '-c', f'cd "{packages}" && ls *.deb | cut -d_ -f1').split()
        roots.inside(root, 'apt-get', 'purge', '-y', '-qq', *names)
        for name in ('packages', 'old', 'source', 'try'):
            shutil.rmtree(root / name)
        left = prooflib.run('find', root, '-xdev', '-path', '*plimsoll*', '-not', '-path', '*/var/cache/*', '-not', '-path', f'{root}/root/.cache/*').split()
        return {'upgraded': [began, upgraded], 'seconds': seconds, 'left': [path.removeprefix(str(root)) for path in left]}
    finally:
        shutil.rmtree(root)


def try_wheel(roots, base, wheel):
    """tests/python/installed.py in an environment of the suite's own Python, without compilers."""
    root = roots.copy(base)
    try:
        roots.inside(root, 'apt-get', 'update')
        roots.install(root, 'python3-venv')
        compilers = [name for name in ('cc', 'gcc', 'clang') if (root / 'usr' / 'bin' / name).exists()]
        for path in (wheel, prooflib.SOURCE / 'tests' / 'python' / 'installed.py'):
            shutil.copy(path, root)
        roots.inside(root, 'python3', '-m', 'venv', '/env')
        roots.inside(root, '/env/bin/pip', 'install', '--no-index', f'/{wheel.name}')
        roots.inside(root, '/env/bin/plimsoll', 'generate', 'arxiv', '/data', '--scale', '0.01', '--quiet')
        facts = json.loads(roots.inside(root, '/env/bin/python', '-I', '/installed.py', '/data').splitlines()[-1])
        return {**facts, 'compilers': compilers, 'version': json.loads(roots.inside(root, '/env/bin/plimsoll', '--version', '--json'))}
    finally:
        shutil.rmtree(root)


def try_command(roots, base, wheel):
    """The wheel's command trains with the suite's C library and nothing else."""
    folder = base / 'wheel'
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    (folder / 'plimsoll' / 'bin' / 'plimsoll').chmod(0o755)
    command = '/wheel/plimsoll/bin/plimsoll'
    roots.inside(base, command, 'generate', 'arxiv', '/data', '--scale', '0.01', '--quiet')
    roots.inside(base, command, 'train', '/data', '--run', '/run-of-it', '--model', 'sage', '--fanout', '5,3', '--hidden', '16', '--epochs', '1', '--quiet')
    return roots.inside(base, 'getconf', 'GNU_LIBC_VERSION').strip()


def try_beside_torch(work, wheel):
    home, data = work / 'environment', work / 'data'
    clean = {name: value for name, value in os.environ.items() if name not in ('PYTHONPATH', 'VIRTUAL_ENV', 'LD_LIBRARY_PATH')}
    prooflib.run('python3', '-m', 'venv', home)
    prooflib.run(home / 'bin' / 'pip', 'install', '--quiet', wheel, *TORCH, env=clean)
    prooflib.run(home / 'bin' / 'plimsoll', 'generate', 'arxiv', data, '--scale', '0.01', '--quiet', env=clean)
    return json.loads(prooflib.run(home / 'bin' / 'python', '-I', prooflib.SOURCE / 'tests' / 'python' / 'installed.py', data, env=clean).splitlines()[-1])


def check_texts(work, sbom):
    """spdx-tools and zizmor, of PyPI; either ends with an error if it finds one."""
    home = work / 'checkers'
    prooflib.run('python3', '-m', 'venv', home)
    prooflib.run(home / 'bin' / 'pip', 'install', '--quiet', 'spdx-tools', 'zizmor')
    prooflib.run(home / 'bin' / 'pyspdxtools', '-i', sbom)
    prooflib.run(home / 'bin' / 'zizmor', '--offline', '--quiet', prooflib.SOURCE / '.github' / 'workflows')


def prove(options, work):
    releases = options.releases
    if not releases:
        releases = [work / 'one', work / 'two']
        for release in releases:
            prooflib.run(prooflib.SOURCE / 'tools' / 'release', release, '--only', 'archive,wheel', '--wheel-dir', work / f'wheel-{release.name}')
    first, second = map(digests, releases)
    [archive], [wheel], [sbom] = (list(releases[0].glob(pattern)) for pattern in ('*.tar.xz', '*.whl', '*.spdx.json'))
    claims = {'two builds of the archive, the wheel and the SBOM are the same bytes': first == second}
    check_texts(work, sbom)
    claims['spdx-tools accepts the SBOM, zizmor the workflows'] = True
    facts, roots = {'sha256': first}, Roots(work)
    prooflib.run('tar', '-C', work, '-xf', archive)
    unpacked = work / archive.name.removesuffix('.tar.xz')
    for suite in ('bookworm', 'trixie'):
        base = roots.make(suite)
        packages, same, found = build_packages(roots, base, archive)
        claims[f'{suite}: two builds of the packages are the same bytes'] = same
        claims[f'{suite}: lintian finds neither errors nor warnings'] = not found
        tried = try_packages(roots, base, packages, unpacked)
        claims[f'{suite}: packages install over an older version, pass debian/tests, and leave nothing'] = not tried['left']
        facts[suite] = {'packages': digests(packages), 'lintian': found, **tried, 'wheel': try_wheel(roots, base, wheel)}
        shutil.rmtree(base)
    facts['sid'] = {'wheel': try_wheel(roots, roots.make('sid'), wheel)}
    for suite in ('bookworm', 'trixie', 'sid'):
        claims[f'{suite}: the wheel installs without a network and a compiler, and trains'] = not facts[suite]['wheel']['compilers']
    facts['old_glibc'] = try_command(roots, roots.make('bullseye'), wheel)
    claims['the command of the wheel trains with glibc 2.31'] = facts['old_glibc'] == 'glibc 2.31'
    facts['beside_torch'] = try_beside_torch(work, wheel)
    claims['the wheel works beside torch'] = bool(facts['beside_torch']['torch'])
    return 0 if prooflib.record(options.json, claims, **facts) else 1


def main():
    parser = prooflib.parser(__doc__, 'release.json')
    parser.add_argument('--dir', type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    parser.add_argument('--releases', type=pathlib.Path, nargs=2)
    options = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which('debootstrap'):
        prooflib.skip('needs root and debootstrap')
    with tempfile.TemporaryDirectory(dir=options.dir) as work:
        return prove(options, pathlib.Path(work))
