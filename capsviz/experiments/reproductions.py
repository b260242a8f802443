"""Published tables, and the training runs that reproduce them.

Each function with `@table` lists the rows of one table. Its docstring is the caption, whose first
line is the title. A plug-in adds a table by a file with a docstring, `LABELS` (the names of the
first columns) and `cells() -> list[Cell]`. It may define `EPOCHS` and `APART`, as `table` takes
them. Runs of the same name are the same run, also in different tables.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from capsviz import discovery
from capsviz.nn import routing
from capsviz.training.recipe import Recipe, read_recipe

PLUGINS = "capsviz.experiments.reproductions"
EPOCHS = 50  # length of each run, unless a table sets its own
SABOUR = "Sabour et al. 2017"
NONE = "none: average pooling, linear"
RESNET = "cifar10-resnet"  # shipped; routed dynamically


class Cell(NamedTuple):
    """One row of a table: a training run, repeated for each seed."""

    run: str  # name of the run
    labels: tuple[str, ...]  # contents of the first columns
    recipe: Recipe
    published: str = "–"  # test error in percent, unless labelled otherwise, and its source
    margin: bool = True  # trained by the margin loss, so its loss can be compared


class Table(NamedTuple):
    """A published table."""

    caption: str
    labels: tuple[str, ...]
    cells: Callable[[], list[Cell]]
    epochs: int = EPOCHS
    apart: bool = False

    @property
    def title(self) -> str:
        """The first line of the caption."""
        return self.caption.partition("\n")[0]


TABLES: dict[str, Table] = {}


def table(*labels: str, epochs: int = EPOCHS, apart: bool = False) -> Callable:
    """Register a function as a table; `labels` name its first columns.

    `epochs` is the length of the published runs. Rows that stand `apart` are not compared with each
    other, so they may differ in epochs.
    """

    def register(cells):
        TABLES[cells.__name__] = Table(inspect.getdoc(cells) or "", labels, cells, epochs, apart)
        return cells

    return register


def available() -> list[str]:
    """Return the names of the tables."""
    return sorted({*TABLES, *discovery.names(PLUGINS)})


def get(name: str) -> Table:
    """Return a table; ValueError for an unknown name."""
    if name in TABLES:
        return TABLES[name]
    discovery.require_known("table", name, available())
    module = discovery.load(PLUGINS, name, what="table")
    epochs, apart = getattr(module, "EPOCHS", EPOCHS), getattr(module, "APART", False)
    return Table(inspect.getdoc(module) or "", module.LABELS, module.cells, epochs, apart)


def by_routing(
    name: str,
    recipe: Recipe,
    published: Mapping[str, str],
    changed: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Cell]:
    """Return a row for each routing, and one for the recipe's stem without capsules.

    `published` holds the last column by routing. `changed` holds, by routing, fields of the recipe
    that differ; its "options" are added to the recipe's options.
    """
    rows = []
    for one in routing.available():
        more = dict((changed or {}).get(one, {}))
        options = {**recipe.options, "routing": one, **more.pop("options", {})}
        own = replace(recipe, options=options, **more)
        margin = getattr(routing.get(one), "OBJECTIVE", "margin") == "margin"
        rows.append(Cell(f"{name}-{one}", (one,), own, published.get(one, "–"), margin))
    pooled = replace(recipe, model="pooled", options={"stem": recipe.options["stem"]})
    return [*rows, Cell(f"{name}-pooled", (NONE,), pooled, margin=False)]


def shipped_recipe(name: str) -> Recipe:
    """Return a recipe that comes with capsviz."""
    return read_recipe(discovery.folder("capsviz.trained") / f"{name}.toml")


def routed(iterations: int, *, decoder: bool = True) -> tuple[str, Recipe]:
    """Return name and recipe of the paper's network on MNIST, as its text describes it."""
    options = {"preset": "paper", "iterations": iterations}
    if not decoder:
        options["reconstruction_weight"] = 0.0
    name = f"mnist-routing-{iterations}{'' if decoder else '-no-reconstruction'}"
    return name, Recipe(options=options)


