"""EM routing: parents are Gaussians that explain votes (Hinton, Sabour & Frosst 2018).

Matrix capsules with EM routing, ICLR 2018, procedure 1. `route` takes votes and returns all
iterations. `fused` computes the same parents without storing the votes (see `_mixture`).
"""

import math
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from capsviz.nn.links import Links, softmax
from capsviz.nn.quantity import Quantity
from capsviz.nn.routing import Parents, Routing, iterate
from capsviz.nn.routing._mixture import check_betas, check_inputs, fused_iterations
from capsviz.nn.routing._parts import exact, per_mass, shares, summed

CHILDREN = "free"  # see nn/children.py
OBJECTIVE = "spread"  # see nn/functional.py
QUANTITY = Quantity(
    r"$-\lambda a_i c_{ij}\,\Sigma_h(\beta_u+\ln\sigma_{jh})$",
    "−λ a c Σ(β_u + ln σ)",
    r"logit of the activation less $\lambda\beta_a$",
    "the logit of the activation less λβ_a, a constant of the parent",
)

FINAL_TEMPERATURE = 0.01
BETA_U = (1 + math.log(2 * math.pi)) / 2  # then the cost of a parent is -Σ_i w_ij ln p_ij
BETA_A = -12.5  # divided by the limit of λ: -2500 in the authors' code, with 0.005
FLOOR = 5e-4  # added to variances as in the authors' code; with one child they are 0

weights = shares


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """Return initial `beta_u` and `beta_a` (J): the cost of describing a child, and of inactivity.

    With the initial `beta_u`, the cost of a parent is -Σ_i w_ij ln p_ij.
    """
    return {"beta_u": torch.full((parents,), BETA_U), "beta_a": torch.zeros(parents)}


def class_parameters(
    parents: int, final_temperature: float, floor: float = FLOOR
) -> dict[str, Tensor]:
    """Return initial `beta_u` and `beta_a` (J) of the class layer, as in the authors' code.

    A parent that explains nothing is inactive: its activation is 0.14 after three iterations. It is
    not 1/2, which a few thousand steps of training would not leave. A parent whose variances all
    equal `floor` is active.
    """
    return {
        "beta_u": torch.full((parents,), 2 * BETA_U + math.log(FLOOR / floor) / 2),
        "beta_a": torch.full((parents,), BETA_A / final_temperature),
    }


@exact
def route(
    votes: Tensor,
    *,
    iterations: int = 3,
    activations: Tensor | None = None,
    beta_u: Tensor | None = None,
    beta_a: Tensor | None = None,
    final_temperature: float = FINAL_TEMPERATURE,
    floor: float = FLOOR,
    links: Links | None = None,
    couplings: Tensor | None = None,
) -> Routing:
    """Couple children to parents by expectation and maximisation.

    With w_ij = a_i c_ij and Σ_i w_ij = m_j, a parent's pose is the mean of its votes, its cost
    m_j Σ_h (beta_u + ln σ_jh) and its activation logistic(λ (beta_a - cost)). A child's couplings
    are a_j p_ij, normalised over *all* parents that see it. λ of iteration t is
    `final_temperature` · (1 - 0.95^t) for any R. Gradients flow through all iterations. Logits are
    ln a_j p_ij, at first zero.

    Parameters
    ----------
    votes, iterations, activations, couplings: as every routing takes them (`capsviz.nn.routing`)
    beta_u, beta_a     (J); None: (1 + ln 2π)/2 and 0.
    final_temperature  limit of λ, an inverse temperature. Costs grow with a parent's mass, like
                       I/J. The authors' 0.01 fits some hundred children per parent. With fewer
                       children, all activations stay near 1/2; J/I is a good choice.
    floor              added to each variance. If parents have few children, it prevents a parent
                       that explains a single child perfectly and then learns nothing. A few times
                       the variance of the first votes is a good choice.
    links              children seen by each of Q positions: votes are (B, Q, I, J, E), results have
                       Q after B; activations (B, count).
    """
    active = check_inputs("EM", votes, activations, iterations, links)
    beta_u, beta_a = betas(beta_u, beta_a, votes)

    def parents(coupling: Tensor, iteration: int):
        mean, variance, mass = maximised(votes, coupling * active[..., None], floor)
        warmth = temperature(iteration, final_temperature)
        score = scored(mass, variance, beta_u, beta_a, warmth)
        return (mean, score.sigmoid()), (mean, variance, score)

    def logits(_, mean: Tensor, variance: Tensor, score: Tensor):
        far = (votes - mean[..., None, :, :]).square() / variance[..., None, :, :]
        return constant(score, variance)[..., None, :] - far.sum(-1) / 2

    shared = partial(softmax, links=links)
    return iterate(votes, iterations, couplings, shares=shared, parents=parents, logits=logits)


