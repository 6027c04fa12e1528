"""GIN on PROTEINS: one label for each of many small graphs.

    plimsoll import graphs/PROTEINS proteins --symmetrise
    python proteins_gin_pyg.py proteins
"""
import argparse

import torch
import torch.nn.functional as F
from pyg_data import load_graphs
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GIN, global_mean_pool

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--epochs', type=int, default=20)
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
graphs, split, num_classes = load_graphs(args.path)

train_loader = DataLoader([graphs[i] for i in split['train']], batch_size=64, shuffle=True)
test_loader = DataLoader([graphs[i] for i in split['test']], batch_size=64)

model = GIN(graphs[0].num_features, 32, num_layers=3, jk='last')
head = torch.nn.Linear(32, num_classes)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=0.005)


def predict(batch):
    return head(global_mean_pool(model(batch.x, batch.edge_index), batch.batch))


def step(batch):
    optimizer.zero_grad()
    loss = F.cross_entropy(predict(batch), batch.y)
    loss.backward()
    optimizer.step()
    return loss.item()


for epoch in range(1, args.epochs + 1):
    model.train()
    for batch in train_loader:
        loss = step(batch)
    print(f'Epoch: {epoch:02d}, Loss: {loss:.4f}', flush=True)

model.eval()
with torch.no_grad():
    correct = sum(int((predict(batch).argmax(dim=-1) == batch.y).sum()) for batch in test_loader)
print(f'Test: {correct / len(split["test"]):.4f}')