@table("Routing", "Matrices", "Reconstruction", epochs=10)
def ablations() -> list[Cell]:
    """A CapsNet on MNIST with and without routing, own matrices and reconstruction.

    Couplings are those of three routing iterations or uniform, each primary capsule has matrices
    of its own or all share one for each class, and reconstruction is trained or not. Gu & Tresp
    (2020, arXiv:1911.07968) and Gu, Tresp & Hu (2021, arXiv:2103.15459) ask so where robustness to
    affine maps comes from: in their setting, shared matrices without routing raise the accuracy on
    affNIST from 79 to 93.21 %. The network is that of `digits`.
    """
    matrices = {"own": "of each child", "shared": "one for all"}
    whole = replace(shipped_recipe("digits"), dataset="mnist", epochs=10)
    rows = []
    for kind, transform, decoder in product(("dynamic", "uniform"), matrices, (True, False)):
        options = {**whole.options, "routing": kind, "transform": transform}
        name = f"mnist-narrow-{kind}-{transform}"
        if not decoder:
            name, options["reconstruction_weight"] = f"{name}-no-reconstruction", 0.0
        labels = (kind, matrices[transform], "yes" if decoder else "no")
        rows.append(Cell(name, labels, replace(whole, options=options)))
    return rows


@table("Data set", apart=True)
def datasets() -> list[Cell]:
    """CapsNet on several data sets, each by its recipe in trained/."""
    rows = {
        "mnist": ("MNIST", f"0.25 ± 0.005 ({SABOUR}); 0.27 (ethanleet/CapsNet)"),
        "fashion_mnist": ("Fashion-MNIST", "9.40 (naturomics/CapsNet-Tensorflow)"),
        "cifar10": ("CIFAR-10", "27.41 (ethanleet/CapsNet)"),
        "cifar10-paper": ("CIFAR-10, patches of 24×24", f"10.6, 7 networks ({SABOUR})"),
        "smallnorb": ("smallNORB", f"2.7 ({SABOUR}); 8.5 (ethanleet/CapsNet)"),
        "svhn": ("SVHN", f"4.3 ({SABOUR})"),
    }
    return [
        Cell(name, (title,), shipped_recipe(name), published)
        for name, (title, published) in rows.items()
    ]


@table("Decoder", "Batch norm", epochs=25)
def decoders() -> list[Cell]:
    """Decoders on MNIST: fully connected or deconvolution, each without and with batch norm.

    The published networks are others in part: their batch norm is in the encoder too, their
    deconvolution has other kernels, and they were trained on all 60,000 images.
    """
    published = {  # test error in percent, margin loss, SSE
        ("fully_connected", False): ("0.49", "0.0058", "21.62"),
        ("fully_connected", True): ("0.46", "0.0054", "13.12"),
        ("deconvolution", False): ("0.46", "0.0050", "10.87"),
        ("deconvolution", True): ("0.45", "0.0044", "9.52"),
    }
    rows = []
    for (decoder, norm), (error, margin, sse) in published.items():
        name, recipe = routed(3)
        if (decoder, norm) != ("fully_connected", False):
            name = f"mnist-{decoder}{'-norm' if norm else ''}"
            options = {**recipe.options, "decoder": decoder, "decoder_norm": norm}
            recipe = replace(recipe, options=options)
        labels = (decoder.replace("_", " "), "yes" if norm else "no")
        numbers = f"{error}, margin {margin}, SSE {sse} (ethanleet/CapsNet, 25 epochs)"
        rows.append(Cell(name, labels, recipe, numbers))
    return rows


@table("Routing iterations")
def iterations() -> list[Cell]:
    """One to five iterations of routing on MNIST."""
    published = {1: "0.36", 3: "0.36", 4: "0.41"}  # of the best validation epoch, in its README
    source = "best validation (naturomics/CapsNet-Tensorflow)"
    rows = []
    for number in range(1, 6):
        name, recipe = routed(number)
        error = f"{published[number]}, {source}" if number in published else "–"
        rows.append(Cell(name, (str(number),), recipe, error))
    return rows


