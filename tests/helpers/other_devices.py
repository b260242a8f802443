"""Tensors on another device, as far as a test can have them where there is none."""

import numpy as np
import torch

from capsviz.statistics.estimate import FIELDS, Estimate


class Elsewhere(torch.Tensor):
    """Of no use until it is brought here by `.cpu()`."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        assert function is torch.Tensor.cpu, f"{function} of a tensor on another device"
        with torch._C.DisableTorchFunctionSubclass():
            return args[0].as_subclass(torch.Tensor)


def elsewhere(*tensors):
    """The same tensors, on another device."""
    return [tensor.as_subclass(Elsewhere) for tensor in tensors]


def same(one, two):
    """Whether two results hold the same; an estimate by its parts."""
    if isinstance(one, Estimate):
        parts = (tuple(getattr(e, name) for name in FIELDS) for e in (one, two))
        return isinstance(two, Estimate) and same(*parts)
    if isinstance(one, tuple):
        return all(same(a, b) for a, b in zip(one, two, strict=True))
    return np.array_equal(one, two, equal_nan=np.asarray(one).dtype.kind == "f")


class Metal(torch.Tensor):
    """As on a device without float64 (MPS), until it is brought here by `.cpu()`."""

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        if function is torch.Tensor.cpu:
            with torch._C.DisableTorchFunctionSubclass():
                return args[0].as_subclass(torch.Tensor)
        made = super().__torch_function__(function, types, args, kwargs)
        for one in made if isinstance(made, tuple | list) else [made]:
            if isinstance(one, torch.Tensor) and one.dtype in (torch.float64, torch.complex128):
                raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return made


def on_metal(network):
    """The same network, with its weights on such a device."""
    for module in network.modules():
        for tensors in (module._parameters, module._buffers):
            for name, value in tensors.items():
                if value is not None:
                    moved = value.detach().as_subclass(Metal)
                    own = isinstance(value, torch.nn.Parameter)
                    tensors[name] = torch.nn.Parameter(moved) if own else moved
    return network
