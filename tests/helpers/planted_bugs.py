"""A small CapsNet in plain PyTorch, written from the paper, and the same with one bug at a time.

Networks and losses share no code with capsviz. Sizes are all different: 24 children of 4 numbers
(2 types × 3 rows × 4 columns), 5 parents of 6, images (1, 11, 13).
"""

import warnings
from functools import partial

import numpy
import torch
from torch import nn
from torch.nn import functional

from capsviz import checks

SHAPE, CLASSES = (1, 11, 13), 5
TYPES, D, ROWS, COLUMNS, J, E = 2, 4, 3, 4, CLASSES, 6
I = TYPES * ROWS * COLUMNS
PIXELS = 11 * 13


class Correct(nn.Module):
    """As the paper has it."""

    routings = 3

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.stem = nn.Conv2d(1, 8, 3)
            self.primary = nn.Conv2d(8, TYPES * D, 4, stride=2)
            self.weight = nn.Parameter(self.spread() * torch.randn(I, J, E, D))
            self.decoder = nn.Sequential(nn.Linear(self.width(), PIXELS), nn.Sigmoid())
        self.iterations = self.routings

    def spread(self):
        return 0.5

    def width(self):
        return J * E

    def squash(self, s, dim=-1):
        n2 = (s * s).sum(dim=dim, keepdim=True)
        return s * n2 / (1 + n2) / (n2 + 1e-9).sqrt()

    def vectors(self, features):
        u = features.view(len(features), TYPES, D, ROWS, COLUMNS).permute(0, 1, 3, 4, 2)
        return u.reshape(len(features), I, D)

    def capsules(self, features):
        return self.squash(self.vectors(features))

    def couplings(self, logits):
        return logits.softmax(dim=2)

    def zeros(self, u):
        return u.new_zeros(len(u), I, J)

    def agreed(self, logits, votes, v):
        return logits + (votes * v.unsqueeze(1)).sum(dim=-1)

    def summed(self, c, votes):
        return (c.unsqueeze(-1) * votes).sum(dim=1)

    def routed(self, votes, logits):
        for k in range(self.iterations):
            v = self.short(self.summed(self.couplings(logits), votes))
            if k < self.iterations - 1:
                logits = self.agreed(logits, votes, v)
        return v

    def short(self, s):
        return self.squash(s)

    def lengths(self, v):
        return (v.square().sum(-1) + 1e-12).sqrt()

    def drawn(self, v, labels):
        return self.decoder((v * labels.unsqueeze(-1)).flatten(1)).view(-1, *SHAPE)

    def features(self, x):
        return self.primary(self.stem(x).relu())

    def poses(self, x):
        u = self.capsules(self.features(x))
        votes = torch.einsum("ijed,bid->bije", self.weight, u)
        return self.routed(votes, self.zeros(u))

    def forward(self, x, labels=None):
        v = self.poses(x)
        lengths = self.lengths(v)
        if labels is None or not self.training:
            labels = functional.one_hot(lengths.argmax(1), J).to(v)
        return lengths, self.drawn(v, labels)


def examined(network, **facts):
    """The report of all checks, or of `only` some."""
    return checks.run(network, SHAPE, CLASSES, **facts)


def of_status(report, status):
    """Names of the checks with this status."""
    return [one.check for one in report.verdicts if one.status == status]


def planted(base=Correct, **methods):
    """A network with other methods than `base`."""
    return type("Planted", (base,), methods)


def agreement(votes, v):
    return (votes * v.unsqueeze(1)).sum(dim=-1)


def square(s):
    return s.square().sum(-1, keepdim=True)


# Primary capsules: `vectors` of features (B, D * types, rows, columns), and `capsules` of these.
AcrossPlaces = planted(vectors=lambda _, f: f.view(len(f), I, D))
SquashOverChildren = planted(capsules=lambda self, f: self.squash(self.vectors(f), dim=1))
UnitChildren = planted(capsules=lambda self, f: functional.normalize(self.vectors(f), dim=-1))
ChildrenDetached = planted(capsules=lambda self, f: Correct.capsules(self, f).detach())
ReluBeforeSquash = planted(features=lambda self, x: Correct.features(self, x).relu())


class SquashOverColumns(Correct):
    def capsules(self, features):
        u = self.squash(features.view(len(features), TYPES, D, ROWS, COLUMNS))
        return u.permute(0, 1, 3, 4, 2).reshape(len(features), I, D)


# Couplings (B, I, J) of logits.
SoftmaxOverChildren = planted(couplings=lambda _, b: b.softmax(dim=1))
SoftmaxByHand = planted(couplings=lambda _, b: b.exp() / b.exp().sum(dim=2, keepdim=True))
OverChildrenAndBatch = planted(
    couplings=lambda _, b: b.mean(dim=0, keepdim=True).expand_as(b).softmax(dim=1),
)


class ImplicitSoftmax(Correct):
    """Of three axes torch takes the first: the images."""

    def couplings(self, logits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return functional.softmax(logits)


class OverChildrenAndSqueezed(SoftmaxOverChildren):
    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x, labels)
        return lengths.squeeze(), drawn


