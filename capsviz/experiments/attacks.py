"""Attacks on classifiers: APGD, Square, the vote attack, and an adaptive attack on a detector.

Attacked images stay in [0, 1] and within an L-infinity or L2 ball around the original. Networks
with capsules are called by `look` (see `capsviz.tracing`), others by `forward`. Gradients are taken
for the images, never for the weights. Random starts are drawn by an image's index, so a result
does not depend on which images are attacked together.

APGD and Square are implemented here, because no maintained library has Square, an objective on
votes, and one on a detector. They agree with their authors' code (github.com/fra31/auto-attack)
within one image in a hundred.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy as softmax_cross_entropy

from capsviz.nn.functional import cross_entropy, lengths, margin_loss, predict, squash
from capsviz.nn.images import check_images, like_of
from capsviz.tracing import evaluating, trace
from capsviz.tracing.forward import images_at_a_time
from capsviz.tracing.network import abilities
from capsviz.tracing.outputs import activations_and_distance, distance
from capsviz.tracing.record import last_activations

TINY = 1e-12
MOMENTUM = 0.75  # APGD: weight of the new step
RISING = 0.75  # APGD halves the step size unless this share of a window's steps raised the loss
WINDOWS = (0.22, 0.03, 0.06)  # shares of the steps: first window, decrease per window, shortest
SQUARE = 0.8  # share of the image in Square's first squares
HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # queries of 10,000 that halve it
LIFT = 1000.0  # exceeds every cross-entropy: misclassified images rank above all others
HELD_OUT = 1000  # images that set a detector's threshold, or all if there are fewer
CHECKED = 8  # images on which `require_steady` tests a network
SAME = 1e-3  # tolerated difference of scores, relative to the largest score

Look = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
# images and labels -> the loss that the attack raises (N,), the largest other score minus the true
# class's (N,), and whether the attack on an image has succeeded (N,)


class Found(NamedTuple):
    """Result of one attack on N images."""

    images: Tensor  # (N, C, H, W) the successful images; otherwise those with the largest loss
    done: Tensor  # (N,) bool: the attack succeeded
    when: Tensor  # (N,) steps or queries until success; -1: never
    gaps: Tensor  # (T + 1, N) largest margin of another class over the true one up to each step
    stuck: Tensor  # (N,) bool: the gradient was zero at every step; False for Square


class Ball(NamedTuple):
    """All images in [0, 1] within `eps` of an original."""

    eps: float
    norm: str = "linf"  # or "l2"

    def project(self, origin: Tensor, x: Tensor) -> Tensor:
        """Project images onto the ball around `origin`, both (N, C, H, W)."""
        away = x - origin
        if self.norm == "linf":
            away = away.clamp(-self.eps, self.eps)
        else:
            away = away * (self.eps / (_norm(away) + TINY)).clamp_max(1)
        return (origin + away).clamp(0, 1)

    def unit(self, direction: Tensor) -> Tensor:
        """Return the steepest step of norm 1 along a direction (N, C, H, W)."""
        return direction.sign() if self.norm == "linf" else direction / (_norm(direction) + TINY)

    def start(self, origin: Tensor, noise: Tensor) -> Tensor:
        """Return random starts (N, C, H, W) from normal noise.

        They are uniform in the L-infinity ball, or uniform on the surface of the L2 ball.
        """
        unit = torch.erf(noise / math.sqrt(2)) if self.norm == "linf" else noise / _norm(noise)
        return self.project(origin, origin + self.eps * unit)


def largest_eps(norm: str, shape: Sequence[int]) -> float:
    """Return the eps of a ball that contains every image of a shape (C, H, W)."""
    return 1.0 if norm == "linf" else math.sqrt(math.prod(shape))


def check(eps: Sequence[float], steps: int = 1, norm: str = "linf") -> None:
    """Raise ValueError for no eps, eps equal in six digits, or an eps or steps out of range."""
    if not eps or len({f"{one:g}" for one in eps}) < len(eps):  # as they are named in results
        raise ValueError(f"expected one eps or several different ones, got {list(eps)}")
    for one in eps:
        if norm == "linf" and not 0 < one <= 1:
            raise ValueError(f"eps bounds the change of a pixel: expected 0 < eps <= 1, got {one}")
        if not 0 < one < math.inf:
            raise ValueError(f"eps bounds the L2 norm of the change: expected eps > 0, got {one}")
    if steps < 1:
        raise ValueError(f"an attack needs at least 1 step, got {steps}")


def noise(shape: Sequence[int], seed: int = 0) -> Tensor:
    """Return normal noise for random starts of images of a shape (N, C, H, W), on the CPU."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@contextmanager
