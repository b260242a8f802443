"""Self-attention routing against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal, full

from capsviz.nn.functional import agreement, squash_exp
from capsviz.nn.routing import self_attention
from capsviz.nn.routing._parts import summed


def test_route_is_the_literal_loops():
    votes, options = drawn("self_attention")
    expected = [literal.self_attention(by_pair(v), options["bias"].tolist()) for v in votes]
    equal(self_attention.route(votes, **options), as_routing(expected))


def test_the_bias_is_added_after_the_softmax():
    votes, options = drawn("self_attention")
    plain, biased = self_attention.route(votes), self_attention.route(votes, **options)
    close(biased.couplings, plain.couplings + options["bias"])
    close(biased.logits, plain.logits)


def test_it_is_two_rounds_of_dynamic_routing_whose_first_pose_is_the_scaled_sum():
    votes, _ = drawn("self_attention")
    logits = agreement(votes, votes.sum(1) / E**0.5)
    poses = squash_exp(summed(logits.softmax(2), votes))
    close(self_attention.route(votes).poses[-1], poses)


def test_small_votes_are_shared_evenly_and_large_ones_go_to_one_parent():
    votes, _ = drawn("self_attention")
    close(self_attention.route(1e-6 * votes).couplings, torch.full_like(votes[None, ..., 0], 1 / J))
    largest = self_attention.route(1e4 * votes).couplings.amax(3)
    close(largest, torch.ones_like(largest))


def test_one_parent_gets_all_and_its_bias():
    bias = draw(I, 1, seed=5)
    found = self_attention.route(draw(2, I, 1, E), bias=bias)
    close(found.couplings, (1 + bias).expand_as(found.couplings))


def test_the_squash_keeps_short_vectors_and_takes_long_ones_to_one():
    x = draw(4, E)
    unit = x / x.norm(dim=1, keepdim=True)
    close(squash_exp(1e-4 * unit).norm(dim=1), full(1e-4, 4), 1e-4)
    close(squash_exp(50 * unit), unit)
    zero = torch.zeros(2, E, requires_grad=True)
    squash_exp(zero).sum().backward()
    close(zero.grad, torch.ones(2, E), 1e-5)


def test_a_bias_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"bias must be \(I, J\) = \(3, 5\), got .*\(5, 3\)"):
        self_attention.route(draw(2, I, J, E), bias=draw(J, I))
