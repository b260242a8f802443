"""`--network FILE.py:FUNCTION --weights FILE`: what is opened, and how each mistake is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from helpers import public_layouts as zoo

import capsviz
from capsviz.checkpoint import untrained
from capsviz.discovery import root_of
from capsviz.wrapping import open_network

HERE = str(Path(__file__).parent)
SMALL = {"image_shape": zoo.SHAPE, "classes": zoo.CLASSES}
FILE = """
from helpers.public_layouts import *
import capsviz

def dynamic():
    return Unsqueezed()

def wrapped():
    return capsviz.wrap(Einsum(), SHAPE, CLASSES, grid=None)

class OnGpu(Unsqueezed):
    def forward(self, images):
        return super().forward(images * torch.cuda.FloatTensor(1).fill_(1.0))

def on_gpu():
    return capsviz.wrap(OnGpu(), SHAPE, CLASSES)

def heads():
    return TwoHeads()

def plain():
    return Plain()

def bare():
    return capsviz.wrap(Plain(), SHAPE, CLASSES, couplings=None)

def number():
    return 7

def raises():
    return 1 / 0

def needs(iterations, depth=3):
    return Unsqueezed()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    path = tmp_path / "networks.py"
    path.write_text(FILE)
    return path


def test_a_module_is_wrapped_and_gets_a_card(file):
    net = open_network(f"{file}:dynamic", **SMALL, dataset={"name": "noise"})
    assert capsviz.trace(net, torch.rand(2, *zoo.SHAPE)).grid == (2, 4, 3)
    assert net.card["name"] == "networks-dynamic"
    assert net.card["dataset"] == {"name": "noise"}
    assert net.card["network"]["commit"] is None
    assert net.card["network"]["repr"].startswith("Unsqueezed(")
    assert len(net.card["network"]["sha256"]) == 64
    json.dumps(net.card)


def test_weights_that_come_from_code_are_known_by_their_values(file):
    drawn = (
        "\ndef drawn():\n    net = Unsqueezed()\n    torch.nn.init.normal_(net.W)\n    return net\n"
    )
    file.write_text(FILE + drawn)
    known = [
        open_network(f"{file}:{name}", **SMALL).card["weights"]
        for name in ("dynamic", "dynamic", "drawn", "drawn", "wrapped")
    ]
    assert all(one["file"] is None for one in known)
    digests = [one["sha256"] for one in known]
    assert digests[0] == digests[1] and len(set(digests)) == 4


