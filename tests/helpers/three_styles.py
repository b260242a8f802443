"""One capsule network in three styles of code unlike each other, with one of twenty bugs planted.

`Letters` is written with einsum and a dictionary, `Modules` with modules, loops and axes of size 1,
`Functions` with functions alone: tiled capsules, parents first, matrices of capsules and parents
apart. `BUGS` names the check that finds a bug, and its status; `VARIANTS` are no bugs.
"""

import torch
from torch import nn
from torch.nn import functional

SHAPE, CLASSES = (1, 11, 13), 5
TYPES, D, ROWS, COLUMNS, J, E = 2, 4, 3, 4, CLASSES, 6
I, PIXELS = TYPES * ROWS * COLUMNS, 11 * 13

BUGS = {
    "logits times ten": ("wrong_agreement", "WARN"),
    "logits over ten": ("wrong_agreement", "WARN"),
    "agreement twice": ("wrong_agreement", "WARN"),
    "agreement with the sum": ("wrong_agreement", "WARN"),
    "agreement averaged": ("wrong_agreement", "FAIL"),
    "votes squashed": ("squashed_votes", "WARN"),
    "norm for square": ("wrong_class_squash", "WARN"),
    "epsilon of one": ("wrong_class_squash", "WARN"),
    "one matrix": ("shared_matrix", "WARN"),
    "pixels permuted": ("permuted_reconstruction", "FAIL"),
    "padding on one side": ("shifted_positions", "WARN"),
    "label at test": ("label_leak", "WARN"),
    "squared lengths": ("scores_are_not_lengths", "FAIL"),
    "softmax over children": ("wrong_softmax_axis", "FAIL"),
    "logits of the batch": ("mixed_batch", "FAIL"),
    "view across positions": ("mixed_positions", "FAIL"),
    "squash over children": ("wrong_squash_axis", "FAIL"),
    "no primary squash": ("unsquashed_primary", "FAIL"),
    "one iteration more": ("wrong_iterations", "FAIL"),
    "NaN at zero": ("nan_at_zero", "FAIL"),
}
VARIANTS = (
    "", "bias in the sums", "batch norm", "last update unused", "exponential squash",
    "votes detached", "compressed",
)  # fmt: skip
SCALES = {"logits times ten": 10.0, "logits over ten": 0.1}


def scale_of(n, bug, root):
    """What a squash multiplies a vector of length n with; `root` is of n² + epsilon."""
    if bug == "norm for square":
        return 1 / (1 + n)
    if bug == "epsilon of one":
        return n**2 / (1 + n**2) / (n**2 + 1).sqrt()
    if bug == "exponential squash":
        return (1 - (-root).exp()) / root
    return n**2 / (1 + n**2) / (n if bug == "NaN at zero" else root)


