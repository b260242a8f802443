"""The panels of the page: from the values of its controls to HTML. No Gradio."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from torch import Tensor

from capsviz import tracing
from capsviz.analyses.predict.lines import remarks
from capsviz.analyses.routing.statistics import NEAR_UNIFORM as NEARLY
from capsviz.analyses.view.measure import Warp, redecode, warped
from capsviz.explorer import drawing, look
from capsviz.explorer.network import Networks
from capsviz.pictures import foreground
from capsviz.tracing import INTERVENTIONS

ROUTINGS = ("as trained", *(f"couplings {name}" for name in INTERVENTIONS), "one iteration")
MEANINGS = {  # of each intervention, a sentence each
    "uniform": "Each capsule gives every class the same.",
    "random": "Each capsule divides itself at random, any division being as likely; such couplings "
    "spread much wider than most networks' own, so what they spoil says little.",
    "shuffled": "The image's own couplings, exchanged among its capsules: as wide a spread, "
    "another place.",
    "matched": "Random couplings that spread as widely about uniform as the image's own.",
}
NEAR_UNIFORM = (
    "All couplings lie near uniform. That is their size and not their effect: the small shifts of "
    "many capsules add up, and can carry the class. Compare the bars with those of uniform "
    "couplings; `capsviz transplant` measures it."
)
NONE = -1  # of a choice of capsule type: none; of a class: that of the longest capsule


class Settings(NamedTuple):
    """What the controls say."""

    warp: Warp
    how: look.Intervention
    mapped: int  # class of the map; below 0: that of the longest capsule
    iteration: int  # of the couplings, from 1
    capsule: int  # class of the pose; below 0: that of the longest capsule
    changes: tuple[float, ...]  # of each dimension of that pose


class Found(NamedTuple):
    """What both networks say of the warped image, and of which class map and pose are."""

    seen: look.Seen
    plain: np.ndarray | None  # (J,) lengths without the intervention, if there is one
    scores: np.ndarray  # (J,) of the other network
    mapped: int
    capsule: int


def read(values) -> Settings:
    """Settings from the values of the controls, in the page's order."""
    warp, (routing, off, mapped, iteration, capsule) = Warp(*values[:5]), values[5:10]
    how = look.Intervention(
        couplings=routing.removeprefix("couplings ") if routing in ROUTINGS[1:-1] else None,
        iterations=1 if routing == ROUTINGS[-1] else None,
        off=None if off == NONE else off,
    )
    return Settings(warp, how, mapped, int(iteration), capsule, tuple(values[10:]))


def find(networks: Networks, image: Tensor, settings: Settings) -> Found:
    """Warp an image (1, C, H, W) and pass it through both networks."""
    image = warped(image, settings.warp)
    seen = look.look(networks.model, image, settings.how)
    changed = settings.how != look.AS_TRAINED
    longest = int(seen.lengths.argmax())
    return Found(
        seen=seen,
        plain=look.look(networks.model, image).lengths if changed else None,
        scores=tracing.scores(networks.other, image)[0].numpy(),
        mapped=longest if settings.mapped < 0 else settings.mapped,
        capsule=longest if settings.capsule < 0 else settings.capsule,
    )


def images(found: Found, networks: Networks, settings: Settings) -> str:
    """What the networks see, and the reconstruction."""
    height, width = found.seen.image.shape[1:]
    parts = [drawing.pixels(found.seen.image, f"what the networks see, {height} × {width} px")]
    if found.seen.reconstruction is None:
        note = drawing.note("This network has no decoder.")
        return drawing.row(*parts) + note + flag(found, networks)
    name = networks.classes[int(found.seen.lengths.argmax())]
    text = f"reconstruction by {networks.names[0]}, from the pose of {name}"
    reconstruction = drawing.pixels(found.seen.reconstruction, text)
    return drawing.row(*parts, reconstruction) + flag(found, networks)


def flag(found: Found, networks: Networks) -> str:
    """Whether the image is unlike the training data, as `capsviz predict` tells it.

    Nothing where that is not known, and while the routing is changed. Pieces of ink are counted in
    images like MNIST's, as the network sees them.
    """
    if networks.limits is None or found.plain is not None:
        return ""
    image = found.seen.image
    pieces = foreground.pieces(image[0] / 255) if image.shape == (1, 28, 28) else None
    reasons = networks.limits.crossed(float(found.seen.lengths.max()), found.seen.distance)
    texts = remarks(bool(reasons), reasons, pieces)
    if not reasons:
        texts.insert(0, "like the training data, by capsule length and reconstruction")
    text = "; ".join(texts)
    alarms = " One validation image in twenty is called unlike." if reasons else ""
    text = f"{text[0].upper()}{text[1:]}.{alarms}".replace("?.", "?")
    return drawing.note(text, "cv-warn" if reasons else "")


def scores(found: Found, networks: Networks, label: int | None) -> str:
    """The bars of both networks, side by side."""
    ticks = "" if found.plain is None else "; ticks: routing as trained"
    capsules = hasattr(networks.other, "look")
    what = "length of each class capsule"
    first = drawing.bars(
        found.seen.lengths, networks.classes, networks.names[0], what + ticks, found.plain
    )
    other = drawing.bars(
        found.scores, networks.classes, networks.names[1],
        what if capsules else "probability of each class",
    )  # fmt: skip
    true = "" if label is None else drawing.note(f"True class: {networks.classes[label]}")
    return drawing.row(first, other) + true


def routed(found: Found, networks: Networks, settings: Settings) -> str:
    """Map, couplings and entropy, and what they are of."""
    iteration = min(settings.iteration, len(found.seen.couplings))
    return words(found.seen, settings.how.couplings, len(networks.classes)) + drawing.row(
        drawing.evidence(found.seen, found.mapped, networks.classes[found.mapped]),
        drawing.couplings(found.seen, iteration, networks.classes, settings.how.off),
        drawing.spread(found.seen, iteration),
    )


def words(seen: look.Seen, intervention: str | None, classes: int) -> str:
    """What the couplings are, how far they spread, and what near-uniform ones do not say."""
    lines = [MEANINGS[intervention]] if intervention is not None else []
    lines.append(f"Standard deviation of the couplings about uniform: {seen.coupling_sd:.4f}.")
    effective = float(np.exp(seen.entropy_nats[-1]).mean())
    if intervention is None and effective >= NEARLY * classes and seen.coupling_sd > 0:
        lines.append(NEAR_UNIFORM)
    return drawing.note(" ".join(lines))


def posed(found: Found, networks: Networks, settings: Settings) -> str:
    """A class's pose, as it is and as changed, decoded and in numbers."""
    name, poses = networks.classes[found.capsule], found.seen.poses
    parts = []
    for text, by in (("is", np.zeros(poses.shape[1])), ("was changed", settings.changes)):
        made = redecode(networks.model, poses, found.capsule, by)
        if made is not None:
            parts.append(drawing.pixels(made, f"decoded: pose of {name} as it {text}"))
    return drawing.row(*parts, drawing.vector(poses[found.capsule], settings.changes, name))
