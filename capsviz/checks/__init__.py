"""Check a capsule network for the mistakes of published code.

    report = capsviz.checks.run(network, image_shape=(1, 28, 28), classes=10)
    print(report.text())

A check is a function of a `Candidate`. It returns `passes(...)`, `fails(...)` or `warns(...)`, or
raises `SkippedError` with the reason. `capsviz/checks/pitfalls` has one file of checks for each
subject, and `texts.toml` describes them. A plug-in has one file for each check, in its folder
`pitfalls`. docs/check.md has an example, and lists the parts of a candidate.
"""

from collections.abc import Iterable

from torch import nn

from capsviz import discovery
from capsviz.checks.candidate import Candidate
from capsviz.checks.report import Report
from capsviz.checks.verdict import STATUSES, About, Check, Judgement, SkippedError, Verdict, skipped
from capsviz.wrapping.environment import in_words, restored

__all__ = ["Candidate", "Report", "Verdict", "checks", "run"]

PITFALLS = "capsviz.checks.pitfalls"
PRECEDENCE = ("FAIL", "WARN", "PASS", "SKIPPED")  # of one check on several layers: first one wins


def checks(names: Iterable[str] | str | None = None) -> dict[str, Check]:
    """Return all checks, or the named ones, each after those that it depends on.

    ValueError for an unknown name, a plug-in without `ABOUT` or `examine`, or a cyclic `after`.
    """
    files = discovery.entries(PITFALLS)
    own = {k: one for file in files if files[file].ours for k, one in _checks_in(file).items()}
    others = [file for file in files if not files[file].ours]
    if twice := set(own) & set(others):
        place = discovery.source(PITFALLS, name := twice.pop())
        raise ValueError(f"two checks are called '{name}': rename the one of the plug-in, {place}")
    order: dict[str, Check] = {}

    def add(name: str, *later: str) -> None:
        if name in later:
            raise ValueError(f"the checks {', '.join(later)} depend on each other in a cycle")
        if name in order:
            return
        if name not in own and name not in others:
            where = f" (after= in {discovery.source(PITFALLS, later[0])})" if later else ""
            raise ValueError(discovery.unknown("check", name, sorted([*own, *others])) + where)
        one = own.get(name) or _checks_in(name)[name]
        for earlier in one.about.after:
            add(earlier, name, *later)
        order[name] = one

    names = (names,) if isinstance(names, str) else names
    for name in [*own, *others] if names is None else names:
        add(name)
    return order


def _checks_in(file: str) -> dict[str, Check]:
    """Return the checks of a file: functions decorated by `check`, or its `ABOUT` and `examine`."""
    module = discovery.load(PITFALLS, file, what="check")
    found = {key: value for key, value in vars(module).items() if isinstance(value, Check)}
    if found:
        return found
    about, examine = getattr(module, "ABOUT", None), getattr(module, "examine", None)
    if not isinstance(about, About) or examine is None:
        raise ValueError(f"the check '{file}' lacks ABOUT or examine(candidate)")
    about = about._replace(title=discovery.summary(PITFALLS, file))
    return {file: Check(file, about, examine)}


def run(
    network: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    classes: int | None = None,
    *,
    only: Iterable[str] | str | None = None,
    **facts,
) -> Report:
    """Run every check on a network, and leave the network unchanged.

    Parameters
    ----------
    network      any module, or the result of `capsviz.wrap`. It is checked in evaluation mode.
    image_shape  (C, H, W). This and `classes` are needed if the module does not declare them.
    classes      number of classes.
    only         names of checks. Checks that they depend on are run, too.
    facts        other arguments of `Candidate`: capsules, example, images, normalise, call, scores,
                 decode, pair, iterations, loss, train_data, test_data, new.

    Returns
    -------
    A report with one verdict for each check. If a check fails, the checks that it makes meaningless
    are skipped, so that one mistake causes one failure.

    Raises
    ------
    ValueError  if the network cannot be called, if it has no capsules (unless `only` is given), or
                if an argument is invalid.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    with restored(network):
        candidate = Candidate(network, image_shape, classes, **facts)
        if only is None:
            candidate.capsules.require_capsules()
        return _report(candidate, checks(only))


def _report(candidate: Candidate, made: dict[str, Check]) -> Report:
    verdicts: dict[str, Verdict] = {}
    stops: dict[str, tuple[str, ...] | None] = {}  # check -> checks that its failure makes useless
    for name, one in made.items():
        about = one.about
        failed = (verdicts[k] for k in about.after if name in (stops[k] or (name,)))
        cause = next((v.cause or v.check for v in failed if v.cause or v.status == "FAIL"), None)
        judgement = _judge(one, candidate) if cause is None else skipped(f"{cause} fails")
        stops[name] = judgement.stops
        verdicts[name] = Verdict(
            name, about.title, *judgement[:3], about.paper, about.breaks,
            judgement.fix or about.fix, cause,
        )  # fmt: skip
    ordered = sorted(verdicts.values(), key=lambda one: STATUSES.index(one.status))
    return Report(candidate.name, tuple(ordered), tuple(candidate.notes()))


def _judge(check: Check, candidate: Candidate) -> Judgement:
    """Run one check; if it applies to every routed layer, return the judgement of the worst layer.

    If the class capsules cannot be judged, a PASS of an earlier layer replaces SKIPPED.
    """
    if not check.about.every_layer:
        return _examine(check, candidate)
    judgement = _examine(check, candidate, candidate.capsules)
    for layer in candidate.capsules.before:
        one = _examine(check, candidate, layer)
        if PRECEDENCE.index(one.status) < PRECEDENCE.index(judgement.status):
            place = "" if layer.layer.place in one.message else f": {layer.layer}"
            judgement = one._replace(message=one.message + place)
    return judgement


def _examine(check: Check, *parts) -> Judgement:
    try:
        parts[0].caller.require_time()
        with parts[0].caller.evaluating():
            judgement = check.examine(*parts)
    except SkippedError as reason:
        return skipped(str(reason))
    except Exception as error:  # a user's code may raise anything
        return skipped(f"it raises {in_words(error)}")
    if not isinstance(judgement, Judgement):
        what = "nothing" if judgement is None else f"a {type(judgement).__name__}"
        return skipped(
            f"its `examine` returns {what}, expected passes(...), fails(...) or warns(...)"
        )
    return judgement
