"""The explorer in a browser: drawing, uploading, rotating, changing, saving, links."""

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


def test_a_two_is_drawn_rotated_changed_saved_and_cleared(visit, tmp_path):
    page = visit()
    draw(page, TWO)
    wait_for(page, lambda: predictions(page) == ["2", "2"])
    settled(page, "scores")
    places = ("images", "scores", "routed")
    before = [html_of(page, place) for place in places]
    slide(page, "warp-angle", 60, lambda: html_of(page, "scores") != before[1])
    wait_for(page, lambda: all(html_of(page, k) != b for k, b in zip(places, before, strict=True)))
    page.locator("#undo-warp").click()
    wait_for(page, lambda: html_of(page, "scores") == before[1])

    open_tab(page, "Pose")
    images = page.locator("#posed img")
    own, changed = (images.nth(k).get_attribute("src") for k in (0, 1))
    assert own == changed
    slide(page, "pose-3", 0.4, lambda: images.nth(1).get_attribute("src") != own)
    assert images.nth(0).get_attribute("src") == own
    open_tab(page, "Figure")
    found = saved(page, "view", tmp_path)
    assert page.locator("#figure img").count() == 1
    open_tab(page, "Pose")
    assert found["analysis"] == "view" and found["result"]["changes"]["data"][3] == 0.4
    assert found["result"]["networks"] == ["mnist", "mnist-resnet"]
    assert found["result"]["scores"]["data"][:10] == pytest.approx(values(page), abs=1e-4)
    page.locator("#own-pose").click()
    wait_for(page, lambda: images.nth(1).get_attribute("src") == own)

    page.get_by_role("button", name="Clear").click()
    wait_for(page, lambda: "Nothing is shown" in text(page, "images"))
    assert predictions(page) == [] and page.locator("#routed img").count() == 0
    draw(page, TWO)
    wait_for(page, lambda: predictions(page) == ["2", "2"])


def test_a_picture_is_uploaded_and_its_routing_changed(visit, tmp_path):
    page = visit()
    open_tab(page, "Upload")
    (tmp_path / "notes.txt").write_text("this is no picture")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "notes.txt")
    wait_for(page, lambda: "'notes.txt' is not a picture" in text(page, "status"))
    assert "Nothing is shown" in text(page, "images") and predictions(page) == []
    clear = "#file button[aria-label='Clear'], #file button[aria-label*='emove']"
    page.locator(clear).first.click()
    photograph = Image.new("L", (640, 480), 190)
    pen = ImageDraw.Draw(photograph)
    pen.line([(300 + x // 2, 100 + y) for x, y in SEVEN], fill=40, width=14, joint="curve")
    photograph.save(tmp_path / "seven.jpg")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "seven.jpg")
    wait_for(page, lambda: predictions(page) == ["7", "7"])
    assert text(page, "status").strip() == ""

    slide(page, "iteration", 1, lambda: "Couplings in iteration 1 of 3" in text(page, "routed"))
    page.get_by_label("one iteration").check()
    wait_for(page, lambda: "Iteration 1 of 1" in text(page, "iterations"))
    open_tab(page, "Figure")
    assert saved(page, "view", tmp_path)["options"]["iterations"] == 1
    page.get_by_label("as trained").check()
    wait_for(page, lambda: page.locator("#figure img").count() == 0)  # it was of other settings
    open_tab(page, "Routing")
    page.locator("#type-off input").click()
    page.get_by_role("option", name="4", exact=True).click()
    wait_for(page, lambda: "Ticks: routing as trained" in text(page, "scores"))


def test_a_file_above_the_size_limit_is_refused(address):
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
    wait_for(second, lambda: predictions(second)[1:] == ["7"])
    hold.touch()
    try:
        open_tab(second, "Figure")
        second.locator("#make").click()
        wait_for(second, hold.with_suffix(".waits").exists)
        before = html_of(first, "scores")
        slide(first, "warp-angle", 25, lambda: html_of(first, "scores") != before)
        assert second.locator("#files a").count() == 0
        assert predictions(second)[1] == "7"
    finally:
        hold.unlink()
    second.locator("#files a").first.wait_for()
    other.close()


def test_any_two_networks_are_chosen_and_a_link_holds_the_state(visit):
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
    assert "Iteration 2 of 2" in text(page, "iterations") and html_of(page, "scores") != before
    assert "no decoder" in text(page, "images")
    open_tab(page, "Pose")
    assert page.locator("#pose-4").is_visible() and not page.locator("#pose-5").is_visible()
    choose(page, "beside", "digits")
    wait_for(page, lambda: "digits: predicted as 2" in text(page, "scores"))
    choose(page, "first", "mnist-attention")
    wait_for(page, lambda: "mnist-attention: predicted as" in text(page, "scores"))
    assert page.locator("#pose-15").is_visible()

    page = visit()
    choose(page, "first", "digits")
    wait_for(page, lambda: "network=digits" in page.url)
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


def test_nothing_is_cut_off_and_a_wide_page_shows_all_on_one_screen(visit):
    page = visit(1400)  # 900 high
    for place in ("sheet", "images", "scores", "routed", "routing-mode", "warp-angle"):
        box = page.locator(f"#{place}").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 900, place
    for width in (1400, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert_nothing_is_cut_off(page, width)
        bars = page.locator("#scores .cv-bars").first.locator(".cv-bar")
        bars.nth(3).locator("b").evaluate("e => e.textContent = 'an automobile on a road'")
        boxes = [bars.nth(k).locator("span").bounding_box() for k in range(bars.count())]
        assert len({box["x"] for box in boxes}) == 1 and min(box["width"] for box in boxes) > 40


def test_no_file_beyond_its_own_is_served(address):
    import httpx

    for place in ("/etc/passwd", "README.md", "/proc/self/environ", "%2e%2e/%2e%2e/etc/passwd"):
        for route in ("gradio_api/file=", "file=", "gradio_api/file/", "static/", "assets/"):
            answer = httpx.get(f"{address}{route}{place}")
            assert answer.status_code in (403, 404) and "root:" not in answer.text, answer.url
    ours = httpx.get(f"{address}gradio_api/proxy=http://127.0.0.1:1/")
    assert ours.status_code in (400, 403, 404)
