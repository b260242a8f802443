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


class Result(NamedTuple):
    """One image's pose of one class, E of its dimensions at K values each."""

    values: np.ndarray  # (E, K) of the changed dimension, ascending
    own: np.ndarray  # (E,) which column holds the image's own value
    images: np.ndarray  # (E, K, C, H, W) uint8, decoded
    input: np.ndarray  # (C, H, W) uint8
    reconstruction: np.ndarray  # (C, H, W) uint8, from the unchanged pose
    capsule: int  # class whose pose was changed
    length: float  # of that pose, or activation, as `score` says
    label: int | None  # true class, if it is known
    predicted: int
    captions: list[str]  # (E,) from the effects on n images of the class `capsule`
    n: int
    span: str  # "paper" or "data"
    classes: list[str]
    dimensions: list[int]  # E, which ones of the pose
    count: int  # type: ignore[assignment]  # of dimensions in the pose; a field, not the method
    tests: int  # that the captions are corrected for
    score: str  # "capsule length" or "activation"
    width: float  # median over dimensions from the 5 % to the 95 % quantile
    step: float  # of a dimension, that the captions are of


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
        """Change each dimension of the predicted class's pose; describe it by its effects."""
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


class Effects(Analysis):
    """The effect of each dimension of one class's pose, over N images of the class."""

    Result = Statistics
    panels = "draw:MANY"
    needs = ("poses", "decode")
    headline = ()  # the words hold what matters

    def measure(self, network, *, inputs, digit, n, progress=iter) -> Statistics:
        """Measure n images of the class `digit`, always the same ones."""
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
    """Return a sentence, and a line for each dimension."""
    dark = ground(getattr(result, "images", result))
    head = f"{first} Mean effects of +{result.step:g} in images of the class{dark}:"
    return "\n".join([head, *(f"  dim {d}: {text}" for d, text in texts)])


def change_each(
    model, image, label=None, *, statistics: Statistics, span=None, every=False
) -> Result:
    """Change each dimension of the pose of an image (1, C, H, W), of the class of the statistics.

    The span "paper" has 11 values, +-0.25 in steps of 0.05 about the image's own; "data" has 10
    from the 5 % to the 95 % quantile over the images of the statistics, and its own. None is
    "paper" where a pose's length is the activation, else "data".
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
    return "" if dark else "; no dark background: these are moments of brightness"


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


def plus_minus(mean: float, half: float, sign: str = "") -> str:
    """Return a mean and half its interval: "0.12 ±0.01".

    Two digits, or three for a narrower interval; more where that would hide that zero is outside.
    """
    for places in range(2, 12):
        width = round(half, places)
        if half > 0 and width == 0:
            width = 10.0**-places if places > 2 else inf
        if (round(abs(mean), places) > width) == (abs(mean) > half):
            break
    return f"{mean:{sign}.{places}f} ±{width:.{places}f}"
