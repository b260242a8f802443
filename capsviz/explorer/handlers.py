"""What runs when a part of the page is touched: values of its controls in, panels out.

One function, `show`, makes all panels from what is shown and every control: so no panel can be of
another image or setting than its neighbour.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from capsviz.analyses.view.measure import Warp
from capsviz.explorer import drawing, files, layout, link, look, panels, settings, sides, turning
from capsviz.explorer.cases import Case
from capsviz.explorer.choice import Choice
from capsviz.explorer.network import Networks
from capsviz.explorer.settings import LONGEST
from capsviz.explorer.source import Sample, from_file, from_sheet

PANELS = 8  # what `show` gives
OFF, ITERATION, POSE = 6, 8, 12  # places of controls among their values


class Handlers:
    """Of one page; `neutral` are the values of its controls before anything is touched.

    `values` are those of the controls, in the order of `settings.read`; before them come what is
    shown, the names of both networks, and whether the tab "Side by side" is open.
    """

    def __init__(self, choice: Choice, cases: dict[str, Case]):
        self.choice, self.cases = choice, cases
        self.neutral: list = []

    def arrive(self, text, sample, first, beside, opened, *values):
        """The state that the address holds; what is wrong with it is said."""
        parts, wrong = link.parse(text or ""), []
        first, beside = parts.get("network", first), parts.get("beside", beside)
        try:
            networks = self.choice.pair(first, beside)
        except ValueError as error:
            wrong.append(str(error))
            first, beside = self.choice.first, self.choice.beside
            networks = self.choice.pair(first, beside)
        try:
            sample = self._of_link(networks, parts) or sample
        except ValueError as error:
            wrong.append(str(error))
        about = networks.about
        neutral = list(self.neutral)
        neutral[ITERATION] = about.iterations
        values, odd = link.values_of(
            parts, neutral, classes=len(networks.classes), types=about.types,
            iterations=about.iterations,
        )  # fmt: skip
        wrong += [f"the link's {name} cannot be had here" for name in odd]
        case = self.cases.get(parts.get("case"))
        status = drawing.note(case.question if case else "")
        status += drawing.note("; ".join(wrong), "cv-warn")
        outputs = self.show(sample, first, beside, opened, *values)
        return (sample, status, first, beside, *self._fitted(about, values), *outputs)

    def choose(self, sample, first, beside, opened, *values):
        """Other networks: what can be set follows them, and what was set in poses is undone."""
        try:
            about = self.choice.pair(first, beside).about
        except (ValueError, OSError) as error:
            note = drawing.note(str(error), "cv-warn")
            return (note, *[gr.skip()] * (3 + len(values) - POSE + PANELS))
        values = [*values[:POSE], *[0] * (len(values) - POSE)]
        values[OFF], values[ITERATION] = settings.NONE, about.iterations
        fitted = self._fitted(about, values)
        outputs = self.show(sample, first, beside, opened, *values)
        return ("", fitted[OFF], fitted[ITERATION], *fitted[POSE:], "", *outputs)

    def replacing(self, find, count: int):
        """A handler that shows another image, or none, or says what was wrong with it."""

        def handle(*values):
            _, first, beside, *_ = values[count:]
            try:
                sample = find(self.choice.pair(first, beside), *values[:count])
            except ValueError as error:
                kept = [gr.skip()] * (1 + PANELS)
                return (gr.skip(), drawing.note(str(error), "cv-warn"), *kept)
            return (sample, "", "", *self.show(sample, *values[count + 1 :]))

        return handle

    def case(self, key, sample, first, beside, opened, *values):
        """A prepared case, turned as it is to be, and its question."""
        if (case := self.cases.get(key)) is None:
            raise gr.Error(f"there is no case '{key}'", print_exception=False)
        sample, warp = _case(case), list(Warp(case.angle_deg))
        outputs = self.show(sample, first, beside, opened, *warp, *values[5:])
        return (sample, drawing.note(case.question), "", *warp, *outputs)

    def show(self, sample, first, beside, opened, *values):
        """All panels, the class of the pose, how many iterations there are, the link's query."""
        networks = self.choice.pair(first, beside)
        last = networks.about.iterations
        if sample is None:
            empty = drawing.note(panels.EMPTY)
            query = self._query({}, (first, beside), values)
            return (empty, "", empty, empty, empty, LONGEST, last, query)
        chosen, note = self.settings(networks, values), ""
        try:
            answers = panels.find(networks, sample.image, chosen)
        except ValueError as error:  # a donor that is not there, couplings that are not replaced
            note = drawing.note(f"{error}: what is shown of this image is as trained", "cv-warn")
            chosen = chosen._replace(how=look.AS_TRAINED)
            answers = panels.find(networks, sample.image, chosen)
        return (
            panels.images(answers, networks),
            note + panels.scores(answers, networks, sample.label),
            note + panels.routed(answers, networks, chosen),
            _compared(networks, sample.image, chosen) if opened else gr.skip(),
            panels.posed(answers, networks, chosen),
            answers.capsule,
            last,
            self._query(_origin(sample), (first, beside), values),
        )

    def open_sides(self, sample, first, beside, _, *values):
        """The panels, those side by side among them, which cost more and are made from now on."""
        return (True, *self.show(sample, first, beside, True, *values))

    def settings(self, networks: Networks, values) -> settings.Settings:
        """What the controls say, with as many changes as the pose has dimensions."""
        return settings.read(values[: POSE + networks.about.dimensions])

    def tick(self, first, beside, iteration):
        """The next iteration, and at the last one an end."""
        last = self.choice.pair(first, beside).about.iterations
        following = min(int(iteration) + 1, last)
        return following, gr.Timer(active=following < last)

    def turn(self, sample, first, beside):
        """The player of a full circle."""
        if sample is None:
            return drawing.note(panels.EMPTY)
        return turning.played(self.choice.pair(first, beside), sample.image)

    def explain(self, capsule, opened, first, beside):
        """What each dimension of a class's pose does, beside its slider."""
        count = self.choice.dimensions
        if not opened or capsule == LONGEST:
            return [gr.skip()] * count
        try:
            texts = files.explain(self.choice.pair(first, beside), int(capsule))
        except ValueError as error:  # no decoder, or too few images of a class
            texts = [str(error)] * count
        return [gr.Slider(info=text) for text in [*texts, *[""] * count][:count]]

    def saving(self, save):
        """A handler that writes figures of what is shown, and offers them."""

        def handle(sample, first, beside, _, *values):
            if sample is None:
                raise gr.Error(panels.EMPTY)
            networks = self.choice.pair(first, beside)
            chosen = self.settings(networks, values)
            try:
                paths = save(networks, sample, chosen)
            except ValueError as error:
                raise gr.Error(str(error)) from error
            return gr.File([str(path) for path in paths], visible=True)

        return handle

    def sketch(self, networks, sheet):
        """A drawing; nothing, once it is cleared."""
        if not sheet:
            return None
        return Sample(_as_in_link(from_sheet(sheet, networks.frame)), None, "drawing")

    def upload(self, networks, path, invert):
        """A visitor's file."""
        if path is None:
            raise ValueError("Choose a picture first.")
        image = _as_in_link(from_file(path, networks.frame, invert))
        return Sample(image, None, Path(path).stem)

    def test_image(self, networks, digit, index):
        """A test image."""
        digit, index = link.number(digit), link.number(index or 0)
        name = f"{networks.dataset.name}-{digit}-{index}"
        return Sample(
            networks.test_image(digit, index), digit, name, {"digit": digit, "index": index}
        )

    def _of_link(self, networks, parts) -> Sample | None:
        if "case" in parts:
            if parts["case"] not in self.cases:
                raise ValueError(f"there is no case '{parts['case']}' here")
            return _case(self.cases[parts["case"]])
        if "ink" in parts:
            return Sample(
                link.unpacked(parts["ink"], networks.dataset.image_shape), None, "drawing"
            )
        if "digit" in parts:
            numbers = (parts["digit"], parts.get("index", "0"))
            if not all(number.isdecimal() for number in numbers):
                raise ValueError("the link names no test image")
            return self.test_image(networks, *map(int, numbers))
        return None

    def _query(self, origin: dict, pair, values) -> str:
        neutral = list(self.neutral)
        neutral[ITERATION] = self.choice.pair(*pair).about.iterations
        return link.query(pair, origin, values, neutral)

    def _fitted(self, about, values) -> list:
        """The controls with these values, as far as a network has what they set."""
        fitted = list(values)
        fitted[OFF] = gr.Dropdown(layout.types(about.types), value=values[OFF])
        fitted[ITERATION] = gr.Slider(value=values[ITERATION], visible=about.iterations > 1)
        for d in range(len(values) - POSE):
            fitted[POSE + d] = gr.Slider(value=values[POSE + d], visible=d < about.dimensions)
        return fitted


def _compared(networks: Networks, image, chosen) -> str:
    try:
        return sides.compared(networks, image, chosen)
    except ValueError as error:  # a donor that is not there
        return drawing.note(str(error), "cv-warn")


def _case(case: Case) -> Sample:
    return Sample(case.image, case.label, case.key, {"case": case.key})


def _origin(sample: Sample) -> dict:
    """Where an image is from, for a link."""
    if sample.origin is not None:
        return sample.origin
    letters = link.packed(sample.image)
    return {} if letters is None else {"ink": letters}


def _as_in_link(image):
    """An image at the 256 levels of a link, so that who opens one sees the very same."""
    return (image * 255).round() / 255
