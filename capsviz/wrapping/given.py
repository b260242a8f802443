"""Check what is given to `wrap`, and read parts that a function, variable or module gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from itertools import chain, combinations
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.wrapping.environment import as_written, in_words, raised_at
from capsviz.wrapping.flow import Roles
from capsviz.wrapping.layers import Recorded
from capsviz.wrapping.products import repeats
from capsviz.wrapping.recorder import find_variable, like_the_last, outputs_of, watching
from capsviz.wrapping.taps import (
    TARGETS,
    OfModule,
    OfOutput,
    Reader,
    Recipe,
    TapPass,
    Watched,
)

PART = "a function, a name or None"  # couplings, votes, children, poses
KINDS: dict[str, tuple[str, Callable]] = {
    "call": ("a function (network, images) or None", callable),
    "decode": ("a function (poses, classes), False or None", lambda v: v is False or callable(v)),
    "pair": ("a name or None", lambda value: isinstance(value, str)),
    "card": ("a mapping or None", lambda value: isinstance(value, Mapping)),
}
NEGATIVE = 0.1  # share of the sum of couplings that may be below 0


def by_hand(**options) -> list:
    """Return the values of these options of `wrap`; functions among them name themselves in errors.

    Raises
    ------
    ValueError  in one line, for a value of another kind.
    """
    for name, value in options.items():
        form, fits = KINDS.get(name, (PART, lambda v: isinstance(v, str) or callable(v)))
        if value is not None and not fits(value):
            raise ValueError(f"{name}= must be {form}, got {value!r}")
    if options.get("call") is not None:
        try:
            inspect.signature(options["call"]).bind(None, None)
        except TypeError as error:
            raise ValueError(f"call= must take (network, images): {error}") from error
        except ValueError:  # of a function that has no signature
            pass
    return [
        _named(name, value) if callable(value) and name != "call" else value
        for name, value in options.items()
    ]


def _named(name: str, function: Callable) -> Callable:
    @wraps(function, updated=())
    def answer(*arguments):
        try:
            return function(*arguments)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # the user's code may raise anything
            raise ValueError(f"{name}= raises {in_words(error)}{raised_at(error)}") from error

    return answer


def whole_shape(image_shape, classes) -> tuple[int, int, int]:
    """Return (C, H, W) of images that are given so or as (H, W).

    Raises
    ------
    ValueError  for other shapes, and for other than a number of classes.
    """
    shape = tuple(image_shape) if isinstance(image_shape, tuple | list) else ()
    if not (2 <= len(shape) <= 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise ValueError(f"expected image_shape as (C, H, W), got {image_shape!r}")
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 2:
        raise ValueError(f"expected a number of classes, at least 2, got {classes!r}")
    channels, height, width = (1, *shape)[-3:]
    return channels, height, width


def whole_grid(grid) -> tuple[int, int, int] | str | None:
    """Return a grid as `wrap` takes it, as a tuple; ValueError for anything else."""
    if grid is None or grid == "probe":
        return grid
    sides = tuple(grid) if isinstance(grid, tuple | list) else ()
    if len(sides) != 3 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f"grid= must be (types, rows, columns), 'probe' or None, got {grid!r}")
    return sides


def mean_and_deviation(normalise) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (C, 1, 1) as `normalise=` gives them, or (1, 1, 1)."""
    try:
        mean, std = (torch.tensor(v).reshape(-1, 1, 1).float() for v in normalise)
    except (TypeError, ValueError) as error:
        raise ValueError(
            "normalise= must be (mean, standard deviation), numbers or one a channel, got "
            f"{normalise!r}"
        ) from error
    if not bool((std > 0).all() and std.isfinite().all() and mean.isfinite().all()):
        raise ValueError(f"normalise= expects a deviation above 0, got {normalise!r}")
    return mean, std


class Given(NamedTuple):
    """How a part that is given by hand is read."""

    reader: Reader
    shape: tuple[int, ...]  # without the images
    evidence: str

    @property
    def finding(self) -> str:
        """Shape and evidence, for a report."""
        return f"(B, {', '.join(map(str, self.shape))}), {self.evidence}"


def read_given(
    network: nn.Module, recipe: Recipe, recorded: Recorded, part: str, source: Callable | str,
    children: int | None = None,
) -> Given:  # fmt: skip
    """Return how a part is read by a function of the output, a local variable, or a module.

    Parameters
    ----------
    part      "couplings", "votes", "primary" or "poses".
    children  how many there are, where that is known.

    Raises
    ------
    ValueError  where the source gives no such part.
    """
    if callable(source):
        return _function(recipe, recorded, part, source)
    like = like_of(network)
    generator = torch.Generator().manual_seed(recorded.batch)
    images = torch.rand(recorded.batch, *recipe.image_shape, generator=generator).to(like)

    def run() -> None:
        recipe.run(TapPass(network, []), network, recipe.normalised(images))

    if ":" in source or part in ("couplings", "votes"):
        sizes = {"B": recorded.batch}
        if "J" in TARGETS[part]:
            sizes["J"] = recipe.classes
        if part != "couplings" and "I" in TARGETS[part] and children:
            sizes["I"] = children
        return _variable(network, run, part, source, sizes)
    count = recipe.classes if part == "poses" else children
    return _module(network, run, source, recorded.batch, count)


