"""Motion blur: each pixel is spread along a line at an angle between -45° and 45°.

The authors call ImageMagick's MotionBlurImage(radius 10, sigma 3). Its definition is written anew
here: a pixel is the mean of 21 pixels at 0 ... 20 px along the line, weighted by one half of a
Gaussian of 3 px; each is the nearest whole pixel, and beyond the edge the pixel at the edge. Ours
differs in its numbers' precision (float32; ImageMagick keeps 16 bits), by at most a grey value.
"""

import torch

RADIUS_PX, SIGMA_PX, ANGLE_DEG = 10, 3, 45  # severity 1


def corrupt(images, generator):
    """Blur along a line."""
    angle = (torch.rand(len(images), generator=generator) * 2 - 1) * ANGLE_DEG
    return blur(images, torch.deg2rad(angle.double()))


def blur(images, angle, radius=RADIUS_PX, sigma=SIGMA_PX):
    """Blur (B, C, H, W) along angles (B,) in radians, clockwise from the right."""
    B, _, H, W = images.shape
    steps = torch.arange(2 * radius + 1, dtype=torch.float64)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    weights = (weights / weights.sum()).to(images)
    dx, dy = ((steps[:, None] * part(angle) - 0.5).ceil().long() for part in (torch.cos, torch.sin))
    y, x, which = torch.arange(H)[:, None], torch.arange(W), torch.arange(B)[:, None, None]
    last = images.permute(0, 2, 3, 1)
    total = torch.zeros_like(last)
    for weight, right, down in zip(weights, dx, dy, strict=True):
        rows = (y + down[:, None, None]).clamp(0, H - 1)
        columns = (x + right[:, None, None]).clamp(0, W - 1)
        total += weight * last[which, rows, columns]
    return total.permute(0, 3, 1, 2)
