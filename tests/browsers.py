"""A real browser that calls nobody, where there is one."""

import shutil
from contextlib import contextmanager

import pytest

NAMES = "chromium-headless-shell", "chromium", "chromium-browser"  # the first takes the least time
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
QUIET = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync")


@contextmanager
def browser():
    """Chromium by Playwright, or a skip."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no Playwright is here")
    if CHROMIUM is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()
