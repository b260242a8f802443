"""Colours as a deuteranope meets them, and how far apart two colours are."""

from __future__ import annotations

import numpy as np

# Machado, Oliveira & Fernandes 2009, table 1, severity 1.0; of linear RGB
DEUTERANOPIA = np.array([
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
])  # fmt: skip
XYZ = np.array([
    [0.4124564, 0.3575761, 0.1804375],
    [0.2126729, 0.7151522, 0.0721750],
    [0.0193339, 0.1191920, 0.9503041],
])  # fmt: skip  # of linear sRGB, white D65


def linear(colours) -> np.ndarray:
    """sRGB in [0, 1] (..., 3) to linear RGB (IEC 61966-2-1)."""
    c = np.asarray(colours, float)
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def lab(colours, *, deuteranope=False) -> np.ndarray:
    """sRGB in [0, 1] (..., 3) to CIELAB, white D65; with a deuteranope's two cones if asked."""
    rgb = linear(colours)
    if deuteranope:
        rgb = (rgb @ DEUTERANOPIA.T).clip(0, 1)
    t = rgb @ XYZ.T / XYZ.sum(1)
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t * (29 / 6) ** 2 / 3 + 4 / 29)
    x, y, z = np.moveaxis(f, -1, 0)
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], -1)


def ciede2000(one, other) -> np.ndarray:
    """Colour difference of CIELAB colours (..., 3), as Sharma, Wu & Dalal 2005 write it."""
    (L1, a1, b1), (L2, a2, b2) = np.moveaxis(one, -1, 0), np.moveaxis(other, -1, 0)
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    G = 0.5 * (1 - np.sqrt(mean**7 / (mean**7 + 25.0**7)))
    a1, a2 = a1 * (1 + G), a2 * (1 + G)
    C1, C2 = np.hypot(a1, b1), np.hypot(a2, b2)
    h1, h2 = np.degrees(np.arctan2(b1, a1)) % 360, np.degrees(np.arctan2(b2, a2)) % 360
    grey = C1 * C2 == 0
    dh = np.where(grey, 0, (h2 - h1 + 180) % 360 - 180)
    dL, dC = L2 - L1, C2 - C1
    dH = 2 * np.sqrt(C1 * C2) * np.sin(np.radians(dh / 2))
    L, C = (L1 + L2) / 2, (C1 + C2) / 2
    apart = np.abs(h1 - h2) > 180
    h = np.where(grey, h1 + h2, (h1 + h2 + np.where(apart, 360, 0)) / 2)
    cos = lambda degrees: np.cos(np.radians(degrees))  # noqa: E731
    T = (1 - 0.17 * cos(h - 30) + 0.24 * cos(2 * h)
         + 0.32 * cos(3 * h + 6) - 0.20 * cos(4 * h - 63))  # fmt: skip
    SL = 1 + 0.015 * (L - 50) ** 2 / np.sqrt(20 + (L - 50) ** 2)
    SC, SH = 1 + 0.045 * C, 1 + 0.015 * C * T
    RC = 2 * np.sqrt(C**7 / (C**7 + 25.0**7))
    RT = -np.sin(np.radians(60 * np.exp(-(((h - 275) / 25) ** 2)))) * RC
    c, k = dC / SC, dH / SH
    return np.sqrt((dL / SL) ** 2 + c**2 + k**2 + RT * c * k)
