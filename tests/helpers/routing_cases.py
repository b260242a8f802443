"""What a test draws for any routing, by its signature alone, and how literal rounds compare."""

from inspect import signature

import torch

from capsviz.nn import routing
from capsviz.nn.routing import Routing
from helpers.random_tensors import B, D, E, I, J, draw, votes_of

NAMES = routing.available()


def takes(name, *options):
    """Whether a routing's `route` has all of these options."""
    return set(options) <= signature(routing.get(name).route).parameters.keys()


ITERATIVE = [name for name in NAMES if takes(name, "iterations")]
ACTIVE = [name for name in NAMES if takes(name, "activations")]
FUSED = [name for name in NAMES if hasattr(routing.get(name), "fused")]


def learned(name, *, children=I, dtype=torch.float64):
    """Draws for the parameters of a routing, around their initial values."""
    module, found = routing.get(name), {}
    initial = {"bias": torch.zeros(J, E)} if takes(name, "bias") else {}
    if hasattr(module, "parameters"):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            initial = module.parameters(children, J, D, E)
    for seed, (key, value) in enumerate(initial.items(), start=30):
        step = draw(value.numel(), seed=seed, dtype=dtype).view(value.shape)
        found[key] = value.to(dtype) + 0.5 * step
    return found


def drawn_capsules(name, *, batch=B, children=I, scale=1.0, dtype=torch.float64):
    """Children, weight, and the options of `fused`."""
    capsules = draw(batch, children, D, seed=1, dtype=dtype)
    weight = scale * draw(children, J, E, D, seed=2, dtype=dtype)
    options = learned(name, children=children, dtype=dtype)
    if takes(name, "activations"):
        options["activations"] = draw(batch, children, seed=3, dtype=dtype).sigmoid()
    return capsules, weight, options


def drawn(name, **sizes):
    """Votes, and the options that the routing needs beside `iterations`."""
    capsules, weight, options = drawn_capsules(name, **sizes)
    if takes(name, "children"):
        options["children"] = capsules
    return votes_of(capsules, weight), options


def rounds(name, number):
    """`iterations=number` for a routing that has them."""
    return {"iterations": number} if takes(name, "iterations") else {}


def run(name, votes, options, iterations=3, **more):
    return routing.get(name).route(votes, **options, **rounds(name, iterations), **more)


def reordered(values, axis, order):
    """A tensor or a dictionary of them, each axis of that size put in another order."""
    if isinstance(values, dict):
        return {key: reordered(value, axis, order) for key, value in values.items()}
    for dim, size in enumerate(values.shape):
        if size == axis:
            values = values.index_select(dim, torch.tensor(order))
    return values


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def full(value, *shape):
    return torch.full(shape, float(value), dtype=torch.float64)


def by_pair(votes):
    """Votes of one image (I, J, E) as numbers by (child, parent)."""
    return {(i, j): votes[i, j].tolist() for i in range(len(votes)) for j in range(votes.shape[1])}


def as_routing(images):
    """Literal rounds, a list for each image, as a `Routing` of tensors (R, B, ...)."""
    parts = []
    for part in range(4):
        parts.append(torch.stack([torch.stack([_dense(r[part]) for r in each]) for each in images]))
    return Routing(*(part.transpose(0, 1) for part in parts))


def _dense(numbers):
    keys = sorted(numbers)
    values = torch.tensor([numbers[key] for key in keys], dtype=torch.float64)
    return values.view(1 + keys[-1][0], -1) if isinstance(keys[0], tuple) else values


def equal(actual, expected, tolerance=1e-10):
    """Both routings agree in every tensor of every iteration."""
    for name, a, b in zip(Routing._fields, actual, expected, strict=True):
        torch.testing.assert_close(
            a, b, rtol=tolerance, atol=tolerance, msg=lambda text, name=name: f"{name}: {text}"
        )
