"""The moments of votes under a mixture, block by block, against sums over votes that are there."""

import pytest
import torch
from helpers.random_tensors import B, D, E, I, J, draw, votes_of
from helpers.routing_cases import close

from capsviz.nn import routing
from capsviz.nn.routing import _parts
from capsviz.nn.routing._attend import batch_last
from capsviz.nn.routing._mixture import even_moments, mixture


def drawn(children=I, dtype=torch.float64):
    """Children, weight, activations, centre, precision, constant."""
    return (
        draw(B, children, D, seed=1, dtype=dtype),
        draw(children, J, E, D, seed=2, dtype=dtype),
        draw(B, children, seed=3, dtype=dtype).sigmoid(),
        draw(B, J, E, seed=4, dtype=dtype),
        draw(B, J, E, seed=5, dtype=dtype).exp(),
        draw(B, J, seed=6, dtype=dtype),
    )


def shared(children, weight, activations, centre, precision, constant):
    """Votes, and the weight of each (B, I, J, 1)."""
    votes = votes_of(children, weight)
    far = (precision[:, None] * (votes - centre[:, None]).square()).sum(3)
    return votes, (activations[..., None] * (constant[:, None] - far / 2).softmax(2))[..., None]


def literally(*inputs):
    votes, w = shared(*inputs)
    far = (votes - inputs[3][:, None]).square()
    return w.sum(1)[..., 0], (w * votes).sum(1), (w * far).sum(1)


def evenly(children, weight, activations):
    """The mass, the mean of the votes, and the sum of their squares about it."""
    votes = votes_of(children, weight)
    w = activations[..., None, None].expand(*votes.shape[:3], 1) / J
    mean = (w * votes).sum(1) / w.sum(1)
    return w.sum(1)[..., 0], mean, (w * (votes - mean[:, None]).square()).sum(1)


def blocked(children, weight, *others):
    return mixture(*batch_last(children, weight), *others)[:3]


def blocked_evenly(children, weight, activations):
    moments = even_moments(*batch_last(children, weight), activations)
    return moments.mass, *moments.about_mean()


def with_gradients(function, inputs):
    inputs = [x.detach().clone().requires_grad_() for x in inputs]
    parts = function(*inputs)
    loss = sum((p * torch.linspace(-1, 2, p.numel()).to(p).view_as(p)).sum() for p in parts)
    return *parts, *torch.autograd.grad(loss, inputs)


@pytest.mark.parametrize("block", [1, 4, 1000])
@pytest.mark.parametrize(
    ("fused", "slow", "count"), [(blocked, literally, 6), (blocked_evenly, evenly, 3)]
)
def test_the_moments_are_the_sums_over_children(block, fused, slow, count, monkeypatch):
    monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", block * J * E * B * 8)
    inputs = drawn(children=23)[:count]
    for a, b in zip(with_gradients(fused, inputs), with_gradients(slow, inputs), strict=True):
        close(a, b)


@pytest.mark.parametrize(("function", "count"), [(blocked, 6), (blocked_evenly, 3)])
def test_gradients_are_right_twice(function, count):
    inputs = [x.requires_grad_() for x in drawn()[:count]]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


def test_the_moments_about_the_mean_are_those_of_all_votes():
    inputs = drawn(children=9)
    moments = mixture(*batch_last(*inputs[:2]), *inputs[2:])
    mean, scatter = moments.about_mean()
    close(mean, moments.first / moments.mass[..., None])
    votes, w = shared(*inputs)
    close(scatter, (w * (votes - mean[:, None]).square()).sum(1))


def test_variances_keep_their_digits_where_means_are_large():
    children, weight, activations, *_ = drawn(children=40, dtype=torch.float32)
    far = torch.cat((children, torch.ones(B, 40, 1)), 2)  # one more number moves all votes
    moved = torch.cat((weight, torch.full((40, J, E, 1), 1e3)), 3)
    _, expected = even_moments(
        *batch_last(children.double(), weight.double()), activations.double()
    ).about_mean()
    _, found = even_moments(*batch_last(far, moved), activations).about_mean()
    close(found.double() / expected, torch.ones_like(expected), 1e-3)


def test_where_no_child_is_active_all_moments_are_zero():
    children, weight, activations, *others = drawn()
    moments = mixture(*batch_last(children, weight), 0 * activations, *others)
    for part in moments[:3]:
        assert not part.any()
    for part in moments.about_mean():
        assert part.isfinite().all()


@pytest.mark.parametrize("name", ["em", "variational"])
def test_where_one_child_alone_is_active_gradients_are_those_of_route(name):
    """Its scatter is 0 but for rounding, which may fall below it."""
    children, weight, *_ = drawn(children=8)
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
