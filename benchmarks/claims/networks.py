"""Claims that set networks beside one another: warps, corruptions, affine digits, detection."""

import numpy as np

from benchmarks.claims.claim import RUN, Claim, Missing, needs, signed, stands
from capsviz.analyses import affnist as analysis
from capsviz.analyses.affnist.series import SHIPPED
from capsviz.analyses.sweep.measure import GRID_PX
from capsviz.analyses.sweep.words import unequal
from capsviz.experiments import affnist as experiment
from capsviz.statistics.words import number

AFFNIST = "trained/affnist"
SEEDS = "a second training run of each: one cannot speak of kinds of networks"


@needs("Networks under warps", "sweep-*-images.json")
def sweep(one):
    """Mean accuracy over all sizes, and under the worst of a grid."""
    result = one.result
    first, low, high = result.names[0], *result.sizes[[0, -1]]
    for k, name in enumerate(result.names[1:], 1):
        sizes = ", ".join(f"{size:+g}{result.unit}" for size in result.sizes[unequal(result, k)])
        yield Claim(
            f"Over {result.warp} from {low:g}{result.unit} to {high:g}{result.unit} `{name}` is "
            f"right {stands(result.area.difference[k])} often than `{first}`; by size, at "
            f"{sizes or 'none'}.".replace("differ often than", "differ in how often from"),
            f"{signed(result.area.difference[k])}, paired, n = {result.n:,}",
            one.source,
            "area, mcnemar_p",
            f"`{first}` {result.area[0]:.1%}; `{name}` {result.area[k]:.1%}",
            f"{RUN} of each network",
            SEEDS,
        )
        if result.worst is None:
            continue
        yield Claim(
            f"Under every warp of a grid `{name}` is right {stands(result.worst.difference[k])} "
            f"often than `{first}`.".replace("differ often than", "differ in how often from"),
            f"{signed(result.worst.difference[k])}, paired, {9 * result.grid} warps",
            one.source,
            "worst",
            f"`{first}` {result.worst[0]:.1%}; `{name}` {result.worst[k]:.1%}",
            f"{RUN} of each network",
            f"{SEEDS}; a grid within the trained places that leaves no gap, for this one shifts by "
            f"{max(GRID_PX):g} px",
        )


@needs("Networks under corruptions", "corrupt-*-images.json")
def corrupt(one):
    """Mean error, mCE, and the ratio of sums."""
    result = one.result
    base = result.networks.index(result.baseline)
    for k, name in enumerate(result.networks):
        if k == base:
            continue
        clean = (
            f"clean `{result.baseline}` {result.clean[base]:.1%}, `{name}` {result.clean[k]:.1%}"
        )
        yield Claim(
            f"Over {len(result.corruptions)} corruptions `{name}` errs "
            f"{number(float(result.mean.value[k]), '.1%')}, {stands(result.mean.difference[k])} "
            f"than `{result.baseline}`.".replace("differ than", "differ from"),
            f"{result.mean[k]:.1%}; difference {signed(result.mean.difference[k])}, paired",
            one.source,
            "mean",
            f"`{result.baseline}` {result.mean[base]:.1%}; {clean}",
            f"{RUN} of each network",
            f"{SEEDS}; the published files of MNIST-C, of which these are other draws",
        )
        if result.mce is not None:
            value, interval = float(result.mce.value[k]), result.mce.ci95[k]
            known = np.isfinite(interval).all()
            yield Claim(
                f"Its mCE, the mean over corruptions of the ratio of errors (Hendrycks & "
                f"Dietterich), is {number(value, '.1%')}.",
                f"{result.mce[k]:.1%}"
                if known
                else f"{number(value, '.1%')}; no interval in this file",
                one.source,
                "mce",
                f"`{result.baseline}` {number(float(result.mce.value[base]), '.1%')} by "
                f"definition; relative total error {result.total[k]:.1%}",
                f"{RUN} of each network",
                "corruptions that the baseline hardly notices rule this mean: without them it is "
                "another",
            )
        yield Claim(
            f"Its relative total error, the ratio of the sums of errors, is "
            f"{number(float(result.total.value[k]), '.1%')}.",
            f"{result.total[k]:.1%}",
            one.source,
            "total",
            f"`{result.baseline}` {number(float(result.total.value[base]), '.1%')} by definition",
            f"{RUN} of each network",
            SEEDS,
        )


