"""The decoder is told which class it draws, and at test draws the longest."""

import torch
from torch.nn.functional import normalize

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§4.1: all but the capsule of the class are masked out",
    seen="one pose decoded as two classes; then with other poses beside it; and the pose that a "
    "pass of images alone keeps",
    breaks="the pose must say the class again, and reconstructions of two classes cannot differ; "
    "of another class than is read, they say nothing of the reading",
    mend="keep the class's place: `(poses * one_hot[:, :, None]).flatten(1)` into the decoder, at "
    "test that of `lengths.argmax(1)`",
    needs="a decoder in the network, or `decode`",
    pitfalls=(21,),
)
SAME, FAINT = 1e-6, 1e-4


def examine(candidate: Candidate) -> Judgement:
    """Poses of length 1, decoded as class 0 and as class 1.

    A decoder that gets the pose of the class alone, as DeepCaps' does, is a design; one that gets
    all poses draws no class.
    """
    astray = getattr(candidate.decode, "astray", 0)  # of one that is not found by us: not known
    if astray and candidate.manner == "images":
        return fails(f"of {astray} of {len(candidate.structure.images)} images it draws another "
                     "class than the longest", astray=astray)  # fmt: skip
    poses = candidate.poses(candidate.images(4))
    one = poses.amax(1, keepdim=True)
    one = normalize(one, dim=-1).expand_as(poses).contiguous()
    classes = torch.zeros(len(one), dtype=torch.long, device=one.device)
    first, second = (candidate.decode(one, classes + k) for k in (0, 1))
    off = float((first - second).abs().max())
    sentence = f"a pose decoded as two classes differs by {off:.2g}"
    moved = float((candidate.decode(-one, classes) - first).abs().max())
    if moved < FAINT:
        raise UnseenError(f"a pose turned round moves the reconstruction by {moved:.2g} at most: "
                          "its weights are tiny, or have collapsed")  # fmt: skip
    if off > SAME:
        return passes(sentence, change=off)
    others = one.clone()
    others[:, 1:] *= -1
    beside = float((candidate.decode(others, classes) - first).abs().max())
    if beside > SAME:
        return fails(f"{sentence}, and by {beside:.2g} with the poses of other classes: it gets "
                     "all of them", change=off, beside=beside)  # fmt: skip
    return told(f"{sentence}: the decoder gets the pose of the class alone", change=off)
