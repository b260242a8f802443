"""The work of `attack`: which attacks apply, pieces of images that are kept, and statistics."""

from __future__ import annotations

import hashlib
import io
import json
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch

from capsviz.experiments import attacks
from capsviz.experiments.attacks import LOSSES, Ball
from capsviz.files import write_bytes
from capsviz.inputs.samples import other_images
from capsviz.nn.functional import predict
from capsviz.nn.images import check_images
from capsviz.statistics.comparison import compare_changes, compare_means, draw_resamples
from capsviz.statistics.detection import threshold
from capsviz.statistics.estimate import Estimate, stack
from capsviz.tracing import LENGTH, score_name, scores, trace
from capsviz.tracing.network import abilities
from capsviz.tracing.outputs import distance, require_reconstruction

PIECE = 128  # images of a piece of work: what a command that was killed loses at most
SHARES = np.linspace(0, 1, 21)  # of the steps, in curves
SUSPECT = 0.01  # share of images from which on a check warns
HELD_OUT = 1000  # images behind the detector's threshold, where there are as many
TIMED = 16  # images that a pass is timed on
FORWARD = 0.4  # time of a pass without gradients, as a share of one with gradients
LARGE, FLAT = "large", "flat"  # work that is no attack of the user's: checks


class Plan(NamedTuple):
    """Terms of the attacks, the same for all networks."""

    eps: tuple[float, ...]
    norm: str
    steps: int
    restarts: int
    queries: int
    seed: int


class Job(NamedTuple):
    """One attack of one network on one piece of the images."""

    network: str
    attack: str
    places: np.ndarray  # (P,) numbers of the images


