"""Panels of `attack`: accuracy against the bound, each attack, checks; and the tables."""

from functools import partial

import numpy as np

from capsviz.analysis import Panel
from capsviz.results.maps import GREY
from capsviz.results.panels import band, groups, look, name_rows, percent
from capsviz.statistics.estimate import Estimate

NAMES = {
    "apgd-ce": "APGD, CE", "apgd-dlr": "APGD, DLR", "apgd-margin": "APGD, margin loss",
    "vote": "vote attack", "square": "Square", "transfer": "transfer",
    "adaptive": "adaptive, with detector",
}  # fmt: skip
NORMS = {"linf": "L∞", "l2": "L2"}
LINE = 0.11  # inches: height of a network under one attack
LINES = ("-", "--", "-.", ":")
HEADER = (  # of docs/robustness.md
    "network", "data, n", "ε", "clean", "APGD", "vote", "Square", "transfer", "worst",
    "worst minus first", "adaptive, with detector",
)  # fmt: skip


def curves(axes, result):
    """Draw accuracy under the worst of all attacks against their bound."""
    bounds = [0.0, *result.eps]
    for k, network in enumerate(result.networks):
        value = np.append(result.clean.value[k], result.worst.value[k])
        ends = np.concatenate([result.clean.ci95[k : k + 1], result.worst.ci95[k]])
        band(axes, bounds, Estimate(value, ends), label=network, **look(k))
    axes.set(xlabel=f"ε, {NORMS[result.norm]} bound of the change", xlim=(0, None))
    axes.set(ylabel="accuracy, worst of all attacks", ylim=(-0.02, 1.02))
    percent(axes.yaxis)


def by_attack(axes, result):
    """Draw accuracy under each attack at the smallest bound. With the detector, it is the share of
    images that are correct or flagged.
    """
    rows = [*(NAMES[one] for one in result.attacks), "worst of all"]
    each = [result.accuracy[:, a, 0] for a in range(len(result.attacks))]
    groups(axes, [*each, result.worst[:, 0]], rows, result.networks)
    axes.set(xlim=(-0.02, 1.02), xlabel=f"accuracy at ε = {result.eps[0]:.3g}")


def by_step(field, label, axes, result):
    """Draw a number at the smallest bound by the share of the steps, or of the queries."""
    values = getattr(result, field)[:, :, 0]
    shares = np.linspace(0, 1, values.shape[-1])
    drawn = [a for a in range(len(result.attacks)) if np.isfinite(values[:, a]).any()]
    for order, a in enumerate(drawn):
        style = LINES[order % len(LINES)]
        each = {"linewidth": 0.9, "alpha": 1 if order < len(LINES) else 0.5}
        axes.plot([], [], style, color=GREY, label=NAMES[result.attacks[a]], **each)
        for k in range(len(result.networks)):
            axes.plot(shares, values[k, a], style, color=look(k)["color"], **each)
    for k, network in enumerate(result.networks):
        axes.plot([], [], label=network, **look(k))
    axes.set(xlabel="steps or queries", ylabel=label, xlim=(0, 1))
    percent(axes.xaxis)
    if field == "curve":
        percent(axes.yaxis)
    elif np.nanmax(abs(values)) > 1:  # logits, not lengths
        axes.set_yscale("symlog", linthresh=1)
        axes.yaxis.set_major_formatter("{x:g}")


def without_gradient(axes, result):
    """Draw images whose gradient is 0 before the attack (hollow) and during all of it (filled)."""
    drawn, K = _steep(result), len(result.networks)
    for k, network in enumerate(result.networks):
        rows = np.arange(len(drawn)) + (k - (K - 1) / 2) * 0.5 / K
        own = {"linestyle": "none", "clip_on": False, **look(k)}
        axes.plot(result.stuck[k, drawn], rows, label=network, **own)
        axes.plot(result.zero[k, drawn], rows, **own, markerfacecolor="white")
    name_rows(axes, [NAMES[result.attacks[a]].replace(", ", ",\n") for a in drawn])
    axes.set(xlim=(0, 1), xlabel="images without gradient")
    percent(axes.xaxis)


