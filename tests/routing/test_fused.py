"""What holds for every routing that has a fused form, found by discovery: it is `route`, faster."""

import pytest
import torch
from conftest import build_tiny
from draws import B, D, E, I, J, draw, inputs, votes_of

from capsviz import routing
from capsviz.functional import lengths, squash
from capsviz.routing import _blocked

FUSED = [name for name in routing.available() if hasattr(routing.get(name), "fused")]
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}

every_fused = pytest.mark.parametrize("name", FUSED)
with_and_without_bias = pytest.mark.parametrize("biased", [False, True])


def cotangent(poses):
    """A fixed weighting of the poses, so that no gradient cancels by symmetry."""
    return torch.linspace(-1, 2, poses.numel()).to(poses).view_as(poses)


def with_gradients(function, primary, weight, bias):
    """The poses, and the gradients of a weighted sum of them for every input that is there."""
    given = [x.detach().clone().requires_grad_() for x in (primary, weight, bias) if x is not None]
    poses = function(*given, *([None] if bias is None else []))
    return poses.detach(), *torch.autograd.grad((poses * cotangent(poses)).sum(), given)


def fused_with_gradients(module, primary, weight, bias, *, iterations):
    return with_gradients(
        lambda u, w, b: module.fused(u, w, iterations=iterations, bias=b), primary, weight, bias
    )


def routed_with_gradients(module, primary, weight, bias, *, iterations):
    return with_gradients(
        lambda u, w, b: module.route(votes_of(u, w), iterations=iterations, bias=b).poses[-1],
        primary,
        weight,
        bias,
    )


@pytest.fixture(params=["one block", "a block per child", "uneven blocks"])
def blocks(request, monkeypatch):
    """Force small blocks of children, the last one shorter; says how many children are in one."""
    size = {"one block": None, "a block per child": 1, "uneven blocks": 4}[request.param]
    if size is not None:
        # at 8 bytes per number: a child's votes are J * E * B numbers
        monkeypatch.setattr(_blocked, "CPU_BLOCK_BYTES", size * J * E * B * 8)
    return size


@every_fused
@with_and_without_bias
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("iterations", [1, 2, 3, 4, 5])
def test_fused_equals_route_in_values_and_gradients(name, iterations, dtype, biased):
    module, given = routing.get(name), inputs(dtype, biased=biased)
    found = fused_with_gradients(module, *given, iterations=iterations)
    expected = routed_with_gradients(module, *given, iterations=iterations)
    assert len(found) == (4 if biased else 3)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@every_fused
@with_and_without_bias
@pytest.mark.parametrize("iterations", [1, 3])
def test_fused_equals_route_however_the_children_are_blocked(name, blocks, iterations, biased):
    module, given = routing.get(name), inputs(children=23, biased=biased)
    found = fused_with_gradients(module, *given, iterations=iterations)
    expected = routed_with_gradients(module, *given, iterations=iterations)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_the_blocks_of_these_tests_are_many_and_cover_every_child(blocks):
    found = _blocked._blocks(23, J * E * B * 8, torch.device("cpu"))
    assert len(found) == {None: 1, 1: 23, 4: 6}[blocks]
    assert [i for block in found for i in range(23)[block]] == list(range(23))


@every_fused
@with_and_without_bias
def test_fused_passes_gradcheck(name, biased):
    fused = routing.get(name).fused
    given = [x if x is None else x.requires_grad_() for x in inputs(biased=biased)]
    assert torch.autograd.gradcheck(lambda u, w, b: fused(u, w, iterations=3, bias=b), given)


@every_fused
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("zero", ["primary", "weight", "both"])
def test_fused_is_finite_at_zero_in_value_and_gradient(name, zero, dtype):
    primary, weight, _ = inputs(dtype)
    primary = primary * (zero == "weight")
    weight = weight * (zero == "primary")
    for x in fused_with_gradients(routing.get(name), primary, weight, None, iterations=3):
        assert x.isfinite().all()


@every_fused
@pytest.mark.parametrize("only", [0, 1, 2])
def test_fused_gives_the_gradient_of_one_input_alone(name, only):
    module, given = routing.get(name), inputs()
    expected = fused_with_gradients(module, *given, iterations=3)[1 + only]
    wanted = given[only].requires_grad_()
    poses = module.fused(*given[:2], iterations=3, bias=given[2])
    (poses * cotangent(poses)).sum().backward()
    torch.testing.assert_close(wanted.grad, expected)
    assert all(x.grad is None for x in given if x is not wanted)


@every_fused
def test_fused_takes_non_contiguous_inputs(name):
    module, (primary, weight, bias) = routing.get(name), inputs()
    scattered = (
        primary.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        weight.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
        bias.T.contiguous().T,
    )
    assert not any(x.is_contiguous() for x in scattered)
    torch.testing.assert_close(
        module.fused(*scattered[:2], iterations=3, bias=scattered[2]),
        module.fused(primary, weight, iterations=3, bias=bias),
    )
    poses = module.fused(primary.requires_grad_(), weight, iterations=3)
    poses.mT.contiguous().mT.sum().backward()  # a gradient that is not contiguous
    assert primary.grad.isfinite().all()


@every_fused
def test_fused_routes_an_image_alone_as_in_a_batch(name):
    fused, (_, weight, bias) = routing.get(name).fused, inputs()
    primary = draw(6, I, D, seed=5)
    together = fused(primary, weight, iterations=3, bias=bias)
    for b in range(6):
        alone = fused(primary[b : b + 1], weight, iterations=3, bias=bias)
        torch.testing.assert_close(alone, together[b : b + 1])


