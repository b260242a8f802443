"""Wrap a user-defined capsule network, so that it can be traced and analysed like capsviz's own."""

from importlib import import_module

__all__ = [
    "NoCapsulesError",
    "Wrapped",
    "open_function",
    "open_module",
    "open_network",
    "record",
    "without_cuda",
    "wrap",
]

_LAZY = {
    "NoCapsulesError": "wrapping", "wrap": "wrapping", "Wrapped": "network",
    "open_function": "loading", "open_module": "loading", "open_network": "loading",
    "record": "recorder", "without_cuda": "environment",
}  # fmt: skip


def __getattr__(name):
    if name in _LAZY:
        return getattr(import_module(f"capsviz.wrapping.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'capsviz.wrapping' has no attribute '{name}'")
