"""Compare images with their reconstructions from the predicted and the true class."""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Range
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval


class Result(NamedTuple):
    """Hold P examples, F confident failures, and the SSE of N images by class.

    K is the number of classes with at least 2 images.
    """

    examples: np.ndarray  # (P, 3, C, H, W) uint8: input, decoded from predicted, from true class
    example_labels: np.ndarray  # (P,) true class
    example_predicted: np.ndarray  # (P,) class of the longest capsule
    failures: np.ndarray  # (F, 3, C, H, W) uint8, like examples; longest wrong capsule first
    failure_labels: np.ndarray  # (F,)
    failure_predicted: np.ndarray  # (F,)
    failure_lengths: np.ndarray  # (F, 2) length of the predicted, and of the true class's capsule
    failure_places: np.ndarray  # (F,) index among the N images
    numbers: np.ndarray  # (K,) indices of the classes below
    counts: np.ndarray  # (K,) images of each of these classes
    sse_predicted: Estimate  # (K,) mean SSE, decoded from the predicted class; Student's t
    sse_true: Estimate  # (K,) mean SSE, decoded from the true class
    mean_sse: Estimate  # () over all N images, decoded from the predicted class
    wrong: int  # misclassified images
    n: int
    classes: list[str]
    dataset: str
    score: str = "capsule length"  # or "activation": the quantity in `failure_lengths`

    axes = {"sse_predicted": ("numbers",), "sse_true": ("numbers",)}
    formats = dict.fromkeys(("sse_predicted", "sse_true", "mean_sse"), ".2f")


class Reconstruct(Analysis):
    """Reconstructions of N images from the predicted and from the true class."""

    Result = Result
    how = "of the mean, Student's t"
    needs = ("poses", "decode")
    examples = "capsviz reconstruct --n 1000  # 10 s"
    headline = ("mean_sse",)

    def measure(
        self,
        network,
        images,
        labels,
        *,
        classes,
        dataset,
        progress=iter,
        per_class: Annotated[int, Range(1, 4), "Examples of each class."] = 1,
        failures: Annotated[int, Range(0, 20), "Confident failures to show, at most."] = 6,
    ) -> Result:
        """Decode every image twice: with its predicted class, and with its true class.

        The confident failures are the misclassified images with the longest wrong capsules.
        """
        import torch

        from capsviz.nn.functional import predict, reconstruction_loss
        from capsviz.tracing import CHUNK_IMAGES, decode, require_decoder, score_name, trace
        from capsviz.transforms.augment import to_uint8

        require_decoder(network)
        images, labels = images.cpu(), labels.cpu()

        def decode_both(rows):
            """Return both classes (B, 2), their activations (B, 2), and images (B, 3, C, H, W).

            The classes are the predicted and the true one. The images are the input and its
            reconstruction from each class.
            """
            batch = images[rows].float()
            traced = trace(network, batch, keep=("poses", "lengths"))
            poses, activations = traced.require("poses")[-1], traced.require("lengths")
            pair = torch.stack([predict(activations), labels[rows]], 1)
            decoded = [decode(network, poses, one).float() for one in pair.T]
            return pair, activations.gather(1, pair).float(), torch.stack([batch, *decoded], 1)

        found = []
        for rows in progress(torch.arange(len(images)).split(CHUNK_IMAGES)):
            pair, activations, pictures = decode_both(rows)
            batch, *decoded = pictures.unbind(1)
            losses = torch.stack([reconstruction_loss(batch, one) for one in decoded], 1)
            found.append((pair[:, 0], activations, losses.double()))
        predicted, lengths, errors = (torch.cat(p).numpy() for p in zip(*found, strict=True))
        firsts = [(labels == k).nonzero()[:per_class, 0] for k in labels.unique()]
        order, true = torch.cat(firsts).numpy(), labels.numpy()
        places = np.flatnonzero(predicted != true)
        places = places[np.argsort(-lengths[places, 0], kind="stable")[:failures]]
        shown = to_uint8(decode_both(np.concatenate([order, places]))[2])
        counts = np.bincount(true, minlength=len(classes))
        numbers = np.flatnonzero(counts >= 2)
        by_class = [mean_interval(errors[true == k]) for k in numbers]
        means = np.array([mean for mean, _ in by_class]).reshape(-1, 2)
        ends = np.array([interval for _, interval in by_class]).reshape(-1, 2, 2)
        mean, interval = mean_interval(errors[:, 0])
        ends, interval = (np.maximum(one, 0) for one in (ends, interval))  # few images: below 0
        return Result(
            examples=shown[: len(order)],
            example_labels=true[order],
            example_predicted=predicted[order],
            failures=shown[len(order) :],
            failure_labels=true[places],
            failure_predicted=predicted[places],
            failure_lengths=lengths[places],
            failure_places=places,
            numbers=numbers,
            counts=counts[numbers],
            sse_predicted=Estimate(means[:, 0], ends[:, 0]),
            sse_true=Estimate(means[:, 1], ends[:, 1]),
            mean_sse=Estimate(mean, interval, len(images)),
            wrong=int((predicted != true).sum()),
            n=len(images),
            classes=list(classes),
            dataset=dataset,
            score=score_name(network, images),
        )

    def verdict(self, result) -> str:
        text = f"{result.wrong} of {result.n} {result.dataset} images are misclassified"
        if len(result.numbers) > 1:
            sse = result.sse_predicted.value
            low, high = (result.classes[result.numbers[k]] for k in (sse.argmin(), sse.argmax()))
            text += f"; the SSE is smallest for class {low} and largest for class {high}"
        return f"{text}."

    def heading(self, result, part="") -> str:
        return super().heading(result, part) if part else ""
