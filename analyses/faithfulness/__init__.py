"""Test whether the routing map is faithful: does the class score fall without its pixels?"""

from dataclasses import replace
from typing import Annotated, Literal, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Range, Seed
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within, within_one
from capsviz.statistics.words import in_a_row, sentence

Target = Annotated[Literal["predicted", "true"], "Class to explain: the predicted or the true one."]
Steps = Annotated[int, Range(2), "Number of steps in the curves, each larger than the last."]
SHARES = ("curves", "deletion", "insertion", "infidelity")


class Result(NamedTuple):
    """M maps of one image, controls first."""

    image: np.ndarray  # (C, H, W) uint8
    names: list[str]  # (M,)
    maps: np.ndarray  # (M, H, W) float32, positions of capsules as rectangles
    shares: np.ndarray  # (S,) share of the pixels that are removed, or shown
    deletion: np.ndarray  # (M, S) score of the class
    insertion: np.ndarray  # (M, S) score of the class
    deletion_area: np.ndarray  # (M,)
    insertion_area: np.ndarray  # (M,)
    infidelity: np.ndarray  # (M,) in [0, 1]
    random_maps: np.ndarray  # (M, H, W) float32, of the network with random weights
    correlation: np.ndarray  # (M,) rank correlation of the two maps; NaN for the random order
    left_out: list[str]  # maps that the network does not have, and why
    target: int  # class that is explained
    label: int | None  # true class, if known
    classes: list[str]
    quantity: dict[str, str] | None = None  # quantity of the routing map; None: c (û·v̂)


class OneImage(Analysis):
    """Maps of one image, their deletion and insertion curves, and maps of random weights."""

    Result = Result
    examples = "capsviz faithfulness --digit 4  # 15 s"

    def measure(
        self, network, image, label, *, classes, target: Target = "predicted", steps: Steps = 8,
        seed: Seed = 0,
    ):  # fmt: skip
        """Measure the maps of one image (1, C, H, W)."""
        import torch
        from torch.nn.functional import interpolate

        from capsviz.analyses.faithfulness import measures
        from capsviz.experiments import maps
        from capsviz.experiments.attacks import frozen
        from capsviz.nn.images import like_of
        from capsviz.transforms.augment import to_uint8

        image, generator = image.cpu(), torch.Generator().manual_seed(seed)
        targets = measures.explained_classes(network, image, label, target)
        like, shares = image.to(like_of(network)), measures.grid_of(steps)
        with frozen(network):
            methods, left_out = maps.methods(network, like, seed)
            own = [method(like, targets.to(like.device)) for method in methods.values()]
            about = shares, generator, measures.OF_ONE
            drawn, errors = measures.judged(network, image, targets, own, *about)
            groups = measures.stages(network, like).values()
            weights = [weight for stage in groups for weight in stage]
            with measures.randomised(weights, generator):
                again = like.clone()
                later = [method(again, targets.to(like.device)) for method in methods.values()]

        def enlarged(some):
            sides = tuple(image.shape[2:])
            return torch.cat([interpolate(one.own[:1, None], sides)[0] for one in some]).float()

        names = list(methods)
        areas = torch.trapezoid(drawn[:, :, 0], shares).numpy()
        pairs = [(one.own, other.own) for one, other in zip(own, later, strict=True)]
        correlation = torch.cat([measures.rank_correlation(*pair) for pair in pairs])
        correlation[names.index(maps.RANDOM)] = torch.nan
        return Result(
            image=to_uint8(image[0]),
            names=names,
            maps=enlarged(own).numpy(),
            shares=shares.numpy(),
            deletion=drawn[0, :, 0].numpy(),
            insertion=drawn[1, :, 0].numpy(),
            deletion_area=areas[0],
            insertion_area=areas[1],
            infidelity=errors[:, 0].numpy(),
            random_maps=enlarged(later).numpy(),
            correlation=correlation.numpy(),
            left_out=left_out,
            target=int(targets[0]),
            label=label,
            classes=list(classes),
            quantity=maps.own_quantity(network, like, names),
        )

    def verdict(self, result) -> str:
        best = result.names[int((result.insertion_area - result.deletion_area).argmax())]
        return " ".join([
            f"For class {result.classes[result.target]}, the order by '{best}' has the largest "
            "area under insertion minus deletion. One image is no evidence: add --n N.",
            *map(sentence, result.left_out),
        ])  # fmt: skip


