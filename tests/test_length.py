"""One idea, one file: none is so long that a reader has to look for a second idea in it."""

from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 250  # lines


def lengths():
    for folder in ("capsviz", "analyses", "benchmarks"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(("capsviz/analyses/", "capsviz/trained/")):  # links to others
                yield name, len(path.read_text(encoding="utf-8").splitlines())


def test_no_file_is_longer_than_one_idea_needs():
    files = dict(lengths())
    assert len(files) > 300
    assert {n: k for n, k in files.items() if k > LONGEST} == {}
