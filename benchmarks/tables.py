"""Make the tables of README and docs from cards and result files: one function per marked part.

A page marks a part by `<!-- NAME -->`, or by `<!-- NAME: words -->` to pass words to the function.
`PARTS` has the names. Nothing is measured here.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from benchmarks import (
    RESULTS,
    ROOT,
    binding,
    findings,
    layers,
    parity,
    preregistered,
    read,
    registry,
)
from benchmarks.findings import (
    NONE,
    WITHOUT_CAPSULES,
    in_percent,
    lead,
    percent,
    plain,
    points,
)
from benchmarks.refuter import everywhere
from benchmarks.shipped import cards, dose_text, over_runs, shipped
from capsviz import checkpoint, checks, discovery
from capsviz.analyses.affnist import draw as affine
from capsviz.analyses.attack import draw as attack
from capsviz.analyses.transplant import DONOR, DONOR_SHUFFLED
from capsviz.checks.verdict import About
from capsviz.experiments.reproduce import gather
from capsviz.results import leaderboard, read_result, table_of
from capsviz.results.tables import markdown
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import mean_interval, wilson

HEAD = (  # networks and columns of the leaderboard in the README
    ("mnist", "mnist-attention", "mnist-resnet-fp32", "mnist-slim-dynamic-10-epochs",
     "mnist-slim-uniform-10-epochs", "mnist-slim-pooled-10-epochs"),
    ("network", "runs", "accuracy, %", "inside, %", "outside, %", "parameters"),
)  # fmt: skip
BOARDS = {  # columns of each table of docs/leaderboard.md
    "accuracy": ("network", "runs", "accuracy, %", "inside, %", "outside, %", "parameters"),
    "robustness": (
        "network", "runs", "corrupted, error, %", "rotated, %", "attacked, %", "undetected, %",
    ),
    "routing": (
        "network", "runs", "donor's class, %", "effective parents, %", "uniform couplings, points",
        "shuffled, points", "matched, points",
    ),
    "poses": ("network", "runs", "equivariance, R²", "faithfulness, area"),
}  # fmt: skip


def results() -> str:
    """Return the table of shipped weights, from their cards."""
    header = ["weights", "parameters", "test accuracy", "n", "SSE per image", "training"]
    rows, notes = [], []
    for name, card in cards().items():
        test, training = card["results"]["test"], card["training"]
        accuracy = Estimate(test["accuracy"], np.array(test["accuracy_ci95"]))
        if notice := card["dataset"].get("notice"):
            notes.append(f"`{name}`: {notice}.")
        if card["dataset"].get("things", 1) > 1:
            notes.append(
                f"`{name}`: accuracy counts images in which all digits are correct. The interval "
                "is too narrow, because a test digit occurs in several images."
            )
        sse = test["reconstruction_sse"]
        rows.append([
            f"`{name}`", f"{card['weights']['parameters']:,}",
            percent(accuracy, 2), f"{test['n']:,}",
            NONE if sse is None else f"{sse:.1f}",
            f"{training['epochs']} epochs of {training['images']:,} images, "
            f"{training['precision']}, {_clock(training['seconds'])} on "
            f"{training['hardware'].removeprefix('x86_64 CPU, 2 cores, ')}",
        ])  # fmt: skip
    return "\n".join([in_percent(header, rows), *notes])


def leaderboard_head() -> str:
    """Return the rows and columns of docs/leaderboard.md that the README shows."""
    names, columns = HEAD
    rows = {row[0]: row for row in _columns(leaderboard.table(), columns)}
    return markdown(columns, [rows[name] for name in names])


def _columns(table, names: Sequence[str]) -> list[list[str]]:
    """Return the named columns of rows of `leaderboard.table()`."""
    header, rows = leaderboard.cells(table)
    return [[row[header.index(name)] for name in names] for row in rows]


def board(words: str) -> str:
    """Return one of the tables of `BOARDS`, without networks that have no measurement in it.

    A recipe is left out if it was trained again in float32, unless its weights are shipped.
    """
    names, table = BOARDS[words], leaderboard.table()
    known = {row.network.name for row in table}
    table = [
        row
        for row in table
        if f"{row.network.name}-fp32" not in known or row.network.name in checkpoint.shipped()
    ]
    return markdown(names, [row for row in _columns(table, names) if {*row[2:]} != {NONE}])


def doses() -> str:
    """Return the doses of all shipped networks and recipes with several runs that have them."""
    kinds = (DONOR, DONOR_SHUFFLED)  # source of the couplings
    rows = [
        [name.strip("`"), str(one.half.training_runs), *(dose_text(one, kind) for kind in kinds)]
        for name, one in everywhere("transplant-*-by-dose-*", "Doses")
    ]
    return markdown(["network", "runs", *kinds], rows)


def notices() -> str:
    """Return the notes on data of networks, each with the networks that it applies to."""
    named: dict[str, list[str]] = {}
    for row in leaderboard.table():
        if row.network.notice:
            named.setdefault(row.network.notice, []).append(f"`{row.network.name}`")
    return "\n\n".join(f"{', '.join(names)}: {text}." for text, names in named.items())


def pitfalls() -> str:
    """Return a table with a row for each check of `capsviz check`."""
    header = ["check: what is wrong", "measurement", "paper", "needs"]
    rows = []
    for name, about, examine in sorted(checks.checks().values()):
        title = f"`{name}`: {about.title}"
        needs = "" if about.needs == About._field_defaults["needs"] else about.needs
        measured = examine.__doc__.partition("\n")[0]
        rows.append([title, measured, re.split("[:;]", about.paper)[0], needs])
    return markdown(header, rows).replace("--:", ":--")


def _clock(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def blocks() -> str:
    """Return the accuracy on `digits` by a random split and by blocks of its file."""
    result = read("blocks")
    right, n = (sum(one[key] for one in result["blocks"]) for key in ("right", "n"))
    share, random, machine = right / n, result["random"], result["machine"]
    low, high = wilson(right, n)
    rows = [
        [f"recipe `{result['recipe']}`", f"{random:.1%} of {result['n']}",
         f"{percent(Estimate(share, np.array([low, high])))} of {n:,}"],
        ["support vector machine", f"{machine['random']:.1%}", f"{machine['blocks']:.1%}"],
    ]  # fmt: skip
    header = ["accuracy on `digits`", "random split", "split by blocks of the file"]
    return markdown(header, rows)


def speed() -> str:
    """Return time and memory of capsviz and of a literal network, relative to a floor."""
    result = read("speed")
    steps, memory, rows = result["steps"], result["memory"], []

    def ratio(kept: str, what: str, ours: str, floor: str) -> float:
        part = steps[kept][what]
        if ours == "literal":  # timed separately: there are no common rounds
            return part[ours]["median_ms"] / part[floor]["median_ms"]
        return part[ours]["ratio"] / part[floor]["ratio"]

    for label, what, floor in (
        ("training step, fp32 / floor", "train fp32", "floor"),
        ("training step, fp32 / plain floor", "train fp32", "plain floor"),
        ("training step, bf16 / floor", "train bf16", "floor"),
        ("evaluation of 128 images / floor", "evaluate 128", "floor"),
        ("evaluation of 128 images / plain floor", "evaluate 128", "plain floor"),
        ("evaluation of one image / floor", "evaluate 1", "floor"),
    ):
        has_literal = "literal" in steps["stock"][what]
        literal = f"{ratio('stock', what, 'literal', floor):.2f}" if has_literal else NONE
        ours = [f"{ratio(kept, what, 'capsviz', floor):.2f}" for kept in ("stock", "kept")]
        rows.append([label, literal, *ours])
    for size in ("28", "40"):
        some = [memory[size]["literal"], memory[size]["capsviz"], memory.get(f"{size} kept")]
        cells = [NONE if one is None else f"{one / memory[size]['floor']:.2f}" for one in some]
        rows.append([f"memory of a step, {size} × {size} px / floor", *cells])
    data, epoch = result["data_path"], result["epoch"]
    faster = data["images_per_second"]["capsviz"] / epoch["images_per_second"]
    for label, cell in (
        ("loading with shifts / a DataLoader of PIL images", f"{data['ratio']:.0f}×"),
        ("loading with shifts / training", f"{faster:.0f}×"),
        ("one epoch of MNIST, bf16, with validation", f"{epoch['seconds']:.0f} s"),
    ):
        rows.append([label, NONE, NONE, cell])
    for name, line in result["commands"].items():
        if name.startswith("capsviz"):
            rows.append([f"`{name}`, cold", NONE, NONE, f"{line['median_ms'] / 1e3:.2g} s"])
    return markdown(["", "literal", "library", "command"], rows) + _machine(result["about"])


def paths() -> str:
    """Return the accuracy of the literal network and of capsviz after identical training."""
    accuracies, rows = parity.accuracies(read("parity")["runs"]), []
    for path, values in accuracies.items():
        ends = f"{min(values):.2%} to {max(values):.2%}"
        rows.append([path, parity.PATHS[path], f"{np.mean(values):.2%}", ends, str(len(values))])
    gap = lead(accuracies["capsviz"], accuracies["literal"])
    rows.append(["difference, paired by seed", "", f"{points(gap)} points", "", str(gap.n)])
    header = ["network", "precision", "mean test accuracy", "range", "runs"]
    return markdown(header, rows)


def by_routing() -> str:
    """Return time and memory of a capsule layer with each routing."""
    result = read("layers")
    times, peaks, first = result["times"], result["bytes"], layers.FIRST
    rows = []
    for name in result["names"]:
        literal = f"{name}, literal"
        rows.append([
            f"`{name}`", f"{times[name]['ratio']:.2f}", f"{peaks[name] / peaks[first]:.2f}",
            f"{times[literal]['ratio']:.1f}", f"{peaks[literal] / peaks[first]:.1f}",
        ])  # fmt: skip
    header = ["routing", "time", "memory", "literal: time", "literal: memory"]
    unit = f"`{first}`: {times[first]['median_ms']:.0f} ms, {peaks[first] / 1e6:.0f} MB. "
    return markdown(header, rows) + f"\n{unit}" + _machine(result["about"]).lstrip()


def growing() -> str:
    """Return time and peak memory of commands by the number of images."""
    known, cells = read("growth"), defaultdict[str, dict[int, str]](dict)
    for build, file in (("", known), (", CPU build of PyTorch", read("growth-cpu"))):
        for line in file["points"]:
            if line["sweep"] == "n":
                size = f"{line['bytes'] / 1e9:.2f} GB" if "bytes" in line else "refused"
                time = f"{line['seconds']:.0f} s, " if "bytes" in line else ""
                cells[line["network"] + build][line["value"]] = time + size
    counts = sorted({n for row in cells.values() for n in row})
    rows = [[name, *(row.get(n, "–") for n in counts)] for name, row in cells.items()]
    header = ["command", *(f"{n:,} images" for n in counts)]
    return markdown(header, rows) + _machine(known["about"]) + " `figures`: Intel Xeon."


def gpu() -> str:
    """Return times of steps and epochs on a GPU."""
    contenders = {
        "floor": "floor",
        "literal": "literal",
        "capsviz launches": "capsviz, by launches",
        "capsviz graph": "capsviz, one graph",
    }
    header = ["batch", "precision", *(f"{label}, ms" for label in contenders.values())]
    header.append("epoch of MNIST, s")
    rows, about = [], {}
    for precision in ("bf16", "fp32"):
        for batch in sorted(
            int(p.stem.split("-")[2]) for p in RESULTS.glob(f"gpu-steps-*-{precision}.json")
        ):
            about = read(f"gpu-steps-{batch}-{precision}")
            each = [f"{about['milliseconds'][key]:.1f}" for key in contenders]
            epoch = NONE
            if precision == "bf16":
                epoch = f"{read(f'gpu-epochs-{batch}-graph')['seconds']:.2f}"
            rows.append([str(batch), precision, *each, epoch])
    versions = about["provenance"]["versions"]
    return markdown(header, rows) + f"\n{about['hardware']}, torch {versions['torch']}."


def sweeps() -> str:
    """Return the accuracy of networks under rotation and a grid of warps, and corruption errors."""
    sweep, corrupt = (
        shipped(f"{name}-mnist-*-images.json").result for name in ("sweep-rotation", "corrupt")
    )
    low, high = sweep.sizes[[0, -1]]
    upright = int(np.argmin(abs(sweep.sizes)))
    header = [
        "network", "original", f"{low:g}° to {high:g}°, mean", "difference, points",
        f"correct under all {9 * sweep.grid} warps", "corrupted: error", "mCE",
        "relative total error",
    ]  # fmt: skip
    rows = []
    for k, name in enumerate(sweep.names):
        c = corrupt.networks.index(name)
        rows.append([
            f"`{name}`", f"{100 * float(sweep.accuracy.value[k, upright]):.1f} %",
            percent(sweep.area[k]), points(sweep.area.difference[k]) if k else NONE,
            percent(sweep.worst[k]), percent(corrupt.mean[c]),
            *(NONE if one is None else percent(one[c]) for one in (corrupt.mce, corrupt.total)),
        ])  # fmt: skip
    return in_percent(header, rows)


def corrupted() -> str:
    """Return the corruption error of capsules minus that of networks with as many parameters."""
    rows = []
    for other, (without, capsules) in WITHOUT_CAPSULES.items():
        own, its = (over_runs(name, "corrupt").result for name in (capsules, without))
        each = list(map(lead, own.error.runs[:, 0].T, its.error.runs[:, 0].T))
        mean = lead(100 * own.mean.runs[:, 0], 100 * its.mean.runs[:, 0])
        named = zip(own.corruptions, each, strict=True)
        worse = ", ".join(name for name, one in named if one.low > 0) or NONE
        less = str(sum(one.high < 0 for one in each))
        rows.append([f"less {other}", plain(mean, "+.2f"), less, worse, str(len(own.mean.runs))])
    count = len(own.corruptions)
    header = ["capsules", "mean error, points", f"shown to err less, of {count} corruptions",
              "shown to err more", "pairs of runs"]  # fmt: skip
    return markdown(header, rows)


def detection() -> str:
    """Return how well reconstructions detect attacks and foreign images."""
    result = shipped("detect-mnist-*.json").result
    average, rows = result.scores.index("class average"), []
    for k, (name, kind) in enumerate(zip(result.sets, result.kinds, strict=True)):
        if kind != "clean":
            areas = [plain(result.auroc[k - 1, score]) for score in (0, average)]
            rows.append([name, *areas, percent(result.undetected[k])])
    header = ["images", "AUROC, winning capsule", "control: AUROC, class average", "undetected"]
    return in_percent(header, rows)


AGAIN = "-fp32"  # suffix of a recipe that was trained again in float32
SERIES, BOUNDS = {"": "bfloat16, 200 images", AGAIN: "float32, 1,000 images"}, ("0.1", "0.2")
WARNINGS = {  # title -> pattern of a warning of `capsviz attack`: share of images, and network
    "More steps would fool more: images fooled in the last tenth of the steps (largest share)":
    "(.*) of images fell in the last tenth of .* in (.*): more steps would fool more",
    "Images that no gradient reached (largest share)":
    "(.*) of images gave .* no gradient in (.*)",
}  # fmt: skip


@cache
def attacked() -> list:
    """Return the shipped results of `capsviz attack`."""
    places = [ROOT / "figures", ROOT / "figures/attacks"]
    paths = [path for place in places for path in sorted(place.glob("attack-*.json"))]
    return [read_result(path)[0] for path in paths]


def twice() -> list[str]:
    """Return the capsule networks that were also trained and attacked in float32."""
    names = {name for one in attacked() for name in one.networks[1:]}
    return sorted(name for name in names if name + AGAIN in names)


def attacks() -> str:
    """Return a row for each network and bound; if there are two series, that in float32."""
    again = set(twice())
    found = [one for one in attacked() if not again & set(one.networks)]
    rows = [(f"`{name}`", *cells) for one in found for name, *cells in attack.rows(one)]
    rows = list(dict.fromkeys(rows))  # several results begin with the same network
    texts = list(dict.fromkeys(text for one in found for text in one.warnings))
    kinds: list[str] = []
    for words, form in WARNINGS.items():
        most: dict[str, float] = {}  # largest share by network
        for match in filter(None, (re.fullmatch(form, text) for text in texts)):
            share = float(match[1].removesuffix("%"))
            most[match[2]] = max(share, most.get(match[2], 0))
        each = [f"`{network}` ({share:g} %)" for network, share in most.items()]
        kinds += [f"- {words}: {'; '.join(each)}."] * bool(each)
        texts = [text for text in texts if not re.fullmatch(form, text)]
    kinds += [f"- {text}." for text in texts]
    said = "\n".join(kinds) or "No check of the attacks fails."
    return f"{in_percent(attack.HEADER, rows)}\nWarnings of the checks:\n\n{said}"


def series() -> str:
    """Return the difference to the ResNet in accuracy under all attacks, in both series."""
    cells = {}
    for one in attacked():
        for row in (dict(zip(attack.HEADER, row, strict=True)) for row in attack.rows(one)):
            cells[row["network"], row["ε"]] = row["worst minus first"]
    rows = [
        [f"`{name}`", *(cells[name + end, eps] for eps in BOUNDS for end in SERIES)]
        for name in twice()
    ]
    header = ["network", *(f"ε = {eps}, {kind}" for eps in BOUNDS for kind in SERIES.values())]
    return markdown(header, rows)


def augmentation() -> str:
    """Return the affine accuracy of a capsule network with stronger augmentation, in one run."""
    test = read("augmentation-card")["results"]["test"]
    header, rows, _ = table_of("affine", read_result(RESULTS / "augmentation.json")[0])
    whole = Estimate(np.array(test["accuracy"]), np.array(test["accuracy_ci95"]))
    line = f"On all {test['n']:,} test images `mnist-strong` has {percent(whole)}."
    return f"{markdown(header, rows)}\n{line}"


def affnist() -> str:
    """Return the results of the affNIST protocol by network."""
    result = shipped("affnist.json").result
    header = ["network", "parameters", "runs", "shifted", "affine", "less CapsNet, points",
              "inside", "outside", "points lost to shift", "to angle", "to shear",
              "to scale"]  # fmt: skip
    rows = []
    for k, name in enumerate(result.networks):
        number = [percent(one[k]) for one in (result.affine, result.inside, result.outside)]
        rows.append([
            affine.TITLES.get(name, name), f"{result.parameters[k] / 1e6:.2f} M",
            str(len(result.seeds[k])), f"{100 * result.test[k]:.2f} %", number[0],
            NONE if name == "capsnet" else points(result.affine.difference[k]), *number[1:],
            *(plain(100 * result.lost[k, f], ".1f") for f in range(4)),
        ])  # fmt: skip
    return in_percent(header, rows)


def couplings(over: str) -> str:
    """Return how well maps find the decisive features (`benchmarks.couplings`)."""
    runs = read("couplings")[over]

    def over_seeds(values: list[float], least: float = 0) -> Estimate:
        mean, interval = mean_interval(np.array(values))
        return Estimate(mean, interval.clip(least, 1))

    rows = [
        [name, *(plain(over_seeds([run["maps"][name][k] for run in runs], -(k == 1)))
                 for k in range(3))]
        for name in runs[0]["maps"]
    ]  # fmt: skip
    accuracy = percent(over_seeds([run["accuracy"] for run in runs]))
    table = markdown(["map", "AUROC", "order", "loud"], rows)
    known = runs[0]["maps"]
    first, gradient = next(iter(known)), next(name for name in known if "gradient" in name)
    more = [run["maps"][gradient][0] - run["maps"][first][0] for run in runs]
    return (
        f"{table}\nAccuracy on the test rows: {accuracy}; {len(runs)} runs. AUROC of the gradient "
        f"less that of the first row, paired: {plain(over_seeds(more, -1), '+.2f')}."
    )


def reproduced(words: str) -> str:
    """Return a table of `capsviz reproduce` from shipped results; `words` are name and epochs."""
    name, _, epochs = words.partition(" ")
    folder = discovery.folder("capsviz.trained") / "reproduce"
    length = int(epochs) if epochs else None
    header, rows, _, notes = gather(name, folder, epochs=length, only_run=True)
    rows = [row for row in rows if "not run" not in row]
    return "\n".join([markdown(header, rows), "```", *notes, "```"])


def _machine(about: dict) -> str:
    return f"\n{about['processor']}, {about['hardware']}."


PARTS: dict[str, Callable[..., str]] = {
    "results": results, "leaderboard": leaderboard_head, "board": board,
    "doses": doses, "notices": notices, "findings": findings.titles,
    "finding": findings.table,
    "checks": pitfalls, "blocks": blocks, "speed": speed, "parity": paths,
    "layers": by_routing, "growing": growing, "gpu": gpu, "sweeps": sweeps,
    "corrupted": corrupted, "detection": detection, "affnist": affnist,
    "reproduced": reproduced, "binding": binding.table, "attacks": attacks, "series": series,
    "couplings": couplings, "verdicts": preregistered.verdicts, "networks": registry.networks,
    "augmentation": augmentation,
}  # fmt: skip
