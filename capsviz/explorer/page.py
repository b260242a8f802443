"""The page: where its parts stand, and what runs when one is touched. Gradio is known only here.

One function, `_show`, makes all panels from what is shown and every control: so no panel can be of
another image or setting than its neighbour. What takes longer is on buttons, in its own queue.
"""

from __future__ import annotations

from pathlib import Path

import gradio as gr

from capsviz.analyses.view.measure import Warp, warped
from capsviz.explorer import drawing, files, look, panels
from capsviz.explorer.network import Networks
from capsviz.explorer.source import SHEET_PX, Shown, from_file, from_sheet

HERE = Path(__file__).parent
LONGEST = -1  # of a choice of class: that of the longest capsule
SHEET = (
    f'<div class="cv-sheet"><div><canvas width="{SHEET_PX}" height="{SHEET_PX}" role="img" '
    'aria-label="Sheet to draw a digit on"></canvas><span>Draw a digit here</span></div>'
    '<button type="button">Clear</button></div>'
)
WARPS = (  # name, lowest, highest, neutral, step, label, unit; in the order of `Warp`
    ("angle", -180, 180, 0, 1, "Angle", "° counter-clockwise"),
    ("scale", 0.5, 1.5, 1, 0.05, "Scale", "times the size"),
    ("shear", -1, 1, 0, 0.05, "Shear", "px down per px right"),
    ("right", -8, 8, 0, 1, "Shift right", "px"),
    ("down", -8, 8, 0, 1, "Shift down", "px"),
)
# At once, by as many threads as `serve` allows: the queue would take longer than the networks do.
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
# One at a time, in Gradio's queue: matplotlib's style is the same for all threads.
SLOW = {"concurrency_id": "slow", "concurrency_limit": 1, "api_visibility": "private"}


def build(networks: Networks) -> gr.Blocks:
    """The page for two networks, to be launched."""
    return _Page(networks).blocks


