"""Leaky routing, for every routing that has it, found by discovery: a child may have no parent."""

from inspect import signature

import pytest
import torch
from conftest import build_strong
from helpers import literal as twins
from helpers.random_tensors import B, E, I, J, draw, inputs, votes_of

import capsviz
from capsviz.nn import routing
from capsviz.nn.routing import _parts

NAMES = [n for n in routing.available() if "leaky" in signature(routing.get(n).route).parameters]
FUSED = [name for name in NAMES if hasattr(routing.get(name), "fused")]

every_leaky = pytest.mark.parametrize("name", NAMES)
every_fused = pytest.mark.parametrize("name", FUSED)
with_and_without_bias = pytest.mark.parametrize("biased", [False, True])
iterations_1_to_4 = pytest.mark.parametrize("iterations", [1, 2, 3, 4])


def close(actual, expected, tolerance=1e-10):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def with_gradients(function, *arguments):
    """The poses, and the gradients of a weighted sum of them for every input that is there."""
    arguments = [x if x is None else x.detach().clone().requires_grad_() for x in arguments]
    poses = function(*arguments)
    weights = torch.linspace(-1, 2, poses.numel()).to(poses).view_as(poses)
    there = [x for x in arguments if x is not None]
    return poses.detach(), *torch.autograd.grad((poses * weights).sum(), there)


def both(name, arguments, **options):
    """Poses and gradients by the fused form, and by `route` on the votes."""
    module = routing.get(name)
    fused = with_gradients(lambda u, w, b: module.fused(u, w, bias=b, **options).poses, *arguments)
    routed = with_gradients(
        lambda u, w, b: module.route(votes_of(u, w), bias=b, **options).poses[-1], *arguments
    )
    return fused, routed


def test_dynamic_routing_can_leak():
    assert "dynamic" in NAMES and "dynamic" in FUSED


@iterations_1_to_4
@with_and_without_bias
def test_dynamic_routing_leaks_as_the_authors_code_does(iterations, biased):
    votes, bias = draw(B, I, J, E), draw(J, E, seed=3) if biased else None
    logits, couplings, poses = twins.dynamic_routing(votes, iterations, bias=bias, leaky=True)
    route = routing.get("dynamic").route
    actual = route(votes, iterations=iterations, bias=bias, leaky=True)
    close(actual.logits, twins.to_tensor(logits))
    close(actual.couplings, twins.to_tensor(couplings))
    close(actual.poses, twins.to_tensor(poses))
    plain = route(votes, iterations=iterations, bias=bias)
    assert (plain.poses[-1] - actual.poses[-1]).abs().max() > 1e-3


@iterations_1_to_4
@with_and_without_bias
def test_the_gradients_of_the_fused_form_are_those_of_the_unrolled_loops(iterations, biased):
    primary, weight, bias = inputs(biased=biased)

    def unrolled(primary, weight, bias):
        votes = votes_of(primary, weight)
        return twins.dynamic_routing(votes, iterations, bias=bias, leaky=True)[2][-1]

    expected = with_gradients(unrolled, primary, weight, bias)
    fused, _ = both("dynamic", (primary, weight, bias), iterations=iterations, leaky=True)
    for a, b in zip(fused, expected, strict=True):
        close(a, b, 1e-9)


@every_fused
@with_and_without_bias
@iterations_1_to_4
@pytest.mark.parametrize("detach", [False, True])
@pytest.mark.parametrize("block", [None, 1, 4])  # children at a time
def test_fused_equals_route(name, iterations, biased, detach, block, monkeypatch):
    if block is not None:
        monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", block * J * E * B * 8)
    given = inputs(children=23, biased=biased)
    for a, b in zip(
        *both(name, given, iterations=iterations, detach=detach, leaky=True), strict=True
    ):
        close(a, b)


@every_fused
def test_fused_equals_route_in_single_precision(name):
    fused, routed = both(name, inputs(torch.float32), iterations=3, leaky=True)
    for a, b in zip(fused, routed, strict=True):
        close(a, b, 1e-5)


@every_fused
def test_fused_passes_gradcheck(name):
    fused = routing.get(name).fused
    given = [x.requires_grad_() for x in inputs()]
    assert torch.autograd.gradcheck(
        lambda u, w, b: fused(u, w, iterations=3, bias=b, leaky=True).poses, given
    )


