"""capsviz: look inside Capsule Networks, and test what they are said to do."""

from importlib import import_module

__version__ = "0.1.0"
__all__ = ["__version__", "load", "trace"]

_LAZY = {"load": "capsviz.checkpoint", "trace": "capsviz.tracing"}


def __getattr__(name):
    # Imported when first used, so that `import capsviz` and `capsviz --help` cost nothing.
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")
