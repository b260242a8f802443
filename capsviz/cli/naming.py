"""Names of figures: what made them, so that two that differ never share one; nothing is lost.

A figure is called ANALYSIS-CHECKPOINT-WHAT-OPTIONS: the checkpoint where its name is not in the
rest, several in their order, and every option that is not the default. Where its numbers lie
already, the command is refused before anything is computed, unless `--force` is given; numbers of
other weights or data of the same names get another name.
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

PRESENTATION = {  # options that change where a figure goes and what it looks like, not its numbers
    "output", "formats", "width", "venue", "rc", "font", "force", "as_json", "device", "data_dir",
    "size", "fps", "task", "table",
}  # fmt: skip
NETWORK = ("checkpoint", "first", "others", "seeds_of", "network", "weights")
WITHIN = {  # what analyses name themselves
    "dataset", "n", "digit", "index", "image", "donor", "donor_index", "make", "picture", "layer",
}  # fmt: skip
LONGEST = 60  # letters of the networks, and of the options; longer ones are cut, and told apart
CODE_AND_WEIGHTS = {".py", ".safetensors", ".pt", ".pth", ".ckpt", ".bin"}
HEAD = 65536  # bytes of a result's file that hold its options


def label(source: str) -> str:
    """Return a network as part of a name: shipped weights by name, others by file and folder.

    A glob whose last part is a star alone goes by what the names that it matches begin with.
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
    """Return a text in letters that every file system takes."""
    return re.sub(r"[^\w.+-]+", "-", str(text)).strip("-.") or "unnamed"


def stem(
    base: str, networks: Sequence[str], options: Mapping[str, object], analysis: str | None = None
) -> str:
    """Return the whole name of a figure.

    Parameters
    ----------
    base      of the analysis: "rotate-mnist-2-0".
    networks  labels of the networks; they stand behind the name of the `analysis`, where the base
              begins with it, else at the end.
    options   those that are not the defaults, by their names on the command line.
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
    """Return an option as words: numbers with signs, the last part of a path with a digest."""
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
    """Return six digits that tell texts apart."""
    return hashlib.sha256(text.encode()).hexdigest()[:6]


def changed(context: click.Context) -> dict[str, object]:
    """Return the running command's options that are not defaults and not in the name otherwise."""
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
    """Return what the numbers of the running command are made of, as one text."""
    values = {key: value for key, value in context.params.items() if key not in PRESENTATION}
    made_of = values | files(context) | {"shipped weights": _shipped(context)}
    return json.dumps(made_of, default=str, sort_keys=True)


def _shipped(context: click.Context) -> str:
    """Return a digest of the shipped weights that are named, or of all if no network is named."""
    from capsviz import checkpoint

    shipped = checkpoint.shipped()
    named = [one for one in networks(context.params, *NETWORK) or shipped if one in shipped]
    cards = [checkpoint.read_card(checkpoint.find(one)) for one in named]
    return digest(str([card["weights"].get("sha256") for card in cards]))


def files(context: click.Context) -> dict[str, str]:
    """Return digests of names, sizes and times of the files of data, networks and plug-ins.

    Of a network its weights, or the code and weights in the folder of FILE.py and its
    packages; shipped ones and data that are found without `--data-dir` are not looked at.
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
    """Yield a folder and its packages: folders below it with Python files, and theirs in turn."""
    for here, below, names in os.walk(folder):
        if Path(here) == folder or any(name.endswith(".py") for name in names):
            yield Path(here)
        else:
            below.clear()


def networks(values: Mapping, *keys: str) -> list[str]:
    """Return what options name, of one text or path or several each."""
    texts: list[str] = []
    for key in keys:
        value = values.get(key) or ()
        texts += [str(value)] if isinstance(value, str | Path) else map(str, value)
    return texts


def try_folder(folder: Path) -> None:
    """Raise OSError if a folder cannot be written to, or cannot be made; it is not made yet."""
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(folder))
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:  # it names the file that was tried
        raise OSError(error.errno, error.strerror, str(existing)) from error


def refuse_existing(
    path: Path, *, force: bool, kinds: Sequence[str] = (), option: str = "--output"
) -> None:
    """Raise ValueError if there are files of this name, without ending, unless `force`.

    `kinds` are the endings that are looked for, () for all; another name is chosen by `option`.
    """
    if not force and path.parent.is_dir():
        for other in sorted(path.parent.glob("*.*")):
            if other.stem == path.name and (not kinds or other.suffix[1:] in kinds):
                raise ValueError(
                    f"{other} exists: add --force to overwrite it, or choose another {option}"
                )


def refuse_file(path: Path, *, force: bool) -> None:
    """Raise ValueError if the file is there, unless `force`; OSError if it cannot be written."""
    if path.exists() and not force:
        raise ValueError(f"{path} exists: add --force to overwrite it, or name another file")
    try_folder(path.parent)


def repeated(folder: Path, analysis: str, identity: str) -> Path | None:
    """Return the JSON of a result of the same options in a folder; None if there is none."""
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
