"""Evaluation mode and no gradients for a while; the network is left as it was found."""

from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

import torch

_lock = Lock()
_under_way: WeakKeyDictionary = WeakKeyDictionary()  # network -> [number of looks, what trained]


@contextmanager
def evaluating(model):
    """Evaluation mode; every module's mode is put back, also after an error.

    If several threads look at one network at a time, the last one puts it back.
    """
    with _lock:
        training = [module for module in model.modules() if module.training]
        entry = _under_way.setdefault(model, [0, training])
        entry[0] += 1
        model.eval()
    try:
        yield
    finally:
        with _lock:
            entry[0] -= 1
            if not entry[0]:
                del _under_way[model]
                for module in entry[1]:
                    module.training = True


@contextmanager
def inference(model):
    """Evaluation mode without gradients; every module's mode is put back, also after an error."""
    with evaluating(model), torch.inference_mode():
        yield
