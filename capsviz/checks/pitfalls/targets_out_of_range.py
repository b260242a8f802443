"""Reconstruction targets lie outside of the range of the decoder."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§4.1: the decoder ends in a sigmoid, and pixels are intensities",
    breaks="a sigmoid cannot reach targets of -0.42 to 2.82: the decoder learns black",
    fix="reconstruct the image in [0, 1]; normalise only inside of the network",
    needs="`train_data`, and a decoder",
)
SLACK = 1e-3


def examine(candidate: Candidate) -> Judgement:
    """Compare training images with reconstructions of very large poses."""
    targets = candidate.pictures("train_data", 64).cpu().double()
    low, high = float(targets.min()), float(targets.max())
    poses = candidate.poses(candidate.images(7))
    classes = torch.arange(len(poses), device=poses.device) % candidate.classes
    drawn = candidate.decode(1e4 * poses, classes)
    message = f"targets are {low:.2f} to {high:.2f}"
    if float(drawn.min()) < -SLACK or float(drawn.max()) > 1 + SLACK:
        return warns(f"{message}; reconstructions are not limited to [0, 1]")
    if high > 1.5 and low >= 0 and float(targets.frac().abs().max()) == 0:
        raise SkippedError(
            f"training images are bytes, {low:.0f} to {high:.0f}: give them as the loss gets them"
        )
    out = float(((targets < -SLACK) | (targets > 1 + SLACK)).double().mean())
    message += ", reconstructions lie in [0, 1]"
    numbers = {"lowest": low, "highest": high, "out_of_reach": out}
    if out:
        return fails(f"{message}: {out:.0%} of the pixels cannot be reached", **numbers)
    return passes(message, **numbers)
