#!/usr/bin/env python3
"""A training script of a user's own, as random as users' are: a PyG model fed by plimsoll.NeighborLoader. For tools/prove python.

    bench/python_steps.py DATASET '{"model": "GCN", "hidden": 64, "batch": 512, "fanout": [10, 5], "optimizer": "Adam", "steps": 12, "evaluate": 6}'

Prints one JSON line for each step and each wait for a batch, with its seconds and major faults; `evaluate` batches are evaluated after half of the
steps and at the end. "rehearse": true runs a rehearsal first. The weights at the end are told by a hash. Ends with 3 where the loader refuses, and prints the error's figures.
"""
import hashlib
import itertools
import json
import resource
import sys
import threading
import time

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg

import plimsoll


def tell(**fields):
    print(json.dumps(fields), flush=True)


class Clock:
    """Tells how long each step and each wait took."""

    def __init__(self):
        self.begin()

    def begin(self):
        self.time, self.faults = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_majflt

    def tell(self, what):
        before = self.time, self.faults
        self.begin()
        tell(what=what, seconds=round(self.time - before[0], 3), faults=self.faults - before[1])


class Peak(threading.Thread):
    """The most anonymous memory that is not the loader's cache."""

    def __init__(self):
        super().__init__(daemon=True)
        self.bytes = 0
        self.start()

    def run(self):
        while True:
            with open('/proc/self/smaps_rollup') as file:
                sizes = {line.split()[0]: int(line.split()[1]) << 10 for line in file if 'kB' in line}
            self.bytes = max(self.bytes, sizes['Anonymous:'] - sizes['LazyFree:'])
            time.sleep(0.01)


def main():
    dataset, case = plimsoll.open(sys.argv[1]), json.loads(sys.argv[2])
    torch.manual_seed(0)
    shared = {'num_neighbors': case['fanout'], 'batch_size': case['batch']}
    train = plimsoll.NeighborLoader(dataset, input_nodes='train', shuffle=True, memory=case.get('memory'), seed=1, **shared)
    valid = plimsoll.NeighborLoader(dataset, input_nodes='valid', **shared)
    model = getattr(pyg, case['model'])(dataset.num_features, case['hidden'], num_layers=len(case['fanout']), out_channels=dataset.num_classes)
    optimizer = getattr(torch.optim, case['optimizer'])(model.parameters(), lr=0.01)
    peak, clock, steps = Peak() if case.get('measure') else None, Clock(), 0

    def step(batch):
        optimizer.zero_grad()
        out = model(batch.x, batch.edge_index)[: batch.batch_size]
        loss = F.cross_entropy(out, batch.y[: batch.batch_size])
        loss.backward()
        optimizer.step()

    @torch.no_grad()
    def predict(batch):
        return model(batch.x, batch.edge_index)[: batch.batch_size].argmax(-1)

    def evaluate():
        model.eval()
        for batch in itertools.islice(valid, case['evaluate']):
            clock.tell('wait')
            predict(batch)
            clock.tell('evaluate')
        model.train()

    if case.get('rehearse'):
        found = train.rehearse(step, model, optimizer, predict)
        tell(what='rehearsed', rehearsed={**found._asdict(), 'seconds': round(found.seconds, 3)})
        clock.begin()
    while steps < case['steps']:
        for batch in train:
            clock.tell('wait')
            step(batch)
            clock.tell('step')
            steps += 1
            if steps == case['steps'] // 2:
                evaluate()
            if steps == case['steps']:
                break
    evaluate()
    weights = hashlib.sha256(b''.join(weight.detach().numpy().tobytes() for weight in model.parameters())).hexdigest()
    tell(what='end', peak_bytes=peak.bytes if peak else 0, weights=weights)


try:
    main()
except plimsoll.MemoryLineError as error:
    tell(what='refused', needed_bytes=error.needed_bytes, available_bytes=error.available_bytes, batch_size=error.batch_size, message=str(error))
    sys.exit(3)
