"""Does a network say the same of an image again, and whichever images stand beside it?"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from capsviz.tracing.shapes import STEPS, named_parts, shape_of

CLOSE = 1e-4  # of the largest: numbers of two passes that are equal but for rounding


def apart(few: Tensor, whole: Tensor, middle: float = 0.0) -> float:
    """How far two that should be equal lie apart; 0 where that is rounding.

    Measured by the largest distance from a `middle`: of scores that are all short, or couplings
    that are nearly even, the rest is what counts.
    """
    if few.shape != whole.shape:
        return float("inf")
    width, close = STEPS * torch.finfo(few.dtype).eps, 10 * CLOSE if middle else CLOSE
    off, size = float((few - whole).abs().max()), float((whole - middle).abs().max())
    return 0.0 if off <= max(close, width) * size + width * middle else off


def unsteady(
    model, images: Tensor, traced: dict, whole: Tensor, routings: list[str]
) -> Iterator[str]:
    """What changes without cause: one image, and a few, must say what they said among seven.

    Parameters
    ----------
    traced    what the network shows of all images.
    whole     its lengths, of their own type.
    routings  names of its routings that are plugins.
    """

    def lengths(some: Tensor) -> Tensor:
        return named_parts(model.look(some, keep=("lengths",)))["lengths"]

    if "lengths" not in named_parts(model.look(images, keep=("lengths",))):
        yield 'asked for "lengths" alone, `look` gives neither these, nor activations or poses'
        return
    alone = lengths(images)
    if off := apart(lengths(images), alone):
        yield f"two passes over the same images differ by {off:.2g}: something in it is random"
        return
    if off := apart(alone, whole):
        yield (
            f"`fused` and `route` differ by {off:.2g} for the same images"
            if routings
            else f"lengths that are asked for alone differ by {off:.2g} from those beside the rest"
        )
        return
    for count in (3, 1):
        try:
            few = lengths(images[:count])
        except Exception as error:  # whatever somebody's code does with one image
            reason = " ".join(str(error).split())[:120]
            yield f"a batch of {count} fails ({type(error).__name__}: {reason})"
            return
        if tuple(few.shape) != (count, whole.shape[1]):
            yield (
                f"a batch of {count} gives lengths {shape_of(few)}, expected "
                f"{(count, whole.shape[1])}: a squeeze() without an axis loses the batch"
            )
            return
        if off := apart(few, whole[:count]):
            yield _depends("scores", off)
            return
    if off := apart(lengths(images.flip(0)).flip(0), whole):
        yield _depends("scores", off)
    elif (couplings := traced.get("couplings")) is not None:
        few = named_parts(model.look(images[:3], keep=("couplings",)))["couplings"]
        if off := apart(few, couplings[:, :3].to(few), 1 / couplings.shape[3]):
            yield _depends("couplings", off)


def _depends(what: str, off: float) -> str:
    return f"{what} depend on the batch: an image's change by {off:.2g} with the images beside it"
