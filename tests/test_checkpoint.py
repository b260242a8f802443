"""Checkpoints: what is written is what is read; damage, mismatch and pickles are refused."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
from helpers import plain_capsnet
from helpers.fixtures import build_tiny

from capsviz import CapsNet, checkpoint, discovery, files, provenance
from capsviz.inputs.opening import open_inputs
from capsviz.nn import models
from capsviz.training.cards import save
from capsviz.training.train import start_from

CARD = {"name": "x", "dataset": {"name": "random", "classes": ["a", "b", "c"]}}

YOUNGER = {  # options that the first cards do not have, and what they were
    "leaky": False,
    "standardised": False,
    "decoder": "fully_connected",
    "decoder_norm": False,
    "reconstruction_metric": "l2",
    "margin_present": 0.9,
    "margin_absent": 0.1,
    "absent_weight": 0.5,
}


@pytest.fixture
def stored(tmp_path):
    return checkpoint.save(tmp_path / "x.safetensors", build_tiny(), CARD, dtype=None)


def test_half_precision_storage_is_loaded_as_float32(tmp_path, tiny_images):
    path = checkpoint.save(tmp_path / "x.safetensors", build_tiny(), CARD)
    model = checkpoint.load(path)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert model.card["weights"]["stored_as"] == "float16" and not model.training
    with torch.no_grad():
        assert torch.allclose(
            model(tiny_images).lengths, build_tiny()(tiny_images).lengths, atol=1e-2
        )


def test_loading_changes_no_random_state_and_follows_no_default_type(tmp_path):
    checkpoint.load("digits").save_pretrained(tmp_path)
    before = torch.random.get_rng_state()
    torch.set_default_dtype(torch.float64)
    try:
        model = checkpoint.load("digits")
    finally:
        torch.set_default_dtype(torch.float32)
    CapsNet.from_pretrained(tmp_path)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("kind", [torch.float64, torch.float16, torch.bfloat16])
def test_the_card_says_in_what_type_weights_are_stored(tmp_path, kind):
    path = checkpoint.save(tmp_path / "x.safetensors", build_tiny().to(kind), CARD, dtype=None)
    assert str(kind) == "torch." + checkpoint.read_card(path)["weights"]["stored_as"]
    assert {v.dtype for v in checkpoint.read_tensors(path)[0].values()} == {kind}


@pytest.mark.parametrize("name", checkpoint.shipped())
def test_shipped_weights_are_whole_and_say_where_they_come_from(name):
    path, model = checkpoint.find(name), checkpoint.load(name)
    card, config = model.card, model.config
    if card["model"]["name"] == "capsnet":
        expected = YOUNGER | card["model"]["config"]
        assert {key: config[key] for key in YOUNGER} == {key: expected[key] for key in YOUNGER}
    assert card["weights"]["sha256"] == checkpoint.sha256(path)
    assert card["provenance"]["commit"] and card["results"]["test"]["n"] >= 360
    assert path.stat().st_size <= {"mnist": 17e6, "multimnist": 6e6}.get(name, 3e6)


@pytest.mark.parametrize("keep", [0, 100, -1])
def test_damaged_weights_are_refused(stored, keep):
    stored.write_bytes(stored.read_bytes()[:keep])
    with pytest.raises(ValueError, match="not a whole safetensors"):
        checkpoint.load(stored)


def test_a_pickle_is_never_read(tmp_path):
    class Trap:
        def __reduce__(self):
            return os.system, ("touch " + str(tmp_path / "sprung"),)

    for name in ("x.pt", "x.safetensors"):
        torch.save({"a": Trap()}, tmp_path / name)
        (tmp_path / name).with_suffix(".json").write_text(json.dumps({"model": {}, "dataset": {}}))
        with pytest.raises(ValueError, match=r"is not a checkpoint|not a whole safetensors file"):
            checkpoint.load(tmp_path / name)
    assert not (tmp_path / "sprung").exists()


NESTED = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "not json", '{"model": {}, "dataset": "x"}', pytest.param(NESTED, id="")],
)
def test_a_card_that_is_no_card_is_refused(stored, text):
    stored.with_suffix(".json").write_text(text)
    with pytest.raises(ValueError, match=r"is not a card|does not fit"):
        checkpoint.load(stored)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda card: card.update(format=99), "is not a card"),
        (lambda card: card.update(results=[]), "is not a card"),
        (lambda card: card["model"]["config"].update(classes=5), "does not fit"),
        (lambda card: card["model"]["config"].pop("classes"), "config lacks 'classes'"),
        (
            lambda card: card["model"]["config"].update(routing="nowhere"),
            r"unknown routing 'nowhere'.* \(of a plug-in\? \$CAPSVIZ_PLUGINS is not set\)",
        ),
        (lambda card: card["weights"].update(sha256="0" * 64), "of other weights"),
    ],
)
def test_a_card_that_does_not_fit_is_refused(stored, change, match):
    path = stored.with_suffix(".json")
    card = json.loads(path.read_text())
    change(card)
    path.write_text(json.dumps(card))
    with pytest.raises(ValueError, match=match):
        checkpoint.load(stored)


def test_unknown_names_list_the_shipped_ones():
    with pytest.raises(ValueError, match=r"unknown checkpoint 'digist'.*did you mean 'digits'"):
        checkpoint.find("digist")
    with pytest.raises(ValueError, match="there is no file"):
        checkpoint.find("nowhere/x.safetensors")
    with pytest.raises(ValueError, match="there is no file or folder 'runs/nothing'"):
        checkpoint.find("runs/nothing")


def test_a_path_is_a_path_also_where_it_is_called_as_a_shipped_network(stored, monkeypatch):
    folder = stored.parent / "digits"
    folder.mkdir()
    for path in (stored, stored.with_suffix(".json")):
        shutil.copy(path, folder)
    monkeypatch.chdir(stored.parent)
    for name in (Path("digits"), "./digits"):
        assert checkpoint.find(name) == Path("digits") / stored.name
    assert checkpoint.find("digits").name == "digits.safetensors"
    said = "'digits' means the shipped weights: for the folder 'digits' write ./digits"
    assert open_inputs(checkpoint="digits", device="cpu").notice == said
    assert open_inputs(dataset="digits", device="cpu").notice is None  # names no weights
    lines = []
    start_from(checkpoint.load("digits"), "digits", lines.append)
    assert lines[0] == said and len(lines) == 2


def test_a_write_that_is_interrupted_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    path = tmp_path / "x"
    files.write_text(path, "old")
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        files.write_text(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_fresh_network_is_of_the_same_kind_with_other_weights():
    model, state = build_tiny(), torch.get_rng_state()
    fresh = checkpoint.untrained_like(model, 1)
    assert fresh.config == model.config and not fresh.training
    assert not torch.equal(fresh.capsules.weight, model.capsules.weight)
    again, other = checkpoint.untrained_like(model, 1), checkpoint.untrained_like(model, 2)
    assert torch.equal(fresh.capsules.weight, again.capsules.weight)
    assert not torch.equal(fresh.capsules.weight, other.capsules.weight)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_fresh_network_has_the_type_of_the_first_and_the_weights_of_a_preset():
    fresh = checkpoint.untrained_like(build_tiny().double(), preset="authors")
    assert {p.dtype for p in fresh.parameters()} == {torch.float64}
    assert torch.allclose(fresh.conv1.bias, torch.tensor(0.1).double())
    assert checkpoint.presets(fresh) == ("paper", "authors")


def test_a_fresh_network_normalises_by_the_images_that_it_is_to_see():
    model = models.build("capsnet", (1, 28, 28), 3, stem="slim").eval()
    images = torch.rand(128, *model.config["image_shape"])
    bare, fresh = (
        checkpoint.untrained_like(model, 1),
        checkpoint.untrained_like(model, 1, images=images),
    )
    features = []
    norm = next(one for one in fresh.modules() if isinstance(one, torch.nn.BatchNorm2d))
    norm.register_forward_hook(lambda _, __, output: features.append(output))
    with torch.no_grad():
        fresh(images)
    assert not fresh.training and norm.momentum == 0.1
    assert features[0].mean((0, 2, 3)).abs().max() < 0.02
    assert bare(images).lengths.std() != fresh(images).lengths.std()
    assert all(
        torch.equal(a, b) for a, b in zip(bare.parameters(), fresh.parameters(), strict=True)
    )
    one = dict(checkpoint.controls(model, 1, images, notes=[]))["untrained (paper)"]
    assert torch.equal(one(images[:3]).lengths, fresh(images[:3]).lengths)


def test_the_data_of_a_training_are_a_data_set(tmp_path):
    with pytest.raises(TypeError, match=r"expected the data set of the training.*got str"):
        save(build_tiny(), tmp_path / "run", "digits")


def test_what_cannot_be_built_anew_is_refused(monkeypatch):
    model = plain_capsnet.Foreign()
    refused = partial(pytest.raises, ValueError, match="a Foreign cannot be built anew")
    with refused():
        checkpoint.untrained_like(model)
    assert checkpoint.presets(model) == (None,)
    monkeypatch.setattr(plain_capsnet, "build", lambda: model, raising=False)
    with refused():  # a user's function, which takes no settings
        checkpoint.untrained_like(model)
    changed = build_tiny()
    changed.extra = torch.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="has weights of other names or shapes"):
        checkpoint.untrained_like(changed)


def test_a_device_that_is_not_here_is_refused_in_a_line():
    for device in ("gpu", "cuda:99"):
        with pytest.raises(ValueError, match=f"^device '{device}' is not available here: .+$"):
            checkpoint.load("digits", device=device)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a file of each kind, in place of our own."""
    monkeypatch.setattr(discovery, "root", lambda: tmp_path)
    for name in ("capsviz/a.py", "analyses/b.py", "benchmarks/c.py", "benchmarks/results/d.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1\n")
    someone = ("-c", "user.name=x", "-c", "user.email=x@y", "-c", "commit.gpgsign=false")
    for words in (("init", "-q"), ("add", "."), (*someone, "commit", "-qm", "x")):
        subprocess.check_call(["git", "-C", str(tmp_path), *words])
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "mark"),
    [
        ("capsviz/a.py", "+"),
        ("analyses/b.py", "+"),
        ("benchmarks/c.py", "+"),
        ("benchmarks/results/d.json", ""),
    ],
)
def test_a_commit_is_marked_where_its_code_was_changed(checkout, changed, mark):
    clean = provenance.commit()
    assert len(clean) == 40
    (checkout / changed).write_text("2\n")
    assert provenance.commit() == clean + mark
    (checkout / ".git").rename(checkout / "elsewhere")
    assert provenance.commit() is None
