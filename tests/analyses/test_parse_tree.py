"""Parse trees: where variance lies, favourites, frozen couplings, shifts, deaths by epoch."""

import numpy as np
import pytest
import torch
from helpers import noise_images as noise
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_self_routing, build_tiny
from helpers.plain_capsnet import Closed, Foreign
from matplotlib.text import Text
from torch.nn.functional import one_hot

from capsviz import results
from capsviz.analyses import parse_tree
from capsviz.analyses.parse_tree import measure
from capsviz.analyses.parse_tree.measure import COMPONENTS
from capsviz.inputs import samples
from capsviz.inputs.opening import Picture
from capsviz.nn import models
from capsviz.nn.computation import seeded
from capsviz.nn.functional import squash
from capsviz.tracing import from_children, parents_under, trace, under_couplings
from capsviz.tracing.record import NotFiniteError

CLASSES = noise.CLASSES
GRID = (2, 3, 2)
verdict = parse_tree.ParseTree().verdict


class Fixed(Foreign):
    """Its couplings are the same in every image."""

    def look(self, images, *, keep, couplings=None, iterations=None):
        I, J = self.matrices.shape[:2]
        own = torch.rand(I, J, generator=torch.Generator().manual_seed(3))
        own = own / own.sum(1, keepdim=True) if couplings is None else couplings
        return super().look(images, keep=keep, couplings=own)


model, images, labels, others = noise.model, noise.images, noise.labels, noise.others


def measured(model, images, labels, others, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "other_images", lambda *_: others)
        about = {"classes": CLASSES, "dataset": "noise", "inputs": None}
        return parse_tree.ParseTree().measure(model, images, labels, **about, **more)


def of_two(model, images):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samples, "beside", lambda *_: images)
        about = {"picture": Picture(images[:1], None, "one"), "classes": CLASSES, "other": 0}
        return parse_tree.Trees().measure(model, inputs=None, **about)


def once(values, labels, grid=GRID):
    return measure.components(values, labels, grid, torch.ones(1, len(values)))[0]


