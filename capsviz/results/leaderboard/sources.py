"""Read the numbers of a leaderboard from cards of networks and from files of results."""

import glob
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from capsviz import checkpoint, discovery
from capsviz.inputs.runs import check, matching
from capsviz.results.files import parse_result
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.runs import combine

NONE = "–"  # an unknown value
RUNS = "runs.json"  # summary of the cards of several training runs, beside their statistics


class Network(NamedTuple):
    """A network, or the training runs of one recipe."""

    name: str
    dataset: str
    seeds: list[int]  # of its training runs
    digests: list[str]  # SHA-256 of their weights
    accuracy: Estimate | None = None  # on the test set; None: the card has no results
    parameters: int | None = None
    seconds: float | None = None  # of training, mean over runs
    hardware: str | None = None
    routing: str | None = None
    notice: str | None = None  # a note on its data
    terms: Mapping = {}  # its recipe without the seed; empty if unknown


class Record(NamedTuple):
    """A result of an analysis with its file."""

    result: Any
    about: dict  # metadata of the result, with the name of its analysis
    path: Path

    @property
    def digests(self) -> set[str]:
        """Digests of the weights of all runs of the first network."""
        runs = self.about.get("runs")
        return set(runs["weights_sha256"] if runs else [self.about["provenance"]["weights_sha256"]])

    @property
    def recipes(self) -> set[str]:
        """Names of the other networks with several measured runs."""
        return {one["recipe"] for one in (self.about.get("runs") or {}).get("others", ())}

    def digest(self, name: str) -> str | None:
        """Return the digest of another network; if it is not recorded, that of shipped weights."""
        known = self.about.get("networks")
        return _of_shipped(name) if known is None else known.get(name)


def read(places: Iterable[str | Path]) -> tuple[list[Network], list[Record]]:
    """Return the networks and results of names, files and folders, in order.

    Parameters
    ----------
    places  names of shipped weights; folders of training runs; weights or their cards; globs of
            runs of one recipe; results, or folders of results, also of several runs.

    Raises
    ------
    ValueError  for a place that is none of these, or a network that is named twice.
    """
    networks: list[tuple[Network, Path]] = []
    records: dict[Path, Record] = {}
    for place in places:
        one, some = _read(place)
        networks += [(network, Path(place)) for network in one]
        records |= {record.path: record for record in some}
    return different(networks), list(records.values())


@cache
def read_shipped() -> tuple[list[Network], list[Record]]:
    """Return all shipped networks and results."""
    return read([*checkpoint.shipped(), *shipped()])


def unnamed(records: Sequence[Record], networks: Sequence[Network]) -> list[Network]:
    """Return the networks of results that are not among `networks`, with the data known of them."""
    known = set().union(*(network.digests for network in networks))
    pairs = {}
    for record in records:
        runs, provenance = record.about.get("runs"), record.about["provenance"]
        if record.digests <= known or provenance["weights"] is None:
            continue
        name = runs["recipe"] if runs else Path(provenance["weights"]).stem
        data = getattr(record.result, "dataset", NONE)
        seeds, digests = runs["seeds"] if runs else [0], sorted(record.digests)
        one = Network(name, data, seeds, digests, routing=provenance.get("routing"))
        options = record.about.get("options", {})
        given = options.get("first") or options.get("checkpoint") or record.path.stem
        place = Path(given if isinstance(given, str) else given[0])
        pairs[tuple(digests)] = one, record.path.parent / place.name
    return different(list(pairs.values()), [one.name for one in networks])


def different(pairs: list[tuple[Network, Path]], taken: Sequence[str] = ()) -> list[Network]:
    """Return each network once, without single runs that are part of a recipe's runs.

    Different networks with equal names, or with a name that is taken, get their places in brackets.
    Raises ValueError for a network that is named twice.
    """
    kept: list[tuple[Network, Path]] = []
    for network, place in pairs:
        digests = set(network.digests)
        if any(digests <= set(other.digests) for other, _ in kept):
            if any(digests == set(other.digests) for other, _ in kept):
                raise ValueError(f"'{place}' is named twice, as '{network.name}'")
            continue
        kept = [pair for pair in kept if not set(pair[0].digests) <= digests]
        kept.append((network, place))
    names = Counter([*taken, *(one.name for one, _ in kept)])
    tails = Counter((one.name, place.name) for one, place in kept)
    return [
        one
        if names[one.name] == 1 or one.name.endswith(")")
        else one._replace(
            name=f"{one.name} ({place.name if tails[one.name, place.name] == 1 else place})"
        )
        for one, place in kept
    ]