@every_fused
def test_fused_takes_zeros_and_an_empty_batch(name):
    fused, (primary, weight, bias) = routing.get(name).fused, inputs()
    for x in with_gradients(lambda u: fused(u, weight, leaky=True).poses, 0 * primary):
        assert x.isfinite().all()
    assert fused(primary[:0], weight, bias=bias, leaky=True).poses.shape == (0, J, E)


@every_leaky
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_couplings_sum_to_at_most_one_and_the_rest_is_the_leak(name, scale):
    actual = routing.get(name).route(scale * draw(B, I, J, E), iterations=3, leaky=True)
    total = actual.couplings.sum(3)
    assert actual.couplings.min() >= 0 and total.max() <= 1 + 1e-12
    none_of_them = (-actual.logits.logaddexp(torch.zeros(()).double()).amax(3)).exp()
    assert ((1 - total) <= none_of_them + 1e-12).all()  # no larger than beside one parent alone
    close(1 - total, 1 / (1 + actual.logits.exp().sum(3)), 1e-9)


@every_leaky
def test_the_first_iteration_has_uniform_couplings_of_one_parent_more(name):
    actual = routing.get(name).route(draw(B, I, J, E), iterations=1, leaky=True)
    close(actual.couplings[0], torch.full((B, I, J), 1 / (J + 1), dtype=torch.float64))


@every_leaky
def test_a_child_that_agrees_with_no_parent_leaks(name):
    votes = draw(1, 8, J, E).abs()  # all children say about the same ...
    votes[:, 3] *= -1  # ... but one, the opposite
    leak = 1 - routing.get(name).route(votes, iterations=3, leaky=True).couplings[-1].sum(2)[0]
    assert leak.argmax() == 3 and leak[3] > 2 * leak.sort().values[-2]


@every_leaky
def test_an_image_is_routed_alone_as_in_a_batch_and_children_in_any_order(name):
    route, votes, order = routing.get(name).route, draw(4, I, J, E), torch.tensor([2, 0, 1])
    together = route(votes, iterations=3, leaky=True)
    for b in range(4):
        for a, t in zip(route(votes[b : b + 1], iterations=3, leaky=True), together, strict=True):
            close(a, t[:, b : b + 1])
    permuted = route(votes[:, order], iterations=3, leaky=True)
    close(permuted.poses, together.poses)
    close(permuted.couplings, together.couplings[:, :, order])


@every_leaky
def test_route_passes_gradcheck(name):
    route, votes = routing.get(name).route, draw(B, I, J, E).requires_grad_()
    assert torch.autograd.gradcheck(lambda v: route(v, iterations=3, leaky=True).poses[-1], votes)


@every_leaky
def test_given_couplings_are_used_as_they_are(name):
    votes, given = draw(B, I, J, E), draw(I, J, seed=4).softmax(-1)
    leaky, plain = (
        routing.get(name).route(votes, iterations=3, couplings=given, leaky=leaky)
        for leaky in (True, False)
    )
    for a, b in zip(leaky, plain, strict=True):
        assert torch.equal(a, b)


def test_a_leaky_network_routes_so_and_takes_interventions(tiny_images):
    model = build_strong(leaky=True)
    seen = capsviz.trace(model, tiny_images)
    assert seen.couplings.sum(3).max() < 1
    assert seen.couplings[0].unique().tolist() == pytest.approx([1 / 4])  # three classes
    votes = seen.votes[:2].double()
    expected = twins.dynamic_routing(votes, 3, leaky=True)[2][-1]
    with torch.inference_mode():
        close(model(tiny_images[:2]).poses.double(), expected, 1e-5)
    close(seen.poses[-1][:2].double(), expected, 1e-5)
    assert build_strong().config["leaky"] is False


def test_the_controls_of_a_leaky_network_give_parents_as_much_as_its_first_iteration(tiny_images):
    model = build_strong(leaky=True)
    first = capsviz.trace(model, tiny_images, iterations=1)
    uniform = capsviz.trace(model, tiny_images, couplings="uniform")
    assert torch.equal(uniform.couplings, torch.full_like(uniform.couplings, 1 / 4))
    close(uniform.poses[-1], first.poses[-1], 1e-6)
    random = capsviz.trace(model, tiny_images, couplings="random")
    close(random.couplings.sum(3), torch.full((3, 8, 12), 3 / 4), 1e-6)
    plain = capsviz.trace(build_strong(), tiny_images, couplings="random")
    close(random.couplings, 3 / 4 * plain.couplings, 1e-6)
