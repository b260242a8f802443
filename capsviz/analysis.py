"""Define an analysis: a question about networks, its measurement and its figures.

A file or folder of `analyses/` is a command of the same name. It holds a subclass of `Analysis` for
each kind of result. If there are two, the command uses the first for one image and the second for
many images (`--n N`). The methods and attributes of `Analysis` are the whole interface.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from capsviz import discovery

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PACKAGE = "capsviz.analyses"


class Range(NamedTuple):
    """The smallest and the largest value of an option; None: unlimited."""

    low: float | None = None
    high: float | None = None


class Default(NamedTuple):
    """The help text for a default of None: Default("the network's own")."""

    text: str


class Flag(NamedTuple):
    """The command-line name of an option, if not the parameter's name: Flag("--from")."""

    name: str
    metavar: str | None = None


class Option(NamedTuple):
    """One option of an analysis, taken from the signature of its `measure`."""

    name: str  # of the parameter
    kind: type  # int, float, str, bool, Path, or tuple[int, float] for two values
    default: Any
    help: str
    range: Range
    choices: tuple[str, ...]  # the values of a Literal; (): any value
    several: bool  # may be given several times: tuple[str, ...], tuple[tuple[int, float], ...]
    default_text: str | None
    flag: Flag


class Panel(NamedTuple):
    """One panel of a figure.

    `draw(axes, result)` draws it into axes, and labels the artists for the legend. It may return
    names for the ends of lines, for `capsviz.arrangement.label_lines`. A panel of several pictures
    divides its axes with `capsviz.arrangement.split`. Without a `caption`, the first paragraph of
    the docstring of `draw`, "Draw ...", is the panel's part of a figure's caption.
    """

    draw: Callable[[Any, Any], Any]
    tall: float | Callable[[Any, float], float] = 1.7  # inches, or a function of result and width
    share: float = 1 / 2  # of the width of a figure that spans the page
    narrow: float = 1.0  # of the width of a figure that spans a column
    figure: str = ""  # name of the figure that shows it
    shown: str | Callable[[Any], bool] = ""  # shown if the function is true, if the field named is
    # neither None nor [], or if FIELD contains ITEM ("FIELD:ITEM")
    caption: str | Callable[[Any], str] = ""  # part of a sentence, with fields as in "of {n:,}
    # images"; "A |B" and "A |C" become "A B and C"; further lines are whole sentences
    marks: str = ""  # "bars" or "bands": how it draws intervals
    omits: Callable[[Any, float], list[str]] = lambda result, width: []  # items without room

    def of(self, result) -> bool:
        """Return whether a result has this panel."""
        if callable(self.shown):
            return self.shown(result)
        field, _, item = self.shown.partition(":")
        held = getattr(result, field) if field else self
        return item in held if item else not (held is None or (isinstance(held, list) and not held))

    def words(self, result) -> list[str]:
        """Return the panel's part of the caption's first sentence, then whole sentences."""
        if callable(self.caption):
            return self.caption(result).split("\n")
        text = self.caption or self.about.removeprefix("Draw ").rstrip(".").replace(". ", "\n")
        if not text:
            raise ValueError(f"{self.draw} has no docstring 'Draw ...', and its panel no `caption`")
        try:
            return text.format(**result._asdict()).split("\n")
        except KeyError as error:
            raise ValueError(f"the caption '{text}' names {error}, which is not a field") from error

    @property
    def about(self) -> str:
        """Return the first paragraph of the docstring of `draw`."""
        text = inspect.getdoc(getattr(self.draw, "func", self.draw)) or ""
        return " ".join(text.partition("\n\n")[0].split())


RULES = "axes", "formats", "titles", "over_runs", "some", "references"  # keyed by result field
Seed = Annotated[int, Range(0, 2**32 - 1), "Random seed."]
Fill = Annotated[
    Literal["black", "edge", "mean"],
    "Fill outside an image: zeros, its nearest pixels or its mean colour.",
]
Iterations = Annotated[
    int | None, Range(1, 100), Default("the network's own"), "Routing iterations."
]
Layer = Annotated[
    int | None, Default("the last"), "Index of the routed layer, from 0, if there are several."
]


def outside(result) -> str:
    """Return the caption's sentence on the fill outside transformed images; "" for black."""
    of = {"edge": "its nearest pixels", "mean": "its mean colour"}
    fill = of.get(getattr(result, "fill", ""))
    return f"Fill outside an image: {fill}." if fill else ""


