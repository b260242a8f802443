"""Effects of a step of each pose dimension on decoded images, and their words."""

from __future__ import annotations

from math import floor, inf, log10
from typing import NamedTuple

import numpy as np

from capsviz.statistics.comparison import holm
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval, student
from capsviz.statistics.moments import Moments, moments, on_dark

LEVEL = 0.05  # of the tests of all effects together
N = 200  # images of the class, where there are as many: for a sheet and in the figure set
DELTA = 0.1  # of a dimension: effects are per this much, or per `step` where a class spans less
ALSO = 0.5  # of the largest effect: a second one that is so large is named too
WORDS = {  # for an increase and a decrease of each measure
    "slant_deg": ("leans right", "leans left"),
    "width_px": ("wider", "narrower"),
    "height_px": ("taller", "shorter"),
    "thickness_px": ("thicker", "thinner"),
    "x_px": ("centre further right", "centre further left"),
    "y_px": ("centre lower", "centre higher"),
}


class Statistics(NamedTuple):
    """Effects of E dimensions on M measures, N images of one class; intervals are 95 %, by t."""

    effect: Estimate  # (E, M) mean change per +`step` of a dimension, units in `measures`
    standardised: np.ndarray  # (E, M) effect over `spread`; 0 where the measure never varies
    spread: np.ndarray  # (M,) standard deviation over the undisturbed reconstructions
    difference: Estimate  # (E,) mean over pixels of |D(v + step e_d) - D(v)|, grey values
    quantiles: np.ndarray  # (E, 2) 5 % and 95 % of each dimension
    measures: list[str]  # (M,) names with units
    capsule: int  # class of the images and of the pose
    n: int
    classes: list[str]
    dataset: str
    dark: bool = True  # whether the images have a dark ground, as `moments` asks for
    step: float = DELTA  # of a dimension

    axes = {"effect": ("dimension {}", "measures"), "difference": ("dimension {}",)}
    over_runs = None  # dimensions of a pose are in another order in each run


def ninety_percent(quantiles: np.ndarray) -> float:
    """Return the distance between quantiles (E, 2), the median over dimensions."""
    return float(np.median(np.diff(quantiles, axis=1)))


def step_within(quantiles: np.ndarray) -> float:
    """Return `DELTA`, or less where quantiles (E, 2) span less: that, to one digit, rounded down.

    A decoder has not learnt to draw poses that no image of the class has.
    """
    span = ninety_percent(quantiles)
    if not 0 < span < DELTA:
        return DELTA
    digit = 10.0 ** floor(log10(span))
    return floor(span / digit) * digit


def ground(of) -> str:
    """Return a warning for images without a dark ground, as photographs; else "".

    `of` are `Statistics`, or decoded images (E, K, C, H, W).
    """
    dark = of.dark if isinstance(of, Statistics) else on_dark(of.reshape(-1, *of.shape[2:]))
    return "" if dark else "; no dark ground: these are moments of brightness"


def evaluate(model, images, *, capsule, classes, dataset, progress=iter) -> Statistics:
    """Measure each dimension of the pose of a class, `capsule`, on N images (N, C, H, W) of it.

    ValueError without a decoder, or for fewer than 2 images whose reconstruction is not black.
    """
    from capsviz.tracing import CHUNK_IMAGES, require_decoder, trace

    require_decoder(model)
    images = images.cpu()
    chunks = images.split(CHUNK_IMAGES)
    poses = [trace(model, some, keep=("poses",)).require("poses")[-1] for some in chunks]
    values = np.concatenate([some[:, capsule].double().numpy() for some in poses])
    quantiles = np.quantile(values, [0.05, 0.95], axis=0).T.astype(float)
    step = step_within(quantiles)
    parts = [_changes(model, some, capsule, step) for some in progress(poses)]
    before, change, difference = map(np.concatenate, zip(*parts, strict=True))
    visible = np.isfinite(change).all((1, 2)) & np.isfinite(before).all(1)
    n = int(visible.sum())
    if n < 2:
        raise ValueError(
            f"an interval needs at least 2 images with a visible reconstruction, got {n}"
        )
    spread = before[visible].std(0, ddof=1)
    effect = Estimate(*mean_interval(change[visible]), n)
    return Statistics(
        effect=effect,
        standardised=np.divide(
            effect.value, spread, out=np.zeros_like(effect.value), where=spread > 0
        ),
        spread=spread,
        difference=Estimate(*mean_interval(difference[visible]), n),
        quantiles=quantiles,
        measures=list(Moments._fields),
        capsule=int(capsule),
        n=n,
        classes=list(classes),
        dataset=dataset,
        dark=on_dark(images.numpy()),
        step=step,
    )


