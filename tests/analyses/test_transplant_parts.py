"""Transplant part by part and iteration by iteration: what is whose, and what follows from it."""

import numpy as np
import pytest
import torch
from helpers import literal as twins
from helpers import noise_images as noise
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_matrix, build_self_routing, build_strong, build_tiny
from helpers.noise_images import CLASSES, spread_out
from helpers.plain_capsnet import Foreign

from capsviz import results
from capsviz.analyses import transplant
from capsviz.analyses.transplant import measure
from capsviz.analyses.transplant.measure import listed
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.models._bases import ClassPoses
from capsviz.nn.models.matrix_capsnet import MatrixCapsNet
from capsviz.statistics import numbers
from capsviz.statistics.replicates import over_runs
from capsviz.tracing import many, trace

model, images = noise.model, noise.images_of_classes
ASKED = {"classes": CLASSES, "dataset": "noise"}
by_capsules = transplant.ByCapsules().measure
by_iterations = transplant.ByIterations().measure


NETWORKS = {
    "dynamic": build_strong,
    "em": lambda: build_tiny(routing="em"),
    "self_attention": lambda: build_tiny(routing="self_attention"),
    "self_routing": build_self_routing,
    "inverted_attention": lambda: build_tiny(routing="inverted_attention"),
    "matrix": lambda: build_matrix(routing="dynamic"),
}


def two_of_unlike_class(model, images):
    """Return a `Layer` of children, and two pairs of one couple of images."""
    state = measure.layer_of(model, images, "children", -1)
    first, other = measure.pairs_of(state.predicted, torch.Generator().manual_seed(0), 4)
    return state, first[:2], other[:2]


@pytest.mark.parametrize("name", NETWORKS)
def test_all_children_of_another_image_are_that_image_and_none_its_own(name, generator):
    model = NETWORKS[name]()
    images = torch.rand(12, 1, 21, 19, generator=generator)
    for layer in range(3) if name == "matrix" else [-1]:
        number = measure.check(model, images, "children", layer)
        state = measure.layer_of(model, images, "children", number)
        first, other = torch.arange(12), torch.arange(12).roll(1)
        for chosen, whose in ((True, other), (False, first)):
            some = torch.full((state.size,), chosen)
            after = measure.mixed(model, state, first, other, some)
            expected = trace(model, images, keep=("lengths",)).lengths[whose]
            torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)


def test_with_all_children_of_the_unlike_image_all_are_read_as_its_class(model, images):
    result = by_capsules(model, images, of="children", **ASKED)
    for kind, own in result.some_own.items():
        assert result.some_partner[kind].value[-1] == 1 and own.value[-1] == 0
    assert result.off < 1e-6 and "by definition" in transplant.ByCapsules().verdict(result)
    poses = by_capsules(model, images, of="poses", **ASKED)
    assert poses.off > 1e-3 and "by definition" not in transplant.ByCapsules().verdict(poses)


def test_no_part_exchanged_leaves_the_image_its_own(model, images):
    own = trace(model, images, keep=("couplings", "lengths"))
    for of in measure.OF:
        state = measure.layer_of(model, images, of, -1)
        some = torch.zeros(state.size, dtype=torch.bool)
        first, other = torch.arange(len(images)), torch.arange(len(images)).roll(1)
        after = measure.mixed(model, state, first, other, some)
        back = trace(model, images, keep=("lengths",), couplings=own.couplings[-1]).lengths
        expected = back if of == "couplings" else own.lengths
        torch.testing.assert_close(after, expected, rtol=1e-5, atol=1e-7)


def test_couplings_that_are_even_in_every_image_change_nothing(generator):
    model = build_tiny(routing="uniform")
    model.capsules.weight.data.mul_(40)
    images = spread_out(model, 10, generator)
    result = by_capsules(model, images, of="couplings", **ASKED)
    assert "By definition" not in transplant.ByCapsules().verdict(result)
    for kind in result.kinds:
        assert np.abs(result.own_change[kind].value).max() < 1e-7
        assert np.abs(result.partner_change[kind].value).max() < 1e-7
        assert (result.own[kind].value == 1).all() and (result.partner[kind].value == 0).all()


def routed(model, children, given=None):
    """Lengths by the loops of the paper; `given` are couplings in place of iterations' own."""
    votes = twins.votes(children[None], model.capsules.weight.detach())
    return twins.dynamic_routing(votes, 3, given=given)[2][-1][0].norm(dim=1)


