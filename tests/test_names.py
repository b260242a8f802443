"""Names say what a thing is in this field, not what was done to come by it."""

import ast
import re

import pytest
import sources

REFUSED = {"made", "found", "seen", "given", "asked", "held", "ink", "board", "paperset",
           "subject", "there"}  # fmt: skip
TERM = "held_out"  # images: the field's own word
KEPT = {  # public names, that others rely on
    ("capsviz/checks/verdict.py", "seen"),  # a plug-in's check is About(seen=...): docs/check.md
    ("capsviz/pictures/centring.py", "ink"),  # a step's name in results of `predict`
}
APART = "analyses/transplant/"  # `Result.given` is in the results that are shipped


def names(code):
    """Names that a text gives: to functions, classes, arguments, variables and imports."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.arg():
                yield node.arg
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.Attribute(ctx=ast.Store()):
                yield node.attr
            case ast.alias(asname=str()) | ast.ExceptHandler(name=str()):
                yield node.asname if isinstance(node, ast.alias) else node.name


def refused(code):
    """Those of which a word is refused: words are parted by underscores and by capitals."""

    def words(name):
        parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
        return set(parted.replace(TERM, "").split("_"))

    return {name for name in names(code) if words(name) & REFUSED}


def test_names_are_nouns_of_the_field():
    files = [*sources.FILES, *(sources.ROOT / "benchmarks").rglob("*.py")]
    places = {path.resolve().relative_to(sources.ROOT).as_posix(): path for path in files}
    texts = {name: path.read_text(encoding="utf-8") for name, path in places.items()}
    assert sum(path.startswith(("analyses/", "benchmarks/")) for path in texts) > 100
    bad = {(path, name) for path, code in texts.items() for name in refused(code)}
    assert {pair for pair in bad if not pair[0].startswith(APART)} == KEPT


@pytest.mark.parametrize(
    "code",
    [
        "found = 1",
        "for seen, x in y: pass",
        "def _made(): pass",
        "def f(*, given=1): pass",
        "class AskedWrongly: pass",
        "import sets as paperset",
        "self.held = 1",
        "INK_SHARE: int = 1",
        "try: pass\nexcept ValueError as found: pass",
        "if (there := 1): pass",
    ],
)
def test_every_kind_of_name_is_read(code):
    assert refused(code)


def test_words_within_words_are_let_through():
    assert refused("foundation, UnseenError, held_out = 1, 2, 3") == refused("f(given=1)") == set()
