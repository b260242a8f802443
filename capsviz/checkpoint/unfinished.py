"""A run that has not ended: its state is a checkpoint too, of the weights that would count now.

`state.safetensors` holds a run's weights, Adam's moments and the averaged weights, if any. Of its
strings "run" is recipe and history, and "card" what the card of a checkpoint says. The weights that
count are those that the run would end with if it stopped now: the best epoch's, which lie beside
it, or else the averaged ones, or the last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

STATE = "state.safetensors"


def card(state: Path, about: Mapping[str, str]) -> dict:
    """The card in the strings of a state; ValueError where there is none."""
    if "card" not in about:
        raise ValueError(
            f"{state} is the state of a run by an older version, which does not say enough of its "
            "network to open it: end the run by capsviz train --resume"
        )
    return json.loads(about["card"])


def run(state: Path, about: Mapping[str, str]) -> dict:
    """Recipe, precision and history in the strings of a state; ValueError where they are not."""
    try:
        values = json.loads(about["run"])
        _ = values["recipe"]["keep"], [line["epoch"] for line in values["history"]]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{state} is not the state of a run ({type(error).__name__}: {error}): choose another "
            "--output"
        ) from error
    return values


def weights(state: Path, about: Mapping[str, str], tensors: Mapping[str, Tensor]) -> Path | dict:
    """The weights that count: the path of the best epoch's, or tensors of the state."""
    if run(state, about)["recipe"]["keep"] == "best":
        return state.with_name(f"best-{card(state, about)['training']['epoch']}.safetensors")
    kind = "ema." if any(name.startswith("ema.") for name in tensors) else "model."
    return {k.removeprefix(kind): v for k, v in tensors.items() if k.startswith(kind)}


def describe(about: Mapping, network: Mapping, parameters: int, *, epoch: int, epochs: int) -> str:
    """The card of an unfinished run, as the JSON that its state carries.

    Parameters
    ----------
    about       the card of the run before it is evaluated.
    network     name and config.
    parameters  how many it has.
    epoch       whose weights count.
    epochs      that are trained so far.
    """
    training = {"epoch": epoch, "epochs": epochs, "unfinished": True}
    name = f"{about['name']}-epoch-{epoch}"  # its figures must not be taken for those of the run
    parts = {**about, "name": name, "training": training, "model": dict(network)}
    return json.dumps({"format": 1, **parts, "weights": {"file": STATE, "parameters": parameters}})
