"""Panels of `routing`: for one image, and for a test set."""

from functools import partial

import numpy as np
from matplotlib.colors import CenteredNorm
from matplotlib.ticker import MaxNLocator

from capsviz.analysis import Panel
from capsviz.nn.quantity import words_of
from capsviz.results import COLOURS, maps
from capsviz.results.maps import BLUE, COUPLING, GREEN, GREY, RED
from capsviz.results.panels import room, show, split, upright, wrapped

WIDE = 5.0  # inches: a panel at least this wide is laid out for a page
NARROWEST = 0.6  # inches: smallest width of a map with its labels
SHOWN = 10  # classes with a map, at most: the most active
MOST = 12  # tick labels on an axis, at most
LONG = 8  # a class name of at least this many letters has its own line
CONTROL_STYLES = ((RED, "s"), (GREEN, "D"), (COLOURS[3], "^"), (COLOURS[4], "v"))  # one each


def _couplings(axes, result):
    """Draw the mean coupling of each capsule type to each class, by iteration."""
    count, _, J = result.couplings.shape
    most = 4 if room(axes) >= WIDE else 2
    picked = sorted({round(r) for r in np.linspace(0, count - 1, min(most, count))})
    grid = split(axes, 1, len(picked), sharex=True, sharey=True)[0]
    scale = maps.coupling_scale(result.couplings, 1 / J)
    for one, r in zip(grid, picked, strict=True):
        image = one.imshow(result.couplings[r].T, cmap=COUPLING, norm=scale, aspect="auto")
        uniform = " (uniform)" if np.ptp(result.couplings[r]) == 0 else ""
        one.set_title(f"iteration {r + 1}{uniform}" if count > 1 else "couplings, one pass")
        _name_capsules(one, result)
    maps.class_ticks(grid[0].yaxis, result.classes, step=2)
    grid[0].set_ylabel(result.parent)
    maps.coupling_bar(image, grid, 1 / J)


def _name_capsules(axes, result):
    """Label the horizontal axis with the capsules' names, as many as fit, or with numbers."""
    axes.set_xlabel(result.child)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    if result.names:
        step = -(-len(result.names) // int(9 * room(axes)))
        axes.set_xticks(range(0, len(result.names), step), result.names[::step], rotation=90)


def _own_parents(axes, result):
    """Draw the effective number of parents of a capsule. Band: 5 to 95 % of the capsules."""
    counts = np.exp(result.entropy_nats)
    band = np.quantile(counts, [0.05, 0.95], 1).T
    more = "\nband: 5 to 95 %" + " of capsules" * (room(axes) > 2)
    parents_axes(axes, counts.mean(1), band, len(result.classes), more)


def _own_votes(axes, result) -> list:
    """Draw agreement of the votes with the pose of their class, weighted by coupling."""
    iterations = np.arange(1, len(result.couplings) + 1)
    winner, named = int(result.activations.argmax()), []
    roles = {winner: "predicted" if result.layer is None else "most active"}
    if result.label is not None:
        roles[result.label] = "true" if result.label != winner else "predicted,\ntrue"
    for (j, role), colour in zip(roles.items(), (RED, BLUE), strict=False):
        (line,) = axes.plot(iterations, result.agreement[:, j], "o-", color=colour)
        apart = " " if len(result.classes[j]) < LONG else "\n"
        named.append((axes, line, f"{result.classes[j]}{apart}({role})"))
    rest = np.delete(result.agreement, list(roles), 1)
    if rest.shape[1]:
        (line,) = axes.plot(iterations, rest.mean(1), "s--", color=GREY)
        named.append((axes, line, "mean of\nothers"))
    votes(axes, iterations)
    return named


def _own_activations(axes, result):
    """Draw activations with routing and with uniform couplings."""
    at = np.arange(len(result.classes))
    axes.vlines(at, result.uniform_activations, result.activations, color=GREY, linewidth=0.8)
    axes.plot(at, result.activations, "o", color=RED, label="routed")
    axes.plot(at, result.uniform_activations, "o", color=BLUE, mfc="white", label="uniform")
    axes.set(xlabel=result.parent, ylabel="activation", ylim=(0, 1.05))
    axes.set_title("class capsules" if result.layer is None else "position mean")
    axes.set_yticks([0, 0.5, 1])
    maps.class_ticks(axes.xaxis, result.classes)


def parents_axes(axes, mean, band, J, more):
    """Draw the effective number of parents by iteration, with the last one in the title."""
    iterations = np.arange(1, len(mean) + 1)
    axes.plot(iterations, mean, "o-", color=BLUE)
    if len(iterations) > 1:
        axes.fill_between(iterations, *band.T, color=BLUE, alpha=0.25, linewidth=0)
    else:
        axes.vlines(iterations, *band.T, color=BLUE, alpha=0.5, linewidth=3)
    axes.set(ylabel="effective " * (room(axes) > 2) + "parents", ylim=(1, J * 1.03))
    number = f"{mean[-1]:.2f}" if round(mean[-1], 2) < J else f"{mean[-1]:.3f}"
    axes.set_title(f"{'last: ' * (len(iterations) > 1)}{number} of {J}{more}")
    iteration_ticks(axes, iterations)


def votes(axes, iterations):
    """Set the limits and labels of a panel of vote agreement."""
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0), high + 0.1 * (high - min(low, 0)))
    axes.set(ylabel="mean cosine", title="vote agreement\nweighted by $c_{ij}$")
    iteration_ticks(axes, iterations)


