"""Findings on poses and networks: laws, affine digits, broken digits, attacks."""

from collections.abc import Sequence

import numpy as np

from benchmarks.claims.claim import shipped
from benchmarks.findings.finding import (
    SLIM,
    Finding,
    of_figure,
    over_runs,
    percent,
    picture,
    seeds,
    slim,
)
from capsviz.analyses.parts.words import OF
from capsviz.leaderboard import columns
from capsviz.statistics.estimate import Estimate

HALVES, MOVED = "halves of two classes", "lower half moved"
NEAREST = "pixels: nearest image"


def lawful() -> Finding:
    """Poses follow a rotation less lawfully than pixels do, and training need not help."""
    one = of_figure("equivariance-mnist-1000-images.json")
    result = one.result
    turn, names = result.warps.index("rotation"), result.sources
    fresh = [k for k, name in enumerate(names) if "freshly initialised" in name]
    pixels = names.index("pixels")
    mean = result.mean[:, turn]
    gains = []

    def over_fresh(of):
        ((_, gain),) = columns.over_fresh(of)
        gains.append(gain)
        among = of.mean.difference[:, of.warps.index("rotation")]
        return gain, "+.2f", among.low[of.sources.index("pixels")] > 0

    words, files, holds = over_runs("equivariance", "Result", over_fresh)
    routings = ("uniform", "dynamic")
    by_routing, others = slim("equivariance", routings, over_fresh)
    words += [f"on the stem of finding 5 {by_routing}"] if by_routing else []
    adds = [bool((mean.difference.high[fresh] < 0).all()), *(gain.low > 0 for gain in gains)]
    takes = [gain.high < 0 for gain in gains]
    return Finding(
        "Poses turn less lawfully than pixels do, and training need not help",
        bool(
            holds
            and mean.difference.low[pixels] > 0
            and len(others) == len(routings)
            and any(adds)
            and any(takes)
        ),
        f"An affine map, fitted on {result.fit_counts[-1]} training images of a class, tells its "
        f"pose after a rotation by up to 30° from the pose before: R² {mean[0]:.2f} of what varies "
        f"within a class, on {result.n:,} test images. As many principal components of the pixels, "
        f"{percent(result.variance_kept[pixels, turn])} of their variance, have "
        f"{mean[pixels]:.2f}. Training adds to it in some networks, also where nothing is "
        "routed, and takes from it in others.",
        picture(one),
        "R² of affine maps by size of the warp",
        "; ".join(
            f"{names[k].removeprefix('mnist ')} {mean[k]:.2f}"
            for k in range(1, len(names))
            if k not in (pixels, *fresh[1:])
        ),
        seeds([f"R² less that freshly initialised, {'; '.join(words)}"] if words else []),
        "poses that are told better than as many components of the pixels",
        [one.source, *files, *others],
    )


def affine() -> Finding:
    """Beyond the trained places, networks that pool are far ahead."""
    one = of_figure("affnist.json")
    result = one.result
    others = [k for k, name in enumerate(result.networks) if name in ("average", "resnet")]
    capsnet = result.networks.index("capsnet")
    less = result.beyond.difference
    listed = "; ".join(f"{result.networks[k]} {result.beyond[k]:.1%}" for k in others)
    inside = "; ".join(f"{result.networks[k]} {result.within[k]:.1%}" for k in (capsnet, *others))
    far, outer, files = _beyond(SLIM, ("pooled-10-epochs", "dynamic-10-epochs"))
    longer, more = _trained_longer()
    apart, others_files = _shared_matrices()
    return Finding(
        "Trained alike, capsules fall behind pooling beyond the trained places",
        bool((less.low[others] > 0).all() and all(far[0].low > one.high for one in far[1:])),
        f"Trained on shifted digits alone, stopped at {percent(result.target)}, networks read "
        "digits turned, sheared, scaled, moved further: capsnet "
        f"{result.beyond[capsnet]:.1%}, {listed}.{longer}",
        "affnist",
        "Accuracy on affine digits, within and beyond the trained places",
        f"within the trained places {inside}",
        f"one training run of each; on the stem of finding 5 {outer}{apart}",
        "CapsNets that are ahead beyond over several seeds",
        [one.source, *files, *more, *others_files],
    )


def _trained_longer() -> tuple[str, list[str]]:
    """What networks that were trained in full read beyond, in words, and the file."""
    full = shipped("affine-mnist-resnet-mnist-attention-*.json")
    if full is None:
        return "", []
    result, beyond = full.result, full.result.accuracy[:, 2]
    capsules, pooled = map(result.networks.index, ("mnist-attention", "mnist-resnet"))
    words = f"`mnist-attention` {beyond[capsules]:.1%}, `mnist-resnet` {beyond[pooled]:.1%}"
    return f" Trained in full, on other variants: {words}.", [full.source]


