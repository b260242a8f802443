"""Evaluation: counts against plain loops, intervals against published values."""

import pytest
import torch
from helpers.fixtures import build_tiny

from capsviz.data import Dataset
from capsviz.nn.functional import margin_loss
from capsviz.training.evaluate import (
    Evaluation,
    all_right,
    evaluate,
    least_constant_loss,
    longest,
    paired,
    wilson,
)
from capsviz.transforms.augment import to_float


@pytest.fixture
def part(generator):
    images = torch.randint(0, 256, (30, 1, 21, 19), generator=generator, dtype=torch.uint8)
    labels = torch.randint(0, 3, (30,), generator=generator)
    return Dataset(images, labels, ("a", "b", "c"), "random", "test")


def test_evaluation_agrees_with_a_loop_over_single_images(part):
    model = build_tiny()
    found = evaluate(model, part, batch_size=7)
    right, sse, table = 0, 0.0, [[0] * 3 for _ in range(3)]
    with torch.no_grad():
        for image, label in zip(to_float(part.images), part.labels, strict=True):
            output = model(image[None])
            winner = output.lengths.argmax(1)
            right += int(winner == label)
            table[int(label)][int(winner)] += 1  # row: true, column: predicted
            sse += float((model.decode(output.poses, winner) - image).square().sum())
    assert found.accuracy == right / 30 and found.n == 30
    assert found.error_percent == pytest.approx(100 - 100 * right / 30)
    assert found.reconstruction_sse == pytest.approx(sse / 30, rel=1e-5)
    assert found.confusion == table
    without = evaluate(build_tiny(reconstruction_weight=0.0), part)
    assert without.reconstruction_sse is None
    assert found.accuracy_ci95[0] < found.accuracy < found.accuracy_ci95[1]


def test_classes_that_do_not_fit_are_refused(part):
    four = Dataset(part.images, part.labels, ("a", "b", "c", "d"), "random", "test")
    with pytest.raises(ValueError, match="has 3 classes, but random has 4"):
        evaluate(build_tiny(), four)


def test_classes_in_another_order_and_no_images_are_refused(part):
    model = build_tiny()
    model.card = {"dataset": {"classes": ["c", "b", "a"]}}
    with pytest.raises(ValueError, match=r"numbered otherwise than .* dataset\.in_order\("):
        evaluate(model, part)
    model_order = evaluate(model, part.in_order(model.card["dataset"]["classes"]))
    assert sum(map(sum, model_order.confusion)) == 30
    with pytest.raises(ValueError, match="random test holds no images"):
        evaluate(build_tiny(), part.take(slice(0)))


@pytest.fixture
def pairs(generator):
    """40 images of two of three things, not all of whose classes are predicted."""
    parts = torch.randint(0, 128, (40, 2, 1, 21, 19), generator=generator, dtype=torch.uint8)
    labels = torch.stack([torch.randperm(3, generator=generator)[:2] for _ in range(40)])
    return Dataset(parts.sum(1).byte(), labels, ("a", "b", "c"), "pairs", "test", parts=parts)


def test_all_are_right_if_the_longest_are_the_classes_in_any_order():
    lengths = torch.tensor([[0.9, 0.1, 0.8, 0.3]]).repeat(5, 1)
    labels = torch.tensor([[0, 2], [2, 0], [0, 3], [1, 3], [2, 1]])
    assert all_right(lengths, labels).tolist() == [True, True, False, False, False]
    assert all_right(lengths, labels[:, 0]).tolist() == [True, False, True, False, False]
    assert longest(lengths[:1], 3).tolist() == [[0, 2, 3]]


def test_right_classes_stand_beside_themselves_and_wrong_ones_beside_missed_ones():
    winners = torch.tensor([[4, 1, 3], [0, 1, 2], [2, 1, 0]])
    truth = torch.tensor([[3, 0, 2], [2, 1, 0], [3, 4, 1]])
    ours, theirs = paired(winners, truth, 5)
    assert winners.gather(1, ours).tolist() == [[3, 1, 4], [0, 1, 2], [1, 0, 2]]
    assert truth.gather(1, theirs).tolist() == [[3, 0, 2], [0, 1, 2], [1, 3, 4]]


