"""Recognise the splits of a user's data by their names, and draw those that are missing."""

import re
from collections import Counter
from collections.abc import Sequence

NAMES = {  # words for each split, compared in lower case
    "train": {"train", "training", "trainset", "trn"},
    "validation": {"validation", "valid", "val", "valset", "dev"},
    "test": {"test", "testing", "testset", "tst"},
}
DATE = r"(19|20)\d\d(\d{4})?"  # a year, or YYYYMMDD as cameras write it
SHARES = {"test": 0.2, "validation": 0.1}  # share of training images drawn for a missing split


def words(name: str) -> set[str]:
    """Return the words of a name: x and train for "X_train", "trainX" and "Xtrain"."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=^[xyXY])(?=train|test|val)", "_", name)
    return set(re.findall("[a-z]+", apart.lower()))


def named(name: str) -> str | None:
    """Return the split that a name mentions; None if it mentions none or several."""
    found = [split for split, known in NAMES.items() if known & words(name)]
    return found[0] if len(found) == 1 else None


def share(keys: Sequence[str], labels: Sequence[int], split: str, missing: Sequence[str]) -> list:
    """Return the indices of a split if the `missing` splits are drawn from training images.

    Each class is sorted by key. The first fifth becomes the test split and the next tenth the
    validation split, if they are missing; the rest is for training. ValueError if a class has too
    few images.
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


def group(name: str) -> str | None:
    """Return the start of a file name that may identify a group: "patient07" of "patient07_3".

    It ends with the first word that contains a digit and is followed by another word. None if
    there is no such word or if it is a date.
    """
    found = re.match(r"(?:[^\W\d_]*[\W_]+)*?([^\W_]*\d[^\W_]*)(?=[\W_]+[^\W_])", name)
    return None if found is None or re.fullmatch(DATE, found[1]) else found[0]


def groups_in_both(train: Sequence[tuple[str, int]], part: Sequence[tuple[str, int]]) -> list[str]:
    """Return the groups of file names that a split shares with training, or none if they are few.

    Arguments are (file name, class). To count as many, the shared groups must be at least 3, at
    least a quarter of the split's groups, and have two training pictures each on average. A group
    with half of a class or more is ignored in that class: it probably names the class.
    """
    classes = Counter(label for _, label in train)
    counts = Counter((group(name), label) for name, label in train)
    known: Counter[str] = Counter()
    for (one, label), n in counts.items():
        if one is not None and 2 * n < classes[label]:
            known[one] += n
    own = {group(name) for name, _ in part} - {None}
    both = sorted(set(known) & own)
    many = len(both) >= max(3, len(own) / 4) and sum(known[one] for one in both) >= 2 * len(both)
    return both if many else []


def in_turn(labels: Sequence[int]) -> list[int]:
    """Return indices that alternate between the classes, keeping the order within each class.

    The first n images are then balanced over the classes.
    """
    counts: Counter[int] = Counter()
    turns = []
    for place, label in enumerate(labels):
        counts[label] += 1
        turns.append((counts[label], label, place))
    return [place for *_, place in sorted(turns)]
