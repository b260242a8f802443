"""The explorer in class: play, cases, networks, side by side, links, a telephone."""

from __future__ import annotations

import re

import pytest
from helpers.explorer_visitor import (
    MARKS,
    TWO,
    assert_nothing_is_cut_off,
    draw,
    html_of,
    predictions,
    settled,
    slide,
    wait_for,
)
from PIL import Image

pytestmark = MARKS
TABS = ("Routing", "Side by side", "Play", "Pose")


def choose(page, name, option):
    page.locator(f"#{name} input").click()
    page.locator(f"#{name}").get_by_role("option", name=option, exact=True).click()


def values(page, place):
    """What the bars of each network or column say."""
    sections = page.locator(f"{place} .cv-bars")
    return [
        [float(bar.get_attribute("data-value")) for bar in sections.nth(k).locator(".cv-bar").all()]
        for k in range(sections.count())
    ]


def text(page, place):
    return page.locator(f"#{place}").inner_text()


def open_tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def test_the_image_turns_and_curves_follow_it(visit, tmp_path):
    page = visit()
    open_tab(page, "Play")
    page.locator("#turn").click()
    frame, trace = page.locator(".cv-frame:visible"), page.locator(".cv-trace").first
    frame.wait_for()
    widths, pictures = [], []
    for _ in range(4):
        widths.append(float(trace.get_attribute("width")))
        pictures.append(frame.locator("img").get_attribute("src"))
        page.wait_for_timeout(700)
    assert widths == sorted(widths) and widths[-1] > widths[0]
    assert len(set(pictures)) > 2
    page.locator(".cv-player button").click()
    page.locator(".cv-player input").fill("36")
    assert "0°: mnist sees" in frame.inner_text() and page.locator(".cv-frame:visible").count() == 1
    assert page.locator(".cv-player button").inner_text() == "Play"

    page.locator("#save-turn").click()
    with page.expect_download() as caught:
        page.locator("#files-turn a[download$='.gif']").first.click()
    caught.value.save_as(tmp_path / "turn.gif")
    with Image.open(tmp_path / "turn.gif") as gif:
        assert gif.n_frames >= 70  # of 73, for equal neighbours are one


def test_routing_is_played_iteration_by_iteration(visit):
    page = visit()
    page.evaluate(
        "() => { window.told = []; new MutationObserver(() => { "
        "const m = document.querySelector('#routed').innerText.match(/Iteration (\\d) of 3/); "
        "if (m && told.at(-1) !== m[1]) told.push(m[1]); })"
        ".observe(document.querySelector('#routed'), {childList: true, subtree: true}); }"
    )
    page.locator("#play-iterations").click()
    wait_for(page, lambda: page.evaluate("told.join('')").endswith("123"))
    page.wait_for_timeout(2500)
    assert page.evaluate("told.join('')").endswith("123")  # it stops there


def test_almost_uniform_couplings_are_said_to_be_so_where_they_are(visit):
    page = visit()
    assert "Almost uniform: a capsule feeds" in text(page, "routed")
    slide(page, "iteration", 1, lambda: "Iteration 1 of 3" in text(page, "routed"))
    assert "Uniform: every capsule gives every class the same." in text(page, "routed")
    choose(page, "first", "mnist-attention")
    wait_for(page, lambda: "mnist-attention sees" in text(page, "scores"))
    near = page.locator("#routed .cv-near").count()
    effective = float(page.locator("#routed .cv-now td").nth(2).inner_text())
    assert near == (effective >= 9)


def test_trained_uniform_and_transplanted_stand_side_by_side(visit):
    page = visit()
    trained = values(page, "#scores")[0]
    open_tab(page, "Side by side")
    wait_for(page, lambda: page.locator("#sides .cv-side").count() == 3)
    beside = values(page, "#sides .cv-side")
    assert beside[0] == trained and beside[1] != trained and beside[2] not in beside[:2]
    open_tab(page, "Routing")
    for k, name in ((1, "couplings uniform"), (2, "couplings of another image")):
        before = html_of(page, "scores")
        page.get_by_label(name).check()
        wait_for(page, lambda was=before: html_of(page, "scores") != was)
        settled(page, "scores")
        assert values(page, "#scores")[0] == beside[k]
    choose(page, "donor", "7")
    wait_for(page, lambda: values(page, "#sides .cv-side")[2] != beside[2])
    assert values(page, "#sides .cv-side")[:2] == beside[:2]


