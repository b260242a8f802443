"""Which capsule types, positions and pose dimensions does the prediction need?

`capsviz importance --explain` prints the method, what to see, and what not to conclude.
"""

from capsviz.analyses.importance.image import OneImage, Result
from capsviz.analyses.importance.statistics import OverImages, Statistics

__all__ = ["OneImage", "OverImages", "Result", "Statistics"]
