"""Exported networks compute the same as the network for any batch size; folders can be loaded."""

import json
import math

import pytest
import torch
from helpers import public_layouts as zoo

import capsviz
from capsviz import CapsNet, Dataset
from capsviz.experiments import export
from capsviz.nn import models


@pytest.fixture
def images(generator):
    return torch.rand(3, 1, 28, 28, generator=generator)


def build(name="dynamic", **options):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        options = {"stem": "slim", "types": 2, "hidden": [8], "routing": name, **options}
        return models.build("capsnet", (1, 28, 28), 10, **options).eval()


class AnyBatch(zoo.Base):
    """A network whose code contains no batch size, as `torch.export` requires."""

    def forward(self, x):
        u = self.conv(x).unflatten(1, (zoo.TYPES, zoo.D)).movedim(2, -1).flatten(1, 3)
        votes = torch.einsum("ijed,bid->bije", self.W, zoo.squash(u))
        b = torch.zeros_like(votes[..., 0])
        for _ in range(2):
            v = zoo.squash(torch.einsum("bij,bije->bje", b.softmax(2), votes))
            b = b + torch.einsum("bije,bje->bij", votes, v)
        return v.norm(dim=2)


@pytest.mark.parametrize("name", ["self_routing", "wrapped"])
def test_a_program_is_the_network_for_other_batch_sizes(name, images, tmp_path):
    network, names = None, ("lengths", "couplings", "poses")
    if name == "wrapped":
        network, images = capsviz.wrap(AnyBatch(), zoo.SHAPE, 3), images[:, :, :12, :10]
    network = network or build(name)
    assert export.to_file(network, images, names, tmp_path / "a.pt2", onnx=False) <= 1e-5
    program = torch.export.load(tmp_path / "a.pt2").module()
    trace = capsviz.trace(network, images[:1], keep=names)
    for found, expected in zip(
        program(images[:1]), (trace.lengths, trace.couplings[-1], trace.poses[-1]), strict=True
    ):
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_an_onnx_file_is_the_network(images, tmp_path):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    network, names = build("self_attention"), list("abcdefghij")
    network.card = {"dataset": {"classes": names}}
    path = tmp_path / "a.onnx"
    assert export.to_file(network, images, ("lengths", "reconstruction"), path, onnx=True) <= 1e-5
    session = runtime.InferenceSession(path)
    assert [one.name for one in session.get_outputs()] == ["lengths", "reconstruction"]
    assert json.loads(session.get_modelmeta().custom_metadata_map["classes"]) == names
    values = session.run(None, {session.get_inputs()[0].name: images[:2].numpy()})
    expected = capsviz.trace(network, images[:2]).lengths
    torch.testing.assert_close(torch.from_numpy(values[0]), expected, atol=1e-5, rtol=0)


