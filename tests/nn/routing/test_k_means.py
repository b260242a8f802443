"""k-means routing against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, E, I, J
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal, full

from capsviz.nn.routing import k_means


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_route_is_the_literal_loops(iterations):
    votes, _ = drawn("k_means")
    expected = [literal.k_means(by_pair(v), iterations) for v in votes]
    equal(k_means.route(votes, iterations=iterations), as_routing(expected))


def test_logits_are_not_accumulated():
    votes, _ = drawn("k_means")
    found = k_means.route(votes, iterations=4)
    for before, after in zip(found.poses, found.logits[1:], strict=False):
        direction = before / before.norm(dim=-1, keepdim=True)  # a squash keeps it
        close(after, torch.einsum("bije,bje->bij", votes, direction), 1e-9)


def test_the_first_couplings_are_even():
    votes, _ = drawn("k_means")
    close(k_means.route(votes).couplings[0], full(1 / J, B, I, J))


def test_the_squash_is_a_half_at_the_root_of_a_half():
    x = torch.zeros(1, E).double()
    x[0, 2] = 0.5**0.5
    assert k_means.squash(x).norm().item() == pytest.approx(0.5)
