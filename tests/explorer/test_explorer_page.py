"""The explorer as a visitor has it: drawing, uploading, rotating, changing, saving, links."""

from __future__ import annotations

import pytest
from helpers.explorer_visitor import (
    MARKS,
    SEVEN,
    TWO,
    assert_nothing_is_cut_off,
    choose,
    draw,
    html_of,
    open_tab,
    predictions,
    saved,
    settled,
    slide,
    text,
    values,
    wait_for,
)
from PIL import Image, ImageDraw

pytestmark = MARKS


def test_a_two_is_drawn_rotated_changed_and_saved(visit, tmp_path):
    page = visit()
    draw(page, TWO)
    settled(page, "scores")
    assert predictions(page) == ["2", "2"]
    before = [html_of(page, place) for place in ("images", "scores", "routed")]
    slide(page, "warp-angle", 60, lambda: html_of(page, "scores") != before[1])
    after = [html_of(page, place) for place in ("images", "scores", "routed")]
    assert all(a != b for a, b in zip(before, after, strict=True))
    page.locator("#undo-warp").click()
    wait_for(page, lambda: html_of(page, "scores") == before[1])

    open_tab(page, "Pose")
    images = page.locator("#posed img")
    own, changed = (images.nth(k).get_attribute("src") for k in (0, 1))
    assert own == changed
    slide(page, "pose-3", 0.4, lambda: images.nth(1).get_attribute("src") != own)
    assert images.nth(0).get_attribute("src") == own
    found = saved(page, "view", tmp_path)
    assert found["analysis"] == "view" and found["result"]["changes"]["data"][3] == 0.4
    assert found["result"]["networks"] == ["mnist", "mnist-resnet"]
    shown = values(page, "#scores")[0]
    assert found["result"]["scores"]["data"][:10] == pytest.approx(shown, abs=1e-4)
    page.locator("#own-pose").click()
    wait_for(page, lambda: images.nth(1).get_attribute("src") == own)


def test_interventions_and_iterations_change_the_routing(visit, tmp_path):
    page = visit()
    slide(page, "iteration", 1, lambda: "Couplings in iteration 1 of 3" in text(page, "routed"))
    page.get_by_label("one iteration").check()
    wait_for(page, lambda: "Iteration 1 of 1" in text(page, "routed"))
    assert saved(page, "routing", tmp_path)["options"]["iterations"] == 1
    page.get_by_label("as trained").check()
    page.locator("#type-off input").click()
    page.get_by_role("option", name="4", exact=True).click()
    wait_for(page, lambda: "Ticks: routing as trained" in text(page, "scores"))


