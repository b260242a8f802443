"""What holds for every routing: a new file in capsviz/nn/routing is found and tested here.

Parameters, activations and children are drawn by the routing's signature and its `parameters`.
"""

import pytest
import torch
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import (
    ACTIVE,
    FUSED,
    ITERATIVE,
    NAMES,
    close,
    drawn,
    full,
    reordered,
    run,
    takes,
)
from torch.nn.functional import normalize

from capsviz.nn import routing
from capsviz.nn.capsule_layer import evidence
from capsviz.nn.functional import lengths

every_routing = pytest.mark.parametrize("name", NAMES)
every_iterative = pytest.mark.parametrize("name", ITERATIVE)
every_active = pytest.mark.parametrize("name", ACTIVE)

# What a child gives away in all; any other routing gives 1. None: whatever it likes.
GIVEN_AWAY = {"self_attention": lambda options: 1 + options["bias"].sum(1), "max_min": None}


def pick(values, index):
    """Some images of votes, or of what options have for each image."""
    return {
        key: value[index] if key in ("activations", "children") else value
        for key, value in values.items()
    }


@every_iterative
def test_more_iterations_go_on_from_fewer(name):
    given = drawn(name, children=9)
    for a, b in zip(run(name, *given, 2), run(name, *given, 4), strict=True):
        close(a, b[:2])
    assert (run(name, *given, 4).poses[1] - run(name, *given, 4).poses[3]).abs().max() > 1e-6


@every_iterative
def test_couplings_are_replaced_in_the_iterations_that_are_listed(name):
    votes, options = drawn(name)
    own, other = run(name, votes, options, 3), draw(B, I, J, seed=7).softmax(2)
    whole = run(name, votes, {**options, "couplings": other}, 3)
    for listed, expected in (([None] * 3, own), (list(own.couplings), own), ([other] * 3, whole)):
        for a, b in zip(
            run(name, votes, {**options, "couplings": listed}, 3), expected, strict=True
        ):
            close(a, b)
    late = run(name, votes, {**options, "couplings": [None, other, None]}, 3)
    close(late.poses[0], own.poses[0])
    close(late.couplings[1], other)
    assert (late.couplings[2] - own.couplings[2]).abs().max() > 1e-6  # it routes on from there


@every_routing
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_couplings_sum_to_what_a_child_gives_away_and_activations_lie_in_0_1(name, scale):
    votes, options = drawn(name, scale=scale)
    found = run(name, votes, options)
    gives = GIVEN_AWAY.get(name, lambda options: full(1, I))
    if gives is not None:
        close(found.couplings.sum(3), gives(options).expand(len(found.couplings), B, I))
    assert found.activations.min() >= 0 and found.activations.max() <= 1 + 1e-9
    if "bias" in options and name in GIVEN_AWAY:
        options["bias"] = torch.zeros_like(options["bias"])
        found = run(name, votes, options)
    assert found.couplings.min() >= 0 and found.couplings.max() <= 1 + 1e-12


@every_routing
def test_an_image_is_routed_alone_as_in_a_batch_and_an_empty_batch_too(name):
    votes, options = drawn(name, batch=4)
    together = run(name, votes, options)
    for here in (slice(0, 0), *(slice(b, b + 1) for b in range(4))):
        alone = run(name, votes[here], pick(options, here))
        for a, t in zip(alone, together, strict=True):
            close(a, t[:, here])


@every_routing
def test_the_order_of_children_and_parents_does_not_matter(name):
    votes, options = drawn(name)
    plain = run(name, votes, options, 2)
    for size, order in ((I, [2, 0, 1]), (J, [3, 0, 4, 1, 2])):
        other = run(name, reordered(votes, size, order), reordered(options, size, order), 2)
        for a, b in zip(other, plain, strict=True):
            close(a, reordered(b, size, order))


@every_active
def test_a_child_of_activation_zero_changes_nothing(name):
    votes, options = drawn(name, children=I + 1)
    active = options["activations"].clone()
    active[:, -1] = 0
    off = run(name, votes, {**options, "activations": active})
    without = {
        key: value.narrow(value.shape.index(I + 1), 0, I) if I + 1 in value.shape else value
        for key, value in options.items()
    }
    expected = run(name, votes[:, :I], without)
    close(off.poses, expected.poses)
    close(off.activations, expected.activations)
    close(off.couplings[:, :, :I], expected.couplings)


@every_routing
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("what", ["zero", "equal", "large", "inactive"])
def test_value_and_gradient_are_finite_at(what, name, dtype):
    votes, options = drawn(name, dtype=dtype)
    if what == "equal":
        votes = votes[:, :1, :1].expand_as(votes)
    elif what == "inactive" and "activations" in options:
        options["activations"] = torch.zeros_like(options["activations"])
    votes = votes * {"zero": 0, "large": 1e3}.get(what, 1)
    given = [x.clone().requires_grad_() for x in (votes, *options.values())]
    found = run(name, given[0], dict(zip(options, given[1:], strict=True)))
    assert all(part.isfinite().all() and part.dtype == dtype for part in found)
    loss = lengths(found.poses[-1]).sum() + found.activations[-1].square().sum()
    for gradient in torch.autograd.grad(loss, given, allow_unused=True):
        assert gradient is None or gradient.isfinite().all()


SIGNED = {"inverted_attention"}  # its head and its shift tell a pose from the opposite one
AXES = {"em", "variational", "inverted_attention"}  # look at each number of a vote by itself


def without_bias(name, options):
    """Without what dynamic routing adds to a parent's input."""
    return {} if name == "dynamic" else options