class Letters(nn.Module):
    def __init__(self, bug=""):
        super().__init__()
        self.bug, self.iterations = bug, 3
        self.stem, self.primary = nn.Conv2d(1, 8, 3), nn.Conv2d(8, TYPES * D, 4, 2)
        self.normal = nn.BatchNorm2d(TYPES * D) if bug == "batch norm" else nn.Identity()
        self.W = nn.Parameter(0.5 * torch.randn(1 if bug == "one matrix" else I, J, E, D))
        self.less = nn.Linear(D, D)
        self.decoder = nn.Linear(J * E, PIXELS)

    def squash(self, s):
        square = torch.einsum("...e,...e->...", s, s)[..., None]
        return s * scale_of(square.sqrt() if self.bug == "NaN at zero" else (square + 1e-18).sqrt(),
                            self.bug, (square + 1e-9).sqrt())  # fmt: skip

    def encode(self, x):
        f = self.stem(x).relu()
        f = functional.pad(f, (3, -3, 3, -3)) if self.bug == "padding on one side" else f
        f = self.normal(self.primary(f))
        if self.bug == "view across positions":
            u = f.reshape(len(f), I, D)
        else:
            u = f.unflatten(1, (TYPES, D)).permute(0, 3, 4, 1, 2).flatten(1, 3)
        if self.bug == "no primary squash":
            return u
        u = self.squash(u.mT).mT if self.bug == "squash over children" else self.squash(u)
        return self.less(u) if self.bug == "compressed" else u

    def route(self, votes):
        b = torch.zeros(1 if self.bug == "logits of the batch" else len(votes), I, J)
        turns = self.iterations + (self.bug == "one iteration more")
        for k in range(turns):
            axis = 1 if self.bug == "softmax over children" else 2
            c = (SCALES.get(self.bug, 1) * b).softmax(axis)
            own = votes.detach() if self.bug == "votes detached" and k < turns - 1 else votes
            s = torch.einsum("bij,bije->bje", c.expand(len(votes), I, J), own)
            s = s + 0.02 if self.bug == "bias in the sums" else s
            v = self.squash(s)
            if k < turns - 1 or self.bug == "last update unused":
                towards = s if self.bug == "agreement with the sum" else v
                a = torch.einsum("bije,bje->bij", own, towards)
                a = a.mean(1, keepdim=True) if self.bug == "agreement averaged" else a
                a = a.sum(0, keepdim=True) if self.bug == "logits of the batch" else a
                b = b + a
                b = b + a if self.bug == "agreement twice" else b
        return v

    def forward(self, x, labels=None):
        votes = torch.einsum("ijed,bid->bije", self.W.expand(I, J, E, D), self.encode(x))
        v = self.route(self.squash(votes) if self.bug == "votes squashed" else votes)
        lengths = v.square().sum(-1) if self.bug == "squared lengths" else v.norm(dim=-1)
        if labels is None or not (self.training or self.bug == "label at test"):
            labels = functional.one_hot(lengths.argmax(1), J).to(v)
        drawn = self.decoder(torch.einsum("bje,bj->bje", v, labels).flatten(1)).sigmoid()
        return {"lengths": lengths, "poses": v, "drawn": drawn.view(-1, *SHAPE)}

    def loss(self, output, images, labels):
        drawn = output["drawn"]
        drawn = drawn.flip(3) if self.bug == "pixels permuted" else drawn
        return total(output["lengths"], drawn, images, labels)


def total(lengths, drawn, images, labels):
    """Margin and reconstruction."""
    here = functional.one_hot(labels, J).to(lengths)
    margin = here * (0.9 - lengths).relu() ** 2 + 0.5 * (1 - here) * (lengths - 0.1).relu() ** 2
    squares = (drawn.flatten(1) - images.flatten(1)).square().sum(1)
    return (margin.sum(1) + 5e-4 * squares).mean()


class Squash(nn.Module):
    def __init__(self, bug, dim):
        super().__init__()
        self.bug, self.dim = bug, dim

    def forward(self, s):
        norm = torch.norm(s, dim=self.dim, keepdim=True)
        root = (norm**2 + 1e-9) ** 0.5
        if self.bug == "NaN at zero":
            norm = (s**2).sum(self.dim, keepdim=True) ** 0.5
        return scale_of(norm, self.bug, root) * s


class Primary(nn.Module):
    """A convolution for each number of a capsule."""

    def __init__(self, bug):
        super().__init__()
        self.bug = bug
        self.each = nn.ModuleList([nn.Conv2d(8, TYPES, 4, stride=2) for _ in range(D)])
        self.normal = nn.ModuleList([nn.BatchNorm2d(TYPES) for _ in range(D)])
        self.squash = Squash(bug, 1 if bug == "squash over children" else 2)
        self.less = nn.Linear(D, D)

    def forward(self, x):
        parts = []
        for conv, normal in zip(self.each, self.normal, strict=True):
            part = conv(x)
            parts.append(normal(part) if self.bug == "batch norm" else part)
        if self.bug == "view across positions":
            u = torch.cat(parts, dim=1).view(x.size(0), I, D)
        else:
            u = torch.stack([part.view(x.size(0), -1) for part in parts], dim=2)
        if self.bug != "no primary squash":
            u = self.squash(u)
        return self.less(u) if self.bug == "compressed" else u


