"""A real browser that calls nobody, where there is one."""

import shutil
from contextlib import contextmanager
from importlib.util import find_spec

import pytest

NAMES = "chromium-headless-shell", "chromium", "chromium-browser"  # the first takes the least time
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
NEEDED = pytest.mark.skipif(  # Playwright is not imported where it is not used
    CHROMIUM is None or find_spec("playwright") is None,
    reason="no browser is here: pip install playwright, apt-get install chromium",
)
QUIET = (
    "no-sandbox disable-gpu disable-quic no-first-run disable-background-networking "
    "disable-component-update disable-sync process-per-site"
)
NOBODY = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@contextmanager
def browser():
    """Chromium by Playwright; of tests that are marked as `NEEDED`."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(
            executable_path=CHROMIUM, args=[NOBODY, *(f"--{flag}" for flag in QUIET.split())]
        )
        yield chromium
        chromium.close()
