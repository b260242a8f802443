"""As many passes of routing are made as are declared."""

import re

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.foreign.recorder import record

ABOUT = About(
    paper="§2, procedure 1, and §4: r = 3",
    seen="softmaxes that weigh votes are counted, and the attribute that sets them is changed",
    breaks="what is reported as three iterations is another number",
    mend="one softmax for each of `range(iterations)`; only the update is left out in the last",
    pitfalls=(17,),
)


def examine(candidate: Candidate) -> Judgement:
    """Against the number that is given, or that an attribute says."""
    passes_seen = len(candidate.layer.rounds)
    if candidate.iterations is not None:
        return _judged(passes_seen, candidate.iterations, "as given")
    if passes_seen < 2 and not _candidates(candidate, passes_seen):
        raise UnseenError("it routes in one pass, and no attribute says another number")
    fits = []
    for name, module, attribute, value in _candidates(candidate, passes_seen):
        setattr(module, attribute, value + 1)
        try:
            count = _count(candidate)
        except Exception:  # somebody's code, with a number that it was not made for
            count = 0
        finally:
            setattr(module, attribute, value)
        if count == passes_seen + 1:
            fits.append((f"{name}.{attribute}".strip("."), value))
    if len(fits) != 1:
        names = ", ".join(name for name, _ in fits) or "no attribute"
        raise UnseenError(f"passes made: {passes_seen}; what sets their number: {names}")
    ((name, value),) = fits
    return _judged(passes_seen, value, f"by {name}")


def _judged(made: int, declared: int, by: str) -> Judgement:
    numbers = {"made": made, "declared": declared}
    said = f"{made} pass{'es' if made != 1 else ''} made, {declared} declared {by}"
    return passes(said, **numbers) if made == declared else fails(said, **numbers)


def _candidates(candidate: Candidate, made: int):
    return [
        (name, module, attribute, value)
        for name, module in candidate.network.named_modules()
        for attribute, value in list(vars(module).items())
        if re.search(r"iter|rout|^r$|^n_?r$", attribute, re.IGNORECASE)
        and type(value) is int and abs(value - made) <= 1
    ]  # fmt: skip


def _count(candidate: Candidate) -> int:
    sites = {one.event.site for one in candidate.layer.rounds}
    images = candidate.images(2)
    run = record(candidate.network, lambda: candidate.call(images))
    return sum(event.site in sites for event in run.events)