class Analysis:
    """One question about networks, with one kind of result.

    Write `measure` and `panels`; override the rest only if the defaults do not fit. The names of
    the parameters of `measure` say what it needs. Annotations define its options, once for the
    command line, its help, Python and the figure set:

        def measure(self, network, images, labels, *, classes, dataset, progress=iter,
                    per_class: Annotated[int, Range(1, 4), "Examples of each class."] = 1):

    Parameters passed by name, before or after the `*`:
        network           the network, or `networks`: {name: network}, the first of which is the
                          reference for the others
        image, label      one image (1, C, H, W) in [0, 1] and its class, None if unknown
        images, labels    N images (N, C, H, W) in [0, 1] and their classes (N,)
        classes, dataset  names of the classes, and of the data set
        progress          wraps an iterable in a progress bar
        inputs            the first network with its data (`capsviz.inputs.opening.Inputs`)
        opened            the same for all networks
        picture           the image with its name, for analyses of one image
        n, digit          the requested number of images, and the class

    A result is a NamedTuple. Its numbers are `Estimate`s: value, interval and n. Functions of
    `capsviz.statistics.intervals` return intervals: `wilson(successes, n)` for a proportion,
    `mean_interval(values)` for a mean. Other fields are arrays, texts and plain numbers.
    Its class attributes say how to print estimates (see `capsviz.statistics.numbers`):
        axes              {field: names along each axis of an estimate, or the field with them}
        formats           {field: format such as ".1%"}
        titles            {field: printed name}; default: the name of the field
        over_runs         {field: function that combines the values of several training runs, or
                          None to take the first}; default: the mean of estimates
    """

    Result: ClassVar[type]  # a NamedTuple, as described above
    needs: ClassVar[tuple[str, ...]] = ()  # parts of a trace, see capsviz.tracing.needs; (): scores
    panels: ClassVar[Mapping[str, Panel] | str] = "draw:PANELS"  # or "FILE:NAME", a file beside the
    # analysis that is imported only to draw
    any_input: ClassVar[bool] = False  # inputs need not be images: token ids, a table, ...
    examples: ClassVar[str] = ""  # lines "command  # its time on two CPU cores", for --help
    usual_n: ClassVar[int] = 1000  # number of images without `--n`, or all if there are fewer
    dataset: ClassVar[str | None] = None  # used if neither network nor data set is named
    several_objects: ClassVar[bool] = False  # takes images that show several objects each
    figure_set: ClassVar[dict[str, Any] | tuple[dict[str, Any], ...] | None] = {}
    # options in `capsviz figures`, as values or functions of the number of images; a tuple for
    # several figures; None: not in the set
    slow: ClassVar[bool] = False  # dozens of passes per image: fewer images in a figure set
    how: ClassVar[str] = ""  # method of the intervals for captions: "bootstrap", "{distance} parts"
    unit: ClassVar[str] = "images"  # sampling unit of the intervals
    headline: ClassVar[tuple[str, ...] | None] = None  # estimates to print, long ones only at the
    # first index of their first axis; None: all short ones

    def __init_subclass__(cls) -> None:
        """Add the method `to_frame` to the result; `of` checks the result itself."""
        if hasattr(vars(cls).get("Result"), "_fields"):
            from capsviz.statistics.numbers import to_frame

            cls.Result.to_frame = to_frame  # type: ignore[attr-defined]

    def measure(self, *given, **options):
        """Measure, and return a `Result`; no files, prints or global seed; networks are unchanged.

        Raises
        ------
        ValueError  for invalid options or images, in one line.
        """
        raise NotImplementedError

    @property
    def all_panels(self) -> Mapping[str, Panel]:
        """Return every possible panel by name, in order; {} if the class overrides `draw`."""
        if type(self).draw is not Analysis.draw:
            return {}
        if not isinstance(self.panels, str):
            return self.panels
        file, _, name = self.panels.partition(":")
        package = importlib.import_module(type(self).__module__).__package__
        if not package or importlib.util.find_spec(f"{package}.{file}") is None:
            raise ValueError(f"{type(self).__name__} has neither `panels` nor a `draw`")
        return getattr(importlib.import_module(f"{package}.{file}"), name)

    def draw(
        self, result, *, width: float = 7.16, part: str = "", panel: str | Sequence[str] = (),
        axes: Axes | None = None,
    ) -> Figure:  # fmt: skip
        """Draw one figure of a result, or some of its panels, without a network or torch.

        Parameters
        ----------
        width  inches; the largest height follows from it.
        part   name of a figure (see `parts`); "" is the first.
        panel  name of a panel, or several in order, in place of a figure.
        axes   axes for one panel; None: a new figure.

        Raises
        ------
        ValueError  if the result lacks a panel, or if axes come without exactly one panel.
        """
        from capsviz import arrangement

        chosen = self.chosen(result, part, panel)
        if axes is not None:
            if not panel or len(chosen) > 1:
                got = len(chosen) if panel else 0
                raise ValueError(f"axes take one panel, got {got}: {', '.join(self.all_panels)}")
            ((name, one),) = chosen.items()
            arrangement.into(axes, one, name, result)
            return typing.cast("Figure", axes.get_figure(root=True))
        return arrangement.arranged(chosen, result, width, self.heading(result, part))

    def chosen(self, result, part: str = "", panel: str | Sequence[str] = ()) -> dict[str, Panel]:
        """Return the named panels, or those of a figure; ValueError if the result lacks one."""
        every, names = self.all_panels, [panel] if isinstance(panel, str) else list(panel)
        for name in names:
            discovery.require_known("panel", name, every)
            if not every[name].of(result):
                raise ValueError(f"this result has no panel '{name}': see --panel list")
        of_part = (n for n, one in every.items() if one.figure == part and one.of(result))
        return {name: every[name] for name in names or of_part}

    def parts(self, result) -> tuple[str, ...]:
        """Return the names of the figures of a result; "" is the first one."""
        every = self.all_panels.values()
        return tuple(dict.fromkeys(one.figure for one in every if one.of(result))) or ("",)

    def heading(self, result, part: str = "") -> str:
        """Return the line above the panels of a figure: number of images and data set."""
        if not hasattr(result, "n") or not hasattr(result, "dataset"):
            return ""
        marked = any(one.marks for one in self.chosen(result, part).values())
        return f"{result.n:,} images of {result.dataset}{'; bars and bands: 95 %' * marked}"

    def verdict(self, result) -> str:
        """Return the finding in a sentence or two; the numbers are printed below it."""
        return ""

    def caption(self, result, part: str = "") -> str:
        """Return the caption of a figure: `caption_of` its panels."""
        return self.caption_of(result, list(self.chosen(result, part)))

    def caption_of(self, result, panels: Sequence[str]) -> str:
        """Return a caption: one sentence on all panels, further sentences, then the intervals."""
        from capsviz.statistics.words import in_a_row, sentence

        chosen = [self.all_panels[name] for name in panels]
        if not chosen:
            return discovery.summary(PACKAGE, self.name)
        ends: dict[str, dict[str, None]] = {}
        for first, *_ in (words := [one.words(result) for one in chosen]):
            stem, _, end = first.partition("|")
            ends.setdefault(stem, {})[end] = None
        parts = [stem + in_a_row(list(some)) for stem, some in ends.items()]
        long = len(parts) > 1 and any("," in part or " and " in part for part in parts)
        whole = f"{'; '.join(parts[:-1])}; and {parts[-1]}" if long else in_a_row(parts)
        more = dict.fromkeys(text for _, *texts in words for text in texts)
        if marks := dict.fromkeys(one.marks for one in chosen if one.marks):
            more[f"{in_a_row(list(marks))}: {self.intervals(result)}"] = None
        return " ".join(filter(None, [*map(sentence, [whole, *more]), outside(result)]))

    def intervals(self, result) -> str:
        """Return the meaning of bars and bands, for a caption."""
        from capsviz.statistics.numbers import estimates_of

        known = hasattr(result, "n") and hasattr(result, "dataset")
        runs = max((one.training_runs for _, _, one in estimates_of(result)), default=1)
        over = f"{result.n:,} {self.unit} of {result.dataset}" if known else self.unit
        how = f" ({self.how})".format(**result._asdict()) if self.how and runs == 1 else ""
        return f"95 % intervals over {f'{runs} training runs and ' * (runs > 1)}{over}{how}"

    def findings(self, result) -> str:
        """Return the printed lines: verdict, then estimates of `headline` with intervals."""
        from capsviz.statistics.numbers import lines

        return "\n".join(filter(None, [self.verdict(result), *lines(result, self.headline)]))

    def table(self, result) -> tuple[list[str], list[list[str]], str] | None:
        """Return header, rows and caption of a table that is always written beside the figure.

        Without one (None), `--table` writes a table of all numbers.
        """
        return None

    def in_figure_set(self, n: int, inputs, digit: int) -> int:
        """Return how many of the n images of a figure set are measured, for one class `digit`."""
        return min(n, len(inputs.dataset))

    def check(self, **options) -> None:
        """Raise a one-line ValueError for invalid options, before anything is opened."""

    def left_out(self, inputs) -> str:
        """Return why a figure set of these inputs omits the analysis; "" if it does not."""
        return ""

    def stem(self, base: str, result) -> str:
        """Return the name of a result's files; non-default options are appended to it later.

        `base` is "ANALYSIS-DATASET-N-images" or "ANALYSIS-IMAGE".
        """
        return base

    def extra_files(self, result, path: Path, **options) -> list[Path]:
        """Write further files beside the figure and return them; `path` is the JSON file."""
        return []

    @property
    def name(self) -> str:
        """Return the name of the command, with underscores."""
        module = type(self).__module__
        return discovery.name_of(PACKAGE, module) or module.rpartition(".")[2]

    @property
    def given(self) -> tuple[str, ...]:
        """Return the names of the parameters of `measure` that are not options."""
        return tuple(name for name, one, hint in _parameters(type(self)) if hint is None)

    @property
    def of_one_image(self) -> bool:
        """Return whether it measures one image."""
        return "image" in self.given or "picture" in self.given

    @property
    def compares(self) -> bool:
        """Return whether it takes several networks."""
        return bool({"networks", "opened"} & set(self.given))

    @property
    def options(self) -> tuple[Option, ...]:
        """Return the options of `measure`, in their order."""
        return tuple(
            _option(name, one.default, hint)
            for name, one, hint in _parameters(type(self))
            if hint is not None
        )


