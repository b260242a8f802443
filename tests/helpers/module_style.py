"""A capsule network of modules, loops and axes of size 1, with one of twenty bugs planted.

Unlike `planted_bugs` it weighs votes by products and multiplies matrices by `matmul`. `BUGS` names
the check that finds a bug, and its status; `VARIANTS` are no bugs.
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
    "label at test": ("label_leak", "FAIL"),
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


def built(bug=""):
    """The network with a bug, or a variant, the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return Modules(bug).eval()
