"""Do primary capsules choose their class by the image, by position, or always the same?"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Range, Seed
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.replicates import within, within_one
from capsviz.statistics.words import UNTRAINED, in_a_row, sentence, shown, word_for

OTHERS = 500  # images to compute mean trees from, at most
BY_CLASS = slice(4, 6)  # among `Statistics.components`
SHARES = ("shares", "shuffled", "favourites", "with_class", "own_column")  # fields


class Result(NamedTuple):
    """Trees of S images: two images, then the first one in an untrained network, if any."""

    images: np.ndarray  # (S, C, H, W) uint8
    predicted: np.ndarray  # (S,) predicted classes
    labels: list[int | None]  # (S,) true classes, None: unknown
    networks: list[str]  # (S,) "trained", "this network" or "untrained"
    favourites: np.ndarray  # (S, I) parent with each child's largest coupling; -1: all the same
    margins: np.ndarray  # (S, I) that coupling minus the child's mean coupling
    grid: tuple[int, int, int] | None  # types, rows, columns; None: no positions
    coupling_sd: np.ndarray  # (S,) standard deviation of couplings about uniform ones
    classes: list[str]


class Trees(Analysis):
    """The favourite class of each primary capsule, in two images."""

    Result = Result
    needs = ("couplings",)
    examples = "capsviz parse-tree --digit 4  # 10 s"

    def measure(
        self, network, *, picture, inputs, classes,
        other: Annotated[
            int | None,
            Flag("--other", metavar="CLASS"),
            Default("the class after the first image's"),
            "Class of the other image.",
        ] = None,
        seed: Seed = 0,
    ):  # fmt: skip
        """Compare the trees of two images, and of the first by an untrained network."""
        import torch

        from capsviz.analyses.parse_tree import measure
        from capsviz.inputs.samples import beside, other_class
        from capsviz.tracing import coupling_sd
        from capsviz.transforms.augment import to_uint8

        other = other_class(classes, other, inputs, picture)
        images = beside(inputs, picture, other, 0, "another class (--other)")
        untrained, _ = measure.untrained(network, images, 1, seed)
        observed = [measure.observe(network, images)]
        observed += [measure.observe(one, images[:1]) for one in untrained.values()]
        couplings = torch.cat([one.couplings for one in observed])
        return Result(
            images=to_uint8(torch.cat([images, *(images[:1] for _ in untrained)])),
            predicted=torch.cat([one.predicted for one in observed]).numpy(),
            labels=[picture.label, other, *(picture.label for _ in untrained)],
            networks=[*[measure.known_as(network)] * 2, *(UNTRAINED for _ in untrained)],
            favourites=measure.favourites(couplings).numpy(),
            margins=measure.preferences(couplings).amax(-1).numpy(),
            grid=observed[0].grid,
            coupling_sd=torch.cat([coupling_sd(one.couplings) for one in observed]).numpy(),
            classes=list(classes),
        )

    def stem(self, base, result):
        return f"{base}-{result.labels[1]}-0"

    def verdict(self, result) -> str:
        differ = (result.favourites[0] != result.favourites[1]).mean()
        own = (result.favourites[0] == result.predicted[0]).mean()
        return (
            f"{differ:.0%} of the primary capsules have another favourite class in the other "
            f"image. In the first image, {own:.0%} favour its predicted class, "
            f"{result.classes[result.predicted[0]]}."
        ).replace("%", " %")


class Statistics(NamedTuple):
    """Trees of N images in S networks: the given one, then untrained ones; intervals are 95 %."""

    networks: list[str]  # (S,)
    components: list[str]  # (7,) of the variance, see `measure`
    shares: Estimate  # (S, 7) share of the mean square of preferences; NaN: uniform couplings
    shuffled: Estimate  # (7,) of the first network, with class labels shuffled
    coupling_sd: np.ndarray  # (S,) deviation from uniform couplings, over all images
    choices: list[str]  # (5,) properties of favourites
    favourites: Estimate  # (S, 5) share of children with each property; NaN: uniform couplings
    frozen: list[str] | None  # (6,) replaced couplings; None: they cannot be replaced
    accuracy: Estimate | None  # (6,) with these; difference: minus the one with its own
    true_activation: Estimate | None  # (6,) mean of the true class
    shifts: list[str] | None  # (3,) positions compared; None: too few positions to shift by one
    trees: list[str] | None  # (2,) the whole tree; the tree minus its class's usual tree
    correlation: Estimate | None  # (2, 3) with the shifted image's; difference: minus the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    others: str  # images that frozen couplings and usual favourites come from
    notes: list[str]
    classes: list[str]
    n: int
    dataset: str
    sources: list[str] | None = None  # (A,) couplings, and the values they are computed from
    with_class: Estimate | None = None  # (S, A) variance between classes, as a share; difference:
    # minus that of the couplings
    own_column: Estimate | None = None  # (S,) share of the couplings' variance between classes
    # that is in the class's own column
    controls: list[str] | None = None  # (M,) control networks for shifted images
    controlled: Estimate | None = None  # (M, 3) `correlation` of their whole trees

    axes = {
        "shares": ("networks", "components"),
        "shuffled": ("components",),
        "favourites": ("networks", "choices"),
        **dict.fromkeys(("accuracy", "true_activation"), ("frozen",)),
        "correlation": ("trees", "shifts"),
        "with_class": ("networks", "sources"),
        "own_column": ("networks",),
        "controlled": ("controls", "shifts"),
    }
    titles = {
        "shares": "share of mean square preference",
        "shuffled": "share of mean square preference, shuffled labels",
        "with_class": "variance between classes",
        "own_column": "variance between classes in the class's column",
        "controlled": "correlation, control",
    }
    formats = {
        **dict.fromkeys((*SHARES, "accuracy"), ".1%"),
        **dict.fromkeys(("true_activation", "correlation", "controlled"), ".2f"),
    }
    over_runs = {
        **dict.fromkeys((*SHARES, "accuracy", "true_activation"), within_one),
        **dict.fromkeys(("correlation", "controlled"), within(-1, 1)),
    }


class ParseTree(Analysis):
    """Share of the couplings' variance that goes with the class, and what shifts with the image."""

    Result = Statistics
    how = "bootstrap; Student's t"
    panels = "draw:MANY"
    examples = "capsviz parse-tree --n 1000  # about 45 s"
    needs = ("couplings",)
    any_input = True
    slow = True
    headline = ("shares", "with_class", "own_column", "accuracy", "correlation", "controlled")

    def measure(
        self, network, images, labels, *, classes, dataset, inputs, progress=iter,
        seeds: Annotated[int, Range(0), "Number of untrained networks."] = 1, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        """Measure the trees of N images (N, C, H, W) with labels (N,), and untrained networks."""
        import torch

        from capsviz.analyses.parse_tree import measure
        from capsviz.inputs.samples import other_images
        from capsviz.tracing import coupling_sd

        images, labels, others = images.cpu(), labels.cpu(), other_images(inputs, OTHERS)
        counts = draw_resamples(len(images), seed=seed)
        generator = torch.Generator().manual_seed(seed)
        untrained, notes = measure.untrained(network, images, seeds, seed)
        if absent := [str(c) for k, c in enumerate(classes) if k not in others.labels.unique()]:
            notes = [*notes, f"none of the {others.name} is of {in_a_row(absent)}: the mean of all "
                     "stands for the usual tree"]  # fmt: skip
        observed, usual, rows = [], [], []
        for one in (network, *untrained.values()):
            here = measure.observe(one, images)
            usual.append(measure.usual(one, others.images, others.labels))
            pairs = torch.Generator().manual_seed(seed)  # the same pairs for every network
            favourite = measure.favourites(here.couplings)
            sources, explained = measure.with_class(one, images, labels, counts)
            observed.append(here)
            rows.append({
                "shares": measure.shares(here, labels, counts),
                "favourites": measure.choices(
                    favourite, usual[-1].favourite, labels, here.predicted, pairs
                ),
                "with_class": explained,
                "own_column": measure.own_column(here.couplings, labels, counts),
            })  # fmt: skip
        own = observed[0]
        mixed = labels[torch.randperm(len(labels), generator=generator)]
        frozen = measure.under_frozen(
            network, images, labels, own, usual[0], generator, progress, counts
        )
        trees = usual[0].of_class[labels]
        shifts = measure.of_shifted(
            network, untrained, images, observed, trees, seed, progress, counts
        )
        of_networks: dict[str, Any] = {name: stack(row[name] for row in rows) for name in rows[0]}
        return Statistics(
            **of_networks,
            networks=[measure.known_as(network), *untrained],
            components=list(measure.COMPONENTS),
            shuffled=measure.shares(own, mixed, counts),
            coupling_sd=np.array([float(coupling_sd(one.couplings).square().mean().sqrt())
                                  for one in observed]),
            choices=list(measure.CHOICES),
            grid=own.grid,
            others=others.name,
            notes=[*notes, *frozen.pop("notes"), *shifts.pop("notes")],
            classes=list(classes),
            n=len(images),
            dataset=dataset,
            sources=sources,
            **frozen,
            **shifts,
        )  # fmt: skip

    def verdict(self, result) -> str:
        own, control = result.shares[0].low[BY_CLASS], result.shuffled.high[BY_CLASS]
        claim = "preferences vary with the class more than with shuffled labels"
        parts = [shown(own.sum() > control.sum(), claim)]
        if np.isnan(result.shares.value[0]).any():
            parts = ["No primary capsule prefers any class: couplings are uniform in every image."]
        if result.correlation is not None and np.isfinite(result.correlation.value[0]).all():
            less = result.correlation[0, 1].difference  # same position minus shifted position
            parts.append(word_for(
                less,
                "The tree stays at its position when the image is shifted.",
                "The tree shifts with the image.",
                "It is not shown that the tree shifts with the image, nor that it stays.",
            ))  # fmt: skip
        return " ".join([*parts, *map(sentence, result.notes)])
