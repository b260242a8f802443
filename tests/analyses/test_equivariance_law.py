"""The law of a warp: vectors whose law is known, fits that see no measured image, and its law."""

import numpy as np
import pytest
import torch
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_strong
from helpers.plain_capsnet import Foreign

from capsviz import results
from capsviz.analyses import equivariance
from capsviz.analyses.equivariance import fits, measure
from capsviz.analyses.equivariance.measure import Data
from capsviz.nn import models
from capsviz.statistics.estimate import Estimate
from capsviz.transforms.warps import family_matrix

E, M, N = 6, 90, 60  # numbers in a vector, images fitted on and measured
TIMES = np.array(equivariance.STEPS)  # whole warps
CLASSES = np.arange(M + N) % 3


def data():
    rows = np.arange(N + M)
    images = torch.zeros(N + M, 1, 2, 2)
    return Data(images, CLASSES, [(rows[:N], rows[N:])], M // 3, [])


def drawn(seed=0):
    return np.random.default_rng(seed).normal(size=(N + M, E))


def turning(v, angles_deg):
    """Vectors (5, X, E) that turn in two of three planes, by an angle for each image."""
    out = np.empty((5, *v.shape))
    for t, step in enumerate(TIMES):
        angle = np.radians(angles_deg) * step
        out[t] = v
        for a, b in ((0, 1), (2, 3)):
            out[t, :, a] = np.cos(angle) * v[:, a] - np.sin(angle) * v[:, b]
            out[t, :, b] = np.sin(angle) * v[:, a] + np.cos(angle) * v[:, b]
    return out


def r2(values, field="spread"):
    errors = fits.laws_of_vectors(values, data())
    return 1 - errors.predicted.sum(1) / getattr(errors, field).sum()


def test_a_law_holds_for_vectors_that_turn_alike_in_all_classes():
    values = turning(drawn(), 30.0)
    values[..., 4:] += TIMES[:, None, None]
    for field in ("spread", "change"):
        own, twice, extrapolated, one_matrix, one_map, shift = r2(values, field)
        assert min(own, twice, one_matrix, one_map) > 0.999 and extrapolated > 0.99
        assert shift < 0.95
    assert r2(values, "change")[equivariance.SHIFT] == pytest.approx(0, abs=0.05)


def test_classes_that_turn_unlike_have_laws_of_their_own_and_not_one():
    values = turning(drawn(), np.array([-90.0, 20, 90])[CLASSES])
    own, twice, _, one_matrix, one_map, _ = r2(values)
    assert min(own, twice) > 0.999 and max(one_matrix, one_map) < 0.7


def test_classes_that_turn_alike_about_places_of_their_own_share_a_matrix_and_no_map():
    values = turning(drawn(), 60.0)
    values[[1, 4]] += 5 * np.random.default_rng(3).normal(size=(3, E))[CLASSES]
    own, *_, one_matrix, one_map, _ = r2(values)
    assert min(own, one_matrix) > 0.999 and one_map < 0.5


def test_two_halves_that_are_no_whole_are_no_law():
    """The whole warp turns the other way than its halves: each has a map, together no law."""
    values = turning(drawn(), 60.0)
    values[[1, 4]] = values[[4, 1]]
    own, twice, extrapolated, _, one_map, _ = r2(values)
    assert min(own, one_map) > 0.999
    assert max(twice, extrapolated) < 0.5


def test_a_change_that_the_vector_does_not_tell_is_not_explained():
    v = drawn()
    values = v + 0.3 * np.array([0, -2, -1, 1, 2])[:, None, None] * drawn(1)
    assert r2(values)[equivariance.OWN] > 0.6
    assert abs(r2(values, "change")[equivariance.OWN]) < 0.1


def test_laws_are_predictions_by_hand():
    values, k = turning(drawn(), 40.0) + 0.2 * drawn(2), 1
    errors = fits.laws_of_vectors(values, data())
    test, fit = (np.flatnonzero((k == CLASSES) & side) for side in _sides())

    def line(before, after):
        x = np.column_stack([values[0, fit], np.ones(len(fit))])
        slope = np.linalg.lstsq(x, after, rcond=None)[0]
        return lambda v: np.column_stack([v, np.ones(len(v))]) @ slope

    twice = extrapolated = 0
    for half, other, whole in ((2, 3, 1), (3, 2, 4)):
        once = line(None, values[half, fit])
        twice += ((once(once(values[0, test])) - values[whole, test]) ** 2).sum(1)
        odd = line(None, (values[half, fit] - values[other, fit]) / 2)
        even = line(None, (values[half, fit] + values[other, fit]) / 2 - values[0, fit])
        v = values[0, test]
        extrapolated += ((v + 2 * odd(v) + 4 * even(v) - values[whole, test]) ** 2).sum(1)
    found = errors.predicted[:, test]  # by ridge: nearly least squares
    assert found[equivariance.TWICE].sum() == pytest.approx(twice.sum(), rel=0.1)
    assert found[equivariance.EXTRAPOLATED].sum() == pytest.approx(extrapolated.sum(), rel=0.2)
    means = values[[1, 4]][:, fit].mean(1, keepdims=True)
    assert errors.spread[test] == pytest.approx(
        ((values[[1, 4]][:, test] - means) ** 2).sum((0, 2))
    )


def _sides():
    measured = np.arange(N + M) < N
    return measured, ~measured


@pytest.mark.parametrize("name", equivariance.REACH)
def test_two_halves_of_a_warp_are_the_whole(name):
    sizes = equivariance.warp_sizes(name, composed=True)

    def matrix(size):
        return torch.cat([family_matrix(name, size, (28, 28))[0], torch.tensor([[0, 0, 1.0]])])

    for half, whole in ((2, 1), (3, 4)):
        torch.testing.assert_close(
            matrix(sizes[half]) @ matrix(sizes[half]), matrix(sizes[whole]), rtol=1e-4, atol=1e-4
        )
    assert torch.equal(matrix(sizes[0])[:2], family_matrix(name, sizes[0], (28, 28))[0])
    assert sizes[4] == pytest.approx({"scale": 1.3, "rotation": 30, "shear": 0.6}.get(name, 3.0))


def measured(networks, images, training, **options):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "training_images", lambda *_: training)
        return equivariance.Laws().measure(
            networks, images, torch.arange(48) % 3, dataset="noise", inputs=None, **options
        )


