"""The explorer's computations, drawings and links, without a browser."""

from __future__ import annotations

import asyncio
import base64
import io
import re
import socket
import struct
import subprocess
import sys
import zlib
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers import literal as twins
from helpers import wrappable_capsnet as gray
from helpers.fixtures import build_strong, empty_page
from helpers.plain_capsnet import Foreign
from PIL import Image

from capsviz import checkpoint, results, tracing
from capsviz.data import Dataset
from capsviz.explorer import drawing, files, images, look, panels, serve, settings
from capsviz.explorer import networks as choices
from capsviz.pictures import Frame, prediction
from capsviz.statistics.detection import REASONS, Limits

CLASSES = ("a", "b", "c")
WARP = {"angle": 0, "scale": 1, "shear": 0, "right": 0, "down": 0}
NEUTRAL = {
    **WARP, "routing": "as trained", "off": -1, "map": -1, "iteration": 3, "donor": 2,
    "donor-index": 0, "pose": -1, **{f"d{d}": 0 for d in range(6)},
}  # fmt: skip
LIMITS = {"classes": 3, "types": 2, "iterations": 3}
DIGIT = Frame((1, 28, 28))


def chosen(**values):
    return settings.read(NEUTRAL | values, 6)


@pytest.fixture
def strong():
    """Return a small network with couplings far from uniform, and the card that a page needs."""
    model = build_strong()
    model.card = {"name": "strong"}
    return model


@pytest.fixture
def networks(strong, tiny_images):
    other = build_strong(iterations=1)
    other.card = {"name": "once"}
    part = Dataset((tiny_images * 255).byte(), torch.arange(8) % 3, CLASSES, "made-up", "test")
    return choices.Networks(strong, other, part, ("strong", "once"))


def uri(picture):
    content = io.BytesIO()
    picture.save(content, "png")
    return images.HEAD + base64.b64encode(content.getvalue()).decode()


def pixels_of(html):
    """Return the images in a piece of HTML, as arrays."""
    texts = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in texts]


