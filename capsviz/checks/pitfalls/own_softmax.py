"""The softmax is PyTorch's own."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, passes, told

ABOUT = About(
    paper="§2, equation 3",
    seen="exponentials divided by their sum, in what weighs the votes",
    breaks="exponentials overflow where logits are large, beyond 88 in float32",
    mend="`torch.softmax(logits, dim)`",
    pitfalls=(19,),
)


def examine(candidate: Candidate) -> Judgement:
    """The function that makes the couplings."""
    softmaxes = [one.softmax for one in candidate.layer.rounds if one.softmax is not None]
    if not softmaxes:
        raise UnseenError("couplings come from no softmax")
    written = [event for event in softmaxes if event.name == "div"]
    if written:
        return told(f"it is written by hand in {written[0].place}", written=len(written))
    return passes(f"it is torch's, in {softmaxes[-1].place}", written=0)
