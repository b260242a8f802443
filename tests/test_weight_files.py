"""Weights are opened by their content: what PyTorch, Lightning, timm and own scripts write."""

import argparse
import collections
import pathlib

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

from capsviz.checkpoint.containers import fitted, load_into
from capsviz.training.train import start_from


def build(seed=1):
    torch.manual_seed(seed)
    parts = {"conv": nn.Conv2d(1, 2, 3), "norm": nn.BatchNorm2d(2), "caps": nn.Linear(2, 3)}
    return nn.ModuleDict(parts)


STATE = build(0).state_dict()
EXTRAS = {  # of training scripts
    "args": argparse.Namespace(lr=1e-3, out=pathlib.Path("runs")),
    "best_acc1": np.float64(0.97),
    "history": collections.defaultdict(list, loss=[np.float32(1)]),
    "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": [{"lr": 1e-3}]},
}


def under(prefix, state=STATE):
    return {prefix + key: value for key, value in state.items()}


FILES = {  # what is saved, by the name of the file
    "model_best.pth.tar": {"epoch": 3, "state_dict": STATE, **EXTRAS},
    "lightning.ckpt": {
        "state_dict": under("model.") | {"criterion.weight": torch.ones(3)},
        "hyper_parameters": EXTRAS["args"], "optimizer_states": [EXTRAS["optimizer"]],
    },
    "own.tar": {"epoch": 3, "capsnet": STATE, "decoder": {"fc.weight": torch.ones(4)}},
    "module_inside_model.pt": under("model.module."),
    "inside.pt": {k.replace("conv.", "conv.module."): v for k, v in STATE.items()},
    "nested": {"checkpoint": {"nets": {"student": under("module._orig_mod.")}}},
    "mixed.bin": {**STATE, "epoch": 3, "classes": ["a", "b"]},
    "timm.pth": {"state_dict": STATE, "state_dict_ema": {k: v + 1 for k, v in STATE.items()}},
    "before_1.0": {k: v for k, v in STATE.items() if not k.endswith("num_batches_tracked")},
    "legacy.weights": STATE,
}  # fmt: skip


def test_what_others_allow_to_be_unpickled_changes_nothing(tmp_path):
    torch.save(FILES["model_best.pth.tar"], tmp_path / "x.tar")
    with torch.serialization.safe_globals([np.float64, np._core.multiarray.scalar]):
        before = set(torch.serialization.get_safe_globals())
        network = build()
        load_into(network, tmp_path / "x.tar", "mine")
        assert set(torch.serialization.get_safe_globals()) == before
    assert same(network)


def same(network):
    state = network.state_dict()
    return all(torch.equal(state[k], v) for k, v in STATE.items() if "tracked" not in k)


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_opened_by_what_it_holds(tmp_path, name):
    zipped = name != "legacy.weights"
    torch.save(FILES[name], tmp_path / name, _use_new_zipfile_serialization=zipped)
    network = build()
    note = load_into(network, tmp_path / name, "mine")
    assert same(network)
    used = "timm.pth also holds state_dict_ema: state_dict is used"
    assert note == (used if name == "timm.pth" else "")
    assert start_from(other := build(), str(tmp_path / name)) and same(other)


def test_safetensors_are_known_by_their_header_and_a_wrapper_of_the_network_is_seen_through(
    tmp_path,
):
    save_file(STATE, tmp_path / "weights")
    network = nn.ModuleDict({"net": build()})
    load_into(network, tmp_path / "weights", "mine")
    assert same(network["net"])


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
def test_torch_loads_older_names_of_weights_by_its_own_hooks(tmp_path):
    older, newer = nn.Sequential(nn.Linear(2, 3)), nn.Sequential(nn.Linear(2, 3))
    weight_norm(older[0])
    parametrizations.weight_norm(newer[0])
    torch.save({"model": older.state_dict()}, tmp_path / "x.pt")  # 0.weight_g and 0.weight_v
    load_into(newer, tmp_path / "x.pt", "mine")
    assert torch.allclose(newer[0].weight, older[0].weight)


def test_a_mismatch_names_keys_and_shapes_and_the_nearest_first(tmp_path):
    held = dict(STATE) | {"caps.weight": torch.ones(7, 2), "fc": torch.ones(9)}
    held["convolution.weight"] = held.pop("conv.weight")
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(ValueError) as error:
        load_into(build(), tmp_path / "x.pt", "a.py:build")
    assert str(error.value).split("a.py:build: ")[1] == (
        "1 are of another size: caps.weight (7, 2), expected (3, 2); "
        "1 are missing: conv.weight (2, 1, 3, 3) (nearest: convolution.weight (2, 1, 3, 3)); "
        "2 are not the network's: fc (9,), convolution.weight (2, 1, 3, 3)"
    )


def test_two_networks_of_one_kind_in_a_file_are_ambiguous_unless_they_are_equal(tmp_path):
    held = {"student": STATE, "teacher": {k: v + 1 for k, v in STATE.items()}}
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(ValueError, match="fit in student and in teacher: save one of them alone"):
        fitted(tmp_path / "x.pt", STATE)
    torch.save({"student": STATE, "teacher": STATE}, tmp_path / "x.pt")
    load_into(network := build(), tmp_path / "x.pt", "mine")
    assert same(network)


class Runs:
    """A pickle that would run code."""

    def __reduce__(self):
        return exec, ("raise SystemExit('ran')",)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (build(), r"pickled objects \(.*ModuleDict.*save network.state_dict\(\)"),
        (Runs(), "pickled objects|cannot be read with weights_only=True"),
        ({"state_dict": STATE, "x": Runs()}, None),
        (b"not a file of torch", "cannot be read with weights_only=True"),
        (b"", "cannot be read with weights_only=True"),
    ],
)
def test_no_code_of_a_file_is_run_and_what_is_not_weights_is_refused(tmp_path, held, said):
    path = tmp_path / "x.pt"
    path.write_bytes(held) if isinstance(held, bytes) else torch.save(held, path)
    if said is None:
        load_into(network := build(), path, "mine")
        assert same(network)
    else:
        with pytest.raises(ValueError, match=said) as error:
            load_into(build(), path, "mine")
        assert "\n" not in str(error.value)
