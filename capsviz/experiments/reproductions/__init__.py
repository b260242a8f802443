"""Published tables: each file here lists the runs that make one anew, found by its name.

A file offers `LABELS`, the names of its first columns, and `cells() -> list[Cell]`; perhaps
`EPOCHS`, as many as the published runs had, and `APART = True` if its rows are not compared with
each other, so that they may differ in epochs. Its docstring is the table's caption, the first line
what it shows.
Runs of the same name are the same run, in whatever table.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from capsviz import discovery
from capsviz.nn import routing
from capsviz.training.recipe import Recipe, read_recipe

SABOUR = "Sabour et al. 2017"
NONE = "none: average pooling, linear"


class Cell(NamedTuple):
    """One row of a table: a training run, repeated for each seed."""

    run: str  # names it
    labels: tuple[str, ...]  # what stands in the first columns
    recipe: Recipe
    published: str = "–"  # test error in percent where not said otherwise, and whose
    margin: bool = True  # trained by the margin loss, so that it can be compared


def available() -> list[str]:
    """Names of the tables."""
    return discovery.names("capsviz.experiments.reproductions")


def get(name: str):
    """The module of a table; ValueError names the known ones."""
    return discovery.load("capsviz.experiments.reproductions", name, what="table")


def by_routing(
    name: str,
    recipe: Recipe,
    published: Mapping[str, str],
    changed: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Cell]:
    """A row for each routing that is there, and one for the recipe's stem without capsules.

    Parameters
    ----------
    published  numbers by routing, for the last column.
    changed    fields of the recipe that a routing has its own of; its "options" are added.
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
    """A recipe of the folder trained/."""
    return read_recipe(discovery.folder("capsviz.trained") / f"{name}.toml")


def routed(iterations: int, *, decoder: bool = True) -> tuple[str, Recipe]:
    """Name and recipe of the paper's network on MNIST, by its text."""
    options = {"preset": "paper", "iterations": iterations}
    if not decoder:
        options["reconstruction_weight"] = 0.0
    name = f"mnist-routing-{iterations}{'' if decoder else '-no-reconstruction'}"
    return name, Recipe(options=options)
