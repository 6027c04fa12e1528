"""A GCN on papers100M, to start from: limited memory, a checkpoint every epoch, and the epoch lines of `plimsoll train`.

    plimsoll generate papers100M papers --scale 0.01      # or: plimsoll import papers100M-bin papers
    python papers.py papers --num_neighbors "3 2" --batch_size 128 --hidden_dim 16 --memory 2G --resume
    sbatch papers.sbatch
"""
import argparse
import os
import time

import plimsoll
import torch
import torch.nn.functional as F
from torch_geometric.nn import GCN

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--batch_size', type=int, default=1024)
parser.add_argument('--num_neighbors', default='10 5')
parser.add_argument('--hidden_dim', type=int, default=64)
parser.add_argument('--lr', type=float, default=0.003)
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--log_steps', type=int, default=100)
parser.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
parser.add_argument('--memory', help="limit of the whole process, such as 4G; without it the job's own")
parser.add_argument('--checkpoint', default='papers.pt')
parser.add_argument('--resume', action='store_true', help='continue from the checkpoint, if there is one')
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
data = plimsoll.open(args.path)

kwargs = dict(num_neighbors=[int(word) for word in args.num_neighbors.replace(',', ' ').split()], batch_size=args.batch_size,
              memory=args.memory, device=None if args.device == 'cpu' else args.device)
train_loader = plimsoll.NeighborLoader(data, input_nodes='train', shuffle=True, seed=args.seed, **kwargs)
val_loader = plimsoll.NeighborLoader(data, input_nodes='valid', **kwargs)
test_loader = plimsoll.NeighborLoader(data, input_nodes='test', **kwargs)
loaders = train_loader, val_loader, test_loader

layers = len(kwargs['num_neighbors'])
model = GCN(data.num_features, args.hidden_dim, num_layers=layers, out_channels=data.num_classes).to(args.device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)


def predict(batch):
    # How much each hop drew: a layer then leaves out the nodes that later layers do not need.
    hops = {f'num_sampled_{kind}_per_hop': batch.get(f'num_sampled_{kind}') for kind in ('nodes', 'edges')}
    return model(batch.x, batch.edge_index, **hops)[:batch.batch_size]


def step(batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(predict(batch), batch.y[:batch.batch_size])
    loss.backward()
    optimizer.step()
    return loss.item()  # a number: the tensor would keep the step's activations


@torch.no_grad()
def test(loader):
    model.eval()
    correct = total = 0
    for batch in loader:
        correct += int((predict(batch).argmax(dim=-1) == batch.y[:batch.batch_size]).sum())
        total += batch.batch_size
    model.train()
    return correct / total


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

needs = train_loader.rehearse(step, model, optimizer, evaluate=torch.no_grad()(predict))    # fits, or says which batch_size does
print(f'Memory: {needs.needed_bytes >> 20} MiB needed, {needs.available_bytes >> 20} MiB allowed', flush=True)
monitor = plimsoll.MemoryMonitor(log_interval=args.log_steps)
steps = (first - 1) * len(train_loader)
for epoch in range(first, args.epochs + 1):
    began, total = time.time(), 0.0
    for batch in train_loader:
        total += step(batch) * batch.batch_size
        steps += 1
        monitor.log_memory_usage(steps)
    scores = f'Val: {test(val_loader):.4f} | Test: {test(test_loader):.4f}'
    print(f'Epoch {epoch:03d} | Loss: {total / data.num_train:.4f} | {scores} | Time: {time.time() - began:.0f}s', flush=True)
    save(epoch)
