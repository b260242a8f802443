"""capsviz: look inside Capsule Networks, and measure how they work."""

from importlib import import_module as _import_module

__version__ = "0.2.0"
_LAZY = {  # name -> its module, and its name there; __init__.pyi says the same to type checkers
    "CapsNet": "capsviz.nn.models.capsnet",
    "Dataset": "capsviz.data",
    "Trace": "capsviz.tracing",
    "datasets": "capsviz.data:available",
    "literal": "capsviz.nn.computation",
    "load": "capsviz.checkpoint",
    "models": "capsviz.checkpoint:shipped",
    "open_image": "capsviz.pictures",
    "overlay": "capsviz.plot",
    "save": "capsviz.training.cards",
    "trace": "capsviz.tracing",
    "wrap": "capsviz.wrapping.wrapping",
}
_ROOMS = ("checks", "data", "plot", "testing")  # modules that are offered whole
__all__ = sorted((*_LAZY, *_ROOMS, "__version__"))


def __getattr__(name):
    # Imported when first used, so that `import capsviz` and `capsviz --help` cost nothing.
    if name in _LAZY:
        module, _, there = _LAZY[name].partition(":")
        return getattr(_import_module(module), there or name)
    if name in _ROOMS:
        return _import_module(f"capsviz.{name}")
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")


def __dir__():
    return __all__
