"""Benchmarks have comparable contenders, resume, and make tables that agree with their files.

Measured numbers are not tested.
"""

import json

import pytest
import torch

import benchmarks
from benchmarks import clock, fuzz, layers, parity, read, speed, tables
from benchmarks.networks import Floor, literal
from capsviz.nn import routing
from capsviz.nn.models.capsnet import CapsNet


def test_the_literal_network_equals_ours_in_values_and_gradients():
    torch.manual_seed(0)
    ours = CapsNet((1, 20, 20), classes=4, types=3, channels=6, hidden=(5, 6))
    theirs = literal(ours)
    images, labels = torch.rand(3, 1, 20, 20), torch.tensor([0, 3, 1])
    for network in (ours, theirs):
        network.objective(network(images), images, labels).loss.backward()
    torch.testing.assert_close(ours(images).poses, theirs(images).poses, rtol=1e-5, atol=1e-6)
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-7)


def test_both_floors_are_the_same_convolutions():
    torch.manual_seed(0)
    floor, plain = Floor(), Floor(plain=True)
    plain.load_state_dict(floor.state_dict())
    images = torch.rand(2, 1, 28, 28)
    assert floor(images).shape == (2, 1152, 8)
    torch.testing.assert_close(floor(images), plain(images), rtol=1e-4, atol=1e-6)


def test_contenders_take_turns_and_ratios_are_to_the_first():
    order = []
    found = clock.interleaved({k: lambda k=k: order.append(k) for k in "abc"}, rounds=2, warm=1)
    assert order == list("abcbcacab")
    assert found["a"]["ratio"] == 1
    for line in found.values():
        assert line["min_ms"] <= line["median_ms"] <= line["max_ms"]


def test_the_shipped_results_contain_every_part():
    assert set(speed.PARTS) <= set(read("speed"))
    runs = read("parity")["runs"]
    seeds = [[x["seed"] for x in runs if x["path"] == path] for path in parity.PATHS]
    assert seeds[0] == seeds[1] != []  # in the same order, to be compared in pairs


def test_a_layer_is_timed_by_every_routing_fused_and_literal(monkeypatch, tmp_path):
    for size, value in {"B": 2, "I": 6, "J": 3, "D": 4, "E": 4}.items():
        monkeypatch.setattr(layers, size, value)
    assert layers.names()[0] == "dynamic" and set(layers.names()) == set(routing.available())
    steps = {
        f"{name}{', literal' * held}": layers.step(name, by_votes=held)
        for name in layers.names()
        for held in (False, True)
    }
    times = clock.interleaved(steps, 1, warm=0)
    peaks = {name: 3 if "literal" in name else 1 for name in steps} | {"em": 2}
    result = {"names": layers.names(), "times": times, "bytes": peaks, "rounds": 1}
    result["about"] = {"processor": "a processor", "hardware": "2 cores"}
    monkeypatch.setattr(benchmarks, "RESULTS", tmp_path)
    (tmp_path / "layers.json").write_text(json.dumps(result))
    rows = tables.by_routing().splitlines()
    assert rows[2].startswith("| `dynamic` | 1.00 | 1.00")
    (em,) = [row for row in rows if row.startswith("| `em`")]
    assert "| 2.00 |" in em


@pytest.mark.parametrize(
    ("end", "how"),
    [
        (lambda: "used", "used"),
        (lambda: fuzz.command("evaluate", "--checkpoint", "nothing"), "refused"),
        (lambda: fuzz.command("evaluate", "--split"), "refused"),
        (lambda: {}["a key"], "FAILED"),
        (lambda: fuzz.command("describe", "--option"), "refused"),
    ],
)
def test_a_fuzzed_input_ends_in_a_result_in_words_or_as_a_failure(monkeypatch, capsys, end, how):
    monkeypatch.setitem(fuzz.KINDS, "planted", lambda draw, folder: end())
    assert fuzz.run([3], 60, "planted") == {("planted", how): 1}
    said = capsys.readouterr().out
    assert ("FAILED planted, seed 3: KeyError: 'a key'" in said) == (how == "FAILED")
