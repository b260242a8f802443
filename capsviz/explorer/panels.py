"""The panels of the page: from the values of its controls to HTML. No Gradio."""

import functools
from typing import NamedTuple

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.routing import spread
from capsviz.analyses.view import redecode, warped
from capsviz.explorer import drawing, look
from capsviz.explorer.networks import Networks
from capsviz.explorer.settings import Settings
from capsviz.pictures import strokes
from capsviz.statistics.detection import remarks
from capsviz.statistics.words import sentence

MEANINGS = {  # explanation of each intervention
    "uniform": "Every capsule is coupled equally to every class.",
    "random": "Random couplings: every division of a capsule among the classes is equally likely. "
    "They spread much wider than those of most networks, so a wrong prediction says little.",
    "shuffled": "The image's own couplings, permuted among its capsules: the same spread at other "
    "positions.",
    "matched": "Random couplings that spread as widely about uniform as the image's own.",
    look.ANOTHER: "The couplings that the other image has after its last iteration. The votes are "
    "this image's own. This is one pair: `capsviz transplant --n` measures which share of pairs "
    "follows the other image.",
}
SAME = "In this network uniform couplings and one iteration are the same: routing starts uniform."
score_name = functools.lru_cache(maxsize=8)(tracing.score_name)  # takes a forward pass
EMPTY = "Nothing is shown: draw a digit, upload a picture, or choose a test image."
PROBABILITY = "Probability of each class. The sum is 1."
OF_EACH = " of each class. The sum need not be 1."


class Answers(NamedTuple):
    """Outputs of both networks for the warped image, and the classes of map and pose."""

    trace: look.ImageTrace
    plain: np.ndarray | None  # (J,) lengths without the intervention, if there is one
    scores: np.ndarray  # (J,) of the other network
    mapped: int  # class whose evidence is mapped
    capsule: int  # class whose pose is shown


def find(networks: Networks, image: Tensor, settings: Settings) -> Answers:
    """Warp an image (1, C, H, W) and pass it through both networks.

    ValueError for a donor that does not exist, or an intervention that a network refuses.
    """
    image = warped(image, settings.warp)
    donor = None if settings.how.donor is None else networks.test_image(*settings.how.donor)
    trace = look.look(networks.model, image, settings.how, donor)
    return Answers(
        trace=trace,
        plain=None if settings.how == look.AS_TRAINED else look.look(networks.model, image).lengths,
        scores=tracing.scores(networks.other, image)[0].numpy(),
        mapped=trace.predicted if settings.mapped < 0 else settings.mapped,
        capsule=trace.predicted if settings.capsule < 0 else settings.capsule,
    )


def images(answers: Answers, networks: Networks) -> str:
    """Draw the input of the networks and the reconstruction, and flag unusual images."""
    height, width = answers.trace.image.shape[1:]
    shown = drawing.pixels(answers.trace.image, f"Input of both networks, {height} × {width} px.")
    decoded, note = answers.trace.reconstruction, "This network has no decoder."
    if decoded is not None:
        name, note = networks.dataset.classes[answers.trace.predicted], ""
        shown += drawing.pixels(decoded, f"Reconstruction from the pose of class {name} alone.")
    return drawing.row(shown) + drawing.note(note) + flag(answers, networks)


def flag(answers: Answers, networks: Networks) -> str:
    """Report whether the image is unlike the training data, as `capsviz predict` does.

    Return "" if the network has no limits, or the routing is changed. In images centred as MNIST's,
    pieces of stroke are counted.
    """
    if networks.limits is None or answers.plain is not None:
        return ""
    image = answers.trace.image
    pieces = strokes.pieces(image[0] / 255) if networks.frame.centred else None
    distance = answers.trace.distance
    reasons = networks.limits.crossed(float(answers.trace.lengths.max()), distance)
    score = score_name(networks.model)
    texts = remarks(bool(reasons), reasons, pieces, score.split()[-1])
    if not reasons:
        decoded = networks.limits.distance is not None and distance is not None
        by = f"{score}{' and reconstruction' * decoded}"
        texts.insert(0, f"like the training data, by {by}")
    alarms = " One validation image in twenty is flagged." if reasons else ""
    return drawing.note(sentence("; ".join(texts)) + alarms, "cv-warn" if reasons else "")


def _scored(model) -> str:
    kind = score_name(model)
    return PROBABILITY if kind == "probability" else f"{kind.capitalize()}{OF_EACH}"


def scores(answers: Answers, networks: Networks, label: int | None, how: look.Intervention) -> str:
    """Draw the scores of both networks side by side, and explain the intervention."""
    ticks = "" if answers.plain is None else " Ticks: routing as trained."
    lengths, classes, names = answers.trace.lengths, networks.dataset.classes, networks.names
    first = drawing.bars(lengths, classes, names[0], _scored(networks.model) + ticks, answers.plain)
    other = drawing.bars(answers.scores, classes, names[1], _scored(networks.other))
    true = "" if label is None else drawing.note(f"True class: {classes[label]}")
    same = networks.about.starts_uniform and (how.couplings == "uniform" or how.iterations == 1)
    texts = "" if how.couplings is None else MEANINGS[how.couplings], SAME if same else ""
    return drawing.row(first, other) + true + drawing.note(" ".join(filter(None, texts)))


def routed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Draw the couplings of an iteration and the evidence for a class, with their spread."""
    trace, classes = answers.trace, networks.dataset.classes
    r = min(settings.iteration, len(trace.couplings))
    return drawing.row(
        drawing.couplings(trace, r, classes, settings.how.off),
        drawing.evidence(trace, answers.mapped, classes),
    ) + drawing.note(f"Standard deviation of the couplings about uniform: {trace.coupling_sd:.4f}.")


def iterations(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Draw the scores after an iteration, and report how far the couplings are from uniform."""
    trace, classes = answers.trace, networks.dataset.classes
    R = len(trace.couplings)
    r = min(settings.iteration, R)
    norms = r < R and "norms" in tracing.abilities(networks.model).peculiar  # not scores before R
    what = "Norm of the pose" if norms else score_name(networks.model).capitalize()
    words = spread(trace.effective_classes, trace.couplings[-1], trace.coupling_sd)
    text = "" if settings.how.couplings else words.replace("parents", "classes")
    return drawing.note(text) + drawing.bars(
        trace.activations[r - 1], classes, f"Iteration {r} of {R}",
        f"{what} of each class after this iteration. The last iteration is the prediction.",
    )  # fmt: skip


def posed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Draw a class's pose, unchanged and changed, decoded and in numbers."""
    name, poses = networks.dataset.classes[answers.capsule], answers.trace.poses
    parts = []
    for text, by in (("Unchanged", np.zeros(poses.shape[1])), ("Changed", settings.changes)):
        decoded = redecode(networks.model, poses, answers.capsule, by)
        if decoded is not None:
            parts.append(drawing.pixels(decoded, f"{text} pose of class {name}, decoded."))
    return drawing.row(*parts, drawing.vector(poses[answers.capsule], settings.changes, name))
