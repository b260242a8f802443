"""Data sets that are made of MNIST: each image follows from its number and the seed."""

import pytest
import torch

from capsviz import data

COUNTED = {"multimnist": "pairs", "affnist_like": "variants"}


@pytest.fixture(params=COUNTED)
def load(request, monkeypatch):
    """Load one of them, of 40 digits of scikit-learn in place of MNIST."""
    few = lambda split, root, *, download: data.load("digits", split).first(40)  # noqa: E731
    monkeypatch.setattr("capsviz.data.mnist.load", few)
    name = request.param
    return lambda count, **more: data.load(name, "test", **{COUNTED[name]: count}, **more)


def test_the_first_images_do_not_depend_on_how_many_are_made(load):
    one, again, other, two = load(1), load(1), load(1, seed=1), load(2)
    assert one.digest == again.digest and one.digest != other.digest
    assert len(one) == 40 and len(two) == 80 and two.first(40).digest == one.digest
    assert not torch.equal(two.images[40:], one.images)
    module = data.module_of(one.name)
    assert (one.image_shape, one.classes) == (module.IMAGE_SHAPE, module.CLASSES)


def test_none_and_more_than_memory_holds_are_refused_before_they_are_made(load):
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        load(0)
    with pytest.raises(MemoryError, match=r"with 1,000,000,000 (\w+) .* GB.*ask for fewer \1"):
        load(1_000_000_000)
