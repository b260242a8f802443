"""Each routing against loops of its paper, and what it alone must be."""

import math

import pytest
import torch
from helpers import literal as twins
from helpers import literal_routing as literal
from helpers.random_tensors import B, D, E, I, J, draw, votes_of
from helpers.routing_cases import (
    ITERATIVE,
    NAMES,
    as_routing,
    by_pair,
    close,
    drawn,
    drawn_capsules,
    equal,
    full,
    learned,
    run,
)
from scipy.special import digamma

from capsviz.nn import routing
from capsviz.nn.capsule_layer import CapsuleLayer, ParentNorm, by_iteration, evidence
from capsviz.nn.functional import agreement, lengths, squash, squash_exp
from capsviz.nn.quantity import ALONG_POSE
from capsviz.nn.routing import (
    Routing,
    dynamic,
    em,
    inverted_attention,
    max_min,
    self_routing,
    uniform,
)

DEFAULTS = {"em": {"final": 0.01, "floor": 5e-4}, "variational": {"digamma": digamma}}


def literally(name, votes, options, iterations=3, **more):
    """What the loops of a routing give, as a `Routing`."""
    if name == "dynamic":
        *pairs, poses = twins.dynamic_routing(votes, iterations, **options)
        logits, couplings, poses = (twins.to_tensor(part) for part in (*pairs, poses))
        return Routing(logits, couplings, poses, lengths(poses))
    rounds = {"iterations": iterations} if name in ITERATIVE else {}
    images = []
    for b in range(B):
        own = {key: options[key][b] for key in ("activations", "children") if key in options}
        given = {key: value.tolist() for key, value in {**options, **own}.items()}
        more = DEFAULTS.get(name, {}) | more
        assert hasattr(literal, name), f"write `{name}` of plain loops, in {literal.__file__}"
        images.append(getattr(literal, name)(by_pair(votes[b]), **given, **rounds, **more))
    return as_routing(images)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_route_is_the_literal_loops_in_every_iteration(name, iterations):
    if iterations > 1 and name not in ITERATIVE:
        return
    votes, options = drawn(name, children=9)
    equal(run(name, votes, options, iterations), literally(name, votes, options, iterations), 1e-8)


@pytest.mark.parametrize("leaky", [False, True])
@pytest.mark.parametrize("bias", [None, draw(J, E, seed=3)], ids=["without", "with bias"])
@pytest.mark.parametrize("iterations", [1, 3])
def test_dynamic_routing_and_its_fused_form_are_procedure_1_without_bias_and_leaking(
    iterations, bias, leaky
):
    primary, weight, _ = drawn_capsules("dynamic")
    votes, options = twins.votes(primary, weight), {"bias": bias, "leaky": leaky}
    expected = literally("dynamic", votes, options, iterations)
    equal(dynamic.route(votes, iterations=iterations, **options), expected)
    found = dynamic.fused(primary, weight, iterations=iterations, **options)
    close(found.poses, expected.poses[-1])
    close(found.activations, expected.activations[-1])


@pytest.mark.parametrize("floor", [1e-6, 0.3])
def test_em_is_procedure_1_at_other_temperatures_and_floors(floor):
    votes, options = drawn("em", children=9)
    found = em.route(votes, final_temperature=0.2, floor=floor, **options)
    equal(found, literally("em", votes, options, final=0.2, floor=floor), 1e-8)


# Evidence: what children add to a parent sums to what its activation is computed from


def evidence_and_literal(name):
    """Evidence (R, B, I, J) of draws; their options; activations (R, B, J) by the loops."""
    votes, options = drawn(name, children=9)
    known = {key: value for key, value in options.items() if key != "activations"}
    active = options.get("activations", votes[..., 0, 0])

    def of(votes, routing, activations):
        return evidence(name, votes, routing, activations, **known)

    parts = by_iteration(of, votes, run(name, votes, options), active)
    return parts, options, literally(name, votes, options).activations


def test_evidence_of_em_sums_to_the_logit_less_what_being_off_saves():
    parts, options, active = evidence_and_literal("em")
    warmth = torch.tensor([0.01 * (1 - 0.95**t) for t in range(1, 4)]).double()
    close(parts.sum(2), active.logit() - warmth[:, None, None] * options["beta_a"], 1e-9)


def test_evidence_of_variational_sums_to_the_logit_less_a_constant_and_is_divided_by_mass():
    parts, options, active = evidence_and_literal("variational")
    close(parts.sum(2), active.logit() - (options["beta_a"] - options["beta_u"]), 1e-9)
    votes, options = drawn("variational", children=9)
    mass = run("variational", votes, options).couplings * options["activations"][..., None]
    close(parts / parts.sum(2, keepdim=True), mass / mass.sum(2, keepdim=True))