class Work:
    """All that is to be attacked; ValueError for what cannot be, before anything is."""

    def __init__(self, networks, images, labels, names, plan, inputs, *, strict):
        check_images(images)
        attacks.check(plan.eps, plan.steps, plan.norm)
        for model in networks.values():
            attacks.require_steady(model, images)
        self.networks, self.images, self.labels, self.plan = networks, images, labels, plan
        self.digests = {k: _digest(model) for k, model in networks.items()}
        self.gradient = {k: attacks.has_gradient(one, images) for k, one in networks.items()}
        plain = [k for k, one in networks.items() if not abilities(one).has_capsules]
        self.source = next((k for k in plain if self.gradient[k] and len(networks) > 1), None)
        lacks = {(k, name): self._lacks(k, name, inputs) for name in names for k in networks}
        self.applies = {pair for pair, why in lacks.items() if not why}
        self.missing = [f"{name} is left out for {k}: {w}" for (k, name), w in lacks.items() if w]
        self.names = [a for a in names if any((k, a) in self.applies for k in networks)]
        if strict and self.names != names:
            raise ValueError(
                next(f"{a}: {w}" for (_, a), w in lacks.items() if a not in self.names)
            )
        self.right = np.stack([_right(one, images, labels) for one in networks.values()])
        for k, some in zip(networks, self.right, strict=True):
            if not some.any():
                raise ValueError(
                    f"'{k}' classifies none of {len(images)} images correctly: nothing to attack"
                )
        self.limits, self.flagged = {}, np.full((len(networks), len(images)), np.nan)
        for row, (k, model) in enumerate(networks.items()):
            if (k, "adaptive") in self.applies:
                self.limits[k] = threshold(_far(model, other_images(inputs, HELD_OUT).images))
                self.flagged[row] = _far(model, images) > self.limits[k]

    def _lacks(self, k: str, name: str, inputs) -> str:
        """Return why an attack does not apply to a network; "": it does."""
        model = self.networks[k]
        able = abilities(model)
        if name == "transfer":
            if self.source is None:
                return "there is no network without capsules to attack instead"
            return "it is the network that is attacked" if k == self.source else ""
        if name == "square":
            return ""
        if not self.gradient[k]:
            return "no gradient reaches the images: only square can attack it"
        if name == "apgd-dlr":
            classes = scores(model, self.images[:1]).shape[1]
            return "" if classes > 2 else f"DLR needs 3 classes, got {classes}"
        if name == "apgd-ce":
            return ""
        if not able.has_capsules:
            return "it has no capsules"
        if name == "adaptive":
            return "" if able.decodes and inputs is not None else "it has no decoder"
        if score_name(model, self.images) != LENGTH:
            return "its scores are no lengths of poses"
        if name == "vote" and not (able.gives("votes") and able.links is None):
            return "it shows no votes of all children for all classes"
        return ""

    def jobs(self) -> list[Job]:
        """Return the work in pieces: attacks of correct images, and checks."""
        jobs, every = [], np.arange(len(self.images))
        for k, right in zip(self.networks, self.right, strict=True):
            for name in (*self.names, LARGE, FLAT):
                if name in (LARGE, FLAT) or (k, name) in self.applies:
                    places = every if name == "adaptive" else every[right]
                    ends = [*range(0, len(places), PIECE), len(places)]
                    jobs += [Job(k, name, places[a:b]) for a, b in pairwise(ends)]
        return jobs

    def run(self, progress, say, scratch: Path | None) -> dict[tuple[str, str], dict[str, Any]]:
        """Attack, and return what was found, by network and attack, with the images' `places`.

        Pieces are kept in the folder `scratch`, and those that lie there are not attacked again.
        """
        jobs, pieces = self.jobs(), dict[tuple[str, str], list]()
        paths = [None if scratch is None else scratch / self._file(job) for job in jobs]
        left = [j for j, p in zip(jobs, paths, strict=True) if p is None or not p.is_file()]
        if say is not None and left:
            say(self._cost(left, len(jobs)))
        for job, path in progress(list(zip(jobs, paths, strict=True))):
            if path is not None and path.is_file():
                found = dict(np.load(path))
            else:
                found = {"places": job.places, **self._attack(job)}
                if path is not None:
                    buffer = io.BytesIO()
                    np.savez_compressed(buffer, **found)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    write_bytes(path, buffer.getvalue())
            pieces.setdefault((job.network, job.attack), []).append(found)
        return {
            pair: {name: np.concatenate([one[name] for one in some], -1) for name in some[0]}
            for pair, some in pieces.items()
        }

    def _cost(self, left: list[Job], of: int) -> str:
        """Return how long it takes at most, from one pass of each network."""
        seconds, plan = 0.0, self.plan
        once, labels = self.images[:TIMED], self.labels[:TIMED]
        passes = {"square": len(plan.eps) * plan.queries * FORWARD, LARGE: plan.steps, FLAT: 1}
        for k in {job.network for job in left}:
            start, model = process_time(), self.networks[k]
            attacks.square(model, once, labels, Ball(1e-6), queries=1)
            each = (process_time() - start) / FORWARD / 2 / len(once)
            for job in left:
                count = passes.get(job.attack, len(plan.eps) * plan.steps * plan.restarts)
                seconds += each * count * len(job.places) * (job.network == k)
        done = f", {of - len(left)} of {of} parts are there" if len(left) < of else ""
        wait = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return f"at most {wait} of a CPU core; images that are fooled leave early{done}"

    def _file(self, job: Job) -> str:
        """Return a name that tells a piece apart from that of other networks, images or terms."""
        code = [Path(one).read_text("utf-8") for one in (attacks.__file__, __file__)]
        own = self.digests[job.network], self.digests.get(self.source), self.limits.get(job.network)
        some = self.images[torch.from_numpy(job.places)].numpy().tobytes()
        terms = [code, own, job.attack, self.plan, self.labels.numpy()[job.places].tolist()]
        text = json.dumps([*terms, hashlib.sha256(some).hexdigest(), job.places.tolist()])
        return f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"

    def _attack(self, job: Job) -> dict[str, Any]:
        model, plan, name = self.networks[job.network], self.plan, job.attack
        places = torch.from_numpy(job.places)
        images, labels = self.images[places], self.labels[places]
        if name == FLAT:
            looks = {a: attacks.on_scores(model, loss) for a, loss in LOSSES.items()
                     if (job.network, a) in self.applies}  # fmt: skip
            return {a: attacks.flat(model, look, images, labels).numpy()
                    for a, look in looks.items()}  # fmt: skip
        if name == LARGE:
            plan = plan._replace(eps=(attacks.largest_eps(plan.norm, images.shape[1:]),))
            name = "apgd-ce" if self.gradient[job.network] else "square"
        if name == "square":
            plan = plan._replace(steps=plan.queries, restarts=1)
        source = self.networks[self.source] if name == "transfer" else model
        if name == "vote":
            look = attacks.on_votes(model)
        elif name == "adaptive":
            look = attacks.on_detector(model, self.limits[job.network])
        else:
            look = attacks.on_scores(source, LOSSES.get(name, LOSSES["apgd-ce"]))

        def once(some, true, ball, start, seed):
            if name == "square":
                how = {"queries": plan.queries, "start": start, "seed": seed}
                return attacks.square(model, some, true, ball, **how)
            leave = name != "transfer"  # what is made for another network goes on
            how = {"steps": plan.steps, "start": start, "leave": leave}
            found = attacks.apgd(source, look, some, true, ball, **how)
            if leave:
                return found
            fooled = torch.from_numpy(~_right(model, found.images, true))
            return found._replace(done=fooled, when=torch.where(fooled, plan.steps, -1))

        def noise(restart):
            return attacks.noise(self.images.shape, plan.seed + restart)[places]

        return _at_growing_bounds(once, images, labels, plan, noise)


