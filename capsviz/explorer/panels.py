"""The panels of the page: from the values of its controls to HTML. No Gradio."""

from __future__ import annotations

import functools
from html import escape
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz import tracing
from capsviz.analyses import rotate
from capsviz.analyses.predict.remarks import remarks
from capsviz.analyses.routing.statistics import NEAR_UNIFORM as NEARLY
from capsviz.analyses.view.measure import redecode, warped
from capsviz.explorer import drawing, look
from capsviz.explorer.networks import Networks
from capsviz.explorer.settings import Settings
from capsviz.pictures import foreground
from capsviz.results import COLOURS
from capsviz.results.panels import picture
from capsviz.tracing.needs import routing_words
from capsviz.transforms import warps
from capsviz.transforms.augment import to_uint8

MEANINGS = {  # of each intervention
    "uniform": "Every capsule is coupled equally to every class.",
    "random": "Random couplings: every division of a capsule among the classes is equally likely. "
    "They spread much wider than those of most networks, so a wrong prediction says little.",
    "shuffled": "The image's own couplings, permuted among its capsules: the same spread at other "
    "positions.",
    "matched": "Random couplings that spread as widely about uniform as the image's own.",
    look.ANOTHER: "The couplings that the other image has after its last iteration. The votes are "
    "this image's own.",
}
NEAR_UNIFORM = (
    "All couplings are close to uniform. Their size is not their effect: the small shifts of many "
    "capsules add up, and can carry the class. Compare the bars with those of uniform couplings; "
    "`capsviz transplant` measures the effect."
)
EMPTY = "Nothing is shown: draw a digit, upload a picture, or choose a case or a test image."
PROBABILITY = "Probability of each class. The sum is 1."
SWEEP: dict[str, Any] = {"start": -180.0, "stop": 180.0, "step": 5.0}  # degrees, of the player
FRAME_MS = 120
WIDTH, HEIGHT, TOP, LEFT, BASE = 360, 156, 16, 24, 136  # of a curve, in units of its own
COLUMNS = {  # titles of the couplings side by side
    None: "trained couplings",
    "uniform": "uniform couplings",
    look.ANOTHER: "transplanted couplings",
}


class Answers(NamedTuple):
    """What both networks predict for the warped image, and which class map and pose are of."""

    trace: look.ImageTrace
    plain: np.ndarray | None  # (J,) lengths without the intervention, if there is one
    scores: np.ndarray  # (J,) of the other network
    mapped: int
    capsule: int


def find(networks: Networks, image: Tensor, settings: Settings) -> Answers:
    """Warp an image (1, C, H, W) and pass it through both networks.

    ValueError for a donor that does not exist, or an intervention that a network refuses.
    """
    image = warped(image, settings.warp)
    donor = None if settings.how.donor is None else networks.test_image(*settings.how.donor)
    trace = look.look(networks.model, image, settings.how, donor)
    changed = settings.how != look.AS_TRAINED
    return Answers(
        trace=trace,
        plain=look.look(networks.model, image).lengths if changed else None,
        scores=tracing.scores(networks.other, image)[0].numpy(),
        mapped=trace.predicted if settings.mapped < 0 else settings.mapped,
        capsule=trace.predicted if settings.capsule < 0 else settings.capsule,
    )


@functools.lru_cache(maxsize=8)
def score_name(model) -> str:
    """Return what the scores of a network are, for example "capsule length"."""
    return tracing.score_name(model)


def images(answers: Answers, networks: Networks) -> str:
    """Draw the input of the networks and the reconstruction, and flag unusual images."""
    height, width = answers.trace.image.shape[1:]
    parts = [drawing.pixels(answers.trace.image, f"Input of both networks, {height} × {width} px.")]
    parts += _reconstruction(networks, answers.trace)
    note = "" if len(parts) > 1 else drawing.note("This network has no decoder.")
    return drawing.row(*parts) + note + flag(answers, networks)


def _reconstruction(networks: Networks, trace: look.ImageTrace) -> list[str]:
    if trace.reconstruction is None:
        return []
    text = f"Reconstruction from the pose of class {networks.classes[trace.predicted]} alone."
    return [drawing.pixels(trace.reconstruction, text)]


