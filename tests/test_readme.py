"""The README says what is true: its tables are made from the cards, its examples run."""

import re

import torch

from benchmarks import readme
from capsviz import discovery
from capsviz.routing import Routing

TEXT = (discovery.folder("") / "README.md").read_text(encoding="utf-8")


def test_generated_parts_are_up_to_date():
    assert readme.fill(TEXT, run=False) == TEXT, "run `make readme`"


def test_the_routing_of_the_readme_obeys_the_contract():
    block = next(b for b in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "def route" in b)
    module = {}
    exec(block, module)
    found = module["route"](torch.rand(2, 3, 5, 7), iterations=2)
    assert isinstance(found, Routing) and found.poses.shape == (2, 2, 5, 7)
    assert torch.allclose(found.couplings.sum(3), torch.ones(2, 2, 3))


def test_the_files_that_the_readme_names_exist():
    for name in re.findall(r"\]\(([^)#:]+)\)|`((?:capsviz|analyses|tests|trained)/\S+?)`", TEXT):
        path = next(filter(None, name))
        if "NAME" not in path and "*" not in path:
            assert (discovery.folder("") / path).exists(), path