def _changes(model, poses, capsule: int, step: float):
    """Measures (B, M), half differences (B, E, M) and pixel change (B, E) of B poses (B, J, E)."""
    import torch

    from capsviz.tracing import decode

    which = torch.full((len(poses),), capsule)
    itself = decode(model, poses, which).float().numpy()
    change, difference = [], []
    for d in range(poses.shape[2]):
        measured = []
        for sign in (1, -1):
            moved = poses.clone()
            moved[:, capsule, d] += sign * step
            decoded = decode(model, moved, which).float().numpy()
            measured.append(np.stack(moments(decoded), 1))
            if sign == 1:
                difference.append(np.abs(decoded - itself).mean((1, 2, 3), dtype=float))
        change.append((measured[0] - measured[1]) / 2)
    return np.stack(moments(itself), 1), np.stack(change, 1), np.stack(difference, 1)


def measure_class(inputs, capsule: int, n: int | None = None, progress=iter) -> Statistics:
    """Measure n images of a class, always the same; None: `N` of them, or all if fewer."""
    import torch

    from capsviz.transforms.augment import to_float

    data = inputs.dataset
    data.nth_of_class(capsule, 0)  # refuses a class that is not there
    places = (data.labels == capsule).nonzero().flatten()
    count = len(places)
    if n is not None and not 2 <= n <= count:
        raise ValueError(
            f"{data.name} {data.split} has {count} images of class {capsule}: expected at least 2 "
            f"of them, got {n}"
        )
    draw = torch.randperm(len(places), generator=torch.Generator().manual_seed(0))
    chosen = places[draw[: N if n is None else n].sort().values]
    images = to_float(data.take(chosen).images)
    names = {"classes": data.classes, "dataset": data.name}
    return evaluate(inputs.model, images, capsule=capsule, **names, progress=progress)


def clear(statistics: Statistics) -> np.ndarray:
    """Return which effects (E, M) differ from zero: Student's t, Holm's method, 5 % for all."""
    from scipy.special import stdtr  # takes time to import

    effect = statistics.effect
    half = effect.high - effect.value
    none = np.where(effect.value == 0, 0.0, np.inf)  # of effects that never vary
    t = np.divide(student(statistics.n) * np.abs(effect.value), half, out=none, where=half > 0)
    p = 2 * stdtr(statistics.n - 1, -t.ravel())
    return (holm(p) < LEVEL).reshape(t.shape)


def strongest(statistics: Statistics, count: int) -> np.ndarray:
    """Return the dimensions that change the decoded image most, the strongest first."""
    return np.argsort(-statistics.difference.value, kind="stable")[:count]


def captions(statistics: Statistics) -> list[str]:
    """Return the largest clear standardised effect of each dimension: "wider by 0.12 ±0.01 px".

    The second largest is added where it is at least `ALSO` times as large.
    """
    sizes = np.where(clear(statistics), np.abs(statistics.standardised), 0)
    texts = []
    for d, size in enumerate(sizes):
        order = np.argsort(-size, kind="stable")[:2]
        named = [m for m in order if size[m] > 0 and size[m] >= ALSO * size[order[0]]]
        words = []
        for name, effect in ((statistics.measures[m], statistics.effect[d, m]) for m in named):
            size = plus_minus(float(abs(effect.value)), float(effect.high - effect.value))
            unit = "°" if name.endswith("_deg") else " px"
            words.append(f"{WORDS[name][int(effect.value < 0)]} by {size}{unit}")
        texts.append(", ".join(words) or "no clear effect")
    return texts


def plus_minus(mean: float, half: float, sign: str = "", gap: str = " ") -> str:
    """Return a mean and half its interval: "0.12 ±0.01".

    Two digits, or three for a narrower interval; more where that would hide that zero is outside.
    """
    for places in range(2, 12):
        width = round(half, places)
        if half > 0 and width == 0:
            width = 10.0**-places if places > 2 else inf
        if (round(abs(mean), places) > width) == (abs(mean) > half):
            break
    return f"{mean:{sign}.{places}f}{gap}±{width:.{places}f}"
