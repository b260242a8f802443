"""Do primary capsules choose their class by the image, by position, or always the same?"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Flag, Range, Seed
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import wilson_each
from capsviz.statistics.replicates import within, within_one
from capsviz.statistics.words import UNTRAINED, in_a_row, sentence, shown, word_for

OTHERS = 500  # images to compute mean trees from, at most
BY_CLASS = slice(4, 6)  # among `Statistics.components`
SHARES = ("shares", "shuffled", "favourites", "with_class", "own_column")  # fields
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DEAD = 0.05  # a capsule is dead if its largest activation is below this
STARVED = 0.001  # a capsule is starved if its gradient is below this share of the largest one


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


class Trajectory(NamedTuple):
    """T epochs of one training run from epoch 0, before training; quantiles are `QUANTILES`."""

    epochs: list[int]  # (T,)
    accuracy: Estimate  # (T,)
    largest: np.ndarray  # (T, 5) quantiles over children of the largest activation over images
    dead: np.ndarray  # (T,) children whose largest activation is below `dead_norm`
    gradient: np.ndarray  # (T, 5) quantiles of gradient norms, relative to the largest one
    gradient_largest: np.ndarray  # (T,) largest gradient norm of a child
    starved: Estimate  # (T,) children whose gradient is below `starved_share` of the largest
    components: list[str]  # (7,)
    shares: Estimate  # (T, 7) as in `Statistics`
    children: int  # I
    dead_norm: float
    starved_share: float
    run: str
    n: int
    dataset: str

    axes = {
        **dict.fromkeys(("accuracy", "starved"), ("epochs",)),
        "shares": ("epochs", "components"),
    }
    formats = {"accuracy": ".1%", "starved": ".0f", "shares": ".1%"}


class Epochs(Analysis):
    """Dead and starved primary capsules, and the components of their trees, by epoch of a run."""

    Result = Trajectory
    panels = "draw:EPOCHS"
    needs = ("couplings",)
    figure_set = None
    headline = ("accuracy", "starved")

    def measure(
        self, network, images, labels, *, inputs, progress=iter,
        folder: Annotated[
            Path | None,
            Flag("--run", metavar="FOLDER"),
            "A run of `capsviz train --save-every K`: capsules by epoch.",
        ] = None,
        seed: Seed = 0,
    ) -> Trajectory:  # fmt: skip
        assert folder is not None  # without it, another analysis is chosen
        return follow(
            opened(weights(folder), images, inputs.device, progress), images, labels,
            run=folder.resolve().name, dataset=inputs.dataset.name, seed=seed,
        )  # fmt: skip

    def checkpoint(self, *, folder, **others):
        files = weights(folder)
        return str(files[max(files)])

    def stem(self, base, result):
        return f"parse-tree-epochs-{result.run}"

    def verdict(self, result) -> str:
        first, last = result.epochs[0], result.epochs[-1]
        return (
            f"In epoch {last} of {result.run}, {result.dead[-1]} of {result.children} primary "
            f"capsules are dead, and {result.dead[0]} in epoch {first}. More images can only "
            "revive a capsule."
        )

    def heading(self, result, part="") -> str:
        return f"{result.run}, {result.n:,} {result.dataset} images; bands: 5 to 95, 25 to 75 %"


def follow(networks: Iterable, images, labels, *, run, dataset, seed=0) -> Trajectory:
    """Measure the capsules of each (epoch, network); ValueError if they cannot be routed again."""
    from capsviz.analyses.parse_tree import measure
    from capsviz.tracing import abilities
    from capsviz.tracing.rerouting import child_gradients

    images, labels, n = images.cpu(), labels.cpu(), len(images)
    counts, rows = draw_resamples(n, seed=seed), []
    for epoch, model in networks:
        if not abilities(model).routes_again:
            raise ValueError(
                "the networks of this run cannot be routed again, so capsules cannot be followed"
            )
        squares, most, correct = child_gradients(model, images, labels)
        norms = squares.mean(0).sqrt().numpy()
        relative = norms / max(norms.max(), np.finfo(float).tiny)
        drawn = np.sqrt(np.asarray(counts, float) @ squares.numpy() / n)
        few = (drawn < STARVED * drawn.max(1, keepdims=True)).sum(1)
        count = (relative < STARVED).sum()
        low, high = np.percentile(few, [2.5, 97.5])
        few = Estimate(count, np.array([min(low, count), max(high, count)]), n)
        decides = measure.shares(measure.observe(model, images), labels, counts)
        right = int(correct.sum())
        rows.append((epoch, right, most.numpy(), norms.max(), relative, few, decides))
    epochs, answers, active, tops, gradients, starved, shares = zip(*rows, strict=True)
    largest, hits = np.stack(active), np.array(answers)
    return Trajectory(
        epochs=list(epochs),
        accuracy=Estimate(hits / n, wilson_each(hits, n), n),
        largest=np.quantile(largest, QUANTILES, axis=1).T,
        dead=(largest < DEAD).sum(1),
        gradient=np.quantile(gradients, QUANTILES, axis=1).T,
        gradient_largest=np.array(tops),
        starved=stack(starved),
        components=list(measure.COMPONENTS),
        shares=stack(shares),
        children=largest.shape[1],
        dead_norm=DEAD,
        starved_share=STARVED,
        run=run,
        n=n,
        dataset=dataset,
    )


def weights(folder: Path) -> dict[int, Path]:
    """Return the weights of a run's folder by epoch; ValueError for a folder without any."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder '{folder}'")
    files = {}
    for path in (folder / "epochs").glob("*.safetensors"):
        if match := re.search(r"-(\d+)$", path.stem):
            files[int(match[1])] = path
    if not files:
        raise ValueError(
            f"'{folder}' holds no weights by epoch (epochs/NAME-EPOCH.safetensors): train with "
            "`capsviz train ... --save-every K`"
        )
    return dict(sorted(files.items()))


def opened(files: dict[int, Path], images, device, progress=iter):
    """Yield (epoch, network); epoch 0 is untrained, initialised with the recipe's seed."""
    from capsviz import checkpoint

    for epoch in progress([0, *files]):
        path = files[epoch or min(files)]
        model = checkpoint.load(path, device=device)
        if epoch == 0:
            seed = checkpoint.read_card(path)["recipe"]["seed"]
            model = checkpoint.untrained_like(model, seed, images=images)
        yield epoch, model
