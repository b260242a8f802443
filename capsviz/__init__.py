"""capsviz: look inside Capsule Networks, and test what they are said to do."""

__version__ = "0.1.0"
__all__ = ["__version__", "load", "trace"]


def __getattr__(name):
    # Imported when first used, so that `import capsviz` and `capsviz --help` cost nothing.
    if name == "load":
        from capsviz.checkpoint import load

        return load
    if name == "trace":
        from capsviz import trace as module

        return module.trace
    raise AttributeError(f"module 'capsviz' has no attribute '{name}'")
