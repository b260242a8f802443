"""The decoder is told which class it draws."""

import torch
from torch.nn.functional import normalize

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes

ABOUT = About(
    paper="§4.1: all but the capsule of the class are masked out",
    seen="one pose decoded as two classes",
    breaks="the pose must say the class again, and reconstructions of two classes cannot differ",
    mend="keep the class's place: `(poses * one_hot[:, :, None]).flatten(1)` into the decoder",
    needs="a decoder in the network, or `decode`",
    pitfalls=(21,),
)
SAME = 1e-6


def examine(candidate: Candidate) -> Judgement:
    """Poses of length 1, decoded as class 0 and as class 1."""
    poses = candidate.poses(candidate.images(4))
    one = poses.amax(1, keepdim=True)
    one = normalize(one, dim=-1).expand_as(poses).contiguous()
    first, second = (
        candidate.decode(one, torch.full((len(one),), k, device=one.device)) for k in (0, 1)
    )
    off = float((first - second).abs().max())
    sentence = f"a pose decoded as two classes differs by {off:.2g}"
    return fails(sentence, change=off) if off <= SAME else passes(sentence, change=off)
