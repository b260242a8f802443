"""Prepared cases to begin a lesson with: an image, how it is turned, and a question about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from capsviz.explorer.network import Networks
from capsviz.explorer.source import SHEET_PX, from_opacity


class Case(NamedTuple):
    """One prepared image."""

    key: str  # in a link
    name: str
    question: str
    image: Tensor  # (1, C, H, W) in [0, 1]
    label: int | None  # its class, where it has one
    angle_deg: float = 0.0  # that it is turned by, on the page


FOUR_OR_NINE = (
    ((100, 58), (92, 100), (98, 134), (134, 144), (178, 128)),
    ((100, 58), (122, 42), (146, 42)),
    ((186, 60), (178, 128), (172, 240)),
)
TWO_DIGITS = (
    ((40, 90), (52, 66), (80, 60), (104, 76), (108, 104), (88, 140), (44, 204), (120, 200)),
    ((150, 66), (236, 64), (206, 128), (186, 206)),
)
SHOE = (
    (24, 120), (48, 112), (82, 132), (112, 128), (140, 112), (160, 136), (200, 158), (244, 166),
    (258, 182), (258, 204), (24, 204),
)  # fmt: skip
WIDTH = 22  # of a stroke, px of the sheet


def prepared(networks: Networks) -> list[Case]:
    """The cases for the images of two networks: those that are drawn are for digits alone.

    Test images are the first of their class, so that the cases are always the same.
    """
    classes = networks.classes
    easy, turned = min(2, len(classes) - 1), min(7, len(classes) - 1)
    test = (
        Case("easy", "easy", "Which part of the image speaks for its class, which against it?",
             networks.test_image(easy, 0), easy),
        Case("upside-down", "upside down",
             "What is it taken for? Turn it back by the angle: where does the answer change?",
             networks.test_image(turned, 0), turned, 180.0),
    )  # fmt: skip
    if not networks.frame.centred or tuple(classes) != tuple("0123456789"):
        return list(test)
    frame = networks.frame
    drawn = (
        Case("4-or-9", "4 or 9", "Which is longer, 4 or 9, and in which network? Do both say no?",
             from_opacity(_sheet(_strokes(FOUR_OR_NINE)), frame), None),
        Case("two-digits", "two digits",
             "Capsules can be long for two classes at once, a softmax cannot: what do they do?",
             from_opacity(_sheet(_strokes(TWO_DIGITS)), frame), None),
        Case("shoe", "a shoe", "No digit at all: does the network say so, or name one?",
             from_opacity(_sheet(lambda pen: pen.polygon(SHOE, fill=255)), frame), None),
    )  # fmt: skip
    return [test[0], drawn[0], drawn[1], test[1], drawn[2]]


def _strokes(lines) -> Callable:
    def draw(pen):
        for line in lines:
            pen.line(line, fill=255, width=WIDTH, joint="curve")
            for x, y in (line[0], line[-1]):
                r = WIDTH // 2
                pen.ellipse((x - r, y - r, x + r, y + r), fill=255)

    return draw


def _sheet(draw: Callable) -> np.ndarray:
    """Ink (SHEET_PX, SHEET_PX) uint8."""
    sheet = Image.new("L", (SHEET_PX, SHEET_PX))
    draw(ImageDraw.Draw(sheet))
    return np.asarray(sheet)
