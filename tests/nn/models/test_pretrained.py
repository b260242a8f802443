"""Networks in folders as Hugging Face's hub has them."""

import pytest
import torch

import capsviz
from capsviz.experiments import export
from capsviz.nn import models


@pytest.fixture
def network():
    torch.manual_seed(0)
    return capsviz.CapsNet(types=2, channels=8, hidden=(8,), routing="em").eval()


def test_a_network_comes_back_to_the_bit(network, tmp_path, generator):
    network.save_pretrained(tmp_path / "mine")
    again = capsviz.CapsNet.from_pretrained(tmp_path / "mine")
    assert again.settings == network.settings and not again.training
    images = torch.rand(2, 1, 28, 28, generator=generator)
    assert torch.equal(again(images).lengths, network(images).lengths)


def test_the_folder_of_export_is_one(tmp_path):
    export.to_folder(capsviz.load("digits"), "digits", tmp_path / "digits")
    again = capsviz.CapsNet.from_pretrained(tmp_path / "digits").state_dict()
    assert all(torch.equal(v, again[k]) for k, v in capsviz.load("digits").state_dict().items())


WEIGHTS, RESNET = "model.safetensors", ("resnet", (1, 28, 28), 10)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "model.bin"),
            "no model.saf",
        ),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"x"), "holds no network of"),
        (
            lambda folder: models.build("resnet", (1, 28, 28), 10).save_pretrained(folder),
            "a ResNet",
        ),
    ],
)
def test_what_is_no_such_folder_is_refused_in_words(change, words, network, tmp_path):
    network.save_pretrained(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError, match=words):
        capsviz.CapsNet.from_pretrained(tmp_path)


def test_a_repository_that_cannot_be_had_is_said(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="somebody/nothing is no folder"):
        capsviz.CapsNet.from_pretrained("somebody/nothing", local_files_only=True)
