"""Routings: each file here is one way to couple child capsules to parents.

A routing offers
    route(votes (B,I,J,E), *, couplings=None, ...) -> Routing
and may offer
    fused(children (B,I,D), weight (I,J,E,D), *, ...) -> Parents
                        the same result without storing the votes
    parameters(children, parents, child_dimensions, parent_dimensions) -> {name: Tensor}
                        initial values of its learned parameters
    weights(couplings, activations) -> (..., I, J)
                        the share of each vote in its parent's pose; default: the couplings
    evidence(votes, routing, activations, **parameters) -> (B, I, J)
                        what each vote adds to the quantity that decides the parent's activation,
                        described by QUANTITY; default: `weights` times the component of the vote
                        along the parent's pose

A vote is the prediction of child i for parent j. `couplings` (B, I, J), or a shape that broadcasts
to it, replace the routing's own in every iteration; logits are still recorded. A routing that
iterates also takes a list with one entry per iteration, in which None keeps its own couplings.
`route` raises ValueError for shapes that do not fit, missing inputs and fewer than one iteration.

The signatures of `route` and `fused` say what else a routing needs: `iterations` (if missing, there
is one pass), `activations` (B, I) of the children in [0, 1], `children` (B, I, D) themselves, its
`parameters`, and the options `bias`, `detach` and `leaky`. The range of activations is not checked,
because that would wait for the GPU.

CHILDREN names the layer that makes primary capsules (`nn.children`; default "squash"), OBJECTIVE
the loss (`nn.functional`; default "margin"). PARENTS = "batch_norm" adds batch norm of the class
capsules (`nn.capsule_layer`). PECULIAR = {"sums": why} says that couplings need not sum to 1 over
parents; other keys excuse other tests of `tracing.verification`.

To add a routing, add a file; its name is a value of `--routing`. The law tests find it
automatically, and need plain loops of the same name in tests/helpers/literal_routing.py.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz import discovery
from capsviz.discovery import load, names
from capsviz.nn import children, functional
from capsviz.nn.functional import lengths
from capsviz.nn.quantity import ALONG_POSE, Quantity
from capsviz.nn.routing._parts import check_shape as check_shape
from capsviz.nn.routing._parts import exact as exact
from capsviz.nn.routing._parts import workspace_bytes as workspace_bytes

PACKAGE = "capsviz.nn.routing"
ITERATIONS = 3  # the paper's
OVER_PARENTS = partial(torch.softmax, dim=-1)  # couplings of logits (..., I, J)
NAMES = {"CHILDREN": children.KINDS, "OBJECTIVE": functional.OBJECTIVES, "PARENTS": ("batch_norm",)}


class Routing(NamedTuple):
    """All iterations of a routing; index -1 is the result."""

    logits: Tensor  # (R, B, I, J) b_ij, before the iteration's softmax
    couplings: Tensor  # (R, B, I, J) c_ij; sum to 1 over J, or less if leaky; any sum in max_min
    poses: Tensor  # (R, B, J, E) v_j, after the iteration
    activations: Tensor  # (R, B, J) in [0, 1]: presence of a parent, e.g. its length


class Parents(NamedTuple):
    """The result of a routing."""

    poses: Tensor  # (B, J, E)
    activations: Tensor  # (B, J) in [0, 1]


def available() -> list[str]:
    """Return the names of the routings."""
    return names(PACKAGE)


@cache
def get(name: str) -> ModuleType:
    """Return the module of a routing; ValueError for an unknown or invalid one."""
    module = load(PACKAGE, name, what="routing")
    if "couplings" not in discovery.parameters(getattr(module, "route", None)):
        raise ValueError(
            f"the routing '{name}' of {module.__file__} has no function "
            "route(votes, *, couplings=None, ...)"
        )
    for constant, known in NAMES.items():
        value = getattr(module, constant, known[0])
        if value not in known:
            words = discovery.unknown(constant, str(value), list(known))
            raise ValueError(f"the routing '{name}' of {module.__file__}: {words}")
    return module


def quantity(name: str) -> Quantity:
    """Return the description of a routing's evidence."""
    return getattr(get(name), "QUANTITY", ALONG_POSE)