@exact
def fused(
    children: Tensor,
    weight: Tensor,
    *,
    iterations: int = 3,
    activations: Tensor | None = None,
    beta_u: Tensor | None = None,
    beta_a: Tensor | None = None,
    final_temperature: float = FINAL_TEMPERATURE,
    floor: float = FLOOR,
    links: Links | None = None,
) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""

    def posterior(iteration: int, mass: Tensor, mean: Tensor, scatter: Tensor):
        variance = per_mass(scatter, mass[..., None]) + floor
        warmth = temperature(iteration, final_temperature)
        score = scored(mass, variance, *betas(beta_u, beta_a, mean), warmth)
        return mean, 1 / variance, constant(score, variance), score.sigmoid()

    return fused_iterations(
        "EM", posterior, children, weight,
        iterations=iterations, activations=activations, links=links,
    )  # fmt: skip


def evidence(
    votes: Tensor,
    routing: Routing,
    activations: Tensor,
    *,
    beta_u: Tensor | None = None,
    beta_a: Tensor | None = None,
    final_temperature: float = FINAL_TEMPERATURE,
    floor: float = FLOOR,
) -> Tensor:
    """Return what each child adds to the logit of its parent's activation: (B, I, J).

    It is -λ w_ij Σ_h (beta_u + ln σ_jh). The sum over children is exactly the logit minus λ beta_a.
    """
    beta_u, _ = betas(beta_u, beta_a, votes)
    mass = routing.couplings[-1] * activations.to(votes)[..., None]
    _, variance, _ = maximised(votes, mass, floor)
    warmth = temperature(len(routing.couplings) - 1, final_temperature)
    saved = variance.shape[-1] * beta_u + variance.log().sum(-1) / 2
    return -warmth * mass * saved[..., None, :]


def temperature(iteration: int, final: float) -> float:
    """Return the inverse temperature λ of an iteration, counted from 0."""
    return final * (1 - 0.95 ** (iteration + 1))


def maximised(votes: Tensor, weights: Tensor, floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean and variance (..., J, E) of votes, and mass (..., J), for weights (..., I, J)."""
    mass = weights.sum(-2)
    share = per_mass(weights, mass[..., None, :])
    mean = summed(share, votes)
    variance = summed(share, (votes - mean[..., None, :, :]).square()) + floor
    return mean, variance, mass


def scored(mass: Tensor, variance: Tensor, beta_u: Tensor, beta_a: Tensor, warmth: float) -> Tensor:
    """Return the logit of the activation (..., J): λ (beta_a - Σ_h cost_h)."""
    cost = mass * (variance.shape[-1] * beta_u + variance.log().sum(-1) / 2)
    return warmth * (beta_a - cost)


def constant(score: Tensor, variance: Tensor) -> Tensor:
    """Return the part of ln a_j p_ij that does not depend on the vote: (..., J)."""
    return logsigmoid(score) - (2 * math.pi * variance).log().sum(-1) / 2


def betas(beta_u: Tensor | None, beta_a: Tensor | None, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return both betas, or the defaults of `route`, in the type of `like` (..., J, E)."""
    check_betas(beta_u, beta_a, like.shape[-2])
    beta_u = like.new_tensor([BETA_U]) if beta_u is None else beta_u.to(like)
    beta_a = like.new_zeros(1) if beta_a is None else beta_a.to(like)
    return beta_u, beta_a
