"""List the layers, parameters, multiply-adds and memory of a network."""

from typing import Any

import click

from capsviz.cli import options, writing

EXAMPLES = """
capsviz describe mnist  # 3 s
"""


@click.command(
    help=__doc__ + "\n\nRECIPE is the name of a shipped recipe or a TOML file; options change it. "
    "For most data sets no files are needed."
)
@click.argument("recipe", required=False)
@click.option("--checkpoint", metavar="NAME|FILE", help="Trained weights, instead of a recipe.")
@options.recipe_data
@options.network
@options.image_size
@click.option("--pad-px", type=int, help="Zeros around each image, pixels. [default: 0]")
@click.option("--crop-px", type=int, help="Side of the square crop that the network takes.")
@click.option(
    "--image-shape",
    type=int,
    nargs=3,
    metavar="C H W",
    help="Shape of the network's images. [default: the data set's]",
)
@click.option(
    "--classes", type=int, metavar="J", help="Number of classes. [default: the data set's]"
)
@click.option(
    "--batch-size",
    type=click.IntRange(1),
    metavar="N",
    help="Images in a training step, to estimate its memory. [default: the recipe's]",
)
@writing.as_json
def command(recipe, checkpoint, data_dir, image_shape, classes, batch_size, as_json, more, **flags):
    """Describe one network."""
    from capsviz.nn.describe import describe

    if checkpoint is not None:
        name, model, usual = _trained(checkpoint)
    else:
        name, model, usual = _planned(recipe, data_dir, image_shape, classes, more, flags)
    description = describe(model, batch_size=batch_size or usual)
    settings = {k: v for k, v in model.config.items() if k not in ("image_shape", "classes")}
    about = {
        "name": name,
        "settings": settings,
        **description._asdict(),
        "layers": [row._asdict() for row in description.layers],
    }
    click.echo(writing.to_json(about) if as_json else _table(name, settings, description))


def _trained(checkpoint: str):
    """Return name, network and batch size for a checkpoint."""
    from capsviz import checkpoint as checkpoints
    from capsviz.training.recipe import Recipe

    params = {param.name for param in click.get_current_context().command.params}
    if typed := options.typed(*params - {"checkpoint", "batch_size", "as_json"}):
        raise ValueError(f"--checkpoint fixes the network: drop {', '.join(typed)}")
    model: Any = checkpoints.load(checkpoint)  # has a card
    batch = model.card.get("recipe", {}).get("batch_size", Recipe.batch_size)
    return model.card.get("name", checkpoint), model, batch


def _planned(recipe, data_dir, image_shape, classes, more, flags):
    """Return name, network without weights, and batch size for a recipe."""
    import torch

    from capsviz.nn import models
    from capsviz.training.run import prepare

    if image_shape is not None and (also := options.typed("image_size", "pad_px", "crop_px")):
        raise ValueError(
            f"--image-shape is the shape after padding and cropping: drop {', '.join(also)}"
        )
    name, recipe = prepare(recipe, {**flags, "options": options.named_values(more)})
    if image_shape is None or classes is None:
        shape, number = _images(recipe, data_dir)
        image_shape, classes = image_shape or shape, number if classes is None else classes
    if min(image_shape) < 1:
        raise ValueError(f"--image-shape must be at least 1 1 1, got {image_shape}")
    with torch.device("meta"):
        model = models.build(recipe.model, image_shape, classes, **recipe.options)
    return name, model, recipe.batch_size


def _images(recipe, data_dir) -> tuple[tuple[int, int, int], int]:
    """Return image shape and number of classes of a recipe's data set."""
    import torch

    from capsviz import data

    changes = recipe.data_options
    module = data.module_of(recipe.dataset)
    if hasattr(module, "IMAGE_SHAPE"):
        pad_px, crop_px = changes.pop("pad_px", 0), changes.pop("crop_px", None)
        data.check_options(recipe.dataset, changes)
        blank = torch.zeros(1, *module.IMAGE_SHAPE, dtype=torch.uint8)
        part = data.Dataset(blank, torch.zeros(1).long(), module.CLASSES, recipe.dataset, "test")
        part = part.pad(pad_px).crop(crop_px)
        return part.image_shape, len(part.classes)
    try:
        part = data.here({"name": recipe.dataset, "options": changes}, "test", data_dir)
    except FileNotFoundError as error:
        raise ValueError(
            f"the image size of '{recipe.dataset}' is not known without its files: "
            f"give --image-shape C H W and --classes J ({error})"
        ) from error
    return part.image_shape, len(part.classes)


def _table(name: str, settings: dict, description) -> str:
    from capsviz.memory import gib

    C, H, W = description.image_shape
    rows = [("layer", "kind", "output", "parameters", "multiply-adds")]
    for row in description.layers:
        output = "unused" if row.output is None else " × ".join(map(str, row.output))
        count = "-" if row.multiply_adds is None else f"{row.multiply_adds:,}"
        rows.append((row.name, row.kind, output, f"{row.parameters:,}", count))
    totals = [("all", description.parameters, description.multiply_adds)]
    if description.parameters != description.parameters_without_decoder:
        part = description.parameters_without_decoder, description.multiply_adds_without_decoder
        totals.insert(0, ("all but the decoder", *part))
    rows += [(what, "", "", f"{number:,}", f"{count:,}") for what, number, count in totals]
    a, b, c, d, e = (max(map(len, column)) for column in zip(*rows, strict=True))
    lines = [
        f"{name:{a}}  {kind:{b}}  {output:{c}}  {parameters:>{d}}  {count:>{e}}"
        for name, kind, output, parameters, count in rows
    ]
    sizes = (description.training_bytes, description.image_bytes)
    step, image = ("no estimate" if one is None else f"about {gib(one)}" for one in sizes)
    rule = "-" * len(lines[0])
    lines[1:1] = [rule]
    lines[-len(totals) : -len(totals)] = [rule]
    return "\n".join(
        [
            f"{name}: {description.network} for images {C} × {H} × {W} of {description.classes} "
            "classes",
            "",
            *lines,
            "",
            f"weights: {gib(description.weights_bytes)}",
            f"training step of {description.batch_size} images, with Adam's state: {step}",
            f"forward and backward pass of one image: {image}",
            "",
            "settings (--option): "
            + ", ".join(f"{k}={v}" for k, v in settings.items() if v is not None),
            "",
            "Multiply-adds are those of a forward pass of one image. "
            f"Not counted: {description.not_counted}.",
        ]
    )
