"""One image, warped: what do two networks say, and what does its pose draw?

`capsviz view --explain` prints the method, what to see, and what not to conclude.
"""

from __future__ import annotations

from typing import NamedTuple

import click
import numpy as np

from capsviz.analyses.view.measure import Warp, redecode, warped
from capsviz.cli.analysis import analysis

EXAMPLES = """
capsviz view --digit 4 --angle 20  # 6 s
"""

NEEDS = ("poses",)  # of a network, see tracing.needs


class Result(NamedTuple):
    """One image in K networks, and the pose of one class of the first."""

    image: np.ndarray  # (C, H, W) uint8, before the warp
    warped: np.ndarray  # (C, H, W) uint8, as the networks see it
    warp: dict[str, float]  # of `Warp`
    networks: list[str]  # K names
    scores: np.ndarray  # (K, J) lengths of class capsules, or probabilities
    capsule: int  # class of the pose
    pose: np.ndarray  # (E,) as it is
    changes: np.ndarray  # (E,) added to it
    own: np.ndarray | None  # (C, H, W) uint8, decoded from the pose as it is; None: no decoder
    changed: np.ndarray | None  # (C, H, W) uint8, decoded from the changed pose
    routing: str  # "as trained", or what was changed in the first network's routing
    classes: list[str]
    label: int | None  # true class, if it is known
    kinds: list[str] | None = None  # K: "capsule length", "activation" or "probability"


UNWARPED = Warp()


def compute(
    model, image, label=None, *, classes, others=(), names, warp=UNWARPED, capsule=None,
    changes=None, couplings=None, iterations=None, routing="as trained",
) -> Result:  # fmt: skip
    """Warp an image (1, C, H, W), ask the networks, and decode a pose.

    Parameters
    ----------
    label                  true class, if it is known.
    classes                names of the classes.
    others                 K - 1 further networks, with capsules or without.
    names                  of the K networks.
    warp                   of the image.
    capsule                class whose pose is decoded; None: that of the longest capsule.
    changes                (E,) added to that pose; None: nothing.
    couplings, iterations  of the first network's routing, as of `tracing.trace`.
    routing                those two in words.

    Raises
    ------
    ValueError  for a scale that is not above 0, a class that is not there, or as many changes as
                the pose has no dimensions.
    """
    from capsviz.nn.functional import predict
    from capsviz.tracing import score_name, scores, trace
    from capsviz.transforms.augment import to_uint8

    frame = warped(image.cpu(), warp)
    keep = ("poses", "lengths")
    traced = trace(model, frame, keep=keep, couplings=couplings, iterations=iterations)
    poses = traced.poses[-1, 0].float().numpy()
    J, E = poses.shape
    capsule = int(predict(traced.lengths)) if capsule is None else int(capsule)
    changes = np.zeros(E) if changes is None else np.asarray(changes, dtype=float)
    if not 0 <= capsule < J:
        raise ValueError(f"the network has no class {capsule}, expected 0 to {J - 1}")
    if changes.shape != (E,):
        raise ValueError(f"expected {E} changes, one a dimension, got {changes.tolist()}")
    return Result(
        image=to_uint8(image[0]),
        warped=to_uint8(frame[0].float()),
        warp={name: float(value) for name, value in warp._asdict().items()},
        networks=list(names),
        scores=np.stack(
            [traced.lengths[0].float(), *(scores(one, frame)[0].float() for one in others)]
        ),
        capsule=capsule,
        pose=poses[capsule],
        changes=changes,
        own=redecode(model, poses, capsule, np.zeros(E)),
        changed=redecode(model, poses, capsule, changes),
        routing=routing,
        classes=list(classes),
        label=label,
        kinds=[score_name(one, frame) for one in (model, *others)],
    )


def plot(result: Result, *, width=7.16):
    """The images, the scores of every network, and the pose."""
    from capsviz.analyses.view.draw import draw

    return draw(result, width)


@analysis(__doc__, networks=True, picture=True)
@click.option("--angle", "angle_deg", default=0.0, help="Rotation, degrees counter-clockwise.")
@click.option("--scale", default=1.0, show_default=True, help="Factor of the size.")
@click.option("--shear", default=0.0, help="Pixels down per pixel to the right.")
@click.option("--right", "shift_x_px", default=0.0, help="Shift to the right, pixels.")
@click.option("--down", "shift_y_px", default=0.0, help="Shift down, pixels.")
@click.option(
    "--class", "capsule", type=int, help="Class whose pose is decoded. [default: the longest]"
)
@click.option(
    "--change", "changed", type=(int, float), multiple=True, metavar="DIMENSION BY",
    help="Add to a dimension of that pose, counted from 0. May be given several times.",
)  # fmt: skip
def command(run, capsule, changed, **warp):
    """Write the figure and its numbers; say what the networks see."""
    from capsviz.tracing import abilities, require_decoder, trace

    image, label, name = run.picture
    if changed and abilities(run.model).has_capsules:
        require_decoder(run.model)  # what is changed is to be drawn
    E = trace(run.model, image, keep=("poses",)).poses.shape[-1]
    changes = np.zeros(E)
    for dimension, by in changed:
        if not 0 <= dimension < E:
            raise ValueError(f"a pose has dimensions 0 to {E - 1}, got --change {dimension}")
        changes[dimension] = by
    result = compute(
        run.model, image, label, classes=run.classes,
        others=[one.model for one in run.networks[1:]], names=[one.name for one in run.networks],
        warp=Warp(**warp), capsule=capsule, changes=changes,
    )  # fmt: skip
    yield f"view-{name}", result


def findings(result: Result) -> str:
    """What each network sees, in a line."""
    parts = [
        f"{name} sees {result.classes[row.argmax()]} ({row.max():.3f})"
        for name, row in zip(result.networks, result.scores, strict=True)
    ]
    routing = "" if result.routing == "as trained" else f" (routing: {result.routing})"
    true = "" if result.label is None else f"; true class {result.classes[result.label]}"
    return ", ".join(parts) + routing + true


def paper(inputs, settings):
    """For `capsviz figures`: nothing, for `rotate` and `perturb` show the same image at length."""
    yield from ()


def caption(result: Result) -> str:
    """What the figure shows, with its numbers."""
    changed = np.flatnonzero(result.changes)
    how = ", ".join(f"{k} by {result.changes[k]:+.2f}" for k in changed) or "none"
    return (
        f"One image as warped ({_words(result.warp)}): {findings(result)}. Decoded: the pose of "
        f"class {result.classes[result.capsule]}; dimensions changed: {how}."
    )


def _words(warp: dict[str, float]) -> str:
    neutral = UNWARPED._asdict()
    parts = [f"{name} {value:g}" for name, value in warp.items() if value != neutral[name]]
    return ", ".join(parts) or "not at all"
