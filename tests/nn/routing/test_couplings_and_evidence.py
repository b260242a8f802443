"""What every routing does with couplings that are given, and what its file says of its parents."""

from inspect import signature

import pytest
import torch
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import ACTIVE, ITERATIVE, NAMES, close, drawn, full, learned, run

from capsviz.nn import routing
from capsviz.nn.routing_layer import evidence

every_routing = pytest.mark.parametrize("name", NAMES)
every_iterative = pytest.mark.parametrize("name", ITERATIVE)
every_active = pytest.mark.parametrize("name", ACTIVE)
NORMALISED = {"inverted_attention"}  # whose poses do not point where their input does


def having(function):
    """Every routing whose file has this function."""
    names = [name for name in NAMES if hasattr(routing.get(name), function)]
    return pytest.mark.parametrize("name", names)


@every_routing
@pytest.mark.parametrize("shape", [(I, J), (B, I, J)])
def test_given_couplings_are_used_in_every_iteration(name, shape):
    votes, options = drawn(name)
    given = draw(*shape, seed=4).softmax(-1)
    found = run(name, votes, options, couplings=given)
    for used in found.couplings:
        close(used, given.expand(B, I, J))
    close(found.poses[0], found.poses[-1])
    assert (found.poses[-1] - run(name, votes, options, 1).poses[0]).abs().max() > 1e-3


@every_routing
def test_its_own_couplings_given_back_are_the_same_routing(name):
    given = drawn(name)
    first = run(name, *given, 1)
    again = run(name, *given, 1, couplings=first.couplings[0])
    for a, b in zip(again, first, strict=True):
        close(a, b)


@every_iterative
def test_the_first_couplings_in_every_iteration_are_one_iteration(name):
    given = drawn(name)
    one = run(name, *given, 1)
    close(run(name, *given, 3, couplings=one.couplings[0]).poses[-1], one.poses[-1])


@every_routing
def test_a_pose_points_where_its_weighted_votes_do(name):
    votes, options = drawn(name)
    if name == "dynamic":
        options = {}
    found, module = run(name, votes, options), routing.get(name)
    weights = found.couplings[-1]
    if hasattr(module, "weights"):
        weights = module.weights(weights, options["activations"])
    total = torch.einsum("bij,bije->bje", weights, votes)
    pose = found.poses[-1]
    if name in NORMALISED:
        pose = (pose - options["shift"]) / options["gain"]
        total = total - total.mean(2, keepdim=True)
    total, pose = (x / x.norm(dim=2, keepdim=True) for x in (total, pose))
    close(pose, total, 1e-8)


@every_active
def test_weights_are_shares_of_the_parent(name):
    votes, options = drawn(name)
    active = options["activations"]
    weights = routing.get(name).weights(run(name, votes, options).couplings, active)
    close(weights.sum(2), full(1, len(weights), B, J))
    assert weights.min() >= 0


@having("evidence")
def test_evidence_is_there_for_every_pair(name):
    votes, options = drawn(name)
    found = run(name, votes, options)
    parts = evidence(name, votes, found, options.get("activations"), **learned(name))
    assert parts.shape == (B, I, J) and parts.isfinite().all()


@having("parameters")
def test_parameters_are_what_route_takes_and_fit(name):
    module = routing.get(name)
    found = module.parameters(I, J, D, E)
    assert found.keys() <= signature(module.route).parameters.keys()
    votes, options = drawn(name, dtype=torch.float32)
    assert run(name, votes, {**options, **found}).poses.isfinite().all()
