"""Wholes made of oriented parts, 64x64, drawn from a seed: it is known which part belongs to which.

Parts have six shapes of equal area (triangle, corner, tee, half disc, arc, trapezoid). A class is a
fixed arrangement of parts. Two classes share each arrangement: in the second, one part is rotated
by 180 degrees about its centroid. Only the angle between parts distinguishes the two classes; their
part shapes and sums of pixels are equal. Neighbouring arrangements share part shapes. No class is a
rotation of another, because the parts of a whole have different shapes.

Each whole has a position, an angle and a scale; each part has a jitter and a brightness. Where
parts overlap, the brighter one is visible. Further parts, the distractors, belong to no whole.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, astuple
from functools import cache, lru_cache
from typing import Annotated, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from capsviz.data import Dataset
from capsviz.discovery import require_known
from capsviz.validation import validated

SIDE = 64
SIZES = {
    "train": 20_000, "validation": 2_000, "test": 10_000,
    "test-outside": 10_000, "test-combinations": 10_000,
}  # fmt: skip
SPLITS = tuple(SIZES)
OUTSIDE_DEG = 180  # largest rotation of test-outside; the smallest is the largest of training
AREA = 1.2  # of a part, in units of its squared radius
RADIUS_PX, PATCH = 4.5, 16  # radius of a part; side in px of the patch that it is drawn in
APART_PX = {"near": 11.0, "far": 22.0}  # between the centres of neighbouring parts
SCALE, BRIGHTNESS = (0.9, 1.1), (0.6, 1.0)
ARRANGEMENTS, CHUNK, ATTEMPTS = 5, 1_000, 200
HELD_OUT = 2  # training images never combine two classes a, b with (a + b) % 5 equal to this
IMAGE_SHAPE = (1, SIDE, SIDE)
CLASSES = tuple(f"{letter}{turned}" for letter in "ABCDE" for turned in ("", "'"))


class Assemblies(NamedTuple):
    """N images of W wholes and P parts (distractors last), with their ground truth.

    A pose is (x, y, angle, scale): the centre in px from the left and top, and the angle in radians
    from x to y.
    """

    images: Tensor  # (N, 1, 64, 64) uint8
    classes: Tensor  # (N, W) int64, of each whole
    poses: Tensor  # (N, W, 4) float32, of each whole
    part_types: Tensor  # (N, P) int64, index into KINDS
    part_poses: Tensor  # (N, P, 4) float32
    part_wholes: Tensor  # (N, P) int64, index of its whole, -1 for a distractor
    part_brightness: Tensor  # (N, P) float32

    def alone(self, whole: int) -> Tensor:
        """Draw the parts of one whole alone: (N, 1, 64, 64) uint8."""
        bright = self.part_brightness.where(self.part_wholes == whole, 0.0)
        return render(self.part_types, self.part_poses, bright)

    def seen(self, centres: Tensor, field_px: float) -> tuple[Tensor, Tensor]:
        """Return the part, and its whole, that fills most of each square receptive field.

        Both are indices (N, ...). The part is -1 if no part has a tenth of its brightness in the
        field. The whole is -1 for a distractor, or if there is no part. `centres` (..., 2) are x
        and y in px, such as a grid (rows, columns, 2). `field_px` is the side of a field.
        """
        N, P = self.part_types.shape
        low = (centres - field_px / 2).round().long()
        most, best = torch.zeros(N, *low.shape[:-1]), torch.full((N, *low.shape[:-1]), -1)
        for part in range(P):
            only = self.part_brightness.where(torch.arange(P) == part, 0.0)
            drawn = render(self.part_types, self.part_poses, only)[:, 0].float()
            within = box_sums(drawn, low, low + round(field_px))
            least = 0.1 * drawn.sum((1, 2)).view(N, *[1] * (low.dim() - 1))
            larger = (within > most) & (within >= least)
            most, best = within.where(larger, most), torch.where(larger, part, best)
        wholes = self.part_wholes.gather(1, best.clamp(0).flatten(1)).view_as(best)
        return best, wholes.where(best >= 0, -1)


def box_sums(images: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Return sums (N, ...) of images (N, 64, 64) over boxes from `low` to `high`, (..., 2) x, y."""
    sums = torch.nn.functional.pad(images.cumsum(1).cumsum(2), (1, 0, 1, 0))
    (x0, y0), (x1, y1) = (edge.clamp(0, SIDE).unbind(-1) for edge in (low, high))
    return sums[:, y1, x1] - sums[:, y0, x1] - sums[:, y1, x0] + sums[:, y0, x0]


