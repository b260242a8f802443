"""One image without each group of its lower-level capsules."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from capsviz.analyses.importance.statistics import LABELS
from capsviz.analysis import Analysis, Seed


class Result(NamedTuple):
    """One image without each group of children, by kind: types, places, dimensions."""

    image: np.ndarray  # (C, H, W) uint8
    label: int | None  # true class, if it is known
    watched: int  # class whose activation is watched: the true one, else the predicted one
    activations: np.ndarray  # (J,) with all children
    change: dict[str, np.ndarray]  # by kind (G,), of the watched activation
    control: dict[str, np.ndarray]  # by kind (2,): 5 to 95 % of random removals of equal norm
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no positions
    how: str  # what the children that are left do
    extent_px: list[float] | None  # left, right, bottom, top of the positions on the image
    classes: list[str]


class OneImage(Analysis):
    """What the activation of one image loses without each type, position and dimension."""

    Result = Result
    needs = ("couplings", "interventions")
    examples = """
    capsviz importance --digit 4  # 10 s
    """

    def measure(self, network, image, label=None, *, classes, seed: Seed = 0) -> Result:
        """Leave out each group of capsules, and random ones of equal norm.

        Raises
        ------
        ValueError  for a network whose capsules cannot be left out.
        """
        import torch

        from capsviz.analyses.importance import measure as removal
        from capsviz.tracing import extent
        from capsviz.tracing.evidence import has_places
        from capsviz.transforms.augment import to_uint8

        image = image.cpu()
        grid = removal.require_removable(network, image)
        generator = torch.Generator().manual_seed(seed)
        ((_, state),) = removal.states(network, image)
        whole = removal.without(network, state)[0]
        watched = int(whole.argmax()) if label is None else label
        change, control = {}, {}
        for kind, members in removal.groups(state, grid).items():
            drawn = torch.randint(len(members), (8 * removal.DRAWS,), generator=generator)
            random = [
                removal.removed_at_random(network, state, kind, members[g], generator)[0, watched]
                for g in drawn
            ]
            each = [removal.removed(network, state, kind, some)[0, watched] for some in members]
            change[kind] = (torch.stack(each) - whole[watched]).numpy()
            random = (torch.stack(random) - whole[watched]).numpy()
            control[kind] = np.quantile(random, [0.05, 0.95])
        return Result(
            image=to_uint8(image[0]),
            label=label,
            watched=watched,
            activations=whole.numpy(),
            change=change,
            control=control,
            grid=grid,
            how=removal.how(network),
            extent_px=extent(network) if has_places(grid) else None,
            classes=list(classes),
        )

    def draw(self, result, *, width=7.16, part=""):
        """Draw the image, a map of the positions, and a bar for each type and dimension."""
        from capsviz.analyses.importance import draw

        return draw.one_image(result, width)

    def verdict(self, result) -> str:
        """Name the most important group of each kind, and how many matter beyond chance."""
        name = result.classes[result.watched]
        lines = [f"The activation of class {name} is {result.activations[result.watched]:.3f}."]
        for kind, change in result.change.items():
            worst, (low, _) = int(change.argmin()), result.control[kind]
            lines.append(
                f"Of the {LABELS[kind]}, {group(result, kind, worst)} matters most "
                f"({change[worst]:+.3f}); {int((change < low).sum())} of {len(change)} matter more "
                "than 95 % of random removals of equal norm."
            )
        return "\n".join(lines)

    def caption(self, result, part="") -> str:
        """Return what the picture shows, and what its band is."""
        return (
            f"Change of the activation of class {result.classes[result.watched]} in one image, if "
            "each group of lower-level capsules, or each dimension of their poses, is left out. "
            "Band: 5 to 95 % of random removals of equal norm."
        )


def group(result, kind: str, k: int) -> str:
    """Return the name of a group: its number, or row and column of a position."""
    if kind == "places" and result.grid is not None:
        return f"row {k // result.grid[2]}, column {k % result.grid[2]}"
    return f"number {k}"