def test_components_are_those_of_loops_and_sum_to_the_mean_square(generator):
    x = torch.randn(9, 12, 5, generator=generator).double() + torch.randn(12, 5).double()
    labels = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2])
    parts = dict(zip(COMPONENTS, once(x, labels), strict=True))
    assert sum(parts.values()) == pytest.approx(float(x.square().mean()))
    mean, grand = x.mean(0), x.mean((0, 1))
    expected = dict.fromkeys(COMPONENTS, 0.0)
    for i in range(12):
        of_type, of_place = mean[i // 6 * 6 :][:6].mean(0), mean[i % 6 :: 6].mean(0)
        expected["parents"] += 9 * float(grand.square().sum())
        expected["types"] += 9 * float((of_type - grand).square().sum())
        expected["positions"] += 9 * float((of_place - grand).square().sum())
        rest = mean[i] - of_type - of_place + grand
        expected["children"] += 9 * float(rest.square().sum())
        for n in range(9):
            of_class = x[labels == labels[n]].mean(0)
            alike = of_class.mean(0) - grand
            expected["classes"] += float(alike.square().sum())
            expected["by child"] += float((of_class[i] - mean[i] - alike).square().sum())
            expected["images"] += float((x[n, i] - of_class[i]).square().sum())
    for name, value in expected.items():
        assert parts[name] == pytest.approx(value / x.numel()), name


def test_intervals_hold_the_value_of_another_draw(generator):
    centre = torch.randn(3, 12, 5, generator=generator)
    labels = torch.arange(400) % 3
    counts = np.random.default_rng(0).multinomial(200, np.full(200, 1 / 200), 300)

    def share(rows):
        x = centre[labels[rows]] + 2 * torch.randn(200, 12, 5, generator=generator)
        own = measure.Observation(x, x[0], labels[rows], GRID)
        return measure.shares(own, labels[rows], counts.astype(np.float32))

    one, two = share(slice(0, 200)), share(slice(200, 400))
    assert (one.low <= one.value).all() and (one.value <= one.high).all()
    assert one.low[6] <= two.value[6] <= one.high[6]


def test_a_fixed_routing_has_one_tree_and_nothing_by_image(images, labels, others):
    model = Fixed((1, 21, 19), 3, grid=GRID).eval()
    result = measured(model, images, labels, others, seeds=0)
    assert result.shares.value[0, :4].sum() == pytest.approx(1)
    np.testing.assert_allclose(result.favourites.value[0, :3], 0)
    assert "It is not shown that preferences vary with the class" in verdict(result)
    assert len(result.networks) == 1


def test_even_couplings_are_no_tree_at_all(images, labels, others):
    model = build_tiny(routing="uniform")
    result = measured(model, images, labels, others)
    assert np.isnan(result.shares.value).all() and result.correlation is None
    assert np.isnan(result.favourites.value[0]).all()
    text = verdict(result)
    assert "uniform in every image" in text and "all couplings are uniform" in text
    two = of_two(model, images[:2])
    assert (two.favourites == -1).all()
    for one in (result, two):
        figure = results.draw("parse_tree", one, "single")
        assert_fits(figure)
        shown = " ".join(text.get_text() for text in figure.findobj(Text))
        assert "uniform couplings" in shown and "always the same" not in shown


def test_favourites_are_counted_pair_by_pair():
    favourite = torch.tensor([[0, 1], [0, 2], [1, 1], [1, 1]])
    labels = torch.tensor([0, 0, 1, 1])
    known, predicted = torch.tensor([0, 1]), torch.tensor([0, 0, 1, 2])
    generator = torch.Generator().manual_seed(0)
    shares = measure.choices(favourite, known, labels, predicted, generator).value
    assert shares[1] == pytest.approx((0.5 + 0) / 2)
    assert shares[2] == pytest.approx((0 + 0.5 + 0.5 + 0.5) / 4)
    assert shares[3] == pytest.approx((0.5 + 0.5 + 1 + 0) / 4)
    assert measure.favourites(torch.full((2, 4, 3), 1 / 3)).eq(-1).all()


def test_what_is_usual_is_counted_over_images_and_averaged_by_class(monkeypatch):
    favourite = torch.tensor([[0, 1], [0, 2], [1, 1], [1, 1]])  # (M, I), in place of images

    def couplings(_, rows):
        return one_hot(rows, 3).float(), None, None

    monkeypatch.setattr(measure, "last_couplings", couplings)
    usual = measure.usual(None, favourite, torch.tensor([0, 0, 1, 1]))
    assert usual.favourite.tolist() == [0, 1]
    assert usual.mean.tolist() == [[0.5, 0.5, 0], [0, 0.75, 0.25]]
    assert usual.of_class[0].tolist() == [[1, 0, 0], [0, 0.5, 0.5]]
    assert torch.equal(usual.of_class[2], usual.mean)  # no image is of this class


def test_frozen_couplings_are_mixed_by_hand(model, images, labels, others):
    own, known = measure.observe(model, images), measure.observe(model, others.images)
    usual = measure.usual(model, others.images, others.labels)
    chosen = measure.favourites(known.couplings)
    counts = torch.stack([(chosen == j).sum(0) for j in range(3)])
    assert counts.gather(0, usual.favourite[None]).eq(counts.amax(0)).all()
    generator = torch.Generator().manual_seed(0)
    said = measure.frozen(model, images, own, usual, generator)
    votes = trace(model, images, keep=("votes",)).votes
    of_class = [known.couplings[others.labels == k].mean(0) for k in range(3)]
    tree = torch.stack([of_class[k][:, k] for k in range(3)], 1)
    for n in range(3):
        several = (own.couplings[n], known.couplings.mean(0), tree, of_class[own.predicted[n]])
        for k, couplings in enumerate(several):
            total = torch.einsum("ij,ije->je", couplings, votes[n])
            np.testing.assert_allclose(said[k, n], squash(total).norm(dim=1), rtol=1e-4, atol=1e-6)
    even = trace(model, images, keep=("lengths",), couplings="uniform").lengths
    assert measure.FROZEN[0] == "its own" and torch.allclose(said[5], even)


@pytest.mark.parametrize("kind", ["em", "self_routing"])
def test_children_kept_for_several_couplings_say_what_a_trace_says(kind, images, generator):
    model = build_tiny(routing=kind)
    couplings = torch.rand(24, 12, 3, generator=generator)
    several = [None, couplings, couplings[0]]
    poses, said = parents_under(model, images, several)
    assert torch.equal(said, under_couplings(model, images, several))
    for k, asked in enumerate(several):
        expected = trace(model, images, keep=("poses", "lengths"), couplings=asked)
        torch.testing.assert_close(said[k], expected.lengths, rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(poses[k], expected.poses[-1], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("several", "words"),
    [([], "empty list"), ([torch.full((12, 3), torch.nan)], "not finite")],
    ids=("none", "nan"),
)
def test_couplings_that_are_none_are_refused(images, several, words):
    for function in (parents_under, under_couplings):
        with pytest.raises(ValueError, match=words):
            function(build_tiny(), images[:2], several)


def test_networks_that_give_no_numbers_are_refused_under_couplings_too(images):
    model = build_tiny()
    children = trace(model, images[:2], keep=("children",)).children
    with torch.no_grad():
        model.capsules.weight[0] = torch.nan
    for say in (
        lambda: parents_under(model, images[:2], [None]),
        lambda: from_children(model, children),
    ):
        with pytest.raises(NotFiniteError):
            say()


class ForeignOnGrid(Foreign):
    """Couplings of the pixel at each place (`moving`), or of the place alone."""

    moving = True
    px = 3

    def receptive_field(self, row, column):
        rows, columns = (slice(self.px * at, self.px * at + self.px) for at in (row, column))
        return rows, columns

    def look(self, images, *, keep, couplings=None, iterations=None):
        small = images[:, 0, 1 :: self.px, 1 :: self.px]
        if not self.moving:
            small = torch.rand(small.shape[1:], generator=torch.Generator().manual_seed(0))
            small = small.expand(len(images), -1, -1)
        own = torch.stack([small, 1 - small, 0 * small], -1).flatten(1, 2)
        own = own if couplings is None else couplings
        shown = super().look(images, keep=keep, couplings=own)
        del shown["primary"]  # they see everything
        return shown


def test_the_variance_between_classes_is_that_of_loops(images, labels, model):
    counts = np.ones((100, len(images)), np.float32)
    names, found = measure.with_class(model, images, labels, counts)
    traced = trace(model, images)
    parts = (traced.couplings[-1], traced.votes, traced.children, traced.child_activations, images)
    assert names == list(measure.SOURCES)
    for k, part in enumerate(parts):
        part = part.double().flatten(1)
        within = sum(
            float((part[n] - part[labels == labels[n]].mean(0)).square().sum())
            for n in range(len(part))
        )
        whole = float((part - part.mean(0)).square().sum())
        assert found.value[k] == pytest.approx(1 - within / whole), names[k]
    assert found.difference.value[4] == pytest.approx(found.value[4] - found.value[0])
    couplings = traced.couplings[-1].double()
    means = torch.stack([couplings[labels == k].mean(0) for k in range(3)]) - couplings.mean(0)
    own = sum(float(means[k, :, k].square().sum()) for k in range(3))
    column = measure.own_column(traced.couplings[-1], labels, counts)
    assert column.value == pytest.approx(own / float(means.square().sum()))


def test_couplings_of_shared_matrices_travel_with_the_image_by_construction(generator):
    """Random ones, without training; those of each position's own stay, or follow nothing."""
    with seeded(0):
        model = models.build("capsnet", (1, 28, 28), 10, channels=8, types=4, hidden=(4,)).eval()
    images = torch.zeros(8, 1, 28, 28)
    images[:, :, 11:17, 11:17] = torch.rand(8, 1, 6, 6, generator=generator)
    apart = measure.steps(model, model.grid)
    own, shared = (
        measure.shifted(one, images, measure.observe(one, images), apart)[0].mean(1)
        for one in measure.randomised(model, model.grid, 0)
    )
    assert shared[0] >= 0.99 and shared[0] > shared[1:].max() and own[0] < 0.5
    with pytest.raises(ValueError, match="cannot be replaced"):
        measure.randomised(Foreign(), (3, 2, 2), 0)


def test_steps_go_by_the_ends_of_fields_that_begin_before_the_border(images, labels, others):
    class Clipped(Foreign):
        ends = True

        def receptive_field(self, row, column):
            if not self.ends:
                return super().receptive_field(row, column)
            return slice(0, 8 + 3 * row), slice(0, 8 + 3 * column)

    model = Clipped((1, 21, 19), 3, grid=(2, 3, 3)).eval()
    assert measure.steps(model, model.grid) == [(0, 3), (1, 3)]
    model.ends = False
    result = measured(model, images, labels, others, seeds=0)
    assert any("see the same part of the image" in note for note in result.notes)


def test_a_class_without_other_images_is_named(model, images, labels, others):
    some = others.labels != 2
    fewer = samples.Others(others.images[some], others.labels[some], "12 others")
    notes = measured(model, images, labels, fewer, seeds=0).notes
    assert any(f"none of the 12 others is of {CLASSES[2]}: the mean of all" in one for one in notes)
    notes = measured(model, images, labels, others, seeds=0).notes
    assert not any("the mean of all" in one for one in notes)


def test_a_step_is_whole_where_the_border_cuts_one_of_two_fields():
    class Padded(Foreign):
        def receptive_field(self, row, column):
            return tuple(slice(max(0, 3 * k - 5), 3 * k + 3) for k in (row, column))

    model = Padded((1, 21, 19), 3, grid=(2, 3, 3)).eval()
    assert measure.steps(model, model.grid) == [(0, 3), (1, 3)]  # from 0, -2 without it, to 1


@pytest.mark.parametrize("moving", [True, False])
def test_a_tree_of_pixels_moves_with_the_image_and_one_of_places_stays(moving, generator):
    model = ForeignOnGrid((1, 15, 12), 3, grid=(1, 5, 4)).eval()
    model.moving = moving
    images = torch.rand(6, 1, 15, 12, generator=generator)
    own = measure.observe(model, images)
    apart = measure.steps(model, own.grid)
    assert apart == [(0, 3), (1, 3)]
    values = measure.shifted(model, images, own, apart)
    expected = 0 if moving else 1
    np.testing.assert_allclose(values[0, expected], 1, atol=1e-4)
    assert (values[0, 1 - expected] < 0.9).all() and (values[0, 2] < 0.9).all()


def test_of_a_tree_that_never_changes_nothing_is_left_to_move(generator):
    model = ForeignOnGrid((1, 15, 12), 3, grid=(1, 5, 4)).eval()
    model.moving = False
    rows, labels = torch.rand(90, 1, 15, 12, generator=generator), torch.arange(90) % 3
    others = samples.Others(rows[30:], labels[30:], "60 others")
    result = measured(model, rows[:30], labels[:30], others, seeds=0)
    whole, rest = result.correlation
    assert float(whole.value[1]) == pytest.approx(1) and np.isnan(rest.value).all()
    assert "stays at its position" in verdict(result)
    assert_fits(results.draw("parse_tree", result, "double"))


@pytest.mark.parametrize("kind", ["em", "self_routing"])
def test_every_routing_has_a_tree(kind, images, labels, others):
    model = build_self_routing() if kind == "self_routing" else build_tiny(routing=kind)
    result = measured(model, images, labels, others)
    np.testing.assert_allclose(result.shares.value[0].sum(), 1)
    assert result.networks == ["this network", "untrained"]
    assert result.accuracy.value.shape == (6,)
    assert result.correlation.value.shape == (2, 3)


def test_a_network_without_grid_or_open_couplings_is_measured_as_far_as_it_goes(
    images, labels, others
):
    model = Closed((1, 21, 19), 3).eval()
    model.grid = None
    result = measured(model, images, labels, others)
    assert result.accuracy is None and result.grid is None
    text = verdict(result)
    assert "No untrained network" in text and "No frozen couplings" in text
    for one in (result, of_two(model, images[:2])):
        assert_fits(results.draw("parse_tree", one, "single"))
