"""Serve the page on this machine: offline, without analytics, until Ctrl+C."""

from __future__ import annotations

import atexit
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn

from capsviz import discovery

HOST = "127.0.0.1"
UPLOAD = "25mb"  # the largest picture that is taken
THREADS = 8  # requests that are computed at a time, those of all visitors together


def free_port(port: int) -> int:
    """Return the port, or a free one for 0; a ValueError says why it is not available."""
    with socket.socket() as probe:
        if sys.platform != "win32":  # where it would take a port that is in use
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise ValueError(
                f"port {port} of {HOST} is not available ({error.strerror}): choose another by "
                "--port, or any free one by --port 0"
            ) from error
        return probe.getsockname()[1]


def load_gradio():
    """Import Gradio without analytics; an ImportError says how to install it."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        import gradio
    except ModuleNotFoundError as error:
        raise ImportError(discovery.needs("the page", "gradio")) from error
    return gradio


def launch(blocks, port: int, *, browser: bool = False) -> str:
    """Start to serve the blocks of a page in the background, and return its address."""
    gradio = load_gradio()
    blocks.queue(max_size=200)
    _, address, _ = blocks.launch(
        server_name=HOST,
        server_port=port,
        inbrowser=browser,
        share=False,
        ssr_mode=False,
        prevent_thread_lock=True,
        quiet=True,
        show_error=True,
        max_file_size=UPLOAD,
        max_threads=THREADS,
        footer_links=[],
        theme=_theme(gradio),
        css=(Path(__file__).parent / "page.css").read_text(encoding="utf-8"),
    )
    return address


def end() -> NoReturn:
    """End the process now, though a visitor's request may still be computed.

    In order, Python would stop that thread in the midst of PyTorch, which aborts the process
    ("terminate called without an active exception").
    """
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _theme(gradio):
    """Return a theme with fonts of the system, for others would be fetched."""
    base = gradio.themes.Base(
        font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"]
    )
    return base.set(block_info_text_color="*neutral_600", block_info_text_color_dark="*neutral_300")
