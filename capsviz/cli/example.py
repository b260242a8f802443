"""The test image that is shown: `--digit`, its class, and `--index`, its number there."""

from __future__ import annotations

import click

from capsviz.cli.option import stack
from capsviz.inputs.samples import USUAL_CLASS, usual_class

options = stack(
    click.option(
        "--digit",
        default=USUAL_CLASS,
        help="Class of the test image. [default: 2, or the last class if there are fewer]",
    ),
    click.option(
        "--index",
        default=0,
        show_default=True,
        help="Number of the image within that class, from 0.",
    ),
)


def chosen(dataset, digit: int) -> int:
    """The class that the running command's `--digit` names; ValueError if there is none such."""
    source = click.get_current_context().get_parameter_source("digit")
    if source is click.core.ParameterSource.DEFAULT:
        return usual_class(dataset)
    return known(dataset, digit, "--digit")


def known(dataset, number: int, option: str) -> int:
    """The number of a class that an option names; ValueError if there is none such."""
    if not 0 <= number < len(dataset.classes):
        last = len(dataset.classes) - 1
        raise ValueError(f"{option}: {dataset.name} has no class {number}, expected 0 to {last}")
    return number
