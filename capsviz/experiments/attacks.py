"""Attacks on a capsule network, and on the detection of attacks: FGSM, PGD, R-PGD.

All are white-box attacks within an L-infinity ball, with pixels in [0, 1]. Networks are used
through `look` (see `capsviz.tracing`) with gradients of the image, never of the weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from capsviz.discovery import needs
from capsviz.nn.functional import predict
from capsviz.nn.images import check_images, like_of
from capsviz.tracing import evaluating
from capsviz.tracing.outputs import activations_and_distance, require_capsules
from capsviz.tracing.record import last_activations

REACH = 2.5  # times eps: the total length of PGD's steps (Madry et al. 2018)


@contextmanager
def frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Set evaluation mode with gradients of images, not of weights; restore all, also on errors."""
    learning = [weight for weight in model.parameters() if weight.requires_grad]
    model.requires_grad_(False)
    try:
        with evaluating(model), torch.enable_grad():
            yield model
    finally:
        for weight in learning:
            weight.requires_grad_(True)


def check(eps: Sequence[float], steps: int) -> None:
    """Refuse impossible attacks before anything is computed; ImportError without foolbox.

    ValueError for no eps, equal ones (in six digits), one outside (0, 1], or less than 1 step.
    """
    if not eps or len({f"{one:g}" for one in eps}) < len(eps):  # their names
        raise ValueError(f"expected one eps or several different ones, got {list(eps)}")
    for one in eps:
        _check(one, steps)
    _foolbox()


def fgsm(model: nn.Module, images: Tensor, labels: Tensor, *, eps: float) -> Tensor:
    """Attack by one step of eps along the sign of the gradient (Goodfellow et al. 2015).

    Foolbox takes the lengths of the class capsules as logits. Return attacked images (N, C, H, W)
    in [0, 1], which differ by `eps` at most, from images in [0, 1] and true classes (N,). Raises as
    `check`.
    """
    return _attack(_foolbox().attacks.LinfFastGradientAttack(), model, images, labels, eps)


def noise(shape: Sequence[int], seed: int = 0) -> Tensor:
    """Return random starts for images of a shape (N, C, H, W): uniform in [-1, 1], on the CPU."""
    return 2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)) - 1


def pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    steps: int = 40,
    start: Tensor | None = None,
) -> Tensor:
    """Attack by projected gradient descent (Madry et al. 2018) from a random start, by foolbox.

    As `fgsm`; each step is 2.5 eps / `steps`. Images start at a distance of eps * `start`,
    (N, C, H, W) in [-1, 1]; None: the `noise` of seed 0. To attack a batch in parts, give each its
    part of one noise.
    """
    _check(eps, steps)
    start = noise(images.shape) if start is None else start

    projected: Any = _foolbox().attacks.LinfProjectedGradientDescentAttack

    class FromNoise(projected):
        """PGD from a given start, without the global random state."""

        def get_random_start(self, x0, epsilon):
            """Return a start within the ball around x0, the same on every device."""
            return x0 + epsilon * type(x0)(start.to(x0.raw))

    attack = FromNoise(rel_stepsize=REACH / steps, steps=steps)
    return _attack(attack, model, images, labels, eps)


def reconstructive_pgd(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    eps: float,
    steps: int = 40,
    start: Tensor | None = None,
) -> Tensor:
    """Attack classification and detection: be misclassified, yet close to the reconstruction.

    The two objectives are those of R-PGD (Qin et al. 2020, arXiv:1907.02957), the schedule is not.
    By the sign of the gradient, within the ball of eps, an image raises its cross-entropy while it
    is classified correctly, and reduces the distance to the winning capsule's reconstruction while
    it is misclassified. In trials this left more images undetected than alternating steps. Step
    sizes fall linearly from twice PGD's; their sum is (`steps` + 1) / `steps` times PGD's. Of all
    images on the way, the misclassified one with the smallest distance is returned, or else the
    last one.

    As `pgd`, without foolbox; ValueError also for a network without decoder.
    """
    _check(eps, steps)
    _check_images(images, labels)
    start = noise(images.shape) if start is None else start
    with frozen(model):
        like = like_of(model)
        original, truth = images.to(like), labels.to(like.device)

        def moved(x, by):
            return (original + (x + by - original).clamp(-eps, eps)).clamp(0, 1)

        x = moved(original, eps * start.to(like))
        best = torch.empty_like(x)
        nearest = x.new_full((len(x),), torch.inf)
        for step in range(steps + 1):  # the last one looks and does not move
            x = x.detach().requires_grad_()
            lengths, far = activations_and_distance(model, x)
            fooled = predict(lengths) != truth
            better = fooled & (far < nearest)
            nearest[better], best[better] = far.detach()[better], x.detach()[better]
            if step < steps:
                fooling = cross_entropy(lengths, truth, reduction="none")
                (gradient,) = torch.autograd.grad(torch.where(fooled, -far, fooling).sum(), x)
                size = 2 * REACH * eps / steps * (1 - step / steps)
                x = moved(x.detach(), size * gradient.sign())
        never = nearest.isinf()
        best[never] = x.detach()[never]
        return best.to(images)


class _Lengths(nn.Module):
    """A capsule network as foolbox takes one: images -> logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Lengths (N, J) of images (N, C, H, W)."""
        lengths = last_activations(self.model.look(images, keep=("lengths",)))
        assert lengths is not None  # `trace` has seen to it
        return lengths


def _attack(attack, model, images, labels, eps) -> Tensor:
    _check(eps)
    _check_images(images, labels)
    require_capsules(model)
    like = like_of(model)
    with frozen(model):
        scores = _Lengths(model).eval()
        attackable = _foolbox().PyTorchModel(scores, bounds=(0, 1), device=like.device)
        _, attacked, _ = attack(attackable, images.to(like), labels.to(like.device), epsilons=eps)
    return attacked.detach().to(images)


def _check(eps: float, steps: int = 1) -> None:
    if not 0 < eps <= 1:
        raise ValueError(f"eps bounds the change of a pixel: expected 0 < eps <= 1, got {eps:g}")
    if steps < 1:
        raise ValueError(f"an attack needs at least 1 step, got {steps}")


def _check_images(images: Tensor, labels: Tensor) -> None:
    check_images(images)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"expected labels ({len(images)},), got {tuple(labels.shape)}")


def _foolbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of scipy, about foolbox
        try:
            import foolbox
        except ModuleNotFoundError as error:
            raise ImportError(needs("an attack", "foolbox")) from error
    return foolbox
