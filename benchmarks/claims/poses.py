"""Claims on poses and what is drawn from them."""

import numpy as np

from benchmarks.claims.claim import DESCRIPTION, LAWS, Claim, Missing, needs
from capsviz.analyses.equivariance.words import on, reach
from capsviz.analyses.perturb.measure import LEVEL, WORDS, clear, plus_minus
from capsviz.statistics.words import number

FRESH = "freshly initialised"
CAVEATS = {
    "poses": "the winning pose is chosen by the answer, so clusters by class are nearly given",
    "primary": "they were trained with the labels, the pixels were not",
    "couplings": "they were trained with the labels, the pixels were not",
}


@needs("Whether poses change lawfully", LAWS)
def equivariance(one):
    """R² of the affine map and of the probe, against fresh initialisation and pixels."""
    result = one.result
    fresh = [s for s, name in enumerate(result.sources) if FRESH in name]
    fits = f"fits on {on(result)}"
    for f, name in enumerate(result.warps):
        for what, field in (("an affine map explains", "mean"), ("is read off linearly", "probe")):
            estimate = getattr(result, field)
            own = estimate[0, f]
            unit = "of the warped pose's variance" if field == "mean" else "of the warp's size"
            against = [
                _against(source, estimate.difference[s, f]) for s, source in _others(result)
            ] + ([] if fresh else ["no fresh initialisation is in this file"])
            yield Claim(
                f"{name}, {reach(result, f)}: R² {float(own.value):.2f} {unit} {what}, "
                f"{', '.join(against)}.",
                f"{own:.2f}, {fits}",
                one.source,
                field,
                "; ".join(f"{source} {estimate[s, f]:.2f}" for s, source in _others(result)),
                f"{one.runs}; {result.seeds} initialisations of each fresh control",
                "fresh networks that reach as much; more images of a fit, with which R² grows, "
                "raising the controls to it",
            )
    if not fresh:
        yield Missing("Equivariance against fresh initialisation", one.source)
    if result.by_count is None:
        yield Missing("R² by the images of a fit", one.source)
    else:
        first, last = result.fit_counts[0], result.fit_counts[-1]
        curve = result.by_count[0, 0]
        controls = [f"{result.sources[s]} {result.by_count[s, 0, -1]:.2f}" for s in fresh]
        yield Claim(
            f"R² of {result.warps[0]} depends on the images of a fit: {float(curve.value[0]):.2f} "
            f"with {first} of each class, {float(curve.value[-1]):.2f} with {last}: a lower bound "
            "where it still climbs.",
            f"{curve[0]:.2f}; {curve[-1]:.2f}",
            one.source,
            "by_count",
            "; ".join(controls) or DESCRIPTION,
            one.runs,
            "a curve that is level from the first number on",
        )


def _others(result):
    return list(enumerate(result.sources))[1:]


def _against(name, difference):
    """What the pose has against a control, from the control's difference to it."""
    if difference.high < 0:
        return f"more than {name}"
    return f"less than {name}" if difference.low > 0 else f"not shown to differ from {name}"


@needs("Effects of single pose dimensions", "perturb-*-images.json")
def perturb(one):
    """How many effects are clear by Holm's method, and the largest."""
    result = one.result
    sure = clear(result)
    if not sure.any():
        yield Missing("An effect of a pose dimension that differs from zero", one.source)
        return
    e, m = np.unravel_index(
        np.where(sure, abs(result.standardised), 0).argmax(), result.standardised.shape
    )
    effect, name = result.effect[e, m], result.measures[m]
    words = WORDS[name][int(effect.value < 0)]
    unit = "°" if name.endswith("_deg") else " px"
    size = plus_minus(abs(float(effect.value)), float(effect.high - effect.value))
    yield Claim(
        f"Of {sure.size} effects of the pose of class {result.classes[result.capsule]}, "
        f"{int(sure.sum())} differ from zero; the largest, for its spread: +{result.step:g} of "
        f"dimension {e}, {words} by {size}{unit}.",
        f"{effect:+.2f}{unit}; the test is Holm's over {sure.size} at {number(LEVEL, '.0%')}, the "
        f"interval is not corrected; n = {result.n}",
        one.source,
        "effect, standardised",
        f"the spread of the measure in the class, {result.spread[m]:.2f}{unit}: the effect is "
        f"{abs(result.standardised[e, m]):.2f} of it",
        one.runs,
        "effects that vanish on other images of the class; a dimension has one meaning in no sense "
        "that is measured here, and none in another class",
    )


@needs("Reconstructions over the test set", "reconstruct-*-images.json")
def reconstruct(one):
    """Mean error, from the predicted and from the true class."""
    result = one.result
    true = np.average(result.sse_true.value, weights=result.counts)
    yield Claim(
        f"The predicted class's capsule redraws an image with a mean SSE of "
        f"{float(result.mean_sse.value):.2f}.",
        f"{result.mean_sse:.2f}, n = {result.n:,}",
        one.source,
        "mean_sse",
        f"decoded from the true class {true:.2f} ({result.wrong} images misread); the average "
        "image of a class is not among the controls here",
        one.runs,
        "an SSE outside the interval on other images; a small one is no sign of a right answer, "
        "for the decoder is told the class",
    )


@needs("Two digits in one image", "segment-*-images.json")
def segment(one):
    """Both digits right; drawings against the wrong pair."""
    result = one.result
    yield Claim(
        f"`{one.network}` reads both of two overlapping digits right in "
        f"{number(float(result.right.value), '.1%')} of {result.n:,} images.",
        f"{result.right:.1%}; images share digits, so it is a little narrow",
        one.source,
        "right",
        f"at least one right {result.one_right:.1%}",
        one.runs,
        "a share outside the interval on other pairs",
    )
    for field, names, more, unit in (
        ("sse", result.drawings, "is farther off", "SSE"),
        ("iou", result.divisions, "covers less", "IoU"),
    ):
        estimate, k = getattr(result, field), names.index("absent class")
        gap = estimate.difference[k]
        worse = gap.low > 0 if field == "sse" else gap.high < 0
        rest = "; ".join(
            f"{name} {estimate[j]:.2f}" for j, name in enumerate(names) if j and j != k
        )
        yield Claim(
            "The drawing of a class that is not in the image "
            f"{more if worse else 'is not shown to be worse'}: {unit} "
            f"{float(estimate.value[k]):.2f} in place of {float(estimate.value[0]):.2f}.",
            f"{gap:+.2f} {unit}, paired",
            one.source,
            field,
            f"absent class {estimate[k]:.2f} (the wrong pair); {rest}",
            one.runs,
            "an absent class that is drawn as well; that a capsule found its digit's pixels is not "
            "claimed",
        )


def _maps(pattern, title):
    @needs(title, pattern)
    def claims(one):
        result = one.result
        for k, name in enumerate(result.score_names):
            own, pixels = result.scores[0, k], result.scores[1, k]
            more = "above" if own.low > pixels.high else "not clearly above"
            yield Claim(
                f"{result.of}, {name}: {float(own.value):.3f}, {more} that of the pixels.",
                f"{own:.3f}, n = {result.n:,}",
                one.source,
                "scores",
                f"raw pixels {pixels:.3f}",
                one.runs,
                "vectors of the same network, untrained, that score as high (not shipped); "
                + CAVEATS[result.of],
            )

    return claims


poses = _maps("tsne-*-poses-*-images.json", "Maps of poses")
primaries = _maps("tsne-*-primary-*-images.json", "Maps of primary capsules")
