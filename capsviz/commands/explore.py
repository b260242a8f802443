"""Draw a digit, turn it, watch it route: a page in your browser."""

from __future__ import annotations

from pathlib import Path

import click

from capsviz.cli import options

EXAMPLES = """
capsviz explore --checkpoint mnist  # 10 s until the page is there
"""


@click.command(help=__doc__)
@click.option(
    "--checkpoint",
    default="mnist",
    show_default=True,
    metavar="NAME|FILE",
    help="A capsule network: shipped weights, a .safetensors file, or a folder that holds one.",
)
@click.option(
    "--compare",
    default="mnist-resnet",
    show_default=True,
    metavar="NAME|FILE",
    help="Any network for the same images, to stand beside it.",
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path),
    help="Folder that holds the test images. [default: $CAPSVIZ_DATA, then the user cache]",
)
@options.device
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=7860,
    show_default=True,
    help="Port of 127.0.0.1, where the page is; 0 takes a free one.",
)
@click.option("--browser/--no-browser", default=True, show_default=True, help="Open the page.")
def command(checkpoint, compare, data_dir, device, port, browser):
    """Open the page, and serve it until Ctrl+C."""
    from capsviz.explorer import serve

    port = serve.free_port(port)
    serve.load_gradio()
    import torch

    from capsviz.explorer import network, page

    torch.set_num_threads(1)  # a pass takes 11 ms on one; the other cores serve other visitors
    networks = network.open_networks(checkpoint, compare, data_dir=data_dir, device=device)
    if networks.notice:
        click.echo(networks.notice, err=True)
    blocks = page.build(networks)
    click.echo(f"{serve.launch(blocks, port, browser=browser)} (Ctrl+C ends it)")
    blocks.block_thread()
