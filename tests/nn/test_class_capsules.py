import math
from types import SimpleNamespace

import pytest
import torch
from helpers.random_tensors import B, D, E, I, J, draw
from helpers.routing_cases import ACTIVE, ITERATIVE

from capsviz.nn import functional, routing
from capsviz.nn.capsule_layer import CapsuleLayer
from capsviz.nn.computation import literal
from capsviz.nn.models.capsnet import CapsNet
from capsviz.nn.routing import em


def draw32(*shape, seed=0):
    return draw(*shape, seed=seed, dtype=torch.float32)


def classes(children=I, parents=J, *, child=D, parent=E, types=1, **options):
    """A layer of one position that sees all children."""
    grid = types, children // types, 1
    return CapsuleLayer(grid, parents, child_pose=(child,), parent_pose=(parent,), **options)


def layer_of(name, **options):
    """A layer of a routing, its parameters not their initial values alone."""
    torch.manual_seed(0)
    layer = classes(routing=name, **options)
    with torch.no_grad():
        for p in layer.parameters():
            p += 0.1 * torch.randn_like(p)
    return layer


every_routing = pytest.mark.parametrize("name", routing.available())


@every_routing
@pytest.mark.parametrize("transform", ["own", "type", "shared"])
def test_the_fast_path_gives_the_parents_of_the_path_that_shows_everything(name, transform):
    options = {"iterations": 4} if name in ITERATIVE else {}
    layer = layer_of(name, transform=transform, types=I, **options)
    primary, activations = draw32(B, I, D), draw32(B, I, seed=9).sigmoid()
    votes, routed = layer.route(primary, activations=activations)
    assert votes.shape == (B, I, J, E) and len(routed.poses) == (4 if name in ITERATIVE else 1)
    expected = routed.poses[-1], routed.activations[-1]
    for found in (layer.couple(primary, activations), literally(layer, primary, activations)):
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer(primary).poses, layer.couple(primary).poses)


def literally(layer, *inputs):
    with literal():
        return layer.couple(*inputs)


@every_routing
def test_what_a_routing_learns_is_a_parameter_of_the_layer(name):
    offered = getattr(routing.get(name), "parameters", lambda *sizes: {})(I, J, D, E)
    layer = layer_of(name)
    learned = {key: value.shape for key, value in layer.named_parameters() if key != "weight"}
    assert learned == {f"learned.{key}": value.shape for key, value in offered.items()}
    again = layer_of(name)
    again.load_state_dict(layer.state_dict())
    primary = draw32(B, I, D)
    torch.testing.assert_close(again(primary).poses, layer(primary).poses)
    sum(part.square().sum() for part in layer.couple(primary)).backward()
    weight = layer.weight.grad
    assert weight.isfinite().all() and weight.abs().sum() > 0
    idle = [key for key, p in layer.learned.items() if p.grad is None or not p.grad.any()]
    assert idle in ([], ["head_bias"])  # without effect on a softmax


@every_routing
def test_activations_of_children_are_their_lengths_where_none_are_given(name):
    layer, primary = layer_of(name), draw32(B, I, D)
    lengths = functional.lengths(primary)
    for a, b in zip(layer.couple(primary), layer.couple(primary, lengths), strict=True):
        torch.testing.assert_close(a, b)
    other = layer.couple(primary, lengths.flip(1)).poses
    assert torch.equal(other, layer(primary).poses) != (name in ACTIVE)


@every_routing
def test_another_number_than_one_of_iterations_is_refused_where_there_is_one_pass(name):
    if name in ITERATIVE:
        assert layer_of(name).iterations == 3 and layer_of(name, iterations=2).iterations == 2
        return
    layer = layer_of(name, iterations=1)
    assert layer.iterations == layer_of(name).iterations == 1
    layer.route(draw32(B, I, D), iterations=1)
    message = f"^the routing '{name}' does not iterate, got 2 iterations: use 1$"
    with pytest.raises(ValueError, match=message):
        layer_of(name, iterations=2)
    with pytest.raises(ValueError, match=message):
        layer.route(draw32(B, I, D), iterations=2)


