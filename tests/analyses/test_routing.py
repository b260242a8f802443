import numpy as np
import pytest
import torch
from helpers.fixtures import build_self_routing, build_tiny
from helpers.plain_capsnet import Foreign
from scipy import stats

from capsviz import results
from capsviz.analyses import routing
from capsviz.analyses.routing import survey
from capsviz.nn import models
from capsviz.nn.functional import lengths
from capsviz.statistics.intervals import RunningMean, paired_interval, wilson
from capsviz.tracing import control_couplings, measures, trace

NAMES = ["a", "b", "c"]
DIGITS = list("0123456789")


def one(model, image, **more):
    return routing.OneImage().measure(model, image, 1, classes=NAMES, **more)


def measured(model, images, labels, **more):
    return routing.OverImages().measure(
        model, images, labels, classes=NAMES, dataset="noise", **more
    )


def many(model, images, **more):
    labels = torch.arange(len(images)) % 3
    return measured(model, images, labels, **more), labels


@pytest.fixture
def foreign():
    """Of 3 classes for the images of `tiny`."""
    return Foreign((1, 21, 19), 3, grid=(3, 2, 4))


def before_squash(lengths):
    """Norm of what the squash of equation 1 made a capsule of this length of."""
    lengths = np.asarray(lengths, float)
    return np.sqrt(lengths / (1 - lengths))


def test_maps_sum_to_the_input_of_each_class_along_its_pose(tiny, foreign, tiny_images):
    for model in (tiny, foreign):
        result = one(model, tiny_images[:1])
        expected = before_squash(result.activations)
        np.testing.assert_allclose(result.map_sums, expected, rtol=1e-5)
        np.testing.assert_allclose(result.input_norms, expected, rtol=1e-5)
        np.testing.assert_allclose(result.maps.sum((1, 2)), expected, rtol=1e-5)
        control = before_squash(result.uniform_activations)
        np.testing.assert_allclose(result.uniform_map_sums, control, rtol=1e-5)


def test_maps_leave_out_the_bias_that_the_authors_add_inside_routing(tiny_images):
    model = build_tiny(preset="authors")
    result = one(model, tiny_images[:1])
    pose = trace(model, tiny_images[:1]).poses[-1, 0].double()
    along_pose = (model.capsules.bias.detach().double() * pose).sum(1) / pose.norm(dim=1)
    expected = before_squash(result.activations) - along_pose.numpy()
    np.testing.assert_allclose(result.map_sums, expected, rtol=1e-5)
    assert (np.abs(result.map_sums) < result.input_norms).all()


def test_maps_and_type_means_agree_with_loops_over_types_rows_and_columns(foreign, tiny_images):
    seen = trace(foreign, tiny_images[:1])
    types, rows, columns = seen.grid
    result = one(foreign, tiny_images[:1])
    maps, means = np.zeros((3, rows, columns)), np.zeros((2, types, 3))
    for t in range(types):
        for row in range(rows):
            for column in range(columns):
                i = (t * rows + row) * columns + column
                for j in range(3):
                    pose = seen.poses[-1, 0, j]
                    along = float(seen.votes[0, i, j] @ pose / pose.norm())
                    maps[j, row, column] += float(seen.couplings[-1, 0, i, j]) * along
                    means[:, t, j] += seen.couplings[:, 0, i, j].numpy() / (rows * columns)
    np.testing.assert_allclose(result.maps, maps, atol=1e-5)
    np.testing.assert_allclose(result.couplings, means, atol=1e-6)


def test_agreement_is_the_cosine_of_vote_and_pose_weighted_by_coupling(foreign, tiny_images):
    seen = trace(foreign, tiny_images[:1])
    for r in range(2):
        for j in range(3):
            cosines = torch.cosine_similarity(seen.votes[0, :, j], seen.poses[r, 0, j], dim=-1)
            expected = np.average(cosines, weights=seen.couplings[r, 0, :, j])
            assert one(foreign, tiny_images[:1]).agreement[r, j] == pytest.approx(expected, 1e-4)


def test_entropy_is_that_of_a_choice_or_of_no_choice():
    assert measures.entropy(torch.full((7, 5), 0.2)).exp().numpy() == pytest.approx(5)
    assert measures.entropy(torch.eye(5)).abs().max() == 0
    half = torch.tensor([[0.5, 0.5, 0.0]])
    assert measures.entropy(half).item() == pytest.approx(np.log(2))
    assert measures.entropy(0.3 * half).item() == pytest.approx(np.log(2))  # 0.7 of it withheld


