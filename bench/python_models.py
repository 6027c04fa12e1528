#!/usr/bin/env python3
"""Random models, each computed by plimsoll.inference and by its own code on the whole graph, for tools/prove python inference.

    bench/python_models.py DIRECTORY MODELS [SEED]

The graph, made in DIRECTORY, has self-loops, edges that occur twice, nodes without in-edges and hubs. A model is a BasicGNN of
torch_geometric or a list of layers, at random: convolutions, aggregations, norms in each of their modes, activations, jumping knowledge,
and in half of the models something beside: a hook, a subclass, a replaced method, another function, a parametrization. One line of JSON each: 'equal'
and how far it is off, 'refused' and why, or 'wrong'; `plain` models have nothing that may be refused.
"""
import copy
import json
import os
import random
import sys
import warnings

import numpy
import torch
import torch_geometric.nn as nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn.models.basic_gnn import BasicGNN

import plimsoll
from plimsoll import layerwise

NODES, EDGES, WIDTH = 500, 2400, 12
CHUNK_BYTES = 32 << 10
LIMIT = 1e-5  # of the largest output

ACTS = ['relu', 'elu', 'gelu', 'leaky_relu', 'prelu', 'tanh', 'sigmoid', 'silu', 'softplus', 'swish', torch.relu, functional.elu, None]
NORMS = {
    'batch': ('batch_norm', {}), 'layer of nodes': ('layer_norm', {'mode': 'node'}), 'instance, running': ('instance_norm', {'track_running_stats': True}),
    'groups': ('diff_group_norm', {'groups': 3}), "torch's layer": (torch.nn.LayerNorm(WIDTH), {}), "torch's group": (torch.nn.GroupNorm(3, WIDTH), {}),
    "torch's batch": (torch.nn.BatchNorm1d(WIDTH), {}),
}
WHOLE_NORMS = {  # of the statistics of all nodes
    'layer of the graph': ('layer_norm', {}), 'graph': ('graph_norm', {}), 'instance': ('instance_norm', {}),
    'batch, not running': ('batch_norm', {'track_running_stats': False}), 'pairs': ('pair_norm', {}), 'pairs by node': ('pair_norm', {'scale_individually': True}),
    'size': (nn.GraphSizeNorm(), {}), 'mean': (nn.MeanSubtractionNorm(), {}), "torch's batch, not running": (torch.nn.BatchNorm1d(WIDTH, track_running_stats=False), {}),
    'groups, not running': ('diff_group_norm', {'groups': 3, 'track_running_stats': False}),
}
AGGRS = ['mean', 'sum', 'max', 'min', 'mul', 'std', 'var', 'softmax', 'powermean']
DEGREES = torch.tensor([5, 40, 90, 120, 80, 40, 20])


