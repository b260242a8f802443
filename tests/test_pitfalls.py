"""Mistakes of public capsule-network code that capsviz's own networks must not have.

A twin or a law tests some where the code is: capsules across positions (1) in tests/nn/
test_class_capsules.py; the axis of the softmax, logits, gradients and iterations (2, 3, 16, 17) in
tests/nn/routing; both losses (9, 10) in tests/nn/test_functional.py; the error (12) and schedules
(22) in tests/training. `capsviz check` finds them in other networks.
"""

from dataclasses import replace

import pytest
import torch
from conftest import build_strong
from helpers import source_code as sources
from helpers.random_tensors import B, inputs, votes_of

import capsviz
from capsviz.data import Dataset
from capsviz.nn import functional, models
from capsviz.nn.models import Output
from capsviz.nn.routing import dynamic
from capsviz.training import run as pipeline
from capsviz.training import train
from capsviz.training.evaluate import evaluate
from capsviz.training.recipe import Recipe
from capsviz.training.tensorboard import reconstructions
from capsviz.transforms import augment

close = torch.testing.assert_close


@pytest.fixture
def tiny():
    """conftest's, with couplings that are far from even."""
    return build_strong()


def slow(primary, weight, *, iterations=3, bias=None):
    return dynamic.route(votes_of(primary, weight), iterations=iterations, bias=bias).poses[-1]


def fast(primary, weight, **options):
    """Poses by the fused form."""
    return dynamic.fused(primary, weight, **options).poses


both_paths = pytest.mark.parametrize("route", [slow, fast], ids=["route", "fused"])


@pytest.fixture
def part(generator):
    """30 images for `tiny` in bytes, black and white among them."""
    images = torch.randint(0, 256, (30, 1, 21, 19), generator=generator, dtype=torch.uint8)
    images[0], images[1] = 0, 255
    return Dataset(images, torch.arange(30) % 3, ("a", "b", "c"), "noise", "test")


@pytest.fixture
def decoded(tiny, monkeypatch):
    """`tiny`, and the list of the classes that its decoder is masked by, call by call."""
    calls, decode = [], tiny.decode
    monkeypatch.setattr(
        tiny, "decode", lambda poses, classes: calls.append(classes) or decode(poses, classes)
    )
    return tiny, calls


@both_paths
def test_pitfall_04_class_capsules_are_squashed_one_by_one(route):
    primary, weight, _ = inputs()
    plain = route(primary, weight, iterations=1)
    changed = weight.clone()
    changed[:, 2] += 1
    differs = (route(primary, changed, iterations=1) != plain).any(2)
    assert differs[:, 2].all() and differs.sum() == B


@pytest.mark.parametrize("zero", ["conv1", "primary", "capsules"])
def test_pitfall_05_zero_norms_have_finite_losses_and_gradients(zero):
    model = build_strong().train()
    with torch.no_grad():
        for parameter in getattr(model, zero).parameters():
            parameter.zero_()
        model.primary.convolution.bias.zero_()
    images, labels = torch.zeros(2, 1, 21, 19), torch.tensor([0, 2])
    output = model(images)
    assert output.poses.abs().max() == 0
    loss = model.objective(output, images, labels).loss + output.primary.norm(dim=2).sum() * 0
    loss = (
        loss + functional.lengths(dynamic.route(model.capsules.votes(output.primary)).poses).sum()
    )
    loss.backward()
    assert loss.isfinite()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_pitfall_07_no_relu_before_the_primary_squash(tiny, tiny_images):
    out = tiny.primary.convolution(tiny.conv1(tiny_images).relu())
    assert (tiny.encode(tiny_images).poses < 0).sum() == (out < 0).sum() > 0


