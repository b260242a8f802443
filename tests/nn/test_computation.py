"""The literal path: transforms, export, ONNX; and other types and devices than float32 on a CPU."""

import pytest
import torch
from helpers.fixtures import build_strong
from helpers.random_tensors import draw
from helpers.routing_cases import close
from torch.nn.functional import conv2d

import capsviz
from capsviz.checkpoint import untrained
from capsviz.nn import capsule_layer, functional, models, routing
from capsviz.nn.computation import in_bfloat16, is_literal, literal, seeded, without_autocast

ROUTINGS = pytest.mark.parametrize("name", routing.available())


@pytest.fixture
def model():
    return build_strong(routing_bias=True).double()


@pytest.fixture
def images(tiny_images):
    return tiny_images[:3].double()


def test_the_literal_path_has_no_function_of_our_own(model, images):
    def functions(node, actual):
        if node is not None and node not in actual:
            actual.add(node)
            for following, _ in node.next_functions:
                functions(following, actual)
        return actual

    with literal():
        plain = functions(model(images).lengths.grad_fn, set())
    fast = functions(model(images).lengths.grad_fn, set())
    ours = [{type(n).__name__ for n in nodes if hasattr(n, "saved_tensors")} for nodes in
            (plain, fast)]  # fmt: skip
    assert ours[0] == set() and ours[1] == {"_AttendBackward"}


def exported(model, images):
    with literal(), torch.no_grad():
        return torch.export.export(
            model, (images,), dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=64)},)
        )


def test_export_with_any_batch(model, images, tiny_images):
    program = exported(model, images).module()
    for n in (1, 2, 8):
        some = tiny_images[:n].double()
        for a, b in zip(program(some), model(some), strict=True):
            close(a, b, 1e-12)


def test_the_switch_is_put_back_also_after_an_error_and_can_be_nested():
    with pytest.raises(ZeroDivisionError), literal():
        with literal():
            assert is_literal()
        assert is_literal()
        1 / 0  # noqa: B018
    assert not is_literal()


def test_autocast_is_turned_off_where_there_is_one():
    with torch.autocast("cpu", torch.bfloat16), without_autocast(torch.device("cpu")):
        assert not torch.is_autocast_enabled("cpu")
    with without_autocast(torch.device("meta")):
        pass


@ROUTINGS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", ["capsnet", "matrix_capsnet"])
def test_every_routing_runs_trains_and_traces_in_half_precision(kind, dtype, name, tiny_images):
    """Its norms too, whose own tensors are of half precision beside capsules that are not."""
    small = {"channels": 5, "types": 2 if kind == "capsnet" else (2, 3, 4)}
    small["reconstruction_weight"] = 0.0005

    def build():
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return models.build(kind, (1, 21, 19), 3, routing=name, hidden=(8, 9), **small)

    exact, model = build(), build().to(dtype)
    for network, images in ((exact, tiny_images), (model, tiny_images.to(dtype))):
        output = network(images)
        network.objective(output, images, torch.arange(8) % 3).loss.backward()
        network.eval()
    assert {x.dtype for x in output} == {torch.float32}  # capsules keep their precision
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(g.isfinite().all() and g.dtype == dtype for g in gradients)
    for (_, a), (_, b) in zip(model.named_buffers(), exact.named_buffers(), strict=True):
        assert a.dtype == (dtype if b.is_floating_point() else b.dtype)
        close(a.to(b), b, 0.1)  # what batch norm learned of the batch
    traced, expected = capsviz.trace(model, tiny_images), capsviz.trace(exact, tiny_images)
    close(traced.lengths, expected.lengths, 0.1)
    close(traced.reconstruction, expected.reconstruction, 0.05)


