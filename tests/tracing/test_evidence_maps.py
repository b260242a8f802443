"""Maps of evidence, by the routing's own decomposition where it has one; parents by their types."""

import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign

import capsviz
from capsviz.nn import models, routing
from capsviz.nn.models import matrix_capsnet
from capsviz.tracing import evidence, measures


def matrix(**options):
    torch.manual_seed(0)
    options = {"channels": 4, "types": (2, 3, 3), "iterations": 2, **options}
    model = matrix_capsnet.build((1, 21, 19), 3, **options).double().eval()
    with torch.no_grad():
        for layer in model.layers:  # as after training: not the constants that they start from
            for value in layer.learned.values():
                value.add_(0.3 * torch.randn_like(value))
            layer.weight.mul_(3)
    return model


def constants(layer):
    """λ β_a after the last of two iterations, of each type of parent."""
    return layer.options["final_temperature"] * (1 - 0.95**2) * layer.learned["beta_a"].detach()


@pytest.mark.parametrize("number", [0, 1, 2, -1])
@pytest.mark.parametrize("couplings", [None, "uniform"])
def test_maps_of_em_sum_to_the_logit_less_a_constant_in_every_layer(number, couplings, tiny_images):
    model = matrix()
    traced = capsviz.trace(model, tiny_images[:2].double(), layer=number, couplings=couplings)
    logits = traced.activations[-1].logit() - constants(model.layers[number])
    parts = evidence.of_children(traced)
    torch.testing.assert_close(parts.sum(-2), logits, rtol=1e-9, atol=1e-9)
    maps = evidence.additive_map(traced)
    assert maps.shape[2:] == traced.grid[1:]
    whole = logits if traced.links is None else logits.sum(1)
    torch.testing.assert_close(maps.sum((2, 3)), whole, rtol=1e-9, atol=1e-9)
    if traced.links is not None:
        one = evidence.additive_map(traced, position=1)
        torch.testing.assert_close(one.sum((2, 3)), logits[:, 1], rtol=1e-9, atol=1e-9)


def test_a_local_map_lies_where_the_window_is(tiny_images):
    traced = capsviz.trace(matrix(), tiny_images[:1].double(), layer=0)
    types, rows, columns = traced.grid
    seen = torch.zeros(types * rows * columns, dtype=torch.bool)
    seen[traced.links.child[1]] = True
    seen = seen.view(types, rows, columns).any(0)
    one = evidence.additive_map(traced, position=1)[0]
    assert seen.sum() == 9 and (one[:, ~seen] == 0).all() and (one[:, seen] != 0).all()
    places = range(len(traced.links.child))
    every = sum(evidence.additive_map(traced, position=q)[0] for q in places)
    torch.testing.assert_close(every, evidence.additive_map(traced)[0])


