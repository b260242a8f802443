"""Rounds of a routing whose parents are Gaussians that explain votes, the votes never held."""

from collections.abc import Callable

from torch import Tensor

from capsviz.nn.links import Links, check_links, of_places, of_slots
from capsviz.nn.routing import Parents, check_iterations
from capsviz.nn.routing._attend import batch_last
from capsviz.nn.routing._competition import Places
from capsviz.nn.routing._even import even_moments
from capsviz.nn.routing._mixture import ALONE, mixture
from capsviz.nn.routing._parts import check_shape, require


def fused_rounds(
    routing: str,
    posterior: Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]],
    children: Tensor,
    weight: Tensor,
    *,
    iterations: int,
    activations: Tensor | None,
    links: Links | None,
) -> Parents:
    """Return the parents after all iterations; with links the result has a Q after B.

    Parameters
    ----------
    routing    its name, for errors.
    posterior  number of the iteration from 0, mass (B, J), mean of the votes and scatter
               Σ_i w (û - mean)² (B, J, E) -> pose and precision (B, J, E), and what the log density
               has beside the distance, and activation (B, J).
    others     as the routing's `fused` takes them.

    Raises
    ------
    ValueError  if shapes do not fit, activations are missing or `iterations` < 1.
    """
    check_iterations(iterations)
    inputs, moments = first_pass(routing, children, weight, activations, links)
    for iteration in range(iterations):
        mean, scatter = moments.about_mean()
        pose, precision, constant, activation = posterior(iteration, moments.mass, mean, scatter)
        if iteration + 1 < iterations:
            u, w, active, competition = inputs
            moments = mixture(u, w, active, pose, precision, constant, competition)
    return of_places(Parents(pose, activation), links)


def first_pass(
    routing: str,
    children: Tensor,
    weight: Tensor,
    activations: Tensor | None,
    links: Links | None = None,
):
    """Return what `mixture` takes of the children, and the moments of uniform couplings.

    Returns
    -------
    (children, weight, activations, competition), and the moments. With links, positions are folded
    into the batch.

    Raises
    ------
    ValueError  in the name of the routing, for activations that are missing or not (B, I).
    """
    active = require(routing, "activations", activations, "(B, I)")
    size, competition = children.shape[:2], ALONE
    if links is not None:
        competition = Places(links)
        children = of_slots(children, links).flatten(0, 1)
    children, weight = batch_last(children, weight)
    check_shape("activations", activations, "B, I", size)
    if links is not None:
        active = of_slots(active, links).flatten(0, 1)
    active = active.to(children).T.contiguous().T  # as every iteration takes them
    inputs = children, weight, active, competition
    return inputs, even_moments(*inputs)


def check_votes(
    routing: str, votes: Tensor, activations: Tensor | None, iterations: int, links: Links | None
) -> Tensor:
    """Return the activations; raise ValueError for what the routing's `route` does not take."""
    check_links(votes, links)
    check_iterations(iterations)
    active = require(routing, "activations", activations, "(B, I)")
    size = votes.shape[-3] if links is None else links.count
    check_shape("activations", active, "B, I", (votes.shape[0], size))
    return active


def check_betas(beta_u: Tensor | None, beta_a: Tensor | None, parents: int) -> None:
    """Raise ValueError for costs of another shape than (J); None passes."""
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        check_shape(name, beta, "J", (parents,))