def _shared_matrices() -> tuple[str, list[str]]:
    """What one matrix for all children does beyond, with routing and without, in words, and files.

    Nothing where it lifts no accuracy.
    """
    names = [f"{r}-{m}" for r in ("dynamic", "uniform") for m in ("own", "shared")]
    each, _, files = _beyond("mnist-narrow-", names)
    if len(each) < len(names) or any(each[k].high >= each[k + 1].low for k in (0, 2)):
        return "", []
    own, shared, even, even_shared = (f"{one:.1%}" for one in each)
    return (
        f". One matrix for all children lifts a CapsNet from {own} to {shared}, with even "
        f"couplings from {even} to {even_shared}, 3 each"
    ), files


def _beyond(recipe: str, names: Sequence[str]) -> tuple[list[Estimate], str, list[str]]:
    """Accuracies beyond the trained places of the runs of some recipes, in words, and files."""
    each: list[Estimate] = []

    def take(of):
        ((_, accuracy),) = columns.beyond(of)
        each.append(accuracy)
        return accuracy, ".1%", True

    words, files = slim("affine", names, take, recipe=recipe)
    return each, words, files


def broken() -> Finding:
    """A broken digit is noticed by what has no parts as well."""
    one = of_figure("parts-mnist-*-images.json")
    result = one.result
    auroc = result.auroc[:, result.kinds.index("quarters exchanged")]
    other, nearest = map(result.scores.index, ("mnist-resnet: largest score", NEAREST))
    halves, moved = (result.beyond[:, list(OF).index(kind)] for kind in (HALVES, MOVED))
    return Finding(
        "A network without capsules notices broken digits as well",
        bool(
            (auroc.low[[0, other, nearest]] > 0.9).all()
            and halves.low[other] > 0
            and halves.value[other] >= halves.value[0]
            and moved.low[other] > 0
        ),
        "The length of the longest capsule tells a digit with its quarters exchanged from the "
        f"intact one with AUROC {auroc[0]:.3f}, on {result.n:,} images. Beyond halves of one class "
        f"it tells halves of two by {halves[0]:+.3f}, a ResNet by {halves[other]:+.3f}; beyond "
        f"whole digits moved by 2 px a lower half so moved by {moved[0]:+.3f}, a ResNet by "
        f"{moved[other]:+.3f}.",
        picture(one),
        "AUROC by score",
        f"quarters exchanged, {result.scores[other]} {auroc[other]:.3f}; {NEAREST} "
        f"{auroc[nearest]:.3f}",
        "one training run of each",
        "a way of breaking that only capsules notice, and not where the whole is so treated",
        [one.source],
    )


def detection() -> Finding:
    """Reconstruction detects what does not know of it."""
    one = of_figure("detect-mnist-*-images.json")
    result = one.result
    by_kind = {
        kind: [k for k, one in enumerate(result.kinds) if one == kind]
        for kind in ("attack", "adaptive")
    }
    known, unknown = by_kind["adaptive"][-1], by_kind["attack"]
    average = result.scores.index("class average")

    evaded = []

    def missed(of):
        adaptive = [k for k, kind in enumerate(of.kinds) if kind == "adaptive"]
        attacks = [k for k, kind in enumerate(of.kinds) if kind == "attack"]
        worst = attacks[int(np.argmax(of.undetected.value[attacks]))]
        evaded.append(f"{of.undetected[worst]:.1%} under {of.sets[worst]}")
        return of.undetected[adaptive[-1]], ".1%", of.undetected[adaptive[-1]].low > 0.5

    words, files, holds = over_runs("detect", "Result", missed)
    worst = unknown[int(np.argmax(result.undetected.value[unknown]))]
    return Finding(
        "Detection by reconstruction does not stop the attack that knows of it",
        bool(holds and result.undetected.low[known] > 0.5 and result.undetected.high[worst] < 0.1),
        f"Images whose winning capsule draws something else are flagged. Of {result.n} under FGSM "
        f"and PGD at most {result.undetected[worst]:.1%} are misread and not flagged; under "
        f"{result.sets[known]}, which lowers the reconstruction error too, "
        f"{result.undetected[known]:.1%}.",
        picture(one),
        "AUROC and undetected share by attack",
        f"unchanged images flagged {result.flagged[0]:.1%}; AUROC under R-PGD: winning capsule "
        f"{result.auroc[known - 1, 0]:.2f}, average image {result.auroc[known - 1, average]:.2f}",
        seeds([f"{w}, and {e}" for w, e in zip(words, evaded, strict=True)]),
        "a detector that holds when the attack knows it",
        [one.source, *files],
    )
