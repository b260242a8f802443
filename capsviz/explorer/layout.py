"""Lay out the controls and panels of the page, in Gradio. `page` connects them to functions."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gradio as gr

from capsviz.explorer import drawing, settings
from capsviz.explorer.files import FIGURES
from capsviz.explorer.images import SHEET_PX
from capsviz.explorer.networks import About, Choice

HERE = Path(__file__).parent
QUIET: dict[str, Any] = {"size": "sm", "variant": "secondary", "elem_classes": "cv-quiet"}
MOST_ITERATIONS = 99  # of any network; `page` limits the slider to those of the chosen one
# Rules for Gradio's container itself, which page.css cannot reach: the container hides overflow,
# which would disable sticky panels. Under the tab "Pose" the pose is sticky, not the stage.
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


def build(choice: Choice, about: About, label: int) -> SimpleNamespace:
    """Make all parts of the page inside `gr.Blocks`, and return them by name.

    `controls` holds the parts whose values are in a link, by their names there. `about` describes
    the first network; `label` is the class of the first image.
    """
    on = SimpleNamespace(controls={})
    classes = [(name, k) for k, name in enumerate(choice.dataset.classes)]
    with gr.Row(elem_id="head"):
        gr.HTML(f"{OUTSIDE}<h2>capsviz explore</h2>Draw a digit, rotate it, watch its routing.")
        on.first = gr.Dropdown(
            choice.capsule_names, value=choice.first, label="Capsule network", elem_id="first"
        )
        on.beside = gr.Dropdown(
            choice.names, value=choice.beside, label="Compare with", elem_id="beside"
        )
    with gr.Row(elem_id="top"):
        with gr.Column(scale=5, min_width=280):
            _sources(on, choice, classes, label)
        with gr.Column(scale=8, min_width=280, elem_id="stage"):
            on.images = _html("images")
            on.scores = _html("scores")
        with gr.Column(scale=8, min_width=280):
            on.routed = _html("routed")
            on.controls["iteration"] = gr.Slider(
                1, MOST_ITERATIONS, about.iterations, step=1, label="Iteration",
                elem_id="iteration", buttons=[],
            )  # fmt: skip
            on.controls["routing"] = gr.Radio(
                list(settings.ROUTINGS), value=settings.ROUTINGS[0], label="Routing",
                elem_id="routing-mode",
            )  # fmt: skip
    _warps(on)
    with gr.Tabs():
        with gr.Tab("Routing"):
            _routing(on, about, classes, label)
        with gr.Tab("Pose", elem_id="pose-tab"):
            _pose(on, choice.dimensions, classes)
        with gr.Tab("Figure"):
            _figure(on)
    return on


def types(count: int) -> list[tuple[str, int]]:
    """Return the choices of the capsule type to switch off."""
    return [("none", settings.NONE), *((str(t), t) for t in range(count))]


def _sources(on, choice, classes, label):
    with gr.Tabs():
        with gr.Tab("Draw"):
            on.sheet = _html("sheet", SHEET, "pen.js", "canvas.js")
        with gr.Tab("Upload"):
            on.file = gr.File(label="A picture of one digit", height=140, elem_id="file")
            on.invert = gr.Radio(
                ["auto", "yes", "no"], value="auto", label="Dark strokes on light paper"
            )
        with gr.Tab("Test image"):
            on.digit = gr.Dropdown(classes, value=label, label="Class", elem_id="digit")
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
    on.controls |= {one.name: part for one, part in zip(settings.WARPS, on.warp, strict=True)}
    on.straight = gr.Button("Undo the warp", elem_id="undo-warp", **QUIET)


def _routing(on, about, classes, label):
    with gr.Row():
        on.controls["off"] = gr.Dropdown(
            types(about.types), value=settings.NONE, label="Switch off capsule type",
            elem_id="type-off",
        )  # fmt: skip
        on.controls["map"] = _class("Evidence for class", classes, "mapped")
        on.controls["donor"] = gr.Dropdown(
            classes, value=(label + 1) % len(classes), label="The other image: class",
            info="whose couplings can be transplanted", elem_id="donor",
        )  # fmt: skip
        on.controls["donor-index"] = gr.Number(
            0, precision=0, minimum=0, label="Number within the class", elem_id="donor-index",
            info="of the test images",
        )  # fmt: skip
    on.iterations = _html("iterations")


def _pose(on, dimensions, classes):
    with gr.Row():
        on.controls["pose"] = _class("Pose of class", classes, "capsule")
        on.own = gr.Button("Reset to the image's own pose", elem_id="own-pose", **QUIET)
    on.posed = _html("posed")
    with gr.Row(elem_classes=["cv-sliders", "cv-dimensions"]):
        on.changes = [
            gr.Slider(
                -settings.STEP, settings.STEP, 0, step=0.01, label=f"Dimension {d}",
                info="change of its value", min_width=140, elem_id=f"pose-{d}", buttons=[],
            )
            for d in range(dimensions)
        ]  # fmt: skip
    on.controls |= {f"d{d}": part for d, part in enumerate(on.changes)}


def _figure(on):
    on.kind = gr.Radio(
        list(FIGURES), value="view", elem_id="figure-kind",
        label="Figure of what is shown, as the command of this name draws it",
    )  # fmt: skip
    on.make = gr.Button("Make the figure", elem_id="make", **QUIET)
    on.files = gr.File(
        label="To download: figure as PDF and PNG, numbers as JSON, and the image",
        file_count="multiple", visible=False, interactive=False, elem_id="files",
    )  # fmt: skip
    on.figure = _html("figure")


def _class(label: str, classes, elem_id: str) -> gr.Dropdown:
    """Make a dropdown of classes; its default is the class of the longest capsule."""
    choices = [("the longest capsule", settings.LONGEST), *classes]
    return gr.Dropdown(choices, value=settings.LONGEST, label=label, elem_id=elem_id)


def _html(elem_id: str, template: str = "${value}", *scripts: str) -> gr.HTML:
    """Make an HTML panel, with scripts if there are any."""
    code = "".join((HERE / name).read_text(encoding="utf-8") for name in scripts) or None
    return gr.HTML(
        "", html_template=template, js_on_load=code, elem_id=elem_id, apply_default_css=False
    )  # fmt: skip
