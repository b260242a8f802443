"""A small CapsNet in plain PyTorch, written from the paper, and the same with one bug at a time.

Networks and losses share no code with capsviz. Sizes are all different: 24 children of 4 numbers
(2 types × 3 rows × 4 columns), 5 parents of 6, images (1, 11, 13).
"""

import warnings

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

    def made(self):
        """How many iterations it makes."""
        return self.iterations

    def routed(self, votes, logits):
        for k in range(self.made()):
            v = self.short(self.summed(self.couplings(logits), votes))
            if k < self.made() - 1:
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


class AcrossPlaces(Correct):
    def vectors(self, features):
        return features.view(len(features), I, D)


class SoftmaxOverChildren(Correct):
    def couplings(self, logits):
        return logits.softmax(dim=1)


class ImplicitSoftmax(Correct):
    """Of three axes torch takes the first: the images."""

    def couplings(self, logits):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return functional.softmax(logits)


class SharedLogits(Correct):
    def zeros(self, u):
        return u.new_zeros(1, I, J)

    def agreed(self, logits, votes, v):
        return logits + (votes * v.unsqueeze(1)).sum(dim=-1).sum(0, keepdim=True)

    def summed(self, c, votes):
        return (c.expand(len(votes), I, J).unsqueeze(-1) * votes).sum(dim=1)


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


class FaintlyKeptLogits(KeptLogits):
    def agreed(self, logits, votes, v):
        return logits + 1e-6 * (super().agreed(logits, votes, v) - logits)


class NoiseByHand(Correct):
    """Noise of numpy, in evaluation mode too."""

    def features(self, x):
        return super().features(x) * (1 + 0.1 * float(numpy.random.rand()))


class AveragedLogits(Correct):
    def agreed(self, logits, votes, v):
        return logits + (votes * v.unsqueeze(1)).sum(dim=-1).mean(0, keepdim=True)


class AwayFromAgreement(Correct):
    def agreed(self, logits, votes, v):
        return logits - (votes * v.unsqueeze(1)).sum(dim=-1)


class Distance(Correct):
    """Votes that are far from the pose count for it."""

    def agreed(self, logits, votes, v):
        return logits + (votes - v.unsqueeze(1)).square().sum(dim=-1)


class AveragedOverChildren(Correct):
    def agreed(self, logits, votes, v):
        return logits + (votes * v.unsqueeze(1)).sum(dim=-1).mean(1, keepdim=True)


class TenTimesTheLogits(Correct):
    def couplings(self, logits):
        return (10 * logits).softmax(dim=2)


class TenthOfTheLogits(Correct):
    def couplings(self, logits):
        return (0.1 * logits).softmax(dim=2)


class AddedTwice(Correct):
    def agreed(self, logits, votes, v):
        return logits + 2 * (votes * v.unsqueeze(1)).sum(dim=-1)


class AgreementBeforeSquash(Correct):
    def routed(self, votes, logits):
        for _ in range(self.iterations - 1):
            logits = self.agreed(logits, votes, self.summed(self.couplings(logits), votes))
        return self.short(self.summed(self.couplings(logits), votes))


class OneMatrix(Correct):
    def poses(self, x):
        u = self.capsules(self.features(x))
        return self.routed(torch.einsum("jed,bid->bije", self.weight[0], u), self.zeros(u))


class NormForSquare(Correct):
    def short(self, s):
        return s / (1 + (s.square().sum(-1, keepdim=True) + 1e-9).sqrt())


class EpsilonOfOne(Correct):
    def short(self, s):
        n2 = s.square().sum(-1, keepdim=True)
        return s * n2 / (1 + n2) / (n2 + 1).sqrt()


class SquaredLengths(Correct):
    def lengths(self, v):
        return v.square().sum(-1)


class LabelInScores(Correct):
    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x)
        return (lengths if labels is None else 0.9 * lengths + 0.1 * labels), drawn


class SigmoidScores(Correct):
    """No bug: scores of short capsules are near 0.5."""

    def lengths(self, v):
        return (super().lengths(v) - 0.1).sigmoid()


