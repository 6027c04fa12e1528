"""GINE on molecules with their bonds: the solubility of each.

    plimsoll import graphs/ogbg_molesol molesol --symmetrise
    python molesol_gine.py molesol
"""
import argparse

import plimsoll
import torch
import torch.nn.functional as F
from torch_geometric.nn import MLP, GINEConv, global_mean_pool

parser = argparse.ArgumentParser()
parser.add_argument('path')
parser.add_argument('--epochs', type=int, default=40)
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()
torch.manual_seed(args.seed)
data = plimsoll.open(args.path)

train_loader = plimsoll.GraphLoader(data, 'train', batch_size=64, shuffle=True)
test_loader = plimsoll.GraphLoader(data, 'test', batch_size=64)


class BondEncoder(torch.nn.Module):    # OGB's: kind, stereo, conjugated
    def __init__(self, hidden):
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(values, hidden) for values in (5, 6, 2))

    def forward(self, bonds):
        return sum(table(bonds[:, i]) for i, table in enumerate(self.tables))


class Net(torch.nn.Module):
    def __init__(self, atoms, hidden=64, layers=3):
        super().__init__()
        self.atoms = torch.nn.Linear(atoms, hidden)
        self.bonds = torch.nn.ModuleList(BondEncoder(hidden) for _ in range(layers))
        self.convs = torch.nn.ModuleList(GINEConv(MLP([hidden, hidden, hidden], norm=None)) for _ in range(layers))
        self.head = torch.nn.Linear(hidden, 1)

    def forward(self, batch):
        x = self.atoms(batch.x)
        for conv, bonds in zip(self.convs, self.bonds, strict=True):
            x = conv(x, batch.edge_index, bonds(batch.edge_attr)).relu()
        return self.head(global_mean_pool(x, batch.batch))


model = Net(data.num_features)
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)


def step(batch):
    optimizer.zero_grad()
    loss = F.mse_loss(model(batch), batch.y.view(-1, 1))
    loss.backward()
    optimizer.step()
    return loss.item()


train_loader.rehearse(step, model, optimizer, evaluate=torch.no_grad()(model))    # fits, or says which batch_size does
for epoch in range(1, args.epochs + 1):
    model.train()
    for batch in train_loader:
        loss = step(batch)
    print(f'Epoch: {epoch:02d}, Loss: {loss:.4f}', flush=True)

model.eval()
with torch.no_grad():
    y, out = (torch.cat(parts) for parts in zip(*((batch.y.view(-1, 1), model(batch)) for batch in test_loader), strict=True))
error = y - out
print(f'MAE: {error.abs().mean():.4f}, RMSE: {error.square().mean().sqrt():.4f}')
print(f'Test: {1 - error.square().mean() / y.var(correction=0):.4f}')    # R2
