"""What the decoder makes of each class, and of images that are misread.

Method: each image goes through the network once; its poses are decoded twice, masked by the
predicted class (what the network can do without labels) and by the true class (what it was trained
on). SSE is the sum of squared pixel differences, pixels in [0, 1]; its mean over the images of each
true class has a 95 % interval by Student's t. The confident failures are the misread images whose
wrong capsule is longest (figure 3 of Sabour, Frosst & Hinton 2017, arXiv:1710.09829).

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

from capsviz.cli import options
from capsviz.cli.analysis import analysis
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval, require_two
from capsviz.statistics.words import sentences

EXAMPLES = """
capsviz reconstruct --n 1000  # 10 s
"""

NEEDS = ("poses", "decode")  # of a network, see tracing.needs


# What the axes of estimates are: fields with their names, or the names; None: numbered from 1.
AXES = dict.fromkeys(("sse_predicted", "sse_true"), ("numbers",))


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
    numbers: np.ndarray  # (K,) of the classes of the errors below
    counts: np.ndarray  # (K,) images of each
    sse_predicted: Estimate  # (K,) mean SSE, decoded from the predicted class; by t
    sse_true: Estimate  # (K,) mean SSE, decoded from the true class
    mean_sse: Estimate  # () over all N images, decoded from the predicted class
    wrong: int  # images that were misread
    n: int
    classes: list[str]
    dataset: str
    score: str = "capsule length"  # or "activation", what `failure_lengths` are


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
    ValueError  for fewer than 2 images, or a network without a decoder.
    """
    import torch

    from capsviz.nn.functional import predict, reconstruction_loss
    from capsviz.tracing import CHUNK_IMAGES, decode, require_decoder, score_name, trace
    from capsviz.transforms.augment import to_uint8

    require_decoder(model)
    images, labels = images.cpu(), labels.cpu()
    require_two(len(images))
    if per_class < 1:
        raise ValueError(f"expected at least 1 example of each class, got {per_class}")
    rows = set(_first_of_each(labels.numpy(), per_class).tolist())
    examples, worst, predicted, errors = {}, [], [], []
    for start in progress(range(0, len(images), CHUNK_IMAGES)):
        part = slice(start, start + CHUNK_IMAGES)
        batch, truth = images[part].float(), labels[part]
        traced = trace(model, batch, keep=("poses", "lengths"))
        winner = predict(traced.lengths)
        decoded = [decode(model, traced.poses[-1], which).float() for which in (winner, truth)]
        stacked = to_uint8(torch.stack([batch, *decoded], 1))
        errors.append(torch.stack([reconstruction_loss(batch, one) for one in decoded], 1))
        predicted.append(winner)
        examples |= {start + i: stacked[i] for i in range(len(batch)) if start + i in rows}
        pairs = torch.stack([winner, truth], 1)
        for i, lengths in enumerate(traced.lengths.gather(1, pairs).float().numpy()):
            if winner[i] != truth[i]:
                worst.append((lengths, start + i, stacked[i]))
        worst = sorted(worst, key=lambda one: (-one[0][0], one[1]))[:failures]
    predicted, errors = torch.cat(predicted).numpy(), torch.cat(errors).double().numpy()
    labels, n = labels.numpy(), len(images)
    order = sorted(examples, key=lambda place: (labels[place], place))
    places = np.array([place for _, place, _ in worst], dtype=int)
    empty = np.zeros((0, 3, *images.shape[1:]), np.uint8)
    counts = np.bincount(labels, minlength=len(classes))
    numbers = np.flatnonzero(counts >= 2)
    by_class = [mean_interval(errors[labels == k]) for k in numbers]
    means = np.array([mean for mean, _ in by_class]).reshape(-1, 2)
    ends = np.array([interval for _, interval in by_class]).reshape(-1, 2, 2)
    ends = np.maximum(ends, 0)  # of few images the interval may begin below
    return Result(
        examples=np.stack([examples[place] for place in order]) if order else empty,
        example_labels=labels[order],
        example_predicted=predicted[order],
        failures=np.stack([stack for *_, stack in worst]) if worst else empty,
        failure_labels=labels[places],
        failure_predicted=predicted[places],
        failure_lengths=np.array([lengths for lengths, *_ in worst]).reshape(-1, 2),
        failure_places=places,
        numbers=numbers,
        counts=counts[numbers],
        sse_predicted=Estimate(means[:, 0], ends[:, 0]),
        sse_true=Estimate(means[:, 1], ends[:, 1]),
        mean_sse=Estimate(*mean_interval(errors[:, 0]), n),
        wrong=int((predicted != labels).sum()),
        n=n,
        classes=list(classes),
        dataset=dataset,
        score=score_name(model, images),
    )


def plot(result: Result, *, width=7.16):
    """Examples by class, confident failures, and SSE per class."""
    from capsviz.analyses.reconstruct import draw as drawing

    return drawing.sheet(result, width)


@analysis(__doc__)
@options.n
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
def command(run, n, per_class, failures):
    """Reconstruct test images; write the figure and its numbers."""
    result = compute(
        run.model,
        *run.images(n),
        classes=run.classes,
        dataset=run.dataset,
        per_class=per_class,
        failures=failures,
        progress=run.progress("reconstructing"),
    )
    yield f"reconstruct-{result.dataset}-{result.n}-images", result


def findings(result: Result) -> str:
    """What the numbers say, in a line or two."""
    text = f"{result.n} {result.dataset} images, with 95 % intervals: mean SSE "
    text += f"{result.mean_sse:.2f}"
    if len(result.numbers):
        sse = result.sse_predicted
        text += ", from " + " to ".join(
            f"{sse[i]:.2f} (class {result.classes[result.numbers[i]]})"
            for i in (sse.value.argmin(), sse.value.argmax())
        )
    text += f"; {result.wrong} misread"
    if len(result.failures):
        read, true = (
            result.classes[which[0]] for which in (result.failure_predicted, result.failure_labels)
        )
        a, b = result.failure_lengths[0]
        word = result.score.split()[-1]
        text += f"; the most confident: {true} ({word} {b:.2f}) read as {read} ({word} {a:.2f})"
    return text


def paper(inputs, settings):
    """For `capsviz figures`."""
    data = inputs.dataset
    result = compute(
        inputs.model,
        *inputs.images(settings.n),
        classes=data.classes,
        dataset=data.name,
        progress=settings.progress("reconstructing"),
    )
    yield f"reconstruct-{data.name}-{settings.n}-images", result


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    word = result.score.split()[-1]
    failures = f"the same for the most confident failures, with the {word}s of both capsules; "
    return (
        "Inputs and their reconstructions from the predicted and from the true class; "
        f"{failures if len(result.failures) else ''}SSE by true class, mean and 95 % interval. "
        f"{sentences(findings(result))}"
    )


def _first_of_each(labels: np.ndarray, count: int) -> np.ndarray:
    """Places of the first `count` images of every class."""
    return np.concatenate([np.flatnonzero(labels == k)[:count] for k in np.unique(labels)])
