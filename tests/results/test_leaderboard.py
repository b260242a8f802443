"""The leaderboard: which number is in which cell, and in which panel of the drawing."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import legibility
from helpers.command_line import fine, run
from helpers.training_runs import write_runs

from benchmarks.shipped import shipped
from capsviz import checkpoint, results
from capsviz.provenance import provenance
from capsviz.results import leaderboard
from capsviz.results.files import write_result
from capsviz.results.leaderboard import Cell, Row, columns, draw, measures
from capsviz.results.leaderboard.columns import COLUMNS
from capsviz.results.leaderboard.sources import Network, read
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.runs import combine


def card(folder, name, digest, accuracy=0.9, dataset="digits"):
    """A card without its weights."""
    folder.mkdir(parents=True, exist_ok=True)
    test = {"accuracy": accuracy, "accuracy_ci95": [accuracy - 0.02, accuracy + 0.02], "n": 500}
    about = {
        "name": name,
        "dataset": {"name": dataset},
        "model": {"name": "capsnet", "config": {}},
        "weights": {"sha256": digest, "parameters": 1234},
        "training": {"seconds": 120, "hardware": "cpu"},
        "results": {"test": test},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(about))
    return path


def runs(folder, name, digests, *, routing="dynamic"):
    """Write what `benchmarks.seeds` writes for training runs."""
    model = {"config": {"routing": routing}}
    accuracies = dict.fromkeys(range(len(digests)), 0.9)
    write_runs(folder, name, accuracies, digests, n=500, dataset="digits", model=model)


def shares(share, several=0, n=100):
    """Return an estimate (2,) of shares, the second one `share`, of one run or several."""
    value = np.array([0.01, share])
    one = Estimate(value, np.stack([value - 0.01, value + 0.01], -1), n)
    return combine([one * (1 + 0.001 * k) for k in range(several)]) if several else one


def transplant(
    folder, share, digests, *, several=False, n=100, name="t", routing=None, dataset="digits"
):
    """Write a result of `transplant` for the weights of one run or several."""
    one = shares(share, len(digests) * several, n)
    of_mnist = shipped("transplant-mnist-1000-images.json").result
    result = of_mnist._replace(as_partner=one, n=n, dataset=dataset)
    about = provenance({"weights": {"file": "w.safetensors", "sha256": digests[0]},
                        "model": {"config": {"routing": routing}}}, "cpu")  # fmt: skip
    return _write(folder, name, "transplant", result, digests, several, provenance=about)


def _write(folder, name, analysis, result, digests, several=0, **more):
    folder.mkdir(parents=True, exist_ok=True)
    about = {
        "analysis": analysis,
        "kind": type(result).__name__,
        "width": "double",
        "provenance": {"weights": "w.safetensors", "weights_sha256": digests[0]},
        **more,
    }
    if several:
        seeds = list(range(len(digests)))
        about["runs"] = {"recipe": "net", "seeds": seeds, "weights_sha256": digests}
    return write_result(folder / name, result, about)[-1]


def sweep(folder, digests, names, *, several=0, sizes=range(-90, 91, 15), high=0.9, **more):
    """Write a result of `sweep` for two networks; the first may be several runs."""
    value = np.array([[high], [0.5]])
    one = Estimate(value, np.stack([value - 0.01, value + 0.01], -1), 100)
    one = combine([one * (1 - 0.001 * k) for k in range(several)]) if several else one
    of_mnist = shipped("sweep-rotation-mnist-1000-images.json").result
    area = {"area": one[:, 0], "dataset": "digits"}
    result = of_mnist._replace(sizes=np.array(sizes, float), names=names, n=100, **area)
    return _write(folder, "s", "sweep", result, digests, several, **more)


def cell(table, name, title):
    (row,) = [row for row in table if row.network.name == name]
    return row.cells.get(title)


def test_a_result_appears_only_in_the_row_of_its_weights(tmp_path):
    places = [card(tmp_path, "one", "aa"), card(tmp_path, "two", "bb")]
    places.append(transplant(tmp_path / "r", 0.7, ["aa"]))
    table = leaderboard.table(places)
    assert [row.network.name for row in table] == ["one", "two"]
    assert cell(table, "one", "donor's class").estimate.value == 0.7
    assert cell(table, "two", "donor's class") is None
    header, rows = leaderboard.cells(table)
    assert rows[0][header.index("donor's class, %")] == "70.0 [69.0, 71.0]"
    assert rows[1][header.index("donor's class, %")] == "–"
    assert rows[0][header.index("accuracy, %")] == "90.0 [88.0, 92.0]"
    assert rows[0][header.index("parameters")] == "1,234" and rows[0][-1] == "2"
    assert leaderboard.cells(table, ["runs"]) == (["network", "runs"], [["one", "1"], ["two", "1"]])


def test_the_result_with_most_runs_and_then_most_images_is_used(tmp_path):
    runs(tmp_path, "net", ["aa", "bb", "cc"])
    transplant(tmp_path, 0.7, ["aa", "bb", "cc"], several=True, name="a")
    transplant(tmp_path, 0.2, ["aa"], n=9000, name="b")
    assert cell(leaderboard.table([tmp_path]), "net", "donor's class").runs == 3
    few = tmp_path / "few"
    runs(few, "net", ["aa", "bb", "cc"])
    transplant(few, 0.2, ["bb"], name="b")
    header, (row,) = leaderboard.cells(leaderboard.table([few]))
    assert row[header.index("donor's class, %")].endswith("(1 run)")


def test_a_result_on_another_data_set_is_not_used(tmp_path):
    """It is ignored even if it is on more images."""
    card(tmp_path, "one", "aaaa")
    own = transplant(tmp_path, 0.7, ["aaaa"])
    transplant(tmp_path, 0.1, ["aaaa"], n=900, name="other", dataset="mnist")
    (row,) = leaderboard.table([tmp_path])
    assert row.cells["donor's class"].estimate.value == 0.7
    assert row.cells["donor's class"].file == own


def test_numbers_that_follow_from_the_definition_of_a_routing_are_marked(tmp_path):
    digests = ["aa", "bb", "cc"]
    for routing in ("uniform", "dynamic"):
        place = tmp_path / routing
        runs(place, "net", digests, routing=routing)
        transplant(place, 0.0, digests, several=True)
        table = leaderboard.table([place])
        header, (row,) = leaderboard.cells(table)
        assert row[header.index("donor's class, %")].endswith("]†") == (routing == "uniform")


def test_a_single_network_compared_with_several_runs_is_one_run(tmp_path):
    digests = ["aa", "bb", "cc"]
    runs(tmp_path, "net", digests)
    places = [tmp_path, card(tmp_path / "other", "other", "dd")]
    sweep(tmp_path, digests, ["net", "other"], several=3, networks={"net": "aa", "other": "dd"})
    table = leaderboard.table(places)
    assert cell(table, "net", "rotated").runs == 3 and cell(table, "other", "rotated").runs == 1


def test_other_networks_of_a_result_are_matched_by_weights_not_names(tmp_path):
    names = ["net", "mnist-resnet"]
    theirs = checkpoint.read_card(checkpoint.find("mnist-resnet"))["weights"]["sha256"]
    for digest, networks, known in (
        ("zz", None, False),  # a record of before: of the shipped weights of that name, if any
        (theirs, None, True),
        ("zz", {"net": "aa", "mnist-resnet": theirs}, False),
        ("zz", {"net": "aa", "mnist-resnet": "zz"}, True),
    ):
        place = tmp_path / f"{digest[:3]}-{networks is None}-{known}"
        more = {} if networks is None else {"networks": networks}
        own = card(place / "own", "mnist-resnet", digest)
        table = leaderboard.table([own, sweep(place, ["aa"], names, **more)])
        assert (cell(table, "mnist-resnet", "rotated") is not None) == known
    assert not cell(
        leaderboard.table([card(tmp_path / "x", *names[1:], "zz")]), names[1], "rotated"
    )


def test_a_command_records_the_weights_of_every_network_and_the_routing_of_the_first(
    blank, tmp_path
):
    words = ["sweep", "--checkpoint", "digits-uniform", "--checkpoint", "digits", "--n", "4"]
    words += ["--no-worst", "--step", "15", "--format", "png", "--output", str(tmp_path)]
    fine(run(*words))
    (path,) = tmp_path.glob("*.json")
    about = json.loads(path.read_text())
    cards = {name: checkpoint.read_card(checkpoint.find(name)) for name in words[2:5:2]}
    assert about["networks"] == {k: one["weights"]["sha256"] for k, one in cards.items()}
    assert about["provenance"]["routing"] == "uniform"
    other = card(tmp_path / "o", "called otherwise", about["networks"]["digits"])
    rows = leaderboard.rows(*read([tmp_path, other]))  # no shipped ones
    assert cell(rows, "called otherwise", "rotated").estimate.n == 4


def test_networks_known_only_from_results_get_distinct_names(tmp_path):
    about = provenance({"weights": {"file": "mnist.safetensors", "sha256": "aa"}}, "cpu")
    path = sweep(tmp_path, ["aa"], ["a", "x"], provenance=about, options={"first": ["runs/a"]})
    assert [row.network.name for row in leaderboard.table([path])][-1] == "mnist (a)"


def test_a_column_ignores_results_with_other_options(tmp_path):
    """Few corruptions, small angles, and options for shifts and iterations."""
    digests = ["aa"]
    full = range(-90, 91, 10)
    for sizes, taken in ((full, True), ((-90, 0, 90), False), ((-10, 0, 10), False), ((7,), False)):
        place = tmp_path / str(sizes)
        own = card(place / "own", "net", "aa")
        table = leaderboard.table([own, sweep(place, digests, ["net", "x"], sizes=sizes)])
        assert (cell(table, "net", "rotated") is not None) == taken
    for pattern, options in (
        ("affine-mnist-mnist-resnet-*.json", {"trained_px": 3.0}),
        ("transplant-mnist-1000-images.json", {"iterations": 1}),
        ("routing-mnist-1000-images.json", {"iterations": 1}),
        ("corrupt-mnist-1000-images.json", {"only": ["brightness", "stripe"]}),
    ):
        result = shipped(pattern).result
        name = pattern.split("-")[0]
        titles = [column.title for column in COLUMNS if name in column.analyses]
        own = card(tmp_path / name / "own", "net", "aa", dataset="mnist")
        for number, about in enumerate(({}, options)):
            place = tmp_path / name / str(number)
            path = _write(place, "r", name, result, digests, options={"n": 5, **about})
            cells = [cell(leaderboard.table([own, path]), "net", title) for title in titles]
            assert all(one is None for one in cells) == (number == 1), (name, number)


@pytest.mark.parametrize("bounds", [[0.1, 0.3], [0.3, 0.1]])
def test_the_undetected_share_is_that_at_the_largest_bound(bounds):
    result = shipped("detect-mnist-100-images-eps-0.1-0.3.json").result._replace(eps=bounds)
    first, second = (k for k, kind in enumerate(result.kinds) if kind == "adaptive")
    at = {bounds[0]: first, bounds[1]: second}[0.3]
    ((_, share),) = columns.detection(result)
    assert share.value == result.undetected.value[at]
    assert not [*columns.detection(result._replace(steps=1))]  # a weak attack flatters


def test_results_without_a_card_make_a_row_for_their_weights(tmp_path):
    transplant(tmp_path, 0.7, ["aa", "bb", "cc"], several=True, routing="uniform")
    (row,) = leaderboard.table([tmp_path])
    assert row.network.name == "net" and row.network.accuracy is None
    header, (cells,) = leaderboard.cells([row])
    assert cells[3] == "–" and cells[header.index("donor's class, %")].endswith("]†")


def test_other_recipes_of_a_comparison_have_several_runs():
    attacked = {row.network.name: row.cells.get("attacked") for row in leaderboard.table()}
    assert attacked["mnist-slim-em-decoder"].runs == 3  # not the first of its result
    assert attacked["digits-uniform"].runs == 1


def test_a_single_network_beside_several_runs_is_one_run_in_the_robustness_table():
    result = shipped("attack-mnist-mnist-attention-mnist-resnet-*.json").result
    about = {"analysis": "attack", "kind": "Result", "runs": {"recipe": "mnist", "seeds": [0, 1]}}
    table = leaderboard.beside([(result, about)])
    assert [len(row.network.seeds) for row in table] == [2, 1, 1]


def test_runs_replace_their_members_and_equal_names_get_their_paths(tmp_path):
    runs(tmp_path / "r", "net", ["aa", "bb"])
    places = [card(tmp_path / "x", "net", "aa"), tmp_path / "r", card(tmp_path / "y", "net", "zz")]
    names = [row.network.name for row in leaderboard.table(places)]
    assert names == ["net (r)", "net (net.json)"]
    both = [card(tmp_path / one / "b", "net", one) for one in ("cc", "dd")]
    names = [row.network.name for row in leaderboard.table(both)]
    assert names == [f"net ({place})" for place in both]


def compare(*words):
    return run("compare", *words)


def test_the_command_prints_and_writes_the_table(tmp_path):
    place = card(tmp_path, "one", "aa")
    done = compare(place, transplant(tmp_path / "r", 0.7, ["aa"]), "--output", tmp_path / "table")
    assert done.exit_code == 0 and "| one | digits | 1 |" in done.stdout
    assert "donor" not in done.stdout
    chosen = compare(place, tmp_path / "r", "--columns", "donor's class").stdout
    assert "| network | donor's class, % |" in chosen and "| one | 70.0 [69.0, 71.0] |" in chosen
    header = compare(place, "--columns", "all").stdout.splitlines()[0].split("|")
    assert len(header) == 1 + len(["network", *leaderboard.TITLES]) + 1
    assert "| one |" in (tmp_path / "table.md").read_text()
    assert r"\begin{tabular}" in (tmp_path / "table.tex").read_text()
    (row,) = json.loads(compare(place, tmp_path / "r", "--json").stdout)
    assert row["cells"]["donor's class"]["estimate"]["value"] == 0.7


def test_a_table_without_numbers_to_compare_is_written_and_not_drawn(tmp_path):
    done = fine(compare("mnist", "digits", "--columns", "data, runs", "--output", tmp_path / "x"))
    assert "nothing is drawn" in done.stderr and "| network | data | runs |" in done.stdout
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".md", ".tex"]


def test_notes_on_data_are_below_the_table(tmp_path):
    about = json.loads(card(tmp_path, "copies", "a").read_text())
    about["dataset"]["notice"] = "these are copies"
    (tmp_path / "copies.json").write_text(json.dumps(about))
    card(tmp_path, "pure", "b")
    table = leaderboard.table([tmp_path / "copies.json", tmp_path / "pure.json"])
    assert leaderboard.caption(table).endswith(" copies: these are copies.")
    assert "copies" not in leaderboard.caption(table[1:])
    runs(tmp_path / "several", "several", ["c", "d"])
    about = json.loads((tmp_path / "several" / "runs.json").read_text())
    (tmp_path / "several" / "runs.json").write_text(json.dumps(about | {"notice": "so are these"}))
    assert leaderboard.caption(leaderboard.table([tmp_path / "several"])).endswith(
        " several: so are these."
    )


NAMED = ["mnist", "digits"]


def test_a_shipped_name_is_the_shipped_network_even_if_a_file_has_that_name(tmp_path, monkeypatch):
    (tmp_path / "mnist").mkdir()
    path = card(tmp_path / "digits", "digits", "own")
    path.with_suffix(".safetensors").touch()
    digests = [checkpoint.read_card(checkpoint.find(n))["weights"]["sha256"] for n in NAMED]
    monkeypatch.chdir(tmp_path)
    assert [network.digests for network in read(NAMED)[0]] == [[d] for d in digests]
    for own in ("./digits", Path("digits")):
        assert read([own])[0][0].digests == ["own"]
    with pytest.raises(ValueError, match="neither weights"):
        read([Path("mnist")])


class Routed:
    """A result of `routing` for runs that differ only in the first iteration."""

    controls = ("shuffled",)
    entropy_nats = np.zeros(3)

    def __init__(self, first: float):
        own = Estimate(np.full(3, 0.99), np.tile([0.985, 0.995], (3, 1)), 500)
        gain = np.tile([0.09 - first, 0.09 + first], (3, 1))
        self.accuracy = Estimate(own.value, own.ci95, 500, Estimate(np.full(3, 0.09), gain, 500))
        control = Estimate(np.array([0.988]), np.array([[0.980, 0.994]]), 500)
        change = Estimate(np.array([0.088]), np.array([[0.088 - first, 0.088 + first]]), 500)
        self.control_accuracy = Estimate(control.value, control.ci95, 500, change)


def test_the_interval_of_a_control_is_the_narrower_of_two_conservative_ones():
    """One is by the first iteration, which varies; the other takes accuracies as independent."""
    for first, ends in ((0.1, (-0.002 - np.hypot(0.008, 0.005), -0.002 + np.hypot(0.006, 0.005))),
                        (0.001, (-0.004, 0.0))):  # fmt: skip
        ((_, one),) = columns.instead("shuffled", Routed(first))
        np.testing.assert_allclose(one.value, -0.002)
        np.testing.assert_allclose(one.ci95, ends)


def made(name, accuracy, transplant=None, runs=None):
    """A row of a network with one result, or none."""
    digests = [name] * len(runs or [0])
    cells = {}
    if transplant is not None:
        ends = np.array([transplant - 0.05, transplant + 0.05])
        estimate = Estimate(transplant, ends, 100, runs=None if runs is None else np.array(runs))
        cells["donor's class"] = Cell(estimate, len(digests), None)
    accuracy = Estimate(accuracy, np.array([accuracy - 0.01, accuracy + 0.01]), 500)
    return Row(Network(name, "digits", [0], digests, accuracy, 1234, 60.0, "cpu"), cells)


TABLE = [made("one", 0.9), made("two", 0.8, 0.7, [0.6, 0.7, 0.8]), made("three", 0.8, 0.6)]


def test_only_columns_that_can_be_compared_are_drawn():
    assert [column.title for column, _ in measures(TABLE)] == ["accuracy", "donor's class"]
    assert [column.title for column, _ in measures(TABLE[:2])] == ["accuracy"]
    assert [column.title for column, _ in measures(TABLE[1:2])] == ["accuracy", "donor's class"]


def test_a_panel_draws_each_number_in_its_row_with_interval_and_runs():
    with results.style():
        accuracy, transplant, *_ = draw(TABLE, 7.16).axes
    assert [text.get_text() for text in accuracy.get_yticklabels()] == ["one", "two", "three"]
    assert [tuple(line.get_xydata()[0]) for line in accuracy.lines] == [
        (0.9, 0),
        (0.8, 1),
        (0.8, 2),
    ]
    runs, mean, other, level = transplant.lines
    assert runs.get_xdata().tolist() == [0.6, 0.7, 0.8] and set(runs.get_ydata()) == {1}
    assert tuple(mean.get_xydata()[0]) == (0.7, 1) and set(level.get_xdata()) == {0.5}
    assert tuple(other.get_xydata()[0]) == (0.6, 2)
    ends, _ = (one.get_segments()[0] for one in transplant.collections)
    assert ends[:, 0] == pytest.approx([0.65, 0.75])


@pytest.mark.parametrize("width", [3.25, 5.5, 7.16])
def test_the_drawing_is_legible(width):
    names = [f"a network of name {k}" for k in range(10)]
    table = [made(name, 0.9, 0.7, [0.6, 0.7, 0.8]) for name in names]
    with results.style():
        assert legibility.defects(draw(table, width), width, leaderboard.caption(table)) == []
        if width == 7.16:  # every shipped network is on a page
            drawn = draw(leaderboard.table(), width, leaderboard.choose([]))
            assert legibility.defects(drawn, width, "") == []
