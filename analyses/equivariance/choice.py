"""Images for `equivariance`: which are measured, and which the fits are on."""

from __future__ import annotations

import numpy as np

from capsviz.analyses.equivariance.measure import LEAST
from capsviz.discovery import unknown
from capsviz.statistics.intervals import require_two


def groups(labels, fit_images, fit_labels, fit: int, fit_of: str):
    """Which images are measured and which are fitted on, class by class.

    Parameters
    ----------
    labels                   (N,) of the images that are measured.
    fit_images, fit_labels   of others, or None.
    fit                      of each class, at most.
    fit_of                   what they are, in words.

    Returns
    -------
    (class, its places among the measured, those among the others or None) for each class, how many
    a fit is on, and what must be said of it.

    Raises
    ------
    ValueError  for fewer than `LEAST` images to fit on.
    """
    own = {int(k): np.flatnonzero(labels == k) for k in np.unique(labels)}
    if fit_images is None:
        rarest = min(own, key=lambda k: len(own[k]))
        if len(own[rarest]) < LEAST:
            raise ValueError(
                f"class {rarest} has {len(own[rarest])} images, expected at least {LEAST} of "
                "each: use more images (--n)"
            )
        half = len(own[rarest]) // 2
        note = f"no training images: fits are on half of the images, {half} of a class or more"
        return [(k, places, None) for k, places in own.items()], half, [f"{note}, not {fit}"]
    fit_labels = fit_labels.cpu().numpy()
    others = {k: np.flatnonzero(fit_labels == k) for k in own}
    rarest = min(own, key=lambda k: len(others[k]))
    fewest = min(fit, len(others[rarest]))
    if fewest < LEAST:
        raise ValueError(
            f"expected at least {LEAST} {fit_of} of a class to fit on, got {fewest} of class "
            f"{rarest}: use more (--fit)"
        )
    note = f"class {rarest} has {fewest} {fit_of}: fits are on {fewest} of each class, not {fit}"
    chosen = [(k, places, others[k][:fewest]) for k, places in own.items()]
    return chosen, fewest, [note] if fewest < fit else []


def check(model, name: str, warps, names, seeds: int, fit: int = 1, n: int = 2) -> None:
    """ValueError for no capsules, an unknown warp, or a bad number of seeds or images."""
    from capsviz.tracing import abilities

    require_two(n)
    if fit < 1:
        raise ValueError(f"expected at least 1 image to fit on, got --fit {fit}")
    if not abilities(model).has_capsules:
        raise ValueError(
            f"{name} has no capsules: expected a capsule network first, those that it is "
            "compared with after it"
        )
    for one in warps:
        if one not in names:
            raise ValueError(unknown("warp", one, list(names)))
    if len(warps) == 0 or len(set(warps)) < len(warps):
        raise ValueError(f"expected different warps, got {list(warps)}")
    if seeds < 0:
        raise ValueError(f"expected 0 seeds of fresh networks or more, got {seeds}")
