import pytest
import torch

import capsviz
from capsviz import memory, tracing
from capsviz.nn.functional import predict

trace = capsviz.trace
NUMBERS = ("primary", "votes", "logits", "couplings", "poses", "lengths", "reconstruction")


def same(a, b, **tolerance):
    """Two traces hold the same parts with the same numbers."""
    for name in ("images", *NUMBERS):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None), name
        if x is not None:
            torch.testing.assert_close(x, y, **tolerance)
    assert a.grid == b.grid


def test_a_trace_has_every_part_in_the_shape_of_the_legend(network, tiny_images):
    seen = trace(network, tiny_images)
    R, N, I, J, E = seen.poses.shape[0], 8, 12, 3, seen.poses.shape[3]
    assert seen.grid == (2, 3, 2) and torch.equal(seen.images, tiny_images)
    assert seen.primary.shape == (N, I, 4)
    assert seen.votes.shape == (N, I, J, E)
    assert seen.logits.shape == seen.couplings.shape == (R, N, I, J)
    assert seen.poses.shape == (R, N, J, E)
    assert seen.lengths.shape == (N, J)
    assert seen.reconstruction.shape == tiny_images.shape


BLACK = torch.zeros(2, 1, 21, 19)


@pytest.mark.parametrize(
    ("images", "options", "said"),
    [
        (BLACK + 1.01, {}, "images in .* got values from"),
        (BLACK * torch.nan, {}, "got values from"),
        (BLACK[:0], {}, r"float images \(N, C, H, W\), at least"),
        (BLACK.byte(), {}, "float images .*: divide them by 255"),
        (BLACK + 200, {}, "got values from 200 to 200: divide them by 255"),
        (BLACK[0], {}, r"float images .*: for one image pass images\[None\]"),
        (BLACK.numpy(), {}, r"torch.Tensor, got ndarray: torch.from_numpy\(images\)"),
        (BLACK, {"seed": "one"}, "seed must be a whole number"),
        (BLACK, {"keep": "coupling"}, "mean 'couplings'"),
        *((BLACK, {"iterations": n}, f"iterations must be .*{n}") for n in (0, 1.5, "two", True)),
    ],
)
def test_what_cannot_be_traced_is_refused_in_one_line(tiny, images, options, said):
    with pytest.raises((ValueError, TypeError), match=said):
        trace(tiny, images, **options)


def test_a_name_in_place_of_a_network_is_told_how_it_is_loaded():
    with pytest.raises(TypeError, match=r"capsviz.load\('mnist'\)"):
        trace("mnist", BLACK)


def test_a_required_part_is_returned_or_named(network, tiny_images):
    seen = trace(network, tiny_images, keep=("couplings",))
    assert seen.require("couplings") is seen.couplings
    with pytest.raises(ValueError, match="this trace has no votes: ask for it with keep="):
        seen.require("votes")


def test_a_trace_says_what_forward_says(tiny, tiny_images):
    seen = trace(tiny, tiny_images)
    with torch.inference_mode():
        output = tiny(tiny_images)
        made = tiny.decode(output.poses, predict(output.lengths))
    torch.testing.assert_close(seen.primary, output.primary)
    torch.testing.assert_close(seen.poses[-1], output.poses, rtol=0, atol=1e-5)
    torch.testing.assert_close(seen.lengths, output.lengths, rtol=0, atol=1e-5)
    torch.testing.assert_close(seen.reconstruction, made, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", NUMBERS)
def test_keep_returns_that_part_alone_and_the_same(network, tiny_images, name):
    seen, whole = trace(network, tiny_images, keep=(name,)), trace(network, tiny_images)
    torch.testing.assert_close(getattr(seen, name), getattr(whole, name), rtol=0, atol=1e-5)
    assert all(getattr(seen, other) is None for other in NUMBERS if other != name)


def test_votes_are_not_made_where_no_one_asks_for_them(tiny, tiny_images, monkeypatch):
    monkeypatch.setattr(tiny.capsules, "votes", None)
    trace(tiny, tiny_images, keep=("primary", "lengths", "reconstruction"))
    with pytest.raises(TypeError):
        trace(tiny, tiny_images, keep=("couplings",))


@pytest.mark.parametrize(("chunk", "couplings"), [(1, None), (3, "uniform")])
def test_chunks_give_the_same_answer(network, tiny_images, chunk, couplings, monkeypatch):
    whole = trace(network, tiny_images, couplings=couplings)
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 2 * chunk)  # half, with votes
    parts = trace(network, tiny_images, couplings=couplings)
    same(parts, whole, rtol=0, atol=1e-5)


def test_the_chunk_is_chosen_by_the_size_of_one_images_trace(tiny, tiny_images, monkeypatch):
    batches = []
    look = tiny.look
    monkeypatch.setattr(tiny, "look", lambda x, **o: batches.append(len(x)) or look(x, **o))
    one = sum(v.numel() * v.element_size() for v in look(tiny_images[:1], keep=NUMBERS).values())
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_BYTES", 3 * one)
    trace(tiny, tiny_images)
    assert batches == [1, 3, 3, 2]


