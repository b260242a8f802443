"""Somebody else's network as capsviz looks at one: `look`, `decode`, `grid`, `receptive_field`."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from capsviz.nn.models import Output
from capsviz.nn.routing import Parents
from capsviz.wrapping.bare import Bare
from capsviz.wrapping.layout import arrange
from capsviz.wrapping.leaves import tensors
from capsviz.wrapping.variables import watching

PER_ROUND = ("logits", "couplings", "weights", "poses")
ALONE = threading.RLock()  # whoever sets attributes of a network, or listens to its modules


class Wrapped(Bare):
    """A capsule network that can be traced. `wrap` makes it; see there.

    `peculiar` names what is unlike a CapsNet of 2017, for whoever verifies a trace:
        "norms"  scores are not the norms of the poses
        "sums"   couplings of a child do not sum to 1 over parents
        "votes"  poses do not point along the weighted sum of votes
    """

    def __init__(self, network, recipe, facts, card):
        super().__init__(network, recipe, facts, card)
        self.grid: tuple[int, int, int] | None = None
        self.fields: tuple | None = None  # rows and columns of the image that each place sees
        self.order: Tensor | None = None  # child of theirs for each of the grid's
        self.peculiar: dict[str, str] = {}

    @property
    def decoder(self):
        """None for a network that cannot decode."""
        return self.recipe.decode

    @property
    def parts(self) -> set[str]:
        """Names of what `look` can give."""
        recipe = self.recipe
        names = {tap.part for tap in recipe.taps} | {"lengths"}
        names |= {*recipe.variables, *recipe.of_output, *recipe.of_modules}
        return names | ({"reconstruction"} if recipe.decode else set())

    @property
    def replaceable(self) -> set[str]:
        """Which of "couplings", "iterations" and "children" can be replaced."""
        found = {
            "couplings": bool(self.recipe.entries),
            "iterations": self.recipe.iterations is not None,
            "children": self.recipe.child_entry is not None,
        }
        return {name for name, there in found.items() if there}

    def forward(self, images: Tensor) -> Output:
        """Images (B, C, H, W) in [0, 1] -> scores (B, J), poses (B, J, E), primary (B, I, D)."""
        traced = self.look(images, keep=("lengths", "poses", "primary"))
        poses = traced.get("poses")
        return Output(
            traced["lengths"], None if poses is None else poses[-1], traced.get("primary")
        )

    def from_children(
        self, children: Tensor, activations: Tensor | None = None, *, couplings=None
    ) -> Parents:
        """The classes, of children (B, I, D) that need not be those of an image.

        Activations are what the network makes of the children. ValueError where children, or
        couplings of single iterations, cannot be put in.
        """
        if isinstance(couplings, list):
            raise ValueError("couplings of single iterations of this network cannot be replaced")
        images = children.new_zeros(len(children), *self.recipe.image_shape)
        options = {"keep": ("poses", "lengths"), "couplings": couplings, "children": children}
        shown = self.look(images, **options)
        return Parents(shown["poses"][-1] if "poses" in shown else None, shown["lengths"])

    def look(
        self, images: Tensor, *, keep, couplings=None, iterations=None, children=None
    ) -> dict[str, Tensor]:
        """One pass for `capsviz.tracing`; `children` (B, I, D) in place of those of the images.

        Raises
        ------
        ValueError  for couplings or children where they cannot be put in, or iterations that are
                    not its own.
        """
        recipe, count = self.recipe, len(images)
        names = {"primary" if part == "children" else part for part in keep}
        if "reconstruction" in names or recipe.scores is None:
            names.add("poses")
        if couplings is not None:
            couplings = self._theirs(couplings, images)
        put = None
        if children is not None:
            if recipe.child_entry is None:
                raise ValueError("children of this network can be read at most, not replaced")
            put = (recipe.child_entry, self._in_their_order(children, images))
        taps = [tap for tap in recipe.taps if tap.part in names]
        readings: dict[str, list[Tensor]] = {}
        with ExitStack() as stack:
            if recipe.iterations or recipe.of_modules or recipe.variables:
                stack.enter_context(ALONE)
            stack.enter_context(self._iterating(iterations))
            for part, module in recipe.of_modules.items():
                if part in names:
                    stack.enter_context(_output_of(module, readings.setdefault(part, [])))
            variables = [v for part, (v, _) in recipe.variables.items() if part in names]
            stack.enter_context(watching(variables))
            output, mode = self.passed(images, taps, recipe.entries, couplings, children=put)
        readings.update(mode.readings)
        if couplings is not None and not mode.exchanges:
            raise ValueError("couplings were not put in: this pass did not come where they enter")
        if put is not None and not mode.puts:
            raise ValueError("children were not put in: this pass did not come where they enter")
        for part, (variable, roles) in recipe.variables.items():
            if part in names:
                target = {"votes": "BIJE", "primary": "BID", "poses": "BJE"}.get(part, "BIJ")
                readings[part] = [arrange(value, roles, target, {}) for value in variable.alike()]
        for part, function in recipe.of_output.items():
            if part in names:
                readings[part] = [function(output)]
        traced = self.joined(readings, max(count, recipe.smallest))
        if recipe.scores is not None:
            traced["lengths"] = recipe.scores(output)
        else:
            traced["lengths"] = traced["poses"][-1].norm(dim=-1)
        traced = {
            part: value[:, :count] if part in PER_ROUND else value[:count]
            for part, value in traced.items()
        }
        if "reconstruction" in names and recipe.decode is not None:
            winners = traced["lengths"].argmax(1)
            traced["reconstruction"] = recipe.decode(traced["poses"][-1], winners)
        return traced

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct from the poses (B, J, E) of `classes` (B,): images (B, C, H, W) in [0, 1]."""
        if self.recipe.decode is None:
            raise ValueError(
                "this network has no decoder that capsviz knows: give wrap decode=lambda poses, "
                "classes: images (B, C, H, W) in [0, 1]"
            )
        return self.recipe.decode(poses, classes)

    def receptive_field(self, row: int, column: int) -> tuple[slice, slice]:
        """Rows and columns of the image that the capsules of one place can see."""
        if self.fields is None:
            raise ValueError(
                "the capsules of this network have no places: grid is None, so there are no maps"
            )
        rows, columns = self.fields
        return rows[row], columns[column]

    def capsules(self, images: Tensor, part: str) -> Tensor:
        """Its "primary" or "votes" as vectors (B, I, ·), in its own order; the pass ends there."""
        taps = [tap for tap in self.recipe.taps if tap.part == part]
        if not taps:
            return self.look(images, keep=(part,))[part].flatten(2)
        _, mode = self.passed(images, taps, until=part)
        return mode.readings[part][-1].flatten(2)

    def joined(self, readings: dict[str, list[Tensor]], count: int) -> dict[str, Tensor]:
        """What taps took of that many images, in the grid's order: a tensor for each part."""
        traced = {}
        for part, values in readings.items():
            if not values:
                continue
            values = [v.expand(count, *v.shape[1:]) if len(v) != count else v for v in values]
            whole = torch.stack(values) if part in PER_ROUND else values[-1]
            axis = 2 if part in ("logits", "couplings", "weights") else 1
            if self.order is not None and part not in ("poses", "lengths"):
                whole = whole.index_select(axis, self.order.to(whole.device))
            traced[part] = whole
        if (
            "logits" in traced
            and "couplings" in traced
            and len(traced["logits"]) != len(traced["couplings"])
        ):
            del traced["logits"]  # of some passes only
        if len(traced.get("poses", ())) > len(traced.get("couplings", traced.get("poses", ()))):
            traced["poses"] = traced["poses"][-1:]  # those of passes before are not told apart
        return traced

    def _theirs(self, couplings: Tensor, images: Tensor) -> Tensor:
        recipe = self.recipe
        if not recipe.entries:
            raise ValueError(
                "couplings of this network can be read, but not replaced: they are not the "
                "operand of a product that capsviz sees"
            )
        if couplings.dim() == 2:
            couplings = couplings[None]
        expected = (recipe.children, recipe.classes)
        if tuple(couplings.shape[1:]) != expected:
            raise ValueError(f"expected couplings of {expected}, got {tuple(couplings.shape[1:])}")
        return self._in_their_order(couplings, images)

    def _in_their_order(self, values: Tensor, images: Tensor) -> Tensor:
        """Values (B, I, ·) for the children in the network's own order; one image's for all."""
        count = max(len(images), self.recipe.smallest)
        if len(values) < count:
            values = values[:1].expand(count, -1, -1)
        if self.order is None:
            return values
        back = torch.empty_like(self.order)
        back[self.order] = torch.arange(len(back))
        return values.index_select(1, back.to(values.device))

    @contextmanager
    def _iterating(self, iterations: int | None):
        if iterations is None or iterations == self.recipe.passes:
            yield
            return
        if self.recipe.iterations is None:
            own = len({e.site for e in self.recipe.entries})
            raise ValueError(
                f"the number of routing iterations of this network cannot be changed, got "
                f"{iterations}: no attribute of it was found to set them"
                + ("" if own else "; it routes in one pass")
            )
        if iterations < 1:
            raise ValueError(f"routing iterations must be at least 1, got {iterations}")
        owner, name, none = self.recipe.iterations
        before = getattr(owner, name)
        setattr(owner, name, none + iterations)
        try:
            yield
        finally:
            setattr(owner, name, before)


@contextmanager
def _output_of(module: nn.Module, readings: list[Tensor]):
    def keep(_, __, output):
        readings[:] = [*readings, tensors(output)[0]]

    handle = module.register_forward_hook(keep)
    try:
        yield
    finally:
        handle.remove()
