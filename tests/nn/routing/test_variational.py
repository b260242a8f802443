"""Variational routing against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal
from scipy.special import digamma

from capsviz.nn.routing import variational


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_route_is_the_literal_loops(iterations):
    votes, options = drawn("variational")
    given = {key: value.tolist() for key, value in options.items()}
    active = given.pop("activations")
    expected = [
        literal.variational(by_pair(v), a, iterations=iterations, digamma=digamma, **given)
        for v, a in zip(votes, active, strict=True)
    ]
    found = variational.route(votes, iterations=iterations, **options)
    equal(found, as_routing(expected), 1e-9)


def test_with_many_children_the_prior_does_not_matter():
    votes, options = drawn("variational", children=9)
    active = 1e7 * options["activations"]
    found = variational.route(votes, iterations=1, activations=active)
    mass = active[:, :, None] / J
    close(found.poses[0], (mass[..., None] * votes).sum(1) / mass.sum(1)[..., None], 1e-6)


def test_couplings_sum_to_one_where_all_densities_underflow():
    votes, options = drawn("variational", dtype=torch.float32)
    couplings = variational.route(1e3 * votes, **options).couplings
    close(couplings.sum(3), torch.ones(3, B, I), 1e-6)


def test_a_pose_is_the_mean_of_the_votes_shrunk_by_one_child():
    votes, options = drawn("variational")
    found = variational.route(votes, **options)
    share = variational.weights(found.couplings[-1], options["activations"])
    mean = torch.einsum("bij,bije->bje", share, votes)
    mass = (found.couplings[-1] * options["activations"][..., None]).sum(1)
    close(found.poses[-1], mean * (mass / (1 + mass))[..., None])


def test_missing_activations_are_named():
    with pytest.raises(ValueError, match=r"variational routing needs the children's activations"):
        variational.route(draw(B, I, J, E))


def test_shapes_that_do_not_fit_are_named():
    votes, options = drawn("variational")
    with pytest.raises(ValueError, match=r"beta_u must be \(J\) = \(5,\), got the shape \(3,\)"):
        variational.route(votes, **{**options, "beta_u": draw(I)})
