"""Attacks: they stay in the ball, do what their papers say, and leave the network as it was."""

import sys

import pytest
import torch
from conftest import build_tiny

from capsviz import checkpoint
from capsviz.experiments import attacks
from capsviz.tracing.outputs import activations_and_distance

LABELS = torch.arange(8) % 3
EVERY = [attacks.fgsm, attacks.pgd, attacks.reconstructive_pgd]


@pytest.fixture(scope="module")
def trained():
    return checkpoint.load("digits")


def state(model):
    modes = [module.training for module in model.modules()]
    return modes, [(w.requires_grad, w.grad) for w in model.parameters()]


@pytest.mark.parametrize("attack", EVERY)
def test_attacked_images_stay_in_the_ball_and_in_the_range(attack, network, tiny_images):
    steps = {} if attack is attacks.fgsm else {"steps": 3}
    found = attack(network, tiny_images, LABELS, eps=0.25, **steps)
    assert found.shape == tiny_images.shape and found.dtype == tiny_images.dtype
    assert not found.requires_grad and found.min() >= 0 and found.max() <= 1
    assert 0 < float((found - tiny_images).abs().max()) <= 0.25 + 1e-6


@pytest.mark.parametrize("attack", EVERY)
def test_a_network_and_the_global_generator_are_left_as_found(attack, tiny_images):
    model = build_tiny().train()
    model.decoder.eval()
    model.conv1.weight.requires_grad_(False)
    before, numbers = state(model), torch.get_rng_state()
    attack(model, tiny_images, LABELS, eps=0.1)
    assert state(model) == before and torch.equal(torch.get_rng_state(), numbers)


def test_fgsm_is_one_step_along_the_sign_of_the_gradient(tiny, tiny_images):
    image = tiny_images.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(tiny(image).lengths, LABELS, reduction="sum")
    (gradient,) = torch.autograd.grad(loss, image)
    expected = (tiny_images + 0.1 * gradient.sign()).clamp(0, 1)
    found = attacks.fgsm(tiny, tiny_images, LABELS, eps=0.1)
    clear = gradient.abs() > 1e-4 * gradient.abs().max()  # rounding cannot turn the sign
    assert clear.float().mean() > 0.9
    assert torch.allclose(found[clear], expected[clear], atol=1e-6)


@pytest.mark.parametrize("attack", [attacks.pgd, attacks.reconstructive_pgd])
def test_random_starts_are_repeated_by_their_seed(attack, tiny, tiny_images):
    one, same, other = (
        attack(
            tiny,
            tiny_images,
            LABELS,
            eps=0.2,
            steps=2,
            start=attacks.noise(tiny_images.shape, seed),
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("attack", [attacks.pgd, attacks.reconstructive_pgd])
def test_an_image_is_attacked_the_same_in_any_piece_from_its_own_start(attack, tiny, tiny_images):
    model, images = tiny.double(), tiny_images.double()
    given = {"eps": 0.2, "steps": 3}
    start = attacks.noise(images.shape, 4)
    whole = attack(model, images, LABELS, start=start, **given)
    pieces = [
        attack(model, images[p], LABELS[p], start=start[p], **given)
        for p in torch.arange(8).split(3)
    ]
    torch.testing.assert_close(torch.cat(pieces), whole, rtol=0, atol=1e-9)


def test_pgd_follows_its_recipe(tiny, tiny_images):
    """Madry et al. 2018, literally: a random start, then signed steps, each projected."""
    model, eps, steps = tiny.double(), 0.2, 4
    original = tiny_images.double()
    noise = torch.rand(original.shape, generator=torch.Generator().manual_seed(5)) * 2 - 1
    x = (original + eps * noise).clamp(0, 1)
    for _ in range(steps):
        x.requires_grad_()
        loss = torch.nn.functional.cross_entropy(model(x).lengths, LABELS, reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
        x = x.detach() + 2.5 * eps / steps * gradient.sign()
        x = torch.maximum(torch.minimum(x, original + eps), original - eps).clamp(0, 1)
    start = attacks.noise(original.shape, 5)
    found = attacks.pgd(model, original, LABELS, eps=eps, steps=steps, start=start)
    assert torch.allclose(found, x, atol=1e-9)


def test_the_adaptive_attack_is_misread_and_nearer_than_pgd(trained, digits):
    images, labels = digits[0][:10], digits[1][:10]
    far = {}
    for attack in (attacks.pgd, attacks.reconstructive_pgd):
        found = attack(trained, images, labels, eps=0.3, steps=8)
        with torch.no_grad():
            lengths, distances = activations_and_distance(trained, found)
        wrong = lengths.argmax(1) != labels
        assert wrong.float().mean() >= 0.5
        far[attack] = float(distances[wrong].mean())
    assert far[attacks.reconstructive_pgd] < 0.8 * far[attacks.pgd]


@pytest.mark.parametrize("eps", [0.0, 1.5, float("nan")])
@pytest.mark.parametrize("attack", [attacks.fgsm, attacks.reconstructive_pgd])
def test_an_eps_that_bounds_nothing_is_refused(attack, eps, tiny, tiny_images):
    with pytest.raises(ValueError, match="0 < eps <= 1, got"):
        attack(tiny, tiny_images, LABELS, eps=eps)


@pytest.mark.parametrize(
    ("eps", "steps", "message"),
    [
        ((), 4, "one eps"),
        ((0.1, 0.1000001), 4, "one eps"),
        ((2.0,), 4, "eps <= 1"),
        ((0.1,), 0, "1 step"),
    ],
)
def test_attacks_that_cannot_be_made_are_refused_at_once(eps, steps, message):
    with pytest.raises(ValueError, match=message):
        attacks.check(eps, steps)


@pytest.mark.parametrize("attack", EVERY)
def test_a_network_without_capsules_is_refused(attack, tiny_images):
    with pytest.raises(ValueError, match="no capsules"):
        attack(torch.nn.Linear(2, 2), tiny_images, LABELS, eps=0.1)


def test_without_foolbox_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "foolbox", None)
    with pytest.raises(ImportError, match="an attack needs foolbox: pip install foolbox"):
        attacks.check((0.1,), 4)


@pytest.mark.parametrize("attack", [attacks.fgsm, attacks.reconstructive_pgd])
@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda x: (x + 2, LABELS), r"in \[0, 1\]"),
        (lambda x: (x, LABELS[1:]), r"expected labels \(8,\), got \(7,\)"),
    ],
)
def test_images_and_labels_that_cannot_be_attacked_are_refused(
    attack, tiny, tiny_images, change, match
):
    with pytest.raises(ValueError, match=match):
        attack(tiny, *change(tiny_images), eps=0.1)
