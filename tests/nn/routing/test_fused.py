"""Fused forms with and without their options, and `attend`, the step that most are made of.

What holds for every fused form, its options given, is in test_fused_laws.py.
"""

from inspect import signature

import pytest
import torch
from conftest import build_tiny
from helpers.random_tensors import B, D, E, I, J, draw, votes_of
from helpers.routing_cases import FUSED, drawn_capsules, rounds, takes

from capsviz.nn import routing
from capsviz.nn.functional import squash
from capsviz.nn.routing import Parents, _parts

TOLERANCE = {torch.float64: 1e-10, torch.float32: 5e-5}
# whose gradients are all their own, none those of PyTorch's operations
OWN = [name for name in FUSED if not hasattr(routing.get(name), "checkpoint")]
DETACHED = [name for name in FUSED if takes(name, "detach")]
ATTENDED = [name for name in FUSED if hasattr(routing.get(name), "attend")]

every_fused = pytest.mark.parametrize("name", FUSED)
every_own = pytest.mark.parametrize("name", OWN)
every_detached = pytest.mark.parametrize("name", DETACHED)
with_and_without_options = pytest.mark.parametrize("bare", [False, True])


def cotangent(values):
    """A fixed weighting, so that no gradient cancels by symmetry."""
    return torch.linspace(-1, 2, values.numel()).to(values).view_as(values)


def weighted(parents):
    """A scalar that depends on every number of the result."""
    return sum((x * cotangent(x)).sum() for x in parents)


def capsules(name, bare=False, **sizes):
    """Children, weight and options by name; `bare` of what need not be given."""
    children, weight, options = drawn_capsules(name, **sizes)
    if bare:
        needed = {"activations"}
        options = {key: value for key, value in options.items() if key in needed}
    return {"u": children, "W": weight, **options}


def fused(name, inputs, iterations=3, **options):
    u, w, *learned = inputs.values()
    options |= dict(zip(list(inputs)[2:], learned, strict=True))
    return routing.get(name).fused(u, w, **options, **rounds(name, iterations))


def routed(name, inputs, iterations=3, **options):
    u, w, *learned = inputs.values()
    options |= dict(zip(list(inputs)[2:], learned, strict=True))
    if takes(name, "children"):
        options["children"] = u
    actual = routing.get(name).route(votes_of(u, w), **options, **rounds(name, iterations))
    return Parents(actual.poses[-1], actual.activations[-1])


def with_gradients(function, name, inputs, *more, **options):
    """The result, and the gradients of a weighted sum of it for every input."""
    inputs = {key: value.detach().clone().requires_grad_() for key, value in inputs.items()}
    actual = function(name, inputs, *more, **options)
    gradients = torch.autograd.grad(weighted(actual), list(inputs.values()), allow_unused=True)
    zeros = [torch.zeros_like(x) for x in inputs.values()]
    gradients = [z if g is None else g for g, z in zip(gradients, zeros, strict=True)]
    return [*(x.detach() for x in actual), *gradients]


def close(actual, expected, tolerance=1e-10):
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def test_routings_that_agree_by_a_dot_product_are_compositions_of_one_step():
    expected = {"dynamic", "uniform", "self_attention", "inverted_attention", "k_means"}
    assert expected <= set(ATTENDED)


@every_fused
def test_fused_takes_what_route_takes_but_interventions(name):
    module = routing.get(name)
    there, here = (list(signature(f).parameters) for f in (module.route, module.fused))
    assert set(here[2:]) - {"links"} == set(there[1:]) - {"couplings", "links", "children"}


@pytest.fixture(params=["one block", "a block per child", "uneven blocks"])
def blocks(request, monkeypatch):
    """Force small blocks of children, the last one shorter; says how many children are in one."""
    size = {"one block": None, "a block per child": 1, "uneven blocks": 4}[request.param]
    if size is not None:
        # at 8 bytes per number: a child's votes are J * E * B numbers
        monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", size * J * E * B * 8)
    return size


@every_fused
@with_and_without_options
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fused_equals_route_in_values_and_gradients(name, dtype, bare, iterations=4):
    inputs = capsules(name, bare, dtype=torch.float64)
    expected = with_gradients(routed, name, inputs, iterations)
    inputs = {key: value.to(dtype) for key, value in inputs.items()}
    actual = with_gradients(fused, name, inputs, iterations)
    scales = [float(x.abs().max().clamp_min(1)) for x in expected]
    close(
        [x.double() / scale for x, scale in zip(actual, scales, strict=True)],
        [x / scale for x, scale in zip(expected, scales, strict=True)],
        TOLERANCE[dtype],
    )