def _function(recipe: Recipe, recorded: Recorded, part: str, source: Callable) -> Given:
    name, target = "children" if part == "primary" else part, TARGETS[part]
    value = source(recorded.output)
    if not isinstance(value, Tensor) or value.dim() != len(target):
        shape: Any = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        axes = ", ".join(target)
        raise ValueError(f"{name}= must return a tensor ({axes}), it returned {shape}")
    shape = tuple(value.shape)
    known = {"B": recorded.batch, "J": recipe.classes}
    if any(n != known.get(axis, n) for axis, n in zip(target, shape, strict=True)):
        axes = ", ".join(str(known.get(axis, axis)) for axis in target)
        raise ValueError(
            f"{name}= must return ({axes}) of {recorded.batch} images and {recipe.classes} "
            f"classes, it returned {shape}"
        )
    if part == "couplings":
        _refuse_negative(value, "what couplings= gives")
    return Given(OfOutput(source), shape[1:], "given as a function of the output")


def _refuse_negative(values: Tensor, what: str) -> None:
    """Couplings are shares: a bias after a softmax may bring a few below 0, but no more."""
    if float(values.clamp(max=0).sum().abs()) > NEGATIVE * float(values.abs().sum()):
        low, high = float(values.min()), float(values.max())
        raise ValueError(
            f"{what} runs from {low:.2g} to {high:.2g}, expected couplings, none of them negative"
        )


def _variable(
    network: nn.Module, run: Callable, part: str, source: str, sizes: dict[str, int]
) -> Given:
    variable, target = find_variable(network, source), TARGETS[part]
    with watching([variable]) as collected:
        run()
    values = like_the_last(collected[variable])
    if not values or values[-1].squeeze().dim() < len(target) - 1:
        raise ValueError(f"{source} held no tensor with {len(target) - 1} axes or more at last")
    if part == "couplings":
        _refuse_negative(values[-1], source)
    roles = _roles_by_size(values[-1], sizes, "I" if part == "couplings" else target[-1], source)
    size = dict.fromkeys(target, 1)
    for role, n in zip(roles, values[-1].shape, strict=True):
        if role in size:
            size[role] *= n
    evidence = f"watched in {source}, {len(values)} value{'s' if len(values) > 1 else ''}"
    evidence += f", axes {''.join(roles)}" if roles.count("I") > 1 else ""
    evidence += "; read only" if part == "couplings" else ""
    return Given(Watched(variable, roles), tuple(size.values())[1:], evidence)


def _roles_by_size(value: Tensor, sizes: dict[str, int], rest: str, what: str) -> Roles:
    """Return the role of each axis by its length; axes of other lengths are of the `rest`.

    Children may be several axes, whose lengths make their number. Axes along which couplings are
    repeated, as for each number of a pose, are no children.
    """
    roles = ["." if n == 1 else rest for n in value.shape]
    for role, size in sizes.items():
        free = [k for k, n in enumerate(value.shape) if n > 1 and roles[k] == rest]
        fits: list[tuple[int, ...]] = [(k,) for k in free if value.shape[k] == size]
        if role == "I" and not fits:
            several = (axes for n in range(2, len(free)) for axes in combinations(free, n))
            fits = [axes for axes in several if prod(value.shape[k] for k in axes) == size]
        if len(fits) != 1 and role != "B":
            raise ValueError(
                f"{what} of shape {tuple(value.shape)}: expected one axis of length {size} "
                f"({role}), found {len(fits)}; give a function that returns it in order"
            )
        for axis in chain(*fits[:1]):
            roles[axis] = role
    others = [k for k, role in enumerate(roles) if role == rest]
    if rest == "I" and len(others) > 1:
        copies = [k for k in others if repeats(value, k)]
        if copies == others:
            raise ValueError(
                f"{what} of shape {tuple(value.shape)}: all couplings are equal, which does not "
                "tell the axis of the children; give a function that returns (B, I, J)"
            )
        roles = ["." if k in copies else role for k, role in enumerate(roles)]
    return tuple(roles)


def _module(network: nn.Module, run: Callable, source: str, batch: int, count: int | None) -> Given:
    modules = {name: as_written(one) for name, one in network.named_modules()}
    if source not in modules:
        known = ", ".join(name for name in list(modules)[:12] if name)
        raise ValueError(f"there is no module '{source}', expected one of: {known}")
    with outputs_of(modules[source]) as outputs:
        run()
    if not outputs:
        raise ValueError(f"module '{source}' gave no tensor in this pass")
    shape = tuple(outputs[-1].shape)
    axes = [k for k, n in enumerate(shape) if k > 0 and n == count]
    if shape[0] != batch or not axes:
        raise ValueError(
            f"module '{source}' gives {shape}, expected the images first and an axis of {count}"
        )
    reader = OfModule(modules[source], axes[0])
    own = tuple(reader.read(outputs[-1]).shape)
    return Given(reader, own[1:], f"output of module {source} {shape}")
