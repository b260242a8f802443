"""Fit mixtures of Gaussians to votes exactly, block by block, without storing the votes.

An iteration of EM or variational routing weights the vote û_ij by w_ij = a_i softmax_j(constant_j -
½ Σ_h precision_jh (û_ijh - centre_jh)²). It needs the sum of the weights, and the weighted mean and
variance of the votes. One pass over blocks of children gives all three, that is, an E-step and the
next M-step; a small matrix product recomputes the votes of a block. The variance is computed about
the centre of the previous iteration and then moved to the new mean, which is stable because the two
are near. In the first iteration shares are uniform, so the sum of votes is one matrix product, and
their mean is the centre.

The batch is the innermost axis, so that temporaries of a block fit the CPU cache. The backward pass
also recomputes the votes.

Without links, the parents share a child by a softmax. The positions of a convolution are folded
into the batch: entry b * Q + q is position q of image b, and its children are the slots. All
parents that see a child, at any position, then share it.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from capsviz.nn.computation import without_autocast
from capsviz.nn.links import Links, check_links, of_places, of_slots
from capsviz.nn.routing import Parents, _parts, check_iterations, check_votes
from capsviz.nn.routing._attend import batch_last
from capsviz.nn.routing._parts import check_shape, in_blocks, per_mass, require


def fused_iterations(
    routing: str,
    posterior: Callable[[int, Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor, Tensor]],
    children: Tensor,
    weight: Tensor,
    *,
    iterations: int,
    activations: Tensor | None,
    links: Links | None,
) -> Parents:
    """Return the parents after all iterations; with links, Q follows B in the results.

    Parameters
    ----------
    routing    name of the routing, for errors.
    posterior  (iteration from 0, mass (B, J), mean of the votes (B, J, E), scatter
               Σ_i w (û - mean)² (B, J, E)) -> pose (B, J, E), precision (B, J, E), constant of the
               log density (B, J), activation (B, J).
    others     as the routing's `fused` takes them.
    """
    check_iterations(iterations)
    active = require(routing, "activations", activations, "(B, I)")
    size = children.shape[:2]
    if links is not None:  # positions are folded into the batch
        children = of_slots(children, links).flatten(0, 1)
    u, w = batch_last(children, weight)
    check_shape("activations", active, "B, I", size)
    if links is not None:
        active = of_slots(active, links).flatten(0, 1)
    active = active.to(u).T.contiguous().T  # batch last in memory
    moments = even_moments(u, w, active, links)
    for iteration in range(iterations):
        mean, scatter = moments.about_mean()
        pose, precision, constant, activation = posterior(iteration, moments.mass, mean, scatter)
        if iteration + 1 < iterations:
            moments = mixture(u, w, active, pose, precision, constant, links)
    return of_places(Parents(pose, activation), links)


def check_inputs(
    routing: str, votes: Tensor, activations: Tensor | None, iterations: int, links: Links | None
) -> Tensor:
    """Return activations (B, [Q,] I) in the type of the votes; ValueError for invalid inputs."""
    check_iterations(iterations)
    if links is None:
        check_votes(votes, iterations)
    else:
        check_links(votes, links)
    active = require(routing, "activations", activations, "(B, I)")
    size = votes.shape[-3] if links is None else links.count
    check_shape("activations", active, "B, I", (votes.shape[0], size))
    return of_slots(active.to(votes), links)


def check_betas(beta_u: Tensor | None, beta_a: Tensor | None, parents: int) -> None:
    """Raise ValueError unless each cost is None or of shape (J)."""
    for name, beta in (("beta_u", beta_u), ("beta_a", beta_a)):
        check_shape(name, beta, "J", (parents,))


class Moments(NamedTuple):
    """Sums over children with weights w."""

    mass: Tensor  # (B, J) Σ_i w
    first: Tensor  # (B, J, E) Σ_i w û
    second: Tensor  # (B, J, E) Σ_i w (û - centre)²
    centre: Tensor  # (B, J, E)

    def about_mean(self) -> tuple[Tensor, Tensor]:
        """Return the mean of the votes and Σ_i w (û - mean)², both (B, J, E)."""
        mass = self.mass[..., None]
        mean = per_mass(self.first, mass)
        offset = mean - self.centre
        moved = 2 * offset * (self.first - mass * self.centre) - mass * offset.square()
        scatter = self.second - moved
        return mean, scatter - scatter.detach().clamp_max(0)  # at least 0, with the full gradient


def mixture(
    children: Tensor,
    weight: Tensor,
    activations: Tensor,
    centre: Tensor,
    precision: Tensor,
    constant: Tensor,
    links: Links | None = None,
) -> Moments:
    """Return the moments of the votes after each child is divided among its parents.

    Centre and precision (B, J, E) and constant (B, J) define the log densities of the parents;
    activations are (B, I).
    """

    def some(u, *inputs):
        return _Mixture.apply(links, None, u, weight, *inputs)

    inputs = activations.T, centre.permute(1, 2, 0), precision.permute(1, 2, 0), constant.T
    mass, first, second = _in_pieces(some, links, weight, children, *inputs)
    return Moments(mass.T, first.permute(2, 0, 1), second.permute(2, 0, 1), centre)


def even_moments(
    children: Tensor, weight: Tensor, activations: Tensor, links: Links | None = None
) -> Moments:
    """Return the moments of votes about their mean, with uniform shares of each child."""
    I, J, E, D = weight.shape

    def some(u, a):
        with torch.no_grad():
            every = slice(0, I)
            even = shared(links, torch.zeros_like(a)[:, None], every) / J
            flat = weight.permute(1, 2, 0, 3).reshape(J * E, I * D)
            first = (flat @ (u * (even * a[:, None])).reshape(I * D, -1)).view(J, E, -1)
            centre = per_mass(first, (even[:, 0] * a).sum(0))
            known = torch.ones_like(centre), torch.zeros_like(centre[:, 0])
        shares = even.expand(-1, J, -1)
        return *_Mixture.apply(links, shares, u, weight, a, centre, *known), centre

    mass, *sums = _in_pieces(some, links, weight, children, activations.T)
    return Moments(mass.T, *(x.permute(2, 0, 1) for x in sums))


def _in_pieces(some: Callable, links: Links | None, weight: Tensor, *inputs: Tensor) -> list:
    """Apply a function of inputs (..., B) to some positions at a time."""
    I, J, E, _ = weight.shape
    size = J * E * inputs[0].element_size()
    several = pieces(links, inputs[0].shape[-1], I, size, weight.device)
    results = [some(*(values[..., piece].contiguous() for values in inputs)) for piece in several]
    return [torch.cat(parts, -1) for parts in zip(*results, strict=True)]


def _spaces(links: Links | None, count: int, u: Tensor, weight: Tensor) -> list[tuple]:
    """Return each block of n children with `count` temporary tensors (n, J, E, B)."""
    (I, J, E, _), B = weight.shape, u.shape[2]
    size = J * E * B * u.element_size() * max(count, 2) // 2  # as much in all as two in `attend`
    return _parts.spaces(blocks(links, I, size, u.device), count, u, J, E, B)


class _Mixture(torch.autograd.Function):
    """Moments of the votes; the batch is the last axis.

    Axes are (i, d, b) of u, (i, j, e, d) of W, (i, b) of activations, (j, e, b) of centre and
    precision, (j, b) of constant. `even` are shares (i, j, b) that replace those by distance; the
    centre is then the mean of the votes.
    """

    @staticmethod
    def forward(ctx, links, even, u, weight, a, centre, precision, constant):
        I, J, E, D = weight.shape
        w = weight.reshape(I, J * E, D)
        root = precision.sqrt()
        minus = -centre * root
        mass, first, second = (torch.zeros_like(x) for x in (constant, centre, centre))
        shares = u.new_empty(I, J, u.shape[2]) if even is None else even
        for block, offset, squared in _spaces(links, 2, u, weight):
            torch.bmm(w[block], u[block], out=offset.flatten(1, 2))
            torch.addcmul(minus, offset, root, out=offset)  # in standard deviations
            squared = torch.square(offset, out=offset if even is not None else squared)
            if even is None:
                far = torch.add(constant, squared.sum(2), alpha=-0.5)
                shares[block] = shared(links, far, block)
            part = shares[block] * a[block][:, None]
            mass += part.sum(0)
            if even is None:
                first += offset.mul_(part[:, :, None]).sum(0)
            second += squared.mul_(part[:, :, None]).sum(0)
        first /= root
        ctx.links, ctx.even = links, even
        ctx.save_for_backward(u, weight, a, centre, precision, constant, shares, first)
        return mass, first + mass[:, None] * centre, second / precision

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        with without_autocast(grads[0].device):
            found = _gradients(ctx.links, ctx.even, *ctx.saved_tensors, *grads)
        return None, None, *found


def _gradients(
    links, even, u, weight, a, centre, precision, constant, shares, first, *grads
) -> tuple[Tensor, ...]:
    """Return the gradients of all inputs; `first` is Σ_i w (û - centre)."""
    I, J, E, D = weight.shape
    w, (dmass, dfirst, dsecond) = weight.reshape(I, J * E, D), grads
    du, da = torch.empty_like(u), torch.empty_like(a)
    dw = w.new_empty(I, D, J * E)  # twice as fast with MKL in this shape
    along, dprecision = torch.zeros_like(centre), torch.zeros_like(precision)
    dconstant = torch.zeros_like(constant)
    base = dmass + (centre * dfirst).sum(1)
    for block, offset, slope, pulled in _spaces(links, 3, u, weight):
        torch.bmm(w[block], u[block], out=offset.flatten(1, 2))
        torch.addcmul(dfirst, offset.sub_(centre), dsecond, out=slope)
        gain = torch.mul(slope, offset, out=pulled).sum(2).add_(base)  # gradient of the weight w
        share = shares[block]
        mean = (share * gain).sum(1)
        da[block] = mean
        part = share * a[block][:, None]
        dvotes = slope.mul_(2 * part[:, :, None])
        dvotes.addcmul_(part[:, :, None].expand_as(dvotes), dfirst.expand_as(dvotes), value=-1)
        if even is None:
            dlogits = part * (gain - total(links, mean, block)[:, None])
            dconstant += dlogits.sum(0)
            torch.mul(offset, dlogits[:, :, None], out=pulled)
            dvotes.addcmul_(pulled, precision.expand_as(pulled), value=-1)
            along += pulled.sum(0)
            dprecision -= pulled.mul_(offset).sum(0)
        dvotes = dvotes.flatten(1, 2)
        torch.bmm(w[block].transpose(1, 2), dvotes, out=du[block])
        torch.bmm(u[block], dvotes.transpose(1, 2), out=dw[block])
    dcentre = precision * along - 2 * dsecond * first
    return du, dw.view(I, D, J, E).permute(0, 2, 3, 1), da, dcentre, dprecision / 2, dconstant


def blocks(
    links: Links | None, slots: int, bytes_per_slot: int, device: torch.device
) -> list[slice]:
    """Return blocks of slots that are computed together.

    With links, no child is in two blocks: runs of slots are joined up to the size of a block.
    """
    usual = in_blocks(slots, bytes_per_slot, device)
    if links is None:
        return usual
    ends, joined, start = _ends(links), [], 0
    for end, following in zip(ends, [*ends[1:], None], strict=True):
        if following is None or following - start > usual[0].stop:
            joined.append(slice(start, end))
            start = end
    return joined


def pieces(
    links: Links | None, positions: int, slots: int, bytes_per_slot: int, device: torch.device
) -> list[slice]:
    """Return the positions that are computed together.

    Without links these are all; with links, the positions of so many whole images that the smallest
    block of slots fits the cache.
    """
    if links is None or positions == 0:
        return [slice(0, positions)]
    places = len(links.child)
    smallest = min(b.stop - b.start for b in blocks(links, slots, positions * 2**40, device))
    step = places * in_blocks(positions, smallest * bytes_per_slot * places, device)[0].stop
    return [slice(start, min(start + step, positions)) for start in range(0, positions, step)]


def shared(links: Links | None, logits: Tensor, block: slice) -> Tensor:
    """Return shares (n, J, P) of a block of slots; they sum to 1 over competing parents."""
    if links is None:
        return logits.softmax(1)
    mask, child, count = _slots(links, block.start, block.stop)
    peaks = _by_image(links, logits.detach().amax(1)).masked_fill(~mask, -torch.inf)
    highest = peaks.new_full((len(peaks), count), -torch.inf)
    highest.scatter_reduce_(1, child.expand(len(peaks), -1), peaks, "amax")
    lowest = torch.finfo(logits.dtype).min
    shift = _by_slot(highest.clamp_min(lowest)[:, child], block)
    slot_mask = _by_slot(mask.expand(len(peaks), -1), block)[:, None]
    shares = (logits - shift[:, None]).masked_fill(~slot_mask, -torch.inf).exp()
    return shares / total(links, shares.sum(1), block).masked_fill(~slot_mask[:, 0], 1)[:, None]


def total(links: Links | None, values: Tensor, block: slice) -> Tensor:
    """Add sums over the parents of each position, (n, P), over all competing positions."""
    if links is None:
        return values
    _, child, count = _slots(links, block.start, block.stop)
    flat = _by_image(links, values)
    sums = flat.new_zeros(len(flat), count).index_add_(1, child, flat)
    return _by_slot(sums[:, child], block)


def _by_image(links: Links, values: Tensor) -> Tensor:
    """Reorder (n, B * Q) to (B, n * Q)."""
    return values.unflatten(1, (-1, len(links.child))).transpose(0, 1).flatten(1)


def _by_slot(values: Tensor, block: slice) -> Tensor:
    """Reorder (B, n * Q) to (n, B * Q)."""
    return values.unflatten(1, (block.stop - block.start, -1)).transpose(0, 1).flatten(1)


# Cached by links: computing these would wait for the GPU in every iteration.


@lru_cache(256)
def _ends(links: Links) -> tuple[int, ...]:
    """Return the ends of the shortest runs of slots such that no child is in two runs."""
    child = links.child.cpu()
    first = child.masked_fill(child < 0, links.count).amin(0)
    after = first.flip(0).cummin(0).values.flip(0)[1:].tolist()
    before = child.amax(0).cummax(0).values[:-1].tolist()
    ends = [n for n, (b, a) in enumerate(zip(before, after, strict=True), 1) if b < a]
    return (*ends, child.shape[1])


@lru_cache(256)
@torch.inference_mode(False)  # inference tensors cannot be used in training
def _slots(links: Links, start: int, stop: int) -> tuple[Tensor, Tensor, int]:
    """Return whether the slots (n * Q) of a block see a child, its number, and the count."""
    child = links.child[:, start:stop].T.flatten()
    numbers = [number for number in child.tolist() if number >= 0]
    first = min(numbers, default=0)
    count = max(numbers, default=first) - first + 1
    return child >= 0, (child - first).clamp_min(0), count
