"""As many passes of routing are made as are declared."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes
from capsviz.wrapping.flow import SUMS
from capsviz.wrapping.infer import candidates, setters
from capsviz.wrapping.layers import votes_base
from capsviz.wrapping.recorder import record

ABOUT = About(
    paper="§2, procedure 1, and §4: r = 3",
    seen="softmaxes that weigh votes are counted, and the attribute that sets them is changed",
    breaks="what is reported as three iterations is another number",
    mend="one softmax for each of `range(iterations)`; only the update is left out in the last",
    pitfalls=(17,),
)


def examine(candidate: Candidate) -> Judgement:
    """Against the number that is given, or that an attribute says."""
    weighed = len(candidate.layer.rounds)
    total = weighed + _even_first(candidate)
    if candidate.iterations is not None:
        return _judged(total, candidate.iterations, "as given")
    near = range(total - 1, total + 2)
    if total < 2 and not candidates(candidate.network, near):
        raise UnseenError("it routes in one pass, and no attribute says another number")
    fits = setters(candidate.network, near, weighed, lambda: _count(candidate))
    if len(fits) != 1:
        names = ", ".join(one.name for one in fits) or "no attribute"
        raise UnseenError(f"passes made: {total}; what sets their number: {names}")
    return _judged(total, fits[0].value, f"by {fits[0].name}")


def _judged(count: int, declared: int, by: str) -> Judgement:
    numbers = {"made": count, "declared": declared}
    sentence = f"{count} pass{'es' if count != 1 else ''} made, {declared} declared {by}"
    return passes(sentence, **numbers) if count == declared else fails(sentence, **numbers)


def _even_first(candidate: Candidate) -> int:
    """1 where a sum or mean of the same votes, without couplings, comes before the first pass."""
    flow, first = candidate.flow, candidate.layer.rounds[0]
    votes = votes_base(flow, first)
    return int(
        any(
            event.name in SUMS and event.inputs and flow.base(event, 0) == votes
            for event in flow.events[: first.event.index]
        )
    )


def _count(candidate: Candidate) -> int:
    sites = {one.event.site for one in candidate.layer.rounds}
    images = candidate.images(2)
    run = record(candidate.network, lambda: candidate.call(images))
    return sum(event.site in sites for event in run.events)
