"""Images decoded along the straight path between two poses."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag


class Result(NamedTuple):
    """Two images, and T images on the path from the one's pose to the other's, both ends too."""

    images: np.ndarray  # (2, C, H, W) uint8
    labels: list[int | None]  # (2,) true classes, where they are known
    capsule: int  # the class whose pose is changed: the first image's predicted class
    t: np.ndarray  # (T,) from 0 to 1
    path: np.ndarray  # (T, C, H, W) uint8, decoded from (1 - t) v_a + t v_b
    fade: np.ndarray  # (T, C, H, W) uint8, (1 - t) the first of them + t the last
    path_activations: np.ndarray  # (T, J) of these images, encoded again
    fade_activations: np.ndarray  # (T, J)
    activations: np.ndarray  # (2, J) of the images
    classes: list[str]
    score: str = "capsule length"  # or "activation", what activations are
    other_index: int | None = None  # which image of its class the second one is


class Path(Analysis):
    """The straight path between the poses of two images, and a cross-fade."""

    Result = Result
    needs = ("poses", "decode")
    examples = """
    capsviz probes --digit 2 --other-index 5  # 10 s
    capsviz probes --n 1000  # about 2 min
    """

    def measure(
        self, network, *, picture, inputs, classes,
        other_index: Annotated[
            int | None,
            Flag("--other-index", metavar="K"),
            Default("the one after --index"),
            "Which image of the class the path leads to.",
        ] = None,
    ) -> Result:  # fmt: skip
        """Decode the path from one image to another image of its class."""
        from capsviz.inputs.samples import beside
        from capsviz.tracing import scores

        label = picture.label
        if label is None:
            label = int(scores(network, picture.image).argmax())
        if other_index is None:
            other_index = _next(inputs, picture)
        images = beside(inputs, picture, label, other_index, "another one (--other-index)")
        result = path_between(network, images, (picture.label, label), classes=classes)
        return result._replace(other_index=other_index)

    def left_out(self, inputs):
        """Return why a figure set goes without it: no decoder."""
        from capsviz.tracing.needs import missing

        lacks = missing(inputs.model, self.needs)
        return f"the network has no {lacks[0]}" if lacks else super().left_out(inputs)

    def stem(self, base, result):
        """Return the name with the number of the second image."""
        return f"{base}-to-{result.other_index}"

    def draw(self, result, *, width=7.16, part=""):
        """Draw film strips of both, and the activations along them."""
        from capsviz.analyses.probes import draw

        return draw.strip(result, width)

    def verdict(self, result) -> str:
        """Say how many of the images between are predicted as the class of the path."""
        name = result.classes[result.capsule]
        path, fade = (
            int((one.argmax(1) == result.capsule).sum())
            for one in (result.path_activations, result.fade_activations)
        )
        text = (
            f"{path} of {len(result.t)} images along the path are predicted as {name}, and {fade} "
            "along the cross-fade of its ends."
        )
        last = int(result.activations[1].argmax())
        if last != result.capsule:
            text += f" The second image itself is predicted as {result.classes[last]}."
        return text

    def caption(self, result, part="") -> str:
        """Return what the strips and curves are."""
        return (
            "Images decoded along the straight path between two poses, (1 - t) v_a + t v_b, and "
            "below them the cross-fade of the first and the last. Each has its predicted class and "
            "that class's activation, which the curves follow; one pair of images proves nothing."
        )


def path_between(model, images, labels=(None, None), *, classes) -> Result:
    """Decode the straight path between the poses of two images (2, C, H, W), and a cross-fade.

    Raises
    ------
    ValueError  for another number of images.
    """
    from capsviz.analyses.probes import paths
    from capsviz.tracing import score_name, scores
    from capsviz.transforms.augment import to_uint8

    if len(images) != 2:
        raise ValueError(f"expected two images, the ends of a path, got {len(images)}")
    images = images.cpu()
    activations = scores(model, images)
    capsule = int(activations[0].argmax())
    path, fade = paths.strips(model, images[:1], images[1:], capsule)
    return Result(
        images=to_uint8(images),
        labels=list(labels),
        capsule=capsule,
        t=paths.T.numpy(),
        path=to_uint8(path[0]),
        fade=to_uint8(fade[0]),
        path_activations=scores(model, path[0]).numpy(),
        fade_activations=scores(model, fade[0]).numpy(),
        activations=activations.numpy(),
        classes=list(classes),
        score=score_name(model, images),
    )


def _next(inputs, picture) -> int:
    """The image after a picture of the data set, or the first one after the last."""
    if picture.label is None:
        return 0
    index = int(picture.name.rpartition("-")[2]) + 1
    return index if index < int((inputs.dataset.labels == picture.label).sum()) else 0
