"""Show what capsviz reads from a folder, a file or a data set, before training a network."""

from pathlib import Path
from typing import Any

import click

from capsviz.cli import naming, options, writing

EXAMPLES = """
capsviz data my_pictures  # 3 s
capsviz data breastmnist.npz --save-figure sheet.png  # 3 s
"""
ROWS, COLUMNS = 20, 8  # number of classes drawn, and of images of each


@click.command(
    help=__doc__ + "\n\nSOURCE is a folder of class folders, a file of arrays (.npz, .npy, .csv, "
    ".mat, .parquet), or the name of a data set. WARN lines report images and groups of file names "
    "(patient07_1.png) that are in both training and test set, unbalanced classes, empty images, "
    "different bit depths, files with several pictures, and a range that is hardly used."
)
@click.argument("source", required=False)
@options.data_of("mnist")
@options.own_data_options
@options.path_option("--save-figure", "sheet", folder=False, metavar="FILE.png",
                     help="Draw the first images of each class, one class in a row.")  # fmt: skip
@options.path_option("--export", "exported", folder=False, metavar="FILE.npz",
                     help="Write images, labels and metadata.")  # fmt: skip
@writing.force
@writing.as_json
def command(source, dataset, data_dir, sheet, exported, force, as_json, **chosen):
    """Read all splits of one data set, and print their contents."""
    from capsviz import data

    if source is not None:
        dataset, data_dir = named(source, dataset, data_dir)
    for path, ending in ((sheet, ".png"), (exported, ".npz")):
        if path is not None:
            if not path.suffix or path.suffix != ending == ".npz":
                raise ValueError(f"'{path}': expected FILE{ending}")
            naming.refuse_file(path, force=force)
    if sheet is not None:
        from capsviz.results import house  # takes time to import

        house.check_formats([sheet.suffix[1:].lower()])
    chosen = options.of_data(**chosen)
    splits, absent = {}, None
    for split in data.SPLITS:
        try:
            splits[split] = data.load(dataset or data.DEFAULT, split, data_dir, **chosen)
        except FileNotFoundError as error:
            absent = error
    if not splits:
        raise absent
    first = next(iter(splits.values()))
    describe = getattr(data.module_of(first.loader), "describe", lambda *_, **__: [])
    lines = describe(data_dir, **chosen) + [data.summary(part) for part in splits.values()]
    lines += [*data.check(splits), *([f"WARN {absent}"] if absent else [])]
    if sheet is not None:
        if first.inputs:
            raise ValueError(f"{first.name} has inputs that are not images: drop --save-figure")
        lines.append(drawn(first, sheet))
    if exported is not None:
        lines.append(export(splits, exported, chosen))
    counted = {split: data.counts_of(part) for split, part in splits.items()}
    about = {"dataset": first.name, "options": chosen, "images": counted, "lines": lines}
    click.echo(writing.to_json(about) if as_json else "\n".join(lines))


def named(source: str, dataset: str | None, data_dir: Path | None) -> tuple[str, Path | None]:
    """Return the data set and the folder or file that SOURCE names.

    ValueError if SOURCE is neither, or contradicts --dataset or --data-dir.
    """
    from capsviz import data
    from capsviz.discovery import unknown
    from capsviz.pictures.opening import absent, folders

    place, name = Path(source).expanduser(), source.replace("-", "_")
    if not place.exists():
        if name not in data.available():
            known = unknown("data set", source, data.available())
            raise ValueError(f"{known}, or a folder or file; {source} {absent(source)}")
        if dataset is not None:
            raise ValueError(f"{source} and --dataset exclude each other: drop one")
        return name, data_dir
    if data_dir is not None:
        raise ValueError(f"{source} and --data-dir exclude each other: drop one")
    inside = [] if place.is_dir() and folders(place) else [place, *place.glob("*")]
    arrays = any(path.suffix.lower()[1:] in data.FILES for path in inside)
    return dataset or ("arrays" if arrays else "folder"), place


def export(splits, path: Path, chosen) -> str:
    """Write all splits and class names as arrays; return a line about the file.

    The arrays include parts and `truth` if the data set has them.
    """
    import numpy as np

    from capsviz import data
    from capsviz.files import write_arrays

    arrays: dict[str, Any] = {}
    for split, part in splits.items():
        truth = getattr(data.module_of(part.loader), "truth", None)
        known = {"images": part.images, "labels": part.labels}
        known |= {} if part.parts is None else {"parts": part.parts}
        known |= truth(split, **chosen) if truth else {}
        arrays |= {f"{split}_{name}": values.numpy() for name, values in known.items()}
        arrays["classes"] = np.array(part.classes)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_arrays(path, arrays)
    return f"wrote {path}: {', '.join(arrays)}"


def drawn(part, path: Path) -> str:
    """Draw the first images of the first classes, a row each; return a line that says so."""
    import numpy as np
    from matplotlib.figure import Figure

    from capsviz import results
    from capsviz.results import house
    from capsviz.results.panels import mosaic

    names = part.classes[:ROWS]
    images, labels = part.images.numpy(), part.labels.reshape(len(part), -1)[:, 0].numpy()
    shown = np.full((len(names), COLUMNS, *part.image_shape), 255, np.uint8)
    for label, row in enumerate(shown):
        own = images[labels == label][:COLUMNS]
        row[: len(own)] = own
    with house.style():
        height = 5 * len(names) * shown.shape[3] / (COLUMNS * shown.shape[4])
        figure = Figure(figsize=(5, height), layout="constrained")
        axes = figure.subplots()
        rows, _ = mosaic(axes, shown, COLUMNS)
        axes.set_xticks([])
        axes.set_yticks(rows, [name.replace("$", r"\$") for name in names])
        results.save_figure(figure, path)
    return f"wrote {path}: the first images of {len(names)} classes of {part.name} {part.split}"
