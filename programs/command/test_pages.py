"""The pages: the first one is short, links lead somewhere, and what the tour, the glossary and the references name exists."""
import ast
import os
import pathlib
import re
import subprocess

import pytest

SOURCE = pathlib.Path(os.environ['PLIMSOLL_SOURCE'])
FIRST = ['README.md', 'README.zh-CN.md']
PAGES = [*FIRST, 'CONTRIBUTING.md', 'SECURITY.md', 'packaging/README.md', *sorted(str(page.relative_to(SOURCE)) for page in SOURCE.glob('docs/**/*.md'))]
COLUMNS = 100
STATED_VERSIONS = {'CHANGELOG.md': r'^## (\S+)', 'CITATION.cff': r'^version: (\S+)', 'debian/changelog': r'^plimsoll \((\S+)\)',
                   'packaging/conda/recipe.yaml': r'^  version: "(\S+)"', 'packaging/spack/package.py': r'^    version\("(\S+)"'}


def text_of(page):
    """The page without its code, where brackets are no links and # is no heading."""
    return re.sub(r'^```.*?^```|^    .*?$|`[^`\n]*`', lambda code: '\n' * code.group().count('\n'), (SOURCE / page).read_text(), flags=re.M | re.S)


def anchor(heading):
    """As GitHub makes it from a heading."""
    return re.sub(r'[^\w\- ]', '', heading.strip().lower()).replace(' ', '-')


def anchors(page):
    text = re.sub(r'^```.*?^```', '', page.read_text(), flags=re.M | re.S)
    return {anchor(heading) for heading in re.findall(r'^#+ (.*)$', text, re.M)}


def test_the_first_page_is_short():
    text = (SOURCE / 'README.md').read_text()
    assert len(text.split()) <= 1100
    assert len(text.splitlines()) <= 130


@pytest.mark.parametrize('page', PAGES)
def test_links_lead_to_files_and_headings(page):
    for target in re.findall(r'\]\(([^)\s]+)\)', text_of(page)):
        if '://' in target:
            continue
        path, _, heading = target.partition('#')
        file = (SOURCE / page).parent / path if path else SOURCE / page
        assert file.exists(), f'{page}: {target}'
        assert not heading or heading in anchors(file), f'{page}: {target}'


def test_every_page_is_linked():
    linked = {(pathlib.Path(page).parent / target.partition('#')[0]) for page in PAGES for target in re.findall(r'\]\(([^)\s]+)\)', text_of(page))}
    found = {os.path.normpath(target) for target in linked}
    assert [page for page in PAGES if page not in found and page not in FIRST[:1]] == []


@pytest.mark.parametrize('page', PAGES)
def test_lines_are_narrow(page):
    """Where they can be broken: not in tables, and not in what a program printed."""
    shown = False
    for line in (SOURCE / page).read_text().splitlines():
        if line.startswith('```'):
            shown = not shown and line in ('```text', '```console')
        elif not shown and not line.startswith(('|', '    ')):
            assert len(line) <= COLUMNS, line


def test_files_that_state_the_version_state_the_same():
    """CMakeLists.txt decides; these cannot read it."""
    version = re.search(r'^project\(plimsoll VERSION ([0-9.]+)', (SOURCE / 'CMakeLists.txt').read_text(), re.M).group(1)
    stated = {file: re.search(pattern, (SOURCE / file).read_text(), re.M).group(1) for file, pattern in STATED_VERSIONS.items()}
    assert stated == dict.fromkeys(STATED_VERSIONS, version)


def test_debians_symbols_are_those_of_the_map():
    exported = re.findall(r'^        (plim_\w+);', (SOURCE / 'cmake' / 'plimsoll.map').read_text(), re.M)
    listed = re.findall(r'^ (plim_\w+)@Base', (SOURCE / 'debian' / 'libplimsoll0.2.symbols').read_text(), re.M)
    assert listed == sorted(exported)


def test_the_benchmarks_are_those_of_the_results():
    assert subprocess.run([SOURCE / 'tools' / 'benchmarks', '--check'], check=False).returncode == 0


def test_the_results_are_those_that_the_proofs_name():
    """A new result replaces the one before; a file that no claim cites goes."""
    proofs, benchmarks = (set(re.findall(r'`([\w-]+\.json)`', (SOURCE / 'docs' / page).read_text())) for page in ('proofs.md', 'benchmarks.md'))
    assert {path.name for path in (SOURCE / 'bench' / 'results').iterdir()} == proofs and benchmarks <= proofs


