"""Matrix capsules: three routed layers, each of which can be looked into."""

from functools import partial

import pytest
import torch
from helpers.fixtures import build_matrix
from helpers.random_tensors import draw

import capsviz
from capsviz.nn import models, routing
from capsviz.nn.links import Links
from capsviz.nn.quantity import ALONG_POSE
from capsviz.tracing import from_children, verification

SHAPE = (1, 17, 15)  # grids of 9 x 8, 4 x 3 and 2 x 1 places
build = partial(build_matrix, SHAPE)


@pytest.fixture
def images():
    return draw(3, *SHAPE, seed=1, dtype=torch.float32).sigmoid()


def test_it_has_the_grids_and_the_weights_of_the_paper():
    with torch.device("meta"):
        small = models.build("matrix_capsnet", (1, 28, 28), 10)
        paper = models.build("matrix_capsnet", (1, 28, 28), 10, channels=32, types=(32, 32, 32))
    assert small.grids == [(8, 14, 14), (16, 6, 6), (16, 4, 4)]
    assert paper.grids == [(32, 14, 14), (32, 6, 6), (32, 4, 4)]
    windows = 2 * 9 * 32 * 32 * 16 + 32 * 10 * 16
    primary = 32 * 32 * 17 + 32 * 17
    first = 32 * 25 + 32
    betas = 2 * (32 + 32 + 10)
    assert sum(p.numel() for p in paper.parameters()) == windows + primary + first + betas


def test_it_is_em_routing_layer_by_layer(images):
    model = build(iterations=2).double()
    x = images[:1].double()
    features = model.conv1(x).relu()
    poses = model.poses(features).view(1, 2, 16, 9, 8)
    active = (model.logits(features) - 1).sigmoid()
    children, presence = poses.movedim(2, 4).reshape(72 * 2, 16), active.flatten()
    for n, layer in enumerate(model.layers):
        types, rows, columns = model.grids[n]
        kernel, stride = [(3, 2), (3, 1), (max(rows, columns), 1)][n]
        count = types * rows * columns
        where = []  # (child, matrix) of every slot of every place
        for row in range(layer.grid[1]):
            for column in range(layer.grid[2]):
                slots = []
                for kind in range(types):
                    for y in range(kernel if n < 2 else rows):
                        for z in range(kernel if n < 2 else columns):
                            child = (kind * rows + row * stride + y) * columns + column * stride + z
                            matrix = kind if n == 2 else (kind * 3 + y) * 3 + z
                            slots.append((child, matrix, y, z))
                where.append(slots)
        votes = torch.stack([
            torch.stack([
                torch.stack([
                    (children[child].view(4, 4) @ layer.weight[matrix, j].T).flatten()
                    for j in range(layer.parent_types)
                ])
                for child, matrix, _, _ in slots
            ])
            for slots in where
        ])[None]  # fmt: skip
        if n == 2:
            for slot, (_, _, y, z) in enumerate(where[0]):
                votes[0, 0, slot, :, 3] += (y + 0.5) / rows
                votes[0, 0, slot, :, 7] += (z + 0.5) / columns
        links = Links(torch.tensor([[s[0] for s in slots] for slots in where]), count)
        found = routing.get("em").route(
            votes, iterations=2, activations=presence[None], links=links,
            final_temperature=layer.parent_types / len(where[0]),
            beta_u=layer.learned["beta_u"], beta_a=layer.learned["beta_a"],
        )  # fmt: skip
        children = found.poses[-1][0].transpose(0, 1).flatten(0, 1)
        presence = found.activations[-1][0].T.flatten()
    output = model(x)
    torch.testing.assert_close(output.poses[0], children, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(output.lengths[0], presence, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", routing.available())
def test_every_routing_gives_the_same_looked_at_and_not(name, images):
    model = build(routing=name, reconstruction_weight=0.1)
    with torch.inference_mode():
        plain = model(images)
    for layer in range(3):
        trace = capsviz.trace(model, images, layer=layer)
        types, rows, columns = trace.grid
        assert trace.grid == model.grids[layer] and trace.pose_shape == (4, 4)
        assert trace.children.shape == (3, types * rows * columns, 16)
        assert (trace.links is None) == (layer == 2)
    torch.testing.assert_close(trace.lengths, plain.lengths, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(trace.poses[-1], plain.poses, rtol=1e-3, atol=1e-4)
    assert trace.reconstruction.shape == images.shape
    for number in (1, 3, 7):
        generator = torch.Generator().manual_seed(number)
        more = torch.rand(number, *SHAPE, generator=generator)
        assert model(more).lengths.shape == (number, 3)


@pytest.mark.parametrize("name", ["dynamic", "self_routing", "em"])
def test_its_look_says_the_truth(name, images):
    with torch.inference_mode():
        model = build(reconstruction_weight=0.1, routing=name)
        mistakes = list(verification.mistakes(model, images))
    if name == "em":  # places compete: what one sees moves what another gets, beyond its field
        assert len(mistakes) == 1 and "receptive fields" in mistakes[0]
    else:
        assert mistakes == []


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_layer_takes_couplings_and_the_others_route_on(layer, images):
    model = build()
    plain = capsviz.trace(model, images, layer=layer)
    again = capsviz.trace(model, images, layer=layer, couplings=plain.couplings[-1])
    even = capsviz.trace(model, images, layer=layer, couplings="uniform")
    assert torch.allclose(again.couplings[-1], plain.couplings[-1])
    assert (even.poses[-1] - plain.poses[-1]).abs().max() > 1e-3
    sums = even.couplings[-1].sum((1, 3)) if layer < 2 else even.couplings[-1].sum(2)
    if layer == 2:
        torch.testing.assert_close(sums, torch.ones_like(sums))
    with pytest.raises(ValueError, match="couplings"):
        capsviz.trace(model, images, layer=layer - 1, couplings=plain.couplings[-1])


@pytest.mark.parametrize("name", ["em", "inverted_attention", "variational"])
def test_the_classes_follow_from_the_children_of_any_layer(name, images):
    model = build(routing=name)
    with torch.inference_mode():
        plain = model(images)
        for layer in (0, 1, 2, -1):
            seen = capsviz.trace(model, images, layer=layer)
            children = (seen.children, seen.child_activations)
            for couplings in (None, seen.couplings[-1]) if layer in (2, -1) else (None,):
                again = model.from_children(*children, layer=layer, couplings=couplings)
                looked = capsviz.trace(model, images, couplings=couplings)
                expected = plain.lengths if couplings is None else looked.lengths
                torch.testing.assert_close(again.activations, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("layer", [0, 1, 2, -1])
def test_only_pixels_of_its_receptive_field_change_a_child(layer, images):
    model = build()
    types, rows, columns = model.grids[layer]
    other = images.roll(1, 0)
    for row, column in {(0, 0), (rows - 1, columns - 1)}:
        ys, xs = model.receptive_field(row, column, layer)
        outside = other.clone()
        outside[:, :, ys, xs] = images[:, :, ys, xs]
        numbers = [(kind * rows + row) * columns + column for kind in range(types)]
        parts = ("children", "votes")
        plain = capsviz.trace(model, images, layer=layer, keep=parts)
        moved = capsviz.trace(model, outside, layer=layer, keep=parts)
        if layer == 0:  # above, parents of other places compete for the same children
            assert torch.equal(plain.children[:, numbers], moved.children[:, numbers])
        changed = capsviz.trace(model, other, layer=layer, keep=parts).children
        assert (changed[:, numbers] - plain.children[:, numbers]).abs().max() > 1e-4


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"pose": (4, 3)}, "pose must be a square matrix, at least 2 x 2, got"),
        ({"types": (8, 16)}, "types"),
        ({"image_shape": (1, 12, 17)}, "1 x 12 x 17 are too small for two capsule layers"),
    ],
)
def test_what_makes_no_network_is_refused(options, match):
    with pytest.raises(ValueError, match=match):
        models.build("matrix_capsnet", **{"image_shape": SHAPE, "classes": 3, **options})