class _Page:
    def __init__(self, networks: Networks):
        self.networks = networks
        self.choices = [(name, k) for k, name in enumerate(networks.classes)]
        middle = min(2, len(networks.classes) - 1)
        first = Shown(networks.test_image(middle, 0), middle, f"{networks.dataset.name}-{middle}-0")
        # With a warp, for what comes with that is imported at its first use.
        seen = look.look(networks.model, warped(first.image, Warp(1.0)))
        self.iterations, self.dimensions = len(seen.couplings), seen.poses.shape[1]
        with gr.Blocks(
            title="capsviz explore", analytics_enabled=False, delete_cache=(3600, 3600)
        ) as self.blocks:
            gr.HTML("<h2>capsviz explore</h2>Draw a digit, turn it, watch it route.")
            self.shown = gr.State(first)
            self.pose_opened = gr.State(False)
            # No State: its changes are not told to the page by requests that do not queue.
            self.capsule_now = gr.Number(LONGEST, visible="hidden")
            with gr.Row():
                with gr.Column(scale=2, min_width=280):
                    self._sources(middle)
                with gr.Column(scale=3, min_width=280):
                    self.images = _html(elem_id="images")
                    self.scores = _html(elem_id="scores")
            self._warps()
            with gr.Tabs():
                with gr.Tab("Routing"):
                    self._routing()
                with gr.Tab("Pose") as self.pose_tab:
                    self._pose()
            self._quick_events()
            self._slow_events()

    def _sources(self, middle):
        with gr.Tabs():
            with gr.Tab("Draw"):
                self.sheet = gr.HTML(
                    "", html_template=SHEET, elem_id="sheet", apply_default_css=False,
                    js_on_load=(HERE / "canvas.js").read_text(encoding="utf-8"),
                )  # fmt: skip
            with gr.Tab("Upload"):
                self.file = gr.File(label="A picture of one digit", height=140, elem_id="file")
                self.invert = gr.Radio(
                    ["auto", "yes", "no"], value="auto", label="Dark ink on light paper"
                )
            with gr.Tab("Test image"):
                self.digit = gr.Dropdown(self.choices, value=middle, label="Class")
                self.index = gr.Number(
                    0, precision=0, minimum=0, label="Number within the class", elem_id="index"
                )
                self.take = gr.Button("Show", elem_id="take")
                if self.networks.notice:
                    gr.HTML(drawing.note(self.networks.notice))
        self.status = gr.HTML(elem_id="status")

    def _warps(self):
        with gr.Row(elem_classes="cv-sliders"):
            self.warp = [
                gr.Slider(
                    low, high, value, step=step, label=label, info=unit, min_width=200,
                    buttons=["reset"], elem_id=f"warp-{name}",
                )
                for name, low, high, value, step, label, unit in WARPS
            ]  # fmt: skip
        self.straight = gr.Button("Undo the warp", size="sm", elem_id="undo-warp")
        self.save_view, self.view_files = _download("view", "Make a figure of this view")

    def _routing(self):
        types = [(str(t), t) for t in range(look.types_of(self.networks.model))]
        with gr.Row():
            self.routing = gr.Radio(
                list(panels.ROUTINGS), value=panels.ROUTINGS[0], label="Routing", scale=2,
                min_width=280, elem_id="routing-mode",
            )  # fmt: skip
            self.off = gr.Dropdown(
                [("none", panels.NONE), *types], value=panels.NONE, label="Capsule type off",
                elem_id="type-off",
            )  # fmt: skip
            self.mapped = gr.Dropdown(
                [("the longest", LONGEST), *self.choices], value=LONGEST, label="Map of class"
            )
            self.iteration = gr.Slider(
                1, max(self.iterations, 2), self.iterations, step=1, label="Couplings of iteration",
                elem_id="iteration", buttons=[],
            )  # fmt: skip
        self.routed = _html(elem_id="routed")
        self.save_routing, self.routing_files = _download("routing", "Make a figure of the routing")

    def _pose(self):
        with gr.Row():
            self.capsule = gr.Dropdown(
                [("the longest", LONGEST), *self.choices],
                value=LONGEST,
                label="Pose of class",
                elem_id="capsule",
            )
            self.own = gr.Button("Reset to the image's own pose", elem_id="own-pose")
        self.posed = _html(elem_id="posed")
        with gr.Row(elem_classes=["cv-sliders", "cv-dimensions"]):
            self.changes = [
                gr.Slider(
                    -0.5, 0.5, 0, step=0.01, label=f"Dimension {d}", info="change of its value",
                    min_width=140, elem_id=f"pose-{d}", buttons=[],
                )
                for d in range(self.dimensions)
            ]  # fmt: skip
        self.save_pose, self.pose_files = _download("pose", "Make a sheet of this pose")

    def _quick_events(self):
        self.settings = [
            self.shown, *self.warp, self.routing, self.off, self.mapped, self.iteration,
            self.capsule, *self.changes,
        ]  # fmt: skip
        made = [self.images, self.scores, self.routed, self.posed, self.capsule_now]
        latest = {"trigger_mode": "always_last", **QUICK}
        touched = [self.blocks.load, *(one.change for one in self.settings[1:])]
        gr.on(touched, self._show, self.settings, made, **latest)
        for triggers, find, inputs in (
            ([self.sheet.input], self._drawn, [self.sheet]),
            ([self.file.upload, self.invert.input], self._uploaded, [self.file, self.invert]),
            ([self.take.click, self.index.submit, self.digit.input], self._taken,
             [self.digit, self.index]),
        ):  # fmt: skip
            gr.on(
                triggers, self._replacing(find, len(inputs)), [*inputs, *self.settings],
                [self.shown, self.status, *made], **latest,
            )  # fmt: skip
        self.straight.click(lambda: list(Warp()), None, self.warp, **QUICK)
        self.own.click(lambda: [0] * self.dimensions, None, self.changes, **QUICK)

    def _slow_events(self):
        explained = {"show_progress": "hidden", "trigger_mode": "always_last", **SLOW}
        self.pose_tab.select(
            lambda capsule: [True, *self._explain(capsule, True)], [self.capsule_now],
            [self.pose_opened, *self.changes], **explained,
        )  # fmt: skip
        self.capsule_now.change(
            self._explain, [self.capsule_now, self.pose_opened], self.changes, **explained
        )
        for button, save, out in (
            (self.save_view, self._save_view, self.view_files),
            (self.save_routing, self._save_routing, self.routing_files),
            (self.save_pose, self._save_pose, self.pose_files),
        ):
            button.click(save, self.settings, out, **SLOW)

    def _drawn(self, drawn):
        return Shown(from_sheet(drawn, self.networks.frame), None, "drawing")

    def _uploaded(self, path, invert):
        if path is None:
            raise ValueError("Choose a picture first.")
        return Shown(from_file(path, self.networks.frame, invert), None, Path(path).stem)

    def _taken(self, digit, index):
        image = self.networks.test_image(digit, index or 0)
        return Shown(image, int(digit), f"{self.networks.dataset.name}-{digit}-{index or 0}")

    def _replacing(self, find, count):
        """A handler that shows another image, or says what was wrong with it."""

        def handle(*values):
            try:
                shown = find(*values[:count])
            except ValueError as error:
                kept = [gr.skip()] * 5
                return (gr.skip(), drawing.note(str(error), "cv-warn"), *kept)
            return (shown, "", *self._show(shown, *values[count + 1 :]))

        return handle

    def _show(self, shown, *values):
        settings = panels.read(values)
        found = panels.find(self.networks, shown.image, settings)
        return (
            panels.images(found, self.networks, settings),
            panels.scores(found, self.networks, shown.label),
            panels.routed(found, self.networks, settings),
            panels.posed(found, self.networks, settings),
            found.capsule,
        )

    def _explain(self, capsule, opened):
        if not opened or capsule == LONGEST:
            return [gr.skip()] * self.dimensions
        try:
            texts = files.explain(self.networks, int(capsule))
        except ValueError as error:  # no decoder, or too few images of a class
            texts = [str(error)] * self.dimensions
        return [gr.Slider(info=text) for text in texts]

    def _save_view(self, shown, *values):
        settings = panels.read(values)
        capsule = panels.find(self.networks, shown.image, settings).capsule
        warp, how, changes = settings.warp, settings.how, settings.changes
        return _files(files.save_view(self.networks, shown, warp, how, capsule, changes))

    def _save_routing(self, shown, *values):
        settings = panels.read(values)
        return _files(files.save_routing(self.networks, shown, settings.warp, settings.how))

    def _save_pose(self, shown, *values):
        settings = panels.read(values)
        capsule = panels.find(self.networks, shown.image, settings).capsule
        return _files(files.save_pose(self.networks, shown, settings.warp, capsule))


def _html(**about) -> gr.HTML:
    return gr.HTML(apply_default_css=False, js_on_load=None, **about)


def _download(name: str, text: str) -> tuple[gr.Button, gr.File]:
    button = gr.Button(f"{text}, with its numbers", size="sm", elem_id=f"save-{name}")
    made = gr.File(
        label="To download: figure as PDF and PNG, numbers as JSON",
        file_count="multiple", visible=False, interactive=False, elem_id=f"files-{name}",
    )  # fmt: skip
    return button, made


def _files(paths):
    return gr.File([str(path) for path in paths], visible=True)