def test_a_look_equals_a_trace(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    expected = tracing.trace(strong, tiny_images[:1])
    np.testing.assert_allclose(seen.lengths, expected.lengths[0], rtol=1e-5)
    np.testing.assert_allclose(seen.poses, expected.poses[-1, 0], rtol=1e-4, atol=1e-6)
    couplings = expected.couplings[:, 0].view(3, 2, 6, 3)  # types, positions, classes
    np.testing.assert_allclose(seen.couplings, couplings.mean(2), rtol=1e-5)
    c = expected.couplings[:, 0].double()
    effective = (-(c[-1] * c[-1].log()).sum(-1)).exp().mean()
    assert seen.effective_classes == pytest.approx(float(effective), rel=1e-5)
    made = (expected.reconstruction[0] * 255).round().byte()
    np.testing.assert_array_equal(seen.reconstruction, made)
    total = torch.einsum("ij,ije->je", expected.couplings[-1, 0], expected.votes[0])
    along = (total * torch.nn.functional.normalize(expected.poses[-1, 0], dim=-1)).sum(-1)
    np.testing.assert_allclose(seen.evidence.maps.sum((1, 2)), along, rtol=1e-4)


@pytest.mark.parametrize(
    "asked", [*({"couplings": name} for name in tracing.INTERVENTIONS), {"iterations": 1}]
)
def test_interventions_are_those_of_a_trace(strong, tiny_images, asked):
    expected = tracing.trace(strong, tiny_images[:1], keep=("lengths",), **asked).lengths[0]
    seen = look.look(strong, tiny_images[:1], look.Intervention(**asked)).lengths
    np.testing.assert_allclose(seen, expected, rtol=1e-5)
    assert abs(seen - look.look(strong, tiny_images[:1]).lengths).max() > 1e-4


def test_couplings_of_another_image_are_those_of_its_last_iteration(networks):
    image, donor = networks.test_image(0, 0), networks.test_image(1, 0)
    how = look.Intervention(couplings=look.ANOTHER, donor=(1, 0))
    own = tracing.trace(networks.model, donor, keep=("couplings",)).couplings[-1]
    expected = tracing.trace(networks.model, image, keep=("lengths",), couplings=own).lengths
    seen = look.look(networks.model, image, how, donor)
    np.testing.assert_allclose(seen.lengths, expected[0], rtol=1e-5)
    assert how.words == "couplings of another image (class 1, number 0)"
    with pytest.raises(ValueError, match="expected that image"):
        look.look(networks.model, image, how)


def test_a_type_that_is_off_is_routed_as_if_its_votes_were_zero(strong, tiny_images):
    before = look.look(strong, tiny_images[:1])
    seen = look.look(strong, tiny_images[:1], look.Intervention(off=1)).lengths
    votes = tracing.trace(strong, tiny_images[:1]).votes.clone()
    votes[:, 6:] = 0  # of two types with six positions each, the second
    poses = twins.dynamic_routing(votes, 3)[2][-1]
    np.testing.assert_allclose(seen, poses[0].norm(dim=1), rtol=1e-4)
    assert abs(seen - before.lengths).max() > 1e-3
    np.testing.assert_array_equal(look.look(strong, tiny_images[:1]).lengths, before.lengths)
    for kind in (-1, 2):
        with pytest.raises(ValueError, match="expected 0 to 1"):
            look.without_type(strong, kind)


def test_types_of_a_layer_below_the_one_that_is_shown_cannot_be_switched_off(digits):
    model = checkpoint.load("digits-matrix")
    assert look.types_of(model) == 0
    with pytest.raises(ValueError, match="capsule type 0: this network has none to switch off"):
        look.look(model, digits[0][:1], look.Intervention(off=0))


def test_capsules_without_positions_have_a_heat_map_by_capsule(tiny_images):
    model = Foreign((1, 21, 19), 3).eval()
    model.grid = None
    seen = look.look(model, tiny_images[:1])
    assert seen.evidence.maps is None and "no maps" in drawing.evidence(seen, 0, CLASSES)
    assert "<b>a</b>" in drawing.evidence(seen, 0, CLASSES)
    assert "12 capsules." in drawing.couplings(seen, 1, CLASSES)
    assert pixels_of(drawing.couplings(seen, 1, CLASSES))[0].shape == (3, 12, 4)
    assert look.types_of(model) == 0


@pytest.mark.parametrize(
    "sent",
    [
        None, "x", images.HEAD + "aGVsbG8=", uri(Image.new("RGBA", (5, 5))), "x" * 2_000_000,
        uri(Image.new("RGBA", (images.SHEET_PX,) * 2))[:-40],
    ],
    ids=lambda sent: str(sent)[:40],
)  # fmt: skip
def test_anything_but_a_drawing_is_refused(sent):
    with pytest.raises(ValueError, match="expected a drawing"):
        images.from_sheet(sent, DIGIT)


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 30)])
def test_an_image_goes_through_a_link_unchanged(shape, generator):
    image = torch.randint(256, (1, *shape), generator=generator) / 255
    text = images.packed(image)
    assert re.fullmatch(r"[\w-]+", text)
    torch.testing.assert_close(images.unpacked(text, shape), image, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="not of this network's size"):
        images.unpacked(text, (1, 5, 5))
    huge = png_header(30_000, 30_000)
    with pytest.raises(ValueError, match="no image that can be read"):
        images.unpacked(base64.urlsafe_b64encode(huge).decode(), shape)


