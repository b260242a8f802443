"""Transplant: whose votes, whose couplings, which couples, and what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import noise_images as noise
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_self_routing, build_strong
from helpers.noise_images import CLASSES, spread_out
from helpers.plain_capsnet import Foreign

from capsviz import results
from capsviz.analyses import transplant
from capsviz.analyses.transplant import measure
from capsviz.analysis import of_result
from capsviz.nn.functional import squash
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import control_couplings, trace

model, images = noise.model, noise.images_of_classes


def over(model, images, **more):
    return transplant.OverPairs().measure(model, images, classes=CLASSES, dataset="noise", **more)


def exchange(model, images, labels=(None, None), iterations=None):
    fields = measure.exchange(model, images, iterations=iterations, seed=0)
    return transplant.Result(**fields, labels=list(labels), classes=CLASSES)


@pytest.fixture(scope="module")
def many():
    """The statistics of `model` on `images`."""
    model = build_strong()
    return over(model, spread_out(model, 10, torch.Generator().manual_seed(0)))


def mixed(votes, couplings):
    """Lengths (J,) by hand: votes (I, J, E) of one image, couplings (I, J) of another."""
    total = torch.zeros(votes.shape[1:])
    for i in range(len(votes)):
        for j in range(votes.shape[1]):
            total[j] += couplings[i, j] * votes[i, j]
    return squash(total).norm(dim=1)


def test_the_votes_of_one_image_meet_the_couplings_of_the_other(model, images):
    pair = images[:2]
    traced = trace(model, pair)
    own = traced.couplings[-1]
    result = exchange(model, pair, (0, None))
    for k in range(2):
        for condition, couplings in ((0, own[k]), (1, own[1 - k]), (3, torch.full((12, 3), 1 / 3))):
            expected = mixed(traced.votes[k], couplings)
            found = result.activations[k, condition]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.maps[1], own[1].view(2, 3, 2, 3).mean(0).permute(2, 0, 1))
    np.testing.assert_allclose(result.coupling_sd, (own - 1 / 3).square().mean((1, 2)).sqrt(), 1e-5)
    assert result.labels == [0, None] and result.even == pytest.approx(1 / 3)
    assert result.predicted.tolist() == traced.lengths.argmax(1).tolist()


def test_what_is_decoded_is_the_class_that_is_read(model, images):
    result = exchange(model, images[:2])
    own = trace(model, images[:2], keep=("couplings",)).couplings[-1]
    seen = trace(model, images[:2], couplings=own.flip(0))
    expected = (seen.reconstruction * 255).round().byte()
    np.testing.assert_array_equal(result.decoded[:, 1], expected)


def test_outcomes_are_those_of_pairs_traced_one_by_one(model, images):
    predicted = trace(model, images, keep=("lengths",)).lengths.argmax(1)
    own = trace(model, images, keep=("couplings",)).couplings[-1]
    votes = trace(model, images, keep=("votes",)).votes
    outcomes = measure.transplant(model, images, seed=3)
    found = measure.couples(predicted, torch.Generator().manual_seed(3))
    unlike, other = transplant.UNLIKE, transplant.UNLIKE_SHUFFLED
    donors = own[None, found.flip(1).flatten()]
    shuffled = control_couplings("shuffled", donors, torch.Generator().manual_seed(4))[-1]
    for p, (a, b) in enumerate([(a, b) for c in found.tolist() for a, b in (c, c[::-1])]):
        assert sorted(shuffled[p].tolist()) == sorted(own[b].tolist())
        lengths = mixed(votes[a], shuffled[p])
        assert bool(outcomes["as_partner"][other, p]) == (int(lengths.argmax()) == predicted[b])
        lengths = mixed(votes[a], own[b])
        assert bool(outcomes["as_own"][unlike, p]) == (int(lengths.argmax()) == predicted[a])
        assert bool(outcomes["as_partner"][unlike, p]) == (int(lengths.argmax()) == predicted[b])
        assert float(outcomes["partner_activation"][unlike, p]) == pytest.approx(
            float(lengths[predicted[b]]), rel=1e-4
        )
        lengths = mixed(votes[a], own.mean(0))
        mean = float(outcomes["own_activation"][transplant.MEAN, p])
        assert mean == pytest.approx(float(lengths[predicted[a]]), rel=1e-4)
    assert outcomes["as_own"][transplant.OWN].all()


def test_couplings_are_those_of_as_many_iterations_as_are_asked_for(model, images, many):
    pair = images[:2]
    own = model.capsules.iterations
    assert own == 3
    traced = trace(model, pair, iterations=5)
    result = exchange(model, pair, iterations=5)
    expected = mixed(traced.votes[0], traced.couplings[-1][1])
    np.testing.assert_allclose(result.activations[0, 1], expected, atol=1e-6)
    assert (result.coupling_sd > exchange(model, pair).coupling_sd).all()
    same = over(model, images, iterations=own)
    np.testing.assert_array_equal(many.as_partner.value, same.as_partner.value)
    assert same.iterations == 3 and many.iterations is None


def test_where_all_classes_tie_none_is_read(generator):
    model = build_self_routing()
    images = spread_out(model, 10, generator)
    result = over(model, images)
    for share in (result.as_own, result.as_partner):
        assert share.value[transplant.EVEN] == 0
    assert result.as_neither.value[transplant.EVEN] == 1
    two = exchange(model, images[:2])
    text = transplant.OnePair().verdict(two)
    assert "uniform couplings: all classes alike" in text and "one pair: --n N measures" in text
    assert any(
        "all classes alike" in axes.get_xlabel() for axes in results.draw("transplant", two).axes
    )


def results_of(result):
    return of_result("transplant", type(result).__name__).findings(result)


def test_where_votes_have_no_say_the_couplings_decide_by_construction(
    model, images, many, generator
):
    routed = build_self_routing()
    votes = spread_out(routed, 10, generator)
    for result in (over(routed, votes), exchange(routed, votes[:2])):
        assert "By definition of the routing" in results_of(result)
    even = over(routed, votes)
    sd = even.coupling_sd.value.copy()
    sd[transplant.OWN] = 0  # uniform, and the mean of the data but for rounding
    even = even._replace(coupling_sd=replace(even.coupling_sd, value=sd))
    assert "By definition" not in results_of(even)
    for result in (many, exchange(model, images[:2])):
        assert result.given is None and "By definition" not in results_of(result)


@pytest.mark.parametrize("counts", [(40, 40, 40), (1, 2, 90), (60, 60, 1), (31, 30, 60)])
def test_couples_are_of_unlike_class_and_no_image_is_in_two(counts):
    predicted = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    found = measure.couples(predicted, torch.Generator().manual_seed(0))
    assert (predicted[found[:, 0]] != predicted[found[:, 1]]).all()
    assert len(found.flatten().unique()) == found.numel()
    possible = min(sum(counts) // 2, sum(counts) - max(counts))
    assert len(found) >= possible - 1


def test_a_like_image_is_another_one_read_as_the_same_class():
    predicted = torch.tensor([0, 1, 0, 2, 1, 0])
    assert measure.of_like_class(predicted).tolist() == [2, 4, 5, 3, 1, 0]


def test_an_image_whose_class_no_other_is_predicted_as_is_in_no_couple():
    predicted = torch.tensor([0, 1, 2] * 6 + [3])
    first, donors = measure.pairs_of(predicted, torch.Generator().manual_seed(0))
    assert 18 not in first and 18 not in donors and len(first) > 12


def test_intervals_are_those_of_couples(model, images, many):
    result = many
    outcomes = measure.transplant(model, images, seed=0)
    assert result.n == 2 * result.couples == outcomes["as_own"].shape[1]
    np.testing.assert_allclose(result.as_own.value, outcomes["as_own"].double().mean(1))
    total = result.as_own.value + result.as_partner.value + result.as_neither.value
    np.testing.assert_allclose(total, 1)
    draws = np.random.default_rng(0)
    values = outcomes["partner_activation"][transplant.UNLIKE].view(-1, 2).mean(1).numpy()
    means = [draws.choice(values, len(values)).mean() for _ in range(4000)]
    width = np.diff(np.percentile(means, [2.5, 97.5]))[0]
    estimate = result.partner_activation[transplant.UNLIKE]
    assert float(estimate.high - estimate.low) == pytest.approx(width, rel=0.15)


def test_couplings_that_are_made_again_for_each_couple_say_the_same(model, images, monkeypatch):
    def found():
        run = {"iterations": None, "seed": 0, "progress": iter}
        doses = measure.over_doses(model, images, np.array([0.5, 2.0]), **run)
        return measure.transplant(model, images, seed=0), doses["follow"].value

    kept, of_doses = found()
    monkeypatch.setattr("capsviz.tracing.many.fit_at_a_time", lambda of_one: 2)
    again, of_doses_again = found()
    torch.testing.assert_close(again, kept)
    np.testing.assert_array_equal(of_doses_again, of_doses)


def test_any_capsule_network_can_be_looked_at_also_without_grid_or_decoder(generator):
    class Bare(Foreign):
        decoder = None

        def look(self, images, **more):
            shown = super().look(images, **more)
            del shown["reconstruction"]
            return shown

    model = Bare((1, 21, 19), 3).eval()
    model.grid = None
    result = exchange(model, torch.rand(2, 1, 21, 19, generator=generator))
    assert result.maps is None and result.decoded is None and result.means.shape == (2, 3)
    assert_fits(results.draw("transplant", result, "single"))


def test_images_of_one_class_make_no_couples(model, images):
    with pytest.raises(ValueError, match="0 pairs"):
        over(model, images[:1].repeat(6, 1, 1, 1))


@pytest.mark.parametrize(
    ("partner", "own", "controls", "said"),
    [
        (0.9, 0.1, 0.99, "is shown that most keep their class with noise"),
        (0.9, 0.1, 0.4, "is not shown that most keep their class with noise"),
        (0.1, 0.9, 0.99, "At dose 1 most images keep their class"),
        (0.52, 0.48, 0.99, "is not shown that most images follow"),
    ],
)
def test_findings_follow_the_intervals(partner, own, controls, said, many):
    def shares(donor, others):
        values = np.array([others, donor, *[others] * 5, 0.0])
        return Estimate(values, np.stack([values - 0.05, values + 0.05], 1))

    found = {"as_partner": shares(partner, 0), "as_own": shares(own, controls)}
    assert said in results_of(many._replace(**found))
