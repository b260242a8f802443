"""Words of `side_by_side`: what its numbers say, and the captions of its figures."""

from __future__ import annotations

from capsviz.statistics.words import sentences, strongest


def caption(result) -> str:
    """What the figure shows, with its numbers."""
    if hasattr(result, "cost"):
        return (
            "Accuracy, routed and with uniform couplings, what these cost, and effective parents: "
            f"{' and '.join(result.networks)} over {result.n:,} test images of {result.dataset}. "
            "Bars: 95 % intervals. "
            f"{sentences(findings(result))}"
        )
    pair = " and ".join(result.classes[j] for j in result.shown)
    return (
        f"One image in {len(result.networks)} networks, each with colour scales of its own: "
        f"couplings of the last iteration; evidence for {pair}, which adds up to what is written "
        f"above it (Σ); activations. {sentences(findings(result))} One image is an example."
    )


def findings(result) -> str:
    """A line for each network."""
    J = len(result.classes)
    if not hasattr(result, "cost"):
        return "\n".join(
            f"{name} reads {_class(result, result.activations[k])}, with uniform couplings "
            f"{_class(result, result.uniform_activations[k])}; a capsule has "
            f"{result.effective[k]:.2f} of {J} effective parents "
            f"(sd about uniform {result.coupling_sd[k]:.4f})"
            for k, name in enumerate(result.networks)
        )
    lines = []
    for k, name in enumerate(result.networks):
        line = (
            f"{name}: accuracy {result.accuracy[k]:.1%}; uniform couplings cost "
            f"{result.cost[k]:.1%}; effective parents {result.effective_parents[k]:.2f} of {J}"
        )
        if k:
            first = result.networks[0]
            accuracy, cost, effective = (
                one.difference[k]
                for one in (result.accuracy, result.cost, result.effective_parents)
            )
            line += (
                f"; less {first} on the same images: accuracy {accuracy:+.1%}, cost of uniform "
                f"couplings {cost:+.1%}, effective parents {effective:+.2f}; reads as {first} "
                f"reads {result.agreement[k]:.1%}"
            )
        lines.append(line)
    return "\n".join(lines)


def _class(result, activations) -> str:
    name = strongest(result.classes, activations)
    return f"{name} (activation {float(activations.max()):.3f})"
