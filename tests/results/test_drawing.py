"""The leaderboard drawn: what stands in which panel, and whether it can be read in print."""

import numpy as np
import pytest
from helpers import legibility

from capsviz import results
from capsviz.results import leaderboard
from capsviz.results.leaderboard import Cell, Row, draw, measures
from capsviz.results.leaderboard.sources import Network
from capsviz.statistics.estimate import Estimate


def row(name, accuracy, transplant=None, runs=None):
    """A row of a network with one result, or none."""
    digests = [name] * len(runs or [0])
    cells = {}
    if transplant is not None:
        ends = np.array([transplant - 0.05, transplant + 0.05])
        estimate = Estimate(transplant, ends, 100, runs=None if runs is None else np.array(runs))
        cells["donor's class"] = Cell(estimate, len(digests), None)
    accuracy = Estimate(accuracy, np.array([accuracy - 0.01, accuracy + 0.01]), 500)
    return Row(Network(name, "digits", [0], digests, accuracy, 1234, 60.0, "cpu"), cells)


TABLE = [row("one", 0.9), row("two", 0.8, 0.7, [0.6, 0.7, 0.8]), row("three", 0.8, 0.6)]


def test_only_what_can_be_compared_is_drawn():
    assert [column.title for column, _ in measures(TABLE)] == ["accuracy", "donor's class"]
    assert [column.title for column, _ in measures(TABLE[:2])] == ["accuracy"]
    assert [column.title for column, _ in measures(TABLE[1:2])] == ["accuracy", "donor's class"]


def test_a_panel_has_each_number_in_its_line_with_its_interval_and_its_runs():
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
def test_it_can_be_read(width):
    names = [f"a network of name {k}" for k in range(10)]
    table = [row(name, 0.9, 0.7, [0.6, 0.7, 0.8]) for name in names]
    with results.style():
        assert legibility.defects(draw(table, width), width, leaderboard.caption(table)) == []


def test_every_shipped_network_is_on_a_page():
    table = leaderboard.table()
    with results.style():
        drawn = draw(table, 7.16, leaderboard.choose([]))
        assert legibility.defects(drawn, 7.16, "") == []