def of(name: str) -> tuple[Analysis, ...]:
    """Return the analyses of a command, in the order of their definition.

    There may be none if the module defines its own `command`. ValueError for an invalid analysis.
    """
    return _of(discovery.load(PACKAGE, name, what="analysis"))


def of_result(name: str, kind: str) -> Analysis:
    """Return the analysis of a command whose result class has the name `kind`."""
    for one in of(name):
        if one.Result.__name__ == kind:
            return one
    raise ValueError(f"'{name}' has no results of the kind '{kind}'")


def explanation(name: str) -> str:
    """Return the page of an analysis, in Markdown, or else the docstring of its module.

    The page is explain.md in its folder, or NAME.md beside NAME.py. Its title asks the question;
    its sections are "Method", "What to see", "What not to conclude" and optionally "Sources".
    """
    source = discovery.source(PACKAGE, name)
    folder = source.name == "__init__.py"
    page = source.with_name("explain.md") if folder else source.with_suffix(".md")
    if page.is_file():
        return page.read_text(encoding="utf-8")
    import ast

    return ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) or ""


@cache
def _of(module: types.ModuleType) -> tuple[Analysis, ...]:
    members = [one for one in vars(module).values() if inspect.isclass(one)]
    kinds = [one for one in members if issubclass(one, Analysis) and one is not Analysis]
    bases = {base for one in kinds for base in one.__mro__[1:]}
    kinds = [one for one in kinds if hasattr(one, "Result") or one not in bases]
    for one in kinds:
        if not hasattr(getattr(one, "Result", None), "_fields"):
            raise ValueError(f"`Result` of {one.__name__} in {module.__file__} is not a NamedTuple")
        if one.caption is not Analysis.caption:
            raise ValueError(f"{one.__name__}: write `caption_of(result, panels)`, not `caption`")
        given = one.panels.items() if isinstance(one.panels, Mapping) else ()
        for name in (name for name, panel in given if not isinstance(panel, Panel)):
            raise ValueError(f"panel '{name}' of {one.__name__} is not a Panel: write Panel(draw)")
        _require_fields(one)
    return tuple(one() for one in dict.fromkeys(kinds))


