"""Test whether parts of a trace are variables of the network's own forward pass.

In one pass, the tensors among the local variables of a repository's functions are recorded. Each
part of a trace is compared with those of equal size, in any order of axes; the nearest one counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from itertools import accumulate, permutations
from math import prod
from operator import mul

import torch
from torch import Tensor

import capsviz
from capsviz.tracing import abilities, evaluating
from capsviz.wrapping import without_cuda

COUNT = 3  # number of inputs
FAR = 0.01  # variables that differ more, relative to the largest number, are other quantities


def variables(run: Callable, folder: str, sizes: set[int]) -> dict[str, list[Tensor]]:
    """Return the tensors of these sizes in the functions of a folder, by "function: name"."""
    found: dict[str, list[Tensor]] = {}
    seen: dict[tuple, Tensor] = {}

    def keep(name: str, value: object) -> None:
        for part in value if isinstance(value, tuple | list) else (value,):
            if isinstance(part, Tensor) and part.numel() > 1 and part.is_floating_point():
                key = (id(part), part._version)
                if key not in seen:
                    seen[key] = part  # keeps the tensor, so its id is not reused
                    for one in (part, small(part)):
                        if one.numel() in sizes:
                            found.setdefault(name, []).append(one.detach().squeeze().clone())

    def look(frame, event, value):
        where = frame.f_code
        if not os.path.abspath(where.co_filename).startswith(folder):
            return None
        for name, one in frame.f_locals.items():
            keep(f"{where.co_name}: {name}", one)
        if event == "return":
            keep(f"{where.co_name}: result", value)
        return look

    sys.settrace(look)
    try:
        run()
    finally:
        sys.settrace(None)
    return found


def small(values: Tensor) -> Tensor:
    """Remove axes of size 1 and, after the first axis, those along which all values are equal."""
    for axis in range(values.dim() - 1, 0, -1):
        if values.shape[axis] > 1 and bool((values == values.narrow(axis, 0, 1)).all()):
            values = values.narrow(axis, 0, 1)
    return values.squeeze()


def apart(part: Tensor, value: Tensor, grid: tuple[int, ...] | None = None) -> float:
    """Return the largest difference in the best order of axes; inf if no order fits.

    The axis of children may list types, rows and columns in any order.
    """
    part, best = part.squeeze(), float("inf")
    if part.numel() != value.numel() or value.dim() > 6:
        return best
    several = [value]
    for axis in range(value.dim()) if grid else ():
        if value.shape[axis] == prod(grid):
            several += [value.unflatten(axis, order) for order in sorted(set(permutations(grid)))]
    for one in several:
        for order in permutations(range(one.dim())):
            shape = [one.shape[axis] for axis in order]
            if set(accumulate(part.shape, mul)) <= set(accumulate(shape, mul)):
                moved = one.permute(order).reshape(part.shape)
                best = min(best, float((moved - part).abs().max()))
        if best == 0:
            break
    return best


def compared(network, folder: str) -> tuple[capsviz.Trace, dict[str, list]]:
    """Return a trace, and for each part the variable nearest to it and the largest difference."""
    draw, shape = abilities(network).draw, network.recipe.image_shape
    noise = torch.rand(COUNT, *shape, generator=torch.Generator().manual_seed(5))
    inputs = draw(COUNT, 5) if draw else noise
    trace = capsviz.trace(network, inputs)
    parts = {"votes": [trace.votes], "scores": [trace.lengths]}
    parts["poses"] = [] if trace.poses is None else [trace.poses[-1]]
    parts["couplings"] = [c for c in trace.couplings if float(c.max() - c.min()) > 1e-9]  # uniform
    parts = {name: some for name, some in parts.items() if some and some[0] is not None}
    with evaluating(network.network), torch.no_grad(), without_cuda():
        sizes = {one.numel() for some in parts.values() for one in some}
        own = network.recipe.normalised(inputs)
        found = variables(lambda: network.recipe.call(network.network, own), folder, sizes)
    result: dict[str, list] = {}
    for name, some in parts.items():
        off = {
            key: max(min(apart(one, value, network.grid) for value in values) for one in some)
            for key, values in found.items()
        }
        key = min(off, key=off.__getitem__, default=None)
        if key is not None and off[key] <= FAR * max(float(one.abs().max()) for one in some):
            result[name] = [key, off[key]]
    return trace, result
