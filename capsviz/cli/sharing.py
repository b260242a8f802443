"""`--task I/N`: a series of runs shared out among processes, on any machines."""

from __future__ import annotations

from collections.abc import Callable

import click


def task(what: str, default: str | None = "1/1") -> Callable:
    """`--task I/N`: a share of a series, (i, n) counted from 1; None where there is none."""
    return click.option(
        "--task",
        metavar="I/N",
        default=default,
        callback=lambda context, option, value: None if value is None else _task(value),
        help=f"Run share I of N of {what}: N commands, on any machines, fill one folder.",
    )


def is_empty(task: tuple[int, int], runs: int) -> bool:
    """Whether a task has no run, which is said: an array of tasks may be larger than its series."""
    i, n = task
    if i > runs:
        count = "is 1 run" if runs == 1 else f"are {runs} runs"
        click.echo(f"nothing for task {i}/{n}: there {count}", err=True)
    return i > runs


def _task(text: str) -> tuple[int, int]:
    i, _, n = text.partition("/")
    if not (i.isdecimal() and n.isdecimal()) or not 1 <= int(i) <= int(n):
        raise ValueError(f"expected --task I/N with I from 1 to N, got '{text}'")
    return int(i), int(n)
