"""`capsviz.wrap` finds the poses however they are squashed, and no decoder that is not the own."""

import warnings

import pytest
import torch
from helpers import public_layouts as zoo
from helpers.public_layouts import CLASSES, SHAPE, E, I, J, expected
from torch.nn import functional

import capsviz

SMALL = {"image_shape": SHAPE, "classes": CLASSES}


@pytest.fixture
def images():
    return torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(3))


def factor(s):
    """(B, J), what a squash multiplies with."""
    n2 = s.square().sum(-1)
    return n2 / (1 + n2) / (n2 + 1e-12).sqrt()


def expanded(s):
    n = s.norm(dim=-1, keepdim=True).expand_as(s)
    return n**2 / (1 + n**2) * s / n


def put_out(s):
    result = torch.empty_like(s)
    torch.mul(s, factor(s)[..., None], out=result)
    return result


def by_index(s):
    result = torch.zeros_like(s)
    for j in range(J):
        result[:, j] = zoo.squash(s[:, j])
    return result


def to_be_scripted(s: torch.Tensor):
    n2 = (s * s).sum(-1, keepdim=True)
    return s * n2 / (1 + n2) / torch.sqrt(n2 + 1e-12)


def scripted(s):
    with warnings.catch_warnings(action="ignore"):  # deprecated, and in public code
        return torch.jit.script(to_be_scripted)(s)


SQUASHES = {
    "expanded": expanded,
    "repeated": lambda s: factor(s)[..., None].repeat(1, 1, E) * s,
    "stacked": lambda s: torch.stack([factor(s)] * E, -1) * s,
    "einsum": lambda s: torch.einsum("bj,bje->bje", factor(s), s),
    "diagonal": lambda s: torch.bmm(torch.diag_embed(factor(s)), s),
    "out": put_out,
    "class by class": lambda s: torch.stack([zoo.squash(s[:, j]) for j in range(J)], 1),
    "slices": lambda s: torch.cat([zoo.squash(s[:, j : j + 1]) for j in range(J)], 1),
    "chunks": lambda s: torch.cat([zoo.squash(part) for part in s.chunk(J, 1)], 1),
    "by index": by_index,
    "scripted": scripted,
    "vmap": lambda s: torch.vmap(zoo.squash)(s),
}


class Squashed(zoo.Base):
    """Says (lengths, images)."""

    squashed = staticmethod(zoo.squash)

    def forward(self, x):
        votes, b = self.votes(self.encode(x)), torch.zeros(len(x), I, J)
        for k in range(self.iterations):
            v = self.squashed((self.couplings(b)[..., None] * votes).sum(1))
            if k < self.iterations - 1:
                b = b + (votes * v[:, None]).sum(-1)
        length = v.norm(dim=2)
        return length, self.drawn(v, length)

    def votes(self, u):
        return torch.einsum("ijed,bid->bije", self.W, u)

    def couplings(self, b):
        return b.softmax(2)

    def drawn(self, v, length):
        kept = functional.one_hot(length.argmax(1), J)[..., None] * v
        return self.decoded(kept).view(-1, *SHAPE)


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("name", SQUASHES)
def test_poses_are_found_however_they_are_squashed(name, images):
    network = Squashed().eval()
    network.squashed = SQUASHES[name]
    net = capsviz.wrap(network, **SMALL)
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        close(seen.poses, expected(network, images)["poses"])
        close(seen.reconstruction, network(images)[1])
    assert net.peculiar == {}


def test_where_scores_are_no_norms_what_may_be_the_poses_is_said(images):
    class Softmax(Squashed):
        squashed = staticmethod(SQUASHES["einsum"])

        def forward(self, x):
            return super().forward(x)[0].softmax(1)

    said = capsviz.wrap(Softmax().eval(), **SMALL).report()
    assert "what points the same way in test_wrap_poses.py:" in said
    assert "may be the poses: name them by poses=" in said


def test_a_pose_that_is_the_same_class_s_for_all_images_is_none_that_is_chosen(images):
    class Chunks(Squashed):
        def drawn(self, v, length):
            parts = v.chunk(J, 1)
            return self.decoded(torch.cat([2 * parts[0], *parts[1:]], 1)).view(-1, *SHAPE)

    assert capsviz.wrap(Chunks().eval(), **SMALL).decoder is None


class OfEachChild(Squashed):
    def __init__(self):
        super().__init__()
        self.each = torch.nn.ModuleList(torch.nn.Linear(4, J * E, bias=False) for _ in range(I))

    def votes(self, u):
        return torch.stack([f(u[:, i]).view(-1, J, E) for i, f in enumerate(self.each)], 1)


class OfEachClass(Squashed):
    def votes(self, u):
        products = [u[:, :, None] @ self.W[:, j].transpose(1, 2) for j in range(J)]
        return torch.stack(products, 3).squeeze(2)


@pytest.mark.parametrize("kind", [OfEachChild, OfEachClass])
def test_votes_of_several_products_have_no_children_that_are_seen(kind, images):
    net = capsviz.wrap(kind().eval(), **SMALL)
    assert "not seen: votes are put together of several products" in net.report()
    seen = capsviz.trace(net, images)
    assert seen.children is None and seen.grid == (2, 4, 3)
    with torch.no_grad():
        close(seen.votes, net.network.votes(net.network.encode(images)))


def test_a_class_for_no_parent_is_none_of_the_logits(images):
    class Leaky(Squashed):
        def couplings(self, b):
            return torch.cat((torch.zeros_like(b[..., :1]), b), 2).softmax(2)[..., 1:]

    seen = capsviz.trace(capsviz.wrap(Leaky().eval(), **SMALL), images)
    assert seen.logits is None and seen.couplings.shape == (3, 5, I, J)


def test_a_decoder_that_holds_for_the_recorded_images_alone_is_not_used(images):
    class Indexed(Squashed):
        def __init__(self):
            super().__init__()
            self.names = torch.nn.Parameter(2.0 * torch.arange(3 * 12).view(3, 12).sin())

        def drawn(self, v, length):
            own = length.argmax(1).tolist()
            kept = torch.cat((v[range(len(v)), own], self.names[own]), 1)
            return self.decoded(kept).view(-1, *SHAPE)

    net = capsviz.wrap(Indexed().eval(), **SMALL)
    assert net.decoder is None
    assert "with other images: not used" in net.report()
