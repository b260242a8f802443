"""Write what the page shows as figures and JSON, by the analyses of the commands. No Gradio."""

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
from capsviz.analyses.view.measure import warped
from capsviz.explorer import look, panels
from capsviz.explorer.images import Sample
from capsviz.explorer.networks import Networks
from capsviz.explorer.settings import Settings

KEPT_S = 3600  # seconds that figures stay on the disk


def save_view(networks: Networks, sample: Sample, settings: Settings) -> list[Path]:
    """Write the figure of `capsviz view`: the image in both networks, and the changed pose."""
    warp, how = settings.warp, settings.how
    capsule = panels.find(networks, sample.image, settings).capsule
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
        changes=settings.changes,
        couplings=look.replacing(networks.model, how, donor),
        iterations=how.iterations,
        routing=how.words,
    )
    return _save("view", result, networks, sample, {**warp._asdict(), **how._asdict()})


def save_routing(networks: Networks, sample: Sample, settings: Settings) -> list[Path]:
    """Write the figure of `capsviz routing`, which has uniform couplings for comparison.

    ValueError for replaced couplings: then nothing is routed.
    """
    how = settings.how
    if how.couplings is not None:
        raise ValueError(
            f"couplings {how.couplings}: this figure shows what routing does; expected it as "
            'trained or of one iteration. "Make a figure of this view" has replaced couplings, too'
        )
    result: Any = routing.OneImage().measure(
        look.without_type(networks.model, how.off),
        warped(sample.image, settings.warp),
        sample.label,
        classes=networks.classes,
        iterations=how.iterations,
    )
    if how != look.AS_TRAINED:
        result = result._replace(changed=how.words)
    options = {**settings.warp._asdict(), "off": how.off, "iterations": how.iterations}
    return _save("routing", result, networks, sample, options)


def save_pose(networks: Networks, sample: Sample, settings: Settings) -> list[Path]:
    """Write the sheet of `capsviz perturb`: the pose of a class, each dimension changed in turn."""
    capsule = panels.find(networks, sample.image, settings).capsule
    result = perturb.change_each(
        networks.model,
        warped(sample.image, settings.warp),
        sample.label,
        statistics=perturb.measure_class(networks.inputs, capsule),
    )
    options = {**settings.warp._asdict(), "capsule": capsule}
    return _save("perturb", result, networks, sample, options)


def save_rotation(networks: Networks, sample: Sample, settings: Settings) -> list[Path]:
    """Write the figure and the GIF of `capsviz rotate`: the original image in a full circle."""
    result = rotate.Rotate().measure(
        networks.model, sample.image, sample.label, classes=networks.classes, **panels.SWEEP
    )
    paths = _save("rotate", result, networks, sample, {})
    return [rotate.animation(result, paths[-1].with_suffix(".gif"), size=480, fps=15), *paths]


def _save(analysis: str, result, networks: Networks, sample: Sample, options: dict) -> list[Path]:
    """Write into a new folder, so that no visitor overwrites another's; Gradio serves copies."""
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
    """Return the one folder of this process, which is removed at its end."""
    folder = tempfile.mkdtemp(prefix="capsviz-explore-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
