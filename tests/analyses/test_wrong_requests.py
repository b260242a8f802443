"""Wrong requests to the commands of all analyses: one line, status 2, and nothing is written."""

import click
import pytest
from helpers.command_line import refused

from capsviz import discovery
from capsviz.cli import main

NAMES = discovery.names("capsviz.analyses")
COMMON = [("--n", "0"), ("--n", "9999"), ("--digit", "11"), ("--index", "999")]
OWN = {
    "attack": [
        ("--eps", "1.5"),
        ("--only", "apgd"),
        ("--only", "apgd-ce", "--queries", "9"),
    ],
    "affine": [("--within", "99"), ("--n", "1")],
    "corrupt": [("--only", "frog"), ("--n", "1"), ("--severity", "2")],
    "detect": [("--eps", "3"), ("--eps", "0.1", "--eps", "0.1"), ("--steps", "0"), ("--n", "1")],
    "equivariance": [("--fit", "5"), ("--law", "--warp", "zoom")],
    "faithfulness": [
        ("--target", "best"),
        ("--steps", "1"),
        ("--n", "1"),
        ("--n", "9", "--index", "1"),
        ("--n", "9", "--scene", "cluttered"),
    ],
    "parse_tree": [
        ("--other", "11"),
        ("--other", "2"),  # its first image is the picture itself
        ("--seeds", "2"),
        ("--run", "nowhere"),
        ("--run", "nowhere", "--digit", "1"),
    ],
    "parts": [("--n", "1")],
    "primary": [("--decoder", "none"), ("--n", "9", "--index", "1", "--levels", "3")],
    "probes": [
        ("--other-index", "999"),
        ("--other-index", "0"),  # the picture itself
        ("--n", "1"),
        ("--n", "50", "--other-index", "1"),
        ("--n", "50", "--fit", "3"),
        ("--fit", "50"),
    ],
    "routing": [("--n", "1")],
    "sweep": [("--warp", "rotatoin"), ("--n", "1"), ("--step", "-1"), ("--grid", "2")],
    "transplant": [
        ("--donor", "11"),
        ("--donor", "2"),  # with index 0 the picture itself
        ("--donor-index", "999"),
        ("--n", "1"),
        ("--of", "children"),
        ("--of", "children", "--digit", "1"),
        ("--of", "poses", "--by", "iterations"),
        ("--iterations", "2", "--n", "20", "--by", "capsules"),
        ("--layer", "4", "--n", "20"),
    ],
    "view": [("--change", "16", "0.2")],
}  # further wrong requests, by their messages, are in the tests of single analyses


def requests():
    """Each analysis with what every one refuses that has the option, and with its own."""
    for name in NAMES:
        command = main.get_command(click.Context(main), name.replace("_", "-"))
        known = {word for option in command.params for word in option.opts}
        common = () if isinstance(command, click.Group) else (w for w in COMMON if w[0] in known)
        yield from ((name, words) for words in (*common, *OWN.get(name, ())))


REQUESTS = list(requests())


@pytest.mark.parametrize(
    ("name", "words"), REQUESTS, ids=lambda x: x if x in NAMES else " ".join(x)
)
def test_a_wrong_request_is_refused_and_writes_nothing(name, words, analyse, tmp_path):
    refused(analyse(name, *words), usage=True)
    assert not list(tmp_path.iterdir())
