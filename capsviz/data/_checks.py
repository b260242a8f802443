"""Describe a `Dataset` before it is used: a line for each split, and WARN lines."""

from collections.abc import Mapping

from torch import Tensor

from capsviz.discovery import some
from capsviz.pictures import opening

UNEVEN = 5  # times as many images of one class as of another


def summary(part) -> str:
    """Return one line: images, their shape, and how many of each class."""
    counts = counts_of(part)
    each = some(f"{name} {n}" for name, n in counts.items())
    of = f"{len(part):,} images {part.image_shape} of {len(counts)} classes ({each})"
    return f"{part.name} {part.split}: {of}"


def counts_of(part) -> dict[str, int]:
    """Return the number of images that show each class."""
    counts = part.labels.flatten().bincount(minlength=len(part.classes)).tolist()
    return dict(zip(part.classes, counts, strict=True))


def check(splits: Mapping) -> list[str]:
    """Return lines about splits by name: what was left out, and WARN lines.

    A split is checked for classes without images or of uneven size, images of one grey level, and
    values far below their range; several splits for test images that others hold, too. `doubts` of
    a split are about the files that it was read from.
    """
    lines = [line for part in splits.values() for line in (part.left_out or "").splitlines()]
    odd: dict[str, list[str]] = {}
    for name, part in splits.items():
        for text in _of_split(part):
            odd.setdefault(text, []).append(name)
    lines += [f"WARN {', '.join(names)}: {text}" for text, names in odd.items()]
    if "train" in splits and len(splits) > 1:
        train = splits["train"]
        pairs = list(zip(keys_of(train), train.labels.tolist(), strict=True))
        known = dict(pairs)
        if unlike := sum(known[key] != label for key, label in pairs):
            lines.append(f"WARN train: {unlike:,} images also appear with another class")
        for name, part in splits.items():
            if name != "train" and (twice := sum(key in known for key in keys_of(part))):
                lines.append(f"WARN {name}: {twice:,} of {len(part):,} images are also in train")
    return list(dict.fromkeys(lines))


def _of_split(part) -> list[str]:
    """Return what is odd about one split."""
    lines, counts = list(part.doubts), counts_of(part)
    if empty := [name for name, n in counts.items() if n == 0]:
        lines.append(f"no image of {len(empty)} classes ({some(empty)})")
    low, high = (how(counts, key=lambda name: counts[name]) for how in (min, max))
    if counts[high] >= UNEVEN * counts[low] > 0:
        share = counts[high] / len(part)
        lines.append(
            f"uneven classes, {counts[low]} images of {low} and {counts[high]} of {high}: "
            f"always predicting {high} is correct for {share:.1%}"
        )
    if len(part) == 0 or part.inputs:
        return lines
    flat = part.images.flatten(1)
    top = flat.amax(1)
    if blank := int((top == flat.amin(1)).sum()):
        lines.append(f"{blank:,} of {len(part):,} images are of one grey level")
    if dark := opening.too_dark(int(top.max()), part.largest):
        lines.append(dark)
    return lines


def keys_of(part) -> list[int]:
    """Return a key of each image: images of equal pixels have equal keys."""
    rows: Tensor = part.images.contiguous().flatten(1).cpu()
    return [hash(row.tobytes()) for row in rows.numpy()]
