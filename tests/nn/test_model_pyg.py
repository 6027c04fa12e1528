# labels: together
"""Models forward and back against PyTorch Geometric's, with the same weights, rows and blocks."""
import os
import subprocess

import numpy as np
import pytest

torch = pytest.importorskip('torch', reason='torch is not installed (tools/bootstrap installs it)')
pyg = pytest.importorskip('torch_geometric', reason='torch_geometric is not installed (tools/bootstrap installs it)')
from torch_geometric import nn as gnn  # noqa: E402

PROBE = os.path.join(os.environ.get('PLIMSOLL_PROBES', ''), 'probe_model')
pytestmark = pytest.mark.skipif(not os.path.exists(PROBE), reason='no probe_model: run by ctest, or set PLIMSOLL_PROBES')

KINDS = {'mlp': 0, 'gcn': 1, 'sage': 2, 'gat': 3, 'gin': 4, 'gine': 5, 'gatv2': 6, 'rgcn': 7}
NORMS = {None: 0, 'layer': 1, 'batch': 2}
ACTIVATIONS = {None: 0, 'relu': 1, 'elu': 2}
POOLS = {'mean': (0, gnn.global_mean_pool), 'add': (1, gnn.global_add_pool), 'max': (2, gnn.global_max_pool)}
OUTPUTS = 7
EDGE_FEATURES = 5
RELATIONS, BASES = 5, 3
ATOMS, BONDS = [11, 3, 6], [4, 3]


class Case:
    """Settings of a model, and a batch drawn for it."""

    def __init__(self, kind, layers=2, hidden=24, features=19, heads=1, norm=None, act='relu', residual=False, max=False,
                 pool=None, half=False, bf16=False, fanout=20, edges=False, categories=False, seed=1):
        self.__dict__.update(locals())
        self.rng = np.random.default_rng(seed)
        self.blocks = []
        if pool:
            self.draw_graphs()
        else:
            self.draw_neighbours()
        rows = self.rng.standard_normal((self.nodes, features)).astype(np.float32)
        self.rows = rows.astype(np.float16) if half else rows
        self.degrees = np.full(self.nodes, 9, np.int32) + self.rng.integers(0, 20, self.nodes, np.int32)
        self.labels = self.rng.integers(0, OUTPUTS, self.seeds)
        self.columns = self.draw_columns()

    def draw_neighbours(self):
        """Native blocks, the seeds' first; some nodes have no neighbours, some are their own."""
        self.seeds = self.nodes = 50
        for _ in range(self.layers if self.kind != 'mlp' else 0):
            num_dst = self.nodes
            degrees = self.rng.integers(0, 5, num_dst)
            num_src = num_dst + num_dst // 2
            indices = self.rng.integers(0, num_src, degrees.sum())
            self.blocks.append((num_dst, num_src, np.concatenate([[0], np.cumsum(degrees)]), indices))
            self.nodes = num_src

    def draw_graphs(self):
        sizes = self.rng.integers(0, 9, 30)
        self.seeds, self.nodes = len(sizes), int(sizes.sum())
        self.graph_indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        degrees = self.rng.integers(0, 4, self.nodes)
        graph = np.repeat(np.arange(len(sizes)), sizes)
        owner = np.repeat(graph, degrees)
        indices = self.graph_indptr[owner] + self.rng.integers(0, 1 << 30, len(owner)) % sizes[owner]
        self.blocks.append((self.nodes, self.nodes, np.concatenate([[0], np.cumsum(degrees)]), indices))

    def draw_columns(self):
        """What edges carry, block by block: by the names of the probe's settings, in their order."""
        count = sum(len(indices) for *_, indices in self.blocks)
        columns = {}
        if self.kind == 'gcn' and self.edges:
            columns['weights'] = self.rng.uniform(0, 1, count).astype(np.float32) * self.rng.integers(0, 5, count).astype(bool)
            if not self.pool:
                columns['sums'] = (self.degrees * 0.7 + 1).astype(np.float32)
        if self.kind in ('gine', 'gat', 'gatv2') and self.edges:
            features = self.rng.standard_normal((count, EDGE_FEATURES))
            columns['edge_features'] = features.astype(np.float16 if self.half else np.float32)
        if self.kind == 'rgcn':
            columns['edge_types'] = self.rng.integers(0, RELATIONS, count)
        if self.categories and self.kind == 'gine':
            columns['edge_category'] = self.rng.integers(0, BONDS, (count, len(BONDS)))
        if self.categories:
            columns['node_category'] = self.rng.integers(0, ATOMS, (self.nodes, len(ATOMS)))
        return columns

    def column(self, name, i):
        """Of the edges of layer i."""
        at = 0 if self.pool else self.layers - 1 - i
        before = sum(len(indices) for *_, indices in self.blocks[:at])
        return self.columns[name][before:before + len(self.blocks[at][3])]

    def settings(self):
        values = dict(kind=KINDS[self.kind], layers=self.layers, hidden=self.hidden, heads=self.heads, max=int(self.max),
                      norm=NORMS[self.norm], activation=ACTIVATIONS[self.act], residual=int(self.residual),
                      pool=POOLS[self.pool][0] if self.pool else 0, bf16=int(self.bf16), features=self.features,
                      outputs=OUTPUTS, graphs=int(bool(self.pool)), half=int(self.half), seeds=self.seeds, nodes=self.nodes,
                      blocks=len(self.blocks), fanout=self.fanout, weights=int('weights' in self.columns),
                      edge_features=EDGE_FEATURES if 'edge_features' in self.columns else 0)
        if self.kind == 'rgcn':
            values.update(edge_types=RELATIONS, bases=BASES)
        categories = [('edge_category', count) for count in BONDS if 'edge_category' in self.columns]
        categories += [('node_category', count) for count in ATOMS if 'node_category' in self.columns]
        return [f'{name}={value}' for name, value in [*values.items(), *categories]]

    def layer(self, i):
        return self.blocks[0 if self.pool else self.layers - 1 - i]


