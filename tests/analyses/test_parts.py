"""Parts: how images are broken, what detects it, and relevance mass with a known answer."""

import numpy as np
import pytest
import torch
from helpers.fixtures import build_strong
from torch import nn

from capsviz.analyses.parts import CONTROLS, Parts, measure
from capsviz.nn import models
from capsviz.nn.models import Scores
from capsviz.tracing import trace

CLASSES = 3


class Quarter(nn.Module):
    """Uses the upper left quarter alone."""

    def forward(self, images):
        top, left = images.shape[2] // 2, images.shape[3] // 2
        ink = images[:, :, :top, :left].mean((1, 2, 3))
        return Scores(torch.stack([ink, 1 - ink], 1), torch.zeros(len(images), 2))


class Templates(nn.Module):
    """The squared cosine of an image to the template of each class."""

    def __init__(self, templates):
        super().__init__()
        self.templates = templates

    def forward(self, images):
        flat, known = images.flatten(1), self.templates.flatten(1)
        cosine = (flat @ known.T) / (flat.norm(dim=1)[:, None] * known.norm(dim=1))
        return Scores(cosine.square(), cosine)


@pytest.fixture
def templates(generator):
    return (torch.rand(CLASSES, 1, 12, 10, generator=generator) > 0.6).float()


@pytest.fixture
def labelled(templates, generator):
    labels = torch.arange(60) % CLASSES
    noise = 0.3 * torch.rand(60, 1, 12, 10, generator=generator)
    return (0.7 * templates[labels] + noise), labels


def areas_of(model, labelled):
    result = Parts().measure({"one": model}, *labelled, dataset="noise")
    return dict(zip(result.kinds, result.auroc[0], strict=True))


def test_a_network_of_one_quarter_cannot_tell(labelled):
    areas = areas_of(Quarter(), labelled)
    for kind in ("halves of two classes", "lower half shifted", "halves of one class"):
        assert float(areas[kind].value) == 0.5


def test_a_network_that_matches_whole_templates_can(templates, labelled):
    areas = areas_of(Templates(templates), labelled)
    for kind in ("quarters exchanged", "halves of two classes", "lower half shifted"):
        assert areas[kind].low > 0.93  # Wilson of 60 of 60: 0.94
    assert 0.4 < float(areas["halves of one class"].value) < 0.6


def test_quarters_are_exchanged_crosswise():
    image = torch.arange(16.0).view(1, 1, 4, 4)
    found = measure.quarters_exchanged(image, None, None)[0][0, 0]
    expected = [[10, 11, 8, 9], [14, 15, 12, 13], [2, 3, 0, 1], [6, 7, 4, 5]]
    assert found.tolist() == expected
    image = torch.arange(25.0).view(1, 1, 5, 5)
    odd = measure.quarters_exchanged(image, None, None)[0][0, 0]
    assert (odd[2] == image[0, 0, 2]).all() and (odd[:, 2] == image[0, 0, :, 2]).all()
    assert odd[0].tolist() == [18, 19, 2, 15, 16] and odd.sum() == image.sum()


def test_halves_are_those_of_the_partners(labelled, generator):
    images, labels = labelled
    for alike in (False, True):
        partner = measure.partners(labels, generator, alike=alike)
        assert ((labels[partner] == labels) == alike).all()
        assert (partner != torch.arange(60)).all()
    forms = {name: one for name, (one, _) in measure.broken(images, labels, seed=0).items()}
    for name in ("halves of two classes", "halves of one class", "lower half shifted"):
        assert torch.equal(forms[name][:, :, :6], images[:, :, :6])
        assert not torch.equal(forms[name][:, :, 6:], images[:, :, 6:])
    moved, whole = forms["lower half shifted"], forms["whole shifted"]
    assert torch.equal(moved[:, :, 6:], whole[:, :, 6:])  # the same way
    left = [torch.equal(w[:, :, :-1], i[:, :, 1:]) for w, i in zip(whole, images, strict=True)]
    right = [torch.equal(w[:, :, 1:], i[:, :, :-1]) for w, i in zip(whole, images, strict=True)]
    assert all(a != b for a, b in zip(left, right, strict=True)) and 10 < sum(left) < 50


