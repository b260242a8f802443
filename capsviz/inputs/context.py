"""What the `measure` of an analysis is given by name, and the measurement with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from capsviz.analysis import Analysis
from capsviz.inputs.networks import with_baselines
from capsviz.inputs.opening import Inputs, Picture, open_picture
from capsviz.inputs.samples import usual_class


def usual_images(analysis: Analysis, n: int | None, inputs: Inputs) -> int:
    """How many images an analysis looks at: n, or for None its usual number, or all if fewer."""
    return min(analysis.usual_n, len(inputs.dataset)) if n is None else n


def arguments(
    analysis: Analysis,
    opened: Sequence[Inputs],
    *,
    n: int | None = None,
    picture: Picture | None = None,
    digit: int | None = None,
    progress: Callable[[str], Callable] = lambda label: iter,
) -> dict[str, Any]:
    """The arguments of `measure` that are no options.

    Parameters
    ----------
    opened    networks with the same data, the first one first.
    n         images of a statistic; None: the usual number.
    picture   the image of an analysis of one image.
    digit     the class of an analysis of one class; None: the usual one.
    progress  label -> wrapper of an iterable.

    Raises
    ------
    ValueError  for a parameter of `measure` that nothing gives a value for.
    """
    first = opened[0]
    known: dict[str, Callable[[], Any]] = {
        "network": lambda: first.model,
        "networks": lambda: {one.name: one.model for one in opened},
        "image": lambda: _of(picture).image,
        "label": lambda: _of(picture).label,
        "images": lambda: first.images(usual_images(analysis, n, first))[0],
        "labels": lambda: first.images(usual_images(analysis, n, first))[1],
        "classes": lambda: first.dataset.classes,
        "dataset": lambda: first.dataset.name,
        "progress": lambda: progress(analysis.name.replace("_", "-")),
        "inputs": lambda: first,
        "opened": lambda: list(opened),
        "picture": lambda: picture,
        "n": lambda: usual_images(analysis, n, first),
        "digit": lambda: usual_class(first.dataset) if digit is None else digit,
    }
    unknown = [name for name in analysis.given if name not in known]
    if unknown:
        raise ValueError(
            f"`measure` of {type(analysis).__name__} takes '{unknown[0]}', which is neither given "
            f"nor an option: expected {', '.join(known)}, or an annotation with a help text"
        )
    return {name: known[name]() for name in analysis.given}


def _of(picture: Picture | None) -> Picture:
    assert picture is not None  # chosen by whoever measures one image
    return picture


def measure_with(
    analysis: Analysis, opened: Sequence[Inputs], options: Mapping[str, Any], **how
) -> tuple[str, NamedTuple]:
    """Measure opened networks; return the name of the files and the result.

    `how` is n, picture, digit and progress, as of `arguments`.
    """
    result = analysis.measure(**arguments(analysis, opened, **how), **options)
    return stem(analysis, opened[0], result, n=how.get("n"), picture=how.get("picture")), result


def stem(analysis: Analysis, inputs: Inputs, result, *, n=None, picture=None) -> str:
    """Return the name of a result's files: of its image, or of the data set and its images."""
    name = analysis.name.replace("_", "-")
    if picture is not None:
        return analysis.stem(f"{name}-{picture.name}", result)
    images = usual_images(analysis, n, inputs)
    return analysis.stem(f"{name}-{inputs.dataset.name}-{images}-images", result)


def of_figure_set(analysis: Analysis, inputs: Inputs, settings) -> Iterator[tuple[str, NamedTuple]]:
    """Measure what an analysis gives to a figure set; yield the name of the files and the result.

    Networks are compared with the shipped networks without capsules for the same data.

    Parameters
    ----------
    settings  `capsviz.results.sets.Settings`: numbers of images, the seed, the image that is shown.
    """
    opened = with_baselines(inputs) if analysis.compares else [inputs]
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
