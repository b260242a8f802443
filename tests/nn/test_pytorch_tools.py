"""PyTorch's own tools work on our networks and on wrapped ones, or a sentence names the cure."""

import copy
import functools
import io
import pickle
import warnings
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.optim.swa_utils import AveragedModel
from torch.utils.checkpoint import checkpoint

import capsviz
from capsviz.checkpoint import read_tensors
from capsviz.data import Dataset
from capsviz.nn import routing
from tests.helpers.wrappable_capsnet import build

SHAPE = (1, 28, 28)
LAYERS = ("conv1", "primary.convolution", "capsules")
IMAGES = torch.rand(4, *SHAPE, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(4) % 3
DATA = Dataset(torch.zeros(4, *SHAPE, dtype=torch.uint8), LABELS, ("a", "b", "c"), "mine", "x")


def ours():
    torch.manual_seed(0)
    return capsviz.CapsNet(SHAPE, 3, types=2, channels=5, hidden=(6, 7)).eval()


def wrapped():
    return capsviz.wrap(build(), SHAPE, 10)


def lengths(network):
    return capsviz.trace(network, IMAGES).lengths


def train(network, steps=2):
    """The training steps of a loop that anybody writes."""
    optimiser = torch.optim.Adam(network.train().parameters(), 1e-2)
    for _ in range(steps):
        loss = network.objective(network(IMAGES), IMAGES, LABELS).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network.eval()


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("method", ["l1_unstructured", "ln_structured"])
def test_a_pruned_network_is_the_one_with_zeros_and_keeps_them_in_training(layer, method):
    network, same = ours(), ours()
    module, options = network.get_submodule(layer), {"n": 2, "dim": 0}
    getattr(prune, method)(module, "weight", 0.5, **options if method == "ln_structured" else {})
    with torch.no_grad():
        same.get_submodule(layer).weight.mul_(module.weight_mask)
    assert torch.allclose(lengths(network), lengths(same), atol=1e-6)
    before = module.weight_orig.detach().clone()
    train(network)
    assert not torch.equal(module.weight_orig, before)
    assert (module.weight == 0).float().mean() == pytest.approx(0.5, abs=0.11)
    pruned = lengths(network)
    prune.remove(module, "weight")
    assert torch.equal(lengths(network), pruned)


def test_weights_of_all_layers_are_pruned_together_in_one_memory_layout():
    network = ours().to(memory_format=torch.contiguous_format)  # the cure that the docs name
    chosen = [(network.get_submodule(layer), "weight") for layer in LAYERS]
    prune.global_unstructured(chosen, pruning_method=prune.L1Unstructured, amount=0.5)
    zeros = sum(int((module.weight == 0).sum()) for module, _ in chosen)
    assert zeros == round(0.5 * sum(module.weight.numel() for module, _ in chosen))
    train(network)


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("norm", [nn.utils.weight_norm, parametrizations.weight_norm])
def test_a_normed_weight_is_the_same_network_and_learns(layer, norm):
    network = ours()
    norm(network.get_submodule(layer))
    assert torch.allclose(lengths(network), lengths(ours()), atol=1e-6)
    train(network)
    assert not torch.allclose(lengths(network), lengths(ours()), atol=1e-4)


def test_hooks_of_every_layer_with_a_forward_of_its_own_fire():
    network, seen = ours(), []
    for layer in ("conv1", "primary", "primary.convolution"):
        network.get_submodule(layer).register_forward_hook(lambda *_, name=layer: seen.append(name))
    network(IMAGES)
    assert seen == ["conv1", "primary.convolution", "primary"]


@pytest.mark.filterwarnings("ignore:torch.ao.quantization is deprecated")
def test_a_quantised_decoder_changes_the_reconstruction_alone():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = torch.ao.quantization.quantize_dynamic(ours(), {nn.Linear})
    before, after = (capsviz.trace(one, IMAGES) for one in (ours(), network))
    assert torch.equal(after.lengths, before.lengths)
    assert 0 < (after.reconstruction - before.reconstruction).abs().max() < 0.05


@pytest.mark.parametrize(
    ("make", "copied"),
    [*product([ours, wrapped], ["deepcopy", "share_memory", "compile"]),
     (ours, "pickle"), (ours, "torch.save")],
)  # fmt: skip
def test_a_copy_shows_the_same(make, copied):
    network, file = make(), io.BytesIO()
    network.card = {"name": "mine", "dataset": {"name": "digits"}}
    if copied == "torch.save":
        torch.save(network, file)
        file.seek(0)
    other = {
        "deepcopy": lambda: copy.deepcopy(network),
        "pickle": lambda: pickle.loads(pickle.dumps(network)),
        "torch.save": lambda: torch.load(file, weights_only=False),
        "share_memory": lambda: make().share_memory(),
        "compile": lambda: torch.compile(make(), backend="eager"),
    }[copied]()
    traced, expected = (capsviz.trace(one, IMAGES) for one in (other, network))
    assert torch.equal(traced.couplings, expected.couplings)
    assert other.training == network.training
    if copied in ("deepcopy", "pickle", "torch.save"):
        assert other.card == network.card


@pytest.mark.parametrize("hold", [nn.DataParallel, AveragedModel, torch.compile])
def test_a_network_held_by_a_module_of_torch_is_found_in_it(hold, tmp_path):
    path = capsviz.save(hold(ours()), tmp_path, DATA)
    assert read_tensors(path)[0].keys() == ours().state_dict().keys()
    assert torch.equal(lengths(capsviz.wrap(hold(build()), SHAPE, 10)), lengths(wrapped()))
    if hold is not torch.compile:
        with pytest.raises(ValueError, match=r"holds the network: give its `.module`"):
            capsviz.trace(hold(ours()), IMAGES)


def test_names_of_pruned_weights_are_refused_with_what_to_do(tmp_path):
    network = ours()
    prune.l1_unstructured(network.conv1, "weight", 0.5)
    with pytest.raises(ValueError, match=r"permanent first .*prune.remove"):
        capsviz.save(network, tmp_path, DATA)


@pytest.mark.parametrize("name", routing.available())
def test_gradient_checkpointing_gives_the_same_gradients(name):
    torch.manual_seed(0)
    network = capsviz.CapsNet(SHAPE, 3, types=2, channels=8, hidden=(6, 7), routing=name)
    whole = functools.partial(checkpoint, network, use_reentrant=False)
    expected, found = (
        torch.autograd.grad(
            network.objective(forward(IMAGES), IMAGES, LABELS).loss, network.parameters()
        )
        for forward in (network, whole)
    )
    for a, b in zip(found, expected, strict=True):
        assert torch.equal(a, b)
