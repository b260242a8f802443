"""Findings on poses and networks: laws, affine digits, broken digits, attacks."""

from collections.abc import Sequence

import numpy as np

from benchmarks.findings.finding import (
    LONG,
    STEM,
    Finding,
    of_figure,
    over_runs,
    percent,
    picture,
    seeds,
    slim,
    value,
)
from benchmarks.shipped import LAWS
from capsviz.analyses.parts import OF
from capsviz.nn import routing as routings
from capsviz.results.leaderboard import columns
from capsviz.statistics.estimate import Estimate, less

HALVES = "halves of two classes"
NEAREST = "pixels: nearest image"


def lawful() -> Finding:
    """Poses follow a rotation less lawfully than leading components of the pixels do."""
    one = of_figure(LAWS)
    result = one.result
    turn, names = result.warps.index("rotation"), result.sources
    fresh = [k for k, name in enumerate(names) if "freshly initialised" in name]
    pixels = names.index("pixels")
    mean = result.mean[:, turn]
    gains = []

    def over_fresh(of):
        gain = next((gain for _, gain in columns.over_fresh(of)), None)
        if gain is None:
            return None
        gains.append(gain)
        among = of.mean.difference[:, of.warps.index("rotation")]
        return gain, "+.2f", among.low[of.sources.index("pixels")] > 0

    words, files, holds = over_runs("equivariance", "Result", over_fresh)
    routings = ("uniform", "dynamic")
    by_routing, others = slim("equivariance", [name + LONG for name in routings], over_fresh)
    words += [f"{STEM}, ten epochs, {by_routing}"] if by_routing else []
    not_all = any(gain.low <= 0 for gain in gains)
    adds = bool((mean.difference.high[fresh] < 0).all()) and gains[-2].low > 0  # uniform's
    return Finding(
        "Poses turn less lawfully than leading components of pixels, and training need not help",
        bool(
            holds
            and mean.difference.low[pixels] > 0
            and len(others) == len(routings)
            and adds
            and not_all
        ),
        f"An affine map, fitted on {result.fit_counts[-1]} training images of a class, tells its "
        f"pose after a rotation by up to 30° from the pose before: R² {mean[0]:.2f} of what varies "
        f"within a class, on {result.n:,} images. As many components of the pixels have "
        f"{mean[pixels]:.2f}.",
        picture(one),
        "R² by size of warp",
        "; ".join(
            f"{names[k].removeprefix('mnist ')} {mean[k]:.2f}"
            for k in range(1, len(names))
            if k not in (pixels, *fresh[1:])
        ),
        seeds([f"R² less fresh weights', fits on 100, {'; '.join(words)}"]),
        "poses told better than these components",
        [one.source, *files, *others],
    )


def affine() -> Finding:
    """Beyond the trained places, networks that pool are far ahead, of even couplings too."""
    one = of_figure("affnist.json")
    result = one.result
    others = [k for k, name in enumerate(result.networks) if name in ("average", "resnet")]
    capsnet = result.networks.index("capsnet")
    ahead = result.beyond.difference
    listed = "; ".join(f"{result.networks[k]} {result.beyond[k]:.1%}" for k in others)
    inside = "; ".join(f"{result.networks[k]} {result.within[k]:.1%}" for k in (capsnet, *others))
    plain = result.networks.index("cnn")
    runs = {len(seeds) for k, seeds in enumerate(result.seeds) if k != plain}
    (pooled,), outer, files = _of_stem(["pooled"], columns.beyond)
    (least,), inner, _ = _of_stem(["pooled"], columns.within)
    each = [one for k in routings.available() for one in _of_stem([k], columns.within)[0]]
    lower = sum(least.value < one.value for one in each)
    gaps = {}
    for name in routings.available():
        some, _, more = _of_stem([name], columns.beyond)
        gaps |= {name.replace("_", "-"): less(pooled, one) for one in some}
        files += more
    even = gaps.pop("uniform")
    behind = sorted((gap for gap in gaps.values() if gap.low > 0), key=lambda gap: gap.value)
    ends = [f"{100 * gap.value:+.1f}" for gap in (*behind[:1], *behind[-1:])]
    told = f"{len(behind)} others {' to '.join(ends)}"
    rest = "".join(f", {k} {100 * gap:+.1f} (not shown)" for k, gap in gaps.items() if gap.low <= 0)
    return Finding(
        "Trained alike, capsules, of even couplings too, mostly fall behind pooling beyond the "
        "trained places",
        bool((ahead.low[others] > 0).all() and even.low > 0 and len(behind) > len(gaps) / 2),
        f"Trained on shifted digits, stopped at {100 * result.target:g} %, networks read "
        "affine ones beyond: capsnet "
        f"{result.beyond[capsnet]:.1%}, {listed}.",
        "affnist",
        "Accuracy on affine digits",
        f"within the trained places {inside}; beyond, {result.networks[plain]}, which does not "
        f"pool, {result.beyond[plain]:.1%}",
        f"{min(runs)} runs of each, {len(result.seeds[plain])} of {result.networks[plain]}; "
        f"{STEM}, ten epochs, {outer.rpartition(', ')[0]}, less uniform "
        f"{100 * even:+.1f}, {told}{rest} points; within {inner}; {lower} of "
        f"{len(each)} routings above pooled",
        "CapsNets that are ahead beyond over several seeds",
        [one.source, *files],
    )


