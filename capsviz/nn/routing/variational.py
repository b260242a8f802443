"""Variational Bayes routing: EM with a prior on each parent (Ribeiro, Leontidis & Kollias 2020).

Capsule Routing via Variational Bayes, AAAI 2020, arXiv:1905.11455. The prior keeps a parent with
few children from shrinking onto them. The authors' batch norms, of poses and of the activations'
logits, are part of the layer. `fused` computes the result of `route` without storing the votes (see
`_mixture`).
"""

import math
from functools import partial

import torch
from torch import Tensor

from capsviz.nn.links import Links, softmax
from capsviz.nn.quantity import Quantity
from capsviz.nn.routing import Parents, Routing, iterate
from capsviz.nn.routing._mixture import check_betas, check_inputs, fused_iterations
from capsviz.nn.routing._parts import exact, per_mass, shares, summed

CHILDREN = "batch_norm"  # see nn/children.py
OBJECTIVE = "cross_entropy"  # see nn/functional.py
PARENTS = "batch_norm"  # see nn/capsule_layer.py
QUANTITY = Quantity(
    r"$-a_i c_{ij}/m_j\,\exp(E\ln\pi_j)H_j$",
    "−(a c / Σ a c) exp(E ln π) H",
    "logit of the activation less a constant, divided by mass",
    "the logit of the activation less a constant of the parent, divided among its children by "
    "their mass, for an entropy is not a sum over children",
)

weights = shares  # in the mean of the votes; the pose is the mean times m_j / (m_j + 1)


def parameters(
    children: int, parents: int, child_dimensions: int, parent_dimensions: int
) -> dict[str, Tensor]:
    """Return initial `beta_u` and `beta_a` (J), zero."""
    return {"beta_u": torch.zeros(parents), "beta_a": torch.zeros(parents)}


@exact
def route(
    votes: Tensor,
    *,
    iterations: int = 3,
    activations: Tensor | None = None,
    beta_u: Tensor | None = None,
    beta_a: Tensor | None = None,
    links: Links | None = None,
    couplings: Tensor | None = None,
) -> Routing:
    """Couple children to parents by variational inference of a mixture of Gaussians.

    The priors are a Dirichlet of 1 on proportions, a mean of 0 with the weight of one child, and a
    Wishart with scale 1 and E + 1 degrees of freedom on a diagonal precision. A parent's activation
    is logistic(beta_a - (exp(E ln π_j) H_j + beta_u)), with the entropy H_j of its Gaussian. Logits
    are expected log densities, at first zero; poses are the posterior means.

    Parameters
    ----------
    votes, iterations, activations, couplings: as every routing takes them (`capsviz.nn.routing`)
    beta_u, beta_a  (J); None for zeros.
    links           children seen by each of Q positions: votes are (B, Q, I, J, E), results have Q
                    after B; activations (B, count). Each position has its own proportions.
    """
    active = check_inputs("variational", votes, activations, iterations, links)

    def parents(coupling: Tensor, iteration: int):
        mass = coupling * active[..., None]
        total = mass.sum(-2)
        mean = summed(per_mass(mass, total[..., None, :]), votes)
        scatter = summed(mass, (votes - mean[..., None, :, :]).square())
        pose, *density, score = posterior(total, mean, scatter, beta_u, beta_a)
        return (pose, score.sigmoid()), (pose, *density)

    def logits(_, pose: Tensor, precision: Tensor, constant: Tensor):
        far = precision[..., None, :, :] * (votes - pose[..., None, :, :]).square()
        return constant[..., None, :] - far.sum(-1) / 2

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
    links: Links | None = None,
) -> Parents:
    """Return the result of `route` for the votes `weight @ children`."""

    def inferred(iteration: int, mass: Tensor, mean: Tensor, scatter: Tensor):
        *posed, score = posterior(mass, mean, scatter, beta_u, beta_a)
        return *posed, score.sigmoid()

    return fused_iterations(
        "variational", inferred, children, weight,
        iterations=iterations, activations=activations, links=links,
    )  # fmt: skip


def evidence(votes: Tensor, routing: Routing, activations: Tensor) -> Tensor:
    """Return the logit of a parent's activation, divided among children by mass: (B, I, J).

    The sum over children is exactly the logit minus (beta_a - beta_u). It is divided by the shares
    of the parent's mass because the entropy of a posterior is not a sum over children.
    """
    mass = routing.couplings[-1] * activations.to(votes)[..., None]
    total = mass.sum(-2)
    share = per_mass(mass, total[..., None, :])
    mean = summed(share, votes)
    scatter = summed(mass, (votes - mean[..., None, :, :]).square())
    return share * posterior(total, mean, scatter, None, None)[3][..., None, :]


def posterior(
    mass: Tensor, mean: Tensor, scatter: Tensor, beta_u: Tensor | None, beta_a: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the posterior of each parent.

    From mass (..., J), mean of the votes (..., J, E) and their scatter Σ_i w (û - mean)², return
    pose and expected precision (..., J, E), the constant of the log density (..., J), and the logit
    of the activation (..., J).
    """
    E = mean.shape[-1]
    check_betas(beta_u, beta_a, mass.shape[-1])
    kappa, nu = 1 + mass, E + 1 + mass  # weight of the mean, degrees of freedom
    pose = mean * (mass / kappa)[..., None]
    scale = 1 + scatter + (mass / kappa)[..., None] * mean.square()  # diagonal of Ψ⁻¹
    proportion = (1 + mass).digamma() - (1 + mass).sum(-1, keepdim=True).digamma()  # E ln π
    freedom = (nu[..., None] - torch.arange(E, device=nu.device)) / 2
    determinant = freedom.digamma().sum(-1) + E * math.log(2) - scale.log().sum(-1)  # E ln|Λ|
    entropy = E / 2 * math.log(2 * math.pi * math.e) - determinant / 2
    score = -proportion.exp() * entropy
    score = score if beta_u is None else score - beta_u.to(score)
    score = score if beta_a is None else score + beta_a.to(score)
    constant = proportion + determinant / 2 - E * math.log(2 * math.pi) / 2 - E / kappa / 2
    return pose, nu[..., None] / scale, constant, score
