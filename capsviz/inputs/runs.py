"""Find training runs that are replicates of one recipe, and check that they are.

A glob selects folders of runs or .safetensors files; other files that it matches are ignored.
"""

import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from capsviz import checkpoint as checkpoints
from capsviz.inputs.opening import Inputs, check_fit
from capsviz.nn import models
from capsviz.nn.computation import seeded
from capsviz.training.recipe import terms as recipe_terms


def first_of(chosen: dict) -> tuple[dict, list[tuple[str, ...]]]:
    """Return a command's options with the first of several training runs, and rows of all runs.

    A row has one run, or one run of each recipe if the command compares networks. In that case the
    first row comes before other networks. Raises like `named` and `paired`.
    """
    chosen = dict(chosen)
    patterns = chosen.pop("seeds_of")
    if "first" in chosen:
        rows = paired(patterns)
        first = rows[0] if rows else ()
        return chosen | {"first": (*first, *chosen["first"])}, rows
    if patterns and chosen["network"] is not None:
        raise ValueError("--seeds-of and --network exclude each other: drop one")
    seeds = named(chosen["checkpoint"], patterns)
    return chosen | {"checkpoint": seeds[0] if seeds else None}, [(run,) for run in seeds]


def paired(patterns: Sequence[str]) -> list[tuple[str, ...]]:
    """Return rows of training runs that globs match, one run of each recipe; [] without a glob.

    The runs of a row share a seed. If recipes have fewer than two seeds in common, but equally many
    runs, runs are paired in the order of their seeds. Raises like `named`.
    """
    recipes: dict[str, list[str]] = {}
    for runs in map(_finished, patterns):
        recipes.setdefault(recipe_of(runs[0], _card(runs[0])), []).extend(runs)
    by_seed = []
    for runs in recipes.values():
        seeds = seeds_of(_card(run) for run in _checked(runs))
        by_seed.append(dict(sorted(zip(seeds, runs, strict=True))))
    common = [seed for seed in by_seed[0] if all(seed in one for one in by_seed)] if by_seed else []
    if len(common) > 1:
        return [tuple(one[seed] for one in by_seed) for seed in common]
    if len({len(one) for one in by_seed}) > 1:
        raise ValueError(
            f"the training runs of {' and '.join(patterns)} have no two seeds in common: expected "
            "the same seeds, or as many runs of each recipe"
        )
    return list(zip(*(one.values() for one in by_seed), strict=True))


def _card(run: str) -> dict:
    return checkpoints.read_card(checkpoints.find(run))


