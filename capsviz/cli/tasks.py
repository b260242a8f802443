"""`--task I/N`: a series of training runs split among processes that share one folder."""

from __future__ import annotations

from collections.abc import Callable

import click


def option(what: str) -> Callable:
    """`--task I/N`: a share of a series, (i, n) counted from 1."""
    return click.option(
        "--task",
        metavar="I/N",
        default="1/1",
        callback=lambda context, option, value: _task(value),
        help=f"Do part I of N of {what}; N commands, on any machines, fill one folder.",
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
