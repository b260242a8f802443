"""What is said to `capsviz.wrap` by hand and is wrong is refused in a line, that names which."""

import pytest
import torch
from helpers import public_layouts as zoo
from helpers.public_layouts import CLASSES, SHAPE

import capsviz
from capsviz.tracing import verification

SMALL = {"image_shape": SHAPE, "classes": CLASSES}
images = zoo.images


def refused(said, network=None, **options):
    with pytest.raises(ValueError, match=said) as error:
        capsviz.wrap(network or zoo.Unsqueezed().eval(), **{**SMALL, **options})
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("grid", [(4, 2, 3), (24, 1, 1)])
def test_a_grid_that_puts_capsules_of_several_places_into_one_is_refused(grid):
    said = refused(r"capsules do not form the grid \(.*\): .* see image", grid=grid)
    assert "show: (2, 4, 3), type by type" in said


@pytest.mark.parametrize("kind", [zoo.Unsqueezed, zoo.Einsum])
def test_a_grid_by_hand_that_is_right_is_that_of_the_probe(kind, images):
    own, other = (capsviz.wrap(kind().eval(), **SMALL, grid=grid) for grid in ((2, 4, 3), "probe"))
    assert own.grid == other.grid and own.receptive_field(1, 2) == other.receptive_field(1, 2)
    assert capsviz.trace(own, images).votes.equal(capsviz.trace(other, images).votes)


def test_a_grid_that_padding_hides_is_not_laid_on_view_and_can_be_given():
    class Padded(zoo.Unsqueezed):
        def __init__(self):
            super().__init__()
            self.more = torch.nn.Conv2d(8, 8, 3, padding=1)

        def encode(self, x):
            u = self.more(self.conv(x).relu()).view(len(x), 2, 4, 4, 3)
            return zoo.squash(u.permute(0, 1, 3, 4, 2).reshape(len(x), 24, 4))

    net = capsviz.wrap(Padded().eval(), **SMALL)
    assert net.grid is None and "or padding follows the primary convolution" in net.report()
    assert capsviz.wrap(Padded().eval(), **SMALL, grid=(2, 4, 3)).grid == (2, 4, 3)
    refused("the capsules do not form the grid", Padded().eval(), grid=(4, 2, 3))


def test_windows_of_two_sizes_are_a_grid_where_it_is_said_so():
    class Wide(zoo.Unsqueezed):
        """Capsules of the second type see a pixel more on each side."""

        def encode(self, x):
            own, wide = self.conv(x), self.conv(torch.nn.functional.avg_pool2d(x, 3, 1, 1))
            u = torch.cat((own[:, :4], wide[:, 4:]), 1).view(len(x), 2, 4, 4, 3)
            return zoo.squash(u.permute(0, 1, 3, 4, 2).reshape(len(x), 24, 4))

    assert capsviz.wrap(Wide().eval(), **SMALL).grid is None
    assert capsviz.wrap(Wide().eval(), **SMALL, grid=(2, 4, 3)).receptive_field(1, 1)[0] == slice(
        1, 8
    )


def boom(*_):
    raise KeyError("boom")


HANDS = ("scores", "poses", "decode", "couplings", "votes", "children")


@pytest.mark.parametrize("name", HANDS)
def test_a_function_by_hand_that_raises_is_named_with_its_line(name):
    said = refused(
        rf"^{name}= raises KeyError: 'boom' \(test_wrap_mistakes.py:\d+\)", **{name: boom}
    )
    assert "refuses images" not in said


@pytest.mark.parametrize("name", [*HANDS, "call", "pair", "card"])
def test_what_is_no_function_and_no_name_is_refused_with_what_was_expected(name):
    refused(rf"^{name}= must be .*, got 5$", **{name: 5})


class Inside(zoo.Unsqueezed):
    def mask(self, poses, target):
        return poses

    def forward(self, x):
        return self.mask(super().forward(x)[0])


def test_an_error_inside_the_network_is_told_with_its_line_and_no_advice():
    error = "TypeError: .*missing 1 required positional argument: 'target'"
    said = refused(
        rf"refuses images \(7, 1, 12, 10\): {error}.*\(test_wrap_mistakes.py:\d+\)", Inside().eval()
    )
    assert "give call" not in said and "images alone" not in said


def test_a_network_that_has_a_look_is_not_wrapped():
    model = capsviz.CapsNet((1, 28, 28), 10, types=2, channels=4).eval()
    said = r"CapsNet has a `look` and needs no wrapping: call capsviz.trace\(network"
    with pytest.raises(ValueError, match=said):
        capsviz.wrap(model, (1, 28, 28), 10)


class Short(zoo.Einsum):
    """Scores of a millionth; with what goes wrong in it: nothing, "shared", or "random"."""

    wrong = None

    def __init__(self):
        super().__init__()
        self.W.data.mul_(1e-2)

    def forward(self, x):
        votes = torch.einsum("ijed,bid->bije", self.W, self.encode(x))
        b = votes.new_zeros(len(x), 24, 3)
        for _ in range(3):
            v = zoo.squash(torch.einsum("bij,bije->bje", b.softmax(2), votes))
            agreed = torch.einsum("bije,bje->bij", votes, v)
            b = b + (agreed.mean(0, keepdim=True) if self.wrong == "shared" else agreed)
        length = v.norm(dim=2)
        return length * (1 + 1e-2 * torch.rand(3)) if self.wrong == "random" else length


SAID = {"shared": "couplings depend on the batch", "random": "two passes .* differ"}


