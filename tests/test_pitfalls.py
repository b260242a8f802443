"""Mistakes of public capsule-network code that capsviz's own training and networks must not have.

Others are tested where the code is (tests/nn, tests/training), or by `capsviz check` on our own
networks (tests/checks/test_checks.py).
"""

from dataclasses import replace

import pytest
import torch
from helpers import source_code as sources
from helpers.fixtures import build_strong

import capsviz
from capsviz.data import Dataset
from capsviz.nn import models
from capsviz.training import run as pipeline
from capsviz.training import train
from capsviz.training.evaluate import evaluate
from capsviz.training.recipe import Recipe
from capsviz.transforms import augment


@pytest.fixture
def part(generator):
    """30 images for `tiny` in bytes, black and white among them."""
    images = torch.randint(0, 256, (30, 1, 21, 19), generator=generator, dtype=torch.uint8)
    images[0], images[1] = 0, 255
    return Dataset(images, torch.arange(30) % 3, ("a", "b", "c"), "noise", "test")


def test_pitfall_11_targets_lie_in_0_1_as_reconstructions_do(tiny, part, tmp_path):
    seen = fit_recorded(tiny, part, tmp_path, shift_px=0)["trained on"]
    targets = torch.cat(seen)
    expected = augment.to_float(part.images)
    assert targets.min() == 0 and targets.max() == 1
    order = [int((expected == t).flatten(1).all(1).nonzero()) for t in targets]
    assert sorted(order) == list(range(30))


def test_pitfall_14_training_moves_each_image_by_itself_and_validation_none(tiny, part, tmp_path):
    same = Dataset(part.images[2:3].expand(30, -1, -1, -1), part.labels, part.classes, "same", "-")
    seen = fit_recorded(tiny, same, tmp_path, shift_px=2)
    (batch,) = seen["trained on"]
    assert len(batch) == 30 and len(batch.unique(dim=0)) > 10
    assert torch.equal(torch.cat(seen["evaluated"]), augment.to_float(same.images))


def test_pitfall_15_the_test_set_chooses_nothing(part, tmp_path):
    options = {"channels": 5, "types": 2, "primary_dimensions": 4, "hidden": [8, 9]}
    recipe = Recipe(dataset="noise", epochs=3, batch_size=10, precision="fp32", options=options)
    stored = []
    for k, image in enumerate((part.images, part.images.flip(0))):
        splits = {"train": part, "validation": part, "test": replace(part, images=image)}
        folder = tmp_path / str(k)
        path, card = pipeline.run("x", recipe, splits, folder, device=torch.device("cpu"))
        stored.append((path.read_bytes(), card["training"]["epoch"], card["thresholds"]))
    assert stored[0] == stored[1]


def fit_recorded(model, part, folder, **options):
    """Train one epoch in one batch; the images of training steps and of the validation."""
    seen = {"trained on": [], "evaluated": []}
    forward, objective = model.forward, model.objective

    def record(output, images, labels):
        seen["trained on"].append(images.clone())
        return objective(output, images, labels)

    def look(images):
        if not model.training:
            seen["evaluated"].append(images.clone())
        return forward(images)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "forward", look)
        patch.setattr(model, "objective", record)
        patch.setattr(train, "build_model", lambda recipe, dataset: model)
        recipe = Recipe(dataset="noise", epochs=1, batch_size=30, precision="fp32", **options)
        train.fit(recipe, part, part, folder / "run")
    return seen


def test_pitfall_18_no_axis_is_taken_away_that_happens_to_have_length_one(part):
    assert evaluate(build_strong(), part.first(1)).n == 1
    ones = {"types": 1, "primary_dimensions": 1, "class_dimensions": 1}
    model = models.build("capsnet", (1, 17, 17), 2, channels=1, hidden=(1,), **ones)
    output = model(torch.rand(1, 1, 17, 17))
    assert output.primary.shape == (1, 1, 1) and output.poses.shape == (1, 2, 1)
    assert model.decode(output.poses, torch.tensor([1])).shape == (1, 1, 17, 17)
    seen = capsviz.trace(model, torch.rand(1, 1, 17, 17))
    assert seen.votes.shape == (1, 1, 2, 1) and seen.couplings.shape == (3, 1, 1, 2)
    assert seen.reconstruction.shape == (1, 1, 17, 17)


def test_pitfall_20_no_device_is_written_into_the_code():
    lines = {
        module: sources.devices(path.read_text(encoding="utf-8"))
        for module, path in sources.MODULES.items()
        # rooms that look for `.cuda()` in others' networks, and send it to their device
        if not module.startswith(("capsviz.wrapping", "capsviz.checks"))
    }
    assert {module: numbers for module, numbers in lines.items() if numbers} == {}