def _require_fields(kind: type[Analysis]) -> None:
    """Raise ValueError if a rule of the result or a headline names an unknown field."""
    fields: list[str] = list(kind.Result._fields)  # type: ignore[attr-defined]
    for rule in (*RULES, "headline"):
        for name in getattr(kind if rule == "headline" else kind.Result, rule, None) or ():
            if name not in fields:
                unknown = discovery.unknown("field", name, fields)
                raise ValueError(f"`{rule}` of {kind.__name__}: {unknown}")


def _parameters(kind: type[Analysis]) -> list[tuple[str, inspect.Parameter, Any]]:
    """Return name, parameter and annotation of each parameter of `measure`; None: no option."""
    parameters = inspect.signature(kind.measure).parameters
    rows = [(name, one) for name, one in parameters.items() if name != "self"]
    return [(name, one, _hint(one, kind.measure.__globals__)) for name, one in rows]


def _hint(parameter: inspect.Parameter, names: dict) -> Any:
    """Return the annotation of an option, which carries a help text; None: not an option."""
    hint = parameter.annotation
    if isinstance(hint, str):  # from __future__ import annotations
        try:
            hint = eval(hint, names)
        except NameError:  # a type imported under TYPE_CHECKING
            return None
    return hint if any(isinstance(one, str) for one in getattr(hint, "__metadata__", ())) else None


def _option(name: str, default, hint: Any) -> Option:
    about: Sequence[Any] = hint.__metadata__
    kind = typing.get_args(hint)[0]
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        kind = next(one for one in typing.get_args(kind) if one is not types.NoneType)
    choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else ()
    several = typing.get_origin(kind) is tuple
    given: dict[type, Any] = {type(one): one for one in about}
    if default is inspect.Parameter.empty:
        raise ValueError(f"the option '{name}' of `measure` has no default")
    return Option(
        name,
        str if choices else typing.get_args(kind)[0] if several else kind,
        default,
        given[str],
        given.get(Range, Range()),
        choices,
        several,
        given[Default].text if Default in given else None,
        given.get(Flag, Flag(f"--{name.replace('_', '-')}")),
    )
