"""Reconstruct: examples, failures and errors are those of single images decoded one by one."""

import numpy as np
import pytest
import torch
from helpers.figure_checks import assert_fits
from helpers.plain_capsnet import Foreign
from matplotlib.text import Text
from scipy import stats

from capsviz import results
from capsviz.analyses.reconstruct import Reconstruct

NAMES = [str(k) for k in range(10)]


def measured(*given, classes=NAMES, dataset="digits", **options):
    return Reconstruct().measure(*given, classes=classes, dataset=dataset, **options)


@pytest.fixture(scope="module")
def model():
    return Foreign()


@pytest.fixture(scope="module")
def sample(digits):
    return digits[0][:60], digits[1][:60]


@pytest.fixture(scope="module")
def result(model, sample):
    return measured(model, *sample, failures=5)


@pytest.fixture(scope="module")
def slowly(model, sample):
    """For each image: predicted class, all lengths, pictures and SSE from predicted and true."""
    found = []
    with torch.no_grad():
        for image, label in zip(*sample, strict=True):
            seen = model.look(image[None], keep=())
            winner = int(seen["lengths"][0].argmax())
            made, errors = [], []
            for k in (winner, int(label)):
                flat = torch.zeros(1, 10, 5)
                flat[0, k] = seen["poses"][-1][0, k]
                picture = torch.sigmoid(model.to_pixels(flat.flatten(1))).view(image.shape)
                made.append(picture)
                errors.append(float((picture - image).double().square().sum()))
            found.append((winner, seen["lengths"][0].numpy(), torch.stack([image, *made]), errors))
    return found


def test_examples_are_the_first_images_of_each_class_and_both_decodings(result, sample, slowly):
    assert result.example_labels.tolist() == list(range(10))
    for k in range(10):
        place = int((sample[1] == k).nonzero()[0])
        winner, _, pictures, _ = slowly[place]
        assert result.example_predicted[k] == winner
        assert np.abs(result.examples[k] / 255 - pictures.numpy()).max() <= 0.51 / 255


def test_failures_are_the_misclassified_images_with_the_longest_wrong_capsule(
    result, sample, slowly
):
    wrong = [i for i, one in enumerate(slowly) if one[0] != sample[1][i]]
    assert result.wrong == len(wrong) > 5
    longest = sorted(wrong, key=lambda i: -slowly[i][1].max())[:5]
    assert result.failure_places.tolist() == longest
    for row, place in enumerate(longest):
        winner, lengths, pictures, _ = slowly[place]
        label = int(sample[1][place])
        assert (result.failure_predicted[row], result.failure_labels[row]) == (winner, label)
        assert result.failure_lengths[row] == pytest.approx(lengths[[winner, label]], rel=1e-5)
        assert np.abs(result.failures[row] / 255 - pictures.numpy()).max() <= 0.51 / 255


def test_errors_are_means_per_true_class_with_students_intervals(result, sample, slowly):
    for row, k in enumerate(result.numbers):
        errors = np.array(
            [one[3] for one, label in zip(slowly, sample[1], strict=True) if label == k]
        )
        assert result.counts[row] == len(errors) >= 2
        for column, (mean, interval) in enumerate(
            (
                (result.sse_predicted.value[row], result.sse_predicted.ci95[row]),
                (result.sse_true.value[row], result.sse_true.ci95[row]),
            )
        ):
            half = (
                stats.t.ppf(0.975, len(errors) - 1)
                * errors[:, column].std(ddof=1)
                / len(errors) ** 0.5
            )
            expected = errors[:, column].mean()
            assert mean == pytest.approx(expected, rel=1e-5)
            assert interval == pytest.approx([expected - half, expected + half], rel=1e-4)
    every = [one[3][0] for one in slowly]
    assert result.mean_sse.value == pytest.approx(np.mean(every), rel=1e-5) and result.n == 60
    half = stats.t.ppf(0.975, 59) * np.std(every, ddof=1) / 60**0.5
    expected = [np.mean(every) - half, np.mean(every) + half]
    assert result.mean_sse.ci95 == pytest.approx(expected, rel=1e-4)


def test_a_class_with_one_image_has_no_interval_and_is_left_out(model, sample):
    found = measured(model, sample[0][:3], torch.tensor([4, 4, 7]), dataset="x")
    assert found.numbers.tolist() == [4] and found.counts.tolist() == [2]
    assert sorted(found.example_labels.tolist()) == [4, 7]


def test_two_images_have_no_error_below_zero_and_one_class_no_smallest_error(model, sample):
    images = torch.stack([torch.zeros_like(sample[0][0]), sample[0][0]])
    found = measured(model, images, torch.tensor([4, 4]), dataset="x")
    errors = found.mean_sse
    assert errors.low == 0 < errors.value < errors.high
    assert "smallest" not in Reconstruct().verdict(found)


@pytest.mark.parametrize("right", [True, False])
def test_colour_images_are_drawn_with_and_without_failures(right, generator):
    model = Foreign(image_shape=(3, 20, 24), classes=4)
    images = torch.rand(12, 3, 20, 24, generator=generator)
    with torch.no_grad():
        predicted = model.look(images, keep=())["lengths"].argmax(1)
    labels = predicted if right else (predicted + 1) % 4
    names = ["aeroplane", "automobile", "bird", "cat"]
    found = measured(model, images, labels, classes=names, dataset="x", per_class=2)
    assert len(found.failures) == (0 if right else 6) and found.examples.shape[1:] == (3, 3, 20, 24)
    figures = [results.draw("reconstruct", found, 3.5, part) for part in ("", "errors")]
    for figure in figures:
        assert_fits(figure)
    texts = " ".join(text.get_text() for one in figures for text in one.findobj(Text))
    assert ("misclassified" in texts) is not right
