"""Words of `parts`: what its numbers say, and the caption of its figure."""

from __future__ import annotations

from capsviz.statistics.words import number, sentences, told

CONTROLS = ("halves of one class", "whole moved")
OF = {"halves of two classes": "halves of one class", "lower half moved": "whole moved"}


def caption(result, part="") -> str:
    """What a picture shows, with its numbers."""
    if part == "relevance":
        return (
            "Relevance mass: what changes when a unit goes from its lowest to its highest value, "
            f"and what selected types of {result.below} hold, on the stroke and in one half. Open "
            f"markers: controls. Bars: 95 % intervals, {result.n:,} {result.dataset} images. "
            f"{sentences(chr(10).join(of_units(result)))}"
        )
    return (
        "Broken images against intact ones. Top: an image in each form; below: chance that a "
        "broken image is more suspect than an intact one (AUROC), by the largest score of each "
        "network, by its reconstruction error, and by pixels alone. Open markers: controls, which "
        f"are whole. Bars: 95 % intervals, {result.n:,} {result.dataset} images. "
        f"{sentences(chr(10).join(verdicts(result)), result.scores)}"
    )


def findings(result) -> str:
    """What the numbers say, in a few lines."""
    lines = [f"{result.n:,} {result.dataset} images, AUROC of intact against"]
    for b, kind in enumerate(result.kinds):
        control = " (control)" if kind in CONTROLS else ""
        values = ", ".join(
            f"{name} {one[b]:.2f}" for name, one in zip(result.scores, result.auroc, strict=True)
        )
        lines.append(f"{kind}{control}: {values}")
    lines += [*verdicts(result), *of_units(result)]
    return "\n".join(lines)


def verdicts(result) -> list[str]:
    """Does the first score tell broken images beyond its own controls, and beyond pixels?"""
    clauses = []
    for k, (kind, control) in enumerate(OF.items()):
        own, whole = (result.auroc[0][result.kinds.index(one)] for one in (kind, control))
        clause = f"{kind} {{}} its control ({own:.2f}; {whole:.2f})"
        if result.beyond is None:  # of an earlier version, without paired differences
            clauses.append(clause.format("beside"))
            continue
        gain = result.beyond[0][k]
        how = told(gain, "beyond", "less than", "not otherwise than")
        clauses.append(f"{clause.format(how)[:-1]}; difference {gain:+.3f})")
    lines = [f"{result.scores[0]} tells {', '.join(clauses)}"]
    first = result.kinds.index("quarters exchanged")
    better = [
        name
        for name, one in zip(result.scores[1:], result.auroc.difference[1:], strict=True)
        if one.low[first] > 0
    ]
    if better:
        lines.append(f"quarters exchanged are told better by {', '.join(better)}")
    return lines


def of_units(result) -> list[str]:
    """What relevance mass on parts says of the first network's units, beside their controls."""
    lines, name = [], result.networks[0]
    if result.perturbed is not None:
        control, units = result.perturbed
        clauses = [
            f"{units[k]:.3f} {what} (random directions {control[k]:.3f})"
            for k, what in enumerate(
                ("on the stroke", "of that in one half", "overlap of two units' maps")
            )
        ]
        tied, apart = units.difference[1], units.difference[2]
        lines.append(
            f"units of the class capsule of {name}, relevance mass when each goes from its lowest "
            f"to its highest value: {', '.join(clauses)}: they are "
            f"{told(tied, 'more', 'less', 'not shown to be more')} tied to a half than random "
            f"directions, by {tied:+.3f} (0.5 is both halves alike, 1 one alone), and "
            f"{told(apart, 'more', 'less', 'not shown to be less')} entangled, by {apart:+.3f}"
        )
    if result.selected is not None:
        control, units = result.selected
        lines.append(
            f"{_types(len(result.chosen))} of {result.below}, selected forward, explain "
            f"{number(result.explained, '.0%')} of their layer's variance; relevance mass "
            f"{units[0]:.3f} on the stroke (another image's {control[0]:.3f}), {units[1]:.3f} of "
            f"that in one half ({control[1]:.3f})"
        )
    return lines


def _types(count: int) -> str:
    return "1 type" if count == 1 else f"{count} types"
