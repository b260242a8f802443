"""Many images: which class is read, and where none is."""

import torch

from capsviz.tracing.many import winners


def test_the_largest_activation_is_read_and_none_where_another_is_as_large():
    rows = torch.tensor([[0.1, 0.3, 0.2], [0.3, 0.1, 0.3], [0.0, 0.0, 0.0], [2e-9, 1e-9, 1e-9]])
    assert winners(rows).tolist() == [1, -1, -1, 0]
    assert winners(rows[None]).shape == (1, 4)
    close = torch.tensor([[0.5, 0.5 * (1 - 1e-7)], [0.5, 0.5 * (1 - 1e-5)]]).double()
    assert winners(close).tolist() == [-1, 0]
    assert winners(torch.tensor([[0.2]])).tolist() == [0]