def _steep(result) -> list[int]:
    """Return the indices of the attacks that use gradients of the attacked network."""
    return [a for a, name in enumerate(result.attacks) if name not in ("square", "transfer")]


def _has_steps(result) -> bool:
    """Return whether any attack took steps on the attacked network; `transfer` does not."""
    return bool(np.isfinite(result.curve).any())


BY_STEP = "at the smallest bound, by share of the steps or queries, |"
PANELS = {
    "curves": Panel(curves, 1.9, marks="bands"),
    "by_attack": Panel(
        by_attack,
        lambda r, width: max(1.9, (len(r.attacks) + 1) * (len(r.networks) + 1) * LINE + 0.5),
        marks="bars",
    ),
    "accuracy": Panel(
        partial(by_step, "curve", "accuracy"), share=1 / 3, figure="checks", shown=_has_steps,
        caption=f"{BY_STEP}accuracy\nwith an unbounded perturbation, accuracy is "
        f"{{unbounded[0]:.1%}} for the first network",
    ),
    "margin": Panel(
        partial(by_step, "margin", "margin of another class"), share=1 / 3, figure="checks",
        shown=_has_steps,
        caption=f"{BY_STEP}the largest margin of another class so far, "
        "logarithmic beyond 1",
    ),
    "without_gradient": Panel(
        without_gradient, share=1 / 3, figure="checks", shown=lambda result: bool(_steep(result))
    ),
}  # fmt: skip


def rows(result) -> list[list[str]]:
    """Return rows of the robustness table; APGD is the strongest of its losses at a bound."""
    losses = [a for a, name in enumerate(result.attacks) if name.startswith("apgd-")]
    runs = 1 if result.clean.runs is None else len(result.clean.runs)
    images = f"{result.dataset}, {result.n}" + f", {runs} runs" * (runs > 1)
    made = []
    for k, e in np.ndindex(len(result.networks), len(result.eps)):
        each = {name: result.accuracy[k, a, e] for a, name in enumerate(result.attacks)}
        under = result.accuracy.value[k, losses, e]
        if np.isfinite(under).any():
            each["apgd"] = result.accuracy[k, losses[int(np.nanargmin(under))], e]
        made.append([
            result.networks[k], images, f"{result.eps[e]:.3g}",
            _cell(result.clean[k]),
            *(_cell(each.get(name)) for name in ("apgd", "vote", "square", "transfer")),
            _cell(result.worst[k, e]),
            f"{100 * result.worst.difference[k, e]:+.2f}" if k else "–",
            _cell(each.get("adaptive")),
        ])  # fmt: skip
    return made


def about(result) -> str:
    """Return the caption of the table: its columns, the settings, and the networks."""
    each = zip(result.networks, result.parameters, result.weights, strict=True)
    weights = "; ".join(f"{name} {count:,} parameters, {sha}" for name, count, sha in each)
    several = result.clean.runs is not None
    random = f"{result.restarts} random start{'s' if result.restarts > 1 else ''}"
    texts = [
        f"Accuracy in percent on {result.n} {result.dataset} images, with 95 % intervals over "
        f"{'runs and ' * several}images, within {NORMS[result.norm]} bounds: APGD (the strongest "
        f"of its losses), vote and adaptive attack with {result.steps} steps and {random}, Square "
        f"with {result.queries} queries, seed {result.seed}, capsviz {result.version}. Worst: "
        "correct under every attack but the adaptive one. Adaptive: correct or flagged by the "
        "detector. Networks and SHA-256 of their weights"
        f"{' (of the first run)' * several}: {weights}.",
        *(f"{one}." for one in result.warnings or ["No check of the attacks fails"]),
    ]
    if result.source:
        texts.append(f"Transfer: images of APGD on {result.source}.")
    return " ".join(texts)


def _cell(one) -> str:
    return "–" if one is None or np.isnan(one.value) else f"{100 * one:.1f} %"
