"""What holds for every routing: a new file in capsviz/routing is found and tested here."""

import pytest
import torch
from draws import B, E, I, J, draw, inputs, votes_of

from capsviz import routing
from capsviz.functional import lengths

NAMES = routing.available()

every_routing = pytest.mark.parametrize("name", NAMES)
with_and_without_bias = pytest.mark.parametrize("biased", [False, True])


@every_routing
@pytest.mark.parametrize("iterations", [1, 2, 4])
def test_there_is_one_entry_for_each_iteration(name, iterations):
    found = routing.get(name).route(draw(B, I, J, E), iterations=iterations)
    assert found.logits.shape == found.couplings.shape == (iterations, B, I, J)
    assert found.poses.shape == (iterations, B, J, E)


@every_routing
def test_more_iterations_go_on_from_fewer(name):
    route, votes = routing.get(name).route, draw(B, I, J, E)
    few, many = route(votes, iterations=2), route(votes, iterations=4)
    for a, b in zip(few, many, strict=True):
        torch.testing.assert_close(a, b[:2])


@every_routing
def test_couplings_sum_to_one_over_parents(name):
    couplings = routing.get(name).route(3 * draw(B, I, J, E), iterations=3).couplings
    torch.testing.assert_close(couplings.sum(3), torch.ones(3, B, I, dtype=torch.float64))
    assert couplings.min() >= 0


@every_routing
@with_and_without_bias
@pytest.mark.parametrize("scale", [1e-3, 1.0, 100.0])
def test_lengths_are_below_one(name, biased, scale):
    bias = draw(J, E, seed=3) if biased else None
    poses = routing.get(name).route(scale * draw(B, I, J, E), iterations=3, bias=bias).poses
    assert lengths(poses).max() < 1


@every_routing
@with_and_without_bias
def test_an_image_is_routed_alone_as_in_a_batch(name, biased):
    route, votes = routing.get(name).route, draw(4, I, J, E)
    bias = draw(J, E, seed=3) if biased else None
    together = route(votes, iterations=3, bias=bias)
    for b in range(4):
        alone = route(votes[b : b + 1], iterations=3, bias=bias)
        for a, t in zip(alone, together, strict=True):
            torch.testing.assert_close(a, t[:, b : b + 1])


@every_routing
def test_the_order_of_children_does_not_matter(name):
    route, votes, order = routing.get(name).route, draw(B, I, J, E), torch.tensor([2, 0, 1])
    plain, permuted = route(votes, iterations=3), route(votes[:, order], iterations=3)
    torch.testing.assert_close(permuted.poses, plain.poses)
    torch.testing.assert_close(permuted.couplings, plain.couplings[:, :, order])
    torch.testing.assert_close(permuted.logits, plain.logits[:, :, order])


@every_routing
def test_the_order_of_parents_does_not_matter(name):
    route, votes, order = routing.get(name).route, draw(B, I, J, E), torch.tensor([3, 0, 4, 1, 2])
    bias = draw(J, E, seed=3)
    plain = route(votes, iterations=3, bias=bias)
    permuted = route(votes[:, :, order], iterations=3, bias=bias[order])
    torch.testing.assert_close(permuted.poses, plain.poses[:, :, order])
    torch.testing.assert_close(permuted.couplings, plain.couplings[..., order])


@every_routing
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_value_and_gradient_are_finite_at_zero(name, dtype):
    votes = torch.zeros(B, I, J, E, dtype=dtype, requires_grad=True)
    found = routing.get(name).route(votes, iterations=3)
    lengths(found.poses).sum().backward()
    assert found.poses.isfinite().all() and found.couplings.isfinite().all()
    assert votes.grad.isfinite().all()


@every_routing
@with_and_without_bias
def test_route_passes_gradcheck(name, biased):
    route = routing.get(name).route
    votes = draw(B, I, J, E).requires_grad_()
    bias = draw(J, E, seed=3).requires_grad_() if biased else None
    assert torch.autograd.gradcheck(
        lambda v, b: route(v, iterations=3, bias=b).poses[-1], (votes, bias)
    )


@every_routing
@pytest.mark.parametrize("shape", [(I, J), (B, I, J)])
def test_given_couplings_are_used_in_every_iteration(name, shape):
    votes = draw(B, I, J, E)
    given = draw(*shape, seed=4).softmax(-1)
    found = routing.get(name).route(votes, iterations=3, couplings=given)
    for used in found.couplings:
        torch.testing.assert_close(used, given.expand(B, I, J))
    torch.testing.assert_close(found.poses[0], found.poses[-1])


@every_routing
def test_uniform_couplings_are_what_one_iteration_uses(name):
    route, votes = routing.get(name).route, draw(B, I, J, E)
    uniform = torch.full((I, J), 1 / J, dtype=torch.float64)
    torch.testing.assert_close(
        route(votes, iterations=3, couplings=uniform).poses[-1],
        route(votes, iterations=1).poses[-1],
    )


@every_routing
def test_non_contiguous_votes_give_the_same(name):
    route, votes = routing.get(name).route, draw(B, I, J, E)
    scattered = votes.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    assert not scattered.is_contiguous()
    for a, b in zip(route(scattered, iterations=3), route(votes, iterations=3), strict=True):
        torch.testing.assert_close(a, b)


@every_routing
def test_votes_and_bias_are_left_as_they_were(name):
    votes, bias = draw(B, I, J, E), draw(J, E, seed=3)
    routing.get(name).route(votes, iterations=3, bias=bias)
    assert torch.equal(votes, draw(B, I, J, E)) and torch.equal(bias, draw(J, E, seed=3))


@every_routing
def test_votes_of_another_shape_are_refused(name):
    with pytest.raises(ValueError, match=r"\(B, I, J, E\).*\(3, 5, 7\)"):
        routing.get(name).route(draw(I, J, E))


@every_routing
@pytest.mark.parametrize("iterations", [0, -1])
def test_fewer_than_one_iteration_is_refused(name, iterations):
    with pytest.raises(ValueError, match=f"at least 1, got {iterations}"):
        routing.get(name).route(draw(B, I, J, E), iterations=iterations)


@every_routing
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    route = routing.get(name).route
    primary, weight, bias = inputs(children=40)
    there = [x.cuda() for x in (primary, weight, bias)]
    here = route(votes_of(primary, weight), iterations=3, bias=bias)
    found = route(votes_of(*there[:2]), iterations=3, bias=there[2])
    for a, b in zip(found, here, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-9, atol=1e-10)


def test_an_unknown_routing_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown routing 'dynamc'.*did you mean 'dynamic'"):
        routing.get("dynamc")
