"""At test nothing follows the true label."""

from dataclasses import replace

from torch import Tensor

from capsviz.checks import manner
from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told
from capsviz.wrapping.leaves import named_tensors
from capsviz.wrapping.taps import TapPass

ABOUT = About(
    paper="§4.1: the true class masks during training",
    seen="two labels for the same images, in evaluation mode",
    breaks="reconstructions, or even scores, at test are made with the answer",
    mend="`forward(images, labels=None)`; in evaluation mode mask by the longest capsule",
    pitfalls=(13,),
)


def examine(candidate: Candidate) -> Judgement:
    """Whether an output changes with the label, and whether a label must be given."""
    labels = manner.labels_of(candidate.network)
    if candidate.manner in ("look", "given") or labels is None:
        if candidate.manner == "given" and labels is not None:
            raise UnseenError(f"it takes '{labels.name}', and whether call= gives it is not seen")
        if candidate.manner == "given":
            return passes("it takes no labels")
        unknown = [] if candidate.manner == "look" else manner.unknown_arguments(candidate.network)
        if unknown:
            raise UnseenError(
                f"it can be given {', '.join(unknown)}, too, and whether they are labels is not "
                "known: call them labels, or say by call= how it is called at test"
            )
        return passes("it takes images alone")
    kinds = [candidate.manner] if labels.needed else ["one-hot", "index"]
    for kind in kinds:
        try:
            first, again, second = (
                _outputs(candidate, kind, label, labels.named) for label in (0, 0, 1)
            )
            break
        except Exception:  # the other kind of label
            continue
    else:
        raise UnseenError(f"it takes '{labels.name}', but neither indices nor zeros and ones")
    moved = {
        name: _off(a, second[name]) - 2 * _off(a, again[name])
        for name, a in first.items()
        if a.is_floating_point() and a.shape == second[name].shape
    }
    name, off = max(moved.items(), key=lambda pair: pair[1], default=("", 0.0))
    if off <= 0:
        return passes(f"in evaluation mode '{labels.name}' changes nothing ({off:.1g})", change=off)
    sentence = f"in evaluation mode output{name} changes by {off:.2g} with '{labels.name}'"
    if labels.needed:
        return fails(f"{sentence}, which must be given", change=off)
    return told(f"{sentence}, if one is given: give none at test", change=off)


def _off(a: Tensor, b: Tensor) -> float:
    return float((a.double() - b.double()).abs().max())


def _outputs(candidate: Candidate, kind: str, label: int, name: str | None) -> dict:
    call = manner.labelled(kind, candidate.classes, label, name)
    recipe, inside = replace(candidate.recipe, call=call), candidate.inside(candidate.images(3))
    output = recipe.run(TapPass(candidate.network, []), candidate.network, inside)
    return dict(named_tensors(output))
