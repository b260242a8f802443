"""Plugins that are not what their kind asks for: refused in a line that names them."""

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from helpers.fixtures import build_tiny

import capsviz
from capsviz import analysis, checks, data, discovery, results
from capsviz.cli.analysis import command_of
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import needs
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


def test_a_routing_of_ones_own_is_verified_before_it_is_trained_or_traced(
    plugin, tiny_images, tmp_path
):
    plugin("routing/deaf.py", DEAF)
    part = data.load("digits", "train")
    recipe = Recipe("digits", options={"routing": "deaf", "types": 2, "channels": 8}, epochs=1)
    for use in (
        partial(fit, recipe, part, part, tmp_path / "run"),
        partial(capsviz.trace, build_tiny(routing="deaf"), tiny_images),
    ):
        with pytest.raises(ValueError, match="'deaf' is not to be trusted: replacement couplings"):
            use()
    assert not (tmp_path / "run").exists()


def test_a_routing_that_says_that_it_takes_no_couplings_is_given_none(plugin, tiny_images):
    plugin("routing/still.py", DEAF + 'PECULIAR = {"couplings": "they are all equal"}\n')
    model = build_tiny(routing="still")
    assert capsviz.trace(model, tiny_images).couplings.std() < 1e-6
    assert needs.missing(model, ("couplings", "interventions")) == ["interventions"]
    with pytest.raises(ValueError, match="couplings cannot be replaced: they are all equal"):
        capsviz.trace(model, tiny_images, couplings="random")
    plugin("routing/misspelt.py", DEAF + 'PECULIAR = {"coupling": "they are all equal"}\n')
    with pytest.raises(ValueError, match=r"unknown check 'coupling'.*did you mean 'couplings'"):
        capsviz.trace(build_tiny(routing="misspelt"), tiny_images)


def test_a_need_that_no_network_could_have_is_refused(tiny_images):
    with pytest.raises(ValueError, match=r"unknown need .* 'copulings'.*did you mean 'couplings'"):
        needs.missing(build_tiny(), ("copulings",))


NOISY = """
import torch
from torch import nn

class Noise(nn.Module):
    def forward(self, images):
        return images + 0.1 * torch.rand_like(images)

def layers(inputs, image_shape, *, norm=False):
    last = nn.Sigmoid(), nn.Unflatten(1, image_shape)
    return nn.Sequential(nn.Linear(inputs, 21 * 19), Noise(), *last)
"""


def test_a_decoder_of_ones_own_that_is_random_is_refused(plugin, tiny_images):
    plugin("decoders/noisy.py", NOISY)
    with pytest.raises(ValueError, match=r"decode gives other images, by 0.0\d+, for three of"):
        capsviz.trace(build_tiny(decoder="noisy"), tiny_images)


MADE = """import torch
from capsviz.data import Dataset

def made(labels):
    images = torch.zeros(2, 1, 9, 9, dtype=torch.uint8)
    return Dataset(images, labels, ("a", "b"), "lacking", "test")

"""
SILENT = "from capsviz.analysis import Analysis\n\nclass Silent(Analysis): "
MEASURED = """from typing import NamedTuple
from capsviz.analysis import Analysis

class Loud(Analysis):
    class Result(NamedTuple):
        n: int
    def measure(self, images): return 1
"""
LINEAR = """from torch import nn

def layers(inputs, image_shape, *, norm=False):
    return nn.Sequential(nn.Linear(inputs, 3))
"""


def traced(**options):
    capsviz.trace(build_tiny(**options), torch.rand(2, 1, 21, 19))


def loaded():
    capsviz.data.load("lacking", "test")


def corrupted():
    corruptions.apply("lacking", torch.rand(2, 1, 28, 28), torch.Generator())


def analysed():
    analysis.of("lacking")


