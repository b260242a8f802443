"""No routing, against loops, and as the first iteration of dynamic routing."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal

from capsviz.nn.functional import squash
from capsviz.nn.routing import dynamic, uniform


def test_route_is_the_literal_loops():
    votes, _ = drawn("uniform")
    equal(uniform.route(votes), as_routing([literal.uniform(by_pair(v)) for v in votes]))


def test_it_is_the_first_iteration_of_dynamic_routing():
    votes, _ = drawn("uniform")
    equal(uniform.route(votes), dynamic.route(votes, iterations=1))


def test_with_one_matrix_for_all_children_only_their_sum_counts():
    children, weight = draw(B, I, D, seed=1), draw(J, E, D, seed=2)
    votes = torch.einsum("jed,bid->bije", weight, children)
    expected = squash(torch.einsum("jed,bd->bje", weight, children.sum(1)) / J)
    close(uniform.route(votes).poses[-1], expected)


def test_it_has_no_iterations_to_choose():
    with pytest.raises(TypeError, match="iterations"):
        uniform.route(draw(B, I, J, E), iterations=3)
