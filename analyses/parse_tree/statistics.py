"""What decides the parse trees of many images."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Range, Seed
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.replicates import mean, within, within_one
from capsviz.statistics.words import sentence, word_for

OTHERS = 500  # images that means are of, at most
FIXED, OF_CLASS, OF_IMAGE = slice(0, 4), slice(4, 6), 6  # among these
MOST = 0.5  # of the variance
SHARES = ("shares", "shuffled", "favourites", "with_class", "own_column")  # fields


class Statistics(NamedTuple):
    """N images; S networks, the own one first, then untrained ones; intervals are 95 %."""

    networks: list[str]  # (S,)
    components: list[str]  # (7,) where variance lies
    shares: Estimate  # (S, 7) of the mean square of preferences; NaN: uniform couplings
    shuffled: Estimate  # (7,) of the own network, with class labels shuffled
    coupling_sd: np.ndarray  # (S,) about uniform ones, over all images
    choices: list[str]  # (5,) what favourites do
    favourites: Estimate  # (S, 5) share of children; NaN: uniform couplings
    frozen: list[str] | None  # (6,) couplings; None: they cannot be replaced
    accuracy: Estimate | None  # (6,) with these; difference: less that with its own
    true_activation: Estimate | None  # (6,) mean of the true class
    moves: list[str] | None  # (3,) positions compared; None: too few positions to move by one
    trees: list[str] | None  # (2,) the whole tree, and less the usual one of the image's class
    correlation: Estimate | None  # (2, 3) with the moved image's tree; difference: less the first
    grid: tuple[int, int, int] | None  # types, rows, columns
    others: str  # images that frozen couplings and usual favourites are of
    notes: list[str]
    classes: list[str]
    n: int
    dataset: str
    tied: np.ndarray | None = None  # (6,) share in which no class is ahead of all others
    sources: list[str] | None = None  # (A,) couplings, and what they are made of
    with_class: Estimate | None = None  # (S, A) share of their variance; difference: less couplings
    own_column: Estimate | None = None  # (S,) of that of couplings, in the column of the class
    controls: list[str] | None = None  # (M,) networks whose images are moved as well
    controlled: Estimate | None = None  # (M, 3) `correlation` of their whole trees
    by_child: np.ndarray | None = None  # (I, 3) no longer measured, in some shipped results

    axes = {
        "shares": ("networks", "components"),
        "shuffled": ("components",),
        "favourites": ("networks", "choices"),
        **dict.fromkeys(("accuracy", "true_activation"), ("frozen",)),
        "correlation": ("trees", "moves"),
        "with_class": ("networks", "sources"),
        "own_column": ("networks",),
        "controlled": ("controls", "moves"),
    }
    formats = {
        **dict.fromkeys((*SHARES, "accuracy"), ".1%"),
        **dict.fromkeys(("true_activation", "correlation", "controlled"), ".2f"),
    }
    over_runs = {
        **dict.fromkeys((*SHARES, "true_activation"), within_one),
        **dict.fromkeys(("correlation", "controlled"), within(-1, 1)),
        "tied": mean,
    }


class ParseTree(Analysis):
    """Which share of the couplings' variance goes with the class, and what moves with the image."""

    Result = Statistics
    panels = "draw:MANY"
    examples = "capsviz parse-tree --n 1000  # about 45 s"
    needs = ("couplings",)
    any_input = True
    slow = True
    headline = ("shares", "with_class", "own_column", "accuracy", "correlation", "controlled")

    def measure(
        self, network, images, labels, *, classes, dataset, inputs, progress=iter,
        seeds: Annotated[int, Range(0), "Freshly initialised networks."] = 1, seed: Seed = 0,
    ) -> Statistics:  # fmt: skip
        from capsviz.inputs.samples import other_images

        return evaluate(
            network, images, labels, other_images(inputs, OTHERS), classes=classes,
            dataset=dataset, seeds=seeds, seed=seed, progress=progress,
        )  # fmt: skip

    def verdict(self, result) -> str:
        parts = [_decides(result.shares[0], result.shuffled)]
        if result.correlation is not None and np.isfinite(result.correlation.value[0]).all():
            parts.append(word_for(
                result.correlation[0, 1].difference,
                "The tree stays at its position when the image moves.",
                "The tree moves with the image.",
                "It is not shown that the tree moves with the image, nor that it stays.",
            ))  # fmt: skip
        return " ".join([*parts, *map(sentence, result.notes)])

    def caption(self, result, part="") -> str:
        bars = f"Bars: 95 % intervals over {result.n:,} images of {result.dataset}"
        if part == "moved":
            return (
                "Accuracy and activation of the true class with couplings frozen to means of other "
                "images. Correlation of an image's tree with the tree of the image moved by one "
                "position, also of untrained networks, and with random matrices: own ones of each "
                f"position, or shared by all positions of a type. {bars} (bootstrap)."
            )
        return (
            "Shares of the variance of what primary capsules prefer, for the network, untrained "
            "networks, and shuffled class labels. Below, how often their favourite class differs, "
            "and the share of variance that lies between classes, for the couplings and what they "
            f"are made of. {bars} (bootstrap; Student's t)."
        )


def _decides(shares: Estimate, shuffled: Estimate) -> str:
    """What decides most of the preferences: the class beyond its share with shuffled labels."""
    if np.isnan(shares.value).any():
        return "No primary capsule prefers any class: its couplings are uniform in every image."
    low = shares.low
    if low[FIXED].sum() > MOST:
        return "Primary capsules mostly prefer the same classes in every image: a static tree."
    if low[OF_CLASS].sum() - np.nan_to_num(shuffled.high[OF_CLASS]).sum() > MOST:
        alike = shares.value[4] / shares.value[OF_CLASS].sum()
        how = "alike in all capsules" if alike > MOST else "each in its own way"
        return f"Primary capsules mostly choose by the class of the image, {how}."
    if low[OF_IMAGE] > MOST:
        return "Primary capsules mostly choose by the image, within its class too."
    return "No single cause decides most of what primary capsules prefer."


