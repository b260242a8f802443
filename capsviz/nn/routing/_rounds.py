"""Iterations of couplings and parents on votes that exist."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from capsviz.nn.routing import Routing, like_logits, of_round, stack


def iterate(
    votes: Tensor,
    iterations: int,
    couplings: Tensor | Sequence[Tensor | None] | None,
    *,
    shares: Callable[[Tensor], Tensor],
    parents: Callable[[Tensor, int], tuple[Sequence[Tensor], Sequence[Tensor]]],
    logits: Callable[..., Tensor],
) -> Routing:
    """Iterate: couplings of the logits, at first zero; parents of these; new logits of the parents.

    Parameters
    ----------
    votes, iterations
             as a routing's `route` takes them.
    couplings
             (B, I, J), or a shape that broadcasts to it, for every iteration; or a list of one
             for each, None where the logits' shares are its couplings.
    shares   (..., I, J) of logits -> couplings.
    parents  of the couplings and the number of the iteration, from 0: their poses and activations
             (without, these are lengths), and what `logits` reads of them.
    logits   those of an iteration, and what it needs of the parents -> those of the next.
    """
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
