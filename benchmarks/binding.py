"""Make the tables of docs/binding.md: results on the data set `assemblies`.

`python -m benchmarks.binding LABEL FOLDER...` measures the geometry of networks without capsules
from the training runs in these folders, and writes it to benchmarks/results. They were trained by

    capsviz train assemblies --model resnet --option channels=[9,18,37] --epochs 8 --limit 10000
    capsviz train assemblies --model average --option channels=[37,29] --epochs 8 --limit 10000

with `--seed` 0 to 2, and those with capsules by `--option channels=32 --routing NAME` in place of
the model (em: `--option floor=1.0`, variational: `--option vote_std=0.000416667`).
"""

import sys

import numpy as np
import torch

from benchmarks import read, write
from benchmarks.clock import about
from benchmarks.findings import NONE, in_percent, percent, plain
from benchmarks.shipped import bound
from capsviz import checkpoint
from capsviz.analyses.binding import measure
from capsviz.data import assemblies
from capsviz.experiments import wholes
from capsviz.results.tables import markdown
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.replicates import within_one
from capsviz.tracing import scores
from capsviz.transforms.augment import to_float

WITHOUT = "binding-without-capsules"

SHARES = {  # shares of images or pairs, by table and column
    "context": {
        "follows the unseen part": lambda one: one.follows[0, -1],
        "distractor follows": lambda one: one.follows[1, -1],
    },
    "geometry": {
        "accuracy": lambda one: one.viewpoint[0],
        "before a shift": lambda one: one.accuracy[0],
        "the same images, a part shifted by 10 px": lambda one: one.accuracy[-1],
        "a part rotated by 180°: the class of the same parts": lambda one: one.rotated[1, -1],
        "other rotations": lambda one: one.viewpoint[1],
    },
}
OTHERS = ("evidence", "evidence with uniform couplings", "one position alone (probe)")
CONTROLS = ("votes from the true poses", "votes from part types alone")


def table(words: str) -> str:
    """Return one of the tables "assignment", "context", "geometry" or "maps"."""
    if words == "maps":
        return maps()
    results = {name: one.result for name, one in bound().items()}
    if words == "assignment":
        header = ["coupling", "coupling, types in both wholes", "coupling, same parts",
                  "evidence", "evidence, uniform couplings", "one position alone"]  # fmt: skip
        found = {name: _assigned(result) for name, result in results.items()}
    else:
        header = list(SHARES[words])
        found = {
            name: [percent(share(one)) for share in SHARES[words].values()]
            for name, one in results.items()
        }
    rows = [[name, str(results[name].viewpoint.training_runs), *row] for name, row in found.items()]
    if words == "geometry":
        rows += without_capsules()
    if words == "assignment":
        *_, last = results.values()
        for name in CONTROLS:
            areas = last.assignment[last.scored.index(name)]
            rows.append([f"control: {name}", NONE, *map(plain, areas), *3 * [NONE]])
    return in_percent(["routing", "runs", *header], rows)


def _assigned(result) -> list[str]:
    """Return the AUROC of couplings by subset of parts, and that of the other scores of wholes."""
    of = dict(zip(result.scored, result.assignment, strict=True))
    return [*map(plain, of["coupling"]), *(plain(of[name][0]) for name in OTHERS)]


def maps() -> str:
    """Return a table of how well maps find the whole among distractors, for two routings."""
    results = [bound()[name].result for name in ("dynamic", "uniform")]
    rows = [
        [name.removesuffix(" (pixels)"),
         "pixels" if name.endswith("(pixels)") else "positions",
         *(plain(one.relevance[m]) for one in results)]
        for m, name in enumerate(results[0].maps)
    ]  # fmt: skip
    return markdown(["map", "of", "dynamic routing", "uniform couplings"], rows)


def without_capsules() -> list[list[str]]:
    """Return the rows of the geometry table for networks without capsules."""
    rows = []
    for label, one in read(WITHOUT).items():
        whole, *others = (percent(Estimate(value, ci95)) for value, *ci95 in one["shares"])
        rows.append([label, str(len(one["weights_sha256"])), whole, NONE, *others])
    return rows


@torch.no_grad()
def geometry(model, n: int = 300) -> Estimate:
    """Return the four shares of the geometry table, on the images of `capsviz binding`."""
    options = {"parts": 2, "rotation": 30, "distance": "far", "distractors": 1, "jitter": 0.5}
    one, outside = (
        assemblies.make(split, n, **options, seed=0) for split in ("test", "test-outside")
    )
    few = assemblies.Assemblies(*(values[: measure.SERIES] for values in one))
    far = wholes.moved(few, measure.DISTANCES_PX[-1])
    whole = wholes.inside(far)

    def right(made, classes) -> torch.Tensor:
        return (scores(model, to_float(made.images)).argmax(1) == classes).double()

    own = few.classes[:, 0]
    shares = [
        right(one, one.classes[:, 0]), right(far, own)[whole],
        right(wholes.rotated(few), wholes.partner(own)), right(outside, outside.classes[:, 0]),
    ]  # fmt: skip
    known = [measure._mean(values.numpy()[None], 0, 1)[0] for values in shares]
    return Estimate([k.value for k in known], [k.ci95 for k in known], n)


if __name__ == "__main__":
    label, *folders = sys.argv[1:]
    models = [checkpoint.load(folder) for folder in folders]
    found = within_one([geometry(model) for model in models])
    result = {
        "shares": np.column_stack([found.value, found.ci95]).tolist(),
        "weights_sha256": [model.card["weights"]["sha256"] for model in models],
        "about": about(),
    }
    write(WITHOUT, read(WITHOUT) | {label: result})
