"""SVHN's .mat files: read as torchvision does, checksums kept; absence and damage said plainly."""

import hashlib
import http.server
import threading
from functools import partial

import numpy as np
import pytest
import torch
from scipy.io import savemat
from torchvision.datasets import SVHN

from capsviz import data


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a part of SVHN in its layout, and makes its checksum the expected one."""

    def write_part(part, n, folder=tmp_path, digits=None):
        generator = np.random.default_rng(0)
        images = generator.integers(0, 256, (32, 32, 3, n), dtype=np.uint8)
        digits = np.arange(n) % 10 if digits is None else np.array(digits)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{part}_32x32.mat"
        savemat(path, {"X": images, "y": np.where(digits == 0, 10, digits).astype("u1")[:, None]})
        url, name, _ = SVHN.split_list[part]
        known = (url, name, hashlib.md5(path.read_bytes()).hexdigest())
        monkeypatch.setitem(SVHN.split_list, part, known)
        return images.transpose(3, 2, 0, 1), path

    return write_part


@pytest.mark.parametrize("place", ["", "SVHN"])
def test_a_file_is_read_as_it_was_written(write, tmp_path, place):
    images, _ = write("test", 12, tmp_path / place)
    part = data.load("svhn", "test", tmp_path)
    assert part.images.dtype == torch.uint8 and part.images.is_contiguous()
    assert np.array_equal(part.images, images)
    assert part.labels.dtype == torch.int64 and part.labels.tolist() == [*range(10), 0, 1]
    assert (part.name, part.split) == ("svhn", "test") and part.classes == tuple("0123456789")


def test_what_is_not_there_is_downloaded_and_found_the_next_time(write, tmp_path, monkeypatch):
    images, path = write("test", 12, tmp_path / "served")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=path.parent)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        url = f"http://127.0.0.1:{server.server_port}/{path.name}"
        known = SVHN.split_list["test"]
        monkeypatch.setitem(SVHN.split_list, "test", (url, *known[1:]))
        assert np.array_equal(data.load("svhn", "test", tmp_path).images, images)
        server.shutdown()
    assert (tmp_path / "SVHN" / path.name).is_file()
    assert len(data.load("svhn", "test", tmp_path, download=False)) == 12
