"""Plugins that are not what their kind asks for: refused in a line that names them."""

import pytest
import torch
from conftest import build_tiny
from helpers.command_line import run

import capsviz
from capsviz import checks, data
from capsviz.training.recipe import Recipe
from capsviz.training.train import fit
from capsviz.transforms import corruptions

DEAF = """
import torch
from capsviz.nn.functional import squash
from capsviz.nn.routing import stack

def route(votes, *, couplings=None):
    even = torch.full_like(votes[..., 0], 1 / votes.shape[2])
    return stack([(even * 0, even, squash(torch.einsum("bij,bije->bje", even, votes)))])
"""


def test_a_routing_of_ones_own_is_verified_before_it_is_trained(plugin, tmp_path):
    plugin("routing/deaf.py", DEAF)
    part = data.load("digits", "train")
    recipe = Recipe("digits", options={"routing": "deaf", "types": 2, "channels": 8}, epochs=1)
    with pytest.raises(ValueError, match="the routing 'deaf' is not to be trusted: couplings that"):
        fit(recipe, part, part, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_routing_of_ones_own_is_verified_before_it_is_traced(plugin, tiny_images):
    plugin("routing/deaf.py", DEAF)
    with pytest.raises(ValueError, match="the routing 'deaf' is not to be trusted: couplings that"):
        capsviz.trace(build_tiny(routing="deaf"), tiny_images)
    hears = DEAF.replace(
        "    return",
        "    even = even if couplings is None else couplings.expand_as(even)\n    return",
    )
    plugin("routing/hears.py", hears)
    traced = capsviz.trace(build_tiny(routing="hears"), tiny_images, couplings="random")
    assert traced.couplings.std() > 0.01


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def route(votes): pass", "has no function route"),
        (
            "def route(votes, couplings=None): return votes",
            "gives a Tensor, expected a capsviz.nn.r",
        ),
    ],
)
def test_a_routing_without_what_a_routing_has_is_refused_in_a_line(
    plugin, tiny_images, text, words
):
    name = f"lacking_{len(text)}"
    plugin(f"routing/{name}.py", text)
    with pytest.raises(ValueError, match=rf"routing '{name}' .*{words}") as error:
        capsviz.trace(build_tiny(routing=name), tiny_images)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def load(split, root): return 1 / 0",
            "cannot be loaded .ZeroDivisionError: division by z",
        ),
        ("def load(split, root, *, size): return 1", "data set 'lacking' needs a value for size"),
        ("def load(split, root): return [1]", "is a list, expected a capsviz.data.Dataset"),
        ("def load(split, root): return made(torch.tensor([0, 2]))", "must be 0 to 1, got 0 to 2"),
    ],
)
def test_a_data_set_without_what_it_needs_is_refused_in_a_line(plugin, text, words):
    plugin(
        "data/lacking.py",
        "import torch\nfrom capsviz.data import Dataset\n\ndef made(labels):\n"
        "    images = torch.zeros(2, 1, 9, 9, dtype=torch.uint8)\n"
        f"    return Dataset(images, labels, ('a', 'b'), 'lacking', 'test')\n\n{text}\n",
    )
    with pytest.raises(ValueError, match=words) as error:
        capsviz.data.load("lacking", "test")
    assert "\n" not in str(error.value)


def test_a_data_set_is_called_by_the_name_of_its_file(plugin):
    plugin(
        "data/mine.py",
        "from dataclasses import replace\nfrom capsviz.data import digits\n\n"
        "def load(split, root):\n    return replace(digits.load(split, root), name='My digits')\n",
    )
    assert capsviz.data.load("mine", "test").name == "mine"


@pytest.mark.parametrize("body", ["pass", "Result = dict"])
def test_an_analysis_without_a_class_of_results_is_refused_in_a_line(plugin, body):
    path = plugin(
        "analyses/silent.py",
        '"""Nothing."""\nfrom capsviz.analysis import Analysis\n\n'
        f"class Silent(Analysis): {body}\n",
    )
    result = run("silent", "--checkpoint", "digits")
    assert result.exit_code == 2
    assert f"`Result` of Silent in {path} is no NamedTuple" in result.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def layers(inputs, image_shape): pass", "'lacking' has no function layers"),
        (
            "def layers(inputs, image_shape, *, norm=False): pass",
            "gives a NoneType, expected an nn",
        ),
        (
            "from torch import nn\n\ndef layers(inputs, image_shape, *, norm=False):\n"
            "    return nn.Sequential(nn.Linear(inputs, 3))",
            r"the decoder gives \(.*3\), expected images",
        ),
    ],
)
def test_a_decoder_that_draws_no_images_is_refused_in_a_line(plugin, tiny_images, text, words):
    plugin("decoders/lacking.py", text)
    with pytest.raises(ValueError, match=words) as error:
        capsviz.trace(build_tiny(decoder="lacking"), tiny_images)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'lacking' has no function corrupt"),
        ("def corrupt(images, generator): return images[..., 1:]", r"gives .*27\)"),
        ("def corrupt(images, generator): pass", "gives a NoneType, expected a tensor"),
    ],
)
def test_a_corruption_that_gives_other_images_is_refused_in_a_line(plugin, text, words):
    plugin("corruptions/lacking.py", text)
    with pytest.raises(ValueError, match=words):
        corruptions.apply("lacking", torch.rand(2, 1, 28, 28), torch.Generator())


def test_a_corruption_that_writes_over_its_images_leaves_the_callers(plugin):
    plugin("corruptions/black.py", "def corrupt(images, generator): return images.mul_(0)")
    images = torch.rand(2, 1, 28, 28)
    before = images.clone()
    assert corruptions.apply("black", images, torch.Generator()).max() == 0
    assert torch.equal(images, before)


CHECK = """
from capsviz.checks.verdict import About, passes

ABOUT = About(paper="", breaks="", fix="", after=({after}))


def examine(candidate):
    {body}
"""


def test_a_check_that_is_none_is_refused_or_judges_nothing(plugin):
    network = build_tiny()
    plugin("pitfalls/empty.py", "")
    with pytest.raises(ValueError, match="the check 'empty' lacks ABOUT or examine"):
        checks.run(network, only="empty")
    plugin("pitfalls/circle.py", CHECK.format(after="'circle',", body="return passes('')"))
    with pytest.raises(ValueError, match="circle come after each other in a circle"):
        checks.run(network, only="circle")
    plugin("pitfalls/late.py", CHECK.format(after="'nowhere',", body="return passes('')"))
    with pytest.raises(ValueError, match=r"unknown check 'nowhere'.* \(after= in .*late.py\)"):
        checks.run(network, only="late")
    plugin("pitfalls/silent.py", CHECK.format(after="", body="pass"))
    verdict = checks.run(network, only="silent").verdict("silent")
    assert verdict.status == "SKIPPED" and "returns nothing, expected passes" in verdict.message
