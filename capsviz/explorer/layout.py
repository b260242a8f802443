"""Where the parts of the page stand: its controls and panels, in Gradio. `page` says what runs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from capsviz.explorer import drawing, settings
from capsviz.explorer.cases import Case
from capsviz.explorer.choice import Choice
from capsviz.explorer.network import About
from capsviz.explorer.source import SHEET_PX

HERE = Path(__file__).parent
QUIET: dict[str, Any] = {"size": "sm", "variant": "secondary", "elem_classes": "cv-quiet"}
MOST_ITERATIONS = 99  # of any network; `page` lets the slider reach those of the chosen one
# Rules that page.css cannot have, for all of its are of what lies inside Gradio's container: that
# hides what overflows, and so holds what should stay in sight; under Pose that is the pose.
OUTSIDE = (
    "<style>.gradio-container { overflow: clip !important; } "
    '.gradio-container:has(#pose-tab-button[aria-selected="true"]) #stage '
    "{ position: static !important; }</style>"
)
SHEET = (
    f'<div class="cv-sheet"><div><canvas width="{SHEET_PX}" height="{SHEET_PX}" role="img" '
    'aria-label="Sheet to draw a digit on"></canvas><span>Draw a digit here</span></div>'
    '<button type="button">Clear</button></div>'
)


def build(choice: Choice, cases: list[Case], about: About, label: int) -> SimpleNamespace:
    """All parts of the page, by name; to be called inside `gr.Blocks`.

    `about` is of the first network, `label` the class of the first image.
    """
    on = SimpleNamespace(dimensions=choice.dimensions)
    gr.HTML(f"{OUTSIDE}<h2>capsviz explore</h2>Draw a digit, turn it, watch it route.")
    _networks(on, choice)
    with gr.Row(elem_id="top"):
        with gr.Column(scale=2, min_width=280):
            _sources(on, choice, cases, label)
        with gr.Column(scale=3, min_width=280, elem_id="stage"):
            on.images = _html(elem_id="images")
            on.scores = _html(elem_id="scores")
    _warps(on)
    with gr.Tabs():
        with gr.Tab("Routing"):
            _routing(on, choice, about, label)
        with gr.Tab("Side by side") as on.sides_tab:
            gr.HTML(drawing.note(
                "First both networks, as each routes the image; then the image's own votes in the "
                "first, weighed by three couplings: what routing found, uniform ones, and those of "
                "another image, chosen under Routing."
            ))  # fmt: skip
            on.sides = _html(elem_id="sides")
        with gr.Tab("Play"):
            _play(on)
        with gr.Tab("Pose", elem_id="pose-tab") as on.pose_tab:
            _pose(on, choice)
    return on


def _networks(on, choice):
    with gr.Row(elem_id="networks"):
        on.first = gr.Dropdown(
            choice.capsule_names, value=choice.first, label="Network", elem_id="first",
            info="looked into: one with capsules",
        )  # fmt: skip
        on.beside = gr.Dropdown(
            choice.names, value=choice.beside, label="Beside it", elem_id="beside",
            info="any network for the same images",
        )  # fmt: skip
        on.copy = gr.Button("Copy the link to this state", elem_id="copy-link", **QUIET)


def _sources(on, choice, cases, label):
    choices = [(name, k) for k, name in enumerate(choice.dataset.classes)]
    with gr.Tabs():
        with gr.Tab("Draw"):
            on.sheet = gr.HTML(
                "", html_template=SHEET, elem_id="sheet", apply_default_css=False,
                js_on_load=(HERE / "canvas.js").read_text(encoding="utf-8"),
            )  # fmt: skip
        with gr.Tab("Cases"):
            on.cases = gr.HTML(
                "", html_template=drawing.gallery(cases), elem_id="cases", apply_default_css=False,
                js_on_load=(HERE / "cases.js").read_text(encoding="utf-8"),
            )  # fmt: skip
        with gr.Tab("Upload"):
            on.file = gr.File(label="A picture of one digit", height=140, elem_id="file")
            on.invert = gr.Radio(
                ["auto", "yes", "no"], value="auto", label="Dark ink on light paper"
            )
        with gr.Tab("Test image"):
            on.digit = gr.Dropdown(choices, value=label, label="Class", elem_id="digit")
            on.index = gr.Number(
                0, precision=0, minimum=0, label="Number within the class", elem_id="index"
            )
            on.take = gr.Button("Show", elem_id="take", **QUIET)
            if choice.notice:
                gr.HTML(drawing.note(choice.notice))
    on.status = gr.HTML(elem_id="status")


def _warps(on):
    with gr.Row(elem_classes="cv-sliders"):
        on.warp = [
            gr.Slider(
                one.low, one.high, one.neutral, step=one.step, label=one.label, info=one.unit,
                min_width=170, buttons=["reset"], elem_id=f"warp-{one.name}",
            )
            for one in settings.WARPS
        ]  # fmt: skip
    with gr.Row(elem_classes="cv-buttons"):
        on.straight = gr.Button("Undo the warp", elem_id="undo-warp", **QUIET)
        on.save_view, on.view_files = _download("view", "Make a figure of this view")


def _routing(on, choice, about, label):
    choices = [(name, k) for k, name in enumerate(choice.dataset.classes)]
    with gr.Row():
        on.routing = gr.Radio(
            list(settings.ROUTINGS), value=settings.ROUTINGS[0], label="Routing", scale=2,
            min_width=280, elem_id="routing-mode",
        )  # fmt: skip
        on.off = gr.Dropdown(
            types(about.types), value=settings.NONE, label="Capsule type off", elem_id="type-off"
        )
        on.mapped = gr.Dropdown(
            [("the longest", settings.LONGEST), *choices], value=settings.LONGEST,
            label="Map of class", elem_id="mapped",
        )  # fmt: skip
        on.iteration = gr.Slider(
            1, MOST_ITERATIONS, about.iterations, step=1, label="Couplings of iteration",
            elem_id="iteration", buttons=[],
        )  # fmt: skip
    with gr.Row():
        on.donor = gr.Dropdown(
            choices, value=(label + 1) % len(choices), label="The other image: class",
            info="whose couplings can be transplanted", elem_id="donor",
        )  # fmt: skip
        on.donor_index = gr.Number(
            0, precision=0, minimum=0, label="Number within the class", elem_id="donor-index",
            info="of the test images",
        )  # fmt: skip
    with gr.Row(elem_classes="cv-buttons"):
        on.step = gr.Button("Play the iterations", elem_id="play-iterations", **QUIET)
    on.clock = gr.Timer(1.0, active=False)
    on.routed = _html(elem_id="routed")
    on.save_routing, on.routing_files = _download("routing", "Make a figure of the routing")


def _play(on):
    with gr.Row(elem_classes="cv-buttons"):
        on.turn = gr.Button("Turn the image", elem_id="turn", **QUIET)
        on.save_turn, on.turn_files = _download("turn", "Make a GIF of it")
    on.turned = gr.HTML(
        "", apply_default_css=False, elem_id="turned",
        js_on_load=(HERE / "player.js").read_text(encoding="utf-8"),
    )  # fmt: skip


def _pose(on, choice):
    choices = [(name, k) for k, name in enumerate(choice.dataset.classes)]
    with gr.Row():
        on.capsule = gr.Dropdown(
            [("the longest", settings.LONGEST), *choices], value=settings.LONGEST,
            label="Pose of class", elem_id="capsule",
        )  # fmt: skip
        on.own = gr.Button("Reset to the image's own pose", elem_id="own-pose", **QUIET)
    on.posed = _html(elem_id="posed")
    with gr.Row(elem_classes=["cv-sliders", "cv-dimensions"]):
        on.changes = [
            gr.Slider(
                -0.5, 0.5, 0, step=0.01, label=f"Dimension {d}", info="change of its value",
                min_width=140, elem_id=f"pose-{d}", buttons=[],
            )
            for d in range(on.dimensions)
        ]  # fmt: skip
    on.save_pose, on.pose_files = _download("pose", "Make a sheet of this pose")


def types(count: int) -> list[tuple[str, int]]:
    """Choices of a capsule type that is switched off."""
    return [("none", settings.NONE), *((str(t), t) for t in range(count))]


def _html(**about) -> gr.HTML:
    return gr.HTML(apply_default_css=False, js_on_load=None, **about)


def _download(name: str, text: str) -> tuple[gr.Button, gr.File]:
    button = gr.Button(f"{text}, with its numbers", elem_id=f"save-{name}", **QUIET)
    files = gr.File(
        label="To download: figure as PDF and PNG, numbers as JSON",
        file_count="multiple", visible=False, interactive=False, elem_id=f"files-{name}",
    )  # fmt: skip
    return button, files