def test_differences_of_areas_are_to_the_first_score(generator):
    clean, suspect = torch.rand(2, 3, 40, generator=generator).numpy()
    found = measure.aurocs([clean, clean], [suspect, clean], seed=0)
    np.testing.assert_allclose(found.value[:, 1], 0.5)
    np.testing.assert_allclose(found.difference.value, found.value - found.value[0])
    widths = np.ptp(found.difference.ci95, -1)
    assert (widths[0] == 0).all() and (widths[1:] > 0).all()
    assert (found.low <= found.value).all() and (found.value <= found.high).all()


def test_pixels_are_measured_without_any_network(labelled):
    images, _ = labelled
    values = measure.of_pixels(images[:7], images[:7])
    assert len(values) == len(measure.PIXELS)
    edges = np.abs(np.diff(images[3, 0].double(), axis=0)).sum()
    edges += np.abs(np.diff(images[3, 0].double(), axis=1)).sum()
    assert values[0, 3] == pytest.approx(edges)
    apart = {k: float((images[3] - images[k]).double().norm()) for k in range(7) if k != 3}
    assert values[2, 3] == pytest.approx(min(apart.values()), rel=1e-5)
    nearest = min(apart, key=apart.get)
    values = measure.of_pixels(images[:7], images[:7], torch.full((7,), nearest))
    del apart[nearest]
    assert values[2, 3] == pytest.approx(min(apart.values()), rel=1e-5)


def test_what_is_told_beyond_a_control_is_so_by_the_same_images(templates, labelled):
    result = Parts().measure({"one": Templates(templates)}, *labelled, dataset="noise")
    places = {name: result.kinds.index(name) for name in result.kinds}
    for k, (kind, control) in enumerate(CONTROLS.items()):
        own, whole = (result.auroc.value[:, places[one]] for one in (kind, control))
        np.testing.assert_allclose(result.beyond.value[:, k], own - whole)
    assert result.beyond[0][0].low > 0.3  # halves of two classes against halves of one
    perfect = result.auroc[0][places["quarters exchanged"]]
    assert perfect.value == 1 and 0.9 < perfect.low < 1, "an interval of no width says too much"


class OneHalfEach(nn.Module):
    """A decoder whose first unit draws the upper half of the picture, the second the lower."""

    grid = None
    decoder = True

    def look(self, images, *, keep, iterations=None):
        halves = images.mean((1, 3)).view(len(images), 2, -1).mean(2)
        poses = torch.stack([halves, halves / 2], 1)[None]
        zeros = torch.zeros(len(images), 2, 2)
        return {
            "primary": zeros, "votes": poses[0][:, None].expand(-1, 2, -1, -1),
            "logits": zeros[None], "couplings": zeros[None] + 0.5, "poses": poses,
            "lengths": poses[-1].norm(dim=2),
            "reconstruction": self.decode(poses[-1], poses[-1].norm(dim=2).argmax(1)),
        }  # fmt: skip

    def decode(self, poses, classes):
        own = poses[torch.arange(len(poses)), classes]
        return own[:, None, :, None].repeat_interleave(6, 2).expand(-1, 1, 12, 10)


def test_units_that_draw_one_half_each_are_tied_and_random_directions_are_not(generator):
    images = torch.rand(30, 1, 12, 10, generator=generator) * 0.6 + 0.3  # stroke everywhere
    found = measure.relevance(OneHalfEach().eval(), images, seed=0)
    control, units = found["perturbed"]
    np.testing.assert_allclose(units.value, [1, 1, 0], atol=1e-6)
    assert control.value[1] < 0.99 and control.value[2] > 0.05
    assert units.difference[1].low > 0 and units.difference[2].high < 0
    assert found["selected"] is None and "explained" not in found


def test_a_network_in_float64_is_measured(generator):
    images = torch.rand(30, 1, 12, 10, generator=generator, dtype=torch.float64) * 0.6 + 0.3
    found = measure.relevance(OneHalfEach().double().eval(), images, seed=0)
    assert np.isfinite(found["perturbed"][1].value).all()


