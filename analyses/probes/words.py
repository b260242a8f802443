"""Words of `probes`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

import numpy as np

from capsviz.statistics.words import in_a_row, number, sentence, sentences

NAMES = {
    "slant_deg": "slant",
    "width_px": "width",
    "height_px": "height",
    "thickness_px": "thickness",
    "x_px": "place, x",
    "y_px": "place, y",
}
TURNED = 1  # of the codes: the pose turned at random
DRAWING, NOISE, LIKE = range(3)  # of what is encoded in the cycle
PATH, FADE = range(2)


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    return _of_many(result) if hasattr(result, "r2") else _of_two(result)


def _of_two(result) -> str:
    name = result.classes[result.capsule]
    ends = [result.classes[k] for k in result.activations.argmax(1)]
    lines = [f"two images, read as {ends[0]} and {ends[1]}; the path is of poses of class {name}"]
    if ends[1] != ends[0]:
        lines[0] += f", though the second is read as {ends[1]}: its end is a pose that lost"
    for what, activations in (
        ("along the path", result.path_activations),
        ("cross-fade of its ends", result.fade_activations),
    ):
        read, own = activations.argmax(1), activations[:, result.capsule]
        low = int(own.argmin())
        share = int((read == result.capsule).sum())
        others = sorted({result.classes[k] for k in read} - {name})
        text = f"{what}: {share} of {len(read)} drawings are read as {name}"
        text += f", others as {', '.join(others)}" if others else ""
        lines.append(
            f"{text}; its activation is lowest, {own[low]:.2f}, at t = {float(result.t[low]):.3g}"
        )
    return "\n".join(lines)


def _of_many(result) -> str:
    others = ", ".join(
        f"{name} ({count} numbers)"
        for name, count in zip(result.sources[1:], result.dimensions[1:], strict=True)
    )
    lines = [
        f"{result.n:,} {result.dataset} images, shifted by up to {result.shift_px} px, probes of "
        f"{result.probed} classes on {result.fitted:,} {result.fit_of}; R2 within a class, less "
        f"that of the control task (selectivity), 95 % intervals; in round brackets R2 of {others}:"
    ]
    for j, measure in enumerate(result.measures):
        first, *rest = result.r2[:, j]
        values = ", ".join(f"{one.value:.2f}" for one in rest)
        lines.append(
            f"{NAMES.get(measure, measure)}: {first:.2f}, selectivity "
            f"{result.selectivity[0, j]:.2f} ({values})"
        )
    first, *rest = result.informed
    values = ", ".join(f"{one.value:.2f}" for one in rest)
    lines += [f"informativeness, mean R2: {first:.2f} ({values})", _dci(result)]
    lines += [text] if (text := verdict(result)) else []
    if result.cycle is not None:
        lines.append(_cycle(result))
    if result.path_read is not None:
        lines += _paths(result)
    return "\n".join([*lines, *result.notes])


def _dci(result) -> str:
    rest = [
        f"{name} {d.value:.2f} and {c.value:.2f}"
        for name, d, c in list(
            zip(result.codes, result.disentanglement, result.completeness, strict=True)
        )[1:]
    ]
    return (
        f"disentanglement {result.disentanglement[0]:.2f}, completeness "
        f"{result.completeness[0]:.2f} ({'; '.join(rest)}); intervals over classes; only "
        "equally informative codes compare"
    )


def verdict(result) -> str:
    """What is clearly above fresh networks, and whether a pose's axes mean more than others."""
    fresh = [s for s, name in enumerate(result.sources) if "freshly initialised" in name]
    less = result.r2.difference
    known = [
        NAMES.get(measure, measure)
        for j, measure in enumerate(result.measures)
        if fresh and all(less.high[s, j] < 0 for s in fresh)
    ]
    parts = []
    if fresh:
        of = f"freshly initialised networks ({result.seeds} seed{'s' * (result.seeds > 1)})"
        above = f"clearly above {of}: {in_a_row(known)}" if known else ""
        parts.append(above or f"no measure is clearly above {of}")
    if result.disentanglement.difference is None:  # of one class alone
        return "; ".join(parts)
    gap = result.disentanglement.difference[TURNED]
    if float(gap.high) < 0:
        parts.append("axes of the pose are more to one measure each than axes drawn at random")
    else:
        parts.append("axes of the pose are not clearly more to one measure each than random axes")
    return "; ".join(parts)


