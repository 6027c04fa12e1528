"""GraphSAGE on ogbn-arxiv, each layer trimmed to the nodes that it needs.

    plimsoll import dataset/ogbn_arxiv arxiv --symmetrise
    python arxiv_sage_pyg.py arxiv
"""
import argparse

import torch
import torch.nn.functional as F
from pyg_data import load
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--epochs', type=int, default=5)
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
data, split = load(args.path)

train_loader = NeighborLoader(data, [10, 5], split['train'], batch_size=1024, shuffle=True)
test_loader = NeighborLoader(data, [20, 20], split['test'], batch_size=1024)

model = GraphSAGE(data.num_features, 64, num_layers=2, out_channels=data.num_classes, dropout=0.2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def predict(batch):
    # Without pyg-lib, PyG's loader does not count what it samples; then nothing is trimmed.
    hops = {f'num_sampled_{kind}_per_hop': batch.get(f'num_sampled_{kind}') for kind in ('nodes', 'edges')}
    return model(batch.x, batch.edge_index, **hops)[:batch.batch_size]


def step(batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(predict(batch), batch.y[:batch.batch_size])
    loss.backward()
    optimizer.step()
    return loss.item()


for epoch in range(1, args.epochs + 1):
    model.train()
    for batch in train_loader:
        loss = step(batch)
    print(f'Epoch: {epoch:02d}, Loss: {loss:.4f}', flush=True)

model.eval()
correct = 0
with torch.no_grad():
    for batch in test_loader:
        correct += int((predict(batch).argmax(dim=-1) == batch.y[:batch.batch_size]).sum())
print(f'Test: {correct / len(split["test"]):.4f}')
