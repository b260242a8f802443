"""Wrap a user-defined capsule network, so that it can be traced and analysed like capsviz's own."""

from capsviz.wrapping.environment import without_cuda
from capsviz.wrapping.loading import open_function, open_module, open_network
from capsviz.wrapping.network import Wrapped
from capsviz.wrapping.wrapping import NoCapsulesError, wrap

__all__ = [
    "NoCapsulesError",
    "Wrapped",
    "open_function",
    "open_module",
    "open_network",
    "without_cuda",
    "wrap",
]