class Embeddings(torch.nn.Module):
    """OGB's AtomEncoder and BondEncoder."""

    def __init__(self, name, counts, width):
        super().__init__()
        tables = torch.nn.ModuleList(torch.nn.Embedding(count, width) for count in counts)
        for table in tables:
            torch.nn.init.xavier_uniform_(table.weight)
        setattr(self, name, tables)

    def forward(self, x):
        return sum(table(x[:, i]) for i, table in enumerate(next(iter(self.children()))))


class GINEBonds(gnn.GINEConv):
    """As OGB's examples have it: embeddings of bonds in each layer."""

    def __init__(self, mlp, width):
        super().__init__(mlp)
        self.bond_encoder = Embeddings('bond_embedding_list', BONDS, width)

    def forward(self, x, edges, edge_attr, size=None):
        return super().forward(x, edges, self.bond_encoder(edge_attr), size)


class GINE(gnn.models.basic_gnn.BasicGNN):
    """PyG's GIN with GINEConv."""
    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels, out_channels, categories=False):
        mlp = gnn.MLP([in_channels, out_channels, out_channels], act=self.act, norm=self.norm, norm_kwargs=self.norm_kwargs)
        return GINEBonds(mlp, in_channels) if categories else gnn.GINEConv(mlp, edge_dim=EDGE_FEATURES)


class RGCN(gnn.models.basic_gnn.BasicGNN):
    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels, out_channels):
        return gnn.RGCNConv(in_channels, out_channels, RELATIONS, BASES)


def make_model(case):
    """The model, and what makes rows of categories before it."""
    if not case.categories:
        return make_layers(case, case.features)
    model = make_layers(case, case.hidden)
    model.atom_encoder = Embeddings('atom_embedding_list', ATOMS, case.hidden)
    return model


