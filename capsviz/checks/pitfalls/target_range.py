"""Targets and reconstructions share a range."""

import torch

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§4.1: the decoder ends in a sigmoid, and pixels are intensities",
    seen="training images against what the decoder gives for very large poses",
    breaks="targets of -0.42 to 2.82 cannot be drawn by a sigmoid: the decoder learns black",
    mend="reconstruct the image in [0, 1]; normalise inside of the network only",
    needs="`train_data`, and a decoder",
    pitfalls=(11,),
)
SLACK = 1e-3


def examine(candidate: Candidate) -> Judgement:
    """Share of the training pixels that no reconstruction reaches."""
    targets = candidate.pictures("train_data", 64).double()
    low, high = float(targets.min()), float(targets.max())
    poses = candidate.poses(candidate.images(7))
    classes = torch.arange(len(poses), device=poses.device) % candidate.classes
    drawn = candidate.decode(1e4 * poses, classes)
    reach = float(drawn.min()), float(drawn.max())
    if reach[0] < -SLACK or reach[1] > 1 + SLACK:
        return told(f"reconstructions are not bound to [0, 1]; targets are {low:.2f} to {high:.2f}")
    if high > 1.5 and low >= 0 and float(targets.frac().abs().max()) == 0:
        raise UnseenError(f"training images are bytes, {low:.0f} to {high:.0f}: give what the loss "
                          "gets")  # fmt: skip
    out = float(((targets < -SLACK) | (targets > 1 + SLACK)).double().mean())
    sentence = f"targets are {low:.2f} to {high:.2f}, reconstructions lie in [0, 1]"
    numbers = {"lowest": low, "highest": high, "out_of_reach": out}
    if out:
        return fails(f"{sentence}: {out:.0%} of the pixels cannot be reached", **numbers)
    return passes(sentence, **numbers)
