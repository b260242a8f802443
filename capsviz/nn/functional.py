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
WITH_PROGRESS = ("spread",)  # that grow stricter with the share of training that is done
FIRST_MARGIN, LAST_MARGIN = 0.2, 0.9  # of the spread loss, as in the paper
TINY = 1e-7  # added to activations whose logarithm is taken
EPSILON = 1e-12  # added to squared norms, inside the root: value and gradient are finite at zero


def standardise(images: Tensor) -> Tensor:
    """Each image (B, C, H, W) less its mean, divided by its standard deviation, same shape.

    As `tf.image.per_image_standardization`; the deviation is at least 1 / sqrt(C H W).
    """
    wide = images.float() if images.dtype in (torch.float16, torch.bfloat16) else images
    offset = wide - wide.mean((1, 2, 3), keepdim=True)
    variance = offset.square().mean((1, 2, 3), keepdim=True)
    return (offset * variance.clamp_min(1 / images.shape[1:].numel()).rsqrt()).to(images.dtype)


def squash(x: Tensor, dim: int = -1) -> Tensor:
    """Shrink vectors along `dim` to a length in [0, 1), keeping their direction (eq. 1).

    Zero vectors stay zero, with a zero gradient; rounding may take very long ones to 1. The square
    of a length must be a number of the type: in float32 lengths end at 1e19.
    """
    wide = _wide(x)
    squared = wide.square().sum(dim, keepdim=True)
    return (wide * (squared / (1 + squared) / (squared + EPSILON).sqrt())).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """Half precision, which has neither `EPSILON` nor the square of 256, as float32."""
    return x.float() if x.dtype == torch.float16 else x


def squash_exp(x: Tensor, dim: int = -1) -> Tensor:
    """Shrink vectors to a length 1 - exp(-length), keeping their direction: same shape as `x`.

    The squash of Efficient-CapsNet, arXiv:2101.12491. Short vectors keep their length almost, where
    `squash` squares it. Lengths end as in `squash`.
    """
    wide = _wide(x)
    norm = (wide.square().sum(dim, keepdim=True) + EPSILON).sqrt()
    return (wide * (-torch.expm1(-norm) / norm)).to(x.dtype)


def leaky_softmax(logits: Tensor, dim: int) -> Tensor:
    """Softmax beside one more logit, fixed at zero, whose share leaks away: sums are below 1.

    The authors' `_leaky_routing` (Sarasra/models, research/capsules, models/layers/layers.py): the
    paper's "none of the above" of section 7.
    """
    leak = torch.zeros_like(logits.narrow(dim, 0, 1))
    return torch.cat((logits, leak), dim).softmax(dim).narrow(dim, 0, logits.shape[dim])


def lengths(poses: Tensor) -> Tensor:
    """Euclidean length of each capsule: poses (B, J, E) -> (B, J), finite gradient at zero."""
    return (_wide(poses).square().sum(-1) + EPSILON).sqrt().to(poses.dtype)


def margin_loss(
    lengths: Tensor,
    labels: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    down_weight: float = 0.5,
) -> Tensor:
    """Separate margin loss of each image (B,), summed over classes (eq. 4).

    Parameters
    ----------
    lengths      (B, J) in [0, 1): the lengths themselves, not a softmax of them.
    labels       (B,) class numbers, or (B, J) how much each class is present, from 0 to 1.
    present      m+, the length that a present class should exceed.
    absent       m-, the length that an absent class should stay below.
    down_weight  lambda, the weight of absent classes.

    Raises
    ------
    ValueError  for labels of another shape, as in all losses here.
    """
    target = _present(labels, lengths)
    missed = target * (present - lengths).clamp_min(0).square()
    false = (1 - target) * (lengths - absent).clamp_min(0).square()
    return (missed + down_weight * false).sum(1)


