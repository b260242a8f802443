"""One transformed image: what do two networks predict, and what does its pose decode to?"""

from typing import Annotated, NamedTuple

import numpy as np

from capsviz.analysis import Analysis, Default, Fill, Flag


class Warp(NamedTuple):
    """How to warp an image. The defaults change nothing."""

    angle_deg: float = 0.0  # counter-clockwise
    scale: float = 1.0
    shear: float = 0.0  # pixels down per pixel to the right
    shift_x_px: float = 0.0  # to the right
    shift_y_px: float = 0.0  # down


NO_WARP = Warp()


class Result(NamedTuple):
    """One image in K networks, and the pose of one class in the first network."""

    image: np.ndarray  # (C, H, W) uint8, before the warp
    warped: np.ndarray  # (C, H, W) uint8, the input of the networks
    warp: dict[str, float]  # fields of `Warp`
    networks: list[str]  # K names
    scores: np.ndarray  # (K, J) of the classes, of the `kinds` below
    capsule: int  # class whose pose is decoded
    pose: np.ndarray  # (E,) of the warped image
    changes: np.ndarray  # (E,) added to the pose
    own: np.ndarray | None  # (C, H, W) uint8, decoded from the pose; None: no decoder
    changed: np.ndarray | None  # (C, H, W) uint8, decoded from the changed pose
    routing: str  # "as trained", or what was changed in the first network's routing
    classes: list[str]
    label: int | None  # true class; None: unknown
    kinds: list[str]  # (K,) of the scores: "capsule length", "activation" or "probability"
    fill: str = "black"  # outside the image, as in `transforms.Fill`


class View(Analysis):
    """The scores of networks for one warped image, and a class's pose, changed and decoded."""

    Result = Result
    needs = ("poses",)
    examples = "capsviz view --digit 4 --angle 20  # 6 s"
    figure_set = None  # `rotate` and `perturb` show more of the same image

    def measure(
        self,
        networks,
        image,
        label=None,
        *,
        classes,
        angle_deg: Annotated[float, Flag("--angle"), "Rotation, degrees counter-clockwise."] = 0.0,
        scale: Annotated[float, "Factor of the size."] = 1.0,
        shear: Annotated[float, "Pixels down per pixel to the right."] = 0.0,
        shift_x_px: Annotated[float, Flag("--right"), "Shift to the right, pixels."] = 0.0,
        shift_y_px: Annotated[float, Flag("--down"), "Shift down, pixels."] = 0.0,
        capsule: Annotated[
            int | None,
            Flag("--class"),
            Default("the predicted one"),
            "Class whose pose is decoded.",
        ] = None,
        changed: Annotated[
            tuple[tuple[int, float], ...],
            Flag("--change", metavar="DIMENSION BY"),
            "Add to a dimension of that pose, counted from 0. May be given several times.",
        ] = (),
        fill: Fill = "black",
    ) -> Result:
        """Warp an image, classify it by all networks, and decode a pose of the first network."""
        network, *others = networks.values()
        return compute(
            network, image, label, classes=classes, others=others, names=list(networks),
            warp=Warp(angle_deg, scale, shear, shift_x_px, shift_y_px), capsule=capsule,
            changed=changed, fill=fill,
        )  # fmt: skip

    def verdict(self, result) -> str:
        predictions = ", and ".join(
            f"'{name}' as {result.classes[row.argmax()]} ({row.max():.3f})"
            for name, row in zip(result.networks, result.scores, strict=True)
        )
        true = "" if result.label is None else f" The true class is {result.classes[result.label]}."
        routing = ""
        if result.routing != "as trained":
            routing = f" The routing of '{result.networks[0]}' is changed: {result.routing}."
        return f"The image is classified by {predictions}.{true}{routing}"


def compute(
    network, image, label=None, *, classes, others=(), names, warp=NO_WARP, capsule=None,
    changed=(), couplings=None, iterations=None, routing="as trained", fill="black",
) -> Result:  # fmt: skip
    """Return what the networks predict for a warped image (1, C, H, W), and decode a pose.

    `couplings` and `iterations` change the routing of the first network, as in `tracing.trace`;
    `routing` describes this change in words. `names` are the names of all networks. Raise
    ValueError for a scale of 0 or below, an angle beyond ±360°, an unknown class or dimension, or
    changes for a network without a decoder.
    """
    from capsviz.nn.functional import predict
    from capsviz.tracing import require_decoder, score_name, scores, trace
    from capsviz.transforms.augment import to_uint8

    frame = warped(image.cpu(), warp, fill)
    keep = ("poses", "lengths")
    traced = trace(network, frame, keep=keep, couplings=couplings, iterations=iterations)
    poses, lengths = traced.require("poses")[-1, 0].float().numpy(), traced.require("lengths")
    J, E = poses.shape
    capsule = int(predict(lengths)) if capsule is None else int(capsule)
    changes = np.zeros(E)
    if not 0 <= capsule < J:
        raise ValueError(f"the network has no class {capsule}, expected 0 to {J - 1}")
    for dimension, by in changed:
        require_decoder(network)
        if not 0 <= dimension < E:
            raise ValueError(f"a pose has dimensions 0 to {E - 1}, got {dimension}")
        changes[dimension] += by
    return Result(
        image=to_uint8(image[0]),
        warped=to_uint8(frame[0].float()),
        warp={name: float(value) for name, value in warp._asdict().items()},
        networks=list(names),
        scores=np.stack([lengths[0].float(), *(scores(one, frame)[0].float() for one in others)]),
        capsule=capsule,
        pose=poses[capsule],
        changes=changes,
        own=redecode(network, poses, capsule, np.zeros(E)),
        changed=redecode(network, poses, capsule, changes),
        routing=routing,
        classes=list(classes),
        label=label,
        kinds=[score_name(one, frame) for one in (network, *others)],
        fill=fill if warp != Warp() else "black",  # else nothing is warped
    )


def warped(image, how: Warp, fill="black"):
    """Return the warped image (1, C, H, W) in [0, 1], or `image` itself if `how` is `NO_WARP`."""
    from capsviz.transforms.warps import matrix, warp

    if how == NO_WARP:
        return image
    angle, scale, shear, right, down = how
    if not (scale > 0 and abs(angle) <= 360):
        raise ValueError(
            f"expected a scale above 0 and an angle within ±360°, got {scale:g} and {angle:g}°"
        )
    by = matrix(
        (image.shape[-2], image.shape[-1]), angle_deg=angle, shear=shear, scale_x=scale,
        scale_y=scale, shift_x_px=right, shift_y_px=down,
    )  # fmt: skip
    return warp(image, by, fill).clamp(0, 1)


def redecode(model, poses: np.ndarray, capsule: int, changes) -> np.ndarray | None:
    """Add `changes` (E,) to one class's pose, of poses (J, E), and decode it: (C, H, W) uint8.

    Return None for a network without a decoder.
    """
    import torch

    from capsviz.tracing import abilities, decode
    from capsviz.transforms.augment import to_uint8

    if not abilities(model).decodes:
        return None
    changed = torch.from_numpy(poses.copy())[None]
    changed[0, capsule] += torch.tensor(changes, dtype=changed.dtype)
    return to_uint8(decode(model, changed, torch.tensor([capsule]))[0].float())
