"""Gradients that reach children when a network is trained, image by image."""

from __future__ import annotations

import torch
from torch import Tensor

from capsviz.nn.functional import lengths
from capsviz.nn.models import Output
from capsviz.tracing.modes import evaluating
from capsviz.tracing.rerouting import chunks


def child_gradients(model, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Squared norms (N, I) of the gradients that reach children, by image; the children's largest
    activations (I,) over images; whether each image (N,) is read right.

    Of what training minimises, in evaluation mode, with respect to each child's vector.
    """
    squares, largest, right = [], [], []
    with evaluating(model):
        for rows, primary, active in chunks(model, images):
            activations = lengths(primary) if active is None else active
            largest.append(activations.amax(0).cpu())
            with torch.inference_mode(False), torch.enable_grad():
                u = primary.clone().requires_grad_()
                gates = None if active is None else active.clone()
                batch = images[rows].to(u)
                truth = labels[rows].to(u.device)
                parents = model.capsules.couple(u, gates)
                output = Output(parents.activations, parents.poses, u)
                loss = model.objective(output, batch, truth).loss * len(batch)
                (slope,) = torch.autograd.grad(loss, u)
            squares.append(slope.detach().square().sum(2).double().cpu())
            right.append((parents.activations.argmax(1) == truth).cpu())
    return torch.cat(squares), torch.stack(largest).amax(0), torch.cat(right)
