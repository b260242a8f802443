"""A whole run: what is stored is what was measured, and a finished run is not measured again."""

import errno
import json
import os
import shutil
import tempfile
from dataclasses import replace

import pytest
import torch
from helpers.training_runs import RECIPE, stop_after_saving

from capsviz import checkpoint, data, files
from capsviz.inputs.opening import open_inputs
from capsviz.tracing.record import NotFiniteError
from capsviz.training import cards, history, train
from capsviz.training import run as pipeline
from capsviz.training.evaluate import evaluate
from capsviz.training.thresholds import thresholds
from capsviz.training.train import build_model


@pytest.fixture(scope="module")
def finished(splits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    return folder, *pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"))


def test_the_card_holds_what_the_stored_weights_do(finished, splits):
    folder, path, card = finished
    assert path == folder / "x.safetensors"
    again = json.loads(json.dumps(evaluate(checkpoint.load(path), splits["test"])._asdict()))
    assert card["results"]["test"] == again
    assert card["training"]["images"] == 256 and len(card["training"]["commits"]) == 1
    assert card["dataset"]["things"] == 1 and card["dataset"]["whole"] == [1, 28, 28]
    assert card["thresholds"] == thresholds(checkpoint.load(path), splits["validation"])


def test_the_shipped_weights_of_a_data_set_see_the_images_that_their_card_names(monkeypatch):
    asked = []

    def load(name, split, root=None, **options):
        asked.append((name, options))
        raise KeyboardInterrupt

    monkeypatch.setattr("capsviz.data.load", load)
    for given in ({"checkpoint": "multimnist"}, {"dataset": "multimnist"}):
        with pytest.raises(KeyboardInterrupt):
            open_inputs(**given, device="cpu")
    assert asked == [("multimnist", {"pairs": 4})] * 2


@pytest.mark.parametrize(("ground", "channels", "on"), [(150, 3, 1), (230, 1, 1), (0, 3, 0)])
def test_own_images_of_a_bright_ground_are_standardised_unless_something_else_decides(
    ground, channels, on
):
    images = torch.full((40, channels, 12, 12), ground, dtype=torch.uint8)
    images[:, :, 4:8, 4:8] = 90
    part = data.Dataset(images, [0, 1] * 20, kind="folder")
    said, recipe = [], replace(RECIPE, dataset="folder", options={})
    suited = pipeline.suited(recipe, part, report=said.append)
    assert suited.options == ({"standardised": True} if on else {}) and len(said) == on
    assert pipeline.suited(recipe, part, earlier={"options": {}}) == recipe  # of a run without it
    assert pipeline.suited(recipe, part, earlier=vars(suited)) == suited
    assert pipeline.suited(recipe, replace(part, kind="mnist")) == recipe
    for more in ({"options": {"standardised": False}}, {"model": "resnet"}, {"init_from": "x"}):
        other = replace(recipe, **more)
        assert pipeline.suited(other, part) == other


def test_that_nothing_is_learned_is_said_after_the_epoch_in_which_it_is_known(
    splits, tmp_path, monkeypatch
):
    monkeypatch.setattr(train, "LEARNED", 4)  # steps: two in an epoch
    said, recipe = [], replace(RECIPE, epochs=3, learning_rate=1e-9)
    pipeline.run("x", recipe, splits, tmp_path, device="cpu", report=said.append)
    starts = [line.partition(":")[0] for line in said[1:]]
    assert starts[:3] == ["epoch 1/3", "epoch 2/3", "WARN validation, epoch 2"]
    assert "--learning-rate" not in "".join(said) and starts[-1] == "epoch 3/3"


@pytest.mark.parametrize(
    ("cost", "stored"), [(0.0004, "float16"), (0.1, "float32"), (None, "float32")]
)
def test_weights_are_stored_in_half_unless_that_costs_much_validation_accuracy(
    cost, stored, finished, splits, tmp_path, monkeypatch
):
    assert finished[2]["weights"]["stored_as"] == "float16"
    measured = []

    def worse(model, part):
        found = evaluate(model, part)
        measured.append(found)
        if cost is None:  # numbers too large for float16
            if len(measured) == 2:
                raise NotFiniteError("infinite")
            return found
        return found._replace(accuracy=0.9 - cost * len(measured))

    monkeypatch.setattr(cards, "evaluate", worse)
    recipe = replace(RECIPE, epochs=1)
    _, card = pipeline.run("x", recipe, splits, tmp_path, device=torch.device("cpu"))
    assert card["weights"]["stored_as"] == stored


def test_a_finished_run_does_not_read_the_test_set_again(finished, splits, monkeypatch):
    def forbidden(*_, **__):
        raise AssertionError("evaluated again")

    monkeypatch.setattr(cards, "evaluate", forbidden)
    folder, path, card = finished
    again = pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert again == (path, card)


@pytest.mark.parametrize("killed", ["before the card", "in the card", "before the recipe"])
def test_a_run_that_was_killed_while_it_ended_is_ended(finished, splits, tmp_path, killed):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "x.toml").unlink()
    if killed != "before the recipe":
        (folder / "x.json").unlink()
    if killed == "in the card":
        (folder / "x.json").write_text('{"format": 1, "na')
    path, _ = pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert checkpoint.load(path).card["results"] == finished[2]["results"]
    assert checkpoint.sha256(path) == checkpoint.sha256(finished[1])
    assert (folder / "x.toml").is_file()