def test_units_without_any_range_do_not_count(generator):
    """Of an image whose prediction no other one shares, and a unit that is the same in all."""
    images = torch.rand(30, 1, 12, 10, generator=generator) * 0.6 + 0.3
    model, look = OneHalfEach().eval(), OneHalfEach().look

    def alone(some, *, keep, iterations=None):
        traced = look(some, keep=keep)
        first = (some.flatten(1) == images[0].flatten()).all(1)
        traced["poses"][:, first] = traced["poses"][:, first].flip(2)  # of the other class
        return traced | {"lengths": traced["poses"][-1].norm(dim=2)}

    model.look = alone
    found = measure.relevance(model, images, seed=0)["perturbed"]
    np.testing.assert_allclose(found[1].value, [1, 1, 0], atol=1e-6)
    assert found.n == 29
    strokes = torch.ones(1, 2, 2, dtype=torch.bool)
    maps = torch.tensor([[[1.0, 1], [0, 0]], [[0, 0], [0, 0]], [[1, 1], [0, 0]]])[None]
    values = measure._masses(maps, strokes, measure.upper_and_lower(strokes))
    assert torch.cat(values).tolist() == pytest.approx([1, 1, 1])


def test_perturbed_units_end_at_the_lowest_and_highest_value_of_their_class(generator):
    model = OneHalfEach()
    own = torch.rand(6, 2, generator=generator)
    winner = torch.tensor([0, 0, 0, 1, 1, 1])
    poses = torch.zeros(6, 2, 2)
    poses[torch.arange(6), winner] = own
    found = measure.changes(model, poses, own, winner, torch.eye(2))
    for n in range(6):
        some = own[winner == winner[n]]
        for u in range(2):
            reach = float(some[:, u].max() - some[:, u].min())
            assert float(found[n, u].max()) == pytest.approx(reach, abs=1e-6)


def test_forward_selection_takes_what_explains_most_and_ends_with_all(generator):
    a, b = torch.randn(2, 200, 1, generator=generator)
    activations = torch.cat([0.1 * b, a, a * 2, a + b, torch.zeros(200, 1)], 1)
    chosen, explained = measure.forward_selection(activations, 5)
    assert len(chosen) == 2 and explained == pytest.approx(1)
    first, share = measure.forward_selection(activations, 1)
    shares = []
    for k in range(4):
        one = activations[:, k : k + 1] - activations[:, k : k + 1].mean()
        rest = activations - activations.mean(0)
        fitted = one @ torch.linalg.lstsq(one, rest).solution
        shares.append(float(fitted.square().sum() / rest.square().sum()))
    assert first == [int(np.argmax(shares))] and share == pytest.approx(max(shares), rel=1e-4)


def test_strokes_are_cut_where_half_of_them_lies_above():
    strokes = torch.zeros(1, 4, 3, dtype=torch.bool)
    strokes[0, 1], strokes[0, 3, 0], strokes[0, 2, :2] = True, True, True
    halves = measure.upper_and_lower(strokes)
    assert halves[0].flatten(1).sum(1).tolist() == [3, 3]
    assert torch.equal(halves.any(1), strokes)


def test_units_are_selected_by_activations_and_not_by_norms(generator):
    model = models.build("matrix_capsnet", (1, 21, 21), 3, types=(4, 4, 4)).eval()
    images = torch.rand(8, 1, 21, 21, generator=generator)
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        choose = measure.forward_selection
        patch.setattr(measure, "forward_selection", lambda v, n: seen.append(v) or choose(v, n))
        measure.relevance(model, images, seed=0)
    below = trace(model, images, keep=("child_activations",)).child_activations
    torch.testing.assert_close(seen[0], below.unflatten(1, model.grid).flatten(2).mean(2))


def test_any_networks_are_compared(generator):
    with torch.random.fork_rng():
        plain = models.build("cnn", (1, 21, 19), 3, channels=(4,), hidden=(8,)).eval()
    images = torch.rand(12, 1, 21, 19, generator=generator)
    labels = torch.arange(12) % 3
    for names in (["caps", "plain"], ["plain"]):
        known = {"caps": build_strong(), "plain": plain}
        chosen = {name: known[name] for name in names}
        result = Parts().measure(chosen, images, labels, dataset="noise")
        assert (result.perturbed is None) == (names == ["plain"])
        assert result.scores[0] == f"{names[0]}: largest score"
    with pytest.raises(ValueError, match=r"2 classes or more.*got \[12\] images of"):
        Parts().measure({"plain": plain}, images, torch.zeros(12).long(), dataset="noise")
