"""Call the `measure` of an analysis with the arguments that its parameters name."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from capsviz.analysis import Analysis
from capsviz.inputs import usual_class
from capsviz.inputs.opening import Inputs, Picture, open_picture, with_baselines
from capsviz.nn.computation import draws


def measure_with(
    analysis: Analysis,
    opened: Sequence[Inputs],
    options: Mapping[str, Any],
    *,
    n: int | None = None,
    picture: Picture | None = None,
    digit: int | None = None,
    progress: Callable[[str], Callable] = lambda label: iter,
) -> tuple[str, NamedTuple]:
    """Measure opened networks; return the name of the files and the result.

    ValueError if a parameter of `measure` is neither an option nor one of the known arguments.

    Parameters
    ----------
    opened    networks with the same data; the first one is the main one.
    n         number of images for a statistic; None: the usual number, or all if there are fewer.
    picture   the image, if the analysis is of one image.
    digit     the class, if the analysis is of one class; None: the usual one.
    progress  label -> wrapper of an iterable.
    """
    first, one = opened[0], cast(Picture, picture)  # chosen by whoever measures one image
    name, part = analysis.name.replace("_", "-"), first.dataset
    count = min(analysis.usual_n, len(part)) if n is None else n
    known: dict[str, Callable[[], Any]] = {
        "network": lambda: first.model,
        "networks": lambda: {one.name: one.model for one in opened},
        "image": lambda: one.image,
        "label": lambda: one.label,
        "images": lambda: first.images(count)[0],
        "labels": lambda: first.images(count)[1],
        "classes": lambda: part.classes,
        "dataset": lambda: part.name,
        "progress": lambda: progress(name),
        "inputs": lambda: first,
        "opened": lambda: list(opened),
        "picture": lambda: picture,
        "n": lambda: count,
        "digit": lambda: usual_class(part) if digit is None else digit,
    }
    if unknown := [taken for taken in analysis.given if taken not in known]:
        raise ValueError(
            f"`measure` of {type(analysis).__name__} takes '{unknown[0]}', which is neither given "
            f"nor an option: expected {', '.join(known)}, or an annotation with a help text"
        )
    seed = options.get("seed")  # a user-defined analysis may give it any type
    with draws(seed if isinstance(seed, int) else 0, first.device):  # without a generator
        result = analysis.measure(**{taken: known[taken]() for taken in analysis.given}, **options)
    what = f"{part.name}-{count}-images" if picture is None else picture.name
    return analysis.stem(f"{name}-{what}", result), result


def of_figure_set(
    analysis: Analysis, inputs: Inputs, settings, opened: Sequence[Inputs] = ()
) -> Iterator[tuple[str, NamedTuple]]:
    """Measure each part of an analysis in a figure set; yield the name of the files and the result.

    An analysis that compares networks uses all those `opened`. Without them, it compares `inputs`
    with the shipped networks without capsules for the same data. `settings` come from
    `capsviz.results.sets`: numbers of images, the seed, the image that is shown.
    """
    opened = opened or (with_baselines(inputs) if analysis.compares else [inputs])
    picture = None
    if analysis.of_one_image:
        picture = open_picture(inputs, digit=settings.digit, index=settings.index)
    digit = usual_class(inputs.dataset) if settings.digit is None else settings.digit
    shared = {"seed": settings.seed, "index": settings.index}
    shared = {one.name: shared[one.name] for one in analysis.options if one.name in shared}
    n = analysis.in_figure_set(settings.few if analysis.slow else settings.n, inputs, digit)
    how = {"n": n, "picture": picture, "digit": digit, "progress": settings.progress}
    each = analysis.figure_set or {}
    for own in each if isinstance(each, tuple) else (each,):
        options = {name: value(n) if callable(value) else value for name, value in own.items()}
        yield measure_with(analysis, opened, options | shared, **how)
