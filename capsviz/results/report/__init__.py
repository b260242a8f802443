"""A report on networks: findings on one screen, then figures, discussion, checks and cards.

The figures of a network are those of its figure set. Several networks are also compared on the same
images. `collect` computes the contents, and `render` returns them as one HTML file with its
pictures and style, which loads nothing.
"""

import base64
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jinja2 import Environment, StrictUndefined

import capsviz
from capsviz import analysis as contract
from capsviz import checks, results
from capsviz.inputs import context
from capsviz.pictures.prediction import predict
from capsviz.provenance import provenance
from capsviz.results import house, sets
from capsviz.statistics import numbers
from capsviz.statistics.comparison import compare_means, draw_resamples
from capsviz.statistics.estimate import Estimate
from capsviz.tracing import abilities, needs, scores
from capsviz.training import cards, thresholds
from capsviz.training.evaluate import Evaluation, all_right, evaluate
from capsviz.transforms.augment import to_float

NOT_OF_A_NETWORK = ("affnist",)  # it trains the networks of its figures itself
OF_EACH = ("routing", "reconstruct", "transplant")  # usual for each of several networks
COMPARED = ("sweep", "corrupt")  # compare several networks
ANSWERS = ("affine", "sweep", "corrupt", "transplant", "routing")  # their findings come first
NUMBERS = 3  # numbers of each finding on the first screen
MANY = 20  # classes in a confusion matrix; with more, only the largest confusions are listed
PICTURED = ("routing", "transplant", "affine", "reconstruct", "rotate", "sweep")  # three come first
FOLDER = Path(__file__).parent
DPI, LARGEST_SVG = 160, 250_000  # resolution of a PNG; bytes of an SVG
SECTIONS = ("What to see", "What not to conclude", "Method", "Sources")  # of an analysis, in order
SECTION = re.compile(r"^## +(.+)$", re.MULTILINE)  # heading in the page of an analysis


class Figure(NamedTuple):
    """One picture of a result; its findings and table come with the last picture."""

    name: str
    analysis: str
    result: NamedTuple
    part: str  # which of several pictures; "": the first
    caption: str
    findings: str
    table: tuple[list[str], list[list[str]], str] | None  # header, rows, caption


class Section(NamedTuple):
    """The figures of one analysis, of one network or of several."""

    analysis: str
    network: str | None  # None: all networks
    question: str
    about: dict[str, str]  # the sections of its page: "Method", "What to see", ...
    figures: list[Figure]

    @property
    def place(self) -> str:
        """The target of links to the section."""
        return f"{self.analysis}-{self.network or ''}".rstrip("-")


class Network(NamedTuple):
    """One network: its card, its results on the images, and its checks."""

    name: str
    card: dict
    accuracy: Estimate  # with the paired difference to the first network
    evaluation: Evaluation
    unlike: float | None  # share of the images that are unlike the training data; None: unknown
    check: checks.Report | None
    unchecked: str | None  # reason if there is no check
    provenance: dict


class Contents(NamedTuple):
    """Everything on the page."""

    networks: list[Network]
    sections: list[Section]
    left_out: list[tuple[str, str, str]]  # network, analysis, and reason
    dataset: str
    classes: tuple[str, ...]
    notices: list[str]  # notes on the data and on the predictions
    n: int
    images: int  # in the split
    version: str


def choose(only: Sequence[str], several: bool) -> list[str]:
    """Return the analyses to run; ValueError for an unknown one."""
    known = [name for name in sets.offering() if name not in NOT_OF_A_NETWORK]
    chosen = sets.choose(only, known)
    usual = chosen if only or not several else (*COMPARED, *OF_EACH)
    return [name for name in chosen if name in usual]


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
    networks  opened networks with the same data; the first is the reference.
    names     names of analyses, from `choose`.
    settings  number of images, seed, and the single image that is shown.
    report    receives a line for each analysis that starts or is left out.
    """
    sections, left_out, first = [], [], networks[0]
    compare = len(networks) > 1 and first.dataset.parts is None
    of_all = [name for name in COMPARED if compare and name in names]
    each = [name for name in names if name not in of_all]
    work: list[tuple[str, str | None, Iterator[Figure]]] = []
    work += [(name, None, _of_all(name, networks, settings)) for name in of_all]
    work += [(name, one.name, _of_one(name, one, settings)) for one in networks for name in each]
    parts = [one.dataset.sample(settings.n) for one in networks]
    hits = [
        all_right(scores(one.model, to_float(part.images)), part.labels)
        for one, part in zip(networks, parts, strict=True)
    ]
    counts = draw_resamples(settings.n, seed=settings.seed)
    accuracies = compare_means(torch.stack(hits).numpy(), counts)
    described = [_network(one, accuracies[k], parts[k]) for k, one in enumerate(networks)]
    notices = [line for one in networks for line in (one.notice or "").splitlines()]
    doubts = [
        f"{one.name}: {line}" for one in described for line in one.evaluation.doubts(one.card)
    ]
    for line in doubts:
        report(line)
    for number, (name, network, drawn) in enumerate(work, 1):
        who = network or "all networks"
        why = "it gives no figure for this network and these images"
        report(f"analysis {number} of {len(work)}: {name} of {who}")
        try:
            if figures := list(drawn):
                sections.append(Section(name, network, *about(name), figures))
                continue
        except Exception as error:  # any failure: the other analyses are still shown
            why = " ".join(str(error).split())
        left_out.append((who, name, why))
        report(f"{name} of {who} left out: {why}")
    return Contents(
        described, sections, left_out, first.dataset.name, first.dataset.classes,
        list(dict.fromkeys(notices + doubts)), settings.n, len(first.dataset), capsviz.__version__,
    )  # fmt: skip


def about(analysis: str) -> tuple[str, dict[str, str]]:
    """Return the question of an analysis, and the sections of its page by title.

    Text before the first heading belongs to "Method".
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


