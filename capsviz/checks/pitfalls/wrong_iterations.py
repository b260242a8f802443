"""The network makes another number of routing iterations than it declares."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes
from capsviz.wrapping.flow import SUMS
from capsviz.wrapping.layers import votes_base
from capsviz.wrapping.recorder import record
from capsviz.wrapping.wrapping import candidates, setters

ABOUT = About(
    paper="§2, procedure 1, and §4: r = 3",
    breaks="results for three iterations are those of another number",
    fix="apply one softmax in each of `range(iterations)`; in the last, leave out only the update",
)


def examine(candidate: Candidate) -> Judgement:
    """Count softmaxes that weigh votes, and change the attribute for their number."""
    weighed = len(candidate.capsules.rounds)
    made = weighed + _uniform_first(candidate)
    if candidate.iterations is not None:
        return _judge(made, candidate.iterations, "by iterations=")
    near = range(made - 1, made + 2)
    if made < 2 and not candidates(candidate.network, near):
        raise SkippedError("the network routes in one iteration, and no attribute declares more")
    fits = setters(candidate.network, near, weighed, lambda: _count(candidate))
    if len(fits) != 1:
        names = ", ".join(one.name for one in fits) or "no attribute"
        raise SkippedError(f"{made} iterations made; {names} sets their number: give iterations=")
    return _judge(made, fits[0].value, f"by {fits[0].name}")


def _judge(made: int, declared: int, by: str) -> Judgement:
    message = f"{made} iteration{'s' if made != 1 else ''} made, {declared} declared {by}"
    judge = passes if made == declared else fails
    return judge(message, made=made, declared=declared)


def _uniform_first(candidate: Candidate) -> int:
    """1 if a sum or mean of the votes without couplings comes before the first softmax."""
    flow, first = candidate.caller.recorded.flow, candidate.capsules.rounds[0]
    votes = votes_base(flow, first)
    events = [event for event in flow.events[: first.event.index] if event.name in SUMS]
    return int(any(event.inputs and flow.base(event, 0) == votes for event in events))


def _count(candidate: Candidate) -> int:
    sites = {one.event.site for one in candidate.capsules.rounds}
    run = record(candidate.network, lambda: candidate.call(candidate.images(2)))
    return sum(event.site in sites for event in run.events)
