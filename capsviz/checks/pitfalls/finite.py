"""All numbers of an output are finite."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.wrapping.leaves import tensors

ABOUT = About(
    paper="none: a matter of code",
    seen="the output for seven images, every number of it",
    breaks="NaN passes every comparison of sizes, and spreads to all weights in one step",
    mend="find the first NaN by `torch.autograd.set_detect_anomaly(True)`; look at the weights, "
    "logarithms of 0 and roots at 0",
    after=(),
)


def examine(candidate: Candidate) -> Judgement:
    """Count what is NaN or infinite."""
    outputs = [t for t in tensors(candidate.call(candidate.images(7))) if t.is_floating_point()]
    if not outputs:
        raise UnseenError("the output holds no tensors of numbers")
    broken = sum(int((~tensor.isfinite()).sum()) for tensor in outputs)
    whole = sum(tensor.numel() for tensor in outputs)
    if broken:
        return fails(f"{broken:,} of {whole:,} numbers are NaN or infinite", share=broken / whole)
    return passes(f"all {whole:,} numbers are finite", share=0.0)