def make_layers(case, features):
    """PyG's own, one that is learnt from and whose layers are applied one by one."""
    norm = {None: None, 'layer': 'LayerNorm', 'batch': 'BatchNorm'}[case.norm]
    options = dict(norm=norm, act=case.act, norm_kwargs={'mode': 'node'} if case.norm == 'layer' else None)
    torch.manual_seed(case.seed)
    if case.kind == 'mlp':
        if case.pool:
            model = gnn.MLP([features] + [case.hidden] * case.layers, plain_last=False, **options)
            model.lin = torch.nn.Linear(case.hidden, OUTPUTS)
            return model
        return gnn.MLP(in_channels=features, hidden_channels=case.hidden, out_channels=OUTPUTS,
                       num_layers=case.layers, **options)
    make = {'gcn': gnn.GCN, 'sage': gnn.GraphSAGE, 'gat': gnn.GAT, 'gin': gnn.GIN, 'gine': GINE, 'gatv2': gnn.GAT, 'rgcn': RGCN}[case.kind]
    if case.kind == 'gcn':
        options['normalize'] = case.edges and bool(case.pool)
    if case.kind == 'sage':
        options['aggr'] = 'max' if case.max else 'mean'
    if case.kind in ('gat', 'gatv2'):
        options.update(heads=case.heads, v2=case.kind == 'gatv2', edge_dim=EDGE_FEATURES if case.edges else None)
    if case.kind == 'gine':
        options['categories'] = case.categories
    return make(features, case.hidden, case.layers, OUTPUTS, jk='last' if case.pool else None, **options)


def gcn_edges(case, num_dst, indptr, sources, targets):
    """Drawn edges and the nodes themselves, weighed by degrees of the whole graph, up to the fan-out, and by edges drawn."""
    drawn = np.diff(indptr)
    d = np.minimum(case.degrees, case.fanout).astype(np.float64)
    own = np.arange(num_dst)
    weights = np.concatenate([1 / np.sqrt((d[sources] + 1) * (drawn[targets] + 1)), 1 / np.sqrt((d[own] + 1) * (drawn + 1))])
    weights = weights.astype(np.float32)
    edges = np.stack([np.concatenate([sources, own]), np.concatenate([targets, own])])
    return torch.tensor(edges), torch.tensor(weights)


def weighted_gcn_edges(case, num_dst, indptr, sources, targets, weights):
    """The same with weights: a self-loop's is the node's own; sums of the whole graph, up to the fan-out."""
    sums = case.columns['sums'].astype(np.float64)
    sums = 1 + (sums - 1) * np.minimum(case.degrees, case.fanout) / case.degrees
    loops = sources == targets
    own = np.ones(num_dst)
    own[targets[loops]] = weights[loops]
    drawn = own + np.bincount(targets[~loops], weights[~loops], num_dst)
    into = np.where(drawn == 0, 0, 1 / np.sqrt(np.where(drawn == 0, 1, drawn)))
    weights = np.where(loops, 0, weights) / np.sqrt(sums[sources]) * into[targets]
    edges = np.stack([np.concatenate([sources, np.arange(num_dst)]), np.concatenate([targets, np.arange(num_dst)])])
    return torch.tensor(edges), torch.tensor(np.concatenate([weights, own * into / np.sqrt(sums[:num_dst])]).astype(np.float32))


def apply_conv(case, model, i, x):
    if case.kind == 'mlp':
        return model.lins[i](x)
    num_dst, num_src, indptr, sources = case.layer(i)
    targets = np.repeat(np.arange(num_dst), np.diff(indptr))
    conv = model.convs[i]
    if case.edges and case.kind == 'gcn':
        weights = case.column('weights', i)
        if case.pool:
            return conv(x, torch.tensor(np.stack([sources, targets])), torch.tensor(weights))
        edges, weights = weighted_gcn_edges(case, num_dst, indptr, sources, targets, weights)
        return conv(x, edges, weights)[:num_dst]
    if case.kind == 'gcn':
        edges, weights = gcn_edges(case, num_dst, indptr, sources, targets)
        return conv(x, edges, weights)[:num_dst]
    edges = torch.tensor(np.stack([sources, targets]))
    if case.kind == 'rgcn':
        return conv((x, x[:num_dst]), edges, torch.tensor(case.column('edge_types', i)))
    if case.kind in ('gine', 'gat', 'gatv2') and (case.edges or case.categories and case.kind == 'gine'):
        columns = case.column('edge_category' if case.categories else 'edge_features', i)
        columns = torch.tensor(columns if case.categories else columns.astype(np.float32))
        if case.kind == 'gatv2':
            return conv((x, x[:num_dst]), edges, columns)
        return conv((x, x[:num_dst]), edges, columns, size=(num_src, num_dst))
    if case.kind == 'gatv2':
        return conv((x, x[:num_dst]), edges)
    return conv((x, x[:num_dst]), edges, size=(num_src, num_dst))


