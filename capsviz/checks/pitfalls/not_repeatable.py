"""Two calls with the same images in evaluation mode give different results."""

import torch

from capsviz.checks.calling import SINGLE
from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.wrapping.environment import draws
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="§5: one accuracy for one network",
    breaks="no measurement of the network can be repeated; all other checks are upset",
    fix="use dropout, noise and random masks only if `self.training`, and call `eval()` at test",
    after=("nan_output",),
)
NEW_LOGITS = "create logits, zeros for each image, in `forward`: no call may change the next one"


def examine(candidate: Candidate) -> Judgement:
    """Compare the outputs for the same images from one random state, and from two."""
    kept, limit = candidate.caller.in_double(
        lambda network, dtype: _off(candidate, (0, 0), network, dtype)
    )
    if not kept <= limit:  # NaN too
        return fails(
            f"two calls from one random state differ by {kept:.2g}, expected 0: the network keeps "
            "something between calls", difference=kept,
        )._replace(fix=NEW_LOGITS)  # fmt: skip
    off = _off(candidate, (0, 1))
    if off == float("inf"):
        return fails("two calls return tensors of different shapes", difference=off)
    if not off <= SINGLE:
        return fails(
            f"two calls with the same images differ by {off:.2g}, expected 0", difference=off
        )
    return passes(f"two calls differ by {off:.1g}", difference=off)


def _off(candidate: Candidate, seeds, network=None, dtype=torch.float32) -> float:
    """How far two outputs are apart, each from its random state; infinite for other shapes."""
    images = candidate.images(5).to(dtype)
    outputs = []
    for seed in seeds:
        with draws(seed, images.device):
            outputs.append(tensors(candidate.call(images, network)))
    first, second = outputs
    if [t.shape for t in first] != [t.shape for t in second]:
        return float("inf")
    changes = [
        (a.cpu().double() - b.cpu().double()).abs().max()
        for a, b in zip(first, second, strict=True)
        if a.numel()
    ]
    return float(torch.stack(changes).max()) if changes else 0.0