def test_uploads_right_and_wrong(visit, tmp_path):
    page = visit()
    open_tab(page, "Upload")
    before = html_of(page, "images")
    (tmp_path / "notes.txt").write_text("this is no picture")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "notes.txt")
    wait_for(page, lambda: "'notes.txt' is not a picture" in text(page, "status"))
    assert html_of(page, "images") == before
    clear = "#file button[aria-label='Clear'], #file button[aria-label*='emove']"
    page.locator(clear).first.click()
    photograph = Image.new("L", (640, 480), 190)
    pen = ImageDraw.Draw(photograph)
    pen.line([(300 + x // 2, 100 + y) for x, y in SEVEN], fill=40, width=14, joint="curve")
    photograph.save(tmp_path / "seven.jpg")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "seven.jpg")
    wait_for(page, lambda: predictions(page) == ["7", "7"])
    assert text(page, "status").strip() == ""


def test_a_file_past_the_limit_is_refused(address):
    import httpx  # comes with Gradio

    large = {"files": ("large.png", bytes(26_500_000), "image/png")}
    assert httpx.post(f"{address}gradio_api/upload", files=large).status_code == 413


def test_visitors_do_not_see_one_another_and_do_not_wait_for_slow_requests(
    visit, browser, address, hold
):
    other = browser.new_context()  # another visitor's browser
    first = visit()
    second = visit(
        url=f"{address}?network=wrappable_capsnet-build&beside=mnist-resnet", context=other
    )
    draw(first, TWO)
    draw(second, SEVEN)
    wait_for(first, lambda: predictions(first) == ["2", "2"])
    wait_for(second, lambda: predictions(second)[1] == "7")
    hold.touch()
    try:
        second.locator("#save-routing").click()
        wait_for(second, hold.with_suffix(".waits").exists)
        before = html_of(first, "scores")
        slide(first, "warp-angle", 25, lambda: html_of(first, "scores") != before)
        assert second.locator("#files-routing a").count() == 0
        assert predictions(second)[1] == "7"
    finally:
        hold.unlink()
    second.locator("#files-routing a").first.wait_for()
    other.close()


def test_the_image_is_rotated_and_curves_follow_it(visit, tmp_path):
    page = visit()
    open_tab(page, "Rotate")
    page.locator("#rotate").click()
    frame, trace = page.locator(".cv-frame:visible"), page.locator(".cv-trace").first
    frame.wait_for()
    widths, pictures = [], []
    for _ in range(4):
        widths.append(float(trace.get_attribute("width")))
        pictures.append(frame.locator("img").get_attribute("src"))
        page.wait_for_timeout(400)
    assert widths == sorted(widths) and widths[-1] > widths[0]
    assert len(set(pictures)) > 2
    page.locator(".cv-player button").click()
    page.locator(".cv-player input").fill("36")
    assert (
        "0°: mnist: predicted as" in frame.inner_text()
        and page.locator(".cv-frame:visible").count() == 1
    )
    assert page.locator(".cv-player button").inner_text() == "Play"

    page.locator("#save-rotation").click()
    with page.expect_download() as caught:
        page.locator("#files-rotation a[download$='.gif']").first.click()
    caught.value.save_as(tmp_path / "turn.gif")
    with Image.open(tmp_path / "turn.gif") as gif:
        assert gif.n_frames >= 70  # of 73, for equal neighbours are one


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
    wait_for(page, lambda: "wrappable_capsnet-build: predicted as" in text(page, "scores"))
    assert "Iteration 2 of 2" in text(page, "routed") and html_of(page, "scores") != before
    assert "no decoder" in text(page, "images")
    open_tab(page, "Pose")
    assert page.locator("#pose-4").is_visible() and not page.locator("#pose-5").is_visible()
    choose(page, "beside", "digits")
    wait_for(page, lambda: "digits: predicted as 2" in text(page, "scores"))
    choose(page, "first", "mnist-attention")
    wait_for(page, lambda: "mnist-attention: predicted as" in text(page, "scores"))
    assert page.locator("#pose-15").is_visible()


def test_every_prepared_case_is_shown_with_its_question_also_by_a_link(visit):
    page, questions = visit(), set()
    slider = page.locator("#warp-angle input[type=number]")
    open_tab(page, "Cases")
    for key in ("4-or-9", "two-digits", "upside-down", "shoe", "easy"):
        angle = "180" if key == "upside-down" else "0"
        page.locator(f"[data-case='{key}']").click()
        wait_for(page, lambda name: f"case={name}" in page.url, key)
        wait_for(page, lambda value: slider.input_value() == value, angle)
        questions.add(text(page, "status"))
        if key == "shoe":
            assert "Unlike the training data" in text(page, "images")
        if key == "upside-down":
            wait_for(page, lambda: "angle=180" in page.url)
            other = visit(url=page.url)
            wait_for(other, lambda visitor: text(visitor, "status") == text(page, "status"), other)
    assert len(questions) == 5 and all(one.strip().endswith("?") for one in questions)


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_and_no_panel_is_empty(visit, width):
    assert_nothing_is_cut_off(visit(width), width)


def test_a_link_holds_the_state(visit):
    page = visit()
    choose(page, "first", "digits")
    wait_for(page, lambda: "digits: predicted as" in text(page, "scores"))
    draw(page, TWO)
    settled(page, "scores")
    before = html_of(page, "scores")
    slide(page, "warp-angle", 35, lambda: html_of(page, "scores") != before)
    page.get_by_label("couplings shuffled").check()
    wait_for(page, lambda: "shuffled" in page.url)
    parts = settled(page, "images", "scores", "routed")
    assert "network=digits" in page.url and "angle=35" in page.url and "ink=" in page.url
    other = visit(url=page.url)
    wait_for(other, lambda: "Ticks" in text(other, "scores"))
    assert settled(other, "images", "scores", "routed") == parts
    assert other.get_by_label("couplings shuffled").is_checked()
    assert other.locator("#warp-angle input[type=number]").input_value() == "35"


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
