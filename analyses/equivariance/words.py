"""Words of `equivariance`: what its numbers say, its table, and the caption of its figure."""

from __future__ import annotations

from capsviz.analyses.equivariance.law import words as law

MEASURES = {"affine map": "mean", "size read linearly": "probe"}  # fields, by what they explain
LOWEST = -0.6  # of the axes of R2: what is worse runs out of them


def findings(result) -> str:
    """R2 of the affine maps and of the probe, a line for each warp; the curve; the cost."""
    if hasattr(result, "laws"):
        return law.findings(result)
    lines = [
        f"{result.n} {result.dataset} images, R2 of fits on {on(result)}, with 95 % intervals; in "
        f"round brackets {', '.join(result.sources[1:])}:"
    ]
    for f, name in enumerate(result.warps):
        parts = []
        for what, field in MEASURES.items():
            first, *others = getattr(result, field)[:, f]
            parts.append(f"{what} {first:.2f} ({', '.join(f'{one.value:.2f}' for one in others)})")
        lines.append(f"{name}, {reach(result, f)}: {'; '.join(parts)}")
    if result.by_count is not None:
        lines.append(_curve(result))
    reduced = _reduced(result)
    lines += [f"variance kept by {result.kept} principal components: {reduced}"] if reduced else []
    if result.looks is not None:
        lines.append(f"cost: {result.looks:,} images looked at in {result.seconds:,.0f} s")
    return "\n".join([*lines, *(result.notes or [])])


def on(result) -> str:
    """What the fits are on."""
    if result.fit_counts is None:
        return result.fit_of
    return f"{result.fit_counts[-1]} {result.fit_of} of each class"


def _curve(result) -> str:
    """R2 of the first warp by the number of images, of the first kind and its first control."""
    numbers = ", ".join(f"{m:,}" for m in result.fit_counts)
    rows = []
    for s, source in enumerate(result.sources):
        if s == 0 or source.startswith(f"{result.sources[0]} freshly"):
            row = result.by_count.value[s, 0]
            rows.append(f"{source} {', '.join(f'{value:.2f}' for value in row)}")
    return f"affine map, {result.warps[0]}, by fits on {numbers} of each class: {'; '.join(rows)}"


def _reduced(result) -> str:
    """Of the kinds of vectors that are reduced, the variance kept, lowest to highest of a warp."""
    if result.variance_kept is None:
        return ""
    parts = []
    for source, count, shares in zip(
        result.sources, result.dimensions, result.variance_kept, strict=True
    ):
        if count > result.kept:
            low, high = 100 * shares.min(), 100 * shares.max()
            span = f"{low:.0f}" if round(low) == round(high) else f"{low:.0f} to {high:.0f}"
            parts.append(f"{source} {span} %")
    return ", ".join(parts)


def table(result):
    """Header, rows and caption: R2 of every kind of vector under every warp."""
    if hasattr(result, "laws"):
        return law.table(result)
    rows = [
        [
            f"{name}, {reach(result, f)}",
            what,
            *(f"{one:.2f}" for one in getattr(result, field)[:, f]),
        ]
        for f, name in enumerate(result.warps)
        for what, field in MEASURES.items()
    ]
    return ["Warp", "R² of", *result.sources], rows, caption(result)


def reach(result, f: int) -> str:
    """The range of a warp's sizes."""
    return f"{result.sizes[f, 0]:g} to {result.sizes[f, -1]:g}{result.units[f]}"


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    if hasattr(result, "laws"):
        return law.caption(result)
    head, *rows = findings(result).split("\n")
    fresh = ""
    if result.by_seed is None and result.seeds > 1:  # before 0.3
        fresh = f"freshly initialised: the classes take turns among {result.seeds} seeds; "
    elif result.seeds > 1:
        fresh = (
            f"freshly initialised, random directions: means of {result.seeds} seeds, which "
            "intervals are over, too; "
        )
    if result.by_count is not None:
        fresh = f"the same maps by the images of a class that they are fitted on; {fresh}"
    return (
        "Share of the variance of a warped image's vector, within its class, that an affine map of "
        "the unwarped one's explains, by size of the warp (dotted: that it explains as it is; axes "
        f"are cut at {LOWEST:g}), and how well the size can be read off linearly"
        f"; {fresh}vectors of more than {result.kept} numbers reduced to as many by PCA. "
        f"{head} {'; '.join(rows)}."
    )