def run_pyg(case, model):
    """Outputs, and what the last layer or the head read."""
    x = torch.tensor(case.rows.astype(np.float32))
    if case.categories:
        x = model.atom_encoder(torch.tensor(case.columns['node_category']))
    if case.kind == 'mlp' and not case.pool:
        x = x[:case.seeds]
    for i in range(case.layers):
        read, x = x, apply_conv(case, model, i, x)
        if case.pool or i + 1 < case.layers:
            x = model.norms[i](x)
        if case.residual and read.shape[1] == x.shape[1]:
            x = x + read[:len(x)]
        if (case.pool or i + 1 < case.layers) and model.act is not None:
            x = model.act(x)
    if not case.pool:
        return x, read[:case.seeds]
    graph = torch.tensor(np.repeat(np.arange(case.seeds), np.diff(case.graph_indptr)))
    pooled = POOLS[case.pool][1](x, graph, case.seeds)
    return model.lin(pooled), pooled


def run_probe(case, state):
    """What ours gave: by the names of its own table, which must be PyG's."""
    names = subprocess.run([PROBE, 'names', *case.settings()], stdout=subprocess.PIPE, check=True, text=True).stdout
    table = [(line.split()[0], tuple(map(int, line.split()[1:]))) for line in names.splitlines()]
    order = sorted(state, key=lambda name: not name.startswith('atom_encoder'))
    assert table == [(n, tuple(state[n].shape)) for n in order if not n.endswith('num_batches_tracked')]
    data = []
    for num_dst, num_src, indptr, indices in case.blocks:
        data += [np.array([num_dst, num_src, len(indices)], np.int64), indptr.astype(np.int32), indices.astype(np.int32)]
    data += [np.arange(case.nodes, dtype=np.int32), case.degrees, case.rows]
    data += [case.graph_indptr] if case.pool else []
    data += [case.labels, *case.columns.values()] + [state[name].numpy() for name, _ in table]
    stdin = b''.join(np.ascontiguousarray(a).tobytes() for a in data)
    got = subprocess.run([PROBE, 'step', *case.settings()], input=stdin, stdout=subprocess.PIPE, check=True).stdout
    place = 0

    def take(shape, kind=np.float32):
        nonlocal place
        count = int(np.prod(shape))
        array = np.frombuffer(got, kind, count, place).reshape(shape)
        place += array.nbytes
        return array

    result = {'outputs': take((case.seeds, OUTPUTS)), 'loss': take((), np.float64)}
    result['tensors'] = {name: take(shape) for name, shape in table}
    result['reading'] = take((case.seeds, OUTPUTS))
    result['embeddings'] = np.frombuffer(got, np.float32, -1, place).reshape(case.seeds, -1)
    return result


def apart(got, wanted, least=1e-3):
    """The largest difference beside the largest number."""
    assert got.shape == wanted.shape
    return float(np.abs(got - wanted).max() / max(np.abs(wanted).max(), least))


def both(case):
    """What ours and PyG's give: outputs, loss, gradients, buffers; and, outside training, outputs and embeddings."""
    model = make_model(case)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name.endswith(('bias', 'running_mean')):
                value.copy_(torch.randn_like(value) * 0.3)
    ours = run_probe(case, {name: value.clone() for name, value in model.state_dict().items()})
    model.train()
    outputs, _ = run_pyg(case, model)
    loss = torch.nn.functional.cross_entropy(outputs, torch.tensor(case.labels))
    loss.backward()
    tensors = {name: p.grad for name, p in model.named_parameters()}
    tensors.update(model.named_buffers())
    model.eval()
    reading, embeddings = run_pyg(case, model)
    theirs = {'outputs': outputs, 'loss': loss, 'reading': reading, 'embeddings': embeddings}
    theirs = {name: value.detach().numpy() for name, value in theirs.items()}
    theirs['tensors'] = {name: tensors[name].detach().numpy() for name in ours['tensors']}
    return ours, theirs


