"""Attack: accuracies are counts of surviving images, and weak attacks give warnings."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from helpers import command_line
from helpers.attackable import Linear, OfScores

from capsviz.analyses.attack import ATTACKS, Attack, measure
from capsviz.experiments import attacks
from capsviz.inputs.opening import open_inputs
from capsviz.statistics.intervals import wilson

QUICK = {"steps": 5, "queries": 10, "eps": (0.1, 0.3)}


@pytest.fixture(scope="module")
def inputs():
    return open_inputs(checkpoint="digits")


def run(networks, inputs, n=12, **more):
    images, labels = inputs.images(n)
    given = {"dataset": "digits", "inputs": inputs, **QUICK, **more}
    return Attack().measure(networks, images, labels, **given)


def linear(inputs):
    """A network without capsules that is mostly correct on the digits: nearest class average."""
    images, labels = inputs.images(200)
    means = torch.stack([images[labels == k].mean(0).flatten() for k in range(10)])
    model = Linear(means - means.mean(0))
    model.config, model.card = {"image_shape": (1, 28, 28), "classes": 10}, {"name": "linear"}
    return model


@pytest.fixture(scope="module")
def result(inputs):
    return run({"digits": inputs.model, "linear": linear(inputs)}, inputs)


def test_accuracies_are_counts_of_the_bounds_that_images_survive(result):
    assert result.attacks == list(ATTACKS) and result.source == "linear"
    plain = [a for a, name in enumerate(result.attacks) if name != "adaptive"]
    for e in range(2):
        held = result.fooled > e
        for k, a in np.ndindex(*held.shape[:2]):
            one = result.accuracy[k, a, e]
            if np.isnan(one.value):
                assert (result.fooled[k, a] == -1).all()
                continue
            assert one.value == pytest.approx(held[k, a].mean())
            assert tuple(one.ci95) == pytest.approx(wilson(held[k, a].sum(), 12))
        worst = held[0, plain].all(0)
        assert result.worst.value[0, e] == pytest.approx(worst.mean())
    known = [a for a in plain if np.isfinite(result.accuracy.value[1, a, 0])]
    assert {result.attacks[a] for a in known} == {"apgd-ce", "apgd-dlr", "square"}
    less = result.worst.value[1] - result.worst.value[0]
    assert result.worst.difference.value[1] == pytest.approx(less)


def test_images_that_are_misclassified_and_not_flagged_count_as_fooled_at_any_bound(inputs):
    """Two images get another true class, and the detector flags the one with larger distance."""
    images, labels = inputs.images(6)
    labels = labels.clone()
    labels[:2] = (labels[:2] + 1) % 10
    near, far = sorted((0, 1), key=attacks.distances(inputs.model, images[:2]).__getitem__)
    limit = float(attacks.distances(inputs.model, images[[near]])[0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measure, "threshold", lambda distances: limit)
        one = Attack().measure(
            {"digits": inputs.model}, images, labels, dataset="digits", inputs=inputs,
            only=("adaptive",), eps=(1e-6,), steps=1,
        )  # fmt: skip
    assert one.flagged.value[0] >= 1 / 6 and one.fooled[0, 0, near] == -1
    assert one.fooled[0, 0, far] == 1  # it is misclassified, but stays flagged
    assert one.accuracy.value[0, 0, 0] <= 5 / 6


def test_neither_a_larger_bound_nor_more_steps_help_the_defender(result):
    value = result.accuracy.value
    assert (np.nan_to_num(value[..., 1] - value[..., 0]) <= 0).all()
    assert (result.worst.value <= result.clean.value[:, None]).all()
    curve, known = result.curve, np.isfinite(result.curve[..., 0, 0])
    assert (np.diff(curve[known], axis=-1) <= 0).all()
    adaptive = result.attacks.index("adaptive")
    for k, a in np.argwhere(known):
        if a != adaptive:
            assert curve[k, a, :, -1] == pytest.approx(value[k, a], abs=1e-3)
    assert (result.unbounded == 0).all()
    tried = np.isfinite(value) & (np.array(result.attacks) != "transfer")[:, None]
    assert np.isfinite(curve[tried]).all()  # 0 where a smaller bound fooled all, no gap


def test_the_table_has_a_row_for_each_network_and_bound(result):
    header, rows, _ = Attack().table(result)
    assert len(rows) == 4 and rows[2][0] == "linear"
    assert rows[0][header.index("worst")] == f"{100 * result.worst[0, 0]:.1f} %"
    strongest = np.nanmin(result.accuracy.value[0, :3, 0])
    assert rows[0][header.index("APGD")].startswith(f"{100 * strongest:.1f} [")


def test_attacks_that_do_not_apply_are_listed_with_the_reason(result):
    told = " ".join(result.missing)
    assert "vote is left out for linear: it has no capsules" in told
    assert "transfer is left out for linear: it is the network that is attacked" in told


def test_without_other_images_all_attacks_except_the_adaptive_one_run(inputs, monkeypatch):
    def absent(*_):
        raise FileNotFoundError

    alone = SimpleNamespace(dataset=inputs.dataset, images=inputs.images, load=absent)
    made = run({"digits": inputs.model}, alone)
    assert set(made.attacks) == {*ATTACKS} - {"adaptive", "transfer"}
    (why,) = (line for line in made.missing if line.startswith("adaptive"))
    assert "neither validation nor training images at hand" in why


def test_transfer_attacks_its_source_once_for_all_networks(inputs, monkeypatch):
    """Each network gets the same images as alone; steps on the source give no curve."""
    source, given = linear(inputs), {"only": ("transfer",), "eps": (0.05, 0.2)}
    others = {"digits": inputs.model, "loud": OfScores(inputs.model, lambda one: 2 * one)}
    alone = [run({"linear": source, k: one}, inputs, **given) for k, one in others.items()]
    attacked, apgd = [], measure.attacks.apgd

    def counted(model, look, images, *rest, **how):
        attacked.extend([how["steps"]] * len(images) * (not how.get("leave", True)))
        return apgd(model, look, images, *rest, **how)

    monkeypatch.setattr(measure.attacks, "apgd", counted)
    found = run({"linear": source, **others}, inputs, **given)
    for k, one in enumerate(alone):
        assert (found.fooled[k + 1] == one.fooled[1]).all() and (one.fooled[1] >= 0).any()
    left = [(found.fooled[1:, 0] >= e).any(0).sum() for e in range(2)]
    assert len(attacked) == sum(left)
    assert np.isnan(found.curve).all() and np.isnan(found.margin).all()
    assert Attack().parts(found) == ("",)  # no figure of checks, whose panels would be empty


def test_restarts_only_lower_the_accuracy(inputs):
    found = run({"digits": inputs.model}, inputs, only=("apgd-ce",), restarts=3, eps=(0.1,))
    curve = found.curve[0, 0, 0]
    assert (np.diff(curve) <= 0).all()
    assert curve[-1] == pytest.approx(found.worst.value[0, 0], abs=1e-3)
    once = run({"digits": inputs.model}, inputs, only=("apgd-ce",), eps=(0.1,))
    assert found.worst.value <= once.worst.value


def test_masked_gradients_give_a_warning(inputs):
    """Rounded scores have no gradient, which Square does not need."""
    rounded = OfScores(inputs.model, lambda one: (one * 100).round() / 100)
    given = {"only": ("apgd-ce", "square"), "eps": (0.3,), "queries": 100}
    found = run({"rounded": rounded}, inputs, **given)
    assert found.zero[0, 0] == found.stuck[0, 0] == 1 and found.square_alone.low[0, 0] > 0
    told = " ".join(found.warnings)
    assert "rounded masks gradients: at ε = 0.3 Square" in told
    assert "100.0% of images gave apgd-ce no gradient in rounded" in told
    sound = run({"digits": inputs.model}, inputs, **given)
    assert not any("masks" in one or "no gradient" in one for one in sound.warnings)


def test_a_network_without_a_gradient_is_attacked_by_square_alone(inputs):
    cut = OfScores(inputs.model, lambda one: one.detach())
    found = run({"cut": cut}, inputs)
    assert found.attacks == ["square"] and "no gradient reaches the images" in found.missing[0]
    with pytest.raises(ValueError, match="apgd-ce: no gradient reaches the images"):
        run({"cut": cut}, inputs, only=("apgd-ce",))


def test_a_submitted_network_gets_its_row(blank, tmp_path, monkeypatch):
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n\n\ndef build():\n    torch.manual_seed(0)\n"
        "    layers = torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.Softmax(1)\n"
        "    return torch.nn.Sequential(*layers)\n"
    )
    asked = ["attack", "--network", f"{file}:build", "--dataset", "digits", "--n", "60", "--table"]
    asked += ["--steps", "2", "--eps", "0.1", "--only", "apgd-ce"]
    monkeypatch.setattr(measure, "PIECE", 5)
    done = command_line.fine(command_line.run(*asked, "--output", tmp_path / "out"))
    *_, row, _, about = done.stdout.splitlines()
    assert row.startswith("| mine-build | digits, 60 | 0.1 | ")
    assert "seed 0, capsviz" in about and "mine-build 7,850 parameters, " in about
    (table,) = (tmp_path / "out").glob("*.md")
    assert row in table.read_text("utf-8")