@table("Network", "Routing", "Reconstruction")
def paper() -> list[Cell]:
    """Routing and reconstruction on MNIST, and the baseline CNN: table 1 of Sabour et al. 2017."""
    published = {
        (1, False): "0.34 ± 0.032",
        (1, True): "0.29 ± 0.011",
        (3, False): "0.35 ± 0.036",
        (3, True): "0.25 ± 0.005",
    }
    cnn = Recipe(model="cnn", options={"kernel": 5})
    rows = [Cell("mnist-cnn", ("CNN", "–", "–"), cnn, f"0.39 ({SABOUR})", margin=False)]
    for (number, decoder), error in published.items():
        labels = ("CapsNet", str(number), "yes" if decoder else "no")
        name, recipe = routed(number, decoder=decoder)
        rows.append(Cell(name, labels, recipe, f"{error} ({SABOUR})"))
    return rows


@table("Preset")
def recipe() -> list[Cell]:
    """The network and loss of the paper's text against those of its authors' code, on MNIST.

    Batches and learning rates are the same in both rows, and not those of the authors. Where
    intervals overlap, nothing is explained of the gap between the paper and its reruns.
    """
    name, text = routed(3)
    authors = Recipe(options={"preset": "authors", "iterations": 3})
    return [
        Cell(name, ("paper (the text)",), text, "0.25 to 0.4 (independent reruns)"),
        Cell("mnist-authors", ("authors (their code)",), authors, f"0.25 ± 0.005 ({SABOUR})"),
    ]


@table("Routing", epochs=15)
def resnet() -> list[Cell]:
    """All routings on a ResNet-20, and the ResNet-20 without capsules, on CIFAR-10.

    The network is that of `cifar10-resnet`: 512 primary capsules of 8 numbers, class capsules of
    16, one transform for each capsule type. Primary capsules, objective and iterations are each
    routing's own, all else is shared, but for the initial weights of self-attention and max-min.
    Their standard deviation is 0.1 / sqrt(64) instead of 0.1: otherwise the votes of a type's 64
    capsules add up, all classes begin at lengths of 0.99, and stay at chance in trials.
    """
    shipped = shipped_recipe(RESNET)
    small = {"options": {"vote_std": 0.1 / 64**0.5}}
    published = {"dynamic": "10.6, ensemble of 7, 24x24 windows (Sabour et al. 2017)"}
    rows = by_routing(RESNET, shipped, published, {"self_attention": small, "max_min": small})
    return [
        row._replace(run=RESNET, recipe=shipped) if row.labels == ("dynamic",) else row
        for row in rows
    ]


@table("Routing", epochs=10)
def routings() -> list[Cell]:
    """All routings on one slim stem, and the stem without capsules, on MNIST.

    The stem is Efficient-CapsNet's: 16 primary capsules of 8 numbers, class capsules of 16, a small
    deconvolution decoder. Primary capsules, objective and iterations are each routing's own, all
    else is shared. Mixtures learn little if the first votes vary much, so EM adds 1 to its
    variances, and the votes of variational routing begin at a tenth. Published numbers are of other
    stems, recipes and augmentations, some chosen on the test set.
    """
    published = {
        "dynamic": "0.25, paper's stem, 3 seeds (Sabour et al. 2017)",
        "em": "0.44, four layers (Hinton et al. 2018)",
        "self_attention": "0.26, stronger augmentation (Mazzia et al. 2021)",
    }
    changed = {"em": {"options": {"floor": 1.0}}, "variational": {"options": {"vote_std": 0.01}}}
    slim = Recipe(
        options={"stem": "slim", "decoder": "deconvolution"},
        batch_size=64, learning_rate=2e-3, schedule="linear", warmup_epochs=0.25, ema=0.999,
    )  # fmt: skip
    return by_routing("mnist-slim", slim, published, changed)
