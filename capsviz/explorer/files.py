"""Draw the state of the page as figures with numbers, as the commands do. No Gradio."""

import atexit
import functools
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from capsviz import results
from capsviz.analyses import perturb, rotate, routing, view
from capsviz.analyses.view import warped
from capsviz.explorer import look, panels
from capsviz.explorer.images import Sample
from capsviz.explorer.networks import Networks
from capsviz.explorer.settings import Settings
from capsviz.results.panels import picture
from capsviz.transforms.augment import to_uint8

KEPT_S = 3600  # seconds for which figures stay on the disk
Measured = tuple[Any, dict]  # a result and its options


def of_view(networks: Networks, sample: Sample, settings: Settings) -> Measured:
    """Measure as `capsviz view`: the image in both networks, and the changed pose."""
    how = settings.how
    donor = None if how.donor is None else networks.test_image(*how.donor)
    result = view.compute(
        look.without_type(networks.model, how.off),
        sample.image,
        sample.label,
        classes=networks.dataset.classes,
        others=[networks.other],
        names=networks.names,
        warp=settings.warp,
        capsule=panels.find(networks, sample.image, settings).capsule,
        changed=[(d, by) for d, by in enumerate(settings.changes) if by],
        couplings=look.replacing(networks.model, how, donor),
        iterations=how.iterations,
        routing=how.words,
    )
    return result, {**settings.warp._asdict(), **how._asdict()}


def of_routing(networks: Networks, sample: Sample, settings: Settings) -> Measured:
    """Measure as `capsviz routing`, which compares with uniform couplings.

    ValueError for replaced couplings, because nothing is routed then.
    """
    how = settings.how
    if how.couplings is not None:
        raise ValueError(
            f"couplings {how.couplings}: this figure shows what routing does; expected routing as "
            'trained or with one iteration. The figure "view" shows replaced couplings, too'
        )
    result: Any = routing.OneImage().measure(
        look.without_type(networks.model, how.off),
        warped(sample.image, settings.warp),
        sample.label,
        classes=networks.dataset.classes,
        iterations=how.iterations,
    )
    if how != look.AS_TRAINED:
        result = result._replace(changed=how.words)
    return result, {**settings.warp._asdict(), "off": how.off, "iterations": how.iterations}


def of_pose(networks: Networks, sample: Sample, settings: Settings) -> Measured:
    """Measure as `capsviz perturb`: the pose of a class, each dimension changed in turn.

    ValueError for changed routing.
    """
    _require_as_trained(settings)
    capsule = panels.find(networks, sample.image, settings).capsule
    result = perturb.change_each(
        networks.model,
        warped(sample.image, settings.warp),
        sample.label,
        statistics=perturb.measure_class(networks.inputs, capsule),
    )
    return result, {**settings.warp._asdict(), "capsule": capsule}


def of_rotation(networks: Networks, sample: Sample, settings: Settings) -> Measured:
    """Measure as `capsviz rotate`: the displayed image, at the default angles of the command.

    ValueError for changed routing.
    """
    _require_as_trained(settings)
    image = warped(sample.image, settings.warp)
    result = rotate.Rotate().measure(
        networks.model, image, sample.label, classes=networks.dataset.classes
    )
    return result, settings.warp._asdict()


def _require_as_trained(settings: Settings) -> None:
    if settings.how != look.AS_TRAINED:
        raise ValueError(
            f"{settings.how.words}: this figure shows the network as trained; undo the changes of "
            'the routing, or make the figure "view", which shows them'
        )


FIGURES = {  # by name of the analysis
    "view": of_view,
    "routing": of_routing,
    "rotate": of_rotation,
    "perturb": of_pose,
}


def save(analysis: str, networks: Networks, sample: Sample, settings: Settings) -> list[Path]:
    """Write a figure as PDF and PNG, its numbers, and the image for `--image` of other commands.

    Each call writes to a new folder, so visitors do not overwrite each other's files; Gradio serves
    copies. ValueError if these settings do not apply to the figure.
    """
    result, options = FIGURES[analysis](networks, sample, settings)
    for old in Path(_folder()).iterdir():
        if time.time() - old.stat().st_mtime > KEPT_S:
            shutil.rmtree(old, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(dir=_folder()))
    paths = results.save(
        folder / f"{analysis}-{sample.name}",
        analysis,
        result,
        options={"image": sample.name, **options},
        card=networks.model.card,
        device=str(networks.inputs.device),
        command="capsviz explore",
    )
    if analysis == "rotate":
        paths.append(rotate.animation(result, paths[-1].with_suffix(".gif"), size=480, fps=15))
    paths.append(folder / f"{sample.name}-image.png")
    Image.fromarray(picture(to_uint8(sample.image[0]))).save(paths[-1])
    return paths


@functools.cache
def _folder() -> str:
    """Return a temporary folder of this process, which is removed when it ends."""
    folder = tempfile.mkdtemp(prefix="capsviz-explore-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
