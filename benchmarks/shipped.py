"""Read shipped files: results in figures/ and trained/seeds, and the cards of the weights."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from benchmarks import ROOT
from capsviz import checkpoint, discovery
from capsviz.results import paired, read_result
from capsviz.results.leaderboard.sources import RUNS

SEEDS = discovery.folder(checkpoint.SHIPPED) / "seeds"
BESIDE = ROOT / "figures/seeds"  # statistics that are too large for the package
LAWS = "equivariance-*-images-warp-rotation-shift-x.json"  # in figures/: how poses follow a warp


class Source(NamedTuple):
    """A shipped result, its training runs, and its file."""

    result: Any  # a NamedTuple of its analysis
    runs: int  # number of training runs
    path: str  # from the root of the checkout
    seeds: Sequence[int] = ()  # of the training runs


def shipped(pattern: str) -> Source:
    """Return the result in or below figures/ that matches a pattern and has the most images.

    Raises
    ------
    FileNotFoundError  if there is none.
    """
    paths = sorted((ROOT / "figures").glob(pattern))
    if not paths:
        raise FileNotFoundError(f"figures/{pattern}")
    found = [Source(read_result(path)[0], 1, path.relative_to(ROOT).as_posix()) for path in paths]
    return max(found, key=lambda one: getattr(one.result, "n", 0))


def over_runs(recipe: str, analysis: str, kind: str = "", **fields) -> Source:
    """Return statistics over the training runs of a recipe, with `fields` of these values.

    Their kind is `Statistics` or `Result`, unless another is given.

    Raises
    ------
    FileNotFoundError  if there are none.
    """
    where = {"trained/seeds": SEEDS, "figures/seeds": BESIDE}
    pattern = f"{recipe}/{analysis}-*.json"
    for shelf, path in [(n, p) for n, place in where.items() for p in sorted(place.glob(pattern))]:
        result, about = read_result(path)
        alike = all(getattr(result, name, None) == value for name, value in fields.items())
        if about["kind"] in ([kind] if kind else ["Statistics", "Result"]) and alike:
            seeds = about["runs"]["seeds"]
            return Source(result, len(seeds), f"{shelf}/{recipe}/{path.name}", seeds)
    raise FileNotFoundError(f"trained/seeds/{recipe}/{analysis}-*.json")


def bound() -> dict[str, Source]:
    """Return the results on `assemblies` by label: the routing, and whether matrices are shared.

    The network whose weights are shipped comes last.
    """
    found = {}
    for path in sorted((ROOT / "figures/binding").glob("binding-far-*.json")):
        _, _, matrices, name, *_ = path.stem.split("-")
        label = name.replace("_", "-") + ", shared matrices" * (matrices == "type")
        found[label] = shipped(f"binding/{path.name}")
    ours = shipped("binding-assemblies-*-far.json")
    return found | {"dynamic, `assemblies`, shared matrices": ours}


def accuracies(recipe: str) -> dict[int, float]:
    """Return the test accuracy of each training run of a recipe in percent, in order of seeds."""
    (one,) = paired.read([SEEDS / recipe / RUNS])
    return {seed: 100 * accuracy for seed, accuracy in sorted(one.accuracies.items())}


def cards() -> dict[str, dict]:
    """Return the card of every shipped network."""
    folder = discovery.folder(checkpoint.SHIPPED)
    return {
        name: checkpoint.read_card(folder / f"{name}.safetensors") for name in checkpoint.shipped()
    }


def dose_text(result, condition: str) -> str:
    """Return the dose at which half of the images follow, with its interval or a bound."""
    one = result.half[result.conditions.index(condition)]
    if np.isnan(one.value):
        return f"> {result.doses.max():g}"
    high = result.formats["half"](result, float(one.high))
    if high.startswith("≤"):
        return high
    return f"{one.value:.1f} [{one.low:.1f}, {high if high[0] == '>' else f'{one.high:.1f}'}]"