class Statistics(NamedTuple):
    """M maps of N images, controls first; differences are to pixels in random order."""

    names: list[str]  # (M,)
    shares: np.ndarray  # (S,) share of the pixels that are removed, or shown
    curves: Estimate  # (2, M, S) mean score of the class: deletion, insertion
    deletion: Estimate  # (M,) area
    insertion: Estimate  # (M,) area
    gap: Estimate  # (M,) insertion minus deletion
    infidelity: Estimate  # (M,) in [0, 1]; its n counts images whose score some square changes
    routed_less: Estimate | None  # (M,) gap of the routing map minus that of each map; None: no map
    stages: list[str]  # (L,) lowest layer with random weights; all above it have them too
    sanity: Estimate  # (M, L) rank correlation with the map before; n counts draws; NaN: undefined
    left_out: list[str]  # maps that the network does not have, and why
    target: str  # "predicted" or "true": the class that is explained
    n: int
    classes: list[str]
    dataset: str
    quantity: dict[str, str] | None = None  # quantity of the routing map; None: c (û·v̂)

    axes = {
        "curves": (("deletion", "insertion"), "names", "shares"),
        **dict.fromkeys(("deletion", "insertion", "gap", "infidelity", "routed_less"), ("names",)),
        "sanity": ("names", "stages"),
    }
    formats = dict.fromkeys((*SHARES, "gap", "routed_less", "sanity"), ".3f")
    titles = {
        "deletion": "area under deletion",
        "insertion": "area under insertion",
        "gap": "insertion minus deletion",
        "routed_less": "routing map's minus that of",
        "sanity": "rank correlation with the map before randomisation",
    }
    over_runs = dict.fromkeys(SHARES, within_one) | dict.fromkeys(("gap", "sanity"), within(-1, 1))


class OverImages(Analysis):
    """Deletion, insertion, infidelity and sanity of maps over many images."""

    Result = Statistics
    panels = "draw:MANY"
    examples = "capsviz faithfulness --n 200  # about 1 min"
    figure_set = None  # it takes too long
    headline = ("gap",)

    def measure(
        self, network, images, labels, *, classes, dataset, progress=iter,
        target: Target = "predicted", steps: Steps = 8, seed: Seed = 0,
    ):  # fmt: skip
        """Measure the maps of N images (N, C, H, W) with labels (N,), at least 2."""
        import torch

        from capsviz.analyses.faithfulness import measures
        from capsviz.experiments import maps
        from capsviz.experiments.attacks import frozen
        from capsviz.nn.images import like_of
        from capsviz.statistics.intervals import mean_interval, require_two

        images, labels = images.cpu(), labels.cpu()
        require_two(len(images))
        generator = torch.Generator().manual_seed(seed)
        targets = measures.explained_classes(network, images, labels, target)
        first, shares, judged = images[:1].to(like_of(network)), measures.grid_of(steps), []
        with frozen(network):
            methods, left_out = maps.methods(network, first, seed)
            for rows in progress(torch.arange(len(images)).split(measures.AT_A_TIME)):
                some, chosen = images[rows], targets[rows]
                batch = some.to(first), chosen.to(first.device)
                own = [method(*batch) for method in methods.values()]
                judged.append(measures.judged(network, some, chosen, own, shares, generator))
            stages = measures.stages(network, first)
            kept = measures.under_draws(network, methods, images, targets, stages, generator)
        drawn = torch.cat([one for one, _ in judged], 2)
        errors = torch.cat([one for _, one in judged], 1)
        changed = ~errors.isnan().any(0)
        return Statistics(
            **measures.areas(list(methods), drawn, shares, seed),
            infidelity=measures.means(errors[:, changed], seed).undrawn(),
            stages=list(stages),
            sanity=Estimate(*mean_interval(kept.numpy()), len(kept)),
            left_out=left_out,
            target=target,
            classes=list(classes),
            dataset=dataset,
            quantity=maps.own_quantity(network, first, methods),
        )

    def verdict(self, result) -> str:
        return compared(result)


def compared(result) -> str:
    """Return sentences on the maps that are less and more faithful than the routing map."""
    texts = result.left_out
    if result.routed_less is not None:
        less = result.routed_less
        more, fewer = (
            in_a_row([f"'{name}'" for name in np.array(result.names)[which]] or ["no other map"])
            for which in (less.low > 0, less.high < 0)
        )
        text = f"the routing map is clearly more faithful than {more}, and less than {fewer}"
        texts = [f"By insertion minus deletion, {text}", *texts]
    return " ".join(map(sentence, texts))


