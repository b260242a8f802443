"""It runs where its weights are: no GPU is written into the code."""

import torch
from torch import Tensor, nn

from capsviz.checks.candidate import Candidate
from capsviz.checks.verdict import About, Judgement, fails, passes
from capsviz.wrapping.environment import follow
from capsviz.wrapping.leaves import leaves
from capsviz.wrapping.taps import TapPass

ABOUT = About(
    paper="none: a matter of code",
    seen="calls of `.cuda()`, and devices of that name, in one pass",
    breaks="the network cannot be run, tested or looked into on another machine",
    mend="make tensors on the device of the input: `torch.zeros(..., device=x.device)`",
    pitfalls=(20,),
    after=(),
)


class Requests(TapPass):
    """Notes where a GPU is asked for."""

    def __init__(self, network: nn.Module):
        super().__init__(network, [])
        self.places: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        named = [leaf for leaf in leaves((args, kwargs or {})) if _is_gpu(leaf)]
        if function is Tensor.cuda or (named and self.device.type != "cuda"):
            frame = self.frame()
            self.places.append(f"{frame.f_code.co_filename.rpartition('/')[2]}:{frame.f_lineno}")
        function, args, kwargs = follow(self.device, function, args, kwargs or {})
        return function(*args, **kwargs)


def examine(candidate: Candidate) -> Judgement:
    """One pass of two images."""
    mode = Requests(candidate.network)
    candidate.run(mode, candidate.images(2))
    places = list(dict.fromkeys(mode.places))
    if places:
        return fails(f"a GPU is asked for in {', '.join(places[:4])}", places=len(places))
    if candidate.recipe.cuda:
        return fails("without a GPU the pass ends in an error that names CUDA", places=1)
    return passes("no GPU is asked for by name", places=0)


def _is_gpu(leaf) -> bool:
    if isinstance(leaf, torch.device):
        return leaf.type == "cuda"
    if isinstance(leaf, str):
        return leaf.partition(":")[0] == "cuda" or leaf.startswith("torch.cuda.")
    return str(leaf).startswith("<class 'torch.cuda.")  # a type of tensors, as of 2017
