"""Write the skeleton of your own analysis, routing, data set or check, with its test."""

import shlex
from pathlib import Path

import click

from capsviz import discovery
from capsviz.cli import options

KINDS = {  # kind -> package, and a command that uses the plug-in
    "analysis": ("capsviz.analyses", "capsviz {command} --n 200"),
    "routing": ("capsviz.nn.routing", "capsviz train --routing {name}"),
    "dataset": ("capsviz.data", "capsviz train --dataset {name}"),
    "check": ("capsviz.checks.pitfalls", "capsviz check --checkpoint digits"),
}
TEMPLATES = Path(__file__).parent.parent / "templates"
EXAMPLES = """
capsviz new analysis lengths --folder mine  # 1 s
"""


@click.command(
    help=__doc__ + "\n\nThe files go to a folder of plug-ins, which $CAPSVIZ_PLUGINS must name in "
    "each shell. The commands to use and test them are printed. docs/howto.md says where the same "
    "files go inside a checkout of capsviz."
)
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name")
@options.path_option(
    "--folder",
    folder=True,
    default="capsviz_plugins",
    show_default=True,
    help="Folder of your plug-ins, which is created if needed.",
)
def command(kind, name, folder):
    """Write the files of one plug-in."""
    name = name.replace("-", "_")
    if not name.isidentifier() or name.startswith("_"):
        raise ValueError(f"expected a name of letters, digits and underscores, got '{name}'")
    own, use = KINDS[kind]
    for package in (own, "capsviz.commands") if kind == "analysis" else (own,):
        if name in discovery.names(package):
            where = discovery.source(package, name)
            raise ValueError(f"the {kind} '{name}' exists in {where}: choose another name")
    if kind == "check":
        from capsviz.checks import checks

        if name in checks():
            raise ValueError(f"the check '{name}' exists: choose another name")
    place = folder / own.rpartition(".")[2]
    files = {
        place / f"{name}.py": f"{kind}.txt",
        folder / "tests" / f"test_{name}.py": f"{kind}_test.txt",
    }
    if kind == "analysis":
        files[place / f"{name}.md"] = "analysis_page.txt"
    for path in files:
        if path.exists():
            raise ValueError(f"{path} exists: choose another name or another --folder")
    for path, template in files.items():
        text = (TEMPLATES / template).read_text(encoding="utf-8").replace("NAME", name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(f"wrote {path}", err=True)
    use = use.format(name=name, command=name.replace("_", "-"))
    if kind != "analysis" or folder.resolve() != discovery.root():  # found without the variable
        click.echo(f"export CAPSVIZ_PLUGINS={shlex.quote(str(folder.absolute()))}")
    click.echo(use)
    test = folder / "tests" / f"test_{name}.py"
    click.echo(f"python -m pytest {shlex.quote(str(test))}")
