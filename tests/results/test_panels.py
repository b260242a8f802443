"""Panels: each is drawn into any axes, several make a figure, and those without room are named."""

import json
import re
from unittest import TestCase

import numpy as np
import pytest
from helpers.command_line import fine, refused, run
from helpers.figure_checks import shipped
from matplotlib.figure import Figure

from capsviz import analysis as contract
from capsviz import arrangement, discovery, results

SHIPPED = discovery.root() / "figures"
EACH = ("activations", "maps", "uniform_maps", "map_sums", "uniform_map_sums")
ROUTING = SHIPPED / "routing-mnist-1000-images.json"


@pytest.fixture(scope="module")
def routing():
    return results.read_result(ROUTING)[0]


@pytest.mark.parametrize("name", shipped())
def test_every_panel_is_drawn_into_axes_of_another_figure_and_has_its_own_caption(name):
    for result in {type(one): one for one in shipped()[name]}.values():
        every = contract.of_result(name, type(result).__name__).all_panels
        words = {panel: one.words(result)[0] for panel, one in every.items() if one.of(result)}
        for panel, own in words.items():
            figure = Figure(figsize=(8, 4))
            axes = figure.subplots(1, 2)[1]
            assert results.draw(name, result, panel=panel, axes=axes) is figure
            parts = (axes, *getattr(axes, "parts", ()))
            assert any(part.has_data() or part.texts for part in parts), panel
            assert not figure.axes[0].has_data()  # the other axes stay as they are
            text = results.caption(name, result, panel=[panel])
            assert own.replace("|", "").lower() in text.lower(), panel
            others = {one.rpartition("|")[2] for one in words.values() if " " in one} - {own}
            first = text.partition(". ")[0]
            assert not [one for one in others if one not in own and f" {one}" in first], panel
            assert not re.search(r"(^|\. )(Left|Right|Above|Below|At the right|The last)\b", text)


def test_panels_have_the_requested_order(routing):
    figure = results.draw("routing", routing, panel=["agreement", "accuracy"])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:2] == ["vote agreement\nweighted by $c_{ij}$", "accuracy"]


def test_wrong_panels_are_refused_with_a_list_of_the_known_ones(routing):
    with pytest.raises(ValueError, match=r"unknown panel 'acuracy', .*did you mean 'accuracy'"):
        results.draw("routing", routing, panel="acuracy")
    axes = Figure().subplots()
    with pytest.raises(ValueError, match="axes take one panel, got 0: accuracy, changed"):
        results.draw("routing", routing, axes=axes)
    said = "unknown panel 'x', expected one of: accuracy, changed"
    refused(run("routing", "--n", 9, "--panel", "x"), said)


def test_the_list_of_panels_describes_each():
    listed = run("routing", "--n", 9, "--panel", "list")
    lines = dict(line.split(maxsplit=1) for line in listed.stdout.splitlines())
    assert list(lines)[:3] == ["accuracy", "changed", "activation"]
    assert "polarisation" in lines and all(text.startswith("Draw ") for text in lines.values())


def test_a_single_panel_is_redrawn_beside_the_whole_figure_with_its_own_caption(tmp_path):
    words = ["--panel", "accuracy", "--width", "single", "--format", "png", "--output", tmp_path]
    fine(run("redraw", ROUTING, *words))
    assert [path.name for path in tmp_path.iterdir()] == [f"{ROUTING.stem}-accuracy.png"]
    latex = run("redraw", ROUTING, "--latex", *words).stdout
    assert "accuracy. Controls" in latex and "arents" not in latex and "Bars: 95" in latex


def test_panels_without_room_are_named_in_the_log(tmp_path):
    path = SHIPPED / "tsne-mnist-poses-1000-images.json"
    result, _ = results.read_result(path)
    with TestCase().assertLogs("capsviz.results", "WARNING") as logged:
        results.export(tmp_path / "x", "tsne", result, ("png",), 3.25)
    (line,) = [one.getMessage() for one in logged.records]
    assert line == "x has no room for pixels: draw it alone, --panel pixels"
    first, last = results.caption("tsne", result, width=3.25).split(" Left out for lack of room: ")
    assert "pixels" not in first and last == "pixels."


def test_a_column_has_maps_of_ten_classes_and_more_are_named():
    result, _ = results.read_result(SHIPPED / "routing-mnist-2-0.json")
    figure = results.draw("routing", result, 3.25, panel="maps")
    drawn = {axes.get_title().split(" ")[0] for axes in figure.axes if axes.get_title()}
    assert drawn == {"image", *result.classes} and not figure.omitted
    more = {name: np.concatenate([getattr(result, name)] * 2) for name in EACH}
    more = result._replace(classes=[*result.classes, *"abcdefghij"], **more)
    text = results.caption("routing", more, width=3.25, panel=["maps"])
    assert text.endswith("Left out for lack of room: the 10 least active of 20 classes.")


def test_a_table_is_written_on_request_and_the_panels_are_noted(routing, tmp_path):
    panel = ("accuracy",)
    paths = results.save(tmp_path / "x", "routing", routing, formats=(), panel=panel, table=True)
    assert [path.name for path in paths] == ["x.md", "x.tex", "x.json"]
    assert "tabular" in paths[1].read_text() and json.loads(paths[2].read_text())["panel"]


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8])
def test_panels_fill_as_few_rows_as_possible_evenly(count):
    panels = {str(k): contract.Panel(lambda axes, result: None, 1.0, 1 / 3) for k in range(count)}
    rows = arrangement._rows(panels, 7.16)
    assert len(rows) == -(-count // 3)
    assert [name for row in rows for name, _ in row] == list(panels)
    assert all(np.isclose(sum(share for _, share in row), 1) for row in rows)
    assert max(map(len, rows)) - min(map(len, rows)) <= 1 + (count == 7)
