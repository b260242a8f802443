"""The reconstruction error weighs far less than in the paper, or differently."""

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, SkippedError, fails, passes, warns

ABOUT = About(
    paper="§4.1: the sum of squares, scaled by 0.0005",
    breaks="a mean over pixels in place of the sum gives the decoder a gradient 784 times too weak",
    fix="sum the squares of an image, and take the mean over images: 0.0005 · sum",
    needs="`loss`",
    after=("not_repeatable", "wrong_margin_loss"),
)
STEP, LITTLE, AS_WRITTEN = 0.1, 5e-5, (5e-4, 1e-2)


def examine(candidate: Candidate) -> Judgement:
    """Measure the curvature of the loss in the targets: 5e-4 a pixel, or the authors' 0.01."""
    loss = candidate.loss
    images = loss.images
    below, at, above = (loss.of(loss.output, images + k * STEP) for k in (-1, 0, 1))
    pixels = images[0].numel()
    curve = (above - 2 * at + below) / (2 * pixels * STEP**2)
    slope = abs(above - below) / pixels
    if abs(curve) < 1e-12:
        if slope < 1e-12:
            raise SkippedError("the loss does not depend on the images: it has no reconstruction")
        return warns(f"the loss changes with the targets by {slope:.2g} a pixel, not by a square")
    margin = loss.margin()
    weight = curve if margin is None else curve / margin
    numbers = {"weight": weight, "mean_of_pixels_would_be": 5e-4 / pixels}
    message = f"a squared pixel weighs {weight:.2g}"
    if margin is None:
        return warns(f"{message}, beside a loss that is no margin loss", **numbers)
    message += " beside the margin loss"
    if weight < LITTLE:
        return fails(f"{message}, {5e-4 / weight:,.0f} times less than 5e-4", **numbers)
    if any(abs(weight / one - 1) < 0.2 for one in AS_WRITTEN):
        return passes(message, **numbers)
    return warns(f"{message}, expected 5e-4 or 0.01", **numbers)
