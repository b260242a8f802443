"""The order of the tests, and their fixtures where they run: see `helpers.fixtures`."""

import gc
from importlib import import_module
from pathlib import Path

# By far the longest, and what their tests share: a server, a site, a wheel. They come first: the
# worker that is done takes over from the end of another one's list (`--dist worksteal`).
LONG = (
    "test_explorer_page.py", "test_playground.py", "test_export.py", "test_notebooks.py",
    "test_installed.py", "test_distributed.py", "test_train.py",
    "test_memory_of_a_step.py",
)  # fmt: skip
assert set(LONG) <= {path.name for path in Path(__file__).parent.rglob("test_*.py")}


def pytest_configure(config):
    """The process that hands the tests out imports no torch: workers start seconds earlier."""
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(import_module("helpers.fixtures"))


def pytest_collection_modifyitems(items):
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(key=lambda item: places.get(item.path.name, 99))


def pytest_collection_finish(session):
    """What is there stays, so that the collector does not look through it at every turn."""
    gc.freeze()


def pytest_unconfigure(config):
    """What is frozen would be reported as leaked by libraries that count their objects."""
    gc.unfreeze()
