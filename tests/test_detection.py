"""Detection: distances, thresholds and areas are those computed the slow way."""

import numpy as np
import pytest
import torch
from conftest import build_tiny
from sklearn.metrics import roc_auc_score

from capsviz import detection


def test_the_distance_is_the_norm_of_the_pixel_difference(tiny_images):
    made = tiny_images.flip(0)
    found = detection.distance(tiny_images, made)
    for i in range(8):
        pixels = (tiny_images[i] - made[i]).numpy().ravel()
        assert float(found[i]) == pytest.approx(np.sqrt((pixels**2).sum()), rel=1e-5)


def test_the_threshold_leaves_five_percent_of_validation_above_it():
    distances = np.random.default_rng(0).permutation(np.arange(1000.0))
    limit = detection.threshold(distances)
    assert (distances > limit).sum() == 50


@pytest.mark.parametrize("percentile", [0, 100, -5, float("nan")])
def test_a_percentile_that_is_none_is_refused(percentile):
    with pytest.raises(ValueError, match="between 0 and 100"):
        detection.threshold(np.ones(3), percentile)


def test_no_validation_images_are_refused():
    with pytest.raises(ValueError, match="got none"):
        detection.threshold(np.zeros(0))


def test_the_area_is_that_of_scikit_learn_also_with_ties():
    draws = np.random.default_rng(1)
    clean, suspect = draws.integers(0, 9, (4, 30)), draws.integers(3, 12, (4, 17))
    found = detection.auroc(clean, suspect)
    for s in range(4):
        truth = [0] * 30 + [1] * 17
        assert found[s] == pytest.approx(roc_auc_score(truth, [*clean[s], *suspect[s]]))


def test_resampled_areas_are_those_of_images_drawn_together(monkeypatch):
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


def test_resamples_do_not_depend_on_how_many_are_ranked_at_a_time(monkeypatch):
    scores = np.random.default_rng(5).normal(size=(2, 2, 10))
    whole = detection.auroc_resampled(*scores, paired=True)
    monkeypatch.setattr(detection, "RANKED", 1)
    assert np.array_equal(detection.auroc_resampled(*scores, paired=True), whole)


def test_look_gives_the_winning_capsules_distance(network, tiny_images):
    lengths, far = detection.look(network, tiny_images)
    seen = network.look(tiny_images, keep=("poses", "lengths"))
    made = network.decode(seen["poses"][-1], seen["lengths"].argmax(1))
    assert torch.allclose(lengths, seen["lengths"], atol=1e-5)
    assert torch.allclose(far, (made - tiny_images).square().sum((1, 2, 3)).sqrt(), atol=1e-4)


def test_gradients_of_the_distance_are_those_of_finite_differences(network, tiny_images):
    network, image = network.double(), tiny_images[:1].double()
    if hasattr(network, "decoder"):
        network.requires_grad_(False)
    image.requires_grad_()
    (gradient,) = torch.autograd.grad(detection.look(network, image)[1].sum(), image)
    direction = torch.randn(image.shape, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        ahead, behind = (detection.look(network, image + s * 1e-6 * direction)[1] for s in (1, -1))
    slope = float((ahead - behind) / 2e-6)
    assert float((gradient * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def test_networks_without_capsules_or_decoder_are_refused(tiny_images):
    with pytest.raises(ValueError, match="no capsules"):
        detection.look(torch.nn.Linear(2, 2), tiny_images)
    with pytest.raises(ValueError, match="no decoder"):
        detection.look(build_tiny(reconstruction_weight=0.0), tiny_images)
