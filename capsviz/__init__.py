"""capsviz: look inside Capsule Networks, and test what they are said to do."""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["__version__", "literal", "load", "trace", "wrap"]

_LAZY = {
    "literal": "capsviz.nn.computation",
    "load": "capsviz.checkpoint",
    "trace": "capsviz.tracing",
    "wrap": "capsviz.foreign.wrapping",
}
_MOVED = {  # `from capsviz import NAME`, as the README and the tour of 0.1.0 had it
    "augment": "capsviz.transforms.augment",
    "pipeline": "capsviz.training.run",
    "prediction": "capsviz.pictures.prediction",
    "primary_decoder": "capsviz.experiments.primary_decoder",
}


def __getattr__(name):
    # Imported when first used, so that `import capsviz` and `capsviz --help` cost nothing.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _MOVED:
        return import_module(_MOVED[name])
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")
