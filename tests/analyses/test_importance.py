"""Importance: what is left out, in which order, and dictionaries of couplings."""

from functools import partial

import numpy as np
import pytest
import torch
from helpers import noise_images as noise
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_strong, build_tiny
from helpers.plain_capsnet import Foreign
from scipy.integrate import trapezoid

from capsviz import data, results
from capsviz.analyses import importance
from capsviz.analyses.importance import measure
from capsviz.inputs.opening import Inputs
from capsviz.inputs.samples import other_images
from capsviz.nn.functional import squash
from capsviz.tracing import trace

CLASSES = noise.CLASSES


model, images, labels, others = noise.model, noise.images, noise.labels, noise.others
one_image = partial(importance.OneImage().measure, classes=CLASSES)


def measured(model, images, labels, others):
    fields = measure.estimates(model, images, labels, others, seed=0, progress=iter)
    return importance.Statistics(**fields, classes=CLASSES, n=len(images), dataset="noise")


def state_of(model, images):
    return next(iter(measure.states(model, images)))[1]


def test_groups_are_types_places_and_dimensions(model, images):
    kinds = measure.kinds_of(state_of(model, images), (2, 3, 2))
    assert {kind: tuple(rows.shape) for kind, rows in kinds.items()} == {
        "types": (2, 12), "positions": (6, 12), "dimensions": (4, 4),
    }  # fmt: skip
    assert kinds["types"][1].nonzero().flatten().tolist() == list(range(6, 12))
    assert kinds["positions"][2].nonzero().flatten().tolist() == [2, 8]
    for rows in kinds.values():
        assert (rows.sum(0) == 1).all()


def test_children_left_out_are_those_of_a_network_built_without_them(model, images):
    """Routed anew on the votes of the other children alone."""
    state = state_of(model, images)
    some = measure.kinds_of(state, model.grid)["types"][1]
    said = measure.removed(model, state, "types", some)
    votes = trace(model, images, keep=("votes",)).votes[:, ~some]
    from capsviz.nn.routing import dynamic

    expected = dynamic.route(votes, iterations=3).activations[-1]
    torch.testing.assert_close(said, expected, rtol=1e-4, atol=1e-6)


def test_a_dimension_is_left_out_of_every_child(model, images):
    state = state_of(model, images)
    some = torch.tensor([False, True, False, False])
    said = measure.removed(model, state, "dimensions", some)
    children = trace(model, images, keep=("children",)).children.clone()
    children[..., 1] = 0
    torch.testing.assert_close(said, model.capsules.couple(children).activations.detach())


def test_random_removals_take_as_much_norm_in_every_image(generator):
    norms = torch.rand(5, 12, generator=generator)
    wanted = norms[:, 3:7].sum(1)
    kept = measure.kept_of_norm(norms, wanted, torch.rand(5, 12, generator=generator).argsort(1))
    torch.testing.assert_close(((1 - kept) * norms).sum(1), wanted)
    assert ((kept > 0) & (kept < 1)).sum(1).max() <= 1


def test_a_random_direction_loses_as_much_as_the_dimension(model, images, generator, monkeypatch):
    state, taken = state_of(model, images), []
    monkeypatch.setattr(
        measure, "without", lambda *_, primary=None, **__: taken.append(primary) or primary
    )
    some = torch.tensor([False, True, False, False])
    measure.removed_at_random(model, state, "dimensions", some, generator)
    lost = (state.primary - taken[0]).norm(dim=2)
    torch.testing.assert_close(lost, state.primary[..., 1].abs(), rtol=1e-4, atol=1e-6)


def test_where_one_type_alone_matters_all_importance_is_its_own(images, labels, others):
    model = build_strong()
    with torch.no_grad():
        model.capsules.weight[6:] = 0  # what the second type says reaches nobody
    result = measured(model, images, labels, others)
    first, second = result.activation_change["types"].value
    assert second == pytest.approx(0, abs=1e-6) and first < -0.01
    assert result.activation_change["types"].high[0] < 0
    one = one_image(model, images[:1], 0)
    assert one.change["types"].argmin() == 0 and abs(one.change["types"][1]) < 1e-6


