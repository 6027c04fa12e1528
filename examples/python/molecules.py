"""Regression over many small graphs, to start from: micro-batches, mixed precision, activation checkpointing, embeddings as targets.

    plimsoll import ogbg_molesol molesol --features f32 --symmetrise    # OGB's directory or zip; others: plimsoll.from_pyg
    python molecules.py molesol --batch_size 128 --micro_batch 32
    sbatch molecules.sbatch
"""
import argparse
import os
import time

import plimsoll
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch_geometric.nn import GINConv, global_add_pool

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--batch_size', type=int, default=128, help='graphs in an update')
parser.add_argument('--micro_batch', type=int, help='graphs that are computed at once; the updates stay the same')
parser.add_argument('--hidden_dim', type=int, default=64)
parser.add_argument('--num_layers', type=int, default=4)
parser.add_argument('--lr', type=float, default=0.001)
parser.add_argument('--epochs', type=int, default=50)
parser.add_argument('--log_steps', type=int, default=100)
parser.add_argument('--loss', choices=['mse', 'cosine'], default='mse', help='cosine: for targets that are embeddings')
parser.add_argument('--amp', action='store_true', help='mixed precision (bfloat16), where the hardware has it')
parser.add_argument('--checkpoint_activations', action='store_true', help='compute activations again instead of keeping them')
parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
parser.add_argument('--memory', help="limit of the whole process, such as 4G; without it the job's own")
parser.add_argument('--checkpoint', default='molecules.pt')
parser.add_argument('--resume', action='store_true', help='continue from the checkpoint, if there is one')
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
data = plimsoll.open(args.path)
if args.amp and args.device != 'cpu' and not torch.cuda.is_bf16_supported():
    parser.error('--amp: this GPU has no bfloat16')

kwargs = dict(batch_size=args.micro_batch or args.batch_size, memory=args.memory, device=None if args.device == 'cpu' else args.device)
train_loader = plimsoll.GraphLoader(data, 'train', shuffle=True, seed=args.seed, **kwargs)
val_loader = plimsoll.GraphLoader(data, 'valid', **kwargs)
test_loader = plimsoll.GraphLoader(data, 'test', **kwargs)
loaders = train_loader, val_loader, test_loader


class Net(torch.nn.Module):
    def __init__(self, features, hidden, layers, targets):
        super().__init__()
        widths = [features, *[hidden] * (layers - 1)]
        inner = (torch.nn.Sequential(torch.nn.Linear(width, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, hidden)) for width in widths)
        self.convs = torch.nn.ModuleList(map(GINConv, inner))
        self.head = torch.nn.Linear(hidden, targets)

    def forward(self, x, edge_index, graph, graphs):
        for conv in self.convs:
            if args.checkpoint_activations and self.training:
                x = checkpoint(conv, x, edge_index, use_reentrant=False).relu()
            else:
                x = conv(x, edge_index).relu()
        return self.head(global_add_pool(x, graph, size=graphs))


model = Net(data.num_features, args.hidden_dim, args.num_layers, data.num_targets).to(args.device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def summed_loss(batch):
    """Over the graphs of a batch: parts of a batch add up to the whole."""
    with torch.autocast(args.device.split(':')[0], torch.bfloat16, enabled=args.amp):
        out = model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
    out, y = out.float(), batch.y.view(batch.num_graphs, -1)
    if args.loss == 'cosine':
        return (1 - F.cosine_similarity(out, y)).sum()
    return F.mse_loss(out, y, reduction='none').mean(dim=1).sum()


def update(graphs):
    for parameter in model.parameters():
        parameter.grad /= graphs
    optimizer.step()
    optimizer.zero_grad()


@torch.no_grad()
def test(loader):
    model.eval()
    total = graphs = 0
    for batch in loader:
        total += summed_loss(batch).item()
        graphs += batch.num_graphs
    model.train()
    return total / max(graphs, 1)


def save(epoch):
    """The old checkpoint stays until the new one is whole."""
    torch.save({'epoch': epoch, 'model': model.state_dict(), 'optimizer': optimizer.state_dict(), 'random': torch.get_rng_state(),
                'loaders': [loader.state_dict() for loader in loaders]}, args.checkpoint + '.tmp')
    os.replace(args.checkpoint + '.tmp', args.checkpoint)


first = 1
if args.resume and os.path.exists(args.checkpoint):
    saved = torch.load(args.checkpoint, map_location=args.device)
    model.load_state_dict(saved['model'])
    optimizer.load_state_dict(saved['optimizer'])
    for loader, state in zip(loaders, saved['loaders'], strict=True):
        loader.load_state_dict(state)
    torch.set_rng_state(saved['random'].cpu())
    first = saved['epoch'] + 1

needs = train_loader.rehearse(lambda batch: (summed_loss(batch).backward(), update(batch.num_graphs)), model, optimizer)  # or refuses
print(f'Memory: {needs.needed_bytes >> 20} MiB needed, {needs.available_bytes >> 20} MiB allowed', flush=True)
monitor = plimsoll.MemoryMonitor(log_interval=args.log_steps)
steps = (first - 1) * len(train_loader)
for epoch in range(first, args.epochs + 1):
    began, total, pending = time.time(), 0.0, 0
    for batch in train_loader:
        loss = summed_loss(batch)
        loss.backward()
        total += loss.item()
        pending += batch.num_graphs
        if pending >= args.batch_size:
            update(pending)
            pending = 0
        steps += 1
        monitor.log_memory_usage(steps)
    if pending:
        update(pending)
    scores = f'Val: {test(val_loader):.4f} | Test: {test(test_loader):.4f}'
    print(f'Epoch {epoch:03d} | Loss: {total / data.num_train:.4f} | {scores} | Time: {time.time() - began:.0f}s', flush=True)
    save(epoch)
