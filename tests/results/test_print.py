"""Every figure of every analysis is legible in print, at the widths of the venues."""

from __future__ import annotations

import re
from functools import cache
from unittest import TestCase

import numpy as np
import pytest
from helpers import legibility
from helpers.command_line import fine, run
from helpers.figure_checks import shipped
from matplotlib.text import Text

from capsviz import arrangement, discovery, results
from capsviz.inputs.opening import open_inputs
from capsviz.results import sets

NAMES = discovery.names("capsviz.analyses")
WIDTHS = (3.25, pytest.param(5.5, marks=pytest.mark.slow))  # a column, a page
WIDEST = 7.16  # two columns: as a page, with more room, so that nothing is left out


@pytest.fixture(scope="session")
def computed(tmp_path_factory):
    """Small results of an analysis without shipped ones: from its protocol, else its command."""

    @cache
    def of(name):
        folder = tmp_path_factory.mktemp("print")
        inputs = open_inputs(checkpoint="digits")
        made = [one for _, one in sets.results_of(name, inputs, sets.Settings(20))]
        if made:
            return made
        words = [name.replace("_", "-"), "--checkpoint", "digits"]
        if name == "predict":
            pictures = [drawn(folder / name) for name in ("a picture, long name.png", "b.png")]
            words += [*pictures, "--save-figure", folder / "steps.png"]
        else:
            words += ["--output", folder, "--format", "png"]
        fine(run(*words))
        return [results.read_result(path)[0] for path in sorted(folder.glob("*.json"))]

    return of


def drawn(path):
    """A picture of a stroke."""
    from PIL import Image

    ink = np.full((60, 50), 255, np.uint8)
    ink[10:50, 22:28] = 0
    Image.fromarray(ink).save(path)
    return path


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", NAMES)
def test_every_figure_of_an_analysis_can_be_read(name, width, computed):
    every = shipped().get(name) or computed(name)
    assert every, f"{name} ships no result and computes none: nothing shows that it can be read"
    complaints = []
    for result in {(type(one), results.parts(name, one)): one for one in every}.values():
        for part in results.parts(name, result):
            text = results.caption(name, result, part, width=width)
            with TestCase().assertNoLogs("matplotlib.image"):  # of colours out of range
                figure = results.draw(name, result, width, part)
            with results.style():
                defects = legibility.defects(figure, width, text)
            if (tall := figure.get_figheight()) > arrangement.tallest(width) + 0.01:
                defects.append(f"is {tall:.2f} in tall: no float of a paper")
            if "Left out" in results.caption(name, result, part, width=WIDEST):
                defects.append("has no room for all in two columns")
            if unsaid := [one for one in figure.left_out if one not in text.split("Left out")[-1]]:
                defects.append(f"leaves out {unsaid}, and its caption does not say so")
            texts = [text.get_text() for text in figure.findobj(Text)]
            defects += [
                f"a hyphen for a minus: {one!r}"
                for one in texts
                if re.search(r"(?<![\w.)])-\d", one)
            ]
            complaints += [f"{type(result).__name__} {part}: {one}" for one in defects]
    assert not complaints, "\n".join(complaints)
