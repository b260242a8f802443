"""Transplant by dose: what is scaled, which dose moves half of the pairs, and wrong input."""

import numpy as np
import pytest
import torch
from helpers import noise_images as noise
from helpers.fixtures import build_self_routing, build_strong, build_tiny
from helpers.noise_images import CLASSES, spread_out
from helpers.plain_capsnet import Foreign
from torch import nn
from torch.nn.functional import one_hot

from capsviz.analyses import transplant
from capsviz.analyses.transplant import (
    CLASS_MEAN,
    DEVIATIONS,
    DONOR,
    DONOR_SHUFFLED,
    EQUAL_NOISE,
    STEEPEST,
    measure,
)
from capsviz.statistics.numbers import rows
from capsviz.statistics.replicates import over_runs
from capsviz.tracing import trace, under_couplings

model, images = noise.model, noise.images_of_classes
ASKED = {"classes": CLASSES, "dataset": "noise"}
by_dose = transplant.ByDose().measure


@pytest.mark.parametrize(
    "build",
    [
        build_strong,
        build_self_routing,
        lambda: build_tiny(routing="em"),
        lambda: Foreign((1, 21, 19), 3).eval(),
    ],
)
def test_dose_1_is_the_transplant_exactly(build, generator):
    model = build()
    images = spread_out(model, 10, generator)
    result = by_dose(model, images, **ASKED)
    plain = transplant.OverPairs().measure(model, images, **ASKED)
    for condition, k in ((DONOR, transplant.UNLIKE), (DONOR_SHUFFLED, transplant.UNLIKE_SHUFFLED)):
        share = result.at(condition, 1)
        assert share.value == plain.as_partner.value[k]
        np.testing.assert_array_equal(share.ci95, plain.as_partner.ci95[k])
    assert result.couples == plain.couples and result.given == plain.given
    np.testing.assert_allclose(
        result.deviation_sd.value[0], plain.coupling_sd.value[transplant.UNLIKE], rtol=1e-4
    )


def test_negative_couplings_are_clipped_only_where_the_network_needs_it(model, images, generator):
    assert not by_dose(model, images, **ASKED).clipped
    mixture = build_tiny(routing="em")
    result = by_dose(mixture, spread_out(mixture, 10, generator), **ASKED)
    assert result.clipped and "set to 0" in transplant.ByDose().verdict(result)
    sd = dict(zip(result.conditions, result.deviation_sd.value, strict=True))
    assert sd[STEEPEST] < 0.99 * sd[DONOR]  # of what is put in, not before it is clipped
    clipped = measure._clipped(torch.tensor([[-0.5, 0.5, 1.0], [0.2, 0.3, 0.5]]))
    torch.testing.assert_close(clipped, torch.tensor([[0, 1 / 3, 2 / 3], [0.2, 0.3, 0.5]]))


def test_dose_0_is_uniform_couplings(model, images):
    result = by_dose(model, images, doses=(0.0, 1.0), **ASKED)
    plain = transplant.OverPairs().measure(model, images, **ASKED)
    assert (result.follow.value[:, 0] == plain.as_partner.value[transplant.EVEN]).all()
    assert (result.keep.value[:, 0] == plain.as_own.value[transplant.EVEN]).all()


def test_controls_have_the_norm_of_the_donor_and_the_worst_direction_raises_most(model, images):
    result = by_dose(model, images, **ASKED)
    sd = dict(zip(result.conditions, result.deviation_sd.value, strict=True))
    for condition in (DONOR_SHUFFLED, STEEPEST, EQUAL_NOISE):
        assert sd[condition] == pytest.approx(sd[DONOR], rel=1e-4)
    assert 0 < sd[CLASS_MEAN] < sd[DONOR]
    even = torch.full((12, 3), 1 / 3)
    own = torch.zeros(len(images), dtype=torch.long)
    donor = own + 1
    way = measure.steepest_direction(model, images, even, own, donor, iterations=None).float()
    torch.testing.assert_close(way.flatten(1).norm(dim=1), torch.ones(len(images)))
    assert way.sum(2).abs().max() < 1e-6
    some = torch.randn(20, *way.shape, generator=torch.Generator().manual_seed(0))
    some -= some.mean(3, keepdim=True)
    some /= some.flatten(2).norm(dim=2)[..., None, None]
    step = 1e-2
    said = under_couplings(model, images, [even + step * one for one in (way, *some)])
    gains = said[..., 1] - said[..., 0]
    assert (gains[0] > gains[1:]).all()