def mlp(width, rng, norms=('batch_norm', None)):
    kind = rng.choice(['mlp', 'sequential', 'linear'])
    if kind == 'mlp':
        return nn.MLP([width, WIDTH, WIDTH], norm=rng.choice(norms), act=rng.choice(['relu', 'tanh']), dropout=0.3, plain_last=rng.random() < 0.5)
    if kind == 'linear':
        return torch.nn.Linear(width, WIDTH)
    return torch.nn.Sequential(torch.nn.Linear(width, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU(), torch.nn.Dropout(0.4), torch.nn.Linear(WIDTH, WIDTH))


# Convolutions by name, from the width of rows and random numbers.
CONVS = {
    'AGNNConv': lambda w, r: nn.AGNNConv(add_self_loops=r.random() < 0.5),
    'CGConv': lambda w, r: nn.CGConv(w, batch_norm=r.random() < 0.5),
    'ClusterGCNConv': lambda w, r: nn.ClusterGCNConv(w, WIDTH, diag_lambda=r.choice([0.0, 0.5])),
    'EdgeConv': lambda w, r: nn.EdgeConv(mlp(2 * w, r), aggr=r.choice(['max', 'mean'])),
    'FeaStConv': lambda w, r: nn.FeaStConv(w, WIDTH, heads=r.choice([1, 3]), add_self_loops=r.random() < 0.5),
    'FiLMConv': lambda w, r: nn.FiLMConv(w, WIDTH),
    'GATConv': lambda w, r: nn.GATConv(w, WIDTH // 3, heads=3, add_self_loops=r.random() < 0.5, residual=r.random() < 0.5, dropout=0.3),
    'GATv2Conv': lambda w, r: nn.GATv2Conv(w, WIDTH, heads=2, concat=False, add_self_loops=r.random() < 0.5, share_weights=r.random() < 0.5),
    'GatedGraphConv': lambda w, r: nn.GatedGraphConv(WIDTH, 1),
    'GCNConv': lambda w, r: nn.GCNConv(w, WIDTH, improved=r.random() < 0.3, cached=r.random() < 0.3, add_self_loops=r.random() < 0.5, bias=r.random() < 0.5),
    'GCNConv, not normalised': lambda w, r: nn.GCNConv(w, WIDTH, normalize=False),
    'GENConv': lambda w, r: nn.GENConv(w, WIDTH, aggr=r.choice(['softmax', 'powermean', 'mean']), msg_norm=r.random() < 0.5, norm=r.choice(['batch', 'layer']), learn_t=r.random() < 0.5),
    'GeneralConv': lambda w, r: nn.GeneralConv(w, WIDTH, attention=r.random() < 0.5, heads=2, l2_normalize=r.random() < 0.5, directed_msg=r.random() < 0.5),
    'GINConv': lambda w, r: nn.GINConv(mlp(w, r), eps=0.2, train_eps=r.random() < 0.5, aggr=r.choice(['mean', 'max'])),
    'GraphConv': lambda w, r: nn.GraphConv(w, WIDTH, aggr=r.choice(AGGRS)),
    'LEConv': lambda w, r: nn.LEConv(w, WIDTH, aggr='mean'),
    'MFConv': lambda w, r: nn.MFConv(w, WIDTH, max_degree=5, aggr='mean'),
    'PNAConv': lambda w, r: nn.PNAConv(w, WIDTH, r.sample(['mean', 'max', 'min', 'std', 'sum'], 2), ['identity', 'amplification', 'attenuation'], DEGREES, towers=r.choice([1, 3]), divide_input=r.random() < 0.5),
    'ResGatedGraphConv': lambda w, r: nn.ResGatedGraphConv(w, WIDTH, aggr='mean'),
    'SAGEConv': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=r.choice(AGGRS), normalize=r.random() < 0.5, project=r.random() < 0.5, root_weight=r.random() < 0.7),
    'SAGEConv of several': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=r.sample(AGGRS, 3)),
    'SAGEConv of a sum': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=nn.MultiAggregation(['mean', 'max'], mode='sum')),
    'SimpleConv': lambda w, r: nn.SimpleConv(aggr='mean', combine_root=r.choice(['sum', 'self_loop', None])),
    'SuperGATConv': lambda w, r: nn.SuperGATConv(w, WIDTH // 2, heads=2, attention_type=r.choice(['MX', 'SD'])),
    'TransformerConv': lambda w, r: nn.TransformerConv(w, WIDTH // 2, heads=2, beta=r.random() < 0.5, dropout=0.2),
    'WLConvContinuous': lambda w, r: nn.WLConvContinuous(),
}
WHOLE_CONVS = {  # that chunks would change
    'ARMAConv': lambda w, r: nn.ARMAConv(w, WIDTH),
    'ChebConv': lambda w, r: nn.ChebConv(w, WIDTH, K=r.choice([1, 2])),
    'DirGNNConv': lambda w, r: nn.DirGNNConv(r.choice([nn.SAGEConv, nn.GCNConv])(w, WIDTH)),
    'EGConv': lambda w, r: nn.EGConv(w, WIDTH, num_heads=3, aggregators=r.choice([['symnorm'], ['mean', 'max']]), cached=r.random() < 0.3),
    'GatedGraphConv of 2 hops': lambda w, r: nn.GatedGraphConv(WIDTH, 2, aggr='mean'),
    'GINConv with a function': lambda w, r: nn.GINConv(lambda x: x - x.mean(0), aggr='mean'),
    'GINConv with a norm of the graph': lambda w, r: nn.GINConv(nn.MLP([w, WIDTH, WIDTH], norm=r.choice(['layer_norm', 'graph_norm', 'pair_norm']))),
    'GPSConv': lambda w, r: nn.GPSConv(WIDTH, nn.SAGEConv(w, WIDTH), heads=2),
    'LGConv': lambda w, r: nn.LGConv(normalize=r.random() < 0.7),
    'MixHopConv': lambda w, r: nn.MixHopConv(w, WIDTH // 3),
    'SAGEConv backwards': lambda w, r: nn.SAGEConv(w, WIDTH, flow='target_to_source'),
    'SAGEConv of LSTMs': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=nn.LSTMAggregation(w, w)),
    'SAGEConv of GRUs': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=nn.GRUAggregation(w, w)),
    'SAGEConv sorted': lambda w, r: nn.GraphConv(w, WIDTH, aggr=nn.SortAggregation(1)),
    'SAGEConv of quantiles': lambda w, r: nn.SAGEConv(w, WIDTH, aggr=nn.QuantileAggregation(0.3)),
    'SGConv': lambda w, r: nn.SGConv(w, WIDTH, K=r.choice([1, 2]), cached=r.random() < 0.3),
    'SSGConv': lambda w, r: nn.SSGConv(w, WIDTH, alpha=0.2),
    'TAGConv': lambda w, r: nn.TAGConv(w, WIDTH, K=r.choice([1, 2])),
}


