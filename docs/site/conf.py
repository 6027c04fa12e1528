"""Sphinx's settings for the documentation site; tools/site lays out the pages that they describe."""
import os
import pathlib
import re
import sys

SOURCE = pathlib.Path(os.environ['PLIMSOLL_SOURCE'])
sys.path.insert(0, str(SOURCE / 'python'))

project = 'Plimsoll'
copyright = 'Plimsoll maintainers, Apache-2.0'
release = version = re.search(r'^project\(plimsoll VERSION ([0-9.]+)', (SOURCE / 'CMakeLists.txt').read_text(), re.M).group(1)
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'breathe']
root_doc = 'README'
include_patterns = ['*.md', 'docs/*.md', 'docs/*/*.md', 'packaging/*.md', 'reference/*.md']
default_role = 'code'
smartquotes = False  # --option stays as it is typed
pygments_style, pygments_dark_style = 'default', 'monokai'
suppress_warnings = ['duplicate_declaration.c']  # a struct and the function that fills it share a name
myst_enable_extensions = ['colon_fence']
myst_heading_anchors = 4
# A package without its extension: only signatures and texts are read.
autodoc_mock_imports = ['plimsoll._core', 'torch', 'torch_geometric', 'numpy']
autodoc_typehints = 'none'
autodoc_default_options = {'members': True, 'undoc-members': False}
breathe_projects = {'plimsoll': os.environ['PLIMSOLL_DOXYGEN']}
breathe_default_project = 'plimsoll'
breathe_domain_by_extension = {'h': 'c'}
highlight_language = 'none'
html_theme = 'furo'
html_title = f'Plimsoll {version}'
html_show_sphinx = False
html_copy_source = False
html_static_path = ['site.css']
html_css_files = ['site.css']
html_theme_options = {'light_css_variables': {'color-brand-primary': '#0b5c8a', 'color-brand-content': '#0b5c8a'},
                      'dark_css_variables': {'color-brand-primary': '#6cb8e6', 'color-brand-content': '#6cb8e6'}}

# The pages by what a reader wants; every page of docs/ stands in one of the groups, or Sphinx warns.
PAGES = {
    'Using it': ['docs/getting-started', 'docs/from-pyg', 'docs/links', 'docs/importing-data', 'docs/planning', 'docs/what-fits',
                 'docs/training', 'docs/clusters', 'docs/why-jobs-die', 'docs/memory-line'],
    'Reference': ['reference/command', 'docs/python', 'reference/python', 'docs/c', 'reference/c', 'docs/format', 'docs/glossary'],
    'How it is built': ['docs/tour', 'docs/design', 'docs/design/*', 'docs/scale', 'docs/benchmarks', 'docs/proofs', 'docs/dependencies'],
    'Project': ['CONTRIBUTING', 'packaging/README', 'SECURITY', 'CHANGELOG'],
    '中文': ['README.zh-CN', 'docs/*.zh-CN'],
}


def add_contents(app, name, source):
    if name != root_doc:
        return
    for caption, pages in PAGES.items():
        lines = ['', '', '```{toctree}', ':hidden:', ':maxdepth: 1', ':glob:', f':caption: {caption}', '', *pages, '```', '']
        source[0] += '\n'.join(lines)


def join_chinese(app, name, source):
    """Between Chinese characters the end of a line is no space."""
    if name.endswith('.zh-CN'):
        chinese = '[\u3000-\u30ff\u4e00-\u9fff\uff00-\uffef]'
        source[0] = re.sub(f'(?<={chinese})\\n *(?={chinese})', '', source[0])


def read_docstring(app, what, name, obj, options, lines):
    """As the texts are written: `word:   text` is an entry of a list, and an indented block after an empty line is code."""
    out, listing = [], False
    for line in lines:
        entry = re.match(r'(\w+):  +(.*)', line) or (re.match(r' {4}(\w+): (.*)', line) if listing else None)
        if entry:
            out += ['', f'- ``{entry[1]}``: {entry[2]}']
            listing = True
        elif line == 'Args:':
            listing = True
        elif listing and line.startswith('    '):
            out.append('  ' + line.strip())
        else:
            if listing and line:
                out.append('')
            listing = listing and not line
            if line.startswith('    ') and out and not out[-1]:
                out += ['::', '']
            out.append(line)
    lines[:] = out


def setup(app):
    app.connect('source-read', add_contents)
    app.connect('source-read', join_chinese)
    app.connect('autodoc-process-docstring', read_docstring)