def test_evaluation_of_several_things_agrees_with_a_loop_over_single_images(pairs):
    model = build_tiny()
    with torch.no_grad():
        model.capsules.weight.mul_(40)  # lengths that differ
    found = evaluate(model, pairs, batch_size=7)
    right, sse, margin, shown, seen = 0, 0.0, 0.0, [0] * 3, [0] * 3
    with torch.no_grad():
        for image, both, alone in zip(to_float(pairs.images), pairs.labels.tolist(),
                                      to_float(pairs.parts), strict=True):  # fmt: skip
            output = model(image[None])
            lengths = output.lengths[0].tolist()
            winners = sorted(range(3), key=lambda j: -lengths[j])[:2]
            right += set(winners) == set(both)
            for j, length in enumerate(lengths):
                margin += max(0, 0.9 - length) ** 2 if j in both else (
                    0.5 * max(0, length - 0.1) ** 2)  # fmt: skip
            for label in both:
                shown[label] += 1
                seen[label] += label in winners
            missed = [label for label in both if label not in winners]
            for winner in winners:
                target = winner if winner in both else missed[0]  # of two of three, one at most
                made = model.decode(output.poses, torch.tensor([winner]))[0]
                sse += float((made - alone[both.index(target)]).square().sum()) / 2
    assert 0 < right < 40, "some are right and some are not"
    assert found.accuracy == right / 40 and found.accuracy_ci95 == wilson(right, 40)
    assert found.error_percent == pytest.approx(100 - 100 * right / 40)
    assert found.per_class == {"abc"[k]: seen[k] / shown[k] for k in range(3)}
    assert found.confusion is None
    assert found.margin_loss == pytest.approx(margin / 40, rel=1e-5)
    assert found.reconstruction_sse == pytest.approx(sse / 40, rel=1e-5)


@pytest.mark.parametrize("broken", ["conv1.bias", "decoder"])
def test_results_that_are_no_numbers_are_refused(part, broken):
    model = build_tiny()
    weights = dict(model.named_parameters())
    name = next(name for name in weights if broken in name)
    with torch.no_grad():
        weights[name].fill_(float("nan"))
    with pytest.raises(ArithmeticError, match="for 30 of 30 images are not numbers"):
        evaluate(model, part)


def planted(confusion, margin_loss):
    """The evaluation that these counts would give."""
    n, right = sum(map(sum, confusion)), sum(row[k] for k, row in enumerate(confusion))
    each = {"abcdefghij"[k]: row[k] / sum(row) for k, row in enumerate(confusion) if sum(row)}
    ends = wilson(right, n)
    return Evaluation(n, right / n, ends, 100 - 100 * right / n, each, confusion, margin_loss, None)


def test_a_network_that_always_says_the_larger_class_is_not_called_good():
    found = planted([[190, 0], [10, 0]], 0.05)
    assert (found.accuracy, found.balanced_accuracy, found.largest_share) == (0.95, 0.5, 0.95)
    one, plateau = found.doubts({})
    assert one.startswith("WARN one class is predicted for all 200 images: check, in this order, ")
    order = [one.index(cause) for cause in ("largest class (95%", "labels", "rate", "steps")]
    assert order == sorted(order)
    assert "the margin loss is 0.050" in plateau and "reach 0.045" in plateau
    assert planted([[188, 2], [2, 8]], 0.01).doubts({}) == []
    assert "the learning rate (--learning-rate 0.0002)" in one
    assert "learning rate" not in found.doubts({"recipe": {"learning_rate": 0.0002}})[0]
    assert planted([[9, 1, 2], [0, 5, 0], [0, 0, 1]], 0).mistaken("abc") == [
        ("a", "c", 2), ("a", "b", 1)
    ]  # fmt: skip


def test_the_plateau_of_the_margin_loss_is_the_least_of_all_constant_lengths():
    assert least_constant_loss([0.1] * 10) == pytest.approx(0.5236, abs=1e-4)
    labels, lengths = torch.tensor([0, 0, 0, 1, 1, 2]), torch.full((3,), 0.3, requires_grad=True)
    descent = torch.optim.Adam([lengths], 0.01)
    for _ in range(400):
        loss = margin_loss(lengths.expand(6, -1), labels).mean()
        descent.zero_grad()
        loss.backward()
        descent.step()
    assert least_constant_loss([1 / 2, 1 / 3, 1 / 6]) == pytest.approx(loss.item(), abs=1e-5)


def test_a_loss_at_its_plateau_warns_unless_the_accuracy_shows_that_something_was_learned():
    even = [[10, 10], [10, 10]]
    (line,) = planted(even, 0.22).doubts({})
    assert "per image, and capsule lengths that are the same for every image reach 0.213" in line
    assert planted(even, 0.1).doubts({}) == []
    assert (
        planted([[20, 0], [0, 20]], 0.3).doubts({}) == []
    )  # another objective than the margin loss
