"""Small capsule networks in the layouts of public code; none knows anything of capsviz.

All hold the same weights under other shapes, so one twin (`expected`) tells what is inside each:
24 children of 4 numbers (2 types × 4 rows × 3 columns), 3 parents of 6, images (1, 12, 10).
"""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

SHAPE, CLASSES = (1, 12, 10), 3
EM = {"couplings": "m_step:share", "votes": "m_step:v", "poses": "m_step:mu"}
TYPES, ROWS, COLUMNS, D, J, E = 2, 4, 3, 4, 3, 6
I = TYPES * ROWS * COLUMNS
BY_PLACE = torch.arange(I).reshape(ROWS, COLUMNS, TYPES).permute(2, 0, 1).flatten()


@pytest.fixture
def images():
    return torch.rand(5, *SHAPE, generator=torch.Generator().manual_seed(3))


def squash(s, dim=-1):
    norm = torch.norm(s, dim=dim, keepdim=True)
    return norm**2 / (1 + norm**2) / (norm + 1e-8) * s


class Base(nn.Module):
    """Children from one strided convolution, matrices (I, J, E, D), a decoder of one layer."""

    iterations = 3

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(1, TYPES * D, 5, stride=2)
            self.W = nn.Parameter(torch.randn(I, J, E, D))
            self.fc = nn.Linear(J * E, 120)
            self.bias = nn.Parameter(torch.rand(I, J))
            self.activation = nn.Conv2d(1, TYPES, 5, stride=2)
        with torch.no_grad():
            self.conv.weight.mul_(4)

    def encode(self, x):
        """(B, I, D) type by type."""
        u = self.conv(x).view(len(x), TYPES, D, ROWS, COLUMNS)
        return squash(u.permute(0, 1, 3, 4, 2).reshape(len(x), I, D))

    def decoded(self, poses):
        return torch.sigmoid(self.fc(poses.reshape(-1, J * E)))


class Layer(nn.Module):
    """Routing over (B, J, I, E), the loop that many write; the device is written into it."""

    def __init__(self, weight, routings):
        super().__init__()
        self.weight, self.routings = weight, routings

    def forward(self, u):
        hat = torch.squeeze(
            torch.matmul(self.weight.permute(1, 0, 2, 3), u[:, None, :, :, None]), dim=-1
        )
        b = torch.zeros(u.size(0), J, u.size(1)).cuda()
        for i in range(self.routings):
            c = functional.softmax(b, dim=1)
            if i == self.routings - 1:
                v = squash(torch.sum(c[:, :, :, None] * hat, dim=-2, keepdim=True))
            else:
                kept = hat.detach()
                v = squash(torch.sum(c[:, :, :, None] * kept, dim=-2, keepdim=True))
                b = b + torch.sum(v * kept, dim=-1)
        return torch.squeeze(v, dim=-2)


class Unsqueezed(Base):
    """Broadcast, squeeze and a masked decoder; says (lengths, images)."""

    def __init__(self):
        super().__init__()
        self.digits = Layer(self.W, self.iterations)

    def forward(self, x, y=None):
        v = self.digits(self.encode(x))
        length = v.norm(dim=-1)
        if y is None:
            y = functional.one_hot(length.argmax(1), J).float()
        return length, self.decoded(v * y[:, :, None]).view(-1, *SHAPE)


def softmax_along(x, dim):
    """A softmax written as a helper, as before torch had the argument."""
    moved = x.transpose(dim, x.dim() - 1)
    flat = functional.softmax(moved.contiguous().view(-1, moved.size(-1)), dim=-1)
    return flat.view(*moved.size()).transpose(dim, x.dim() - 1)


class ParentsFirst(Base):
    """(J, B, I, 1, E) with couplings as large as votes; a squeeze() loses a batch of one."""

    def forward(self, x):
        u = self.encode(x)
        hat = u[None, :, :, None, :] @ self.W.permute(1, 0, 3, 2)[:, None]
        logits = torch.zeros(*hat.size())
        for i in range(self.iterations):
            c = softmax_along(logits, 0)
            v = squash((c * hat).sum(dim=2, keepdim=True))
            if i < self.iterations - 1:
                logits = logits + (hat * v).sum(dim=-1, keepdim=True)
        return v.squeeze().transpose(0, 1)


class Einsum(Base):
    """Letters, children place by place, and logarithms of probabilities."""

    def encode(self, x):
        return super().encode(x)[:, BY_PLACE.argsort()]

    def forward(self, x):
        u = self.encode(x)
        votes = torch.einsum("ijed,bid->bije", self.W, u)
        b = torch.zeros(len(x), I, J)
        for _ in range(self.iterations):
            c = b.softmax(-1)
            v = squash(torch.einsum("bij,bije->bje", c, votes))
            b = b + torch.einsum("bije,bje->bij", votes, v)
        return {"scores": v.norm(dim=2).log_softmax(1), "poses": v}


class Never(Base):
    """Votes are never made: one einsum of couplings, children and matrices."""

    def forward(self, x):
        u, c = self.encode(x), torch.full((I, J), 1 / J).log().softmax(1)
        v = functional.layer_norm(torch.einsum("ij,bid,ijed->bje", c, u, self.W), (E,))
        for _ in range(self.iterations - 1):
            c = (torch.einsum("bid,ijed,bje->bij", u, self.W, v) / math.sqrt(E)).softmax(2)
            v = functional.layer_norm(torch.einsum("bij,bid,ijed->bje", c, u, self.W), (E,))
        return v.sum(2)


