import psutil
import pytest
import torch

from capsviz import memory


@pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(
        not torch.cuda.is_available(), reason="no CUDA here")])],
)  # fmt: skip
def test_free_memory_is_some_of_the_device_s(device):
    total = psutil.virtual_memory().total
    if device == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
    assert 0 < memory.available(device) <= total


def test_what_fits_is_let_through_and_what_does_not_is_refused_in_words(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "available", lambda device: asked.append(device) or 2_000_000)
    memory.require(2_000_000, "a table", "use a smaller one")
    expected = "^a table needs 3.50 GB, but 2.00 MB are free: use a smaller one$"
    with pytest.raises(MemoryError, match=expected):
        memory.require(3_500_000_000, "a table", "use a smaller one", device="cuda:1")
    assert asked == ["cpu", "cuda:1"]
