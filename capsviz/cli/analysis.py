"""Make the command of an analysis from the parameters of its `measure` and the shared options.

Options come from the annotations of `measure` (`capsviz.analysis`). If a command has several
analyses, the typed options choose one: for example, `--n N` chooses many images instead of one.
"""

import typing
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from capsviz import analysis as contract
from capsviz import discovery
from capsviz.analysis import Analysis, Option
from capsviz.cli import options, writing

ONE = ("digit", "index", "image")  # options that choose one image
RANGES: dict[type, Any] = {int: click.IntRange, float: click.FloatRange}


def command_of(name: str) -> click.Command:
    """Return the command of the analyses in a module of `analyses/`."""
    analyses = contract.of(name)
    for one in analyses:
        if type(one).measure is Analysis.measure:
            raise ValueError(f"{type(one).__name__} of '{name}' has no `measure`")
    takes = {given for one in analyses for given in one.given}

    def print_explanation(context, option, value):
        if value:
            click.echo(contract.explanation(name))
            context.exit()

    explain = click.option(
        "--explain", is_flag=True, is_eager=True, expose_value=False,
        callback=print_explanation,
        help="Print what is measured, how, and what not to conclude from it."
    )  # fmt: skip
    inner: Any = explain(writing.panels(writing.figure(writing.as_json(_body(name, analyses)))))
    compares = any(one.compares for one in analyses)
    inner = (options.networks if compares else options.replicates)(inner)
    inner = options.picture(inner) if takes & {"image", "picture"} else inner
    if takes & {"images", "n"}:
        text = "Number of test images, for statistics over many in place of one image."
        if not any(one.of_one_image for one in analyses):
            usual = analyses[0].usual_n
            text = f"Number of test images. [default: {usual}, or all if there are fewer]"
        inner = options.number(text)(inner)
    command = click.command(help=discovery.summary(contract.PACKAGE, name))(inner)
    command.params[:0] = [_click_option(one) for one in _merged(analyses)]
    counts = Counter(flag for one in command.params for flag in {one.name, *one.opts})
    if twice := [flag for flag, count in counts.items() if count > 1]:
        raise ValueError(f"{name}: all commands have {twice[-1]}: rename this option")
    return command


def _merged(analyses: Sequence[Analysis]) -> list[Option]:
    """Return the options of all analyses, each once, with its choices joined."""
    merged: dict[str, Option] = {}
    for option in (option for one in analyses for option in one.options):
        first = merged.get(option.name, option)
        choices = tuple(dict.fromkeys((*first.choices, *option.choices)))
        merged[option.name] = first._replace(choices=choices)
    return list(merged.values())


def _click_option(one: Option) -> click.Option:
    """Convert an option to click's: a number in a range, a flag, a choice, a path, or a text."""
    kind: Any = one.kind
    more: dict[str, Any] = {"help": one.help, "metavar": one.flag.metavar}
    names = [one.flag.name, one.name]
    if one.choices:
        kind = click.Choice(one.choices)
    elif kind is bool:
        kind, more["is_flag"] = None, True
        if one.default:
            names[0] = f"{one.flag.name}/--no-{one.flag.name.removeprefix('--')}"
    elif kind in RANGES and one.range != (None, None):
        kind = RANGES[kind](*one.range)
    elif kind is Path:
        kind = click.Path(path_type=Path)
    elif typing.get_origin(kind) is tuple:
        kind = typing.get_args(kind)
    if one.default_text is not None:
        more["help"] = f"{one.help} [default: {one.default_text}]"
    if one.kind is not bool and one.default is not None and not one.several:
        more["show_default"] = True
    return click.Option(names, type=kind, default=one.default, multiple=one.several, **more)


