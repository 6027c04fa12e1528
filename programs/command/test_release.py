# labels: plain
"""The source archive is reproducible, and the pages make a site without a warning (nightly). tools/prove release has the rest of a release."""
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import tarfile

import pytest

SOURCE = pathlib.Path(os.environ['PLIMSOLL_SOURCE'])


@pytest.mark.skipif(not (SOURCE / '.git').exists(), reason='not a clone')
def test_the_archive_is_the_same_twice(tmp_path):
    for name in ('one', 'two'):
        subprocess.run([SOURCE / 'tools' / 'release', tmp_path / name, '--only', 'archive'], check=True)
    assert (tmp_path / 'one' / 'SHA256SUMS').read_bytes() == (tmp_path / 'two' / 'SHA256SUMS').read_bytes()
    [archive] = (tmp_path / 'one').glob('*.tar.xz')
    with tarfile.open(archive) as tar:
        assert {'CMakeLists.txt', 'LICENSE', 'debian/control'} <= {name.partition('/')[2] for name in tar.getnames()}


# Sphinx takes 40 s of a processor. What breaks pages most, links and examples, test_pages.py and test_readme.py have.
@pytest.mark.nightly
@pytest.mark.skipif(not all(map(shutil.which, ('doxygen', 'mandoc'))) or not all(map(importlib.util.find_spec, ('sphinx', 'furo', 'myst_parser', 'breathe'))),
                    reason='doxygen, mandoc, sphinx, furo, myst-parser or breathe is not installed')
def test_the_site_builds_without_warnings(tmp_path):
    subprocess.run([SOURCE / 'tools' / 'site', tmp_path / 'site'], check=True)
    pages = {path.stem for path in (tmp_path / 'site' / 'reference').glob('*.html')}
    assert pages == {page.stem for page in SOURCE.glob('programs/*/*.1')} | {'command', 'c', 'python'}
    c_page = (tmp_path / 'site' / 'reference' / 'c.html').read_text()
    assert 'plim_loader_create' in c_page and 'NeighborLoader' in (tmp_path / 'site' / 'reference' / 'python.html').read_text()
    fetched = [found for page in (tmp_path / 'site').rglob('*.html') for found in re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(https?:[^"]*)', page.read_text())]
    assert not fetched, 'readable offline'


@pytest.mark.skipif(not all(map(shutil.which, ('cmake', 'ninja', 'pkg-config'))), reason='cmake, ninja or pkg-config is not installed')
def test_a_build_without_libraries_names_them_and_where_they_come_from(tmp_path):
    done = subprocess.run(['cmake', '-S', SOURCE, '-B', tmp_path / 'build', '-G', 'Ninja'], capture_output=True, text=True, check=False,
                          env={**os.environ, 'PKG_CONFIG_LIBDIR': str(tmp_path)})
    assert done.returncode != 0
    for name in ('liburing', 'libisal', 'libzstd', 'jansson', 'libxxhash', 'yaml-0.1', 'tools/bootstrap', 'conda install',
                 'packaging/spack/package.py', 'packaging/plimsoll.def', 'packaging/README.md'):
        assert name in done.stderr


@pytest.mark.parametrize('arguments, code', [(['--help'], 0), (['--minimal', 'x'], 2), (['--nope'], 2)], ids=str)
def test_bootstrap_installs_nothing_without_its_options(tmp_path, arguments, code):
    (tmp_path / 'sed').symlink_to(shutil.which('sed'))  # and neither apt-get nor pip
    done = subprocess.run([SOURCE / 'tools' / 'bootstrap', *arguments], env={'PATH': str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert (done.stderr if code else done.stdout).startswith('tools/bootstrap [--minimal | --system | --python]\n')
