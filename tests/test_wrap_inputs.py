"""Inputs of a wrapped network that are not images, and capsules that are not classes."""

from collections import UserDict
from collections.abc import Mapping

import pytest
import torch
from helpers import public_layouts as zoo
from helpers.planted_bugs import of_status
from torch import nn

import capsviz
from capsviz import checks, pictures
from capsviz.tracing import from_children
from capsviz.tracing.needs import missing, required

WORDS, LENGTH, I, J, D, E = 40, 12, 10, 3, 8, 6


class Text(nn.Module):
    """Token ids (B, 12) -> lengths (B, 3)."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.words, self.conv = nn.Embedding(WORDS, 16), nn.Conv1d(16, D, 3)
        self.matrices = nn.Parameter(torch.randn(I, J, E, D) * 0.4)

    def forward(self, ids):
        return self.route(self.votes(ids))[1].norm(dim=2)

    def votes(self, ids):
        u = zoo.squash(self.conv(self.words(ids).transpose(1, 2)).transpose(1, 2))
        return torch.einsum("ijed,bid->bije", self.matrices, u)

    def route(self, votes):
        b = torch.zeros(votes.shape[:3])
        for _ in range(3):
            c = b.softmax(2)
            v = zoo.squash((c[..., None] * votes).sum(1))
            b = b + (votes * v[:, None]).sum(3)
        return c, v


class Weighed(Text):
    """Two inputs, in a tuple or by name."""

    def forward(self, ids, weight):
        return super().forward(ids) * weight.sigmoid().mean(1, keepdim=True)


class Named(Text):
    """One dict in, one dict out."""

    def forward(self, batch):
        return {"scores": super().forward(batch["ids"])}


class Volume(Text):
    """Volumes (B, 1, 4, 4, 4) of any range: a child for each of ten numbers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv3d(1, I * D, 4)

    def votes(self, volume):
        u = zoo.squash(self.conv(volume).view(-1, I, D))
        return torch.einsum("ijed,bid->bije", self.matrices, u)


def ids(count):
    return torch.randint(WORDS, (count, LENGTH), generator=torch.Generator().manual_seed(count))


def volume(count):
    return 3 * torch.randn(count, 1, 4, 4, 4, generator=torch.Generator().manual_seed(count))


