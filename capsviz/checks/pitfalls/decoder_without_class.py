"""The decoder does not know the class, or draws another class than the predicted one."""

import torch
from torch.nn.functional import normalize

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§4.1: all but the capsule of the class are masked out",
    breaks="the pose must encode the class again, and reconstructions of two classes cannot "
    "differ; of another class than the prediction, they say nothing about it",
    fix="keep the position of the class: give the decoder `(poses * one_hot[:, :, None])"
    ".flatten(1)`, at test with the class `lengths.argmax(1)`",
    needs="a decoder in the network, or `decode`",
)
SAME, FAINT = 1e-6, 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Decode one pose as two classes, and beside other poses; find which pose a pass keeps.

    A decoder that gets only the pose of the class, as in DeepCaps, is a design; one that gets all
    poses draws no class.
    """
    decode = candidate.decode
    astray = getattr(decode, "astray", 0)  # unknown for a decoder that is given
    if astray and candidate.caller.way == "images":
        count = len(candidate.caller.recorded.images)
        return fails(
            f"{astray} of {count} reconstructions are of another class than the longest capsule",
            astray=astray,
        )
    poses = candidate.poses(candidate.images(4))
    one = normalize(poses.amax(1, keepdim=True), dim=-1).expand_as(poses).contiguous()
    classes = torch.zeros(len(one), dtype=torch.long, device=one.device)
    first = decode(one, classes)

    def moved(poses, classes) -> float:
        return float((decode(poses, classes) - first).abs().max())

    opposite, off = moved(-one, classes), moved(one, classes + 1)
    if opposite < FAINT:
        raise SkippedError(
            f"the opposite pose changes the reconstruction by {opposite:.2g} at most: weights are "
            "tiny or have collapsed"
        )
    message = f"reconstructions of one pose as two classes differ by {off:.2g}"
    if off > SAME:
        return passes(message, change=off)
    others = torch.cat((one[:, :1], -one[:, 1:]), 1)
    beside = moved(others, classes)
    if beside > SAME:
        return fails(
            f"{message}, and by {beside:.2g} with the poses of other classes: the decoder gets all "
            "of them", change=off, beside=beside,
        )  # fmt: skip
    return warns(f"{message}: the decoder gets only the pose of the class", change=off)