def test_uniform_couplings_are_what_plain_dynamic_routing_has_after_one_iteration(
    tiny, tiny_images
):
    single = trace(tiny, tiny_images[:1], iterations=1)
    result = one(tiny, tiny_images[:1])
    np.testing.assert_allclose(result.uniform_activations, single.lengths[0], rtol=1e-6)
    assert np.ptp(result.couplings[0]) == 0
    result, _ = many(tiny, tiny_images)
    assert result.controls == ["uniform", "random", "shuffled", "matched"]
    assert result.control_changed.value[0] == 0
    assert result.control_accuracy.value[0] == result.accuracy.value[0]


def test_statistics_are_those_of_all_images_traced_at_once(
    monkeypatch, foreign, tiny_images, generator
):
    monkeypatch.setattr(routing, "MOST", 4)
    images = torch.cat([tiny_images, torch.rand(12, 1, 21, 19, generator=generator)])
    monkeypatch.setattr("capsviz.analyses.routing.survey.DRAWN_IMAGES", 7)
    result, labels = many(foreign, images)
    seen = trace(foreign, images)
    predicted = np.stack([trace(foreign, images, iterations=r).lengths for r in range(1, 5)])
    predicted = predicted.argmax(2)
    right, changed = (predicted == labels.numpy()).sum(1), (predicted != predicted[0]).sum(1)
    accuracy, change = result.accuracy, result.changed
    np.testing.assert_allclose(accuracy.value, right / 20)
    np.testing.assert_allclose(accuracy.ci95, [wilson(int(k), 20) for k in right])
    np.testing.assert_allclose(change.value, changed / 20)
    shares = [wilson(int(k), 20) for k in changed]
    np.testing.assert_allclose(change.ci95[1:], shares[1:])
    assert not change.ci95[0].any() and not accuracy.difference.ci95[0].any()  # against itself
    assert changed[1] > result.control_changed.value[0] == 0
    np.testing.assert_array_equal(result.to_right - result.to_wrong, right - right[0])
    np.testing.assert_allclose(accuracy.difference.value, (right - right[0]) / 20)
    pairs = [
        paired_interval(int(a), int(b), 20)
        for a, b in zip(result.to_right, result.to_wrong, strict=True)
    ]
    np.testing.assert_allclose(accuracy.difference.ci95[1:], pairs[1:])
    assert (result.to_right + result.to_wrong <= changed).all()
    couplings = seen.couplings.double().numpy()
    _check_mean(result.entropy_nats, -(couplings * np.log(couplings)).sum(3).mean(2).T)
    _check_mean(result.polarisation, couplings.max(3).mean(2).T)
    _check_mean(result.coupling_sd, np.sqrt(((couplings - 1 / 3) ** 2).mean((2, 3))).T)
    norms = seen.primary.double().norm(dim=2).numpy()
    _check_mean(result.child_activation, norms)
    np.testing.assert_allclose(result.largest_activation, norms.max(0), rtol=1e-6)
    own = seen.lengths[torch.arange(20), labels].double().numpy()
    assert result.true_activation.value[1] == pytest.approx(own.mean())
    assert result.images_of_class.tolist() == [7, 7, 6]
    for k in range(3):
        of_class = couplings[-1, labels == k]
        np.testing.assert_allclose(result.coupling.value[k], of_class.mean((0, 1)), rtol=1e-6)
        of_types = of_class.reshape(-1, 3, 8, 3).mean((0, 2))
        np.testing.assert_allclose(result.type_coupling.value[k], of_types, rtol=1e-6)