# Logits (B, I, J): how they begin, and what the agreement of votes and poses v makes of them.
OnGPU = planted(zeros=lambda _, u: torch.zeros(len(u), I, J).cuda())
OfGPUType = planted(zeros=lambda _, u: torch.zeros(len(u), I, J).type(torch.cuda.FloatTensor))
NeverRouted = planted(agreed=lambda _, b, votes, v: b)
AwayFromAgreement = planted(agreed=lambda _, b, votes, v: b - agreement(votes, v))
ReplacedLogits = planted(agreed=lambda _, b, votes, v: agreement(votes, v))
AgreementDetached = planted(agreed=lambda _, b, votes, v: b + agreement(votes, v).detach())
OtherParent = planted(agreed=lambda _, b, votes, v: b + agreement(votes, v.roll(1, 1)))
HalfAgreement = planted(agreed=lambda _, b, votes, v: b + agreement(votes[..., :3], v[..., :3]))
AgreementOfSquashedVotes = planted(
    agreed=lambda self, b, votes, v: b + agreement(self.squash(votes), v),
)
Distance = planted(  # votes that are far from the pose count for it
    agreed=lambda _, b, votes, v: b + (votes - v.unsqueeze(1)).square().sum(dim=-1)
)


SharedLogits = planted(  # of all images
    zeros=lambda _, u: u.new_zeros(1, I, J),
    agreed=lambda _, b, votes, v: b + agreement(votes, v).sum(0, keepdim=True),
    summed=lambda _, c, votes: (c.expand(len(votes), I, J).unsqueeze(-1) * votes).sum(dim=1),
)


class KeptLogits(Correct):
    """Logits lie in a buffer, and go on from call to call."""

    def __init__(self):
        super().__init__()
        self.register_buffer("logits", torch.zeros(1, I, J))

    def routed(self, votes, logits):
        logits = self.logits.expand(len(votes), I, J)
        for _ in range(self.iterations):
            v = self.squash(self.summed(self.couplings(logits), votes))
            logits = self.agreed(logits, votes, v)
        self.logits = logits.mean(0, keepdim=True).detach()
        return v


FaintlyKeptLogits = planted(
    KeptLogits, agreed=lambda _, b, votes, v: b + 1e-6 * agreement(votes, v)
)


# Routing of votes, and the squash of class capsules.
SquashOverClasses = planted(short=lambda self, s: self.squash(s, dim=1))
NoClassSquash = planted(short=lambda _, s: 0.1 * s)
VanishingLengths = planted(short=lambda _, s: s / (1 + square(s)))
VotesDetached = planted(routed=lambda self, votes, b: Correct.routed(self, votes.detach(), b))
UnitLength = planted(
    routed=lambda self, *given: functional.normalize(Correct.routed(self, *given), dim=-1),
)
Squeezed = planted(poses=lambda self, x: Correct.poses(self, x).squeeze())


class SquashOverNothing(Correct):
    """The last axis has one number: each number of a pose is squashed by itself."""

    def short(self, s):
        return self.squash(s.unsqueeze(-1)).squeeze(-1)

    def forward(self, x):
        return self.poses(x)


LargeBias = planted(  # no bug: what training may make of a bias inside routing
    summed=lambda self, c, votes: Correct.summed(self, c, votes) + 2.0 / E**0.5
)


class EachPose(Correct):
    """Makes the poses of all iterations, and returns those of the first."""

    def routed(self, votes, logits):
        poses = []
        for _ in range(self.iterations):
            poses.append(self.squash(self.summed(self.couplings(logits), votes)))
            logits = self.agreed(logits, votes, poses[-1])
        return poses[0]


class AgreementBeforeSquash(Correct):
    def routed(self, votes, logits):
        for _ in range(self.iterations - 1):
            logits = self.agreed(logits, votes, self.summed(self.couplings(logits), votes))
        return self.short(self.summed(self.couplings(logits), votes))


class Detached(Correct):
    def routed(self, votes, logits):
        fixed = votes.detach()
        for k in range(self.iterations):
            last = k == self.iterations - 1
            v = self.squash(self.summed(self.couplings(logits), votes if last else fixed))
            if not last:
                logits = self.agreed(logits, fixed, v)
        return v


# The squash of all capsules: NaN of outputs or gradients.


class NaNGradientAtLarge(Correct):
    def squash(self, s, dim=-1):
        norm = (s.square().sum(dim=dim, keepdim=True) + 1e-9).sqrt()
        return (1 - 1 / norm.exp()) * s / norm


# Lengths of poses, and what is drawn of them.
NaNGradientOfLengths = planted(lengths=lambda _, v: v.square().sum(-1).sqrt())
SoftmaxOnLengths = planted(lengths=lambda self, v: Correct.lengths(self, v).softmax(1))
NaNAlways = planted(lengths=lambda self, v: Correct.lengths(self, v) * float("nan"))
SigmoidScores = planted(  # no bug: scores of short capsules are near 0.5
    lengths=lambda self, v: (Correct.lengths(self, v) - 0.1).sigmoid()
)
NextClassDrawn = planted(drawn=lambda self, v, y: Correct.drawn(self, v, y.roll(1, 1)))
AllDrawn = planted(drawn=lambda self, v, y: Correct.drawn(self, v, 0 * y + 1))
FirstMask = planted(  # the mask of the first image is that of all
    drawn=lambda self, v, y: Correct.drawn(self, v, y[:1].expand(len(v), J))
)


