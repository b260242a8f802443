"""Interventions on routing through `capsviz.trace`, and their controls: spread, sums, draws."""

import math

import numpy as np
import pytest
import torch
from helpers.fixtures import build_strong
from helpers.plain_capsnet import Foreign

from capsviz import load
from capsviz.nn.functional import lengths, random_couplings, squash
from capsviz.nn.routing import Routing, dynamic, max_min
from capsviz.tracing import control_couplings, coupling_sd, from_children, parents_under, trace


def test_uniform_couplings_are_one_over_parents_in_every_iteration(network, tiny_images):
    seen = trace(network, tiny_images, couplings="uniform")
    torch.testing.assert_close(seen.couplings, torch.full_like(seen.couplings, 1 / 3))
    first = trace(network, tiny_images, iterations=1)
    torch.testing.assert_close(seen.poses[-1], first.poses[-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("classes", [3, 43])
def test_where_a_child_gives_all_of_itself_the_controls_are_not_scaled_by_one_bit(classes):
    model = Foreign((1, 9, 9), classes=classes).eval()
    images = torch.rand(2, 1, 9, 9, generator=torch.Generator().manual_seed(0))
    uniform = trace(model, images, couplings="uniform").couplings
    assert torch.equal(uniform, torch.full_like(uniform, 1 / classes))
    draw = torch.Generator().manual_seed(5)
    drawn = [random_couplings((1, 12, classes), generator=draw) for _ in range(2)]
    random = trace(model, images, couplings="random", seed=5).couplings
    assert torch.equal(random[-1], torch.cat(drawn))


@pytest.mark.parametrize("shape", [(12, 3), (8, 12, 3)])
def test_couplings_can_be_given(network, tiny_images, shape, monkeypatch):
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 6)
    given = torch.rand(shape, generator=torch.Generator().manual_seed(1)).softmax(-1)
    seen = trace(network, tiny_images, couplings=given)
    expected = given.expand(8, 12, 3)
    for used in seen.couplings:
        torch.testing.assert_close(used, expected)
    inputs = (expected[..., None] * seen.votes).sum(1)
    bias = getattr(getattr(network, "capsules", None), "bias", None)
    inputs = inputs if bias is None else inputs + bias.detach()
    torch.testing.assert_close(seen.poses[-1], squash(inputs), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "unifrom",
            "unknown couplings 'unifrom', expected one of: uniform, random, shuffled, matched",
        ),
        (torch.full((3, 12), 1 / 3), r"expected couplings \(8, 12, 3\), got \(3, 12\)"),
        (torch.full((12, 3), torch.nan), "expected finite couplings"),
        (torch.full((5, 12, 3), 1 / 3), r"\(8, 12, 3\).*got \(5, 12, 3\)"),
        (torch.full((1, 8, 12, 3), 1 / 3), r"got \(1, 8, 12, 3\)"),
    ],
)
def test_couplings_that_do_not_fit_are_refused(network, tiny_images, given, message):
    with pytest.raises(ValueError, match=message):
        trace(network, tiny_images, couplings=given)