def test_proofs_and_tests_that_the_page_names_exist():
    text = (SOURCE / 'docs' / 'proofs.md').read_text()
    proofs = set(re.findall(r'`tools/prove ([a-z][\w-]*)', text))
    assert len(proofs) >= 40 and [proof for proof in sorted(proofs) if not (SOURCE / 'tools' / 'proofs' / f'{proof}.py').exists()] == []
    files = [path for kind in ('tests', 'programs') for path in SOURCE.glob(f'{kind}/*/test_*.*')]
    tests = [f'{path.parent.name}.{path.stem.removeprefix("test_")}' for path in files]
    tests += [f'fuzz.{path.stem}' for path in (SOURCE / 'fuzz').glob('*.c')]
    patterns = [*re.findall(r'^\|.*\| `([^`/ ]+)` \|$', text, re.M), *re.findall(r'ctest -R "?([^"`]+)', text),
                *re.findall(r'\(`([^`/ ]+)`\)', ' '.join(re.findall(r'^In every CI run: .*?\n\n', text, re.M | re.S)))]
    names = {name for pattern in patterns for name in pattern.replace('\\|', '|').split('|')}
    assert len(names) >= 50 and [name for name in sorted(names) if not any(re.search(name, test) for test in tests)] == []


SOURCES = [path for folder in ('src', 'include', 'programs', 'plugins', 'python', 'examples', 'tests', 'bench', 'fuzz')
           for path in SOURCE.glob(f'{folder}/**/*.[ch]')]


@pytest.fixture(scope='module')
def words():
    return {word for path in SOURCES for word in re.findall(r'\w+', path.read_text())}


@pytest.mark.parametrize('page', PAGES)
def test_sources_and_symbols_that_a_page_names_exist(page, words):
    text = re.sub(r'^```.*?^```', '', (SOURCE / page).read_text(), flags=re.M | re.S)
    files = re.findall(r'`([a-z_]+/[a-z_/]+\.[ch])`', text)
    assert [file for file in files if not any(str(path).endswith(f'/{file}') for path in SOURCES)] == []
    assert [name for name in re.findall(r'`((?:plim|PLIM|cli)_[A-Za-z_]+)`', text) if name not in words] == []


def test_the_tour_names_functions_of_its_files():
    stops = re.findall(r'^\| `([\w/]+\.c)` \| (.*?) \|', (SOURCE / 'docs' / 'tour.md').read_text(), re.M)
    assert 10 <= len({file for file, _ in stops}) <= 25
    for file, functions in stops:
        code = (SOURCE / file).read_text()
        for function in re.findall(r'`(\w+)`', functions):
            assert re.search(rf'^[^\s/*#].*\b{function}\(', code, re.M), f'{file}: {function}'


def test_the_glossary_has_few_terms_in_order():
    terms = re.findall(r'^\| ([a-z][^|]*) \|', (SOURCE / 'docs' / 'glossary.md').read_text(), re.M)[1:]
    assert terms == sorted(set(terms)) and len(terms) <= 40


def test_the_python_page_names_every_public_name():
    package = ast.parse((SOURCE / 'python' / 'plimsoll' / '__init__.py').read_text())
    public = next(node.value for node in package.body if isinstance(node, ast.Assign) and node.targets[0].id == '__all__')
    page = (SOURCE / 'docs' / 'python.md').read_text()
    assert [name for name in ast.literal_eval(public) if not re.search(rf'`{name}\b', page)] == []


@pytest.mark.parametrize('page', ['docs/from-pyg.md', 'docs/from-pyg.zh-CN.md'])
def test_every_argument_of_the_loader_is_compared_with_pygs(page):
    loader = ast.parse((SOURCE / 'python' / 'plimsoll' / 'loader.py').read_text())
    kind = next(node for node in loader.body if isinstance(node, ast.ClassDef) and node.name == 'NeighborLoader')
    arguments = next(node.args for node in kind.body if isinstance(node, ast.FunctionDef) and node.name == '__init__')
    names = {argument.arg for argument in [*arguments.args, *arguments.kwonlyargs]} - {'self'}
    for table in (node for node in loader.body if isinstance(node, ast.Assign) and node.targets[0].id in ('_DATALOADER', '_NOT_NEEDED', '_DROPPED')):
        names |= {key.value for key in table.value.keys if key is not None}
    text = (SOURCE / page).read_text()
    assert len(names) > 30 and [name for name in sorted(names) if not re.search(rf'`{name}\b', text)] == []
