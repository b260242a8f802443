"""Checks of routed layers before that of the classes: what is planted in these is told of them."""

import pytest
import torch
from torch import nn
from torch.nn.functional import relu, softmax

from capsviz import checks

ROUTED = ("wrong_softmax_axis", "wrong_agreement", "detached_gradients", "wrong_class_squash")
PRIMARY = ("unsquashed_primary", "mixed_positions")
EVERY = (*ROUTED, "constant_couplings", *PRIMARY, "wrong_squash_axis", "relu_before_squash",
         "nan_at_zero", "nan_at_long_capsules")  # fmt: skip


def squash(s, dim=-1):
    square = s.square().sum(dim, keepdim=True)
    return square / (1 + square) * s / (square + 1e-9).sqrt()


class Routed(nn.Module):
    """Dynamic routing, in which `mistake` is planted."""

    def __init__(self, children, numbers, parents, pose, mistake=None):
        super().__init__()
        self.matrices = nn.Parameter(torch.randn(children, parents, pose, numbers))
        self.mistake = mistake

    def forward(self, u):
        votes = torch.einsum("ijed,bid->bije", self.matrices, u)
        votes = votes.detach() if self.mistake == "detached_gradients" else votes
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            couplings = softmax(logits, 1 if self.mistake == "wrong_softmax_axis" else 2)
            s = (couplings[..., None] * votes).sum(1)
            dim = 1 if self.mistake == "wrong_class_squash" else 2
            v = s if self.mistake == "none" else squash(s, dim)
            agreed = (votes * v[:, None]).sum(-1)
            logits = logits - agreed if self.mistake == "wrong_agreement" else logits + agreed
        return v


class Deep(nn.Module):
    """Primary capsules, capsules between, capsules of classes."""

    def __init__(self, mistake=None):
        super().__init__()
        self.mistake = mistake
        self.features, self.primary = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 32, 5, 2)
        self.between = Routed(4 * 9, 8, 6, 5, mistake)
        self.classes = Routed(6, 5, 3, 7)

    def forward(self, images):
        u = self.primary(relu(self.features(images)))  # (B, 32, 3, 3)
        if self.mistake == "mixed_positions":
            u = u.reshape(len(u), 36, 8)
        else:
            u = u.unflatten(1, (4, 8)).movedim(2, 4).flatten(1, 3)
        if self.mistake != "unsquashed_primary":
            u = squash(u)
        return self.classes(self.between(u)).norm(dim=-1)


def examined(mistake=None):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Deep(mistake).eval()
    report = checks.run(network, (1, 13, 13), 3, only=EVERY)
    return {verdict.check: verdict for verdict in report.verdicts}


def test_a_deep_network_that_is_right_passes():
    verdicts = examined()
    assert {verdicts[name].status for name in EVERY} == {"PASS"}


@pytest.mark.parametrize("mistake", [*PRIMARY, *ROUTED])
def test_a_mistake_before_the_last_layer_fails_and_in_a_routed_one_it_says_where(mistake):
    verdicts = examined(mistake)
    assert [name for name, one in verdicts.items() if one.status == "FAIL"] == [mistake]
    assert mistake in PRIMARY or "between" in verdicts[mistake].message


def test_a_layer_before_that_is_not_squashed_fails_where_lengths_are_presence():
    verdict = examined("none")["wrong_class_squash"]
    assert verdict.status == "FAIL" and "36 children to 6 parents in between" in verdict.message


def test_nothing_is_looked_at_in_training_mode():
    """A pass in training mode would move the statistics of batch norms, and what follows."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = Deep().train()
    modes = []
    network.between.register_forward_hook(lambda module, *_: modes.append(module.training))
    checks.run(network, (1, 13, 13), 3, only=EVERY)
    assert modes and not any(modes) and network.between.training
