"""The results of a figure set one by one: computed, then drawn, then saved with their numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from capsviz import analysis as contract
from capsviz import discovery, results
from capsviz.inputs import context
from capsviz.provenance import commit
from capsviz.results import apart, manifest
from capsviz.results.manifest import Entry

UNRECORDED = ("progress", "command")


class Computed(NamedTuple):
    """A result that is being drawn, or without one the end of an analysis."""

    analysis: str
    stem: str = ""
    result: NamedTuple | None = None
    seconds: float = 0.0
    draw: Callable[[], apart.Drawn] | None = None


def has_measure(analysis: contract.Analysis) -> bool:
    """Whether an analysis measures a network, and does not only draw what others measured."""
    return type(analysis).measure is not contract.Analysis.measure


def results_of(name: str, inputs, settings) -> Iterator[tuple[str, NamedTuple]]:
    """Measure what an analysis gives to the figure set of a network; yield (stem, result)."""
    module = discovery.load("capsviz.analyses", name, what="analysis")
    if hasattr(module, "paper"):
        yield from module.paper(inputs, settings)
        return
    for one in _of_figure_set(name):
        if not one.left_out(inputs):
            yield from context.of_figure_set(one, inputs, settings)


def left_out(name: str, inputs) -> str:
    """Return why a figure set goes without an analysis; "": it does not."""
    reasons = [one.left_out(inputs) for one in _of_figure_set(name)]
    return reasons[0] if reasons and all(reasons) else ""


def offers(name: str) -> bool:
    """Whether an analysis takes part in figure sets."""
    return bool(_of_figure_set(name))


def _of_figure_set(name: str) -> list[contract.Analysis]:
    return [one for one in contract.of(name) if one.figure_set is not None and has_measure(one)]


def compute(analysis, inputs, output, settings, free) -> Iterator[tuple]:
    """Name, result and seconds of each; ValueError for a file in the way, unless it is `free`."""
    start = time.time()
    for stem, result in results_of(analysis, inputs, settings):
        if free is not None and stem not in free and (output / f"{stem}.json").exists():
            raise ValueError(
                f"{output / stem}.json exists: add --force to overwrite it, or choose another "
                "--output"
            )
        yield stem, result, time.time() - start
        start = time.time()


def save(one: Computed, inputs, output, settings, formats, width) -> list[Entry]:
    """Write the numbers beside the pictures, once these are drawn."""
    assert one.draw is not None and one.result is not None
    pictures, seconds = one.draw()
    paths = results.save(
        output / one.stem,
        one.analysis,
        one.result,
        formats=formats,
        width=width,
        options={k: v for k, v in settings._asdict().items() if k not in UNRECORDED},
        card=inputs.model.card,
        device=str(inputs.device),
        command=settings.command,
        notice=inputs.dataset.notice,
        drawn=pictures,
    )
    seconds += one.seconds
    return list(_entries(output, one.stem, one.analysis, one.result, paths, inputs, seconds))


def _entries(output, stem, analysis, result, paths, inputs, seconds) -> Iterator[Entry]:
    """An entry for each picture of a result: its own files, and the numbers that all share."""
    parts = results.parts(analysis, result)
    names = {part: f"{stem}-{part}" if part else stem for part in parts}
    others = {name for part, name in names.items() if part}
    for part, name in names.items():
        text = results.caption(analysis, result, part, notice=inputs.dataset.notice)
        own = [p.name for p in paths if p.stem == name]
        if not part:
            own = [p.name for p in paths if p.stem not in others]
        else:
            own.append(f"{stem}.json")
        yield Entry(
            name, analysis, text, own, round(seconds, 2), commit(), part,
            manifest.digests(output, own),
        )  # fmt: skip