def test_pitfall_08_no_softmax_on_lengths_before_the_margin_loss(tiny, tiny_images):
    labels = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    perfect = torch.where(torch.nn.functional.one_hot(labels, 3).bool(), 0.95, 0.05)
    output = Output(perfect, poses=torch.zeros(8, 3, 6))
    assert tiny.objective(output, tiny_images, labels).margin.max() == 0
    output = tiny(tiny_images)
    close(output.lengths, output.poses.norm(dim=2), rtol=0, atol=1e-5)


def test_pitfall_11_targets_and_reconstructions_share_the_range_0_1(tiny, part, tmp_path):
    seen = fit_recorded(tiny, part, tmp_path, shift_px=0)["trained on"]
    targets = torch.cat(seen)
    expected = augment.to_float(part.images)
    assert targets.min() == 0 and targets.max() == 1
    order = [int((expected == t).flatten(1).all(1).nonzero()) for t in targets]
    assert sorted(order) == list(range(30))
    made = tiny.decode(100 * torch.randn(50, 3, 6), torch.arange(50) % 3)
    assert made.min() >= 0 and made.max() <= 1 and made.min() < 0.1 and made.max() > 0.9


def test_pitfall_13_the_decoder_is_masked_by_the_truth_in_training(decoded, tiny_images):
    model, calls = decoded
    output = model(tiny_images)
    labels = (output.lengths.argmax(1) + 1) % 3  # the prediction is wrong everywhere
    model.objective(output, tiny_images, labels)
    assert len(calls) == 1 and torch.equal(calls[0], labels)


def test_pitfall_13_the_decoder_is_masked_by_the_prediction_at_test(decoded, part):
    model, calls = decoded
    images = augment.to_float(part.images)
    with torch.no_grad():
        winner = model(images).lengths.argmax(1)
    wrong = Dataset(part.images, (winner + 1) % 3, part.classes, "noise", "test")
    evaluate(model, wrong)
    capsviz.trace(model, images, chunk=30)
    reconstructions(model, images)
    # a trace looks at its first image first, to know the size of the others
    assert [len(c) for c in calls] == [30, 1, 30, 30]
    assert all(torch.equal(c, winner[: len(c)]) for c in calls)


def test_pitfall_14_images_are_not_moved_at_test(tiny, part, monkeypatch):
    seen, forward = [], tiny.forward
    monkeypatch.setattr(tiny, "forward", lambda x: seen.append(x) or forward(x))
    evaluate(tiny, part, batch_size=7)
    assert torch.equal(torch.cat(seen), augment.to_float(part.images))


def test_pitfall_14_training_moves_each_image_by_itself_and_validation_none(tiny, part, tmp_path):
    same = Dataset(part.images[2:3].expand(30, -1, -1, -1), part.labels, part.classes, "same", "-")
    seen = fit_recorded(tiny, same, tmp_path, shift_px=2)
    (batch,) = seen["trained on"]
    assert len(batch) == 30 and len(batch.unique(dim=0)) > 10
    assert torch.equal(torch.cat(seen["evaluated"]), augment.to_float(same.images))


def test_pitfall_15_the_test_set_chooses_nothing(part, tmp_path):
    options = {"channels": 5, "types": 2, "primary_dimensions": 4, "hidden": [8, 9]}
    recipe = Recipe(dataset="noise", epochs=3, batch_size=10, precision="fp32", options=options)
    stored = []
    for k, image in enumerate((part.images, part.images.flip(0))):
        splits = {"train": part, "validation": part, "test": replace(part, images=image)}
        folder = tmp_path / str(k)
        path, card = pipeline.run("x", recipe, splits, folder, device=torch.device("cpu"))
        stored.append((path.read_bytes(), card["training"]["epoch"], card["thresholds"]))
    assert stored[0] == stored[1]


