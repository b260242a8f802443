"""Do coupling coefficients find the features that decide? A table in which that is known.

    python -m benchmarks.couplings_as_importance    # 20 trainings: a few minutes on one core

Published work ranks the features of a table by the coupling coefficients of their capsules. Here 20
of 500 features decide between two classes and the others are noise; a network with one capsule for
each feature is trained, and every measure ranks the features. The softmax of the couplings runs
over classes, as in the paper, or over features, as in some public code. Results are in
benchmarks/results/couplings_as_importance.json.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn
from torch.nn.functional import one_hot

import capsviz
from benchmarks import RESULTS
from capsviz.files import write_text
from capsviz.nn.functional import margin_loss, squash
from capsviz.statistics.intervals import mean_interval

FEATURES, NUMBERS, DECIDING, CLASSES = 500, 8, 20, 2
TRAIN, TEST, EPOCHS, BATCH = 4000, 500, 12, 64
SEEDS = range(5)
AXES = {"classes": 2, "features": 1}  # of the softmax; couplings are (B, I, J)
LOUD = 3.0  # times the deviation of other features, of 50 that decide nothing


class OneCapsuleEach(nn.Module):
    """Features (B, I, D) -> lengths (B, J): three iterations of dynamic routing."""

    def __init__(self, axis: int):
        super().__init__()
        self.axis = axis
        self.matrices = nn.Parameter(0.1 * torch.randn(FEATURES, CLASSES, 16, NUMBERS))

    def forward(self, x: Tensor) -> Tensor:
        """Return the lengths of the class capsules."""
        votes = torch.einsum("ijed,bid->bije", self.matrices, squash(x))
        logits = torch.zeros_like(votes[..., 0])
        for iteration in range(3):
            couplings = logits.softmax(self.axis)
            poses = squash((couplings[..., None] * votes).sum(1))
            if iteration < 2:
                logits = logits + (votes * poses[:, None]).sum(-1)
        return poses.norm(dim=-1)


def table(n: int, loud: bool, weights: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return n rows (n, I, D) and their classes; the first 20 features decide."""
    x = torch.randn(n, FEATURES, NUMBERS, generator=draw)
    if loud:
        x[:, -50:] *= LOUD
    return x, (torch.einsum("bid,id->b", x[:, :DECIDING], weights) > 0).long()


def trained(axis: int, loud: bool, seed: int) -> tuple[OneCapsuleEach, Tensor, Tensor]:
    """Train a network; return it with test rows and classes."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    weights = torch.randn(DECIDING, NUMBERS, generator=draw)
    rows, labels = table(TRAIN, loud, weights, draw)
    network = OneCapsuleEach(axis)
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(TRAIN, generator=draw).split(BATCH):
            losses = margin_loss(network(rows[batch]), one_hot(labels[batch], CLASSES).float())
            optimiser.zero_grad()
            losses.mean().backward()
            optimiser.step()
    return network.eval(), *table(TEST, loud, weights, draw)


def measures(network: OneCapsuleEach, x: Tensor) -> dict[str, Tensor]:
    """Return what each measure gives each feature (I,), of the predicted class, over rows."""
    wrapped = capsviz.wrap(network, classes=CLASSES, example=x[:3])
    trace = capsviz.trace(wrapped, x)
    rows, own = torch.arange(len(x)), trace.lengths.argmax(1)
    couplings = trace.couplings[-1][rows, :, own]
    votes = trace.votes[rows, :, own]
    pose = trace.poses[-1][rows, own]
    along = torch.einsum("bie,be->bi", votes, pose / pose.norm(dim=1, keepdim=True))
    given = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(network(given)[rows, own].sum(), given)
    return {
        "coupling": couplings.mean(0),
        "coupling, deviation over rows": couplings.std(0),
        "length of the feature": x.norm(dim=2).mean(0),
        "length of the vote": votes.norm(dim=2).mean(0),
        "vote along the pose": along.mean(0),
        "evidence: coupling times that": (couplings * along).mean(0),
        "gradient": slope.norm(dim=2).mean(0),
        "gradient times feature": (slope * x).sum(2).mean(0),
        "random": torch.rand(FEATURES, generator=torch.Generator().manual_seed(0)),
    }


def measure(say: Callable[[str], None] = print) -> dict:
    """Train all networks; return AUROC and accuracies by table, axis and seed."""
    truth = (torch.arange(FEATURES) < DECIDING).numpy()
    found: dict[str, dict] = {}
    for loud in (False, True):
        for name, axis in AXES.items():
            each: dict[str, list[float]] = {}
            for seed in SEEDS:
                network, x, labels = trained(axis, loud, seed)
                right = (network(x).argmax(1) == labels).float().mean()
                each.setdefault("accuracy", []).append(round(float(right), 4))
                for what, values in measures(network, x).items():
                    area = roc_auc_score(truth, values.detach().numpy())
                    each.setdefault(what, []).append(round(float(area), 4))
            found[f"{'loud noise' if loud else 'equal'}, over {name}"] = each
            say(
                f"{list(found)[-1]}: " + ", ".join(f"{k} {sum(v) / 5:.2f}" for k, v in each.items())
            )
    return {"features": FEATURES, "deciding": DECIDING, "seeds": list(SEEDS), "found": found}


def rows(found: dict[str, dict]) -> list[list[str]]:
    """Return a row for each measure, with means and 95 % intervals over seeds."""
    lines = []
    for name in next(iter(found.values())):
        cells = []
        for each in found.values():
            mean, ends = mean_interval(torch.tensor(each[name]).double().numpy())
            low, high = (min(max(end, 0.0), 1.0) for end in ends)
            cells.append(f"{mean:.2f} [{low:.2f}, {high:.2f}]")
        lines.append([name, *cells])
    return lines


def main() -> None:
    """Measure, and write the results."""
    path = RESULTS / "couplings_as_importance.json"
    write_text(path, json.dumps(measure(), indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
