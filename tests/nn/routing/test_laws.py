"""What holds for every routing: a new file in capsviz/nn/routing is found and tested here.

Parameters, activations and children are drawn by the routing's signature and its `parameters`.
"""

import pytest
import torch
from helpers.random_tensors import B, E, I, J, draw
from helpers.routing_cases import ACTIVE, ITERATIVE, NAMES, close, drawn, full, reordered, run

from capsviz.nn import routing
from capsviz.nn.functional import lengths
from capsviz.nn.routing import Routing

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


@every_routing
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_there_is_one_entry_for_each_iteration(name, iterations):
    found = run(name, *drawn(name), iterations)
    R = iterations if name in ITERATIVE else 1
    assert isinstance(found, Routing)
    assert found.logits.shape == found.couplings.shape == (R, B, I, J)
    assert found.poses.shape == (R, B, J, E) and found.activations.shape == (R, B, J)


@every_iterative
def test_more_iterations_go_on_from_fewer(name):
    given = drawn(name, children=9)
    for a, b in zip(run(name, *given, 2), run(name, *given, 4), strict=True):
        close(a, b[:2])
    assert (run(name, *given, 4).poses[1] - run(name, *given, 4).poses[3]).abs().max() > 1e-6


@every_iterative
def test_the_first_iteration_has_zero_logits_and_even_couplings(name):
    found = run(name, *drawn(name), 2)
    assert not found.logits[0].any()
    assert (found.couplings[0] - found.couplings[0, 0, 0, 0]).abs().max() < 1e-12


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
def test_couplings_sum_to_what_a_child_gives_away(name, scale):
    votes, options = drawn(name, scale=scale)
    found = run(name, votes, options).couplings
    gives = GIVEN_AWAY.get(name, lambda options: full(1, I))
    if gives is not None:
        close(found.sum(3), gives(options).expand(len(found), B, I))
    if "bias" in options and name in GIVEN_AWAY:
        options["bias"] = torch.zeros_like(options["bias"])
        found = run(name, votes, options).couplings
    assert found.min() >= 0 and found.max() <= 1 + 1e-12


@every_routing
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_activations_lie_between_zero_and_one(name, scale):
    found = run(name, *drawn(name, scale=scale)).activations
    assert found.min() >= 0 and found.max() <= 1 + 1e-9


@every_routing
def test_an_image_is_routed_alone_as_in_a_batch(name):
    votes, options = drawn(name, batch=4)
    together = run(name, votes, options)
    for b in range(4):
        here = slice(b, b + 1)
        alone = run(name, votes[here], pick(options, here))
        for a, t in zip(alone, together, strict=True):
            close(a, t[:, here])


@every_routing
def test_an_empty_batch_is_routed(name):
    votes, options = drawn(name)
    found = run(name, votes[:0], pick(options, slice(0, 0)))
    assert found.poses.shape[1:] == (0, J, E) and found.couplings.shape[1:] == (0, I, J)


@every_routing
def test_the_order_of_children_does_not_matter(name):
    (votes, options), order = drawn(name), [2, 0, 1]
    plain = run(name, votes, options)
    other = run(name, reordered(votes, I, order), reordered(options, I, order))
    close(other.poses, plain.poses)
    close(other.activations, plain.activations)
    close(other.couplings, plain.couplings[:, :, order])
    close(other.logits, plain.logits[:, :, order])


@every_routing
def test_the_order_of_parents_does_not_matter(name):
    (votes, options), order = drawn(name), [3, 0, 4, 1, 2]
    plain = run(name, votes, options)
    other = run(name, reordered(votes, J, order), reordered(options, J, order))
    close(other.poses, plain.poses[:, :, order])
    close(other.activations, plain.activations[:, :, order])
    close(other.couplings, plain.couplings[..., order])
    close(other.logits, plain.logits[..., order])


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


def checked(name, check, iterations):
    votes, options = drawn(name)

    def last(votes, *values):
        found = run(name, votes, dict(zip(options, values, strict=True)), iterations)
        return found.poses[-1], found.activations[-1]

    given = [x.requires_grad_() for x in (votes, *options.values())]
    return check(last, given, fast_mode=True)


@every_routing
def test_route_passes_gradcheck(name):
    assert checked(name, torch.autograd.gradcheck, 3)


@every_routing
def test_route_passes_gradgradcheck(name):
    assert checked(name, torch.autograd.gradgradcheck, 2)


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


@every_routing
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    votes, options = drawn(name, children=40)
    there = {key: value.cuda() for key, value in options.items()}
    for a, b in zip(run(name, votes.cuda(), there), run(name, votes, options), strict=True):
        close(a.cpu(), b, 1e-9)


def test_an_unknown_routing_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown routing 'dynamc'.*did you mean 'dynamic'"):
        routing.get("dynamc")


def test_all_routings_are_found():
    assert {"dynamic", "uniform", "self_attention", "k_means", "max_min"} <= set(NAMES)
    assert {"inverted_attention", "self_routing", "em", "variational"} <= set(NAMES)
    assert "dynamic" in ITERATIVE and "uniform" not in ITERATIVE