def fit_recorded(model, part, folder, **options):
    """Train one epoch in one batch; the images of training steps and of the validation."""
    seen = {"trained on": [], "evaluated": []}
    forward, objective = model.forward, model.objective

    def record(output, images, labels):
        seen["trained on"].append(images.clone())
        return objective(output, images, labels)

    def look(images):
        if not model.training:
            seen["evaluated"].append(images.clone())
        return forward(images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "forward", look)
        patch.setattr(model, "objective", record)
        patch.setattr(train, "build_model", lambda recipe, dataset: model)
        recipe = Recipe(dataset="noise", epochs=1, batch_size=30, precision="fp32", **options)
        train.fit(recipe, part, part, folder / "run")
    return seen


def test_pitfall_18_a_batch_of_one_keeps_its_axes(tiny_images, part):
    model = build_strong()
    image, label = tiny_images[:1], torch.tensor([1])
    output = model(image)
    assert output.lengths.shape == (1, 3) and output.poses.shape == (1, 3, 6)
    assert output.primary.shape == (1, 12, 4)
    objective = model.objective(output, image, label)
    assert objective.margin.shape == objective.reconstruction.shape == (1,)
    assert model.decode(output.poses, label).shape == image.shape
    seen = capsviz.trace(model, image)
    assert seen.votes.shape == (1, 12, 3, 6) and seen.poses.shape == (3, 1, 3, 6)
    assert evaluate(model, part.first(1)).n == 1
    # no axis is taken away that happens to have length one
    ones = {"types": 1, "primary_dimensions": 1, "class_dimensions": 1}
    model = models.build("capsnet", (1, 17, 17), 2, channels=1, hidden=(1,), **ones)
    output = model(torch.rand(1, 1, 17, 17))
    assert output.primary.shape == (1, 1, 1) and output.poses.shape == (1, 2, 1)
    assert model.decode(output.poses, label).shape == (1, 1, 17, 17)
    seen = capsviz.trace(model, torch.rand(1, 1, 17, 17))
    assert seen.votes.shape == (1, 1, 2, 1) and seen.couplings.shape == (3, 1, 1, 2)
    assert seen.reconstruction.shape == (1, 1, 17, 17)


@both_paths
@pytest.mark.parametrize("size", [1e3, 1e6, 1e12])
def test_pitfall_19_large_logits_do_not_overflow_the_softmax(route, size):
    primary, weight, _ = inputs(torch.float32)
    primary, weight = (size * primary).requires_grad_(), weight.requires_grad_()
    poses = route(primary, weight)
    functional.lengths(poses).sum().backward()
    found = dynamic.route(votes_of(primary, weight))
    assert found.logits.abs().max() > 100  # exp of it is not finite in float32
    assert found.couplings.isfinite().all() and poses.isfinite().all()
    assert primary.grad.isfinite().all() and weight.grad.isfinite().all()


def test_pitfall_20_no_device_is_written_into_the_code():
    lines = {
        module: sources.devices(path.read_text(encoding="utf-8"))
        for module, path in sources.MODULES.items()
        # rooms that look for `.cuda()` in others' networks, and send it to their device
        if not module.startswith(("capsviz.wrapping", "capsviz.checks"))
    }
    assert {module: numbers for module, numbers in lines.items() if numbers} == {}


@pytest.mark.parametrize(
    "code",
    [
        "x.cuda()",
        "x.to(device='cuda:0')",
        "torch.Generator('mps')",
        "torch.cuda.FloatTensor(3)",
        "def f(x, *, device='cuda'): pass",
    ],
)
def test_pitfall_20_is_seen_where_it_is(code):
    assert sources.devices(code) == [1]


@pytest.mark.parametrize("preset", ["paper", "authors"])
def test_pitfall_23_a_new_network_does_not_saturate_its_capsules(preset, digits):
    images, _ = digits
    torch.manual_seed(0)
    model = models.build("capsnet", (1, 28, 28), 10, preset=preset, hidden=(8,))
    with torch.inference_mode():
        output = model(images[:8])
        assert output.lengths.max() < 0.3
        model.capsules.weight.mul_(1 / model.capsules.weight.std())
        assert model(images[:8]).lengths.mean() > 0.85  # weights of deviation 1 would saturate
