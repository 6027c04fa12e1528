"""Proves that less memory costs time, not the result: one recipe under ten lines, and a plot of speed against memory.

    tools/prove lines [DATASET] [--epochs 4] [--dir DIR] [--json FILE] [--plot FILE]

DATASET: papers100M's shape at 0.02 unless one is named; it is made in DIR (default: a temporary directory), 700 MB. GraphSAGE (batch
1,024, fan-out 10,5, hidden 64) is trained in real cgroups, from a cold page cache: under the least that the plan asks for, under
multiples of it, and without a limit. Under each line the loader's stream of batches is hashed besides. Checks:

  nobody is killed, the peak is never above the plan, and a MiB less than the least is refused;
  the hashes of every epoch's batches are the same under all lines;
  losses, scores and final weights are the same bit for bit under all lines with room for whole batches;
  where batches are cut, losses are within 1e-6 (relative) of those.

The recipe's rate is 0.001. How far losses get at the default of 0.01 is told beside: there a difference in the last bit grows faster.
Speed is that of the best epoch between the first and the last, without evaluation. Takes about eight minutes, needs root, exits 77 without.
Results: bench/results/lines.json and docs/speed-memory.svg.
"""
import json
import math
import pathlib
import shutil
import sys
import tempfile

import prooflib

MIB = prooflib.MIB
PAGE = 4096
SAMPLED = ['--batch', 1024, '--fanout', '10,5']
RATE = '0.001'
RECIPE = ['--model', 'sage', '--hidden', 64, '--lr', RATE, *SAMPLED]
TIMES = [1, 1.15, 1.4, 1.75, 2.3, 3.4, 5, 8, 17]
DIGITS = 1e-6


def find_least(dataset):
    plan = prooflib.call('plan', dataset, *RECIPE, '--measure', '--json')
    return prooflib.last_json(plan.stdout)['minimum_bytes']


def best_rate(events, steps):
    """Steps a second of the fastest epoch between the first, which is cold, and the last, which is evaluated."""
    return round(max(steps / event['seconds'] for event in events[1:-1]), 2)


def drift(options, run, parts):
    """How far losses get from those of whole batches, epoch by epoch, at the default rate, where rounding grows faster than at RECIPE's."""
    words = [word for word in RECIPE if word not in ('--lr', RATE)]
    losses = {}
    for seeds in [0, *parts]:
        shutil.rmtree(run, ignore_errors=True)
        losses[seeds] = losses_of(prooflib.must('train', options.dataset, *words, '--epochs', options.epochs, '--eval-every', 0, '--microbatch', seeds,
                                                '--run', run, '--json', '--quiet'))
    return {seeds: [abs(a - b) / b for a, b in zip(losses[seeds], losses[0])] for seeds in parts}


def losses_of(printed):
    return [event['loss'] for event in map(json.loads, printed.splitlines()) if event['event'] == 'epoch']


def train(options, program, run, limit):
    """One line: the run's plan, what came of it, and what the kernel counted."""
    shutil.rmtree(run, ignore_errors=True)
    report = prooflib.limited(limit, *program, 'train', options.dataset, *RECIPE, '--epochs', options.epochs, '--eval-every',
                              options.epochs, '--run', run, '--json', '--quiet')
    printed, errors = report.pop('stdout'), report.pop('stderr')
    result = {'limit': report['limit'], 'cgroup': report}
    if report['exit'] != 0:
        return {**result, 'said': errors}
    events = list(map(json.loads, printed.splitlines()))
    plan, weights = events[0], prooflib.read_safetensors(run / 'last.safetensors')
    hashed = prooflib.limited(limit, *program, 'bench', 'load', options.dataset, *SAMPLED, '--epochs', options.epochs, '--hash',
                              '--json', '--quiet')
    return {**result, 'total': max(size for name, size in plan['phases'].items() if name != 'predict'), 'peak': report['peak'],
            'part_seeds': plan['part_seeds'], 'recompute': plan['recompute'], 'topology': plan['topology'], 'features': plan['features'],
            'steps_per_s': best_rate(events[1:-1], plan['expect']['epoch_steps']), 'metrics': prooflib.file_digest(run / 'metrics.jsonl'),
            'losses': losses_of(printed), 'weights': weights['digest'],
            'hashes': [epoch['hash'] for epoch in prooflib.last_json(hashed['stdout']).get('epochs', [])],
            'hashing_killed': hashed['oom_kill']}


def farthest_loss(ran, whole):
    return max((abs(a - b) / abs(b) for result in ran for a, b in zip(result['losses'], whole['losses'])), default=0)


