"""Test random inputs of every kind: none may end in a traceback or a silent mistake.

    python -m benchmarks.fuzz --minutes 10             # or --inputs 200, as in .ci/run
    python -m benchmarks.fuzz --seed 17 --kind cards   # one input again

An input is made from its seed in an empty folder. It must end in a result, or in an error of one
line with exit status 1 or 2. A result must be of the given data: pictures are counted, weights and
images are compared. Prints a table of the outcomes, and each failure with its seed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np
import torch
from click.testing import CliRunner
from PIL import Image
from torch import nn

from benchmarks import ROOT
from capsviz import checkpoint, data
from capsviz.checkpoint.containers import load_into
from capsviz.cli import errors, main
from capsviz.nn.models.capsnet import CapsNet
from capsviz.training.run import prepare
from capsviz.training.train import build_model

SLOW_S = 30  # an input that takes longer is stopped and counted as slow
MODES = ("L", "RGB", "RGBA", "P", "1", "I;16", "F", "CMYK", "LA")
ENDINGS = ("png", "jpg", "gif", "bmp", "tiff", "webp", "PNG", "jfif")
OTHER_FILES = ("Thumbs.db", "._a.png", ".DS_Store", "notes.txt", "a.csv", "broken.png", "c.heic")
SPLITS = (
    ("train", "test"), ("Training", "Testing"), ("TRAIN", "TEST"), ("train", "valid", "test"),
    ("train", "val"), ("seg_train", "seg_test"), ("Train", "test", "Validation"), (),
)  # fmt: skip
CLASSES = ("cat", "dog", "1", "2", "12", "猫", "R&D_50%", "a b", ".hidden", "empty", "Ünï", "-x")
NASTY = (
    "", " ", "0", "-1", "1e99", "nan", "inf", "None", "null", "[]", "{}", "猫", "a" * 300, "../..",
    "/", ".", "~", "mnist", "digits", "%s", "--", "-", "1,2", "a=b", "=", "\udc80", "x.json",
)  # fmt: skip
VALUES = (None, True, 0, -1, 1e99, float("nan"), "", "x", [], {}, [1, "a"], {"a": 1}, 10**30)


class SlowError(BaseException):
    """An input took too long; nothing in capsviz catches it."""


class Refused(Exception):  # noqa: N818  # it is a good end
    """An input was refused in one line."""


def command(*words: object) -> str:
    """Run a command and return its output; raise Refused for an error in one line, or its crash."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    if done.exit_code == 0:
        return done.output
    assert done.exit_code in (1, 2), f"exit status {done.exit_code}"
    helped = bool(lines) and lines[0].startswith("Usage: ")  # what a bare `capsviz` prints
    assert helped or (lines and lines[-1].startswith("Error: ")), f"no line says why: {lines[-3:]}"
    raise Refused(lines[-1])


@contextmanager
def in_words():
    """Turn errors that the command line reports in one line into Refused; raise all others."""
    try:
        with errors():
            yield
    except click.ClickException as error:
        message = error.format_message()
        assert message.strip() and "\n" not in message, f"not one line: {message!r}"
        raise Refused(message) from error