def test_children_of_a_type_share_a_matrix_or_all_of_them_do():
    primary = draw32(B, 6, D)
    own = classes(6)
    for transform, types in (("type", 2), ("shared", 1)):
        layer = classes(6, transform=transform, types=2)
        assert layer.weight.shape == (types, J, E, D)
        with torch.no_grad():  # child i is of type i // (children / types)
            own.weight.copy_(torch.stack([layer.weight[i // (6 // types)] for i in range(6)]))
        torch.testing.assert_close(layer.votes(primary), own.votes(primary))
        torch.testing.assert_close(layer(primary).poses, own(primary).poses)
        own.zero_grad()
        for each in (own, layer):
            each(primary).poses.square().sum().backward()
        whole = own.weight.grad.view(types, 6 // types, J, E, D).sum(1)
        torch.testing.assert_close(layer.weight.grad, whole)


def test_one_matrix_for_all_children_begins_with_parents_as_long_as_their_own_do():
    """Its votes add up in one direction: with as wide weights, all parents would begin long."""
    torch.manual_seed(0)
    sizes = {"parent": 64, "routing": "uniform"}
    primary = torch.full((1, 900, D), 0.1)  # children that are alike
    own, shared, wide = (
        classes(900, 50, **sizes, **how)(primary).poses.norm(dim=2).mean().item()
        for how in ({}, {"transform": "shared"}, {"transform": "shared", "std": 0.1})
    )
    assert shared == pytest.approx(own, rel=0.15) and wide > 5 * own
    network = CapsNet(classes=4, types=2, channels=4, transform="shared", reconstruction_weight=0)
    assert network.config["vote_std"] == pytest.approx(0.1 / math.sqrt(2 * 36))
    assert CapsNet(**(network.config | {"vote_std": 0.1})).config["vote_std"] == 0.1


def test_a_routing_without_a_fused_form_serves_as_well():
    layer, primary = layer_of("dynamic", bias=True), draw32(B, I, D)
    expected = layer(primary).poses
    layer._fused = None
    torch.testing.assert_close(layer(primary).poses, expected)


def test_an_option_that_only_one_of_both_paths_has_is_refused(monkeypatch):
    def route(votes, *, iterations, bias, couplings):
        raise AssertionError

    half = SimpleNamespace(route=route, fused=lambda u, w, *, leaky, detach: u)
    monkeypatch.setattr(routing, "get", lambda name: half)
    with pytest.raises(ValueError, match="the routing 'half' has no option 'leaky'"):
        classes(routing="half", leaky=True)


def test_variational_parents_pass_through_batch_norm_looked_at_and_not():
    torch.manual_seed(0)
    network = CapsNet(classes=3, types=2, channels=4, routing="variational")
    layer, I = network.capsules, network.settings.children
    children, active = torch.randn(16, I, network.settings.primary_dimensions), torch.rand(16, I)
    parents = layer.couple(children, active)
    logits = torch.logit(parents.activations)
    torch.testing.assert_close(logits.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(logits.var(0, correction=0), torch.ones(3), atol=1e-2, rtol=0)
    layer.eval()
    plain, (_, routed) = layer.couple(children, active), layer.route(children, activations=active)
    torch.testing.assert_close(routed.poses[-1], plain.poses, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(routed.activations[-1], plain.activations, atol=1e-4, rtol=1e-4)
    assert CapsNet(classes=3, types=2, channels=4, routing="em").capsules.norm is None


def test_em_of_few_children_begins_with_parents_that_are_off_and_can_be_on():
    """As the authors' class layer: 0.14 without mass; on, where all variances are the floor."""
    for options, floor in (({}, em.FLOOR), ({"floor": 1.0}, 1.0)):
        network = CapsNet((1, 28, 28), 10, stem="slim", routing="em", **options)
        layer = network.capsules
        assert network.config["final_temperature"] == layer.options["final_temperature"] == 10 / 16
        assert layer.options.get("floor", em.FLOOR) == floor
        mass = torch.tensor([0.0, 8.0]).repeat(5)
        beta_u, beta_a = layer.learned["beta_u"], layer.learned["beta_a"]
        warmth = em.temperature(2, 10 / 16)
        score = em.scored(mass, torch.full((10, 16), floor), beta_u, beta_a, warmth).detach()
        assert score[::2].sigmoid() == pytest.approx([0.144] * 5, abs=0.001)
        assert (score[1::2].sigmoid() > 0.99).all()
    old = CapsNet((1, 28, 28), 10, stem="slim", routing="em", final_temperature=None)
    assert old.capsules.options == {} and not old.capsules.learned["beta_a"].any()
    again = CapsNet(**network.config)
    assert again.capsules.options == layer.options


@pytest.mark.parametrize("name", ["dynamic", "em"])
def test_activations_of_another_shape_are_refused_by_routings_that_read_none(name):
    capsules = classes(routing=name)
    children = draw32(B, I, D)
    for function in (capsules.couple, capsules.route):
        with pytest.raises(ValueError, match=r"activations must be \(B, I\) = .*got the shape"):
            function(children, activations=torch.rand(B, I + 1))
