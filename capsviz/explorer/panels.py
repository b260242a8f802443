"""The panels of the page: from the values of its controls to HTML. No Gradio."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.predict.result import remarks
from capsviz.analyses.routing.statistics import NEAR_UNIFORM as NEARLY
from capsviz.analyses.view.measure import redecode, warped
from capsviz.explorer import drawing, look
from capsviz.explorer.network import Networks, scale
from capsviz.explorer.settings import Settings
from capsviz.pictures import foreground

MEANINGS = {  # of each intervention, a sentence each
    "uniform": "Each capsule gives every class the same.",
    "random": "Each capsule divides itself at random, any division being as likely; such couplings "
    "spread much wider than most networks' own, so what they spoil says little.",
    "shuffled": "The image's own couplings, exchanged among its capsules: as wide a spread, "
    "another place.",
    "matched": "Random couplings that spread as widely about uniform as the image's own.",
    look.ANOTHER: "The couplings that the other image has after its last iteration; the votes are "
    "this image's own.",
}
NEAR_UNIFORM = (
    "All couplings lie near uniform. That is their size and not their effect: the small shifts of "
    "many capsules add up, and can carry the class. Compare the bars with those of uniform "
    "couplings; `capsviz transplant` measures it."
)
EMPTY = "Nothing is shown: draw a digit, upload a picture, or choose a case or a test image."


class Answers(NamedTuple):
    """What both networks say of the warped image, and of which class map and pose are."""

    trace: look.ImageTrace
    plain: np.ndarray | None  # (J,) lengths without the intervention, if there is one
    scores: np.ndarray  # (J,) of the other network
    mapped: int
    capsule: int


def find(networks: Networks, image: Tensor, settings: Settings) -> Answers:
    """Warp an image (1, C, H, W) and pass it through both networks.

    Raises
    ------
    ValueError  for a donor that is not there, and what a network refuses.
    """
    image = warped(image, settings.warp)
    donor = None if settings.how.donor is None else networks.test_image(*settings.how.donor)
    trace = look.look(networks.model, image, settings.how, donor)
    changed = settings.how != look.AS_TRAINED
    longest = int(trace.lengths.argmax())
    return Answers(
        trace=trace,
        plain=look.look(networks.model, image).lengths if changed else None,
        scores=tracing.scores(networks.other, image)[0].numpy(),
        mapped=longest if settings.mapped < 0 else settings.mapped,
        capsule=longest if settings.capsule < 0 else settings.capsule,
    )


def images(answers: Answers, networks: Networks) -> str:
    """What the networks see, and the reconstruction."""
    height, width = answers.trace.image.shape[1:]
    parts = [drawing.pixels(answers.trace.image, f"What both networks see, {height} × {width} px.")]
    if answers.trace.reconstruction is None:
        note = drawing.note("This network has no decoder.")
        return drawing.row(*parts) + note + flag(answers, networks)
    name = networks.classes[int(answers.trace.lengths.argmax())]
    text = f"What {networks.names[0]} draws of it again, from the pose of {name} alone."
    reconstruction = drawing.pixels(answers.trace.reconstruction, text)
    return drawing.row(*parts, reconstruction) + flag(answers, networks)


def flag(answers: Answers, networks: Networks) -> str:
    """Whether the image is unlike the training data, as `capsviz predict` tells it.

    Nothing where that is not known, and while the routing is changed. Pieces of ink are counted in
    images like MNIST's, as the network sees them.
    """
    if networks.limits is None or answers.plain is not None:
        return ""
    image = answers.trace.image
    pieces = foreground.pieces(image[0] / 255) if image.shape == (1, 28, 28) else None
    reasons = networks.limits.crossed(float(answers.trace.lengths.max()), answers.trace.distance)
    score = scale(networks.model)
    texts = remarks(bool(reasons), reasons, pieces, score.split()[-1])
    if not reasons:
        texts.insert(0, f"like the training data, by {score} and reconstruction")
    text = "; ".join(texts)
    alarms = " One validation image in twenty is called unlike." if reasons else ""
    text = f"{text[0].upper()}{text[1:]}.{alarms}".replace("?.", "?")
    return drawing.note(text, "cv-warn" if reasons else "")


def scores(answers: Answers, networks: Networks, label: int | None) -> str:
    """The bars of both networks, side by side."""
    ticks = "" if answers.plain is None else "; ticks: routing as trained"
    capsules = tracing.abilities(networks.other).has_capsules
    what = f"{scale(networks.model).capitalize()} of each class; they need not sum to 1"
    first = drawing.bars(
        answers.trace.lengths, networks.classes, networks.names[0], f"{what}{ticks}.", answers.plain
    )
    other = drawing.bars(
        answers.scores, networks.classes, networks.names[1],
        f"{what}." if capsules else "Probability of each class: they sum to 1.",
    )  # fmt: skip
    true = "" if label is None else drawing.note(f"True class: {networks.classes[label]}")
    return drawing.row(first, other) + true


def routed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """Map, couplings, lengths after one iteration and entropy, and what they are of."""
    trace, classes = answers.trace, networks.classes
    assert trace.activations is not None  # `find` looks for them
    R = len(trace.couplings)
    r = min(settings.iteration, R)
    norms = r < R and "norms" in tracing.abilities(networks.model).peculiar  # no scores there
    what = "Norm of the pose" if norms else scale(networks.model).capitalize()
    reached = drawing.bars(
        trace.activations[r - 1], classes, f"Iteration {r} of {R}: {networks.names[0]}",
        f"{what} of each class after this iteration; the last is the answer.",
    )  # fmt: skip
    return words(trace, settings.how.couplings, len(classes)) + drawing.row(
        reached,
        '<div class="cv-wide">'
        f"{drawing.couplings(trace, r, classes, settings.how.off)}{almost(trace, r, len(classes))}"
        "</div>",
        drawing.evidence(trace, answers.mapped, classes[answers.mapped]),
        drawing.spread(trace, r),
    )


def almost(trace: look.ImageTrace, iteration: int, classes: int) -> str:
    """Whether the couplings of an iteration are uniform, or almost, in a line; else nothing."""
    effective = float(np.exp(trace.entropy_nats[iteration - 1]).mean())
    if np.ptp(trace.couplings[iteration - 1]) < 1e-6:
        return drawing.note("Uniform: every capsule gives every class the same.", "cv-near")
    if effective < NEARLY * classes:
        return ""
    return drawing.note(
        f"Almost uniform: a capsule feeds {effective:.2f} of {classes} classes on average; the "
        "colours show small shifts.", "cv-near",
    )  # fmt: skip


def words(trace: look.ImageTrace, intervention: str | None, classes: int) -> str:
    """What the couplings are, how far they spread, and what near-uniform ones do not say."""
    lines = [MEANINGS[intervention]] if intervention is not None else []
    lines.append(f"Standard deviation of the couplings about uniform: {trace.coupling_sd:.4f}.")
    effective = float(np.exp(trace.entropy_nats[-1]).mean())
    if intervention is None and effective >= NEARLY * classes and trace.coupling_sd > 0:
        lines.append(NEAR_UNIFORM)
    return drawing.note(" ".join(lines))


def posed(answers: Answers, networks: Networks, settings: Settings) -> str:
    """A class's pose, as it is and as changed, decoded and in numbers."""
    name, poses = networks.classes[answers.capsule], answers.trace.poses
    parts = []
    for text, by in (("is", np.zeros(poses.shape[1])), ("was changed", settings.changes)):
        reconstruction = redecode(networks.model, poses, answers.capsule, by)
        if reconstruction is not None:
            parts.append(
                drawing.pixels(reconstruction, f"Decoded: the pose of {name} as it {text}.")
            )
    return drawing.row(*parts, drawing.vector(poses[answers.capsule], settings.changes, name))
