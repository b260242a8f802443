"""Draw the figure set of a network: figures of every analysis, a manifest, and a LaTeX file.

An analysis takes part unless its `figure_set` is None.
"""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from capsviz import analysis as contract
from capsviz import discovery, results
from capsviz.files import write_text
from capsviz.inputs import context
from capsviz.nn import allocator
from capsviz.provenance import provenance
from capsviz.results import house
from capsviz.results.tables import document

MANIFEST = "manifest.json"
UNRECORDED = ("progress", "command")


class Settings(NamedTuple):
    """Settings of all figures of a set."""

    n: int  # test images of a statistic
    digit: int | None = None  # class of the image that is shown; None: the analysis's default
    index: int = 0  # type: ignore[assignment]  # of this image; the field hides tuple.index
    seed: int = 0
    progress: Callable[[str], Callable] = lambda label: iter  # label -> wrapper of an iterable
    command: str | None = None  # the command line
    most: int | None = None  # test images of a statistic with dozens of passes per image

    @property
    def few(self) -> int:
        """Test images of a statistic with dozens of forward passes per image."""
        return self.n if self.most is None else min(self.n, self.most)

    @property
    def recorded(self) -> dict[str, Any]:
        """The settings that are written beside the figures."""
        return {k: v for k, v in self._asdict().items() if k not in UNRECORDED}


class Entry(NamedTuple):
    """One picture of the set, in the manifest."""

    name: str
    analysis: str
    caption: str
    files: list[str]
    seconds: float
    commit: str | None = None  # of the code that made it
    part: str = ""  # of a result with several pictures


def offering() -> list[str]:
    """Return the analyses that take part in figure sets."""
    return [name for name in discovery.names(contract.PACKAGE) if _of_figure_set(name)]


def choose(only: Sequence[str], known: Sequence[str] | None = None) -> list[str]:
    """Return the analyses to draw, all for an empty choice; ValueError for an unknown one.

    An analysis may also have the name of its command, "parse-tree" for parse_tree.
    """
    known = offering() if known is None else known
    only = [name.replace("-", "_") for name in only]
    for name in only:
        if name not in known:
            words = [one.replace("_", "-") for one in (name, *known)]
            raise ValueError(discovery.unknown("analysis", words[0], words[1:]))
    return [name for name in known if not only or name in only]


def fitting(names: Sequence[str], dataset) -> list[str]:
    """Return the analyses that accept the images of a data set; ValueError if none does.

    Only some analyses accept images of several objects.
    """
    if dataset.parts is None:
        return list(names)
    pairs = [n for n in names if any(one.several_objects for one in contract.of(n))]
    if not pairs:
        dataset.single()
    return pairs


def left_out(name: str, inputs) -> str:
    """Return why an analysis is left out of the figure set; "" if it is not."""
    reasons = [one.left_out(inputs) for one in _of_figure_set(name)]
    return reasons[0] if reasons and all(reasons) else ""


def results_of(name: str, inputs, settings: Settings) -> Iterator[tuple[str, NamedTuple]]:
    """Measure an analysis for the figure set of a network; yield (stem, result)."""
    for one in _of_figure_set(name):
        if not one.left_out(inputs):
            yield from context.of_figure_set(one, inputs, settings)


