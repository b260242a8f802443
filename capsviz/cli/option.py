"""One option of a command, and several as one decorator."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import click


class Option(click.Option):
    """An option with names of before, which are still taken and nowhere shown.

    Parameters
    ----------
    aliases  the old names, with their dashes.
    """

    def __init__(self, *args, aliases: Sequence[str] = (), **more):
        super().__init__(*args, **more)
        self.aliases = list(aliases)

    def add_to_parser(self, parser, ctx):
        """As click does, under every name."""
        primary = self.opts
        self.opts = [*primary, *self.aliases]
        try:
            super().add_to_parser(parser, ctx)
        finally:
            self.opts = primary


def stack(*decorators: Callable, into: str | None = None) -> Callable:
    """One decorator from several options; `into` hands their values over as one dict."""

    def decorate(function):
        inner = function
        if into is not None:
            names = [name for d in decorators for name in _names(d)]

            @functools.wraps(function)
            def inner(**values):
                group = {name: values.pop(name) for name in names}
                return function(**values, **{into: group})

        for decorator in reversed(decorators):
            inner = decorator(inner)
        return inner

    decorate.names = [name for d in decorators for name in _names(d)]
    return decorate


def _names(decorator: Callable) -> list[str]:
    """Parameter names that an option decorator, or a stack of them, adds."""
    if hasattr(decorator, "names"):
        return decorator.names

    def probe():
        pass

    decorator(probe)
    return [option.name for option in probe.__click_params__]