class OtherParent(Correct):
    """The agreement is with the next parent."""

    def agreed(self, logits, votes, v):
        return super().agreed(logits, votes, v.roll(1, 1))


class ReplacedLogits(Correct):
    def agreed(self, logits, votes, v):
        return (votes * v.unsqueeze(1)).sum(-1)


class NeverRouted(Correct):
    def agreed(self, logits, votes, v):
        return logits


class SquashOverChildren(Correct):
    def capsules(self, features):
        return self.squash(self.vectors(features), dim=1)


class SquashOverColumns(Correct):
    def capsules(self, features):
        u = self.squash(features.view(len(features), TYPES, D, ROWS, COLUMNS))
        return u.permute(0, 1, 3, 4, 2).reshape(len(features), I, D)


class SquashOverClasses(Correct):
    def short(self, s):
        return self.squash(s, dim=1)


class SquashOverNothing(Correct):
    """The last axis has one number: each number of a pose is squashed by itself."""

    def short(self, s):
        return self.squash(s.unsqueeze(-1)).squeeze(-1)

    def forward(self, x):
        return self.poses(x)


class NaNAtZero(Correct):
    def squash(self, s, dim=-1):
        n2 = (s * s).sum(dim=dim, keepdim=True)
        return s * n2 / (1 + n2) / n2.sqrt()


class NaNGradientAtZero(Correct):
    def squash(self, s, dim=-1):
        n2 = (s * s).sum(dim=dim, keepdim=True)
        return s * n2 / (1 + n2) / (n2.sqrt() + 1e-8)


class NaNGradientOfLengths(Correct):
    def lengths(self, v):
        return v.square().sum(-1).sqrt()


class NaNGradientAtLarge(Correct):
    def squash(self, s, dim=-1):
        norm = (s.square().sum(dim=dim, keepdim=True) + 1e-9).sqrt()
        return (1 - 1 / norm.exp()) * s / norm


class LargeBias(Correct):
    """No bug: what training may make of a bias inside routing."""

    def summed(self, c, votes):
        return super().summed(c, votes) + 2.0 / E**0.5


class OverChildrenAndBatch(Correct):
    def couplings(self, logits):
        return logits.mean(dim=0, keepdim=True).expand_as(logits).softmax(dim=1)


class OverChildrenAndSqueezed(SoftmaxOverChildren):
    def forward(self, x, labels=None):
        lengths, drawn = super().forward(x, labels)
        return lengths.squeeze(), drawn


class Collapsed(Correct):
    def __init__(self):
        super().__init__()
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(1e-4)


class NoPrimarySquash(Correct):
    def capsules(self, features):
        return self.vectors(features)


class ReluBeforeSquash(Correct):
    def features(self, x):
        return super().features(x).relu()


class SoftmaxOnLengths(Correct):
    def lengths(self, v):
        return super().lengths(v).softmax(1)


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


class LabelByName(LabelTaken):
    def forward(self, x, scale=1.0, *, y_true=None):
        return super().forward(x * scale, y_true)


class LabelPerhaps(Correct):
    def forward(self, x, chosen=None):
        return super().forward(x, chosen)


class NaNAlways(Correct):
    def lengths(self, v):
        return super().lengths(v) * float("nan")


class NoClassSquash(Correct):
    def short(self, s):
        return 0.1 * s


class UndividedSquash(NoClassSquash):
    def short(self, s):
        n2 = s.square().sum(-1, keepdim=True)
        return n2 / (1 + n2) * s


class VanishingLengths(Correct):
    def short(self, s):
        return s / (1 + s.square().sum(-1, keepdim=True))


class UnitLength(Correct):
    def routed(self, votes, logits):
        return functional.normalize(super().routed(votes, logits), dim=-1)


class UnitChildren(Correct):
    def capsules(self, features):
        return functional.normalize(super().capsules(features), dim=-1)


class ShortPoses(Correct):
    """Untrained, as `nn.Conv2d` begins: nothing moves a coupling further than float32 shows."""

    def spread(self):
        return 1e-3


