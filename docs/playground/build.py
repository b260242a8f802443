"""Build the playground: one folder of files that any web server, or a click, opens.

    python docs/playground/build.py [--output FOLDER] [--runtime FOLDER]

Networks are written by `capsviz export --to steps`; the page runs them by ONNX Runtime Web, which
npm fetches once into the user's cache, unless its `dist` folder is given. Test images are those of
$CAPSVIZ_DATA, or those that are there without it.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
import torch

import capsviz
from capsviz.experiments import attacks, export
from capsviz.explorer import drawing, panels

HERE = Path(__file__).resolve().parent
PAGE = ("index.html", "playground.css", "playground.js", "tours.js")
RUNTIME = "onnxruntime-web@1.30.0"
WASM = "ort-wasm-simd-threaded"
EPS = 0.2  # of the attacked image
NETWORKS = {  # the first is shown, beside the second
    "mnist-attention": "self-attention, trained on MNIST",
    "digits": "dynamic routing, trained on digits",
    "digits-k-means": "k-means routing, trained on digits",
    "assemblies": "dynamic routing, trained on assemblies of parts",
}

ABOUT = {"assemblies": "A' has the parts of A, one of them turned by 180°; likewise B' and so on."}


@click.command(help=__doc__.partition("\n")[0])
@click.option("--output", type=click.Path(path_type=Path), default=HERE.parent / "_playground")
@click.option("--runtime", type=click.Path(path_type=Path, exists=True), help="dist of its package")
def main(output: Path, runtime: Path | None) -> None:
    """Write all files, and print where they are."""
    build(output / "playground", runtime or fetched(), list(NETWORKS))
    click.echo(f"open {output / 'playground/index.html'}")


def cached() -> Path:
    """Return where the files of ONNX Runtime Web are kept."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "capsviz" / RUNTIME


def fetched() -> Path:
    """Return the files of ONNX Runtime Web, which npm fetches once."""
    home = cached()
    if not home.exists():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=home.parent) as place:
            npm = ["npm", "pack", "--silent", RUNTIME]
            try:
                subprocess.run(npm, cwd=place, check=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise click.ClickException(f"{RUNTIME} could not be fetched: {error}") from error
            (archive,) = Path(place).glob("*.tgz")
            with tarfile.open(archive) as packed:
                packed.extractall(place, filter="data")
            (Path(place) / "package/dist").rename(home)
    return home


def build(folder: Path, runtime: Path, names: Sequence[str]) -> None:
    """Write the playground of some networks; what was there before goes once all is made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as place:
        made = Path(place) / "playground"
        (made / "models").mkdir(parents=True)
        for name in PAGE:
            shutil.copyfile(HERE / name, made / name)
        explorer = Path(drawing.__file__).parent  # what both pages have
        shutil.copyfile(explorer / "page.css", made / "look.css")
        shutil.copyfile(explorer / "pen.js", made / "pen.js")
        shutil.copyfile(runtime / "ort.wasm.min.js", made / "ort.wasm.min.js")
        binary, script = ((runtime / f"{WASM}{end}").read_bytes() for end in (".wasm", ".mjs"))
        parts = {"wasm": packed(binary), "mjs": base64.b64encode(script).decode()}
        assign(made / "runtime.js", "RUNTIME", parts)
        about = data(made / "models", names)
        assign(made / "data.js", "DATA", about)
        files = sorted(p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file())
        digest = hashlib.sha256(b"".join((made / name).read_bytes() for name in files)).hexdigest()
        worker = (HERE / "offline.js").read_text("utf-8").replace("VERSION", digest[:12])
        worker = worker.replace('["FILES"]', json.dumps(["./", *files]))
        (made / "offline.js").write_text(worker, "utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        made.rename(folder)


def data(models: Path, names: Sequence[str]) -> dict:
    """Export the networks, and return what the page has to know of them, with test images."""
    networks, images = {}, {}
    for name in names:
        model = capsviz.load(name).eval()
        own = "mnist" if name.startswith("mnist") else name.partition("-")[0]
        try:
            test = capsviz.data.load(own, "test")
        except FileNotFoundError:  # no MNIST here
            test = capsviz.data.load("digits", "test")
        some = test.first(16).images / 255
        with tempfile.TemporaryDirectory() as place:
            export.to_steps(model, some, Path(place) / name)
            steps = {one.stem: packed(one.read_bytes()) for one in Path(place, name).iterdir()}
        write(models / f"{name}.js", f"(window.MODELS ??= {{}})[{json.dumps(name)}] =", steps)
        networks[name] = {
            "about": ABOUT.get(name, ""),
            "text": f"{name}: {NETWORKS[name]}",
            "shape": model.settings.image_shape,
            "grid": model.grid,
            "classes": test.classes,
            "iterations": model.capsules.iterations,
        }
        for label, shown in enumerate(test.classes):
            index = int((test.labels == label).nonzero()[0])
            key = f"{test.name}-{label}"
            images[key] = picture(test.images[index], f"{shown} ({test.name})")
    first, beside = names[:2]
    used = "mnist" if "mnist-2" in images else "digits"
    images["attacked"] = attacked(first, used)
    return {
        "networks": networks, "images": images, "first": first, "beside": beside,
        "image": f"{used}-2", "donor": f"{used}-7",
        "colours": {
            "coupling": base64.b64encode(colours(drawing.COUPLING)).decode(),
            "signed": base64.b64encode(colours(drawing.SIGNED)).decode(),
        },
        "words": {"uniform": panels.MEANINGS["uniform"]},
    }  # fmt: skip


def attacked(name: str, dataset: str) -> dict:
    """Return a test image of a 3 that an attack has changed."""
    model = capsviz.load(name).eval()
    test = capsviz.data.load(dataset, "test")
    rows = (test.labels == 3).nonzero()[:1, 0]
    ball = attacks.Ball(EPS)
    look = attacks.on_scores(model)
    found = attacks.apgd(model, look, test.images[rows] / 255, test.labels[rows], ball)
    pixels = (found.images[0] * 255).round().to(torch.uint8)
    return picture(pixels, f"3 ({dataset}), attacked by APGD, ε = {EPS}")


def picture(pixels: torch.Tensor, text: str) -> dict:
    """Return an image (C, H, W) uint8 as the page reads it."""
    return {"pixels": packed(pixels.numpy().tobytes()), "shape": pixels.shape, "text": text}


def colours(name: str) -> bytes:
    """Return the 256 colours of one of matplotlib's maps, without their opacity."""
    return np.ascontiguousarray(drawing.colour_table(name)[:, :3]).tobytes()


def packed(content: bytes) -> str:
    """Return bytes as base64 of gzip: a script holds them, which opens from a file too."""
    return base64.b64encode(gzip.compress(content, mtime=0)).decode()


def assign(path: Path, name: str, value) -> None:
    """Write a script that sets a name of the page."""
    write(path, f"window.{name} =", value)


def write(path: Path, start: str, value) -> None:
    """Write a script that begins so and ends with a value."""
    path.write_text(f"{start} {json.dumps(value, separators=(',', ':'))};\n", "utf-8")


if __name__ == "__main__":
    main()
