"""What analyses do with a user-defined network, and what they refuse in one line."""

import copy
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import planted_bugs as planted
from helpers import public_layouts as zoo
from helpers.public_layouts import CLASSES, SHAPE
from PIL import Image

import capsviz
from capsviz.analyses import routing, transplant
from capsviz.inputs.opening import open_inputs, open_module
from capsviz.tracing import from_children
from capsviz.tracing.needs import missing, require
from capsviz.wrapping import NoCapsulesError, environment, open_network

images = zoo.images


def wrapped(network, **options):
    return capsviz.wrap(network.eval(), image_shape=SHAPE, classes=CLASSES, **options)


def test_couplings_that_can_only_be_read_are_told_before_anything_is_computed():
    net = wrapped(zoo.Watchable(), **zoo.EM)
    assert missing(net, routing.OneImage.needs) == ["interventions"]
    with pytest.raises(ValueError, match="no couplings that can be replaced: x needs them"):
        require(net, routing.OneImage.needs, "x")
    assert "transplant" in net.report().partition("cannot")[2]
    assert missing(wrapped(zoo.Unsqueezed()), routing.OneImage.needs) == []


@pytest.mark.parametrize("name", ["Attention", "Einsum", "ParentsFirst", "Unsqueezed"])
def test_children_of_another_image_are_put_in_where_votes_are_made_of_them(name, images):
    net = wrapped(getattr(zoo, name)())
    seen = capsviz.trace(net, images, keep=("children", "votes", "lengths"))
    other = torch.arange(5).roll(1)
    chosen = (torch.arange(seen.children.shape[1]) % 3 == 0)[:, None]
    for some in (chosen, torch.ones_like(chosen)):
        children = torch.where(some, seen.children[other], seen.children)
        with torch.no_grad():
            put = net.look(torch.zeros_like(images), keep=("votes", "lengths"), children=children)
        expected = torch.where(some[..., None], seen.votes[other], seen.votes)
        torch.testing.assert_close(put["votes"], expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(put["lengths"], seen.lengths[other], rtol=1e-4, atol=1e-6)
    assert from_children(net, seen.children[:1]).shape == (1, CLASSES)  # one where it takes two
    for wrong in (seen.children[:, 1:], seen.children[:, :, 1:]):
        with pytest.raises(ValueError, match=r"expected children of \(24, 4\), got"):
            from_children(net, wrong)


def test_children_in_the_order_of_the_grid_are_put_in_where_the_network_has_them():
    net = capsviz.wrap(planted.Correct().eval(), planted.SHAPE, planted.CLASSES)
    images = torch.rand(5, *planted.SHAPE, generator=torch.Generator().manual_seed(3))
    seen = capsviz.trace(net, images, keep=("children", "lengths"))
    order = torch.randperm(24, generator=torch.Generator().manual_seed(0))
    places = net.inferred.places._replace(order=order)
    net.inferred = replace(net.inferred, places=places)
    turned = capsviz.trace(net, images, keep=("children",)).children
    assert not torch.equal(turned, seen.children)
    torch.testing.assert_close(from_children(net, turned), seen.lengths, rtol=1e-4, atol=1e-6)


def test_where_more_of_an_image_reaches_the_classes_children_are_not_replaced(images):
    net = wrapped(zoo.Expectation())  # activations of the children are made beside them
    assert missing(net, ("from_children",)) == ["from_children"]
    assert "can be read, not replaced: the classes depend on more" in net.report()
    asked = {"classes": list("abc"), "dataset": "noise"}
    with pytest.raises(ValueError, match="no way from other children to its classes"):
        transplant.ByCapsules().measure(net, images, of="children", **asked)
    one = wrapped(zoo.Einsum())
    with pytest.raises(ValueError, match="couplings of single iterations"):
        transplant.ByIterations().measure(one, images, **asked)


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
        "def unknown():\n"
        "    import torch; return torch.nn.Flatten()\n"
    )
    chosen = {"dataset": "folder", "data_dir": tmp_path / "pictures", "device": "cpu"}
    opened = open_inputs(network=f"{tmp_path / 'net.py'}:made", **chosen)
    assert opened.images(2)[0].shape == (2, 3, 20, 20)
    assert opened.load("train").image_shape == (3, 20, 20)
    with pytest.raises(ValueError, match=r"but pictures has \(3, 32, 32\) of 2"):
        open_inputs(checkpoint="cifar10-resnet", **chosen)
    chosen |= {"checkpoint": None, "weights": None}  # as for checks
    for made, given, expected in (("made", None, (3, 20, 20)), ("unknown", (3, 8, 9), (3, 8, 9))):
        network = f"{tmp_path / 'net.py'}:{made}"
        part = open_module(network=network, image_shape=given, **chosen)[1]
        assert part.image_shape == expected


class Scaled(zoo.Unsqueezed):
    """A decoder whose weights are made of others in the pass, twice."""

    def __init__(self):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.tensor(1.5))
        first = next(m for m in self.decoder_layers() if isinstance(m, torch.nn.Linear))
        torch.nn.utils.parametrizations.weight_norm(first)

    def decoder_layers(self):
        return [m for m in self.modules() if isinstance(m, torch.nn.Linear)]

    def decoded(self, masked):
        return super().decoded(masked) * (self.gain * 0.5).sigmoid()


