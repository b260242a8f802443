"""Local couplings: what places see, who competes, and every routing on places."""

import pytest
import torch
from helpers import literal_routing as literal
from helpers.random_tensors import B, D, E, J, draw
from helpers.routing_cases import NAMES, close, learned, rounds, takes
from scipy.special import digamma

from capsviz.nn import routing
from capsviz.nn.links import Links, convolution_links, of_slots, route_places, softmax

GRID, KERNEL, STRIDE = (2, 3, 4), 2, 1  # 24 children, 6 places of 8 slots
LINKS, PLACES = convolution_links(GRID, KERNEL, STRIDE)
Q, I = LINKS.child.shape
COMPETING = [name for name in NAMES if takes(name, "links")]

every_routing = pytest.mark.parametrize("name", NAMES)
every_competing = pytest.mark.parametrize("name", COMPETING)


def drawn(name, *, scale=1.0, dtype=torch.float64, count=LINKS.count):
    options = learned(name, children=I, dtype=dtype)
    if takes(name, "activations"):
        options["activations"] = draw(B, count, seed=3, dtype=dtype).sigmoid()
    if takes(name, "children"):
        options["children"] = draw(B, count, D, seed=4, dtype=dtype)
    return scale * draw(B, Q, I, J, E, dtype=dtype), options


def per_child(values, links):
    """Sum over all that a child gives: (..., Q, I, J) -> (..., count)."""
    there = links.child.flatten() >= 0
    flat = values.sum(-1).flatten(-2)[..., there]
    total = values.new_zeros(*flat.shape[:-1], links.count)
    return total.index_add(-1, links.child.flatten()[there], flat)


def test_a_place_sees_the_children_of_its_window():
    assert PLACES == (2, 3) and (Q, I) == (6, 8)
    child = LINKS.child.view(*PLACES, GRID[0], KERNEL, KERNEL)
    for row, column, kind, y, x in [(0, 0, 0, 0, 0), (1, 2, 1, 0, 1), (0, 1, 1, 1, 0)]:
        expected = (kind * 3 + row + y) * 4 + column + x
        assert child[row, column, kind, y, x] == expected


def test_a_stride_steps_over_children_and_what_does_not_fit_is_not_seen():
    links, places = convolution_links((1, 5, 6), 3, 2)
    assert places == (2, 2) and links.count == 30
    assert links.child[3].tolist() == [14, 15, 16, 20, 21, 22, 26, 27, 28]


@every_competing
@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_places_compete_as_in_the_literal_loops(name, iterations):
    """A parent is a (place, type): a child's shares go over all that see it."""
    votes, options = drawn(name)
    found = routing.get(name).route(votes, links=LINKS, **options, iterations=iterations)
    more = {"digamma": digamma, "place": lambda parent: parent[0]}
    more = more if name == "variational" else {"floor": 5e-4}
    parents = [(q, j) for q in range(Q) for j in range(J)]
    betas = [{(q, j): options[key][j].item() for q, j in parents} for key in ("beta_u", "beta_a")]
    for b in range(B):
        pairs = {
            (LINKS.child[q, i].item(), (q, j)): votes[b, q, i, j].tolist()
            for q in range(Q)
            for i in range(I)
            for j in range(J)
        }
        active = options["activations"][b].tolist()
        expected = getattr(literal, name)(pairs, active, *betas, iterations, **more)
        for r, what in enumerate(expected):
            for q, j in parents:
                close(found.poses[r, b, q, j], torch.tensor(what.poses[q, j]).double(), 1e-5)
                assert found.activations[r, b, q, j].item() == pytest.approx(
                    what.activations[q, j], rel=1e-7
                )
                for i in range(I):
                    c = what.couplings[LINKS.child[q, i].item(), (q, j)]
                    assert found.couplings[r, b, q, i, j].item() == pytest.approx(c, abs=1e-9)


@every_competing
def test_a_fully_connected_layer_is_one_place(name):
    links = Links(torch.arange(I)[None], I)
    votes, options = drawn(name, count=I)
    places = routing.get(name).route(votes[:, :1], links=links, **options)
    dense = routing.get(name).route(votes[:, 0], **options)
    for a, b in zip(places, dense, strict=True):
        close(a[:, :, 0], b)


@every_routing
def test_slots_without_a_child_change_nothing(name):
    votes, options = drawn(name)
    child = torch.cat((LINKS.child, torch.full((Q, 2), -1)), 1)
    padded = torch.cat((votes, draw(B, Q, 2, J, E, seed=9)), 2)
    longer = {
        key: torch.cat((v, draw(2, *v.shape[1:], seed=8)), 0) if v.shape[:1] == (I,) else v
        for key, v in options.items()
    }
    module = routing.get(name)
    expected = route_places(module.route, votes, links=LINKS, **options, **rounds(name, 2))
    found = route_places(
        module.route, padded, links=Links(child, LINKS.count), **longer, **rounds(name, 2)
    )
    close(found.couplings[:, :, :, :I], expected.couplings)
    close(found.poses, expected.poses)
    close(found.activations, expected.activations)


@every_routing
def test_every_routing_takes_places_and_couplings_that_are_given(name):
    votes, options = drawn(name)
    module = routing.get(name)
    found = route_places(module.route, votes, links=LINKS, **options, **rounds(name, 2))
    R = len(found.poses)
    assert found.logits.shape == found.couplings.shape == (R, B, Q, I, J)
    assert found.poses.shape == (R, B, Q, J, E) and found.activations.shape == (R, B, Q, J)
    if name not in COMPETING:
        own = {
            key: of_slots(value, LINKS)[:, 4] if key in ("activations", "children") else value
            for key, value in options.items()
        }
        alone = module.route(votes[:, 4], **own, **rounds(name, 2))
        for a, b in zip(found, alone, strict=True):
            close(a[:, :, 4], b)
    options["couplings"] = given = draw(Q, I, J, seed=6).softmax(-1)
    found = route_places(module.route, votes, links=LINKS, **options, **rounds(name, 2))
    close(found.couplings, given.expand_as(found.couplings))
    close(found.poses[0], found.poses[-1])


def test_a_softmax_over_links_is_exact_where_logits_are_far_apart():
    logits = 1e4 * draw(B, Q, I, J)
    found = softmax(logits.requires_grad_(), LINKS)
    close(per_child(found, LINKS), torch.ones(B, LINKS.count).double())
    found.square().sum().backward()
    assert logits.grad.isfinite().all()


@every_competing
def test_votes_that_do_not_fit_the_links_are_refused(name):
    votes, options = drawn(name)
    for wrong in (votes[:, 0], votes[:, 1:]):
        with pytest.raises(ValueError, match=r"\(B, Q, I, J, E\) with \(Q, I\) = \(6, 8\), got"):
            routing.get(name).route(wrong, links=LINKS, **options)
    with pytest.raises(ValueError, match=r"activations must be \(B, I\) = \(2, 24\), got .*\(2, 8"):
        routing.get(name).route(votes, links=LINKS, activations=draw(B, I))