def _cycle(result) -> str:
    own, *rest = result.cycle
    controls = ", ".join(
        f"{name} {one:.2f}" for name, one in zip(result.returns[1:], rest, strict=True)
    )
    return (
        f"cycle: R2 of a pose by that of its drawing {own:.2f}, read as the same class "
        f"{result.cycle_read[DRAWING]:.1%}; controls: {controls}"
    )


def _paths(result) -> list[str]:
    middle = int(np.abs(result.t - 0.5).argmin())
    lines = [
        f"middle of {result.couples} straight paths: read as the class "
        f"{result.path_read[PATH, middle]:.1%}, activation "
        f"{result.path_activation[PATH, middle]:.2f}; of the cross-fade of their ends "
        f"{result.path_read[FADE, middle]:.1%}, {result.path_activation[FADE, middle]:.2f}"
    ]
    if result.path_distance is not None:
        own, fade = result.path_distance[:, middle]
        gap = result.path_distance.difference[FADE, middle]
        lines.append(
            f"nearest image of the class, rms grey value: path {own:.3f}, cross-fade {fade:.3f}, "
            f"difference {number(float(gap.value), '+.3f')} [{gap.low:+.3f}, {gap.high:+.3f}]; at "
            f"the ends {float(result.path_distance.value[PATH, [0, -1]].mean()):.3f}"
        )
    return lines


def parts(result) -> tuple[str, ...]:
    """Names of its pictures."""
    decoded = hasattr(result, "r2") and (result.cycle is not None or result.path_read is not None)
    return ("", "paths") if decoded else ("",)


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    if not hasattr(result, "r2"):
        return (
            "A straight path between the poses of two images: decoded from (1 - t) v_a + t v_b, "
            "and below it the cross-fade of the two drawings at its ends, each with what it is "
            "read as when it is encoded again, and its activation. One pair proves nothing. "
            f"{sentences(_of_two(result))}"
        )
    if part == "paths":
        lines = [] if result.cycle is None else [_cycle(result)]
        lines += [] if result.path_read is None else _paths(result)
        return (
            "The pose of the decoded pose; activation and distance to the nearest image of the "
            "class along straight paths, and along cross-fades of their ends. Bars and bands: "
            f"95 % intervals, {result.n:,} {result.dataset} images. "
            f"{sentences(chr(10).join(lines))}"
        )
    drawn = f", of what is drawn over {result.seeds} draws, too" if result.seeds > 1 else ""
    text = (
        "What can be read linearly off the pose of the class read: R² of ridge regressions within "
        "a class (filled) and of the control task, other images' measures (hollow); "
        "disentanglement and completeness (DCI), also of the pose turned at random. Bars: 95 % "
        f"intervals{drawn}. {result.n:,} {result.dataset} images, shifted by up to "
        f"{result.shift_px} px, probes of {result.probed} classes on {result.fitted:,} "
        f"{result.fit_of}."
    )
    listed = "; ".join(
        f"{NAMES.get(measure, measure)} {result.r2[0, j]:.2f}, {result.selectivity[0, j]:.2f}"
        for j, measure in enumerate(result.measures)
    )
    own = f"{result.disentanglement[0]:.2f} and {result.completeness[0]:.2f}"
    turned = (result.disentanglement.value[TURNED], result.completeness.value[TURNED])
    lines = [
        f"R² of the pose, and less the control task's: {listed}",
        f"disentanglement and completeness {own}, turned {turned[0]:.2f} and {turned[1]:.2f}",
        verdict(result),
        *result.notes,
    ]
    return f"{text} {' '.join(sentence(line) for line in lines if line)}"
