"""A visitor of the explorer: a real browser, offline, with only what capsviz installs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import matplotlib
import pytest

from capsviz import checkpoint
from helpers import browser as browsers
from helpers import wrappable_capsnet as gray
from helpers.distributed_ranks import interruptible

MARKS = [
    pytest.mark.slow,
    browsers.NEEDED,
    pytest.mark.skipif(  # not imported, which takes seconds
        find_spec("gradio") is None, reason="the page needs gradio: pip install gradio"
    ),
    pytest.mark.skipif(
        not {"mnist", "mnist-resnet"} <= set(checkpoint.shipped()), reason="no MNIST weights"
    ),
]
TWO = (  # on a sheet of 280 x 280
    (85, 95), (95, 65), (130, 50), (170, 60), (185, 95), (165, 140), (125, 185), (85, 225),
    (140, 222), (205, 218),
)  # fmt: skip
SEVEN = ((75, 60), (200, 60), (160, 140), (120, 230))
PATIENCE_MS = 60_000  # on a machine that is busy with other things


@pytest.fixture(scope="module")
def hold(tmp_path_factory):
    """While this file is there, the network `wrappable_capsnet-build` answers nobody."""
    return tmp_path_factory.mktemp("hold") / "hold"


@pytest.fixture(scope="module")
def address(tmp_path_factory, hold):
    """Where `capsviz explore` serves its page; it must end at Ctrl+C without a traceback.

    Not for the whole session: a page that nobody looks at takes a twentieth of a thread.
    """
    home = tmp_path_factory.mktemp("home")
    env = {k: v for k, v in os.environ.items() if k != "CAPSVIZ_DATA"}
    env |= {"XDG_CACHE_HOME": str(home), "GRADIO_TEMP_DIR": str(home / "gradio")}
    (home / "tmp").mkdir()
    env |= {"TMPDIR": str(home / "tmp"), "HOLD": str(hold)}
    env["MPLCONFIGDIR"] = matplotlib.get_cachedir()  # its cache of fonts takes seconds to build
    command = [sys.executable, *["-m", "capsviz", "explore", "--no-browser", "--port", "0"]]
    command += ["--checkpoint", "mnist", "--compare", "mnist-resnet"]
    command += ["--network", f"{Path(gray.__file__)}:build"]
    with (home / "err").open("w") as err, interruptible():
        server = subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=err)
    try:
        line = server.stdout.readline()
        found = re.match(r"(http://127\.0\.0\.1:\d+/) \(Ctrl\+C ends it\)", line)
        assert found, line + (home / "err").read_text()
        yield found[1]
    finally:
        server.send_signal(signal.SIGINT)
        try:
            ended = server.wait(60)
            assert ended == 0, f"it ended with {ended}: {(home / 'err').read_text()}"
        finally:
            server.kill()
            server.stdout.close()
    assert not list((home / "tmp").glob("capsviz-*"))  # figures that were made
    errors = (home / "err").read_text()
    assert "embedded 'digits'" in errors and "Traceback" not in errors, errors


@pytest.fixture(scope="module")
def browser():
    """Not for the whole session: while it is open, this thread's event loop runs."""
    with browsers.browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(browser, address):
    """What visits share, as windows of one browser do: a cache, and the process that has read it.

    A window of its own keeps that process from ending between two visits: each costs half as much.
    """
    context = browser.new_context()
    context.new_page().goto(f"{address}manifest.json")
    yield context
    context.close()


@pytest.fixture
def visit(shared, address):
    """Open the page in a window; no other address is found, and none may be asked for."""
    yield from visits(shared, address)


def visits(shared, address):
    """What opens a page in another window; in the end, that nobody else was asked."""
    asked, pages = [], []

    def note(request):  # not by `page.route`, which takes every upload through this process
        if not request.url.startswith((address, "data:", "blob:")):
            asked.append(request.url)

    def open_page(width=1280, url=address, context=shared):
        page = context.new_page()
        pages.append(page)
        page.set_viewport_size({"width": width, "height": 900})
        page.set_default_timeout(PATIENCE_MS)
        page.on("request", note)
        page.on("pageerror", lambda error: asked.append(str(error)))
        page.goto(url)
        page.wait_for_selector("#routed .cv-heat")
        return page

    yield open_page
    for page in pages:
        page.close()
    assert asked == []


def assert_nothing_is_cut_off(page, width):
    """Nothing sticks out at either side, and no panel is empty."""
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

    def messages():
        box.fill(str(value))
        box.press("Enter")
        for _ in range(60):
            if until():
                return True
            page.wait_for_timeout(50)
        return False

    wait_for(page, messages)


def choose(page, name, option):
    page.locator(f"#{name} input").click()
    page.locator(f"#{name}").get_by_role("option", name=option, exact=True).click()


def values(page):
    """Scores of the first network."""
    bars = page.locator("#scores .cv-bars").first.locator(".cv-bar").all()
    return [float(bar.get_attribute("data-value")) for bar in bars]


def text(page, place):
    return page.locator(f"#{place}").inner_text()


def open_tab(page, name):
    page.get_by_role("tab", name=name, exact=True).click()


def predictions(page):
    bars = page.locator("#scores .cv-bars")
    return [bars.nth(k).get_attribute("data-predicted") for k in range(bars.count())]


def html_of(page, place):
    return page.locator(f"#{place} .cv-row").first.inner_html()


def wait_for(page, condition, *arguments):
    """Wait until the condition holds, and let the page go on meanwhile."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not condition(*arguments):
        assert time.monotonic() < end, f"never: {condition}"
        page.wait_for_timeout(50)


def settled(page, *panels):
    """Return the HTML of panels, once they have stopped changing."""
    before = None
    while before != (now := [html_of(page, one) for one in panels]):
        before = now
        page.wait_for_timeout(700)
    return now


def saved(page, name, folder):
    """Ask for a figure and download its JSON."""
    page.locator("#figure-kind").get_by_label(name, exact=True).check()
    page.locator("#make").click()
    link = page.locator(f"#files a[download^='{name}'][download$='.json']").first
    with page.expect_download() as caught:
        link.click()
    path = folder / caught.value.suggested_filename
    caught.value.save_as(path)
    return json.loads(path.read_text())
