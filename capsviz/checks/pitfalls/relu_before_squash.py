"""A ReLU before the squash leaves primary capsules without negative components."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.primary import noise
from capsviz.checks.verdict import About, Judgement, fails, passes, warns

ABOUT = About(
    paper="§4: PrimaryCapsules is a convolution with equation 1 as its non-linearity",
    breaks="poses lie in one corner of their space, so that they cannot point apart",
    fix="apply ReLU after the first convolution only",
)


def examine(candidate: Candidate) -> Judgement:
    """Count the negative components, for features of both signs."""
    primary = candidate.primary
    capsules = primary.of(noise(seed=3), candidate.images(7))
    share = float((capsules < 0).float().mean())
    if share > 0.01:
        return passes(f"{share:.0%} of the components are negative", negative=share)
    relus = [e.place for e in primary.between() if e.name in ("relu", "clamp", "clamp_min")]
    where = f" (relu in {', '.join(dict.fromkeys(relus))})" if relus else ""
    judge = fails if candidate.capsules.by_length else warns
    return judge(f"no component is negative, expected about half{where}", negative=share)
