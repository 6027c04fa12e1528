"""Installed into any prefix, it runs from there, and other programs build against it."""
import json
import os
import pathlib
import shutil
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
HEADERS = sorted(path.stem for path in (SOURCE / 'include' / 'plimsoll').glob('*.h')) + ['version']
PROGRAM = r'''
#include <plimsoll/plimsoll.h>
#include <stdio.h>

int main(void)
{
    char text[24];
    int64_t bytes = 0;
    if (plim_size_parse("4G", &bytes) != PLIM_OK || bytes != INT64_C(4) << 30)
        return 1;
    return printf("%s %s\n", PLIM_VERSION, plim_size_text(bytes, text)) < 0;
}
'''
LANGUAGES = {'c': ['cc', '-x', 'c', '-std=c11'], 'c++': ['c++', '-x', 'c++']}


def run(*words, **options):
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f'{words}\n{done.stdout}\n{done.stderr}'
    return done.stdout


@pytest.fixture(name='prefix', scope='module')
def installed(tmp_path_factory):
    """What was built, installed; where its directory cannot be written, as for another user, a build of its own. .ci/run builds offline."""
    folder = tmp_path_factory.mktemp('install')
    prefix, build = folder / 'any' / 'prefix', pathlib.Path(os.environ['PLIMSOLL']).parent
    if not os.access(build / 'cmake_install.cmake', os.W_OK):
        build = folder / 'build'
        run('cmake', '-S', SOURCE, '-B', build, '-G', 'Ninja', '-DCMAKE_BUILD_TYPE=Debug', '-DPLIMSOLL_TESTS=OFF')
        run('cmake', '--build', build)
    run('cmake', '--install', build, '--prefix', prefix)
    return prefix


def search_path(file):
    """Where a file looks for its libraries, as its elements."""
    printed = run('readelf', '-d', file)
    return [element for line in printed.splitlines() if 'RUNPATH' in line or 'RPATH' in line
            for element in line.split('[', 1)[1].rstrip(']').split(':')]


def is_safe(element):
    """Not the current directory, which an empty element stands for."""
    return element.startswith(('/', '$ORIGIN'))


def test_libraries_are_never_taken_from_the_current_directory(prefix):
    built = pathlib.Path(os.environ['PLIMSOLL'])
    installed_library = next(prefix.rglob('libplimsoll.so'))
    for file in [built, built.parent / 'libplimsoll.so', prefix / 'bin' / 'plimsoll', installed_library]:
        assert all(map(is_safe, search_path(file))), f'{file}: {search_path(file)}'


def flags(prefix):
    [config] = prefix.rglob('plimsoll.pc')
    return run('pkg-config', '--cflags', '--libs', 'plimsoll',
               env={**os.environ, 'PKG_CONFIG_PATH': str(config.parent)}).split()


def test_binary_runs_from_the_prefix(prefix):
    assert run(prefix / 'bin' / 'plimsoll', '--version', env={'PATH': os.environ['PATH']}).startswith('plimsoll ')


def test_version_says_how_it_was_built(prefix):
    facts = json.loads(run(prefix / 'bin' / 'plimsoll', '--version', '--json'))
    assert facts['version'] == facts['library_version'] == run(prefix / 'bin' / 'plimsoll', '--version').split()[1]
    assert facts['compiler'] and facts['build_type'] and facts['onednn'].startswith('libdnnl.')
    assert all(plugin['name'] and plugin['mpi'] for plugin in facts['mpi_plugins'])


def test_moved_prefix_still_works(prefix):
    elsewhere = prefix.parent / 'moved'
    prefix.rename(elsewhere)
    try:
        assert run(elsewhere / 'bin' / 'plimsoll', '--version').startswith('plimsoll ')
        assert f'-I{elsewhere}' in ' '.join(os.path.normpath(flag) if flag[0] == '/' else flag[:2] + os.path.normpath(flag[2:])
                                            for flag in flags(elsewhere))
    finally:
        elsewhere.rename(prefix)


@pytest.mark.parametrize('language', LANGUAGES)
def test_program_builds_against_it(prefix, tmp_path, language):
    compiler, *options = LANGUAGES[language]
    if not shutil.which(compiler):
        pytest.skip(f'{compiler} is not here')
    source = tmp_path / 'program'
    source.write_text(PROGRAM)
    [library] = prefix.rglob('libplimsoll.so')
    run(compiler, *options, '-Wall', '-Wextra', '-Werror', source, '-x', 'none', '-o', tmp_path / 'a.out', *flags(prefix))
    printed = run(tmp_path / 'a.out', env={**os.environ, 'LD_LIBRARY_PATH': str(library.parent)})
    assert printed.split()[1].startswith('4')


def test_example_reads_an_epoch(prefix, tmp_path):
    [library] = prefix.rglob('libplimsoll.so')
    run('cc', '-std=c11', '-Wall', '-Wextra', '-Werror', SOURCE / 'examples' / 'epoch.c', '-o', tmp_path / 'epoch', *flags(prefix))
    run(prefix / 'bin' / 'plimsoll', 'generate', 'papers100M', tmp_path / 'tiny', '--scale', '0.001', '--quiet')
    printed = run(tmp_path / 'epoch', tmp_path / 'tiny', env={**os.environ, 'LD_LIBRARY_PATH': str(library.parent)})
    assert 'step 0: 1024 seeds' in printed and 'step 1: ' in printed and 'step 2: ' not in printed


def test_mpi_plugin_compiles_with_one_command(prefix, tmp_path):
    if not shutil.which('mpicc'):
        pytest.skip('mpicc is not here')
    [source] = prefix.rglob('mpi_plugin.c')
    plugin = tmp_path / 'plimsoll-mpi.so'
    run('mpicc', '-shared', '-fPIC', '-O2', '-I', source.parent, '-o', plugin, source)
    assert 'plugin of PLIMSOLL_MPI: ' in run(prefix / 'bin' / 'plimsoll', '--version', env={**os.environ, 'PLIMSOLL_MPI': str(plugin)})


@pytest.mark.parametrize('language', LANGUAGES)
@pytest.mark.parametrize('header', HEADERS)
def test_header_compiles_alone(prefix, header, language):
    compiler, *options = LANGUAGES[language]
    if not shutil.which(compiler):
        pytest.skip(f'{compiler} is not here')
    subprocess.run([compiler, *options, '-pedantic', '-Wall', '-Wextra', '-Werror', '-fsyntax-only', '-I', prefix / 'include', '-'],
                   input=f'#include <plimsoll/{header}.h>\nextern int nothing;\n', text=True, check=True)


def test_manual_and_completions_are_installed(prefix):
    printed = run(prefix / 'bin' / 'plimsoll', '--help')
    pages = {path.stem for path in (prefix / 'share' / 'man' / 'man1').iterdir()}
    verbs = {page.removeprefix('plimsoll-') for page in pages - {'plimsoll'}}
    assert 'plimsoll' in pages and verbs
    assert all(verb in printed for verb in verbs)
    for path in 'bash-completion/completions/plimsoll', 'zsh/site-functions/_plimsoll', 'fish/vendor_completions.d/plimsoll.fish':
        assert (prefix / 'share' / path).stat().st_size > 0