def flag(answers: Answers, networks: Networks) -> str:
    """Say whether the image is unlike the training data, as `capsviz predict` does.

    Nothing where that is not known, and while the routing is changed. Pieces of stroke are counted
    in images like MNIST's.
    """
    if networks.limits is None or answers.plain is not None:
        return ""
    image = answers.trace.image
    pieces = foreground.pieces(image[0] / 255) if image.shape == (1, 28, 28) else None
    reasons = networks.limits.crossed(float(answers.trace.lengths.max()), answers.trace.distance)
    score = score_name(networks.model)
    texts = remarks(bool(reasons), reasons, pieces, score.split()[-1])
    if not reasons:
        texts.insert(0, f"like the training data, by {score} and reconstruction")
    text = "; ".join(texts)
    alarms = " One validation image in twenty is flagged." if reasons else ""
    text = f"{text[0].upper()}{text[1:]}.{alarms}".replace("?.", "?")
    return drawing.note(text, "cv-warn" if reasons else "")


def scores(answers: Answers, networks: Networks, label: int | None) -> str:
    """Draw the scores of both networks, side by side."""
    ticks = "" if answers.plain is None else " Ticks: routing as trained."
    capsules = tracing.abilities(networks.other).has_capsules
    what = f"{score_name(networks.model).capitalize()} of each class. The sum need not be 1."
    lengths, classes, names = answers.trace.lengths, networks.classes, networks.names
    first = drawing.bars(lengths, classes, names[0], what + ticks, answers.plain)
    other = drawing.bars(answers.scores, classes, names[1], what if capsules else PROBABILITY)
    true = "" if label is None else drawing.note(f"True class: {classes[label]}")
    return drawing.row(first, other) + true


def routed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Draw scores, couplings and spread of an iteration, and the evidence; say what they are of."""
    trace, classes = answers.trace, networks.classes
    assert trace.activations is not None  # `find` looks for them
    R = len(trace.couplings)
    r = min(settings.iteration, R)
    norms = r < R and "norms" in tracing.abilities(networks.model).peculiar  # no scores there
    what = "Norm of the pose" if norms else score_name(networks.model).capitalize()
    return words(trace, settings.how.couplings) + drawing.row(
        drawing.bars(
            trace.activations[r - 1], classes, f"Iteration {r} of {R}",
            f"{what} of each class after this iteration. The last iteration is the prediction.",
        ),
        f'<div class="cv-wide">{drawing.couplings(trace, r, classes, settings.how.off)}</div>',
        drawing.evidence(trace, answers.mapped, classes[answers.mapped]),
        drawing.spread(trace, r),
    )  # fmt: skip


def words(trace: look.ImageTrace, intervention: str | None) -> str:
    """Say what the couplings are, how far they spread, and that a small spread can matter."""
    lines = [] if intervention is None else [MEANINGS[intervention]]
    lines.append(_spread(trace))
    near = trace.effective_classes() >= NEARLY * len(trace.lengths) and trace.coupling_sd > 0
    return drawing.note(
        " ".join([*lines, NEAR_UNIFORM] if near and intervention is None else lines)
    )


def _spread(trace: look.ImageTrace) -> str:
    return f"Standard deviation of the couplings about uniform: {trace.coupling_sd:.4f}."


def posed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Draw a class's pose, unchanged and changed, decoded and in numbers."""
    name, poses = networks.classes[answers.capsule], answers.trace.poses
    parts = []
    for text, by in (("Unchanged", np.zeros(poses.shape[1])), ("Changed", settings.changes)):
        decoded = redecode(networks.model, poses, answers.capsule, by)
        if decoded is not None:
            parts.append(drawing.pixels(decoded, f"{text} pose of class {name}, decoded."))
    return drawing.row(*parts, drawing.vector(poses[answers.capsule], settings.changes, name))


def side_by_side(networks: Networks, image: Tensor, settings: Settings) -> str:
    """Draw an image (1, C, H, W), warped as set, in both networks and under three couplings.

    ValueError for a donor that does not exist.
    """
    image = warped(image, settings.warp)
    return (
        f"<h4>Two networks, the same image</h4>{two_networks(networks, image)}"
        f"<h4>{escape(networks.names[0])}: three couplings, the same votes</h4>"
        f"{three_couplings(networks, image, settings.donor)}"
    )