def test_any_two_networks_are_chosen_on_the_page(visit):
    page = visit()
    page.locator("#first input").click()
    offered = page.get_by_role("option").all_inner_texts()
    assert {"mnist", "digits", "mnist-attention", "wrappable_capsnet-build"} <= {
        o.strip(" ✓\n") for o in offered
    }
    assert "mnist-resnet" not in offered
    page.locator("h2").click()
    before = html_of(page, "scores")
    choose(page, "first", "wrappable_capsnet-build")
    wait_for(page, lambda: "wrappable_capsnet-build sees" in text(page, "scores"))
    assert "iteration 2 of 2" in text(page, "routed") and html_of(page, "scores") != before
    assert "no decoder" in text(page, "images")
    open_tab(page, "Pose")
    assert page.locator("#pose-4").is_visible() and not page.locator("#pose-5").is_visible()
    choose(page, "beside", "digits")
    wait_for(page, lambda: "digits sees 2" in text(page, "scores"))
    choose(page, "first", "mnist-attention")
    wait_for(page, lambda: "mnist-attention sees" in text(page, "scores"))
    assert page.locator("#pose-15").is_visible()


def test_every_prepared_case_is_shown_with_its_question_also_by_a_link(visit):
    page = visit()
    open_tab(page, "Cases")
    told = set()
    for key in ("4-or-9", "two-digits", "upside-down", "shoe", "easy"):
        before = html_of(page, "images")
        page.locator(f"[data-case='{key}']").click()
        wait_for(page, lambda was=before: html_of(page, "images") != was)
        settled(page, "scores")
        told.add(text(page, "status"))
        angle = page.locator("#warp-angle input[type=number]").input_value()
        assert angle == ("180" if key == "upside-down" else "0"), key
        if key == "shoe":
            assert "Unlike the training data" in text(page, "images")
        if key == "upside-down":
            wait_for(page, lambda: "case=upside-down" in page.url and "angle=180" in page.url)
            link, question = page.url, text(page, "status")
    assert len(told) == 5 and all(one.strip().endswith("?") for one in told)
    other = visit(url=link)
    wait_for(other, lambda: text(other, "status") == question)


def test_nothing_is_cut_off_and_no_panel_is_empty(looked_at):
    assert_nothing_is_cut_off(looked_at, 1280)


def test_every_panel_has_a_sentence_below_it(looked_at):
    page = looked_at
    for tab in TABS:
        open_tab(page, tab)
        if tab == "Play":
            page.locator("#turn").click()
            page.locator(".cv-frame:visible").wait_for()
        if tab == "Side by side":
            page.locator("#sides .cv-side").first.wait_for()
        bare = page.evaluate(
            "[...document.querySelectorAll('.cv-panel, .cv-bars')]"
            ".filter(e => e.offsetParent)"
            ".map(e => e.querySelector(':scope > figcaption, :scope > p')?.innerText || '')"
            ".filter(t => !t.trim().endsWith('.') || t.trim().split(' ').length < 4)"
        )
        assert bare == [], tab


def test_a_link_holds_the_state(visit):
    page = visit()
    choose(page, "first", "digits")
    wait_for(page, lambda: "digits sees" in text(page, "scores"))
    draw(page, TWO)
    settled(page, "scores")
    before = html_of(page, "scores")
    slide(page, "warp-angle", 35, lambda: html_of(page, "scores") != before)
    page.get_by_label("couplings shuffled").check()
    wait_for(page, lambda: "shuffled" in page.url)
    parts = [settled(page, place) for place in ("images", "scores", "routed")]
    assert "network=digits" in page.url and "angle=35" in page.url and "ink=" in page.url
    other = visit(url=page.url)
    wait_for(other, lambda: "ticks" in text(other, "scores"))
    assert [settled(other, place) for place in ("images", "scores", "routed")] == parts
    assert other.get_by_label("couplings shuffled").is_checked()
    assert other.locator("#warp-angle input[type=number]").input_value() == "35"


