"""What the page shows as figures and JSON, by the code of the commands; what dimensions draw."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from capsviz import results
from capsviz.analyses import perturb, rotate, routing, view
from capsviz.analyses.view.measure import Warp, warped
from capsviz.explorer import look, turning
from capsviz.explorer.network import Networks
from capsviz.explorer.source import Sample

KEPT_S = 3600  # seconds that figures stay on the disk


def effects(networks: Networks, capsule: int) -> perturb.Statistics:
    """What each dimension of a class's pose does, as `capsviz perturb` measures it.

    Takes seconds once for each class, which everyone who has the page open then shares.
    """
    with networks.lock:
        if capsule not in networks.effects:
            networks.effects[capsule] = perturb.measure_class(networks.inputs, capsule)
        return networks.effects[capsule]


def explain(networks: Networks, capsule: int) -> list[str]:
    """What a step of each dimension (E,) of a class's pose does, in words."""
    name = networks.classes[capsule]
    measured = effects(networks, capsule)
    texts = perturb.captions(measured)
    return [f"+{measured.step:g} in class {name}: {text}" for text in texts]


def save_view(
    networks: Networks, sample: Sample, warp: Warp, how: look.Intervention, capsule: int, changes
) -> list[Path]:
    """The figure of `capsviz view`: the image in both networks, and a pose as changed."""
    donor = None if how.donor is None else networks.test_image(*how.donor)
    result = view.compute(
        look.without_type(networks.model, how.off),
        sample.image,
        sample.label,
        classes=networks.classes,
        others=[networks.other],
        names=networks.names,
        warp=warp,
        capsule=capsule,
        changes=changes,
        couplings=look.replacing(networks.model, how, donor),
        iterations=how.iterations,
        routing=how.words,
    )
    return _save("view", result, networks, sample, {**warp._asdict(), **how._asdict()})


def save_routing(
    networks: Networks, sample: Sample, warp: Warp, how: look.Intervention
) -> list[Path]:
    """The figure of `capsviz routing`, which has uniform couplings beside what is routed.

    Raises
    ------
    ValueError  for replaced couplings: then nothing is routed.
    """
    if how.couplings is not None:
        raise ValueError(
            f"couplings {how.couplings}: this figure is of what routing does; expected it as "
            'trained or of one iteration. "Make a figure of this view" has replaced couplings, too'
        )
    result: Any = routing.OneImage().measure(
        look.without_type(networks.model, how.off),
        warped(sample.image, warp),
        sample.label,
        classes=networks.classes,
        iterations=how.iterations,
    )
    if how != look.AS_TRAINED:
        result = result._replace(changed=how.words)
    options = {**warp._asdict(), "off": how.off, "iterations": how.iterations}
    return _save("routing", result, networks, sample, options)


def save_pose(networks: Networks, sample: Sample, warp: Warp, capsule: int) -> list[Path]:
    """The sheet of `capsviz perturb`: the pose of a class, each dimension changed in turn."""
    result = perturb.change_each(
        networks.model,
        warped(sample.image, warp),
        sample.label,
        statistics=effects(networks, capsule),
    )
    return _save("perturb", result, networks, sample, {**warp._asdict(), "capsule": capsule})


def save_turn(networks: Networks, sample: Sample) -> list[Path]:
    """The figure and the GIF of `capsviz rotate`: the image, unwarped, through a full circle."""
    result = turning.turned(networks, sample.image, sample.label)
    paths = _save("rotate", result, networks, sample, {})
    return [rotate.animation(result, paths[-1].with_suffix(".gif"), size=480, fps=15), *paths]


def _save(analysis: str, result, networks: Networks, sample: Sample, options: dict) -> list[Path]:
    """In a new folder, so that nobody overwrites another's; Gradio serves copies of the files."""
    for old in Path(_folder()).iterdir():
        if time.time() - old.stat().st_mtime > KEPT_S:
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    return results.save(
        folder / f"{analysis}-{sample.name}",
        analysis,
        result,
        options={"image": sample.name, **options},
        card=networks.model.card,
        device=str(networks.inputs.device),
        command="capsviz explore",
    )


@functools.cache
def _folder() -> str:
    """One folder of this process, which goes with it."""
    folder = tempfile.mkdtemp(prefix="capsviz-explore-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
