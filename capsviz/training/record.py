"""The record of a run: a line an epoch, which epoch is the best, and whether more are to come."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields

from capsviz.training.recipe import Recipe


@dataclass(frozen=True)
class Epoch:
    """One line of the record; losses and accuracies are means over images."""

    epoch: int  # from 1
    train_loss: float
    train_accuracy: float
    validation_accuracy: float
    validation_margin_loss: float
    validation_sse: float | None
    learning_rate: float  # of its last step
    seconds: float
    commit: str | None = None  # of the code that trained it, if it ran from a checkout
    hardware: str | None = None  # that it was trained on
    train_margin_loss: float | None = None
    train_reconstruction_loss: float | None = None  # before its weight; None without a decoder


def best_epoch(history: list[Epoch]) -> int:
    """Number of the epoch with the highest validation accuracy; of equals, the lowest loss."""
    best = max(history, key=lambda e: (e.validation_accuracy, -e.validation_margin_loss))
    return best.epoch


def stopped_early(recipe: Recipe, history: list[Epoch]) -> bool:
    """Whether the last `early_stop` epochs before the end brought no better one."""
    if recipe.early_stop is None or not 0 < len(history) < recipe.epochs:
        return False
    return len(history) - best_epoch(history) >= recipe.early_stop


def finished(recipe: Recipe, history: list[Epoch]) -> bool:
    """Whether a run has nothing left to train."""
    return len(history) >= recipe.epochs or stopped_early(recipe, history)


def epochs(run: Mapping) -> list[Epoch]:
    """The finished epochs of a run; ValueError for fields that no epoch here has."""
    try:
        return [Epoch(**line) for line in run["history"]]
    except TypeError as error:
        raise ValueError(
            f"the run was begun by another version of capsviz ({error}): end it with that one, or "
            "choose another --output"
        ) from error


def to_csv(history: list[Epoch]) -> str:
    """The record as a table, a line an epoch."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Epoch)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(asdict(epoch) for epoch in history)
    return text.getvalue()
