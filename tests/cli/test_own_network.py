"""User-defined networks at the command line: errors are one line, with exit status 2."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import capsviz
from capsviz import data
from capsviz.data import Dataset
from capsviz.nn import models

FILE = """
import capsviz
import torch
from helpers.wrappable_capsnet import Gray
from torch import nn


def build():
    torch.manual_seed(0)
    return Gray()


def over_children():
    network = Gray()
    network.over = 1
    return network


def wrapped_five():
    return capsviz.wrap(Gray(classes=5), (1, 28, 28), 5)


def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(1))
"""


@pytest.fixture
def run(bare):
    """Run commands in a folder with `networks.py` and a picture."""
    Path("networks.py").write_text(FILE)
    torch.save({"fc.weight": torch.ones(2)}, "other.pt")
    Image.fromarray(data.load("digits", "test").images[3, 0].numpy()).save("seven.png")
    return bare


OWN = "--dataset digits --network networks.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"routing {OWN}:wrapped_five", r"of 5 classes, but digits has \(1, 28, 28\) of 10"),
        (f"routing {OWN}:build --weights other.pt", "missing: .* not the network"),
        ("predict seven.png --weights other.pt", "--network FILE.py:FUNCTION"),
        (f"predict seven.png --checkpoint digits {OWN}:build", "exclude each other"),
        ("predict seven.png --checkpoint digits --dataset digits", "--dataset: only for a network"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(run, words, message):
    done = run(*words.split())
    assert done.exit_code == 2, (done.output, done.exception)
    assert len(done.stderr.strip().splitlines()) == 1
    assert re.search(message, done.stderr), done.stderr


@pytest.mark.parametrize("command", ["evaluate", "sweep --n 10", "predict seven.png"])
def test_a_network_without_capsules_can_be_evaluated(blank, run, command):
    done = run(*command.split(), "--network", "networks.py:plain", "--dataset", "digits")
    assert done.exit_code == 0, done.output


def test_the_card_sets_the_order_of_classes_and_without_it_different_orders_are_reported(run):
    names = sorted(map(str, range(1, 13)))  # as torchvision's ImageFolder has them
    for name in names:
        for split in data.SPLITS:
            Path("pictures", split, name).mkdir(parents=True)
            Image.new("L", (28, 28), 20 * int(name)).save(f"pictures/{split}/{name}/0.png")
    Path("folder.py").write_text(f"""
import capsviz, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Parameter(torch.ones(1))

    def forward(self, x):
        grey = (x.mean((1, 2, 3)) * 255 / 20).round().long()
        place = torch.tensor([{names}.index(str(int(k))) for k in grey.clamp(1, 12)])
        return nn.functional.one_hot(place, 12) * 0.9 * self.one + 0.05

def silent(**options):
    return capsviz.wrap(Net(), (1, 28, 28), 12, couplings=None, **options)

def telling():
    return silent(card={{"dataset": {{"name": "folder", "classes": {names}}}}})
""")
    command = "evaluate --dataset folder --data-dir pictures --json --network folder.py"
    result = run(*f"{command}:telling".split())
    assert json.loads(result.stdout)["accuracy"] == 1.0
    result = run(*f"{command}:silent".split())
    assert json.loads(result.stdout)["accuracy"] == 1 / 12
    assert "... 2, 3, 4, 5, ... where torchvision's ImageFolder has ... 10, 11," in result.stderr


def test_images_that_training_uses_are_left_out_and_counted(run):
    for path in (Path("pictures", str(k // 5), f"{k}.png") for k in range(50)):
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (28, 28), int(path.stem)).save(path)
    command = ["evaluate", "--network", "networks.py:plain", "--dataset", "folder", "--data-dir"]
    result = run(*command, "pictures")
    assert "40 of 50 images are left out, because training on pictures uses them" in result.stderr
    Path("all").mkdir()
    Path("pictures").rename("all/test")
    result = run(*command, "all")
    assert "on 50 images of all test" in result.stdout and "left out" not in result.stderr


def test_options_of_the_data_apply_to_a_user_defined_network(run):
    draw = np.random.default_rng(0)
    pictures = {"one": draw.integers(0, 255, (60, 28, 28)), "other": np.zeros((60, 28, 28), int)}
    np.savez("x.npz", **pictures, y=np.arange(60) % 10)
    command = ["evaluate", "--network", "networks.py:plain", "--dataset", "npz"]
    command += ["--data-dir", "x.npz"]
    refused = run(*command)
    assert refused.exit_code == 2 and "choose by --data-option images=NAME" in refused.stderr
    done = run(*command, "--data-option", "images=one", "--data-option", "range=510")
    assert done.exit_code == 0 and "on 10 images of arrays test" in done.stdout
    drawn = run("rotate", "--checkpoint", "digits", "--data-option", "block=0", "--step", 90)
    assert drawn.exit_code == 0 and "-step-90-data-option-block-0.json" in drawn.stderr
    for words in (["evaluate"], ["check", "--network", "networks.py:build"]):
        alone = run(*words, "--data-option", "block=0")
        assert alone.exit_code == 2 and "name it by --dataset" in alone.stderr


def test_a_test_folder_may_lack_a_class(run):
    part = Dataset(
        torch.zeros(9, 28, 28).byte(), torch.arange(9) % 3, ("a", "b", "c"), kind="folder"
    )
    capsviz.save(models.build("cnn", (1, 28, 28), 3), "net", part)
    for name in "cb":
        Path("there/test", name).mkdir(parents=True)
        Image.new("L", (28, 28)).save(f"there/test/{name}/0.png")
    done = run("evaluate", "--checkpoint", "net", "--data-dir", "there", "--json")
    assert [sum(row) for row in json.loads(done.stdout)["confusion"]] == [0, 1, 1], done.stderr


def test_predict_takes_a_user_defined_network(run):
    own = ("--network", "networks.py:build", "--dataset", "digits")
    done = run("predict", "seven.png", *own, "--json", "--save-figure", "steps.png")
    assert done.exit_code == 0, done.output
    (record,) = json.loads(done.stdout)
    assert len(record["classes"]) == 3 and record["reconstruction_sse"] is None
    assert record["unlike_training_data"] is None
    assert "the training data of a custom network are not known" in done.stderr
    about = json.loads(Path("steps.json").read_text())
    assert about["result"]["network"] == "networks-build"


def test_notes_on_a_network_are_warnings_and_stored_and_couplings_are_not_called_uniform(
    blank, run
):
    done = run(*f"routing {OWN}:over_children --format png".split())
    assert done.exit_code == 0, done.output
    note = "couplings of a child sum to 0.998 to 1.25 over parents, expected 1"
    assert f"WARN the network 'networks-over_children': {note}" in done.stderr
    assert "sum to 1.11 over parents on average, not to 1, and all" in done.stdout
    assert "close to uniform" not in done.stdout and "WARN" not in done.stdout
    (path,) = Path("runs/figures").glob("*.json")
    assert note in json.loads(path.read_text())["provenance"]["notes"][0]
