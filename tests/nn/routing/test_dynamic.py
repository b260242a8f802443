"""Dynamic routing against Procedure 1, transcribed in loops (twins.py)."""

import pytest
import torch
from helpers import literal as twins
from helpers.random_tensors import B, D, E, I, J, draw

from capsviz.nn.functional import lengths
from capsviz.nn.routing import dynamic

ITERATIONS = pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])


@pytest.fixture(params=[False, True], ids=["without bias", "with bias"])
def bias(request):
    return draw(J, E, seed=3) if request.param else None


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


@ITERATIONS
def test_route_is_procedure_1_in_every_iteration(iterations, bias):
    votes = draw(B, I, J, E)
    logits, couplings, poses = twins.dynamic_routing(votes, iterations, bias=bias)
    found = dynamic.route(votes, iterations=iterations, bias=bias)
    close(found.logits, twins.to_tensor(logits))
    close(found.couplings, twins.to_tensor(couplings))
    close(found.poses, twins.to_tensor(poses))


@ITERATIONS
def test_fused_is_procedure_1(iterations, bias):
    primary, weight = draw(B, I, D, seed=1), draw(I, J, E, D, seed=2)
    expected = twins.dynamic_routing(twins.votes(primary, weight), iterations, bias=bias)[2][-1]
    found = dynamic.fused(primary, weight, iterations=iterations, bias=bias)
    close(found.poses, expected)
    close(found.activations, lengths(expected))


def test_the_first_iteration_has_zero_logits_and_uniform_couplings():
    found = dynamic.route(draw(B, I, J, E), iterations=2)
    assert torch.equal(found.logits[0], torch.zeros(B, I, J, dtype=torch.float64))
    close(found.couplings[0], torch.full((B, I, J), 1 / J, dtype=torch.float64))


def test_the_default_is_the_three_iterations_of_the_paper():
    votes = draw(B, I, J, E)
    primary, weight = draw(B, I, D, seed=1), draw(I, J, E, D, seed=2)
    assert len(dynamic.route(votes).poses) == 3
    for a, b in zip(
        dynamic.fused(primary, weight), dynamic.fused(primary, weight, iterations=3), strict=True
    ):
        assert torch.equal(a, b)


def test_logits_are_still_recorded_under_given_couplings():
    votes, uniform = draw(B, I, J, E), torch.full((I, J), 1 / J, dtype=torch.float64)
    found = dynamic.route(votes, iterations=3, couplings=uniform)
    agreement = torch.einsum("bije,bje->bij", votes, found.poses[0])
    close(found.logits, torch.stack([0 * agreement, agreement, 2 * agreement]))


def test_children_that_agree_couple_to_the_parent_they_agree_on():
    votes = 0.1 * draw(1, I, J, E)
    votes[:, :, 2] += 1.0  # all children say the same of parent 2
    couplings = dynamic.route(votes, iterations=3).couplings[-1]
    assert (couplings.argmax(2) == 2).all()