def frozen(model: nn.Module) -> Iterator[nn.Module]:
    """Set evaluation mode and disable gradients of weights; restore both on exit and on errors."""
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    model.requires_grad_(False)
    try:
        with evaluating(model), torch.enable_grad():
            yield model
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


def logits(model: Any, images: Tensor) -> Tensor:
    """Return differentiable scores (N, J) of images: lengths of capsules, or logits."""
    if not abilities(model).has_capsules:
        return model(images).logits
    values = last_activations(model.look(images, keep=("lengths",)))
    assert values is not None  # a network with capsules has lengths
    return values


def require_steady(model: Any, images: Tensor) -> None:
    """Raise ValueError if scores are random, or depend on the other images of the batch.

    An attack on such scores would need the mean of many passes.
    """
    name, some = abilities(model).name, images[:CHECKED].to(like_of(model))
    with frozen(model), torch.no_grad():
        once, again = logits(model, some), logits(model, some)
        parts = torch.cat([logits(model, part) for part in some.split(len(some) // 2 or 1)])
    scale = SAME * float(once.abs().max())
    if (apart := float((once - again).abs().max())) > scale:
        raise ValueError(
            f"scores of '{name}' are random: two passes over the same images differ by "
            f"{apart:.2g}. Attacks need repeatable scores: let it return the mean of many passes"
        )
    if (apart := float((once - parts).abs().max())) > scale:
        raise ValueError(
            f"scores of '{name}' depend on the other images of a batch, by {apart:.2g}: expected "
            "a network that looks at each image alone"
        )


def has_gradient(model: Any, images: Tensor) -> bool:
    """Return whether the scores are differentiable by an image (N, C, H, W), even if by zero."""
    with frozen(model):
        return logits(model, images[:1].to(like_of(model)).requires_grad_()).requires_grad


def margin(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the largest score of another class minus the true class's (N,), from scores (N, J)."""
    own = labels[:, None]
    return scores.scatter(1, own, -math.inf).amax(1) - scores.gather(1, own)[:, 0]


def dlr(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the difference of logits ratio (N,): `margin` / (largest - third largest score).

    Croce & Hein (2020), equation 6. It needs three classes.
    """
    top = scores.topk(3).values
    return margin(scores, labels) / (top[:, 0] - top[:, 2] + TINY)


_ce = partial(softmax_cross_entropy, reduction="none")
Loss = Callable[..., Tensor]  # scores (N, J) and labels (N,) -> (N,)
LOSSES: dict[str, Loss] = {"apgd-ce": _ce, "apgd-dlr": dlr, "apgd-margin": margin_loss}


def on_scores(model: Any, loss: Loss = margin) -> Look:
    """Return the objective of misclassification; `loss` takes scores and labels, as in `LOSSES`."""

    def look(images, labels):
        scores = logits(model, images)
        return loss(scores, labels), margin(scores, labels), predict(scores) != labels

    return look


def on_votes(model: Any) -> Look:
    """Return the objective of the vote attack (Gu, Wu & Tresp, ICLR 2021).

    The loss skips the routing: it is the cross-entropy of the lengths of the squashed mean votes.
    The attack succeeds if the routed network misclassifies.
    """

    def look(images, labels):
        parts = model.look(images, keep=("votes", "lengths"))
        scores = last_activations(parts)
        averaged = lengths(squash(parts["votes"].mean(1)))
        loss = cross_entropy(averaged, labels)
        return loss, margin(scores, labels), predict(scores) != labels

    return look


def on_detector(model: Any, threshold: float = -math.inf) -> Look:
    """Return the adaptive objective: misclassification with a small reconstruction distance.

    After Qin et al. (2020, arXiv:1907.02957). While an image is classified correctly, the attack
    raises its cross-entropy. Once it is misclassified, the attack reduces its distance to the
    winning capsule's reconstruction. The second loss always exceeds the first (by `LIFT`), so
    APGD's schedule of step sizes applies. The attack succeeds at a distance of at most `threshold`.
    """

    def look(images, labels):
        scores, far = activations_and_distance(model, images)
        fooled = predict(scores) != labels
        loss = torch.where(fooled, LIFT - far, _ce(scores, labels))
        return loss, margin(scores, labels), fooled & (far <= threshold)

    return look


def distances(model: Any, images: Tensor) -> np.ndarray:
    """Return the L2 distances (N,) between images and the winning capsule's reconstructions."""
    traced = trace(model, images, keep=("reconstruction",))
    return distance(images, traced.require("reconstruction")).numpy()


def apgd(
    model: Any,
    look: Look,
    images: Tensor,
    labels: Tensor,
    ball: Ball,
    *,
    steps: int = 50,
    start: Tensor | None = None,
    leave: bool = True,
) -> Found:
    """Attack images independently by APGD (Croce & Hein 2020, arXiv:2003.01690, algorithm 1).

    Parameters
    ----------
    look            objective to maximise, such as `on_scores(model, dlr)`.
    images, labels  (N, C, H, W) in [0, 1] and true classes (N,).
    start           (N, C, H, W) noise for random starts; None: `noise` with seed 0.
    leave           stop attacking an image at its first success; False: attack it in all steps and
                    return the success with the largest loss.

    Raises
    ------
    ValueError  for an invalid bound, number of steps, images or labels, or without a gradient.
    """
    check([ball.eps], steps, ball.norm)
    with frozen(model):
        images, labels, start = _checked(model, images, labels, start)
        return _apgd(model, look, images, labels, start, ball, steps, leave)


def _apgd(model, look, images, labels, start, ball, steps, leave) -> Found:
    n, chunk = len(images), images_at_a_time(model)
    found, best_done = images.clone(), images.new_full((n,), -math.inf)
    when, stuck = torch.full((n,), -1), torch.ones(n, dtype=torch.bool)
    gaps = torch.full((steps + 1, n), -math.inf)
    x = ball.start(images, start)
    s = {  # state of the images that are still attacked
        "index": torch.arange(n), "origin": images, "labels": labels, "x": x, "before": x,
        "size": images.new_full((n, 1, 1, 1), 2 * ball.eps),
        "rises": images.new_zeros(n), "halved": torch.ones(n, dtype=torch.bool, device=x.device),
    }  # fmt: skip
    first, decrease, shortest = (max(int(share * steps), 1) for share in WINDOWS)
    window, since = first, 0
    for step in range(steps + 1):
        if step:
            moved = ball.project(s["origin"], s["x"] + s["size"] * ball.unit(s["grad"]))
            share = MOMENTUM if step > 1 else 1.0
            moved = s["x"] + (moved - s["x"]) * share + (s["x"] - s["before"]) * (1 - share)
            s["before"], s["x"] = s["x"], ball.project(s["origin"], moved)
        loss, gap, hit, s["grad"] = _differentiate(look, s["x"], s["labels"], chunk)
        index = s["index"]
        gaps[step, index] = gap.float().cpu()
        moves = (s["grad"] != 0).flatten(1).any(1)
        stuck[index[moves.cpu()]] = False
        if not step:
            s |= {"loss": loss, "best": loss, "best x": s["x"], "best grad": s["grad"]}
            s["checked"] = loss
        else:
            s["rises"] = s["rises"] + (loss > s["loss"])
            better, s["loss"] = loss > s["best"], loss
            s["best"] = torch.where(better, loss, s["best"])
            for name, now in (("best x", s["x"]), ("best grad", s["grad"])):
                s[name] = torch.where(_wide(better), now, s[name])
            since += 1
        take = hit & (loss > best_done[index])
        found[index[take.cpu()]], best_done[index[take.cpu()]] = s["x"][take], loss[take]
        new = index[hit.cpu()]
        when[new] = torch.where(when[new] < 0, step, when[new])
        if since == window:
            unchanged = ~s["halved"] & (s["checked"] >= s["best"])
            s["halved"] = (s["rises"] <= RISING * window) | unchanged
            halved = _wide(s["halved"])
            s["size"] = torch.where(halved, s["size"] / 2, s["size"])
            s["x"] = torch.where(halved, s["best x"], s["x"])
            s["grad"] = torch.where(halved, s["best grad"], s["grad"])
            s["checked"], s["rises"] = s["best"], torch.zeros_like(s["rises"])
            window, since = max(window - decrease, shortest), 0
        if leave and bool(hit.any()):
            s = {name: value[(~hit).to(value.device)] for name, value in s.items()}
        if not len(s["index"]):
            break
    never = (when < 0)[s["index"]]
    found[s["index"][never]] = s["best x"][never.to(images.device)]
    return Found(found, when >= 0, when, gaps.cummax(0).values, stuck)


def _parts(x: Tensor, labels: Tensor, most: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Split images and labels into parts of nearly equal size, at most `most`."""
    count = -(-len(x) // most)
    return zip(x.tensor_split(count), labels.tensor_split(count), strict=True)


def _differentiate(look: Look, x: Tensor, labels: Tensor, chunk: int) -> list[Tensor]:
    """Return loss, margin and success (N,), and the gradient (N, C, H, W), by chunks of images."""
    pieces = []
    for part, own in _parts(x, labels, chunk):
        part = part.detach().requires_grad_()
        loss, gap, hit = look(part, own)
        if not loss.requires_grad:
            raise ValueError("no gradient reaches the images: only Square can attack this network")
        (grad,) = torch.autograd.grad(loss.sum(), part)
        pieces.append((loss.detach(), gap.detach(), hit, grad.nan_to_num(0, 0, 0)))
    return [torch.cat(one) for one in zip(*pieces, strict=True)]


def flat(model: Any, look: Look, images: Tensor, labels: Tensor) -> Tensor:
    """Return which images (N,) have a gradient of exactly zero, which gives no direction."""
    with frozen(model):
        images, labels, _ = _checked(model, images, labels, images)
        *_, gradient = _differentiate(look, images, labels, images_at_a_time(model))
    return (gradient == 0).flatten(1).all(1).cpu()


def square(
    model: Any,
    images: Tensor,
    labels: Tensor,
    ball: Ball,
    *,
    queries: int = 500,
    start: Tensor | None = None,
    seed: int = 0,
) -> Found:
    """Attack without gradients, by random squares (Andriushchenko et al. 2020, arXiv:1912.00049).

    In one query, all images get a square of the same position and signs, as in the authors' code.
    The schedule for 10,000 queries is scaled to `queries`. Other parameters are those of `apgd`.
    """
    check([ball.eps], queries, ball.norm)
    with frozen(model), torch.no_grad():
        images, labels, start = _checked(model, images, labels, start)
        return _square(model, images, labels, start, ball, queries, seed)


def _square(model, images, labels, start, ball, queries, seed) -> Found:
    n, (H, W), chunk = len(images), images.shape[2:], images_at_a_time(model)
    look, draws = on_scores(model), torch.Generator().manual_seed(seed)
    found, when, index = images.clone(), torch.full((n,), -1), torch.arange(n)
    gaps, best = torch.full((queries + 1, n), -math.inf), images.new_full((n,), -math.inf)
    for query in range(queries + 1):
        origin, x = images[index], found[index]
        if query == 0:
            x = _first_squares(ball, origin, start, draws)
        else:
            halvings = sum(10000 * (query - 1) // queries > end for end in HALVINGS)
            side = round(math.sqrt(SQUARE / 2**halvings * H * W))
            x = (_square_linf if ball.norm == "linf" else _square_l2)(ball, origin, x, side, draws)
        parts = [look(*one) for one in _parts(x, labels[index], chunk)]
        _, gap, hit = (torch.cat(one) for one in zip(*parts, strict=True))
        gaps[query, index] = gap.float().cpu()
        better = (gap > best[index]) | hit
        found[index[better.cpu()]], best[index[better.cpu()]] = x[better], gap[better]
        when[index[hit.cpu()]] = query
        index = index[~hit.cpu()]
        if not len(index):
            break
    return Found(found, when >= 0, when, gaps.cummax(0).values, torch.zeros(n, dtype=torch.bool))


def _first_squares(ball, origin, start, draws) -> Tensor:
    """Return the start of Square: vertical stripes in L-infinity, a grid of 5 x 5 peaks in L2."""
    H, W = origin.shape[2:]
    if ball.norm == "linf":
        return ball.project(origin, origin + ball.eps * start[:, :, :1].sign())
    side, change = max(min(H, W) // 5, 1), torch.zeros_like(origin)
    signs = start.sign()
    for row in range(H % side // 2, H - side + 1, side):
        for column in range(W % side // 2, W - side + 1, side):
            window = (..., slice(row, row + side), slice(column, column + side))
            corner = signs[..., row : row + 1, column : column + 1]
            change[window] = _peak(side, draws).to(origin) * corner
    return ball.project(origin, origin + ball.eps * ball.unit(change))


def _square_linf(ball, origin, x, side, draws) -> Tensor:
    C, H, W = origin.shape[1:]
    side = min(max(side, 1), H, W)
    x, (window,) = x.clone(), _windows(H, W, side, draws, 1)
    x[window] += 2 * ball.eps * _signs(C, draws).to(x)
    return ball.project(origin, x)


def _square_l2(ball, origin, x, side, draws) -> Tensor:
    """Move the norm of one window, and the unused part of eps, to another window as a new peak."""
    C, H, W = origin.shape[1:]
    side = min(max(side, 3) // 2 * 2 + 1, H, W)
    to, source = _windows(H, W, side, draws, 2)
    change = x - origin
    both = torch.zeros_like(change)
    both[to], both[source] = 1, 1
    spare = (ball.eps**2 - _norm(change) ** 2).clamp_min(0) / C
    energy = ((change * both) ** 2).sum((2, 3), keepdim=True) + spare
    old = change[to]
    peak = _peak(side, draws).to(x) * _signs(C, draws).to(x)
    peak = peak + old / (TINY + (old**2).sum((2, 3), keepdim=True).sqrt())
    peak = peak / (TINY + (peak**2).sum((2, 3), keepdim=True).sqrt()) * energy.sqrt()
    change[source], change[to] = 0, peak
    return ball.project(origin, origin + ball.eps * ball.unit(change))


def _windows(H: int, W: int, side: int, draws, count: int) -> list[tuple]:
    ends = [[int(torch.randint(n - side + 1, (), generator=draws)) for n in (H, W)]
            for _ in range(count)]  # fmt: skip
    return [(..., slice(r, r + side), slice(c, c + side)) for r, c in ends]


def _signs(channels: int, draws) -> Tensor:
    return 2.0 * torch.randint(2, (channels, 1, 1), generator=draws) - 1


def _peak(side: int, draws) -> Tensor:
    """Return two pyramids of opposite signs, side by side or stacked, of norm 1."""
    rows = side // 2
    peak = torch.cat([_pyramid(rows, side), -_pyramid(side - rows, side)])
    peak = peak / (peak.norm() + TINY)
    return peak.T if torch.randint(2, (), generator=draws) else peak


def _pyramid(rows: int, columns: int) -> Tensor:
    """Return a sum of rectangles that grow around the centre; the k-th adds 1 / k²."""
    total = torch.zeros(rows, columns)
    middle, across = rows // 2, columns // 2
    for number in range(max(middle, across) + 1):
        up, left = max(middle - number, 0), max(across - number, 0)
        total[up : middle + number + 1, left : across + number + 1] += 1 / (number + 1) ** 2
    return total


def _checked(model, images, labels, start: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return images, labels and noise on the network's device; ValueError for invalid ones."""
    check_images(images)
    if labels.shape != images.shape[:1]:
        raise ValueError(f"expected labels ({len(images)},), got {tuple(labels.shape)}")
    like, start = like_of(model), noise(images.shape) if start is None else start
    return images.to(like), labels.to(like.device), start.to(like)


def _norm(images: Tensor) -> Tensor:
    """Return L2 norms (N, 1, 1, 1)."""
    return _wide(images.flatten(1).norm(dim=1))


def _wide(values: Tensor) -> Tensor:
    return values[:, None, None, None]
