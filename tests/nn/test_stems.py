"""Stems: sizes, what a place can see, and networks of every stem and routing."""

import pytest
import torch

from capsviz import discovery
from capsviz.nn import models, routing, stems
from capsviz.nn.stems import resnet
from capsviz.tracing import trace

DTYPE = torch.float64


@pytest.fixture(autouse=True)
def double():
    torch.set_default_dtype(DTYPE)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", discovery.names("capsviz.nn.stems"))
def test_a_place_sees_its_receptive_field_and_no_more(name):
    torch.manual_seed(0)
    stem = stems.build(name, (1, 31, 30), 2, 3).eval()
    images = torch.rand(1, 1, 31, 30, requires_grad=True)
    features = stem(images)
    rows, columns = stems.positions(name, (1, 31, 30))
    assert features.shape == (1, 2 * 3, rows, columns)
    for row, column in {(0, 0), (rows - 1, columns - 1), (rows // 2, 0)}:
        (gradient,) = torch.autograd.grad(
            features[0, :, row, column].sum(), images, retain_graph=True
        )
        reached = gradient[0, 0].nonzero()
        seen = stems.window(stems.layers(name), (1, 31, 30), row, column)
        for axis, part in enumerate(seen):
            assert part.start <= reached[:, axis].min() <= reached[:, axis].max() < part.stop
        corner = gradient[0, 0][seen[0].start :, seen[1].start :]
        assert corner[0].any() or name == "resnet"  # a padded stem's corner may be cut by a ReLU


def test_efficient_capsnet_has_the_papers_number_of_weights():
    model = models.build("efficient_capsnet", (1, 28, 28), 10, reconstruction_weight=0.0)
    assert sum(p.numel() for p in model.parameters()) == 161_824
    assert model.grid == (16, 1, 1) and model.settings.iterations == 1
    assert model.receptive_field(0, 0) == (slice(0, 27), slice(0, 27))


@pytest.mark.parametrize("name", routing.available())
def test_every_routing_learns_and_is_traced_on_a_slim_stem(name):
    torch.manual_seed(0)
    sizes = {"types": 3, "primary_dimensions": 4, "class_dimensions": 9, "hidden": (5, 6)}
    model = models.build("capsnet", (1, 28, 28), 5, stem="slim", routing=name, **sizes)
    images, labels = torch.rand(6, 1, 28, 28), torch.arange(6) % 5
    loss = model.objective(model(images), images, labels, progress=0.5).loss
    loss.backward()
    without = [n for n, p in model.named_parameters() if p.grad is None]
    assert without == [] and all(p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    seen = trace(model, images.float())
    assert seen.couplings.shape[1:] == (6, 3, 5) and seen.votes.shape == (6, 3, 5, 9)
    assert torch.allclose(seen.lengths, model(images).lengths, atol=1e-5)
    assert ((seen.lengths >= 0) & (seen.lengths <= 1)).all()
    again = models.build("capsnet", **model.config)
    again.load_state_dict(model.state_dict())


@pytest.mark.parametrize("name", ["em", "self_routing", "variational"])
def test_a_trace_says_what_votes_are_multiplied_by(name):
    torch.manual_seed(0)
    sizes = {"types": 3, "primary_dimensions": 4, "class_dimensions": 9, "hidden": (5,)}
    model = models.build("capsnet", (1, 28, 28), 5, stem="slim", routing=name, **sizes).eval()
    seen = trace(model, torch.rand(2, 1, 28, 28).float())
    mass = seen.couplings * seen.child_activations[..., None]
    assert torch.allclose(seen.weights, mass / mass.sum(2, keepdim=True), atol=1e-6)
    assert seen.factors is seen.weights


@pytest.mark.parametrize("stride", [1, 2])
def test_a_residual_block_is_torchvisions(stride):
    from torchvision.models.resnet import BasicBlock

    theirs = BasicBlock(4, 6, stride, torch.nn.Conv2d(4, 6, 1, stride))
    own = resnet.Block(4, 6, stride, theirs.downsample)
    own.load_state_dict(theirs.state_dict())
    images = torch.randn(3, 4, 9, 9)
    assert torch.equal(own(images), theirs(images))