@pytest.fixture(scope="module")
def result():
    draw = torch.Generator().manual_seed(1)
    images, others = (torch.rand(n, 1, 21, 19, generator=draw) for n in (48, 60))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        cnn = models.build("resnet", (1, 21, 19), 3, channels=(4, 8, 12), blocks=1).eval()
    training = {"fit_images": others, "fit_labels": torch.arange(60) % 3}
    return measured({"net": build_strong(), "cnn": cnn}, images, training,
                    warp=("rotation", "scale"), seeds=2)  # fmt: skip


def test_a_law_is_above_untrained_networks_only_where_it_explains_something(result):
    def verdict(vector, change, more):
        """On R2 of a trained network's laws, and by how much it is above that of untrained ones."""

        def estimate(value):
            ends, one = np.array([-0.05, 0.05]), np.ones(result.explained.value.shape)
            less = Estimate(-more * one, (-more * one)[..., None] + ends)
            return Estimate(value * one, (value * one)[..., None] + ends, 48, less)

        some = result._replace(explained=estimate(vector), change=estimate(change))
        return equivariance.Laws().verdict(some)

    assert "half a warp, twice" in verdict(0.6, 0.5, 0.3).split("clearly more")[0]
    for numbers in ((-0.02, 0.5, 0.3), (0.6, 0.03, 0.3), (0.6, 0.5, 0.04)):
        assert "no law explains clearly more" in verdict(*numbers)


class CentreOfMass(Foreign):
    """The pose of every class: where the bright pixels lie, which a shift adds to."""

    peculiar = {"norms": "a place is no activation", "votes": "it has none"}

    def look(self, images, *, keep, couplings=None, iterations=None):
        shown = super().look(images, keep=keep, couplings=couplings)
        whole = images.sum((1, 2, 3))
        rows, columns = (torch.arange(float(n)) for n in images.shape[2:])
        x, y = (images * columns).sum((1, 2, 3)) / whole, (images * rows[:, None]).sum((1, 2, 3))
        shown["poses"] = torch.stack([x, y / whole], -1)[None, :, None].expand(1, -1, 3, -1)
        return shown


def test_where_one_shift_is_the_whole_law_nothing_is_left_of_the_change(tmp_path):
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(48, 1, 21, 19)
    images[:, :, 7:12, 7:11] = torch.rand(48, 1, 5, 4, generator=generator)
    model = CentreOfMass((1, 21, 19), classes=3, grid=(2, 3, 2), E=2).eval()
    result = measured({"net": model}, images, {}, warp=("shift-x",))
    assert np.isnan(result.change.value[0]).all() and np.isfinite(result.change.value[1]).all()
    assert result.explained.value[0, 0, equivariance.SHIFT] == pytest.approx(1)
    text = equivariance.Laws().verdict(result)
    assert "one shift is the whole law" in text and "nan" not in text
    assert_fits(results.draw("equivariance", result, "single"))
    _, rows, _ = equivariance.Laws().table(result)
    assert rows[1][3] == "–"