def test_a_failed_export_is_reported_and_leaves_no_file(images, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="no reconstruction: leave it out"):
        export.to_file(build(reconstruction_weight=0), images, ("reconstruction",),
                       tmp_path / "a.pt2", onnx=False)  # fmt: skip

    class Loud(torch.nn.Module):
        def look(self, images, keep):
            return {"lengths": images.mean((1, 2, 3))[:, None] * float(images.sum())}

    monkeypatch.setattr(
        export,
        "abilities",
        lambda model: type("A", (), {"gives": lambda *_: True, "decodes": False}),
    )
    with pytest.raises(ValueError, match="cannot be exported: "):
        export.to_file(Loud(), images, ("lengths",), tmp_path / "a.pt2", onnx=False)
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(export.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install onnx onnxscript"):
        export.to_file(Loud(), images, ("lengths",), tmp_path / "a.onnx", onnx=True)


def test_an_output_that_the_file_gives_as_nan_is_reported(images, tmp_path, monkeypatch):
    def halves(x):
        return x, x * (torch.nan if torch.compiler.is_exporting() else 1)

    step = export.Step(torch.nn.Identity(), halves, ("same", "nan"))
    assert math.isnan(export.write(step, (images,), tmp_path / "a.pt2", onnx=False))
    apart = iter([0.0, math.nan, 0.0, 0.0])
    monkeypatch.setattr(export, "write", lambda *given, **how: next(apart))
    assert math.isnan(export.to_steps(build(), images, tmp_path)[1])


def test_a_folder_is_opened_again(tmp_path, images):
    network = capsviz.load("digits")
    export.to_folder("digits", tmp_path / "hub")
    for again in (capsviz.load(tmp_path / "hub"), CapsNet.from_pretrained(tmp_path / "hub")):
        assert torch.equal(again(images).lengths, network(images).lengths)
    config = json.loads((tmp_path / "hub/config.json").read_text())
    assert config["config"]["types"] == 8
    assert "test set: 99.72 %" in (tmp_path / "hub/README.md").read_text()


TWICE = ["--part", "lengths", "--part", "lengths"]


@pytest.mark.parametrize("command", [["export", "--to", "torch", *TWICE], ["check"]])
def test_the_images_of_a_run_are_not_needed(command, tmp_path, bare):
    part = Dataset(torch.zeros(10, 28, 28).byte(), torch.arange(10), name="mine", kind="folder")
    capsviz.save(build(), "run", part)
    done = bare(*command, "--checkpoint", "run")
    assert done.exit_code == 0 and not done.stderr, done.output
    assert "on 16 random images" in done.stdout or command == ["check"]


def test_steps_take_couplings_in_place_of_the_networks_own(images, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    network = build()
    names, apart = export.to_steps(network, images, tmp_path / "steps")
    assert apart <= 1e-5 and names == ["votes", "routing", "given", "decoder"]

    def run(step, *inputs):
        session = runtime.InferenceSession(tmp_path / f"steps/{step}.onnx")
        names = [one.name for one in session.get_inputs()]
        return session.run(None, dict(zip(names, inputs, strict=True)))

    children, votes = run("votes", images[:1].numpy())
    couplings, lengths, _ = run("routing", votes, children)
    trace = capsviz.trace(network, images[:1])
    torch.testing.assert_close(torch.tensor(couplings), trace.couplings, atol=1e-5, rtol=1e-4)
    other = torch.rand_like(trace.couplings[-1])
    changed, poses = run("given", votes, children, other.numpy())
    expected = capsviz.trace(network, images[:1], couplings=other)
    torch.testing.assert_close(torch.tensor(changed), expected.lengths, atol=1e-5, rtol=1e-4)
    assert abs(changed - lengths[-1]).max() > 1e-3
    drawn = run("decoder", poses, changed.argmax(1))[0]
    torch.testing.assert_close(torch.tensor(drawn), expected.reconstruction, atol=1e-5, rtol=1e-4)
    plain = build(reconstruction_weight=0)
    monkeypatch.setattr(export, "write", lambda *given, **how: 0.0)
    assert "decoder" not in export.to_steps(plain, images, tmp_path / "plain")[0]
    assert not (tmp_path / "plain/decoder.onnx").exists()


def test_steps_are_refused_where_children_have_activations(images, tmp_path):
    with pytest.raises(ValueError, match="primary capsules have activations"):
        export.to_steps(build("em"), images, tmp_path / "steps")
    with pytest.raises(ValueError, match="primary capsules have activations"):
        export.to_steps(build("em", primary="layer_norm"), images, tmp_path / "steps")
    assert not list(tmp_path.iterdir())


WEIGHTS = "model.safetensors"


def test_a_network_comes_back_to_the_bit(images, tmp_path):
    network = build("em")
    network.save_pretrained(tmp_path / "mine")
    again = CapsNet.from_pretrained(tmp_path / "mine")
    assert again.settings == network.settings and not again.training
    assert torch.equal(again(images).lengths, network(images).lengths)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: (path / WEIGHTS).rename(path / "model.bin"), "no model.saf"),
        (lambda path: (path / WEIGHTS).write_bytes(b"x"), "holds no network of"),
        (lambda path: models.build("resnet", (1, 28, 28), 10).save_pretrained(path), "a ResNet"),
    ],
)
def test_other_folders_are_refused_with_a_reason(change, words, tmp_path):
    build().save_pretrained(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError, match=words):
        CapsNet.from_pretrained(tmp_path)


def test_a_repository_that_cannot_be_downloaded_is_reported(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="somebody/nothing is not a folder"):
        CapsNet.from_pretrained("somebody/nothing", local_files_only=True)