def two_networks(networks: Networks, image: Tensor) -> str:
    """Draw scores, couplings, evidence and reconstruction of both networks for an image."""
    columns, mapped = [], None
    for model, name in zip((networks.model, networks.other), networks.names, strict=True):
        if not tracing.abilities(model).has_capsules:
            values = tracing.scores(model, image)[0].numpy()
            text = f"{PROBABILITY} This network has no capsules, so no routing."
            parts = [drawing.bars(values, networks.classes, name, text)]
        else:
            trace, classes = look.look(model, image), networks.classes
            mapped = trace.predicted if mapped is None else mapped
            what = f"{score_name(model).capitalize()} of each class, as trained."
            parts = [
                drawing.note(f"{name}: {routing_words(model)}."),
                drawing.bars(trace.lengths, classes, name, what),
                drawing.row(
                    drawing.couplings(trace, len(trace.couplings), classes),
                    drawing.evidence(trace, mapped, classes[mapped]),
                    *_reconstruction(networks, trace),
                ),
                drawing.note(
                    f"Effective number of classes of a capsule: {trace.effective_classes():.2f} of "
                    f"{len(classes)}. {_spread(trace)}"
                ),
            ]
        columns.append(drawing.column(parts, network=name))
    note = drawing.note("Each network has colour scales of its own: compare their ends.")
    return note + drawing.row(*columns)


def three_couplings(networks: Networks, image: Tensor, donor: tuple[int, int]) -> str:
    """Draw an image under trained, uniform and transplanted couplings; maps share one scale.

    Bars have ticks at the scores as trained, and maps are of the class that is predicted then.
    """
    other, classes, name = networks.test_image(*donor), networks.classes, networks.names[0]
    texts = {
        None: "As trained: couplings found by routing.",
        "uniform": f"{MEANINGS['uniform']} The prediction is by the votes alone. "
        "Ticks: as trained.",
        look.ANOTHER: "Couplings of the other image. If couplings alone decided, the prediction "
        f"would be {classes[donor[0]]}. Ticks: as trained.",
    }
    trained = look.look(networks.model, image)
    traces: dict[str | None, look.ImageTrace] = {None: trained}
    refusals: dict[str | None, str] = {}
    for couplings in ("uniform", look.ANOTHER):
        how = look.Intervention(couplings, donor=donor if couplings == look.ANOTHER else None)
        try:
            traces[couplings] = look.look(networks.model, image, how, other)
        except ValueError as error:  # this network's couplings cannot be replaced
            refusals[couplings] = str(error)
    limit = max((abs(one.maps).max() for one in traces.values() if one.maps is not None), default=0)
    columns, class_ = [], trained.predicted
    for kind, title in COLUMNS.items():
        if kind in refusals:
            parts = [drawing.note(refusals[kind], "cv-warn")]
        else:
            trace, ticks = traces[kind], None if kind is None else trained.lengths
            parts = [
                drawing.bars(trace.lengths, classes, f"{name}, {title}", texts[kind], ticks),
                drawing.evidence(trace, class_, classes[class_], float(limit)),
                *_reconstruction(networks, trace),
            ]
            if kind == look.ANOTHER:
                text = f"The other image, class {classes[donor[0]]}."
                parts.append(drawing.pixels(to_uint8(other[0]), text))
            parts.append(drawing.note(_spread(trace)))
        columns.append(drawing.column(parts, couplings=title.split()[0]))
    found = ""
    if "uniform" in traces:
        after = traces["uniform"].predicted
        same = "also" if class_ == after else f"but as {classes[after]}"
        gap = float(np.abs(trained.lengths - traces["uniform"].lengths).max())
        found = drawing.note(
            f"The image is predicted as {classes[class_]}, {same} with uniform couplings. No score "
            f"differs by more than {gap:.2f}. This is one image: `capsviz transplant --n 1000` "
            "measures many."
        )
    return found + drawing.row(*columns)