class Digits(nn.Module):
    """Votes (B, I, J, E, 1)."""

    def __init__(self, bug):
        super().__init__()
        self.bug, self.routings = bug, 3
        size = (1, 1 if bug == "one matrix" else I, J, E, D)
        self.weight = nn.Parameter(torch.randn(*size) / 2)
        self.squash = Squash(bug, 3)

    def forward(self, u):
        u = u.unsqueeze(2).unsqueeze(4)  # (B, I, 1, D, 1)
        hat = torch.matmul(self.weight, u)
        if self.bug == "votes squashed":
            hat = self.squash(hat)
        b = torch.zeros(1 if self.bug == "logits of the batch" else hat.size(0), I, J, 1, 1)
        rounds = self.routings + 1 if self.bug == "one iteration more" else self.routings
        for k in range(rounds):
            c = functional.softmax(
                b * SCALES.get(self.bug, 1), dim=1 if self.bug == "softmax over children" else 2
            )
            last = k == rounds - 1
            seen = hat.detach() if self.bug == "votes detached" and not last else hat
            s = (c * seen).sum(dim=1, keepdim=True)
            if self.bug == "bias in the sums":
                s = s + 0.02
            v = self.squash(s)
            if not last or self.bug == "last update unused":
                a = torch.matmul(
                    seen.transpose(3, 4), s if self.bug == "agreement with the sum" else v
                )
                if self.bug == "agreement averaged":
                    a = a.mean(dim=1, keepdim=True)
                if self.bug == "logits of the batch":
                    a = a.mean(dim=0, keepdim=True)
                if self.bug == "agreement twice":
                    b = b + a
                b = b + a
        return v.squeeze(4).squeeze(1)


class Modules(nn.Module):
    def __init__(self, bug=""):
        super().__init__()
        self.bug = bug
        layers = [nn.Conv2d(1, 8, kernel_size=3), nn.ReLU()]
        if bug == "padding on one side":
            layers.insert(0, nn.ZeroPad2d((3, -3, 3, -3)))
        self.stem = nn.Sequential(*layers)
        self.primary, self.digits = Primary(bug), Digits(bug)
        self.decoder = nn.Sequential(nn.Linear(J * E, 16), nn.ReLU(), nn.Linear(16, PIXELS),
                                     nn.Sigmoid())  # fmt: skip

    def forward(self, x, target=None):
        v = self.digits(self.primary(self.stem(x)))
        scores = (v**2).sum(dim=-1)
        if self.bug != "squared lengths":
            scores = (scores + 1e-12) ** 0.5
        if target is None or not (self.training or self.bug == "label at test"):
            target = scores.max(dim=1)[1]
        if target.dim() == 1:
            target = torch.eye(J)[target]
        masked = v * target[:, :, None]
        return scores, self.decoder(masked.view(x.size(0), -1)).view(x.size(0), *SHAPE)

    def loss(self, output, images, labels):
        scores, drawn = output
        if self.bug == "pixels permuted":
            drawn = drawn.transpose(2, 3)
        return total(scores, drawn.reshape(len(drawn), -1), images, labels)


def squashed(s, bug, axis=-1):
    norm = torch.linalg.vector_norm(s, dim=axis, keepdim=True)
    root = torch.hypot(norm, torch.full_like(norm, 1e-5))
    if bug == "NaN at zero":
        norm = torch.sqrt(torch.sum(torch.square(s), axis, keepdim=True))
    return torch.mul(s, scale_of(norm, bug, root))


