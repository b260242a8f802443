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


def filled(value, prefix=""):
    return {prefix + key: torch.full_like(one, value) for key, one in STATE.items()}


@pytest.mark.parametrize(
    ("held", "note"),
    [
        (
            {"state_dict": filled(1, "model.") | filled(2, "ema_model.module.")},
            "state_dict.ema_model: state_dict.model is used",
        ),
        (
            {"model": filled(1), "ema": filled(2, "module.") | {"n_averaged": torch.tensor(5)}},
            "ema.module: model is used",
        ),
        ({"model": dict(list(filled(2).items())[1:]), "ema": filled(1)}, "model: ema is used"),
        (filled(2) | filled(1, "module."), "the top level: module is used"),
        (
            {"state_dict": filled(1, "module."), "state_dict_ema": filled(2, "module.")},
            "state_dict_ema.module: state_dict.module is used",
        ),
    ],
)
def test_of_several_sets_of_weights_the_one_that_is_used_is_said(tmp_path, held, note):
    torch.save(held, tmp_path / "x.pt")
    assert load_into(network := build(), tmp_path / "x.pt", "mine") == f"x.pt also holds {note}"
    lines = []
    start_from(other := build(), str(tmp_path / "x.pt"), lines.append)
    assert f"x.pt (x.pt also holds {note})" in lines[0]
    assert all((one["caps"].weight == 1).all() for one in (network, other))


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (filled(1, "online_model.") | filled(2, "ema_model."), "in online_model and in ema_model:"),
        (filled(1, "a.conv.") | filled(2, "a.conv.module."), "twice, with and without .module"),
    ],
)
def test_sets_of_weights_of_one_table_that_fit_as_well_are_refused(tmp_path, held, said):
    torch.save(held, tmp_path / "x.pt")
    with pytest.raises(ValueError, match=said):
        fitted(tmp_path / "x.pt", STATE)


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.", "model.module."])
def test_training_starts_from_safetensors_of_any_prefix(tmp_path, prefix):
    save_file(under(prefix), tmp_path / "x.safetensors")
    assert start_from(network := build(), str(tmp_path / "x.safetensors")) and same(network)


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.int32, torch.bool, torch.cfloat])
def test_weights_that_are_no_floating_point_numbers_are_refused(tmp_path, kind):
    torch.save({key: value.to(kind) for key, value in STATE.items()}, tmp_path / "x.pt")
    for opened in (load_into, lambda network, path, _: start_from(network, path)):
        with pytest.raises(ValueError, match=f"expected floating-point .*, got .* {kind}"):
            opened(network := build(), tmp_path / "x.pt", "mine")
        assert all(map(torch.equal, network.state_dict().values(), build().state_dict().values()))


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float64])
def test_floating_point_weights_of_any_precision_are_opened(tmp_path, kind):
    torch.save({k: v.to(kind) for k, v in filled(0.5).items()}, tmp_path / "x.pt")
    load_into(network := build(), tmp_path / "x.pt", "mine")
    assert (network["caps"].weight == 0.5).all() and network["norm"].num_batches_tracked == 0


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
        (b'{"weight_map": {}}', r"\.pt, \.pth, \.ckpt\), or one \.safetensors .*merged .* parts"),
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