def png_header(*size):
    """Return the beginning of a PNG of the given size."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", *size, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n\0\0\0\r" + chunk + struct.pack(">I", zlib.crc32(chunk))


def test_names_from_outside_cannot_become_markup():
    nasty = "<script>"
    html = drawing.bars(np.array([0.2, 0.1, 0.3]), (nasty,) * 3, nasty, nasty)
    html += drawing.note(nasty) + drawing.pixels(np.zeros((1, 2, 2), np.uint8), nasty)
    html += drawing.vector(np.zeros(2), [0, 0], nasty)
    assert nasty not in html and html.count("&lt;script&gt;") == 10


def test_couplings_have_a_pixel_each_and_maps_lie_on_the_image(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    cells = pixels_of(drawing.couplings(seen, 3, CLASSES))[0]
    assert cells.shape == (3, 2, 4) and (cells[..., 3] == 255).all()
    first = pixels_of(drawing.couplings(seen, 1, CLASSES))[0]
    assert (first == first[0, 0]).all()  # all 1/J
    blank = pixels_of(drawing.couplings(seen, 3, CLASSES, off=1))[0]
    assert (blank[:, 1, 3] == 0).all() and (blank[:, 0, 3] == 255).all()
    html = drawing.evidence(seen, 1, CLASSES)
    image, values = pixels_of(html)
    assert image.shape == (21, 19) and values.shape == (3, 2, 4)
    maps = seen.evidence.maps
    assert html.count("h.8") == (maps[1] < -np.abs(maps).max() / 5).sum()
    assert f"{maps[1].sum():.2f}" in html


def test_settings_are_read_from_the_controls_by_name():
    seen = chosen(angle=30, scale=1.2, down=3, routing="one iteration", off=5, map=1, iteration=2,
                  pose=0, donor=1, d0=0.1, d1=-0.2, **{"donor-index": 4})  # fmt: skip
    assert seen.warp == (30, 1.2, 0, 0, 3) and seen.warp.shift_y_px == 3
    assert seen.how == look.Intervention(iterations=1, off=5)
    assert (seen.mapped, seen.iteration, seen.capsule) == (1, 2, 0)
    assert seen.changes == (0.1, -0.2, 0, 0, 0, 0)
    assert chosen().how == look.AS_TRAINED


def test_a_link_encodes_the_changed_controls_and_is_decoded_to_them():
    values = NEUTRAL | {"angle": -30, "scale": 1.25, "routing": "couplings uniform", "off": 1,
                        "iteration": 1, "donor-index": 7, "d0": 0.25, "d2": -0.5}  # fmt: skip
    parts = settings.parse("?" + settings.query(("one", "two"), {"case": "x"}, values, NEUTRAL))
    assert (parts["network"], parts["beside"], parts["case"]) == ("one", "two", "x")
    assert "shear" not in parts and "d1" not in parts
    assert settings.values_of(parts, NEUTRAL, **LIMITS) == (values, [])
    assert settings.values_of({}, NEUTRAL, **LIMITS) == (NEUTRAL, [])
    emptied = settings.query(("one", "two"), {}, values | {"donor-index": None}, NEUTRAL)
    assert "donor-index" not in emptied
    assert settings.parse("angle=3&ink=" + "A" * 20_000) == {}  # too long


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("angle", "1e9"), ("angle", "nan"), ("scale", "x"), ("routing", "magic"), ("off", "2"),
        ("iteration", "4"), ("map", "3"), ("donor", "-1"), ("d0", "0.6"), ("right", "0.5"),
    ],
)  # fmt: skip
def test_values_of_a_link_that_are_out_of_range_are_named_and_left_out(name, value):
    assert settings.values_of({name: value}, NEUTRAL, **LIMITS) == (NEUTRAL, [name])


def test_every_panel_follows_the_controls(networks):
    image = networks.test_image(1, 0)
    plain, rotated, changed = chosen(), chosen(angle=40), chosen(d0=0.4)
    before, after, other = (panels.find(networks, image, s) for s in (plain, rotated, changed))
    for draw in (panels.routed, panels.iterations, panels.posed):
        assert draw(before, networks, plain) != draw(after, networks, plain)
    assert panels.images(before, networks) != panels.images(after, networks)
    scores, *others = (panels.scores(one, networks, 1, plain.how) for one in (before, after, other))
    assert scores != others[0] and "True class: b" in scores and scores == others[1]
    assert panels.posed(before, networks, plain) != panels.posed(other, networks, changed)


def test_the_page_flags_what_predict_flags_and_nothing_while_routing_is_changed(
    networks, monkeypatch
):
    seen = panels.find(networks, networks.test_image(1, 0), chosen())
    assert panels.flag(seen, networks) == ""  # not known
    for limits in (Limits(0.0, 1e3), Limits(2.0, 1e3), Limits(0.0, 0.0)):
        (one,), _ = prediction.predict(
            networks.model, networks.test_image(1, 0), CLASSES, top=1, limits=limits
        )
        text = panels.flag(seen, replace(networks, limits=limits))
        assert ("Unlike" in text) is one.unlike
        assert all(REASONS[reason] in text for reason in one.reasons)
    two = np.zeros((1, 28, 28), np.uint8)
    two[:, 5:20, 5:8] = two[:, 5:20, 15:18] = 255
    pair = seen._replace(trace=seen.trace._replace(image=two))
    frame = Frame((1, 28, 28))
    monkeypatch.setattr(type(networks), "frame", frame._replace(digits=False))
    assert "strokes" not in panels.flag(pair, replace(networks, limits=Limits(0.0, 1e3)))
    monkeypatch.setattr(type(networks), "frame", frame)
    text = panels.flag(pair, replace(networks, limits=Limits(0.0, 1e3)))
    assert "2 separate strokes" in text and "length and reconstruction" in text
    alone = panels.flag(pair, replace(networks, limits=Limits(0.0, None)))
    assert "Like the training data, by capsule length;" in alone
    seen = panels.find(networks, networks.test_image(1, 0), chosen(routing="couplings uniform"))
    assert panels.flag(seen, replace(networks, limits=Limits(2.0, 0.0))) == ""


def test_every_intervention_is_offered_and_explained_and_leaves_ticks(networks):
    image, texts = networks.test_image(1, 0), set()
    own = look.look(networks.model, image).lengths
    for name in settings.ROUTINGS:
        how = chosen(routing=name)
        seen = panels.find(networks, image, how)
        text = panels.routed(seen, networks, how)
        scores = panels.scores(seen, networks, None, how.how)
        assert f"about uniform: {seen.trace.coupling_sd:.4f}" in text
        if how.how.couplings is not None:
            meaning = panels.MEANINGS[how.how.couplings]
            assert drawing.note(meaning).partition("<code>")[0].removesuffix("</p>") in scores
        assert (panels.SAME in scores) is (name in ("couplings uniform", "one iteration"))
        if name == "as trained":
            assert seen.plain is None
        else:
            np.testing.assert_array_equal(seen.plain, own)
            assert "Ticks" in scores
        texts.add(text)
    assert len(texts) == len(settings.ROUTINGS) == len(tracing.INTERVENTIONS) + 3


def test_the_scores_of_each_network_have_their_own_name(networks, digits):
    other = replace(networks, other=checkpoint.load("digits-em"))
    how = chosen()
    seen = panels.find(networks, networks.test_image(1, 0), how)
    text = panels.scores(seen, other, None, how.how)
    assert "Capsule length of each class" in text and "Activation of each class" in text


def test_one_iteration_is_uniform_couplings_where_routing_starts_uniform(digits):
    for name, expected in (("digits", True), ("digits-em", False), ("digits-self-routing", False)):
        assert look.starts_uniform(checkpoint.load(name), digits[0][:1]) is expected


def saved(analysis, networks, sample, how):
    """Save a figure; return its result, the facts about it, the JSON path, and all endings."""
    paths = files.save(analysis, networks, sample, how)
    (numbers,) = (path for path in paths if path.suffix == ".json")
    return *results.read_result(numbers), numbers, sorted({path.suffix for path in paths})


def test_the_files_contain_the_state_of_the_page_and_can_be_redrawn(
    networks, tmp_path, monkeypatch
):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    sample = images.Sample(networks.test_image(2, 0), 2, "drawing")
    how = chosen(routing="couplings uniform", off=0, pose=1, d0=0.1, d5=-0.3)
    result, about, made, endings = saved("view", networks, sample, how)
    assert endings == [".json", ".pdf", ".png"] and about["options"]["couplings"] == "uniform"
    image = np.asarray(Image.open(made.with_name("drawing-image.png")))
    np.testing.assert_array_equal(image, (sample.image[0, 0] * 255).round())
    expected = look.look(networks.model, sample.image, how.how)
    np.testing.assert_allclose(result.scores[0], expected.lengths, rtol=1e-5)
    np.testing.assert_allclose(result.pose, expected.poses[1], rtol=1e-4, atol=1e-6)
    assert result.routing == "couplings uniform, type 0 off"
    np.testing.assert_array_equal(result.changes, how.changes)
    command_line.fine(command_line.run("redraw", made, "--force", "--format", "png"))


def test_the_captions_of_routing_name_the_changes(networks, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    monkeypatch.setattr(results, "draw", empty_page)
    how = chosen(off=1, routing="one iteration")
    sample = images.Sample(networks.test_image(2, 0), 2, "x")
    result, about, *_ = saved("routing", networks, sample, how)
    assert (about["options"]["off"], about["options"]["iterations"]) == (1, 1)
    expected = look.look(networks.model, sample.image, how.how).lengths
    np.testing.assert_allclose(result.activations, expected, rtol=1e-5)
    for part in results.parts("routing", result):
        assert "terations: 1, type 1 off" in results.caption("routing", result, part)


def test_a_pose_and_a_full_circle_are_drawn_by_their_commands(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    monkeypatch.setattr("capsviz.analyses.perturb.N", 10)
    monkeypatch.setattr(results, "draw", empty_page)
    monkeypatch.setattr(files.rotate, "animation", lambda result, path, **more: path)
    opened = choices.open_choice("digits", "digits").pair("digits", "digits (2)")
    sample = images.Sample(opened.test_image(3, 1), 3, "digits-3-1")
    result, about, *_ = saved("perturb", opened, sample, chosen(pose=3))
    assert len(result.captions) == 6 and result.capsule == about["options"]["capsule"] == 3
    result, _, _, endings = saved("rotate", opened, sample, chosen())
    np.testing.assert_array_equal(result.angles_deg, np.arange(0, 361, 4))  # as the command
    assert ".gif" in endings
    turned, about, *_ = saved("rotate", opened, sample, chosen(angle=8))
    assert about["options"]["angle_deg"] == 8
    np.testing.assert_allclose(turned.lengths[0], result.lengths[2], atol=0.05)
    assert abs(turned.lengths[0] - result.lengths[0]).max() > 0.001
    with pytest.raises(ValueError, match="replaced couplings, too"):
        files.save("routing", opened, sample, chosen(routing="couplings uniform"))
    for kind in ("perturb", "rotate"):
        with pytest.raises(ValueError, match="this figure shows the network as trained"):
            files.save(kind, opened, sample, chosen(routing="couplings uniform"))


@pytest.mark.skipif("mnist" not in checkpoint.shipped(), reason="no MNIST weights are here")
def test_without_mnist_the_embedded_digits_are_the_test_images(bare):
    opened = choices.open_choice()
    assert opened.dataset.name == "digits"
    assert opened.notice.startswith("using the embedded 'digits' data")  # as other commands do
    pair = opened.pair(opened.first, opened.beside)
    assert pair.names == ("digits", "digits-self-attention") and pair.frame == DIGIT
    seen = panels.find(pair, pair.test_image(2, 0), chosen())
    assert "Like the training data" in panels.flag(seen, pair)
    named = choices.open_choice("mnist")
    assert (named.first, named.beside) == ("mnist", "mnist-resnet")
    assert named.dataset.name == "digits" and "embedded" in named.notice
    with pytest.raises(ValueError, match="expected an index"):
        pair.test_image(2, 10_000)
    with pytest.raises(ValueError, match="'mnist-resnet' has no capsules"):
        choices.open_choice("mnist-resnet", "digits")


def test_all_shipped_networks_for_the_same_images_can_be_chosen():
    opened = choices.open_choice("digits")
    fitting = {"mnist", "digits", "mnist-attention", "mnist-resnet"} & set(checkpoint.shipped())
    assert fitting <= set(opened.names) and "multimnist" not in opened.names
    assert "mnist-resnet" not in opened.capsule_names and opened.beside == "digits-self-attention"
    pair = opened.pair("digits", "digits")
    assert opened.pair("digits", "digits") is pair
    with pytest.raises(ValueError, match="'mnist-resnet' has no capsules"):
        opened.pair("mnist-resnet", "digits")
    with pytest.raises(ValueError, match="no network 'nobody' here"):
        opened.pair("nobody", "digits")


def test_user_defined_networks_come_first_and_may_be_two_and_take_options_alone():
    spec = f"{gray.__file__}:build"
    opened = choices.open_choice(network=(spec,), dataset="digits")
    assert opened.first == "wrappable_capsnet-build" and opened.dimensions == 16
    pair = opened.pair(opened.first, "digits")
    assert type(pair.model.network).__name__ == "Gray" and pair.about[::2] == (2, 5)
    twice = choices.open_choice("digits", network=(spec, spec))
    assert (twice.first, twice.beside) == ("digits", "wrappable_capsnet-build")
    assert "wrappable_capsnet-build (2)" in twice.names
    with pytest.raises(ValueError, match="name one for each"):
        choices.open_choice("digits", weights=("x.pt",))
    with pytest.raises(ValueError, match="--dataset: only where the first network is your own"):
        choices.open_choice("digits", dataset="digits")


def test_figures_of_own_data_find_the_other_splits_in_the_same_file(tmp_path):
    pixels, labels = np.zeros((40, 28, 28), np.uint8), np.arange(40) % 10
    pixels[:, 5:9] = np.arange(40)[:, None, None]
    splits = {f"{split}_images": pixels for split in ("train", "val", "test")}
    splits |= {f"{split}_labels": labels for split in ("train", "val", "test")}
    np.savez(tmp_path / "x.npz", **splits)
    opened = choices.open_choice(
        network=(f"{gray.__file__}:build",), dataset="npz", data_dir=tmp_path / "x.npz"
    )
    pair = opened.pair(opened.first, opened.first)
    assert torch.equal(pair.inputs.load("train").images, torch.from_numpy(pixels)[:, None])


@pytest.fixture(scope="module")
def page():
    """Return a page of the embedded digits, without serving it."""
    pages = pytest.importorskip("capsviz.explorer.page", reason="the page needs Gradio")

    async def build():  # in an event loop that is closed: Gradio would leave its own open
        return pages.Page(choices.open_choice("digits", "digits"))

    return asyncio.run(build())


def state_of(page, sample, **values):
    from capsviz.explorer.page import State

    networks = page.choice.pair("digits", "digits")
    return State(sample, networks, page.neutral(networks) | values)


def test_a_page_that_is_cleared_has_no_image_and_keeps_its_settings(page):
    on, shown = page.on, page.show(state_of(page, None, angle=40))
    assert set(shown) == set(page.panels) and "Nothing is shown" in shown[on.images]
    assert not any("<img" in str(panel) for panel in shown.values())
    query = {"network": "digits", "beside": "digits", "angle": "40"}
    assert settings.parse(shown[page.query]) == query
    sample = page.test_image(page.choice.pair("digits", "digits"), 2, 1)
    full = page.show(state_of(page, sample, angle=40))
    assert settings.parse(full[page.query])["digit"] == "2" and "<img" in full[on.images]


def arrive(page, text):
    values = page.neutral(page.choice.pair("digits", "digits"))
    given = {part: values[name] for name, part in page.on.controls.items()}
    given |= {page.on.first: "digits", page.on.beside: "digits"}
    return page.arrive(given | {page.address: text, page.sample: None})


def test_a_missing_donor_is_reported_and_all_panels_show_routing_as_trained(page):
    on, message = page.on, "got 999"
    sample = page.test_image(page.choice.pair("digits", "digits"), 4, 2)
    absent = {"routing": f"couplings {look.ANOTHER}", "donor-index": 999}
    plain, shown = page.show(state_of(page, sample)), page.show(state_of(page, sample, **absent))
    for part in (on.images, on.posed, page.iterations):
        assert shown[part] == plain[part]
    for part in (on.scores, on.iterations):
        assert message in shown[part] and shown[part].endswith(plain[part])
        assert "as trained" in shown[part].removesuffix(plain[part])
    assert shown[on.routed] == plain[on.routed]
    assert settings.parse(shown[page.query])["donor-index"] == "999"
    arrived = arrive(page, "?digit=4&routing=couplings+of+another+image&donor-index=999")
    assert all("<img" in arrived[part] for part in (on.images, on.routed, on.posed))


@pytest.mark.parametrize(
    ("link", "expected"),
    [
        ("?digit=3&index=1", []),
        ("?digit=3&angle=1e9", ["angle is not possible"]),
        ("?digit=99&network=nobody", ["no network", "99"]),
        ("?digit=abc", ["expected a whole number from 0 to 100000, got abc"]),
    ],
)
def test_errors_in_a_link_are_reported(page, link, expected):
    arrived = arrive(page, link)
    status = arrived[page.on.status]
    assert all(text in status for text in expected) and bool(status) == bool(expected)


def test_a_network_or_address_that_is_not_available_is_named_in_one_line(monkeypatch):
    monkeypatch.setattr(serve, "load_gradio", lambda: None)

    def refused(*words, network="digits"):
        done = command_line.run("explore", "--checkpoint", network, *words)
        command_line.refused(done, status=(1, 2))
        return done.stderr

    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"address ('127.0.0.1', {port})" in refused("--port", port)
        assert "digitz" in refused("--port", port, network="digitz")  # before the port
    for host in ("192.0.2.7", "no such host", "::1", ""):
        assert f"address ('{host or ' '}', 7860)" in refused("--host", host)
    with socket.socket() as probe:
        probe.bind((serve.HOST, serve.free_port(0)))
    assert serve.is_alone("localhost") and not serve.is_alone(serve.EVERYWHERE)


def test_the_address_for_a_class_comes_with_its_login(monkeypatch):
    blocks = SimpleNamespace(block_thread=lambda: None)
    page = SimpleNamespace(Page=lambda choice: SimpleNamespace(blocks=blocks))
    monkeypatch.setitem(sys.modules, "capsviz.explorer.page", page)
    for password, invitation in (("", ""), ("abc", f"{serve.INVITATION}\n")):
        answers = {"load_gradio": 0, "launch": ("LINK", password), "free_port": 7}
        for name, result in answers.items():
            monkeypatch.setattr(serve, name, lambda *more, result=result, **named: result)
        done = command_line.run("explore", "--checkpoint", "digits")
        invitation = invitation.format(user="class", password=password, port=7)
        assert done.stdout == "LINK (Ctrl+C ends it)\n" + invitation


def test_without_gradio_one_line_names_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    done = command_line.run("explore", "--no-browser", "--port", 0)
    command_line.refused(done, "Error: the page needs gradio: pip install gradio", status=(1,))


COMPUTING = """
import atexit, sys, threading, time
import torch
from capsviz import cli

def compute():
    torch.set_num_threads(1)
    numbers = torch.ones(1500, 1500)
    while True:
        torch.mm(numbers, numbers)
        begun.set()

begun = threading.Event()
atexit.register(print, "cleared")
threading.Thread(target=compute, daemon=True).start()
begun.wait()
time.sleep(0.05)
cli.main = lambda **_: sys.exit(3)
cli.run()
"""


def test_the_process_ends_cleanly_while_a_request_is_computed():
    done = subprocess.run([sys.executable, "-c", COMPUTING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (3, "cleared\n", "")


def test_couplings_that_do_not_sum_to_1_are_not_called_uniform(networks):
    found = panels.find(networks, networks.dataset.images[:1].float() / 255, chosen())
    for k in (1, 2):
        even = found.trace._replace(
            couplings=np.full((1, 2, 3), k / 3), effective_classes=3, coupling_sd=0.01
        )
        shown = panels.iterations(found._replace(trace=even), networks, chosen())
        assert ("close to uniform" in shown) == (k == 1)
