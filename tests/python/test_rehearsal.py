# labels: plain long
"""loader.rehearse: afterwards all is as before; what would not fit is refused with a batch_size that does."""
import json
import os
import pathlib
import random
import subprocess
import sys
import textwrap

import pytest

plimsoll = pytest.importorskip('plimsoll')
torch = pytest.importorskip('torch')
numpy = pytest.importorskip('numpy')

sys.path.insert(0, os.path.join(os.path.dirname(__file__), '..', 'support'))
from importing import real_data  # noqa: E402

from plimsoll.rehearsal import Size, _Line  # noqa: E402

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
LIMITED = pathlib.Path(os.environ.get('PLIMSOLL_SOURCE', '.')) / 'tools' / 'limited'
MIB = 1 << 20


def generate(where, *words):
    subprocess.run([PLIMSOLL, 'generate', 'free', where, '--quiet', *map(str, words)], check=True, timeout=1500)
    return str(where)


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    return generate(tmp_path_factory.mktemp('data') / 'graph', '--nodes', 20000, '--edges', 200000, '--features', 32, '--classes', 5)


class Model(torch.nn.Module):
    """Sums of neighbours, with everything that has a state: weights, buffers, and draws of random numbers."""

    def __init__(self, features, classes):
        super().__init__()
        self.first, self.second = torch.nn.Linear(features, 16), torch.nn.Linear(16, classes)
        self.norm, self.dropout = torch.nn.BatchNorm1d(16), torch.nn.Dropout(0.5)

    def forward(self, x, edge_index):
        x = self.dropout(self.norm(self.first(x)).relu())
        return self.second(x.index_add(0, edge_index[1], x[edge_index[0]]))


class Script:
    """A user's own: a model, an optimiser, two loaders and a step."""

    def __init__(self, path, optimizer=torch.optim.Adam):
        torch.manual_seed(1)
        numpy.random.seed(2)
        random.seed(3)
        ds = plimsoll.open(path)
        self.train = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=128, shuffle=True, memory='1G', seed=5)
        self.valid = plimsoll.NeighborLoader(ds, [4, 3], 'valid', batch_size=300)
        self.model = Model(ds.num_features, ds.num_classes)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)
        self.seeds = []

    def step(self, batch):
        self.seeds.append(batch.batch_size)
        self.optimizer.zero_grad()
        torch.rand(random.randrange(1, 4)), numpy.random.rand()
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        torch.nn.functional.cross_entropy(out, batch.y.clamp(min=0)).backward()
        self.optimizer.step()

    def evaluate(self, batch):
        self.model.eval()
        with torch.no_grad():
            self.model(batch.x, batch.edge_index)

    def rehearse(self):
        return self.train.rehearse(self.step, self.model, self.optimizer, self.evaluate)

    def bits(self):
        """Everything that must not change, as values that can be compared."""
        states = [self.model.state_dict(), self.optimizer.state_dict(), [weight.grad for weight in self.model.parameters()]]
        return (repr(pack(states)), self.model.training, self.train.state_dict(), self.valid.state_dict(), self.train.batch_size,
                torch.get_rng_state().tolist(), random.getstate(), str(numpy.random.get_state()))


def pack(value):
    if isinstance(value, torch.Tensor):
        return value.dtype, value.detach().numpy().tobytes()
    if isinstance(value, dict):
        return {key: pack(one) for key, one in value.items()}
    return [pack(one) for one in value] if isinstance(value, (list, tuple)) else value


def weights_after(path, steps, optimizer, rehearsed):
    script = Script(path, optimizer)
    if 0 in rehearsed:
        script.rehearse()
    done = 0
    for batch in script.train:
        script.step(batch)
        del batch
        done += 1
        if done == steps:
            break
        if done in rehearsed:
            script.rehearse()
    return script.bits()


@pytest.mark.parametrize('optimizer', [torch.optim.Adam, torch.optim.SGD])
def test_training_has_the_bits_of_one_without(path, optimizer):
    assert weights_after(path, 6, optimizer, [0]) == weights_after(path, 6, optimizer, [])