@pytest.mark.parametrize("wrong", SAID)
def test_short_scores_are_held_against_their_own_size(wrong, images):
    net = Short().eval()
    with torch.no_grad():
        assert net(images).max() < 1e-2
    own = capsviz.wrap(net, **SMALL)
    with torch.no_grad():
        assert list(verification.mistakes(own, images)) == []
    net.wrong = wrong
    refused(SAID[wrong], net)
    with torch.no_grad():
        (said,) = verification.mistakes(own, images)
    assert ("batch" in said) == (wrong == "shared")
    assert ("two passes" in said) == (wrong == "random")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_numbers_of_another_width_are_allowed_their_rounding(dtype, images):
    net = capsviz.wrap(Short().eval().to(dtype), **SMALL)
    assert capsviz.trace(net, images.to(dtype)).poses.dtype == dtype


class Named(zoo.Einsum):
    """Couplings that come from no softmax; the first are one number for all, as some write."""

    def couple(self, votes):
        c = torch.full((1, 1, 1), 1 / 3)
        for _ in range(3):
            v = zoo.squash((c[..., None] * votes).sum(1))
            c = (votes * v[:, None]).sum(3).exp2()
            c = c / c.sum(2, keepdim=True)
        return v

    def forward(self, x):
        return self.couple(torch.einsum("ijed,bid->bije", self.W, self.encode(x))).norm(dim=2)


def test_a_first_value_that_is_broadcast_is_expanded_and_one_of_another_kind_left_out(images):
    net = capsviz.wrap(Named().eval(), **SMALL, couplings="couple:c")
    seen = capsviz.trace(net, images, keep=("couplings",)).couplings
    assert seen.shape == (7, 5, 24, 3)
    assert torch.equal(seen[0], torch.full((5, 24, 3), 1 / 3))

    class Sliced(Named):
        def couple(self, votes):
            c = votes[:, :5, :, 0]
            assert c.shape == (len(votes), 5, 3)
            c = votes.norm(dim=3)
            c = c / c.sum(2, keepdim=True)
            return zoo.squash((c[..., None] * votes).sum(1))

    net = capsviz.wrap(Sliced().eval(), **SMALL, couplings="couple:c")
    assert capsviz.trace(net, images, keep=("couplings",)).couplings.shape == (2, 5, 24, 3)


@pytest.mark.parametrize("source", ["couple:votes", lambda out: (out - out.mean())[:, None]])
def test_what_is_often_negative_is_no_couplings(source):
    said = r"runs from -.* to .*, expected couplings, none of them negative"
    refused(said, Named().eval(), couplings=source)


def test_poses_of_another_size_than_the_decoder_takes_leave_it_out():
    net = capsviz.wrap(zoo.Unsqueezed().eval(), **SMALL, poses="conv")
    assert "found, but does not take these poses: not used" in net.report()


class Logits(zoo.Unsqueezed):
    def forward(self, x):
        return 9 * super().forward(x)[0] - 3


class TwoScores(zoo.Unsqueezed):
    def forward(self, x):
        length = super().forward(x)[0]
        return {"length": length, "probability": length.softmax(1)}


class TwoImages(zoo.Unsqueezed):
    def forward(self, x):
        length, made = super().forward(x)
        return length, made, 1 - made


class Random(zoo.Unsqueezed):
    def forward(self, x):
        length, made = super().forward(x)
        return torch.nn.functional.dropout(length, 0.3), made


class Labelled(zoo.Unsqueezed):
    def forward(self, x, target):
        return super().forward(x, target)


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (zoo.Unsqueezed, {"grid": (2, "4", 3)}, r"grid= must be \(types, rows, columns\)"),
        (zoo.Unsqueezed, {"image_shape": 28}, r"expected image_shape as \(C, H, W\)"),
        (zoo.Unsqueezed, {"classes": True}, "expected a number of classes, at least 2"),
        (zoo.Plain, {}, "no capsules found in Plain.*evaluate, sweep and corrupt can be run"),
        (zoo.TwoHeads, {}, "2 softmaxes have an equal claim: .* in left.* in right, .*pair="),
        (zoo.OneLoop, {}, "one line of one module, .*public_layouts.py.* routes several layers"),
        (zoo.TwoHeads, {"pair": "middle"}, "pair 'middle' names 0 of the softmaxes"),
        (zoo.Shared, {}, "scores depend on the batch: an image's change by"),
        (
            Random,
            {"scores": lambda out: out[0].clamp(0, 1)},
            "two passes .* differ by .*something in it is random",
        ),
        (zoo.Unsqueezed, {"image_shape": (3, 12, 10)}, r"refuses images \(7, 3, 12, 10\)"),
        (Labelled, {}, r"cannot be called with images alone: Labelled.forward\(x, target\)"),
        (Logits, {}, 'expected scores in .*scores="softmax" or scores="sigmoid"'),
        (TwoScores, {}, r"2 outputs could be the scores.*\['length'\].*\['probability'\]"),
        (TwoImages, {}, r"2 outputs could be the reconstruction: output\[1\], output\[2\]"),
        (zoo.Unsqueezed, {"grid": (2, 4, 4)}, "does not fit 24 children"),
        (zoo.Unsqueezed, {"normalise": (0.5,)}, r"must be \(mean, .* above 0\), .*\(0.5,\)"),
        (zoo.Unsqueezed, {"normalise": (0.1, 0)}, "standard deviation above 0"),
        (zoo.Unsqueezed, {"poses": "fingers"}, "no module 'fingers', expected one of"),
        (zoo.Unsqueezed, {"scores": "margin"}, "unknown scores 'margin'"),
        (zoo.Unsqueezed, {"scores": lambda out: out[1]}, r"must return \(7, 3\), it returned"),
    ],
)
def test_what_cannot_be_inferred_is_refused_in_one_line(kind, options, said):
    refused(said, kind(), **options)
