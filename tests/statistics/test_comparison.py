"""Comparison: values against slow transcriptions, intervals against theory."""

import math

import numpy as np
import pytest

from capsviz.statistics import comparison
from capsviz.statistics.intervals import paired_interval, wilson

K, N = 3, 400


@pytest.fixture
def right():
    """Three networks; the second agrees with the first except for a few images."""
    draw = np.random.default_rng(3)
    first = draw.random(N) < 0.8
    second = first ^ (draw.random(N) < 0.05)
    return np.stack([first, second, draw.random(N) < 0.6])


@pytest.fixture
def counts():
    return comparison.draw_resamples(N, seed=1)


def test_every_resample_has_n_images(counts):
    assert counts.shape == (1000, N)
    assert (counts.sum(1) == N).all() and (counts >= 0).all() and (counts == counts.round()).all()
    # an image is left out of a resample with probability (1 - 1/N)^N
    assert (counts == 0).mean() == pytest.approx((1 - 1 / N) ** N, abs=0.005)


def test_means_are_those_of_images_drawn_one_by_one(right, counts):
    found = comparison.compare_means(right, counts)
    assert found.value == pytest.approx(right.mean(1))
    which = [np.repeat(np.arange(N), row.astype(int)) for row in counts]
    drawn = np.array([[one[w].mean() for one in right] for w in which])
    np.testing.assert_allclose(found.draws, drawn, atol=1e-6)
    np.testing.assert_allclose(found.difference.draws, drawn - drawn[:, :1], atol=1e-6)
    assert found.difference.value == pytest.approx(right.mean(1) - right[0].mean())
    scores = comparison.compare_means(right, counts, shares=False)
    expected = np.percentile(drawn, [2.5, 97.5], axis=0).T
    assert scores.ci95 == pytest.approx(expected, abs=1e-6)
    expected = np.percentile(drawn - drawn[:, :1], [2.5, 97.5], axis=0).T
    assert scores.difference.ci95 == pytest.approx(expected, abs=1e-6)


def test_one_error_more_never_makes_an_interval_begin_higher(counts):
    values = (np.arange(N) >= np.arange(6)[:, None]).astype(float)  # 0 to 5 wrong
    found = comparison.compare_means(values, counts)
    assert found.ci95 == pytest.approx(np.array([wilson(N - k, N) for k in range(6)]))
    assert (np.diff(found.low) < 0).all() and (found.high[1:] < 1).all()
    ends = [paired_interval(0, k, N) for k in range(1, 6)]
    assert found.difference.ci95[1:] == pytest.approx(np.array(ends))


def test_differences_are_paired(right, counts):
    found = comparison.compare_means(right, counts)
    paired = np.diff(found.difference.ci95[1])
    apart = math.hypot(*np.diff(found.ci95[:2])[:, 0])
    assert paired < 0.5 * apart
    assert (found.difference.ci95[0] == 0).all() and found.difference.value[0] == 0


def test_equal_answers_on_all_images_keep_a_wide_interval(counts):
    some = np.arange(N) < 30
    values = np.stack([some, some, np.ones(N, bool), np.zeros(N, bool)])
    found = comparison.compare_means(values, counts)
    assert found.ci95[2] == pytest.approx(wilson(N, N))
    assert found.ci95[3] == pytest.approx(wilson(0, N))
    assert found.difference.ci95[1] == pytest.approx(paired_interval(0, 0, N))
    assert (found.difference.ci95[0] == 0).all()


