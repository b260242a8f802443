"""Whether a network is for the images and the classes of a split."""

from __future__ import annotations

from collections.abc import Sequence

from capsviz import data

NAMED = 3  # classes that a notice names


def check_fit(model, part: data.Dataset) -> None:
    """ValueError if a network is for other images or classes than those of a split."""
    expected = images_and_classes(model)
    if expected != (part.image_shape, len(part.classes)):
        raise ValueError(
            f"{_name(model)} is for images {expected[0]} of {expected[1]} classes, "
            f"but {part.name} has {part.image_shape} of {len(part.classes)}"
        )
    trained_on = model.card["dataset"]
    classes = trained_on.get("classes", list(part.classes))
    if trained_on["name"] == part.name and classes != list(part.classes):
        raise ValueError(f"the network's classes are {classes}, but these are {part.classes}")


def other_classes(model, part: data.Dataset) -> str | None:
    """What must be said where a network that fits knows classes of other names; else None."""
    classes = model.card["dataset"].get("classes", part.classes)
    if list(classes) == list(part.classes):
        return None
    return (
        f"{_name(model)} was trained to tell {_first(classes)}, but the classes of {part.name} are "
        f"{_first(part.classes)}: they are compared by their numbers"
    )


def other_images(model, part: data.Dataset) -> str | None:
    """What must be said of a split that is not, to the last pixel, the one the card tells of."""
    trained_on = model.card["dataset"]
    known = trained_on.get("images", {}).get(part.split)
    if known is None or trained_on["name"] != part.name or known == part.digest:
        return None  # most cards tell of none: nothing is hashed for them
    return (
        f"these {part.split} images of {part.name} are not those that the card of {_name(model)} "
        "tells of: some of them may have been trained on"
    )


def images_and_classes(model) -> tuple[tuple[int, int, int], int]:
    """The shape of the images that a network is for, and the number of their classes."""
    return tuple(model.config["image_shape"]), model.config["classes"]


def _first(classes: Sequence[str]) -> str:
    more = ", ..." if len(classes) > NAMED else ""
    return ", ".join(classes[:NAMED]) + more


def _name(model) -> str:
    return f"the network '{model.card['name']}'" if "name" in model.card else "the network"


def shaped(
    part: data.Dataset, image_shape: tuple[int, int, int], dataset: str, split: str, data_dir
) -> tuple[data.Dataset, dict]:
    """The split loaded anew for images (C, H, W), and the options that this took.

    As it is, and no options, where it has that shape, or has one size only.
    """
    channels, height, width = image_shape
    options = {"image_size": height, "channels": channels}
    if part.image_shape == image_shape or height != width:
        return part, {}
    try:
        return data.load(dataset, split, data_dir, **options), options
    except (TypeError, ValueError):
        return part, {}