def whole_norm(x):
    return x / x.norm(dim=0).clamp(min=1e-3)


class Doubled(nn.SAGEConv):
    """A convolution whose messages are its own."""

    def message(self, x_j):
        return 2 * x_j


class Residual(BasicGNN):
    """A model with a forward of its own, which the base class would compute without its residuals."""

    supports_edge_weight = supports_edge_attr = False

    def init_conv(self, in_channels, out_channels, **_):
        return nn.SAGEConv(in_channels, out_channels)

    def forward(self, x, edge_index):
        for conv, norm in zip(self.convs, self.norms):
            x = x + norm(conv(x, edge_index)).relu()
        return x


def draw_conv(rng, whole):
    name = rng.choice(list(WHOLE_CONVS if whole else CONVS))
    return name, (WHOLE_CONVS if whole else CONVS)[name]


def draw_gnn(rng, whole=''):
    """A BasicGNN; `whole` says what of it takes the whole graph: 'conv', 'norm', 'act' or nothing."""
    layers = rng.choice([1, 2, 3])
    norm = rng.choice(list(WHOLE_NORMS)) if whole == 'norm' else rng.choice([None, *NORMS])
    query, settings = (WHOLE_NORMS if whole == 'norm' else NORMS).get(norm, (None, None))
    jk = rng.choice([None, None, 'last', 'cat', 'max', 'lstm'])
    if whole in ('norm', 'act') and jk is None:
        layers = max(layers, 2)  # the last layer of a model without jumping knowledge has neither
    act = whole_norm if whole == 'act' else rng.choice(ACTS)
    options = {'dropout': rng.choice([0.0, 0.5]), 'act': act, 'act_first': rng.random() < 0.5, 'norm': query, 'norm_kwargs': settings, 'jk': jk,
               'out_channels': rng.choice([None, WIDTH])}
    if query == 'pair_norm':
        options['norm_kwargs'] = {**settings, 'scale': 1.0}
        options['norm'] = nn.PairNorm(**options['norm_kwargs'])
    kind = rng.choice(['GCN', 'GraphSAGE', 'GIN', 'GAT', 'PNA', 'EdgeCNN', *['own'] * 6])
    if whole == 'conv' or kind == 'own':
        name, make = draw_conv(rng, whole == 'conv')

        class Own(BasicGNN):
            supports_edge_weight = supports_edge_attr = False

            def init_conv(self, in_channels, out_channels, **_):
                return make(in_channels, rng)

        model = Own(WIDTH, WIDTH, layers, **options)
    else:
        name = kind
        more = {'GCN': {'improved': rng.random() < 0.3, 'add_self_loops': rng.random() < 0.7}, 'GraphSAGE': {'aggr': rng.choice(AGGRS)}, 'GAT': {'v2': rng.random() < 0.5, 'heads': 3},
                'PNA': {'aggregators': ['mean', 'std', 'max'], 'scalers': ['identity', 'linear'], 'deg': DEGREES}}.get(kind, {})
        options['out_channels'] = rng.choice([None, 3])
        model = getattr(nn, kind)(WIDTH, WIDTH, layers, **options, **more)
    return model, {'convs': [name], 'norm': norm, 'act': getattr(act, '__name__', act), 'jk': jk, 'layers': layers}


def add_one(module, inputs, *output):
    """A hook of modules: shifts what the convolution or the model returns."""
    return output[0] + 1 if output else None


