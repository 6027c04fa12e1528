#!/usr/bin/env python3
"""Trains a BasicGNN model of PyTorch Geometric by a recipe of examples/recipes.tsv, for tools/prove accuracy.

    bench/accuracy_pyg.py DATASET --seeds 0,1,2 TRAIN-OPTIONS…

DATASET is a directory that `plimsoll import` made, TRAIN-OPTIONS are those of `plimsoll train`. Node sets are trained by full
batches, sets of many graphs by shuffled batches. Prints one line of JSON: for each seed the test score at the best validation (at the
end where there is no validation split), of a regression mae, rmse and r2 there, and the seconds it took.
"""
import argparse
import json
import pathlib
import time
import warnings

import numpy as np
import torch
from torch_geometric.nn import GAT, GCN, GIN, MLP, GINEConv, GraphSAGE, global_add_pool, global_max_pool, global_mean_pool
from torch_geometric.nn.models.basic_gnn import BasicGNN


class Bonds(GINEConv):
    """With OGB's BondEncoder, of the width of the layer's input."""

    def __init__(self, mlp, width, categories):
        super().__init__(mlp)
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(count, width) for count in categories)
        for table in self.tables:
            torch.nn.init.xavier_uniform_(table.weight)

    def forward(self, x, edges, edge_attr):
        return super().forward(x, edges, sum(table(edge_attr[:, i]) for i, table in enumerate(self.tables)))


class GINE(BasicGNN):
    """PyG's GIN with bonds."""
    supports_edge_weight, supports_edge_attr = False, True

    def init_conv(self, in_channels, out_channels, categories=()):
        return Bonds(MLP([in_channels, out_channels, out_channels], act=self.act, norm=self.norm, norm_kwargs=self.norm_kwargs), in_channels, categories)


MODELS = {'gcn': GCN, 'sage': GraphSAGE, 'gat': GAT, 'gin': GIN, 'gine': GINE}
POOLS = {'mean': global_mean_pool, 'add': global_add_pool, 'max': global_max_pool}
LOWER_IS_BETTER = ('rmse', 'mae')


def options_of(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('dataset', type=pathlib.Path)
    parser.add_argument('--seeds', type=lambda text: [int(seed) for seed in text.split(',')], default=[0])
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--model', choices=[*MODELS, 'mlp'], required=True)
    parser.add_argument('--layers', type=int, default=2)
    parser.add_argument('--hidden', type=int, default=64)
    parser.add_argument('--heads', type=int, default=1)
    parser.add_argument('--edge-categories', type=lambda text: [int(count) for count in text.split(',')])
    parser.add_argument('--norm', choices=['none', 'layer', 'batch'], default='none')
    parser.add_argument('--act', default='relu')
    parser.add_argument('--dropout', type=float, default=0.0)
    parser.add_argument('--pool', choices=POOLS, default='mean')
    parser.add_argument('--fanout')
    parser.add_argument('--batch', type=int, default=1024)
    parser.add_argument('--epochs', type=int, default=10)
    parser.add_argument('--lr', type=float, default=0.01)
    parser.add_argument('--weight-decay', type=float, default=0.0)
    parser.add_argument('--metric', default='auto')
    parser.add_argument('--eval-every', type=int, default=1)
    return parser.parse_args(words)


class Dataset:
    def __init__(self, path):
        self.arrays = {file.stem: np.load(file) for file in path.glob('*.npy')}
        arrays = self.arrays
        self.x = torch.from_numpy(arrays['features'].astype(np.float32))
        self.indptr, self.indices = arrays['indptr'], arrays['indices'].astype(np.int64)
        self.graph_ptr, self.edge_attr = arrays.get('graph_indptr'), arrays.get('edge_features')
        labels = arrays['labels']
        self.classes = int(labels.max()) + 1 if labels.dtype.kind in 'iu' else 0
        self.y = torch.from_numpy(labels.astype(np.int64) if self.classes else labels.reshape(len(labels), -1))
        self.outputs = self.classes or self.y.shape[1]
        empty = np.zeros(0, np.int64)
        self.split = {part: torch.from_numpy(arrays.get(part, empty)) for part in ('train', 'valid', 'test')}

    def edge_index(self):
        degrees = np.diff(self.indptr)
        return torch.from_numpy(np.stack([self.indices, np.repeat(np.arange(len(degrees)), degrees)]))

    def adjacency(self):
        """Rows are destinations, as PyG's adj_t."""
        size = len(self.indptr) - 1
        return torch.sparse_csr_tensor(torch.from_numpy(self.indptr), torch.from_numpy(self.indices),
                                       torch.ones(len(self.indices)), (size, size))

    def graphs(self, ids):
        """Several graphs as one: x, edge_index, batch, edge_attr."""
        first, end = self.graph_ptr[ids], self.graph_ptr[ids + 1]
        sizes = end - first
        shift = np.cumsum(sizes) - sizes - first
        nodes = np.concatenate([np.arange(a, b) for a, b in zip(first, end)])
        edges = np.concatenate([np.arange(self.indptr[a], self.indptr[b]) for a, b in zip(first, end)])
        num_edges = self.indptr[end] - self.indptr[first]
        source = self.indices[edges] + np.repeat(shift, num_edges)
        destination = np.repeat(np.arange(len(nodes)), self.indptr[nodes + 1] - self.indptr[nodes])
        return (self.x[nodes], torch.from_numpy(np.stack([source, destination])),
                torch.from_numpy(np.repeat(np.arange(len(ids)), sizes)),
                None if self.edge_attr is None else torch.from_numpy(self.edge_attr[edges]))


def make_model(data, options):
    norm = {'none': None, 'layer': 'layer_norm', 'batch': 'batch_norm'}[options.norm]
    common = {'dropout': options.dropout, 'act': options.act, 'norm': norm,
              'norm_kwargs': {'mode': 'node'} if options.norm == 'layer' else None}
    features = data.x.shape[1]
    if options.model == 'mlp':
        return MLP(in_channels=features, hidden_channels=options.hidden, out_channels=data.outputs,
                   num_layers=options.layers, **common)
    if options.model == 'gat':
        common['heads'] = options.heads
    if options.model == 'gine':
        common['categories'] = options.edge_categories
    if data.graph_ptr is not None:
        common['jk'] = 'last'
    elif options.model == 'gcn':
        common['cached'] = True
    return MODELS[options.model](features, options.hidden, options.layers, data.outputs, **common)


class OnNodes:
    """Full batches: every node's output at once, the loss over the training split."""

    def __init__(self, data, options):
        if options.model != 'mlp' and (options.batch < len(data.split['train']) or
                                       any(int(drawn) >= 0 for drawn in options.fanout.split(','))):
            raise SystemExit('node sets are trained here with all neighbours and a batch that holds the training split')
        self.data = data
        self.edges = data.edge_index() if options.model == 'gat' else data.adjacency()
        self.model = make_model(data, options)

    def parts(self, draw):
        del draw
        return [self.data.split['train']]

    def outputs(self, ids):
        x = self.data.x
        whole = self.model(x) if isinstance(self.model, MLP) else self.model(x, self.edges)
        return whole[ids]

    def parameters(self):
        return self.model.parameters()


class OnGraphs:
    """Batches of whole graphs: layers, pooling, and the linear layer behind it."""

    def __init__(self, data, options):
        self.data, self.batch = data, options.batch
        self.pool = POOLS[options.pool]
        self.model = make_model(data, options)
        self.head = self.model.lin
        self.model.lin = torch.nn.Identity()

    def parts(self, draw):
        order = draw.permutation(self.data.split['train'].numpy())
        return [torch.from_numpy(order[at:at + self.batch]) for at in range(0, len(order), self.batch)]

    def outputs(self, ids):
        x, edges, batch, attr = self.data.graphs(ids.numpy())
        read = {'edge_attr': attr} if isinstance(self.model, GINE) else {}
        return self.head(self.pool(self.model(x, edges, **read), batch, len(ids)))

    def parameters(self):
        return [*self.model.parameters(), *self.head.parameters()]


def roc_auc(score, label):
    order = np.argsort(score, kind='stable')
    values, inverse, counts = np.unique(score[order], return_inverse=True, return_counts=True)
    del values
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]  # ties share their mean rank
    positive = label[order] == 1
    count = positive.sum()
    return (ranks[positive].sum() - count * (count + 1) / 2) / (count * (len(label) - count))


