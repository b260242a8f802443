"""The scores that `faithfulness` explains, one for each class, with gradients.

For a capsule network this is the activation of a class, for any other its logit, because a
probability of 1 has no gradient. Convolutions are found as they are computed and not as modules,
because a network may call them by their weights.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from capsviz.nn.computation import literal
from capsviz.tracing import abilities
from capsviz.tracing.record import last_activations


class Explained(nn.Module):
    """Images (B, C, H, W) -> (B, J); the result of one of its convolutions passes through `layer`.

    Parameters
    ----------
    model   any network.
    number  of the convolution, in the order of computation; None: none.
    """

    def __init__(self, model: nn.Module, number: int | None = None):
        super().__init__()
        self.model, self.number, self.layer = model, number, nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """The activations, or logits."""
        if self.number is None:
            return self._values(images)
        with literal(), _Meeting(self.layer, self.number):
            return self._values(images)

    def _values(self, images: Tensor) -> Tensor:
        if abilities(self.model).has_capsules:
            return last_activations(self.model.look(images, keep=("lengths",)))
        return self.model(images).logits


class _Meeting(TorchFunctionMode):
    """Passes the result of a convolution through a layer; `results` are those of all."""

    def __init__(self, layer: nn.Module | None = None, number: int | None = None):
        super().__init__()
        self.layer, self.number, self.results = layer, number, []

    def __torch_function__(self, function, types, arguments=(), named=None):
        result = function(*arguments, **(named or {}))
        if function is torch.conv2d:
            if len(self.results) == self.number:
                result = self.layer(result)
            self.results.append(result)
        return result


class Convolution(NamedTuple):
    """A convolution that the class depends on, with several positions."""

    number: int  # in the order of computation
    shape: tuple[int, int, int]  # channels, rows, columns of its result


def convolutions(model: nn.Module, image: Tensor) -> list[Convolution]:
    """Return the convolutions with several positions between image (1, C, H, W) and score.

    Raises
    ------
    ValueError  for scores that have no gradient by the image.
    """
    image = image.detach().clone().requires_grad_()
    with literal(), _Meeting() as meeting:
        values = Explained(model)(image)
    if not values.requires_grad:
        raise ValueError(
            "the scores of this network have no gradient by the image (its code detaches them, or "
            "leaves PyTorch): capsviz faithfulness needs one"
        )
    results = [result for result in meeting.results if result.requires_grad]
    gradients = torch.autograd.grad(values.sum(), [image, *results], allow_unused=True)
    if gradients[0] is None:
        raise ValueError(
            "the scores of this network do not depend on the image by way of gradients: "
            "capsviz faithfulness needs them"
        )
    reached = {id(r) for r, g in zip(results, gradients[1:], strict=True) if g is not None}
    return [
        Convolution(number, tuple(result.shape[1:]))
        for number, result in enumerate(meeting.results)
        if id(result) in reached and result.shape[2] * result.shape[3] > 1
    ]
