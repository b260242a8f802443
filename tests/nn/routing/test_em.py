"""EM routing against procedure 1 in loops, and what it must be."""

import math

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import as_routing, by_pair, close, drawn, equal, full

from capsviz.nn.routing import em

ITERATIONS = pytest.mark.parametrize("iterations", [1, 2, 3, 5])


def procedure_1(votes, options, iterations, **more):
    given = {key: value.tolist() for key, value in options.items()}
    active = given.pop("activations")
    return as_routing(
        [
            literal.em(by_pair(v), a, iterations=iterations, **given, **more)
            for v, a in zip(votes, active, strict=True)
        ]
    )


@ITERATIONS
@pytest.mark.parametrize("floor", [5e-4, 1e-6, 0.3])
def test_route_is_procedure_1(iterations, floor):
    votes, options = drawn("em", children=9)
    found = em.route(votes, iterations=iterations, final_temperature=0.2, floor=floor, **options)
    expected = procedure_1(votes, options, iterations, final=0.2, floor=floor)
    equal(found, expected, 1e-8)


def test_the_defaults_are_those_of_the_authors():
    votes, options = drawn("em")
    equal(em.route(votes, **options), procedure_1(votes, options, 3, final=0.01, floor=5e-4), 1e-8)


def test_the_temperature_does_not_look_at_the_number_of_iterations():
    assert [em.temperature(t, 2.0) for t in range(3)] == pytest.approx([0.1, 0.195, 0.28525])


def test_a_childs_own_activation_does_not_cancel():
    votes, options = drawn("em")
    options["activations"] = torch.tensor([[0.9, 0.1, 0.5], [0.2, 0.2, 0.9]]).double()
    even = {**options, "activations": full(0.5, B, I)}
    assert (em.route(votes, **options).poses - em.route(votes, **even).poses).abs().max() > 0.1


def test_every_child_twice_is_activations_doubled():
    votes, options = drawn("em")
    twice = {**options, "activations": options["activations"].repeat(1, 2)}
    double = {**options, "activations": 2 * options["activations"]}
    one, other = em.route(votes.repeat(1, 2, 1, 1), **twice), em.route(votes, **double)
    close(one.poses, other.poses, 1e-8)
    close(one.activations, other.activations, 1e-8)


def test_activations_times_a_number_leave_the_first_mean():
    votes, options = drawn("em")
    smaller = {**options, "activations": options["activations"] / 100}
    close(em.route(votes, **smaller).poses[0], em.route(votes, **options).poses[0])


def test_moving_the_votes_of_a_parent_moves_its_pose_alone():
    votes, options = drawn("em", children=9)
    step = draw(J, E, seed=8)
    plain, moved = em.route(votes, **options), em.route(votes + step, **options)
    close(moved.couplings, plain.couplings, 1e-8)
    close(moved.activations, plain.activations, 1e-8)
    close(moved.poses, plain.poses + step, 1e-8)


def test_the_initial_beta_u_makes_the_cost_the_code_length_of_the_votes():
    votes, options = drawn("em", children=9)
    active = options["activations"]
    beta_a = torch.zeros(J).double()
    found = em.route(
        votes, iterations=1, activations=active, beta_a=beta_a, final_temperature=20.0, floor=0.0
    )
    w = active[..., None] * found.couplings[0]
    mean = found.poses[0]
    variance = torch.einsum(
        "bij,bije->bje", w / w.sum(1, keepdim=True), (votes - mean[:, None]) ** 2
    )
    density = torch.distributions.Normal(mean[:, None], variance.sqrt()[:, None])
    cost = -(w * density.log_prob(votes).sum(3)).sum(1)
    close(found.activations[0].logit(), -cost, 1e-7)  # λ of iteration 1 is 20 · 0.05 = 1


def test_one_child_is_its_parents_mean_and_their_variance_the_floor():
    votes, options = drawn("em", children=1)
    found = em.route(votes, floor=0.25, final_temperature=1.0, **options)
    close(found.poses[-1], votes[:, 0])
    mass = options["activations"] * found.couplings[0][:, 0]
    cost = mass * E * (options["beta_u"] + math.log(0.5))
    close(found.activations[0].logit(), 0.05 * (options["beta_a"] - cost))


def test_one_parent_gets_all():
    votes, options = draw(B, I, 1, E), {"activations": draw(B, I).sigmoid()}
    assert torch.equal(em.route(votes, **options).couplings, torch.ones(3, B, I, 1).double())


def test_without_temperature_only_densities_count():
    votes, options = drawn("em", children=9)
    found = em.route(votes, final_temperature=0.0, **options)
    close(found.activations, full(0.5, 3, B, J))
    mean, variance, _ = em.maximised(
        votes, options["activations"][..., None] * found.couplings[0], em.FLOOR
    )
    density = torch.distributions.Normal(mean[:, None], variance.sqrt()[:, None])
    close(found.couplings[1], density.log_prob(votes).sum(3).softmax(2), 1e-8)


def test_the_variance_is_exact_where_means_are_large():
    votes, options = drawn("em", children=9, dtype=torch.float32)
    far = votes + 3e4  # E[V²] - μ² would lose all digits
    plain, moved = em.route(votes, **options), em.route(far, **options)
    close(moved.couplings, plain.couplings, 0.05)
    capsules, weight = torch.ones(B, 9, 1), far[:1].permute(1, 2, 3, 0).contiguous()
    same = {**options, "activations": options["activations"][:1].expand(B, 9)}
    expected = em.route(far[:1].expand(B, -1, -1, -1).double(), **_double(same))
    found = em.fused(capsules, weight, **same)
    close(found.activations.double(), expected.activations[-1], 1e-3)


def _double(options):
    return {key: value.double() for key, value in options.items()}


@pytest.mark.parametrize("iterations", [1, 3])
def test_evidence_sums_to_the_logit_less_what_being_off_saves(iterations):
    votes, options = drawn("em")
    active = options.pop("activations")
    more = {"final_temperature": 0.3, "floor": 0.01}
    found = em.route(votes, iterations=iterations, activations=active, **options, **more)
    evidence = em.evidence(votes, found, active, **options, **more)
    saved = em.temperature(iterations - 1, 0.3) * options["beta_a"]
    close(evidence.sum(1), found.activations[-1].logit() - saved)


def test_missing_activations_are_named():
    with pytest.raises(ValueError, match=r"EM routing needs the children's activations \(B, I\)"):
        em.route(draw(B, I, J, E))
    with pytest.raises(ValueError, match=r"EM routing needs the children's activations \(B, I\)"):
        em.fused(draw(B, I, D), draw(I, J, E, D))


def test_shapes_that_do_not_fit_are_named():
    votes, options = drawn("em")
    with pytest.raises(
        ValueError, match=r"activations must be \(B, I\) = \(2, 3\), got .*\(2, 2\)"
    ):
        em.route(votes, **{**options, "activations": draw(B, I - 1)})
    with pytest.raises(ValueError, match=r"beta_a must be \(J\) = \(5,\), got the shape \(3,\)"):
        em.route(votes, **{**options, "beta_a": draw(I)})
