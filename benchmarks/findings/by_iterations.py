"""Another image's couplings in networks that are routed as often as in training, and more often."""

from benchmarks.findings.finding import statistics
from capsviz import checkpoint, discovery
from capsviz.analyses.transplant.pairs import UNLIKE

PAPER, FEWER = "mnist-10-epochs", "mnist-2-iterations-10-epochs"  # three iterations, and two
MORE = {3: "three times", 5: "five times"}  # that the latter are routed
# Recipes that differ from `PAPER`'s in iterations or epochs: of its couplings enough is said
ALIKE = (FEWER, "mnist-4-iterations", "mnist-5-iterations", "-50-epochs")


def trend_of_iterations() -> tuple[str, list[str]]:
    """What it does by how often a network is routed, in words, and the files."""
    folder = discovery.folder(checkpoint.SHIPPED) / "seeds"
    each = {
        (name, result.iterations): (path, result.as_partner[UNLIKE], count)
        for name in (PAPER, FEWER)
        for path, result, count in statistics(folder / name, "transplant", "Statistics")
    }
    if not {(PAPER, None), (FEWER, None), *((FEWER, k) for k in MORE)} <= set(each):
        return "", []
    shares = {key: f"{100 * share:.1f}" for key, (_, share, _) in each.items()}
    more = ", ".join(f"{words} {shares[FEWER, k]}" for k, words in MORE.items())
    text = (
        f"Iterations decide: trained with two, {shares[FEWER, None]} %, the same routed {more}; "
        f"trained with three, {shares[PAPER, None]} % (ten epochs, "
        f"{min(count for *_, count in each.values())} runs each)."
    )
    return text, [path for path, *_ in each.values()]
