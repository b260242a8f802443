"""Tables of docs/binding.md and of the leaderboard: what came out on the data set `assemblies`."""

from benchmarks.findings import NONE, percent, plain
from benchmarks.shipped import bound
from capsviz.results.tables import markdown

SHARES = {  # of images or pairs, by table
    "context": {
        "follows the unseen part, %": lambda one: one.follows[0, -1],
        "distractor follows, %": lambda one: one.follows[1, -1],
    },
    "geometry": {
        "accuracy, %": lambda one: one.viewpoint[0],
        "a part moved by 10 px, %": lambda one: one.accuracy[-1],
        "a part turned by 180°: the class of the same parts, %": lambda one: one.turned[1, -1],
        "other rotations, %": lambda one: one.viewpoint[1],
    },
}
OTHERS = ("evidence", "evidence with uniform couplings", "one position alone (probe)")
CONTROLS = ("votes from the true poses", "votes from part types alone")


def table(words: str) -> str:
    """Return what came out: "assignment", "context", "geometry" or "maps"."""
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
            name: [percent(share(one)).removesuffix(" %") for share in SHARES[words].values()]
            for name, one in results.items()
        }
    rows = [[name, str(results[name].viewpoint.training_runs), *row] for name, row in found.items()]
    if words == "assignment":
        *_, last = results.values()
        for name in CONTROLS:
            areas = last.assignment[last.scored.index(name)]
            rows.append([f"control: {name}", NONE, *map(plain, areas), *3 * [NONE]])
    return markdown(["routing", "runs", *header], rows).rstrip()


def summary() -> str:
    """Return the coupling beside its control, and what it follows, in one table."""
    header = ["routing", "runs", "coupling: AUROC", "control: one position alone",
              "follows the unseen part, %", "control: distractor follows, %"]  # fmt: skip
    rows = []
    for name, one in bound().items():
        coupling, *_, alone = _assigned(one.result)
        shares = (percent(one.result.follows[k, -1]).removesuffix(" %") for k in (0, 1))
        rows.append([name, str(one.result.viewpoint.training_runs), coupling, alone, *shares])
    return markdown(header, rows).rstrip()


def _assigned(result) -> list[str]:
    """Return AUROC of couplings by subset of parts, and of what else tells wholes apart."""
    of = dict(zip(result.scored, result.assignment, strict=True))
    return [*map(plain, of["coupling"]), *(plain(of[name][0]) for name in OTHERS)]


def maps() -> str:
    """Return how well maps find the whole among distractors, with two routings."""
    results = [bound()[name].result for name in ("dynamic", "uniform")]
    rows = [
        [name.removesuffix(" (pixels)").replace("ink", "brightness"),
         "pixels" if name.endswith("(pixels)") else "positions",
         *(plain(one.relevance[m]) for one in results)]
        for m, name in enumerate(results[0].maps)
    ]  # fmt: skip
    return markdown(["map", "of", "dynamic routing", "uniform couplings"], rows).rstrip()
