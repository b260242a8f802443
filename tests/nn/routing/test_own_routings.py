"""A routing of one's own that goes wrong: a line that names it, its file and the cause."""

import copy
import pickle

import pytest
import torch
from helpers.fixtures import build_tiny

import capsviz
from capsviz import discovery
from capsviz.nn import models, routing
from tests.nn.routing import test_laws as laws

GOOD = """
import torch
from capsviz.nn.functional import squash
from capsviz.nn.routing import Parents, Routing, stack

def route(votes, *, couplings=None, shift=None):
    even = torch.full_like(votes[..., 0], 1 / votes.shape[2])
    even = even if couplings is None else couplings.expand_as(even)
    poses = squash(torch.einsum("bij,bije->bje", even, votes))
    whole = stack([(even * 0, even, poses)])
    return whole
"""
GIVES = "`route` of the routing '{}' of .*{}.py gives "
WRONG = {
    "arrays": (
        "Routing(*(part.detach().numpy() for part in whole))",
        "",
        GIVES + r"logits ndarray, expected \(1, 8, 12, 3\)",
    ),
    "a parent less": (
        "whole._replace(couplings=whole.couplings[..., 1:])",
        "",
        GIVES + r"couplings \(1, 8, 12, 2\), expected \(1, 8, 12, 3\)",
    ),
    "a list": (
        "whole",
        "def parameters(*sizes): return [torch.zeros(3)]",
        "`parameters` of the routing '{}' of .*{}.py gives a list, expected tensors by their names",
    ),
    "children": (
        "whole",
        "CHILDREN = 'nonsense'",
        "of .*{}.py: unknown CHILDREN 'nonsense', expec",
    ),
    "fused": (
        "whole",
        "def fused(children, weight): return Parents(children, weight)",
        r"`fused` of the routing '{}' of .*{}.py gives poses \(8, 12, 4\), expected \(8, 3, 6\)",
    ),
}


def write(plugin, name, result="whole", more=""):
    plugin(f"routing/{name}.py", GOOD.replace("return whole", f"return {result}") + more + "\n")


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_routing_is_told_in_a_line(plugin, tiny_images, case):
    name, (result, more, words) = "wrong_" + case.replace(" ", "_"), WRONG[case]
    write(plugin, name, result, more)
    with pytest.raises(ValueError, match=words.replace("{}", name)) as error:
        build_tiny(routing=name)(tiny_images)
    assert "\n" not in str(error.value) and f"the routing '{name}'" in str(error.value)


ITERATED = """
import torch
from capsviz.nn.routing.dynamic import route as whole

def route(votes, *, iterations=3, couplings=None):
    made = whole(votes, iterations=iterations, couplings=couplings)
    return RESULT
"""


@pytest.mark.parametrize(
    ("name", "result", "words"),
    [
        ("fewer", "whole(votes, iterations=2)", r"gives logits \(2, .*\), expected \(3, "),
        ("aliased", "made._replace(logits=made.logits[-1:] + 0 * made.logits)", "logits of all it"),
        ("voted", "made if votes.mul_(2) is votes else None", "writes over a tensor that it is"),
    ],
)
def test_iterations_that_are_not_those_asked_for_and_what_is_written_over_are_told(
    plugin, tiny_images, name, result, words
):
    plugin(f"routing/{name}.py", ITERATED.replace("RESULT", result))
    with pytest.raises(ValueError, match=words):
        capsviz.trace(build_tiny(routing=name), tiny_images)


def test_places_that_see_some_children_are_told_too(plugin):
    write(plugin, "wrong_at_places", "whole._replace(poses=whole.poses[..., 1:])")
    small = {"channels": 6, "types": (2, 3, 4), "routing": "wrong_at_places"}
    model = models.build("matrix_capsnet", (1, 21, 19), 3, **small)
    with pytest.raises(ValueError, match=r"'wrong_at_places' of .* gives poses \(1, .*, 15\)"):
        model(torch.rand(2, 1, 21, 19))


def test_the_skeleton_of_a_routing_keeps_the_laws_and_so_does_one_without_couplings(plugin):
    text = (discovery.root() / "capsviz/templates/routing.txt").read_text("utf-8")
    none = text.replace("(2 * logits).softmax(2)", "torch.zeros_like(logits)")
    assert none != text
    for name, code in (("skeleton", text), ("without", none)):
        plugin(f"routing/{name}.py", code.replace("NAME", name))
        laws.test_couplings_of_another_shape_are_refused_in_a_line(name)
        laws.test_it_computes_in_the_type_of_the_votes_under_autocast_too(name, torch.bfloat16)
        laws.test_a_pose_points_where_its_weighted_votes_do(name)


def test_a_routing_that_is_right_is_left_as_it_is(plugin, tiny_images):
    write(plugin, "right", more="def parameters(*sizes): return {'shift': torch.zeros(3)}")
    model = build_tiny(routing="right")
    again = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert torch.equal(again(tiny_images).lengths, model(tiny_images).lengths)
    assert torch.equal(
        again.look(tiny_images, keep=("poses",))["poses"][-1], model(tiny_images).poses
    )
    assert capsviz.trace(model, tiny_images, couplings="random").couplings.std() > 0.01
    assert not hasattr(routing.get("right"), "evidence") and routing.rounds("right", None) == 1
