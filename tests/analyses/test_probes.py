"""Probes: known answers, what no fit may see, control tasks, cycles, paths, and what is said."""

import copy

import numpy as np
import pytest
import torch
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_strong, build_tiny
from helpers.plain_capsnet import Foreign
from scipy.stats import entropy, ttest_rel

from capsviz import results
from capsviz.analyses import probes
from capsviz.analyses.probes import dci, measure
from capsviz.nn import models
from capsviz.tracing import trace

M = 6  # measures


def drawn(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def probed(values, factors, again=None):
    """R2 of M measures and of their control task: 60 images measured, 100 fitted on, 40 again."""
    rows, again = np.arange(40), values[60:100] if again is None else again
    errors = measure.probe(
        values[:60], values[60:], again, factors[:60], factors[60:], rows, np.random.default_rng(0)
    )
    one = 1 - errors.real.sum(0) / errors.spread.sum(0)
    return one, 1 - errors.control.sum(0) / errors.control_spread.sum(0)


def test_what_a_pose_knows_linearly_is_read_whole_and_nothing_else():
    factors = drawn(0, 160, M)
    known, control = probed(factors @ drawn(1, M, M) + 3, factors * [1, 10, 0.1, 5, 2, 3] + 7)
    assert (known > 0.999).all() and (control < 0.3).all()
    assert (probed(drawn(2, 160, M), factors)[0] < 0.1).all()


def test_long_vectors_learn_the_control_task_by_heart():
    """As many numbers as images: other images' measures are told as well as their own."""
    factors = drawn(0, 160, M)
    values = np.concatenate([factors, 0.3 * drawn(3, 160, 120)], 1)
    known, control = probed(values, factors)
    short, little = probed(values[:, :M], factors)
    assert (control > little + 0.3).all() and (short - little > known - control).all()


def test_probes_are_those_of_scikit_learn():
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    factors = drawn(0, 160, M)
    values = factors @ drawn(1, M, 9) + drawn(4, 160, 9)
    known, _ = probed(values, factors)
    for j in range(M):
        twin = make_pipeline(StandardScaler(), RidgeCV(measure.PENALTIES))
        y = factors[60:, j]
        fitted = twin.fit(values[60:], (y - y.mean()) / y.std()).predict(values[:60])
        off = ((fitted * y.std() + y.mean() - factors[:60, j]) ** 2).sum()
        assert known[j] == pytest.approx(1 - off / ((factors[:60, j] - y.mean()) ** 2).sum())


def test_a_code_of_one_measure_a_dimension_is_disentangled_and_complete_and_turned_it_is_not():
    factors = drawn(0, 400, M)
    order, signs = np.random.default_rng(1).permutation(M), np.array([1, -1, 3, 0.1, -5, 1])
    for code in (factors, (factors * signs)[:, order]):
        assert min(dci.dci(code, factors)) > 0.95
    rotated = dci.rotated(factors, np.random.default_rng(2))
    assert max(dci.dci(rotated, factors)) < 0.45
    assert dci.dci(np.ones((400, 4)), factors) == (0, 0)


def test_a_measure_of_several_dimensions_is_disentangled_and_not_complete():
    code = drawn(0, 400, 6)
    disentangled, complete = dci.dci(code, code[:, :3] + code[:, 3:])
    assert disentangled > 0.95 and complete == pytest.approx(1 - np.log(2) / np.log(6), abs=0.05)


def test_dci_is_by_entropies_of_weights():
    factors = drawn(0, 200, 3)
    code = factors @ drawn(1, 3, 5) + drawn(2, 200, 5)
    weights = dci.importance(code, factors)
    rows = [1 - entropy(row, base=3) for row in weights]
    columns = [1 - entropy(column, base=5) for column in weights.T]
    expected = (
        np.average(rows, weights=weights.sum(1)),
        np.average(columns, weights=weights.sum(0)),
    )
    assert dci.dci(code, factors) == pytest.approx(expected)


def test_a_code_that_tells_nothing_has_none_of_both():
    """A lasso leaves noise a weight or two, which would be as concentrated as can be."""
    seeds = range(0, 40, 2)
    scores = np.array([dci.dci(drawn(k, 125, 16), drawn(k + 1, 125, M)) for k in seeds])
    assert (scores == 0).all(1).mean() >= 0.8 and scores.mean() < 0.15
    knows = drawn(0, 125, 16)
    factors = np.concatenate([knows[:, :1] + knows[:, 1:2], drawn(1, 125, M - 1)], 1)
    weights = dci.importance(knows, factors)
    assert (weights[:2, 0] > 0.5).all() and not weights[:, 1:].any()


def test_a_pose_of_one_number_has_no_completeness():
    codes = np.random.default_rng(0).normal(size=(60, 1))
    apart, complete = dci.dci(codes, np.hstack([codes, -codes]))
    assert np.isnan(complete) and 0 <= apart <= 1


def test_halves_of_a_class_count_once():
    codes = np.random.default_rng(0).random((2, 6, 2))
    found = measure.concentrated(np.concatenate([codes, codes], 1), [*range(6), *range(6)])
    one = found["disentanglement"].difference[1]
    t = ttest_rel(codes[1, :, 0], codes[0, :, 0]).confidence_interval()
    assert one.value == pytest.approx((codes[1, :, 0] - codes[0, :, 0]).mean())
    assert one.ci95 == pytest.approx(tuple(t))


class Mirror(torch.nn.Module):
    """Poses are the pixels, drawings the poses; class 0 or 1 by the brighter half."""

    grid, peculiar = None, {"norms": "scores are shares of brightness"}

    def __init__(self, size=8, keep=1.0):
        super().__init__()
        self.shape, self.keep = (1, size, size), keep
        self.card = {"name": "mirror", "dataset": {"name": "noise"}}
        self.config = {"image_shape": self.shape, "classes": 2}

    def look(self, images, *, keep, iterations=None):
        halves = images.flatten(1).unflatten(1, (-1, images.shape[3] // 2)).sum(2)
        left, right = halves[:, ::2].sum(1), halves[:, 1::2].sum(1)
        lengths = torch.stack([left, right], 1) / (left + right + 1e-6)[:, None]
        poses = images.flatten(1)[:, None].expand(-1, 2, -1)
        return {
            "primary": images.flatten(1)[..., None],
            "poses": poses[None],
            "lengths": lengths,
            "reconstruction": self.decode(poses, lengths.argmax(1)),
        }

    def decode(self, poses, classes):
        own = poses[torch.arange(len(classes)), classes].unflatten(1, self.shape)
        return self.keep * own + (1 - self.keep) * 0.5


def bars(count, seed=0, size=8):
    """Grey rectangles in one half or the other, of unlike sizes and places."""
    draw = np.random.default_rng(seed)
    images = np.zeros((count, 1, size, size), np.float32)
    for k, image in enumerate(images):
        left = 1 + (k % 2) * size // 2 + draw.integers(0, 2)
        top, height = draw.integers(1, 3), draw.integers(2, 5)
        image[0, top : top + height, left : left + draw.integers(1, 3)] = draw.uniform(0.5, 1)
    return torch.from_numpy(images)


def test_the_cycle_of_an_exact_autoencoder_is_one_and_of_a_blind_decoder_is_not():
    images = bars(40)
    exact = measure.cycle(Mirror(), images, seed=0)
    assert exact["cycle"].value[0] == pytest.approx(1) and exact["cycle_predicted"].value[0] == 1
    assert exact["cycle"].value[1] == pytest.approx(1)  # the drawing is no step away
    assert exact["cycle"].value[2] < 0
    assert measure.cycle(Mirror(keep=0.0), images, seed=0)["cycle"].value[0] < 0


def test_the_cycle_by_hand():
    """A decoder that fades to grey: errors and spread of the pixels, class by class."""
    images, model = bars(30), Mirror(keep=0.9)
    read = trace(model, images, keep=("lengths",)).lengths.argmax(1)
    off = ((0.9 * images + 0.05 - images) ** 2).sum()
    means = torch.stack([images[read == k].mean(0) for k in range(2)])
    found = measure.cycle(model, images, seed=0)
    expected = 1 - float(off / ((images - means[read]) ** 2).sum())
    assert found["cycle"].value[0] == pytest.approx(expected, abs=1e-5)
    like = found["cycle"].value[2]
    other = images[measure.of_like_class(read)]
    spread = ((images - means[read]) ** 2).sum()
    expected = 1 - float(((0.9 * other + 0.05 - images) ** 2).sum() / spread)
    assert like == pytest.approx(expected, abs=1e-5)


def test_the_noise_of_the_control_moves_each_image_as_far_though_it_is_cut_off(generator):
    images = (torch.rand(20, 1, 8, 8, generator=generator) * 1.4 - 0.2).clamp(0, 1)
    distance = torch.linspace(0.1, 3, 20)
    noisy = measure.as_far(images, torch.randn(images.shape, generator=generator), distance)
    assert noisy.min() >= 0 and noisy.max() <= 1
    torch.testing.assert_close((noisy - images).flatten(1).norm(dim=1), distance, rtol=1e-3, atol=0)


def test_a_path_is_decoded_from_straight_steps_of_the_pose(tiny_images):
    model = build_strong()
    path, fade = measure.strips(model, tiny_images[:2], tiny_images[2:4], torch.tensor([1, 2]))
    poses = trace(model, tiny_images[:4]).poses[-1]
    mixed = 0.75 * poses[1] + 0.25 * poses[3]
    expected = model.decode(mixed[None], torch.tensor([2])).detach()
    torch.testing.assert_close(path[1, 2:3], expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fade[1, 4], (path[1, 0] + path[1, 8]) / 2)
    torch.testing.assert_close(fade[:, [0, 8]], path[:, [0, 8]])
    assert path.shape == fade.shape == (2, 9, 1, 21, 19)


def test_couples_are_of_one_class_and_disjoint():
    read = torch.tensor([0, 1, 1, 0, 2, 1, 1, 0, 0])
    pairs = measure.couples(read, torch.Generator().manual_seed(0))
    assert len(pairs) == 4 and (read[pairs[:, 0]] == read[pairs[:, 1]]).all()
    assert len(pairs.flatten().unique()) == 8


def test_the_nearest_image_is_another_one_of_the_class():
    images = bars(24)
    fields = measure.along(Mirror(), images, seed=0)
    read = trace(Mirror(), images, keep=("lengths",)).lengths.argmax(1)
    pairs = measure.couples(read, torch.Generator().manual_seed(0))
    far = []
    for a, b in pairs.tolist():
        others = [i for i in range(24) if i not in (a, b) and read[i] == read[a]]
        far.append(min(float((images[i] - images[a]).square().mean().sqrt()) for i in others))
    assert fields["path_distance"].value[0, 0] == pytest.approx(np.mean(far), abs=1e-6)
    known = measure.along(Mirror(), images, (images, read), seed=0)
    assert known["path_distance"].value[0, 0] == pytest.approx(0, abs=1e-3)
    assert fields["couples"] == len(pairs)
    assert fields["path_predicted"].value[:, 0].tolist() == [1, 1]


def test_a_label_of_the_control_task_belongs_to_an_image_however_it_is_shifted():
    images = bars(40, size=12)
    whole = measure.gather(Mirror(12), images[:16], images[16:], shift_px=1, seed=0)
    assert len(whole.images) == len(whole.classes) == len(whole.poses) == 40 + len(whole.again)
    for row, origin in whole.again.items():
        assert origin >= 16 and whole.classes[row] == whole.classes[origin]
        mass = whole.images[[row, origin]].sum((1, 2, 3))
        assert mass[0] == pytest.approx(float(mass[1]), rel=1e-4)
    groups = measure.grouped(whole)
    assert all((test < 16).all() and (fit >= 16).all() for test, fit, _ in groups)


def test_without_other_images_the_halves_take_turns():
    whole = measure.gather(Mirror(), bars(40), None, shift_px=0, seed=0)
    (one, two), other = whole.folds
    assert other == (two, one) and sorted([*one, *two]) == list(range(40))
    for test, fit, again in measure.grouped(whole):
        assert not set(test) & set(fit) and len(set(whole.classes[[*test, *fit, *again]])) == 1


def test_what_is_not_drawn_is_left_out_and_told():
    images = bars(40)
    images[3] = 0
    whole = measure.gather(Mirror(), images[:16], images[16:], shift_px=0, seed=0)
    assert whole.n == 15 and "1 images without foreground pixels" in whole.notes[0]


def noise(count, seed):
    """Images that `build_strong` reads as several classes."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.rand(count, 1, 21, 19, generator=generator)
    return images * torch.rand(count, 1, 1, 1, generator=generator)


def run(model, **more):
    chosen = {"name": "net", "baselines": {}, "fit": 500, "seeds": 2, "shift_px": 1}
    labels = {} if "fit_images" not in more else {"fit_labels": torch.arange(120) % 3}
    fields = measure.evaluate(model, noise(60, 1), **chosen | labels | more)
    return probes.Statistics(**fields, dataset="noise")


@pytest.fixture(scope="module")
def result():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        cnn = models.build("resnet", (1, 21, 19), 3, channels=(4, 8, 12), blocks=1).eval()
    return run(build_strong(), fit_images=noise(120, 2), baselines={"cnn": cnn})


ESTIMATES = ("r2", "control", "selectivity", "informed", "disentanglement", "completeness")


def test_of_few_images_pixels_have_as_few_components_as_are_told():
    labels = torch.arange(27) % 3
    one = run(build_strong(), fit_images=noise(27, 2), fit_labels=labels, fit=9)
    least = int(one.sources[-1].split()[1])
    assert least == one.dimensions[-1] <= 6


def test_kinds_shapes_and_intervals(result):
    untrained = [f"net untrained ({preset})" for preset in ("paper", "authors")]
    assert result.sources == ["net", *untrained, "cnn", "pixels, 6 components"]
    assert result.dimensions == [6, 6, 6, 12, 6] and result.r2.value.shape == (5, M)
    assert result.codes == [
        "net",
        "net rotated at random",
        *untrained,
        "cnn",
        "pixels, 6 components",
    ]
    for name in ESTIMATES:
        one = getattr(result, name)
        assert np.isfinite(one.ci95).all() and one.value.max() <= 1 + (name == "selectivity")
        assert ((one.low <= one.value + 1e-9) & (one.value <= one.high + 1e-9)).mean() > 0.9
    less, once = result.r2.value - np.maximum(result.control.value, 0), [0, 3, 4]  # not drawn
    np.testing.assert_allclose(result.selectivity.value[once], less[once])
    assert (
        result.selectivity.value <= less + 1e-9
    ).all()  # each untrained one is cut off by itself
    np.testing.assert_allclose(result.informed.value, result.r2.value.mean(1))
    assert result.cycle.value.shape == (3,) and result.path_predicted.value.shape == (2, 9)
    assert result.fitted <= 120 and result.n <= 60 and result.probed >= 1


def test_poses_are_those_of_the_class_read(result):
    model = build_strong()
    whole = measure.gather(model, noise(20, 1), noise(30, 2), shift_px=1, seed=0)
    for row in range(0, 50, 9):
        shown = trace(model, whole.images[row : row + 1])
        assert whole.classes[row] == int(shown.lengths.argmax())
        expected = shown.poses[-1, 0, whole.classes[row]]
        np.testing.assert_allclose(whole.poses[row], expected, atol=1e-5)


def test_every_kind_has_the_same_labellings_and_no_image_is_measured_by_a_probe_that_saw_it(
    monkeypatch,
):
    drawn, own = [], measure.probe

    def probe(test, fit, *args):
        drawn.append(copy.deepcopy(args[-1]).permutation(10).tolist())
        assert not {tuple(row) for row in test} & {tuple(row) for row in fit}
        return own(test, fit, *args)

    monkeypatch.setattr(measure, "probe", probe)
    found = run(build_strong(), fit_images=noise(120, 2))
    vectors_of = len(found.sources) + 2 * (found.seeds - 1)  # of two presets
    by_kind = np.array(drawn).reshape(vectors_of, -1, 10)
    assert by_kind.shape[1] > 1 and (by_kind == by_kind[:1]).all()


def test_without_a_decoder_probes_are_measured_and_the_rest_is_said_to_be_left_out():
    model, state = build_tiny(reconstruction_weight=0.0).train(), torch.get_rng_state()
    found = run(model, fit_images=noise(120, 2))
    assert model.training and torch.equal(torch.get_rng_state(), state)  # as it was
    assert found.cycle is None and found.path_predicted is None and found.r2.value.shape[1] == M
    assert "no decoder: neither cycle nor paths" in probes.Probes().findings(found).lower()
    assert_fits(results.draw("probes", found, "single"))


def test_paths_are_drawn_without_distances_where_no_class_has_another_image(result):
    panels = probes.Probes().chosen(result._replace(path_distance=None), "paths")
    assert list(panels) == ["cycle", "path"]


def test_any_capsule_network_is_probed_and_lacks_what_cannot_be_built_anew():
    found = run(Foreign((1, 21, 19), classes=3, grid=(2, 3, 2)).eval())
    assert found.sources == ["net", "pixels, 5 components"] and found.seeds == 0
    assert "cannot be built anew" in probes.Probes().verdict(found)
    assert "halves take turns" in found.fit_of


def test_a_class_that_is_read_too_rarely_is_left_out_or_refused():
    with pytest.raises(ValueError, match="no class often enough"):
        options = {"name": "m", "baselines": {}, "fit": 9, "seeds": 0, "shift_px": 0}
        measure.evaluate(Mirror(), bars(10), **options)


def test_a_film_says_what_both_ways_are_read_as(tiny_images):
    model, more = build_strong(), {"labels": [0, 1], "classes": ["a", "b", "c"], "other_index": 1}
    found = probes.Result(**measure.path_between(model, tiny_images[:2]), **more)
    assert found.path.shape == (9, 1, 21, 19)
    shown = trace(model, torch.from_numpy(found.path).float() / 255, keep=("lengths",)).lengths
    np.testing.assert_allclose(found.path_activations, shown, atol=0.02)
    assert found.capsule == int(found.activations[0].argmax())
    assert "along the path" in probes.Path().verdict(found)
