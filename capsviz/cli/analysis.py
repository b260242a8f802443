"""What the commands of all analyses do alike: open, compute, name, save, report.

An analysis's command is its options and one line for each kind of result:

    @analysis(__doc__)                        # adds --checkpoint, --dataset, ..., --output, --json
    @click.option("--per-class", default=1)
    def command(run, per_class):
        images, labels = run.images()
        yield "reconstruct", compute(run.model, images, labels, per_class=per_class)
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import click

from capsviz import discovery
from capsviz.cli import options


class Run:
    """What a command was given; the network is opened when it is first asked for."""

    def __init__(
        self, chosen: dict, picture: dict | None = None, *, needs: Sequence[str] = (), what=""
    ):
        self._chosen, self._picture = chosen, picture
        self._needs, self._what = needs, what

    def choose(self, checkpoint: str) -> None:
        """Look at this checkpoint, where no network was named and none is open."""
        self._chosen = {**self._chosen, "checkpoint": checkpoint}

    @cached_property
    def networks(self) -> list:
        """The networks and their data, in the order they were named."""
        from capsviz.tracing import needs

        capsules = bool(self._needs)
        if "first" in self._chosen:
            networks = options.open_networks(self._chosen, capsules=capsules)
        else:
            networks = [options.open_inputs(self._chosen, capsules=capsules)]
        needs.require(networks[0].model, self._needs, self._what)
        return networks

    @property
    def inputs(self):
        """The first network and its data."""
        return self.networks[0]

    @property
    def model(self):
        """The first network."""
        return self.inputs.model

    @property
    def classes(self):
        """Names of the classes."""
        return self.inputs.dataset.classes

    @property
    def dataset(self) -> str:
        """Name of the data set."""
        return self.inputs.dataset.name

    @property
    def digit(self) -> int:
        """The class that the options name."""
        return self._picture["digit"]

    @cached_property
    def picture(self):
        """The one image that the options name."""
        return options.open_picture(self.inputs, self._picture)

    def images(self, n: int | None = None):
        """Images (N, C, H, W) and labels (N,) of a statistic: n, or as many as usual."""
        return self.inputs.images(options.usual(n, self.inputs))

    def progress(self, label: str) -> Callable:
        """Wraps an iterable in a progress bar."""
        return options.progress(label)


def analysis(
    text: str, *, networks: bool = False, picture: bool = False, dataset: str | None = None
) -> Callable:
    """Decorator of a command: a generator of (stem, result), each saved and reported.

    Parameters
    ----------
    text      the analysis's docstring, whose first line is the help.
    networks  several networks that are compared, in place of one.
    picture   one image may be chosen.
    dataset   where neither network nor data set is named; None: as for all commands.

    The function is given a `Run` and its own options, and yields (stem, result), and if need be
    functions that write more beside the figure, given the path of its JSON. The analysis's
    `findings` are printed, or with --json the result.
    """

    def decorate(function: Callable[..., Iterator]) -> click.Command:
        module = sys.modules[function.__module__]
        name = discovery.name_of("capsviz.analyses", module.__name__)
        chosen = "networks" if networks else "inputs"

        def body(as_json, figure, **values):
            named = values.pop(chosen)
            if dataset is not None and named["checkpoint"] is None and named["dataset"] is None:
                named = {**named, "dataset": dataset}
            needs = getattr(module, "NEEDS", ())
            run = Run(
                named,
                values.pop("picture", None),
                needs=needs,
                what=f"capsviz {name.replace('_', '-')}",
            )
            for stem, result, *others in function(run, **values):
                paths = options.save(stem, name, result, run.inputs, figure)
                paths += [write(paths[-1]) for write in others]
                options.report(result, module.findings(result), paths, as_json)

        body.__doc__ = function.__doc__
        body = options.figure(options.as_json(body))  # the last of the help first
        body.__click_params__ += getattr(function, "__click_params__", [])
        body = options.picture(body) if picture else body
        body = options.networks(body) if networks else options.inputs(body)
        return click.command(help=text.partition("\n")[0])(body)

    return decorate