def evaluate(
    model, images, labels, others, *, classes, dataset, seeds=1, seed=0, progress=iter
) -> Statistics:
    """Measure the trees of N images (N, C, H, W) with labels (N,), beside `seeds` untrained ones.

    Means are of `others`; the seed is of networks, random matrices, pairs and the bootstrap.
    """
    import torch

    from capsviz.analyses.parse_tree import measure
    from capsviz.tracing import coupling_sd

    images, labels = images.cpu(), labels.cpu()
    counts = draw_resamples(len(images), seed=seed)
    generator = torch.Generator().manual_seed(seed)
    fresh, notes = measure.untrained(model, images, seeds, seed)
    known = measure.observe(model, others.images)
    observed, rows = [], []
    for network in (model, *fresh):
        here = measure.observe(network, images)
        elsewhere = known if network is model else measure.observe(network, others.images)
        usual = measure.usual(measure.favourites(elsewhere.couplings), here.couplings.shape[2])
        pairs = torch.Generator().manual_seed(seed)  # the same couples for every network
        favourite = measure.favourites(here.couplings)
        sources, explained = measure.with_class(network, images, labels, counts)
        observed.append(here)
        rows.append({
            "shares": measure.shares(here, labels, counts),
            "favourites": measure.choices(favourite, usual, labels, here.read, pairs),
            "with_class": explained,
            "own_column": measure.own_column(here.couplings, labels, counts),
        })  # fmt: skip
    own = observed[0]
    mixed = labels[torch.randperm(len(labels), generator=generator)]
    names = [
        measure.FRESH if len(fresh) == 1 else f"{measure.FRESH}, seed {seed + k}"
        for k in range(len(fresh))
    ]
    frozen = _frozen(model, images, labels, own, known, others.labels, generator, progress, counts)
    trees = measure.class_means(known, others.labels)[labels]
    moves = _moved((model, *fresh), images, observed, names, trees, seed, progress, counts)
    of_networks: dict[str, Any] = {name: stack(row[name] for row in rows) for name in rows[0]}
    return Statistics(
        **of_networks,
        networks=[measure.known_as(model), *names],
        components=list(measure.COMPONENTS),
        shuffled=measure.shares(own, mixed, counts),
        coupling_sd=np.array([float(coupling_sd(one.couplings).square().mean().sqrt())
                              for one in observed]),
        choices=list(measure.CHOICES),
        grid=own.grid,
        others=others.name,
        notes=[*notes, *frozen.pop("notes"), *moves.pop("notes")],
        classes=list(classes),
        n=len(images),
        dataset=dataset,
        sources=sources,
        **frozen,
        **moves,
    )  # fmt: skip


def _frozen(model, images, labels, own, known, classes, generator, progress, counts) -> dict:
    """Accuracy and activations with frozen couplings, shares of ties, and why there are none."""
    import torch

    from capsviz.analyses.parse_tree import measure
    from capsviz.tracing.many import winners

    try:
        activations = measure.frozen(model, images, own, known, classes, generator, progress)
    except ValueError as error:
        none = dict.fromkeys(("frozen", "accuracy", "true_activation"))
        return none | {"notes": [f"no frozen couplings: {error}"]}
    read = winners(activations)
    true = activations[:, torch.arange(len(labels)), labels]
    return {
        "frozen": list(measure.FROZEN),
        "accuracy": compare_means((read == labels).numpy(), counts),
        "true_activation": compare_means(true.numpy(), counts, shares=False),
        "tied": (read < 0).double().mean(1).numpy(),
        "notes": [],
    }


def _moved(networks, images, observed, names, usual, seed, progress, counts) -> dict:
    """Correlations with the trees of moved images, and why there are none.

    The first network is the own one, the others are untrained, by `names`; `usual` (N, I, J) is the
    usual tree of each image's class.
    """
    from capsviz.analyses.parse_tree import measure

    own, why = observed[0], ""
    apart = measure.steps(networks[0], own.grid)
    if own.grid is None or max(own.grid[1:]) < 3:
        why = "the grid has fewer than 3 positions to move by"
    elif not apart:
        why = "neighbouring positions see the same part of the image"
    elif measure.is_even(own.couplings):
        why = "all couplings are uniform, so none has a tree"
    if why:
        none = dict.fromkeys(("moves", "trees", "correlation"))
        return none | {"notes": [f"trees of moved images: {why}"]}

    def correlations(network, seen, less):
        values = measure.moved(network, images, seen, apart, less, progress)
        return stack(compare_means(one, counts, shares=False) for one in values.numpy())

    names, networks, observed, notes = [*names], [*networks], [*observed], []
    try:
        networks += measure.randomised(networks[0], own.grid, seed)
        names += measure.RANDOM
        observed += [measure.observe(one, images) for one in networks[-2:]]
    except ValueError as error:
        notes = [f"no random matrices: {error}"]
    controls = [
        correlations(network, seen, (0,))[0]
        for network, seen in zip(networks[1:], observed[1:], strict=True)
    ]
    return {
        "moves": list(measure.MOVED),
        "trees": list(measure.TREES),
        "correlation": correlations(networks[0], own, (0, usual)),
        "controls": names if controls else None,
        "controlled": stack(controls) if controls else None,
        "notes": notes,
    }
