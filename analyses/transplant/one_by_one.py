"""What `transplant` is asked for with --of, --by or --layer: one part after the other."""

from __future__ import annotations

from capsviz.discovery import unknown

BY = ("capsules", "iterations")
FEW = 200  # images, where --n says no other number


def outcome(run, n: int | None, of: str, by: str, layer: int | None, seed: int):
    """Stem and result of N images; None: of `FEW`, or of all if there are fewer.

    ValueError for names that are not known, and for children or poses of iterations.
    """
    from capsviz.analyses.transplant import by_iteration, by_part

    if by not in BY:
        raise ValueError(unknown("way to exchange", by, list(BY)))
    if by == "iterations" and of != "couplings":
        raise ValueError(f"iterations have couplings, got --of {of}: drop it, or --by iterations")
    images, _ = run.images(min(FEW, len(run.inputs.dataset)) if n is None else n)
    about = {"classes": run.classes, "dataset": run.dataset, "layer": layer, "seed": seed}
    about["progress"] = run.progress("transplanting")
    if by == "iterations":
        result = by_iteration.evaluate(run.model, images.cpu(), **about)
    else:
        result = by_part.evaluate(run.model, images.cpu(), of=of, **about)
    where = "" if result.layer is None else f"-layer-{result.layer}"
    return f"transplant-{run.dataset}-{of}-by-{by}{where}-{len(images)}-images", result