def test_the_shipped_matrix_capsules_are_decomposed_exactly():
    model = capsviz.load("digits-matrix").double()
    images = torch.rand(2, 1, 28, 28, generator=torch.Generator().manual_seed(0)).double()
    for number, layer in enumerate(model.layers):
        traced = capsviz.trace(model, images, layer=number)
        logits = traced.activations[-1].logit() - constants(layer)
        found = evidence.of_children(traced).sum(-2)
        torch.testing.assert_close(found, logits, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", routing.available())
def test_every_routing_has_maps_and_says_of_what(name, tiny_images):
    more = {"types": 2} if name != "em" else {"types": 2, "final_temperature": 1.0}
    model = build_tiny(routing=name, **more)
    traced = capsviz.trace(model, tiny_images[:2])
    own = hasattr(routing.get(name), "evidence")
    assert (traced.evidence is not None) == own == (traced.quantity is not None)
    assert evidence.quantity(traced) == routing.quantity(name)
    maps = evidence.additive_map(traced)
    assert maps.shape == (2, 3, *model.grid[1:]) and maps.isfinite().all()
    if name == "self_routing":
        torch.testing.assert_close(maps.sum((2, 3)), traced.lengths.double())
    if name == "inverted_attention":
        torch.testing.assert_close(maps.sum((2, 3)).softmax(1), traced.lengths.double())


def test_a_network_may_say_its_grids_alone():
    model = Foreign((1, 9, 9), grid=(3, 2, 2))
    del model.grid
    with pytest.raises(ValueError, match="does not say where its capsules lie"):
        evidence.fields_of_places(model)
    model.grids = ((3, 2, 2),)
    assert evidence.fields_of_places(model).sum((2, 3)).tolist() == [[81, 81], [81, 81]]


def test_maps_along_the_pose_are_what_they_were(tiny_images):
    traced = capsviz.trace(build_tiny(), tiny_images[:2])
    direction = torch.nn.functional.normalize(traced.poses[-1].double(), dim=-1)
    parts = torch.einsum("bije,bje->bij", traced.votes.double(), direction)
    parts = traced.couplings[-1].double() * parts
    expected = parts.unflatten(1, traced.grid).sum(1).movedim(-1, 1)
    assert torch.equal(evidence.additive_map(traced), expected)


@pytest.fixture(scope="module", params=["em", "dynamic"])
def traced(request):
    torch.manual_seed(3)
    model = models.build(
        "matrix_capsnet", (1, 21, 19), 3, channels=6, types=(2, 3, 4), routing=request.param
    )
    images = torch.rand(2, 1, 21, 19, generator=torch.Generator().manual_seed(4))
    return capsviz.trace(model, images, layer=0)


def test_what_a_child_gives_and_adds_to_a_type_is_summed_over_places(traced):
    folded, child = measures.by_parent_type(traced), traced.links.child
    adds = evidence.of_children(traced)
    shares = torch.zeros(2, 2, traced.links.count, 3).double()
    added = torch.zeros_like(shares)
    for place in range(len(child)):
        for slot, i in enumerate(child[place].tolist()):
            for j in range(3 * (i >= 0)):
                for n in range(2):
                    shares[-1, n, i, j] += traced.couplings[-1, n, place, slot, j].double()
                    added[-1, n, i, j] += adds[n, place, slot, j]
    total = shares[-1].sum(-1, keepdim=True)
    linked = measures.with_parents(traced)
    assert (total[:, linked] > 0).all() and not total[:, ~linked].any()
    torch.testing.assert_close(folded.couplings[-1], shares[-1] / total.clamp_min(1e-300))
    torch.testing.assert_close(folded.evidence[-1], added[-1])
    torch.testing.assert_close(folded.activations, traced.activations.mean(2))
    assert float(measures.entropy(folded.couplings[:, :, linked]).min()) >= 0


def test_agreement_and_input_are_means_over_places(traced):
    votes, couplings, poses = traced.votes, traced.couplings[-1], traced.poses[-1]
    cosine = torch.cosine_similarity(votes, poses[:, :, None], dim=-1)
    expected = (couplings * cosine).sum((1, 2)) / couplings.sum((1, 2))
    torch.testing.assert_close(measures.mean_agreement(traced)[-1], expected, rtol=1e-4, atol=1e-5)
    total = torch.einsum("nqij,nqije->nqje", traced.factors[-1].double(), votes.double())
    torch.testing.assert_close(measures.input_norms(traced), total.norm(dim=-1).mean(1))


def test_unlinked_children_are_no_part_of_a_type_mean():
    couplings, linked = torch.tensor([[[0.2, 0.8], [0.0, 0.0]]]), torch.tensor([True, False])
    means = measures.type_means(couplings, (1, 1, 2), linked)
    torch.testing.assert_close(means, torch.tensor([[[0.2, 0.8]]]))


@pytest.fixture
def below_zero():
    """Of self-attention whose biases make the couplings of a child add up to about zero."""
    model = models.build(
        "matrix_capsnet", (1, 21, 19), 3, channels=6, types=(2, 3, 4), routing="self_attention"
    )
    torch.nn.init.constant_(model.layers[0].learned["bias"], -0.34)
    images = torch.rand(2, 1, 21, 19, generator=torch.Generator().manual_seed(4))
    return capsviz.trace(model.eval(), images, layer=0)


def test_couplings_below_zero_have_shares_that_are_numbers(below_zero):
    folded = measures.by_parent_type(below_zero).couplings
    linked = measures.with_parents(below_zero)
    assert below_zero.couplings.sum(-1).min() < 0
    torch.testing.assert_close(
        folded[:, :, linked].abs().sum(-1), torch.ones(folded[:, :, linked].shape[:-1]).double()
    )
    assert not folded[:, :, ~linked].any()


def test_agreement_weighs_places_by_the_size_of_their_couplings(below_zero):
    votes, couplings, poses = (getattr(below_zero, n) for n in ("votes", "couplings", "poses"))
    cosine = torch.cosine_similarity(votes, poses[-1][:, :, None], dim=-1)
    expected = (couplings[-1] * cosine).sum((1, 2)) / couplings[-1].abs().sum((1, 2))
    found = measures.mean_agreement(below_zero)[-1]
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert found.abs().max() <= 1