def named(names: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the named runs, followed by those that globs match.

    ValueError if a glob matches no run, a run has no weights yet, a run is named twice, a glob
    gives a single run, or the recipes differ.
    """
    runs = [*map(str, names), *(run for pattern in patterns for run in _finished(pattern))]
    return _checked(runs) if len(runs) > 1 or patterns else runs


def _checked(runs: list[str]) -> list[str]:
    files = [checkpoints.find(run).resolve() for run in runs]
    for file in files:
        if files.count(file) > 1:
            raise ValueError(f"'{file}' is named twice: expected different training runs")
    if len(runs) < 2:
        raise ValueError(f"'{runs[0]}' is one run: expected several of its recipe by --seeds-of")
    check({run: checkpoints.read_card(file) for run, file in zip(runs, files, strict=True)})
    return runs


def matching(pattern: str) -> list[Path]:
    """Return the folders and .safetensors files that a glob matches."""
    places = [Path(one) for one in sorted(glob.glob(str(Path(pattern).expanduser())))]
    return [one for one in places if one.is_dir() or one.suffix == ".safetensors"]


def _finished(pattern: str) -> list[str]:
    runs = matching(pattern)
    if not runs:
        raise ValueError(
            f"--seeds-of '{pattern}' matches no training run: expected folders of runs, or "
            ".safetensors files"
        )
    for run in runs:
        cards = run.glob("*.json") if run.is_dir() else [run]
        ended = any(card.with_suffix(".safetensors").is_file() for card in cards)
        if not ended or checkpoints.find(run).name == checkpoints.STATE:
            raise ValueError(
                f"'{run}' is not finished, or holds no training run: end it by `capsviz train ... "
                f"--output {run} --resume`, or choose a pattern that does not match it"
            )
    return [str(run) for run in runs]


def check(cards: Mapping[str, Mapping]) -> None:
    """Raise ValueError if cards, by run, differ in their recipe or share a seed."""
    runs = list(cards)
    first, *others = (_terms(run, card) for run, card in cards.items())
    for run, other in zip(runs[1:], others, strict=True):
        apart = [
            f"{name} {other.get(name)!s:.40}, not {first.get(name)!s:.40}"
            for name in {**first, **other}
            if first.get(name) != other.get(name)
        ]
        if apart:
            raise ValueError(
                f"'{run}' is not of the recipe of '{runs[0]}': {'; '.join(apart)}. Name each "
                "recipe by itself: capsviz compare, sweep and affine compare several"
            )
    seeds = seeds_of(cards.values())
    for seed in seeds:
        if seeds.count(seed) > 1:
            twice = " and ".join(f"'{r}'" for r, s in zip(runs, seeds, strict=True) if s == seed)
            raise ValueError(f"{twice} are both of seed {seed}: expected runs of different seeds")


def seeds_of(cards) -> list[int]:
    """Return the seed of each card."""
    return [card["recipe"].get("seed", 0) for card in cards]


def recipe_of(run: str, card: Mapping) -> str:
    """Return the recipe of a run as text, equal for runs of one recipe; raises like `check`."""
    return json.dumps(_terms(run, card), sort_keys=True)


def _terms(run: str, card: Mapping) -> dict:
    """Return the settings that replicates share: data set, network and recipe, as a flat table.

    Settings that an older card lacks get their defaults. ValueError for a card without a recipe.
    """
    if not card.get("recipe") or "training" not in card:
        raise ValueError(f"the card of '{run}' names no recipe: it is not that of a training run")
    terms = {"dataset": card["dataset"]["name"], "model": card["model"]["name"]}
    terms["plug-ins"] = card["model"].get("plugins")
    with seeded(0):  # keep the global random state
        model = models.of_config(card["model"]["name"], card["model"]["config"])
    config = json.loads(json.dumps(model.config))
    for table in (card["dataset"].get("options", {}), recipe_terms(card["recipe"]), config):
        for name, value in table.items():
            terms |= value if name == "options" else {name: value}
    terms["precision"] = card["training"].get(
        "precision", terms.get("precision")
    )  # what "auto" chose
    return {name: value for name, value in terms.items() if name != "seed"}


def open_runs(first: Inputs, runs: Sequence[str]) -> list[Inputs]:
    """Open the networks of all runs with the data of the first one, under one name.

    This is the card's name or, if another network has it, the common start of the folder names.
    """
    folders = os.path.commonprefix([Path(run).name for run in runs])  # noqa: RUF071
    folders = re.sub(r"\d*$", "", folders).strip("-_.")  # seeds 10 and 11 share a digit
    plain = first.alias is None and first.name == first.model.card.get("name")
    opened = [replace(first, alias=first.name if plain else folders or first.name)]
    for run in runs[1:]:
        model = checkpoints.load(run, device=first.device)
        check_fit(model, first.dataset)
        opened.append(replace(opened[0], model=model, source=run))
    return opened


def about(recipes: Sequence[Sequence[Inputs]], of_first: Sequence[str]) -> dict:
    """Return the entry on training runs for the record of a result."""
    first, *others = ({
        "recipe": runs[0].name,
        "seeds": seeds_of(one.model.card for one in runs),
        "weights_sha256": [one.model.card["weights"]["sha256"] for one in runs],
    } for runs in recipes)  # fmt: skip
    return first | {"others": others, "of_first": list(of_first)}
