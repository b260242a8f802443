"""The mathematics of capsules as pure tensor functions: squash, lengths, losses, masking.

Shape legend, used everywhere in capsviz
----------------------------------------
B  images in a batch          I  child capsules (primary)     J  parent capsules (classes)
D  dimensions of a child      E  dimensions of a parent       R  routing iterations
C, H, W  channels, height and width of an image

primary (B,I,D) · votes (B,I,J,E) · logits, couplings (B,I,J) · poses (B,J,E) · lengths (B,J) ·
weight (I,J,E,D). Images are float32 in [0, 1].

Equation numbers are those of Sabour, Frosst & Hinton (2017), arXiv:1710.09829.
"""

from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from capsviz.discovery import require_known

Objective = Literal["margin", "spread", "cross_entropy"]  # the file of a routing names its own
OBJECTIVES = get_args(Objective)
Metric = Literal["l1", "l2"]  # of a reconstruction
METRICS = get_args(Metric)
WITH_PROGRESS = ("spread",)  # objectives that grow stricter during training
FIRST_MARGIN, LAST_MARGIN = 0.2, 0.9  # of the spread loss, as in the paper
TINY = 1e-7  # added to activations whose logarithm is taken
EPSILON = 1e-12  # added to squared norms, inside the root: value and gradient are finite at zero


def standardise(images: Tensor) -> Tensor:
    """Return each image (B, C, H, W) minus its mean, divided by its standard deviation.

    As `tf.image.per_image_standardization`: the deviation is at least 1 / sqrt(C H W).
    """
    wide = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
    offset = wide - wide.mean((1, 2, 3), keepdim=True)
    variance = offset.square().mean((1, 2, 3), keepdim=True)
    return (offset * variance.clamp_min(1 / images.shape[1:].numel()).rsqrt()).to(images.dtype)


def squash(x: Tensor, dim: int = -1) -> Tensor:
    """Shrink vectors along `dim` to a length in [0, 1), keeping their direction (eq. 1).

    Zero vectors stay zero, with a zero gradient. Rounding may give very long vectors length 1. The
    squared length must not overflow: in float32, lengths must be below 1e19.
    """
    wide = _wide(x)
    squared = wide.square().sum(dim, keepdim=True)
    return (wide * (squared / (1 + squared) / (squared + EPSILON).sqrt())).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """Return float16 as float32: `EPSILON` and the square of 256 are out of float16's range."""
    return x.float() if x.dtype == torch.float16 else x


def squash_exp(x: Tensor, dim: int = -1) -> Tensor:
    """Shrink vectors to a length 1 - exp(-length), keeping their direction: same shape as `x`.

    The squash of Efficient-CapsNet, arXiv:2101.12491. Short vectors almost keep their length, which
    `squash` squares. The limit on lengths is that of `squash`.
    """
    wide = _wide(x)
    norm = (wide.square().sum(dim, keepdim=True) + EPSILON).sqrt()
    return (wide * (-torch.expm1(-norm) / norm)).to(x.dtype)


def leaky_softmax(logits: Tensor, dim: int) -> Tensor:
    """Return a softmax with one more logit, fixed at zero and dropped, so that sums are below 1.

    This is `_leaky_routing` of the authors' code (Sarasra/models, research/capsules,
    models/layers/layers.py): the "none of the above" category of the paper's section 7.
    """
    leak = torch.zeros_like(logits.narrow(dim, 0, 1))
    return torch.cat((logits, leak), dim).softmax(dim).narrow(dim, 0, logits.shape[dim])


def lengths(poses: Tensor) -> Tensor:
    """Return the length (B, J) of each capsule (B, J, E), with a finite gradient at zero."""
    return (_wide(poses).square().sum(-1) + EPSILON).sqrt().to(poses.dtype)


def margin_loss(
    lengths: Tensor,
    labels: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    down_weight: float = 0.5,
) -> Tensor:
    """Return the margin loss of each image (B,), summed over classes (eq. 4).

    Parameters
    ----------
    lengths      (B, J) in [0, 1): the lengths themselves, not a softmax of them.
    labels       (B,) class numbers, or (B, J) the degree in [0, 1] to which a class is present.
    present      m+, the length that a present class should exceed.
    absent       m-, the length that an absent class should stay below.
    down_weight  lambda, the weight of absent classes.

    Raises
    ------
    ValueError  for labels of another shape (as all losses here).
    """
    target = _presence(labels, lengths)
    missed = target * (present - lengths).clamp_min(0).square()
    false = (1 - target) * (lengths - absent).clamp_min(0).square()
    return (missed + down_weight * false).sum(1)