def test_importance_is_ranked_on_other_images(model, images, labels, others, monkeypatch):
    seen = []
    plans = measure.plans
    monkeypatch.setattr(measure, "plans", lambda m, rank: seen.append(rank) or plans(m, rank))
    result = measured(model, images, labels, others)
    state = state_of(model, others.images)
    whole = measure.outcome(measure.without(model, state), others.labels)[0]
    for members, rank in zip(measure.kinds_of(state, model.grid).values(), seen, strict=True):
        kind = {2: "types", 6: "positions", 4: "dimensions"}[len(members)]
        for some, one in zip(members, rank, strict=True):
            said = measure.outcome(measure.removed(model, state, kind, some), others.labels)[0]
            assert float(one) == pytest.approx(float((whole - said).mean()), abs=1e-6)
    assert result.others == "15 others"


def test_curves_remove_by_rank_and_areas_are_their_mean_heights(model, images, labels, others):
    members = torch.eye(5, dtype=torch.bool)
    rank = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.4])
    planned = measure.plans(members, rank)
    least, most = planned
    assert measure.steps(5) == [1, 2, 3, 4]
    assert least[0].nonzero().flatten().tolist() == [1] and least[1].sum() == 2
    assert most[0].nonzero().flatten().tolist() == [2]
    assert most[3].nonzero().flatten().tolist() == [0, 2, 3, 4]
    result = measured(model, images, labels, others)
    for kind in result.kinds:
        x = [0, *result.removed[kind]]
        curve = np.insert(result.curve_accuracy[kind].value, 0, result.base.value[1], 1)
        np.testing.assert_allclose(
            result.area_accuracy[kind].value, trapezoid(curve, x) / x[-1], rtol=1e-5
        )


def test_the_group_that_ranks_first_stands_beside_random_ones_of_its_norm(
    images, labels, others, monkeypatch
):
    model, targets = build_strong(), []
    kept = measure.kept_of_norm
    monkeypatch.setattr(measure, "kept_of_norm", lambda n, t, o: targets.append(t) or kept(n, t, o))
    result = measured(model, images, labels, others)
    state, kinds = state_of(model, images), measure.kinds_of(state_of(model, images), model.grid)
    norm = (state.norms * kinds["types"][result.first["types"]]).sum(1)
    assert sum(torch.equal(norm, one) for one in targets) >= measure.DRAWS
    own, control = result.first_activation_change["types"]
    same = result.activation_change["types"][result.first["types"]]
    assert float(own.value) == pytest.approx(float(same.value), abs=1e-6)
    assert float(control.difference.value) == pytest.approx(float(control.value - own.value))


def test_random_removals_are_said_to_have_the_norms_of_random_groups(
    images, labels, others, monkeypatch
):
    model, targets, kept = build_strong(), [], measure.kept_of_norm
    monkeypatch.setattr(measure, "kept_of_norm", lambda n, t, o: targets.append(t) or kept(n, t, o))
    one = one_image(model, images[:1], 0)
    assert len({round(float(t), 6) for t in targets}) > 1, "not the norm of one group"
    assert "of the norm of a random group" in importance.OneImage().verdict(one)
    assert "each of the norm of a random group" in importance.OneImage().caption(one)
    words = importance.OverImages().caption(measured(model, images, labels, others))
    assert "of the norm of a random group" in words and "of the most important group" in words


