"""capsviz: look inside Capsule Networks, and measure how they work."""

from importlib import import_module as _import_module

__version__ = "0.2.0"
__all__ = [
    "CapsNet",
    "Dataset",
    "Trace",
    "__version__",
    "checks",
    "data",
    "literal",
    "load",
    "open_image",
    "plot",
    "save",
    "testing",
    "trace",
    "wrap",
]

_LAZY = {  # name -> its module; __init__.pyi says the same to type checkers
    "CapsNet": "capsviz.nn.models.capsnet",
    "Dataset": "capsviz.data",
    "Trace": "capsviz.tracing",
    "literal": "capsviz.nn.computation",
    "load": "capsviz.checkpoint",
    "open_image": "capsviz.pictures",
    "save": "capsviz.training.cards",
    "trace": "capsviz.tracing",
    "wrap": "capsviz.wrapping.wrapping",
}
_ROOMS = ("checks", "data", "plot", "testing")  # modules that are offered whole


def __getattr__(name):
    # Imported when first used, so that `import capsviz` and `capsviz --help` cost nothing.
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    if name in _ROOMS:
        return _import_module(f"capsviz.{name}")
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")


def __dir__():
    return sorted(__all__)
