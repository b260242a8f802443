"""The output holds numbers that are NaN or infinite."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes

ABOUT = About(
    paper="none",
    breaks="NaN spreads to all weights in one step of training, and compares as false with "
    "everything",
    fix="find the first NaN by `torch.autograd.set_detect_anomaly(True)`; look at the weights, "
    "logarithms of 0 and roots at 0",
    after=(),
)


def examine(candidate: Candidate) -> Judgement:
    """Count the numbers that are NaN or infinite, for seven images."""
    outputs = candidate.caller.floats(candidate.images(7))
    if not outputs:
        raise SkippedError("the output holds no tensors of numbers")
    broken = sum(int((~tensor.isfinite()).sum()) for tensor in outputs)
    whole = sum(tensor.numel() for tensor in outputs)
    if broken:
        return fails(f"{broken:,} of {whole:,} numbers are NaN or infinite", share=broken / whole)
    return passes(f"all {whole:,} numbers are finite", share=0.0)
