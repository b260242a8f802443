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
    total = len(candidate.layer.rounds)
    if candidate.iterations is not None:
        return _judged(total, candidate.iterations, "as given")
    if total < 2 and not _candidates(candidate, total):
        raise UnseenError("it routes in one pass, and no attribute says another number")
    fits = []
    for name, module, attribute, value in _candidates(candidate, total):
        setattr(module, attribute, value + 1)
        try:
            count = _count(candidate)
        except Exception:  # somebody's code, with a number that it was not made for
            count = 0
        finally:
            setattr(module, attribute, value)
        if count == total + 1:
            fits.append((f"{name}.{attribute}".strip("."), value))
    if len(fits) != 1:
        names = ", ".join(name for name, _ in fits) or "no attribute"
        raise UnseenError(f"passes made: {total}; what sets their number: {names}")
    ((name, value),) = fits
    return _judged(total, value, f"by {name}")


def _judged(count: int, declared: int, by: str) -> Judgement:
    numbers = {"made": count, "declared": declared}
    sentence = f"{count} pass{'es' if count != 1 else ''} made, {declared} declared {by}"
    return passes(sentence, **numbers) if count == declared else fails(sentence, **numbers)


def _candidates(candidate: Candidate, count: int):
    return [
        (name, module, attribute, value)
        for name, module in candidate.network.named_modules()
        for attribute, value in list(vars(module).items())
        if re.search(r"iter|rout|^r$|^n_?r$", attribute, re.IGNORECASE)
        and type(value) is int and abs(value - count) <= 1
    ]  # fmt: skip


def _count(candidate: Candidate) -> int:
    sites = {one.event.site for one in candidate.layer.rounds}
    images = candidate.images(2)
    run = record(candidate.network, lambda: candidate.call(images))
    return sum(event.site in sites for event in run.events)
