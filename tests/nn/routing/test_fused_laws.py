"""What holds for every fused form, found by discovery: it is its `route`, the votes never held."""

import pytest
import torch
from helpers.random_tensors import B, D, E, I, J, draw, votes_of
from helpers.routing_cases import FUSED, close, drawn_capsules, reordered, rounds, takes

from capsviz.nn import routing
from capsviz.nn.routing import Parents, _parts

ONE_GRAPH = {"fullgraph": True, "backend": "aot_eager"}

every_fused = pytest.mark.parametrize("name", FUSED)
missing_activations = pytest.mark.parametrize("name", [n for n in FUSED if takes(n, "activations")])


def fused(name, iterations, children, weight, /, **options):
    return routing.get(name).fused(children, weight, **options, **rounds(name, iterations))


def routed(name, iterations, children, weight, /, **options):
    if takes(name, "children"):
        options["children"] = children
    votes = votes_of(children, weight)
    found = routing.get(name).route(votes, **options, **rounds(name, iterations))
    return Parents(found.poses[-1], found.activations[-1])


def with_gradients(function, name, iterations, children, weight, options):
    """Parents, and the gradients of a weighted sum of them for everything that is given."""
    given = [x.detach().clone().requires_grad_() for x in (children, weight, *options.values())]
    named = dict(zip(options, given[2:], strict=True))
    parents = function(name, iterations, *given[:2], **named)
    loss = 0
    for part in parents:
        loss = loss + (part * torch.linspace(-1, 2, part.numel()).to(part).view_as(part)).sum()
    gradients = torch.autograd.grad(loss, given, allow_unused=True, materialize_grads=True)
    return *(part.detach() for part in parents), *gradients


def test_every_routing_has_a_fused_form():
    assert routing.available() == FUSED


@every_fused
@pytest.mark.parametrize(
    ("iterations", "dtype"),  # of single precision few: rounding grows with each
    [*((R, torch.float64) for R in (1, 2, 3, 5)), (1, torch.float32), (3, torch.float32)],
)
def test_fused_equals_route_in_values_and_gradients(name, iterations, dtype):
    given = drawn_capsules(name, dtype=dtype)
    found = with_gradients(fused, name, iterations, *given)
    expected = with_gradients(routed, name, iterations, *given)
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == dtype
        scale = max(1, b.abs().max().item())
        close(a / scale, b / scale, 1e-10 if dtype == torch.float64 else 1e-4)


@every_fused
@pytest.mark.parametrize("block", [1, 4, 1000])
def test_fused_equals_route_however_the_children_are_blocked(name, block, monkeypatch):
    monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", block * J * E * B * 8)
    given = drawn_capsules(name, children=23)
    found = with_gradients(fused, name, 3, *given)
    expected = with_gradients(routed, name, 3, *given)
    for a, b in zip(found, expected, strict=True):
        close(a, b, 1e-9)


@every_fused
def test_fused_keeps_nothing_as_large_as_the_votes(name, monkeypatch):
    monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", 1)
    children, weight, options = drawn_capsules(name, batch=11, children=23)
    sizes = []

    def pack(x):
        sizes.append(x.numel())
        return x

    given = [x.requires_grad_() for x in (children, weight)]
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        fused(name, 3, *given, **options)
    assert 0 < max(sizes) < 11 * 23 * J * E / 1.5


def checked(name, check, iterations):
    children, weight, options = drawn_capsules(name)

    def parents(children, weight, *values):
        named = dict(zip(options, values, strict=True))
        return tuple(fused(name, iterations, children, weight, **named))

    given = [x.requires_grad_() for x in (children, weight, *options.values())]
    return check(parents, given, fast_mode=True)


@every_fused
def test_fused_passes_gradcheck(name):
    assert checked(name, torch.autograd.gradcheck, 3)


@every_fused
def test_fused_passes_gradgradcheck(name):
    assert checked(name, torch.autograd.gradgradcheck, 2)


@every_fused
@pytest.mark.parametrize("only", ["children", "weight"])
def test_fused_gives_the_gradient_of_one_input_alone(name, only):
    children, weight, options = drawn_capsules(name)
    expected = with_gradients(fused, name, 3, children, weight, options)
    wanted = {"children": children, "weight": weight}[only].requires_grad_()
    parents = fused(name, 3, children, weight, **options)
    loss = 0
    for part in parents:
        loss = loss + (part * torch.linspace(-1, 2, part.numel()).to(part).view_as(part)).sum()
    loss.backward()
    close(wanted.grad, expected[2 + ["children", "weight"].index(only)])


