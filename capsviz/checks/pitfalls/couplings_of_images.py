"""Couplings follow the image: they differ between images, and leave 1/J."""

from torch import Tensor

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§2, procedure 1, line 7",
    seen="votes and last couplings of seven images, compared; where they are alike, with sums of "
    "votes a million times as large",
    breaks="nothing is routed: a weighted mean of the votes is left",
    mend="after each pass but the last add the agreement to the logits of each image",
    pitfalls=(3,),
    after=("repeats", "batch", "couplings_sum"),
    layers=True,
)
SAME = 1e-7


def examine(candidate: Candidate) -> Judgement:
    """Spread of votes and couplings over images."""
    candidate.require_different()
    parts = candidate.look(candidate.images(7), "votes", "couplings")
    votes, couplings = parts["votes"], parts["couplings"][-1]
    moved = float((votes - votes[:1]).abs().max())
    if moved <= SAME:
        raise UnseenError("votes do not differ between images: the weights have collapsed")
    differ = float((couplings - couplings[:1]).abs().max())
    left = float((couplings - 1 / couplings.shape[2]).abs().max())
    numbers = {"between_images": differ, "from_even": left}
    passed = len(candidate.layer.rounds) if candidate.has_layer else 1
    if differ <= SAME and passed > 1:  # short poses may leave agreements that no float32 shows
        enlarged = _enlarged(candidate)
        apart = float((enlarged - enlarged[:1]).abs().max())
        numbers["between_images_enlarged"] = apart
        if apart > SAME:
            return passes(
                f"they differ by up to {apart:.2g} between images where poses are long; as they "
                "are, poses are so short that couplings stay even", **numbers,
            )  # fmt: skip
    if differ <= SAME:
        sentence = f"votes differ between images by {moved:.2g}, couplings by {differ:.1g}"
        if left <= SAME:
            sentence += ", all are 1/J"
        return (
            told(f"{sentence}, in one pass", **numbers)
            if passed < 2
            else fails(sentence, **numbers)
        )
    return passes(
        f"they differ by up to {differ:.2g} between images and leave 1/J by up to {left:.2g}",
        **numbers,
    )


def _enlarged(candidate: Candidate) -> Tensor:
    """Last couplings (B, I, J) where the sums of votes are large."""
    totals = [one.total for one in candidate.layer.rounds]
    images = candidate.images(7)
    return candidate.alteration(totals, lambda total: 1e6 * total, images, "couplings")[-1]
