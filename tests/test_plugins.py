"""Plugins that are not what their kind asks for: refused in a line that names them."""

import pytest
from click.testing import CliRunner
from conftest import build_tiny

import capsviz
from capsviz.cli import main

DEAF = """
import torch
from capsviz.nn.functional import squash
from capsviz.nn.routing import stack

def route(votes, *, couplings=None):
    even = torch.full_like(votes[..., 0], 1 / votes.shape[2])
    return stack([(even * 0, even, squash(torch.einsum("bij,bije->bje", even, votes)))])
"""


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
        ("", "has no function route"),
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
        ("", r"has no function load\(split, root\)"),
        (
            "def load(split, root): return 1 / 0",
            "cannot be loaded .ZeroDivisionError: division by z",
        ),
        ("def load(split, root): return [1]", "is a list, expected a capsviz.data.Dataset"),
        ("def load(split, root): return made([0, 1])", "labels must be a tensor of whole numbers"),
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


def test_an_analysis_whose_command_gives_nothing_is_refused_in_a_line(plugin):
    path = plugin(
        "analyses/silent.py",
        '"""Nothing."""\nfrom capsviz.cli.analysis import analysis\n\n'
        "@analysis(__doc__)\ndef command(run):\n    return None\n",
    )
    result = CliRunner().invoke(main, ["silent", "--checkpoint", "digits"])
    assert result.exit_code == 2 and f"`command` of {path} gives nothing" in result.stderr