def _at_growing_bounds(once, images, labels, plan: Plan, noise) -> dict[str, np.ndarray]:
    """Attack P images at each bound, those that a smaller one fooled no more.

    Returns
    -------
    level (P,), number of the first bound that fools, E for none; fell (E, P), share of the steps
    until then, -1 for a smaller bound, infinite for never; gaps (E, T, P), largest margin of
    another class after each of `SHARES` of the steps of the first start, NaN where not attacked;
    stuck (P,), no gradient at the first bound.
    """
    E, P, R = len(plan.eps), len(images), plan.restarts
    level, stuck = torch.full((P,), E), torch.zeros(P, dtype=torch.bool)
    fell = torch.full((E, P), torch.inf)
    gaps = torch.full((E, len(SHARES), P), torch.nan)
    at = (SHARES * plan.steps).round().astype(int)
    for e, eps in enumerate(plan.eps):
        fell[e, level < E] = -1
        for r in range(R):
            place = (level == E).nonzero().flatten()
            if not len(place):
                break
            how = Ball(eps, plan.norm), noise(r)[place], plan.seed + r
            found = once(images[place], labels[place], *how)
            level[place[found.done]] = e
            fell[e, place[found.done]] = (r + found.when[found.done] / plan.steps) / R
            if r == 0:
                gaps[e][:, place] = found.gaps[at]
            if r == e == 0:
                stuck[place] = found.stuck
    each = {"level": level, "fell": fell, "gaps": gaps, "stuck": stuck}
    return {name: one.numpy() for name, one in each.items()}


def statistics(work: Work, found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a result that are counted from what `Work.run` found."""
    names, plan = work.names, work.plan
    K, A, E, n, T = len(work.networks), len(names), len(plan.eps), len(work.images), len(SHARES)
    counts = draw_resamples(n, seed=plan.seed)
    fooled, unbounded = np.full((K, A, n), -1), np.zeros(K)
    held = np.full((K, A, E, n), np.nan)  # 1 for images that survive; NaN: it does not apply
    zero, stuck = np.full((2, K, A), np.nan)
    curve, margin = np.full((2, K, A, E, T), np.nan)
    for k, network in enumerate(work.networks):
        unbounded[k] = (found[network, LARGE]["level"] > 0).sum() / n
        for a, name in enumerate(names):
            if name in found[network, FLAT]:
                zero[k, a] = found[network, FLAT][name].mean()
            if (network, name) in work.applies:
                one = found[network, name]
                fooled[k, a, one["places"]] = one["level"]
                held[k, a] = fooled[k, a] > np.arange(E)[:, None]
                curve[k, a] = (one["fell"][:, None] > SHARES[:, None]).sum(-1) / n
                tried = ~np.isnan(one["gaps"])
                margin[k, a] = np.nansum(one["gaps"], -1) / np.maximum(tried.sum(-1), 1)
                stuck[k, a] = one["stuck"].mean()
    plain = np.array([name != "adaptive" for name in names])
    steep = np.array([name in LOSSES for name in names])
    worst, by_apgd = (np.fmin.reduce(held[:, some], 1, initial=np.nan) for some in (plain, steep))
    blind = held[:, names.index("square")] if "square" in names else np.full_like(worst, np.nan)

    def over_bounds(measured, *values) -> Estimate:
        return stack([measured(*(one[..., e, :] for one in values), counts) for e in range(E)], 1)

    alone = over_bounds(compare_changes, blind, by_apgd)
    return {
        "clean": compare_means(work.right, counts),
        "accuracy": stack([over_bounds(compare_means, held[:, a]) for a in range(A)], 1),
        "worst": over_bounds(compare_means, worst),
        "flagged": compare_means(work.flagged, counts),
        "square_alone": alone,
        "unbounded": unbounded,
        "zero": zero,
        "stuck": stuck,
        "curve": curve.round(4),
        "margin": margin.round(4),
        "fooled": fooled,
        "warnings": _warnings(work, alone, unbounded, stuck, curve),
    }


def _warnings(work: Work, alone: Estimate, unbounded, stuck, curve) -> list[str]:
    """Return what is suspect, in words."""
    texts, late = [], (curve[..., -3] - curve[..., -1]).max(-1)
    for k, network in enumerate(work.networks):
        e = int(alone.low[k].argmax())
        if alone.value[k, e] > 0 and alone.low[k, e] > 0:
            texts.append(
                f"{network} masks gradients: at ε = {work.plan.eps[e]:.3g} Square, which uses "
                f"none, fools {100 * alone.value[k, e]:.1f} points more images than APGD"
            )
        if unbounded[k] > 0:
            texts.append(
                f"{network} is still correct on {unbounded[k]:.1%} of images if every image is "
                "allowed: the attack fails"
            )
        for a, name in enumerate(work.names):
            if stuck[k, a] >= SUSPECT:
                texts.append(f"{stuck[k, a]:.1%} of images gave {name} no gradient in {network}")
            if late[k, a] >= SUSPECT and name != "transfer":
                texts.append(
                    f"{late[k, a]:.1%} of images fell in the last tenth of {name} in {network}: "
                    "more steps would fool more"
                )
    return texts


def _right(model, images, labels) -> np.ndarray:
    return (predict(scores(model, images)) == labels).numpy()


def _far(model, images) -> np.ndarray:
    """Return the distance of each image to the winning capsule's reconstruction."""
    reconstruction = trace(model, images, keep=("reconstruction",)).reconstruction
    return distance(images, require_reconstruction(reconstruction)).numpy()


def _digest(model) -> str:
    """Return the SHA-256 of all weights and buffers of a network."""
    content = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            content.update(name.encode() + raw.numpy().tobytes())
    return content.hexdigest()
