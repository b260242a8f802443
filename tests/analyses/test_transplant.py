"""Transplant: whose votes, whose couplings, which couples, and what is said of them."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from conftest import build_self_routing, build_strong, build_tiny
from helpers.figure_checks import assert_fits, assert_redrawn
from helpers.noise_images import spread_out
from helpers.other_devices import elsewhere
from helpers.plain_capsnet import Foreign

from capsviz import results
from capsviz.analyses import transplant
from capsviz.analyses.transplant import measure, parts, words
from capsviz.nn.functional import squash
from capsviz.tracing import control_couplings, trace

CLASSES = ["a", "b", "c"]


@pytest.fixture
def model():
    return build_strong()


@pytest.fixture
def images(model, generator):
    return spread_out(model, 10, generator)


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
    result = transplant.compute(model, pair, (0, None), classes=CLASSES)
    for k in range(2):
        for condition, couplings in ((0, own[k]), (1, own[1 - k]), (3, torch.full((12, 3), 1 / 3))):
            expected = mixed(traced.votes[k], couplings)
            found = result.activations[k, condition]
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.maps[1], own[1].view(2, 3, 2, 3).mean(0).permute(2, 0, 1))
    np.testing.assert_allclose(result.coupling_sd, (own - 1 / 3).square().mean((1, 2)).sqrt(), 1e-5)
    assert result.labels == [0, None] and result.even == pytest.approx(1 / 3)
    assert result.read.tolist() == traced.lengths.argmax(1).tolist()


def test_what_is_decoded_is_the_class_that_is_read(model, images):
    result = transplant.compute(model, images[:2], classes=CLASSES)
    own = trace(model, images[:2], keep=("couplings",)).couplings[-1]
    seen = trace(model, images[:2], couplings=own.flip(0))
    expected = (seen.reconstruction * 255).round().byte()
    np.testing.assert_array_equal(result.decoded[:, 1], expected)


def test_outcomes_are_those_of_pairs_traced_one_by_one(model, images):
    read = trace(model, images, keep=("lengths",)).lengths.argmax(1)
    own = trace(model, images, keep=("couplings",)).couplings[-1]
    votes = trace(model, images, keep=("votes",)).votes
    outcomes = measure.transplant(model, images, seed=3)
    pairs = measure.couples(read, torch.Generator().manual_seed(3))
    unlike, other = words.UNLIKE, words.UNLIKE_SHUFFLED
    donors = own[None, pairs.flip(1).flatten()]
    shuffled = control_couplings("shuffled", donors, torch.Generator().manual_seed(4))[-1]
    for p, (a, b) in enumerate([(a, b) for c in pairs.tolist() for a, b in (c, c[::-1])]):
        assert sorted(shuffled[p].tolist()) == sorted(own[b].tolist())
        lengths = mixed(votes[a], shuffled[p])
        assert bool(outcomes.partner[other, p]) == (int(lengths.argmax()) == read[b])
        lengths = mixed(votes[a], own[b])
        assert bool(outcomes.own[unlike, p]) == (int(lengths.argmax()) == read[a])
        assert bool(outcomes.partner[unlike, p]) == (int(lengths.argmax()) == read[b])
        assert float(outcomes.partner_activation[unlike, p]) == pytest.approx(
            float(lengths[read[b]]), rel=1e-4
        )
        lengths = mixed(votes[a], own.mean(0))
        found = float(outcomes.own_activation[words.MEAN, p])
        assert found == pytest.approx(float(lengths[read[a]]), rel=1e-4)
    assert outcomes.own[words.OWN].all()


def test_couplings_are_those_of_as_many_iterations_as_are_asked_for(model, images):
    pair = images[:2]
    own = model.capsules.iterations
    assert own == 3
    traced = trace(model, pair, iterations=5)
    result = transplant.compute(model, pair, classes=CLASSES, iterations=5)
    expected = mixed(traced.votes[0], traced.couplings[-1][1])
    np.testing.assert_allclose(result.activations[0, 1], expected, atol=1e-6)
    assert (result.coupling_sd > transplant.compute(model, pair, classes=CLASSES).coupling_sd).all()
    chosen = {"classes": CLASSES, "dataset": "noise"}
    many = transplant.evaluate(model, images, **chosen, iterations=own)
    same = transplant.evaluate(model, images, **chosen)
    np.testing.assert_array_equal(many.as_partner.value, same.as_partner.value)
    assert many.iterations == 3 and same.iterations is None
    assert transplant.findings(many) == "routed 3 times, " + transplant.findings(same)


def test_where_all_classes_tie_none_is_read(generator):
    model = build_self_routing()
    images = spread_out(model, 10, generator)
    result = transplant.evaluate(model, images, classes=CLASSES, dataset="noise", parts=True)
    for share in (result.as_own, result.as_partner):
        assert share.value[words.EVEN] == 0
    assert result.as_neither.value[words.EVEN] == result.tied[words.EVEN] == 1
    assert result.tied[words.OWN] == 0
    assert "in 100.0 % no class is ahead of all others" in transplant.findings(result)
    assert transplant.findings(result._replace(tied=None))
    two = transplant.compute(model, images[:2], classes=CLASSES)
    assert "with even ones all classes alike" in transplant.findings(two)
    assert any(
        "all classes alike" in axes.get_xlabel() for axes in results.draw("transplant", two).axes
    )


def test_where_votes_have_no_say_the_couplings_decide_by_construction(model, images, generator):
    routed = build_self_routing()
    votes = spread_out(routed, 10, generator)
    many = transplant.evaluate(routed, votes, classes=CLASSES, dataset="noise")
    two = transplant.compute(routed, votes[:2], classes=CLASSES)
    for result in (many, two):
        assert "by construction, whatever was learned: activations of" in words.findings(result)
        assert "by construction" in transplant.caption(result)
    assert "by construction" not in transplant.findings(many._replace(given=None))
    for result in (
        transplant.evaluate(model, images, classes=CLASSES, dataset="noise"),
        transplant.compute(model, images[:2], classes=CLASSES),
    ):
        assert result.given is None and "by construction" not in transplant.findings(result)
    even = transplant.compute(build_tiny(routing="uniform"), images[:2], classes=CLASSES)
    assert "by construction" not in transplant.findings(even)


def test_couplings_of_equal_spread_have_it_image_by_image(model, images):
    sd = measure.transplant(model, images, seed=0).coupling_sd
    for k in (words.SHUFFLED, words.NOISE):
        torch.testing.assert_close(sd[k], sd[words.OWN], rtol=1e-4, atol=1e-7)
    assert (sd[words.EVEN] < 1e-7).all() and (sd[words.OWN] > 1e-4).all()
    couple = sd[words.UNLIKE].view(-1, 2)
    torch.testing.assert_close(couple.flip(1).flatten(), sd[words.OWN])


@pytest.mark.parametrize("counts", [(40, 40, 40), (1, 2, 90), (60, 60, 1), (31, 30, 60)])
def test_couples_are_of_unlike_class_and_no_image_is_in_two(counts):
    read = torch.repeat_interleave(torch.arange(3), torch.tensor(counts))
    pairs = measure.couples(read, torch.Generator().manual_seed(0))
    assert (read[pairs[:, 0]] != read[pairs[:, 1]]).all()
    assert len(pairs.flatten().unique()) == pairs.numel()
    possible = min(sum(counts) // 2, sum(counts) - max(counts))
    assert len(pairs) >= possible - 1


def test_couples_are_drawn_from_all_pairs_of_classes():
    read = torch.arange(10).repeat(40)
    pairs = measure.couples(read, torch.Generator().manual_seed(0))
    met = {tuple(sorted(pair)) for pair in read[pairs].tolist()}
    assert len(met) == 45


def test_a_like_image_is_another_one_read_as_the_same_class():
    read = torch.tensor([0, 1, 0, 2, 1, 0])
    assert measure.of_like_class(read).tolist() == [2, 4, 5, 3, 1, 0]


def test_no_image_stands_for_a_like_one_itself(model, images, monkeypatch):
    """Of a class that is read once there is no other image: it is in no couple."""
    read = torch.arange(len(images)) % 3
    read[-1] = 3
    last = measure.last_couplings
    monkeypatch.setattr(measure, "last_couplings", lambda *a, **_: (*last(*a)[:2], read))
    seen, control = [], measure.control_couplings

    def spy(kind, own, generator):
        seen.append(own[-1])
        return control(kind, own, generator)

    monkeypatch.setattr(measure, "control_couplings", spy)
    measure.transplant(model, images, seed=0)
    couplings = last(model, images)[0]
    voting = torch.cat(seen)
    assert not (voting == couplings[-1]).flatten(1).all(1).any()


def test_intervals_are_those_of_couples(model, images):
    result = transplant.evaluate(model, images, classes=CLASSES, dataset="noise")
    outcomes = measure.transplant(model, images, seed=0)
    assert result.n == 2 * result.couples == outcomes.own.shape[1]
    np.testing.assert_allclose(result.as_own.value, outcomes.own.double().mean(1))
    total = result.as_own.value + result.as_partner.value + result.as_neither.value
    np.testing.assert_allclose(total, 1)
    draws = np.random.default_rng(0)
    values = outcomes.partner_activation[words.UNLIKE].view(-1, 2).mean(1).numpy()
    means = [draws.choice(values, len(values)).mean() for _ in range(4000)]
    width = np.diff(np.percentile(means, [2.5, 97.5]))[0]
    estimate = result.partner_activation[words.UNLIKE]
    assert float(estimate.high - estimate.low) == pytest.approx(width, rel=0.15)


def test_parts_are_whole_types_whole_places_or_single_capsules(generator):
    groups = parts.partitions((4, 2, 3), 24)
    place = torch.arange(24).view(4, 6)
    for kind, number, axis in ((parts.TYPES, 4, 1), (parts.PLACES, 6, 0)):
        chosen = parts.masks(groups[kind], 0.5, 9, generator)
        assert (chosen.sum(1) == 12).all()
        whole = chosen[:, place]
        assert (whole.all(1 + axis) == whole.any(1 + axis)).all()
        assert (whole.all(1 + axis).sum(1) == number // 2).all()
        assert len(chosen.unique(dim=0)) > 1
    assert (parts.masks(groups[parts.SINGLE], 0.25, 9, generator).sum(1) == 6).all()
    assert (
        list(parts.partitions((16, 1, 1), 16)) == list(parts.partitions(None, 16)) == [parts.SINGLE]
    )


def test_the_more_is_exchanged_the_nearer_to_the_whole_transplant(model, images, monkeypatch):
    monkeypatch.setattr(parts, "SHARES", (0.01, 1.0))
    whole = measure.transplant(model, images, seed=0)
    for own, partner in parts.by_parts(model, images, seed=0).values():
        assert torch.equal(own[1], whole.own[words.UNLIKE])
        assert torch.equal(partner[1], whole.partner[words.UNLIKE])
        assert own[0].sum() >= own[1].sum()
    asked = {"classes": CLASSES, "dataset": "noise", "parts": True}
    result = transplant.evaluate(model, images, **asked)
    assert result.part_as_own.value.shape == (3, 2) and result.part_as_own.n == result.n
    assert "with half of its couplings, by whole capsule types" in transplant.findings(result)
    for width in ("single", "double"):
        assert_fits(results.draw("transplant", result, width))


def test_any_capsule_network_can_be_looked_at_also_without_grid_or_decoder(generator):
    class Bare(Foreign):
        decoder = None

        def look(self, images, **more):
            shown = super().look(images, **more)
            del shown["reconstruction"]
            return shown

    model = Bare((1, 21, 19), 3).eval()
    model.grid = None
    result = transplant.compute(model, torch.rand(2, 1, 21, 19, generator=generator),
                                classes=CLASSES)  # fmt: skip
    assert result.maps is None and result.decoded is None and result.means.shape == (2, 3)
    for width in ("single", "double"):
        assert_fits(results.draw("transplant", result, width))


def test_a_network_whose_couplings_cannot_be_replaced_is_refused_in_one_line(images):
    class Closed(Foreign):
        def look(self, images, *, keep, iterations=None):
            return super().look(images, keep=keep, iterations=iterations)

    with pytest.raises(ValueError, match="couplings cannot be replaced"):
        transplant.compute(Closed((1, 21, 19), 3).eval(), images[:2], classes=CLASSES)


def test_images_of_one_class_make_no_couples(model, images):
    with pytest.raises(ValueError, match="0 couples"):
        transplant.evaluate(model, images[:1].repeat(6, 1, 1, 1), classes=CLASSES, dataset="x")
    with pytest.raises(ValueError, match="two images"):
        transplant.compute(model, images[:3], classes=CLASSES)


def test_images_may_be_on_another_device(model, images):
    asked = {"classes": CLASSES, "dataset": "noise"}
    there = elsewhere(images)[0]
    expected = transplant.evaluate(model, images, **asked)
    found = transplant.evaluate(model, there, **asked)
    assert results.to_json(found) == results.to_json(expected)


def test_findings_follow_the_intervals(model, images):
    result = transplant.evaluate(model, images, classes=CLASSES, dataset="noise")

    def verdict(partner, own, spread, shuffled=0.0):
        def shares(unlike, others, moved):
            values = np.array([others, unlike, *[others] * 5, moved], float)
            return result.as_own.__class__(values, np.stack([values - 0.05, values + 0.05], 1))

        one = result._replace(
            as_partner=shares(partner, 0, shuffled), as_own=shares(own, spread, 0)
        )
        return transplant.verdict(one)

    assert "carry the class, however near uniform" in verdict(0.9, 0.1, 0.99)
    assert "see the controls" in verdict(0.9, 0.1, 0.4)
    for spread in (0.4, 0.99):
        assert "how much all children together give each" in verdict(0.9, 0.1, spread, 0.9)
    names = ("as_own", "as_partner", "coupling_sd", "conditions", "tied")
    older = result._replace(**{n: getattr(result, n)[: words.UNLIKE_SHUFFLED] for n in names})
    assert words.findings(older) and not words.by_class(older)
    assert "the votes decide" in verdict(0.1, 0.9, 0.99)
    assert "neither" in verdict(0.4, 0.4, 0.99)
    assert "too few pairs to say" in verdict(0.52, 0.48, 0.99)


def test_numbers_of_the_scale_of_couplings_have_room(model, images):
    """Couplings of 0.000 to 0.949 about an even 0.100."""
    result = transplant.compute(model, images[:2], classes=CLASSES)
    maps = np.full_like(result.maps, 0.1)
    maps.flat[0] = 0.949
    for width in ("single", "double"):
        figure = results.draw("transplant", result._replace(maps=maps, even=0.1), width)
        figure.canvas.draw()
        (bar,) = (axes for axes in figure.axes if "own coupling" in axes.get_xlabel())
        boxes = [text.get_window_extent() for text in bar.get_xticklabels() if text.get_text()]
        assert len(boxes) > 1 and not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_figures_stay_on_the_page_and_are_redrawn_from_their_numbers(model, images, tmp_path):
    for result in (
        transplant.compute(model, images[:2], classes=CLASSES),
        transplant.evaluate(model, images, classes=CLASSES, dataset="noise"),
    ):
        assert_redrawn("transplant", result, tmp_path)


def test_the_command_writes_figures_and_numbers(analyse, tmp_path):
    done = analyse("transplant", "--digit", "9")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "transplant-digits-9-0-0-0.svg").exists()  # the class after 9 is 0
    done = analyse("transplant", "--n", "40", "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["as_own"]["n"] <= 40


@pytest.mark.parametrize("other", ["--parts", "--of", "--by", "--layer"])
def test_iterations_are_not_beside_what_has_none(other, analyse, tmp_path):
    value = {"--of": ["children"], "--by": ["capsules"], "--layer": ["0"]}.get(other, [])
    words = ["transplant", "--n", "20", "--iterations", "2", other, *value]
    outcome = analyse(*words, "--output", tmp_path)
    assert outcome.exit_code == 2 and f"--iterations is not for {other}" in outcome.output