def make(
    inputs,
    output: Path,
    names: Sequence[str],
    settings: Settings,
    *,
    formats: Sequence[str],
    width: str | float,
    report: Callable[[str], None],
    column: float,
    force: bool = False,
    files: Mapping[str, str] | None = None,
) -> tuple[list[Entry], dict[str, str]]:
    """Draw the figures of the named analyses.

    Figures of an earlier run with the same network, images and options are kept unless `force`.
    `files` are digests of the files of network and data. In LaTeX, a figure wider than `column`
    inches spans both columns.

    Returns
    -------
    The entries of the named analyses, and {analysis: error} of those that failed. A failure does
    not stop the others.

    Raises
    ------
    ValueError  if the folder has figures of another network, other images or other options.
    """
    origin = provenance(inputs.model.card, str(inputs.device))
    card = {"checkpoint": inputs.name, "dataset": inputs.dataset.name,
            "split": inputs.dataset.split, "n": settings.n}  # fmt: skip
    key = {**card, **settings.recorded, "weights": origin["weights_sha256"],
           "formats": sorted(formats), "width": width, "look": house.chosen(),
           **({"data_options": dict(own)} if (own := inputs.dataset.options) else {})}  # fmt: skip
    key = json.loads(json.dumps(key | dict(files or {})))
    entries, whole = _earlier(output, key)
    failed: dict[str, str] = {}
    output.mkdir(parents=True, exist_ok=True)

    def record():
        figures = [entries[name]._asdict() for name in sorted(entries)]
        manifest = {**card, "provenance": origin, "key": key, "whole": sorted(whole),
                    "figures": figures, "failed": failed}  # fmt: skip
        write_text(output / MANIFEST, json.dumps(manifest, indent=1) + "\n")

    def draw(name: str, earlier: Mapping[str, Entry]) -> None:
        """Measure, draw and write the results of an analysis, one by one."""
        start, drawn, notice = time.perf_counter(), set[str](), inputs.dataset.notice
        for stem, result in results_of(name, inputs, settings):
            path = output / f"{stem}.json"
            if not force and stem not in earlier and path.exists():
                raise ValueError(
                    f"{path} exists: add --force to overwrite it, or choose another --output"
                )
            entries.setdefault(stem, Entry(stem, name, "", [], 0.0))  # in case it is interrupted
            record()
            allocator.trim()
            paths = results.save(
                output / stem, name, result, formats=formats, width=width,
                options=settings.recorded, card=inputs.model.card, device=str(inputs.device),
                command=settings.command, notice=notice,
            )  # fmt: skip
            seconds = round(time.perf_counter() - start, 2)
            pictures = results.picture_names(stem, name, result)
            for part, own in pictures.items():
                others = {*pictures.values(), stem} - {own}
                written = [path.name for path in paths if path.stem not in others]
                written += [f"{stem}.json"] if part else []  # the shared numbers
                entries[own] = Entry(
                    own, name, results.caption(name, result, part, notice=notice, width=width),
                    written, seconds, origin["commit"], part,
                )  # fmt: skip
                drawn.add(own)
            record()
            report(f"{stem}: {seconds:.1f} s")
            start = time.perf_counter()
        for gone in earlier.keys() - drawn:
            del entries[gone]

    allocator.give_back_large()
    for name in names:
        allocator.trim()  # the last one's memory may be too fragmented for the next
        before = {one.name: one for one in entries.values() if one.analysis == name}
        there = all((output / file).exists() for one in before.values() for file in one.files)
        if name in whole and not force and there:
            report(f"{name}: kept, {len(before)} drawn before")
            continue
        try:
            if why := left_out(name, inputs):
                report(f"{name} left out: {why}")
                continue
            whole.discard(name)
            draw(name, before)
            whole.add(name)
        except Exception as error:  # any failure: the other figures are still drawn
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
            report(f"{name} failed: {failed[name]}")
    for name in [name for name, one in entries.items() if not one.files]:  # begun, and failed
        del entries[name]
    if not entries and not failed:
        return [], {}
    record()
    kind = next((f for f in ("pdf", "png") if f in formats), None)
    if kind is None:
        report(f"no figures.tex: LaTeX includes pdf or png, got --format {', '.join(formats)}")
    else:
        captions = {name: entries[name].caption for name in sorted(entries)}
        text = document(captions, kind, house.inches(width), column)
        write_text(output / "figures.tex", text)
    return [entry for entry in entries.values() if entry.analysis in names], failed


def _of_figure_set(name: str) -> list[contract.Analysis]:
    """Return the analyses of a command that take part in figure sets."""
    return [
        one
        for one in contract.of(name)
        if one.figure_set is not None and type(one).measure is not contract.Analysis.measure
    ]


def _earlier(output: Path, key: dict) -> tuple[dict[str, Entry], set[str]]:
    """Return the entries of an earlier run, and the analyses that it completed."""
    try:
        manifest = json.loads((output / MANIFEST).read_text(encoding="utf-8"))
        fields = {*Entry._fields}  # older manifests have others
        known = [{k: one[k] for k in one.keys() & fields} for one in manifest["figures"]]
        entries = {one["name"]: Entry(**one) for one in known}
        whole, earlier = set(manifest["whole"]), manifest["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}, set()
    differ = [name for name in {**key, **earlier} if earlier.get(name) != key.get(name)]
    if differ and entries:
        raise ValueError(
            f"{output} holds figures of another run ({', '.join(differ)} differ): "
            "choose another --output, or delete that folder first"
        )
    return entries, whole
