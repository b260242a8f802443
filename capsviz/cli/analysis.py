"""The command of an analysis: made from what its `measure` takes, and what all commands share.

Options come from the annotations of `measure` (`capsviz.analysis`). Where a command has several
analyses, the options that are typed choose one: `--n N` asks for many images in place of one.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

from capsviz import analysis as contract
from capsviz import discovery
from capsviz.analysis import Analysis, Option
from capsviz.cli import options, tasks, writing

ONE = ("digit", "index", "image")  # options of one image


def command_of(name: str) -> click.Command:
    """The command of the analyses that a module of `analyses/` holds."""
    analyses = contract.of(name)
    takes = {given for one in analyses for given in one.given}
    explain = click.option(
        "--explain", is_flag=True, is_eager=True, expose_value=False,
        callback=lambda context, option, value: _explain(context, name) if value else None,
        help="Print what is measured, how, and what not to conclude from it.",
    )  # fmt: skip
    inner: Any = explain(writing.figure(writing.as_json(_body(name, analyses))))
    inner = tasks.option("several training runs", default=None)(inner)
    compares = any(one.compares for one in analyses)
    inner = (options.networks if compares else options.replicates)(inner)
    inner = options.picture(inner) if takes & {"image", "picture"} else inner
    if takes & {"images", "n"}:
        inner = options.number(_help_of_n(analyses))(inner)
    inner.__click_params__ += [_click_option(one) for one in reversed(_merged(analyses))]
    command = click.command(cls=_Command, help=discovery.summary(contract.PACKAGE, name))(inner)
    below = [one for analysis in analyses for one in analysis.commands()]
    return _group(command, below) if below else command


class _Command(click.Command):
    """A command that says whether it takes one image or many, where the wrong option is typed."""

    def parse_args(self, context, args):
        """As click does."""
        try:
            return super().parse_args(context, args)
        except click.NoSuchOption as error:
            words = {"--n": "it looks at one image"}
            words |= {f"--{one}": "it measures many test images, not one image" for one in ONE}
            if error.option_name not in words:
                raise
            text = f"{error.option_name} cannot be used here: {words[error.option_name]}"
            raise click.UsageError(text, context) from error


def _merged(analyses: Sequence[Analysis]) -> list[Option]:
    """The options of all, each once, in the order that every analysis has them, all choices."""
    merged: list[Option] = []
    for one in analyses:
        place = len(merged)
        for option in reversed(one.options):
            names = [other.name for other in merged]
            if option.name in names:
                place = names.index(option.name)
                every = dict.fromkeys((*merged[place].choices, *option.choices))
                merged[place] = merged[place]._replace(choices=tuple(every))
            else:
                merged.insert(place, option)
    return merged


def _group(command: click.Command, below: Sequence[click.Command]) -> click.Group:
    """A command that runs by itself, unless one of those below it follows."""

    @click.pass_context
    def run(context: click.Context, /, **values) -> None:
        if context.invoked_subcommand is None:
            assert command.callback is not None
            command.callback(**values)
            return
        typed = click.core.ParameterSource.COMMANDLINE
        if any(context.get_parameter_source(name) is typed for name in context.params):
            raise click.UsageError(f"options go after '{context.invoked_subcommand}'")

    how: Any = {"params": command.params, "callback": run, "help": command.help}
    return click.Group(commands=list(below), invoke_without_command=True, **how)


def _explain(context: click.Context, name: str) -> NoReturn:
    click.echo(contract.explanation(name))
    context.exit()


def _help_of_n(analyses: Sequence[Analysis]) -> str:
    if any(one.of_one_image for one in analyses):
        return "Number of test images, for statistics over many in place of one image."
    return f"Number of test images. [default: {analyses[0].usual_n}, or all if there are fewer]"


def _click_option(one: Option) -> click.Option:
    """An option for click: a number within its range, a flag, a choice, a path, or a text."""
    kind: Any = one.kind
    more: dict[str, Any] = {}
    if one.choices:
        kind = click.Choice(one.choices)
    elif one.kind is bool:
        kind = None
    elif one.kind is int and one.range != (None, None):
        low, high = (None if end is None else int(end) for end in one.range)
        kind = click.IntRange(low, high)
    elif one.kind is float and one.range != (None, None):
        kind = click.FloatRange(*one.range)
    elif one.kind is Path:
        kind = click.Path(path_type=Path)
    elif typing.get_origin(one.kind) is tuple:
        kind = typing.get_args(one.kind)
    text = one.help
    shown = one.default_text
    if shown is not None:
        text = f"{text} [default: {shown}]"
    names = [one.flag.name, one.name]
    if one.kind is bool:
        more["is_flag"] = True
        if one.default:
            names[0] = f"{one.flag.name}/--no-{one.flag.name.removeprefix('--')}"
    elif one.default is not None and not one.several:
        more["show_default"] = True
    if one.flag.metavar is not None:
        more["metavar"] = one.flag.metavar
    return click.Option(
        names, type=kind, default=one.default, help=text,
        multiple=one.several, **more,
    )  # fmt: skip


def chosen(analyses: Sequence[Analysis], values: dict[str, Any]) -> Analysis:
    """The first analysis that takes every option that was typed; ValueError where none does.

    Beside an analysis of one image, those of many are chosen by `--n`, a flag, a choice or a path:
    a number alone, as `--seed`, chooses none.
    """
    context = click.get_current_context()
    typed = click.core.ParameterSource.COMMANDLINE
    own = {option.name: option for one in analyses for option in one.options}
    names = [
        n for n in values if n in {*own, "n", *ONE} and context.get_parameter_source(n) is typed
    ]
    refused = [[n for n in names if not _takes(one, n, values[n])] for one in analyses]
    best = min(range(len(analyses)), key=lambda k: (len(refused[k]), "n" in refused[k]))
    flags = {p.name: p.opts[0] for p in context.command.params}
    if not refused[best]:
        many = analyses[0].of_one_image and not analyses[best].of_one_image and "n" not in names
        if not many or any(own[name].kind not in (int, float) for name in refused[0]):
            return analyses[best]
        wrong = ", ".join(flags[name] for name in refused[0])
        raise ValueError(f"one image is shown: drop {wrong}, or add --n N")
    wrong = ", ".join(flags[name] for name in refused[best])
    if "n" in names and set(refused[best]) & set(ONE):
        raise ValueError(f"--n measures many test images, not one image: drop {wrong}")
    if "n" not in names and analyses[best].of_one_image:
        others = [one for one in analyses if _takes(one, "n", None)]
        if all(any(_takes(one, name, values[name]) for one in others) for name in refused[best]):
            raise ValueError(f"one image is shown: drop {wrong}, or add --n N")
    written = {
        n: f"{flags[n]} {values[n]}" if n in own and own[n].choices else flags[n] for n in names
    }
    wrong = ", ".join(written[name] for name in refused[best])
    kept = [written[name] for name in names if name not in refused[best]]
    beside = f" beside {', '.join(kept)}" if kept else ""
    fitting = [
        f"{flags[option.name]} {' or '.join(option.choices)}"
        for option in analyses[best].options
        if option.name in refused[best]
    ]
    do = f"expected {', '.join(fitting)}" if fitting else "drop one of them"
    raise ValueError(f"{wrong} cannot be used{beside}: {do}")


def _takes(analysis: Analysis, name: str, value) -> bool:
    """Whether an analysis has this option, and of a choice this value."""
    for option in analysis.options:
        if option.name == name:
            return not option.choices or value in option.choices
    if name == "n":
        return "images" in analysis.given or "n" in analysis.given
    return name in ONE and (analysis.of_one_image or name in analysis.given)


def _body(name: str, analyses: Sequence[Analysis]) -> Callable:
    compares = any(one.compares for one in analyses)
    chosen_by = "networks" if compares else "inputs"

    def body(as_json, figure, **values) -> None:
        from capsviz.inputs import context
        from capsviz.inputs.runs import first_of

        named, seeds = first_of(values.pop(chosen_by))
        task, picture = values.pop("task"), values.pop("picture", None)
        analysis = chosen(analyses, values | (picture or {}))
        n = values.pop("n", None)
        own = {option.name: values[option.name] for option in analysis.options}
        analysis.check(**own)
        if task is not None and len(seeds) < 2:
            raise ValueError("--task splits several training runs: add --seeds-of 'GLOB'")
        if len(seeds) > 1:
            _require_statistic(analysis)
        named = _with_checkpoint(named, analysis.checkpoint(**own))
        if analysis.dataset is not None and not named.get("checkpoint") and not named["dataset"]:
            named = {**named, "dataset": analysis.dataset}
        empty = task is not None and tasks.is_empty(task, len(seeds))
        if empty or (task is not None and writing.exists(name, figure)):
            return
        writing.prepare(name, figure)
        opened = _open(analysis, named)
        shown = options.open_picture(opened[0], picture) if analysis.of_one_image else None
        digit = options.chosen_class(opened[0].dataset, picture["digit"]) if picture else None
        runs = [opened, *_replicates(opened, seeds)]

        def measured(number: int) -> tuple[str, Any]:
            return context.measure_with(
                analysis, runs[number], own, n=n, picture=shown, digit=digit,
                progress=writing.progress,
            )  # fmt: skip

        for stem, result, about in _joined(name, measured, runs, figure, task):
            paths = writing.save(stem, name, result, opened, figure, about)
            with writing.looking(figure):
                paths += analysis.extra_files(result, paths[-1], **own)
            findings = [analysis.findings(result), *_of_runs(result, opened, about)]
            writing.report(result, "\n".join(findings), paths, as_json)

    return body


def _with_checkpoint(named: dict, checkpoint: str | None) -> dict:
    """The network that an analysis names by its options; ValueError beside another one."""
    if checkpoint is None:
        return named
    others = [f"--{key}" for key in ("checkpoint", "network", "weights") if named.get(key)]
    if others:
        raise ValueError(f"the options name a network already: drop {', '.join(others)}")
    return {**named, "checkpoint": checkpoint}


def _open(analysis: Analysis, named: dict) -> list[Any]:
    """The networks and their data; ValueError if the first one lacks what is needed."""
    from capsviz.tracing import needs

    capsules = bool(analysis.needs)
    if "first" in named:
        opened = options.open_networks(named, capsules=capsules)
    else:
        opened = [options.open_inputs(named, capsules=capsules)]
    needs.require(opened[0].model, analysis.needs, f"capsviz {analysis.name.replace('_', '-')}")
    return opened


def _replicates(opened: list, seeds: Sequence[str]) -> list[list]:
    """The same networks, the first of them replaced by each further training run in turn."""
    if len(seeds) < 2:
        return []
    from capsviz.inputs.runs import open_runs

    first, *others = opened
    runs = open_runs(first, seeds)
    opened[0] = runs[0]
    return [[one, *others] for one in runs[1:]]


def _require_statistic(analysis: Analysis) -> None:
    """ValueError for several training runs where one image, or no number, is shown."""
    name = analysis.name.replace("_", "-")
    if analysis.of_one_image and any(_takes(one, "n", None) for one in contract.of(analysis.name)):
        raise ValueError(
            "several training runs are for statistics, and one image is shown: add --n N"
        )
    if not any("Estimate" in str(hint) for hint in analysis.Result.__annotations__.values()):
        raise ValueError(
            f"capsviz {name} shows images and no statistic with an interval: expected one "
            "training run"
        )
    if getattr(analysis.Result, "over_runs", {}) is None:
        raise ValueError(
            f"the numbers of capsviz {name} are of single capsules or dimensions, whose order "
            "differs between training runs: expected one training run"
        )


def _joined(name, measured, runs: Sequence, figure: dict, task) -> Iterator[tuple]:
    """(stem, result, what training runs it is of), of one training run or of several."""
    if len(runs) == 1:
        yield (*measured(0), None)
        return
    from capsviz.inputs.runs import about
    from capsviz.statistics.replicates import over_runs

    if task is None:
        rows = [measured(number) for number in range(len(runs))]
    else:
        rows = _shared(name, measured, runs, figure, task)
    if rows:
        results = [result for _, result in rows]
        whole, of_first = over_runs(results, getattr(type(results[0]), "over_runs", {}))
        yield f"{rows[0][0]}-{len(runs)}-runs", whole, about([one[0] for one in runs], of_first)


def _shared(name: str, measured, runs: Sequence, figure: dict, task) -> list[tuple]:
    """Stem and result of every run, once the tasks have measured all; until then none of any."""
    from capsviz.cli import naming

    of = naming.identity(click.get_current_context()), runs[0][0].dataset.digest
    places = [tasks.place_of(figure["output"], name, of, one[0].model.card) for one in runs]

    def results(number):
        yield tasks.Measured(*measured(number))

    done = tasks.measure(places, task, results, name)
    if done < len(runs):
        text = f"{done} of {len(runs)} training runs are measured; the last task draws them all"
        click.echo(text, err=True)
        return []
    return [tuple(one) for place in places for one in tasks.read(place)]


def _of_runs(result, opened: Sequence, about: dict | None) -> list[str]:
    """The line that says how many training runs a result with intervals is of."""
    from capsviz import checkpoint
    from capsviz.statistics.replicates import words

    trained = all(checkpoint.is_trained(one.model) for one in opened)
    return words(result, networks=len(opened), trained=trained, about=about)