def test_large_votes_are_made_of_few_images_at_a_time(tiny, tiny_images, monkeypatch):
    """By the memory of one image's votes, whatever else a pass takes; results are the same."""
    traced = trace(tiny, tiny_images)
    given = [None, traced.couplings[0], torch.full(traced.couplings.shape[2:], 0.3)]
    whole = parents_under(tiny, tiny_images, given)
    votes, made = tiny.capsules.votes, []
    size = traced.votes[0].numel() * traced.votes.element_size()
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_BYTES", 3 * size + 1)
    monkeypatch.setattr(tiny.capsules, "votes", lambda own: made.append(len(own)) or votes(own))
    parts = parents_under(tiny, tiny_images, given)
    assert made == [1, 3, 3, 2]
    for one, other in zip(parts, whole, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_iterations_can_be_other_than_the_networks_own(network, tiny_images, iterations):
    seen = trace(network, tiny_images, iterations=iterations)
    assert len(seen.poses) == len(seen.couplings) == len(seen.logits) == iterations
    lengths = trace(network, tiny_images, iterations=iterations, keep=("lengths",)).lengths
    torch.testing.assert_close(lengths, seen.lengths)


def test_children_of_another_form_or_layer_are_refused_in_a_line(tiny, tiny_images):
    children = trace(tiny, tiny_images).children
    for more, said in (
        ({"layer": 5}, "one routed layer, expected layer 0 or -1, got 5"),
        ({"activations": children.norm(dim=2)[1:]}, r"activations \(N, I\), got"),
        ({"couplings": torch.zeros(len(children), 3, 2)}, "couplings must be"),
    ):
        with pytest.raises(ValueError, match=said):
            from_children(tiny, children, **more)


@pytest.fixture(params=["strong", "leaky", "max_min", "foreign"])
def model(request):
    if request.param == "foreign":
        return Foreign((1, 21, 19), classes=3, grid=(2, 3, 2)).eval()
    if request.param == "max_min":
        return build_strong(routing="max_min")
    return build_strong(leaky=request.param == "leaky")


def deviation(couplings):
    """Standard deviation about each child's mean, child by child and parent by parent."""
    squares = []
    for row in couplings.tolist():
        squares += [(one - sum(row) / len(row)) ** 2 for one in row]
    return math.sqrt(sum(squares) / len(squares))


def test_matched_couplings_spread_exactly_as_the_networks_own(model, tiny_images):
    own = trace(model, tiny_images).couplings
    found = trace(model, tiny_images, couplings="matched").couplings
    assert found.shape == own.shape and (found >= 0).all()
    for r in range(len(own)):
        for n in range(8):
            expected = deviation(own[r, n])
            assert deviation(found[r, n]) == pytest.approx(expected, rel=1e-4, abs=1e-6)
            assert float(coupling_sd(own[r, n])) == pytest.approx(expected, rel=1e-5, abs=1e-9)
    torch.testing.assert_close(found.sum(3), own.sum(3))
    assert not torch.allclose(found[-1], own[-1], atol=1e-3)


def test_shuffled_couplings_are_the_images_own_in_another_order(model, tiny_images):
    own = trace(model, tiny_images).couplings
    found = trace(model, tiny_images, couplings="shuffled").couplings

    def rows(couplings):
        """The children's couplings in an order of their own."""
        return sorted(map(tuple, couplings.tolist()))

    moved = 0
    for r in range(len(own)):
        for n in range(8):
            np.testing.assert_allclose(rows(found[r, n]), rows(own[r, n]), atol=1e-5)
            moved += not torch.allclose(found[r, n], own[r, n], atol=1e-4)
    assert moved >= 8  # of iterations after the first, whose couplings are all alike


@pytest.mark.parametrize("kind", ["random", "shuffled", "matched"])
def test_the_draws_do_not_depend_on_the_chunk_or_on_what_is_kept(kind, tiny_images, monkeypatch):
    model, state = build_strong(), torch.get_rng_state()
    whole = trace(model, tiny_images, couplings=kind, seed=3)
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 6)
    parts = trace(model, tiny_images, couplings=kind, seed=3)
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 8)
    alone = trace(model, tiny_images, couplings=kind, seed=3, keep=("lengths",))
    torch.testing.assert_close(parts.couplings, whole.couplings, rtol=0, atol=1e-6)
    torch.testing.assert_close(alone.lengths, whole.lengths, rtol=0, atol=1e-5)
    other = trace(model, tiny_images, couplings=kind, seed=4)
    assert not torch.allclose(other.couplings, whole.couplings)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_layer_whose_places_see_some_children_takes_uniform_alone():
    own = torch.full((1, 2, 4, 3, 5), 0.2)
    assert control_couplings("uniform", own, torch.Generator()).shape == (1, 2, 4, 3, 5)
    with pytest.raises(ValueError, match='expected couplings="uniform"'):
        control_couplings("shuffled", own, torch.Generator())


class Minimal(Foreign):
    """Gives children and poses alone, and takes no intervention."""

    grid = None

    def __init__(self):
        super().__init__((1, 21, 19), classes=3)
        del self.__dict__["grid"]

    def look(self, images, *, keep, iterations=None):
        shown = super().look(images, keep=keep, iterations=iterations)
        return {"children": shown["primary"], "poses": shown["poses"]}


