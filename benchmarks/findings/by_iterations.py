"""Another image's couplings in networks trained with two to five iterations of routing."""

import json

from benchmarks.findings.finding import statistics
from capsviz import checkpoint, discovery
from capsviz.analyses.transplant.words import UNLIKE

PAPER = "mnist-10-epochs"
BY_ITERATIONS = {  # of routing in training, one recipe
    2: "mnist-2-iterations-10-epochs",
    3: PAPER,
    4: "mnist-4-iterations-10-epochs",
    5: "mnist-5-iterations-10-epochs",
}
ALIKE = (*(name for name in BY_ITERATIONS.values() if name != PAPER), "-50-epochs", "cifar10`")


def trend_of_iterations() -> tuple[str, list[str]]:
    """What it does to networks trained with two iterations of routing, or with more; the files."""
    folder = discovery.folder(checkpoint.SHIPPED) / "seeds"
    each = {
        count: some[0]
        for count, name in BY_ITERATIONS.items()
        if (some := list(statistics(folder / name, "transplant", "Statistics")))
    }
    if len(each) < 2:
        return "", []
    shares = [f"{100 * result.as_partner[UNLIKE]:.1f}" for _, result, _ in each.values()]
    runs = min(count for *_, count in each.values())
    words = (
        f"Trained ten epochs with {', '.join(map(str, each))} iterations: {', '.join(shares)} % "
        f"({runs} runs each; {_on_gpu(each)})."
    )
    return words, [path for path, *_ in each.values()]


def is_told(word: str, trend: str) -> bool:
    """Whether a series has its number in the trend already."""
    return bool(trend) and any(name in word for name in BY_ITERATIONS.values())


def _on_gpu(each: dict) -> str:
    """Which of the recipes were trained on a GPU: the others were not."""
    abouts = {
        count: json.loads((discovery.root() / path).with_name("runs.json").read_text())
        for count, (path, *_) in each.items()
    }
    on_gpu = [
        str(count)
        for count, about in abouts.items()
        if all("CPU" not in run["hardware"] for run in about["runs"])
    ]
    return f"{', '.join(on_gpu)} by GPU" if on_gpu else "by CPU"
