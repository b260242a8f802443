"""Slow literal transcriptions of Sabour, Frosst & Hinton (2017), arXiv:1710.09829, in float64.

Loops over images, children and parents, in the order of the paper; only the few numbers of one
capsule are a tensor, so that autograd can unroll the loops. Nothing of capsviz is imported.
"""

import math

import torch


def squash(s):
    """Equation 1 for one vector; zero for zero."""
    norm = math.sqrt(sum(float(x) ** 2 for x in s))
    if norm == 0:
        return [0.0 for _ in s]
    return [norm**2 / (1 + norm**2) * float(x) / norm for x in s]


def votes(primary, weight):
    """Equation 2, right: û_j|i = W_ij u_i, number by number. (B,I,D), (I,J,E,D) -> (B,I,J,E)."""
    B, I, D = primary.shape
    _, J, E, _ = weight.shape
    out = torch.zeros(B, I, J, E, dtype=torch.float64)
    for b in range(B):
        for i in range(I):
            for j in range(J):
                for e in range(E):
                    for d in range(D):
                        out[b, i, j, e] += float(weight[i, j, e, d]) * float(primary[b, i, d])
    return out


def dynamic_routing(votes, iterations, *, bias=None, detach=False, leaky=False, given=None):
    """Procedure 1, and what it computes on the way.

    Returns lists with one entry for each iteration: b_ij and c_ij as [b][i][j], v_j as (B, J, E).
    `detach` stops the gradient at the couplings, as implementations that are not literal do.
    `leaky` gives each child one more parent, whose logit stays zero and whose vote is nothing.
    `given` are couplings (I, J), or None, in place of each iteration's own.
    """
    B, I, J, _ = votes.shape
    all_logits, all_couplings, all_poses = [], [], []
    logits = [[[votes.new_zeros(()) for _ in range(J)] for _ in range(I)] for _ in range(B)]  # 2
    for r in range(iterations):  # line 3
        share = leaky_softmax if leaky else softmax
        couplings = [[share(logits[b][i]) for i in range(I)] for b in range(B)]  # line 4
        if given is not None and given[r] is not None:
            couplings = [given[r]] * B
        if detach:
            couplings = [[[c.detach() for c in row] for row in image] for image in couplings]
        poses = []
        for b in range(B):
            for j in range(J):
                s = torch.zeros_like(votes[b, 0, j])
                for i in range(I):
                    s = s + couplings[b][i][j] * votes[b, i, j]  # line 5
                if bias is not None:
                    s = s + bias[j]  # the authors' code, not the paper
                norm = s.norm()
                poses.append(norm**2 / (1 + norm**2) * s / norm)  # line 6
        poses = torch.stack(poses).view(B, J, -1)
        all_logits.append(logits)
        all_couplings.append(couplings)
        all_poses.append(poses)
        logits = [
            [
                [logits[b][i][j] + votes[b, i, j].dot(poses[b, j]) for j in range(J)]  # line 7
                for i in range(I)
            ]
            for b in range(B)
        ]
    return all_logits, all_couplings, all_poses


def softmax(logits):
    """Equation 3 for one child: over its parents."""
    exponentials = [b.exp() for b in logits]
    return [e / sum(exponentials) for e in exponentials]


def leaky_softmax(logits):
    """The authors' code: a softmax over one parent more, of logit zero, which is left out."""
    return softmax([torch.zeros_like(logits[0]), *logits])[1:]


def to_tensor(nested):
    """Nested lists of scalars as one tensor."""
    if isinstance(nested, list):
        return torch.stack([to_tensor(inner) for inner in nested])
    return nested


def margin_loss(lengths, present, *, m_plus=0.9, m_minus=0.1, down_weight=0.5):
    """Equation 4, summed over classes; `present[b]` is the set of classes in image b."""
    losses = []
    for b, row in enumerate(lengths.tolist()):
        loss = 0.0
        for k, length in enumerate(row):
            T = 1 if k in present[b] else 0
            loss += T * max(0.0, m_plus - length) ** 2
            loss += down_weight * (1 - T) * max(0.0, length - m_minus) ** 2
        losses.append(loss)
    return losses


def spread(maps, weight, bias, stride, size):
    """A transposed convolution: (C, h, w), (C, F, k, k), (F,) -> (F, *size).

    Each number is a stamp of the kernel, centred at `stride` times its place; what falls outside of
    the image is lost.
    """
    k = weight.shape[2]
    out = torch.zeros(len(bias), *size) + bias[:, None, None]
    for row in range(maps.shape[1]):
        for column in range(maps.shape[2]):
            stamp = torch.einsum("c,cfyx->fyx", maps[:, row, column], weight)
            for y in range(k):
                for x in range(k):
                    top, left = stride * row + y - k // 2, stride * column + x - k // 2
                    if 0 <= top < size[0] and 0 <= left < size[1]:
                        out[:, top, left] += stamp[:, y, x]
    return out
