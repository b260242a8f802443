"""Draw the figure set of one network: figures, numbers, manifest and LaTeX in one folder."""

import click

from capsviz.analysis import Analysis
from capsviz.cli import naming, options, writing

USUAL, FEW = Analysis.usual_n, 100
EXAMPLES = """
capsviz figures --venue icml --output runs/paper  # about 3 min; resumes if stopped
capsviz figures --only rotate --only routing --n 200  # about 15 s
"""


@click.command(help=__doc__)
@options.inputs
@options.only
@options.number(
    f"Test images. [default: {USUAL:,}, {FEW} if each is evaluated dozens of times, at most 50 in "
    "detect; or all if fewer]",
)
@options.example
@options.seed
@writing.figure
def command(only, n, digit, index, seed, figure, inputs):
    """Draw the set; one figure that fails does not lose the others."""
    from capsviz.files import locked
    from capsviz.results import column, sets

    width = writing.width(figure)
    naming.try_folder(figure["output"])
    typed = [name for text in only for name in text.split(",")]
    names = sets.choose(typed)
    chosen = options.open_inputs(inputs)
    most = FEW if n is None else None
    n = min(USUAL, len(chosen.dataset)) if n is None else n
    chosen.dataset.first(n)
    names = sets.fitting(names, chosen.dataset)
    if chosen.dataset.parts is None:
        digit = options.chosen_class(chosen.dataset, digit)
        chosen.dataset.nth_of_class(digit, index)
    settings = sets.Settings(n, digit, index, seed, writing.progress, writing.command_line(), most)
    try:
        with writing.looking(figure), locked(figure["output"], "drawing figures"):
            entries, failed = sets.make(
                chosen, figure["output"], names, settings, formats=figure["formats"], width=width,
                report=writing.line, force=figure["force"], column=column(figure["venue"]),
                files=naming.files(click.get_current_context()),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise click.ClickException(
            f"stopped; finished figures are in {figure['output']}. Run the same command to resume"
        ) from None
    if entries:
        click.echo(f"{len(entries)} figures in {figure['output']}")
    empty = set(names) - {entry.analysis for entry in entries} - set(failed) if typed else ()
    if empty:
        listed = ", ".join(sorted(name.replace("_", "-") for name in empty))
        raise ValueError(f"there is no figure of this network and these images: {listed}")
    if failed:
        raise click.ClickException(f"{len(failed)} failed: {', '.join(failed)}")