@every_fused
@with_and_without_options
@pytest.mark.parametrize("iterations", [1, 3])
def test_fused_equals_route_however_the_children_are_blocked(name, blocks, iterations, bare):
    inputs = capsules(name, bare, children=23)
    close(*(with_gradients(form, name, inputs, iterations) for form in (fused, routed)))


def test_the_blocks_of_these_tests_are_many_and_cover_every_child(blocks):
    actual = _parts.in_blocks(23, J * E * B * 8, torch.device("cpu"))
    assert len(actual) == {None: 1, 1: 23, 4: 6}[blocks]
    assert [i for block in actual for i in range(23)[block]] == list(range(23))


@every_own
def test_the_backward_pass_may_lie_inside_autocast(name):
    inputs = capsules(name, dtype=torch.float32)
    expected = with_gradients(fused, name, inputs)[2:]
    inputs = {key: value.requires_grad_() for key, value in inputs.items()}
    made = weighted(fused(name, inputs))
    with torch.autocast("cpu", torch.bfloat16):
        actual = torch.autograd.grad(made, list(inputs.values()), materialize_grads=True)
    close(actual, expected, 1e-6)


@every_own
def test_fused_under_vmap_is_refused_and_says_why(name):
    inputs = capsules(name)
    with pytest.raises(RuntimeError, match="vmap"):
        torch.func.vmap(lambda w: fused(name, {**inputs, "W": w}).poses)(inputs["W"][None])


@pytest.mark.parametrize("name", [name for name in FUSED if takes(name, "iterations")])
@pytest.mark.parametrize("iterations", [0, -1])
def test_fused_refuses_fewer_than_one_iteration(name, iterations):
    with pytest.raises(ValueError, match=f"at least 1, got {iterations}"):
        fused(name, capsules(name), iterations)


@every_detached
@with_and_without_options
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_detached_routing_learns_through_the_last_iteration_alone(name, iterations, bare):
    inputs = capsules(name, bare, children=23)
    votes = votes_of(inputs["u"], inputs["W"])
    bias = inputs.get("bias")
    couplings = routing.get(name).route(votes, iterations=iterations, bias=bias).couplings

    def last_iteration(name, inputs):
        votes = votes_of(inputs["u"], inputs["W"])
        total = torch.einsum("bij,bije->bje", couplings[-1], votes)
        poses = squash(total + inputs["bias"] if "bias" in inputs else total)
        return Parents(poses, poses.norm(dim=2))

    expected = with_gradients(last_iteration, name, inputs)
    for form in (fused, routed):
        close(with_gradients(form, name, inputs, iterations, detach=True), expected, 1e-9)
    full = with_gradients(fused, name, inputs, iterations)
    assert torch.allclose(full[2], expected[2]) == (iterations == 1)


@pytest.mark.parametrize("on", [False, True])
def test_a_whole_network_compiles_into_one_graph(on):
    model = build_tiny(routing_bias=on, detach_routing=on, leaky=on)
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


# The step itself


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize("options", [{}, {"leaky": True}, {"detach": True}], ids=str)
def test_a_step_is_the_literal_sum_of_votes(blocks, options, shifted):
    u, w = draw(B, 23, D, seed=1), draw(23, J, E, D, seed=2)
    q, shift = draw(B, J, E, seed=3), draw(23, J, seed=4) if shifted else None

    def literal(u, w, q, *shift):
        votes = votes_of(u, w)
        logits = torch.einsum("bije,bje->bij", votes, q)
        if options.get("leaky"):
            logits = torch.cat((logits, torch.zeros(B, 23, 1).double()), 2)
        c = logits.softmax(2)[..., :J]
        c = c.detach() if options.get("detach") else c
        return (torch.einsum("bij,bije->bje", c + shift[0] if shift else c, votes),)

    def step(u, w, q, *shift):
        inputs = *routing.batch_last(u, w), q.permute(1, 2, 0), *shift
        return (routing.attend(*inputs, **options).permute(2, 0, 1),)

    inputs = {"u": u, "w": w, "q": q, **({} if shift is None else {"shift": shift})}
    close(*(with_gradients(lambda _, g, f=f: f(*g.values()), "", inputs) for f in (step, literal)))


def test_without_a_query_a_step_divides_evenly_and_adds_the_shift():
    u, w = draw(B, I, D, seed=1), draw(I, J, E, D, seed=2)
    shift = draw(I, J, seed=4)
    for options, shares in (({}, J), ({"leaky": True}, J + 1)):
        for inputs in (None, shift):
            even = torch.full((I, J), 1 / shares, dtype=torch.float64) + (
                0 if inputs is None else inputs
            )
            expected = torch.einsum("ij,bije->bje", even, votes_of(u, w))
            actual = routing.attend(*routing.batch_last(u, w), None, inputs, **options)
            close([actual.permute(2, 0, 1)], [expected])
