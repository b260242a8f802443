"""Inverted dot-product attention against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal, full

from capsviz.nn.routing import inverted_attention

ITERATIONS = pytest.mark.parametrize("iterations", [1, 2, 3, 5])


@ITERATIONS
def test_route_is_the_literal_loops(iterations):
    votes, options = drawn("inverted_attention")
    numbers = {key: value.tolist() for key, value in options.items()}
    expected = [literal.inverted_attention(by_pair(v), iterations, **numbers) for v in votes]
    found = inverted_attention.route(votes, iterations=iterations, **options)
    equal(found, as_routing(expected))


def test_logits_are_zero_at_first_and_not_accumulated():
    votes, options = drawn("inverted_attention")
    found = inverted_attention.route(votes, iterations=4, **options)
    assert not found.logits[0].any()
    for before, after in zip(found.poses, found.logits[1:], strict=False):
        close(after, torch.einsum("bije,bje->bij", votes, before) / E**0.5)


def test_poses_have_mean_0_and_variance_1_before_gain_and_shift():
    votes, _ = drawn("inverted_attention")
    poses = inverted_attention.route(1e3 * votes, iterations=1).poses[0]
    close(poses.mean(2), full(0, B, J))
    close(poses.var(2, unbiased=False), full(1, B, J), 1e-6)


def test_one_round_does_not_see_the_size_of_the_votes():
    votes, _ = drawn("inverted_attention")
    one, other = (inverted_attention.route(k * votes, iterations=1).poses for k in (1e3, 7e4))
    close(one, other, 1e-6)


def test_without_a_head_every_parent_is_there():
    votes, _ = drawn("inverted_attention")
    assert torch.equal(inverted_attention.route(votes).activations, torch.ones(3, B, J).double())


def test_with_a_head_activations_are_probabilities():
    votes, options = drawn("inverted_attention")
    activations = inverted_attention.route(votes, **options).activations
    close(activations.sum(2), torch.ones(3, B).double())
    poses = inverted_attention.route(votes, **options).poses
    scores = poses @ options["head_weight"] + options["head_bias"]
    close(activations, scores.softmax(2))


@pytest.mark.parametrize("with_gain", [False, True])
def test_evidence_sums_to_the_score_less_a_constant(with_gain):
    votes, options = drawn("inverted_attention")
    if not with_gain:
        del options["gain"]
    found = inverted_attention.route(votes, **options)
    evidence = inverted_attention.evidence(votes, found, **options)
    score = found.poses[-1] @ options["head_weight"]
    close(evidence.sum(1), score - options["head_weight"] @ options["shift"])


def test_a_gain_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"gain must be \(E\) = \(7,\), got the shape \(5,\)"):
        inverted_attention.route(draw(B, I, J, E), gain=draw(J))