def test_other_names_of_classes_are_told_and_none_at_all_are_not(file):
    named = "card={'dataset': {'name': 'mine', 'classes': ['x', 'y', 'z']}}"
    file.write_text(
        f"{FILE}\ndef named():\n    return capsviz.wrap(Einsum(), SHAPE, CLASSES, {named})\n"
    )
    for classes, said in ((["a", "b", "c"], True), (["z", "y", "x"], False), (None, False)):
        dataset = None if classes is None else {"name": "noise", "classes": classes}
        card = open_network(f"{file}:named", dataset=dataset).card
        assert ("its classes are x, y, z" in str(card.get("notes"))) is said
        assert classes is None or card["dataset"]["classes"] == (classes if said else [*"xyz"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_a_network_that_asks_for_a_gpu_and_was_wrapped_in_its_file_runs_without_one(file):
    net = open_network(f"{file}:on_gpu")
    assert capsviz.trace(net, torch.rand(2, *zoo.SHAPE)).lengths.shape == (2, zoo.CLASSES)
    assert net.recipe.cuda and not open_network(f"{file}:wrapped").recipe.cuda


def test_the_commit_of_their_checkout_is_in_the_card(file):
    git = ["git", "-C", str(file.parent), "-c", "user.name=x", "-c", "user.email=x"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()
    assert open_network(f"{file}:dynamic", **SMALL).card["network"]["commit"] == head
    file.write_text(FILE + "\n")
    assert open_network(f"{file}:dynamic", **SMALL).card["network"]["commit"] == head + "+"


@pytest.mark.parametrize(
    ("name", "prefix"),
    [("dynamic", ""), ("compiled", "module."), ("parallel", "module._orig_mod."),
     ("inside", "_orig_mod.module.")],
)  # fmt: skip
def test_weights_fit_however_network_and_they_were_compiled_or_made_parallel(file, name, prefix):
    file.write_text(
        FILE + "\ndef compiled():\n    return torch.compile(Unsqueezed(), backend='eager')\n"
        "\ndef parallel():\n    return torch.nn.DataParallel(Unsqueezed())\n"
        "\ndef inside():\n    net = Unsqueezed()\n"
        "    net.digits = torch.compile(net.digits, backend='eager')\n    return net\n"
    )
    tensors = {key: value + 0.1 for key, value in zoo.Unsqueezed().state_dict().items()}
    torch.save({prefix + key: value for key, value in tensors.items()}, file.parent / "x.pt")
    opened = open_network(f"{file}:{name}", file.parent / "x.pt", **SMALL)
    assert opened.card["weights"]["file"] == "x.pt" and len(opened.card["weights"]["sha256"]) == 64
    own = getattr(opened.network, "module", opened.network).state_dict()
    for key, value in own.items():
        assert torch.equal(value, tensors[key.replace("_orig_mod.", "")]), key
    assert len(own) == len(tensors)


def test_a_network_without_capsules_is_taken_where_scores_are_enough(file):
    net = open_network(f"{file}:plain", **SMALL, capsules=False)
    assert not hasattr(net, "look")
    assert net(torch.rand(2, *zoo.SHAPE)).lengths.shape == (2, 3)
    assert not hasattr(open_network(f"{file}:bare", capsules=False), "look")


def test_the_folder_of_a_file_is_importable_as_long_as_its_network_is_used(file, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    (file.parent / "late_import.py").write_text("scale = 1\n")
    file.write_text(
        FILE + "\nclass Late(Unsqueezed):\n    def forward(self, x):\n"
        "        from late_import import scale\n        return super().forward(x * scale)\n"
    )
    net = open_network(f"{file}:Late", **SMALL)
    sys.modules.pop("late_import")
    assert net(torch.rand(2, *zoo.SHAPE)).lengths.shape == (2, 3)


def test_files_of_equal_names_beside_two_networks_are_each_ones_own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    monkeypatch.setattr(sys, "path", [*sys.path])
    nets = []
    for scale in (1, 3):
        (folder := tmp_path / str(scale)).mkdir()
        (folder / "my_parts.py").write_text(f"SCALE = {scale}\n")
        (folder / "net.py").write_text(
            "import my_parts\nfrom helpers.public_layouts import *\n\nclass Net(Unsqueezed):\n"
            "    def forward(self, x):\n        return super().forward(x * my_parts.SCALE)\n"
        )
        nets.append(open_network(f"{folder}/net.py:Net", **SMALL))
    sys.modules.pop("my_parts")
    images = torch.rand(2, *zoo.SHAPE)
    first, second, tripled = nets[0](images), nets[1](images), nets[0](3 * images)
    assert not torch.allclose(first.lengths, second.lengths)
    assert torch.equal(second.lengths, tripled.lengths)


def test_the_path_and_cuda_are_left_as_they_were(file, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path, str(file.parent)])
    before = list(sys.path), "cuda" in vars(torch.Tensor), torch.nn.Module.cuda
    open_network(f"{file}:dynamic", **SMALL)
    with pytest.raises(ValueError, match="ZeroDivisionError"):
        open_network(f"{file}:raises", **SMALL)
    assert (list(sys.path), "cuda" in vars(torch.Tensor), torch.nn.Module.cuda) == before


@pytest.mark.parametrize(
    ("spec", "options", "said"),
    [
        ("networks", SMALL, "expected FILE.py:FUNCTION, got"),
        ("elsewhere.py:dynamic", SMALL, "there is no file '.*elsewhere.py'"),
        ("networks.py:dynamik", SMALL, r"unknown function 'dynamik', .*did you mean 'dynamic'\?"),
        ("networks.py:raises", SMALL, r"raises\(\) raises ZeroDivisionError: division by zero"),
        ("networks.py:number", SMALL, r"number\(\) returns int, expected a torch module"),
        (
            "networks.py:needs",
            SMALL,
            "needs cannot be called with no arguments: missing .* 'iterations'",
        ),
        ("networks.py:dynamic", {}, "that is not wrapped: name a data set"),
        ("networks.py:plain", SMALL, "no capsules that capsviz can find.* sweep and corrupt work"),
        ("networks.py:bare", SMALL, "no capsules that capsviz can find.* sweep and corrupt work"),
        ("networks.py:heads", SMALL, "2 softmaxes have an equal claim: .*returns .*capsviz.wrap"),
    ],
)
def test_what_is_wrong_with_file_or_network_is_said_in_one_line(file, spec, options, said):
    with pytest.raises(ValueError, match=said) as error:
        open_network(f"{file.parent}/{spec}", **options)
    assert "\n" not in str(error.value)


def test_weights_that_do_not_fit_are_refused_with_their_keys(file):
    torch.save({"fc.weight": torch.ones(2)}, file.parent / "x.pt")
    said = r"another network than .*: 1 are of another size: fc.weight .*; 8 are missing: W \("
    with pytest.raises(ValueError, match=said) as error:
        open_network(f"{file}:dynamic", file.parent / "x.pt", **SMALL)
    assert "\n" not in str(error.value)


def test_a_network_that_looks_by_itself_is_taken_as_it_is(tmp_path, monkeypatch):
    """capsviz's own CapsNet, trained by a loop of one's own, and any with a `look`."""
    monkeypatch.syspath_prepend(HERE)
    path = tmp_path / "mine.py"
    path.write_text(
        "import capsviz\nfrom helpers.plain_capsnet import Foreign\n\n"
        "def build():\n    return capsviz.CapsNet((1, 28, 28), 10, types=2, channels=4)\n\n"
        "def other():\n    return Foreign()\n\n"
        "def lying():\n    net = Foreign()\n    own = net.look\n"
        "    net.look = lambda x, **o: {**own(x, **o), 'lengths': own(x, **o)['lengths'] / 2}\n"
        "    return net\n"
    )
    torch.manual_seed(5)
    model = capsviz.CapsNet((1, 28, 28), 10, types=2, channels=4).eval()
    torch.save(model.state_dict(), tmp_path / "mine.pt")
    about = {"name": "digits", "classes": list("0123456789")}
    size = {"image_shape": (1, 28, 28), "classes": 10, "dataset": about}
    opened = open_network(f"{path}:build", tmp_path / "mine.pt", **size)
    assert isinstance(opened, capsviz.CapsNet) and not opened.training
    assert opened.card["dataset"] == about and opened.card["weights"]["sha256"]
    assert opened.card["model"]["config"]["types"] == 2
    images = torch.rand(5, 1, 28, 28)
    assert torch.equal(capsviz.trace(opened, images).poses, capsviz.trace(model, images).poses)
    other = open_network(f"{path}:other", **size)
    assert other.card["name"] == "mine-other" and other.config["image_shape"] == (1, 28, 28)
    assert capsviz.trace(other, images).couplings.shape == (2, 5, 12, 10)
    with pytest.raises(ValueError, match=r"'mine-lying' is not .* trusted: lengths are not"):
        open_network(f"{path}:lying", **size)


def test_a_network_is_built_anew_by_its_function_without_its_weights(file):
    text = FILE.replace("return Unsqueezed()", "return drawn(Unsqueezed())", 1) + (
        "\ndef drawn(net):\n"
        "    torch.nn.init.normal_(net.W)\n"
        "    return net\n"
        "\ndef wrapped_anew():\n"
        "    return capsviz.wrap(drawn(Unsqueezed()), SHAPE, CLASSES, grid=None)\n"
    )
    file.write_text(text)
    torch.save({k: v + 1 for k, v in zoo.Unsqueezed().state_dict().items()}, file.parent / "x.pt")
    for name, grid in (("dynamic", (2, 4, 3)), ("wrapped_anew", None)):
        model = open_network(f"{file}:{name}", file.parent / "x.pt", **SMALL)
        before = torch.get_rng_state()
        first, again, other = (untrained.untrained_like(model, seed) for seed in (1, 1, 2))
        assert torch.equal(before, torch.get_rng_state())
        assert torch.equal(first.network.W, again.network.W)
        assert not torch.equal(first.network.W, other.network.W)
        assert not torch.equal(first.network.fc.bias, model.network.fc.bias)
        assert first.grid == grid and not first.training
        images = torch.rand(3, *zoo.SHAPE)
        assert capsviz.trace(first, images).poses.shape == (3, 3, 3, 6)


def test_a_function_that_gives_the_same_weights_each_time_gives_no_control(file):
    model = open_network(f"{file}:dynamic", **SMALL)  # its weights are seeded inside
    notes = []
    assert not list(untrained.controls(model, 0, notes=notes))
    assert "a wrapped Unsqueezed cannot be built anew: " in notes[0]
    assert "networks.py:dynamic gives the same weights each time" in notes[0]


def test_a_network_wrapped_in_python_says_what_would_build_it_anew():
    net = capsviz.wrap(zoo.Unsqueezed(), zoo.SHAPE, zoo.CLASSES)
    with pytest.raises(ValueError, match="a wrapped Unsqueezed cannot be built anew: expect"):
        untrained.untrained_like(net)


@pytest.mark.parametrize("line", ["from .layers import *", "from models.layers import *"])
def test_a_file_of_a_package_is_imported_from_above_it(tmp_path, monkeypatch, line):
    monkeypatch.syspath_prepend(HERE)
    package = tmp_path / "proj/models"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "layers.py").write_text("from helpers.public_layouts import *\n")
    (package / "net.py").write_text(f"{line}\ndef build():\n    return Unsqueezed()\n")
    net = open_network(f"{package / 'net.py'}:build", **SMALL)
    assert type(net.network).__name__ == "Unsqueezed"
    for name in [one for one in sys.modules if one.partition(".")[0] == "models"]:
        del sys.modules[name]


def test_a_parser_of_arguments_in_a_file_finds_none(file, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["capsviz", "evaluate", "--network", "x"])
    parser = "import argparse\nP = argparse.ArgumentParser().parse_args()\n"
    file.write_text(parser + FILE)
    open_network(f"{file}:dynamic", **SMALL)
    assert sys.argv[1] == "evaluate"


@pytest.mark.parametrize("folder", ["sib", "cap-1.0"])
def test_a_file_beside_an_init_imports_its_neighbours_too(tmp_path, monkeypatch, folder):
    monkeypatch.syspath_prepend(HERE)
    place = tmp_path / folder
    place.mkdir()
    (place / "__init__.py").touch()
    (place / "neighbours.py").write_text("from helpers.public_layouts import *\n")
    (place / "net.py").write_text(
        "from neighbours import *\n\ndef build():\n    return Unsqueezed()\n"
    )
    assert open_network(f"{place / 'net.py'}:build", **SMALL).grid == (2, 4, 3)
    sys.modules.pop("neighbours", None)


def test_the_root_of_a_relative_file_is_found(tmp_path, monkeypatch):
    package = tmp_path / "outer/inner"
    package.mkdir(parents=True)
    for place in (package, package.parent):
        (place / "__init__.py").touch()
    monkeypatch.chdir(package)
    assert root_of(Path("net.py")) == tmp_path