class Units(NamedTuple):
    """M maps of N images, controls first; differences are to the constant map."""

    names: list[str]  # (M,)
    shares: np.ndarray  # (S,) share of the units that are removed, or shown alone
    curves: Estimate  # (2, M, S) mean activation of the class: deletion, insertion
    accuracy: Estimate  # (2, M, S)
    deletion: Estimate  # (M,) area
    insertion: Estimate  # (M,) area
    gap: Estimate  # (M,) insertion minus deletion
    routed_less: Estimate | None  # (M,) gap of the routing map minus that of each map
    accuracy_gap: Estimate  # (M,) insertion minus deletion of the accuracy
    apart: Estimate | None  # (M,) AUROC: positions of the object against others; None: one object
    over: str  # "positions", "capsules" or "pixels"
    scene: str  # "clean", "cluttered" or "two-digits"
    left_out: list[str]  # maps that the network does not have, and why
    n: int
    classes: list[str]
    dataset: str

    axes = {k: v for k, v in Statistics.axes.items() if k not in ("infidelity", "sanity")} | {
        "accuracy": Statistics.axes["curves"],
        **dict.fromkeys(("accuracy_gap", "apart"), ("names",)),
    }
    formats = dict.fromkeys(axes, ".3f")
    titles = {k: v for k, v in Statistics.titles.items() if k != "sanity"} | {
        "accuracy_gap": "insertion minus deletion of the accuracy",
        "apart": "AUROC of the object's positions",
    }
    over_runs = dict.fromkeys(
        ("curves", "accuracy", "deletion", "insertion", "apart"), within_one
    ) | dict.fromkeys(("gap", "accuracy_gap"), within(-1, 1))


class OverUnits(Analysis):
    """Deletion and insertion of positions, primary capsules or pixels by maps of routing."""

    Result = Units
    panels = "draw:UNITS"
    needs = ("votes", "couplings", "interventions", "from_children")
    examples = "capsviz faithfulness --over positions  # about 1 min"
    usual_n = 100
    figure_set = None  # it takes too long
    headline = ("gap", "apart")

    def check(self, *, over, **_) -> None:
        if over is None:
            raise ValueError("--scene is for --over: add --over positions, capsules or pixels")

    def measure(
        self,
        inputs,
        n,
        *,
        progress=iter,
        over: Annotated[
            Literal["positions", "capsules", "pixels"] | None,
            "Units to remove, by maps of routing.",
            Default("pixels, by all maps"),
        ] = None,
        scene: Annotated[
            Literal["clean", "cluttered", "two-digits"],
            "Single digits, digits among pieces of others, or two digits in an image; with --over.",
        ] = "clean",
        steps: Steps = 8,
        seed: Seed = 0,
    ):
        """Remove and add units of n images in the order of maps of their true class."""
        from capsviz.analyses.faithfulness import measures
        from capsviz.statistics.intervals import require_two, wilson_each

        require_two(n)
        over, part, shares = over or "positions", inputs.dataset.sample(n), measures.grid_of(steps)
        names, drawn, apart, left_out = measures.measured(
            inputs.model, measures.make(part, scene, seed), over, shares, seed, progress
        )
        activation, accuracy = (measures.areas(names, one, shares, seed) for one in drawn)
        right = wilson_each(drawn[1].sum(2).numpy(), n)
        return Units(
            **activation,
            accuracy=replace(accuracy["curves"], ci95=right),
            accuracy_gap=accuracy["gap"],
            apart=None if apart is None else measures.means(apart, seed).undrawn(),
            over=over,
            scene=scene,
            left_out=left_out,
            classes=list(part.classes),
            dataset=part.name,
        )

    def verdict(self, result) -> str:
        return compared(result)

    def intervals(self, result) -> str:
        scenes = "" if result.scene == "clean" else f" ({result.scene} scenes)"
        return super().intervals(result) + scenes

    def stem(self, base, result) -> str:
        kind = result.over if result.scene == "clean" else f"{result.over}-{result.scene}"
        return base.replace(f"-{result.n}-images", f"-{kind}-{result.n}-images")