def spread_loss(activations: Tensor, labels: Tensor, *, progress: float | Tensor = 1.0) -> Tensor:
    """Return the spread loss (B,), Σ over absent classes of max(0, m - (a_t - a_j))².

    Equation 3 of Hinton, Sabour & Frosst (2018). The margin m grows from 0.2 to 0.9 with
    `progress`, the share of training that is done (the authors count steps). If several classes are
    present, a_t is the least of their activations. ValueError for labels between 0 and 1, or
    progress outside [0, 1].
    """
    if not isinstance(progress, Tensor) and not 0 <= progress <= 1:  # a tensor would sync the GPU
        raise ValueError(f"expected progress from 0 to 1, got {progress}")
    margin = FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * progress
    present = _presence(labels, activations).bool()
    if labels.is_floating_point() and not (labels == present).all():
        raise ValueError("spread loss: expected labels of 0 and 1, got some between")
    target = activations.masked_fill(~present, 1).amin(1, keepdim=True)
    short = (margin - (target - activations)).clamp_min(0).square()
    return short.masked_fill(present, 0).sum(1)


def cross_entropy(activations: Tensor, labels: Tensor) -> Tensor:
    """Return -ln of the true class's share of all activations (B,).

    For several classes it is their mean, for none 0. Labels between 0 and 1 are the weights of this
    mean (Szegedy et al. 2016, arXiv:1512.00567, eq. 3).
    """
    activations = _wide(activations)
    present = _presence(labels, activations)
    shares, total = (activations + TINY) / (activations + TINY).sum(1, keepdim=True), present.sum(1)
    return -(shares.log() * present).sum(1) / total.where(total > 0, 1)


def objective(name: str, activations: Tensor, labels: Tensor, *, progress=1.0, **margin) -> Tensor:
    """Return the loss (B,) of one of `OBJECTIVES`; `margin` holds options of `margin_loss`.

    ValueError for an unknown name.
    """
    require_known("objective", name, OBJECTIVES)
    if name == "margin":
        return margin_loss(activations, labels, **margin)
    if name == "spread":
        return spread_loss(activations, labels, progress=progress)
    return cross_entropy(activations, labels)


def _presence(labels: Tensor, activations: Tensor) -> Tensor:
    """Return the presence (B, J) of each class from labels as `margin_loss` takes them."""
    B, J = activations.shape
    if labels.shape not in ((B,), (B, J)):
        raise ValueError(
            f"expected labels ({B},), class numbers, or ({B}, {J}), a number for each class, "
            f"got {tuple(labels.shape)}"
        )
    return (multi_hot(labels, J) if labels.dim() == 1 else labels).to(activations.dtype)


def reconstruction_loss(images: Tensor, reconstruction: Tensor, metric: str = "l2") -> Tensor:
    """Return the sum of squared pixel differences of each image (section 4.1), (B,).

    Both inputs are (B, C, H, W). A sum, not a mean: the paper's weight of 0.0005 is for the sum.
    With "l1" it is a sum of absolute differences; a decoder without batch norm may then stay at the
    median pixel, which is black for digits. ValueError for unequal shapes or an unknown metric.
    """
    require_known("metric", metric, METRICS)
    if images.shape != reconstruction.shape:
        raise ValueError(
            f"expected a reconstruction {tuple(images.shape)}, as the images, "
            f"got {tuple(reconstruction.shape)}"
        )
    apart = images - reconstruction
    return (apart.square() if metric == "l2" else apart.abs()).flatten(1).sum(1)


def multi_hot(labels: Tensor, classes: int) -> Tensor:
    """Return zeros and ones (B, J) from class numbers (B,), or (B, K) for K < J classes an image.

    ValueError for other labels, such as one-hot labels, which have J columns.
    """
    several = labels.dim() == 2 and labels.shape[1] < classes
    if labels.dtype != torch.int64 or not (several or labels.dim() == 1):
        raise ValueError(
            f"expected class numbers, int64 (B,), or (B, K) with K below {classes} classes, got "
            f"{labels.dtype} {tuple(labels.shape)}; for one-hot labels pass labels.argmax(1)"
        )
    return one_hot(labels[:, None].flatten(1), classes).amax(1)


def agreement(votes: Tensor, poses: Tensor) -> Tensor:
    """Return û_ij · p_j (..., I, J) of votes (..., I, J, E) and poses (..., J, E)."""
    return torch.einsum("...ije,...je->...ij", votes, poses)


def mask(poses: Tensor, classes: Tensor) -> Tensor:
    """Set all poses (B, J, E) except those of `classes` (B,) to zero: (B, J * E) (section 4.1).

    The pose stays in the slot of its class, so the decoder knows the class.
    """
    keep = one_hot(classes, poses.shape[1]).to(poses.dtype)
    return (poses * keep[:, :, None]).flatten(1)


def predict(lengths: Tensor) -> Tensor:
    """Return the class (B,) of the longest capsule, from lengths (B, J)."""
    return lengths.argmax(1)


def random_couplings(
    shape: tuple[int, int, int], *, generator: torch.Generator | None = None
) -> Tensor:
    """Draw couplings (B, I, J) uniformly from the simplex over parents, as a random control."""
    draws = -torch.rand(shape, generator=generator).clamp_min(1e-20).log()
    return draws / draws.sum(2, keepdim=True)
