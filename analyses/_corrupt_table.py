"""The table of `corrupt`: a row for each corruption, a column for each network."""

from __future__ import annotations

import numpy as np

from analyses._words import with_interval


def table(result) -> tuple[list[str], list[list[str]], str]:
    """Header, rows and caption; errors and ratios in percent, with their intervals."""

    def row(name, values, intervals):
        cells = [
            "–"
            if np.isnan(value)
            else f"{100 * value:.1f}"
            if np.isnan(interval).any()
            else with_interval(100 * value, 100 * interval, ".1f")
            for value, interval in zip(values, intervals, strict=True)
        ]
        return [name, *cells]

    rows = [row("clean", result.clean, result.clean_ci95)]
    for c, name in enumerate(result.corruptions):
        rows.append(row(name.replace("_", " "), result.error[:, c], result.error_ci95[:, c]))
    rows.append(row("mean of the corruptions", result.mean, result.mean_ci95))
    rows.append(row("mCE", result.mce, result.mce_ci95))
    rows.append(row("relative mCE", result.relative_mce, result.relative_mce_ci95))
    text = (
        f"Error in percent on {result.n} {result.dataset} images under {result.source}, with 95 % "
        "intervals: Wilson's for one corruption, of resampled images for means and ratios. mCE: "
        f"sum of the errors over that of {result.baseline}, in percent; relative mCE: the same of "
        "what they exceed the clean error by."
    )
    return ["corruption", *result.networks], rows, text