def score_of(outputs, labels, metric):
    if metric == 'accuracy':
        return float((outputs.argmax(1) == labels).float().mean())
    if metric == 'roc-auc':
        return float(roc_auc((outputs[:, 1] - outputs[:, 0]).numpy(), labels.numpy()))
    error = outputs - labels
    if metric == 'r2':
        return float((1 - error.square().mean(0) / labels.var(0, correction=0)).mean())
    return float(error.abs().mean() if metric == 'mae' else error.square().mean().sqrt())


def train(data, options, seed):
    torch.manual_seed(seed)
    draw = np.random.default_rng(seed)
    task = (OnNodes if data.graph_ptr is None else OnGraphs)(data, options)
    metric = options.metric if options.metric != 'auto' else 'accuracy' if data.classes else 'rmse'
    loss_of = torch.nn.functional.cross_entropy if data.classes else torch.nn.functional.mse_loss
    optimiser = torch.optim.Adam(task.parameters(), lr=options.lr, weight_decay=options.weight_decay)
    best, reached, errors = None, None, {}

    @torch.no_grad()
    def evaluate(part, metric=metric):
        ids = data.split[part]
        return score_of(task.outputs(ids), data.y[ids], metric)

    for epoch in range(1, options.epochs + 1):
        task.model.train()
        for ids in task.parts(draw):
            optimiser.zero_grad()
            loss_of(task.outputs(ids), data.y[ids]).backward()
            optimiser.step()
        last = epoch == options.epochs
        if not last and (options.eval_every == 0 or epoch % options.eval_every != 0):
            continue
        task.model.eval()
        if len(data.split['valid']) == 0:
            if last:
                reached = evaluate('test')
            continue
        valid = evaluate('valid')
        if best is None or (valid < best if metric in LOWER_IS_BETTER else valid > best):
            best, reached = valid, evaluate('test')
            errors = {} if data.classes else {name: evaluate('test', name) for name in ('mae', 'rmse', 'r2')}
    return reached, errors


def main():
    options = options_of()
    warnings.filterwarnings('ignore', 'Sparse')
    torch.set_num_threads(options.threads)
    data = Dataset(options.dataset)
    began = time.monotonic()
    scores, errors = zip(*(train(data, options, seed) for seed in options.seeds))
    print(json.dumps({'seeds': options.seeds, 'scores': scores, 'errors': errors, 'seconds': round(time.monotonic() - began, 2)}))


if __name__ == '__main__':
    main()
