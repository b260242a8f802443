"""Assemblies: the truth is that of the pictures, and only geometry tells two classes apart."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers.command_line import fine, run
from sklearn.linear_model import LogisticRegression

from capsviz import checkpoint, data
from capsviz.data import assemblies
from capsviz.data.assemblies import APART_PX, CLASSES, KINDS, arrangement, make

N = 2_000


@pytest.fixture(scope="module")
def plain():
    return make("train", N)


def oracle(made, parts, distance):
    """The class of each image's best fitting whole, by kinds, angles and distances of parts."""
    found = []
    for types, poses in zip(made.part_types, made.part_poses, strict=True):
        best = (math.inf, -1)
        for index in range(len(CLASSES)):
            kinds, layout = arrangement(index, parts, APART_PX[distance])
            candidates = [(types == kind).nonzero().flatten().tolist() for kind in kinds]
            for chosen in itertools.product(*candidates):
                best = min(best, (misfit(layout, poses[list(chosen)]), index))
        found.append(best[1])
    return torch.tensor(found)


def misfit(layout, poses):
    """How far parts are from an arrangement that is turned as the first part says, in px."""
    turn = poses[0, 2] - layout[0, 2]
    cos, sin = turn.cos(), turn.sin()
    offset = (layout[:, :2] - layout[0, :2]) @ torch.stack([cos, sin, -sin, cos]).view(2, 2)
    moved = poses[:, :2] - poses[0, :2] - offset
    angle = torch.remainder(poses[:, 2] - layout[:, 2] - turn + math.pi, 2 * math.pi) - math.pi
    return float(moved.norm(dim=1).mean() + 4.5 * angle.abs().mean())


def accuracy(features, labels):
    """Of a linear classifier on the second half of the images, fitted on the first."""
    half = len(labels) // 2
    fit = LogisticRegression(max_iter=500).fit(features[:half], labels[:half])
    return fit.score(features[half:], labels[half:])


def test_the_first_images_are_the_same_for_any_number(plain):
    fewer, again = make("train", 300), make("train", 1_500)
    assert torch.equal(fewer.images, plain.images[:300])
    assert torch.equal(again.part_poses, plain.part_poses[:1_500])
    assert not torch.equal(make("test", 300).images, fewer.images)
    assert not torch.equal(make("train", 300, seed=1).images, fewer.images)


def test_an_image_is_the_brightest_of_its_parts():
    made = make("test", 50, objects=2, parts=3)
    alone = torch.stack([made.alone(whole) for whole in (-1, 0, 1)]).amax(0)
    assert torch.equal(alone, made.images) and made.images.amax() > 140
    assert not made.images[..., [0, -1]].any() and not made.images[..., [0, -1], :].any()


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_parts_have_one_area_and_turn_about_their_centroid(kind):
    poses = torch.tensor([[[31.5, 31.5, angle, 1.0]] for angle in (0.0, 1.0, 2.5, 4.0)])
    drawn = (
        assemblies.render(torch.full((4, 1), kind), poses, torch.ones(4, 1))[:, 0].double() / 255
    )
    expected = assemblies.AREA * assemblies.RADIUS_PX**2
    np.testing.assert_allclose(drawn.sum((1, 2)), expected, rtol=0.03)
    places = torch.arange(64.0, dtype=torch.float64)
    for axis in (1, 2):
        centre = (drawn.sum(3 - axis) * places).sum(1) / drawn.sum((1, 2))
        np.testing.assert_allclose(centre, 31.5, atol=0.1)


@pytest.mark.parametrize("options", [{}, {"distractors": 3}, {"distance": "far", "parts": 3}])
def test_geometry_tells_all_classes(options):
    made = make("test", 200, **options)
    found = oracle(made, options.get("parts", 2), options.get("distance", "near"))
    assert (found == made.classes[:, 0]).float().mean() >= 0.995


