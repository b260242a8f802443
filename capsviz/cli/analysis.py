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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import click

from capsviz import discovery
from capsviz.cli import options, tasks, writing


class Run:
    """What a command was given; the network is opened when it is first asked for.

    `seeds` are training runs of one recipe in place of the first network, for `each`.
    """

    def __init__(
        self,
        chosen: dict,
        picture: dict | None = None,
        *,
        needs: Sequence[str] = (),
        what="",
        seeds: Sequence[str] = (),
    ):
        self._chosen, self._picture = chosen, picture
        self._needs, self._what, self._seeds = needs, what, seeds

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

    def each(self) -> list[Run]:
        """Itself, or one for each of several training runs: another first network, else the same.

        The images of all are the same.
        """
        if len(self._seeds) < 2:
            return [self]
        from capsviz.inputs.runs import open_runs

        others, replicates = self.networks[1:], []
        for one in open_runs(self.inputs, self._seeds):
            replicates.append(Run(self._chosen, self._picture))
            replicates[-1].networks = [one, *others]
        return replicates

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
        assert self._picture is not None  # asked by commands with the options of a picture
        return options.chosen_class(self.inputs.dataset, self._picture["digit"])

    @cached_property
    def picture(self):
        """The one image that the options name."""
        return options.open_picture(self.inputs, self._picture)

    def images(self, n: int | None = None):
        """Images (N, C, H, W) and labels (N,) of a statistic: n, or as many as usual."""
        return self.inputs.images(options.usual(n, self.inputs))

    def progress(self, label: str) -> Callable:
        """Wraps an iterable in a progress bar."""
        return writing.progress(label)


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
    `findings` are printed, or with --json the result. Of several training runs of a recipe it is
    called once for each, and their results are made one by `statistics.replicates.over_runs`, with
    the analysis's `OVER_RUNS` as its rules; None there refuses.
    """

    def decorate(function: Callable[..., Iterator]) -> click.Command:
        module = sys.modules[function.__module__]
        name = discovery.name_of("capsviz.analyses", module.__name__) or module.__name__
        chosen = "networks" if networks else "inputs"

        def body(as_json, figure, **values) -> None:
            from capsviz.inputs.runs import first_of

            named, seeds = first_of(values.pop(chosen))
            task = values.pop("task")
            if task is not None and len(seeds) < 2:
                raise ValueError("--task shares out several training runs: add --seeds-of 'GLOB'")
            if len(seeds) > 1:
                _require_statistic(module, name, one=picture and values.get("n") is None)
            if dataset is not None and not named.get("checkpoint") and named["dataset"] is None:
                named = {**named, "dataset": dataset}
            empty = task is not None and tasks.is_empty(task, len(seeds))
            if empty or (task is not None and writing.exists(name, figure)):
                return
            writing.prepare(name, figure)
            run = Run(
                named,
                values.pop("picture", None),
                needs=getattr(module, "NEEDS", ()),
                what=f"capsviz {name.replace('_', '-')}",
                seeds=seeds,
            )
            runs = run.each()
            if task is not None:
                rows = _shared(name, function, runs, values, figure, task)
            else:
                rows = [function(one, **values) for one in runs]
            for stem, result, others, about in _joined(module, runs, rows):
                paths = writing.save(stem, name, result, run.networks, figure, about)
                with writing.looking(figure):
                    paths += [write(paths[-1]) for write in others]
                findings = [module.findings(result), *_of_runs(result, run.networks, about)]
                writing.report(result, "\n".join(findings), paths, as_json)

        body.__doc__ = function.__doc__
        inner: Any = writing.figure(writing.as_json(body))  # the last of the help first
        inner.__click_params__ += getattr(function, "__click_params__", [])
        inner = tasks.option("several training runs", default=None)(inner)
        inner = options.picture(inner) if picture else inner
        inner = options.networks(inner) if networks else options.replicates(inner)
        return click.command(help=text.partition("\n")[0])(inner)

    return decorate


def _require_statistic(module, name: str, *, one: bool) -> None:
    """ValueError for several training runs where one image, or no number, is shown."""
    kinds = [kind for kind in vars(module).values() if hasattr(kind, "_fields")]
    hints = [str(hint) for kind in kinds for hint in kind.__annotations__.values()]
    if not any("Estimate" in hint for hint in hints):
        raise ValueError(
            f"capsviz {name} shows images and no statistic with an interval: expected one "
            "training run"
        )
    if getattr(module, "OVER_RUNS", {}) is None:
        raise ValueError(
            f"the numbers of capsviz {name} are of single capsules or dimensions, which are in "
            "another order in each training run: expected one"
        )
    if one:
        raise ValueError(
            "several training runs are for statistics, and one image is shown: add --n N"
        )


def _joined(module, runs: Sequence[Run], rows: Sequence[Iterable]) -> Iterator[tuple]:
    """(stem, result, functions that write more, what runs it is of), of one run or of several.

    Rows are what the analysis's command gave of each run.
    """
    if any(row is None for row in rows):
        raise ValueError(f"`command` of {module.__file__} gives nothing: let it yield name, result")
    if len(runs) == 1:
        for stem, result, *others in rows[0]:
            yield stem, result, others, None
        return
    from capsviz.inputs.runs import about
    from capsviz.statistics.replicates import over_runs

    rules = getattr(module, "OVER_RUNS", {})
    for row in zip(*rows, strict=True):
        (stem, _, *others), results = row[0], [one[1] for one in row]
        result, of_first = over_runs(results, rules)
        of = about([one.inputs for one in runs], of_first)
        yield f"{stem}-{len(runs)}-runs", result, others, of


def _shared(name: str, function, runs: Sequence[Run], values: dict, figure: dict, task) -> list:
    """Rows for `_joined`, once the tasks have measured all runs; until then none of any run."""
    from capsviz.cli import naming, tasks

    of = naming.identity(click.get_current_context()), runs[0].inputs.dataset.digest
    places = [tasks.place_of(figure["output"], name, of, one.model.card) for one in runs]

    def results(number):
        return (tasks.Measured(*row[:2]) for row in function(runs[number], **values))

    measured = tasks.measure(places, task, results, name)
    if measured < len(runs):
        text = f"{measured} of {len(runs)} training runs are measured; the last task draws them all"
        click.echo(text, err=True)
        return [[] for _ in runs]
    return [tasks.read(place) for place in places]


def _of_runs(result, networks, about: dict | None) -> list[str]:
    """The line that says how many training runs a result with intervals is of."""
    from capsviz import checkpoint
    from capsviz.statistics.replicates import words

    trained = all(checkpoint.is_trained(one.model) for one in networks)
    return words(result, networks=len(networks), trained=trained, about=about)
