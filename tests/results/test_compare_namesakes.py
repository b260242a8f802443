"""Results of two recipes of one name are two rows, whatever their order."""

import json

import pytest

from capsviz.results import leaderboard
from capsviz.results.leaderboard.sources import Sources, shipped


@pytest.fixture
def folders(tmp_path):
    """The same shipped result twice, of other weights and another routing the second time."""
    (path,) = (p for folder in shipped() for p in folder.glob("transplant-digits-dynamic-*.json"))
    text = path.read_text(encoding="utf-8")
    for k, routing in enumerate(("dynamic", "uniform")):
        about = json.loads(text)
        about["runs"]["recipe"] = "digits"
        about["runs"]["weights_sha256"] = [f"{k}{s}" for s in about["runs"]["seeds"]]
        about["provenance"] |= {"weights": "digits.safetensors", "routing": routing}
        (tmp_path / routing).mkdir()
        (tmp_path / routing / "transplant.json").write_text(json.dumps(about))
    return [tmp_path / "dynamic", tmp_path / "uniform"]


def test_both_are_there(folders):
    for places in (folders, folders[::-1]):
        names = [one.name for one in Sources.read(places).unnamed()]
        assert names == [f"digits ({place.name})" for place in places]
        table = leaderboard.table(list(map(str, places)))
        assert [row.network.name for row in table] == names
        assert all(len(row.network.seeds) == 5 for row in table)
