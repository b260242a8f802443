"""Drawings for `attack`: accuracy against the bound, each attack, checks; and the table."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from capsviz.results import COLOURS
from capsviz.results.panels import MARKERS, groups, legend_columns, name_rows

NAMES = {
    "apgd-ce": "APGD, CE", "apgd-dlr": "APGD, DLR", "apgd-margin": "APGD, margin loss",
    "vote": "vote attack", "square": "Square", "transfer": "transfer",
    "adaptive": "adaptive, with detector",
}  # fmt: skip
WIDE = 5.0  # inches from which panels stand side by side
LINE = 0.11  # inches of a network under one attack
LINES = ("-", "--", "-.", ":")
ABOVE = 0.3  # inches of the legend's title and the edges


def sheet(result, width):
    """Accuracy against the bound, and under each attack."""
    rows = (len(result.attacks) + 1) * (len(result.networks) + 1) * LINE + 0.5
    figure, panels, across = _frame(result, width, 2, max(1.9, rows))
    curves(result, panels[0])
    marks = by_attack(result, panels[1])
    _legend(figure, result, marks, across)
    return figure


def checks(result, width):
    """Accuracy and margin by share of the steps, and shares of images without a gradient."""
    figure, panels, across = _frame(result, width, 3, 2.0)
    by_step(result, panels[0], result.curve, "accuracy")
    by_step(result, panels[1], result.margin, "margin of another class")
    without_gradient(result, panels[2])
    handles, labels = panels[0].get_legend_handles_labels()
    panels[2].legend(handles, labels, fontsize=6, loc="best")
    marks = [panels[0].plot([], [], **_look(k))[0] for k in range(len(result.networks))]
    _legend(figure, result, marks, across, about="")
    return figure


def curves(result, axes):
    """Draw the accuracy of each network under the worst of all attacks against the bound."""
    bounds = [0.0, *result.eps]
    for k in range(len(result.networks)):
        look = _look(k)
        value = np.append(result.clean.value[k], result.worst.value[k])
        ends = np.concatenate([result.clean.ci95[k : k + 1], result.worst.ci95[k]])
        axes.plot(bounds, value, markersize=3.5, **look)
        axes.fill_between(bounds, *ends.T, color=look["color"], alpha=0.2, linewidth=0)
    norm = {"linf": "L∞", "l2": "L2"}[result.norm]
    axes.set(xlabel=f"ε, {norm} bound of the change", ylabel="accuracy, worst of all attacks")
    axes.set(xlim=(0, None), ylim=(-0.02, 1.02))


def by_attack(result, axes):
    """Draw the accuracy under each attack at the smallest bound; return marks of the networks."""
    names = [*(NAMES[one] for one in result.attacks), "worst of all"]
    each = [result.accuracy[:, a, 0] for a in range(len(result.attacks))]
    marks = groups(axes, [*each, result.worst[:, 0]], names)
    axes.set(xlim=(-0.02, 1.02), xlabel=f"accuracy at ε = {result.eps[0]:.3g}")
    return marks


def by_step(result, axes, values, label):
    """Draw values (K, A, E, T) at the smallest bound by share of the steps, or of the queries."""
    shares = np.linspace(0, 100, values.shape[-1])
    drawn = [a for a, name in enumerate(result.attacks) if np.isfinite(values[:, a, 0]).any()]
    for place, a in enumerate(drawn):
        for k in range(len(result.networks)):
            axes.plot(
                shares, values[k, a, 0], LINES[place % len(LINES)], linewidth=0.9,
                color=COLOURS[k % len(COLOURS)], alpha=1 if place < len(LINES) else 0.5,
                label=f"{'_' if k else ''}{NAMES[result.attacks[a]]}",
            )  # fmt: skip
    axes.set(xlabel="steps or queries, %", ylabel=label, xlim=(0, 100))


def without_gradient(result, axes):
    """Draw shares of images without a gradient: hollow before the attack, filled during all."""
    drawn = [a for a, name in enumerate(result.attacks) if name not in ("square", "transfer")]
    K = len(result.networks)
    for k in range(K if drawn else 0):
        rows = np.arange(len(drawn)) + (k - (K - 1) / 2) * 0.5 / K
        look = {"linestyle": "none", "markersize": 3.5, "clip_on": False, **_look(k)}
        axes.plot(100 * result.stuck[k, drawn], rows, **look)
        axes.plot(100 * result.zero[k, drawn], rows, **look | {"markerfacecolor": "white"})
        name_rows(axes, [NAMES[result.attacks[a]].replace(", ", ",\n") for a in drawn])
    axes.set(xlim=(0, 100), xlabel="images without gradient, %")


def table(result):
    """Header, rows and caption: a row for each network and bound, in percent."""
    norm = {"linf": "L∞", "l2": "L2"}[result.norm]
    names = [NAMES[one] for one in result.attacks]
    header = ["network", "parameters", f"ε, {norm}", "clean", *names, "worst", "Δ worst", "weights"]
    rows = []
    for k, network in enumerate(result.networks):
        for e, eps in enumerate(result.eps):
            less = result.worst.difference[k, e]
            rows.append([
                network, f"{result.parameters[k]:,}", f"{eps:.3g}",
                f"{100 * result.clean[k]:.1f}",
                *(_cell(result.accuracy[k, a, e]) for a in range(len(names))),
                _cell(result.worst[k, e]), f"{100 * less:+.1f}" if k else "–",
                result.weights[k][:12],
            ])  # fmt: skip
    starts = result.restarts
    random = f"{starts} random start{'s' if starts > 1 else ''}"
    checked = " ".join(f"{one}." for one in result.warnings) or "No check of the attacks fails."
    text = (
        f"Accuracy in percent on {result.n} {result.dataset} images, with 95 % intervals over "
        f"images: APGD, vote and adaptive attack with {result.steps} steps and {random}, Square "
        f"with {result.queries} queries, seed {result.seed}, capsviz {result.version}. Worst: "
        "correct under every attack but the adaptive one. Adaptive: correct or flagged by the "
        f"detector. Δ worst: less {result.networks[0]}, paired, in points. Weights: SHA-256, first "
        f"digits. {checked}"
    )
    if result.source:
        text += f" Transfer: images of APGD on {result.source}."
    return header, rows, text


def _cell(one) -> str:
    return "–" if np.isnan(one.value) else f"{100 * one:.1f}"


def _frame(result, width, count, tall):
    """Return a figure, its panels, and how many networks stand side by side in its legend."""
    columns = count if width >= WIDE else 1
    across = legend_columns(width, result.networks)
    rows = -(-count // columns)
    height = rows * tall + ABOVE + 0.16 * -(-len(result.networks) // across)
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots(rows, columns).ravel(), across


def _look(k):
    return {"color": COLOURS[k % len(COLOURS)], "marker": MARKERS[k % len(MARKERS)]}


def _legend(figure, result, marks, across, about="; bands and bars: 95 %"):
    figure.legend(
        marks, result.networks, loc="outside lower center", ncols=across, title_fontsize=6.5,
        title=f"{result.n:,} images of {result.dataset}{about}",
    )  # fmt: skip