def _of_stem(names: Sequence[str], column) -> tuple[list[Estimate], str, list[str]]:
    """Accuracies of the runs of some recipes on the stem, in words, and files."""
    each: list[Estimate] = []

    def take(of):
        ((_, accuracy),) = column(of)
        each.append(accuracy)
        return accuracy, ".1%", True

    words, files = slim("affine", [name + LONG for name in names], take)
    return each, words, files


def broken() -> Finding:
    """A broken digit is noticed by what has no parts as well."""
    one = of_figure("parts-mnist-*-images.json")
    result = one.result
    auroc = result.auroc[:, result.kinds.index("quarters exchanged")]
    names = ("mnist-resnet: largest score", NEAREST, "mnist: reconstruction error")
    other, nearest, drawn = map(result.scores.index, names)
    of = (other, drawn, nearest)
    halves = result.beyond[:, list(OF).index(HALVES)]
    beside: list[str] = []

    def as_well(of):
        each = of.auroc[:, of.kinds.index("quarters exchanged")]
        pixels = each[of.scores.index(NEAREST)]
        beside.append(f"({value(pixels, '.3f')})")
        return each[0], ".3f", pixels.high >= each[0].low

    words, files, holds = over_runs("parts", "Result", as_well)
    return Finding(
        "A network without capsules notices broken digits, too",
        bool(holds and (auroc.low[[0, other, nearest]] > 0.9).all() and halves.low[other] > 0),
        "The longest capsule's length tells digits with exchanged quarters from intact ones with "
        f"AUROC {auroc[0]:.3f}, on {result.n:,} images. Beyond halves of one class "
        f"it tells halves of two by {halves[0]:+.3f}, a ResNet by {halves[other]:+.3f}.",
        picture(one),
        "AUROC by score",
        f"quarters exchanged, {'; '.join(f'{result.scores[k]} {auroc[k]:.3f}' for k in of)}",
        seeds(["length (nearest image): " + _beside(words, beside)]),
        "a way of breaking parts, not wholes, that only capsules notice",
        [one.source, *files],
    )


def detection() -> Finding:
    """Reconstruction detects what does not know of it."""
    one = of_figure("detect-mnist-*-images.json")
    result = one.result
    unknown = [k for k, kind in enumerate(result.kinds) if kind == "attack"]
    known = columns.strongest(result)
    average = result.scores.index("class average")

    evaded = []

    def missed(of):
        attacks = [k for k, kind in enumerate(of.kinds) if kind == "attack"]
        worst = attacks[int(np.argmax(of.undetected.value[attacks]))]
        evaded.append(f"({percent(of.undetected.value[worst])})")
        share = of.undetected[columns.strongest(of)]
        return share, ".1%", share.low > 0.5

    words, files, holds = over_runs("detect", "Result", missed)
    worst = unknown[int(np.argmax(result.undetected.value[unknown]))]
    return Finding(
        "Detection by reconstruction does not stop the attack that knows of it",
        bool(holds and result.undetected.low[known] > 0.5 and result.undetected.high[worst] < 0.1),
        f"Images whose winning capsule draws something else are flagged. Of {result.n} under "
        f"FGSM and PGD at most {result.undetected[worst]:.1%} are misread and not flagged; under "
        f"{result.sets[known]}, which lowers that distance, "
        f"{result.undetected[known]:.1%}.",
        picture(one),
        "AUROC by attack",
        f"unchanged images flagged {result.flagged[0]:.1%}; AUROC under R-PGD: winning capsule "
        f"{result.auroc[known - 1, 0]:.2f}, average image {result.auroc[known - 1, average]:.2f}",
        seeds([f"so missed (other attacks): {_beside(words, evaded)}"]),
        "a detector that holds when the attack knows it",
        [one.source, *files],
    )


def _beside(words: list[str], numbers: list[str]) -> str:
    """What each recipe has, with another number of its own behind it."""
    return "; ".join(f"{word} {number}" for word, number in zip(words, numbers, strict=True))
