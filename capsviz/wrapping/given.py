"""Check the options of `wrap`, and read parts from a user's function, variable or module."""

from collections.abc import Callable, Mapping
from functools import wraps
from itertools import chain, combinations
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.wrapping.environment import as_written, in_words, raised_at
from capsviz.wrapping.example import Example
from capsviz.wrapping.flow import Roles
from capsviz.wrapping.layers import Recorded, repeats
from capsviz.wrapping.recorder import Pass, find_variable, like_the_last, outputs_of, watching
from capsviz.wrapping.taps import TARGETS, OfModule, OfOutput, Reader, Recipe, Watched, called

KINDS: dict[str, tuple[str, Callable]] = {
    "call": ("a function (network, images) or None", callable),
    "decode": ("a function (poses, classes), False or None", lambda v: v is False or callable(v)),
    "pair": ("a name or None", lambda value: isinstance(value, str)),
    "card": ("a mapping or None", lambda value: isinstance(value, Mapping)),
}
PART = ("a function, a name or None", lambda v: isinstance(v, str) or callable(v))  # the others
NEGATIVE = 0.1  # negative couplings may make up this share of the sum of absolute values


def by_hand(**options) -> list:
    """Check these options of `wrap` and return them; errors in functions name the option.

    ValueError for a value of the wrong kind.
    """
    for name, value in options.items():
        form, fits = KINDS.get(name, PART)
        if value is not None and not fits(value):
            raise ValueError(f"{name}= must be {form}, got {value!r}")
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


def recipe_of(
    network: nn.Module, image_shape, classes, *, capsules=None, example=None, normalise=None,
    call=None, pair=None,
) -> Recipe:  # fmt: skip
    """Return how to run a network, from options of `wrap`; ValueError if they do not fit.

    `image_shape` may also be (H, W).
    """
    count = classes if capsules is None else capsules
    if (classes is None) == (capsules is None) or type(count) is not int or count < 2:
        raise ValueError(
            "expected a number of classes, at least 2, or capsules= that are not classes, got "
            f"classes={classes!r} and capsules={capsules!r}"
        )
    if (image_shape is None) == (example is None) or (normalise and example is not None):
        raise ValueError(
            "expected image_shape= or example=, exactly one; normalise= goes with image_shape="
        )
    if example is not None:
        sample = Example(example)
        if like_of(network).element_size() < 4:
            raise ValueError("example= needs a network in float32 or float64: network.float()")
        return Recipe(call or called, sample.shape, count, pair=pair, example=sample)
    shape = tuple(image_shape) if isinstance(image_shape, tuple | list) else ()
    if not (2 <= len(shape) <= 3 and all(isinstance(side, int) and side > 0 for side in shape)):
        raise ValueError(f"expected image_shape as (C, H, W), got {image_shape!r}")
    scale = None if normalise is None else mean_and_deviation(normalise)
    return Recipe(call or called, (1, *shape)[-3:], count, scale, pair=pair)


def whole_grid(grid) -> tuple[int, int, int] | str | None:
    """Return the grid option of `wrap`, a sequence as a tuple; ValueError if it is invalid."""
    if grid is None or grid == "probe":
        return grid
    sides = tuple(grid) if isinstance(grid, tuple | list) else ()
    if len(sides) != 3 or not all(type(side) is int and side > 0 for side in sides):
        raise ValueError(f"grid= must be (types, rows, columns), 'probe' or None, got {grid!r}")
    return sides


