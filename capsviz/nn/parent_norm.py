"""Batch norm of parents, for routings that ask for it by PARENTS = "batch_norm"."""

import torch
from torch import Tensor, nn

from capsviz.nn.computation import normed
from capsviz.nn.routing import Parents

CLOSEST = 1e-6  # of an activation to 0 and 1: its logit is a number still


class ParentNorm(nn.Module):
    """Poses, and the logits of activations, each of mean 0 and variance 1 for each type of parent.

    Without gain and shift, as in the authors' code of variational routing (Ribeiro et al. 2020).

    Parameters
    ----------
    parents  J.
    """

    def __init__(self, parents: int):
        super().__init__()
        self.poses = nn.BatchNorm1d(parents, affine=False)
        self.logits = nn.BatchNorm1d(parents, affine=False)

    @property
    def logit_std(self) -> Tensor:
        """What evaluation divides the logits of each type of parent by: (J,)."""
        assert self.logits.running_var is not None
        variance = self.logits.running_var
        exact = torch.promote_types(variance.dtype, torch.float32)
        return (variance.to(exact) + self.logits.eps).sqrt()

    def forward(self, poses: Tensor, activations: Tensor) -> Parents:
        """Poses (B, J, E) and activations (B, J), or (B, J, places) of both."""
        logits = normed(self.logits, torch.logit(activations, CLOSEST))
        return Parents(normed(self.poses, poses), logits.sigmoid())
