"""Losses of the activations of class capsules: margin, spread and cross entropy.

The file of a routing names its own as OBJECTIVE. All take activations (B, J) in
[0, 1] and labels (B,), or zeros and ones (B, J) where several classes are present, and return (B,).
"""

from torch import Tensor

from capsviz.discovery import unknown
from capsviz.nn.functional import margin_loss, multi_hot

FIRST_MARGIN, LAST_MARGIN = 0.2, 0.9  # of the spread loss, as in the paper
TINY = 1e-7
NAMES = ("margin", "spread", "cross_entropy")
WITH_PROGRESS = ("spread",)  # that grow stricter with the share of training that is done


def spread_loss(activations: Tensor, labels: Tensor, *, progress: float = 1.0) -> Tensor:
    """Σ over absent classes of max(0, m - (a_t - a_j))² (Hinton, Sabour & Frosst 2018, eq. 3).

    The margin m grows from 0.2 to 0.9 with `progress`, the share of training that is done (the
    authors count steps). Of several present classes the least active one counts.
    """
    margin = FIRST_MARGIN + (LAST_MARGIN - FIRST_MARGIN) * progress
    present = _present(activations, labels)
    target = activations.masked_fill(~present, 1).amin(1, keepdim=True)
    short = (margin - (target - activations)).clamp_min(0).square()
    return short.masked_fill(present, 0).sum(1)


def cross_entropy(activations: Tensor, labels: Tensor) -> Tensor:
    """-ln of the true class's share of all activations; the mean over several, 0 of none."""
    present = _present(activations, labels)
    shares = (activations + TINY) / (activations + TINY).sum(1, keepdim=True)
    return -(shares.log() * present).sum(1) / present.sum(1).clamp_min(1)


def of(name: str, activations: Tensor, labels: Tensor, *, progress=1.0, **margin) -> Tensor:
    """The loss of a name (B,); `margin` as `margin_loss` takes it; ValueError for no such name."""
    if name == "margin":
        return margin_loss(activations, labels, **margin)
    if name == "spread":
        return spread_loss(activations, labels, progress=progress)
    if name == "cross_entropy":
        return cross_entropy(activations, labels)
    raise ValueError(unknown("objective", name, list(NAMES)))


def _present(activations: Tensor, labels: Tensor) -> Tensor:
    zeros_and_ones = multi_hot(labels, activations.shape[1]) if labels.dim() == 1 else labels
    return zeros_and_ones.bool()