def mean_and_deviation(normalise) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation from `normalise=`, each (C, 1, 1) or (1, 1, 1)."""
    try:
        mean, std = (torch.as_tensor(v).reshape(-1, 1, 1).float().clone() for v in normalise)
        valid = bool((std > 0).all() and std.isfinite().all() and mean.isfinite().all())
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ValueError(
            "normalise= must be (mean, standard deviation above 0), numbers or one a channel, got "
            f"{normalise!r}"
        )
    return mean, std


Given = tuple[Reader, int, str]  # its reader, the length of its second axis, the evidence


def read_given(
    network: nn.Module, recipe: Recipe, recorded: Recorded, part: str, source: Callable | str,
    children: int | None = None,
) -> Given:  # fmt: skip
    """Return how to read a part from a function of the output, a local variable, or a module.

    `part` is "couplings", "votes", "primary" or "poses". `children` is the number of children, if
    known. ValueError if the source gives no such part.
    """
    if callable(source):
        return _function(recipe, recorded, part, source)
    like = like_of(network)
    images = recipe.draw(len(recorded.images), len(recorded.images)).to(like)

    def run() -> None:
        recipe.run(Pass(network), images)

    if ":" in source or part in ("couplings", "votes"):
        sizes = {"B": len(recorded.images), "J": recipe.classes, "I": children}
        known = {role: n for role, n in sizes.items() if role in TARGETS[part] and n}
        if part == "couplings":
            known.pop("I", None)
        return _variable(network, run, part, source, known)
    count = recipe.classes if part == "poses" else children
    return _module(network, run, source, len(recorded.images), count)


def _finding(shape: tuple[int, ...], evidence: str) -> str:
    return f"(B, {', '.join(map(str, shape))}), {evidence}"


def _function(recipe: Recipe, recorded: Recorded, part: str, source: Callable) -> Given:
    value = source(recorded.output)
    shape: Any = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
    known = {"B": len(recorded.images), "J": recipe.classes}
    expected = [known.get(axis, axis) for axis in TARGETS[part]]
    if (
        not isinstance(value, Tensor)
        or value.dim() != len(expected)
        or any(isinstance(e, int) and n != e for n, e in zip(shape, expected, strict=True))
    ):
        name = "children" if part == "primary" else part
        axes = ", ".join(map(str, expected))
        raise ValueError(f"{name}= must return a tensor ({axes}), it returned {shape}")
    if part == "couplings":
        _refuse_negative(value, "what couplings= gives")
    return OfOutput(source), shape[1], _finding(shape[1:], "given as a function of the output")


def _refuse_negative(values: Tensor, what: str) -> None:
    """Raise ValueError for many negative couplings; a bias after a softmax gives few at most."""
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
        raise ValueError(f"{source} held no tensor with {len(target) - 1} axes or more at the end")
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
    shape = tuple(size.values())[1:]
    return Watched(variable, roles, target), shape[0], _finding(shape, evidence)


def _roles_by_size(value: Tensor, sizes: dict[str, int], rest: str, what: str) -> Roles:
    """Return the role of each axis from its length; axes of other lengths get the role `rest`.

    Children may span several axes; the product of their lengths is the number of children. Axes of
    repeated couplings (one copy per pose component, for example) are not children.
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
    parts = source.partition("[")
    path, leaf = (source, "") if source in modules else (parts[0], "".join(parts[1:]))
    if path not in modules:
        known = ", ".join(name for name in list(modules)[:12] if name)
        raise ValueError(f"there is no module '{path}', expected one of: {known}")
    with outputs_of(modules[path]) as outputs:
        run()
    if not outputs or not outputs[-1]:
        raise ValueError(f"module '{path}' gave no tensor in this pass")
    given = outputs[-1]
    axes = {
        name: k
        for name, one in given.items()
        for k, n in reversed(list(enumerate(one.shape)))
        if k > 0 and n == count and len(one) == batch and leaf in ("", name)
    }
    if len(axes) != 1:
        shapes = ", ".join(f"'{path}{name}' {tuple(one.shape)}" for name, one in given.items())
        raise ValueError(
            f"module '{path}' gives {shapes}, expected the images first and an axis of {count} in "
            f"one of them, found it in {len(axes)}: name that one"
        )
    ((name, axis),) = axes.items()
    reader = OfModule(modules[path], name, axis)
    (own,) = reader.read({modules[path]: outputs[-1:]}, None)
    evidence = f"output of module {path}{name} {tuple(given[name].shape)}"
    return reader, own.shape[1], _finding(tuple(own.shape)[1:], evidence)
