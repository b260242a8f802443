"""The output depends on the true label in evaluation mode."""

from contextlib import suppress
from dataclasses import replace

from capsviz.checks import calling
from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import squeezed
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns
from capsviz.wrapping.leaves import named_tensors
from capsviz.wrapping.taps import TapPass

ABOUT = About(
    paper="§4.1: the true class masks during training",
    breaks="reconstructions, or even scores, are made with the answer at test",
    fix="write `forward(images, labels=None)`; in evaluation mode mask by the longest capsule",
)
SAME = 1e-6  # rounding of two calls


def examine(candidate: Candidate) -> Judgement:
    """Compare the outputs for two labels of the same images, in evaluation mode."""
    way, labels = candidate.caller.way, calling.labels_of(candidate.network)
    if way == "given" and labels is not None:
        raise SkippedError(f"it takes '{labels.name}', and call= may give it")
    if way in ("given", "look"):
        return passes("it takes no labels")
    if labels is None:
        if unknown := calling.unknown_arguments(candidate.network):
            raise SkippedError(
                f"it can be given {', '.join(unknown)}, too, which may be labels: name them "
                "'labels', or give call= as it is called at test"
            )
        return passes("it takes images alone")
    for kind in [way] if labels.needed else ["one-hot", "index"]:
        with suppress(Exception):  # it takes the other kind of label
            first, second = (_outputs(candidate, kind, label, labels.name) for label in (0, 1))
            break
    else:
        raise SkippedError(f"'{labels.name}' takes neither indices nor one-hot labels")
    moved = {
        name: float((a.cpu().double() - second[name].cpu().double()).abs().max())
        for name, a in first.items()
        if a.is_floating_point() and a.shape == second[name].shape
    }
    name, off = max(moved.items(), key=lambda pair: pair[1], default=("", 0.0))
    if off <= SAME:
        return passes(f"in evaluation mode '{labels.name}' changes nothing ({off:.1g})", change=off)
    message = f"in evaluation mode output{name} changes by {off:.2g} with '{labels.name}'"
    if labels.needed:
        return fails(f"{message}, which must be given", change=off)
    for one, change in moved.items():
        thin = squeezed(first[one])
        if change > SAME and tuple(thin.shape) == (len(thin), candidate.classes):
            return fails(f"{message}, and scores change with it", change=off)
    return warns(f"{message}, if it is given: do not give it at test", change=off)


def _outputs(candidate: Candidate, kind: str, label: int, name: str) -> dict:
    caller, images = candidate.caller, candidate.images(3)
    recipe = replace(caller.recipe, call=calling.labelled(kind, candidate.classes, label, name))
    mode = TapPass(candidate.network, [])
    return dict(named_tensors(recipe.run(mode, candidate.network, caller.inside(images))))
