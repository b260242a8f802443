"""TensorBoard: what was written is read back from the event files."""

import io
import time

import numpy as np
import pytest
import torch
from helpers.bright_thirds import one_third, two_thirds
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from capsviz.nn import models
from capsviz.training import tensorboard
from capsviz.training.history import Epoch
from capsviz.training.tensorboard import Writer, reconstructions
from capsviz.transforms.augment import to_float, to_uint8


def epoch(number):
    parts = {"train_margin_loss": 0.4 / number, "train_reconstruction_loss": None}
    return Epoch(number, 0.5 / number, 0.25, 0.75, 0.125, None, 0.001, 2.0, "abc", **parts)


def write(folder, part, model, *numbers, finished=0):
    """Log epochs by these numbers; return everything in the event files of the folder."""
    writer = Writer(folder, part, finished)
    for number in numbers:
        writer(epoch(number), model)
    writer.close()
    events = EventAccumulator(str(folder), size_guidance={"histograms": 0, "images": 0})
    return events.Reload()


def wait_for_the_next_second():
    """Event files are read by name: of one process and second, number 10 comes before number 9."""
    begun = int(time.time())
    while int(time.time()) == begun:
        time.sleep(0.01)


@pytest.fixture
def model():
    torch.manual_seed(0)
    options = {"channels": 5, "types": 2, "primary_dimensions": 4, "hidden": (8, 9)}
    return models.build("capsnet", (1, 21, 21), 3, **options)


@pytest.fixture
def part(generator):
    return one_third(generator)[1]


def test_scalars_of_every_epoch_are_read_back(model, part, tmp_path):
    events = write(tmp_path, part, model, 1, 2)
    assert [(e.step, e.value) for e in events.Scalars("train_loss")] == [(1, 0.5), (2, 0.25)]
    expected = {"train_loss", "train_accuracy", "validation_accuracy", "validation_margin_loss",
                "train_margin_loss", "learning_rate", "seconds"}  # fmt: skip
    assert set(events.Tags()["scalars"]) == expected


def test_large_tensors_are_counted_in_part_and_what_is_not_finite_is_left_out(
    model, part, tmp_path, monkeypatch
):
    monkeypatch.setattr(tensorboard, "VALUES", 10)
    for p in model.parameters():
        p.grad = torch.full_like(p, float("nan"))
    model.conv1.bias.grad[:2] = torch.tensor([3.0, float("inf")])
    events = write(tmp_path, part, model, 1)
    counted = events.Histograms("weights/conv1.weight")[0].histogram_value
    every = model.conv1.weight.detach().flatten()[:: -(-405 // 10)]
    assert counted.num == len(every) <= 10 and counted.max == float(every.max())
    tags = [tag for tag in events.Tags()["histograms"] if tag.startswith("gradients/")]
    assert tags == ["gradients/conv1.bias"]
    assert events.Histograms(tags[0])[0].histogram_value.num == 1


def test_inputs_lie_above_their_reconstructions(model, part, tmp_path):
    (event,) = write(tmp_path, part, model, 1).Images("input_and_reconstruction")
    picture = np.asarray(Image.open(io.BytesIO(event.encoded_image_string)).convert("L"))
    assert picture.shape == (2 * 21, 16 * 21)
    np.testing.assert_array_equal(picture[:21, 21:42], part.images[1, 0].numpy())
    model.eval()
    with torch.no_grad():
        output = model(to_float(part.images[1:2]))
        made = model.decode(output.poses, output.lengths.argmax(1))
    difference = picture[21:, 21:42].astype(int) - to_uint8(made[0, 0])
    assert np.abs(difference).max() <= 1


def test_of_several_things_each_is_reconstructed_the_longest_capsule_first(
    model, generator, tmp_path
):
    several = two_thirds(generator)
    images = to_float(several.images[:5])
    picture = reconstructions(model, images, 2)
    assert picture.shape == (1, 3 * 21, 5 * 21)
    model.eval()
    with torch.no_grad():
        output = model(images)
        order = output.lengths.argsort(1, descending=True)
        for row in (0, 1):
            made = model.decode(output.poses, order[:, row])
            found = picture[:, 21 * (row + 1) : 21 * (row + 2)].unflatten(2, (5, 21))
            torch.testing.assert_close(found, made.permute(1, 2, 0, 3))
    (event,) = write(tmp_path, several, model, 1).Images("input_and_reconstruction")
    assert (event.height, event.width) == (3 * 21, 16 * 21)


def test_a_resumed_run_keeps_all_of_its_epochs_and_writes_none_twice(model, part, tmp_path):
    write(tmp_path, part, model, 1, 2, 3)  # the state of the third was never written
    wait_for_the_next_second()
    events = write(tmp_path, part, model, 3, finished=2)
    assert [e.step for e in events.Scalars("train_loss")] == [1, 2, 3]
    assert [e.step for e in events.Histograms("weights/conv1.weight")] == [1, 2, 3]
    assert [e.step for e in events.Images("input_and_reconstruction")] == [1, 2, 3]
