"""`torch.func` and forward mode through every layer, without `literal`: as reverse mode has it."""

from functools import partial

import pytest
import torch
from helpers.fixtures import build_strong
from helpers.random_tensors import draw
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, linearize, vmap

from capsviz.nn import capsule_layer, convolution, fourier, models, routing
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.children import PrimaryCapsules
from capsviz.nn.computation import literal

pytestmark = [  # of PyTorch's own, in jvp and in linearize
    pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated"),
    pytest.mark.filterwarnings("ignore:Attempted to insert a get_attr Node"),
]
ROUTINGS = routing.available()
# The decoder's `one_hot` reads the classes, which PyTorch does not trace; others take long.
LINEARIZED = ("primary capsules", "classes by em", "window by dynamic", "capsnet", "cnn")


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-11)


def class_capsules(name):
    options = {"child_pose": (4,), "parent_pose": (5,), "std": 0.5}
    return CapsuleLayer((12, 1, 1), 3, routing=name, **options)


def convolutional_capsules(name):
    options = {"child_pose": (2, 2), "parent_pose": (2, 2), "kernel": 2, "std": 0.5}
    return CapsuleLayer((2, 3, 3), 3, routing=name, **options)


LAYERS = {
    "primary capsules": (lambda: PrimaryCapsules(64, types=16), (64, 20, 20)),
    **{f"classes by {n}": (partial(class_capsules, n), (12, 4)) for n in ROUTINGS},
    **{f"window by {n}": (partial(convolutional_capsules, n), (18, 4)) for n in ROUTINGS},
    "decoder": (lambda: build_strong().decoder, (3, 6)),
}
NETWORKS = {
    "capsnet": {"types": 16, "channels": 64},  # so many that the Fourier transform pays
    "matrix_capsnet": {"types": (2, 2, 2), "channels": 8},
    "efficient_capsnet": {},
    "average": {"channels": (8, 8)},
    "cnn": {"channels": (4, 4), "hidden": (8,)},
    "resnet": {"blocks": 1},
    "pooled": {},
}
CASES = [(name, 8) for name in (*LAYERS, *NETWORKS)]
CASES += [("primary capsules", 16), ("capsnet", 16)]  # for which the Fourier transform pays


def case(name, count):
    """A function of weights and inputs, with both of them, in float64."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if name in LAYERS:
            build, shape = LAYERS[name]
            model = build()
        else:
            shape = (1, 28, 28)
            model = models.build(name, shape, 3, **NETWORKS[name])
    model = model.double().eval()
    inputs = draw(count, *shape, seed=1).sigmoid()
    weights = {key: value.detach() for key, value in model.named_parameters()}

    def run(weights, inputs):
        more = (torch.arange(len(inputs)) % 3,) if name == "decoder" else ()
        result = functional_call(model, weights, (inputs, *more))
        result = result if isinstance(result, torch.Tensor) else result[0]
        return result.flatten(1)

    return run, weights, inputs


def directions(values, seed=2):
    return {key: draw(*value.shape, seed=seed + n) for n, (key, value) in enumerate(values.items())}


def along_gradients(run, values, along, cotangent):
    """What reverse mode, by the fast way, says of a step `along`: <cotangent, J along>."""
    leaves = {key: value.clone().requires_grad_() for key, value in values.items()}
    total = (run(leaves) * cotangent).sum()
    slopes = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
    pairs = zip(slopes, along.values(), strict=True)
    return sum((slope * step).sum() for slope, step in pairs if slope is not None)


@pytest.mark.parametrize(("name", "count"), CASES)
def test_forward_mode_over_weights_and_inputs_is_reverse_mode(name, count):
    run, weights, inputs = case(name, count)
    both = {"inputs": inputs, **weights}
    along = directions(both)

    def of_all(values):
        return run({key: values[key] for key in weights}, values["inputs"])

    value, actual = jvp(of_all, (both,), (along,))
    cotangent = draw(*value.shape, seed=99)
    expected = along_gradients(of_all, both, along, cotangent)
    close((actual * cotangent).sum(), expected)
    close(value, of_all(both))
    with literal():
        close(actual, jvp(of_all, (both,), (along,))[1])
    if count == 8 and name in LINEARIZED:
        close(linearize(of_all, both)[1](along), actual)


@pytest.mark.parametrize(("name", "count"), CASES)
def test_vmap_over_weights_and_over_inputs(name, count):
    run, weights, inputs = case(name, count)
    several = {
        key: torch.stack((value, value + 0.01 * step))
        for (key, value), step in zip(weights.items(), directions(weights).values(), strict=True)
    }
    each = [run({key: value[n] for key, value in several.items()}, inputs) for n in range(2)]
    close(vmap(run, (0, None))(several, inputs), torch.stack(each))
    if name != "decoder":  # which classes are drawn depends on where an input stands
        one_by_one = vmap(lambda one: run(weights, one[None])[0])(inputs)
        close(one_by_one, run(weights, inputs))


@pytest.mark.parametrize("name", ["primary capsules", "matrix_capsnet"])
def test_jacobians_of_a_weight_forwards_and_backwards(name):
    run, weights, inputs = case(name, 16)
    key = next(key for key in weights if key.endswith("bias"))

    def of_bias(bias):
        return run({**weights, key: bias}, inputs).square().sum(0)[:6]

    expected = torch.autograd.functional.jacobian(of_bias, weights[key])
    close(jacfwd(of_bias)(weights[key]), expected)
    close(jacrev(of_bias)(weights[key]), expected)


@pytest.mark.parametrize("name", ["capsnet", "matrix_capsnet"])
def test_gradients_of_each_image_by_vmap(name):
    run, weights, inputs = case(name, 3)

    def loss(weights, image):
        return run(weights, image[None]).square().sum()

    actual = vmap(grad(loss), (None, 0))(weights, inputs)
    for b in range(3):
        leaves = {key: value.clone().requires_grad_() for key, value in weights.items()}
        expected = torch.autograd.grad(
            loss(leaves, inputs[b]), list(leaves.values()), materialize_grads=True
        )
        for key, one in zip(leaves, expected, strict=True):
            close(actual[key][b], one)


def test_dual_numbers_go_through_the_fourier_transform_with_their_tangents():
    images, weight, bias = draw(16, 64, 20, 20, seed=1), draw(128, 64, 9, 9, seed=2), draw(128)
    step = draw(*weight.shape, seed=3)
    assert fourier.pays(images, weight, 2)
    expected = torch.nn.functional.conv2d(images, step, None, 2)
    for convolve in (convolution.convolve, fourier.convolve):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(weight, step)
            found = forward_ad.unpack_dual(convolve(images, dual, bias, 2)).tangent
        close(found, expected)


def test_constants_that_a_transform_meets_first_are_not_kept_of_it():
    capsule_layer.convolution_links.results.clear()
    run, weights, inputs = case("matrix_capsnet", 2)
    grad(lambda x: run(weights, x).sum())(inputs)
    assert run(weights, inputs).isfinite().all()
    assert all(
        not torch._C._functorch.is_functorch_wrapped_tensor(links.child)
        for links, _ in capsule_layer.convolution_links.results.values()
    )
