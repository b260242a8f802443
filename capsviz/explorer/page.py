"""The page: which handler runs when a part of it is touched.

Gradio is known here, in `layout`, `handlers` and `serve` only. What takes longer than a moment is
on buttons, in a queue of its own.
"""

from __future__ import annotations

import gradio as gr

from capsviz.analyses.view.measure import Warp, warped
from capsviz.explorer import files, layout, panels
from capsviz.explorer.cases import prepared
from capsviz.explorer.choice import Choice
from capsviz.explorer.handlers import Handlers
from capsviz.explorer.settings import LONGEST

# At once, by as many threads as `serve` allows: the queue would take longer than the networks do.
QUICK = {"queue": False, "show_progress": "hidden", "api_visibility": "private"}
# One at a time, in Gradio's queue: matplotlib's style is the same for all threads.
SLOW = {"concurrency_id": "slow", "concurrency_limit": 1, "api_visibility": "private"}
ADDRESS = """(query) => {
  const theme = new URLSearchParams(location.search).get("__theme");
  const mode = theme ? `&__theme=${theme}` : "";
  history.replaceState(null, "", `${location.pathname}?${query}${mode}`);
}"""
# Here, not in an answer: Gradio would refuse what was asked before of a network with more of them.
REACH = '(last) => ({ maximum: Math.max(last, 2), __type__: "update" })'
COPY = "() => { navigator.clipboard?.writeText(location.href).catch(() => {}); }"


def build(choice: Choice) -> gr.Blocks:
    """The page for networks to choose from, to be launched."""
    return _Page(choice).blocks


class _Page:
    def __init__(self, choice: Choice):
        networks = choice.pair(choice.first, choice.beside)
        cases = {case.key: case for case in prepared(networks)}
        self.handlers = Handlers(choice, cases)
        middle = min(2, len(choice.dataset.classes) - 1)
        warped(networks.test_image(middle, 0), Warp(1.0))  # imports what comes with a first warp
        with gr.Blocks(
            title="capsviz explore", analytics_enabled=False, delete_cache=(3600, 3600)
        ) as self.blocks:
            self.sample = gr.State(self.handlers.test_image(networks, middle, 0))
            self.pose_opened, self.sides_opened = gr.State(False), gr.State(False)
            # No State: its changes are not told to the page by requests that do not queue.
            self.capsule_now = gr.Number(LONGEST, visible="hidden")
            self.iterations = gr.Number(0, visible="hidden")
            self.query = gr.Textbox("", visible="hidden", elem_id="query")
            self.address = gr.Textbox("", visible="hidden")
            self.on = on = layout.build(choice, list(cases.values()), networks.about, middle)
            self.controls = [
                *on.warp, on.routing, on.off, on.mapped, on.iteration, on.capsule, on.donor,
                on.donor_index, *on.changes,
            ]  # fmt: skip
            self.handlers.neutral = [one.value for one in self.controls]
            self.pair = [on.first, on.beside]
            self.settings = [self.sample, *self.pair, self.sides_opened, *self.controls]
            self.outputs = [
                on.images, on.scores, on.routed, on.sides, on.posed, self.capsule_now,
                self.iterations, self.query,
            ]  # fmt: skip
            self._quick_events()
            self._slow_events()

    def _quick_events(self):
        on, do, latest = self.on, self.handlers, {"trigger_mode": "always_last", **QUICK}
        self.blocks.load(
            do.arrive, [self.address, *self.settings],
            [self.sample, on.status, *self.pair, *self.controls, *self.outputs],
            js="(first, ...others) => [location.search, ...others]", **QUICK,
        )  # fmt: skip
        gr.on([one.change for one in self.controls], do.show, self.settings, self.outputs, **latest)
        gr.on(
            [one.input for one in self.pair], do.choose, self.settings,
            [on.status, on.off, on.iteration, *on.changes, on.turned, *self.outputs], **latest,
        )  # fmt: skip
        for triggers, find, inputs in (
            ([on.sheet.input], do.sketch, [on.sheet]),
            ([on.file.upload, on.invert.input], do.upload, [on.file, on.invert]),
            ([on.file.clear], lambda networks: None, []),
            ([on.take.click, on.index.submit, on.digit.input], do.test_image, [on.digit, on.index]),
        ):  # fmt: skip
            gr.on(
                triggers, do.replacing(find, len(inputs)), [*inputs, *self.settings],
                [self.sample, on.status, on.turned, *self.outputs], **latest,
            )  # fmt: skip
        on.cases.input(
            do.case, [on.cases, *self.settings],
            [self.sample, on.status, on.turned, *on.warp, *self.outputs], **latest,
        )  # fmt: skip
        on.straight.click(lambda: list(Warp()), None, on.warp, **QUICK)
        on.own.click(lambda: [0] * on.dimensions, None, on.changes, **QUICK)
        on.step.click(lambda: (1, gr.Timer(active=True)), None, [on.iteration, on.clock], **QUICK)
        on.clock.tick(do.tick, [*self.pair, on.iteration], [on.iteration, on.clock], **QUICK)
        on.sides_tab.select(
            do.open_sides, self.settings, [self.sides_opened, *self.outputs], **QUICK
        )  # fmt: skip
        self.iterations.change(None, [self.iterations], [on.iteration], js=REACH, **QUICK)
        self.query.change(None, [self.query], None, js=ADDRESS, **QUICK)
        on.copy.click(None, None, None, js=COPY, **QUICK)

    def _slow_events(self):
        on, do = self.on, self.handlers
        explained = {"show_progress": "hidden", "trigger_mode": "always_last", **SLOW}
        on.pose_tab.select(
            lambda capsule, *pair: [True, *do.explain(capsule, True, *pair)],
            [self.capsule_now, *self.pair], [self.pose_opened, *on.changes], **explained,
        )  # fmt: skip
        self.capsule_now.change(
            do.explain, [self.capsule_now, self.pose_opened, *self.pair], on.changes,
            **explained,
        )  # fmt: skip
        on.turn.click(do.turn, [self.sample, *self.pair], on.turned, **SLOW)
        for button, save, out in (
            (on.save_view, _view, on.view_files),
            (on.save_routing, _routing, on.routing_files),
            (on.save_pose, _pose, on.pose_files),
            (on.save_turn, lambda networks, sample, _: files.save_turn(networks, sample),
             on.turn_files),
        ):  # fmt: skip
            button.click(do.saving(save), self.settings, out, **SLOW)


def _view(networks, sample, chosen):
    capsule = panels.find(networks, sample.image, chosen).capsule
    return files.save_view(networks, sample, chosen.warp, chosen.how, capsule, chosen.changes)


def _routing(networks, sample, chosen):
    return files.save_routing(networks, sample, chosen.warp, chosen.how)


def _pose(networks, sample, chosen):
    capsule = panels.find(networks, sample.image, chosen).capsule
    return files.save_pose(networks, sample, chosen.warp, capsule)