def test_a_link_that_is_wrong_says_so_and_shows_the_rest(visit, address):
    wrong = "?network=nobody&angle=1e9&routing=magic&digit=3&index=2&ink=%3Cscript%3E"
    page = visit(url=address + wrong)
    wait_for(page, lambda: "nobody" in text(page, "status"))
    told = text(page, "status")
    assert "angle" in told and "routing" in told and "no image" in told
    assert "mnist sees" in text(page, "scores")


def test_on_a_telephone_nothing_is_cut_off_and_what_is_turned_stays_in_sight(visit):
    page = visit(390)
    assert_nothing_is_cut_off(page, 390)
    open_tab(page, "Routing")

    def in_sight(place):
        box = page.locator(place).bounding_box()
        return box["y"] >= -1 and box["y"] + box["height"] <= 900

    for name, value in (("warp-down", 3), ("warp-angle", 40)):
        slider = page.locator(f"#{name} input[type=number]")
        slider.scroll_into_view_if_needed()
        page.mouse.wheel(0, 150)
        before = html_of(page, "images")
        slide(page, name, value, lambda was=before: html_of(page, "images") != was)
        assert in_sight("#images img >> nth=0") and in_sight("#scores .cv-bars >> nth=1"), name
    open_tab(page, "Pose")
    page.locator("#pose-12").scroll_into_view_if_needed()
    assert in_sight("#posed img >> nth=1")
    stuck = page.locator("#posed").bounding_box()
    assert stuck["height"] < 450  # and leaves room for what it is turned by


def test_clear_clears(visit):
    page = visit()
    draw(page, TWO)
    wait_for(page, lambda: predictions(page) == ["2", "2"])
    page.get_by_role("button", name="Clear").click()
    wait_for(page, lambda: "Nothing is shown" in text(page, "images"))
    assert predictions(page) == [] and page.locator("#routed img").count() == 0
    assert text(page, "status").strip() == ""
    assert page.evaluate(
        "document.querySelector('#sheet canvas').getContext('2d')"
        ".getImageData(0, 0, 280, 280).data.every(v => v === 0)"
    )
    draw(page, TWO)
    wait_for(page, lambda: predictions(page) == ["2", "2"])


def test_a_picture_of_almost_25_megabytes_is_taken(visit, tmp_path):
    page = visit()
    open_tab(page, "Upload")
    path = tmp_path / "large.bmp"
    picture = Image.new("RGB", (2800, 2800), "white")
    picture.paste("black", (1300, 600, 1500, 2200))
    picture.save(path)
    assert 23_000_000 < path.stat().st_size < 25_000_000
    page.locator("#file input[type=file]").set_input_files(path)
    wait_for(page, lambda: predictions(page)[1:] == ["1"])


def test_buttons_are_quiet(looked_at):
    page = looked_at
    for tab in TABS:
        open_tab(page, tab)
        loud = page.evaluate(
            "[...document.querySelectorAll('button.cv-quiet')].filter(e => e.offsetParent)"
            ".filter(e => e.offsetWidth > 330 || e.offsetHeight > 40 || "
            "!/rgba\\(.*, 0\\)|transparent/.test(getComputedStyle(e).backgroundColor))"
            ".map(e => e.innerText)"
        )
        assert loud == [], tab
    assert page.locator("button.cv-quiet").count() >= 8
    assert not re.search("primary", " ".join(
        button.get_attribute("class") or "" for button in page.locator("button").all()
    ))  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_on_a_light_page_and_on_a_dark_one(looked_at, scheme):
    page = looked_at
    page.emulate_media(color_scheme=scheme)
    is_dark = "document.body.classList.contains('dark')"
    wait_for(page, lambda: page.evaluate(is_dark) == (scheme == "dark"))
    faint = """() => {
          const shine = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => {
            v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const ground = shine(getComputedStyle(document.body).backgroundColor);
          return [...document.querySelectorAll('.cv-note, .cv-bars, figcaption')]
            .filter(e => e.offsetParent).map(e => shine(getComputedStyle(e).color))
            .map(l => (Math.max(l, ground) + 0.05) / (Math.min(l, ground) + 0.05))
            .filter(contrast => contrast < 4.5).length;
        }"""
    wait_for(page, lambda: page.evaluate(faint) == 0)  # colours fade from one scheme to the other
