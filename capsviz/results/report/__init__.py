"""A report on networks: cards, accuracies, figures with their discussion, checks, provenance.

Figures of one network are those of its figure set. Several networks are also compared on the same
images. `collect` computes the contents, `page.render` writes them as one HTML file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

import capsviz
from capsviz import analysis as contract
from capsviz import checks, results
from capsviz.inputs import context
from capsviz.provenance import provenance
from capsviz.results import sets
from capsviz.statistics.estimate import Estimate
from capsviz.statistics.intervals import paired_interval, wilson
from capsviz.tracing import abilities, needs, remember, scores
from capsviz.transforms.augment import to_float

NOT_OF_A_NETWORK = ("affnist",)  # its figures are of networks that it trains itself
OF_EACH = ("routing", "reconstruct", "transplant")  # of each of several networks
COMPARED = ("sweep", "corrupt")  # compare several networks
SECTION = re.compile(r"^## +(.+)$", re.MULTILINE)  # of the page of an analysis


class Figure(NamedTuple):
    """One picture of a result; its findings and table come with the last picture."""

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
    question: str
    about: dict[str, str]  # the sections of its page: "Method", "What to see", ...
    figures: list[Figure]


class Network(NamedTuple):
    """One network: its card, its accuracy here, and whether it is correct."""

    name: str
    card: dict
    accuracy: Estimate  # its difference is to the first network, paired
    check: checks.Report | None
    unchecked: str | None  # why there is no check
    provenance: dict


class Contents(NamedTuple):
    """Everything on the page."""

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
    """Return the analyses to run on each network; ValueError for an unknown one."""
    known = [name for name in sets.offering() if name not in NOT_OF_A_NETWORK]
    chosen = sets.choose(only, known)
    return chosen if only or not several else [name for name in chosen if name in OF_EACH]


def collect(
    networks: Sequence,
    names: Sequence[str],
    settings: sets.Settings,
    *,
    report: Callable[[str], None] = lambda line: None,
) -> Contents:
    """Compute the contents of the page.

    Parameters
    ----------
    networks  opened, with the same data; the first is the reference.
    names     of analyses, from `choose`.
    settings  number of images, seed, and the single image that is shown.
    report    receives a line for each analysis that is done or left out.
    """
    sections, left_out = [], []

    def attempt(name: str, network: str | None, drawn: Iterator[Figure]) -> None:
        who = network or "all networks"
        try:
            figures = list(drawn)
        except Exception as error:  # whatever it is, the others are shown
            left_out.append((who, name, " ".join(str(error).split())))
            report(f"{name} of {who} left out: {left_out[-1][2]}")
            return
        if figures:
            sections.append(Section(name, network, *about(name), figures))
            report(f"{name} of {who}: {len(figures)} figures")
        else:
            left_out.append((who, name, "there is no figure of this network and these images"))

    first = networks[0]
    with remember():
        hits = [_correct(one, settings.n) for one in networks]
        described = [
            _network(one, _accuracy(own, None if one is first else hits[0]))
            for one, own in zip(networks, hits, strict=True)
        ]
        if len(networks) > 1 and first.dataset.parts is None:
            for name in COMPARED:
                attempt(name, None, _of_all(name, networks, settings))
        for one in networks:
            for name in names:
                attempt(name, one.name, _of_one(name, one, settings))
    return Contents(
        described, sections, left_out, first.dataset.name, first.dataset.notice, settings.n,
        len(first.dataset), settings.command, capsviz.__version__,
    )  # fmt: skip


def about(analysis: str) -> tuple[str, dict[str, str]]:
    """Return the question of an analysis, and the sections of its page by their titles.

    Text above the first heading is the method.
    """
    title, _, rest = contract.explanation(analysis).partition("\n")
    first, *more = SECTION.split(rest)
    sections = dict(zip(more[::2], map(_paragraphs, more[1::2]), strict=True))
    if first.strip():
        sections["Method"] = "\n\n".join(
            filter(None, [_paragraphs(first), sections.get("Method", "")])
        )
    return title.lstrip("# ").strip(), sections


def _paragraphs(text: str) -> str:
    """Return paragraphs, each on one line."""
    return "\n\n".join(" ".join(one.split()) for one in text.strip().split("\n\n"))


def _correct(one, n: int) -> Tensor:
    """Return which of n images a network classifies correctly, (n,) bool.

    Of several objects in an image all must be correct.
    """
    part = one.dataset.sample(n)
    lengths = scores(one.model, to_float(part.images))
    if part.parts is None:
        return lengths.argmax(1) == part.labels
    count = part.labels.shape[1]
    return (lengths.topk(count).indices.sort(1).values == part.labels.sort(1).values).all(1)


def _accuracy(hits: Tensor, reference: Tensor | None) -> Estimate:
    """Return an accuracy with its paired difference to that of a reference, if there is one."""
    n, difference = len(hits), None
    if reference is not None:
        wins, losses = int((hits & ~reference).sum()), int((~hits & reference).sum())
        difference = Estimate(
            np.array((wins - losses) / n), np.array(paired_interval(wins, losses, n)), n
        )
    ends = np.array(wilson(int(hits.sum()), n))
    return Estimate(hits.double().mean().numpy(), ends, n, difference)


def _network(one, accuracy: Estimate) -> Network:
    check = unchecked = None
    if abilities(one.model).has_capsules:
        shape, classes = one.dataset.image_shape, len(one.dataset.classes)
        try:
            check = checks.run(one.model, shape, classes)._replace(network=one.name)
        except Exception as error:  # a network may be called in no way that the checks know
            unchecked = " ".join(str(error).split())
    else:
        unchecked = "it has no capsules"
    card = one.model.card
    return Network(one.name, card, accuracy, check, unchecked, provenance(card, str(one.device)))


def _of_one(name: str, one, settings: sets.Settings) -> Iterator[Figure]:
    """Yield the figures that an analysis gives to the set of a network."""
    for analysis in contract.of(name):
        needs.require(one.model, analysis.needs, name)
    if not sets.fitting([name], one.dataset):
        raise ValueError(f"it needs images of one object, and {one.dataset.name} shows several")
    if why := sets.left_out(name, one):
        raise ValueError(why)
    for stem, result in sets.results_of(name, one, settings):
        yield from _pictures(name, stem, result)


def _of_all(name: str, networks: Sequence, settings: sets.Settings) -> Iterator[Figure]:
    """Yield the figures of an analysis that compares networks."""
    (analysis,) = contract.of(name)
    assert isinstance(analysis.figure_set, dict)
    options = {**analysis.figure_set, "seed": settings.seed}
    stem, result = context.measure_with(
        analysis, networks, options, n=settings.n, progress=settings.progress
    )
    yield from _pictures(name, stem, result)


def _pictures(analysis: str, name: str, result: NamedTuple) -> Iterator[Figure]:
    own = contract.of_result(analysis, type(result).__name__)
    parts = results.parts(analysis, result)
    for part in parts:
        last = part == parts[-1]
        yield Figure(
            f"{name}-{part}" if part else name, analysis, result, part,
            results.caption(analysis, result, part),
            own.findings(result) if last else "", own.table(result) if last else None,
        )  # fmt: skip
