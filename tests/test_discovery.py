"""What a package offers: ours, a user's folders, installed distributions; and what is refused."""

import os
import sys

import pytest
from helpers.command_line import fine, run

from capsviz import discovery

DATA = "capsviz.data"


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    """No plugins but the test's own, and nothing remembered."""
    monkeypatch.delenv(discovery.PLUGINS, raising=False)
    before, path = set(sys.modules), list(sys.path)
    discovery._entries.cache_clear()
    discovery._any_entry_points.cache_clear()
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    discovery._entries.cache_clear()
    discovery._any_entry_points.cache_clear()


@pytest.fixture
def installed(tmp_path):
    """Writes an installed distribution with entry points, on the path."""
    site = tmp_path / "site"
    sys.path.insert(0, str(site))

    def write(points, **modules):
        info = site / f"d{len(list(site.glob('*-info')))}-1.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {info.stem}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(points)
        for name, text in modules.items():
            (site / f"{name}.py").write_text(text)

    return write


def test_a_file_and_a_folder_of_ones_own_are_found_and_imported_once(plugin):
    path = plugin("data/mine.py", '"""My data."""\nobjects = [object()]\n')
    plugin("data/large/__init__.py", '"""Much."""\nfrom . import part\nvalue = part.value\n')
    plugin("data/large/part.py", "value = 7\n")
    plugin("data/_hidden.py", "")
    assert {"mine", "large", "mnist"} <= set(discovery.names(DATA))
    assert "_hidden" not in discovery.names(DATA)
    assert discovery.source(DATA, "mine") == path
    assert discovery.summary(DATA, "mine") == "My data."
    first, again = (discovery.load(DATA, "mine", what="data set") for _ in range(2))
    assert first is again
    assert discovery.load(DATA, "large", what="data set").value == 7
    assert discovery.name_of(DATA, first.__name__) == "mine"
    assert "mine" not in discovery.names("capsviz.analyses"), "a kind has its own folder"


def test_an_installed_distribution_extends_a_kind(installed):
    installed("[capsviz.data]\nmine = my_data\n", my_data='"""Theirs."""\nvalue = 3\n')
    assert discovery.summary(DATA, "mine") == "Theirs."
    assert "my_data" not in sys.modules, "what is listed is not imported"
    assert discovery.load(DATA, "mine", what="data set").value == 3


def test_a_name_that_is_there_twice_is_refused_with_both_places(plugin, tmp_path):
    plugin("data/mnist.py", "")
    with pytest.raises(ValueError, match=rf"'mnist': .*data/mnist.py and {tmp_path}/data/mnist"):
        discovery.names(DATA)
    assert discovery.names("capsviz.analyses"), "other kinds go on"


def test_a_folder_that_is_named_twice_is_searched_once(plugin, monkeypatch):
    plugin("data/mine.py", "")
    folder = os.environ["CAPSVIZ_PLUGINS"]
    monkeypatch.setenv("CAPSVIZ_PLUGINS", os.pathsep.join([folder, folder]))
    assert discovery.names(DATA).count("mine") == 1


def test_a_folder_that_is_not_there_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(discovery.PLUGINS, f"{tmp_path}:{tmp_path / 'nowhere'}")
    with pytest.raises(ValueError, match=r"\$CAPSVIZ_PLUGINS names '.*/nowhere', which is not a"):
        discovery.names(DATA)


@pytest.mark.parametrize(
    "text", ["import no_such_thing", "1 / 0", "def f(:", "raise SystemExit(3)"]
)
def test_a_plugin_that_cannot_be_imported_is_named_and_can_be_listed(plugin, text):
    path = plugin("data/mine.py", f"\n{text}\n")
    discovery.summary(DATA, "mine")
    with pytest.raises(ValueError, match=rf"data set 'mine' of {path} cannot be imported \(\w+: "):
        discovery.load(DATA, "mine", what="data set")
    assert not [name for name in sys.modules if name.startswith("capsviz_plugin_")]


def test_what_cannot_be_read_is_listed_and_the_others_go_on(plugin, installed, tmp_path):
    plugin("commands/good.py", '"""Good."""\n')
    (tmp_path / "commands/dangling.py").symlink_to(tmp_path / "nowhere.py")
    installed("[capsviz.commands]\ngone = gonepkg.sub.thing\n")
    said = fine(run("--help"))
    lines = {line.split()[0]: line for line in said.stdout.splitlines() if line.split()}
    assert "Good." in lines["good"] and "rotate" in lines
    assert "(cannot be read: FileNotFoundError: " in lines["dangling"]
    assert "(cannot be read: ModuleNotFoundError: No module named 'gonepkg')" in lines["gone"]


def test_commands_and_analyses_share_their_names(plugin):
    plugin("analyses/train.py", "")
    said = run("--help")
    assert said.exit_code == 2 and "a command and an analysis are called 'train'" in said.stderr


def test_a_file_that_no_import_can_name_is_refused(plugin):
    plugin("analyses/my-thing.py", "")
    with pytest.raises(ValueError, match=r"'my-thing' of .* write it with underscores"):
        discovery.names("capsviz.analyses")


def test_a_command_that_is_none_is_refused(plugin):
    plugin("commands/number.py", "command = 3")
    said = run("number")
    assert said.exit_code == 2 and "offers no command" in said.stderr


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('"""One line."""\n', "One line."),
        ('"""First.\n\nMore.\n"""\n', "First."),
        ("# comment\n'Single quotes.'\n", "Single quotes."),
        ('"""A \\"quoted\\" word."""\n', 'A "quoted" word.'),
        ("", ""),
    ],
)
def test_the_first_line_of_a_docstring_however_it_is_written(plugin, text, line):
    plugin("data/mine.py", text)
    assert discovery.summary(DATA, "mine") == line


def test_a_file_that_is_not_utf_8_is_listed_as_such(plugin):
    plugin("data/mine.py", "").write_bytes('"""Gr\u00fc\u00dfe."""\n'.encode("latin-1"))
    assert discovery.summary(DATA, "mine").startswith("(cannot be read: UnicodeDecodeError: ")
