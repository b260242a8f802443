"""Impulse noise: 17 % of the pixels become black or white, each as likely."""

import torch

AMOUNT = 0.17  # severity 4


def corrupt(images, generator):
    """Replace pixels by salt and pepper."""
    hit = torch.rand(images.shape, generator=generator) <= AMOUNT
    salt = torch.rand(images.shape, generator=generator) <= 0.5
    return torch.where(hit, salt.float(), images)
