"""All primary capsules share one matrix for each class capsule."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.primary import noise
from capsviz.checks.verdict import About, Judgement, SkippedError, passes, warns

ABOUT = About(
    paper="§2, equation 2: û_j|i = W_ij u_i",
    breaks="a part predicts the same whole wherever it is, so that votes hold no arrangement",
    fix="learn a matrix for each primary capsule, `weight` (I, J, E, D), or at least for each type",
)
CLOSE = 1e-3


def examine(candidate: Candidate) -> Judgement:
    """Fit the matrix of each primary capsule to votes for random features."""
    layer = candidate.capsules
    count = 2 * layer.look(candidate.images(2), "primary")["primary"].shape[2] + 3
    _, readings = candidate.caller.changed(
        candidate.lower.features, noise(seed=8), candidate.images(count),
        layer.taps("primary", "votes"),
    )  # fmt: skip
    capsules = readings["primary"][-1].cpu().double()  # (B, I, D)
    votes = readings["votes"][-1].cpu().double().flatten(2).movedim(1, 0)  # (I, B, J * E)
    if capsules.shape[1] < 2:
        raise SkippedError("the network has one primary capsule")
    ones = torch.ones_like(capsules[..., :1])
    given = torch.cat([capsules, ones], 2).movedim(1, 0)  # (I, B, D + 1), for a bias
    matrices = torch.linalg.lstsq(given, votes).solution
    if not float((given @ matrices - votes).norm() / votes.norm()) < CLOSE:
        raise SkippedError("votes are not linear in the primary capsules")
    matrices = matrices[:, :-1]
    spread = float((matrices - matrices.mean(0)).norm() / matrices.norm())
    message = f"matrices differ by {spread:.1%} of their size between primary capsules"
    if spread < CLOSE:
        return warns(f"{message}: they share one", spread=spread)
    return passes(message, spread=spread)