class UntoldDecoder(Correct):
    def width(self):
        return E

    def drawn(self, v, labels):
        return self.decoder((v * labels.unsqueeze(-1)).sum(1)).view(-1, *SHAPE)


# Labels at test.
class LabelAtTest(Correct):
    def forward(self, x, labels):
        v = self.poses(x)
        return self.lengths(v), self.drawn(v, labels)


class LabelTaken(Correct):
    def forward(self, x, labels=None):
        v = self.poses(x)
        lengths = self.lengths(v)
        if labels is None:
            labels = functional.one_hot(lengths.argmax(1), J).to(v)
        return lengths, self.drawn(v, labels)


class LabelScored(Correct):
    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x)
        return lengths if labels is None else lengths + 0.1 * labels, drawn


class LabelByName(LabelTaken):
    def forward(self, x, scale=1.0, *, y_true=None):
        return super().forward(x * scale, y_true)


class LabelPerhaps(Correct):
    def forward(self, x, chosen=None):
        return super().forward(x, chosen)


# Weights, and what is drawn at random.
DecoderDetached = planted(drawn=lambda self, v, y: Correct.drawn(self, v.detach(), y))
Overwritten = planted(  # a gradient needs the couplings
    summed=lambda self, c, votes: (Correct.summed(self, c, votes), c.zero_())[0]
)
LengthsDetached = planted(lengths=lambda self, v: Correct.lengths(self, v).detach())
ShortPoses = planted(spread=lambda _: 1e-3)  # as `nn.Conv2d` begins
Saturated = planted(spread=lambda _: 30.0)  # too large for many children
Random = planted(
    features=lambda self, x: functional.dropout(Correct.features(self, x), 0.5, training=True),
)
NoiseByHand = planted(  # of numpy, in evaluation mode too
    features=lambda self, x: Correct.features(self, x) * (1 + 0.1 * float(numpy.random.rand())),
)


class Collapsed(Correct):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(3e-4)


def loss(output, images, labels, power=2, pixels=torch.sum, absent=0.5, margins=(0.9, 0.1)):
    """Margin and reconstruction, as the paper has them: sums of an image, the mean of a batch."""
    lengths, drawn = output
    present = functional.one_hot(labels, J).to(lengths)
    short, long = (margins[0] - lengths).clamp_min(0), (lengths - margins[1]).clamp_min(0)
    margin = present * short**power + absent * (1 - present) * long**power
    squares = (drawn - images).square().flatten(1)
    return margin.sum(1).mean() + 0.0005 * pixels(squares, 1).mean()


def relabelled(output, images, labels, order=lambda y: J - 1 - y):
    return loss(output, images, order(labels))


def detached_lengths(output, images, labels):
    return loss((output[0].detach(), output[1]), images, labels)


def unlabelled(output, images, labels):
    return loss(output, images, torch.zeros_like(labels))


def exchanged_and_weighed(output, images, labels):
    lengths, drawn = output
    present = functional.one_hot(labels, J).to(lengths)
    short, long = (0.9 - lengths).clamp_min(0), (lengths - 0.1).clamp_min(0)
    margin = 0.5 * (1 - present) * short**2 + present * long**2
    return (margin * torch.linspace(0.5, 2, J)).sum(1).mean() + 0 * drawn.mean()


margin_not_squared = partial(loss, power=1)
mean_of_pixels = partial(loss, pixels=torch.mean)


def softmax_in_the_loss(output, images, labels):
    return loss((output[0].softmax(1), output[1]), images, labels)


def hardest_absent(output, images, labels):
    """Of the longest absent class alone, weighed as all together."""
    lengths, drawn = output[:2]
    right = functional.one_hot(labels, J).to(lengths)
    present = (right * (0.9 - lengths).relu().square()).sum(1)
    absent = ((1 - right) * (lengths - 0.1).relu().square()).amax(1)
    return (present + 0.5 * (J - 1) * absent).mean() + 0 * drawn.mean()


def digits(count=20, normalised=False):
    """Pictures in [0, 1], black and white in each, and labels."""
    images = torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(0))
    images[:, 0, 0, 0], images[:, 0, 0, 1] = 0, 1
    if normalised:
        images = (images - 0.1307) / 0.3081
    return torch.utils.data.TensorDataset(images, torch.arange(count) % J)


class Moved(torch.utils.data.Dataset):
    """A test set that shifts each image at random, as an augmentation left on does."""

    def __len__(self):
        return 20

    def __getitem__(self, k):
        image, label = digits()[k]
        shift = int(torch.randint(0, 5, ()))
        return image.roll(shift, 2), label
