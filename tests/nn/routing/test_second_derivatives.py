"""Second derivatives through the fast routings and convolutions: never left out, always right."""

import pytest
import torch
from conftest import build_strong
from helpers.random_tensors import B, D, E, I, J, draw, votes_of
from helpers.routing_cases import FUSED, drawn_capsules, rounds, takes

import capsviz
from capsviz.nn import allocator, convolution, routing
from capsviz.nn.computation import literal
from capsviz.nn.functional import lengths

every_fused = pytest.mark.parametrize("name", FUSED)
OPTIONS = [{}, *({o: True} for o in ("leaky", "detach"))]
every_form = pytest.mark.parametrize(
    ("name", "options"),
    [(n, o) for n in FUSED for o in OPTIONS if takes(n, *o)],
    ids=str,
)


def close(actual, expected, tolerance=1e-8):
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def poses(name, children, weight, inputs, **options):
    return routing.get(name).fused(children, weight, **inputs, **rounds(name, 3), **options).poses


def slow_poses(name, children, weight, inputs, **options):
    if takes(name, "children"):
        options["children"] = children
    votes = votes_of(children, weight)
    return routing.get(name).route(votes, **inputs, **rounds(name, 3), **options).poses[-1]


@every_form
def test_fused_passes_gradgradcheck(name, options):
    children, weight, inputs = drawn_capsules(name)
    tensors = [x.requires_grad_() for x in (children, weight, *inputs.values())]

    def form(children, weight, *more):
        return poses(name, children, weight, dict(zip(inputs, more, strict=True)), **options)

    if options.get("detach"):  # whose gradient is by intent not that of its value
        weights = [torch.ones_like(x) for x in tensors]
        slow = with_penalty(slow_poses, name, tensors, list(inputs), options, weights)
        for a, b in zip(
            with_penalty(poses, name, tensors, list(inputs), options, weights), slow, strict=True
        ):
            close(a, b)
        return
    assert torch.autograd.gradgradcheck(form, tensors, fast_mode=True, atol=1e-6)


@pytest.mark.parametrize("form", [poses, slow_poses])
@pytest.mark.parametrize("name", ["em", "variational"])
def test_with_next_to_no_mass_second_derivatives_are_finite(name, form):
    """Of one child, whose shares of most parents are as good as none after three rounds."""
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        children, weight, *more = (
            torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()
            for shape in ((3, 1, 5), (1, 4, 6, 5), (4,), (4,))
        )
        active = torch.rand(3, 1, generator=generator, dtype=torch.float64)
        inputs = {"activations": active, **dict(zip(("beta_u", "beta_a"), more, strict=True))}
        inside = [children, weight]
        said = form(name, children, weight, inputs).tanh().sum()
        grads = torch.autograd.grad(said, inside, create_graph=True)
        again = torch.autograd.grad(sum(g.square().sum() for g in grads), inside)
        assert all(g.isfinite().all() for g in (*grads, *again))


def with_penalty(form, name, tensors, keys, options, weights):
    """The gradients of a weighted sum of the squared gradients."""
    children, weight, *more = tensors
    made = form(name, children, weight, dict(zip(keys, more, strict=True)), **options)
    first = torch.autograd.grad(torch.tanh(made).square().sum(), tensors, create_graph=True)
    penalty = sum((w * g.square()).sum() for w, g in zip(weights, first, strict=True))
    return torch.autograd.grad(penalty, tensors)


@pytest.mark.parametrize("options", [{}, {"leaky": True}], ids=str)
@pytest.mark.parametrize("shifted", [False, True])
def test_a_step_passes_gradgradcheck(options, shifted):
    u, w = routing.batch_last(draw(B, I, D, seed=1), draw(I, J, E, D, seed=2))
    inputs = [u, w, draw(J, E, B, seed=3)] + ([draw(I, J, seed=4)] if shifted else [])
    inputs = [x.requires_grad_() for x in inputs]
    form = lambda *inputs: routing.attend(*inputs, **options)  # noqa: E731
    assert torch.autograd.gradgradcheck(form, inputs, fast_mode=True, atol=1e-6)


@every_fused
def test_a_hessian_vector_product_is_that_of_the_slow_path_and_of_differences(name):
    children, weight, inputs = drawn_capsules(name)
    inner, vector = draw(D, D, seed=6), draw(B, I, D, seed=5)

    def scalar(form):
        return lambda x: torch.tanh(form(name, torch.tanh(x @ inner), weight, inputs)).pow(3).sum()

    _, actual = torch.autograd.functional.hvp(scalar(poses), children, vector)
    _, slow = torch.autograd.functional.hvp(scalar(slow_poses), children, vector)
    close(actual, slow)

    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(scalar(poses)(x), x)[0]

    step = 1e-5
    differences = (gradient(children + step * vector) - gradient(children - step * vector)) / (
        2 * step
    )
    close(actual, differences, 1e-6)


def penalised(model, images, labels):
    """Gradients, by parameter, of the loss and the squared gradient of the lengths."""
    images = images.clone().requires_grad_()
    output = model(images)
    loss = model.objective(output, images, labels).loss
    (slope,) = torch.autograd.grad(output.lengths[:, 0].sum(), images, create_graph=True)
    total = loss + slope.square().flatten(1).sum(1).mean()
    actual = torch.autograd.grad(total, list(model.parameters()), allow_unused=True)
    return {
        key: value
        for (key, _), value in zip(model.named_parameters(), actual, strict=True)
        if value is not None
    }


@pytest.mark.parametrize("kept", [False, True])
def test_a_gradient_penalty_trains_as_on_the_literal_path(kept, tiny_images, monkeypatch):
    monkeypatch.setattr(allocator, "kept", lambda: kept)
    monkeypatch.setattr(convolution, "WIDE", 1)
    model = build_strong(routing_bias=True).double()
    inputs = tiny_images[:3].double(), torch.tensor([0, 2, 1])
    actual = penalised(model, *inputs)
    with literal():
        expected = penalised(model, *inputs)
    assert actual.keys() == expected.keys() and "capsules.weight" in actual
    for key, value in expected.items():
        close(actual[key], value)
    plain = torch.autograd.grad(
        model.objective(model(inputs[0]), *inputs).loss, model.capsules.weight
    )[0]
    assert (plain - actual["capsules.weight"]).abs().max() > 1e-3 * plain.abs().max()


def test_a_gradient_penalty_of_a_trained_network_is_right(digits):
    model = capsviz.load("digits").double()
    images, labels = (x[:3] for x in digits)
    actual = penalised(model, images.double(), labels)
    with literal():
        expected = penalised(model, images.double(), labels)
    for key, value in expected.items():
        close(actual[key], value)


def test_a_hessian_vector_product_of_a_trained_network_is_right(digits):
    model = capsviz.load("digits").double()
    image = digits[0][:1].double()
    vector = draw(*image.shape, seed=3)

    def scalar(x):
        return torch.tanh(lengths(model(x).poses)).square().sum()

    _, actual = torch.autograd.functional.hvp(scalar, image, vector)
    with literal():
        _, expected = torch.autograd.functional.hvp(scalar, image, vector)
    close(actual, expected)
    assert actual.abs().max() > 1e-3
