"""What does each dimension of a class capsule draw? Sheets, and effects in numbers."""

from math import floor, inf, log10
from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag
from capsviz.statistics.comparison import holm
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval, student
from capsviz.statistics.moments import Moments, moments, on_dark

STRONGEST = 6  # dimensions of a sheet
LEVEL = 0.05  # significance level, for all effects together
N = 200  # images of the class, at most: for a sheet and in the figure set
DELTA = 0.1  # step of a dimension, or less if the class spans less: see `step_within`
ALSO = 0.5  # the second largest effect is named if it is at least this share of the largest
WORDS = {  # words for an increase and a decrease of each measure
    "slant_deg": ("leans right", "leans left"),
    "width_px": ("wider", "narrower"),
    "height_px": ("taller", "shorter"),
    "thickness_px": ("thicker", "thinner"),
    "x_px": ("centre further right", "centre further left"),
    "y_px": ("centre lower", "centre higher"),
}


class Result(NamedTuple):
    """One image's pose of one class, E of its dimensions at K values each."""

    values: np.ndarray  # (E, K) of the changed dimension, ascending
    own: np.ndarray  # (E,) which column holds the image's own value
    images: np.ndarray  # (E, K, C, H, W) uint8, decoded
    input: np.ndarray  # (C, H, W) uint8
    reconstruction: np.ndarray  # (C, H, W) uint8, from the unchanged pose
    capsule: int  # class whose pose was changed
    length: float  # `score` of that class
    label: int | None  # true class, if it is known
    predicted: int
    captions: list[str]  # (E,) effects in words, from n images of the class `capsule`
    n: int
    span: str  # "paper" or "data", see `change_each`
    classes: list[str]
    dimensions: list[int]  # (E,) numbers of the dimensions shown
    count: int  # type: ignore[assignment]  # of dimensions in the pose; a field, not the method
    tests: int  # number of tests that Holm's method corrects for
    score: str  # "capsule length" or "activation"
    width: float  # from the 5 % to the 95 % quantile, median over dimensions
    step: float  # of a dimension, for the effects in the captions


class Sheet(Analysis):
    """One image's pose, one dimension changed at a time and decoded."""

    Result = Result
    needs = ("poses", "decode")
    examples = """
    capsviz perturb --digit 4 --all  # 15 s
    capsviz perturb --digit 4 --n 200  # 10 s
    """

    def measure(
        self, network, *, picture, inputs, progress=iter,
        span: Annotated[
            Literal["paper", "data"] | None,
            Flag("--range"),
            Default("paper; data where poses are not squashed to an activation"),
            "±0.25 around the image's own value, or the 5 to 95 % quantiles of its class.",
        ] = None,
        every: Annotated[
            bool, Flag("--all"), "All dimensions, not only the six strongest."
        ] = False,
    ) -> Result:  # fmt: skip
        """Change each dimension of the predicted class's pose, and describe its effects."""
        from capsviz.nn.functional import predict
        from capsviz.tracing import scores

        capsule = int(predict(scores(network, picture.image.cpu())))
        statistics = measure_class(inputs, capsule, progress=progress)
        return change_each(
            network, picture.image, picture.label, statistics=statistics, span=span, every=every
        )

    def verdict(self, result) -> str:
        return _effects(
            f"The pose of class {result.classes[result.capsule]} is changed, one dimension at a "
            "time.", result, zip(result.dimensions, result.captions, strict=True),
        )  # fmt: skip

    def heading(self, result, part="") -> str:
        true = "" if result.label is None else f"true {result.classes[result.label]}, "
        shown = len(result.images)
        most = f"; the {shown} strongest of {result.count}" if shown < result.count else ""
        return (
            f"{true}predicted {result.classes[result.predicted]}; changed: the pose of "
            f"{result.classes[result.capsule]}, {result.score.split()[-1]} {result.length:.2f}"
            f"{most}; beside each row: effects of +{result.step:g}, ±: 95 %{ground(result.images)}"
        )


