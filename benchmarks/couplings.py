"""Do coupling coefficients find the decisive features? Test it on synthetic data with known ones.

`python -m benchmarks.couplings` trains networks whose softmax runs over parents, as in the paper,
or over children, as in some published code. It trains each ten times, which takes a quarter of an
hour, and writes `benchmarks/results/couplings.json`.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from scipy.stats import spearmanr
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from benchmarks import write
from capsviz.nn.functional import margin_loss, squash

FEATURES, NUMBERS, PARENTS, POSE = 80, 8, 2, 8
DECIDE = LOUD = 16  # decisive features, and irrelevant ones with twice the standard deviation
TRAIN, TEST, EPOCHS, BATCH, RATE = 3000, 1000, 12, 100, 0.004
AXES = {"parents": 2, "children": 1}  # axis along which couplings (B, I, J) sum to 1
SEEDS = range(10)


class Table(NamedTuple):
    """Random features; it is known which ones decide."""

    rows: Tensor  # (N, I, D): I features of D numbers
    labels: Tensor  # (N,) 0 or 1
    strength: Tensor  # (I,) distance of the class means from 0; 0: an irrelevant feature
    loud: Tensor  # (I,) whether the standard deviation is 2 instead of 1


def table(seed: int, n: int) -> Table:
    """Draw a table: the class moves each decisive feature along its own direction."""
    draw = torch.Generator().manual_seed(seed)
    along = nn.functional.normalize(torch.randn(FEATURES, NUMBERS, generator=draw), dim=1)
    order = torch.randperm(FEATURES, generator=draw)
    strength = torch.zeros(FEATURES)
    strength[order[:DECIDE]] = torch.linspace(0.6 / DECIDE, 0.6, DECIDE)
    loud = torch.zeros(FEATURES, dtype=torch.bool)
    loud[order[DECIDE : DECIDE + LOUD]] = True
    labels = torch.randint(2, (n,), generator=draw)
    rows = torch.randn(n, FEATURES, NUMBERS, generator=draw) * (1 + loud.float())[:, None]
    moved = (2 * labels - 1)[:, None, None] * strength[:, None] * along
    return Table(rows + moved, labels, strength, loud)


class Routed(nn.Module):
    """One capsule for each feature, and three iterations of routing to two classes."""

    def __init__(self, over: str) -> None:
        super().__init__()
        self.axis = AXES[over]
        size = 0.1 if over == "parents" else 1.0  # couplings over children are far below 1/2
        self.inward = nn.Parameter(torch.randn(FEATURES, NUMBERS, NUMBERS) * NUMBERS**-0.5)
        self.bias = nn.Parameter(torch.zeros(FEATURES, NUMBERS))
        self.matrices = nn.Parameter(torch.randn(FEATURES, PARENTS, NUMBERS, POSE) * size)

    def children(self, rows: Tensor) -> Tensor:
        """Return the capsules (N, I, D) of rows."""
        return squash(torch.einsum("nid,ide->nie", rows, self.inward) + self.bias)

    def route(self, children: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return poses (N, J, E), couplings (N, I, J) and votes (N, I, J, E)."""
        votes = torch.einsum("nid,ijde->nije", children, self.matrices)
        logits = torch.zeros_like(votes[..., 0])
        for _ in range(3):
            couplings = logits.softmax(self.axis)
            poses = squash(torch.einsum("nij,nije->nje", couplings, votes))
            logits = logits + torch.einsum("nije,nje->nij", votes, poses)
        return poses, couplings, votes


def trained(over: str, data: Table) -> Routed:
    """Train a network on the first rows."""
    network = Routed(over)
    optimiser = torch.optim.Adam(network.parameters(), RATE)
    for _ in range(EPOCHS):
        for some in torch.randperm(TRAIN).split(BATCH):
            lengths = network.route(network.children(data.rows[some]))[0].norm(dim=2)
            loss = margin_loss(lengths, data.labels[some]).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return network


def maps(network: Routed, rows: Tensor, labels: Tensor) -> tuple[float, dict[str, Tensor]]:
    """Return the accuracy on test rows, and the values (I,) of the features by each map."""
    each = torch.arange(len(rows))

    def margins(children: Tensor) -> Tensor:
        lengths = network.route(children)[0].norm(dim=2)
        return lengths[each, labels] - lengths[each, 1 - labels]

    rows = rows.clone().requires_grad_()
    margin = margins(network.children(rows))
    (gradient,) = torch.autograd.grad(margin.sum(), rows)
    with torch.no_grad():
        children = network.children(rows)
        poses, couplings, votes = network.route(children)
        along = torch.einsum("nije,nje->nij", votes, nn.functional.normalize(poses, dim=2))
        by_class = [couplings[labels == k, :, 1].mean(0) for k in (0, 1)]
        effects = []
        for feature in range(FEATURES):
            without = children.clone()
            without[:, feature] = 0
            effects.append((margin - margins(without)).mean())
    return float((margin > 0).float().mean()), {
        "coupling to the row's class": couplings[each, :, labels].mean(0),
        "coupling to one class, difference between the classes' rows": by_class[1] - by_class[0],
        "coupling, standard deviation over rows": couplings[:, :, 1].std(0),
        "coupling times vote along the pose": (couplings * along)[each, :, labels].mean(0),
        "control: length of the capsule": children.norm(dim=2).mean(0),
        "control: norm of the gradient": gradient.norm(dim=2).mean(0),
        "measured effect of removing the capsule": torch.stack(effects),
        "control: random": torch.rand(FEATURES),
    }


def scores(values: Tensor, data: Table) -> list[float]:
    """Return AUROC of decisive features, rank correlation with strength, and AUROC of loud ones."""
    decides = data.strength > 0
    of_rest = (data.loud[~decides], values[~decides])
    return [
        float(roc_auc_score(decides, values)),
        float(spearmanr(values[decides], data.strength[decides])[0]),
        float(roc_auc_score(*of_rest)),
    ]


def main() -> None:
    """Train and measure all networks, and write the result."""
    found: dict[str, list] = {over: [] for over in AXES}
    for seed in SEEDS:
        data = table(seed, TRAIN + TEST)
        for over, runs in found.items():
            torch.manual_seed(seed)
            fresh = maps(Routed(over), data.rows[TRAIN:], data.labels[TRAIN:])[1]
            network = trained(over, data)
            accuracy, by_map = maps(network, data.rows[TRAIN:], data.labels[TRAIN:])
            run = {name: scores(values, data) for name, values in by_map.items()}
            run["control: coupling of the untrained network"] = scores(
                fresh["coupling to the row's class"], data
            )
            runs.append({"accuracy": accuracy, "maps": run})
            print(seed, over, f"{accuracy:.1%}", run)
            write("couplings", found)


if __name__ == "__main__":
    main()
