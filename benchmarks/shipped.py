"""What is shipped with capsviz: results in figures/, and the cards of the weights."""

import fnmatch
from pathlib import Path
from typing import NamedTuple

from capsviz import checkpoint, discovery
from capsviz.results import read_result

ROOT = discovery.root()
LAWS = "equivariance-*-images-warp-rotation-shift-x.json"  # of how poses change: the result
RUN = 1  # training run behind a file of weights


class Shipped(NamedTuple):
    """A result in figures/ and what is known of it."""

    result: NamedTuple
    about: dict
    source: str

    @property
    def network(self) -> str:
        """The name of the weights."""
        return Path(self.about["provenance"]["weights"] or "none").stem

    @property
    def runs(self) -> str:
        """Of one network."""
        return f"{RUN} (`{self.network}`)"


def shipped(pattern: str) -> Shipped | None:
    """The result in figures/ that a pattern names, of the most images; None if there is none."""
    read = []
    for path in sorted((ROOT / "figures").iterdir()):
        if path.suffix == ".json" and fnmatch.fnmatch(path.name, pattern):
            read.append(Shipped(*read_result(path), f"figures/{path.name}"))
    return max(read, key=lambda one: getattr(one.result, "n", 0), default=None)


def cards() -> dict[str, dict]:
    """The card of every shipped network."""
    folder = discovery.folder("capsviz.trained")
    return {
        name: checkpoint.read_card(folder / f"{name}.safetensors") for name in checkpoint.shipped()
    }
