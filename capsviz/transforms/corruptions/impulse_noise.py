"""Impulse noise: 17 % of the pixels become black or white, each as likely."""

import torch

AMOUNT = 0.17  # severity 4


def corrupt(images, generator):
    """Replace pixels by salt and pepper."""
    return salt_and_pepper(images, generator, AMOUNT)


def salt_and_pepper(images, generator, amount):
    """Replace a share of the numbers by 0 or 1."""
    hit = torch.rand(images.shape, generator=generator) <= amount
    salt = torch.rand(images.shape, generator=generator) <= 0.5
    return torch.where(hit, salt.float(), images)
