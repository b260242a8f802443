"""Every place at which a crop can be cut from an image, one by one."""

import torch


def windows(image, margin, size):
    """Every size x size window of an image (C, H, W) with a margin of zeros, by its place."""
    C, H, W = image.shape
    padded = torch.zeros(C, H + 2 * margin, W + 2 * margin, dtype=image.dtype)
    padded[:, margin : margin + H, margin : margin + W] = image
    rows, columns = (range(side + 2 * margin - size + 1) for side in (H, W))
    return {(y, x): padded[:, y : y + size, x : x + size] for y in rows for x in columns}
