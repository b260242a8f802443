"""`Trace`: the recorded parts of a forward pass; functions that select and check them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

from torch import Tensor

from capsviz.discovery import unknown
from capsviz.nn.quantity import Quantity


@dataclass(frozen=True)
class Trace:
    """One forward pass of N images through one routed layer, on the CPU.

    Parts that were not kept, or that the network does not have, are None. With a `grid`, child i
    has the type and position for which i = (type * rows + row) * columns + column. On the axis R,
    index -1 is the last iteration. In dynamic routing, index 0 holds zero logits and uniform
    couplings. A layer with `links` has an axis of positions, Q, after N.

    Children are (N, I, D), votes (N, I, J, E), couplings and logits (R, N, I, J), poses
    (R, N, J, E), activations (R, N, J), lengths (N, J), reconstructions (N, C, H, W).
    """

    images: Tensor  # (N, C, H, W) in [0, 1]
    grid: tuple[int, int, int] | None  # (types, rows, columns) of the children; None: no grid
    pose_shape: tuple[int, ...] | None = None  # of a parent's pose: (E,) or (4, 4); None: unknown
    links: object | None = None  # which children each position sees; None: all
    children: Tensor | None = None  # (N, I, D); primary capsules for the first routed layer
    child_activations: Tensor | None = None  # (N, I); by default lengths of children
    votes: Tensor | None = None  # (N, I, J, E)
    logits: Tensor | None = None  # (R, N, I, J)
    couplings: Tensor | None = None  # (R, N, I, J)
    weights: Tensor | None = None  # (R, N, I, J) factors of the votes, if not the couplings
    evidence: Tensor | None = None  # (R, N, I, J) of each vote, if the routing decomposes it itself
    poses: Tensor | None = None  # (R, N, J, E)
    activations: Tensor | None = None  # (R, N, J); by default norms of poses
    reconstruction: Tensor | None = None  # (N, C, H, W) of the most active; None: no decoder
    last: Tensor | None = None  # (N, J) activations after the last iteration, if kept alone
    extent: tuple[float, float, float, float] | None = None  # of the grid, in px: left, right, ...
    quantity: Quantity | None = None  # description of `evidence`
    classes: tuple[str, ...] | None = None  # (J,) names on the network's card; None: unknown

    def __repr__(self) -> str:
        """Return the shapes of the parts that are not None."""
        shown = []
        for field in fields(self):
            value = getattr(self, field.name)
            value = getattr(value, "child", value)  # links: their table (positions, slots)
            if isinstance(value, Tensor):
                value = tuple(value.shape)
            if value is not None:
                shown.append(f"{field.name}={value}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def require(self, name: str) -> Tensor:
        """Return a part, such as `couplings`; ValueError if this trace does not have it."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"this trace has no {name}: ask for it with keep=[{name!r}]")
        return value

    @property
    def primary(self) -> Tensor | None:
        """The children, (N, I, D)."""
        return self.children

    @property
    def lengths(self) -> Tensor | None:
        """Activations (N, J) after the last iteration; for vector capsules their lengths."""
        return self.last if self.activations is None else self.activations[-1]

    @property
    def factors(self) -> Tensor | None:
        """Factors of the votes, (R, N, I, J): `weights`, or `couplings` if it is None."""
        return self.couplings if self.weights is None else self.weights


ABOUT = (  # fields of every trace, whatever is kept
    "images", "grid", "pose_shape", "links", "extent", "quantity", "classes",
)  # fmt: skip
ALIASES = {"primary": "children", "lengths": "last"}  # other names in `keep` -> fields
PARTS = tuple(f.name for f in fields(Trace) if f.name not in ABOUT)
KEEP = tuple(name for name in PARTS if name != "last")  # everything
PER_ITERATION = (  # their batch axis is the second
    "logits", "couplings", "weights", "evidence", "poses", "activations",
)  # fmt: skip
OPTIONAL = ("weights", "evidence", "reconstruction")  # parts that a network need not have
FINITE = ("last", "activations", "children", "couplings", "poses", "reconstruction")  # checked

# field -> names to request from `look`; `parts_from` makes what those that it gives allow
SOURCES = {
    "children": ("children", "primary"),
    "child_activations": ("child_activations", "children", "primary"),
    "activations": ("activations", "poses", "lengths"),
    "last": ("lengths",),
}


def fields_of(keep: Sequence[str]) -> tuple[str, ...]:
    """Return the fields of a trace for the names in `keep`, each once; ValueError if unknown."""
    for name in keep:
        if name not in PARTS and name not in ALIASES:
            raise ValueError(unknown("part of a trace", name, [*KEEP, *ALIASES]))
    names = dict.fromkeys(ALIASES.get(name, name) for name in keep)
    if "activations" in names:
        names.pop("last", None)  # it is the last entry of activations
    return tuple(names)


def names_for(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the names that `look` must keep for these fields of a trace."""
    return tuple(dict.fromkeys(name for part in parts for name in SOURCES.get(part, (part,))))


def parts_from(values: dict[str, Tensor], parts: Sequence[str]) -> dict[str, Tensor]:
    """Return those fields of a trace that the output of `look` holds.

    If activations are missing, they are the norms of the poses, with the last ones replaced by
    `lengths` if given.
    """
    fields = {}
    for part in parts:
        value = values.get(part)
        if value is None and part in ("children", "child_activations"):
            value = values.get("children", values.get("primary"))
            if value is not None and part == "child_activations":
                value = value.norm(dim=-1)
        elif value is None and part == "activations" and "poses" in values:
            value = values["poses"].norm(dim=-1)
            if "lengths" in values:
                value = value.to(values["lengths"].dtype)
                value[-1] = values["lengths"]
        elif value is None and part == "last":
            value = last_activations(values)
        if value is not None:
            fields[part] = value.detach()
    return fields


def last_activations(values: dict[str, Tensor]) -> Tensor | None:
    """Return activations (N, J) after the last iteration from the output of `look`."""
    if "lengths" in values:
        return values["lengths"]
    if "activations" in values:
        return values["activations"][-1]
    return values["poses"][-1].norm(dim=-1) if "poses" in values else None


class NotFiniteError(FloatingPointError, ValueError):
    """Results are NaN or infinite: the weights are damaged, or the precision is too low."""


def require_finite(values: Tensor, what: str) -> Tensor:
    """Return the values (N, ...) if all are finite.

    Else raise NotFiniteError with the number of affected images, and the first of them.
    """
    wrong = (~values.isfinite()).reshape(len(values), -1).any(1).nonzero()
    if len(wrong):
        raise NotFiniteError(
            f"{what} for {len(wrong)} of {len(values)} images are not numbers, the first for image "
            f"{int(wrong[0])}: the weights are damaged, or overflow in this precision"
        )
    return values


def require_finite_parts(parts: dict[str, Tensor], network: str) -> None:
    """Raise NotFiniteError, with the network's name, for parts of a trace that are not finite.

    Otherwise, NaN would be predicted as the first class. Votes, logits, weights and evidence are
    not checked, because the results computed from them are.
    """
    for part in FINITE:
        values = parts.get(part)
        if values is not None and not values.sum().isfinite():  # NaN and inf remain in a sum
            values = values.movedim(int(part in PER_ITERATION), 0)
            what = "activations" if part == "last" else part
            require_finite(values, f"the {what} of the network '{network}'")
