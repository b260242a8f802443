"""Results of the affNIST series on disk: one JSON for each network, seed and state."""

from __future__ import annotations

import json
from pathlib import Path

from capsviz.files import LOCK, write_text

NETWORKS: dict[
    str, tuple[str, dict]
] = {  # name of a contender -> its file in capsviz/nn/models and that file's options
    "capsnet": ("capsnet", {"iterations": 3, "reconstruction_weight": 0.01}),
    "capsnet-1": ("capsnet", {"iterations": 1, "reconstruction_weight": 0.01}),
    "cnn": ("cnn", {"kernel": 5}),
    "cnn-9": ("cnn", {"kernel": 9, "padding": "valid"}),
    "average": ("average", {}),
    "resnet": ("resnet", {}),
}
KEYS = (
    "network", "seed", "state", "terms", "parameters", "held_out", "test", "affnist_like",
    "affnist",
)  # fmt: skip  # of a result


def result_path(folder: Path, network: str, seed: int, state: str) -> Path:
    """Where the result of one contender lies."""
    return folder / f"{network}-{seed}-{state}.json"


def read(folder: Path) -> list[dict]:
    """The results in a folder, in the order of `NETWORKS`, then seed, then state."""
    results = [_read_one(path) for path in sorted(folder.glob("*-*-*.json"))]
    names = list(NETWORKS)
    return sorted(results, key=lambda r: (names.index(r["network"]), r["seed"], r["state"]))


def _read_one(path: Path) -> dict:
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not a result of this series: {error}") from error
    missing = [k for k in KEYS if not isinstance(result, dict) or k not in result]
    if missing or result["network"] not in NETWORKS:
        what = f"it lacks {missing[0]}" if missing else f"unknown network {result['network']}"
        raise ValueError(f"{path} is not a result of this series: {what}")
    return result


def complete(path: Path, conditions: dict, apart: tuple[str, ...]) -> bool:
    """Whether a result is there on these terms; not, if it is of a shorter training."""
    if not path.exists():
        return False
    stored = _read_one(path)["terms"]
    if "epochs" not in apart and stored["epochs"] < conditions["epochs"]:
        return False
    agree(path, stored, conditions, apart)
    return True


def begin(folder: Path, conditions: dict, apart: tuple[str, ...]) -> None:
    """Lay the terms of a run into its folder; ValueError for one that was begun on others.

    A folder that was begun without them goes on as it is.
    """
    path = folder / "terms.json"
    if {other.name for other in folder.iterdir()} <= {path.name, LOCK}:
        write_text(path, json.dumps(conditions) + "\n")
    elif path.exists():
        try:
            stored = dict(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} holds no terms of a run: {error}") from error
        agree(folder, stored, conditions, apart)


def agree(path: Path, stored: dict, conditions: dict, apart: tuple[str, ...]) -> None:
    """ValueError for a file that was made on other terms, but for those named apart."""
    for name in conditions:
        if name not in apart and stored.get(name) != conditions[name]:
            raise ValueError(
                f"{path} was made with {name} {stored.get(name)}, asked for is {conditions[name]}: "
                "ask for the same, or choose another --folder"
            )
