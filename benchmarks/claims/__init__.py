"""What README, gallery and captions claim: number, file, control, and what would refute it.

`python -m benchmarks.claims` writes docs/claims.md; `make readme` does too.
"""

from benchmarks.claims import accuracy, cost, couplings, networks, poses, reproduced
from benchmarks.claims.claim import ROOT, Claim, Missing
from capsviz.files import write_text

PAGE = ROOT / "docs/claims.md"
SECTIONS = {
    "Accuracy": (accuracy.networks, accuracy.parity),
    "Routing": (couplings.routing, couplings.transplant, couplings.primary),
    "Poses": (poses.equivariance, poses.perturb),
    "Drawings": (poses.reconstruct, poses.segment),
    "Maps": (poses.poses, poses.primaries),
    "Robustness": (accuracy.rotation, networks.sweep, networks.corrupt, networks.affnist),
    "Detection": (networks.detect, accuracy.limits),
    "Published tables, made anew": (reproduced.rows,),
    "Speed and memory": (cost.speed,),
}
HEAD = """# Claims

Claims of README.md, docs/gallery.md and the captions on single networks, each with the number that
carries it and its 95 % interval, the file that it comes from, the control beside it, the training
runs behind it, and what would refute it. Parse trees, maps, probes, parts, and what holds over
training runs are in [findings](findings.md) and the [leaderboard](leaderboard.md). Written by `make
readme` from the results, and checked by `tests/test_claims.py`. Intervals are over images and hold
for these weights, and do not cover what another training run would do, where nothing else is said.
They are not corrected for their number where no method is named.
"""


def claims() -> dict[str, list[Claim | Missing]]:
    """Every claim, and what no result is shipped of, by section."""
    return {
        title: [entry for source in sources for entry in source()]
        for title, sources in SECTIONS.items()
    }


def page(sections: dict[str, list[Claim | Missing]]) -> str:
    """docs/claims.md."""
    parts = [HEAD]
    for title, entries in sections.items():
        parts += [f"## {title}\n", *(f"{entry.text()}\n" for entry in entries)]
    return "\n".join(parts)


def write() -> None:
    """Write docs/claims.md."""
    write_text(PAGE, page(claims()))
