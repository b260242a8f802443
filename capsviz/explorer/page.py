"""The page: connect its parts to the functions that handle their events.

`show` makes all panels from the image and every control, so all panels show the same image and
settings. Figures, which take longer, are made by a button, in a queue.
"""

from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr

from capsviz.analyses.view import Warp, warped
from capsviz.explorer import drawing, files, images, layout, look, panels, settings
from capsviz.explorer.images import Sample
from capsviz.explorer.networks import About, Choice, Networks
from capsviz.inputs.opening import open_picture

# Run at once, by as many threads as `serve` allows: the queue would take longer than the networks.
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
LATEST = {"trigger_mode": "always_last", **QUICK}
# One at a time, in Gradio's queue: all threads share matplotlib's style.
SLOW = {"concurrency_id": "slow", "concurrency_limit": 1, "api_visibility": "private"}
ADDRESS = """(query) => {
  const theme = new URLSearchParams(location.search).get("__theme");
  const mode = theme ? `&__theme=${theme}` : "";
  history.replaceState(null, "", `${location.pathname}?${query}${mode}`);
}"""
# Sets the slider's maximum in the browser. If the server set it, Gradio would refuse requests that
# are still under way for a network with more iterations.
SET_MAXIMUM = '(last) => ({ maximum: Math.max(last, 2), __type__: "update" })'


class State(NamedTuple):
    """The state of the page for one visitor."""

    sample: Sample | None
    networks: Networks
    values: dict[str, Any]  # of the controls, by their names in a link


