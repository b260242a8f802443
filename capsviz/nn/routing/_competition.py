"""Who competes for a child, block by block: the parents of one place, or those of all its places.

A convolution's places are folded into the batch: position b * Q + q is place q of image b, and the
children of a position are its slots. All parents that see a child, at whatever place, share it.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from capsviz.nn.links import Links
from capsviz.nn.routing._parts import in_blocks


class Alone:
    """The parents of one place: a softmax over them."""

    def blocks(self, slots: int, bytes_per_slot: int, device: torch.device) -> list[slice]:
        """Slots that are computed at a time."""
        return in_blocks(slots, bytes_per_slot, device)

    def pieces(self, positions: int, *sizes) -> list[slice]:
        """Positions that are computed at a time: all."""
        return [slice(0, positions)]

    def softmax(self, logits: Tensor, block: slice) -> Tensor:
        """Shares of the slots of a block: (n, J, P), summing to 1 over what competes."""
        return logits.softmax(1)

    def total(self, values: Tensor, block: slice) -> Tensor:
        """Add what is summed over the parents of a position, (n, P), over all that compete."""
        return values


@dataclass(frozen=True)
class Places(Alone):
    """The parents of all places that see a child."""

    links: Links

    def blocks(self, slots, bytes_per_slot, device):
        """Runs of slots of which no child is in two, joined up to the size of a block."""
        most = in_blocks(slots, bytes_per_slot, device)[0].stop
        ends, blocks, start = _ends(self.links), [], 0
        for end, following in zip(ends, [*ends[1:], None], strict=True):
            if following is None or following - start > most:
                blocks.append(slice(start, end))
                start = end
        return blocks

    def pieces(self, positions, slots, bytes_per_slot, device):
        """Whole images, so few that the smallest block of slots fits the cache."""
        if positions == 0:
            return [slice(0, 0)]
        places = len(self.links.child)
        smallest = min(b.stop - b.start for b in self.blocks(slots, positions * 2**40, device))
        step = places * in_blocks(positions, smallest * bytes_per_slot * places, device)[0].stop
        return [slice(start, min(start + step, positions)) for start in range(0, positions, step)]

    def softmax(self, logits, block):
        mask, child, count = _slots(self.links, block.start, block.stop)
        peaks = self._by_image(logits.detach().amax(1)).masked_fill(~mask, -torch.inf)
        highest = peaks.new_full((len(peaks), count), -torch.inf)
        highest.scatter_reduce_(1, child.expand(len(peaks), -1), peaks, "amax")
        lowest = torch.finfo(logits.dtype).min
        shift = self._by_slot(highest.clamp_min(lowest)[:, child], block)
        slot_mask = self._by_slot(mask.expand(len(peaks), -1), block)[:, None]
        shares = (logits - shift[:, None]).masked_fill(~slot_mask, -torch.inf).exp()
        return shares / self.total(shares.sum(1), block).masked_fill(~slot_mask[:, 0], 1)[:, None]

    def total(self, values, block):
        _, child, count = _slots(self.links, block.start, block.stop)
        flat = self._by_image(values)
        sums = flat.new_zeros(len(flat), count).index_add_(1, child, flat)
        return self._by_slot(sums[:, child], block)

    def _by_image(self, values: Tensor) -> Tensor:
        """(n, B * Q) -> (B, n * Q)."""
        return values.unflatten(1, (-1, len(self.links.child))).transpose(0, 1).flatten(1)

    def _by_slot(self, values: Tensor, block: slice) -> Tensor:
        """(B, n * Q) -> (n, B * Q)."""
        slots = block.stop - block.start
        return values.unflatten(1, (slots, -1)).transpose(0, 1).flatten(1)


class Slots(NamedTuple):
    """What the slots (n * Q) of a block see."""

    mask: Tensor  # is there a child
    child: Tensor  # its number
    count: int  # type: ignore[assignment]  # of how many


# Kept, because it follows from the links alone: a GPU would be waited for in every iteration.


@lru_cache(256)
def _ends(links: Links) -> tuple[int, ...]:
    """Return where runs of slots end of which no child is in two."""
    child = links.child.cpu()
    first = child.masked_fill(child < 0, links.count).amin(0)
    after = first.flip(0).cummin(0).values.flip(0)[1:].tolist()
    before = child.amax(0).cummax(0).values[:-1].tolist()
    ends = [n for n, (b, a) in enumerate(zip(before, after, strict=True), 1) if b < a]
    return (*ends, child.shape[1])


@lru_cache(256)
@torch.inference_mode(False)  # which would keep them from training later
def _slots(links: Links, start: int, stop: int) -> Slots:
    child = links.child[:, start:stop].T.flatten()
    numbers = [number for number in child.tolist() if number >= 0]
    first = min(numbers, default=0)
    count = max(numbers, default=first) - first + 1
    mask, child = child >= 0, (child - first).clamp_min(0)
    return Slots(mask, child, count)
