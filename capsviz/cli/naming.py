"""Name figures by their inputs, so that different figures have different names.

A figure is called ANALYSIS-CHECKPOINT-WHAT-OPTIONS, with several checkpoints in their order, and
every option that is not the default. The checkpoint is left out if WHAT contains it. If the same
numbers exist already, the command is refused before anything is computed, unless `--force` is
given. Numbers of other weights or data with the same names get another name.
"""

import glob
import hashlib
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

PRESENTATION = {  # options that change the place and look of a figure, not its numbers
    "output", "formats", "width", "venue", "rc", "font", "force", "as_json", "device", "data_dir",
    "size", "fps", "task", "table",
}  # fmt: skip
NETWORK = ("checkpoint", "first", "others", "seeds_of", "network", "weights")
WITHIN = {  # options that analyses put into their own stems
    "dataset", "n", "digit", "index", "image", "donor", "donor_index", "make", "picture", "layer",
}  # fmt: skip
LONGEST = 60  # letters of the networks, and of the options; longer ones end in a digest
CODE_AND_WEIGHTS = {".py", ".safetensors", ".pt", ".pth", ".ckpt", ".bin"}
HEAD = 65536  # leading bytes of a result file, which contain its options


def label(source: str) -> str:
    """Return the label of a network in a name: shipped weights by name, others by file and folder.

    A glob that ends in a bare star is labelled by the common prefix of its matches.
    """
    from capsviz import checkpoint
    from capsviz.inputs.runs import matching

    if Path(source).name == "*":
        source = os.path.commonprefix([run.name for run in matching(source)])  # noqa: RUF071
    if source in checkpoint.shipped():
        return source
    file, _, function = str(source).partition(":")  # FILE.py:FUNCTION
    path = Path(file)
    parts = [path.stem if path.suffix in (".py", ".safetensors") else path.name, function]
    folder = path.resolve().parent.name
    if parts[0] in checkpoint.shipped() or (path.suffix == ".safetensors" and folder != parts[0]):
        parts.insert(0, folder)
    return slug("-".join(filter(None, parts)))


def slug(text: object) -> str:
    """Return a text with only characters that every file system accepts."""
    return re.sub(r"[^\w.+-]+", "-", str(text)).strip("-.") or "unnamed"


def stem(
    base: str, networks: Sequence[str], options: Mapping[str, object], analysis: str | None = None
) -> str:
    """Return the whole name of a figure.

    Parameters
    ----------
    base      name that the analysis gives: "rotate-mnist-2-0".
    networks  labels of the networks; they follow the name of the `analysis` if the base begins with
              it, otherwise they stand at the end.
    options   options that are not the defaults, by their names on the command line.
    """
    alone = len(networks) == 1 and f"-{networks[0]}-" in f"-{base}-"
    named = "" if alone else _cut("-".join(networks))
    first = (analysis or base.partition("-")[0]).replace("_", "-")
    rest = base.removeprefix(first).removeprefix("-")
    begins = base == first or base.startswith(f"{first}-")
    name = "-".join(filter(None, (first, named, rest) if begins else (base, named)))
    tail = [
        "-".join([key, *_values(value)])
        for key, value in options.items()
        if key == "baseline" or not (isinstance(value, str) and f"-{slug(value)}-" in f"-{name}-")
    ]
    return "-".join(filter(None, (name, _cut("-".join(tail)))))


def _values(value) -> list[str]:
    """Return the words of an option's value; a path gives its last part and a digest."""
    if value is True:
        return []
    if isinstance(value, list | tuple):
        return [word for one in value for word in _values(one)]
    if isinstance(value, float):
        return [f"{value:g}"]
    if isinstance(value, Path) and len(value.parts) > 1:
        return [slug(f"{value.name}-{digest(str(value))}")]
    return [str(value) if isinstance(value, int) else slug(value)]


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 7].rstrip('-')}-{digest(text)}"


def digest(text: str) -> str:
    """Return six hexadecimal digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def changed(context: click.Context) -> dict[str, object]:
    """Return the running command's options that belong in the name: those not at their defaults."""
    values = {}
    for option in context.command.params:
        value = context.params.get(option.name)
        skipped = option.name in PRESENTATION | {*NETWORK} | WITHIN
        if not isinstance(option, click.Option) or skipped or value is None or value == ():
            continue
        if value != option.get_default(context):
            off = value is False and option.secondary_opts
            name = max(option.secondary_opts if off else option.opts, key=len).lstrip("-")
            values[name] = True if off else value
    return values


