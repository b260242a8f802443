"""What the shipped results show, in plain words: docs/findings.md.

`python -m benchmarks.findings` writes it; `make readme` does too. Each finding is written only
where its intervals bear it out; the page names those whose results are not shipped.
"""

from benchmarks.findings import couplings, parse_tree, poses, routings
from benchmarks.findings.finding import ROUTINGS, Finding
from benchmarks.shipped import ROOT
from capsviz.files import write_text

PAGE = ROOT / "docs/findings.md"
NUMBERS = ["No", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten"]
FINDINGS = (
    couplings.transplant,
    couplings.iterations,
    parse_tree.by_class,
    parse_tree.stays,
    routings.sharpness,
    couplings.maps,
    poses.lawful,
    poses.affine,
    poses.broken,
    poses.detection,
)
HEAD = """# What we found

{count} things that shipped networks show, `mnist` unless another is named, with
95 % intervals and, in brackets, training runs. Children are primary capsules, parents class
capsules, couplings a child's shares. `digits-paper-stem` is the recipe of `digits`, other
`digits-*` have the slim stem; `mnist-10-epochs` is the paper's; CIFAR-10: JPEG copies.
"""


def findings() -> tuple[list[Finding], list[str]]:
    """Those that hold, and what is missing or does not hold, in words."""
    holding, without = [], []
    for source in FINDINGS:
        try:
            finding = source()
        except FileNotFoundError as error:
            without.append(f"{source.__doc__.rstrip('.')}: no result is shipped (`{error}`)")
            continue
        if finding.holds:
            holding.append(finding)
        else:
            without.append(f"{finding.title}: the shipped results do not bear it out")
    return holding, without


def page(holding: list[Finding], without: list[str]) -> str:
    """docs/findings.md."""
    stem = next((k for k, one in enumerate(holding, 1) if one.picture == ROUTINGS), "on routings")
    parts = [HEAD.replace("{count}", NUMBERS[len(holding)])]
    parts += [f"{one.text(k)}\n".replace("{stem}", str(stem)) for k, one in enumerate(holding, 1)]
    if without:
        parts.append("## Not said\n\n" + "\n".join(f"- {line}." for line in without) + "\n")
    return "\n".join(parts)


def write() -> None:
    """Write docs/findings.md."""
    write_text(PAGE, page(*findings()))
