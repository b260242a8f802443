"""A network under examination, with what belongs to it: loss, data, itself before training."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor, nn

from capsviz.checks import facts
from capsviz.checks.children import Children
from capsviz.checks.verdict import UnseenError
from capsviz.wrapping import decoder, without_cuda
from capsviz.wrapping.environment import on_cpu
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.outputs import find_reconstruction
from capsviz.wrapping.recorder import Pass

COLLAPSED = 1e-3  # scores that differ less between images say little


class Candidate(Children):
    """Whom the checks examine; what it does not have raises `UnseenError` with the reason.

    Parameters
    ----------
    network, image_shape, classes, normalise, call, scores, decode, pair  as of `capsviz.wrap`.
    images      (N, C, H, W) in [0, 1] to look at; without them, noise.
    iterations  how many passes of routing it is said to make; without it, an attribute is sought.
    loss        (output, images, labels) -> a number: what training minimises; labels are indices
                (N,). It is called once before the checks; ValueError where it raises, or returns
                no number.
    train_data  images as the network and the loss get them in training: a sequence whose items are,
                or begin with, (C, H, W).
    test_data   the same at test; read twice.
    new         the same network as it is before training.
                These three may be functions that return them, as at the command line.
    """

    def __init__(
        self,
        network: nn.Module,
        image_shape=None,
        classes: int | None = None,
        *,
        iterations: int | None = None,
        loss: Callable | None = None,
        train_data=None,
        test_data=None,
        new: nn.Module | None = None,
        **options,
    ):
        super().__init__(network, image_shape, classes, **options)
        self.iterations = facts.iterations(iterations)
        self.loss = loss
        self.train_data = facts.images("train_data", train_data)
        self.test_data = facts.images("test_data", test_data)
        self.new = facts.network(new)
        if loss is not None:
            with self.still():
                self._require_number()
        elif hasattr(self.network, "objective"):
            self.loss = self._objective

    @cached_property
    def decode(self) -> Callable:
        """(poses (B, J, E), classes (B,)) -> reconstructions."""
        if self.decode_option is False:
            raise UnseenError("decoder: none, as given")
        if self.decode_option is not None:
            return on_cpu(self.decode_option)
        if self.manner == "look" and getattr(self.network, "decoder", None) is not None:
            return self.network.decode
        images, output = self.structure.images, self.structure.recording.output
        if not find_reconstruction(output, images, self.image_shape):
            raise UnseenError("decoder: none: no output has the size of an image; give decode=")
        shown = self.wrapped
        if self.score is not None:
            inferred = replace(shown.inferred, scores=self.score)
            shown = Wrapped(self.network, self.recipe, inferred)
        found = decoder.find(shown, self.trial)
        if found.decode is None:
            raise UnseenError(f"decoder: {found.finding}")
        return found.decode

    def fresh(self) -> Candidate:
        """The network before training, called as this one."""
        if self.new is None:
            raise UnseenError("no untrained network is given: new=, or --new FILE.py:FUNCTION")
        call = None if self.manner == "look" else self.recipe.call
        return Candidate(
            self.new, self.image_shape, self.classes, images=self.own_images, call=call,
            scores=self.scores_option, pair=self.pair, normalise=self.normalise,
        )  # fmt: skip

    def require_loss(self) -> Callable:
        """The loss; UnseenError where there is none."""
        if self.loss is None:
            raise UnseenError("no loss is given: loss=, or --loss FILE.py:FUNCTION")
        return self.loss

    def loss_of(self, output, images: Tensor, labels: Tensor) -> float:
        """The loss, in float64; UnseenError where it is not finite."""
        number = _number(self._loss_value(output, images, labels))
        if not math.isfinite(number):
            raise UnseenError("the loss is not finite")
        return number

    def _loss_value(self, output, images: Tensor, labels: Tensor):
        loss, inside = self.require_loss(), self.inside(images)
        with without_cuda():
            return Pass(self.network).run(lambda: loss(output, inside, labels))

    def _require_number(self) -> None:
        """ValueError where the loss that is given is none."""
        images = self.images(4)
        try:
            output = self.output(images)
        except Exception:  # the checks say what is wrong
            return
        labels = torch.arange(4, device=images.device) % self.classes
        try:
            value = self._loss_value(output, images, labels)
        except Exception as error:  # whatever somebody's code says
            words = " ".join(str(error).split())[:200]
            raise ValueError(
                f"loss= raises {type(error).__name__}: {words}; it is called with (output, "
                "images, labels), output is that of evaluation mode, labels are indices (N,)"
            ) from error
        _number(value)

    def pictures(self, kind: str, count: int) -> Tensor:
        """The first pictures (N, C, H, W) of "train_data" or "test_data", as they are given."""
        items = getattr(self, kind)
        if items is None:
            flag = f"--{kind.replace('_', '-')}"
            raise UnseenError(f"no data are given: {kind}=, or {flag} FILE.py:FUNCTION")
        if isinstance(items, Tensor):
            return items[:count].clone()
        some = [items[k] for k in range(min(count, len(items)))]
        some = [one[0] if isinstance(one, tuple | list) else one for one in some]
        if not all(isinstance(one, Tensor) for one in some):
            raise UnseenError(f"items of {kind} are no tensors, but {type(some[0]).__name__}")
        return torch.stack(some)

    def notes(self) -> list[str]:
        """What weakens all verdicts."""
        try:
            self.require_different()
            with self.still():
                scores = self.scores(self.images(7))
            spread = float((scores.amax(0) - scores.amin(0)).max())
        except Exception:  # the checks say what is wrong
            return []
        if spread < COLLAPSED:
            return [
                f"scores hardly differ between images (by {spread:.1g} at most): these weights are "
                "untrained or have collapsed, so that what passes, passes weakly"
            ]
        return []

    def _objective(self, output, images: Tensor, labels: Tensor):
        return self.network.objective(output, images, labels).loss


def _number(value) -> float:
    """What a loss returns, in float64; ValueError for anything else than a number."""
    try:
        return float(value.double() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        form = type(value).__name__ + (f" {tuple(shape)}" if shape is not None else "")
        raise ValueError(f"loss= returns {form}, expected a number") from error
