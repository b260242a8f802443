"""What holds for every fused form, found by discovery: it is its `route`, the votes never held.

Also whole networks on the fast paths.
"""

from inspect import signature

import pytest
import torch
from helpers.fixtures import build_strong, build_tiny
from helpers.random_tensors import B, E, J, draw, votes_of
from helpers.routing_cases import FUSED, close, drawn_capsules, rounds, takes

import capsviz
from capsviz.nn import routing
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.computation import literal
from capsviz.nn.functional import squash
from capsviz.nn.routing import Parents, _parts

OPTIONS = [{}, {"leaky": True}, {"detach": True}, {"leaky": True, "detach": True}]
FORMS = [(name, options) for name in FUSED for options in OPTIONS if takes(name, *options)]
ONE_GRAPH = {"fullgraph": True, "backend": "aot_eager"}

every_fused = pytest.mark.parametrize("name", FUSED)
every_form = pytest.mark.parametrize(("name", "options"), FORMS, ids=str)


def fused(name, iterations, children, weight, /, **options):
    return routing.get(name).fused(children, weight, **options, **rounds(name, iterations))


def routed(name, iterations, children, weight, /, **options):
    if takes(name, "children"):
        options["children"] = children
    votes = votes_of(children, weight)
    found = routing.get(name).route(votes, **options, **rounds(name, iterations))
    return Parents(found.poses[-1], found.activations[-1])


def weighted(parts):
    """A scalar that depends on every number, so that no gradient cancels by symmetry."""
    return sum((x * torch.linspace(-1, 2, x.numel()).to(x).view_as(x)).sum() for x in parts)


def with_gradients(function, name, iterations, children, weight, inputs, **options):
    """Parents, and the gradients of a weighted sum of them for everything that is given."""
    given = [x.detach().clone().requires_grad_() for x in (children, weight, *inputs.values())]
    named = dict(zip(inputs, given[2:], strict=True))
    parents = function(name, iterations, *given[:2], **named, **options)
    gradients = torch.autograd.grad(
        weighted(parents), given, allow_unused=True, materialize_grads=True
    )
    return *(part.detach() for part in parents), *gradients


def all_close(actual, expected, tolerance=1e-10):
    """Each tensor beside the largest of its numbers."""
    for a, b in zip(actual, expected, strict=True):
        scale = max(1, b.abs().max().item()) if b.numel() else 1
        close(a.to(b) / scale, b / scale, tolerance)


@every_fused
def test_fused_takes_what_route_takes_but_interventions(name):
    module = routing.get(name)
    there, here = (list(signature(f).parameters) for f in (module.route, module.fused))
    assert set(here[2:]) - {"links"} == set(there[1:]) - {"couplings", "links", "children"}


@every_form
@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("iterations", [1, 4])
def test_fused_equals_route_in_values_and_gradients(name, options, bare, iterations, monkeypatch):
    *given, inputs = drawn_capsules(name, children=23)
    if bare:  # of what need not be given
        inputs = {key: value for key, value in inputs.items() if key == "activations"}
    expected = with_gradients(routed, name, iterations, *given, inputs, **options)
    for block in (1, 4, 1000):  # children at a time, of 23
        monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", block * J * E * B * 8)
        all_close(with_gradients(fused, name, iterations, *given, inputs, **options), expected)


@every_form
@pytest.mark.parametrize("iterations", [1, 3])  # few: rounding grows with each
def test_fused_equals_route_in_single_precision(name, options, iterations):
    *given, inputs = drawn_capsules(name)
    double = with_gradients(routed, name, iterations, *given, inputs, **options)
    given, inputs = [x.float() for x in given], {key: x.float() for key, x in inputs.items()}
    single = with_gradients(fused, name, iterations, *given, inputs, **options)
    assert all(x.dtype == torch.float32 for x in single)
    all_close(single, double, 1e-4)


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


