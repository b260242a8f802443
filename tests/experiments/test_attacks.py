"""Attacks stay in the ball, reach known optima, and leave the network as it was."""

import math

import pytest
import torch
from helpers import wrappable_capsnet
from helpers.attackable import Linear, OfScores
from helpers.fixtures import build_tiny

import capsviz
from capsviz import checkpoint, data, tracing
from capsviz.experiments import attacks
from capsviz.experiments.attacks import Ball
from capsviz.nn.functional import lengths, squash
from capsviz.tracing.outputs import activations_and_distance
from capsviz.transforms.augment import to_float

LABELS = torch.arange(8) % 3
BALLS = [Ball(0.25), Ball(1.5, "l2")]


@pytest.fixture(scope="module")
def trained():
    return checkpoint.load("digits")


def by_apgd(model, images, labels, ball, *, loss="apgd-ce", steps=4, **more):
    look = attacks.on_scores(model, attacks.LOSSES[loss])
    return attacks.apgd(model, look, images, labels, ball, steps=steps, **more)


def by_square(model, images, labels, ball, **more):
    return attacks.square(model, images, labels, ball, **{"queries": 20, **more})


def by_detector(model, images, labels, ball, **more):
    look = attacks.on_detector(model)
    return attacks.apgd(model, look, images, labels, ball, steps=4, leave=False, **more)


def by_votes(model, images, labels, ball, **more):
    return attacks.apgd(model, attacks.on_votes(model), images, labels, ball, steps=4, **more)


EVERY = [by_apgd, by_square, by_detector, by_votes]


@pytest.mark.parametrize("ball", BALLS)
@pytest.mark.parametrize("attack", EVERY)
def test_attacked_images_stay_in_the_ball_and_in_the_range(attack, ball, network, tiny_images):
    found = attack(network, tiny_images, LABELS, ball).images
    assert found.shape == tiny_images.shape and not found.requires_grad
    assert found.min() >= 0 and found.max() <= 1
    away = found - tiny_images
    far = away.abs().amax() if ball.norm == "linf" else away.flatten(1).norm(dim=1).amax()
    assert 0 < float(far) <= ball.eps + 1e-5


@pytest.mark.parametrize("attack", EVERY)
def test_a_network_and_the_global_generator_are_left_as_found(attack, tiny_images):
    model = build_tiny().train()
    model.decoder.eval()
    model.conv1.weight.requires_grad_(False)

    def state():
        modes = [module.training for module in model.modules()]
        return modes, [(w.requires_grad, w.grad) for w in model.parameters()]

    before, numbers = state(), torch.get_rng_state()
    attack(model, tiny_images, LABELS, BALLS[0])
    assert state() == before and torch.equal(torch.get_rng_state(), numbers)


@pytest.mark.parametrize("attack", EVERY)
def test_an_image_is_attacked_the_same_in_any_piece_from_its_own_start(attack, tiny, tiny_images):
    model, images, ball = tiny.double(), tiny_images.double(), Ball(0.2)
    start = attacks.noise(images.shape, 4)
    whole = attack(model, images, LABELS, ball, start=start)
    parts = [attack(model, images[p], LABELS[p], ball, start=start[p])
             for p in torch.arange(8).split(3)]  # fmt: skip
    joined = torch.cat([one.images for one in parts])
    torch.testing.assert_close(joined, whole.images, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("loss", "norm"), [("apgd-ce", "linf"), ("apgd-dlr", "l2")])
def test_apgd_fools_a_linear_network_exactly_where_that_can_be_done(loss, norm):
    """The smallest change is the margin divided by the dual norm of the difference of two rows."""
    draw = torch.Generator().manual_seed(1)
    model = Linear(torch.randn(4, 36, generator=draw))
    images = 0.5 + 0.02 * torch.randn(200, 1, 6, 6, generator=draw)  # far from black and white
    labels = attacks.logits(model, images).argmax(1).detach()
    scores, rows = attacks.logits(model, images).detach(), model.weight.detach()
    least = torch.full((200,), math.inf)
    for other in range(4):
        gap = scores.gather(1, labels[:, None])[:, 0] - scores[:, other]
        away = (rows[labels] - rows[other]).norm(p=1 if norm == "linf" else 2, dim=1)
        least = torch.where(labels == other, least, torch.minimum(least, gap / away))
    eps = float(least.median())
    clear = (least / eps - 1).abs() > 0.02
    found = by_apgd(model, images, labels, Ball(eps, norm), loss=loss, steps=50)
    assert clear.sum() > 180 and torch.equal(found.done[clear], (least < eps)[clear])
    blind = by_square(model, images, labels, Ball(eps, norm), queries=300)
    assert not blind.done[clear & (least > eps)].any()
    assert blind.done.sum() > 0.5 * found.done.sum()


