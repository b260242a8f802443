"""The code names a GPU, so that the network runs on no other device."""

import torch
from torch import Tensor, nn

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.wrapping.environment import follow
from capsviz.wrapping.leaves import leaves
from capsviz.wrapping.taps import TapPass

ABOUT = About(
    paper="none",
    breaks="the network cannot be run, tested or examined on another machine",
    fix="create tensors on the device of the input: `torch.zeros(..., device=x.device)`",
    after=(),
)


class Requests(TapPass):
    """Notes where a GPU is requested."""

    def __init__(self, network: nn.Module):
        super().__init__(network, [])
        self.lines: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = [leaf for leaf in leaves((args, kwargs or {})) if _is_gpu(leaf)]
        if function is Tensor.cuda or (named and self.device.type != "cuda"):
            frame = self.frame()
            self.lines.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        function, args, kwargs = follow(self.device, function, args, kwargs or {})
        return function(*args, **kwargs)


def examine(candidate: Candidate) -> Judgement:
    """Watch one pass for `.cuda()` and devices of that name."""
    mode = Requests(candidate.network)
    candidate.caller.run(mode, candidate.images(2))
    lines = list(dict.fromkeys(mode.lines))
    if lines:
        return fails(f"the code asks for a GPU in {', '.join(lines[:4])}", lines=len(lines))
    if candidate.caller.recipe.cuda:
        return fails("without a GPU the pass ends in an error that names CUDA", lines=1)
    return passes("the code names no GPU", lines=0)


def _is_gpu(leaf) -> bool:
    if isinstance(leaf, torch.device):
        return leaf.type == "cuda"
    if isinstance(leaf, str):
        return leaf.partition(":")[0] == "cuda" or leaf.startswith("torch.cuda.")
    return str(leaf).startswith("<class 'torch.cuda.")  # a type of tensors, as in 2017
