"""Evaluation mode and no gradients for a while; the network is left as it was found."""

from contextlib import contextmanager

import torch


@contextmanager
def evaluating(model):
    """Evaluation mode; every module's mode is put back, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


@contextmanager
def inference(model):
    """Evaluation mode without gradients; every module's mode is put back, also after an error."""
    with evaluating(model), torch.inference_mode():
        yield