@pytest.mark.parametrize(("name", "options"), [f for f in FORMS if "detach" not in f[1]], ids=str)
def test_derivatives_are_right(name, options):
    *given, inputs = drawn_capsules(name)
    given = [x.requires_grad_() for x in (*given, *inputs.values())]

    def parents(children, weight, *values):
        named = dict(zip(inputs, values, strict=True))
        return tuple(fused(name, 3, children, weight, **named, **options))

    assert torch.autograd.gradcheck(parents, given, fast_mode=True, atol=1e-6)


@every_fused
def test_a_second_derivative_is_an_error_but_right_inside_literal(name):
    layer = CapsuleLayer((12, 1, 1), 3, routing=name, child_pose=(4,), parent_pose=(5,), std=0.5)
    children = draw(2, 12, 4, seed=1).requires_grad_()
    layer.double()

    def parents(children):
        return tuple(layer(children, children.norm(dim=2)))

    (slope,) = torch.autograd.grad(weighted(parents(children)), children, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.square().sum().backward()
    with literal():
        assert torch.autograd.gradgradcheck(parents, children, fast_mode=True)


@pytest.mark.parametrize("name", ["em", "variational"])
def test_with_next_to_no_mass_second_derivatives_are_finite(name):
    """Of one child, whose shares of most parents are as good as none after three rounds."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        children, weight, *more = (
            torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for shape in ((3, 1, 5), (1, 4, 6, 5), (4,), (4,))
        )
        active = torch.rand(3, 1, generator=generator, dtype=torch.float64)
        inputs = {"activations": active, **dict(zip(("beta_u", "beta_a"), more, strict=True))}
        said = routed(name, 3, children, weight, **inputs).poses.tanh().sum()
        grads = torch.autograd.grad(said, [children, weight], create_graph=True)
        again = torch.autograd.grad(sum(g.square().sum() for g in grads), [children, weight])
        assert all(g.isfinite().all() for g in (*grads, *again))


@every_fused
@pytest.mark.parametrize("only", [0, 1])
def test_fused_gives_the_gradient_of_one_input_alone(name, only):
    *given, options = drawn_capsules(name)
    expected = with_gradients(fused, name, 3, *given, options)
    given[only].requires_grad_()
    weighted(fused(name, 3, *given, **options)).backward()
    close(given[only].grad, expected[2 + only])


@every_form
@pytest.mark.parametrize("zero", ["children", "weight", "activations"])
def test_fused_is_finite_at_zero_in_value_and_gradient(name, options, zero):
    children, weight, inputs = drawn_capsules(name, dtype=torch.float32)
    children, weight = children * (zero != "children"), weight * (zero != "weight")
    inputs |= {key: 0 * value for key, value in inputs.items() if key == zero}
    for x in with_gradients(fused, name, 3, children, weight, inputs, **options):
        assert x.isfinite().all()


@every_fused
def test_fused_takes_non_contiguous_inputs_and_leaves_them_as_they_were(name):
    children, weight, options = drawn_capsules(name)
    scattered = (
        children.permute(2, 1, 0).contiguous().permute(2, 1, 0),
        weight.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    )
    assert not any(x.is_contiguous() for x in scattered)
    found = with_gradients(fused, name, 3, *scattered, options)
    all_close(found, with_gradients(fused, name, 3, children, weight, options))
    again = drawn_capsules(name)
    assert torch.equal(children, again[0]) and torch.equal(weight, again[1])
    assert all(torch.equal(options[key], again[2][key]) for key in options)


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
    assert [x.dtype for x in found[:4]] == [torch.float32, torch.float32, dtype, torch.float32]
    all_close(found[:2] + found[3:], expected[:2] + expected[3:], 1e-5)
    all_close(found[2:3], expected[2:3], 0.02)


@pytest.mark.parametrize("name", [name for name in FUSED if name != "self_routing"])
def test_the_backward_pass_may_lie_inside_autocast(name):
    """Not self-routing's classifier, whose gradients are those of PyTorch's own product."""
    *given, options = drawn_capsules(name, dtype=torch.float32)
    expected = with_gradients(fused, name, 3, *given, options)[2:]
    tensors = [x.requires_grad_() for x in (*given, *options.values())]
    made = weighted(fused(name, 3, *given, **options))
    with torch.autocast("cpu", torch.bfloat16):
        all_close(torch.autograd.grad(made, tensors, materialize_grads=True), expected, 1e-6)


@pytest.mark.parametrize(
    "name", [name for name in FUSED if name not in ("dynamic", "variational", "k_means", "uniform")]
)
def test_fused_compiles_into_one_graph(name, monkeypatch):
    """Two rounds, from even couplings and from logits; of dynamic routing a whole network below."""
    if name == "max_min":
        monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", 1)  # several blocks
    given = drawn_capsules(name, children=2)
    torch._dynamo.reset()  # its count of what it compiled
    module, options = torch.compile(routing.get(name).fused, **ONE_GRAPH), rounds(name, 2)

    def compiled(name, iterations, children, weight, /, **more):
        return module(children, weight, **more, **options)

    found = with_gradients(compiled, name, 2, *given)
    all_close(found, with_gradients(fused, name, 2, *given), 1e-9)


@every_fused
@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA here")
def test_the_gpu_gives_what_the_cpu_gives(name):
    children, weight, options = drawn_capsules(name, children=40)
    there = {key: value.cuda() for key, value in options.items()}
    found = with_gradients(fused, name, 3, children.cuda(), weight.cuda(), there)
    for a, b in zip(found, with_gradients(fused, name, 3, children, weight, options), strict=True):
        close(a.cpu(), b, 1e-9)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_detached_routing_learns_through_the_last_iteration_alone(iterations):
    children, weight, inputs = drawn_capsules("dynamic", children=23)
    votes = votes_of(children, weight)
    couplings = routing.get("dynamic").route(votes, iterations=iterations, **inputs).couplings

    def last_iteration(name, iterations, children, weight, bias):
        total = torch.einsum("bij,bije->bje", couplings[-1], votes_of(children, weight))
        poses = squash(total + bias)
        return Parents(poses, poses.norm(dim=2))

    given = "dynamic", iterations, children, weight, inputs
    expected = with_gradients(last_iteration, *given)
    for form in (fused, routed):
        all_close(with_gradients(form, *given, detach=True), expected, 1e-9)
    full = with_gradients(fused, *given)
    assert torch.allclose(full[2], expected[2]) == (iterations == 1)


# Whole networks


def test_a_whole_network_compiles_into_one_graph():
    model = build_tiny(routing_bias=True, detach_routing=True, leaky=True)
    images = torch.rand(3, 1, 21, 19)
    compiled = torch.compile(model, **ONE_GRAPH)
    results = []
    for run in (model, compiled):
        model.zero_grad()
        output = run(images)
        output.lengths.sum().backward()
        results.append((output.poses.detach(), model.conv1.weight.grad.clone()))
    torch.testing.assert_close(results[1], results[0])
    with torch.inference_mode():
        torch.testing.assert_close(compiled(images).poses, results[0][0])


def test_a_leaky_network_routes_so_and_its_controls_give_as_much(tiny_images):
    model = build_strong(leaky=True)
    seen = capsviz.trace(model, tiny_images)
    assert seen.couplings.sum(3).max() < 1
    assert seen.couplings[0].unique().tolist() == pytest.approx([1 / 4])  # three classes
    with torch.inference_mode():
        close(model(tiny_images).poses, seen.poses[-1], 1e-5)
    uniform = capsviz.trace(model, tiny_images, couplings="uniform")
    close(uniform.poses[-1], capsviz.trace(model, tiny_images, iterations=1).poses[-1], 1e-6)
    random = capsviz.trace(model, tiny_images, couplings="random")
    plain = capsviz.trace(build_strong(), tiny_images, couplings="random")
    close(random.couplings, 3 / 4 * plain.couplings, 1e-6)