def judge(results, refused):
    """Claims about lines in ascending order, the last without a limit."""
    ran = [result for result in results if 'losses' in result]
    alive = len(ran) == len(results) and not any(result['cgroup']['oom_kill'] or result['hashing_killed'] for result in ran)
    claims = {f'{len(results)} lines from {results[0]["limit"] / MIB:.1f} MiB to none: none was killed or refused': alive,
              f'a MiB less than the least is refused (exit {refused})': refused == 3}
    if not alive:
        return claims
    whole, cut = [[result for result in ran if bool(result['part_seeds']) == parts] for parts in (False, True)]
    far = farthest_loss(cut, whole[-1])
    share = [result['peak'] / result['total'] for result in ran]
    claims[f'the peak is {min(share):.1%} to {max(share):.1%} of the plan'] = max(share) <= 1
    claims[f'the batches of all {len(whole[-1]["hashes"])} epochs have the same hashes under all lines'] = \
        len({tuple(result['hashes']) for result in ran}) == 1 and bool(whole[-1]["hashes"])
    claims[f'{len(whole)} lines have room for whole batches: losses, scores and weights are the same to the bit'] = \
        len(whole) >= 2 and len({(*result['losses'], result['metrics'], result['weights']) for result in whole}) == 1
    claims[f'{len(cut)} lines have not: losses are within {far:.1e} of those, at most {DIGITS:.0e}'] = bool(cut) and far <= DIGITS
    return claims


WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 400, 64, 24, 56, 60
KINDS = {'graph and features on disk': '#d9822b', 'graph in memory, features on disk': '#3f8f5f', 'both in memory': '#3b7dd8'}
STYLE = ('text{font:13px system-ui,-apple-system,"Segoe UI",sans-serif;fill:#57606a}.strong{font-weight:600}.small{font-size:12px}'
         '.axis{stroke:#8c959f;fill:none}.grid{stroke:#8c959f;stroke-opacity:.25}.curve{stroke:#8c959f;fill:none;stroke-width:1.5}'
         '.part{fill:#8c959f;fill-opacity:.1}.hollow{fill:#fff}@media(prefers-color-scheme:dark){text{fill:#a9b2bc}.hollow{fill:#0d1117}}')


def kind_of(result):
    disk = (result['topology'] == 'disk') + (result['features'] == 'disk')
    return list(KINDS)[2 - disk]


def nice_step(most):
    """A round number that divides an axis into about five."""
    power = 10 ** math.floor(math.log10(most / 5))
    return next(power * step for step in (1, 2, 5, 10) if power * step >= most / 5)