def test_all_is_as_before(path):
    """Also in the middle of an epoch, with moments and gradients, and where the step fails."""
    expected = weights_after(path, 4, torch.optim.Adam, [])
    script = Script(path)
    batches = iter(script.train)
    for _ in range(3):
        script.step(next(batches))
    before, tensors = script.bits(), [weight.grad for weight in script.model.parameters()]
    found = script.rehearse()
    assert found.fits and found.batch_size == 128 and 0 < found.steps <= 30
    assert found.kept_bytes >= 0 and found.needed_bytes < found.available_bytes and found.step_bytes > 0
    assert script.bits() == before
    assert all(weight.grad is known for weight, known in zip(script.model.parameters(), tensors))
    assert script.seeds[3:5] == [2, 2] and script.seeds[-1] == 128

    def fail(batch):
        script.step(batch)
        if batch.batch_size > 30:
            raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError):
        script.train.rehearse(fail, script.model, script.optimizer)
    assert script.bits() == before
    script.step(next(batches))
    assert script.bits()[0] == expected[0], 'the iteration continues with its own next batch'


def test_the_largest_batch_of_the_epoch_is_run(path):
    script = Script(path)
    sizes = []
    found = script.train.estimate(lambda batch: sizes.append((len(batch.x), batch.edge_index.shape[1])), script.model)
    epoch = [(len(batch.x), batch.edge_index.shape[1]) for batch in script.train]
    assert (found.nodes, found.edges) == tuple(max(values) for values in zip(*epoch))
    assert sizes[-1] == max(epoch, key=sum)


def test_blocks_are_mapped_while_steps_are_measured(path, monkeypatch):
    """A heap's gaps are as large as small steps, and would be extrapolated; but each mapped block costs time."""
    script, calls = Script(path), []
    monkeypatch.setattr('plimsoll.rehearsal._core.map_large_blocks', lambda on: calls.append((on, len(script.seeds))))
    script.rehearse()
    assert [on for on, _ in calls[:2]] == [True, False] and calls[0][1] == 0 and calls[1][1] == len(script.seeds)


def test_an_estimate_is_figures_whatever_does_not_fit(path):
    script = Script(path)

    def refuse(batch):
        script.step(batch)
        if batch.batch_size > 30:
            raise plimsoll.MemoryLineError('a loader of the step\'s own')
    found = script.train.estimate(refuse, script.model, script.optimizer, script.evaluate)
    assert found.steps > 0 and script.train.batch_size == 128 and script.bits() == Script(path).bits()
    taken = torch.ones(1 << 28)  # all that the line leaves: not even a loader fits
    found = script.train.estimate(script.step, script.model, script.optimizer)
    assert not found.fits and found.batch_size == found.steps == 0 and found.needed_bytes > found.available_bytes
    with pytest.raises(plimsoll.MemoryLineError, match='at least') as refused:
        script.rehearse()
    assert refused.value.needed_bytes > refused.value.available_bytes
    del taken
    assert script.train.estimate(script.step, script.model, script.optimizer).fits
    assert next(iter(script.train)).batch_size == 128


def test_lazy_layers_are_refused(path):
    script = Script(path)
    with pytest.raises(plimsoll.UsageError):
        script.train.rehearse(script.step, torch.nn.LazyLinear(3), script.optimizer)


def test_the_line_through_sizes():
    line = _Line(torch, 7)
    assert line.at(Size(10, 10)) == 7
    true = {Size(100 << i, 150 * 3**i): 1000 + 8 * (100 << i) + 4 * 150 * 3**i for i in range(6)}
    for size, taken in list(true.items())[:4]:
        line.add(size, taken)
    for size, taken in list(true.items())[4:]:
        assert line.at(size) == pytest.approx(taken, rel=0.01)
    line.add(Size(1600, 12150), 100_000)
    assert line.at(Size(1600, 12150)) >= 100_000, 'never below what was measured'
    assert line.at(Size(6400, 50000)) > line.at(Size(3200, 25000)) > 100_000


def test_a_step_that_is_no_line_is_foreseen():
    """Attention among all nodes of a batch: twice the nodes take four times as much, and the next size must not be run in vain."""
    line = _Line(torch, 7)
    for nodes in (100, 200, 400, 800, 1600, 3200):
        if nodes > 200:
            assert line.at(Size(nodes, 5 * nodes)) >= 0.85 * (1000 * nodes + 8 * nodes**2)
        line.add(Size(nodes, 5 * nodes), 1000 * nodes + 8 * nodes**2)
    measured = 1000 * 3200 + 8 * 3200**2
    assert line.at(Size(3200, 16000)) <= 1.35 * measured, 'what was run is no extrapolation'
    line = _Line(torch, 7)
    for taken in (0, 0, 1 << 20, 1 << 20):
        line.add(Size(100 << len(line.points), 10), taken)
    assert line.at(Size(100 << 10, 10)) < 1 << 30, 'steps that are too small to be measured tell nothing'


