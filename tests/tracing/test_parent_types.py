"""Parents at many places, told by their types: against loops over places, slots and parents."""

import pytest
import torch

from capsviz.nn import models
from capsviz.tracing import measures, trace
from capsviz.tracing.evidence import of_children
from capsviz.tracing.measures import entropy


@pytest.fixture(scope="module", params=["em", "dynamic"])
def traced(request):
    torch.manual_seed(3)
    model = models.build(
        "matrix_capsnet", (1, 21, 19), 3, channels=6, types=(2, 3, 4), routing=request.param
    )
    images = torch.rand(2, 1, 21, 19, generator=torch.Generator().manual_seed(4))
    return trace(model, images, layer=0)


def test_what_a_child_gives_and_adds_to_a_type_is_summed_over_places(traced):
    folded, child = measures.by_parent_type(traced), traced.links.child
    adds = of_children(traced)
    shares = torch.zeros(2, 2, traced.links.count, 3).double()
    evidence = torch.zeros_like(shares)
    for place in range(len(child)):
        for slot, i in enumerate(child[place].tolist()):
            for j in range(3 * (i >= 0)):
                for n in range(2):
                    shares[-1, n, i, j] += traced.couplings[-1, n, place, slot, j].double()
                    evidence[-1, n, i, j] += adds[n, place, slot, j]
    total = shares[-1].sum(-1, keepdim=True)
    linked = measures.with_parents(traced)
    assert (total[:, linked] > 0).all() and not total[:, ~linked].any()
    torch.testing.assert_close(folded.couplings[-1], shares[-1] / total.clamp_min(1e-300))
    torch.testing.assert_close(folded.evidence[-1], evidence[-1])
    torch.testing.assert_close(folded.activations, traced.activations.mean(2))
    assert float(entropy(folded.couplings[:, :, linked]).min()) >= 0


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
        "matrix_capsnet",
        (1, 21, 19),
        3,
        channels=6,
        types=(2, 3, 4),
        routing="self_attention",
    )
    torch.nn.init.constant_(model.layers[0].learned["bias"], -0.34)
    images = torch.rand(2, 1, 21, 19, generator=torch.Generator().manual_seed(4))
    return trace(model.eval(), images, layer=0)


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