def test_a_dictionary_counts_rounded_trees_of_the_class_that_is_read():
    read = torch.tensor([0, 0, 0, 0, 1, 1])
    couplings = torch.zeros(6, 2, 2)
    couplings[:, :, 0] = torch.tensor([[0.1, 0.5], [0.12, 0.5], [0.1, 0.5], [0.3, 0.5], [0.9, 0.9],
                                       [0.0, 0.1]])  # fmt: skip
    couplings[:, :, 1] = 0.5
    result = measure.dictionary(couplings, read, (11, 101))
    one = -(0.75 * np.log2(0.75) + 0.25 * np.log2(0.25))
    assert result["entropy_bits"].value[0] == pytest.approx(one / 2)
    assert result["keys"].tolist() == [1.5, 2]
    assert result["entropy_bits"].value[1] == pytest.approx(1.5 / 2)
    assert result["child_bits"][0] == pytest.approx(one / 4)
    assert result["bound_bits"] == pytest.approx((2 + 1) / 2)
    assert np.isfinite(result["entropy_bits"].ci95).all()
    edges = np.linspace(-0.05, 1.05, 12)  # of the published code
    values = np.random.default_rng(0).random(999)
    mine = measure.rounded(torch.tensor(values), 11).numpy() * 10
    np.testing.assert_allclose(mine, np.digitize(values, edges) - 1)


def test_an_entropy_at_its_bound_has_no_upper_end():
    couplings = torch.linspace(0, 1, 8)[:, None, None].expand(8, 3, 2)
    bits = measure.dictionary(couplings, torch.arange(8) % 2, (3, 101))["entropy_bits"]
    assert float(bits.value[1]) == float(bits.low[1]) == 2
    assert np.isnan(bits.high).tolist() == [False, True]
    one_alone = torch.tensor([0, 0, 0, 0, 0, 0, 0, 1])
    same = measure.dictionary(torch.full((8, 3, 2), 0.5), one_alone, (3,))["entropy_bits"]
    assert float(same.value[0]) == 0 and np.isnan(same.high[0]), "one image shows one tree"


def test_a_fixed_routing_has_one_tree_and_no_entropy(images, labels, others):
    result = measured(build_tiny(routing="uniform"), images, labels, others)
    assert (result.entropy_bits.value == 0).all() and (result.keys == 1).all()
    assert (result.child_bits == 0).all() and (result.entropy_bits.ci95 == 0).all()


def test_children_varied_apart_keep_what_each_of_them_does(generator):
    couplings = torch.rand(30, 4, 3, generator=generator)
    read = torch.arange(30) % 3
    mixed = measure.apart(couplings, read, generator)
    for k in range(3):
        torch.testing.assert_close(
            mixed[read == k].sort(0).values, couplings[read == k].sort(0).values
        )
    assert not torch.equal(mixed, couplings)


@pytest.mark.parametrize("kind", ["em", "self_attention", "max_min"])
def test_every_routing_can_be_pruned(kind, images, labels, others):
    model = build_tiny(routing=kind)
    result = measured(model, images, labels, others)
    assert result.kinds == ["types", "positions", "dimensions"]
    assert np.isfinite(result.area_accuracy["types"].value).all()
    state = state_of(model, images)
    none = torch.zeros(12)
    said = measure.without(model, state, 1 - none)
    torch.testing.assert_close(said, measure.without(model, state))
    assert measure.without(model, state, none).isfinite().all()


def test_a_network_of_somebody_else_loses_couplings(images, labels, others):
    model = Foreign((1, 21, 19), 3, grid=(2, 3, 2)).eval()
    result = measured(model, images, labels, others)
    assert result.how == "the others keep their couplings" and result.untrained_bits is None
    assert result.kinds == ["types", "positions"]
    state = state_of(model, images)
    some = measure.kinds_of(state, model.grid)["types"][0]
    said = measure.removed(model, state, "types", some)
    traced = trace(model, images)
    total = torch.einsum("bij,bije->bje", traced.couplings[-1][:, 6:], traced.votes[:, 6:])
    torch.testing.assert_close(said, squash(total).norm(dim=2), rtol=1e-4, atol=1e-6)
    model.grid = None
    bare = measured(model, images, labels, others)
    assert bare.kinds == ["children"] and len(bare.activation_change["children"]) == 12
    for one in (bare, one_image(model, images[:1])):
        assert_fits(results.draw("importance", one, "single"))


def test_other_images_are_of_another_split():
    inputs = Inputs(Foreign().eval(), data.load("digits", "test"), None)
    few = other_images(inputs, 30)
    assert few.name == "30 validation images" and few.images.shape == (30, 1, 28, 28)
    assert torch.equal(few.images, other_images(inputs, 30).images)
