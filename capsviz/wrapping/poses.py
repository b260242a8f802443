"""Which tensors are the poses of each pass of a layer: those whose norms are the scores."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from capsviz.tracing.verification import allowed
from capsviz.wrapping.flow import Flow
from capsviz.wrapping.following import Followed, Masked, followed, parallel, rows
from capsviz.wrapping.masks import by_value
from capsviz.wrapping.rounds import Round
from capsviz.wrapping.vectors import Place


class Poses(NamedTuple):
    """The poses of all passes of a layer."""

    places: list[Place]
    masked: list[Masked]
    doubt: str | None  # why these may be no poses, but what they are made of


def of_layer(flow: Flow, rounds: list[Round], scores: list[Tensor], output: list[Tensor]) -> Poses:
    """The poses of each pass.

    Where several tensors point one way, those are the poses whose norms are the scores; or else
    those that the network returns, if it says no scores.

    Parameters
    ----------
    scores  (B, J), what may be the scores of the recorded pass.
    output  all tensors that the network returned.
    """
    ends = [later.total.index for later in rounds[1:]] + [len(flow.events)]
    passes = [followed(flow, turn, end) for turn, end in zip(rounds, ends, strict=True)]
    masked = [mask for one in passes for mask in one.masked]
    places, last, doubt = [one.last for one in passes], passes[-1], None
    for chosen in reversed(_fitting(last, scores, output)):
        others = [_as(chosen, rounds[-1], *pair) for pair in zip(passes, rounds, strict=True)][:-1]
        sites = {(place.event.site, place.event.name) for place in (*others, chosen)}
        if sum((event.site, event.name) in sites for event in flow.events) == len(rounds):
            return Poses([*others, chosen], [*by_value(flow, chosen), *masked], None)
    sure = _are_lengths(last.last, scores) or any(_shows(last.last, one) for one in output)
    if last.alike and not sure:
        where = ", ".join(dict.fromkeys(place.event.where for place in last.alike))
        doubt = f"what points the same way in {where} may be the poses: name them by poses="
    return Poses(places, [*by_value(flow, last.last), *masked], doubt)


def _fitting(last: Followed, scores: list[Tensor], output: list[Tensor]) -> list[Place]:
    """What else than the last known place may be the poses of the last pass."""
    if _are_lengths(last.last, scores):
        return []
    if scores:
        return [place for place in last.alike if _are_lengths(place, scores)]
    return [place for place in last.alike if any(_shows(place, one) for one in output)]


def _are_lengths(place: Place, scores: list[Tensor]) -> bool:
    norms = rows(place.tensor, place.roles).norm(dim=2)
    same = allowed([norms, *scores])
    return any(
        norms.shape == one.shape and float((norms - one).abs().max()) < same for one in scores
    )


def _shows(place: Place, output: Tensor) -> bool:
    """Whether what a network returns are these poses."""
    if output is place.tensor:
        return True
    roles = parallel(place, output)
    return roles is not None and torch.allclose(
        rows(output, roles), rows(place.tensor, place.roles).to(output)
    )


def _as(chosen: Place, turn: Round, one: Followed, other: Round) -> Place:
    """What is in another pass what `chosen` is in the last: by its site, or by how long it is."""
    known = [one.last, *one.alike]
    same = (chosen.event.site, chosen.event.name)
    for place in known:
        if (place.event.site, place.event.name) == same and place.position == chosen.position:
            return place
    before, after = _norms(Place(turn.total, -1, turn.total_roles)), _norms(chosen)
    order = before.argsort()
    expected = np.interp(
        _norms(Place(other.total, -1, other.total_roles)), before[order], after[order]
    )
    return min(known, key=lambda place: float(np.median(np.abs(_norms(place) - expected))))


def _norms(place: Place) -> np.ndarray:
    return rows(place.tensor, place.roles).double().norm(dim=2).flatten().cpu().numpy()
