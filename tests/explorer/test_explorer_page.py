"""The explorer as a visitor has it: a real browser, offline, with what comes with capsviz alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
from PIL import Image, ImageDraw

from capsviz import checkpoint

pytest.importorskip("gradio", reason="the page needs Gradio: pip install 'capsviz[app]'")
playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright is here")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is here: apt-get install chromium"),
    pytest.mark.skipif(
        not {"mnist", "mnist-resnet"} <= set(checkpoint.shipped()), reason="no MNIST weights"
    ),
]
QUIET = (  # a browser that calls nobody
    "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync"
)
TWO = (  # on a sheet of 280 x 280
    (85, 95), (95, 65), (130, 50), (170, 60), (185, 95), (165, 140), (125, 185), (85, 225),
    (140, 222), (205, 218),
)  # fmt: skip
SEVEN = ((75, 60), (200, 60), (160, 140), (120, 230))
PATIENCE_MS = 30_000  # on a machine that is busy with other things


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Where `capsviz explore` serves its page; it must end at Ctrl+C without a traceback."""
    home = tmp_path_factory.mktemp("home")
    env = {k: v for k, v in os.environ.items() if k != "CAPSVIZ_DATA"}
    env |= {"XDG_CACHE_HOME": str(home), "GRADIO_TEMP_DIR": str(home / "gradio")}
    (home / "tmp").mkdir()
    env["TMPDIR"] = str(home / "tmp")
    command = [sys.executable, "-m", "capsviz", "explore", "--no-browser", "--port", "0"]
    with (home / "err").open("w") as errors:
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)  # one that is ignored is
        server = subprocess.Popen(  # ignored by what is started, too
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=errors
        )
        signal.signal(signal.SIGINT, ours)
    try:
        line = server.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/) \(Ctrl\+C ends it\)", line)
        assert found, line + (home / "err").read_text()
        yield found[1]
    finally:
        server.send_signal(signal.SIGINT)
        try:
            assert server.wait(20) == 0
        finally:
            server.kill()
            server.stdout.close()
    assert not list((home / "tmp").glob("capsviz-*"))  # figures that were made
    said = (home / "err").read_text()
    assert "embedded 'digits'" in said and "Traceback" not in said, said


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(
            executable_path=CHROMIUM, args=[f"--{flag}" for flag in QUIET.split()]
        )
        yield opened
        opened.close()


@pytest.fixture
def visit(browser, address):
    """Open the page as another visitor; whatever is asked of another address is refused."""
    asked, contexts = [], []

    def guard(route):
        url = route.request.url
        if url.startswith((address, "data:", "blob:")):
            return route.continue_()
        asked.append(url)
        return route.abort()

    def open_page(width=1280):
        context = browser.new_context(viewport={"width": width, "height": 900})
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.route("**/*", guard)
        page.on("pageerror", lambda error: asked.append(str(error)))
        page.goto(address)
        page.wait_for_selector("#routed .cv-map")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert asked == []


def draw(page, points):
    """Draw with the mouse, on a sheet of whatever size it is shown."""
    sheet = page.locator("#sheet canvas")
    sheet.scroll_into_view_if_needed()
    box = sheet.bounding_box()
    places = [(box["x"] + x * box["width"] / 280, box["y"] + y * box["height"] / 280)
              for x, y in points]  # fmt: skip
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=3)
    page.mouse.up()


def slide(page, name, value, until):
    """Set a number until it tells: a panel just opened may forget what is typed into it."""
    box = page.locator(f"#{name} input[type=number]")

    def told():
        box.fill(str(value))
        box.press("Enter")
        for _ in range(60):
            if until():
                return True
            page.wait_for_timeout(50)
        return False

    wait_for(page, told)


def predictions(page):
    bars = page.locator("#scores .cv-bars")
    return [bars.nth(k).get_attribute("data-predicted") for k in range(bars.count())]


def html_of(page, place):
    return page.locator(f"#{place} .cv-row").first.inner_html()


def wait_for(page, condition, *given):
    """Until the condition holds, letting the page go on meanwhile."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not condition(*given):
        assert time.monotonic() < end, f"never: {condition}"
        page.wait_for_timeout(50)


def settled(page, place):
    """The HTML of a panel, once it has stopped changing."""
    before = None
    while before != (now := html_of(page, place)):
        before = now
        page.wait_for_timeout(700)
    return now


def saved(page, name, folder):
    """Ask for a figure and download its JSON."""
    page.locator(f"#save-{name}").click()
    link = page.locator(f"#files-{name} a[download$='.json']").first
    with page.expect_download() as caught:
        link.click()
    path = folder / caught.value.suggested_filename
    caught.value.save_as(path)
    return json.loads(path.read_text())


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
    page = visit()
    page.get_by_role("tab", name="Upload").click()
    (tmp_path / "large.png").write_bytes(bytes(11_000_000))
    page.locator("#file input[type=file]").set_input_files(tmp_path / "large.png")
    page.get_by_text("exceed the maximum").first.wait_for()
    page.get_by_role("tab", name="Draw").click()
    draw(page, SEVEN)
    wait_for(page, lambda: predictions(page)[1] == "7")
    large = {"name": "large.png", "mimeType": "image/png", "buffer": bytes(11_000_000)}
    answer = page.request.post(f"{address}gradio_api/upload", multipart={"files": large})
    assert answer.status == 413  # nor by another way than the page


def test_a_test_image_by_class_and_number(visit):
    page = visit()
    page.get_by_role("tab", name="Test image").click()
    assert "embedded 'digits'" in page.get_by_role("tabpanel").first.inner_text()
    before = html_of(page, "images")
    slide(page, "index", 3, lambda: html_of(page, "images") != before)
    assert "True class: 2" in page.locator("#scores").inner_text()
    slide(page, "index", 5000, lambda: "expected an index" in page.locator("#status").inner_text())


def test_visitors_do_not_see_one_another_and_do_not_wait_for_slow_requests(visit):
    first, second = visit(), visit()
    draw(first, TWO)
    draw(second, SEVEN)
    wait_for(first, lambda: predictions(first) == ["2", "2"])
    wait_for(second, lambda: predictions(second)[1] == "7")
    second.get_by_role("tab", name="Pose").click()
    second.locator("#save-pose").click()  # takes seconds
    before = html_of(first, "scores")
    slide(first, "warp-angle", 25, lambda: html_of(first, "scores") != before)
    assert second.locator("#files-pose a").count() == 0
    assert predictions(second)[1] == "7"
    second.locator("#files-pose a").first.wait_for()


@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_cut_off_and_no_panel_is_empty(visit, width, tmp_path):
    page = visit(width)
    for tab in ("Routing", "Pose"):
        page.get_by_role("tab", name=tab).click()
        page.wait_for_timeout(500)
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide - width} pixels stick out"
        cut = page.evaluate(
            "[...document.querySelectorAll('[class^=cv-]')].filter(e => e.offsetParent && "
            "(e.getBoundingClientRect().right > innerWidth + 1 || e.clientWidth === 0 "
            "&& e.tagName !== 'U' && getComputedStyle(e).display !== 'inline'))"
            ".map(e => e.outerHTML.slice(0, 90))"
        )
        assert cut == []
        shown = page.locator("img.cv-px:visible")
        assert shown.count() >= 4
        for k in range(shown.count()):
            assert shown.nth(k).evaluate("e => e.naturalWidth > 0 && e.clientHeight > 20")
    folder = os.environ.get("CAPSVIZ_SCREENSHOTS")
    if folder:
        page.screenshot(path=f"{folder}/explore-{width}.png", full_page=True)
