"""Primary: single capsules are alone, controls are what they say, wrong requests end well."""

import json

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.figure_checks import assert_fits
from helpers.fixtures import build_tiny
from helpers.plain_capsnet import Foreign
from scipy import stats

from capsviz import checkpoint, data, discovery, results
from capsviz.analyses import primary
from capsviz.experiments.primary_decoder import PrimaryDecoder, decode, file_name
from capsviz.tracing import trace
from capsviz.transforms.augment import to_float

CLASSES = ["a", "b", "c"]
DIGITS = ["--checkpoint", "digits"]
SHIPPED = discovery.folder("capsviz.trained") / file_name("mnist")


def build_decoders(children, dimensions, shape):
    """Two untrained decoders that differ, and draw something else for every input."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        pair = [PrimaryDecoder(children, dimensions, shape).eval() for _ in range(2)]
    return dict(zip(("routed", "uniform"), pair, strict=True))


@pytest.fixture(scope="module")
def decoders():
    return build_decoders(12, 4, (1, 21, 19))


def decoded(network, decoders, image, label=None, **more):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(primary, "open_decoders", lambda *_: decoders)
        return primary.Single().measure(network, image, label, inputs=None, **more)


@pytest.fixture
def result(tiny, decoders, tiny_images):
    return decoded(tiny, decoders, tiny_images[:1], 1, classes=CLASSES, levels=3)


@pytest.fixture
def statistics(tiny, decoders, tiny_images):
    return primary.evaluate(tiny, decoders, tiny_images, dataset="noise", capsules=2)


def readings(model, image):
    """Primary capsules (I, D) and J times their couplings to the predicted class (I,)."""
    found = trace(model, image)
    winner = int(found.lengths[0].argmax())
    J = found.lengths.shape[1]
    return found.primary[0], J * found.couplings[-1, 0, :, winner]


def sse(image, drawing):
    return float((image - drawing).square().sum())


def test_strongest_are_distinct_in_type_and_place_and_in_order(generator):
    grid = (4, 2, 3)
    strength = torch.rand(50, 24, generator=generator)
    for one, chosen in zip(strength, primary.strongest(strength, grid, 3), strict=True):
        expected, types, places = [], set(), set()
        for i in one.argsort(descending=True).tolist():
            if i // 6 not in types and i % 6 not in places and len(expected) < 3:
                expected.append(i)
                types.add(i // 6)
                places.add(i % 6)
        assert chosen.tolist() == expected


def test_there_are_no_more_rows_than_types_or_places(generator):
    assert primary.strongest(torch.rand(1, 24, generator=generator), (4, 2, 3), 99).shape == (1, 4)
    assert primary.strongest(torch.rand(1, 12, generator=generator), (6, 1, 2), 99).shape == (1, 2)
    for grid in (None, (12, 1, 1), (1, 3, 4)):  # types alone, or places alone: no two the same
        strength = torch.rand(1, 12, generator=generator)
        chosen = primary.strongest(strength, grid, 5)
        assert torch.equal(chosen, strength.argsort(1, descending=True)[:, :5])


def test_each_picture_is_of_one_capsule_at_a_share_of_its_coupling(
    tiny, decoders, tiny_images, result
):
    primary_capsules, scale = readings(tiny, tiny_images[:1])
    assert result.shares.tolist() == [0, 0.5, 1]
    for k in range(len(result.types)):
        row, column = result.places[k]
        i = (result.types[k] * 3 + row) * 2 + column  # of the grid (2, 3, 2)
        assert result.couplings[k] == pytest.approx(float(scale[i]) / 3, rel=1e-5)
        for level, share in enumerate(result.shares):
            alone = torch.zeros(1, 12, 4)
            alone[0, i] = float(share) * scale[i] * primary_capsules[i]
            made = decode(decoders["routed"], alone)
            assert np.abs(result.pictures[k, level] / 255 - made[0].numpy()).max() < 0.51 / 255
            assert result.sse[k, level] == pytest.approx(sse(tiny_images[:1], made), rel=1e-4)
    made = decode(decoders["routed"], (scale[:, None] * primary_capsules)[None])
    assert np.abs(result.whole / 255 - made[0].numpy()).max() < 0.51 / 255
    assert result.whole_sse == pytest.approx(sse(tiny_images[:1], made), rel=1e-4)
    assert (np.diff(result.couplings) <= 0).all()
    assert not np.array_equal(result.pictures[0, 0], result.pictures[0, 2])


def test_the_smallest_error_is_said_to_be_of_the_capsules_that_are_chosen(result):
    least, count = result.sse[:, -1].min(), len(result.types)
    assert count < result.children
    assert f"at least {least:.2f} from a single one of the {count} chosen" in (
        primary.Single().verdict(result)
    )


def test_the_marked_field_is_all_that_the_capsule_sees(tiny, tiny_images, result):
    before = trace(tiny, tiny_images[:1], keep=("primary",)).primary[0]
    for k, (top, bottom, left, right) in enumerate(result.fields):
        row, column = result.places[k]
        i = (result.types[k] * 3 + row) * 2 + column
        outside = torch.zeros_like(tiny_images[:1])
        outside[..., top:bottom, left:right] = tiny_images[:1, :, top:bottom, left:right]
        after = trace(tiny, outside, keep=("primary",)).primary[0]
        assert torch.allclose(before[i], after[i], atol=1e-6)


def test_means_are_those_of_single_images(tiny, decoders, tiny_images, statistics):
    found = {name: [] for name in primary.CONDITIONS}
    for image in tiny_images.split(1):
        capsules, scale = readings(tiny, image)
        scaled = scale[:, None] * capsules
        alone = []
        for i in primary.strongest(scale[None], (2, 3, 2), 2)[0]:
            one = torch.zeros_like(scaled)
            one[i] = scaled[i]
            alone.append(sse(image, decode(decoders["routed"], one[None])))
        found[primary.ALL].append(sse(image, decode(decoders["routed"], scaled[None])))
        found[primary.UNIFORM].append(sse(image, decode(decoders["routed"], capsules[None])))
        found[primary.RETRAINED].append(sse(image, decode(decoders["uniform"], capsules[None])))
        found[primary.STRONGEST].append(np.mean(alone))
        found[primary.NONE].append(
            sse(image, decode(decoders["routed"], torch.zeros_like(scaled)[None]))
        )
    assert statistics.conditions == list(primary.CONDITIONS) and statistics.n == 8
    for place, name in enumerate(primary.CONDITIONS):
        if not found[name]:
            continue  # random: below
        values = np.array(found[name])
        half = stats.t.ppf(0.975, 7) * values.std(ddof=1) / 8**0.5
        assert statistics.sse.value[place] == pytest.approx(values.mean(), rel=1e-5)
        assert np.diff(statistics.sse.ci95[place])[0] == pytest.approx(2 * half, rel=1e-3)
        extra = values - found[primary.ALL]
        assert statistics.sse.difference.value[place] == pytest.approx(extra.mean(), abs=1e-4)


def test_shuffling_moves_couplings_between_capsules(tiny, decoders, tiny_images):
    given = []

    def spy(decoder, inputs):
        given.append(inputs)
        return decode(decoder, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("capsviz.experiments.primary_decoder.decode", spy)
        primary.errors(
            tiny, decoders, tiny_images, capsules=1, generator=torch.Generator().manual_seed(0)
        )
    plain = trace(tiny, tiny_images, keep=("primary",)).primary
    routed, shuffled = (inputs.norm(dim=2) / plain.norm(dim=2) for inputs in given[:2])
    assert torch.allclose(routed.sort(1).values, shuffled.sort(1).values, atol=1e-4)
    moved = ((routed - shuffled).abs() > 1e-4).float().mean(1)
    assert (moved > 0.5).all()


def test_without_routing_the_couplings_carry_nothing(decoders, tiny_images):
    found = primary.evaluate(build_tiny(iterations=1), decoders, tiny_images, dataset="noise")
    at = [found.conditions.index(name) for name in (primary.SHUFFLED, primary.UNIFORM)]
    assert np.allclose(found.sse.difference.value[at], 0, atol=1e-4) and found.spread < 1e-6


@pytest.mark.parametrize("said", [True, False, None])
def test_without_a_grid_or_fields_there_are_no_positions(digits, said):
    class NoFields(Foreign):
        receptive_field = property()  # as if it were not there

    model, images = Foreign() if said is not None else NoFields(), digits[0][:3]
    if said is not None:
        del model.grid
    if said:
        model.grid = None
    decoders = build_decoders(12, 4, (1, 28, 28))
    result = decoded(model, decoders, images[:1], classes=list("0123456789"))
    assert result.places is None and result.fields is None
    assert len(result.types) == (3 if said is None else 6)  # of distinct types, or any
    assert primary.evaluate(model, decoders, images, dataset="digits").children == 12
    assert_fits(results.draw("primary", result, "single"))


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return command_line.run


def test_train_then_draw_then_evaluate(blank, run, tmp_path):
    trained = command_line.fine(run("primary-train", *DIGITS, "--limit", 360, "--epochs", 1))
    assert "trained with uniform couplings" in trained.stdout
    card = json.loads((tmp_path / "runs/digits-primary/digits.primary.json").read_text())
    assert card["results"]["test"]["n"] == card["training"]["images"] == 360
    assert card["network"]["weights"] == checkpoint.load("digits").card["weights"]
    again = run("primary-train", *DIGITS, "--limit", 60)
    command_line.refused(again, "exists already", "--output", status=(1, 2))
    decoder = ["--decoder", "runs/digits-primary/digits.primary.safetensors", "--format", "png"]
    drawn = run("primary", *DIGITS, *decoder, "--digit", 3)
    assert drawn.exit_code == 0 and "Predicted as 3" in drawn.stdout
    assert sorted(p.suffix for p in (tmp_path / "runs/figures").iterdir()) == [".json", ".png"]
    many = run("primary", *DIGITS, *decoder, "--n", 360, "--json")
    assert json.loads(many.stdout)["sse"]["value"] == pytest.approx(
        card["results"]["test"]["sse"]["value"], rel=1e-4
    )


@pytest.mark.mnist
@pytest.mark.skipif(not SHIPPED.is_file(), reason="no MNIST decoder is here")
def test_the_shipped_decoder_does_what_its_card_says(mnist_root):
    from capsviz.experiments.primary_decoder import load

    model = checkpoint.load("mnist")
    decoders = load(SHIPPED, model.card, checkpoint="mnist")
    stated = json.loads(SHIPPED.with_suffix(".json").read_text())["results"]["test"]
    images = to_float(data.load("mnist", "test", mnist_root).first(100).images)
    found = primary.evaluate(model, decoders, images, dataset="mnist")
    assert stated["n"] == 10_000
    sse, high = found.sse.value, found.sse.high
    assert abs(sse[0] - stated["sse"]["value"][0]) < 4 * (high[0] - sse[0]) / 1.96
    assert sse[0] < 0.5 * sse[found.conditions.index(primary.NONE)]