def shift(model, rng, what):
    """Changes a model in a way that its class does not show; returns a function that takes back what is global."""
    conv = rng.choice(list(model.convs))
    module = rng.choice([model, conv])
    if what == 'forward hook':
        module.register_forward_hook(add_one)
    elif what == 'forward pre-hook':
        module.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean(0), *args[1:]))
    elif what == 'hook of messages':
        conv.register_message_forward_hook(lambda module, inputs, out: 3 * out)
    elif what == 'hook of propagate':
        conv.register_propagate_forward_hook(lambda module, inputs, out: out - out.mean(0))
    elif what == 'global hook':
        return torch.nn.modules.module.register_module_forward_hook(lambda called, inputs, out: out + 1 if called is model else None).remove
    elif what == 'replaced forward':
        before = module.forward
        module.forward = lambda *args, **named: 2 * before(*args, **named)
    elif what == 'replaced message':
        conv.message = lambda x_j, **_: 2 * x_j
    elif what == 'parametrization':
        torch.nn.utils.parametrizations.weight_norm(next(m for m in conv.modules() if getattr(m, 'weight', None) is not None))
    elif what == 'weight norm of old':
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            torch.nn.utils.weight_norm(next(m for m in conv.modules() if getattr(m, 'weight', None) is not None))
    elif what == 'replaced dropout':
        model.dropout = torch.nn.ReLU()
    elif what == 'cached graph':
        conv.cached = True
        conv(torch.rand(NODES, WIDTH), torch.randint(0, NODES, (2, 900)))
    return lambda: None


CHANGES = ['forward hook', 'forward pre-hook', 'hook of messages', 'hook of propagate', 'global hook', 'replaced forward', 'replaced message', 'parametrization',
           'weight norm of old', 'replaced dropout', 'cached graph']


def draw_changed(rng):
    what = rng.choice([*CHANGES, 'residuals', 'messages of a subclass', 'another activation'])
    if what == 'residuals':
        return Residual(WIDTH, WIDTH, 2, norm='layer_norm', norm_kwargs={'mode': 'node'}), {'changed': what}, lambda: None
    if what == 'another activation':
        return nn.GraphSAGE(WIDTH, WIDTH, 2, act=rng.choice([whole_norm, lambda x: 2 * x])), {'changed': what}, lambda: None
    model = nn.GCN(WIDTH, WIDTH, 2) if what == 'cached graph' else nn.GraphSAGE(WIDTH, WIDTH, rng.choice([2, 3]), norm=rng.choice(['batch_norm', None]), jk=rng.choice([None, 'cat']))
    if what == 'messages of a subclass':
        model.convs[0] = Doubled(WIDTH, WIDTH)
        return model, {'changed': what}, lambda: None
    return model, {'changed': what}, shift(model, rng, what)


class Block(torch.nn.Module):
    """A layer as users write it: a convolution, a norm, dropout, and a residual."""

    def __init__(self, conv, norm, residual):
        super().__init__()
        self.conv, self.norm, self.residual = conv, norm, residual

    def forward(self, x, edge_index):
        h = functional.dropout(self.norm(self.conv(x, edge_index)).relu(), 0.5, self.training)
        return x + h if self.residual else h


def draw_list(rng, whole):
    """Layers that a user states: modules, and functions around them."""
    layers, convs, names = [], [], []
    bad = rng.randrange(3) if whole else None
    for number in range(3):
        name, make = draw_conv(rng, number == bad and rng.random() < 0.5)
        convs.append(name)
        block = Block(make(WIDTH, rng), copy.deepcopy(rng.choice([nn.BatchNorm(WIDTH), nn.LayerNorm(WIDTH, mode='node'), torch.nn.Identity()])), rng.random() < 0.5)
        if number == bad and name in CONVS:
            block.norm = rng.choice([nn.LayerNorm(WIDTH), nn.GraphNorm(WIDTH), nn.BatchNorm(WIDTH, track_running_stats=False), nn.PairNorm()])
            name += ' with ' + type(block.norm).__name__
        if rng.random() < 0.3:
            block.conv.register_forward_hook(add_one)
            name += ' with a hook'
        as_function = rng.random() < 0.5
        layers.append((lambda block: lambda x, edge_index: 2 * block(x, edge_index))(block) if as_function else block)
        names.append(name + (' in a function' if as_function else ''))
    return layers, {'convs': convs, 'layers': names}