def iteration_ticks(axes, iterations):
    """Put ticks at whole iterations, or none for a routing of one pass."""
    room = max(0.3, 0.06 * (iterations[-1] - iterations[0]))  # for the last tick label
    axes.set_xlim(iterations[0] - room, iterations[-1] + room)
    if len(iterations) == 1:
        axes.set(xlabel="one pass", xticks=[])
    else:
        axes.set_xlabel("iteration")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))


def _cells(result, width: float) -> tuple[np.ndarray, int, int]:
    """Return the most active classes, and the lines and columns of their maps."""
    classes = np.sort(np.argsort(-result.activations, kind="stable")[:SHOWN])
    lines = 1 + (len(classes) + 1 > width / NARROWEST)
    return classes, lines, -(-len(classes) // lines)


def _omits(result, width: float) -> list[str]:
    count = len(result.classes) - SHOWN
    return [f"the {count} least active of {len(result.classes)} classes"] * (count > 0)


def _maps(axes, result):
    """Draw the image and maps of the evidence for each class, routed and with uniform couplings."""
    classes, lines, columns = _cells(result, room(axes))
    scale = CenteredNorm(0, maps.halfrange(np.stack([result.maps, result.uniform_maps])))
    grid = split(axes, 2 * lines, columns + 1, wspace=0.02, hspace=0.02)
    for one in grid.flat:
        one.set_axis_off()
    first = grid[0, 0]
    if lines > 1:  # the image spans all lines
        first.set_subplotspec(first.get_subplotspec().get_gridspec()[:, 0])
    show(first, result.image, "image")
    first.set_axis_on()
    cell = 0.8 * room(axes) / (columns + 1)
    for k, (name, each, sums) in enumerate((
        ("routed", result.maps, result.map_sums),
        ("uniform", result.uniform_maps, result.uniform_map_sums),
    )):  # fmt: skip
        for place, j in enumerate(classes):
            block, column = divmod(place, columns)
            one = grid[2 * block + k, column + 1]
            drawn = maps.one_map(one, result.image, result.extent_px, each[j], scale)
            one.set_xlabel(f"Σ {sums[j]:.2f}", labelpad=1, fontsize=6)
            if k == 0:
                title = wrapped(result.classes[j] + (" (true)" if j == result.label else ""), cell)
                one.set_title(title, fontsize=6.5, pad=2)
            if column == 0:
                one.set_ylabel(name, fontsize=6.5)
    below = {"location": "bottom", "aspect": 40, "pad": 0.02} if lines > 1 else {}
    bar = maps.colour_bar(drawn, grid, "evidence; −: well below 0", **below)
    if below:
        bar.locator = MaxNLocator(5, symmetric=True)
        first.set_anchor("N")


def _tall_maps(result, width: float) -> float:
    _, lines, columns = _cells(result, width)
    text, bar = (0.2, 0) if width >= WIDE else (0.25, 0.4 * (lines > 1))
    return bar + 2 * lines * (min(0.86 * width / (columns + 1), 1.2) + text)


def _evidence(axes, result):
    """Draw what each capsule adds to each class, routed and with uniform couplings."""
    grid = split(axes, 1, 2, sharey=True)[0]
    both = (result.type_evidence, result.uniform_type_evidence)
    scale = CenteredNorm(0, maps.halfrange(np.stack(both)))
    for one, values, name in zip(grid, both, ("routed", "uniform"), strict=True):
        look = {"cmap": maps.SIGNED, "norm": scale, "aspect": "auto", "interpolation": "none"}
        drawn = one.imshow(values.T, **look)
        rows, columns = np.nonzero(-scale.halfrange / 5 > values.T)
        one.plot(columns, rows, linestyle="none", marker="_", color="black", markersize=3)
        one.set_title(name)
        _name_capsules(one, result)
    grid[0].set_ylabel(result.parent)
    maps.class_ticks(grid[0].yaxis, result.classes)
    bar = maps.colour_bar(drawn, grid, "evidence; −: well below 0")
    if np.min(both) >= 0:
        bar.ax.set_ylim(0, scale.vmax)


def _sums(axes, result):
    """Draw the sum of the evidence of all capsules, with routing and with uniform couplings."""
    at = np.arange(len(result.classes))
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.hlines(at, result.uniform_map_sums, result.map_sums, color=GREY, linewidth=0.8)
    axes.plot(result.map_sums, at, "o", color=RED, label="routed")
    axes.plot(result.uniform_map_sums, at, "o", color=BLUE, mfc="white", label="uniform")
    axes.margins(x=0.12)  # whole markers
    title = "sum Σ" + " over capsules" * (room(axes) > 1.5)
    axes.set(title=title, xlabel="Σ", ylabel=result.parent)
    axes.set_ylim(len(at) - 0.5, -0.5)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    maps.class_ticks(axes.yaxis, result.classes)


def _outcome(field: str, title: str, label: str, axes, result):
    """Draw an outcome by the number of routing iterations, and with control couplings.

    Controls far off the scale are written in its corner.
    """
    scale = 100 if label.endswith("%") else 1
    estimate, controls = (scale * getattr(result, name) for name in (field, f"control_{field}"))
    if field == "changed":
        title += " at r = 1" if len(result.changed) > 1 else " its own"
    axes.set(ylabel=label, title=title)
    count, K = len(estimate), len(controls)
    step = -(-(count + K) // MOST)  # distance between tick labels
    upright(axes, np.arange(1, count + 1), estimate, "o-", color=BLUE)
    low, high = estimate.low.min(), estimate.high.max()
    if low == high:  # no range, e.g. predictions compared with themselves
        low, high = min(low, controls.low.min()), max(high, controls.high.max())
    room = max(0.15 * (high - low), 1e-3 * max(1, abs(high)))
    low, high = low - room, high + room
    far: dict[bool, list[str]] = {True: [], False: []}  # above and below the scale
    for k in range(K):
        value = float(controls.value[k])
        if low - 5 * room <= value <= high + 5 * room:
            at = count + step * (1 + k)
            colour, marker = CONTROL_STYLES[k]
            upright(axes, [at], controls[k : k + 1], marker, color=colour)
            low, high = min(low, controls.low[k] - room), max(high, controls.high[k] + room)
        else:
            up = value > high
            far[up].append(f"{result.controls[k][0].upper()} {value:.3g} {'↑' if up else '↓'}")
    for up, texts in far.items():
        axes.annotate(
            "\n".join(texts), (1, float(up)), xycoords="axes fraction", xytext=(0, -2 if up else 2),
            textcoords="offset points", ha="right", va="top" if up else "bottom", fontsize=6,
        )  # fmt: skip
    axes.set(ylim=(low, high), xlim=(1 - 0.5 * step, count + (K + 0.7) * step))
    numbered = list(range(1, count + 1, step))
    axes.set_xticks([*numbered, *(count + step * (1 + k) for k in range(K))])
    iterations = [str(r) for r in numbered] if count > 1 else ["own"]
    axes.set_xticklabels([*iterations, *(name[0].upper() for name in result.controls)])
    letters = axes.get_xticklabels()[len(numbered) :]
    for tick, (colour, _) in zip(letters, CONTROL_STYLES, strict=False):
        tick.set_color(colour)
    axes.set_xlabel("iterations r; controls" if count > 1 else "controls")


def _parents(axes, result):
    """Draw the effective number of parents of a capsule by iteration."""
    one, J = result.effective_parents, len(result.classes)
    parents_axes(axes, one.value, one.ci95, J, "\ndotted: random")
    _dotted(axes, result, result.control_effective_parents.value)


def _polarisation(axes, result):
    """Draw the mean of the largest coupling of a capsule by iteration."""
    estimate = result.polarisation
    iterations = np.arange(1, len(estimate) + 1)
    upright(axes, iterations, estimate, "o-", color=BLUE)
    top = 1.06 if estimate.value.max() > 0.97 else 1  # whole markers
    axes.set(ylabel="mean of max $c_{ij}$", ylim=(0, top))
    axes.set_title(f"polarisation {float(estimate.value[-1]):.3f}\ndotted: random")
    iteration_ticks(axes, iterations)
    _dotted(axes, result, result.control_polarisation.value)


def _agreement(axes, result) -> list:
    """Draw the cosine of votes and pose, weighted by coupling, by iteration."""
    iterations, named = np.arange(1, len(result.agreement) + 1), []
    for k, (colour, marker, name) in enumerate(((RED, "o-", "true"), (GREY, "s--", "others"))):
        line = upright(axes, iterations, result.agreement[:, k], marker, color=colour)
        _dotted(axes, result, result.control_agreement.value[:, k], "matched", colour)
        named.append((axes, line, name))
    votes(axes, iterations)
    axes.set_xlabel(f"{axes.get_xlabel()}; dotted: matched")
    return named


def _dotted(axes, result, values, name="random", colour=GREY):
    """Draw one of the controls as a dotted line."""
    axes.axhline(values[result.controls.index(name)], color=colour, linestyle=":")


def _dead(axes, result):
    """Draw mean and largest activation of each lower-level capsule."""
    mean, largest = result.child_activation.value, result.largest_activation
    axes.plot(mean, largest, ".", color=BLUE, markersize=1.5)
    axes.axhline(result.dead_norm, color=GREY, linestyle="--", linewidth=0.8)
    axes.set(xlim=(0, max(1, mean.max())), ylim=(0, 1.05 * max(1, largest.max())))
    axes.set(xlabel="mean activation", ylabel="largest activation")
    axes.set_title(f"dead (below): {result.dead} of {len(mean)}")


def _by_class(types: bool, axes, result):
    """Draw mean couplings of the images of each true class, of all capsules or of each type."""
    uniform, every = 1 / len(result.classes), [result.coupling.value]
    if result.type_coupling is not None:
        each = zip(result.type_coupling.value, result.true_classes, strict=True)
        every.append(np.stack([of_type[:, k] for of_type, k in each]))  # to the true class
    scale = maps.coupling_scale(np.concatenate([values.ravel() for values in every]), uniform)
    image = axes.imshow(every[types], cmap=COUPLING, norm=scale, aspect="auto")
    axes.set_ylabel("true class")
    maps.class_ticks(axes.yaxis, [result.classes[k] for k in result.true_classes])
    if types:
        axes.set(xlabel="capsule type", title="each type to the true class")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        maps.coupling_bar(image, axes, uniform)
    else:
        axes.set(xlabel="parent class", title="all capsules")
        maps.class_ticks(axes.xaxis, result.classes)
        if result.type_coupling is None:
            maps.coupling_bar(image, axes, uniform)


def _tall_couplings(result, width: float) -> float:
    return 1.6 if maps.are_short(result.classes) else 2.3  # long names stand upright


def _evidence_of(result) -> str:
    """Return the caption of the maps, or of the evidence of capsules without a grid."""
    words, mapped = words_of(result.quantity), result.maps is not None
    whose = "" if mapped else f"of each {result.child} "
    text = f"evidence {whose}for each {result.parent}{' by position' * mapped}: {words['plain']}, "
    text += "with routing and with uniform couplings" + "\nthe outline is the image's" * mapped
    if result.quantity is None:
        return text
    places = "" if result.layer is None else " of the parents at all positions"
    return f"{text}\nall together they add up to {words['words']}{places}"


CONTROLS = "controls: uniform, random, shuffled, and random couplings of equal standard deviation"
MEAN_COUPLINGS = "mean couplings of the images of each true class, "
PANELS = {
    "couplings": Panel(_couplings, 1.35, 1),
    "parents": Panel(_own_parents, 1.5, 1 / 3, 1 / 2),
    "votes": Panel(_own_votes, 1.5, 1 / 3, 1 / 2),
    "activations": Panel(_own_activations, _tall_couplings, 1 / 3),
    "maps": Panel(
        _maps, _tall_maps, 1, figure="maps", shown="maps", omits=_omits, caption=_evidence_of
    ),
    **{
        name: Panel(
            draw, 2.1, share, share, "evidence",
            lambda result: result.maps is None and result.type_evidence is not None,
            caption=_evidence_of if name == "evidence" else "",
        )
        for name, draw, share in (("evidence", _evidence, 0.7), ("sums", _sums, 0.3))
    },
}  # fmt: skip
MANY = {
    **{
        name: Panel(
            partial(_outcome, field, title, label), 1.5, 1 / 3, 1 / 2, marks="bars",
            caption=f"by the number of routing iterations and with control couplings, |{text}\n"
            + CONTROLS,
        )
        for name, field, title, label, text in (
            ("accuracy", "accuracy", "accuracy", "images, %", "accuracy"),
            ("changed", "changed", "other than", "images, %", "share of changed predictions"),
            ("activation", "true_activation", "true class", "activation", "true activation"),
        )
    },
    "parents": Panel(_parents, 1.5, 1 / 3, 1 / 2, marks="bands"),
    "polarisation": Panel(_polarisation, 1.5, 1 / 3, 1 / 2, marks="bars"),
    "agreement": Panel(_agreement, 1.5, 1 / 3, 1 / 2, marks="bars"),
    "dead": Panel(_dead, _tall_couplings, 1 / 4, 1 / 2, "couplings"),
    "classes": Panel(
        partial(_by_class, False), _tall_couplings, 1 / 4, 1 / 2, "couplings",
        caption=f"{MEAN_COUPLINGS}|of all capsules to every class",
    ),
    "types": Panel(
        partial(_by_class, True), _tall_couplings, 1 / 2, 1, "couplings",
        lambda result: result.type_coupling is not None,
        caption=f"{MEAN_COUPLINGS}|of each capsule type to the true class",
    ),
}  # fmt: skip
