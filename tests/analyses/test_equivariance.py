"""Equivariance: properties of the fits, vectors, untrained controls, and laws of a warp."""

import numpy as np
import pytest
import torch
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_strong
from helpers.plain_capsnet import Foreign
from sklearn.linear_model import RidgeCV

from capsviz import checkpoint, results
from capsviz.analyses import equivariance
from capsviz.analyses.equivariance import draw, fits, measure
from capsviz.analyses.equivariance.measure import RANDOM, Data, gather
from capsviz.nn import models
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import features
from capsviz.transforms.warps import family_matrix, warp

N, LABELS = 48, torch.arange(48) % 3
M, OTHERS = 60, torch.arange(60) % 3
SIZES = np.array([0.0, -2, -1, 1, 2])


def run(networks, images, training=None, analysis=equivariance.AffineMaps, **options):
    named = {f"net {k}": one for k, one in enumerate(networks)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "training_images", lambda *_: training or {})
        return analysis().measure(named, images, LABELS, dataset="noise", inputs=None, **options)


def noise(count, seed):
    return torch.rand(count, 1, 21, 19, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def images():
    return noise(N, 1)


@pytest.fixture(scope="module")
def training():
    return {"fit_images": noise(M, 2), "fit_labels": OTHERS}


@pytest.fixture(scope="module")
def cnn():
    torch.manual_seed(0)
    return models.build("resnet", (1, 21, 19), 3, channels=(4, 8, 12), blocks=1).eval()


@pytest.fixture(scope="module")
def result(images, training, cnn):
    warps = ("rotation", "shear", "shift-x")
    return run([build_strong(), cnn], images, training, warp=warps, seeds=2)


def explained(errors, name):
    """Return R2 by size (A,)."""
    return 1 - getattr(errors, name).sum(1) / errors.spread.sum(1)


def fit(values, dimensions=6):
    """Return errors of vectors of one class, with its halves as folds."""
    n = values.shape[1]
    half = np.arange(0, n, 2), np.arange(1, n, 2)
    data = Data(torch.zeros(n, 1), np.zeros(n), [half, half[::-1]], n // 2, [])
    return fits.of_vectors(values, data, SIZES, dimensions)


def drawn(n=200, E=6):
    """Return vectors (n, E), and unrelated numbers of the same shape."""
    draw = np.random.default_rng(0)
    return draw.normal(size=(n, E)), draw.normal(size=(n, E))


def test_an_affine_change_is_explained_and_its_size_is_predicted():
    v, _ = drawn()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    along = 3 * np.arange(6)
    errors = fit(np.stack([v, *(v @ turn + size * along for size in SIZES[1:])]))
    assert (explained(errors, "fitted") > 0.999).all()
    assert (explained(errors, "unchanged") < 0.3).all()
    assert 1 - errors.read.sum() / errors.range.sum() > 0.8


def test_unrelated_vectors_are_not_explained():
    v, other = drawn()
    errors = fit(np.stack([v, *[other] * 4]))
    assert (abs(explained(errors, "fitted")) < 0.1).all()
    assert (explained(errors, "unchanged") < -0.5).all()


def test_a_small_change_of_few_images_is_not_explained_worse_than_no_change():
    """Shrinkage towards the mean alone is worse than no change of the vector."""
    v, other = drawn(32, 16)
    errors = fit(np.stack([v, *[v + 0.2 * other] * 4]), 16)
    assert (explained(errors, "fitted") > explained(errors, "unchanged") - 0.02).all()


def test_affine_maps_equal_scikit_learn():
    """`RidgeCV`, one target after the other, shrunk towards whichever predicts better."""
    v, other = drawn(30, 3)
    targets = np.stack([0.5 * v + size * other for size in SIZES[1:]])
    targets[0] = v + 0.01 * other
    predicted = fits.affine(v, targets)(other[:7])
    shrunk = set()
    for target, one in zip(targets, predicted, strict=True):
        penalties = fits.PENALTIES * v.var(0).mean()
        mean, same = (RidgeCV(penalties).fit(v, t) for t in (target, target - v))
        towards_mean = mean.best_score_ >= same.best_score_
        shrunk.add(bool(towards_mean))
        twin = mean.predict(other[:7]) if towards_mean else other[:7] + same.predict(other[:7])
        assert one == pytest.approx(twin)
    assert shrunk == {True, False}


def test_errors_are_squared_distances_per_image():
    v, other = drawn(30, 3)
    values = np.stack([v, *(0.5 * v + size * other for size in SIZES[1:])])
    known, asked = values[:, :20], values[:, 20:]
    errors = fits.of_class(asked, known, SIZES, 3, 20)
    off = fits.affine(known[0], known[1:])(asked[0]) - asked[1:]
    assert errors.fitted == pytest.approx((off**2).sum(2))
    assert errors.unchanged == pytest.approx(((asked[1:] - asked[0]) ** 2).sum(2))
    assert errors.spread[2] == pytest.approx(((asked[3] - known[3].mean(0)) ** 2).sum(1))
    assert errors.range == pytest.approx(np.full(10, 2.0))  # of -2, -1, 0, 1, 2


def test_long_vectors_are_reduced_by_the_images_of_the_fit():
    """Compare with scikit-learn's PCA; R2 is of the retained components."""
    from sklearn.decomposition import PCA

    v, other = drawn(60, 9)
    values = np.stack([v * np.arange(1, 10)] * 5) + 0.1 * other
    known, asked = values[:, :40], values[:, 40:]
    errors = fits.of_class(asked, known, SIZES, 4, 40)
    axes = PCA(4).fit(known.reshape(-1, 9))
    asked = np.stack([axes.transform(one) for one in asked])
    known = np.stack([axes.transform(one) for one in known])
    twin = fits.of_class(asked, known, SIZES, 4, 40)
    assert errors.fitted == pytest.approx(twin.fitted)


def test_no_image_is_measured_by_a_fit_on_it():
    v, other = drawn(30, 3)
    values = np.stack([v, *(v + size * other for size in SIZES[1:])])
    before = fit(values, 3)
    values[:, 4] += 50
    after = fit(values, 3)
    others = np.setdiff1d(np.arange(0, 30, 2), [4])
    assert np.array_equal(before.read[others], after.read[others])
    assert np.array_equal(before.fitted[:, others], after.fitted[:, others])
    assert not np.array_equal(before.fitted[:, 1::2], after.fitted[:, 1::2])


def test_last_features_are_the_input_of_the_last_layer(cnn, images):
    values = features(cnn, images, LABELS).float()
    with torch.no_grad():
        assert torch.allclose(cnn.classes(values), cnn(images).logits, atol=1e-5)
    assert not cnn.classes._forward_pre_hooks
    with pytest.raises(ValueError, match="neither capsules nor a linear layer"):
        features(torch.nn.Flatten(), images, LABELS)


def test_results_are_those_of_vectors_of_warped_images(images, training, result):
    """Compute one size of a warp by hand; untrained networks are averaged over seeds."""
    f, a = result.warps.index("shear"), 1
    assert result.sizes[f, a] == pytest.approx(-0.3)
    matrix = family_matrix("shear", -0.3, (21, 19))
    others, labels = training["fit_images"], LABELS.numpy()
    warped, warped_others = (warp(x, matrix).clamp(0, 1) for x in (images, others))
    untrained = [
        checkpoint.untrained_like(build_strong(), seed, preset="authors") for seed in range(2)
    ]
    for s, networks in ((0, [build_strong()]), (2, untrained)):
        explained = []
        for model in networks:
            errors, spread = 0, 0
            for k in range(3):
                before, after = (
                    features(model, x, LABELS).numpy()[labels == k] for x in (images, warped)
                )
                mean = features(model, warped_others, OTHERS).numpy()[k == OTHERS].mean(0)
                errors += ((after - before) ** 2).sum()
                spread += ((after - mean) ** 2).sum()
            explained.append(1 - errors / spread)
        assert result.unchanged.value[s, f, a] == pytest.approx(np.mean(explained), abs=1e-4)


def test_every_class_is_fitted_on_as_many_images():
    images, labels = torch.zeros(10, 1, 2, 2), torch.tensor([0, 2] * 5)
    others = torch.tensor([0] * 9 + [1] * 30 + [2] * 20)
    more = torch.zeros(len(others), 1, 2, 2)
    data = gather(images, labels, 12, fit_images=more, fit_labels=others)
    ((measured, fitted),) = data.folds
    assert data.fit == 9 and "9 of each class, not 12" in data.notes[0]
    assert measured.tolist() == list(range(10))
    assert np.bincount(data.labels[fitted]).tolist() == [9, 0, 9]
    with pytest.raises(ValueError, match="at least 8 training images of a class"):
        gather(images, labels, 12, fit_images=more[2:], fit_labels=others[2:])
    assert fits.counts(500) == [31, 62, 125, 250, 500] and fits.counts(9) == [9]


def test_without_other_images_each_half_is_measured_by_fits_on_the_other():
    data = gather(torch.zeros(48, 1, 2, 2), LABELS, 250)
    (one, two), other = data.folds
    assert other == (two, one) and sorted([*one, *two]) == list(range(48)) and data.fit == 8
    assert all((np.bincount(data.labels[side]) == 8).all() for side in (one, two))
    with pytest.raises(ValueError, match="expected at least 8 of each"):
        gather(torch.zeros(20, 1, 2, 2), LABELS[:20], 250)


def test_kinds_shapes_and_intervals(result):
    untrained = [f"net 0 untrained ({preset})" for preset in ("paper", "authors")]
    assert result.sources == ["net 0", *untrained, "net 1", "pixels", RANDOM] and result.seeds == 2
    assert result.dimensions == [6, 6, 6, 12, 21 * 19, 6] and result.kept == 6
    assert result.fitted.value.shape == (6, 3, 4) and result.probe.value.shape == (6, 3)
    assert result.fit_counts == [10, 20] and result.by_count.value.shape == (6, 3, 2)
    assert (result.mean.difference.value[0] == 0).all()


def test_the_legend_names_vectors_reduced_to_principal_components(result):
    network, *_, other, pixels, random = draw._labels(result, result.kept)
    assert network == "net 0, 6 numbers" and random == f"{RANDOM}, 6 numbers"
    assert other == "net 1, 6 components of 12" and pixels == "pixels, 6 components of 399"


def test_a_network_that_cannot_be_rebuilt_has_no_control_and_is_not_changed(images):
    model = Foreign((1, 21, 19), classes=3, grid=(2, 3, 2)).train()
    state = torch.get_rng_state()
    values = run([model], images, warp=("shift-x",), seeds=1)
    assert values.sources == ["net 0", "pixels", RANDOM] and values.seeds == 0
    assert "Foreign cannot be built anew" in equivariance.AffineMaps().verdict(values)
    assert model.training and torch.equal(torch.get_rng_state(), state)


SIDES = np.arange(60), np.arange(60, 150)  # rows measured, rows fitted on, to test laws
TIMES = np.array(equivariance.STEPS)  # whole warps
CLASSES = np.arange(150) % 3


def vectors(seed=0):
    return np.random.default_rng(seed).normal(size=(150, 6))


def turning(v, angles_deg):
    """Return vectors (5, X, E) that rotate in two of three planes, by an angle per image."""
    out = np.empty((5, *v.shape))
    for t, step in enumerate(TIMES):
        angle = np.radians(angles_deg) * step
        out[t] = v
        for a, b in ((0, 1), (2, 3)):
            out[t, :, a] = np.cos(angle) * v[:, a] - np.sin(angle) * v[:, b]
            out[t, :, b] = np.sin(angle) * v[:, a] + np.cos(angle) * v[:, b]
    return out


def law_errors(values):
    return fits.laws_of_vectors(values, Data(torch.zeros(150, 1), CLASSES, [SIDES], 30, []))


def r2(values, field="spread"):
    errors = law_errors(values)
    return 1 - errors.predicted.sum(1) / getattr(errors, field).sum()


def test_a_law_holds_for_vectors_that_rotate_equally_in_all_classes():
    values = turning(vectors(), 30.0)
    values[..., 4:] += TIMES[:, None, None]
    for field in ("spread", "change"):
        own, twice, extrapolated, one_matrix, one_map, shift = r2(values, field)
        assert min(own, twice, one_matrix, one_map) > 0.999 and extrapolated > 0.99
        assert shift < 0.95
    assert r2(values, "change")[equivariance.SHIFT] == pytest.approx(0, abs=0.05)


def test_classes_that_rotate_differently_have_separate_laws():
    values = turning(vectors(), np.array([-90.0, 20, 90])[CLASSES])
    own, twice, _, one_matrix, one_map, _ = r2(values)
    assert min(own, twice) > 0.999 and max(one_matrix, one_map) < 0.7


def test_classes_that_rotate_equally_about_different_centres_share_a_matrix_but_no_map():
    values = turning(vectors(), 60.0)
    values[[1, 4]] += 5 * np.random.default_rng(3).normal(size=(3, 6))[CLASSES]
    own, *_, one_matrix, one_map, _ = r2(values)
    assert min(own, one_matrix) > 0.999 and one_map < 0.5


def test_two_halves_that_do_not_give_the_whole_are_no_law():
    """The whole warp rotates against its halves: each has a map, but there is no law."""
    values = turning(vectors(), 60.0)
    values[[1, 4]] = values[[4, 1]]
    own, twice, extrapolated, _, one_map, _ = r2(values)
    assert min(own, one_map) > 0.999
    assert max(twice, extrapolated) < 0.5


def test_a_change_that_does_not_depend_on_the_vector_is_not_explained():
    v = vectors()
    values = v + 0.3 * np.array([0, -2, -1, 1, 2])[:, None, None] * vectors(1)
    assert r2(values)[equivariance.OWN] > 0.6
    assert abs(r2(values, "change")[equivariance.OWN]) < 0.1


def test_laws_match_predictions_by_hand():
    values, k = turning(vectors(), 40.0) + 0.2 * vectors(2), 1
    errors = law_errors(values)
    test, fit = (rows[k == CLASSES[rows]] for rows in SIDES)

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


@pytest.fixture(scope="module")
def laws(images, training, cnn):
    networks = [build_strong(), cnn]
    warps = ("rotation", "scale")
    return run(networks, images, training, equivariance.Laws, warp=warps, seeds=2)


def test_a_law_is_above_untrained_networks_only_where_it_explains_something(laws):
    def verdict(vector, change, more):
        """Return the verdict for R2 of a trained network, and its margin above untrained ones."""

        def estimate(value):
            ends, one = np.array([-0.05, 0.05]), np.ones(laws.explained.value.shape)
            less = Estimate(-more * one, (-more * one)[..., None] + ends)
            return Estimate(value * one, (value * one)[..., None] + ends, 48, less)

        some = laws._replace(explained=estimate(vector), change=estimate(change))
        return equivariance.Laws().verdict(some)

    assert "half a warp, twice" in verdict(0.6, 0.5, 0.3).split("clearly more")[0]
    for numbers in ((-0.02, 0.5, 0.3), (0.6, 0.03, 0.3), (0.6, 0.5, 0.04)):
        assert "no law explains clearly more" in verdict(*numbers)


class CentreOfMass(Foreign):
    """Its poses are the positions of bright pixels, to which a shift adds."""

    peculiar = {"norms": "a place is no activation", "votes": "it has none"}

    def look(self, images, *, keep, couplings=None, iterations=None):
        shown = super().look(images, keep=keep, couplings=couplings)
        whole = images.sum((1, 2, 3))
        rows, columns = (torch.arange(float(n)) for n in images.shape[2:])
        x, y = (images * columns).sum((1, 2, 3)) / whole, (images * rows[:, None]).sum((1, 2, 3))
        shown["poses"] = torch.stack([x, y / whole], -1)[None, :, None].expand(2, -1, 3, -1)
        return shown


def test_if_one_shift_is_the_whole_law_the_change_is_nan():
    generator = torch.Generator().manual_seed(0)
    images = torch.zeros(48, 1, 21, 19)
    images[:, :, 7:12, 7:11] = torch.rand(48, 1, 5, 4, generator=generator)
    model = CentreOfMass((1, 21, 19), classes=3, grid=(2, 3, 2), E=2).eval()
    result = run([model], images, analysis=equivariance.Laws, warp=("shift-x",))
    assert np.isnan(result.change.value[0]).all() and np.isfinite(result.change.value[1]).all()
    assert result.explained.value[0, 0, equivariance.SHIFT] == pytest.approx(1)
    text = equivariance.Laws().verdict(result)
    assert "one shift is the whole law" in text and "nan" not in text
    assert_fits(results.draw("equivariance", result, "single"))
    _, rows, _ = equivariance.Laws().table(result)
    assert rows[1][3] == "–"


def test_r2_over_all_sizes_is_computed_from_sums_and_described_so(images, training):
    """It is close to the mean of R2 over sizes, but not equal."""
    errors = []
    with pytest.MonkeyPatch.context() as patch:
        of_class = fits.of_class
        patch.setattr(fits, "of_class", lambda *some: errors.append(of_class(*some)) or errors[-1])
        one = run([build_strong()], images, training, warp=("rotation",), seeds=0)
    off, spread = (
        sum(getattr(e, name).sum() for e in errors[-3:]) for name in ("fitted", "spread")
    )  # of three classes: networks come last
    assert one.mean.value[0, 0] == pytest.approx(1 - off / spread)
    assert one.mean.value[0, 0] != pytest.approx(one.fitted.value[0, 0].mean(), abs=1e-6)
    assert "R² of the fitted maps, all sizes" in equivariance.AffineMaps().findings(one)
    assert "mean R²" not in equivariance.AffineMaps().findings(one)
