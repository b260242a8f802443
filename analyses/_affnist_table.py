"""The table of `affnist`, as text."""

from __future__ import annotations

import numpy as np

HEADER = (
    "Network", "Parameters", "Weights", "Seeds", "Held-out %", "Test %",
    "affnist_like %", "Range over seeds", "Gap to CapsNet", "affNIST %",
)  # fmt: skip


def cells(result) -> list[list[str]]:
    """The rows of the table."""
    from analyses.affnist import TITLES

    def percent(value):
        return "–" if np.isnan(value) else f"{100 * value:.2f}"

    rows = []
    for i, network in enumerate(result.networks):
        low, high = result.affine_range[i]
        gap, ends = result.gap[i], result.gap_ci95[i]
        rows.append(
            [
                TITLES.get(network, network),
                f"{result.parameters[i] / 1e6:.2f} M",
                result.states[i],
                str(len(result.seeds[i])),
                percent(result.held_out[i]),
                percent(result.test[i]),
                percent(result.affine[i]),
                f"{percent(low)} to {percent(high)}" if len(result.seeds[i]) > 1 else "–",
                "–"
                if np.isnan(gap)
                else f"{100 * gap:+.2f} [{100 * ends[0]:+.2f}, {100 * ends[1]:+.2f}]",
                percent(result.affnist[i]),
            ]
        )
    return rows
