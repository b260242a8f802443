"""Inside `tracing.remember()` an equal question is answered without running the network again."""

import weakref

import pytest
import torch
from helpers.fixtures import build_strong

import capsviz
from capsviz.tracing import remember

trace = capsviz.trace


@pytest.fixture
def looked(tiny, monkeypatch):
    """How many images each run of `tiny` looked at."""
    batches, look = [], tiny.look
    monkeypatch.setattr(tiny, "look", lambda x, **o: batches.append(len(x)) or look(x, **o))
    return batches


def test_an_equal_call_is_answered_from_the_first(tiny, tiny_images, looked):
    expected = trace(tiny, tiny_images, keep=("lengths",)).lengths
    looked.clear()
    with remember():
        whole = trace(tiny, tiny_images)
        runs = len(looked)
        again = trace(tiny, tiny_images)
        part = trace(tiny, tiny_images, keep=("lengths",), chunk=3)
    assert len(looked) == runs
    assert torch.equal(again.couplings, whole.couplings)
    torch.testing.assert_close(part.lengths, expected)
    assert part.couplings is None and part.votes is None


@pytest.mark.parametrize(
    "other",
    [
        {"keep": ("poses", "lengths")},
        {"keep": ("lengths",), "couplings": "uniform"},
        {"keep": ("lengths",), "couplings": "random", "seed": 1},
        {"keep": ("lengths",), "iterations": 1},
    ],
    ids=["more parts", "uniform", "random", "iterations"],
)
def test_another_question_is_not(tiny, tiny_images, looked, other):
    expected = trace(tiny, tiny_images, **other).lengths
    with remember():
        trace(tiny, tiny_images, keep=("lengths",))
        trace(tiny, tiny_images, keep=("lengths",), couplings="random", seed=0)
        looked.clear()
        found = trace(tiny, tiny_images, **other).lengths
    assert sum(looked) >= 8
    torch.testing.assert_close(found, expected)


def test_other_images_are_not(tiny, tiny_images):
    flipped = tiny_images.flip(3)
    views = (tiny_images[:4], tiny_images[4:], tiny_images[::2], flipped)
    expected = [trace(tiny, x, keep=("lengths",)).lengths for x in views]
    with remember():
        trace(tiny, tiny_images, keep=("lengths",))
        for images, lengths in zip(views, expected, strict=True):
            torch.testing.assert_close(trace(tiny, images, keep=("lengths",)).lengths, lengths)


def test_a_network_whose_weights_were_written_to_is_looked_at_anew(tiny, tiny_images):
    def ask():
        return trace(tiny, tiny_images, keep=("lengths",)).lengths

    with remember():
        before = ask()
        with torch.no_grad():
            tiny.capsules.weight.mul_(0.5)
        after = ask()
        tiny.capsules.weight = torch.nn.Parameter(tiny.capsules.weight * 2)
        again = ask()
    assert not torch.allclose(before, after)
    torch.testing.assert_close(again, before)


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_a_fused_step_of_an_optimiser_is_noticed(tiny, tiny_images, kind):
    optimiser = kind(tiny.parameters(), lr=0.05, fused=True)
    with remember():
        before = trace(tiny, tiny_images, keep=("lengths",)).lengths
        tiny(tiny_images).lengths.sum().backward()
        optimiser.step()
        after = trace(tiny, tiny_images, keep=("lengths",)).lengths
    assert not torch.allclose(before, after)
    assert trace(tiny, tiny_images, keep=("lengths",)).lengths.equal(after)


def test_given_couplings_are_not(tiny, tiny_images):
    given = torch.full((12, 3), 1 / 3)
    with remember():
        before = trace(tiny, tiny_images, keep=("lengths",), couplings=given).lengths
        given[:] = torch.tensor([1.0, 0.0, 0.0])
        after = trace(tiny, tiny_images, keep=("lengths",), couplings=given).lengths
    assert not torch.allclose(before, after)


def test_nothing_is_remembered_outside_also_after_an_error(tiny, tiny_images, looked):
    with pytest.raises(ZeroDivisionError), remember():
        trace(tiny, tiny_images)
        raise ZeroDivisionError
    runs = len(looked)
    trace(tiny, tiny_images)
    trace(tiny, tiny_images)
    assert len(looked) == 3 * runs


def test_a_network_that_nobody_needs_any_more_goes(tiny_images):
    network = build_strong()
    gone = weakref.ref(network)
    with remember():
        trace(network, tiny_images)
        del network
        assert gone() is None


def test_another_precision_is_another_question(tiny, tiny_images, looked):
    with remember():
        with torch.autocast("cpu", torch.bfloat16):
            trace(tiny, tiny_images)
        looked.clear()
        trace(tiny, tiny_images)
        assert looked
        with capsviz.literal():
            looked.clear()
            trace(tiny, tiny_images)
        assert looked


@pytest.mark.parametrize(
    "change", [lambda w: w.flip(1), lambda w: -w, lambda w: w[torch.randperm(len(w))]]
)
def test_weights_in_another_order_are_noticed(tiny_images, change):
    model = build_strong()
    weight = model.capsules.weight
    with remember():
        before = trace(model, tiny_images, keep=("poses",)).poses
        weight.data.copy_(change(weight.data.clone()))
        after = trace(model, tiny_images, keep=("poses",)).poses
    torch.testing.assert_close(after, trace(model, tiny_images, keep=("poses",)).poses)
    assert not torch.equal(before, after)
