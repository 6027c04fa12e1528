# labels: nightly
"""A Lightning Trainer that is killed in the middle of an epoch and resumed gets the batches that were left."""
import importlib.util
import os
import signal
import subprocess
import sys

import pytest

for needed in ('plimsoll', 'torch', 'torch_geometric', 'lightning'):  # in processes of their own: not imported here
    if importlib.util.find_spec(needed) is None:
        pytest.skip(f'{needed} is not installed', allow_module_level=True)

PLIMSOLL = os.environ.get('PLIMSOLL', 'build/dev/plimsoll')
KILLED_AT = 16  # of 12 batches an epoch: in the second
SAVED_EVERY = 5

SCRIPT = '''
import hashlib, os, signal, sys
import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch_geometric.nn import GraphSAGE

import plimsoll

path, run, kill_at, resume = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4] == 'resume'
ds = plimsoll.open(path)
if not resume:
    torch.manual_seed(7)
train = plimsoll.NeighborLoader(ds, [3, 2], 'train', batch_size=-(-ds.num_train // 12), shuffle=True, memory='1G')
assert len(train) == 12


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = GraphSAGE(ds.num_features, 8, num_layers=2, out_channels=ds.num_classes)

    def training_step(self, batch, index):
        whole = hashlib.sha256()
        for name in 'x', 'y', 'edge_index', 'n_id', 'edge_position', 'input_id':
            whole.update(batch[name].numpy().tobytes())
        with open(os.path.join(run, 'seen'), 'a') as file:
            print(self.global_step, whole.hexdigest(), file=file)
        if self.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


saving = ModelCheckpoint(dirpath=run, filename='last', every_n_train_steps=SAVED_EVERY, enable_version_counter=False)
trainer = lightning.Trainer(max_epochs=3, accelerator='cpu', callbacks=[saving], logger=False, enable_progress_bar=False,
                            enable_model_summary=False)
trainer.fit(Model(), train, ckpt_path=os.path.join(run, 'last.ckpt') if resume else None)
'''.replace('SAVED_EVERY', str(SAVED_EVERY))


@pytest.fixture(scope='module')
def path(tmp_path_factory):
    path = tmp_path_factory.mktemp('data') / 'small'
    words = ['--nodes', 2000, '--edges', 20000, '--features', 16, '--classes', 4, '--seed', 3]
    subprocess.run([PLIMSOLL, 'generate', 'free', str(path), '--quiet', *map(str, words)], check=True, timeout=1500)
    return path


def fit(path, run, kill_at, resume='begin'):
    """Trains in a process of its own; (step, hash of its batch) in order, and how the process ended."""
    run.mkdir(exist_ok=True)
    seen = run / 'seen'
    seen.unlink(missing_ok=True)
    done = subprocess.run([sys.executable, '-c', SCRIPT, path, run, str(kill_at), resume], capture_output=True, text=True, timeout=1500)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return [tuple(line.split()) for line in seen.read_text().splitlines()], done.returncode


def test_a_killed_trainer_gets_the_batches_that_were_left(path, tmp_path):
    whole, code = fit(path, tmp_path / 'whole', -1)
    assert code == 0 and len(whole) == 36 and len({batch for _, batch in whole}) == 36
    begun, code = fit(path, tmp_path / 'killed', KILLED_AT)
    assert code == -signal.SIGKILL and begun == whole[: KILLED_AT + 1]
    rest, code = fit(path, tmp_path / 'killed', -1, 'resume')
    saved = KILLED_AT // SAVED_EVERY * SAVED_EVERY
    assert code == 0 and rest == whole[saved:]