@every_fused
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_stays_float32_under_autocast(name, dtype):
    primary, weight, bias = inputs(torch.float32)
    primary = primary.to(dtype)
    expected = routing.get(name).fused(primary.float(), weight, iterations=3, bias=bias)
    weight = weight.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = routing.get(name).fused(primary, weight, iterations=3, bias=bias)
        loss = found.square().sum()
    loss.backward()
    assert found.dtype == weight.grad.dtype == torch.float32
    torch.testing.assert_close(found, expected)


@every_fused
def test_fused_refuses_shapes_that_do_not_fit(name):
    fused, (primary, weight, _) = routing.get(name).fused, inputs()
    for wrong in ((primary[0], weight), (primary, weight[0]), (primary[:, 1:], weight)):
        with pytest.raises(ValueError, match=r"expected primary \(B, I, D\) and weight"):
            fused(*wrong)
    with pytest.raises(ValueError, match=r"expected primary \(B, I, D\) and weight"):
        fused(primary[..., 1:], weight)


@every_fused
def test_fused_under_vmap_is_refused_and_says_why(name):
    fused, (primary, weight, _) = routing.get(name).fused, inputs()
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda u: fused(u[None], weight)[0])(primary)


@every_fused
def test_a_second_derivative_through_fused_is_refused(name):
    primary, weight, _ = inputs()
    poses = routing.get(name).fused(primary.requires_grad_(), weight)
    (gradient,) = torch.autograd.grad(lengths(poses).sum(), primary, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@every_fused
def test_fused_leaves_its_inputs_as_they_were(name):
    given = inputs()
    routing.get(name).fused(*given[:2], iterations=3, bias=given[2])
    for x, y in zip(given, inputs(), strict=True):
        assert torch.equal(x, y)


@every_fused
@pytest.mark.parametrize("iterations", [0, -1])
def test_fused_refuses_fewer_than_one_iteration(name, iterations):
    primary, weight, _ = inputs()
    with pytest.raises(ValueError, match=f"at least 1, got {iterations}"):
        routing.get(name).fused(primary, weight, iterations=iterations)


@every_fused
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    given = inputs(children=40)
    there = [x.cuda() for x in given]
    found = fused_with_gradients(routing.get(name), *there, iterations=3)
    expected = fused_with_gradients(routing.get(name), *given, iterations=3)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-9, atol=1e-10)


@every_fused
@with_and_without_bias
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_detached_routing_learns_through_the_last_iteration_alone(name, iterations, biased):
    module, given = routing.get(name), inputs(children=23, biased=biased)
    couplings = module.route(votes_of(*given[:2]), iterations=iterations, bias=given[2]).couplings

    def last_iteration(primary, weight, bias):
        total = torch.einsum("bij,bije->bje", couplings[-1], votes_of(primary, weight))
        return squash(total if bias is None else total + bias)

    expected = with_gradients(last_iteration, *given)
    options = {"iterations": iterations, "detach": True}
    fused = with_gradients(lambda u, w, b: module.fused(u, w, bias=b, **options), *given)
    routed = with_gradients(
        lambda u, w, b: module.route(votes_of(u, w), bias=b, **options).poses[-1], *given
    )
    for a, b, c in zip(fused, routed, expected, strict=True):
        torch.testing.assert_close(a, c, rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(b, c, rtol=1e-10, atol=1e-10)
    full = fused_with_gradients(module, *given, iterations=iterations)
    assert torch.allclose(full[1], fused[1]) == (iterations == 1)


@every_fused
@pytest.mark.parametrize("children", [I, 23])
def test_fused_compiles_into_one_graph(name, children, monkeypatch):
    monkeypatch.setattr(_blocked, "CPU_BLOCK_BYTES", 1)  # a block per child, were it not compiled
    module, given = routing.get(name), inputs(children=children)
    compiled = torch.compile(module.fused, fullgraph=True, backend="aot_eager")
    found = with_gradients(lambda u, w, b: compiled(u, w, iterations=3, bias=b), *given)
    expected = fused_with_gradients(module, *given, iterations=3)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


@every_fused
def test_the_backward_pass_may_lie_inside_autocast(name):
    module, given = routing.get(name), inputs(torch.float32)
    expected = fused_with_gradients(module, *given, iterations=3)
    given = [x.requires_grad_() for x in given]
    poses = module.fused(*given[:2], iterations=3, bias=given[2])
    with torch.autocast("cpu", torch.bfloat16):
        found = torch.autograd.grad((poses * cotangent(poses)).sum(), given)
    for a, b in zip(found, expected[1:], strict=True):
        torch.testing.assert_close(a, b)


@every_fused
def test_fused_routes_an_empty_batch(name):
    primary, weight, bias = inputs()
    assert routing.get(name).fused(primary[:0], weight, bias=bias).shape == (0, J, E)


@pytest.mark.parametrize(
    "options", [{}, {"routing_bias": True}, {"detach_routing": True}, {"leaky": True}], ids=str
)
def test_a_whole_network_compiles_into_one_graph(options):
    model = build_tiny(**options)
    images = torch.rand(3, 1, 21, 19)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    results = []
    for run in (model, compiled):
        model.zero_grad()
        output = run(images)
        output.lengths.sum().backward()
        results.append((output.poses.detach(), model.conv1.weight.grad.clone()))
    torch.testing.assert_close(results[1], results[0])
    with torch.inference_mode():
        torch.testing.assert_close(compiled(images).poses, results[0][0])