@pytest.mark.parametrize("of", ["children", "poses"])
def test_one_capsule_exchanged_is_what_loops_make_of_it(of, model, images):
    model = model.double()
    state, first, other = two_of_unlike_class(model, images.double())
    state = state._replace(of=of)
    chosen = torch.zeros(state.size, dtype=torch.bool)
    chosen[7] = True
    after = measure.mixed(model, state, first, other, chosen)
    for k in range(2):
        children, theirs = (state.children[one[k]].clone() for one in (first, other))
        own = routed(model, children)
        scale = children[7].norm() / theirs[7].norm() if of == "poses" else 1
        children[7] = scale * theirs[7]
        expected = routed(model, children)
        np.testing.assert_allclose(after[k], expected, rtol=1e-9)
        assert (own - expected).abs().max() > 1e-6


@pytest.mark.parametrize("mode", ["alone", "onward"])
@pytest.mark.parametrize("r", [0, 1, 2])
def test_couplings_of_one_iteration_are_what_loops_make_of_them(mode, r, model, images):
    model = model.double()
    state, first, other = two_of_unlike_class(model, images.double())
    own = trace(model, images.double(), keep=("couplings",)).couplings[-1]
    which = listed(mode, r, 3)
    assert which == [k == r or (mode == "onward" and k >= r) for k in range(3)]
    given = [own[other] if one else None for one in which]
    after = measure.under(model, state, first, given)
    for k in range(2):
        theirs = [own[other[k]] if one else None for one in which]
        expected = routed(model, state.children[first[k]], theirs)
        np.testing.assert_allclose(after[k], expected, rtol=1e-9)


def test_where_poses_have_activations_beside_them_these_stay_the_images_own(generator):
    own, others = (torch.randn(4, 6, 16, generator=generator) for _ in range(2))
    beside = torch.rand(4, 6, generator=generator)
    assert torch.equal(measure.posed(own, others, beside), others)
    turned = measure.posed(own, others, own.norm(dim=2))
    torch.testing.assert_close(turned.norm(dim=2), own.norm(dim=2))
    cosine = torch.cosine_similarity(turned, others, dim=2)
    torch.testing.assert_close(cosine, torch.ones_like(cosine))
    assert not measure.posed(own, others * 0, own.norm(dim=2)).any()


def test_parts_are_each_type_and_each_place_and_the_control_has_as_many(model, images, generator):
    result = by_capsules(model, images, of="children", **ASKED)
    members = many.groups(model.grid, 12)
    grid = torch.arange(12).view(2, 6)
    for kind, rows in {"types": grid, "positions": grid.T}.items():
        parts = [set(one.nonzero().flatten().tolist()) for one in members[kind]]
        assert parts == [set(one.tolist()) for one in rows]
        assert result.sizes[kind] == rows.shape[1] and len(result.own[kind]) == 1 + len(rows)
        drawn = measure.masks(torch.arange(12), rows.shape[1] / 12, 20, generator)
        assert (drawn.sum(1) == rows.shape[1]).all() and len(drawn.unique(dim=0)) > 2
        shares = (result.own[kind], result.partner[kind], result.neither[kind])
        np.testing.assert_allclose(sum(one.value for one in shares), 1)


def test_the_part_that_is_named_is_picked_on_other_couples_than_it_is_measured_on():
    changes = torch.zeros(1 + 4, 40)
    of_couples = changes.unflatten(1, (-1, 2))
    of_couples[1 + 2, ::2] = 0.3  # the best of the first half
    of_couples[1 + 1, 1::2] = 0.9  # of the second, in which it is not picked
    of_couples[1 + 2, 1::2] = 0.1
    of_couples[0] = 0.05
    best, change = measure.first_of(of_couples.flatten(1), seed=0)
    assert best == 2
    np.testing.assert_allclose(change.value, [0.05, 0.1], rtol=1e-6)


def test_without_places_parts_are_groups_by_number_and_are_drawn(model, images, monkeypatch):
    (members,) = many.groups(None, 200).values()
    assert len(members) == many.MAX_GROUPS and (members.sum(0) == 1).all()
    assert set(members.sum(1).tolist()) == {3, 4}
    monkeypatch.setattr(type(model), "grid", None)
    result = by_capsules(model, images, of="poses", **ASKED)
    assert result.kinds == ["children"] and result.grid is None
    assert_fits(results.draw("transplant", result, "single"))


