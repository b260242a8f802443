"""What the explorer computes and draws, without a browser and without Gradio."""

from __future__ import annotations

import base64
import io
import re
import socket
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from conftest import build_strong, empty_page
from helpers.plain_capsnet import Foreign
from helpers.source_code import MODULES, imports
from matplotlib.text import Text
from PIL import Image, ImageDraw

from capsviz import checkpoint, results, tracing
from capsviz.analyses import importance
from capsviz.cli import main
from capsviz.data import Dataset
from capsviz.explorer import choice, drawing, files, look, network, panels, serve, settings, source
from capsviz.nn.functional import lengths
from capsviz.pictures import Frame, prediction
from capsviz.statistics.detection import REASONS, Limits

CLASSES = ("a", "b", "c")
NEUTRAL = (0, 1, 0, 0, 0, "as trained", -1, -1, 3, -1, 2, 0)


@pytest.fixture
def strong():
    """A small network whose couplings are far from even, with the card that a page needs."""
    model = build_strong()
    model.card = {"name": "strong"}
    return model


@pytest.fixture
def networks(strong, tiny_images):
    other = build_strong(iterations=1)
    other.card = {"name": "once"}
    images = (tiny_images * 255).byte()
    part = Dataset(images, torch.arange(8) % 3, CLASSES, "made-up", "test")
    return network.Networks(strong, other, CLASSES, part, ("strong", "once"))


def uri(picture):
    content = io.BytesIO()
    picture.save(content, "png")
    return source.HEAD + base64.b64encode(content.getvalue()).decode()


def sheet(draw=None):
    picture = Image.new("RGBA", (source.SHEET_PX,) * 2)
    if draw:
        draw(ImageDraw.Draw(picture))
    return picture


def pixels_of(html):
    """The images in a piece of HTML, as arrays."""
    answers = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))) for text in answers]