def test_evidence_of_inverted_attention_sums_to_the_score_less_a_constant():
    parts, options, active = evidence_and_literal("inverted_attention")
    scores = parts.sum(2) + options["head_weight"] @ options["shift"] + options["head_bias"]
    close(scores.softmax(-1), active, 1e-9)


def test_evidence_of_self_routing_sums_to_the_activation():
    parts, _, active = evidence_and_literal("self_routing")
    close(parts.sum(2), active, 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_evidence_is_said_in_words_and_is_otherwise_the_length_along_the_pose(name):
    quantity, own = routing.quantity(name), hasattr(routing.get(name), "evidence")
    assert (quantity is not ALONG_POSE) == own and all(quantity)


def test_batch_norm_of_parents_divides_evidence_as_it_divides_the_logit():
    layer = CapsuleLayer(
        (I, 1, 1), J, child_pose=(D,), parent_pose=(E,), routing="variational", iterations=2
    )
    layer.norm = ParentNorm(J)
    layer.double().eval()
    layer.norm.logits.running_mean.copy_(draw(J, seed=5))
    layer.norm.logits.running_var.copy_(draw(J, seed=6).exp())
    for name in ("beta_u", "beta_a"):
        layer.learned[name].data.copy_(draw(J, seed=7 + len(name)))
    children, active = draw(B, I, D, seed=8), draw(B, I, seed=9).sigmoid()
    with torch.no_grad():
        votes, routed = layer.route(children, activations=active)
        parts = layer.evidence(votes, routed, active)
        own = layer.learned["beta_a"] - layer.learned["beta_u"] - layer.norm.logits.running_mean
        close(parts.sum(1), routed.activations[-1].logit() - own / layer.norm.logit_std, 1e-9)


@pytest.mark.parametrize("kernel", [2, None])
def test_evidence_of_a_layer_whose_places_see_some_children_sums_for_each_place(kernel):
    layer = CapsuleLayer(
        (2, 3, 4), 3, child_pose=(2, 2), parent_pose=(2, 2), kernel=kernel, routing="em",
        iterations=2, final_temperature=0.7,
    ).double()  # fmt: skip
    poses, active = draw(B, 24, 4, seed=1), draw(B, 24, seed=2).sigmoid()
    with torch.no_grad():
        votes, routed = layer.route(poses, active)
        parts = layer.evidence(votes, routed, active)
        saved = 0.7 * (1 - 0.95**2) * layer.learned["beta_a"]
        close(parts.sum(-2), routed.activations[-1].logit() - saved, 1e-9)


# Dynamic routing and those like it


def test_logits_are_still_recorded_under_given_couplings():
    votes = draw(B, I, J, E)
    found = dynamic.route(votes, couplings=full(1 / J, I, J))
    agreed = agreement(votes, found.poses[0])
    close(found.logits, torch.stack([0 * agreed, agreed, 2 * agreed]))


def test_a_child_that_agrees_with_no_parent_leaks():
    votes = draw(1, 8, J, E).abs()  # all children say about the same ...
    votes[:, 3] *= -1  # ... but one, the opposite
    leak = 1 - dynamic.route(votes, leaky=True).couplings[-1].sum(2)[0]
    assert leak.argmax() == 3 and leak[3] > 2 * leak.sort().values[-2]


def test_uniform_with_one_matrix_for_all_children_sees_their_sum_alone():
    children, weight = draw(B, I, D, seed=1), draw(J, E, D, seed=2)
    votes = torch.einsum("jed,bid->bije", weight, children)
    expected = squash(torch.einsum("jed,bd->bje", weight, children.sum(1)) / J)
    close(uniform.route(votes).poses[-1], expected)


@pytest.mark.parametrize("parents", [1, J])
def test_max_min_gives_all_to_parents_that_tie(parents):
    votes = draw(B, I, 1, E).requires_grad_()
    found = max_min.route(votes.expand(B, I, parents, E))
    close(found.couplings, full(1, 3, B, I, parents))
    (gradient,) = torch.autograd.grad(found.poses[-1].sum(), votes)
    assert gradient.isfinite().all()


def test_rounding_decides_no_tie_of_max_min():
    logits = torch.tensor([[3.0, 3.0 + 4e-7, 3.0], [3.0, 3.1, 3.05]])
    found = max_min.stretched(logits)
    assert found[0].tolist() == [1, 1, 1] and found[1].tolist() == pytest.approx([0, 1, 0.5], 1e-4)


# Attention, and self-routing


def test_self_attention_squashes_long_vectors_to_one_and_keeps_short_ones():
    x = draw(4, E)
    unit = x / x.norm(dim=1, keepdim=True)
    close(squash_exp(1e-4 * unit).norm(dim=1), full(1e-4, 4), 1e-4)
    close(squash_exp(50 * unit), unit)


def test_inverted_attention_has_normalised_poses_and_no_activation_without_a_head():
    votes, _ = drawn("inverted_attention")
    found = inverted_attention.route(1e3 * votes, iterations=1)
    close(found.poses.mean(3), full(0, 1, B, J))
    close(found.poses.var(3, unbiased=False), full(1, 1, B, J), 1e-6)
    assert torch.equal(found.activations, full(1, 1, B, J))


def test_self_routing_is_at_first_uniform():
    votes, options = drawn("self_routing")
    options.update(self_routing.parameters(I, J, D, E))
    found = self_routing.route(votes, **options)
    close(found.couplings, full(1 / J, 1, B, I, J))
    close(found.activations, full(1 / J, 1, B, J))


def test_self_routing_of_no_active_child_gives_nothing_and_breaks_nothing():
    votes, options = drawn("self_routing")
    options["activations"] = full(0, B, I).requires_grad_()
    found = self_routing.route(votes, **options)
    assert not found.poses.any() and not found.activations.any()
    found.poses.sum().backward()
    assert options["activations"].grad.isfinite().all()


def test_self_routing_names_children_that_are_missing():
    votes, options = drawn("self_routing")
    del options["children"]
    with pytest.raises(ValueError, match=r"self_routing routing needs the children's .*children"):
        self_routing.route(votes, **options)


# Mixtures of Gaussians


def test_the_initial_beta_u_of_em_makes_the_cost_the_code_length_of_the_votes():
    votes, options = drawn("em", children=9)
    active, beta_a = options["activations"], torch.zeros(J).double()
    found = em.route(
        votes, iterations=1, activations=active, beta_a=beta_a, final_temperature=20.0, floor=0.0
    )
    w = active[..., None] * found.couplings[0]
    mean, variance, _ = em.maximised(votes, w, 0.0)
    density = torch.distributions.Normal(mean[:, None], variance.sqrt()[:, None])
    cost = -(w * density.log_prob(votes).sum(3)).sum(1)
    close(found.activations[0].logit(), -cost, 1e-7)  # λ of iteration 1 is 20 · 0.05 = 1


def test_one_child_is_its_parents_mean_in_em_and_their_variance_the_floor():
    votes, options = drawn("em", children=1)
    found = em.route(votes, floor=0.25, final_temperature=1.0, **options)
    close(found.poses[-1], votes[:, 0])
    mass = options["activations"] * found.couplings[0][:, 0]
    cost = mass * E * (options["beta_u"] + math.log(0.5))
    close(found.activations[0].logit(), 0.05 * (options["beta_a"] - cost))


def test_em_is_exact_where_means_are_large():
    votes, options = drawn("em", children=9, dtype=torch.float32)
    far = votes + 3e4  # E[V²] - μ² would lose all digits
    plain, moved = em.route(votes, **options), em.route(far, **options)
    close(moved.couplings, plain.couplings, 0.05)
    capsules, weight = torch.ones(B, 9, 1), far[:1].permute(1, 2, 3, 0).contiguous()
    same = {**options, "activations": options["activations"][:1].expand(B, 9)}
    double = {key: value.double() for key, value in same.items()}
    expected = em.route(far[:1].expand(B, -1, -1, -1).double(), **double)
    found = em.fused(capsules, weight, **same)
    close(found.activations.double(), expected.activations[-1], 1e-3)


@pytest.mark.parametrize("name", ["em", "variational"])
def test_where_one_child_alone_is_active_gradients_are_those_of_route(name):
    """Its scatter is 0 but for rounding, which may fall below it."""
    children, weight, _ = drawn_capsules(name, children=8)
    active = torch.zeros(B, 8, dtype=torch.float64) + 1e-9
    active[:, 0] = 0.9
    module, found = routing.get(name), []
    for form, given, dtype in (
        (module.route, [votes_of(children, weight)], torch.float64),
        (module.fused, [children, weight], torch.float32),
    ):
        a = active.to(dtype).requires_grad_()
        made = form(*(one.to(dtype) for one in given), iterations=2, activations=a).activations
        (gradient,) = torch.autograd.grad(made.view(-1, B, J)[-1, :, 0].sum(), a)
        found.append(gradient[:, 0].double())
    close(found[1] / found[0], torch.ones(B).double(), 0.05)


@pytest.mark.parametrize("name", [name for name in NAMES if learned(name)])
def test_what_a_routing_learns_must_have_its_shape(name):
    (capsules, weight, given), (votes, options) = drawn_capsules(name), drawn(name)
    wrong = {next(iter(learned(name))): torch.zeros(J + 1, 1)}
    with pytest.raises(ValueError, match=r"must be \(.*\) = .*, got the shape \(6, 1\)"):
        run(name, votes, {**options, **wrong})
    with pytest.raises(ValueError, match=r"must be \(.*\) = .*, got the shape \(6, 1\)"):
        routing.get(name).fused(capsules, weight, **{**given, **wrong})
