"""t-SNE: vectors are the parts of the trace they say, scores those of scikit-learn."""

from typing import get_args

import numpy as np
import pytest
import torch
from helpers.plain_capsnet import Foreign
from matplotlib.figure import Figure
from sklearn.manifold import trustworthiness
from sklearn.metrics import silhouette_score
from sklearn.model_selection import LeaveOneOut, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from capsviz.analyses.tsne import Part, Tsne, draw, measure
from capsviz.nn.models import build
from capsviz.statistics.intervals import mean_interval, wilson
from capsviz.transforms.warps import rotate

NAMES = [str(k) for k in range(10)]


def measured(network, images, labels, *, classes=NAMES, **options):
    return Tsne().measure(network, images, labels, classes=classes, dataset="digits", **options)


@pytest.fixture(scope="module")
def model():
    return Foreign()


@pytest.fixture(scope="module")
def sample(digits):
    return digits[0][:90], digits[1][:90]


@pytest.mark.parametrize("method", ["tsne", "pca"])
def test_vectors_of_one_number_are_a_line(method):
    made = measure.embed(np.linspace(0, 1, 40, dtype=np.float32)[:, None], method, perplexity=5)
    assert made.shape == (40, 2) and np.isfinite(made).all()


@pytest.fixture(scope="module")
def mapped(model, sample):
    """By PCA, with three trajectories."""
    return measured(model, *sample, method="pca", trajectories=3)


@pytest.fixture(scope="module")
def scattered():
    """Vectors (80, 6) of four overlapping classes, a map of them (80, 2), and the classes."""
    random = np.random.default_rng(0)
    labels = random.integers(0, 4, 80)
    vectors = random.normal(size=(80, 6)) + 1.5 * np.eye(4, 6)[labels]
    return vectors, vectors[:, :2] + 0.1 * random.normal(size=(80, 2)), labels


