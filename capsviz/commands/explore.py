"""Draw a digit, rotate it, and watch its routing: a page in your browser."""

import click

from capsviz.cli import options

EXAMPLES = """
capsviz explore --checkpoint mnist  # 10 s until the page is there
capsviz explore --host 0.0.0.0  # 10 s, for a class in the same network
"""


@click.command(help=__doc__)
@click.option(
    "--checkpoint",
    metavar="NAME|FILE",
    help="A capsule network: shipped weights, a .safetensors file, or a folder that holds one. "
    "Others can be chosen on the page. [default: first --network, mnist, or embedded digits]",
)
@click.option(
    "--compare",
    metavar="NAME|FILE",
    help="Network to compare with on the same images. [default: the second --network, or one "
    "trained on the same data]",
)
@options.own_network(multiple=True)
@options.data_of("mnist, or the embedded digits", "Data set of the first --network.")
@options.device
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7860,
    show_default=True,
    help="Port of the page; 0: any free port.",
)
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address of the page: this machine alone, or 0.0.0.0 for its network, too. The page then "
    "asks for a user name and a password, which the command prints. For many visitors use `make "
    "playground`, which computes in each visitor's browser.",
)
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page.")
def command(port, host, browser, **chosen):
    """Open the page, and serve it until Ctrl+C."""
    from capsviz.explorer import serve

    serve.load_gradio()
    import torch

    from capsviz.explorer.networks import open_choice

    choice = open_choice(**chosen)
    port = serve.free_port(port, host)
    torch.set_num_threads(1)  # a pass takes 11 ms on one core; the others serve other visitors
    if choice.notice:
        click.echo(choice.notice, err=True)
    from capsviz.explorer.page import Page

    blocks = Page(choice).blocks
    address, password = serve.launch(blocks, port, host, browser=browser)
    click.echo(f"{address} (Ctrl+C ends it)")
    if password:
        click.echo(serve.INVITATION.format(user=serve.USER, password=password, port=port))
    blocks.block_thread()
