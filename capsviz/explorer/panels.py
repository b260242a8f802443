"""The panels of the page: from the values of its controls to HTML. No Gradio."""

from __future__ import annotations

import functools
from html import escape
from typing import NamedTuple

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.predict.remarks import remarks
from capsviz.analyses.routing import NEAR_UNIFORM as NEARLY
from capsviz.analyses.view.measure import redecode, warped
from capsviz.explorer import drawing, look
from capsviz.explorer.networks import Networks
from capsviz.explorer.settings import Settings
from capsviz.pictures import foreground
from capsviz.tracing.needs import routing_words

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

    Raises
    ------
    ValueError  for a donor that does not exist, or an intervention that a network refuses.
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
        '<div class="cv-wide">'
        f"{drawing.couplings(trace, r, classes, settings.how.off)}{almost_uniform(trace, r)}</div>",
        drawing.evidence(trace, answers.mapped, classes[answers.mapped]),
        drawing.spread(trace, r),
    )  # fmt: skip


def almost_uniform(trace: look.ImageTrace, iteration: int) -> str:
    """Say so if the couplings of an iteration are uniform, or almost; else nothing."""
    effective, classes = trace.effective_classes(iteration), len(trace.lengths)
    if np.ptp(trace.couplings[iteration - 1]) < 1e-6:
        return drawing.note("Uniform: " + MEANINGS["uniform"].lower(), "cv-near")
    if effective < NEARLY * classes:
        return ""
    text = f"Almost uniform: the effective number of classes is {effective:.2f} of {classes}."
    return drawing.note(text, "cv-near")


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

    Raises
    ------
    ValueError  for a donor that does not exist.
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
    meanings = {
        None: "As trained: couplings found by routing.",
        "uniform": f"{MEANINGS['uniform']} The prediction is by the votes alone.",
        look.ANOTHER: "Couplings of the other image. If couplings alone decided, the prediction "
        f"would be {classes[donor[0]]}.",
    }
    traces, refusals = {}, {}
    for couplings in COLUMNS:
        how = look.Intervention(couplings, donor=donor if couplings == look.ANOTHER else None)
        try:
            traces[couplings] = look.look(networks.model, image, how, other)
        except ValueError as error:  # this network's couplings cannot be replaced
            refusals[couplings] = str(error)
    limit = max(
        (np.abs(one.maps).max() for one in traces.values() if one.maps is not None), default=0
    )
    trained, columns = traces[None], []
    for couplings, title in COLUMNS.items():
        if couplings in refusals:
            parts = [drawing.note(refusals[couplings], "cv-warn")]
        else:
            trace, routed = traces[couplings], couplings is None
            text = meanings[couplings] + ("" if routed else " Ticks: as trained.")
            ticks = None if routed else trained.lengths
            parts = [
                drawing.bars(trace.lengths, classes, f"{name}, {title}", text, ticks),
                drawing.evidence(
                    trace, trained.predicted, classes[trained.predicted], float(limit)
                ),
                *_reconstruction(networks, trace),
            ]
            if couplings == look.ANOTHER:
                pixels = (other[0] * 255).round().byte().numpy()
                parts.append(drawing.pixels(pixels, f"The other image, class {classes[donor[0]]}."))
            parts.append(drawing.note(_spread(trace)))
        columns.append(drawing.column(parts, couplings=title.split()[0]))
    found = _without_routing(networks, trained, traces["uniform"]) if "uniform" in traces else ""
    return found + drawing.row(*columns)


def _without_routing(networks: Networks, trained: look.ImageTrace, uniform: look.ImageTrace) -> str:
    """Say whether the prediction is the same with uniform couplings."""
    names, before, after = networks.classes, trained.predicted, uniform.predicted
    same = "also" if before == after else f"but as {names[after]}"
    gap = float(np.abs(trained.lengths - uniform.lengths).max())
    return drawing.note(
        f"The image is predicted as {names[before]}, {same} with uniform couplings. No score "
        f"differs by more than {gap:.2f}. This is one image: `capsviz transplant --n 1000` "
        "measures many."
    )