@every_fused
@pytest.mark.parametrize("zero", ["children", "weight"])
def test_fused_is_finite_at_zero_in_value_and_gradient(name, zero):
    children, weight, options = drawn_capsules(name, dtype=torch.float32)
    children, weight = children * (zero != "children"), weight * (zero != "weight")
    for x in with_gradients(fused, name, 3, children, weight, options):
        assert x.isfinite().all()


@every_fused
def test_fused_takes_non_contiguous_inputs(name):
    children, weight, options = drawn_capsules(name)
    scattered = (
        children.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        weight.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    )
    assert not any(x.is_contiguous() for x in scattered)
    for a, b in zip(
        with_gradients(fused, name, 3, *scattered, options),
        with_gradients(fused, name, 3, children, weight, options),
        strict=True,
    ):
        close(a, b)


@every_fused
def test_fused_routes_an_image_alone_as_in_a_batch_and_none(name):
    children, weight, options = drawn_capsules(name, batch=4)
    together = fused(name, 3, children, weight, **options)
    for b in [*range(4), None]:
        here = slice(0, 0) if b is None else slice(b, b + 1)
        own = {k: v[here] if k == "activations" else v for k, v in options.items()}
        alone = fused(name, 3, children[here], weight, **own)
        for a, t in zip(alone, together, strict=True):
            close(a, t[here])


@every_fused
def test_fused_does_not_mind_the_order_of_children_and_parents(name):
    children, weight, options = drawn_capsules(name)
    plain = fused(name, 3, children, weight, **options)
    for axis, order in ((I, [2, 0, 1]), (J, [3, 0, 4, 1, 2])):
        given = (reordered(x, axis, order) for x in (children, weight))
        found = fused(name, 3, *given, **reordered(options, axis, order))
        for a, b in zip(found, plain, strict=True):
            close(a, b if axis == I else b[:, order])


@every_fused
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fused_stays_float32_under_autocast(name, dtype):
    children, weight, options = drawn_capsules(name, dtype=torch.float32)
    children = children.to(dtype)
    expected = with_gradients(fused, name, 3, children.float(), weight, options)

    def inside(*given, **more):
        with torch.autocast("cpu", torch.bfloat16):
            return fused(*given, **more)

    found = with_gradients(inside, name, 3, children, weight, options)
    for n, (a, b) in enumerate(zip(found, expected, strict=True)):
        assert a.dtype == (dtype if n == 2 else torch.float32)
        scale = max(1, b.abs().max().item())
        close(a.float() / scale, b / scale, 1e-5 if n != 2 else 0.02)


@every_fused
def test_fused_leaves_its_inputs_as_they_were(name):
    children, weight, options = drawn_capsules(name)
    with_gradients(fused, name, 3, children, weight, options)
    again = drawn_capsules(name)
    assert torch.equal(children, again[0]) and torch.equal(weight, again[1])
    assert all(torch.equal(options[key], again[2][key]) for key in options)


@every_fused
def test_fused_refuses_shapes_that_do_not_fit(name):
    children, weight, options = drawn_capsules(name)
    for wrong in ((children[0], weight), (children, weight[0]), (children[..., 1:], weight)):
        with pytest.raises(ValueError, match=r"expected children \(B, I, D\) and weight"):
            fused(name, 3, *wrong, **options)


@missing_activations
def test_fused_refuses_missing_activations_in_a_line(name):
    with pytest.raises(ValueError, match=r"needs the children's activations \(B, I\): got none$"):
        fused(name, 3, draw(B, I, D), draw(I, J, E, D))


@every_fused
@pytest.mark.parametrize("block", [1, _parts.CPU_BLOCK_BYTES])
def test_fused_compiles_into_one_graph(name, block, monkeypatch):
    """Two rounds: one from even couplings, and one from logits, as all after it."""
    monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", block)  # 1: a child, were it not compiled
    given = drawn_capsules(name)
    torch._dynamo.reset()  # its count of what it compiled
    module, options = torch.compile(routing.get(name).fused, **ONE_GRAPH), rounds(name, 2)

    def compiled(name, iterations, children, weight, /, **more):
        return module(children, weight, **more, **options)

    found = with_gradients(compiled, name, 2, *given)
    for a, b in zip(found, with_gradients(fused, name, 2, *given), strict=True):
        close(a, b, 1e-9)


@every_fused
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    children, weight, options = drawn_capsules(name, children=40)
    there = {key: value.cuda() for key, value in options.items()}
    found = with_gradients(fused, name, 3, children.cuda(), weight.cuda(), there)
    for a, b in zip(found, with_gradients(fused, name, 3, children, weight, options), strict=True):
        close(a.cpu(), b, 1e-9)
