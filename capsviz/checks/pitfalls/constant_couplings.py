"""Couplings are the same for every image: nothing is routed."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.capsules import Capsules
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§2, procedure 1, line 7",
    breaks="a weighted mean of the votes remains",
    fix="after each iteration but the last, add the agreement to the logits of each image",
    after=("not_repeatable", "mixed_batch", "wrong_softmax_axis"),
    every_layer=True,
)
SAME = 1e-7


def examine(candidate: Candidate, layer: Capsules) -> Judgement:
    """Compare votes and couplings of seven images; if these are the same, with larger sums."""
    candidate.caller.require_different()
    images = candidate.images(7)
    parts = layer.look(images, "votes", "couplings")
    votes, couplings = parts["votes"], parts["couplings"][-1]
    moved = float((votes - votes[:1]).abs().max())
    if moved <= SAME:
        raise SkippedError("votes do not differ between images: the weights have collapsed")
    differ = float((couplings - couplings[:1]).abs().max())
    off = float((couplings - 1 / couplings.shape[2]).abs().max())
    numbers = {"between_images": differ, "from_uniform": off}
    if differ > SAME:
        return passes(
            f"couplings differ by up to {differ:.2g} between images, and by up to {off:.2g} from "
            "1/J", **numbers,
        )  # fmt: skip
    message = f"votes differ by {moved:.2g} between images, couplings by {differ:.1g}"
    message += ": all are 1/J" if off <= SAME else ""
    if not layer.routed or len(layer.rounds) < 2:
        return warns(f"{message}, in one iteration", **numbers)
    # short poses may leave agreements that float32 does not show
    large = layer.with_sums(lambda total: 1e6 * total, images, "couplings")[-1]
    apart = numbers["between_images_enlarged"] = float((large - large[:1]).abs().max())
    if apart > SAME:
        return passes(
            f"couplings differ by up to {apart:.2g} between images if poses are long; here poses "
            "are so short that couplings stay uniform", **numbers,
        )  # fmt: skip
    return fails(message, **numbers)