INPUTS = {
    "token ids": (Text, ids),
    "a tuple": (Weighed, lambda n: (ids(n), torch.randn(n, 4))),
    "a tuple with a mask": (Weighed, lambda n: (ids(n), torch.rand(n, 4) < 0.5)),
    "a dict of arguments": (Weighed, lambda n: {"weight": torch.randn(n, 4), "ids": ids(n)}),
    "a tokenizer's batch": (Weighed, lambda n: UserDict(ids=ids(n), weight=torch.randn(n, 4))),
    "a dict": (Named, lambda n: {"name": "a text", "ids": ids(n), "scale": torch.ones(())}),
    "volumes": (Volume, volume),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_that_are_no_images_are_traced_exactly(name):
    kind, inputs = INPUTS[name]
    network = kind().eval()
    net, given = capsviz.wrap(network, classes=J, example=inputs(2)), inputs(5)
    seen = capsviz.trace(net, given)
    first = given["ids"] if isinstance(given, Mapping) else given
    first = first[0] if isinstance(given, tuple) else first
    with torch.no_grad():
        votes = network.votes(first)
        couplings, poses = network.route(votes)
        output = network(*given) if isinstance(given, tuple) else None
    torch.testing.assert_close(seen.votes, votes)
    torch.testing.assert_close(seen.couplings[-1], couplings)
    torch.testing.assert_close(seen.poses[-1], poses)
    if output is not None:
        torch.testing.assert_close(seen.lengths, output)
    rows = net.rows(given)
    assert torch.equal(capsviz.trace(net, rows).lengths, seen.lengths) and len(rows) == 5
    uniform = capsviz.trace(net, given, couplings="uniform")
    torch.testing.assert_close(uniform.poses[-1], zoo.squash(votes.mean(1) * I / J))


@pytest.mark.parametrize("name", ["token ids", "a dict of arguments"])
def test_checks_of_inputs_that_are_no_images_are_made_or_skipped_with_the_reason(name):
    kind, inputs = INPUTS[name]

    class Shared(kind):
        def votes(self, ids):
            votes = super().votes(ids)
            return votes + votes.mean(0)

    report = checks.run(kind(), classes=J, example=inputs(4))
    assert not report.failures and len(of_status(report, "PASS")) > 17, report.text()
    assert "it needs images" in report.verdict("shifted_positions").message
    net = capsviz.wrap(kind(), classes=J, example=inputs(4))
    assert of_status(checks.run(net), "PASS") == of_status(report, "PASS")
    report = checks.run(Shared(), capsules=J, example=inputs(4), only="mixed_batch")
    assert of_status(report, "FAIL") == ["mixed_batch"]


def test_analyses_of_images_are_not_offered_for_other_inputs():
    from capsviz.analyses import parse_tree, sweep

    net = capsviz.wrap(Text().eval(), classes=J, example=ids(2))
    assert missing(net, required(parse_tree.ParseTree())) == []
    assert "images" in missing(net, required(sweep.Sweep()))
    can, cannot = net.report().splitlines()[-2:]
    assert "network(inputs): " in net.report()
    assert "routing" in can and "transplant" in can and "rotate" not in can
    assert "rotate" in cannot and "(no images)" in cannot
    with pytest.raises(
        ValueError, match=r"no images \(its inputs are of another kind\): a picture needs"
    ):
        pictures.frame(net)


def test_maps_name_the_tokens_or_features_that_the_card_has():
    from capsviz.analyses.routing import OneImage

    words = [f"word {k}" for k in range(I)]
    net = capsviz.wrap(Text().eval(), classes=J, example=ids(2), card={"children": words})
    figure = OneImage().draw(OneImage().measure(net, ids(1).float(), classes=list("abc")))
    named = [[tick.get_text() for tick in axes.get_xticklabels()] for axes in figure.axes]
    assert named.count(words) == 3


def test_other_inputs_are_mapped_by_their_capsules_and_by_themselves():
    from capsviz.analyses.tsne import Tsne

    net, rows = capsviz.wrap(Text().eval(), classes=J, example=ids(2)), ids(60).float()
    labels, names = capsviz.trace(net, rows).lengths.argmax(1), list("abc")
    result = Tsne().measure(
        net, rows, labels, classes=names, dataset="text", method="pca", trajectories=2
    )
    assert result.dimensions == [E, LENGTH] and result.positions.shape == (2, 60, 2)
    assert len(result.thumbnails) == len(result.path_labels) == 0
    (titles,) = {tuple(ax.get_title() for ax in Tsne().draw(result).axes)}
    assert "raw inputs, 12 numbers" in titles


def test_capsules_that_are_no_classes_are_traced_and_not_taken_for_classes():
    net = capsviz.wrap(zoo.Unsqueezed().eval(), (1, 12, 10), capsules=J)
    assert capsviz.trace(net, torch.rand(2, 1, 12, 10)).poses.shape == (3, 2, J, E)
    can, cannot = net.report().splitlines()[-2:]
    assert can.split() == ["can", "trace"] and "no classes" in cannot


class TwoLayers(zoo.Base):
    """24 capsules to 8, and these to 3."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first = nn.Parameter(torch.randn(24, 8, 5, 4))
        self.second = nn.Parameter(torch.randn(8, J, E, 5))

    def routed(self, u, matrices):
        votes = torch.einsum("ijed,bid->bije", matrices, u)
        return votes, Text.route(self, votes)[1]

    def forward(self, x):
        return self.routed(self.routed(self.encode(x), self.first)[1], self.second)[1].norm(dim=2)


def test_each_of_several_routed_layers_can_be_traced():
    network, images = TwoLayers().eval(), torch.rand(3, 1, 12, 10)
    net = capsviz.wrap(network, (1, 12, 10), classes=J)
    below = capsviz.wrap(network, (1, 12, 10), capsules=8)
    assert "24 children to 8 parents" in net.report() and "by layer=0" in net.report()
    with torch.no_grad():
        votes, poses = network.routed(network.encode(images), network.first)
        last = network.routed(poses, network.second)
    for layer, one, own in ((0, net, (votes, poses)), (0, below, (votes, poses)), (1, net, last)):
        seen = capsviz.trace(one, images, layer=layer)
        torch.testing.assert_close(seen.votes, own[0])
        torch.testing.assert_close(seen.poses[-1], own[1])
        scores = from_children(one, seen.children, layer=layer)
        torch.testing.assert_close(scores, capsviz.trace(one, images).lengths)
        assert "in doubt" not in one.report()
    assert net.grids == ((2, 4, 3), (8, 1, 1))
    uniform = capsviz.trace(net, images, layer=0, couplings="uniform")
    torch.testing.assert_close(uniform.poses[-1], zoo.squash(votes.mean(1) * 24 / 8))
    with pytest.raises(ValueError, match="expected layer 0 to 1, got 2"):
        capsviz.trace(net, images, layer=2)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"example": ids(2), "image_shape": (1, 3, 4)}, "expected image_shape= or example="),
        ({}, "expected image_shape= or example=, exactly one"),
        ({"example": ids(1)[0]}, "a tensor .* expected inputs along its first axis: one graph"),
        ({"example": "a sentence"}, "example= must hold tensors, got str"),
        ({"example": ids(2).float()}, "the network refuses inputs like the example"),
        (
            {"example": ids(2), "capsules": J},
            "expected a number of classes, at least 2, or capsules=",
        ),
        ({"example": ids(2), "classes": 5}, r"if the capsules are not classes, give capsules=3"),
    ],
)
def test_what_is_no_input_is_refused_in_one_line(options, said):
    with pytest.raises(ValueError, match=said) as error:
        capsviz.wrap(Text().eval(), **{"classes": J, **options})
    assert "\n" not in str(error.value)


def test_whole_numbers_do_not_go_through_half_precision():
    with pytest.raises(ValueError, match="needs a network in float32 or float64"):
        capsviz.wrap(Text().eval().bfloat16(), classes=J, example=ids(2))


def test_inputs_of_another_shape_than_the_example_are_refused():
    net = capsviz.wrap(Text().eval(), classes=J, example=ids(2))
    words = r"expected inputs as the example, \(2, 12\), got \(2, 11\)"
    with pytest.raises(ValueError, match=words):
        capsviz.trace(net, ids(2)[:, :11])
    with pytest.raises(ValueError, match="at least one"):
        capsviz.trace(net, ids(2)[:0])


class Times(Text):
    """Time stamps in seconds, of which float32 keeps a minute."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(LENGTH, I * D)

    def votes(self, times):
        seconds = (times - 1.7e9).float() / 1e3
        u = zoo.squash(self.first(seconds).view(-1, I, D) * 3)
        return torch.einsum("ijed,bid->bije", self.matrices, u)


def test_inputs_of_double_precision_stay_so():
    times = 1.7e9 + torch.rand(4, LENGTH, dtype=torch.double) * 1e3
    net = capsviz.wrap(Times().eval(), classes=J, example=times)
    with torch.no_grad():
        torch.testing.assert_close(capsviz.trace(net, times).lengths, net.network(times))


@pytest.mark.parametrize(
    ("example", "said"),
    [(torch.randn(4, 12, dtype=torch.cfloat), "complex"), (torch.eye(4).to_sparse(), "sparse")],
)
def test_tensors_that_no_row_holds_are_refused(example, said):
    with pytest.raises(ValueError, match=f"holds a {said} tensor: give .* and call="):
        capsviz.wrap(Text(), classes=J, example=example)
