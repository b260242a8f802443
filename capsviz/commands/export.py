"""Write a network for other programs: ONNX, `torch.export`, or a folder with a model card."""

from pathlib import Path

import click

from capsviz.cli import naming, options, writing

KINDS = {"onnx": ".onnx", "torch": ".pt2", "steps": "", "folder": ""}
PARTS = ("lengths", "poses", "couplings", "votes", "primary", "reconstruction")
IMAGES = 16  # used to compare the file with the network
EXAMPLES = """
capsviz export --checkpoint digits --to onnx                   # 15 s
capsviz export --checkpoint digits --to onnx --part couplings  # 15 s
capsviz export --checkpoint digits --to steps                  # 10 s
capsviz export --checkpoint mnist --to folder                  # 3 s
"""


@click.command(
    help=__doc__ + "\n\nONNX and torch.export take float32 images (batch, C, H, W) in [0, 1], of "
    "any batch size. ONNX outputs have the names of the parts, and the metadata hold the names of "
    "the classes. Couplings and poses are those of the last iteration. --to steps writes one ONNX "
    "file each to make votes, route them, route them with given couplings, and decode. --to folder "
    "writes model.safetensors, its card, config.json and README.md; capsviz.load opens it. "
    "If there are no test images, outputs are compared on random ones."
)
@options.inputs
@click.option("--to", "kind", type=click.Choice(list(KINDS)), required=True, help="What to write.")
@click.option(
    "--part", "parts", multiple=True, type=click.Choice(PARTS), default=("lengths", "poses"),
    show_default=True, help="Output, named as in a trace; may be given several times.",
)  # fmt: skip
@options.path_option("--output", help="File or folder. [default: runs/export/NAME]")
@writing.force
def command(inputs, kind, parts, output, force):
    """Export one network, and compare the file with it."""
    import torch

    from capsviz.experiments import export

    parts = tuple(dict.fromkeys(parts))
    if not KINDS[kind] and options.typed("parts"):
        raise ValueError(f"--part is for onnx and torch: --to {kind} writes all of the network")
    opened = options.open_inputs(inputs, shown=False)
    path = output or Path("runs/export") / f"{opened.name}{KINDS[kind]}"
    if KINDS[kind] and path.is_dir():
        raise ValueError(f"'{path}' is a folder: name a file")
    naming.refuse_file(path, force=force)
    if kind == "folder":
        export.to_folder(opened.source, path)
        click.echo(f"wrote {path}: capsviz.load('{path}') opens it")
        return
    part, names = opened.dataset, ", ".join(parts)
    drawn = torch.rand(IMAGES, *part.image_shape, generator=torch.Generator().manual_seed(0))
    images = opened.images(min(IMAGES, len(part)))[0] if len(part) else drawn
    of = "images" if len(part) else "random images"
    if kind == "steps":
        written, apart = export.to_steps(opened.model, images, path)
        names = ", ".join(f"{name}.onnx" for name in sorted(written))
    else:
        apart = export.to_file(opened.model, images, parts, path, onnx=kind == "onnx")
    if apart is None:
        click.echo(f"wrote {path}: {names}; not compared with PyTorch: that needs onnxruntime")
    else:
        click.echo(f"wrote {path}: {names}; at most {apart:.1e} from PyTorch on {len(images)} {of}")
