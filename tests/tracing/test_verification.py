"""The first trace of a hand-written `look` names each honest mistake in one line."""

import pytest
import torch
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign
from torch import nn

import capsviz
from capsviz.nn import routing
from capsviz.tracing import network, verification

J, D, E, GRID = 3, 4, 6, (2, 3, 4)


class Honest(nn.Module):
    """Capsule (type, row, column) sees its own patch of 7 × 6 pixels of an image (1, 21, 21)."""

    decoder = None

    def __init__(self, **changes):
        super().__init__()
        torch.manual_seed(0)
        self.patch = nn.Linear(42, GRID[0] * D)
        self.matrices = nn.Parameter(torch.randn(24, J, E, D) * changes.get("scale", 1))
        self.config = {"image_shape": (1, 21, 21), "classes": J}
        self.changes = changes
        self.grid = changes.get("grid", GRID)

    def receptive_field(self, row, column):
        return slice(7 * row, 7 * row + 7), slice(5 * column, 5 * column + 6)

    def look(self, images, *, keep, couplings=None, iterations=None):
        change = self.changes
        patches = images[:, 0].unfold(1, 7, 7).unfold(2, 6, 5).flatten(3)  # (B, 3, 4, 42)
        places = torch.tanh(self.patch(patches)).unflatten(3, (GRID[0], D))
        order = (0, 1, 2, 3, 4) if change.get("by_place") else (0, 3, 1, 2, 4)
        primary = places.permute(order).flatten(1, 3)
        votes = torch.einsum("ijed,bid->bije", self.matrices, primary)
        b, history = torch.zeros(votes.shape[:3]), []
        if change.get("ignores"):
            couplings = None
        if change.get("overwrites") and couplings is not None:
            couplings.fill_(1 / J)
        for _ in range(iterations or 2):
            axis = 1 if change.get("over_children") else 2
            c = b.softmax(axis) if couplings is None else couplings.expand(votes.shape[:3])
            s = torch.einsum("bij,bije->bje", c, votes)
            v = s * s.norm(dim=2, keepdim=True) / (1 + s.norm(dim=2, keepdim=True) ** 2)
            history.append((b, c, v))
            agreed = torch.einsum("bije,bje->bij", votes, v)
            b = b + (agreed.mean(0) if change.get("shares") else agreed)
        b, c, v = (torch.stack(part) for part in zip(*history, strict=True))
        parts = {"primary": primary, "votes": votes, "logits": b, "couplings": c, "poses": v}
        parts["lengths"] = v[-1].norm(dim=2)
        return change.get("after", lambda parts: parts)(parts)


class Narrow(Honest):
    def receptive_field(self, row, column):
        return slice(7 * row, 7 * row + 5), slice(5 * column, 5 * column + 6)


def after(scale=1.0, **changes):
    """A network whose `look` changes parts at its end."""

    def change(parts):
        return parts | {name: make(parts) for name, make in changes.items()}

    return Honest(after=change, scale=scale)


def nan(parts):
    poses = parts["poses"].clone()
    poses[0, 0, 0, 0] = torch.nan
    return poses


def one_more(parts):
    return torch.cat((parts["lengths"], parts["lengths"][:, :1]), 1)


MISTAKES = {
    "logits as lengths": (
        after(lengths=lambda s: 9 * s["lengths"] - 7),
        r"lengths run from -\d.* to \d.*, expected scores in \[0, 1\]: logits need a softmax",
    ),
    "NaN": (after(poses=nan), "poses are not finite: 1 of"),
    "couplings transposed": (
        after(couplings=lambda s: s["couplings"].mT),
        r"couplings are \(2, 7, 3, 24\), expected \(2, 7, 24, 3\)",
    ),
    "votes transposed": (
        after(votes=lambda s: s["votes"].transpose(1, 2)),
        r"votes are \(7, 3, 24, 6\), expected \(7, 24, 3, E\)",
    ),
    "poses without R": (
        after(poses=lambda s: s["poses"][-1]),
        r"poses are \(7, 3, 6\), expected \(2, 7, 3, E\)",
    ),
    "poses of the last iteration": (
        after(poses=lambda s: s["poses"][-1:]),
        r"poses are \(1, 7, 3, 6\), expected \(2, 7, 3, E\)",
    ),
    "matrices for poses": (
        after(poses=lambda s: s["poses"].unflatten(3, (2, 3))),
        r"poses are \(2, 7, 3, 2, 3\), expected \(2, 7, 3, E\)",
    ),
    "grid of another size": (Honest(grid=(2, 4, 4)), r"the grid \(2, 4, 4\) has 32 .* are 24"),
    "grid in another order": (
        Honest(by_place=True),
        "the grid is in another order, or its receptive fields are wrong: capsules at",
    ),
    "couplings over children": (
        Honest(over_children=True),
        "couplings of a child sum to .* over parents, expected 1",
    ),
    "lengths are no norms": (
        after(lengths=lambda s: s["lengths"].softmax(1)),
        "lengths are not the norms of the poses, they differ by up to 0",
    ),
    "narrow fields": (Narrow(), "or its receptive fields are wrong: .*outside rows"),
    "intervention ignored": (Honest(ignores=True), "replacement couplings are ignored"),
    "intervention overwritten": (Honest(overwrites=True), "replacement couplings are ignored"),
    "votes of something else": (
        after(votes=lambda s: s["votes"].flip(1)),
        "the votes do not give the poses: .* points elsewhere",
    ),
    "votes that are weighed already": (
        after(votes=lambda s: s["couplings"][-1][..., None] * s["votes"], scale=0.1),
        "the votes change by .* with replacement couplings: they are already weighted",
    ),
    "scores of the batch": (Honest(shares=True, scale=0.3), "scores depend on the batch: .* by 0"),
    "a batch of one without its axis": (
        after(lengths=lambda s: s["lengths"].squeeze()),
        r"a batch of 1 gives lengths \(3,\), expected \(1, 3\)",
    ),
    "eleven classes": (after(lengths=one_more), "there are 4 scores for 3 classes"),
}