def picture(draw: random.Random, path: Path) -> bool:
    """Write a picture of a random mode, size and format; return whether it is undamaged."""
    size = draw.choice([(1, 1), (28, 28), (5, 40), (64, 48), (300, 200)])
    pixels = np.frombuffer(draw.randbytes(size[0] * size[1]), np.uint8).reshape(size[::-1])
    mode, kind = draw.choice(MODES), path.suffix[1:].lower()
    image = Image.fromarray(pixels)
    image = image.convert("I").point(lambda v: v * 16).convert("I;16") if mode == "I;16" else image
    image = image if mode == "I;16" else image.convert(mode)
    content = io.BytesIO()
    kind = {"jpg": "jpeg", "jfif": "jpeg", "tif": "tiff"}.get(kind, kind)
    try:
        image.save(content, kind)
    except (OSError, ValueError, KeyError):  # no such mode in this format
        Image.fromarray(pixels).save(content := io.BytesIO(), kind)
    whole = draw.random() > 0.1
    held = content.getvalue()
    path.write_bytes(held if whole else held[: draw.randrange(len(held) // 2)])
    return whole


def folders(draw: random.Random, folder: Path) -> str:
    """Load class folders that contain other files, too; every undamaged picture must be counted."""
    splits = draw.choice(SPLITS)
    usual = draw.random() < 0.7
    classes = draw.sample(CLASSES[:8] if usual else CLASSES, draw.randint(1 + usual, 4))
    whole = hidden = 0
    for place in [folder / "data" / split for split in splits] or [folder / "data"]:
        for name in classes if draw.random() > 0.1 else classes[:-1]:
            (place / name).mkdir(parents=True)
            for k in range(draw.randint(3 if usual else 1, 9) if name != "empty" else 0):
                good = picture(draw, place / name / f"{k}.{draw.choice(ENDINGS)}")
                whole, hidden = whole + good, hidden + (good and name.startswith("."))
            for other in draw.sample(OTHER_FILES, draw.randint(0, 2)):
                (place / name / other).write_bytes(draw.randbytes(20))
    with in_words():
        options = {"image_size": draw.choice([8, 28]), "channels": draw.choice([1, 3])}
        parts = [data.load("folder", split, folder / "data", **options) for split in data.SPLITS]
    named = {word for split in SPLITS for word in split}
    assert not named & set(parts[0].classes), f"splits as classes: {parts[0].classes}"
    used, said = sum(map(len, parts)), any(part.left_out for part in parts)
    assert used == whole - hidden or said, f"{used} of {whole - hidden} pictures, and not a word"
    return "used"


def pictures(draw: random.Random, folder: Path) -> str:
    """Predict a picture; a damaged one must be refused."""
    path = folder / f"{draw.choice(['a', 'ü ', '-x', '猫', 'a%d'])}.{draw.choice(ENDINGS)}"
    whole = picture(draw, path)
    command("predict", "--checkpoint", "digits", "--", path)
    assert whole or "--" in str(path), "a damaged picture was predicted"
    return "predicted"


def arrays(draw: random.Random, folder: Path) -> str:
    """Use images and labels of any type and shape, in Python or in a file."""
    n, side = draw.randint(0, 12), draw.choice([1, 8, 28])
    shape = draw.choice([(n, side, side), (n, 1, side, side), (n, side, side, 3), (n, side**2)])
    kind = draw.choice(["uint8", "float32", "float64", "int64", "bool", "uint16", "object"])
    images = (np.random.default_rng(draw.randrange(99)).random(shape) * 255).astype(kind)
    labels = np.array([draw.choice([0, 1, 2, -1, 7]) for _ in range(n + (draw.random() < 0.1))])
    labels = labels.astype(draw.choice(["uint8", "int32", "int64", "float32", "bool", "str"]))
    where = draw.choice(["python", "npz", "csv"])
    if where == "python":
        tensors = []
        with in_words():
            for values in (images, labels):
                numeric = values.dtype.kind in "iufb" and draw.random() > 0.1
                tensors.append(torch.from_numpy(values) if numeric else values)
            try:
                part = data.Dataset(*tensors, ("a", "b", "c"), "mine", "test")
            except TypeError as error:  # its message says what was expected
                raise ValueError(str(error)) from error
        given = np.sort(images.astype(int) * (255 if images.dtype == bool else 1), axis=None)
        read = np.sort(part.images.numpy().astype(int), axis=None)  # channels may come first now
        assert np.array_equal(given, read), "other images than were given"
        return "used"
    path = folder / f"a.{where}"
    if where == "npz":
        names = draw.choice([("x", "y"), ("train_images", "train_labels"), ("images", "labels")])
        np.savez(path, **dict(zip(names, (images, labels), strict=True)))
    else:
        with path.open("w", newline="") as file:
            csv.writer(file).writerows(
                [label, *row.ravel()] for label, row in zip(labels, images, strict=False)
            )
    small = ["--types", 1, "--channels", 2, "--no-reconstruction", "--epochs", 1]
    said = command("train", "--dataset", where, "--data-dir", path, *small, "--output", folder)
    assert "training" in said, "no word on which images were used"
    return "used"


def mutated(draw: random.Random, value, depth: int = 0):
    """Change one value in a JSON document: replace it, drop it, or change its type."""
    if isinstance(value, dict) and value and (depth == 0 or draw.random() < 0.8):
        key, copied = draw.choice(list(value)), dict(value)
        if draw.random() < 0.2:
            del copied[key]
        else:
            copied[key] = mutated(draw, value[key], depth + 1)
        return copied
    if isinstance(value, list) and value and draw.random() < 0.7:
        place = draw.randrange(len(value))
        return [*value[:place], mutated(draw, value[place], depth + 1), *value[place + 1 :]]
    return draw.choice(VALUES)


def _text(draw: random.Random, document) -> str:
    text = json.dumps(document)
    return text[: draw.randrange(len(text))] if draw.random() < 0.15 else text


def cards(draw: random.Random, folder: Path) -> str:
    """Use a card with one change; it must still describe the weights, or be refused."""
    network = CapsNet((1, 28, 28), 10, types=1, channels=2, reconstruction_weight=0.0)
    path = checkpoint.save(folder / "a.safetensors", network, {"dataset": {"name": "digits"}})
    card = json.loads(path.with_suffix(".json").read_text())
    changed = mutated(draw, card)
    path.with_suffix(".json").write_text(_text(draw, changed))
    if draw.random() < 0.2:
        held = bytearray(path.read_bytes())
        held[draw.randrange(len(held))] ^= 1 << draw.randrange(8)
        path.write_bytes(held)
        card = None
    command(draw.choice(["evaluate", "describe"]), "--checkpoint", path)
    assert card is not None and changed["weights"]["sha256"] == card["weights"]["sha256"], (
        "weights were used that the card does not describe"
    )
    return "used"


def checkpoints(draw: random.Random, folder: Path) -> str:
    """Load weights in a format that a script may write; they must equal the saved ones."""

    def build():
        parts = {"conv": nn.Conv2d(1, 2, 3), "norm": nn.BatchNorm2d(2), "caps": nn.Linear(2, 3)}
        return nn.ModuleDict(parts)

    torch.manual_seed(draw.randrange(10**6))
    state = held = dict(build().state_dict())
    spoilt = draw.random() < 0.3
    if spoilt:
        held = dict(state)
        key = draw.choice([key for key in state if "num_batches" not in key])
        value = held.pop(key)
        if draw.random() < 0.7:
            other = draw.choice([key, f"{key}s", f"x.{key}"])
            held[other] = draw.choice([torch.ones(7), value[:1], value.flatten(), [1, 2]])
            held[other] = torch.ones(7) if other == key else held[other]
    for _ in range(draw.randint(0, 2)):
        prefix = draw.choice(["module.", "model.", "_orig_mod.", "net.backbone.", "a."])
        held = {prefix + key: value for key, value in held.items()}
        if draw.random() < 0.3:
            held["criterion.weight"] = torch.ones(3)
    extras = [argparse.Namespace(lr=1), np.float64(1), Path("x"), None, "a", {"k": torch.ones(2)}]
    for _ in range(draw.randint(0, 2)):
        name = draw.choice(["state_dict", "model", "capsnet", "weights", "x"])
        held = {name: held, "epoch": 3, "extra": draw.choice(extras)}
    path = folder / draw.choice(["a.pt", "a.pth.tar", "a.ckpt", "a", "a.bin"])
    torch.save(held, path, _use_new_zipfile_serialization=draw.random() < 0.9)
    if draw.random() < 0.1:
        path.write_bytes(path.read_bytes()[: draw.randrange(2000)])
    network = build()
    with in_words():
        load_into(network, path, "mine")
    loaded = network.state_dict()
    assert not spoilt, "weights that do not fit were loaded without a word"
    assert all(torch.equal(loaded[key], value) for key, value in state.items()), "other weights"
    return "loaded"


def results(draw: random.Random, folder: Path) -> str:
    """Print a result with one change."""
    source = draw.choice(SMALL_RESULTS)
    path = folder / source.name
    path.write_text(_text(draw, mutated(draw, json.loads(source.read_text()))))
    said = command("redraw", path, "--table", draw.choice(["csv", "md", "tex"]))
    assert said.strip(), "nothing was printed"
    return "printed"


SMALL_RESULTS = [
    path
    for path in sorted((ROOT / "figures").glob("*.json"))
    if path.stat().st_size < 60_000 and "leaderboard" not in path.name
]


def recipes(draw: random.Random, folder: Path) -> str:
    """Read a recipe in TOML with random fields, and build the network that it describes."""
    sources = sorted((ROOT / "trained").glob("*.toml"))
    lines = draw.choice(sources).read_text().splitlines()
    for _ in range(draw.randint(0, 2)):
        place = draw.randrange(len(lines))
        name = lines[place].partition(" =")[0]
        value = draw.choice(['""', "-1", "0", "1e99", "nan", "[]", "true", '"x"', "{}", "10 ** 3"])
        lines[place] = draw.choice([f"{name} = {value}", f"{name}s = {value}", name, value, ""])
    path = folder / "recipe.toml"
    path.write_text("\n".join(lines))
    with in_words():
        _, recipe = prepare(str(path), {})
        side = draw.choice([1, 20, 32])
        images = torch.zeros(12, draw.choice([1, 3]), side, side, dtype=torch.uint8)
        part = data.Dataset(images, torch.arange(12) % 10, tuple("0123456789"), "mine", "train")
        build_model(recipe, part)
    return "built"


LINES = (
    "predict --checkpoint digits {picture}", "evaluate --checkpoint digits --n 20",
    "describe --checkpoint digits", "redraw {result} --table csv", "routing --explain", "--help",
    "compare digits digits-em", "new routing sharp --folder {folder}", "rotate --help",
    "check --checkpoint digits --only nan_output", "evaluate --dataset digits --split test --n 5",
    "train --dataset digits --types 1 --channels 2 --no-reconstruction --limit 16 --epochs 1",
    "figures --checkpoint digits --only curves --n 5", "curves digits --format svg",
)  # fmt: skip


def command_lines(draw: random.Random, folder: Path) -> str:
    """Run a command with words that are replaced, dropped, inserted or appended."""
    picture(draw, folder / "a.png")
    known = {"picture": folder / "a.png", "result": draw.choice(SMALL_RESULTS), "folder": folder}
    words = draw.choice(LINES).format(**known).split()
    limited = "--limit" in words
    for _ in range(draw.randint(1, 3)):
        place = draw.randrange(len(words))
        if limited and words[max(0, place - 1)] in ("--limit", "--epochs", "--channels"):
            continue
        change = draw.randrange(4)
        if change == 0:
            words[place] = draw.choice(NASTY)
        elif change == 1 and not limited:
            del words[place]
        elif change == 2:
            words.insert(place, draw.choice([*NASTY, *words]))
        else:
            words.append(draw.choice(["--json", "--n", "--device", "--seed", *NASTY]))
        if not words:
            break
    command(*words)
    return "done"


KINDS: dict[str, Callable[[random.Random, Path], str]] = {
    one.__name__: one
    for one in (folders, pictures, arrays, cards, checkpoints, results, recipes, command_lines)
}


def attempt(seed: int, kind: str | None = None) -> tuple[str, str, str]:
    """Make one input and use it; return its kind, its outcome, and the reason of a failure."""

    def stop(*_):
        raise SlowError

    kind = kind or list(KINDS)[seed % len(KINDS)]
    draw, before = random.Random(seed), Path.cwd()
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(place)
        signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, SLOW_S)
        try:
            return kind, KINDS[kind](draw, Path(place)), ""
        except Refused:
            return kind, "refused", ""
        except SlowError:
            return kind, "slow", ""
        except AssertionError as error:
            return kind, "FAILED", str(error)
        except Exception as error:  # a user would see a traceback
            frames = [
                f for f in traceback.extract_tb(error.__traceback__) if "capsviz" in f.filename
            ]
            last = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            return kind, "FAILED", f"{type(error).__name__}: {str(error)[:200]}{last}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.chdir(before)


def run(seeds, seconds: float, kind: str | None = None) -> Counter:
    """Try inputs until the time is over; print failures, and a table of the outcomes by kind."""
    command("describe", "--checkpoint", "digits")  # imports that the timer must not interrupt
    end, counts = time.perf_counter() + seconds, Counter()
    for seed in seeds:
        if time.perf_counter() > end:
            break
        name, how, why = attempt(seed, kind)
        counts[name, how] += 1
        if how == "FAILED":
            print(f"FAILED {name}, seed {seed}: {why}", flush=True)
    for name in KINDS:
        ends = {how: n for (one, how), n in sorted(counts.items()) if one == name}
        if ends:
            listed = ", ".join(f"{n} {how}" for how, n in ends.items())
            print(f"{name:14} {sum(ends.values()):6}: {listed}")
    failed = sum(n for (_, how), n in counts.items() if how == "FAILED")
    print(f"{sum(counts.values())} inputs, {failed} failed")
    return counts


def cli() -> None:
    """Run the command line; the exit status is 1 if an input failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="Try inputs for so long.")
    parser.add_argument("--inputs", type=int, help="Try so many inputs.")
    parser.add_argument("--seed", type=int, default=0, help="Of the first input; alone: that one.")
    parser.add_argument("--kind", choices=KINDS, help="Of all inputs. [default: in turn]")
    chosen = parser.parse_args()
    count = chosen.inputs or (10**9 if chosen.minutes else 1)
    seconds = 60 * chosen.minutes if chosen.minutes else float("inf")
    counts = run(range(chosen.seed, chosen.seed + count), seconds, chosen.kind)
    sys.exit(any(how == "FAILED" for _, how in counts))


if __name__ == "__main__":
    cli()
