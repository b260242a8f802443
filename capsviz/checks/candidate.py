"""The network under test, with everything that belongs to it: loss, data, untrained network."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from capsviz.checks.calling import Caller
from capsviz.checks.capsules import Capsules, PrimaryCapsules, squeezed
from capsviz.checks.verdict import SkippedError
from capsviz.tracing import abilities
from capsviz.validation import whole_number
from capsviz.wrapping import outputs
from capsviz.wrapping.environment import in_words, without_cuda
from capsviz.wrapping.given import by_hand
from capsviz.wrapping.leaves import named_tensors, replaced, tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.recorder import Pass

IMAGES, CLOSE = 4, 1e-4  # images and tolerance to test a loss
COLLAPSED = 1e-3  # if scores differ less between images, a PASS is weak evidence


class Candidate:
    """The network that a check examines; a part that is missing raises `SkippedError`.

    Its parts are `caller` (calls and records the network), `capsules` (the class capsules), `lower`
    (the capsules whose votes they route), `primary` (the primary capsules, which differ from
    `lower` if several layers are routed), `loss` and `decode`.

    Parameters
    ----------
    network, image_shape, classes, capsules, example, normalise, call, scores, decode, pair
                as in `capsviz.wrap`.
    images      (N, C, H, W) in [0, 1], or inputs like the example. By default noise is used.
    iterations  the declared number of routing iterations. By default an attribute is searched.
    loss        (output, images, labels) -> the training loss; labels are class indices (N,).
                It is called once at the start; ValueError if it raises or returns no number.
    train_data  images as the network and the loss get them in training: a sequence of (C, H, W),
                or of tuples that begin with one. It may be a function that returns them.
    test_data   the same for the test set. It is read twice.
    new         the same network before training, or a function that returns it.
    """

    def __init__(
        self,
        network: nn.Module,
        image_shape=None,
        classes: int | None = None,
        *,
        scores=None,
        decode=None,
        pair=None,
        call=None,
        iterations: int | None = None,
        loss: Callable | None = None,
        train_data=None,
        test_data=None,
        new: nn.Module | None = None,
        **images,
    ):
        outputs.require_scores(scores)
        scores, decode, pair, call = by_hand(scores=scores, decode=decode, pair=pair, call=call)
        self.caller = caller = Caller(network, image_shape, classes, call=call, **images)
        if (wrapper := caller.wrapper) is not None:
            scores = scores or wrapper.inferred.scores
            decode = wrapper.inferred.decode if decode is None else decode
            pair = pair or wrapper.recipe.pair
        self.given_scores, self.given_decode = scores, decode
        self.capsules = Capsules(caller, pair=pair, scores=scores)
        self.lower = PrimaryCapsules(self.capsules)
        self.network, self.name, self.classes = caller.network, caller.name, caller.classes
        self.images, self.call, self.poses = caller.images, caller.call, self.capsules.poses
        if iterations is not None and whole_number("iterations=", iterations) < 1:
            raise ValueError(f"iterations= must be a whole number, at least 1, got {iterations!r}")
        self.iterations = iterations
        self._data = {"train_data": train_data, "test_data": test_data}
        self._images = {name: _images(name, value) for name, value in self._data.items()}
        self.new = _called("new", new)
        if self.new is not None and not isinstance(self.new, nn.Module):
            raise ValueError(f"new= must be a network, a torch.nn.Module, got {_shown(self.new)}")
        if loss is None and hasattr(caller.network, "objective"):  # one of capsviz's own

            def loss(*values):
                return caller.network.objective(*values).loss

        self._loss: Loss | None = None
        if loss is not None and caller.of_classes:
            self._loss = Loss(caller, loss, self.scores)
        with caller.evaluating():
            self.capsules.require_classes()
            if self._loss is not None:
                self._loss.require_number()

    def scores(self, images: Tensor) -> Tensor:
        """Return scores (B, J), from the output or as the lengths of the poses."""
        if self._score is not None:
            return self._score(self.call(images))
        return self.poses(images).norm(dim=-1)

    @cached_property
    def primary(self) -> PrimaryCapsules:
        """The primary capsules, below the first routed layer; SkippedError if it is unreadable."""
        above = {id(one.layer): one for one in self.capsules.before}
        primary = self.lower
        while (below := primary.below()) is not None:
            if id(below) not in above:
                raise SkippedError(f"primary capsules are made by another routed layer: {below}")
            primary = PrimaryCapsules(above[id(below)])
        return primary

    @property
    def loss(self) -> Loss:
        """The training loss; SkippedError without one, or without classes."""
        if not self.caller.of_classes:
            raise SkippedError("the capsules are not classes, so a loss has no labels")
        if self._loss is None:
            raise SkippedError("no loss is given: loss=, or --loss FILE.py:FUNCTION")
        return self._loss

    @cached_property
    def decode(self) -> Callable:
        """(poses (B, J, E), classes (B,)) -> reconstructions; SkippedError without a decoder."""
        if not self.caller.of_classes:
            raise SkippedError("decoder: the capsules are not classes, of which one is decoded")
        if self.given_decode is False:
            raise SkippedError("decoder: none, as given")
        if self.given_decode is not None:
            return without_cuda()(self.given_decode)
        if self.caller.way == "look" and abilities(self.network).decodes:
            return self.network.decode
        images, output, *_ = self.caller.recorded
        if not outputs.find_reconstruction(output, images, self.caller.image_shape):
            raise SkippedError("decoder: none: no output has the size of an image; give decode=")
        shown = self.capsules.wrapped
        if self._score is not None:
            inferred = replace(shown.inferred, scores=self._score)
            shown = Wrapped(shown.network, shown.recipe, inferred)
        decode, finding = outputs.find_decoder(shown, self.capsules.trial)
        if decode is None:
            raise SkippedError(f"decoder: {finding}")
        return decode

    def untrained(self) -> Candidate:
        """Return the network before training, called in the same way; SkippedError without one."""
        if self.new is None:
            raise SkippedError("no untrained network is given: new=, or --new FILE.py:FUNCTION")
        caller = self.caller
        return Candidate(
            self.new, capsules=None if caller.of_classes else self.classes, recipe=caller.recipe,
            images=caller.own_images, call=None if caller.way == "look" else caller.recipe.call,
            scores=self.given_scores, pair=self.capsules.pair,
        )  # fmt: skip

    def pictures(self, kind: str, count: int, *, again: bool = False) -> Tensor:
        """Return the first images (N, C, H, W) of "train_data" or "test_data", unchanged.

        `again` reads them a second time; a function that returned a tensor or a list is called
        again. SkippedError for a tensor or list without such a function: it cannot change.
        """
        if (given := self._images[kind]) is None:
            flag = f"--{kind.replace('_', '-')}"
            raise SkippedError(f"no data are given: {kind}=, or {flag} FILE.py:FUNCTION")
        if again and given[1] is None and isinstance(given[0], Tensor | list | tuple):
            if not _is_function(self._data[kind]):
                raise SkippedError(
                    f"{kind} are a {type(given[0]).__name__}, which is the same each time: give "
                    "the data set, or a function that reads the images"
                )
            given = _images(kind, self._data[kind]) or given
        items, collate = given
        if isinstance(items, Tensor):
            return items[:count].clone()
        some = [items[k] for k in range(min(count, len(items)))]
        batch = [] if collate is None else tensors(collate(some))
        for one in batch:  # labels, if they are floating-point numbers, have one axis
            if one.is_floating_point() and one.dim() > 1 and len(one) == len(some):
                return one
        some = [one[0] if isinstance(one, tuple | list) else one for one in some]
        if not all(isinstance(one, Tensor) for one in some):
            raise SkippedError(f"items of {kind} are {type(some[0]).__name__}, expected tensors")
        return torch.stack(some)

    def notes(self) -> list[str]:
        """Return warnings that concern all verdicts."""
        try:
            self.caller.require_different()
            with self.caller.evaluating():
                scores = self.scores(self.images(7))
            spread = float((scores.amax(0) - scores.amin(0)).max())
        except Exception:  # the checks say what is wrong
            return []
        if spread >= COLLAPSED:
            return []
        return [
            f"scores differ by at most {spread:.1g} between images: these weights are untrained or "
            "have collapsed, so each PASS is weak evidence"
        ]

    @cached_property
    def _score(self) -> Callable | None:
        """Function output -> scores (B, J), or None if scores are the lengths of the poses."""
        if callable(self.given_scores):
            return self.given_scores
        if self.caller.way == "look":
            return lambda output: output["lengths"]
        images, output, flow, *_ = self.caller.recorded
        form = self.given_scores if self.given_scores != "norms" else None
        try:
            return outputs.find_scores(output, flow, len(images), self.classes, form)[0]
        except ValueError as error:
            raise SkippedError(str(error)) from error


def _images(name: str, value) -> tuple[Any, Callable | None] | None:
    """Return a sequence of images, and the loader's custom `collate_fn` or None.

    `value` may be the sequence, a loader, or a function that returns one of these.
    """
    if (value := _called(name, value)) is None:
        return None
    items = getattr(value, "dataset", value)  # of a loader
    if not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise ValueError(
            f"{name}= must be images (N, C, H, W), or a sequence of images, or of pairs that begin "
            f"with one, got {_shown(value)}"
        )
    if not len(items):
        raise ValueError(f"{name}= holds no images")
    collate = getattr(value, "collate_fn", None)
    return items, None if getattr(collate, "__module__", "").startswith("torch.") else collate


def _is_function(value) -> bool:
    return isinstance(value, FunctionType | MethodType | partial)


def _called(name: str, value):
    if not _is_function(value):
        return value
    try:
        return value()
    except Exception as error:  # a user's code may raise anything
        raise ValueError(f"{name}= raises {in_words(error)}") from error


def _shown(value) -> str:
    """Return numbers and strings as text, and the type of any other value."""
    shown = isinstance(value, int | float | str)
    return repr(value) if shown else type(value).__name__


class Loss:
    """A loss (output, images, labels) -> number, tested on four images of classes 0, 1, 2, ...

    `scores` is a function images -> scores (B, J).
    """

    def __init__(self, caller: Caller, function: Callable, scores: Callable):
        self.caller, self.function, self.scores = caller, function, scores
        self.images = caller.images(IMAGES)
        self.labels = torch.arange(IMAGES, device=self.images.device) % caller.classes

    @cached_property
    def output(self):
        """The network's output that the loss gets, in evaluation mode."""
        return self.caller.output(self.images)

    def require_number(self) -> None:
        """Raise ValueError if the loss raises, or returns no number."""
        try:
            output = self.output
        except Exception:  # the checks say what is wrong
            return
        try:
            value = self.value(output, self.images)
        except Exception as error:  # a user's code may raise anything
            raise ValueError(
                f"loss= raises {in_words(error)}; it is called with (output, images, labels), "
                "output is that of evaluation mode, labels are indices (N,)"
            ) from error
        _number(value)

    def of(self, output, targets: Tensor, labels: Tensor | None = None) -> float:
        """Return the loss in float64; SkippedError if it is not finite."""
        number = _number(self.value(output, targets, labels))
        if not math.isfinite(number):
            raise SkippedError("the loss is not finite")
        return number

    def at(self, present: float, absent: float, after: float | None = None) -> float:
        """Return the loss if the true class has the length `present`, and all others `absent`.

        With `after`, the class after the true one has that length. SkippedError if the output
        holds neither lengths nor poses.
        """
        return self._with(self._replaceable, self._lengths(present, absent, after))

    def ignored(self) -> str | None:
        """Return which input the loss ignores: labels, or lengths of one image; None if neither."""
        generator = torch.Generator().manual_seed(0)  # all different, and all cost something
        mixed = 0.15 + 0.7 * torch.rand(IMAGES, self.caller.classes, generator=generator)
        cost = partial(self._with, self._replaceable)
        starts = [(one, cost(one)) for one in (self._lengths(0.95, 0.05), mixed.to(self.images))]

        def moves(change: Callable[[Tensor], Tensor], labels: Tensor | None = None) -> bool:
            return any(cost(change(one), labels) != own for one, own in starts)

        def inverted(lengths: Tensor, image: int) -> Tensor:
            chosen = torch.arange(IMAGES, device=lengths.device)[:, None] == image
            return torch.where(chosen, 1 - lengths, lengths)

        if self.caller.classes > 1 and not moves(torch.clone, self.labels.roll(1)):
            return "other labels"
        for k in range(IMAGES):
            if not moves(partial(inverted, image=k)):
                return f"other lengths of image {k + 1} of {IMAGES}"
        return None

    def cheapest_classes(self) -> list[int] | None:
        """Return for each image the class whose long capsule costs least.

        None if this is not one class for each label; also for two classes, which cannot distinguish
        a wrong class from a wrong sign.
        """
        short = self._lengths(0.05, 0.05)
        found: list[int] = []
        for k in range(IMAGES if self.caller.classes > 2 else 0):
            costs = []
            for j in range(self.caller.classes):
                lengths = short.clone()
                lengths[k, j] = 0.95
                costs.append(self._with(self._replaceable, lengths))
            least, second = sorted(costs)[:2]
            if least < second - CLOSE * abs(second):
                found.append(costs.index(least))
        pairs = set(zip(self.labels.tolist(), found, strict=False))
        one_to_one = len(pairs) == len(set(found)) == len(self.labels.unique())
        return found if len(found) == IMAGES and one_to_one else None

    def has_gradients(self, output) -> bool:
        """Return whether lengths or poses in the output of a pass with gradients require them."""
        lengths, poses = self._holding
        held = {id(one) for one in (*lengths, *poses)}
        pairs = zip(tensors(self.output), tensors(output), strict=True)
        return any(two.requires_grad for one, two in pairs if id(one) in held)

    def detached(self) -> bool:
        """Return whether the loss depends on the lengths, but has no gradient for them or poses."""
        with torch.no_grad():
            if self.at(0.95, 0.05) == self.at(0.05, 0.95):
                return False
        lengths, poses = self._holding
        leaves = {id(one): one.detach().clone().requires_grad_() for one in (*lengths, *poses)}
        given = {key: leaf.clone() for key, leaf in leaves.items()}  # a loss may change them
        value = self.value(replaced(self.output, given), self.images)
        if not value.requires_grad:
            return True
        found = torch.autograd.grad(value, [*leaves.values()], allow_unused=True)
        return all(one is None for one in found)

    def margin(self) -> float | None:
        """Return the coefficient of the true class in a squared margin loss; None for others."""
        rest = self.at(0.95, 0.05)
        near, false = self.at(0.7, 0.05) - rest, self.at(0.95, 0.3) - rest
        flat = abs(self.at(0.99, 0.01) - rest)
        apart = abs(self.at(0.7, 0.3) - rest - near - false)
        return near / 0.04 if near > 0 and max(flat, apart) <= 0.02 * near else None

    def value(self, output, targets: Tensor, labels: Tensor | None = None):
        """Return the loss, a tensor or a number."""
        inside = self.caller.recipe.normalised(targets)
        labels = self.labels if labels is None else labels
        with without_cuda():
            return Pass(self.caller.network).run(lambda: self.function(output, inside, labels))

    def _lengths(self, present, absent, after=None) -> Tensor:
        right = one_hot(self.labels, self.caller.classes).to(self.images)
        lengths = right * present + (1 - right) * absent
        if after is not None:
            lengths[right.roll(1, 1) > 0] = after
        return lengths

    def _with(self, tensors: list[Tensor], lengths: Tensor, labels: Tensor | None = None) -> float:
        others = {id(tensor): _of_lengths(tensor, lengths) for tensor in tensors}
        return self.of(replaced(self.output, others), self.images, labels)

    @cached_property
    def _holding(self) -> tuple[list[Tensor], list[Tensor]]:
        """Output tensors that hold the lengths, and output tensors of poses with these lengths.

        SkippedError if there are neither.
        """
        with torch.no_grad():
            scores = self.scores(self.images)
        lengths: list[Tensor] = []
        poses: list[Tensor] = []
        for _, tensor in named_tensors(self.output):
            if not tensor.is_floating_point() or tensor.dim() < 2 or len(tensor) != IMAGES:
                continue
            thin = squeezed(tensor)
            values = thin.norm(dim=2) if thin.dim() == 3 else thin
            if values.shape == scores.shape and float((values - scores).abs().max()) < CLOSE:
                (lengths if values is thin else poses).append(tensor)
        if not lengths and not poses:
            raise SkippedError("the output holds neither the lengths nor the poses")
        return lengths, poses

    @cached_property
    def _replaceable(self) -> list[Tensor]:
        """Output tensors from which the loss takes the lengths: those of lengths, else of poses."""
        lengths, poses = self._holding
        right, wrong = self._lengths(0.95, 0.05), self._lengths(0.05, 0.95)
        both = lengths and poses
        if both and self._with(lengths, right) == self._with(lengths, wrong):
            return poses
        return lengths or poses


def _of_lengths(tensor: Tensor, lengths: Tensor) -> Tensor:
    """Return a replacement for a tensor of poses or lengths that has these lengths."""
    thin = squeezed(tensor)
    if thin.dim() == 3:
        unit = thin / thin.norm(dim=2, keepdim=True).clamp_min(1e-12)
        lengths = unit * lengths[:, :, None]
    return lengths.to(tensor).reshape(tensor.shape)


def _number(value) -> float:
    """Return a loss as a float, by way of float64; ValueError if it is not a number."""
    try:
        return float(value.detach().cpu().double() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = getattr(value, "shape", None)
        form = type(value).__name__ + (f" {tuple(shape)}" if shape is not None else "")
        raise ValueError(f"loss= returns {form}, expected a number") from error