class Detached(Correct):
    def routed(self, votes, logits):
        fixed = votes.detach()
        for k in range(self.iterations):
            last = k == self.iterations - 1
            v = self.squash(self.summed(self.couplings(logits), votes if last else fixed))
            if not last:
                logits = self.agreed(logits, fixed, v)
        return v


class VotesDetached(Correct):
    def routed(self, votes, logits):
        return super().routed(votes.detach(), logits)


class ChildrenDetached(Correct):
    def capsules(self, features):
        return super().capsules(features).detach()


class AgreementDetached(Correct):
    def agreed(self, logits, votes, v):
        return logits + (votes * v.unsqueeze(1)).sum(dim=-1).detach()


class FirstMask(Correct):
    """The mask of the first image is that of all."""

    def drawn(self, v, labels):
        return super().drawn(v, labels[:1].expand(len(v), J))


class OneTooMany(Correct):
    def made(self):
        return self.iterations + 1


class OneTooFew(Correct):
    def made(self):
        return self.iterations - 1


class Squeezed(Correct):
    def poses(self, x):
        return super().poses(x).squeeze()


class SoftmaxByHand(Correct):
    def couplings(self, logits):
        e = logits.exp()
        return e / e.sum(dim=2, keepdim=True)


class OnGPU(Correct):
    def zeros(self, u):
        return torch.zeros(len(u), I, J).cuda()


class OfGPUType(Correct):
    def zeros(self, u):
        return torch.zeros(len(u), I, J).type(torch.cuda.FloatTensor)


class UntoldDecoder(Correct):
    def width(self):
        return E

    def drawn(self, v, labels):
        return self.decoder((v * labels.unsqueeze(-1)).sum(1)).view(-1, *SHAPE)


class NextClassDrawn(Correct):
    def drawn(self, v, labels):
        return super().drawn(v, labels.roll(1, 1))


class Saturated(Correct):
    """Weights of deviation 1, which are too large for many children."""

    def spread(self):
        return 30.0


class Random(Correct):
    def features(self, x):
        return functional.dropout(super().features(x), 0.5, training=True)


def loss(output, images, labels):
    """Margin and reconstruction, as the paper has them: sums of an image, the mean of a batch."""
    return of_parts(output, images, labels)


def of_parts(
    output, images, labels, power=2, pixels=torch.sum, absent=0.5, classes=torch.sum,
    margins=(0.9, 0.1), swapped=False,
):  # fmt: skip
    lengths, drawn = output
    present = functional.one_hot(labels, J).to(lengths)
    present = 1 - present if swapped else present
    short, long = (margins[0] - lengths).clamp_min(0), (lengths - margins[1]).clamp_min(0)
    margin = present * short**power + absent * (1 - present) * long**power
    squares = (drawn - images).square().flatten(1)
    return classes(margin, 1).mean() + 0.0005 * pixels(squares, 1).mean()


def margin_not_squared(output, images, labels):
    return of_parts(output, images, labels, power=1)


def hardest_absent(output, images, labels):
    """Of the longest absent class alone, weighed as all together."""
    lengths, drawn = output[:2]
    right = functional.one_hot(labels, J).to(lengths)
    present = (right * (0.9 - lengths).relu().square()).sum(1)
    absent = ((1 - right) * (lengths - 0.1).relu().square()).amax(1)
    return (present + 0.5 * (J - 1) * absent).mean() + 0 * drawn.mean()


def exchanged(output, images, labels):
    """Present and absent."""
    return of_parts(output, images, labels, swapped=True)


def other_margins(output, images, labels):
    return of_parts(output, images, labels, margins=(0.8, 0.2))


def mean_of_pixels(output, images, labels):
    return of_parts(output, images, labels, pixels=torch.mean)


def softmax_in_the_loss(output, images, labels):
    return loss((output[0].softmax(1), output[1]), images, labels)


def absent_as_heavy(output, images, labels):
    return of_parts(output, images, labels, absent=1.0)


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
