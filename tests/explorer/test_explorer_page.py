"""The explorer as a visitor has it: drawing, uploading, turning, changing, saving."""

from __future__ import annotations

import pytest
from helpers.explorer_visitor import (
    MARKS,
    SEVEN,
    TWO,
    draw,
    html_of,
    predictions,
    saved,
    settled,
    slide,
    wait_for,
)
from PIL import Image, ImageDraw

pytestmark = MARKS


def test_a_two_is_drawn_turned_changed_and_saved(visit, tmp_path):
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

    page.get_by_role("tab", name="Pose").click()
    wait_for(page, lambda: "in class 2:" in page.locator("#pose-0").inner_text())
    images = page.locator("#posed img")
    own, changed = (images.nth(k).get_attribute("src") for k in (0, 1))
    assert own == changed
    slide(page, "pose-3", 0.4, lambda: images.nth(1).get_attribute("src") != own)
    assert images.nth(0).get_attribute("src") == own
    found = saved(page, "view", tmp_path)
    assert found["analysis"] == "view" and found["result"]["changes"]["data"][3] == 0.4
    assert found["result"]["networks"] == ["mnist", "mnist-resnet"]
    shown = page.locator("#scores .cv-bars").first.locator(".cv-bar")
    values = [float(shown.nth(k).get_attribute("data-value")) for k in range(10)]
    assert found["result"]["scores"]["data"][:10] == pytest.approx(values, abs=1e-4)
    page.locator("#own-pose").click()
    wait_for(page, lambda: images.nth(1).get_attribute("src") == own)


def test_interventions_and_iterations_change_the_routing(visit, tmp_path):
    page = visit()
    before = html_of(page, "routed"), html_of(page, "scores")
    slide(page, "iteration", 1, lambda: html_of(page, "routed") != before[0])
    assert "Couplings in iteration 1 of 3" in page.locator("#routed").inner_text()
    page.get_by_label("couplings uniform").check()
    wait_for(page, lambda: "ticks: routing as trained" in page.locator("#scores").inner_text())
    assert html_of(page, "scores") != before[1]
    page.get_by_label("one iteration").check()
    wait_for(page, lambda: "iteration 1 of 1" in page.locator("#routed").inner_text())
    assert saved(page, "routing", tmp_path)["options"]["iterations"] == 1
    page.get_by_label("as trained").check()
    page.locator("#type-off input").click()
    page.get_by_role("option", name="4", exact=True).click()
    wait_for(page, lambda: "ticks" in page.locator("#scores").inner_text())


def test_uploads_right_and_wrong(visit, tmp_path):
    page = visit()
    page.get_by_role("tab", name="Upload").click()
    before = html_of(page, "images")
    (tmp_path / "notes.txt").write_text("this is no picture")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "notes.txt")
    wait_for(page, lambda: "'notes.txt' is not a picture" in page.locator("#status").inner_text())
    assert html_of(page, "images") == before
    page.locator(
        "#file button[aria-label='Clear'], #file button[aria-label*='emove']"
    ).first.click()
    photograph = Image.new("L", (640, 480), 190)
    pen = ImageDraw.Draw(photograph)
    pen.line([(300 + x // 2, 100 + y) for x, y in SEVEN], fill=40, width=14, joint="curve")
    photograph.save(tmp_path / "seven.jpg")
    page.locator("#file input[type=file]").set_input_files(tmp_path / "seven.jpg")
    wait_for(page, lambda: predictions(page) == ["7", "7"])
    assert page.locator("#status").inner_text().strip() == ""


def test_a_file_past_the_limit_is_refused(visit, address, tmp_path):
    import httpx  # comes with Gradio

    page = visit()
    page.get_by_role("tab", name="Upload").click()
    (tmp_path / "large.png").write_bytes(bytes(26_500_000))
    page.locator("#file input[type=file]").set_input_files(tmp_path / "large.png")
    page.get_by_text("exceed the maximum").first.wait_for()
    page.get_by_role("tab", name="Draw").click()
    draw(page, SEVEN)
    wait_for(page, lambda: predictions(page)[1] == "7")
    large = {"files": ("large.png", bytes(26_500_000), "image/png")}
    answer = httpx.post(f"{address}gradio_api/upload", files=large)
    assert answer.status_code == 413  # nor by another way than the page


def test_a_test_image_by_class_and_number(visit):
    page = visit()
    page.get_by_role("tab", name="Test image").click()
    assert "embedded 'digits'" in page.get_by_role("tabpanel").first.inner_text()
    before = html_of(page, "images")
    slide(page, "index", 3, lambda: html_of(page, "images") != before)
    assert "True class: 2" in page.locator("#scores").inner_text()
    slide(page, "index", 5000, lambda: "expected an index" in page.locator("#status").inner_text())


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
