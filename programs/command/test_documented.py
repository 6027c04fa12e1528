"""Man pages and shell completions name every option that --help names, and no other."""
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
SOURCE = pathlib.Path(__file__).resolve().parents[2]
COMPLETION = SOURCE / 'completion'
MAN = {path.name: path for path in SOURCE.glob('programs/*/*.1')}
OPTION = re.compile(r'(?<![\w-])--[a-z][a-z0-9-]*')


def output(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=1500, **options).stdout


def help_of(*verb):
    """The options that a help text defines: they begin a line of their own."""
    text = output(PLIMSOLL, *verb, '--help')
    return {name for line in text.splitlines() if re.match(r' +-', line) for name in (found.group() for found in OPTION.finditer(line) if found.start() < 19)}


def all_verbs():
    listed = output(PLIMSOLL, '--help').split('Verbs:\n')[1].split('\n\n')[0]
    return [line.split()[0] for line in listed.splitlines()]


VERBS = all_verbs()


@pytest.mark.parametrize('verb', VERBS)
def test_every_verb_has_options(verb):
    assert help_of(verb) >= {'--memory', '--threads', '--io', '--json', '--quiet', '--help'}


@pytest.mark.skipif(shutil.which('mandoc') is None, reason='mandoc is not installed')
@pytest.mark.parametrize('page', sorted(MAN))
def test_man_pages_are_correct(page):
    done = subprocess.run(['mandoc', '-T', 'lint', '-W', 'warning', MAN[page]], check=False,
                          capture_output=True, text=True, timeout=1500)
    # Whether this machine has the pages referred to is not the page's fault.
    found = [line for line in done.stdout.splitlines() if 'manual not found' not in line]
    assert not found, '\n'.join(found)


@pytest.mark.skipif(shutil.which('mandoc') is None, reason='mandoc is not installed')
@pytest.mark.parametrize('verb', VERBS)
def test_man_page_names_every_option(verb):
    page = output('mandoc', '-T', 'ascii', MAN[f'plimsoll-{verb}.1'])
    named = set(OPTION.findall(re.sub('.\b', '', page)))
    assert help_of(verb) - named <= {'--help'}  # that it has help need not be listed
    assert f'plimsoll-{verb}(1)' in re.sub('.\b', '', output('mandoc', '-T', 'ascii', MAN['plimsoll.1']))


def test_option_lists_of_man_pages_are_current():
    output(SOURCE / 'tools' / 'man-options', '--check', PLIMSOLL)


def test_every_exit_code_is_documented():
    """Those of cli.h: in --help, the man page and both pages for beginners."""
    codes = set(re.findall(r'^ +CLI_(?!OPTION)[A-Z_]+ = (\d+),?$', (SOURCE / 'programs' / 'command' / 'cli.h').read_text(), re.M))
    assert codes >= {'0', '5', '6', '75'}
    listed = output(PLIMSOLL, '--help').split('Exit codes:')[1]
    assert set(re.findall(r'(?<![\w-])(\d+) [a-z]', listed)) == codes
    page = MAN['plimsoll.1'].read_text().split('.Sh EXIT STATUS')[1].split('.Sh ')[0]
    assert set(re.findall(r'^\.It (\d+)$', page, re.M)) == codes
    for name, begin in (('getting-started.md', 'Exit codes:'), ('getting-started.zh-CN.md', '退出码：0')):
        text = begin + (SOURCE / 'docs' / name).read_text().split(begin)[1].split('\n\n')[0]
        assert codes <= set(re.findall(r'\d+', text)), name


def complete(*words):
    """What bash offers for the last of these words."""
    script = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() { :; }; _plimsoll; ' \
             'printf "%s\\n" "${COMPREPLY[@]}"'
    return set(output('bash', '-c', script, COMPLETION / 'plimsoll.bash', PLIMSOLL, *words).split())


@pytest.mark.parametrize('verb', VERBS)
def test_bash_offers_every_option(verb):
    assert complete(verb, '--') == help_of(verb)


def test_bash_offers_verbs_and_values():
    assert complete('') >= set(VERBS)
    assert complete('l') == {'limit'}
    assert complete('limit', '--io', '') == {'auto', 'uring', 'threads'}
    assert complete('limit', '--io', '=', 'u') == {'uring'}
    assert complete('import', '--self-loops', 'a') == {'add'}
    assert 'papers100M' in complete('generate', 'p')
    assert complete('bench', '') == {'sample', 'load'}
    assert complete('bench', 'load', '--features', '') == {'memory', 'disk'}
    assert complete('train', 'd', '--loss', 'cross-') == {'cross-entropy'}
    assert complete('train', 'd', '--row-cache', 'n') == {'none'}
    assert complete('help', 'pl') == {'plan'}
    assert complete('train', 'd', '--resume', '--mo') == {'--model', '--momentum'}


def test_bash_offers_files_where_they_go(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'folder').mkdir()
    (tmp_path / 'file').touch()
    assert complete('import', 'f') == {'folder', 'file'}
    assert complete('train', 'f') == complete('train', '--run', 'f') == {'folder'}
    assert complete('train', 'd', '--init', 'fi') == {'file'}
    assert complete('plan', 'f') == {'folder', 'free'}


def test_values_in_the_same_word():
    """As zsh and fish ask for them."""
    assert output(PLIMSOLL, '--complete', 'limit', '--io=u').split() == ['--io=uring']


@pytest.mark.parametrize('shell, file', [('bash', 'plimsoll.bash'), ('zsh', '_plimsoll'), ('fish', 'plimsoll.fish')])
def test_completions_parse(shell, file):
    if shutil.which(shell) is None:
        pytest.skip(f'{shell} is not installed')
    output(shell, '-n', COMPLETION / file)


@pytest.mark.skipif(shutil.which('fish') is None, reason='fish is not installed')
def test_fish_offers_verbs_and_values():
    def offered(text):
        script = f"source '{COMPLETION}/plimsoll.fish'; complete -C '{PLIMSOLL} {text}'"
        return {line.split('\t')[0] for line in output('fish', '--no-config', '-c', script).splitlines()}
    assert offered('pl') == {'plan'}
    assert offered('train d --model g') == {'gcn', 'gat', 'gatv2', 'gin', 'gine'}


@pytest.mark.skipif(shutil.which('zsh') is None, reason='zsh is not installed')
def test_zsh_completes_a_verb():
    """On a terminal, where the verb's own help then shows which one it was."""
    controller, terminal = pty.openpty()
    with subprocess.Popen(['zsh', '-fi'], stdin=terminal, stdout=terminal, stderr=terminal, env={**os.environ, 'TERM': 'dumb'}) as shell:
        os.close(terminal)
        os.write(controller, f"fpath=('{COMPLETION}' $fpath); autoload -Uz compinit; compinit -u -D\n{PLIMSOLL} pl\t--help\nexit\n".encode())
        said = b''
        while shell.poll() is None or select.select([controller], [], [], 0)[0]:
            try:
                said += os.read(controller, 65536)
            except OSError:  # all of the shell is gone
                break
    os.close(controller)
    assert b'usage: plimsoll plan' in said
