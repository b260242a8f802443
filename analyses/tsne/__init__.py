"""Map many images by their capsules, by t-SNE or PCA, beside a map by their pixels."""

from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag, Range, Seed
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.replicates import within

Part = Literal["poses", "all-poses", "couplings", "primary"]
PERPLEXITY = 30.0  # a third of the number of images if this is smaller


class Result(NamedTuple):
    """Maps of N images by capsules (0) and pixels (1), T thumbnails, K trajectories of A angles."""

    positions: np.ndarray  # (2, N, 2)
    labels: np.ndarray  # (N,) true class
    predicted: np.ndarray  # (N,) predicted class
    thumbnails: np.ndarray  # (T,) indices of the images that are shown
    thumbnail_images: np.ndarray  # (T, C, H, W) uint8
    paths: np.ndarray  # (2, K, A, 2) positions of rotated images
    path_labels: np.ndarray  # (K,) true class
    path_predicted: np.ndarray  # (K, A) predicted class
    angles_deg: np.ndarray  # (A,) counter-clockwise
    scores: Estimate  # (2, 5) by `score_names`; Wilson intervals for accuracies, else Student t
    score_names: list[str]
    dimensions: list[int]  # (2,) length of the vectors that are mapped
    of: str  # part of the network that is mapped
    method: str  # "tsne" or "pca"
    n: int
    classes: list[str]
    dataset: str
    below: str = "primary capsules"  # name of the capsules below the classes
    fill: str = "black"  # outside a rotated image, as in `transforms.Fill`

    axes = {"scores": (("capsules", "pixels"), "score_names")}
    formats = {"scores": ".3f"}
    over_runs = {"scores": within(-1, 1)}
    titles = {"scores": ""}


class Tsne(Analysis):
    """A map of images by their capsules, a map by their pixels, and scores of both."""

    Result = Result
    needs = ("poses",)
    any_input = True
    examples = """
    capsviz tsne --trajectories 3 --n 1000  # 15 s
    """
    figure_set = ({"of": "poses", "trajectories": 3}, {"of": "primary"})

    def measure(
        self,
        network,
        images,
        labels,
        *,
        classes,
        dataset,
        progress=iter,
        of: Annotated[Part, "What is mapped."] = "poses",
        method: Annotated[Literal["tsne", "pca"], "How it is mapped."] = "tsne",
        trajectories: Annotated[
            int,
            Range(0),
            "Rotate the first image of K classes from -60° to 60° and draw their paths.",
            Flag("--trajectories", metavar="K"),
        ] = 0,
        perplexity: Annotated[
            float | None,
            "Perplexity of t-SNE, about the number of neighbours that count.",
            Default("30, or a third of the images if these are fewer than 90"),
        ] = None,
        fill: Fill = "black",
        seed: Seed = 0,
    ) -> Result:
        """Map N images (N, C, H, W) by their capsules and by their pixels."""
        from capsviz.analyses.tsne import measure as by
        from capsviz.tracing.network import children_words
        from capsviz.transforms.augment import to_uint8

        images, labels = images.cpu(), labels.cpu().numpy()
        n, drawn = len(images), images.dim() == 4
        trajectories *= drawn  # other inputs are not rotated
        shown = np.empty((0, 1, 1, 1), np.uint8)
        perplexity = min(PERPLEXITY, n / 3) if perplexity is None else perplexity
        by.check(labels, method, trajectories, perplexity)
        firsts = np.unique(labels, return_index=True)[1][:trajectories]
        *both, predicted = by.features(network, images, of, progress)
        both.append(images.flatten(1).numpy())
        if trajectories:
            rotated = by.rotated(images[firsts], fill)
            more, rotated_predicted = by.features(network, rotated, of)
            predicted = np.concatenate([predicted, rotated_predicted])
            both = [np.concatenate(p) for p in zip(both, (more, rotated.flatten(1)), strict=True)]
        maps = np.stack([by.embed(part, method, perplexity, seed) for part in progress(both)])
        positions = maps[:, :n]
        chosen = np.empty(0, int)
        if drawn:
            chosen = by.thumbnails(positions[0], labels, predicted[:n])
            shown = to_uint8(images[chosen])
        scores = [by.scores(v[:n], p, labels) for v, p in zip(both, positions, strict=True)]
        return Result(
            positions=positions,
            labels=labels,
            predicted=predicted[:n],
            thumbnails=chosen,
            thumbnail_images=shown,
            paths=np.stack([by.along(part, firsts, n) for part in maps]),
            path_labels=labels[firsts],
            path_predicted=by.along(predicted[:, None], firsts, n)[:, :, 0],
            angles_deg=by.ANGLES_DEG,
            scores=stack(scores),
            score_names=list(by.NAMES),
            dimensions=[part.shape[1] for part in both],
            of=of,
            method=method,
            n=n,
            classes=list(classes),
            dataset=dataset,
            fill=fill if trajectories else "black",  # else nothing is warped
            below=children_words(network),
        )

    def check(self, *, method, perplexity, **_) -> None:
        if method != "tsne" and perplexity is not None:
            raise ValueError(f"--method {method} has no perplexity: drop --perplexity")

    def heading(self, result, part="") -> str:
        name = "t-SNE" if result.method == "tsne" else "PCA"
        rotated = len(result.path_labels) > 0 and not part
        signs = "; ○ with − and +: an image rotated to −60° and +60°" * rotated
        return f"{name} of {result.n:,} images of {result.dataset}{signs}"

    def verdict(self, result) -> str:
        row = result.score_names.index("silhouette in the full space")
        ours, theirs = result.scores[0, row], result.scores[1, row]
        how = "not clearly more separated"
        if ours.low > theirs.high or ours.high < theirs.low:
            how = f"{'more' if ours.value > theirs.value else 'less'} separated"
        return f"The true classes are {how} in the {result.of} than in the pixels (silhouette)."

    def stem(self, base, result) -> str:
        return f"{result.method}-{result.dataset}-{result.of}-{result.n}-images"