def test_kinds_of_parts_do_not_tell_the_two_classes_of_a_pair(plain):
    labels = plain.classes[:, 0]
    counts = torch.nn.functional.one_hot(plain.part_types, len(KINDS)).sum(1)
    within = [accuracy(counts[labels // 2 == k], labels[labels // 2 == k]) for k in range(5)]
    assert 0.4 < np.mean(within) < 0.6
    assert accuracy(counts, labels // 2) > 0.8, "they do tell the pairs"


def test_sums_and_moments_of_pixels_are_at_chance(plain):
    labels, images = plain.classes[:, 0], plain.images[:, 0].double() / 255
    sums = images.sum((1, 2))
    assert accuracy(sums[:, None], labels) < 0.15
    x = torch.arange(64.0, dtype=torch.float64)
    rows, columns = images.sum(2), images.sum(1)
    moments = torch.stack([sums, *(m @ x**k / 64**k for m in (rows, columns) for k in (1, 2))], 1)
    assert accuracy(moments, labels % 2) < 0.6


def test_rotations_outside_are_those_that_training_does_not_have(plain):
    outside = make("test-outside", 500).poses[..., 2].abs()
    assert plain.poses[..., 2].abs().max() <= math.radians(30) + 1e-6
    assert math.radians(30) <= outside.min() and outside.max() > math.radians(170)


def test_combinations_are_those_that_training_does_not_show():
    shown, held_out = (
        {tuple(sorted(pair)) for pair in make(split, N, objects=2).classes.tolist()}
        for split in ("train", "test-combinations")
    )
    assert held_out and shown and not held_out & shown
    assert all(a != b for a, b in shown | held_out)


def test_things_that_may_not_overlap_do_not():
    made = make("train", 200, objects=2, overlap=False)
    whole = torch.stack([made.alone(k) > 0 for k in (-1, 0, 1)]).sum(0)
    assert whole.max() == 1


def test_a_field_around_a_part_sees_it_and_its_whole():
    made = make("test", 40, objects=1, parts=2, distance="far", distractors=0)
    for image in range(40):
        one = assemblies.Assemblies(*(value[image : image + 1] for value in made))
        part, whole = one.seen(one.part_poses[0, :, :2], 9)
        assert part.tolist() == [[0, 1]] and whole.tolist() == [[0, 0]]
    nothing, none = made.seen(torch.tensor([[-20.0, -20.0]]), 9)
    assert (nothing == -1).all() and (none == -1).all()


def test_as_a_data_set_it_has_labels_and_with_two_wholes_each_alone(monkeypatch):
    monkeypatch.setattr(assemblies, "SIZES", dict.fromkeys(assemblies.SIZES, 30))
    one = data.load("assemblies", "test")
    assert one.image_shape == assemblies.IMAGE_SHAPE and one.labels.shape == (30,)
    two = data.load("assemblies", "test", objects=2, distractors=0)
    assert two.parts.shape == (30, 2, 1, 64, 64)
    assert torch.equal(two.parts.amax(1), two.images)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"split": "val"}, "unknown split 'val'.*validation"),
        ({"parts": 1}, "parts must be at least 2, got 1"),
        ({"objects": 3}, "objects must be at most 2, got 3"),
        ({"distance": "between"}, "unknown distance 'between'"),
        ({"objects": 2, "parts": 4, "distance": "far", "overlap": False}, "do not fit into"),
        ({"split": "test-combinations"}, "choose objects=2"),
        ({"split": "test-outside", "rotation": 180}, "choose a smaller rotation"),
    ],
)
def test_impossible_layouts_are_refused_before_anything_is_drawn(options, words):
    with pytest.raises(ValueError, match=words):
        make(options.pop("split", "train"), 10, **options)


@pytest.mark.parametrize(("rotation", "low", "high"), [(30, 0.99, 1.0), (180, 0.3, 0.7)])
def test_types_and_angles_without_their_relation_tell_a_pair_apart_only_if_rotations_are_few(
    rotation, low, high
):
    made = make("train", N, rotation=rotation)
    bags = np.zeros((N, len(KINDS), 3))
    for n in range(N):
        for part in (made.part_wholes[n] >= 0).nonzero().flatten().tolist():
            angle = float(made.part_poses[n, part, 2])
            bags[n, made.part_types[n, part]] += [1, math.cos(angle), math.sin(angle)]
    pair = made.classes[:, 0] < 2
    bags, labels = bags.reshape(N, -1)[pair], made.classes[pair, 0].numpy()
    assert low <= accuracy(bags, labels) <= high


def test_images_are_the_same_whatever_the_number_of_threads():
    threads = torch.get_num_threads()
    assemblies.make.cache_clear(), assemblies._normalised.cache_clear()
    torch.set_num_threads(threads + 1)
    try:
        found = data.load("assemblies", "validation", distance="far").digest
    finally:
        torch.set_num_threads(threads)
    card = checkpoint.read_card(checkpoint.find("assemblies"))
    assert found == card["dataset"]["images"]["validation"]


def test_all_that_is_known_is_exported_and_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(assemblies, "SIZES", dict.fromkeys(assemblies.SIZES, 20))
    path = tmp_path / "all.npz"
    fine(run("data", "assemblies", "--export", path))
    made = make("test", 20)
    with np.load(path) as stored:
        np.testing.assert_array_equal(stored["test_part_wholes"], made.part_wholes)
    again = data.load("arrays", "test", path)  # classes in turn
    assert len(again) == 20 and again.images.sum() == made.images.sum()
