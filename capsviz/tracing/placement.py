"""Is a capsule where its grid says it is? Pixels outside its receptive field must not move it."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from capsviz.tracing.shapes import SAME, named_parts


def misplaced(model, images: Tensor, traced: dict) -> Iterator[str]:
    """Capsules of the grid's corners must not change with pixels outside their receptive field."""
    grid, primary = getattr(model, "grid", None), traced.get("primary")
    if grid is None or primary is None or not hasattr(model, "receptive_field"):
        return
    types, rows, columns = grid
    corners = sorted({(r, c) for r in (0, rows - 1) for c in (0, columns - 1)})
    base = images[:1]
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(base.shape, generator=generator).to(base)
    pictures = [base]
    for place in corners:
        own = model.receptive_field(*place)
        changed = noise.clone()
        changed[(..., *own)] = base[(..., *own)]
        pictures.append(changed)
    if all(torch.equal(picture, base) for picture in pictures):
        return
    parts = named_parts(model.look(torch.cat(pictures), keep=("children", "primary")))
    moved_primary = parts["primary"].double()
    moved = (moved_primary[1:] - moved_primary[:1]).abs().amax(2)
    limit = SAME * moved.amax().clamp_min(1e-12)
    layouts = {"theirs": moved.unflatten(1, (types, rows, columns))}
    layouts["by place"] = moved.unflatten(1, (rows, columns, types)).permute(0, 3, 1, 2)

    def still(layout) -> bool:
        places = enumerate(corners)
        return all(float(layout[k, :, r, c].max()) <= limit for k, (r, c) in places)

    if still(layouts["theirs"]):
        return
    row, column = corners[0]
    if types > 1 and still(layouts["by place"]):
        yield (
            "the grid is in another order: capsules come place by place, expected type by type, "
            "i = (type * rows + row) * columns + column"
        )
        return
    where = ", ".join(f"{s.start} to {s.stop - 1}" for s in model.receptive_field(row, column))
    yield (
        "the grid is in another order, or its receptive fields are wrong: capsules of place "
        f"({row}, {column}) change with pixels outside rows and columns {where}; expected "
        "i = (type * rows + row) * columns + column"
    )
