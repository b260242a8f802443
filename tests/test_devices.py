"""Everything works on a device without float64: tensors come to the CPU before they are doubled."""

import pytest
import torch
from helpers.fixtures import build_strong
from helpers.other_devices import Metal, on_metal
from helpers.wrappable_capsnet import build

import capsviz
from capsviz.data import load
from capsviz.inputs.opening import choose_device
from capsviz.nn import models
from capsviz.tracing.outputs import features
from capsviz.training.evaluate import evaluate
from capsviz.training.thresholds import thresholds

IMAGES, LABELS = load("digits", "test").first(12).images / 255, load("digits", "test").labels[:12]


def wrapped(moved):
    return capsviz.wrap(on_metal(build()) if moved else build(), (1, 28, 28), 10)


def capsnet(moved):
    network = build_strong(shape=(1, 28, 28), classes=10)
    return on_metal(network) if moved else network


def cnn(moved):
    torch.manual_seed(0)
    network = models.build("cnn", (1, 28, 28), 10, channels=(4, 5), hidden=(8, 9)).eval()
    return on_metal(network) if moved else network


def test_the_stand_in_refuses_float64_as_such_a_device_does():
    one = torch.ones(2).as_subclass(Metal)
    with pytest.raises(TypeError, match="float64"):
        (one + 1).double()
    assert type(one.cpu().double()) is torch.Tensor


@pytest.mark.parametrize(
    ("make", "compute"),
    [
        (capsnet, lambda net: capsviz.trace(net, IMAGES, couplings="matched").lengths),
        (wrapped, lambda net: capsviz.trace(net, IMAGES).couplings),
        (capsnet, lambda net: features(net, IMAGES, LABELS)),
        (cnn, lambda net: features(net, IMAGES, LABELS)),
        (capsnet, lambda net: evaluate(net, load("digits", "test").first(40)).margin_loss),
        (capsnet, lambda net: list(thresholds(net, load("digits", "validation")).values())[:2]),
    ],
)
def test_results_are_those_of_the_cpu(make, compute):
    one, other = (torch.as_tensor(compute(make(moved))) for moved in (False, True))
    assert type(other) is torch.Tensor
    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("count", "named"),
    [
        (0, {"auto": "cpu", "cpu": "cpu"}),
        (1, {"auto": "cuda", "cuda": "cuda", "cuda:0": "cuda:0"}),
        (2, {"auto": "cuda:0", "cuda": "cuda:0", "cuda:1": "cuda:1"}),
    ],
)
def test_gpus_are_told_by_their_numbers_where_there_are_several(count, named, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    assert {name: str(choose_device(name)) for name in named} == named
    expected = "expected auto, " + ["cpu", "cuda, cpu", "cuda:0, cuda:1, cpu"][count]
    with pytest.raises(ValueError, match=f"^device 'cuda:{count}' is not available.*{expected}$"):
        choose_device(f"cuda:{count}")


def test_checks_find_the_same():
    one, other = (capsviz.checks.run(capsnet(moved)).verdicts for moved in (False, True))
    assert [(v.check, v.status) for v in one] == [(v.check, v.status) for v in other]
