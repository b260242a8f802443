"""The work of `attack`: which attacks apply, pieces of images that are kept, and statistics."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import process_time
from typing import Any, NamedTuple

import numpy as np
import torch

from capsviz.analyses.detect import measure as detecting
from capsviz.experiments import attacks
from capsviz.experiments.attacks import LOSSES, Ball
from capsviz.files import write_bytes
from capsviz.nn.functional import predict
from capsviz.nn.images import check_images
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.detection import threshold
from capsviz.statistics.estimate import Estimate, stack
from capsviz.statistics.intervals import paired_interval
from capsviz.tracing import LENGTH, score_name, scores
from capsviz.tracing.network import abilities

PIECE = 128  # images of a piece of work: what a command that was killed loses at most
SHARES = np.linspace(0, 1, 21)  # of the steps, in curves
SUSPECT = 0.01  # share of images from which on a check warns
ENOUGH = 3  # classes of DLR
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
        self.networks, self.images, self.labels, self.plan = networks, images, labels, plan
        self.names = names
        for model in networks.values():
            attacks.require_steady(model, images)
        self.digests = [_digest(model) for model in networks.values()]
        self.gradient = {k: attacks.has_gradient(one, images) for k, one in networks.items()}
        plain = [k for k, one in networks.items() if not abilities(one).has_capsules]
        plain = [k for k in plain if self.gradient[k]]
        self.source = plain[0] if plain and "transfer" in names and len(networks) > 1 else None
        lacks = {(k, name): self._lacks(k, name, inputs) for k in networks for name in names}
        self.applies = {pair for pair, why in lacks.items() if not why}
        self.missing = [f"{name} is left out for {k}: {w}" for (k, name), w in lacks.items() if w]
        for name in names if strict else ():
            if not any((k, name) in self.applies for k in networks):
                raise ValueError(
                    next(f"{name}: {w}" for (_, one), w in lacks.items() if one == name)
                )
        if not strict:
            self.names = [a for a in names if any((k, a) in self.applies for k in networks)]
        self.right = np.stack([_right(one, images, labels) for one in networks.values()])
        self.limits, self.flagged = {}, {}
        for k in networks:
            if (k, "adaptive") in self.applies:
                held, _ = detecting.held_out(networks[k], detecting.validation_images(inputs))
                self.limits[k] = threshold(held)
                self.flagged[k] = detecting.held_out(networks[k], images)[0] > self.limits[k]

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
            return "" if classes >= ENOUGH else f"DLR needs {ENOUGH} classes, got {classes}"
        if name == "apgd-ce":
            return ""
        if not able.has_capsules:
            return "it has no capsules"
        if name == "adaptive":
            if not able.decodes:
                return "it has no decoder"
            return "" if inputs is not None else "no validation images are at hand"
        if score_name(model, self.images) != LENGTH:
            return "its scores are no lengths of poses"
        if name == "vote" and not (able.gives("votes") and able.links is None):
            return "it shows no votes of all children for all classes"
        return ""

    def jobs(self) -> list[Job]:
        """Return the work in pieces: attacks of correct images, and checks."""
        jobs = []
        for k, right in zip(self.networks, self.right, strict=True):
            every = np.arange(len(self.images))
            for name in (*self.names, LARGE, FLAT):
                if name in (LARGE, FLAT) or (k, name) in self.applies:
                    places = every if name in ("adaptive", "transfer") else every[right]
                    ends = [*range(0, len(places), PIECE), len(places)]
                    jobs += [Job(k, name, places[a:b]) for a, b in pairwise(ends)]
        return jobs

    def run(self, progress, say, scratch: Path | None) -> dict[tuple[str, str], list]:
        """Attack, and return outcomes with their jobs, by network and attack.

        Pieces are kept in the folder `scratch`, and those that lie there are not attacked again.
        """
        jobs = self.jobs()
        kept = {j: self._read(scratch, job) for j, job in enumerate(jobs)} if scratch else {}
        left = [job for j, job in enumerate(jobs) if kept.get(j) is None]
        if say is not None and left:
            say(self._cost(left, len(jobs)))
        outcomes: dict[tuple[str, str], list] = {}
        for j in progress(range(len(jobs))):
            job, outcome = jobs[j], kept.get(j)
            if outcome is None:
                outcome = self._attack(job)
                if scratch is not None:
                    buffer = io.BytesIO()
                    np.savez_compressed(buffer, **outcome)
                    scratch.mkdir(parents=True, exist_ok=True)
                    write_bytes(self._path(scratch, job), buffer.getvalue())
            outcomes.setdefault((job.network, job.attack), []).append((job, outcome))
        return outcomes

    def _cost(self, left: list[Job], of: int) -> str:
        """Return how long it takes at most, from one pass of each network."""
        seconds, plan = 0.0, self.plan
        for k in {job.network for job in left}:
            model, once = self.networks[k], self.images[:TIMED]
            start = process_time()
            if self.gradient[k]:
                attacks.flat(model, attacks.on_scores(model), once, self.labels[:TIMED])
            else:
                scores(model, once)
            each = (process_time() - start) / len(once)
            for job in left:
                if job.network == k and job.attack != FLAT:
                    passes = len(plan.eps) * plan.steps * plan.restarts
                    if job.attack == "square":
                        passes = len(plan.eps) * plan.queries * FORWARD
                    passes = plan.steps if job.attack == LARGE else passes
                    seconds += each * passes * len(job.places)
        done = f", {of - len(left)} of {of} parts are there" if len(left) < of else ""
        wait = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
        return f"at most {wait} of a CPU core; images that are fooled leave early{done}"

    def _path(self, scratch: Path, job: Job) -> Path:
        sources = [attacks.__file__, __file__]
        code = [hashlib.sha256(Path(one).read_bytes()).hexdigest() for one in sources]
        digests = dict(zip(self.networks, self.digests, strict=True))
        own = [digests[job.network], digests.get(self.source) if job.attack == "transfer" else None]
        some = self.images[torch.from_numpy(job.places)].numpy().tobytes()
        data = [hashlib.sha256(some).hexdigest(), self.labels.numpy()[job.places].tolist()]
        limit = self.limits.get(job.network) if job.attack == "adaptive" else None
        text = json.dumps([code, own, job.attack, self.plan, data, job.places.tolist(), limit])
        return scratch / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.npz"

    def _read(self, scratch: Path, job: Job) -> Mapping[str, np.ndarray] | None:
        path = self._path(scratch, job)
        return dict(np.load(path)) if path.is_file() else None

    def _attack(self, job: Job) -> dict[str, Any]:
        model, plan, name = self.networks[job.network], self.plan, job.attack
        places = torch.from_numpy(job.places)
        images, labels = self.images[places], self.labels[places]
        if name == FLAT:
            losses = {
                one: loss for one, loss in LOSSES.items() if (job.network, one) in self.applies
            }
            looks = {one: attacks.on_scores(model, loss) for one, loss in losses.items()}
            return {one: attacks.flat(model, look, images, labels).numpy()
                    for one, look in looks.items()}  # fmt: skip
        if name == LARGE:
            plan = plan._replace(
                eps=(attacks.largest_eps(plan.norm, images.shape[1:]),), restarts=1
            )
            name = "apgd-ce" if self.gradient[job.network] else "square"
        if name == "transfer":
            return self._transferred(images, labels, places)
        if name == "square":
            plan = plan._replace(steps=plan.queries, restarts=1)

            def once(some, true, ball, start, seed):
                how = {"queries": plan.queries, "start": start, "seed": seed}
                return attacks.square(model, some, true, ball, **how)
        else:
            if name == "vote":
                look = attacks.on_votes(model)
            elif name == "adaptive":
                look = attacks.on_detector(model, self.limits[job.network])
            else:
                look = attacks.on_scores(model, LOSSES[name])

            def once(some, true, ball, start, seed):
                return attacks.apgd(model, look, some, true, ball, steps=plan.steps, start=start)

        return _at_growing_bounds(once, images, labels, plan, self._noise(places))

    def _noise(self, places):
        """Return a function: restart -> noise for the images of a piece."""
        shape, seed = self.images.shape, self.plan.seed
        return lambda restart: attacks.noise(shape, seed + restart)[places]

    def _transferred(self, images, labels, places) -> dict[str, np.ndarray]:
        """Attack the source as hard as it goes, and look which networks are fooled as well."""
        source, plan, start = self.networks[self.source], self.plan, self._noise(places)(0)
        fooled = []
        for eps in plan.eps:
            look, ball = attacks.on_scores(source, LOSSES["apgd-ce"]), Ball(eps, plan.norm)
            how = {"steps": plan.steps, "start": start, "leave": False}
            made = attacks.apgd(source, look, images, labels, ball, **how).images
            fooled.append(~np.stack([_right(m, made, labels) for m in self.networks.values()]))
        return {"transferred": np.maximum.accumulate(np.stack(fooled, 1), 1)}  # (K, E, P)


def _at_growing_bounds(once, images, labels, plan: Plan, noise) -> dict[str, np.ndarray]:
    """Attack P images at each bound, those that a smaller one fooled no more.

    Returns
    -------
    level (P,), number of the first bound that fools, E for none; attacked (E,), how many were;
    alive (E, T) and margin (E, T), images that are not fooled, and sums of margins, after each of
    `SHARES` of the steps; restarts (E, R), images that are not fooled; stuck (), images without a
    gradient at the first bound.
    """
    E, T, R, whole = len(plan.eps), len(SHARES), plan.restarts, plan.steps + 1
    level = torch.full((len(images),), E)
    out = {"alive": np.zeros((E, T)), "margin": np.zeros((E, T)), "attacked": np.zeros(E),
           "restarts": np.zeros((E, R)), "stuck": np.zeros(())}  # fmt: skip
    for e, eps in enumerate(plan.eps):
        fell = torch.where(level < E, -1.0, torch.inf)
        for r in range(R):
            place = (level == E).nonzero().flatten()
            if len(place):
                ball, start = Ball(eps, plan.norm), noise(r)[place]
                found = once(images[place], labels[place], ball, start, plan.seed + r)
                level[place[found.done]] = e
                fell[place[found.done]] = (r * whole + found.when[found.done]).float()
                if r == 0:
                    at = (SHARES * plan.steps).round().astype(int)
                    out["margin"][e] = found.gaps[at].sum(1).numpy()
                    out["attacked"][e] = len(place)
                    out["stuck"] += int(found.stuck.sum()) if e == 0 else 0
            out["restarts"][e, r] = int((level == E).sum())
        out["alive"][e] = (fell.numpy()[:, None] > SHARES * (R * whole - 1)).sum(0)
    return {"level": level.numpy(), **out}


def statistics(work: Work, outcomes) -> dict:
    """Return the fields of a result that are counted from outcomes of pieces."""
    names, networks, plan = work.names, list(work.networks), work.plan
    K, A, E, n, T = len(networks), len(names), len(plan.eps), len(work.images), len(SHARES)
    counts = draw_resamples(n, seed=plan.seed)
    fooled = np.full((K, A, n), -1)
    zero, stuck, late = (np.full((K, A), np.nan) for _ in range(3))
    curve, margins = np.full((K, A, E, T), np.nan), np.full((K, A, E, T), np.nan)
    restarts, unbounded = np.full((K, A, E, plan.restarts), np.nan), np.zeros(K)
    for (k, name), pieces in outcomes.items():
        row = networks.index(k)
        if name == LARGE:
            unbounded[row] = sum((one["level"] > 0).sum() for _, one in pieces) / n
        elif name == FLAT:
            for one in pieces[0][1]:
                zero[row, names.index(one)] = np.concatenate([p[one] for _, p in pieces]).mean()
        else:
            column = names.index(name)
            for job, one in pieces:
                level = E - one["transferred"][row].sum(0) if "transferred" in one else one["level"]
                fooled[row, column, job.places] = level
            if name == "transfer":
                fooled[row, column, ~work.right[row]] = -1
            if name != "transfer":
                total = {field: sum(one[field] for _, one in pieces) for field in
                         ("alive", "margin", "attacked", "restarts", "stuck")}  # fmt: skip
                curve[row, column] = total["alive"] / n
                margins[row, column] = total["margin"] / np.maximum(total["attacked"], 1)[:, None]
                restarts[row, column] = (total["restarts"] / n)[:, : plan.restarts]
                stuck[row, column] = total["stuck"] / max(total["attacked"][0], 1)
                late[row, column] = (total["alive"][:, -3] - total["alive"][:, -1]).max() / n
    known = np.array([[(k, name) in work.applies for name in names] for k in networks])
    held = fooled[..., None] > np.arange(E)[:, None].T  # (K, A, N, E) still correct
    held = held.transpose(0, 1, 3, 2)
    plain = np.array([name != "adaptive" for name in names])
    worst = np.stack([
        (held[k][known[k] & plain].all(0) if (known[k] & plain).any() else held[k, 0])
        for k in range(K)
    ])  # fmt: skip
    some = (known & plain).any(1)
    fields = {
        "clean": compare_means(work.right, counts),
        "accuracy": stack(
            [stack([_known(held[:, a, e], known[:, a], counts) for e in range(E)], 1)
             for a in range(A)], 1),
        "worst": stack([_known(worst[:, e], some, counts) for e in range(E)], 1),
        "flagged": _known(
            np.stack([work.flagged.get(k, np.zeros(n, bool)) for k in networks]),
            np.array([k in work.flagged for k in networks]), counts),
        "square_alone": _square_alone(held, names, known),
    }  # fmt: skip
    arrays = {
        "unbounded": unbounded, "zero": zero, "stuck": stuck, "late": late, "restarts": restarts,
        "curve": curve.round(4), "margin": margins.round(4), "fooled": fooled,
    }  # fmt: skip
    return {**fields, **arrays, "warnings": _warnings(work, fields, arrays)}


def _known(values: np.ndarray, known: np.ndarray, counts) -> Estimate:
    """Return means (K,) of values (K, N), NaN where they are not known."""
    one = compare_means(values, counts)
    assert one.difference is not None

    def blank(part: Estimate, lacking) -> Estimate:
        value, ends = part.value.copy(), part.ci95.copy()
        value[lacking], ends[lacking] = np.nan, np.nan
        return replace(part, value=value, ci95=ends, draws=None, difference=None)

    less = blank(one.difference, ~known | ~known[0])
    return replace(blank(one, ~known), difference=less)


def _square_alone(held, names, known) -> Estimate:
    """Return images (K, E) that Square fools and no APGD does, less the reverse; NaN: not both."""
    K, _, E, n = held.shape
    value, ends = np.full((K, E), np.nan), np.full((K, E, 2), np.nan)
    steep = np.array([name in LOSSES for name in names])
    for k in range(K):
        if "square" in names and (steep & known[k]).any():
            survive = held[k][steep & known[k]].all(0)
            blind = held[k, names.index("square")]
            for e in range(E):
                more, less = (
                    int((survive[e] & ~blind[e]).sum()),
                    int((blind[e] & ~survive[e]).sum()),
                )
                value[k, e] = (more - less) / n
                ends[k, e] = paired_interval(more, less, n)
    return Estimate(value, ends, n)


def _warnings(work: Work, fields, arrays) -> list[str]:
    """Return what is suspect, in words."""
    texts = []
    for k, network in enumerate(work.networks):
        alone = fields["square_alone"]
        e = int(np.nan_to_num(alone.low[k], nan=-1).argmax())
        if alone.low[k, e] > 0:
            texts.append(
                f"{network} masks gradients: at ε = {work.plan.eps[e]:.3g} Square, which uses "
                f"none, fools {100 * alone.value[k, e]:.1f} points more images than APGD"
            )
        if arrays["unbounded"][k] > 0:
            texts.append(
                f"{network} is still correct on {arrays['unbounded'][k]:.1%} of images if every "
                "image is allowed: the attack fails"
            )
        for a, name in enumerate(work.names):
            if arrays["stuck"][k, a] >= SUSPECT:
                texts.append(
                    f"{arrays['stuck'][k, a]:.1%} of images gave {name} no gradient in {network}"
                )
            if arrays["late"][k, a] >= SUSPECT:
                texts.append(
                    f"{arrays['late'][k, a]:.1%} of images fell in the last tenth of {name} in "
                    f"{network}: more steps would fool more"
                )
    return texts


def _right(model, images, labels) -> np.ndarray:
    return (predict(scores(model, images)) == labels).numpy()


def _digest(model) -> str:
    """Return the SHA-256 of all weights and buffers of a network."""
    content = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if isinstance(tensor, torch.Tensor):
            raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            content.update(name.encode() + raw.numpy().tobytes())
    return content.hexdigest()
