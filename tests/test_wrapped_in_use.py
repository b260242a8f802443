"""What the analyses take of somebody's own network, and what they refuse in one line."""

import foreign_networks as zoo
import numpy as np
import planted
import pytest
import torch
from foreign_networks import CLASSES, SHAPE
from PIL import Image

import capsviz
from capsviz.analyses import routing
from capsviz.cli.inputs import open_inputs
from capsviz.tracing.needs import missing, require

EM = {"couplings": "m_step:share", "votes": "m_step:v", "poses": "m_step:mu"}


@pytest.fixture
def images():
    return torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(3))


def wrapped(network, **options):
    return capsviz.wrap(network.eval(), image_shape=SHAPE, classes=CLASSES, **options)


class Uneven(zoo.Expectation):
    """EM whose children are on or off: its poses follow couplings times activations alone."""

    def __init__(self):
        super().__init__()
        with torch.no_grad():
            self.activation.weight.mul_(40)

    def forward(self, x):
        a = torch.sigmoid(self.activation(x)).view(len(x), zoo.I, 1, 1)
        u = self.encode(x).view(len(x), zoo.I, 1, zoo.D)
        return self.fitted(a, (u[..., None, :] * self.W).sum(-1))


def test_poses_are_held_against_what_weighs_the_votes_and_not_against_couplings(images):
    net = wrapped(Uneven())
    seen = capsviz.trace(net, images, keep=("couplings", "weights", "votes", "poses"))
    by_couplings = torch.einsum("bij,bije->bje", seen.couplings[-1], seen.votes)
    cosine = torch.cosine_similarity(by_couplings, seen.poses[-1], dim=-1)
    assert cosine.min() < 0.999  # couplings alone would be called a lie


def test_couplings_that_can_only_be_read_are_told_before_anything_is_computed():
    net = wrapped(zoo.Watchable(), **EM)
    assert missing(net, routing.NEEDS) == ["interventions"]
    with pytest.raises(ValueError, match="no couplings that can be replaced: x needs them"):
        require(net, routing.NEEDS, "x")
    assert "transplant" in net.report().partition("cannot")[2]
    assert missing(wrapped(zoo.Unsqueezed()), routing.NEEDS) == []


class Rounds(planted.Correct):
    """Its number of passes has a name that says nothing; another attribute holds it, too."""

    def __init__(self):
        super().__init__()
        self.types = self.rr = 3
        del self.iterations

    def __getattr__(self, name):
        return self.rr if name == "iterations" else super().__getattr__(name)


def test_an_attribute_of_any_name_sets_the_iterations_if_it_does():
    net = capsviz.wrap(Rounds().eval(), planted.SHAPE, planted.CLASSES)
    assert "set by rr" in net.report()
    images = torch.rand(2, *planted.SHAPE)
    assert len(capsviz.trace(net, images, iterations=5).couplings) == 5
    assert net.network.rr == net.network.types == 3


def test_a_fixed_number_of_passes_is_taken_for_its_own_number(images):
    net, labels = wrapped(zoo.Einsum()), torch.arange(5) % 3
    assert "fixed" in net.report()
    own = capsviz.trace(net, images)
    assert torch.equal(capsviz.trace(net, images, iterations=3).poses, own.poses)
    result = routing.evaluate(net, images, labels, classes=list("abc"), dataset="x")
    assert len(result.accuracy) == len(result.entropy_nats) == 3
    right = (own.activations.argmax(2) == labels).float().mean(1)
    np.testing.assert_allclose(result.accuracy.value, right)


@pytest.mark.parametrize("part", ["couplings", "votes"])
def test_a_function_that_gives_another_tensor_is_refused(part):
    class Bare(zoo.Einsum):
        def forward(self, x):
            return {"scores": super().forward(x), "other": torch.ones(len(x), 4, 7, 2)}

    given = {"couplings": lambda out: out["other"][:, :, :3, 0]}
    given |= {part: lambda out: out["other"].flatten(2) if part == "couplings" else out["other"]}
    with pytest.raises(ValueError, match=f"{part}= must return"):
        wrapped(Bare(), **given)


def test_pictures_come_in_the_size_and_colours_that_a_network_was_wrapped_for(tmp_path):
    generator = np.random.default_rng(0)
    for name in "ab":
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for k in range(10):
            pixels = generator.integers(0, 256, (40, 50, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{k}.png")
    (tmp_path / "net.py").write_text(
        "import capsviz\n"
        "from capsviz.nn.models import build\n"
        "def made():\n"
        "    return build('capsnet', (3, 20, 20), 2, types=2, channels=4,\n"
        "                 reconstruction_weight=0.0)\n"
    )
    opened = open_inputs(
        network=f"{tmp_path / 'net.py'}:made", dataset="folder", data_dir=tmp_path / "pictures"
    )
    assert opened.images(2)[0].shape == (2, 3, 20, 20)
    assert opened.load("train").image_shape == (3, 20, 20)


def test_rooms_that_the_documentation_names_are_there():
    assert callable(capsviz.checks.run) and callable(capsviz.testing.assert_capsnet)