@pytest.mark.nightly
def test_a_lightning_trainer(path):
    """The same weights with a rehearsal and without, and the step is the module's own."""
    lightning = pytest.importorskip('lightning.pytorch')
    sizes = []

    class Module(lightning.LightningModule):
        def __init__(self, ds):
            super().__init__()
            self.model = Model(ds.num_features, ds.num_classes)

        def training_step(self, batch, index):
            sizes.append(batch.batch_size)
            out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            loss = torch.nn.functional.cross_entropy(out, batch.y.clamp(min=0))
            self.log('loss', loss, batch_size=batch.batch_size)
            return loss

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters())

    def fit(rehearse):
        torch.manual_seed(1)
        ds = plimsoll.open(path)
        loader = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=128, shuffle=True, memory='1G', seed=5)
        module = Module(ds)
        callback = plimsoll.MemoryMonitor(log=lambda _: None).lightning_callback(rehearse=rehearse)
        lightning.Trainer(max_steps=4, accelerator='cpu', callbacks=[callback], logger=False, enable_checkpointing=False,
                          enable_progress_bar=False, enable_model_summary=False).fit(module, loader)
        return repr(pack(module.state_dict()))

    assert fit(True) == fit(False)
    assert sizes[0] == 2 and sizes.count(128) > 8


STEP = '''
    import json, sys, plimsoll, torch
    ds = plimsoll.open(sys.argv[1])
    train = plimsoll.NeighborLoader(ds, [4, 3], 'train', batch_size=int(sys.argv[2]), memory=sys.argv[3] or None, shuffle=True, seed=1)
    model = torch.nn.Linear(2, 2)
    largest = 0
    def step(batch):
        global largest
        largest = max(largest, batch.batch_size)
        blocks = [torch.ones(len(batch.x) * 2500) for _ in range(4)]    # 40 kB a node
    try:
        found = train.rehearse(step, model)
        for number, batch in zip(range(20), train):
            step(batch)
    except plimsoll.MemoryLineError as error:
        print(json.dumps([largest, error.needed_bytes, error.available_bytes, error.batch_size]))
        sys.exit(3)
    print(json.dumps([largest, found.needed_bytes, found.available_bytes, found.batch_size]))
'''


def run(path, limit, batch_size, memory=''):
    words = [sys.executable, '-c', textwrap.dedent(STEP), path, batch_size, memory]
    if limit:
        words = [LIMITED, limit, '--json', '/dev/null', '--warm', '--', *words]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, timeout=1500)
    if done.returncode == 77:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode in (0, 3), done.stderr[-3000:]
    return done.returncode, *json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(('limit', 'memory'), [(700 * MIB, ''), pytest.param(0, '700M', marks=pytest.mark.nightly)])
def test_a_batch_size_that_fits_is_named(path, limit, memory):
    code, largest, needed, available, fitting = run(path, limit, 4000, memory)
    assert code == 3 and needed > available == 700 * MIB and 100 < fitting < 4000
    assert largest < 4000, 'the largest batch is not run'
    code, largest, needed, available, _ = run(path, limit, fitting, memory)
    assert code == 0 and largest == fitting and needed <= available


@pytest.mark.nightly
def test_the_named_need_is_enough_and_not_too_much(path):
    needed = run(path, 700 * MIB, 2000)[2]
    assert run(path, int(needed * 1.02), 2000)[0] == 0
    assert run(path, int(needed * 0.9), 2000)[0] == 3


def test_batches_of_graphs(tmp_path):
    subprocess.run([PLIMSOLL, 'import', real_data() / 'graphs' / 'MUTAG', tmp_path / 'MUTAG', '--quiet'], check=True, timeout=1500)
    ds = plimsoll.open(tmp_path / 'MUTAG')
    loader = plimsoll.GraphLoader(ds, 'train', batch_size=32, shuffle=True, memory='1G', seed=1)
    model = torch.nn.Linear(2, 2)
    sizes = []

    def step(batch):
        sizes.append((batch.ptr[-1].item(), batch.edge_index.shape[1]))
    found = loader.rehearse(step, model)
    epoch = [(batch.ptr[-1].item(), batch.edge_index.shape[1]) for batch in loader]
    assert found.fits and sizes[-1] == max(epoch, key=sum)
    assert (found.nodes, found.edges) == tuple(max(values) for values in zip(*epoch))
