"""A network in float64, where rounding hides nothing, as far as its code allows."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from capsviz.checks.verdict import UnseenError

SINGLE, DOUBLE = 1e-5, 1e-12


def in_double(network: nn.Module, measure: Callable[..., float]) -> tuple[float, float]:
    """What `measure(network, dtype)` says of a copy in float64, and the rounding of it.

    Code that names its types, or cannot be copied, is measured as it is: by measure(None, float32).
    """
    default = torch.get_default_dtype()
    try:
        double = copy.deepcopy(network).double()
        torch.set_default_dtype(torch.float64)
        return measure(double, torch.float64), DOUBLE
    except UnseenError:
        raise
    except Exception:  # whatever somebody's code does
        torch.set_default_dtype(default)
        return measure(None, torch.float32), SINGLE
    finally:
        torch.set_default_dtype(default)
