"""capsviz: look inside Capsule Networks, and measure how they work."""

from importlib import import_module as _import_module

__version__ = "0.2.0"
_LAZY = {  # name -> module[:name in the module]; keep __init__.pyi, for type checkers, in step
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
_MODULES = ("checks", "data", "plot", "testing")
__all__ = sorted((*_LAZY, *_MODULES, "__version__"))


def __getattr__(name):
    # Import on first use keeps `import capsviz` and `capsviz --help` fast.
    if name in _LAZY:
        module, _, inner_name = _LAZY[name].partition(":")
        return getattr(_import_module(module), inner_name or name)
    if name in _MODULES:
        return _import_module(f"capsviz.{name}")
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")


def __dir__():
    return __all__
