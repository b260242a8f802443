import psutil
import pytest
import torch

from capsviz import memory


def test_free_memory_is_some_of_the_machines():
    assert 0 < memory.available() <= psutil.virtual_memory().total
    assert 0 < memory.available(torch.device("cpu")) <= psutil.virtual_memory().total


def test_what_fits_is_let_through_and_what_does_not_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda device: 2_000_000)
    memory.require(2_000_000, "a table", "use a smaller one")
    with pytest.raises(MemoryError) as caught:
        memory.require(3_500_000_000, "a table", "use a smaller one")
    expected = "a table needs 3.50 GB, but 2.00 MB are free: use a smaller one"
    assert str(caught.value) == expected


def test_the_device_is_asked_that_is_meant(monkeypatch):
    asked = []
    monkeypatch.setattr(memory, "available", lambda device: asked.append(device) or 10)
    memory.require(1, "", "", device="cuda:1")
    memory.require(1, "", "")
    assert asked == ["cuda:1", "cpu"]


@pytest.mark.parametrize(
    ("size", "text"),
    [(737_280, "0.74 MB"), (999_000_000, "999.00 MB"), (2_949_120_000, "2.95 GB")],
)
def test_sizes_are_written_for_people(size, text):
    assert memory.gib(size) == text
