"""Several training runs: simulated coverage of intervals, and combined results."""

from typing import NamedTuple

import numpy as np
import pytest

from capsviz.statistics import replicates, runs
from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import mean_interval, paired_each, wilson_each

TIMES = 1500  # simulated papers


def simulated(S, n, of_run, of_image, of_both, *, common, seed=0):
    """Return S estimates (TIMES,) of 0, with normal effects of runs, images and both."""
    generator = np.random.default_rng(seed)
    image = generator.normal(0, of_image, (n, TIMES))
    counts = draw_resamples(n, resamples=150) / n
    runs = []
    for _ in range(S):
        effects = generator.normal(0, of_run, TIMES) + generator.normal(0, of_both, (n, TIMES))
        value, ci95 = mean_interval(image + effects)
        runs.append(Estimate(value, ci95, n, draws=counts @ (image + effects) if common else None))
    return runs


def covered(estimate) -> float:
    return float(((estimate.low <= 0) & (estimate.high >= 0)).mean())


SOURCES = {
    "images alone": (0, 1, 0),
    "runs alone": (1, 0, 0.01),
    "each run its own errors": (0, 0, 1),
    "runs and images": (0.15, 1, 0),
    "all three": (0.1, 1, 1),
    "a little of runs": (0.1, 0, 1),
}


@pytest.mark.parametrize("sources", SOURCES.values(), ids=SOURCES)
@pytest.mark.parametrize("S", [3, 10])
def test_intervals_cover_the_true_mean(S, sources):
    made = simulated(S, 100, *sources, common=True)
    whole = runs.combine(made)
    assert 0.935 <= covered(whole) <= 1
    unknown = runs.combine([Estimate(one.value, one.ci95, one.n) for one in made])
    assert covered(unknown) >= covered(whole) - 0.002
    assert ((unknown.high - unknown.low) >= (whole.high - whole.low) - 1e-9).mean() > 0.99


@pytest.mark.parametrize(("sources", "low", "high"), [
    ((0, 1, 0), 0, 0), ((1, 0, 0.01), 0.99, 1), ((0.1, 1, 0), 0.3, 0.6), ((0, 0, 1), 0, 0.15),
])  # fmt: skip
def test_the_share_of_the_variance_between_runs(sources, low, high):
    """The truth is 0, 1, 1/2 (a tenth of a standard deviation of 100 images), and 0."""
    share = np.median(runs.combine(simulated(10, 100, *sources, common=True)).between)
    assert low - 1e-9 <= share <= high + 1e-9


def test_intervals_of_shares_stay_between_0_and_1():
    right = np.array([49, 50, 50, 44, 50])
    made = [Estimate(k / 50, wilson_each(k, 50), 50) for k in right]
    whole = replicates.within_one(made)
    assert whole.high == 1 and whole.low < 0.95 and whole.n == 50
    assert runs.combine(made).high > 1  # of what is not known to be a share


def test_an_interval_of_a_difference_may_go_below_zero_even_if_no_run_does():
    made = []
    for gained, lost in ((2, 0), (1, 1), (1, 0)):
        ends = paired_each(np.array([gained]), np.array([lost]), 100)
        less = Estimate(np.array([(gained - lost) / 100]), ends, 100)
        made.append(Estimate(np.array([0.5]), np.array([[0.4, 0.6]]), 100, less))
    less = replicates.within_one(made).difference
    assert -0.04 < less.low[0] < -0.01 and 0.03 < less.high[0] < 0.06
    wide = Estimate(0.5, (0.4, 0.6), 100, Estimate(0.9, (-0.8, 1), 100))
    other = Estimate(0.5, (0.4, 0.6), 100, Estimate(-0.9, (-1, 0.8), 100))
    ends = replicates.within_one([wide, other]).difference.ci95
    assert ends.tolist() == [-1, 1]  # of differences of shares


def test_zero_change_in_every_run_keeps_both_margins():
    none = np.zeros((1, 200))
    whole = runs.combine([compare_changes(none, none, draw_resamples(200)) for _ in range(3)])
    assert whole.low < -0.005 and whole.high > 0.005


def test_shares_near_one_are_covered():
    """Five networks with accuracies of about 99 % on 360 images, with independent errors."""
    generator, n, S = np.random.default_rng(0), 360, 5
    counts, hit, true = draw_resamples(n, resamples=100), 0, 0
    hard = generator.beta(0.05, 2.5, 100_000)
    true = 1 - hard.mean()
    for _ in range(200):
        chance = hard[generator.integers(len(hard), size=n)]
        made = [compare_means(generator.random((1, n)) > chance, counts)[0] for _ in range(S)]
        whole = runs.combine(made)
        hit += whole.low <= true <= whole.high
    assert hit >= 0.93 * 200


def test_differences_are_combined_as_pairs():
    def one(k):
        less = Estimate(0.1, (0.09, 0.11), 50)  # the same in every run, whose levels differ
        return Estimate(0.5 + 0.1 * k, (0.4 + 0.1 * k, 0.6 + 0.1 * k), 50, less)

    whole = runs.combine([one(k) for k in range(4)])
    assert whole.high - whole.low > 0.3
    assert np.isclose(whole.difference.high - whole.difference.low, 0.02)


def test_estimates_that_cannot_be_combined_are_refused():
    one = Estimate(0.5, (0.4, 0.6))
    with pytest.raises(ValueError, match="expected at least 2 training runs, got 1"):
        runs.combine([one])
    with pytest.raises(ValueError, match=r"unequal shapes: \(\), \(1,\)"):
        runs.combine([one, stack([one])])


class Result(NamedTuple):
    """Every kind of field."""

    share: Estimate
    each: list
    table: dict
    by_type: Estimate
    p: np.ndarray
    wrong: int
    names: list
    nothing: None = None