@pytest.mark.parametrize("of", get_args(Part))
def test_vectors_are_the_part_of_the_trace_that_was_asked_for(model, sample, of, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK_IMAGES", 40)
    vectors, predicted = measure.features(model, sample[0], of)
    with torch.no_grad():
        seen = model.look(sample[0], keep=())
    winner = seen["lengths"].argmax(1)
    expected = {
        "poses": torch.stack([pose[k] for pose, k in zip(seen["poses"][-1], winner, strict=True)]),
        "all-poses": seen["poses"][-1].flatten(1),
        "couplings": seen["couplings"][-1].flatten(1),
        "primary": seen["primary"].flatten(1),
    }[of]
    assert vectors.shape == expected.shape
    assert np.allclose(vectors, expected, atol=1e-5)
    assert (predicted == winner.numpy()).all()


def test_trustworthiness_is_that_of_scikit_learn(scattered):
    vectors, flat, _ = scattered
    far = [np.linalg.norm(part[:, None] - part, axis=2) for part in (vectors, flat)]
    for k in (5, 10):
        found = measure.trustworthiness(*far, k=k)
        assert found.shape == (80,)
        assert found.mean() == pytest.approx(trustworthiness(vectors, flat, n_neighbors=k))
    assert (measure.trustworthiness(far[0], far[0]) == 1).all()


def test_scores_are_those_of_scikit_learn_with_their_intervals(scattered):
    vectors, flat, labels = scattered
    scored = measure.scores(vectors, flat, labels)
    values, intervals = scored.value, scored.ci95
    expected = {
        "trustworthiness of the map": trustworthiness(vectors, flat, n_neighbors=10),
        "silhouette in the map": silhouette_score(flat, labels),
        "silhouette in the full space": silhouette_score(vectors, labels),
    }
    for part, name in (
        (flat, "kNN accuracy in the map"),
        (vectors, "kNN accuracy in the full space"),
    ):
        right = cross_val_score(KNeighborsClassifier(10), part, labels, cv=LeaveOneOut())
        expected[name] = right.mean()
        row = measure.NAMES.index(name)
        assert intervals[row] == pytest.approx(wilson(int(right.sum()), 80))
    for name, value in expected.items():
        assert values[measure.NAMES.index(name)] == pytest.approx(value), name
    assert set(expected) == set(measure.NAMES)
    assert (intervals[:, 0] <= values).all() and (values <= intervals[:, 1]).all()


def test_no_interval_of_a_score_reaches_above_1():
    """A row of images, the first of which lies at the other end of the map."""
    full = np.stack([np.arange(60.0), np.zeros(60)], 1)
    full[0], flat = -1000, full.copy()
    flat[0] = 1000
    one = measure.scores(full, flat, (np.arange(60) > 29).astype(int))
    row = measure.NAMES.index("trustworthiness of the map")
    each = measure.trustworthiness(*map(measure.pairwise_distances, (full, flat)))
    assert (each < 1).sum() == 1 and mean_interval(each)[1][1] > 1
    assert 0.9 < one.value[row] == each.mean() and one.high[row] == 1


def test_tsne_keeps_apart_what_is_apart_and_is_the_same_for_the_same_seed():
    random = np.random.default_rng(2)
    labels = np.repeat([0, 1, 2], 30)
    vectors = random.normal(size=(90, 80)) + 20 * np.eye(3, 80)[labels]
    found = measure.embed(vectors, "tsne", perplexity=10, seed=3)
    values = measure.scores(vectors, found, labels).value
    assert values[measure.NAMES.index("kNN accuracy in the map")] == 1
    assert np.array_equal(found, measure.embed(vectors, "tsne", perplexity=10, seed=3))


def test_the_pixels_are_mapped_the_same_way_as_the_capsules(mapped, sample):
    flat = sample[0].flatten(1).numpy()
    degrees = [a for a in mapped.angles_deg if a != 0]
    firsts = [int((sample[1] == k).nonzero()[0]) for k in range(3)]
    rotated = [
        rotate(sample[0][[i]], float(a)).clamp(0, 1).flatten().numpy()
        for i in firsts
        for a in degrees
    ]
    everything = np.concatenate([flat, rotated])
    expected = measure.embed(everything, "pca")
    assert np.allclose(mapped.positions[1], expected[:90], atol=1e-3)
    assert np.allclose(mapped.paths[1, 2, -1], expected[-1], atol=1e-3)
    assert mapped.dimensions == [5, 784] and mapped.n == 90


def test_trajectories_pass_through_the_image_itself_at_zero_degrees(mapped, model, sample):
    assert mapped.angles_deg[[0, 12, 24]].tolist() == [-60, 0, 60]
    assert mapped.paths.shape == (2, 3, 25, 2) and mapped.path_labels.tolist() == [0, 1, 2]
    for k in range(3):
        first = int((sample[1] == k).nonzero()[0])
        assert np.array_equal(mapped.paths[:, k, 12], mapped.positions[:, first])
        assert mapped.path_predicted[k, 12] == mapped.predicted[first]
        turned = rotate(sample[0][[first]], 60.0).clamp(0, 1)
        with torch.no_grad():
            seen = model.look(turned, keep=())["lengths"].argmax(1)
        assert mapped.path_predicted[k, 24] == int(seen)


def test_where_nothing_is_rotated_no_fill_is_told(model, sample):
    options = {"method": "pca", "fill": "edge"}
    assert measured(model, *sample, **options, trajectories=1).fill == "edge"
    assert measured(model, *sample, **options).fill == "black"


def test_thumbnails_show_every_class_then_misclassified_images(mapped, sample):
    assert len(mapped.thumbnails) == len(set(mapped.thumbnails)) == 16
    assert mapped.labels[mapped.thumbnails[:10]].tolist() == list(range(10))
    rest = mapped.thumbnails[10:]
    assert (mapped.labels[rest] != mapped.predicted[rest]).all()
    expected = sample[0][mapped.thumbnails].numpy()
    assert np.abs(mapped.thumbnail_images / 255 - expected).max() <= 0.51 / 255
    axes = Figure().subplots()
    draw._thumbnail(axes, np.zeros((3, 4, 6)), (0, 0), (1, 1), 0.6, "red", "-")
    assert list(axes.images[0].get_extent()) == pytest.approx([0.7, 1.3, 0.8, 1.2])


@pytest.mark.parametrize(
    ("options", "n", "message"),
    [
        ({"perplexity": 30.0}, 89, "least 90: use more by --n, or a smaller --perplexity$"),
        ({"method": "pca"}, 29, "expected at least 30"),
        ({"trajectories": 11}, 90, "0 to 10 trajectories"),
    ],
)
def test_what_cannot_be_mapped_is_refused(model, sample, options, n, message):
    images, labels = sample[0][:n], sample[1][:n]
    with pytest.raises(ValueError, match=message):
        measured(model, images, labels, **options)


def test_vectors_all_the_same_are_no_map(sample):
    """Uniform couplings: t-SNE would spread their rounding over the page."""
    images, labels = sample[0][:30], sample[1][:30]
    even = build("capsnet", (1, 28, 28), 10, stem="slim", types=2, routing="uniform").eval()
    with pytest.raises(ValueError, match="couplings of all 30 images are the same: there is nothi"):
        measured(even, images, labels, of="couplings", method="pca")
    assert measured(even, images, labels, of="primary", method="pca").n == 30
