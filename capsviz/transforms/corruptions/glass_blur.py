"""Glass blur: pixels swap places with neighbours, between two blurs.

A Gaussian blur of 0.7 px; then, twice, from the bottom right to the top left, every pixel at least
2 px from the upper and left edge swaps with a probability of 1/2 with one that lies 0 or 1 px up
and 0 or 1 px to the left; then the blur again. The authors' call blurs along the columns alone
(scikit-image takes the last axis of an image given as multichannel for its colours), and so does
this. After the first blur they cut pixels down to whole grey values, as here.
"""

import torch

from capsviz.transforms.corruptions import gaussian

SIGMA_PX, REACH_PX, ROUNDS = 0.7, 1, 2  # severity 1


def corrupt(images, generator):
    """Blur, shuffle, blur."""
    blurred = gaussian(images, SIGMA_PX, axes="y") * 255 + 1e-3  # rounding must not cost a value
    blurred = blurred.floor() / 255
    return gaussian(shuffle(blurred, generator), SIGMA_PX, axes="y")


def shuffle(images, generator):
    """Swap pixels (B, 1, H, W) with near ones; no pixel is lost or made."""
    B, _, H, W = images.shape
    order = [
        y * W + x
        for y in range(H - REACH_PX, REACH_PX, -1)
        for x in range(W - REACH_PX, REACH_PX, -1)
    ] * ROUNDS
    steps = (len(order), B)
    swapped = torch.randint(0, 2, steps, generator=generator)
    up, left = torch.randint(0, 2, (2, *steps), generator=generator) - REACH_PX
    moves = swapped * (up * W + left)
    pixels = images.reshape(B, -1).clone()
    for source, move in zip(order, moves, strict=True):
        target = (source + move)[:, None]
        kept = pixels[:, source].clone()
        pixels[:, source] = pixels.gather(1, target)[:, 0]
        pixels.scatter_(1, target, kept[:, None])
    return pixels.view_as(images)