def test_a_look_is_what_a_trace_shows(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    expected = tracing.trace(strong, tiny_images[:1])
    np.testing.assert_allclose(seen.lengths, expected.lengths[0], rtol=1e-5)
    np.testing.assert_allclose(seen.poses, expected.poses[-1, 0], rtol=1e-4, atol=1e-6)
    couplings = expected.couplings[:, 0].view(3, 2, 6, 3)  # types, places, classes
    np.testing.assert_allclose(seen.couplings, couplings.mean(2), rtol=1e-5)
    c = expected.couplings[:, 0].double()
    np.testing.assert_allclose(seen.entropy_nats, -(c * c.log()).sum(-1), rtol=1e-5)
    made = (expected.reconstruction[0] * 255).round().byte()
    np.testing.assert_array_equal(seen.reconstruction, made)


def test_the_maps_add_up_to_the_input_of_each_class(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    answers = tracing.trace(strong, tiny_images[:1])
    total = torch.einsum("ij,ije->je", answers.couplings[-1, 0], answers.votes[0])
    along = (total * torch.nn.functional.normalize(answers.poses[-1, 0], dim=-1)).sum(-1)
    np.testing.assert_allclose(seen.maps.sum((1, 2)), along, rtol=1e-4)


def test_interventions_are_those_of_a_trace(strong, tiny_images):
    for how, asked in (
        (look.Intervention(couplings="uniform"), {"couplings": "uniform"}),
        (look.Intervention(couplings="shuffled"), {"couplings": "shuffled"}),
        (look.Intervention(couplings="matched"), {"couplings": "matched"}),
        (look.Intervention(iterations=1), {"iterations": 1}),
    ):
        expected = tracing.trace(strong, tiny_images[:1], keep=("lengths",), **asked).lengths[0]
        answers = look.look(strong, tiny_images[:1], how).lengths
        np.testing.assert_allclose(answers, expected, rtol=1e-5)
        assert abs(answers - look.look(strong, tiny_images[:1]).lengths).max() > 1e-4


def test_even_couplings_of_leaky_routing_are_those_of_a_trace(tiny_images):
    leaky = build_strong(leaky=True)
    expected = tracing.trace(leaky, tiny_images[:1], couplings="uniform")
    answers = look.look(leaky, tiny_images[:1], look.Intervention(couplings="uniform"))
    np.testing.assert_allclose(answers.lengths, expected.lengths[0], rtol=1e-5)
    np.testing.assert_allclose(answers.couplings, 1 / 4, rtol=1e-5)  # three classes, and none


def test_a_type_that_is_off_is_routed_as_if_its_votes_were_zero(strong, tiny_images):
    before = look.look(strong, tiny_images[:1])
    answers = look.look(strong, tiny_images[:1], look.Intervention(off=1)).lengths
    votes = tracing.trace(strong, tiny_images[:1]).votes.clone()
    votes[:, 6:] = 0  # of two types with six places each, the second
    logits = torch.zeros(1, 12, 3)
    for _ in range(3):  # Procedure 1 of the paper, written out
        poses = torch.einsum("bij,bije->bje", logits.softmax(-1), votes)
        norm = poses.norm(dim=-1, keepdim=True)
        poses = poses / norm * norm**2 / (1 + norm**2)
        logits = logits + torch.einsum("bije,bje->bij", votes, poses)
    np.testing.assert_allclose(answers, lengths(poses)[0], rtol=1e-4)
    assert abs(answers - before.lengths).max() > 1e-3
    np.testing.assert_array_equal(look.look(strong, tiny_images[:1]).lengths, before.lengths)


@pytest.mark.parametrize("kind", [-1, 2])
def test_a_type_that_is_not_there_is_refused(strong, kind):
    with pytest.raises(ValueError, match="expected 0 to 1"):
        look.without_type(strong, kind)


@pytest.mark.parametrize("name", ["digits", "digits-self-routing", "digits-inverted-attention"])
def test_a_type_that_is_off_changes_what_importance_says(name, digits):
    model, image = checkpoint.load(name), digits[0][:1]
    expected = importance.OneImage().measure(model, image, 3, classes=list("0123456789"))
    own = look.look(model, image).lengths[3]
    changes = [
        look.look(model, image, look.Intervention(off=kind)).lengths[3] - own
        for kind in range(model.grid[0])
    ]
    of_types = expected.change["types"]
    np.testing.assert_allclose(changes, of_types, rtol=1e-3, atol=1e-6)
    trace = tracing.trace(look.without_type(model, 1), image, keep=("child_activations",))
    assert trace.child_activations.view(model.grid[0], -1)[1].max() <= 1e-6  # of a length of zero


def test_types_of_a_layer_below_the_one_that_is_shown_cannot_be_switched_off(digits):
    model = checkpoint.load("digits-matrix")
    assert look.types_of(model) == 0
    with pytest.raises(ValueError, match="capsule type 0: this network has none to switch off"):
        look.look(model, digits[0][:1], look.Intervention(off=0))


def test_an_intervention_says_what_it_is():
    assert look.Intervention().words == "as trained"
    both = look.Intervention(couplings="uniform", iterations=1, off=3)
    assert both.words == "couplings uniform, iterations: 1, type 3 off"


def test_a_drawing_is_scaled_and_centred_as_mnist_was():
    drawn = sheet(lambda pen: pen.line((20, 30, 40, 130), fill="black", width=20))
    answers = source.from_sheet(uri(drawn), Frame((1, 28, 28)))
    assert answers.shape == (1, 1, 28, 28) and answers.max() == pytest.approx(1, abs=0.02)
    mass = answers[0, 0] / answers.sum()
    middle = [float((mass.sum(1 - k) * torch.arange(28)).sum()) for k in (0, 1)]
    assert middle == pytest.approx([13.5, 13.5], abs=0.6)
    rows = (answers[0, 0] > 0.1).any(1).nonzero()
    assert 19 <= rows.max() - rows.min() + 1 <= 21


def test_a_colour_network_gets_a_drawing_in_its_channels():
    drawn = sheet(lambda pen: pen.ellipse((50, 50, 200, 220), outline="black", width=20))
    assert source.from_sheet(uri(drawn), Frame((3, 32, 32))).shape == (1, 3, 32, 32)


@pytest.mark.parametrize(
    "sent",
    [
        None, "", "x", source.HEAD + "????", source.HEAD + "aGVsbG8=", "data:image/png;base64,",
        uri(Image.new("RGBA", (5, 5))), uri(Image.new("L", (280, 280))), "x" * 2_000_000,
        source.HEAD + "A" * 2_000_000, uri(sheet())[:-40],
    ],
    ids=lambda sent: str(sent)[:40],
)  # fmt: skip
def test_what_is_no_drawing_is_refused(sent):
    with pytest.raises(ValueError, match="expected a drawing"):
        source.from_sheet(sent, Frame((1, 28, 28)))


def test_an_empty_sheet_asks_for_a_drawing():
    with pytest.raises(ValueError, match="draw a digit"):
        source.from_sheet(uri(sheet()), Frame((1, 28, 28)))


def test_a_wrong_upload_is_named_without_its_folder(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ValueError, match=r"'notes.txt' is not a picture") as error:
        source.from_file(tmp_path / "notes.txt", Frame((1, 28, 28)))
    assert str(tmp_path) not in str(error.value)


def test_an_image_is_drawn_pixel_by_pixel(generator):
    image = torch.randint(256, (1, 5, 7), generator=generator, dtype=torch.uint8).numpy()
    np.testing.assert_array_equal(pixels_of(drawing.pixels(image, "x"))[0], image[0])
    colour = np.repeat(image, 3, 0)
    assert pixels_of(drawing.pixels(colour, "x"))[0].shape == (5, 7, 3)
    two_eyes = np.concatenate([image, 255 - image])
    np.testing.assert_array_equal(pixels_of(drawing.pixels(two_eyes, "x"))[0], image[0])


def test_bars_show_every_value_and_mark_the_largest():
    html = drawing.bars(np.array([0.25, 0.5, 0.125]), CLASSES, "net", "length", [0, 1, 0.3])
    assert re.findall(r"width:([\d.]+)%", html) == ["25.0", "50.0", "12.5"]
    assert re.findall(r"left:([\d.]+)%", html) == ["0.0", "100.0", "30.0"]
    assert html.count("cv-first") == 1 and 'data-predicted="1"' in html
    assert "<strong>b</strong>" in html


def test_names_from_outside_cannot_become_markup():
    nasty = "<script>"
    html = drawing.bars(np.array([0.2, 0.1, 0.3]), (nasty,) * 3, nasty, nasty)
    html += drawing.note(nasty) + drawing.pixels(np.zeros((1, 2, 2), np.uint8), nasty)
    html += drawing.vector(np.zeros(2), [0, 0], nasty)
    assert nasty not in html and html.count("&lt;script&gt;") == 10


def test_couplings_have_a_pixel_for_each_type_and_class(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    cells = pixels_of(drawing.couplings(seen, 3, CLASSES))[0]
    assert cells.shape == (3, 2, 4) and (cells[..., 3] == 255).all()
    first = pixels_of(drawing.couplings(seen, 1, CLASSES))[0]
    assert (first == first[0, 0]).all()  # all 1/J
    blank = pixels_of(drawing.couplings(seen, 3, CLASSES, off=1))[0]
    assert (blank[:, 1, 3] == 0).all() and (blank[:, 0, 3] == 255).all()


def test_the_map_lies_on_the_image_with_its_minus_signs(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    html = drawing.evidence(seen, 1, "b")
    image, values = pixels_of(html)
    assert image.shape == (21, 19) and values.shape == (3, 2, 4)
    signs = (seen.maps[1] < -np.abs(seen.maps).max() / 5).sum()
    assert html.count("h.8") == signs
    assert f"{seen.maps[1].sum():.2f}" in html


def test_the_outline_goes_round_the_ink():
    image = np.zeros((1, 6, 6), np.uint8)
    image[0, 2:4, 1:3] = 255
    seen = look.ImageTrace(image, *[None] * 4, np.ones((1, 1, 1)), [0.5, 4.5, 4.5, 0.5], None)
    path = re.search(r'd="([^"]+)"', drawing.evidence(seen, 0, "a"))[1]
    assert path.count("v1") == 4 and path.count("h1") == 4
    assert {"M1 2v1", "M3 2v1", "M1 2h1", "M2 4h1"} <= set(re.findall(r"M[^M]+", path))


def test_the_spread_is_the_exponential_of_the_entropy(strong, tiny_images):
    seen = look.look(strong, tiny_images[:1])
    html = drawing.spread(seen, 2)
    assert "3.00" in html and f"{np.exp(seen.entropy_nats[2]).mean():.2f}" in html
    assert html.count("<tr class=cv-now>") == 1


def test_the_values_of_the_controls_are_read_in_their_order():
    values = (30, 1.2, 0.1, -2, 3, "one iteration", 5, 1, 2, 0, 1, 4, 0.1, -0.2)
    answers = settings.read(values)
    assert answers.warp == (30, 1.2, 0.1, -2, 3) and answers.warp.shift_y_px == 3
    assert answers.how == look.Intervention(iterations=1, off=5)
    assert (answers.mapped, answers.iteration, answers.capsule) == (1, 2, 0)
    assert answers.donor == (1, 4)
    assert answers.changes == (0.1, -0.2)
    assert settings.read((*NEUTRAL, 0)).how == look.AS_TRAINED


def test_every_panel_follows_the_controls(networks):
    image = networks.test_image(1, 0)
    plain, turned = (settings.read((angle, *NEUTRAL[1:], *[0] * 6)) for angle in (0, 40))
    changed = settings.read((*NEUTRAL, 0.4, *[0] * 5))
    answers = {s: panels.find(networks, image, s) for s in (plain, turned, changed)}
    for draw in (panels.routed, panels.posed):
        before, after = (draw(answers[s], networks, s) for s in (plain, turned))
        assert before != after
    assert panels.images(answers[plain], networks) != panels.images(answers[turned], networks)
    before, after = (panels.scores(answers[s], networks, 1) for s in (plain, turned))
    assert before != after and "True class: b" in before
    assert panels.posed(answers[plain], networks, plain) != panels.posed(
        answers[changed], networks, changed
    )
    assert panels.scores(answers[plain], networks, None) == panels.scores(
        answers[changed], networks, None
    )


def test_the_page_flags_what_predict_flags_and_nothing_while_routing_is_changed(networks):
    image, plain = networks.test_image(1, 0), settings.read((*NEUTRAL, *[0] * 6))
    answers = panels.find(networks, image, plain)
    assert panels.flag(answers, networks) == ""  # not known
    for limits in (Limits(0.0, 1e3), Limits(2.0, 1e3), Limits(0.0, 0.0)):
        (one,), _ = prediction.predict(networks.model, image, CLASSES, top=1, limits=limits)
        text = panels.flag(answers, replace(networks, limits=limits))
        assert ("Unlike" in text) is one.unlike
        assert all(REASONS[reason] in text for reason in one.reasons)
    two = np.zeros((1, 28, 28), np.uint8)
    two[:, 5:20, 5:8] = two[:, 5:20, 15:18] = 255
    pair = answers._replace(trace=answers.trace._replace(image=two))
    text = panels.flag(pair, replace(networks, limits=Limits(0.0, 1e3)))
    assert "2 separate pieces of ink" in text and "Like the training data" in text
    uniform = settings.read((*NEUTRAL[:5], "couplings uniform", *NEUTRAL[6:], *[0] * 6))
    answers = panels.find(networks, image, uniform)
    assert panels.flag(answers, replace(networks, limits=Limits(2.0, 0.0))) == ""


def test_the_longest_capsule_is_meant_unless_a_class_is_named(networks):
    image = networks.test_image(0, 0)
    answers = panels.find(networks, image, settings.read((*NEUTRAL, *[0] * 6)))
    assert answers.mapped == answers.capsule == answers.trace.lengths.argmax()
    named = settings.read((*NEUTRAL[:7], 2, 3, 1, *NEUTRAL[10:], *[0] * 6))
    answers = panels.find(networks, image, named)
    assert (answers.mapped, answers.capsule) == (2, 1)


def test_every_intervention_is_offered_and_explained_in_a_sentence(networks):
    image = networks.test_image(1, 0)
    texts = []
    for name in settings.ROUTINGS:
        chosen = settings.read((*NEUTRAL[:5], name, *NEUTRAL[6:], *[0] * 6))
        answers = panels.find(networks, image, chosen)
        texts.append(panels.routed(answers, networks, chosen))
        assert f"about uniform: {answers.trace.coupling_sd:.4f}" in texts[-1]
    assert len(set(texts)) == len(settings.ROUTINGS) == len(tracing.INTERVENTIONS) + 3
    assert set(panels.MEANINGS) == {*tracing.INTERVENTIONS, look.ANOTHER}
    for name, text in zip(tracing.INTERVENTIONS, texts[1:], strict=False):
        assert panels.MEANINGS[name].split(",")[0].replace("'", "&#x27;") in text


def test_couplings_near_uniform_are_said_to_be_so_and_not_to_do_little(networks):
    image, plain = networks.test_image(1, 0), settings.read((*NEUTRAL, *[0] * 6))
    trace = panels.find(networks, image, plain).trace
    near = trace._replace(entropy_nats=np.full_like(trace.entropy_nats, np.log(2.9)))
    far = trace._replace(entropy_nats=np.full_like(trace.entropy_nats, np.log(1.2)))
    assert "not their effect" in panels.words(near, None, 3)
    assert "not their effect" not in panels.words(far, None, 3)
    assert "not their effect" not in panels.words(near, "uniform", 3)


def test_capsules_without_places_have_a_line_in_place_of_a_map(tiny_images):
    model = Foreign((1, 21, 19), 3).eval()
    model.grid = None
    seen = look.look(model, tiny_images[:1])
    assert seen.maps is None and "no maps" in drawing.evidence(seen, 0, "a")
    assert pixels_of(drawing.couplings(seen, 1, CLASSES))[0].shape == (3, 12, 4)
    assert look.types_of(model) == 0


def test_bars_have_ticks_only_with_an_intervention(networks):
    image = networks.test_image(0, 0)
    uniform = settings.read((*NEUTRAL[:5], "couplings uniform", *NEUTRAL[6:], *[0] * 6))
    answers = panels.find(networks, image, uniform)
    np.testing.assert_array_equal(answers.plain, look.look(networks.model, image).lengths)
    assert "ticks" in panels.scores(answers, networks, None)
    plain = settings.read((*NEUTRAL, *[0] * 6))
    assert panels.find(networks, image, plain).plain is None


def test_the_files_hold_what_is_shown_and_can_be_drawn_again(networks, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    sample = source.Sample(networks.test_image(2, 0), 2, "drawing")
    how, warp = look.Intervention(couplings="uniform", off=0), settings.read((*NEUTRAL, 0)).warp
    changes = (0.1, 0, 0, 0, 0, -0.3)
    made = files.save_view(networks, sample, warp, how, 1, changes)
    assert sorted(path.suffix for path in made) == [".json", ".pdf", ".png"]
    result, about = results.read_result(made[-1])
    expected = look.look(networks.model, sample.image, how)
    np.testing.assert_allclose(result.scores[0], expected.lengths, rtol=1e-5)
    np.testing.assert_allclose(result.pose, expected.poses[1], rtol=1e-4, atol=1e-6)
    assert result.routing == "couplings uniform, type 0 off"
    np.testing.assert_array_equal(result.changes, changes)
    again = CliRunner().invoke(main, ["redraw", str(made[-1]), "--force", "--format", "png"])
    assert again.exit_code == 0, again.stderr
    monkeypatch.setattr(results, "draw", empty_page)
    made = files.save_routing(networks, sample, warp, look.Intervention(off=0))
    result, about = results.read_result(made[-1])
    assert about["options"]["off"] == 0 and about["analysis"] == "routing"
    np.testing.assert_allclose(result.uniform_activations, expected.lengths, rtol=1e-5)
    assert result.changed == "type 0 off"


@pytest.mark.parametrize("name", [*tracing.INTERVENTIONS, look.ANOTHER])
def test_no_figure_of_the_routing_is_made_of_replaced_couplings(networks, name):
    sample = source.Sample(networks.test_image(2, 0), 2, "drawing")
    how = look.Intervention(couplings=name, off=0, donor=(1, 0) if name == look.ANOTHER else None)
    with pytest.raises(ValueError, match=rf"^couplings {name}: [^\n]*trained or of one iteration"):
        files.save_routing(networks, sample, settings.read((*NEUTRAL, 0)).warp, how)


def test_the_figure_of_the_routing_says_what_was_changed(networks, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    drawn = results.draw
    monkeypatch.setattr(results, "draw", empty_page)
    sample, warp = (
        source.Sample(networks.test_image(2, 0), 2, "x"),
        settings.read((*NEUTRAL, 0)).warp,
    )
    for how in (look.AS_TRAINED, look.Intervention(off=1, iterations=1)):
        made = files.save_routing(networks, sample, warp, how)
        result, about = results.read_result(made[-1])
        options = {name: about["options"][name] for name in ("off", "iterations")}
        assert options == {"off": how.off, "iterations": how.iterations}
        assert "couplings" not in about["options"]
        for part in results.parts("routing", result):
            page = drawn("routing", result, part=part)
            content = [text.get_text() for text in page.findobj(Text)]
            captions = [results.caption("routing", result, part), *content]
            said = [text for text in captions if "terations: 1, type 1 off" in text]
            assert len(said) == (0 if how == look.AS_TRAINED else 2)


def test_the_sheet_of_a_pose_and_its_words_come_from_perturb(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_folder", lambda: tmp_path)
    monkeypatch.setattr("capsviz.analyses.perturb.measure.N", 10)
    opened = choice.open_choice("digits", "digits").pair("digits", "digits")
    texts = files.explain(opened, 3)
    assert len(texts) == 16 and all(text.startswith("+0.1 in class 3: ") for text in texts)
    sample = source.Sample(opened.test_image(3, 1), 3, "digits-3-1")
    made = files.save_pose(opened, sample, settings.read((*NEUTRAL, 0)).warp, 3)
    result, _ = results.read_result(made[-1])
    words = [f"+0.1 in class 3: {text}" for text in result.captions]
    assert len(words) == 6 and words == [texts[d] for d in result.dimensions]
    assert result.capsule == 3 and set(opened.effects) == {3}


@pytest.fixture
def without_mnist(tmp_path, monkeypatch):
    monkeypatch.delenv("CAPSVIZ_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.mark.skipif("mnist" not in checkpoint.shipped(), reason="no MNIST weights are here")
def test_without_mnist_the_embedded_digits_are_the_test_images(without_mnist):
    opened = choice.open_choice()
    assert opened.dataset.name == "digits" and "embedded" in opened.notice
    pair = opened.pair(opened.first, opened.beside)
    assert pair.names == ("mnist", "mnist-resnet") and pair.frame == Frame((1, 28, 28))
    with pytest.raises(ValueError, match="expected an index"):
        pair.test_image(2, 10_000)


@pytest.mark.skipif("mnist-resnet" not in checkpoint.shipped(), reason="no ResNet is here")
def test_a_network_without_capsules_cannot_be_explored(without_mnist):
    with pytest.raises(ValueError, match="'mnist-resnet' has no capsules"):
        choice.open_choice("mnist-resnet", "digits")


def test_a_port_that_is_taken_is_named():
    with socket.socket() as taken:
        taken.bind((serve.HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(main, ["explore", "--no-browser", "--port", str(port)])
    assert done.exit_code == 2 and f"port {port} of 127.0.0.1" in done.stderr
    assert "--port" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_port_0_is_a_free_one():
    with socket.socket() as probe:
        probe.bind((serve.HOST, serve.free_port(0)))


def test_without_gradio_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    done = CliRunner().invoke(main, ["explore", "--no-browser", "--port", "0"])
    assert done.exit_code == 1
    assert done.stderr == "Error: the page needs Gradio: pip install 'capsviz[app]'\n"


COMPUTING = """
import atexit, threading, time
import torch
from capsviz.explorer import serve

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
serve.end()
"""


def test_it_ends_in_order_while_a_request_is_computed():
    done = subprocess.run([sys.executable, "-c", COMPUTING], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "cleared\n", "")


def test_gradio_is_known_to_the_page_and_its_server_only():
    code = {name: path.read_text(encoding="utf-8") for name, path in MODULES.items()}
    knowing = {name for name, text in code.items() if re.search(r"^\s*import gradio", text, re.M)}
    sample = {f"capsviz.explorer.{name}" for name in ("page", "layout", "handlers")}
    assert knowing == {*sample, "capsviz.explorer.serve"}
    for name, text in code.items():
        if name.startswith("capsviz.explorer") and name not in sample:
            assert not sample & set(imports(text)), name
