"""Zigzag: a soft zigzag across the image, 2 px up and down, 8 px from peak to peak.

Its axis goes from column 2 to the third last, from any row but the last to one at most 5 above and
4 below. The turns lie 2, 6, 10, ... px along the axis; a last piece comes back towards the axis.
"""

import itertools
import math

import torch

from capsviz.transforms.corruptions import line

HALF_PX, HEIGHT_PX, MARGIN_PX = 2, 2, 2  # half a stroke along the axis; off the axis; at the edge
RISES_PX = range(-5, 5)


def corrupt(images, generator):
    """Draw a zigzag over each image."""
    B, _, H, W = images.shape
    start = torch.randint(0, H - 1, (B,), generator=generator)
    rise = torch.randint(RISES_PX.start, RISES_PX.stop, (B,), generator=generator)
    lines = torch.zeros_like(images)
    for down in RISES_PX:
        these = (rise == down).nonzero().flatten()
        turns = corners(W, down)
        for (x0, y0), (x1, y1) in itertools.pairwise(turns):
            row, one = start[these].double(), torch.ones(len(these))
            lines[these] += line(one * x0, row + y0, one * x1, row + y1, (H, W))
    return (images + lines).clamp(max=1)


def corners(width, down):
    """Ends and turns [(x, y), ...] of the zigzag in px, y down from the row it starts at."""
    angle = math.atan(down / (width - 1 - 2 * MARGIN_PX))
    length = (width - 1 - 2 * MARGIN_PX) / math.cos(angle)
    stroke = 2 * HALF_PX
    along = [(0.0, 0.0)]
    for i in range(int((length - HALF_PX) // stroke) + 1):
        along.append(((2 * i + 1) * HALF_PX, (-1) ** i * HEIGHT_PX))
    whole = stroke * (length // stroke)
    if length != whole:  # the authors' height of the end, not the axis itself
        along.append((length, along[-1][1] / (2 * (length - whole))))
    cos, sin = math.cos(angle), math.sin(angle)
    return [(MARGIN_PX + cos * a - sin * h, sin * a + cos * h) for a, h in along]
