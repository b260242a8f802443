"""Seeded draws and the sizes of the small tests: all different, so that a swapped axis fails."""

import torch

B, I, J, D, E = 2, 3, 5, 4, 7


def draw(*shape, seed=0, dtype=torch.float64):
    """A normal draw that is the same in every run."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def inputs(dtype=torch.float64, children=I, biased=True):
    """primary (B, I, D), weight (I, J, E, D), bias (J, E) or None."""
    primary = draw(B, children, D, seed=1, dtype=dtype)
    weight = draw(children, J, E, D, seed=2, dtype=dtype)
    return primary, weight, draw(J, E, seed=3, dtype=dtype) if biased else None


def votes_of(primary, weight):
    """(B, I, D), (I, J, E, D) -> (B, I, J, E)."""
    return torch.einsum("ijed,bid->bije", weight, primary)