def identity(context: click.Context) -> str:
    """Return all inputs that determine the numbers of the running command, as one text."""
    values = {key: value for key, value in context.params.items() if key not in PRESENTATION}
    made_of = values | files(context) | {"shipped weights": _shipped(context)}
    return json.dumps(made_of, default=str, sort_keys=True)


def _shipped(context: click.Context) -> str:
    """Return a digest of the named shipped weights, or of all if no network is named."""
    from capsviz import checkpoint

    shipped = checkpoint.shipped()
    named = [one for one in networks(context.params, *NETWORK) or shipped if one in shipped]
    cards = [checkpoint.read_card(checkpoint.find(one)) for one in named]
    return digest(str([card["weights"].get("sha256") for card in cards]))


def files(context: click.Context) -> dict[str, str]:
    """Return digests of names, sizes and times of the files of data, networks and plug-ins.

    The files of a network are its weights, or the code and weights in the folder of FILE.py and its
    packages. Shipped networks, and data found without `--data-dir`, are left out.
    """
    from capsviz import checkpoint, discovery

    found: defaultdict[str, list[Path]] = defaultdict(list)
    if (data := context.params.get("data_dir")) is not None:
        found["data files"] += [data, *data.rglob("*")]
    for folder in discovery.places():
        found["plug-ins"] += folder.rglob("*.py")
    for text in set(networks(context.params, *NETWORK)) - {*checkpoint.shipped()}:
        code, whole = text.rpartition(":")[0], Path(text).expanduser()
        if code.endswith(".py"):
            file = Path(code).expanduser().resolve()
            root = discovery.root_of(file)
            top = file.parent.relative_to(root).parts[:1]  # of its package
            places = list(_folders_of_code(root.joinpath(*top)))
        else:
            places = [whole] if whole.exists() else [Path(one) for one in glob.glob(str(whole))]
        for place in places:
            inside = place.iterdir() if place.is_dir() else [place]
            found["network files"] += [one for one in inside if one.suffix in CODE_AND_WEIGHTS]

    def stamp(path: Path) -> tuple[str, int, int]:
        return path.name, path.stat().st_size, path.stat().st_mtime_ns

    return {k: digest(str(sorted(map(stamp, filter(Path.is_file, v))))) for k, v in found.items()}


def _folders_of_code(folder: Path) -> Iterator[Path]:
    """Yield a folder and, recursively, its subfolders that contain Python files."""
    for here, below, names in os.walk(folder):
        if Path(here) == folder or any(name.endswith(".py") for name in names):
            yield Path(here)
        else:
            below.clear()


def networks(values: Mapping, *keys: str) -> list[str]:
    """Return the networks that the options `keys` name; each holds one or several."""
    texts: list[str] = []
    for key in keys:
        value = values.get(key) or ()
        texts += [str(value)] if isinstance(value, str | Path) else map(str, value)
    return texts


def try_folder(folder: Path) -> None:
    """Raise OSError if a folder cannot be written to or created; do not create it."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:  # names the temporary file; name the folder instead
        raise OSError(error.errno, error.strerror, str(existing)) from error


def refuse_existing(
    path: Path, *, force: bool, kinds: Sequence[str] = (), option: str = "--output"
) -> None:
    """Raise ValueError if files with this name exist, whatever their ending, unless `force`.

    `kinds` restricts the endings, () is for all; the message names `option` to choose another name.
    """
    if not force and path.parent.is_dir():
        for other in sorted(path.parent.glob("*.*")):
            if other.stem == path.name and (not kinds or other.suffix[1:] in kinds):
                raise ValueError(
                    f"{other} exists: add --force to overwrite it, or choose another {option}"
                )


def refuse_file(path: Path, *, force: bool) -> None:
    """Raise ValueError if the file exists, unless `force`; OSError if it cannot be written."""
    if path.exists() and not force:
        raise ValueError(f"{path} exists: add --force to overwrite it, or name another file")
    try_folder(path.parent)


def repeated(folder: Path, analysis: str, identity: str) -> Path | None:
    """Return the JSON path of a result with the same inputs in a folder; None if there is none."""
    entries = [json.dumps(pair)[1:-1] for pair in ({"analysis": analysis}, {"identity": identity})]
    for path in sorted(folder.glob("*.json")):
        try:
            with path.open("rb") as file:
                head = file.read(HEAD).decode("utf-8", "ignore")
        except OSError:
            continue
        if all(one in head for one in entries):
            return path
    return None
