#!/usr/bin/env python3
"""A script that reads batches and takes memory by torch beside them, for tools/prove python neighbours.

    bench/python_beside.py DATASET CASE

CASE is a JSON object: line (bytes; null: the job's limit), torch_first, before (bytes of a tensor that is there before the loader), loaders (1 to
3), fanout, batch, kind, share, rate, hold, times. `times` times it takes `share` of what the loader's caches may hold: in one tensor (burst),
in many at `rate` bytes/s (steps), in lists of NumPy arrays (numpy), or as a model that is trained (model); reads batches for `hold` seconds;
and lets go of it. It prints a line of JSON at each of these moments, on the clock that all processes share.
"""
import json
import os
import sys
import time

MIB = 1 << 20
SETTLED, SETTLE_MOST = 2, 60  # seconds without growth before anything is taken; at most
BACK_MOST = 25  # seconds in which caches must come back
PIECE = 8 * MIB


def mark(name, **facts):
    print(json.dumps({'mark': name, 'time': time.monotonic(), 'pid': os.getpid(), **facts}), flush=True)


def resident():
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


def read_for(batches, seconds):
    """Batches/s for some seconds."""
    count, began = 0, time.monotonic()
    while time.monotonic() - began < seconds:
        next(batches)
        count += 1
    return round(count / (time.monotonic() - began), 2)


def settle(batches, most):
    """Reads until memory has stopped growing."""
    began = grown = time.monotonic()
    largest = 0
    while time.monotonic() - grown < SETTLED and time.monotonic() - began < most:
        read_for(batches, 0.2)
        if resident() > largest + MIB:
            largest, grown = resident(), time.monotonic()


def endless(loaders):
    while True:
        for loader in loaders:
            yield from loader


def take(case, size, batches):
    """Takes about `size` bytes and returns what holds them."""
    import numpy
    import torch

    if case['kind'] == 'burst':
        return torch.ones(size // 4)
    if case['kind'] == 'model':
        width = 1024
        layers = max(int(size / (16 * width * width)), 1)  # weights, gradients and two moments
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(layers)))
        optimiser = torch.optim.Adam(model.parameters())
        model(torch.ones(1, width)).sum().backward()
        optimiser.step()
        return model, optimiser
    pieces, began = [], time.monotonic()
    for taken in range(0, size, PIECE):
        while time.monotonic() < began + taken / case['rate']:
            next(batches)
        pieces.append(torch.ones(PIECE // 4) if case['kind'] == 'steps' else numpy.ones(PIECE // 8))
    return pieces


def main():
    path, case = sys.argv[1], json.loads(sys.argv[2])
    if case['torch_first']:
        import torch
    import plimsoll

    ds = plimsoll.open(path)
    held = torch.ones(case['before'] // 4) if case['torch_first'] else None
    loaders = [plimsoll.NeighborLoader(ds, case['fanout'], split, batch_size=case['batch'], shuffle=True, memory=case['line'])
               for split in ('train', 'valid', 'test')[:case['loaders']]]
    import torch  # noqa: F811

    line = plimsoll.limit(memory=case['line']).line_bytes
    mark('start', line=line)
    batches = endless(loaders)
    settle(batches, SETTLE_MOST)
    plan = loaders[0].memory_plan
    caches = plan['list_cache_bytes'] + plan['row_cache_bytes']
    room = caches if caches > 0 else max(line - resident() - line // 10, 0)
    before = resident()
    for _ in range(case['times']):
        mark('before', rate=read_for(batches, 2), caches=caches, resident=resident(), topology=plan['topology'], features=plan['features'])
        mark('grow', bytes=int(room * case['share']))
        taken = take(case, int(room * case['share']), batches)
        mark('grown')
        mark('held', rate=read_for(batches, case['hold']))
        del taken
        mark('freed')
        began = time.monotonic()
        while resident() < before - caches // 20 and time.monotonic() - began < BACK_MOST:
            read_for(batches, 0.2)
        mark('back', seconds=round(time.monotonic() - began, 2), resident=resident(), missing=max(before - resident(), 0))
    mark('end', rate=read_for(batches, 2))
    del held


if __name__ == '__main__':
    main()
