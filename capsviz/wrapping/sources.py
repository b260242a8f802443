"""A part that is named by hand: by a function of the output, a local variable, or a module."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from capsviz.nn.images import like_of
from capsviz.wrapping.compiled import as_written
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.report import Fact
from capsviz.wrapping.trial import Trial
from capsviz.wrapping.variables import Variable, roles_by_size, watching

TARGETS = {"couplings": "BIJ", "votes": "BIJE", "primary": "BID", "poses": "BJE"}

NEGATIVE = 0.1  # share of what couplings add up to that may be below 0


def put_source(wrapped: Wrapped, part: str, source, trial: Trial) -> None:
    """A part that a function of the output, a local variable, or a module's name gives."""
    recipe, name = wrapped.recipe, "children" if part == "primary" else part
    if callable(source):
        recipe.of_output[part] = source
        value, evidence = source(trial.output), "given as a function of the output"
        if not isinstance(value, Tensor) or value.dim() != len(TARGETS[part]):
            shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            axes = ", ".join(TARGETS[part])
            raise ValueError(f"{name}= must return a tensor ({axes}), it returned {shape}")
        shape = tuple(value.shape)
        known = {"B": trial.batch, "J": recipe.classes}
        if any(n != known.get(axis, n) for axis, n in zip(TARGETS[part], shape, strict=True)):
            axes = ", ".join(str(known.get(axis, axis)) for axis in TARGETS[part])
            raise ValueError(
                f"{name}= must return ({axes}) of {trial.batch} images and {recipe.classes} "
                f"classes, it returned {shape}"
            )
        if part == "couplings":
            _refuse_negative(value, "what couplings= gives")
    elif ":" in source or part in ("couplings", "votes"):
        shape, evidence = _watch(wrapped, part, source, trial.batch)
    else:
        shape, evidence = _module(wrapped, part, source, trial.batch)
    if part == "couplings" or (part in ("votes", "primary") and recipe.children is None):
        recipe.children = shape[1]
    wrapped.facts.append(Fact(name, f"(B, {', '.join(map(str, shape[1:]))}), {evidence}"))


def _refuse_negative(values: Tensor, what: str) -> None:
    """Couplings are shares: a bias after a softmax may bring a few below 0, but no more."""
    if float(values.clamp(max=0).sum().abs()) > NEGATIVE * float(values.abs().sum()):
        low, high = float(values.min()), float(values.max())
        raise ValueError(
            f"{what} runs from {low:.2g} to {high:.2g}, expected couplings, none of them negative"
        )


def _images(wrapped: Wrapped, batch: int) -> Tensor:
    like = like_of(wrapped.network)
    generator = torch.Generator().manual_seed(batch)
    return torch.rand(batch, *wrapped.recipe.image_shape, generator=generator).to(like)


def _watch(wrapped: Wrapped, part: str, source: str, batch: int):
    recipe = wrapped.recipe
    variable = Variable(wrapped.network, source)
    with watching([variable]):
        wrapped.passed(_images(wrapped, batch))
    wide = len(TARGETS[part])
    values = variable.alike()
    if not values or values[-1].squeeze().dim() < wide - 1:
        raise ValueError(f"{source} held no tensor with {wide - 1} axes or more at last")
    sizes = {"B": batch}
    if "J" in TARGETS[part]:
        sizes["J"] = recipe.classes
    if part != "couplings" and "I" in TARGETS[part] and recipe.children:
        sizes["I"] = recipe.children
    rest = TARGETS[part][-1] if part != "couplings" else "I"
    if part == "couplings":
        _refuse_negative(values[-1], source)
    roles = roles_by_size(tuple(values[-1].shape), sizes, rest, source)
    recipe.variables[part] = (variable, roles)
    size = dict.fromkeys(TARGETS[part], 1)
    for role, n in zip(roles, values[-1].shape, strict=True):
        if role in size:
            size[role] *= n
    evidence = f"watched in {source}, {len(values)} value{'s' if len(values) > 1 else ''}"
    return tuple(size.values()), evidence + ("; read only" if part == "couplings" else "")


def _module(wrapped: Wrapped, part: str, source: str, batch: int):
    recipe = wrapped.recipe
    modules = {name: as_written(one) for name, one in wrapped.network.named_modules()}
    if source not in modules:
        known = ", ".join(name for name in list(modules)[:12] if name)
        raise ValueError(f"there is no module '{source}', expected one of: {known}")
    outputs: list[Tensor] = []
    handle = modules[source].register_forward_hook(
        lambda _, __, out: outputs.append(tensors(out)[0]) if tensors(out) else None
    )
    try:
        wrapped.passed(_images(wrapped, batch))
    finally:
        handle.remove()
    if not outputs:
        raise ValueError(f"module '{source}' gave no tensor in this pass")
    count = recipe.classes if part == "poses" else recipe.children
    shape = tuple(outputs[-1].shape)
    axes = [k for k, n in enumerate(shape) if k > 0 and n == count]
    if shape[0] != batch or not axes:
        raise ValueError(
            f"module '{source}' gives {shape}, expected the images first and an axis of {count}"
        )

    def read(out, axis=axes[0]):
        return out.movedim(axis, 1).flatten(2)

    recipe.of_modules[part] = _Reshaped(modules[source], read)
    value = read(outputs[-1])
    return tuple(value.shape), f"output of module {source} {shape}"


class _Reshaped:
    """A module's output in another shape, where a hook on the module is wanted."""

    def __init__(self, module: nn.Module, read):
        self.module, self.read = module, read

    def register_forward_hook(self, hook):
        """As of the module."""
        return self.module.register_forward_hook(
            lambda module, source, out: hook(module, source, self.read(tensors(out)[0]))
        )