@needs("Detection of suspect images", "detect-*-images.json")
def detect(one):
    """AUROC by the winning capsule's reconstruction, against the class's average image."""
    result = one.result
    k = result.scores.index("class average")
    for i, name in enumerate(result.sets):
        if result.kinds[i] == "clean":
            continue
        own, control, gain = (
            result.auroc[i - 1, 0],
            result.auroc[i - 1, k],
            result.gain[i - 1, k - 1],
        )
        better = {"more": "better than", "less": "worse than"}.get(
            stands(gain), "not shown to be other than"
        )
        flagged, clean = (float(result.flagged.value[j]) for j in (i, 0))
        fails = (
            f"the detector fails, flagging {number(flagged, '.0%')} and of unchanged images "
            f"{number(clean, '.0%')}; "
            if flagged <= clean
            else ""
        )
        turned = " (below 0.5: the suspects lie nearer to it)" if control.high < 0.5 else ""
        yield Claim(
            f"{name}: {fails}AUROC of the distance to the reconstruction "
            f"{float(own.value):.2f}, {better} that to the class's average image{turned}; "
            f"{number(float(result.undetected.value[i]), '.0%')} are misread and not flagged.",
            f"{own:.2f}; less the control {gain:+.2f}, paired; undetected "
            f"{result.undetected[i]:.1%}; n = {result.n}",
            one.source,
            "auroc, gain, undetected",
            f"class average {control:.2f}; "
            + "; ".join(
                f"{score} {result.auroc.value[i - 1, j]:.2f}"
                for j, score in enumerate(result.scores)
                if j not in (0, k)
            ),
            one.runs,
            "a stronger attack that knows the detector and leaves more undetected: the share of "
            "the worst attack is a lower bound"
            if result.kinds[i] in ("attack", "adaptive")
            else "the control, on more images, separating as well",
        )


def affnist():
    """Accuracy within and beyond the trained places, and what each factor costs."""
    result = analysis.shipped()
    if result is None:
        yield Missing("Affine digits", AFFNIST)
        return
    field, names = "affnist_like, by analyses.affnist.compute", result.networks
    epochs = {}
    for one in experiment.read(SHIPPED):
        key = one["network"], one["state"]
        epochs[key] = ", ".join([*filter(None, [epochs.get(key)]), str(one["training"]["epoch"])])
    for k, name in enumerate(names):
        gap = result.affine.difference[k]
        if not np.isfinite(gap.value):
            continue
        reference, state = names[0], result.states[k]
        first = list(zip(names, result.states, strict=True)).index((reference, state))
        runs = "; ".join(
            f"{len(result.seeds[row])} of `{one}`, stopped in epoch {epochs[one, state]}"
            for one, row in ((name, k), (reference, first))
        )
        runs += "; the difference is of the seeds of both"
        several = min(len(result.seeds[row]) for row in (k, first)) > 1
        more = "further training runs of the two that are not so far apart" if several else SEEDS
        head = f"`{name}` reads {number(float(result.affine.value[k]), '.1%')} of affine digits"
        tests = f"shifted test digits {result.test[k]:.2%}, {reference} {result.test[first]:.2%}"
        yield Claim(
            f"{head}, {stands(gap)} often right than `{reference}`.".replace(
                "not shown to differ often right than", "not shown to differ from"
            ),
            f"{signed(gap)}, paired, n = {result.n:,}",
            AFFNIST,
            field,
            f"`{reference}` {result.affine[first]:.1%}; {tests}",
            runs,
            f"{more}; it is not robustness to affine maps, see within and beyond",
        )
        if result.within is None:
            continue
        within, beyond = result.within, result.beyond
        yield Claim(
            f"Within the trained places `{name}` is {signed(within.difference[k])} from "
            f"`{reference}`, beyond them {signed(beyond.difference[k])}.",
            f"within {within[k]:.1%}; beyond {beyond[k]:.1%}; "
            f"{number(result.share_beyond, '.0%')} of the images lie beyond",
            AFFNIST,
            field,
            f"`{reference}` {within[first]:.1%} within, {beyond[first]:.1%} beyond",
            runs,
            "a like gap within and beyond the places",
        )
        lost = "; ".join(
            f"{factor} {100 * result.lost[k, f]:.1f} "
            f"({number(float(result.lost_share.value[k, f]), '.0%')})"
            for f, factor in enumerate(result.factors)
        )
        base = "; ".join(
            f"{factor} {number(float(result.lost_share.value[first, f]), '.0%')}"
            for f, factor in enumerate(result.factors)
        )
        yield Claim(
            f"Of the points that `{name}` loses on affine digits, "
            f"{number(float(result.lost_share.value[k, 0]), '.0%')} are lost to place.",
            f"points lost (share): {lost}",
            AFFNIST,
            field,
            f"`{reference}`: {base}",
            runs,
            "another fit than this logistic one that divides them otherwise",
        )