class Statistics(NamedTuple):
    """Effects of E dimensions on M measures in N images of a class; intervals are 95 %, by t."""

    effect: Estimate  # (E, M) mean change by +`step` of a dimension, units in `measures`
    standardised: np.ndarray  # (E, M) effect / `spread`; 0 if the measure never varies
    spread: np.ndarray  # (M,) standard deviation over the unchanged reconstructions
    difference: Estimate  # (E,) mean over pixels of |D(v + step e_d) - D(v)|, grey values
    quantiles: np.ndarray  # (E, 2) 5 % and 95 % of each dimension
    measures: list[str]  # (M,) names with units
    capsule: int  # class of the images and of the pose
    n: int
    classes: list[str]
    dataset: str
    dark: bool = True  # whether the images have a dark background, which `moments` needs
    step: float = DELTA  # of a dimension

    axes = {"effect": ("dimension {}", "measures"), "difference": ("dimension {}",)}
    over_runs = None  # the order of pose dimensions differs between runs


class Effects(Analysis):
    """The effect of each dimension of one class's pose, over N images of the class."""

    Result = Statistics
    panels = "draw:MANY"
    needs = ("poses", "decode")
    headline = ()  # the verdict holds the main numbers

    def measure(self, network, *, inputs, digit, n, progress=iter) -> Statistics:
        """Measure n images of the class `digit`, the same ones in each call."""
        return measure_class(inputs, digit, n, progress=progress)

    def in_figure_set(self, n, inputs, digit):
        return min(n, N, int((inputs.dataset.labels == digit).sum()))

    def stem(self, base, result):
        return f"perturb-{result.dataset}-{result.capsule}-{result.n}-images"

    def intervals(self, result) -> str:
        whose = f"the mean (Student's t) over {result.n:,} images of the class"
        return f"95 % of {whose}, not corrected{ground(result)}"

    def verdict(self, result) -> str:
        return _effects(
            f"Dimension {strongest(result, 1)[0]} of the pose of class "
            f"{result.classes[result.capsule]} changes the decoded image most.",
            result, enumerate(captions(result)),
        )  # fmt: skip

    def heading(self, result, part="") -> str:
        return (
            f"effect of +{result.step:g} of a dimension, class {result.classes[result.capsule]}; "
            f"{result.n} images of {result.dataset}; ±: 95 %; ·: no clear effect{ground(result)}"
        )


def _effects(first: str, result, texts) -> str:
    """Return the sentence `first`, and a line for each dimension."""
    dark = ground(getattr(result, "images", result))
    head = f"{first} Mean effects of +{result.step:g} in images of the class{dark}:"
    return "\n".join([head, *(f"  dim {d}: {text}" for d, text in texts)])