@cache
def _of_shipped(name: str) -> str | None:
    """Return the digest of shipped weights; None for other names."""
    if name not in checkpoint.shipped():
        return None
    return checkpoint.read_card(checkpoint.find(name))["weights"]["sha256"]


def shipped() -> list[Path]:
    """Return the folders of shipped results: seeds, figures, single networks and attacks."""
    trained = discovery.folder(checkpoint.SHIPPED) / "seeds"
    seeds = sorted(path.parent for path in trained.glob(f"*/{RUNS}"))
    figures = discovery.root() / "figures"
    others = [figures, *sorted(figures.glob("leaderboard/*")), figures / "attacks"]
    return [*seeds, *(path for path in others if path.is_dir())]


def _read(place: str | Path) -> tuple[list[Network], list[Record]]:
    if isinstance(place, str) and place in checkpoint.shipped():
        return [network(checkpoint.read_card(checkpoint.find(place)))], []
    if glob.has_magic(str(place)) and not Path(place).exists():
        runs = list(map(network, cards_of(str(place)).values()))
        return [_together(str(place), runs)], []
    place = Path(place)
    if place.is_dir() and not any(p.with_suffix(".safetensors").is_file() for p in _cards(place)):
        networks = [of_runs(place / RUNS)] if (place / RUNS).is_file() else []
        records = [record for path in _cards(place) if (record := _record(path))]
        if not networks and not records:
            raise ValueError(f"'{place}' holds neither weights with a card nor results of capsviz")
        return networks, records
    if place.suffix == ".json":
        if place.name == RUNS and _json(place) is not None:
            return [of_runs(place)], []
        if record := _record(place):
            return [], [record]
        return [network(checkpoint.read_card(place))], []
    name = place if place.exists() else str(place)  # it may be a misspelt name
    one = network(checkpoint.read_card(checkpoint.find(name)))
    return [one if place.stem == one.name else one._replace(name=f"{one.name} ({place.stem})")], []


def _cards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.json"))


def _record(path: Path) -> Record | None:
    """Return the result in a file; None for other files."""
    about = _json(path)
    known = isinstance(about, dict) and {"analysis", "kind", "result"} <= set(about)
    return Record(*parse_result(about, path), path) if known else None


def _json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return None


def network(card: dict) -> Network:
    """Return a network from its card."""
    test, training = card.get("results", {}).get("test"), card.get("training", {})
    measured = test and Estimate(test["accuracy"], test["accuracy_ci95"], test["n"])
    return Network(
        card.get("name", "unnamed"),
        card["dataset"]["name"],
        [card.get("recipe", {}).get("seed", 0)],
        [card["weights"].get("sha256")],
        measured,
        card["weights"].get("parameters"),
        training.get("seconds"),
        training.get("hardware"),
        card.get("model", {}).get("config", {}).get("routing"),
        card["dataset"].get("notice"),
        {name: value for name, value in card.get("recipe", {}).items() if name != "seed"},
    )


def of_runs(path: Path) -> Network:
    """Return the training runs of a recipe from their summary file."""
    about = _json(path)
    try:
        each = [
            Network(
                about["recipe"],
                about["dataset"],
                [run["seed"]],
                [run["weights_sha256"]],
                Estimate(run["accuracy"], run["accuracy_ci95"], run["n"]),
                about["parameters"],
                run["seconds"],
                run["hardware"],
                about.get("model", {}).get("config", {}).get("routing"),
                about.get("notice"),
                about.get("terms", {}),
            )
            for run in about["runs"]
        ]
        return _together(about["recipe"], each)
    except (KeyError, TypeError) as error:
        raise ValueError(f"'{path}' is not a summary of training runs ({error})") from error


def cards_of(pattern: str) -> dict[str, dict]:
    """Return the cards of the training runs that a glob matches, by path.

    Raises ValueError if it matches none, or runs of several recipes.
    """
    cards = {str(run): checkpoint.read_card(checkpoint.find(run)) for run in matching(pattern)}
    if not cards:
        raise ValueError(f"'{pattern}' matches no training run")
    check(cards)
    return cards


def _together(name: str, each: Sequence[Network]) -> Network:
    """Return training runs of one recipe as one network."""
    known = [one.accuracy for one in each if one.accuracy is not None]
    seconds = [one.seconds for one in each if one.seconds is not None]
    whole = each[0]._replace(
        name=name,
        seeds=[seed for one in each for seed in one.seeds],
        digests=[digest for one in each for digest in one.digests],
        seconds=sum(seconds) / len(seconds) if seconds else None,
        hardware="; ".join(dict.fromkeys(one.hardware for one in each if one.hardware)) or None,
    )
    if len(each) == 1:
        return whole
    return whole._replace(accuracy=combine(known, 0, 1) if len(known) == len(each) else None)