@pytest.mark.parametrize(
    ("training", "mixed", "fails"),
    [(True, False, False), (False, True, False), (True, True, True), (False, False, True)],
)
def test_the_network_is_left_as_it_was_found(
    tiny, tiny_images, training, mixed, fails, monkeypatch
):
    tiny.train(training)
    if mixed:
        tiny.decoder.train(not training)  # as someone does who trains a part of it
    modes = [module.training for module in tiny.modules()]
    state = {name: value.clone() for name, value in tiny.state_dict().items()}
    if fails:
        monkeypatch.setattr(tiny, "decode", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            trace(tiny, tiny_images)
    else:
        trace(tiny, tiny_images)
    assert [module.training for module in tiny.modules()] == modes
    assert all(torch.equal(value, state[name]) for name, value in tiny.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in tiny.parameters())
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_the_network_is_looked_at_in_evaluation_mode(tiny, tiny_images, monkeypatch):
    modes = []
    look = tiny.look
    monkeypatch.setattr(tiny, "look", lambda *a, **o: modes.append(tiny.training) or look(*a, **o))
    trace(tiny.train(), tiny_images)
    assert set(modes) == {False}


def test_the_last_of_several_that_look_puts_the_mode_back(tiny):
    first, second = tracing.evaluating(tiny.train()), tracing.evaluating(tiny)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not any(module.training for module in tiny.modules()), "the second is not done"
    second.__exit__(None, None, None)
    assert all(module.training for module in tiny.modules())


def test_a_trace_can_be_differentiated_from(tiny, tiny_images):
    seen = trace(tiny, tiny_images, keep=("poses", "lengths"))
    poses = seen.poses[-1].clone().requires_grad_()
    tiny.decode(poses, seen.lengths.argmax(1)).sum().backward()
    assert poses.grad.abs().sum() > 0


@pytest.mark.parametrize(
    ("of_images", "of_network"),
    [(torch.float32, torch.float64), (torch.float64, torch.float32)],
)
def test_images_and_network_may_differ_in_precision(tiny, tiny_images, of_images, of_network):
    expected = trace(tiny, tiny_images, keep=("lengths",)).lengths
    found = trace(tiny.to(of_network), tiny_images.to(of_images), keep=("lengths",)).lengths
    torch.testing.assert_close(found.float(), expected, rtol=0, atol=1e-5)


def test_more_images_than_memory_holds_are_refused_with_the_size(tiny, tiny_images, monkeypatch):
    votes, lengths = 8 * 12 * 3 * 6 * 4, 8 * 3 * 4  # of 8 images: I, J, E, bytes
    needed = votes + lengths
    monkeypatch.setattr(memory, "available", lambda device="cpu": needed)
    trace(tiny, tiny_images, keep=("votes", "lengths"))
    monkeypatch.setattr(memory, "available", lambda device="cpu": needed - 1)
    with pytest.raises(MemoryError, match=r"trace of 8 images needs 0.01 MB.*keep="):
        trace(tiny, tiny_images, keep=("votes", "lengths"))
    trace(tiny, tiny_images, keep=("lengths",))


def test_a_part_that_only_some_batches_have_is_not_in_a_trace(tiny, tiny_images, monkeypatch):
    look = tiny.look

    def some(images, **options):
        shown = look(images, **options)
        return shown if len(images) == 3 else {"lengths": shown["lengths"]}

    monkeypatch.setattr(tiny, "look", some)
    monkeypatch.setattr("capsviz.tracing.forward.CHUNK_IMAGES", 3)
    traced = trace(tiny, tiny_images, keep=("reconstruction", "lengths"))
    assert traced.reconstruction is None and len(traced.lengths) == len(tiny_images) == 8


def test_large_images_are_looked_at_fewer_at_a_time():
    from capsviz.nn import models

    with torch.device("meta"):
        small, large = (models.build("capsnet", (1, size, size), 10) for size in (28, 96))
    assert tracing.images_at_a_time(small) == tracing.CHUNK_IMAGES
    some = tracing.images_at_a_time(large)
    assert 1 < some < tracing.CHUNK_IMAGES
    assert some * large.image_bytes <= tracing.forward.PASS_BYTES
    assert tracing.images_at_a_time(torch.nn.Linear(1, 1)) == tracing.CHUNK_IMAGES


def test_a_trace_is_shown_by_the_shapes_of_its_parts(network, tiny_images):
    text = repr(trace(network, tiny_images[:2], keep=("couplings",)))
    assert text.startswith("Trace(images=(2, 1, 21, 19), ") and "couplings=(" in text
    assert "tensor" not in text and "votes" not in text


def test_a_trace_has_its_own_images(tiny, tiny_images):
    given = tiny_images.clone()
    own = trace(tiny, given).images
    given.zero_()
    assert torch.equal(own, tiny_images)
