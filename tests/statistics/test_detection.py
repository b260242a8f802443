"""Detection: thresholds, limits and AUROC against slow computations."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from capsviz.statistics import detection


def test_the_threshold_leaves_five_percent_of_validation_above_it():
    distances = np.random.default_rng(0).permutation(np.arange(1000.0))
    limit = detection.threshold(distances)
    assert (distances > limit).sum() == 50


def test_no_validation_images_are_refused():
    for none in (np.zeros(0), np.array([1, np.nan])):
        with pytest.raises(ValueError, match="needs distances of validation images"):
            detection.threshold(none)


def test_auroc_equals_scikit_learn_also_with_ties():
    draws = np.random.default_rng(1)
    clean, suspect = draws.integers(0, 9, (4, 30)), draws.integers(3, 12, (4, 17))
    found = detection.auroc(clean, suspect)
    for s in range(4):
        truth = [0] * 30 + [1] * 17
        assert found[s] == pytest.approx(roc_auc_score(truth, [*clean[s], *suspect[s]]))


def test_resampled_aurocs_equal_scikit_learn_on_the_drawn_images(monkeypatch):
    draws = np.random.default_rng(2)
    clean = draws.normal(size=(2, 11))
    suspect = clean + draws.normal(0.5, size=(2, 11))
    monkeypatch.setattr(detection, "RESAMPLES", 5)
    found = detection.auroc_resampled(clean, suspect, paired=True, seed=3)
    picked = np.random.default_rng(3).integers(11, size=(5, 11))
    for b, images in enumerate(picked):
        for s in range(2):
            scores = [*clean[s][images], *suspect[s][images]]
            assert found[b, s] == pytest.approx(roc_auc_score([0] * 11 + [1] * 11, scores))


def test_pairs_are_drawn_together_and_other_images_apart():
    scores = np.random.default_rng(4).normal(size=(1, 40))
    assert (detection.auroc_resampled(scores, scores, paired=True) == 0.5).all()
    apart = detection.auroc_resampled(scores, scores, paired=False)
    # sd of an area under the null hypothesis: sqrt((n + m + 1) / (12 n m))
    assert apart.std() == pytest.approx(np.sqrt(81 / (12 * 1600)), rel=0.15)


@pytest.mark.parametrize("n", [1, 7, 20, 180, 1000])
def test_joint_limits_flag_almost_the_share_and_never_more(n):
    draws = np.random.default_rng(n)
    first = draws.normal(size=n)
    scores = {"a": first, "b": np.exp(first + draws.normal(size=n)), "c": draws.integers(4, size=n)}
    for names in (("a",), ("a", "b"), ("a", "b", "c")):
        limits = detection.joint_limits({name: scores[name] for name in names}, 0.1)
        beyond = np.mean([scores[name] > limits[name] for name in names], 0)
        assert (beyond > 0).mean() <= 0.1
        if "c" not in names:  # no ties: one rank lower flags more
            lower = {
                k: np.max(scores[k][scores[k] < v], initial=-np.inf) for k, v in limits.items()
            }
            assert np.any([scores[k] > lower[k] for k in names], 0).mean() > 0.1


def test_an_unknown_limit_is_not_crossed():
    assert detection.Limits().crossed(0.0, 99.0) == []
    assert detection.Limits(length=0.5).crossed(0.4, None) == ["length"]
    assert detection.Limits(0.5, 4.0).crossed(0.5, 4.0) == []
    assert detection.Limits(0.5, 4.0).crossed(0.4, 4.1) == ["length", "distance"]


def test_pairs_of_unequal_numbers_are_refused():
    clean, suspect = np.zeros((1, 3)), np.ones((1, 4))
    with pytest.raises(ValueError, match="expected a suspect image of each of 3 clean ones, got 4"):
        detection.told_apart(clean, suspect, paired=True)


def test_the_smaller_set_determines_the_width_of_an_interval():
    draws = np.random.default_rng(0)
    many, few = draws.random((1, 2000)), 2 + draws.random((1, 3))
    for pair in ((many, few), (-few, -many)):
        found = detection.told_apart(*pair, paired=False)
        assert found.value[0] == 1 and found.n == 3 and found.low[0] < 0.6


def test_a_limit_that_flags_all_images_is_the_lowest_score():
    assert detection.joint_limits({"a": np.arange(10.0)}, share=1.0) == {"a": 0.0}
