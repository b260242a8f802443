"""Serve the page offline, without analytics, until Ctrl+C; by default for this machine only."""

import ipaddress
import os
import secrets
import socket
import webbrowser
from pathlib import Path

from capsviz import discovery

HOST = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # all addresses of this machine
LARGEST_MB = 25  # size limit of an uploaded picture
USER = "class"  # login name for visitors on other machines
THREADS = 8  # requests of all visitors that are computed at a time
INVITATION = """\
The page asks for a login: user {user}, password {password}. Visitors must be on this machine's
network, and its firewall must allow port {port}. The connection is not encrypted."""


def free_port(port: int, host: str = HOST) -> int:
    """Return the port, or a free one for 0; OSError if the port or the host is not available."""
    with socket.create_server((host or " ", port)) as probe:
        return probe.getsockname()[1]


def _own_address() -> str:
    """Return the address by which other machines reach this one, without sending anything."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation: RFC 5737
            return probe.getsockname()[0]
        except OSError:  # no network
            return HOST


def is_alone(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback


def load_gradio():
    """Import Gradio without analytics; an ImportError says how to install it."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import gradio
    except ModuleNotFoundError as error:
        raise ImportError(discovery.needs("the page", "gradio")) from error
    return gradio


def launch(blocks, port: int, host: str = HOST, *, browser: bool = False) -> tuple[str, str]:
    """Serve the blocks of a page in the background; return its address and the password of `USER`.

    If only this machine can reach the host, there is no login, and the password is "".
    """
    gradio = load_gradio()
    password = "" if is_alone(host) else secrets.token_hex(5)
    fonts = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
    theme = gradio.themes.Base(**fonts).set(  # Gradio's default fonts would be downloaded
        block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_300"
    )
    blocks.queue(max_size=200)
    _, address, _ = blocks.launch(
        server_name=host,
        server_port=port,
        share=False,
        ssr_mode=False,
        prevent_thread_lock=True,
        quiet=True,
        show_error=True,
        max_file_size=f"{LARGEST_MB}mb",
        max_threads=THREADS,
        footer_links=[],
        theme=theme,
        css=(Path(__file__).parent / "page.css").read_text(encoding="utf-8"),
        auth=(USER, password) if password else None,
    )
    if host == EVERYWHERE:
        address = f"http://{_own_address()}:{port}/"
    if browser:
        webbrowser.open(address)
    return address, password