def change_each(
    model, image, label=None, *, statistics: Statistics, span=None, every=False
) -> Result:
    """Change each dimension of one pose of an image (1, C, H, W): that of `statistics.capsule`.

    The span "paper" has 11 values: ±0.25 in steps of 0.05 about the image's own value. "data" has
    the own value and 10 values from the 5 % to the 95 % quantile over the images of `statistics`.
    None is "paper" if the length of a pose is its activation, and "data" otherwise.
    """
    import torch

    from capsviz.nn.functional import predict
    from capsviz.tracing import LENGTH, decode, score_name, trace
    from capsviz.transforms.augment import to_uint8

    image, k = image.cpu(), statistics.capsule
    score = score_name(model, image)
    span = span or ("paper" if score == LENGTH else "data")
    traced = trace(model, image, keep=("poses", "lengths"))
    poses, lengths = traced.require("poses")[-1], traced.require("lengths")
    E = poses.shape[2]
    dimensions = np.arange(E) if every or E <= STRONGEST else strongest(statistics, STRONGEST)
    base = poses[0, k].double().numpy()[dimensions]
    if span == "paper":
        values = base[:, None] + np.linspace(-0.25, 0.25, 11)
    else:
        low, high = statistics.quantiles[dimensions].T
        values = np.linspace(low, high, 10, axis=1)
        values = np.sort(np.concatenate([values, base[:, None]], 1), 1)
    changed = poses.repeat(values.size, 1, 1)
    rows = torch.arange(values.size)
    which = torch.from_numpy(dimensions)[rows // values.shape[1]]
    changed[rows, k, which] = torch.from_numpy(values).flatten().to(poses)
    decoded = decode(model, changed, torch.full((values.size,), k))
    itself = decode(model, poses, torch.tensor([k]))[0]
    texts = captions(statistics)
    return Result(
        values=values,
        own=np.abs(values - base[:, None]).argmin(1),
        images=to_uint8(decoded.float().unflatten(0, values.shape)),
        input=to_uint8(image[0]),
        reconstruction=to_uint8(itself.float()),
        capsule=k,
        length=float(lengths[0, k]),
        label=label,
        predicted=int(predict(lengths)),
        captions=[texts[d] for d in dimensions],
        n=statistics.n,
        span=span,
        classes=statistics.classes,
        dimensions=dimensions.tolist(),
        count=E,
        tests=statistics.effect.value.size,
        score=score,
        width=ninety_percent(statistics.quantiles),
        step=statistics.step,
    )


def ninety_percent(quantiles: np.ndarray) -> float:
    """Return the median over dimensions of the distance between quantiles (E, 2)."""
    return float(np.median(np.diff(quantiles, axis=1)))


def step_within(quantiles: np.ndarray) -> float:
    """Return `DELTA`, or if smaller the median span of quantiles (E, 2), rounded down to 1 digit.

    The decoder was not trained on poses outside the range of the class.
    """
    span = ninety_percent(quantiles)
    if not 0 < span < DELTA:
        return DELTA
    digit = 10.0 ** floor(log10(span))
    return floor(span / digit) * digit


def ground(of) -> str:
    """Return a warning for images without a dark background, such as photographs; else "".

    `of` is a `Statistics`, or decoded images (E, K, C, H, W).
    """
    dark = of.dark if isinstance(of, Statistics) else on_dark(of.reshape(-1, *of.shape[2:]))
    return "" if dark else "; no dark background: these are moments of brightness"


def evaluate(model, images, *, capsule, classes, dataset, progress=iter) -> Statistics:
    """Measure each pose dimension of the class `capsule` on N images (N, C, H, W) of that class.

    ValueError without a decoder, or for fewer than 2 images with a visible reconstruction.
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
    """Return measures (B, M), effects (B, E, M) and pixel changes (B, E) of poses (B, J, E)."""
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
    """Measure n images of a class, the same ones in each call; None: `N`, or all if fewer."""
    import torch

    from capsviz.transforms.augment import to_float

    data = inputs.dataset
    data.nth_of_class(capsule, 0)  # raises if the class has no images
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
    """Return which effects (E, M) differ from zero: t-tests with Holm's method, 5 % for all."""
    from scipy.special import stdtr  # slow to import

    effect = statistics.effect
    half = effect.high - effect.value
    none = np.where(effect.value == 0, 0.0, np.inf)  # t of effects that never vary
    t = np.divide(student(statistics.n) * np.abs(effect.value), half, out=none, where=half > 0)
    p = 2 * stdtr(statistics.n - 1, -t.ravel())
    return (holm(p) < LEVEL).reshape(t.shape)


def strongest(statistics: Statistics, count: int) -> np.ndarray:
    """Return the dimensions that change the decoded image most, the strongest first."""
    return np.argsort(-statistics.difference.value, kind="stable")[:count]


def captions(statistics: Statistics) -> list[str]:
    """Return the largest clear effect of each dimension in words: "wider by 0.12 ±0.01 px".

    Effects are compared after standardisation. The second largest is added if it is at least
    `ALSO` times as large.
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


def plus_minus(mean: float, half: float, sign: str = "") -> str:
    """Return a mean and half its interval: "0.12 ±0.01".

    Decimal places are two, or three for a narrower interval. There are more if rounding would
    change whether zero is outside the interval.
    """
    for places in range(2, 12):
        width = round(half, places)
        if half > 0 and width == 0:
            width = 10.0**-places if places > 2 else inf
        if (round(abs(mean), places) > width) == (abs(mean) > half):
            break
    return f"{mean:{sign}.{places}f} ±{width:.{places}f}"