@pytest.fixture
def images():
    return torch.rand(2, 1, 21, 21, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_is_named_in_one_line_on_the_first_trace(name, images):
    model, said = MISTAKES[name]
    for _ in range(2):  # and it is not forgiven
        with pytest.raises(ValueError, match=said) as error:
            capsviz.trace(model, images, keep=("couplings",))
        assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("plugins", "said"),
    [
        ([], "lengths differ by .* if `look` is called with or without the other parts"),
        (["dynamic"], "`fused` and `route` differ by .* for the same images"),
    ],
)
def test_two_ways_of_routing_that_differ_are_not_the_batch_s(plugins, said, images, monkeypatch):
    class Two(Honest):
        def look(self, images, *, keep, **options):
            parts = super().look(images, keep=keep, **options)
            return parts | ({"lengths": parts["lengths"] / 2} if keep == ("lengths",) else {})

    monkeypatch.setattr(verification, "plugin_routings", lambda model: plugins)
    with pytest.raises(ValueError, match=said):
        capsviz.trace(Two(), images)


def test_a_plugin_s_routing_declares_in_its_file_what_is_meant(images, monkeypatch):
    model = Honest(over_children=True)
    monkeypatch.setattr(network, "plugin_routings", lambda model: ["dynamic"])
    with pytest.raises(ValueError, match="PECULIAR in the file of its routing"):
        capsviz.trace(model, images)
    reasons = {"sums": "children choose", "votes": "they do"}
    monkeypatch.setattr(routing.get("dynamic"), "PECULIAR", reasons, raising=False)
    capsviz.trace(model, images)


@pytest.mark.parametrize("made", ["layer norm", "batch norm"])
def test_poses_that_are_a_linear_function_of_each_number_of_the_sum_need_no_declaration(
    made, images
):
    gain, shift = torch.linspace(0.1, 0.3, E), torch.linspace(-0.1, 0.1, E)

    def poses(s):
        total = torch.einsum("rbij,bije->rbje", s["couplings"], s["votes"])
        whole = total if made == "batch norm" else nn.functional.layer_norm(total, (E,))
        return whole * gain * 0.5 + shift

    model = after(poses=poses, lengths=lambda s: poses(s)[-1].norm(dim=2))
    assert capsviz.trace(model, images).poses.shape == (2, 2, J, E)


def test_what_is_meant_can_be_declared(images):
    model = after(lengths=lambda s: s["lengths"].softmax(1))
    model.peculiar = {"norms": "probabilities"}
    assert capsviz.trace(model, images).lengths.sum(1).tolist() == pytest.approx([1, 1])


def test_a_network_is_verified_once(images, monkeypatch):
    calls = []
    model, plain = Honest(), verification.mistakes
    monkeypatch.setattr(verification, "mistakes", lambda *a: calls.append(1) or plain(*a))
    capsviz.trace(model, images)
    capsviz.trace(model, images)
    assert len(calls) == 1
    capsviz.trace(Honest(), images)
    assert len(calls) == 2


def test_a_network_whose_look_takes_nothing_more_is_traced(images):
    class Own(Honest):
        def look(self, images, *, keep):
            return super().look(images, keep=keep)

    torch.testing.assert_close(
        capsviz.trace(Own(), images).poses, capsviz.trace(Honest(), images).poses
    )
    with pytest.raises(ValueError, match="iterations cannot be changed: its `look` takes no"):
        capsviz.trace(Own(), images, iterations=1)


def test_our_own_networks_would_pass():
    with torch.no_grad():
        assert list(verification.mistakes(build_tiny(), torch.rand(3, 1, 21, 19))) == []
        assert list(verification.mistakes(Foreign(), torch.rand(3, 1, 28, 28))) == []
        assert list(verification.mistakes(Honest(), torch.rand(3, 1, 21, 21))) == []


def test_a_network_that_shows_activations_and_no_poses_is_not_told_to_ignore_couplings(images):
    def few(parts):
        return {"couplings": parts["couplings"], "activations": parts["poses"].norm(dim=3)}

    seen = capsviz.trace(Honest(after=few), images)
    assert seen.poses is None and seen.lengths is not None
    ignoring = Honest(after=lambda parts: {**few(parts), "couplings": parts["couplings"].clone()})
    ignoring.changes["ignores"] = True
    with pytest.raises(ValueError, match="replacement couplings are ignored"):
        capsviz.trace(ignoring, images)