def test_equal_changes_on_all_images_keep_a_wide_interval(counts):
    n = counts.shape[1]
    wrong, right = np.zeros(n), np.ones(n)
    some = (np.arange(n) % 2).astype(float)
    before, after = np.stack([some, right, right, some]), np.stack([some, right, wrong, wrong])
    found = comparison.compare_changes(before, after, counts)
    np.testing.assert_allclose(found.value, [0, 0, -1, -0.5])
    for k, pair in enumerate([(0, 0), (0, 0), (0, n)]):
        assert found.ci95[k] == pytest.approx(paired_interval(*pair, n))
    assert found.ci95[3] == pytest.approx(paired_interval(0, n // 2, n))
    expected = comparison.compare_means(after - before, counts, shares=False)
    low, high = paired_interval(0, 0, n)
    np.testing.assert_allclose(found.difference.ci95[1], [2 * low, 2 * high])
    np.testing.assert_allclose(found.difference.ci95[2], [-1 + 2 * low, -1 + 2 * high])
    np.testing.assert_allclose(found.difference.ci95[3], expected.difference.ci95[3])


def test_intervals_of_clustered_shares_depend_on_the_agreement_within_clusters(counts):
    draw = np.random.default_rng(8)
    alike = np.repeat(draw.random((1, N)) < 0.9, 4, 0)  # four variants of each image
    apart = draw.random((4, N)) < 0.9
    of = np.full(N, 4)
    found = comparison.compare_shares(np.stack([alike.sum(0), apart.sum(0)]), of, counts)
    for k, size in enumerate((N, 4 * N)):
        width, expected = np.ptp(found.ci95[k]), np.ptp(wilson(found.value[k] * size, size))
        assert width == pytest.approx(expected, rel=0.03 + 0.15 * k)
    drawn = np.percentile(found.draws, [2.5, 97.5], axis=0).T
    assert found.ci95 == pytest.approx(drawn, abs=0.006)


def test_a_share_of_clusters_with_one_error_ends_below_1(counts):
    right = np.full((2, N), 2)
    right[1, 0] = 1
    found = comparison.compare_shares(right, np.full(N, 2), counts)
    assert found.ci95[0] == pytest.approx(wilson(N, N))
    assert found.ci95[1] == pytest.approx(wilson(2 * N - 1, 2 * N))


def test_a_difference_on_few_images_is_not_more_certain_than_none(counts):
    right = np.full((2, N), 2)
    right[1, :2] = 1
    less = comparison.compare_shares(right, np.full(N, 2), counts).difference
    low, high = paired_interval(0, 0, N)
    assert less.low[1] <= less.value[1] + low and less.high[1] >= less.value[1] + high > 0


def test_a_resample_without_any_variant_is_left_out():
    of = np.zeros(50)
    of[:3] = 1
    counts = comparison.draw_resamples(50)
    found = comparison.compare_shares(np.stack([of, 0 * of]), of, counts)
    assert (counts @ of == 0).any()
    assert found.difference.ci95[1] == pytest.approx([-1, -1 + paired_interval(0, 0, 3)[1]])


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (0, 6), (3, 9), (12, 12)])
def test_mcnemar_is_the_two_sided_sign_test(gained, lost):
    first = np.array([False] * gained + [True] * lost + [True, False] * 5)
    other = np.array([True] * gained + [False] * lost + [True, False] * 5)
    m, k = gained + lost, min(gained, lost)
    tail = sum(math.comb(m, i) for i in range(k + 1)) / 2**m
    assert comparison.mcnemar(first, other) == pytest.approx(min(1, 2 * tail))


def test_holm_matches_the_published_method():
    # Holm 1979: the smallest times 4, the next times 3, ..., never falling, at most 1
    found = comparison.holm(np.array([0.03, 0.005, 0.6, 0.02]))
    assert found == pytest.approx([0.06, 0.02, 0.6, 0.06])
    assert comparison.holm(np.array([0.9, 0.8])).tolist() == [1, 1]


@pytest.mark.parametrize(
    ("first", "other"), [([1], [1, 0, 1]), ([1, 0], [1, 0, 1]), ([np.nan, 0], [0, 0]), ([3], [1])]
)
def test_mcnemar_refuses_other_images_and_what_is_neither_right_nor_wrong(first, other):
    with pytest.raises(ValueError, match="expected 0 or 1 for the same images of both networks"):
        comparison.mcnemar(first, other)


def test_small_unsigned_integers_are_subtracted_as_numbers(counts):
    generator = np.random.default_rng(1)
    values = generator.integers(0, 4, (3, N)).astype(np.uint8)
    for small, whole in (
        (comparison.student_means(values.T), comparison.student_means(values.T.astype(float))),
        (
            comparison.compare_shares(values, np.full(N, 3, np.uint8), counts),
            comparison.compare_shares(values.astype(float), np.full(N, 3.0), counts),
        ),
    ):
        np.testing.assert_array_equal(small.difference.value, whole.difference.value)
        np.testing.assert_array_equal(small.difference.ci95, whole.difference.ci95)


def test_without_variance_r2_is_nan_without_a_warning(counts):
    errors = np.ones((3, N))
    errors[1] = 0
    spread = np.stack([np.zeros(N), np.zeros(N), np.full(N, 2.0)])
    found = comparison.compare_explained(errors, spread, counts)
    assert np.isnan(found.value[:2]).all() and np.isnan(found.ci95[:2]).all()
    assert found.value[2] == 0.5 and found.ci95[2] == pytest.approx([0.5, 0.5])


def test_a_difference_of_a_few_images_is_not_narrower_than_of_none():
    n = 100
    counts, before = comparison.draw_resamples(n), np.zeros((2, n))
    widths = []
    for few in range(4):
        after = before.copy()
        after[1, :few] = 1
        change = comparison.compare_changes(before, after, counts).difference
        widths.append(change.high[1] - change.low[1])
        assert change.low[1] <= few / n <= change.high[1]
    assert widths == sorted(widths)
