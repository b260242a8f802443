"""What the decoder makes of each class, and of images that are misread.

Method: each image goes through the network once; its poses are decoded twice, masked by the
predicted class (what the network can do without labels) and by the true class (what it was trained
on). SSE is the sum of squared pixel differences, pixels in [0, 1]; its mean over the images of each
true class has a normal 95 % interval. The confident failures are the misread images whose wrong
capsule is longest (figure 3 of Sabour, Frosst & Hinton 2017, arXiv:1710.09829).

A reader should see smooth versions of the inputs, and, in a failure, two readings of one image: the
pose of each class is drawn as that class. The examples are the first of each class among the N
images, the failures are chosen for being wrong: neither says how often anything happens.

Do not conclude that a good reconstruction shows a right answer: the decoder is told the class and
draws it. Nor compare SSE across classes as quality: a class with more ink has more to miss.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from analyses._words import with_interval
from capsviz import options
from capsviz.intervals import mean_interval, require_two


class Result(NamedTuple):
    """Examples P, confident failures F, errors of N images; K classes have 2 images or more."""

    examples: np.ndarray  # (P, 3, C, H, W) uint8: input, from the predicted, from the true class
    example_labels: np.ndarray  # (P,) true class
    example_predicted: np.ndarray  # (P,) class of the longest capsule
    failures: np.ndarray  # (F, 3, C, H, W) uint8, as examples; the longest wrong capsule first
    failure_labels: np.ndarray  # (F,)
    failure_predicted: np.ndarray  # (F,)
    failure_lengths: np.ndarray  # (F, 2) of the predicted and of the true class's capsule
    failure_places: np.ndarray  # (F,) which of the N images
    shown: np.ndarray  # (K,) class numbers of the errors below
    counts: np.ndarray  # (K,) images of each
    sse_predicted: np.ndarray  # (K,) mean SSE, decoded from the predicted class
    sse_predicted_ci95: np.ndarray  # (K, 2) normal approximation
    sse_true: np.ndarray  # (K,) mean SSE, decoded from the true class
    sse_true_ci95: np.ndarray  # (K, 2)
    mean_sse: float  # over all N images, decoded from the predicted class
    mean_sse_ci95: np.ndarray  # (2,) normal approximation
    wrong: int  # images that were misread
    n: int
    classes: list[str]
    dataset: str


def compute(
    model, images, labels, *, classes, dataset, per_class=1, failures=6, progress=iter
) -> Result:
    """Reconstruct N images (N, C, H, W), at least 2, from the predicted and from the true class.

    Parameters
    ----------
    labels     (N,) true classes.
    classes    names of the classes.
    dataset    its name, for the record.
    per_class  examples of each class to keep: the first of the N images.
    failures   how many confident failures to keep, at most.
    progress   wraps the chunks of images, for a progress bar.

    Raises
    ------
    ValueError  for fewer than 2 images; from the network, if it has no decoder.
    """
    import torch

    from capsviz.augment import to_uint8
    from capsviz.functional import predict, reconstruction_loss
    from capsviz.tracing import CHUNK_IMAGES, decode, trace

    images, labels = images.cpu(), labels.cpu()
    require_two(len(images))
    wanted = set(_first_of_each(labels.numpy(), per_class).tolist())
    examples, worst, predicted, errors = {}, [], [], []
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        part = slice(start, start + CHUNK_IMAGES)
        batch, truth = images[part], labels[part]
        seen = trace(model, batch, keep=("poses", "lengths"))
        found = predict(seen.lengths)
        made = [decode(model, seen.poses[-1], which) for which in (found, truth)]
        stacked = to_uint8(torch.stack([batch, *made], 1))
        errors.append(torch.stack([reconstruction_loss(batch, one) for one in made], 1))
        predicted.append(found)
        examples |= {start + i: stacked[i] for i in range(len(batch)) if start + i in wanted}
        pairs = torch.stack([found, truth], 1)
        for i, lengths in enumerate(seen.lengths.gather(1, pairs).numpy()):
            if found[i] != truth[i]:
                worst.append((lengths, start + i, stacked[i]))
        worst = sorted(worst, key=lambda one: (-one[0][0], one[1]))[:failures]
    predicted, errors = torch.cat(predicted).numpy(), torch.cat(errors).double().numpy()
    labels = labels.numpy()
    order = sorted(examples, key=lambda place: (labels[place], place))
    places = np.array([place for _, place, _ in worst], dtype=int)
    empty = np.zeros((0, 3, *images.shape[1:]), np.uint8)
    counts = np.bincount(labels, minlength=len(classes))
    shown = np.flatnonzero(counts >= 2)
    mean_sse, mean_sse_ci95 = mean_interval(errors[:, 0])
    means = {k: mean_interval(errors[labels == k]) for k in shown}
    mean = np.array([means[k][0] for k in shown]).reshape(-1, 2)
    interval = np.array([means[k][1] for k in shown]).reshape(-1, 2, 2)
    return Result(
        examples=np.stack([examples[place] for place in order]) if order else empty,
        example_labels=labels[order],
        example_predicted=predicted[order],
        failures=np.stack([stack for *_, stack in worst]) if worst else empty,
        failure_labels=labels[places],
        failure_predicted=predicted[places],
        failure_lengths=np.array([lengths for lengths, *_ in worst]).reshape(-1, 2),
        failure_places=places,
        shown=shown,
        counts=counts[shown],
        sse_predicted=mean[:, 0],
        sse_predicted_ci95=interval[:, 0],
        sse_true=mean[:, 1],
        sse_true_ci95=interval[:, 1],
        mean_sse=float(mean_sse),
        mean_sse_ci95=mean_sse_ci95,
        wrong=int((predicted != labels).sum()),
        n=len(images),
        classes=list(classes),
        dataset=dataset,
    )


def plot(result: Result, *, width=7.16):
    """Examples by class, confident failures, and SSE per class."""
    from analyses import _reconstruct_drawing as drawing

    return drawing.sheet(result, width)


@click.command(help=__doc__.split("\n")[0])
@options.subject
@click.option(
    "--evaluate",
    "n",
    type=int,
    metavar="N",
    help=f"N test images.  [default: {options.USUAL}, or all if fewer]",
)
@click.option(
    "--per-class",
    type=click.IntRange(1, 4),
    default=1,
    show_default=True,
    help="Examples of each class.",
)
@click.option(
    "--failures",
    type=click.IntRange(0, 20),
    default=6,
    show_default=True,
    help="Confident failures to show, at most.",
)
@options.figure
@options.as_json
def command(n, per_class, failures, as_json, figure, subject):
    """Reconstruct test images; write the figure and its numbers."""
    opened = options.open_subject(subject)
    images, labels = opened.images(options.usual(n, opened))
    result = compute(
        opened.model,
        images,
        labels,
        classes=opened.dataset.classes,
        dataset=opened.dataset.name,
        per_class=per_class,
        failures=failures,
        progress=options.progress("reconstructing"),
    )
    name = f"reconstruct-{result.dataset}-{result.n}-images"
    paths = options.save(name, "reconstruct", result, opened, figure)
    options.report(result, findings(result), paths, as_json)


def findings(result: Result) -> str:
    """What the numbers say, in a line or two."""
    sse = with_interval(result.mean_sse, result.mean_sse_ci95, ".2f")
    text = f"{result.n} {result.dataset} images, with 95 % intervals: mean SSE {sse}"
    if len(result.shown):
        low, high = result.sse_predicted.argmin(), result.sse_predicted.argmax()
        text += ", from " + " to ".join(
            with_interval(result.sse_predicted[i], result.sse_predicted_ci95[i], ".2f")
            + f" (class {result.classes[result.shown[i]]})"
            for i in (low, high)
        )
    text += f"; {result.wrong} misread"
    if len(result.failures):
        read, true = (
            result.classes[which[0]] for which in (result.failure_predicted, result.failure_labels)
        )
        a, b = result.failure_lengths[0]
        text += f"; the most confident: {true} (length {b:.2f}) read as {read} (length {a:.2f})"
    return text


def paper(subject, settings):
    """For `capsviz figures`."""
    data = subject.dataset
    result = compute(
        subject.model,
        *subject.images(settings.n),
        classes=data.classes,
        dataset=data.name,
        progress=settings.progress("reconstructing"),
    )
    yield f"reconstruct-{data.name}-{settings.n}-images", result


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    failures = "the same for the most confident failures, with the lengths of both capsules; "
    return (
        "Inputs and their reconstructions from the predicted and from the true class; "
        f"{failures if len(result.failures) else ''}SSE by true class, mean and 95 % interval. "
        f"{findings(result)}."
    )


def _first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Places of the first `count` images of every class."""
    return np.concatenate([np.flatnonzero(labels == k)[:count] for k in np.unique(labels)])
