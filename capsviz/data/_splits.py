"""Splits of a user's data, by the words in their names, and splits that are drawn from them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

NAMES = {  # words for each split, in any case
    "train": {"train", "training", "trainset"},
    "validation": {"validation", "valid", "val", "valset", "dev"},
    "test": {"test", "testing", "testset"},
}
SHARES = {"test": 0.2, "validation": 0.1}  # of the training images, where a split is missing


def words(name: str) -> set[str]:
    """Return the words of a name: those of "X_train", "trainX" and "Xtrain" are x and train."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=^[xyXY])(?=train|test|val)", "_", name)
    return set(re.findall("[a-z]+", apart.lower()))


def named(name: str) -> str | None:
    """Return the split that a name says, None for none or several."""
    found = [split for split, known in NAMES.items() if known & words(name)]
    return found[0] if len(found) == 1 else None


def share(keys: Sequence[str], labels: Sequence[int], split: str, missing: Sequence[str]) -> list:
    """Return the indices of a split's share of each class, where the `missing` splits are drawn.

    Of each class, in the order of the keys: a fifth is the test split and a tenth validation, as
    far as they are missing; the rest is for training. ValueError for too few images of a class.
    """
    by_class: dict[int, list[int]] = {}
    for place in sorted(range(len(keys)), key=lambda place: keys[place]):
        by_class.setdefault(labels[place], []).append(place)
    drawn = [name for name in SHARES if name in missing]
    least, rarest = 1 + len(drawn), min(map(len, by_class.values()))
    if rarest < least:
        raise ValueError(
            f"images are split by class into training and {' and '.join(drawn)}: expected at least "
            f"{least} of each class, got {rarest} of one; or name the splits train, validation and "
            "test yourself"
        )
    chosen: list[int] = []
    for _, same in sorted(by_class.items()):
        parts, start = {}, 0
        for name in drawn:
            end = start + max(1, round(SHARES[name] * len(same)))
            parts[name], start = same[start:end], end
        chosen += parts.get(split, same[start:])
    return chosen


def in_turn(labels: Sequence[int]) -> list[int]:
    """Return indices that take one image of each class after another, each class in its order.

    The first n images then hold all classes alike.
    """
    counts: Counter[int] = Counter()
    turns = []
    for place, label in enumerate(labels):
        counts[label] += 1
        turns.append((counts[label], label, place))
    return [place for *_, place in sorted(turns)]
