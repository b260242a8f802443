"""Write one HTML file on one or several networks: figures, numbers, discussion, checks."""

from pathlib import Path

import click

from capsviz.cli import naming, options, writing

USUAL = 200  # images for each statistic, of which a report has many
EXAMPLES = """
capsviz report --checkpoint digits --only routing,rotate  # about 10 s
capsviz report --checkpoint mnist --checkpoint mnist-resnet --n 200  # about 30 s
"""


@click.command(help=__doc__)
@options.single_networks
@options.number(f"Test images behind every statistic. [default: {USUAL}, or all if fewer]")
@options.only
@options.example
@options.seed
@options.path_option(
    "--output", folder=False, help="File to write. [default: runs/report-NETWORK.html]"
)
@writing.force
def command(networks, n, only, digit, index, seed, output, force):
    """Compute the results, and write the page."""
    from capsviz.files import write_text
    from capsviz.results import report as reports

    reports.choose(only, False)
    opened = _opened(networks)
    names = reports.choose(only, len(opened) > 1)
    settings = writing.settings(opened[0].dataset, n, USUAL, digit, index, seed)
    joined = "-".join(naming.label(one.source) if one.source else one.name for one in opened)
    path = output or Path("runs") / f"report-{joined}.html"
    naming.refuse_file(path, force=force)
    contents = reports.collect(
        opened, names, settings, report=lambda line: click.echo(line, err=True)
    )
    if not contents.sections:
        raise click.ClickException(f"nothing could be drawn: {contents.left_out[0][2]}")
    page = reports.render(contents)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, page)
    count = sum(len(section.figures) for section in contents.sections)
    click.echo(f"{count} figures in {path}, {len(page.encode()) / 1e6:.1f} MB")


def _opened(values: dict) -> list:
    """Return the named networks; without any, the default network of the data set."""
    named = values["first"] or values["others"] or values["network"]
    opened = options.open_networks(values, capsules=False, whole=True)
    return opened if named else opened[:1]
