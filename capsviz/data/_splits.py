"""Splits of a user's data, by the words in their names, and splits that are drawn from them."""

import re
from collections import Counter
from collections.abc import Sequence

NAMES = {  # words for each split, in any case
    "train": {"train", "training", "trainset", "trn"},
    "validation": {"validation", "valid", "val", "valset", "dev"},
    "test": {"test", "testing", "testset", "tst"},
}
DATE = r"(19|20)\d\d(\d{4})?"  # or year, as cameras write it
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


def group(name: str) -> str | None:
    """Return the start of a file's name that may say what it shows: "patient07" of "patient07_3".

    It ends with the first word with a number that other words follow; None for none, or a date.
    """
    found = re.match(r"(?:[^\W\d_]*[\W_]+)*?([^\W_]*\d[^\W_]*)(?=[\W_]+[^\W_])", name)
    return None if found is None or re.fullmatch(DATE, found[1]) else found[0]


def groups_in_both(train: Sequence[tuple[str, int]], part: Sequence[tuple[str, int]]) -> list[str]:
    """Return the groups of (file name, class) that stand in a split and in training, if many do.

    Many are at least 3, a quarter of the split's, and of two training pictures each on average. A
    group that is half of a class or more names the class.
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
    """Return indices that take one image of each class after another, each class in its order.

    The first n images then hold all classes alike.
    """
    counts: Counter[int] = Counter()
    turns = []
    for place, label in enumerate(labels):
        counts[label] += 1
        turns.append((counts[label], label, place))
    return [place for *_, place in sorted(turns)]