class Linear(nn.Module):
    """A network whose scores are linear in the couplings, and known: I capsules, 3 classes.

    Pixel (0, k) is 1 for an image of class k; pixel (1, 0) is s, how far its couplings deviate from
    1/3, towards its class. Each capsule votes 0.04 for a class, and 0.06 for its own.
    """

    I, J = 4, 3

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.grid, self.card, self.config = None, {"name": "linear"}, {"classes": self.J}

    def look(self, images, *, keep, couplings=None, iterations=None):
        own = one_hot(images[:, 0, 0, : self.J].argmax(1), self.J).to(self.scale)
        s = images[:, 0, 1, :1]
        votes = (0.04 + 0.02 * own)[:, None, :, None].expand(-1, self.I, -1, 1) * self.scale
        c = (1 / 3 + s * (own - 1 / 3))[:, None].expand(-1, self.I, -1)
        if couplings is not None:
            c = couplings.expand(len(images), self.I, self.J)
        poses = (c[..., None] * votes).sum(1)
        parts = {"votes": votes, "couplings": c[None], "poses": poses[None]}
        return {**parts, "lengths": poses[..., 0].abs()}


def test_half_of_the_pairs_follow_at_the_dose_that_was_computed():
    """The donor's class wins if d s (0.04 · 2/3 + 0.06 · 1/3) > 0.02 / 3: from d = 1 / (7 s)."""
    images = torch.zeros(60, 1, 3, 3)
    classes = torch.arange(60) % 3
    images[torch.arange(60), 0, 0, classes] = 1
    images[:, 0, 1, 0] = torch.linspace(0.03, 0.3, 60)
    model, doses = Linear().eval(), (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    result = by_dose(model, images, doses=doses, **ASKED)
    donors = measure.pairs_of(classes, torch.Generator().manual_seed(0))[1]
    limit = 1 / (7 * images[donors, 0, 1, 0])
    shares = [(limit < dose).double().mean().item() for dose in doses]
    np.testing.assert_allclose(result.follow.value[0], shares)
    k = next(k for k, share in enumerate(shares) if share >= 0.5)
    part = (0.5 - shares[k - 1]) / (shares[k] - shares[k - 1])
    expected = doses[k - 1] * (doses[k] / doses[k - 1]) ** part
    assert float(result.half.value[0]) == pytest.approx(expected)
    assert result.half.low[0] <= expected <= result.half.high[0]
    np.testing.assert_allclose(result.follow.value[1], shares)  # all capsules are alike
    # The gradient is 0.04 to the donor's class and -0.06 to the own, here times 5, less its mean.
    way = torch.tensor([[-0.3 + 0.1 / 3, 0.2 + 0.1 / 3, 0.1 / 3]]).expand(4, 3)
    one = measure.steepest_direction(
        model, images[:1], torch.full((4, 3), 1 / 3), torch.tensor([0]), torch.tensor([1]),
        iterations=None,
    )  # fmt: skip
    torch.testing.assert_close(one[0].float(), way / way.norm())


@pytest.mark.parametrize(
    ("shares", "dose"),
    [
        ((0, 0.25, 0.75, 1), 2 ** (1 / 2)),
        ((0.5, 0.6, 0.4, 1), 0.5),
        ((0.9, 1, 1, 1), 0.5),
        ((0, 0.5, 0.2, 0.7), 1.0),
        ((0, 0, 0, 0.4), np.nan),
    ],
)
def test_the_dose_at_half_is_interpolated_in_its_logarithm(shares, dose):
    found = measure.halfway(np.array([shares, shares], float), np.array([0.5, 1, 2, 4]))
    np.testing.assert_allclose(found, [dose, dose])


def test_a_dose_that_is_not_reached_is_said(model, images):
    result = by_dose(model, images, doses=(1e-3,), **ASKED)
    assert np.isnan(result.half.value).all() and np.isnan(result.half.ci95).all()
    assert [row.text for row in rows(result, ["half"])] == ["> 0.001"] * len(DEVIATIONS)
    result = by_dose(model, images, doses=(0.01, 100.0, 1.0), **ASKED)
    assert result.doses.tolist() == [0.01, 1, 100]
    assert result.at(DONOR, 3) is None
    runs = over_runs([result, result], transplant.Doses.over_runs).result
    np.testing.assert_allclose(runs.half.value, result.half.value)


def test_uniform_couplings_are_refused(images):
    with pytest.raises(ValueError, match="nothing to scale"):
        by_dose(build_tiny(routing="uniform"), images, **ASKED)


def test_without_gradients_the_worst_direction_is_left_out(generator):
    class Fixed(Foreign):
        @torch.no_grad()
        def look(self, images, *, keep, couplings=None, iterations=None):
            return super().look(images, keep=keep, couplings=couplings, iterations=iterations)

    model = Fixed((1, 21, 19), 3).eval()
    result = by_dose(model, spread_out(model, 10, generator), **ASKED)
    assert result.conditions == [one for one in DEVIATIONS if one != STEEPEST]
    assert "worst direction" not in transplant.ByDose().verdict(result)


def test_the_network_is_left_as_it_was(model, images):
    before = trace(model, images, keep=("lengths",)).lengths
    model.train()
    by_dose(model, images, **ASKED)
    assert model.training and all(one.grad is None for one in model.parameters())
    torch.testing.assert_close(trace(model.eval(), images, keep=("lengths",)).lengths, before)
