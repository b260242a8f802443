"""What the page in class rests on, without a browser: links, cases, choice, sides, turning."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest
import torch
from conftest import build_strong
from helpers import wrappable_capsnet as gray

from capsviz import checkpoint, tracing
from capsviz.analyses import rotate
from capsviz.data import Dataset
from capsviz.explorer import cases, choice, link, look, network, pair, settings, sides, turning

NEUTRAL = [0, 1, 0, 0, 0, "as trained", -1, -1, 3, -1, 2, 0, 0, 0, 0]
LIMITS = {"classes": 3, "types": 2, "iterations": 3}


@pytest.fixture
def networks(tiny_images):
    model, other = build_strong(), build_strong(iterations=1)
    model.card, other.card = {"name": "strong"}, {"name": "once"}
    images = (tiny_images * 255).byte()
    part = Dataset(images, torch.arange(8) % 3, ("a", "b", "c"), "made-up", "test")
    return network.Networks(model, other, ("a", "b", "c"), part, ("strong", "once"))


def test_a_link_says_what_is_set_and_gives_it_back():
    values = [-30, 1.25, 0, 4, 0, "couplings uniform", 1, 2, 1, 0, 1, 7, 0.25, 0, -0.5]
    text = link.query(("one", "two"), {"case": "shoe"}, values, NEUTRAL)
    told = link.parse(f"?{text}")
    assert (told["network"], told["beside"], told["case"]) == ("one", "two", "shoe")
    assert "shear" not in told and "d1" not in told
    assert link.values_of(told, NEUTRAL, **LIMITS) == (values, [])
    plain = link.query(("one", "two"), {}, NEUTRAL, NEUTRAL)
    assert link.values_of(link.parse(plain), NEUTRAL, **LIMITS) == (NEUTRAL, [])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("angle", "1e9"), ("angle", "nan"), ("scale", "x"), ("routing", "magic"), ("off", "2"),
        ("iteration", "4"), ("map", "3"), ("donor", "-1"), ("d0", "0.6"),
    ],
)  # fmt: skip
def test_what_cannot_be_had_in_a_link_is_named_and_left_out(name, value):
    assert link.values_of({name: value}, NEUTRAL, **LIMITS) == (NEUTRAL, [name])


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 30)])
def test_an_image_goes_through_a_link_unchanged(shape, generator):
    image = torch.randint(256, (1, *shape), generator=generator) / 255
    text = link.packed(image)
    assert re.fullmatch(r"[\w-]+", text)
    torch.testing.assert_close(link.unpacked(text, shape), image, rtol=0, atol=1e-6)
    with pytest.raises(ValueError, match="not of this network's size"):
        link.unpacked(text, (1, 5, 5))


@pytest.mark.parametrize("text", ["", "x", "<script>", "aGVsbG8", "A" * 300])
def test_what_is_no_image_in_a_link_is_refused(text):
    with pytest.raises(ValueError, match="no image that can be read"):
        link.unpacked(text, (1, 28, 28))


def test_an_overlong_link_is_not_read():
    assert link.parse("angle=3&ink=" + "A" * 20_000) == {}


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


def test_three_couplings_stand_side_by_side(networks):
    chosen = settings.read((*NEUTRAL[:10], 1, 0, *[0] * 6))
    image, donor = networks.test_image(0, 0), networks.test_image(1, 0)
    html = sides.compared(networks, image, chosen)
    parts = re.split(r'<section class="cv-side"', html)[1:]
    assert [re.search(r'data-couplings="(\w+)"', part)[1] for part in parts] == [
        "trained", "uniform", "transplanted"
    ]  # fmt: skip
    for part, couplings in zip(parts, (None, "uniform", look.ANOTHER), strict=True):
        how = look.Intervention(couplings=couplings)
        expected = look.look(networks.model, image, how, donor).lengths
        bars = re.findall(r'data-value="([\d.]+)"', part)
        np.testing.assert_allclose(np.array(bars, float), expected, atol=1e-4)
        assert ("Ticks: as trained." in part) == (couplings is not None)
    scales = [re.search(r">−(\d+\.\d+)<", part)[1] for part in parts]
    assert len(set(scales)) == 1 and float(scales[0]) > 0  # maps can be compared
    with pytest.raises(ValueError, match="expected an index"):
        sides.compared(networks, image, chosen._replace(donor=(1, 50)))


def test_two_networks_stand_side_by_side_on_the_same_image(networks):
    image = networks.test_image(0, 0)
    html = pair.compared(networks, image)
    parts = re.split(r'<section class="cv-both"', html)[1:]
    assert [re.search(r'data-network="([^"]+)"', part)[1] for part in parts] == list(networks.names)
    for part, model in zip(parts, (networks.model, networks.other), strict=True):
        bars = np.array(re.findall(r'data-value="([\d.]+)"', part), float)
        np.testing.assert_allclose(bars, tracing.scores(model, image)[0], atol=1e-4)
        assert ("routing" in part) and ("effective parents" in part) == hasattr(model, "look")
    assert "Dynamic routing by agreement" in parts[0]
    assert html in sides.compared(networks, image, settings.read((*NEUTRAL[:10], 1, 0, *[0] * 6)))


def test_the_player_has_a_frame_for_each_angle_with_both_answers(networks):
    image = networks.test_image(0, 0)
    html = turning.played(networks, image)
    result = turning.turned(networks, image, 0)
    assert html.count('class="cv-panel cv-frame"') == len(result.angles_deg) == 73
    assert isinstance(result, rotate.Result) and html.count('class="cv-trace"') == 2
    k = int(np.argmin(abs(result.angles_deg - 90)))
    name = result.classes[result.predicted[k]]
    assert f"90°: strong sees {name} ({result.lengths[k].max():.2f}); once sees" in html
    points = re.findall(r'<polyline points="([^"]+)"', html)
    assert len(points) == 6 and all(len(one.split()) == 73 for one in points)


def test_cases_are_five_for_digits_and_two_for_other_images(networks):
    assert [case.key for case in cases.prepared(networks)] == ["easy", "upside-down"]
    opened = choice.open_choice("digits", "digits")
    five = cases.prepared(opened.pair("digits", "digits"))
    assert [case.key for case in five] == [
        "easy", "4-or-9", "two-digits", "upside-down", "shoe"
    ]  # fmt: skip
    for case in five:
        assert case.image.shape == (1, 1, 28, 28) and 0.5 < case.image.max() <= 1
        assert case.question.endswith("?")


def test_all_shipped_networks_for_the_same_images_can_be_chosen():
    opened = choice.open_choice("digits")
    fitting = {"mnist", "digits", "mnist-attention", "mnist-resnet"} & set(checkpoint.shipped())
    assert fitting <= set(opened.names) and "multimnist" not in opened.names
    assert "mnist-resnet" not in opened.capsule_names
    assert opened.pair("digits", "digits") is opened.pair("digits", "digits")
    with pytest.raises(ValueError, match="'mnist-resnet' has no capsules"):
        opened.pair("mnist-resnet", "digits")
    with pytest.raises(ValueError, match="no network 'nobody' here"):
        opened.pair("nobody", "digits")


def test_ones_own_networks_come_first_and_may_be_two():
    spec = f"{gray.__file__}:build"
    opened = choice.open_choice(network=(spec,), dataset="digits")
    assert opened.first == "wrappable_capsnet-build" and opened.dimensions == 16
    pair = opened.pair(opened.first, "digits")
    assert type(pair.model.network).__name__ == "Gray" and pair.about[::2] == (2, 5)
    twice = choice.open_choice("digits", network=(spec, spec))
    assert (twice.first, twice.beside) == ("digits", "wrappable_capsnet-build")
    assert "wrappable_capsnet-build (2)" in twice.names


def test_a_run_of_ones_own_is_not_called_as_the_shipped_weights(tmp_path):
    for folder in ("nod", "other/nod"):
        (tmp_path / folder).mkdir(parents=True)
        for suffix in (".json", ".safetensors"):
            file = checkpoint.find("digits").with_suffix(suffix)
            shutil.copy(file, tmp_path / folder / file.name)
    opened = choice.open_choice(str(tmp_path / "nod"))
    assert opened.first == "digits (nod)" and opened.names.count("digits") == 1
    pair = opened.pair(opened.first, "digits")
    assert pair.names == ("digits (nod)", "digits") and pair.inputs.name == "digits (nod)"
    assert pair.model is not pair.other is opened.pair("digits", "digits").model
    runs = [str(tmp_path / folder) for folder in ("nod", "other/nod")]
    opened = choice.open_choice(*runs)
    assert [opened.first, opened.beside] == [f"digits ({run})" for run in runs]
    opened = choice.open_choice(runs[0], runs[0])
    assert [opened.first, opened.beside] == [f"digits ({runs[0]})", f"digits ({runs[0]}) (2)"]
    opened = choice.open_choice(str(checkpoint.find("digits")))  # the shipped file itself
    assert opened.first == "digits" and opened.names.count("digits") == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weights": ("x.pt",)}, "name one for each"),
        ({"dataset": "digits"}, "--dataset: only where the first network is your own"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        choice.open_choice("digits", **options)


def test_what_is_cleared_leaves_no_panel_and_keeps_what_is_set():
    pytest.importorskip("gradio", reason="the page needs Gradio: pip install 'capsviz[app]'")
    from capsviz.explorer.handlers import PANELS, Handlers

    opened = choice.open_choice("digits", "digits")
    handlers = Handlers(opened, {})
    handlers.neutral = [*NEUTRAL[:12], *[0] * 16]
    values = [40, *handlers.neutral[1:]]
    image, scores, *others, _, last, query = handlers.show(None, "digits", "digits", True, *values)
    assert "Nothing is shown" in image and scores == "" and len(others) == PANELS - 5 and last == 3
    assert all("<img" not in part for part in others)
    assert link.parse(query) == {"network": "digits", "beside": "digits", "angle": "40"}
    sample = handlers.test_image(opened.pair("digits", "digits"), 2, 1)
    full = handlers.show(sample, "digits", "digits", True, *values)
    assert link.parse(full[-1])["digit"] == "2" and "<img" in full[0]


def test_a_donor_that_is_not_there_leaves_no_panel_of_another_image_or_setting():
    handlers = pytest.importorskip("capsviz.explorer.handlers", reason="the page needs Gradio")
    opened = choice.open_choice("digits", "digits")
    page = handlers.Handlers(opened, {})
    page.neutral = [*NEUTRAL[:12], *[0] * 16]
    pair = ("digits", "digits")
    sample = page.test_image(opened.pair(*pair), 4, 2)
    absent = list(page.neutral)
    absent[5], absent[11] = f"couplings {look.ANOTHER}", 999
    plain = page.show(sample, *pair, True, *page.neutral)
    shown = page.show(sample, *pair, True, *absent)
    said = "expected an index from 0 to 34, got 999"
    assert shown[0] == plain[0] and shown[4:7] == plain[4:7]  # images, pose, its class, iterations
    for place in (1, 2):
        assert said in shown[place] and shown[place].endswith(plain[place])
        assert "as trained" in shown[place].removesuffix(plain[place])
    assert said in shown[3] and "<img" not in shown[3]
    assert link.parse(shown[7])["donor-index"] == "999"
    absent[5] = "as trained"  # the tab side by side has another image, too
    shown = page.show(sample, *pair, True, *absent)
    assert said in shown[3] and shown[:3] == plain[:3]
    arrived = page.arrive("?digit=4&index=2&routing=couplings+of+another+image&donor-index=999",
                          None, *pair, False, *page.neutral)  # fmt: skip
    assert all("<img" in panel for panel in (arrived[-8], arrived[-6], arrived[-4]))


def test_a_link_to_a_case_asks_its_question():
    handlers = pytest.importorskip("capsviz.explorer.handlers", reason="the page needs Gradio")
    opened = choice.open_choice("digits", "digits")
    known = {case.key: case for case in cases.prepared(opened.pair("digits", "digits"))}
    page = handlers.Handlers(opened, known)
    page.neutral = [*NEUTRAL[:12], *[0] * 16]

    def status(link_text):
        return page.arrive(link_text, None, "digits", "digits", False, *page.neutral)[1]

    assert known["shoe"].question in status("?case=shoe")
    assert known["easy"].question in status("?case=easy&angle=1e9")
    assert "angle cannot be had" in status("?case=easy&angle=1e9")
    assert status("?digit=3&index=1") == ""
    assert "no case &#x27;none&#x27;" in status("?case=none") and "?" not in status("?case=none")
