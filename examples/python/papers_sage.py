"""GraphSAGE as PyTorch Geometric's own examples train ogbn: three loaders, which share one memory line.

    plimsoll generate papers100M papers --scale 0.01
    python papers_sage.py papers
"""
import argparse

import plimsoll
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
data = plimsoll.open(args.path)

kwargs = dict(num_neighbors=[10, 5], batch_size=256, memory='2G')
train_loader = plimsoll.NeighborLoader(data, input_nodes='train', shuffle=True, **kwargs)
val_loader = plimsoll.NeighborLoader(data, input_nodes='valid', **kwargs)
test_loader = plimsoll.NeighborLoader(data, input_nodes='test', **kwargs)

model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes, dropout=0.2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def predict(batch):
    # How much each hop drew: a layer then leaves out the nodes that later layers do not need. The result is the same.
    hops = {f'num_sampled_{kind}_per_hop': batch.get(f'num_sampled_{kind}') for kind in ('nodes', 'edges')}
    return model(batch.x, batch.edge_index, **hops)[:batch.batch_size]


def step(batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(predict(batch), batch.y[:batch.batch_size])
    loss.backward()
    optimizer.step()
    return loss.item()


def train():
    model.train()
    for batch in train_loader:
        loss = step(batch)
    return loss


@torch.no_grad()
def test(loader):
    model.eval()
    correct = total = 0
    for batch in loader:
        correct += int((predict(batch).argmax(dim=-1) == batch.y[:batch.batch_size]).sum())
        total += batch.batch_size
    return correct / total


train_loader.rehearse(step, model, optimizer, evaluate=torch.no_grad()(predict))    # fits, or says which batch_size does
for epoch in range(1, args.epochs + 1):
    print(f'Epoch: {epoch:02d}, Loss: {train():.4f}, Val: {test(val_loader):.4f}', flush=True)
print(f'Test: {test(test_loader):.4f}')
