"""Is a capsule network correct? Every pitfall that can be seen, looked for in somebody's network.

    report = capsviz.checks.run(network, image_shape=(1, 28, 28), classes=10)
    print(report.text())

A check is a file of `capsviz/checks/pitfalls`, or of a plug-in's folder `pitfalls`: the first line
of its docstring is its title, `ABOUT` says what no network changes, and `examine(candidate)`
returns `passes(...)`, `fails(...)` or `told(...)`, or raises `UnseenError` with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from torch import nn

from capsviz import discovery
from capsviz.checks.candidate import Candidate
from capsviz.checks.report import Report
from capsviz.checks.verdict import STATUSES, About, Judgement, UnseenError, Verdict
from capsviz.wrapping.environment import restored

__all__ = ["Candidate", "Report", "Verdict", "checks", "run"]

PITFALLS = "capsviz.checks.pitfalls"


def checks(names: Iterable[str] | str | None = None) -> dict[str, ModuleType]:
    """The files of all checks, or of some, each after those that it depends on.

    Raises
    ------
    ValueError  for a name that is no check, a file that is none, or checks that come after each
                other in a circle.
    """
    names = (names,) if isinstance(names, str) else names
    chosen = discovery.names(PITFALLS) if names is None else list(names)
    order: dict[str, ModuleType] = {}

    def add(name: str, *later: str) -> None:
        if name in later:
            raise ValueError(f"the checks {', '.join(later)} come after each other in a circle")
        if name not in order:
            module = discovery.load(PITFALLS, name, what="check")
            if not isinstance(getattr(module, "ABOUT", None), About) or not hasattr(
                module, "examine"
            ):
                raise ValueError(f"the check '{name}' lacks ABOUT or examine(candidate)")
            for earlier in module.ABOUT.after:
                add(earlier, name, *later)
            order[name] = module

    for name in chosen:
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
    network      any module, or what `capsviz.wrap` made; put in evaluation mode while it is looked
                 at.
    image_shape  (C, H, W), and
    classes      how many: needed for a module that does not say them itself.
    only         names of checks; those that they depend on come with them.
    facts        of the network and what belongs to it, see `Candidate`: images, normalise, call,
                 scores, decode, pair, iterations, loss, train_data, test_data, new.

    Returns
    -------
    A report with one verdict a check. One cause, one alarm: where a check fails, those that it
    would upset are not judged.

    Raises
    ------
    ValueError  for a network that cannot be called, or facts that are none.
    """
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a network, a torch.nn.Module, got {type(network).__name__}")
    with restored(network):
        return _report(Candidate(network, image_shape, classes, **facts), checks(only))


def _report(candidate: Candidate, examinations: dict[str, ModuleType]) -> Report:
    verdicts: dict[str, Verdict] = {}
    spared: set[tuple[str, str]] = set()  # who fails, and who is judged all the same
    for name, module in examinations.items():
        upset = (k for k in module.ABOUT.after if _upset(verdicts[k]) and (k, name) not in spared)
        cause = next((verdicts[k].cause or k for k in upset), None)
        if cause is None:
            judgement = _in_every_layer(module, candidate)
        else:
            judgement = Judgement("cannot be seen", f"not judged, as {cause} fails", {})
        spared |= {(name, later) for later in judgement.spares}
        about = module.ABOUT
        verdicts[name] = Verdict(
            name, discovery.summary(PITFALLS, name), *judgement[:3], about.paper, about.breaks,
            judgement.mend or about.mend, about.pitfalls, cause,
        )  # fmt: skip
    ordered = sorted(verdicts.values(), key=lambda one: STATUSES.index(one.status))
    return Report(candidate.name, tuple(ordered), tuple(candidate.notes()))


def _upset(verdict: Verdict) -> bool:
    return verdict.status == "fails" or verdict.cause is not None


def _examined(module: ModuleType, candidate: Candidate) -> Judgement:
    try:
        with candidate.still():
            judgement = module.examine(candidate)
    except UnseenError as reason:
        return Judgement("cannot be seen", str(reason), {})
    except Exception as error:  # whatever somebody's code does
        words = " ".join(str(error).split())[:200]
        return Judgement("cannot be seen", f"it raises {type(error).__name__}: {words}", {})
    if not isinstance(judgement, Judgement):
        words = f"it gives a {type(judgement).__name__}, no judgement"
        return Judgement("cannot be seen", words, {})
    return judgement


def _in_every_layer(module: ModuleType, candidate: Candidate) -> Judgement:
    """The judgement of the layer of the classes, or a worse one of a layer before it."""
    judgement = _examined(module, candidate)
    for layer in candidate.layers_before if module.ABOUT.layers else ():
        one = _examined(module, candidate.at(layer))
        worse = (one.status, judgement.status) == ("told", "passes") or one.status == "fails"
        if worse and judgement.status != "fails":
            said = one.said if layer.place in one.said else f"{one.said}: {layer}"
            judgement = one._replace(said=said)
    return judgement