def _network(one, accuracy: Estimate, part) -> Network:
    check = unchecked = unlike = None
    card = one.model.card
    if card.get("thresholds") and part.parts is None:
        limits, _ = thresholds.limits(one.model)
        found, _ = predict(one.model, to_float(part.images), part.classes, top=1, limits=limits)
        unlike = float(np.mean([bool(image.unlike) for image in found]))
    if abilities(one.model).has_capsules:
        shape, classes = one.dataset.image_shape, len(one.dataset.classes)
        try:
            check = checks.run(one.model, shape, classes)._replace(network=one.name)
        except Exception as error:  # the checks may not know how to call the network
            unchecked = " ".join(str(error).split())
    else:
        unchecked = "it has no capsules"
    evaluation, origin = evaluate(one.model, part), provenance(card, str(one.device))
    return Network(one.name, card, accuracy, evaluation, unlike, check, unchecked, origin)


def _of_one(name: str, one, settings: sets.Settings) -> Iterator[Figure]:
    """Yield the figures of an analysis in the figure set of a network."""
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
    for stem, result in context.of_figure_set(analysis, networks[0], settings, networks):
        yield from _pictures(name, stem, result)


def _pictures(analysis: str, name: str, result: NamedTuple) -> Iterator[Figure]:
    own = contract.of_result(analysis, type(result).__name__)
    names = results.picture_names(name, analysis, result)
    *_, last = names
    for part, stem in names.items():
        below = (own.findings(result), own.table(result)) if part == last else ("", None)
        text = results.caption(analysis, result, part)
        yield Figure(stem, analysis, result, part, text, *below)


def answers(contents: Contents) -> list[tuple[Section, str]]:
    """Return each section of `ANSWERS`, in this order, with its finding and first numbers."""
    found = [one for one in contents.sections if one.analysis in ANSWERS]
    found.sort(key=lambda one: ANSWERS.index(one.analysis))
    texts = [[figure.findings for figure in one.figures if figure.findings] for one in found]
    return [(one, _short(text[-1])) for one, text in zip(found, texts, strict=True) if text]


def _short(findings: str) -> str:
    """Return the first line and the first numbers (indented lines) as one line."""
    first, *more = findings.splitlines()
    numbers = [" ".join(line.split()) for line in more if line.startswith("  ")]
    return "; ".join([first.rstrip("."), *numbers[:NUMBERS]]) + "."


def pictures(contents: Contents) -> list[tuple[Section, Figure]]:
    """Return three figures of different analyses for the first screen."""
    first = {one.analysis: one for one in reversed(contents.sections)}
    names = [*(name for name in PICTURED if name in first), *first]
    return [(first[name], first[name].figures[0]) for name in list(dict.fromkeys(names))[:3]]


def render(contents: Contents) -> str:
    """Return the page as text."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "command": lambda name: name.replace("_", "-"),
        "plain": lambda text: text.replace("`", "").replace("**", ""),
        "paragraphs": lambda text: [part for part in text.split("\n\n") if part],
        "points": _points,
    }
    template = environment.from_string((FOLDER / "page.html").read_text(encoding="utf-8"))
    figures = [figure for section in contents.sections for figure in section.figures]
    return template.render(
        c=contents,
        style=(FOLDER / "page.css").read_text(encoding="utf-8"),
        sections=SECTIONS,
        answers=answers(contents),
        pictures=pictures(contents),
        drawn={id(one): picture(one) for one in figures},
        rows={id(one): numbers.rows(one.result) if one.findings else [] for one in figures},
        longer={id(one): numbers.left_out(one.result) for one in figures},
        key=id,
        card_rows=cards.rows,
        many=MANY,
        summary=summary,
    )


def picture(figure: Figure) -> str:
    """Return a figure as a data URL: an SVG, or a PNG if the SVG is large.

    Letters are drawn as paths, since a reader may not have the font.
    """
    with house.look({"svg.fonttype": "path"}):
        drawing = results.draw(figure.analysis, figure.result, "double", figure.part)
        content, kind = results.encoded(drawing, "svg", dpi=DPI), "svg+xml"
    if len(content) > LARGEST_SVG:
        content, kind = results.encoded(drawing, "png", dpi=DPI), "png"
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def summary(card: Mapping) -> str:
    """Return a one-line summary of a network."""
    rows = dict(cards.rows(card))
    parts = [rows.get("network", "user-defined"), rows.get("routing")]
    parts += [f"{rows['parameters']} parameters"] if "parameters" in rows else []
    parts += [f"trained on {rows['trained on']}"] if "trained on" in rows else []
    return ", ".join(filter(None, parts))


def _points(difference: Estimate) -> str:
    """Return a difference of shares as text, in percentage points."""
    return f"{100 * difference:+.1f} points"
