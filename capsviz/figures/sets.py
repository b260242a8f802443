"""The figure set of a paper: every analysis's figures in one folder, a manifest, and a LaTeX file.

An analysis takes part if it offers
    paper(inputs, settings) -> iterator of (stem, result)   its figures, cheapest first
    caption(result) -> str                                   plain text that carries the numbers
and, for images that show several things each, says so by SEVERAL = True.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from capsviz import discovery, figures
from capsviz.figures.tables import escape
from capsviz.files import write_text
from capsviz.provenance import commit, provenance
from capsviz.tracing import remember

UNRECORDED = ("progress", "command")


class Settings(NamedTuple):
    """What the figures of a set share."""

    n: int  # test images behind every statistic
    digit: int = 2  # class and number of the image that single-image figures show
    index: int = 0
    seed: int = 0
    progress: Callable[[str], Callable] = lambda label: iter  # label -> wrapper of an iterable
    command: str | None = None  # the command line


class Entry(NamedTuple):
    """One figure of the set."""

    name: str
    analysis: str
    caption: str
    files: list[str]
    seconds: float
    commit: str | None = None  # of the code that made it


def offering() -> list[str]:
    """The analyses that take part in the set."""
    every = discovery.names("capsviz.analyses")
    return [
        n for n in every if hasattr(discovery.load("capsviz.analyses", n, what="analysis"), "paper")
    ]


def choose(only: Sequence[str]) -> list[str]:
    """The analyses to draw, all for an empty choice; ValueError for an unknown one."""
    known = offering()
    for name in only:
        if name not in known:
            raise ValueError(discovery.unknown("figure", name, known))
    return [name for name in known if not only or name in only]


def fitting(names: Sequence[str], dataset) -> list[str]:
    """Those that look at the images of a data set; ValueError if none does.

    Where the images show several things each, those alone that say SEVERAL.
    """
    if dataset.parts is None:
        return list(names)
    loaded = {name: discovery.load("capsviz.analyses", name, what="analysis") for name in names}
    pairs = [name for name, module in loaded.items() if getattr(module, "SEVERAL", False)]
    if not pairs:
        dataset.single()
    return pairs


def make(
    inputs,
    output: Path,
    names: Sequence[str],
    settings: Settings,
    *,
    formats: Sequence[str],
    width: str | float,
    report: Callable[[str], None],
) -> tuple[list[Entry], dict[str, str]]:
    """Draw the figures of the named analyses; what one figure traced, the others take over.

    Returns
    -------
    The entries, and for every analysis that failed its error: the others are drawn all the same.
    """
    entries, failed = [], {}
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):  # a folder that cannot be written to is refused now
        pass
    with remember():
        for name in names:
            module = discovery.load("capsviz.analyses", name, what="analysis")
            try:
                for entry in _draw(module, name, inputs, output, settings, formats, width):
                    entries.append(entry)
                    report(f"{entry.name}: {entry.seconds:.1f} s")
            except Exception as error:  # whatever it is, the other figures are drawn
                text = " ".join(str(error).split())
                failed[name] = f"{type(error).__name__}: {text}"
                report(f"{name} failed: {failed[name]}")
    _write(output, inputs, settings, entries, failed, formats, width)
    return entries, failed


def _draw(module, analysis, inputs, output, settings, formats, width) -> Iterator[Entry]:
    start, code = time.perf_counter(), commit()
    for stem, result in module.paper(inputs, settings):
        paths = figures.save(
            output / stem,
            analysis,
            result,
            formats=formats,
            width=width,
            options={k: v for k, v in settings._asdict().items() if k not in UNRECORDED},
            card=inputs.model.card,
            device=str(inputs.device),
            command=settings.command,
            notice=inputs.dataset.notice,
        )
        now = time.perf_counter()
        caption = module.caption(result)
        if inputs.dataset.notice is not None:
            caption = f"{caption.rstrip('.')}. Note: {inputs.dataset.notice}."
        names, seconds = [p.name for p in paths], round(now - start, 2)
        yield Entry(stem, analysis, caption, names, seconds, code)
        start = now


def _write(output, inputs, settings, entries, failed, formats, width) -> None:
    drawn = {entry.name for entry in entries}
    weights = inputs.model.card.get("weights", {}).get("sha256")
    kept = [Entry(**f) for f in _earlier(output, weights, settings.n) if f["name"] not in drawn]
    entries = sorted([*entries, *kept])
    manifest = {
        "checkpoint": inputs.name,
        "dataset": inputs.dataset.name,
        "split": inputs.dataset.split,
        "n": settings.n,
        "provenance": provenance(inputs.model.card, str(inputs.device)),
        "figures": [entry._asdict() for entry in entries],
        "failed": failed,
    }
    write_text(output / "manifest.json", json.dumps(manifest, indent=1) + "\n")
    kind = next((f for f in ("pdf", "png") if f in formats), None)
    if kind is not None:
        text = latex(entries, kind, figures.inches(width))
        write_text(output / "figures.tex", text)


def _earlier(output: Path, weights: str | None, n: int) -> list[dict]:
    """Figures of an earlier run in the same folder, of the same weights and n."""
    try:
        manifest = json.loads((output / "manifest.json").read_text(encoding="utf-8"))
        same = (manifest["provenance"]["weights_sha256"], manifest["n"]) == (weights, n)
        return manifest["figures"] if same else []
    except (OSError, ValueError, KeyError, TypeError):
        return []


def latex(entries: Sequence[Entry], kind: str, inches: float) -> str:
    """A LaTeX document that shows every figure with caption and label, and compiles as it is."""
    parts = [
        r"% Made by capsviz figures. Copy the figure environments, or compile it as it is.",
        r"\documentclass{article}",
        r"\usepackage{graphicx}",
        r"\usepackage[T1]{fontenc}",
        r"\usepackage[margin=1.2cm]{geometry}",
        r"\begin{document}",
    ]
    for entry in entries:
        parts += [
            "",
            r"\begin{figure}[p]",
            r"  \centering",
            rf"  \includegraphics[width={min(inches, 7.4):.3g}in,"
            rf"height=9in,keepaspectratio]{{{entry.name}.{kind}}}",
            rf"  \caption{{{escape(entry.caption)}}}",
            rf"  \label{{fig:{entry.name}}}",
            r"\end{figure}",
            r"\clearpage",
        ]
    return "\n".join([*parts, "", r"\end{document}", ""])