def test_activations_that_are_not_given_are_the_norms_of_poses(tiny_images):
    full = trace(Foreign((1, 21, 19), classes=3).eval(), tiny_images)
    seen = trace(Minimal().eval(), tiny_images)
    torch.testing.assert_close(seen.activations, full.poses.norm(dim=-1))
    torch.testing.assert_close(seen.lengths, full.lengths)
    torch.testing.assert_close(seen.child_activations, full.primary.norm(dim=-1))
    assert seen.pose_shape == (5,) and seen.grid is None
    assert seen.votes is None and seen.couplings is None
    alone = trace(Minimal().eval(), tiny_images, keep=("lengths",))
    torch.testing.assert_close(alone.lengths, full.lengths)


def test_activations_that_are_given_are_taken_and_not_the_norms(tiny_images):
    class Separate(Foreign):
        def look(self, images, **options):
            shown = super().look(images, **options)
            del shown["lengths"]
            return shown | {"activations": 1 - lengths(shown["poses"])}

    seen = trace(Separate((1, 21, 19), classes=3).eval(), tiny_images, keep=("activations",))
    poses = trace(Separate((1, 21, 19), classes=3).eval(), tiny_images).poses
    torch.testing.assert_close(seen.activations, 1 - lengths(poses))
    torch.testing.assert_close(seen.lengths, seen.activations[-1])


def test_what_a_look_does_not_take_or_give_is_refused_in_one_line(tiny_images):
    with pytest.raises(ValueError, match="`look` takes no `couplings`"):
        trace(Minimal().eval(), tiny_images, couplings="uniform")
    with pytest.raises(ValueError, match="expected layer 0 or -1, got 1"):
        trace(Minimal().eval(), tiny_images, layer=1)
    with pytest.raises(ValueError, match="gave no votes"):
        trace(Minimal().eval(), tiny_images, keep=("votes",))


def test_a_layer_can_be_chosen_where_there_are_several(tiny_images):
    class Deep(Foreign):
        grids = ((5, 1, 1), (3, 2, 2))

        def look(self, images, *, layer=-1, **options):
            shown = super().look(images, **options)
            return shown if layer == -1 else shown | {"primary": 2 * shown["primary"]}

    model = Deep((1, 21, 19), classes=3).eval()
    last, first = trace(model, tiny_images), trace(model, tiny_images, layer=0)
    torch.testing.assert_close(first.children, 2 * last.children)
    assert (first.grid, last.grid) == ((5, 1, 1), (3, 2, 2))
    for layer in (2, -3, "a"):
        with pytest.raises(ValueError, match=f"has 2 routed layers.*, got {layer}"):
            trace(model, tiny_images, layer=layer)


@pytest.mark.parametrize("name", ["digits-em", "digits-variational", "digits-self-routing"])
def test_children_with_activations_of_their_own_are_not_routed_by_their_norms(name):
    model, images = load(name), torch.rand(3, 1, 28, 28)
    seen = trace(model, images)
    with pytest.raises(ValueError, match="have separate activations: pass them too"):
        from_children(model, seen.children)
    same = from_children(model, seen.children, seen.child_activations)
    torch.testing.assert_close(same, seen.lengths, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("count", [2, 4])
def test_a_list_of_couplings_has_one_for_each_iteration(count):
    votes = torch.rand(2, 5, 3, 4)
    with pytest.raises(ValueError, match=f"couplings for 3 iterations, got {count}"):
        dynamic.route(votes, couplings=[torch.full((2, 5, 3), 1 / 3)] * count)


@pytest.mark.parametrize("name", ["digits-em", "digits-variational"])
def test_evidence_is_exact_under_autocast(name):
    model, images = load(name), torch.rand(3, 1, 28, 28)
    with torch.autocast("cpu", torch.bfloat16):
        seen = trace(model, images)
    again = model.capsules.evidence(
        seen.votes,
        Routing(*(getattr(seen, part) for part in Routing._fields)),
        seen.child_activations,
    )
    torch.testing.assert_close(seen.evidence[-1], again, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parents", [2, 3])
def test_uniform_couplings_of_max_min_are_those_of_the_first_iteration(parents):
    votes = torch.rand(3, 6, parents, 4, generator=torch.Generator().manual_seed(0)) - 0.5
    own = max_min.route(votes, iterations=3).couplings
    even = control_couplings("uniform", own, torch.Generator())
    torch.testing.assert_close(even[0], own[0])
