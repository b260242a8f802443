"""The site's own code: docstrings become reStructuredText that says the same."""

import importlib.util
import inspect
import re

import pytest
from docutils.core import publish_doctree

import capsviz
from capsviz import discovery

PATH = discovery.root() / "docs/_ext/docstrings.py"


@pytest.fixture(scope="module")
def docstrings():
    spec = importlib.util.spec_from_file_location("docstrings", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def tree(lines):
    """The text of reStructuredText, by docutils; a warning is an error."""
    return publish_doctree("\n".join(lines), settings_overrides={"halt_level": 2})


def test_parameters_become_a_list_of_names_and_what_they_are(docstrings):
    text = """Couple children to parents, |v| * c_ij for `names_`.

    Parameters
    ----------
    votes       (B, I, J, E) what child i
                predicts.
    top, limits  as above.

    Returns
    -------
    Routing.
    """
    made = tree(docstrings.converted(inspect.cleandoc(text).splitlines()))
    terms = [node.astext() for node in made.findall(lambda n: n.tagname == "term")]
    told = [node.astext() for node in made.findall(lambda n: n.tagname == "definition")]
    assert terms[0] == "votes" and told[0] == "(B, I, J, E) what child i\npredicts."
    whole = made.astext()
    assert "|v| * c_ij for names_" in whole and "Returns" in whole and "Routing." in whole


def test_fields_are_told_by_the_comments_beside_them(docstrings):
    lines = docstrings.fields(capsviz.Trace)
    assert "``grid``" in lines
    assert any("(types, rows, columns) of the children" in line for line in lines)

    class Plain:
        pass

    assert docstrings.fields(Plain) == []


def test_a_figure_of_the_gallery_has_its_numbers_beside_it(docstrings):
    pictures = "rotate-mnist-2-0.gif", "parse-tree-mnist-1000-images-shifted.png", "none.png"
    text = "\n".join(f"![A](../figures/{name})" for name in pictures)
    links = re.findall(r"\[Numbers\]\(\.\./figures/(.+)\)", docstrings.with_numbers(text))
    assert links == ["rotate-mnist-2-0.json", "parse-tree-mnist-1000-images.json"]


ROOMS = {"checks", "data", "plot", "testing"}


@pytest.mark.parametrize("name", sorted(set(capsviz.__all__) - {"__version__", *ROOMS}))
def test_what_capsviz_offers_has_a_docstring_that_can_be_printed(docstrings, name):
    lines = inspect.getdoc(getattr(capsviz, name)).splitlines()
    assert tree(docstrings.converted(lines)).astext().strip()
    assert f"capsviz.{name}\n" in (PATH.parents[1] / "api.md").read_text(encoding="utf-8")