def draw(number, seed):
    """A model, what it is, whether it must be computed, and what takes back its global changes."""
    rng = random.Random(f'{seed} {number}')
    torch.manual_seed(rng.randrange(1 << 30))
    kind = ['plain', 'plain', 'whole', 'changed', 'list', 'whole list', 'plain', 'whole', 'changed', 'list'][number % 10]
    undo = None
    if kind == 'plain':
        model, facts = draw_gnn(rng)
    elif kind == 'whole':
        model, facts = draw_gnn(rng, rng.choice(['conv', 'norm', 'norm', 'act']))
    elif kind == 'changed':
        model, facts, undo = draw_changed(rng)
    else:
        model, facts = draw_list(rng, kind == 'whole list')
    for module in modules_of(model):
        with torch.no_grad():
            for name, value in module.named_buffers(recurse=False):  # statistics of a training
                if name == 'running_mean':
                    value.normal_()
                elif name == 'running_var':
                    value.uniform_(0.5, 2)
            if 'Norm' in type(module).__name__ and getattr(module, 'weight', None) is not None and module.weight.dim() == 1:
                module.weight.uniform_(0.5, 1.5)
        module.training = rng.random() < 0.5
    return model, {'number': number, 'kind': kind, **facts}, kind in ('plain', 'list'), undo


def modules_of(model):
    """All modules, those of functions too."""
    for layer in model if isinstance(model, list) else [model]:
        layer = layer if isinstance(layer, torch.nn.Module) else layer.__closure__[0].cell_contents
        yield from layer.modules()


def by_its_own_code(model, x, edge_index):
    for module in modules_of(model):
        module.training = False
    with torch.no_grad():
        if not isinstance(model, list):
            return model(x, edge_index)
        for layer in model:
            x = layer(x, edge_index)
        return x


def state_of(model):
    return [(module.training, {name: value.clone() for name, value in module.state_dict().items()}, getattr(module, 'normalize', None)) for module in modules_of(model)]


def same_state(before, after):
    return all(one[0] == other[0] and one[2] == other[2] and one[1].keys() == other[1].keys()
               and all(torch.equal(one[1][name], other[1][name]) for name in one[1]) for one, other in zip(before, after))


def attempt(number, seed, dataset, x, edge_index):
    model, facts, plain, undo = draw(number, seed)
    facts['plain'] = plain
    before = state_of(model)
    try:
        try:
            found = plimsoll.inference(model, dataset, memory='64G')
        except plimsoll.UsageError as error:
            found = None
            facts['why'] = str(error)
        facts['unchanged'] = same_state(before, state_of(model))
        if found is None:
            return {**facts, 'outcome': 'refused'}
        expected = by_its_own_code(model, x, edge_index)
    finally:
        if undo is not None:
            undo()
    scale = float(expected.abs().nan_to_num(0, 0, 0).max()) or 1.0
    off = float((found - expected).abs().nan_to_num(0).max()) / scale
    same = found.shape == expected.shape and torch.equal(found.isfinite(), expected.isfinite())
    return {**facts, 'off': off, 'outcome': 'equal' if same and off <= LIMIT else 'wrong'}


def make_graph(directory):
    """Hubs, nodes without in-edges (the first and the last among them), self-loops, edges that occur twice."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(0, NODES, (EDGES,), generator=generator)
    target = (torch.rand(EDGES, generator=generator) ** 2 * (NODES - 170)).long() + 120
    target[:300] = 277
    loops = torch.randint(130, 300, (60,), generator=generator)
    edge_index = torch.cat([torch.stack([source, target]), torch.stack([loops, loops]), torch.stack([source, target])[:, 350:500]], dim=1)
    x = torch.randn(NODES, WIDTH, generator=generator)
    dataset = plimsoll.from_pyg(Data(x=x, edge_index=edge_index, y=torch.zeros(NODES, dtype=torch.long)), os.path.join(directory, 'graph'), quiet=True)
    indptr = torch.from_numpy(numpy.array(dataset.array('indptr')))
    target = torch.repeat_interleave(torch.arange(NODES), indptr.diff())
    return dataset, x, torch.stack([torch.from_numpy(numpy.array(dataset.array('indices'))).long(), target])


def main():
    directory, models, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 0
    layerwise._CHUNK_BYTES = CHUNK_BYTES
    torch.set_num_threads(1)
    dataset, x, edge_index = make_graph(directory)
    for number in range(models):
        print(json.dumps(attempt(number, seed, dataset, x, edge_index)), flush=True)


if __name__ == '__main__':
    main()
