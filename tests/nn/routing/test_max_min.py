"""Max-min routing against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal

from capsviz.nn.routing import max_min


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_route_is_the_literal_loops(iterations):
    votes, _ = drawn("max_min")
    expected = [literal.max_min(by_pair(v), iterations) for v in votes]
    equal(max_min.route(votes, iterations=iterations), as_routing(expected))


def test_every_child_gives_all_to_its_best_parent_and_nothing_to_its_worst():
    votes, _ = drawn("max_min")
    couplings = max_min.route(votes, iterations=4).couplings[1:]
    assert torch.equal(couplings.amax(3), torch.ones(3, B, I).double())
    assert torch.equal(couplings.amin(3), torch.zeros(3, B, I).double())


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_one_parent_gets_all(iterations):
    votes = draw(B, I, 1, E).requires_grad_()
    found = max_min.route(votes, iterations=iterations)
    assert torch.equal(found.couplings, torch.ones(iterations, B, I, 1).double())
    (gradient,) = torch.autograd.grad(found.poses[-1].sum(), votes)
    assert gradient.isfinite().all()


def test_parents_that_tie_all_get_all():
    votes = draw(B, I, 1, E).expand(B, I, J, E)
    assert torch.equal(max_min.route(votes).couplings, torch.ones(3, B, I, J).double())


def test_rounding_decides_no_tie():
    logits = torch.tensor([[3.0, 3.0 + 4e-7, 3.0], [3.0, 3.1, 3.05]])
    found = max_min.stretched(logits)
    assert found[0].tolist() == [1, 1, 1] and found[1].tolist() == pytest.approx([0, 1, 0.5], 1e-4)


def test_moved_and_scaled_logits_give_the_same():
    logits = draw(B, I, J)
    close(max_min.stretched(3 * logits + draw(B, I, 1, seed=6)), max_min.stretched(logits))