def result(k):
    def one(value):
        return Estimate(value, (value - 0.1, value + 0.1), 10)

    p = np.array([0.1, 0.5 - 0.2 * k])
    each, table = [one(0.1), one(k)], {"a": one(k)}
    return Result(one(0.5 + 0.1 * k), each, table, one(k), p, k, ["net"])


def test_a_result_is_combined_field_by_field():
    rules = {"p": replicates.largest, "by_type": None}
    whole, of_first = replicates.over_runs([result(k) for k in range(3)], rules)
    assert np.isclose(whole.share.value, 0.6) and whole.share.runs.shape == (3,)
    assert [len(one.runs) for one in (*whole.each, *whole.table.values())] == [3, 3, 3]
    assert whole.by_type.runs is None and whole.by_type.value == 0
    assert whole.p.tolist() == [0.1, 0.5] and whole.wrong == 0 and whole.names == ["net"]
    assert of_first == ["by_type", "wrong"]


def test_results_that_do_not_match_are_refused():
    other = result(1)._replace(each=[])
    with pytest.raises(ValueError, match="each: the runs do not have the same estimates"):
        replicates.over_runs([result(0), other])
    with pytest.raises(ValueError, match="share: some of the runs have none"):
        replicates.over_runs([result(0), result(1)._replace(share=None)])


def test_the_description_names_the_number_of_runs():
    (line,) = replicates.words(result(0))
    assert line.startswith("one training run: intervals are over images")
    assert "one training run of each network" in replicates.words(result(0), networks=3)[0]
    assert replicates.words(result(0), trained=False)[0].startswith("one set of weights:")
    whole, of_first = replicates.over_runs([result(k) for k in range(3)])
    about = {"recipe": "net", "seeds": [0, 1, 4], "of_first": of_first}
    first, second = replicates.words(whole, about=about)
    assert first.startswith("3 training runs of net (seeds 0, 1, 4)")
    assert second == "of the first run alone: p, wrong"


class Tables(NamedTuple):
    """Dicts and lists of arrays."""

    steps: dict
    ranks: list
    change: dict
    share: Estimate


def tables(k, steps=(1, 2)):
    change = {kind: Estimate(0.1 * k, (0.0, 0.2 * k)) for kind in ("types", "positions")}
    return Tables({"a": np.array(steps)}, [{"b": np.array([np.nan])}], change, Estimate(k, (k, k)))


def test_dicts_of_arrays_are_compared_and_have_rules_by_key():
    same = [tables(k) for k in range(3)]
    whole, of_first = replicates.over_runs(same, {"change": {"types": None}})
    assert whole.change["types"].runs is None and len(whole.change["positions"].runs) == 3
    assert of_first == ["change (types)"] and whole.steps is same[0].steps
    other = [tables(0), tables(1, (1, 3))]
    whole, of_first = replicates.over_runs(other, {"steps": replicates.mean})
    assert whole.steps["a"].tolist() == [1, 2.5] and of_first == []


def test_dicts_and_lists_of_estimates_are_clipped_to_the_range():
    def row(value):
        less = Estimate(-value, (-value, -value))
        return [{"a": Estimate(value, (value, value), difference=less)}, None]

    parts = [row(0.05), row(0.95)]
    kept, below = replicates.within_one(parts)[0]["a"], replicates.at_most_one(parts)[0]["a"]
    assert kept.ci95.tolist() == [0, 1] and kept.difference.ci95.tolist() == [-1, 1]
    assert below.high == 1 and below.low < 0 and replicates.within_one(parts)[1] is None


def test_estimates_with_a_run_outside_the_range_keep_their_interval():
    """Sums of couplings of max-min routing are above 1, couplings of self-attention below 0."""
    each = [Estimate([v, 0.9], [[v - 0.02, v + 0.02], [0.8, 1]], 500) for v in (2.63, 2.69, 2.68)]
    whole = replicates.within_one(each)
    assert whole.low[0] < whole.value[0] < whole.high[0]


def test_shares_of_runs_and_their_differences_stay_in_their_range():
    draw = np.random.default_rng(0)
    counts = draw_resamples(200, seed=0)
    parts = [
        compare_means((draw.random((2, 200)) < [[0.99], [share]]).astype(float), counts)
        for share in (0.02, 0.99, 0.5)
    ]
    assert all(part.n == 200 for part in parts)
    whole = replicates.within_one(parts)
    assert whole.ci95[1].tolist() == [0.0, 1.0] and whole.high[0] <= 1
    assert whole.difference.low[1] == -1 and whole.difference.high[1] <= 1
    scores = [compare_means(draw.random((2, 200)), counts, shares=False) for _ in range(3)]
    assert runs.combine(scores).ci95.shape == (2, 2)


def test_no_interval_over_draws_leaves_the_range_of_its_measure():
    """Two draws that differ have Student's quantile of 12.7: their interval would reach to 4.3."""
    values, ends = np.array([0.2, 0.8]), np.array([[0.1, 0.3], [0.7, 0.9]])
    drawn = [
        {"r2": Estimate(v, e), "share": Estimate(v, e, difference=Estimate(v, e))}
        for v, e in zip(values, ends, strict=True)
    ]
    bounds = {"r2": -np.inf, "share": 0.0}
    fields = runs.fields_over_draws(drawn, bounds)
    free = runs.over_draws([one["r2"] for one in drawn])
    assert free.high > 4 and free.low < -3
    assert fields["r2"].high == 1 and fields["r2"].low == free.low
    assert tuple(fields["share"].ci95) == (0, 1)
    assert tuple(fields["share"].difference.ci95) == (-1, 1)
    assert fields["r2"].value == free.value == 0.5
