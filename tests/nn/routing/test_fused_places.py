"""Fused forms on the places of a convolution: equal to `route` on votes that are there."""

import pytest
import torch
from helpers.random_tensors import B, D, E, J, draw
from helpers.routing_cases import FUSED, close, learned, rounds, takes

from capsviz.nn import routing
from capsviz.nn.links import Links, convolution_links, fuse_places, of_slots, route_places, softmax
from capsviz.nn.routing import _mixture, _parts

WINDOWS, _ = convolution_links((3, 3, 4), 2, 1)  # 36 children, 6 places of 12 slots
STRIDED, _ = convolution_links((3, 5, 5), 3, 2)
MIXED = Links(torch.tensor([[0, 2, 5], [1, 3, 0], [4, -1, 2]]), 6)  # no type lies by itself
PADDED = Links(torch.tensor([[0, -1, 3, 2], [1, 0, -1, 3]]), 4)
LINKS = pytest.mark.parametrize("links", [WINDOWS, STRIDED, MIXED, PADDED], ids=range(4))
COMPETING = [name for name in FUSED if takes(name, "links")]
every_fused = pytest.mark.parametrize("name", FUSED)
every_competing = pytest.mark.parametrize("name", COMPETING)


def drawn(name, links, dtype=torch.float64):
    slots = links.child.shape[1]
    options = learned(name, children=slots, dtype=dtype)
    if takes(name, "activations"):
        options["activations"] = draw(B, links.count, seed=3, dtype=dtype).sigmoid()
    children = draw(B, links.count, D, seed=4, dtype=dtype)
    return children, draw(slots, J, E, D, seed=5, dtype=dtype), options


def literally(name, children, weight, links, options, iterations=3):
    slots = of_slots(children, links)
    votes = torch.einsum("ijed,bqid->bqije", weight, slots)
    more = {"children": children} if takes(name, "children") else {}
    given = {**options, **more, **rounds(name, iterations)}
    found = route_places(routing.get(name).route, votes, links=links, **given)
    return found.poses[-1], found.activations[-1]


def fused(name, children, weight, links, options, iterations=3):
    given = {**options, **rounds(name, iterations)}
    return fuse_places(routing.get(name).fused, children, weight, links, **given)


def with_gradients(function, name, links, iterations=3):
    children, weight, options = drawn(name, links)
    tensors = {"children": children, "weight matrices": weight, **options}
    for tensor in tensors.values():
        tensor.requires_grad_()
    parents = function(name, children, weight, links, options, iterations)
    loss = sum((p * torch.linspace(-1, 2, p.numel()).view_as(p)).sum() for p in parents)
    found = torch.autograd.grad(loss, tensors.values(), materialize_grads=True)
    return [*parents, *found]


@every_fused
@LINKS
@pytest.mark.parametrize("size", [1, 3000, None])
def test_fused_places_are_route_on_their_votes_with_gradients(name, links, size, monkeypatch):
    if size is not None:
        monkeypatch.setattr(_parts, "CPU_BLOCK_BYTES", size)
    found = with_gradients(fused, name, links)
    for a, b in zip(found, with_gradients(literally, name, links), strict=True):
        close(a, b)


def test_no_child_is_in_two_blocks_and_a_convolution_has_one_for_each_type():
    for links, blocks in ((WINDOWS, 3), (STRIDED, 3), (MIXED, 1), (PADDED, 2)):
        made = _mixture.blocks(links, links.child.shape[1], 2**40, torch.device("cpu"))
        assert len(made) == blocks
        assert [n for b in made for n in range(b.start, b.stop)] == [*range(made[-1].stop)]
        children = [set(links.child[:, block].flatten().tolist()) - {-1} for block in made]
        assert len(set.union(*children)) == sum(map(len, children))
    joined = _mixture.blocks(WINDOWS, 12, 1, torch.device("cpu"))
    assert len(joined) == 1, "what fits is computed at once"


@LINKS
def test_shares_are_the_softmax_over_all_parents_that_see_a_child(links):
    Q, I = links.child.shape
    logits = draw(B, Q, I, J, seed=7) * 30
    expected = softmax(logits, links)
    slots = logits.permute(2, 3, 0, 1).flatten(2)  # (I, J, B * Q)
    found = torch.cat(
        [
            _mixture.shared(links, slots[block], block)
            for block in _mixture.blocks(links, I, 2**40, logits.device)
        ]
    )
    close(found, expected.permute(2, 3, 0, 1).flatten(2))


def test_votes_are_not_held():
    links, _ = convolution_links((8, 10, 10), 3, 2)
    children = torch.randn(16, links.count, 16)
    weight = torch.randn(72, 16, 16, 16)
    votes = 16 * 16 * 72 * 16 * 16 * 4  # bytes: images, places, slots, parents, numbers
    presence = torch.rand(16, links.count)
    largest = 0

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            out = function(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor):
                largest = max(largest, out.untyped_storage().nbytes())
            return out

    with Sizes():
        routing.get("em").fused(children, weight, activations=presence, links=links)
    assert largest < votes / 8


@every_competing
@pytest.mark.parametrize("iterations", [2, 5])
def test_no_number_is_read_off_a_tensor_which_a_gpu_would_be_waited_for(name, iterations):
    links, _ = convolution_links((4, 6, 6), 3, 1)
    read = 0

    class Reads(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal read
            read += function is torch.ops.aten._local_scalar_dense.default
            return function(*args, **(kwargs or {}))

    with Reads():
        with_gradients(fused, name, links, iterations)
    assert read == 0


@every_competing
def test_what_is_kept_of_links_serves_training_after_inference(name):
    links, _ = convolution_links((2, 4, 4), 3, 1)
    with torch.inference_mode():
        children, weight, options = drawn(name, links)
        fused(name, children, weight, links, options)
    children, weight, options = drawn(name, links)
    given = [x.requires_grad_() for x in (children, weight)]
    loss = fused(name, *given, links, options).poses.square().sum()
    torch.autograd.grad(loss, given)
