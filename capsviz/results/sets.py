"""The figure set of a paper: every analysis's figures in one folder, a manifest, and a LaTeX file.

An analysis takes part unless its `figure_set` is None.
"""

from __future__ import annotations

import json
import tempfile
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from capsviz import analysis as contract
from capsviz import discovery, results
from capsviz.files import write_text
from capsviz.provenance import provenance
from capsviz.results import apart, manifest, pieces
from capsviz.results.latex import document
from capsviz.results.manifest import Entry
from capsviz.results.venues import INCHES
from capsviz.tracing import remember

ALONE = 6  # analyses, of more than which pictures are drawn in a process of their own
AHEAD = 4  # results that wait for it, at most


class Settings(NamedTuple):
    """What the figures of a set share."""

    n: int  # test images behind a statistic
    digit: int | None = None  # class and number of the image that is shown, for None the usual
    index: int = 0  # type: ignore[assignment]  # a field, in place of a tuple's method
    seed: int = 0
    progress: Callable[[str], Callable] = lambda label: iter  # label -> wrapper of an iterable
    command: str | None = None  # the command line
    most: int | None = None  # images behind one that looks at each of them dozens of times

    @property
    def few(self) -> int:
        """Test images behind a statistic that looks at each of them dozens of times."""
        return self.n if self.most is None else min(self.n, self.most)


def offering() -> list[str]:
    """The analyses that take part in the set."""
    every = discovery.names("capsviz.analyses")
    return [
        n
        for n in every
        if hasattr(discovery.load("capsviz.analyses", n, what="analysis"), "paper")
        or pieces.offers(n)
    ]


def choose(only: Sequence[str]) -> list[str]:
    """The analyses to draw, all for an empty choice; ValueError for an unknown one.

    An analysis may be called as its command is, "parse-tree" for parse_tree.
    """
    known = offering()
    only = [name.replace("-", "_") for name in only]
    for name in only:
        if name not in known:
            words = [one.replace("_", "-") for one in (name, *known)]
            raise ValueError(discovery.unknown("figure", words[0], words[1:]))
    return [name for name in known if not only or name in only]


def fitting(names: Sequence[str], dataset) -> list[str]:
    """Those that look at the images of a data set; ValueError if none does.

    Where the images show several objects each, those alone that take such images.
    """
    if dataset.parts is None:
        return list(names)
    pairs = [n for n in names if any(one.several_objects for one in contract.of(n))]
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
    force: bool = False,
    column: float = INCHES["single"],
) -> tuple[list[Entry], dict[str, str]]:
    """Draw the figures of the named analyses; what one figure traced, the others take over.

    What an earlier run of the same network, images and options drew is kept, by its digests; a run
    that was stopped goes on where it was.

    Parameters
    ----------
    force   draw everything anew, over what is there.
    column  inches: what is wider goes over both columns in LaTeX.

    Returns
    -------
    The entries of the named analyses, and for every one that failed its error: the others are drawn
    all the same.

    Raises
    ------
    ValueError  for a folder with figures of another network, other images or options.
    """
    about = _about(inputs, settings)
    key = {**about["of"], "formats": sorted(formats), "width": width, "look": results.chosen()}
    key = json.loads(json.dumps(key))
    earlier = _earlier(output, key, force)
    entries, whole = list(earlier.entries), list(earlier.whole)
    failed: dict[str, str] = {}
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=output):  # a folder that cannot be written to is refused now
        pass

    def record():
        manifest.write(output, about["card"], entries, failed, key=key, whole=sorted(whole))

    waiting: deque[pieces.Computed] = deque()
    drawn: dict[str, list[Entry]] = {name: [] for name in names}

    def fail(name, error):
        failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())}"
        report(f"{name} failed: {failed[name]}")

    def take(most):
        """Take over what is drawn, until so many results wait."""
        nonlocal entries
        while len(waiting) > most:
            one = waiting.popleft()
            own = drawn[one.analysis]
            if one.draw is None:  # its end
                if one.analysis not in failed:
                    entries = [e for e in entries if e.analysis != one.analysis or e in own]
                    whole.append(one.analysis)
                continue
            try:
                several = pieces.save(one, inputs, output, settings, formats, width)
            except Exception as error:  # whatever it is, the other figures are drawn
                fail(one.analysis, error)
                continue
            own += several
            names_of = {entry.name for entry in own}
            entries = [entry for entry in entries if entry.name not in names_of] + own
            record()
            report(f"{several[0].name}: {several[0].seconds:.1f} s")

    many = len(names) > ALONE
    with remember(), (apart.apart if many else apart.here)() as draw:
        for name in names:
            own = [entry for entry in entries if entry.analysis == name]
            if name in whole and not force and manifest.intact(output, own):
                report(f"{name}: kept, {len(own)} drawn before")
                continue
            if why := pieces.left_out(name, inputs):
                report(f"{name} left out: {why}")
                continue
            free = None if force else {entry.name for entry in own}  # may be overwritten
            whole = [other for other in whole if other != name]
            try:
                for stem, result, seconds in pieces.compute(name, inputs, output, settings, free):
                    wait = draw(output / stem, name, result, formats, width)
                    waiting.append(pieces.Computed(name, stem, result, seconds, wait))
                    take(AHEAD if many else 0)
                waiting.append(pieces.Computed(name))
            except Exception as error:  # whatever it is, the other figures are drawn
                fail(name, error)
            take(AHEAD if many else 0)
        take(0)
    if not entries and not failed:
        return [], {}
    record()
    kind = next((f for f in ("pdf", "png") if f in formats), None)
    if kind is None:
        report(f"no figures.tex: LaTeX includes pdf or png, got --format {', '.join(formats)}")
    else:
        ordered = sorted(entries, key=lambda entry: entry.name)
        write_text(output / "figures.tex", document(ordered, kind, results.inches(width), column))
    return [entry for entry in entries if entry.analysis in names], failed


def _earlier(output: Path, key: dict, force: bool) -> manifest.Earlier:
    """What may be kept of an earlier run in the folder; ValueError for one of something else."""
    nothing = manifest.Earlier([], [], None)
    earlier = manifest.read(output)
    if earlier is None or not earlier.entries:
        return nothing
    if earlier.key == key:
        return earlier
    if force:
        return nothing
    old = earlier.key or {}
    unlike = [name for name in key if old.get(name) != key[name]] if old else ["its version"]
    raise ValueError(
        f"{output} holds figures of another run ({', '.join(unlike)} differ): "
        "choose another --output, or add --force to draw all anew"
    )


def _about(inputs, settings) -> dict[str, dict]:
    """What a set is made of, and what the manifest says of that."""
    origin = provenance(inputs.model.card, str(inputs.device))
    card = {
        "checkpoint": inputs.name,
        "dataset": inputs.dataset.name,
        "split": inputs.dataset.split,
        "n": settings.n,
    }
    options = {k: v for k, v in settings._asdict().items() if k not in pieces.UNRECORDED}
    weights = origin["weights_sha256"]
    return {
        "of": {**card, **options, "weights": weights},
        "card": {**card, "provenance": origin},
    }
