"""Evaluation: counts against plain loops, intervals against published values."""

from types import SimpleNamespace

import pytest
import torch
from conftest import build_tiny

from capsviz.augment import to_float
from capsviz.data import Dataset
from capsviz.evaluate import confusion_matrix, evaluate, wilson


@pytest.fixture
def part(generator):
    images = torch.randint(0, 256, (30, 1, 21, 19), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (30,), generator=generator)
    return Dataset(images, labels, ("a", "b", "c"), "random", "test")


def test_the_confusion_matrix_counts_true_by_row_and_predicted_by_column():
    table = confusion_matrix(torch.tensor([0, 0, 1, 2]), torch.tensor([0, 1, 1, 0]), 3)
    assert table.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0]]


def test_wilson_agrees_with_the_published_example():
    # Newcombe (1998), Statistics in Medicine 17, table I: 81 of 263 and 0 of 20, method 3.
    assert wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    assert wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=5e-5)


def test_evaluation_agrees_with_a_loop_over_single_images(part):
    model = build_tiny()
    found = evaluate(model, part, batch_size=7)
    right, sse = 0, 0.0
    with torch.no_grad():
        for image, label in zip(to_float(part.images), part.labels, strict=True):
            output = model(image[None])
            winner = output.lengths.argmax(1)
            right += int(winner == label)
            sse += float((model.decode(output.poses, winner) - image).square().sum())
    assert found.accuracy == right / 30 and found.n == 30
    assert found.error_percent == pytest.approx(100 - 100 * right / 30)
    assert found.reconstruction_sse == pytest.approx(sse / 30, rel=1e-5)
    assert sum(map(sum, found.confusion)) == 30
    assert found.accuracy_ci95[0] < found.accuracy < found.accuracy_ci95[1]


def test_the_batch_size_changes_nothing(part):
    model = build_tiny()
    one, other = evaluate(model, part, batch_size=4), evaluate(model, part, batch_size=30)
    assert one.confusion == other.confusion
    assert one.margin_loss == pytest.approx(other.margin_loss, rel=1e-5)


def test_a_network_without_decoder_reports_no_sse(part):
    assert evaluate(build_tiny(reconstruction_weight=0.0), part).reconstruction_sse is None


def test_the_network_is_left_in_training_mode_also_after_an_error(part):
    model = build_tiny().train()
    evaluate(model, part)
    assert model.training
    wrong = SimpleNamespace(**{**part.__dict__, "classes": ("a", "b")}, __len__=lambda: 30)
    with pytest.raises(TypeError):
        evaluate(model, wrong)
    assert model.training


def test_classes_that_do_not_fit_are_refused(part):
    four = Dataset(part.images, part.labels, ("a", "b", "c", "d"), "random", "test")
    with pytest.raises(ValueError, match="knows 3 classes, but random has 4"):
        evaluate(build_tiny(), four)
