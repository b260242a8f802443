"""A squared pixel weighs 5e-4 beside the margin loss, or the authors' 0.01."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.losses import Losses
from capsviz.checks.verdict import About, Judgement, UnseenError, fails, passes, told

ABOUT = About(
    paper="§4.1: the sum of squares, scaled by 0.0005",
    seen="targets are moved, and the curvature of the loss is measured",
    breaks="a mean in place of the sum: 784 times too little for the decoder to teach",
    mend="sum the squares of an image, and take the mean over images: 0.0005 · sum",
    needs="`loss`",
    pitfalls=(10,),
    after=("repeats", "margin"),
)
STEP, LITTLE, AS_WRITTEN = 0.1, 5e-5, (5e-4, 1e-2)


def examine(candidate: Candidate) -> Judgement:
    """Second difference of the loss by the targets, over that by a length."""
    losses = Losses(candidate)
    images = losses.images
    below, at, above = (losses.of(images + k * STEP) for k in (-1, 0, 1))
    pixels = images[0].numel()
    curve = (above - 2 * at + below) / (2 * pixels * STEP**2)
    slope = abs(above - below) / pixels
    if abs(curve) < 1e-12:
        if slope < 1e-12:
            raise UnseenError("the loss does not change with the images: no reconstruction in it")
        return told(f"the loss changes with the targets by {slope:.2g} a pixel, not by a square")
    margin = losses.margin()
    weight = curve if margin is None else curve / margin
    sentence = f"{'a' if margin is None else 'beside the margin loss a'} squared pixel weighs"
    numbers = {"weight": weight, "mean_of_pixels_would_be": 5e-4 / pixels}
    sentence = f"{sentence} {weight:.2g}"
    if margin is None:
        return told(f"{sentence}, beside a loss that is no margin loss", **numbers)
    if weight < LITTLE:
        return fails(f"{sentence}: {5e-4 / weight:,.0f} times less than 5e-4", **numbers)
    if any(abs(weight / one - 1) < 0.2 for one in AS_WRITTEN):
        return passes(sentence, **numbers)
    return told(sentence, **numbers)