def test_a_network_whose_couplings_alone_can_be_replaced_gives_the_same_by_part(
    model, images, monkeypatch
):
    expected = by_capsules(model, images, of="couplings", **ASKED)
    monkeypatch.delattr(ClassPoses, "from_children")
    monkeypatch.setattr(type(model), "forward", None)
    found = by_capsules(model, images, of="couplings", **ASKED)
    for kind in expected.kinds:
        change = found.partner_change[kind].value
        np.testing.assert_allclose(change, expected.partner_change[kind].value, atol=1e-5)


@pytest.mark.parametrize(
    ("build", "options", "match"),
    [
        (lambda: Foreign((1, 21, 19), 3).eval(), {"of": "children"}, "no way from other children"),
        (lambda: Foreign((1, 21, 19), 3).eval(), {"of": "poses"}, "no way from other children"),
        (lambda: Foreign((1, 21, 19), 3).eval(), {"by": "iterations"}, "no way from other childr"),
        (build_strong, {"of": "children", "layer": 1}, "one routed layer, expected layer 0 or -1"),
        (build_strong, {"of": "votes"}, "unknown part of a network 'votes', expected one of: coup"),
        (build_matrix, {"of": "couplings", "layer": 3}, "3 routed layers: expected layer 0 to 2"),
        (build_matrix, {"of": "couplings", "layer": 0}, "all parents see all children, got coup"),
        (build_self_routing, {"by": "iterations"}, "one pass: expected a routing with iterations"),
    ],
)
def test_what_cannot_be_exchanged_is_refused_in_a_line_before_it_is(
    build, options, match, images, monkeypatch
):
    monkeypatch.setattr(measure, "layer_of", None)
    by = options.pop("by", None)
    evaluate = by_iterations if by else by_capsules
    with pytest.raises(ValueError, match=match) as refusal:
        evaluate(build(), images, **options, **ASKED)
    assert "\n" not in str(refusal.value)


def test_the_only_layer_may_be_named_and_parts_are_numbered_as_they_are_told(images):
    result = by_capsules(build_strong(), images, of="children", layer=0, **ASKED)
    named = [row[1] for row in numbers.records(result) if row[0] == "own"]
    assert named[:3] == ["types, random capsules", "types, 0", "types, 1"]


def test_couplings_of_a_layer_below_that_sees_all_children_are_exchanged(images, monkeypatch):
    """Its parents are the children of the classes: from there on routing runs by itself."""
    model = build_matrix(routing="dynamic")
    grids = [model.grids[0], model.grids[1], (4, 1, 1)]
    monkeypatch.setattr(MatrixCapsNet, "grids", property(lambda self: grids))
    for n, parents in ((1, 4), (2, 3)):
        shape = {"child_pose": (4, 4), "parent_pose": (4, 4), "std": 0.3}
        model.layers[n] = CapsuleLayer(grids[n], parents, routing="dynamic", **shape)
    number = measure.check(model, images, "couplings", 1)
    state = measure.layer_of(model, images, "couplings", number)
    first, other = torch.arange(6), torch.arange(6).roll(1)
    some = torch.ones(state.size, dtype=torch.bool)
    after = measure.mixed(model, state, first, other, some)
    with torch.no_grad():
        _, middle = model.layers[1].route(state.children[:6], couplings=state.couplings[other])
        expected = model.layers[2](middle.poses[-1], middle.activations[-1]).activations
    torch.testing.assert_close(after, expected, rtol=1e-4, atol=1e-6)


def test_own_couplings_in_the_last_iteration_and_others_in_all_are_the_whole_transplant(
    model, images
):
    result = by_iterations(model, images, **ASKED)
    own, _, unlike = range(3)
    assert [len(result.own[mode][own]) for mode in ("alone", "onward")] == [3, 3]
    np.testing.assert_allclose(result.own_change["alone"].value[own, -1], 0, atol=1e-6)
    for field in (result.own, result.partner, result.own_change, result.partner_change):
        values = field["onward"].value[
            unlike
        ]  # dynamic routing: the last iteration is all there is
        np.testing.assert_allclose(values, values[0], atol=1e-6)
        np.testing.assert_allclose(field["alone"].value[unlike, -1], values[0], atol=1e-6)


def test_types_of_several_runs_are_the_first_ones_and_places_their_mean(model, images):
    runs = [by_capsules(model, images, of="children", seed=k, **ASKED) for k in range(2)]
    joined, of_first = over_runs(runs, transplant.Parts.over_runs)
    assert joined.partner_change["positions"].runs is not None
    assert joined.partner_change["types"].runs is None
    assert any("types" in field for field in of_first)
    assert "(number" not in transplant.ByCapsules().verdict(joined)
