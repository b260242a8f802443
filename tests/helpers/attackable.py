"""Networks to attack of which it is known what an attack must find."""

from torch import nn

from capsviz.nn.models import Scores


class Linear(nn.Module):
    """Scores that are linear in the pixels: `weight` (J, C * H * W)."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, images):
        scores = images.flatten(1) @ self.weight.T
        return Scores(scores.softmax(1), scores)


class OfScores(nn.Module):
    """A network that shows a function of another one's scores, and nothing inside."""

    def __init__(self, inner, function):
        super().__init__()
        self.inner, self.function = inner, function
        self.card, self.config = inner.card if hasattr(inner, "card") else {}, inner.config

    def forward(self, images):
        scores = self.function(self.inner(images).lengths)
        return Scores(scores, scores)
