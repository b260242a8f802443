"""The gradients of a training step: a batch in pieces, or on a GPU whole and as one graph."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from capsviz.nn import models
from capsviz.training.distributed import Team
from capsviz.training.evaluate import all_right
from capsviz.training.graph import Graph


class Gradients:
    """Adds up the gradients of a process's part of a step, a piece of its images at a time.

    Parameters
    ----------
    model   the network, whose objective is minimised.
    shared  what stands in its place among the processes of `team`.
    part    images at a time.
    batch   images of a whole batch: on one GPU, and in one piece, those steps are one graph; None:
            no step is. Parts of one's own may do something else in each step: there is none then.
    bf16    autocast to it.
    report  is given a line if there can be no graph.
    """

    def __init__(
        self, model: nn.Module, shared: nn.Module, team: Team, *, part: int, batch: int | None,
        bf16: bool, report: Callable[[str], None] = lambda line: None,
    ):  # fmt: skip
        self.model, self.shared, self.team = model, shared, team
        self.part, self.bf16, self.report = part, bf16, report
        whole = batch is not None and team.size == 1 and part >= batch
        alike = whole and next(model.parameters()).is_cuda and models.of_capsviz(model)
        self.recorded = batch if alike else None
        self.graph: Graph | None = None

    def __call__(
        self, images: Tensor, targets: Tensor, labels: Tensor, weight: float, terms: dict
    ) -> tuple[Tensor, Tensor]:
        """Of images (B, C, H, W), to be reconstructed as `targets`, with their labels.

        Parameters
        ----------
        weight  of this process's mean loss in the sum of all.
        terms   of `objective`: the reconstruction's factor, the share of training that is done.

        Returns
        -------
        Loss, margin loss and reconstruction loss (3,), means times the weight, NaN where there is
        none; how many images are read right.
        """
        if len(images) == self.recorded:
            values = [images.new_full((), value) for value in terms.values()]
            inputs = [images, targets, labels, *values]
            if self.graph is None:
                self._record(inputs, weight, list(terms))
            if self.graph is not None:
                return self.graph(*inputs)
        pieces = zip(*(x.split(self.part) for x in (images, targets, labels)), strict=True)
        return self._of(list(pieces), weight, terms)

    def _record(self, inputs: list[Tensor], weight: float, names: list[str]) -> None:
        def whole(images, targets, labels, *values):
            terms = dict(zip(names, values, strict=True))
            return self._of([(images, targets, labels)], weight, terms)

        try:
            self.graph = Graph(whole, self.model, inputs)
        except RuntimeError as error:  # whatever the driver says of an operation that waits
            self.recorded = None
            why = str(error).partition("\n")[0]
            self.report(f"training steps cannot be one CUDA graph, so they are slower: {why}")

    def _of(self, pieces: list, weight: float, terms: dict) -> tuple[Tensor, Tensor]:
        images = sum(len(some) for some, _, _ in pieces)
        means: Any = 0
        right: Any = 0
        for number, (some, target, truth) in enumerate(pieces, 1):
            of_step = weight * len(some) / images
            last = number == len(pieces)
            with contextlib.nullcontext() if last else self.team.alone(self.shared):
                with torch.autocast(some.device.type, torch.bfloat16, enabled=self.bf16):
                    output = self.shared(some)
                    objective = _objective(self.model, output, target, truth, terms)
                (objective.loss * of_step).backward()
            means = means + _means(objective) * of_step
            right = right + all_right(output.lengths, truth).sum()
        return means, right


def _means(objective: models.Objective) -> Tensor:
    parts = objective.loss, objective.margin, objective.reconstruction
    return torch.stack(
        [objective.loss.new_full((), math.nan) if p is None else p.detach().mean() for p in parts]
    )


def _objective(model, output, images: Tensor, labels: Tensor, terms: dict) -> models.Objective:
    """A network's objective; `terms` that its signature does not name it need not know of."""
    known = signature(model.objective).parameters
    return model.objective(output, images, labels, **{k: v for k, v in terms.items() if k in known})