def chosen(analyses: Sequence[Analysis], values: dict[str, Any]) -> Analysis:
    """Return the first analysis that takes every typed option; ValueError if there is none.

    If the first analysis is of one image, an analysis of many is chosen by `--n`, a flag, a choice
    or a path. A number alone, such as `--seed`, does not choose it.
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
        same_kind = analyses[best].of_one_image == analyses[0].of_one_image or "n" in names
        if same_kind or any(own[name].kind not in (int, float) for name in refused[0]):
            return analyses[best]
        best = 0
    if "n" not in names and analyses[best].of_one_image:
        others = [one for one in analyses if _takes(one, "n", None)]
        if all(any(_takes(one, name, values[name]) for one in others) for name in refused[best]):
            wrong = ", ".join(flags[name] for name in refused[best])
            raise ValueError(f"one image is shown: drop {wrong}, or add --n N")
    written = {
        n: f"{flags[n]} {values[n]}" if n in own and own[n].choices else flags[n] for n in names
    }
    wrong = ", ".join(written[name] for name in refused[best])
    kept = [written[name] for name in names if name not in refused[best]]
    beside = f" beside {', '.join(kept)}" if kept else ""
    raise ValueError(f"{wrong} cannot be used{beside}: drop one of them")


def _takes(analysis: Analysis, name: str, value) -> bool:
    """Return whether an analysis has this option and, if it is a choice, accepts this value."""
    for option in analysis.options:
        if option.name == name:
            return not option.choices or value in option.choices
    if name == "n":
        return "images" in analysis.given or "n" in analysis.given
    return name in ONE and (analysis.of_one_image or name in analysis.given)


def _body(name: str, analyses: Sequence[Analysis]) -> Callable:
    compares = any(one.compares for one in analyses)
    chosen_by = "networks" if compares else "inputs"

    def body(as_json, figure, drawn, **values) -> None:
        from capsviz import checkpoint as checkpoints
        from capsviz.inputs import context
        from capsviz.inputs.runs import first_of, open_runs
        from capsviz.statistics.replicates import words

        named, seeds = first_of(values.pop(chosen_by))
        picture = values.pop("picture", None)
        analysis = chosen(analyses, values | (picture or {}))
        if list_panels(analysis, drawn["panel"]):
            return
        n = values.pop("n", None)
        own = {option.name: values[option.name] for option in analysis.options}
        analysis.check(**own)
        if len(seeds) > 1:
            _require_statistic(analysis)
        if analysis.dataset is not None and not named.get("checkpoint") and not named["dataset"]:
            named = {**named, "dataset": analysis.dataset}
        writing.prepare(name, figure)
        opened = _open(analysis, named, picture)
        shown = options.open_picture(opened[0], picture) if analysis.of_one_image else None
        digit = shown.label if shown is not None else None
        if picture and shown is None:
            digit = options.chosen_class(opened[0].dataset, picture["digit"])
        runs, recipes = [opened], []
        if len(seeds) > 1:  # the first networks are replaced by their training runs in turn
            by_recipe = zip(opened, zip(*seeds, strict=True), strict=False)
            recipes = [open_runs(first, column) for first, column in by_recipe]
            runs = [[*row, *opened[len(row) :]] for row in zip(*recipes, strict=True)]
            opened = runs[0]

        def measured(number: int) -> tuple[str, Any]:
            return context.measure_with(
                analysis, runs[number], own, n=n, picture=shown, digit=digit,
                progress=writing.progress,
            )  # fmt: skip

        stem, result, about = _joined(measured, runs, recipes)
        paths = writing.save(stem, name, result, opened, figure, drawn, about)
        with writing.looking(figure):
            paths += analysis.extra_files(result, paths[-1], **own)
        trained = all(checkpoints.is_trained(one.model) for one in opened)
        line = words(result, networks=len(opened), trained=trained, about=about)
        if drawn["table"]:
            tables = (path for path in paths if path.suffix == ".md")
            line += [f"\n{path.read_text(encoding='utf-8')}".rstrip() for path in tables]
        writing.report(result, "\n".join([analysis.findings(result), *line]), paths, as_json)

    return body


def list_panels(analysis: Analysis, names: Sequence[str]) -> bool:
    """Print the panels of an analysis if `names` has "list"; ValueError for unknown names.

    Return whether they were printed.
    """
    known = analysis.all_panels
    if "list" in names:
        for name, one in known.items():
            first = one.about.partition(". ")[0].removesuffix(".")
            click.echo(f"{name:24}{first}".rstrip())
        return True
    if wrong := [name for name in names if name not in known]:
        raise ValueError(discovery.unknown("panel", wrong[0], list(known)))
    return False


def _open(analysis: Analysis, named: dict, picture: dict | None) -> list[Any]:
    """Open the networks and their data; ValueError if the first network lacks required parts.

    For a picture of the user, the data set may be missing.
    """
    from capsviz.tracing import needs

    own = analysis.of_one_image and picture and picture["image"]
    how = {"capsules": bool(analysis.needs), "shown": not own}
    if "first" in named:
        opened = options.open_networks(named, **how)
    else:
        opened = [options.open_inputs(named, **how)]
    what = f"capsviz {analysis.name.replace('_', '-')}"
    needs.require(opened[0].model, needs.required(analysis), what)
    return opened


def _require_statistic(analysis: Analysis) -> None:
    """Raise ValueError if the analysis has no statistic that can be averaged over training runs."""
    name = analysis.name.replace("_", "-")
    if analysis.of_one_image and any(_takes(one, "n", None) for one in contract.of(analysis.name)):
        raise ValueError("several training runs need statistics over images: add --n N")
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


def _joined(measured: Callable, runs: Sequence, recipes: Sequence) -> tuple:
    """Return stem, result and facts about the training runs, of one run or of several joined."""
    if len(runs) == 1:
        return (*measured(0), None)
    from capsviz.inputs.runs import about
    from capsviz.statistics.replicates import over_runs

    (stem, *_), results = zip(*map(measured, range(len(runs))), strict=True)
    whole, of_first = over_runs(results, getattr(type(results[0]), "over_runs", {}))
    return f"{stem}-{len(runs)}-runs", whole, about(recipes, of_first)