EDGES = {'gine': dict(edges=True)}  # of kinds that need them
NODE_CASES = [dict(kind=kind, layers=layers, **EDGES.get(kind, {})) for kind in KINDS for layers in (1, 2, 3)]
NODE_CASES += [dict(kind=kind, layers=3, norm=norm, act=act, half=True, **EDGES.get(kind, {})) for kind in KINDS
               for norm, act in (('layer', 'elu'), ('batch', 'relu'))]
NODE_CASES += [dict(kind=kind, layers=3, residual=True, features=24, act=None, **EDGES.get(kind, {})) for kind in KINDS]
NODE_CASES += [
    dict(kind='sage', layers=2, max=True), dict(kind='sage', layers=3, max=True, norm='layer', half=True),
    dict(kind='gat', layers=2, heads=4), dict(kind='gat', layers=3, heads=3, norm='layer', act='elu', half=True),
    dict(kind='gat', layers=2, heads=2, residual=True, hidden=20, features=20, half=True),
    dict(kind='gcn', layers=2, residual=True, features=OUTPUTS, hidden=OUTPUTS, half=True),
]
GRAPH_CASES = [dict(kind=kind, layers=2, pool=pool, **EDGES.get(kind, {})) for kind in KINDS for pool in POOLS]
GRAPH_CASES += [dict(kind='gin', layers=3, pool='add', norm='batch', half=True),
                dict(kind='gat', layers=3, pool='mean', heads=4, norm='layer', act='elu'),
                dict(kind='gcn', layers=3, pool='max', norm='batch', residual=True, features=24)]
# With columns of edges.
NODE_CASES += [dict(kind=kind, heads=3, edges=True, **more) for kind in ('gat', 'gatv2')
               for more in (dict(layers=1), dict(layers=3, norm='layer', act='elu', half=True), dict(layers=2, residual=True, features=24))]
GRAPH_CASES += [dict(kind=kind, layers=3, pool='mean', heads=4, edges=True) for kind in ('gat', 'gatv2')]
NODE_CASES += [dict(kind='gcn', layers=2, edges=True, fanout=12), dict(kind='gcn', layers=3, edges=True, half=True)]
GRAPH_CASES += [dict(kind='gcn', layers=3, pool='mean', edges=True)]
# With embeddings of categories.
NODE_CASES += [dict(kind=kind, layers=2, categories=True) for kind in KINDS]
GRAPH_CASES += [dict(kind='gine', layers=3, pool='mean', categories=True, residual=True, norm='batch')]


def label(options):
    return '-'.join(f'{k}={v}' if k != 'kind' else str(v) for k, v in options.items())


@pytest.mark.parametrize('options', NODE_CASES + GRAPH_CASES, ids=label)
def test_single_precision(options):
    case = Case(**options)
    ours, theirs = both(case)
    distances = {name: apart(ours[name], theirs[name]) for name in ('outputs', 'loss', 'reading', 'embeddings')}
    largest = max(np.abs(value).max() for value in theirs['tensors'].values())
    for name, value in ours['tensors'].items():
        # A batch norm takes away what a bias before it adds: that gradient is 0, and what is left of it is rounding.
        vanishes = case.norm == 'batch' and name.endswith('bias') and 'norms' not in name
        distances[name] = apart(value, theirs['tensors'][name], largest if vanishes else 1e-3)
    far = {name: distance for name, distance in distances.items() if not distance <= 1e-4}
    assert not far, far


# Eight bits of a number are kept: each is off by up to 1/256. Where that moves a value across a kink, its gradient comes
# or goes, so gradients are compared as a whole.
@pytest.mark.parametrize('options', NODE_CASES + GRAPH_CASES, ids=label)
def test_bfloat16(options):
    ours, theirs = both(Case(**options, bf16=True))
    distances = {name: apart(ours[name], theirs[name]) for name in ('outputs', 'loss', 'reading', 'embeddings')}
    assert max(distances.values()) < 0.03, distances
    got = np.concatenate([value.ravel() for value in ours['tensors'].values()])
    wanted = np.concatenate([value.ravel() for value in theirs['tensors'].values()])
    assert np.linalg.norm(got - wanted) < 0.1 * np.linalg.norm(wanted)
