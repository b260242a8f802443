"""Is a capsule network correct? Checks for the mistakes of published code.

    report = capsviz.checks.run(network, image_shape=(1, 28, 28), classes=10)
    print(report.text())

A check is one file of `capsviz/checks/pitfalls`, or of a plug-in's folder `pitfalls`. Its name is
the mistake; the first line of its docstring says what is wrong with a network that fails. `ABOUT`
holds what does not depend on the network; `examine(candidate)` returns `passes(...)`,
`fails(...)` or `warns(...)`, or raises `SkippedError` with the reason. docs/check.md has an
example, and lists the parts of a candidate.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from torch import nn

from capsviz import discovery
from capsviz.checks.candidate import Candidate
from capsviz.checks.report import Report
from capsviz.checks.verdict import STATUSES, About, Judgement, SkippedError, Verdict, skipped
from capsviz.wrapping.environment import in_words, restored

__all__ = ["Candidate", "Report", "Verdict", "checks", "run"]

PITFALLS = "capsviz.checks.pitfalls"


def checks(names: Iterable[str] | str | None = None) -> dict[str, ModuleType]:
    """Return the files of all checks, or of some, each after those that it depends on.

    ValueError for an unknown name, a file without `ABOUT` or `examine`, or a circle.
    """
    names = (names,) if isinstance(names, str) else names
    order: dict[str, ModuleType] = {}

    def add(name: str, *later: str) -> None:
        if name in later:
            raise ValueError(f"the checks {', '.join(later)} come after each other in a circle")
        if name not in order:
            module = discovery.load(PITFALLS, name, what="check")
            about = getattr(module, "ABOUT", None)
            if not isinstance(about, About) or not hasattr(module, "examine"):
                raise ValueError(f"the check '{name}' lacks ABOUT or examine(candidate)")
            for earlier in about.after:
                add(earlier, name, *later)
            order[name] = module

    for name in discovery.names(PITFALLS) if names is None else names:
        add(name)
    return order


def run(
    network: nn.Module,
    image_shape: tuple[int, int, int] | None = None,
    classes: int | None = None,
    *,
    only: Iterable[str] | str | None = None,
    **facts,
) -> Report:
    """Examine a network by every check; it is left as it was.

    Parameters
    ----------
    network      any module, or the result of `capsviz.wrap`; it is put into evaluation mode
                 meanwhile.
    image_shape  (C, H, W), and
    classes      their number: needed for a module that does not declare them itself.
    only         names of checks; those that they depend on are made, too.
    facts        other arguments of `Candidate`: images, normalise, call, scores, decode, pair,
                 iterations, loss, train_data, test_data, new.

    Returns
    -------
    A report with one verdict a check. One mistake raises one alarm: if a check fails, those that
    it makes meaningless are skipped.

    Raises
    ------
    ValueError  for a network that cannot be called or, without `only`, has no capsules; and for an
                argument that is not valid.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    with restored(network):
        candidate = Candidate(network, image_shape, classes, **facts)
        if only is None:
            candidate.capsules.require_capsules()
        return _report(candidate, checks(only))


def _report(candidate: Candidate, modules: dict[str, ModuleType]) -> Report:
    verdicts: dict[str, Verdict] = {}
    spared: set[tuple[str, str]] = set()  # a failed check, and one that is made all the same
    for name, module in modules.items():
        about = module.ABOUT
        failed = (verdicts[earlier] for earlier in about.after if (earlier, name) not in spared)
        cause = next((v.cause or v.check for v in failed if v.cause or v.status == "FAIL"), None)
        judgement = _judge(module, candidate) if cause is None else skipped(f"{cause} fails")
        spared |= {(name, later) for later in judgement.spares}
        verdicts[name] = Verdict(
            name, discovery.summary(PITFALLS, name), *judgement[:3], about.paper, about.breaks,
            judgement.fix or about.fix, cause,
        )  # fmt: skip
    ordered = sorted(verdicts.values(), key=lambda one: STATUSES.index(one.status))
    return Report(candidate.name, tuple(ordered), tuple(candidate.notes()))


def _judge(module: ModuleType, candidate: Candidate) -> Judgement:
    """Judge the network; for a check of every layer, the class capsules or a worse layer before."""
    if not module.ABOUT.every_layer:
        return _examine(module, candidate)
    judgement = _examine(module, candidate, candidate.capsules)
    for layer in candidate.capsules.before:
        one = _examine(module, candidate, layer)
        worse = one.status == "FAIL" or (one.status, judgement.status) == ("WARN", "PASS")
        if worse and judgement.status != "FAIL":
            place = "" if layer.layer.place in one.message else f": {layer.layer}"
            judgement = one._replace(message=one.message + place)
    return judgement


def _examine(module: ModuleType, *parts) -> Judgement:
    try:
        with parts[0].caller.still():
            judgement = module.examine(*parts)
    except SkippedError as reason:
        return skipped(str(reason))
    except Exception as error:  # a user's code may raise anything
        return skipped(f"it raises {in_words(error)}")
    if not isinstance(judgement, Judgement):
        return skipped(f"it returns {type(judgement).__name__}, expected a judgement")
    return judgement