class Attention(Base):
    """Self-attention: one pass, and a bias after the softmax."""

    def forward(self, x):
        hat = torch.einsum("...id,ijed->...jie", self.encode(x), self.W)
        c = torch.einsum("...ij,...kj->...i", hat, hat)[..., None] / math.sqrt(E)
        c = torch.softmax(c, dim=1) + self.bias.t()[..., None]
        s = torch.sum(hat * c, dim=-2)
        norm = s.norm(dim=-1, keepdim=True)
        v = (1 - torch.exp(-norm)) * s / norm
        length = v.norm(dim=-1)
        kept = v[torch.arange(len(v)), length.argmax(1)]
        wide = functional.pad(kept, (0, J * E - E))
        return length, torch.sigmoid(self.fc(wide)), functional.one_hot(length.argmax(1), J).float()


class Expectation(Base):
    """EM: couplings are scaled by activations, the first ones come from no softmax; 2 × 3 poses."""

    hand_written = False

    def m_step(self, a, r, v):
        r = r * a
        share = r / (r.sum(dim=1, keepdim=True) + 1e-8)
        mu = torch.sum(share * v, dim=1, keepdim=True)
        sigma = torch.sum(share * (v - mu) ** 2, dim=1, keepdim=True) + 1e-2
        cost = torch.log(sigma.sqrt()).sum(dim=3) * r.sum(dim=1, keepdim=True).squeeze(3)
        return mu, sigma, torch.sigmoid(-0.1 * cost)

    def e_step(self, mu, sigma, out, v):
        near = (-((v - mu) ** 2) / (2 * sigma) - torch.log(sigma.sqrt())).sum(dim=3)
        near = near + torch.log(out)
        if self.hand_written:
            p = near.exp2()
            return (p / p.sum(dim=2, keepdim=True)).unsqueeze(3)
        return near.softmax(2).unsqueeze(3)

    def forward(self, x):
        a = torch.sigmoid(self.activation(x)).view(len(x), I, 1, 1)
        m = self.encode(x).view(len(x), I, 1, 2, 2).repeat(1, 1, J, 1, 1)
        w = self.W[..., :3].reshape(I, J, 3, 3, 2)[:, :, 0].transpose(-1, -2)
        v = torch.matmul(m, w).view(len(x), I, J, E)
        v = v + torch.arange(1.0, E + 1)  # coordinates
        return self.fitted(a, v)

    def fitted(self, a, v):
        r = torch.ones(len(v), I, J, 1) / J
        for k in range(self.iterations):
            mu, sigma, out = self.m_step(a, r, v)
            if k < self.iterations - 1:
                r = self.e_step(mu, sigma, out, v)
        return out.squeeze(1)


class Watchable(Expectation):
    """EM whose couplings come from powers of two over their sum: no softmax in it."""

    hand_written = True


class TwoHeads(Base):
    """Two softmaxes of equal claim."""

    def __init__(self):
        super().__init__()
        self.left, self.right = Layer(self.W, 2), Layer(nn.Parameter(-self.W.detach()), 3)

    def forward(self, x):
        u = self.encode(x)
        return (self.left(u) + self.right(u)).norm(dim=-1).sigmoid()


class OneLoop(Base):
    """Two layers, routed by the same lines of one module."""

    def __init__(self):
        super().__init__()
        self.above = nn.Parameter(torch.randn(J, J, self.W.shape[2], self.W.shape[2]))

    def forward(self, x):
        v = self.encode(x)
        for matrices in (self.W, self.above):
            votes = torch.einsum("ijed,bid->bije", matrices, v)
            b = torch.zeros(votes.shape[:3])
            for _ in range(3):
                v = squash(torch.einsum("bij,bije->bje", b.softmax(2), votes))
                b = b + torch.einsum("bije,bje->bij", votes, v)
        return v.norm(dim=-1)


class Shared(Unsqueezed):
    """Scores depend on the batch: an image's are divided by the largest of all."""

    def forward(self, x):
        length, made = super().forward(x)
        return length / length.max(), made


class Plain(nn.Module):
    """No capsules."""

    def __init__(self):
        super().__init__()
        self.conv, self.fc = nn.Conv2d(1, 4, 3), nn.Linear(4 * 80, J)

    def forward(self, x):
        return self.fc(self.conv(x).relu().flatten(1)).softmax(1)


def expected(net, images, couplings=None, iterations=3):
    """What is inside `Unsqueezed`, `ParentsFirst` and `Einsum`: one literal loop, type by type."""
    u = Base.encode(net, images)
    W = net.W[BY_PLACE] if isinstance(net, Einsum) else net.W
    votes = torch.einsum("ijed,bid->bije", W, u)
    b, seen = torch.zeros(len(images), I, J, dtype=images.dtype), []
    for _ in range(iterations):
        c = b.softmax(2) if couplings is None else couplings.expand(len(images), I, J)
        v = squash(torch.einsum("bij,bije->bje", c, votes))
        seen.append((b, c, v))
        b = b + torch.einsum("bije,bje->bij", votes, v)
    logits, c, poses = (torch.stack(part) for part in zip(*seen, strict=True))
    return {"primary": u, "votes": votes, "logits": logits, "couplings": c, "poses": poses}