def draw(results, title):
    """The plot as SVG: memory on a logarithmic scale, speed from zero."""
    sizes = [result['limit'] for result in results[:-1]]
    sizes.append(1.3 * sizes[-1])
    low, high = math.log2(min(sizes) / MIB) - 0.15, math.log2(max(sizes) / MIB) + 0.25
    step = nice_step(max(result['steps_per_s'] for result in results))
    top = step * math.ceil(1.05 * max(result['steps_per_s'] for result in results) / step)

    def across(size):
        return LEFT + (math.log2(size / MIB) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    def up(rate):
        return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}">',
             f'<title>{title}</title><style>{STYLE}</style>']

    def text(x, y, words, anchor='middle', kind='', more=''):
        parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}"{more}>{words}</text>')

    cut = [size for size, result in zip(sizes, results) if result['part_seeds']]
    if cut and len(cut) < len(sizes):
        border = across(math.sqrt(max(cut) * sizes[len(cut)]))
        parts.append(f'<rect class="part" x="{LEFT}" y="{TOP}" width="{border - LEFT:.1f}" height="{HEIGHT - TOP - BOTTOM}"/>')
        text((LEFT + border) / 2, TOP + 18, 'batches in parts:', kind='small')
        text((LEFT + border) / 2, TOP + 34, 'losses within 1e-6', kind='small')
        text((LEFT + border) / 2, TOP + 50, f'at a rate of {RATE}', kind='small')
        text(border + 12, TOP + 18, 'whole batches: the same bits', 'start', 'small')
    for number in range(round(top / step) + 1):
        y = up(number * step)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        text(LEFT - 8, y + 4, f'{number * step:g}', 'end')
    for power in range(math.ceil(low), math.floor(high) + 1):
        x = across(MIB * 2 ** power)
        parts.append(f'<path class="axis" d="M{x:.1f} {HEIGHT - BOTTOM}v5"/>')
        text(x, HEIGHT - BOTTOM + 20, f'{2 ** power} MiB' if power < 10 else f'{2 ** (power - 10)} GiB')
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{HEIGHT - BOTTOM}H{WIDTH - RIGHT}"/>')
    points = [(across(size), up(result['steps_per_s'])) for size, result in zip(sizes, results)]
    parts.append('<path class="curve" d="M' + 'L'.join(f'{x:.1f} {y:.1f}' for x, y in points[:-1]) + '"/>')
    parts.append('<path class="curve" stroke-dasharray="4 4" d="M' + 'L'.join(f'{x:.1f} {y:.1f}' for x, y in points[-2:]) + '"/>')
    for (x, y), result in zip(points, results):
        colour = KINDS[kind_of(result)]
        inside = 'class="hollow"' if result['part_seeds'] else f'fill="{colour}"'
        told = f'line {result["limit"] / MIB:.0f} MiB' if result['limit'] else f'no limit, plan {result["total"] / MIB:.0f} MiB'
        part = f', {result["part_seeds"]} seeds at a time' if result['part_seeds'] else ''
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" {inside} stroke="{colour}" stroke-width="2">'
                     f'<title>{told}, peak {result["peak"] / MIB:.0f} MiB: {result["steps_per_s"]:.1f} steps/s, {kind_of(result)}{part}'
                     '</title></circle>')
    text(points[-1][0], points[-1][1] + 22, 'no limit', kind='small')
    x = LEFT
    for name, colour in KINDS.items():
        parts.append(f'<circle cx="{x + 5}" cy="{TOP - 16}" r="5" fill="{colour}"/>')
        text(x + 16, TOP - 12, name, 'start', 'small')
        x += 30 + 6.4 * len(name)
    parts.append(f'<circle class="hollow" cx="{x + 5:.1f}" cy="{TOP - 16}" r="5" stroke="#8c959f" stroke-width="2"/>')
    text(x + 16, TOP - 12, 'in parts', 'start', 'small')
    text(LEFT, 20, title, 'start', 'strong')
    text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, 'memory: the limit of the control group, logarithmic')
    text(18, (TOP + HEIGHT - BOTTOM) / 2, 'steps a second', more=f' transform="rotate(-90 18 {(TOP + HEIGHT - BOTTOM) / 2})"')
    return '\n'.join([*parts, '</svg>', ''])


def main():
    parser = prooflib.parser(__doc__, 'lines.json')
    parser.add_argument('dataset', type=pathlib.Path, nargs='?')
    parser.add_argument('--epochs', type=int, default=4)
    parser.add_argument('--dir', type=pathlib.Path)
    parser.add_argument('--plot', type=pathlib.Path, default=prooflib.SOURCE / 'docs' / 'speed-memory.svg')
    options = parser.parse_args()
    if options.epochs < 3:
        parser.error('--epochs: at least 3')
    with tempfile.TemporaryDirectory(prefix='prove-lines-', dir=options.dir) as folder:
        folder = pathlib.Path(folder)
        if options.dataset is None:
            options.dataset = folder / 'papers'
            prooflib.must('generate', 'papers100M', options.dataset, '--scale', '0.02', '--quiet')
        shape = json.loads((options.dataset / 'dataset.json').read_text())
        program = prooflib.own_program(folder)
        least = find_least(options.dataset)
        refused = prooflib.limited((least - MIB) // PAGE * PAGE, *program, 'train', options.dataset, *RECIPE, '--run', folder / 'run')
        results = []
        for limit in [*(math.ceil(least * times / PAGE + 1) * PAGE for times in TIMES), 'max']:
            result = train(options, program, folder / 'run', limit)
            results.append(result)
            shown = {key: value for key, value in result.items() if key not in ('cgroup', 'limit', 'hashes')}
            print(f'{limit}: {json.dumps(shown)}', file=sys.stderr)
        parts = sorted({result['part_seeds'] for result in results if result.get('part_seeds')})
        at_default_rate = drift(options, folder / 'run', parts)
    claims = judge(results, refused['exit'])
    if all('losses' in result for result in results):
        title = (f'GraphSAGE on {shape["num_nodes"] / 1e6:.1f} M nodes, {shape["num_edges"] / 1e6:.0f} M edges: '
                 'memory costs time, not the result')
        options.plot.write_text(draw(results, title))
    facts = {'dataset': {name: shape[name] for name in ('num_nodes', 'num_edges', 'num_features', 'num_train')},
             'recipe': [str(word) for word in RECIPE], 'epochs': options.epochs, 'least': least, 'lines': results,
             'loss_apart_at_rate_0.01_by_part_seeds': at_default_rate}
    return 0 if prooflib.record(options.json, claims, **facts) else 1