class Page:
    """The page for a choice of networks; `launch` serves its `blocks`.

    Handlers take a dict of values by part of the page, and return a dict of the changed ones.
    """

    def __init__(self, choice: Choice):
        self.choice = choice
        networks = choice.pair(choice.first, choice.beside)
        middle = min(2, len(networks.dataset.classes) - 1)
        warped(networks.test_image(middle, 0), Warp(1.0))  # runs imports of the first warp now
        with gr.Blocks(
            title="capsviz explore",
            analytics_enabled=False,
            delete_cache=(3600, 3600),
            fill_width=True,
        ) as self.blocks:
            self.address = gr.Textbox("", visible="hidden")  # must be first: a script sets it
            self.sample = gr.State(self.test_image(networks, middle, 0))
            # Not gr.State: requests without a queue do not send its changes to the page.
            self.iterations = gr.Number(0, visible="hidden")
            self.query = gr.Textbox("", visible="hidden", elem_id="query")
            self.on = on = layout.build(choice, networks.about, middle)
            self.usual = {name: one.value for name, one in on.controls.items()}
            self.given = {self.sample, on.first, on.beside, *on.controls.values()}
            self.panels = [
                on.images, on.scores, on.routed, on.iterations, on.posed, on.figure, on.files,
                self.iterations, self.query,
            ]  # fmt: skip
            self._events()

    def _events(self):
        on, controls = self.on, self.on.controls
        self.blocks.load(
            self.arrive, {self.address, *self.given},
            [self.sample, on.status, on.first, on.beside, *controls.values(), *self.panels],
            js="(first, ...others) => [location.search, ...others]", **QUICK,
        )  # fmt: skip
        gr.on(
            [one.change for one in controls.values()],
            lambda given: self.show(self.state(given)), self.given, self.panels, **LATEST,
        )  # fmt: skip
        gr.on(
            [on.first.input, on.beside.input], self.choose, self.given,
            [on.status, controls["off"], controls["iteration"], *on.changes, *self.panels],
            **LATEST,
        )  # fmt: skip
        for triggers, find, inputs in (
            ([on.sheet.input], self.sketch, [on.sheet]),
            ([on.file.upload, on.invert.input], self.upload, [on.file, on.invert]),
            ([on.file.clear], lambda networks: None, []),
            ([on.take.click, on.index.submit, on.digit.input], self.test_image,
             [on.digit, on.index]),
        ):  # fmt: skip
            gr.on(
                triggers, self.replacing(find, inputs), {*inputs, *self.given},
                [self.sample, on.status, *self.panels], **LATEST,
            )  # fmt: skip
        on.straight.click(lambda: list(Warp()), None, on.warp, **QUICK)
        on.own.click(lambda: [0] * len(on.changes), None, on.changes, **QUICK)
        self.iterations.change(
            None, [self.iterations], [controls["iteration"]], js=SET_MAXIMUM, **QUICK
        )
        self.query.change(None, [self.query], None, js=ADDRESS, **QUICK)
        on.make.click(self.make, {on.kind, *self.given}, [on.figure, on.files], **SLOW)

    def state(self, given: dict) -> State:
        """Return the state of the page for one visitor."""
        on = self.on
        return State(
            given[self.sample],
            self.choice.pair(given[on.first], given[on.beside]),
            {name: given[one] for name, one in on.controls.items()},
        )

    def neutral(self, networks: Networks) -> dict[str, Any]:
        """Return the initial values of the controls."""
        return {**self.usual, "iteration": networks.about.iterations}

    def arrive(self, given) -> dict:
        """Show the state that the address encodes, and report errors in it."""
        on, wrong = self.on, []
        parts = settings.parse(given[self.address] or "")
        names = parts.get("network", given[on.first]), parts.get("beside", given[on.beside])
        try:
            networks = self.choice.pair(*names)
        except ValueError as error:
            wrong.append(str(error))
            networks = self.choice.pair(self.choice.first, self.choice.beside)
        sample, about = given[self.sample], networks.about
        try:
            if "ink" in parts:
                image = images.unpacked(parts["ink"], networks.dataset.image_shape)
                sample = images.own(image, "drawing")
            elif "digit" in parts:
                sample = self.test_image(networks, parts["digit"], parts.get("index"))
        except ValueError as error:
            wrong.append(str(error))
        values, odd = settings.values_of(
            parts, self.neutral(networks), classes=len(networks.dataset.classes), types=about.types,
            iterations=about.iterations,
        )  # fmt: skip
        wrong += [f"the link's value of {name} is not possible here" for name in odd]
        return {
            self.sample: sample,
            on.status: drawing.note("; ".join(wrong), "cv-warn"),
            on.first: networks.names[0],
            on.beside: networks.names[1],
            **self._controls(about, values),
            **self.show(State(sample, networks, values)),
        }

    def choose(self, given) -> dict:
        """Show other networks: set the ranges of controls, and undo changes of the pose."""
        on = self.on
        try:
            state = self.state(given)
            about = state.networks.about
        except (ValueError, OSError) as error:
            return {on.status: drawing.note(str(error), "cv-warn")}
        changed = {"off": settings.NONE, "iteration": about.iterations}
        changed |= {f"d{d}": 0 for d in range(len(on.changes))}
        return {
            on.status: "",
            **self._controls(about, changed),
            **self.show(state._replace(values=state.values | changed)),
        }

    def replacing(self, find, inputs):
        """Return a handler that shows another image, or no image and the error."""

        def handle(given):
            state = self.state(given)
            try:
                sample, wrong = find(state.networks, *(given[one] for one in inputs)), ""
            except ValueError as error:
                sample, wrong = None, str(error)
            return {
                self.sample: sample,
                self.on.status: drawing.note(wrong, "cv-warn"),
                **self.show(state._replace(sample=sample)),
            }

        return handle

    def show(self, state: State) -> dict:
        """Return all panels, the number of iterations, and the link's query."""
        on, (sample, networks, values) = self.on, state
        shown: dict[Any, Any] = {
            on.figure: "",
            on.files: gr.File(visible=False),
            self.iterations: networks.about.iterations,
            self.query: settings.query(
                networks.names, sample.origin if sample else {}, values, self.neutral(networks)
            ),
        }
        if sample is None:
            empty = drawing.note(panels.EMPTY)
            shown |= dict.fromkeys((on.images, on.iterations, on.posed), empty)
            return shown | {on.scores: "", on.routed: ""}
        chosen, note = settings.read(values, networks.about.dimensions), ""
        try:
            answers = panels.find(networks, sample.image, chosen)
        except ValueError as error:  # no such donor, or couplings that cannot be replaced
            note = drawing.note(f"{error}. The image is shown with routing as trained.", "cv-warn")
            chosen = chosen._replace(how=look.AS_TRAINED)
            answers = panels.find(networks, sample.image, chosen)
        return shown | {
            on.images: panels.images(answers, networks),
            on.scores: note + panels.scores(answers, networks, sample.label, chosen.how),
            on.routed: panels.routed(answers, networks, chosen),
            on.iterations: note + panels.iterations(answers, networks, chosen),
            on.posed: panels.posed(answers, networks, chosen),
        }

    def make(self, given) -> dict:
        """Draw a figure of the page's state, and offer it with its numbers."""
        sample, networks, values = self.state(given)
        if sample is None:
            raise gr.Error(panels.EMPTY)
        chosen = settings.read(values, networks.about.dimensions)
        try:
            paths = files.save(given[self.on.kind], networks, sample, chosen)
        except ValueError as error:
            raise gr.Error(str(error)) from error
        drawn = [path for path in paths[:-1] if path.suffix == ".png"]
        return {
            self.on.figure: "".join(drawing.figure(path) for path in drawn),
            self.on.files: gr.File([str(path) for path in paths], visible=True),
        }

    def sketch(self, networks: Networks, sheet: str) -> Sample | None:
        """Return a drawing; None if the sheet was cleared."""
        return images.own(images.from_sheet(sheet, networks.frame), "drawing") if sheet else None

    def upload(self, networks: Networks, path, invert: str) -> Sample:
        """Return a visitor's picture."""
        if path is None:
            raise ValueError("Choose a picture first.")
        return images.own(images.from_file(path, networks.frame, invert), Path(path).stem)

    def test_image(self, networks: Networks, digit, index) -> Sample:
        """Return a test image by its class and its index within the class."""
        origin: Any = {"digit": settings.number(digit), "index": settings.number(index or 0)}
        return Sample(*open_picture(networks.inputs, **origin)[:3], origin)

    def _controls(self, about: About, values: dict) -> dict:
        """Return updates of controls: these values, and the ranges for a network."""
        more: dict[str, dict] = {
            "off": {"choices": layout.types(about.types)},
            "iteration": {"visible": about.iterations > 1},
            **{f"d{d}": {"visible": d < about.dimensions} for d in range(len(self.on.changes))},
        }
        on = self.on.controls
        return {
            on[name]: type(on[name])(value=value, **more[name]) if name in more else value
            for name, value in values.items()
        }
