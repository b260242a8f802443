"""Write docs/leaderboard.md: every shipped network, by the results that are shipped.

`python -m benchmarks.leaderboard` writes it; `make readme` does too.
"""

from collections.abc import Sequence

from benchmarks import ROOT, binding
from benchmarks.refuter import everywhere
from benchmarks.shipped import dose_text
from capsviz.analyses.transplant.pairs_by_dose import DONOR, SHUFFLED
from capsviz.files import write_text
from capsviz.results import leaderboard
from capsviz.results.tables import markdown

PAGE = ROOT / "docs/leaderboard.md"
NONE = "–"
HEAD = """# Leaderboard

All networks that come with capsviz, by the results in `trained/`, `trained/seeds/` and `figures/`.
It is not a competition: the networks differ in size, data and training, so compare rows of one data
set only. `capsviz compare A B C` prints the same for your own networks.

Intervals are 95 %: over test images for one training run, over runs and images for several. A dash
means that no result is shipped. † marks a value that follows from the definition of the routing.
"""
FIRST, LAST = ("network", "data", "runs", "accuracy, %"), "parameters"
GROUPS = {  # title: what its columns mean, and the columns
    "Accuracy": (
        "Inside, outside: accuracy on test images that are rotated, sheared, scaled and shifted, "
        "inside the range of shifts used in training, and outside it (`capsviz affine`, "
        "`affnist`).",
        (*FIRST, "inside, %", "outside, %", LAST),
    ),
    "Robustness and detection": (
        "Corrupted: mean error under the corruptions of MNIST-C (`capsviz corrupt`). Rotated: mean "
        "accuracy from -90° to 90° (`sweep`). Attacked: accuracy under the worst of all attacks at "
        "ε = 0.1, on 100 to 1,000 images ([table](robustness.md#attacks)). Undetected: images that "
        "the adaptive attack at ε = 0.3 makes misclassified and not flagged (`detect`).",
        ("network", "runs", "corrupted, error, %", "rotated, %", "attacked, %", "undetected, %"),
    ),
    "Routing": (
        "Donor's class: images predicted as the class of the image whose couplings they were given "
        "(`capsviz transplant`); with sharp couplings, shuffled ones often do as much. "
        "Effective parents: effective number of parents, as a share of all (negative "
        "couplings are ignored). The rest: change of accuracy if couplings are uniform, shuffled "
        "among the capsules, or random with the same standard deviation (`routing`).",
        ("network", "runs", "donor's class, %", "effective parents, %", "uniform couplings, points",
         "shuffled, points", "matched, points"),
    ),
    "Poses and maps": (
        "Equivariance: R² of an affine map of the pose under rotation, less that of the untrained "
        "network (`capsviz equivariance`). Faithfulness: area between insertion and deletion for "
        "the routing map, less that of pixels in random order (`faithfulness`).",
        ("network", "runs", "equivariance, R²", "faithfulness, area"),
    ),
}  # fmt: skip

KINDS = (DONOR, SHUFFLED)  # whose couplings
DOSES = """### Doses

Factor of the deviation from uniform couplings at which half of the images follow the donor
(`capsviz transplant --by dose`, from 0.25 to 8), interpolated between doses a factor of two apart.
All other networks were not measured.
"""
BINDING = """## Binding

Do couplings say which part belongs to which whole? Scored on `assemblies`
([what it means](binding.md)): AUROC, then the share of pairs in which couplings turn to the class
that the rest of the image decides.

![Parts, their wholes and what couplings say](../figures/binding-assemblies-300-images-far.png)
"""


def cells(table, names: Sequence[str]) -> list[list[str]]:
    """Return some columns, of the rows of `leaderboard.table()`."""
    header, rows = leaderboard.cells(table)
    return [[row[header.index(name)] for name in names] for row in rows]


def doses() -> str:
    """Return the doses of every shipped network, or recipe with several runs, that has them."""
    rows = [
        [name.strip("`"), str(one.half.training_runs), *(dose_text(one, kind) for kind in KINDS)]
        for name, one in everywhere("transplant-*-by-dose-*", "Doses")
    ]
    return markdown(["network", "runs", *KINDS], rows)


def page() -> str:
    """Return docs/leaderboard.md."""
    table, parts = leaderboard.table(), [HEAD]
    for title, (meaning, names) in GROUPS.items():
        rows = cells(table, names)
        measured = [row for row in rows if title == "Accuracy" or {*row[2:]} != {NONE}]
        parts += [f"## {title}\n\n{meaning}\n", markdown(names, measured)]
        if title == "Routing":
            parts += [DOSES, doses()]
    parts += [BINDING, binding.summary()]
    notices: dict[str, list[str]] = {}
    for row in table:
        if row.network.notice:
            notices.setdefault(row.network.notice, []).append(f"`{row.network.name}`")
    parts += [f"{', '.join(names)}: {text}.\n" for text, names in notices.items()]
    return "\n".join(parts)


def write() -> None:
    """Write docs/leaderboard.md."""
    write_text(PAGE, page())


if __name__ == "__main__":
    write()
