"""Checks on this machine's GPU what could not be tested without one: python -m plimsoll.gpu_check

Loads batches with `device='cuda'` and with `.to('cuda', non_blocking=True)`, while the GPU is kept busy so that copies come late, and
compares every tensor with the batch in the CPU's memory. Takes about a minute. Exit code 0: all is well; 1: a difference; 2: no GPU.
"""
from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

NAMES = 'x', 'y', 'edge_index', 'n_id', 'edge_position', 'input_id'


def _compare(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> int:
    wrong = abs(len(found) - len(expected))
    for here, there in zip(found, expected, strict=False):
        wrong += any(not here[name].cpu().equal(there[name]) for name in NAMES)
    return wrong


def _take(batch: Any, clone: bool) -> dict[str, Any]:
    return {name: batch[name].clone() if clone else batch[name] for name in NAMES}


def check(path: str, batch_size: int = 64) -> bool:
    """Whether all ways to a GPU give the batches of the CPU."""
    import torch

    from . import NeighborLoader, open

    def loader(**options: Any) -> Any:
        return NeighborLoader(open(path), [10, 10], 'train', batch_size=batch_size, shuffle=True, seed=1, memory='1G', **options)

    def busy() -> None:
        torch.cuda._sleep(20_000_000)

    expected = [_take(batch, True) for batch in loader()]
    ways: dict[str, list[dict[str, Any]]] = {'device="cuda"': [], '.to("cuda", non_blocking=True)': []}
    for batch in loader(device='cuda'):
        busy()
        ways['device="cuda"'].append(_take(batch, False))
    side = torch.cuda.Stream()
    for batch in loader():
        with torch.cuda.stream(side):
            busy()
            moved = batch.to('cuda', non_blocking=True)
        del batch
        ways['.to("cuda", non_blocking=True)'].append(_take(moved, False))
    torch.cuda.synchronize()
    for way, found in ways.items():
        wrong = _compare(found, expected)
        print(f'{way}: {len(found)} batches, {wrong} differ' if wrong else f'{way}: {len(found)} batches, all equal')
    return all(_compare(found, expected) == 0 for found in ways.values())


def main() -> int:
    try:
        import torch
    except ImportError:
        print('torch is not installed')
        return 2
    if not torch.cuda.is_available():
        print('torch finds no GPU: nothing was checked')
        return 2
    from . import generate

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, 'arxiv')
        generate('arxiv', path, scale=0.1)
        good = check(path)
    print(f'{torch.cuda.get_device_name()}: ' + ('all is well' if good else 'batches differ: please report this'))
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
