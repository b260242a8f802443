"""Panels of `primary`: rows of single capsules, and the errors with their controls."""

from matplotlib.patches import Rectangle

from capsviz.analysis import Panel
from capsviz.results.panels import numbered, room, show, split

FIELD, ROUTED, CONTROL = "#D55E00", "#0072B2", "#D55E00"
AROUND = 1.3  # inches of names and scale beside the pictures
CELL = 0.6  # inches of a picture, at most
MOST = 6  # capsules to draw, at most


def _layout(result, width: float) -> tuple[int, list[int], float]:
    """Return the number of capsules, the levels to draw, and a picture's height in inches."""
    K, L = result.sse.shape
    levels = list(range(L)) if width >= 5 else sorted({0, L // 2, L - 1})
    cell = min((width - AROUND) / (len(levels) + 2), CELL)
    tall = cell * result.image.shape[1] / result.image.shape[2]
    return min(K, MOST if width >= 5 else MOST - 1), levels, tall


def _omits(result, width: float) -> list[str]:
    K, levels, _ = _layout(result, width)
    drawn = zip((K, len(levels)), result.sse.shape, ("capsules", "couplings"), strict=True)
    return [f"{most - some} of {most} {what}" for some, most, what in drawn if some < most]


def _capsules(axes, result):
    """Draw an image decoded from single capsules, with growing couplings, and from all of them. The
    rectangle, if there is one, is the capsule's receptive field.
    """
    K, levels, _ = _layout(result, room(axes))
    grid = split(axes, K, len(levels) + 2)
    for k, row in enumerate(grid):
        picture = show(row[0], result.image, "" if k else "input")
        name = f"capsule {result.types[k]}"
        if result.places is not None:
            top, bottom, left, right = result.fields[k]
            size, look = (right - left, bottom - top), {"edgecolor": FIELD, "linewidth": 1.2}
            field = Rectangle((left - 0.5, top - 0.5), *size, fill=False, clip_on=False, **look)
            row[0].add_patch(field)
            name = "type {}\nrow {}, col {}".format(result.types[k], *result.places[k])
        text = f"{name}\nc = {result.couplings[k]:.3f}"
        row[0].set_ylabel(text, rotation=0, ha="right", va="center", fontsize=6, labelpad=4)
        for one, level in zip(row[1:-1], levels, strict=True):
            share = float(result.shares[level])
            label = "" if k else {0.0: "0", 1.0: "c"}.get(share, f"{share:.2g} c")
            show(one, result.pictures[k, level], label)
        row[-1].set_axis_off()
    last = grid[K // 2, -1]
    last.set_axis_on()
    show(last, result.whole)
    words = (f"all {result.children:,}", f"predicted\nas {result.classes[result.predicted]}")
    for text, y, va in zip(words, (1.08, -0.08), ("bottom", "top"), strict=True):
        where = {"transform": last.transAxes, "ha": "center", "va": va, "fontsize": 6.5}
        last.text(0.5, y, text, **where).set_in_layout(False)  # not counted in the row's height
    scale = axes.figure.colorbar(
        picture, ax=grid.ravel().tolist(), fraction=0.05, aspect=8 * K, pad=0.02
    )
    scale.set_ticks([0, 127.5, 255], labels=["0", "0.5", "1"])
    scale.set_label("pixel value", labelpad=4)


def _tall(result, width: float) -> float:
    K, _, tall = _layout(result, width)
    return 0.3 + K * (tall + 0.04)


def _sse(axes, result):
    """Draw squared error of images decoded with couplings replaced, and from single capsules."""
    _rows(axes, result.conditions, result.sse, ".2f")
    axes.set(xlim=(0, 1.25 * result.sse.high.max()), xlabel="SSE, mean per image")


def _added(axes, result):
    """Draw difference of the squared error with couplings replaced, paired by image."""
    controls = [i for i, name in enumerate(result.conditions) if "couplings" in name]
    names = [result.conditions[i] for i in controls]
    _rows(axes, names, result.sse.difference[controls], "+.2f")
    axes.axvline(0, color="#7F7F7F", linewidth=0.6)
    axes.margins(x=0.3)
    axes.set(xlabel="added to the SSE\nof all capsules")
    axes.set_title("replacing the couplings")


def _rows(axes, names, estimate, form):
    looks = [(CONTROL if "couplings" in name else ROUTED, "o") for name in names]
    numbered(axes, names, estimate, looks, form)


PANELS = {"capsules": Panel(_capsules, _tall, 1, omits=_omits)}
MANY = {"sse": Panel(_sse, 1.8, marks="bars"), "replaced": Panel(_added, 1.3, marks="bars")}
