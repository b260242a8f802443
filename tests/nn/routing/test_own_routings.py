"""A routing of one's own that goes wrong: a line that names it, its file and the cause."""

import copy
import pickle

import pytest
import torch
from helpers.fixtures import build_tiny

import capsviz
from capsviz import discovery
from capsviz.nn import routing
from capsviz.tracing import parents_under
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
WRONG = {
    "arrays": (
        "Routing(*(part.detach().numpy() for part in whole))",
        "",
        "'{}' is not to be trusted: lengths are missing",
    ),
    "a parent less": (
        "whole._replace(couplings=whole.couplings[..., 1:])",
        "",
        r"couplings are \(1, 7, 12, 2\), expected \(1, 7, 12, 3\)",
    ),
    "children": (
        "whole",
        "CHILDREN = 'nonsense'",
        "of .*{}.py: unknown CHILDREN 'nonsense', expec",
    ),
    "fused": (
        "whole",
        "def fused(children, weight): return Parents(children, weight)",
        "`fused` and `route` differ by inf for the same images",
    ),
}


def write(plugin, name, result="whole", more=""):
    plugin(f"routing/{name}.py", GOOD.replace("return whole", f"return {result}") + more + "\n")


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_with_a_routing_is_told_in_a_line(plugin, tiny_images, case):
    name, (result, more, words) = "wrong_" + case.replace(" ", "_"), WRONG[case]
    write(plugin, name, result, more)
    with pytest.raises(ValueError, match=words.replace("{}", name)) as error:
        capsviz.trace(build_tiny(routing=name), tiny_images)
    assert "\n" not in str(error.value) and f"the routing '{name}'" in str(error.value)


ALIASED = """
import torch
from capsviz.nn.routing.dynamic import route as whole

def route(votes, *, iterations=3, couplings=None):
    made = whole(votes, iterations=iterations, couplings=couplings)
    return made._replace(logits=made.logits[-1:] + 0 * made.logits)
"""


def test_logits_that_are_written_over_are_told(plugin, tiny_images):
    plugin("routing/aliased.py", ALIASED)
    with pytest.raises(ValueError, match="logits of all it"):
        capsviz.trace(build_tiny(routing="aliased"), tiny_images)


def test_a_routing_that_writes_over_its_votes_is_traced_with_those_it_was_given(
    plugin, tiny_images
):
    write(plugin, "keeps")
    write(plugin, "writes", "(votes.mul_(2), whole)[1]")
    models = [build_tiny(routing=name) for name in ("keeps", "writes")]
    models[1].load_state_dict(models[0].state_dict())
    kept, written = (capsviz.trace(one, tiny_images) for one in models)
    assert torch.equal(kept.votes, written.votes) and torch.equal(kept.poses, written.poses)
    first, second = parents_under(models[1], tiny_images, [None, None]).poses
    assert torch.equal(first, second)


def test_a_routing_that_runs_another_number_of_iterations_is_refused(plugin, tiny_images):
    plugin(
        "routing/twice.py",
        "from capsviz.nn.routing import dynamic\n"
        "def route(votes, *, iterations=2, couplings=None):\n"
        "    return dynamic.route(votes, iterations=2, couplings=couplings)\n",
    )
    with pytest.raises(ValueError, match="'twice' ran 2 iterations, expected 5"):
        capsviz.trace(build_tiny(routing="twice"), tiny_images, iterations=5)


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
