"""Self-routing against loops, and what it must be."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal, full

from capsviz.nn.routing import self_routing


def test_route_is_the_literal_loops():
    votes, options = drawn("self_routing")
    numbers = {key: value.tolist() for key, value in options.items()}
    active, children = numbers.pop("activations"), numbers.pop("children")
    expected = [
        literal.self_routing(by_pair(votes[b]), active[b], children[b], **numbers) for b in range(B)
    ]
    equal(self_routing.route(votes, **options), as_routing(expected))


def test_at_its_initial_parameters_it_is_uniform():
    votes, options = drawn("self_routing")
    options.update(self_routing.parameters(I, J, D, E))
    found = self_routing.route(votes, **{k: v.double() for k, v in options.items()})
    close(found.couplings, full(1 / J, 1, B, I, J))
    close(found.activations, full(1 / J, 1, B, J))


def test_activations_of_parents_sum_to_one():
    votes, options = drawn("self_routing")
    close(self_routing.route(votes, **options).activations.sum(2), torch.ones(1, B).double())


def test_the_size_of_the_activations_does_not_matter():
    votes, options = drawn("self_routing")
    smaller = {**options, "activations": options["activations"] / 1e4}
    equal(self_routing.route(votes, **smaller), self_routing.route(votes, **options))


def test_where_no_child_is_active_nothing_is_and_nothing_breaks():
    votes, options = drawn("self_routing")
    options["activations"] = torch.zeros(B, I).double().requires_grad_()
    found = self_routing.route(votes, **options)
    assert not found.poses.any() and not found.activations.any()
    found.poses.sum().backward()
    assert options["activations"].grad.isfinite().all()


def test_evidence_sums_to_the_activation():
    votes, options = drawn("self_routing")
    found = self_routing.route(votes, **options)
    active = options["activations"]
    evidence = self_routing.evidence(votes, found, active)
    close(evidence.sum(1), found.activations[-1])


@pytest.mark.parametrize("missing", ["activations", "children"])
def test_what_is_missing_is_named(missing):
    votes, options = drawn("self_routing")
    del options[missing]
    with pytest.raises(ValueError, match=f"self_routing routing needs the children's .*{missing}"):
        self_routing.route(votes, **options)


def test_weights_of_another_shape_are_refused():
    votes, options = drawn("self_routing")
    options["weight"] = draw(J, I, D)
    with pytest.raises(ValueError, match=r"weight must be \(I, J, D\) = \(3, 5, 4\), got"):
        self_routing.route(votes, **options)