def _check_mean(estimate, values):
    """`values` (N, ...): their mean, and Student's interval."""
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(0, ddof=1) / np.sqrt(len(values))
    np.testing.assert_allclose(estimate.value, values.mean(0), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(estimate.high - estimate.low, 2 * half, atol=1e-6)


def test_true_class_and_others_are_told_apart_in_the_agreement(foreign, tiny_images):
    result, labels = many(foreign, tiny_images)
    single = np.stack([one(foreign, image[None]).agreement for image in tiny_images])
    true = single[np.arange(8), :, labels]
    np.testing.assert_allclose(result.agreement.value[:, 0], true.mean(0), rtol=1e-4)
    others = (single.sum(2) - true) / 2
    np.testing.assert_allclose(result.agreement.value[:, 1], others.mean(0), rtol=1e-4, atol=1e-6)


def test_controls_are_measured_as_routing_is(foreign, tiny_images):
    """By a network whose routing is the couplings of the control."""
    result, labels = many(foreign, tiny_images, seed=5)
    generator = torch.Generator().manual_seed(5)
    own = trace(foreign, tiny_images).couplings
    for k, kind in enumerate(result.controls):
        drawn = control_couplings(kind, own, generator)[-1]
        traced = trace(foreign, tiny_images, couplings=drawn)
        expected = drawn.double().amax(2).mean().item()
        assert result.control_polarisation.value[k] == pytest.approx(expected, rel=1e-5)
        sd = (drawn.double() - 1 / 3).square().mean((1, 2)).sqrt().mean().item()
        assert result.control_sd.value[k] == pytest.approx(sd, abs=1e-6)
        cosines = torch.cosine_similarity(traced.votes, traced.poses[-1][:, None], dim=-1)
        agreed = (drawn * cosines).sum(1) / drawn.sum(1)
        true = agreed[torch.arange(8), labels]
        others = (agreed.sum(1) - true) / 2
        expected = [float(true.mean()), float(others.mean())]
        assert result.control_agreement.value[k] == pytest.approx(expected, abs=1e-5)
        right = (lengths(traced.poses[-1]).argmax(1) == labels).float().mean()
        assert result.control_accuracy.value[k] == pytest.approx(float(right))
    own_sd = result.coupling_sd.value[-1]
    assert result.control_sd.value[2:] == pytest.approx([own_sd, own_sd], rel=1e-4)
    assert result.control_sd.value[1] > own_sd > result.control_sd.value[0]


class OnePass(Foreign):
    """Couplings from one pass, far from uniform, as of self-attention; no other number of them."""

    def look(self, images, *, keep, couplings=None, iterations=None):
        if iterations not in (None, 1):
            raise ValueError(f"this routing has one pass, got {iterations} iterations")
        first = super().look(images, keep=keep, iterations=1)
        if couplings is None:
            couplings = (3 * first["votes"].sum(3)).softmax(2)
        return super().look(images, keep=keep, couplings=couplings, iterations=1)


def test_a_routing_of_one_pass_has_no_curve_and_is_not_taken_for_uniform(tiny_images):
    model = OnePass((1, 21, 19), 3)
    result, labels = many(model, tiny_images)
    assert result.accuracy.value.shape == (1,) and result.prefix
    own = trace(model, tiny_images)
    expected = float((own.lengths.argmax(1) == labels).float().mean())
    assert result.accuracy.value[0] == pytest.approx(expected)
    assert result.coupling_sd.value[0] > 0.01 > result.control_sd.value[0]
    assert "in one pass" in routing.OverImages().verdict(result)
    for drawn in (result, one(model, tiny_images[:1])):
        results.draw("routing", drawn, "single")


def test_agreement_stays_a_cosine_where_couplings_fall_below_zero(generator):
    """As with the biases of self-attention, whose couplings can cancel one another."""
    votes, poses = torch.randn(2, 5, 3, 4, generator=generator), torch.randn(1, 2, 3, 4)
    couplings = torch.randn(1, 2, 5, 3, generator=generator)
    couplings[..., 0] -= couplings[..., 0].mean(2, keepdim=True)  # they add up to nothing
    said = measures.agreement(votes, couplings, poses)
    for b in range(2):
        for j in range(3):
            arrives = couplings[0, b, :, j, None] * votes[b, :, j]
            cosines = torch.cosine_similarity(arrives, poses[0, b, j][None], dim=-1)
            expected = np.average(cosines, weights=couplings[0, b, :, j].abs())
            assert float(said[0, b, j]) == pytest.approx(expected, abs=1e-5)


def test_where_all_classes_tie_none_is_read(tiny_images):
    """Even couplings give all classes of self-routing the same activation: no answer."""
    result, _ = many(build_self_routing(), tiny_images)
    uniform = result.controls.index("uniform")
    assert result.control_accuracy.value[uniform] == 0


class Schedule(Foreign):
    """Its last iteration depends on how many there are."""

    def look(self, images, *, keep, couplings=None, iterations=None):
        shown = super().look(images, keep=keep, couplings=couplings, iterations=iterations)
        shown["poses"] = shown["poses"] / len(shown["poses"])
        return shown | {"lengths": shown["poses"][-1].norm(dim=-1)}


def test_where_pass_r_is_not_the_result_of_r_each_r_is_run(tiny_images):
    model = Schedule((1, 21, 19), 3)
    result, labels = many(model, tiny_images)
    assert not result.prefix and len(result.effective_parents) == 2
    for r in range(1, 5):
        each = trace(model, tiny_images, iterations=r).lengths[torch.arange(8), labels]
        assert result.true_activation.value[r - 1] == pytest.approx(float(each.mean()), rel=1e-5)
    assert many(Foreign((1, 21, 19), 3), tiny_images)[0].prefix


def test_without_a_grid_there_is_no_map_and_a_line_says_why(foreign, tiny_images):
    foreign.grid = None
    result = one(foreign, tiny_images[:1])
    assert result.maps is None and result.couplings.shape == (2, 24, 3)
    np.testing.assert_allclose(result.map_sums, before_squash(result.activations), rtol=1e-5)
    assert "no maps" in routing.OneImage().verdict(result)
    whole, _ = many(foreign, tiny_images)
    assert whole.type_coupling.value.shape == (3, 24, 3)
    assert results.parts("routing", result) == ("", "evidence")
    np.testing.assert_allclose(result.type_evidence.sum(0), result.map_sums, rtol=1e-5)
    for drawn in (result, whole):
        for part in results.parts("routing", drawn):
            results.draw("routing", drawn, "single", part)


def test_the_controls_have_the_iterations_that_are_asked_for(tiny_images):
    """In EM the activation depends on the number of the iteration, whatever the couplings."""
    model, labels = build_tiny(routing="em"), torch.arange(8) % 3
    for rounds in (1, 5):
        options = {"iterations": rounds, "most": rounds, "seed": 0}
        fields = survey.survey(model, tiny_images, labels, **options)
        uniform = fields["control_true_activation"].value[0]
        traced = trace(model, tiny_images, couplings="uniform", iterations=rounds)
        expected = traced.lengths[torch.arange(8), labels].double().mean()
        assert uniform == pytest.approx(float(expected), abs=1e-5)
    assert abs(uniform - fields["true_activation"].value[0]) > 1e-4


def test_a_network_in_float64_is_surveyed(tiny_images):
    fields = survey.survey(
        build_tiny().double(), tiny_images.double(), torch.arange(8) % 3,
        iterations=2, most=3, seed=0,
    )  # fmt: skip
    assert fields["accuracy"].value.shape == (3,)


def test_uniform_couplings_of_leaky_routing_are_not_said_to_be_others():
    """Those of its first iteration, and of its control, are uniform, and sum to less than 1."""
    texts = [routing.spread(2.99, np.full(3, 0.25), sd) for sd in (0.0, 1e-4)]
    assert texts[0] == texts[1] and "sum to 0.75 over parents on average" in texts[0]
    assert "of uniform couplings" not in texts[0]


def test_a_capsule_that_is_active_in_one_image_is_alive(foreign, tiny_images):
    norms = trace(foreign, tiny_images, keep=("child_activations",)).child_activations
    between = float((norms.mean(0).max() + norms.amax(0).min()) / 2)
    result, _ = many(foreign, tiny_images, dead_norm=between)
    assert (
        result.dead == int((norms.amax(0) < between).sum()) < int((norms.mean(0) < between).sum())
    )


def test_more_iterations_can_be_asked_for_than_the_network_has(foreign, tiny_images):
    assert one(foreign, tiny_images[:1], iterations=5).couplings.shape == (5, 3, 3)
    result, _ = many(foreign, tiny_images, iterations=8)
    assert len(result.accuracy) == len(result.entropy_nats) == 8


def test_the_interval_of_a_mean_of_what_lies_in_0_to_1_does_too():
    values, wider = (RunningMean(np.array([0.01, 0.0, most])) for most in (0.4, 1.4))
    mean, share = survey.estimate(values), survey.estimate(values, share=True)
    assert mean.low < 0 and share.low == 0 and share.high == mean.high
    assert survey.estimate(wider, share=True).low == survey.estimate(wider).low < 0


def test_one_image_of_a_class_leaves_its_mean_coupling_open(tiny, tiny_images):
    result, _ = many(tiny, tiny_images[:3])
    assert result.images_of_class.tolist() == [1, 1, 1]
    assert np.isnan(result.coupling.ci95).all()


def test_a_layer_below_the_classes_is_told_by_its_parents_types(tiny_images):
    model = models.build("matrix_capsnet", (1, 21, 19), 3, channels=6, types=(2, 3, 4))
    for layer, parents in ((0, 3), (1, 4)):
        result = one(model, tiny_images[:1], layer=layer)
        assert (result.layer, result.label, len(result.classes)) == (layer, None, parents)
        assert result.couplings.shape[1:] == ((2, 3)[layer], parents)
        np.testing.assert_allclose(result.couplings.sum(2), 1, rtol=1e-5)
        np.testing.assert_allclose(result.maps.sum((1, 2)), result.map_sums, rtol=1e-6)
        assert f"routed layer {layer}" in routing.OneImage().verdict(result)
    assert results.draw("routing", result).axes
    for layer in (None, 2, -1):
        assert one(model, tiny_images[:1], layer=layer).classes == NAMES
    with pytest.raises(ValueError, match="expected layer 0 to 2, got 3"):
        one(model, tiny_images[:1], layer=3)
