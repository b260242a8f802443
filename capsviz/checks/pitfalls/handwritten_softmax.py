"""The softmax of the couplings is written by hand, and overflows for large logits."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, passes, warns

ABOUT = About(
    paper="§2, equation 3",
    breaks="exponentials overflow for logits beyond 88 in float32",
    fix="use `torch.softmax(logits, dim)`",
)


def examine(candidate: Candidate) -> Judgement:
    """Find exponentials divided by their sum, in the code that weighs the votes."""
    softmaxes = [one.softmax for one in candidate.capsules.rounds if one.softmax is not None]
    if not softmaxes:
        raise SkippedError("couplings come from no softmax")
    written = [event for event in softmaxes if event.name == "div"]
    if written:
        return warns(f"the softmax is written by hand in {written[0].place}", written=len(written))
    return passes(f"the softmax is PyTorch's, in {softmaxes[-1].place}", written=0)
