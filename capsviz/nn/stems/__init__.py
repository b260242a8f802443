"""Stems: each file here computes from the image the features of primary capsules.

A file offers `build(image_shape, types, dimensions) -> Stem` and LAYERS, (kernel, stride, padding)
of its layers. The features are the capsules' poses before any nonlinearity: channel
type * dimensions + d holds entry d of the capsules of a type. A stem may raise ValueError for sizes
that it does not support.
"""

from torch import Tensor, nn

from capsviz.discovery import load, parameters

PACKAGE = "capsviz.nn.stems"


class Stem(nn.Module):
    """Layers from images (B, C, H, W) to features (B, types * dimensions, rows, columns)."""

    inner: int  # channels before the last layer
    final: str  # name of the last layer

    def before(self, images: Tensor) -> Tensor:
        """Return the features before the last layer: (B, inner, h, w)."""
        raise NotImplementedError

    def last(self, features: Tensor) -> Tensor:
        """Apply the last layer: (B, inner, h, w) to (B, types * dimensions, rows, columns)."""
        return getattr(self, self.final)(features)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (B, types * dimensions, rows, columns) of images (B, C, H, W)."""
        return self.last(self.before(images))


def build(
    name: str, image_shape: tuple[int, int, int], types: int, dimensions: int, **options
) -> Stem:
    """Make a stem by its name; options that it does not have are ignored.

    ValueError for an unknown name or unsupported sizes.
    """
    positions(name, image_shape)
    make = load(PACKAGE, name, what="stem").build
    own = {k: v for k, v in options.items() if k in parameters(make)}
    return make(tuple(image_shape), types, dimensions, **own)


def layers(name: str) -> tuple[tuple[int, int, int], ...]:
    """Return (kernel, stride, padding) of a stem's layers; ValueError for an unknown name."""
    return load(PACKAGE, name, what="stem").LAYERS


def positions(name: str, image_shape: tuple[int, int, int]) -> tuple[int, int]:
    """Return rows and columns of a stem's features; ValueError for images that are too small."""
    channels, height, width = image_shape
    rows, columns = (places(side, layers(name)) for side in (height, width))
    if min(channels, rows, columns) < 1:
        raise ValueError(
            f"images of {channels} x {height} x {width} are too small for the stem '{name}', "
            f"which sees {field(layers(name))[2]} pixels at once: enlarge or pad them"
        )
    return rows, columns


def places(side: int, layers) -> int:
    """Return the positions along `side` pixels after layers of (kernel, stride, padding)."""
    for kernel, stride, padding in layers:
        side = (side + 2 * padding - kernel) // stride + 1
    return side


def field(layers) -> tuple[int, int, int]:
    """Return the first pixel seen by position 0, the step between positions, and the size seen."""
    start, jump, size = 0, 1, 1
    for kernel, stride, padding in layers:
        start -= padding * jump
        size += (kernel - 1) * jump
        jump *= stride
    return start, jump, size


def window(layers, image_shape, row: int, column: int) -> tuple[slice, slice]:
    """Return rows and columns of images (C, H, W) that a position after the layers sees."""
    start, jump, size = field(layers)
    rows, columns = (
        slice(max(0, start + place * jump), min(side, start + place * jump + size))
        for place, side in zip((row, column), image_shape[1:], strict=True)
    )
    return rows, columns
