"""What every routing takes, leaves as it was, and refuses."""

import pytest
import torch
from helpers.random_tensors import E, I, J, draw
from helpers.routing_cases import ACTIVE, ITERATIVE, NAMES, close, drawn, drawn_capsules, run

from capsviz.nn import routing
from capsviz.nn.links import Links

every_routing = pytest.mark.parametrize("name", NAMES)
every_iterative = pytest.mark.parametrize("name", ITERATIVE)
every_active = pytest.mark.parametrize("name", ACTIVE)


@every_routing
def test_non_contiguous_votes_give_the_same(name):
    votes, options = drawn(name)
    scattered = votes.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    assert not scattered.is_contiguous()
    for a, b in zip(run(name, scattered, options), run(name, votes, options), strict=True):
        close(a, b)


@every_routing
def test_autocast_does_not_reach_into_it(name):
    votes, options = drawn(name, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        inside = run(name, votes, options)
    for a, b in zip(inside, run(name, votes, options), strict=True):
        assert a.dtype == torch.float32
        close(a, b, 1e-5)


@every_routing
def test_what_is_given_is_left_as_it_was(name):
    votes, options = drawn(name)
    run(name, votes, options)
    again, others = drawn(name)
    assert torch.equal(votes, again)
    assert all(torch.equal(options[key], others[key]) for key in options)


@every_routing
def test_votes_of_another_shape_are_refused(name):
    _, options = drawn(name)
    with pytest.raises(ValueError, match=r"\(B, I, J, E\).*\(3, 5, 7\)"):
        run(name, draw(I, J, E), options)


@every_iterative
@pytest.mark.parametrize("iterations", [0, -1])
def test_fewer_than_one_iteration_is_refused(name, iterations):
    with pytest.raises(ValueError, match=f"at least 1, got {iterations}"):
        run(name, *drawn(name), iterations)


@every_active
def test_missing_activations_are_refused_in_a_line(name):
    votes, options = drawn(name)
    del options["activations"]
    with pytest.raises(ValueError, match=r"needs the children's activations \(B, I\): got none$"):
        run(name, votes, options)


@every_routing
def test_couplings_of_another_shape_are_refused_in_a_line(name):
    votes, options = drawn(name)
    for wrong in (torch.zeros(I + 1, J), torch.zeros(I, J + 1), torch.zeros(7, 1, I, J)):
        with pytest.raises(ValueError, match=r"couplings must be .*, or a shape that broadcasts"):
            run(name, votes, {**options, "couplings": wrong})


@pytest.mark.parametrize(
    ("name", "option"), [("em", "beta_u"), ("variational", "beta_a"), ("dynamic", "bias")]
)
def test_parameters_of_another_shape_are_refused_in_a_line(name, option):
    capsules, weight, options = drawn_capsules(name)
    wrong = {**options, option: torch.zeros(J + 1, 1)}
    with pytest.raises(ValueError, match=f"{option} must be"):
        run(name, drawn(name)[0], wrong)
    with pytest.raises(ValueError, match=f"{option} must be"):
        routing.get(name).fused(capsules, weight, **wrong)


@pytest.mark.parametrize("count", [3, 9])
def test_children_of_another_number_than_the_links_have_are_refused(count):
    links = Links(torch.tensor([[0, 1, 2], [1, 2, 3]]), 5)
    children, weight = torch.ones(2, count, 4), torch.ones(3, J, E, 4)
    with pytest.raises(ValueError, match="expected 5 children"):
        routing.get("em").fused(children, weight, activations=torch.ones(2, count), links=links)


@every_routing
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_it_computes_in_the_type_of_the_votes_whatever_its_parameters_are(name, dtype):
    votes, options = drawn(name, dtype=torch.float32)
    for part in run(name, votes.to(dtype), options):
        assert part.dtype == dtype