def spread_loss(activations: Tensor, labels: Tensor, *, progress: float | Tensor = 1.0) -> Tensor:
    """Σ over absent classes of max(0, m - (a_t - a_j))² (Hinton, Sabour & Frosst 2018, eq. 3).

    The margin m grows from 0.2 to 0.9 with `progress`, the share of training that is done (the
    authors count steps). Of several present classes the least active one counts. ValueError for
    labels between 0 and 1, or progress that is not from 0 to 1.
    """
    if not isinstance(progress, Tensor) and not 0 <= progress <= 1:  # a GPU would be waited for
        raise ValueError(f"expected progress from 0 to 1, got {progress}")
    margin = FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * progress
    present = _present(labels, activations).bool()
    if labels.is_floating_point() and not (labels == present).all():
        raise ValueError("spread loss: expected labels of 0 and 1, got some between")
    target = activations.masked_fill(~present, 1).amin(1, keepdim=True)
    short = (margin - (target - activations)).clamp_min(0).square()
    return short.masked_fill(present, 0).sum(1)


def cross_entropy(activations: Tensor, labels: Tensor) -> Tensor:
    """-ln of the true class's share of all activations; the mean over several, 0 of none.

    Labels between 0 and 1 are weights of this mean (Szegedy et al. 2016, arXiv:1512.00567, eq. 3).
    """
    activations = _wide(activations)
    present = _present(labels, activations)
    shares, total = (activations + TINY) / (activations + TINY).sum(1, keepdim=True), present.sum(1)
    return -(shares.log() * present).sum(1) / total.where(total > 0, 1)


def objective(name: str, activations: Tensor, labels: Tensor, *, progress=1.0, **margin) -> Tensor:
    """The loss of one of `OBJECTIVES` (B,); `margin` as `margin_loss` takes it.

    ValueError for another name.
    """
    require_known("objective", name, OBJECTIVES)
    if name == "margin":
        return margin_loss(activations, labels, **margin)
    if name == "spread":
        return spread_loss(activations, labels, progress=progress)
    return cross_entropy(activations, labels)


def _present(labels: Tensor, activations: Tensor) -> Tensor:
    """How much each class is present (B, J), of labels as `margin_loss` takes them."""
    B, J = activations.shape
    if labels.shape not in ((B,), (B, J)):
        raise ValueError(
            f"expected labels ({B},), class numbers, or ({B}, {J}), a number for each class, "
            f"got {tuple(labels.shape)}"
        )
    return (multi_hot(labels, J) if labels.dim() == 1 else labels).to(activations.dtype)


def reconstruction_loss(images: Tensor, reconstruction: Tensor, metric: str = "l2") -> Tensor:
    """Sum of squared pixel differences of each image (section 4.1): (B,C,H,W) twice -> (B,).

    A sum, not a mean: the paper's weight of 0.0005 belongs to the sum. By "l1" it is of absolute
    differences; a decoder without batch norm can stay at the median, which is black in digits.
    ValueError for unequal shapes, or another metric.
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
    """Class numbers (B,), or (B, K) of several in one image, K < J, -> zeros and ones (B, J).

    ValueError for others, such as one-hot ones, which are of J columns.
    """
    several = labels.dim() == 2 and labels.shape[1] < classes
    if labels.dtype != torch.int64 or not (several or labels.dim() == 1):
        raise ValueError(
            f"expected class numbers, int64 (B,), or (B, K) with K below {classes} classes, got "
            f"{labels.dtype} {tuple(labels.shape)}: of one-hot labels give labels.argmax(1)"
        )
    return one_hot(labels[:, None].flatten(1), classes).amax(1)


def agreement(votes: Tensor, poses: Tensor) -> Tensor:
    """û_ij · p_j: votes (..., I, J, E) and poses (..., J, E) -> (..., I, J)."""
    return torch.einsum("...ije,...je->...ij", votes, poses)


def mask(poses: Tensor, classes: Tensor) -> Tensor:
    """Zero all poses (B, J, E) but those of `classes` (B,): (B, J * E) for a decoder (section 4.1).

    The kept pose stays in the slot of its class, so the decoder knows the class.
    """
    keep = one_hot(classes, poses.shape[1]).to(poses.dtype)
    return (poses * keep[:, :, None]).flatten(1)


def predict(lengths: Tensor) -> Tensor:
    """The class of the longest capsule: lengths (B, J) -> (B,)."""
    return lengths.argmax(1)


def random_couplings(
    shape: tuple[int, int, int], *, generator: torch.Generator | None = None
) -> Tensor:
    """Couplings (B, I, J) drawn uniformly from the simplex over parents: the random control."""
    draws = -torch.rand(shape, generator=generator).clamp_min(1e-20).log()
    return draws / draws.sum(2, keepdim=True)