def test_a_decoder_follows_weights_that_change_after_wrapping(images):
    net = Scaled()
    one = wrapped(net)
    other = {k: v + 0.3 * torch.ones_like(v) for k, v in net.state_dict().items()}
    net.load_state_dict(other)
    for known in (one, copy.deepcopy(one), copy.deepcopy(one).double()):
        like = next(known.parameters())
        with torch.no_grad(), environment.without_cuda():
            _, own = known.network(images.to(like))
        seen = capsviz.trace(known, images, keep=("reconstruction",)).reconstruction
        torch.testing.assert_close(seen.to(own), own)


@pytest.mark.parametrize("options", [{"iterations": 1}, {}], ids=["iterations", "modules"])
def test_a_network_that_is_set_or_listened_to_is_looked_at_by_one_thread_at_a_time(options, images):
    net = wrapped(zoo.Unsqueezed(), **({} if options else {"poses": "digits"}))
    keep = ("couplings", "poses")
    expected = [capsviz.trace(net, images, keep=keep, **more) for more in (options, {})]
    wrong = []

    def look(k, more):
        for _ in range(10):
            seen = capsviz.trace(net, images, keep=keep, **more)
            same = [getattr(seen, part).equal(getattr(expected[k], part)) for part in keep]
            wrong.extend([k] if not all(same) else [])

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(look, range(2), (options, {})))
    finally:
        sys.setswitchinterval(before)
    assert wrong == []


GPU = torch.device("cuda", 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it is on the GPU")
@pytest.mark.parametrize(
    "build",
    [
        lambda: torch.nn.BatchNorm1d(2).to("cuda").running_mean,
        lambda: torch.nn.Linear(2, 3, device="cuda:0").weight,
        lambda: torch.zeros(3, device="cuda"),
        lambda: torch.ones(3).to(GPU, torch.float64),
        lambda: torch.ones(3).to(0),
    ],
)
def test_whatever_names_a_gpu_is_on_the_cpu_where_there_is_none(build):
    with environment.without_cuda():
        assert build().device.type == "cpu"
    assert torch.overrides._get_current_function_mode_stack() == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="there it is on the GPU")
@pytest.mark.parametrize("more", [(), ("cuda",)])
def test_a_file_of_weights_from_a_gpu_is_read_where_there_is_none(more, tmp_path, monkeypatch):
    weights = {"w": torch.rand(3)}
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save(weights, tmp_path / "gpu.pt")
    read = torch.load
    with pytest.raises((RuntimeError, AssertionError), match="CUDA"):
        read(tmp_path / "gpu.pt", *more)
    with environment.without_cuda():
        found = torch.load(tmp_path / "gpu.pt", *more, weights_only=True)
        torch.cuda.set_device(0)
        torch.cuda.synchronize()
    assert found["w"].equal(weights["w"])
    assert torch.load is read


def test_lengths_are_in_a_trace_of_all_where_there_are_no_poses(images):
    net = wrapped(zoo.Watchable(), couplings=zoo.EM["couplings"])
    seen = capsviz.trace(net, images)
    assert seen.poses is None and seen.activations is None
    assert seen.lengths.equal(capsviz.trace(net, images, keep=("lengths",)).lengths)
    with pytest.raises(ValueError, match="gave no logits"):
        capsviz.trace(net, images, keep=("logits",))
    assert capsviz.trace(wrapped(zoo.Unsqueezed()), images).last is None


def test_what_a_network_of_a_file_prints_goes_to_stderr(tmp_path, capsys, monkeypatch, images):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    (tmp_path / "net.py").write_text(
        "from helpers.public_layouts import Unsqueezed\n"
        "class Loud(Unsqueezed):\n"
        "    def forward(self, x):\n"
        "        print('a pass')\n"
        "        return super().forward(x)\n"
    )
    net = open_network(f"{tmp_path / 'net.py'}:Loud", image_shape=SHAPE, classes=CLASSES)
    capsys.readouterr()
    capsviz.trace(net, images)
    words = capsys.readouterr()
    assert words.out == "" and "a pass" in words.err


class Again(zoo.Base):
    """One module routes parents to parents, twice: two layers, equal but for their votes."""

    def __init__(self):
        super().__init__()
        self.digits = zoo.Layer(self.W, 3)
        generator = torch.Generator().manual_seed(1)
        weight = 2 * torch.randn(zoo.J, zoo.J, zoo.E, zoo.E, generator=generator)
        self.again = zoo.Layer(torch.nn.Parameter(weight), 3)

    def forward(self, x):
        return self.again(self.again(self.digits(self.encode(x)))).norm(dim=-1)


def test_a_module_that_routes_twice_is_two_layers(images):
    net = wrapped(Again())
    seen = capsviz.trace(net, images)
    votes = seen.votes
    assert len(seen.couplings) == 3
    for couplings, poses in zip(seen.couplings, seen.poses, strict=True):
        mean = (couplings[..., None] * votes).sum(1)
        torch.testing.assert_close(zoo.squash(mean), poses, rtol=0, atol=1e-5)
    even = capsviz.trace(net, images, couplings="uniform")
    assert even.votes.equal(votes), "what comes before routes as it does"
    torch.testing.assert_close(even.poses[-1], zoo.squash(votes.mean(1)), rtol=0, atol=1e-5)


def test_what_torchscript_runs_is_refused_by_that(images):
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(120, 3), torch.nn.Softmax(1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is deprecated
        scripted = torch.jit.trace(net, images)
    with pytest.raises(NoCapsulesError, match="TorchScript runs"):
        wrapped(scripted)