@pytest.mark.parametrize("name", ["em", "variational"])
def test_capsules_keep_their_precision_under_autocast(name, images):
    model = build(routing=name)
    with torch.autocast("cpu", torch.bfloat16):
        found = [*model.encode(images), *model(images)]
    assert {x.dtype for x in found} == {torch.float32}
    features = model.conv1(images).relu()
    close = partial(torch.testing.assert_close, rtol=0.02, atol=0.02)
    close(found[0], model.to_capsules(model.poses(features), model.logits(features)).poses)


def test_what_batch_norm_of_parents_has_seen_is_stored_by_the_names_of_earlier_files(images):
    model, again = build(routing="variational").train(), build(routing="variational")
    model(images)
    state = model.eval().state_dict()
    assert "norms.2.logits.running_var" in state and not any("layers.2.norm" in k for k in state)
    again.load_state_dict(state)
    assert torch.equal(again(images).lengths, model(images).lengths)


@pytest.mark.parametrize("name", ["dynamic", "self_routing"])
@pytest.mark.parametrize("layer", [0, -1])
def test_lists_of_couplings_are_taken_in_every_layer_and_of_that_length_alone(name, layer, images):
    model = build(routing=name)
    seen = capsviz.trace(model, images, layer=layer)
    children = seen.children, seen.child_activations
    rounds = len(seen.couplings)
    again = from_children(model, *children, layer=layer, couplings=[None] * rounds)
    torch.testing.assert_close(again, capsviz.trace(model, images).lengths, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=f"couplings for {rounds} iterations, got {rounds + 1}"):
        from_children(model, *children, layer=layer, couplings=[None] * (rounds + 1))


@pytest.mark.parametrize("name", routing.available())
def test_every_weight_has_a_say_in_what_is_said(name):
    """Else several processes cannot be trained together: PyTorch waits for its gradient."""
    options = {"types": [2, 2, 2], "channels": 8, "routing": name}
    model = models.build("matrix_capsnet", (1, 20, 20), 10, **options)
    output = model(torch.rand(3, 1, 20, 20))
    (output.lengths.square().sum() + output.poses.square().sum()).backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_a_layer_that_there_is_not_has_no_receptive_field():
    model = models.build("matrix_capsnet", SHAPE, 3, types=(2, 2, 2))
    assert model.receptive_field(0, 0, 2) == model.receptive_field(0, 0)
    with pytest.raises(IndexError):
        model.receptive_field(0, 0, 3)


def test_hidden_capsules_of_inverted_attention_have_no_head(images):
    model = models.build(
        "matrix_capsnet", SHAPE, 3, types=(2, 2, 2), routing="inverted_attention"
    ).eval()
    hidden, classes = (capsviz.trace(model, images, layer=layer).quantity for layer in (0, -1))
    assert hidden == ALONG_POSE and classes != ALONG_POSE
