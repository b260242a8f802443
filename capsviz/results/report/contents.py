"""What a report holds: cards, accuracies, figures with their words and numbers, checks, provenance.

Figures of one network are those that its analyses give to `capsviz figures`; several networks are
also compared on the same images, as `capsviz sweep` and `capsviz corrupt` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import capsviz
from capsviz import analysis as contract
from capsviz import checks, discovery, results
from capsviz.inputs import context
from capsviz.provenance import provenance
from capsviz.results import pieces, sets
from capsviz.results.report import accuracy, words
from capsviz.tracing import abilities, needs, remember

NOT_OF_A_NETWORK = ("affnist",)  # its figures are of networks that it trains itself
OF_EACH = ("routing", "reconstruct", "transplant")  # where several networks are compared
COMPARED = ("sweep", "corrupt")  # of several networks


class Figure(NamedTuple):
    """One picture of a result, with what its analysis says of it."""

    name: str
    analysis: str
    result: NamedTuple
    part: str  # of several pictures; "": the first
    caption: str
    findings: str
    table: tuple[list[str], list[list[str]], str] | None  # header, rows, caption


class Section(NamedTuple):
    """The figures of one analysis, of one network or of several."""

    analysis: str
    network: str | None  # None: of all of them
    about: words.About
    figures: list[Figure]


class Network(NamedTuple):
    """One network: what it is, how well it does here, and whether it is correct."""

    name: str
    card: dict
    accuracy: accuracy.Accuracy
    check: checks.Report | None
    unchecked: str | None  # why there is no check
    provenance: dict


class Contents(NamedTuple):
    """All that the page says."""

    networks: list[Network]
    sections: list[Section]
    left_out: list[tuple[str, str, str]]  # network, analysis, and why
    dataset: str
    notice: str | None
    n: int
    images: int  # of the split
    command: str | None
    version: str


def choose(only: Sequence[str], several: bool) -> list[str]:
    """Names of the analyses to run on each network; ValueError for an unknown one.

    An analysis may be called as its command is, "parse-tree" for parse_tree.
    """
    known = [name for name in sets.offering() if name not in NOT_OF_A_NETWORK]
    only = [name.replace("-", "_") for name in only]
    for name in only:
        if name not in known:
            words = [one.replace("_", "-") for one in (name, *known)]
            raise ValueError(discovery.unknown("analysis", words[0], words[1:]))
    usual = [name for name in known if name in OF_EACH] if several else known
    return [name for name in known if name in only] if only else usual


def collect(
    networks: Sequence,
    names: Sequence[str],
    settings: sets.Settings,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> Contents:
    """Compute what the page shows.

    Parameters
    ----------
    networks  of `cli.networks.open_networks`, with the same data; the first is the reference.
    names     of analyses, as `choose` gives them.
    settings  n images of every statistic, the seed, and which single image is shown.
    report    is given a line for each figure, and for each analysis that is left out, with why.
    """
    sections, left_out = [], []

    def attempt(name: str, network: str | None, drawn: Iterator[Figure]) -> None:
        who = network or "all networks"
        try:
            section = Section(name, network, words.about(name), list(drawn))
        except Exception as error:  # whatever it is, the others are shown
            left_out.append((who, name, " ".join(str(error).split())))
            report(f"{name} of {who} left out: {left_out[-1][2]}")
            return
        if section.figures:
            sections.append(section)
            report(f"{name} of {who}: {len(section.figures)} figures")
        else:
            left_out.append((who, name, "of this network and these images there is no figure"))

    dataset = networks[0].dataset
    with remember():
        described = [_network(one, networks[0], settings) for one in networks]
        if len(networks) > 1 and dataset.parts is None:
            for name, drawn in _compared(networks, settings):
                attempt(name, None, drawn)
        for one in networks:
            for name in names:
                attempt(name, one.name, _of_one(name, one, settings))
    return Contents(
        described, sections, left_out, dataset.name, dataset.notice, settings.n, len(dataset),
        settings.command, capsviz.__version__,
    )  # fmt: skip


def _network(one, first, settings: sets.Settings) -> Network:
    check = unchecked = None
    if abilities(one.model).has_capsules:
        shape, classes = one.dataset.image_shape, len(one.dataset.classes)
        try:
            check = checks.run(one.model, shape, classes)._replace(network=one.name)
        except Exception as error:  # a network may be called in no way that the checks know
            unchecked = " ".join(str(error).split())
    else:
        unchecked = "it has no capsules"
    card, device = one.model.card, str(one.device)
    measured = accuracy.measure(one, first, settings.n)
    return Network(one.name, card, measured, check, unchecked, provenance(card, device))


def _of_one(name: str, one, settings: sets.Settings) -> Iterator[Figure]:
    """The figures that an analysis gives to the set of a network."""
    for analysis in contract.of(name):
        needs.require(one.model, analysis.needs, name)
    if not sets.fitting([name], one.dataset):
        raise ValueError(f"it does not look at images that show several things: {one.dataset.name}")
    if why := pieces.left_out(name, one):
        raise ValueError(why)
    for stem, result in pieces.results_of(name, one, settings):
        yield from _pictures(name, stem, result)


def _compared(networks: Sequence, settings: sets.Settings):
    """The analyses of several networks, over the same images; (name, figures) of each."""
    for name in COMPARED:
        (analysis,) = contract.of(name)
        yield name, _of_all(analysis, networks, settings)


def _of_all(analysis, networks: Sequence, settings: sets.Settings) -> Iterator[Figure]:
    options = {**analysis.figure_set, "seed": settings.seed}
    stem, result = context.measure_with(
        analysis, networks, options, n=settings.n, progress=settings.progress
    )
    yield from _pictures(analysis.name, stem, result)


def _pictures(analysis: str, name: str, result: NamedTuple) -> Iterator[Figure]:
    """The pictures of a result; what is said of the result as a whole comes with the last one."""
    own = contract.of_result(analysis, type(result).__name__)
    table = own.table(result)
    parts = results.parts(analysis, result)
    for part in parts:
        whole = part == parts[-1]
        yield Figure(
            f"{name}-{part}" if part else name, analysis, result, part,
            results.caption(analysis, result, part),
            own.findings(result) if whole else "", table if whole else None,
        )  # fmt: skip
