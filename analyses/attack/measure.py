"""Measures of `attack`: choose the attacks that apply, run them, and compute statistics."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from capsviz.checkpoint import sha256_of_tensors
from capsviz.experiments import attacks
from capsviz.experiments.attacks import LOSSES, Ball
from capsviz.inputs.samples import other_images
from capsviz.nn.images import check_images
from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples
from capsviz.statistics.detection import threshold
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import LENGTH, right, score_name, scores
from capsviz.tracing.network import abilities

PIECE = 128  # images per step of the progress bar
SHARES = np.linspace(0, 1, 21)  # of the steps, in curves
SUSPECT = 0.01  # smallest share of images that gives a warning
LARGE = "large"  # an additional check: the attack with an unbounded perturbation

Found = dict[tuple[str, str], dict[str, np.ndarray]]  # by network and attack, see `Work.run`


class Plan(NamedTuple):
    """Settings of the attacks, the same for all networks."""

    eps: list[float]
    norm: str
    steps: int
    restarts: int
    queries: int
    seed: int


class Work:
    """All networks, images and attacks; checks them first, and raises ValueError."""

    def __init__(self, networks, images, labels, names, plan, inputs, *, strict):
        check_images(images)
        attacks.check(plan.eps, plan.steps, plan.norm)
        self.networks, self.images, self.labels, self.plan = networks, images, labels, plan
        self.right = {k: right([one], images, labels)[0] for k, one in networks.items()}
        for k, model in networks.items():
            attacks.require_steady(model, images)
            if not self.right[k].any():
                raise ValueError(
                    f"'{k}' classifies none of {len(images)} images correctly: nothing to attack"
                )
        self.digests = {
            k: sha256_of_tensors(one.state_dict().items()) for k, one in networks.items()
        }
        self.steep = {k for k, one in networks.items() if attacks.has_gradient(one, images)}
        plain = [k for k in networks if not abilities(networks[k]).has_capsules and k in self.steep]
        self.source = plain[0] if plain and len(networks) > 1 else None
        self.held_out = None
        lacks = {(k, name): self._lacks(k, name, inputs) for name in names for k in networks}
        self.applies = {pair for pair, why in lacks.items() if not why}
        self.missing = [f"{name} is left out for {k}: {w}" for (k, name), w in lacks.items() if w]
        self.names = [a for a in names if any((k, a) in self.applies for k in networks)]
        for (_, name), why in lacks.items():
            if strict and name not in self.names:
                raise ValueError(f"{name}: {why}")
        self.transferred: dict[tuple[Ball, int, int], torch.Tensor] = {}
        self.limits, self.flagged = {}, np.full((len(networks), len(images)), np.nan)
        self.unfooled = dict[str, np.ndarray]()  # correct or flagged before the adaptive attack
        for row, (k, model) in enumerate(networks.items()):
            if (k, "adaptive") in self.applies:
                self.limits[k] = threshold(attacks.distances(model, self.held_out))
                self.flagged[row] = attacks.distances(model, images) > self.limits[k]
                self.unfooled[k] = self.right[k] | (self.flagged[row] == 1)

    def _lacks(self, k: str, name: str, inputs) -> str:
        """Return why an attack does not apply to a network; "" if it does."""
        model, able = self.networks[k], abilities(self.networks[k])
        if name == "square":
            return ""
        if name == "transfer":
            if self.source is None:
                return "there is no network without capsules to attack instead"
            return "it is the network that is attacked" if k == self.source else ""
        if k not in self.steep:
            return "no gradient reaches the images: only square can attack it"
        if name == "apgd-dlr":
            classes = scores(model, self.images[:1]).shape[1]
            return "" if classes > 2 else f"DLR needs 3 classes, got {classes}"
        if name == "apgd-ce":
            return ""
        if not able.has_capsules:
            return "it has no capsules"
        if name == "adaptive":
            if not able.decodes or inputs is None:
                return "it has no decoder"
            try:
                if self.held_out is None:
                    self.held_out = other_images(inputs, attacks.HELD_OUT).images
            except ValueError as error:
                return str(error)
            return ""
        if score_name(model, self.images) != LENGTH:
            return "its scores are not lengths of poses"
        if name == "vote" and not (able.gives("votes") and able.links is None):
            return "it shows no votes of all children for all classes"
        return ""

    def run(self, progress) -> Found:
        """Run all attacks in pieces; return arrays by network and attack, with images last.

        The arrays are `rows`, the indices of the images, and those of `at_growing_bounds`.
        """
        every = torch.arange(len(self.images))
        jobs = [
            ((k, name), some)
            for k in self.networks
            for name in (*self.names, LARGE)
            if name == LARGE or (k, name) in self.applies
            for some in every[(self.unfooled if name == "adaptive" else self.right)[k]].split(PIECE)
        ]
        pieces = dict[tuple[str, str], list[dict]]()
        for pair, some in progress(jobs):
            found = {"rows": some.numpy(), **self._attack(*pair, some)}
            pieces.setdefault(pair, []).append(found)
        return {
            pair: {name: np.concatenate([one[name] for one in some], -1) for name in some[0]}
            for pair, some in pieces.items()
        }

    def _attack(self, k: str, name: str, rows: torch.Tensor) -> dict[str, np.ndarray]:
        model, plan = self.networks[k], self.plan
        images, labels = self.images[rows], self.labels[rows]
        if name == LARGE:
            plan = plan._replace(eps=[attacks.largest_eps(plan.norm, images.shape[1:])])
            name = "apgd-ce" if k in self.steep else "square"
        if name == "square":
            plan = plan._replace(steps=plan.queries, restarts=1)
        if name == "vote":
            objective = attacks.on_votes(model)
        elif name == "adaptive":
            objective = attacks.on_detector(model, self.limits[k])
        else:
            objective = attacks.on_scores(model, LOSSES.get(name, LOSSES["apgd-ce"]))

        def once(chosen, ball, restart):
            if name == "transfer":
                return self._transfer(model, rows[chosen], ball, restart)
            some, true, seed = images[chosen], labels[chosen], plan.seed + restart
            start = attacks.noise(self.images.shape, seed)[rows][chosen]
            if name == "square":
                how = {"queries": plan.queries, "start": start, "seed": seed}
                return attacks.square(model, some, true, ball, **how)
            return attacks.apgd(model, objective, some, true, ball, steps=plan.steps, start=start)

        found = at_growing_bounds(once, len(rows), plan)
        if name in LOSSES:
            found["zero"] = attacks.flat(model, objective, images, labels)
        return {name: one.numpy() for name, one in found.items()}

    def _transfer(self, model, rows: torch.Tensor, ball: Ball, restart: int) -> attacks.Found:
        """Test a network on images from APGD on the source, made once for all networks."""
        source, labels, keys = self.networks[self.source], self.labels[rows], rows.tolist()
        new = rows[[(ball, restart, row) not in self.transferred for row in keys]]
        if len(new):
            start = attacks.noise(self.images.shape, self.plan.seed + restart)[new]
            how = {"steps": self.plan.steps, "start": start, "leave": False}
            objective = attacks.on_scores(source, LOSSES["apgd-ce"])
            made = attacks.apgd(source, objective, self.images[new], self.labels[new], ball, **how)
            for row, image in zip(new.tolist(), made.images.cpu(), strict=True):
                self.transferred[ball, restart, row] = image
        images = torch.stack([self.transferred[ball, restart, row] for row in keys])
        fooled = torch.from_numpy(~right([model], images, labels)[0])
        no_gaps = torch.full((self.plan.steps + 1, len(rows)), torch.nan)
        when = torch.where(fooled, self.plan.steps, -1)
        return attacks.Found(images, fooled, when, no_gaps, torch.zeros_like(fooled))


def at_growing_bounds(once, P: int, plan: Plan) -> dict[str, torch.Tensor]:
    """Attack P images at growing bounds, each image until it is fooled.

    Returns
    -------
    level  (P,) index of the first bound that fools; E if none does.
    fell   (E, P) share of the steps until it is fooled; -1 if a smaller bound did, else infinite.
    gaps   (E, T, P) largest margin of another class after each of `SHARES` of the steps of the
           first start; NaN if the image is not attacked at this bound.
    stuck  (P,) whether there was no gradient at the first bound.
    """
    E, R = len(plan.eps), plan.restarts
    level, stuck = torch.full((P,), E), torch.zeros(P, dtype=torch.bool)
    fell = torch.full((E, P), torch.inf)
    gaps = torch.full((E, len(SHARES), P), torch.nan)
    at = (SHARES * plan.steps).round().astype(int)
    for e, eps in enumerate(plan.eps):
        fell[e, level < E] = -1
        for r in range(R):
            rows = (level == E).nonzero().flatten()
            if not len(rows):
                break
            found = once(rows, Ball(eps, plan.norm), r)
            level[rows[found.done]] = e
            fell[e, rows[found.done]] = (r + found.when[found.done] / plan.steps) / R
            if r == 0:
                gaps[e][:, rows] = found.gaps[at]
            if r == e == 0:
                stuck[rows] = found.stuck
    return {"level": level, "fell": fell, "gaps": gaps, "stuck": stuck}


def statistics(work: Work, found: Found) -> dict[str, Any]:
    """Return the statistics of a result from the arrays of `Work.run`."""
    names, plan, right = work.names, work.plan, np.stack(list(work.right.values()))
    K, A, E, n, T = len(right), len(names), len(plan.eps), len(work.images), len(SHARES)
    counts = draw_resamples(n, seed=plan.seed)
    fooled = np.full((K, A, n), -1)
    held = np.full((K, A, E, n), np.nan)  # 1 for images that survive; NaN: attack does not apply
    zero, stuck = np.full((2, K, A), np.nan)
    curve, margin = np.full((2, K, A, E, T), np.nan)
    for (network, name), one in found.items():
        if name == LARGE:
            continue
        k, a = [*work.networks].index(network), names.index(name)
        fooled[k, a, one["rows"]] = one["level"]
        held[k, a] = fooled[k, a] > np.arange(E)[:, None]
        tried = (~np.isnan(one["gaps"])).sum(-1)  # 0 for transfer
        with np.errstate(invalid="ignore"):
            margin[k, a] = np.nansum(one["gaps"], -1) / tried
        left = (one["fell"][:, None] > SHARES[:, None]).sum(-1) / n
        curve[k, a] = np.nan if name == "transfer" else left
        stuck[k, a] = one["stuck"].mean()
        zero[k, a] = one["zero"].mean() if "zero" in one else np.nan
    plain = np.array([name != "adaptive" for name in names])
    steep = np.array([name in LOSSES for name in names])
    square = np.array([name == "square" for name in names])
    worst, by_apgd, blind = (
        np.fmin.reduce(held[:, some], 1, initial=np.nan) for some in (plain, steep, square)
    )

    def over_bounds(measured, *values) -> Estimate:
        return stack([measured(*(one[..., e, :] for one in values), counts) for e in range(E)], 1)

    values = {
        "clean": compare_means(right, counts),
        "accuracy": stack([over_bounds(compare_means, held[:, a]) for a in range(A)], 1),
        "worst": over_bounds(compare_means, worst),
        "flagged": compare_means(work.flagged, counts),
        "square_alone": over_bounds(compare_changes, blind, by_apgd),
        "unbounded": np.array([(found[k, LARGE]["level"] > 0).sum() / n for k in work.networks]),
        "zero": zero,
        "stuck": stuck,
        "curve": curve.round(4),
        "margin": margin.round(4),
        "fooled": fooled,
    }
    return {**values, "warnings": list(_warnings(work, **values))}


def _warnings(work: Work, *, square_alone, unbounded, stuck, curve, **_) -> Iterator[str]:
    """Yield warnings of attacks that are too weak."""
    late = np.fmax.reduce(curve[..., -3] - curve[..., -1], -1)
    for k, network in enumerate(work.networks):
        e = int(square_alone.low[k].argmax())
        if square_alone.value[k, e] > 0 and square_alone.low[k, e] > 0:
            yield (
                f"{network} masks gradients: at ε = {work.plan.eps[e]:.3g} Square, which uses "
                f"none, fools {100 * square_alone.value[k, e]:.1f} points more images than APGD"
            )
        if unbounded[k] > 0:
            yield (
                f"{network} is still correct on {unbounded[k]:.1%} of images with an "
                "unbounded perturbation: the attack fails"
            )
        for a, name in enumerate(work.names):
            if stuck[k, a] >= SUSPECT:
                yield f"{stuck[k, a]:.1%} of images gave {name} no gradient in {network}"
            if late[k, a] >= SUSPECT:
                yield (
                    f"{late[k, a]:.1%} of images fell in the last tenth of {name} in {network}: "
                    "more steps would fool more"
                )
