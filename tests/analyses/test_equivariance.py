"""Equivariance: laws of the fits, vectors of single images, and a control that has no structure."""

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import build_strong
from elsewhere import elsewhere, same
from sklearn.metrics import r2_score

from analyses import _equivariance_features as vectors
from analyses import _equivariance_fits as fits
from analyses import equivariance
from capsviz import figures, models
from capsviz.cli import main

N, LABELS = 48, torch.arange(48) % 3
SIZES = np.array([0.0, -2, -1, 1, 2])


def run(networks, images, **more):
    given = {"names": [f"net {k}" for k in range(len(networks))], "dataset": "noise", **more}
    return equivariance.compute(networks, images, LABELS, resamples=100, **given)


@pytest.fixture(scope="module")
def images():
    return torch.rand(N, 1, 21, 19, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def cnn():
    torch.manual_seed(0)
    return models.build("resnet", (1, 21, 19), 3, channels=(4, 8, 12), blocks=1).eval()


@pytest.fixture(scope="module")
def result(images, cnn):
    return run([build_strong(), cnn], images)


def explained(errors, name):
    """R2 by size (A,)."""
    return 1 - getattr(errors, name).sum(1) / errors.spread.sum(1)


def fit(made, dimensions=6):
    labels = np.arange(made.shape[1]) % 3
    return fits.cross_fit(made, SIZES, labels, fits.halves(labels), dimensions)


def drawn(n=300, E=6):
    """Vectors (n, E), and other numbers of the same shape."""
    draw = np.random.default_rng(0)
    return draw.normal(size=(n, E)), draw.normal(size=(n, E))


def test_what_changes_lawfully_is_explained_and_its_size_is_read():
    v, _ = drawn()
    turn = np.linalg.qr(np.random.default_rng(1).normal(size=(6, 6)))[0]
    along = 3 * np.arange(6)
    errors = fit(np.stack([v, *(v @ turn + size * along for size in SIZES[1:])]))
    assert (explained(errors, "fitted") > 0.999).all()
    assert (explained(errors, "unchanged") < 0.3).all()
    assert 1 - errors.read.sum() / errors.range.sum() > 0.8


def test_what_does_not_change_is_explained_and_its_size_is_not_read():
    v, _ = drawn()
    errors = fit(np.stack([v] * 5))
    assert (explained(errors, "fitted") > 0.999).all()
    assert explained(errors, "unchanged") == pytest.approx(np.ones(4))
    assert abs(1 - errors.read.sum() / errors.range.sum()) < 0.02


def test_what_has_nothing_to_do_with_the_unwarped_is_not_explained():
    v, other = drawn()
    errors = fit(np.stack([v, *[other] * 4]))
    assert (abs(explained(errors, "fitted")) < 0.05).all()
    assert (explained(errors, "unchanged") < -0.5).all()


def test_a_small_change_of_few_images_is_not_explained_worse_than_no_change():
    """Shrinking towards the mean alone loses to leaving the vector as it is."""
    v, other = drawn(48, 16)
    errors = fit(np.stack([v, *[v + 0.2 * other] * 4]), 16)
    assert (explained(errors, "fitted") > explained(errors, "unchanged") - 0.02).all()


def test_errors_are_those_of_scikit_learn_image_by_image():
    v, other = drawn(90, 3)
    made = np.stack([v, *(0.5 * v + size * other for size in SIZES[1:])])
    errors = fit(made, 3)
    one = np.flatnonzero(np.arange(90) % 3 == 1)
    first, second = one[::2], one[1::2]
    predict = fits._affine(v[first], made[3, first])
    off = made[3, second] - predict(v[second])
    assert errors.fitted[2, second] == pytest.approx((off**2).sum(1))
    assert errors.unchanged[2, first] == pytest.approx(((made[3, first] - v[first]) ** 2).sum(1))
    mean = made[3, second].mean(0)
    assert errors.spread[2, first] == pytest.approx(((made[3, first] - mean) ** 2).sum(1))
    assert errors.range == pytest.approx(np.full(90, 2.0))  # of -2, -1, 0, 1, 2


def test_no_image_is_measured_by_a_fit_that_saw_it():
    v, other = drawn(90, 3)
    made = np.stack([v, *(v + size * other for size in SIZES[1:])])
    before = fit(made, 3)
    made[:, 4] += 50
    after = fit(made, 3)
    labels = np.arange(90) % 3
    alike = np.flatnonzero((labels == labels[4]) & (fits.halves(labels) == fits.halves(labels)[4]))
    others = np.setdiff1d(alike, [4])
    assert np.array_equal(before.read[others], after.read[others])
    assert np.array_equal(before.fitted[:, others], after.fitted[:, others])


def test_both_halves_hold_every_class():
    labels = np.array([0] * 9 + [5] * 8)
    half = fits.halves(labels)
    for k in (0, 5):
        assert sorted(np.bincount(half[labels == k])) in ([4, 4], [4, 5])
    with pytest.raises(ValueError, match="class 5 has 7 images, expected at least 8"):
        fits.halves(labels[:-1])


def test_vectors_are_those_of_single_images(network, images):
    found = vectors.features(network, images, LABELS)
    for i in range(0, N, 7):
        seen = network.look(images[i : i + 1], keep=("poses",))["poses"][-1, 0]
        assert torch.allclose(found[i], seen[LABELS[i]].detach(), atol=1e-5)


def test_last_features_are_what_the_answer_is_made_of(cnn, images):
    found = vectors.features(cnn, images, LABELS)
    with torch.no_grad():
        assert torch.allclose(cnn.classes(found), cnn(images).logits, atol=1e-5)
    assert not cnn.classes._forward_pre_hooks
    with pytest.raises(ValueError, match="neither capsules nor a linear layer"):
        vectors.features(torch.nn.Flatten(), images, LABELS)


def test_shuffled_weights_are_the_same_numbers_in_another_order():
    model = build_strong()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    other = vectors.shuffled(model, seed=3)
    for name, weight in other.state_dict().items():
        assert torch.equal(weight.flatten().sort().values, before[name].flatten().sort().values)
        assert weight.numel() < 5 or not torch.equal(weight, before[name])
        assert torch.equal(model.state_dict()[name], before[name])
    again = vectors.shuffled(model, seed=3).state_dict()
    assert all(torch.equal(weight, again[name]) for name, weight in other.state_dict().items())


def test_results_are_those_of_vectors_of_warped_images(images, result):
    """The second size of the third warp, by hand."""
    from capsviz.warps import family_matrix, warp

    f, a = result.warps.index("shear"), 1
    assert result.sizes[f, a] == pytest.approx(-0.4)
    model, half = build_strong(), fits.halves(LABELS.numpy())
    shown = warp(images, family_matrix("shear", -0.4, (21, 19))).clamp(0, 1)
    before, after = (vectors.features(model, x, LABELS).numpy() for x in (images, shown))
    mean = np.stack([after[(k == LABELS).numpy() & (half == 1 - h)].mean(0)
                     for k, h in zip(LABELS.tolist(), half, strict=True)])  # fmt: skip
    expected = 1 - ((after - before) ** 2).sum() / ((after - mean) ** 2).sum()
    assert result.unchanged[0, f, a] == pytest.approx(expected, abs=1e-4)


def test_kinds_shapes_and_intervals(result):
    assert result.sources == ["net 0", "net 0, weights shuffled", "net 1", "pixels"]
    assert result.dimensions == [6, 6, 12, 21 * 19] and result.kept == 6
    assert result.fitted.shape == (4, 5, 6) and result.probe.shape == (4, 5)
    for name in ("fitted", "unchanged", "mean", "probe"):
        value, ends = getattr(result, name), getattr(result, f"{name}_ci95")
        assert (value <= 1).all() and np.isfinite(ends).all()
        assert ((ends[..., 0] <= value) & (value <= ends[..., 1])).mean() > 0.9
    assert (result.mean_difference[0] == 0).all() and (result.probe_difference_ci95[0] == 0).all()
    assert np.allclose(result.probe_difference, result.probe - result.probe[0])


def test_the_size_of_a_shift_is_read_off_the_pixels_of_a_bar():
    """In its own unit, pixels."""
    bars = torch.zeros(N, 1, 21, 19)
    for i in range(N):
        bars[i, 0, 4:17, 8:10] = 0.5 + 0.5 * torch.rand(
            (), generator=torch.Generator().manual_seed(i)
        )
    found = run([build_strong()], bars)
    f = found.warps.index("shift-x")
    assert found.probe[-1, f] > 0.95 and found.probe_error[-1, f] < 0.5


def test_foreign_networks_are_looked_at(network, images):
    found = run([network], images)
    assert np.isfinite(found.fitted).all() and found.kept in (5, 6)


def test_a_network_is_left_as_found(images):
    model = build_strong().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    run([model], images)
    assert model.training
    assert all(torch.equal(w, before[name]) for name, w in model.state_dict().items())


def test_images_may_be_on_another_device(images, cnn, result):
    shown, labels = elsewhere(images, LABELS)
    found = equivariance.compute(
        [build_strong(), cnn], shown, labels, names=["net 0", "net 1"], dataset="noise",
        resamples=100,
    )  # fmt: skip
    assert same(found, result)


@pytest.mark.parametrize("width", [3.5, 7.16])
def test_a_result_survives_being_written_and_says_what_it_found(result, tmp_path, width):
    figures.save(tmp_path / "x", "equivariance", result, formats=("png",), width=width)
    read, _ = figures.read_result(tmp_path / "x.json")
    assert same(read, result)
    lines = equivariance.findings(result).splitlines()
    assert len(lines) == 6 and lines[0].startswith("48 noise images")
    assert lines[1].startswith("rotation, -30 to 30°") and f"{result.mean[0, 0]:.2f} [" in lines[1]
    assert f"{result.probe[0, 4]:.2f} [" in lines[5]
    assert f"{result.probe[0, 4]:.2f} [" in equivariance.caption(result)


def test_a_first_network_without_capsules_and_few_images_are_refused(cnn, images):
    with pytest.raises(ValueError, match="no capsules"):
        run([cnn], images)
    with pytest.raises(ValueError, match="expected at least 8 of each"):
        equivariance.compute([build_strong()], images[:20], LABELS[:20], names=["a"], dataset="x")


def test_the_command_looks_at_the_embedded_digits(tmp_path):
    asked = ["equivariance", "--checkpoints", "digits", "--data-dir", str(tmp_path), "--n", "180"]
    asked += ["--format", "png", "--output", str(tmp_path / "out")]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 0, done.output
    assert "rotation, -30 to 30°: affine map" in done.stdout
    assert (tmp_path / "out" / "equivariance-digits-180-images.json").is_file()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--n", "20"], "expected at least 8 of each"),
        (["--n", "0"], "asked for 0 images"),
        (["--n", "9999"], "asked for 9999 images"),
        (["--checkpoints", "nobody"], "nobody"),
    ],
)
def test_the_command_refuses_in_one_line(given, message, tmp_path):
    asked = ["equivariance", *given, "--output", str(tmp_path)]
    asked += [] if "--checkpoints" in given else ["--checkpoints", "digits"]
    done = CliRunner().invoke(main, asked)
    assert done.exit_code == 2 and message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1 and not list(tmp_path.iterdir())


def test_explained_is_the_coefficient_of_determination(result):
    from capsviz.comparison import compare_explained, draw_resamples

    draw = np.random.default_rng(2)
    true, seen = draw.normal(size=200), draw.normal(size=200)
    errors, spread = (true - 0.5 * true - 0.1 * seen) ** 2, (true - true.mean()) ** 2
    found = compare_explained(
        np.stack([errors, spread]), np.stack([spread] * 2), draw_resamples(200)
    )
    assert found.value == pytest.approx([r2_score(true, 0.5 * true + 0.1 * seen), 0])
    assert found.ci95[0, 0] < found.value[0] < found.ci95[0, 1]
    assert found.ci95[1] == pytest.approx([0, 0])