def norms_parents(name: str) -> bool:
    """Return whether a routing needs batch norm of its class capsules."""
    return getattr(get(name), "PARENTS", None) == "batch_norm"


def stack(history: Sequence[tuple[Tensor, ...]]) -> Routing:
    """Stack one (logits, couplings, poses[, activations]) per iteration along a new first axis.

    Missing activations are the lengths of the poses.
    """
    columns = list(zip(*history, strict=True))
    # separate lines: `wrap` and the checks identify tensors by the line that makes them
    logits = torch.stack(columns[0])
    couplings = torch.stack(columns[1])
    poses = torch.stack(columns[2])
    activations = torch.stack(columns[3]) if len(columns) > 3 else lengths(poses)
    return Routing(logits, couplings, poses, activations)


def check_votes(votes: Tensor, iterations: int) -> None:
    """Raise ValueError for votes that are not (B, I, J, E) or fewer than one iteration."""
    if votes.dim() != 4:
        raise ValueError(f"votes must be (B, I, J, E), got the shape {tuple(votes.shape)}")
    check_iterations(iterations)


def rounds(name: str, iterations: int | None) -> int:
    """Return the number of iterations; for None 3, or 1 if the routing does not iterate."""
    several = "iterations" in discovery.parameters(get(name).route)
    if iterations is None:
        return ITERATIONS if several else 1
    check_iterations(iterations)
    if iterations > 1 and not several:
        raise ValueError(
            f"the routing '{name}' does not iterate, got {iterations} iterations: use 1"
        )
    return iterations


def check_iterations(iterations: int) -> None:
    """Raise ValueError for fewer than one iteration."""
    if iterations < 1:
        raise ValueError(f"routing iterations must be at least 1, got {iterations}")


def like_logits(couplings: Tensor, logits: Tensor) -> Tensor:
    """Return couplings in the shape and type of the logits (..., I, J)."""
    try:
        return couplings.to(logits).expand(logits.shape)
    except RuntimeError as error:
        raise ValueError(
            f"couplings must be {tuple(logits.shape)}, or a shape that broadcasts to it, got "
            f"{tuple(couplings.shape)}"
        ) from error


def of_round(couplings: Tensor | Sequence[Tensor | None] | None, iteration: int) -> Tensor | None:
    """Return the replacement couplings of an iteration, counted from 0, or None."""
    return couplings if isinstance(couplings, Tensor | None) else couplings[iteration]


def require_each(couplings: Tensor | Sequence[Tensor | None] | None, iterations: int) -> None:
    """Raise ValueError for a list of couplings that is not one for each iteration."""
    if isinstance(couplings, list | tuple) and len(couplings) != iterations:
        raise ValueError(
            f"expected a list of couplings for {iterations} iterations, got {len(couplings)}"
        )


def iterate(
    votes: Tensor,
    iterations: int,
    couplings: Tensor | Sequence[Tensor | None] | None,
    *,
    parents: Callable[[Tensor, int], tuple[Sequence[Tensor], Sequence[Tensor]]],
    logits: Callable[..., Tensor],
    shares: Callable[[Tensor], Tensor] = OVER_PARENTS,
) -> Routing:
    """Iterate a routing: couplings from logits, parents from couplings, new logits from parents.

    Logits start at zero.

    Parameters
    ----------
    votes, iterations, couplings
             as a routing's `route` takes them.
    parents  (couplings, iteration from 0) -> (poses[, activations]), state. Missing activations are
             the lengths of the poses.
    logits   (logits, *state) -> logits of the next iteration.
    shares   logits (..., I, J) -> couplings; default: the softmax over parents.
    """
    require_each(couplings, iterations)
    current = torch.zeros_like(votes[..., 0])
    history = []
    for iteration in range(iterations):
        replaced = of_round(couplings, iteration)
        coupling = shares(current) if replaced is None else like_logits(replaced, current)
        outcome, state = parents(coupling, iteration)
        history.append((current, coupling, *outcome))
        if iteration + 1 < iterations:
            current = logits(current, *state)
    return stack(history)
