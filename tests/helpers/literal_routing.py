"""Slow literal transcriptions of the routings beside dynamic routing, in plain Python numbers.

One image at a time, loops over children and parents in the order of the papers; nothing of capsviz
and no tensor arithmetic. Each returns what happened in each iteration, as `Round`.
"""

import math
from typing import NamedTuple

from helpers.literal import squash


class Round(NamedTuple):
    logits: dict  # (child, parent) -> number
    couplings: dict
    poses: dict  # parent -> list of numbers
    activations: dict


def softmax(logits):
    highest = max(logits)
    exponentials = [math.exp(x - highest) for x in logits]
    return [x / sum(exponentials) for x in exponentials]


def logistic(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


def norm(x):
    return math.sqrt(dot(x, x))


def sides(votes):
    """Children, parents, and the parents that each child sees, of votes by (child, parent)."""
    children, parents = sorted({i for i, _ in votes}), sorted({j for _, j in votes})
    return children, parents, {i: [j for j in parents if (i, j) in votes] for i in children}


def weighted(couplings, votes, j):
    """Σ_i c_ij û_ij."""
    total = [0.0] * len(next(iter(votes.values())))
    for i, parent in votes:
        if parent == j:
            total = [s + couplings[i, j] * v for s, v in zip(total, votes[i, j], strict=True)]
    return total


def over_parents(logits, see):
    """A softmax for each child over the parents that see it."""
    couplings = {}
    for i, parents in see.items():
        shares = softmax([logits[i, j] for j in parents])
        couplings.update({(i, j): share for j, share in zip(parents, shares, strict=True)})
    return couplings


def uniform(votes):
    _, parents, _ = sides(votes)
    couplings = {pair: 1 / len(parents) for pair in votes}
    poses = {j: squash(weighted(couplings, votes, j)) for j in parents}
    return [Round(dict.fromkeys(votes, 0.0), couplings, poses, {j: norm(poses[j]) for j in poses})]


def self_attention(votes, bias):
    """A_ij = (1/√E) Σ_k û_ij·û_kj; c = softmax_j(A) + b; s_j = Σ_i c û; v = (1 - e^-|s|) s/|s|."""
    children, parents, see = sides(votes)
    logits = {}
    for i, j in votes:
        products = [dot(votes[i, j], votes[k, j]) for k in children]
        logits[i, j] = sum(products) / math.sqrt(len(votes[i, j]))
    couplings = {(i, j): c + bias[i][j] for (i, j), c in over_parents(logits, see).items()}
    poses = {}
    for j in parents:
        s = weighted(couplings, votes, j)
        poses[j] = [(1 - math.exp(-norm(s))) * a / norm(s) for a in s]
    return [Round(logits, couplings, poses, {j: norm(poses[j]) for j in poses})]


def k_means(votes, iterations):
    """o_j <- Σ_i c û; logits <- û·o/|o|; at the end |o| o / (1/2 + |o|²)."""
    _, parents, see = sides(votes)
    logits, history = dict.fromkeys(votes, 0.0), []
    for _ in range(iterations):
        couplings = over_parents(logits, see)
        o = {j: weighted(couplings, votes, j) for j in parents}
        poses = {j: [norm(o[j]) * a / (0.5 + norm(o[j]) ** 2) for a in o[j]] for j in parents}
        history.append(Round(logits, couplings, poses, {j: norm(poses[j]) for j in parents}))
        logits = {(i, j): dot(v, o[j]) / norm(o[j]) for (i, j), v in votes.items()}
    return history


def max_min(votes, iterations):
    """As dynamic routing, c_ij = (b_ij - min_j b_ij) / (max_j b_ij - min_j b_ij), at first 1."""
    children, parents, see = sides(votes)
    logits, history = dict.fromkeys(votes, 0.0), []
    couplings = dict.fromkeys(votes, 1.0)
    for _ in range(iterations):
        poses = {j: squash(weighted(couplings, votes, j)) for j in parents}
        history.append(Round(logits, couplings, poses, {j: norm(poses[j]) for j in parents}))
        logits = {(i, j): logits[i, j] + dot(v, poses[j]) for (i, j), v in votes.items()}
        couplings = {}
        for i in children:
            row = [logits[i, j] for j in see[i]]
            for j in see[i]:
                couplings[i, j] = (logits[i, j] - min(row)) / (max(row) - min(row))
    return history


def inverted_attention(votes, iterations, gain, shift, head_weight, head_bias):
    """p_j <- LN(Σ_i û/J), then c = softmax_j(û·p/√E) and p_j <- LN(Σ_i c û); a linear head."""
    _, parents, see = sides(votes)
    logits, history = dict.fromkeys(votes, 0.0), []
    for _ in range(iterations):
        couplings = over_parents(logits, see)
        poses = {}
        for j in parents:
            s = weighted(couplings, votes, j)
            mean = sum(s) / len(s)
            std = math.sqrt(sum((a - mean) ** 2 for a in s) / len(s) + 1e-5)
            poses[j] = [g * (a - mean) / std + b for a, g, b in zip(s, gain, shift, strict=True)]
        scores = softmax([dot(poses[j], head_weight) + head_bias for j in parents])
        history.append(Round(logits, couplings, poses, dict(zip(parents, scores, strict=True))))
        logits = {(i, j): dot(v, poses[j]) / math.sqrt(len(v)) for (i, j), v in votes.items()}
    return history


def self_routing(votes, activations, children, weight, bias):
    """c = softmax_j(r_ij·u_i + b_ij), a_j = Σ_i a_i c_ij / Σ_i a_i, p_j the mean by a_i c_ij."""
    _, parents, see = sides(votes)
    logits = {(i, j): dot(weight[i][j], children[i]) + bias[i][j] for i, j in votes}
    couplings = over_parents(logits, see)
    mass = {(i, j): activations[i] * couplings[i, j] for i, j in votes}
    total = {j: sum(m for (_, parent), m in mass.items() if parent == j) for j in parents}
    poses = {j: [a / total[j] for a in weighted(mass, votes, j)] for j in parents}
    present = {j: total[j] / sum(activations) for j in parents}
    return [Round(logits, couplings, poses, present)]


def em(votes, activations, beta_u, beta_a, iterations, *, final=0.01, floor=0.0):
    """Procedure 1 of Hinton et al.: M-step, then E-step, but no E-step after the last M-step.

    `beta_u`, `beta_a` by parent. A child's shares go over all parents that see it.
    """
    _, parents, see = sides(votes)
    H = range(len(next(iter(votes.values()))))
    logits = dict.fromkeys(votes, 0.0)
    R = {(i, j): 1 / len(see[i]) for i, j in votes}
    history = []
    for t in range(1, iterations + 1):
        inverse_temperature = final * (1 - 0.95**t)
        mean, variance, a = {}, {}, {}
        for j in parents:
            w = {i: activations[i] * R[i, j] for i, parent in votes if parent == j}
            m = sum(w.values())
            mean[j] = [sum(w[i] * votes[i, j][h] for i in w) / m for h in H]
            variance[j] = [
                sum(w[i] * (votes[i, j][h] - mean[j][h]) ** 2 for i in w) / m + floor for h in H
            ]
            cost = sum((beta_u[j] + math.log(math.sqrt(variance[j][h]))) * m for h in H)
            a[j] = logistic(inverse_temperature * (beta_a[j] - cost))
        history.append(Round(logits, R, mean, a))
        logits = {}
        for i, j in votes:
            density = 0.0
            for h in H:
                far = (votes[i, j][h] - mean[j][h]) ** 2 / (2 * variance[j][h])
                density -= 0.5 * math.log(2 * math.pi * variance[j][h]) + far
            logits[i, j] = math.log(a[j]) + density
        R = over_parents(logits, see)
    return history


def variational(votes, activations, beta_u, beta_a, iterations, digamma, place=lambda j: 0):
    """Algorithm 1 of Ribeiro et al. without its batch norms; `place` groups parents."""
    _, parents, see = sides(votes)
    E = len(next(iter(votes.values())))
    logits = dict.fromkeys(votes, 0.0)
    R = {(i, j): 1 / len(see[i]) for i, j in votes}
    history = []
    for _ in range(iterations):
        alpha, kappa, nu, mean, inverse_scale = {}, {}, {}, {}, {}
        for j in parents:
            w = {i: activations[i] * R[i, j] for i, parent in votes if parent == j}
            m = sum(w.values())
            alpha[j], kappa[j], nu[j] = 1 + m, 1 + m, E + 1 + m
            mu = [sum(w[i] * votes[i, j][h] for i in w) / m for h in range(E)]
            mean[j] = [m * mu[h] / kappa[j] for h in range(E)]
            inverse_scale[j] = [
                1 + sum(w[i] * (votes[i, j][h] - mu[h]) ** 2 for i in w) + m / kappa[j] * mu[h] ** 2
                for h in range(E)
            ]
        a, log_proportion, log_determinant = {}, {}, {}
        for j in parents:
            together = sum(alpha[k] for k in parents if place(k) == place(j))
            log_proportion[j] = digamma(alpha[j]) - digamma(together)
            log_determinant[j] = E * math.log(2) - sum(map(math.log, inverse_scale[j]))
            log_determinant[j] += sum(digamma((nu[j] - d) / 2) for d in range(E))
            entropy = E / 2 * math.log(2 * math.pi * math.e) - log_determinant[j] / 2
            score = beta_a[j] - (math.exp(log_proportion[j]) * entropy + beta_u[j])
            a[j] = logistic(score)
        history.append(Round(logits, R, mean, a))
        logits = {}
        for i, j in votes:
            far = sum((votes[i, j][h] - mean[j][h]) ** 2 / inverse_scale[j][h] for h in range(E))
            logits[i, j] = (
                log_proportion[j]
                + log_determinant[j] / 2
                - E / 2 * math.log(2 * math.pi)
                - (E / kappa[j] + nu[j] * far) / 2
            )
        R = over_parents(logits, see)
    return history
