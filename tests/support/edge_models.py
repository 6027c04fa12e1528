"""Models that read columns of edges: PyTorch Geometric's, and the options of ours."""
import pytest

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
gnn = pytest.importorskip('torch_geometric.nn', reason='torch_geometric is not installed (tools/bootstrap installs it)')

FEATURES, TYPES, BONDS = 5, 3, [4, 2]


def tensors(run):
    data = (run / 'last.safetensors').read_bytes()
    return data[8 + int.from_bytes(data[:8], 'little'):]


class Embeddings(torch.nn.Module):
    """OGB's BondEncoder."""

    def __init__(self, counts, width):
        super().__init__()
        self.bond_embedding_list = torch.nn.ModuleList(torch.nn.Embedding(count, width) for count in counts)

    def forward(self, x):
        return sum(table(x[:, i]) for i, table in enumerate(self.bond_embedding_list))


class Bonds(gnn.GINEConv):
    def __init__(self, mlp, width):
        super().__init__(mlp)
        self.bond_encoder = Embeddings(BONDS, width)

    def forward(self, x, edges, attr):
        return super().forward(x, edges, self.bond_encoder(attr))


class Net(gnn.models.basic_gnn.BasicGNN):
    """PyG's layers as its own models have them, with one product after the pooling."""
    supports_edge_weight = supports_edge_attr = True

    def init_conv(self, in_channels, out_channels, kind='gine'):
        return conv(kind, in_channels, out_channels)


def conv(kind, ins, out, last=False):
    """A layer of PyG's; the last of a model for nodes has the mean of the heads."""
    mlp = gnn.MLP([ins, out, out], act='relu', norm=None)
    heads = {'heads': 2, 'concat': not last}
    return {'gine': lambda: gnn.GINEConv(mlp, edge_dim=FEATURES), 'bonds': lambda: Bonds(mlp, ins),
            'gat': lambda: gnn.GATConv(ins, out if last else out // 2, edge_dim=FEATURES, **heads),
            'gatv2': lambda: gnn.GATv2Conv(ins, out if last else out // 2, edge_dim=FEATURES, **heads),
            'gatv2-plain': lambda: gnn.GATv2Conv(ins, out), 'gcn': lambda: gnn.GCNConv(ins, out),
            'rgcn': lambda: gnn.RGCNConv(ins, out, TYPES, 2)}[kind]()


# Of each model: its options, and the column that its layers take.
CASES = {
    'gine': (['--model', 'gine'], 'edge_attr'),
    'bonds': (['--model', 'gine', '--edge-categories', ','.join(map(str, BONDS))], 'edge_attr'),
    'gat': (['--model', 'gat', '--heads', 2, '--edge-features'], 'edge_attr'),
    'gatv2': (['--model', 'gatv2', '--heads', 2, '--edge-features'], 'edge_attr'),
    'gatv2-plain': (['--model', 'gatv2'], None),
    'gcn': (['--model', 'gcn', '--edge-weight'], 'edge_weight'),
    'rgcn': (['--model', 'rgcn', '--num-bases', 2], 'edge_type'),
}
