"""What fixes a matrix capsule network: its settings, and which make none."""

from dataclasses import dataclass, replace
from inspect import signature

from capsviz import memory
from capsviz.nn import routing, stems
from capsviz.nn.models._settings import require_positive, require_shared, settings_from

KERNELS = ((5, 2, 2), (1, 1, 0), (3, 2, 0), (3, 1, 0))  # (kernel, stride, padding) to the classes


@dataclass(frozen=True)
class Config:
    """Everything that fixes a matrix capsule network, its losses included."""

    image_shape: tuple[int, int, int] = (1, 28, 28)  # C, H, W
    classes: int = 10
    channels: int = 64  # A, of the convolution
    types: tuple[int, int, int] = (8, 16, 16)  # B, C, D: primary and convolutional capsules
    pose: tuple[int, int] = (4, 4)  # rows and columns of all poses
    routing: str = "em"  # a file in capsviz/nn/routing
    iterations: int = 2  # of routing, in every layer
    final_temperature: float | None = None  # of EM routing, in every layer; None: J/I of each
    objective: str = "auto"  # "margin", "spread" or "cross_entropy"; the routing's own
    decoder: str = "fully_connected"  # a file in capsviz/nn/decoders
    decoder_norm: bool = False  # batch norm in its hidden layers
    hidden: tuple[int, ...] = (512, 1024)  # units of the fully connected decoder
    reconstruction_metric: str = "l2"  # sum of squared differences; "l1": of absolute ones
    reconstruction_weight: float = 0.0  # of that sum, beside the loss; 0: no decoder, as published
    margin_present: float = 0.9  # m+ of the margin loss
    margin_absent: float = 0.1  # m-
    absent_weight: float = 0.5  # lambda

    @property
    def grids(self) -> list[tuple[int, int, int]]:
        """(types, rows, columns) of the children of each routed layer."""
        sides = self.image_shape[1:]
        return [
            (types, *(stems.places(side, KERNELS[: n + 2]) for side in sides))
            for n, types in enumerate(self.types)
        ]


def check(config: Config) -> None:
    """ValueError for settings that make no network, MemoryError for too large ones."""
    require_positive(config, "channels", "types", "hidden")
    require_shared(config)
    if min(config.pose) < 2:
        raise ValueError(
            f"pose must be rows and columns of a matrix, at least 2, got {config.pose}"
        )
    if config.pose[0] != config.pose[1]:
        raise ValueError(
            f"a pose is multiplied by matrices of its size: got {config.pose}, no square"
        )
    sides = [min(grid[1:]) for grid in config.grids]
    channels, height, width = config.image_shape
    if channels < 1 or min(height, width) < 1 or sides[1] < KERNELS[3][0] - 2 or sides[2] < 1:
        raise ValueError(
            f"images of {channels} x {height} x {width} are too small for two capsule layers of "
            "3x3 windows: expected at least 1 x 13 x 13; enlarge or pad them"
        )
    _, parents, last = config.types
    slots = 9 * (config.types[0] * parents + parents * last)
    memory.require(
        16 * config.pose[0] ** 2 * (slots + last * config.classes),
        "the transformations of the capsules",
        "use fewer capsule types",
    )


def chosen(image_shape: tuple[int, int, int], classes: int, options: dict) -> Config:
    """The settings that options ask for, a routing's own where they do not.

    Raises as `matrix_capsnet.build` does.
    """
    config = settings_from(Config, "matrix_capsnet", image_shape, classes, options)
    module = routing.get(config.routing)
    if "iterations" not in signature(module.route).parameters and "iterations" not in options:
        config = replace(config, iterations=1)
    if config.objective == "auto":
        config = replace(config, objective=getattr(module, "OBJECTIVE", "margin"))
    check(config)
    return config


def temperature(config: Config, grid: tuple, parents: int, kernel: int | None) -> dict[str, float]:
    """What the routing of a layer takes as its temperature, by name, if it takes any."""
    if "final_temperature" not in signature(routing.get(config.routing).route).parameters:
        return {}
    types, rows, columns = grid
    slots = types * (rows * columns if kernel is None else kernel**2)
    final = config.final_temperature
    return {"final_temperature": parents / slots if final is None else final}
