"""Score broken digits by the largest score divided by the sum of all, for several training runs.

    python -m benchmarks.broken NAME RUN...

`parts` scores a capsule network by the length of its longest class capsule. Cross-entropy, however,
trains the true class's share of all lengths, as it trains a probability in networks without
capsules. The AUROC of these shares goes to results/broken.json, by NAME.
"""

import sys
from operator import itemgetter

from torch import nn

from benchmarks import read, write
from benchmarks.clock import about
from capsviz import checkpoint, data
from capsviz.analyses import parts
from capsviz.analyses.parts import measure
from capsviz.nn.models import Output
from capsviz.transforms.augment import to_float

N = 1000  # the test images that `parts` uses


class Shares(nn.Module):
    """A network whose scores are those of another one, divided by their sum."""

    def __init__(self, model):
        super().__init__()
        self.model, self.card, self.config = model, model.card, model.config

    def forward(self, images):
        """Return shares (B, J), which sum to 1, of images (B, C, H, W)."""
        lengths = self.model(images).lengths
        return Output(lengths / lengths.sum(1, keepdim=True))


def main() -> None:
    """Measure the AUROC of each kind of broken images, run by run."""
    name, *folders = sys.argv[1:]
    test, runs = data.load("mnist", "test").sample(N), []
    images = to_float(test.images)
    forms = measure.broken(images, test.labels, seed=0)
    for folder in folders:
        model = checkpoint.load(folder)
        _, areas, _ = measure.compare({name: Shares(model)}, images, forms, parts.CONTROLS, seed=0)
        runs.append({
            "seed": model.card["recipe"]["seed"],
            "weights_sha256": model.card["weights"]["sha256"],
            "auroc": dict(zip(forms, areas.value[0].tolist(), strict=True)),
        })  # fmt: skip
        print(runs[-1], flush=True)
    write("broken", read("broken") | {name: sorted(runs, key=itemgetter("seed")), "about": about()})


if __name__ == "__main__":
    main()