ROUTED, DECODED = partial(traced, routing="lacking"), partial(traced, decoder="lacking")
LACKING = [  # kind, what is in its file, what uses it, and what is said
    ("routing", "def route(votes): pass", ROUTED, "has no function route"),
    ("data", "def load(split, root, *, size): return 1", loaded,
     "data set 'lacking' needs a value for size"),
    ("data", "def load(split, root): return [1]", loaded,
     "is a list, expected a capsviz.data.Dataset"),
    ("data", MADE + "def load(split, root): return made(torch.tensor([0, 2]))", loaded,
     "must be 0 to 1, got 0 to 2"),
    ("analyses", SILENT + "pass", analysed, "`Result` of Silent in .* is not a NamedTuple"),
    ("analyses", SILENT + "Result = dict", analysed,
     "`Result` of Silent in .* is not a NamedTuple"),
    ("analyses", MEASURED.replace("measure", "mesure"), partial(command_of, "lacking"),
     "Loud of 'lacking' has no `measure`"),
    ("analyses", MEASURED + "    def caption(self, result): pass", analysed,
     r"Loud: write `caption_of\(result, panels\)`"),
    ("analyses", MEASURED + "    panels = {'a': print}", analysed,
     r"panel 'a' of Loud is not a Panel: write Panel\(draw\)"),
    ("decoders", "def layers(inputs, image_shape): pass", DECODED,
     "'lacking' has no function layers"),
    ("decoders", "def layers(inputs, image_shape, *, norm=False): pass", DECODED,
     "gives a NoneType, expected an nn"),
    ("decoders", LINEAR, DECODED, r"the decoder gives \(.*3\), expected images"),
    ("corruptions", "", corrupted, "'lacking' has no function corrupt"),
    ("corruptions", "def corrupt(images, generator): return images[..., 1:]", corrupted,
     r"gives .*27\)"),
    ("corruptions", "def corrupt(images, generator): pass", corrupted,
     "gives a NoneType, expected a tensor"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text", "use", "words"), LACKING, ids=range(len(LACKING)))
def test_what_lacks_what_its_kind_needs_is_refused_in_a_line(plugin, kind, text, use, words):
    plugin(f"{kind}/lacking.py", text)
    with pytest.raises(ValueError, match=words) as error:
        use()
    assert "\n" not in str(error.value)


def test_a_data_set_is_called_by_the_name_of_its_file(plugin):
    plugin(
        "data/mine.py",
        "from dataclasses import replace\nfrom capsviz.data import digits\n\n"
        "def load(split, root):\n    return replace(digits.load(split, root), name='My digits')\n",
    )
    assert capsviz.data.load("mine", "test").name == "mine"


def test_a_corruption_that_writes_over_its_images_leaves_the_callers(plugin):
    plugin("corruptions/black.py", "def corrupt(images, generator): return images.mul_(0)")
    images = torch.rand(2, 1, 28, 28)
    before = images.clone()
    assert corruptions.apply("black", images, torch.Generator()).max() == 0
    assert torch.equal(images, before)


def test_a_corruption_that_draws_without_the_generator_gives_the_same_again(plugin, monkeypatch):
    monkeypatch.setattr(corruptions, "CHUNK", 1)
    plugin(
        "corruptions/rain.py",
        "import torch\ndef corrupt(images, generator): return torch.rand_like(images)",
    )
    black = torch.zeros(2, 1, 28, 28)
    one, again, other = (
        corruptions.apply("rain", black, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2)
    )
    assert torch.equal(one, again) and not torch.equal(one, other)
    assert not torch.equal(one[0], one[1])  # of two chunks


SKELETON = (discovery.root() / "capsviz/templates/analysis.txt").read_text(encoding="utf-8")
TWO = Estimate(np.array([0.4, 0.5]), np.array([[0.3, 0.5], [0.4, 0.6]]), 60)


def saved(plugin, folder, old="", new="", length=TWO):
    plugin("analyses/own.py", SKELETON.replace(old, new))
    result = analysis.of("own")[0].Result(length, ["a", "b"], 60, "digits")
    results.save(folder / "x", "own", result, formats=["svg"])
    return results.caption("own", result)


SAYS = '"""Draw the mean length of the capsule of the true class."""'
SLIPS = [  # in a skeleton, and what is said of them
    ('axes = {"length"', 'axes = {"lenght"', "`axes` of Lengths: unknown field 'lenght'"),
    ('("shown",)}', '(("a",),)}', "`axes` has 1 names for 2 values of 'length'"),
    ('("shown",)}', '"shown"}', "`axes` names 5 axes of 'length', which has 1"),
    (SAYS, "", "has no docstring 'Draw ...', and its panel no `caption`"),
    ('marks="bars"', 'caption="of {m}"', "the caption 'of {m}' names 'm', which is not a field"),
]


@pytest.mark.parametrize(("old", "new", "words"), SLIPS)
def test_a_slip_is_told_before_anything_is_drawn(plugin, tmp_path, old, new, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        saved(plugin, tmp_path / "out", old, new)
    assert not (tmp_path / "out").exists()


def test_a_caption_says_that_intervals_are_over_runs(plugin, tmp_path):
    assert "Bars: 95 % intervals over 60 images of digits." in saved(plugin, tmp_path)
    length = replace(TWO, runs=np.stack([TWO.value] * 3))
    assert "over 3 training runs and 60 images" in saved(plugin, tmp_path, length=length)


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
    with pytest.raises(ValueError, match="circle depend on each other in a cycle"):
        checks.run(network, only="circle")
    plugin("pitfalls/late.py", CHECK.format(after="'nowhere',", body="return passes('')"))
    with pytest.raises(ValueError, match=r"unknown check 'nowhere'.* \(after= in .*late.py\)"):
        checks.run(network, only="late")
    plugin("pitfalls/silent.py", CHECK.format(after="", body="pass"))
    verdict = checks.run(network, only="silent").verdict("silent")
    assert verdict.status == "SKIPPED" and "returns nothing, expected passes" in verdict.message