def next_logits(b, votes, s, v, bug):
    towards = s if bug == "agreement with the sum" else v
    a = torch.sum(torch.mul(votes, towards.unsqueeze(2)), -1)
    a = a.mean(2, keepdim=True) if bug == "agreement averaged" else a
    a = a.mean(0, keepdim=True) if bug == "logits of the batch" else a
    return torch.add(b, a, alpha=2.0 if bug == "agreement twice" else 1.0)


def routed(votes, turns, bug):
    """Votes (B, J, I, E), logits (B, J, I)."""
    b = votes.new_zeros(1 if bug == "logits of the batch" else len(votes), J, I)
    turns = turns + 1 if bug == "one iteration more" else turns
    for k in range(turns):
        c = torch.softmax(b.mul(SCALES.get(bug, 1)), 2 if bug == "softmax over children" else 1)
        own = votes.detach() if bug == "votes detached" and k < turns - 1 else votes
        s = torch.mul(c.unsqueeze(-1), own).sum(2)
        s = torch.add(s, 0.02) if bug == "bias in the sums" else s
        v = squashed(s, bug)
        if k + 1 < turns or bug == "last update unused":
            b = next_logits(b, own, s, v, bug)
    return v


class Functions(nn.Module):
    """Capsules are repeated for each number of each vote, as the authors' TensorFlow code does."""

    def __init__(self, bug=""):
        super().__init__()
        self.bug, self.turns = bug, 3
        bias = [0.1 * torch.randn(n) for n in (8, TYPES * D, PIXELS)]
        kernels = [torch.randn(8, 1, 3, 3) / 3, torch.randn(TYPES * D, 8, 4, 4) / 11]
        matrices = torch.randn(1 if bug == "one matrix" else I, D, J * E) / 2
        self.numbers = nn.ParameterList([*kernels, matrices, torch.randn(PIXELS, J * E), *bias])
        self.normal, self.less = nn.BatchNorm2d(TYPES * D), nn.Linear(D, D)

    def capsules(self, x):
        stem, kernel, _, _, *bias = self.numbers
        pad = 2 if self.bug == "padding on one side" else 0
        f = functional.conv2d(functional.relu(functional.conv2d(x, stem, bias[0])), kernel, bias[1],
                              2, pad)[..., :ROWS, :COLUMNS]  # fmt: skip
        f = self.normal(f) if self.bug == "batch norm" else f
        if self.bug == "view across positions":
            u = torch.reshape(f, (-1, I, D))
        else:
            u = torch.reshape(f, (-1, TYPES, D, ROWS * COLUMNS)).transpose(2, 3).reshape(-1, I, D)
        if self.bug == "no primary squash":
            return u
        u = squashed(u, self.bug, 1 if self.bug == "squash over children" else -1)
        return self.less(u) if self.bug == "compressed" else u

    def forward(self, x, y=None):
        _, _, matrices, weight, *bias = self.numbers
        tiled = self.capsules(x).unsqueeze(-1).tile(1, 1, 1, J * E)
        votes = torch.sum(torch.mul(tiled, matrices), 2).view(-1, I, J, E).transpose(1, 2)
        votes = squashed(votes, self.bug) if self.bug == "votes squashed" else votes
        v = routed(votes, self.turns, self.bug)
        lengths = torch.linalg.vector_norm(v, dim=-1)
        lengths = lengths.square() if self.bug == "squared lengths" else lengths
        given = y is not None and (self.training or self.bug == "label at test")
        mask = y if given else functional.one_hot(lengths.argmax(1), J).float()
        drawn = functional.linear(torch.mul(v, mask.unsqueeze(-1)).flatten(1), weight, bias[2])
        return [lengths, torch.sigmoid(drawn)]

    def loss(self, output, images, labels):
        lengths, drawn = output
        drawn = drawn.roll(1, 1) if self.bug == "pixels permuted" else drawn
        return total(lengths, drawn, images, labels)


STYLES = (Letters, Modules, Functions)


def built(style, bug=""):
    """A network of a style with a bug, or a variant, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return style(bug).eval()
