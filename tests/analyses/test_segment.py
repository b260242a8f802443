"""Segment: pairs, drawings and measures are those of single images looked at one by one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.plain_capsnet import Foreign
from scipy import stats

from capsviz import checkpoint, data
from capsviz.analyses.segment import Segment
from capsviz.analyses.segment import measure as measures
from capsviz.data.multimnist import make
from capsviz.inputs.opening import Inputs
from capsviz.nn import models

SSE = ["predicted classes", "true classes", "exchanged", "absent class", "nothing drawn"]
IOU = [*SSE[:4], "all foreground to both", "digits themselves"]


def measured(network, part, **options):
    return Segment().measure(network, Inputs(network, part, "x"), len(part), **options)


@pytest.fixture(scope="module")
def model():
    return Foreign((1, 36, 36))


@pytest.fixture(scope="module")
def part(model):
    """30 images; of the first 10 both predictions are right, of the next 10 one, then none."""
    some = make(data.load("digits", "test")).first(30)
    with torch.no_grad():
        found = model.look(some.images / 255, keep=())["lengths"].topk(2).indices
    labels = some.labels.clone()
    labels[:10] = found[:10].flip(1)
    for i in range(10, 30):
        others = [k for k in range(10) if k not in found[i].tolist()]
        labels[i] = torch.tensor([others[i % 8], found[i, 0] if i < 20 else others[i % 8 - 1]])
    return replace(some, labels=labels)


@pytest.fixture(scope="module")
def result(model, part):
    return measured(model, part, index=3, count=5, failures=6)


@pytest.fixture(scope="module")
def slowly(model, part):
    """For each image: predicted, their lengths, and the drawing of every class, in float64."""
    found = []
    with torch.no_grad():
        for image, labels in zip(part.images / 255, part.labels.tolist(), strict=True):
            seen = model.look(image[None], keep=())
            lengths = seen["lengths"][0].tolist()
            first, second = sorted(range(10), key=lambda k: -lengths[k])[:2]
            if {first, second} & {*labels}:
                exchanged = first == labels[1] or second == labels[0]
            else:  # a wrong class beside a missed one, both by their numbers
                exchanged = (first < second) != (labels[0] < labels[1])
            if exchanged:
                first, second = second, first
            made = [model.decode(seen["poses"][-1], torch.tensor([k]))[0] for k in range(10)]
            made = torch.stack(made).double().numpy()
            found.append(([first, second], [lengths[first], lengths[second]], made))
    return found


def by_hand(slowly, part, absent):
    """SSE (N, 5) and IoU (N, 6) by loops over images and digits."""
    sse, iou = [], []
    for (read, _, made), labels, image, own, x in zip(
        slowly, part.labels, part.images / 255, part.parts / 255, absent, strict=True
    ):
        image, own = image.numpy(), own.double().numpy()
        errors, overlaps = [], []
        for k in range(2):
            other = 1 - k
            drawn, rest = made[read[k]], made[read[other]]
            true, true_rest = made[labels[k]], made[labels[other]]
            nothing = np.zeros_like(drawn)
            errors.append(
                [((d - own[k]) ** 2).sum() for d in (drawn, true, rest, made[x], nothing)]
            )
            pairs = [(drawn, rest), (true, true_rest), (rest, drawn), (made[x], true_rest)]
            pairs += [(nothing, nothing), (own[k], own[other])]
            ink = own[k] > 0.5
            taken = [(image > 0.5) & (mine >= others) for mine, others in pairs]
            overlaps.append([(one & ink).sum() / (one | ink).sum() for one in taken])
        sse.append(np.mean(errors, 0))
        iou.append(np.mean(overlaps, 0))
    return np.array(sse), np.array(iou)


def absent_classes(model, part, seed=0):
    draw = torch.rand(len(part), 10, generator=torch.Generator().manual_seed(seed))
    return measures.look(model, part, draw).absent


def test_the_absent_class_is_neither_in_the_image_nor_predicted(model, part, slowly):
    absent = absent_classes(model, part)
    for x, (read, *_), labels in zip(absent.tolist(), slowly, part.labels.tolist(), strict=True):
        assert x not in read and x not in labels
    assert len(set(absent.tolist())) > 5
    assert not torch.equal(absent, absent_classes(model, part, seed=1))


def test_error_and_overlap_are_those_of_single_digits(model, part, slowly, result):
    assert result.drawings == SSE and result.divisions == IOU
    expected = by_hand(slowly, part, absent_classes(model, part))
    for kind, values in zip(("sse", "iou"), expected, strict=True):
        estimate = getattr(result, kind)
        for one, numbers in ((estimate, values), (estimate.difference, values - values[:, :1])):
            half = stats.t.ppf(0.975, len(part) - 1) * numbers.std(0, ddof=1) / len(part) ** 0.5
            mean = numbers.mean(0)
            assert one.value == pytest.approx(mean, rel=1e-4, abs=1e-5)
            interval = np.stack([mean - half, mean + half], 1)
            assert one.ci95 == pytest.approx(interval, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize(
    ("predicted", "labels", "aligned"),
    [
        ((3, 5), (3, 5), (3, 5)),
        ((5, 3), (3, 5), (3, 5)),
        ((9, 3), (3, 5), (3, 9)),
        ((9, 5), (3, 5), (9, 5)),
        ((9, 8), (3, 5), (8, 9)),
        ((8, 9), (5, 3), (9, 8)),
    ],
)
def test_a_right_class_stands_beside_its_label_a_wrong_one_beside_a_missed_one(
    predicted, labels, aligned
):
    found = measures.align(torch.tensor([predicted]), torch.tensor([labels]), 10)
    assert found.tolist() == [[*aligned]]


def test_examples_are_the_images_asked_for_and_their_drawings(result, part, slowly):
    shown = len(result.inputs) - result.failures
    assert result.first == 3 and shown == 5
    for row, place in enumerate(range(3, 8)):
        assert np.array_equal(result.inputs[row], part.images[place].numpy())
        assert np.array_equal(result.parts[row], part.parts[place].numpy())
        check_example(result, row, part.labels[place], slowly[place])


def check_example(result, row, labels, slow):
    read, lengths, made = slow
    assert result.labels[row].tolist() == labels.tolist()
    assert result.predicted[row].tolist() == read
    assert result.lengths[row] == pytest.approx(lengths, rel=1e-5)
    pair = [int(labels[0]), int(result.absent[row])]
    assert pair[1] not in [*read, *labels.tolist()]
    for found, classes in ((result.drawn, read), (result.wrong_pair, pair)):
        assert np.abs(found[row] / 255 - made[classes]).max() <= 0.51 / 255


def test_misclassified_images_with_the_longest_wrong_capsule_follow(result, part, slowly):
    wrong = {}
    for place, (read, lengths, _) in enumerate(slowly):
        missed = [l for k, l, t in zip(read, lengths, part.labels[place], strict=True) if k != t]
        if missed:
            wrong[place] = max(missed)
    longest = sorted(wrong, key=lambda place: -wrong[place])[:6]
    assert result.failures == 6 and len(wrong) == 20
    for row, place in enumerate(longest, start=len(result.inputs) - 6):
        assert np.array_equal(result.inputs[row], part.images[place].numpy())
        check_example(result, row, part.labels[place], slowly[place])


def test_images_of_one_thing_few_classes_and_one_image_are_refused(model, part):
    digits = data.load("digits", "test")
    with pytest.raises(ValueError, match=r"digits does not show two objects.*train multimnist"):
        measured(model, digits)
    few = replace(part, classes=tuple("abcd"), labels=part.labels % 4)
    with pytest.raises(ValueError, match="has 4 classes, expected at least 5"):
        measured(model, few)
    with pytest.raises(ValueError, match="at least 2 images, got 1"):
        measured(model, part.first(1), count=1)


def small(**options):
    given = {"channels": 4, "types": 1, "primary_dimensions": 4, "class_dimensions": 6}
    return models.build("capsnet", (1, 36, 36), 10, **given, hidden=(8,), **options)


@pytest.fixture
def run(tmp_path, digits_for_mnist):
    """Run a command on a small network for multimnist, made of scikit-learn's digits."""
    card = {"name": "two", "dataset": {"name": "multimnist"}}
    path = checkpoint.save(tmp_path / "own" / "two.safetensors", small(), card)

    def invoke(name, *given, weights=path):
        output = ["--checkpoint", weights, "--output", tmp_path / "out", "--format", "png"]
        return command_line.run(name, *output, *given)

    return invoke


def test_the_figure_set_is_this_figure_for_pairs_and_none_for_single_digits(blank, run, tmp_path):
    done = command_line.fine(run("figures", "--n", 20))
    for part in ("", "-measures"):
        assert (tmp_path / "out" / f"segment-multimnist-0-20-images{part}.png").is_file()
    assert done.stdout.strip().startswith("2 figures")
    single = ["figures", "--n", 20, "--only", "segment"]
    done = run(*single, weights="digits")
    assert done.exit_code == 2 and "holds figures of another run" in done.stderr
    done = run(*single, "--output", tmp_path / "single", weights="digits")
    assert done.exit_code == 2 and not (tmp_path / "single").exists()
    assert done.stderr.splitlines()[-1].endswith("and these images: segment")
