"""Panels of `curves`: a panel for each quantity, training and validation side by side."""

from functools import partial

import numpy as np
from matplotlib import ticker

from capsviz.analysis import Panel
from capsviz.results import COLOURS
from capsviz.results.panels import rule

LINES = ("-", "--", ":", "-.")  # with ten colours they distinguish forty runs
SPAN = 3  # if highest / lowest value is larger, the axis is logarithmic
FEW = 15  # up to so many epochs, each epoch has a dot
FIELDS = (  # field and title
    ("train_accuracy", "training error, %"),
    ("validation_accuracy", "validation error, %"),
    ("train_loss", "training loss"),
    ("train_margin_loss", "training margin loss"),
    ("validation_margin_loss", "validation margin loss"),
    ("train_reconstruction_loss", "training reconstruction"),
    ("validation_sse", "validation SSE"),
    ("learning_rate", "learning rate × 1000"),
)
BEST = {"marker": "o", "markersize": 4.5, "markerfacecolor": "white", "linestyle": "none"}
LONGEST = 44  # letters of the name of a run; longer names are cut


def _values(result, field: str) -> list[np.ndarray]:
    """Return the values of every run; accuracies as errors in percent, missing values as NaN."""
    runs = [np.array(run, float) for run in getattr(result, field)]
    if field.endswith("accuracy"):
        return [100 * (1 - run) for run in runs]
    return [1000 * run for run in runs] if field == "learning_rate" else runs


def _shown(field: str, result) -> bool:
    """Return whether any run has this quantity; ValueError for more runs than line styles."""
    if len(result.names) > len(LINES) * len(COLOURS):
        raise ValueError(
            f"expected at most {len(LINES) * len(COLOURS)} runs, which is how many line styles "
            f"there are, got {len(result.names)}"
        )
    return not all(np.isnan(run).all() for run in _values(result, field))


def _panel(field: str, title: str, axes, result) -> None:
    """Draw one quantity by epoch, and the epoch with the highest validation accuracy."""
    runs = _values(result, field)
    _scale(axes, np.concatenate(runs), field)
    few = max(map(len, runs)) <= FEW
    for s, (name, epochs, values) in enumerate(zip(result.names, result.epochs, runs, strict=True)):
        colour, line = COLOURS[s % len(COLOURS)], LINES[(s + s // len(COLOURS)) % len(LINES)]
        name = name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"
        look = {"color": colour, "linestyle": line, "label": name.replace("$", r"\$")}
        axes.plot(epochs, values, marker="." if few or len(epochs) == 1 else None, **look)
        if field.startswith("validation"):
            best, label = result.best[s], None if s else "best validation epoch"
            mark = {"color": colour, "clip_on": False, "zorder": 4, "label": label, **BEST}
            axes.plot(best, values[epochs.index(best)], **mark)
    axes.set(title=title, xlabel="epoch")
    axes.set_xlim(0, 1.03 * max(epochs[-1] for epochs in result.epochs))
    axes.xaxis.set_major_locator(ticker.MaxNLocator("auto", integer=True, steps=(1, 2, 5, 10)))
    rule(axes, "y")


def _scale(axes, values, field: str) -> None:
    """Choose and label the y axis; a logarithmic axis with zeros has a linear part."""
    positive = values[values > 0]
    span = positive.max() / positive.min() if len(positive) else 0
    if field == "learning_rate":
        axes.set_ylim(0, 1.08 * values.max())
    elif span > SPAN:
        digits = (1, 2, 3, 5, 7) if span < 5 else (1, 3) if span < 40 else (1,)
        least = 10.0 ** np.floor(np.log10(positive.min()))
        zeros = {"linthresh": least, "linscale": 0.3} if (values == 0).any() else {}
        axes.set_yscale("symlog" if zeros else "log", **zeros)
        locator = ticker.SymmetricalLogLocator(base=10, linthresh=least, subs=digits)
        axes.yaxis.set_major_locator(locator if zeros else ticker.LogLocator(subs=digits))
        axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))


PANELS = {
    field.replace("_", "-"): Panel(
        partial(_panel, field, title), 1.12, 1 / 3, 1 / 2, shown=partial(_shown, field),
        caption=f"by epoch, |{title.removesuffix(', %')}"
        + "\ncircles: the epoch with the highest validation accuracy" * field.startswith("valid"),
    )
    for field, title in FIELDS
}  # fmt: skip
