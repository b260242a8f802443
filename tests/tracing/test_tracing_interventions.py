"""Interventions on routing through `capsviz.trace`: couplings, iterations, seed."""

import pytest
import torch
from conftest import build_strong
from helpers.plain_capsnet import Foreign

import capsviz
from capsviz.nn.functional import random_couplings, squash
from capsviz.tracing import from_children

trace = capsviz.trace


@pytest.fixture
def tiny():
    """conftest's, with couplings that are far from even."""
    return build_strong()


def test_uniform_couplings_are_one_over_parents_in_every_iteration(network, tiny_images):
    seen = trace(network, tiny_images, couplings="uniform")
    torch.testing.assert_close(seen.couplings, torch.full_like(seen.couplings, 1 / 3))
    first = trace(network, tiny_images, iterations=1)
    torch.testing.assert_close(seen.poses[-1], first.poses[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("classes", [3, 43])
def test_where_a_child_gives_all_of_itself_the_controls_are_not_scaled_by_one_bit(classes):
    model = Foreign((1, 9, 9), classes=classes).eval()
    images = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    uniform = trace(model, images, couplings="uniform").couplings
    assert torch.equal(uniform, torch.full_like(uniform, 1 / classes))
    draw = torch.Generator().manual_seed(5)
    drawn = [random_couplings((1, 12, classes), generator=draw) for _ in range(2)]
    random = trace(model, images, couplings="random", seed=5).couplings
    assert torch.equal(random[-1], torch.cat(drawn))


@pytest.mark.parametrize("shape", [(12, 3), (8, 12, 3)])
@pytest.mark.parametrize("chunk", [None, 3])
def test_couplings_can_be_given(network, tiny_images, shape, chunk):
    given = torch.rand(shape, generator=torch.Generator().manual_seed(1)).softmax(-1)
    seen = trace(network, tiny_images, couplings=given, chunk=chunk)
    expected = given.expand(8, 12, 3)
    for used in seen.couplings:
        torch.testing.assert_close(used, expected)
    inputs = (expected[..., None] * seen.votes).sum(1)
    bias = getattr(getattr(network, "capsules", None), "bias", None)
    inputs = inputs if bias is None else inputs + bias.detach()
    torch.testing.assert_close(seen.poses[-1], squash(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize("keep", [("lengths",), ("poses",)])
def test_an_intervention_reaches_parts_that_need_no_votes(network, tiny_images, keep):
    seen = trace(network, tiny_images, couplings="random", keep=keep)
    whole = trace(network, tiny_images, couplings="random")
    torch.testing.assert_close(getattr(seen, keep[0]), getattr(whole, keep[0]))
    plain = trace(network, tiny_images, keep=keep)
    assert not torch.allclose(getattr(seen, keep[0]), getattr(plain, keep[0]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "unifrom",
            "unknown couplings 'unifrom', expected one of: uniform, random, shuffled, matched",
        ),
        (torch.full((3, 12), 1 / 3), r"expected couplings \(8, 12, 3\), got \(3, 12\)"),
        (torch.full((12, 3), torch.nan), "expected finite couplings"),
        (torch.full((5, 12, 3), 1 / 3), r"\(8, 12, 3\).*got \(5, 12, 3\)"),
        (torch.full((1, 8, 12, 3), 1 / 3), r"got \(1, 8, 12, 3\)"),
    ],
)
def test_couplings_that_do_not_fit_are_refused(network, tiny_images, given, message):
    with pytest.raises(ValueError, match=message):
        trace(network, tiny_images, couplings=given)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_iterations_can_be_other_than_the_networks_own(network, tiny_images, iterations):
    seen = trace(network, tiny_images, iterations=iterations)
    assert len(seen.poses) == len(seen.couplings) == len(seen.logits) == iterations
    lengths = trace(network, tiny_images, iterations=iterations, keep=("lengths",)).lengths
    torch.testing.assert_close(lengths, seen.lengths)


def test_children_of_another_form_or_layer_are_refused_in_a_line(tiny, tiny_images):
    children = capsviz.trace(tiny, tiny_images).children
    for more, said in (
        ({"layer": 5}, "one routed layer, expected layer 0 or -1, got 5"),
        ({"activations": children.norm(dim=2)[1:]}, r"activations \(N, I\), got"),
        ({"couplings": torch.zeros(len(children), 3, 2)}, "couplings must be"),
    ):
        with pytest.raises(ValueError, match=said):
            from_children(tiny, children, **more)