def player(networks: Networks, image: Tensor) -> str:
    """Return a player of an image (1, C, H, W) at each angle, and the curves of both networks.

    `player.js` shows a frame at a time, and the curves up to it.
    """
    degrees = rotate.angles(**SWEEP)
    images = warps.rotate(image.cpu().float(), torch.from_numpy(degrees)).clamp(0, 1)
    models = networks.model, networks.other
    scores = [tracing.scores(one, images).float().numpy() for one in models]
    pixels = to_uint8(images)
    frames = "".join(
        _frame(networks, pixels[k], degrees[k], [one[k] for one in scores])
        for k in range(len(degrees))
    )
    winners = sorted({int(j) for values in scores for j in values.argmax(1)})
    curves = [
        _curves(f"{name}: {score_name(model)}", values, degrees, networks.classes, winners)
        for name, model, values in zip(networks.names, models, scores, strict=True)
    ]
    return (
        f'<div class="cv-player" data-count="{len(degrees)}" data-ms="{FRAME_MS}">'
        '<div class="cv-bar-of-player"><button type="button">Play</button>'
        f'<input type="range" min="0" max="{len(degrees) - 1}" value="0" '
        'aria-label="Angle of the frame"></div>'
        f'{drawing.row(f"""<div class="cv-frames">{frames}</div>""", *curves)}</div>'
        + drawing.note(
            "The original image is rotated counter-clockwise, without the warp above. Both "
            "networks classify it at every angle, as trained. One image proves nothing about "
            "robustness: `capsviz rotate --n 1000` measures many."
        )
    )


def _frame(networks: Networks, pixels: np.ndarray, degrees: float, scores) -> str:
    words = "; ".join(
        f"{name}: predicted as {networks.classes[int(one.argmax())]} ({one.max():.2f})"
        for name, one in zip(networks.names, scores, strict=True)
    )
    angle = f"{degrees:.0f}°".replace("-", "−")
    return (
        f'<figure class="cv-panel cv-frame" hidden><img class="cv-px" '
        f'src="{drawing.png(picture(pixels))}" alt="the image at {angle}">'
        f"<figcaption>{angle}: {escape(words)}.</figcaption></figure>"
    )


def _curves(what: str, values: np.ndarray, degrees: np.ndarray, classes, winners: list[int]) -> str:
    """Draw scores (A, J) over A angles; those of `winners` are in colour."""
    x = LEFT + (degrees - degrees[0]) / np.ptp(degrees) * (WIDTH - LEFT)
    y = BASE - values.clip(0, 1) * (BASE - TOP)
    colours = {j: COLOURS[k % len(COLOURS)] for k, j in enumerate(winners)}
    lines, labels = [], []
    for j in sorted(range(len(classes)), key=lambda j: j in winners):
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y[:, j], strict=True))
        look = (colours[j], 2) if j in winners else ("#8888", 0.7)
        lines.append('<polyline points="{}" stroke="{}" stroke-width="{}"/>'.format(points, *look))
    for j, colour in colours.items():
        k = int(values[:, j].argmax())
        anchor = "start" if x[k] < LEFT + 12 else "end" if x[k] > WIDTH - 12 else "middle"
        labels.append(
            f'<text x="{x[k]:.1f}" y="{y[k, j] - 3:.1f}" text-anchor="{anchor}" '
            f'style="fill:{colour};font-weight:700">{escape(classes[j])}</text>'
        )
    anchors = {-180: "start", -90: "middle", 0: "middle", 90: "middle", 180: "end"}
    ticks = "".join(
        f'<text x="{LEFT + (d + 180) / 360 * (WIDTH - LEFT):.1f}" y="{HEIGHT - 6}" '
        f'text-anchor="{anchor}">{d}°</text>'.replace(">-", ">−")
        for d, anchor in anchors.items()
    )
    return (
        f'<figure class="cv-panel cv-curves"><svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(what)} by angle"><path d="M{LEFT} {TOP}V{BASE}H{WIDTH}"/>'
        f'<text x="{LEFT - 4}" y="{TOP + 4}" text-anchor="end">1</text>'
        f'<text x="{LEFT - 4}" y="{BASE}" text-anchor="end">0</text>{ticks}'
        f'<svg class="cv-trace" x="0" y="0" width="{WIDTH}" height="{HEIGHT}" '
        f'data-left="{LEFT}" data-width="{WIDTH}">{"".join(lines)}{"".join(labels)}</svg></svg>'
        f"<figcaption>{escape(what)} of each class at each angle. In colour: classes that either "
        "network predicts at some angle.</figcaption></figure>"
    )
