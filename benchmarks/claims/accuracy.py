"""Claims on what the shipped networks read, and on parity with a literal network."""

import json

from benchmarks import RESULTS
from benchmarks import parity as parity_of
from benchmarks.claims.claim import DESCRIPTION, ROOT, RUN, Claim, Missing, needs, signed
from capsviz import checkpoint, discovery
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.words import number


def cards() -> dict[str, dict]:
    """The card of every shipped network."""
    folder = discovery.folder("capsviz.trained")
    return {
        name: checkpoint.read_card(folder / f"{name}.safetensors") for name in checkpoint.shipped()
    }


def networks():
    """Test accuracy of each shipped network."""
    known = cards()
    for name, card in known.items():
        test, dataset = _test(card), card["dataset"]["name"]
        others = [
            f"`{other}` {_test(one):.2%}"
            for other, one in known.items()
            if other != name and one["dataset"]["name"] == dataset
        ]
        things = card["dataset"].get("things", 1)
        what = "all digits of" if things > 1 else ""
        note = "; a digit is in several images, so the interval is too narrow" * (things > 1)
        note += f"; {notice}" if (notice := card["dataset"].get("notice")) else ""
        yield Claim(
            f"`{name}` reads {what} {number(float(test.value), '.2%')} of {test.n:,} test images "
            f"of {dataset} right.".replace("  ", " "),
            f"{test:.2%}, Wilson's, over images, which leaves out how seeds differ{note}",
            f"trained/{name}.json",
            "results.test.accuracy",
            "; ".join(others) or DESCRIPTION,
            f"{RUN} ({card['training']['epochs']} epochs)",
            f"`capsviz evaluate --checkpoint {name}` giving another number for the weights of this "
            "digest; a second training run outside the interval",
        )


def _test(card) -> Estimate:
    test = card["results"]["test"]
    return Estimate(test["accuracy"], test["accuracy_ci95"], test["n"])


def limits():
    """What `predict` calls unlike the training data."""
    for name, card in cards().items():
        limits = card.get("thresholds")
        if not limits or "share" not in limits:
            yield Missing(
                f"Limits of `{name}` beyond which pictures are unlike", f"trained/{name}.json"
            )
            continue
        kept = ", ".join(
            f"{what} {'≥' if what == 'length' else '≤'} {limits[what]:.3f}"
            for what in ("length", "distance")
            if limits.get(what) is not None
        )
        yield Claim(
            f"`capsviz predict` with `{name}` calls {number(limits['share'], '.0%')} of the "
            f"{limits['split']} images unlike the training data.",
            f"{kept}; no interval: {number(limits['share'], '.0%')} of {limits['n']:,} by "
            "construction, a rate of false alarms",
            f"trained/{name}.json",
            "thresholds",
            DESCRIPTION,
            str(RUN),
            "a share of test images flagged that is clearly another",
        )
    yield Missing("The share of foreign pictures that `capsviz predict` flags", "figures/predict-*")


@needs("Accuracy of turned images", "rotate-*-images.json")
def rotation(one):
    """The curve of one network."""
    result = one.result
    left, right = result.accuracy[0], result.accuracy[-1]
    upright = result.accuracy[int(abs(result.angles_deg).argmin())]
    yield Claim(
        f"Turned by {result.angles_deg[0]:g}° and {result.angles_deg[-1]:g}°, "
        f"{number(float(left.value), '.1%')} and {number(float(right.value), '.1%')} of the images "
        f"are read right; upright {number(float(upright.value), '.1%')}.",
        f"{left:.1%}; {right:.1%}; upright {upright:.1%}",
        one.source,
        "accuracy",
        f"{DESCRIPTION}; beside other networks in the sweep below",
        one.runs,
        "accuracy at these angles near that of upright images",
    )


def parity():
    """Is accuracy the price of speed?"""
    path = RESULTS / "parity.json"
    results = json.loads(path.read_text("utf-8"))
    summary = results["summary"]
    gap = parity_of.paired(summary)
    means = {name: number(value, ".2%") for name, value in summary["mean_accuracy"].items()}
    spread = summary["literal_spread"]
    inside = float(gap.low) >= -spread and float(gap.high) <= spread
    as_many = "reads as many" if inside else "is not shown to read as many"
    yield Claim(
        f"Trained for {results['runs'][0]['epochs']} epochs, capsviz in bf16 {as_many} test "
        f"images right as the literal network in fp32, within {100 * spread:.2f} points, the range "
        "of the literal network's seeds.",
        f"{signed(gap, '.2f')}, paired by seed (Student's t)",
        path.relative_to(ROOT).as_posix(),
        "summary.gap_by_seed",
        f"the literal network, {means['literal']}; capsviz {means['capsviz']}",
        f"{gap.n} of each; short ones, which say nothing of training to the end",
        "a gap, over more seeds or a full training, whose interval leaves zero",
    )