def test_apgd_follows_algorithm_1(tiny, tiny_images):
    """Compare with a literal transcription of Croce & Hein 2020, with the authors' windows."""
    model, eps, steps = tiny.double(), 0.3, 20
    images = tiny_images.double()
    labels = torch.tensor([0] * 8)
    start = attacks.noise(images.shape, 2).double()
    for i in range(3):
        origin, label = images[i : i + 1], labels[i : i + 1]

        def f(x, label=label):
            x = x.clone().requires_grad_()
            value = torch.nn.functional.cross_entropy(model(x).lengths, label)
            (gradient,) = torch.autograd.grad(value, x)
            return float(value.detach()), gradient

        def project(x, origin=origin):
            return torch.minimum(torch.maximum(x, origin - eps), origin + eps).clamp(0, 1)

        x = project(origin + eps * torch.erf(start[i : i + 1] / math.sqrt(2)))
        value, gradient = f(x)
        step, before, values, best = 2 * eps, x, [value], (value, x, gradient)
        checks, window = [0], max(int(0.22 * steps), 1)
        last_best, last_step = value, None
        for k in range(1, steps + 1):
            a = 0.75 if k > 1 else 1
            z = project(x + step * gradient.sign())
            x, before = project(x + a * (z - x) + (1 - a) * (x - before)), x
            value, gradient = f(x)
            values.append(value)
            best = max(best, (value, x, gradient), key=lambda one: one[0])
            if k == checks[-1] + window:
                rises = sum(values[j] > values[j - 1] for j in range(checks[-1] + 1, k + 1))
                same = last_step == step and last_best == best[0]
                last_step, last_best = step, best[0]
                if rises <= 0.75 * window or same:
                    step, x, gradient = step / 2, best[1], best[2]
                checks.append(k)
                window = max(window - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1))
        look = attacks.on_scores(model, attacks.LOSSES["apgd-ce"])
        how = {"steps": steps, "start": start[i : i + 1], "leave": False}
        found = attacks.apgd(model, look, origin, label, Ball(eps), **how)
        ours = float(look(found.images, label)[0].detach())
        assert ours == pytest.approx(best[0], abs=1e-9) or found.done.any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss", "ball", "survivors"), [("apgd-dlr", Ball(0.1), 32), ("apgd-ce", Ball(1.5, "l2"), 19)]
)
def test_as_many_images_survive_as_under_the_authors_code(trained, loss, ball, survivors):
    """`survivors` of 60 images were measured with fra31/auto-attack at a392200, same starts."""
    part = data.load("digits", "test").sample(60)
    found = by_apgd(trained, to_float(part.images), part.labels, ball, loss=loss, steps=30)
    assert abs(int((~found.done).sum()) - survivors) <= 1


def test_an_image_that_leaves_early_is_fooled_and_one_that_stays_is_not(trained, digits):
    images, labels = digits[0][:10], digits[1][:10]
    found = by_apgd(trained, images, labels, Ball(0.1), steps=8)
    wrong = attacks.logits(trained, found.images).argmax(1) != labels
    assert torch.equal(wrong, found.done) and 0 < found.done.sum() < 10
    assert (found.gaps.diff(dim=0) >= 0).all()
    assert torch.equal(found.gaps[-1] > 0, found.done)
    kept = by_apgd(trained, images, labels, Ball(0.1), steps=8, leave=False)
    assert torch.equal(kept.done, found.done) and torch.equal(kept.when, found.when)


def test_the_adaptive_attack_is_misclassified_and_nearer_than_apgd(trained, digits):
    images, labels = digits[0][:10], digits[1][:10]
    far = []
    for look in (
        attacks.on_scores(trained, attacks.LOSSES["apgd-ce"]),
        attacks.on_detector(trained),
    ):
        found = attacks.apgd(trained, look, images, labels, Ball(0.3), steps=8, leave=False)
        with torch.no_grad():
            scores, distances = activations_and_distance(trained, found.images)
        wrong = scores.argmax(1) != labels
        assert wrong.float().mean() >= 0.5
        far.append(float(distances[wrong].mean()))
    assert far[1] < 0.8 * far[0]


def test_the_vote_attack_raises_the_cross_entropy_of_averaged_votes(tiny, tiny_images):
    votes = tracing.trace(tiny, tiny_images, keep=("votes",)).votes
    averaged = lengths(squash(votes.sum(1) / votes.shape[1]))
    own = averaged.gather(1, LABELS[:, None])[:, 0]
    loss, _, hit = attacks.on_votes(tiny)(tiny_images, LABELS)
    torch.testing.assert_close(loss, -(own / averaged.sum(1)).log(), rtol=1e-3, atol=1e-5)
    assert torch.equal(hit, tiny(tiny_images).lengths.argmax(1) != LABELS)


def test_a_wrapped_network_is_attacked_through_its_scores_and_votes():
    net = capsviz.wrap(wrappable_capsnet.build().eval(), image_shape=(1, 28, 28), classes=10)
    images = torch.rand(6, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    labels = attacks.logits(net, images).argmax(1).detach()
    attacks.require_steady(net, images)
    for attack in (by_apgd, by_votes):
        found = attack(net, images, labels, Ball(0.3))
        assert found.done.all() and not found.stuck.any()


@pytest.mark.parametrize(
    ("eps", "norm", "message"),
    [
        ((), "linf", "one eps"),
        ((0.1, 0.1000001), "linf", "one eps"),
        ((float("nan"),), "linf", "0 < eps <= 1, got nan"),
        ((-1.0,), "l2", "eps > 0, got -1"),
    ],
)
def test_bounds_that_bound_nothing_are_refused(eps, norm, message):
    with pytest.raises(ValueError, match=message):
        attacks.check(eps, norm=norm)


def test_a_network_that_is_random_or_depends_on_the_batch_is_refused(tiny, tiny_images):
    attacks.require_steady(tiny, tiny_images)
    dropped = OfScores(tiny, lambda one: torch.nn.functional.dropout(one, 0.5))
    with pytest.raises(ValueError, match=r"are random: .*Attacks need repeatable scores"):
        attacks.require_steady(dropped, tiny_images)
    joined = OfScores(tiny, lambda one: one - one.mean(0))
    with pytest.raises(ValueError, match="depend on the other images of a batch"):
        attacks.require_steady(joined, tiny_images)


@pytest.mark.parametrize("attack", [by_apgd, by_square])
def test_images_and_labels_that_cannot_be_attacked_are_refused(attack, tiny, tiny_images):
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        attack(tiny, tiny_images + 2, LABELS, Ball(0.1))
    with pytest.raises(ValueError, match=r"expected labels \(8,\), got \(7,\)"):
        attack(tiny, tiny_images, LABELS[1:], Ball(0.1))