@validated
class Layout:
    """The options of `load`."""

    objects: Annotated[int, Field(ge=1, le=2)] = 1
    parts: Annotated[int, Field(ge=2, le=4)] = 2
    distance: Literal["near", "far"] = "near"
    jitter: Annotated[float, Field(ge=0, le=3)] = 0.5
    distractors: Annotated[int, Field(ge=0, le=6)] = 1
    overlap: bool = True
    rotation: Annotated[int, Field(ge=0, le=OUTSIDE_DEG)] = 30
    seed: int = 0


def load(
    split, root=None, *, objects=1, parts=2, distance="near", jitter=0.5, distractors=1,
    overlap=True, rotation=30, seed=0,
):  # fmt: skip
    """Load 20,000 train, 2,000 validation or 10,000 test images (N, 1, 64, 64).

    The split "test-outside" has rotations outside the training range, up to 180 degrees in both
    directions. "test-combinations" (for two objects) has the pairs of classes that no other split
    combines.

    Parameters
    ----------
    objects      wholes in an image, 1 or 2; for 2, labels are (N, 2), and `parts` of the data set
                 shows each whole alone.
    parts        parts in a whole, 2 to 4.
    distance     "near": the centres of neighbouring parts are 11 px apart, within a receptive field
                 of 17 px; "far": 22 px.
    jitter       largest shift of a part in px; rotation moves its rim by as much.
    distractors  number of parts that belong to no whole.
    overlap      whether wholes and distractors may overlap.
    rotation     largest rotation of wholes in degrees, in both directions.

    ValueError for values that contradict each other.
    """
    layout = Layout(objects, parts, distance, jitter, distractors, overlap, rotation, seed)
    made = make(split, SIZES[split], **asdict(layout))
    alone = torch.stack([made.alone(k) for k in range(objects)], 1) if objects > 1 else None
    labels = made.classes if objects > 1 else made.classes[:, 0]
    return Dataset(made.images, labels, CLASSES, "assemblies", split, parts=alone)


def truth(split, **options):
    """Return the ground truth of `load`: the fields of `Assemblies` except images and classes."""
    fields = make(split, SIZES[split], **options)._asdict()
    return {name: known for name, known in fields.items() if name not in ("images", "classes")}