@pytest.mark.parametrize("name", sorted(set(NAMES) - SIGNED))
def test_the_opposite_votes_give_the_opposite_poses_and_nothing_else(name):
    """A limit of routing by agreement (Peer et al. 2021)."""
    votes, options = drawn(name)
    options = without_bias(name, options)
    plain, opposite = run(name, votes, options), run(name, -votes, options)
    close(opposite.poses, -plain.poses)
    close(opposite.couplings, plain.couplings)
    close(opposite.activations, plain.activations)


@pytest.mark.parametrize("name", sorted(set(NAMES) - AXES))
def test_turning_the_votes_of_a_parent_turns_its_pose_alone(name):
    votes, options = drawn(name)
    options = without_bias(name, options)
    turn = torch.linalg.qr(draw(J, E, E, seed=7)).Q
    plain = run(name, votes, options)
    turned = run(name, torch.einsum("jfe,bije->bijf", turn, votes), options)
    close(turned.poses, torch.einsum("jfe,rbje->rbjf", turn, plain.poses))
    close(turned.couplings, plain.couplings)
    close(turned.activations, plain.activations)


# Couplings that are given


@every_routing
@pytest.mark.parametrize("shape", [(I, J), (B, I, J)])
def test_given_couplings_are_used_in_every_iteration(name, shape):
    votes, options = drawn(name)
    given = draw(*shape, seed=4).softmax(-1)
    found = run(name, votes, options, couplings=given)
    for used in found.couplings:
        close(used, given.expand(B, I, J))
    close(found.poses[0], found.poses[-1])
    first = run(name, votes, options, 1)
    assert (found.poses[-1] - first.poses[0]).abs().max() > 1e-3
    for a, b in zip(run(name, votes, options, 1, couplings=first.couplings[0]), first, strict=True):
        close(a, b)  # its own, given back


@every_routing
def test_couplings_of_another_shape_are_refused_in_a_line(name):
    votes, options = drawn(name)
    for wrong in (torch.zeros(I + 1, J), torch.zeros(7, 1, I, J)):
        with pytest.raises(ValueError, match=r"couplings must be .*, or a shape that broadcasts"):
            run(name, votes, {**options, "couplings": wrong})


# What a routing's file says of its parents


@every_routing
def test_a_pose_points_where_its_weighted_votes_do(name):
    votes, options = drawn(name)
    options = without_bias(name, options)
    found, module = run(name, votes, options), routing.get(name)
    weights = found.couplings[-1]
    if hasattr(module, "weights"):
        weights = module.weights(weights, options["activations"])
    total = torch.einsum("bij,bije->bje", weights, votes)
    pose = found.poses[-1]
    if name == "inverted_attention":  # whose poses do not point where their input does
        pose = (pose - options["shift"]) / options["gain"]
        total = total - total.mean(2, keepdim=True)
    tiny = torch.finfo(pose.dtype).tiny  # without couplings both are 0
    pose, total = (normalize(x, dim=2, eps=tiny) for x in (pose, total))
    close(pose, total, 1e-8)


@every_routing
def test_parameters_are_what_route_takes_and_evidence_is_there_for_every_pair(name):
    found = getattr(routing.get(name), "parameters", lambda *sizes: {})(I, J, D, E)
    assert takes(name, *found)
    votes, options = drawn(name, dtype=torch.float32)
    routed = run(name, votes, {**options, **found})
    parts = evidence(name, votes, routed, options.get("activations"), **found)
    assert parts.shape == (B, I, J) and parts.isfinite().all()


# What it takes, leaves as it was, and refuses


@every_routing
def test_non_contiguous_votes_give_the_same_and_are_left_as_they_were(name):
    votes, options = drawn(name)
    scattered = votes.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    assert not scattered.is_contiguous()
    for a, b in zip(run(name, scattered, options), run(name, votes, options), strict=True):
        close(a, b)
    again, others = drawn(name)
    assert torch.equal(votes, again)
    assert all(torch.equal(options[key], others[key]) for key in options)


@every_routing
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_it_computes_in_the_type_of_the_votes_under_autocast_too(name, dtype):
    votes, options = drawn(name, dtype=torch.float32)
    expected = run(name, votes.to(dtype), options)
    with torch.autocast("cpu", torch.bfloat16):
        inside = run(name, votes.to(dtype), options)
    for a, b in zip(inside, expected, strict=True):
        assert a.dtype == b.dtype == dtype
        close(a, b, 1e-5)


@every_routing
def test_what_makes_no_sense_is_refused_in_a_line(name):
    votes, options = drawn(name)
    with pytest.raises(ValueError, match=r"\(B, I, J, E\).*\(3, 5, 7\)"):
        run(name, draw(I, J, E), options)
    if name in ITERATIVE:
        with pytest.raises(ValueError, match="at least 1, got 0"):
            run(name, votes, options, 0)
    if name in ACTIVE:
        active = options.pop("activations")
        needs = r"needs the children's activations \(B, I\): got none$"
        with pytest.raises(ValueError, match=needs):
            run(name, votes, options)
        with pytest.raises(ValueError, match=r"activations must be \(B, I\) = \(2, 3\), got"):
            run(name, votes, {**options, "activations": active[:, 1:]})


@every_routing
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    votes, options = drawn(name, children=40)
    there = {key: value.cuda() for key, value in options.items()}
    for a, b in zip(run(name, votes.cuda(), there), run(name, votes, options), strict=True):
        close(a.cpu(), b, 1e-9)


def test_all_routings_are_found_with_their_fused_forms():
    assert {"dynamic", "uniform", "self_attention", "k_means", "max_min"} <= set(FUSED)
    assert {"inverted_attention", "self_routing", "em", "variational"} <= set(FUSED)
    assert "dynamic" in ITERATIVE and "uniform" not in ITERATIVE
