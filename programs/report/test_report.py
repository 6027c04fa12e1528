"""Pages about runs: what they show, that they hold everything they need, and that no text of a file becomes markup."""
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

PLIMSOLL = os.environ['PLIMSOLL']
MIB = 1 << 20
VOID = {'meta', 'br', 'path'}
TAGS = {'html', 'head', 'meta', 'title', 'style', 'body', 'main', 'h1', 'h2', 'h3', 'h4', 'p', 'div', 'section', 'span', 'dl', 'dt', 'dd', 'small', 'figure',
        'figcaption', 'b', 'i', 'svg', 'path', 'ul', 'ol', 'li', 'table', 'thead', 'tbody', 'tr', 'th', 'td', 'code', 'footer'}
ATTRIBUTES = {'lang', 'charset', 'name', 'content', 'class', 'style', 'scope', 'viewbox', 'preserveaspectratio', 'role', 'aria-label', 'd'}
HOSTILE = '</td></title></style><script>alert(1)</script><img src=x onerror=y>&amp;"\' onload=z'


class Page(html.parser.HTMLParser):
    """A page as a list of (tag, attributes, text inside), after checking that elements nest."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.declared = [], [], []
        self.feed(text)
        self.close()
        assert not self.open and self.declared == ['DOCTYPE html']

    def handle_decl(self, decl):
        self.declared.append(decl)

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS and {name for name, _ in attrs} <= ATTRIBUTES, (tag, attrs)
        self.elements.append([tag, dict(attrs), ''])
        if tag not in VOID:
            self.open.append(self.elements[-1])

    def handle_startendtag(self, tag, attrs):
        assert tag == 'path'
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        for element in self.open:
            element[2] += data

    def texts(self, tag, cls=''):
        return [text for name, attrs, text in self.elements if name == tag and cls in attrs.get('class', '').split() + ['']]

    def row(self, title):
        """The cells of the table row with this heading."""
        at = next(i for i, (tag, _, text) in enumerate(self.elements) if tag == 'th' and text == title)
        cells = []
        for tag, _, text in self.elements[at + 1:]:
            if tag == 'tr':
                break
            if tag == 'td':
                cells.append(text)
        return cells


def run(*words, code=0, **options):
    done = subprocess.run([PLIMSOLL, *map(os.fsencode, map(str, words))], capture_output=True, check=False, timeout=1500, **options)
    assert done.returncode == code, done.stderr.decode(errors='replace')
    return done.stdout


def report(tmp_path, *runs):
    out = tmp_path / 'page.html'
    answer = json.loads(run('report', *runs, '--out', out, '--json'))
    assert answer['runs'] == len(runs) and answer['bytes'] == out.stat().st_size
    text = out.read_bytes().decode()  # valid UTF-8
    assert not re.search(r'https?:|url\(|@import|<script|<link|srcset|javascript:', re.sub(r'>[^<]*<', '><', text), re.I)
    assert not [c for c in text if (ord(c) < 32 and c != '\n') or 127 <= ord(c) < 160]
    try:
        import html5lib
        html5lib.HTMLParser(strict=True).parse(text)
    except ImportError:
        pass
    return Page(text)


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
    """Two runs of one dataset that differ in a setting."""
    path = tmp_path_factory.mktemp('trained')
    run('generate', 'free', path / 'graph', '--nodes', 3000, '--edges', 40000, '--features', 32, '--classes', 5, '--quiet')
    for name, hidden in (('one', 16), ('two', 32)):
        run('train', path / 'graph', '--run', path / name, '--epochs', 3, '--hidden', hidden, '--fanout', '5,5', '--quiet')
    return path


def test_a_training_has_curves_memory_plan_and_recipe(trained, tmp_path):
    page = report(tmp_path, trained / 'one')
    metrics = [json.loads(line) for line in (trained / 'one/metrics.jsonl').read_text().splitlines()]
    timeline = [json.loads(line) for line in (trained / 'one/timeline.jsonl').read_text().splitlines()]
    best = max((line for line in metrics if line['best']), key=lambda line: line['epoch'])
    assert page.texts('h1') == ['one'] and 'finished' in [attrs.get('class', '').split()[-1] for tag, attrs, _ in page.elements if tag == 'p' and attrs]
    assert any(text.startswith('%.4f' % best['valid']) for text in page.texts('dd'))
    charts = page.texts('figcaption')
    assert [name for name in ('Loss', 'Score', 'Memory', 'Throughput', 'Time by stage') if not any(chart.startswith(name) for chart in charts)] == []
    assert page.row('hidden') == ['16'] and page.row('fanout') == ['5, 5'] and page.row('epochs') == ['3']
    assert timeline[0]['kind'] == 'plan' and sum(timeline[0]['accounts'].values()) == timeline[0]['total_bytes']
    assert len(page.row('memory, planned peak')) == 1
    lines = [line for line in timeline if 'kind' not in line]
    assert all(sum(line['accounts'].values()) == line['reserved_bytes'] for line in lines)
    # The ledger's names are the plan's, but for accounts that the plan counts to the process; caches of so small a graph are no larger than the I/O without them.
    plan = json.loads(run('plan', trained / 'graph', '--epochs', 3, '--hidden', 16, '--fanout', '5,5', '--json').splitlines()[-1])
    planned = {account['name'] for account in plan['accounts']}
    assert {name for line in lines for name in line['accounts']} - planned <= {'meter', 'dataset', 'plan', 'job', 'list cache', 'row cache'}, planned
    assert all(line['rows_cached'] <= line['rows'] and line['lists_cached'] <= line['lists'] for line in lines)
    legend = ' '.join(page.texts('li'))
    assert 'reserve' in legend and 'process' in legend
    assert page.row('fingerprint') == [json.loads((trained / 'one/run.json').read_text())['dataset']['fingerprint']]


def test_time_counts_each_start(tmp_path):
    """Opening the run and filling caches, before the first step and after a break, but not the break itself, and nothing twice."""
    def plan(began, at, resumed):
        return json.dumps({'kind': 'plan', 'began_s': began, 'time_s': at, 'resumed': resumed, 'ranks': 1, 'total_bytes': MIB, 'accounts': {'process': MIB}})

    def work(at, seconds):
        return json.dumps({**json.loads(interval(1, {'process': MIB})), 'time_s': at, 'seconds': seconds})
    page = report(tmp_path, write(tmp_path / 'run', plan(1000, 1003, False), work(1010, 2), work(1012, 2), plan(2000, 2001, True), work(2004, 3)))
    assert any(text.startswith('16.0 s') for text in page.texts('dd')), page.texts('dd')
    assert page.row('start')[1] == '9.00 s' and page.row('training')[1] == '7.00 s' and page.row('run, measured') == ['16.0 s']
    page = report(tmp_path, write(tmp_path / 'early', plan(1000, 1003, False), work(1010, 7), plan(1000, 1013, True), work(1014, 1)))
    assert page.row('start')[1] == '6.00 s' and page.row('training')[1] == '8.00 s'


def test_the_plan_is_that_of_training(tmp_path):
    """A later predict may hold more than training does."""
    run('generate', 'free', tmp_path / 'graph', '--nodes', 60000, '--edges', 60000, '--features', 4, '--classes', 40, '--quiet')
    words = ['--run', tmp_path / 'run', '--epochs', 1, '--hidden', 512, '--fanout', '1,1', '--batch', 64]
    phases = json.loads(run('train', tmp_path / 'graph', *words, '--json', '--quiet').splitlines()[0])['phases']
    plan = json.loads((tmp_path / 'run/timeline.jsonl').read_text().splitlines()[0])
    assert phases['predict'] == max(phases.values()) > plan['total_bytes'] == max(size for phase, size in phases.items() if phase != 'predict'), phases
    assert sum(plan['accounts'].values()) == plan['total_bytes'] and plan['began_s'] < plan['time_s']


def test_several_runs_stand_side_by_side(trained, tmp_path):
    page = report(tmp_path, trained / 'one', trained / 'two')
    assert [text for text in page.texts('h3')][:2] == ['Aone', 'Btwo']
    assert page.row('hidden') == ['16', '32'] and page.row('layers') == ['2', '2']
    differing = [text for tag, attrs, text in page.elements if tag == 'tr' and attrs.get('class') == 'diff']
    assert differing == ['hidden1632']
    ends = [text.split()[0] for text in page.texts('span', 'e')]
    assert ends.count('A') == ends.count('B') >= 2


def test_what_only_one_of_the_runs_has_is_shown(trained, tmp_path):
    shutil.copytree(trained / 'two', tmp_path / 'two')
    about = json.loads((tmp_path / 'two/run.json').read_text())
    about['settings']['later'] = 7
    (tmp_path / 'two/run.json').write_text(json.dumps(about))
    first, *lines = (tmp_path / 'two/timeline.jsonl').read_text().splitlines(keepends=True)
    first = json.loads(first)
    first['accounts']['row cache'] = 1 << 20
    (tmp_path / 'two/timeline.jsonl').write_text(json.dumps(first) + '\n' + ''.join(lines))
    page = report(tmp_path, trained / 'one', tmp_path / 'two')
    assert page.row('later') == ['', '7'] and page.row('planned: row cache')[1] == '1 MiB'
    assert len(page.row('hidden')) == 2 and 'later7' in [text for tag, attrs, text in page.elements if tag == 'tr' and attrs.get('class') == 'diff']


def test_at_most_eight_runs(trained, tmp_path):
    run('report', *[trained / 'one'] * 9, '--out', tmp_path / 'page.html', code=2)
    assert not (tmp_path / 'page.html').exists()


def test_a_watched_program_that_was_killed(tmp_path):
    script = 'printf "load\\nepoch 1\\n" >> $PLIMSOLL_WATCH; sleep 1; kill -9 $$'
    run('watch', '--out', tmp_path / 'run', '--', 'sh', '-c', script, code=137)
    verdict = json.loads(run('doctor', tmp_path / 'run', '--json'))
    page = report(tmp_path, tmp_path / 'run')
    assert verdict['outcome'] == 'died' and verdict['summary'] in page.texts('p') and verdict['cause'] in page.texts('code')
    assert page.row('command') == ['sh -c ' + script]
    assert [text for text in page.texts('td') if text in ('load', 'epoch 1')] == ['load', 'epoch 1']
    assert page.texts('span', 'p') and page.texts('span', 'e')


def tick(at, used, **more):
    return json.dumps({'kind': 'tick', 'at_s': at, 'line': 0, 'used_bytes': used, 'line_bytes': 512 * MIB, 'held_bytes': used, 'num_processes': 1, **more})


def begin(**more):
    return json.dumps({'kind': 'begin', 'format': 1, 'limits': [{'source': 'cgroup v2 /job memory.max', 'bytes': 512 * MIB}], 'command': ['train'], **more})


def write(directory, *lines):
    directory.mkdir(parents=True)
    (directory / 'timeline.jsonl').write_text('\n'.join(lines) + '\n')
    return directory


def structure(page):
    return [(tag, attrs.get('class')) for tag, attrs, _ in page.elements]


def interval(at, accounts):
    return json.dumps({'epoch': 1, 'step': at, 'seconds': 1, 'rss_bytes': sum(accounts.values()), 'reserved_bytes': sum(accounts.values()),
                       'accounts': accounts})


def legends(page):
    """The colour of each account: one set for each chart that has a legend."""
    charts = []
    for tag, attrs, text in page.elements:
        if attrs.get('class') == 'legend':
            charts.append({})
        elif tag == 'li' and charts and attrs.get('class', '').startswith('s'):
            charts[-1][text.rsplit(' ', 2)[0]] = attrs['class']
    return charts


def test_an_account_has_one_colour_in_all_charts(tmp_path):
    """The first run has accounts that the second has not, in another order and of other sizes."""
    names = [f'account {i}' for i in range(12)]
    one = write(tmp_path / 'one', *[interval(i, {'reserve': MIB, **{name: (3 + k) * MIB for k, name in enumerate(names)}}) for i in range(4)])
    two = write(tmp_path / 'two', *[interval(i, {**{name: (40 - 5 * k) * MIB for k, name in enumerate(names[8:4:-1])}, 'reserve': MIB}) for i in range(4)])
    first, second = legends(report(tmp_path, one, two))
    assert len(first) == 9 and set(second) <= set(first) and len(set(first.values())) == 9  # 7 accounts, the others, the reserve
    assert all(first[name] == colour for name, colour in second.items()) and len(second) >= 4


def test_memory_of_gpus_is_drawn(tmp_path):
    gpus = [json.dumps({'kind': 'gpu', 'at_s': 5.0 * i, 'gpu': k, 'used_bytes': (1 + i + 4 * k) << 30, 'total_bytes': 16 << 30})
            for i in range(6) for k in range(2)]
    page = report(tmp_path, write(tmp_path / 'run', begin(), *[tick(i, 50 * MIB) for i in range(30)], *gpus))
    assert any(text.startswith('GPU memory') for text in page.texts('figcaption'))
    assert [text for text in page.texts('span', 'e') if text.startswith('#')] == ['#0 6 GiB', '#1 10 GiB']
    assert '10 GiBof 16 GiB' in page.texts('dd')
    assert not any('GPU' in text for text in report(tmp_path, write(tmp_path / 'none', begin(), tick(1, MIB))).texts('figcaption'))


def test_one_sample_is_drawn(tmp_path):
    page = report(tmp_path, write(tmp_path / 'run', interval(1, {'row cache': 5 * MIB, 'reserve': MIB})))
    areas = [attrs['d'] for tag, attrs, _ in page.elements if tag == 'path' and 'area' in attrs['class'].split()]
    assert len(areas) == 2 and all(len(set(re.findall(r'[ML](\S+) ', area))) == 2 for area in areas)  # from 0 to the sample


def test_memory_of_others_on_the_host_is_not_the_runs(tmp_path):
    limits = [{'source': 'host MemTotal (/proc/meminfo)', 'bytes': 512 * MIB}]
    page = report(tmp_path, write(tmp_path / 'run', begin(limits=limits), *[tick(i, 300 * MIB, held_bytes=40 * MIB) for i in range(9)]))
    assert [text for text in page.texts('dd') if text.startswith('40')] and not [text for text in page.texts('dd') if text.startswith('300')]
    assert legends(page) == [{'others under the same limit': 's4', "the command's processes": 's5'}]


def test_hostile_texts_are_only_text(tmp_path):
    """Every text that a file or a name can hold: the page has the elements of a harmless one."""
    pages = []
    for index, text in enumerate(['harmless', HOSTILE, '\u202eevil\u2066 \ufffe \ud83d\ude00', '\x1b[31m\x00\x07\x7f\x9b']):
        directory = tmp_path / str(index) / ('run' + text.replace('/', '|').replace('\0', '')
                                             .encode('utf-16', 'surrogatepass').decode('utf-16', 'replace'))
        write(directory, begin(command=[text, text], host=text, kernel=text, directory=text, time=text),
              json.dumps({'kind': 'mark', 'at_s': 0.5, 'text': text}), tick(1, 50 * MIB), tick(2, 60 * MIB),
              json.dumps({'epoch': 1, 'step': 1, 'seconds': 1, 'rss_bytes': MIB, 'reserved_bytes': MIB, 'accounts': {text: MIB}}))
        (directory / 'run.json').write_text(json.dumps({'settings': {'x': text, 'y': [text, 1]}, 'machine': {'cpu': text}, 'dataset': {'path': text}}))
        (directory / 'slurm.log').write_text('RuntimeError: %s\n' % text.encode('utf-8', 'replace').decode(), errors='replace')
        pages.append(report(tmp_path, directory))
        if text == HOSTILE:
            assert text in pages[-1].row('host') and pages[-1].row('x') == [text]
    for page in pages[1:]:
        assert structure(page) == structure(pages[0])


def test_names_that_are_not_utf8(tmp_path):
    directory = os.fsencode(tmp_path) + b'/r\xff\xfe<b>'
    os.mkdir(directory)
    pathlib.Path(os.fsdecode(directory), 'timeline.jsonl').write_bytes(b'{"kind":"mark","at_s":1,"text":"\xff<b>"}\n' + tick(1, MIB).encode() + b'\n')
    subprocess.run([PLIMSOLL, 'report', directory, '--out', tmp_path / 'page.html'], check=True, timeout=1500, capture_output=True)
    assert Page((tmp_path / 'page.html').read_bytes().decode()).texts('h1')[0].endswith('<b>')


def test_a_cut_line_and_lines_of_rubbish_are_left_out(tmp_path):
    whole = [begin(), tick(1, 50 * MIB), tick(2, 60 * MIB)]
    clean = report(tmp_path, write(tmp_path / 'a/run', *whole))
    cut = write(tmp_path / 'b/run', whole[0], 'rubbish', '{"kind":"tick","at_s":', '[1]', '{}', '"', *whole[1:])
    with open(cut / 'timeline.jsonl', 'a') as file:
        file.write(tick(3, 500 * MIB)[:-20])
    # The row that names the directory differs.
    assert [e for e in report(tmp_path, cut).elements if e[0] == 'path'] == [e for e in clean.elements if e[0] == 'path']


@pytest.mark.parametrize('files', [{'timeline.jsonl': ''}, {'run.json': ''}, {'run.json': '{"settings":{"a":'}, {'metrics.jsonl': '{"epoch":1,"loss":NaN}\n'},
                                   {'timeline.jsonl': '\n' * 1000}, {'timeline.jsonl': 'x' * (1 << 20)},
                                   {'timeline.jsonl': '{"kind":"tick","at_s":1e300,"used_bytes":-5}\n{"kind":"tick","at_s":-1e15,"used_bytes":7e16}\n'}])
def test_a_run_that_has_nothing_yet(tmp_path, files):
    (tmp_path / 'run').mkdir()
    for name, text in files.items():
        (tmp_path / 'run' / name).write_text(text)
    assert report(tmp_path, tmp_path / 'run').texts('h1') == ['run']


def test_what_is_no_run_is_refused(tmp_path):
    run('report', tmp_path, code=2, cwd=tmp_path)
    run('report', tmp_path / 'none', code=2, cwd=tmp_path)
    run('report', code=2, cwd=tmp_path)
    os.mkfifo(tmp_path / 'timeline.jsonl')
    run('report', tmp_path, code=2, cwd=tmp_path)
    assert not (tmp_path / 'report.html').exists()


def test_other_files_are_not_replaced(tmp_path):
    directory = write(tmp_path / 'run', begin(), tick(1, MIB))
    page = directory / 'report.html'
    page.write_text('my page')
    run('report', directory, code=2, cwd=tmp_path)
    assert page.read_text() == 'my page'
    page.write_text('')
    run('report', directory, cwd=tmp_path)
    first = page.read_bytes()
    run('report', directory, cwd=tmp_path)
    assert page.read_bytes() == first


def test_a_page_lies_with_its_run(tmp_path):
    """Nothing is written into the current directory; two runs need a name for their page, and so does a run of others."""
    one, two, here = write(tmp_path / 'one', begin(), tick(1, MIB)), write(tmp_path / 'two', begin(), tick(1, MIB)), tmp_path / 'here'
    here.mkdir()
    answer = json.loads(run('report', '../one', '--json', cwd=here))
    assert answer['report'] == '../one/report.html' and (one / 'report.html').exists()
    run('report', one, two, code=2, cwd=here)
    assert not list(here.iterdir()) and not (two / 'report.html').exists()
    two.chmod(0o555)
    if not os.access(two, os.W_OK):
        run('report', two, code=2, cwd=here)
    run('report', two, '--out', here / 'two.html', cwd=here)


def test_a_long_timeline_keeps_its_spike(tmp_path):
    """One tick among 50,000 is the highest; the page and the memory stay small."""
    (tmp_path / 'run').mkdir()
    with open(tmp_path / 'run/timeline.jsonl', 'w') as file:
        file.writelines(tick(i / 10, 400 * MIB if i == 43210 else 100 * MIB + i % 977) + '\n' for i in range(50000))
    page = report(tmp_path, tmp_path / 'run')
    run('watch', '--quiet', '--out', tmp_path / 'watch', '--', PLIMSOLL, 'report', tmp_path / 'run', '--out', tmp_path / 'page.html')
    end = json.loads((tmp_path / 'watch/timeline.jsonl').read_text().splitlines()[-1])
    assert end['exit_code'] == 0 and end['max_rss_bytes'] < 16 * MIB
    assert (tmp_path / 'page.html').stat().st_size < 200000
    assert any(text.startswith('400 MiB') for text in page.texts('dd'))