def test_weights_of_every_nth_epoch_are_kept_as_checkpoints(splits, tmp_path):
    recipe = replace(RECIPE, epochs=4, limit=64, keep="last")
    told = {"device": torch.device("cpu"), "save_every": 2}
    path, _ = pipeline.run("x", recipe, splits, tmp_path, **told)
    kept = sorted((tmp_path / "epochs").glob("*.safetensors"))
    assert [p.name for p in kept] == ["x-2.safetensors", "x-4.safetensors"]
    halfway, last = map(checkpoint.load, kept)
    assert halfway.card["training"]["epoch"] == 2 and halfway.card["dataset"]["name"] == "digits"
    for name, value in checkpoint.load(path).state_dict().items():
        assert torch.equal(last.state_dict()[name].half(), value.half())
        assert not torch.equal(halfway.state_dict()[name], last.state_dict()[name])
    assert checkpoint.find(tmp_path) == path
    with pytest.raises(ValueError, match="--save-every must be at least 1 epoch, got 0"):
        pipeline.run("y", recipe, splits, tmp_path / "y", **{**told, "save_every": 0})
    assert not (tmp_path / "y").exists()


def test_weights_of_an_epoch_are_kept_of_a_run_that_is_stopped_as_the_epoch_ends(
    splits, tmp_path, monkeypatch
):
    recipe = replace(RECIPE, epochs=3, limit=64)
    how = {"device": torch.device("cpu"), "save_every": 1}
    save = stop_after_saving(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        pipeline.run("x", recipe, splits, tmp_path, **how)
    monkeypatch.setattr(history, "save", save)
    pipeline.run("x", recipe, splits, tmp_path, **how, resume=True)
    kept = sorted(path.name for path in (tmp_path / "epochs").glob("*.safetensors"))
    assert kept == ["x-1.safetensors", "x-2.safetensors", "x-3.safetensors"]


def test_what_was_half_written_is_cleared_away_and_nothing_else(finished, splits, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / "x.toml").unlink()  # it was killed before the end
    (folder / "epochs").mkdir()
    for name in ("x.safetensors", "x.json", "x.toml", "epochs/x-1.json", "epochs/x-12.safetensors"):
        path = folder / name
        os.close(tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")[0])
    others = {folder / ".y.json.abcdefgh", folder / ".x.json.backup", folder / ".x"}
    for path in others:
        path.write_text("not ours")
    pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)
    assert set(folder.rglob(".*")) == others | {folder / files.LOCK}


def test_weights_of_ones_own_beside_a_run_are_kept(splits, tmp_path):
    own = tmp_path / "best-model.safetensors", tmp_path / "best-2b.safetensors"
    for path in own:
        path.write_bytes(b"mine")
    how = {"device": torch.device("cpu"), "resume": True}
    recipe = replace(RECIPE, limit=64, epochs=1, schedule="constant")
    pipeline.run("best-small", recipe, splits, tmp_path, **how)
    stored = tmp_path / "best-small.safetensors"
    longer = replace(recipe, epochs=2)
    stop = {"report": lambda line: stored.is_file() or pytest.fail("its own weights are gone")}
    pipeline.run("best-small", longer, splits, tmp_path, **how, **stop)
    assert all(path.read_bytes() == b"mine" for path in own)


@pytest.mark.parametrize(("lacks", "resume"), [("x.safetensors", False), ("x.json", True)])
def test_weights_without_the_state_of_their_run_are_not_overwritten(
    finished, splits, tmp_path, lacks, resume
):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    (folder / checkpoint.STATE).unlink()
    (folder / lacks).unlink()
    before = {path: path.read_bytes() for path in folder.glob("x.*")}
    said = r"x\.\w+ would be overwritten: .*--output.*--resume needs state.safetensors"
    with pytest.raises(ValueError, match=said):
        pipeline.run("x", RECIPE, splits, folder, device=torch.device("cpu"), resume=resume)
    assert {path: path.read_bytes() for path in folder.glob("x.*")} == before


def test_two_processes_do_not_train_in_one_folder(splits, tmp_path):
    with files.locked(tmp_path), pytest.raises(BlockingIOError, match="is training in"):
        pipeline.run("x", RECIPE, splits, tmp_path, device=torch.device("cpu"))
    assert [path.name for path in tmp_path.iterdir()] == [files.LOCK]
    with files.locked(tmp_path), files.locked(tmp_path / "new/er"):  # it was let go
        pass
    assert [path.name for path in tmp_path.iterdir()] == [files.LOCK]  # new/ is not left behind


def test_the_recipe_beside_the_weights_makes_them_again(finished, splits, tmp_path):
    folder, path, _ = finished
    name, recipe = pipeline.prepare(str(folder / "x.toml"), {})
    again, _ = pipeline.run(name, recipe, splits, tmp_path, device=torch.device("cpu"))
    assert checkpoint.sha256(again) == checkpoint.sha256(path)


def test_a_run_that_stopped_early_is_finished_and_its_card_says_so(splits, tmp_path, monkeypatch):
    alike = evaluate(build_model(RECIPE, splits["train"]), splits["validation"])
    monkeypatch.setattr(train, "evaluate", lambda model, part: alike)
    recipe = replace(RECIPE, epochs=9, early_stop=2, limit=64)
    lines, asked = [], {"device": torch.device("cpu")}
    logged = []
    asked["log"] = lambda *given: logged.append(given)
    path, card = pipeline.run("x", recipe, splits, tmp_path, **asked, report=lines.append)
    assert [given[:2] for given in logged[:3]] == [(1, "train"), (1, "validation"), (2, "train")]
    assert logged[1][2]["accuracy"] == alike.accuracy and "loss" in logged[0][2]
    assert card["training"]["stopped_early"] is True and card["training"]["epochs"] == 3
    assert lines[-1].startswith("stopped early, after epoch 3 of 9")
    monkeypatch.setattr(cards, "evaluate", None)
    assert pipeline.run("x", recipe, splits, tmp_path, **asked, resume=True) == (path, card)


def test_training_images_are_whole_and_the_others_are_centre_crops(tmp_path):
    recipe = replace(RECIPE, crop_px=20, pad_px=1, epochs=1, limit=64)
    splits = {split: pipeline.load(recipe, split) for split in data.SPLITS}
    assert [splits[k].image_shape for k in data.SPLITS] == [(1, 30, 30), (1, 20, 20), (1, 20, 20)]
    whole = data.load("digits", "test", pad_px=1).images
    assert torch.equal(splits["test"].images, whole[:, :, 5:25, 5:25])
    path, card = pipeline.run("x", recipe, splits, tmp_path, device=torch.device("cpu"))
    assert card["dataset"]["options"] == {"pad_px": 1, "crop_px": 20}
    found = open_inputs(checkpoint=str(path), device="cpu")
    assert found.dataset.image_shape == (1, 20, 20) == tuple(found.model.config["image_shape"])
    assert evaluate(found.model, found.dataset).accuracy == card["results"]["test"]["accuracy"]


def test_splits_that_could_not_be_evaluated_are_refused_before_the_training(splits, tmp_path):
    smaller = {**splits, "test": splits["test"].crop(20)}
    message = r"test split are \(1, 20, 20\), but training images \(1, "
    with pytest.raises(ValueError, match=message):
        pipeline.run("x", RECIPE, smaller, tmp_path, device=torch.device("cpu"))
    fewer = {**splits, "validation": replace(splits["validation"], classes=tuple("abcdefghij"))}
    with pytest.raises(ValueError, match="the validation split of digits has other classes"):
        pipeline.run("x", RECIPE, fewer, tmp_path, device=torch.device("cpu"))
    assert list(tmp_path.iterdir()) == []


def test_a_network_takes_the_scaling_and_the_order_of_classes_of_the_one_it_starts_from(
    splits, tmp_path
):
    recipe = replace(RECIPE, options={**RECIPE.options, "standardised": True}, limit=64, epochs=1)
    path, _ = pipeline.run("bright", recipe, splits, tmp_path, device=torch.device("cpu"))
    said, start = [], replace(RECIPE, init_from=str(path))
    suited = pipeline.suited(start, splits["train"], report=said.append)
    assert suited.options["standardised"] is True and f"as '{path}' does" in said[0]
    assert pipeline.suited(replace(RECIPE, init_from="digits"), splits["train"]).options == (
        RECIPE.options
    )
    gone = replace(start, init_from="gone")
    assert pipeline.suited(gone, splits["train"], earlier=vars(suited)).options["standardised"]
    model = build_model(suited, splits["train"])
    with pytest.raises(ValueError, match="the same classes in another order"):
        train.start_from(model, str(path), classes=splits["train"].classes[::-1])


def test_a_second_network_is_not_written_into_the_folder_of_another(finished, splits, tmp_path):
    folder = shutil.copytree(finished[0], tmp_path / "run")
    with pytest.raises(
        ValueError, match=r"x\.safetensors is another network than y: .*repeat its command"
    ):
        pipeline.run("y", RECIPE, splits, folder, device=torch.device("cpu"), resume=True)


def test_a_card_names_the_data_set_and_not_the_alias_by_which_it_was_asked_for(splits, tmp_path):
    recipe = replace(RECIPE, dataset="npz")
    own = {name: replace(part, kind="arrays") for name, part in splits.items()}
    card = cards.describe(tmp_path / "x.safetensors", recipe, own, torch.device("cpu"), {})
    assert card["dataset"]["name"] == "arrays"


def test_a_folder_that_cannot_be_locked_is_refused_before_the_training(
    splits, tmp_path, monkeypatch
):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("filelock.FileLock.acquire", denied)
    with pytest.raises(PermissionError):
        pipeline.run("x", RECIPE, splits, tmp_path, device=torch.device("cpu"))
