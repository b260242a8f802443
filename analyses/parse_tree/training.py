"""Primary capsules over training: activations, gradients and trees, epoch by epoch."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Flag, Seed
from capsviz.statistics.comparison import draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import wilson_each

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DEAD = 0.05  # activation: the largest one of a dead capsule is below it
STARVED = 0.001  # of the largest gradient: that of a starved capsule is below it


class Trajectory(NamedTuple):
    """T epochs of one run, epoch 0 as it began; I children; quantiles are 5, 25, 50, 75, 95 %."""

    epochs: list[int]  # (T,)
    accuracy: Estimate  # (T,)
    largest: np.ndarray  # (T, 5) quantiles over children of the largest activation over images
    dead: np.ndarray  # (T,) children whose largest activation is below `dead_norm`
    gradient: np.ndarray  # (T, 5) quantiles of gradients' norms, in shares of the largest child's
    gradient_largest: np.ndarray  # (T,) norm of the largest child's
    starved: Estimate  # (T,) children whose gradient is below `starved_share` of that
    components: list[str]  # (7,)
    shares: Estimate  # (T, 7) as in `Statistics`
    children: int
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
    """Dead and starved primary capsules, and what decides their trees, by epoch of a run."""

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
        assert folder is not None  # or another analysis would be chosen
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

    def caption(self, result, part="") -> str:
        return (
            "Primary capsules over training: their largest activation over all images, their "
            "gradient relative to the largest one, and what decides the variance of their "
            "preferences. Dashed: the thresholds of dead and starved capsules. Bands: 5 to 95 % "
            "and 25 to 75 % of the capsules; of the variance, 95 % intervals over images."
        )


def follow(networks: Iterable, images, labels, *, run, dataset, seed=0) -> Trajectory:
    """Follow capsules over (epoch, network), in order; ValueError without capsules of capsviz."""
    from capsviz.analyses.parse_tree import measure
    from capsviz.tracing import routes_again
    from capsviz.tracing.rerouting import child_gradients

    images, labels, n = images.cpu(), labels.cpu(), len(images)
    counts, rows = draw_resamples(n, seed=seed), []
    for epoch, model in networks:
        if not routes_again(model):
            raise ValueError("the networks of this run have no capsules, so none can die")
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
    """Yield (epoch, network); epoch 0 is the network as the recipe's seed initialises it."""
    from capsviz import checkpoint

    for epoch in progress([0, *files]):
        path = files[epoch or min(files)]
        model = checkpoint.load(path, device=device)
        if epoch == 0:
            seed = checkpoint.read_card(path)["recipe"]["seed"]
            model = checkpoint.fresh(model, seed, images=images)
        yield epoch, model
