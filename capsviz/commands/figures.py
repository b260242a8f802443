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
    f"Test images. [default: {USUAL:,}; {FEW} if each is evaluated dozens of times; at most 50 in "
    "detect; all if there are fewer]",
)
@options.example
@options.seed
@writing.figure
def command(only, n, digit, index, seed, figure, inputs):
    """Draw the set; if one figure fails, the others are still drawn."""
    from capsviz.files import locked
    from capsviz.results import house, sets

    width = writing.width(figure)
    naming.try_folder(figure["output"])
    names = sets.choose(only)
    chosen = options.open_inputs(inputs)
    most = FEW if n is None else None
    settings = writing.settings(chosen.dataset, n, USUAL, digit, index, seed, most)
    names = sets.fitting(names, chosen.dataset)
    try:
        with writing.looking(figure), locked(figure["output"], "drawing figures"):
            entries, failed = sets.make(
                chosen, figure["output"], names, settings, formats=figure["formats"], width=width,
                report=writing.line, force=figure["force"], column=house.column(figure["venue"]),
                files=naming.files(click.get_current_context()),
            )  # fmt: skip
    except KeyboardInterrupt:
        raise click.ClickException(
            f"stopped; finished figures are in {figure['output']}. Run the same command to resume"
        ) from None
    if entries:
        click.echo(f"{len(entries)} figures in {figure['output']}")
    empty = set(names) - {entry.analysis for entry in entries} - set(failed) if only else ()
    if empty:
        listed = ", ".join(sorted(name.replace("_", "-") for name in empty))
        raise ValueError(f"there is no figure of this network and these images: {listed}")
    if failed:
        raise click.ClickException(f"{len(failed)} failed: {', '.join(failed)}")
