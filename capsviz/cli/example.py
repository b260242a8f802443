"""The test image that is shown: `--digit`, its class, and `--index`, its number there."""

from __future__ import annotations

import click

from capsviz.cli.option import stack

USUAL = 2  # or the last class, of fewer

options = stack(
    click.option(
        "--digit", default=USUAL, help="Class of the test image. [default: 2, or the last of fewer]"
    ),
    click.option("--index", default=0, show_default=True, help="Which image of that class."),
)


def usual(dataset) -> int:
    """The class that is shown where none is named."""
    return min(USUAL, len(dataset.classes) - 1)


def chosen(dataset, digit: int) -> int:
    """The class that the running command's `--digit` names; ValueError if there is none such."""
    source = click.get_current_context().get_parameter_source("digit")
    if source is click.core.ParameterSource.DEFAULT:
        return usual(dataset)
    return known(dataset, digit, "--digit")


def known(dataset, number: int, option: str) -> int:
    """The number of a class that an option names; ValueError if there is none such."""
    if not 0 <= number < len(dataset.classes):
        last = len(dataset.classes) - 1
        raise ValueError(f"{option}: {dataset.name} has no class {number}, expected 0 to {last}")
    return number
