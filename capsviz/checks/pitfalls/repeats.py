"""Two calls in evaluation mode agree."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.precision import SINGLE, in_double
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.wrapping.environment import draws
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="§5: one accuracy for one network",
    seen="the same images twice in evaluation mode, from one random state in float64, and from two",
    breaks="no number that is measured of it can be measured again; all other checks are upset",
    mend="leave dropout, noise and random masks to `self.training`, and call `eval()` at test",
    after=("finite",),
)
KEPT = (
    "logits are made new, zeros for each image, in `forward`: no call changes what the next reads"
)


def examine(candidate: Candidate) -> Judgement:
    """Compare all tensors of two outputs."""
    kept, limit = in_double(
        candidate.network, lambda network, dtype: _off(candidate, (0, 0), network, dtype)
    )
    if not kept <= limit:  # NaN too
        sentence = f"from one random state two calls differ by {kept:.2g}: something is kept"
        return fails(f"{sentence} between them", difference=kept)._replace(mend=KEPT)
    off = _off(candidate, (0, 1))
    if off == float("inf"):
        return fails("two calls return tensors of different shapes", difference=off)
    if not off <= SINGLE:
        return fails(f"two calls with the same images differ by {off:.2g}", difference=off)
    return passes(f"two calls differ by {off:.1g}", difference=off)


def _off(candidate: Candidate, seeds, network=None, dtype=torch.float32) -> float:
    """How far two outputs lie apart, each from its random state; infinite for other shapes."""
    images = candidate.images(5).to(dtype)
    outputs = []
    for seed in seeds:
        with draws(seed, images.device):
            outputs.append(tensors(candidate.call(images, network)))
    first, second = outputs
    if [t.shape for t in first] != [t.shape for t in second]:
        return float("inf")
    changes = [
        (a.double() - b.double()).abs().max()
        for a, b in zip(first, second, strict=True)
        if a.numel()
    ]
    return float(torch.stack(changes).max()) if changes else 0.0