@lru_cache(maxsize=3)
def make(split: str, n: int, **options) -> Assemblies:
    """Make n images with their ground truth; the first images do not depend on n.

    Parameters and errors are those of `load`.
    """
    layout = Layout(**options)
    require_known("split", split, SPLITS)
    if split == "test-outside" and layout.rotation == OUTSIDE_DEG:
        raise ValueError("there is no rotation outside ±180 degrees: choose a smaller rotation")
    if split == "test-combinations" and layout.objects == 1:
        raise ValueError("one whole has no combinations: choose objects=2")
    chunks = []
    for number in range(-(-n // CHUNK)):
        seed = (layout.seed * 101 + SPLITS.index(split)) * 1_000_003 + number
        draw = torch.Generator().manual_seed(seed % 2**63)
        chunks.append(_draw_truth(draw, split, layout))
    joined = [torch.cat(values)[:n] for values in zip(*chunks, strict=True)]
    classes, poses, types, part_poses, wholes, bright = joined
    each = zip(*(values.split(CHUNK) for values in (types, part_poses, bright)), strict=True)
    images = torch.cat([render(*some) for some in each])
    return Assemblies(images, classes, poses, types, part_poses, wholes, bright)


def arrangement(index: int, parts: int, apart_px: float) -> tuple[Tensor, Tensor]:
    """Return the shapes (parts,) and poses (parts, 4) about the centre of a class, 0 to 9."""
    pair, turned = divmod(index, 2)
    number = torch.arange(parts)
    around = 2 * math.pi * number / parts
    radius = apart_px / (2 * math.sin(math.pi / parts))
    angle = (5 * pair + 7 * number) * (math.pi / 4) + math.pi * turned * (number == 1)
    poses = [radius * around.cos(), radius * around.sin(), angle, torch.ones(parts)]
    return (pair + number) % len(KINDS), torch.stack(poses, 1)


def _draw_truth(draw, split: str, options: Layout) -> tuple[Tensor, ...]:
    """Draw the ground truth of a chunk: the fields of `Assemblies` without the images."""

    def uniform(low, high, *shape):
        return low + (high - low) * torch.rand(*shape, generator=draw)

    objects, parts, distance, jitter, distractors, overlap, rotation, _ = astuple(options)
    N, P = CHUNK, objects * parts + distractors
    each = (arrangement(k, parts, APART_PX[distance]) for k in range(len(CLASSES)))
    kinds, layout = map(torch.stack, zip(*each, strict=True))
    classes = _classes(draw, split, objects)
    angle = math.radians(rotation) * uniform(-1, 1, N, objects)
    if split == "test-outside":
        beyond = uniform(rotation, OUTSIDE_DEG, N, objects)
        angle = torch.deg2rad(beyond) * angle.sign()
    scale = uniform(*SCALE, N, objects)
    rim = RADIUS_PX * REACH * SCALE[1] + jitter
    reach = layout[0, 0, :2].norm() * scale + rim  # of a whole, around its centre
    own_reach = torch.full((N, distractors), float(rim))
    centres = _place(draw, torch.cat([reach, own_reach], 1), overlap)

    own = layout[classes]  # (N, W, parts, 4)
    cos, sin = angle.cos()[..., None], angle.sin()[..., None]
    x, y = own[..., 0] * scale[..., None], own[..., 1] * scale[..., None]
    moved = torch.stack([cos * x - sin * y, sin * x + cos * y], -1) + centres[:, :objects, None]
    moved = moved + uniform(-jitter, jitter, *moved.shape)
    turn = own[..., 2] + angle[..., None] + uniform(-1, 1, N, objects, parts) * jitter / RADIUS_PX
    poses = torch.cat([moved, turn[..., None], scale[..., None, None].expand(-1, -1, parts, 1)], -1)
    own_turn = uniform(-math.pi, math.pi, N, distractors, 1)
    own_scale = uniform(*SCALE, N, distractors, 1)
    free = torch.cat([centres[:, objects:], own_turn, own_scale], -1)
    wholes = torch.arange(objects).repeat_interleave(parts)
    wholes = torch.cat([wholes, torch.full((distractors,), -1)]).expand(N, P)
    free_kinds = torch.randint(len(KINDS), (N, distractors), generator=draw)
    return (
        classes,
        torch.cat([centres[:, :objects], angle[..., None], scale[..., None]], -1),
        torch.cat([kinds[classes].flatten(1), free_kinds], 1),
        torch.cat([poses.flatten(1, 2), free], 1),
        wholes,
        uniform(*BRIGHTNESS, N, P),
    )


def _classes(draw, split: str, objects: int) -> Tensor:
    """Draw the classes (CHUNK, objects) of wholes, uniformly over the combinations of a split."""
    count = len(CLASSES)
    if objects == 1:
        return torch.randint(count, (CHUNK, 1), generator=draw)
    a, b = torch.meshgrid(torch.arange(count), torch.arange(count), indexing="ij")
    allowed = ((a + b) % ARRANGEMENTS == HELD_OUT) == (split == "test-combinations")
    both = (allowed & (a != b)).nonzero()
    return both[torch.randint(len(both), (CHUNK,), generator=draw)]


def _place(draw, reach: Tensor, overlap: bool) -> Tensor:
    """Draw centres (N, K, 2) of discs of radius `reach` (N, K) that lie inside the image."""
    span = SIDE - 1 - 2 * reach  # at least 10 px for any `Layout`
    N, K = reach.shape
    centres = torch.empty(N, K, 2)
    left = torch.arange(N)
    for _ in range(ATTEMPTS):
        drawn = torch.rand(len(left), K, 2, generator=draw)
        centres[left] = reach[left, :, None] + span[left, :, None] * drawn
        if overlap or K == 1:
            return centres
        gaps = torch.cdist(centres[left], centres[left]) - reach[left, :, None] - reach[left, None]
        clear = (gaps + torch.eye(K) * 4 * SIDE >= 0).flatten(1).all(1)
        left = left[~clear]
        if not len(left):
            return centres
    raise ValueError(
        f"{K} objects without overlap do not fit into {SIDE}x{SIDE} px: choose overlap=true, "
        "distance=near or fewer distractors"
    )


def render(types: Tensor, poses: Tensor, brightness: Tensor) -> Tensor:
    """Draw parts, antialiased: types (N, P), poses (N, P, 4), brightness (N, P) -> uint8 images."""
    N, P = types.shape
    kinds, poses, bright = types.flatten(), poses.flatten(0, 1), brightness.flatten()
    corner = (poses[:, :2] - PATCH / 2).ceil()
    grid = torch.arange(PATCH, dtype=torch.float32)
    dx = corner[:, 0, None] + grid - poses[:, 0, None]
    dy = corner[:, 1, None] + grid - poses[:, 1, None]
    cos, sin = poses[:, 2].cos()[:, None, None], poses[:, 2].sin()[:, None, None]
    unit = (RADIUS_PX * poses[:, 3])[:, None, None]  # px
    u = (cos * dx[:, None, :] + sin * dy[:, :, None]) / unit
    v = (cos * dy[:, :, None] - sin * dx[:, None, :]) / unit
    covered = torch.zeros(N * P, PATCH, PATCH)
    for kind, shape in enumerate(KINDS):
        of_kind = ((kinds == kind) & (bright > 0)).nonzero().flatten()
        distance = _normalised(shape)(u[of_kind], v[of_kind]) * unit[of_kind]
        covered[of_kind] = (0.5 - distance).clamp(0, 1)
    wide = SIDE + 2 * PATCH  # a patch may reach over the edge of the image
    rows, columns = (corner[:, axis, None].long() + PATCH + torch.arange(PATCH) for axis in (1, 0))
    image = torch.arange(N).repeat_interleave(P)[:, None, None]
    index = (image * wide + rows[:, :, None]) * wide + columns[:, None]
    canvas = torch.zeros(N * wide * wide)
    values = covered * bright[:, None, None]
    canvas.scatter_reduce_(0, index.flatten(), values.flatten(), "amax")
    within = slice(PATCH, PATCH + SIDE)
    canvas = canvas.view(N, 1, wide, wide)[..., within, within]
    return (canvas * 255).round().to(torch.uint8)


def _polygon(*corners: tuple[float, float]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the signed distance to a convex polygon; corners clockwise, with y down."""
    sides = []
    for (x, y), (to_x, to_y) in zip(corners, (*corners[1:], corners[0]), strict=True):
        length = math.hypot(to_x - x, to_y - y)
        sides.append(((to_y - y) / length, (x - to_x) / length, x, y))

    def distance(u: Tensor, v: Tensor) -> Tensor:
        return torch.stack([nx * (u - x) + ny * (v - y) for nx, ny, x, y in sides]).amax(0)

    return distance


def _box(left: float, top: float, right: float, bottom: float):
    return _polygon((left, top), (right, top), (right, bottom), (left, bottom))


def _union(*shapes):
    return lambda u, v: torch.stack([shape(u, v) for shape in shapes]).amin(0)


KINDS = (  # signed distances to the shapes, as functions of (u, v) in units of their radius
    _polygon((0, -1.2), (0.75, 0.8), (-0.75, 0.8)),  # a triangle that points up
    _union(_box(-0.8, -1, -0.25, 1), _box(-0.8, 0.45, 0.9, 1)),  # a corner, L
    _union(_box(-0.27, -1, 0.27, 1), _box(-0.9, -1, 0.9, -0.46)),  # a tee, T
    lambda u, v: torch.maximum(torch.hypot(u, v) - 1, v),  # the upper half of a disc
    lambda u, v: torch.maximum((torch.hypot(u, v) - 0.85).abs() - 0.25, v - 0.2),  # an arc
    _polygon((-0.3, -0.8), (0.3, -0.8), (1, 0.6), (-1, 0.6)),  # a trapezoid, narrow at the top
)
REACH = 1.25  # bound on the distance of a part's points to its centroid, in units of its radius


@cache
def _normalised(shape: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a shape centred at its centroid and scaled so that its drawn area is `AREA`."""
    steps = torch.linspace(-2, 2, 801)
    v, u = torch.meshgrid(steps, steps, indexing="ij")
    grown, threads = 1.0, torch.get_num_threads()
    torch.set_num_threads(1)  # sums depend on the number of threads in their last digit
    try:
        for _ in range(4):  # iterate: the soft edge is a pixel wide whatever the size
            covered = (0.5 - shape(u, v) * grown * RADIUS_PX).clamp(0, 1)
            area = float(covered.sum()) * (4 / 800) ** 2
            grown = math.sqrt(AREA / area)
        middle_u, middle_v = (float((covered * c).sum() / covered.sum()) for c in (u, v))
    finally:
        torch.set_num_threads(threads)
    return lambda u, v: shape(u / grown + middle_u, v / grown + middle_v) * grown
