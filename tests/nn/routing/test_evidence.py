"""What children add to a parent, against the literal loops: it sums to what activations are of."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import D, E, I, J, draw
from helpers.routing_cases import B, by_pair, close, drawn, run
from scipy.special import digamma

from capsviz.nn import routing
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.class_capsules import ClassCapsules
from capsviz.nn.quantity import ALONG_POSE
from capsviz.nn.routing_layer import by_round, evidence

ROUNDS = 3


def evidence_and_literal(name, **more):
    """Evidence (R, B, I, J) of draws; their options; activations (R, B, J) by the loops."""
    votes, options = drawn(name, children=9)
    learned = {key: value for key, value in options.items() if key != "activations"}
    active = options.get("activations", votes[..., 0, 0])
    routed = run(name, votes, options, ROUNDS)

    def of(votes, routing, activations):
        return evidence(name, votes, routing, activations, **learned)

    expected = []
    for b in range(B):
        of_image = {key: options[key][b] for key in ("activations", "children") if key in options}
        given = {key: value.tolist() for key, value in {**options, **of_image}.items()}
        one = getattr(literal, name)(by_pair(votes[b]), **given, **more)
        expected.append([list(each.activations.values()) for each in one])
    expected = torch.tensor(expected, dtype=torch.float64).movedim(0, 1)
    return by_round(of, votes, routed, active), options, expected


def test_em_sums_to_the_logit_less_what_being_off_saves():
    parts, options, active = evidence_and_literal("em", iterations=ROUNDS, final=0.01, floor=5e-4)
    warmth = torch.tensor([0.01 * (1 - 0.95**t) for t in range(1, ROUNDS + 1)]).double()
    saved = warmth[:, None, None] * options["beta_a"]
    close(parts.sum(2), active.logit() - saved, 1e-9)


def test_variational_sums_to_the_logit_less_a_constant():
    parts, options, active = evidence_and_literal("variational", iterations=ROUNDS, digamma=digamma)
    close(parts.sum(2), active.logit() - (options["beta_a"] - options["beta_u"]), 1e-9)


def test_variational_is_divided_by_mass():
    votes, options = drawn("variational", children=9)
    routed = run("variational", votes, options)
    parts = evidence("variational", votes, routed, **options)
    mass = routed.couplings[-1] * options["activations"][..., None]
    close(parts / parts.sum(1, keepdim=True), mass / mass.sum(1, keepdim=True))


def test_inverted_attention_sums_to_the_score_less_a_constant():
    parts, options, active = evidence_and_literal("inverted_attention", iterations=ROUNDS)
    scores = parts.sum(2) + options["head_weight"] @ options["shift"] + options["head_bias"]
    close(scores.softmax(-1), active, 1e-9)
    close(scores - scores.logsumexp(-1, keepdim=True), active.log(), 1e-9)


def test_self_routing_sums_to_the_activation():
    parts, _, active = evidence_and_literal("self_routing")
    close(parts.sum(2), active, 1e-9)


@pytest.mark.parametrize("name", [n for n in routing.available() if routing.has_evidence(n)])
def test_a_decomposition_of_its_own_is_said_in_words(name):
    quantity = routing.quantity(name)
    assert quantity is not ALONG_POSE and all(quantity)


def test_the_others_have_the_length_along_the_pose():
    for name in routing.available():
        assert routing.has_evidence(name) or routing.quantity(name) is ALONG_POSE


def test_batch_norm_of_parents_divides_what_it_divides_the_logit_by():
    layer = ClassCapsules(
        I, J, child_dimensions=D, parent_dimensions=E, routing="variational", iterations=2
    )
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
def test_a_layer_whose_places_see_some_children_sums_for_each_place(kernel):
    layer = CapsuleLayer(
        (2, 3, 4), 3, child_pose=(2, 2), parent_pose=(2, 2), kernel=kernel, routing="em",
        iterations=2, final_temperature=0.7,
    )  # fmt: skip
    layer.double()
    poses, active = draw(B, 24, 4, seed=1), draw(B, 24, seed=2).sigmoid()
    with torch.no_grad():
        votes, routed = layer.route(poses, active)
        parts = layer.evidence(votes, routed, active)
        saved = 0.7 * (1 - 0.95**2) * layer.learned["beta_a"]
        close(parts.sum(-2), routed.activations[-1].logit() - saved, 1e-9)