@ROUTINGS
def test_a_network_on_meta_gives_shapes(name):
    with torch.device("meta"):
        model = models.build("capsnet", (1, 28, 28), 10, routing=name)
        images = torch.rand(2, 1, 28, 28)
    output = model(images)
    votes, routed = model.capsules.route(output.primary)
    decoded = model.decode(output.poses, torch.zeros(2, dtype=torch.int64, device="meta"))
    sse = functional.reconstruction_loss(images, decoded)
    (output.lengths.sum() + sse.sum()).backward()
    assert {x.device.type for x in (*output, votes, *routed, decoded)} == {"meta"}
    assert output.lengths.shape == (2, 10) and output.poses.shape == (2, 10, 16)
    assert output.primary.shape == (2, 1152, 8) and votes.shape == (2, 1152, 10, 16)
    assert decoded.shape == images.shape
    assert model.capsules.weight.grad.shape == (1152, 10, 16, 8)


def matrix(name):
    options = {"types": [2, 2, 2], "channels": 8, "routing": name}
    return models.build("matrix_capsnet", (1, 20, 20), 10, **options).eval()


@pytest.mark.parametrize("name", ["dynamic", "em"])
def test_a_matrix_network_is_exported_before_it_ever_ran_and_others_compute_afterwards(name):
    images = torch.rand(3, 1, 20, 20)
    capsule_layer.convolution_links.results.clear()
    capsule_layer.coordinates_of.results.clear()
    model = matrix(name)
    with literal(), torch.no_grad():
        program = torch.export.export(model, (images,)).module()
        close(program(images).lengths, model(images).lengths, 1e-5)
    assert type(matrix(name)(images).lengths) is torch.Tensor


def test_stand_ins_of_an_exporter_leave_no_trace_in_convolutions():
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = models.build("capsnet", (1, 28, 28), 10, types=8).eval()
    images = torch.rand(20, 1, 28, 28)
    with torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True):
            assert model(torch.rand(20, 1, 28, 28)).lengths.shape == (20, 10)
        assert type(model(images).lengths) is torch.Tensor


def test_a_seed_holds_inside_alone():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    with seeded(7):
        inside = torch.rand(4)
    assert torch.equal(torch.rand(4), expected)
    with seeded(7):
        assert torch.equal(torch.rand(4), inside)


def test_a_fresh_network_seeds_no_gpu(monkeypatch):
    network, seeds = build_strong(), []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    before = torch.get_rng_state()
    untrained.untrained_like(network, 7)
    assert seeds == [] and torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("fast", [True, False])
def test_bfloat16_is_the_same_with_and_without_instructions_for_it(fast, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: fast)
    images, kernels = draw(3, 2, 9, 9, seed=1).float(), draw(4, 2, 3, 3, seed=2).float()
    matrix = draw(4, 5, seed=3).float().requires_grad_()
    with in_bfloat16(images.device):
        maps = conv2d(images, kernels, stride=2)
        found = torch.einsum("bchw,cd->bd", maps, matrix) @ matrix.t()
        assert (matrix.double() @ matrix.double().t()).dtype == torch.float64
        counts = torch.arange(4).view(2, 2)
        assert torch.equal(counts @ counts, torch.tensor([[2, 3], [6, 11]]))
        with without_autocast(images.device):
            assert (matrix @ matrix.t()).dtype == torch.float32
            assert (matrix.bfloat16() @ matrix.bfloat16().t()).dtype == torch.bfloat16
    expected = torch.einsum("bchw,cd->bd", conv2d(images, kernels, stride=2), matrix) @ matrix.t()
    assert (maps.dtype, found.dtype) == (torch.bfloat16, torch.bfloat16)
    own, exact = (torch.autograd.grad(x.float().sum(), matrix)[0] for x in (found, expected))
    for rounded, whole in ((found, expected), (own, exact)):
        error = (rounded.detach() - whole.detach()).abs().max() / whole.detach().abs().max()
        assert 0.0003 < error < 0.02


def test_products_of_other_types_and_outside_are_left_alone(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    matrix = draw(4, 5, seed=3).float()
    with in_bfloat16(matrix.device, enabled=False):
        assert torch.equal(matrix @ matrix.t(), torch.mm(matrix, matrix.t()))
        assert (matrix @ matrix.t()).dtype == torch.float32
